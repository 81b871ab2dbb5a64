/* Mixing two numbers, for hashes. */
#ifndef SEQCAST_COLUMNS_MIX_H
#define SEQCAST_COLUMNS_MIX_H

#include <stdint.h>

#if defined(_MSC_VER)
#include <intrin.h>
#endif

/* Both halves of the 128-bit product, by exclusive or. */
static inline uint64_t sc_mix(uint64_t a, uint64_t b) {
#if defined(__SIZEOF_INT128__)
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#elif defined(_MSC_VER) && defined(_M_X64)
    uint64_t high, low = _umul128(a, b, &high);
    return low ^ high;
#else
    uint64_t ll = (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF), hl = (a >> 32) * (b & 0xFFFFFFFF);
    uint64_t lh = (a & 0xFFFFFFFF) * (b >> 32), hh = (a >> 32) * (b >> 32);
    uint64_t middle = (ll >> 32) + (hl & 0xFFFFFFFF) + lh;
    return ((hl >> 32) + (middle >> 32) + hh) ^ (middle << 32 | (ll & 0xFFFFFFFF));
#endif
}

#endif
