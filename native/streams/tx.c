/* Send ring: a packet is packed in place in a byte ring, sent from there, and stays there until every receiver has
 * consumed that packet, so that a retransmission sends the same messages. Byte ring and descriptors are bounded; a
 * packet is opened only if credit, descriptors and bytes are available. The rate of its path says when it leaves. */
#include "engine/internal.h"
#include "memory/memory.h"

/* The smallest piece of a message worth splitting off: a sliver at the end of a packet costs an offset and a
 * reassembly. */
#define SLIVER 32u
#define CALLBACK_PART 8 /* one part in this many of a window is left to block callbacks */
#define STARVED_NS 20000000 /* a sender that waits for credit tries again within this time, unless it has given up */
#define QUICK_RECEIVERS 8 /* up to this many, acks come within the configured delay; more take proportionally longer */

int sc_tx_init(sc_tx_stream *tx, int stream, uint32_t ring_packets) {
    static const uint8_t types[] = {SC_TYPE_DATA, SC_TYPE_UNICAST, SC_TYPE_FORWARD, SC_TYPE_STATE};
    memset(tx, 0, sizeof *tx);
    tx->stream = stream;
    tx->type = types[stream];
    tx->places = ring_packets;
    tx->mask = ring_packets - 1;
    tx->first = tx->next = tx->unsent = 1;
    tx->lent = SC_NOT_LENT;
    tx->probe_due = SC_NEVER;
    return 0;
}

/* The driver may be sending from the ring outside the lock: the next transmit frees the old one. */
static void retire_ring(sc_engine *e, sc_tx_stream *tx) {
    if (tx->ring) {
        sc_retired *r = (sc_retired *)(tx->ring + tx->ring_room);
        *r = (sc_retired){.next = e->packing.retired, .memory = tx->ring};
        e->packing.retired = r;
    }
    tx->ring = NULL;
    tx->ring_bytes = tx->ring_room = 0;
    tx->lent = SC_NOT_LENT;
}

static void packed(sc_engine *e, sc_tx_stream *tx, uint64_t bytes) {
    tx->unsent_bytes += bytes;
    e->packing.unsent += bytes;
}

void sc_tx_sent(sc_engine *e, sc_tx_stream *tx, uint64_t bytes) {
    tx->unsent_bytes -= bytes;
    e->packing.unsent -= bytes;
}

void sc_tx_free(sc_engine *e, sc_tx_stream *tx) {
    sc_tx_sent(e, tx, tx->unsent_bytes); /* nor ever */
    if (tx->packets) sc_tx_purge(tx, tx->next - 1);
    retire_ring(e, tx);
    free(tx->packets);
    free(tx->open_offsets);
    tx->packets = NULL;
    tx->open_offsets = NULL;
}

static int new_ring(sc_engine *e, sc_tx_stream *tx, const sc_ring_size *size) {
    uint64_t room = size->room > size->needed ? size->room : size->needed;
    room = (room + SC_TX_ALIGN - 1) & ~(uint64_t)(SC_TX_ALIGN - 1);
    uint8_t *ring = sc_large_alloc(room + sizeof(sc_retired));
    if (!ring) return -1;
    memset(ring, 0, size->written < room ? size->written : room);
    retire_ring(e, tx);
    tx->ring = ring;
    tx->ring_room = room;
    return 0;
}

/* As many descriptors as the setting says, or more: in smaller packets than those of the view before, messages that are
 * sent again take more packets. */
static int describe(sc_tx_stream *tx, uint64_t needed) {
    uint64_t n = tx->places;
    while (n < needed) n *= 2;
    if (tx->packets && n == (uint64_t)tx->mask + 1) return 0;
    sc_tx_packet *packets = calloc(n, sizeof *packets);
    if (!packets) return -1;
    free(tx->packets);
    tx->packets = packets;
    tx->mask = (uint32_t)(n - 1);
    return 0;
}

/* Restarts the stream after `base`, empty. -1 without memory. */
int sc_tx_reset(sc_engine *e, sc_tx_stream *tx, uint64_t base, uint64_t window, uint32_t packet_bytes,
                const sc_ring_size *size) {
    if (tx->packets) sc_tx_purge(tx, tx->next - 1);
    if (!tx->open_offsets) tx->open_offsets = malloc(sizeof(int32_t) * (SC_PACKET_MAX / 4 + 2));
    if (!tx->open_offsets || describe(tx, size->packets)) return -1;
    sc_tx_sent(e, tx, tx->unsent_bytes); /* nor ever */
    if (tx->lent != SC_NOT_LENT) retire_ring(e, tx); /* its positions restart while sends from there may go on */
    if (size->needed > tx->ring_room && new_ring(e, tx, size)) return -1;
    uint64_t needed = (size->needed + SC_TX_ALIGN - 1) & ~(uint64_t)(SC_TX_ALIGN - 1);
    if (needed > tx->ring_bytes) tx->ring_bytes = needed;
    tx->head = tx->tail = 0;
    tx->first = tx->next = tx->unsent = base + 1;
    tx->stable = tx->consumed = tx->arrived = base;
    tx->charged = tx->charged_consumed = tx->own_charged = tx->own_consumed = 0;
    tx->window = window;
    tx->starved_until = 0;
    tx->packet_bytes = packet_bytes;
    tx->open = NULL;
    tx->in_message = 0;
    tx->probe_due = SC_NEVER;
    tx->probe_wait = 0;
    return 0;
}

void sc_tx_abandon(sc_tx_stream *tx) { tx->in_message = 0; }

sc_tx_stream *sc_tx_of(sc_engine *e, const sc_peer *peer, int stream) {
    return stream == SC_STREAM_GROUP     ? &e->group
           : stream == SC_STREAM_FORWARD ? &e->forward
           : stream == SC_STREAM_UNICAST ? peer->unicast_tx
                                         : peer->state_tx;
}

/* A window of the view, limited by the ring, but at least two full packets. */
static uint64_t pair_window(const sc_engine *e, int stream, uint64_t ring_bytes) {
    uint64_t window = stream == SC_STREAM_UNICAST ? e->view.unicast_window_bytes : e->view.state_window_bytes;
    if (window > ring_bytes) window = ring_bytes;
    return window < 2 * e->view.packet_bytes ? 2 * e->view.packet_bytes : window;
}

sc_tx_stream *sc_tx_to(sc_engine *e, sc_peer *peer, int stream) {
    sc_tx_stream **slot = stream == SC_STREAM_UNICAST ? &peer->unicast_tx : &peer->state_tx;
    if (*slot && (*slot)->packets) return *slot;
    uint64_t window =
        pair_window(e, stream, stream == SC_STREAM_UNICAST ? e->config.unicast_bytes : e->config.ring_bytes);
    sc_tx_stream *tx = *slot ? *slot : malloc(sizeof *tx);
    if (!tx) return NULL;
    if (!*slot) {
        sc_tx_init(tx, stream, e->config.ring_packets);
        e->packing.singly++;
    }
    *slot = tx;
    tx->pair = peer->pair;
    sc_ring_size size = {.needed = window + window / 8 + 4 * (uint64_t)e->view.packet_bytes};
    if (!sc_tx_reset(e, tx, tx->next - 1, window, e->view.packet_bytes, &size)) return tx;
    sc_tx_free(e, tx);
    return NULL;
}

void sc_tx_end(sc_engine *e, sc_tx_stream *tx) {
    if (!tx) return;
    sc_tx_free(e, tx);
    free(tx);
    e->packing.singly--;
}

/* A new view has new windows: a stream that continues takes its window, within its existing ring. */
void sc_tx_rewindow(sc_engine *e, sc_peer *peer) {
    sc_tx_stream *streams[] = {peer->unicast_tx, peer->state_tx};
    for (int i = 0; i < 2; i++) {
        sc_tx_stream *tx = streams[i];
        if (!tx || !tx->packets) continue;
        int fits = e->view.packet_bytes < tx->packet_bytes || tx->ring_bytes >= 16 * (uint64_t)e->view.packet_bytes;
        if (fits && e->view.packet_bytes != tx->packet_bytes) {
            sc_tx_close(e, tx); /* a packet that is open may be larger already */
            tx->open = NULL;
            tx->packet_bytes = e->view.packet_bytes;
        }
        tx->window = pair_window(e, tx->stream, (tx->ring_bytes - 4 * (uint64_t)tx->packet_bytes) / 9 * 8);
    }
}

/* May the stream have another packet with this charge on its way? */
int sc_tx_allows(const sc_engine *e, const sc_tx_stream *tx, uint32_t charge, uint64_t beyond) {
    uint64_t flight = tx->charged - tx->charged_consumed;
    if (!flight) return 1;
    uint64_t limit = tx == &e->group && e->view.n > 1 ? e->credit.limit + beyond : UINT64_MAX;
    return flight + charge <= tx->window + beyond && tx->charged + charge <= limit;
}

/* Does the order leave room for another packet of our own? */
static int leaves_own(const sc_engine *e, const sc_tx_stream *tx, uint32_t charge) {
    uint64_t flight = tx->own_charged - tx->own_consumed;
    return tx != &e->group || !e->order.own_limit || !flight || flight + charge <= e->order.own_limit;
}

/* Is there credit for another packet of our own? */
static int has_credit(sc_engine *e, sc_tx_stream *tx) {
    uint32_t charge = sc_charge_most(tx->packet_bytes);
    int allowed = sc_tx_allows(e, tx, charge, 0);
    tx->starved_until = allowed ? 0 : e->now + STARVED_NS;
    if (!sc_outflow_room(e, tx)) return 0;
    if (allowed && leaves_own(e, tx, charge)) return 1;
    e->counters->credit_stalls++;
    return 0;
}

static int is_within(const sc_engine *e, const sc_tx_stream *tx, uint64_t places) {
    return tx->next - tx->first + (tx == &e->group ? e->order.spare : 0) < places;
}

int sc_tx_has_place(const sc_engine *e, const sc_tx_stream *tx) { return is_within(e, tx, tx->places); }

static int open_packet(sc_engine *e, sc_tx_stream *tx, int64_t wall, int force) {
    if (force)
        tx->starved_until = 0;
    else if (!has_credit(e, tx))
        return 0;
    if (!force && tx == &e->group && sc_own_closed_full(e)) {
        e->counters->own_closed_stalls++;
        return 0;
    }
    if (!is_within(e, tx, force ? (uint64_t)tx->mask + 1 : tx->places)) return 0;
    if (tx->first == tx->next && tx->lent == SC_NOT_LENT)
        tx->head = tx->tail = 0; /* empty: reuse the warm cache lines */
    /* Lent memory is not written, even if all receivers have the packet: a retransmission may be under way. */
    uint64_t tail = tx->lent < tx->tail ? tx->lent : tx->tail, at = tx->head % tx->ring_bytes;
    uint64_t skip = tx->ring_bytes - at < tx->packet_bytes ? tx->ring_bytes - at : 0; /* no packet wraps around */
    if (tx->head + skip + tx->packet_bytes - tail > tx->ring_bytes) {
        tx->lent_stall |= tail != tx->tail;
        return 0;
    }
    tx->head += skip;
    if (skip) at = 0;
    tx->open = tx->ring + at;
    tx->open_len = tx->open_pieces = tx->open_messages = tx->open_first = tx->open_each = 0;
    tx->open_even = 1;
    tx->open_flags = tx->in_message ? SC_FLAG_CONT_IN : 0;
    tx->open_wall = wall;
    return 1;
}

/* Room in the open packet for one more piece of data, after which the packet is even or not; -1: none. */
static int64_t room(const sc_tx_stream *tx, int even) {
    int64_t offsets = even ? SC_EVEN_BYTES : 4 * ((int64_t)tx->open_pieces + 2);
    int64_t r = (int64_t)tx->packet_bytes - SC_DATA_HEADER - 3 - tx->open_len - offsets;
    return r < 0 || tx->open_pieces >= UINT16_MAX ? -1 : r;
}

/* Is the open packet still even with this whole message? */
static int stays_even(const sc_tx_stream *tx, uint64_t len) {
    return tx->open_even && len && (!tx->open_each || tx->open_each == len);
}

/* The next whole message has another length. */
static void end_even(sc_engine *e, sc_tx_stream *tx) {
    tx->open_offsets[0] = 0;
    for (uint32_t i = 0; i < tx->open_pieces; i++)
        tx->open_offsets[i + 1] = (int32_t)(tx->open_first + i * tx->open_each);
    tx->open_even = 0;
    packed(e, tx, 4 * (uint64_t)tx->open_pieces);
}

/* Puts the offsets of the open packet, or their short form, at `p`; returns their bytes. */
static size_t put_offsets(const sc_tx_stream *tx, uint8_t *p) {
    if (tx->open_even) {
        sc_put_even(p, tx->open_first, tx->open_each);
        return SC_EVEN_BYTES;
    }
    for (size_t i = 0; i <= tx->open_pieces; i++) sc_put_offset(p, i, (uint32_t)tx->open_offsets[i]);
    return 4 * ((size_t)tx->open_pieces + 1);
}

static void close_packet(sc_engine *e, sc_tx_stream *tx, int full) {
    if (!sc_of_pair((uint64_t)tx->stream) && e->order.ops->closing) e->order.ops->closing(e, tx);
    uint8_t *p = tx->open;
    size_t at = sc_wire_offsets(tx->open_len), end = at + put_offsets(tx, p + at);
    memset(p, 0, SC_DATA_HEADER);
    uint64_t tag = sc_of_pair((uint64_t)tx->stream) ? tx->pair : e->view.tag;
    sc_wire_head(p, tx->type, e->config.group, e->config.member, tag);
    int flags = tx->open_flags | (tx->open_even ? SC_FLAG_EVEN : 0) | (tx->beside ? SC_FLAG_BESIDE : 0);
    sc_put_flags(p, (uint8_t)flags);
    sc_put_seqno(p, tx->next);
    sc_put_sent_ns(p, (uint64_t)tx->open_wall);
    sc_put_data_len(p, tx->open_len);
    sc_put_pieces(p, (uint16_t)tx->open_pieces);
    sc_put_origin_rank(p, (uint16_t)e->view.rank);
    memset(p + SC_DATA_HEADER + tx->open_len, 0, at - SC_DATA_HEADER - tx->open_len);
    if (full) {
        memset(p + end, 0, tx->packet_bytes - end);
        end = tx->packet_bytes;
    }
    sc_tx_packet *packet = sc_tx_at(tx, tx->next);
    memset(packet, 0, sizeof *packet);
    packet->p = p;
    packet->len = (uint32_t)end;
    uint64_t before = tx->open_len + (tx->open_even ? 0 : 4 * (uint64_t)tx->open_pieces);
    packed(e, tx, end - before); /* the header, and its padding */
    packet->charge = sc_charge(packet->len, packet->len == tx->packet_bytes);
    packet->charged = tx->charged += packet->charge;
    packet->own_charged = tx->own_charged += packet->charge;
    tx->head += (end + SC_TX_ALIGN - 1) & ~(uint64_t)(SC_TX_ALIGN - 1);
    packet->ring_end = tx->head;
    packet->messages = tx->open_messages;
    packet->message_start = tx->in_message && tx->message_start ? tx->message_start : tx->next + 1;
    tx->open = NULL;
    tx->next++;
    if (!sc_of_pair((uint64_t)tx->stream)) e->order.ops->packed(e, tx, packet);
}

void sc_tx_close(sc_engine *e, sc_tx_stream *tx) {
    if (tx->open && tx->open_pieces) close_packet(e, tx, 0);
}

void sc_tx_beside(sc_engine *e, sc_tx_stream *tx, int beside) {
    if (tx->beside == beside) return;
    sc_tx_close(e, tx);
    tx->beside = beside;
}

/* Packets that uncounted members lack stay in the ring, however fast the others consume. So that block callbacks can
 * send all the same, a message of other senders begins only if a part of the ring is left to the callbacks:
 * CALLBACK_PART of a window. */
int sc_tx_leaves_room(const sc_engine *e, const sc_tx_stream *tx, uint64_t len) {
    if (!e->cut.uncounts || tx != &e->group) return 1;
    if (tx->open && (int64_t)len <= room(tx, stays_even(tx, len))) return 1;
    uint64_t packets = len / (tx->packet_bytes - SC_DATA_HEADER - 64) + 2, bytes = tx->packet_bytes + SC_TX_ALIGN;
    return tx->head - tx->tail + packets * bytes + tx->window / CALLBACK_PART <= tx->ring_bytes &&
           tx->next - tx->first + packets + tx->places / CALLBACK_PART < tx->places;
}

/* How much of the `left` bytes of a message the open packet takes; -1: none, full. A message that would fit but
 * for its offsets is split, as a part needs none; with `force` as late as possible, so that messages that a view change
 * sends again take no more packets than before. */
static int64_t share(sc_engine *e, sc_tx_stream *tx, uint64_t left, int force) {
    int even = tx->in_message ? tx->open_even : stays_even(tx, left);
    int64_t r = room(tx, even);
    if (r >= 0 && left <= (uint64_t)r) {
        if (tx->open_even && !even) end_even(e, tx);
        return (int64_t)left;
    }
    r = room(tx, tx->open_even);
    int fits = r >= 0 && left <= (uint64_t)r;
    if (fits && force) return (int64_t)left - 1;
    if (fits) r = (int64_t)left - SLIVER;
    return r < SLIVER && (r < 0 || tx->open_pieces) ? -1 : r;
}

static void add_piece(sc_engine *e, sc_tx_stream *tx, const uint8_t *p, uint64_t take, int whole) {
    if (take) memcpy(tx->open + SC_DATA_HEADER + tx->open_len, p, take);
    tx->open_len += (uint32_t)take;
    if (!tx->open_pieces++) tx->open_first = (uint32_t)take;
    if (whole) tx->open_each = (uint32_t)take;
    if (!tx->open_even) tx->open_offsets[tx->open_pieces] = (int32_t)tx->open_len;
    packed(e, tx, take + (tx->open_even ? 0 : 4));
}

/* Packs p[*done..len); SC_SENT when the message is complete, SC_AGAIN if there is no room. `force` ignores credit
 * (messages that a view change resends were within credit before). */
int sc_tx_pack(sc_engine *e, sc_tx_stream *tx, const uint8_t *p, uint64_t len, uint64_t *done, int64_t wall,
               int force) {
    /* A message that could fill the ring is not kept for a view change: its sender waits for the order. Resent messages
     * are always kept, for the next view change too, however small the window is now. */
    int keep = force || sc_tx_keeps(tx, len);
    for (;;) {
        if (!tx->open && !open_packet(e, tx, wall, force)) return SC_AGAIN;
        int64_t take = share(e, tx, len - *done, force);
        if (take < 0) {
            close_packet(e, tx, 1);
            continue;
        }
        add_piece(e, tx, p + *done, (uint64_t)take, (uint64_t)take == len);
        if (!tx->in_message) {
            tx->in_message = 1;
            tx->message_start = keep ? tx->next : 0;
            if (!keep) tx->big_start = tx->next;
        }
        *done += (uint64_t)take;
        if (*done == len) {
            tx->in_message = 0;
            tx->open_messages++;
            e->counters->messages_sent++;
            return SC_SENT;
        }
        tx->open_flags |= SC_FLAG_CONT_OUT;
        close_packet(e, tx, 1);
    }
}

/* Packs messages as long as they keep the open packet even and there is room. Returns how many. */
static uint64_t pack_even(sc_engine *e, sc_tx_stream *tx, const uint8_t *data, const uint64_t *offsets, uint64_t n) {
    uint64_t each = offsets[1] - offsets[0], k = 0;
    int64_t most = room(tx, 1);
    if (!stays_even(tx, each) || each > e->config.message_bytes_max || most < 0) return 0;
    if (n > (uint64_t)most / each) n = (uint64_t)most / each;
    while (k < n && offsets[k + 1] - offsets[k] == each) k++;
    if (!k) return 0;
    memcpy(tx->open + SC_DATA_HEADER + tx->open_len, data + offsets[0], k * each);
    if (!tx->open_pieces) tx->open_first = (uint32_t)each;
    tx->open_each = (uint32_t)each;
    tx->open_len += (uint32_t)(k * each);
    packed(e, tx, k * each);
    return k;
}

/* Number of messages before the first one that is larger than `most`; n: none is. */
static uint64_t count_allowed(const uint64_t *offsets, uint64_t n, uint64_t most) {
    uint64_t k = 0;
    while (k < n && offsets[k + 1] - offsets[k] <= most) k++;
    return k;
}

/* Packs the messages that fit entirely into the open packet, which is not even. Returns how many. */
static uint64_t pack_uneven(sc_engine *e, sc_tx_stream *tx, const uint8_t *data, const uint64_t *offsets, uint64_t n) {
    int64_t most = room(tx, 0);
    uint64_t base = offsets[0], k = 0;
    if (most < 0) return 0;
    if (n > UINT16_MAX - tx->open_pieces) n = UINT16_MAX - tx->open_pieces;
    /* The size of the first k messages grows with k: the most that fit. */
    for (uint64_t low = 1, high = n; low <= high;) {
        uint64_t middle = low + (high - low) / 2;
        if (offsets[middle] - base + 4 * (middle - 1) > (uint64_t)most) {
            high = middle - 1;
        } else {
            k = middle;
            low = middle + 1;
        }
    }
    if (e->config.message_bytes_max < (uint64_t)most) k = count_allowed(offsets, k, e->config.message_bytes_max);
    if (!k) return 0;
    uint64_t end = offsets[k];
    int32_t *out = tx->open_offsets + tx->open_pieces;
    for (uint64_t i = 1; i <= k; i++) out[i] = (int32_t)(tx->open_len + (offsets[i] - base));
    if (end > base) memcpy(tx->open + SC_DATA_HEADER + tx->open_len, data + base, end - base);
    tx->open_len += (uint32_t)(end - base);
    packed(e, tx, end - base + 4 * k);
    return k;
}

/* Packs messages of [first, n) that fit entirely into the open packet, with a single copy. Returns how many; sc_tx_pack
 * handles the next one. */
uint64_t sc_tx_pack_whole(sc_engine *e, sc_tx_stream *tx, const uint8_t *data, const uint64_t *offsets, uint64_t first,
                          uint64_t n) {
    if (first == n || !tx->open || tx->in_message || !sc_tx_keeps(tx, tx->packet_bytes)) return 0;
    uint64_t k = tx->open_even ? pack_even(e, tx, data, offsets + first, n - first)
                               : pack_uneven(e, tx, data, offsets + first, n - first);
    tx->open_pieces += (uint32_t)k;
    tx->open_messages += (uint32_t)k;
    e->counters->messages_sent += k;
    return k;
}

/* Adds a complete packet, which lies in a slab, to the stream: a forward in place (SEQ-17), or a record. The slab
 * reference moves. The caller has checked credit. */
void sc_tx_insert(sc_engine *e, sc_tx_stream *tx, const sc_rx_packet *from, uint64_t sealed, uint32_t messages,
                  uint64_t own) {
    sc_tx_packet *packet = sc_tx_at(tx, tx->next);
    memset(packet, 0, sizeof *packet);
    packet->p = from->p;
    packet->len = from->len;
    packet->slab = from->slab;
    packet->charge = sc_charge(from->len, from->len == tx->packet_bytes);
    packet->charged = tx->charged += packet->charge;
    packet->own_charged = tx->own_charged;
    tx->slabs++;
    packet->ring_end = tx->head;
    packet->messages = messages;
    packet->message_start = tx->next + 1;
    packet->own = own;
    packet->sealed = sealed;
    packed(e, tx, from->len);
    tx->next++;
}

int sc_tx_may_insert(const sc_engine *e, const sc_tx_stream *tx, uint32_t len, uint64_t beyond) {
    if (!sc_tx_allows(e, tx, sc_charge(len, len == tx->packet_bytes), beyond)) return 0;
    return tx->next - tx->first < tx->places; /* the spare ones are for these */
}

/* The packet that was added last, and was never transmitted, has grown. */
void sc_tx_extend(sc_engine *e, sc_tx_stream *tx, uint32_t bytes) {
    sc_tx_packet *packet = sc_tx_at(tx, tx->next - 1);
    packet->len += bytes;
    packed(e, tx, bytes);
    uint32_t more = sc_charge(packet->len, 0) - packet->charge;
    packet->charge += more;
    packet->charged = tx->charged += more;
}

void sc_tx_purge(sc_tx_stream *tx, uint64_t upto) {
    if (upto >= tx->next) upto = tx->next - 1;
    if (tx->first > upto) return;
    for (uint64_t seqno = tx->first; tx->slabs && seqno <= upto; seqno++) {
        sc_tx_packet *packet = sc_tx_at(tx, seqno);
        if (!packet->slab) continue;
        sc_slab_unref(packet->slab);
        packet->slab = NULL;
        tx->slabs--;
    }
    tx->tail = sc_tx_at(tx, upto)->ring_end;
    tx->first = upto + 1;
}

/* All receivers have consumed everything up to `consumed`. */
void sc_tx_credit(sc_tx_stream *tx, uint64_t consumed) {
    if (consumed <= tx->consumed || !sc_tx_has(tx, consumed)) return;
    tx->consumed = consumed;
    tx->charged_consumed = sc_tx_at(tx, consumed)->charged;
    tx->own_consumed = sc_tx_at(tx, consumed)->own_charged;
}

/* If nothing follows, the stream's memory is freed when everything is acknowledged. */
void sc_tx_release(sc_engine *e, sc_tx_stream *tx) {
    if (tx->ended && tx->packets && !tx->open && tx->first == tx->next) sc_tx_free(e, tx);
}

int64_t sc_tx_spread(const sc_engine *e, int64_t delay) {
    return e->view.n - 1 > QUICK_RECEIVERS ? delay * (e->view.n - 1) / QUICK_RECEIVERS : delay;
}

/* If many receive the group stream, acks take longer, and probes wait longer. */
void sc_tx_probe_restart(sc_engine *e, sc_tx_stream *tx, int outstanding, int64_t now) {
    int64_t wait = e->config.probe_ns_min;
    tx->probe_latest = now + wait;
    if (tx == &e->group) {
        wait = sc_tx_spread(e, wait);
        tx->probe_latest = now + wait + (e->view.n - 1) * e->config.ack_delay_ns;
    }
    tx->probe_wait = wait;
    tx->probe_due = outstanding && sc_tx_probes(&e->config, tx) ? now + wait : SC_NEVER;
}

/* Packets were sent. They tell as much as a probe, as long as acks may still be on their way. */
void sc_tx_probe_later(sc_engine *e, sc_tx_stream *tx, int64_t now) {
    if (tx->probe_due == SC_NEVER) {
        sc_tx_probe_restart(e, tx, 1, now);
    } else if (tx->probe_due < tx->probe_latest) {
        int64_t due = now + tx->probe_wait;
        tx->probe_due = due < tx->probe_latest ? due : tx->probe_latest;
    }
}

uint64_t sc_engine_unsent(const sc_engine *e) {
    return e->in_view ? e->packing.unsent - (e->cut.gate_closed ? 0 : e->order.held_bytes) : 0;
}

uint64_t sc_engine_window(const sc_engine *e) {
    if (!e->in_view || !e->order.ops->forwarding) return e->view.window_bytes;
    if (e->order.forward_to < 0) return 0;
    return e->view.forward_window_bytes < e->view.window_bytes ? e->view.forward_window_bytes : e->view.window_bytes;
}

uint32_t sc_engine_packet_bytes(const sc_engine *e) {
    return e->view.packet_bytes ? e->view.packet_bytes + e->seal_room : 0;
}

void sc_tx_retired_free(sc_engine *e) {
    while (e->packing.retired) {
        sc_retired *r = e->packing.retired;
        e->packing.retired = r->next;
        free(r->memory);
    }
}
