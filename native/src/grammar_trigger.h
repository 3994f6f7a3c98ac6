// When llama.cpp's lazy grammars begin, and with what.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "llama-grammar.h"

namespace causerie {

struct GrammarTriggers {
    std::vector<llama_token> tokens;
    std::vector<llama_grammar_trigger_pattern> patterns;
};

// Remembers all that was read, and searches it at every token, as llama.cpp does.
class GrammarTrigger {
  public:
    using Said = std::vector<std::pair<llama_token, std::string>>;  // the first may be a part of its token's text

    // null: there is nothing to wait for.
    explicit GrammarTrigger(std::shared_ptr<const GrammarTriggers> triggers) : triggers_(std::move(triggers)) { reset(); }

    void reset();
    bool waits() const { return waits_; }
    // Reads on. Once a trigger has come: what the grammar is to begin with; call begun() when it has.
    std::optional<Said> listen(llama_token token, const std::string & piece);
    void begun();

  private:
    std::shared_ptr<const GrammarTriggers> triggers_;
    bool waits_ = false;
    std::string text_;
    std::vector<std::pair<llama_token, size_t>> heard_;  // its tokens, and where they begin
};

}  // namespace causerie
