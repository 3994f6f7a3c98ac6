// The engine's values, and how they are looked at: it makes a value of each name that it looks up, copies the table of
// all functions to look at one, and makes a new value of each "true" and each literal.

#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "jinja/runtime.h"

namespace causerie::guarded {

using namespace jinja;

// By name: a class that is all in its header has a type_info in each library.
template <class Value> bool is_just(const value & v) {
    const value_t & known = *v;
    const char * name = typeid(known).name();
    return name == typeid(Value).name() || std::strcmp(name, typeid(Value).name()) == 0;
}

inline bool is_text(const value & v) { return is_just<value_string_t>(v); }
inline bool is_list(const value & v) { return is_just<value_array_t>(v) || is_just<value_tuple_t>(v); }
inline bool is_int(const value & v) { return is_just<value_int_t>(v); }

inline value text_value(const char * text) { return mk_val<value_string>(std::string(text)); }

// Values that are there once and for all. Where the engine notes what becomes of each value, it needs new ones.
inline value truth(const context & ctx, bool is_true) {
    static const value yes = mk_val<value_bool>(true);
    static const value no = mk_val<value_bool>(false);
    return ctx.is_get_stats ? mk_val<value_bool>(is_true) : is_true ? yes : no;
}
inline const value & nothing() {
    static const value undefined = mk_val<value_undefined>();
    return undefined;
}

// Texts

inline bool is_same(const jinja::string & a, const std::string & b) {
    return a.parts.size() == 1 ? a.parts.front().val == b : a.str() == b;
}
inline bool is_same(const jinja::string & a, const jinja::string & b) {
    return b.parts.size() == 1 ? is_same(a, b.parts.front().val) : is_same(a, b.str());
}

// Objects

constexpr size_t most_compared = 16;  // names; the table of a larger object is quicker

// Where an object has what it has under a name, a text; null if nowhere.
inline const value * place_of(const value_object_t & object, const value & name) {
    if (object.val_obj.size() > most_compared) {
        const auto found = object.unordered.find(name);
        return found == object.unordered.end() ? nullptr : &found->second;
    }
    for (const auto & [key, known] : object.val_obj) {
        if (is_text(key) && is_same(key->val_str, name->val_str)) {
            return &known;
        }
    }
    return nullptr;
}

inline void put_under(value_object_t & object, const value & name, const value & v) {
    const auto [place, is_new] = object.unordered.try_emplace(name, v);
    if (is_new) {
        object.val_obj.emplace_back(name, v);
        return;
    }
    place->second = v;
    for (auto & [key, known] : object.val_obj) {
        if (is_text(key) && is_same(key->val_str, name->val_str)) {
            known = v;
            return;
        }
    }
}

// What an object has under a name; null if nothing, or nothing that is defined.
inline value entry_of(const value_object_t & object, const value & name) {
    const value * found = place_of(object, name);
    return found == nullptr || (*found)->is_undefined() ? nullptr : *found;
}

inline const value_object_t * object_in(const value & v) {
    return is_just<value_object_t>(v) ? static_cast<const value_object_t *>(v.get()) : cast_val<value_object>(v);
}

// Functions

// That values of this kind have; null if there is none.
inline const func_handler * handler_of(const value & of, const std::string & name) {
    const auto & functions = of->get_builtins();
    const auto found = functions.find(name);
    return found == functions.end() ? nullptr : &found->second;
}

// The same, bound to this value.
inline value function_of(const value & of, const std::string & name) {
    const func_handler * handler = handler_of(of, name);
    return handler == nullptr ? nullptr : mk_val<value_func>(name, *handler, of);
}

// of[at] for an object and a text, or a list and a number; null for what the engine has to look at.
inline value item_of(const value & of, const value & at) {
    if (is_text(at)) {
        const value_object_t * object = object_in(of);
        if (object == nullptr) {
            return nullptr;
        }
        if (value found = entry_of(*object, at)) {
            return found;
        }
        const std::string name = at->as_string().str();
        value function = function_of(of, name);
        return function ? function : mk_val<value_undefined>(name);
    }
    if (is_int(at) && is_list(of)) {
        const auto & items = of->val_arr;
        const auto n = static_cast<int64_t>(items.size());
        const int64_t index = at->val_int < 0 ? at->val_int + n : at->val_int;
        return index >= 0 && index < n ? items[static_cast<size_t>(index)] : mk_val<value_undefined>("object_property");
    }
    return nullptr;
}

}  // namespace causerie::guarded
