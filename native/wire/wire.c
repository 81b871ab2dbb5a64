#include "wire/wire.h"

/* ---- bodies: the valid contents of each type --------------------------------------------------------------------- */

static int is_seqno(uint64_t seqno) { return seqno <= SC_SEQNO_MAX; }

static sc_wire_result verdict(int valid) { return valid ? SC_WIRE_OK : SC_WIRE_FIELD_BAD; }

static int data_header_valid(const uint8_t *p) {
    int data = sc_get_type(p) == SC_TYPE_DATA, group = data || sc_get_type(p) == SC_TYPE_FORWARD;
    int flags = SC_FLAG_CONT_IN | SC_FLAG_CONT_OUT | SC_FLAG_EVEN | (group ? SC_FLAG_BESIDE : 0);
    if (data) flags |= SC_FLAG_RECORDED;
    return sc_get_data_len(p) <= SC_PACKET_MAX && sc_get_pieces(p) && !(sc_get_flags(p) & ~flags) && sc_get_seqno(p) &&
           is_seqno(sc_get_seqno(p)) && is_seqno(sc_get_stable(p)) && is_seqno(sc_get_origin_seqno(p)) &&
           is_seqno(sc_get_global_seqno(p)) && sc_get_origin_rank(p) < SC_MEMBERS_MAX;
}

/* Each whole message has the length that is named, which is not 0: a small packet cannot hold very many messages. */
static int even_valid(const uint8_t *p, const uint8_t *offsets) {
    int in = (sc_get_flags(p) & SC_FLAG_CONT_IN) != 0, out = (sc_get_flags(p) & SC_FLAG_CONT_OUT) != 0;
    uint32_t len = sc_get_data_len(p), first = sc_get_even_first(offsets), each = sc_get_even_each(offsets);
    uint32_t pieces = sc_get_pieces(p);
    if (pieces == 1) return first == len && (in || out || (each == len && each));
    uint64_t last = first + (uint64_t)(pieces - 2) * each; /* where the last piece begins */
    if (last > len || (!in && first != each) || (!out && len - last != each)) return 0;
    return each || pieces == (uint32_t)(in + out);
}

static sc_wire_result check_data(const uint8_t *p, size_t len) {
    if (!data_header_valid(p)) return SC_WIRE_FIELD_BAD;
    uint32_t data_len = sc_get_data_len(p), pieces = sc_get_pieces(p);
    size_t at = sc_wire_offsets(data_len), even = sc_get_flags(p) & SC_FLAG_EVEN;
    if (at + (even ? SC_EVEN_BYTES : 4u * (size_t)(pieces + 1)) > len) return SC_WIRE_SHORT;
    const uint8_t *offsets = p + at;
    if (even) return verdict(even_valid(p, offsets));
    uint32_t falls = sc_get_offset(offsets, 0);
    for (uint32_t i = 1; i <= pieces; i++) falls |= sc_get_offset(offsets, i) < sc_get_offset(offsets, i - 1);
    return verdict(!falls && sc_get_offset(offsets, pieces) == data_len);
}

static sc_wire_result check_record(const uint8_t *p, size_t len) {
    uint32_t n = sc_get_pieces(p);
    if (!data_header_valid(p) || sc_get_flags(p) || n > SC_RECORD_ENTRIES_MAX) return SC_WIRE_FIELD_BAD;
    if (len != SC_RECORD_LEN(n)) return SC_WIRE_SHORT;
    int valid = sc_get_data_len(p) == len - SC_DATA_HEADER;
    for (uint32_t i = 0; i < n; i++) valid &= sc_get_record_rank(p, i) < SC_MEMBERS_MAX && sc_get_record_count(p, i);
    return verdict(valid);
}

static sc_wire_result check_ack(const uint8_t *p, size_t len) {
    (void)len;
    return verdict(sc_get_ack_stream(p) <= SC_STREAM_STATE && is_seqno(sc_get_ack_delivered(p)) &&
                   is_seqno(sc_get_ack_received(p)) && is_seqno(sc_get_ack_consumed(p)) &&
                   sc_get_ack_claim(p) <= UINT16_MAX);
}

static sc_wire_result check_nak(const uint8_t *p, size_t len) {
    uint32_t n = sc_get_nak_n(p);
    if (sc_get_nak_stream(p) > SC_STREAM_STATE || n == 0 || n > SC_NAK_RANGES_MAX) return SC_WIRE_FIELD_BAD;
    if (len != SC_NAK_LEN(n)) return SC_WIRE_SHORT;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t lo = sc_get_nak_lo(p, i), hi = sc_get_nak_hi(p, i);
        if (lo == 0 || lo > hi || !is_seqno(hi)) return SC_WIRE_FIELD_BAD;
    }
    return SC_WIRE_OK;
}

static sc_wire_result check_probe(const uint8_t *p, size_t len) {
    (void)len;
    return verdict(sc_get_probe_stream(p) <= SC_STREAM_STATE && is_seqno(sc_get_probe_highest(p)) &&
                   is_seqno(sc_get_probe_stable(p)));
}

static sc_wire_result check_heartbeat(const uint8_t *p, size_t len) {
    uint32_t n = sc_get_heartbeat_n(p);
    if (n > SC_MEMBERS_MAX) return SC_WIRE_FIELD_BAD;
    if (len != SC_HEARTBEAT_LEN(n)) return SC_WIRE_SHORT;
    int valid = is_seqno(sc_get_heartbeat_highest(p)) && is_seqno(sc_get_heartbeat_stable(p));
    valid &= sc_get_heartbeat_awaits(p) <= n && sc_get_heartbeat_gives_up(p) <= n;
    valid &= sc_get_heartbeat_echoes(p) <= n && sc_get_heartbeat_path(p) <= SC_PACKET_MAX;
    for (uint32_t r = n; r < SC_MEMBERS_MAX; r++)
        valid &= !((sc_get_heartbeat_unheard(p)[r / 8] | sc_get_heartbeat_mute(p)[r / 8]) >> r % 8 & 1);
    for (uint32_t r = 0; r < n; r++)
        valid &= is_seqno(sc_get_heartbeat_delivered(p, r)) && is_seqno(sc_get_heartbeat_received(p, r));
    return verdict(valid);
}

static sc_wire_result check_ping(const uint8_t *p, size_t len) {
    (void)len;
    return verdict(sc_get_ping_target(p) && sc_get_ping_origin(p));
}

static sc_wire_result check_taken(const uint8_t *p, size_t len) {
    (void)len;
    return verdict(is_seqno(sc_get_taken_seqno(p)));
}

static sc_wire_result check_total(const uint8_t *p, size_t len) {
    (void)len;
    uint32_t header = sc_get_total_header(p);
    int known = header >= SC_TOTAL_NEW_VIEW && header <= SC_TOTAL_SEQ_ACK && !sc_get_total_reserved(p);
    return verdict(known && is_seqno(sc_get_total_id(p)) && (header == SC_TOTAL_NEW_VIEW_ACK) == !sc_get_total_id(p));
}

static sc_wire_result check_grant(const uint8_t *p, size_t len) {
    (void)len;
    int granted = sc_get_type(p) == SC_TYPE_GRANT, whole = sc_get_grant_count(p) && !sc_get_grant_reserved(p);
    return verdict(sc_get_grant_number(p) && is_seqno(sc_get_grant_place(p)) && whole &&
                   granted == (sc_get_grant_place(p) != 0));
}

static sc_wire_result check_size(const uint8_t *p, size_t len) {
    int asks = sc_get_type(p) == SC_TYPE_SIZE;
    if (!asks && len != SC_SIZE_LEN) return SC_WIRE_SHORT;
    uint32_t bytes = sc_get_size_bytes(p);
    int fits = asks ? bytes == len : bytes >= SC_SIZE_LEN && bytes <= SC_PACKET_MAX;
    return verdict(fits && sc_get_size_number(p) && !sc_get_size_reserved(p));
}

static sc_wire_result check_piece(const uint8_t *p, size_t len) {
    uint32_t total = sc_get_piece_total(p), each = sc_get_piece_each(p), at = each * sc_get_piece_index(p);
    if (!each || total < SC_COMMON_HEADER || total > SC_PACKET_MAX || at >= total) return SC_WIRE_FIELD_BAD;
    if (total > each * SC_PIECES_MAX || !sc_get_piece_number(p)) return SC_WIRE_FIELD_BAD;
    return len == SC_PIECE_HEADER + (total - at < each ? total - at : each) ? SC_WIRE_OK : SC_WIRE_SHORT;
}

static sc_wire_result check_nothing(const uint8_t *p, size_t len) {
    (void)p, (void)len;
    return SC_WIRE_OK;
}

/* By type; a check reads no field beyond the `least` bytes before checking `len`. */
static const struct {
    size_t least, most; /* bytes of the datagram; `most` is 0 if the check looks at the length */
    sc_wire_result (*check)(const uint8_t *p, size_t len);
} bodies[] = {
    [SC_TYPE_DATA] = {SC_DATA_HEADER, 0, check_data},
    [SC_TYPE_UNICAST] = {SC_DATA_HEADER, 0, check_data},
    [SC_TYPE_FORWARD] = {SC_DATA_HEADER, 0, check_data},
    [SC_TYPE_ACK] = {SC_ACK_LEN, SC_ACK_LEN, check_ack},
    [SC_TYPE_NAK] = {SC_NAK_LEN(0), 0, check_nak},
    [SC_TYPE_PROBE] = {SC_PROBE_LEN, SC_PROBE_LEN, check_probe},
    [SC_TYPE_HEARTBEAT] = {SC_HEARTBEAT_LEN(0), 0, check_heartbeat},
    [SC_TYPE_CONTROL] = {SC_COMMON_HEADER, 0, check_nothing},
    [SC_TYPE_STATE] = {SC_DATA_HEADER, 0, check_data},
    [SC_TYPE_PING] = {SC_PING_LEN, SC_PING_LEN, check_ping},
    [SC_TYPE_PONG] = {SC_PING_LEN, SC_PING_LEN, check_ping},
    [SC_TYPE_ASK] = {SC_TAKEN_LEN, SC_TAKEN_LEN, check_taken},
    [SC_TYPE_TAKEN] = {SC_TAKEN_LEN, SC_TAKEN_LEN, check_taken},
    [SC_TYPE_RECORD] = {SC_DATA_HEADER, 0, check_record},
    [SC_TYPE_TOTAL] = {SC_TOTAL_LEN, SC_TOTAL_LEN, check_total},
    [SC_TYPE_SIZE] = {SC_SIZE_LEN, 0, check_size},
    [SC_TYPE_SIZED] = {SC_SIZE_LEN, SC_SIZE_LEN, check_size},
    [SC_TYPE_PIECE] = {SC_PIECE_HEADER + 1, 0, check_piece},
    [SC_TYPE_WANT] = {SC_GRANT_LEN, SC_GRANT_LEN, check_grant},
    [SC_TYPE_GRANT] = {SC_GRANT_LEN, SC_GRANT_LEN, check_grant},
};

static sc_wire_result check_body(const uint8_t *p, size_t len) {
    uint8_t type = sc_get_type(p);
    if (type >= sizeof bodies / sizeof *bodies || !bodies[type].check) return SC_WIRE_FIELD_BAD;
    if (len < bodies[type].least || (bodies[type].most && len > bodies[type].most)) return SC_WIRE_SHORT;
    return bodies[type].check(p, len);
}

sc_wire_result sc_wire_begins(const uint8_t *p, size_t len, uint32_t group) {
    if (len < SC_COMMON_HEADER || len > 65535) return SC_WIRE_SHORT;
    if (sc_get_magic(p) != SC_WIRE_MAGIC) return SC_WIRE_MAGIC_BAD;
    if (sc_get_group(p) != group) return SC_WIRE_GROUP_BAD;
    return sc_get_version(p) == SC_WIRE_VERSION ? SC_WIRE_OK : SC_WIRE_VERSION_BAD;
}

sc_wire_result sc_wire_check(const uint8_t *p, size_t len) {
    uint8_t type = sc_get_type(p);
    if (sc_get_claim(p) && type != SC_TYPE_DATA && type != SC_TYPE_RECORD && type != SC_TYPE_HEARTBEAT)
        return SC_WIRE_FIELD_BAD;
    return sc_get_sender(p) ? check_body(p, len) : SC_WIRE_FIELD_BAD;
}
