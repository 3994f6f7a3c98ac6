// The variables of a template's scopes. The engine keeps them to itself, looks each up by a text that it makes into a
// value first, and enters a scope by making a new context, in which it puts one variable after the other.

#pragma once

#include <cstddef>

#include "jinja/runtime.h"

namespace causerie {

// While it exists, what is set in the context is forgotten with it, and hides what was there.
class Scope {
  public:
    explicit Scope(jinja::context & ctx);
    ~Scope();
    Scope(const Scope &) = delete;
    Scope & operator=(const Scope &) = delete;

  private:
    jinja::context & ctx_;
    jinja::value_object outer_;
};

// The value of a variable; null if there is none. name: a text.
const jinja::value * find_variable(jinja::context & ctx, const jinja::value & name);

void set_variable(jinja::context & ctx, const jinja::value & name, const jinja::value & v);

}  // namespace causerie
