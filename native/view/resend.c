/* Own messages that a view change leaves unordered are resent in the next view, before anything newer. */
#include "engine/internal.h"
#include "memory/memory.h"

/* Packets up to this number are ordered: their messages are delivered, and not resent. */
static void collect_packet(const sc_engine *e, sc_resend *r, uint64_t seqno, uint64_t ordered) {
    const uint8_t *p = sc_tx_at(e->order.own, seqno)->p;
    uint32_t pieces = sc_get_pieces(p);
    for (uint32_t i = 0; i < pieces; i++) {
        uint32_t from = sc_piece_at(p, i), to = sc_piece_at(p, i + 1);
        int continued = i == 0 && (sc_get_flags(p) & SC_FLAG_CONT_IN);
        int continues = i == pieces - 1 && (sc_get_flags(p) & SC_FLAG_CONT_OUT);
        if (!continued) {
            r->open = !(continues && seqno == e->own.large_first);
            r->len = r->n ? r->ends[r->n - 1] : 0;
        }
        if (!r->open) continue;
        memcpy(r->data + r->len, p + SC_DATA_HEADER + from, to - from);
        r->len += to - from;
        if (continues) continue;
        r->open = 0;
        if (seqno <= ordered) continue;
        r->beside[r->n] = (uint8_t)sc_is_beside(p);
        r->ends[r->n++] = r->len;
    }
}

static int reserve(sc_engine *e, size_t bytes) {
    if (bytes <= e->resend.bytes) return 0;
    uint8_t *p = sc_large_alloc(bytes);
    if (!p) return -1;
    free(e->resend.p);
    e->resend.p = p;
    e->resend.bytes = bytes;
    return 0;
}

/* A view change copies the messages that wait for their order while all senders wait, and if the memory is new, a
 * virtual machine may take ten times as long as for the copy itself. So the writes come before, and the memory suffices
 * for the ring of the next view, too (`next` is an estimate). */
void sc_resend_prepare(sc_engine *e, size_t next) {
    size_t bytes = e->forward.ring_bytes;
    if (bytes + bytes / 8 <= e->resend.bytes) return;
    if (next > bytes) bytes = next;
    if (!reserve(e, bytes + bytes / 4)) memset(e->resend.p, 0, e->resend.bytes);
}

/* Whole messages only: one that the application is still packing restarts by itself (sc_send_state.epoch). The first
 * may begin in a packet that is already ordered: receivers drop that piece, so the message is resent whole. */
int sc_resend_collect(sc_engine *e, sc_resend *r) {
    const sc_tx_stream *tx = e->order.own;
    if (!e->order.waits || !tx->packets) return 0;
    uint64_t bytes = 0, messages = 0;
    for (uint64_t seqno = tx->first; seqno < tx->next; seqno++) {
        bytes += sc_tx_at(tx, seqno)->len;
        messages += sc_tx_at(tx, seqno)->messages;
    }
    if (!messages) return 0;
    if (reserve(e, messages * sizeof *r->ends + messages + bytes)) return -1;
    r->ends = (uint64_t *)e->resend.p;
    r->beside = (uint8_t *)(r->ends + messages);
    r->data = r->beside + messages;
    for (uint64_t seqno = tx->first; seqno < tx->next; seqno++) collect_packet(e, r, seqno, e->order.ops->ordered(e));
    return 0;
}

/* Enough full packets for this much data, each with its header, alignment, and the space left by a message that is not
 * split. */
uint64_t sc_resend_ring(const sc_resend *r, uint32_t packet_bytes) {
    uint64_t least = packet_bytes - SC_DATA_HEADER - 128 - 8;
    return r->n ? ((r->ends[r->n - 1] + 4 * r->n) / least + 8) * ((uint64_t)packet_bytes + 64) : 0;
}

/* Forced past credit, into a ring that was made large enough; -1 with too few descriptors nevertheless. */
int sc_resend_pack(sc_engine *e, const sc_resend *r, int64_t wall) {
    uint64_t start = 0;
    for (uint64_t i = 0; i < r->n; i++) {
        uint64_t done = 0;
        sc_tx_beside(e, e->order.own, r->beside[i] && e->order.ops->beside);
        if (sc_tx_pack(e, e->order.own, r->data + start, r->ends[i] - start, &done, wall, 1) != SC_SENT) return -1;
        e->counters->messages_sent--; /* counted at the first send */
        start = r->ends[i];
    }
    return 0;
}

void sc_resend_free(sc_engine *e) { free(e->resend.p); }
