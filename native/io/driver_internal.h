/* Functions that the driver's parts call in each other. Calls go one way: role and call -> round -> transmit ->
 * wake. */
#pragma once

#include "io/driver.h"

/* wake.c. Those with `locked` in their comment: under the engine's lock. */
void sc_waits_init(sc_waits *w);
/* Does the condition that a caller wants (SC_WANT_*) hold? Locked. */
int sc_has(const sc_driver *d, int want, uint64_t mark);
/* The same; takes the lock. */
int sc_driver_has(sc_driver *d, int want, uint64_t mark);
/* The engine has new input: wakes the control thread and the event loop that wait. Locked. */
void sc_tell_engine_news(sc_driver *d);
/* Something is deliverable, or the driver stops: wakes the event loop that waits. Locked. */
void sc_tell_watcher(sc_driver *d);
/* One of these things (SC_WANT_*) may be there: wakes the callers that wait for them, the holder of the receive role on
 * the sockets, others for it. */
void sc_wake_caller(sc_driver *d, int what);
/* The same for the results of a round, for threads that wait for its holder. */
void sc_wake_waiting(sc_driver *d);
/* Does a caller without the role wait for any of these things? */
int sc_is_waited(const sc_driver *d, int what);
/* Nobody has the role: one of the waiting threads takes the role, or leaves that to the next one. Under `role.lock`. */
void sc_offer_role(sc_driver *d);
/* All that wait for the role or for its holder look again: the driver stops, or something else has changed. Under
 * `role.lock`. */
void sc_wake_all(sc_driver *d);
/* Makes the I/O thread check unsent bytes, or the role. Under `role.lock`. */
void sc_kick_io(sc_driver *d);

/* look.c */
/* By the control thread. Is there something to act on? */
int sc_look(sc_driver *d, int64_t now);

/* transmit.c */
int sc_transmitter_init(sc_transmitter *tx);
void sc_transmitter_free(sc_transmitter *tx);
/* The time at which the I/O thread flushes packed messages, unless any are packed or flushed before; and its flush. */
int64_t sc_rest_due(const sc_driver *d);
/* As sc_driver_packed, after `packed` bytes of an array that has `more`, or whose receivers have much before them. */
int sc_array_packed(sc_driver *d, uint64_t unsent, uint64_t packed, int more, int64_t now);
void sc_flush_rest(sc_driver *d);
/* Another thread has left its transmitting to the caller, the I/O thread or the holder of the receive role: once. */
int sc_takes_over(sc_driver *d);

/* intake.c; by the role's holder */
#define SC_ROUND_BYTES_MAX (1u << 20) /* a round checks the timers again after this much */
#define SC_RECEIVE_ONE 1 /* of the datagrams that are there */
#define SC_RECEIVE_FIRST 4 /* also of large buffers: they are checked and ordered while they are in the cache */
int sc_intake_init(sc_round *round);
void sc_intake_free(sc_driver *d);
/* Receives the datagrams that have arrived on `lanes`; `first`: this many in the first call, or SC_RECEIVE_ONE of each
 * lane. Sets *urgent if something has to be transmitted. Returns their bytes. */
uint64_t sc_intake(sc_driver *d, int lanes, int first, int *urgent);

/* Slots are as large as a full packet of the view. Under the engine's lock. */
void sc_intake_measure(sc_driver *d);

/* round.c; by the role's holder */
/* Waits at most until `until` for datagrams and receives them, runs timers, transmits urgent packets. Returns whether a
 * wake-up came. */
int sc_round_run(sc_driver *d, int64_t until, int may_nap);
/* In a conversation: polls for a moment if that pays, and handles the datagrams received; does not wait. Returns
 * whether something had. */
int sc_round_poll(sc_driver *d);

/* role.c. An event loop that was woken takes the role in order to receive; sc_role_leave_loop follows. */
int sc_role_take_for_loop(sc_driver *d);
/* An event loop that is about to wait takes the role if already receiving. */
int sc_role_take_in_loop(sc_driver *d);
void sc_role_leave_loop(sc_driver *d);
/* Lets the event loop watch the sockets, or only for messages that others receive. Under `role.lock`. */
void sc_loop_receives(sc_driver *d, int receives);
void sc_role_init(sc_role *role);
/* Takes the receive role for a while, from the I/O thread if necessary; 0 if another caller is the holder. */
int sc_role_take(sc_driver *d);
void sc_role_leave(sc_driver *d);
/* Runs rounds, holding the role, until the wanted condition holds. As sc_drive. */
int64_t sc_role_rounds(sc_driver *d, int want, uint64_t mark, int64_t until);
