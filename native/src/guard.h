// Runs a call into llama.cpp so that neither a C++ exception nor a failed GGML_ASSERT can end the process.
//
// ggml_abort() calls a hook before abort(). Inside a guarded call the hook leaves by throwing; outside of one (a worker
// thread, foreign code) it prints the reason and lets the process end, as nothing could be unwound safely there.

#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#if defined(__GLIBCXX__)
#    include <cxxabi.h>
#endif

#include "causerie.h"

namespace causerie {

struct Aborted : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The calling thread's view of its last guarded call.
struct CallState {
    int depth = 0;
    int code = CAUSERIE_ERROR_NONE;
    std::string message;
    std::string log;
};

CallState & call_state() noexcept;

class Call {
  public:
    explicit Call(const char * name) noexcept : name_(name) {
        CallState & state = call_state();
        if (state.depth++ == 0) {
            state.code = CAUSERIE_ERROR_NONE;
            state.log.clear();
        }
    }
    ~Call() { --call_state().depth; }
    Call(const Call &) = delete;
    Call & operator=(const Call &) = delete;

    void fail(int code, const char * reason) const noexcept;

  private:
    const char * name_;
};

}  // namespace causerie

template <class R, class F> R causerie_guarded(const char * name, F && f, R on_error) {
    const causerie::Call call(name);
    try {
        return f();
    } catch (const causerie::Aborted & e) {
        call.fail(CAUSERIE_ERROR_ABORT, e.what());
    } catch (const std::bad_alloc & e) {
        call.fail(CAUSERIE_ERROR_MEMORY, e.what());
    } catch (const std::exception & e) {
        call.fail(CAUSERIE_ERROR_EXCEPTION, e.what());
#if defined(__GLIBCXX__)
    } catch (const abi::__forced_unwind &) {
        throw;  // the thread is being ended by pthread_exit: not ours to stop
#endif
    } catch (...) {
        call.fail(CAUSERIE_ERROR_EXCEPTION, "unknown C++ exception");
    }
    return on_error;
}

template <class F> void causerie_guarded_void(const char * name, F && f) {
    causerie_guarded<int>(
        name,
        [&] {
            f();
            return 0;
        },
        0);
}
