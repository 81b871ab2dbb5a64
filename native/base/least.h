#pragma once

#include <stdint.h>

static inline uint64_t sc_least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t sc_most(uint64_t a, uint64_t b) { return a > b ? a : b; }
