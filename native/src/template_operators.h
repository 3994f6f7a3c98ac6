// Operators. Those that templates use most, on plain values, are computed here, and the rest by the engine's nodes, which
// are given the values as constants.

#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "template_limits.h"
#include "template_nodes.h"
#include "template_values.h"

namespace causerie::guarded {

struct guarded_binary : binary_expression {
    explicit guarded_binary(binary_expression && node) : binary_expression(std::move(node)), kind_(kind_of(op.value)) {}
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        const value a = left->execute(ctx);
        if (kind_ == Kind::And || kind_ == Kind::Or) {
            return a->as_bool() == (kind_ == Kind::And) ? right->execute(ctx) : a;
        }
        const value b = right->execute(ctx);
        check(a, b);
        value v = kind_ == Kind::Equal || kind_ == Kind::Unequal ? truth(ctx, are_equal(a, b) == (kind_ == Kind::Equal))
                                                                : of_plain(ctx, a, b);
        if (!v) {
            v = binary_expression(op, fixed(a), fixed(b)).execute_impl(ctx);
        }
        spend_text(v);
        return v;
    }

  private:
    enum class Kind { And, Or, Equal, Unequal, Add, Join, Subtract, Less, More, AtMost, AtLeast, In, NotIn, Other };
    Kind kind_;

    static Kind kind_of(const std::string & name) {
        static const std::map<std::string, Kind> known = {
            {"and", Kind::And}, {"or", Kind::Or}, {"==", Kind::Equal}, {"!=", Kind::Unequal}, {"+", Kind::Add}, {"~", Kind::Join},
            {"-", Kind::Subtract}, {"<", Kind::Less}, {">", Kind::More}, {"<=", Kind::AtMost}, {">=", Kind::AtLeast},
            {"in", Kind::In}, {"not in", Kind::NotIn},
        };
        const auto found = known.find(name);
        return found == known.end() ? Kind::Other : found->second;
    }

    static bool are_equal(const value & a, const value & b) {
        return is_text(a) && is_text(b) ? is_same(a->val_str, b->val_str) : *a == *b;
    }

    // Null for what the engine computes.
    value of_plain(const context & ctx, const value & a, const value & b) const {
        if (is_text(a) && is_text(b)) {
            if (kind_ == Kind::In || kind_ == Kind::NotIn) {
                return in(ctx, b->val_str.str().find(a->val_str.str()) != std::string::npos);
            }
            if (kind_ != Kind::Add && kind_ != Kind::Join) {
                return nullptr;
            }
            auto text = mk_val<value_string>(a->val_str);
            text->val_str.append(b->val_str);
            return text;
        }
        if (kind_ == Kind::In || kind_ == Kind::NotIn) {
            if (is_text(a) && is_list(b)) {
                const auto & items = b->val_arr;
                return in(ctx, std::any_of(items.begin(), items.end(), [&](const value & item) { return are_equal(a, item); }));
            }
            return is_text(a) && is_just<value_object_t>(b) ? in(ctx, b->has_key(a)) : nullptr;
        }
        return is_int(a) && is_int(b) ? of_numbers(ctx, a->as_float(), b->as_float()) : nullptr;
    }

    value in(const context & ctx, bool is_in) const { return truth(ctx, is_in == (kind_ == Kind::In)); }

    // As the engine does, which computes integers as floats.
    value of_numbers(const context & ctx, double a, double b) const {
        switch (kind_) {
            case Kind::Add: return mk_val<value_int>(static_cast<int64_t>(a + b));
            case Kind::Subtract: return mk_val<value_int>(static_cast<int64_t>(a - b));
            case Kind::Less: return truth(ctx, a < b);
            case Kind::More: return truth(ctx, a > b);
            case Kind::AtMost: return truth(ctx, a <= b);
            case Kind::AtLeast: return truth(ctx, a >= b);
            default: return nullptr;
        }
    }

    void check(const value & a, const value & b) const {
        if (kind_ == Kind::Other) {
            if (op.value == "*") {
                spend_bytes(repeated(a, b) + repeated(b, a));
                return;
            }
        } else if (kind_ == Kind::Add && is_list(a) && is_list(b)) {
            spend_bytes(times(items_of(a) + items_of(b), sizeof(value)));
            return;
        } else if (kind_ == Kind::In || kind_ == Kind::NotIn) {
            spend_whole(a);
            check_test("in", a, b);
            return;
        }
        spend_whole(a);
        spend_whole(b);
    }
    static int64_t repeated(const value & text, const value & count) {
        const bool repeats = is_text(text) && is_int(count) && count->as_int() > 0;
        return repeats ? times(text_bytes(text) + 1, count->as_int()) : 0;
    }
};

struct quick_not : unary_expression {
    explicit quick_not(unary_expression && node) : unary_expression(std::move(node)), is_not_(op.value == "not") {}
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        return is_not_ ? truth(ctx, !argument->execute(ctx)->as_bool()) : unary_expression::execute_impl(ctx);
    }

  private:
    bool is_not_;
};

}  // namespace causerie::guarded
