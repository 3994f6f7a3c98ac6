// A thread with a large stack, which std::thread cannot ask for.

#include "large_stack.h"

#include <stdexcept>

#include "guard.h"

#if defined(_WIN32)
#    include <windows.h>
#else
#    include <pthread.h>
#endif

namespace {

constexpr size_t stack_bytes = size_t{256} * 1024 * 1024;

thread_local bool on_one = false;

struct Work {
    const std::function<void()> * f;
    std::exception_ptr error;
};

void run(Work & work) {
    const causerie::Call call("large stack");  // so that a failed assertion on this thread throws too
    on_one = true;
    try {
        (*work.f)();
    } catch (...) {
        work.error = std::current_exception();
    }
}

#if defined(_WIN32)
DWORD WINAPI entry(void * work) {
    run(*static_cast<Work *>(work));
    return 0;
}

void run_on_thread(Work & work) {
    HANDLE thread = CreateThread(nullptr, stack_bytes, entry, &work, STACK_SIZE_PARAM_IS_A_RESERVATION, nullptr);
    if (thread == nullptr) {
        throw std::runtime_error("a thread with a large stack could not be started");
    }
    WaitForSingleObject(thread, INFINITE);
    CloseHandle(thread);
}
#else
void * entry(void * work) {
    run(*static_cast<Work *>(work));
    return nullptr;
}

void run_on_thread(Work & work) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_t thread;
    const bool started = pthread_attr_setstacksize(&attributes, stack_bytes) == 0 &&
                         pthread_create(&thread, &attributes, entry, &work) == 0;
    pthread_attr_destroy(&attributes);
    if (!started) {
        throw std::runtime_error("a thread with a large stack could not be started");
    }
    pthread_join(thread, nullptr);
}
#endif

}  // namespace

void causerie::on_large_stack(const std::function<void()> & f) {
    if (on_one) {
        f();
        return;
    }
    Work work{&f, nullptr};
    run_on_thread(work);
    if (work.error) {
        std::rethrow_exception(work.error);
    }
}
