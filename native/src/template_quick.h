// What the engine does with detours, done the same way without them: it makes a value of each name that it looks up,
// copies the table of all functions to look at one, and enters a macro by putting all variables into a new scope.

#pragma once

#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "template_limits.h"
#include "template_scope.h"

namespace causerie::guarded {

using namespace jinja;

// A function that values of this kind have, bound to this one; null if there is none.
inline value function_of(const value & of, const std::string & name) {
    const auto & functions = of->get_builtins();
    const auto found = functions.find(name);
    return found == functions.end() ? nullptr : mk_val<value_func>(name, found->second, of);
}

// What an object has under a name; null if nothing, or nothing that is defined.
inline value entry_of(const value_object_t & object, const value & name) {
    const auto found = object.unordered.find(name);
    return found == object.unordered.end() || found->second->is_undefined() ? nullptr : found->second;
}

// of[at] for an object and a text, or a list and a number; null for what the engine has to look at.
inline value item_of(const value & of, const value & at) {
    if (const auto * object = cast_val<value_object>(of); object != nullptr && is_val<value_string>(at)) {
        if (value found = entry_of(*object, at)) {
            return found;
        }
        const std::string name = at->as_string().str();
        value function = function_of(of, name);
        return function ? function : mk_val<value_undefined>(name);
    }
    if (is_val<value_array>(of) && is_val<value_int>(at)) {
        const auto & items = of->as_array();
        const auto n = static_cast<int64_t>(items.size());
        const int64_t index = at->as_int() < 0 ? at->as_int() + n : at->as_int();
        return index >= 0 && index < n ? items[static_cast<size_t>(index)] : mk_val<value_undefined>("object_property");
    }
    return nullptr;
}

// The text that values give when they are printed one after the other.
inline value printed(std::vector<value> && values) {
    auto text = mk_val<value_string>();
    auto & parts = text->val_str.parts;
    for (value & v : values) {
        if (v.use_count() == 1 && is_val<value_string>(v)) {  // it is not used elsewhere
            auto & own = v->val_str.parts;
            parts.insert(parts.end(), std::make_move_iterator(own.begin()), std::make_move_iterator(own.end()));
        } else {
            gather_string_parts_recursive(v, text);
        }
    }
    return text;
}

inline void execute(const statements & nodes, context & ctx, std::vector<value> & values) {
    for (const auto & node : nodes) {
        values.push_back(node->execute(ctx));
    }
}

inline value printed(const statements & nodes, context & ctx) {
    std::vector<value> values;
    execute(nodes, ctx, values);
    return printed(std::move(values));
}

struct quick_if : if_statement {
    explicit quick_if(if_statement && node) : if_statement(std::move(node)) {}
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        value v = printed(test->execute(ctx)->as_bool() ? body : alternate, ctx);
        spend_text(v);
        return v;
    }
};

struct quick_identifier : identifier {
    explicit quick_identifier(identifier && node) : identifier(std::move(node)), name_(mk_val<value_string>(val)) {}
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        const value * known = find_variable(ctx, name_);
        if (known == nullptr || (*known)->is_undefined()) {
            const auto found = global_builtins().find(val);
            if (found != global_builtins().end()) {
                return mk_val<value_func>(val, found->second);
            }
            return mk_val<value_undefined>(val);
        }
        value v = *known;
        if (ctx.is_get_stats) {
            value_t::stats_t::mark_used(v);
        }
        spend_text(v);
        return v;
    }

  private:
    value name_;
};

struct quick_macro : macro_statement {
    explicit quick_macro(macro_statement && node) : macro_statement(std::move(node)) {
        for (const auto & arg : args) {
            const auto * given = cast_stmt<keyword_argument_expression>(arg);
            const auto * id = cast_stmt<identifier>(given != nullptr ? given->key : arg);
            is_usual_ = is_usual_ && id != nullptr;
            if (id != nullptr) {
                parameters_.push_back({id->val, mk_val<value_string>(id->val), given != nullptr ? given->val.get() : nullptr});
            }
        }
    }

    value execute_impl(context & ctx) const override {
        spend_steps(1);
        const auto * id = cast_stmt<identifier>(name);
        if (!is_usual_ || id == nullptr) {
            return macro_statement::execute_impl(ctx);
        }
        ctx.set_val(id->val, mk_val<value_func>(id->val, [this](const func_args & given) { return called(given); }));
        return mk_val<value_undefined>();
    }

  private:
    struct Parameter {
        std::string name;
        value key;
        const statement * otherwise;
    };
    std::vector<Parameter> parameters_;
    bool is_usual_ = true;

    value called(const func_args & given) const {
        Scope inner(given.ctx);
        for (size_t i = 0; i < parameters_.size(); ++i) {
            const Parameter & parameter = parameters_[i];
            if (i >= given.count() && parameter.otherwise == nullptr) {
                throw std::runtime_error("Not enough arguments provided to '" + given.func_name + "'");
            }
            Variable(inner, parameter.key)
                .set(i < given.count() ? given.get_kwarg_or_pos(parameter.name, i) : parameter.otherwise->execute(given.ctx));
        }
        return printed(body, inner);
    }
};

}  // namespace causerie::guarded
