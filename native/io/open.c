/* Finding the interface and opening the sockets of one member. */
#include "io/internal.h"

#define CONTROL_RCVBUF (1 << 20)

static sc_address group_address(const sc_io_config *config, unsigned port) {
    sc_address out = {.len = config->family == 4 ? 7 : 19};
    out.bytes[0] = (uint8_t)config->family;
    out.bytes[1] = (uint8_t)(port >> 8);
    out.bytes[2] = (uint8_t)port;
    memcpy(out.bytes + 3, config->group, config->family == 4 ? 4 : 16);
    return out;
}

/* ---- the interface ------------------------------------------------------------------------------------------ */

static int fail(sc_io_error *error, const char *call, int code) {
    error->call = call;
    error->code = code;
    return -1;
}

static int set_int(sc_fd fd, int level, int option, int value) {
    return setsockopt(fd, level, option, (const char *)&value, sizeof value);
}

static int get_int(sc_fd fd, int level, int option) {
    int value = 0;
    socklen_t len = sizeof value;
    return getsockopt(fd, level, option, (char *)&value, &len) == 0 ? value : -1;
}

static int multicast_from(const sc_io *io, sc_fd fd, const sc_sockaddr *own) {
    if (io->config.family == 6) return set_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, (int)io->index);
#if defined(_WIN32)
    return setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, (const char *)&own->v4.sin_addr, sizeof own->v4.sin_addr);
#else
    struct ip_mreqn out = {.imr_address = own->v4.sin_addr, .imr_ifindex = (int)io->index};
    return setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &out, sizeof out);
#endif
}

/* The source address that the routes give datagrams to the group, from the interface of `own` where that is given; -1
 * where there is no route. Nothing is sent. */
static int routed_source(const sc_io *io, const sc_sockaddr *own, sc_sockaddr *out) {
    sc_sockaddr to;
    socklen_t len = sc_address_to(io, &io->lane[SC_LANE_DATA], &to);
    sc_fd fd = socket(io->config.family == 4 ? AF_INET : AF_INET6, SOCK_DGRAM, 0);
    if (fd == SC_NO_FD) return -1;
    int result = own != NULL ? multicast_from(io, fd, own) : 0;
    if (result == 0) result = connect(fd, &to.any, len);
    if (result == 0) {
        len = sizeof *out;
        result = getsockname(fd, &out->any, &len);
    }
    int code = sc_errno();
    sc_close_fd(fd);
#if !defined(_WIN32)
    errno = code;
#else
    WSASetLastError(code);
#endif
    return result;
}

static int same_host(const sc_sockaddr *a, const sc_sockaddr *b) {
    if (a->any.sa_family != b->any.sa_family) return 0;
    if (a->any.sa_family == AF_INET) return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
    return memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, 16) == 0;
}

static int parse_host(int family, const char *text, sc_sockaddr *out) {
    memset(out, 0, sizeof *out);
    out->any.sa_family = family == 4 ? AF_INET : AF_INET6;
    return inet_pton(out->any.sa_family, text, family == 4 ? (void *)&out->v4.sin_addr : (void *)&out->v6.sin6_addr) ==
           1;
}

#if defined(_WIN32)

/* Windows: an interface is given by an address of it; the MTU comes from the adapter's table. */
static int find_interface(sc_io *io, sc_sockaddr *own, sc_io_error *error) {
    if (io->config.interface[0] == 0) {
        if (routed_source(io, NULL, own) != 0)
            parse_host(io->config.family, io->config.family == 4 ? "127.0.0.1" : "::1", own);
    } else if (!parse_host(io->config.family, io->config.interface, own)) {
        return fail(error, "interface", WSAEADDRNOTAVAIL);
    }
    ULONG size = 1 << 16;
    IP_ADAPTER_ADDRESSES *all = malloc(size);
    if (all == NULL) return fail(error, "malloc", WSA_NOT_ENOUGH_MEMORY);
    int found = 0;
    if (GetAdaptersAddresses(own->any.sa_family, 0, NULL, all, &size) == NO_ERROR)
        for (IP_ADAPTER_ADDRESSES *at = all; at != NULL && !found; at = at->Next)
            for (IP_ADAPTER_UNICAST_ADDRESS *a = at->FirstUnicastAddress; a != NULL; a = a->Next)
                if (same_host((sc_sockaddr *)a->Address.lpSockaddr, own)) {
                    found = 1;
                    io->index = io->config.family == 4 ? at->IfIndex : at->Ipv6IfIndex;
                    io->loopback = at->IfType == IF_TYPE_SOFTWARE_LOOPBACK;
                    io->mtu = at->Mtu > 65536 ? 65536 : (int)at->Mtu;
                    snprintf(io->name, sizeof io->name, "%s", at->AdapterName);
                    break;
                }
    free(all);
    return found ? 0 : fail(error, "interface", WSAEADDRNOTAVAIL);
}

#else

static int mtu_of(const char *name) {
    struct ifreq request;
    memset(&request, 0, sizeof request);
    size_t len = strlen(name);
    sc_fd fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd == SC_NO_FD || len >= sizeof request.ifr_name) return 1500;
    memcpy(request.ifr_name, name, len);
    int mtu = ioctl(fd, SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 1500;
    close(fd);
    return mtu;
}

static int flags_of(const char *name) {
    struct ifreq request;
    memset(&request, 0, sizeof request);
    sc_fd fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd == SC_NO_FD) return IFF_UP | IFF_RUNNING;
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    int flags = ioctl(fd, SIOCGIFFLAGS, &request) == 0 ? request.ifr_flags & 0xffff : IFF_UP | IFF_RUNNING;
    close(fd);
    return flags;
}

/* How well an address of an interface suits: 0 not at all; a global IPv6 address before a link-local one. */
static int suits(const sc_io *io, const struct ifaddrs *at, const sc_sockaddr *wanted, int any_loopback) {
    if (at->ifa_addr == NULL || !(at->ifa_flags & IFF_UP)) return 0;
    sc_sockaddr have;
    memset(&have, 0, sizeof have);
    if (at->ifa_addr->sa_family != (io->config.family == 4 ? AF_INET : AF_INET6)) return 0;
    memcpy(&have, at->ifa_addr, io->config.family == 4 ? sizeof have.v4 : sizeof have.v6);
    int link_local = io->config.family == 6 && IN6_IS_ADDR_LINKLOCAL(&have.v6.sin6_addr);
    if (wanted != NULL) return same_host(&have, wanted) ? 2 - link_local : 0;
    if (any_loopback) return at->ifa_flags & IFF_LOOPBACK ? 2 - link_local : 0;
    return strcmp(at->ifa_name, io->config.interface) == 0 ? 2 - link_local : 0;
}

/* Finds the interface and its address: the configured name or address; else where the routes send the group's
 * datagrams, if that interface has multicast; else loopback. */
static int find_interface(sc_io *io, sc_sockaddr *own, sc_io_error *error) {
    sc_sockaddr host;
    const sc_sockaddr *wanted = NULL;
    int any_loopback = 0;
    if (io->config.interface[0] == 0) {
        if (routed_source(io, NULL, &host) == 0)
            wanted = &host;
        else
            any_loopback = 1;
    } else if (parse_host(io->config.family, io->config.interface, &host)) {
        wanted = &host;
    }
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0) return fail(error, "getifaddrs", errno);
    int best = 0;
    for (int round = 0; round < 2 && best == 0; round++) {
        for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
            int how = suits(io, at, wanted, any_loopback);
            int multicast = (at->ifa_flags & (IFF_MULTICAST | IFF_LOOPBACK)) != 0;
            if (how <= best || (io->config.interface[0] == 0 && !multicast)) continue;
            best = how;
            memcpy(own, at->ifa_addr, io->config.family == 4 ? sizeof own->v4 : sizeof own->v6);
            snprintf(io->name, sizeof io->name, "%s", at->ifa_name);
            io->loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
        }
        if (io->config.interface[0] != 0) break;
        wanted = NULL; /* the route's interface has no multicast */
        any_loopback = 1;
    }
    freeifaddrs(all);
    if (best == 0 && if_nametoindex(io->config.interface) == 0) return fail(error, "interface", ENODEV);
    if (best == 0) return fail(error, "interface", flags_of(io->config.interface) & IFF_UP ? EADDRNOTAVAIL : ENETDOWN);
    io->index = if_nametoindex(io->name);
    io->mtu = mtu_of(io->name);
    return 0;
}

#endif

/* ---- opening ------------------------------------------------------------------------------------------------ */

static sc_fd open_udp(int family, sc_io_error *error) {
#if defined(SOCK_CLOEXEC)
    sc_fd fd = socket(family == 4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
#else
    sc_fd fd = socket(family == 4 ? AF_INET : AF_INET6, SOCK_DGRAM, 0);
#endif
    if (fd == SC_NO_FD) fail(error, "socket", sc_errno());
#if !defined(_WIN32) && !defined(SOCK_CLOEXEC)
    else
        fcntl(fd, F_SETFD, FD_CLOEXEC);
#endif
    return fd;
}

/* Bytes of socket memory granted. SO_RCVBUFFORCE (with CAP_NET_ADMIN) is not clipped by net.core.rmem_max. */
static int set_buffer(sc_fd fd, int receive, int bytes) {
    int option = receive ? SO_RCVBUF : SO_SNDBUF;
#if defined(__linux__)
    int force = receive ? SO_RCVBUFFORCE : SO_SNDBUFFORCE;
    if (set_int(fd, SOL_SOCKET, force, bytes) != 0)
#endif
        set_int(fd, SOL_SOCKET, option, bytes);
    return get_int(fd, SOL_SOCKET, option);
}

/* The kernel drops our own looped-back datagrams before they are charged to the socket: the filter compares the
 * sender's incarnation (the data that a filter sees starts with the 8-byte UDP header). */
static int filter_own(sc_fd fd, uint64_t member) {
#if defined(__linux__)
    uint8_t wire[8];
    sc_put64(wire, member);
    uint32_t high = (uint32_t)wire[0] << 24 | (uint32_t)wire[1] << 16 | (uint32_t)wire[2] << 8 | wire[3];
    uint32_t low = (uint32_t)wire[4] << 24 | (uint32_t)wire[5] << 16 | (uint32_t)wire[6] << 8 | wire[7];
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 8 + SC_COMMON_HEADER, 0, 5), /* too short for us: the engine counts it */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 8 + sc_at_sender),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, high, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 8 + sc_at_sender + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, low, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, 0xffffffff),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
#else
    (void)fd;
    (void)member;
    return 0;
#endif
}

static int join_group(const sc_io *io, sc_fd fd, const sc_sockaddr *own) {
    if (io->config.family == 6) {
        struct ipv6_mreq request;
        memcpy(&request.ipv6mr_multiaddr, io->config.group, 16);
        request.ipv6mr_interface = io->index;
        return setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, (const char *)&request, sizeof request);
    }
#if defined(_WIN32)
    struct ip_mreq request;
    request.imr_interface = own->v4.sin_addr;
#else
    struct ip_mreqn request;
    request.imr_address = own->v4.sin_addr;
    request.imr_ifindex = (int)io->index;
#endif
    memcpy(&request.imr_multiaddr, io->config.group, 4);
    return setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, (const char *)&request, sizeof request);
}

/* A socket that receives what is multicast to the group on one port, on our interface only. */
static int open_multicast(sc_io *io, int lane, const sc_sockaddr *own, sc_io_error *error) {
    int family = io->config.family;
    sc_fd fd = io->fd[lane] = open_udp(family, error);
    if (fd == SC_NO_FD) return -1;
    set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
#if defined(SO_REUSEPORT) && !defined(__linux__)
    set_int(fd, SOL_SOCKET, SO_REUSEPORT, 1); /* elsewhere members of one machine need it to share the port */
#endif
    sc_sockaddr bound;
    socklen_t len = sc_address_to(io, &io->lane[lane], &bound);
#if defined(_WIN32) /* cannot bind to a group's address */
    if (family == 4)
        bound.v4.sin_addr.s_addr = INADDR_ANY;
    else
        bound.v6.sin6_addr = in6addr_any;
#endif
    if (family == 6) set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
#if defined(__linux__)
    /* Without it a socket gets every group that anyone on this machine joined. IPv6 does not look at the interface. */
    if (family == 4)
        set_int(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
    else {
        set_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
        (void)!setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, io->name, (socklen_t)strlen(io->name));
    }
#endif
    if (bind(fd, &bound.any, len) != 0) return fail(error, "bind", sc_errno());
    if (join_group(io, fd, own) != 0) return fail(error, "join", sc_errno());
    int granted = set_buffer(fd, 1, lane == SC_LANE_DATA ? io->config.rcvbuf : CONTROL_RCVBUF);
    if (lane == SC_LANE_DATA) io->granted = granted;
    io->filtered = filter_own(fd, io->config.member);
    return sc_set_nonblocking(fd);
}

static int open_unicast(sc_io *io, const sc_sockaddr *own, sc_io_error *error) {
    int v4 = io->config.family == 4;
    sc_fd fd = io->fd[SC_LANE_UNICAST] = open_udp(io->config.family, error);
    if (fd == SC_NO_FD) return -1;
    sc_sockaddr bound = *own;
    socklen_t len = v4 ? sizeof bound.v4 : sizeof bound.v6;
    if (v4)
        bound.v4.sin_port = 0;
    else
        bound.v6.sin6_port = 0;
    if (bind(fd, &bound.any, len) != 0) return fail(error, "bind", sc_errno());
    len = sizeof bound;
    if (getsockname(fd, &bound.any, &len) != 0) return fail(error, "getsockname", sc_errno());
    sc_address_from(&io->address, &bound);
    int failed = multicast_from(io, fd, own);
    if (v4) {
        failed |= set_int(fd, IPPROTO_IP, IP_MULTICAST_TTL, io->config.ttl);
        failed |= set_int(fd, IPPROTO_IP, IP_MULTICAST_LOOP, 1);
        set_int(fd, IPPROTO_IP, IP_TOS, io->config.dscp << 2);
    } else {
        failed |= set_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, io->config.ttl);
        failed |= set_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 1);
#if !defined(_WIN32)
        set_int(fd, IPPROTO_IPV6, IPV6_TCLASS, io->config.dscp << 2);
#endif
    }
    if (failed) return fail(error, "multicast", sc_errno());
    set_buffer(fd, 1, io->config.rcvbuf);
    io->send_granted = set_buffer(fd, 0, io->config.sndbuf);
#if defined(__linux__) /* so that the closed port of a member that was killed is reported, and whose it is */
    set_int(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_RECVERR : IPV6_RECVERR, 1);
#endif
#if defined(_WIN32) /* a send to a closed port must not make the next receive fail */
    BOOL off = FALSE;
    DWORD bytes;
    WSAIoctl(fd, _WSAIOW(IOC_VENDOR, 12), &off, sizeof off, NULL, 0, &bytes, NULL, NULL);
#endif
    sc_sockaddr source;
    if (routed_source(io, own, &source) != 0) return fail(error, "route", sc_errno());
    return sc_set_nonblocking(fd);
}

int sc_io_open(sc_io *io, const sc_io_config *config, sc_io_error *error) {
    memset(io, 0, sizeof *io);
    for (int i = 0; i < SC_IO_SOCKETS; i++) io->fd[i] = SC_NO_FD;
    io->wake[0] = io->wake[1] = SC_NO_FD;
    io->config = *config;
    error->call = "";
    error->code = 0;
#if defined(_WIN32)
    WSADATA data;
    if (WSAStartup(MAKEWORD(2, 2), &data) != 0) return fail(error, "WSAStartup", WSAGetLastError());
#endif
    io->lane[SC_LANE_DATA] = group_address(config, config->port);
    io->lane[SC_LANE_CONTROL] = group_address(config, config->port + 1u);
    sc_sockaddr own;
    memset(&own, 0, sizeof own);
    if (find_interface(io, &own, error) != 0 || open_multicast(io, SC_LANE_DATA, &own, error) != 0 ||
        open_multicast(io, SC_LANE_CONTROL, &own, error) != 0 || open_unicast(io, &own, error) != 0 ||
        (sc_signal_open(io->wake) != 0 && fail(error, "wake", sc_errno()) != 0)) {
        if (error->call[0] == 0) fail(error, "socket", sc_errno());
        sc_io_close(io);
        return -1;
    }
#if defined(__linux__)
    sc_fd unicast = io->fd[SC_LANE_UNICAST];
    sc_store(&io->mmsg, config->mmsg);
    sc_store(&io->gso, config->gso && set_int(unicast, SOL_UDP, UDP_SEGMENT, 0) == 0);
    io->gro = config->gro && set_int(unicast, SOL_UDP, UDP_GRO, 1) == 0 &&
              set_int(io->fd[SC_LANE_DATA], SOL_UDP, UDP_GRO, 1) == 0;
#endif
    return 0;
}

/* ---- an interface that changes ------------------------------------------------------------------------------ */

#if defined(_WIN32)
int sc_io_look(const sc_io *io) {
    (void)io;
    return 0;
}

int sc_io_mend(sc_io *io, sc_io_error *error) {
    (void)io;
    return fail(error, "interface", WSAEOPNOTSUPP);
}
#else

/* Our address, on the interface that has the name now, without the port. */
static socklen_t own_address(const sc_io *io, sc_sockaddr *own) {
    socklen_t len = sc_address_to(io, &io->address, own);
    if (io->config.family == 4)
        own->v4.sin_port = 0;
    else
        own->v6.sin6_port = 0;
    if (io->config.family == 6 && own->v6.sin6_scope_id != 0) own->v6.sin6_scope_id = if_nametoindex(io->name);
    return len;
}

/* Can sockets still be bound to our address? */
static int has_address(const sc_io *io) {
    sc_sockaddr own;
    socklen_t len = own_address(io, &own);
    sc_fd fd = socket(own.any.sa_family, SOCK_DGRAM, 0);
    if (fd == SC_NO_FD) return 1;
    int has = bind(fd, &own.any, len) == 0 || errno != EADDRNOTAVAIL;
    close(fd);
    return has;
}

static int has_other_address(const sc_io *io) {
    struct ifaddrs *all;
    int found = 0;
    if (getifaddrs(&all) != 0) return 0;
    for (const struct ifaddrs *at = all; at != NULL && !found; at = at->ifa_next)
        found = at->ifa_addr != NULL && strcmp(at->ifa_name, io->name) == 0 &&
                at->ifa_addr->sa_family == (io->config.family == 4 ? AF_INET : AF_INET6) &&
                !(io->config.family == 6 && IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)at->ifa_addr)->sin6_addr));
    freeifaddrs(all);
    return found;
}

int sc_io_look(const sc_io *io) {
    unsigned index = if_nametoindex(io->name);
    if (index == 0) return SC_IO_GONE;
    int seen = index != io->index ? SC_IO_REMADE : 0, flags = flags_of(io->name);
    if (!(flags & IFF_UP))
        seen |= SC_IO_DOWN;
    else if (!(flags & IFF_RUNNING))
        seen |= SC_IO_NO_CARRIER;
    if (has_address(io)) return seen;
    return seen | SC_IO_ADDRESS_GONE | (has_other_address(io) ? SC_IO_ADDRESS_OTHER : 0);
}

static void leave_group(const sc_io *io, sc_fd fd, const sc_sockaddr *own) {
    if (io->config.family == 6) {
        struct ipv6_mreq request;
        memcpy(&request.ipv6mr_multiaddr, io->config.group, 16);
        request.ipv6mr_interface = io->index;
        setsockopt(fd, IPPROTO_IPV6, IPV6_LEAVE_GROUP, &request, sizeof request);
        return;
    }
    struct ip_mreqn request = {.imr_address = own->v4.sin_addr, .imr_ifindex = (int)io->index};
    memcpy(&request.imr_multiaddr, io->config.group, 4);
    setsockopt(fd, IPPROTO_IP, IP_DROP_MEMBERSHIP, &request, sizeof request);
}

int sc_io_mend(sc_io *io, sc_io_error *error) {
    sc_sockaddr own;
    own_address(io, &own);
    unsigned index = if_nametoindex(io->name);
    if (index == 0) return fail(error, "interface", ENODEV);
    for (int lane = SC_LANE_DATA; lane <= SC_LANE_CONTROL; lane++) leave_group(io, io->fd[lane], &own);
#if defined(__linux__)
    if (io->config.family == 6 && index != io->index) { /* these sockets are bound to the interface that is gone */
        int local = IN6_IS_ADDR_LINKLOCAL(&own.v6.sin6_addr);
        for (int lane = SC_LANE_DATA; lane <= (local ? SC_LANE_UNICAST : SC_LANE_CONTROL); lane++)
            if (setsockopt(io->fd[lane], SOL_SOCKET, SO_BINDTODEVICE, io->name, (socklen_t)strlen(io->name)) != 0)
                return fail(error, "bind to the interface", errno);
    }
#endif
    io->index = index;
    for (int lane = SC_LANE_DATA; lane <= SC_LANE_CONTROL; lane++)
        if (join_group(io, io->fd[lane], &own) != 0) return fail(error, "join", errno);
    if (multicast_from(io, io->fd[SC_LANE_UNICAST], &own) != 0) return fail(error, "multicast", errno);
    return 0;
}
#endif

void sc_io_close(sc_io *io) {
    for (int i = 0; i < SC_IO_SOCKETS; i++)
        if (io->fd[i] != SC_NO_FD) sc_close_fd(io->fd[i]);
    sc_signal_close(io->wake);
    for (int i = 0; i < SC_IO_SOCKETS; i++) io->fd[i] = SC_NO_FD;
#if defined(_WIN32)
    WSACleanup();
#endif
}
