#pragma once

/* Ciphers that protect nothing, in the place of a library's, with tags of 16 bytes and of 32. */
#include <string.h>

#include "seal/seal.h"

#define TOY_KEY 16
#define TOY_NONCE 12

static uint64_t toy_mix(uint64_t h, const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3;
    return h;
}

static uint64_t toy_tag(const uint8_t *p, size_t n, const uint8_t *ad, size_t ad_n, const uint8_t *nonce,
                        const uint8_t *key) {
    return toy_mix(toy_mix(toy_mix(toy_mix(1469598103934665603u, key, TOY_KEY), nonce, TOY_NONCE), ad, ad_n), p, n);
}

static void toy_turn(uint8_t *to, const uint8_t *from, size_t n, const uint8_t *nonce, const uint8_t *key) {
    for (size_t i = 0; i < n; i++) to[i] = from[i] ^ key[i % TOY_KEY] ^ nonce[i % TOY_NONCE];
}

#define TOY(tag)                                                                                                       \
    static int toy_seal_##tag(uint8_t *c, unsigned long long *c_n, const uint8_t *m, unsigned long long n,             \
                              const uint8_t *ad, unsigned long long ad_n, const uint8_t *unused, const uint8_t *nonce, \
                              const uint8_t *key) {                                                                    \
        (void)c_n, (void)unused;                                                                                       \
        toy_turn(c, m, n, nonce, key);                                                                                 \
        memset(c + n, 0, tag);                                                                                         \
        sc_put64(c + n, toy_tag(c, n, ad, ad_n, nonce, key));                                                          \
        return 0;                                                                                                      \
    }                                                                                                                  \
    static int toy_open_##tag(uint8_t *m, unsigned long long *m_n, uint8_t *unused, const uint8_t *c,                  \
                              unsigned long long n, const uint8_t *ad, unsigned long long ad_n, const uint8_t *nonce,  \
                              const uint8_t *key) {                                                                    \
        (void)m_n, (void)unused;                                                                                       \
        if (n < tag) return -1;                                                                                        \
        n -= tag;                                                                                                      \
        uint8_t right[tag] = {0};                                                                                      \
        sc_put64(right, toy_tag(c, n, ad, ad_n, nonce, key));                                                          \
        if (memcmp(right, c + n, tag)) return -1;                                                                      \
        toy_turn(m, c, n, nonce, key);                                                                                 \
        return 0;                                                                                                      \
    }
TOY(16)
TOY(32)
#undef TOY

static int toy_hash(uint8_t *out, size_t n, const uint8_t *in, unsigned long long in_n, const uint8_t *key,
                    size_t key_n, const uint8_t *salt, const uint8_t *person) {
    (void)salt, (void)person;
    uint64_t h = toy_mix(toy_mix(1, key, key_n), in, in_n);
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)((h = h * 6364136223846793005u + 1) >> 56);
    return 0;
}

static sc_cipher_library toy_library(sc_cipher_random random) {
    return (sc_cipher_library){.ciphers = {{toy_seal_16, toy_open_16},
                                           {toy_seal_32, toy_open_32},
                                           {toy_seal_32, toy_open_32},
                                           {toy_seal_16, toy_open_16}},
                               .hash = toy_hash,
                               .random = random};
}
