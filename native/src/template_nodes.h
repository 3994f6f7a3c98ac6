// Nodes that ask before they act (template_guard.h).
//
// Each derives from the engine's node of its kind, which the engine's code looks for. Where it matters what a node is
// given, its parts are computed first, looked at, and given to a node of the engine as constants.

#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "jinja/runtime.h"
#include "template_limits.h"

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
        value v = filter_expression(fixed(args.get_pos(0)), named.with(args)).execute_impl(ctx);
        spend_text(v);
        return v;
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
        value called = callee->execute(ctx);
        if (const auto * func = cast_val<value_func>(called)) {
            if (func->arg0) {
                func_args all(given);
                all.push_front(func->arg0);
                check_call(func->name, all);
            } else if (global_builtins().count(func->name) != 0) {
                check_call(func->name, given);
            }
        }
        value v = call_expression(fixed(std::move(called)), constants(given, 0)).execute_impl(ctx);
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

// The engine copies the table of all functions to look one up; here it is looked up in place.
struct quick_identifier : identifier {
    explicit quick_identifier(identifier && node) : identifier(std::move(node)) {}
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        value known = ctx.get_val(val);
        if (known->is_undefined()) {
            const auto found = global_builtins().find(val);
            if (found != global_builtins().end()) {
                return mk_val<value_func>(val, found->second);
            }
            return mk_val<value_undefined>(val);
        }
        if (ctx.is_get_stats) {
            value_t::stats_t::mark_used(known);
        }
        spend_text(known);
        return known;
    }
};

struct guarded_member : member_expression {
    explicit guarded_member(member_expression && node) : member_expression(std::move(node)) {}
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        if (!computed) {
            value v = is_stmt<identifier>(property) && !ctx.is_get_stats ? named(ctx) : member_expression::execute_impl(ctx);
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
            at = fixed(std::move(name));
        }
        value v = member_expression(fixed(std::move(of)), std::move(at), true).execute_impl(ctx);
        spend_text(v);
        return v;
    }

  private:
    // As the engine does it, without a copy of the table of functions.
    value named(context & ctx) const {
        value of = object->execute(ctx);
        const std::string & name = cast_stmt<identifier>(property)->val;
        const auto & functions = of->get_builtins();
        if (const auto function = functions.find(name); function != functions.end()) {
            return mk_val<value_func>(name, function->second, of);
        }
        value missing = mk_val<value_undefined>(is_val<value_undefined>(of) ? "object_property" : name);
        if (!is_val<value_object>(of)) {
            return missing;
        }
        value found = of->at(name, missing);
        return found->is_undefined() ? missing : found;
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
