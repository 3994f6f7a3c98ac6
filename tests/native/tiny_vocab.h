// A vocabulary for tests: every byte, and some tokens that grammars find difficult.

#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "gguf.h"
#include "llama.h"

struct TinyVocab {
    static constexpr llama_token eos = 2;
    static constexpr llama_token control = 3;  // its text is "ab" as well
    static constexpr llama_token first_byte = 4;

    TinyVocab() {
        std::vector<std::string> texts = {"<unk>", "<s>", "</s>", "ab"};
        std::vector<int32_t> types = {LLAMA_TOKEN_TYPE_UNKNOWN, LLAMA_TOKEN_TYPE_CONTROL, LLAMA_TOKEN_TYPE_CONTROL, LLAMA_TOKEN_TYPE_CONTROL};
        for (int byte = 0; byte < 256; ++byte) {
            char text[8];
            std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(byte));
            texts.emplace_back(text);
            types.push_back(LLAMA_TOKEN_TYPE_BYTE);
        }
        for (const char * text : {"abc", "abcd", "b", "é", "éa", "漢字", "\"}", "[[", "]]", "😀😀"}) {
            texts.emplace_back(text);
            types.push_back(LLAMA_TOKEN_TYPE_NORMAL);
        }
        const std::vector<float> scores(texts.size(), 0.0f);
        std::vector<const char *> pointers;
        for (const std::string & text : texts) {
            pointers.push_back(text.c_str());
        }
        gguf_context * file = gguf_init_empty();
        gguf_set_val_str(file, "general.architecture", "llama");
        gguf_set_val_str(file, "tokenizer.ggml.model", "llama");
        gguf_set_arr_str(file, "tokenizer.ggml.tokens", pointers.data(), pointers.size());
        gguf_set_arr_data(file, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
        gguf_set_arr_data(file, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
        std::FILE * stream = std::tmpfile();
        if (!gguf_write_to_file_ptr(file, stream, false)) {
            std::abort();
        }
        gguf_free(file);
        std::rewind(stream);
        llama_model_params params = llama_model_default_params();
        params.vocab_only = true;
        params.load_mode = LLAMA_LOAD_MODE_NONE;
        model = llama_model_load_from_file_ptr(stream, params);
        std::fclose(stream);
        if (model == nullptr) {
            std::abort();
        }
        vocab = llama_model_get_vocab(model);
        n = llama_vocab_n_tokens(vocab);
    }
    ~TinyVocab() { llama_model_free(model); }
    TinyVocab(const TinyVocab &) = delete;
    TinyVocab & operator=(const TinyVocab &) = delete;

    static llama_token byte(char c) { return first_byte + static_cast<uint8_t>(c); }

    llama_model * model = nullptr;
    const llama_vocab * vocab = nullptr;
    int32_t n = 0;
};
