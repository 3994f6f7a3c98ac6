// A loop as the engine runs it, without its copies: it copies all variables once more for each item, whether or not the
// loop has a condition, and describes each item in a "loop" that most bodies never look at.

#pragma once

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "template_limits.h"
#include "template_quick.h"
#include "template_scope.h"

namespace causerie::guarded {

using namespace jinja;

inline value text_value(const char * text) { return mk_val<value_string>(std::string(text)); }

// What "loop" is while one of several items is gone through.
inline value loop_value(const std::vector<value> & items, size_t i) {
    static const value index = text_value("index"), index0 = text_value("index0"), revindex = text_value("revindex");
    static const value revindex0 = text_value("revindex0"), first = text_value("first"), last = text_value("last");
    static const value length = text_value("length"), previtem = text_value("previtem"), nextitem = text_value("nextitem");
    auto loop = mk_val<value_object>();
    loop->has_builtins = false;
    loop->val_obj.reserve(9);
    loop->unordered.reserve(9);
    const auto put = [&](const value & name, value v) {
        loop->unordered.emplace(name, v);
        loop->val_obj.emplace_back(name, std::move(v));
    };
    const auto number = [](size_t n) { return mk_val<value_int>(static_cast<int64_t>(n)); };
    const size_t n = items.size();
    put(index, number(i + 1));
    put(index0, number(i));
    put(revindex, number(n - i));
    put(revindex0, number(n - i - 1));
    put(first, mk_val<value_bool>(i == 0));
    put(last, mk_val<value_bool>(i == n - 1));
    put(length, number(n));
    put(previtem, i > 0 ? items[i - 1] : mk_val<value_undefined>("previtem"));
    put(nextitem, i + 1 < n ? items[i + 1] : mk_val<value_undefined>("nextitem"));
    return loop;
}

struct quick_for : for_statement {
    std::shared_ptr<const int64_t> scope;
    std::shared_ptr<const bool> needs_loop;

    quick_for(for_statement && node, std::shared_ptr<const int64_t> cost, std::shared_ptr<const bool> looks_at_loop)
        : for_statement(std::move(node)), scope(std::move(cost)), needs_loop(std::move(looks_at_loop)) {
        const auto * tuple = cast_stmt<tuple_literal>(loopvar);
        unpacks_ = tuple != nullptr;
        if (const auto * id = cast_stmt<identifier>(loopvar)) {
            names_.push_back(mk_val<value_string>(id->val));
        }
        for (size_t i = 0; unpacks_ && i < tuple->val.size(); ++i) {
            const auto * id = cast_stmt<identifier>(tuple->val[i]);
            is_usual_ = is_usual_ && id != nullptr;
            names_.push_back(id != nullptr ? mk_val<value_string>(id->val) : nullptr);
        }
        is_usual_ = is_usual_ && !names_.empty();
    }

    value execute_impl(context & ctx) const override {
        spend_steps(*scope);
        value v = is_usual_ && !ctx.is_get_stats ? quickly(ctx) : for_statement::execute_impl(ctx);
        spend_text(v);
        return v;
    }

  private:
    std::vector<value> names_;
    bool unpacks_ = false;
    bool is_usual_ = true;

    // What each item is, as far as the body is concerned; the engine takes all of them before it runs the body.
    std::vector<value> items_in(const value & given) const {
        std::vector<value> items;
        if (is_val<value_object>(given)) {
            for (const auto & pair : given->as_ordered_object()) {
                items.push_back(unpacks_ ? mk_val<value_tuple>(pair) : pair.first);
            }
        } else if (is_val<value_array>(given)) {
            items = given->as_array();
        } else if (!given->is_undefined()) {
            throw std::runtime_error("Expected iterable or object type in for loop: got " + given->type());
        }
        return items;
    }

    void check(const value & item) const {
        if (!unpacks_) {
            return;
        }
        if (!is_val<value_array>(item)) {
            throw std::runtime_error("Cannot unpack non-iterable type: " + item->type());
        }
        const size_t n = item->as_array().size();
        if (n != names_.size()) {
            throw std::runtime_error(std::string("Too ") + (names_.size() > n ? "few" : "many") + " items to unpack");
        }
    }

    std::vector<Variable> variables_in(context & ctx) const {
        std::vector<Variable> found;
        for (const value & name : names_) {
            found.emplace_back(ctx, name);
        }
        return found;
    }

    void bind(std::vector<Variable> & to, const value & item) const {
        check(item);  // again: a body may change it
        for (size_t i = 0; i < to.size(); ++i) {
            to[i].set(unpacks_ ? item->as_array()[i] : item);
        }
    }

    std::vector<value> chosen(std::vector<value> && items, context & ctx, const statement_ptr & condition) const {
        std::vector<value> kept;
        for (value & item : items) {
            check(item);
            if (condition != nullptr) {
                Scope inner(ctx);
                auto own = variables_in(inner);
                bind(own, item);
                if (!condition->execute(inner)->as_bool()) {
                    continue;
                }
            }
            kept.push_back(std::move(item));
        }
        return kept;
    }

    value quickly(context & ctx) const {
        static const value loop_name = text_value("loop");
        static const statement_ptr none;
        Scope inner(ctx);
        const auto * select = cast_stmt<select_expression>(iterable);
        const value given = (select != nullptr ? select->lhs : iterable)->execute(inner);
        const auto items = chosen(items_in(given), inner, select != nullptr ? select->test : none);
        std::vector<value> results;
        bool finished = false;
        if (!items.empty()) {
            std::optional<Variable> loop;
            if (*needs_loop) {
                loop.emplace(inner, loop_name);
            }
            auto own = variables_in(inner);
            for (size_t i = 0; i < items.size(); ++i) {
                if (loop) {
                    loop->set(loop_value(items, i));
                }
                bind(own, items[i]);
                try {
                    guarded::execute(body, inner, results);
                } catch (const continue_statement::signal &) {
                    continue;
                } catch (const break_statement::signal &) {
                    break;
                }
                finished = true;
            }
        }
        if (!finished) {
            guarded::execute(default_block, ctx, results);
        }
        return printed(std::move(results));
    }
};

}  // namespace causerie::guarded
