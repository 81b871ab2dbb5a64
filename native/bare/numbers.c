/* Numbers of messages. See numbers.h. */
#include "bare/numbers.h"

#include <string.h>

#include "wire/wire.h"

#define NUMBER ((UINT64_C(1) << SC_NUMBER_BITS) - 1)

void sc_numbers_write(uint8_t *data, size_t size, size_t n, uint64_t first) {
    for (size_t i = 0; i < n; i++, first++) memcpy(data + i * size, &first, SC_NUMBER_BYTES);
}

/* The next number that is due, with its sender; 0: of none yet. next[] follows where the sender changes. */
static uint64_t due_of(uint64_t due, uint64_t number, uint64_t *next) {
    if (due && number >> SC_NUMBER_BITS == due >> SC_NUMBER_BITS) return due;
    if (due) next[due >> SC_NUMBER_BITS] = due & NUMBER;
    return (number & ~NUMBER) | next[number >> SC_NUMBER_BITS];
}

static inline uint64_t check(const uint8_t *data, const void *offsets, int of_packet, size_t n, size_t size,
                             uint64_t *next) {
    uint64_t wrong = 0, due = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = sc_offset_at(offsets, i, of_packet);
        uint64_t number;
        if (sc_offset_at(offsets, i + 1, of_packet) - at != size) {
            wrong++;
            continue;
        }
        memcpy(&number, data + at, SC_NUMBER_BYTES);
        due = due_of(due, number, next);
        wrong += number != due;
        due = number + 1;
    }
    if (due) next[due >> SC_NUMBER_BITS] = due & NUMBER;
    return wrong;
}

uint64_t sc_numbers_check(const uint8_t *data, const int32_t *offsets, size_t n, size_t size, uint64_t *next) {
    return check(data, offsets, 0, n, size, next);
}

uint64_t sc_numbers_check_packet(const uint8_t *data, const uint8_t *offsets, size_t n, size_t size, uint64_t *next) {
    return check(data, offsets, 1, n, size, next);
}

uint64_t sc_numbers_check_one(const uint8_t *data, size_t len, size_t size, uint64_t *next) {
    const int32_t offsets[] = {0, (int32_t)len};
    return check(data, offsets, 0, 1, size, next);
}
