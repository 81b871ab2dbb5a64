/* Callers' operations: sending, taking deliveries, waiting until sent messages are taken, and the streams of state. */
#include "io/driver_internal.h"

/* ---- sending ------------------------------------------------------------------------------------------------ */

/* Volatile: read once, so that the checked value is the one used. */
static uint64_t offset_at(const sc_sending *s, uint64_t i) {
    return s->wide ? (uint64_t)((const volatile int64_t *)s->offsets)[i]
                   : (uint64_t)((const volatile int32_t *)s->offsets)[i];
}

/* Copies the offsets of the messages from `next` on that make about `bytes`; at least one message. 0: an offset
 * decreases or lies outside the data. */
static int take_marks(sc_sending *s, uint64_t bytes) {
    uint64_t most = s->n - s->next, k = 0, at = offset_at(s, s->next), limit = at + bytes;
    if (most > SC_SEND_MARKS) most = SC_SEND_MARKS;
    if (most > bytes) most = bytes;
    if (at > s->len) return 0;
    s->marks[0] = at;
    while (k < most) {
        uint64_t next = offset_at(s, s->next + k + 1);
        if (next < at || next > s->len) return 0;
        if (k && next > limit) break;
        s->marks[++k] = at = next;
    }
    s->first = s->next;
    s->end = s->next + k;
    return 1;
}

/* This thread packs; `answer` says whether that answers messages that the thread took. */
static void note_packing(sc_turn *turn, sc_sending *s, int64_t now) {
    turn->packer = sc_thread();
    if (turn->asked == turn->packer) {
        turn->asked = 0;
        turn->talks = turn->packer;
        s->answer = 1;
    }
    sc_count(&turn->packed_at, (uint64_t)now - turn->packed_at);
}

static int is_callback(const sc_driver *d) { return d->turn.callback && d->turn.callback == sc_thread(); }

static int has_begun(const sc_sending *s) { return s->state.done || s->state.wait_seqno; }

/* The place in the list of the sender that goes first to this member, or to the group. */
static sc_sending **find_first(sc_turn *turn, uint64_t to) {
    sc_sending **first = &turn->first;
    while (*first && (*first)->to != to) first = &(*first)->next_first;
    return first;
}

/* Waits for room: others to the same member, or to the group, wait behind. */
static void go_first(sc_turn *turn, sc_sending *s) {
    sc_sending **first = find_first(turn, s->to);
    if (*first != s) {
        s->next_first = *first ? (*first)->next_first : NULL; /* a callback takes the place of another sender */
        *first = s;
    }
    s->owner = 1;
    if (turn->callback && !has_begun(s)) sc_cond_broadcast(&turn->free); /* the callback may go first */
}

/* Did others wait? */
static int leave_turn(sc_turn *turn, sc_sending *s) {
    sc_sending **first = find_first(turn, s->to);
    s->owner = 0;
    if (*first != s) return 0;
    *first = s->next_first;
    sc_cond_broadcast(&turn->free);
    return 1;
}

/* Under the engine's lock. SC_SENT: everything, or a chunk of an array. */
static int pack(sc_driver *d, sc_sending *s, int64_t now, int64_t wall) {
    int result = SC_SENT;
    note_packing(&d->turn, s, now);
    s->state.of_callback = is_callback(d);
    if (s->offsets == NULL)
        result = sc_engine_send(d->engine, s->to, s->beside, s->data, s->len, &s->state, wall);
    else if (s->next < s->end)
        s->next = s->first + sc_engine_send_batch(d->engine, s->beside, s->data, s->marks, s->next - s->first,
                                                  s->end - s->first, &s->state, wall, &result);
    if (result == SC_AGAIN)
        go_first(&d->turn, s);
    else if (s->owner)
        leave_turn(&d->turn, s);
    if (s->to == d->io.config.member) sc_tell_engine_news(d); /* nothing is transmitted, which would show that */
    return result;
}

/* Does another sender go first? Under the engine's lock. A view is about to be closed for a block callback, so the
 * callback does not wait for messages that have not begun. */
static int is_others_turn(sc_driver *d, const sc_sending *s) {
    const sc_sending *first = *find_first(&d->turn, s->to);
    return first && first != s && (has_begun(first) || !is_callback(d));
}

int sc_driver_send_now(sc_driver *d, sc_sending *s, int64_t now, int64_t wall) {
    return is_others_turn(d, s) ? SC_AGAIN : pack(d, s, now, wall);
}

/* Packs the messages that can go now; during another sender's turn, waits for the end of that turn instead, unless this
 * thread has the receive role. */
static int pack_in_turn(sc_driver *d, sc_sending *s, int has_role, int64_t until, int64_t now, uint64_t *unsent,
                        uint64_t *mark) {
    int result = SC_AGAIN;
    sc_mutex_lock(d->lock);
    if (!is_others_turn(d, s)) {
        *mark = sc_engine_sendable(d->engine);
        result = pack(d, s, now, sc_driver_wall(d, now));
        *unsent = sc_engine_unsent(d->engine);
        s->ahead = sc_engine_ahead(d->engine);
    } else {
        s->owner = 0; /* a callback went first */
        if (sc_engine_sends_ended(d->engine))
            result = SC_ENDED;
        else if (!has_role && now < until && !sc_load(&d->stop))
            sc_cond_wait_until(&d->turn.free, d->lock, until);
    }
    sc_mutex_unlock(d->lock);
    return result;
}

static int rest_may_wait(const sc_driver *d, const sc_sending *s) {
    return s->offsets != NULL && s->ahead && !s->answer && d->config.flush_ns_min > 0;
}

/* `more`: the array has further messages. */
static void flush_after_pack(sc_driver *d, const sc_sending *s, int more, uint64_t unsent, int64_t now) {
    int what = s->owner ? SC_FLUSH_ALL /* out of credit: nothing more can be packed */
               : more || rest_may_wait(d, s)
                   ? sc_array_packed(d, unsent, s->marks[s->end - s->first] - s->marks[0], more, now)
                   : sc_driver_packed(d, unsent, s->answer, now);
    if (what != SC_FLUSH_NOTHING) sc_driver_flush(d, what == SC_FLUSH_ALL, now);
}

static int has_more(const sc_sending *s) { return s->offsets != NULL && s->next < s->n; }

/* Copies the offsets of the next messages once the copied ones are used up. 0: they are bad. */
static int has_marks(const sc_driver *d, sc_sending *s) {
    return !has_more(s) || s->next < s->end || take_marks(s, d->config.flush_bytes);
}

/* Credit may come only when this thread has received: its caller does that first. */
static int must_receive(sc_driver *d, const sc_sending *s) {
    return s->receives && sc_driver_has(d, SC_WANT_DELIVERY, 0);
}

static void wait_for_credit(sc_driver *d, const sc_sending *s, int has_role, uint64_t mark, int64_t until) {
    int want = s->receives ? SC_WANT_SENDABLE | SC_WANT_DELIVERY : SC_WANT_SENDABLE;
    if (has_role)
        sc_role_rounds(d, want, mark, until);
    else
        sc_drive(d, want, mark, until);
}

/* A sender that must wait for another's turn gives up the role: that turn may end only with acks. */
static int leave_for_turn(sc_driver *d, const sc_sending *s, int result, int *has_role) {
    if (!*has_role || result != SC_AGAIN || s->owner) return 0;
    sc_role_leave(d);
    *has_role = 0;
    return 1;
}

int sc_driver_send(sc_driver *d, sc_sending *s, int64_t until) {
    /* The sender of an array also receives the acks for it, without a change of thread. */
    int has_role = s->offsets != NULL && sc_role_take(d), result;
    for (;;) {
        uint64_t unsent = 0, mark = 0;
        int64_t now = sc_now();
        if (!has_marks(d, s)) {
            result = SC_BAD_OFFSETS;
            sc_driver_flush(d, 1, now); /* nothing follows the messages packed before */
            break;
        }
        result = pack_in_turn(d, s, has_role, until, now, &unsent, &mark);
        if (leave_for_turn(d, s, result, &has_role)) continue;
        int more = result == SC_SENT && has_more(s);
        flush_after_pack(d, s, more, unsent, now);
        if (more) {
            if (has_role) sc_round_run(d, 0, 0);
            continue;
        }
        if (result == SC_AGAIN && sc_load(&d->stop)) result = SC_NO_VIEW;
        if (result != SC_AGAIN || now >= until) break;
        if (s->owner) wait_for_credit(d, s, has_role, mark, until);
        if (must_receive(d, s)) break;
    }
    if (has_role) sc_role_leave(d);
    return result;
}

void sc_driver_send_end(sc_driver *d, sc_sending *s) {
    if (!s->owner) return;
    sc_mutex_lock(d->lock);
    if (leave_turn(&d->turn, s)) sc_engine_send_abort(d->engine, s->to, &s->state);
    sc_mutex_unlock(d->lock);
}

void sc_driver_callback(sc_driver *d, int runs) {
    sc_mutex_lock(d->lock);
    d->turn.callback = runs ? sc_thread() : 0;
    sc_mutex_unlock(d->lock);
}

/* ---- delivery ----------------------------------------------------------------------------------------------- */

/* Messages of other members may be questions: the thread's next message is an answer, which leaves at once. */
static int has_others(const sc_driver *d, const sc_batch *batch) {
    uint32_t r = 0;
    while (r < batch->n_runs && batch->runs[r].sender == d->io.config.member) r++;
    return r < batch->n_runs;
}

/* Delivers the next item to the application, and handles the effects of the credit that this gives. */
static int take_batch(sc_driver *d, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int later, int64_t now) {
    sc_mutex_lock(d->lock);
    uint64_t before = sc_engine_unsent(d->engine), sendable = sc_engine_sendable(d->engine);
    int result = later ? sc_engine_keep(d->engine, batch, bytes_max, marker, now)
                       : sc_engine_deliver(d->engine, batch, bytes_max, marker, now);
    int credit = sc_engine_sendable(d->engine) != sendable;
    if (batch->n <= 1 && !later) sc_engine_taken(d->engine);
    /* Acks, and packets that a sequencer stamped with the credit from its own delivery. */
    int urgent = sc_engine_urgent(d->engine) || sc_engine_unsent(d->engine) > before;
    /* A thread that has sent and now waits has asked a question. */
    int question = result == SC_DELIVER_NONE && sc_engine_unsent(d->engine) > 0 && d->turn.packer == sc_thread();
    if (result == SC_DELIVER_BATCH && has_others(d, batch)) {
        d->turn.asked = sc_thread();
        d->turn.talks = 0;
    }
    sc_mutex_unlock(d->lock);
    if (credit) sc_wake_caller(d, SC_WANT_SENDABLE);
    if (urgent || question) sc_driver_flush(d, question, now);
    return result;
}

/* The time of a batch that was taken just after `now`; another thread may have received messages of it in between. The
 * wall clock may have been set back since this member sent the messages in it. */
static int64_t taken_at(sc_driver *d, const sc_batch *batch, int64_t now) {
    int64_t came = (int64_t)sc_counted(&d->round.came), wall = sc_driver_wall(d, came > now ? came : now);
    for (uint32_t r = 0; r < batch->n_runs; r++) {
        const sc_run *run = &batch->runs[r];
        if (run->sender == d->io.config.member && run->sent_ns > wall) wall = run->sent_ns;
    }
    return wall;
}

int sc_driver_deliver(sc_driver *d, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int64_t until, int later,
                      int64_t now, int64_t *wall) {
    for (;;) {
        int result = take_batch(d, batch, bytes_max, marker, later, now);
        if (result == SC_DELIVER_BATCH) *wall = taken_at(d, batch, now);
        if (result != SC_DELIVER_NONE || until == 0 || sc_load(&d->stop)) return result;
        now = sc_drive(d, SC_WANT_DELIVERY, 0, until);
        if (!now) return SC_DELIVER_NONE;
    }
}

void sc_driver_taken(sc_driver *d) {
    sc_mutex_lock(d->lock);
    sc_engine_taken(d->engine);
    int urgent = sc_engine_urgent(d->engine);
    sc_mutex_unlock(d->lock);
    if (urgent) sc_driver_flush(d, 0, sc_now());
}

int sc_driver_taking(sc_driver *d, sc_taking *w, int64_t until) {
    sc_driver_flush(d, 1, sc_now());
    for (;;) {
        sc_mutex_lock(d->lock);
        uint64_t mark = sc_engine_sendable(d->engine);
        int result = sc_taking_state(d->engine, w);
        sc_mutex_unlock(d->lock);
        if (result == SC_AGAIN && sc_load(&d->stop)) result = SC_NO_VIEW;
        if (result != SC_AGAIN || sc_now() >= until) return result;
        sc_drive(d, SC_WANT_SENDABLE, mark, until);
    }
}

/* ---- streams of state --------------------------------------------------------------------------------------- */

int sc_driver_state_send(sc_driver *d, uint64_t to, const uint8_t *p, uint64_t len, uint64_t *done, int64_t until) {
    for (;;) {
        int64_t now = sc_now(), wall = sc_wall();
        sc_mutex_lock(d->lock);
        uint64_t mark = sc_engine_sendable(d->engine);
        int result = sc_engine_state_send(d->engine, to, p, len, done, wall);
        uint64_t unsent = sc_engine_unsent(d->engine);
        sc_mutex_unlock(d->lock);
        if (result == SC_AGAIN) /* out of credit: nothing more can be packed */
            sc_driver_flush(d, 1, now);
        else if (unsent >= d->config.flush_bytes) /* the rest goes with later data, or by sc_engine_state_end */
            sc_driver_flush(d, 0, now);
        if (result == SC_AGAIN && sc_load(&d->stop)) result = SC_NO_VIEW;
        if (result != SC_AGAIN || now >= until) return result;
        sc_drive(d, SC_WANT_SENDABLE, mark, until);
    }
}

size_t sc_driver_state_read(sc_driver *d, uint64_t sender, uint8_t *p, size_t len, int64_t until) {
    for (;;) {
        sc_mutex_lock(d->lock);
        int64_t now = sc_now();
        size_t n = sc_engine_state_read(d->engine, sender, p, len, now);
        int urgent = sc_engine_urgent(d->engine);
        sc_mutex_unlock(d->lock);
        if (urgent) sc_driver_flush(d, 0, now);
        if (n || sc_load(&d->stop) || !sc_drive(d, SC_WANT_STATE, sender, until)) return n;
    }
}
