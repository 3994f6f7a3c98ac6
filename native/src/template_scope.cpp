// See template_scope.h.

#include "template_scope.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using jinja::context;
using jinja::value;
using jinja::value_object;
using jinja::value_object_t;

value_object & variables(context & ctx);

// An explicit instantiation may name a private member.
template <value_object context::*Member> struct Variables {
    friend value_object & variables(context & ctx) { return ctx.*Member; }
};
template struct Variables<&context::env>;

bool is_named(const value & key, const std::string & name) {
    const auto & parts = key->val_str.parts;
    return parts.size() == 1 && parts.front().val == name;
}

// The variables of a scope in front of those of the scope around it. They are few: there is no table of them.
struct Layer : value_object_t {
    value_object outer;
    const Layer * outer_layer;
    int levels;

    explicit Layer(const value_object & around)
        : outer(around), outer_layer(dynamic_cast<const Layer *>(around.get())),
          levels(outer_layer == nullptr ? 1 : outer_layer->levels + 1) {
        has_builtins = outer->has_builtins;
    }
    using value_object_t::at;
    using value_object_t::insert;
    value & at(const value & key, value & default_val) override {
        value * known = own(key->val_str.str());
        return known != nullptr ? *known : outer->at(key, default_val);
    }
    value & at(const value & key) override {
        value * known = own(key->val_str.str());
        return known != nullptr ? *known : outer->at(key);
    }
    bool has_key(const value & key) override { return own(key->val_str.str()) != nullptr || outer->has_key(key); }
    void insert(const value & key, const value & v) override { set(key, v); }
    const std::vector<std::pair<value, value>> & as_ordered_object() const override {
        all_ = outer->as_ordered_object();
        all_.insert(all_.end(), val_obj.begin(), val_obj.end());
        return all_;
    }

    void set(const value & name, const value & v) {
        if (value * known = own(name->val_str.parts.front().val)) {
            *known = v;
        } else {
            val_obj.emplace_back(name, v);
        }
    }

  private:
    mutable std::vector<std::pair<value, value>> all_;

    value * own(const std::string & name) {
        for (auto & [key, known] : val_obj) {
            if (is_named(key, name)) {
                return &known;
            }
        }
        return nullptr;
    }
};

constexpr int most_levels = 8;  // that are gone through for a variable; macros may call each other without end

value_object inner_variables(const value_object & outer) {
    auto layer = std::make_shared<Layer>(outer);
    if (layer->levels <= most_levels) {
        return layer;
    }
    auto all = std::make_shared<value_object_t>(outer->as_ordered_object());
    all->has_builtins = outer->has_builtins;
    return std::make_shared<Layer>(all);
}

}  // namespace

namespace causerie {

Scope::Scope(context & ctx) : ctx_(ctx), outer_(variables(ctx)) { variables(ctx) = inner_variables(outer_); }

Scope::~Scope() { variables(ctx_) = std::move(outer_); }

const value * find_variable(context & ctx, const value & name) {
    const value_object_t * all = variables(ctx).get();
    const std::string & text = name->val_str.parts.front().val;
    for (const auto * layer = dynamic_cast<const Layer *>(all); layer != nullptr; layer = layer->outer_layer) {
        for (const auto & [key, known] : layer->val_obj) {
            if (is_named(key, text)) {
                return &known;
            }
        }
        all = layer->outer.get();
    }
    const auto found = all->unordered.find(name);
    return found == all->unordered.end() ? nullptr : &found->second;
}

void set_variable(context & ctx, const value & name, const value & v) { variables(ctx)->insert(name, v); }

}  // namespace causerie
