/* Transports: how runs of datagrams reach their receivers. The engine decides the kind of a datagram, packet or
 * control, and names a member, or the group, as its target, whatever the transport. Receiving, from the sockets that a
 * transport has opened, and looking for faults (look.c) are common to all. To add a transport, fill in this table, with
 * an entry in sc_io_config. */
#pragma once

#include "io/sockets_internal.h"

struct sc_transport {
    /* Opens the sockets of one member at its address `own`. 0, or -1 with *error: the caller closes the open
     * sockets. */
    int (*open)(sc_io *io, const sc_sockaddr *own, sc_io_error *error);
    /* Makes the sockets use the interface with this index from now on, which has our address `own`. They keep their
     * numbers, as other threads use them meanwhile. 0, or -1 with *error. */
    int (*mend)(sc_io *io, const sc_sockaddr *own, unsigned index, sc_io_error *error);
    /* `io->targets` has changed. NULL: this transport does nothing then. */
    void (*aim)(sc_io *io);
    void (*send)(sc_io *io, const sc_tx *runs, int n);
};

/* The socket for a run whose datagrams are not to be fragmented, or may be for nobody; otherwise `other`. */
static inline sc_fd sc_socket_of(const sc_io *io, const sc_tx *run, sc_fd other) {
    if (run->whole && io->whole != SC_NO_FD) return io->whole;
    return run->unheard && io->unheard != SC_NO_FD ? io->unheard : other;
}

/* The element of a transport's `send`: a run on its way to one address. */
typedef struct {
    const sc_tx *run;
    const sc_address *to; /* NULL: to which the socket is connected */
    sc_fd by;
} sc_aimed;
/* Sends them; if the system can, in one call for each row of those that leave by one socket. Entries of one run
 * are adjacent. */
void sc_send_aimed(sc_io *io, const sc_aimed *aimed, int n);
/* Aims a run at the first `n` targets, 1 or more. The one whose message came last gets it before the others, as it may
 * wait for an answer; these take turns, so that none always gets packets last. */
void sc_aim_at_each(sc_io *io, const sc_tx *run, sc_fd by, uint32_t n, sc_aimed *aimed);
/* Sends runs to where `aim` aims each: at no more than SC_MEMBERS_MAX addresses, whose number it returns. */
void sc_send_runs(sc_io *io, const sc_tx *runs, int n, int (*aim)(sc_io *io, const sc_tx *run, sc_aimed *aimed));
