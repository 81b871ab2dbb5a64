/* Receive buffers: reference-counted slabs from a bounded pool. A received packet stays in its place; each user
 * (receive window, delivery queue, retransmission) holds a reference to its slab.
 * Not thread-safe: a pool and its slabs are used under the engine's lock. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SC_SLAB_BYTES 65536

typedef struct sc_slab sc_slab;
typedef struct sc_slab_pool sc_slab_pool;

struct sc_slab {
    sc_slab_pool *pool;
    sc_slab *next; /* free list */
    uint32_t refs;
    uint32_t used; /* bytes taken by the sharers */
    uint64_t lease; /* grows each time the slab is handed out */
    int own; /* holds copies of own packets: does not count towards the bound */
    uint8_t *data; /* SC_SLAB_BYTES of an arena */
};

/* The slab for the next small datagrams of one origin, or of all that are received into slots. Without a reference of
 * its own: the datagrams keep the slab alive, which goes with the last of them. So they fill a slab before the next is
 * taken, however soon each is passed on, and an origin without any holds nothing. */
typedef struct {
    sc_slab *slab;
    uint64_t lease; /* that the slab had */
} sc_sharing;

/* At most `max_slabs` are in use at a time, not counting those of own packets. NULL without memory. */
sc_slab_pool *sc_slab_pool_new(uint32_t max_slabs);
void sc_slab_pool_free(sc_slab_pool *pool);

/* A slab with one reference, or NULL when the bound is reached (counted). */
sc_slab *sc_slab_get(sc_slab_pool *pool);
static inline void sc_slab_ref(sc_slab *slab) { slab->refs++; }
void sc_slab_unref(sc_slab *slab); /* back to the free list with the last reference */

/* Room for `len` bytes of a slab that small datagrams share. Adds a reference to *slab for the caller; NULL when the
 * bound is reached. A sharing of zeros has no slab yet. */
uint8_t *sc_slab_share(sc_slab_pool *pool, sc_sharing *sharing, size_t len, sc_slab **slab);

/* A copy of a small datagram in a slab that small datagrams share: a 100-byte datagram must not hold 64 KiB until
 * stable. As sc_slab_share. */
uint8_t *sc_slab_copy(sc_slab_pool *pool, sc_sharing *sharing, const uint8_t *p, size_t len, sc_slab **slab);
/* The same for an own packet; without `sharing` the copies delivered here share. The bound does not apply: own packets
 * are bounded by the window, and must not be lost. */
uint8_t *sc_slab_copy_own(sc_slab_pool *pool, sc_sharing *sharing, const uint8_t *p, size_t len, sc_slab **slab);

/* Half of the bound is free: small datagrams may keep slabs that hold little else. Otherwise they are copied
 * together. */
int sc_slab_pool_ample(const sc_slab_pool *pool);

/* Only the last eighth is free: reserved for packets in sequence. Otherwise packets beyond gaps could take all slabs,
 * and the packets that fill the gaps, and so free slabs, would never find one. */
int sc_slab_pool_scarce(const sc_slab_pool *pool);
uint32_t sc_slab_pool_in_use(const sc_slab_pool *pool);
uint64_t sc_slab_pool_exhausted(const sc_slab_pool *pool); /* how often the bound was reached */
