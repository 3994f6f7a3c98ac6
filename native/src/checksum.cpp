// Checksums of saved state, at the speed of memory.

#include <cstring>

#include "causerie.h"

// All of xxHash is in its header; llama.cpp brings it along.
#define XXH_INLINE_ALL
#include "xxhash.h"

void causerie_checksum(const uint8_t * data, size_t size, uint8_t out[16]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, size));
    std::memcpy(out, canonical.digest, sizeof canonical.digest);
}
