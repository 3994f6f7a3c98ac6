// Limits for chat templates: see template_limits.h.

#include "template_limits.h"

#include <algorithm>
#include <stdexcept>

#include "large_stack.h"
#include "template_values.h"

namespace {

using namespace jinja;

constexpr ptrdiff_t most_stack = 32 * 1024 * 1024;  // of the large stack
constexpr int most_levels = 2000;                   // of lists and objects in one another that are read
constexpr int most_nested = 500'000;                // and that are freed: this too takes stack

struct Limits {
    const char * base = nullptr;
    causerie::Allowance left{0, 0};
    int nested = 0;
    std::string exceeded;
};

Limits & limits() {
    static thread_local Limits current;
    return current;
}

// llama.cpp renders probes, and goes on to the next where one fails: then that one is to fail at once.
[[noreturn]] void exceed(const char * what) {
    Limits & current = limits();
    if (current.exceeded.empty()) {
        current.exceeded = std::string("the chat template was stopped: ") + what;
    }
    current.left = {0, 0};
    throw std::runtime_error(current.exceeded);
}

struct Running {
    Limits before = limits();
    Running(const causerie::Allowance & allowance, const char * base) { limits() = {base, allowance, 0, ""}; }
    ~Running() { limits() = before; }
    Running(const Running &) = delete;
    Running & operator=(const Running &) = delete;
};

void measure(const value & v, causerie::Extent & extent, int level) {
    extent.levels = std::max<int64_t>(extent.levels, level);
    extent.items += 1;
    extent.bytes += static_cast<int64_t>(sizeof(value));
    if (level > most_levels) {
        exceed("a list or object contains itself");
    }
    if (extent.bytes > limits().left.bytes) {
        causerie::spend_bytes(extent.bytes);
    }
    if (causerie::guarded::is_text(v)) {
        extent.bytes += causerie::text_bytes(v);
    } else if (causerie::guarded::is_list(v)) {
        for (const value & item : v->val_arr) {
            measure(item, extent, level + 1);
        }
    } else if (is_val<value_object>(v)) {
        for (const auto & [key, item] : v->as_ordered_object()) {
            measure(key, extent, level + 1);
            measure(item, extent, level + 1);
        }
    } else if (const auto * kwarg = cast_val<value_kwarg>(v)) {
        measure(kwarg->val, extent, level + 1);
    } else if (const auto * func = cast_val<value_func>(v); func != nullptr && func->arg0) {
        measure(func->arg0, extent, level + 1);
    }
}

}  // namespace

namespace causerie {

Allowance allowance_for(size_t messages, size_t bytes, size_t bytes_of_options) {
    const auto n = static_cast<int64_t>(std::min<size_t>(messages, 100'000));
    const auto size = static_cast<int64_t>(std::min<size_t>(bytes, size_t{1} << 30));
    const auto options = static_cast<int64_t>(std::min<size_t>(bytes_of_options, size_t{1} << 30));
    return {1'000'000 + 1000 * n * n + 500 * options, 256 * (1024 * 1024 + size) + 128 * n * size};
}

void within_limits(const Allowance & allowance, const std::function<void()> & f) {
    on_large_stack([&] {
        const char base = 0;
        const Running running(allowance, &base);
        const std::string & exceeded = limits().exceeded;
        try {
            f();
        } catch (const std::exception & e) {
            if (exceeded.empty() || std::string(e.what()).find(exceeded) != std::string::npos) {
                throw;  // with the place in the template
            }
        }
        if (!exceeded.empty()) {
            throw std::runtime_error(exceeded);
        }
    });
}

void spend_steps(int64_t steps) {
    const char here = 0;
    Limits & current = limits();
    if (current.base - &here > most_stack) {
        exceed("its macros or expressions are nested too deep");
    }
    current.left.steps -= steps;
    if (current.left.steps < 0) {
        exceed("it takes too many steps");
    }
}

void spend_bytes(int64_t bytes) {
    Limits & current = limits();
    current.left.bytes = bytes > current.left.bytes ? -1 : current.left.bytes - bytes;
    if (current.left.bytes < 0) {
        exceed("its values grow too large");
    }
}

void spend_nesting(const value & v) {
    if (guarded::is_text(v)) {
        return;
    }
    const bool holds = is_val<value_array>(v) || is_val<value_object>(v) || is_val<value_func>(v) || is_val<value_kwarg>(v);
    if (holds && ++limits().nested > most_nested) {
        exceed("it puts too many values into one another");
    }
}

void spend_text(const value & v) {
    if (guarded::is_text(v)) {
        spend_bytes(text_bytes(v));
    }
}

Extent extent_of(const value & v) {
    Extent extent;
    measure(v, extent, 0);
    return extent;
}

void spend_whole(const value & v, int64_t repeated) {
    if (repeated == 1 && guarded::is_text(v)) {
        spend_bytes(static_cast<int64_t>(sizeof(value)) + text_bytes(v));
    } else if (repeated > 0) {
        spend_bytes(times(extent_of(v).bytes, repeated));
    }
}

int64_t text_bytes(const value & v) {
    int64_t bytes = 0;
    for (const auto & part : v->val_str.parts) {
        bytes += static_cast<int64_t>(sizeof(part) + part.val.size());
    }
    return bytes;
}

int64_t items_of(const value & v) {
    const bool is_list = guarded::is_list(v);
    const size_t n = is_list ? v->val_arr.size() : is_val<value_object>(v) ? v->as_ordered_object().size() : 0;
    return static_cast<int64_t>(n);
}

int64_t times(int64_t a, int64_t b) { return a > 0 && b > INT64_MAX / a ? INT64_MAX : a * b; }

}  // namespace causerie
