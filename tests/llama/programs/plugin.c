/* A backend without devices, as a library of its own. What is wrong with it is chosen when it is compiled. */

#include "ggml-backend-impl.h"

#ifdef COMMIT
const char * causerie_plugin_commit(void) { return COMMIT; }
#endif

#ifdef SCORE
int ggml_backend_score(void) { return SCORE; }
#endif

static const char * name(ggml_backend_reg_t reg) { return reg->context; }

static size_t count(ggml_backend_reg_t reg) {
    (void) reg;
    return 0;
}

ggml_backend_reg_t ggml_backend_init(void) {
#ifdef FAILS
    return NULL;
#else
    static struct ggml_backend_reg reg = {API, {name, count, NULL, NULL}, NAME};
    return &reg;
#endif
}
