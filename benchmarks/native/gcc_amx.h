// Included by force in front of every C++ file of a peer that is compiled here by GCC for a CPU with AMX: without it
// llama.cpp crashes there, as causerie's own build would (see native/).
//
// GCC's _tile_loadconfig says that it reads 8 of the 64 bytes it reads: what ggml stores in the others looks dead and is
// dropped, and the first product faults. Its _tile_loadd does not say that it reads memory at all.

#pragma once

#include <immintrin.h>

struct causerie_tile_config {
    unsigned char bytes[64];
};

#undef _tile_loadconfig
#define _tile_loadconfig(config) \
    __asm__ volatile("ldtilecfg\t%X0" : : "m"(*static_cast<const causerie_tile_config *>(static_cast<const void *>(config))))

#undef _tile_loadd
#define _tile_loadd(tile, base, stride) causerie_tile_loadd(tile, base, stride)  // tile may be a macro
#define causerie_tile_loadd(tile, base, stride) \
    __asm__ volatile("tileloadd\t(%0,%1,1), %%tmm" #tile : : "r"(base), "r"(static_cast<long>(stride)) : "memory")
