/* Delivery queue, and the batches that the application takes from it: Arrow layout, one copy. */
#include "engine/internal.h"
#include "engine/memory.h"

#define QUEUE_FIRST 256u

static sc_delivery *at(const sc_engine *e, uint64_t position) { return &e->queue[position & (e->queue_cap - 1)]; }

/* The queue grows as needed; windows bound what can be in it. NULL without memory. */
static sc_delivery *push(sc_engine *e) {
    if (e->queue_tail - e->queue_head == e->queue_cap) {
        uint64_t cap = e->queue_cap ? e->queue_cap * 2 : QUEUE_FIRST;
        sc_delivery *queue = malloc(cap * sizeof *queue);
        if (!queue) return NULL;
        for (uint64_t i = e->queue_head; i < e->queue_tail; i++) queue[i & (cap - 1)] = *at(e, i);
        free(e->queue);
        e->queue = queue;
        e->queue_cap = cap;
    }
    return at(e, e->queue_tail++);
}

static void credit(sc_engine *e, const sc_delivery *d, int64_t now) {
    if (d->stream == SC_STREAM_UNICAST && d->sender == e->config.member) { /* to itself */
        e->self_bytes -= d->len;
        e->sendable++;
        return;
    }
    if (d->stream == SC_STREAM_GROUP) {
        if (d->epoch != e->epoch) return; /* of a closed view: nobody waits for its credit */
        if (d->carrier == e->view.rank) {
            if (d->seqno > e->self_consumed) e->self_consumed = d->seqno;
            return;
        }
    }
    sc_peer *peer = d->stream == SC_STREAM_GROUP ? e->peers[d->carrier] : sc_find_peer(e, d->sender);
    if (!peer || (sc_of_pair((uint64_t)d->stream) && d->pair != peer->pair)) return;
    sc_rx_stream *rx = sc_rx_of(peer, d->stream);
    if (d->seqno > rx->consumed) rx->consumed = d->seqno;
    rx->queue_bytes -= d->len;
    sc_flow_consumed(e, peer, d->stream, d->len, now);
}

/* Takes a reference to the slab of its own. 0 without memory: the packet stays where it is and is tried again. */
int sc_queue_packet(sc_engine *e, const sc_delivery *packet) {
    sc_delivery *d = push(e);
    if (!d) return 0;
    *d = *packet;
    d->epoch = e->epoch;
    d->view_tag = e->view.tag;
    sc_peer *peer = sc_of_pair((uint64_t)d->stream) ? sc_find_peer(e, d->sender) : NULL;
    d->pair = peer ? peer->pair : 0;
    if (d->stream == SC_STREAM_GROUP && d->carrier != e->view.rank) peer = e->peers[d->carrier];
    if (peer && peer != sc_self(e)) sc_rx_of(peer, d->stream)->queue_bytes += d->len;
    e->counters.packets_delivered++;
    if (!e->config.receive || (d->sender == e->config.member && !e->config.deliver_own)) {
        e->queue_tail--;
        sc_taken_hand(e, d, 1);
        credit(e, d, e->now);
        return 1;
    }
    sc_slab_ref(d->slab);
    e->queue_bytes += d->len;
    return 1;
}

/* An own packet of the group stream: copied, so that the send ring need not wait for the application. */
void sc_queue_own(sc_engine *e, const uint8_t *p, uint32_t len, uint64_t seqno, uint64_t number, uint64_t global) {
    if (e->config.receive && e->config.deliver_own) {
        sc_slab *slab;
        uint8_t *copy = sc_slab_copy_own(e->pool, p, len, &slab);
        if (copy) {
            if (sc_queue_packet(e, &(sc_delivery){.p = copy,
                                                  .len = len,
                                                  .slab = slab,
                                                  .own = 1,
                                                  .stream = SC_STREAM_GROUP,
                                                  .carrier = e->view.rank,
                                                  .rank = e->view.rank,
                                                  .sender = e->config.member,
                                                  .seqno = seqno,
                                                  .number = number,
                                                  .global = global}))
                e->own_bytes += len;
            sc_slab_unref(slab);
            return;
        }
        e->counters.drop_slabs++; /* without memory */
    }
    e->self_consumed = seqno;
}

int sc_queue_marker(sc_engine *e, uint64_t marker, int inside) {
    sc_delivery *d = push(e);
    if (!d) return -1;
    *d = (sc_delivery){.marker = marker, .inside = inside, .epoch = e->epoch, .view_tag = e->view.tag};
    e->markers++;
    return 0;
}

void sc_deliver_free(sc_engine *e) {
    for (; e->queue_head < e->queue_tail; e->queue_head++)
        if (at(e, e->queue_head)->p) sc_slab_unref(at(e, e->queue_head)->slab);
    free(e->queue);
    for (uint32_t i = 0; i < SC_ASSEMBLIES; i++) free(e->assemblies[i].p);
}

/* ---- reassembly --------------------------------------------------------------------------------------------- */

static sc_assembly *assembly_of(sc_engine *e, uint64_t sender, int unicast) {
    sc_assembly *a = &e->assemblies[e->assembly_last];
    if (a->sender == sender && a->unicast == unicast) return a;
    sc_assembly *spare = NULL;
    for (uint32_t i = 0; i < SC_ASSEMBLIES; i++) {
        a = &e->assemblies[i];
        if (a->sender == sender && a->unicast == unicast) {
            e->assembly_last = i;
            return a;
        }
        if (!spare && (!a->sender || !a->active)) spare = a;
    }
    if (!spare) return NULL;
    spare->sender = sender;
    spare->unicast = unicast;
    spare->active = spare->skip = 0;
    spare->len = 0;
    e->assembly_last = (uint32_t)(spare - e->assemblies);
    return spare;
}

static void assembly_close(sc_engine *e, sc_assembly *a) {
    e->assemblies_active -= (uint32_t)a->active;
    a->active = a->skip = 0;
}

static void assembly_drop(sc_engine *e, sc_assembly *a) {
    if (a->active) e->counters.drop_partial_message++;
    assembly_close(e, a);
    a->len = 0;
}

static void assembly_release(sc_assembly *a) { /* a large message leaves no large buffer behind */
    a->len = 0;
    if (a->cap <= (1u << 20)) return;
    free(a->p);
    a->p = NULL;
    a->cap = 0;
}

static void assembly_append(sc_engine *e, sc_assembly *a, const uint8_t *p, uint64_t len) {
    if (a->skip) return;
    if (a->len + len > e->config.message_bytes_max) {
        a->skip = 1;
        e->counters.drop_message_too_large++;
        assembly_release(a);
        return;
    }
    if (a->len + len > a->cap) {
        uint64_t cap = a->cap ? a->cap : 65536;
        while (cap < a->len + len) cap *= 2;
        uint8_t *grown = realloc(a->p, cap);
        if (!grown) {
            a->skip = 1;
            e->counters.drop_message_too_large++;
            assembly_release(a);
            return;
        }
        a->p = grown;
        a->cap = cap;
    }
    if (len) memcpy(a->p + a->len, p, len);
    a->len += len;
}

/* ---- batches ------------------------------------------------------------------------------------------------ */

/* `open` bytes behind the whole messages are kept, too. */
static int reserve(sc_batch *b, uint64_t open, uint64_t bytes, uint32_t messages) {
    if (b->data_len + open + bytes > b->data_cap) {
        uint64_t cap = b->data_cap ? b->data_cap : 65536;
        while (cap < b->data_len + open + bytes) cap *= 2;
        uint8_t *data = sc_large_alloc(cap);
        if (!data) return 0;
        if (b->data_len + open) memcpy(data, b->data, b->data_len + open);
        free(b->data);
        b->data = data;
        b->data_cap = cap;
    }
    if (!b->offsets || b->n + messages + 1 > b->offsets_cap) {
        uint32_t cap = b->offsets_cap ? b->offsets_cap : 256;
        while (cap < b->n + messages + 1) cap *= 2;
        int32_t *offsets = realloc(b->offsets, cap * sizeof *offsets);
        if (!offsets) return 0;
        b->offsets = offsets;
        b->offsets_cap = cap;
    }
    if (b->n_runs + 1 > b->runs_cap) {
        uint32_t cap = b->runs_cap ? b->runs_cap * 2 : 64;
        sc_run *runs = realloc(b->runs, cap * sizeof *runs);
        if (!runs) return 0;
        b->runs = runs;
        b->runs_cap = cap;
    }
    return 1;
}

void sc_batch_clear(sc_batch *batch) {
    free(batch->data);
    free(batch->offsets);
    free(batch->runs);
    memset(batch, 0, sizeof *batch);
}

/* The piece of a message that lies, unfinished, behind the last whole message of the batch: as long as packets of the
 * same sender follow it is finished in place; else it moves into the sender's assembly. */
typedef struct {
    sc_assembly *owner;
    uint64_t len;
} tail;

static void tail_spill(sc_engine *e, sc_batch *b, tail *t) {
    if (!t->owner) return;
    assembly_append(e, t->owner, b->data + b->data_len, t->len);
    t->owner = NULL;
    t->len = 0;
}

static void append(sc_engine *e, sc_batch *b, const sc_delivery *d, tail *t) {
    const uint8_t *p = d->p;
    const uint8_t *data = p + SC_DATA_HEADER;
    uint32_t pieces = sc_get_pieces(p), data_len = sc_get_data_len(p);
    const uint8_t *offset = p + sc_wire_offsets(data_len);
    int in = sc_get_flags(p) & SC_FLAG_CONT_IN, out = sc_get_flags(p) & SC_FLAG_CONT_OUT;
    uint32_t whole = out ? pieces - 1 : pieces, i = 0, n = b->n;
    sc_assembly *a = NULL;
    if (in || out || t->owner || e->assemblies_active) {
        a = assembly_of(e, d->sender, d->stream == SC_STREAM_UNICAST);
        if (t->owner && t->owner != a) tail_spill(e, b, t);
        if (!a) { /* more senders with open messages than there can be members */
            e->counters.drop_partial_message++;
            return;
        }
        if (!in && a->active) { /* the sender gave up in the middle of a message */
            t->owner = NULL;
            t->len = 0;
            assembly_drop(e, a);
        }
    }
    if (in) {
        uint32_t end = sc_get_offset(offset, 1);
        if (!a->active) {
            e->counters.drop_partial_message++; /* its beginning was in a closed view */
        } else if (t->owner && !a->len && t->len + end <= e->config.message_bytes_max) {
            if (end) memcpy(b->data + b->data_len + t->len, data, end);
            t->len += end;
            if (whole) {
                b->data_len += t->len;
                b->offsets[++n] = (int32_t)b->data_len;
            }
        } else {
            tail_spill(e, b, t);
            assembly_append(e, a, data, end);
            if (whole && !a->skip) {
                if (reserve(b, 0, a->len + data_len, pieces)) {
                    if (a->len) memcpy(b->data + b->data_len, a->p, a->len);
                    b->data_len += a->len;
                    b->offsets[++n] = (int32_t)b->data_len;
                } else {
                    e->counters.drop_message_too_large++;
                }
            }
        }
        if (!whole) return; /* a packet in the middle of a message */
        assembly_close(e, a);
        assembly_release(a);
        t->owner = NULL;
        t->len = 0;
        i = 1;
    }
    if (i < whole) {
        uint32_t from = sc_get_offset(offset, i), to = sc_get_offset(offset, whole);
        if (to > from) memcpy(b->data + b->data_len, data + from, to - from);
        int32_t shift = (int32_t)b->data_len - (int32_t)from;
        for (uint32_t k = i + 1; k <= whole; k++) b->offsets[++n] = (int32_t)sc_get_offset(offset, k) + shift;
        b->data_len += to - from;
    }
    if (out) {
        uint32_t from = sc_get_offset(offset, whole);
        if (data_len > from) memcpy(b->data + b->data_len, data + from, data_len - from);
        t->owner = a;
        t->len = data_len - from;
        e->assemblies_active += (uint32_t)!a->active;
        a->active = 1;
        a->skip = 0;
        a->len = 0;
    }
    if (n > b->n) {
        b->runs[b->n_runs++] = (sc_run){.sender = d->sender,
                                        .seqno = d->number,
                                        .global_seqno = d->global ? d->global + (whole - (n - b->n)) : 0,
                                        .sent_ns = (int64_t)sc_get_sent_ns(p),
                                        .first = b->n,
                                        .n = n - b->n,
                                        .index = whole - (n - b->n),
                                        .unicast = d->stream == SC_STREAM_UNICAST};
        e->counters.messages_delivered += n - b->n;
        b->n = n;
    }
}

int sc_engine_deliver(sc_engine *e, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int64_t now) {
    tail t = {0};
    batch->n = batch->n_runs = 0;
    batch->data_len = 0;
    uint64_t self_before = e->self_consumed;
    int marked = 0;
    int closed_full = sc_own_closed_full(e);
    while (e->queue_head < e->queue_tail) {
        sc_delivery *d = at(e, e->queue_head);
        if (!d->p) {
            tail_spill(e, batch, &t);
            if (batch->n) break;
            marked = 1;
            *marker = d->marker;
            e->markers--;
            e->queue_head++;
            for (uint32_t i = 0; i < SC_ASSEMBLIES && !d->inside;
                 i++) { /* a message ends in the view it began in, or nowhere */
                sc_assembly *a = &e->assemblies[i];
                if (a->sender && !a->unicast) assembly_drop(e, a);
            }
            break;
        }
        if (batch->n && batch->data_len + t.len + d->len > bytes_max) break;
        if (t.len > bytes_max) tail_spill(e, batch, &t); /* a large message: out of the batch, into its assembly */
        if (!reserve(batch, t.len, d->len, sc_get_pieces(d->p))) break;
        if (!batch->n) {
            batch->offsets[0] = 0;
            batch->view_tag = d->view_tag;
        }
        append(e, batch, d, &t);
        sc_taken_hand(e, d, 0);
        credit(e, d, now);
        e->queue_bytes -= d->len;
        if (d->own) {
            e->own_bytes -= d->len;
            if (d->epoch != e->epoch) e->own_closed_bytes -= d->len;
        }
        sc_slab_unref(d->slab);
        e->queue_head++;
    }
    tail_spill(e, batch, &t);
    if (closed_full && !sc_own_closed_full(e)) {
        e->sendable++;
        sc_blocked_drain(e);
    }
    /* Also where a part of a large message alone was taken before a marker: nobody else may tell of this credit. */
    if (e->self_consumed != self_before && e->in_view) sc_flow_recount(e, now);
    if (marked) return SC_DELIVER_MARKER;
    return batch->n ? SC_DELIVER_BATCH : SC_DELIVER_NONE;
}

uint64_t sc_engine_deliverable(const sc_engine *e) { return e->queue_bytes + (e->markers != 0); }
