/* How large packets may be on the way to each member. The size that a path carries is asked for with datagrams of that
 * size that must not be fragmented (SIZE), and counts once an answer of few bytes (SIZED) has come: nothing is inferred
 * from packets that are lost, or from ICMP messages. The answer is made from the question alone, and is never larger.
 *
 * A round of questions runs when a member has entered the view, every minute after that, when packets are repeated in
 * vain, or in pieces as nothing has passed yet, and when the system refuses runs (the MTU of our interface was
 * lowered). The first question is for the largest size that our interface carries; if that does not arrive, for all
 * smaller ones at once. Each is asked TRIES times, as chance loses datagrams, too.
 *
 * Until a path has been measured, packets leave whole, and are repeated in pieces that each path carries: a packet that
 * does not pass waits for no question, and a plain path is measured within a round trip.
 *
 * Heartbeats carry the size that arrives at every member. If that is below the view's packets for FEWER heartbeats, or
 * above them by a fifth for LARGER_NS, it is reported to the core, where the first member makes a view with packets of
 * that size. In the meantime packets that do not pass are repeated in pieces (streams/pieces.c). */
#include "engine/internal.h"

#define TRIES 3
#define EVERY_NS ((int64_t)60 * 1000000000)
#define AGAIN_NS 1000000000 /* between two rounds for the sake of packets that are repeated in vain */
#define DOUBTS 3
#define FEWER 3 /* heartbeats */
#define LARGER_NS ((int64_t)60 * 1000000000)

enum { SC_SIZE_RESTS, SC_SIZE_LARGEST, SC_SIZE_SMALLER };

/* UDP payloads of usual paths: the least of IPv4; the least of IPv6, less the headers of tunnels; tunnels in an
 * Ethernet; VXLAN; Ethernet; between clouds; jumbo frames, in tunnels and plain. */
static const uint16_t usual[] = {548, 1232, 1372, 1392, 1422, 1432, 1472, 8472, 8868, 8972};
#define N_USUAL (sizeof usual / sizeof *usual)

/* Packets are multiples of 4, and sealed ones leave less room; a view cannot have any below the least size. */
static uint32_t packet_of(const sc_engine *e, size_t i) {
    uint32_t bytes = (usual[i] - e->seal_room) & ~3u;
    return bytes > SC_PACKET_MIN ? bytes : SC_PACKET_MIN;
}

static int measures(const sc_engine *e) { return e->view.path_bytes != 0; }

static int is_asked(const sc_engine *e, const sc_peer *peer) {
    return peer->rank != e->view.rank && peer->size.entered && !peer->cut.lost;
}

/* ---- knowledge ----------------------------------------------------------------------------------------------- */

uint32_t sc_size_carries(const sc_engine *e, const sc_peer *peer) {
    if (peer->size.bytes || !measures(e) || !e->config.piece_bytes) return peer->size.bytes;
    return (e->config.piece_bytes - e->seal_room) & ~3u;
}

int sc_size_fits(const sc_engine *e, const sc_peer *peer, uint32_t len) {
    uint32_t most = sc_size_carries(e, peer);
    return !most || len <= most;
}

static void count_narrow(sc_engine *e) {
    e->sizes.narrow = 0;
    for (uint32_t r = 0; r < e->view.n; r++)
        e->sizes.narrow += r != e->view.rank && !sc_size_fits(e, e->peers[r], e->view.packet_bytes);
}

static uint32_t less(uint32_t a, uint32_t b) { return !a || (b && b < a) ? b : a; }

uint32_t sc_size_says(const sc_engine *e) {
    uint32_t least = 0;
    for (uint32_t r = 0; r < e->view.n; r++)
        if (r != e->view.rank) least = less(least, e->peers[r]->size.bytes);
    return least;
}

void sc_size_heard(sc_peer *peer, uint32_t says) {
    peer->size.theirs = says && says < SC_PACKET_MIN ? SC_PACKET_MIN : says;
}

uint32_t sc_engine_path_bytes(const sc_engine *e) {
    uint32_t least = e->in_view ? sc_size_says(e) : 0;
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++)
        if (r != e->view.rank) least = less(least, e->peers[r]->size.theirs);
    return least;
}

/* The member on whose path no more than `path` bytes pass, one way or the other. */
static uint64_t narrowest(const sc_engine *e, uint32_t path) {
    for (uint32_t r = 0; r < e->view.n; r++)
        if (r != e->view.rank && e->peers[r]->size.bytes == path) return e->peers[r]->id;
    for (uint32_t r = 0; r < e->view.n; r++)
        if (r != e->view.rank && e->peers[r]->size.theirs == path) return e->peers[r]->id;
    return 0;
}

void sc_size_look(sc_engine *e, int64_t now) {
    sc_sizes *s = &e->sizes;
    uint32_t path = sc_engine_path_bytes(e), full = e->view.packet_bytes;
    int way = !path ? 0 : path < full ? -1 : path >= full + full / 5;
    if (way != s->way) s->since = now;
    s->way = way;
    if (!way || now - s->since < (way < 0 ? FEWER * e->config.heartbeat_ns : LARGER_NS)) return;
    s->since = now;
    sc_event *event = sc_push_event(e, SC_EVENT_SIZE, narrowest(e, path), e->view.tag, NULL, NULL, 0);
    if (event) event->rate = path;
}

/* ---- rounds ---------------------------------------------------------------------------------------------------- */

static void ask(sc_engine *e, const sc_peer *peer, uint32_t bytes) {
    uint8_t *p = sc_out_new(e, &peer->address, SC_TYPE_SIZE, bytes);
    if (!p) return;
    sc_put_size_number(p, peer->size.number);
    sc_put_size_bytes(p, bytes);
    e->counters->sizes_asked++;
}

/* The largest of those that are asked for in this stage; 0: there is none. */
static uint32_t most(const sc_engine *e, int stage) {
    uint32_t bytes = 0;
    if (stage == SC_SIZE_LARGEST) return e->view.path_bytes;
    for (size_t i = 0; i < N_USUAL && packet_of(e, i) < e->view.path_bytes; i++) bytes = packet_of(e, i);
    return bytes;
}

static void ask_all(sc_engine *e, const sc_peer *peer) {
    if (peer->size.stage == SC_SIZE_LARGEST) ask(e, peer, e->view.path_bytes);
    for (size_t i = 0; peer->size.stage == SC_SIZE_SMALLER && i < N_USUAL; i++)
        if (packet_of(e, i) < e->view.path_bytes && packet_of(e, i) > peer->size.passed) ask(e, peer, packet_of(e, i));
}

/* Nothing has arrived: the member may be gone, and nothing is known. */
static void end(sc_engine *e, sc_peer *peer, int64_t now) {
    sc_peer_size *at = &peer->size;
    at->stage = SC_SIZE_RESTS;
    at->doubts = 0;
    at->ended = now > 0 ? now : 1;
    at->due = now + EVERY_NS;
    if (!at->passed) return;
    at->bytes = at->passed;
    count_narrow(e);
}

static void step(sc_engine *e, sc_peer *peer, int64_t now) {
    sc_peer_size *at = &peer->size;
    int64_t wait = 2 * peer->rtt.smooth;
    if (at->stage == SC_SIZE_RESTS) {
        at->stage = SC_SIZE_LARGEST;
        at->tries = at->passed = 0;
        at->number++;
    } else if (at->tries == TRIES) {
        if (at->stage == SC_SIZE_SMALLER || !most(e, SC_SIZE_SMALLER)) {
            end(e, peer, now);
            return;
        }
        at->stage = SC_SIZE_SMALLER;
        at->tries = 0;
    }
    ask_all(e, peer);
    at->tries++;
    at->due = now + (wait > e->config.heartbeat_ns ? wait : e->config.heartbeat_ns);
}

void sc_on_size(sc_engine *e, const sc_peer *peer, const uint8_t *p) {
    uint8_t *answer = sc_out_new(e, &peer->address, SC_TYPE_SIZED, SC_SIZE_LEN);
    if (!answer) return;
    sc_put_size_number(answer, sc_get_size_number(p));
    sc_put_size_bytes(answer, sc_get_size_bytes(p));
}

void sc_on_sized(sc_engine *e, sc_peer *peer, const uint8_t *p, int64_t now) {
    sc_peer_size *at = &peer->size;
    uint32_t bytes = sc_get_size_bytes(p);
    if (at->stage == SC_SIZE_RESTS || sc_get_size_number(p) != at->number || bytes > e->view.path_bytes) return;
    if (bytes > at->passed) at->passed = bytes;
    if (at->passed >= most(e, at->stage)) end(e, peer, now);
}

void sc_size_doubt(sc_engine *e, sc_peer *peer, uint32_t len, int64_t now) {
    sc_peer_size *at = &peer->size;
    if (!measures(e) || !is_asked(e, peer) || at->stage != SC_SIZE_RESTS) return;
    if (at->bytes && len > at->bytes) return; /* known not to pass */
    if (++at->doubts >= DOUBTS && now - at->ended >= AGAIN_NS) at->due = now;
}

void sc_engine_measure(sc_engine *e, int64_t now) {
    for (uint32_t r = 0; e->in_view && measures(e) && r < e->view.n; r++)
        if (is_asked(e, e->peers[r]) && e->peers[r]->size.stage == SC_SIZE_RESTS) e->peers[r]->size.due = now;
}

void sc_size_tick(sc_engine *e, int64_t now) {
    for (uint32_t r = 0; measures(e) && r < e->view.n; r++)
        if (is_asked(e, e->peers[r]) && e->peers[r]->size.due <= now) step(e, e->peers[r], now);
}

int64_t sc_size_deadline(const sc_engine *e) {
    int64_t due = SC_NEVER;
    for (uint32_t r = 0; measures(e) && r < e->view.n; r++)
        if (is_asked(e, e->peers[r]) && e->peers[r]->size.due < due) due = e->peers[r]->size.due;
    return due;
}

/* ---- views ----------------------------------------------------------------------------------------------------- */

void sc_size_entered(sc_engine *e, sc_peer *peer, int64_t now) {
    if (peer->size.entered) return;
    peer->size.entered = 1;
    if (measures(e) && !peer->size.ended) peer->size.due = now;
}

/* The path between two members that stay is known from before; a running round starts over. */
void sc_size_peer_begin(sc_peer *peer) {
    peer->size.entered = 0;
    if (!peer->size.ended) peer->size.due = SC_NEVER;
    if (peer->size.stage != SC_SIZE_RESTS) peer->size.due = peer->size.ended ? 0 : SC_NEVER;
    peer->size.stage = SC_SIZE_RESTS;
}

void sc_size_begin(sc_engine *e) {
    e->sizes = (sc_sizes){0};
    count_narrow(e);
}
