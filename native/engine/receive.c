/* A datagram's way in: is the datagram for us, may its sender send that kind, and which part handles this kind. */
#include "engine/internal.h"
#include "hash/crc32c.h"
#include "seal/secret.h"

static void count_drop(sc_engine *e, sc_wire_result result) {
    switch (result) {
    case SC_WIRE_SHORT: e->counters->drop_short++; break;
    case SC_WIRE_MAGIC_BAD: e->counters->drop_magic++; break;
    case SC_WIRE_VERSION_BAD:
        if (e->counters->drop_version++ < SC_FOREIGN_SIGNS) sc_push_event(e, SC_EVENT_FOREIGN, 0, 0, NULL, NULL, 0);
        break;
    case SC_WIRE_GROUP_BAD: e->counters->drop_group++; break;
    case SC_WIRE_KEY_BAD:
    case SC_WIRE_SEAL_BAD: e->counters->drop_key++; break;
    case SC_WIRE_VIEW_UNKNOWN: e->counters->drop_view++; break;
    case SC_WIRE_CRC_BAD: e->counters->drop_crc++; break;
    default: e->counters->drop_field++; break;
    }
}

/* Control frames cost Python time, so each source has a byte budget that its frames must fit before Python reads them.
 * Bytes per second, and burst. */
#define FRAME_COST 512
#define MEMBER_RATE 4000000
#define SOURCE_RATE 256000
#define STRANGERS_RATE 1000000
/* With a key: openings in vain per second, and burst, of all strangers, which take a hundredth of a core; and, once
 * these are used up, of each address. A datagram counts once, and once more for each VAIN_BYTES: those take as long as
 * the rest of an opening. */
#define VAIN_RATE 10000
#define VAIN_RATE_OF_ONE 400
#define VAIN_BYTES 1024
/* Only one source in this time gets the place of another odd one, as forging addresses costs nothing. */
#define ODD_NS ((int64_t)10000000000)
#define ODD_AGAIN_NS ((int64_t)1000000000)

static sc_source *place_of_source(sc_engine *e, const sc_address *from) {
    return &e->intake.sources[sc_source_at(from)];
}

static sc_source *source_of(sc_engine *e, const sc_address *from) {
    sc_source *source = place_of_source(e, from);
    if (!sc_same_address(&source->address, from)) *source = (sc_source){.address = *from};
    return source;
}

/* Does the sender's budget allow a frame, or a ping, of `len` bytes? That of a member is for datagrams that show its
 * membership; with the key file alone, anybody can send others in its name. */
static int within_rate(sc_engine *e, sc_peer *peer, const sc_address *from, size_t len, int64_t now) {
    int64_t cost = (int64_t)len + FRAME_COST;
    if (peer) return sc_budget_spend(&peer->budget, cost, MEMBER_RATE, MEMBER_RATE, now);
    return sc_budget_spend(&source_of(e, from)->budget, cost, SOURCE_RATE, 2 * SOURCE_RATE, now) &&
           sc_budget_spend(&e->intake.strangers, cost, STRANGERS_RATE, 2 * STRANGERS_RATE, now);
}

/* ---- data packets -------------------------------------------------------------------------------------------- */

static int drop(uint64_t *counter) {
    ++*counter;
    return 0;
}

static int stream_of(uint8_t type) {
    return type == SC_TYPE_DATA || type == SC_TYPE_RECORD ? SC_STREAM_GROUP
           : type == SC_TYPE_UNICAST                      ? SC_STREAM_UNICAST
           : type == SC_TYPE_FORWARD                      ? SC_STREAM_FORWARD
                                                          : SC_STREAM_STATE;
}

/* After its OK a survivor accepts nothing of this view from outside the survivors except packets that the CUT names. */
static int is_frozen(const sc_engine *e, const sc_peer *peer, int stream, uint64_t seqno) {
    if (stream != SC_STREAM_GROUP) return peer->cut.lost || (stream == SC_STREAM_FORWARD && e->cut.gate_closed);
    return (peer->cut.lost && e->cut.set != SC_CUT_CURRENT) || seqno > peer->group.limit;
}

/* Does the sender occupy more here than one that keeps to its window can? The limit is twice the window, as a view
 * change resends past the window. Dropped packets are requested again; the next packet in sequence always has a
 * place. */
static int beyond_share(const sc_engine *e, const sc_rx_stream *rx, int stream, uint64_t seqno, size_t len) {
    uint64_t share = 2 * (sc_window_of(e, stream) + e->view.packet_bytes);
    if (rx->queue_bytes + len > share && rx->queue_bytes) return 1;
    return rx->ring_bytes + len > share && seqno != rx->next;
}

/* Does the receive ring have a free slot? */
static int has_place(sc_engine *e, sc_rx_stream *rx, uint64_t seqno) {
    if (seqno < rx->next) return drop(&e->counters->packets_duplicate);
    if (seqno >= rx->first + e->config.ring_packets) return drop(&e->counters->drop_window);
    if (!sc_rx_ready(e, rx)) return drop(&e->counters->drop_slabs);
    return sc_rx_at(e, rx, seqno)->p ? drop(&e->counters->packets_duplicate) : 1;
}

/* Passes contiguous packets on: to the order, which puts them in the delivery queue, or to the reader of the stream.
 * The order takes forwards when the engine settles; after CUT nothing of the group is delivered until VIEW. */
static void advance(sc_engine *e, sc_peer *peer, sc_rx_stream *rx, int stream) {
    if (stream == SC_STREAM_UNICAST) {
        sc_queue_unicasts(e, peer);
    } else if (stream == SC_STREAM_STATE) {
        sc_state_advance(e, peer);
    } else if (stream == SC_STREAM_GROUP && !e->cut.set) {
        e->order.ops->advance(e, peer);
        sc_rx_stable(e, rx, rx->stable);
    }
}

/* Handles a valid data packet of `peer` with a matching view tag. Not `direct`: from another member, at our request.
 * Returns 1 if new. */
static int receive_data(sc_engine *e, sc_peer *peer, uint8_t *p, size_t len, sc_slab *slab, int direct, int64_t now) {
    int stream = stream_of(sc_get_type(p));
    sc_rx_stream *rx = sc_rx_of(peer, stream);
    uint64_t seqno = sc_get_seqno(p);
    if (!sc_of_pair((uint64_t)stream) && !e->order.ops->accepts(e, peer, stream, p))
        return drop(&e->counters->drop_field);
    if (is_frozen(e, peer, stream, seqno)) return drop(&e->counters->drop_frozen);
    if (stream == SC_STREAM_GROUP) {
        sc_credit_claim(rx, sc_get_claim(p));
        e->spoke = peer->rank;
    }
    if (direct)
        sc_rx_stable(e, rx, sc_get_stable(p));
    else if (!sc_gaps_asked(rx, seqno))
        return drop(&e->counters->drop_address);
    if (!has_place(e, rx, seqno)) return 0;
    if (beyond_share(e, rx, stream, seqno, len)) return drop(&e->counters->drop_share);
    if (!sc_rx_put(e, rx, seqno, p, len, slab)) {
        sc_detect_starved(e, now);
        return drop(&e->counters->drop_slabs);
    }
    e->counters->packets_received++;
    sc_gaps_came(e, rx, seqno, now);
    uint64_t before = rx->next;
    sc_rx_extend(e, rx);
    advance(e, peer, rx, stream);
    if (rx->next != before) {
        if (rx->n_gaps) sc_gaps_prune(rx);
        sc_ack_progress(e, peer, stream, now);
    } else if (sc_rx_acknowledges(rx) && sc_congestion_tells(e, peer)) {
        sc_ack_soon(e, rx);
    }
    return 1;
}

/* ---- all datagrams ------------------------------------------------------------------------------------------- */

/* Packets do not say so: see SC_FLAG_GROUP. */
static int is_for_group(const uint8_t *p) { return (sc_get_flags(p) & SC_FLAG_GROUP) != 0; }

/* For processes outside the view, in a group with a key: any holder of the key file can say so. */
static int is_from_outside(const sc_engine *e, const uint8_t *p) { return e->seal && !sc_sealed_inside(p); }

/* How a datagram came. */
typedef struct {
    const sc_address *source; /* the address that it came from */
    const sc_address *from; /* that of its sender, if that is a member of a group with a key; else the same */
    sc_opened opened;
    int64_t now;
} arrival;

/* Does the sealer show that it has the secret of our view? Without a key, nobody has to. */
static int shows_membership(const sc_engine *e, const arrival *as) {
    return !e->seal || (e->in_view && as->opened.member == e->view.tag);
}

/* Notes a sign of life of `peer`; 0: this is none. A member that has not installed this view, because its Python is
 * busy, counts as alive until the flush deadline, and is not expected to multicast heartbeats of this view. With a key,
 * only datagrams that show membership of this view count: former members have the secret of the view before. */
static int is_alive(sc_engine *e, sc_peer *peer, const uint8_t *p, int current, const arrival *as) {
    int64_t now = as->now;
    uint64_t tag = sc_get_view_tag(p);
    uint8_t type = sc_get_type(p);
    int recent = now - e->installed < e->config.install_ns, late = recent && (tag == e->view_before || !tag);
    if (!shows_membership(e, as) && (peer->detect.present || !recent)) return 0;
    if (!current && type != SC_TYPE_CONTROL && !late) return 0;
    int of_group = type == SC_TYPE_DATA || type == SC_TYPE_RECORD, to_group = is_for_group(p);
    sc_detect_heard(e, peer, now, to_group || (late && !current));
    if (e->config.unicast || (!to_group && !of_group)) sc_detect_reached(e, peer, now);
    return 1;
}

/* Where a sealed datagram of a member comes from: addresses may be translated on the way, and the seal tells the
 * sender. */
static const sc_address *place_of(sc_engine *e, uint64_t sealer, const sc_address *from) {
    const sc_peer *peer = e->seal ? sc_find_peer(e, sealer) : NULL;
    return peer ? &peer->address : from;
}

/* May its source send this? A member sends from its own address. Only a packet of a group stream may come from another
 * member, a holder that serves packets of a departed sender: that says nothing about the sender's life. */
static int may_send(sc_engine *e, sc_peer *peer, const arrival *as, uint8_t type, size_t len) {
    if (peer && !sc_same_address(as->from, &peer->address) &&
        ((type != SC_TYPE_DATA && type != SC_TYPE_RECORD) || !sc_peer_at(e, as->from)))
        return drop(&e->counters->drop_address);
    sc_peer *shown = shows_membership(e, as) ? peer : NULL;
    int limited = type == SC_TYPE_CONTROL || (!shown && (type == SC_TYPE_PING || type == SC_TYPE_PIECE));
    return limited && !within_rate(e, shown, as->source, len, as->now) ? drop(&e->counters->drop_rate) : 1;
}

/* A datagram of a type that belongs to one order. */
static int hear(sc_engine *e, sc_peer *peer, const uint8_t *p, int64_t now) {
    if (peer->cut.lost || !e->order.ops->hear) return drop(&e->counters->drop_field);
    e->order.ops->hear(e, peer, p, now);
    return 1;
}

/* Dispatches a datagram of a member that belongs to this view or to the pair. */
static int dispatch(sc_engine *e, sc_peer *peer, uint8_t *p, size_t len, sc_slab *slab, int direct, int64_t now) {
    switch (sc_get_type(p)) {
    case SC_TYPE_ACK:
        if (!peer->cut.lost) sc_on_ack(e, peer, p, now);
        return 1;
    case SC_TYPE_NAK:
        if (!peer->cut.lost) sc_on_nak(e, peer, p, now);
        return 1;
    case SC_TYPE_PROBE: sc_on_probe(e, peer, p, now); return 1;
    case SC_TYPE_HEARTBEAT:
        sc_on_heartbeat(e, peer, p, now);
        sc_skip_heard(e, peer, now);
        return 1;
    case SC_TYPE_ASK: sc_on_ask(e, peer, p); return 1;
    case SC_TYPE_TAKEN: sc_on_taken(e, peer, p); return 1;
    case SC_TYPE_SIZE: sc_on_size(e, peer, p); return 1;
    case SC_TYPE_SIZED: sc_on_sized(e, peer, p, now); return 1;
    case SC_TYPE_TOTAL:
    case SC_TYPE_WANT:
    case SC_TYPE_GRANT: return hear(e, peer, p, now);
    default: return receive_data(e, peer, p, len, slab, direct, now);
    }
}

/* Anyone may send control frames; the core decides. A standing one that is the same as the last frame of its sender
 * would wake the control thread of each member of its view for nothing. */
static int receive_control(sc_engine *e, sc_peer *peer, const uint8_t *p, size_t len, const arrival *as, int current) {
    uint64_t standing = 0;
    int outside = is_from_outside(e, p);
    if (current && sc_get_flags(p) & SC_FLAG_STANDING) /* a hash of the frame, and a bit that is always set */
        standing = (uint64_t)1 << 32 | sc_crc32c(0, p + SC_COMMON_HEADER, len - SC_COMMON_HEADER);
    if (standing && peer->standing == standing) return drop(&e->counters->drop_repeated);
    sc_event *event = sc_push_frame(e, !peer || !shows_membership(e, as), p, len, as->from);
    if (event) event->evidence = outside;
    if (peer) peer->standing = event ? standing : 0;
    return 1;
}

/* A valid datagram of another process, from a permitted address. */
static int receive_valid(sc_engine *e, sc_peer *peer, sc_slab *slab, uint8_t *p, size_t len, const arrival *as) {
    const sc_address *from = as->from;
    int64_t now = as->now;
    uint64_t tag = sc_get_view_tag(p);
    uint8_t type = sc_get_type(p);
    int direct = !peer || sc_same_address(from, &peer->address);
    int current = peer && tag == (sc_is_of_pair(p) ? peer->pair : e->view.tag);
    int alive = peer && direct && is_alive(e, peer, p, current, as);
    if (type == SC_TYPE_CONTROL) return receive_control(e, peer, p, len, as, current);
    if (type == SC_TYPE_PING) {
        sc_on_ping(e, tag == e->view.tag ? peer : NULL, p, from);
        return 1;
    }
    if (type == SC_TYPE_HEARTBEAT && !current) sc_detect_stranger(e, tag, from, now);
    if (!peer) return drop(&e->counters->drop_stranger);
    if (type == SC_TYPE_PONG && alive) {
        sc_on_pong(e, peer, p, now);
        return 1;
    }
    return current ? dispatch(e, peer, p, len, slab, direct, now) : drop(&e->counters->drop_view);
}

/* The sealer of a datagram that begins like one: its sender, or a holder in this view that repairs a packet of its
 * group stream. 0: nobody who may. */
static uint64_t sealer_of(const sc_engine *e, const uint8_t *p) {
    unsigned by = sc_sealed_by(p);
    if (!by) return sc_get_sender(p);
    int repair = stream_of(sc_get_type(p)) == SC_STREAM_GROUP && e->in_view && sc_get_view_tag(p) == e->view.tag;
    return repair && by <= e->view.n ? e->view.ids[by - 1] : 0;
}

static sc_odd_source *odd_source(sc_engine *e, const sc_address *from) {
    for (uint32_t i = 0; i < e->intake.n_odd; i++)
        if (sc_same_address(&e->intake.odd[i].address, from)) return &e->intake.odd[i];
    return NULL;
}

/* A place for a source that is odd for the first time: the oldest one's, if no other is free. NULL: not yet. */
static sc_odd_source *odd_place(sc_engine *e, const sc_address *from) {
    sc_intake *in = &e->intake;
    if (in->n_odd < SC_ODD_SOURCES)
        in->n_odd++;
    else if (e->now - in->odd_since < ODD_NS)
        return NULL;
    in->odd_since = e->now;
    sc_odd_source *odd = &in->odd[in->odd_next++ % SC_ODD_SOURCES];
    *odd = (sc_odd_source){.address = *from};
    return odd;
}

/* Few sources are reported at a time, and later ones now and then; one that goes on, again and again. */
static void note_odd(sc_engine *e, const sc_address *from, int evidence) {
    sc_odd_source *odd = odd_source(e, from);
    if (!odd && !(odd = odd_place(e, from))) return;
    odd->signs += odd->signs <= SC_KEY_SIGNS;
    int again = odd->signs > SC_KEY_SIGNS && e->now - odd->told >= ODD_AGAIN_NS;
    if (odd->signs != 1 && odd->signs != SC_KEY_SIGNS && !again) return;
    odd->told = e->now;
    sc_event *event = sc_push_event(e, SC_EVENT_KEY, 0, 0, from, NULL, 0);
    if (event) event->evidence = evidence;
    if (event) event->rate = odd->signs;
}

/* Is its kind permitted outside a view? */
static int fits_outside(const uint8_t *p, const sc_peer *peer) {
    switch (sc_get_type(p)) {
    case SC_TYPE_CONTROL:
    case SC_TYPE_PIECE:
    case SC_TYPE_PING: return 1;
    case SC_TYPE_PONG: return !peer || !peer->detect.present;
    default: return 0;
    }
}

/* A datagram from this source is sealed as ours are, so the odd one before was damaged, or its sender tries the keys of
 * its file in turn. With a key, that of a view says nothing about the files of its members. */
static void note_sound(sc_engine *e, const uint8_t *p, const sc_address *from) {
    int tells = !sc_has_seqno(p) && (!e->seal || !sc_sealed_inside(p));
    sc_odd_source *odd = e->intake.n_odd && tells ? odd_source(e, from) : NULL;
    if (odd) odd->signs = 0;
}

/* Why a datagram is dropped; returns 0. */
static int refuse(sc_engine *e, const uint8_t *p, sc_wire_result result, const sc_address *from) {
    count_drop(e, result);
    if (result == SC_WIRE_SEAL_BAD && !sc_sealed_for_one(p) && !sc_sealed_inside(p)) note_odd(e, from, SC_KEY_OTHER);
    if (result == SC_WIRE_KEY_BAD) note_odd(e, from, e->seal ? SC_KEY_LACKS : SC_KEY_HAS);
    /* That the members of another view are heard can be seen by the header alone. */
    if (result == SC_WIRE_VIEW_UNKNOWN && sc_get_type(p) == SC_TYPE_HEARTBEAT)
        sc_detect_stranger(e, sc_get_view_tag(p), from, e->now);
    return 0;
}

/* Is a datagram that the secret of the file sealed worth opening? A process without the key can send any number of
 * them, and repeat recorded ones. Those of an address are dropped unopened only once they have cost much time, as a
 * stranger can send in the name of a joiner; those of members' addresses are always opened. */
static int is_worth_opening(sc_engine *e, const uint8_t *p, const sc_address *from) {
    if (!fits_outside(p, sc_find_peer(e, sc_get_sender(p)))) return drop(&e->counters->drop_field);
    sc_source *source = place_of_source(e, from);
    if (!sc_same_address(&source->address, from) || sc_peer_at(e, from)) return 1;
    sc_budget_refill(&e->intake.vain, VAIN_RATE, VAIN_RATE, e->now);
    sc_budget_refill(&source->vain, VAIN_RATE_OF_ONE, VAIN_RATE_OF_ONE, e->now);
    return e->intake.vain.left > 0 || source->vain.left > 0 ? 1 : drop(&e->counters->drop_rate);
}

/* A cost above the rest of a budget empties the budget. */
static void spend_in_vain(sc_budget *vain, int64_t cost, int64_t rate, int64_t now) {
    sc_budget_refill(vain, rate, rate, now);
    vain->left = vain->left > cost ? vain->left - cost : 0;
}

static void opened_in_vain(sc_engine *e, const uint8_t *p, size_t len, const sc_address *from) {
    int64_t cost = 1 + (int64_t)(len / VAIN_BYTES);
    if (sc_sealed_inside(p)) return;
    spend_in_vain(&e->intake.vain, cost, VAIN_RATE, e->now);
    spend_in_vain(&source_of(e, from)->vain, cost, VAIN_RATE_OF_ONE, e->now);
}

/* Could this be the datagram of another process with our key? Our own, looped back, are not opened. */
static int may_open(sc_engine *e, const uint8_t *p, const sc_address *from, uint64_t *by) {
    if (sc_get_sender(p) == e->config.member) return drop(&e->counters->drop_own);
    if (!sc_get_key_id(p)) return 1; /* the refusal says so */
    if (!(*by = sealer_of(e, p))) return drop(&e->counters->drop_view);
    return sc_sealed_inside(p) || is_worth_opening(e, p, from);
}

/* Is the datagram whole, valid, and from its stated sender? Sealed datagrams of members count once. */
static int is_sound(sc_engine *e, uint8_t *p, size_t *len, arrival *as, uint64_t *by) {
    const sc_address *from = as->source;
    sc_wire_result result = sc_wire_begins(p, *len, e->config.group);
    if (result != SC_WIRE_OK) return refuse(e, p, result, from);
    if (e->seal && !may_open(e, p, from, by)) return 0;
    result = sc_seal_check(e->seal, p, len, *by, &as->opened);
    if (result == SC_WIRE_SEAL_BAD) opened_in_vain(e, p, *len, from);
    if (result == SC_WIRE_OK) result = sc_wire_check(p, *len);
    if (result != SC_WIRE_OK) return refuse(e, p, result, from);
    sc_peer *peer = e->seal && !sc_has_seqno(p) ? sc_find_peer(e, *by) : NULL;
    if (e->seal && sc_seal_differs(e->seal, p)) e->counters->opened_other++;
    if (!peer) return 1;
    sc_numbers *numbers = sc_numbers_of(e->seal, peer->numbers, as->opened.latest);
    if (sc_numbers_take(numbers, as->opened.number) && sc_ahead_take(&peer->ahead, &as->opened)) return 1;
    opened_in_vain(e, p, *len, from);
    return drop(&e->counters->drop_replay);
}

/* A datagram that came in pieces, `piece` being the last: from the sender of the pieces, unless it is a packet
 * that the sender repeats for another member. Those outside the view, or with the secret of another view, may say no
 * more in pieces than in one datagram. */
static int receive_whole(sc_engine *e, const uint8_t *piece, uint8_t *p, uint32_t len, const arrival *as) {
    int whole = sc_wire_begins(p, len, e->config.group) == SC_WIRE_OK && sc_wire_check(p, len) == SC_WIRE_OK;
    uint8_t type = sc_get_type(p);
    if (!whole || type == SC_TYPE_PIECE || type == SC_TYPE_SIZE) return drop(&e->counters->drop_field);
    int own = sc_get_sender(p) == sc_get_sender(piece), repeat = stream_of(type) == SC_STREAM_GROUP && sc_has_seqno(p);
    if (!own && !repeat) return drop(&e->counters->drop_field);
    sc_peer *peer = sc_find_peer(e, sc_get_sender(p));
    if (sc_get_sender(p) == e->config.member) return drop(&e->counters->drop_own);
    sc_put_key_id(p, sc_get_key_id(piece));
    if (!is_for_group(piece) && !sc_has_seqno(p)) sc_put_flags(p, sc_get_flags(p) & (uint8_t)~SC_FLAG_GROUP);
    if (is_from_outside(e, p) && type != SC_TYPE_CONTROL) return drop(&e->counters->drop_field);
    sc_wire_result fits = sc_seal_fits(e->seal, as->opened.view, p);
    if (fits != SC_WIRE_OK) {
        count_drop(e, fits);
        return 0;
    }
    return may_send(e, peer, as, type, len) && receive_valid(e, peer, NULL, p, len, as);
}

static int receive_piece(sc_engine *e, sc_peer *peer, const uint8_t *p, size_t len, const arrival *as) {
    uint32_t total = 0;
    uint8_t *whole = sc_pieces_take(e, peer, p, len, &as->opened, &total);
    int accepted = !whole || receive_whole(e, p, whole, total, as);
    free(whole);
    return accepted;
}

static int receive_one(sc_engine *e, sc_slab *slab, uint8_t *p, size_t len, const sc_address *from, int64_t now) {
    e->counters->datagrams_received++;
    e->counters->bytes_received += len;
    uint64_t sealer = 0;
    arrival as = {.source = from, .now = now};
    if (!is_sound(e, p, &len, &as, &sealer)) return 0;
    note_sound(e, p, from);
    as.from = place_of(e, sealer, from);
    uint64_t sender = sc_get_sender(p);
    if (sender == e->config.member) return drop(&e->counters->drop_own);
    sc_peer *peer = sc_find_peer(e, sender);
    if (!may_send(e, peer, &as, sc_get_type(p), len)) return 0;
    if (sc_get_type(p) == SC_TYPE_PIECE) return receive_piece(e, peer, p, len, &as);
    return receive_valid(e, peer, slab, p, len, &as);
}

int sc_engine_receive(sc_engine *e, sc_slab *slab, uint8_t *p, size_t len, size_t segment, const sc_address *from,
                      int64_t now) {
    e->now = now;
    if (!segment) segment = len;
    int accepted = 0;
    for (size_t at = 0; at < len; at += segment) {
        size_t n = len - at < segment ? len - at : segment;
        accepted += receive_one(e, slab, p + at, n, from, now);
    }
    sc_settle(e, now);
    if (e->seal) sc_secret_clean_stack();
    return accepted;
}
