/* The engine for its callers: creation, time, counters, and the calls that involve several parts. */
#include "engine/engine.h"

#include "engine/internal.h"

sc_engine *sc_engine_new(const sc_config *config) {
    if (!config->member || config->ring_packets < 8 || (config->ring_packets & (config->ring_packets - 1))) return NULL;
    sc_engine *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->config = *config;
    e->counters = &e->uncovered;
    e->random = config->seed * 0x9E3779B97F4A7C15u + config->member;
    sc_out_init(e);
    sc_events_init(e);
    sc_blocked_init(e);
    sc_outflow_init(e);
    sc_congestion_begin(e);
    sc_detect_stop(e);
    sc_taking_stop(e);
    e->order.own = &e->group;
    e->order.forward_to = -1;
    sc_tx_init(&e->group, SC_STREAM_GROUP, config->ring_packets);
    sc_tx_init(&e->forward, SC_STREAM_FORWARD, config->ring_packets);
    e->pool = sc_slab_pool_new(config->slabs_max);
    if (sc_own_init(e) || !e->pool) {
        if (e->pool) sc_slab_pool_free(e->pool);
        sc_own_free(e);
        free(e);
        return NULL;
    }
    return e;
}

void sc_engine_free(sc_engine *e) {
    if (!e) return;
    sc_view_leave(e);
    sc_tx_free(e, &e->group);
    sc_tx_free(e, &e->forward);
    sc_queue_free(e);
    sc_assembly_free(e);
    sc_tx_spent_free(e);
    sc_engine_blocked_end(e);
    sc_out_free(e);
    sc_pieces_free(&e->pieces.strangers);
    sc_events_free(e);
    sc_slab_pool_free(e->pool);
    sc_own_free(e);
    sc_resend_free(e);
    sc_seal_free(e->seal);
    free(e->sealed);
    free(e);
}

int sc_engine_seal(sc_engine *e, const sc_cipher_library *library, const sc_seal_secret *from, size_t n) {
    e->sealed = malloc(SC_SEALED_BYTES);
    e->seal = e->sealed ? sc_seal_new(library, from, n, e->config.member) : NULL;
    e->seal_room = SC_SEAL_ROOM;
    return e->seal ? 0 : -1;
}

void sc_engine_refile(sc_engine *e, const sc_seal_secret *from, size_t n) {
    if (e->seal && n) sc_seal_refile(e->seal, from, n);
}

int sc_engine_know(sc_engine *e, uint64_t tag, unsigned cipher, const uint8_t *secret) {
    return e->seal && tag ? sc_seal_know(e->seal, tag, cipher, secret) : 0;
}

sc_slab_pool *sc_engine_pool(sc_engine *e) { return e->pool; }

uint64_t sc_engine_stamped(const sc_engine *e) { return e->counters->stamped; }

size_t sc_engine_counter_values(const sc_engine *e, const char **names, uint64_t *values, size_t n) {
    sc_counters counters = *e->counters;
    sc_counters_now(e, &counters);
    size_t i = 0;
#define X(name)                                                                                                        \
    if (i < n) {                                                                                                       \
        names[i] = #name;                                                                                              \
        values[i++] = counters.name;                                                                                   \
    }
    SC_COUNTERS(X)
#undef X
    return i;
}

int sc_engine_stream(const sc_engine *e, uint32_t rank, sc_stream_state *out) {
    if (!e->in_view || rank >= e->view.n) return -1;
    if (rank == e->view.rank) {
        *out = (sc_stream_state){e->group.next - 1, e->group.next - 1, e->group.stable, 0, 0};
    } else {
        const sc_peer *peer = e->peers[rank];
        const sc_rx_stream *rx = &peer->group;
        uint64_t sent = e->group.unsent - 1, acked = peer->credit.acked.delivered;
        *out = (sc_stream_state){rx->queued - 1, rx->highest, rx->stable, sent > acked ? sent - acked : 0,
                                 peer->rtt.smooth};
    }
    return 0;
}

/* ---- the order's policy ------------------------------------------------------------------------------------- */

size_t sc_engine_offers(sc_engine *e, sc_offer *out, uint64_t *batch) {
    if (!e->in_view || e->cut.set || !e->order.ops->policy) return 0;
    return e->order.ops->policy->offer(e, out, batch);
}

int sc_engine_decide(sc_engine *e, uint64_t batch, const uint16_t *ranks, size_t n, int64_t now) {
    if (!e->in_view || e->cut.set || !e->order.ops->policy) return 0;
    int in_time = e->order.ops->policy->decide(e, batch, ranks, n);
    sc_settle(e, now);
    return in_time;
}

/* ---- time ---------------------------------------------------------------------------------------------------- */

/* Between the cut and the next view an order does nothing. */
static int64_t order_deadline(const sc_engine *e) {
    return e->order.ops->work && !e->cut.set ? e->order.ops->work->deadline(e) : SC_NEVER;
}

void sc_engine_tick(sc_engine *e, int64_t now) {
    e->now = now;
    if (e->in_view) {
        sc_rx_naks(e, now);
        sc_ack_tick(e, now);
        sc_detect_tick(e, now);
        sc_taken_tick(e, now);
        if (e->config.skips) sc_skip_look(e, now);
        sc_stand_tick(e, now);
        sc_size_tick(e, now);
        sc_outflow_tick(e, now);
        sc_congestion_tick(e, now);
        sc_again_tick(e, now);
        sc_posts_tick(e, now);
        if (e->seal && now - e->installed > 2 * e->config.install_ns) sc_seal_forget(e->seal); /* all are members */
        if (order_deadline(e) <= now) sc_settle(e, now);
    }
}

int64_t sc_engine_deadline(const sc_engine *e) {
    if (!e->in_view) return SC_NEVER;
    int64_t due = sc_rx_deadline(e), flow = sc_ack_deadline(e), detect = sc_detect_deadline(e);
    int64_t order = order_deadline(e), stand = sc_stand_deadline(e), size = sc_size_deadline(e);
    if (order < due) due = order;
    if (stand < due) due = stand;
    if (size < due) due = size;
    if (flow < due) due = flow;
    if (sc_outflow_deadline(e) < due) due = sc_outflow_deadline(e);
    if (sc_congestion_deadline(e) < due) due = sc_congestion_deadline(e);
    if (sc_again_deadline(e) < due) due = sc_again_deadline(e);
    if (e->taken.ask_due < due) due = e->taken.ask_due;
    return detect < due ? detect : due;
}

/* ---- calls that involve several parts ------------------------------------------------------------------------ */

int sc_engine_transmit(sc_engine *e, sc_tx *out, int max, int64_t now, int all) {
    if (sc_transmit_return(e)) {
        e->counters->lent_stalls++;
        sc_may_send(e);
        sc_settle(e, now);
    }
    if (!sc_engine_urgent(e) && !e->packing.unsent) return 0; /* as after each transmit that left nothing */
    int n = sc_transmit(e, out, max, now, all);
    sc_settle(e, now);
    return n;
}

/* Credit ends with its view, so taking own messages of closed views lets the application send again. */
static int deliver(sc_engine *e, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int keeps, int64_t now) {
    int full = sc_own_closed_full(e), result = sc_deliver(e, batch, bytes_max, marker, keeps, now);
    if (full && !sc_own_closed_full(e)) sc_may_send(e);
    sc_settle(e, now);
    return result;
}

int sc_engine_deliver(sc_engine *e, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int64_t now) {
    return deliver(e, batch, bytes_max, marker, 0, now);
}

int sc_engine_keep(sc_engine *e, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int64_t now) {
    return deliver(e, batch, bytes_max, marker, 1, now);
}

void sc_engine_vote(sc_engine *e, uint32_t rank, const sc_marks *marks, int64_t now) {
    sc_gossip_vote(e, rank, marks, now);
    sc_settle(e, now);
}

void sc_engine_resume(sc_engine *e) {
    sc_view_resume(e);
    sc_settle(e, e->now);
}

void sc_engine_uncount(sc_engine *e, const uint64_t *lost, size_t n) {
    sc_view_uncount(e, lost, n);
    sc_settle(e, e->now);
}

void sc_engine_freeze(sc_engine *e, const uint64_t *lost, size_t n, int still) {
    sc_view_freeze(e, lost, n, still);
    sc_settle(e, e->now);
}

void sc_engine_cut(sc_engine *e, const uint64_t *cut, const sc_fetch *fetch, size_t n_fetch) {
    sc_view_cut(e, cut, fetch, n_fetch);
    sc_settle(e, e->now);
}

int sc_engine_install(sc_engine *e, const sc_view *view, const uint64_t *cut, uint64_t marker, int64_t now) {
    e->now = now;
    int failed = sc_view_install(e, view, cut, marker, now);
    sc_settle(e, now);
    return failed;
}

void sc_engine_end_sends(sc_engine *e) {
    sc_leave_end_sends(e);
    sc_settle(e, e->now);
}
