/* Outflow: a bound in bytes per second of the packets that leave, all copies and repeats together (send_bytes_per_s). A packet
 * leaves as soon as there is anything to spend, and may leave a debt. */
#include "engine/internal.h"

#define BURST_NS 1000000 /* a pause is at least as long, and what gathers in it leaves at once: */
#define BURST_BYTES_MAX 65536
#define LATE 4 /* so many bursts leave at once after a pause that was longer than planned */
#define BACKLOG_NS 20000000 /* messages wait with their sender, rather than longer than this in the ring */
#define TURNS 7 /* transmissions in which the group stream is first, to one in which it is not */

static int64_t burst(const sc_engine *e) {
    uint64_t bytes = (uint64_t)((double)e->config.send_bytes_per_s * BURST_NS / 1e9);
    return (int64_t)sc_least(bytes, BURST_BYTES_MAX);
}

/* Where a packet of the group goes. */
static uint64_t copies(const sc_engine *e) {
    uint64_t alone = 0, together = 0;
    if (e->config.unicast || e->view.n == 2) return e->view.n - 1;
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
    return all;
}

int sc_outflow_open(sc_engine *e, int64_t now) {
    sc_outflow *o = &e->outflow;
    int64_t per_s = (int64_t)e->config.send_bytes_per_s;
    if (!per_s) return 1;
    if (o->due != SC_NEVER) return 0;
    sc_budget_refill(&o->budget, per_s, LATE * burst(e), now);
    if (o->budget.left > 0) return 1;
    e->counters->sends_paced++;
    o->due = now + 1 + (int64_t)((double)(burst(e) - o->budget.left) * 1e9 / (double)per_s);
    return 0;
}

void sc_outflow_spend(sc_engine *e, int lane, uint64_t bytes) {
    if (!e->config.send_bytes_per_s) return;
    e->outflow.budget.left -= (int64_t)(bytes * (lane == SC_LANE_UNICAST ? 1 : copies(e)));
    sc_may_send(e); /* there is room again */
}

int sc_outflow_yields(sc_engine *e) {
    if (!e->config.send_bytes_per_s || e->packing.unsent == e->group.unsent_bytes) return 0;
    return e->outflow.turns++ % (TURNS + 1) == TURNS;
}

int sc_outflow_room(const sc_engine *e, const sc_tx_stream *tx) {
    if (!e->config.send_bytes_per_s) return 1;
    uint64_t most = (uint64_t)((double)e->config.send_bytes_per_s * BACKLOG_NS / 1e9);
    return tx->unsent_bytes * (tx == &e->group ? copies(e) : 1) < sc_most(most, tx->packet_bytes);
}

void sc_outflow_tick(sc_engine *e, int64_t now) {
    if (e->outflow.due > now) return;
    e->outflow.due = SC_NEVER;
    e->outflow.ready = 1;
}

int64_t sc_outflow_deadline(const sc_engine *e) { return e->outflow.due; }

int sc_outflow_ready(const sc_engine *e) { return e->outflow.ready; }
