// What may come next in a text that follows a grammar, as states of an automaton that is made while it is used.
//
// Behind each character a parser knows a set of stacks of symbols that are still to come. Stacks that begin alike are
// kept together: a state is a list of first symbols, each with the set of what follows it, itself a state. Equal states
// have the same number. An ambiguous grammar thus needs few states for very many stacks, and a step is a look-up once it
// has been taken before.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grammar_rules.h"
#include "llama.h"

namespace causerie {

using StateId = uint32_t;

constexpr StateId dead_state = 0;  // nothing may come: what was read does not follow the grammar

// Not thread-safe, except for bytes(). What takes work throws where that is more than allow_work() has allowed: the
// grammar is too ambiguous. All is as it was then, and may be asked again.
class GrammarStates {
  public:
    explicit GrammarStates(std::shared_ptr<const Rules> rules);

    void allow_work();
    StateId start();
    StateId next(StateId id, uint32_t char_class);
    // Behind a symbol that stands for this token: by its name, or (unless only_named) as one that another is not.
    StateId behind_token(StateId id, llama_token token, bool only_named);
    // What leads on from either; both must have come from here.
    StateId either(StateId a, StateId b) { return closed(united(a, b, 0)); }

    bool ends(StateId id) const { return states_[id].ends; }
    // Whether a character of first..last may come next.
    bool takes(StateId id, uint32_t first, uint32_t last) const;
    // Calls visit(symbol) for each symbol that stands for a token.
    template <class Visit> void visit_tokens(StateId id, Visit && visit) const {
        for (const Top & top : states_[id].tops) {
            const Symbol::Kind kind = top.symbol == no_symbol ? Symbol::chars : rules_->symbol(top.symbol).kind;
            if (kind == Symbol::token || kind == Symbol::not_token) {
                visit(rules_->symbol(top.symbol));
            }
        }
    }
    const Rules & rules() const { return *rules_; }

    // A state of another object for the same rules.
    StateId adopt(const GrammarStates & other, StateId id);
    // The memory that it takes, and what is told to it with grow().
    size_t bytes() const { return bytes_; }
    void grow(size_t bytes);

  private:
    struct Top {
        uint32_t symbol;  // no_symbol: the end of the text
        StateId rest;
        bool operator==(const Top & other) const { return symbol == other.symbol && rest == other.rest; }
        bool operator<(const Top & other) const {
            return symbol != other.symbol ? symbol < other.symbol : rest < other.rest;
        }
    };
    using Tops = std::vector<Top>;
    struct State {
        Tops tops;                  // sorted; each symbol once
        bool ends = false;          // whether the text may end here
        StateId closed;             // with symbols that are rules replaced by what they begin with
        std::vector<StateId> next;  // by class of characters, if there are few
    };
    struct Hash {
        const std::vector<State> * states;
        size_t operator()(StateId id) const;
    };
    struct Equal {
        const std::vector<State> * states;
        bool operator()(StateId a, StateId b) const { return (*states)[a].tops == (*states)[b].tops; }
    };

    StateId intern(Tops tops);
    StateId merged(Tops tops, int depth = 0);
    StateId united(StateId a, StateId b, int depth);
    StateId closed(StateId id);
    StateId compute_next(StateId id, uint32_t char_class);
    void push_behind(const Top & top, Tops & tops) const;
    void spend(uint64_t work);

    std::shared_ptr<const Rules> rules_;
    std::vector<State> states_;
    std::unordered_set<StateId, Hash, Equal> known_;
    std::unordered_map<uint64_t, StateId> unions_;
    std::unordered_map<uint64_t, StateId> transitions_;  // where there are many classes
    std::atomic<size_t> bytes_{0};
    size_t most_bytes_ = 0;
    uint64_t budget_ = 0;
};

}  // namespace causerie
