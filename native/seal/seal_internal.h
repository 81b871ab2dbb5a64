/* For this folder alone. */
#pragma once

#include "seal/seal.h"

/* The CRC32C of a datagram, its CRC field taken as zero. */
uint32_t sc_seal_sum(const uint8_t *p, size_t len);
