// How often a history is rendered. Where llama.cpp has a way of its own for a template, it does so three times: with the
// beginning of a reply, without, and with it again, to find out what that beginning is. It then makes the parser and the
// grammar of replies, which depend on the options and on that beginning alone. Once all this is known, the first
// rendering is all that is needed, and ends it.

#pragma once

#include <cstddef>
#include <string>

#include "jinja/runtime.h"

namespace causerie {

// Thrown out of llama.cpp by the first rendering, if it ends as is known. No std::exception, which the engine would catch.
struct Rendered {
    std::string text;
};

// The renderings on this thread, while it exists.
class Renderings {
  public:
    // known: the beginning of a reply; "" to find it out.
    explicit Renderings(std::string known);
    ~Renderings();
    Renderings(const Renderings &) = delete;
    Renderings & operator=(const Renderings &) = delete;

    // Once all is rendered: what the beginning of a reply is, if the three renderings were as described; "" otherwise.
    const std::string & found() const;
    const std::string & first() const { return first_; }

    static Renderings * current();
    // Throws Rendered.
    void tell(bool begins_reply, const std::string & text);

  private:
    Renderings * before_;
    std::string known_;
    std::string first_;
    std::string found_;
    size_t made_ = 0;
    bool usual_ = true;
};

// Puts the program into a node that tells these.
void render_once(jinja::program & program);

}  // namespace causerie
