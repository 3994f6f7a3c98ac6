/* Functions that Python implements and the shim calls (cffi: extern "Python").
 *
 * Each gets as its last argument the handle of the Python object that was registered with it.
 * They never raise into C: the Python side keeps the exception and answers so that the work stops.
 */
#ifndef CAUSERIE_CALLBACKS_H
#define CAUSERIE_CALLBACKS_H

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

bool causerie_py_progress(float progress, void * handle);
bool causerie_py_eval(struct ggml_tensor * tensor, bool ask, void * handle);
void causerie_py_sampler_apply(llama_token_data_array * candidates, void * handle);
void causerie_py_sampler_accept(llama_token token, void * handle);
void causerie_py_sampler_reset(void * handle);
void * causerie_py_sampler_clone(void * handle);
void causerie_py_sampler_free(void * handle);

#ifdef __cplusplus
}
#endif

#endif
