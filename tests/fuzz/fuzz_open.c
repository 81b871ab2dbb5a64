/* Inputs of the path that opens sealed datagrams, under sanitizers: fuzz_open INPUTS [SEED] Each is a sealed datagram:
 * whole, or with lengths, headers, numbers, tags or sealers that lie, or rubbish; in memory of exactly its size. A
 * whole one is opened, to the bytes that were sealed; others are refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "toy_ciphers.h"

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s: input %llu, seed %llu\n", #what, (unsigned long long)input,                           \
                    (unsigned long long)seed);                                                                         \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)
#define SIZE_MAX_HERE 512
enum { WHOLE, FLIPPED, SHORTER, LONGER, HEADER, NUMBER, ANOTHER, FORMER, RUBBISH, LIES };

static unsigned long long input, seed;
static uint64_t state;

static uint64_t draw(void) { /* splitmix64 */
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static void fill(uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i += 8) {
        uint64_t drawn = draw();
        memcpy(p + i, &drawn, n - i < 8 ? n - i : 8);
    }
}

static void chance(uint8_t *p, unsigned long long n) { fill(p, n); }

/* ---- inputs */

static const sc_seal_secret secrets[2] = {{3, {1}}, {4, {2}}};
static sc_seal *sealer, *opener;
static uint64_t view; /* that the opener is in: one of 5 to 8, as ciphers of views are 0 to 3 */
static uint8_t *room[SIZE_MAX_HERE + SC_SEAL_ROOM + 64]; /* by size */

static void begin(void) {
    sc_seal_free(sealer);
    sc_seal_free(opener);
    const sc_cipher_library library = toy_library(chance);
    sealer = sc_seal_new(&library, secrets + (draw() & 1), 1, 1);
    opener = sc_seal_new(&library, secrets, 2, 2);
    CHECK(sealer && opener);
    for (uint64_t tag = 5; tag <= 8; tag++) {
        uint8_t secret[SC_SEAL_SECRET] = {(uint8_t)tag};
        CHECK(sc_seal_know(sealer, tag, (unsigned)tag - 5, secret) == 0);
        CHECK(sc_seal_know(opener, tag, (unsigned)tag - 5, secret) == 0);
    }
    view = 5 + draw() % 4;
    CHECK(sc_seal_enter(sealer, view) == 0 && sc_seal_enter(opener, view) == 0);
}

/* A plain datagram that a member seals. Returns its size. */
static size_t plain(uint8_t *p) {
    size_t size = SC_NAK_LEN(0) + draw() % (SIZE_MAX_HERE - SC_NAK_LEN(0));
    fill(p, size);
    sc_put_key_id(p, draw() % 4 ? 0 : SC_SEAL_OUTSIDE);
    sc_put_view_tag(p, draw() % 4 ? view : draw() % 10);
    return size;
}

/* The sealed datagram `p` of `n` bytes lies. Returns its new size. */
static size_t lie(int how, uint8_t *p, size_t n) {
    switch (how) {
    case FLIPPED: p[draw() % n] ^= (uint8_t)(1 << draw() % 8); return n;
    case SHORTER: return draw() % n;
    case LONGER: fill(p + n, 64); return n + 1 + draw() % 63;
    case HEADER: fill(p, 1 + draw() % SC_COMMON_HEADER); return n;
    case NUMBER: fill(p + n - 8, 8); return n;
    case RUBBISH: fill(p, n); return n;
    default: return n;
    }
}

/* The tag of the view whose secret has sealed a datagram with this number. */
static uint64_t sealed_by_view(const uint8_t *number) { return sc_get64(number) >> 48 & 0x7fff; }

/* The opener was in view `now`, which is not that of the sealer, perhaps. */
static void judge_former(const uint8_t *opened, const uint8_t *sealed, size_t size, sc_wire_result result,
                         uint64_t now) {
    uint64_t of = sealed_by_view(sealed + size + SC_SEAL_TAG);
    if (result != SC_WIRE_OK || !sc_sealed_inside(sealed) || of == now) return;
    CHECK(sc_get_view_tag(opened) == of && !sc_is_of_pair(opened));
}

static void try_one(void) {
    static uint8_t from[SIZE_MAX_HERE], sealed[SIZE_MAX_HERE + SC_SEAL_ROOM + 64], before[sizeof sealed];
    int how = (int)(draw() % LIES);
    size_t size = plain(from);
    uint64_t by = how == ANOTHER ? 2 + draw() % 9 : 1, now = how == FORMER ? 5 + (view - 4) % 4 : view;
    sc_opened opened;
    sc_seal_begin(sealer);
    CHECK(sc_seal_close(sealer, sealed, from, size, (unsigned)(draw() % 4), draw() % 3 ? 0 : 2) == 0);
    memcpy(before, sealed, sizeof sealed);
    size_t n = lie(how, sealed, size + SC_SEAL_ROOM), len = n;
    int same = how != ANOTHER && n == size + SC_SEAL_ROOM && !memcmp(before, sealed, n);
    memcpy(room[n], sealed, n);
    CHECK(sc_seal_enter(opener, now) == 0);
    sc_wire_result result = n < SC_COMMON_HEADER ? SC_WIRE_SHORT : sc_seal_check(opener, room[n], &len, by, &opened);
    if (how == FORMER) judge_former(room[n], before, size, result, now);
    CHECK(same || result != SC_WIRE_OK);
    if (result != SC_WIRE_OK) return;
    CHECK(opened.member == (sc_sealed_inside(before) ? opened.view : view));
    CHECK(len == size && !memcmp(room[n] + SC_COMMON_HEADER, from + SC_COMMON_HEADER, size - SC_COMMON_HEADER));
}

int main(int argc, char **argv) {
    unsigned long long inputs = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    state = seed;
    for (size_t i = 0; i < sizeof room / sizeof *room; i++) room[i] = malloc(i ? i : 1);
    for (input = 0; input < inputs; input++) {
        if (input % 4096 == 0) begin();
        try_one();
    }
    for (size_t i = 0; i < sizeof room / sizeof *room; i++) free(room[i]);
    sc_seal_free(sealer);
    sc_seal_free(opener);
    printf("%llu sealed datagrams, opened where whole, refused where not\n", inputs);
    return 0;
}
