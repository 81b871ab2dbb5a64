/* The batches that the application takes from the delivery queue: Arrow layout, one copy. */
#include "engine/internal.h"
#include "memory/memory.h"

/* `open` bytes after the whole messages are kept as well. */
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

/* The unfinished piece of a message after the last whole message of the batch: it is finished in place as long as packets of
 * the same sender follow; otherwise it moves into the sender's assembly. */
typedef struct {
    sc_assembly *owner;
    uint64_t len;
} tail;

static void tail_spill(sc_engine *e, sc_batch *b, tail *t) {
    if (!t->owner) return;
    sc_assembly_append(e, t->owner, b->data + b->data_len, t->len);
    t->owner = NULL;
    t->len = 0;
}

/* The sender's assembly, if the packet continues or opens an unfinished message; NULL, and 0, if there are more open messages
 * than there can be members. */
static int find_assembly(sc_engine *e, sc_batch *b, const sc_delivery *d, tail *t, sc_assembly **found) {
    uint8_t flags = sc_get_flags(d->p);
    if (!(flags & (SC_FLAG_CONT_IN | SC_FLAG_CONT_OUT)) && !t->owner && !e->assembly.active) return 1;
    sc_assembly *a = sc_assembly_of(e, d->sender, d->stream == SC_STREAM_UNICAST);
    if (t->owner && t->owner != a) tail_spill(e, b, t);
    if (!a) {
        e->counters.drop_partial_message++;
        return 0;
    }
    if (!(flags & SC_FLAG_CONT_IN) && a->active) { /* the sender abandoned a message midway */
        *t = (tail){0};
        sc_assembly_drop(e, a);
    }
    *found = a;
    return 1;
}

static void end_message(sc_batch *b, uint32_t *n, uint64_t len) {
    b->data_len += len;
    b->offsets[++*n] = (int32_t)b->data_len;
}

/* The first piece continues the open message of its sender; `whole`: and ends it. */
static void continue_message(sc_engine *e, sc_batch *b, const sc_delivery *d, tail *t, sc_assembly *a, int whole,
                             uint32_t *n) {
    const uint8_t *data = d->p + SC_DATA_HEADER;
    uint32_t data_len = sc_get_data_len(d->p), end = sc_get_offset(d->p + sc_wire_offsets(data_len), 1);
    if (!a->active) {
        e->counters.drop_partial_message++; /* its beginning was in a closed view */
    } else if (t->owner && !a->len && t->len + end <= e->config.message_bytes_max) {
        if (end) memcpy(b->data + b->data_len + t->len, data, end);
        t->len += end;
        if (whole) end_message(b, n, t->len);
    } else {
        tail_spill(e, b, t);
        sc_assembly_append(e, a, data, end);
        int ends = whole && !a->skip;
        if (ends && reserve(b, 0, a->len + data_len, sc_get_pieces(d->p))) {
            if (a->len) memcpy(b->data + b->data_len, a->p, a->len);
            end_message(b, n, a->len);
        } else if (ends) {
            e->counters.drop_message_too_large++;
        }
    }
    if (!whole) return;
    sc_assembly_close(e, a);
    sc_assembly_release(a);
    *t = (tail){0};
}

/* Pieces [first, last) are whole messages. */
static void add_whole(sc_batch *b, const uint8_t *p, uint32_t first, uint32_t last, uint32_t *n) {
    const uint8_t *offsets = p + sc_wire_offsets(sc_get_data_len(p));
    uint32_t from = sc_get_offset(offsets, first), to = sc_get_offset(offsets, last);
    if (to > from) memcpy(b->data + b->data_len, p + SC_DATA_HEADER + from, to - from);
    int32_t shift = (int32_t)b->data_len - (int32_t)from, *out = b->offsets + *n + 1;
    size_t count = last - first;
    offsets += 4 * ((size_t)first + 1);
    for (size_t k = 0; k < count; k++) out[k] = (int32_t)sc_get_offset(offsets, k) + shift;
    *n += last - first;
    b->data_len += to - from;
}

/* The last piece continues in the next packet. */
static void open_message(sc_engine *e, sc_batch *b, const uint8_t *p, uint32_t piece, tail *t, sc_assembly *a) {
    uint32_t data_len = sc_get_data_len(p), from = sc_get_offset(p + sc_wire_offsets(data_len), piece);
    if (data_len > from) memcpy(b->data + b->data_len, p + SC_DATA_HEADER + from, data_len - from);
    *t = (tail){.owner = a, .len = data_len - from};
    sc_assembly_open(e, a);
}

static void append(sc_engine *e, sc_batch *b, const sc_delivery *d, tail *t) {
    const uint8_t *p = d->p;
    uint8_t flags = sc_get_flags(p);
    uint32_t whole = sc_get_pieces(p) - (flags & SC_FLAG_CONT_OUT ? 1u : 0u), first = 0, n = b->n;
    sc_assembly *a = NULL;
    if (!find_assembly(e, b, d, t, &a)) return;
    if (flags & SC_FLAG_CONT_IN) {
        continue_message(e, b, d, t, a, whole > 0, &n);
        if (!whole) return; /* a packet in the middle of a message */
        first = 1;
    }
    if (first < whole) add_whole(b, p, first, whole, &n);
    if (flags & SC_FLAG_CONT_OUT) open_message(e, b, p, whole, t, a);
    if (n == b->n) return;
    b->runs[b->n_runs++] = (sc_run){.sender = d->sender,
                                    .seqno = d->number,
                                    .global_seqno = d->global ? d->global + (whole - (n - b->n)) : 0,
                                    .sent_ns = (int64_t)sc_get_sent_ns(p),
                                    .first = b->n,
                                    .n = n - b->n,
                                    .index = whole - (n - b->n),
                                    .unicast = d->stream == SC_STREAM_UNICAST,
                                    .transitional = d->transitional};
    e->counters.messages_delivered += n - b->n;
    b->n = n;
}

/* Adds the packet to the batch; 0 if it does not fit. */
static int add(sc_engine *e, sc_batch *batch, const sc_delivery *d, tail *t, uint64_t bytes_max) {
    if (batch->n && batch->data_len + t->len + d->len > bytes_max) return 0;
    if (t->len > bytes_max) tail_spill(e, batch, t); /* a large message: out of the batch, into its assembly */
    if (!reserve(batch, t->len, d->len, sc_get_pieces(d->p))) return 0;
    if (!batch->n) {
        batch->offsets[0] = 0;
        batch->view_tag = d->view_tag;
    }
    append(e, batch, d, t);
    return 1;
}

/* The oldest entry of the delivery queue; NULL: it is empty. */
static sc_delivery *first_of(const sc_engine *e) {
    return e->queue.head < e->queue.tail ? &e->queue.entries[e->queue.head & (e->queue.cap - 1)] : NULL;
}

int sc_deliver(sc_engine *e, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int64_t now) {
    tail t = {0};
    sc_delivery *d;
    batch->n = batch->n_runs = 0;
    batch->data_len = 0;
    while ((d = first_of(e)) && d->p && add(e, batch, d, &t, bytes_max)) sc_queue_pop(e, now);
    tail_spill(e, batch, &t);
    if (batch->n) return SC_DELIVER_BATCH;
    if (!d || d->p) return SC_DELIVER_NONE;
    *marker = d->number;
    if (!d->inside) sc_assembly_view_ends(e, d->epoch + 1 == e->epoch);
    sc_queue_pop(e, now);
    return SC_DELIVER_MARKER;
}

int sc_batch_unicasts(const sc_batch *batch, sc_batch *out) {
    memset(out, 0, sizeof *out);
    out->view_tag = batch->view_tag;
    out->data_cap = batch->data_len + 1;
    out->offsets_cap = batch->n + 1;
    out->runs_cap = batch->n_runs + 1;
    out->data = malloc(out->data_cap);
    out->offsets = malloc(out->offsets_cap * sizeof *out->offsets);
    out->runs = malloc(out->runs_cap * sizeof *out->runs);
    if (!out->data || !out->offsets || !out->runs) {
        sc_batch_clear(out);
        return -1;
    }
    out->offsets[0] = 0;
    for (uint32_t r = 0; r < batch->n_runs; r++) {
        const sc_run *run = &batch->runs[r];
        if (!run->unicast) continue;
        out->runs[out->n_runs] = *run;
        out->runs[out->n_runs++].first = out->n;
        int32_t from = batch->offsets[run->first], shift = (int32_t)out->data_len - from;
        uint64_t len = (uint64_t)(batch->offsets[run->first + run->n] - from);
        memcpy(out->data + out->data_len, batch->data + from, len);
        out->data_len += len;
        for (uint32_t i = 1; i <= run->n; i++) out->offsets[++out->n] = batch->offsets[run->first + i] + shift;
    }
    return 0;
}
