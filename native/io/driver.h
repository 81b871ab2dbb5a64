/* The driver: sockets, clock and threads around one engine.
 *
 * One thread at a time has the *receive role*: to wait on the sockets, pass received datagrams to the engine, runs its
 * timers and transmits. A caller that waits (for a message, for credit) takes the role, so that a message reaches it
 * without a change of thread; while no caller waits, the I/O thread has that role. While callers come and go, the I/O
 * thread stands by in ticks of `tick_ns` and takes over when no caller drove for a whole tick; while a caller blocks
 * for long the I/O thread sleeps until that caller leaves. A caller that begins to wait meanwhile has no timer: the I/O
 * thread wakes it when its time is over. An event loop that is woken in quick succession is such a caller for one round
 * at a time. The sender of an array takes the role for acks, but rarely waits: after an array the sender gives the role
 * to the I/O thread, and in a stream of arrays looks at the sockets now and then.
 *
 * Locks, in this order: `tx.lock` (transmitting), `role.lock` (the role's holder), the engine's. The engine's is never
 * held during a system call. A thread that finds `tx.lock` taken leaves a note (`tx.wanted`), and the holder transmits
 * again. */
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
    uint64_t polls; /* of a sequencer in a conversation, before blocking */
    uint64_t naps;
    uint64_t nap_bytes; /* the most that a nap was expected to gather, at the rate before the nap */
    uint64_t kicks; /* of the I/O thread */
    uint64_t flushes_left; /* flushes left to another thread that was transmitting */
    uint64_t flushes_handed; /* left to the I/O thread, as there was ever more to transmit */
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
    int64_t ran; /* of the last round */
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
    sc_atomic
        untimed; /* and has no timer, so that the I/O thread is to wake the holder then; 0: has one, or is awake */
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

/* `io` is open. 0, or -1 without memory. */
int sc_driver_init(sc_driver *d, sc_engine *engine, sc_mutex *lock, const sc_drive_config *config);
/* Ends sc_driver_run and every wait. */
void sc_driver_stop(sc_driver *d);
/* The same, and closes the sockets once no thread uses them; later callers find the driver stopped. */
void sc_driver_close(sc_driver *d);
void sc_driver_free(sc_driver *d);

/* The counters are on this board from now on; called before any thread uses the driver. -1 without room. */
struct sc_board;
int sc_driver_board(sc_driver *d, struct sc_board *board);
/* Of all threads, without a lock. */
void sc_driver_counters(const sc_driver *d, sc_io_counters *io, sc_drive_counters *drive);

/* The I/O thread: returns after sc_driver_stop. */
void sc_driver_run(sc_driver *d);

/* Transmits the engine's packets, `since` now, or leaves them to the thread that is transmitting. Without `all` packets
 * that are not full yet stay open for later messages: the thread that packed them has asked for their flush. */
void sc_driver_flush(sc_driver *d, int all, int64_t since);

/* Called after packing at `now`: which packets to transmit at once, by a sc_driver_flush of the caller's, which
 * releases the GIL only for that. The rest is batched with later messages, or flushed by the I/O thread. */
enum { SC_FLUSH_NOTHING = 0, SC_FLUSH_FULL = 1, SC_FLUSH_ALL = 2 };
int sc_driver_packed(sc_driver *d, uint64_t unsent, int answer, int64_t now);

/* One message, or messages [next, n) of an Arrow binary array, on their way into the engine. Zeroed first.
 *
 * The array of offsets belongs to the application, and another thread may write there at any time: each offset is read
 * once, into `marks`, and only values checked there are used. */
#define SC_SEND_MARKS 8192
typedef struct sc_sending {
    uint64_t to; /* 0: the group */
    int beside; /* the order */
    const uint8_t *data;
    uint64_t len; /* of the one message, or of all data of the array */
    const void *offsets; /* of the array: n + 1 int64, or int32 with `wide` 0; NULL: one message */
    int wide;
    uint64_t next, n;
    uint64_t *marks; /* the caller's memory for the smaller of n and SC_SEND_MARKS offsets, and 1 more */
    uint64_t first, end; /* messages whose offsets are in `marks` */
    sc_send_state state;
    int owner; /* was in the list `first` at its last packing */
    struct sc_sending *next_first; /* in that list */
    int answer; /* to messages that this thread has taken: leaves at once */
    int receives; /* nobody receives but this thread: no wait while there is something to receive */
    int ahead; /* of its receivers: sc_engine_ahead */
} sc_sending;

/* Offsets of an array decrease, or lie outside its data; `next` messages were sent before. */
enum { SC_BAD_OFFSETS = 16 };
/* Packs until everything is packed (SC_SENT), until the time `until`, the driver's end or, if `receives`, something to
 * receive (SC_AGAIN: call again, or give up), or until an error of sc_engine_send or SC_BAD_OFFSETS. Waits for credit
 * by driving. Not under the GIL. */
int sc_driver_send(sc_driver *d, sc_sending *s, int64_t until);
/* The same, for the messages that can be packed at once; the caller holds the engine's lock and must call
 * sc_driver_packed afterwards. A message begun so (SC_AGAIN) must be finished by sc_driver_send or
 * sc_driver_send_end. */
int sc_driver_send_now(sc_driver *d, sc_sending *s, int64_t now, int64_t wall);
/* Abandons a partly packed message: receivers drop the part. */
void sc_driver_send_end(sc_driver *d, sc_sending *s);
/* This thread runs a block callback from now on (1), or no longer (0). */
void sc_driver_callback(sc_driver *d, int runs);

/* Drives the I/O, or waits for the thread that does, until the wanted condition holds (1), or until `until` has passed,
 * or the driver stops (0); 0 may also come early. A signal does not end the wait: its handler runs, and the wait goes
 * on. `mark`: sc_engine_sendable before; for SC_WANT_STATE: the id of the sending member. */
int sc_drive(sc_driver *d, int want, uint64_t mark, int64_t until);

/* The wall clock at the monotonic time `now`, which is a moment ago at most. */
int64_t sc_driver_wall(sc_driver *d, int64_t now);

/* Takes the next item for the application, driving until `until`; with 0 only if one is ready. As sc_engine_deliver.
 * `now` is the time; `*wall` becomes that of the wall clock when a batch was taken, never before its own messages were
 * sent. */
int sc_driver_deliver(sc_driver *d, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int64_t until, int later,
                      int64_t now, int64_t *wall);

/* sc_engine_taken. sc_driver_deliver does this for a single message, unless kept for `later`. */
void sc_driver_taken(sc_driver *d);
/* Waits until all messages sent are taken, or `until`; as sc_taking_state. `w` has begun, and is ended by the
 * caller. */
int sc_driver_taking(sc_driver *d, sc_taking *w, int64_t until);

/* The stream of state: packs until all is packed or `until`, as sc_engine_state_send. Takes up to `len` bytes of
 * `sender`'s stream, driving until `until` for the first. */
int sc_driver_state_send(sc_driver *d, uint64_t to, const uint8_t *p, uint64_t len, uint64_t *done, int64_t until);
size_t sc_driver_state_read(sc_driver *d, uint64_t sender, uint8_t *p, size_t len, int64_t until);

/* The control thread waits for the engine's events, sc_driver_kick_control or `until`. Meanwhile the thread looks for
 * faults that nobody reports; returns whether that needs it: something is wrong, or `each` look does. */
int sc_driver_wait_control(sc_driver *d, int64_t until, int each);
void sc_driver_kick_control(sc_driver *d);
/* sc_io_mend, and whoever waits on the sockets does so anew. */
int sc_driver_mend(sc_driver *d, sc_io_error *error);

/* The control plane changed the engine: transmits, and wakes all waiting threads. */
void sc_driver_poke(sc_driver *d);

/* For event loops: makes a descriptor readable once when something is deliverable or the driver stops. If that is
 * already the case, returns 1, and nothing is watched. The descriptor may also become readable so that the loop
 * receives: each time the loop's thread calls sc_driver_watched, which returns 1 if something is deliverable or the
 * driver has stopped, and otherwise watches. The descriptor outlives sc_driver_close: a poll forgets a descriptor that
 * is closed before the look. */
int sc_driver_watch_open(sc_driver *d); /* 0, or -1 without a descriptor */
static inline sc_fd sc_driver_watch_fd(const sc_driver *d) {
    return d->waits.set == SC_NO_FD ? d->waits.watch[1] : d->waits.set;
}
int sc_driver_watch(sc_driver *d);
int sc_driver_watched(sc_driver *d);
void sc_driver_watch_close(sc_driver *d);

/* In the child of a fork: closes its copies of the sockets. Takes no lock: a thread that does not exist there may hold
 * it. */
void sc_driver_forked(sc_driver *d);
