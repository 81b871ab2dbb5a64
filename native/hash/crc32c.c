#include "hash/crc32c.h"

#include <string.h>

/* ---- the portable kernel: eight tables, eight bytes at a time ------------------------------------------------ */

/* Table k holds the CRC of one byte followed by k zero bytes. CRCs are linear, so 8 constants, one per bit, make the
 * 256 entries of a table; the compiler does it, and nothing is left to initialise. */
#define BIT(i, n, c) (((i) >> (n)) & 1 ? (c) : 0u)
#define ONE(i, a, b, c, d, e, f, g, h)                                                                                 \
    BIT(i, 0, a) ^ BIT(i, 1, b) ^ BIT(i, 2, c) ^ BIT(i, 3, d) ^ BIT(i, 4, e) ^ BIT(i, 5, f) ^ BIT(i, 6, g) ^           \
        BIT(i, 7, h)
#define FOUR(i, a, b, c, d, e, f, g, h)                                                                                \
    ONE((i), a, b, c, d, e, f, g, h), ONE((i) + 1, a, b, c, d, e, f, g, h), ONE((i) + 2, a, b, c, d, e, f, g, h),      \
        ONE((i) + 3, a, b, c, d, e, f, g, h)
#define SIXTEEN(i, a, b, c, d, e, f, g, h)                                                                             \
    FOUR((i), a, b, c, d, e, f, g, h), FOUR((i) + 4, a, b, c, d, e, f, g, h), FOUR((i) + 8, a, b, c, d, e, f, g, h),   \
        FOUR((i) + 12, a, b, c, d, e, f, g, h)
#define SIXTY_FOUR(i, a, b, c, d, e, f, g, h)                                                                          \
    SIXTEEN((i), a, b, c, d, e, f, g, h), SIXTEEN((i) + 16, a, b, c, d, e, f, g, h),                                   \
        SIXTEEN((i) + 32, a, b, c, d, e, f, g, h), SIXTEEN((i) + 48, a, b, c, d, e, f, g, h)
#define SLICE(a, b, c, d, e, f, g, h)                                                                                  \
    {SIXTY_FOUR(0, a, b, c, d, e, f, g, h), SIXTY_FOUR(64, a, b, c, d, e, f, g, h),                                    \
     SIXTY_FOUR(128, a, b, c, d, e, f, g, h), SIXTY_FOUR(192, a, b, c, d, e, f, g, h)}

static const uint32_t table[8][256] = {
    SLICE(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf, 0x105ec76f, 0x20bd8ede, 0x417b1dbc, 0x82f63b78),
    SLICE(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8, 0x3fc5f181, 0x7f8be302, 0xff17c604, 0xfbc3faf9),
    SLICE(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5, 0x70a27d8a, 0xe144fb14, 0xc76580d9, 0x8b277743),
    SLICE(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6, 0xe964b13d, 0xd725148b, 0xaba65fe7, 0x52a0c93f),
    SLICE(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91, 0x8f2261d3, 0x1ba8b557, 0x37516aae, 0x6ea2d55c),
    SLICE(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f, 0xc00c303e, 0x85f4168d, 0x0e045beb, 0x1c08b7d6),
    SLICE(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53, 0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a, 0xf56e0ef4),
    SLICE(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da, 0x847609b4, 0x0d006599, 0x1a00cb32, 0x34019664),
};

static uint32_t load32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t crc32c_table(uint32_t crc, const void *data, size_t len) {
    const uint8_t *p = data;
    crc = ~crc;
    for (; len >= 8; p += 8, len -= 8) {
        uint32_t lo = load32(p) ^ crc, hi = load32(p + 4);
        crc = table[7][lo & 255] ^ table[6][lo >> 8 & 255] ^ table[5][lo >> 16 & 255] ^ table[4][lo >> 24] ^
              table[3][hi & 255] ^ table[2][hi >> 8 & 255] ^ table[1][hi >> 16 & 255] ^ table[0][hi >> 24];
    }
    for (; len; len--) crc = crc >> 8 ^ table[0][(crc ^ *p++) & 255];
    return ~crc;
}

/* ---- the instructions of this processor ---------------------------------------------------------------------- */

#if (defined(__GNUC__) || defined(__clang__)) && !defined(_MSC_VER)
#if defined(__x86_64__)

#include <immintrin.h>

#define LANES "sse4.2+pclmul"
#define WIDE "avx512+vpclmulqdq"
#define TARGET __attribute__((target("sse4.2,pclmul")))
TARGET static inline uint32_t crc8(uint32_t crc, uint8_t v) { return _mm_crc32_u8(crc, v); }
TARGET static inline uint32_t crc32(uint32_t crc, uint32_t v) { return _mm_crc32_u32(crc, v); }
TARGET static inline uint32_t crc64(uint32_t crc, uint64_t v) { return (uint32_t)_mm_crc32_u64(crc, v); }
TARGET static inline uint64_t multiply(uint32_t a, uint32_t b) {
    return (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)b), 0));
}
static int has_crc(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}
static int has_multiply(void) { return 1; }
static int has_wide(void) { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"); }

#elif defined(__aarch64__) && !defined(__AARCH64EB__) && (defined(__linux__) || defined(__APPLE__))

#include <arm_neon.h>

#define LANES "armv8-crc"
#define TARGET
/* Assembler rather than intrinsics: compilers differ in when they let a function use instructions that the rest of the
 * file may not. */
static inline uint32_t crc8(uint32_t crc, uint8_t v) {
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(v));
    return crc;
}
static inline uint32_t crc32(uint32_t crc, uint32_t v) {
    __asm__(".arch_extension crc\n\tcrc32cw %w0, %w0, %w1" : "+r"(crc) : "r"(v));
    return crc;
}
static inline uint32_t crc64(uint32_t crc, uint64_t v) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(v));
    return crc;
}
static inline uint64_t multiply(uint32_t a, uint32_t b) {
    uint64x2_t x = vdupq_n_u64(a), y = vdupq_n_u64(b);
    __asm__(".arch_extension aes\n\tpmull %0.1q, %0.1d, %1.1d" : "+w"(x) : "w"(y));
    return vgetq_lane_u64(x, 0);
}
#if defined(__APPLE__)
static int has_crc(void) { return 1; }
static int has_multiply(void) { return 1; }
#else
#include <sys/auxv.h>
static int has_crc(void) { return (getauxval(AT_HWCAP) & (1u << 7)) != 0; } /* HWCAP_CRC32 */
static int has_multiply(void) { return (getauxval(AT_HWCAP) & (1u << 4)) != 0; } /* HWCAP_PMULL */
#endif

#endif
#endif

#ifdef LANES

/* A CRC instruction takes one word a cycle but gives its result after three: three lanes keep it busy. The lanes are
 * put together by carry-less multiplication: a CRC that stands n words before the end counts times x^64n. The 33 less
 * in `shift` come from the multiplication of reflected numbers (1) and the reduction by crc64 (32). */
#define LANE_MAX 256 /* words */
#define LANE_MIN 4 /* below this the multiplications cost more than two lanes save */

static uint32_t shift[2 * LANE_MAX + 2]; /* [n] = x^(64 n - 33) mod P */
static int lanes;

TARGET static inline uint64_t load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

/* One after the other; most datagrams end with half a word. */
TARGET static inline uint32_t crc_words(uint32_t crc, const uint8_t *p, size_t len) {
    for (; len >= 8; p += 8, len -= 8) crc = crc64(crc, load64(p));
    if (len & 4) crc = crc32(crc, load32(p));
    for (size_t i = len & 4; i < len; i++) crc = crc8(crc, p[i]);
    return crc;
}

TARGET static uint32_t crc32c_lanes(uint32_t crc, const void *data, size_t len) {
    const uint8_t *p = data;
    crc = ~crc;
    while (lanes && len >= 8 * (3 * LANE_MIN + 1)) {
        size_t n = (len - 8) / 24;
        if (n > LANE_MAX) n = LANE_MAX;
        uint32_t a = crc, b = 0, c = 0;
        const uint8_t *end = p + 8 * n;
        for (; p < end; p += 8) {
            a = crc64(a, load64(p));
            b = crc64(b, load64(p + 8 * n));
            c = crc64(c, load64(p + 16 * n));
        }
        p += 16 * n;
        crc = crc64(c, load64(p) ^ multiply(a, shift[2 * n + 1]) ^ multiply(b, shift[n + 1]));
        p += 8;
        len -= 24 * n + 8;
    }
    return ~crc_words(crc, p, len);
}

TARGET static void set_up_lanes(void) {
    shift[1] = 1; /* x^31, reflected */
    for (int n = 2; n < 2 * LANE_MAX + 2; n++) shift[n] = crc64(shift[n - 1], 0);
    lanes = has_multiply();
}

#ifdef WIDE

/* Folding, without a CRC instruction: four accumulators of 64 bytes are each multiplied by the weight of the next 256
 * bytes, and added to them. A word that stands n words before another counts there times x^64n: `shift` has these
 * constants too. The remainder has the same CRC as all blocks folded into it. */
#define WIDE_TARGET __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2")))
#define FOLDED 256u /* bytes a step */

WIDE_TARGET static inline __m512i fold(__m512i x, __m512i by, __m512i onto) {
    __m512i first = _mm512_clmulepi64_epi128(x, by, 0x00), second = _mm512_clmulepi64_epi128(x, by, 0x11);
    return _mm512_ternarylogic_epi64(first, second, onto, 0x96); /* the sum of all three */
}

/* For blocks of two words that stand n words before those that they are added to. */
WIDE_TARGET static inline __m512i places(uint32_t n) {
    return _mm512_broadcast_i32x4(_mm_set_epi64x((long long)shift[n], (long long)shift[n + 1]));
}

/* The CRC of 64 bytes. */
WIDE_TARGET static inline uint32_t crc_of(__m512i x) {
    uint64_t words[8];
    uint32_t crc = 0;
    _mm512_storeu_si512(words, x);
    for (int i = 0; i < 8; i++) crc = crc64(crc, words[i]);
    return crc;
}

WIDE_TARGET static uint32_t crc32c_wide(uint32_t crc, const void *data, size_t len) {
    const uint8_t *p = data;
    if (len < FOLDED) return crc32c_lanes(crc, data, len);
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
    __m512i b = _mm512_loadu_si512(p + 64), c = _mm512_loadu_si512(p + 128), d = _mm512_loadu_si512(p + 192);
    __m512i step = places(FOLDED / 8), next = places(8);
    for (p += FOLDED, len -= FOLDED; len >= FOLDED; p += FOLDED, len -= FOLDED) {
        a = fold(a, step, _mm512_loadu_si512(p));
        b = fold(b, step, _mm512_loadu_si512(p + 64));
        c = fold(c, step, _mm512_loadu_si512(p + 128));
        d = fold(d, step, _mm512_loadu_si512(p + 192));
    }
    a = fold(fold(fold(a, next, b), next, c), next, d);
    for (; len >= 64; p += 64, len -= 64) a = fold(a, next, _mm512_loadu_si512(p));
    crc = crc_of(a);
    /* Not by lanes: the compiler would go on there with the upper halves of the registers in use, which makes each of
     * its older vector instructions wait for them. */
    return ~crc_words(crc, p, len);
}

#endif
#endif

/* ---- the CRC of changed bytes ------------------------------------------------------------------------------ */

#define POLYNOMIAL 0x82f63b78u

/* [k]: x^(8 * 2^k) mod P, for 2^k bytes; each is the square of the one before. */
static const uint32_t powers[] = {
    0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7,
    0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc,
};

/* The product of two polynomials modulo P, reflected. */
static uint32_t product(uint32_t a, uint32_t b) {
    uint32_t sum = 0;
    for (int i = 0; i < 32; i++, a <<= 1) {
        sum ^= b & (0u - (a >> 31));
        b = b >> 1 ^ (POLYNOMIAL & (0u - (b & 1)));
    }
    return sum;
}

uint32_t sc_crc32c_shift(uint32_t delta, size_t n) {
    for (int k = 0; n && k < 16; k++, n >>= 1)
        if (n & 1) delta = product(powers[k], delta);
    return delta;
}

/* ---- which one ------------------------------------------------------------------------------------------------ */

static sc_crc32c_kernel kernels[3] = {{"table", crc32c_table}}; /* the fastest first */
static int n_kernels = 1;

#ifdef LANES

static void prefer(const char *name, uint32_t (*sum)(uint32_t, const void *, size_t)) {
    memmove(kernels + 1, kernels, (size_t)n_kernels++ * sizeof *kernels);
    kernels[0] = (sc_crc32c_kernel){name, sum};
}

/* Before main and before any thread, so that no call needs a lock. */
__attribute__((constructor)) static void choose(void) {
    if (!has_crc()) return;
    set_up_lanes();
    prefer(LANES, crc32c_lanes);
#ifdef WIDE
    if (has_wide()) prefer(WIDE, crc32c_wide);
#endif
}

#endif

uint32_t sc_crc32c(uint32_t crc, const void *p, size_t len) { return kernels[0].sum(crc, p, len); }

const sc_crc32c_kernel *sc_crc32c_kernels(int *n) {
    *n = n_kernels;
    return kernels;
}
