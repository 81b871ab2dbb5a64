/* The transport for networks that carry multicast, at least to some: to the group by multicast, packets and all else to
 * ports of their own. Packets also go to each target that is to have them by unicast, the same bytes. In a group of two
 * all do: see sc_outflow_singly. */
#include "io/transport.h"

/* When a datagram has left, the kernel wakes the threads that poll its socket, as there is room again; nobody polls
 * `out`. */
static sc_fd socket_of(const sc_io *io, const sc_tx *run) {
    int out = run->lane != SC_LANE_CONTROL && io->out != SC_NO_FD;
    return sc_socket_of(io, run, out ? io->out : io->fd[SC_LANE_UNICAST]);
}

/* Returns how many there are, at most SC_MEMBERS_MAX. */
static int aim_at(sc_io *io, const sc_tx *run, sc_aimed *aimed) {
    const sc_targets *targets = run->lane == SC_LANE_DATA ? io->targets : NULL;
    uint32_t alone = targets ? targets->alone : 0;
    sc_fd by = socket_of(io, run);
    int k = 0;
    if (!alone || targets->together) {
        int connected = run->lane == SC_LANE_DATA && io->out != SC_NO_FD;
        const sc_address *to = run->lane == SC_LANE_UNICAST ? &run->to : &io->lane[run->lane];
        aimed[k++] = (sc_aimed){.run = run, .to = connected ? NULL : to, .by = by};
    }
    if (alone) sc_aim_at_each(io, run, by, alone, aimed + k);
    return k + (int)alone;
}

static void send_runs(sc_io *io, const sc_tx *runs, int n) { sc_send_runs(io, runs, n, aim_at); }

const sc_transport sc_transport_multicast = {
    .open = sc_open_multicast,
    .mend = sc_mend_multicast,
    .aim = sc_loop_multicast,
    .send = send_runs,
};
