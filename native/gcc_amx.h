// Intrinsics for AMX tiles as GCC should have them; included by force where ggml is compiled by it.
//
// GCC's _tile_loadconfig says that it reads 8 of the 64 bytes it reads: what ggml stores in the others looks dead and is
// dropped, and the first product on a CPU with AMX faults. Its _tile_loadd does not say that it reads memory at all.

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
