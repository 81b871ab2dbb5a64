/* Shared by the socket files: system headers, addresses, the interface. */
#pragma once

#include "io/sockets.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#include <iphlpapi.h>
#define sc_errno() WSAGetLastError()
#define SC_NO_PORTS WSAENOBUFS /* connect: no port is free */
#define SC_IN_USE WSAEADDRINUSE
#define SC_NO_ADDRESS WSAEADDRNOTAVAIL
#define sc_close_fd closesocket
#define SC_MSG_DONTWAIT 0
#else
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#define sc_errno() errno
#define SC_NO_PORTS EAGAIN /* connect: no port is free */
#define SC_IN_USE EADDRINUSE
#define SC_NO_ADDRESS EADDRNOTAVAIL
#define sc_close_fd close
#define SC_MSG_DONTWAIT MSG_DONTWAIT
#endif

#if defined(__linux__)
#include <linux/errqueue.h>
#include <linux/filter.h>
#include <netinet/udp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef SO_ATTACH_REUSEPORT_CBPF
#define SO_ATTACH_REUSEPORT_CBPF 51
#endif
#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif
#endif

typedef union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} sc_sockaddr;

/* Length of the socket address, or 0 if `in` is not of this family. */
socklen_t sc_address_to(const sc_io *io, const sc_address *in, sc_sockaddr *out);
void sc_address_from(sc_address *out, const sc_sockaddr *in);
int sc_set_nonblocking(sc_fd fd); /* poll.c */

/* option.c. Sets *error and returns -1. */
int sc_io_fail(sc_io_error *error, const char *call, int code);
int sc_io_set_int(sc_fd fd, int level, int option, int value);
/* Makes the socket multicast through our interface. */
int sc_io_multicast_from(const sc_io *io, sc_fd fd, const sc_sockaddr *own);
/* From now on the kernel drops own datagrams that come to a socket, if possible; or no longer. */
void sc_io_filter_own(const sc_io *io, int lane);
void sc_io_take_own(const sc_io *io, int lane);

/* open.c. Opens the sockets of the transport by multicast. 0, or -1 with *error. */
int sc_open_multicast(sc_io *io, const sc_sockaddr *own, sc_io_error *error);
/* Opens the socket for unicasts at a port, 0: any. The group's packets may come there, too, beside all else, so its
 * buffer is of twice the size. 0, or -1 with *error. */
int sc_open_unicast(sc_io *io, const sc_sockaddr *own, uint16_t port, sc_io_error *error);
/* Opens a second socket at the port of the one for unicasts, to which all but packets come from now on: a flood of
 * packets leaves them their buffer. If the system cannot, all keep coming to the first one. */
void sc_open_apart(sc_io *io);
/* The same as sc_open_unicast at `first`, or at the first free one of this many ports after it. */
int sc_open_in_range(sc_io *io, const sc_sockaddr *own, unsigned first, unsigned more, sc_io_error *error);
/* Makes the sockets multicast by the interface with this index, and join the group there. */
int sc_mend_multicast(sc_io *io, const sc_sockaddr *own, unsigned index, sc_io_error *error);

/* choose.c. As system calls: 0, or -1. */
int sc_io_find_interface(sc_io *io, sc_sockaddr *own, sc_io_error *error);
/* The source address that routes give datagrams to the group, from the interface of `own` if given; -1 if there is no
 * route. Nothing is sent. */
int sc_io_routed_source(const sc_io *io, const sc_sockaddr *own, sc_sockaddr *out);
int sc_io_same_host(const sc_sockaddr *a, const sc_sockaddr *b);

/* membership.c. Connects the socket to the data group, again if connected: with the present route. 0, or -1. */
int sc_io_connect_out(const sc_io *io, sc_fd fd);
/* Loops packets to the group back to this machine, if a target is there. Linux only. */
void sc_loop_multicast(sc_io *io);
/* Joins the group on our interface, or leaves. */
int sc_io_group(const sc_io *io, sc_fd fd, const sc_sockaddr *own, int join);
#if !defined(_WIN32)
/* Leaves the group on the interface of before, and joins on the one with this index. 0, or -1 with *error. */
int sc_io_join_again(sc_io *io, const sc_sockaddr *own, unsigned index, sc_io_error *error);

/* choose.c. Has the interface with an address, named so in the system's list, this name? */
int sc_io_is_named(const char *found, const char *name);
int sc_io_flags_of(const char *name);

/* interface.c. Our address, on the interface that has the name now. Returns its length. */
socklen_t sc_io_own_address(const sc_io *io, sc_sockaddr *own);
/* A member's address without the port; 0: none. */
socklen_t sc_io_host_of(const sc_io *io, const sc_address *member, sc_sockaddr *host);
/* Can sockets be bound to this address? */
int sc_io_is_here(const sc_sockaddr *address, socklen_t len);
#endif
