/* One round of the receive role's holder: wait, receive, run timers, transmit what is urgent. */
#include "io/driver_internal.h"

#include <stdlib.h>

#define ROUND_BYTES_MAX (1u << 20) /* a round checks the timers again after this much */
#define LOAD_PERIOD_NS 1000000
#define LOAD_BYTES (256u << 10) /* in a period: the receiver is under load */
#define LOAD_PACKETS 32
#define FEW 4 /* packets that a round brings of a conversation */
#define WORTH 2 /* or a nap would gather a half of that */
#define LATER 4 /* a thread that gets a core late may nap this many times as long as it is late ... */
#define LONGER 8 /* ... but at most this many times as long as the setting */
#define GATHER_BYTES (768u << 10) /* what a nap should gather, but no more than triggers an ack */
#define ONE 1 /* of the datagrams that are there */
#define FIRST_BATCH 4 /* also of large buffers: they are checked and ordered while they are in the cache */
#define LOOKS 16 /* of a spinning thread: every 16th reads all sockets, and every 8th both stream sockets */
#define POLL_NS 25000 /* of a sequencer: about what it takes to wake a thread on a core that sleeps */
#define POLL_PAYS 2 /* what a poll finds pays for two in vain */
#define POLLS_MAX 8 /* in vain, after many that paid */
#define POLL_TRIES 16 /* where polls do not pay, every 16th wait tries one */
#define KEPT_NS 200000 /* a thread that has the core for longer computes, rather than takes part in a conversation */
#define YIELD_PAUSE_NS_MIN 1000000
#define YIELD_PAUSE_NS_MAX 500000000
#define YIELD_BACKS_OFF 4
#define YIELD_FINDS 256 /* what so many looks find takes two thirds off the pause */
#define LOOK_BYTES 4096 /* when one stream brought this much, it looks at the other one, too */
#define REFUSALS 16
#define LATE_NS 1000000
#define LATENESSES 8 /* the mean of about so many */

int sc_round_init(sc_round *round) {
    round->scratch = malloc((size_t)SC_IO_BATCH_MAX * SC_SLAB_BYTES);
    return round->scratch ? 0 : -1;
}

/* Under the engine's lock. */
static void give_up_slot(sc_driver *d, int i) {
    if (d->round.shared[i] != NULL) sc_slab_unref(d->round.shared[i]);
    d->round.shared[i] = NULL;
    d->round.in[i].slot = NULL;
}

void sc_round_free(sc_driver *d) {
    sc_mutex_lock(d->lock);
    for (int i = 0; i < SC_IO_BATCH_MAX; i++) {
        if (d->round.slabs[i] != NULL) sc_slab_unref(d->round.slabs[i]);
        d->round.slabs[i] = NULL;
        give_up_slot(d, i);
    }
    sc_mutex_unlock(d->lock);
    free(d->round.scratch);
    d->round.scratch = NULL;
}

/* ---- receiving ---------------------------------------------------------------------------------------------- */

/* A datagram of at least half a slot stays there; of a smaller one a copy takes less. */
static int stays(const sc_driver *d, const sc_io_datagram *in) {
    return in->p == in->slot && in->len >= d->round.room / 2;
}

/* Fills the first `n` receive buffers; under the engine's lock. */
static void prepare(sc_driver *d, int n) {
    sc_slab_pool *pool = sc_engine_pool(d->engine);
    for (int i = 0; i < n; i++) {
        if (d->round.shared[i] != NULL && (!d->round.small || stays(d, &d->round.in[i]))) give_up_slot(d, i);
        if (d->round.small && d->round.in[i].slot == NULL)
            d->round.in[i].slot = sc_slab_share(pool, &d->round.sharing, d->round.room, &d->round.shared[i]);
        if (d->round.slabs[i] != NULL && d->round.slabs[i]->refs > 1) { /* the engine keeps it */
            sc_slab_unref(d->round.slabs[i]);
            d->round.slabs[i] = NULL;
        }
        if (d->round.slabs[i] == NULL) d->round.slabs[i] = sc_slab_get(pool);
        d->round.in[i].whole =
            d->round.slabs[i] != NULL ? d->round.slabs[i]->data : d->round.scratch + (size_t)i * SC_SLAB_BYTES;
    }
}

/* The slab in which a datagram may stay, or NULL. */
static sc_slab *slab_of(const sc_driver *d, int i) {
    const sc_io_datagram *in = &d->round.in[i];
    if (in->p == in->slot) return stays(d, in) ? d->round.shared[i] : NULL;
    return in->len < SC_SLAB_BYTES / 4 ? NULL : d->round.slabs[i]; /* a copy costs less than the rest of the slab */
}

/* Slots are as large as a full packet of the view that the last timers found, if several of them share a slab. */
static void measure_slots(sc_driver *d) {
    size_t room = sc_engine_packet_bytes(d->engine);
    if (room > SC_SLAB_BYTES / 4) room = 0;
    if (room == d->round.room) return;
    for (int i = 0; i < SC_IO_BATCH_MAX; i++) give_up_slot(d, i);
    d->round.room = room;
}

/* Passes datagrams received on a lane to the engine; returns their bytes. */
static uint64_t take_in(sc_driver *d, int lane, int got, int *urgent) {
    uint64_t bytes = 0;
    int64_t now = sc_now();
    sc_count(&d->round.came, (uint64_t)now - d->round.came);
    sc_mutex_lock(d->lock);
    uint64_t before = sc_engine_unsent(d->engine), stamped = sc_engine_stamped(d->engine);
    size_t largest = 0;
    for (int i = 0; i < got; i++) {
        const sc_io_datagram *in = &d->round.in[i];
        bytes += in->len;
        if (in->len > largest) largest = in->len;
        d->round.load_packets += in->segment > 0 ? in->len / in->segment + 1 : 1;
        sc_engine_receive(d->engine, slab_of(d, i), in->p, in->len, in->segment, &in->from, lane, now);
    }
    d->round.small = largest <= d->round.room;
    prepare(d, got); /* the others are as they were */
    sc_tell_engine_news(d);
    /* Acks and the like, and complete packets that a sequencer has just stamped. */
    *urgent |= sc_engine_urgent(d->engine) || sc_engine_unsent(d->engine) > before;
    if (sc_engine_stamped(d->engine) != stamped) d->round.ordered_at = now;
    d->round.gather = sc_engine_window(d->engine) / 4;
    sc_mutex_unlock(d->lock);
    return bytes;
}

/* Each datagram that a call may bring costs preparation, and where fewer have come the kernel looks for another one in vain. So
 * the first call asks for `first`, and calls continue as long as each brings all that it asked for; but a thread that spins asks
 * for ONE, which the application gets at once. */
static uint64_t receive_lane(sc_driver *d, int lane, int first, int *urgent) {
    int got, asked, batch = first, most = d->io.config.receive_batch;
    uint64_t bytes = 0;
    do {
        asked = batch < most ? batch : most;
        got = sc_io_receive(&d->io, lane, d->round.in, asked, asked > ONE ? d->round.room : 0);
        if (got == 0) break;
        if (d->round.in[got - 1].len < SC_SLAB_BYTES / 4) batch = most;
        bytes += take_in(d, lane, got, urgent);
    } while (first != ONE && got == asked && bytes < ROUND_BYTES_MAX);
    return bytes;
}

/* Receives what has arrived on `lanes`, or ONE of each. Sets *urgent if something has to be transmitted. */
static uint64_t receive(sc_driver *d, int lanes, int first, int *urgent) {
    static const int order[SC_IO_SOCKETS] = {SC_LANE_CONTROL, SC_LANE_UNICAST, SC_LANE_DATA};
    uint64_t bytes = 0;
    if (d->round.in[0].whole == NULL) { /* the first round */
        sc_mutex_lock(d->lock);
        prepare(d, d->io.config.receive_batch);
        sc_mutex_unlock(d->lock);
    }
    for (int k = 0; k < SC_IO_SOCKETS; k++) {
        uint64_t got = lanes & 1 << order[k] ? receive_lane(d, order[k], first, urgent) : 0;
        if (got && order[k] != SC_LANE_CONTROL) d->round.talk = order[k];
        bytes += got;
    }
    return bytes;
}

/* Refused ports, which suggest that members were killed. */
static void take_refusals(sc_driver *d, int64_t now) {
    sc_address to[REFUSALS];
    int n = sc_io_refused(&d->io, to, REFUSALS);
    sc_mutex_lock(d->lock);
    for (int i = 0; i < n; i++) sc_engine_refused(d->engine, &to[i], SC_EVIDENCE_PORT, now);
    d->round.deadline = sc_engine_deadline(d->engine);
    sc_mutex_unlock(d->lock);
}

static void run_timers(sc_driver *d, int64_t now, int *urgent) {
    sc_mutex_lock(d->lock);
    uint64_t before = sc_engine_unsent(d->engine);
    sc_engine_tick(d->engine, now);
    measure_slots(d);
    sc_tell_engine_news(d);
    *urgent |= sc_engine_urgent(d->engine) || sc_engine_unsent(d->engine) > before;
    d->round.deadline = sc_engine_deadline(d->engine);
    sc_mutex_unlock(d->lock);
}

/* This thread, which slept, was to run again at `due` at the latest. */
static void measure_lateness(sc_driver *d, int64_t due) {
    int64_t late = sc_earlier(sc_now() - due, LONGER * d->config.nap_ns);
    if (late >= 0) d->round.late_ns += (late - d->round.late_ns) / LATENESSES;
}

/* Where more threads want to run than there are cores, a wake-up delays the others, and each message waits for a core anyway. But
 * a thread of this process that sends may wait for acks, and others wait for a sequencer. */
static int64_t longest_nap(sc_driver *d, int sent, int orders) {
    int64_t ns = sc_earlier(LATER * d->round.late_ns, LONGER * d->config.nap_ns);
    int awaited = sent || orders || sc_load(&d->role.waiting);
    return awaited || ns < d->config.nap_ns ? d->config.nap_ns : ns;
}

/* Under load: many bytes, or many packets, unless they are a conversation: answers to what the application sends, or few at a time
 * whose senders wait for this member to order them. */
static void measure_load(sc_driver *d, uint64_t bytes, int64_t now) {
    d->round.load_bytes += bytes;
    d->round.load_rounds += bytes > 0;
    int64_t period = now - d->round.load_since;
    if (period < LOAD_PERIOD_NS) return;
    int sent = (int64_t)sc_counted(&d->turn.packed_at) >= d->round.load_since;
    int orders = d->round.ordered_at > d->round.load_since;
    int talk = sent || (orders && d->round.load_packets <= FEW * d->round.load_rounds);
    int loaded = d->round.load_bytes * LOAD_PERIOD_NS / (uint64_t)period >= LOAD_BYTES ||
                 (!talk && d->round.load_packets * LOAD_PERIOD_NS / (uint64_t)period >= LOAD_PACKETS);
    sc_store(&d->round.loaded, loaded);
    uint64_t gather = d->round.gather < GATHER_BYTES ? d->round.gather : GATHER_BYTES;
    int64_t nap_ns = longest_nap(d, sent, orders);
    int worth = d->round.load_bytes * (uint64_t)nap_ns / (uint64_t)period >= LOAD_BYTES / WORTH ||
                (!talk && d->round.load_packets * (uint64_t)nap_ns / (uint64_t)period >= LOAD_PACKETS / WORTH);
    d->round.nap_ns =
        loaded || worth ? sc_earlier(nap_ns, (int64_t)(gather * (uint64_t)period / (d->round.load_bytes + 1))) : 0;
    d->round.nap_bytes = (uint64_t)d->round.nap_ns * d->round.load_bytes / (uint64_t)period;
    d->round.load_since = now;
    d->round.load_bytes = d->round.load_packets = d->round.load_rounds = 0;
}

/* ---- the round ---------------------------------------------------------------------------------------------- */

/* Under load: lets datagrams accumulate, so that more are received at once. They have done so while the application handled the
 * last ones: a nap lasts only for what is left of that time. */
static void nap(sc_driver *d, int64_t until) {
    int64_t now = sc_now(), gathered = (int64_t)d->round.came + d->round.nap_ns;
    int64_t end = sc_earlier(gathered, sc_earlier(until, d->round.deadline));
    if (d->round.cut_short || now >= end) return;
    sc_count(&d->counters.naps, 1);
    uint64_t most = sc_counted(&d->counters.nap_bytes);
    if (d->round.nap_bytes > most) sc_count(&d->counters.nap_bytes, d->round.nap_bytes - most);
    sc_sleep(end - now);
    measure_lateness(d, end);
}

/* Looking at an empty socket costs a tenth of the way of a message from process to process, and a message that arrives at
 * another one meanwhile waits for it. So the socket that brought the last message is looked at most often: a conversation is by
 * multicast or by unicast. A few messages reach the application before any other socket is looked at. */
static uint64_t look(sc_driver *d, int first, int *urgent) {
    const int streams = 1 << SC_LANE_DATA | 1 << SC_LANE_UNICAST;
    uint32_t turn = ++d->round.looks;
    if (turn % LOOKS == 0) return receive(d, SC_IO_ALL, first, urgent);
    int lanes = turn % (LOOKS / 2) == 0 ? streams : 1 << d->round.talk;
    uint64_t bytes = receive(d, lanes, first, urgent);
    if (bytes <= LOOK_BYTES || lanes == streams) return bytes;
    int talk = d->round.talk; /* what the other stream brings beside it, such as acks, is not what is talked about */
    bytes += receive(d, streams & ~lanes, first, urgent);
    d->round.talk = talk;
    return bytes;
}

/* Leaves the core to threads that want to run, but not where one of them keeps it: a datagram wakes no thread that is ready to run
 * already, and so waits for as long as that. Each time the pause until the next try is longer. */
static void leave_core(sc_driver *d, int64_t now) {
    if (sc_load(&d->round.loaded) || now < d->round.yields_at) {
        sc_relax();
        return;
    }
    sc_yield();
    int64_t back = sc_now();
    if (back - now < KEPT_NS) return;
    d->round.yield_pause = sc_earlier(d->round.yield_pause * YIELD_BACKS_OFF + YIELD_PAUSE_NS_MIN, YIELD_PAUSE_NS_MAX);
    d->round.yields_at = back + d->round.yield_pause;
}

/* Looks at the sockets repeatedly for this time, or until another thread wakes this one; returns the bytes received. What is
 * there at the first look may be many datagrams; what comes later is what the thread waits for. */
static uint64_t spin(sc_driver *d, int64_t ns, int64_t until, int *urgent) {
    int64_t now = sc_now(), end = sc_earlier(now + ns, until);
    uint64_t bytes = 0;
    int first = FIRST_BATCH;
    while (now < end && now < d->round.deadline) {
        bytes = look(d, first, urgent);
        if (bytes || sc_load(&d->io.woken) || sc_load(&d->role.waiting) || sc_load(&d->stop)) break;
        first = ONE;
        leave_core(d, now);
        now = sc_now();
    }
    if (bytes) d->round.yield_pause -= d->round.yield_pause / YIELD_FINDS;
    return bytes;
}

/* A sequencer in a conversation: others wait for it, and each wake-up of it delays them. What it waits for often comes sooner than
 * a thread is woken, so it polls as long as that is so and no other thread keeps the core. */
static uint64_t poll_briefly(sc_driver *d, int64_t until, int *urgent) {
    int paid = d->round.polls > 0;
    int64_t now = sc_now();
    if (d->round.nap_ns > 0 || until - now < POLL_NS || now - d->round.ordered_at >= LOAD_PERIOD_NS) return 0;
    if (now < d->round.yields_at || (!paid && ++d->round.unpolled % POLL_TRIES)) return 0;
    uint64_t bytes = spin(d, POLL_NS, until, urgent);
    sc_count(&d->counters.polls, 1);
    if (bytes)
        d->round.polls = d->round.polls + POLL_PAYS < POLLS_MAX ? d->round.polls + POLL_PAYS : POLLS_MAX;
    else
        d->round.polls -= paid;
    return bytes;
}

/* Sleeps on the sockets; returns the bytes received. A thread that transmits wakes it if the deadline that this leaves is before
 * `sleep_until`; one that transmitted before that was set has left a deadline that is read after it. A timer would have to be
 * taken back when a message comes, which is a twentieth of the way of a message on a virtual machine: where the I/O thread minds the
 * time, there is none. */
static uint64_t wait_on_sockets(sc_driver *d, int64_t until, int *woken, int *urgent) {
    int64_t end = sc_earlier(until, d->round.deadline);
    sc_store(&d->waits.sleep_until, end);
    sc_mutex_lock(d->lock);
    d->round.deadline = sc_engine_deadline(d->engine);
    sc_mutex_unlock(d->lock);
    end = sc_earlier(end, d->round.deadline);
    int64_t left = end - sc_now();
    sc_store(&d->waits.untimed, end);
    if (end < sc_load(&d->waits.minded_from)) sc_store(&d->waits.untimed, 0);
    int untimed = sc_load(&d->waits.untimed) != 0;
    int lanes = sc_io_poll(&d->io, left < 0 ? 0 : untimed ? -1 : left);
    if (left > 0 && !untimed) measure_lateness(d, end);
    sc_store(&d->waits.untimed, 0);
    sc_store(&d->waits.sleep_until, 0);
    *woken = lanes & SC_IO_WOKEN && !sc_exchange(&d->waits.rung, 0);
    return lanes & SC_IO_ALL ? receive(d, lanes, FIRST_BATCH, urgent) : 0;
}

int sc_round_run(sc_driver *d, int64_t until, int may_nap) {
    int urgent = 0, woken = 0;
    sc_count(&d->counters.rounds, 1);
    if (may_nap && d->round.nap_ns > 0) nap(d, until);
    int64_t spins = d->config.busy_poll_ns;
    uint64_t bytes = spins > 0 ? spin(d, spins, until, &urgent) : poll_briefly(d, until, &urgent);
    if (bytes == 0) bytes = wait_on_sockets(d, until, &woken, &urgent);
    int64_t now = bytes ? (int64_t)d->round.came : sc_now();
    d->round.cut_short = bytes >= ROUND_BYTES_MAX;
    measure_load(d, bytes, now);
    if (sc_load(&d->io.troubled)) take_refusals(d, now);
    int due = now >= d->round.deadline, flushes = sc_takes_over(d) || urgent;
    /* It checks again before it waits: what it transmits now need not wake it. */
    if (due || flushes) sc_store(&d->waits.caller_wants, 0);
    if (due) {
        /* A thread that was not scheduled must not mistake unread datagrams for silence. */
        if (now - d->round.deadline > LATE_NS) receive(d, SC_IO_ALL, FIRST_BATCH, &urgent);
        run_timers(d, now, &urgent);
    }
    d->round.ran = sc_now();
    if (flushes || urgent) sc_driver_flush(d, 0, d->round.ran); /* `now` lies before all that was received */
    return woken;
}
