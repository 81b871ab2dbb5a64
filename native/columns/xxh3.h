/* XXH3, 64 bits, seed 0, as specified (`xxhsum -H3`): three times as fast as XXH64, which matters because the journal
 * hashes every payload during delivery. No Python, no allocation. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SC_XXH3_STRIPE 64
#define SC_XXH3_BLOCK 1024

/* The hash of data that comes in pieces. */
typedef struct {
    uint64_t lane[8], len;
    size_t waiting; /* bytes of `last` after its first stripe: not summed up yet, as the hash treats the end apart */
    uint8_t last[SC_XXH3_STRIPE + SC_XXH3_BLOCK]; /* first the stripe before the waiting bytes */
} sc_xxh3_state;

uint64_t sc_xxh3(const uint8_t *p, size_t len);
void sc_xxh3_begin(sc_xxh3_state *s);
void sc_xxh3_add(sc_xxh3_state *s, const uint8_t *p, size_t len);
uint64_t sc_xxh3_end(const sc_xxh3_state *s);
uint64_t sc_xxh3_plain(const uint8_t *p, size_t len); /* the same without vectors, for tests */
