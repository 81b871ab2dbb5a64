# Part of engine.pyx: delivered messages and batches, as Python sees them. The contract is engine.pyi.

# NumPy is imported when an array is first asked for: the import takes a tenth of a second.
cdef object np = None
cdef object BYTE_DTYPE, OFFSET_DTYPE, RUN_DTYPE


cdef object arrays():
    global np, BYTE_DTYPE, OFFSET_DTYPE, RUN_DTYPE
    if np is None:
        import numpy

        BYTE_DTYPE = numpy.dtype(numpy.uint8)
        OFFSET_DTYPE = numpy.dtype(numpy.int32)
        RUN_DTYPE = numpy.dtype(
            [
                ("sender", "u8"), ("seqno", "u8"), ("global_seqno", "u8"), ("sent_ns", "i8"),
                ("first", "u4"), ("n", "u4"), ("index", "u4"), ("unicast", "u2"),
                ("transitional", "u2"),
            ]
        )
        np = numpy
    return np


def __getattr__(name):
    if name != "RUN_DTYPE":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    arrays()
    return RUN_DTYPE


cdef int32_t[1] NO_OFFSETS = [0]


cdef class Memory:
    """A read-only buffer over memory of a batch; keeps the batch alive."""
    cdef const void *p
    cdef Py_ssize_t n
    cdef Batch batch

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void *>self.p, self.n, 1, flags)


cdef object memory(Batch batch, const void *p, Py_ssize_t n):
    """As a memoryview: NumPy asks for a writable buffer first, which a memoryview refuses without a traceback."""
    cdef Memory m = Memory.__new__(Memory)
    m.p = p if p != NULL else NO_OFFSETS  # Arrow aborts the process if a buffer has no address
    m.n = n
    m.batch = batch
    return PyMemoryView_FromObject(m)


@cython.final
@cython.no_gc  # never in a cycle: payload, Member and ViewId cannot refer to a Message
@cython.freelist(64)
cdef class Message:
    """One delivered message, identified by (sender, seqno, index). Frozen; equal to another with the same values.

    Attributes:
        payload: its bytes.
        sender: the member that sent it.
        view_id: of the view in which it was delivered.
        seqno: of the sender's packet in which it ends.
        index: position among the messages that end in that packet.
        global_seqno: position among the ordered messages of the view, from 1, dense; None without total order, for
            unicasts and for messages sent with ``ordered=False``.
        ordered: the message has a place in the total order.
        sent_ns: wall clock of the sender, ns since 1970, when the packet was opened.
        unicast: the message was sent to this member only.
        transitional: the message was delivered by a view change after members were lost. Those members may have
            delivered another message in this place; with ``safe=True``, they may lack this one. Every member of the
            next view delivers the message and no other member does; a sender outside the next view gets ``Lost``.
            An application that answers on delivery can answer: all remaining members have the message.
    """

    __match_args__ = (
        "payload", "sender", "view_id", "seqno", "index", "global_seqno", "sent_ns", "unicast", "transitional"
    )

    def __init__(
        self, payload, sender, view_id, seqno, index, global_seqno, sent_ns, unicast=False, transitional=False
    ):
        self.payload = payload
        self.sender = sender
        self.view_id = view_id
        self.seqno = seqno
        self.index = index
        self.global_seqno = global_seqno
        self.sent_ns = sent_ns
        self.unicast = unicast
        self.transitional = transitional

    @property
    def ordered(self):
        return self.global_seqno is not None

    cdef tuple fields(self):
        return (
            self.payload, self.sender, self.view_id, self.seqno, self.index, self.global_seqno, self.sent_ns,
            self.unicast, self.transitional,
        )

    def __eq__(self, other):
        return self.fields() == (<Message>other).fields() if type(other) is Message else NotImplemented

    def __hash__(self):
        return hash(self.fields())

    def __repr__(self):
        named = zip(self.__match_args__, self.fields(), strict=True)
        return f"Message({', '.join(f'{name}={value!r}' for name, value in named)})"

    def __reduce__(self):
        return Message, self.fields()


@cython.no_gc_clear  # __dealloc__ gives the buffers back to the engine
@cython.freelist(4)
cdef class Batch:
    """Messages of one view, in order, in Arrow's binary layout. Iterating yields their payloads.

    The arrays are views of memory that lives as long as the arrays or the batch. Large packets are copied only when an
    array, or a message by its index, is asked for: the first such call copies the whole batch once.

    Attributes:
        view: the view in which the messages were delivered.
        data: the bytes of the messages, an array of uint8.
        offsets: ``len(batch) + 1`` offsets into ``data`` (int32): message i is ``data[offsets[i]:offsets[i + 1]]``.
        runs: one row for the messages of one packet: sender's id, seqno, global_seqno, sent_ns, first
            (index of its first message here), n, index, unicast, transitional.
        transitional: global seqno of the first message that has one and is transitional; 0 if none is.
        nbytes: bytes of all its messages.
        view_tag: tag of the view's id, as packets carry it.
        delivered_ns: wall clock at delivery, ns since 1970.
    """

    def __init__(self):
        raise TypeError("only recv_batch makes a Batch")

    cdef const int32_t *offsets_left(self) noexcept:
        return self.b.offsets + self.first if self.b.offsets != NULL else NO_OFFSETS

    cdef int flatten(self) except -1:
        """All messages are in `b.data` afterwards, one after the other."""
        if self.b.n_copied != self.b.n and sc_batch_flatten(&self.b):
            raise MemoryError()
        return 0

    def __dealloc__(self):
        if self.whole is not None:
            return
        if self.owner is not None:
            self.owner.take_back(&self.b)
        else:
            sc_batch_clear(&self.b)

    # `ndarray` takes half the time of `frombuffer`.

    @property
    def data(self):
        self.flatten()
        return arrays().ndarray(self.b.data_len, BYTE_DTYPE, memory(self, self.b.data, self.b.data_len))

    @property
    def offsets(self):
        self.flatten()
        cdef Py_ssize_t n = <Py_ssize_t>self.b.n - self.first + 1
        return arrays().ndarray(n, OFFSET_DTYPE, memory(self, self.offsets_left(), 4 * n))

    @property
    def runs(self):
        rows = memory(self, self.b.runs, sizeof(sc_run) * <Py_ssize_t>self.b.n_runs)
        runs = arrays().ndarray(self.b.n_runs, RUN_DTYPE, rows)
        if not self.first:
            return runs
        runs = runs[runs["first"] + runs["n"] > self.first].copy()
        taken = np.maximum(self.first - runs["first"].astype(np.int64), 0).astype(np.uint32)
        runs["index"] += taken
        runs["n"] -= taken
        runs["global_seqno"] += np.where(runs["global_seqno"] > 0, taken, 0).astype(np.uint64)
        runs["first"] = np.maximum(runs["first"], self.first) - self.first
        return runs

    @property
    def nbytes(self):
        return self.b.borrowed_bytes + self.b.data_len - (<uint64_t>self.b.offsets[self.first] if self.first else 0)

    @property
    def transitional(self):
        cdef uint32_t r
        cdef const sc_run *run
        for r in range(self.b.n_runs):
            run = &self.b.runs[r]
            if run.transitional and run.global_seqno and run.first + run.n > self.first:
                return run.global_seqno + (self.first - run.first if self.first > run.first else 0)
        return 0

    @property
    def view_tag(self):
        return self.b.view_tag

    def __len__(self):
        return self.b.n - self.first

    def __getitem__(self, Py_ssize_t index):
        cdef Py_ssize_t n = self.b.n - self.first
        if index < 0:
            index += n
        if index < 0 or index >= n:
            raise IndexError("message index out of range")
        self.flatten()
        cdef const int32_t *at = self.b.offsets + self.first + index
        return PyBytes_FromStringAndSize(<char *>self.b.data + at[0], at[1] - at[0])

    def __iter__(self):
        return iter(self.tolist())

    def __reduce__(self):
        offsets, runs = self.offsets, self.runs
        data = bytes(memory(self, self.b.data, self.b.data_len))[offsets[0]:offsets[-1]]
        marks = (offsets - offsets[0]).tobytes()
        return _batch_of, (self.view, data, marks, runs.tobytes(), self.b.view_tag, self.delivered_ns)

    def unicasts(self):
        """A batch of only the unicasts; None if there are none."""
        cdef Batch only = Batch.__new__(Batch)
        if self.first:
            raise ValueError("a batch that is begun")
        self.flatten()
        only.view, only.senders, only.delivered_ns = self.view, self.senders, self.delivered_ns
        only.view_id = self.view_id
        if sc_batch_unicasts(&self.b, &only.b):
            raise MemoryError()
        return only if only.b.n else None

    cdef Py_ssize_t in_pieces(self, const sc_place *place) noexcept:
        """Bytes of the message in pieces."""
        cdef Py_ssize_t size = 0
        cdef uint32_t i
        for i in range(place.piece, place.piece + place.pieces):
            size += self.b.pieces[i].len
        return size

    cdef bytes joined(self, const sc_place *place):
        """The message in pieces."""
        cdef bytes message = PyBytes_FromStringAndSize(NULL, self.in_pieces(place))
        cdef char *to = PyBytes_AS_STRING(message)
        cdef uint32_t i
        for i in range(place.piece, place.piece + place.pieces):
            memcpy(to, self.b.pieces[i].data, self.b.pieces[i].len)
            to += self.b.pieces[i].len
        return message

    cdef bytes payload(self, uint32_t r, uint32_t i):
        """Message `i` of the batch, which is in run `r`."""
        cdef size_t n
        cdef const uint8_t *p = sc_batch_message(&self.b, r, i, &n)
        return self.joined(&self.b.places[r]) if p == NULL else PyBytes_FromStringAndSize(<const char *>p, n)

    def tolist(self):
        """The payloads, as bytes."""
        cdef list result = [None] * (self.b.n - self.first)
        cdef uint32_t i = self.first, r
        for r in range(self.b.n_runs):
            while i < self.b.runs[r].first + self.b.runs[r].n:
                result[i - self.first] = self.payload(r, i)
                i += 1
        return result

    def to_arrow(self):
        """A ``pyarrow.BinaryArray`` over the same memory. Needs pyarrow."""
        import pyarrow

        self.flatten()
        n = self.b.n - self.first
        offsets = pyarrow.py_buffer(memory(self, self.offsets_left(), 4 * (<Py_ssize_t>n + 1)))
        data = pyarrow.py_buffer(memory(self, self.b.data, self.b.data_len))
        return pyarrow.BinaryArray.from_buffers(pyarrow.binary(), n, [None, offsets, data])

    cdef object sender_of(self, const sc_run *run):
        sender = self.senders.get(run.sender)
        return sender if sender is not None else Member(f"{run.sender:016x}", run.sender)

    cdef object message(self, uint32_t r, uint32_t i, object sender):
        cdef Message m = Message.__new__(Message)
        cdef const sc_run *run = &self.b.runs[r]
        cdef uint32_t k = i - run.first
        m.payload = self.payload(r, i)
        m.sender = sender
        m.view_id = self.view_id
        m.seqno = run.seqno
        m.index = run.index + k
        m.global_seqno = run.global_seqno + k if run.global_seqno else None
        m.sent_ns = run.sent_ns
        m.unicast = run.unicast != 0
        m.transitional = run.transitional != 0
        return m

    def messages(self, Py_ssize_t begin=0, end=None):
        """The messages with sender and position, as ``Message``, or those of a slice."""
        cdef list out = []
        cdef Py_ssize_t n = self.b.n - self.first
        cdef Py_ssize_t last = n if end is None else min(<Py_ssize_t>end, n)
        cdef uint32_t i = self.first + <uint32_t>max(begin, 0), r, stop = self.first + <uint32_t>max(last, 0)
        cdef const sc_run *run
        for r in range(self.b.n_runs):
            run = &self.b.runs[r]
            if run.first + run.n <= i:
                continue
            sender = self.sender_of(run)
            while i < min(run.first + run.n, stop):
                out.append(self.message(r, i, sender))
                i += 1
            if i >= stop:
                break
        return out

    cdef object next_message(self):
        """The message at the cursor. The cursor moves first: another thread may call while the message is made."""
        cdef uint32_t i = self.cursor, r = self.run
        self.cursor = i + 1
        if self.b.runs[r].first > i:
            r = 0
        while self.b.runs[r].first + self.b.runs[r].n <= i:
            r += 1
        sender = self.run_sender
        if r != self.run or sender is None:
            sender = self.sender_of(&self.b.runs[r])
            self.run = r
            self.run_sender = sender
        return self.message(r, i, sender)

    def _rest(self):
        cdef Batch rest = Batch.__new__(Batch)
        self.flatten()
        rest.b = self.b
        rest.whole = self
        rest.first = rest.cursor = self.cursor
        self.cursor = self.b.n
        rest.view = self.view
        rest.view_id = self.view_id
        rest.senders = self.senders
        rest.delivered_ns = self.delivered_ns
        return rest


cdef bint are_marks(const int32_t *offsets, uint32_t n, Py_ssize_t size) noexcept:
    """Do these offsets divide so many bytes into `n` messages?"""
    cdef uint32_t i
    for i in range(n):
        if offsets[i] > offsets[i + 1]:
            return False
    return offsets[0] == 0 and offsets[n] == size


cdef bint place_runs(sc_batch *b, uint32_t n_runs, uint32_t n) noexcept:
    """Makes the places of the runs, all in the batch's own memory; False: they do not hold `n` messages."""
    cdef uint32_t r, at = 0
    memset(b.places, 0, n_runs * sizeof(sc_place))
    for r in range(n_runs):
        if b.runs[r].first != at or b.runs[r].n > n - at:
            return False
        b.places[r].at, b.places[r].copied = at, b.runs[r].n
        at += b.runs[r].n
    return at == n


def _batch_of(view, bytes data, bytes offsets, bytes runs, uint64_t view_tag, int64_t delivered_ns):
    """A copy of a batch, for pickle."""
    cdef Batch batch = Batch.__new__(Batch)
    cdef sc_batch *b = &batch.b
    cdef uint32_t n = <uint32_t>max(0, len(offsets) // 4 - 1), n_runs = <uint32_t>(len(runs) // sizeof(sc_run))
    b.data = <uint8_t *>malloc(len(data) + 1)
    b.offsets = <int32_t *>malloc((n + 1) * sizeof(int32_t))
    b.runs = <sc_run *>malloc(len(runs) + 1)
    b.places = <sc_place *>malloc((n_runs + 1) * sizeof(sc_place))
    if b.data == NULL or b.offsets == NULL or b.runs == NULL or b.places == NULL:
        raise MemoryError()
    memcpy(b.data, <const char *>data, len(data))
    memcpy(b.offsets, <const char *>offsets, min(<size_t>len(offsets), (n + 1) * sizeof(int32_t)))
    memcpy(b.runs, <const char *>runs, n_runs * sizeof(sc_run))
    if len(offsets) != (n + 1) * 4 or not are_marks(b.offsets, n, len(data)) or not place_runs(b, n_runs, n):
        raise ValueError("this is not a batch")
    b.data_len, b.n, b.n_copied, b.n_runs, b.view_tag = len(data), n, n, n_runs, view_tag
    batch.delivered_ns = delivered_ns
    batch.view = view
    if view is not None:
        batch.view_id = view.view_id
    batch.senders = {} if view is None else {member.id: member for member in view.members}
    return batch
