// The texts of a vocabulary's tokens as a trie: see vocab_trie.h.

#include "vocab_trie.h"

#include <algorithm>
#include <stdexcept>

namespace {

constexpr size_t longest = UINT16_MAX;  // of a text, as depths are 16 bits wide; no real token comes near

std::string piece_of(const llama_vocab * vocab, llama_token token) {
    std::string text(32, '\0');
    for (;;) {
        const int32_t n =
            llama_token_to_piece(vocab, token, text.data(), static_cast<int32_t>(text.size()), 0, true);
        if (n >= 0) {
            text.resize(static_cast<size_t>(n));
            return text;
        }
        text.resize(static_cast<size_t>(-static_cast<int64_t>(n)));
    }
}

size_t common_prefix(const std::string & a, const std::string & b) {
    const auto ends = std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin());
    return static_cast<size_t>(ends.first - a.begin());
}

}  // namespace

namespace causerie {

VocabTrie::VocabTrie(const llama_vocab * vocab) {
    const int32_t n = llama_vocab_n_tokens(vocab);
    pieces.reserve(static_cast<size_t>(n));
    is_eog.resize(static_cast<size_t>(n));
    for (llama_token token = 0; token < n; ++token) {
        pieces.push_back(piece_of(vocab, token));
        if ((llama_vocab_get_attr(vocab, token) & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) != 0) {
            control.push_back(token);
        }
        std::string & piece = pieces.back();
        if (piece.size() > longest || (!piece.empty() && piece[0] == '\0')) {
            piece.clear();  // llama.cpp's grammars know no NUL either
        }
        if (llama_vocab_is_eog(vocab, token)) {
            is_eog[static_cast<size_t>(token)] = true;
            eog.push_back(token);
        } else if (!piece.empty()) {
            tokens.push_back(token);
        }
    }
    const auto text = [&](llama_token token) -> const std::string & { return pieces[static_cast<size_t>(token)]; };
    std::sort(tokens.begin(), tokens.end(), [&](llama_token a, llama_token b) {
        const int order = text(a).compare(text(b));
        return order != 0 ? order < 0 : a < b;
    });
    std::vector<uint32_t> path;  // nodes from the root to the last one
    for (size_t i = 0; i < tokens.size(); ++i) {
        const std::string & piece = text(tokens[i]);
        const size_t shared = i == 0 ? 0 : common_prefix(piece, text(tokens[i - 1]));
        for (size_t open = path.size(); open > shared; --open) {
            nodes[path[open - 1]].end = static_cast<uint32_t>(nodes.size());
        }
        path.resize(shared);
        for (size_t at = shared; at < piece.size(); ++at) {
            path.push_back(static_cast<uint32_t>(nodes.size()));
            nodes.push_back({0, 0, 0, static_cast<uint16_t>(at + 1), static_cast<uint8_t>(piece[at])});
        }
        TrieNode & node = nodes[path.back()];
        node.first = node.count == 0 ? static_cast<uint32_t>(i) : node.first;
        ++node.count;
        depth = std::max(depth, static_cast<uint32_t>(piece.size()));
    }
    for (const uint32_t open : path) {
        nodes[open].end = static_cast<uint32_t>(nodes.size());
    }
}

}  // namespace causerie
