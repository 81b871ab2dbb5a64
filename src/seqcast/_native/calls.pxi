# Part of driver.pyx: the calls that an application makes for each message or batch. Compiled, because most of the cost
# of a small message is the call itself.


cdef int64_t wait_of(timeout) except? -2:
    """Nanoseconds; -1: no limit."""
    if timeout is None:
        return -1
    if PyFloat_CheckExact(timeout) and 0 <= <double>timeout < 4e9:  # as `nanoseconds`, without a call of Python
        return <int64_t>(<double>timeout * 1e9)
    return nanoseconds(timeout)


cdef class Sender:
    """The part of a group that sends single messages."""

    cdef uint64_t receiver_of(self, to) except? 0:
        """The id of the member to which a message goes; 0: the group."""
        if to is None:
            return 0
        return id_of(self._named(to) if isinstance(to, str) else to)

    def send(self, payload, *, to=None, timeout=None, bint ordered=True):
        """Sends one message, to the group or to one member, reliably and in order per sender.

        Args:
            payload: bytes, or an object with a contiguous buffer.
            to: a member of the view, or its name; None: the group. Messages that this member sends to itself need
                credit too: beyond ``unicast_bytes`` the call waits until some of them are received.
            timeout: seconds to wait for credit or for the end of a view change; None: no limit. A message larger than
                half the window that travels by way of the sequencer also waits for its order, and beyond the timeout
                once all its packets are on their way; with 0, such a message is not begun. With
                ``send_while_blocked="queue"`` the call does not wait for a view change or a pause: the message is
                copied and sent afterwards. If the membership ends first, ``Lost`` reports the message.
            ordered: False: the message has no place in the total order and no global seqno, and waits only for this
                member's earlier messages. Every member of the view delivers the message before the view ends, but
                not necessarily at the same place among the messages of others. Without a total order, with the order
                "grant", and for a message to one member, the argument has no effect. With "sequencer" and
                "total-1999" the message still travels by way of the sequencer: if the sequencer crashes before
                multicasting, every member delivers the message in the next view instead.

        Raises:
            SendTimeout: the message was not sent; no part of it will be delivered.
            SendWouldBlock: as SendTimeout, if only this thread could end the wait, by receiving: while the thread
                that receives waits in a send, arriving messages are kept for it, up to ``kept_bytes``, and that limit
                is reached.
            NotMember: this member left, is leaving, or was excluded. If ``leave`` is called while a send waits,
                either the whole message is accepted, or this error is raised and no part is delivered. The exception
                is a message that waits for its order (see ``timeout``): members that this one was cut off from may
                still deliver all of it, and then the error says so.
            NotInView: ``to`` is not in the view.
            UsageError: ``payload`` is not bytes-like or is larger than ``message_bytes_max``, ``to`` is neither a
                Member nor a name, or two members have this name, or ``timeout`` is not a number of seconds.
        """
        cdef uint64_t receiver = self.receiver_of(to)
        cdef int64_t wait = wait_of(timeout)
        cdef int result
        try:
            result = self._driver.send_message(payload, receiver, wait, ordered, self)
            if result != SC_SENT:
                raise Refused(result, 0)
        except Refused as refused:
            raise self._refusal(refused, to, timeout) from None

    def send_batch(self, data, offsets, *, timeout=None, bint ordered=True):
        """Sends the messages of an Arrow binary array to the group.

        Args:
            data: the bytes of all messages, an array of uint8 or an object with a contiguous buffer.
            offsets: n + 1 ascending offsets into ``data``, int32 or int64: message i is
                ``data[offsets[i]:offsets[i + 1]]``.
            timeout: seconds to wait for credit; None: no limit.
            ordered: as for ``send``.

        The arrays must not be changed until the call returns. If another thread changes them, other bytes of ``data``
        are sent, or the call raises.

        Raises:
            SendTimeout: the first ``error.sent`` messages were sent, the others were not.
            UsageError: the arrays have other types, or the offsets descend or lie outside ``data``. ``error.sent`` is 0
                unless another thread changed the offsets during the call.
            NotMember: as for ``send``; the first ``error.sent`` messages were sent.
        """
        self.send_arrays(data, offsets, timeout, ordered, 0)

    def _send_batch(self, data, offsets, timeout, bint ordered, Py_ssize_t done):
        """``done``: how many of the messages this call has already sent."""
        self.send_arrays(data, offsets, timeout, ordered, done)

    cdef int send_arrays(self, data, offsets, timeout, bint ordered, Py_ssize_t done) except -1:
        cdef int64_t wait = wait_of(timeout)
        try:
            return self._driver.send_batch(data, offsets, wait, ordered, done, self)
        except Refused as refused:
            raise self._refusal(refused, None, timeout, done) from None
        except (TypeError, AttributeError, BufferError, ValueError) as error:
            usage = UsageError(f"send_batch: {error}")
            usage.sent = done
            raise usage from None

    cdef bint send_now(self, payload, to, bint ordered) except -1:
        """Sends one message if the credit allows that now; False: too little credit."""
        cdef uint64_t receiver = self.receiver_of(to)
        cdef int result
        try:
            result = self._driver.send_message(payload, receiver, 0, ordered, None)
            if result != SC_SENT and result != SC_AGAIN:
                raise Refused(result, 0)
        except Refused as refused:
            raise self._refusal(refused, to, 0) from None
        return result == SC_SENT


# ---- receiving ---------------------------------------------------------------------------------------------------


cdef extern from "pythread.h" nogil:
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock lock, long long microseconds, int intr_flag)
    unsigned long PyThread_get_thread_ident()


class Ended(Exception):
    """The last event of the stream was taken."""


cdef class Receiver(Sender):
    """The part of a group that receives. The application's Python class says what markers mean, and keeps the journal.

    It is a ``Sender`` because an object has one layout in C.
    """

    def __cinit__(self):
        self.taking = PyThread_allocate_lock()
        if self.taking == NULL:
            raise MemoryError()

    def __dealloc__(self):
        if self.taking != NULL:
            PyThread_free_lock(self.taking)

    def __iter__(self):
        """The messages, until this member has left.

        Raises:
            NotMember: this member was excluded.
            JournalWriteError: as for ``recv``.
        """
        cdef Messages messages = Messages.__new__(Messages)
        messages.group = self
        return messages

    def recv(self, timeout=None):
        """The next message. Views and other events are skipped.

        Args:
            timeout: seconds; None: no limit.

        Returns:
            None if no message came within ``timeout``.

        Raises:
            NotMember: this member left or was excluded, and the application has received every message delivered here.
            UsageError: ``timeout`` is not a number of seconds.
            JournalWriteError: with ``journal_required=True``, the journal cannot be written. Later items stay in the
                stream, and nothing more is received.
        """
        return self.next_message(wait_of(timeout))

    cdef object next_message(self, int64_t wait):
        """The next message; None after ``wait`` ns (< 0: no limit)."""
        cdef Batch batch
        message = self.begun_message()
        if message is not None:
            return message
        if not self.begin_taking(wait):
            return None
        try:
            batch = self._begun if self._begun is not None else self.next_batch(wait)
            return None if batch is None else self.message_of(batch)
        finally:
            PyThread_release_lock(self.taking)

    def recv_batch(self, timeout=None):
        """The next messages, as many as are there, up to ``batch_bytes``. Views and other events are skipped.

        Args:
            timeout: seconds; None: no limit.

        Returns:
            None if no message came within ``timeout``.

        Raises:
            NotMember, UsageError, JournalWriteError: as for ``recv``.
        """
        cdef int64_t wait = wait_of(timeout)
        cdef Batch batch
        if not self.begin_taking(wait):
            return None
        try:
            batch = self.rest_of_begun()
            if batch is None:
                batch = self.next_batch(wait)
            if self._untaken:
                self.tell_taken()
            return batch
        finally:
            PyThread_release_lock(self.taking)

    def _take_rest(self):
        """The rest of the batch from which ``next_event`` took a message, or None. Counts as taken at the next call for
        an event."""
        if self._begun is None or not self.begin_taking(-1):
            return None
        try:
            return self.rest_of_begun()
        finally:
            PyThread_release_lock(self.taking)

    def _under_lock(self, call, int64_t wait):
        """Calls a function with the lock of the stream; False: the lock was not free within ``wait`` ns."""
        if not self.take_lock(wait):
            return False
        try:
            call()
        finally:
            PyThread_release_lock(self.taking)
        return True

    def _next_event(self, int64_t wait):
        """The next message or other event; None after ``wait`` ns (< 0: no limit).

        Raises:
            Ended: the stream has ended.
        """
        message = self.begun_message()
        if message is not None:
            return message
        if not self.begin_taking(wait):
            return None
        try:
            if self._begun is not None:
                return self.message_of(self._begun)
            if self._end is not None:
                raise Ended
            if self._untaken:
                self.tell_taken()
            item = self.next_item(wait)
            return self.message_of(<Batch>item) if isinstance(item, Batch) else self._event(item)
        finally:
            PyThread_release_lock(self.taking)

    cdef object begun_message(self):
        """The next message of the begun batch; None: no batch is begun, or only its last message is left. No lock."""
        cdef Batch begun = self._begun
        return begun.next_message() if begun is not None and begun.cursor + 1 < begun.b.n else None

    cdef bint begin_taking(self, int64_t wait) except -1:
        """Takes the lock of the stream: one thread at a time takes items or waits for them. ``wait`` is in ns, below 0
        for no limit; False: the lock was not free in time."""
        if self._forked:
            raise self._not_member()
        self.refuse_beside_c()
        self._taker = PyThread_get_thread_ident()
        if not self.take_lock(wait):
            return False
        try:
            self.refuse_beside_c()  # a handle may have been opened meanwhile
        except UsageError:
            PyThread_release_lock(self.taking)
            raise
        return True

    cdef int refuse_beside_c(self) except -1:
        if self._embedded:
            raise UsageError("a program in C receives from this group: Python cannot until the handle is closed")
        return 0

    cdef bint take_lock(self, int64_t wait) except -1:
        return PyThread_acquire_lock(self.taking, NOWAIT_LOCK) or self.wait_turn(wait)

    cdef bint wait_turn(self, int64_t wait) except -1:
        """Waits for the lock of the stream, which another thread has."""
        cdef int64_t now = sc_now()
        cdef int64_t deadline = time_after(now, wait)
        cdef int64_t left
        cdef PyLockStatus got = PY_LOCK_FAILURE
        self._refuse_handler()
        while got != PY_LOCK_ACQUIRED and now < deadline:
            left = (slice_of(now, deadline) - now + 999) // 1000
            with nogil:
                got = PyThread_acquire_lock_timed(self.taking, left, 1)
            if got != PY_LOCK_ACQUIRED:
                PyErr_CheckSignals()
            now = sc_now()
        return got == PY_LOCK_ACQUIRED

    cdef Batch rest_of_begun(self):
        """Under `taking`."""
        cdef Batch begun = self._begun
        self._begun = None
        return None if begun is None else begun._rest()

    cdef object message_of(self, Batch batch):
        """The next message of a batch; the batch stays begun until its last message is taken. Under `taking`."""
        if batch.cursor >= batch.b.n:
            raise IndexError("all messages of the batch are taken")
        message = batch.next_message()
        self._driver.sender = batch.run_sender
        self._driver.sender_id = batch.b.runs[batch.run].sender
        if batch.cursor < batch.b.n:
            self._begun = batch
        else:
            self._begun = None
            if batch.b.data_cap <= KEPT_BYTES:
                self._spent = batch
            if self._untaken:
                self.tell_taken()
        return message

    cdef int tell_taken(self) except -1:
        """Tells senders that wait in ``wait_consumed`` that the application has taken the last batch."""
        if not self._backlog:
            self._untaken = False
            self._driver.taken()
        return 0

    cdef Batch next_batch(self, int64_t wait):
        """The next batch; None after ``wait`` ns (< 0: no limit). Under `taking`."""
        cdef int64_t deadline = deadline_after(wait) if wait > 0 else 0
        while True:
            item = self.next_item(wait)
            if item is None or isinstance(item, Batch):
                return item
            self._skipped(item)
            if wait > 0:  # a view or another event: wait for the remaining time
                wait = max(0, deadline - sc_now())

    cdef object next_item(self, int64_t wait):
        """The next entry of the stream: a batch, or a marker's meaning; None after ``wait`` ns. Under `taking`."""
        cdef Batch batch
        self._spent = None
        if self._end is not None:
            raise self._not_member()
        if self._missed and sc_now() >= self._missed_due:
            self._tell_missed()
        if self._stop is not None:
            return self._wait_merged(wait)
        if self._meanings:
            return self._reached(self._meanings.popleft(), wait)
        if self._backlog:
            item = self._backlog.popleft()
            self._untaken = True
            self._driver.engine.takes(item, sc_now())
            if self._kept:
                self._unkeep(item)
        else:
            item = self.delivered(wait)
            if self._seekers and isinstance(item, Batch):
                self._saw_batch(item)
        if isinstance(item, Batch):
            batch = item
            if batch.b.n - batch.first > 1:
                self._untaken = True
            if self._journal is not None:
                self._write(batch)
            return batch
        if item is None:
            self._refuse_over()
            return None
        if not isinstance(item, int):
            return self._reached(item, wait)
        return self._marked(item, wait)

    cdef object delivered(self, int64_t wait):
        """What the driver delivers next; None after ``wait`` ns. Tells of missed messages when that is due."""
        cdef int64_t due = self._missed_due - sc_now() if self._missed else 0
        if due > 0 and (wait < 0 or due < wait):
            item = self._driver.deliver(self._batch_bytes, due, self._delivered_view)
            if item is not None:
                return item
            self._tell_missed()
            if wait > 0:
                wait -= due
        return self._driver.deliver(self._batch_bytes, wait, self._delivered_view)


@cython.final
cdef class Messages:
    """Iterates over the messages of a group."""
    cdef Receiver group

    def __iter__(self):
        return self

    def __next__(self):
        try:
            while True:
                message = self.group.next_message(-1)
                if message is not None:
                    return message
        except NotMember:
            if not self.group._ends_quietly:
                raise
        raise StopIteration


# ---- asyncio -----------------------------------------------------------------------------------------------------

DEF ASK_LOOP = 16
# When messages come faster than they are taken, a call that takes one lets the event loop run its other tasks first if
# this long has passed. `async for` looks once in ASK_LOOP messages.
DEF HOLD = 5000000
HOLD_NS = HOLD

cdef extern from "Python.h":
    ctypedef struct PyAsyncMethods:
        int (*am_send)(PyObject *self, PyObject *arg, PyObject **result) except -1
    ctypedef struct PyTypeObject:
        PyAsyncMethods *tp_as_async
        PyObject *tp_dict
    void PyType_Modified(PyTypeObject *type)
    int PyIter_Send(object iterator, object arg, PyObject **result) except -1
    enum:
        PYGEN_RETURN
        PYGEN_NEXT


cdef class AsyncSender:
    """The part of an asyncio group that sends and receives single messages."""

    def send(self, payload, *, to=None, timeout=None, bint ordered=True):
        """Sends one message; waits for credit. Arguments and errors are those of ``seqcast.Group.send``.

        The message of a cancelled call may still be sent, even after the message of a later call.
        """
        cdef SendCall call = SendCall.__new__(SendCall)
        call.group = self
        call.payload = payload
        call.to = to
        call.timeout = timeout
        call.ordered = ordered
        return call

    def __aiter__(self):
        cdef AsyncMessages messages = AsyncMessages.__new__(AsyncMessages)
        messages.group = self
        return messages

    def _next_message(self):
        cdef NextMessage call = NextMessage.__new__(NextMessage)
        call.group = self
        return call

    def _on_watch(self):
        # Another call may have begun a batch or a marker before the loop came here: the waiting calls get the rest.
        if self.sync._driver.watched() or self.sync._begun is not None or self.sync._meanings:
            self._wake()

    def _wake(self):
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


@cython.final
@cython.freelist(8)
cdef class SendCall:
    """A call of ``AsyncSender.send``: runs when awaited, like a coroutine, but without the cost of one as long as
    credit lasts."""
    cdef AsyncSender group
    cdef object payload, to, timeout
    cdef object rest  # the coroutine that waits for credit, or None
    cdef bint ordered, begun

    def __dealloc__(self):
        if not self.begun:
            PyErr_WarnEx(RuntimeWarning, "coroutine 'Group.send' was never awaited", 1)

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """For the event loop: the next step."""
        cdef PyObject *result = NULL
        cdef int ended = step_of_send(<PyObject *>self, <PyObject *>value, &result)
        item = <object>result
        Py_DECREF(item)  # `result` held our reference
        if ended == PYGEN_RETURN:
            raise StopIteration(item)
        return item

    def throw(self, *error):
        """For the event loop: raises in the call."""
        if self.rest is not None:
            return self.rest.throw(*error)
        self.begin()
        raise error[0] if len(error) < 2 or error[1] is None else error[1]

    def close(self):
        """For the event loop: gives up a call that has not begun or is no longer awaited."""
        self.begun = True
        if self.rest is not None:
            self.rest.close()

    cdef int begin(self) except -1:
        if self.begun:
            raise RuntimeError("cannot reuse already awaited coroutine")
        self.begun = True
        return 0


cdef int step_of_send(PyObject *this, PyObject *arg, PyObject **result) except -1:
    cdef SendCall call = <SendCall>this
    if call.rest is None:
        call.begin()
        if call.timeout is None and not call.group._waiting_sends and call.group.sync.send_now(
            call.payload, call.to, call.ordered
        ):
            Py_INCREF(None)
            result[0] = <PyObject *>None
            return PYGEN_RETURN
        call.rest = call.group._send_waiting(call.payload, call.to, call.timeout, call.ordered)
    return PyIter_Send(call.rest, <object>arg, result)


(<PyTypeObject *>SendCall).tp_as_async.am_send = step_of_send


@cython.final
cdef class AsyncMessages:
    """Iterates over the messages of a group. A message is taken when the call is awaited, not when the call is made: a
    call that is cancelled before that takes none."""
    cdef AsyncSender group
    cdef unsigned int taken

    def __aiter__(self):
        return self

    def __anext__(self):
        cdef NextMessage call = NextMessage.__new__(NextMessage)
        call.group = self.group
        call.iterates = True
        self.taken += 1
        call.hurries = self.taken % ASK_LOOP != 0
        return call


@cython.final
@cython.freelist(8)
cdef class NextMessage:
    """A call that takes the next message, waiting if none has come: runs when awaited, like a coroutine."""
    cdef AsyncSender group
    cdef bint iterates  # the end of the membership ends the iteration
    cdef bint hurries  # a message that is already here is taken without a look at the clock
    cdef object waiter  # a future in `_waiters` of the group
    cdef object waits  # the iterator of `waiter`; None: this call has not waited, or was just woken
    cdef object rest  # the coroutine that handles the rare cases instead, or None

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """For the event loop: the next step."""
        cdef PyObject *result = NULL
        cdef int ended = step_of_next(<PyObject *>self, <PyObject *>value, &result)
        item = <object>result
        Py_DECREF(item)  # `result` held our reference
        if ended == PYGEN_RETURN:
            raise StopIteration(item)
        return item

    def throw(self, *error):
        """For the event loop: raises in the call."""
        if self.rest is not None:
            return self.rest.throw(*error)
        self.forget()
        raise error[0] if len(error) < 2 or error[1] is None else error[1]

    def close(self):
        """For the event loop: gives up a call that is no longer awaited."""
        self.forget()
        if self.rest is not None:
            self.rest.close()

    cdef int forget(self) except -1:
        """This call does not wait any more."""
        if self.waiter is not None:
            self.group._waiters.remove(self.waiter)
            self.waiter = self.waits = None
        return 0

    cdef int step(self, object value, PyObject **result) except -1:
        cdef AsyncSender group = self.group
        if self.rest is not None:
            return PyIter_Send(self.rest, value, result)
        if self.waits is not None:
            if PyIter_Send(self.waits, value, result) != PYGEN_RETURN:
                return PYGEN_NEXT
            Py_DECREF(<object>result[0])
            result[0] = NULL  # the calls below may raise, and a task would take a pointer left here for the result
            self.forget()
            group._turned_ns = sc_now()
        else:
            message = group.sync.begun_message() if self.hurries else None
            if message is not None:
                return give(message, result)
            if sc_now() - group._turned_ns > HOLD:
                return self.leave_it(result)
        task = group._current_task()
        if task is not group._receiver:
            group._receives(task)
        while True:
            message = group.sync.next_message(0)
            if message is not None:
                return give(message, result)
            if group._watched is None or group.sync._stop is not None:
                return self.leave_it(result)
            if not group.sync._driver.watch():
                break
        self.waiter = group._loop.create_future()
        group._waiters.append(self.waiter)
        self.waits = self.waiter.__await__()
        return PyIter_Send(self.waits, None, result)

    cdef int leave_it(self, PyObject **result) except -1:
        self.rest = self.group._next_waiting()
        return PyIter_Send(self.rest, None, result)


cdef inline int give(object message, PyObject **result) noexcept:
    Py_INCREF(message)
    result[0] = <PyObject *>message
    return PYGEN_RETURN


cdef int step_of_next(PyObject *this, PyObject *arg, PyObject **result) except -1:
    cdef NextMessage call = <NextMessage>this
    try:
        return call.step(<object>arg, result)
    except NotMember:
        if not call.iterates or not call.group.sync._ends_quietly:
            raise
    raise StopAsyncIteration


(<PyTypeObject *>NextMessage).tp_as_async.am_send = step_of_next


for each in (Sender, Receiver, AsyncSender):  # no other Cython module imports these, and `help` would list the entry
    (<dict><object>(<PyTypeObject *>each).tp_dict).pop("__pyx_vtable__", None)
    PyType_Modified(<PyTypeObject *>each)
del each
