// Grammar samplers from the inside, for choosing a token without asking about all of them.

#pragma once

#include "grammar_reader.h"
#include "llama.h"

namespace causerie {

// Of a sampler from causerie_sampler_lazy: the grammar in it, once that has begun; any other sampler is itself.
llama_sampler * begun_grammar(llama_sampler * sampler);

// Whether it is one that causerie_sampler_grammar made.
bool is_grammar(const llama_sampler * sampler);
// Of such a sampler: whether it waits for its trigger, and allows everything.
bool grammar_waits(const llama_sampler * sampler);
// What it allows now: valid until the sampler is next used.
const TokenMask & grammar_mask(llama_sampler * sampler);

}  // namespace causerie
