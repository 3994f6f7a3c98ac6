// What a grammar allows of a vocabulary's tokens: see grammar_reader.h.

#include "grammar_reader.h"

#include <algorithm>
#include <utility>

namespace causerie {

GrammarReader::GrammarReader(
    std::shared_ptr<const Rules> rules, std::shared_ptr<const VocabTrie> vocab, std::shared_ptr<const TokenMask> hidden)
    : states_(std::move(rules)), vocab_(std::move(vocab)), hidden_(std::move(hidden)) {}

GrammarPlace GrammarReader::start() {
    const std::lock_guard<std::mutex> lock(mutex_);
    states_.allow_work();
    GrammarPlace place;
    place.state = states_.start();
    return place;
}

GrammarPlace GrammarReader::step(const GrammarPlace & place, llama_token token, const std::string & text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return stepped(place, token, text);
}

bool GrammarReader::may_end(const GrammarPlace & place) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ends(place);
}

bool GrammarReader::allows(const GrammarPlace & place, llama_token token) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto index = static_cast<size_t>(token);
    return vocab_->is_eog[index] ? ends(place) : stepped(place, token, vocab_->pieces[index]).alive();
}

GrammarPlace GrammarReader::adopt(GrammarReader & other, const GrammarPlace & place) {
    const std::scoped_lock lock(mutex_, other.mutex_);
    states_.allow_work();
    GrammarPlace adopted = place;
    adopted.state = states_.adopt(other.states_, place.state);
    return adopted;
}

const TokenMask & GrammarReader::mask(const GrammarPlace & place) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t key =
        uint64_t{place.state} << 32 | place.character | uint32_t{place.missing} << 22 | uint32_t{place.length} << 24;
    const auto known = masks_.find(key);
    return known != masks_.end() ? known->second : masks_.emplace(key, computed(place)).first->second;
}

GrammarPlace GrammarReader::stepped(const GrammarPlace & place, llama_token token, const std::string & text) {
    if (text.empty()) {
        return {};
    }
    states_.allow_work();
    const bool hidden = holds(*hidden_, token);
    GrammarPlace by_text = place;
    if (hidden || !read(by_text, text)) {
        by_text = {};
    }
    GrammarPlace by_name;
    if (place.missing == 0) {
        by_name.state = states_.behind_token(place.state, token, hidden);
    }
    // Where both lead on, both are possible; a character that is not complete yet is given up.
    if (by_name.alive() && by_text.alive() && by_text.missing == 0) {
        by_name.state = states_.either(by_name.state, by_text.state);
    }
    return by_name.alive() ? by_name : by_text;
}

// What a walk through the trie finds, and what the grammar names.
TokenMask GrammarReader::computed(const GrammarPlace & place) {
    states_.allow_work();
    TokenMask mask(hidden_->size(), 0);
    states_.grow(mask.size() * sizeof(uint64_t));
    std::vector<GrammarPlace> path(vocab_->depth + 1);
    path[0] = place;
    const auto & nodes = vocab_->nodes;
    for (uint32_t i = 0; i < nodes.size();) {
        const TrieNode & node = nodes[i];
        GrammarPlace & here = path[node.depth];
        here = path[node.depth - 1u];
        if (!read_byte(here, node.byte)) {
            i = node.end;
            continue;
        }
        for (uint32_t k = 0; k < node.count; ++k) {
            add(mask, vocab_->tokens[node.first + k]);
        }
        ++i;
    }
    for (size_t word = 0; word < mask.size(); ++word) {
        mask[word] &= ~(*hidden_)[word];
    }
    if (place.missing == 0) {
        add_tokens(place.state, mask);
    }
    if (ends(place)) {
        for (const llama_token token : vocab_->eog) {
            add(mask, token);
        }
    }
    return mask;
}

void GrammarReader::add_tokens(StateId state, TokenMask & mask) const {
    states_.visit_tokens(state, [&](const Symbol & symbol) {
        const auto named = static_cast<llama_token>(symbol.value);
        for (const llama_token token : vocab_->tokens) {
            if (symbol.kind == Symbol::token ? token == named : token != named && !holds(*hidden_, token)) {
                add(mask, token);
            }
        }
    });
}

bool GrammarReader::read(GrammarPlace & place, const std::string & text) {
    return std::all_of(
        text.begin(), text.end(), [&](char byte) { return read_byte(place, static_cast<uint8_t>(byte)); });
}

// Moves on by one byte; false if that is not possible, or cannot become valid UTF-8 any more.
bool GrammarReader::read_byte(GrammarPlace & place, uint8_t byte) {
    if (place.missing > 0) {
        if ((byte & 0xC0) != 0x80) {
            return false;
        }
        --place.missing;
        place.character = place.character << 6 | (byte & 0x3F);
        return read_character(place);
    }
    if (byte < 0x80) {
        place.state = states_.next(place.state, states_.rules().class_of(byte));
        return place.alive();
    }
    if (byte < 0xC2 || byte > 0xF4) {
        return false;
    }
    place.length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    place.missing = static_cast<uint8_t>(place.length - 1);
    place.character = byte & (0x3Fu >> place.missing);
    return read_character(place);
}

// With a character of several bytes, of which some may be missing: whether it can become one that may come.
bool GrammarReader::read_character(GrammarPlace & place) {
    static constexpr uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const uint32_t bits = 6u * place.missing;
    const uint32_t low = std::max(place.character << bits, smallest[place.length]);
    const uint32_t high = std::min((place.character << bits) + ((1u << bits) - 1), uint32_t{0x10FFFF});
    if (low > high || (low >= 0xD800 && high <= 0xDFFF)) {
        return false;
    }
    if (place.missing > 0) {
        return states_.takes(place.state, low, high);
    }
    place.state = states_.next(place.state, states_.rules().class_of(place.character));
    place.character = 0;
    place.length = 0;
    return place.alive();
}

}  // namespace causerie
