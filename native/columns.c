#include "columns.h"

#include <string.h>

#define P1 0x9E3779B185EBCA87ULL
#define P2 0xC2B2AE3D27D4EB4FULL
#define P3 0x165667B19E3779F9ULL
#define P4 0x85EBCA77C2B2AE63ULL
#define P5 0x27D4EB2F165667C5ULL

static inline uint64_t rotl(uint64_t x, int r) { return x << r | x >> (64 - r); }

static inline uint64_t load64(const uint8_t *p) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return sc_get64(p);
#else
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
#endif
}

static inline uint64_t mix(uint64_t acc, uint64_t lane) { return rotl(acc + lane * P2, 31) * P1; }
static inline uint64_t merge(uint64_t hash, uint64_t acc) { return (hash ^ mix(0, acc)) * P1 + P4; }

uint64_t sc_xxh64(const uint8_t *p, size_t len, uint64_t seed) {
    const uint8_t *end = p + len;
    uint64_t hash;
    if (len >= 32) {
        uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
        for (const uint8_t *last = end - 32; p <= last; p += 32) {
            a = mix(a, load64(p));
            b = mix(b, load64(p + 8));
            c = mix(c, load64(p + 16));
            d = mix(d, load64(p + 24));
        }
        hash = rotl(a, 1) + rotl(b, 7) + rotl(c, 12) + rotl(d, 18);
        hash = merge(merge(merge(merge(hash, a), b), c), d);
    } else {
        hash = seed + P5;
    }
    hash += len;
    for (; end - p >= 8; p += 8)
        hash = rotl(hash ^ mix(0, load64(p)), 27) * P1 + P4;
    if (end - p >= 4) {
        hash = rotl(hash ^ sc_get32(p) * P1, 23) * P2 + P3;
        p += 4;
    }
    for (; p < end; p++)
        hash = rotl(hash ^ *p * P5, 11) * P1;
    hash = (hash ^ hash >> 33) * P2;
    hash = (hash ^ hash >> 29) * P3;
    return hash ^ hash >> 32;
}

int64_t sc_columns_fill(const sc_columns *out, uint64_t at, int64_t idx, const sc_columns_shared *shared,
                        const uint8_t *data, uint64_t data_len, const int32_t *offsets, uint32_t n,
                        const sc_run *runs, uint32_t n_runs) {
    uint64_t row = at;
    for (uint32_t r = 0; r < n_runs; r++) {
        const sc_run *run = &runs[r];
        if (run->first > n || run->n > n - run->first)
            return -1;
        if (run->unicast)
            continue;
        for (uint32_t i = 0; i < run->n; i++, row++) {
            int64_t begin = offsets[run->first + i], end = offsets[run->first + i + 1];
            if (begin < 0 || end < begin || (uint64_t)end > data_len)
                return -1;
            out->idx[row] = idx + (int64_t)(row - at);
            out->view_counter[row] = shared->view_counter;
            out->view_tag[row] = shared->view_tag;
            out->global_seqno[row] = run->global_seqno ? (int64_t)(run->global_seqno + i) : 0;
            out->sender[row] = (int64_t)run->sender;
            out->seqno[row] = (int64_t)run->seqno;
            out->index[row] = (int32_t)(run->index + i);
            out->length[row] = (int32_t)(end - begin);
            out->sent_ns[row] = run->sent_ns;
            out->delivered_ns[row] = shared->delivered_ns;
            out->payload_hash[row] = (int64_t)sc_xxh64(data + begin, (size_t)(end - begin), SC_HASH_SEED);
        }
    }
    return (int64_t)(row - at);
}
