/* The engine's frame: creation, the dispatch of datagrams, time, events, and what the application sends. */
#include "engine/engine.h"

#include "engine/internal.h"

sc_engine *sc_engine_new(const sc_config *config) {
    if (!config->member || config->ring_packets < 8 || (config->ring_packets & (config->ring_packets - 1))) return NULL;
    sc_engine *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->config = *config;
    e->random = config->seed * 0x9E3779B97F4A7C15u + config->member;
    e->out_last = &e->out_first;
    e->event_last = &e->event_first;
    e->blocked_last = &e->blocked_first;
    e->heartbeat_due = e->ask_due = SC_NEVER;
    e->again_tokens = INT64_MAX / 4;
    e->order.own = &e->group;
    e->order.forward_to = -1;
    sc_tx_init(&e->group, SC_STREAM_GROUP, config->ring_packets);
    sc_tx_init(&e->forward, SC_STREAM_FORWARD, config->ring_packets);
    e->pool = sc_slab_pool_new(config->slabs_max);
    e->own_ends = calloc(2 * (size_t)config->ring_packets, sizeof *e->own_ends);
    if (!e->pool || !e->own_ends) {
        if (e->pool) sc_slab_pool_free(e->pool);
        free(e->own_ends);
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
    sc_deliver_free(e);
    sc_tx_spent_free(e);
    sc_engine_blocked_end(e);
    for (sc_out *o = e->out_first, *next; o; o = next) {
        next = o->next;
        free(o);
    }
    for (sc_event_node *node = e->event_first, *next; node; node = next) {
        next = node->next;
        free(node->event.payload);
        free(node);
    }
    sc_slab_pool_free(e->pool);
    free(e->own_ends);
    free(e);
}

sc_slab_pool *sc_engine_pool(sc_engine *e) { return e->pool; }
const sc_counters *sc_engine_counters(const sc_engine *e) { return &e->counters; }

size_t sc_engine_counter_values(const sc_engine *e, const char **names, uint64_t *values, size_t n) {
    sc_counters counters = e->counters;
    counters.slabs_in_use = sc_slab_pool_in_use(e->pool);
    counters.slabs_exhausted = sc_slab_pool_exhausted(e->pool);
    counters.own_closed_bytes = e->own_closed_bytes;
    counters.window_bytes = e->in_view ? (e->group.window ? e->group.window : e->forward.window) : 0;
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

uint64_t sc_random(sc_engine *e) { /* splitmix64 */
    uint64_t z = e->random += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

sc_peer *sc_find_peer(sc_engine *e, uint64_t id) {
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++)
        if (e->view.ids[r] == id) return e->peers[r];
    return NULL;
}

int sc_engine_stream(const sc_engine *e, uint32_t rank, sc_stream_state *out) {
    if (!e->in_view || rank >= e->view.n) return -1;
    if (rank == e->view.rank) {
        *out = (sc_stream_state){e->group.next - 1, e->group.next - 1, e->group.stable};
    } else {
        const sc_rx_stream *rx = &e->peers[rank]->group;
        *out = (sc_stream_state){rx->queued - 1, rx->highest, rx->stable};
    }
    return 0;
}

/* ---- events ------------------------------------------------------------------------------------------------- */

void sc_push_event(sc_engine *e, int kind, uint64_t sender, uint64_t view_tag, const sc_address *from, const uint8_t *p,
                   size_t len) {
    sc_event_node *node = NULL;
    /* The bound is for frames of others; what the engine itself has to say is little, and is said once. Strangers have no
     * more than half of it. */
    int strange = kind == SC_EVENT_CONTROL && !sc_find_peer(e, sender);
    uint64_t most = e->config.control_bytes_max, cost = len + sizeof *node;
    int fits = e->event_bytes + cost <= most && !(strange && e->stranger_bytes + cost > most / 2);
    if (kind != SC_EVENT_CONTROL || fits) node = calloc(1, sizeof *node);
    if (node && len && !(node->event.payload = malloc(len))) {
        free(node);
        node = NULL;
    }
    if (!node) {
        e->counters.drop_control_full++;
        return;
    }
    node->event.kind = kind;
    node->event.sender = sender;
    node->event.view_tag = view_tag;
    if (from) node->event.from = *from;
    if (len) memcpy(node->event.payload, p, len);
    node->event.len = len;
    *e->event_last = node;
    e->event_last = &node->next;
    node->strange = strange;
    e->event_bytes += cost;
    if (strange) e->stranger_bytes += cost;
}

int sc_engine_event(sc_engine *e, sc_event *out) {
    sc_event_node *node = e->event_first;
    if (!node) return 0;
    *out = node->event;
    e->event_first = node->next;
    if (!e->event_first) e->event_last = &e->event_first;
    e->event_bytes -= node->event.len + sizeof *node;
    if (node->strange) e->stranger_bytes -= node->event.len + sizeof *node;
    free(node);
    return 1;
}

int sc_engine_has_event(const sc_engine *e) { return e->event_first != NULL; }

int sc_engine_control_send(sc_engine *e, const sc_address *to, const uint8_t *p, size_t len) {
    if (len > SC_PACKET_MAX - SC_COMMON_HEADER) return -1;
    int lane = to && to->len ? SC_LANE_UNICAST : SC_LANE_CONTROL;
    uint8_t *out = sc_out_new(e, lane, to, SC_TYPE_CONTROL, SC_COMMON_HEADER + len);
    if (!out) return -1;
    if (len) memcpy(out + SC_COMMON_HEADER, p, len);
    return 0;
}

/* ---- datagrams in ------------------------------------------------------------------------------------------- */

static void count_drop(sc_engine *e, sc_wire_result result) {
    switch (result) {
    case SC_WIRE_SHORT: e->counters.drop_short++; break;
    case SC_WIRE_MAGIC_BAD: e->counters.drop_magic++; break;
    case SC_WIRE_VERSION_BAD: e->counters.drop_version++; break;
    case SC_WIRE_GROUP_BAD: e->counters.drop_group++; break;
    case SC_WIRE_KEY_BAD: e->counters.drop_key++; break;
    case SC_WIRE_CRC_BAD: e->counters.drop_crc++; break;
    default: e->counters.drop_field++; break;
    }
}

/* Frames of the control plane cost Python's time: each source has a share of it, which its frames must keep to before
 * anybody reads them. Bytes a second, and at once. */
#define FRAME_COST 512
#define MEMBER_RATE 4000000
#define SOURCE_RATE 256000
#define STRANGERS_RATE 1000000
#define SECOND_NS 1000000000

static int spend(sc_budget *budget, int64_t cost, int64_t rate, int64_t most, int64_t now) {
    int64_t elapsed = now - budget->refilled;
    if (!budget->refilled || elapsed > 2 * (int64_t)SECOND_NS) elapsed = 2 * (int64_t)SECOND_NS;
    if (elapsed > 0) {
        budget->left += (int64_t)((double)elapsed * (double)rate / SECOND_NS);
        budget->refilled = now > 0 ? now : 1;
    }
    if (budget->left > most) budget->left = most;
    if (budget->left < cost) return 0;
    budget->left -= cost;
    return 1;
}

static sc_source *source_of(sc_engine *e, const sc_address *from) {
    uint32_t i = 0;
    while (i < SC_SOURCES - 1 && !sc_same_address(&e->sources[i].address, from)) i++;
    sc_source found = e->sources[i];
    if (!sc_same_address(&found.address, from)) found = (sc_source){.address = *from};
    memmove(e->sources + 1, e->sources, i * sizeof found); /* the last used first */
    e->sources[0] = found;
    return &e->sources[0];
}

/* May a frame, or a ping, of `len` bytes be heard? */
static int within_rate(sc_engine *e, sc_peer *peer, const sc_address *from, size_t len, int64_t now) {
    int64_t cost = (int64_t)len + FRAME_COST;
    if (peer) return spend(&peer->control, cost, MEMBER_RATE, MEMBER_RATE, now);
    return spend(&source_of(e, from)->budget, cost, SOURCE_RATE, 2 * SOURCE_RATE, now) &&
           spend(&e->strangers, cost, STRANGERS_RATE, 2 * STRANGERS_RATE, now);
}

/* Is this the address of a member? */
static int is_members(const sc_engine *e, const sc_address *from) {
    for (uint32_t r = 0; r < e->view.n; r++)
        if (sc_same_address(from, &e->peers[r]->address)) return 1;
    return 0;
}

static int receive_one(sc_engine *e, sc_slab *slab, uint8_t *p, size_t len, const sc_address *from, int lane,
                       int64_t now) {
    e->counters.datagrams_received++;
    e->counters.bytes_received += len;
    sc_wire_result result = sc_wire_check(p, len, e->config.group);
    if (result != SC_WIRE_OK) {
        count_drop(e, result);
        return 0;
    }
    uint64_t sender = sc_get_sender(p), tag = sc_get_view_tag(p);
    if (sender == e->config.member) {
        e->counters.drop_own++;
        return 0;
    }
    sc_peer *peer = sc_find_peer(e, sender);
    uint8_t type = sc_get_type(p);
    /* A member speaks from its own address. Only a DATA packet may come from another member, as a holder that serves one
     * which is gone: that is no sign of life. */
    int direct = !peer || sc_same_address(from, &peer->address);
    if (!direct && (type != SC_TYPE_DATA || !is_members(e, from))) {
        e->counters.drop_address++;
        return 0;
    }
    if ((type == SC_TYPE_CONTROL || (type == SC_TYPE_PING && !peer)) && !within_rate(e, peer, from, len, now)) {
        e->counters.drop_rate++;
        return 0;
    }
    /* Streams of a pair live as long as both are members, through many views: they, and what is said of them, carry the
     * tag of the view since which that is so. All else belongs to one view. */
    int of_pair = type == SC_TYPE_UNICAST || type == SC_TYPE_STATE ||
                  (type == SC_TYPE_ACK && sc_of_pair(sc_get_ack_stream(p))) ||
                  (type == SC_TYPE_PROBE && sc_of_pair(sc_get_probe_stream(p))) ||
                  (type == SC_TYPE_NAK && sc_of_pair(sc_get_nak_stream(p)));
    int current = peer && tag == (of_pair ? peer->pair : e->view.tag);
    /* A member that has yet to install this view, because its Python is busy, is alive for so long as the flush has time,
     * and multicasts no heartbeat that could be expected of it. */
    int late = (tag == e->view_before || !tag) && now - e->installed < e->config.install_ns;
    int alive = peer && direct && (current || type == SC_TYPE_CONTROL || late);
    if (alive) {
        peer->heard = now;
        if (lane != SC_LANE_UNICAST || (late && !current)) sc_detect_overheard(e, peer, now);
        if (peer->doubted) sc_detect_undoubt(e, peer);
    }
    if (type == SC_TYPE_CONTROL) { /* anyone may speak to the control plane; it decides */
        sc_push_event(e, SC_EVENT_CONTROL, sender, tag, from, p + SC_COMMON_HEADER, len - SC_COMMON_HEADER);
        return 1;
    }
    if (type == SC_TYPE_PING) {
        sc_on_ping(e, tag == e->view.tag ? peer : NULL, p, from);
        return 1;
    }
    if (type == SC_TYPE_HEARTBEAT && !current) sc_detect_stranger(e, tag, from, now);
    if (!peer) {
        e->counters.drop_stranger++;
        return 0;
    }
    if (type == SC_TYPE_PONG && alive) {
        sc_on_pong(e, peer, p, now);
        return 1;
    }
    if (!current) {
        e->counters.drop_view++;
        return 0;
    }
    switch (type) {
    case SC_TYPE_ACK:
        if (!peer->lost) sc_on_ack(e, peer, p, now);
        return 1;
    case SC_TYPE_NAK:
        if (!peer->lost) sc_on_nak(e, peer, p, now);
        return 1;
    case SC_TYPE_PROBE: sc_on_probe(e, peer, p, now); return 1;
    case SC_TYPE_HEARTBEAT: sc_on_heartbeat(e, peer, p, now); return 1;
    case SC_TYPE_ASK: sc_on_ask(e, peer, p); return 1;
    case SC_TYPE_TAKEN: sc_on_taken(e, peer, p); return 1;
    default: return sc_rx_data(e, peer, p, len, slab, direct, now);
    }
}

int sc_engine_receive(sc_engine *e, sc_slab *slab, uint8_t *p, size_t len, size_t segment, const sc_address *from,
                      int lane, int64_t now) {
    e->now = now;
    if (slab && len < SC_SLAB_BYTES / 4) slab = NULL; /* a copy costs less than the rest of the slab */
    if (!segment) segment = len;
    int accepted = 0;
    for (size_t at = 0; at < len; at += segment) {
        size_t n = len - at < segment ? len - at : segment;
        accepted += receive_one(e, slab, p + at, n, from, lane, now);
    }
    sc_order_settle(e, now);
    sc_view_cut_check(e);
    if (e->sends_ended) sc_drained_check(e);
    return accepted;
}

/* ---- time --------------------------------------------------------------------------------------------------- */

void sc_engine_tick(sc_engine *e, int64_t now) {
    e->now = now;
    if (e->in_view) {
        sc_rx_naks(e, now);
        sc_flow_tick(e, now);
        sc_detect_tick(e, now);
        sc_taken_tick(e, now);
    }
}

int64_t sc_engine_deadline(const sc_engine *e) {
    if (!e->in_view) return SC_NEVER;
    int64_t due = sc_rx_deadline(e), flow = sc_flow_deadline(e), detect = sc_detect_deadline(e);
    if (flow < due) due = flow;
    if (e->ask_due < due) due = e->ask_due;
    return detect < due ? detect : due;
}

/* ---- what the application sends ----------------------------------------------------------------------------- */

/* A message to itself goes straight into the delivery queue, as one or more packets of a stream of its own. What the
 * application takes of it gives credit, as with any stream. */
static int send_to_self(sc_engine *e, const uint8_t *p, uint64_t len, uint64_t *progress, int64_t wall) {
    uint8_t packet[SC_SLAB_BYTES];
    const uint64_t most = SC_PACKET_MAX - SC_DATA_HEADER - 16;
    uint64_t window = e->view.unicast_window_bytes, done = *progress;
    if (!e->config.receive) return SC_SENT;
    if (window > e->config.unicast_bytes) window = e->config.unicast_bytes;
    do {
        uint64_t take = len - done < most ? len - done : most;
        if (e->self_bytes && e->self_bytes + take > window) {
            e->counters.credit_stalls++;
            return SC_AGAIN;
        }
        size_t at = sc_wire_offsets((uint32_t)take);
        memset(packet, 0, SC_DATA_HEADER);
        sc_put_type(packet, SC_TYPE_UNICAST);
        sc_put_flags(packet, (uint8_t)((done ? SC_FLAG_CONT_IN : 0) | (done + take < len ? SC_FLAG_CONT_OUT : 0)));
        sc_put_seqno(packet, e->self_seqno + (done + take == len));
        sc_put_sent_ns(packet, (uint64_t)wall);
        sc_put_data_len(packet, (uint32_t)take);
        sc_put_pieces(packet, 1);
        if (take) memcpy(packet + SC_DATA_HEADER, p + done, take);
        memset(packet + SC_DATA_HEADER + take, 0, at - SC_DATA_HEADER - take);
        sc_put_offset(packet + at, 0, 0);
        sc_put_offset(packet + at, 1, (uint32_t)take);
        sc_slab *slab;
        uint8_t *copy = sc_slab_copy_own(e->pool, packet, at + 8, &slab);
        if (!copy) return SC_AGAIN;
        e->self_bytes += at + 8;
        uint64_t seqno = sc_get_seqno(packet);
        int queued = sc_queue_packet(e, &(sc_delivery){.p = copy,
                                                       .len = (uint32_t)at + 8,
                                                       .slab = slab,
                                                       .stream = SC_STREAM_UNICAST,
                                                       .carrier = e->view.rank,
                                                       .rank = e->view.rank,
                                                       .sender = e->config.member,
                                                       .seqno = seqno,
                                                       .number = seqno});
        if (!queued) e->self_bytes -= at + 8;
        sc_slab_unref(slab);
        if (!queued) return SC_AGAIN;
        *progress = done += take;
    } while (done < len);
    e->self_seqno++;
    e->counters.messages_sent++;
    return SC_SENT;
}

int sc_send_group(sc_engine *e, const uint8_t *p, uint64_t len, sc_send_state *state, int64_t wall) {
    if (state->epoch != e->epoch) { /* a view change in the middle: receivers dropped what they had of it */
        if (state->wait_seqno && e->big_returned) return SC_SENT;
        state->done = state->wait_seqno = 0;
        state->epoch = e->epoch;
    }
    if (e->gate_closed) return SC_AGAIN;
    sc_tx_stream *tx = e->order.own;
    int big = e->order.waits && !sc_tx_keeps(tx, len);
    if (state->wait_seqno) { /* a large forward is packed: done when it came back */
        if (!e->big_returned) return SC_AGAIN;
        e->big_first = e->big_last = 0;
        return SC_SENT;
    }
    if (e->paused) return SC_AGAIN;
    if (!state->done && !tx->in_message) e->big_first = 0;
    int result = sc_tx_pack(e, tx, p, len, &state->done, wall, 0);
    if (big && !e->big_first && tx->in_message) e->big_first = tx->big_start;
    if (result != SC_SENT || !big) return result;
    e->big_first = tx->big_start;
    e->big_last = state->wait_seqno = tx->next; /* the open packet, in which it ends */
    e->big_returned = 0;
    return SC_AGAIN;
}

int sc_engine_send(sc_engine *e, uint64_t to, const uint8_t *p, uint64_t len, sc_send_state *state, int64_t wall) {
    e->wall = wall;
    if (len > e->config.message_bytes_max) return SC_TOO_LARGE;
    if (!e->takes_sends) return sc_send_late(e, to, state);
    if (to == e->config.member) return send_to_self(e, p, len, &state->done, wall);
    if (to) {
        sc_peer *peer = sc_find_peer(e, to);
        if (!peer) return SC_NO_MEMBER;
        sc_tx_stream *tx = sc_tx_to(e, peer, SC_STREAM_UNICAST);
        if (!tx) return SC_AGAIN;
        if (state->epoch != tx->pair) { /* both were apart in the middle: the stream began anew */
            state->done = 0;
            state->epoch = tx->pair;
        }
        return sc_tx_pack(e, tx, p, len, &state->done, wall, 0);
    }
    /* A large forward that is packed is not queued: whether it was ordered the view will tell. */
    if ((e->gate_closed || e->paused || e->blocked_first) && !state->wait_seqno)
        return sc_blocked_take(e, p, len, state, wall);
    return sc_send_group(e, p, len, state, wall);
}

void sc_engine_send_abort(sc_engine *e, uint64_t to, sc_send_state *state) {
    if (!e->in_view || !state->done) return;
    sc_tx_stream *tx = e->order.own;
    if (to) {
        sc_peer *peer = sc_find_peer(e, to);
        tx = peer && peer->unicast_tx && peer->unicast_tx->pair == state->epoch ? peer->unicast_tx : NULL;
    } else if (state->epoch != e->epoch || state->wait_seqno) {
        return;
    }
    if (tx) tx->in_message = 0; /* the next packet does not go on with it: receivers drop the beginning */
}

uint64_t sc_engine_send_batch(sc_engine *e, const uint8_t *data, const uint64_t *offsets, uint64_t first, uint64_t n,
                              sc_send_state *state, int64_t wall, int *result) {
    *result = SC_SENT;
    while (first < n) {
        *result = sc_engine_send(e, 0, data + offsets[first], offsets[first + 1] - offsets[first], state, wall);
        if (*result != SC_SENT) return first;
        state->done = state->wait_seqno = 0;
        first++;
        if (e->gate_closed || e->paused) continue; /* it was queued */
        /* It was packed: the stream is open for what follows. */
        first += sc_tx_pack_whole(e, e->order.own, data, offsets, first, n);
    }
    return first;
}

uint64_t sc_engine_sendable(const sc_engine *e) { return e->sendable; }
