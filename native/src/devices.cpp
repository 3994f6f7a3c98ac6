// On which devices a model's layers, its cache and its buffers are, or would be.

#include "causerie.h"

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "fit.h"
#include "guard.h"
#include "llama-context.h"
#include "llama-ext.h"
#include "llama-model.h"

namespace {

ggml_backend_dev_t cpu() { return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU); }

// Host memory is the CPU's, also where a GPU allocated it for its transfers.
ggml_backend_dev_t device_of(ggml_backend_buffer_type_t type) {
    ggml_backend_dev_t device = ggml_backend_buft_is_host(type) ? nullptr : ggml_backend_buft_get_device(type);
    return device == nullptr ? cpu() : device;
}

class Uses {
  public:
    explicit Uses(const llama_model * model) {
        for (int i = 0; i < llama_model_n_devices(model); ++i) {
            of(llama_model_get_device(model, i));
        }
    }

    causerie_device_use & of(ggml_backend_dev_t device) {
        const auto found = std::find_if(
            uses_.begin(), uses_.end(), [&](const causerie_device_use & use) { return use.device == device; });
        return found != uses_.end() ? *found : uses_.emplace_back(causerie_device_use{device, 0, 0, 0, 0});
    }

    int32_t copy_out(causerie_device_use * uses, int32_t room) const {
        const auto count = static_cast<int32_t>(uses_.size());
        std::copy_n(uses_.begin(), std::min(count, room), uses);
        return count;
    }

  private:
    std::vector<causerie_device_use> uses_;
};

// The number behind "blk." in a tensor's name; -1: it belongs to no repeating layer.
int layer_of(const std::string & name) {
    return name.compare(0, 4, "blk.") == 0 ? std::stoi(name.substr(4)) : -1;
}

int32_t read_uses(const llama_model * model, const llama_context * ctx, causerie_device_use * out, int32_t room) {
    Uses uses(model);
    std::map<int, std::map<ggml_backend_dev_t, size_t>> layers;
    for (const auto & [name, tensor] : llama_internal_get_tensor_map(model)) {
        const int layer = layer_of(name);
        if (layer >= 0 && tensor->buffer != nullptr) {
            layers[layer][device_of(ggml_backend_buffer_get_type(tensor->buffer))] += ggml_nbytes(tensor);
        }
    }
    for (const auto & [layer, shares] : layers) {
        const auto most = std::max_element(
            shares.begin(), shares.end(), [](const auto & a, const auto & b) { return a.second < b.second; });
        ++uses.of(most->first).layers;
    }
    for (const auto & [type, bytes] : model->memory_breakdown()) {
        uses.of(device_of(type)).model += static_cast<int64_t>(bytes);
    }
    if (ctx != nullptr) {
        for (const auto & [type, bytes] : llama_get_memory_breakdown(ctx)) {
            uses.of(device_of(type)).context += static_cast<int64_t>(bytes.context);
            uses.of(device_of(type)).compute += static_cast<int64_t>(bytes.compute);
        }
    }
    uses.of(cpu());
    return uses.copy_out(out, room);
}

// llama.cpp's own fitting leaves its logger behind if a check fails inside of it.
class KeepLog {
  public:
    KeepLog() { llama_log_get(&callback_, &data_); }
    ~KeepLog() { llama_log_set(callback_, data_); }
    KeepLog(const KeepLog &) = delete;
    KeepLog & operator=(const KeepLog &) = delete;

  private:
    ggml_log_callback callback_ = nullptr;
    void * data_ = nullptr;
};

}  // namespace

bool causerie_flash_attn(const llama_context * ctx) {
    return causerie_guarded<bool>(__func__, [&] { return ctx->get_cparams().flash_attn; }, false);
}

int32_t causerie_devices_used(
    const llama_model * model, const llama_context * ctx, causerie_device_use * uses, int32_t room) {
    return causerie_guarded<int32_t>(__func__, [&] { return read_uses(model, ctx, uses, room); }, -1);
}

int32_t causerie_devices_needed(
    const char * path, const llama_model_params * model_params, const llama_context_params * context_params,
    causerie_device_use * uses, int32_t room) {
    return causerie_guarded<int32_t>(
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
            return read_uses(model.get(), ctx.get(), uses, room);
        },
        -1);
}

int causerie_fit(
    const char * path, llama_model_params * model_params, llama_context_params * context_params, float * tensor_split,
    llama_model_tensor_buft_override * overrides, size_t margin, uint32_t n_ctx_min) {
    return causerie_guarded<int>(
        __func__,
        [&] {
            const KeepLog keep;
            std::vector<size_t> margins(std::max<size_t>(llama_max_devices(), 1), margin);
            const common_params_fit_status status = common_fit_params(
                path, model_params, context_params, tensor_split, overrides, margins.data(), n_ctx_min, nullptr,
                GGML_LOG_LEVEL_ERROR);
            switch (status) {
                case COMMON_PARAMS_FIT_STATUS_SUCCESS:
                    return CAUSERIE_FIT_FOUND;
                case COMMON_PARAMS_FIT_STATUS_FAILURE:
                    return CAUSERIE_FIT_NONE;
                default:
                    throw std::runtime_error("the model could not be examined");
            }
        },
        -1);
}
