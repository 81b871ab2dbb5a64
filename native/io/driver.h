/* The driver: sockets, clock and threads around one engine.
 *
 * One thread at a time has the *receive role*: to wait on the sockets, pass received datagrams to the engine, run its
 * timers and transmit. A caller that waits (for a message, for credit) takes the role, so that a message reaches it
 * without a change of thread; while no caller waits, the I/O thread has that role. While callers come and go, the I/O
 * thread stands by in ticks of `tick_ns` and takes over when no caller drove for a whole tick; while a caller blocks
 * for long the I/O thread sleeps until that caller leaves. A caller that begins to wait meanwhile has no timer: the I/O
 * thread wakes the caller in time. An event loop that is woken in quick succession is such a caller for one round
 * at a time. The sender of an array takes the role for acks, but rarely waits: after an array the sender gives the role
 * to the I/O thread, and in a stream of arrays looks at the sockets now and then.
 *
 * Locks, in this order: `tx.lock` (transmitting), `role.lock` (the role's holder), the engine's. The engine's is never
 * held during a system call. A thread that finds `tx.lock` taken leaves a note (`tx.wanted`), and the holder transmits
 * again. */
#pragma once

#include "io/parts.h"

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
/* The counters of all threads, read without a lock. */
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

/* Drives the I/O, or waits for the thread that does, until the wanted condition holds, or until `until` has passed, or
 * the driver stops. Returns the time at which the condition was found to hold, which is a moment ago; or 0, which may
 * also come early. A signal does not end the wait: its handler runs, and the wait goes on. `mark`: sc_engine_sendable
 * before; for SC_WANT_STATE: the id of the sending member. */
int64_t sc_drive(sc_driver *d, int want, uint64_t mark, int64_t until);

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
/* sc_io_mend; waits on the sockets start over. */
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
