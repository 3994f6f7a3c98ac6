// Nodes that ask before they act (template_guard.h).
//
// Each derives from the engine's node of its kind, which the engine's code looks for. Where it matters what a node is
// given, its parts are computed first, looked at, and given to a node of the engine as constants.

#pragma once

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "jinja/runtime.h"
#include "template_limits.h"
#include "template_quick.h"

namespace causerie::guarded {

using namespace jinja;

inline constexpr int64_t scope_steps = 10;  // to copy the variables, and one more for each

// Values

struct constant : expression {
    value known;
    explicit constant(value v) : known(std::move(v)) {}
    value execute_impl(context &) const override { return known; }
};

inline statement_ptr fixed(value v) { return std::make_unique<constant>(std::move(v)); }

// A node that stands around another one, where the engine only executes what is there.
struct around : expression {
    statement_ptr inner;
    explicit around(statement_ptr && node) : inner(std::move(node)) { pos = inner->pos; }
    std::string type() const override { return inner->type(); }
};

// A key, which is hashed.
struct key : around {
    using around::around;
    value execute_impl(context & ctx) const override {
        value v = inner->execute(ctx);
        spend_whole(v);
        return v;
    }
};

// What is put into another value.
struct put : around {
    using around::around;
    value execute_impl(context & ctx) const override {
        value v = inner->execute(ctx);
        spend_nesting(v);
        return v;
    }
};

// What stands in a body, and is printed.
struct shown : around {
    using around::around;
    value execute_impl(context & ctx) const override {
        value v = inner->execute(ctx);
        if (is_val<value_array>(v)) {
            spend_whole(v);
        }
        return v;
    }
};

// What a loop goes through; it copies the variables for each item.
struct iterated : around {
    std::shared_ptr<const int64_t> scope;
    iterated(statement_ptr && node, std::shared_ptr<const int64_t> cost) : around(std::move(node)), scope(std::move(cost)) {}
    value execute_impl(context & ctx) const override {
        value v = inner->execute(ctx);
        const int64_t items = items_of(v);
        spend_steps(times(items, *scope));
        spend_bytes(times(items, 256));
        return v;
    }
};

// A body as an expression.
struct block : expression {
    statements body;
    explicit block(statements && nodes) : body(std::move(nodes)) {}
    value execute_impl(context & ctx) const override {
        auto results = mk_val<value_array>();
        for (const auto & node : body) {
            results->push_back(node->execute(ctx));
        }
        value text = runtime::gather_string_parts(results);
        spend_text(text);
        return text;
    }
};

// Nodes of the engine

template <class Node> struct counted : Node {
    explicit counted(Node && node) : Node(std::move(node)) {}
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        value v = Node::execute_impl(ctx);
        spend_text(v);
        return v;
    }
};

template <class Node, int64_t Times = 1> struct scoped : Node {
    std::shared_ptr<const int64_t> scope;
    scoped(Node && node, std::shared_ptr<const int64_t> cost) : Node(std::move(node)), scope(std::move(cost)) {}
    value execute_impl(context & ctx) const override {
        spend_steps(*scope * Times);
        value v = Node::execute_impl(ctx);
        spend_text(v);
        return v;
    }
};

inline func_args evaluated(const statements & nodes, context & ctx, const value & first = nullptr) {
    func_args args(ctx);
    if (first) {
        args.push_back(first);
    }
    for (const auto & node : nodes) {
        args.push_back(node->execute(ctx));
    }
    return args;
}

inline statements constants(const func_args & args, size_t from) {
    statements nodes;
    for (size_t i = from; i < args.count(); ++i) {
        nodes.push_back(fixed(args.get_pos(i)));
    }
    return nodes;
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
    func_args args(context & ctx, const value & first) const {
        static const statements none;
        return evaluated(call != nullptr ? call->args : none, ctx, first);
    }
    statement_ptr with(const func_args & args) const {
        auto id = std::make_unique<identifier>(name);
        if (call == nullptr) {
            return id;
        }
        return std::make_unique<call_expression>(std::move(id), constants(args, 1));
    }
};

struct guarded_filter : filter_expression {
    explicit guarded_filter(filter_expression && node) : filter_expression(std::move(node)) {}
    guarded_filter(statement_ptr && of, statement_ptr && by) : filter_expression(std::move(of), std::move(by)) {}
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        const Named named(filter);
        if (named.name.empty()) {
            return filter_expression::execute_impl(ctx);  // which refuses it
        }
        const func_args args = named.args(ctx, operand->execute(ctx));
        check_call(named.name, args);
        value v = is_val<value_string>(args.get_pos(0)) && !ctx.is_get_stats ? of_text(named, args) : nullptr;
        if (!v) {
            v = filter_expression(fixed(args.get_pos(0)), named.with(args)).execute_impl(ctx);
        }
        spend_text(v);
        return v;
    }

  private:
    static value of_text(const Named & named, const func_args & args) {
        static const std::map<std::string, std::string> others = {
            {"count", "length"}, {"d", "default"}, {"e", "escape"}, {"trim", "strip"}};
        const auto other = others.find(named.name);
        const value function = function_of(args.get_pos(0), other == others.end() ? named.name : other->second);
        if (!function) {
            return nullptr;
        }
        func_args rest(args.ctx);
        for (size_t i = 1; i < args.count(); ++i) {
            rest.push_back(args.get_pos(i));
        }
        return function->invoke(rest);
    }
};

struct guarded_test : test_expression {
    explicit guarded_test(test_expression && node) : test_expression(std::move(node)) {}
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        const Named named(test);
        if (named.name.empty() || named.call == nullptr) {
            return test_expression::execute_impl(ctx);
        }
        const func_args args = named.args(ctx, operand->execute(ctx));
        for (size_t i = 1; i < args.count(); ++i) {
            check_test(named.name, args.get_pos(0), args.get_pos(i));
        }
        return test_expression(fixed(args.get_pos(0)), negate, named.with(args)).execute_impl(ctx);
    }
};

struct guarded_call : scoped<call_expression> {
    using scoped::scoped;
    value execute_impl(context & ctx) const override {
        spend_steps(*scope);
        const func_args given = evaluated(args, ctx);
        const value called = callee->execute(ctx);
        const auto * func = cast_val<value_func>(called);
        if (func == nullptr) {
            throw std::runtime_error("Callee is not a function: got " + called->type());
        }
        if (func->arg0) {
            func_args all(given);
            all.push_front(func->arg0);
            check_call(func->name, all);
        } else if (global_builtins().count(func->name) != 0) {
            check_call(func->name, given);
        }
        value v = func->invoke(given);
        spend_text(v);
        return v;
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
