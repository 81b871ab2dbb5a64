/* Datagrams in pieces. A packet that is too large for the path to a member is sent again in pieces, and nothing waits
 * for long: no packet can be packed again, as the number stands for its messages on every member. Large frames of the
 * control plane always leave so, as they go to those about whom nothing is known, and make the view in which packets
 * are smaller. Members ask again for datagrams, not for pieces. */
#include "engine/internal.h"

/* Cuts `p[0..len)` into pieces of `each` bytes. `like`: a datagram from which the pieces take the view's tag and the
 * readers. */
static void say(sc_engine *e, const sc_address *to, const uint8_t *like, const uint8_t *p, uint32_t len,
                uint32_t each) {
    uint32_t n = (len + each - 1) / each;
    if (n > SC_PIECES_MAX || e->out.bytes + len + n * SC_PIECE_HEADER > e->config.control_bytes_max) {
        e->counters->drop_control_full++;
        return;
    }
    e->pieces.number++;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i * each, part = len - at < each ? len - at : each;
        uint8_t *piece = sc_out_new(e, to, SC_TYPE_PIECE, SC_PIECE_HEADER + part);
        if (!piece) return;
        if (like) {
            sc_put_view_tag(piece, sc_get_view_tag(like));
            sc_put_key_id(piece, sc_get_key_id(like));
        }
        sc_put_piece_number(piece, e->pieces.number);
        sc_put_piece_total(piece, len);
        sc_put_piece_each(piece, (uint16_t)each);
        sc_put_piece_index(piece, (uint16_t)i);
        memcpy(piece + SC_PIECE_HEADER, p + at, part);
    }
    e->counters->sent_in_pieces++;
}

void sc_pieces_say(sc_engine *e, const sc_peer *peer, const uint8_t *p, uint32_t len) {
    say(e, &peer->address, NULL, p, len, (sc_size_carries(e, peer) - SC_PIECE_HEADER) & ~7u);
}

int sc_pieces_instead(sc_engine *e, const sc_out *o) {
    uint32_t most = e->config.piece_bytes;
    uint8_t type = sc_get_type(o->p);
    if (!most || o->len + e->seal_room <= most || type == SC_TYPE_SIZE || type == SC_TYPE_PIECE) return 0;
    say(e, o->to.len ? &o->to : NULL, o->p, o->p, o->len, (most - e->seal_room - SC_PIECE_HEADER) & ~7u);
    return 1;
}

static void forget(sc_partly *at) {
    free(at->p);
    *at = (sc_partly){0};
}

/* Each kind has places of its own, so that somebody with a secret of one kind cannot push out pieces of another. */
static int kind_of(const sc_engine *e, uint64_t view) {
    if (e->seal && !view) return SC_PARTLY_OUTSIDE;
    return view && view != e->view.tag ? SC_PARTLY_ELSEWHERE : SC_PARTLY_OURS;
}

/* All pieces of a datagram are sealed with one secret, and for the same readers: otherwise somebody with another secret
 * could put bytes into the datagram of a member. */
static int is_of(const sc_partly *at, const uint8_t *p, uint64_t view) {
    return at->number == sc_get_piece_number(p) && at->sender == sc_get_sender(p) && at->view == view &&
           at->key_id == sc_get_key_id(p);
}

/* Room for a new one, in the place of the oldest of its kind. NULL without memory. */
static sc_partly *begin(sc_engine *e, sc_partly *first, const uint8_t *p, uint64_t view) {
    sc_partly *at = first;
    for (int i = 1; i < SC_PARTLY; i++)
        if (first[i].age < at->age) at = &first[i];
    if (at->lacks) e->counters->pieces_dropped++;
    forget(at);
    if (!(at->p = malloc(sc_get_piece_total(p)))) return NULL;
    at->view = view;
    at->key_id = sc_get_key_id(p);
    at->sender = sc_get_sender(p);
    at->number = sc_get_piece_number(p);
    at->age = ++e->pieces.age;
    at->total = sc_get_piece_total(p);
    at->each = sc_get_piece_each(p);
    at->lacks = (at->total + at->each - 1) / at->each;
    return at;
}

/* The datagram that a piece belongs to. A view may have become ours, or another, since it began. */
static sc_partly *find(sc_engine *e, sc_peer_pieces *of, const uint8_t *p, const sc_opened *opened) {
    for (int i = 0; i < SC_PARTLY_KINDS * SC_PARTLY; i++)
        if (is_of(&of->partly[i], p, opened->latest)) return &of->partly[i];
    return begin(e, &of->partly[kind_of(e, opened->member) * SC_PARTLY], p, opened->latest);
}

uint8_t *sc_pieces_take(sc_engine *e, sc_peer *peer, const uint8_t *p, size_t len, const sc_opened *opened,
                        uint32_t *total) {
    sc_partly *at = find(e, peer ? &peer->pieces : &e->pieces.strangers, p, opened);
    uint32_t i = sc_get_piece_index(p);
    int fits = at && at->lacks && at->total == sc_get_piece_total(p) && at->each == sc_get_piece_each(p);
    if (!fits || at->came[i / 64] >> i % 64 & 1)
        return NULL; /* of one that is complete, or other than before; or twice */
    at->came[i / 64] |= (uint64_t)1 << i % 64;
    memcpy(at->p + (size_t)i * at->each, p + SC_PIECE_HEADER, len - SC_PIECE_HEADER);
    if (--at->lacks) return NULL;
    uint8_t *whole = at->p;
    *total = at->total;
    at->p = NULL;
    return whole;
}

void sc_pieces_free(sc_peer_pieces *pieces) {
    for (int i = 0; i < SC_PARTLY_KINDS * SC_PARTLY; i++) forget(&pieces->partly[i]);
}
