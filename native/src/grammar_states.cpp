// What may come next in a text that follows a grammar: see grammar_states.h.

#include "grammar_states.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

namespace causerie {

namespace {

constexpr StateId finished = 1;  // the empty stack alone
constexpr StateId unknown = UINT32_MAX;
constexpr uint32_t few_classes = 256;
constexpr uint64_t work_at_once = 2'000'000;  // some seconds at most
constexpr size_t bytes_at_once = size_t{128} * 1024 * 1024;
constexpr int max_depth = 1000;  // of recursion, some 300 kB of stack
constexpr size_t map_entry = 48;

uint64_t pair_key(uint32_t a, uint32_t b) { return uint64_t{a} << 32 | b; }

[[noreturn]] void refuse(const char * reason) {
    throw std::runtime_error(std::string("the grammar is too ambiguous: ") + reason);
}

}  // namespace

size_t GrammarStates::Hash::operator()(StateId id) const {
    uint64_t hash = 0;
    for (const Top & top : (*states)[id].tops) {
        hash = (hash ^ pair_key(top.symbol, top.rest)) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return static_cast<size_t>(hash);
}

GrammarStates::GrammarStates(std::shared_ptr<const Rules> rules)
    : rules_(std::move(rules)), known_(64, Hash{&states_}, Equal{&states_}) {
    allow_work();
    intern({});
    intern({{no_symbol, dead_state}});
}

void GrammarStates::allow_work() {
    budget_ = work_at_once;
    most_bytes_ = bytes_ + bytes_at_once;
}

void GrammarStates::spend(uint64_t work) {
    if (work > budget_) {
        refuse("a token would take too long");
    }
    budget_ -= work;
}

void GrammarStates::grow(size_t bytes) {
    if (bytes_ + bytes > most_bytes_) {
        refuse("a token would take too much memory");
    }
    bytes_ += bytes;
}

// The state with these tops, which are sorted.
StateId GrammarStates::intern(Tops tops) {
    const auto id = static_cast<StateId>(states_.size());
    const size_t size = sizeof(State) + tops.size() * sizeof(Top) + map_entry;
    const bool ends = !tops.empty() && tops.back().symbol == no_symbol;
    states_.push_back({std::move(tops), ends, unknown, {}});
    const auto [found, added] = known_.insert(id);
    if (!added) {
        const StateId existing = *found;
        states_.pop_back();
        return existing;
    }
    grow(size);
    return id;
}

// The same for any tops: those of one symbol become one.
StateId GrammarStates::merged(Tops tops, int depth) {
    std::sort(tops.begin(), tops.end());
    size_t kept = 0;
    for (const Top & top : tops) {
        if (kept == 0 || tops[kept - 1].symbol != top.symbol) {
            tops[kept++] = top;
        } else if (tops[kept - 1].rest != top.rest) {
            tops[kept - 1].rest = united(tops[kept - 1].rest, top.rest, depth + 1);
        }
    }
    tops.resize(kept);
    return intern(std::move(tops));
}

StateId GrammarStates::united(StateId a, StateId b, int depth) {
    if (a == b || b == dead_state) {
        return a;
    }
    if (a == dead_state) {
        return b;
    }
    if (depth > max_depth) {
        refuse("alternatives stay open too deep");
    }
    const uint64_t key = pair_key(std::min(a, b), std::max(a, b));
    const auto known = unions_.find(key);
    if (known != unions_.end()) {
        return known->second;
    }
    Tops tops = states_[a].tops;
    tops.insert(tops.end(), states_[b].tops.begin(), states_[b].tops.end());
    spend(tops.size());
    const StateId result = merged(std::move(tops), depth);
    grow(map_entry);
    unions_[key] = result;
    return result;
}

// What comes behind a symbol that was read.
void GrammarStates::push_behind(const Top & top, Tops & tops) const {
    const uint32_t next = rules_->symbol(top.symbol).next;
    if (next != no_symbol) {
        tops.push_back({next, top.rest});
    } else {
        tops.insert(tops.end(), states_[top.rest].tops.begin(), states_[top.rest].tops.end());
    }
}

StateId GrammarStates::closed(StateId id) {
    if (states_[id].closed != unknown) {
        return states_[id].closed;
    }
    Tops found;
    Tops todo = states_[id].tops;
    std::set<Top> seen;
    while (!todo.empty()) {
        spend(todo.size());
        // What follows a rule is put together first: its alternatives are then looked at once for all.
        std::map<uint32_t, Tops> behind;
        for (const Top & top : todo) {
            if (top.symbol == no_symbol || rules_->symbol(top.symbol).kind != Symbol::rule) {
                found.push_back(top);
            } else if (seen.insert(top).second) {
                push_behind(top, behind[rules_->symbol(top.symbol).value]);
            }
        }
        todo.clear();
        for (auto & [rule, tops] : behind) {
            const StateId rest = merged(std::move(tops));
            for (const uint32_t start : rules_->alternatives(rule)) {
                if (start != no_symbol) {
                    todo.push_back({start, rest});
                } else {
                    todo.insert(todo.end(), states_[rest].tops.begin(), states_[rest].tops.end());
                }
            }
        }
    }
    const StateId result = merged(std::move(found));
    states_[id].closed = result;
    states_[result].closed = result;
    return result;
}

StateId GrammarStates::start() {
    Tops tops;
    for (const uint32_t start : rules_->alternatives(rules_->root())) {
        tops.push_back(start == no_symbol ? Top{no_symbol, dead_state} : Top{start, finished});
    }
    return closed(merged(std::move(tops)));
}

StateId GrammarStates::next(StateId id, uint32_t char_class) {
    if (rules_->n_classes() > few_classes) {
        const uint64_t key = pair_key(id, char_class);
        const auto known = transitions_.find(key);
        if (known != transitions_.end()) {
            return known->second;
        }
        const StateId result = compute_next(id, char_class);
        grow(map_entry);
        return transitions_[key] = result;
    }
    if (states_[id].next.empty()) {
        grow(rules_->n_classes() * sizeof(StateId));
        states_[id].next.assign(rules_->n_classes(), unknown);
    }
    if (states_[id].next[char_class] == unknown) {
        const StateId result = compute_next(id, char_class);
        states_[id].next[char_class] = result;
    }
    return states_[id].next[char_class];
}

StateId GrammarStates::compute_next(StateId id, uint32_t char_class) {
    Tops tops;
    spend(1 + states_[id].tops.size());
    for (const Top & top : states_[id].tops) {
        if (top.symbol != no_symbol) {
            const Symbol & symbol = rules_->symbol(top.symbol);
            if (symbol.kind == Symbol::chars && rules_->has(symbol.value, char_class, char_class)) {
                push_behind(top, tops);
            }
        }
    }
    return tops.empty() ? dead_state : closed(merged(std::move(tops)));
}

StateId GrammarStates::behind_token(StateId id, llama_token token, bool only_named) {
    Tops tops;
    for (const Top & top : states_[id].tops) {
        if (top.symbol != no_symbol) {
            const Symbol & symbol = rules_->symbol(top.symbol);
            const bool named = symbol.value == static_cast<uint32_t>(token);
            if (symbol.kind == Symbol::token ? named : symbol.kind == Symbol::not_token && !named && !only_named) {
                push_behind(top, tops);
            }
        }
    }
    return tops.empty() ? dead_state : closed(merged(std::move(tops)));
}

bool GrammarStates::takes(StateId id, uint32_t first, uint32_t last) const {
    const uint32_t low = rules_->class_of(first);
    const uint32_t high = rules_->class_of(last);
    return std::any_of(states_[id].tops.begin(), states_[id].tops.end(), [&](const Top & top) {
        if (top.symbol == no_symbol) {
            return false;
        }
        const Symbol & symbol = rules_->symbol(top.symbol);
        return symbol.kind == Symbol::chars && rules_->has(symbol.value, low, high);
    });
}

StateId GrammarStates::adopt(const GrammarStates & other, StateId id) {
    // What follows a symbol was made before the state that it is in, and has a smaller number.
    std::set<StateId, std::greater<>> needed = {id};
    for (auto it = needed.begin(); it != needed.end(); ++it) {
        for (const Top & top : other.states_[*it].tops) {
            needed.insert(top.rest);
        }
    }
    std::unordered_map<StateId, StateId> ours;
    for (auto it = needed.rbegin(); it != needed.rend(); ++it) {
        Tops tops = other.states_[*it].tops;
        for (Top & top : tops) {
            top.rest = ours.at(top.rest);
        }
        std::sort(tops.begin(), tops.end());
        ours[*it] = intern(std::move(tops));
    }
    const StateId adopted = ours.at(id);
    states_[adopted].closed = adopted;
    return adopted;
}

}  // namespace causerie
