// When llama.cpp's lazy grammars begin: see grammar_trigger.h.

#include "grammar_trigger.h"

#include <algorithm>

namespace causerie {

void GrammarTrigger::reset() {
    begun();
    waits_ = triggers_ != nullptr;
}

void GrammarTrigger::begun() {
    waits_ = false;
    text_.clear();
    heard_.clear();
}

std::optional<GrammarTrigger::Said> GrammarTrigger::listen(llama_token token, const std::string & piece) {
    const auto & tokens = triggers_->tokens;
    if (std::find(tokens.begin(), tokens.end(), token) != tokens.end()) {
        return Said{{token, piece}};
    }
    heard_.emplace_back(token, text_.size());
    text_ += piece;
    for (const auto & pattern : triggers_->patterns) {
        const size_t start = pattern.find(text_);
        if (start == std::string::npos) {
            continue;
        }
        Said said;
        for (size_t i = 0; i < heard_.size(); ++i) {
            const size_t end = i + 1 < heard_.size() ? heard_[i + 1].second : text_.size();
            const size_t begin = std::max(heard_[i].second, start);
            if (begin < end) {
                said.emplace_back(heard_[i].first, text_.substr(begin, end - begin));
            }
        }
        return said;
    }
    return std::nullopt;
}

}  // namespace causerie
