/* The life cycle of a driver: its parts start and stop together. */
#include <stddef.h>

#include "board/board.h"
#include "io/driver_internal.h"

int sc_driver_init(sc_driver *d, sc_engine *engine, sc_mutex *lock, const sc_drive_config *config) {
    d->config = *config;
    d->engine = engine;
    d->lock = lock;
    d->counters = &d->uncovered;
    d->io.counters = &d->io.uncovered;
    sc_role_init(&d->role);
    sc_cond_init(&d->turn.free);
    sc_waits_init(&d->waits);
    d->round.pace.nap_ns_max = config->nap_ns;
    return sc_transmitter_init(&d->tx) || sc_intake_init(&d->round) ? -1 : 0;
}

void sc_driver_stop(sc_driver *d) {
    sc_store(&d->stop, 1);
    sc_mutex_lock(d->lock);
    d->waits.control_kicked = 1;
    sc_cond_broadcast(&d->waits.control);
    sc_cond_broadcast(&d->turn.free);
    if (d->waits.watched) sc_tell_watcher(d);
    sc_mutex_unlock(d->lock);
    sc_mutex_lock(&d->role.lock);
    sc_wake_all(d); /* the I/O thread may nap now */
    while (d->role.callers > 0 || d->role.io_state == SC_IO_POLLING) {
        sc_io_wake(&d->io);
        sc_cond_wait_until(&d->role.freed, &d->role.lock, sc_now() + 1000000);
    }
    sc_cond_broadcast(&d->role.io_idle);
    sc_mutex_unlock(&d->role.lock);
}

void sc_driver_close(sc_driver *d) {
    sc_driver_stop(d);
    /* A thread that transmits, receives or wakes another holds one of these locks, and checks `stop` afterwards. */
    sc_mutex_lock(&d->tx.lock);
    sc_mutex_lock(&d->role.lock);
    while (d->role.holder != SC_ROLE_FREE) sc_cond_wait_until(&d->role.freed, &d->role.lock, sc_now() + 1000000);
    sc_mutex_lock(d->lock);
    sc_loop_receives(d, 0);
    if (!d->closed) sc_io_close(&d->io);
    d->closed = 1;
    sc_mutex_unlock(d->lock);
    sc_mutex_unlock(&d->role.lock);
    sc_mutex_unlock(&d->tx.lock);
}

void sc_driver_forked(sc_driver *d) {
    sc_io_close(&d->io);
    sc_set_close(&d->waits.set);
    sc_signal_close(d->waits.watch);
}

void sc_driver_free(sc_driver *d) {
    if (!d->engine) return; /* not initialised: its descriptors are zeros, which are somebody else's */
    if (d->round.scratch) sc_intake_free(d);
    sc_transmitter_free(&d->tx);
    sc_set_close(&d->waits.set);
    sc_signal_close(d->waits.watch);
}

void sc_driver_poke(sc_driver *d) {
    sc_driver_flush(d, 1, sc_now());
    sc_mutex_lock(d->lock);
    sc_cond_broadcast(&d->turn.free);
    sc_mutex_unlock(d->lock);
    sc_mutex_lock(&d->role.lock);
    sc_wake_all(d);
    if (d->role.holder != SC_ROLE_FREE) sc_io_wake(&d->io); /* the engine's deadline may have moved, too */
    sc_mutex_unlock(&d->role.lock);
}

/* In the order of their fields. */
#define SOCKETS "io_sends io_receives io_gso_refused io_send_errors io_receive_errors io_truncated io_refused "
#define THREADS "io_turns io_rounds io_polls io_naps io_nap_bytes io_kicks "

int sc_driver_board(sc_driver *d, struct sc_board *board) {
    sc_board_part *sockets = sc_board_add(board, "sockets", SOCKETS, sizeof *d->io.counters, 1);
    sc_board_part *threads = sc_board_add(board, "threads", THREADS, sizeof *d->counters, 1);
    if (!sockets || !threads) return -1;
    sc_io_counters *io = (sc_io_counters *)sc_board_at(board, sockets, 0);
    sc_drive_counters *drive = (sc_drive_counters *)sc_board_at(board, threads, 0);
    *io = *d->io.counters;
    *drive = *d->counters;
    d->io.counters = io;
    d->counters = drive;
    sockets->used = threads->used = 1;
    return 0;
}

void sc_driver_counters(const sc_driver *d, sc_io_counters *io, sc_drive_counters *drive) {
#define READ(to, of, name) (to)->name = sc_counted(&(of)->name)
    READ(io, d->io.counters, sends);
    READ(io, d->io.counters, receives);
    READ(io, d->io.counters, gso_refused);
    READ(io, d->io.counters, send_errors);
    READ(io, d->io.counters, receive_errors);
    READ(io, d->io.counters, truncated);
    READ(io, d->io.counters, refused);
    READ(drive, d->counters, turns);
    READ(drive, d->counters, rounds);
    READ(drive, d->counters, polls);
    READ(drive, d->counters, naps);
    READ(drive, d->counters, nap_bytes);
    READ(drive, d->counters, kicks);
#undef READ
    drive->flushes_left = (uint64_t)sc_load(&d->tx.left);
    drive->flushes_handed = (uint64_t)sc_load(&d->tx.handed_over);
}
