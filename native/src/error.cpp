// Errors of guarded calls: kept per thread, and the hook that turns ggml's abort into an exception.

#include "guard.h"

#include <cstdio>
#include <cstring>

#include "ggml.h"
#include "hooks.h"

#if defined(__GNUC__) && !defined(_WIN32)
// Present where ggml runs its threads with OpenMP. An exception must not leave a parallel region.
extern "C" int omp_in_parallel(void) __attribute__((weak));
static bool in_parallel_region() { return omp_in_parallel != nullptr && omp_in_parallel() != 0; }
#else
static bool in_parallel_region() { return false; }
#endif

namespace causerie {

CallState & call_state() noexcept {
    thread_local CallState state;
    return state;
}

void Call::fail(int code, const char * reason) const noexcept {
    CallState & state = call_state();
    state.code = code;
    try {
        state.message.assign(name_).append(": ").append(reason);
    } catch (...) {
        state.message.clear();
    }
}

static void on_abort(const char * message) {
    if (call_state().depth > 0 && !in_parallel_region()) {
        throw Aborted(message);
    }
    std::fprintf(stderr, "%s\n", message);
}

void install_abort_hook() { ggml_set_abort_callback(on_abort); }

}  // namespace causerie

int causerie_error_code(void) { return causerie::call_state().code; }

const char * causerie_error_message(void) { return causerie::call_state().message.c_str(); }

const char * causerie_error_log(void) { return causerie::call_state().log.c_str(); }
