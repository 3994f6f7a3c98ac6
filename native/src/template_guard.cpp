// Puts guarded nodes into a program: see template_guard.h.

#include "template_guard.h"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "template_bodies.h"
#include "template_calls.h"
#include "template_loop.h"
#include "template_members.h"
#include "template_nodes.h"
#include "template_operators.h"
#include "template_renderings.h"
#include "template_variables.h"

namespace {

using namespace jinja;
using namespace causerie::guarded;

class Guard {
  public:
    void walk(statements & nodes) {
        for (auto & node : nodes) {
            walk(node);
        }
    }
    void walk_put(statements & nodes) {
        walk(nodes);
        for (auto & node : nodes) {
            node = std::make_unique<put>(std::move(node));
        }
    }
    void walk_body(statements & nodes) {
        nodes.erase(std::remove_if(nodes.begin(), nodes.end(), prints_nothing), nodes.end());
        walk(nodes);
        for (auto & node : nodes) {
            if (dynamic_cast<const expression *>(node.get()) != nullptr && !is_stmt<quick_text>(node)) {
                node = std::make_unique<shown>(std::move(node));
            }
        }
    }

    // For the engine, which would read lists in it when all is printed.
    static void make_block(statements & nodes) {
        auto all = std::make_unique<counted<block>>(block(std::move(nodes)));
        nodes.clear();
        nodes.push_back(std::move(all));
    }

    void finish() {
        for (auto & needs_loop : loops_) {
            *needs_loop = *needs_loop || macro_mentions_loop_;
        }
    }

  private:
    std::shared_ptr<int64_t> scope_ = std::make_shared<int64_t>(scope_steps);
    std::vector<std::shared_ptr<bool>> loops_;
    std::shared_ptr<LoopUse> loop_use_ = std::make_shared<LoopUse>();
    size_t mentions_of_loop_ = 0;
    bool macro_mentions_loop_ = false;  // then the "loop" where it is called, which may be anywhere

    void note_loop(const std::string & name, const identifier * member) {
        if (name != "loop") {
            return;
        }
        ++mentions_of_loop_;
        if (member == nullptr) {
            loop_use_->note_all();
        } else {
            loop_use_->note(member->val);
        }
    }

    void walk_member(member_expression & member) {
        const auto * of = cast_stmt<identifier>(member.object);
        const auto * name = member.computed ? nullptr : cast_stmt<identifier>(member.property);
        if (of != nullptr && name != nullptr && of->val == "loop") {
            note_loop(of->val, name);
            const size_t pos = of->pos;
            member.object = std::make_unique<quick_identifier>(identifier(of->val));
            member.object->pos = pos;
            return;
        }
        walk(member.object, member.property);
    }

    static bool prints_nothing(const statement_ptr & node) {
        return is_stmt<comment_statement>(node) || is_stmt<noop_statement>(node);
    }

    template <class... Children> void walk(statement_ptr & first, statement_ptr & second, Children &... more) {
        walk(first);
        walk(second);
        (walk(more), ...);
    }

    // Replaces a node of a kind, once f has been called with it.
    template <class New, class Node, class F> bool replace(statement_ptr & node, F && f) {
        auto * known = dynamic_cast<Node *>(node.get());
        if (known == nullptr) {
            return false;
        }
        f(*known);
        const size_t pos = known->pos;
        if constexpr (std::is_constructible_v<New, Node &&>) {
            node = std::make_unique<New>(std::move(*known));
        } else {
            node = std::make_unique<New>(std::move(*known), scope_);
        }
        node->pos = pos;
        return true;
    }

    void walk(statement_ptr & node) {
        if (node != nullptr && !walk_statement(node) && !walk_literal(node)) {
            walk_expression(node);
        }
    }

    bool walk_loop(statement_ptr & node) {
        auto * known = cast_stmt<for_statement>(node);
        if (known == nullptr) {
            return false;
        }
        const size_t mentions = mentions_of_loop_;
        ++*scope_;
        walk(known->iterable);
        auto * select = cast_stmt<select_expression>(known->iterable);
        auto & list = select != nullptr ? select->lhs : known->iterable;
        list = std::make_unique<iterated>(std::move(list), scope_);
        walk_body(known->body);
        walk_body(known->default_block);
        loops_.push_back(std::make_shared<bool>(mentions_of_loop_ > mentions));
        const size_t pos = known->pos;
        node = std::make_unique<quick_for>(std::move(*known), scope_, loops_.back(), loop_use_);
        node->pos = pos;
        return true;
    }

    bool walk_statement(statement_ptr & node) {
        return walk_loop(node) ||
               replace<quick_if, if_statement>(node, [&](auto & n) {
                   walk(n.test);
                   walk_body(n.body);
                   walk_body(n.alternate);
               }) ||
               replace<quick_set, set_statement>(node, [&](auto & n) {
                   ++*scope_;
                   walk(n.val);
                   if (is_stmt<member_expression>(n.assignee)) {  // others are not executed
                       walk(n.assignee);
                       n.val = n.val == nullptr ? nullptr : std::make_unique<put>(std::move(n.val));
                   }
                   walk_body(n.body);
               }) ||
               replace<quick_macro, macro_statement>(node, [&](auto & n) {
                   *scope_ += static_cast<int64_t>(1 + n.args.size());
                   const size_t mentions = mentions_of_loop_;
                   walk(n.args);
                   walk_body(n.body);
                   macro_mentions_loop_ = macro_mentions_loop_ || mentions_of_loop_ > mentions;
               }) ||
               replace<guarded_call_block, call_statement>(node, [&](auto & n) {
                   walk(n.call);
                   walk(n.caller_args);
                   walk_body(n.body);
                   make_block(n.body);
               }) ||
               walk_filter_block(node);
    }

    bool walk_filter_block(statement_ptr & node) {
        auto * known = cast_stmt<filter_statement>(node);
        if (known == nullptr) {
            return false;
        }
        walk(known->filter);
        walk_body(known->body);
        make_block(known->body);
        const size_t pos = known->pos;
        node = std::make_unique<guarded_filter>(std::move(known->body.front()), std::move(known->filter));
        node->pos = pos;
        return true;
    }

    bool walk_literal(statement_ptr & node) {
        return replace<quick_identifier, identifier>(node, [&](auto & n) { note_loop(n.val, nullptr); }) ||
               replace<quick_text, string_literal>(node, [](auto &) {}) ||
               replace<quick_number, integer_literal>(node, [](auto &) {}) ||
               replace<counted<array_literal>, array_literal>(node, [&](auto & n) { walk_put(n.val); }) ||
               replace<counted<tuple_literal>, tuple_literal>(node, [&](auto & n) { walk_put(n.val); }) ||
               replace<counted<object_literal>, object_literal>(node, [&](auto & n) {
                   for (auto & [name, item] : n.val) {
                       walk(name, item);
                       name = std::make_unique<key>(std::move(name));
                       item = std::make_unique<put>(std::move(item));
                   }
               });
    }

    bool walk_expression(statement_ptr & node) {
        return replace<guarded_member, member_expression>(node, [&](auto & n) { walk_member(n); }) ||
               replace<guarded_call, call_expression>(node, [&](auto & n) {
                   walk(n.callee);
                   walk(n.args);
               }) ||
               replace<guarded_binary, binary_expression>(node, [&](auto & n) { walk(n.left, n.right); }) ||
               replace<guarded_filter, filter_expression>(node, [&](auto & n) { walk(n.operand, n.filter); }) ||
               replace<guarded_test, test_expression>(node, [&](auto & n) { walk(n.operand, n.test); }) ||
               replace<counted<select_expression>, select_expression>(node, [&](auto & n) { walk(n.lhs, n.test); }) ||
               replace<quick_not, unary_expression>(node, [&](auto & n) { walk(n.argument); }) ||
               replace<counted<ternary_expression>, ternary_expression>(
                   node, [&](auto & n) { walk(n.condition, n.true_expr, n.false_expr); }) ||
               replace<counted<keyword_argument_expression>, keyword_argument_expression>(
                   node, [&](auto & n) { walk(n.val); }) ||
               replace<counted<slice_expression>, slice_expression>(
                   node, [&](auto & n) { walk(n.start_expr, n.stop_expr, n.step_expr); });
    }
};

}  // namespace

void causerie::guard(program & program) {
    Guard guard;
    guard.walk_body(program.body);
    guard.finish();
    render_once(program);
}
