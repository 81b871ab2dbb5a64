/* The wire parser and the engine behind it, fed with arbitrary bytes. The input is a script: each step is an operation
 * and its arguments. Beside the sanitizers' checks, this checks that everything the engine sends is valid by the same
 * parser, and that each batch is a sound Arrow array.
 *
 * Built by tests/fuzz/run: with libFuzzer, or else with standalone.c. */
#include "../helpers/settings.h"
#include "world.h"

#include "hash/crc32c.h"
#include "toy_ciphers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t take_bytes(script *s, uint8_t *out, size_t most) {
    size_t n = take(s, 2) % (most + 1);
    if (n > s->left) n = s->left;
    memcpy(out, s->p, n);
    s->p += n;
    s->left -= n;
    return n;
}

/* The beginnings of the others' streams, numbers and places in a view. */
static void note_view(world *w, const uint64_t *before, uint32_t n_before) {
    memset(w->told, 0, sizeof w->told);
    memset(w->hand, 0, sizeof w->hand);
    memset(w->wants, 0, sizeof w->wants);
    memset(w->claim, 0, sizeof w->claim);
    w->want = w->wanted = 0;
    w->place = 1;
    w->awaited = 0;
    for (uint32_t r = 0; r < w->view.n; r++) {
        uint64_t id = w->view.ids[r];
        int stays = 0;
        for (uint32_t i = 0; i < n_before; i++) stays |= before[i] == id && !w->view.apart[r];
        w->next[SC_STREAM_GROUP][id] = w->view.base[r] + 1;
        w->next[SC_STREAM_FORWARD][id] = w->view.origin_base[r] + 1;
        w->origin[id] = w->view.origin_base[r];
        for (uint64_t other = 0; other < IDS; other++) w->told[other][id] = w->view.base[r];
        if (stays) continue;
        w->pair[id] = w->view.tag;
        w->next[SC_STREAM_UNICAST][id] = w->next[SC_STREAM_STATE][id] = 1;
        w->sent[SC_STREAM_UNICAST][id] = w->sent[SC_STREAM_STATE][id] = 0;
    }
    w->sent[SC_STREAM_GROUP][0] = w->view.base[w->view.rank];
    w->sent[SC_STREAM_FORWARD][0] = w->view.origin_base[w->view.rank];
}

/* The mechanism of a group stays, and each view has a sequencer of its own. */
static void choose_order(world *w, uint32_t n, uint32_t drawn) {
    static const uint8_t orders[] = {SC_ORDER_FIFO,      SC_ORDER_SEQUENCER, SC_ORDER_RECORDS,
                                     SC_ORDER_TOTAL1999, SC_ORDER_GRANT,     SC_ORDER_CAUSAL};
    if (w->view.tag == 1) w->view.mechanism = orders[drawn % sizeof orders];
    uint32_t mechanism = w->view.mechanism, whose = drawn / sizeof orders % n;
    int nobody = mechanism == SC_ORDER_FIFO || mechanism == SC_ORDER_CAUSAL;
    w->view.sequencer = nobody ? -1 : mechanism == SC_ORDER_TOTAL1999 ? 0 : (int32_t)whose;
    w->view.safe = (uint32_t)w->safe && mechanism != SC_ORDER_GRANT;
}

static int install(world *w, uint32_t n, uint32_t rank, uint32_t order, const uint64_t *cut) {
    uint64_t before[SC_MEMBERS_MAX];
    uint32_t n_before = w->view.n;
    memcpy(before, w->view.ids, sizeof before);
    w->view.tag++;
    w->view.n = n;
    w->view.rank = rank;
    choose_order(w, n, order);
    w->view.window_bytes = w->view.forward_window_bytes = w->view.unicast_window_bytes = w->view.state_window_bytes =
        1 << 16;
    w->view.share_bytes = order & 128 ? w->view.window_bytes / 4 : 0; /* the rest is lent */
    w->view.room_bytes = n * w->view.window_bytes / (order & 128 ? 3 : 1);
    w->view.packet_bytes = 1024;
    for (uint32_t r = 0, other = 2; r < n; r++) {
        w->view.ids[r] = r == rank ? 1 : other++;
        w->view.addresses[r] = address_of(w->view.ids[r]);
    }
    note_view(w, before, n_before);
    return sc_engine_install(w->engine, &w->view, cut, ++w->marker, w->now);
}

/* As the engine, of a datagram without a key. */
static sc_wire_result check(const uint8_t *p, size_t n) {
    sc_opened opened;
    sc_wire_result result = sc_wire_begins(p, n, GROUP);
    if (result == SC_WIRE_OK) result = sc_seal_check(NULL, (uint8_t *)p, &n, 0, &opened);
    return result == SC_WIRE_OK ? sc_wire_check(p, n) : result;
}

/* ---- with a key ----------------------------------------------------------------------------------------------- */

static void toy_random(uint8_t *p, unsigned long long n) { memset(p, 7, n); }

/* Both know some views, perhaps the one that the datagram names; the sealer is in one of them, or in none. */
static void learn_views(sc_seal *one, sc_seal *other, const uint8_t *data) {
    uint64_t tags[3] = {sc_get_view_tag(data), 1 + (data[3] & 1), 3};
    if (tags[0] > 3 && (tags[0] & 0x7fff) <= 3) tags[0] = 0; /* a number could not tell such a view from another one */
    for (int i = 0; i < 3; i++) {
        uint8_t of[SC_SEAL_SECRET] = {(uint8_t)(tags[i] + 1)};
        if (!tags[i] || !(data[5] >> i & 1)) continue;
        unsigned cipher = (unsigned)(tags[i] + data[4]) % SC_CIPHERS;
        CHECK(sc_seal_know(one, tags[i], cipher, of) == 0 && sc_seal_know(other, tags[i], cipher, of) == 0);
    }
    if (data[5] & 64) sc_seal_enter(one, tags[data[5] >> 7]);
}

/* Cut off, or with a bit changed, a sealed datagram is refused. */
static void refuse_spoilt(sc_seal *by, const uint8_t *q, size_t n, size_t at) {
    size_t cut = n - 1;
    sc_opened opened;
    uint8_t *shorter = malloc(cut), *changed = malloc(n);
    CHECK(shorter && changed);
    memcpy(shorter, q, cut);
    memcpy(changed, q, n);
    changed[at] ^= 1;
    CHECK(sc_seal_check(by, shorter, &cut, 1, &opened) != SC_WIRE_OK);
    CHECK(sc_seal_check(by, changed, &n, 1, &opened) != SC_WIRE_OK);
    free(shorter);
    free(changed);
}

/* Whole, the datagram is opened, unless its view was forgotten. */
static void open_whole(sc_seal *by, uint8_t *q, const uint8_t *data, size_t size) {
    int unknown = sc_sealed_inside(q) && data[6] & 1;
    size_t n = size + SC_SEAL_ROOM;
    sc_opened opened;
    if (data[6] & 1) sc_seal_forget(by);
    sc_wire_result result = sc_seal_check(by, q, &n, 1, &opened);
    if (unknown && result == SC_WIRE_VIEW_UNKNOWN) return;
    CHECK(result == SC_WIRE_OK || result == SC_WIRE_FIELD_BAD); /* or not sealed for its one receiver */
    if (result == SC_WIRE_OK)
        CHECK(n == size && !memcmp(q + SC_COMMON_HEADER, data + SC_COMMON_HEADER, size - SC_COMMON_HEADER));
}

/* The input comes as a sealed datagram; and, sealed as one, comes whole, cut off and altered. In memory of exactly
 * its size. */
static void sealed(const uint8_t *data, size_t size) {
    const sc_cipher_library toy = toy_library(toy_random);
    static const sc_seal_secret from[2] = {{3, {1}}, {4, {2}}};
    if (size < SC_COMMON_HEADER || size > SC_PACKET_MAX - SC_SEAL_ROOM) return;
    /* A member seals only its own datagrams: such a one always has the stream named there. */
    int names_stream =
        sc_get_type(data) == SC_TYPE_ACK || sc_get_type(data) == SC_TYPE_PROBE || sc_get_type(data) == SC_TYPE_NAK;
    if (names_stream && size < SC_NAK_LEN(0)) return;
    sc_seal *one = sc_seal_new(&toy, from + (data[1] & 1), 1, 1), *other = sc_seal_new(&toy, from, 2, 2);
    uint8_t *p = malloc(size), *q = malloc(size + SC_SEAL_ROOM);
    CHECK(one && other && p && q);
    learn_views(one, other, data);
    sc_opened opened;
    uint64_t target = data[0] & 1 || sc_sealed_for_one(data) ? 2 : 0;
    size_t n = size;
    memcpy(p, data, size);
    if (sc_get_key_id(p)) CHECK(sc_seal_check(other, p, &n, sc_get_sender(p), &opened) != SC_WIRE_CRC_BAD);
    CHECK(n <= size);
    memcpy(p, data, size);
    sc_seal_begin(one);
    CHECK(sc_seal_close(one, q, p, size, 0, target) == 0);
    CHECK(target == 0 || sc_get_key_id(p) == SC_SEAL_ANYBODY || sc_sealed_for_one(q));
    n = size + SC_SEAL_ROOM;
    refuse_spoilt(other, q, n, data[size - 1] * 257u % n);
    open_whole(other, q, data, size);
    free(p);
    free(q);
    sc_seal_free(one);
    sc_seal_free(other);
}

/* A copy of exactly `n` bytes, so that the sanitizer sees a read behind its end; in a slab if `in_slab`. */
static void receive(world *w, const uint8_t *p, size_t n, size_t segment, uint64_t from, int in_slab) {
    sc_address address = address_of(from);
    sc_slab *slab = in_slab ? sc_slab_get(sc_engine_pool(w->engine)) : NULL;
    uint8_t *copy = slab ? slab->data : malloc(n ? n : 1);
    CHECK(copy);
    memcpy(copy, p, n);
    check(copy, n);
    sc_engine_receive(w->engine, slab, copy, n, segment, &address, w->now);
    if (slab)
        sc_slab_unref(slab);
    else
        free(copy);
}

/* Buffers handed out may be in flight until the next transmit: they stay as they are, in spite of anything done
 * meanwhile. */
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
            CHECK(check(out[i].p[k], out[i].len[k]) == SC_WIRE_OK);
            note_sent(w, &out[i], out[i].p[k]);
            w->sums[i][k] = sc_crc32c(0, out[i].p[k], out[i].len[k]);
        }
    }
    return n;
}

static void transmit(world *w) {
    for (int round = 0; round < 64 && transmit_once(w, RUNS, !(round & 1)); round++) {}
}

/* The application sends: goes on with a send under way, or begins. */
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

/* Messages of one sender in one view come in the sequence of their sends, and once; and global seqnos that
 * members count themselves, only upwards. */
static void judge(world *w, const sc_batch *batch, const sc_run *run) {
    CHECK(run->sender >= 1 && run->sender <= MEMBERS);
    delivered *last = &w->last[run->unicast != 0][run->sender];
    CHECK(last->view_tag != batch->view_tag || run->seqno > last->seqno ||
          (run->seqno == last->seqno && run->index >= last->end));
    *last = (delivered){batch->view_tag, run->seqno, run->index + run->n};
    uint32_t order = w->view.mechanism;
    if (!run->global_seqno) return;
    CHECK(!run->unicast && order != SC_ORDER_FIFO && order != SC_ORDER_CAUSAL);
    if (order != SC_ORDER_RECORDS && order != SC_ORDER_GRANT) return;
    CHECK(w->last_global.view_tag != batch->view_tag || run->global_seqno >= w->last_global.end);
    w->last_global = (delivered){batch->view_tag, 0, run->global_seqno + run->n};
}

static void deliver(world *w, uint64_t bytes) {
    sc_batch batch = {0}, only;
    uint64_t marker;
    for (int round = 0; round < 16; round++) {
        int kind = sc_engine_deliver(w->engine, &batch, bytes, &marker, w->now);
        if (kind == SC_DELIVER_NONE) break;
        if (kind == SC_DELIVER_MARKER) continue;
        CHECK(batch.n > 0 && !sc_batch_flatten(&batch) && batch.n_copied == batch.n && batch.offsets[0] == 0 &&
              (uint64_t)batch.offsets[batch.n] == batch.data_len);
        for (uint32_t i = 0; i < batch.n; i++) CHECK(batch.offsets[i] <= batch.offsets[i + 1]);
        uint32_t first = 0;
        for (uint32_t i = 0; i < batch.n_runs; i++) {
            CHECK(batch.runs[i].first == first && batch.runs[i].n > 0);
            judge(w, &batch, &batch.runs[i]);
            first += batch.runs[i].n;
        }
        CHECK(first == batch.n);
        CHECK(!sc_batch_unicasts(&batch, &only) && only.n <= batch.n);
        for (uint32_t i = 0; i < only.n_runs; i++) CHECK(only.runs[i].unicast);
        sc_batch_clear(&only);
        if (bytes & 1) sc_engine_taken(w->engine);
    }
    sc_engine_give_back(w->engine, &batch);
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

/* The next view's fields for the members of this one: where their streams go on, and who fell, was apart, or is new. */
static void describe_members(world *w, uint32_t n, uint32_t rank, uint32_t fallen, int apart, const uint64_t *cut) {
    uint64_t table[SC_MEMBERS_MAX];
    sc_engine_received_table(w->engine, table);
    for (uint32_t r = 0; r < w->view.n; r++) {
        w->view.base[r] = cut[r];
        w->view.origin_base[r] = table[r];
        w->view.apart[r] = apart && r != w->view.rank;
        w->view.fell[r] = r == fallen && r != w->view.rank;
    }
    for (uint32_t r = w->view.n; r < n; r++) w->view.base[r] = w->view.origin_base[r] = w->view.apart[r] = 0;
    if (rank == w->view.rank) return;
    w->view.base[rank] = cut[w->view.rank];
    w->view.origin_base[rank] = table[w->view.rank];
    w->view.apart[rank] = 0;
}

/* Some attempts end before the cut, and some cut at packets that are yet to be fetched from a holder. 0: this one
 * does. */
static int close_view(world *w, uint32_t how, uint32_t more, uint64_t *cut) {
    uint32_t whose = how % w->view.n, of = more >> 4 & 1 ? w->view.rank : (w->view.rank + 1) % w->view.n;
    uint64_t lost = w->view.ids[whose], ranges[32];
    if (more >> 6 & 1) sc_engine_uncount(w->engine, &lost, how & 1);
    sc_engine_freeze(w->engine, &lost, how & 1, how >> 1 & 1);
    sc_engine_gate_close(w->engine, more & 1);
    w->awaited |= more & 1;
    if (more >> 1 & 1) return 0; /* and stays closed until another attempt */
    for (uint32_t r = 0; r < w->view.n; r++) sc_engine_held(w->engine, r, &cut[r], ranges, 16);
    if (more >> 2 & 1) {
        sc_fetch fetch = {cut[of] + 1, cut[of] + 3, of, (w->view.rank + 2) % w->view.n};
        if (of != w->view.rank) cut[of] += 3;
        sc_engine_cut(w->engine, cut, &fetch, 1);
        return 0;
    }
    if (more >> 7 && whose != w->view.rank && cut[whose] > w->view.base[whose])
        cut[whose]--; /* below the deliveries here */
    sc_engine_cut(w->engine, cut, NULL, 0);
    if (sc_engine_cut_reached(w->engine)) return 1;
    CHECK(w->awaited); /* unicasts that a member lacks */
    return 0;
}

/* A view change as in the core: gate, freeze, cut at the packets held, install. Some merge with members from
 * elsewhere. */
static void change_view(world *w, script *s) {
    uint32_t how = (uint32_t)take(s, 1), more = (uint32_t)take(s, 1), order = (uint32_t)take(s, 1);
    uint64_t cut[SC_MEMBERS_MAX];
    if (!close_view(w, how, more, cut)) return;
    w->view.merge = more >> 3 & 1;
    uint32_t n = how >> 6 == 3 ? 1 : 2 + (how >> 1) % (MEMBERS - 1), rank = w->view.rank < n ? w->view.rank : 0;
    uint32_t fallen = how & 1 ? how % w->view.n : w->view.n;
    describe_members(w, n, rank, fallen, w->view.merge && (more >> 5 & 1), cut);
    CHECK(!install(w, n, rank, order, cut));
}

/* Requests of others to the engine, at any time. */
static void look(world *w, script *s) {
    const char *names[128];
    uint64_t values[128], pairs[2 * 4], ids[SC_MEMBERS_MAX];
    sc_stream_state stream;
    static sc_taking taking;
    uint32_t how = (uint32_t)take(s, 1);
    CHECK(sc_engine_counter_values(w->engine, names, values, 128) <= 128);
    CHECK(sc_engine_links(w->engine, 0, pairs, 4) <= 4 && sc_engine_links(w->engine, 1, pairs, 4) <= 4 &&
          sc_engine_doubted(w->engine, ids) <= MEMBERS);
    for (uint32_t r = 0; r <= w->view.n; r++)
        if (!sc_engine_stream(w->engine, r, &stream)) CHECK(stream.delivered <= stream.received);
    sc_engine_urgent(w->engine), sc_engine_window(w->engine), sc_engine_unordered(w->engine);
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

/* A datagram comes; 0 if `operation` is something else. */
static int receive_something(world *w, script *s, uint8_t *p, uint32_t operation, uint64_t sender) {
    size_t n, segment = 0;
    switch (operation & 15) {
    case 0: /* anything */ n = take_bytes(s, p, 2048); break;
    case 1: /* arbitrary behind the checks */ n = repair(w, p, take_bytes(s, p, 2048), sender); break;
    case 2: /* as a sound member would send */
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
    case 7: n = small_word(w, s, p, sender); break;
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

/* Our order policy, which is offered waiting packets, and answers, soon or late, as it likes. */
static void policy(world *w, script *s) {
    uint32_t how = (uint32_t)take(s, 1);
    sc_offer offers[SC_OFFERS_MAX];
    if (how & 1) {
        uint64_t batch = 0;
        size_t n = sc_engine_offers(w->engine, offers, &batch);
        CHECK(n <= SC_OFFERS_MAX && (n != 0) == (batch != 0));
        for (size_t i = 0; i < n; i++) {
            CHECK(offers[i].rank < w->view.n && offers[i].head_len <= SC_HEAD_MAX);
            w->offered[i] = (uint16_t)offers[i].rank;
        }
        if (n) w->n_offered = n, w->batch = batch;
    }
    for (uint32_t swaps = how >> 4; swaps && w->n_offered; swaps--) {
        size_t one = take(s, 1) % w->n_offered;
        uint16_t rank = w->offered[one];
        w->offered[one] = how & 8 ? (uint16_t)take(s, 1) : w->offered[0];
        w->offered[0] = rank;
    }
    if (how & 2) sc_engine_decide(w->engine, w->batch, how & 4 ? NULL : w->offered, w->n_offered, w->now);
}

/* The core's questions to the engine for a gossip. */
static void look_for_gossip(world *w, uint32_t rank, uint64_t first, uint64_t last, uint64_t most, uint32_t holder) {
    uint64_t ranges[2 * 4];
    sc_marks marks;
    if (!sc_engine_marks(w->engine, rank, &marks) && rank != w->view.rank)
        CHECK(marks.consumed <= marks.delivered && marks.delivered <= marks.received);
    size_t n = sc_engine_lacks(w->engine, rank, first, last, most, ranges, 4);
    CHECK(n <= 4);
    for (size_t i = 0; i < n; i++) {
        CHECK(ranges[2 * i] >= first && ranges[2 * i] <= ranges[2 * i + 1] && ranges[2 * i + 1] <= last);
        sc_engine_ask(w->engine, rank, ranges[2 * i], ranges[2 * i + 1], holder, w->now);
    }
}

/* The core's reports to the engine of one that came: sound or not. */
static void gossip(world *w, script *s) {
    uint32_t how = (uint32_t)take(s, 1), rank = how & 3, holder = how >> 2 & 3, back = how >> 2 & 1;
    uint64_t first = take(s, 1), last = first + take(s, 1), sent = w->sent[SC_STREAM_GROUP][0];
    uint64_t next = w->next[SC_STREAM_GROUP][rank < w->view.n ? w->view.ids[rank] : 0];
    uint16_t claim = how >> 3 & 1;
    sc_marks marks = {0, sent - (sent && back), sent, sent - (sent && back), w->view.room_bytes, claim};
    sc_marks other = {first, first, last, first / 2, last << (how & 31), claim};
    switch (how >> 4 & 7) {
    case 0:
    case 1: look_for_gossip(w, rank, first, last, how >> 7 ? 8 : UINT64_MAX, holder); break;
    case 2: sc_engine_ask(w->engine, rank, next + last % 8, next + last % 8 + first, holder, w->now); break;
    case 3: sc_engine_vote(w->engine, rank, &other, w->now); break;
    case 4: sc_engine_vouch(w->engine, rank, w->now); break;
    case 5: sc_engine_stable(w->engine, rank, how >> 7 ? last : next - 1); break;
    default: sc_engine_vote(w->engine, rank, &marks, w->now);
    }
}

static void pause_or_mark(world *w, uint32_t operation) {
    if (operation & 64)
        sc_engine_pause(w->engine);
    else
        sc_engine_resume(w->engine);
    if (operation >> 7) CHECK(!sc_engine_mark(w->engine, ++w->marker));
}

static void control(world *w, script *s, uint8_t *packet, uint8_t *payload, uint32_t operation, uint64_t sender) {
    sc_address address = address_of(sender);
    size_t n;
    switch (operation >> 4 & 3) {
    case 0:
        n = take_bytes(s, packet, 256);
        if (operation & 128)
            sc_engine_stand(w->engine, packet, n, 1000000, operation & 3, w->now);
        else
            sc_engine_control_send(w->engine, operation & 64 ? &address : NULL, packet, n, n & 1);
        break;
    case 1: state(w, s, payload); break;
    case 2: pause_or_mark(w, operation); break;
    default:
        if (w->gossip)
            gossip(w, s);
        else
            policy(w, s);
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
        if (operation >> 7) sc_engine_refused(w->engine, &address, SC_EVIDENCE_PORT, w->now);
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
    check(data, size);
    sealed(data, size);
    sc_config config = test_config(1, 0);
    config.group = GROUP;
    uint32_t mode = (uint32_t)take(&s, 1), kind = (uint32_t)take(&s, 1), order = (uint32_t)take(&s, 1);
    config.blocked_bytes_max = kind & 1 ? 1 << 14 : 0;
    config.receive = kind >> 2 != 1;
    config.deliver_own = kind >> 2 != 2;
    if (kind >> 2 == 3) config.ack_bytes = config.ack_packets = 4;
    if (kind & 2) config.ring_packets = 16;
    config.policy_ns = mode & 1 ? 4000000 : 0;
    memset(&w, 0, sizeof w);
    w.gossip = (int)(config.pulled = mode >> 1 & 1);
    w.safe = !w.gossip && (mode >> 2 & 1);
    w.engine = sc_engine_new(&config);
    w.now = 1;
    CHECK(w.engine);
    CHECK(!install(&w, MEMBERS, (mode >> 3) % MEMBERS, order, NULL));

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
