// What a run of a chat template may use. llama.cpp's Jinja engine has no limits: a macro that calls itself overflows the
// stack, nested loops run for years, and a list that contains itself is printed until the stack is gone. A guarded
// program (template_guard.h) asks here before each step, and an exception stops it.
//
// Steps bound the time; bytes bound the memory, and the time to read and copy it. Neither depends on the machine: a
// history that renders on one renders on all.

#pragma once

#include <cstdint>
#include <functional>

#include "jinja/value.h"

namespace causerie {

struct Allowance {
    int64_t steps;
    int64_t bytes;
};

// For so many messages, which with all options have so many bytes. Several times what the templates that llama.cpp ships
// need: some go through all messages for each message, and write the prompt anew each time.
Allowance allowance_for(size_t messages, size_t bytes, size_t bytes_of_options);

// Calls f, in which guarded programs may run, on a large stack. Throws what f throws; and std::runtime_error if a limit
// was exceeded, also if llama.cpp has swallowed the exception.
void within_limits(const Allowance & allowance, const std::function<void()> & f);

// The following throw std::runtime_error where the limits of the run, or what the engine can bear, are exceeded.

void spend_steps(int64_t steps);
void spend_bytes(int64_t bytes);
// For putting one value into another; plain values cost nothing.
void spend_nesting(const jinja::value & value);
// For reading a text; other values cost nothing.
void spend_text(const jinja::value & value);

// A value with all that is in it.
struct Extent {
    int64_t bytes = 0;
    int64_t items = 0;
    int64_t levels = 0;
};
Extent extent_of(const jinja::value & value);
// For reading all of it so many times.
void spend_whole(const jinja::value & value, int64_t repeated = 1);

int64_t text_bytes(const jinja::value & value);
// Of a list or object; 0 for other values.
int64_t items_of(const jinja::value & value);
int64_t times(int64_t a, int64_t b);

// Before the engine calls a function or filter; args begin with the value that it is called on, if there is one.
void check_call(const std::string & name, const jinja::func_args & args);
// Before a test, as in "x is name(argument)".
void check_test(const std::string & name, const jinja::value & given, const jinja::value & argument);
// Before a number becomes an index.
void check_index(const jinja::value & value);

}  // namespace causerie
