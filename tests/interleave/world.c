/* A world in one real thread. Its threads are coroutines, of which one runs until a point of the port layer
 * (seam/io/port.h), and there the seed draws which one goes on. So the same seed makes the same run. The time passes a
 * little at each point; when no thread can run, the time moves to the next timer or datagram, and before that the
 * scenario looks whether a wake-up is missing. The calls of native/io/poll.c come here by the linker's --wrap; of the
 * sockets only those that the driver calls are here. */
#include "world.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <ucontext.h>

#define THREADS_MAX 16
#define STACK (256 << 10)
#define FILES_MAX 64
#define FIRST_FD 1000
#define TRACE 300
#define POINTS_MAX 3000000

typedef struct datagram {
    struct datagram *next;
    int64_t at;
    int fd;
    size_t len;
    sc_address from;
    uint8_t data[];
} datagram;

typedef struct {
    uint64_t count; /* of an eventfd */
    datagram *first; /* of a socket */
    uint64_t set; /* of an epoll: a bit for each descriptor */
    int gone; /* a socket that was closed */
} file;

static struct {
    uint64_t seed, random;
    int64_t now;
    uint64_t briefly; /* a process that takes the core keeps it for up to 6 ms, one in so many times, else for 100 us */
    uint64_t points, switches, offs,
        losses; /* one in so many: points that switch, and that take the core; datagrams lost */
    uint64_t slow; /* one in so many runs takes the kernel up to 3 ms to send */
    void (*quiet)(int64_t next);
    thread threads[THREADS_MAX];
    int n, current;
    int runs; /* and not: is set up, or over */
    ucontext_t back;
    file files[FILES_MAX];
    int n_files;
    datagram *air; /* by arrival */
    sc_io *members[2];
    struct {
        int64_t at;
        int thread, line;
        const char *what, *file;
    } trace[TRACE];
} w;
static ucontext_t contexts[THREADS_MAX];

/* ---- threads ---------------------------------------------------------------------------------------------------- */

uint64_t world_draw(uint64_t below) { /* splitmix64 */
    uint64_t z = w.random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % below;
}

void world_fail(const char *format, ...) {
    va_list args;
    static const char *const states[] = {"ready", "mutex", "condition", "poll", "sleep", "done"};
    for (uint64_t i = w.points > TRACE ? w.points - TRACE : 0; i < w.points; i++) {
        const char *file = strrchr(w.trace[i % TRACE].file, '/');
        printf("%9.3f us  %-8s %s:%d %s\n", (double)w.trace[i % TRACE].at / 1e3,
               w.threads[w.trace[i % TRACE].thread].name, file ? file + 1 : "", w.trace[i % TRACE].line,
               w.trace[i % TRACE].what);
    }
    for (int i = 0; i < w.n; i++)
        printf("%-8s %s until %.3f us\n", w.threads[i].name, states[w.threads[i].state],
               (double)w.threads[i].until / 1e3);
    va_start(args, format);
    printf("FAILED: at %.3f us: ", (double)w.now / 1e3);
    vprintf(format, args);
    va_end(args);
    printf("\nreplay: driver_waits %llu 1\n", (unsigned long long)w.seed);
    exit(1);
}

int world_readable(int fd) {
    const file *f = &w.files[fd - FIRST_FD];
    for (int i = 0; i < w.n_files; i++)
        if (f->set >> i & 1 && world_readable(FIRST_FD + i)) return 1;
    return f->count || f->first;
}

static int is_ready(const thread *t) {
    for (unsigned i = 0; i < t->n_fds; i++)
        if (world_readable(t->fds[i].fd)) return 1;
    return 0;
}

static void wake_pollers(void) {
    for (int i = 0; i < w.n; i++)
        if (w.threads[i].state == WORLD_POLL && is_ready(&w.threads[i])) w.threads[i].state = WORLD_READY;
}

static void drop(datagram *d) {
    for (datagram *next; d; d = next) {
        next = d->next;
        free(d);
    }
}

/* Events that come by themselves until now. */
static void let_happen(void) {
    while (w.air && w.air->at <= w.now) {
        datagram *d = w.air, **last = &w.files[d->fd - FIRST_FD].first;
        w.air = d->next;
        d->next = NULL;
        if (w.files[d->fd - FIRST_FD].gone) {
            drop(d);
            continue;
        }
        while (*last) last = &(*last)->next;
        *last = d;
        wake_pollers();
    }
    for (int i = 0; i < w.n; i++) {
        thread *t = &w.threads[i];
        if (t->state != WORLD_READY && t->state != WORLD_DONE && t->until <= w.now) t->state = WORLD_READY;
    }
}

static void advance(void) {
    int64_t next = w.air ? w.air->at : INT64_MAX;
    int off = 0;
    for (int i = 0; i < w.n; i++) {
        if (w.threads[i].state != WORLD_DONE && w.threads[i].until < next) next = w.threads[i].until;
        off |= w.threads[i].off;
    }
    if (next == INT64_MAX) world_fail("nothing will ever happen");
    if (!off) w.quiet(next);
    w.now = next;
    let_happen();
}

static void switch_away(void) {
    int ready[THREADS_MAX], n, old = w.current;
    let_happen();
    for (;;) {
        int left = 0;
        n = 0;
        for (int i = 0; i < w.n; i++) {
            left += w.threads[i].state != WORLD_DONE;
            if (w.threads[i].state == WORLD_READY) ready[n++] = i;
        }
        if (!left) {
            swapcontext(&contexts[old], &w.back);
            return;
        }
        if (n) break;
        advance();
    }
    w.current = ready[world_draw((uint64_t)n)];
    if (w.current != old) swapcontext(&contexts[old], &contexts[w.current]);
    thread *t = &w.threads[w.current];
    t->until = INT64_MAX;
    t->on = NULL;
    t->off = 0;
}

static void block(int state, const void *on, int64_t until) {
    thread *t = &w.threads[w.current];
    t->state = state;
    t->on = on;
    t->until = until;
    switch_away();
}

static void lose_core(int64_t ns) {
    w.threads[w.current].off = 1;
    block(WORLD_SLEEP, NULL, w.now + ns);
}

void world_point(const char *what, const char *file, int line) {
    if (!w.runs) return;
    uint64_t i = w.points++ % TRACE;
    w.now += 20;
    w.trace[i].at = w.now;
    w.trace[i].thread = w.current;
    w.trace[i].what = what;
    w.trace[i].file = file;
    w.trace[i].line = line;
    if (w.points > POINTS_MAX) world_fail("the run has no end");
    if (w.offs && world_draw(w.offs) == 0)
        lose_core((int64_t)(world_draw(w.briefly) ? 1 + world_draw(100000) : world_draw(6000000)));
    else if (world_draw(w.switches) == 0)
        switch_away();
}

void world_leave_core(void) {
    w.now += 500;
    world_point("leave core", "", 0);
    switch_away();
}

int64_t world_now(void) { return w.now += 30; }
int64_t world_time(void) { return w.now; }
void world_sleep(int64_t ns) { block(WORLD_SLEEP, NULL, w.now + (ns > 0 ? ns : 0)); }
uint64_t world_thread(void) { return (uint64_t)w.current + 1; }
thread *world_threads(int *n) { return *n = w.n, w.threads; }

void world_lock(sc_mutex *m) {
    while (m->held) block(WORLD_MUTEX, m, INT64_MAX);
    m->held = w.current + 1;
}

int world_trylock(sc_mutex *m) {
    if (m->held) return 0;
    m->held = w.current + 1;
    return 1;
}

void world_unlock(sc_mutex *m) {
    if (m->held != w.current + 1) world_fail("a mutex is unlocked by a thread that does not hold it");
    m->held = 0;
    for (int i = 0; i < w.n; i++)
        if (w.threads[i].state == WORLD_MUTEX && w.threads[i].on == m) w.threads[i].state = WORLD_READY;
}

void world_wait(sc_cond *c, sc_mutex *m, int64_t until) {
    world_unlock(m);
    block(WORLD_COND, c, until);
    world_lock(m);
}

void world_wake(sc_cond *c, int all) {
    int found[THREADS_MAX], n = 0;
    for (int i = 0; i < w.n; i++)
        if (w.threads[i].state == WORLD_COND && w.threads[i].on == c) found[n++] = i;
    if (n && !all) found[0] = found[world_draw((uint64_t)n)];
    for (int k = 0; k < (all ? n : n > 0); k++) {
        world_woken(&w.threads[found[k]]);
        w.threads[found[k]].state = WORLD_READY;
    }
}

static void enter(void) {
    thread *t = &w.threads[w.current];
    t->until = INT64_MAX;
    t->work(t);
    t->state = WORLD_DONE;
    t->until = INT64_MAX;
    switch_away();
}

thread *world_start(const char *name, void (*work)(thread *), void *arg) {
    static char *stacks[THREADS_MAX];
    int i = w.n++;
    if (i >= THREADS_MAX) world_fail("too many threads");
    if (!stacks[i]) stacks[i] = malloc(STACK);
    w.threads[i] = (thread){.name = name, .work = work, .arg = arg, .until = INT64_MAX};
    getcontext(&contexts[i]);
    contexts[i].uc_stack.ss_sp = stacks[i];
    contexts[i].uc_stack.ss_size = STACK;
    makecontext(&contexts[i], enter, 0);
    return &w.threads[i];
}

void world_begin(uint64_t seed, void (*quiet)(int64_t next)) {
    static const uint64_t switches[] = {2, 4, 16, 60}, offs[] = {0, 60, 300, 3000}, losses[] = {0, 0, 50, 8},
                          slow[] = {0, 0, 20, 5};
    memset(&w, 0, sizeof w);
    w.seed = w.random = seed;
    w.now = 1000000000;
    w.quiet = quiet;
    w.switches = switches[world_draw(4)];
    w.offs = offs[world_draw(4)];
    w.briefly = world_draw(2) ? 1 : 6;
    w.losses = losses[world_draw(4)];
    w.slow = slow[world_draw(4)];
}

void world_run(void) {
    w.runs = 1;
    swapcontext(&w.back, &contexts[w.current]);
    w.runs = 0;
}

void world_end(void) {
    drop(w.air);
    for (int i = 0; i < w.n_files; i++) drop(w.files[i].first);
}

/* ---- descriptors: the calls of native/io/poll.c ------------------------------------------------------------------ */

static int new_file(void) {
    if (w.n_files == FILES_MAX) world_fail("too many descriptors");
    return FIRST_FD + w.n_files++;
}

int __wrap_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags) {
    (void)flags;
    int fd = new_file();
    w.files[fd - FIRST_FD].count = count;
    return fd;
}

ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n) {
    (void)p;
    WORLD_POINT("write");
    w.files[fd - FIRST_FD].count++;
    wake_pollers();
    return (ssize_t)n;
}

ssize_t __wrap_read(int fd, void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n) {
    (void)p;
    WORLD_POINT("read");
    if (!w.files[fd - FIRST_FD].count) return -1;
    w.files[fd - FIRST_FD].count = 0;
    return (ssize_t)n;
}

int __wrap_close(int fd);
int __wrap_close(int fd) {
    w.files[fd - FIRST_FD] = (file){0};
    return 0;
}

int __wrap_epoll_create1(int flags);
int __wrap_epoll_create1(int flags) {
    (void)flags;
    return new_file();
}

int __wrap_epoll_ctl(int set, int what, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int set, int what, int fd, struct epoll_event *event) {
    (void)event;
    uint64_t bit = 1ull << (fd - FIRST_FD), *in = &w.files[set - FIRST_FD].set;
    *in = what == EPOLL_CTL_ADD ? *in | bit : *in & ~bit;
    wake_pollers();
    return 0;
}

int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const void *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const void *mask) {
    (void)mask;
    WORLD_POINT("poll");
    int found = 0;
    int64_t ns = timeout ? timeout->tv_sec * 1000000000LL + timeout->tv_nsec : -1;
    thread *t = &w.threads[w.current];
    t->fds = fds;
    t->n_fds = (unsigned)n;
    let_happen();
    if (!is_ready(t) && ns) block(WORLD_POLL, NULL, ns < 0 || ns > INT64_MAX - w.now ? INT64_MAX : w.now + ns);
    for (nfds_t i = 0; i < n; i++) found += (fds[i].revents = world_readable(fds[i].fd) ? POLLIN : 0) != 0;
    t->n_fds = 0;
    WORLD_POINT("polled");
    return found;
}

int __wrap_prctl(int option, ...);
int __wrap_prctl(int option, ...) { return (void)option, 0; }

/* ---- sockets ---------------------------------------------------------------------------------------------------- */

void world_open(sc_io *io, uint64_t id) {
    w.members[id - 1] = io;
    io->config = (sc_io_config){.family = 4, .receive_batch = 8, .send_batch = 8, .member = id};
    for (int i = 0; i < SC_IO_SOCKETS; i++) io->fd[i] = new_file();
    io->address = (sc_address){.len = 7, .bytes = {4, 0, (uint8_t)id, 127, 0, 0, (uint8_t)id}};
    sc_signal_open(io->wake);
}

void sc_io_close(sc_io *io) { io->fd[0] = -1; }

static void put_on_air(const sc_io *from, const sc_io *to, int lane, const uint8_t *p, size_t len) {
    datagram **at = &w.air, *d;
    if (to->fd[0] < 0 || (w.losses && world_draw(w.losses) == 0)) return;
    d = malloc(sizeof *d + len);
    if (!d) world_fail("no memory");
    *d = (datagram){
        .at = w.now + 5000 + (int64_t)world_draw(30000), .fd = to->fd[lane], .len = len, .from = from->address};
    memcpy(d->data, p, len);
    while (*at && (*at)->at <= d->at) at = &(*at)->next;
    d->next = *at;
    *at = d;
}

void sc_io_send(sc_io *io, const sc_tx *runs, int n) {
    const sc_io *other = w.members[w.members[0] == io];
    for (int i = 0; i < n; i++) {
        WORLD_POINT("send");
        w.now += 2000;
        for (uint32_t k = 0; k < runs[i].n; k++) put_on_air(io, other, runs[i].lane, runs[i].p[k], runs[i].len[k]);
        if (w.slow && world_draw(w.slow) == 0) lose_core((int64_t)world_draw(3000000));
    }
}

int sc_io_receive(sc_io *io, int lane, sc_io_datagram *in, int n, size_t room) {
    int got = 0;
    WORLD_POINT("receive");
    w.now += 500;
    let_happen();
    for (datagram *d; got < n && io->fd[0] >= 0 && (d = w.files[io->fd[lane] - FIRST_FD].first); got++) {
        in[got].p = in[got].slot && d->len <= room ? in[got].slot : in[got].whole;
        in[got].len = d->len;
        in[got].segment = 0;
        in[got].from = d->from;
        memcpy(in[got].p, d->data, d->len);
        w.files[io->fd[lane] - FIRST_FD].first = d->next;
        free(d);
    }
    return got;
}

int sc_io_refused(sc_io *io, sc_address *to, int max) { return (void)io, (void)to, (void)max, 0; }
void sc_io_aim(sc_io *io, const sc_targets *targets) { io->targets = targets; }
int sc_io_look(const sc_io *io) { return (void)io, 0; }

/* Other sockets take the place of those before; a thread that waits on these hears nothing of the others. */
int sc_io_mend(sc_io *io, sc_io_error *error) {
    (void)error;
    for (int lane = 0; lane < SC_IO_SOCKETS; lane++) {
        drop(w.files[io->fd[lane] - FIRST_FD].first);
        w.files[io->fd[lane] - FIRST_FD] = (file){.gone = 1};
        io->fd[lane] = new_file();
    }
    return 0;
}
