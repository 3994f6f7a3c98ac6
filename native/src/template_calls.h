// Calls of functions, as filters and tests too. The engine makes a value of each function, bound to what it is called on,
// and copies the arguments for it.

#pragma once

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "template_limits.h"
#include "template_members.h"
#include "template_nodes.h"
#include "template_values.h"

namespace causerie::guarded {

using namespace jinja;

inline void evaluate(const statements & nodes, context & ctx, func_args & args) {
    for (const auto & node : nodes) {
        args.push_back(node->execute(ctx));
    }
}

inline value call(const std::string & name, const func_handler & handler, func_args & args) {
    args.func_name = name;
    return handler(args);
}

// "name" or "name(...)" behind "|" and "is".
struct Named {
    std::string name;
    const call_expression * call = nullptr;
    explicit Named(const statement_ptr & node) : call(cast_stmt<call_expression>(node)) {
        if (const auto * id = cast_stmt<identifier>(call != nullptr ? call->callee : node)) {
            name = id->val;
        }
    }
    func_args args(context & ctx, value first) const {
        func_args all(ctx);
        all.push_back(first);
        if (call != nullptr) {
            evaluate(call->args, ctx, all);
        }
        return all;
    }
    // The same with arguments that are known, for the engine.
    statement_ptr with(const func_args & args) const {
        auto id = std::make_unique<identifier>(name);
        if (call == nullptr) {
            return id;
        }
        statements nodes;
        for (size_t i = 1; i < args.count(); ++i) {
            nodes.push_back(fixed(args.get_pos(i)));
        }
        return std::make_unique<call_expression>(std::move(id), std::move(nodes));
    }
};

struct guarded_filter : filter_expression {
    explicit guarded_filter(filter_expression && node) : filter_expression(std::move(node)), named_(filter) { look_up(); }
    guarded_filter(statement_ptr && of, statement_ptr && by) : filter_expression(std::move(of), std::move(by)), named_(filter) {
        look_up();
    }
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        if (named_.name.empty()) {
            return filter_expression::execute_impl(ctx);  // which refuses it
        }
        func_args args = named_.args(ctx, operand->execute(ctx));
        check_call(named_.name, args);
        const value & of = args.get_args().front();
        // Where there is none, the engine makes a text of the value first, or refuses.
        const func_handler * handler = ctx.is_get_stats ? nullptr : handler_of(of, function_);
        value v = handler != nullptr ? call(function_, *handler, args)
                                     : filter_expression(fixed(of), named_.with(args)).execute_impl(ctx);
        spend_text(v);
        return v;
    }

  private:
    Named named_;
    std::string function_;

    void look_up() {
        static const std::map<std::string, std::string> others = {
            {"count", "length"}, {"d", "default"}, {"e", "escape"}, {"trim", "strip"}};
        const auto other = others.find(named_.name);
        function_ = other == others.end() ? named_.name : other->second;
    }
};

struct guarded_test : test_expression {
    explicit guarded_test(test_expression && node) : test_expression(std::move(node)), named_(test) {
        const auto found = global_builtins().find("test_is_" + named_.name);
        handler_ = found == global_builtins().end() ? nullptr : &found->second;
    }
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        if (handler_ == nullptr) {
            return test_expression::execute_impl(ctx);  // which refuses it
        }
        const func_args args = named_.args(ctx, operand->execute(ctx));
        for (size_t i = 1; i < args.count(); ++i) {
            check_test(named_.name, args.get_args().front(), args.get_pos(i));
        }
        if (ctx.is_get_stats) {
            return test_expression(fixed(args.get_pos(0)), negate, named_.with(args)).execute_impl(ctx);
        }
        return truth(ctx, (*handler_)(args)->as_bool() != negate);
    }

  private:
    Named named_;
    const func_handler * handler_;
};

struct guarded_call : scoped<call_expression> {
    guarded_call(call_expression && node, std::shared_ptr<const int64_t> cost)
        : scoped(std::move(node), std::move(cost)), member_(dynamic_cast<const guarded_member *>(callee.get())) {}
    value execute_impl(context & ctx) const override {
        spend_steps(*scope);
        func_args given(ctx);
        evaluate(args, ctx, given);
        value v = member_ == nullptr || ctx.is_get_stats ? of(callee->execute(ctx), given) : of_member(ctx, given);
        spend_text(v);
        return v;
    }

  private:
    const guarded_member * member_;  // if one of a value is called

    value of_member(context & ctx, func_args & given) const {
        const value object = member_->object->execute(ctx);
        const func_handler * handler = member_->method(object);
        if (handler == nullptr) {
            return of(member_->named(object), given);
        }
        given.push_front(object);
        check_call(member_->name(), given);
        return call(member_->name(), *handler, given);
    }

    static value of(const value & called, func_args & given) {
        const auto * func = is_just<value_func_t>(called) ? static_cast<const value_func_t *>(called.get()) : nullptr;
        if (func == nullptr) {
            throw std::runtime_error("Callee is not a function: got " + called->type());
        }
        if (func->arg0) {
            given.push_front(func->arg0);
            check_call(func->name, given);
        } else if (global_builtins().count(func->name) != 0) {
            check_call(func->name, given);
        }
        return call(func->name, func->val_func, given);
    }
};

struct guarded_call_block : scoped<call_statement, 3> {
    using scoped::scoped;
    value execute_impl(context & ctx) const override {
        if (const auto * node = cast_stmt<call_expression>(call)) {
            const value called = node->callee->execute(ctx);
            const auto * func = cast_val<value_func>(called);
            if (func != nullptr && (func->arg0 || global_builtins().count(func->name) != 0)) {
                throw std::runtime_error("a call block calls a macro, not '" + func->name + "'");
            }
        }
        return scoped::execute_impl(ctx);
    }
};

}  // namespace causerie::guarded
