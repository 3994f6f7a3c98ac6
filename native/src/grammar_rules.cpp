// A grammar's rules: see grammar_rules.h.

#include "grammar_rules.h"

#include <algorithm>
#include <map>
#include <stdexcept>

namespace {

constexpr uint32_t behind_unicode = 0x110000;

using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;

bool ends(const llama_grammar_element & element) {
    return element.type == LLAMA_GRETYPE_END || element.type == LLAMA_GRETYPE_ALT;
}

// Ascending, none of them empty or touching another.
Ranges tidy(Ranges ranges) {
    std::sort(ranges.begin(), ranges.end());
    Ranges out;
    for (const auto & [from, behind] : ranges) {
        if (from >= behind) {
            continue;
        }
        if (!out.empty() && from <= out.back().second) {
            out.back().second = std::max(out.back().second, behind);
        } else {
            out.emplace_back(from, behind);
        }
    }
    return out;
}

Ranges all_but(const Ranges & ranges) {
    Ranges out;
    uint32_t from = 0;
    for (const auto & range : ranges) {
        if (from < range.first) {
            out.emplace_back(from, range.first);
        }
        from = range.second;
    }
    if (from < behind_unicode) {
        out.emplace_back(from, behind_unicode);
    }
    return out;
}

// The characters of the element at `at`, which moves behind all that belongs to it.
Ranges read_chars(const llama_grammar_rule & rule, size_t & at) {
    const auto behind = [](uint32_t last) { return last < behind_unicode ? last + 1 : behind_unicode; };
    const auto type = rule[at].type;
    if (type == LLAMA_GRETYPE_CHAR_ANY) {
        ++at;
        return {{0, behind_unicode}};
    }
    Ranges ranges;
    do {
        const uint32_t from = rule[at++].value;
        const bool range = rule.at(at).type == LLAMA_GRETYPE_CHAR_RNG_UPPER;
        ranges.emplace_back(from, behind(range ? rule[at++].value : from));
    } while (rule.at(at).type == LLAMA_GRETYPE_CHAR_ALT);
    ranges = tidy(std::move(ranges));
    return type == LLAMA_GRETYPE_CHAR_NOT ? all_but(ranges) : ranges;
}

}  // namespace

namespace causerie {

Rules::Rules(const llama_grammar_rules & rules, uint32_t root) : root_(root) {
    std::vector<Ranges> sets;
    for (const auto & rule : rules) {
        alternatives_.emplace_back();
        for (size_t at = 0; at < rule.size(); ++at) {
            at = add_alternative(rule, at, sets);
        }
    }
    classify(sets);
}

// Reads from `begin` to what ends the alternative, and tells where that is.
size_t Rules::add_alternative(const llama_grammar_rule & rule, size_t begin, std::vector<Ranges> & sets) {
    uint32_t last = no_symbol;
    alternatives_.back().push_back(no_symbol);
    size_t at = begin;
    while (!ends(rule.at(at))) {
        Symbol symbol = {Symbol::chars, rule[at].value, no_symbol};
        switch (rule[at].type) {
            case LLAMA_GRETYPE_RULE_REF: symbol.kind = Symbol::rule; break;
            case LLAMA_GRETYPE_TOKEN: symbol.kind = Symbol::token; break;
            case LLAMA_GRETYPE_TOKEN_NOT: symbol.kind = Symbol::not_token; break;
            case LLAMA_GRETYPE_CHAR:
            case LLAMA_GRETYPE_CHAR_NOT:
            case LLAMA_GRETYPE_CHAR_ANY: break;
            default: throw std::runtime_error("unknown element in a grammar");
        }
        if (symbol.kind == Symbol::chars) {
            symbol.value = static_cast<uint32_t>(sets.size());
            sets.push_back(read_chars(rule, at));
            if (sets.size() > 1 && sets.back() == sets[sets.size() - 2]) {  // as in a symbol that is repeated
                sets.pop_back();
                --symbol.value;
            }
        } else {
            ++at;
        }
        const auto index = static_cast<uint32_t>(symbols_.size());
        symbols_.push_back(symbol);
        (last == no_symbol ? alternatives_.back().back() : symbols_[last].next) = index;
        last = index;
    }
    return at;
}

void Rules::classify(const std::vector<Ranges> & sets) {
    std::map<Ranges, uint32_t> known;
    std::vector<uint32_t> numbers;
    starts_.push_back(0);
    for (const Ranges & set : sets) {
        const auto [entry, added] = known.emplace(set, static_cast<uint32_t>(known.size()));
        numbers.push_back(entry->second);
        for (const auto & [from, behind] : added ? set : Ranges{}) {
            starts_.insert(starts_.end(), {from, behind});
        }
    }
    std::sort(starts_.begin(), starts_.end());
    starts_.erase(std::unique(starts_.begin(), starts_.end()), starts_.end());
    if (starts_.back() == behind_unicode) {
        starts_.pop_back();
    }
    for (uint32_t c = 0; c < ascii_.size(); ++c) {
        ascii_[c] = search(c);
    }
    sets_.resize(known.size());
    for (const auto & [set, number] : known) {
        for (const auto & [from, behind] : set) {
            sets_[number].emplace_back(search(from), behind < behind_unicode ? search(behind) : n_classes());
        }
    }
    for (Symbol & symbol : symbols_) {
        symbol.value = symbol.kind == Symbol::chars ? numbers[symbol.value] : symbol.value;
    }
}

uint32_t Rules::search(uint32_t character) const {
    return static_cast<uint32_t>(std::upper_bound(starts_.begin(), starts_.end(), character) - starts_.begin()) - 1;
}

bool Rules::has(uint32_t set, uint32_t first, uint32_t last) const {
    const Ranges & ranges = sets_[set];
    const auto above = std::upper_bound(
        ranges.begin(), ranges.end(), last, [](uint32_t value, const auto & range) { return value < range.first; });
    return above != ranges.begin() && std::prev(above)->second > first;
}

}  // namespace causerie
