/* The driver: sockets, clock and threads around one engine.
 *
 * One thread at a time has the *receive role*: it waits on the sockets, gives the engine what came, runs its timers and
 * transmits. A caller that waits (for a message, for credit) takes the role, so that a message reaches it without a
 * change of thread; while no caller waits, the I/O thread has it. While callers come and go, the I/O thread stands by
 * in ticks of a millisecond and takes over when none drove for a whole tick; behind a caller that blocks long it sleeps
 * until that one leaves.
 *
 * Locks, in this order: `tx.lock` (transmitting), `role.lock` (who has the role), the engine's. The engine's is never held
 * during a system call. A thread that finds `tx.lock` taken leaves a note (`tx.wanted`), and the holder transmits again.
 */
#ifndef SEQCAST_DRIVE_H
#define SEQCAST_DRIVE_H

#include "io/io.h"

typedef struct {
    int64_t busy_poll_ns; /* spin so long on the sockets before blocking */
    uint64_t flush_bytes; /* a sender transmits itself when so much is unsent */
    int64_t flush_ns_min; /* or when nothing was transmitted for so long, or nothing packed for a few us */
    int64_t flush_ns_max; /* what is left is flushed by the I/O thread after so long */
    int64_t tick_ns; /* the I/O thread's tick while callers drive */
    int64_t nap_ns; /* a receiver under load lets datagrams gather for at most so long; 0: never */
} sc_drive_config;

typedef struct {
    uint64_t turns; /* times a caller took the receive role */
    uint64_t rounds; /* receive rounds, of callers and the I/O thread */
    uint64_t naps;
    uint64_t nap_bytes; /* most that a nap was to gather, at the rate before it */
    uint64_t kicks; /* of the I/O thread */
    uint64_t flushes_left; /* a flush found another thread transmitting, which did it */
} sc_drive_counters; /* written under `role.lock`, or by the role's holder, but the last */

/* Each part belongs to one file, which says what it is for; others call its functions (io/parts.h). */

typedef struct { /* transmit.c */
    sc_mutex lock; /* whoever has it transmits */
    sc_tx *runs; /* under `lock` */
    sc_atomic wanted; /* SC_FLUSH_* of those who found `lock` taken, as bits */
    sc_atomic last; /* monotonic time of the last transmission */
    sc_atomic last_pack; /* ... of the last message packed */
    sc_atomic flush_asked; /* the I/O thread looks after unsent bytes */
    sc_atomic sent_since; /* the application sent in this period of load measurement */
    sc_atomic left; /* flushes left to the thread that was transmitting */
} sc_transmitter;

enum { SC_ROLE_FREE = 0, SC_ROLE_IO = 1, SC_ROLE_CALLER = 2 };
enum { SC_IO_AWAKE = 0, SC_IO_POLLING = 1, SC_IO_STANDBY = 2, SC_IO_DEEP = 3 };

typedef struct { /* role.c */
    sc_mutex lock;
    sc_cond freed; /* callers wait for the role, or for what the holder finds */
    sc_cond io_idle; /* the I/O thread stands by */
    int holder; /* SC_ROLE_* */
    int callers; /* in sc_drive, the holder counted */
    int io_state; /* SC_IO_* */
    uint64_t turns;
    sc_atomic waiting; /* callers without the role: the holder tells them after each round */
    int64_t look_ns; /* the I/O thread's: its last nap between two looks at unsent bytes */
} sc_role;

typedef struct { /* round.c; all of it is the role holder's */
    sc_io_datagram in[SC_IO_BATCH_MAX];
    sc_slab *slabs[SC_IO_BATCH_MAX];
    uint8_t *scratch; /* receive buffers where the slab pool is exhausted */
    int64_t deadline; /* the engine's */
    int64_t load_since;
    uint64_t load_bytes, load_packets;
    int64_t nap_ns; /* under load: how long datagrams may gather; else 0 */
    uint64_t nap_bytes; /* how much that is */
    uint64_t gather; /* bytes: a quarter of a window */
    int large; /* the last buffer on the data lane was a full one */
} sc_round;

typedef struct { /* wake.c; under the engine's lock, but the atomics */
    sc_cond control; /* the control thread waits */
    int control_waiting, control_kicked;
    int watched; /* an event loop waits: one wake-up of `watch` when something is deliverable or sendable */
    uint64_t watched_sendable;
    sc_fd watch[2]; /* to be written, to be polled */
    sc_atomic sleep_until; /* until when the role's holder waits on the sockets; 0: it is awake */
    sc_atomic caller_wants; /* the holder is a caller that waits for SC_WANT_*, which others here may bring about */
} sc_waits;

typedef struct { /* call.c; under the engine's lock */
    sc_cond free;
    int taken[2]; /* group, unicast: a message is packed in part, and its sender continues before any other */
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
    sc_turn turn;
    sc_atomic stop;
    int closed; /* under the engine's lock */
    sc_drive_counters counters; /* read by sc_driver_counters */
} sc_driver;

/* `io` is open. 0, or -1 without memory. */
int sc_driver_init(sc_driver *d, sc_engine *engine, sc_mutex *lock, const sc_drive_config *config);
/* Ends sc_driver_run and every wait. */
void sc_driver_stop(sc_driver *d);
/* The same, and closes the sockets when nobody uses them any more; callers that come later find the driver stopped. */
void sc_driver_close(sc_driver *d);
void sc_driver_free(sc_driver *d);

/* Of all threads, without a lock. */
void sc_driver_counters(const sc_driver *d, sc_io_counters *io, sc_drive_counters *drive);

/* The I/O thread: returns after sc_driver_stop. */
void sc_driver_run(sc_driver *d);

/* Transmits what the engine has, or leaves it to the thread that is transmitting. Without `all` packets that are not
 * full yet stay open for what follows: who packed them has asked for their flush. */
void sc_driver_flush(sc_driver *d, int all);

/* After bytes were packed: what to transmit now (by sc_driver_flush, apart, so that the caller may give up the GIL only
 * then); the rest is batched with what follows, or flushed by the I/O thread. */
enum { SC_FLUSH_NOTHING = 0, SC_FLUSH_FULL = 1, SC_FLUSH_ALL = 2 };
int sc_driver_packed(sc_driver *d, uint64_t unsent, int64_t now);
void sc_driver_flush_packed(sc_driver *d, int what);

/* One message, or messages [next, n) of an Arrow binary array, on their way into the engine. Zero it first.
 *
 * The array of offsets belongs to the application, and another thread may write it at any time: each offset is read
 * once, into `marks`, and only what was checked there is used. */
#define SC_SEND_MARKS 8192
typedef struct {
    uint64_t to; /* 0: the group */
    const uint8_t *data;
    uint64_t len; /* of the one message, or of all data of the array */
    const void *offsets; /* of the array: n + 1 int64, or int32 with `wide` 0; NULL: one message */
    int wide;
    uint64_t next, n;
    uint64_t *marks; /* the caller's memory for the smaller of n and SC_SEND_MARKS offsets, and 1 more */
    uint64_t first, end; /* messages of which `marks` has the offsets */
    sc_send_state state;
    int owner; /* this one has `sending` */
} sc_sending;

/* Offsets of an array that fall, or lie outside its data; `next` messages were sent before. */
enum { SC_BAD_OFFSETS = 16 };
/* Packs until all is packed (SC_SENT), or `until`, a signal or the end (SC_AGAIN; to be called again, or given up), or
 * an error of sc_engine_send, or SC_BAD_OFFSETS. Waits for credit by driving. Not under the GIL. */
int sc_driver_send(sc_driver *d, sc_sending *s, int64_t until);
/* The same for what goes at once; the caller holds the engine's lock and has to look at sc_driver_packed afterwards.
 * What it began (SC_AGAIN), sc_driver_send or sc_driver_send_end must end. */
int sc_driver_send_now(sc_driver *d, sc_sending *s, int64_t wall);
/* Gives up what is packed in part: receivers drop it. */
void sc_driver_send_end(sc_driver *d, sc_sending *s);

enum { SC_WANT_DELIVERY = 1, SC_WANT_SENDABLE = 2, SC_WANT_STATE = 4 };
/* `mark`: sc_engine_sendable before; for SC_WANT_STATE: of whom. */
/* Drives the I/O, or waits for who does, until there is what is wanted (1), or `until` is past, a signal came or the
 * driver stops (0). */
int sc_drive(sc_driver *d, int want, uint64_t mark, int64_t until);

/* Takes what is next for the application, driving until `until`; with 0 only what is there. As sc_engine_deliver. */
int sc_driver_deliver(sc_driver *d, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int64_t until, int later);

/* sc_engine_taken. sc_driver_deliver does it for a single message; unless the caller keeps it for `later`. */
void sc_driver_taken(sc_driver *d);
/* Waits until what was sent is taken, or `until`; as sc_taking_state. `w` has begun, and is ended by the caller. */
int sc_driver_taking(sc_driver *d, sc_taking *w, int64_t until);

/* The stream of state: packs until all is packed or `until`, as sc_engine_state_send. Takes up to `len` bytes of what
 * `sender` has sent, driving until `until` for the first. */
int sc_driver_state_send(sc_driver *d, uint64_t to, const uint8_t *p, uint64_t len, uint64_t *done, int64_t until);
size_t sc_driver_state_read(sc_driver *d, uint64_t sender, uint8_t *p, size_t len, int64_t until);

/* The control thread waits for the engine's events, sc_driver_kick_control or `until`. */
void sc_driver_wait_control(sc_driver *d, int64_t until);
void sc_driver_kick_control(sc_driver *d);

/* The control plane changed the engine: transmit, and let all who wait look again. */
void sc_driver_poke(sc_driver *d);

/* For event loops: makes `watch[1]` readable once when something is deliverable or sendable changed from `mark`; what
 * is there already is told at once (1, and nothing is watched). */
int sc_driver_watch(sc_driver *d, int want, uint64_t mark);
void sc_driver_watch_clear(sc_driver *d);

/* In the child of a fork: closes its copies of the sockets. Takes no lock: a thread that is not there may have it. */
void sc_driver_forked(sc_driver *d);

#endif
