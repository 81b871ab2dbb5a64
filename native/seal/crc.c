/* Without a key: the CRC32C. */
#include "hash/crc32c.h"
#include "seal/seal_internal.h"

uint32_t sc_seal_sum(const uint8_t *p, size_t len) {
    uint8_t head[SC_COMMON_HEADER];
    memcpy(head, p, sizeof head);
    sc_put_crc(head, 0);
    return sc_crc32c(sc_crc32c(0, head, sizeof head), p + sizeof head, len - sizeof head);
}

void sc_seal_finish(const sc_seal *seal, uint8_t *p, size_t len) {
    if (!seal) sc_put_crc(p, sc_seal_sum(p, len));
}

#define AGAIN_BYTES 16384 /* of smaller packets the CRC of all bytes takes less time */
#define IS_KNOWN ((uint64_t)1 << 32)

uint64_t sc_seal_before(const sc_seal *seal, const uint8_t *p, size_t len) {
    return seal || len < AGAIN_BYTES ? 0 : IS_KNOWN | sc_seal_sum(p, SC_DATA_HEADER);
}

void sc_seal_again(const sc_seal *seal, uint8_t *p, size_t len, uint64_t before) {
    if (!before) {
        sc_seal_finish(seal, p, len);
        return;
    }
    uint32_t delta = (uint32_t)before ^ sc_seal_sum(p, SC_DATA_HEADER);
    sc_put_crc(p, sc_get_crc(p) ^ sc_crc32c_shift(delta, len - SC_DATA_HEADER));
}
