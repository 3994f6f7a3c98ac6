// The variables of a template's scopes. The engine keeps them to itself, looks each up by a text that it makes into a
// value first, and enters a scope by putting one variable after the other into a new one.

#pragma once

#include <cstddef>

#include "jinja/runtime.h"

namespace causerie {

// A scope inside of another, with what is known there. Nothing may be set in the outer one while this one is used.
struct Scope : jinja::context {
    explicit Scope(jinja::context & outer);
};

// The value of a variable; null if there is none. name: a text.
const jinja::value * find_variable(jinja::context & ctx, const jinja::value & name);

// A variable of a scope that is set again and again. The scope must outlive it.
class Variable {
  public:
    Variable(jinja::context & ctx, const jinja::value & name);
    void set(const jinja::value & v);

  private:
    jinja::value_object_t & all_;
    jinja::value & known_;
    size_t place_;
};

}  // namespace causerie
