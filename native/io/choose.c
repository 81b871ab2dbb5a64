/* Which network interface a member is on: the one that is named, that has the address, or that the routes lead to. */
#include "io/sockets_internal.h"

int sc_io_routed_source(const sc_io *io, const sc_sockaddr *own, sc_sockaddr *out) {
    sc_sockaddr to;
    socklen_t len = sc_address_to(io, &io->lane[SC_LANE_DATA], &to);
    sc_fd fd = socket(io->config.family == 4 ? AF_INET : AF_INET6, SOCK_DGRAM, 0);
    if (fd == SC_NO_FD) return -1;
    int result = own != NULL ? sc_io_multicast_from(io, fd, own) : 0;
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

int sc_io_same_host(const sc_sockaddr *a, const sc_sockaddr *b) {
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

/* Windows: one of its addresses names an interface; the MTU comes from the adapter's table. */
int sc_io_find_interface(sc_io *io, sc_sockaddr *own, sc_io_error *error) {
    if (io->config.wanted_interface[0] == 0) {
        if (sc_io_routed_source(io, NULL, own) != 0)
            parse_host(io->config.family, io->config.family == 4 ? "127.0.0.1" : "::1", own);
    } else if (!parse_host(io->config.family, io->config.wanted_interface, own)) {
        return sc_io_fail(error, "interface", WSAEADDRNOTAVAIL);
    }
    ULONG size = 1 << 16;
    IP_ADAPTER_ADDRESSES *all = malloc(size);
    if (all == NULL) return sc_io_fail(error, "malloc", WSA_NOT_ENOUGH_MEMORY);
    int found = 0;
    if (GetAdaptersAddresses(own->any.sa_family, 0, NULL, all, &size) == NO_ERROR)
        for (IP_ADAPTER_ADDRESSES *at = all; at != NULL && !found; at = at->Next)
            for (IP_ADAPTER_UNICAST_ADDRESS *a = at->FirstUnicastAddress; a != NULL; a = a->Next)
                if (sc_io_same_host((sc_sockaddr *)a->Address.lpSockaddr, own)) {
                    found = 1;
                    sc_store(&io->index, io->config.family == 4 ? at->IfIndex : at->Ipv6IfIndex);
                    io->loopback = at->IfType == IF_TYPE_SOFTWARE_LOOPBACK;
                    io->mtu = at->Mtu > 65536 ? 65536 : (int)at->Mtu;
                    snprintf(io->name, sizeof io->name, "%s", at->AdapterName);
                    break;
                }
    free(all);
    return found ? 0 : sc_io_fail(error, "interface", WSAEADDRNOTAVAIL);
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

int sc_io_flags_of(const char *name) {
    struct ifreq request;
    memset(&request, 0, sizeof request);
    sc_fd fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd == SC_NO_FD) return IFF_UP | IFF_RUNNING;
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    int flags = ioctl(fd, SIOCGIFFLAGS, &request) == 0 ? request.ifr_flags & 0xffff : IFF_UP | IFF_RUNNING;
    close(fd);
    return flags;
}

/* How an interface is chosen: by an address, by a name, by both, or as the loopback. */
typedef struct {
    const sc_sockaddr *address;
    const char *name;
    int loopback;
    int untested; /* found: an address that the kernel still tests for a duplicate, or with one found */
} choice;

#define V6_TEMPORARY 0x01 /* Linux's IFA_F_*, as /proc/net/if_inet6 has them */
#define V6_DUPLICATE 0x08
#define V6_DEPRECATED 0x20
#define V6_TENTATIVE 0x40

/* The kernel's flags of an IPv6 address; 0 if unknown. */
static unsigned v6_flags(const struct in6_addr *address, const char *name) {
    FILE *file = fopen("/proc/net/if_inet6", "re");
    char line[128], of[20], wanted[33];
    unsigned flags = 0, found = 0;
    if (file == NULL) return 0;
    for (int i = 0; i < 16; i++) snprintf(wanted + 2 * i, 3, "%02x", address->s6_addr[i]);
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = strncmp(line, wanted, 32) == 0 && sscanf(line + 32, "%*x %*x %*x %x %19s", &flags, of) == 2 &&
                strcmp(of, name) == 0;
    fclose(file);
    return found ? flags : 0;
}

/* How well an IPv6 address suits: one that lasts before a temporary one, which expires within a day and takes its
 * member out of the group, and that before one of the link alone. */
static int v6_suits(const struct ifaddrs *at, choice *by) {
    const struct in6_addr *address = &((const struct sockaddr_in6 *)at->ifa_addr)->sin6_addr;
    unsigned flags = v6_flags(address, at->ifa_name);
    if (flags & (V6_TENTATIVE | V6_DUPLICATE)) {
        by->untested = 1;
        return 0;
    }
    if (IN6_IS_ADDR_LINKLOCAL(address)) return 1;
    return flags & (V6_TEMPORARY | V6_DEPRECATED) ? 2 : 3;
}

/* How well an interface's address suits; 0: no. */
static int suits(const sc_io *io, const struct ifaddrs *at, choice *by) {
    sc_sockaddr have;
    if (at->ifa_addr == NULL || !(at->ifa_flags & IFF_UP)) return 0;
    if (at->ifa_addr->sa_family != (io->config.family == 4 ? AF_INET : AF_INET6)) return 0;
    if (io->config.wanted_interface[0] == 0 && !(at->ifa_flags & (IFF_MULTICAST | IFF_LOOPBACK))) return 0;
    memset(&have, 0, sizeof have);
    memcpy(&have, at->ifa_addr, io->config.family == 4 ? sizeof have.v4 : sizeof have.v6);
    if (by->address != NULL && !sc_io_same_host(&have, by->address)) return 0;
    if (by->name != NULL && strcmp(at->ifa_name, by->name) != 0) return 0;
    if (by->loopback && !(at->ifa_flags & IFF_LOOPBACK)) return 0;
    return io->config.family == 6 ? v6_suits(at, by) : 1;
}

/* Length of the interface's name: an IPv4 address may have a label of its own, given in its place ("eth0:second"). */
static int name_len(const char *name) { return (int)strcspn(name, ":"); }
int sc_io_is_named(const char *found, const char *name) {
    return strncmp(found, name, (size_t)name_len(found)) == 0 && name[name_len(found)] == 0;
}

/* Takes the best address, with its interface; 0 if none suits. */
static int choose(sc_io *io, const struct ifaddrs *all, choice *by, sc_sockaddr *own) {
    int best = 0;
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        int how = suits(io, at, by);
        if (how <= best) continue;
        best = how;
        memcpy(own, at->ifa_addr, io->config.family == 4 ? sizeof own->v4 : sizeof own->v6);
        snprintf(io->name, sizeof io->name, "%.*s", name_len(at->ifa_name), at->ifa_name);
        io->loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
    }
    return best;
}

/* By the configured name or address, or `address%name`. `host` has room for the address. */
static choice configured(const sc_io *io, sc_sockaddr *host) {
    const char *text = io->config.wanted_interface, *scope = strchr(text, '%');
    char address[64];
    snprintf(address, sizeof address, "%.*s", scope ? (int)(scope - text) : 63, text);
    if (!parse_host(io->config.family, address, host)) return (choice){.name = text};
    return (choice){.address = host, .name = scope ? scope + 1 : NULL};
}

/* Will an address do as soon as the kernel has finished its test, and does none do yet? Without a carrier none is ever
 * tested. */
static int waits_for_test(const sc_io *io, const struct ifaddrs *all) {
    choice any = {0};
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        if ((at->ifa_flags & IFF_LOOPBACK) || !(at->ifa_flags & IFF_RUNNING)) continue;
        if (suits(io, at, &any)) return 0;
    }
    return any.untested;
}

/* By routes: the interface to which they send the group's datagrams, if capable of multicast, and of an interface's
 * IPv6 addresses the one that lasts; otherwise loopback, unless an address is still being tested. */
static int choose_routed(sc_io *io, const struct ifaddrs *all, const sc_sockaddr *source, choice *by,
                         sc_sockaddr *own) {
    char name[sizeof io->name];
    by->address = source;
    if (source == NULL || !choose(io, all, by, own)) {
        *by = (choice){.loopback = 1, .untested = waits_for_test(io, all)};
        return !by->untested && choose(io, all, by, own);
    }
    memcpy(name, io->name, sizeof name);
    by->address = NULL;
    by->name = name;
    int link_local = io->config.family == 6 && IN6_IS_ADDR_LINKLOCAL(&own->v6.sin6_addr);
    return io->config.family == 4 || link_local || choose(io, all, by, own);
}

int sc_io_find_interface(sc_io *io, sc_sockaddr *own, sc_io_error *error) {
    const char *name = io->config.wanted_interface;
    sc_sockaddr host;
    int routed = name[0] == 0 && sc_io_routed_source(io, NULL, &host) == 0;
    if (name[0] == 0 && !routed && errno == SC_NO_PORTS) /* connecting takes a port */
        return sc_io_fail(error, "ports", errno);
    choice by = name[0] != 0 ? configured(io, &host) : (choice){0};
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0) return sc_io_fail(error, "getifaddrs", errno);
    int found = name[0] != 0 ? choose(io, all, &by, own) : choose_routed(io, all, routed ? &host : NULL, &by, own);
    freeifaddrs(all);
    if (!found && by.untested) return sc_io_fail(error, "tentative", EADDRNOTAVAIL);
    if (!found && if_nametoindex(name) == 0) return sc_io_fail(error, "interface", ENODEV);
    if (!found) return sc_io_fail(error, "interface", sc_io_flags_of(name) & IFF_UP ? EADDRNOTAVAIL : ENETDOWN);
    sc_store(&io->index, if_nametoindex(io->name));
    io->mtu = mtu_of(io->name);
    return 0;
}

#endif

int sc_io_find(sc_io *io, sc_io_error *error) {
    sc_sockaddr own;
    return sc_io_find_interface(io, &own, error);
}
