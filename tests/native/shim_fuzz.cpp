// Fuzzes what the shim parses: templates, their inputs; and what grammars allow. With clang and -fsanitize=fuzzer it is guided by
// coverage; elsewhere main() mutates a few seeds for as many runs as it is told.

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "causerie.h"
#include "causerie_callbacks.h"
#include "grammar_reader.h"
#include "guard.h"
#include "tiny_vocab.h"

bool causerie_py_progress(float, void *) { return true; }
bool causerie_py_eval(ggml_tensor *, bool, void *) { return true; }
void causerie_py_sampler_apply(llama_token_data_array *, void *) {}
void causerie_py_sampler_accept(llama_token, void *) {}
void causerie_py_sampler_reset(void *) {}
void * causerie_py_sampler_clone(void * handle) { return handle; }
void causerie_py_sampler_free(void *) {}

static void one_template(const std::string & source) {
    causerie_template * t = causerie_template_new(source.c_str(), "<s>", "</s>");
    if (t != nullptr) {
        causerie_string_free(causerie_template_apply(t, R"({"messages": [{"role": "user", "content": "hi"}]})"));
        causerie_template_free(t);
    }
}

static void one_input(const std::string & inputs) {
    static causerie_template * t = causerie_template_new("{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}{{ tools }}", "", "");
    causerie_string_free(causerie_template_apply(t, inputs.c_str()));
}

// A grammar's rules from bytes. Only behind a terminal may a rule lead back, so that there is no left recursion.
static llama_grammar_rules rules_from(const std::string & bytes, size_t & at) {
    const auto byte = [&] { return at < bytes.size() ? static_cast<uint8_t>(bytes[at++]) : uint8_t{0}; };
    static const uint32_t letters[] = {'a', 'b', 'c', 'd', ']', '[', '"', '}', 0xE9, 0x6F22, 0x5B57, 0x1F600};
    llama_grammar_rules rules(1 + byte() % 4u);
    for (size_t rule = 0; rule < rules.size(); ++rule) {
        for (unsigned alternative = byte() % 3u;; --alternative) {
            bool behind_terminal = false;
            for (unsigned items = byte() % 4u; items > 0; --items) {
                const uint8_t kind = byte() % 8u;
                const uint32_t letter = letters[byte() % 12u];
                const size_t first = behind_terminal ? 0 : rule + 1;
                if (kind < 4 && first < rules.size()) {
                    const auto target = static_cast<uint32_t>(first + letter % (rules.size() - first));
                    rules[rule].push_back({LLAMA_GRETYPE_RULE_REF, target});
                    continue;
                }
                behind_terminal = true;
                switch (kind) {
                    case 4: rules[rule].push_back({LLAMA_GRETYPE_CHAR_ANY, 0}); break;
                    case 5: rules[rule].push_back({LLAMA_GRETYPE_TOKEN, letter % 64}); break;
                    case 6: rules[rule].push_back({LLAMA_GRETYPE_TOKEN_NOT, letter % 64}); break;
                    case 7:
                        rules[rule].push_back({LLAMA_GRETYPE_CHAR_NOT, letter});
                        rules[rule].push_back({LLAMA_GRETYPE_CHAR_RNG_UPPER, letter + 2});
                        rules[rule].push_back({LLAMA_GRETYPE_CHAR_ALT, 'c'});
                        break;
                    default: rules[rule].push_back({LLAMA_GRETYPE_CHAR, letter}); break;
                }
            }
            rules[rule].push_back({alternative > 0 ? LLAMA_GRETYPE_ALT : LLAMA_GRETYPE_END, 0});
            if (alternative == 0) {
                break;
            }
        }
    }
    return rules;
}

// Whatever the rules: asking about one token and about all say the same, and what is allowed can be accepted.
static void one_grammar(const std::string & bytes) {
    static const TinyVocab tiny;
    static const auto trie = std::make_shared<const causerie::VocabTrie>(tiny.vocab);
    size_t at = 0;
    const auto rules = std::make_shared<const causerie::Rules>(rules_from(bytes, at), 0);
    auto hidden = std::make_shared<causerie::TokenMask>((static_cast<size_t>(tiny.n) + 63) / 64, 0);
    causerie::add(*hidden, TinyVocab::control);
    causerie::GrammarReader reader(rules, trie, hidden);
    causerie::GrammarReader other(rules, trie, hidden);
    causerie::GrammarPlace place = reader.start();
    for (int step = 0; step < 12 && place.alive(); ++step) {
        const causerie::TokenMask & mask = reader.mask(place);
        const causerie::TokenMask & again = other.mask(other.adopt(reader, place));
        std::vector<llama_token> going;
        for (llama_token token = 0; token < tiny.n; ++token) {
            const bool allowed = causerie::holds(mask, token);
            const std::string & text = trie->pieces[static_cast<size_t>(token)];
            const bool goes = !llama_vocab_is_eog(tiny.vocab, token) && reader.step(place, token, text).alive();
            if (allowed != reader.allows(place, token) || allowed != causerie::holds(again, token) ||
                (goes != allowed && !llama_vocab_is_eog(tiny.vocab, token))) {
                std::fprintf(stderr, "token %d: a grammar contradicts itself\n", token);
                std::abort();
            }
            if (goes) {
                going.push_back(token);
            }
        }
        if (going.empty()) {
            return;
        }
        const size_t choice = at < bytes.size() ? static_cast<uint8_t>(bytes[at++]) : 0u;
        const llama_token token = going[choice % going.size()];
        place = reader.step(place, token, trie->pieces[static_cast<size_t>(token)]);
    }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    static const bool started = (causerie_init(), true);
    if (!started || size < 1 || size > 4096) {
        return 0;
    }
    const std::string text(reinterpret_cast<const char *>(data) + 1, size - 1);
    switch (data[0] % 3) {
        case 0: one_template(text); break;
        case 1: one_input(text); break;
        default: causerie_guarded_void("grammar", [&] { one_grammar(text); }); break;
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
        "2",  // random bytes
    };
    constexpr size_t n_seeds = sizeof seeds / sizeof seeds[0];
    std::mt19937 random(20260101);
    for (long run = 0; run < runs; ++run) {
        std::string text = seeds[random() % n_seeds];
        for (size_t missing = text.size() == 1 ? 20 + random() % 100 : 0; missing > 0; --missing) {
            text += static_cast<char>(random() % 256);
        }
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
