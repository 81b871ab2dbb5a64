/* Opening and closing the sockets of one member. */
#include "io/transport.h"

#define CONTROL_RCVBUF (1 << 20)
#define PMTUDISC_DONT 0 /* of IP and IPv6; C libraries lack some of them */
#define PMTUDISC_PROBE 3
#define PMTUDISC_OMIT 5

static sc_address group_address(const sc_io_config *config, unsigned port) {
    sc_address out = {.len = config->family == 4 ? 7 : 19};
    out.bytes[0] = (uint8_t)config->family;
    out.bytes[1] = (uint8_t)(port >> 8);
    out.bytes[2] = (uint8_t)port;
    memcpy(out.bytes + 3, config->group, config->family == 4 ? 4 : 16);
    return out;
}

static int get_int(sc_fd fd, int level, int option) {
    int value = 0;
    socklen_t len = sizeof value;
    return getsockopt(fd, level, option, (char *)&value, &len) == 0 ? value : -1;
}

/* ---- opening ------------------------------------------------------------------------------------------------ */

static sc_fd open_udp(int family, sc_io_error *error) {
#if defined(SOCK_CLOEXEC)
    sc_fd fd = socket(family == 4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
#else
    sc_fd fd = socket(family == 4 ? AF_INET : AF_INET6, SOCK_DGRAM, 0);
#endif
    if (fd == SC_NO_FD) sc_io_fail(error, "socket", sc_errno());
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
    if (sc_io_set_int(fd, SOL_SOCKET, force, bytes) != 0)
#endif
        sc_io_set_int(fd, SOL_SOCKET, option, bytes);
    return get_int(fd, SOL_SOCKET, option);
}

/* A socket that receives multicasts to the group on one port, on our interface only. */
static int open_multicast(sc_io *io, int lane, const sc_sockaddr *own, sc_io_error *error) {
    int family = io->config.family;
    sc_fd fd = io->fd[lane] = open_udp(family, error);
    if (fd == SC_NO_FD) return -1;
    sc_io_set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
#if defined(SO_REUSEPORT) && !defined(__linux__)
    sc_io_set_int(fd, SOL_SOCKET, SO_REUSEPORT, 1); /* elsewhere members of one machine need this to share the port */
#endif
    sc_sockaddr bound;
    socklen_t len = sc_address_to(io, &io->lane[lane], &bound);
#if defined(_WIN32) /* cannot bind to a group's address */
    if (family == 4)
        bound.v4.sin_addr.s_addr = INADDR_ANY;
    else
        bound.v6.sin6_addr = in6addr_any;
#endif
    if (family == 6) sc_io_set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
#if defined(__linux__)
    /* Otherwise a socket receives every group that any process on this machine joined. IPv6 ignores the interface. */
    if (family == 4)
        sc_io_set_int(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
    else {
        sc_io_set_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
        (void)!setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, io->name, (socklen_t)strlen(io->name));
    }
#endif
    if (bind(fd, &bound.any, len) != 0) return sc_io_fail(error, "bind", sc_errno());
    if (sc_io_group(io, fd, own, 1) != 0) return sc_io_fail(error, "join", sc_errno());
    int granted = set_buffer(fd, 1, lane == SC_LANE_DATA ? io->config.rcvbuf : CONTROL_RCVBUF);
    if (lane == SC_LANE_DATA) io->granted = granted;
    return sc_set_nonblocking(fd);
}

/* Datagrams of the protocol do not forbid fragments, whatever an ICMP message, which anybody can forge, says of the
 * path: large ones come in fragments, if routers make them, until packets are smaller (streams/sizes.c). */
static void set_fragments(const sc_io *io, sc_fd fd, int forbidden) {
#if defined(__linux__)
    int v4 = io->config.family == 4, level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
    int option = v4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER;
    if (sc_io_set_int(fd, level, option, forbidden ? PMTUDISC_PROBE : PMTUDISC_OMIT) != 0 && !forbidden)
        sc_io_set_int(fd, level, option, PMTUDISC_DONT); /* before Linux 3.15 */
#else
    (void)io, (void)fd, (void)forbidden;
#endif
}

/* Makes the socket report the closed port of a killed member, with its address. */
static void report_closed_ports(const sc_io *io, sc_fd fd) {
#if defined(__linux__)
    int v4 = io->config.family == 4;
    sc_io_set_int(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_RECVERR : IPV6_RECVERR, 1);
#else
    (void)io, (void)fd;
#endif
}

/* Sets the options of a sending socket. */
static void set_sending(sc_io *io, sc_fd fd) {
    io->send_granted = set_buffer(fd, 0, io->config.sndbuf);
    set_fragments(io, fd, 0);
    if (io->config.family == 4) sc_io_set_int(fd, IPPROTO_IP, IP_TOS, io->config.dscp << 2);
#if !defined(_WIN32)
    else
        sc_io_set_int(fd, IPPROTO_IPV6, IPV6_TCLASS, io->config.dscp << 2);
#endif
}

/* Sets the further options of a socket that multicasts. 0 on success. */
static int set_multicast(sc_io *io, sc_fd fd, const sc_sockaddr *own) {
    int failed = sc_io_multicast_from(io, fd, own);
    if (io->config.family == 4)
        return failed | sc_io_set_int(fd, IPPROTO_IP, IP_MULTICAST_TTL, io->config.ttl) |
               sc_io_set_int(fd, IPPROTO_IP, IP_MULTICAST_LOOP, 1);
    return failed | sc_io_set_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, io->config.ttl) |
           sc_io_set_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 1);
}

int sc_open_unicast(sc_io *io, const sc_sockaddr *own, uint16_t port, sc_io_error *error) {
    int v4 = io->config.family == 4;
    sc_fd fd = io->fd[SC_LANE_UNICAST] = open_udp(io->config.family, error);
    if (fd == SC_NO_FD) return -1;
    sc_sockaddr bound = *own;
    socklen_t len = v4 ? sizeof bound.v4 : sizeof bound.v6;
    if (v4)
        bound.v4.sin_port = htons(port);
    else
        bound.v6.sin6_port = htons(port);
    if (bind(fd, &bound.any, len) != 0) return sc_io_fail(error, "bind unicast", sc_errno());
    len = sizeof bound;
    if (getsockname(fd, &bound.any, &len) != 0) return sc_io_fail(error, "getsockname", sc_errno());
    sc_address_from(&io->address, &bound);
    set_sending(io, fd);
    io->granted = set_buffer(fd, 1, io->config.rcvbuf <= INT32_MAX / 2 ? 2 * io->config.rcvbuf : INT32_MAX);
    report_closed_ports(io, fd);
#if defined(_WIN32) /* a send to a closed port must not make the next receive fail */
    BOOL off = FALSE;
    DWORD bytes;
    WSAIoctl(fd, _WSAIOW(IOC_VENDOR, 12), &off, sizeof off, NULL, 0, &bytes, NULL, NULL);
#endif
    return sc_set_nonblocking(fd);
}

int sc_open_in_range(sc_io *io, const sc_sockaddr *own, unsigned first, unsigned more, sc_io_error *error) {
    for (unsigned i = 0;; i++) {
        unsigned port = first + i;
        if (sc_open_unicast(io, own, (uint16_t)port, error) == 0) return 0;
        int taken = error->code == SC_IN_USE && i < more && port < 65535;
        if (!taken) return -1;
        sc_close_fd(io->fd[SC_LANE_UNICAST]);
        io->fd[SC_LANE_UNICAST] = SC_NO_FD;
    }
}

#if defined(__linux__)
/* Packets, by their type, which no seal hides, go to the first socket of a port, the rest to the second. */
static int send_packets_apart(sc_fd first) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, sc_at_type),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SC_TYPE_DATA, 6, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SC_TYPE_RECORD, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SC_TYPE_UNICAST, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SC_TYPE_FORWARD, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SC_TYPE_STATE, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SC_TYPE_PIECE, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    return setsockopt(first, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program);
}

void sc_open_apart(sc_io *io) {
    sc_io_error error;
    sc_fd first = io->fd[SC_LANE_UNICAST], fd = open_udp(io->config.family, &error);
    sc_sockaddr bound;
    socklen_t len = sc_address_to(io, &io->address, &bound);
    if (fd == SC_NO_FD) return;
    /* The first one was bound without SO_REUSEPORT, so that no port is shared with another member. */
    io->apart = sc_io_set_int(first, SOL_SOCKET, SO_REUSEPORT, 1) == 0 &&
                sc_io_set_int(fd, SOL_SOCKET, SO_REUSEPORT, 1) == 0 && bind(fd, &bound.any, len) == 0 &&
                send_packets_apart(first) == 0 && sc_set_nonblocking(fd) == 0;
    if (!io->apart) {
        sc_close_fd(fd);
        sc_io_set_int(first, SOL_SOCKET, SO_REUSEPORT, 0);
        return;
    }
    set_buffer(fd, 1, CONTROL_RCVBUF);
    report_closed_ports(io, fd);
    io->fd[SC_LANE_CONTROL] = fd;
}

/* One more socket with our address: several have it while SO_REUSEADDR is set for all of them; after that no other can.
 * Nothing is to come to this one, so `finish` connects the socket to an address from which nobody sends. SC_NO_FD on
 * failure. */
static sc_fd open_beside(sc_io *io, const sc_sockaddr *own,
                         int (*finish)(sc_io *io, sc_fd fd, const sc_sockaddr *own)) {
    sc_io_error error;
    sc_fd fd = open_udp(io->config.family, &error), control = io->apart ? io->fd[SC_LANE_CONTROL] : SC_NO_FD;
    sc_fd all[] = {io->fd[SC_LANE_UNICAST], control, io->out, io->whole, io->unheard, fd};
    sc_sockaddr bound;
    socklen_t len = sc_address_to(io, &io->address, &bound);
    if (fd == SC_NO_FD) return SC_NO_FD;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] != SC_NO_FD) sc_io_set_int(all[i], SOL_SOCKET, SO_REUSEADDR, 1);
    set_sending(io, fd);
    int failed = bind(fd, &bound.any, len) != 0 || finish(io, fd, own) != 0 || sc_set_nonblocking(fd) != 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] != SC_NO_FD) sc_io_set_int(all[i], SOL_SOCKET, SO_REUSEADDR, 0);
    if (!failed) return fd;
    sc_close_fd(fd);
    return SC_NO_FD;
}

static int finish_out(sc_io *io, sc_fd fd, const sc_sockaddr *own) {
    return set_multicast(io, fd, own) != 0 || sc_io_connect_out(io, fd) != 0;
}

static int finish_unheard(sc_io *io, sc_fd fd, const sc_sockaddr *own) {
    sc_sockaddr to; /* itself: each datagram names its address */
    (void)own;
    return connect(fd, &to.any, sc_address_to(io, &io->address, &to)) != 0;
}

static int finish_whole(sc_io *io, sc_fd fd, const sc_sockaddr *own) {
    set_fragments(io, fd, 1);
    return finish_unheard(io, fd, own);
}

/* A socket that is connected to the group: the kernel looks for a route once, and not for each multicast; and no thread
 * sleeps on it. Without one, everything leaves by the unicast socket. */
static void open_out(sc_io *io, const sc_sockaddr *own) { io->out = open_beside(io, own, finish_out); }

/* A socket whose datagrams are never fragmented. On systems without one, questions about sizes go in fragments, and
 * find only paths that lose all large datagrams. */
static void open_whole(sc_io *io, const sc_sockaddr *own) { io->whole = open_beside(io, own, finish_whole); }

/* A socket for datagrams to addresses of which nothing was heard. On systems without one they leave as others do. */
static void open_unheard(sc_io *io, const sc_sockaddr *own) { io->unheard = open_beside(io, own, finish_unheard); }
#else
void sc_open_apart(sc_io *io) { (void)io; }
#endif

/* Packets as large as a receive buffer travel one by one, and a call that cannot bring several in one is cheaper. */
static void use_offloads(sc_io *io) {
#if defined(__linux__)
    const sc_io_config *config = &io->config;
    sc_fd unicast = io->fd[SC_LANE_UNICAST];
    int small = (config->packet_bytes ? config->packet_bytes : io->mtu) < SC_SLAB_BYTES / 2;
    sc_store(&io->mmsg, config->mmsg);
    sc_store(&io->gso, config->gso && sc_io_set_int(unicast, SOL_UDP, UDP_SEGMENT, 0) == 0);
    io->gro = config->gro && small && sc_io_set_int(unicast, SOL_UDP, UDP_GRO, 1) == 0 &&
              (io->fd[SC_LANE_DATA] == SC_NO_FD || sc_io_set_int(io->fd[SC_LANE_DATA], SOL_UDP, UDP_GRO, 1) == 0);
    /* Before it joins datagrams, the kernel asks any one of the sockets of a port whether it may. */
    if (io->gro && io->apart) io->gro = sc_io_set_int(io->fd[SC_LANE_CONTROL], SOL_UDP, UDP_GRO, 1) == 0;
#else
    (void)io;
#endif
}

int sc_open_multicast(sc_io *io, const sc_sockaddr *own, sc_io_error *error) {
    sc_sockaddr source;
    if (open_multicast(io, SC_LANE_DATA, own, error) != 0 || open_multicast(io, SC_LANE_CONTROL, own, error) != 0 ||
        sc_open_in_range(io, own, io->config.unicast_port, io->config.port_range, error) != 0)
        return -1;
    if (set_multicast(io, io->fd[SC_LANE_UNICAST], own) != 0) return sc_io_fail(error, "multicast", sc_errno());
    if (sc_io_routed_source(io, own, &source) != 0 && sc_errno() != SC_NO_PORTS)
        return sc_io_fail(error, "route", sc_errno());
    sc_io_filter_own(io, SC_LANE_DATA);
    sc_io_filter_own(io, SC_LANE_CONTROL);
#if defined(__linux__)
    open_out(io, own);
#endif
    sc_store(&io->looped, 1);
    return 0;
}

/* No socket is open yet. */
static void begin(sc_io *io, const sc_io_config *config) {
    memset(io, 0, sizeof *io);
    for (int i = 0; i < SC_IO_SOCKETS; i++) io->fd[i] = SC_NO_FD;
    io->wake[0] = io->wake[1] = io->out = io->whole = io->unheard = SC_NO_FD;
    io->config = *config;
    if (!config->transport) io->config.transport = &sc_transport_multicast;
    io->lane[SC_LANE_DATA] = group_address(config, config->port);
    io->lane[SC_LANE_CONTROL] = group_address(config, config->port + 1u);
}

int sc_io_open(sc_io *io, const sc_io_config *config, sc_io_error *error) {
    begin(io, config);
    error->call = "";
    error->code = 0;
#if defined(_WIN32)
    WSADATA data;
    if (WSAStartup(MAKEWORD(2, 2), &data) != 0) return sc_io_fail(error, "WSAStartup", WSAGetLastError());
#endif
    sc_sockaddr own;
    memset(&own, 0, sizeof own);
    if (sc_io_find_interface(io, &own, error) != 0 || io->config.transport->open(io, &own, error) != 0 ||
        (sc_signal_open(io->wake) != 0 && sc_io_fail(error, "wake", sc_errno()) != 0)) {
        if (error->call[0] == 0) sc_io_fail(error, "socket", sc_errno());
        sc_io_close(io);
        return -1;
    }
#if defined(__linux__)
    open_whole(io, &own);
    open_unheard(io, &own);
#endif
    use_offloads(io);
    return 0;
}

void sc_io_aim(sc_io *io, const sc_targets *targets) {
    io->targets = targets;
    io->next_target = 0;
    if (io->config.transport->aim) io->config.transport->aim(io);
}

void sc_io_send(sc_io *io, const sc_tx *runs, int n) { io->config.transport->send(io, runs, n); }

#if defined(__linux__)
/* The second socket takes the number of the first, which is closed: threads that use it meanwhile use the one or the
 * other. */
static int take_place(sc_fd second, sc_fd first, sc_io_error *error) {
    if (second == SC_NO_FD || dup3(second, first, O_CLOEXEC) == first) return 0;
    return sc_io_fail(error, "dup3", errno);
}

/* The unicast socket, if bound to the interface by its address. */
static int open_local(sc_io *second, const sc_sockaddr *own, sc_io_error *error) {
    if (sc_open_unicast(second, own, second->config.unicast_port, error) != 0) return -1;
    return set_multicast(second, second->fd[SC_LANE_UNICAST], own) == 0 ? 0 : sc_io_fail(error, "multicast", errno);
}

/* May others have the address of these sockets? */
static void share_beside(const sc_io *io, int shared) {
    if (io->whole != SC_NO_FD) sc_io_set_int(io->whole, SOL_SOCKET, SO_REUSEADDR, shared);
    if (io->unheard != SC_NO_FD) sc_io_set_int(io->unheard, SOL_SOCKET, SO_REUSEADDR, shared);
}

/* The sockets of `io`, made a second time. 0, or -1. */
static int open_second(const sc_io *io, sc_io *second, const sc_sockaddr *own, int local, sc_io_error *error) {
    if (open_multicast(second, SC_LANE_DATA, own, error) != 0 ||
        open_multicast(second, SC_LANE_CONTROL, own, error) != 0 || (local && open_local(second, own, error) != 0))
        return -1;
    sc_io_filter_own(second, SC_LANE_DATA);
    sc_io_filter_own(second, SC_LANE_CONTROL);
    /* For a moment both these and the second ones have our address. */
    share_beside(io, 1);
    if (io->out != SC_NO_FD) {
        sc_io_set_int(io->out, SOL_SOCKET, SO_REUSEADDR, 1);
        open_out(second, own);
        if (second->out == SC_NO_FD) return sc_io_fail(error, "socket", errno);
    }
    if (io->whole != SC_NO_FD) open_whole(second, own);
    if (io->unheard != SC_NO_FD) open_unheard(second, own);
    use_offloads(second);
    return 0;
}

/* Opens sockets like those of `io` on the interface with this index, for the same addresses. They take the numbers of
 * those that are bound to an interface, which are closed. 0, or -1. */
static int open_again(sc_io *io, const sc_sockaddr *own, unsigned index, sc_io_error *error) {
    sc_io second;
    int local = IN6_IS_ADDR_LINKLOCAL(&own->v6.sin6_addr);
    begin(&second, &io->config);
    second.config.unicast_port = (uint16_t)(io->address.bytes[1] << 8 | io->address.bytes[2]);
    second.address = io->address;
    second.mtu = io->mtu;
    memcpy(second.name, io->name, sizeof second.name);
    sc_store(&second.index, index);
    if (!local) second.fd[SC_LANE_UNICAST] = io->fd[SC_LANE_UNICAST]; /* unbound */
    int failed = open_second(io, &second, own, local, error);
    if (!local) second.fd[SC_LANE_UNICAST] = SC_NO_FD;
    for (int i = 0; i < SC_IO_SOCKETS && failed == 0; i++) failed = take_place(second.fd[i], io->fd[i], error);
    if (failed == 0) failed = take_place(second.out, io->out, error);
    if (failed == 0) failed = take_place(second.whole, io->whole, error);
    if (failed == 0) failed = take_place(second.unheard, io->unheard, error);
    share_beside(io, 0);
    sc_io_close(&second);
    return failed;
}
#endif

void sc_io_close(sc_io *io) {
    for (int i = 0; i < SC_IO_SOCKETS; i++)
        if (io->fd[i] != SC_NO_FD) sc_close_fd(io->fd[i]);
    if (io->out != SC_NO_FD) sc_close_fd(io->out);
    if (io->whole != SC_NO_FD) sc_close_fd(io->whole);
    if (io->unheard != SC_NO_FD) sc_close_fd(io->unheard);
    io->out = io->whole = io->unheard = SC_NO_FD;
    sc_signal_close(io->wake);
    for (int i = 0; i < SC_IO_SOCKETS; i++) io->fd[i] = SC_NO_FD;
#if defined(_WIN32)
    WSACleanup();
#endif
}

#if defined(_WIN32)
int sc_io_mend(sc_io *io, sc_io_error *error) {
    (void)io;
    return sc_io_fail(error, "interface", WSAEOPNOTSUPP);
}

int sc_mend_multicast(sc_io *io, const sc_sockaddr *own, unsigned index, sc_io_error *error) {
    (void)own, (void)index;
    return sc_io_mend(io, error);
}
#else
int sc_io_mend(sc_io *io, sc_io_error *error) {
    sc_sockaddr own;
    sc_io_own_address(io, &own);
    unsigned index = if_nametoindex(io->name);
    return index == 0 ? sc_io_fail(error, "interface", ENODEV) : io->config.transport->mend(io, &own, index, error);
}

int sc_mend_multicast(sc_io *io, const sc_sockaddr *own, unsigned index, sc_io_error *error) {
#if defined(__linux__)
    /* IPv6: they are bound to the interface that is gone. Binding them to another one needs CAP_NET_RAW. */
    if (io->config.family == 6 && index != (unsigned)sc_load(&io->index)) {
        if (open_again(io, own, index, error) != 0) return -1;
        sc_store(&io->index, index);
        sc_store(&io->looped, 1);
        return 0;
    }
#endif
    return sc_io_join_again(io, own, index, error);
}
#endif
