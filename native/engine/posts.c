/* The board's gauges, and its row for each member of the view: written at each heartbeat, so that they show the state
 * of a member whose Python hangs. Times are monotonic, 0: never. */
#include "engine/internal.h"

#define GAUGES(X)                                                                                                      \
    X(posted) /* when this was written */                                                                              \
    X(view) /* its tag; 0: in none */                                                                                  \
    X(members)                                                                                                         \
    X(rank)                                                                                                            \
    X(heartbeat_ns)                                                                                                    \
    X(health) /* how often the suspicion time was extended, as this member runs late or is not heard */                \
    X(last) /* seqno of the last own packet */                                                                         \
    X(stable) /* all members have everything up to this one */                                                         \
    X(waiting_bytes) /* of messages that wait for the application */                                                   \
    X(blocked) /* messages that wait for the gate */                                                                   \
    X(closed) /* 1: a view change, or a pause, has stopped sends to the group */                                       \
    X(held_by) /* id of the member for which our senders wait */                                                       \
    X(held_since)                                                                                                      \
    X(awaited_since) /* others have waited for our application since then */

#define FIELDS(X)                                                                                                      \
    X(id)                                                                                                              \
    X(heard) /* last sign of life directly from it */                                                                  \
    X(overheard) /* last multicast */                                                                                  \
    X(reached) /* last unicast */                                                                                      \
    X(present) /* in this view */                                                                                      \
    X(doubted)                                                                                                         \
    X(suspected)                                                                                                       \
    X(slow)                                                                                                            \
    X(delivered) /* our packets in order there */                                                                      \
    X(seen) /* the highest of our packets there */                                                                     \
    X(consumed) /* our packets that its application has taken */                                                       \
    X(highest) /* of its packets, the highest here; the next two: those put in order, and taken here */                \
    X(ordered)                                                                                                         \
    X(taken)                                                                                                           \
    X(rtt) /* ns of a round trip by heartbeats, smoothed, and the least; 0: not measured yet */                        \
    X(rtt_min)                                                                                                         \
    X(waited) /* ns for which our senders have waited */                                                               \
    X(lag_ns) /* since the first of our packets that is not in order there was sent; 0: all are */                     \
    X(path_bytes) /* of the largest packet that reaches it whole; 0: not measured */                                   \
    X(unheard_0) /* bits by rank: members whose multicasts do not arrive there, */                                     \
    X(unheard_1)                                                                                                       \
    X(mute_0) /* and those whose unicasts do not */                                                                    \
    X(mute_1)

#define MEMBER(name) uint64_t name;
typedef struct {
    GAUGES(MEMBER)
} sc_gauges;
typedef struct {
    FIELDS(MEMBER)
} sc_row;

#define EVENT_N 160
#define NAME(name) #name " "

void sc_counters_now(const sc_engine *e, sc_counters *out) {
    out->slabs_in_use = sc_slab_pool_in_use(e->pool);
    out->slabs_exhausted = sc_slab_pool_exhausted(e->pool);
    out->own_closed_bytes = e->queue.closed_bytes;
    uint64_t window = sc_congestion_window(e);
    out->congestion_bytes = window == UINT64_MAX ? 0 : window;
    out->window_bytes = e->in_view ? (e->group.window ? e->group.window : e->forward.window) : 0;
}

int sc_engine_board(sc_engine *e, sc_board *b) {
    sc_posts *posts = &e->posts;
    sc_board_part *counters = sc_board_add(b, "counters", SC_COUNTERS(NAME), sizeof(sc_counters), 1);
    posts->gauges = sc_board_add(b, "gauges", GAUGES(NAME), sizeof(sc_gauges), 1);
    posts->rows = sc_board_add(b, "members", FIELDS(NAME), sizeof(sc_row), SC_MEMBERS_MAX);
    posts->events = sc_board_add(b, "events", "number at member length ", SC_BOARD_EVENT, EVENT_N);
    if (!counters || !posts->gauges || !posts->rows || !posts->events) return -1;
    sc_counters *there = (sc_counters *)sc_board_at(b, counters, 0);
    *there = *e->counters;
    counters->used = 1;
    e->counters = there;
    posts->board = b;
    return 0;
}

void sc_engine_note(sc_engine *e, uint64_t member, const char *text, size_t len, int64_t now) {
    if (e->posts.board) sc_board_note(e->posts.board, e->posts.events, now, member, text, len);
}

static void bits(uint64_t *out, const uint8_t *of) {
    for (uint32_t i = 0; i < SC_MEMBERS_MAX / 8; i++) out[i / 8] |= (uint64_t)of[i] << i % 8 * 8;
}

static uint64_t lag_of(const sc_engine *e, const sc_peer *peer, int64_t now) {
    const sc_tx_stream *tx = &e->group;
    uint64_t next = peer->credit.acked.delivered + 1;
    if (!sc_tx_has(tx, next) || next >= tx->unsent) return 0;
    int64_t sent_at = sc_tx_at(tx, next)->sent_at;
    return now > sent_at ? (uint64_t)(now - sent_at) : 0;
}

static void row_of(const sc_engine *e, const sc_peer *peer, int64_t now, sc_row *row) {
    const sc_peer_detection *at = &peer->detect;
    uint64_t unheard[SC_MEMBERS_MAX / 64] = {0}, mute[SC_MEMBERS_MAX / 64] = {0};
    *row = (sc_row){.id = peer->id, .waited = (uint64_t)peer->waited};
    if (peer->rank == e->view.rank) {
        for (uint32_t r = 0; r < e->view.n; r++) {
            unheard[r / 64] |= (uint64_t)(e->peers[r]->detect.silent != 0) << r % 64;
            mute[r / 64] |= (uint64_t)(e->peers[r]->detect.mute != 0) << r % 64;
            row->slow |= e->peers[r]->skip.skips != 0; /* the application misses messages */
        }
        row->present = 1;
        row->delivered = row->seen = row->highest = row->ordered = e->group.next - 1;
        row->consumed = row->taken = e->credit.self;
    } else {
        bits(unheard, at->unheard);
        bits(mute, at->mutes);
        row->heard = (uint64_t)at->heard;
        row->overheard = (uint64_t)at->overheard;
        row->reached = (uint64_t)at->reached;
        row->present = (uint64_t)at->present;
        row->doubted = (uint64_t)at->doubted;
        row->suspected = (uint64_t)at->suspected;
        row->slow = (uint64_t)at->slow;
        row->delivered = peer->credit.acked.delivered;
        row->seen = peer->credit.acked.received;
        row->consumed = peer->credit.consumed;
        row->highest = peer->group.highest;
        row->ordered = peer->group.queued - 1;
        row->taken = peer->group.consumed;
        row->rtt = (uint64_t)peer->rtt.smooth;
        row->rtt_min = (uint64_t)peer->rtt.least;
        row->lag_ns = lag_of(e, peer, now);
        row->path_bytes = peer->size.bytes;
    }
    row->unheard_0 = unheard[0];
    row->unheard_1 = unheard[1];
    row->mute_0 = mute[0];
    row->mute_1 = mute[1];
}

static void post(sc_engine *e, int64_t now) {
    sc_board *b = e->posts.board;
    sc_counters_now(e, e->counters);
    sc_board_write(e->posts.gauges);
    *(sc_gauges *)sc_board_at(b, e->posts.gauges, 0) = (sc_gauges){
        .posted = (uint64_t)now,
        .view = e->in_view ? e->view.tag : 0,
        .members = e->in_view ? e->view.n : 0,
        .rank = e->view.rank,
        .heartbeat_ns = (uint64_t)e->config.heartbeat_ns,
        .health = (uint64_t)e->detect.health,
        .last = e->group.next - 1,
        .stable = e->group.stable,
        .waiting_bytes = sc_engine_deliverable(e),
        .blocked = sc_engine_blocked(e),
        .closed = e->cut.gate_closed || e->cut.paused,
        .held_by = e->holdup.named,
        .held_since = e->holdup.named ? (uint64_t)e->holdup.began : 0,
        .awaited_since = e->holdup.awaited ? (uint64_t)e->holdup.awaited_since : 0,
    };
    sc_board_written(e->posts.gauges, 1);
    sc_board_write(e->posts.rows);
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++)
        row_of(e, e->peers[r], now, (sc_row *)sc_board_at(b, e->posts.rows, r));
    sc_board_written(e->posts.rows, e->in_view ? e->view.n : 0);
}

void sc_posts_tick(sc_engine *e, int64_t now) {
    if (!e->posts.board || now < e->posts.due) return;
    e->posts.due = now + e->config.heartbeat_ns - e->config.heartbeat_ns / 8; /* at the next heartbeat */
    post(e, now);
}
