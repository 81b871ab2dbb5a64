/* Receive buffers: reference-counted slabs from a bounded pool. A packet that was received stays where the kernel put
 * it; whoever still needs it (receive window, delivery queue, retransmission) holds a reference to its slab.
 * Not thread-safe: a pool and its slabs are used under the engine's lock. */
#ifndef SEQCAST_SLAB_H
#define SEQCAST_SLAB_H

#include <stddef.h>
#include <stdint.h>

#define SC_SLAB_BYTES 65536

typedef struct sc_slab sc_slab;
typedef struct sc_slab_pool sc_slab_pool;

struct sc_slab {
    sc_slab_pool *pool;
    sc_slab *next; /* free list */
    uint32_t refs;
    uint32_t used; /* bytes taken by sc_slab_pool_copy */
    uint8_t *data; /* SC_SLAB_BYTES of an arena */
};

/* At most `max_slabs` exist at a time. NULL without memory. */
sc_slab_pool *sc_slab_pool_new(uint32_t max_slabs);
void sc_slab_pool_free(sc_slab_pool *pool);

/* A slab with one reference, or NULL when the bound is reached (counted). */
sc_slab *sc_slab_get(sc_slab_pool *pool);
static inline void sc_slab_ref(sc_slab *slab) { slab->refs++; }
void sc_slab_unref(sc_slab *slab); /* back to the free list with the last reference */

/* A copy of a small datagram in a slab that small datagrams share: a 100-byte datagram must not hold 64 KiB until it
 * is stable. Adds a reference to *slab for the caller; NULL when the bound is reached. With `own` the bound does not count:
 * own packets are bounded by the window, and may not be lost. */
uint8_t *sc_slab_pool_copy(sc_slab_pool *pool, const uint8_t *p, size_t len, int own, sc_slab **slab);
/* The same in a slab of the caller's own, *sharing, of which it holds a reference (NULL: none yet). */
uint8_t *sc_slab_copy_into(sc_slab_pool *pool, sc_slab **sharing, const uint8_t *p, size_t len, int own, sc_slab **slab);

uint32_t sc_slab_pool_in_use(const sc_slab_pool *pool);
uint64_t sc_slab_pool_exhausted(const sc_slab_pool *pool); /* how often the bound was hit */

#endif
