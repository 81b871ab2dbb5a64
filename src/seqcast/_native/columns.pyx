"""Journal columns, compiled: rows of a journal from a batch of delivered messages, without the GIL."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t

cdef extern from "columns.h" nogil:
    ctypedef struct sc_run:
        uint32_t first
        uint32_t n
        uint32_t unicast
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
    ctypedef struct sc_columns_shared:
        int64_t view_counter
        int64_t view_tag
        int64_t delivered_ns
    uint64_t SC_HASH_SEED
    uint64_t sc_xxh64(const uint8_t *p, size_t len, uint64_t seed)
    int64_t sc_columns_fill(const sc_columns *out, uint64_t at, int64_t idx, const sc_columns_shared *shared,
                            const uint8_t *data, uint64_t data_len, const int32_t *offsets, uint32_t n,
                            const sc_run *runs, uint32_t n_runs)


def payload_hash(const uint8_t[::1] payload not None, seed=SC_HASH_SEED):
    """XXH64 of a payload as a signed 64-bit integer; equals Spark SQL's ``xxhash64(payload)``."""
    cdef uint64_t value = sc_xxh64(&payload[0] if payload.shape[0] else NULL, payload.shape[0], seed)
    return <int64_t>value


cdef const sc_run *_runs(const uint8_t[::1] runs, uint32_t *n) except? NULL:
    if runs.shape[0] % sizeof(sc_run):
        raise ValueError("runs is not an array of RUN_DTYPE")
    n[0] = <uint32_t>(runs.shape[0] // sizeof(sc_run))
    return <const sc_run *>&runs[0] if n[0] else NULL


def count(const uint8_t[::1] runs not None):
    """(multicast messages, unicast messages) of a batch. Give ``batch.runs.view(np.uint8)``."""
    cdef uint32_t n = 0, r
    cdef uint64_t multicast = 0, unicast = 0
    cdef const sc_run *run = _runs(runs, &n)
    with nogil:
        for r in range(n):
            if run[r].unicast:
                unicast += run[r].n
            else:
                multicast += run[r].n
    return multicast, unicast


cdef int64_t *_wide(dict columns, str name, uint64_t rows) except NULL:
    cdef int64_t[::1] column = columns[name]
    if <uint64_t>column.shape[0] < rows or rows == 0:
        raise ValueError(f"column {name} has room for {column.shape[0]} rows, {rows} are needed")
    return &column[0]


cdef int32_t *_narrow(dict columns, str name, uint64_t rows) except NULL:
    cdef int32_t[::1] column = columns[name]
    if <uint64_t>column.shape[0] < rows or rows == 0:
        raise ValueError(f"column {name} has room for {column.shape[0]} rows, {rows} are needed")
    return &column[0]


def fill(dict columns not None, uint64_t at, int64_t idx, const uint8_t[::1] data not None,
         const int32_t[::1] offsets not None, const uint8_t[::1] runs not None, *,
         int64_t view_counter, int64_t view_tag, int64_t delivered_ns):
    """Writes the rows of one batch into ``columns`` from row ``at`` on and returns how many; unicasts are skipped.

    Args:
        columns: name -> int64 (``index``, ``length``: int32) array with room for the rows.
        idx: journal position of the first row.
        data, offsets, runs: of the batch; ``runs`` as ``batch.runs.view(np.uint8)``.
        view_tag: tag of the view, its 64 bits as a signed integer.

    Raises:
        ValueError: a column is too short, or runs or offsets point outside the batch.
    """
    cdef uint32_t n_runs = 0
    cdef const sc_run *run = _runs(runs, &n_runs)
    cdef uint64_t multicast = count(runs)[0]
    if multicast == 0:
        return 0
    if offsets.shape[0] < 1:
        raise ValueError("a batch has at least one offset")
    cdef uint64_t rows = at + multicast
    cdef sc_columns out
    out.idx = _wide(columns, "idx", rows)
    out.view_counter = _wide(columns, "view_counter", rows)
    out.view_tag = _wide(columns, "view_tag", rows)
    out.global_seqno = _wide(columns, "global_seqno", rows)
    out.sender = _wide(columns, "sender", rows)
    out.seqno = _wide(columns, "seqno", rows)
    out.sent_ns = _wide(columns, "sent_ns", rows)
    out.delivered_ns = _wide(columns, "delivered_ns", rows)
    out.payload_hash = _wide(columns, "payload_hash", rows)
    out.index = _narrow(columns, "index", rows)
    out.length = _narrow(columns, "length", rows)
    cdef sc_columns_shared shared
    shared.view_counter, shared.view_tag, shared.delivered_ns = view_counter, view_tag, delivered_ns
    cdef const uint8_t *bytes_at = &data[0] if data.shape[0] else NULL
    cdef uint64_t data_len = data.shape[0]
    cdef uint32_t n = <uint32_t>(offsets.shape[0] - 1)
    cdef const int32_t *offset = &offsets[0]
    cdef int64_t written
    with nogil:
        written = sc_columns_fill(&out, at, idx, &shared, bytes_at, data_len, offset, n, run, n_runs)
    if written < 0:
        raise ValueError("runs or offsets of the batch point outside it")
    return written


@cython.boundscheck(False)
@cython.wraparound(False)
def hash_payloads(const uint8_t[::1] data not None, const int32_t[::1] offsets not None, int64_t[::1] out not None):
    """Writes the hash of each message of an Arrow binary array into ``out``, which has one element a message.

    Raises:
        ValueError: lengths that do not fit, or offsets that point outside ``data``.
    """
    cdef Py_ssize_t n = out.shape[0], i
    cdef int64_t begin, end, size = data.shape[0], bad = 0
    if offsets.shape[0] != n + 1:
        raise ValueError("offsets must have one element more than out")
    cdef const uint8_t *bytes_at = &data[0] if data.shape[0] else NULL
    with nogil:
        for i in range(n):
            begin, end = offsets[i], offsets[i + 1]
            if begin < 0 or end < begin or end > size:
                bad = 1
                break
            out[i] = <int64_t>sc_xxh64(bytes_at + begin, <size_t>(end - begin), SC_HASH_SEED)
    if bad:
        raise ValueError("offsets point outside the data")
