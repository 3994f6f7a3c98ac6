// A grammar's rules, compiled from what llama.cpp's GBNF parser makes of them.

#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "llama-grammar.h"

namespace causerie {

constexpr uint32_t no_symbol = UINT32_MAX;

struct Symbol {
    enum Kind : uint8_t { chars, token, not_token, rule };
    Kind kind;
    uint32_t value;  // set of characters, token id, or rule
    uint32_t next;   // the symbol behind it in its alternative, or no_symbol
};

// Characters fall into classes that no rule tells apart; sets of characters are sets of classes. Immutable.
class Rules {
  public:
    Rules(const llama_grammar_rules & rules, uint32_t root);

    const Symbol & symbol(uint32_t index) const { return symbols_[index]; }
    // Where the alternatives of a rule begin; no_symbol: an empty one.
    const std::vector<uint32_t> & alternatives(uint32_t rule) const { return alternatives_[rule]; }
    uint32_t root() const { return root_; }
    uint32_t n_classes() const { return static_cast<uint32_t>(starts_.size()); }
    uint32_t class_of(uint32_t character) const { return character < 128 ? ascii_[character] : search(character); }
    // Whether a set has one of the classes first..last.
    bool has(uint32_t set, uint32_t first, uint32_t last) const;

  private:
    using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;  // from, and behind the last

    size_t add_alternative(const llama_grammar_rule & rule, size_t begin, std::vector<Ranges> & sets);
    void classify(const std::vector<Ranges> & sets);
    uint32_t search(uint32_t character) const;

    std::vector<Symbol> symbols_;
    std::vector<std::vector<uint32_t>> alternatives_;
    std::vector<uint32_t> starts_;  // the first character of each class, in order
    std::vector<Ranges> sets_;      // of classes, ascending
    std::array<uint32_t, 128> ascii_{};
    uint32_t root_;
};

}  // namespace causerie
