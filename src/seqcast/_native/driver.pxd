# Contents page of the socket driver: native/io/sockets.h and native/io/driver.h, and the class over them.
from cpython.pythread cimport PyThread_type_lock
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t

from seqcast._native.engine cimport (
    sc_board,
    Batch, Engine, sc_address, sc_batch, sc_engine, sc_mutex, sc_send_state, sc_taking,
)


cdef extern from "io/port.h" nogil:
    ctypedef int64_t sc_atomic  # volatile on Windows
    int64_t sc_load(const sc_atomic *a)
    void sc_store(sc_atomic *a, int64_t v)
    int64_t sc_exchange(sc_atomic *a, int64_t v)
    int sc_mutex_trylock(sc_mutex *m)
    int64_t sc_now()
    void sc_sleep(int64_t ns)


cdef extern from "io/sockets.h" nogil:
    ctypedef int sc_fd  # wider on Windows
    enum:
        SC_IO_BATCH_MAX
        SC_IO_GONE
        SC_IO_REMADE
        SC_IO_DOWN
        SC_IO_NO_CARRIER
        SC_IO_ADDRESS_GONE
        SC_IO_ADDRESS_OTHER
        SC_IO_ROUTED

    ctypedef struct sc_transport:
        pass

    const sc_transport sc_transport_multicast
    const sc_transport sc_transport_unicast

    ctypedef struct sc_io_config:
        int family
        char *wanted_interface
        uint8_t *group
        uint16_t port
        int ttl
        uint16_t unicast_port
        uint16_t port_range
        const sc_transport *transport
        int dscp
        int rcvbuf
        int sndbuf
        int send_batch
        int packet_bytes
        int receive_batch
        int gso
        int gro
        int mmsg
        uint64_t member

    ctypedef struct sc_io_error:
        const char *call
        int code

    ctypedef struct sc_io_counters:
        uint64_t sends
        uint64_t receives
        uint64_t gso_refused
        uint64_t send_errors
        uint64_t receive_errors
        uint64_t truncated
        uint64_t refused

    ctypedef struct sc_io:
        sc_io_config config
        sc_atomic index
        char *name
        int loopback
        int mtu
        int granted
        int send_granted
        int gro
        int apart
        sc_atomic gso
        sc_atomic looped
        sc_address address
        sc_address *lane
        sc_atomic last_code

    int sc_io_open(sc_io *io, const sc_io_config *config, sc_io_error *error)
    int sc_io_find(sc_io *io, sc_io_error *error)
    int sc_io_look(const sc_io *io)
    void sc_io_close(sc_io *io)
    void sc_io_format(const sc_address *address, char *text)


cdef extern from "io/driver.h" nogil:
    enum:
        SC_SEND_MARKS
        SC_BAD_OFFSETS
        SC_WANT_DELIVERY

    ctypedef struct sc_drive_config:
        int64_t busy_poll_ns
        uint64_t flush_bytes
        int64_t flush_ns_min
        int64_t flush_ns_max
        int64_t tick_ns
        int64_t nap_ns
        int64_t look_ns

    ctypedef struct sc_drive_counters:
        uint64_t turns
        uint64_t rounds
        uint64_t polls
        uint64_t naps
        uint64_t nap_bytes
        uint64_t kicks
        uint64_t flushes_left
        uint64_t flushes_handed

    ctypedef struct sc_driver:
        sc_io io
        sc_mutex *lock
        sc_atomic stop

    int sc_driver_board(sc_driver *d, sc_board *board)

    ctypedef struct sc_sending:
        uint64_t to
        int beside
        const uint8_t *data
        uint64_t len
        const void *offsets
        int wide
        uint64_t next
        uint64_t n
        uint64_t *marks
        sc_send_state state
        int owner
        int answer
        int receives

    int sc_driver_init(sc_driver *d, sc_engine *engine, sc_mutex *lock, const sc_drive_config *config)
    int sc_driver_mend(sc_driver *d, sc_io_error *error)
    void sc_driver_stop(sc_driver *d)
    void sc_driver_close(sc_driver *d)
    void sc_driver_counters(const sc_driver *d, sc_io_counters *io, sc_drive_counters *drive)
    void sc_driver_free(sc_driver *d)
    void sc_driver_run(sc_driver *d)
    void sc_driver_flush(sc_driver *d, int all, int64_t now)
    enum:
        SC_FLUSH_NOTHING
        SC_FLUSH_FULL
        SC_FLUSH_ALL
    int sc_driver_packed(sc_driver *d, uint64_t unsent, int answer, int64_t now)
    int64_t sc_driver_wall(sc_driver *d, int64_t now)
    int sc_driver_send_now(sc_driver *d, sc_sending *s, int64_t now, int64_t wall)
    int sc_driver_send(sc_driver *d, sc_sending *s, int64_t until)
    void sc_driver_send_end(sc_driver *d, sc_sending *s)
    void sc_driver_callback(sc_driver *d, int runs)
    int sc_driver_deliver(sc_driver *d, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int64_t until,
                          int later, int64_t now, int64_t *wall)
    void sc_driver_taken(sc_driver *d)
    int sc_driver_taking(sc_driver *d, sc_taking *w, int64_t until)
    int64_t sc_drive(sc_driver *d, int want, uint64_t mark, int64_t until)
    int sc_driver_state_send(sc_driver *d, uint64_t to, const uint8_t *p, uint64_t n, uint64_t *done, int64_t until)
    size_t sc_driver_state_read(sc_driver *d, uint64_t sender, uint8_t *p, size_t n, int64_t until)
    int sc_driver_wait_control(sc_driver *d, int64_t until, int each)
    void sc_driver_kick_control(sc_driver *d)
    void sc_driver_poke(sc_driver *d)
    int sc_driver_watch_open(sc_driver *d)
    sc_fd sc_driver_watch_fd(const sc_driver *d)
    int sc_driver_watch(sc_driver *d)
    int sc_driver_watched(sc_driver *d)
    void sc_driver_watch_close(sc_driver *d)
    void sc_driver_forked(sc_driver *d)


cdef class Driver:
    cdef sc_driver *d
    cdef Engine engine
    cdef object view, view_id  # of the last batch
    cdef dict senders  # its members by id
    # Of the message that was taken last: the next one is mostly of the same sender, and a look-up takes a while.
    cdef object sender
    cdef uint64_t sender_id  # 0: of none
    cdef readonly bint stopped
    cdef bint closed
    cdef bint forked

    cpdef object deliver(self, uint64_t bytes_max, int64_t timeout_ns, object view, bint later=*)
    cdef int check(self) except -1
    cdef int lock_engine(self) except -1
    cdef int pack(self, sc_sending *s) except -1
    cdef int send_message(self, payload, uint64_t to, int64_t timeout_ns, bint ordered, object group) except -1
    cdef int flush(self, int what, int64_t now) except -1
    cdef Py_ssize_t pack_list(self, list items, Py_ssize_t i, sc_sending *s, int *result) except -1
    cdef int finish(self, sc_sending *s, int result, int64_t deadline, object group) except -1
    cdef int send_batch(
        self, data, offsets, int64_t timeout_ns, bint ordered, Py_ssize_t done, object group
    ) except -1
    cdef int send_array(
        self, Py_buffer *data, Py_buffer *offsets, Py_ssize_t done, int64_t timeout_ns, bint ordered, object group
    ) except -1


cdef class Sender:
    cdef public Driver _driver

    cdef uint64_t receiver_of(self, to) except? 0
    cdef int send_arrays(self, data, offsets, timeout, bint ordered, Py_ssize_t done) except -1
    cdef bint send_now(self, payload, to, bint ordered) except -1


cdef class Receiver(Sender):
    cdef public bint _forked  # in a child process: the group is the parent's
    cdef PyThread_type_lock taking  # the lock of the stream
    cdef readonly unsigned long _taker  # the thread that took last, or that waits for it; 0: none yet
    # Under `taking`:
    cdef public uint64_t _batch_bytes
    cdef public object _backlog  # deque of items delivered before they were requested, as before `join` returned
    cdef public int64_t _stuck_ns  # a send that may keep no more gives up after so long without progress
    cdef public uint64_t _kept  # bytes put there since
    cdef public object _meanings  # deque, of the marker that was taken last
    cdef public object _delivered_view
    cdef public bint _untaken  # a batch was taken, and senders that wait in `wait_consumed` have not been told yet
    cdef public object _stop  # not None: until states are merged
    cdef public object _end  # not None: the last event of the stream, which was taken
    cdef public object _journal
    cdef public uint64_t _missed  # messages that the application missed since the log last said so
    cdef public int64_t _missed_due  # before that, the log does not say so again
    cdef public list _seekers  # calls of `deliver` that wait for their message
    cdef list _again  # taken by Python, still due to a program in C: the view, the rest of a batch; None: no program
    cdef public bint _embedded  # a program in C takes, by embed.pxi
    cdef Batch _spent  # its messages are taken; freed by the next call, which mostly waits anyway
    # Set under `taking` and read without it: all messages of this batch but the last are taken without the lock.
    cdef public Batch _begun

    cdef object next_message(self, int64_t wait)
    cdef object begun_message(self)
    cdef bint begin_taking(self, int64_t wait) except -1
    cdef int refuse_beside_c(self) except -1
    cdef bint take_lock(self, int64_t wait) except -1
    cdef bint wait_turn(self, int64_t wait) except -1
    cdef Batch rest_of_begun(self)
    cdef object message_of(self, Batch batch)
    cdef int tell_taken(self) except -1
    cdef Batch next_batch(self, int64_t wait)
    cdef object next_item(self, int64_t wait)
    cdef object delivered(self, int64_t wait)


cdef class AsyncSender:
    cdef public Receiver sync
    cdef public Py_ssize_t _waiting_sends  # sends that wait for credit, or for their turn
    cdef public object _loop
    cdef public object _watched  # descriptor; None: the loop watches none
    cdef public list _waiters  # futures of the calls that wait for something to take
    cdef public object _current_task  # asyncio's function
    cdef public object _receiver  # the task that took last, or waits for it; None: none yet
    cdef public int64_t _turned_ns  # when the loop last ran other tasks while a call of this group waited
