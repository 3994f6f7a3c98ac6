// What bodies print. The engine makes a value of what each node gives, and a text of these for each body, one inside the
// other; here nodes write into one text.

#pragma once

#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "template_limits.h"
#include "template_scope.h"
#include "template_values.h"

namespace causerie::guarded {

using namespace jinja;

// Prints what nodes of a body give behind a text. Lists come last, with what stands behind them: the engine reads them
// when the body is through, which may have changed them.
class Printer {
  public:
    explicit Printer(value_string & text) : text_(text), begin_(text->val_str.parts.size()) {}
    // What a body has printed that breaks off is forgotten.
    ~Printer() {
        if (!finished_) {
            text_->val_str.parts.resize(begin_);
        }
    }
    Printer(const Printer &) = delete;
    Printer & operator=(const Printer &) = delete;

    // What nodes may print into at once; null if something has to come first.
    value_string * text() { return later_.empty() ? &text_ : nullptr; }

    void add(value && v) {
        if (!later_.empty() || is_list(v)) {
            later_.push_back(std::move(v));
        } else if (is_text(v) && v.use_count() == 1) {  // it is not used elsewhere
            auto & own = v->val_str.parts;
            auto & parts = text_->val_str.parts;
            parts.insert(parts.end(), std::make_move_iterator(own.begin()), std::make_move_iterator(own.end()));
        } else {
            gather_string_parts_recursive(v, text_);
        }
    }

    void finish() {
        for (const value & v : later_) {
            if (is_list(v)) {
                spend_whole(v);  // again: it may contain itself by now
            }
            gather_string_parts_recursive(v, text_);
        }
        finished_ = true;
    }

  private:
    value_string & text_;
    size_t begin_;
    std::vector<value> later_;
    bool finished_ = false;
};

// A node that can print without making a value.
class Prints {
  public:
    virtual void print(context & ctx, value_string & text) const = 0;

  protected:
    ~Prints() = default;
};

// Refuses what a node was given as the engine does where a node is executed: with its place in the source.
[[noreturn]] inline void refuse(const statement & node, context & ctx, const char * reason) {
    struct refused : statement {
        const statement & by;
        const char * why;
        refused(const statement & at, const char * told) : by(at), why(told) { pos = at.pos; }
        std::string type() const override { return by.type(); }
        value execute_impl(context &) const override { throw std::runtime_error(why); }
    };
    refused(node, reason).execute(ctx);
    throw std::runtime_error(reason);
}

// The nodes of a body, which it must not outlive.
class Body {
  public:
    explicit Body(const statements & nodes) {
        for (const auto & node : nodes) {
            nodes_.push_back({node.get(), dynamic_cast<const Prints *>(node.get())});
        }
    }

    void print(context & ctx, Printer & printer) const {
        for (const Node & node : nodes_) {
            value_string * text = node.prints == nullptr ? nullptr : printer.text();
            if (text == nullptr) {
                printer.add(node.plain->execute(ctx));
                continue;
            }
            try {
                node.prints->print(ctx, *text);
            } catch (const not_implemented_exception &) {
                throw;
            } catch (const std::runtime_error & e) {
                refuse(*node.plain, ctx, e.what());
            }
        }
    }

    void print(context & ctx, value_string & text) const {
        Printer printer(text);
        print(ctx, printer);
        printer.finish();
    }

    value printed(context & ctx) const {
        auto text = mk_val<value_string>();
        print(ctx, text);
        return text;
    }

  private:
    struct Node {
        const statement * plain;
        const Prints * prints;
    };
    std::vector<Node> nodes_;
};

// A node that gives what it prints.
template <class Node> struct printing : Node, Prints {
    using Node::Node;
    explicit printing(Node && node) : Node(std::move(node)) {}
    value execute_impl(context & ctx) const override {
        auto text = mk_val<value_string>();
        print(ctx, text);
        return text;
    }
};

struct quick_if : printing<if_statement> {
    Body then, otherwise;
    explicit quick_if(if_statement && node) : printing(std::move(node)), then(body), otherwise(alternate) {}
    void print(context & ctx, value_string & text) const override {
        spend_steps(1);
        (test->execute(ctx)->as_bool() ? then : otherwise).print(ctx, text);
    }
};

struct quick_text : string_literal, Prints {
    explicit quick_text(string_literal && node) : string_literal(std::move(node)), known_(mk_val<value_string>(val)) {}
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        spend_text(known_);
        return ctx.is_get_stats ? mk_val<value_string>(val) : known_;
    }
    void print(context &, value_string & text) const override {
        spend_steps(1);
        spend_text(known_);
        text->val_str.parts.push_back(known_->val_str.parts.front());
    }

  private:
    value known_;
};

struct quick_number : integer_literal {
    explicit quick_number(integer_literal && node) : integer_literal(std::move(node)), known_(mk_val<value_int>(val)) {}
    value execute_impl(context & ctx) const override { return ctx.is_get_stats ? mk_val<value_int>(val) : known_; }

  private:
    value known_;
};

struct quick_set : set_statement {
    explicit quick_set(set_statement && node) : set_statement(std::move(node)), block_(body) {
        const auto * member = cast_stmt<member_expression>(assignee);
        const auto * id = cast_stmt<identifier>(member == nullptr ? assignee : member->property);
        if (id != nullptr && (member == nullptr || !member->computed)) {
            name_ = mk_val<value_string>(id->val);
            object_ = member == nullptr ? nullptr : member->object.get();
        }
    }
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        if (!name_ || ctx.is_get_stats) {
            return set_statement::execute_impl(ctx);
        }
        value v = val ? val->execute(ctx) : block_.printed(ctx);
        if (object_ == nullptr) {
            set_variable(ctx, name_, v);
            return nothing();
        }
        value of = object_->execute(ctx);
        auto * object = cast_val<value_object>(of);
        if (object == nullptr) {
            throw std::runtime_error("Cannot assign to member of non-object");
        }
        put_under(*object, name_, v);
        return nothing();
    }

  private:
    Body block_;
    value name_;
    const statement * object_ = nullptr;
};

// A body as an expression.
struct block : expression {
    statements body;
    Body nodes;
    explicit block(statements && all) : body(std::move(all)), nodes(body) {}
    value execute_impl(context & ctx) const override { return nodes.printed(ctx); }
};

}  // namespace causerie::guarded
