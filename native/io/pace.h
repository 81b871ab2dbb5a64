/* Pace: how the thread that receives spends the time in which nothing has come. Under load this thread naps, so that
 * datagrams accumulate and are received at once; in a conversation it polls briefly, because that takes less than a
 * wake-up; a thread that spins leaves its core to others. A pure policy: times and loads are arguments, all times are
 * monotonic nanoseconds. */
#pragma once

#include <stdint.h>

#define SC_PACE_POLL_NS 25000 /* a brief poll: about the time of waking a thread on a core that sleeps */

typedef struct {
    int64_t nap_ns_max; /* the setting; 0: never */
    /* The load of the current period. */
    int64_t since;
    uint64_t bytes, packets, rounds;
    int talks; /* this thread has answered, and waits for the next message */
    int64_t ordered_at; /* messages got places from us, as the sequencer, at this time */
    /* Results of the last period. */
    int loaded;
    int64_t nap_ns; /* how long datagrams may accumulate; 0: not under load */
    uint64_t nap_bytes; /* expected bytes of a nap */
    int64_t late_ns; /* how late this thread gets a core, on average */
    int polls; /* that may be in vain */
    unsigned unpolled; /* waits without a poll */
    int64_t yields_at, yield_pause; /* when to leave the core to others again; the last time until then */
    int alone; /* looks that need no yield, as no thread wanted the core at the last yield */
} sc_pace;

/* Known at the end of a period. */
typedef struct {
    int64_t packed_at; /* the application packed its last message */
    int waiting; /* other threads of this process wait for the receiving one */
    uint64_t gather; /* bytes that a nap may gather, of the window's account */
} sc_pace_load;

/* A round has brought these bytes. 1: the period is over, and sc_pace_measure follows. */
int sc_pace_count(sc_pace *p, uint64_t bytes, int64_t now);
void sc_pace_measure(sc_pace *p, const sc_pace_load *load, int64_t now);
/* A thread that slept ran `late` after its due time. */
void sc_pace_late(sc_pace *p, int64_t late);
/* Where a nap ends: datagrams have accumulated since `came`, while the application handled the last ones. 0: no nap
 * now. */
int64_t sc_pace_nap(const sc_pace *p, int64_t came, int64_t until, int64_t now);
/* May a wait until `until` begin with a brief poll? If so, sc_pace_polled follows. */
int sc_pace_polls(sc_pace *p, int64_t until, int64_t now);
void sc_pace_polled(sc_pace *p, int found);
/* Asked after each look: does a thread that spins leave its core to others? If so, sc_pace_yielded follows: the core
 * was left at `now`, and the thread is back at `back`. */
int sc_pace_yields(sc_pace *p, int64_t now);
void sc_pace_yielded(sc_pace *p, int64_t now, int64_t back);
/* A thread that spun has found something. */
void sc_pace_found(sc_pace *p);
