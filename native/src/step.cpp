// One step of many sequences: a batch is decoded, and a token chosen for every row that wants one, in one call.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "causerie.h"
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

// The largest logit, the first of several.
int32_t largest(const float * logits, int32_t n) {
    int32_t best = -1;
    float limit = -infinity;
    for (int32_t start = 0; start < n; start += block) {
        const int32_t stop = std::min(n, start + block);
        if (!remarkable(logits + start, stop - start, limit)) {
            continue;
        }
        for (int32_t i = start; i < stop; ++i) {
            if (!(logits[i] <= limit)) {
                require_number(logits[i]);
                limit = logits[i];
                best = i;
            }
        }
    }
    if (best < 0) {
        throw Refused{CAUSERIE_ROW_NOTHING};
    }
    return best;
}

// The k largest logits as candidates, in no order; fewer where others are -inf.
void select_largest(const float * logits, int32_t n, int32_t k, Candidates & out) {
    const auto above = [](const llama_token_data & a, const llama_token_data & b) { return a.logit > b.logit; };
    out.clear();
    float limit = -infinity;  // below the smallest of the k best so far
    for (int32_t start = 0; start < n; start += block) {
        const int32_t stop = std::min(n, start + block);
        if (!remarkable(logits + start, stop - start, limit)) {
            continue;
        }
        for (int32_t i = start; i < stop; ++i) {
            if (logits[i] <= limit) {
                continue;
            }
            require_number(logits[i]);
            if (out.size() == static_cast<size_t>(k)) {
                std::pop_heap(out.begin(), out.end(), above);
                out.pop_back();
            }
            out.push_back({i, logits[i], 0.0f});
            std::push_heap(out.begin(), out.end(), above);
            if (out.size() == static_cast<size_t>(k)) {
                limit = out.front().logit;
            }
        }
    }
}

void all_candidates(const float * logits, int32_t n, Candidates & out) {
    out.resize(static_cast<size_t>(n));
    int wrong = 0;
    for (int32_t i = 0; i < n; ++i) {
        wrong |= static_cast<int>(!(logits[i] < infinity));
        out[static_cast<size_t>(i)] = {i, logits[i], 0.0f};
    }
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

bool allows(llama_sampler * grammar, llama_token token) {
    llama_token_data candidate = {token, 1.0f, 0.0f};
    llama_token_data_array array = {&candidate, 1, -1, false};
    llama_sampler_apply(grammar, &array);
    return array.data[0].logit != -infinity;
}

llama_token choose(const causerie_row & row, const float * logits, int32_t n) {
    static thread_local Candidates candidates;
    llama_token token;
    if (row.chain == nullptr) {
        token = largest(logits, n);
    } else {
        if (row.preselect > 0 && row.preselect < n) {
            select_largest(logits, n, row.preselect, candidates);
        } else {
            all_candidates(logits, n, candidates);
        }
        token = chosen_by(row.chain, {candidates.data(), candidates.size(), -1, false});
    }
    if (row.grammar == nullptr || allows(row.grammar, token)) {
        return token;
    }
    // Rare: only now is the grammar asked about every token.
    all_candidates(logits, n, candidates);
    llama_token_data_array array = {candidates.data(), candidates.size(), -1, false};
    llama_sampler_apply(row.grammar, &array);
    size_t kept = 0;
    for (size_t i = 0; i < array.size; ++i) {
        if (array.data[i].logit != -infinity) {
            array.data[kept++] = array.data[i];
        }
    }
    array.size = kept;
    array.sorted = false;
    if (kept == 0) {
        throw Refused{CAUSERIE_ROW_GRAMMAR};
    }
    if (row.chain == nullptr) {
        const auto less = [](const llama_token_data & a, const llama_token_data & b) { return a.logit < b.logit; };
        return std::max_element(array.data, array.data + kept, less)->id;
    }
    try {
        return chosen_by(row.chain, array);
    } catch (const Refused & refused) {
        throw Refused{refused.status == CAUSERIE_ROW_NOTHING ? CAUSERIE_ROW_GRAMMAR : refused.status};
    }
}

void tell_logprobs(causerie_row & row, const float * logits, int32_t n) {
    const float top = logits[largest(logits, n)];
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
    const llama_token token = choose(row, logits, n);
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
    llama_context * ctx, llama_batch batch, causerie_row * rows, int32_t n_rows, int32_t n_times, llama_token * tokens,
    int32_t * n_done) {
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
            }
            return 0;
        },
        0);
}
