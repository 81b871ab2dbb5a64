/* Bare C senders and receivers without a protocol: the baseline of `seqcast perf`, in the same run, on the
 * same path and with packets of the same size. Two baselines of throughput and one of latency:
 *
 *  raw    a sender and receivers with a free credit in shared memory: receivers store there how many bytes they have
 *         received, and the sender waits while a window is under way. Nobody looks into a packet.
 *  limit  the same window, but credit comes by ack datagrams, each quarter window; a CRC32C on both sides; one copy of
 *         each message into the send ring, and one copy out of the packet for the application.
 *
 * On several hosts, whose processes share no memory, raw has credit by the ack datagrams of limit. Without multicast
 * the sender gives each packet to the kernel once for each receiver, all in one call.
 *
 * Both cycle through rings of `ring_bytes`, as large as seqcast's, so that caches flatter neither side. Each function
 * is one process. Linux only: elsewhere they return SC_BARE_UNSUPPORTED. IPv4.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SC_BARE_RECEIVERS_MAX 128
#define SC_BARE_HEADER 80 /* bytes of a packet that are not the application's: as many as in seqcast's */
#define SC_BARE_SHARED_BYTES (64 * (SC_BARE_RECEIVERS_MAX + 2))
#define SC_BARE_READY_AT 72
#define SC_BARE_UNSUPPORTED (-100000)

typedef struct {
    const char *group; /* multicast address */
    const char *to[SC_BARE_RECEIVERS_MAX]; /* without multicast: of each receiver; ping-pong: of the other side */
    const char *interface_address; /* of the interface that is used */
    uint16_t port; /* ping-pong: the next port too */
    int limit; /* 0: raw, 1: limit */
    int apart; /* 1: the processes share no memory: credit comes by ack datagrams in both cases */
    uint32_t packet_bytes; /* UDP payload of a packet */
    uint32_t segments; /* packets a send takes by UDP_SEGMENT; 1: plain datagrams */
    int gro; /* 1: receive through UDP_GRO, which pays where segments are not cut apart on the way */
    uint32_t message_bytes;
    uint32_t receivers;
    uint64_t window_bytes; /* less if the receive buffers do not hold it */
    uint64_t ring_bytes;
    uint32_t socket_bytes; /* SO_RCVBUF and SO_SNDBUF that are asked for */
} sc_bare_config;

typedef struct {
    int64_t elapsed_ns;
    uint64_t bytes; /* whole packets that arrived in `elapsed_ns` at the slowest receiver */
    uint64_t sent; /* bytes sent in all */
    uint64_t lost; /* bytes that the slowest receiver never got */
    uint64_t corrupt; /* packets with a wrong CRC */
    const char *failed; /* the call that failed, when a function returned an error */
} sc_bare_result;

/* `shared` is SC_BARE_SHARED_BYTES of zeroed memory that all processes of one run share; `apart`: of one process, in
 * which others set the flags: 32 bits at 0: the run is over; at 64 * (i + 1) + 8: receiver `i` receives at this port,
 * and before that 0. Each function returns 0 or -errno. The sender waits for `receivers` receivers, sends for
 * warm_ns + measure_ns and counts the second part. */
int sc_bare_send(const sc_bare_config *config, void *shared, int64_t warm_ns, int64_t measure_ns, sc_bare_result *out);
/* Receiver number `index`; returns when the sender is done. */
int sc_bare_receive(const sc_bare_config *config, void *shared, uint32_t index, sc_bare_result *out);

/* Ping-pong of config->message_bytes, `spin` or blocking. Fills round_trips_ns[0..rounds). */
int sc_bare_ping(const sc_bare_config *config, void *shared, int spin, uint32_t warm_rounds, uint32_t rounds,
                 int64_t *round_trips_ns, sc_bare_result *out);
int sc_bare_pong(const sc_bare_config *config, void *shared, int spin, sc_bare_result *out);
