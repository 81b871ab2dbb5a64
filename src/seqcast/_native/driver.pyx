# cython: boundscheck=True, auto_pickle=False
"""The socket driver for Python: one object per member. See driver.pyi; the terms are native/io/driver.h's."""

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetInterrupt, PyErr_WarnEx
from cpython.float cimport PyFloat_CheckExact
from cpython.list cimport PyList_GET_ITEM
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_New
from cpython.pythread cimport (
    NOWAIT_LOCK, PY_LOCK_ACQUIRED, PY_LOCK_FAILURE, PyLockStatus, PyThread_acquire_lock, PyThread_allocate_lock,
    PyThread_free_lock, PyThread_release_lock,
)
from cpython.ref cimport Py_CLEAR, Py_DECREF, Py_INCREF, Py_XDECREF
from libc.errno cimport EMFILE
from libc.stdint cimport INT64_MAX, int32_t, intptr_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from seqcast._native.engine cimport (
    SC_AGAIN, SC_DELIVER_BATCH, SC_DELIVER_MARKER, SC_DELIVER_SKIPPED, SC_NO_MEMBER, SC_NO_VIEW, SC_SENT, SC_TOO_LARGE,
    SC_ENDED, SC_OBSERVER,
    sc_batch_clear, sc_batch_flatten, sc_batch_message, sc_engine_give_back, sc_engine_sendable, sc_engine_unsent,
    sc_mutex_lock,
    sc_mutex_unlock, sc_run, sc_skipped,
    sc_taking_begin, sc_taking_end,
)

from seqcast.embed cimport (
    SEQCAST_ALL_BORROWED, SEQCAST_BAD_ARGUMENT, SEQCAST_BLOCKED, SEQCAST_COORDINATOR_CHANGED, SEQCAST_EMBED_VERSION,
    SEQCAST_ENDED,
    SEQCAST_EXCLUDED, SEQCAST_FAILED, SEQCAST_HOLDS_GIL, SEQCAST_IN_USE, SEQCAST_INTERFACE_CHANGED, SEQCAST_LEFT,
    SEQCAST_LOST, SEQCAST_MERGE_VIEW, SEQCAST_MESSAGES, SEQCAST_NO_MEMBER, SEQCAST_NONE, SEQCAST_NOT_BORROWED,
    SEQCAST_OBSERVER, SEQCAST_SKIPPED,
    SEQCAST_OK, SEQCAST_TOO_LARGE, SEQCAST_TRANSITIONAL, SEQCAST_UNBLOCKED, SEQCAST_UNICAST, SEQCAST_UNORDERED,
    SEQCAST_UNSURE, SEQCAST_VIEW, seqcast_item, seqcast_member, seqcast_message, seqcast_table,
)

from seqcast.abandoned import is_abandoned
from seqcast.arguments import id_of, nanoseconds
from seqcast.errors import NotMember, UsageError
from seqcast.events import Skipped

DEF SLICE_NS = 100_000_000  # how long a wait runs between checks for signals
DEF WATCH_NS = 5_000_000  # the same of a sender that looks for messages that it must receive
DEF MANY_MESSAGES = 4096  # taken from a list at a time: few enough to stay in the cache
DEF KEPT_BYTES = 4194304  # buffers larger than this are freed as soon as their messages are taken
# Beside the results of native/engine/engine.h and native/io/driver.h.
LIST_CHANGED, NOT_BYTES, UNSURE, KEPT_FULL = 17, 18, 19, 20


# Results of `Receiver._keep`: another thread receives; another task does, and may come to wait, too; the one that
# receives waits here, and arrivals are kept; and the bound of kept ones is reached.
cdef enum:
    RECEIVED_ELSEWHERE
    RECEIVED_BY_TASK
    KEPT
    KEPT_TO_THE_BRIM


class Refused(Exception):
    """A message cannot be sent; ``args``: (result, messages sent before it, and for NOT_BYTES the object)."""


def now_ns():
    return sc_now()


cdef object skipped_in(object view, const sc_skipped *gap):
    """The gap as an event; its sender is a member of ``view``."""
    sender = next(member for member in view.members if member.id == gap.sender)
    return Skipped(sender, gap.first, gap.last, gap.messages)


cdef inline int64_t time_after(int64_t now, int64_t timeout_ns) noexcept nogil:
    return INT64_MAX if timeout_ns < 0 or timeout_ns > INT64_MAX - now else now + timeout_ns


cdef int64_t deadline_after(int64_t timeout_ns) noexcept:
    return time_after(sc_now(), timeout_ns)


cdef inline int64_t slice_of(int64_t now, int64_t deadline) noexcept nogil:
    cdef int64_t end = now + SLICE_NS
    return end if end < deadline else deadline


cdef inline int64_t slice_end(int64_t deadline) noexcept nogil:
    return slice_of(sc_now(), deadline)


@cython.no_gc_clear  # __dealloc__ returns slabs to the engine, which must outlive the driver even in a cycle
cdef class Driver:
    def __cinit__(self, Engine engine, *, uint64_t member_id, int family, str interface, bytes group, uint16_t port,
                  uint16_t unicast_port, uint16_t port_range, bint unicast,
                  int ttl, int dscp, int rcvbuf, int sndbuf, int send_batch,
                  int receive_batch, int packet_bytes,
                  bint gso, bint gro, bint mmsg, int64_t busy_poll_ns, uint64_t flush_bytes, int64_t flush_ns_min,
                  int64_t flush_ns_max, int64_t tick_ns, int64_t nap_ns, int64_t look_ns):
        cdef sc_io_config config
        cdef sc_drive_config drive
        cdef sc_io_error error
        cdef bytes name = interface.encode("utf-8", "surrogateescape")  # a name may contain any byte but "/"
        if family not in (4, 6) or len(group) != (4 if family == 4 else 16):
            raise ValueError("family must be 4 or 6, with a group address of 4 or 16 bytes")
        if len(name) > 63 or not 0 < send_batch <= SC_IO_BATCH_MAX or not 0 < receive_batch <= SC_IO_BATCH_MAX:
            raise ValueError(f"interface has at most 63 bytes; batches are 1 to {SC_IO_BATCH_MAX}")
        memset(&config, 0, sizeof(config))
        config.family = family
        memcpy(config.wanted_interface, <const char *>name, len(name))
        memcpy(config.group, <const char *>group, len(group))
        config.port = port
        config.ttl = ttl
        config.unicast_port = unicast_port
        config.port_range = port_range
        config.transport = &sc_transport_unicast if unicast else &sc_transport_multicast
        config.dscp = dscp
        config.rcvbuf = rcvbuf
        config.sndbuf = sndbuf
        config.send_batch = send_batch
        config.receive_batch = receive_batch
        config.packet_bytes = packet_bytes
        config.gso = gso
        config.gro = gro
        config.mmsg = mmsg
        config.member = member_id
        drive.busy_poll_ns = busy_poll_ns
        drive.flush_bytes = flush_bytes
        drive.flush_ns_min = flush_ns_min
        drive.flush_ns_max = flush_ns_max
        drive.tick_ns = tick_ns
        drive.nap_ns = nap_ns
        drive.look_ns = look_ns
        self.closed = True
        self.engine = engine
        self.d = <sc_driver *>calloc(1, sizeof(sc_driver))
        if self.d == NULL:
            raise MemoryError()
        if sc_io_open(&self.d.io, &config, &error) != 0:
            raise OSError(error.code, error.call.decode())
        if sc_driver_init(self.d, engine.e, &engine.lock, &drive) != 0:
            sc_io_close(&self.d.io)
            raise MemoryError()
        self.closed = False

    def __dealloc__(self):
        if self.d == NULL or self.forked:
            return
        self.close()
        sc_driver_free(self.d)
        free(self.d)

    # ---- properties ----------------------------------------------------------------------------------------------

    @property
    def address(self):
        return PyBytes_FromStringAndSize(<const char *>self.d.io.address.bytes, self.d.io.address.len)

    @property
    def interface(self):
        return self.d.io.name.decode()

    @property
    def loopback(self):
        return self.d.io.loopback != 0

    @property
    def mtu(self):
        return self.d.io.mtu

    @property
    def rcvbuf_granted(self):
        return self.d.io.granted

    @property
    def sndbuf_granted(self):
        return self.d.io.send_granted

    @property
    def gso(self):
        return sc_load(&self.d.io.gso) != 0

    @property
    def looped(self):
        return sc_load(&self.d.io.looped) != 0

    @property
    def gro(self):
        return self.d.io.gro != 0

    @property
    def apart(self):
        return self.d.io.apart != 0

    def counters(self):
        cdef sc_io_counters io
        cdef sc_drive_counters drive
        sc_driver_counters(self.d, &io, &drive)
        return {
            "io_sends": io.sends, "io_receives": io.receives, "io_gso_refused": io.gso_refused,
            "io_send_errors": io.send_errors, "io_receive_errors": io.receive_errors, "io_truncated": io.truncated,
            "io_refused": io.refused, "io_turns": drive.turns, "io_rounds": drive.rounds, "io_polls": drive.polls,
            "io_naps": drive.naps, "io_nap_bytes": drive.nap_bytes, "io_kicks": drive.kicks,
            "io_flushes_left": drive.flushes_left, "io_flushes_handed": drive.flushes_handed,
        }

    def use_board(self):
        cdef int result = -1
        if self.engine.board.buf != NULL:
            sc_mutex_lock(&self.engine.lock)
            result = sc_driver_board(self.d, <sc_board *>self.engine.board.buf)
            sc_mutex_unlock(&self.engine.lock)
        assert result == 0, "the engine has a board with room for the driver's counters"

    @property
    def last_send_error(self):
        return sc_load(&self.d.io.last_code)

    def look(self):
        return 0 if self.closed or self.forked else sc_io_look(&self.d.io)

    def mend(self):
        cdef sc_io_error error
        if not self.closed and not self.forked and sc_driver_mend(self.d, &error) != 0:
            raise OSError(error.code, error.call.decode())

    # ---- threads -------------------------------------------------------------------------------------------------

    def run(self):
        with nogil:
            sc_driver_run(self.d)

    def wait_control(self, int64_t until_ns, bint each_look=False):
        cdef int look
        with nogil:
            look = sc_driver_wait_control(self.d, until_ns, each_look)
        return look != 0

    def kick_control(self):
        if not self.forked:
            sc_driver_kick_control(self.d)

    def callback(self, bint runs):
        if not self.forked:
            with nogil:
                sc_driver_callback(self.d, runs)

    def poke(self):
        with nogil:
            sc_driver_poke(self.d)

    def stop(self):
        self.stopped = True
        if not self.closed and not self.forked:
            with nogil:
                sc_driver_stop(self.d)

    def close(self):
        if not self.closed and not self.forked:
            self.closed = True
            with nogil:
                sc_driver_close(self.d)

    def after_fork(self):
        if not self.forked:
            sc_driver_forked(self.d)
            self.engine.forked = True
        self.closed = self.forked = True

    cdef int check(self) except -1:
        if self.forked:
            raise Refused(SC_NO_VIEW, 0)
        return 0

    # ---- sending -------------------------------------------------------------------------------------------------

    cdef int lock_engine(self) except -1:
        """Takes the engine's lock with the GIL held. Never waits for the GIL with the lock: others, such as
        the engine's methods, wait for the lock while they hold the GIL."""
        while not sc_mutex_trylock(&self.engine.lock):
            with nogil:
                sc_mutex_lock(&self.engine.lock)
                sc_mutex_unlock(&self.engine.lock)
        return 0

    cdef int pack(self, sc_sending *s) except -1:
        """Sends the messages that can go at once, under the GIL if the lock is free."""
        cdef int64_t now = sc_now()
        cdef int result
        cdef uint64_t unsent
        self.lock_engine()
        result = sc_driver_send_now(self.d, s, now, sc_driver_wall(self.d, now))
        unsent = sc_engine_unsent(self.engine.e)
        sc_mutex_unlock(&self.engine.lock)
        if result != SC_AGAIN:
            self.flush(sc_driver_packed(self.d, unsent, s.answer, now), now)
        return result

    cdef int flush(self, int what, int64_t now) except -1:
        if what != SC_FLUSH_NOTHING:
            with nogil:
                sc_driver_flush(self.d, what == SC_FLUSH_ALL, now)
        return 0

    cdef int finish(self, sc_sending *s, int result, int64_t deadline, group) except -1:
        """Waits for the rest to be sent. If this thread is the one that receives from ``group``, keeps the messages
        that come meanwhile: else nobody takes them, and this send may wait for just that."""
        cdef Receiver receiver = group if isinstance(group, Receiver) else None
        cdef int64_t until, moved = 0
        cdef uint64_t sendable = 0
        cdef int kept = RECEIVED_ELSEWHERE
        cdef int64_t rest = 0
        try:
            while result == SC_AGAIN:
                if receiver is not None:
                    kept = receiver._keep()
                s.receives = kept == KEPT
                if kept == KEPT or kept == KEPT_TO_THE_BRIM:
                    rest = self.engine.rests(sc_now())
                elif rest:
                    self.engine.works_on(rest, sc_now())
                    rest = 0
                if kept != KEPT_TO_THE_BRIM:
                    moved = 0
                elif not moved or self.engine.ask(sc_engine_sendable) != sendable:
                    moved, sendable = sc_now(), self.engine.ask(sc_engine_sendable)
                elif not s.state.packed and (sc_now() - moved > receiver._stuck_ns or receiver._waits_for_itself()):
                    return KEPT_FULL
                # A completely packed large forward waits to come back, even beyond the deadline: its order may still
                # come.
                until = slice_end(INT64_MAX if s.state.packed else deadline)
                if kept != RECEIVED_ELSEWHERE:
                    until = min(until, sc_now() + WATCH_NS)
                with nogil:
                    result = sc_driver_send(self.d, s, until)
                PyErr_CheckSignals()
                if result == SC_AGAIN and not s.state.packed and (sc_now() >= deadline or is_abandoned()):
                    break
        finally:
            sc_driver_send_end(self.d, s)
            if rest:
                self.engine.works_on(rest, sc_now())
        return UNSURE if result != SC_SENT and s.state.packed else result

    cdef int send_message(self, payload, uint64_t to, int64_t timeout_ns, bint ordered, group) except -1:
        """Returns SC_SENT, or why the message was not sent."""
        cdef sc_sending s
        cdef Py_buffer buffer
        cdef int result
        self.check()
        memset(&s, 0, sizeof(s))
        s.to = to
        s.beside = not ordered
        s.state.at_once = timeout_ns == 0
        if PyBytes_CheckExact(payload):
            s.data = <const uint8_t *>PyBytes_AS_STRING(payload)
            s.len = PyBytes_GET_SIZE(payload)
            result = self.pack(&s)
            if result == SC_AGAIN:
                result = self.finish(&s, result, deadline_after(timeout_ns), group)
        else:
            try:
                PyObject_GetBuffer(payload, &buffer, PyBUF_SIMPLE)
            except (TypeError, BufferError, ValueError) as error:
                raise Refused(NOT_BYTES, 0, f"{type(payload).__name__} ({error})") from None
            try:
                s.data = <const uint8_t *>buffer.buf
                s.len = buffer.len
                result = self.pack(&s)
                if result == SC_AGAIN:
                    result = self.finish(&s, result, deadline_after(timeout_ns), group)
            finally:
                PyBuffer_Release(&buffer)
        return result

    def send(self, payload, uint64_t to=0, int64_t timeout_ns=-1, bint ordered=True, group=None):
        cdef int result = self.send_message(payload, to, timeout_ns, ordered, group)
        if result != SC_SENT:
            raise Refused(result, 0)

    cdef Py_ssize_t pack_list(self, list items, Py_ssize_t i, sc_sending *s, int *result) except -1:
        """Packs the bytes objects of `items` from `i` on that fit now, up to 64 KB. Returns the index after them."""
        cdef int64_t now = sc_now()
        cdef uint64_t unsent, bytes_ = 0
        cdef int at_once = s.state.at_once
        cdef Py_ssize_t n = len(items)
        result[0] = SC_SENT
        self.lock_engine()
        # No Python code runs while the lock is held, and nothing raises: other threads' methods would wait for the lock
        # while holding the GIL, and the lock would never be released.
        while i < n and bytes_ < 65536:
            payload = <object>PyList_GET_ITEM(items, i)
            if not PyBytes_CheckExact(payload):
                break
            s.data = <const uint8_t *>PyBytes_AS_STRING(payload)
            s.len = PyBytes_GET_SIZE(payload)
            memset(&s.state, 0, sizeof(s.state))
            s.state.at_once = at_once
            result[0] = sc_driver_send_now(self.d, s, now, sc_driver_wall(self.d, now))
            if result[0] != SC_SENT:
                break
            bytes_ += s.len
            i += 1
        unsent = sc_engine_unsent(self.engine.e)
        sc_mutex_unlock(&self.engine.lock)
        if result[0] != SC_AGAIN:
            self.flush(sc_driver_packed(self.d, unsent, s.answer, now), now)
        return i

    def send_many(self, messages, uint64_t to=0, int64_t timeout_ns=-1, bint ordered=True, group=None):
        cdef list source = messages if type(messages) is list else list(messages)
        cdef list items = []  # the next few items of `source`, which other threads may change whenever this one waits
        cdef Py_ssize_t i = 0, n = len(source), base = 0, stop = 0, start
        cdef int64_t deadline = deadline_after(timeout_ns)
        cdef sc_sending s
        cdef int result
        self.check()
        while i < n:
            memset(&s, 0, sizeof(s))
            s.to = to
            s.beside = not ordered
            s.state.at_once = timeout_ns == 0
            start = i
            if i == stop:
                base, stop = i, min(n, i + MANY_MESSAGES)
                items = source[base:stop]
                if len(items) != stop - base:
                    raise Refused(LIST_CHANGED, i)
            i = base + self.pack_list(items, i - base, &s, &result)
            if result == SC_AGAIN:
                result = self.finish(&s, result, deadline, group)
                i += result == SC_SENT
            if result != SC_SENT:
                raise Refused(result, i)
            if i == start:  # not a bytes object
                try:
                    left = max(0, deadline - sc_now()) if deadline != INT64_MAX else -1
                    self.send(items[i - base], to, left, ordered, group)
                except Refused as refused:
                    raise Refused(refused.args[0], i, *refused.args[2:]) from None
                i += 1
            if i & 0xffff == 0:
                PyErr_CheckSignals()

    cdef int send_batch(self, data, offsets, int64_t timeout_ns, bint ordered, Py_ssize_t done, group) except -1:
        cdef Py_buffer bytes_, marks
        self.check()
        get_bytes(data, &bytes_)
        try:
            get_offsets(offsets, &marks)
            try:
                return self.send_array(&bytes_, &marks, done, timeout_ns, ordered, group)
            finally:
                PyBuffer_Release(&marks)
        finally:
            PyBuffer_Release(&bytes_)

    cdef int send_array(self, Py_buffer *data, Py_buffer *offsets, Py_ssize_t done, int64_t timeout_ns,
                        bint ordered, group) except -1:
        cdef sc_sending s
        cdef Py_ssize_t n = offsets.len // offsets.itemsize - done
        cdef bint bad
        cdef int result
        if n < 2:
            return 0
        memset(&s, 0, sizeof(s))
        s.beside = not ordered
        s.state.at_once = timeout_ns == 0
        s.wide = offsets.itemsize == 8
        s.offsets = <const uint8_t *>offsets.buf + done * offsets.itemsize
        s.n = n - 1
        s.len = data.len
        s.data = <const uint8_t *>data.buf
        with nogil:
            bad = are_bad(&s, n, data.len)
        if bad:
            raise ValueError("offsets must not decrease, and must lie within data")
        s.marks = <uint64_t *>malloc((min(n, SC_SEND_MARKS) + 1) * sizeof(uint64_t))
        if s.marks == NULL:
            raise MemoryError()
        try:
            result = self.finish(&s, SC_AGAIN, deadline_after(timeout_ns), group)
        finally:
            free(s.marks)
        if result != SC_SENT:
            raise Refused(result, s.next)
        return 0

    # ---- delivery ------------------------------------------------------------------------------------------------

    cpdef object deliver(self, uint64_t bytes_max, int64_t timeout_ns, object view, bint later=False):
        cdef Batch batch
        cdef uint64_t marker = 0
        cdef int result
        cdef bint over
        cdef int64_t now = sc_now()
        cdef int64_t deadline = time_after(now, timeout_ns)
        cdef int64_t wall = 0
        if self.forked:
            return None
        batch = self.engine.new_batch()
        while True:
            over = self.stopped or self.forked  # read first: items delivered before the driver stopped are taken
            with nogil:
                result = sc_driver_deliver(
                    self.d, &batch.b, bytes_max, &marker, 0 if timeout_ns == 0 else slice_of(now, deadline), later, now,
                    &wall,
                )
            if result == SC_DELIVER_BATCH:
                if view is not self.view:
                    self.view = view
                    self.view_id = view.view_id
                    self.senders = {member.id: member for member in view.members}
                    self.sender_id = 0
                batch.view = view
                batch.view_id = self.view_id
                batch.senders = self.senders
                if batch.b.runs[0].sender == self.sender_id:
                    batch.run_sender = self.sender
                batch.delivered_ns = wall
                return batch
            if result == SC_DELIVER_MARKER:
                return marker
            if result == SC_DELIVER_SKIPPED:
                return skipped_in(view, &batch.b.skipped)
            PyErr_CheckSignals()
            now = sc_now()
            if over or now >= deadline:
                return None

    def taken(self):
        if not self.forked:
            with nogil:
                sc_driver_taken(self.d)

    def wait_taken(self, int64_t timeout_ns):
        cdef sc_taking w
        cdef int64_t deadline = deadline_after(timeout_ns)
        cdef int result = SC_AGAIN
        self.check()
        sc_mutex_lock(&self.engine.lock)
        sc_taking_begin(self.engine.e, &w, sc_now())
        sc_mutex_unlock(&self.engine.lock)
        try:
            while result == SC_AGAIN:
                with nogil:
                    result = sc_driver_taking(self.d, &w, slice_end(deadline))
                PyErr_CheckSignals()
                if result == SC_AGAIN and (sc_now() >= deadline or is_abandoned()):
                    break
        finally:
            sc_mutex_lock(&self.engine.lock)
            sc_taking_end(self.engine.e, &w)
            sc_mutex_unlock(&self.engine.lock)
        if result == SC_SENT and w.lost:
            return False
        if result == SC_NO_VIEW:
            raise Refused(result, 0)
        return result == SC_SENT

    def wait_deliverable(self, int64_t timeout_ns):
        cdef int64_t deadline = deadline_after(timeout_ns)
        cdef int64_t found = 0
        while not found and not self.stopped and not self.forked and sc_now() < deadline:
            with nogil:
                found = sc_drive(self.d, SC_WANT_DELIVERY, 0, slice_end(deadline))
            PyErr_CheckSignals()
        return found != 0 or self.stopped or self.forked or self.engine.deliverable() != 0

    # ---- state for a joiner --------------------------------------------------------------------------------------

    def state_send(self, const uint8_t[::1] data not None, uint64_t to, int64_t timeout_ns):
        cdef uint64_t done = 0, n = data.shape[0]
        cdef const uint8_t *p = &data[0] if n else NULL
        cdef int result
        cdef int64_t deadline = deadline_after(timeout_ns)
        self.check()
        with nogil:
            result = sc_driver_state_send(self.d, to, p, n, &done, deadline)
        if result != SC_SENT and result != SC_AGAIN:
            raise Refused(result, 0)
        return done

    def state_end(self, uint64_t to):
        self.engine.state_end(to)
        self.flush(SC_FLUSH_ALL, sc_now())

    def state_read(self, uint64_t sender, uint8_t[::1] data not None, int64_t timeout_ns):
        cdef size_t n = data.shape[0]
        cdef int64_t deadline = deadline_after(timeout_ns)
        if n == 0 or self.forked:
            return 0
        with nogil:
            n = sc_driver_state_read(self.d, sender, &data[0], n, deadline)
        return n

    # ---- event loops ---------------------------------------------------------------------------------------------

    def watch_open(self):
        if sc_driver_watch_open(self.d) != 0:
            raise OSError(EMFILE, "eventfd")
        return sc_driver_watch_fd(self.d)

    def watch(self):
        cdef int there = 1
        if not self.forked:
            with nogil:
                there = sc_driver_watch(self.d)
        return there != 0

    def watched(self):
        cdef int there = 1
        if not self.forked:
            with nogil:
                there = sc_driver_watched(self.d)
        return there != 0

    def watch_close(self):
        if not self.forked:
            sc_driver_watch_close(self.d)


include "calls.pxi"
include "embed.pxi"


cdef int get_bytes(object data, Py_buffer *buffer) except -1:
    """The bytes of all messages: an array of uint8, or any other object with a contiguous buffer."""
    PyObject_GetBuffer(data, buffer, PyBUF_ND | PyBUF_FORMAT)
    if buffer.ndim == 1 and buffer.format != NULL and buffer.format[0] == c"B":
        return 0
    if hasattr(data, "dtype"):  # an array of NumPy
        text = f"data has {buffer.ndim} dimensions of {data.dtype}; wanted: 1 of uint8"
        PyBuffer_Release(buffer)
        raise ValueError(text)
    return 0


cdef int get_offsets(object offsets, Py_buffer *buffer) except -1:
    """Offsets, as int32 or int64."""
    try:
        PyObject_GetBuffer(offsets, buffer, PyBUF_ND | PyBUF_FORMAT)
    except (TypeError, BufferError, ValueError):  # a list, or an array with gaps
        pass
    else:
        if are_offsets(buffer):
            return 0
        PyBuffer_Release(buffer)
    import numpy  # here, because this takes a tenth of a second

    array = numpy.ascontiguousarray(offsets)
    PyObject_GetBuffer(array, buffer, PyBUF_ND | PyBUF_FORMAT)
    if are_offsets(buffer):
        return 0
    text = f"offsets have {buffer.ndim} dimensions of {array.dtype}; wanted: 1 of int32 or int64"
    PyBuffer_Release(buffer)
    raise ValueError(text)


cdef bint are_offsets(const Py_buffer *buffer) noexcept:
    cdef const char *kind = buffer.format
    if buffer.ndim != 1 or kind == NULL or kind[0] == 0 or kind[1] != 0:
        return False
    return kind[0] in (c"i", c"l", c"q") and buffer.itemsize in (4, 8)


cdef bint are_bad(const sc_sending *s, Py_ssize_t n, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    cdef const int64_t *wide = <const int64_t *>s.offsets
    cdef const int32_t *narrow = <const int32_t *>s.offsets
    cdef bint falls = False
    if s.wide:
        for i in range(n - 1):
            falls |= wide[i] > wide[i + 1]
        return falls or wide[0] < 0 or wide[n - 1] > size
    for i in range(n - 1):
        falls |= narrow[i] > narrow[i + 1]
    return falls or narrow[0] < 0 or narrow[n - 1] > size


def describe_address(bytes address):
    """ "192.0.2.1:5000" of a member's address."""
    cdef sc_address a
    cdef char text[64]
    if len(address) > 28:
        raise ValueError("an address has at most 28 bytes")
    memset(&a, 0, sizeof(a))
    a.len = <uint8_t>len(address)
    memcpy(a.bytes, <const char *>address, a.len)
    sc_io_format(&a, text)
    return text.decode()


def interface_of(str address):
    """The name and the index of the interface that has an IPv4 address, secondary ones too."""
    cdef sc_io io
    cdef sc_io_error error
    cdef bytes text = address.encode()
    if len(text) > 63:
        raise ValueError("an address has at most 63 characters")
    memset(&io, 0, sizeof(io))
    io.config.family = 4
    memcpy(io.config.wanted_interface, <const char *>text, len(text))
    if sc_io_find(&io, &error) != 0:
        raise OSError(error.code, error.call.decode())
    return io.name.decode(), sc_load(&io.index)


def look_at(str interface, int index, bytes address, bytes unrouted=b""):
    """The result of ``Driver.look``, for the sockets of others."""
    cdef sc_io io
    cdef bytes name = interface.encode()
    if len(name) > 63 or not 0 < len(address) <= 28 or len(unrouted) > 28:
        raise ValueError("an interface's name has at most 63 bytes, and an address 28")
    memset(&io, 0, sizeof(io))
    io.config.family = address[0]
    sc_store(&io.index, index)
    memcpy(io.name, <const char *>name, len(name))
    io.address.len = <uint8_t>len(address)
    memcpy(io.address.bytes, <const char *>address, len(address))
    io.loopback = len(unrouted) > 0
    io.lane[0].len = <uint8_t>len(unrouted)
    memcpy(io.lane[0].bytes, <const char *>unrouted, len(unrouted))
    return sc_io_look(&io)


SENT, AGAIN, NO_VIEW, NO_MEMBER = SC_SENT, SC_AGAIN, SC_NO_VIEW, SC_NO_MEMBER
TOO_LARGE, ENDED, OBSERVER, BAD_OFFSETS = SC_TOO_LARGE, SC_ENDED, SC_OBSERVER, SC_BAD_OFFSETS
ELSEWHERE, BY_TASK, KEEPS, FULL = RECEIVED_ELSEWHERE, RECEIVED_BY_TASK, KEPT, KEPT_TO_THE_BRIM
GONE, REMADE, DOWN, NO_CARRIER = SC_IO_GONE, SC_IO_REMADE, SC_IO_DOWN, SC_IO_NO_CARRIER
ADDRESS_GONE, ADDRESS_OTHER, ROUTED = SC_IO_ADDRESS_GONE, SC_IO_ADDRESS_OTHER, SC_IO_ROUTED
