/* The transport for networks that carry multicast: to the group by multicast, packets and all else to ports of their own; in a group of
 * two by unicast. */
#include "io/transport.h"

/* Among two there is one receiver: unicasts reach it sooner, and nobody else. Heartbeats show that multicasts would. */
static int is_unicast(const sc_io *io, const sc_tx *run) {
    return run->lane == SC_LANE_UNICAST || (run->lane == SC_LANE_DATA && io->targets && io->targets->n == 1);
}

/* Each datagram that has left looks for threads that sleep on its socket, as it may have room again; on `out` nobody does. */
static sc_aimed aim_at(const sc_io *io, const sc_tx *run) {
    sc_aimed aimed = {.run = run, .by = io->fd[SC_LANE_UNICAST]};
    if (run->lane != SC_LANE_CONTROL && io->out != SC_NO_FD) aimed.by = io->out;
    if (is_unicast(io, run))
        aimed.to = run->lane == SC_LANE_UNICAST ? &run->to : &io->targets->to[0];
    else if (run->lane == SC_LANE_CONTROL || io->out == SC_NO_FD)
        aimed.to = &io->lane[run->lane];
    return aimed;
}

static void send_runs(sc_io *io, const sc_tx *runs, int n) {
    sc_aimed aimed[SC_IO_BATCH_MAX];
    for (int sent = 0, k; sent < n; sent += k) {
        for (k = 0; k < SC_IO_BATCH_MAX && sent + k < n; k++) aimed[k] = aim_at(io, &runs[sent + k]);
        sc_send_aimed(io, aimed, k);
    }
}

const sc_transport sc_transport_multicast = {
    .open = sc_open_multicast,
    .mend = sc_mend_multicast,
    .aim = sc_loop_multicast,
    .send = send_runs,
};
