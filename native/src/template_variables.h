// Variables, and macros, which are entered with their parameters as variables.

#pragma once

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

struct quick_identifier : identifier {
    explicit quick_identifier(identifier && node)
        : identifier(std::move(node)), name_(mk_val<value_string>(val)), otherwise_(other()) {}
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        const value * known = find_variable(ctx, name_);
        if (known == nullptr || (*known)->is_undefined()) {
            return ctx.is_get_stats ? other() : otherwise_;
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
    value otherwise_;

    value other() const {
        const auto found = global_builtins().find(val);
        if (found != global_builtins().end()) {
            return mk_val<value_func>(val, found->second);
        }
        return mk_val<value_undefined>(val);
    }
};

struct quick_macro : macro_statement {
    explicit quick_macro(macro_statement && node) : macro_statement(std::move(node)), nodes_(body) {
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
        return nothing();
    }

  private:
    struct Parameter {
        std::string name;
        value key;
        const statement * otherwise;
    };
    Body nodes_;
    std::vector<Parameter> parameters_;
    bool is_usual_ = true;

    // As the engine's get_kwarg_or_pos().
    static value argument(const func_args & given, const std::string & name, size_t i) {
        for (const value & v : given.get_args()) {
            const auto * named = is_just<value_kwarg_t>(v) ? cast_val<value_kwarg>(v) : nullptr;
            if (named != nullptr && named->key == name) {
                return given.get_kwarg_or_pos(name, i);
            }
        }
        const value & v = given.get_args()[i];
        return is_just<value_kwarg_t>(v) ? mk_val<value_undefined>() : v;
    }

    value called(const func_args & given) const {
        std::vector<value> values;
        values.reserve(parameters_.size());
        for (size_t i = 0; i < parameters_.size(); ++i) {
            const Parameter & parameter = parameters_[i];
            if (i >= given.count() && parameter.otherwise == nullptr) {
                throw std::runtime_error("Not enough arguments provided to '" + given.func_name + "'");
            }
            values.push_back(
                i < given.count() ? argument(given, parameter.name, i) : parameter.otherwise->execute(given.ctx));
        }
        const Scope scope(given.ctx);
        for (size_t i = 0; i < parameters_.size(); ++i) {
            set_variable(given.ctx, parameters_[i].key, values[i]);
        }
        return nodes_.printed(given.ctx);
    }
};

}  // namespace causerie::guarded
