/* Datagrams of the other members: arbitrary ones that get behind the checks, and such as a sound member would send. */
#include "world.h"

static const uint8_t types[] = {SC_TYPE_DATA, SC_TYPE_UNICAST, SC_TYPE_FORWARD, SC_TYPE_STATE}; /* by SC_STREAM_* */

static int has_claim(uint8_t type) {
    return type == SC_TYPE_DATA || type == SC_TYPE_RECORD || type == SC_TYPE_HEARTBEAT;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

size_t repair(world *w, uint8_t *p, size_t n, uint64_t sender) {
    if (n < SC_COMMON_HEADER) {
        memset(p + n, 0, SC_COMMON_HEADER - n);
        n = SC_COMMON_HEADER;
    }
    uint8_t type = sc_get_type(p);
    sc_put_magic(p, SC_WIRE_MAGIC);
    sc_put_version(p, SC_WIRE_VERSION);
    sc_put_group(p, GROUP);
    sc_put_key_id(p, 0);
    if (!has_claim(type)) sc_put_claim(p, 0);
    sc_put_sender(p, sender);
    int pair = type == SC_TYPE_UNICAST || type == SC_TYPE_STATE;
    if (type == SC_TYPE_ACK && n >= SC_ACK_LEN) pair = of_pair(sc_get_ack_stream(p));
    if (type == SC_TYPE_PROBE && n >= SC_PROBE_LEN) pair = of_pair(sc_get_probe_stream(p));
    if (type == SC_TYPE_NAK && n >= SC_NAK_LEN(0)) pair = of_pair(sc_get_nak_stream(p));
    sc_put_view_tag(p, pair ? w->pair[sender] : w->view.tag);
    sc_seal_finish(NULL, p, n);
    return n;
}

/* `pieces` messages of `each` bytes behind the header, and their offsets, or, depending on that length, their
 * replacement; returns the length. */
static size_t fill(uint8_t *p, uint32_t pieces, uint32_t each, uint8_t with) {
    uint32_t len = pieces * each;
    memset(p + SC_DATA_HEADER, with, len);
    size_t at = sc_wire_offsets(len);
    memset(p + SC_DATA_HEADER + len, 0, at - SC_DATA_HEADER - len);
    sc_put_data_len(p, len);
    sc_put_pieces(p, (uint16_t)pieces);
    if (each & 4) {
        /* At both ends: the first one may be shorter, and the last one longer. */
        uint32_t parts = SC_FLAG_CONT_IN | SC_FLAG_CONT_OUT;
        int shifted = pieces > 1 && (sc_get_flags(p) & parts) == parts;
        sc_put_flags(p, sc_get_flags(p) | SC_FLAG_EVEN);
        sc_put_even(p + at, shifted ? each / 2 : each, each);
        return at + SC_EVEN_BYTES;
    }
    for (uint32_t i = 0; i <= pieces; i++) sc_put_offset(p + at, i, i * each);
    return at + 4 * ((size_t)pieces + 1);
}

size_t data_packet(world *w, script *s, uint8_t *p, uint64_t sender) {
    memset(p, 0, SC_DATA_HEADER);
    sc_put_type(p, types[take(s, 1) % 4]);
    sc_put_flags(p, take(s, 1) & (SC_FLAG_CONT_IN | SC_FLAG_CONT_OUT | SC_FLAG_BESIDE | SC_FLAG_RECORDED));
    sc_put_seqno(p, 1 + take(s, 1));
    sc_put_stable(p, take(s, 1));
    sc_put_origin_seqno(p, take(s, 1));
    sc_put_global_seqno(p, take(s, 1));
    sc_put_origin_rank(p, (uint16_t)take(s, 1) % 5);
    uint32_t pieces = 1 + (uint32_t)take(s, 1) % 8;
    return repair(w, p, fill(p, pieces, (uint32_t)take(s, 1), 'x'), sender);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

/* A place that this member has; 0: none. */
static uint64_t take_place(world *w, uint64_t sender) {
    if (sequencer_of(w) != 1) return w->place++;
    return w->hand[sender].first < w->hand[sender].end ? w->hand[sender].first++ : 0;
}

static uint32_t rank_of(const world *w, uint64_t id) {
    uint32_t rank = 0;
    while (rank < w->view.n && w->view.ids[rank] != id) rank++;
    return rank;
}

/* The seqno that follows in a stream, or another: after a gap, or once more. Sets the fields that all streams
 * have. */
static uint64_t next_seqno(world *w, script *s, uint8_t *p, uint64_t sender, uint32_t stream, uint32_t special) {
    uint64_t seqno = w->next[stream][sender];
    if (special == 15) seqno += 1 + take(s, 1) % 8; /* the packets in the gap come later */
    if (special == 14 && seqno > 1) seqno -= 1 + take(s, 1) % (seqno - 1);
    if (special == 12) w->claim[sender]++;
    if (seqno >= w->next[stream][sender]) w->next[stream][sender] = seqno + 1;
    uint64_t undecided = special == 11 ? 1 : 3;
    memset(p, 0, SC_DATA_HEADER);
    sc_put_type(p, types[stream]);
    sc_put_seqno(p, seqno);
    sc_put_stable(p, seqno > undecided ? seqno - undecided : 0);
    if (stream == SC_STREAM_GROUP) sc_put_claim(p, w->claim[sender]);
    return seqno;
}

size_t next_packet(world *w, script *s, uint8_t *p, uint64_t sender) {
    uint32_t how = (uint32_t)take(s, 1), stream = how & 3, special = how >> 4;
    uint64_t seqno = next_seqno(w, s, p, sender, stream, special);
    int beside = special == 13 && !of_pair(stream);
    sc_put_flags(p, beside ? SC_FLAG_BESIDE : special & 3); /* begins or ends in the middle of a message, or not */
    if (stream == SC_STREAM_GROUP && stamps(w)) { /* of anybody, ourselves too */
        uint32_t rank = special % w->view.n;
        sc_put_origin_rank(p, (uint16_t)rank);
        sc_put_origin_seqno(p, ++w->origin[w->view.ids[rank]]);
        sc_put_global_seqno(p, beside ? 0 : 1 + 4 * seqno);
    } else if (stream == SC_STREAM_GROUP && w->view.mechanism == SC_ORDER_GRANT) {
        sc_put_place(p, take_place(w, sender));
    }
    int recorded = stream == SC_STREAM_GROUP && w->view.mechanism == SC_ORDER_RECORDS && sequencer_of(w) == sender;
    if (recorded && special & 4) sc_put_flags(p, sc_get_flags(p) | SC_FLAG_RECORDED); /* its policy decides */
    return repair(w, p, fill(p, 1 + (how >> 2 & 3), 4 * (uint32_t)take(s, 1), 'y'), sender);
}

/* ---- words of the orders ----------------------------------------------------------------------------------------- */

/* The packets that this member has sent to the group. */
static uint64_t last_of(const world *w, uint64_t id) {
    return id == 1 ? w->sent[SC_STREAM_GROUP][0] : w->next[SC_STREAM_GROUP][id] - 1;
}

/* Whose packets come next, or its sender's deliveries: as much of each member as its last record did not tell. */
static uint32_t record_entries(world *w, uint8_t *p, uint64_t sender, uint64_t more) {
    uint32_t n = 0;
    for (uint32_t rank = 0; rank < w->view.n; rank++) {
        uint64_t id = w->view.ids[rank], *told = &w->told[sender][id];
        uint64_t count = last_of(w, id) + (rank == w->view.rank ? 0 : more);
        if ((id == sender && w->view.mechanism != SC_ORDER_RECORDS) || count <= *told) continue;
        sc_put_record_rank(p, n, (uint16_t)rank);
        sc_put_record_count(p, n++, (uint16_t)least(count - *told, 9));
        *told += least(count - *told, 9);
    }
    if (n) return n;
    sc_put_record_rank(p, 0, (uint16_t)((rank_of(w, sender) + 1) % w->view.n));
    sc_put_record_count(p, 0, (uint16_t)(1 + more));
    return 1;
}

/* The member gives back places. */
static uint32_t record_of_places(world *w, uint8_t *p, uint64_t sender, uint64_t more) {
    sc_put_place(p, take_place(w, sender));
    for (uint64_t i = 0; i < more; i++) take_place(w, sender);
    sc_put_record_rank(p, 0, (uint16_t)rank_of(w, sender));
    sc_put_record_count(p, 0, (uint16_t)(1 + more));
    return 1;
}

static size_t next_record(world *w, script *s, uint8_t *p, uint64_t sender, uint64_t more) {
    next_seqno(w, s, p, sender, SC_STREAM_GROUP, (uint32_t)take(s, 1) >> 4);
    memset(p + SC_DATA_HEADER, 0, SC_RECORD_LEN(MEMBERS) - SC_DATA_HEADER);
    uint32_t n = w->view.mechanism == SC_ORDER_GRANT ? record_of_places(w, p, sender, more)
                                                     : record_entries(w, p, sender, more / 4);
    sc_put_type(p, SC_TYPE_RECORD);
    sc_put_origin_rank(p, (uint16_t)rank_of(w, sender));
    sc_put_pieces(p, (uint16_t)n);
    sc_put_data_len(p, (uint32_t)(SC_RECORD_LEN(n) - SC_DATA_HEADER));
    return repair(w, p, SC_RECORD_LEN(n), sender);
}

/* The member asks for places or, as the sequencer, answers our request. */
static size_t next_grant(world *w, uint8_t *p, uint64_t sender, uint64_t more) {
    int answers = sequencer_of(w) == sender;
    if (!answers && more != 7) w->wants[sender]++; /* or the same again */
    uint32_t count = answers ? w->wanted + (more == 6) : 1 + (uint32_t)more;
    sc_put_type(p, answers ? SC_TYPE_GRANT : SC_TYPE_WANT);
    sc_put_grant_number(p, answers ? w->want : w->wants[sender]);
    sc_put_grant_count(p, count);
    sc_put_grant_place(p, answers ? w->place : 0);
    if (answers) w->place += count;
    return repair(w, p, SC_GRANT_LEN, sender);
}

/* With which id the view begins; that the sender knows; that the sender has the last packet. */
static size_t next_total(world *w, uint8_t *p, uint64_t sender, uint32_t header) {
    uint64_t first = w->view.sequencer >= 0 ? w->view.base[w->view.sequencer] + 1 : 1;
    sc_put_type(p, SC_TYPE_TOTAL);
    sc_put_total_header(p, header);
    if (header != SC_TOTAL_NEW_VIEW_ACK)
        sc_put_total_id(p, header == SC_TOTAL_NEW_VIEW ? first : 1 + w->sent[SC_STREAM_GROUP][0]);
    return repair(w, p, SC_TOTAL_LEN, sender);
}

static size_t next_for_order(world *w, script *s, uint8_t *p, uint64_t sender, uint32_t how) {
    uint64_t more = how >> 5;
    if (stamps(w)) return next_total(w, p, sender, 1 + more % 4);
    if (w->view.mechanism == SC_ORDER_GRANT && how & 3) return next_grant(w, p, sender, more);
    return next_record(w, s, p, sender, more);
}

/* ---- words of the streams ---------------------------------------------------------------------------------------- */

/* All that we sent came, or nearly. */
static size_t next_ack(world *w, uint8_t *p, uint64_t sender, uint32_t stream, uint64_t back) {
    uint64_t sent = w->sent[stream][of_pair(stream) ? sender : 0], nearly = sent > back ? sent - back : sent;
    sc_put_type(p, SC_TYPE_ACK);
    sc_put_ack_stream(p, stream);
    sc_put_ack_delivered(p, nearly);
    sc_put_ack_received(p, sent);
    sc_put_ack_consumed(p, nearly);
    if (stream == SC_STREAM_GROUP) {
        sc_put_ack_window(p, back << 14);
        sc_put_ack_claim(p, w->claim[1]);
    }
    return repair(w, p, SC_ACK_LEN, sender);
}

/* The member lacks some of our packets. */
static size_t next_nak(world *w, script *s, uint8_t *p, uint64_t sender, uint32_t how) {
    uint64_t stream = how & 3, sent = w->sent[stream][of_pair(stream) ? sender : 0], back = how >> 5;
    uint32_t n = 1 + (how >> 6);
    sc_put_type(p, SC_TYPE_NAK);
    sc_put_nak_owner(p, how & 128 ? 1 + take(s, 1) % MEMBERS : 1); /* ours, or another's that we hold */
    sc_put_nak_stream(p, how & 3);
    sc_put_nak_n(p, n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t lo = sent > back + i ? sent - back - i : 1;
        sc_put_nak_lo(p, i, lo);
        sc_put_nak_hi(p, i, lo + take(s, 1) % 4);
    }
    return repair(w, p, SC_NAK_LEN(n), sender);
}

/* The member's position in all streams, and the members whose multicasts or unicasts do not come. */
static size_t next_heartbeat(world *w, script *s, uint8_t *p, uint64_t sender, uint32_t how) {
    uint64_t last = w->next[SC_STREAM_GROUP][sender] - 1;
    sc_put_type(p, SC_TYPE_HEARTBEAT);
    sc_put_flags(p, how >> 5 == 7 ? SC_FLAG_STARVED : 0);
    sc_put_claim(p, w->claim[sender]);
    sc_put_heartbeat_highest(p, last + (how >> 5));
    sc_put_heartbeat_stable(p, how >> 7 ? last : 0);
    sc_put_heartbeat_n(p, w->view.n);
    uint8_t everybody = (uint8_t)((1u << w->view.n) - 1);
    p[sc_at_heartbeat_unheard] = (uint8_t)(take(s, 1) & everybody);
    p[sc_at_heartbeat_mute] = (uint8_t)(how >> 2 & everybody);
    sc_put_heartbeat_sent(p, how);
    sc_put_heartbeat_echoes(p, (uint16_t)(how % (w->view.n + 1)));
    sc_put_heartbeat_echo(p, how & 4 ? UINT64_MAX : 1);
    sc_put_heartbeat_taken(p, how & 8 ? UINT64_MAX - how : how);
    sc_put_heartbeat_worked(p, how & 16 ? UINT64_MAX - how : how);
    for (uint32_t r = 0; r < w->view.n; r++) {
        sc_put_heartbeat_delivered(p, r, last_of(w, w->view.ids[r]));
        sc_put_heartbeat_received(p, r, last_of(w, w->view.ids[r]) + (how & 3));
    }
    return repair(w, p, SC_HEARTBEAT_LEN(w->view.n), sender);
}

/* The last seqno that we sent, or the one before. */
static uint64_t taken_of_ours(const world *w, uint64_t back) {
    uint64_t last = sc_engine_last_sent(w->engine);
    return last - (back && last);
}

size_t next_word(world *w, script *s, uint8_t *p, uint64_t sender) {
    uint32_t how = (uint32_t)take(s, 1), stream = how & 3;
    uint64_t back = how >> 5;
    memset(p, 0, SC_HEARTBEAT_LEN(MEMBERS));
    switch (how >> 2 & 7) {
    case 0: return next_ack(w, p, sender, stream, back);
    case 1: return next_for_order(w, s, p, sender, how);
    case 2:
    case 3: return next_nak(w, s, p, sender, how);
    case 4: /* more was sent than came */
        sc_put_type(p, SC_TYPE_PROBE);
        sc_put_probe_stream(p, stream);
        sc_put_probe_highest(p, w->next[stream][sender] - 1 + back);
        return repair(w, p, SC_PROBE_LEN, sender);
    case 5: return next_heartbeat(w, s, p, sender, how);
    case 6: /* asks for our application's consumption, or reports its own */
        sc_put_type(p, how & 1 ? SC_TYPE_ASK : SC_TYPE_TAKEN);
        sc_put_taken_seqno(p, how & 1 ? back : taken_of_ours(w, back));
        return repair(w, p, SC_TAKEN_LEN, sender);
    default: /* is the sender alive; is another */
        sc_put_type(p, how & 1 ? SC_TYPE_PING : SC_TYPE_PONG);
        sc_put_ping_target(p, 1 + back % MEMBERS);
        sc_put_ping_origin(p, how & 2 ? sender : 1 + take(s, 1) % MEMBERS);
        return repair(w, p, SC_PING_LEN, sender);
    }
}

/* ---- small numbers ----------------------------------------------------------------------------------------------- */

static size_t small_ping(script *s, uint8_t *p) {
    sc_put_ping_target(p, take(s, 1) % (MEMBERS + 2));
    sc_put_ping_origin(p, take(s, 1) % (MEMBERS + 2));
    return SC_PING_LEN;
}

static size_t small_nak(script *s, uint8_t *p) {
    sc_put_nak_owner(p, 1 + take(s, 1) % (MEMBERS + 1));
    sc_put_nak_stream(p, (uint32_t)take(s, 1) % 4);
    sc_put_nak_n(p, 1);
    sc_put_nak_lo(p, 0, take(s, 1));
    sc_put_nak_hi(p, 0, take(s, 1));
    return SC_NAK_LEN(1);
}

static size_t small_heartbeat(script *s, uint8_t *p) {
    uint32_t entries = (uint32_t)take(s, 1) % 4;
    sc_put_heartbeat_highest(p, take(s, 1));
    sc_put_heartbeat_stable(p, take(s, 1));
    sc_put_heartbeat_n(p, entries);
    p[sc_at_heartbeat_unheard] = (uint8_t)take(s, 1);
    for (uint32_t i = 0; i < entries; i++) {
        sc_put_heartbeat_delivered(p, i, take(s, 1));
        sc_put_heartbeat_received(p, i, take(s, 1));
    }
    return SC_HEARTBEAT_LEN(entries);
}

static size_t small_record(world *w, script *s, uint8_t *p, uint64_t sender) {
    uint32_t entries = 1 + (uint32_t)take(s, 1) % 3;
    sc_put_seqno(p, w->next[SC_STREAM_GROUP][sender] + take(s, 1) % 3);
    sc_put_stable(p, take(s, 1));
    sc_put_place(p, take(s, 1));
    sc_put_pieces(p, (uint16_t)entries);
    sc_put_data_len(p, (uint32_t)(SC_RECORD_LEN(entries) - SC_DATA_HEADER));
    for (uint32_t i = 0; i < entries; i++) {
        sc_put_record_rank(p, i, (uint16_t)take(s, 1) % (MEMBERS + 1));
        sc_put_record_count(p, i, (uint16_t)take(s, 2));
    }
    return SC_RECORD_LEN(entries);
}

static size_t small_grant(script *s, uint8_t *p) {
    sc_put_grant_number(p, (uint32_t)take(s, 1) % 8);
    sc_put_grant_count(p, (uint32_t)take(s, 2));
    if (sc_get_type(p) == SC_TYPE_GRANT) sc_put_grant_place(p, take(s, 1));
    return SC_GRANT_LEN;
}

static size_t small_ack(script *s, uint8_t *p) {
    sc_put_ack_stream(p, take(s, 1) % 4);
    sc_put_ack_delivered(p, take(s, 1));
    sc_put_ack_received(p, take(s, 1));
    sc_put_ack_consumed(p, take(s, 1));
    return SC_ACK_LEN;
}

/* A piece of a datagram of rubbish. */
static size_t small_piece(script *s, uint8_t *p) {
    uint32_t each = 1 + (uint32_t)take(s, 1) % 32, total = SC_COMMON_HEADER + (uint32_t)take(s, 1) % 64;
    uint32_t i = (uint32_t)take(s, 1) % ((total + each - 1) / each), at = i * each;
    uint32_t part = total - at < each ? total - at : each;
    sc_put_piece_number(p, 1 + take(s, 1) % 4);
    sc_put_piece_total(p, total);
    sc_put_piece_each(p, (uint16_t)each);
    sc_put_piece_index(p, (uint16_t)i);
    for (uint32_t k = 0; k < part; k++) p[SC_PIECE_HEADER + k] = (uint8_t)take(s, 1);
    return SC_PIECE_HEADER + part;
}

size_t small_word(world *w, script *s, uint8_t *p, uint64_t sender) {
    static const uint8_t words[] = {SC_TYPE_ACK,   SC_TYPE_NAK,   SC_TYPE_PROBE, SC_TYPE_HEARTBEAT, SC_TYPE_PING,
                                    SC_TYPE_PONG,  SC_TYPE_TAKEN, SC_TYPE_ASK,   SC_TYPE_RECORD,    SC_TYPE_WANT,
                                    SC_TYPE_GRANT, SC_TYPE_TOTAL, SC_TYPE_SIZE,  SC_TYPE_SIZED,     SC_TYPE_PIECE};
    memset(p, 0, SC_HEARTBEAT_LEN(4));
    sc_put_type(p, words[take(s, 1) % sizeof words]);
    switch (sc_get_type(p)) {
    case SC_TYPE_PING:
    case SC_TYPE_PONG: return repair(w, p, small_ping(s, p), sender);
    case SC_TYPE_NAK: return repair(w, p, small_nak(s, p), sender);
    case SC_TYPE_HEARTBEAT: return repair(w, p, small_heartbeat(s, p), sender);
    case SC_TYPE_ACK: return repair(w, p, small_ack(s, p), sender);
    case SC_TYPE_RECORD: return repair(w, p, small_record(w, s, p, sender), sender);
    case SC_TYPE_WANT:
    case SC_TYPE_GRANT: return repair(w, p, small_grant(s, p), sender);
    case SC_TYPE_TOTAL:
        sc_put_total_header(p, (uint32_t)take(s, 1) % 5);
        sc_put_total_id(p, take(s, 1));
        return repair(w, p, SC_TOTAL_LEN, sender);
    case SC_TYPE_TAKEN:
    case SC_TYPE_ASK: sc_put_taken_seqno(p, take(s, 1)); return repair(w, p, SC_TAKEN_LEN, sender);
    case SC_TYPE_SIZE:
    case SC_TYPE_SIZED:
        sc_put_size_number(p, take(s, 1));
        sc_put_size_bytes(p, SC_SIZE_LEN);
        return repair(w, p, SC_SIZE_LEN, sender);
    case SC_TYPE_PIECE: return repair(w, p, small_piece(s, p), sender);
    default:
        sc_put_probe_stream(p, take(s, 1) % 4);
        sc_put_probe_highest(p, take(s, 1));
        sc_put_probe_stable(p, take(s, 1));
        return repair(w, p, SC_PROBE_LEN, sender);
    }
}

/* ---- ours -------------------------------------------------------------------------------------------------------- */

void note_sent(world *w, const sc_tx *run, const uint8_t *p) {
    uint8_t type = sc_get_type(p);
    uint64_t receiver = run->to.bytes[0], seqno = sc_get_seqno(p);
    if (sc_get_sender(p) != 1) return;
    if (has_claim(type)) w->claim[1] = sc_get_claim(p);
    if (type == SC_TYPE_WANT) {
        w->want = sc_get_grant_number(p);
        w->wanted = sc_get_grant_count(p);
    } else if (type == SC_TYPE_GRANT && receiver < IDS && sc_get_grant_place(p) >= w->hand[receiver].end) {
        w->hand[receiver] = (places){sc_get_grant_place(p), sc_get_grant_place(p) + sc_get_grant_count(p)};
    }
    for (uint64_t stream = 0; stream < 4; stream++) {
        uint64_t to = of_pair(stream) ? receiver : 0;
        int is_of = types[stream] == type || (stream == SC_STREAM_GROUP && type == SC_TYPE_RECORD);
        if (is_of && to < IDS && seqno > w->sent[stream][to]) w->sent[stream][to] = seqno;
    }
}
