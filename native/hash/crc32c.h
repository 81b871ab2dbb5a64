/* CRC32C (Castagnoli), the integrity check of every datagram. Chosen at run time: SSE4.2 with PCLMUL folding on
 * x86-64, the CRC instructions on aarch64, a table everywhere else. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* CRC32C of p[0..len), continuing from `crc` (0 to start; the result of one call is the `crc` of the next). */
uint32_t sc_crc32c(uint32_t crc, const void *p, size_t len);

/* The name of the kernel in use: "sse4.2+pclmul", "armv8-crc" or "table". */
const char *sc_crc32c_kernel(void);

/* The portable kernel, against which the others are tested. */
uint32_t sc_crc32c_table(uint32_t crc, const void *p, size_t len);
