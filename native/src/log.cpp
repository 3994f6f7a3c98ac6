// llama.cpp's log, kept in a ring buffer until Python drains it; no Python and no I/O on the logging thread.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>

#include "causerie.h"
#include "ggml-backend.h"
#include "guard.h"
#include "hooks.h"
#include "log.h"
#include "mtmd-helper.h"
#include "mtmd.h"

namespace {

constexpr size_t max_records = 8192;
constexpr size_t max_call_log = 8192;

struct Record {
    int level;
    std::string text;
};

struct Ring {
    std::mutex mutex;
    std::deque<Record> records;
    std::atomic<bool> pending{false};
    uint64_t dropped = 0;
    bool line_open = false;
};

// Never destroyed: threads of the process may log while static objects are being torn down.
Ring & ring() {
    static auto * instance = new Ring;
    return *instance;
}

void keep_for_call(int level, const char * text) {
    causerie::CallState & state = causerie::call_state();
    if (state.depth > 0 && state.log.size() < max_call_log) {
        static thread_local bool last_was_kept = false;
        const bool keep = level == GGML_LOG_LEVEL_CONT ? last_was_kept : level >= GGML_LOG_LEVEL_WARN;
        last_was_kept = keep;
        if (keep) {
            state.log.append(text);
        }
    }
}

void on_log(ggml_log_level level, const char * text, void *) {
    try {
        keep_for_call(level, text);
        Ring & r = ring();
        const std::lock_guard<std::mutex> lock(r.mutex);
        const size_t length = std::strlen(text);
        if ((level == GGML_LOG_LEVEL_CONT || r.line_open) && !r.records.empty()) {
            r.records.back().text.append(text, length);
        } else {
            if (r.records.size() >= max_records) {
                r.records.pop_front();
                ++r.dropped;
            }
            r.records.push_back({static_cast<int>(level), std::string(text, length)});
        }
        r.line_open = length > 0 && text[length - 1] != '\n';
        r.pending.store(true, std::memory_order_release);
    } catch (...) {
        return;  // a log line that does not fit into memory is not worth an exception through C frames
    }
}

}  // namespace

namespace causerie {

void install_log_hook() {
    llama_log_set(on_log, nullptr);
    ggml_log_set(on_log, nullptr);
    mtmd_helper_log_set(on_log, nullptr);
    common_log_set_verbosity_thold(-1);  // llama-common has a logger of its own, which prints what is at or below this
}

}  // namespace causerie

void causerie_init(void) {
    static std::once_flag once;
    std::call_once(once, [] {
        causerie::install_abort_hook();
        causerie::install_log_hook();
        causerie_guarded_void("llama_backend_init", [] { llama_backend_init(); });
        causerie::give_back_load_pages();
    });
}

bool causerie_log_pending(void) { return ring().pending.load(std::memory_order_acquire); }

bool causerie_log_read(char * text, size_t size, int * level) {
    Ring & r = ring();
    const std::lock_guard<std::mutex> lock(r.mutex);
    if (r.records.empty()) {
        r.pending.store(false, std::memory_order_release);
        return false;
    }
    const Record & record = r.records.front();
    *level = record.level;
    if (size > 0) {
        const size_t length = std::min(size - 1, record.text.size());
        std::memcpy(text, record.text.data(), length);
        text[length] = '\0';
    }
    r.records.pop_front();
    if (r.records.empty()) {
        r.pending.store(false, std::memory_order_release);
        r.line_open = false;
    }
    return true;
}

uint64_t causerie_log_dropped(void) {
    Ring & r = ring();
    const std::lock_guard<std::mutex> lock(r.mutex);
    return r.dropped;
}

const char * causerie_llama_version(void) { return llama_version(); }
