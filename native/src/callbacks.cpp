// Callbacks for loading and evaluation.

#include "causerie.h"
#include "causerie_callbacks.h"

llama_progress_callback causerie_progress_callback(void) { return causerie_py_progress; }

ggml_backend_sched_eval_callback causerie_eval_callback(void) { return causerie_py_eval; }
