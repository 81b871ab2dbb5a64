/* Sockets of one member. The transport decides which:
 *
 * - multicast: one each on the data port and the control port of the group, and one on a free port of the interface's
 *   own address for unicasts; if the system allows, a fourth with that address, by which all but control leaves.
 * - unicast: one for all, or two on one port, of which the second gets all but packets (`apart`).
 *
 * All datagrams leave from the member's own address, so that others see this one. Those that no router may divide leave
 * by a socket of their own (`whole`), and so do those to addresses that perhaps nobody has (`unheard`). Linux:
 * UDP_SEGMENT, UDP_GRO, sendmmsg, recvmmsg, each with a fallback chosen at run time; elsewhere plain calls. No function
 * here takes a lock or keeps a thread.
 */
#pragma once

#include <stdint.h>

#include "engine/engine.h"
#include "io/port.h"

#if defined(_WIN32)
#include <ws2tcpip.h>
typedef SOCKET sc_fd;
#define SC_NO_FD INVALID_SOCKET
#else
typedef int sc_fd;
#define SC_NO_FD (-1)
#endif

#define SC_IO_SOCKETS 3 /* data, control, unicast */
#define SC_IO_BATCH_MAX 64

/* A sc_address holds, as on the wire: family (4 or 6), port (big-endian), 4 or 16 bytes. The address has no scope: each
 * member uses that of its own interface. */

typedef struct sc_transport sc_transport; /* io/transport.h */
extern const sc_transport sc_transport_multicast, sc_transport_unicast;

typedef struct {
    const sc_transport *transport; /* NULL: sc_transport_multicast */
    int family; /* 4 or 6 */
    char wanted_interface[64]; /* name or address; empty: chosen by routes */
    uint8_t group[16]; /* multicast address, 4 or 16 bytes */
    uint16_t port; /* data; control is port + 1. Without multicast: of this member, */
    uint16_t port_range; /* or one of this many after it, if taken */
    uint16_t unicast_port; /* 0: any */
    int ttl;
    int dscp;
    int rcvbuf, sndbuf; /* bytes requested */
    int send_batch, receive_batch; /* system-call batch sizes, 1..SC_IO_BATCH_MAX */
    int packet_bytes; /* of a full packet; 0: as the interface's MTU allows */
    int gso, gro, mmsg; /* 0: unused, even if the system has one */
    uint64_t member; /* the kernel drops own datagrams if possible */
} sc_io_config;

/* The failed step: `call` names the failed call; `code` is errno (on Windows the WSA code). */
typedef struct {
    const char *call;
    int code;
} sc_io_error;

typedef struct {
    uint8_t *slot; /* place of a small datagram, or NULL */
    uint8_t *whole; /* SC_SLAB_BYTES, for one that `slot` does not hold */
    uint8_t *p; /* its place: `slot` or `whole` */
    size_t len;
    size_t segment; /* UDP_GRO's, else 0 */
    sc_address from;
} sc_io_datagram;

typedef struct {
    uint64_t sends, receives; /* system calls */
    uint64_t gso_refused; /* runs that the kernel refused with UDP_SEGMENT, sent one by one */
    uint64_t send_errors; /* datagrams that the kernel refused (unreachable, no buffers): recovered like loss */
    uint64_t receive_errors;
    uint64_t truncated; /* larger than a receive buffer */
    uint64_t refused; /* unicasts that met a closed port, according to ICMP */
} sc_io_counters; /* written by the sending, or receiving, thread */

#define SC_IO_REFUSING 16
/* A path on which the kernel refused UDP_SEGMENT. */
typedef struct {
    sc_address to; /* len 0: to the group */
    uint32_t left, wait; /* runs that are sent one by one before the next try: still, and in all; 0: no path is here */
} sc_refusing;

typedef struct sc_io {
    sc_io_config config;
    sc_fd fd[SC_IO_SOCKETS]; /* by SC_LANE_* */
    sc_fd out; /* has the address of the unicast socket, and is connected to the data group; SC_NO_FD: there is none */
    sc_fd whole; /* has that address too: its datagrams are not fragmented; SC_NO_FD: there is none */
    /* The same, for datagrams to addresses of which nothing was heard. The kernel keeps them in the buffer while it
     * looks for the host, for seconds. SC_NO_FD: there is none. */
    sc_fd unheard;
    sc_fd wake[2]; /* to be written, to be polled; on Linux one eventfd */
    sc_atomic woken; /* for a thread that spins: `wake` was written, unseen by sc_io_poll */
    sc_atomic index; /* of the interface; sc_io_mend sets this while other threads send */
    char name[64]; /* of the interface */
    int loopback;
    int mtu;
    int granted; /* bytes of socket memory that the data socket may hold (SO_RCVBUF as the kernel counts) */
    int send_granted; /* the same of the sending socket (SO_SNDBUF) */
    int gro;
    int apart; /* without multicast: packets have a socket of their own, and all else that of the control lane */
    sc_atomic gso, mmsg; /* in use now */
    sc_atomic looped; /* packets of the group's streams are looped back to this machine */
    sc_address address; /* of this member */
    sc_address lane[2]; /* data and control group addresses */
    uint32_t next_target; /* of the sending thread: the targets after `targets->first` take turns */
    const sc_targets *targets; /* whom the group's datagrams are for; NULL: nobody yet. Of the sending thread */
    sc_refusing refusing[SC_IO_REFUSING]; /* of the sending thread */
    uint32_t n_refusing; /* how many there ever were */
    sc_atomic narrowed; /* UDP_SEGMENT was refused: paths may carry less than before */
    sc_atomic last_code; /* of the last send error */
    sc_atomic troubled; /* an error about an earlier datagram was reported: sc_io_refused tells more */
    sc_io_counters *counters; /* on the board, or `uncovered` */
    sc_io_counters uncovered;
} sc_io;

/* Sets the targets, which may differ at each call. Called by the sending thread. */
void sc_io_aim(sc_io *io, const sc_targets *targets);

/* 0, or -1 with *error set and everything closed. */
int sc_io_open(sc_io *io, const sc_io_config *config, sc_io_error *error);
void sc_io_close(sc_io *io);

/* Finds the interface that `config` names: its `name`, `index`, `mtu`, and whether that is loopback. 0, or -1 with
 * *error. */
int sc_io_find(sc_io *io, sc_io_error *error);

/* Changes of the interface and of our address on it since the sockets were opened; bits. On Windows nothing. */
enum {
    SC_IO_GONE = 1, /* there is no interface of this name */
    SC_IO_REMADE = 2, /* the interface was recreated under this name: the sockets belong to the old one */
    SC_IO_DOWN = 4,
    SC_IO_NO_CARRIER = 8, /* up, but no cable or peer is connected */
    SC_IO_ADDRESS_GONE = 16, /* no interface has our address any more */
    SC_IO_ADDRESS_OTHER = 32, /* and ours has another one instead */
    SC_IO_ROUTED = 64 /* loopback, because there was no other one; sc_io_open would choose another one now */
};
int sc_io_look(const sc_io *io);
/* Makes the sockets send through, and joins the groups on, the interface that has the name now. They keep their
 * numbers, so that other threads may use them meanwhile; their pollers must start again. 0, or -1 with *error. One
 * thread at a time. */
int sc_io_mend(sc_io *io, sc_io_error *error);

/* Waits until a socket or the wake-up is readable, at most `timeout_ns` (< 0: no limit). Returns a bit per lane, and
 * SC_IO_WOKEN; 0 on time-out or a signal. */
#define SC_IO_WOKEN (1 << SC_IO_SOCKETS)
#define SC_IO_ALL ((1 << SC_IO_SOCKETS) - 1)
int sc_io_poll(sc_io *io, int64_t timeout_ns);
void sc_io_wake(sc_io *io);

/* A pair for waking another thread or an event loop: ends[0] is signalled, ends[1] polled. On Linux one eventfd. 0, or
 * -1. */
int sc_signal_open(sc_fd ends[2]);
void sc_signal(sc_fd end);
void sc_signal_clear(sc_fd end);
void sc_signal_close(sc_fd ends[2]);

/* A set that is readable while one of its descriptors is: at first only `first`. SC_NO_FD on systems without such sets.
 * 0, or -1. */
int sc_set_open(sc_fd *set, sc_fd first);
/* Puts the sockets into the set, or takes them out. 0, or not. */
int sc_set_sockets(sc_fd set, const sc_io *io, int in);
void sc_set_close(sc_fd *set);

/* Receives up to `n` datagrams from one lane, without waiting: into slots of `room` bytes each, as far as they fit and
 * there are any; fills p, len, segment, from. Returns how many; 0: nothing there. */
int sc_io_receive(sc_io *io, int lane, sc_io_datagram *in, int n, size_t room);

/* Destinations with a closed port, at most `max`, from ICMP reports since the last call. Linux only: elsewhere an
 * unconnected socket gets no such reports. Called by the receiving thread. */
int sc_io_refused(sc_io *io, sc_address *to, int max);

/* Sends `n` runs; waits if the socket's buffer is full. Datagrams that the system refuses are counted, and recovered
 * like any loss. */
void sc_io_send(sc_io *io, const sc_tx *runs, int n);

/* "192.0.2.1:5000" into `text` (at least 64 bytes). */
void sc_io_format(const sc_address *address, char *text);
