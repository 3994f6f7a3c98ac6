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

// The variables of a scope in front of those of the scope around it. The engine has copies there: it is the same, as
// nothing is set in the outer scope while the inner one is used.
struct Layer : value_object_t {
    value_object outer;
    int levels;

    Layer(value_object around, int n) : outer(std::move(around)), levels(n) { has_builtins = outer->has_builtins; }
    using value_object_t::at;
    value & at(const value & key, value & default_val) override {
        return own(key) ? value_object_t::at(key, default_val) : outer->at(key, default_val);
    }
    value & at(const value & key) override { return own(key) ? value_object_t::at(key) : outer->at(key); }
    bool has_key(const value & key) override { return own(key) || outer->has_key(key); }
    const std::vector<std::pair<value, value>> & as_ordered_object() const override {
        all_ = outer->as_ordered_object();
        all_.insert(all_.end(), val_obj.begin(), val_obj.end());
        return all_;
    }

  private:
    mutable std::vector<std::pair<value, value>> all_;

    bool own(const value & key) { return value_object_t::has_key(key); }
};

constexpr int most_levels = 8;  // that are gone through for a variable; macros may call each other without end

value_object inner_variables(const value_object & outer) {
    const auto * layer = dynamic_cast<const Layer *>(outer.get());
    const int levels = layer == nullptr ? 1 : layer->levels + 1;
    if (levels <= most_levels) {
        return std::make_shared<Layer>(outer, levels);
    }
    auto all = std::make_shared<value_object_t>(outer->as_ordered_object());
    all->has_builtins = outer->has_builtins;
    return all;
}

bool is_named(const value & key, const std::string & name) {
    const auto & parts = key->val_str.parts;
    return parts.size() == 1 && parts.front().val == name;
}

value & found_or_made(value_object_t & all, const value & name) {
    const auto [place, is_new] = all.unordered.try_emplace(name);
    if (is_new) {
        all.val_obj.emplace_back(name, nullptr);
    }
    return place->second;
}

size_t place_of(const value_object_t & all, const value & name) {
    size_t place = all.val_obj.size() - 1;  // the newest
    while (!(*all.val_obj[place].first == *name)) {
        --place;
    }
    return place;
}

}  // namespace

namespace causerie {

Scope::Scope(context & outer) {
    variables(*this) = inner_variables(variables(outer));
    src = outer.src;
    current_time = outer.current_time;
    is_get_stats = outer.is_get_stats;
}

const value * find_variable(context & ctx, const value & name) {
    const value_object_t * level = variables(ctx).get();
    while (const auto * layer = dynamic_cast<const Layer *>(level)) {
        for (const auto & [key, known] : layer->val_obj) {
            if (is_named(key, name->val_str.parts.front().val)) {
                return &known;
            }
        }
        level = layer->outer.get();
    }
    const auto found = level->unordered.find(name);
    return found == level->unordered.end() ? nullptr : &found->second;
}

Variable::Variable(context & ctx, const value & name)
    : all_(*variables(ctx)), known_(found_or_made(all_, name)), place_(place_of(all_, name)) {}

void Variable::set(const value & v) {
    known_ = v;
    all_.val_obj[place_].second = v;
}

}  // namespace causerie
