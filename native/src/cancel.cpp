// Cancel flags: set by any thread, read by llama.cpp between graph nodes.

#include <atomic>

#include "causerie.h"
#include "guard.h"

struct causerie_cancel {
    std::atomic<bool> value{false};
};

static bool is_set(void * data) {
    return static_cast<causerie_cancel *>(data)->value.load(std::memory_order_relaxed);
}

causerie_cancel * causerie_cancel_new(void) { return new (std::nothrow) causerie_cancel; }

void causerie_cancel_free(causerie_cancel * flag) { delete flag; }

void causerie_cancel_set(causerie_cancel * flag, bool value) { flag->value.store(value, std::memory_order_relaxed); }

bool causerie_cancel_get(const causerie_cancel * flag) { return flag->value.load(std::memory_order_relaxed); }

void causerie_cancel_attach(causerie_cancel * flag, llama_context * ctx) {
    causerie_guarded_void(__func__, [&] { llama_set_abort_callback(ctx, is_set, flag); });
}
