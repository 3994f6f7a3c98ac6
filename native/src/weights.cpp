// Whether ggml can compute with the weights of a model. It finds out on a worker thread, where nothing can be caught.

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "causerie.h"
#include "ggml-backend.h"
#include "guard.h"
#include "llama-ext.h"
#include "llama-model.h"

namespace {

using Uses = std::map<std::string, std::set<ggml_op>>;

// The name with every number that stands alone replaced by 0: one layer's tensors are used as another's.
std::string in_layer_zero(const std::string & name) {
    std::string result;
    std::stringstream parts(name);
    for (std::string part; std::getline(parts, part, '.');) {
        const bool number = part.find_first_not_of("0123456789") == std::string::npos;
        result.append(result.empty() ? "" : ".").append(number ? "0" : part);
    }
    return result;
}

// What llama.cpp's own table says tensors are for, by their names in layer 0 without suffix.
Uses read_uses() {
    constexpr int most_missing_in_a_row = 16;
    Uses uses;
    for (int i = 0, missing = 0; missing < most_missing_in_a_row; ++i) {
        const auto tensor = static_cast<llm_tensor>(i);
        try {
            const ggml_op op = llm_tensor_info_for(tensor).op;
            uses[LLM_TN(LLM_ARCH_UNKNOWN)(tensor, 0, 0).str()].insert(op);
            missing = 0;
        } catch (const std::exception &) {  // no such tensor
            ++missing;
        }
    }
    return uses;
}

// Whether all of a tensor's integers are ids below count.
template <class T> bool are_ids(const ggml_tensor & tensor, int64_t count) {
    if (tensor.buffer == nullptr || tensor.data == nullptr) {  // loaded without its data
        return true;
    }
    std::vector<T> ids(static_cast<size_t>(ggml_nelements(&tensor)));
    ggml_backend_tensor_get(&tensor, ids.data(), 0, ids.size() * sizeof(T));
    return std::all_of(ids.begin(), ids.end(), [&](T id) { return id >= 0 && id < count; });
}

// The integers that llama.cpp uses as such: experts by token, and tokens by token of a smaller vocabulary.
bool is_table_of_experts(const std::string & name) { return name.find(".ffn_gate_tid2eid") != std::string::npos; }
bool is_table_of_tokens(const std::string & name) { return name == "d2t"; }

// Whether a tensor of this type can be computed with.
bool is_usable(const Uses & uses, const std::string & name, const ggml_tensor & tensor) {
    const ggml_type type = tensor.type;
    if (is_table_of_experts(name)) {
        return type == GGML_TYPE_I32;
    }
    if (is_table_of_tokens(name)) {
        return type == GGML_TYPE_I64;
    }
    std::string base = in_layer_zero(name);
    std::string suffix;
    auto use = uses.find(base);
    if (use == uses.end()) {
        const size_t dot = base.rfind('.');
        suffix = dot == std::string::npos ? "" : base.substr(dot + 1);
        base.resize(dot == std::string::npos ? 0 : dot);
        use = uses.find(base);
    }
    const bool plain = type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
    const bool matrix = type == GGML_TYPE_F32 || ggml_get_type_traits(type)->to_float != nullptr;
    // The CPU adds and multiplies float32 alone; other devices do what the CPU does not.
    const bool term = tensor.buffer == nullptr || ggml_backend_buffer_is_host(tensor.buffer) ? type == GGML_TYPE_F32 : plain;
    if (suffix == "bias" || suffix == "scale" || suffix == "input_scale") {
        return term;
    }
    if (base == "token_types") {  // a row of it is added
        return term;
    }
    if (use == uses.end()) {  // unknown to the table: llama.cpp makes none such today
        return ggml_n_dims(&tensor) > 1 ? matrix : plain;
    }
    bool usable = false;
    for (const ggml_op op : use->second) {
        switch (op) {
            case GGML_OP_NONE:
                usable = true;
                break;
            case GGML_OP_MUL_MAT:
            case GGML_OP_MUL_MAT_ID:
            case GGML_OP_GET_ROWS:
                usable = usable || matrix;
                break;
            case GGML_OP_IM2COL:
                usable = usable || type == GGML_TYPE_F16 || type == GGML_TYPE_F32;
                break;
            default:
                usable = usable || term;
        }
    }
    return usable;
}

}  // namespace

bool causerie_weights_usable(const llama_model * model, causerie_weight * unusable) {
    *unusable = {nullptr, 0, false};
    return causerie_guarded<bool>(
        __func__,
        [&] {
            static const Uses uses = read_uses();
            for (const auto & [name, tensor] : llama_internal_get_tensor_map(model)) {
                const bool usable = is_usable(uses, name, *tensor);
                const bool in_range = !usable ||
                    (is_table_of_experts(name) ? are_ids<int32_t>(*tensor, llama_model_n_expert(model))
                     : is_table_of_tokens(name)
                         ? are_ids<int64_t>(*tensor, llama_vocab_n_tokens(llama_model_get_vocab(model)))
                         : true);
                if (!usable || !in_range) {
                    *unusable = {ggml_get_name(tensor), tensor->type, !in_range};
                    return false;
                }
            }
            return true;
        },
        false);
}
