/* Driver and I/O under ThreadSanitizer: two members on loopback sockets in one process, eight threads each, views that
 * change under them, and an end in the middle of everything. Beside the sanitizer's checks, every message must arrive
 * whole: its bytes are made from its length.
 *
 * driver_threads SECONDS          built and run by tests/tsan/run */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../helpers/driver_settings.h"

#define MEMBERS 2
#define THREADS 8
#define ROUND_NS 1500000000LL
#define LARGE 300000
#define MESSAGES 500
#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                                                 \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef struct member {
    sc_engine *engine;
    sc_mutex lock;
    sc_driver driver;
    uint64_t id, other;
    int64_t wall_offset;
    sc_atomic ends;
    sc_atomic delivered;
    pthread_t threads[THREADS];
} member;

static void check_message(const uint8_t *p, int32_t n) {
    CHECK(n <= LARGE);
    for (int32_t i = 0; i < n; i += n > 64 ? 61 : 1) CHECK(p[i] == (uint8_t)(i + n));
}

static uint8_t *make_message(uint64_t n) {
    uint8_t *p = malloc(n + 1);
    CHECK(p);
    for (uint64_t i = 0; i < n; i++) p[i] = (uint8_t)(i + n);
    return p;
}

/* ---- the eight threads ---------------------------------------------------------------------------------------- */

static void *io(void *arg) {
    sc_driver_run(&((member *)arg)->driver);
    return NULL;
}

static void *control(void *arg) {
    member *m = arg;
    while (!sc_load(&m->ends)) {
        sc_event event;
        sc_driver_wait_control(&m->driver, sc_now() + 20000000, 0);
        for (int found = 1; found;) {
            sc_mutex_lock(&m->lock);
            found = sc_engine_event(m->engine, &event);
            if (!found) sc_engine_control_send(m->engine, NULL, (const uint8_t *)"control", 7, 0);
            sc_mutex_unlock(&m->lock);
            if (found) free(event.payload);
        }
        sc_driver_poke(&m->driver);
    }
    return NULL;
}

/* As in Driver.send. */
static int send_one(member *m, uint64_t to, const uint8_t *p, uint64_t len, int64_t wait) {
    sc_sending s;
    memset(&s, 0, sizeof s);
    s.to = to;
    s.data = p;
    s.len = len;
    int64_t now = sc_now();
    sc_mutex_lock(&m->lock);
    int result = sc_driver_send_now(&m->driver, &s, now, now + m->wall_offset);
    uint64_t unsent = sc_engine_unsent(m->engine);
    sc_mutex_unlock(&m->lock);
    if (result == SC_AGAIN)
        result = sc_driver_send(&m->driver, &s, now + wait);
    else {
        int what = sc_driver_packed(&m->driver, unsent, s.answer, now);
        if (what != SC_FLUSH_NOTHING) sc_driver_flush(&m->driver, what == SC_FLUSH_ALL, now);
    }
    sc_driver_send_end(&m->driver, &s);
    return result;
}

static void *small(void *arg) {
    member *m = arg;
    uint8_t *messages[40];
    for (uint64_t i = 0; i < 40; i++) messages[i] = make_message(i);
    for (uint64_t i = 0; !sc_load(&m->ends); i++) {
        send_one(m, i % 16 == 0 ? m->other : 0, messages[i % 40], i % 40, 20000000);
        if (i % 4096 == 0) sc_sleep(300000); /* so that the I/O thread has something to flush */
    }
    for (int i = 0; i < 40; i++) free(messages[i]);
    return NULL;
}

static void *large(void *arg) {
    member *m = arg;
    uint8_t *message = make_message(LARGE);
    for (int i = 0; !sc_load(&m->ends); i++)
        send_one(m, i % 3 == 0 ? 0 : i % 3 == 1 ? m->other : m->id, message, LARGE, i % 5 ? 50000000 : 1000000);
    free(message);
    return NULL;
}

static void *arrays(void *arg) {
    member *m = arg;
    int32_t offsets[MESSAGES + 1];
    uint64_t marks[MESSAGES + 1];
    uint8_t *data = malloc(MESSAGES * 1000);
    CHECK(data);
    for (uint32_t i = 0, at = 0; i <= MESSAGES; i++) {
        uint32_t n = 2 * i % 997;
        offsets[i] = (int32_t)at;
        for (uint32_t k = 0; k < n && i < MESSAGES; k++) data[at++] = (uint8_t)(k + n);
    }
    while (!sc_load(&m->ends)) {
        sc_sending s;
        memset(&s, 0, sizeof s);
        s.data = data;
        s.len = (uint64_t)offsets[MESSAGES];
        s.offsets = offsets;
        s.n = MESSAGES;
        s.marks = marks;
        sc_driver_send(&m->driver, &s, sc_now() + 30000000);
        sc_driver_send_end(&m->driver, &s);
    }
    free(data);
    return NULL;
}

static void check_pieces(const sc_piece *piece, uint32_t n) {
    uint8_t *whole = malloc(LARGE);
    uint32_t len = 0;
    CHECK(whole);
    for (uint32_t i = 0; i < n; i++) {
        CHECK(piece[i].len <= LARGE - len);
        memcpy(whole + len, piece[i].data, piece[i].len);
        len += piece[i].len;
    }
    check_message(whole, (int32_t)len);
    free(whole);
}

static void check_run(const sc_batch *batch, const sc_run *run, const sc_place *place) {
    if (place->pieces) check_pieces(batch->pieces + place->piece, place->pieces);
    const int32_t *offsets = batch->offsets + place->at;
    for (uint32_t i = 0; i < place->copied; i++) check_message(batch->data + offsets[i], offsets[i + 1] - offsets[i]);
    for (uint32_t i = 0; i < run->n - place->copied - (place->pieces != 0); i++) {
        uint32_t from = sc_whole_at(&place->wholes, i), to = sc_whole_at(&place->wholes, i + 1);
        check_message(place->data + from, (int32_t)(to - from));
    }
}

static void *receiver(void *arg) {
    member *m = arg;
    sc_batch batch = {0};
    uint64_t marker;
    for (int turn = 0; !sc_load(&m->ends); turn++) {
        int64_t now = sc_now(), wall;
        int kind = sc_driver_deliver(&m->driver, &batch, 1 << 20, &marker, now + 10000000, 0, now, &wall);
        if (kind != SC_DELIVER_BATCH) continue;
        if (turn % 2) sc_batch_flatten(&batch); /* otherwise many lie in packets, which others must not write to */
        for (uint32_t r = 0; r < batch.n_runs; r++) check_run(&batch, &batch.runs[r], &batch.places[r]);
        sc_store(&m->delivered, sc_load(&m->delivered) + batch.n);
    }
    sc_mutex_lock(&m->lock);
    sc_engine_give_back(m->engine, &batch);
    sc_mutex_unlock(&m->lock);
    sc_batch_clear(&batch);
    return NULL;
}

/* State in both directions: this thread sends, and reads the other member's stream. */
static void *state(void *arg) {
    member *m = arg;
    static uint8_t chunk[20000];
    uint8_t *in = malloc(sizeof chunk);
    CHECK(in);
    for (int i = 0; !sc_load(&m->ends); i++) {
        uint64_t done = 0;
        sc_driver_state_send(&m->driver, m->other, chunk, sizeof chunk, &done, sc_now() + 1000000);
        if (i % 8 == 0) {
            sc_mutex_lock(&m->lock);
            sc_engine_state_end(m->engine, m->other);
            sc_mutex_unlock(&m->lock);
            sc_driver_flush(&m->driver, 1, sc_now());
        }
        sc_driver_state_read(&m->driver, m->other, in, sizeof chunk, sc_now() + 1000000);
    }
    free(in);
    return NULL;
}

/* An event loop, and somebody who looks at the counters. */
static void *observer(void *arg) {
    member *m = arg;
    const char *names[128];
    uint64_t values[128];
    sc_io_counters io_counters;
    sc_drive_counters drive_counters;
    struct pollfd fd = {.fd = sc_driver_watch_fd(&m->driver), .events = POLLIN}; /* as in an event loop */
    for (int i = 0; !sc_load(&m->ends); i++) {
        if (!sc_driver_watch(&m->driver)) {
            if (poll(&fd, 1, 5) > 0) sc_driver_watched(&m->driver);
        }
        sc_mutex_lock(&m->lock);
        sc_engine_counter_values(m->engine, names, values, 128);
        sc_mutex_unlock(&m->lock);
        sc_driver_counters(&m->driver, &io_counters, &drive_counters);
        sc_driver_kick_control(&m->driver);
        if (i % 7 == 0) sc_driver_poke(&m->driver);
    }
    return NULL;
}

static void *(*const works[THREADS])(void *) = {io, control, small, large, arrays, receiver, state, observer};

/* ---- the group ------------------------------------------------------------------------------------------------ */

static void open_member(member *m, uint64_t id, uint16_t port) {
    sc_config config = test_config(id, 1);
    sc_io_config sockets = test_sockets(id, 1, port);
    sc_drive_config drive = test_drive();
    sc_io_error error;
    memset(m, 0, sizeof *m);
    m->id = id;
    m->other = MEMBERS + 1 - id;
    m->wall_offset = sc_wall() - sc_now();
    sc_mutex_init(&m->lock);
    CHECK((m->engine = sc_engine_new(&config)));
    if (sc_io_open(&m->driver.io, &sockets, &error)) {
        fprintf(stderr, "%s: error %d\n", error.call, error.code);
        exit(2);
    }
    CHECK(!sc_driver_init(&m->driver, m->engine, &m->lock, &drive));
    CHECK(!sc_driver_watch_open(&m->driver));
}

static sc_view view_of(member *members, int32_t sequencer, uint64_t tag) {
    sc_view view = {.tag = tag,
                    .n = MEMBERS,
                    .mechanism = sequencer >= 0 ? SC_ORDER_SEQUENCER : SC_ORDER_FIFO,
                    .sequencer = sequencer,
                    .window_bytes = 1 << 18,
                    .forward_window_bytes = 1 << 18,
                    .unicast_window_bytes = 1 << 17,
                    .state_window_bytes = 1 << 17,
                    .packet_bytes = 8192};
    for (uint32_t r = 0; r < MEMBERS; r++) {
        view.ids[r] = members[r].id;
        view.addresses[r] = members[r].driver.io.address;
    }
    return view;
}

/* Gate, cut at the prefix that all hold, install: the work of the policies by messages. */
static void change_view(member *members, int32_t sequencer, uint64_t tag) {
    uint64_t cut[SC_MEMBERS_MAX] = {0}, table[SC_MEMBERS_MAX];
    sc_view view = view_of(members, sequencer, tag);
    for (int r = 0; r < MEMBERS; r++) {
        sc_mutex_lock(&members[r].lock);
        cut[r] = sc_engine_gate_close(members[r].engine, 0);
        sc_mutex_unlock(&members[r].lock);
        sc_driver_poke(&members[r].driver);
    }
    for (int r = 0; r < MEMBERS; r++) {
        int64_t until = sc_now() + 20000000000LL;
        for (uint32_t whose = 0; whose < MEMBERS; whose++) { /* the cut names no holders here: all is fetched before */
            uint64_t prefix = 0;
            for (;; sc_sleep(1000000)) {
                sc_mutex_lock(&members[r].lock);
                sc_engine_held(members[r].engine, whose, &prefix, NULL, 0);
                sc_mutex_unlock(&members[r].lock);
                if (prefix >= cut[whose]) break;
                CHECK(sc_now() < until);
            }
        }
    }
    for (int r = 0; r < MEMBERS; r++) {
        sc_mutex_lock(&members[r].lock);
        sc_engine_cut(members[r].engine, cut, NULL, 0);
        CHECK(sc_engine_cut_reached(members[r].engine));
        sc_mutex_unlock(&members[r].lock);
    }
    sc_mutex_lock(&members[0].lock);
    sc_engine_received_table(members[0].engine, table);
    sc_mutex_unlock(&members[0].lock);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        view.base[r] = cut[r];
        view.origin_base[r] = table[r];
    }
    for (uint32_t r = 0; r < MEMBERS; r++) {
        view.rank = r;
        sc_mutex_lock(&members[r].lock);
        CHECK(!sc_engine_install(members[r].engine, &view, cut, tag, sc_now()));
        sc_mutex_unlock(&members[r].lock);
        sc_driver_poke(&members[r].driver);
    }
}

static void run_round(member *members, int number) {
    uint16_t port = (uint16_t)(20000 + getpid() % 20000);
    uint64_t tag = (uint64_t)number * 100 + 1;
    for (int r = 0; r < MEMBERS; r++) open_member(&members[r], (uint64_t)r + 1, port);
    sc_view view = view_of(members, number % 3 - 1, tag);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        view.rank = r;
        CHECK(!sc_engine_install(members[r].engine, &view, NULL, tag, sc_now()));
    }
    for (int r = 0; r < MEMBERS; r++)
        for (int i = 0; i < THREADS; i++) CHECK(!pthread_create(&members[r].threads[i], NULL, works[i], &members[r]));
    for (int64_t until = sc_now() + ROUND_NS; sc_now() < until;) {
        sc_sleep(200000000);
        change_view(members, (int32_t)(tag % 3) - 1, tag + 1);
        tag++;
    }
    for (int r = 0; r < MEMBERS; r++) {
        member *m = &members[r];
        sc_driver_stop(&m->driver); /* its callers are in the middle of sends and waits */
        pthread_join(m->threads[0], NULL);
        sc_driver_close(&m->driver);
        sc_store(&m->ends, 1);
        for (int i = 1; i < THREADS; i++) pthread_join(m->threads[i], NULL);
    }
    printf("round %d: %lld and %lld messages delivered in %llu views\n", number, (long long)members[0].delivered,
           (long long)members[1].delivered, (unsigned long long)(tag % 100));
    for (int r = 0; r < MEMBERS; r++) {
        CHECK(members[r].delivered > 0);
        sc_driver_free(&members[r].driver);
        sc_engine_free(members[r].engine);
    }
}

int main(int argc, char **argv) {
    static member members[MEMBERS];
    int64_t until = sc_now() + (int64_t)((argc > 1 ? atof(argv[1]) : 10) * 1e9);
    for (int number = 0; number < 3 || sc_now() < until; number++) run_round(members, number); /* each order once */
    return 0;
}
