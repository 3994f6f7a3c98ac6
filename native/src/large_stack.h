// Runs recursive code of llama.cpp (its Jinja parser and interpreter) on a stack that its input cannot exhaust.

#pragma once

#include <exception>
#include <functional>

namespace causerie {

// Calls f on a thread with a stack of 256 MiB (address space, not memory) and waits for it; exceptions come back. On such
// a thread it just calls f.
void on_large_stack(const std::function<void()> & f);

}  // namespace causerie
