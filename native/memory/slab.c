#include "memory/slab.h"

#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"

#define ARENA_SLABS (SC_HUGE_PAGE / SC_SLAB_BYTES)

/* Slabs are made by the arena, a huge page each. */
typedef struct arena {
    struct arena *next;
    uint8_t *data;
    sc_slab slabs[ARENA_SLABS];
} arena;

struct sc_slab_pool {
    arena *arenas; /* newest first; the first `taken` slabs of the newest exist */
    uint32_t taken;
    sc_slab *spare; /* free list */
    sc_sharing own; /* of own packets */
    uint32_t in_use, own_in_use, max;
    uint64_t exhausted;
};

sc_slab_pool *sc_slab_pool_new(uint32_t max_slabs) {
    sc_slab_pool *pool = calloc(1, sizeof *pool);
    if (pool) pool->max = max_slabs;
    return pool;
}

void sc_slab_pool_free(sc_slab_pool *pool) {
    if (!pool) return;
    while (pool->arenas) {
        arena *a = pool->arenas;
        pool->arenas = a->next;
        free(a->data);
        free(a);
    }
    free(pool);
}

static sc_slab *make(sc_slab_pool *pool) {
    if (!pool->arenas || pool->taken == ARENA_SLABS) {
        arena *a = calloc(1, sizeof *a);
        if (!a || !(a->data = sc_large_alloc(SC_HUGE_PAGE))) {
            free(a);
            return NULL;
        }
        a->next = pool->arenas;
        pool->arenas = a;
        pool->taken = 0;
    }
    sc_slab *slab = &pool->arenas->slabs[pool->taken];
    slab->data = pool->arenas->data + (size_t)pool->taken++ * SC_SLAB_BYTES;
    return slab;
}

static sc_slab *get(sc_slab_pool *pool, int own) {
    sc_slab *slab = NULL;
    if (own || pool->in_use - pool->own_in_use < pool->max) {
        if ((slab = pool->spare))
            pool->spare = slab->next;
        else
            slab = make(pool);
    }
    if (!slab) {
        pool->exhausted++;
        return NULL;
    }
    slab->pool = pool;
    slab->next = NULL;
    slab->refs = 1;
    slab->used = 0;
    slab->lease++;
    slab->own = own;
    pool->in_use++;
    pool->own_in_use += (uint32_t)own;
    return slab;
}

sc_slab *sc_slab_get(sc_slab_pool *pool) { return get(pool, 0); }

void sc_slab_unref(sc_slab *slab) {
    if (--slab->refs) return;
    slab->next = slab->pool->spare;
    slab->pool->spare = slab;
    slab->pool->in_use--;
    slab->pool->own_in_use -= (uint32_t)slab->own;
}

static uint8_t *share(sc_slab_pool *pool, sc_sharing *sharing, size_t len, int own, sc_slab **slab) {
    size_t room = (len + 15) & ~(size_t)15;
    if (room > SC_SLAB_BYTES) return NULL;
    sc_slab *into = sharing->slab;
    if (into && into->lease == sharing->lease && into->refs && into->used + room <= SC_SLAB_BYTES) {
        sc_slab_ref(into);
    } else {
        into = get(pool, own); /* its first reference is the caller's */
        if (!into) return NULL;
        *sharing = (sc_sharing){into, into->lease};
    }
    uint8_t *part = into->data + into->used;
    into->used += (uint32_t)room;
    *slab = into;
    return part;
}

uint8_t *sc_slab_share(sc_slab_pool *pool, sc_sharing *sharing, size_t len, sc_slab **slab) {
    return share(pool, sharing, len, 0, slab);
}

static uint8_t *copy(sc_slab_pool *pool, sc_sharing *sharing, const uint8_t *p, size_t len, int own, sc_slab **slab) {
    uint8_t *to = share(pool, sharing, len, own, slab);
    return to ? memcpy(to, p, len) : NULL;
}

uint8_t *sc_slab_copy(sc_slab_pool *pool, sc_sharing *sharing, const uint8_t *p, size_t len, sc_slab **slab) {
    return copy(pool, sharing, p, len, 0, slab);
}

uint8_t *sc_slab_copy_own(sc_slab_pool *pool, sc_sharing *sharing, const uint8_t *p, size_t len, sc_slab **slab) {
    return copy(pool, sharing ? sharing : &pool->own, p, len, 1, slab);
}

int sc_slab_pool_ample(const sc_slab_pool *pool) { return pool->in_use - pool->own_in_use <= pool->max / 2; }

int sc_slab_pool_scarce(const sc_slab_pool *pool) {
    return pool->in_use - pool->own_in_use + pool->max / 8 + 1 > pool->max;
}

uint32_t sc_slab_pool_in_use(const sc_slab_pool *pool) { return pool->in_use; }
uint64_t sc_slab_pool_exhausted(const sc_slab_pool *pool) { return pool->exhausted; }
