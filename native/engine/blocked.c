/* What was sent to the group while nothing could be (a view change, a pause), by choice: copied here, and packed when the
 * gate opens, before anything newer and behind what the view change sends again. Bounded; without a bound nothing is taken,
 * and senders wait. */
#include "engine/internal.h"

/* SC_SENT: it will be sent, or be counted by sc_engine_blocked_end. SC_AGAIN: its sender waits. */
int sc_blocked_take(sc_engine *e, const uint8_t *p, uint64_t len, sc_send_state *state, int64_t wall) {
    if (!e->gate_closed && !e->paused) return SC_AGAIN; /* what waits here goes first */
    uint64_t bytes = sizeof(sc_blocked) + len;
    if (e->blocked_bytes + bytes > e->config.blocked_bytes_max) {
        if (e->config.blocked_bytes_max && !e->blocked_full) e->counters.blocked_queue_full++;
        e->blocked_full = 1;
        return SC_AGAIN;
    }
    sc_blocked *b = malloc(bytes);
    if (!b) return SC_AGAIN;
    sc_engine_send_abort(e, 0, state); /* of which a part was packed: it starts again */
    memset(state, 0, sizeof *state);
    b->next = NULL;
    b->wall = wall;
    b->len = len;
    if (len) memcpy(b->p, p, len);
    *e->blocked_last = b;
    e->blocked_last = &b->next;
    e->blocked_bytes += bytes;
    e->blocked_messages++;
    e->counters.blocked_queued++;
    e->counters.blocked_queued_bytes += len;
    return SC_SENT;
}

static void pop(sc_engine *e) {
    sc_blocked *b = e->blocked_first;
    e->blocked_first = b->next;
    if (!e->blocked_first) e->blocked_last = &e->blocked_first;
    e->blocked_bytes -= sizeof *b + b->len;
    e->blocked_messages--;
    memset(&e->blocked_state, 0, sizeof e->blocked_state);
    free(b);
    sc_taking_packed(e);
}

/* The gate has opened, or there is credit. What is packed is closed, so that it leaves with the next transmission. */
void sc_blocked_drain(sc_engine *e) {
    if (e->gate_closed) return;
    if (!e->blocked_first) {
        e->blocked_full = 0;
        return;
    }
    while (e->blocked_first) {
        const sc_blocked *b = e->blocked_first;
        if (sc_send_group(e, b->p, b->len, &e->blocked_state, b->wall) != SC_SENT) break;
        pop(e);
    }
    sc_tx_close(e, e->order.own);
    if (e->blocked_first) return;
    e->blocked_full = 0;
    e->sendable++; /* newer messages waited */
}

uint64_t sc_engine_blocked(const sc_engine *e) { return e->blocked_messages; }

uint64_t sc_engine_blocked_end(sc_engine *e) {
    uint64_t n = e->blocked_messages;
    e->config.blocked_bytes_max = 0;
    e->counters.blocked_queue_lost += n;
    while (e->blocked_first) pop(e);
    return n;
}
