/* The wire parser and the engine behind it, fed with arbitrary bytes. The input is a script: each step is an operation and
 * its arguments. Beside what the sanitizers see, this checks that everything the engine sends is valid by the same parser,
 * and that everything it delivers is a sound Arrow array.
 *
 * Built by tests/fuzz/run: with libFuzzer, or with standalone.c where that is not there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

#define GROUP 0x5eedu
#define MEMBERS 3
#define STEPS_MAX 256
#define CHECK(what)                                                     \
    do {                                                                \
        if (!(what)) {                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);  \
            abort();                                                    \
        }                                                               \
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

typedef struct {
    sc_engine *engine;
    sc_view view;
    int64_t now;
    uint64_t marker;
} world;

static sc_address address_of(uint64_t id) { return (sc_address){2, {(uint8_t)id, (uint8_t)(id >> 8)}}; }

static int install(world *w, uint32_t n, uint32_t rank, int32_t sequencer, const uint64_t *cut) {
    w->view.tag++;
    w->view.n = n;
    w->view.rank = rank;
    w->view.sequencer = sequencer;
    w->view.window_bytes = w->view.forward_window_bytes = w->view.unicast_window_bytes = w->view.state_window_bytes = 1 << 16;
    w->view.packet_bytes = 1024;
    for (uint32_t r = 0, other = 2; r < n; r++) {
        w->view.ids[r] = r == rank ? 1 : other++;
        w->view.addresses[r] = address_of(w->view.ids[r]);
    }
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
    sc_engine_receive(w->engine, slab, copy, n, segment, &address, SC_LANE_DATA, w->now);
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
    p[SC_OFF_MAGIC] = SC_WIRE_MAGIC;
    p[SC_OFF_VERSION] = SC_WIRE_VERSION;
    sc_put32(p + SC_OFF_GROUP, GROUP);
    sc_put16(p + SC_OFF_KEY_ID, 0);
    sc_put16(p + SC_OFF_RESERVED, 0);
    sc_put64(p + SC_OFF_SENDER, sender);
    sc_put64(p + SC_OFF_VIEW, w->view.tag);
    sc_wire_seal(p, n);
    return n;
}

/* A data packet whose form is right and whose fields are arbitrary. */
static size_t data_packet(world *w, script *s, uint8_t *p, uint64_t sender) {
    static const uint8_t types[] = {SC_TYPE_DATA, SC_TYPE_UNICAST, SC_TYPE_FORWARD, SC_TYPE_STATE};
    memset(p, 0, SC_DATA_HEADER);
    p[SC_OFF_TYPE] = types[take(s, 1) % 4];
    p[SC_OFF_FLAGS] = take(s, 1) & 3;
    sc_put64(p + SC_OFF_SEQNO, 1 + take(s, 1));
    sc_put64(p + SC_OFF_STABLE, take(s, 1));
    sc_put64(p + SC_OFF_ORIGIN_SEQNO, take(s, 1));
    sc_put64(p + SC_OFF_GLOBAL, take(s, 1));
    sc_put16(p + SC_OFF_ORIGIN_RANK, (uint16_t)take(s, 1) % 5);
    uint32_t pieces = 1 + (uint32_t)take(s, 1) % 8, each = (uint32_t)take(s, 1);
    uint32_t len = pieces * each;
    memset(p + SC_DATA_HEADER, 'x', len);
    size_t at = sc_wire_offsets(len);
    memset(p + SC_DATA_HEADER + len, 0, at - SC_DATA_HEADER - len);
    for (uint32_t i = 0; i <= pieces; i++) sc_put32(p + at + 4 * (size_t)i, i * each);
    sc_put32(p + SC_OFF_DATA_LEN, len);
    sc_put16(p + SC_OFF_PIECES, (uint16_t)pieces);
    return repair(w, p, at + 4 * ((size_t)pieces + 1), sender);
}

static void transmit(world *w) {
    static sc_tx out[16];
    for (int round = 0; round < 64; round++) {
        int n = sc_engine_transmit(w->engine, out, 16, w->now, !(round & 1));
        if (!n) return;
        for (int i = 0; i < n; i++) {
            CHECK(out[i].n > 0 && out[i].n <= SC_TX_SEGMENTS && out[i].bytes <= SC_PACKET_MAX);
            for (uint32_t k = 0; k < out[i].n; k++) {
                CHECK(out[i].len[k] == out[i].segment || (k == out[i].n - 1 && out[i].len[k] < out[i].segment));
                CHECK(sc_wire_check(out[i].p[k], out[i].len[k], GROUP) == SC_WIRE_OK);
            }
        }
    }
}

static void deliver(world *w, uint64_t bytes) {
    sc_batch batch = {0};
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
    case 2:
        sc_engine_state_void(w->engine, member);
        break;
    case 0:
        sc_engine_state_send(w->engine, member, payload, n, &done, w->now);
        CHECK(done <= n);
        break;
    case 1:
        sc_engine_state_end(w->engine, member);
        break;
    default:
        done = sc_engine_state_read(w->engine, member, payload, n, w->now);
        CHECK(done <= n && (done == n || !sc_engine_state_readable(w->engine, member)));
    }
}

/* A view change as the policies do it: gate, freeze, cut at what is held, install. */
static void change_view(world *w, script *s) {
    uint32_t how = (uint32_t)take(s, 1);
    uint64_t lost = w->view.ids[how % w->view.n], cut[SC_MEMBERS_MAX], table[SC_MEMBERS_MAX], ranges[32];
    sc_engine_freeze(w->engine, &lost, how & 1, how >> 1 & 1);
    sc_engine_gate_close(w->engine, 0);
    for (uint32_t r = 0; r < w->view.n; r++) sc_engine_held(w->engine, r, &cut[r], ranges, 16);
    sc_engine_cut(w->engine, cut, NULL, 0);
    CHECK(sc_engine_cut_reached(w->engine));
    sc_engine_received_table(w->engine, table);
    for (uint32_t r = 0; r < w->view.n; r++) {
        w->view.base[r] = cut[r];
        w->view.origin_base[r] = table[r];
    }
    uint32_t n = 2 + (how >> 1) % (MEMBERS - 1);
    for (uint32_t r = w->view.n; r < n; r++) w->view.base[r] = w->view.origin_base[r] = 0;
    uint32_t rank = w->view.rank < n ? w->view.rank : 0;
    CHECK(!install(w, n, rank, (int32_t)((how >> 4) % (n + 1)) - 1, cut));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t packet[SC_PACKET_MAX + 4096];
    static uint8_t payload[1 << 16];
    script s = {data, size};
    sc_wire_check(data, size, GROUP);
    sc_config config = {
        .member = 1, .group = GROUP, .deliver_own = 1, .receive = 1, .slabs_max = 64, .ring_bytes = 1 << 17,
        .unicast_bytes = 1 << 16, .ring_packets = 256, .message_bytes_max = 1 << 16, .control_bytes_max = 1 << 16,
        .nak_delay_ns = 200000, .nak_backoff_ns_min = 2000000, .nak_backoff_ns_max = 200000000,
        .retransmit_hold_ns = 500000, .retransmit_bytes_per_s = 500000000, .ack_delay_ns = 2000000,
        .probe_ns_min = 4000000, .probe_ns_max = 100000000, .heartbeat_ns = 50000000, .suspect_ns = 400000000,
        .suspect_ns_max = 1600000000, .install_ns = 1000000000, .seed = 1,
    };
    world w = {.engine = sc_engine_new(&config), .now = 1};
    CHECK(w.engine);
    uint32_t mode = (uint32_t)take(&s, 1);
    CHECK(!install(&w, MEMBERS, mode % MEMBERS, (int32_t)(mode / MEMBERS % (MEMBERS + 1)) - 1, NULL));

    for (int step = 0; step < STEPS_MAX && s.left; step++) {
        uint32_t operation = (uint32_t)take(&s, 1);
        uint64_t sender = 1 + (operation >> 4) % (MEMBERS + 1); /* also ourselves, and a stranger */
        int in_slab = operation >> 7;
        size_t n;
        switch (operation & 15) {
        case 0: /* whatever it is */
            n = take_bytes(&s, packet, 2048);
            receive(&w, packet, n, 0, sender, in_slab);
            break;
        case 1:
        case 2: /* arbitrary behind the checks */
            n = repair(&w, packet, take_bytes(&s, packet, 2048), sender);
            receive(&w, packet, n, 0, sender, in_slab);
            break;
        case 3:
        case 4:
            n = data_packet(&w, &s, packet, sender);
            receive(&w, packet, n, 0, sender, in_slab);
            break;
        case 5: /* nearly right */
            n = data_packet(&w, &s, packet, sender);
            for (uint64_t k = 1 + take(&s, 1) % 4; k; k--) {
                size_t at = take(&s, 2) % n;
                packet[operation & 64 ? SC_OFF_DATA_LEN + at % (n - SC_OFF_DATA_LEN) : at] = (uint8_t)take(&s, 1);
            }
            n = repair(&w, packet, n, sender);
            receive(&w, packet, n, 0, sender, in_slab);
            break;
        case 6: { /* several datagrams, as UDP_GRO hands them over */
            size_t a = data_packet(&w, &s, packet, sender);
            size_t b = data_packet(&w, &s, packet + a, sender);
            receive(&w, packet, a + (b < a ? b : a), a, sender, in_slab);
            break;
        }
        case 7: { /* an acknowledgement, a request, a probe or a ping with small numbers */
            static const uint8_t types[] = {SC_TYPE_ACK, SC_TYPE_NAK, SC_TYPE_PROBE, SC_TYPE_HEARTBEAT, SC_TYPE_PING, SC_TYPE_PONG};
            memset(packet, 0, SC_HEARTBEAT_HEADER + 64);
            packet[SC_OFF_TYPE] = types[take(&s, 1) % sizeof types];
            if (packet[SC_OFF_TYPE] == SC_TYPE_PING || packet[SC_OFF_TYPE] == SC_TYPE_PONG) {
                for (int i = 0; i < 2; i++) sc_put64(packet + 40 + 8 * i, take(&s, 1) % (MEMBERS + 2));
                n = SC_PING_LEN;
            } else if (packet[SC_OFF_TYPE] == SC_TYPE_NAK) {
                sc_put64(packet + 40, 1 + take(&s, 1) % (MEMBERS + 1));
                sc_put32(packet + 48, (uint32_t)take(&s, 1) % 4);
                sc_put32(packet + 52, 1);
                sc_put64(packet + 56, take(&s, 1));
                sc_put64(packet + 64, take(&s, 1));
                n = SC_NAK_HEADER + 16;
            } else if (packet[SC_OFF_TYPE] == SC_TYPE_HEARTBEAT) {
                uint32_t entries = (uint32_t)take(&s, 1) % 4;
                sc_put64(packet + 40, take(&s, 1));
                sc_put64(packet + 48, take(&s, 1));
                sc_put32(packet + 56, entries);
                packet[SC_HEARTBEAT_UNHEARD] = (uint8_t)take(&s, 1);
                for (uint32_t i = 0; i < 2 * entries; i++) sc_put64(packet + SC_HEARTBEAT_HEADER + 8 * (size_t)i, take(&s, 1));
                n = SC_HEARTBEAT_HEADER + 16 * (size_t)entries;
            } else {
                sc_put64(packet + 40, take(&s, 1) % 4);
                for (int i = 0; i < 3; i++) sc_put64(packet + 48 + 8 * i, take(&s, 1));
                n = packet[SC_OFF_TYPE] == SC_TYPE_ACK ? SC_ACK_LEN : SC_PROBE_LEN;
            }
            receive(&w, packet, repair(&w, packet, n, sender), 0, sender, in_slab);
            break;
        }
        case 8:
        case 9: { /* the application sends; to a member, to itself, to nobody */
            sc_send_state state = {0};
            uint64_t to = operation & 16 ? take(&s, 1) % (MEMBERS + 2) : 0;
            n = take(&s, 2);
            if (sc_engine_send(w.engine, to, payload, n, &state, w.now) == SC_AGAIN) sc_engine_send_abort(w.engine, to, &state);
            break;
        }
        case 10:
            transmit(&w);
            break;
        case 11:
            w.now += (int64_t)(take(&s, 1) + 1) * 1000000;
            sc_engine_tick(w.engine, w.now);
            transmit(&w);
            break;
        case 12:
            deliver(&w, 1 + take(&s, 2));
            break;
        case 13: {
            sc_address address = address_of(sender);
            uint64_t pairs[2 * 4], ids[SC_MEMBERS_MAX];
            events(&w);
            if (in_slab) sc_engine_refused(w.engine, &address, w.now);
            CHECK(sc_engine_links(w.engine, pairs, 4) <= 4 && sc_engine_doubted(w.engine, ids) <= MEMBERS);
            break;
        }
        case 14:
            change_view(&w, &s);
            break;
        default:
            n = take_bytes(&s, packet, 256);
            if (operation & 16)
                state(&w, &s, payload);
            else
                sc_engine_control_send(w.engine, NULL, packet, n);
        }
    }
    transmit(&w);
    deliver(&w, 1 << 16);
    events(&w);
    sc_engine_close(w.engine, NULL, ++w.marker);
    deliver(&w, 1 << 16);
    sc_engine_free(w.engine);
    return 0;
}
