#include "io/drive.h"

#include <stdlib.h>
#include <string.h>

#if defined(__linux__)
#include <sys/prctl.h>
#endif

#define TX_RUNS 8
#define ROUND_BYTES_MAX (1u << 20) /* a round looks at the timers again after so much */
#define DEADLINE_SLACK_NS 500000
#define LOAD_PERIOD_NS 1000000
#define LOAD_BYTES (256u << 10) /* in a period: the receiver is under load */
#define LOAD_PACKETS 32
#define GATHER_BYTES (512u << 10) /* what a nap is to gather, but no more than what an ack is sent for */
#define LARGE_BATCH 4 /* large buffers are checked and put in order while they are in the cache */
#define STREAM_PAUSE_NS 3000
#define REFUSALS 16
#define LATE_NS 1000000

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- life --------------------------------------------------------------------------------------------------- */

int sc_driver_init(sc_driver *d, sc_engine *engine, sc_mutex *lock, const sc_drive_config *config) {
    d->config = *config;
    d->engine = engine;
    d->lock = lock;
    d->runs = malloc(TX_RUNS * sizeof *d->runs);
    d->scratch = malloc((size_t)SC_IO_BATCH_MAX * SC_SLAB_BYTES);
    if (d->runs == NULL || d->scratch == NULL || sc_signal_open(d->watch) != 0) return -1;
    sc_mutex_init(&d->tx);
    sc_mutex_init(&d->role);
    sc_cond_init(&d->role_free);
    sc_cond_init(&d->io_idle);
    sc_cond_init(&d->control);
    sc_cond_init(&d->send_free);
    return 0;
}

void sc_driver_stop(sc_driver *d) {
    sc_store(&d->stop, 1);
    sc_mutex_lock(d->lock);
    d->control_kicked = 1;
    sc_cond_broadcast(&d->control);
    sc_cond_broadcast(&d->send_free);
    sc_mutex_unlock(d->lock);
    sc_mutex_lock(&d->role);
    while (d->callers > 0 || d->io_state == SC_IO_POLLING) {
        sc_io_wake(&d->io);
        sc_cond_broadcast(&d->role_free);
        sc_cond_wait_until(&d->role_free, &d->role, sc_now() + 1000000);
    }
    sc_cond_broadcast(&d->io_idle);
    sc_mutex_unlock(&d->role);
}

void sc_driver_close(sc_driver *d) {
    sc_driver_stop(d);
    /* Whoever transmits, receives or wakes somebody has one of these, and looks at `stop` when it has it. */
    sc_mutex_lock(&d->tx);
    sc_mutex_lock(&d->role);
    while (d->holder != SC_ROLE_FREE) sc_cond_wait_until(&d->role_free, &d->role, sc_now() + 1000000);
    sc_mutex_lock(d->lock);
    d->watched = 0;
    if (!d->closed) {
        sc_io_close(&d->io);
        sc_signal_close(d->watch);
    }
    d->closed = 1;
    sc_mutex_unlock(d->lock);
    sc_mutex_unlock(&d->role);
    sc_mutex_unlock(&d->tx);
}

void sc_driver_counters(const sc_driver *d, sc_io_counters *io, sc_drive_counters *drive) {
#define READ(to, of, name) (to)->name = sc_counted(&(of).name)
    READ(io, d->io.counters, sends);
    READ(io, d->io.counters, receives);
    READ(io, d->io.counters, gso_refused);
    READ(io, d->io.counters, send_errors);
    READ(io, d->io.counters, receive_errors);
    READ(io, d->io.counters, truncated);
    READ(io, d->io.counters, refused);
    READ(drive, d->counters, turns);
    READ(drive, d->counters, rounds);
    READ(drive, d->counters, naps);
    READ(drive, d->counters, nap_bytes);
    READ(drive, d->counters, kicks);
#undef READ
    drive->flushes_left = (uint64_t)sc_load(&d->flushes_left);
}

void sc_driver_free(sc_driver *d) {
    if (d->scratch == NULL) return;
    sc_mutex_lock(d->lock);
    for (int i = 0; i < SC_IO_BATCH_MAX; i++) {
        if (d->slabs[i] != NULL) sc_slab_unref(d->slabs[i]);
        d->slabs[i] = NULL;
    }
    sc_mutex_unlock(d->lock);
    free(d->scratch);
    free(d->runs);
    d->scratch = NULL;
    d->runs = NULL;
}

/* ---- sending ------------------------------------------------------------------------------------------------ */

static void look_around(sc_driver *d);

/* There is what the holder of the receive role may be waiting for on the sockets. */
static void wake_caller(sc_driver *d, int what) {
    if (!(sc_load(&d->caller_wants) & what) || !sc_exchange(&d->caller_wants, 0)) return;
    sc_mutex_lock(&d->role); /* sc_driver_close waits for it */
    sc_io_wake(&d->io);
    sc_mutex_unlock(&d->role);
}

static void transmit(sc_driver *d, int all) {
    int n, own;
    int64_t deadline;
    do {
        int64_t now = sc_now();
        sc_mutex_lock(d->lock);
        uint64_t sendable = sc_engine_sendable(d->engine);
        n = sc_engine_transmit(d->engine, d->runs, TX_RUNS, now, all);
        deadline = sc_engine_deadline(d->engine);
        own = sc_engine_deliverable(d->engine) > 0;
        int credit = sc_engine_sendable(d->engine) != sendable; /* memory that was lent is free */
        if (own || credit) look_around(d);
        sc_mutex_unlock(d->lock);
        if (credit) wake_caller(d, SC_WANT_SENDABLE);
        sc_store(&d->last_tx, now);
        if (n > 0) sc_io_send(&d->io, d->runs, n);
    } while (n > 0);
    /* A tail probe may be due long before the holder of the receive role would look. */
    if (deadline < sc_load(&d->sleep_until) - DEADLINE_SLACK_NS) sc_io_wake(&d->io);
    if (own) wake_caller(d, SC_WANT_DELIVERY); /* what was sent is delivered here too */
}

void sc_driver_flush(sc_driver *d, int all) {
    int64_t wanted = all ? SC_FLUSH_ALL : SC_FLUSH_FULL;
    do {
        if (!sc_mutex_trylock(&d->tx)) {
            sc_or(&d->tx_wanted, wanted);
            if (!sc_mutex_trylock(&d->tx)) { /* the holder has yet to look at tx_wanted */
                sc_add(&d->flushes_left, 1);
                return;
            }
        }
        if (!sc_load(&d->stop)) transmit(d, wanted == SC_FLUSH_ALL);
        sc_mutex_unlock(&d->tx);
        wanted = sc_exchange(&d->tx_wanted, 0);
        if (wanted & SC_FLUSH_ALL) wanted = SC_FLUSH_ALL;
    } while (wanted);
}

/* Has the I/O thread look: at unsent bytes, or at the role. */
static void kick_io(sc_driver *d) {
    sc_count(&d->counters.kicks, 1);
    if (d->io_state == SC_IO_POLLING)
        sc_io_wake(&d->io);
    else if (d->io_state != SC_IO_AWAKE)
        sc_cond_signal(&d->io_idle);
}

static void ask_flush(sc_driver *d) {
    if (sc_exchange(&d->flush_asked, 1)) return;
    sc_mutex_lock(&d->role);
    kick_io(d);
    sc_mutex_unlock(&d->role);
}

int sc_driver_packed(sc_driver *d, uint64_t unsent, int64_t now) {
    if (unsent == 0) return SC_FLUSH_NOTHING;
    sc_store(&d->sent_since, 1);
    /* Whose sends do not follow each other at once does not stream: what it sends leaves at once. */
    int pause = now - sc_exchange(&d->last_pack, now) >= STREAM_PAUSE_NS;
    if (pause || now - sc_load(&d->last_tx) >= d->config.flush_ns_min) return SC_FLUSH_ALL;
    ask_flush(d);
    return unsent >= d->config.flush_bytes ? SC_FLUSH_FULL : SC_FLUSH_NOTHING;
}

void sc_driver_flush_packed(sc_driver *d, int what) {
    if (what == SC_FLUSH_NOTHING) return;
    sc_driver_flush(d, what == SC_FLUSH_ALL);
    sc_store(&d->last_pack, sc_now()); /* the time that the flush took was not a pause */
}

/* ---- receiving: a round of the role's holder ---------------------------------------------------------------- */

/* Fills the receive buffers; under the engine's lock. */
static void prepare(sc_driver *d) {
    sc_slab_pool *pool = sc_engine_pool(d->engine);
    for (int i = 0; i < d->io.config.receive_batch; i++) {
        if (d->slabs[i] != NULL && d->slabs[i]->refs > 1) { /* the engine keeps it */
            sc_slab_unref(d->slabs[i]);
            d->slabs[i] = NULL;
        }
        if (d->slabs[i] == NULL) d->slabs[i] = sc_slab_get(pool);
        d->in[i].p = d->slabs[i] != NULL ? d->slabs[i]->data : d->scratch + (size_t)i * SC_SLAB_BYTES;
    }
}

static void tell_watcher(sc_driver *d);

/* Under the engine's lock, after it was given something: whom to wake. */
static void look_around(sc_driver *d) {
    if (d->control_waiting && sc_engine_has_event(d->engine)) {
        d->control_waiting = 0;
        sc_cond_signal(&d->control);
    }
    if (d->watched) tell_watcher(d);
}

/* Takes in what has come on `lanes`. *urgent is set when something has to be transmitted. */
static uint64_t receive(sc_driver *d, int lanes, int *urgent) {
    static const int order[SC_IO_SOCKETS] = {SC_LANE_CONTROL, SC_LANE_UNICAST, SC_LANE_DATA};
    uint64_t bytes = 0;
    for (int k = 0; k < SC_IO_SOCKETS; k++) {
        int lane = order[k];
        if (!(lanes & 1 << lane)) continue;
        int got, batch = d->io.config.receive_batch;
        if (d->large && lane == SC_LANE_DATA && batch > LARGE_BATCH) batch = LARGE_BATCH;
        uint64_t of_lane = 0;
        do {
            if (d->in[0].p == NULL) { /* the first round */
                sc_mutex_lock(d->lock);
                prepare(d);
                sc_mutex_unlock(d->lock);
            }
            got = sc_io_receive(&d->io, lane, d->in, batch, SC_SLAB_BYTES);
            if (got == 0) break;
            int64_t now = sc_now();
            sc_mutex_lock(d->lock);
            uint64_t before = sc_engine_unsent(d->engine);
            for (int i = 0; i < got; i++) {
                of_lane += d->in[i].len;
                d->load_packets += d->in[i].segment > 0 ? d->in[i].len / d->in[i].segment + 1 : 1;
                sc_engine_receive(d->engine, d->slabs[i], d->in[i].p, d->in[i].len, d->in[i].segment, &d->in[i].from,
                                  lane, now);
            }
            prepare(d);
            look_around(d);
            /* Acks and the like; and the whole packets that a sequencer has just stamped. */
            *urgent |= sc_engine_urgent(d->engine) || sc_engine_unsent(d->engine) > before;
            d->deadline = sc_engine_deadline(d->engine);
            d->gather = sc_engine_window(d->engine) / 4;
            sc_mutex_unlock(d->lock);
            if (lane == SC_LANE_DATA) d->large = d->in[got - 1].len >= SC_SLAB_BYTES / 4;
        } while (got == batch && of_lane < ROUND_BYTES_MAX);
        bytes += of_lane;
    }
    return bytes;
}

/* Refused ports, which tell that members were killed. */
static void take_refusals(sc_driver *d, int64_t now) {
    sc_address to[REFUSALS];
    int n = sc_io_refused(&d->io, to, REFUSALS);
    sc_mutex_lock(d->lock);
    for (int i = 0; i < n; i++) sc_engine_refused(d->engine, &to[i], now);
    d->deadline = sc_engine_deadline(d->engine);
    sc_mutex_unlock(d->lock);
}

static void run_timers(sc_driver *d, int64_t now, int *urgent) {
    sc_mutex_lock(d->lock);
    sc_engine_tick(d->engine, now);
    look_around(d);
    *urgent |= sc_engine_urgent(d->engine);
    d->deadline = sc_engine_deadline(d->engine);
    sc_mutex_unlock(d->lock);
}

/* Under load: many bytes, or many packets that are not the answers to what the application sends. */
static void measure_load(sc_driver *d, uint64_t bytes, int64_t now) {
    d->load_bytes += bytes;
    int64_t period = now - d->load_since;
    if (period < LOAD_PERIOD_NS) return;
    int sent = (int)sc_exchange(&d->sent_since, 0);
    int loaded = d->load_bytes * LOAD_PERIOD_NS / (uint64_t)period >= LOAD_BYTES ||
                 (!sent && d->load_packets * LOAD_PERIOD_NS / (uint64_t)period >= LOAD_PACKETS);
    uint64_t gather = d->gather < GATHER_BYTES ? d->gather : GATHER_BYTES;
    d->nap_ns = loaded ? earlier(d->config.nap_ns, (int64_t)(gather * (uint64_t)period / (d->load_bytes + 1))) : 0;
    d->nap_bytes = (uint64_t)d->nap_ns * d->load_bytes / (uint64_t)period;
    d->load_since = now;
    d->load_bytes = d->load_packets = 0;
}

/* Waits at most until `until` for datagrams and takes them in, runs what is due, transmits what has to go. Returns
 * whether it was woken. */
static int run_round(sc_driver *d, int64_t until, int may_nap) {
    int urgent = 0, lanes = SC_IO_ALL, woken = 0;
    uint64_t bytes = 0;
    int64_t now = sc_now();
    sc_count(&d->counters.rounds, 1);
    if (may_nap && d->nap_ns > 0 && earlier(until, d->deadline) > now + d->nap_ns) {
        sc_count(&d->counters.naps, 1);
        uint64_t most = sc_counted(&d->counters.nap_bytes);
        if (d->nap_bytes > most) sc_count(&d->counters.nap_bytes, d->nap_bytes - most);
        sc_sleep(d->nap_ns);
        now = sc_now();
    }
    int64_t spin_until = now + d->config.busy_poll_ns;
    while (bytes == 0 && now < earlier(spin_until, until) && now < d->deadline) {
        bytes = receive(d, SC_IO_ALL, &urgent);
        sc_relax();
        now = sc_now();
        if (sc_load(&d->waiting) || sc_load(&d->stop)) break;
    }
    if (bytes == 0) {
        int64_t wait = earlier(until, d->deadline) - now;
        sc_store(&d->sleep_until, earlier(until, d->deadline));
        lanes = sc_io_poll(&d->io, wait < 0 ? 0 : wait);
        sc_store(&d->sleep_until, 0);
        woken = lanes & SC_IO_WOKEN;
        if (lanes & SC_IO_ALL) bytes = receive(d, lanes, &urgent);
    }
    now = sc_now();
    measure_load(d, bytes, now);
    if (sc_load(&d->io.troubled)) take_refusals(d, now);
    if (now >= d->deadline) {
        /* A thread that got no processor must not take for silence what it has yet to read. */
        if (now - d->deadline > LATE_NS) receive(d, SC_IO_ALL, &urgent);
        run_timers(d, now, &urgent);
    }
    if (urgent) sc_driver_flush(d, 0);
    return woken;
}

/* ---- the receive role --------------------------------------------------------------------------------------- */

/* Under the engine's lock. */
static int is_there(sc_driver *d, int want, uint64_t mark) {
    return ((want & SC_WANT_DELIVERY) && sc_engine_deliverable(d->engine) > 0) ||
           ((want & SC_WANT_SENDABLE) && sc_engine_sendable(d->engine) != mark) ||
           ((want & SC_WANT_STATE) && sc_engine_state_readable(d->engine, mark));
}

static int is_satisfied(sc_driver *d, int want, uint64_t mark) {
    sc_mutex_lock(d->lock);
    int satisfied = is_there(d, want, mark);
    sc_mutex_unlock(d->lock);
    return satisfied;
}

/* The same for the holder of the role, which goes on to wait: sends and views move the deadline, too. */
static int is_satisfied_or_due(sc_driver *d, int want, uint64_t mark) {
    sc_mutex_lock(d->lock);
    int satisfied = is_there(d, want, mark);
    if (!satisfied) d->deadline = sc_engine_deadline(d->engine);
    sc_mutex_unlock(d->lock);
    return satisfied;
}

/* The caller has the role and keeps it until it has what it wants. */
static int drive_rounds(sc_driver *d, int want, uint64_t mark, int64_t until) {
    for (;;) {
        sc_store(&d->caller_wants, want); /* before the look, so that no wake-up is missed */
        if (is_satisfied_or_due(d, want, mark)) return 1;
        if (sc_load(&d->stop) || sc_now() >= until) return 0;
        int woken = run_round(d, until, want == SC_WANT_DELIVERY);
        if (sc_load(&d->waiting)) {
            sc_mutex_lock(&d->role);
            sc_cond_broadcast(&d->role_free);
            sc_mutex_unlock(&d->role);
        }
        if (woken) return is_satisfied(d, want, mark);
    }
}

/* Under `role`. */
static void caller_leaves(sc_driver *d) {
    d->callers--;
    if (d->callers > 0 || sc_load(&d->stop))
        sc_cond_broadcast(&d->role_free);
    else if (d->io_state == SC_IO_DEEP)
        sc_cond_signal(&d->io_idle);
}

int sc_drive(sc_driver *d, int want, uint64_t mark, int64_t until) {
    int found = 0;
    sc_mutex_lock(&d->role);
    d->callers++;
    while (!sc_load(&d->stop)) {
        if (d->holder == SC_ROLE_FREE) {
            d->holder = SC_ROLE_CALLER;
            d->turns++;
            sc_count(&d->counters.turns, 1);
            sc_mutex_unlock(&d->role);
            found = drive_rounds(d, want, mark, until);
            sc_mutex_lock(&d->role);
            d->holder = SC_ROLE_FREE;
            break;
        }
        sc_store(&d->waiting, sc_load(&d->waiting) + 1);
        if (d->holder == SC_ROLE_IO && d->io_state == SC_IO_POLLING) kick_io(d);
        sc_mutex_unlock(&d->role);
        found = is_satisfied(d, want, mark);
        sc_mutex_lock(&d->role);
        if (!found && d->holder != SC_ROLE_FREE && !sc_load(&d->stop))
            sc_cond_wait_until(&d->role_free, &d->role, earlier(until, sc_now() + 10000000));
        sc_store(&d->waiting, sc_load(&d->waiting) - 1);
        if (found || sc_now() >= until) break;
    }
    caller_leaves(d);
    sc_mutex_unlock(&d->role);
    return found;
}

/* ---- the application ---------------------------------------------------------------------------------------- */

static uint64_t offset_at(const sc_sending *s, uint64_t i) { /* volatile: read once, so that what is checked is used */
    return s->wide ? (uint64_t)((const volatile int64_t *)s->offsets)[i]
                   : (uint64_t)((const volatile int32_t *)s->offsets)[i];
}

/* Takes over the offsets of the messages from `next` on that make about `bytes`; at least one message. 0: one falls or
 * lies outside the data. */
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

/* Under the engine's lock. SC_SENT: all there was, or a chunk of an array. */
static int pack(sc_driver *d, sc_sending *s, int64_t wall) {
    int result = SC_SENT;
    if (s->offsets == NULL)
        result = sc_engine_send(d->engine, s->to, s->data, s->len, &s->state, wall);
    else if (s->next < s->end)
        s->next = s->first + sc_engine_send_batch(d->engine, s->data, s->marks, s->next - s->first, s->end - s->first,
                                                  &s->state, wall, &result);
    int stream = s->to != 0;
    if (result == SC_AGAIN) {
        d->sending[stream] = s->owner = 1;
    } else if (s->owner) {
        d->sending[stream] = s->owner = 0;
        sc_cond_broadcast(&d->send_free);
    }
    return result;
}

int sc_driver_send_now(sc_driver *d, sc_sending *s, int64_t wall) {
    if (d->sending[s->to != 0] && !s->owner) return SC_AGAIN;
    return pack(d, s, wall);
}

/* Takes the receive role for a while, from the I/O thread if need be; 0 where another caller has it. */
static int role_take(sc_driver *d) {
    int taken = 0;
    sc_mutex_lock(&d->role);
    d->callers++;
    while (d->holder == SC_ROLE_IO && !sc_load(&d->stop)) {
        if (d->io_state == SC_IO_POLLING) kick_io(d);
        sc_cond_wait_until(&d->role_free, &d->role, sc_now() + 1000000);
    }
    if (d->holder == SC_ROLE_FREE && !sc_load(&d->stop)) {
        d->holder = SC_ROLE_CALLER;
        d->turns++;
        sc_count(&d->counters.turns, 1);
        taken = 1;
    } else {
        d->callers--;
    }
    sc_mutex_unlock(&d->role);
    return taken;
}

static void role_leave(sc_driver *d) {
    sc_mutex_lock(&d->role);
    d->holder = SC_ROLE_FREE;
    caller_leaves(d);
    sc_mutex_unlock(&d->role);
}

int sc_driver_send(sc_driver *d, sc_sending *s, int64_t until) {
    /* Who sends an array takes in the acks for it as well, without a change of thread. */
    int drives = s->offsets != NULL && role_take(d), result;
    for (;;) {
        uint64_t unsent = 0, mark = 0;
        int64_t now = sc_now(), wall = sc_wall();
        if (s->offsets != NULL && s->next == s->end && s->next < s->n && !take_marks(s, d->config.flush_bytes)) {
            result = SC_BAD_OFFSETS;
            sc_driver_flush(d, 1); /* nothing follows on what was packed before */
            break;
        }
        result = SC_AGAIN;
        sc_mutex_lock(d->lock);
        if (d->sending[s->to != 0] && !s->owner) {
            if (sc_engine_sends_ended(d->engine))
                result = SC_ENDED;
            else if (now < until && !sc_load(&d->stop))
                sc_cond_wait_until(&d->send_free, d->lock, until);
        } else {
            mark = sc_engine_sendable(d->engine);
            result = pack(d, s, wall);
            unsent = sc_engine_unsent(d->engine);
        }
        int owner = s->owner, more = result == SC_SENT && s->offsets != NULL && s->next < s->n;
        sc_mutex_unlock(d->lock);
        if (owner) /* out of credit: what is packed is all that can go */
            sc_driver_flush(d, 1);
        else if (more && unsent >= d->config.flush_bytes)
            sc_driver_flush(d, 0);
        else if (!more)
            sc_driver_flush_packed(d, sc_driver_packed(d, unsent, now));
        if (more) {
            sc_store(&d->last_pack, now);
            if (drives) run_round(d, 0, 0);
            continue;
        }
        if (result == SC_AGAIN && sc_load(&d->stop)) result = SC_NO_VIEW;
        if (result != SC_AGAIN || now >= until) break;
        if (owner && drives)
            drive_rounds(d, SC_WANT_SENDABLE, mark, until);
        else if (owner)
            sc_drive(d, SC_WANT_SENDABLE, mark, until);
    }
    if (drives) role_leave(d);
    return result;
}

void sc_driver_send_end(sc_driver *d, sc_sending *s) {
    if (!s->owner) return;
    sc_mutex_lock(d->lock);
    sc_engine_send_abort(d->engine, s->to, &s->state);
    d->sending[s->to != 0] = s->owner = 0;
    sc_cond_broadcast(&d->send_free);
    sc_mutex_unlock(d->lock);
}

int sc_driver_deliver(sc_driver *d, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int64_t until, int later) {
    for (;;) {
        sc_mutex_lock(d->lock);
        uint64_t before = sc_engine_unsent(d->engine), sendable = sc_engine_sendable(d->engine);
        int result = sc_engine_deliver(d->engine, batch, bytes_max, marker, sc_now());
        int credit = sc_engine_sendable(d->engine) != sendable;
        if (credit && d->watched) tell_watcher(d);
        if (batch->n <= 1 && !later) sc_engine_taken(d->engine);
        /* Acks, and what a sequencer stamped with the credit that its own delivery gave. */
        int urgent = sc_engine_urgent(d->engine) || sc_engine_unsent(d->engine) > before;
        int question = result == SC_DELIVER_NONE && sc_engine_unsent(d->engine) > 0;
        sc_mutex_unlock(d->lock);
        if (credit) wake_caller(d, SC_WANT_SENDABLE);
        if (urgent || question) sc_driver_flush(d, question); /* who waits for an answer has sent the question */
        if (result == SC_DELIVER_BATCH) sc_store(&d->last_pack, 0); /* what is sent next is an answer */
        if (result != SC_DELIVER_NONE || until == 0 || sc_load(&d->stop)) return result;
        if (!sc_drive(d, SC_WANT_DELIVERY, 0, until)) return SC_DELIVER_NONE;
    }
}

void sc_driver_taken(sc_driver *d) {
    sc_mutex_lock(d->lock);
    sc_engine_taken(d->engine);
    int urgent = sc_engine_urgent(d->engine);
    sc_mutex_unlock(d->lock);
    if (urgent) sc_driver_flush(d, 0);
}

int sc_driver_taking(sc_driver *d, sc_taking *w, int64_t until) {
    sc_driver_flush(d, 1);
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

int sc_driver_state_send(sc_driver *d, uint64_t to, const uint8_t *p, uint64_t len, uint64_t *done, int64_t until) {
    for (;;) {
        int64_t now = sc_now(), wall = sc_wall();
        sc_mutex_lock(d->lock);
        uint64_t mark = sc_engine_sendable(d->engine);
        int result = sc_engine_state_send(d->engine, to, p, len, done, wall);
        uint64_t unsent = sc_engine_unsent(d->engine);
        sc_mutex_unlock(d->lock);
        if (result == SC_AGAIN) /* out of credit: what is packed is all that can go */
            sc_driver_flush(d, 1);
        else if (unsent >= d->config.flush_bytes) /* the rest goes with what follows, or by sc_engine_state_end */
            sc_driver_flush(d, 0);
        if (result == SC_AGAIN && sc_load(&d->stop)) result = SC_NO_VIEW;
        if (result != SC_AGAIN || now >= until) return result;
        sc_drive(d, SC_WANT_SENDABLE, mark, until);
    }
}

size_t sc_driver_state_read(sc_driver *d, uint64_t sender, uint8_t *p, size_t len, int64_t until) {
    for (;;) {
        sc_mutex_lock(d->lock);
        size_t n = sc_engine_state_read(d->engine, sender, p, len, sc_now());
        int urgent = sc_engine_urgent(d->engine);
        sc_mutex_unlock(d->lock);
        if (urgent) sc_driver_flush(d, 0);
        if (n || sc_load(&d->stop) || !sc_drive(d, SC_WANT_STATE, sender, until)) return n;
    }
}

/* ---- the I/O thread ----------------------------------------------------------------------------------------- */

static uint64_t unsent_bytes(sc_driver *d) {
    sc_mutex_lock(d->lock);
    uint64_t unsent = sc_engine_unsent(d->engine);
    sc_mutex_unlock(d->lock);
    return unsent;
}

/* Senders that stream transmit full packets by themselves and leave a rest, which goes with what follows: while they
 * go on there is nothing to do here but to look again, less and less often. A rest that nothing followed goes out. When
 * there is none, senders have to ask again. */
static void look_after_unsent(sc_driver *d) {
    d->look_ns = d->look_ns == 0 ? d->config.flush_ns_max : earlier(2 * d->look_ns, 4 * d->config.flush_ns_max);
    sc_sleep(d->look_ns);
    if (sc_now() - sc_load(&d->last_pack) < d->config.flush_ns_max) return;
    d->look_ns = 0;
    if (unsent_bytes(d) > 0) {
        sc_driver_flush(d, 1);
        return;
    }
    sc_store(&d->flush_asked, 0);
    if (unsent_bytes(d) > 0) sc_store(&d->flush_asked, 1); /* packed in between, and not asked for */
}

/* Rounds with the role until a caller wants it. Entered and left with `role` locked. */
static void hold_role(sc_driver *d) {
    d->holder = SC_ROLE_IO;
    while (d->callers == 0 && !sc_load(&d->stop)) {
        int hot = sc_load(&d->flush_asked) != 0;
        d->io_state = hot ? SC_IO_AWAKE : SC_IO_POLLING;
        sc_mutex_unlock(&d->role);
        if (hot) look_after_unsent(d);
        is_satisfied_or_due(d, 0, 0); /* for the deadline */
        run_round(d, hot ? 0 : SC_NEVER, !hot);
        sc_mutex_lock(&d->role);
        d->io_state = SC_IO_AWAKE;
    }
    d->holder = SC_ROLE_FREE;
    sc_cond_broadcast(&d->role_free);
}

void sc_driver_run(sc_driver *d) {
#if defined(__linux__)
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
#endif
    uint64_t seen = 0;
    int64_t since = 0; /* no turn of a caller began or ended after that */
    sc_mutex_lock(&d->role);
    while (!sc_load(&d->stop)) {
        int64_t now = sc_now();
        if (d->turns != seen) {
            seen = d->turns;
            since = now;
        }
        int quiet = now - since >= d->config.tick_ns;
        if (d->holder == SC_ROLE_FREE && d->callers == 0 && quiet) {
            hold_role(d);
            since = sc_now();
            continue;
        }
        if (sc_load(&d->flush_asked)) {
            sc_mutex_unlock(&d->role);
            look_after_unsent(d);
            sc_mutex_lock(&d->role);
            continue;
        }
        if (quiet && d->holder == SC_ROLE_CALLER) { /* it blocks long, and wakes us when it leaves */
            d->io_state = SC_IO_DEEP;
            sc_cond_wait(&d->io_idle, &d->role);
            since = sc_now();
        } else {
            d->io_state = SC_IO_STANDBY;
            sc_cond_wait_until(&d->io_idle, &d->role, now + d->config.tick_ns);
        }
        d->io_state = SC_IO_AWAKE;
    }
    sc_cond_broadcast(&d->role_free);
    sc_mutex_unlock(&d->role);
}

/* ---- the control thread ------------------------------------------------------------------------------------- */

void sc_driver_wait_control(sc_driver *d, int64_t until) {
    sc_mutex_lock(d->lock);
    while (!sc_engine_has_event(d->engine) && !d->control_kicked && sc_now() < until) {
        d->control_waiting = 1;
        sc_cond_wait_until(&d->control, d->lock, until);
        d->control_waiting = 0;
    }
    d->control_kicked = 0;
    sc_mutex_unlock(d->lock);
}

void sc_driver_kick_control(sc_driver *d) {
    sc_mutex_lock(d->lock);
    d->control_kicked = 1;
    sc_cond_signal(&d->control);
    sc_mutex_unlock(d->lock);
}

void sc_driver_poke(sc_driver *d) {
    sc_driver_flush(d, 1);
    sc_mutex_lock(d->lock);
    sc_cond_broadcast(&d->send_free);
    if (d->watched) tell_watcher(d);
    sc_mutex_unlock(d->lock);
    sc_mutex_lock(&d->role);
    sc_cond_broadcast(&d->role_free);
    if (d->holder != SC_ROLE_FREE) sc_io_wake(&d->io); /* the engine's deadline may have moved, too */
    sc_mutex_unlock(&d->role);
}

/* ---- event loops -------------------------------------------------------------------------------------------- */

static void tell_watcher(sc_driver *d) {
    if (!is_there(d, d->watched, d->watched_sendable)) return;
    d->watched = 0;
    sc_signal(d->watch[0]);
}

void sc_driver_watch_clear(sc_driver *d) {
    sc_mutex_lock(d->lock);
    if (!d->closed) sc_signal_clear(d->watch[1]);
    sc_mutex_unlock(d->lock);
}

int sc_driver_watch(sc_driver *d, int want, uint64_t mark) {
    sc_mutex_lock(d->lock);
    int there = is_there(d, want, mark);
    d->watched = there || d->closed ? 0 : want;
    d->watched_sendable = mark;
    sc_mutex_unlock(d->lock);
    return there;
}
