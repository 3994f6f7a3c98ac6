// Grammars as samplers: what llama_sampler_init_grammar does, with a reader that keeps what it finds out.

#include "grammar_sampler.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "causerie.h"
#include "grammar_trigger.h"
#include "guard.h"

using causerie::GrammarPlace;
using causerie::GrammarReader;
using causerie::GrammarTrigger;
using causerie::GrammarTriggers;
using causerie::Rules;
using causerie::TokenMask;
using causerie::VocabTrie;

struct causerie_vocab_trie {
    std::shared_ptr<const VocabTrie> trie;
};

namespace {

constexpr size_t most_bytes = size_t{32} * 1024 * 1024;  // of a reader, before another one takes its place

// What all samplers of one grammar share: a reader, or another one once it has grown too large. Who used that one moves
// on when it next accepts a token.
class Shared {
  public:
    Shared(Rules rules, std::shared_ptr<const VocabTrie> vocab, TokenMask hidden)
        : vocab_(std::move(vocab)), rules_(std::make_shared<const Rules>(std::move(rules))),
          hidden_(std::make_shared<const TokenMask>(std::move(hidden))), reader_(fresh()) {}

    std::shared_ptr<GrammarReader> reader() {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (reader_->bytes() > most_bytes) {
            reader_ = fresh();
        }
        return reader_;
    }
    const VocabTrie & vocab() const { return *vocab_; }

  private:
    std::shared_ptr<GrammarReader> fresh() const { return std::make_shared<GrammarReader>(rules_, vocab_, hidden_); }

    std::shared_ptr<const VocabTrie> vocab_;
    std::shared_ptr<const Rules> rules_;
    std::shared_ptr<const TokenMask> hidden_;
    std::mutex mutex_;
    std::shared_ptr<GrammarReader> reader_;
};

}  // namespace

struct causerie_grammar {
    std::shared_ptr<Shared> shared;
};

namespace {

// Used by one thread at a time, as every sampler.
class GrammarSampler {
  public:
    GrammarSampler(std::shared_ptr<Shared> shared, std::shared_ptr<const GrammarTriggers> triggers)
        : shared_(std::move(shared)), trigger_(std::move(triggers)), reader_(shared_->reader()), place_(reader_->start()) {}

    bool waits() const { return trigger_.waits(); }
    bool allows(llama_token token) { return waits() || reader_->allows(place_, token); }
    const TokenMask & mask() { return reader_->mask(place_); }

    void reset() {
        auto reader = shared_->reader();
        place_ = reader->start();
        reader_ = std::move(reader);
        trigger_.reset();
    }

    void accept(llama_token token) {
        require_known(token);
        const std::string & piece = shared_->vocab().pieces[static_cast<size_t>(token)];
        if (!waits()) {
            place_ = behind(place_, token, piece);
        } else if (const auto said = trigger_.listen(token, piece)) {
            GrammarPlace place = place_;
            for (const auto & [heard, text] : *said) {
                place = behind(place, heard, text);
            }
            place_ = place;
            trigger_.begun();
        }
        move_on();
    }

    void require_known(llama_token token) const {
        if (token < 0 || static_cast<size_t>(token) >= shared_->vocab().pieces.size()) {
            throw std::invalid_argument("there is no token " + std::to_string(token));
        }
    }

  private:
    GrammarPlace behind(const GrammarPlace & place, llama_token token, const std::string & text) {
        if (shared_->vocab().is_eog[static_cast<size_t>(token)]) {
            if (!reader_->may_end(place)) {
                throw std::runtime_error("the grammar does not allow the text to end here");
            }
            return place;
        }
        const GrammarPlace found = reader_->step(place, token, text);
        if (!found.alive()) {
            throw std::runtime_error("the grammar does not match what was accepted: " + text.substr(0, 60));
        }
        return found;
    }

    void move_on() {
        if (reader_->bytes() > most_bytes) {
            auto reader = shared_->reader();
            if (reader != reader_) {
                place_ = reader->adopt(*reader_, place_);
                reader_ = std::move(reader);
            }
        }
    }

    std::shared_ptr<Shared> shared_;
    GrammarTrigger trigger_;
    std::shared_ptr<GrammarReader> reader_;
    GrammarPlace place_;
};

GrammarSampler & of(const llama_sampler * sampler) { return *static_cast<GrammarSampler *>(sampler->ctx); }

const char * grammar_name(const llama_sampler *) { return "grammar"; }

void grammar_accept(llama_sampler * sampler, llama_token token) { of(sampler).accept(token); }

void grammar_apply(llama_sampler * sampler, llama_token_data_array * candidates) {
    GrammarSampler & grammar = of(sampler);
    if (grammar.waits()) {
        return;
    }
    constexpr size_t few = 16;
    const TokenMask * mask = candidates->size > few ? &grammar.mask() : nullptr;
    for (size_t i = 0; i < candidates->size; ++i) {
        llama_token_data & candidate = candidates->data[i];
        grammar.require_known(candidate.id);
        if (mask != nullptr ? !causerie::holds(*mask, candidate.id) : !grammar.allows(candidate.id)) {
            candidate.logit = -INFINITY;
        }
    }
    candidates->sorted = false;  // samplers behind would take the first logit for the largest
}

void grammar_reset(llama_sampler * sampler) { of(sampler).reset(); }

llama_sampler * grammar_clone(const llama_sampler * sampler);

void grammar_free(llama_sampler * sampler) { delete &of(sampler); }

// llama_sampler keeps a pointer to its interface, so this one lives as long as the module.
llama_sampler_i grammar_interface = [] {
    llama_sampler_i i = {};
    i.name = grammar_name;
    i.accept = grammar_accept;
    i.apply = grammar_apply;
    i.reset = grammar_reset;
    i.clone = grammar_clone;
    i.free = grammar_free;
    return i;
}();

llama_sampler * new_sampler(std::unique_ptr<GrammarSampler> grammar) {
    llama_sampler * sampler = llama_sampler_init(&grammar_interface, grammar.get());
    grammar.release();
    return sampler;
}

llama_sampler * grammar_clone(const llama_sampler * sampler) {
    return new_sampler(std::make_unique<GrammarSampler>(of(sampler)));
}

}  // namespace

namespace causerie {

bool is_grammar(const llama_sampler * sampler) { return sampler->iface == &grammar_interface; }
bool grammar_waits(const llama_sampler * sampler) { return of(sampler).waits(); }
const TokenMask & grammar_mask(llama_sampler * sampler) { return of(sampler).mask(); }

}  // namespace causerie

causerie_vocab_trie * causerie_vocab_trie_new(const llama_vocab * vocab) {
    return causerie_guarded<causerie_vocab_trie *>(
        __func__, [&] { return new causerie_vocab_trie{std::make_shared<const VocabTrie>(vocab)}; }, nullptr);
}

void causerie_vocab_trie_free(causerie_vocab_trie * trie) { delete trie; }

causerie_grammar * causerie_grammar_new(
    const causerie_vocab_trie * trie, const llama_vocab * vocab, const char * gbnf, const char * root, bool all_shown,
    const llama_token * shown, size_t n_shown) {
    return causerie_guarded<causerie_grammar *>(
        __func__,
        [&] {
            llama_grammar_parser parser(vocab);
            const auto found = parser.parse(gbnf) ? parser.symbol_ids.find(root) : parser.symbol_ids.end();
            if (found == parser.symbol_ids.end() || parser.rules.empty()) {
                throw std::invalid_argument("the grammar is malformed");
            }
            TokenMask hidden((trie->trie->pieces.size() + 63) / 64, 0);
            for (const llama_token token : all_shown ? std::vector<llama_token>{} : trie->trie->control) {
                if (std::find(shown, shown + n_shown, token) == shown + n_shown) {
                    causerie::add(hidden, token);
                }
            }
            return new causerie_grammar{
                std::make_shared<Shared>(Rules(parser.rules, found->second), trie->trie, std::move(hidden))};
        },
        nullptr);
}

void causerie_grammar_free(causerie_grammar * grammar) { delete grammar; }

llama_sampler * causerie_sampler_grammar(
    const causerie_grammar * grammar, bool lazy, const char ** patterns, size_t n_patterns, const llama_token * tokens,
    size_t n_tokens) {
    return causerie_guarded<llama_sampler *>(
        __func__,
        [&] {
            std::shared_ptr<GrammarTriggers> triggers;
            if (lazy) {
                triggers = std::make_shared<GrammarTriggers>();
                triggers->tokens.assign(tokens, tokens + n_tokens);
                for (size_t i = 0; i < n_patterns; ++i) {
                    triggers->patterns.push_back({patterns[i], std::regex(patterns[i])});
                }
            }
            return new_sampler(std::make_unique<GrammarSampler>(grammar->shared, std::move(triggers)));
        },
        nullptr);
}
