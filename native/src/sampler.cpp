// Samplers written in Python, and applying a sampler to a row of logits outside of a context.

#include <algorithm>
#include <utility>
#include <vector>

#include "causerie.h"
#include "causerie_callbacks.h"
#include "guard.h"

namespace {

// While Python runs, guarded calls that it makes are calls of their own: their errors are not those of the call that
// led here, and the other way round.
class PythonCall {
  public:
    PythonCall() : outer_(std::move(causerie::call_state())) { causerie::call_state() = {}; }
    ~PythonCall() { causerie::call_state() = std::move(outer_); }
    PythonCall(const PythonCall &) = delete;
    PythonCall & operator=(const PythonCall &) = delete;

  private:
    causerie::CallState outer_;
};

const char * custom_name(const llama_sampler *) { return "python"; }

void custom_accept(llama_sampler * sampler, llama_token token) {
    const PythonCall call;
    causerie_py_sampler_accept(token, sampler->ctx);
}

void custom_apply(llama_sampler * sampler, llama_token_data_array * candidates) {
    const PythonCall call;
    causerie_py_sampler_apply(candidates, sampler->ctx);
}

void custom_reset(llama_sampler * sampler) {
    const PythonCall call;
    causerie_py_sampler_reset(sampler->ctx);
}

void * clone_in_python(const llama_sampler * sampler) {
    const PythonCall call;
    return causerie_py_sampler_clone(sampler->ctx);
}

llama_sampler * custom_clone(const llama_sampler * sampler) {
    void * handle = clone_in_python(sampler);
    if (handle == nullptr) {
        throw std::runtime_error("a sampler written in Python could not be cloned");
    }
    return causerie_sampler_custom(handle);
}

void custom_free(llama_sampler * sampler) { causerie_py_sampler_free(sampler->ctx); }

// llama_sampler keeps a pointer to its interface, so this one lives as long as the module.
llama_sampler_i custom_interface = [] {
    llama_sampler_i i = {};
    i.name = custom_name;
    i.accept = custom_accept;
    i.apply = custom_apply;
    i.reset = custom_reset;
    i.clone = custom_clone;
    i.free = custom_free;
    return i;
}();

// llama.cpp's logit-bias sampler changes logits without clearing the mark that the candidates are sorted. Those behind
// then take the first logit for the largest: after top-k and a bias that forbids the best token, dist computes with NaN
// and chooses the last candidate, excluded or not. This sampler passes everything on to the one it owns, and clears the
// mark.
llama_sampler * owned(const llama_sampler * sampler) { return static_cast<llama_sampler *>(sampler->ctx); }

const char * unsorted_name(const llama_sampler * sampler) { return llama_sampler_name(owned(sampler)); }

void unsorted_accept(llama_sampler * sampler, llama_token token) { llama_sampler_accept(owned(sampler), token); }

void unsorted_apply(llama_sampler * sampler, llama_token_data_array * candidates) {
    llama_sampler_apply(owned(sampler), candidates);
    candidates->sorted = false;
}

void unsorted_reset(llama_sampler * sampler) { llama_sampler_reset(owned(sampler)); }

llama_sampler * unsorted_clone(const llama_sampler * sampler) {
    return causerie_sampler_unsorted(llama_sampler_clone(owned(sampler)));
}

void unsorted_free(llama_sampler * sampler) { llama_sampler_free(owned(sampler)); }

llama_sampler_i unsorted_interface = [] {
    llama_sampler_i i = {};
    i.name = unsorted_name;
    i.accept = unsorted_accept;
    i.apply = unsorted_apply;
    i.reset = unsorted_reset;
    i.clone = unsorted_clone;
    i.free = unsorted_free;
    return i;
}();

}  // namespace

llama_sampler * causerie_sampler_custom(void * handle) {
    return causerie_guarded<llama_sampler *>(
        __func__, [&] { return llama_sampler_init(&custom_interface, handle); }, nullptr);
}

llama_sampler * causerie_sampler_unsorted(llama_sampler * sampler) {
    return causerie_guarded<llama_sampler *>(
        __func__, [&] { return llama_sampler_init(&unsorted_interface, sampler); }, nullptr);
}

int64_t causerie_sampler_apply(
    llama_sampler * sampler, const float * logits, int64_t n, llama_token_data * out, int64_t * selected) {
    return causerie_guarded<int64_t>(
        __func__,
        [&] {
            std::vector<llama_token_data> candidates(static_cast<size_t>(n));
            for (int64_t i = 0; i < n; ++i) {
                candidates[static_cast<size_t>(i)] = {static_cast<llama_token>(i), logits[i], 0.0f};
            }
            llama_token_data_array array = {candidates.data(), candidates.size(), -1, false};
            llama_sampler_apply(sampler, &array);
            // Samplers may point the array at memory of their own, and may only shrink it.
            if (array.size > candidates.size()) {
                throw std::runtime_error("the sampler returned more candidates than it was given");
            }
            std::copy(array.data, array.data + array.size, out);
            *selected = array.selected >= 0 && array.selected < static_cast<int64_t>(array.size) ? array.selected : -1;
            return static_cast<int64_t>(array.size);
        },
        -1);
}
