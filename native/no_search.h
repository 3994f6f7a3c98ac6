// Included by force in front of llama.cpp where backends are plugins.

#pragma once

#include "ggml-backend.h"

// As long as there is no backend, it would look for plugins beside the running program and in the current directory.
// causerie loads them from folders that it names (python/causerie/llama/_plugins.py).
#define ggml_backend_load_all() static_cast<void>(0)
