// A grammar that begins once a text came, while what is generated around thinking stays free.
//
// llama.cpp's lazy grammars search all text so far at every token, with std::regex, also inside of thinking, and fail
// behind a token that ends beyond its trigger with something that the grammar does not allow. Here only the end of the
// text is kept, as much as a trigger can have, and such a token is excluded before it is chosen.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "causerie.h"
#include "grammar_sampler.h"
#include "guard.h"

namespace {

constexpr size_t nowhere = std::string::npos;

std::string piece_of(const llama_vocab * vocab, llama_token token) {
    std::string piece(16, '\0');
    int32_t size = llama_token_to_piece(vocab, token, piece.data(), static_cast<int32_t>(piece.size()), 0, true);
    if (size < 0) {
        piece.resize(static_cast<size_t>(-size));
        size = llama_token_to_piece(vocab, token, piece.data(), static_cast<int32_t>(piece.size()), 0, true);
    }
    piece.resize(static_cast<size_t>(std::max(size, 0)));
    return piece;
}

struct Triggers {
    const llama_vocab * vocab = nullptr;
    std::vector<std::string> words;
    std::vector<std::regex> patterns;
    std::string opening;               // of a section in which nothing triggers; "": there is none
    std::vector<std::string> closings;  // of such a section
    size_t window = 1;                 // bytes that must be kept to find what is not complete yet
    bool inside = false;               // whether the text begins in such a section
};

// What was read so far, as far as it matters.
struct Heard {
    std::string tail;      // the last bytes
    bool whole = true;     // whether they are all there were
    bool inside = false;   // whether they are in a section in which nothing triggers
};

// The first of several texts, and its length.
std::pair<size_t, size_t> first_of(const std::string & text, size_t from, const std::vector<std::string> & words) {
    std::pair<size_t, size_t> best{nowhere, 0};
    for (const std::string & word : words) {
        const size_t place = text.find(word, from);
        if (place < best.first) {
            best = {place, word.size()};
        }
    }
    return best;
}

size_t first_match(const std::string & text, size_t from, bool whole, const std::vector<std::regex> & patterns) {
    size_t best = nowhere;
    auto flags = std::regex_constants::match_default;
    if (!whole || from > 0) {
        flags |= std::regex_constants::match_not_bol;
    }
    for (const std::regex & pattern : patterns) {
        std::smatch found;
        const auto begin = text.cbegin() + static_cast<std::ptrdiff_t>(from);
        if (std::regex_search(begin, text.cend(), found, pattern, flags)) {
            // From the first group that matched on, as in llama.cpp.
            const auto group = std::find_if(
                found.begin() + (found.size() > 1 ? 1 : 0), found.end(),
                [](const std::ssub_match & part) { return part.matched && part.length() > 0; });
            const auto start = group != found.end() ? group->first : found[0].first;
            best = std::min(best, static_cast<size_t>(start - text.cbegin()));
        }
    }
    return best;
}

// Reads on. Returns where in heard.tail a trigger begins; otherwise nowhere, and heard.tail is cut to what is needed.
size_t read(Heard & heard, const std::string & piece, const Triggers & triggers) {
    heard.tail += piece;
    size_t from = 0;
    while (true) {
        if (heard.inside) {
            const size_t end = first_of(heard.tail, from, triggers.closings).first;
            if (end == nowhere) {
                break;
            }
            heard.inside = false;
            from = end;  // what ends the section may be a trigger itself
        }
        const size_t trigger = std::min(
            first_of(heard.tail, from, triggers.words).first,
            first_match(heard.tail, from, heard.whole, triggers.patterns));
        const size_t opening = triggers.opening.empty() ? nowhere : heard.tail.find(triggers.opening, from);
        if (trigger < nowhere && trigger <= opening) {
            return trigger;
        }
        if (opening == nowhere) {
            break;
        }
        heard.inside = true;
        from = opening + triggers.opening.size();
    }
    const size_t kept = std::min(heard.tail.size() - from, triggers.window);
    heard.whole = heard.whole && kept == heard.tail.size();
    heard.tail.erase(0, heard.tail.size() - kept);
    return nowhere;
}

// Lets a grammar have a text, by tokens that say it.
void spell(llama_sampler * grammar, const llama_vocab * vocab, const std::string & text) {
    const int32_t n = llama_vocab_n_tokens(vocab);
    size_t place = 0;
    while (place < text.size()) {
        llama_token best = LLAMA_TOKEN_NULL;
        size_t length = 0;
        for (llama_token token = 0; token < n; ++token) {
            const std::string piece = piece_of(vocab, token);
            if (piece.size() > length && !llama_vocab_is_eog(vocab, token) &&
                text.compare(place, piece.size(), piece) == 0) {
                best = token;
                length = piece.size();
            }
        }
        if (best == LLAMA_TOKEN_NULL) {
            throw std::runtime_error("no tokens of this vocabulary say: " + text.substr(place, 60));
        }
        llama_sampler_accept(grammar, best);
        place += length;
    }
}

struct Freed {
    void operator()(llama_sampler * sampler) const { llama_sampler_free(sampler); }
};
using Owned = std::unique_ptr<llama_sampler, Freed>;

class Lazy {
  public:
    Lazy(Owned grammar, std::shared_ptr<const Triggers> triggers)
        : grammar_(std::move(grammar)), triggers_(std::move(triggers)) {
        listen();
    }
    Lazy(const Lazy & other)
        : grammar_(llama_sampler_clone(other.grammar_.get())), triggers_(other.triggers_), heard_(other.heard_),
          tokens_(other.tokens_), waits_(other.waits_) {}
    Lazy & operator=(const Lazy &) = delete;

    void reset() {
        llama_sampler_reset(grammar_.get());
        listen();
    }

    void accept(llama_token token) {
        if (!waits_) {
            llama_sampler_accept(grammar_.get(), token);
            return;
        }
        if (llama_vocab_is_eog(triggers_->vocab, token)) {
            return;
        }
        const std::string piece = piece_of(triggers_->vocab, token);
        Heard heard = heard_;
        const size_t start = read(heard, piece, *triggers_);
        tokens_.emplace_back(token, piece.size());
        if (start == nowhere) {
            heard_ = std::move(heard);
            forget();
            return;
        }
        begin(grammar_.get(), heard.tail, start, tokens_);
        waits_ = false;
        tokens_.clear();
        heard_ = {};
    }

    void apply(llama_token_data_array * candidates) {
        if (!waits_) {
            llama_sampler_apply(grammar_.get(), candidates);
            return;
        }
        for (size_t i = 0; i < candidates->size; ++i) {
            llama_token_data & candidate = candidates->data[i];
            if (candidate.logit > -INFINITY && !allows(candidate.id)) {
                candidate.logit = -INFINITY;
                candidates->sorted = false;
            }
        }
    }

    llama_sampler * begun() const { return waits_ ? nullptr : grammar_.get(); }

  private:
    using Tokens = std::deque<std::pair<llama_token, size_t>>;

    void listen() {
        waits_ = true;
        heard_ = {};
        heard_.inside = triggers_->inside;
        tokens_.clear();
    }

    // The tokens that reach into the kept text are all that can matter.
    void forget() {
        size_t size = 0;
        for (const auto & [token, length] : tokens_) {
            size += length;
        }
        while (!tokens_.empty() && size - tokens_.front().second >= heard_.tail.size()) {
            size -= tokens_.front().second;
            tokens_.pop_front();
        }
    }

    // Whether a token leaves the grammar a way to go on, if the token completes a trigger.
    bool allows(llama_token token) const {
        if (llama_vocab_is_eog(triggers_->vocab, token)) {
            return true;
        }
        const std::string piece = piece_of(triggers_->vocab, token);
        Heard heard = heard_;
        const size_t start = read(heard, piece, *triggers_);
        if (start == nowhere) {
            return true;
        }
        Tokens tokens = tokens_;
        tokens.emplace_back(token, piece.size());
        const Owned copy(llama_sampler_clone(grammar_.get()));
        try {
            begin(copy.get(), heard.tail, start, tokens);
            return true;
        } catch (const causerie::Aborted &) {
            throw;
        } catch (const std::exception &) {
            return false;
        }
    }

    // Lets the grammar have the text from `start` on: as the tokens that say it, the first of which may be cut.
    void begin(llama_sampler * grammar, const std::string & text, size_t start, const Tokens & tokens) const {
        size_t place = text.size();
        size_t first = tokens.size();
        while (first > 0 && place > start) {
            place -= std::min(place, tokens[--first].second);
        }
        if (first < tokens.size() && place < start) {
            spell(grammar, triggers_->vocab, text.substr(start, place + tokens[first].second - start));
            ++first;
        }
        for (; first < tokens.size(); ++first) {
            llama_sampler_accept(grammar, tokens[first].first);
        }
    }

    Owned grammar_;
    std::shared_ptr<const Triggers> triggers_;
    Heard heard_;
    Tokens tokens_;  // those that say heard_.tail, and perhaps more before
    bool waits_ = true;
};

Lazy & of(const llama_sampler * sampler) { return *static_cast<Lazy *>(sampler->ctx); }

const char * lazy_name(const llama_sampler *) { return "grammar"; }
void lazy_accept(llama_sampler * sampler, llama_token token) { of(sampler).accept(token); }
void lazy_apply(llama_sampler * sampler, llama_token_data_array * candidates) { of(sampler).apply(candidates); }
void lazy_reset(llama_sampler * sampler) { of(sampler).reset(); }
llama_sampler * lazy_clone(const llama_sampler * sampler);
void lazy_free(llama_sampler * sampler) { delete &of(sampler); }

// llama_sampler keeps a pointer to its interface, so this one lives as long as the module.
llama_sampler_i lazy_interface = [] {
    llama_sampler_i i = {};
    i.name = lazy_name;
    i.accept = lazy_accept;
    i.apply = lazy_apply;
    i.reset = lazy_reset;
    i.clone = lazy_clone;
    i.free = lazy_free;
    return i;
}();

llama_sampler * made(std::unique_ptr<Lazy> lazy) {
    llama_sampler * sampler = llama_sampler_init(&lazy_interface, lazy.get());
    lazy.release();
    return sampler;
}

llama_sampler * lazy_clone(const llama_sampler * sampler) { return made(std::make_unique<Lazy>(of(sampler))); }

llama_sampler * begun(llama_sampler * sampler) {
    llama_sampler * grammar = sampler->iface == &lazy_interface ? of(sampler).begun() : nullptr;
    return grammar != nullptr ? grammar : sampler;
}

std::vector<std::string> texts(const char ** values, size_t n) { return {values, values + n}; }

}  // namespace

llama_sampler * causerie::begun_grammar(llama_sampler * sampler) { return begun(sampler); }

llama_sampler * causerie_sampler_lazy(
    llama_sampler * grammar, const llama_vocab * vocab, const char ** words, size_t n_words, const char ** patterns,
    size_t n_patterns, const char * opening, const char ** closings, size_t n_closings, bool inside) {
    Owned owned(grammar);
    return causerie_guarded<llama_sampler *>(
        __func__,
        [&] {
            auto triggers = std::make_shared<Triggers>();
            triggers->vocab = vocab;
            triggers->words = texts(words, n_words);
            for (size_t i = 0; i < n_patterns; ++i) {
                triggers->patterns.emplace_back(patterns[i]);
            }
            triggers->opening = opening;
            triggers->closings = texts(closings, n_closings);
            triggers->inside = inside;
            constexpr size_t longest_match = 256;
            triggers->window = n_patterns > 0 ? longest_match : std::strlen(opening);
            for (const auto & known : {triggers->words, triggers->closings}) {
                for (const std::string & word : known) {
                    triggers->window = std::max(triggers->window, word.size());
                }
            }
            return made(std::make_unique<Lazy>(std::move(owned), std::move(triggers)));
        },
        nullptr);
}
