// Nodes that ask before they act (template_guard.h): members of values, and operators between them.

#pragma once

#include <memory>
#include <utility>

#include "template_limits.h"
#include "template_nodes.h"
#include "template_quick.h"

namespace causerie::guarded {

struct guarded_member : member_expression {
    explicit guarded_member(member_expression && node) : member_expression(std::move(node)) {
        if (const auto * id = cast_stmt<identifier>(property); id != nullptr && !computed) {
            name_ = mk_val<value_string>(id->val);
        }
    }
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        if (!computed) {
            value v = name_ && !ctx.is_get_stats ? named(ctx) : member_expression::execute_impl(ctx);
            spend_text(v);
            return v;
        }
        value of = object->execute(ctx);
        statement_ptr at;
        if (const auto * slice = cast_stmt<slice_expression>(property)) {
            spend_bytes(times(items_of(of), sizeof(value)));
            at = std::make_unique<slice_expression>(
                index(slice->start_expr, ctx), index(slice->stop_expr, ctx), index(slice->step_expr, ctx));
        } else {
            value name = property->execute(ctx);
            spend_whole(name);
            if (value v = ctx.is_get_stats ? nullptr : item_of(of, name)) {
                spend_text(v);
                return v;
            }
            at = fixed(std::move(name));
        }
        value v = member_expression(fixed(std::move(of)), std::move(at), true).execute_impl(ctx);
        spend_text(v);
        return v;
    }

  private:
    value name_;

    value named(context & ctx) const {
        const value of = object->execute(ctx);
        const std::string & name = cast_stmt<identifier>(property)->val;
        if (value function = function_of(of, name)) {
            return function;
        }
        if (const auto * known = cast_val<value_object>(of)) {
            if (value found = entry_of(*known, name_)) {
                return found;
            }
        }
        return mk_val<value_undefined>(of->is_undefined() ? "object_property" : name);
    }
    static statement_ptr index(const statement_ptr & node, context & ctx) {
        if (node == nullptr) {
            return nullptr;
        }
        value v = node->execute(ctx);
        check_index(v);
        return fixed(std::move(v));
    }
};

struct guarded_binary : binary_expression {
    explicit guarded_binary(binary_expression && node) : binary_expression(std::move(node)) {}
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        if (op.value == "and" || op.value == "or") {
            return binary_expression::execute_impl(ctx);
        }
        const value a = left->execute(ctx);
        const value b = right->execute(ctx);
        check(a, b);
        if (op.value == "==" || op.value == "!=") {
            return mk_val<value_bool>((*a == *b) == (op.value == "=="));
        }
        value v = binary_expression(op, fixed(a), fixed(b)).execute_impl(ctx);
        spend_text(v);
        return v;
    }

  private:
    void check(const value & a, const value & b) const {
        const bool lists = is_val<value_array>(a) && is_val<value_array>(b);
        if (op.value == "*") {
            spend_bytes(repeated(a, b) + repeated(b, a));
        } else if (op.value == "+" && lists) {
            spend_bytes(times(items_of(a) + items_of(b), sizeof(value)));
        } else if (op.value == "in" || op.value == "not in") {
            spend_whole(a);
            check_test("in", a, b);
        } else {
            spend_whole(a);
            spend_whole(b);
        }
    }
    static int64_t repeated(const value & text, const value & count) {
        const bool repeats = is_val<value_string>(text) && is_val<value_int>(count) && count->as_int() > 0;
        return repeats ? times(text_bytes(text) + 1, count->as_int()) : 0;
    }
};

}  // namespace causerie::guarded
