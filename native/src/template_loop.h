// A loop as the engine runs it, without its copies: it copies all variables once more for each item, whether or not the
// loop has a condition, and describes each item in a "loop" of which most bodies look at little.

#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "template_bodies.h"
#include "template_limits.h"
#include "template_scope.h"
#include "template_values.h"

namespace causerie::guarded {

using namespace jinja;

using Items = std::vector<value>;

struct LoopMember {
    value name;
    value (*of)(const Items & items, size_t i);
};

inline const std::array<LoopMember, 9> & loop_members() {
    static const auto number = [](size_t n) -> value { return mk_val<value_int>(static_cast<int64_t>(n)); };
    static const auto flag = [](bool is_true) -> value { return mk_val<value_bool>(is_true); };
    static const std::array<LoopMember, 9> members = {{
        {text_value("index"), [](const Items &, size_t i) { return number(i + 1); }},
        {text_value("index0"), [](const Items &, size_t i) { return number(i); }},
        {text_value("revindex"), [](const Items & items, size_t i) { return number(items.size() - i); }},
        {text_value("revindex0"), [](const Items & items, size_t i) { return number(items.size() - i - 1); }},
        {text_value("first"), [](const Items &, size_t i) { return flag(i == 0); }},
        {text_value("last"), [](const Items & items, size_t i) { return flag(i == items.size() - 1); }},
        {text_value("length"), [](const Items & items, size_t) { return number(items.size()); }},
        {text_value("previtem"),
         [](const Items & items, size_t i) { return i > 0 ? items[i - 1] : mk_val<value_undefined>("previtem"); }},
        {text_value("nextitem"),
         [](const Items & items, size_t i) { return i + 1 < items.size() ? items[i + 1] : mk_val<value_undefined>("nextitem"); }},
    }};
    return members;
}

// What a template looks at of "loop".
class LoopUse {
  public:
    void note(const std::string & member) {
        for (size_t k = 0; k < used_.size(); ++k) {
            used_[k] = used_[k] || is_same(loop_members()[k].name->val_str, member);
        }
        count_ = static_cast<size_t>(std::count(used_.begin(), used_.end(), true));
    }
    void note_all() {
        used_.fill(true);
        count_ = used_.size();
    }

    // "loop" while an item is gone through. before: what it was for the one before, which is used again unless somebody
    // has kept it.
    value loop(const Items & items, size_t i, value before) const {
        // This one and the variable, and nothing put into it.
        const bool again = before && before.use_count() <= 2 && before->val_obj.size() == count_;
        auto made = again ? nullptr : mk_val<value_object>();
        if (made) {
            made->has_builtins = false;
        }
        auto & object = made ? *made : static_cast<value_object_t &>(*before);
        for (size_t k = 0; k < used_.size(); ++k) {
            if (used_[k]) {
                put_under(object, loop_members()[k].name, loop_members()[k].of(items, i));
            }
        }
        return made ? value(made) : before;
    }

  private:
    std::array<bool, 9> used_{};
    size_t count_ = 0;
};

struct quick_for : printing<for_statement> {
    std::shared_ptr<const int64_t> scope;
    std::shared_ptr<const bool> needs_loop;
    std::shared_ptr<const LoopUse> use;

    quick_for(for_statement && node, std::shared_ptr<const int64_t> cost, std::shared_ptr<const bool> looks_at_loop,
              std::shared_ptr<const LoopUse> of_loop)
        : printing(std::move(node)), scope(std::move(cost)), needs_loop(std::move(looks_at_loop)), use(std::move(of_loop)),
          nodes_(body), otherwise_(default_block) {
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
        if (!is_usual_ || ctx.is_get_stats) {
            spend_steps(*scope);
            return for_statement::execute_impl(ctx);
        }
        return printing::execute_impl(ctx);
    }

    void print(context & ctx, value_string & text) const override {
        if (!is_usual_ || ctx.is_get_stats) {
            gather_string_parts_recursive(execute(ctx), text);
            return;
        }
        spend_steps(*scope);
        Printer printer(text);
        if (!print_items(ctx, printer)) {
            otherwise_.print(ctx, printer);
        }
        printer.finish();
    }

  private:
    Body nodes_, otherwise_;
    std::vector<value> names_;
    bool unpacks_ = false;
    bool is_usual_ = true;

    // What each item is, as far as the body is concerned; the engine takes all of them before it runs the body.
    Items items_in(const value & given) const {
        Items items;
        if (is_list(given)) {
            items = given->val_arr;
        } else if (is_val<value_object>(given)) {
            for (const auto & pair : given->as_ordered_object()) {
                items.push_back(unpacks_ ? mk_val<value_tuple>(pair) : pair.first);
            }
        } else if (!given->is_undefined()) {
            throw std::runtime_error("Expected iterable or object type in for loop: got " + given->type());
        }
        return items;
    }

    void check(const value & item) const {
        if (!unpacks_) {
            return;
        }
        if (!is_list(item)) {
            throw std::runtime_error("Cannot unpack non-iterable type: " + item->type());
        }
        const size_t n = item->val_arr.size();
        if (n != names_.size()) {
            throw std::runtime_error(std::string("Too ") + (names_.size() > n ? "few" : "many") + " items to unpack");
        }
    }

    void bind(context & ctx, const value & item) const {
        check(item);  // again: a body may change it
        for (size_t i = 0; i < names_.size(); ++i) {
            set_variable(ctx, names_[i], unpacks_ ? item->val_arr[i] : item);
        }
    }

    Items chosen(Items && items, context & ctx, const statement_ptr & condition) const {
        Items kept;
        const Scope scope_of_condition(ctx);
        for (value & item : items) {
            bind(ctx, item);
            if (condition->execute(ctx)->as_bool()) {
                kept.push_back(std::move(item));
            }
        }
        return kept;
    }

    // Whether an item was gone through to the end.
    bool print_items(context & ctx, Printer & printer) const {
        static const value loop_name = text_value("loop");
        const auto * select = cast_stmt<select_expression>(iterable);
        Items items = items_in((select != nullptr ? select->lhs : iterable)->execute(ctx));
        if (select != nullptr) {
            items = chosen(std::move(items), ctx, select->test);
        } else {
            for (const value & item : items) {
                check(item);
            }
        }
        if (items.empty()) {
            return false;
        }
        bool finished = false;
        const Scope inner(ctx);
        value loop;
        for (size_t i = 0; i < items.size(); ++i) {
            if (*needs_loop) {
                loop = use->loop(items, i, std::move(loop));
                set_variable(ctx, loop_name, loop);
            }
            bind(ctx, items[i]);
            try {
                nodes_.print(ctx, printer);
            } catch (const continue_statement::signal &) {
                continue;
            } catch (const break_statement::signal &) {
                break;
            }
            finished = true;
        }
        return finished;
    }
};

}  // namespace causerie::guarded
