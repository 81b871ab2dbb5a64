/* Numbers of messages. See numbers.h. */
#include "bare/numbers.h"

#include <string.h>

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

/* Is message i of a batch, or of a packet, `size` bytes long? */
static inline int is_size(const int32_t *offsets, const sc_wholes *wholes, size_t i, size_t size) {
    return offsets ? (size_t)(offsets[i + 1] - offsets[i]) == size
                   : sc_whole_at(wholes, i + 1) - sc_whole_at(wholes, i) == size;
}

static inline uint64_t check(const uint8_t *data, const int32_t *offsets, const sc_wholes *wholes, size_t n,
                             size_t size, uint64_t *next) {
    uint64_t wrong = 0, due = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t number;
        if (!is_size(offsets, wholes, i, size)) {
            wrong++;
            continue;
        }
        memcpy(&number, data + (offsets ? (size_t)offsets[i] : sc_whole_at(wholes, i)), SC_NUMBER_BYTES);
        due = due_of(due, number, next);
        wrong += number != due;
        due = number + 1;
    }
    if (due) next[due >> SC_NUMBER_BITS] = due & NUMBER;
    return wrong;
}

uint64_t sc_numbers_check(const uint8_t *data, const int32_t *offsets, size_t n, size_t size, uint64_t *next) {
    return check(data, offsets, NULL, n, size, next);
}

/* Are the numbers of n messages, one every `size` bytes, those from `due` on? They nearly always are, so
 * that all are looked at without a branch. */
static int follow(const uint8_t *data, size_t size, size_t n, uint64_t due) {
    uint64_t differ = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t number;
        memcpy(&number, data + i * size, SC_NUMBER_BYTES);
        differ |= number ^ (due + i);
    }
    return !differ;
}

uint64_t sc_numbers_check_packet(const uint8_t *data, const sc_wholes *wholes, size_t n, size_t size, uint64_t *next) {
    const sc_wholes local = *wholes; /* no write can change these */
    uint64_t number;
    if (n && !local.offsets && local.each == size) {
        memcpy(&number, data + local.first, SC_NUMBER_BYTES);
        uint64_t sender = number >> SC_NUMBER_BITS;
        if (follow(data + local.first, size, n, due_of(0, number, next))) {
            next[sender] += n;
            return 0;
        }
    }
    return check(data, NULL, &local, n, size, next);
}

uint64_t sc_numbers_check_one(const uint8_t *data, size_t len, size_t size, uint64_t *next) {
    const int32_t offsets[] = {0, (int32_t)len};
    return check(data, offsets, NULL, 1, size, next);
}
