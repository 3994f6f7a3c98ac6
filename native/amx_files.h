// Included by force in front of ggml's files that multiply with AMX.

#pragma once

#include <cstdio>

#include "ggml-impl.h"

// They print what went wrong; here it goes to the log, as everything else of ggml does.
#define fprintf(stream, ...) ggml_log_internal(GGML_LOG_LEVEL_ERROR, __VA_ARGS__)

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include "gcc_amx.h"
#endif
