// What a grammar allows of a vocabulary's tokens, each place in a text computed once.

#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar_states.h"
#include "vocab_trie.h"

namespace causerie {

// A place in a text: a state, and the beginning of a character in UTF-8.
struct GrammarPlace {
    StateId state = dead_state;
    uint32_t character = 0;  // the bits so far
    uint8_t missing = 0;     // bytes of it that are missing
    uint8_t length = 0;      // bytes that it has
    bool alive() const { return state != dead_state; }
};

// One bit for each token.
using TokenMask = std::vector<uint64_t>;

inline bool holds(const TokenMask & mask, llama_token token) {
    return (mask[static_cast<size_t>(token) / 64] >> (static_cast<size_t>(token) % 64) & 1) != 0;
}

inline void add(TokenMask & mask, llama_token token) {
    mask[static_cast<size_t>(token) / 64] |= uint64_t{1} << (static_cast<size_t>(token) % 64);
}

// Thread-safe. Calls throw where the grammar is too ambiguous (grammar_states.h); nothing has changed then.
class GrammarReader {
  public:
    // hidden: tokens whose text never counts; they are allowed only where the grammar names them as tokens.
    GrammarReader(
        std::shared_ptr<const Rules> rules, std::shared_ptr<const VocabTrie> vocab,
        std::shared_ptr<const TokenMask> hidden);

    GrammarPlace start();
    // Behind a token, or behind a part of its text; not alive if it is not allowed, as those that end a turn are not.
    GrammarPlace step(const GrammarPlace & place, llama_token token, const std::string & text);
    bool allows(const GrammarPlace & place, llama_token token);
    // Valid as long as this object.
    const TokenMask & mask(const GrammarPlace & place);
    bool may_end(const GrammarPlace & place);
    // A place of another object for the same grammar.
    GrammarPlace adopt(GrammarReader & other, const GrammarPlace & place);
    size_t bytes() const { return states_.bytes(); }

  private:
    GrammarPlace stepped(const GrammarPlace & place, llama_token token, const std::string & text);
    bool ends(const GrammarPlace & place) const { return place.missing == 0 && states_.ends(place.state); }
    TokenMask computed(const GrammarPlace & place);
    void add_tokens(StateId state, TokenMask & mask) const;
    bool read(GrammarPlace & place, const std::string & text);
    bool read_byte(GrammarPlace & place, uint8_t byte);
    bool read_character(GrammarPlace & place);

    std::mutex mutex_;
    GrammarStates states_;
    std::shared_ptr<const VocabTrie> vocab_;
    std::shared_ptr<const TokenMask> hidden_;
    std::unordered_map<uint64_t, TokenMask> masks_;
};

}  // namespace causerie
