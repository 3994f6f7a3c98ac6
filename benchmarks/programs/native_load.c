/* Loads a model and makes a context with llama.cpp alone; prints load seconds, context seconds, resident KiB.

   Usage: native_load MODEL [N_CTX [THREADS]] */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama.h"

static void quiet(enum ggml_log_level level, const char * text, void * data) {
    (void) level;
    (void) text;
    (void) data;
}

static long resident_kib(void) {
    FILE * file = fopen("/proc/self/status", "r");
    char line[256];
    long kib = -1;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "VmRSS:", 6) == 0) {
            sscanf(line + 6, "%ld", &kib);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib;
}

int main(int argc, char ** argv) {
    if (argc < 2 || argc > 4) {
        return 2;
    }
    llama_log_set(quiet, NULL);
    llama_backend_init();
    int64_t start = llama_time_us();
    struct llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (model == NULL) {
        return 1;
    }
    int64_t loaded = llama_time_us();
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = argc > 2 ? (uint32_t) atoi(argv[2]) : 512;
    params.n_batch = 512;
    params.n_threads = params.n_threads_batch = argc > 3 ? atoi(argv[3]) : 2;
    struct llama_context * ctx = llama_init_from_model(model, params);
    if (ctx == NULL) {
        return 1;
    }
    int64_t ready = llama_time_us();
    printf("%f %f %ld\n", (double) (loaded - start) / 1e6, (double) (ready - loaded) / 1e6, resident_kib());
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}
