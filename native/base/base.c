/* Shared by all parts: members by id and by address, and jitter. */
#include "engine/internal.h"
#include "hash/crc32c.h"

sc_peer *sc_find_peer(sc_engine *e, uint64_t id) {
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++)
        if (e->view.ids[r] == id) return e->peers[r];
    return NULL;
}

const sc_peer *sc_peer_at(const sc_engine *e, const sc_address *address) {
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++)
        if (sc_same_address(address, &e->peers[r]->address)) return e->peers[r];
    return NULL;
}

uint32_t sc_source_at(const sc_address *from) { return sc_crc32c(0, from->bytes, from->len) % SC_SOURCES; }

int sc_is_source(const sc_engine *e, const sc_address *from) {
    return sc_same_address(&e->intake.sources[sc_source_at(from)].address, from);
}

uint64_t sc_random(sc_engine *e) { /* splitmix64 */
    uint64_t z = e->random += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
