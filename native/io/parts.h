/* The parts of a driver (io/driver.h). */
#pragma once

#include "io/pace.h"
#include "io/sockets.h"

typedef struct {
    int64_t busy_poll_ns; /* spin on the sockets for this long before blocking */
    uint64_t flush_bytes; /* a sender transmits itself when this much is unsent */
    int64_t flush_ns_min; /* or at once, but on average no more than once in this time */
    int64_t flush_ns_max; /* the I/O thread flushes the rest when nothing was packed for this long */
    int64_t tick_ns; /* the I/O thread's tick while callers drive */
    int64_t nap_ns; /* a receiver under load lets datagrams accumulate for at most this long; 0: never */
    int64_t look_ns; /* the control thread looks for faults that nobody reports */
} sc_drive_config;

typedef struct {
    uint64_t turns; /* times a caller took the receive role */
    uint64_t rounds; /* receive rounds, of callers and the I/O thread */
    uint64_t polls; /* times a thread in a conversation looked again for a moment before blocking */
    uint64_t naps;
    uint64_t nap_bytes; /* the most that a nap was expected to gather, at the rate before the nap */
    uint64_t kicks; /* of the I/O thread */
    uint64_t flushes_left; /* flushes left to another thread that was transmitting */
    uint64_t flushes_handed; /* left to the I/O thread, as more to transmit kept coming */
} sc_drive_counters; /* all but the last two are written under `role.lock`, or by the role's holder */

/* Each part belongs to one file, which documents it; other files call its functions (io/driver_internal.h). */

typedef struct { /* transmit.c */
    sc_mutex lock; /* its holder transmits */
    sc_tx *runs; /* under `lock` */
    sc_atomic wanted; /* SC_FLUSH_* bits, set by threads that found `lock` taken */
    sc_atomic due; /* monotonic time at which the next flush would keep to one in each `flush_ns_min` */
    sc_atomic rest_since; /* monotonic time since when the rests of arrays wait for the next one; 0: none does */
    sc_atomic flush_asked; /* the I/O thread is to flush unsent bytes */
    sc_atomic handed; /* the I/O thread is to continue */
    sc_atomic handed_over; /* how often */
    sc_atomic left; /* flushes left to the thread that was transmitting */
    sc_targets targets; /* under `lock` */
} sc_transmitter;

/* Reasons of a caller to wait; each has one of them. */
enum { SC_WANT_DELIVERY = 1, SC_WANT_SENDABLE = 2, SC_WANT_STATE = 4, SC_WANT_ANY = 7, SC_WANTS = 3 };
enum { SC_ROLE_FREE = 0, SC_ROLE_IO = 1, SC_ROLE_CALLER = 2 };
enum { SC_IO_AWAKE = 0, SC_IO_POLLING = 1, SC_IO_STANDBY = 2, SC_IO_DEEP = 3 };

typedef struct { /* role.c */
    sc_mutex lock;
    sc_cond came[SC_WANTS]; /* callers wait for the role, or for its holder's results: by their wants */
    sc_cond freed; /* others wait until nobody has the role */
    sc_cond io_idle; /* the I/O thread stands by */
    int holder; /* SC_ROLE_* */
    int callers; /* in sc_drive or with the role */
    int io_state; /* SC_IO_* */
    uint64_t turns;
    int64_t left; /* monotonic time of the last caller's leaving */
    int64_t stream_since; /* callers have come back within STREAM_NS */
    int passing; /* its holder sends an array, and not yet a stream of them */
    int loop; /* an event loop has the sockets in its set, and takes the role when one is readable */
    int64_t loop_woken; /* monotonic time */
    int handed; /* to the I/O thread, which takes the role at once */
    sc_atomic waiting[SC_WANTS]; /* how many at each of `came`: woken by a round that fulfils their want */
} sc_role;

typedef struct { /* intake.c and round.c; all is the role holder's, who lets others read `came` and `loaded` */
    sc_io_datagram in[SC_IO_BATCH_MAX];
    sc_slab *slabs[SC_IO_BATCH_MAX]; /* `in[i].whole` */
    sc_slab *shared[SC_IO_BATCH_MAX]; /* slabs that have slots, `in[i].slot` */
    sc_sharing sharing; /* of the next slots */
    size_t room; /* bytes of a slot, as large as a packet; 0: packets are too large to share slabs */
    int small; /* the last datagrams were packets by themselves, or less: the next ones are received into slots */
    uint8_t *scratch; /* receive buffers for when the slab pool is exhausted */
    int64_t deadline; /* the engine's */
    uint64_t came; /* monotonic time when the last datagrams were received */
    int64_t ran; /* monotonic time at the end of the last round, before its flush */
    int cut_short; /* the last round reached its limit: more may be there */
    sc_pace pace;
    uint64_t gather; /* bytes: a quarter of a window */
    unsigned looks; /* at the sockets, by a spinning thread */
    int talk; /* the lane that brought the last message */
    uint64_t sendable; /* sc_engine_sendable, as of which callers without the role were woken */
    sc_atomic loaded;
} sc_round;

typedef struct { /* wake.c; under the engine's lock, except the atomics */
    sc_cond control; /* the control thread waits */
    int control_waiting, control_kicked;
    int watched; /* an event loop waits: one wake-up of `watch` when something is deliverable */
    int signalled; /* `watch` was written */
    sc_fd watch[2]; /* to be written, to be polled; open while an event loop may wait */
    sc_fd set; /* polled by the loop: `watch`, and the sockets while it receives; SC_NO_FD: no such sets here */
    sc_atomic sleep_until; /* the role's holder waits on the sockets until this time; 0: awake */
    sc_atomic untimed; /* and has no timer, so that the I/O thread wakes the holder then; 0: has one, or is awake */
    sc_atomic covered_from; /* earliest deadline that the I/O thread covers for the holder; SC_NEVER: none */
    sc_atomic woken_by_io; /* the last wake-up came from the I/O thread */
    sc_atomic caller_wants; /* the holder is a caller that waits for SC_WANT_*, which other local threads may cause */
} sc_waits;

typedef struct { /* wall.c; of all threads */
    sc_atomic ahead; /* the wall clock minus the monotonic one */
    sc_atomic at; /* when they were compared; 0: never */
} sc_walls;

typedef struct { /* look.c; the control thread's */
    int64_t due; /* the next look */
    uint64_t send_errors; /* up to the last look */
    int segments; /* the kernel took segments then */
} sc_looks;

typedef struct { /* call.c; written under the engine's lock */
    sc_cond free;
    struct sc_sending *first; /* list: waits for room, and goes on before any other to the same member, or the group */
    uint64_t callback; /* the thread that runs a block callback, and precedes messages that have not begun; 0: none */
    uint64_t packed_at; /* monotonic time when the application last packed something; read without the lock too */
    uint64_t packer; /* the thread that did */
    uint64_t asked; /* the thread that last took messages of other members: its next message is an answer */
    uint64_t talks; /* the thread that has answered and taken nothing since: and waits for the next message */
} sc_turn;

typedef struct sc_driver {
    sc_drive_config config;
    sc_engine *engine;
    sc_mutex *lock; /* the engine's */
    sc_io io;
    sc_transmitter tx;
    sc_role role;
    sc_round round;
    sc_waits waits;
    sc_walls walls;
    sc_looks looks;
    sc_turn turn;
    sc_atomic stop;
    int closed; /* under the engine's lock */
    sc_drive_counters *counters; /* on the board, or `uncovered`; read by sc_driver_counters */
    sc_drive_counters uncovered;
} sc_driver;

static inline int64_t sc_earlier(int64_t a, int64_t b) { return a < b ? a : b; }
