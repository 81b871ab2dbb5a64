"""Journal columns, compiled: the journaled fields of a batch of delivered messages, without the GIL."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from seqcast._native.engine cimport Batch, sc_run

import numpy as np

cdef extern from "columns/columns.h" nogil:
    ctypedef struct sc_columns:
        int64_t *idx
        int64_t *view_counter
        int64_t *view_tag
        int64_t *global_seqno
        int64_t *sender
        int64_t *seqno
        int64_t *sent_ns
        int64_t *delivered_ns
        int32_t *index
        uint8_t *transitional
        int32_t *starts
        int64_t *payload_hash
        int32_t *length
        int32_t *offsets
        uint8_t *payload
    ctypedef struct sc_columns_size:
        uint64_t runs, messages
    ctypedef struct sc_columns_shared:
        int64_t view_counter
        int64_t view_tag
        int64_t delivered_ns
        int total
    enum: SC_COLUMNS_FULL
    int sc_columns_fill(const sc_columns *out, sc_columns_size room, sc_columns_size *used, int64_t idx,
                        const sc_columns_shared *shared, const uint8_t *data, uint64_t data_len,
                        const int32_t *offsets, uint32_t n, const sc_run *runs, uint32_t n_runs)
    ctypedef struct sc_columns_clock:
        int64_t sender, least_ns
    size_t sc_columns_clocks(const sc_columns *of, uint64_t runs, sc_columns_clock *found, size_t room)


cdef extern from "columns/xxh3.h" nogil:
    uint64_t sc_xxh3(const uint8_t *p, size_t len)
    uint64_t sc_xxh3_plain(const uint8_t *p, size_t len)
    ctypedef struct sc_xxh3_state:
        pass
    void sc_xxh3_begin(sc_xxh3_state *s)
    void sc_xxh3_add(sc_xxh3_state *s, const uint8_t *p, size_t len)
    uint64_t sc_xxh3_end(const sc_xxh3_state *s)


cdef extern from "columns/scan.h" nogil:
    enum: SC_SCAN_EXAMPLES
    ctypedef struct sc_scan_example:
        int64_t idx
        int64_t before
        int64_t value
        int32_t before_index
        int32_t value_index
    ctypedef struct sc_scan_found:
        uint64_t count
        sc_scan_example first[8]
    ctypedef struct sc_scan_view:
        int64_t tag, idx, rows, first, highest, zeros, counter_min, counter_max, transitional
        sc_scan_found back, jumps, decided
    ctypedef struct sc_scan_sender:
        int64_t key[3]
        int64_t idx, rows, first, highest
        int32_t first_index, highest_index
        sc_scan_found back, jumps
    ctypedef struct sc_scan_group:
        int64_t key[3]
        int64_t rows, global_seqno, seqno, low, decided
        uint64_t sum
    ctypedef struct sc_scan_table:
        uint8_t *entries
        size_t n
    ctypedef struct sc_scan_columns:
        const int64_t *idx
        const int64_t *view_counter
        const int64_t *view_tag
        const int64_t *global_seqno
        const int64_t *sender
        const int64_t *seqno
        const int64_t *payload_hash
        const int32_t *index
        const int32_t *length
        const uint8_t *transitional
    ctypedef struct sc_scan:
        int64_t rows, first_idx, last_idx
        sc_scan_found breaks
        sc_scan_view *views
        size_t n_views
        sc_scan_table senders, groups
    void sc_scan_begin(sc_scan *scan)
    int sc_scan_rows(sc_scan *scan, const sc_scan_columns *columns, size_t n)
    void sc_scan_end(sc_scan *scan)


DEF RELEASE_BYTES = 65536  # from this size on the work takes longer than releasing and retaking the GIL


def payload_hash(const uint8_t[::1] payload not None, *, bint plain=False):
    cdef const uint8_t *p = &payload[0] if payload.shape[0] else NULL
    cdef size_t n = payload.shape[0]
    cdef uint64_t found
    if n < RELEASE_BYTES:
        return <int64_t>(sc_xxh3_plain(p, n) if plain else sc_xxh3(p, n))
    with nogil:
        found = sc_xxh3_plain(p, n) if plain else sc_xxh3(p, n)
    return <int64_t>found


@cython.final
cdef class Hash:
    """XXH3 of data in pieces. See columns.pyi."""

    cdef sc_xxh3_state state

    def __cinit__(self):
        sc_xxh3_begin(&self.state)

    def add(self, const uint8_t[::1] piece not None):
        if not piece.shape[0]:
            return
        cdef const uint8_t *p = &piece[0]
        cdef size_t n = piece.shape[0]
        with nogil:
            sc_xxh3_add(&self.state, p, n)

    @property
    def value(self):
        return <int64_t>sc_xxh3_end(&self.state)


RUN_BYTES, MESSAGE_BYTES = 8 * 8 + 2 * 4, 8 + 4  # bytes of a run and of a message in the columns; rounded


cdef class Block:
    """The journaled fields of messages, gathered until they are written as one Arrow batch. See columns.pyi."""

    cdef sc_columns to
    cdef sc_columns_size limit, used
    cdef uint8_t *memory
    cdef readonly Py_ssize_t payload_capacity, payload_bytes

    def __cinit__(self, Py_ssize_t runs, Py_ssize_t messages, Py_ssize_t payload_capacity=-1):
        if not (0 < runs < 1 << 31 and 0 < messages < 1 << 31 and payload_capacity < 1 << 31):
            raise ValueError(
                f"a block has 1 to 2^31 runs, messages and bytes, not {runs}, {messages} and {payload_capacity}")
        # Columns must not start a power of two apart, or the columns of a run would contend for the same cache lines.
        cdef size_t of_run = <size_t>((runs + 8) // 8 * 8 + 8) * 8
        cdef size_t of_message = <size_t>((messages + 8) // 8 * 8 + 8) * 8
        self.limit.runs, self.limit.messages, self.payload_capacity = runs, messages, payload_capacity
        self.memory = <uint8_t *>malloc(9 * of_run + of_run // 2 + 2 * of_message)
        if payload_capacity >= 0:
            self.to.payload = <uint8_t *>malloc(<size_t>max(1, payload_capacity))
        if self.memory == NULL or (payload_capacity >= 0 and self.to.payload == NULL):
            raise MemoryError(f"no memory for {messages} messages of a journal")
        cdef uint8_t *at = self.memory
        self.to.idx = <int64_t *>at
        self.to.view_counter = <int64_t *>(at + of_run)
        self.to.view_tag = <int64_t *>(at + 2 * of_run)
        self.to.global_seqno = <int64_t *>(at + 3 * of_run)
        self.to.sender = <int64_t *>(at + 4 * of_run)
        self.to.seqno = <int64_t *>(at + 5 * of_run)
        self.to.sent_ns = <int64_t *>(at + 6 * of_run)
        self.to.delivered_ns = <int64_t *>(at + 7 * of_run)
        self.to.index = <int32_t *>(at + 8 * of_run)
        self.to.starts = <int32_t *>(at + 8 * of_run + of_run // 2)
        self.to.transitional = at + 9 * of_run
        at += 9 * of_run + of_run // 2
        self.to.payload_hash = <int64_t *>at
        self.to.length = <int32_t *>(at + of_message)
        self.to.offsets = <int32_t *>(at + of_message + of_message // 2)
        self.to.starts[0] = self.to.offsets[0] = 0

    def __dealloc__(self):
        free(self.memory)
        free(self.to.payload)

    @property
    def room(self):
        return self.limit.runs, self.limit.messages, self.payload_capacity

    @property
    def runs(self):
        return self.used.runs

    @property
    def messages(self):
        return self.used.messages

    @property
    def nbytes(self):
        return RUN_BYTES * self.used.runs + MESSAGE_BYTES * self.used.messages + self.payload_bytes

    def add(self, batch, *, int64_t idx, int64_t view_counter, int64_t view_tag, bint total=False):
        cdef Batch own
        if isinstance(batch, Batch) and not (<Batch>batch).first:  # no arrays: making them takes longer than the rows
            own = batch
            own.flatten()
            return self.take(own.b.data, own.b.data_len, own.b.offsets, own.b.n, own.b.runs, own.b.n_runs, idx,
                             view_counter, view_tag, own.delivered_ns, total)
        cdef const uint8_t[::1] data = batch.data
        cdef const int32_t[::1] offsets = batch.offsets
        cdef const uint8_t[::1] runs = batch.runs.view(np.uint8)
        if not offsets.shape[0] or runs.shape[0] % <Py_ssize_t>sizeof(sc_run):
            raise ValueError("a batch needs at least one offset, and runs of RUN_DTYPE")
        return self.take(&data[0] if data.shape[0] else NULL, <uint64_t>data.shape[0], &offsets[0],
                         <uint32_t>(offsets.shape[0] - 1), <const sc_run *>&runs[0] if runs.shape[0] else NULL,
                         <uint32_t>(runs.shape[0] // <Py_ssize_t>sizeof(sc_run)), idx, view_counter, view_tag,
                         batch.delivered_ns, total)

    cdef Py_ssize_t take(self, const uint8_t *data, uint64_t data_len, const int32_t *offsets, uint32_t n,
                         const sc_run *runs, uint32_t n_runs, int64_t idx, int64_t view_counter, int64_t view_tag,
                         int64_t delivered_ns, bint total) except -2:
        if n > self.limit.messages - self.used.messages:
            return -1
        if self.to.payload != NULL and data_len > <uint64_t>(self.payload_capacity - self.payload_bytes):
            return -1
        cdef sc_columns_shared shared
        shared.view_counter, shared.view_tag, shared.delivered_ns = view_counter, view_tag, delivered_ns
        shared.total = total
        cdef uint64_t before = self.used.messages
        cdef int failed
        with nogil:
            failed = sc_columns_fill(&self.to, self.limit, &self.used, idx, &shared, data, data_len, offsets, n, runs,
                                     n_runs)
        if failed == SC_COLUMNS_FULL and before:
            return -1
        if failed:
            raise ValueError("the batch's runs or offsets point outside it")
        if self.to.payload != NULL:
            self.payload_bytes = self.to.offsets[self.used.messages]
        return <Py_ssize_t>(self.used.messages - before)

    def address(self, str column):
        cdef dict places = {
            "idx": <uintptr_t>self.to.idx, "view_counter": <uintptr_t>self.to.view_counter,
            "view_tag": <uintptr_t>self.to.view_tag, "global_seqno": <uintptr_t>self.to.global_seqno,
            "sender": <uintptr_t>self.to.sender, "seqno": <uintptr_t>self.to.seqno, "index": <uintptr_t>self.to.index,
            "sent_ns": <uintptr_t>self.to.sent_ns, "delivered_ns": <uintptr_t>self.to.delivered_ns,
            "transitional": <uintptr_t>self.to.transitional, "starts": <uintptr_t>self.to.starts,
            "length": <uintptr_t>self.to.length, "payload_hash": <uintptr_t>self.to.payload_hash,
            "offsets": <uintptr_t>self.to.offsets, "payload": <uintptr_t>self.to.payload,
        }
        return places[column]

    @property
    def last_global_seqno(self):
        cdef uint64_t last = self.used.runs - 1
        if not self.used.runs or not self.to.global_seqno[last]:
            return 0
        return self.to.global_seqno[last] + self.to.starts[last + 1] - self.to.starts[last] - 1

    def clocks(self):
        cdef sc_columns_clock found[128]  # a view has at most as many members
        cdef size_t n, i
        with nogil:
            n = sc_columns_clocks(&self.to, self.used.runs, found, 128)
        return {found[i].sender: found[i].least_ns for i in range(n)}

    def clear(self):
        self.used.runs = self.used.messages = 0
        self.payload_bytes = 0


ctypedef fused of_runs:
    int32_t
    int64_t


@cython.boundscheck(False)
@cython.wraparound(False)
def spread(const of_runs[::1] values not None, const int32_t[::1] starts not None, *, bint counting=False,
           bint zeros=False):
    cdef Py_ssize_t runs = values.shape[0], run
    if starts.shape[0] != runs + 1:
        raise ValueError("starts must have one more element than values")
    for run in range(runs):
        if starts[run + 1] < starts[run]:
            raise ValueError("starts must not fall")
    if starts[0]:
        raise ValueError("starts must begin with 0")
    made = np.empty(starts[runs], np.int32 if of_runs is int32_t else np.int64)
    cdef of_runs[::1] out = made
    cdef of_runs value, step
    cdef int32_t at
    with nogil:
        for run in range(runs):
            value = values[run]
            step = counting and (value != 0 or not zeros)
            for at in range(starts[run], starts[run + 1]):
                out[at] = value + step * (at - starts[run])
    return made


@cython.boundscheck(False)
@cython.wraparound(False)
def texts(const int64_t[::1] keys not None, dict known not None):
    order = sorted(known)
    spelled = [known[key].encode() for key in order]
    cdef const int64_t[::1] sorted_keys = np.array(order, np.int64)
    cdef const int64_t[::1] begins = np.cumsum([0, *map(len, spelled)], dtype=np.int64)
    cdef const uint8_t[::1] letters = np.frombuffer(b"".join(spelled) + b"\0", np.uint8)
    cdef Py_ssize_t n = keys.shape[0], row, low = 0, high, middle
    offsets, places = np.zeros(n + 1, np.int32), np.empty(n, np.int32)
    cdef int32_t[::1] ends = offsets, place = places
    cdef int64_t total = 0
    for row in range(n):
        if not row or keys[row] != keys[row - 1]:
            low, high = 0, sorted_keys.shape[0]
            while low < high:
                middle = (low + high) >> 1
                if sorted_keys[middle] < keys[row]:
                    low = middle + 1
                else:
                    high = middle
            if low == sorted_keys.shape[0] or sorted_keys[low] != keys[row]:
                raise KeyError(keys[row])
        total += begins[low + 1] - begins[low]
        if total > 0x7FFFFFFF:
            raise ValueError("the texts together are longer than 2 GiB")
        ends[row + 1], place[row] = <int32_t>total, <int32_t>low
    made = np.empty(total + 1, np.uint8)
    cdef uint8_t[::1] out = made
    for row in range(n):
        low = place[row]
        memcpy(&out[ends[row]], &letters[begins[low]], <size_t>(begins[low + 1] - begins[low]))
    return offsets, made


@cython.boundscheck(False)
@cython.wraparound(False)
def hash_payloads(const uint8_t[::1] data not None, const int32_t[::1] offsets not None, int64_t[::1] out not None):
    """Writes the hash of each message of an Arrow binary array into ``out``, which has one element per message.

    Raises:
        ValueError: mismatched lengths, or offsets that point outside ``data``.
    """
    cdef Py_ssize_t n = out.shape[0], i
    cdef int64_t begin, end, size = data.shape[0], bad = 0
    if offsets.shape[0] != n + 1:
        raise ValueError("offsets must have one more element than out")
    cdef const uint8_t *bytes_at = &data[0] if data.shape[0] else NULL
    with nogil:
        for i in range(n):
            begin, end = offsets[i], offsets[i + 1]
            if begin < 0 or end < begin or end > size:
                bad = 1
                break
            out[i] = <int64_t>sc_xxh3(bytes_at + begin, <size_t>(end - begin))
    if bad:
        raise ValueError("offsets point outside the data")


cdef tuple _found(const sc_scan_found *found):
    cdef size_t i
    first = []
    for i in range(min(found.count, <uint64_t>SC_SCAN_EXAMPLES)):
        first.append((found.first[i].idx, (found.first[i].before, found.first[i].before_index),
                      (found.first[i].value, found.first[i].value_index)))
    return found.count, first


cdef class Scan:
    """Scans a journal's rows for the audit. See columns.pyi."""

    cdef sc_scan scan

    def __cinit__(self):
        sc_scan_begin(&self.scan)

    def __dealloc__(self):
        sc_scan_end(&self.scan)

    def add(self, *, const int64_t[::1] idx not None, const int64_t[::1] view_counter not None,
            const int64_t[::1] view_tag not None, const int64_t[::1] global_seqno not None,
            const int64_t[::1] sender not None, const int64_t[::1] seqno not None,
            const int64_t[::1] payload_hash not None, const int32_t[::1] index not None,
            const int32_t[::1] length not None, const uint8_t[::1] transitional not None):
        cdef Py_ssize_t n = idx.shape[0]
        lengths = {n, view_counter.shape[0], view_tag.shape[0], global_seqno.shape[0], sender.shape[0], seqno.shape[0],
                   payload_hash.shape[0], index.shape[0], length.shape[0], transitional.shape[0]}
        if len(lengths) > 1:
            raise ValueError("the columns must have the same length")
        if not n:
            return
        cdef sc_scan_columns of
        of.idx, of.view_counter = &idx[0], &view_counter[0]
        of.view_tag, of.global_seqno = &view_tag[0], &global_seqno[0]
        of.sender, of.seqno, of.payload_hash, of.index, of.length, of.transitional = (
            &sender[0], &seqno[0], &payload_hash[0], &index[0], &length[0], &transitional[0])
        cdef int failed
        with nogil:
            failed = sc_scan_rows(&self.scan, &of, <size_t>n)
        if failed:
            raise MemoryError("no memory for the views, senders and buckets of a journal")

    @property
    def rows(self):
        return self.scan.rows

    @property
    def ends(self):
        return self.scan.first_idx, self.scan.last_idx

    @property
    def breaks(self):
        return _found(&self.scan.breaks)

    def views(self):
        cdef sc_scan_view *view
        cdef size_t i
        found = []
        for i in range(self.scan.n_views):
            view = &self.scan.views[i]
            found.append((view.tag, view.idx, view.rows, view.first, view.highest, view.zeros,
                          (view.counter_min, view.counter_max), view.transitional,
                          _found(&view.back), _found(&view.jumps), _found(&view.decided)))
        return found

    def senders(self):
        cdef sc_scan_sender *sender
        cdef size_t i
        found = []
        for i in range(self.scan.senders.n):
            sender = &(<sc_scan_sender *>self.scan.senders.entries)[i]
            found.append((sender.key[0], sender.idx, sender.rows, (sender.first, sender.first_index),
                          (sender.highest, sender.highest_index), _found(&sender.back), _found(&sender.jumps)))
        return found

    def groups(self):
        cdef sc_scan_group *group
        cdef size_t i
        found = []
        for i in range(self.scan.groups.n):
            group = &(<sc_scan_group *>self.scan.groups.entries)[i]
            found.append(((group.key[0], group.key[1], group.key[2]),
                          (group.rows, group.global_seqno, group.seqno, group.low, group.sum, group.decided)))
        return found
