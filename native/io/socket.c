/* Addresses, receiving and sending. */
#include "io/transport.h"

/* ---- addresses ---------------------------------------------------------------------------------------------- */

void sc_address_from(sc_address *out, const sc_sockaddr *in) {
    memset(out, 0, sizeof *out);
    if (in->any.sa_family == AF_INET) {
        out->len = 7;
        out->bytes[0] = 4;
        memcpy(out->bytes + 1, &in->v4.sin_port, 2);
        memcpy(out->bytes + 3, &in->v4.sin_addr, 4);
    } else if (in->any.sa_family == AF_INET6) {
        out->len = 19;
        out->bytes[0] = 6;
        memcpy(out->bytes + 1, &in->v6.sin6_port, 2);
        memcpy(out->bytes + 3, &in->v6.sin6_addr, 16);
    }
}

socklen_t sc_address_to(const sc_io *io, const sc_address *in, sc_sockaddr *out) {
    memset(out, 0, sizeof *out);
    if (in->len == 7 && in->bytes[0] == 4 && io->config.family == 4) {
        out->v4.sin_family = AF_INET;
        memcpy(&out->v4.sin_port, in->bytes + 1, 2);
        memcpy(&out->v4.sin_addr, in->bytes + 3, 4);
        return sizeof out->v4;
    }
    if (in->len == 19 && in->bytes[0] == 6 && io->config.family == 6) {
        out->v6.sin6_family = AF_INET6;
        memcpy(&out->v6.sin6_port, in->bytes + 1, 2);
        memcpy(&out->v6.sin6_addr, in->bytes + 3, 16);
        const uint8_t *a = in->bytes + 3;
        int local = (a[0] == 0xfe && (a[1] & 0xc0) == 0x80) || (a[0] == 0xff && (a[1] & 0x0f) <= 2);
        out->v6.sin6_scope_id = local ? (uint32_t)sc_load(&io->index) : 0;
        return sizeof out->v6;
    }
    return 0;
}

void sc_io_format(const sc_address *address, char *text) {
    char host[48] = "?";
    unsigned port = 0;
    if (address->len >= 7) {
        inet_ntop(address->bytes[0] == 4 ? AF_INET : AF_INET6, address->bytes + 3, host, sizeof host);
        port = (unsigned)address->bytes[1] << 8 | address->bytes[2];
    }
    snprintf(text, 64, address->len > 7 ? "[%s]:%u" : "%s:%u", host, port);
}

/* ---- receiving ---------------------------------------------------------------------------------------------- */

#if defined(__linux__)
static size_t gro_segment(struct msghdr *message) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
            int segment;
            memcpy(&segment, CMSG_DATA(c), sizeof segment);
            return (size_t)segment;
        }
    return 0;
}
#endif

#if !defined(_WIN32)
/* Is this an error that a socket with IP_RECVERR reports about an earlier datagram to any destination? The call itself
 * did nothing. */
static int is_report(int code) {
    return code == ECONNREFUSED || code == EHOSTUNREACH || code == ENETUNREACH || code == EPROTO;
}
#endif

static void receive_error(sc_io *io, int code) {
#if defined(_WIN32)
    if (code == WSAEWOULDBLOCK) return;
#else
    if (code == EAGAIN || code == EWOULDBLOCK || code == EINTR) return;
    if (is_report(code)) {
        sc_store(&io->troubled, 1);
        return;
    }
#endif
    sc_count(&io->counters->receive_errors, 1);
}

#if defined(__linux__)
typedef union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
} sc_cmsg;

/* The message headers of one call, and their targets. */
typedef struct {
    struct mmsghdr messages[SC_IO_BATCH_MAX];
    struct iovec parts[2 * SC_IO_BATCH_MAX];
    sc_sockaddr from[SC_IO_BATCH_MAX];
    sc_cmsg control[SC_IO_BATCH_MAX];
} sc_receiving;

/* As recvfrom, but not a cancellation point, as the C library's is: that costs a tenth of a call that finds nothing,
 * and most calls of a spinning thread find nothing. */
static ssize_t receive_from(sc_fd fd, void *p, size_t size, sc_sockaddr *from) {
    socklen_t len = sizeof *from;
#if defined(SYS_recvfrom)
    return syscall(SYS_recvfrom, fd, p, size, MSG_DONTWAIT, &from->any, &len);
#else
    return recvfrom(fd, p, size, MSG_DONTWAIT, &from->any, &len);
#endif
}

/* One datagram that cannot be several: the cheapest call. Returns 1, or 0. */
static int receive_single(sc_io *io, int lane, sc_io_datagram *in) {
    sc_sockaddr from;
    ssize_t len = receive_from(io->fd[lane], in->whole, SC_SLAB_BYTES, &from);
    sc_count(&io->counters->receives, 1);
    if (len < 0) {
        receive_error(io, errno);
        return 0;
    }
    in->p = in->whole;
    in->len = (size_t)len;
    in->segment = 0;
    sc_address_from(&in->from, &from);
    return 1;
}

/* Number received, or -1. */
static int receive_messages(sc_io *io, sc_fd fd, struct mmsghdr *messages, int n) {
    if (n > 1 && sc_load(&io->mmsg)) {
        int got = recvmmsg(fd, messages, (unsigned)n, MSG_DONTWAIT, NULL);
        if (got < 0 && errno == ENOSYS) sc_store(&io->mmsg, 0);
        return got;
    }
    ssize_t len = recvmsg(fd, &messages[0].msg_hdr, MSG_DONTWAIT);
    messages[0].msg_len = len < 0 ? 0 : (unsigned)len;
    return len < 0 ? -1 : 1;
}

/* Where a datagram is put: the first `room` bytes go to the slot, the rest to the slab at offset `room`. Returns the
 * number of parts. */
static size_t lay_out(const sc_io_datagram *in, size_t room, struct iovec *parts) {
    size_t held = in->slot != NULL ? room : 0;
    parts[0] = (struct iovec){.iov_base = in->slot, .iov_len = held};
    parts[held != 0] = (struct iovec){.iov_base = in->whole + held, .iov_len = SC_SLAB_BYTES - held};
    return 1 + (held != 0);
}

/* Notes where the datagram lies; one larger than its slot becomes contiguous. */
static void locate(sc_io_datagram *in, size_t room) {
    int fits = in->slot != NULL && in->len <= room;
    in->p = fits ? in->slot : in->whole;
    if (in->slot != NULL && !fits) memcpy(in->whole, in->slot, room);
}

/* Apart from sc_io_receive, so that a lone message does not pay for 10 KB more of stack. */
__attribute__((noinline)) static int receive_several(sc_io *io, int lane, sc_io_datagram *in, int n, size_t room,
                                                     int gro) {
    sc_receiving r;
    for (int i = 0; i < n; i++) {
        size_t parts = lay_out(&in[i], room, &r.parts[2 * i]);
        r.messages[i].msg_hdr = (struct msghdr){.msg_name = &r.from[i],
                                                .msg_namelen = sizeof r.from[i],
                                                .msg_iov = &r.parts[2 * i],
                                                .msg_iovlen = parts,
                                                .msg_control = gro ? &r.control[i] : NULL,
                                                .msg_controllen = gro ? sizeof r.control[i] : 0};
    }
    int got = receive_messages(io, io->fd[lane], r.messages, n);
    sc_count(&io->counters->receives, 1);
    if (got < 0) {
        receive_error(io, errno);
        return 0;
    }
    for (int i = 0; i < got; i++) {
        in[i].len = r.messages[i].msg_len;
        in[i].segment = gro ? gro_segment(&r.messages[i].msg_hdr) : 0;
        if (r.messages[i].msg_hdr.msg_flags & MSG_TRUNC) {
            sc_count(&io->counters->truncated, 1);
            in[i].len = 0;
        }
        locate(&in[i], room);
        sc_address_from(&in[i].from, &r.from[i]);
    }
    return got;
}

int sc_io_receive(sc_io *io, int lane, sc_io_datagram *in, int n, size_t room) {
    int gro = io->gro && (lane != SC_LANE_CONTROL || io->apart);
    if (io->fd[lane] == SC_NO_FD) return 0;
    if (n > SC_IO_BATCH_MAX) n = SC_IO_BATCH_MAX;
    if (!sc_load(&io->mmsg)) n = 1;
    return n == 1 && !gro ? receive_single(io, lane, in) : receive_several(io, lane, in, n, room, gro);
}
#else
int sc_io_receive(sc_io *io, int lane, sc_io_datagram *in, int n, size_t room) {
    int got = 0;
    (void)room;
    while (got < n && io->fd[lane] != SC_NO_FD) {
        sc_sockaddr from;
        socklen_t len = sizeof from;
        long bytes = recvfrom(io->fd[lane], (char *)in[got].whole, SC_SLAB_BYTES, SC_MSG_DONTWAIT, &from.any, &len);
        sc_count(&io->counters->receives, 1);
        if (bytes < 0) {
            receive_error(io, sc_errno());
            break;
        }
        in[got].p = in[got].whole;
        in[got].len = (size_t)bytes;
        in[got].segment = 0;
        sc_address_from(&in[got].from, &from);
        got++;
    }
    return got;
}
#endif

#if defined(__linux__)
/* The refusals that one socket reports. */
static int refused_at(sc_io *io, sc_fd fd, sc_address *to, int max) {
    int n = 0;
    while (n < max) {
        sc_sockaddr about;
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(sizeof(struct sock_extended_err) + sizeof(struct sockaddr_in6))];
        } control;
        struct msghdr message = {
            .msg_name = &about, .msg_namelen = sizeof about, .msg_control = &control, .msg_controllen = sizeof control};
        if (recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return n;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c != NULL; c = CMSG_NXTHDR(&message, c)) {
            int of_ip = (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) ||
                        (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR);
            struct sock_extended_err error;
            if (!of_ip) continue;
            memcpy(&error, CMSG_DATA(c), sizeof error);
            if (error.ee_errno != ECONNREFUSED) continue;
            sc_count(&io->counters->refused, 1);
            sc_address_from(&to[n++], &about);
        }
    }
    sc_store(&io->troubled, 1); /* there may be more */
    return n;
}

/* With two sockets at one port, the kernel may tell either of them. */
int sc_io_refused(sc_io *io, sc_address *to, int max) {
    if (!sc_exchange(&io->troubled, 0)) return 0;
    int n = refused_at(io, io->fd[SC_LANE_UNICAST], to, max);
    return io->apart && n < max ? n + refused_at(io, io->fd[SC_LANE_CONTROL], to + n, max - n) : n;
}
#else
int sc_io_refused(sc_io *io, sc_address *to, int max) {
    (void)io, (void)to, (void)max;
    return 0;
}
#endif

/* ---- sending ------------------------------------------------------------------------------------------------ */

#define REFUSED_RUNS 256 /* sent one by one until UDP_SEGMENT is tried again; twice as many each time, */
#define REFUSED_RUNS_MAX 65536 /* up to this */

static int is_full(int code) {
#if defined(_WIN32)
    return code == WSAEWOULDBLOCK;
#else
    return code == EAGAIN || code == EWOULDBLOCK;
#endif
}

/* Waits until a full buffer has room; 0: in vain. */
static int await_room(sc_io *io, sc_fd by, int code) {
#if defined(_WIN32)
    WSAPOLLFD fd = {.fd = by, .events = POLLOUT};
    int room = WSAPoll(&fd, 1, 100) > 0;
#else
    struct pollfd fd = {.fd = by, .events = POLLOUT};
    int room = poll(&fd, 1, 100) > 0;
#endif
    if (!room) sc_store(&io->last_code, code);
    return room;
}

/* After a failed send: 1 to retry (the buffer was full and has room now), 0 to drop this datagram. */
static int send_again(sc_io *io, const sc_aimed *aimed, int code) {
#if !defined(_WIN32)
    if (code == EINTR) return 1;
    if (is_report(code)) {
        sc_store(&io->last_code, code);
        sc_store(&io->troubled, 1);
        return 1;
    }
#endif
    if (is_full(code)) return !aimed->run->unheard && await_room(io, aimed->by, code);
    sc_store(&io->last_code, code);
    return 0;
}

/* A buffer full of datagrams to addresses that nobody has is no trouble of this machine. */
static void count_lost(sc_io *io, const sc_aimed *aimed, uint32_t n, int code) {
    if (!is_full(code) || !aimed->run->unheard) sc_count(&io->counters->send_errors, n);
}

/* Length of the address to name in a send; 0: none, as the socket is connected, or, if `*known` is 0, as there is
 * none. */
static socklen_t destination(const sc_io *io, const sc_aimed *aimed, sc_sockaddr *to, int *known) {
    socklen_t len = aimed->to ? sc_address_to(io, aimed->to, to) : 0;
    *known = !aimed->to || len != 0;
    return len;
}

/* As sendto; see receive_from. */
static long send_datagram(sc_fd by, const uint8_t *p, uint32_t n, const sc_sockaddr *to, socklen_t len) {
#if defined(SYS_sendto)
    return syscall(SYS_sendto, by, p, (size_t)n, 0, len ? &to->any : NULL, len);
#else
    return sendto(by, (const char *)p, n, 0, len ? &to->any : NULL, len);
#endif
}

static void send_one_by_one(sc_io *io, const sc_aimed *aimed) {
    const sc_tx *run = aimed->run;
    sc_sockaddr to;
    sc_fd by = aimed->by;
    int known;
    socklen_t len = destination(io, aimed, &to, &known);
    for (uint32_t i = 0; i < run->n; i++) {
        int tries = 3;
        for (;;) {
            sc_count(&io->counters->sends, 1);
            if (known && send_datagram(by, run->p[i], run->len[i], &to, len) >= 0) break;
            int code = known ? sc_errno() : 0;
            if (!known || tries-- == 0 || !send_again(io, aimed, code)) {
                count_lost(io, aimed, 1, code);
                break;
            }
        }
    }
}

#if defined(__linux__)
/* Sends runs of up to SC_TX_SEGMENTS datagrams as one message each if the system supports UDP_SEGMENT. */
typedef struct {
    struct mmsghdr messages[SC_IO_BATCH_MAX];
    const sc_aimed *aimed[SC_IO_BATCH_MAX];
    uint32_t packets[SC_IO_BATCH_MAX];
    struct iovec parts[SC_IO_BATCH_MAX * SC_TX_SEGMENTS];
    sc_sockaddr to[SC_IO_BATCH_MAX];
    sc_cmsg control[SC_IO_BATCH_MAX];
    int n, n_parts;
    sc_fd by; /* all of them leave by this socket */
} sc_messages;

/* A path whose runs the kernel refused with UDP_SEGMENT, as its device cannot segment, or carries less. */
static sc_refusing *refusing(sc_io *io, const sc_address *to) {
    static const sc_address group;
    if (!to) to = &group;
    for (int i = 0; i < SC_IO_REFUSING; i++) {
        sc_refusing *at = &io->refusing[i];
        if (at->wait && at->to.len == to->len && !memcmp(at->to.bytes, to->bytes, to->len)) return at;
    }
    return NULL;
}

/* Is a run on this path to be sent one by one? In the end a run is tried: the path may be another one by then. */
static int is_refused(sc_io *io, const sc_address *to) {
    if (!io->n_refusing) return 0;
    sc_refusing *at = refusing(io, to);
    return at && at->left && at->left--;
}

static void note_refusal(sc_io *io, const sc_address *to) {
    sc_refusing *at = refusing(io, to);
    sc_count(&io->counters->gso_refused, 1);
    sc_store(&io->narrowed, 1);
    if (!at) { /* of too many paths, the oldest is forgotten, and refuses again */
        at = &io->refusing[io->n_refusing++ % SC_IO_REFUSING];
        *at = (sc_refusing){.wait = REFUSED_RUNS / 2};
        if (to) at->to = *to;
    }
    if (at->wait < REFUSED_RUNS_MAX) at->wait *= 2;
    at->left = at->wait;
}

static int is_gso_refusal(int code) { return code == EINVAL || code == EIO || code == EMSGSIZE || code == ENOPROTOOPT; }

static void flush_messages(sc_io *io, sc_messages *out) {
    int done = 0, tries = 3;
    while (done < out->n) {
        sc_count(&io->counters->sends, 1);
        int sent = sendmmsg(out->by, out->messages + done, (unsigned)(out->n - done), 0);
        if (sent > 0) {
            done += sent;
            tries = 3;
            continue;
        }
        int code = errno;
        struct msghdr *first = &out->messages[done].msg_hdr;
        if (first->msg_controllen != 0 && is_gso_refusal(code)) {
            note_refusal(io, out->aimed[done]->to);
            if (code == ENOPROTOOPT) sc_store(&io->gso, 0); /* not this kernel */
            send_one_by_one(io, out->aimed[done]);
            done++;
        } else if (code == ENOSYS) {
            sc_store(&io->mmsg, 0);
            for (; done < out->n; done++) /* a run of datagrams may be several messages */
                if (done == 0 || out->aimed[done] != out->aimed[done - 1]) send_one_by_one(io, out->aimed[done]);
        } else if (tries-- == 0 || !send_again(io, out->aimed[done], code)) {
            count_lost(io, out->aimed[done], out->packets[done], code);
            done++;
            tries = 3;
        }
    }
    out->n = out->n_parts = 0;
}

/* The bytes of `n` packets from `first` on: those that lie one behind the other in memory are one part, as the kernel
 * copies each part by itself. Returns how many. */
static size_t lay_parts(const sc_tx *run, uint32_t first, uint32_t n, struct iovec *parts) {
    size_t k = 0;
    const uint8_t *end = NULL;
    for (uint32_t i = first; i < first + n; i++) {
        if (run->p[i] == end)
            parts[k - 1].iov_len += run->len[i];
        else
            parts[k++] = (struct iovec){.iov_base = (void *)(uintptr_t)run->p[i], .iov_len = run->len[i]};
        end = run->p[i] + run->len[i];
    }
    return k;
}

static void add_message(sc_io *io, sc_messages *out, const sc_aimed *aimed, uint32_t first, uint32_t n) {
    const sc_tx *run = aimed->run;
    if (out->n == io->config.send_batch || aimed->by != out->by) flush_messages(io, out);
    out->by = aimed->by;
    int i = out->n, known;
    socklen_t len = destination(io, aimed, &out->to[i], &known);
    if (!known) {
        sc_count(&io->counters->send_errors, n);
        return;
    }
    int laid = i && n == run->n && out->aimed[i - 1]->run == run; /* as a whole, on its way to another address */
    struct msghdr *before = laid ? &out->messages[i - 1].msg_hdr : NULL;
    struct iovec *parts = laid ? before->msg_iov : &out->parts[out->n_parts];
    out->aimed[i] = aimed;
    out->packets[i] = n;
    out->messages[i].msg_hdr =
        (struct msghdr){.msg_name = len ? &out->to[i] : NULL, .msg_namelen = len, .msg_iov = parts};
    out->messages[i].msg_hdr.msg_iovlen = laid ? before->msg_iovlen : lay_parts(run, first, n, parts);
    out->n_parts += laid ? 0 : (int)out->messages[i].msg_hdr.msg_iovlen;
    if (n > 1) {
        struct msghdr *header = &out->messages[i].msg_hdr;
        header->msg_control = &out->control[i];
        header->msg_controllen = CMSG_SPACE(sizeof(uint16_t));
        struct cmsghdr *c = CMSG_FIRSTHDR(header);
        c->cmsg_level = SOL_UDP;
        c->cmsg_type = UDP_SEGMENT;
        c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
        uint16_t segment = (uint16_t)run->segment;
        memcpy(CMSG_DATA(c), &segment, sizeof segment);
    }
    out->n++;
}

/* Apart from sc_send_aimed, so that a lone message does not pay for 50 KB more of stack. */
__attribute__((noinline)) static void send_messages(sc_io *io, const sc_aimed *aimed, int n) {
    sc_messages out;
    out.n = out.n_parts = 0;
    out.by = SC_NO_FD;
    for (int i = 0; i < n; i++) {
        const sc_tx *run = aimed[i].run;
        int gso = run->n > 1 && sc_load(&io->gso) && !is_refused(io, aimed[i].to);
        if (!sc_load(&io->mmsg) && !gso)
            send_one_by_one(io, &aimed[i]);
        else if (gso || run->n == 1)
            add_message(io, &out, &aimed[i], 0, run->n);
        else
            for (uint32_t k = 0; k < run->n; k++) add_message(io, &out, &aimed[i], k, 1);
    }
    flush_messages(io, &out);
}

void sc_send_aimed(sc_io *io, const sc_aimed *aimed, int n) {
    if (n == 1 && aimed->run->n == 1)
        send_one_by_one(io, aimed); /* the cheaper call */
    else
        send_messages(io, aimed, n);
}
#else
void sc_send_aimed(sc_io *io, const sc_aimed *aimed, int n) {
    for (int i = 0; i < n; i++) send_one_by_one(io, &aimed[i]);
}
#endif

void sc_aim_at_each(sc_io *io, const sc_tx *run, sc_fd by, uint32_t n, sc_aimed *aimed) {
    const sc_targets *targets = io->targets;
    uint32_t k = 0, first = targets->first;
    if (first < n) aimed[k++] = (sc_aimed){.run = run, .to = &targets->to[first], .by = by};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t next = (i + io->next_target) % n;
        if (next != first) aimed[k++] = (sc_aimed){.run = run, .to = &targets->to[next], .by = by};
    }
    io->next_target = (io->next_target + 1) % n;
}

void sc_send_runs(sc_io *io, const sc_tx *runs, int n, int (*aim)(sc_io *io, const sc_tx *run, sc_aimed *aimed)) {
    sc_aimed aimed[2 * SC_MEMBERS_MAX];
    int k = 0;
    for (int i = 0; i < n; i++) {
        k += aim(io, &runs[i], aimed + k);
        if (k < SC_MEMBERS_MAX && i + 1 < n) continue;
        if (k) sc_send_aimed(io, aimed, k);
        k = 0;
    }
}
