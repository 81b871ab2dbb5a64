/* The wall clock, for messages sent and delivered. All members on a machine must have the same, so that a message is
 * not delivered before its sending; but reading this clock for each message costs as much as reading the monotonic one.
 * */
#include "io/driver_internal.h"

/* In COMPARE_NS a clock that is being set right gains or loses half a microsecond at most. */
enum { COMPARE_NS = 1000000, TRIES = 4, SOON_NS = 200 };

/* A thread that does not run between two readings compares again. */
static void compare(sc_walls *walls, int64_t now) {
    int64_t least = SC_NEVER, ahead = 0;
    for (int i = 0; i < TRIES && least > SOON_NS; i++) {
        int64_t before = sc_now(), wall = sc_wall(), took = sc_now() - before;
        if (took >= least) continue;
        least = took;
        ahead = wall - before - took / 2;
    }
    sc_store(&walls->ahead, ahead);
    sc_store(&walls->at, now);
}

int64_t sc_driver_wall(sc_driver *d, int64_t now) {
    if (now - (int64_t)sc_load(&d->walls.at) >= COMPARE_NS) compare(&d->walls, now);
    return now + (int64_t)sc_load(&d->walls.ahead);
}
