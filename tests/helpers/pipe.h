/* A transport for tests: a pipe between two members of one process. Datagrams of one, to the group or to a member, come
 * to the other. No file of native/io knows of this transport, just as none of native/order knows of an order
 * of tests. */
#pragma once

#include "io/transport.h"

static struct {
    sc_io *end[2];
    int n; /* ends that are open */
    uint64_t runs; /* that went into the pipe */
} test_pipe;

static int test_pipe_open(sc_io *io, const sc_sockaddr *own, sc_io_error *error) {
    if (sc_open_unicast(io, own, 0, error) != 0) return -1;
    test_pipe.end[test_pipe.n++] = io;
    for (int i = 0; i < 2 && test_pipe.n == 2; i++) {
        sc_sockaddr other;
        socklen_t len = sc_address_to(io, &test_pipe.end[1 - i]->address, &other);
        if (connect(test_pipe.end[i]->fd[SC_LANE_UNICAST], &other.any, len) != 0)
            return sc_io_fail(error, "connect", sc_errno());
    }
    return 0;
}

static int test_pipe_mend(sc_io *io, const sc_sockaddr *own, unsigned index, sc_io_error *error) {
    (void)own;
    (void)error;
    sc_store(&io->index, index);
    return 0;
}

static int test_pipe_aim(sc_io *io, const sc_tx *run, sc_aimed *aimed) {
    aimed[0] = (sc_aimed){.run = run, .to = NULL, .by = io->fd[SC_LANE_UNICAST]};
    return 1;
}

static void test_pipe_send(sc_io *io, const sc_tx *runs, int n) {
    __atomic_fetch_add(&test_pipe.runs, (uint64_t)n, __ATOMIC_RELAXED);
    sc_send_runs(io, runs, n, test_pipe_aim);
}

static const sc_transport test_pipe_transport = {
    .open = test_pipe_open, .mend = test_pipe_mend, .send = test_pipe_send};
