// Nodes that ask before they act (template_guard.h).
//
// Each derives from the engine's node of its kind, which the engine's code looks for. Where it matters what a node is
// given, its parts are computed first, looked at, and given to a node of the engine as constants.

#pragma once

#include <memory>
#include <utility>

#include "jinja/runtime.h"
#include "template_limits.h"
#include "template_values.h"

namespace causerie::guarded {

using namespace jinja;

inline constexpr int64_t scope_steps = 10;  // for the engine, which copies the variables, and one more for each

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
        if (!is_list(v)) {
            return v;
        }
        spend_whole(v);
        if (!ctx.is_get_stats) {
            return v;
        }
        auto text = mk_val<value_string>();  // the engine's own nodes would read it later, when it may contain itself
        gather_string_parts_recursive(v, text);
        return text;
    }
};

// What a loop goes through; the engine copies the variables for each item.
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

}  // namespace causerie::guarded
