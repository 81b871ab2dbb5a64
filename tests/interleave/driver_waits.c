/* Who must be woken: two members, whose threads run in an order that a seed draws (world.c), and after each step that
 * leaves no thread able to run a look at each thread's condition. A wait whose condition holds by then has missed its
 * wake-up: a timer that would end the wait later makes it slow instead of endless, and counts as missed, too.
 *
 * driver_waits SEED COUNT         built and run by tests/interleave/run */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../helpers/driver_settings.h"
#include "io/driver_internal.h"
#include "world.h"

#define MEMBERS 2
#define DELAY_NS 20000 /* of a wake-up: less than any timer of the driver */
#define SLACK_NS 500000 /* by which transmit.c lets a deadline pass */
#define ASLEEP_NS 1500000 /* the I/O thread sleeps until unsent bytes are due, and may have lost its core before */
#define STANDBY_NS 9000000 /* nobody receives, or a thread that lost its core sleeps too long, for at most this long */
#define ANSWER_NS 2000000000LL /* of the whole run */
#define MARKS 64
#define ENOUGH_WOKEN 1000 /* for a share to mean something */

enum {
    DUE_WAIT,
    DUE_TURN,
    DUE_ROLE,
    DUE_IDLE,
    DUE_LOOP,
    DUE_CONTROL,
    DUE_TIMER,
    DUE_SOCKET,
    DUE_FLUSH,
    DUE_URGENT,
    DUE_UNSENT,
    DUE_STOP,
    KINDS
};
static const char *const missed[KINDS] = {
    "has what it waits for",
    "may send",
    "may take the role",
    "is asked for something",
    "has something to deliver or to receive",
    "has an event",
    "has timers due",
    "has datagrams",
    "has a flush to take over",
    "has something urgent to send",
    "has unsent bytes",
    "may go on after a stop",
};

typedef struct {
    sc_engine *engine;
    sc_mutex lock;
    sc_driver driver;
    const thread *io;
    uint64_t id, other;
    uint64_t delivered, of_others;
    uint64_t expected; /* messages to be delivered here */
    uint64_t came; /* the driver's, as of the last look */
    int senders; /* that have not finished */
    int loop; /* the thread that takes is an event loop */
    int busy; /* the reader works between its messages */
    int64_t lazy; /* the deadline of an ack that began when the application took something: see below */
    int left; /* threads beside the I/O thread and the script that have not ended */
    int ends; /* the application may end its sends before the stop */
    int mends; /* how many more times its interface is recreated */
} member;

static member members[MEMBERS];
static int64_t overdue[KINDS][16];

/* ---- the look ---------------------------------------------------------------------------------------------------- */

/* Something has been due for all quiet times up to `next`. */
static void owe(int kind, int i, const char *who, int due, int64_t bound, int64_t next) {
    if (!due)
        overdue[kind][i] = 0;
    else if ((overdue[kind][i] += next - world_time()) > bound)
        world_fail("%s %s, and nobody tells it before %.3f us", who, missed[kind], (double)next / 1e3);
}

static int precedes(const sc_driver *d, const sc_sending *first, int callback) {
    return (!callback || first->state.done || first->state.wait_seqno) && !sc_engine_sends_ended(d->engine);
}

/* A block callback goes before messages that have not begun. */
static int may_send(const sc_driver *d, uint64_t id) {
    int callback = d->turn.callback == id;
    const sc_sending *first = d->turn.first;
    while (first && !precedes(d, first, callback)) first = first->next_first;
    return first == NULL;
}

static int waits_for_role(const sc_driver *d, const thread *t) {
    int waits = t->on == &d->role.freed;
    for (int k = 0; k < SC_WANTS; k++) waits |= t->on == &d->role.came[k];
    return waits;
}

static uint64_t woken, for_nothing; /* callers, in all schedules */

/* A caller without the role is woken for the role, or for its own condition. */
void world_woken(const thread *t) {
    if (!t->want) return;
    const sc_driver *d = &((member *)t->arg)->driver;
    woken++;
    for_nothing += !d->stop && d->role.holder != SC_ROLE_FREE && !sc_has(d, t->want, t->mark);
}

/* The conditions of callers. */
static void look_at_caller(const member *m, const thread *t, int i, int64_t next) {
    const sc_driver *d = &m->driver;
    int64_t bound =
        sc_engine_unsent(m->engine) ? STANDBY_NS : DELAY_NS; /* of own packets its thread is told at their send */
    int polls = d->role.holder == SC_ROLE_IO && m->io->state == WORLD_POLL; /* and is not kicked */
    int free = polls || d->role.holder == SC_ROLE_FREE, loops = t->n_fds == 1 && !world_readable(t->fds[0].fd);
    int there = d->stop || (d->role.loop && polls) || sc_engine_deliverable(m->engine);
    owe(DUE_WAIT, i, t->name, t->want && (d->stop || sc_has(d, t->want, t->mark)), bound, next);
    owe(DUE_TURN, i, t->name, t->on == &d->turn.free && (d->stop || may_send(d, (uint64_t)i + 1)), DELAY_NS, next);
    owe(DUE_ROLE, i, t->name, waits_for_role(d, t) && !d->stop && free, DELAY_NS, next);
    owe(DUE_LOOP, i, t->name, loops && there, bound, next);
}

/* The conditions of the I/O thread and the control thread. */
static void look_at_server(const member *m, const thread *t, int i, int64_t next) {
    const sc_driver *d = &m->driver;
    int asked = d->role.handed || d->tx.handed || d->tx.flush_asked;
    int told = d->stop || d->waits.control_kicked || sc_engine_has_event(m->engine);
    owe(DUE_IDLE, i, t->name, t->on == &d->role.io_idle && asked, DELAY_NS, next);
    owe(DUE_CONTROL, i, t->name, t->on == &d->waits.control && told, DELAY_NS, next);
}

/* The script stops and closes drivers. */
static void look_at_script(const thread *t, int i, int64_t next) {
    int due = 0;
    for (int k = 0; k < MEMBERS; k++) {
        const sc_role *role = &members[k].driver.role;
        due |= t->on == &role->freed && !role->callers && role->holder == SC_ROLE_FREE;
    }
    owe(DUE_STOP, i, t->name, due, DELAY_NS, next);
}

static void look_at_member(member *m, int64_t next) {
    static const char *const names[MEMBERS] = {"member 1", "member 2"};
    const sc_driver *d = &m->driver;
    int i = (int)m->id, datagrams = 0;
    int64_t late = world_time() - sc_engine_deadline(m->engine);
    for (int lane = 0; lane < SC_IO_SOCKETS && !d->closed; lane++) datagrams |= world_readable(d->io.fd[lane]);
    int works = !d->stop && !m->lock.held;
    /* Others came since the last look: while a thread polls, no time is quiet. */
    if (m->came != d->round.came) overdue[DUE_SOCKET][i] = 0;
    m->came = d->round.came;
    owe(DUE_TIMER, i, names[i - 1], works && late > SLACK_NS && world_time() - late != m->lazy, STANDBY_NS, next);
    owe(DUE_SOCKET, i, names[i - 1], works && datagrams, STANDBY_NS, next);
    owe(DUE_FLUSH, i, names[i - 1], works && (d->tx.wanted || d->tx.handed), ASLEEP_NS, next);
    owe(DUE_URGENT, i, names[i - 1], works && sc_engine_urgent(m->engine), STANDBY_NS, next);
    owe(DUE_UNSENT, i, names[i - 1], works && sc_engine_unsent(m->engine), STANDBY_NS, next);
}

static void look(int64_t next) {
    int n;
    const thread *threads = world_threads(&n);
    for (int i = 0; i < n; i++) {
        int waits = threads[i].arg && (threads[i].state == WORLD_COND || threads[i].state == WORLD_POLL);
        for (int kind = 0; kind < DUE_TIMER && !waits; kind++) overdue[kind][i] = 0;
        if (waits) look_at_caller(threads[i].arg, &threads[i], i, next);
        if (waits) look_at_server(threads[i].arg, &threads[i], i, next);
        if (!threads[i].arg) look_at_script(&threads[i], i, next);
    }
    for (int i = 0; i < MEMBERS; i++) look_at_member(&members[i], next);
}

static thread *self(void) {
    int n;
    return &world_threads(&n)[world_thread() - 1];
}

static int64_t notes_want(__typeof__(sc_drive) *drive, sc_driver *d, int want, uint64_t mark, int64_t until) {
    self()->mark = mark;
    self()->want = want;
    int64_t found_at = drive(d, want, mark, until);
    self()->want = 0;
    return found_at;
}

/* Declared as the headers do: the linker would not notice another type. */
__typeof__(sc_drive) __real_sc_drive, __wrap_sc_drive;
int64_t __wrap_sc_drive(sc_driver *d, int want, uint64_t mark, int64_t until) {
    return notes_want(__real_sc_drive, d, want, mark, until);
}
__typeof__(sc_role_rounds) __real_sc_role_rounds, __wrap_sc_role_rounds;
int64_t __wrap_sc_role_rounds(sc_driver *d, int want, uint64_t mark, int64_t until) {
    return notes_want(__real_sc_role_rounds, d, want, mark, until);
}

/* The delayed ack of taken messages is told to nobody: its sender probes after a delay, and to wake the I/O thread for
 * each message that an event loop takes would cost more. */
__typeof__(sc_engine_deliver) __real_sc_engine_deliver, __wrap_sc_engine_deliver;
int __wrap_sc_engine_deliver(sc_engine *e, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int64_t now) {
    int64_t before = sc_engine_deadline(e);
    int result = __real_sc_engine_deliver(e, batch, bytes_max, marker, now);
    if (sc_engine_deadline(e) < before) ((member *)self()->arg)->lazy = sc_engine_deadline(e);
    return result;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void io(thread *t) { sc_driver_run(&((member *)t->arg)->driver); }

static void events(member *m) {
    sc_event event;
    for (int found = 1; found;) {
        sc_mutex_lock(&m->lock);
        found = sc_engine_event(m->engine, &event);
        sc_mutex_unlock(&m->lock);
        if (found) free(event.payload);
    }
}

enum { SAY, MARK, PAUSE, RESUME, END };

/* As the control thread changes the engine, and then pokes the driver. */
static void change(member *m, int what) {
    sc_mutex_lock(&m->lock);
    if (what == SAY) sc_engine_control_send(m->engine, NULL, (const uint8_t *)"control", 7, 0);
    if (what == MARK) sc_engine_mark(m->engine, 7);
    if (what == PAUSE) sc_engine_pause(m->engine);
    if (what == RESUME) sc_engine_resume(m->engine);
    if (what == END) sc_engine_end_sends(m->engine);
    sc_mutex_unlock(&m->lock);
    sc_driver_poke(&m->driver);
}

static void act(member *m) {
    sc_io_error error;
    int what = (int)world_draw(8);
    if (what < 2) {
        change(m, what);
    } else if (what == 2) {
        change(m, PAUSE);
        sc_sleep((int64_t)world_draw(2000000));
        change(m, RESUME);
    } else if (what > 3 && m->ends) {
        change(m, END);
    } else if (what == 3 && m->mends) {
        m->mends--;
        sc_driver_mend(&m->driver, &error);
    }
}

static void control(thread *t) {
    member *m = t->arg;
    while (!m->driver.stop) {
        sc_driver_wait_control(&m->driver,
                               sc_now() + 1000000 + (int64_t)world_draw(world_draw(4) ? 5000000 : 5000000000), 0);
        events(m);
        act(m);
    }
    m->left--;
}

/* As an application that has left requests for the control thread. */
static void kick(thread *t) {
    member *m = t->arg;
    for (uint64_t left = 1 + world_draw(20); left && !m->driver.stop; left--) {
        sc_sleep((int64_t)world_draw(20000000));
        sc_driver_kick_control(&m->driver);
    }
    m->left--;
}

static void expect(uint64_t to, uint64_t n) {
    for (int i = 0; i < MEMBERS; i++) members[i].expected += !to || to == members[i].id ? n : 0;
}

/* As a program in Python, which tries first, and comes back to the driver a little later. */
static int try_first(member *m, sc_sending *s) {
    int64_t now = sc_now();
    sc_mutex_lock(&m->lock);
    int result = sc_driver_send_now(&m->driver, s, now, sc_driver_wall(&m->driver, now));
    uint64_t unsent = sc_engine_unsent(m->engine);
    sc_mutex_unlock(&m->lock);
    if (result == SC_AGAIN) {
        sc_sleep((int64_t)world_draw(world_draw(2) ? 100000 : 3000000));
        return result;
    }
    int what = sc_driver_packed(&m->driver, unsent, s->answer, now);
    if (what != SC_FLUSH_NOTHING) sc_driver_flush(&m->driver, what == SC_FLUSH_ALL, now);
    return result;
}

static void send_one(member *m, uint64_t to, const uint8_t *p, uint64_t n) {
    sc_sending s = {.to = to, .data = p, .len = n};
    expect(to, 1);
    int result = world_draw(3) ? SC_AGAIN : try_first(m, &s);
    if (result == SC_AGAIN) result = sc_driver_send(&m->driver, &s, INT64_MAX);
    sc_driver_send_end(&m->driver, &s);
    if (result == SC_ENDED) expect(to, UINT64_MAX); /* one less */
}

static const uint8_t bytes[MARKS * 4000];

static void singles(thread *t) {
    member *m = t->arg;
    uint64_t most = world_draw(2) ? 100 : 12000;
    for (uint64_t left = 1 + world_draw(40); left; left--) {
        uint64_t to = world_draw(8) ? 0 : world_draw(4) ? m->other : m->id;
        send_one(m, to, bytes, world_draw(most));
        if (!world_draw(6)) sc_sleep((int64_t)world_draw(3000000));
        if (m->driver.stop) break;
    }
    m->senders--;
    m->left--;
}

static void arrays(thread *t) {
    member *m = t->arg;
    uint64_t marks[MARKS + 1];
    int64_t offsets[MARKS + 1];
    for (uint64_t left = 1 + world_draw(12); left && !m->driver.stop; left--) {
        sc_sending s = {.data = bytes,
                        .len = sizeof bytes,
                        .offsets = offsets,
                        .wide = 1,
                        .n = 1 + world_draw(MARKS),
                        .marks = marks};
        int64_t most = world_draw(2) ? 100 : 4000, at = 0;
        for (uint64_t i = 0; i <= s.n; i++, at += (int64_t)world_draw((uint64_t)most)) offsets[i] = at;
        expect(0, s.n);
        int result = sc_driver_send(&m->driver, &s, INT64_MAX);
        sc_driver_send_end(&m->driver, &s);
        if (result == SC_ENDED) expect(0, s.next - s.n);
        if (!world_draw(3)) sc_sleep((int64_t)world_draw(2000000));
    }
    m->senders--;
    m->left--;
}

/* Asks, and waits until the other member has taken the question. */
static void taking(thread *t) {
    member *m = t->arg;
    for (uint64_t left = 1 + world_draw(8); left && !m->driver.stop; left--) {
        sc_taking w = {0};
        send_one(m, 0, bytes, world_draw(3000));
        sc_mutex_lock(&m->lock);
        sc_taking_begin(m->engine, &w, sc_now());
        sc_mutex_unlock(&m->lock);
        sc_driver_taking(&m->driver, &w, INT64_MAX);
        sc_mutex_lock(&m->lock);
        sc_taking_end(m->engine, &w);
        sc_mutex_unlock(&m->lock);
    }
    m->senders--;
    m->left--;
}

/* A block callback sends, before others whose messages have not begun. */
static void callback(thread *t) {
    member *m = t->arg;
    for (uint64_t left = 1 + world_draw(6); left && !m->driver.stop; left--) {
        sc_driver_callback(&m->driver, 1);
        for (uint64_t n = 1 + world_draw(8); n; n--) send_one(m, 0, bytes, world_draw(3000));
        sc_driver_callback(&m->driver, 0);
        sc_sleep((int64_t)world_draw(2000000));
    }
    m->senders--;
    m->left--;
}

static int take(member *m, sc_batch *batch, int64_t until) {
    uint64_t marker;
    int64_t now = sc_now(), wall;
    int kind = sc_driver_deliver(&m->driver, batch, 1 << 16, &marker, until, 0, now, &wall);
    if (kind != SC_DELIVER_BATCH) return kind;
    m->delivered += batch->n;
    for (uint32_t r = 0; r < batch->n_runs; r++)
        if (batch->runs[r].sender != m->id) m->of_others += batch->runs[r].n;
    if (batch->n > 1) sc_driver_taken(&m->driver);
    if (m->busy && !world_draw(4)) sc_sleep((int64_t)world_draw(4000000));
    return kind;
}

static void give_back(member *m, sc_batch *batch) {
    sc_mutex_lock(&m->lock);
    sc_engine_give_back(m->engine, batch);
    sc_mutex_unlock(&m->lock);
    sc_batch_clear(batch);
}

static void wait_as_loop(member *m) {
    struct pollfd fd = {.fd = sc_driver_watch_fd(&m->driver), .events = POLLIN};
    for (int there = sc_driver_watch(&m->driver); !there; there = sc_driver_watched(&m->driver))
        ppoll(&fd, 1, NULL, NULL);
}

static void take_next(member *m, sc_batch *batch) {
    if (m->loop)
        while (take(m, batch, 0) == SC_DELIVER_NONE && !m->driver.stop) wait_as_loop(m);
    else
        take(m, batch, INT64_MAX);
}

static void reader(thread *t) {
    member *m = t->arg;
    sc_batch batch = {0};
    while (!m->driver.stop) take_next(m, &batch);
    give_back(m, &batch);
    m->left--;
}

/* The ping-pong of a program in C: member 1 asks, the other one answers. */
static void talk(thread *t) {
    member *m = t->arg;
    sc_batch batch = {0};
    uint64_t rounds = 3 + world_draw(30), size = world_draw(2) ? 64 : 5000;
    for (uint64_t i = 0; (m->id != 1 || i < rounds) && !m->driver.stop;) {
        if (m->id == 1 && m->of_others == i) {
            send_one(m, 0, bytes, size);
            i++;
        }
        for (uint64_t had = m->of_others; m->of_others == had && !m->driver.stop;) take_next(m, &batch);
        if (m->id != 1 && !m->driver.stop) send_one(m, 0, bytes, size);
    }
    m->senders -= m->id == 1;
    while (!m->driver.stop) take_next(m, &batch); /* its own last one */
    give_back(m, &batch);
    m->left--;
}

/* ---- the group --------------------------------------------------------------------------------------------------- */

static void open_member(member *m, uint64_t id, int spins) {
    sc_config config = test_config(id, 0);
    sc_drive_config drive = test_drive();
    config.seed = id;
    drive.busy_poll_ns = spins ? 1000 + (int64_t)world_draw(2000000) : 0;
    if (!world_draw(3)) drive.flush_ns_min = 0;
    if (!world_draw(2)) drive.nap_ns = 0;
    drive.look_ns = 200000000;
    memset(m, 0, sizeof *m);
    m->id = id;
    m->other = MEMBERS + 1 - id;
    m->loop = !world_draw(3);
    m->busy = !world_draw(3);
    m->mends = 3;
    m->engine = sc_engine_new(&config);
    world_open(&m->driver.io, id);
    if (!m->engine || sc_driver_init(&m->driver, m->engine, &m->lock, &drive) || sc_driver_watch_open(&m->driver))
        world_fail("no memory");
}

static void install(void) {
    sc_view view = {.tag = 1,
                    .n = MEMBERS,
                    .mechanism = SC_ORDER_FIFO,
                    .sequencer = (int32_t)world_draw(3) - 1,
                    .window_bytes = 1 << (15 + world_draw(2)),
                    .forward_window_bytes = 1 << 16,
                    .unicast_window_bytes = 1 << 15,
                    .state_window_bytes = 1 << 15,
                    .packet_bytes = world_draw(2) ? 8192 : 2048};
    if (view.sequencer >= 0) view.mechanism = SC_ORDER_SEQUENCER;
    for (uint32_t r = 0; r < MEMBERS; r++) {
        view.ids[r] = members[r].id;
        view.addresses[r] = members[r].driver.io.address;
    }
    for (uint32_t r = 0; r < MEMBERS; r++) {
        view.rank = r;
        if (sc_engine_install(members[r].engine, &view, NULL, 1, world_time())) world_fail("no view");
    }
}

static void start(const char *const names[MEMBERS], void (*work)(thread *), member *m, int sends) {
    world_start(names[m->id - 1], work, m);
    m->left++;
    m->senders += sends;
}

static int is_over(void) {
    int over = 1;
    for (int i = 0; i < MEMBERS; i++) over &= !members[i].senders && members[i].delivered >= members[i].expected;
    return over;
}

/* Waits until all is said and heard, or, if the seed says so, not for that; then each member stops under its
 * threads. */
static void script(thread *t) {
    int64_t begin = world_time(), cut = world_draw(4) ? INT64_MAX : begin + (int64_t)world_draw(20000000);
    (void)t;
    while (!is_over() && world_time() < cut) {
        if (world_time() - begin > ANSWER_NS) world_fail("not all was delivered: a stall");
        world_sleep(300000);
    }
    for (int i = 0; i < MEMBERS; i++) {
        int64_t stops = world_time();
        sc_driver_stop(&members[i].driver);
        if (world_draw(2)) sc_driver_close(&members[i].driver);
        if (!world_draw(8)) world_sleep(900000000); /* the other one suspects this one */
        while (members[i].left) {
            if (world_time() - stops > 1000000000) world_fail("member %d has stopped, but not all its threads", i + 1);
            world_sleep(300000);
        }
    }
}

/* The threads of one member: if it talks, those of a ping-pong. */
static void start_all(member *m, int talks) {
    static const char *const names[][MEMBERS] = {
        {"io1", "io2"},       {"reader1", "reader2"},     {"single1", "single2"},
        {"array1", "array2"}, {"taking1", "taking2"},     {"control1", "control2"},
        {"talk1", "talk2"},   {"callback1", "callback2"}, {"kick1", "kick2"}};
    static void (*const works[])(thread *) = {io, reader, singles, arrays, taking, control, talk, callback};
    m->io = world_start(names[0][m->id - 1], io, m);
    m->ends = !talks && !world_draw(4);
    if (!talks && !world_draw(4)) start(names[7], callback, m, 1);
    start(names[talks ? 6 : 1], talks ? talk : reader, m, talks && m->id == 1);
    uint64_t controls = world_draw(4);
    if (controls > 1) start(names[5], control, m, 0);
    if (controls > 2) start(names[8], kick, m, 0);
    for (uint64_t k = world_draw(talks ? 2 : 5 - m->id); k; k--) {
        uint64_t which = talks ? 3 : 2 + world_draw(3);
        if (!talks) start(names[which], works[which], m, 1);
    }
}

static void run(uint64_t seed) {
    world_begin(seed, look);
    memset(overdue, 0, sizeof overdue);
    int talks = !world_draw(4), spins = !world_draw(3);
    for (int i = 0; i < MEMBERS; i++) open_member(&members[i], (uint64_t)i + 1, spins);
    install();
    world_start("script", script, NULL);
    for (int i = 0; i < MEMBERS; i++) start_all(&members[i], talks);
    world_run();
    for (int i = 0; i < MEMBERS; i++) {
        sc_driver_close(&members[i].driver);
        sc_driver_free(&members[i].driver);
        sc_engine_free(members[i].engine);
    }
    world_end();
}

int main(int argc, char **argv) {
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    for (uint64_t seed = first; seed < first + count; seed++) run(seed);
    printf("%llu of %llu wake-ups of callers were for nothing\n", (unsigned long long)for_nothing,
           (unsigned long long)woken);
    if (woken >= ENOUGH_WOKEN && for_nothing > woken / 5) return 1;
    printf("%llu schedules from %llu on: every wait was woken\n", (unsigned long long)count, (unsigned long long)first);
    return 0;
}
