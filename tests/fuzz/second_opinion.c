/* The ciphers of groups with a key, written from their descriptions and without special instructions, against those of
 * a library: fast enough for a million messages of each. Little-endian machines only. */
#pragma GCC optimize("O2")
#include <string.h>

#include "seal/seal.h"

#define MESSAGE_MAX 9000
#define HEADER_MAX 64

/* ---- AES */

static uint8_t sbox[256];
static uint32_t mixed[256]; /* SubBytes and MixColumns, of a byte in the first row */

static uint8_t twice(uint8_t x) { return (uint8_t)(x << 1 ^ (x & 0x80 ? 0x1b : 0)); }
static uint32_t left32(uint32_t x, int n) { return x << n | x >> (32 - n); }

static void build_tables(void) {
    uint8_t p = 1, q = 1;
    do {
        p ^= twice(p);
        q ^= (uint8_t)(q << 1);
        q ^= (uint8_t)(q << 2);
        q ^= (uint8_t)(q << 4);
        if (q & 0x80) q ^= 9;
        unsigned t = q * 0x101u;
        sbox[p] = (uint8_t)(q ^ t >> 7 ^ t >> 6 ^ t >> 5 ^ t >> 4 ^ 0x63);
    } while (p != 1);
    sbox[0] = 0x63;
    for (int i = 0; i < 256; i++) {
        uint32_t s = sbox[i], d = twice(sbox[i]);
        mixed[i] = d | s << 8 | s << 16 | (s ^ d) << 24;
    }
}

typedef struct {
    uint32_t w[4];
} block;

static block load(const uint8_t *p) {
    block b;
    memcpy(&b, p, sizeof b);
    return b;
}
static block both(block a, block b) {
    for (int i = 0; i < 4; i++) a.w[i] ^= b.w[i];
    return a;
}
static block common(block a, block b) {
    for (int i = 0; i < 4; i++) a.w[i] &= b.w[i];
    return a;
}
static block aes_round(block in, block key) {
    const uint8_t *b = (const uint8_t *)&in;
    for (int c = 0; c < 4; c++)
        key.w[c] ^= mixed[b[4 * c]] ^ left32(mixed[b[(4 * c + 5) % 16]], 8) ^ left32(mixed[b[(4 * c + 10) % 16]], 16) ^
                    left32(mixed[b[(4 * c + 15) % 16]], 24);
    return key;
}

/* ---- AEGIS (RFC 10032) */

static const uint8_t C0[16] = {0x00, 0x01, 0x01, 0x02, 0x03, 0x05, 0x08, 0x0d,
                               0x15, 0x22, 0x37, 0x59, 0x90, 0xe9, 0x79, 0x62};
static const uint8_t C1[16] = {0xdb, 0x3d, 0x18, 0x55, 0x6d, 0xc2, 0x2f, 0xf1,
                               0x20, 0x11, 0x31, 0x42, 0x73, 0xb5, 0x28, 0xdd};

typedef struct {
    block s[8];
    int n; /* 8: AEGIS-128L; 6: AEGIS-256 */
} aegis;

static void update(aegis *a, block m0, block m1) {
    block last = a->s[a->n - 1];
    for (int i = a->n - 1; i > 0; i--) a->s[i] = aes_round(a->s[i - 1], a->s[i]);
    a->s[0] = both(aes_round(last, a->s[0]), m0);
    if (a->n == 8) a->s[4] = both(a->s[4], m1);
}

static void aegis_begin(aegis *a, int n, const uint8_t *nonce, const uint8_t *key) {
    block c0 = load(C0), c1 = load(C1), k0 = load(key), n0 = load(nonce), x = both(k0, n0);
    a->n = n;
    if (n == 8) {
        block s[8] = {x, c1, c0, c1, x, both(k0, c0), both(k0, c1), both(k0, c0)};
        memcpy(a->s, s, sizeof s);
        for (int i = 0; i < 10; i++) update(a, n0, k0);
        return;
    }
    block k1 = load(key + 16), y = both(k1, load(nonce + 16)), parts[4] = {k0, k1, x, y};
    block s[6] = {x, y, c1, c0, both(k0, c0), both(k1, c1)};
    memcpy(a->s, s, sizeof s);
    for (int i = 0; i < 16; i++) update(a, parts[i % 4], k0);
}

/* `to`: NULL, to absorb only. */
static void aegis_take(aegis *a, uint8_t *to, const uint8_t *from, size_t len) {
    size_t rate = a->n == 8 ? 32 : 16;
    for (size_t at = 0; at < len; at += rate) {
        uint8_t part[32] = {0};
        size_t n = len - at < rate ? len - at : rate;
        memcpy(part, from + at, n);
        if (to) {
            const block *s = a->s;
            block z[2];
            if (a->n == 8) {
                z[0] = both(both(s[6], s[1]), common(s[2], s[3]));
                z[1] = both(both(s[2], s[5]), common(s[6], s[7]));
            } else
                z[0] = z[1] = both(both(s[1], s[4]), both(s[5], common(s[2], s[3])));
            for (size_t i = 0; i < n; i++) to[at + i] = part[i] ^ ((uint8_t *)z)[i];
        }
        update(a, load(part), load(part + 16));
    }
}

static void aegis_seal(int n, uint8_t *c, const uint8_t *m, size_t len, const uint8_t *ad, size_t ad_len,
                       const uint8_t *nonce, const uint8_t *key) {
    aegis a;
    aegis_begin(&a, n, nonce, key);
    aegis_take(&a, NULL, ad, ad_len);
    aegis_take(&a, c, m, len);
    uint64_t bits[2] = {8 * ad_len, 8 * len};
    block t = both(load((uint8_t *)bits), a.s[n == 8 ? 2 : 3]), tag[2];
    for (int i = 0; i < 7; i++) update(&a, t, t);
    const block *s = a.s;
    tag[0] = n == 8 ? both(both(s[0], s[1]), both(s[2], s[3])) : both(both(s[0], s[1]), s[2]);
    tag[1] = n == 8 ? both(both(s[4], s[5]), both(s[6], s[7])) : both(both(s[3], s[4]), s[5]);
    memcpy(c + len, tag, 32);
}

/* ---- AES-256-GCM (FIPS 197, SP 800-38D) */

static void schedule(block keys[15], const uint8_t *key) {
    uint8_t w[60][4], constant = 1;
    memcpy(w, key, 32);
    for (int i = 8; i < 60; i++) {
        uint8_t t[4];
        for (int k = 0; k < 4; k++) t[k] = i % 4 ? w[i - 1][k] : sbox[w[i - 1][i % 8 ? k : (k + 1) % 4]];
        if (i % 8 == 0) {
            t[0] ^= constant;
            constant = twice(constant);
        }
        for (int k = 0; k < 4; k++) w[i][k] = w[i - 8][k] ^ t[k];
    }
    memcpy(keys, w, sizeof w);
}

static block aes(const block keys[15], const uint8_t *nonce, uint32_t count) {
    uint8_t in[16] = {0}, moved[16];
    if (nonce) memcpy(in, nonce, 12);
    for (int i = 0; i < 4; i++) in[12 + i] = (uint8_t)(count >> (24 - 8 * i));
    block b = both(load(in), keys[0]);
    for (int i = 1; i < 14; i++) b = aes_round(b, keys[i]);
    for (int i = 0; i < 16; i++) moved[i] = sbox[((uint8_t *)&b)[(i + 4 * (i % 4)) % 16]];
    return both(load(moved), keys[14]);
}

typedef unsigned __int128 wide;
static wide big(const uint8_t *p) {
    wide x = 0;
    for (int i = 0; i < 16; i++) x = x << 8 | p[i];
    return x;
}

static wide times(wide x, wide y) {
    wide z = 0;
    for (int bit = 127; bit >= 0; bit--) {
        if (x >> bit & 1) z ^= y;
        y = y >> 1 ^ (y & 1 ? (wide)0xe1 << 120 : 0);
    }
    return z;
}

static wide hashed(wide sum, wide by, const uint8_t *p, size_t len) {
    for (size_t at = 0; at < len; at += 16) {
        uint8_t part[16] = {0};
        memcpy(part, p + at, len - at < 16 ? len - at : 16);
        sum = times(sum ^ big(part), by);
    }
    return sum;
}

static void gcm_seal(uint8_t *c, const uint8_t *m, size_t len, const uint8_t *ad, size_t ad_len, const uint8_t *nonce,
                     const uint8_t *key) {
    block keys[15], pad, first;
    schedule(keys, key);
    for (size_t i = 0; i < len; i++) {
        if (i % 16 == 0) pad = aes(keys, nonce, (uint32_t)(2 + i / 16));
        c[i] = m[i] ^ ((uint8_t *)&pad)[i % 16];
    }
    block zero = aes(keys, NULL, 0);
    wide by = big((uint8_t *)&zero), sum = hashed(hashed(0, by, ad, ad_len), by, c, len);
    sum = times(sum ^ ((wide)(8 * ad_len) << 64 | 8 * len), by);
    first = aes(keys, nonce, 1);
    for (int i = 0; i < 16; i++) c[len + i] = (uint8_t)(sum >> (120 - 8 * i)) ^ ((uint8_t *)&first)[i];
}

/* ---- XChaCha20-Poly1305 (RFC 8439, draft-irtf-cfrg-xchacha) */

static void quarter(uint32_t *x, int a, int b, int c, int d) {
    x[a] += x[b], x[d] = left32(x[d] ^ x[a], 16);
    x[c] += x[d], x[b] = left32(x[b] ^ x[c], 12);
    x[a] += x[b], x[d] = left32(x[d] ^ x[a], 8);
    x[c] += x[d], x[b] = left32(x[b] ^ x[c], 7);
}

/* `last`: 16 bytes, a count and a nonce. */
static void chacha(uint32_t x[16], const uint8_t *key, const uint8_t *last) {
    memcpy(x, "expand 32-byte k", 16);
    memcpy(x + 4, key, 32);
    memcpy(x + 12, last, 16);
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 4; k++) quarter(x, k, 4 + k, 8 + k, 12 + k);
        for (int k = 0; k < 4; k++) quarter(x, k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4);
    }
}

static void stream(uint32_t x[16], const uint8_t *key, uint32_t count, const uint8_t *nonce) {
    uint8_t last[16] = {0};
    uint32_t before[16];
    memcpy(last, &count, 4);
    memcpy(last + 8, nonce + 16, 8);
    memcpy(before, "expand 32-byte k", 16);
    memcpy(before + 4, key, 32);
    memcpy(before + 12, last, 16);
    chacha(x, key, last);
    for (int i = 0; i < 16; i++) x[i] += before[i];
}

typedef struct {
    uint64_t h[5], r[5]; /* 26 bits each */
} poly;

static void limbs(uint64_t *to, wide low, uint64_t high) {
    for (int i = 0; i < 5; i++) to[i] = (uint64_t)(low >> (26 * i)) & 0x3ffffff;
    to[4] += high << 24;
}

static void poly_take(poly *p, const uint8_t *from, size_t len) {
    for (size_t at = 0; at < len; at += 16) {
        uint64_t m[5], d[5] = {0}, carry = 0;
        wide low = 0;
        memcpy(&low, from + at, len - at < 16 ? len - at : 16);
        limbs(m, low, 1); /* the parts are padded, so each block is whole */
        for (int i = 0; i < 5; i++) p->h[i] += m[i];
        for (int i = 0; i < 5; i++)
            for (int k = 0; k < 5; k++) d[(i + k) % 5] += p->h[i] * p->r[k] * (i + k > 4 ? 5 : 1);
        for (int i = 0; i < 5; i++) {
            d[i] += carry;
            carry = d[i] >> 26;
            p->h[i] = d[i] & 0x3ffffff;
        }
        p->h[0] += carry * 5;
        p->h[1] += p->h[0] >> 26;
        p->h[0] &= 0x3ffffff;
    }
}

static wide poly_end(poly *p) {
    for (int k = 0; k < 2; k++) /* all carries, twice */
        for (int i = 0; i < 5; i++) {
            uint64_t carry = p->h[i] >> 26;
            p->h[i] &= 0x3ffffff;
            p->h[(i + 1) % 5] += i == 4 ? 5 * carry : carry;
        }
    uint64_t g[5], carry = 5;
    for (int i = 0; i < 5; i++) {
        g[i] = p->h[i] + carry;
        carry = g[i] >> 26;
        g[i] &= 0x3ffffff;
    }
    wide x = 0; /* carry: the sum is 2^130 - 5 or more */
    for (int i = 0; i < 5; i++) x += (wide)(carry ? g[i] : p->h[i]) << (26 * i);
    return x;
}

static void xchacha_seal(uint8_t *c, const uint8_t *m, size_t len, const uint8_t *ad, size_t ad_len,
                         const uint8_t *nonce, const uint8_t *key) {
    uint32_t x[16];
    uint8_t sub[32];
    chacha(x, key, nonce);
    memcpy(sub, x, 16);
    memcpy(sub + 16, x + 12, 16);
    for (size_t i = 0; i < len; i++) {
        if (i % 64 == 0) stream(x, sub, (uint32_t)(1 + i / 64), nonce);
        c[i] = m[i] ^ ((uint8_t *)x)[i % 64];
    }
    stream(x, sub, 0, nonce);
    poly p = {{0}, {0}};
    wide r, s;
    memcpy(&r, x, 16);
    memcpy(&s, x + 4, 16);
    limbs(p.r, r & ((wide)0x0ffffffc0ffffffc << 64 | 0x0ffffffc0fffffff), 0);
    poly_take(&p, ad, ad_len);
    poly_take(&p, c, len);
    uint64_t lengths[2] = {ad_len, len};
    poly_take(&p, (uint8_t *)lengths, 16);
    s += poly_end(&p);
    memcpy(c + len, &s, 16);
}

/* ---- the comparison */

static uint64_t drawn;
static uint64_t draw(void) {
    drawn ^= drawn << 13;
    drawn ^= drawn >> 7;
    return drawn ^= drawn << 17;
}
static void fill(uint8_t *p, size_t len) {
    for (size_t at = 0; at < len; at += 8) {
        uint64_t x = draw();
        memcpy(p + at, &x, len - at < 8 ? len - at : 8);
    }
}

static size_t own(unsigned cipher, uint8_t *c, const uint8_t *m, size_t len, const uint8_t *ad, size_t ad_len,
                  const uint8_t *nonce, const uint8_t *key) {
    switch (cipher) {
    case SC_CIPHER_AEGIS_128L: return aegis_seal(8, c, m, len, ad, ad_len, nonce, key), len + 32;
    case SC_CIPHER_AEGIS_256: return aegis_seal(6, c, m, len, ad, ad_len, nonce, key), len + 32;
    case SC_CIPHER_AES_256_GCM: return gcm_seal(c, m, len, ad, ad_len, nonce, key), len + 16;
    default: return xchacha_seal(c, m, len, ad, ad_len, nonce, key), len + 16;
    }
}

/* The first of so many random messages of which the library and this file say something else, or that the library does
 * not open in place, or opens though a bit is another one. -1: none. */
long disagreement(unsigned cipher, sc_cipher_seal seal, sc_cipher_open open, long n, uint64_t seed) {
    static uint8_t m[MESSAGE_MAX + 16], ours[MESSAGE_MAX + 48], theirs[MESSAGE_MAX + 64];
    uint8_t ad[HEADER_MAX + 8], nonce[32], key[32];
    drawn = seed;
    build_tables();
    for (long i = 0; i < n; i++) {
        uint64_t kind = draw();
        size_t len = draw() % (kind % 16 ? 400 : MESSAGE_MAX + 1), ad_len = draw() % (HEADER_MAX + 1);
        uint8_t *at = theirs + draw() % 16;
        fill(m, len), fill(ad, ad_len), fill(nonce, 32), fill(key, 32);
        size_t sealed = own(cipher, ours, m, len, ad, ad_len, nonce, key);
        memcpy(at, m, len);
        if (seal(at, NULL, at, len, ad, ad_len, NULL, nonce, key) || memcmp(at, ours, sealed)) return i;
        size_t bit = draw() % (8 * sealed);
        at[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (!open(at, NULL, NULL, at, sealed, ad, ad_len, nonce, key)) return i;
        memcpy(at, ours, sealed);
        if (open(at, NULL, NULL, at, sealed, ad, ad_len, nonce, key) || memcmp(at, m, len)) return i;
    }
    return -1;
}
