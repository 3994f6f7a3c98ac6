// Tests of the shim without Python, built with sanitizers (`make sanitize`). Prints one line and exits 0, or stops at
// the first expectation that does not hold.

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "causerie.h"
#include "causerie_callbacks.h"
#include "guard.h"
#include "template_test.h"
#include "tiny_vocab.h"

namespace {

std::atomic<int> expectations{0};

void expect(bool holds, const char * what, int line) {
    ++expectations;
    if (!holds) {
        std::fprintf(stderr, "line %d: expected %s\n", line, what);
        std::exit(1);
    }
}

#define EXPECT(condition) expect((condition), #condition, __LINE__)

bool contains(const char * text, const char * part) { return std::strstr(text, part) != nullptr; }

std::vector<std::string> drain() {
    std::vector<std::string> found;
    char text[256];
    int level = 0;
    while (causerie_log_read(text, sizeof text, &level)) {
        found.emplace_back(text);
    }
    return found;
}

}  // namespace

// What Python implements in the module.
static std::atomic<int> live_samplers{0};
bool causerie_py_progress(float, void * handle) { return handle != nullptr; }
bool causerie_py_eval(ggml_tensor *, bool, void *) { return true; }
void causerie_py_sampler_apply(llama_token_data_array * candidates, void *) {
    candidates->selected = static_cast<int64_t>(candidates->size) - 1;
}
void causerie_py_sampler_accept(llama_token, void *) {}
void causerie_py_sampler_reset(void *) {}
void * causerie_py_sampler_clone(void * handle) {
    if (*static_cast<int *>(handle) < 0) {
        return nullptr;
    }
    ++live_samplers;
    return handle;
}
void causerie_py_sampler_free(void *) { --live_samplers; }

static void exceptions_become_errors_of_the_thread() {
    const int r = causerie_guarded<int>("f", []() -> int { throw std::runtime_error("reason"); }, -7);
    EXPECT(r == -7);
    EXPECT(causerie_error_code() == CAUSERIE_ERROR_EXCEPTION);
    EXPECT(contains(causerie_error_message(), "f: reason"));
    std::thread([] { EXPECT(causerie_error_code() == CAUSERIE_ERROR_NONE); }).join();
    EXPECT(causerie_guarded<int>("g", [] { return 5; }, 0) == 5);
    EXPECT(causerie_error_code() == CAUSERIE_ERROR_NONE);
    causerie_guarded_void("h", [] { throw 1; });
    EXPECT(causerie_error_code() == CAUSERIE_ERROR_EXCEPTION);
    causerie_guarded_void("i", [] { throw std::bad_alloc(); });
    EXPECT(causerie_error_code() == CAUSERIE_ERROR_MEMORY);
}

static void a_failed_assertion_does_not_end_the_process() {
    causerie_guarded_void("f", [] { GGML_ASSERT(1 == 2); });
    EXPECT(causerie_error_code() == CAUSERIE_ERROR_ABORT);
    EXPECT(contains(causerie_error_message(), "1 == 2"));
    causerie_guarded_void("outer", [] {
        causerie_guarded_void("inner", [] { GGML_ABORT("deep"); });
        EXPECT(causerie_error_code() == CAUSERIE_ERROR_ABORT);
    });
    EXPECT(causerie_error_code() == CAUSERIE_ERROR_ABORT);  // an inner failure is not forgotten by the outer call
}

static void a_failed_assertion_inside_llama_unwinds_through_c_frames() {
    // ggml.c is C: the exception passes through its frames.
    causerie_guarded_void("f", [] {
        ggml_init_params params = {1024 * 1024, nullptr, false};
        ggml_context * ctx = ggml_init(params);
        ggml_tensor * a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
        ggml_tensor * b = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 3);
        try {
            ggml_mul_mat(ctx, a, b);
        } catch (...) {
            ggml_free(ctx);
            throw;
        }
    });
    EXPECT(causerie_error_code() == CAUSERIE_ERROR_ABORT);
}

static void logs_are_kept_in_order_and_bounded() {
    drain();
    ggml_log_callback callback = nullptr;
    void * data = nullptr;
    llama_log_get(&callback, &data);
    callback(GGML_LOG_LEVEL_INFO, "one ", data);
    callback(GGML_LOG_LEVEL_CONT, "line\n", data);
    callback(GGML_LOG_LEVEL_WARN, "two\n", data);
    EXPECT(causerie_log_pending());
    const auto lines = drain();
    EXPECT(lines.size() == 2 && lines[0] == "one line\n" && lines[1] == "two\n");
    EXPECT(!causerie_log_pending());

    const uint64_t dropped = causerie_log_dropped();
    for (int i = 0; i < 10000; ++i) {
        callback(GGML_LOG_LEVEL_INFO, (std::to_string(i) + "\n").c_str(), data);
    }
    const auto kept = drain();
    EXPECT(kept.back() == "9999\n");
    EXPECT(causerie_log_dropped() - dropped + kept.size() == 10000);

    callback(GGML_LOG_LEVEL_INFO, std::string(5000, 'x').c_str(), data);
    EXPECT(drain().at(0).size() == 255);  // cut to the reader's buffer

    causerie_guarded_void("f", [&] { callback(GGML_LOG_LEVEL_ERROR, "why\n", data); });
    EXPECT(contains(causerie_error_log(), "why"));
    causerie_guarded_void("g", [] {});
    EXPECT(causerie_error_log()[0] == '\0');
}

static void many_threads_may_log() {
    ggml_log_callback callback = nullptr;
    void * data = nullptr;
    llama_log_get(&callback, &data);
    std::vector<std::thread> threads;
    std::atomic<bool> done{false};
    std::thread reader([&] {
        while (!done) {
            drain();
        }
    });
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 2000; ++i) {
                callback(i % 3 ? GGML_LOG_LEVEL_INFO : GGML_LOG_LEVEL_CONT, "text\n", data);
            }
        });
    }
    for (auto & thread : threads) {
        thread.join();
    }
    done = true;
    reader.join();
}

static void cancel_flags() {
    causerie_cancel * flag = causerie_cancel_new();
    EXPECT(!causerie_cancel_get(flag));
    causerie_cancel_set(flag, true);
    EXPECT(causerie_cancel_get(flag));
    causerie_cancel_free(flag);
}

static void files() {
    EXPECT(causerie_file_open(-1, "rb") == nullptr);
    std::FILE * temporary = std::tmpfile();
    std::FILE * file = causerie_file_open(fileno(temporary), "rb");
    EXPECT(file != nullptr && file != temporary);
    causerie_file_close(file);
    causerie_file_close(nullptr);
    EXPECT(std::fputs("still open", temporary) >= 0);
    std::fclose(temporary);
}

static void samplers() {
    const std::vector<float> logits = {0.5f, 3.0f, -1.0f, 2.0f};
    std::vector<llama_token_data> out(logits.size());
    int64_t selected = -2;
    const auto apply = [&](llama_sampler * s) {
        return causerie_sampler_apply(s, logits.data(), static_cast<int64_t>(logits.size()), out.data(), &selected);
    };
    llama_sampler * greedy = llama_sampler_init_greedy();
    EXPECT(apply(greedy) == 4 && out[static_cast<size_t>(selected)].id == 1);
    llama_sampler_free(greedy);
    llama_sampler * top_k = llama_sampler_init_top_k(2);
    EXPECT(apply(top_k) == 2 && out[0].id == 1 && out[1].id == 3);
    llama_sampler_free(top_k);

    int handle = 1;
    ++live_samplers;
    llama_sampler * custom = causerie_sampler_custom(&handle);
    EXPECT(apply(custom) == 4 && selected == 3);
    llama_sampler * copy = llama_sampler_clone(custom);
    EXPECT(live_samplers == 2);
    llama_sampler_free(copy);
    handle = -1;
    EXPECT(causerie_guarded<llama_sampler *>("clone", [&] { return llama_sampler_clone(custom); }, nullptr) == nullptr);
    EXPECT(causerie_error_code() == CAUSERIE_ERROR_EXCEPTION);
    llama_sampler_free(custom);
    EXPECT(live_samplers == 0);
}

static std::vector<llama_token> allowed(llama_sampler * sampler, int32_t n) {
    const std::vector<float> logits(static_cast<size_t>(n), 1.0f);
    std::vector<llama_token_data> out(logits.size());
    int64_t selected = -1;
    const int64_t size = causerie_sampler_apply(sampler, logits.data(), n, out.data(), &selected);
    std::vector<llama_token> found;
    for (int64_t i = 0; i < size; ++i) {
        if (out[static_cast<size_t>(i)].logit > 0) {
            found.push_back(out[static_cast<size_t>(i)].id);
        }
    }
    return found;
}

static bool accepts(llama_sampler * sampler, llama_token token) {
    causerie_guarded_void("accept", [&] { llama_sampler_accept(sampler, token); });
    return causerie_error_code() == CAUSERIE_ERROR_NONE;
}

static void grammars() {
    const TinyVocab tiny;
    causerie_vocab_trie * trie = causerie_vocab_trie_new(tiny.vocab);
    const auto grammar = [&](const char * text) {
        return causerie_grammar_new(trie, tiny.vocab, text, "root", false, nullptr, 0);
    };
    EXPECT(grammar("root ::= [") == nullptr && causerie_error_code() == CAUSERIE_ERROR_EXCEPTION);
    EXPECT(grammar("other ::= \"a\"") == nullptr);

    // Samplers outlive the grammar and the trie; copies go their own way.
    causerie_grammar * of_words = grammar("root ::= \"abc\" | \"b\"");
    llama_sampler * sampler = causerie_sampler_grammar(of_words, false, nullptr, 0, nullptr, 0);
    causerie_grammar_free(of_words);
    EXPECT(allowed(sampler, tiny.n).size() == 4);  // a, b and abc, but not the control token with the text ab
    EXPECT(!accepts(sampler, TinyVocab::byte('x')) && !accepts(sampler, tiny.n) && !accepts(sampler, -1));
    EXPECT(!accepts(sampler, TinyVocab::control) && !accepts(sampler, TinyVocab::eos));
    llama_sampler * copy = llama_sampler_clone(sampler);
    EXPECT(accepts(copy, TinyVocab::byte('b')) && allowed(copy, tiny.n) == std::vector<llama_token>{TinyVocab::eos});
    EXPECT(accepts(copy, TinyVocab::eos));
    EXPECT(accepts(sampler, TinyVocab::byte('a')) && allowed(sampler, tiny.n).size() == 2);
    llama_sampler_reset(sampler);
    EXPECT(allowed(sampler, tiny.n).size() == 4);
    llama_sampler_free(copy);
    llama_sampler_free(sampler);

    // Too ambiguous to go on: refused, and usable again.
    causerie_grammar * ambiguous = grammar("root ::= s\ns ::= \"a\" s \"b\" | \"aa\" s \"b\" | \"\"");
    sampler = causerie_sampler_grammar(ambiguous, false, nullptr, 0, nullptr, 0);
    for (int i = 0; i < 5000; ++i) {
        EXPECT(accepts(sampler, TinyVocab::byte('a')));
    }
    EXPECT(allowed(sampler, tiny.n).empty() && contains(causerie_error_message(), "too ambiguous"));
    llama_sampler_reset(sampler);
    EXPECT(accepts(sampler, TinyVocab::byte('a')));
    llama_sampler_free(sampler);
    causerie_grammar_free(ambiguous);

    // A lazy one begins with what its pattern finds.
    causerie_grammar * call = grammar("root ::= \"b]\"");
    const char * patterns[] = {"a(b)"};
    sampler = causerie_sampler_grammar(call, true, patterns, 1, nullptr, 0);
    EXPECT(allowed(sampler, tiny.n).size() == static_cast<size_t>(tiny.n));
    EXPECT(accepts(sampler, TinyVocab::byte('a')) && accepts(sampler, TinyVocab::byte('b')));
    EXPECT(allowed(sampler, tiny.n) == std::vector<llama_token>{TinyVocab::byte(']')});
    llama_sampler_free(sampler);
    causerie_grammar_free(call);
    causerie_vocab_trie_free(trie);
}

// Samplers of one grammar on several threads, which fill it with so much that it is replaced meanwhile.
static void many_threads_may_follow_one_grammar() {
    const TinyVocab tiny;
    causerie_vocab_trie * trie = causerie_vocab_trie_new(tiny.vocab);
    std::string text = "root ::= \"[\" root \"]\" | [";  // with many classes of characters, for large states
    for (int i = 0; i < 120; ++i) {
        char character[8];
        std::snprintf(character, sizeof character, "\\u%04X", static_cast<unsigned>(0x100 + 2 * i));
        text += character;
    }
    causerie_grammar * nested = causerie_grammar_new(trie, tiny.vocab, (text + "c]+").c_str(), "root", true, nullptr, 0);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            llama_sampler * sampler = causerie_sampler_grammar(nested, false, nullptr, 0, nullptr, 0);
            const int depth = 40000 + t;
            for (int i = 0; i < depth; ++i) {
                EXPECT(accepts(sampler, TinyVocab::byte('[')));
                if (i % 1000 == 0) {
                    allowed(sampler, tiny.n);
                }
            }
            EXPECT(accepts(sampler, TinyVocab::byte('c')));
            for (int i = 0; i < depth; ++i) {
                EXPECT(accepts(sampler, TinyVocab::byte(']')));
            }
            EXPECT(accepts(sampler, TinyVocab::eos) && !accepts(sampler, TinyVocab::byte(']')));
            llama_sampler_free(sampler);
        });
    }
    for (auto & thread : threads) {
        thread.join();
    }
    causerie_grammar_free(nested);
    causerie_vocab_trie_free(trie);
}

static void templates() {
    EXPECT(causerie_template_new("{% if %}", "", "") == nullptr);
    EXPECT(causerie_error_code() == CAUSERIE_ERROR_EXCEPTION);
    causerie_template * t = causerie_template_new("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}", "<s>", "</s>");
    EXPECT(t != nullptr);
    char * result = causerie_template_apply(t, R"({"messages": [{"role": "user", "content": "h\u00e9"}]})");
    EXPECT(result != nullptr && contains(result, "[user]hé"));
    causerie_string_free(result);
    for (const char * bad : {"", "{", "[]", "{}", R"({"messages": 1})", R"({"messages": [1]})",
                             R"({"messages": [{"content": "x"}]})", R"({"messages": [], "kwargs": 3})",
                             R"({"messages": [], "tools": {}})", R"({"messages": [], "now": "x"})"}) {
        causerie_string_free(causerie_template_apply(t, bad));
    }
    char * caps = causerie_template_caps(t);
    EXPECT(caps != nullptr && contains(caps, "supports_tools"));
    causerie_string_free(caps);
    causerie_template_free(t);
}

static void replies() {
    for (const char * bad : {"", "{", "[]", "{}", R"({"format": "x", "parser": "", "generation_prompt": ""})",
                             R"({"format": "peg-native", "parser": "{", "generation_prompt": ""})"}) {
        EXPECT(causerie_parser_new(bad) == nullptr);
        EXPECT(causerie_error_code() == CAUSERIE_ERROR_EXCEPTION);
    }
    causerie_parser * parser = causerie_parser_new(R"({"format": "peg-native", "parser": "", "generation_prompt": ""})");
    EXPECT(parser != nullptr);
    const std::string text = std::string("h\0\xff <tool_call>", 15);
    char * message = causerie_parser_parse(parser, text.data(), text.size(), true);
    EXPECT(message != nullptr && contains(message, "<tool_call"));
    causerie_string_free(message);
    const std::string deep(200000, '[');
    EXPECT(causerie_parser_parse(parser, deep.data(), deep.size(), true) == nullptr);
    causerie_parser_free(parser);
    causerie_parser_free(nullptr);
}

// A model of one layer whose matrices have the given type, in a temporary file.
static std::FILE * tiny_model(ggml_type type) {
    const int64_t n_embd = 32;
    gguf_context * file = gguf_init_empty();
    gguf_set_val_str(file, "general.architecture", "llama");
    gguf_set_val_str(file, "tokenizer.ggml.model", "none");
    for (const char * key : {"vocab_size", "context_length", "embedding_length", "feed_forward_length"}) {
        gguf_set_val_u32(file, (std::string("llama.") + key).c_str(), n_embd);
    }
    gguf_set_val_u32(file, "llama.block_count", 1);
    gguf_set_val_u32(file, "llama.attention.head_count", 4);
    gguf_set_val_f32(file, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    ggml_context * ctx = ggml_init({1024 * 1024, nullptr, false});
    const auto add = [&](const char * name, ggml_type kind, int64_t rows) {
        ggml_tensor * tensor = rows == 0 ? ggml_new_tensor_1d(ctx, kind, n_embd) : ggml_new_tensor_2d(ctx, kind, n_embd, rows);
        ggml_set_name(tensor, name);
        std::memset(tensor->data, 0, ggml_nbytes(tensor));
        gguf_add_tensor(file, tensor);
    };
    for (const char * name : {"output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"}) {
        add(name, GGML_TYPE_F32, 0);
    }
    for (const char * name : {"token_embd", "blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v", "blk.0.attn_output",
                              "blk.0.ffn_gate", "blk.0.ffn_up", "blk.0.ffn_down"}) {
        add((std::string(name) + ".weight").c_str(), type, n_embd);
    }
    std::FILE * stream = std::tmpfile();
    EXPECT(gguf_write_to_file_ptr(file, stream, false));
    std::rewind(stream);
    ggml_free(ctx);
    gguf_free(file);
    return stream;
}

static void weights() {
    for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_I32, GGML_TYPE_F64}) {
        std::FILE * stream = tiny_model(type);
        llama_model * model = llama_model_load_from_file_ptr(stream, llama_model_default_params());
        EXPECT(model != nullptr);
        causerie_weight weight = {};
        const bool usable = causerie_weights_usable(model, &weight);
        EXPECT(usable == (type != GGML_TYPE_I32 && type != GGML_TYPE_F64));
        EXPECT(usable == (weight.name == nullptr));
        EXPECT(usable || (contains(weight.name, ".weight") && weight.type == type));
        llama_model_free(model);
        std::fclose(stream);
    }
}

static void devices() {
    std::FILE * stream = tiny_model(GGML_TYPE_F32);
    llama_model * model = llama_model_load_from_file_ptr(stream, llama_model_default_params());
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 256;
    llama_context * ctx = llama_init_from_model(model, params);
    EXPECT(ctx != nullptr);
    causerie_device_use uses[8] = {};
    const int32_t count = causerie_devices_used(model, ctx, uses, 8);
    EXPECT(count >= 1 && count < 8);
    int32_t layers = 0;
    int64_t context = 0;
    for (int32_t i = 0; i < count; ++i) {
        layers += uses[i].layers;
        context += uses[i].context;
    }
    EXPECT(layers == 1 && context > 0);
    EXPECT(ggml_backend_dev_type(uses[count - 1].device) == GGML_BACKEND_DEVICE_TYPE_CPU);
    causerie_device_use untouched = {nullptr, -7, 0, 0, 0};
    EXPECT(causerie_devices_used(model, nullptr, &untouched, 0) == count);
    EXPECT(untouched.layers == -7);
    llama_free(ctx);
    llama_model_free(model);
    std::fclose(stream);
    llama_model_params model_params = llama_model_default_params();
    EXPECT(causerie_devices_needed("no such file", &model_params, &params, uses, 8) == -1);
    EXPECT(causerie_error_code() == CAUSERIE_ERROR_EXCEPTION);
    EXPECT(causerie_physical_cores() >= 1);
}

static void fitting_gives_the_log_back() {
    llama_model_params model_params = llama_model_default_params();
    llama_context_params params = llama_context_default_params();
    std::vector<float> split(llama_max_devices());
    std::vector<llama_model_tensor_buft_override> overrides(llama_max_tensor_buft_overrides());
    ggml_log_callback before = nullptr;
    ggml_log_callback after = nullptr;
    void * data = nullptr;
    llama_log_get(&before, &data);
    EXPECT(causerie_fit("no such file", &model_params, &params, split.data(), overrides.data(), 0, 256) == -1);
    EXPECT(causerie_error_code() == CAUSERIE_ERROR_EXCEPTION);
    llama_log_get(&after, &data);
    EXPECT(before == after);
}

static void a_server_that_is_not_there() {
    EXPECT(causerie_rpc_add_server("127.0.0.1:1") == nullptr);
    EXPECT(causerie_error_code() != CAUSERIE_ERROR_NONE);
    EXPECT(contains(causerie_error_message(), llama_supports_rpc() ? "connect" : "no RPC backend"));
}

static void plugins() {
    EXPECT(causerie_plugin_score("no such file") == -1);
    EXPECT(contains(causerie_error_message(), "no such file"));
    EXPECT(std::strlen(causerie_plugin_commit()) == 40 && contains(causerie_build_info(), causerie_plugin_commit()));
}

// Any argument: compare more of what templates give, for some minutes.
int main(int argc, char **) {
    const bool thoroughly = argc > 1;
    causerie_init();
    causerie_init();
    exceptions_become_errors_of_the_thread();
    a_failed_assertion_does_not_end_the_process();
    a_failed_assertion_inside_llama_unwinds_through_c_frames();
    logs_are_kept_in_order_and_bounded();
    many_threads_may_log();
    cancel_flags();
    files();
    samplers();
    grammars();
    many_threads_may_follow_one_grammar();
    templates();
    EXPECT(templates_are_llama_cpps(CAUSERIE_TEMPLATES, thoroughly) > 200);
    replies();
    weights();
    devices();
    fitting_gives_the_log_back();
    a_server_that_is_not_there();
    plugins();
    EXPECT(contains(causerie_build_info(), "llama_commit"));
    std::printf("shim: %d expectations hold\n", expectations.load());
    return 0;
}
