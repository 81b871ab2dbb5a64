"""Journal columns, compiled: rows of a journal from a batch of delivered messages, without the GIL."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t, uintptr_t
from libc.stdlib cimport free, malloc

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
        int64_t *payload_hash
        int32_t *index
        int32_t *length
        int32_t *offsets
        uint8_t *payload
    ctypedef struct sc_columns_shared:
        int64_t view_counter
        int64_t view_tag
        int64_t delivered_ns
    int64_t sc_columns_fill(const sc_columns *out, uint64_t at, uint64_t room, int64_t idx,
                            const sc_columns_shared *shared, const uint8_t *data, uint64_t data_len,
                            const int32_t *offsets, uint32_t n, const sc_run *runs, uint32_t n_runs)


cdef extern from "columns/xxh3.h" nogil:
    uint64_t sc_xxh3(const uint8_t *p, size_t len)
    uint64_t sc_xxh3_plain(const uint8_t *p, size_t len)


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


cdef class Block:
    """Journal rows, gathered until they are written as one Arrow batch. See columns.pyi."""

    cdef sc_columns to
    cdef uint64_t *memory
    cdef readonly Py_ssize_t capacity, payload_capacity, rows, payload_bytes

    def __cinit__(self, Py_ssize_t capacity, Py_ssize_t payload_capacity=-1):
        if not 0 < capacity < 1 << 31 or payload_capacity >= 1 << 31:
            raise ValueError(f"a block has 1 to 2^31 rows and bytes, not {capacity} and {payload_capacity}")
        # Columns must not start a power of two apart, or the rows of all would contend for the same cache lines.
        cdef Py_ssize_t stride = (capacity + 7) // 8 * 8 + 8
        self.capacity, self.payload_capacity = capacity, payload_capacity
        self.memory = <uint64_t *>malloc(<size_t>(12 * stride) * 8)
        if payload_capacity >= 0:
            self.to.payload = <uint8_t *>malloc(<size_t>max(1, payload_capacity))
        if self.memory == NULL or (payload_capacity >= 0 and self.to.payload == NULL):
            raise MemoryError(f"no memory for {capacity} rows of a journal")
        cdef uint64_t *at = self.memory
        self.to.idx = <int64_t *>at
        self.to.view_counter = <int64_t *>(at + stride)
        self.to.view_tag = <int64_t *>(at + 2 * stride)
        self.to.global_seqno = <int64_t *>(at + 3 * stride)
        self.to.sender = <int64_t *>(at + 4 * stride)
        self.to.seqno = <int64_t *>(at + 5 * stride)
        self.to.sent_ns = <int64_t *>(at + 6 * stride)
        self.to.delivered_ns = <int64_t *>(at + 7 * stride)
        self.to.payload_hash = <int64_t *>(at + 8 * stride)
        self.to.index = <int32_t *>(at + 9 * stride)
        self.to.length = <int32_t *>(at + 10 * stride)
        self.to.offsets = <int32_t *>(at + 11 * stride)
        self.to.offsets[0] = 0

    def __dealloc__(self):
        free(self.memory)
        free(self.to.payload)

    def add(self, batch, *, int64_t idx, int64_t view_counter, int64_t view_tag):
        cdef Batch own
        if isinstance(batch, Batch) and not (<Batch>batch).first:  # no arrays: making them takes longer than the rows
            own = batch
            return self.take(own.b.data, own.b.data_len, own.b.offsets, own.b.n, own.b.runs, own.b.n_runs, idx,
                             view_counter, view_tag, own.delivered_ns)
        cdef const uint8_t[::1] data = batch.data
        cdef const int32_t[::1] offsets = batch.offsets
        cdef const uint8_t[::1] runs = batch.runs.view(np.uint8)
        if not offsets.shape[0] or runs.shape[0] % <Py_ssize_t>sizeof(sc_run):
            raise ValueError("a batch needs at least one offset, and runs of RUN_DTYPE")
        return self.take(&data[0] if data.shape[0] else NULL, <uint64_t>data.shape[0], &offsets[0],
                         <uint32_t>(offsets.shape[0] - 1), <const sc_run *>&runs[0] if runs.shape[0] else NULL,
                         <uint32_t>(runs.shape[0] // <Py_ssize_t>sizeof(sc_run)), idx, view_counter, view_tag,
                         batch.delivered_ns)

    cdef Py_ssize_t take(self, const uint8_t *data, uint64_t data_len, const int32_t *offsets, uint32_t n,
                         const sc_run *runs, uint32_t n_runs, int64_t idx, int64_t view_counter, int64_t view_tag,
                         int64_t delivered_ns) except -2:
        if n > self.capacity - self.rows:
            return -1
        if self.to.payload != NULL and data_len > <uint64_t>(self.payload_capacity - self.payload_bytes):
            return -1
        cdef sc_columns_shared shared
        shared.view_counter, shared.view_tag, shared.delivered_ns = view_counter, view_tag, delivered_ns
        cdef int64_t written
        with nogil:
            written = sc_columns_fill(&self.to, <uint64_t>self.rows, <uint64_t>(self.capacity - self.rows), idx,
                                      &shared, data, data_len, offsets, n, runs, n_runs)
        if written < 0:
            raise ValueError("the batch's runs or offsets point outside it")
        self.rows += written
        if self.to.payload != NULL:
            self.payload_bytes = self.to.offsets[self.rows]
        return written

    def address(self, str column):
        cdef dict places = {
            "idx": <uintptr_t>self.to.idx, "view_counter": <uintptr_t>self.to.view_counter,
            "view_tag": <uintptr_t>self.to.view_tag, "global_seqno": <uintptr_t>self.to.global_seqno,
            "sender": <uintptr_t>self.to.sender, "seqno": <uintptr_t>self.to.seqno, "index": <uintptr_t>self.to.index,
            "length": <uintptr_t>self.to.length, "sent_ns": <uintptr_t>self.to.sent_ns,
            "delivered_ns": <uintptr_t>self.to.delivered_ns, "payload_hash": <uintptr_t>self.to.payload_hash,
            "offsets": <uintptr_t>self.to.offsets, "payload": <uintptr_t>self.to.payload,
        }
        return places[column]

    @property
    def last_global_seqno(self):
        return self.to.global_seqno[self.rows - 1] if self.rows else 0

    def clear(self):
        self.rows = self.payload_bytes = 0


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
