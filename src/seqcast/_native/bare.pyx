# cython: freethreading_compatible = True
"""The bare C baselines of ``seqcast perf``, the numbers of its messages, and the CRC kernel for tests and benchmarks.

Each of send, receive, ping and pong is one process of a run; they share ``SHARED_BYTES`` of zeroed memory. They block
without the GIL until the run is over. See native/bare/bare.h.
"""

import os

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport calloc, free

from libc.string cimport memcmp, memcpy

from seqcast._native.engine cimport Batch, sc_place, sc_wholes
from seqcast.embed cimport (
    SEQCAST_ENDED, SEQCAST_FAILED, SEQCAST_OK, seqcast_import, seqcast_item, seqcast_member, seqcast_message,
    seqcast_table,
)

from seqcast.errors import SeqcastError


cdef extern from "io/port.h" nogil:
    int64_t sc_now()


cdef extern from "hash/crc32c.h" nogil:
    ctypedef struct sc_crc32c_kernel:
        const char *name
        uint32_t (*sum)(uint32_t crc, const void *p, size_t len)
    const sc_crc32c_kernel *sc_crc32c_kernels(int *n)


cdef extern from "bare/bare.h" nogil:
    const int SC_BARE_READY_AT
    const int SC_BARE_SHARED_BYTES
    const int SC_BARE_RECEIVERS_MAX
    const int SC_BARE_UNSUPPORTED

    ctypedef struct sc_bare_config:
        const char *group
        const char **to
        const char *interface_address
        uint16_t port
        int limit
        int apart
        uint32_t packet_bytes
        uint32_t segments
        int gro
        uint32_t message_bytes
        uint32_t receivers
        uint64_t window_bytes
        uint64_t ring_bytes
        uint32_t socket_bytes

    ctypedef struct sc_bare_result:
        int64_t elapsed_ns
        uint64_t bytes
        uint64_t sent
        uint64_t lost
        uint64_t corrupt
        const char *failed

    int sc_bare_send(const sc_bare_config *config, void *shared, int64_t warm_ns, int64_t measure_ns,
                     sc_bare_result *out)
    int sc_bare_receive(const sc_bare_config *config, void *shared, uint32_t index, sc_bare_result *out)
    int sc_bare_ping(const sc_bare_config *config, void *shared, int spin, uint32_t warm_rounds, uint32_t rounds,
                     int64_t *round_trips_ns, sc_bare_result *out)
    int sc_bare_pong(const sc_bare_config *config, void *shared, int spin, sc_bare_result *out)


cdef extern from "bare/numbers.h" nogil:
    const unsigned SC_NUMBER_BITS
    const size_t SC_NUMBER_BYTES
    const unsigned SC_NUMBER_SENDERS

    void sc_numbers_write(uint8_t *data, size_t size, size_t n, uint64_t first)
    uint64_t sc_numbers_check(const uint8_t *data, const int32_t *offsets, size_t n, size_t size, uint64_t *next)
    uint64_t sc_numbers_check_packet(
        const uint8_t *data, const sc_wholes *wholes, size_t n, size_t size, uint64_t *next
    )
    uint64_t sc_numbers_check_one(const uint8_t *data, size_t len, size_t size, uint64_t *next)


SHARED_BYTES = SC_BARE_SHARED_BYTES
READY_AT = SC_BARE_READY_AT
READY_STRIDE = 64
RECEIVERS_MAX = SC_BARE_RECEIVERS_MAX


def crc32c(const uint8_t[::1] data, uint32_t crc=0, int kernel=0):
    """CRC32C of ``data``, continuing from ``crc``, by the kernel with this index in ``crc32c_kernels()``."""
    cdef size_t size = data.shape[0]
    cdef int n
    cdef const sc_crc32c_kernel *kernels = sc_crc32c_kernels(&n)
    if kernel < 0 or kernel >= n:
        raise ValueError(f"this processor has kernels 0 to {n - 1}")
    return kernels[kernel].sum(crc, &data[0] if size else NULL, size)


def crc32c_kernels():
    """Names of the kernels that this processor can run: the one in use first, then slower ones, "table" last."""
    cdef int i, n
    cdef const sc_crc32c_kernel *kernels = sc_crc32c_kernels(&n)
    return [kernels[i].name.decode() for i in range(n)]


cdef class Settings:
    """Settings shared by all processes of a run; fields as in sc_bare_config."""

    cdef sc_bare_config c
    cdef bytes group, interface
    cdef list to

    def __init__(
        self, *, str group, str interface, int port, bint limit=False, bint apart=False, packet_bytes=1472, segments=1,
        bint gro=False, message_bytes=1024, receivers=1, window_bytes=2 << 20, ring_bytes=8 << 20,
        socket_bytes=4 << 20, to=(),
    ):
        if len(to) > SC_BARE_RECEIVERS_MAX:
            raise ValueError(f"at most {SC_BARE_RECEIVERS_MAX} receivers")
        self.group = group.encode()
        self.interface = interface.encode()
        self.to = [address.encode() for address in to]
        for at, address in enumerate(self.to):
            self.c.to[at] = address
        self.c.group = self.group
        self.c.interface_address = self.interface
        self.c.port = port
        self.c.limit = limit
        self.c.apart = apart
        self.c.packet_bytes = packet_bytes
        self.c.segments = segments
        self.c.gro = gro
        self.c.message_bytes = message_bytes
        self.c.receivers = receivers
        self.c.window_bytes = window_bytes
        self.c.ring_bytes = ring_bytes
        self.c.socket_bytes = socket_bytes


cdef check(int status, const sc_bare_result *result):
    if status == SC_BARE_UNSUPPORTED:
        raise NotImplementedError("the bare C baselines need Linux")
    if status:
        raise OSError(-status, f"{result.failed.decode()}: {os.strerror(-status)}")
    return {
        "elapsed_ns": result.elapsed_ns, "bytes": result.bytes, "sent": result.sent, "lost": result.lost,
        "corrupt": result.corrupt,
    }


cdef void *area(uint8_t[::1] shared) except NULL:
    if shared.shape[0] < SC_BARE_SHARED_BYTES:
        raise ValueError(f"shared memory of {SC_BARE_SHARED_BYTES} bytes is needed, this has {shared.shape[0]}")
    return &shared[0]


def send(Settings settings, uint8_t[::1] shared, *, int64_t warm_ns, int64_t measure_ns):
    """The sender: waits for the receivers, then sends; counts the messages that reach the slowest receiver in
    ``measure_ns``.

    Raises:
        OSError: naming the system call.
        NotImplementedError: not on Linux.
    """
    cdef sc_bare_result result
    cdef void *p = area(shared)
    with nogil:
        status = sc_bare_send(&settings.c, p, warm_ns, measure_ns, &result)
    return check(status, &result)


def receive(Settings settings, uint8_t[::1] shared, *, uint32_t index):
    """Receiver number ``index`` (from 0); returns when the sender is done. Raises as ``send``."""
    cdef sc_bare_result result
    cdef void *p = area(shared)
    with nogil:
        status = sc_bare_receive(&settings.c, p, index, &result)
    return check(status, &result)


def ping(Settings settings, uint8_t[::1] shared, *, bint spin, uint32_t warm_rounds, uint32_t rounds):
    """Round trips in ns, as an int64 array. Raises as ``send``."""
    cdef sc_bare_result result
    cdef void *p = area(shared)
    round_trips = np.zeros(max(rounds, 1), dtype=np.int64)
    cdef int64_t[::1] out = round_trips
    with nogil:
        status = sc_bare_ping(&settings.c, p, spin, warm_rounds, rounds, &out[0], &result)
    check(status, &result)
    return round_trips[:rounds]


def pong(Settings settings, uint8_t[::1] shared, *, bint spin):
    """Answers pings until the other side is done. Raises as ``send``."""
    cdef sc_bare_result result
    cdef void *p = area(shared)
    with nogil:
        status = sc_bare_pong(&settings.c, p, spin, &result)
    check(status, &result)


# ---- a ping-pong of two members, by the table of functions for programs in C (seqcast/embed.h) -----------------------

cdef int64_t PATIENCE_NS = 30_000_000_000


cdef int check_table(const seqcast_table *table, seqcast_member *member, int code, group) except -1:
    if code == SEQCAST_OK:
        return 0
    cdef const char *text = table.error(member)
    why = text.decode() if text != NULL else "no answer in time, or a wrong one"
    raise SeqcastError(f"the table of functions returned {code}: {why}; {group.view}")


cdef int next_message(const seqcast_table *table, seqcast_member *member, seqcast_item **item,
                      const seqcast_message **message) noexcept nogil:
    """Waits for the next message, which has an item of its own."""
    cdef int code
    while True:
        code = table.poll(member, 1 << 16, PATIENCE_NS, item)
        if code != SEQCAST_OK:
            return code
        message[0] = table.next(item[0])
        if message[0] != NULL:
            return SEQCAST_OK
        table.give_back(member, item[0])


cdef int one_trip(const seqcast_table *table, seqcast_member *member, const uint8_t *p, size_t n) noexcept nogil:
    cdef seqcast_item *item
    cdef const seqcast_message *answer = NULL
    cdef int code = table.send(member, 0, 0, p, n, -1)
    while code == SEQCAST_OK:
        code = next_message(table, member, &item, &answer)
        if code == SEQCAST_OK and (answer.len != n or memcmp(answer.data, p, n)):
            code = SEQCAST_FAILED
        if code == SEQCAST_OK:
            return table.give_back(member, item)
    return code


def table_ping(group, *, size_t size, uint32_t warm_rounds, uint32_t rounds):
    """Asks, and takes the answers: round trips in ns, as an int64 array.

    Raises:
        SeqcastError: no answer came, or a wrong one.
    """
    cdef const seqcast_table *table = seqcast_import()
    cdef seqcast_member *member = table.open(group)
    cdef uint64_t round_, all_rounds = <uint64_t>warm_rounds + rounds
    cdef int64_t start = 0
    cdef int code = SEQCAST_OK
    ping = bytearray(max(size, sizeof(round_)))
    cdef uint8_t[::1] p = ping
    round_trips = np.zeros(max(rounds, 1), dtype=np.int64)
    cdef int64_t[::1] out = round_trips
    try:
        with nogil:
            for round_ in range(all_rounds):
                memcpy(&p[0], &round_, sizeof(round_))
                start = sc_now()
                code = one_trip(table, member, &p[0], size)
                if code != SEQCAST_OK:
                    break
                if round_ >= warm_rounds:
                    out[round_ - warm_rounds] = sc_now() - start
        check_table(table, member, code, group)
    finally:
        table.close(member)
    return round_trips[:rounds]


def table_pong(group):
    """Answers until the member leaves. Raises as ``table_ping``."""
    cdef const seqcast_table *table = seqcast_import()
    cdef seqcast_member *member = table.open(group)
    cdef seqcast_item *item
    cdef const seqcast_message *question = NULL
    cdef int code = SEQCAST_OK
    try:
        with nogil:
            while code == SEQCAST_OK:
                code = next_message(table, member, &item, &question)
                if code == SEQCAST_OK:
                    code = table.send(member, 0, 0, question.data, question.len, -1)
                    table.give_back(member, item)
        if code != SEQCAST_ENDED:
            check_table(table, member, code, group)
    finally:
        table.close(member)


cdef class Numbers:
    """Numbers the messages of one sender of a measurement.

    Args:
        data: the messages, each of ``size`` bytes, of which the first 8 are for the sender and the number.
        size: bytes.
        sender: below 65,536.
    """

    cdef uint8_t[::1] data
    cdef size_t size
    cdef uint64_t sender

    def __cinit__(self, uint8_t[::1] data not None, size_t size, unsigned sender):
        if size < SC_NUMBER_BYTES or sender >= SC_NUMBER_SENDERS:
            raise ValueError(f"messages need {SC_NUMBER_BYTES} bytes, and a sender below {SC_NUMBER_SENDERS}")
        self.data = data
        self.size = size
        self.sender = <uint64_t>sender << SC_NUMBER_BITS

    def write(self, uint64_t first):
        """Writes the numbers from ``first`` on."""
        cdef size_t n = self.data.shape[0] // self.size
        if n:
            sc_numbers_write(&self.data[0], self.size, n, self.sender + first)


cdef class Check:
    """Checks the messages of all senders, each of ``size`` bytes, as a receiver is delivered them."""

    cdef size_t size
    cdef uint64_t *next
    cdef readonly uint64_t count, wrong

    def __cinit__(self, size_t size):
        if size < SC_NUMBER_BYTES:
            raise ValueError(f"messages need {SC_NUMBER_BYTES} bytes")
        self.size = size
        self.next = <uint64_t *>calloc(SC_NUMBER_SENDERS, sizeof(uint64_t))
        if self.next == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.next)

    def take(self, Batch batch):
        """Counts the messages of a batch, and those that have another size or are not the next of their sender. Returns
        how many there are; ``None``: no batch came."""
        cdef size_t n = 0 if batch is None else batch.b.n - batch.first
        cdef const sc_place *place
        cdef uint32_t r
        if not n:
            return 0
        if batch.b.n_copied == batch.b.n:
            self.wrong += sc_numbers_check(batch.b.data, batch.offsets_left(), n, self.size, self.next)
        else:  # a batch that is begun is copied
            for r in range(batch.b.n_runs):
                place = &batch.b.places[r]
                if place.pieces:
                    self.wrong += sc_numbers_check_one(
                        batch.b.pieces[place.piece].data, batch.in_pieces(place), self.size, self.next
                    )
                self.wrong += sc_numbers_check(
                    batch.b.data, batch.b.offsets + place.at, place.copied, self.size, self.next
                )
                self.wrong += sc_numbers_check_packet(
                    place.data, &place.wholes, batch.b.runs[r].n - place.copied - (place.pieces != 0), self.size,
                    self.next,
                )
        self.count += n
        return n
