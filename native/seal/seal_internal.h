/* Of this room alone. */
#pragma once

#include "seal/seal.h"

/* The CRC32C of a datagram, its CRC field taken as zero. */
uint32_t sc_seal_sum(const uint8_t *p, size_t len);

/* Memory for secrets, zero at first: if the system can, neither swapped out nor dumped, and zeros in a child process.
 * NULL without memory. */
void *sc_secret_new(size_t bytes);
void sc_secret_overwrite(void *p, size_t bytes);
void sc_secret_free(void *p, size_t bytes); /* and overwrites the secret */
