/* Options of one socket, and the filter of own datagrams. */
#include "io/sockets_internal.h"

int sc_io_fail(sc_io_error *error, const char *call, int code) {
    error->call = call;
    error->code = code;
    return -1;
}

int sc_io_set_int(sc_fd fd, int level, int option, int value) {
    return setsockopt(fd, level, option, (const char *)&value, sizeof value);
}

/* The kernel drops our own looped-back datagrams before they are charged to the socket: the filter compares the
 * sender's incarnation (the data that a filter sees starts with the 8-byte UDP header). The filter looks at the source
 * port first, as the bytes of a datagram that the kernel has segmented are costly to reach, and its UDP header is
 * not. */
void sc_io_filter_own(const sc_io *io, int lane) {
#if defined(__linux__)
    uint32_t port = (uint32_t)io->address.bytes[1] << 8 | io->address.bytes[2];
    uint8_t wire[8];
    sc_put64(wire, io->config.member);
    uint32_t high = (uint32_t)wire[0] << 24 | (uint32_t)wire[1] << 16 | (uint32_t)wire[2] << 8 | wire[3];
    uint32_t low = (uint32_t)wire[4] << 24 | (uint32_t)wire[5] << 16 | (uint32_t)wire[6] << 8 | wire[7];
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, 0, 7),
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 8 + SC_COMMON_HEADER, 0, 5), /* too short for us: the engine counts those */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 8 + sc_at_sender),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, high, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 8 + sc_at_sender + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, low, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, 0xffffffff),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    /* Without a filter, the engine drops them. */
    setsockopt(io->fd[lane], SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
#else
    (void)io, (void)lane;
#endif
}

void sc_io_take_own(const sc_io *io, int lane) {
#if defined(__linux__)
    sc_io_set_int(io->fd[lane], SOL_SOCKET, SO_DETACH_FILTER, 0);
#else
    (void)io, (void)lane;
#endif
}

int sc_io_multicast_from(const sc_io *io, sc_fd fd, const sc_sockaddr *own) {
    if (io->config.family == 6) return sc_io_set_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, (int)sc_load(&io->index));
#if defined(_WIN32)
    return setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, (const char *)&own->v4.sin_addr, sizeof own->v4.sin_addr);
#else
    struct ip_mreqn out = {.imr_address = own->v4.sin_addr, .imr_ifindex = (int)sc_load(&io->index)};
    return setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &out, sizeof out);
#endif
}
