/* One round of the receive role's holder: wait, receive, run timers, transmit urgent packets. */
#include "io/driver_internal.h"

#define LOOKS 16 /* of a spinning thread: every 16th reads all sockets, and every 8th those of messages and acks */
#define LOOK_BYTES 4096 /* when one stream brought this much, the other one is due for a look, too */
#define REFUSALS 16
#define LATE_NS 1000000

static void measure_paths(sc_driver *d, int64_t now) {
    sc_mutex_lock(d->lock);
    sc_engine_measure(d->engine, now);
    d->round.deadline = sc_engine_deadline(d->engine);
    sc_mutex_unlock(d->lock);
}

/* Refused ports, which suggest that members were killed; and refused runs: our interface may carry less than before. */
static void take_refusals(sc_driver *d, int64_t now) {
    sc_address to[REFUSALS];
    if (sc_load(&d->io.narrowed) && sc_exchange(&d->io.narrowed, 0)) measure_paths(d, now);
    if (!sc_load(&d->io.troubled)) return;
    int n = sc_io_refused(&d->io, to, REFUSALS);
    sc_mutex_lock(d->lock);
    for (int i = 0; i < n; i++) sc_engine_refused(d->engine, &to[i], SC_EVIDENCE_PORT, now);
    d->round.deadline = sc_engine_deadline(d->engine);
    sc_mutex_unlock(d->lock);
}

static void run_timers(sc_driver *d, int64_t now, int *urgent) {
    /* A thread that was not scheduled must not mistake unread datagrams for silence. */
    if (now - d->round.deadline > LATE_NS) sc_intake(d, SC_IO_ALL, SC_RECEIVE_FIRST, urgent);
    sc_mutex_lock(d->lock);
    uint64_t before = sc_engine_unsent(d->engine);
    sc_engine_tick(d->engine, now);
    sc_intake_measure(d);
    sc_tell_engine_news(d);
    *urgent |= sc_engine_urgent(d->engine) || sc_engine_unsent(d->engine) > before;
    d->round.deadline = sc_engine_deadline(d->engine);
    sc_mutex_unlock(d->lock);
}

/* Records how late the scheduler woke this thread, relative to `due`. */
static void slept(sc_driver *d, int64_t due) { sc_pace_late(&d->round.pace, sc_now() - due); }

static void nap(sc_driver *d, int64_t until) {
    const sc_pace *pace = &d->round.pace;
    int64_t now = sc_now(), came = (int64_t)d->round.came;
    int64_t end = sc_pace_nap(pace, came, sc_earlier(until, d->round.deadline), now);
    if (d->round.cut_short || !end) return;
    sc_count(&d->counters->naps, 1);
    uint64_t most = sc_counted(&d->counters->nap_bytes);
    if (pace->nap_bytes > most) sc_count(&d->counters->nap_bytes, pace->nap_bytes - most);
    sc_sleep(end - now);
    slept(d, end);
}

/* Polling an empty socket costs about 10 % of a hop and delays the other sockets. So the socket that brought the last
 * message is looked at most often: a conversation is by multicast or by unicast. A few messages reach the application
 * before any other socket is looked at. */
static uint64_t look(sc_driver *d, int first, int *urgent) {
    const int streams = 1 << (d->io.apart ? SC_LANE_CONTROL : SC_LANE_DATA) | 1 << SC_LANE_UNICAST;
    uint32_t nth = ++d->round.looks;
    if (nth % LOOKS == 0) return sc_intake(d, SC_IO_ALL, first, urgent);
    int lanes = nth % (LOOKS / 2) == 0 ? streams : 1 << d->round.talk;
    uint64_t bytes = sc_intake(d, lanes, first, urgent);
    if (bytes <= LOOK_BYTES || lanes == streams) return bytes;
    int talk = d->round.talk; /* the other stream brings acks and the like, not the conversation */
    bytes += sc_intake(d, streams & ~lanes, first, urgent);
    d->round.talk = talk;
    return bytes;
}

static void leave_core(sc_driver *d, int64_t now) {
    if (!sc_pace_yields(&d->round.pace, now)) {
        sc_relax();
        return;
    }
    now = sc_now(); /* the look has taken time, too */
    sc_yield();
    sc_pace_yielded(&d->round.pace, now, sc_now());
}

/* Looks at the sockets repeatedly for this time, or until another thread wakes this one; returns the bytes received.
 * Many datagrams may be there at the first look; the thread waits for those that come later. */
static uint64_t spin(sc_driver *d, int64_t ns, int64_t until, int *urgent) {
    int64_t now = sc_now(), end = sc_earlier(now + ns, until);
    uint64_t bytes = 0;
    int first = SC_RECEIVE_FIRST;
    while (now < end && now < d->round.deadline) {
        bytes = look(d, first, urgent);
        if (bytes || sc_load(&d->io.woken) || sc_is_waited(d, SC_WANT_ANY) || sc_load(&d->stop)) break;
        first = SC_RECEIVE_ONE;
        leave_core(d, now);
        now = sc_now();
    }
    if (bytes) sc_pace_found(&d->round.pace);
    return bytes;
}

static void read_deadline(sc_driver *d) {
    sc_mutex_lock(d->lock);
    d->round.deadline = sc_engine_deadline(d->engine);
    sc_mutex_unlock(d->lock);
}

static uint64_t poll_briefly(sc_driver *d, int64_t until, int *urgent) {
    if (!sc_pace_polls(&d->round.pace, until, sc_now())) return 0;
    uint64_t bytes = spin(d, SC_PACE_POLL_NS, until, urgent);
    sc_count(&d->counters->polls, 1);
    sc_pace_polled(&d->round.pace, bytes > 0);
    return bytes;
}

/* Sleeps on the sockets; returns the bytes received. A thread that transmits wakes it if the deadline that this leaves
 * is before `sleep_until`; one that transmitted before that was set has left a deadline that is read after it. A timer
 * would have to be taken back when a message comes, which costs about 5 % of a hop on a virtual machine: while the I/O
 * thread covers the time, there is none. */
static uint64_t wait_on_sockets(sc_driver *d, int64_t until, int *woken, int *urgent) {
    int64_t end = sc_earlier(until, d->round.deadline);
    sc_store(&d->waits.sleep_until, end);
    read_deadline(d);
    end = sc_earlier(end, d->round.deadline);
    sc_store(&d->waits.untimed, end);
    if (end < sc_load(&d->waits.covered_from)) sc_store(&d->waits.untimed, 0);
    int untimed = sc_load(&d->waits.untimed) != 0;
    int64_t left = end - sc_now(); /* read last: a thread that loses its core after this sleeps too long by that time */
    int lanes = sc_io_poll(&d->io, left < 0 ? 0 : untimed ? -1 : left);
    if (left > 0 && !untimed) slept(d, end);
    sc_store(&d->waits.untimed, 0);
    sc_store(&d->waits.sleep_until, 0);
    *woken = lanes & SC_IO_WOKEN && !sc_exchange(&d->waits.woken_by_io, 0);
    return lanes & SC_IO_ALL ? sc_intake(d, lanes, SC_RECEIVE_FIRST, urgent) : 0;
}

static void measure(sc_driver *d, int64_t now) {
    sc_pace_load load = {(int64_t)sc_counted(&d->turn.packed_at), sc_is_waited(d, SC_WANT_ANY), d->round.gather};
    sc_pace_measure(&d->round.pace, &load, now);
    sc_store(&d->round.loaded, d->round.pace.loaded);
}

/* After receiving this many bytes: timers, flushes, and the threads that wait for them. */
static void end_round(sc_driver *d, uint64_t bytes, int urgent) {
    int64_t now = bytes ? (int64_t)d->round.came : sc_now();
    d->round.cut_short = bytes >= SC_ROUND_BYTES_MAX;
    if (sc_pace_count(&d->round.pace, bytes, now)) measure(d, now);
    take_refusals(d, now);
    int due = now >= d->round.deadline, flushes = sc_takes_over(d) || urgent;
    /* The holder checks again before waiting: its own transmissions need not wake anybody. */
    if (due || flushes) sc_store(&d->waits.caller_wants, 0);
    if (due) run_timers(d, now, &urgent);
    d->round.ran = sc_now();
    if (flushes || urgent) sc_driver_flush(d, 0, d->round.ran); /* `now` lies before all that was received */
    if (bytes || due) sc_wake_waiting(d);
}

int sc_round_run(sc_driver *d, int64_t until, int may_nap) {
    int urgent = 0, woken = 0;
    sc_count(&d->counters->rounds, 1);
    if (may_nap && d->round.pace.nap_ns > 0) nap(d, until);
    int64_t spins = d->config.busy_poll_ns;
    uint64_t bytes = spins > 0 ? spin(d, spins, until, &urgent) : poll_briefly(d, until, &urgent);
    if (bytes == 0) bytes = wait_on_sockets(d, until, &woken, &urgent);
    end_round(d, bytes, urgent);
    return woken;
}

int sc_round_poll(sc_driver *d) {
    int urgent = 0;
    read_deadline(d);
    d->round.pace.talks = 1;
    uint64_t bytes = poll_briefly(d, SC_NEVER, &urgent);
    if (bytes == 0) return 0;
    sc_count(&d->counters->rounds, 1);
    end_round(d, bytes, urgent);
    return 1;
}
