// One step of many sequences: a batch is decoded, and a token chosen for every row that wants one, in one call.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include "causerie.h"
#include "grammar_sampler.h"
#include "guard.h"

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr int32_t block = 64;

using Candidates = std::vector<llama_token_data>;

struct Refused {
    causerie_row_status status;
};

// Whether a block of logits holds one above the limit, or NaN: without a branch, so that it is vectorised.
bool remarkable(const float * logits, int32_t count, float limit) {
    int any = 0;
    for (int32_t i = 0; i < count; ++i) {
        any |= static_cast<int>(!(logits[i] <= limit));
    }
    return any != 0;
}

void require_number(float logit) {
    if (!(logit < infinity)) {  // NaN too
        throw Refused{CAUSERIE_ROW_NOT_FINITE};
    }
}

// Which of a block's logits count, as bits; without a mask all do.
uint64_t counted(const causerie::TokenMask * mask, int32_t start) {
    static_assert(block == 64, "a word of the mask for each block");
    return mask == nullptr ? ~uint64_t{0} : (*mask)[static_cast<size_t>(start / block)];
}

// Calls visit(i) for each logit above limit(), which may rise meanwhile, and for NaN.
template <class Limit, class Visit>
void visit_above(const float * logits, int32_t n, const causerie::TokenMask * mask, Limit && limit, Visit && visit) {
    for (int32_t start = 0; start < n; start += block) {
        const int32_t stop = std::min(n, start + block);
        const uint64_t bits = counted(mask, start);
        if (bits == 0 || !remarkable(logits + start, stop - start, limit())) {
            continue;
        }
        for (int32_t i = start; i < stop; ++i) {
            if ((bits >> (i - start) & 1) != 0 && !(logits[i] <= limit())) {
                require_number(logits[i]);
                visit(i);
            }
        }
    }
}

// The largest logit, the first of several; -1: all are -inf.
int32_t largest(const float * logits, int32_t n, const causerie::TokenMask * mask = nullptr) {
    int32_t best = -1;
    float limit = -infinity;
    visit_above(logits, n, mask, [&] { return limit; }, [&](int32_t i) {
        limit = logits[i];
        best = i;
    });
    return best;
}

// The k largest logits as candidates, in no order; fewer where others are -inf.
void select_largest(const float * logits, int32_t n, int32_t k, Candidates & out, const causerie::TokenMask * mask = nullptr) {
    const auto above = [](const llama_token_data & a, const llama_token_data & b) { return a.logit > b.logit; };
    out.clear();
    float limit = -infinity;  // below the smallest of the k best so far
    visit_above(logits, n, mask, [&] { return limit; }, [&](int32_t i) {
        if (out.size() == static_cast<size_t>(k)) {
            std::pop_heap(out.begin(), out.end(), above);
            out.pop_back();
        }
        out.push_back({i, logits[i], 0.0f});
        std::push_heap(out.begin(), out.end(), above);
        if (out.size() == static_cast<size_t>(k)) {
            limit = out.front().logit;
        }
    });
}

void all_candidates(const float * logits, int32_t n, Candidates & out, const causerie::TokenMask * mask = nullptr) {
    out.resize(static_cast<size_t>(n));
    size_t count = 0;
    int wrong = 0;
    for (int32_t start = 0; start < n; start += block) {
        const uint64_t bits = counted(mask, start);
        const int32_t stop = bits == 0 ? start : std::min(n, start + block);
        for (int32_t i = start; i < stop; ++i) {
            const bool counts = (bits >> (i - start) & 1) != 0;
            wrong |= static_cast<int>(counts && !(logits[i] < infinity));
            out[count] = {i, logits[i], 0.0f};
            count += counts ? 1 : 0;
        }
    }
    out.resize(count);
    if (wrong != 0) {
        throw Refused{CAUSERIE_ROW_NOT_FINITE};
    }
}

llama_token chosen_by(llama_sampler * chain, llama_token_data_array array) {
    const size_t size = array.size;
    llama_sampler_apply(chain, &array);
    if (array.size > size) {
        throw std::runtime_error("a sampler returned more candidates than it was given");
    }
    if (array.size == 0) {
        throw Refused{CAUSERIE_ROW_NOTHING};
    }
    if (array.selected < 0 || array.selected >= static_cast<int64_t>(array.size)) {
        throw Refused{CAUSERIE_ROW_UNCHOSEN};
    }
    const llama_token_data & chosen = array.data[array.selected];
    if (chosen.logit == -infinity) {
        throw Refused{CAUSERIE_ROW_NOTHING};
    }
    require_number(chosen.logit);
    return chosen.id;
}

// Leaves the candidates that a sampler does not exclude.
void keep_allowed(llama_sampler * sampler, Candidates & candidates) {
    llama_token_data_array array = {candidates.data(), candidates.size(), -1, false};
    llama_sampler_apply(sampler, &array);
    if (array.size > candidates.size()) {
        throw std::runtime_error("a sampler returned more candidates than it was given");
    }
    Candidates kept;
    std::copy_if(array.data, array.data + array.size, std::back_inserter(kept), [](const llama_token_data & candidate) {
        return candidate.logit != -infinity;
    });
    candidates = std::move(kept);
}

bool allows(llama_sampler * sampler, llama_token token) {
    llama_token_data candidate = {token, 1.0f, 0.0f};
    llama_token_data_array array = {&candidate, 1, -1, false};
    llama_sampler_apply(sampler, &array);
    return array.data[0].logit != -infinity;
}

// How one row's token is found: the chain chooses as if there were only the tokens that the grammar allows. Which those
// are is only computed where one that matters is refused.
class Choice {
  public:
    Choice(const causerie_row & row, const float * logits, int32_t n)
        : chain_(row.chain), grammar_(row.grammar == nullptr ? nullptr : causerie::begun_grammar(row.grammar)),
          logits_(logits), n_(n), k_(chain_ == nullptr ? 1 : row.preselect > 0 && row.preselect < n ? row.preselect : 0) {}

    llama_token token() {
        if (chain_ == nullptr && grammar_ == nullptr) {
            const llama_token best = largest(logits_, n_);
            return best >= 0 ? best : throw Refused{CAUSERIE_ROW_NOTHING};
        }
        if (grammar_ == nullptr) {
            find(nullptr);
            return chosen();
        }
        if (k_ > 0) {
            find(nullptr);
            const bool all = std::all_of(candidates_.begin(), candidates_.end(), [this](const llama_token_data & candidate) {
                return allows(grammar_, candidate.id);
            });
            return all && !candidates_.empty() ? chosen() : chosen_of_allowed();
        }
        if (causerie::is_grammar(grammar_)) {
            return chosen_of_allowed();
        }
        // A grammar that waits for its trigger excludes next to nothing, but has to look for that.
        find(nullptr);
        const llama_token drawn = chosen();
        return allows(grammar_, drawn) ? drawn : chosen_of_allowed();
    }

  private:
    static Candidates & room() {
        static thread_local Candidates candidates;
        return candidates;
    }

    void find(const causerie::TokenMask * mask) {
        k_ > 0 ? select_largest(logits_, n_, k_, candidates_, mask) : all_candidates(logits_, n_, candidates_, mask);
    }

    llama_token chosen_of_allowed() {
        if (!causerie::is_grammar(grammar_)) {
            all_candidates(logits_, n_, candidates_);
            keep_allowed(grammar_, candidates_);
        } else {
            find(causerie::grammar_waits(grammar_) ? nullptr : &causerie::grammar_mask(grammar_));
        }
        return chosen();
    }

    llama_token chosen() {
        const auto nothing = grammar_ == nullptr ? CAUSERIE_ROW_NOTHING : CAUSERIE_ROW_GRAMMAR;
        try {
            if (chain_ != nullptr && !candidates_.empty()) {
                return chosen_by(chain_, {candidates_.data(), candidates_.size(), -1, false});
            }
        } catch (const Refused & refused) {
            throw Refused{refused.status == CAUSERIE_ROW_NOTHING ? nothing : refused.status};
        }
        const auto less = [](const llama_token_data & a, const llama_token_data & b) { return a.logit < b.logit; };
        const auto best = std::max_element(candidates_.begin(), candidates_.end(), less);
        return best != candidates_.end() && best->logit > -infinity ? best->id : throw Refused{nothing};
    }

    llama_sampler * chain_;    // null: the largest logit
    llama_sampler * grammar_;  // may be null
    const float * logits_;
    int32_t n_;
    int32_t k_;  // how many of the largest logits are enough; 0: the chain needs all
    Candidates & candidates_ = room();
};

void tell_logprobs(causerie_row & row, const float * logits, int32_t n) {
    const int32_t likeliest = largest(logits, n);
    if (likeliest < 0) {
        throw Refused{CAUSERIE_ROW_NOTHING};
    }
    const float top = logits[likeliest];
    double sum = 0.0;
    for (int32_t i = 0; i < n; ++i) {
        sum += std::exp(static_cast<double>(logits[i]) - static_cast<double>(top));
    }
    const double shift = static_cast<double>(top) + std::log(sum);
    const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - shift); };
    row.logprob = logprob(logits[row.token]);
    if (row.n_top <= 0) {
        return;
    }
    Candidates best;
    select_largest(logits, n, row.n_top, best);
    std::sort(best.begin(), best.end(), [](const llama_token_data & a, const llama_token_data & b) {
        return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
    });
    for (int32_t i = 0; i < row.n_top; ++i) {
        const auto place = static_cast<size_t>(i);
        row.top[i] = place < best.size() ? best[place] : llama_token_data{-1, -infinity, -infinity};
        row.top[i].p = place < best.size() ? logprob(best[place].logit) : -infinity;
    }
}

void fill(llama_context * ctx, causerie_row & row, int32_t n) {
    const float * logits = llama_get_logits_ith(ctx, row.index);
    if (logits == nullptr) {
        throw std::runtime_error("the batch has no logits at this entry");
    }
    const llama_token token = Choice(row, logits, n).token();
    if (row.grammar != nullptr) {
        llama_sampler_accept(row.grammar, token);
    }
    if (row.chain != nullptr) {
        llama_sampler_accept(row.chain, token);
    }
    row.token = token;
    if (row.n_top >= 0) {
        tell_logprobs(row, logits, n);
    }
}

void fail(causerie_row & row, causerie_row_status status, const char * reason) {
    row.token = -1;
    row.status = status;
    std::strncpy(row.message, reason, sizeof(row.message) - 1);
    row.message[sizeof(row.message) - 1] = '\0';
}

int32_t step(llama_context * ctx, const llama_batch & batch, causerie_row * rows, int32_t n_rows) {
    const int32_t code = llama_decode(ctx, batch);
    if (code != 0) {
        return code;
    }
    llama_synchronize(ctx);
    const int32_t n = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx)));
    for (int32_t i = 0; i < n_rows; ++i) {
        causerie_row & row = rows[i];
        row.token = -1;
        row.status = CAUSERIE_ROW_CHOSEN;
        row.message[0] = '\0';
        try {
            fill(ctx, row, n);
        } catch (const Refused & refused) {
            fail(row, refused.status, "");
        } catch (const causerie::Aborted & e) {
            fail(row, CAUSERIE_ROW_ABORT, e.what());
        } catch (const std::exception & e) {
            fail(row, CAUSERIE_ROW_EXCEPTION, e.what());
        }
    }
    return code;
}

}  // namespace

int32_t causerie_step(llama_context * ctx, llama_batch batch, causerie_row * rows, int32_t n_rows) {
    return causerie_guarded<int32_t>(__func__, [&] { return step(ctx, batch, rows, n_rows); }, 0);
}

int32_t causerie_step_again(
    llama_context * ctx, llama_batch batch, causerie_row * rows, int32_t n_rows, int32_t n_times,
    const causerie_cancel * enough, llama_token * tokens, int32_t * n_done) {
    *n_done = 0;
    return causerie_guarded<int32_t>(
        __func__,
        [&] {
            const llama_vocab * vocab = llama_model_get_vocab(llama_get_model(ctx));
            bool going = true;
            while (going && *n_done < n_times) {
                for (int32_t i = 0; i < n_rows; ++i) {
                    batch.token[rows[i].index] = rows[i].token;
                    ++batch.pos[rows[i].index];
                }
                const int32_t code = step(ctx, batch, rows, n_rows);
                if (code != 0) {
                    return code;
                }
                for (int32_t i = 0; i < n_rows; ++i) {
                    *tokens++ = rows[i].token;
                    going = going && rows[i].status == CAUSERIE_ROW_CHOSEN && !llama_vocab_is_eog(vocab, rows[i].token);
                }
                ++*n_done;
                going = going && !causerie_cancel_get(enough);
            }
            return 0;
        },
        0);
}
