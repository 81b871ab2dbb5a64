/* Waiting on the sockets, and waking waiting threads. */
#include "io/sockets_internal.h"

int sc_set_nonblocking(sc_fd fd) {
#if defined(_WIN32)
    u_long on = 1;
    return ioctlsocket(fd, FIONBIO, &on);
#else
    return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
#endif
}

int sc_signal_open(sc_fd ends[2]) {
    ends[0] = ends[1] = SC_NO_FD;
#if defined(__linux__)
    ends[0] = ends[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return ends[0] < 0 ? -1 : 0;
#elif defined(_WIN32) /* a socket that is connected to itself */
    struct sockaddr_in own;
    int len = sizeof own;
    memset(&own, 0, sizeof own);
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sc_fd fd = ends[0] = ends[1] = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd == SC_NO_FD || bind(fd, (struct sockaddr *)&own, len) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &len) != 0 || connect(fd, (struct sockaddr *)&own, len) != 0)
        return -1;
    return sc_set_nonblocking(fd);
#else
    int both[2];
    if (pipe(both) != 0) return -1;
    ends[0] = both[1];
    ends[1] = both[0];
    for (int i = 0; i < 2; i++) {
        sc_set_nonblocking(both[i]);
        fcntl(both[i], F_SETFD, FD_CLOEXEC);
    }
    return 0;
#endif
}

void sc_signal(sc_fd end) {
    uint64_t one = 1;
#if defined(_WIN32)
    send(end, (const char *)&one, 1, 0);
#else
    (void)!write(end, &one, sizeof one);
#endif
}

void sc_signal_clear(sc_fd end) {
    uint64_t waste[8];
#if defined(__linux__)
    (void)!read(end, waste, sizeof waste); /* all of an eventfd */
#elif defined(_WIN32)
    while (recv(end, (char *)waste, sizeof waste, 0) > 0) {}
#else
    while (read(end, waste, sizeof waste) == (ssize_t)sizeof waste) {}
#endif
}

void sc_signal_close(sc_fd ends[2]) {
    if (ends[1] != SC_NO_FD && ends[1] != ends[0]) sc_close_fd(ends[1]);
    if (ends[0] != SC_NO_FD) sc_close_fd(ends[0]);
    ends[0] = ends[1] = SC_NO_FD;
}

void sc_set_close(sc_fd *set) {
    if (*set != SC_NO_FD) sc_close_fd(*set);
    *set = SC_NO_FD;
}

#if defined(__linux__)
int sc_set_open(sc_fd *set, sc_fd first) {
    struct epoll_event event = {.events = EPOLLIN};
    *set = epoll_create1(EPOLL_CLOEXEC);
    if (*set == SC_NO_FD) return -1;
    if (epoll_ctl(*set, EPOLL_CTL_ADD, first, &event) == 0) return 0;
    sc_set_close(set);
    return -1;
}

int sc_set_sockets(sc_fd set, const sc_io *io, int in) {
    struct epoll_event event = {.events = EPOLLIN};
    int failed = 0;
    for (int i = 0; i < SC_IO_SOCKETS; i++)
        if (io->fd[i] != SC_NO_FD) failed |= epoll_ctl(set, in ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, io->fd[i], &event);
    return failed;
}
#else
int sc_set_open(sc_fd *set, sc_fd first) {
    (void)first;
    *set = SC_NO_FD;
    return 0;
}

int sc_set_sockets(sc_fd set, const sc_io *io, int in) {
    (void)set, (void)io, (void)in;
    return -1;
}
#endif

void sc_io_wake(sc_io *io) {
    sc_store(&io->woken, 1);
    sc_signal(io->wake[0]);
}

/* poll rather than epoll: a standing epoll costs a callback for each datagram on its way into the socket, for all
 * receivers on a machine at the sender's expense; a poll costs only the waiting thread, once. */
int sc_io_poll(sc_io *io, int64_t timeout_ns) {
    int ready = 0;
#if defined(_WIN32)
    WSAPOLLFD fds[SC_IO_SOCKETS + 1];
#else
    struct pollfd fds[SC_IO_SOCKETS + 1];
#endif
    for (int i = 0; i <= SC_IO_SOCKETS; i++) {
        fds[i].fd = i < SC_IO_SOCKETS ? io->fd[i] : io->wake[1];
        fds[i].events = POLLIN;
        fds[i].revents = 0;
    }
#if defined(__linux__)
    struct timespec t = {timeout_ns / 1000000000LL, timeout_ns % 1000000000LL};
    int n = ppoll(fds, SC_IO_SOCKETS + 1, timeout_ns < 0 ? NULL : &t, NULL);
#else
    int64_t ms = timeout_ns < 0 ? -1 : timeout_ns > 3600000000000LL ? 3600000 : (timeout_ns + 999999) / 1000000;
#if defined(_WIN32)
    int n = WSAPoll(fds, SC_IO_SOCKETS + 1, (int)ms);
#else
    int n = poll(fds, SC_IO_SOCKETS + 1, (int)ms);
#endif
#endif
    for (int i = 0; n > 0 && i <= SC_IO_SOCKETS; i++) {
        if (fds[i].revents) ready |= 1 << i;
        if (fds[i].revents & POLLERR) sc_store(&io->troubled, 1);
    }
    if (ready & SC_IO_WOKEN) {
        sc_signal_clear(io->wake[1]);
        sc_store(&io->woken, 0);
    }
    return ready;
}
