/* Of this room alone. */
#pragma once

#include "seal/seal.h"

/* The CRC32C of a datagram, its CRC field taken as zero. */
uint32_t sc_seal_sum(const uint8_t *p, size_t len);

/* Memory for secrets, zero at first: where the system can, it is neither swapped out nor dumped, and a child process finds zeros
 * in it. NULL without memory. */
void *sc_secret_new(size_t bytes);
void sc_secret_overwrite(void *p, size_t bytes);
void sc_secret_free(void *p, size_t bytes); /* and overwrites it */
