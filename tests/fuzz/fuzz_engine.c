/* The wire parser and the engine behind it, fed with arbitrary bytes. The input is a script: each step is an operation and
 * its arguments. Beside what the sanitizers see, this checks that everything the engine sends is valid by the same parser,
 * and that everything it delivers is a sound Arrow array.
 *
 * Built by tests/fuzz/run: with libFuzzer, or with standalone.c where that is not there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash/crc32c.h"
#include "engine/engine.h"

#define GROUP 0x5eedu
#define MEMBERS 3
#define STEPS_MAX 256
#define IDS (MEMBERS + 2) /* of members from 1 on, of a stranger, and 0 for the group */
#define RUNS 16
#define BATCH 64 /* messages of an array */
#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                                                 \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    const uint8_t *p;
    size_t left;
} script;

static uint64_t take(script *s, size_t bytes) { /* zeros behind the end */
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        if (s->left) {
            value |= (uint64_t)*s->p++ << (8 * i);
            s->left--;
        }
    return value;
}

static size_t take_bytes(script *s, uint8_t *out, size_t most) {
    size_t n = take(s, 2) % (most + 1);
    if (n > s->left) n = s->left;
    memcpy(out, s->p, n);
    s->p += n;
    s->left -= n;
    return n;
}

/* One message, or an array, that is packed in part: it goes on, or is given up. */
typedef struct {
    int under_way, beside;
    uint64_t to, len;
    uint64_t marks[BATCH + 1], next, n; /* of an array; n 0: one message */
    sc_send_state state;
} sending;

/* What the harness knows, so that the others' datagrams can be what a sound member would send next. */
typedef struct {
    sc_engine *engine;
    sc_view view;
    int64_t now;
    uint64_t marker;
    uint64_t pair[IDS]; /* tag of the view since which we are together */
    uint64_t next[4][IDS]; /* by SC_STREAM_* and sender: its next seqno */
    uint64_t sent[4][IDS]; /* and the highest that we transmitted, by receiver; 0: to the group */
    uint64_t origin[IDS]; /* the highest of its own seqnos that the sequencer put in order */
    sc_tx lent[RUNS]; /* what the last transmit handed out */
    int n_lent;
    int awaited; /* the cut waits for unicasts */
    uint32_t sums[RUNS][SC_TX_SEGMENTS]; /* and its check sums */
    sending messages[2]; /* to the group, to a member */
} world;

static const uint8_t types[] = {SC_TYPE_DATA, SC_TYPE_UNICAST, SC_TYPE_FORWARD, SC_TYPE_STATE}; /* by SC_STREAM_* */

static int of_pair(uint64_t stream) { return stream == SC_STREAM_UNICAST || stream == SC_STREAM_STATE; }

static sc_address address_of(uint64_t id) { return (sc_address){2, {(uint8_t)id, (uint8_t)(id >> 8)}}; }

static int install(world *w, uint32_t n, uint32_t rank, int32_t sequencer, const uint64_t *cut) {
    uint64_t before[SC_MEMBERS_MAX];
    uint32_t n_before = w->view.n;
    memcpy(before, w->view.ids, sizeof before);
    w->view.tag++;
    w->awaited = 0;
    w->view.n = n;
    w->view.rank = rank;
    w->view.mechanism = sequencer < 0                       ? SC_ORDER_FIFO
                        : sequencer == 0 && w->view.tag % 2 ? SC_ORDER_TOTAL1999
                                                            : SC_ORDER_SEQUENCER;
    w->view.sequencer = sequencer;
    w->view.window_bytes = w->view.forward_window_bytes = w->view.unicast_window_bytes = w->view.state_window_bytes =
        1 << 16;
    w->view.packet_bytes = 1024;
    for (uint32_t r = 0, other = 2; r < n; r++) {
        w->view.ids[r] = r == rank ? 1 : other++;
        w->view.addresses[r] = address_of(w->view.ids[r]);
    }
    for (uint32_t r = 0; r < n; r++) {
        uint64_t id = w->view.ids[r];
        int stays = 0;
        for (uint32_t i = 0; i < n_before; i++) stays |= before[i] == id && !w->view.apart[r];
        w->next[SC_STREAM_GROUP][id] = w->view.base[r] + 1;
        w->next[SC_STREAM_FORWARD][id] = w->view.origin_base[r] + 1;
        w->origin[id] = w->view.origin_base[r];
        if (stays) continue;
        w->pair[id] = w->view.tag;
        w->next[SC_STREAM_UNICAST][id] = w->next[SC_STREAM_STATE][id] = 1;
        w->sent[SC_STREAM_UNICAST][id] = w->sent[SC_STREAM_STATE][id] = 0;
    }
    w->sent[SC_STREAM_GROUP][0] = w->view.base[rank];
    w->sent[SC_STREAM_FORWARD][0] = w->view.origin_base[rank];
    return sc_engine_install(w->engine, &w->view, cut, ++w->marker, w->now);
}

/* A copy of exactly `n` bytes, so that the sanitizer sees a read behind its end; in a slab where `in_slab`. */
static void receive(world *w, const uint8_t *p, size_t n, size_t segment, uint64_t from, int in_slab) {
    sc_address address = address_of(from);
    sc_slab *slab = in_slab ? sc_slab_get(sc_engine_pool(w->engine)) : NULL;
    uint8_t *copy = slab ? slab->data : malloc(n ? n : 1);
    CHECK(copy);
    memcpy(copy, p, n);
    sc_wire_check(copy, n, GROUP);
    sc_engine_receive(w->engine, slab, copy, n, segment, &address, (int)(n % 3), w->now);
    if (slab)
        sc_slab_unref(slab);
    else
        free(copy);
}

/* Makes of arbitrary bytes a datagram that gets behind the first checks: ours, of a member, of this view, with a CRC. */
static size_t repair(world *w, uint8_t *p, size_t n, uint64_t sender) {
    if (n < SC_COMMON_HEADER) {
        memset(p + n, 0, SC_COMMON_HEADER - n);
        n = SC_COMMON_HEADER;
    }
    sc_put_magic(p, SC_WIRE_MAGIC);
    sc_put_version(p, SC_WIRE_VERSION);
    sc_put_group(p, GROUP);
    sc_put_key_id(p, 0);
    sc_put_claim(p, 0);
    sc_put_sender(p, sender);
    uint8_t type = sc_get_type(p);
    int pair = type == SC_TYPE_UNICAST || type == SC_TYPE_STATE;
    if (type == SC_TYPE_ACK && n >= SC_ACK_LEN) pair = of_pair(sc_get_ack_stream(p));
    if (type == SC_TYPE_PROBE && n >= SC_PROBE_LEN) pair = of_pair(sc_get_probe_stream(p));
    if (type == SC_TYPE_NAK && n >= SC_NAK_LEN(0)) pair = of_pair(sc_get_nak_stream(p));
    sc_put_view_tag(p, pair ? w->pair[sender] : w->view.tag);
    sc_wire_seal(p, n);
    return n;
}

/* A data packet whose form is right and whose fields are arbitrary. */
static size_t data_packet(world *w, script *s, uint8_t *p, uint64_t sender) {
    memset(p, 0, SC_DATA_HEADER);
    sc_put_type(p, types[take(s, 1) % 4]);
    sc_put_flags(p, take(s, 1) & 3);
    sc_put_seqno(p, 1 + take(s, 1));
    sc_put_stable(p, take(s, 1));
    sc_put_origin_seqno(p, take(s, 1));
    sc_put_global_seqno(p, take(s, 1));
    sc_put_origin_rank(p, (uint16_t)take(s, 1) % 5);
    uint32_t pieces = 1 + (uint32_t)take(s, 1) % 8, each = (uint32_t)take(s, 1);
    uint32_t len = pieces * each;
    memset(p + SC_DATA_HEADER, 'x', len);
    size_t at = sc_wire_offsets(len);
    memset(p + SC_DATA_HEADER + len, 0, at - SC_DATA_HEADER - len);
    for (uint32_t i = 0; i <= pieces; i++) sc_put_offset(p + at, i, i * each);
    sc_put_data_len(p, len);
    sc_put_pieces(p, (uint16_t)pieces);
    return repair(w, p, at + 4 * ((size_t)pieces + 1), sender);
}

/* What `sender` would send next on one of its streams, now and then with a gap before it. */
static size_t next_packet(world *w, script *s, uint8_t *p, uint64_t sender) {
    uint32_t how = (uint32_t)take(s, 1), stream = how & 3, pieces = 1 + (how >> 2 & 3), each = (uint32_t)take(s, 1) * 4;
    uint64_t seqno = w->next[stream][sender], origin = sender;
    if (how >> 4 == 15) seqno += 1 + take(s, 1) % 8; /* a gap; what is in it comes below */
    if (how >> 4 == 14 && seqno > 1) seqno -= 1 + take(s, 1) % (seqno - 1); /* again, or what was missing */
    if (seqno >= w->next[stream][sender]) w->next[stream][sender] = seqno + 1;
    memset(p, 0, SC_DATA_HEADER);
    sc_put_type(p, types[stream]);
    sc_put_flags(p, (uint8_t)(how >> 4 & 3)); /* begins or ends in the middle of a message, or not */
    sc_put_seqno(p, seqno);
    sc_put_stable(p, seqno > 3 ? seqno - 3 : 0);
    if (stream == SC_STREAM_GROUP && w->view.sequencer >= 0) { /* stamped: of anybody, ourselves too */
        uint32_t rank = (how >> 4) % w->view.n;
        origin = w->view.ids[rank];
        sc_put_origin_rank(p, (uint16_t)rank);
        sc_put_origin_seqno(p, ++w->origin[origin]);
        sc_put_global_seqno(p, 1 + 4 * seqno);
    }
    uint32_t len = pieces * each;
    memset(p + SC_DATA_HEADER, 'y', len);
    size_t at = sc_wire_offsets(len);
    memset(p + SC_DATA_HEADER + len, 0, at - SC_DATA_HEADER - len);
    for (uint32_t i = 0; i <= pieces; i++) sc_put_offset(p + at, i, i * each);
    sc_put_data_len(p, len);
    sc_put_pieces(p, (uint16_t)pieces);
    return repair(w, p, at + 4 * ((size_t)pieces + 1), sender);
}

/* It lacks some of what we sent. */
static size_t next_nak(world *w, script *s, uint8_t *p, uint64_t sender, uint32_t how, uint64_t sent) {
    uint64_t back = how >> 5;
    uint32_t n = 1 + (how >> 6);
    sc_put_type(p, SC_TYPE_NAK);
    sc_put_nak_owner(p, how & 128 ? 1 + take(s, 1) % MEMBERS : 1); /* ours, or what we hold of another's */
    sc_put_nak_stream(p, how & 3);
    sc_put_nak_n(p, n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t lo = sent > back + i ? sent - back - i : 1;
        sc_put_nak_lo(p, i, lo);
        sc_put_nak_hi(p, i, lo + take(s, 1) % 4);
    }
    return repair(w, p, SC_NAK_LEN(n), sender);
}

/* What it has of everybody's streams, and whom it does not hear. */
static size_t next_heartbeat(world *w, script *s, uint8_t *p, uint64_t sender, uint32_t how) {
    sc_put_type(p, SC_TYPE_HEARTBEAT);
    sc_put_heartbeat_highest(p, w->next[SC_STREAM_GROUP][sender] - 1 + (how >> 5));
    sc_put_heartbeat_n(p, w->view.n);
    p[sc_at_heartbeat_unheard] = (uint8_t)(take(s, 1) & ((1u << w->view.n) - 1));
    for (uint32_t r = 0; r < w->view.n; r++) {
        uint64_t of = r == w->view.rank ? w->sent[SC_STREAM_GROUP][0] : w->next[SC_STREAM_GROUP][w->view.ids[r]] - 1;
        sc_put_heartbeat_delivered(p, r, of);
        sc_put_heartbeat_received(p, r, of + (how & 3));
    }
    return repair(w, p, SC_HEARTBEAT_LEN(w->view.n), sender);
}

/* With which id the view begins; that it knows; that it has the last packet. */
static size_t next_total(world *w, uint8_t *p, uint64_t sender, uint32_t header) {
    uint64_t first = w->view.sequencer >= 0 ? w->view.base[w->view.sequencer] + 1 : 1;
    sc_put_type(p, SC_TYPE_TOTAL);
    sc_put_total_header(p, header);
    if (header != SC_TOTAL_NEW_VIEW_ACK)
        sc_put_total_id(p, header == SC_TOTAL_NEW_VIEW ? first : 1 + w->sent[SC_STREAM_GROUP][0]);
    return repair(w, p, SC_TOTAL_LEN, sender);
}

/* The last seqno that we sent, or the one before. */
static uint64_t taken_of_ours(const world *w, uint64_t back) {
    uint64_t last = sc_engine_last_sent(w->engine);
    return last - (back && last);
}

/* What `sender` would say of what we sent: that all came, that the last packets did not, that there is more of its own. */
static size_t next_word(world *w, script *s, uint8_t *p, uint64_t sender) {
    uint32_t how = (uint32_t)take(s, 1), stream = how & 3;
    uint64_t sent = w->sent[stream][of_pair(stream) ? sender : 0], back = how >> 5;
    uint64_t nearly = sent > back ? sent - back : sent;
    memset(p, 0, SC_HEARTBEAT_LEN(MEMBERS));
    switch (how >> 2 & 7) {
    case 0: /* all came, or nearly */
    case 1:
        sc_put_type(p, SC_TYPE_ACK);
        sc_put_ack_stream(p, stream);
        sc_put_ack_delivered(p, nearly);
        sc_put_ack_received(p, sent);
        sc_put_ack_consumed(p, nearly);
        return repair(w, p, SC_ACK_LEN, sender);
    case 2: /* some did not */
    case 3: return next_nak(w, s, p, sender, how, sent);
    case 4: /* it has sent more than came */
        sc_put_type(p, SC_TYPE_PROBE);
        sc_put_probe_stream(p, stream);
        sc_put_probe_highest(p, w->next[stream][sender] - 1 + back);
        return repair(w, p, SC_PROBE_LEN, sender);
    case 5: return next_heartbeat(w, s, p, sender, how);
    case 6: /* it asks what our application has taken, or says what its own has */
        if (how & 2) return next_total(w, p, sender, 1 + back % 4);
        sc_put_type(p, how & 1 ? SC_TYPE_ASK : SC_TYPE_TAKEN);
        sc_put_taken_seqno(p, how & 1 ? back : taken_of_ours(w, back));
        return repair(w, p, SC_TAKEN_LEN, sender);
    default: /* is it there; is another */
        sc_put_type(p, how & 1 ? SC_TYPE_PING : SC_TYPE_PONG);
        sc_put_ping_target(p, 1 + back % MEMBERS);
        sc_put_ping_origin(p, how & 2 ? sender : 1 + take(s, 1) % MEMBERS);
        return repair(w, p, SC_PING_LEN, sender);
    }
}

/* An acknowledgement, a request, a probe or a ping with small numbers. */
static size_t small_word(script *s, uint8_t *p) {
    static const uint8_t words[] = {SC_TYPE_ACK,       SC_TYPE_NAK,  SC_TYPE_PROBE,
                                    SC_TYPE_HEARTBEAT, SC_TYPE_PING, SC_TYPE_PONG};
    memset(p, 0, SC_HEARTBEAT_LEN(4));
    sc_put_type(p, words[take(s, 1) % sizeof words]);
    switch (sc_get_type(p)) {
    case SC_TYPE_PING:
    case SC_TYPE_PONG:
        sc_put_ping_target(p, take(s, 1) % (MEMBERS + 2));
        sc_put_ping_origin(p, take(s, 1) % (MEMBERS + 2));
        return SC_PING_LEN;
    case SC_TYPE_NAK:
        sc_put_nak_owner(p, 1 + take(s, 1) % (MEMBERS + 1));
        sc_put_nak_stream(p, (uint32_t)take(s, 1) % 4);
        sc_put_nak_n(p, 1);
        sc_put_nak_lo(p, 0, take(s, 1));
        sc_put_nak_hi(p, 0, take(s, 1));
        return SC_NAK_LEN(1);
    case SC_TYPE_HEARTBEAT: {
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
    case SC_TYPE_ACK:
        sc_put_ack_stream(p, take(s, 1) % 4);
        sc_put_ack_delivered(p, take(s, 1));
        sc_put_ack_received(p, take(s, 1));
        sc_put_ack_consumed(p, take(s, 1));
        return SC_ACK_LEN;
    default:
        sc_put_probe_stream(p, take(s, 1) % 4);
        sc_put_probe_highest(p, take(s, 1));
        sc_put_probe_stable(p, take(s, 1));
        return SC_PROBE_LEN;
    }
}

static void note_sent(world *w, const sc_tx *run, const uint8_t *p) {
    for (uint64_t stream = 0; stream < 4; stream++) {
        uint64_t to = of_pair(stream) ? run->to.bytes[0] : 0, seqno = sc_get_seqno(p);
        if (sc_get_type(p) != types[stream] || sc_get_sender(p) != 1 || to >= IDS) continue;
        if (seqno > w->sent[stream][to]) w->sent[stream][to] = seqno;
    }
}

/* What was handed out may be on its way until the next transmit: it stays as it is, whatever is done meanwhile. */
static void check_lent(world *w) {
    for (int i = 0; i < w->n_lent; i++)
        for (uint32_t k = 0; k < w->lent[i].n; k++)
            CHECK(sc_crc32c(0, w->lent[i].p[k], w->lent[i].len[k]) == w->sums[i][k]);
    w->n_lent = 0;
}

static int transmit_once(world *w, int max, int all) {
    sc_tx *out = w->lent;
    check_lent(w);
    int n = w->n_lent = sc_engine_transmit(w->engine, out, max, w->now, all);
    for (int i = 0; i < n; i++) {
        CHECK(out[i].n > 0 && out[i].n <= SC_TX_SEGMENTS && out[i].bytes <= SC_PACKET_MAX);
        for (uint32_t k = 0; k < out[i].n; k++) {
            CHECK(out[i].len[k] == out[i].segment || (k == out[i].n - 1 && out[i].len[k] < out[i].segment));
            CHECK(sc_wire_check(out[i].p[k], out[i].len[k], GROUP) == SC_WIRE_OK);
            note_sent(w, &out[i], out[i].p[k]);
            w->sums[i][k] = sc_crc32c(0, out[i].p[k], out[i].len[k]);
        }
    }
    return n;
}

static void transmit(world *w) {
    for (int round = 0; round < 64 && transmit_once(w, RUNS, !(round & 1)); round++) {}
}

/* The application sends: goes on with what is under way, or begins. */
static void send(world *w, script *s, const uint8_t *payload, uint32_t operation) {
    int one = operation >> 4 & 1;
    sending *m = &w->messages[one];
    if (!m->under_way) {
        memset(m, 0, sizeof *m);
        m->under_way = 1;
        m->beside = (int)(operation & 1);
        m->to = one ? take(s, 1) % IDS : 0; /* to a member, to itself, to nobody */
        if (operation >> 5 & 1 && !one) {
            m->n = 1 + take(s, 1) % BATCH;
            for (uint64_t i = 0; i < m->n; i++)
                m->marks[i + 1] = m->marks[i] + (operation >> 6 & 1 ? 4 * take(s, 1) : 9);
        } else {
            m->len = take(s, 2);
            if (operation >> 6 & 1) m->len *= 4; /* more than the window of one */
        }
    }
    int result;
    if (m->n)
        m->next =
            sc_engine_send_batch(w->engine, m->beside, payload, m->marks, m->next, m->n, &m->state, w->now, &result);
    else
        result = sc_engine_send(w->engine, m->to, m->beside, payload, m->len, &m->state, w->now);
    CHECK(m->next <= m->n && (result != SC_SENT || m->next == m->n));
    if (result == SC_AGAIN && !(operation >> 7)) return;
    if (result == SC_AGAIN) sc_engine_send_abort(w->engine, m->to, &m->state);
    m->under_way = 0;
}

static void deliver(world *w, uint64_t bytes) {
    sc_batch batch = {0}, only;
    uint64_t marker;
    for (int round = 0; round < 16; round++) {
        int kind = sc_engine_deliver(w->engine, &batch, bytes, &marker, w->now);
        if (kind == SC_DELIVER_NONE) break;
        if (kind == SC_DELIVER_MARKER) continue;
        CHECK(batch.n > 0 && batch.offsets[0] == 0 && (uint64_t)batch.offsets[batch.n] == batch.data_len);
        for (uint32_t i = 0; i < batch.n; i++) CHECK(batch.offsets[i] <= batch.offsets[i + 1]);
        uint32_t first = 0;
        for (uint32_t i = 0; i < batch.n_runs; i++) {
            CHECK(batch.runs[i].first == first && batch.runs[i].n > 0);
            first += batch.runs[i].n;
        }
        CHECK(first == batch.n);
        CHECK(!sc_batch_unicasts(&batch, &only) && only.n <= batch.n);
        for (uint32_t i = 0; i < only.n_runs; i++) CHECK(only.runs[i].unicast);
        sc_batch_clear(&only);
        if (bytes & 1) sc_engine_taken(w->engine);
    }
    sc_batch_clear(&batch);
}

static void events(world *w) {
    sc_event event;
    while (sc_engine_event(w->engine, &event)) free(event.payload);
}

/* State to a member, or from one. */
static void state(world *w, script *s, uint8_t *payload) {
    uint64_t member = take(s, 1) % (MEMBERS + 2), done = 0;
    size_t n = take(s, 2);
    switch (take(s, 1) % 4) {
    case 2: sc_engine_state_void(w->engine, member); break;
    case 0:
        sc_engine_state_send(w->engine, member, payload, n, &done, w->now);
        CHECK(done <= n);
        break;
    case 1: sc_engine_state_end(w->engine, member); break;
    default:
        done = sc_engine_state_read(w->engine, member, payload, n, w->now);
        CHECK(done <= n && (done == n || !sc_engine_state_readable(w->engine, member)));
    }
}

/* A view change as the policies do it: gate, freeze, cut at what is held, install. Some attempts end before that, some cut
 * at what is yet to be fetched from a holder, and some merge with members from elsewhere. */
static void change_view(world *w, script *s) {
    uint32_t how = (uint32_t)take(s, 1), more = (uint32_t)take(s, 1);
    uint64_t lost = w->view.ids[how % w->view.n], cut[SC_MEMBERS_MAX], table[SC_MEMBERS_MAX], ranges[32];
    sc_engine_freeze(w->engine, &lost, how & 1, how >> 1 & 1);
    sc_engine_gate_close(w->engine, more & 1);
    w->awaited |= more & 1;
    if (more >> 1 & 1) return; /* and stays closed until another attempt */
    for (uint32_t r = 0; r < w->view.n; r++) sc_engine_held(w->engine, r, &cut[r], ranges, 16);
    if (more >> 2 & 1) {
        uint32_t of = more >> 4 & 1 ? w->view.rank : (w->view.rank + 1) % w->view.n;
        sc_fetch fetch = {cut[of] + 1, cut[of] + 3, of, (w->view.rank + 2) % w->view.n};
        if (of != w->view.rank) cut[of] += 3;
        sc_engine_cut(w->engine, cut, &fetch, 1);
        return;
    }
    sc_engine_cut(w->engine, cut, NULL, 0);
    if (!sc_engine_cut_reached(w->engine)) { /* unicasts that a member lacks are waited for */
        CHECK(w->awaited);
        return;
    }
    sc_engine_received_table(w->engine, table);
    w->view.merge = more >> 3 & 1;
    for (uint32_t r = 0; r < w->view.n; r++) {
        w->view.base[r] = cut[r];
        w->view.origin_base[r] = table[r];
        w->view.apart[r] = w->view.merge && r != w->view.rank && (more >> 5 & 1);
    }
    uint32_t n = how >> 6 == 3 ? 1 : 2 + (how >> 1) % (MEMBERS - 1);
    for (uint32_t r = w->view.n; r < n; r++) w->view.base[r] = w->view.origin_base[r] = w->view.apart[r] = 0;
    uint32_t rank = w->view.rank < n ? w->view.rank : 0;
    if (rank != w->view.rank) {
        w->view.base[rank] = cut[w->view.rank];
        w->view.origin_base[rank] = table[w->view.rank];
        w->view.apart[rank] = 0;
    }
    CHECK(!install(w, n, rank, (int32_t)((how >> 4) % (n + 1)) - 1, cut));
}

/* What others ask of the engine, at any time. */
static void look(world *w, script *s) {
    const char *names[128];
    uint64_t values[128], pairs[2 * 4], ids[SC_MEMBERS_MAX];
    sc_stream_state stream;
    static sc_taking taking;
    uint32_t how = (uint32_t)take(s, 1);
    CHECK(sc_engine_counter_values(w->engine, names, values, 128) <= 128);
    CHECK(sc_engine_links(w->engine, pairs, 4) <= 4 && sc_engine_doubted(w->engine, ids) <= MEMBERS);
    for (uint32_t r = 0; r <= w->view.n; r++)
        if (!sc_engine_stream(w->engine, r, &stream)) CHECK(stream.delivered <= stream.received);
    sc_engine_urgent(w->engine), sc_engine_window(w->engine), sc_engine_forwarded(w->engine),
        sc_engine_unordered(w->engine);
    sc_taking_begin(w->engine, &taking, w->now);
    sc_engine_consumed(w->engine, w->now);
    if (how & 1) {
        sc_engine_tick(w->engine, w->now);
        transmit(w);
    }
    sc_taking_state(w->engine, &taking);
    sc_taking_end(w->engine, &taking);
    sc_own own;
    uint64_t unacknowledged[SC_MEMBERS_MAX];
    sc_engine_own(w->engine, &own);
    sc_engine_own_messages(w->engine, own.all, 0), sc_engine_own_messages(w->engine, own.last, 1);
    sc_engine_unacknowledged(w->engine, unacknowledged);
    sc_engine_drained(w->engine);
    if (how >> 2 == 51) {
        sc_engine_end_sends(w->engine);
        CHECK(sc_engine_sends_ended(w->engine));
    }
    if (how >> 1 == 100) sc_engine_blocked_end(w->engine);
    if (how >> 1 == 101) sc_engine_state_void(w->engine, 0);
    CHECK(sc_engine_blocked(w->engine) <= 1 << 16);
}

static sc_config settings(void) {
    return (sc_config){
        .member = 1,
        .group = GROUP,
        .deliver_own = 1,
        .receive = 1,
        .slabs_max = 64,
        .ring_bytes = 1 << 17,
        .unicast_bytes = 1 << 16,
        .ring_packets = 256,
        .message_bytes_max = 1 << 17,
        .control_bytes_max = 1 << 16,
        .nak_delay_ns = 200000,
        .nak_backoff_ns_min = 2000000,
        .nak_backoff_ns_max = 200000000,
        .retransmit_hold_ns = 500000,
        .retransmit_bytes_per_s = 500000000,
        .ack_delay_ns = 2000000,
        .probe_ns_min = 4000000,
        .probe_ns_max = 100000000,
        .heartbeat_ns = 50000000,
        .suspect_ns = 400000000,
        .suspect_ns_max = 1600000000,
        .install_ns = 1000000000,
        .seed = 1,
    };
}

/* A datagram comes; 0 where `operation` is something else. */
static int receive_something(world *w, script *s, uint8_t *p, uint32_t operation, uint64_t sender) {
    size_t n, segment = 0;
    switch (operation & 15) {
    case 0: /* whatever it is */ n = take_bytes(s, p, 2048); break;
    case 1: /* arbitrary behind the checks */ n = repair(w, p, take_bytes(s, p, 2048), sender); break;
    case 2: /* what a sound member would send */
        n = operation >> 6 & 1 ? next_word(w, s, p, sender) : next_packet(w, s, p, sender);
        break;
    case 3: n = next_word(w, s, p, sender); break;
    case 4: n = data_packet(w, s, p, sender); break;
    case 5: /* nearly right */
        n = data_packet(w, s, p, sender);
        for (uint64_t k = 1 + take(s, 1) % 4; k; k--) {
            size_t at = take(s, 2) % n;
            p[operation & 64 ? sc_at_data_len + at % (n - sc_at_data_len) : at] = (uint8_t)take(s, 1);
        }
        n = repair(w, p, n, sender);
        break;
    case 6: { /* several datagrams, as UDP_GRO hands them over */
        segment = data_packet(w, s, p, sender);
        size_t next = data_packet(w, s, p + segment, sender);
        n = segment + (next < segment ? next : segment);
        break;
    }
    case 7: n = repair(w, p, small_word(s, p), sender); break;
    default: return 0;
    }
    receive(w, p, n, segment, sender, operation >> 7);
    return 1;
}

/* Time passes: a little, or until something is due. */
static void pass_time(world *w, script *s, int to_deadline) {
    int64_t due = sc_engine_deadline(w->engine), after = (int64_t)(take(s, 1) + 1) * 1000000;
    w->now = to_deadline && due != SC_NEVER && due > w->now ? due : w->now + after;
    sc_engine_tick(w->engine, w->now);
    transmit(w);
}

static void control(world *w, script *s, uint8_t *packet, uint8_t *payload, uint32_t operation, uint64_t sender) {
    sc_address address = address_of(sender);
    if (operation & 16) {
        state(w, s, payload);
    } else if (operation & 32) {
        if (operation & 64)
            sc_engine_pause(w->engine);
        else
            sc_engine_resume(w->engine);
        if (operation >> 7) CHECK(!sc_engine_mark(w->engine, ++w->marker));
    } else {
        size_t n = take_bytes(s, packet, 256);
        sc_engine_control_send(w->engine, operation & 64 ? &address : NULL, packet, n);
    }
}

static void act(world *w, script *s, uint8_t *packet, uint8_t *payload, uint32_t operation, uint64_t sender) {
    switch (operation & 15) {
    case 8:
    case 9: send(w, s, payload, operation); break;
    case 10:
        if (operation >> 7)
            transmit_once(w, 1 + (operation >> 4 & 3), operation >> 6 & 1);
        else
            transmit(w);
        break;
    case 11: pass_time(w, s, operation >> 7); break;
    case 12: deliver(w, 1 + take(s, 2)); break;
    case 13: {
        sc_address address = address_of(sender);
        events(w);
        if (operation >> 7) sc_engine_refused(w->engine, &address, w->now);
        look(w, s);
        break;
    }
    case 14: change_view(w, s); break;
    default: control(w, s, packet, payload, operation, sender);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t packet[SC_PACKET_MAX + 4096];
    static uint8_t payload[1 << 18];
    static world w;
    script s = {data, size};
    sc_wire_check(data, size, GROUP);
    sc_config config = settings();
    uint32_t mode = (uint32_t)take(&s, 1), kind = (uint32_t)take(&s, 1);
    config.blocked_bytes_max = kind & 1 ? 1 << 14 : 0;
    config.receive = kind >> 2 != 1;
    config.deliver_own = kind >> 2 != 2;
    if (kind >> 2 == 3) config.ack_bytes = config.ack_packets = 4;
    if (kind & 2) config.ring_packets = 16;
    memset(&w, 0, sizeof w);
    w.engine = sc_engine_new(&config);
    w.now = 1;
    CHECK(w.engine);
    CHECK(!install(&w, MEMBERS, mode % MEMBERS, (int32_t)(mode / MEMBERS % (MEMBERS + 1)) - 1, NULL));

    for (int step = 0; step < STEPS_MAX && s.left; step++) {
        uint32_t operation = (uint32_t)take(&s, 1);
        uint64_t sender = 1 + (operation >> 4) % (MEMBERS + 1); /* also ourselves, and a stranger */
        if (!receive_something(&w, &s, packet, operation, sender)) act(&w, &s, packet, payload, operation, sender);
    }
    transmit(&w);
    deliver(&w, 1 << 16);
    events(&w);
    sc_engine_close(w.engine, NULL, NULL, ++w.marker);
    deliver(&w, 1 << 16);
    check_lent(&w);
    sc_engine_free(w.engine);
    return 0;
}
