// The texts of a vocabulary's tokens as a trie, for asking a grammar about all of them at once.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "llama.h"

namespace causerie {

struct TrieNode {
    uint32_t end;    // index behind the nodes below this one
    uint32_t first;  // place in `tokens` of those whose text ends here
    uint32_t count;  // how many they are
    uint16_t depth;  // bytes from the root, from 1
    uint8_t byte;    // the last of them
};

// Nodes are in the order of a depth-first walk: to leave a branch out is to go on at its `end`. Immutable.
struct VocabTrie {
    std::vector<TrieNode> nodes;
    std::vector<llama_token> tokens;      // those with a text, in its order
    std::vector<std::string> pieces;      // by token; "": none that a grammar could read
    std::vector<llama_token> eog;         // tokens that end a turn: not in the trie
    std::vector<bool> is_eog;             // by token
    std::vector<llama_token> control;     // tokens that a text for people does not show
    uint32_t depth = 0;                   // bytes of the longest text

    explicit VocabTrie(const llama_vocab * vocab);
};

}  // namespace causerie
