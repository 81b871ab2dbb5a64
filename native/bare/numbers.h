/* The messages of a measurement: each begins with a number, so that receivers notice lost, doubled and misplaced ones.
 * The number's upper 16 bits name the sender. In C, so that a measurement of small messages is not one of its own
 * check. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "wire/wire.h"

#define SC_NUMBER_BITS 48
#define SC_NUMBER_BYTES 8
#define SC_NUMBER_SENDERS (1u << 16)

/* Writes the numbers from `first` on into `n` messages of `size` bytes, which follow each other. */
void sc_numbers_write(uint8_t *data, size_t size, size_t n, uint64_t first);

/* Checks messages 0 to n - 1, each between two offsets: `size` bytes, with the next number of their
 * sender, which is next[sender] and grows. Returns how many are wrong; counting continues after each one's own
 * number. */
uint64_t sc_numbers_check(const uint8_t *data, const int32_t *offsets, size_t n, size_t size, uint64_t *next);
/* The same in a packet. */
uint64_t sc_numbers_check_packet(const uint8_t *data, const sc_wholes *wholes, size_t n, size_t size, uint64_t *next);
/* The same for one message of `len` bytes; at least its number is at `data`. */
uint64_t sc_numbers_check_one(const uint8_t *data, size_t len, size_t size, uint64_t *next);
