/* XXH3, 64 bits, seed 0, as specified (`xxhsum -H3`): three times as fast as XXH64, which matters because the journal hashes
 * every payload during delivery. No Python, no allocation. */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint64_t sc_xxh3(const uint8_t *p, size_t len);
uint64_t sc_xxh3_plain(const uint8_t *p, size_t len); /* the same without vectors, for tests */
