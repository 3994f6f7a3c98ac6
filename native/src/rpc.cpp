// Devices of other machines. The RPC backend may be a plugin, or not be there: it is asked for its functions.

#include "ggml-rpc.h"

#include <stdexcept>

#include "causerie.h"
#include "guard.h"

namespace {

template <class F> F * rpc_function(const char * name) {
    ggml_backend_reg_t reg = ggml_backend_reg_by_name("RPC");
    void * found = reg == nullptr ? nullptr : ggml_backend_reg_get_proc_address(reg, name);
    if (found == nullptr) {
        throw std::runtime_error("this build has no RPC backend");
    }
    return reinterpret_cast<F *>(found);
}

}  // namespace

ggml_backend_reg_t causerie_rpc_add_server(const char * endpoint) {
    return causerie_guarded<ggml_backend_reg_t>(
        __func__,
        [&] {
            const auto add = rpc_function<decltype(ggml_backend_rpc_add_server)>("ggml_backend_rpc_add_server");
            ggml_backend_reg_t reg = add(endpoint);
            if (reg == nullptr) {
                throw std::runtime_error("the server offers no device");
            }
            return reg;
        },
        nullptr);
}

void causerie_rpc_serve(
    const char * endpoint, const char * cache_dir, size_t n_threads, ggml_backend_dev_t * devices, size_t n_devices) {
    causerie_guarded_void(__func__, [&] {
        const auto serve = rpc_function<decltype(ggml_backend_rpc_start_server)>("ggml_backend_rpc_start_server");
        serve(endpoint, cache_dir, n_threads, n_devices, devices);
        throw std::runtime_error("the server could not be started, or stopped by itself");
    });
}
