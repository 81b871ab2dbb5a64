/* Transmission: packed packets, retransmissions and queued datagrams become runs of datagrams. A run that was handed
 * out does not change until the next transmit. */
#include "engine/internal.h"
#include "seal/secret.h"

#define KEPT 2 /* runs of a transmission for packets: a slow kernel is always behind with control */

/* A packet is handed out: its memory, in the ring or in a slab, must not change until the next transmit. With a key the
 * sealed copy is handed out. */
static void lend(sc_engine *e, sc_tx_stream *tx, const sc_tx_packet *packet) {
    if (e->seal) return;
    if (packet->slab) {
        sc_slab_ref(packet->slab);
        e->lent.slabs[e->lent.n_slabs++] = packet->slab;
        return;
    }
    uint64_t at = packet->ring_end - ((packet->len + (uint64_t)SC_TX_ALIGN - 1) & ~(uint64_t)(SC_TX_ALIGN - 1));
    if (at < tx->lent) tx->lent = at;
}

/* A stream that could not open a packet may now succeed. */
static int take_back(sc_tx_stream *tx) {
    int stalled = tx && tx->lent_stall;
    if (!tx) return 0;
    tx->lent = SC_NOT_LENT;
    tx->lent_stall = 0;
    return stalled;
}

static int slab_room(const sc_engine *e) { return e->lent.n_slabs < SC_SPENT_SLABS; }

static int may_leave(sc_engine *e, int64_t now) { return slab_room(e) && sc_outflow_open(e, now); }

static void run_start(sc_tx *run, int lane, const sc_address *to) {
    run->lane = lane;
    run->whole = run->unheard = 0;
    if (to)
        run->to = *to;
    else
        memset(&run->to, 0, sizeof run->to);
    run->n = 0;
    run->segment = 0;
    run->bytes = 0;
}

static int run_fits(const sc_tx *run, uint32_t len) {
    if (!run->n) return 1;
    return run->n < SC_TX_SEGMENTS && run->bytes + len <= SC_PACKET_MAX && len <= run->segment &&
           run->len[run->n - 1] == run->segment; /* only the last one may be shorter */
}

/* Lengths are those of the sealed datagrams. */
static void run_add(sc_tx *run, const uint8_t *p, uint32_t len) {
    if (!run->n) run->segment = len;
    run->p[run->n] = p;
    run->len[run->n++] = len;
    run->bytes += len;
}

static void count_run(sc_engine *e, const sc_tx *run) {
    e->counters->datagrams_sent += run->n;
    e->counters->bytes_sent += run->bytes;
}

/* Datagrams without messages that are for the group, as heartbeats, always go by multicast too, which shows who hears
 * again. */
static void copy_to_deaf(sc_engine *e, const sc_out *o) {
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++)
        if (r != e->view.rank && e->peers[r]->detect.way != SC_WAY_MULTICAST) sc_out_copy(e, o, &e->peers[r]->address);
}

static int transmit_out(sc_engine *e, sc_tx *out, int max) {
    int k = 0;
    while (e->out.first && k < max) {
        sc_out *o = sc_out_pop(e);
        if (sc_pieces_instead(e, o)) {
            free(o);
            continue;
        }
        if (!o->to.len && e->detect.deaf) copy_to_deaf(e, o);
        sc_seal_finish(e->seal, o->p, o->len);
        run_start(&out[k], o->to.len ? SC_LANE_UNICAST : SC_LANE_CONTROL, &o->to);
        out[k].whole = sc_get_type(o->p) == SC_TYPE_SIZE;
        out[k].unheard = o->to.len && !sc_peer_at(e, &o->to) && !sc_is_source(e, &o->to);
        run_add(&out[k], o->p, o->len + e->seal_room);
        count_run(e, &out[k++]);
        o->next = e->lent.spent;
        e->lent.spent = o;
    }
    return k;
}

/* The current place of a retransmission's bytes, marked as lent; NULL if they are stable and purged. */
static const uint8_t *again_bytes(sc_engine *e, const sc_again *a, uint32_t *len, int64_t now) {
    if (a->owner != e->config.member) {
        sc_peer *owner = sc_find_peer(e, a->owner);
        if (!owner || !owner->group.packets || a->seqno < owner->group.first) return NULL;
        sc_rx_packet *held = sc_rx_at(e, &owner->group, a->seqno);
        if (!held->p || sc_get_seqno(held->p) != a->seqno) return NULL;
        *len = held->len;
        sc_slab_ref(held->slab);
        e->lent.slabs[e->lent.n_slabs++] = held->slab;
        return held->p;
    }
    sc_tx_stream *tx = sc_tx_of(e, e->peers[a->requester], a->stream);
    if (!tx || !sc_tx_has(tx, a->seqno)) return NULL;
    sc_tx_packet *packet = sc_tx_at(tx, a->seqno);
    packet->retransmitted_at = now;
    *len = packet->len;
    lend(e, tx, packet);
    return packet->p;
}

static int run_joins(const sc_tx *run, int lane, const sc_address *to, uint32_t len) {
    return run->lane == lane && (!to || sc_same_address(&run->to, to)) && run_fits(run, len);
}

static int transmit_again(sc_engine *e, sc_tx *out, int max, int64_t now) {
    int k = 0;
    uint32_t i = 0, kept = 0;
    for (; i < e->again.n && k < max && may_leave(e, now); i++) {
        const sc_again *a = &e->again.queue[i];
        if (a->requester >= e->view.n) continue;
        int64_t pause = a->multicast ? 0 : sc_congestion_pause(e, e->peers[a->requester], now);
        if (pause) { /* those to others need not wait for its path */
            sc_again_keep(e, i, kept++, now + pause);
            continue;
        }
        uint32_t len = 0;
        const uint8_t *p = again_bytes(e, a, &len, now);
        if (!p) {
            e->counters->retransmit_missing++;
            continue;
        }
        e->counters->packets_retransmitted++;
        int lane = a->multicast ? SC_LANE_DATA : SC_LANE_UNICAST;
        sc_outflow_spend(e, lane, len + e->seal_room);
        sc_congestion_again(e, e->peers[a->requester], len, now);
        if (!sc_size_fits(e, e->peers[a->requester], len)) {
            sc_pieces_say(e, e->peers[a->requester], p, len);
            continue;
        }
        const sc_address *to = a->multicast ? NULL : &e->peers[a->requester]->address;
        if (!k || !run_joins(&out[k - 1], lane, to, len + e->seal_room)) run_start(&out[k++], lane, to);
        run_add(&out[k - 1], p, len + e->seal_room);
    }
    sc_again_pop(e, kept, i);
    for (int j = 0; j < k; j++) count_run(e, &out[j]);
    return k;
}

/* The packets of a send ring from here on may not be transmitted yet. */
static uint64_t end_of(const sc_engine *e, const sc_tx_stream *tx) {
    return tx == &e->group && !e->cut.gate_closed ? tx->next - e->order.held : tx->next;
}

/* Puts the fields into a packet that are known only at this time. */
static void finish(sc_engine *e, const sc_tx_stream *tx, sc_tx_packet *packet) {
    sc_put_stable(packet->p, tx->stable);
    sc_credit_told(e, tx);
    if (tx == &e->group) sc_put_claim(packet->p, e->credit.claim);
    sc_seal_again(e->seal, packet->p, packet->len, packet->sealed);
}

/* To `peer`, or to the group if NULL. */
static int transmit_stream(sc_engine *e, sc_tx_stream *tx, const sc_peer *peer, sc_tx *out, int max, int64_t now) {
    int k = 0, lane = peer ? SC_LANE_UNICAST : SC_LANE_DATA;
    uint64_t before = tx->unsent, end = end_of(e, tx);
    uint64_t room = before < end ? sc_congestion_room(e, peer, now) : 0;
    while (tx->unsent < end && k < max && room && may_leave(e, now)) {
        run_start(&out[k], lane, peer ? &peer->address : NULL);
        while (tx->unsent < end && room && may_leave(e, now)) {
            sc_tx_packet *packet = sc_tx_at(tx, tx->unsent);
            if (!run_fits(&out[k], packet->len + e->seal_room)) break;
            finish(e, tx, packet);
            run_add(&out[k], packet->p, packet->len + e->seal_room);
            lend(e, tx, packet);
            sc_tx_sent(e, tx, packet->len);
            sc_outflow_spend(e, lane, packet->len + e->seal_room);
            e->counters->packets_sent++;
            packet->sent_at = now;
            room -= sc_least(room, packet->charge);
            tx->unsent++;
        }
        e->lent.first_bytes += out[k].bytes;
        count_run(e, &out[k++]);
    }
    if (!room && tx->unsent < end) sc_congestion_wait(e, now);
    if (tx->unsent != before) sc_credit_sent(e, tx, now);
    return k;
}

void sc_tx_spent_free(sc_engine *e) {
    while (e->lent.spent) {
        sc_out *o = e->lent.spent;
        e->lent.spent = o->next;
        free(o);
    }
    sc_tx_retired_free(e);
    while (e->lent.n_slabs) sc_slab_unref(e->lent.slabs[--e->lent.n_slabs]);
}

/* Frees the runs that the last transmit handed out. 1: a packet could not be opened then. */
int sc_transmit_return(sc_engine *e) {
    sc_tx_spent_free(e);
    int stalled = take_back(&e->group) | take_back(&e->forward);
    for (uint32_t r = 0; e->in_view && e->packing.singly && r < e->view.n; r++)
        stalled |= take_back(e->peers[r]->unicast_tx) | take_back(e->peers[r]->state_tx);
    return stalled;
}

/* The order asks for held packets with the datagrams that go out first. */
static void prepare(sc_engine *e, int64_t now, int all) {
    if (all) sc_tx_close(e, &e->group);
    if (e->order.held && !e->cut.set) e->order.ops->work->settle(e, now);
}

/* Each run that leaves is sealed as a copy. Returns the number of runs: 0 if nothing can be sealed. */
static int seal_runs(sc_engine *e, sc_tx *out, int n) {
    uint8_t *to = e->sealed;
    sc_seal_begin(e->seal);
    for (int i = 0; i < n; i++) {
        const sc_peer *target = out[i].lane == SC_LANE_UNICAST ? sc_peer_at(e, &out[i].to) : NULL;
        for (uint32_t k = 0; k < out[i].n; k++) {
            const uint8_t *p = out[i].p[k];
            unsigned by = sc_get_sender(p) == e->config.member ? 0 : 1 + e->view.rank;
            if (sc_seal_close(e->seal, to, p, out[i].len[k] - SC_SEAL_ROOM, by, target ? target->id : 0) != 0) return 0;
            out[i].p[k] = to;
            to += out[i].len[k];
        }
    }
    return n;
}

/* Streams to single members; the state of joiners comes last. */
static int transmit_singly(sc_engine *e, sc_tx *out, int max, int64_t now, int all) {
    int k = 0;
    if (e->order.forward_to >= 0) {
        if (all) sc_tx_close(e, &e->forward);
        k += transmit_stream(e, &e->forward, e->peers[e->order.forward_to], out + k, max - k, now);
    }
    for (uint32_t i = 0; e->packing.singly && i < 2 * e->view.n; i++) {
        sc_peer *peer = e->peers[i % e->view.n];
        sc_tx_stream *tx = i < e->view.n ? peer->unicast_tx : peer->state_tx;
        if (!tx) continue;
        if (all) sc_tx_close(e, tx);
        k += transmit_stream(e, tx, peer, out + k, max - k, now);
    }
    return k;
}

static int collect(sc_engine *e, sc_tx *out, int max, int64_t now, int all) {
    all = sc_outflow_begin(e, all);
    sc_congestion_begin(e);
    if (e->in_view) prepare(e, now, all);
    int k = transmit_out(e, out, e->in_view && max > KEPT ? max - KEPT : max);
    if (!e->in_view) return k;
    k += transmit_again(e, out + k, max > KEPT ? max - k - 1 : max - k, now);
    if (k < max && sc_outflow_yields(e)) k += transmit_singly(e, out + k, 1, now, all);
    k += transmit_stream(e, &e->group, NULL, out + k, max - k, now);
    k += transmit_singly(e, out + k, max - k, now, all);
    k += transmit_out(e, out + k, max - k);
    return k;
}

int sc_transmit(sc_engine *e, sc_tx *out, int max, int64_t now, int all) {
    if (!e->seal) return collect(e, out, max, now, all);
    int n = collect(e, out, max < SC_SEALED_RUNS ? max : SC_SEALED_RUNS, now, all);
    if (n) n = seal_runs(e, out, n);
    if (n) sc_secret_clean_stack();
    if (sc_seal_worn(e->seal, e->config.sealings_max)) sc_push_event(e, SC_EVENT_WORN, 0, e->view.tag, NULL, NULL, 0);
    return n;
}

int sc_engine_urgent(const sc_engine *e) {
    int open = sc_outflow_deadline(e) == SC_NEVER;
    return e->out.first != NULL || (open && sc_again_ready(e)) || sc_outflow_ready(e) || sc_congestion_ready(e);
}
