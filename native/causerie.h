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

/* JSON: version, llama_commit, compiler, build_type, system, backends, flags. */
const char * causerie_build_info(void);
/* llama.cpp's own version. */
const char * causerie_llama_version(void);

/* ---- cancel: one atomic per context, read by llama.cpp's abort callback ---- */

struct causerie_cancel;
struct causerie_cancel * causerie_cancel_new(void);
void causerie_cancel_free(struct causerie_cancel * flag);
void causerie_cancel_set(struct causerie_cancel * flag, bool value);
bool causerie_cancel_get(const struct causerie_cancel * flag);
/* Makes ctx stop its running decode or encode once the flag is set. */
void causerie_cancel_attach(struct causerie_cancel * flag, struct llama_context * ctx);

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

/* Takes over a sampler that changes logits but leaves the candidates marked as sorted (grammar, logit bias), and clears
 * the mark behind it. */
struct llama_sampler * causerie_sampler_unsorted(struct llama_sampler * sampler);

/* Builds candidates (ids 0..n-1) from logits[n], applies the sampler, and writes the candidates it leaves into out[n].
 * Returns how many it left, or -1 on error; *selected is the index in out of the token it chose (-1: none). */
int64_t causerie_sampler_apply(
    struct llama_sampler * sampler, const float * logits, int64_t n, llama_token_data * out, int64_t * selected);

/* ---- memory needed by a context ---- */

struct causerie_memory_need {
    int64_t model;   /* bytes of weights on the host */
    int64_t context; /* bytes of KV cache or recurrent state on the host */
    int64_t compute; /* bytes of compute buffers on the host */
    int64_t device;  /* bytes of all three on other devices */
};

/* Loads metadata only and simulates the allocations of a context; false on error (see causerie_error_message). */
bool causerie_memory_needed(
    const char * path, const struct llama_model_params * model_params, const struct llama_context_params * context_params,
    struct causerie_memory_need * need);

/* ---- chat templates (llama.cpp's Jinja engine): JSON in, JSON out ---- */

struct causerie_template;
/* From Jinja source, or from the model's own template where source is empty; model may be NULL with a source.
 * NULL on error. */
struct causerie_template * causerie_template_new(
    const struct llama_model * model, const char * source, const char * bos_token, const char * eos_token);
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

#ifdef __cplusplus
}
#endif

#endif
