// Callbacks for loading and evaluation, and the memory that a context would need.

#include <memory>

#include "causerie.h"
#include "causerie_callbacks.h"
#include "guard.h"
#include "llama-ext.h"

llama_progress_callback causerie_progress_callback(void) { return causerie_py_progress; }

ggml_backend_sched_eval_callback causerie_eval_callback(void) { return causerie_py_eval; }

bool causerie_memory_needed(
    const char * path, const llama_model_params * model_params, const llama_context_params * context_params,
    causerie_memory_need * need) {
    return causerie_guarded<bool>(
        __func__,
        [&] {
            llama_model_params params = *model_params;
            params.no_alloc = true;
            params.load_mode = LLAMA_LOAD_MODE_NONE;
            params.progress_callback = nullptr;
            const std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
                llama_model_load_from_file(path, params), llama_model_free);
            if (!model) {
                throw std::runtime_error("the model's metadata could not be loaded");
            }
            const std::unique_ptr<llama_context, decltype(&llama_free)> ctx(
                llama_init_from_model(model.get(), *context_params), llama_free);
            if (!ctx) {
                throw std::runtime_error("llama.cpp refused these context parameters");
            }
            *need = {};
            for (const auto & [type, bytes] : llama_get_memory_breakdown(ctx.get())) {
                if (ggml_backend_buft_is_host(type)) {
                    need->model += static_cast<int64_t>(bytes.model);
                    need->context += static_cast<int64_t>(bytes.context);
                    need->compute += static_cast<int64_t>(bytes.compute);
                } else {
                    need->device += static_cast<int64_t>(bytes.total());
                }
            }
            return true;
        },
        false);
}
