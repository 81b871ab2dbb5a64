/* The multicast group on the interface: membership, and whether multicasts are looped back. */
#include "io/sockets_internal.h"

int sc_io_group(const sc_io *io, sc_fd fd, const sc_sockaddr *own, int join) {
    if (io->config.family == 6) {
        struct ipv6_mreq request;
        memcpy(&request.ipv6mr_multiaddr, io->config.group, 16);
        request.ipv6mr_interface = (unsigned)sc_load(&io->index);
        return setsockopt(fd, IPPROTO_IPV6, join ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP, (const char *)&request,
                          sizeof request);
    }
#if defined(_WIN32)
    struct ip_mreq request;
    request.imr_interface = own->v4.sin_addr;
#else
    struct ip_mreqn request;
    request.imr_address = own->v4.sin_addr;
    request.imr_ifindex = (int)sc_load(&io->index);
#endif
    memcpy(&request.imr_multiaddr, io->config.group, 4);
    return setsockopt(fd, IPPROTO_IP, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, (const char *)&request,
                      sizeof request);
}

int sc_io_connect_out(const sc_io *io, sc_fd fd) {
    sc_sockaddr to;
    socklen_t len = sc_address_to(io, &io->lane[SC_LANE_DATA], &to);
    return connect(fd, &to.any, len);
}

#if defined(_WIN32)
void sc_loop_multicast(sc_io *io) { (void)io; }
#else

/* Without the loop no own datagrams come to the data socket: the filter would run for the datagrams of the others
 * alone. */
static void set_loop(sc_io *io, int loop) {
    int v4 = io->config.family == 4;
    if (io->out == SC_NO_FD || loop == (int)sc_load(&io->looped)) return;
    if (loop) sc_io_filter_own(io, SC_LANE_DATA);
    if (sc_io_set_int(io->out, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MULTICAST_LOOP : IPV6_MULTICAST_LOOP, loop) != 0)
        return;
    if (!loop) sc_io_take_own(io, SC_LANE_DATA);
    sc_store(&io->looped, loop);
}

/* Makes the sockets that multicast use the interface. 0, or -1. */
static int multicast_from(sc_io *io, const sc_sockaddr *own) {
    if (sc_io_multicast_from(io, io->fd[SC_LANE_UNICAST], own) != 0) return -1;
    if (io->out == SC_NO_FD) return 0;
    set_loop(io, 1); /* until the next view: members found while an address was missing may be on this machine */
    return sc_io_multicast_from(io, io->out, own) != 0 || sc_io_connect_out(io, io->out) != 0 ? -1 : 0;
}

int sc_io_join_again(sc_io *io, const sc_sockaddr *own, unsigned index, sc_io_error *error) {
    for (int lane = SC_LANE_DATA; lane <= SC_LANE_CONTROL; lane++) sc_io_group(io, io->fd[lane], own, 0);
    sc_store(&io->index, index);
    for (int lane = SC_LANE_DATA; lane <= SC_LANE_CONTROL; lane++)
        if (sc_io_group(io, io->fd[lane], own, 1) != 0) return sc_io_fail(error, "join", errno);
    return multicast_from(io, own) == 0 ? 0 : sc_io_fail(error, "multicast", errno);
}

static int is_on_this_machine(const sc_io *io, const sc_address *member) {
    sc_sockaddr own, host;
    sc_io_own_address(io, &own);
    socklen_t len = sc_io_host_of(io, member, &host);
    return len == 0 || sc_io_same_host(&own, &host) || sc_io_is_here(&host, len);
}

/* If no target is on this machine, packets to the group are not looped back, which takes half a microsecond for each
 * that is sent by itself. A machine that routes multicasts routes the looped ones. */
void sc_loop_multicast(sc_io *io) {
    const sc_targets *others = io->targets;
    int loop = others->n == 0 || io->config.ttl > 1;
    if (io->out == SC_NO_FD) return;
    for (uint32_t i = 0; i < others->n && !loop; i++) loop = is_on_this_machine(io, &others->to[i]);
    set_loop(io, loop);
}
#endif
