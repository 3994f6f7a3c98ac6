// Fuzzes what the shim parses: templates, their inputs, grammars. With clang and -fsanitize=fuzzer it is guided by
// coverage; elsewhere main() mutates a few seeds for as many runs as it is told.

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "causerie.h"
#include "causerie_callbacks.h"
#include "guard.h"

bool causerie_py_progress(float, void *) { return true; }
bool causerie_py_eval(ggml_tensor *, bool, void *) { return true; }
void causerie_py_sampler_apply(llama_token_data_array *, void *) {}
void causerie_py_sampler_accept(llama_token, void *) {}
void causerie_py_sampler_reset(void *) {}
void * causerie_py_sampler_clone(void * handle) { return handle; }
void causerie_py_sampler_free(void *) {}

static void one_template(const std::string & source) {
    causerie_template * t = causerie_template_new(nullptr, source.c_str(), "<s>", "</s>");
    if (t != nullptr) {
        causerie_string_free(causerie_template_apply(t, R"({"messages": [{"role": "user", "content": "hi"}]})"));
        causerie_template_free(t);
    }
}

static void one_input(const std::string & inputs) {
    static causerie_template * t = causerie_template_new(
        nullptr, "{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}{{ tools }}", "", "");
    causerie_string_free(causerie_template_apply(t, inputs.c_str()));
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    static const bool started = (causerie_init(), true);
    if (!started || size < 1 || size > 4096) {
        return 0;
    }
    const std::string text(reinterpret_cast<const char *>(data) + 1, size - 1);
    if (data[0] % 2 == 0) {
        one_template(text);
    } else {
        one_input(text);
    }
    return 0;
}

#if !defined(CAUSERIE_LIBFUZZER)
int main(int argc, char ** argv) {
    const long runs = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 2000;
    const std::string seeds[] = {
        std::string("0") + "{% for m in messages %}{% if m.role == 'user' %}{{ m.content | trim }}{% endif %}{% endfor %}",
        std::string("0") + "{%- set x = namespace(a=1) %}{{ x.a + 2 }}{{ messages[0]['content'][:3] }}{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1) }}",
        std::string("1") + R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}], "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]})",
        std::string("1") + R"({"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}], "now": 1, "kwargs": {"a": [1, {"b": null}]}})",
    };
    std::mt19937 random(20260101);
    for (long run = 0; run < runs; ++run) {
        std::string text = seeds[random() % 4];
        for (unsigned changes = 1 + random() % 8; changes > 0; --changes) {
            const size_t at = 1 + random() % (text.size() - 1);
            switch (random() % 4) {
                case 0: text[at] = static_cast<char>(random() % 256); break;
                case 1: text.erase(at, 1 + random() % 6); break;
                case 2: text.insert(at, text.substr(1 + random() % (text.size() - 1), 1 + random() % 12)); break;
                default: text.insert(at, 1, "{}[]()%\"'\\|.:,-#"[random() % 16]); break;
            }
            if (text.size() < 4) {
                break;
            }
        }
        LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(text.data()), text.size());
    }
    std::printf("fuzz: %ld runs\n", runs);
    return 0;
}
#endif
