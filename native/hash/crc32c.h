/* CRC32C (Castagnoli), the integrity check of every datagram. Chosen at run time: on x86-64 folding by AVX-512 with
 * VPCLMULQDQ, or SSE4.2 with PCLMUL; the CRC instructions on aarch64; a table everywhere else. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* CRC32C of p[0..len), continuing from `crc` (0 to start; the result of one call is the `crc` of the next). */
uint32_t sc_crc32c(uint32_t crc, const void *p, size_t len);

/* CRCs are linear: if bytes change by `delta` in the CRC of their part, and n bytes follow, below 65,536, the
 * CRC of the whole changes by this. */
uint32_t sc_crc32c_shift(uint32_t delta, size_t n);

typedef struct {
    const char *name; /* "avx512+vpclmulqdq", "sse4.2+pclmul", "armv8-crc" or "table" */
    uint32_t (*sum)(uint32_t crc, const void *p, size_t len);
} sc_crc32c_kernel;

/* The kernels that this processor can run, `n` of them. The first is in use; the last is the portable one, against
 * which the others are tested. */
const sc_crc32c_kernel *sc_crc32c_kernels(int *n);
