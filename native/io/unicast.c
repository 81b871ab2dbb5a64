/* The transport for networks without multicast: datagrams for the group go to each target, the same bytes in as few
 * calls as the system allows. All datagrams, packets or not, come to one port, so that a firewall needs one rule. On
 * Linux two sockets have the port, so that packets hold up nothing else: all leave by the first one, to which packets
 * come. */
#include "io/transport.h"

static int open_one(sc_io *io, const sc_sockaddr *own, sc_io_error *error) {
    if (sc_open_in_range(io, own, io->config.port, io->config.port_range, error) != 0) return -1;
    sc_open_apart(io);
    if (!io->apart)
        io->granted /= 2; /* twice the size was requested, for all else, too: see sc_open_unicast */
    else if (io->granted / 2 > io->config.rcvbuf)
        io->granted = 2 * io->config.rcvbuf; /* as the kernel counts it */
    return 0;
}

/* Routes find the interface, except for an address of one link alone, to which the socket is bound with the interface's
 * old index. */
static int mend(sc_io *io, const sc_sockaddr *own, unsigned index, sc_io_error *error) {
    int of_link = io->config.family == 6 && IN6_IS_ADDR_LINKLOCAL(&own->v6.sin6_addr);
    if (of_link && index != (unsigned)sc_load(&io->index)) return sc_io_fail(error, "interface", SC_NO_ADDRESS);
    sc_store(&io->index, index);
    return 0;
}

static int aim_at(sc_io *io, const sc_tx *run, sc_aimed *aimed) {
    sc_fd by = io->fd[SC_LANE_UNICAST];
    if (run->lane == SC_LANE_UNICAST) {
        aimed[0] = (sc_aimed){.run = run, .to = &run->to, .by = sc_socket_of(io, run, by)};
        return 1;
    }
    uint32_t n = io->targets ? io->targets->n : 0;
    if (n) sc_aim_at_each(io, run, by, n, aimed);
    return (int)n;
}

static void send_runs(sc_io *io, const sc_tx *runs, int n) { sc_send_runs(io, runs, n, aim_at); }

const sc_transport sc_transport_unicast = {.open = open_one, .mend = mend, .send = send_runs};
