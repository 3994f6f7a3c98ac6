// Gives back the pages of a cache that holds nothing but zeros.
//
// llama.cpp fills the cells of a new context with zeros, and so takes all of its memory at once: 45 MiB for 2,048 tokens of
// a model as small as 135M. Given back, a page comes again, as zeros, with the first token that is written to it.

#include "causerie.h"
#include "guard.h"

#if defined(__linux__)

#    include <sys/mman.h>
#    include <unistd.h>

#    include <cstdint>
#    include <set>

#    include "llama-context.h"
#    include "llama-kv-cache-iswa.h"
#    include "llama-memory-hybrid-iswa.h"
#    include "llama-memory-hybrid.h"

namespace {

using Buffers = std::set<ggml_backend_buffer_t>;

void add_buffers(const llama_kv_cache * cache, Buffers & buffers) {
    for (const uint32_t layer : cache->get_layer_ids()) {
        if (const ggml_tensor * keys = cache->get_k_storage(static_cast<int32_t>(layer)); keys != nullptr) {
            buffers.insert(keys->buffer);  // its values are in the same one
        }
    }
}

void add_buffers(const llama_kv_cache_iswa * cache, Buffers & buffers) {
    add_buffers(cache->get_base(), buffers);
    add_buffers(cache->get_swa(), buffers);
}

Buffers buffers_of(llama_memory_t memory) {
    Buffers buffers;
    if (const auto * plain = dynamic_cast<const llama_kv_cache *>(memory)) {
        add_buffers(plain, buffers);
    } else if (const auto * windowed = dynamic_cast<const llama_kv_cache_iswa *>(memory)) {
        add_buffers(windowed, buffers);
    } else if (const auto * hybrid = dynamic_cast<const llama_memory_hybrid *>(memory)) {
        add_buffers(hybrid->get_mem_attn(), buffers);
    } else if (const auto * windowed_hybrid = dynamic_cast<const llama_memory_hybrid_iswa *>(memory)) {
        add_buffers(windowed_hybrid->get_mem_attn(), buffers);
    }
    return buffers;
}

// Plain memory alone: that of a GPU's driver may be pinned.
bool is_plain(ggml_backend_buffer_t buffer) {
    return buffer != nullptr && ggml_backend_buffer_get_type(buffer) == ggml_backend_cpu_buffer_type();
}

int64_t give_back(ggml_backend_buffer_t buffer) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto base = reinterpret_cast<uintptr_t>(ggml_backend_buffer_get_base(buffer));
    const uintptr_t begin = (base + page - 1) & ~(page - 1);
    const uintptr_t end = (base + ggml_backend_buffer_get_size(buffer)) & ~(page - 1);
    if (begin >= end || madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED) != 0) {
        return 0;
    }
    return static_cast<int64_t>(end - begin);
}

}  // namespace

int64_t causerie_give_back_cache(const llama_context * ctx) {
    return causerie_guarded<int64_t>(
        __func__,
        [&] {
            int64_t bytes = 0;
            // Cells that are another context's are not empty.
            if (ctx->get_cparams().ctx_other == nullptr) {
                for (ggml_backend_buffer_t buffer : buffers_of(llama_get_memory(ctx))) {
                    bytes += is_plain(buffer) ? give_back(buffer) : 0;
                }
            }
            return bytes;
        },
        -1);
}

#else

int64_t causerie_give_back_cache(const llama_context *) { return 0; }

#endif
