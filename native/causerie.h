/* The C ABI of the shim: what llama.cpp has only in C++, what must be one call, and how failures are told.
 *
 * Every function of llama.h and its companions is called through a generated wrapper (guard.h) that turns a C++
 * exception or a failed GGML_ASSERT into an error of the calling thread; causerie_error_code() tells it.
 */
#ifndef CAUSERIE_H
#define CAUSERIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors: state of the calling thread, reset by each guarded call ---- */

enum causerie_error {
    CAUSERIE_ERROR_NONE = 0,
    CAUSERIE_ERROR_EXCEPTION = 1, /* a C++ exception */
    CAUSERIE_ERROR_ABORT = 2,     /* GGML_ASSERT or GGML_ABORT: the object that was in use may be inconsistent */
    CAUSERIE_ERROR_MEMORY = 3     /* std::bad_alloc */
};

int causerie_error_code(void);
/* "function: reason"; valid until the next guarded call of this thread. */
const char * causerie_error_message(void);
/* Warnings and errors that llama.cpp logged on this thread during its last guarded call, one per line. */
const char * causerie_error_log(void);

/* ---- start and logs ---- */

/* Routes every log of llama.cpp, ggml, mtmd and llama-common into a ring buffer, and catches aborts. Idempotent. */
void causerie_init(void);
/* Whether log records are waiting. */
bool causerie_log_pending(void);
/* Takes the oldest record: copies at most size - 1 bytes and a final zero, sets *level (ggml_log_level); false if none. */
bool causerie_log_read(char * text, size_t size, int * level);
/* Records that were overwritten before anybody read them, since the start. */
uint64_t causerie_log_dropped(void);

/* JSON: version, llama_commit, compiler, build_type, system, backends, cpu_variants, flags. */
const char * causerie_build_info(void);
/* llama.cpp's own version. */
const char * causerie_llama_version(void);

/* ---- plugins: backends that are libraries of their own (GGML_BACKEND_DL) ---- */

/* How well the plugin at a path suits this machine, among those of its kind (ggml_backend_score): 0: not at all, 1: where
 * it does not tell. -1 on error: it cannot be loaded, or is not of this llama.cpp. Leaves nothing loaded. */
int32_t causerie_plugin_score(const char * path);
/* The commit of llama.cpp: of the shim here, and of a plugin there. */
const char * causerie_plugin_commit(void);

/* ---- cancel: one atomic per context, read by llama.cpp's abort callback ---- */

struct causerie_cancel;
struct causerie_cancel * causerie_cancel_new(void);
void causerie_cancel_free(struct causerie_cancel * flag);
void causerie_cancel_set(struct causerie_cancel * flag, bool value);
bool causerie_cancel_get(const struct causerie_cancel * flag);
/* Makes ctx stop its running decode or encode once the flag is set. */
void causerie_cancel_attach(struct causerie_cancel * flag, struct llama_context * ctx);

/* ---- checksums ---- */

/* XXH3 with 128 bits, in its canonical form (big endian), of size bytes. Finds damage, not malice. */
void causerie_checksum(const uint8_t * data, size_t size, uint8_t out[16]);

/* ---- files ---- */

/* A C stream of its own over a duplicate of the descriptor, at its current position; NULL with errno on failure. */
FILE * causerie_file_open(int fd, const char * mode);
void causerie_file_close(FILE * file);

/* ---- callbacks into Python ---- */

llama_progress_callback causerie_progress_callback(void);
ggml_backend_sched_eval_callback causerie_eval_callback(void);

/* ---- samplers ---- */

/* A sampler that Python implements; handle is given back to the causerie_py_sampler_* functions. */
struct llama_sampler * causerie_sampler_custom(void * handle);

/* Takes over a sampler that changes logits but leaves the candidates marked as sorted (logit bias), and clears the mark
 * behind it. */
struct llama_sampler * causerie_sampler_unsorted(struct llama_sampler * sampler);

/* The texts of a vocabulary's tokens, prepared for grammars. NULL on error. */
struct causerie_vocab_trie;
struct causerie_vocab_trie * causerie_vocab_trie_new(const struct llama_vocab * vocab);
void causerie_vocab_trie_free(struct causerie_vocab_trie * trie);

/* A grammar in GBNF for that vocabulary. The text of control tokens that are not shown does not count. What its samplers
 * find out about it is kept with it, for all of them. NULL on error. Thread-safe. */
struct causerie_grammar;
struct causerie_grammar * causerie_grammar_new(
    const struct causerie_vocab_trie * trie, const struct llama_vocab * vocab, const char * gbnf, const char * root,
    bool all_shown, const llama_token * shown, size_t n_shown);
void causerie_grammar_free(struct causerie_grammar * grammar);

/* Excludes tokens that a grammar does not allow next; with lazy only once a trigger came (as
 * llama_sampler_init_grammar_lazy_patterns). It may outlive the grammar. NULL on error. */
struct llama_sampler * causerie_sampler_grammar(
    const struct causerie_grammar * grammar, bool lazy, const char ** patterns, size_t n_patterns,
    const llama_token * tokens, size_t n_tokens);

/* Takes over a sampler that holds a grammar, also where it fails, and lets it begin with the text from the first trigger
 * on: a word, or what a pattern (std::regex) matches from its first group on, within 256 bytes. Nothing triggers between
 * opening ("": nowhere) and a closing; inside: the text begins there. NULL on error. */
struct llama_sampler * causerie_sampler_lazy(
    struct llama_sampler * grammar, const struct llama_vocab * vocab, const char ** words, size_t n_words,
    const char ** patterns, size_t n_patterns, const char * opening, const char ** closings, size_t n_closings,
    bool inside);

/* Builds candidates (ids 0..n-1) from logits[n], applies the sampler, and writes the candidates it leaves into out[n].
 * Returns how many it left, or -1 on error; *selected is the index in out of the token it chose (-1: none). */
int64_t causerie_sampler_apply(
    struct llama_sampler * sampler, const float * logits, int64_t n, llama_token_data * out, int64_t * selected);

/* ---- one step: decode a batch, and choose a token from several of its rows of logits ---- */

enum causerie_row_status {
    CAUSERIE_ROW_CHOSEN = 0,
    CAUSERIE_ROW_NOT_FINITE = 1, /* the logits hold NaN or +inf */
    CAUSERIE_ROW_UNCHOSEN = 2,   /* no sampler of the chain chose a token */
    CAUSERIE_ROW_NOTHING = 3,    /* no candidate was left */
    CAUSERIE_ROW_GRAMMAR = 4,    /* the grammar allows none of the candidates that were left */
    CAUSERIE_ROW_EXCEPTION = 5,  /* a sampler threw: see message */
    CAUSERIE_ROW_ABORT = 6       /* a sampler failed one of llama.cpp's checks: see message */
};

struct causerie_row {
    int32_t index;                  /* in: entry of the batch, one with output */
    int32_t preselect;              /* in: hand only so many of the largest logits to the chain; 0: all */
    int32_t n_top;                  /* in: how many of the likeliest tokens to tell; -1: no log-probabilities at all */
    int32_t token;                  /* out: the chosen token, accepted by grammar and chain; -1: none */
    int32_t status;                 /* out: causerie_row_status */
    float logprob;                  /* out: log-softmax of the raw logits at the token */
    struct llama_sampler * chain;   /* in: NULL: the largest logit */
    struct llama_sampler * grammar; /* in: may be NULL */
    llama_token_data * top;         /* out: n_top entries, likeliest first; p is the log-probability */
    char message[192];              /* out: reason of an exception */
};

/* llama_decode, then each row by itself: what fails in one does not touch the others. Returns what llama_decode does;
 * the rows are only filled after 0. */
int32_t causerie_step(
    struct llama_context * ctx, struct llama_batch batch, struct causerie_row * rows, int32_t n_rows);
/* Up to n_times steps behind one whose batch had exactly one entry for each row: each entry becomes the token that its
 * row chose, one position further. Ends early behind a step in which a row failed or chose a token that ends a turn, or
 * during which another thread has set `enough`. tokens[n_times * n_rows] gets what was chosen, step by step, and *n_done
 * the steps that succeeded. */
int32_t causerie_step_again(
    struct llama_context * ctx, struct llama_batch batch, struct causerie_row * rows, int32_t n_rows, int32_t n_times,
    const struct causerie_cancel * enough, llama_token * tokens, int32_t * n_done);

/* ---- weights ---- */

struct causerie_weight {
    const char * name; /* the model's */
    int type;          /* ggml_type */
    bool out_of_range; /* the type is right, but it holds ids of what does not exist */
};

/* Whether ggml can compute with every weight of a loaded model. False with a name for the first one it cannot compute
 * with: an evaluation would end the process. False without a name on error (see causerie_error_message). */
bool causerie_weights_usable(const struct llama_model * model, struct causerie_weight * unusable);

/* ---- devices: where a model's layers, its cache and its buffers are, or would be ---- */

struct causerie_device_use {
    ggml_backend_dev_t device;
    int32_t layers;  /* repeating layers that have most of their weights there */
    int64_t model;   /* bytes of weights */
    int64_t context; /* bytes of KV cache or recurrent state */
    int64_t compute; /* bytes of compute buffers */
};

/* One entry for each device of the model, and for the CPU, whose is all host memory; ctx may be NULL. Returns how many
 * there are, of which at most room are written; -1 on error. */
int32_t causerie_devices_used(
    const struct llama_model * model, const struct llama_context * ctx, struct causerie_device_use * uses, int32_t room);
/* Whether a context computes flash attention, also where that was left to llama.cpp. */
bool causerie_flash_attn(const struct llama_context * ctx);
/* The same of a model and a context that are only simulated: nothing but metadata is loaded. */
int32_t causerie_devices_needed(
    const char * path, const struct llama_model_params * model_params, const struct llama_context_params * context_params,
    struct causerie_device_use * uses, int32_t room);
/* Gives the memory of a context's cells back to the system, where it is the CPU's (Linux; elsewhere nothing happens). They
 * must hold zeros, as in a new context; the memory is taken again as they are written. Returns the bytes; -1 on error. */
int64_t causerie_give_back_cache(const struct llama_context * ctx);

enum causerie_fit_status {
    CAUSERIE_FIT_FOUND = 0,
    CAUSERIE_FIT_NONE = 1 /* llama.cpp found no way to fit it: see causerie_error_log */
};

/* llama.cpp's fitting: changes what is at its default (n_gpu_layers, tensor_split, tensor_buft_overrides; n_ctx if it is
 * 0, down to n_ctx_min) until margin bytes stay free on each device. tensor_split[llama_max_devices()] and
 * overrides[llama_max_tensor_buft_overrides()] are written to, and the parameters point to them. -1 on error. One call
 * at a time in a process. */
int causerie_fit(
    const char * path, struct llama_model_params * model_params, struct llama_context_params * context_params,
    float * tensor_split, struct llama_model_tensor_buft_override * overrides, size_t margin, uint32_t n_ctx_min);

/* Physical cores of the machine; 0 on error. */
int32_t causerie_physical_cores(void);

/* The devices of an RPC server, "host:port". NULL on error: no RPC backend, or no server there. */
ggml_backend_reg_t causerie_rpc_add_server(const char * endpoint);
/* Serves devices to one client after the other; returns only on error. cache_dir may be NULL. */
void causerie_rpc_serve(
    const char * endpoint, const char * cache_dir, size_t n_threads, ggml_backend_dev_t * devices, size_t n_devices);

/* ---- chat templates (llama.cpp's Jinja engine): JSON in, JSON out ---- */

struct causerie_template;
/* From Jinja source. NULL on error: also where it asks for more steps or memory than a template needs. */
struct causerie_template * causerie_template_new(const char * source, const char * bos_token, const char * eos_token);
void causerie_template_free(struct causerie_template * tmpl);
/* inputs: {"messages": [...], "tools", "tool_choice", "parallel_tool_calls", "add_generation_prompt",
 * "enable_thinking", "reasoning_format", "json_schema", "grammar", "continue_final_message", "kwargs", "now"}; all but
 * messages optional. Result: {"prompt", "format", "grammar", "grammar_lazy", "grammar_triggers", "generation_prompt",
 * "supports_thinking", "thinking_start_tag", "thinking_end_tags", "preserved_tokens", "stops", "parser"}.
 * To be freed with causerie_string_free; NULL on error. */
char * causerie_template_apply(const struct causerie_template * tmpl, const char * inputs_json);
/* {"capability": true or false, ...}; to be freed with causerie_string_free; NULL on error. */
char * causerie_template_caps(const struct causerie_template * tmpl);
void causerie_string_free(char * text);

/* Reads replies: params {"format", "parser", "generation_prompt"}, as causerie_template_apply tells them. NULL on error.
 * Thread-safe. */
struct causerie_parser;
struct causerie_parser * causerie_parser_new(const char * params_json);
void causerie_parser_free(struct causerie_parser * parser);
/* A reply's text (UTF-8; with is_partial its beginning) as {"content", "reasoning_content", "tool_calls": [{"id", "name",
 * "arguments": text}]}; to be freed with causerie_string_free; NULL on error, and if the text does not fit the format. */
char * causerie_parser_parse(
    const struct causerie_parser * parser, const char * text, size_t size, bool is_partial);

#ifdef __cplusplus
}
#endif

#endif
