/* Outflow: bounds in bytes per second of the packets that leave: all copies and repeats together (send_bytes_per_s),
 * and those of one path, whose window would otherwise leave at once (congestion.c). A packet leaves as soon as there is
 * anything to spend, and may leave a debt. */
#include "engine/internal.h"

#define BURST_NS 1000000 /* a pause is at least as long, and packets that gather in it leave at once: */
#define BURST_BYTES_MAX 65536
#define LATE 4 /* bursts that leave at once after a pause that was longer than planned */
#define BACKLOG_NS 20000000 /* as much as leaves in this time may wait in the ring */
#define GROUP_FIRST 7 /* transmissions in which the group stream is first, to one in which it is not */

static int64_t burst(int64_t per_s) {
    int64_t bytes = (int64_t)((double)per_s * BURST_NS / 1e9);
    if (bytes < 1) return 1; /* else nothing would ever leave */
    return bytes < BURST_BYTES_MAX ? bytes : BURST_BYTES_MAX;
}

/* Among two there is one receiver: unicasts arrive there sooner, and nowhere else. Heartbeats show that multicasts
 * would. (The engine says so, and the transport obeys: copies also count for send_bytes_per_s, and both must agree.) */
int sc_outflow_singly(const sc_engine *e) { return e->config.unicast || e->view.n == 2; }

/* The number of copies of a packet of the group that leave. */
static uint64_t copies(const sc_engine *e) {
    uint64_t alone = 0, together = 0;
    if (sc_outflow_singly(e)) return e->view.n - 1;
    for (uint32_t r = 0; r < e->view.n; r++) {
        int way = e->peers[r]->detect.way;
        if (r == e->view.rank) continue;
        alone += way != SC_WAY_MULTICAST;
        together |= way != SC_WAY_UNICAST;
    }
    return alone + together;
}

void sc_outflow_init(sc_engine *e) { e->outflow.due = SC_NEVER; }

int sc_outflow_begin(sc_engine *e, int all) {
    sc_outflow *o = &e->outflow;
    if (o->due != SC_NEVER) {
        o->closes |= all;
        return 0;
    }
    all |= o->closes;
    o->ready = o->closes = 0;
    o->per_s = sc_congestion_rate(e);
    return all;
}

static void look(sc_engine *e, sc_budget *budget, int64_t per_s, int64_t now) {
    if (!per_s) return;
    sc_budget_refill(budget, per_s, LATE * burst(per_s), now);
    if (budget->left > 0) return;
    e->counters->sends_paced++;
    int64_t until = now + 1 + (int64_t)((double)(burst(per_s) - budget->left) * 1e9 / (double)per_s);
    if (e->outflow.due == SC_NEVER || e->outflow.due < until) e->outflow.due = until;
}

int sc_outflow_open(sc_engine *e, int64_t now) {
    if (e->outflow.due != SC_NEVER) return 0;
    look(e, &e->outflow.budget, (int64_t)e->config.send_bytes_per_s, now);
    look(e, &e->outflow.path, e->outflow.per_s, now);
    return e->outflow.due == SC_NEVER;
}

void sc_outflow_spend(sc_engine *e, int lane, uint64_t bytes) {
    sc_outflow *o = &e->outflow;
    if (e->config.send_bytes_per_s) o->budget.left -= (int64_t)(bytes * (lane == SC_LANE_UNICAST ? 1 : copies(e)));
    if (o->per_s) o->path.left -= (int64_t)bytes;
    if (o->full) sc_may_send(e);
    o->full = 0;
}

int sc_outflow_yields(sc_engine *e) {
    if (e->packing.unsent == e->group.unsent_bytes) return 0;
    return e->outflow.transmissions++ % (GROUP_FIRST + 1) == GROUP_FIRST;
}

/* Messages wait with their sender, rather than for long in the ring. */
int sc_outflow_room(sc_engine *e, sc_tx_stream *tx) {
    uint64_t most = (uint64_t)((double)e->config.send_bytes_per_s * BACKLOG_NS / 1e9), window = sc_congestion_window(e);
    uint64_t bytes = tx->unsent_bytes;
    int full =
        e->config.send_bytes_per_s && bytes * (tx == &e->group ? copies(e) : 1) >= sc_most(most, tx->packet_bytes);
    full |= bytes >= sc_most(window, BURST_BYTES_MAX);
    e->outflow.full |= full;
    tx->paced = full;
    return !full;
}

void sc_outflow_tick(sc_engine *e, int64_t now) {
    if (e->outflow.due > now) return;
    e->outflow.due = SC_NEVER;
    e->outflow.ready = 1;
}

int64_t sc_outflow_deadline(const sc_engine *e) { return e->outflow.due; }

int sc_outflow_ready(const sc_engine *e) { return e->outflow.ready; }

int sc_engine_paced(sc_engine *e, uint64_t to) {
    if (!e->in_view) return 0;
    const sc_peer *peer = to ? sc_find_peer(e, to) : NULL;
    const sc_tx_stream *tx = !to ? e->order.own : peer ? peer->unicast_tx : NULL;
    return tx && tx->paced;
}
