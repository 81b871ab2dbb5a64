/* The interface while the sockets are open: its present state, and the addresses of this machine. */
#include "io/sockets_internal.h"

#if defined(_WIN32)
int sc_io_look(const sc_io *io) {
    (void)io;
    return 0;
}
#else

socklen_t sc_io_host_of(const sc_io *io, const sc_address *member, sc_sockaddr *host) {
    socklen_t len = sc_address_to(io, member, host);
    if (io->config.family == 4)
        host->v4.sin_port = 0;
    else
        host->v6.sin6_port = 0;
    return len;
}

socklen_t sc_io_own_address(const sc_io *io, sc_sockaddr *own) {
    socklen_t len = sc_io_host_of(io, &io->address, own);
    if (io->config.family == 6 && own->v6.sin6_scope_id != 0) own->v6.sin6_scope_id = if_nametoindex(io->name);
    return len;
}

int sc_io_is_here(const sc_sockaddr *address, socklen_t len) {
#if defined(SOCK_CLOEXEC)
    sc_fd fd = socket(address->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
#else
    sc_fd fd = socket(address->any.sa_family, SOCK_DGRAM, 0);
#endif
    if (fd == SC_NO_FD) return 1;
    int here = bind(fd, &address->any, len) == 0 || errno != EADDRNOTAVAIL;
    close(fd);
    return here;
}

static int has_address(const sc_io *io) {
    sc_sockaddr own;
    socklen_t len = sc_io_own_address(io, &own);
    return sc_io_is_here(&own, len);
}

static int has_other_address(const sc_io *io) {
    struct ifaddrs *all;
    int found = 0;
    if (getifaddrs(&all) != 0) return 0;
    for (const struct ifaddrs *at = all; at != NULL && !found; at = at->ifa_next)
        found = at->ifa_addr != NULL && sc_io_is_named(at->ifa_name, io->name) &&
                at->ifa_addr->sa_family == (io->config.family == 4 ? AF_INET : AF_INET6) &&
                !(io->config.family == 6 && IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)at->ifa_addr)->sin6_addr));
    freeifaddrs(all);
    return found;
}

/* Was loopback taken because there was no other interface, and is there one now? */
static int has_other_interface(const sc_io *io) {
    sc_io now = {.config = io->config};
    sc_sockaddr own;
    sc_io_error error;
    if (!io->loopback || io->config.wanted_interface[0] != 0) return 0;
    now.lane[SC_LANE_DATA] = io->lane[SC_LANE_DATA];
    return sc_io_find_interface(&now, &own, &error) == 0 && !now.loopback;
}

int sc_io_look(const sc_io *io) {
    unsigned index = if_nametoindex(io->name);
    if (index == 0) return errno == ENODEV || errno == ENXIO ? SC_IO_GONE : 0; /* or no descriptors are left to look */
    int seen = index != (unsigned)sc_load(&io->index) ? SC_IO_REMADE : 0, flags = sc_io_flags_of(io->name);
    if (!(flags & IFF_UP))
        seen |= SC_IO_DOWN;
    else if (!(flags & IFF_RUNNING))
        seen |= SC_IO_NO_CARRIER;
    if (has_other_interface(io)) seen |= SC_IO_ROUTED;
    if (has_address(io)) return seen;
    return seen | SC_IO_ADDRESS_GONE | (has_other_address(io) ? SC_IO_ADDRESS_OTHER : 0);
}

#endif
