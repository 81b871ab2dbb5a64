#include "bare/bare.h"

#ifndef __linux__

int sc_bare_send(const sc_bare_config *config, void *shared, int64_t warm_ns, int64_t measure_ns, sc_bare_result *out) {
    (void)config, (void)shared, (void)warm_ns, (void)measure_ns, (void)out;
    return SC_BARE_UNSUPPORTED;
}
int sc_bare_receive(const sc_bare_config *config, void *shared, uint32_t index, sc_bare_result *out) {
    (void)config, (void)shared, (void)index, (void)out;
    return SC_BARE_UNSUPPORTED;
}
int sc_bare_ping(const sc_bare_config *config, void *shared, int spin, uint32_t warm_rounds, uint32_t rounds,
                 int64_t *round_trips_ns, sc_bare_result *out) {
    (void)config, (void)shared, (void)spin, (void)warm_rounds, (void)rounds, (void)round_trips_ns, (void)out;
    return SC_BARE_UNSUPPORTED;
}
int sc_bare_pong(const sc_bare_config *config, void *shared, int spin, sc_bare_result *out) {
    (void)config, (void)shared, (void)spin, (void)out;
    return SC_BARE_UNSUPPORTED;
}

#else

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "hash/crc32c.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#define SOL_UDP_ 17

#define SLAB_BYTES 65536 /* the most that one GRO receive may fill */
#define RECEIVES 64 /* datagrams a recvmmsg takes at most ... */
#define RECEIVES_LARGE 8 /* ... and when they are large */
#define NAP_NS 200000 /* a receiver under load sleeps this long, as seqcast's do, instead of until the next datagram */
#define NAP_MAX 10 /* naps in vain before waiting for the next datagram after all */
#define SOURCE_BYTES (1u << 20) /* the application's messages, sent again and again */
#define PACKET_CHARGE 832 /* that a packet takes of a receive buffer, beside its bytes */
#define PATIENCE_NS 10000000000 /* a run without any progress is abandoned after this */
#define LOST_NS 500000000 /* a window that is not confirmed by then was lost */

typedef struct {
    _Atomic uint64_t received; /* bytes of packets */
    _Atomic uint32_t ready; /* the port; 0: not yet */
} receiver_line;

typedef struct {
    _Atomic uint32_t done; /* the sender has sent everything, or a ping-pong is over */
    uint8_t pad[60];
    struct {
        receiver_line line;
        uint8_t pad[64 - sizeof(receiver_line)];
    } receiver[SC_BARE_RECEIVERS_MAX];
} shared_area;

_Static_assert(sizeof(shared_area) <= SC_BARE_SHARED_BYTES, "shared area");
_Static_assert(offsetof(shared_area, receiver) + offsetof(receiver_line, ready) == SC_BARE_READY_AT, "as bare.h says");

typedef struct {
    uint64_t consumed;
    uint32_t receiver, zero;
} ack;

static int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void nap(int64_t ns) {
    struct timespec t = {0, (long)ns};
    nanosleep(&t, NULL);
}

static int failed(sc_bare_result *out, const char *call) {
    out->failed = call;
    return -errno;
}

static struct sockaddr_in address_of(const char *text, uint16_t port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, text, &a.sin_addr);
    return a;
}

/* As in seqcast: if permitted, beyond net.core.rmem_max and wmem_max. */
static int set_buffer(int fd, int force, int option, uint32_t bytes) {
    int size = (int)bytes;
    return setsockopt(fd, SOL_SOCKET, force, &size, sizeof size) &&
           setsockopt(fd, SOL_SOCKET, option, &size, sizeof size);
}

/* The window, as far as a receive buffer like this socket's surely holds it: the kernel takes memory back in lumps of a
 * quarter of the buffer (udp_rmem_release), and a packet that arrives by itself is charged for its headers, too. */
static uint64_t window_of(const sc_bare_config *config, int fd) {
    int granted = 0;
    socklen_t len = sizeof granted;
    if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &granted, &len) || granted <= 0) return config->window_bytes;
    uint64_t charged = config->packet_bytes + (config->gro ? 0 : PACKET_CHARGE);
    uint64_t held = (uint64_t)granted * 11 / 16 * config->packet_bytes / charged;
    return held < config->window_bytes ? held : config->window_bytes;
}

static int open_sender(const sc_bare_config *config, sc_bare_result *out) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return failed(out, "socket");
    struct in_addr interface = address_of(config->interface_address, 0).sin_addr;
    struct sockaddr_in own = address_of(config->interface_address, 0);
    const char *call = NULL;
    if (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface))
        call = "IP_MULTICAST_IF";
    else if (set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, config->socket_bytes))
        call = "SO_SNDBUF";
    else if (set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, config->socket_bytes))
        call = "SO_RCVBUF"; /* for window_of */
    else if (bind(fd, (struct sockaddr *)&own, sizeof own))
        call = "bind";
    if (!call) return fd;
    int error = failed(out, call);
    close(fd);
    return error;
}

static int open_receiver(const sc_bare_config *config, uint16_t port, sc_bare_result *out) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), one = 1, alone = config->to[0] != NULL;
    if (fd < 0) return failed(out, "socket");
    struct sockaddr_in group = address_of(alone ? config->interface_address : config->group, port);
    struct ip_mreq join = {group.sin_addr, address_of(config->interface_address, 0).sin_addr};
    const char *call = NULL;
    if (!alone && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one))
        call = "SO_REUSEADDR";
    else if (set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, config->socket_bytes))
        call = "SO_RCVBUF";
    else if (bind(fd, (struct sockaddr *)&group, sizeof group))
        call = "bind";
    else if (!alone && setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join))
        call = "IP_ADD_MEMBERSHIP";
    if (!call) {
        if (!config->gro || !setsockopt(fd, SOL_UDP_, UDP_GRO, &one, sizeof one)) return fd;
        call = "UDP_GRO";
    }
    int error = failed(out, call);
    close(fd);
    return error;
}

static int all_ready(shared_area *shared, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!atomic_load_explicit(&shared->receiver[i].line.ready, memory_order_acquire)) return 0;
    return 1;
}

/* Does credit come by datagrams? */
static int acks(const sc_bare_config *config) { return config->limit || config->apart; }

static uint64_t slowest(shared_area *shared, uint32_t n) {
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t received = atomic_load_explicit(&shared->receiver[i].line.received, memory_order_acquire);
        if (received < least) least = received;
    }
    return least;
}

/* ---- throughput: the sender ---------------------------------------------------------------------------------- */

typedef struct {
    const sc_bare_config *config;
    shared_area *shared;
    int fd;
    uint64_t acked[SC_BARE_RECEIVERS_MAX]; /* limit */
    uint64_t sent, given_up; /* bytes; given_up: not confirmed by receivers, so that a loss does not end a run */
    uint64_t written; /* position in the source */
    uint8_t *ring, *source;
    size_t slot, slots;
    uint64_t window;
    struct sockaddr_in to[SC_BARE_RECEIVERS_MAX]; /* the group, or each receiver */
    unsigned copies;
} sender;

/* Bytes that every receiver has confirmed. */
static uint64_t confirmed(sender *s) {
    if (!acks(s->config)) return slowest(s->shared, s->config->receivers);
    ack acks[16];
    struct iovec iov[16];
    struct mmsghdr messages[16];
    for (;;) {
        memset(messages, 0, sizeof messages);
        for (int i = 0; i < 16; i++) {
            iov[i] = (struct iovec){&acks[i], sizeof acks[i]};
            messages[i].msg_hdr.msg_iov = &iov[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
        int n = recvmmsg(s->fd, messages, 16, MSG_DONTWAIT, NULL);
        for (int i = 0; i < n; i++)
            if (messages[i].msg_len == sizeof(ack) && acks[i].receiver < s->config->receivers &&
                acks[i].consumed > s->acked[acks[i].receiver])
                s->acked[acks[i].receiver] = acks[i].consumed;
        if (n < 16) break;
    }
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < s->config->receivers; i++)
        if (s->acked[i] < least) least = s->acked[i];
    return least;
}

/* Bytes that every receiver has, as exactly as can be known. */
static uint64_t arrived(sender *s) {
    return s->config->apart ? confirmed(s) : slowest(s->shared, s->config->receivers);
}

/* Waits for credit for `bytes`: yields first, so that on few cores the receivers make progress, then naps. */
static int wait_credit(sender *s, uint64_t bytes) {
    int64_t since = 0;
    uint64_t seen = 0;
    for (uint32_t round = 0;; round++) {
        uint64_t now_confirmed = confirmed(s);
        if (s->sent + bytes <= now_confirmed + s->given_up + s->window) return 0;
        int64_t now = clock_ns();
        if (!since || now_confirmed != seen) since = now, seen = now_confirmed;
        if (now - since > LOST_NS) s->given_up = s->sent - now_confirmed;
        if (round < 4) {
            sched_yield();
        } else if (acks(s->config)) {
            struct pollfd p = {s->fd, POLLIN, 0};
            poll(&p, 1, 1);
        } else {
            nap(20000);
        }
    }
}

/* limit: the messages are copied into the packet, then its CRC is put in. */
static void fill(sender *s, uint8_t *packet, uint64_t seqno) {
    size_t room = s->config->packet_bytes - SC_BARE_HEADER;
    uint8_t *p = packet + SC_BARE_HEADER;
    while (room) {
        size_t at = s->written % SOURCE_BYTES;
        size_t left = s->config->message_bytes - at % s->config->message_bytes; /* of the message that continues here */
        if (left > SOURCE_BYTES - at) left = SOURCE_BYTES - at;
        if (left > room) left = room;
        memcpy(p, s->source + at, left);
        p += left;
        room -= left;
        s->written += left;
    }
    memcpy(packet + 8, &seqno, 8);
    uint32_t crc = sc_crc32c(0, packet + 8, s->config->packet_bytes - 8);
    memcpy(packet, &crc, 4);
}

static int may_try_again(int code) {
    return code == EINTR || code == ENOBUFS || code == EAGAIN || code == ECONNREFUSED;
}

/* Sends to the group, or the same bytes to each receiver. Returns the bytes that a receiver gets; -1: none. */
static ssize_t send_burst(sender *s, uint8_t *p, uint64_t burst) {
    struct mmsghdr messages[SC_BARE_RECEIVERS_MAX];
    struct iovec iov = {p, burst};
    if (s->copies == 1) return sendto(s->fd, p, burst, 0, (struct sockaddr *)&s->to[0], sizeof s->to[0]);
    memset(messages, 0, sizeof messages[0] * s->copies);
    for (unsigned i = 0; i < s->copies; i++) {
        messages[i].msg_hdr.msg_name = &s->to[i];
        messages[i].msg_hdr.msg_namelen = sizeof s->to[i];
        messages[i].msg_hdr.msg_iov = &iov;
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    for (unsigned done = 0; done < s->copies;) {
        int n = sendmmsg(s->fd, messages + done, s->copies - done, 0);
        if (n < 0 && (!may_try_again(errno) || done == 0)) return -1;
        if (n > 0) done += (unsigned)n;
    }
    return (ssize_t)burst;
}

static int send_for(sender *s, int64_t warm_ns, int64_t measure_ns, sc_bare_result *out) {
    const sc_bare_config *config = s->config;
    uint64_t burst = (uint64_t)config->packet_bytes * config->segments;
    int64_t start = clock_ns(), measured_from = 0;
    uint64_t seqno = 0, first = 0;
    size_t at = 0;
    for (;;) {
        int64_t now = clock_ns();
        if (!measured_from && now - start >= warm_ns) {
            measured_from = now;
            first = arrived(s);
        }
        if (measured_from && now - measured_from >= measure_ns) {
            out->elapsed_ns = now - measured_from;
            out->bytes = arrived(s) - first;
            return 0;
        }
        wait_credit(s, burst);
        if (at + config->segments > s->slots) at = 0;
        uint8_t *p = s->ring + at * s->slot;
        if (config->limit)
            for (uint32_t i = 0; i < config->segments; i++) fill(s, p + i * s->slot, ++seqno);
        ssize_t n = send_burst(s, p, burst);
        if (n < 0 && !may_try_again(errno)) return failed(out, "sendto");
        if (n > 0) s->sent += (uint64_t)n, at += config->segments;
    }
}

static int wait_ready(const sender *s) {
    int64_t deadline = clock_ns() + PATIENCE_NS;
    while (!all_ready(s->shared, s->config->receivers) && clock_ns() < deadline) nap(1000000);
    return all_ready(s->shared, s->config->receivers);
}

static int fits(const sc_bare_config *config, uint64_t slots) {
    return config->packet_bytes > SC_BARE_HEADER && config->segments && config->message_bytes && config->receivers &&
           config->receivers <= SC_BARE_RECEIVERS_MAX && slots >= config->segments &&
           config->window_bytes >= (uint64_t)config->packet_bytes * config->segments;
}

/* The ring and the bytes sent; the socket cuts sends into packets. */
static int prepare_sender(sender *s, sc_bare_result *out) {
    int segment = (int)s->config->packet_bytes;
    s->ring = malloc(s->slots * s->slot);
    s->source = malloc(SOURCE_BYTES);
    if (!s->ring || !s->source) {
        errno = ENOMEM;
        return failed(out, "malloc");
    }
    if (s->config->segments > 1 && setsockopt(s->fd, SOL_UDP_, UDP_SEGMENT, &segment, sizeof segment))
        return failed(out, "UDP_SEGMENT");
    memset(s->ring, 0x5a, s->slots * s->slot);
    for (size_t i = 0; i < SOURCE_BYTES; i++) s->source[i] = (uint8_t)(i * 2654435761u >> 24);
    return 0;
}

/* Called after the receivers are ready, and their ports known. */
static void find_receivers(sender *s) {
    const sc_bare_config *config = s->config;
    s->copies = config->to[0] ? config->receivers : 1;
    s->to[0] = address_of(config->group, config->port);
    for (unsigned i = 0; config->to[0] && i < s->copies; i++) {
        uint32_t port = atomic_load_explicit(&s->shared->receiver[i].line.ready, memory_order_acquire);
        s->to[i] = address_of(config->to[i], (uint16_t)port);
    }
}

static int send_to_receivers(sender *s, int64_t warm_ns, int64_t measure_ns, sc_bare_result *out) {
    if (!wait_ready(s)) {
        errno = ETIMEDOUT;
        return failed(out, "waiting for the receivers");
    }
    find_receivers(s);
    int result = send_for(s, warm_ns, measure_ns, out);
    int64_t deadline = clock_ns() + LOST_NS;
    while (arrived(s) < s->sent && clock_ns() < deadline) nap(1000000);
    out->sent = s->sent;
    out->lost = s->sent - arrived(s);
    return result;
}

int sc_bare_send(const sc_bare_config *config, void *shared, int64_t warm_ns, int64_t measure_ns, sc_bare_result *out) {
    memset(out, 0, sizeof *out);
    sender s = {.config = config, .shared = shared, .slot = config->packet_bytes};
    s.slots = s.slot ? config->ring_bytes / s.slot : 0;
    if (!fits(config, s.slots)) {
        errno = EINVAL;
        return failed(out, "configuration");
    }
    prctl(PR_SET_TIMERSLACK, 1);
    s.fd = open_sender(config, out);
    if (s.fd < 0) return s.fd;
    uint64_t burst = (uint64_t)config->packet_bytes * config->segments;
    s.window = window_of(config, s.fd);
    if (s.window < burst) s.window = burst;
    int result = prepare_sender(&s, out);
    if (result == 0) result = send_to_receivers(&s, warm_ns, measure_ns, out);
    atomic_store_explicit(&s.shared->done, 1, memory_order_release);
    free(s.ring);
    free(s.source);
    close(s.fd);
    return result;
}

/* ---- throughput: a receiver ---------------------------------------------------------------------------------- */

typedef struct {
    const sc_bare_config *config;
    int fd;
    uint32_t index;
    uint8_t *ring, *delivered;
    uint64_t at, delivered_at, received, acked, corrupt;
    struct sockaddr_in from;
} receiver;

/* limit: the CRC of each packet, and its messages copied out for the application. */
static void take(receiver *r, const uint8_t *p, size_t len) {
    for (size_t n; len; p += n, len -= n) {
        n = len < r->config->packet_bytes ? len : r->config->packet_bytes;
        uint32_t crc;
        memcpy(&crc, p, 4);
        if (n <= SC_BARE_HEADER || sc_crc32c(0, p + 8, n - 8) != crc) {
            r->corrupt++;
            continue;
        }
        size_t body = n - SC_BARE_HEADER;
        if (r->delivered_at + body > r->config->ring_bytes) r->delivered_at = 0;
        memcpy(r->delivered + r->delivered_at, p + SC_BARE_HEADER, body);
        r->delivered_at += body;
    }
}

static void acknowledge(receiver *r) {
    if (r->received == r->acked || !r->from.sin_port) return;
    ack a = {r->received, r->index, 0};
    if (sendto(r->fd, &a, sizeof a, 0, (struct sockaddr *)&r->from, sizeof r->from) == sizeof a) r->acked = r->received;
}

/* Receives waiting datagrams into the next slots of the ring. Returns the number of datagrams. */
static int receive_some(receiver *r) {
    struct mmsghdr messages[RECEIVES];
    struct iovec iov[RECEIVES];
    size_t slot = r->config->gro ? SLAB_BYTES : (r->config->packet_bytes + 63u) & ~(size_t)63;
    int want = slot > 16384 ? RECEIVES_LARGE : RECEIVES;
    memset(messages, 0, sizeof messages[0] * (size_t)want);
    if (r->at + slot * (size_t)want > r->config->ring_bytes) r->at = 0;
    for (int i = 0; i < want; i++) {
        iov[i] = (struct iovec){r->ring + r->at + slot * (size_t)i, slot};
        messages[i].msg_hdr.msg_iov = &iov[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    messages[0].msg_hdr.msg_name = &r->from;
    messages[0].msg_hdr.msg_namelen = sizeof r->from;
    int n = recvmmsg(r->fd, messages, (unsigned)want, MSG_DONTWAIT, NULL);
    for (int i = 0; i < n; i++) {
        if (r->config->limit) take(r, iov[i].iov_base, messages[i].msg_len);
        r->received += messages[i].msg_len;
    }
    if (n > 0) r->at += slot * (size_t)n;
    return n;
}

static int receive_until_done(receiver *r, shared_area *shared, sc_bare_result *out) {
    receiver_line *line = &shared->receiver[r->index].line;
    int naps = 0;
    uint64_t window = window_of(r->config, r->fd);
    int64_t heard = clock_ns();
    for (;;) {
        int n = receive_some(r);
        if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNREFUSED) return failed(out, "recvmmsg");
        if (n > 0) {
            naps = 0;
            atomic_store_explicit(&line->received, r->received, memory_order_release);
            if (acks(r->config) && r->received - r->acked >= window / 4) acknowledge(r);
            continue;
        }
        if (!naps) heard = clock_ns();
        if (atomic_load_explicit(&shared->done, memory_order_acquire)) return 0;
        if (naps++ < NAP_MAX) {
            nap(NAP_NS);
            continue;
        }
        if (acks(r->config)) acknowledge(r); /* the tail: less than a quarter window */
        struct pollfd p = {r->fd, POLLIN, 0};
        poll(&p, 1, 10);
        if (clock_ns() - heard > 2 * PATIENCE_NS) {
            errno = ETIMEDOUT;
            return failed(out, "waiting for the sender");
        }
    }
}

int sc_bare_receive(const sc_bare_config *config, void *shared, uint32_t index, sc_bare_result *out) {
    memset(out, 0, sizeof *out);
    if (index >= SC_BARE_RECEIVERS_MAX || !config->packet_bytes || config->packet_bytes > SLAB_BYTES ||
        config->ring_bytes < (uint64_t)RECEIVES_LARGE * SLAB_BYTES) {
        errno = EINVAL;
        return failed(out, "configuration");
    }
    prctl(PR_SET_TIMERSLACK, 1);
    receiver r = {.config = config, .index = index};
    r.fd = open_receiver(config, config->to[0] ? 0 : config->port, out); /* without multicast at any port */
    if (r.fd < 0) return r.fd;
    struct sockaddr_in own = {0};
    socklen_t len = sizeof own;
    getsockname(r.fd, (struct sockaddr *)&own, &len);
    r.ring = malloc(config->ring_bytes);
    r.delivered = malloc(config->ring_bytes);
    int result;
    if (!r.ring || !r.delivered) {
        errno = ENOMEM;
        result = failed(out, "malloc");
    } else {
        memset(r.ring, 0, config->ring_bytes);
        memset(r.delivered, 0, config->ring_bytes);
        shared_area *area = shared;
        atomic_store_explicit(&area->receiver[index].line.ready, ntohs(own.sin_port), memory_order_release);
        result = receive_until_done(&r, area, out);
    }
    out->bytes = r.received;
    out->corrupt = r.corrupt;
    free(r.ring);
    free(r.delivered);
    close(r.fd);
    return result;
}

/* ---- ping-pong ----------------------------------------------------------------------------------------------- */

/* The next datagram, within about 100 ms. Returns its length, 0 without one, or -1. */
static ssize_t receive_one(int fd, int spin, uint8_t *p, size_t len) {
    if (!spin) { /* SO_RCVTIMEO bounds it */
        ssize_t n = recv(fd, p, len, 0);
        return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : n;
    }
    int64_t give_up = 0;
    for (uint32_t round = 1;; round++) {
        ssize_t n = recv(fd, p, len, MSG_DONTWAIT);
        if (n >= 0) return n;
        if (errno != EAGAIN && errno != EINTR) return -1;
        if (round % 1024) continue;
        int64_t now = clock_ns();
        if (!give_up) give_up = now + 100000000;
        if (now > give_up) return 0;
    }
}

typedef struct {
    int in, out;
    struct sockaddr_in to;
    uint8_t packet[SLAB_BYTES];
} side;

/* Pings go to config->port, pongs to the port after it. */
static int open_side(side *s, const sc_bare_config *config, uint16_t listen_port, uint16_t send_port,
                     sc_bare_result *out) {
    s->to = address_of(config->to[0] ? config->to[0] : config->group, send_port);
    memset(s->packet, 0x5a, sizeof s->packet);
    s->in = open_receiver(config, listen_port, out);
    if (s->in < 0) return s->in;
    struct timeval patience = {0, 100000};
    setsockopt(s->in, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    s->out = open_sender(config, out);
    if (s->out < 0) close(s->in);
    return s->out < 0 ? s->out : 0;
}

static int say(side *s, size_t len, sc_bare_result *out) {
    return sendto(s->out, s->packet, len, 0, (struct sockaddr *)&s->to, sizeof s->to) < 0 ? failed(out, "sendto") : 0;
}

static int check_ping_pong(const sc_bare_config *config, sc_bare_result *out) {
    memset(out, 0, sizeof *out);
    if (config->message_bytes >= 8 && config->message_bytes <= 65000) return 0;
    errno = EINVAL;
    return failed(out, "configuration");
}

int sc_bare_ping(const sc_bare_config *config, void *shared, int spin, uint32_t warm_rounds, uint32_t rounds,
                 int64_t *round_trips_ns, sc_bare_result *out) {
    shared_area *area = shared;
    static side s;
    int result = check_ping_pong(config, out);
    if (!result) result = open_side(&s, config, (uint16_t)(config->port + 1), config->port, out);
    if (result) return result;
    int64_t heard = clock_ns();
    for (uint64_t round = 1; round <= (uint64_t)warm_rounds + rounds && !result;) {
        memcpy(s.packet, &round, 8);
        int64_t start = clock_ns();
        result = say(&s, config->message_bytes, out);
        for (uint64_t answer = 0; !result && answer != round;) {
            ssize_t n = receive_one(s.in, spin, s.packet, sizeof s.packet);
            if (n < 0) result = failed(out, "recv");
            if (n <= 0) break;
            memcpy(&answer, s.packet, 8);
            if (answer != round) continue; /* of an abandoned round */
            heard = clock_ns();
            if (round > warm_rounds) round_trips_ns[round - warm_rounds - 1] = heard - start;
            round++;
            break;
        }
        if (!result && clock_ns() - heard > PATIENCE_NS) {
            errno = ETIMEDOUT;
            result = failed(out, "waiting for an answer");
        }
    }
    atomic_store_explicit(&area->done, 1, memory_order_release);
    close(s.in);
    close(s.out);
    return result;
}

int sc_bare_pong(const sc_bare_config *config, void *shared, int spin, sc_bare_result *out) {
    shared_area *area = shared;
    static side s;
    int result = check_ping_pong(config, out);
    if (!result) result = open_side(&s, config, config->port, (uint16_t)(config->port + 1), out);
    if (result) return result;
    int64_t heard = clock_ns();
    while (!result && !atomic_load_explicit(&area->done, memory_order_acquire)) {
        ssize_t n = receive_one(s.in, spin, s.packet, sizeof s.packet);
        if (n < 0) result = failed(out, "recv");
        if (n > 0) result = say(&s, (size_t)n, out);
        if (n > 0) heard = clock_ns();
        if (!result && clock_ns() - heard > 2 * PATIENCE_NS) {
            errno = ETIMEDOUT;
            result = failed(out, "waiting for the other side");
        }
    }
    close(s.in);
    close(s.out);
    return result;
}

#endif
