#include "wire/wire.h"

#include <string.h>

#include "hash/crc32c.h"

/* The CRC field is taken as zero: the sum is built around it. */
static uint32_t sum(const uint8_t *p, size_t len) {
    static const uint8_t zero[4];
    uint32_t crc = sc_crc32c(0, p, SC_OFF_CRC);
    crc = sc_crc32c(crc, zero, 4);
    return sc_crc32c(crc, p + SC_OFF_CRC + 4, len - SC_OFF_CRC - 4);
}

void sc_wire_seal(uint8_t *p, size_t len) { sc_put32(p + SC_OFF_CRC, sum(p, len)); }

static sc_wire_result check_data(const uint8_t *p, size_t len) {
    if (len < SC_DATA_HEADER) return SC_WIRE_SHORT;
    uint32_t data_len = sc_get32(p + SC_OFF_DATA_LEN);
    uint32_t pieces = sc_get16(p + SC_OFF_PIECES);
    if (data_len > SC_PACKET_MAX || pieces == 0) return SC_WIRE_FIELD_BAD;
    if (p[SC_OFF_FLAGS] & ~(SC_FLAG_CONT_IN | SC_FLAG_CONT_OUT)) return SC_WIRE_FIELD_BAD;
    if (sc_get64(p + SC_OFF_SEQNO) == 0 || sc_get64(p + SC_OFF_SEQNO) > SC_SEQNO_MAX) return SC_WIRE_FIELD_BAD;
    if (sc_get64(p + SC_OFF_ORIGIN_SEQNO) > SC_SEQNO_MAX) return SC_WIRE_FIELD_BAD;
    if (sc_get16(p + SC_OFF_ORIGIN_RANK) >= SC_MEMBERS_MAX) return SC_WIRE_FIELD_BAD;
    size_t at = sc_wire_offsets(data_len);
    if (at + 4u * (size_t)(pieces + 1) > len) return SC_WIRE_SHORT;
    const uint8_t *offset = p + at;
    uint32_t previous = 0, falls = sc_get32(offset);
    for (uint32_t i = 1; i <= pieces; i++) {
        uint32_t o = sc_get32(offset + 4 * (size_t)i);
        falls |= (uint32_t)(o < previous);
        previous = o;
    }
    return falls || previous != data_len ? SC_WIRE_FIELD_BAD : SC_WIRE_OK;
}

static sc_wire_result check_seqnos(const uint8_t *p, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (sc_get64(p + 8 * (size_t)i) > SC_SEQNO_MAX) return SC_WIRE_FIELD_BAD;
    return SC_WIRE_OK;
}

static sc_wire_result check_body(const uint8_t *p, size_t len) {
    switch (p[SC_OFF_TYPE]) {
    case SC_TYPE_DATA:
    case SC_TYPE_UNICAST:
    case SC_TYPE_FORWARD:
    case SC_TYPE_STATE: return check_data(p, len);
    case SC_TYPE_ACK:
        if (len != SC_ACK_LEN) return SC_WIRE_SHORT;
        return sc_get64(p + 40) <= SC_STREAM_STATE ? check_seqnos(p + 48, 3) : SC_WIRE_FIELD_BAD;
    case SC_TYPE_NAK: {
        if (len < SC_NAK_HEADER) return SC_WIRE_SHORT;
        uint32_t n = sc_get32(p + 52);
        if (sc_get32(p + 48) > SC_STREAM_STATE || n == 0 || n > SC_NAK_RANGES_MAX) return SC_WIRE_FIELD_BAD;
        if (len != SC_NAK_HEADER + 16u * n) return SC_WIRE_SHORT;
        for (uint32_t i = 0; i < n; i++) {
            uint64_t lo = sc_get64(p + SC_NAK_HEADER + 16 * i), hi = sc_get64(p + SC_NAK_HEADER + 16 * i + 8);
            if (lo == 0 || lo > hi || hi > SC_SEQNO_MAX) return SC_WIRE_FIELD_BAD;
        }
        return SC_WIRE_OK;
    }
    case SC_TYPE_PROBE:
        if (len != SC_PROBE_LEN) return SC_WIRE_SHORT;
        return sc_get64(p + 40) <= SC_STREAM_STATE ? check_seqnos(p + 48, 2) : SC_WIRE_FIELD_BAD;
    case SC_TYPE_HEARTBEAT: {
        if (len < SC_HEARTBEAT_HEADER) return SC_WIRE_SHORT;
        uint32_t n = sc_get32(p + 56);
        if (n > SC_MEMBERS_MAX) return SC_WIRE_FIELD_BAD;
        if (len != SC_HEARTBEAT_HEADER + 16u * n) return SC_WIRE_SHORT;
        if (check_seqnos(p + 40, 2) != SC_WIRE_OK) return SC_WIRE_FIELD_BAD;
        for (uint32_t r = n; r < SC_MEMBERS_MAX; r++)
            if (p[SC_HEARTBEAT_UNHEARD + r / 8] >> r % 8 & 1) return SC_WIRE_FIELD_BAD;
        return check_seqnos(p + SC_HEARTBEAT_HEADER, 2 * n);
    }
    case SC_TYPE_PING:
    case SC_TYPE_PONG:
        if (len != SC_PING_LEN) return SC_WIRE_SHORT;
        return sc_get64(p + 40) && sc_get64(p + 48) ? SC_WIRE_OK : SC_WIRE_FIELD_BAD;
    case SC_TYPE_ASK:
    case SC_TYPE_TAKEN:
        if (len != SC_ASK_LEN) return SC_WIRE_SHORT;
        return check_seqnos(p + 40, 1);
    case SC_TYPE_CONTROL: return SC_WIRE_OK;
    default: return SC_WIRE_FIELD_BAD;
    }
}

sc_wire_result sc_wire_check(const uint8_t *p, size_t len, uint32_t group) {
    if (len < SC_COMMON_HEADER || len > 65535) return SC_WIRE_SHORT;
    if (p[SC_OFF_MAGIC] != SC_WIRE_MAGIC) return SC_WIRE_MAGIC_BAD;
    if (sc_get32(p + SC_OFF_GROUP) != group) return SC_WIRE_GROUP_BAD;
    if (p[SC_OFF_VERSION] != SC_WIRE_VERSION) return SC_WIRE_VERSION_BAD;
    if (sc_get16(p + SC_OFF_KEY_ID) != 0) return SC_WIRE_KEY_BAD;
    if (sc_get32(p + SC_OFF_CRC) != sum(p, len)) return SC_WIRE_CRC_BAD;
    if (sc_get16(p + SC_OFF_RESERVED) != 0 || sc_get64(p + SC_OFF_SENDER) == 0) return SC_WIRE_FIELD_BAD;
    return check_body(p, len);
}
