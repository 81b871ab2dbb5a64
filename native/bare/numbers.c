/* Numbers of messages. See numbers.h. */
#include "bare/numbers.h"

#include <string.h>

#define NUMBER ((UINT64_C(1) << SC_NUMBER_BITS) - 1)

void sc_numbers_write(uint8_t *data, size_t size, size_t n, uint64_t first) {
    for (size_t i = 0; i < n; i++, first++) memcpy(data + i * size, &first, SC_NUMBER_BYTES);
}

uint64_t sc_numbers_check(const uint8_t *data, const int32_t *offsets, size_t n, size_t size, uint64_t *next) {
    uint64_t wrong = 0, due = 0; /* with its sender, like `number`; next[] follows where the sender changes */
    for (size_t i = 0; i < n; i++) {
        uint64_t number;
        if ((size_t)(offsets[i + 1] - offsets[i]) != size) {
            wrong++;
            continue;
        }
        memcpy(&number, data + offsets[i], SC_NUMBER_BYTES);
        if (!due || number >> SC_NUMBER_BITS != due >> SC_NUMBER_BITS) {
            if (due) next[due >> SC_NUMBER_BITS] = due & NUMBER;
            due = (number & ~NUMBER) | next[number >> SC_NUMBER_BITS];
        }
        wrong += number != due;
        due = number + 1;
    }
    if (due) next[due >> SC_NUMBER_BITS] = due & NUMBER;
    return wrong;
}
