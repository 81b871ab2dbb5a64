/* The blocked queue: messages sent to the group while sending is closed (a view change, a pause) are optionally copied
 * here and packed when the gate opens, after messages that the view change resends and before anything newer. Bounded;
 * with a bound of 0 nothing is queued, and senders wait. */
#include "engine/internal.h"

/* SC_SENT: to be sent, or counted by sc_engine_blocked_end. SC_AGAIN: its sender waits. */
int sc_blocked_take(sc_engine *e, int beside, const uint8_t *p, uint64_t len, sc_send_state *state, int64_t wall) {
    if (!e->cut.gate_closed && !e->cut.paused) return SC_AGAIN; /* queued messages go first */
    uint64_t bytes = sizeof(sc_blocked) + len;
    if (e->blocked.bytes + bytes > e->blocked.bytes_max) {
        if (e->blocked.bytes_max && !e->blocked.full) e->counters->blocked_queue_full++;
        e->blocked.full = 1;
        return SC_AGAIN;
    }
    sc_blocked *b = malloc(bytes);
    if (!b) return SC_AGAIN;
    b->packed = state->packed;
    sc_engine_send_abort(e, 0, state); /* a partly packed message starts again */
    state->done = state->wait_seqno = state->epoch = state->packed = 0; /* at_once holds for the whole array */
    b->next = NULL;
    b->wall = wall;
    b->len = len;
    b->beside = beside;
    if (len) memcpy(b->p, p, len);
    *e->blocked.last = b;
    e->blocked.last = &b->next;
    e->blocked.bytes += bytes;
    e->blocked.messages++;
    e->counters->blocked_queued++;
    e->counters->blocked_queued_bytes += len;
    return SC_SENT;
}

static void pop(sc_engine *e) {
    sc_blocked *b = e->blocked.first;
    e->blocked.first = b->next;
    if (!e->blocked.first) e->blocked.last = &e->blocked.first;
    e->blocked.bytes -= sizeof *b + b->len;
    e->blocked.messages--;
    memset(&e->blocked.state, 0, sizeof e->blocked.state);
    free(b);
    sc_taking_packed(e);
}

/* The gate has opened, or there is credit. Closes its packets, so that they leave with the next transmission. */
void sc_blocked_drain(sc_engine *e) {
    if (e->cut.gate_closed) return;
    if (!e->blocked.first) {
        e->blocked.full = 0;
        return;
    }
    while (e->blocked.first) {
        sc_blocked *b = e->blocked.first;
        int result = sc_send_group(e, b->beside, b->p, b->len, &e->blocked.state, b->wall);
        b->packed |= e->blocked.state.packed;
        if (result != SC_SENT) break;
        pop(e);
    }
    sc_tx_close(e, e->order.own);
    if (e->blocked.first) return;
    e->blocked.full = 0;
    sc_may_send(e); /* newer messages waited */
}

uint64_t sc_engine_blocked(const sc_engine *e) { return e->blocked.messages; }

uint64_t sc_engine_queued(const sc_engine *e) { return e->counters->blocked_queued; }

sc_blocked_oldest sc_engine_blocked_oldest(const sc_engine *e) {
    if (!e->blocked.first || !e->blocked.first->packed) return SC_OLDEST_NOT_PACKED;
    int here = e->blocked.state.wait_seqno && e->blocked.state.epoch == e->epoch;
    return here ? SC_OLDEST_PACKED : SC_OLDEST_PACKED_BEFORE;
}

uint64_t sc_engine_blocked_end(sc_engine *e) {
    uint64_t n = e->blocked.messages - (sc_engine_blocked_oldest(e) != SC_OLDEST_NOT_PACKED);
    e->blocked.bytes_max = 0;
    e->counters->blocked_queue_lost += n;
    while (e->blocked.first) pop(e);
    return n;
}

void sc_blocked_init(sc_engine *e) {
    e->blocked.last = &e->blocked.first;
    e->blocked.bytes_max = e->config.blocked_bytes_max;
}
