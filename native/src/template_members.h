// Members of values.

#pragma once

#include <memory>
#include <utility>

#include "template_limits.h"
#include "template_nodes.h"
#include "template_values.h"

namespace causerie::guarded {

struct guarded_member : member_expression {
    explicit guarded_member(member_expression && node) : member_expression(std::move(node)) {
        if (const auto * id = cast_stmt<identifier>(property); id != nullptr && !computed) {
            name_ = mk_val<value_string>(id->val);
            missing_ = mk_val<value_undefined>(id->val);
            of_objects_ = handler_of(mk_val<value_object>(), id->val);
        }
    }
    value execute_impl(context & ctx) const override {
        spend_steps(1);
        if (!computed) {
            value v = name_ && !ctx.is_get_stats ? named(object->execute(ctx)) : member_expression::execute_impl(ctx);
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
            if (value v = ctx.is_get_stats ? nullptr : item_of(of, name)) {
                spend_text(v);
                return v;
            }
            at = fixed(std::move(name));
        }
        value v = member_expression(fixed(std::move(of)), std::move(at), true).execute_impl(ctx);
        spend_text(v);
        return v;
    }

    // The function that a value has under this name, if it is called; null if there is none, or the name is computed.
    const func_handler * method(const value & of) const {
        if (!name_) {
            return nullptr;
        }
        if (is_just<value_object_t>(of)) {
            return static_cast<const value_object_t &>(*of).has_builtins ? of_objects_ : nullptr;
        }
        return handler_of(of, name());
    }
    const std::string & name() const { return name_->val_str.parts.front().val; }

    value named(const value & of) const {
        if (const func_handler * handler = method(of)) {
            return mk_val<value_func>(name(), *handler, of);
        }
        if (const auto * known = object_in(of)) {
            if (value found = entry_of(*known, name_)) {
                return found;
            }
        }
        static const value of_nothing = mk_val<value_undefined>("object_property");
        return of->is_undefined() ? of_nothing : missing_;
    }

  private:
    value name_;
    value missing_;
    const func_handler * of_objects_ = nullptr;

    static statement_ptr index(const statement_ptr & node, context & ctx) {
        if (node == nullptr) {
            return nullptr;
        }
        value v = node->execute(ctx);
        check_index(v);
        return fixed(std::move(v));
    }
};

}  // namespace causerie::guarded
