/* The batches that the application takes from the delivery queue: messages in their packets, or copied into an Arrow
 * array. */
#include "engine/internal.h"
#include "memory/memory.h"

#define BORROW_BYTES 1024 /* of a slab, at least */
#define KEPT_MOST 64 /* pieces of a message that move from batch to batch; more are copied once */

static int reserve_runs(sc_batch *b) {
    if (b->n_runs + 1 <= b->runs_cap) return 1;
    uint32_t cap = b->runs_cap ? b->runs_cap * 2 : 64;
    sc_run *runs = realloc(b->runs, cap * sizeof *runs);
    if (runs) b->runs = runs;
    sc_place *places = realloc(b->places, cap * sizeof *places);
    if (places) b->places = places;
    if (!runs || !places) return 0;
    b->runs_cap = cap;
    return 1;
}

static int reserve_pieces(sc_batch *b, uint32_t more) {
    if (b->n_pieces + more <= b->pieces_cap) return 1;
    uint32_t cap = b->pieces_cap ? b->pieces_cap : 64;
    while (cap < b->n_pieces + more) cap *= 2;
    sc_piece *pieces = realloc(b->pieces, cap * sizeof *pieces);
    if (!pieces) return 0;
    b->pieces = pieces;
    b->pieces_cap = cap;
    return 1;
}

static int reserve_offsets(sc_batch *b, uint32_t messages) {
    if (b->offsets && messages + 1 <= b->offsets_cap) return 1;
    uint32_t cap = b->offsets_cap ? b->offsets_cap : 256;
    while (cap < messages + 1) cap *= 2;
    int32_t *offsets = realloc(b->offsets, cap * sizeof *offsets);
    if (!offsets) return 0;
    b->offsets = offsets;
    b->offsets_cap = cap;
    return 1;
}

/* The first `keep` bytes stay. */
static int reserve_data(sc_batch *b, uint64_t keep, uint64_t bytes) {
    if (bytes <= b->data_cap) return 1;
    uint64_t cap = b->data_cap ? b->data_cap : 65536;
    while (cap < bytes) cap *= 2;
    uint8_t *data = sc_large_alloc(cap);
    if (!data) return 0;
    if (keep) memcpy(data, b->data, keep);
    free(b->data);
    b->data = data;
    b->data_cap = cap;
    return 1;
}

/* `open` bytes after the whole messages are kept as well. */
static int reserve(sc_batch *b, uint64_t open, uint64_t bytes, uint32_t messages) {
    uint64_t keep = b->data_len + open;
    return reserve_data(b, keep, keep + bytes) && reserve_offsets(b, b->n_copied + messages) && reserve_runs(b) &&
           reserve_pieces(b, 2); /* a packet may end one message and begin another */
}

void sc_batch_clear(sc_batch *batch) {
    free(batch->data);
    free(batch->offsets);
    free(batch->runs);
    free(batch->places);
    free(batch->pieces);
    memset(batch, 0, sizeof *batch);
}

void sc_engine_give_back(sc_engine *e, sc_batch *batch) {
    while (batch->n_slabs) sc_unborrow(e, batch->slabs[--batch->n_slabs]);
}

/* An unfinished message: its first pieces are borrowed, or lie after the last whole message in the batch's own memory.
 * It is finished there as long as packets of the same sender follow; otherwise the message moves into the sender's
 * assembly. */
typedef struct {
    sc_assembly *owner;
    uint64_t len;
    uint32_t pieces; /* the last ones of the batch; 0: in its own memory */
} tail;

static uint64_t copied_of(const tail *t) { return t->pieces ? 0 : t->len; }

static void tail_drop(sc_batch *b, tail *t) {
    b->n_pieces -= t->pieces;
    *t = (tail){0};
}

/* Not `later`: too large for a batch, or without memory, so copied now. */
static void tail_spill(sc_engine *e, sc_batch *b, tail *t, int later) {
    if (!t->owner) return;
    const sc_piece *piece = b->pieces + b->n_pieces - t->pieces;
    if (!t->pieces)
        sc_assembly_append(e, t->owner, b->data + b->data_len, t->len);
    else if (!later || t->pieces > KEPT_MOST || !sc_assembly_keep(e, t->owner, piece, t->pieces))
        for (uint32_t i = 0; i < t->pieces; i++) sc_assembly_append(e, t->owner, piece[i].data, piece[i].len);
    tail_drop(b, t);
}

static int has_slab(const sc_batch *b, const sc_slab *slab) {
    for (uint32_t i = b->n_slabs; i > 0; i--)
        if (b->slabs[i - 1] == slab) return 1;
    return 0;
}

/* Makes the message that the assembly keeps in pieces the batch's unfinished one again; the batch has none now. */
static void tail_resume(sc_engine *e, sc_batch *b, tail *t, sc_assembly *a) {
    if (!reserve_pieces(b, a->n_kept + 2)) return;
    *t = (tail){.owner = a, .pieces = a->n_kept};
    for (uint32_t i = 0; i < a->n_kept; i++) {
        sc_slab *slab = a->kept[i].slab;
        b->pieces[b->n_pieces++] = a->kept[i];
        t->len += a->kept[i].len;
        if (!sc_assembly_holds(a, i)) continue;
        if (has_slab(b, slab))
            sc_unborrow(e, slab);
        else
            b->slabs[b->n_slabs++] = slab; /* with its reference */
    }
    a->n_kept = 0;
}

/* Copies a message in pieces to the end of the batch's own memory; returns its length. */
static uint64_t copy_pieces(sc_batch *b, const sc_piece *piece, uint32_t n) {
    uint8_t *to = b->data + b->data_len;
    for (uint32_t i = 0; i < n; to += piece[i++].len) memcpy(to, piece[i].data, piece[i].len);
    return (uint64_t)(to - b->data) - b->data_len;
}

/* The next piece of the unfinished message is not borrowed: those before it are copied, too. 0 without memory. */
static int tail_copy(sc_batch *b, tail *t, uint32_t more) {
    if (!reserve_data(b, b->data_len, b->data_len + t->len + more)) return 0;
    b->n_pieces -= t->pieces;
    copy_pieces(b, b->pieces + b->n_pieces, t->pieces);
    t->pieces = 0;
    return 1;
}

/* The sender's assembly, if the packet continues or opens an unfinished message; NULL, and 0, if there are more open
 * messages than there can be members. */
static int find_assembly(sc_engine *e, sc_batch *b, const sc_delivery *d, tail *t, sc_assembly **found) {
    uint8_t flags = sc_get_flags(d->p);
    if (!(flags & (SC_FLAG_CONT_IN | SC_FLAG_CONT_OUT)) && !t->owner && !e->assembly.active) return 1;
    sc_assembly *a = sc_assembly_of(e, d->sender, d->stream == SC_STREAM_UNICAST);
    if (t->owner && t->owner != a) tail_spill(e, b, t, 1);
    if (!a) {
        e->counters->drop_partial_message++;
        return 0;
    }
    if (!(flags & SC_FLAG_CONT_IN) && a->active) { /* the sender abandoned a message midway */
        tail_drop(b, t);
        sc_assembly_drop(e, a);
    }
    if (a->n_kept) tail_resume(e, b, t, a);
    *found = a;
    return 1;
}

/* Borrows the memory of a packet for `bytes` bytes of its messages; 0: they are to be copied. Packets that follow each
 * other often share a slab. */
static int borrow(sc_engine *e, sc_batch *b, const sc_delivery *d, uint32_t bytes) {
    if (b->n_slabs && b->slabs[b->n_slabs - 1] == d->slab) return 1;
    if (bytes < BORROW_BYTES) return 0;
    if (!sc_borrow(e, d->slab)) {
        e->counters->batch_copies++;
        return 0;
    }
    b->slabs[b->n_slabs++] = d->slab;
    return 1;
}

/* Adds a piece to the unfinished message; 0: not borrowed. */
static int add_piece(sc_engine *e, sc_batch *b, const sc_delivery *d, const uint8_t *data, uint32_t len, tail *t) {
    if (!borrow(e, b, d, len)) return 0;
    b->pieces[b->n_pieces++] = (sc_piece){data, d->slab, len};
    t->pieces++;
    t->len += len;
    return 1;
}

static void end_message(sc_batch *b, uint32_t *n, uint64_t len) {
    b->data_len += len;
    b->offsets[++b->n_copied] = (int32_t)b->data_len;
    ++*n;
}

/* The unfinished message goes on with `len` bytes of the packet. 0: must move into the assembly. */
static int continue_tail(sc_engine *e, sc_batch *b, const sc_delivery *d, uint32_t len, tail *t) {
    if (!t->owner || t->len + len > e->config.message_bytes_max) return 0;
    const uint8_t *data = d->p + SC_DATA_HEADER;
    if (t->pieces && add_piece(e, b, d, data, len, t)) return 1;
    if (t->pieces && !tail_copy(b, t, d->len)) return 0;
    if (len) memcpy(b->data + b->data_len + t->len, data, len);
    t->len += len;
    return 1;
}

/* The unfinished message is whole. */
static void end_tail(sc_batch *b, const tail *t, uint32_t *n, sc_place *place) {
    if (!t->pieces) {
        end_message(b, n, t->len);
        return;
    }
    place->piece = b->n_pieces - t->pieces;
    place->pieces = t->pieces;
    b->borrowed_bytes += t->len;
    ++*n;
}

/* A message in its sender's assembly goes on; `whole`: and ends. */
static void continue_assembly(sc_engine *e, sc_batch *b, const sc_delivery *d, uint32_t len, sc_assembly *a, int whole,
                              uint32_t *n) {
    sc_assembly_append(e, a, d->p + SC_DATA_HEADER, len);
    if (!whole || a->skip) return;
    if (reserve(b, 0, a->len + sc_get_data_len(d->p), sc_get_pieces(d->p))) {
        if (a->len) memcpy(b->data + b->data_len, a->p, a->len);
        end_message(b, n, a->len);
    } else {
        e->counters->drop_message_too_large++;
    }
}

/* The first piece continues the open message of its sender; `whole`: and ends there. */
static void continue_message(sc_engine *e, sc_batch *b, const sc_delivery *d, tail *t, sc_assembly *a, int whole,
                             uint32_t *n, sc_place *place) {
    uint32_t end = sc_piece_at(d->p, 1);
    if (!a->active) {
        e->counters->drop_partial_message++; /* its beginning was in a closed view */
    } else if (continue_tail(e, b, d, end, t)) {
        if (whole) end_tail(b, t, n, place);
    } else {
        tail_spill(e, b, t, 0);
        continue_assembly(e, b, d, end, a, whole, n);
    }
    if (!whole) return;
    sc_assembly_close(e, a);
    sc_assembly_release(e, a);
    *t = (tail){0};
}

/* Copies data[from..from + len), which is `count` messages, to the end of the batch's own memory, in which their
 * offsets are. */
static void copy_data(sc_batch *b, const uint8_t *data, size_t from, size_t len, size_t count) {
    if (len) memcpy(b->data + b->data_len, data + from, len);
    b->n_copied += (uint32_t)count;
    b->data_len += len;
}

/* Copies messages of a batch. */
static void copy(sc_batch *b, const uint8_t *data, const int32_t *offsets, size_t count) {
    int32_t shift = (int32_t)b->data_len - offsets[0], *out = b->offsets + b->n_copied;
    for (size_t k = 1; k <= count; k++) out[k] = offsets[k] + shift;
    copy_data(b, data, (size_t)offsets[0], (size_t)(offsets[count] - offsets[0]), count);
}

/* Copies messages of a packet. */
static void copy_wholes(sc_batch *b, const uint8_t *data, const sc_wholes *wholes, size_t count) {
    uint32_t from = sc_whole_at(wholes, 0);
    int32_t at = (int32_t)b->data_len, *out = b->offsets + b->n_copied;
    for (size_t k = 1; k <= count; k++) out[k] = at + (int32_t)(sc_whole_at(wholes, k) - from);
    copy_data(b, data, from, sc_whole_at(wholes, count) - from, count);
}

/* Pieces [first, last) are whole messages. */
static void add_whole(sc_engine *e, sc_batch *b, const sc_delivery *d, uint32_t first, uint32_t last, uint32_t *n,
                      sc_place *place) {
    sc_wholes wholes = sc_wholes_from(d->p, first);
    size_t count = last - first;
    uint32_t bytes = sc_whole_at(&wholes, count) - sc_whole_at(&wholes, 0);
    if (borrow(e, b, d, bytes)) {
        place->data = d->p + SC_DATA_HEADER;
        place->wholes = wholes;
        b->borrowed_bytes += bytes;
    } else {
        copy_wholes(b, d->p + SC_DATA_HEADER, &wholes, count);
    }
    *n += (uint32_t)count;
}

/* The last piece continues in the next packet. */
static void open_message(sc_engine *e, sc_batch *b, const sc_delivery *d, uint32_t piece, tail *t, sc_assembly *a) {
    uint32_t data_len = sc_get_data_len(d->p), from = sc_piece_at(d->p, piece);
    const uint8_t *data = d->p + SC_DATA_HEADER + from;
    *t = (tail){.owner = a};
    if (!add_piece(e, b, d, data, data_len - from, t)) {
        if (data_len > from) memcpy(b->data + b->data_len, data, data_len - from);
        t->len = data_len - from;
    }
    sc_assembly_open(e, a);
}

static void append(sc_engine *e, sc_batch *b, const sc_delivery *d, tail *t) {
    const uint8_t *p = d->p;
    uint8_t flags = sc_get_flags(p);
    uint32_t whole = sc_get_pieces(p) - (flags & SC_FLAG_CONT_OUT ? 1u : 0u), first = 0, n = b->n;
    sc_place place = {.at = b->n_copied};
    sc_assembly *a = NULL;
    if (!find_assembly(e, b, d, t, &a)) return;
    if (flags & SC_FLAG_CONT_IN) {
        continue_message(e, b, d, t, a, whole > 0, &n, &place);
        if (!whole) return; /* a packet in the middle of a message */
        first = 1;
    }
    if (first < whole) add_whole(e, b, d, first, whole, &n, &place);
    if (flags & SC_FLAG_CONT_OUT) open_message(e, b, d, whole, t, a);
    if (n == b->n) return;
    place.copied = b->n_copied - place.at;
    b->places[b->n_runs] = place;
    b->runs[b->n_runs++] = (sc_run){.sender = d->sender,
                                    .seqno = d->number,
                                    .global_seqno = d->global ? d->global + (whole - (n - b->n)) : 0,
                                    .sent_ns = (int64_t)sc_get_sent_ns(p),
                                    .first = b->n,
                                    .n = n - b->n,
                                    .index = whole - (n - b->n),
                                    .unicast = d->stream == SC_STREAM_UNICAST,
                                    .transitional = d->transitional};
    e->counters->messages_delivered += n - b->n;
    b->n = n;
}

/* Adds the packet to the batch; 0 if too large. */
static int add(sc_engine *e, sc_batch *batch, const sc_delivery *d, tail *t, uint64_t bytes_max) {
    if (batch->n && batch->data_len + batch->borrowed_bytes + t->len + d->len > bytes_max) return 0;
    if (t->len > bytes_max) tail_spill(e, batch, t, 0); /* a large message: out of the batch, into its assembly */
    if (!reserve(batch, copied_of(t), d->len, sc_get_pieces(d->p))) return 0;
    if (!batch->n) {
        batch->offsets[0] = 0;
        batch->view_tag = d->view_tag;
    }
    append(e, batch, d, t);
    return 1;
}

/* The oldest entry of the delivery queue; NULL: empty. */
static sc_delivery *first_of(const sc_engine *e) {
    return e->queue.head < e->queue.tail ? &e->queue.entries[e->queue.head & (e->queue.cap - 1)] : NULL;
}

/* Does a message that began before the packet end there? */
static int ends_message(const uint8_t *p) {
    uint8_t flags = sc_get_flags(p);
    return (flags & SC_FLAG_CONT_IN) && sc_get_pieces(p) > (flags & SC_FLAG_CONT_OUT ? 1u : 0u);
}

/* The message that this packet ends is missed, and nobody was told so. */
static sc_assembly *owed_by(sc_engine *e, const sc_delivery *d) {
    if (!e->assembly.owed || d->stream != SC_STREAM_GROUP || !ends_message(d->p)) return NULL;
    sc_assembly *a = sc_assembly_of(e, d->sender, 0);
    return a && a->owed ? a : NULL;
}

static int tell_skipped(sc_engine *e, sc_skipped *out, uint64_t sender, uint64_t first, uint64_t last, uint64_t n) {
    *out = (sc_skipped){sender, first, last, n};
    e->counters->messages_skipped += n;
    return SC_DELIVER_SKIPPED;
}

/* The application has come to a gap. A message that goes on after the gap is missed, too, if an end comes: known now,
 * or told then (`owed`), once, however many gaps the message is in. 0: no message ends here. */
static int pass_gap(sc_engine *e, const sc_delivery *gap, sc_skipped *out) {
    const sc_delivery *behind = gap->open ? sc_queue_behind(e, gap) : NULL;
    int ends = behind && ends_message(behind->p), abandoned = behind && !(sc_get_flags(behind->p) & SC_FLAG_CONT_IN);
    uint64_t messages = gap->ends + (uint64_t)ends, last = ends ? behind->number : gap->number;
    sc_assembly *a = sc_assembly_of(e, gap->sender, 0);
    sc_taken_hand(e, gap, 0);
    if (a && a->active) {
        messages -= a->skip && !a->owed && gap->continues && messages;
        sc_assembly_close(e, a);
        sc_assembly_release(e, a);
    }
    if (a && gap->open && !abandoned) sc_assembly_miss(e, a, !ends);
    return messages ? tell_skipped(e, out, gap->sender, gap->seqno, last, messages) : 0;
}

static int take(sc_engine *e, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int64_t now) {
    tail t = {0};
    sc_delivery *d;
    sc_engine_give_back(e, batch);
    batch->n = batch->n_copied = batch->n_runs = batch->n_pieces = 0;
    batch->data_len = batch->borrowed_bytes = 0;
    sc_assembly *owed = NULL;
    while ((d = first_of(e)) && d->p && !(owed = owed_by(e, d)) && add(e, batch, d, &t, bytes_max))
        sc_queue_pop(e, now);
    tail_spill(e, batch, &t, 1);
    if (batch->n) return SC_DELIVER_BATCH;
    sc_engine_give_back(e, batch);
    if (owed) {
        sc_assembly_miss(e, owed, 0);
        return tell_skipped(e, &batch->skipped, d->sender, d->number, d->number, 1);
    }
    if (!d || d->p) return SC_DELIVER_NONE;
    if (d->gap) {
        int told = pass_gap(e, d, &batch->skipped);
        sc_queue_pop(e, now);
        return told ? told : take(e, batch, bytes_max, marker, now);
    }
    *marker = d->number;
    if (!d->inside) sc_assembly_view_ends(e, d->epoch + 1 == e->epoch);
    sc_queue_pop(e, now);
    return SC_DELIVER_MARKER;
}

int sc_deliver(sc_engine *e, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int keeps, int64_t now) {
    if (!keeps) sc_engine_looks(e, now);
    uint64_t before = e->queue.taken;
    int result = take(e, batch, bytes_max, marker, now), whole = result == SC_DELIVER_BATCH;
    batch->packet_bytes = keeps ? sc_queue_keep(e, e->queue.taken - before, whole) : 0;
    if (keeps) return result;
    sc_queue_unkeep(e);
    if (whole) sc_queue_handed(e, now);
    return result;
}

int sc_batch_flatten(sc_batch *b) {
    if (b->n_copied == b->n) return 0;
    /* Copied bytes move up within the same memory, so they are put aside first. Such data is small: mostly messages
     * between two packets. */
    uint64_t bytes = b->data_len, all = bytes + b->borrowed_bytes;
    size_t of_offsets = ((size_t)b->n_copied + 1) * sizeof *b->offsets;
    uint8_t *aside = malloc(of_offsets + bytes);
    if (!aside || !reserve_data(b, bytes, all) || !reserve_offsets(b, b->n)) {
        free(aside);
        return -1;
    }
    memcpy(aside, b->offsets, of_offsets);
    memcpy(aside + of_offsets, b->data, bytes);
    b->n_copied = 0;
    b->data_len = 0;
    for (uint32_t r = 0; r < b->n_runs; r++) {
        sc_place *place = &b->places[r];
        if (place->pieces) {
            b->data_len += copy_pieces(b, b->pieces + place->piece, place->pieces);
            b->offsets[++b->n_copied] = (int32_t)b->data_len;
        }
        if (place->copied) copy(b, aside + of_offsets, (const int32_t *)aside + place->at, place->copied);
        uint32_t others = b->runs[r].n - place->copied - (place->pieces != 0);
        if (others) copy_wholes(b, place->data, &place->wholes, others);
        *place = (sc_place){.at = b->runs[r].first, .copied = b->runs[r].n};
    }
    free(aside);
    b->borrowed_bytes = 0;
    return 0;
}

const uint8_t *sc_batch_message(const sc_batch *b, uint32_t r, uint32_t i, size_t *len) {
    const sc_place *place = &b->places[r];
    uint32_t k = i - b->runs[r].first, pieces = place->pieces != 0;
    if (k < pieces) return NULL;
    k -= pieces;
    if (k < place->copied) {
        const int32_t *at = b->offsets + place->at + k;
        *len = (size_t)(at[1] - at[0]);
        return b->data + at[0];
    }
    k -= place->copied;
    uint32_t start = sc_whole_at(&place->wholes, k);
    *len = sc_whole_at(&place->wholes, k + 1) - start;
    return place->data + start;
}

int sc_batch_unicasts(const sc_batch *batch, sc_batch *out) {
    memset(out, 0, sizeof *out);
    out->view_tag = batch->view_tag;
    for (uint32_t r = 0; r < batch->n_runs; r++) {
        const sc_run *run = &batch->runs[r];
        if (!run->unicast) continue;
        const int32_t *offsets = batch->offsets + run->first;
        if (!reserve(out, 0, (uint64_t)(offsets[run->n] - offsets[0]), run->n)) {
            sc_batch_clear(out);
            return -1;
        }
        out->offsets[0] = 0;
        out->places[out->n_runs] = (sc_place){.at = out->n, .copied = run->n};
        out->runs[out->n_runs] = *run;
        out->runs[out->n_runs++].first = out->n;
        copy(out, batch->data, offsets, run->n);
        out->n += run->n;
    }
    return 0;
}
