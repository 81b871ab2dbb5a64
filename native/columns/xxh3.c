#include "columns/xxh3.h"

#include <string.h>

#include "columns/mix.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define VECTORS __attribute__((target("avx2")))
#endif

#define P32_1 0x9E3779B1U
#define P32_2 0x85EBCA77U
#define P32_3 0xC2B2AE3DU
#define P64_1 0x9E3779B185EBCA87ULL
#define P64_2 0xC2B2AE3D27D4EB4FULL
#define P64_3 0x165667B19E3779F9ULL
#define P64_4 0x85EBCA77C2B2AE63ULL
#define P64_5 0x27D4EB2F165667C5ULL
#define MIX_1 0x165667919E3779F9ULL
#define MIX_2 0x9FB21C651E98DF25ULL

#define STRIPE SC_XXH3_STRIPE
#define LANES 8
#define SECRET_BYTES 192
#define BLOCK_STRIPES ((SECRET_BYTES - STRIPE) / 8)
#if BLOCK_STRIPES * STRIPE != SC_XXH3_BLOCK
#error "a block is of another size"
#endif

static const uint8_t secret[SECRET_BYTES] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4,
    0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
    0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43,
    0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
    0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
    0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7,
    0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78,
    0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16,
    0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
    0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

#define SCRAMBLE (secret + SECRET_BYTES - STRIPE)
#define LAST (secret + SECRET_BYTES - STRIPE - 7)

static inline uint32_t load32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t load64(const uint8_t *p) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return load32(p) | (uint64_t)load32(p + 4) << 32;
#else
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
#endif
}

static inline uint64_t rotl(uint64_t x, int r) { return x << r | x >> (64 - r); }

static inline uint64_t swap64(uint64_t x) {
    x = (x & 0x00FF00FF00FF00FFULL) << 8 | (x >> 8 & 0x00FF00FF00FF00FFULL);
    x = (x & 0x0000FFFF0000FFFFULL) << 16 | (x >> 16 & 0x0000FFFF0000FFFFULL);
    return x << 32 | x >> 32;
}

static inline uint64_t avalanche(uint64_t h) {
    h = (h ^ h >> 37) * MIX_1;
    return h ^ h >> 32;
}

static inline uint64_t avalanche64(uint64_t h) {
    h = (h ^ h >> 33) * P64_2;
    h = (h ^ h >> 29) * P64_3;
    return h ^ h >> 32;
}

static inline uint64_t mix16(const uint8_t *p, size_t key) {
    return sc_mix(load64(p) ^ load64(secret + key), load64(p + 8) ^ load64(secret + key + 8));
}

static uint64_t to16(const uint8_t *p, size_t len) {
    if (len > 8) {
        uint64_t low = load64(p) ^ load64(secret + 24) ^ load64(secret + 32);
        uint64_t high = load64(p + len - 8) ^ load64(secret + 40) ^ load64(secret + 48);
        return avalanche(len + swap64(low) + high + sc_mix(low, high));
    }
    if (len >= 4) {
        uint64_t h = (load32(p + len - 4) + ((uint64_t)load32(p) << 32)) ^ load64(secret + 8) ^ load64(secret + 16);
        h ^= rotl(h, 49) ^ rotl(h, 24);
        h *= MIX_2;
        h ^= (h >> 35) + len;
        h *= MIX_2;
        return h ^ h >> 28;
    }
    if (!len) return avalanche64(load64(secret + 56) ^ load64(secret + 64));
    uint32_t all = (uint32_t)p[0] << 16 | (uint32_t)p[len >> 1] << 24 | p[len - 1] | (uint32_t)len << 8;
    return avalanche64(all ^ load32(secret) ^ load32(secret + 4));
}

static uint64_t to240(const uint8_t *p, size_t len) {
    uint64_t h = len * P64_1;
    if (len <= 128) {
        for (size_t i = 0; i <= (len - 1) / 32; i++)
            h += mix16(p + 16 * i, 32 * i) + mix16(p + len - 16 * (i + 1), 32 * i + 16);
        return avalanche(h);
    }
    for (size_t i = 0; i < 8; i++) h += mix16(p + 16 * i, 16 * i);
    h = avalanche(h);
    for (size_t i = 8; i < len / 16; i++) h += mix16(p + 16 * i, 16 * (i - 8) + 3);
    return avalanche(h + mix16(p + len - 16, 136 - 17));
}

/* Adds up the lanes over all stripes; `last` is the last stripe, which may overlap the one before, or NULL if more
 * comes. */
typedef void summing(uint64_t *lane, const uint8_t *p, size_t stripes, const uint8_t *last);

static inline void add_stripe(uint64_t *lane, const uint8_t *p, const uint8_t *key) {
    for (int i = 0; i < LANES; i++) {
        uint64_t value = load64(p + 8 * i), mixed = value ^ load64(key + 8 * i);
        lane[i ^ 1] += value;
        lane[i] += (mixed & 0xFFFFFFFF) * (mixed >> 32);
    }
}

static void sum_plain(uint64_t *lane, const uint8_t *p, size_t stripes, const uint8_t *last) {
    for (size_t at = 0; stripes-- > 0; p += STRIPE) {
        add_stripe(lane, p, secret + 8 * at);
        if (++at < BLOCK_STRIPES) continue;
        at = 0;
        for (int i = 0; i < LANES; i++) lane[i] = (lane[i] ^ lane[i] >> 47 ^ load64(SCRAMBLE + 8 * i)) * P32_1;
    }
    if (last) add_stripe(lane, last, LAST);
}

static summing *sum = sum_plain;

#ifdef VECTORS

VECTORS static inline __m256i load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }

VECTORS static inline __m256i with_half_stripe(__m256i lanes, const uint8_t *p, const uint8_t *key) {
    __m256i value = load(p), mixed = _mm256_xor_si256(value, load(key));
    __m256i product = _mm256_mul_epu32(mixed, _mm256_srli_epi64(mixed, 32));
    return _mm256_add_epi64(_mm256_add_epi64(lanes, _mm256_shuffle_epi32(value, 0x4E)), product);
}

VECTORS static inline __m256i scrambled(__m256i lanes, const uint8_t *key) {
    __m256i mixed = _mm256_xor_si256(_mm256_xor_si256(lanes, _mm256_srli_epi64(lanes, 47)), load(key));
    __m256i prime = _mm256_set1_epi64x(P32_1), high = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime);
    return _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), _mm256_slli_epi64(high, 32));
}

VECTORS static void sum_vectors(uint64_t *lane, const uint8_t *p, size_t stripes, const uint8_t *last) {
    __m256i a = load((const uint8_t *)lane), b = load((const uint8_t *)(lane + 4));
    while (stripes) {
        size_t n = stripes < BLOCK_STRIPES ? stripes : BLOCK_STRIPES;
        for (size_t at = 0; at < n; at++, p += STRIPE) {
            a = with_half_stripe(a, p, secret + 8 * at);
            b = with_half_stripe(b, p + 32, secret + 8 * at + 32);
        }
        if (n == BLOCK_STRIPES) {
            a = scrambled(a, SCRAMBLE);
            b = scrambled(b, SCRAMBLE + 32);
        }
        stripes -= n;
    }
    if (last) {
        a = with_half_stripe(a, last, LAST);
        b = with_half_stripe(b, last + 32, LAST + 32);
    }
    _mm256_storeu_si256((__m256i *)lane, a);
    _mm256_storeu_si256((__m256i *)(lane + 4), b);
}

/* Before main and before any thread, so that no call needs a lock. */
__attribute__((constructor)) static void choose(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) sum = sum_vectors;
}

#endif

static const uint64_t start[LANES] = {P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1};

static uint64_t merged(const uint64_t *lane, uint64_t len) {
    uint64_t h = len * P64_1;
    for (int i = 0; i < LANES; i += 2)
        h += sc_mix(lane[i] ^ load64(secret + 11 + 8 * i), lane[i + 1] ^ load64(secret + 19 + 8 * i));
    return avalanche(h);
}

static uint64_t longer(const uint8_t *p, size_t len, summing *add_up) {
    uint64_t lane[LANES];
    memcpy(lane, start, sizeof lane);
    add_up(lane, p, (len - 1) / STRIPE, p + len - STRIPE);
    return merged(lane, len);
}

static inline uint64_t hash(const uint8_t *p, size_t len, summing *add_up) {
    if (len <= 16) return to16(p, len);
    if (len <= 240) return to240(p, len);
    return longer(p, len, add_up);
}

uint64_t sc_xxh3(const uint8_t *p, size_t len) { return hash(p, len, sum); }
uint64_t sc_xxh3_plain(const uint8_t *p, size_t len) { return hash(p, len, sum_plain); }

void sc_xxh3_begin(sc_xxh3_state *s) {
    memcpy(s->lane, start, sizeof s->lane);
    s->len = s->waiting = 0;
}

/* Sums up whole blocks that are not the end, and keeps their last stripe. */
static void sum_blocks(sc_xxh3_state *s, const uint8_t *p, size_t blocks) {
    sum(s->lane, p, blocks * BLOCK_STRIPES, NULL);
    memcpy(s->last, p + blocks * SC_XXH3_BLOCK - STRIPE, STRIPE);
}

void sc_xxh3_add(sc_xxh3_state *s, const uint8_t *p, size_t len) {
    s->len += len;
    while (len) {
        if (s->waiting == SC_XXH3_BLOCK) {
            sum_blocks(s, s->last + STRIPE, 1);
            s->waiting = 0;
        }
        if (!s->waiting && len > SC_XXH3_BLOCK) {
            size_t blocks = (len - 1) / SC_XXH3_BLOCK;
            sum_blocks(s, p, blocks);
            p += blocks * SC_XXH3_BLOCK;
            len -= blocks * SC_XXH3_BLOCK;
        }
        size_t room = SC_XXH3_BLOCK - s->waiting, n = len < room ? len : room;
        memcpy(s->last + STRIPE + s->waiting, p, n);
        s->waiting += n;
        p += n;
        len -= n;
    }
}

uint64_t sc_xxh3_end(const sc_xxh3_state *s) {
    const uint8_t *waiting = s->last + STRIPE;
    if (s->len <= SC_XXH3_BLOCK) return sc_xxh3(waiting, s->waiting);
    uint64_t lane[LANES];
    memcpy(lane, s->lane, sizeof lane);
    sum(lane, waiting, (s->waiting - 1) / STRIPE, waiting + s->waiting - STRIPE);
    return merged(lane, s->len);
}
