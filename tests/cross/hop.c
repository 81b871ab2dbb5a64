/* A hop of two members in one process over real sockets, on any system: small messages go to and fro, then one of many
 * packets, in each order that needs no more than two, by multicast, by unicast, and by a transport that only tests
 * have.
 *
 * hop          built and run by tests/cross, and for this system by tests/sockets/test_transport.py */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../helpers/driver_settings.h"
#include "../helpers/pipe.h"

#define MEMBERS 2
#define HOPS 200
#define LARGE 200000 /* less than a window: nobody takes messages meanwhile */
#define PATIENCE_NS 20000000000LL
#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef struct {
    sc_engine *engine;
    sc_mutex lock;
    sc_driver driver;
    sc_batch batch;
    sc_atomic ended;
} member;

/* ---- the I/O thread ------------------------------------------------------------------------------------------- */

#if defined(_WIN32)
static DWORD WINAPI io(void *arg) {
#else
static void *io(void *arg) {
#endif
    member *m = arg;
    sc_driver_run(&m->driver);
    sc_store(&m->ended, 1);
    return 0;
}

static void start(member *m) {
#if defined(_WIN32)
    HANDLE thread = CreateThread(NULL, 0, io, m, 0, NULL);
    CHECK(thread);
    CloseHandle(thread);
#else
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, io, m));
    CHECK(!pthread_detach(thread));
#endif
}

/* ---- the group ------------------------------------------------------------------------------------------------ */

static void open_member(member *m, uint64_t id, uint16_t port, const sc_transport *transport) {
    sc_config config = test_config(id, 1);
    sc_io_config sockets = test_sockets(id, 2, port);
    sc_drive_config drive = test_drive();
    sockets.transport = transport;
    sockets.port_range = MEMBERS;
    config.deliver_own = 0;
    sc_io_error error;
    memset(m, 0, sizeof *m);
    sc_mutex_init(&m->lock);
    CHECK((m->engine = sc_engine_new(&config)));
    if (sc_io_open(&m->driver.io, &sockets, &error)) {
        fprintf(stderr, "%s: error %d\n", error.call, error.code);
        exit(1);
    }
    CHECK(!sc_driver_init(&m->driver, m->engine, &m->lock, &drive));
}

static void install(member *members, int order) {
    sc_view view = {.tag = (uint64_t)order + 1,
                    .n = MEMBERS,
                    .mechanism = order,
                    .sequencer = order == SC_ORDER_SEQUENCER ? 0 : -1,
                    .window_bytes = 1 << 18,
                    .forward_window_bytes = 1 << 18,
                    .unicast_window_bytes = 1 << 17,
                    .state_window_bytes = 1 << 17,
                    .packet_bytes = 1472};
    for (uint32_t r = 0; r < MEMBERS; r++) {
        view.ids[r] = r + 1;
        view.addresses[r] = members[r].driver.io.address;
    }
    for (uint32_t r = 0; r < MEMBERS; r++) {
        view.rank = r;
        CHECK(!sc_engine_install(members[r].engine, &view, NULL, view.tag, sc_now()));
    }
}

static void close_member(member *m) {
    sc_mutex_lock(&m->lock);
    sc_engine_give_back(m->engine, &m->batch);
    sc_mutex_unlock(&m->lock);
    sc_batch_clear(&m->batch);
    sc_driver_stop(&m->driver);
    for (int64_t until = sc_now() + PATIENCE_NS; !sc_load(&m->ended); sc_sleep(1000000)) CHECK(sc_now() < until);
    sc_driver_close(&m->driver);
    sc_driver_free(&m->driver);
    sc_engine_free(m->engine);
}

/* ---- messages ------------------------------------------------------------------------------------------------- */

static uint8_t byte_of(uint64_t len, uint64_t at) { return (uint8_t)(at * 31 + len); }

static void send_one(member *m, uint64_t len) {
    static uint8_t data[LARGE];
    sc_sending s;
    for (uint64_t i = 0; i < len; i++) data[i] = byte_of(len, i);
    memset(&s, 0, sizeof s);
    s.data = data;
    s.len = len;
    CHECK(!sc_driver_send(&m->driver, &s, sc_now() + PATIENCE_NS));
    sc_driver_send_end(&m->driver, &s);
}

/* The next message of the other member. */
static void take_one(member *m, uint64_t len) {
    int64_t until = sc_now() + PATIENCE_NS, wall;
    uint64_t marker;
    for (;;) {
        int64_t now = sc_now();
        CHECK(now < until);
        if (sc_driver_deliver(&m->driver, &m->batch, 1 << 20, &marker, until, 0, now, &wall) == SC_DELIVER_BATCH) break;
    }
    CHECK(m->batch.n == 1);
    CHECK(sc_batch_flatten(&m->batch) == 0);
    CHECK((uint64_t)(m->batch.offsets[1] - m->batch.offsets[0]) == len);
    for (uint64_t i = 0; i < len; i++) CHECK(m->batch.data[(uint64_t)m->batch.offsets[0] + i] == byte_of(len, i));
}

static void run(const char *name, const sc_transport *transport, int order, uint16_t port) {
    static member members[MEMBERS];
    for (uint32_t r = 0; r < MEMBERS; r++) open_member(&members[r], r + 1, port, transport);
    install(members, order);
    for (uint32_t r = 0; r < MEMBERS; r++) start(&members[r]);
    int64_t begin = sc_now();
    for (int i = 0; i < HOPS; i++) {
        send_one(&members[i % MEMBERS], (uint64_t)i);
        take_one(&members[1 - i % MEMBERS], (uint64_t)i);
    }
    int64_t hop = (sc_now() - begin) / HOPS;
    send_one(&members[0], LARGE);
    take_one(&members[1], LARGE);
    for (uint32_t r = 0; r < MEMBERS; r++) close_member(&members[r]);
    printf("%s, order %d: %d hops of %lld us each, and one message of %d bytes\n", name, order, HOPS,
           (long long)hop / 1000, LARGE);
}

int main(void) {
    uint16_t port = (uint16_t)(20000 + sc_wall() / 1000 % 20000);
    const int orders[] = {SC_ORDER_FIFO, SC_ORDER_SEQUENCER};
    for (int i = 0; i < 2; i++) {
        run("multicast", &sc_transport_multicast, orders[i], port);
        run("unicast", &sc_transport_unicast, orders[i], port);
        uint64_t before = test_pipe.runs;
        test_pipe.n = 0;
        run("pipe", &test_pipe_transport, orders[i], port);
        CHECK(test_pipe.runs >= before + HOPS);
    }
    return 0;
}
