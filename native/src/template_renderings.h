// How often a history is rendered. Where llama.cpp has a way of its own for a template, it does so three times: with the
// beginning of a reply, without, and with it again, to find out what that beginning is. Once that is known, the first
// rendering tells the others.

#pragma once

#include <cstddef>
#include <string>

#include "jinja/runtime.h"

namespace causerie {

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

    static Renderings * current();
    // What one of them gives without being made; null if it has to be made, and be told.
    jinja::value known(bool begins_reply) const;
    void tell(bool begins_reply, const std::string & text);

  private:
    Renderings * before_;
    std::string known_;
    std::string first_;
    std::string found_;
    size_t made_ = 0;
    bool usual_ = true;
};

// Puts the program into a node that asks for these.
void render_once(jinja::program & program);

}  // namespace causerie
