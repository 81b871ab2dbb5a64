# cython: boundscheck=True, auto_pickle=False
"""The compiled engine for Python: one object per member, every method callable from any thread.

The contract is engine.pyi; the words are those of native/engine/engine.h.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from seqcast.reports import (
    CutReached,
    ForeignVersion,
    FrameReceived,
    LinksChanged,
    MemberAlive,
    MemberStarved,
    MemberSuspected,
    OtherKey,
    PacketsLost,
    PathsMeasured,
    SecretWorn,
    SendersHeld,
    SendsDrained,
    SlabsExhausted,
    SlowChanged,
    StrangerHeard,
    WayChanged,
)
from seqcast.types import Member, OwnPackets

SENT = SC_SENT
AGAIN = SC_AGAIN
NO_VIEW = SC_NO_VIEW
NO_MEMBER = SC_NO_MEMBER
TOO_LARGE = SC_TOO_LARGE
ENDED = SC_ENDED
OLDEST_NOT_PACKED = SC_OLDEST_NOT_PACKED
OLDEST_PACKED = SC_OLDEST_PACKED
OLDEST_PACKED_BEFORE = SC_OLDEST_PACKED_BEFORE
LANE_DATA = SC_LANE_DATA
LANE_CONTROL = SC_LANE_CONTROL
SLAB_BYTES = SC_SLAB_BYTES
LANE_UNICAST = SC_LANE_UNICAST
SEQNO_MAX = SC_SEQNO_MAX
SEAL_ROOM = SC_SEAL_ROOM

DEF HELD_MAX = 1024
DEF LINKS_MAX = 256
DEF RUNS = 8  # as the driver
DEF OWN_MAX = 1 << 24
DEF ABOUT_BYTES = 48 << 10


def charges(uint32_t packet_bytes):
    """Of a full packet within a run, and the most of one of at most this size: bytes of a receive buffer."""
    return sc_charge(packet_bytes, 1), sc_charge_most(packet_bytes)


def order_name(uint32_t mechanism):
    cdef const sc_order_ops *ops = sc_order_of(mechanism)
    return None if ops is NULL else ops.name.decode()


def crc32c(const uint8_t[::1] data not None, uint32_t crc=0):
    cdef size_t n = data.shape[0]
    cdef const uint8_t *p = &data[0] if n else NULL
    with nogil:
        crc = sc_crc32c(crc, p, n)
    return crc


include "batch.pxi"


cdef int put_address(sc_address *to, bytes address) except -1:
    if len(address) > SC_ADDRESS_MAX:
        raise ValueError(f"an address has at most {SC_ADDRESS_MAX} bytes, this one {len(address)}")
    memset(to, 0, sizeof(sc_address))
    to.len = <uint8_t>len(address)
    memcpy(to.bytes, <const char *>address, to.len)
    return 0


cdef bytes get_address(const sc_address *address):
    return PyBytes_FromStringAndSize(<const char *>address.bytes, address.len)


cdef int copy_run(list out, const sc_tx *run) except -1:
    cdef bytes address = get_address(&run.to)
    cdef uint32_t k
    for k in range(run.n):
        out.append((run.lane, address, PyBytes_FromStringAndSize(<const char *>run.p[k], run.len[k])))
    return 0


cdef report_of(sc_event *event):
    """Takes over the payload of a frame."""
    cdef uint8_t kind = event.kind
    if kind == SC_EVENT_CONTROL:
        payload = PyBytes_FromStringAndSize(<const char *>event.payload, event.len)
        free(event.payload)
        return FrameReceived(event.sender, get_address(&event.from_), payload, event.evidence != 0)
    if kind == SC_EVENT_SUSPECT:
        return MemberSuspected(event.sender, ("silence", "port", "guard")[event.evidence])
    if kind == SC_EVENT_ALIVE:
        return MemberAlive(event.sender)
    if kind == SC_EVENT_STARVED:
        return SlabsExhausted()
    if kind == SC_EVENT_SLOW:
        return MemberStarved(event.sender)
    if kind == SC_EVENT_HOLDUP:
        return SendersHeld(event.sender, ("slow", "stuck", "over")[event.evidence], event.rate, event.took)
    if kind == SC_EVENT_TOO_SLOW:
        return SlowChanged()
    if kind == SC_EVENT_LINKS:
        return LinksChanged()
    if kind == SC_EVENT_WAY:
        return WayChanged(event.sender, event.evidence == SC_WAY_MULTICAST)
    if kind == SC_EVENT_LOST:
        return PacketsLost(event.sender, event.rate, event.took)
    if kind == SC_EVENT_SIZE:
        return PathsMeasured(event.sender, event.rate)
    if kind == SC_EVENT_STRANGER:
        return StrangerHeard(event.view_tag, get_address(&event.from_))
    if kind == SC_EVENT_DRAINED:
        return SendsDrained()
    if kind == SC_EVENT_FOREIGN:
        return ForeignVersion()
    if kind == SC_EVENT_KEY:
        return OtherKey(get_address(&event.from_), ("other", "lacks", "has")[event.evidence], event.rate > 1)
    if kind == SC_EVENT_WORN:
        return SecretWorn(event.view_tag)
    return CutReached()


cdef list listed(values, what, Py_ssize_t n, bint exactly):
    """Copies into our own list: an object's stated length need not be the number of its items."""
    items = list(values)
    if len(items) > n or (exactly and len(items) != n):
        raise ValueError(f"{what} has {len(items)} entries, and {'must have' if exactly else 'may have'} {n}")
    return items


cdef uint64_t *by_rank(list values) except NULL:
    cdef uint64_t *out = <uint64_t *>malloc(SC_MEMBERS_MAX * sizeof(uint64_t))
    cdef size_t i = 0
    if out == NULL:
        raise MemoryError()
    memset(out, 0, SC_MEMBERS_MAX * sizeof(uint64_t))
    try:
        for value in values:
            out[i] = value
            i += 1
    except BaseException:
        free(out)
        raise
    return out


@cython.final
@cython.no_gc
cdef class Locked:
    """See ``locked``."""

    def __cinit__(self, Py_ssize_t n):
        if n < 1:
            raise ValueError("memory for secrets has at least one byte")
        self.p = sc_secret_new(<size_t>n)
        if self.p == NULL:
            raise MemoryError("no memory for secrets")
        self.n = n

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.p, self.n, 0, flags)

    def __dealloc__(self):
        sc_secret_free(self.p, <size_t>self.n)


def locked(Py_ssize_t n):
    return PyMemoryView_FromObject(Locked.__new__(Locked, n))


cdef const uint8_t *secret_of(const uint8_t[::1] secret) except NULL:
    """Of an object that the caller keeps."""
    if secret.shape[0] != SC_SEAL_SECRET:
        raise ValueError(f"a secret has {SC_SEAL_SECRET} bytes")
    return &secret[0]


cdef size_t put_secrets(sc_seal_secret *out, secrets) except 0:
    cdef const uint8_t[::1] each
    cdef size_t n = 0
    for mark, secret in listed(secrets, "a seal", SC_SEAL_SECRETS, False):
        each = secret
        if each.shape[0] != SC_SEAL_SECRET or not 0 <= mark < SC_SEAL_MARKS:
            raise ValueError(f"a secret has {SC_SEAL_SECRET} bytes, and a mark below {SC_SEAL_MARKS}")
        out[n].mark = mark
        memcpy(out[n].secret, &each[0], SC_SEAL_SECRET)
        n += 1
    if not n:
        raise ValueError("a seal has at least one secret")
    return n


@cython.no_gc_clear  # the board and the functions that seal outlive the engine, even in a cycle: its threads use them
cdef class Engine:
    """The data plane of one member. See engine.pyi for every parameter."""

    def __cinit__(self):
        sc_mutex_init(&self.lock)

    def __init__(self, *, uint64_t member_id, uint32_t group_tag, seal=None, **settings):
        cdef sc_config config = {"member": member_id, "group": group_tag, **settings}
        cdef dict known = config
        if unknown := settings.keys() - known.keys():
            raise TypeError(f"no setting of the engine: {', '.join(sorted(unknown))}")
        if self.e != NULL:
            raise ValueError("this engine is already initialised: create a new one")
        if not member_id:
            raise ValueError("member_id must not be 0")
        if config.ring_packets < 8 or config.ring_packets & (config.ring_packets - 1):
            raise ValueError("ring_packets must be a power of two, at least 8")
        if config.message_bytes_max > 1 << 30:
            raise ValueError("message_bytes_max is at most 1 GiB: offsets in a batch are int32")
        self.e = sc_engine_new(&config)
        if self.e == NULL:
            raise MemoryError("no memory for the engine")
        if seal is not None:
            self.seal_with(seal)

    cdef seal_with(self, seal):
        cdef sc_cipher_library library
        cdef sc_seal_secret[SC_SEAL_SECRETS] secrets
        cdef size_t n = put_secrets(secrets, seal.secrets)
        cdef int i = 0
        for sealing, opening in listed(seal.ciphers, "a seal", SC_CIPHERS, True):
            library.ciphers[i].seal = <sc_cipher_seal><uintptr_t>sealing
            library.ciphers[i].open = <sc_cipher_open><uintptr_t>opening
            i += 1
        library.hash = <sc_cipher_hash><uintptr_t>seal.hash
        library.random = <sc_cipher_random><uintptr_t>seal.random
        self.sealed_by = seal.keeps  # and not its secret
        cdef int failed = sc_engine_seal(self.e, &library, secrets, n)
        sc_secret_overwrite(secrets, sizeof(secrets))
        if failed:
            raise MemoryError("no memory to seal datagrams")

    def refile(self, secrets):
        cdef sc_seal_secret[SC_SEAL_SECRETS] those
        cdef size_t n = put_secrets(those, secrets)
        sc_mutex_lock(&self.lock)
        sc_engine_refile(self.e, those, n)
        sc_mutex_unlock(&self.lock)
        sc_secret_overwrite(those, sizeof(those))

    def know(self, uint64_t tag, secret, unsigned int cipher):
        """A view that others may be in already; ``install`` takes the secret of the one that is entered."""
        cdef const uint8_t *those = secret_of(secret)
        sc_mutex_lock(&self.lock)
        cdef int failed = sc_engine_know(self.e, tag, cipher, those)
        sc_mutex_unlock(&self.lock)
        if failed:
            raise ValueError(f"this machine has no cipher {cipher}")

    def __dealloc__(self):
        cdef int i
        sc_engine_free(self.e)
        for i in range(self.n_spare):
            sc_batch_clear(&self.spare[i])
        sc_mutex_destroy(&self.lock)
        if self.board.buf != NULL:
            PyBuffer_Release(&self.board)

    cdef Batch new_batch(self):
        """An empty batch, in the buffers of one that was given back."""
        cdef Batch batch = Batch.__new__(Batch)
        batch.owner = self
        if self.n_spare:
            self.n_spare -= 1
            batch.b = self.spare[self.n_spare]
        return batch

    cdef void take_back(self, sc_batch *batch) noexcept:
        """A batch is not used any more."""
        if self.n_spare < 4 and batch.data_cap <= 4 << 20:
            self.spare[self.n_spare] = batch[0]
            self.n_spare += 1
            return
        if not self.forked:
            sc_mutex_lock(&self.lock)
            sc_engine_give_back(self.e, batch)
            sc_mutex_unlock(&self.lock)
        sc_batch_clear(batch)

    cdef uint64_t ask(self, count question):
        sc_mutex_lock(&self.lock)
        cdef uint64_t answer = question(self.e)
        sc_mutex_unlock(&self.lock)
        return answer

    # ---- the world -----------------------------------------------------------------------------------------------

    def receive(self, bytes datagram, bytes address, int64_t now_ns, size_t segment=0, bint in_slot=False):
        cdef sc_address source
        cdef size_t n = len(datagram)
        cdef int accepted
        cdef uint8_t *copy = NULL
        cdef sc_slab *slab = NULL
        put_address(&source, address)
        sc_mutex_lock(&self.lock)
        # A small buffer is not kept in a slab; its memory has no byte to spare, so that a sanitizer sees the end.
        if in_slot:
            copy = sc_slab_share(sc_engine_pool(self.e), &self.slots, n, &slab)
        elif SC_SLAB_BYTES // 4 <= n <= SC_SLAB_BYTES:
            slab = sc_slab_get(sc_engine_pool(self.e))
            copy = slab.data if slab != NULL else NULL
        if copy == NULL:
            copy = <uint8_t *>malloc(n + (n == 0))
        if copy == NULL:
            sc_mutex_unlock(&self.lock)
            raise MemoryError()
        memcpy(copy, <const char *>datagram, n)
        accepted = sc_engine_receive(self.e, slab, copy, n, segment, &source, now_ns)
        if slab != NULL:
            sc_slab_unref(slab)
        else:
            free(copy)
        sc_mutex_unlock(&self.lock)
        return accepted

    def refused(self, bytes address, int64_t now_ns, bint guard=False):
        cdef sc_address to
        put_address(&to, address)
        sc_mutex_lock(&self.lock)
        sc_engine_refused(self.e, &to, SC_EVIDENCE_GUARD if guard else SC_EVIDENCE_PORT, now_ns)
        sc_mutex_unlock(&self.lock)

    def tick(self, int64_t now_ns):
        sc_mutex_lock(&self.lock)
        sc_engine_tick(self.e, now_ns)
        sc_mutex_unlock(&self.lock)

    def deadline(self):
        sc_mutex_lock(&self.lock)
        cdef int64_t due = sc_engine_deadline(self.e)
        sc_mutex_unlock(&self.lock)
        return due

    def transmit(self, int64_t now_ns, bint all=True, int runs_max=0):
        cdef int most = runs_max if 0 < runs_max < RUNS else RUNS, i
        cdef list out = []
        while True:
            sc_mutex_lock(&self.lock)
            self.n_runs = sc_engine_transmit(self.e, self.runs, most, now_ns, all)
            sc_mutex_unlock(&self.lock)
            for i in range(self.n_runs):
                copy_run(out, &self.runs[i])
            if self.n_runs == 0 or runs_max:
                return out

    def lent(self):
        cdef list out = []
        cdef int i
        for i in range(self.n_runs):
            copy_run(out, &self.runs[i])
        return out

    def targets(self):
        cdef sc_targets targets
        memset(&targets, 0, sizeof(targets))
        sc_mutex_lock(&self.lock)
        sc_engine_targets(self.e, &targets)
        sc_mutex_unlock(&self.lock)
        places = sorted(range(targets.alone), key=lambda place: place != targets.first)
        return [get_address(&targets.to[place]) for place in places], targets.together > 0

    def unsent(self):
        return self.ask(sc_engine_unsent)

    def urgent(self):
        sc_mutex_lock(&self.lock)
        cdef int urgent = sc_engine_urgent(self.e)
        sc_mutex_unlock(&self.lock)
        return urgent != 0

    # ---- the control plane ---------------------------------------------------------------------------------------

    def control_send(self, bytes payload, bytes address=b"", bint outside=False, bint anybody=False):
        cdef sc_address to
        put_address(&to, address)
        sc_mutex_lock(&self.lock)
        cdef int result = sc_engine_control_send(
            self.e, &to, <const uint8_t *><const char *>payload, len(payload), outside + (outside and anybody)
        )
        sc_mutex_unlock(&self.lock)
        return result == 0

    def stand(self, bytes payload, int64_t every_ns, uint32_t times, int64_t now_ns):
        sc_mutex_lock(&self.lock)
        cdef int result = sc_engine_stand(
            self.e, <const uint8_t *><const char *>payload, len(payload), every_ns, times, now_ns
        )
        sc_mutex_unlock(&self.lock)
        return result == 0

    def reports(self):
        cdef sc_event event
        cdef list out = []
        cdef int found
        while True:
            sc_mutex_lock(&self.lock)
            found = sc_engine_event(self.e, &event)
            sc_mutex_unlock(&self.lock)
            if not found:
                return out
            if event.kind != SC_EVENT_OFFERS:  # `offers` says which
                out.append(report_of(&event))

    def offers(self):
        cdef sc_offer found[SC_OFFERS_MAX]
        cdef uint64_t batch = 0
        cdef size_t n, i
        sc_mutex_lock(&self.lock)
        n = sc_engine_offers(self.e, found, &batch)
        sc_mutex_unlock(&self.lock)
        if not n:
            return None
        return batch, [
            (found[i].rank, found[i].seqno, found[i].sent_ns, found[i].messages, found[i].bytes,
             PyBytes_FromStringAndSize(<const char *>found[i].head, found[i].head_len))
            for i in range(n)
        ]

    def decide(self, uint64_t batch, ranks, int64_t now_ns):
        cdef uint16_t order[SC_OFFERS_MAX]
        cdef size_t n = 0
        cdef int in_time
        if ranks is not None:
            for rank in listed(ranks, "the order", SC_OFFERS_MAX, False):
                order[n] = rank
                n += 1
        sc_mutex_lock(&self.lock)
        in_time = sc_engine_decide(self.e, batch, NULL if ranks is None else order, n, now_ns)
        sc_mutex_unlock(&self.lock)
        return in_time != 0

    cdef list ids_of(self, members question):
        cdef uint64_t ids[SC_MEMBERS_MAX]
        cdef size_t n, i
        sc_mutex_lock(&self.lock)
        n = question(self.e, ids)
        sc_mutex_unlock(&self.lock)
        return [ids[i] for i in range(n)]

    def doubted(self):
        return self.ids_of(sc_engine_doubted)

    def stalls(self, int64_t now_ns):
        cdef sc_stall[SC_MEMBERS_MAX] found
        cdef size_t n, i
        sc_mutex_lock(&self.lock)
        n = sc_engine_stalls(self.e, found)
        sc_mutex_unlock(&self.lock)
        return [(found[i].member, max(0, now_ns - found[i].since)) for i in range(n)]

    def too_slow(self):
        return self.ids_of(sc_engine_too_slow)

    def links(self, bint unicast=False):
        cdef uint64_t pairs[2 * LINKS_MAX]
        cdef size_t n, i
        sc_mutex_lock(&self.lock)
        n = sc_engine_links(self.e, unicast, pairs, LINKS_MAX)
        sc_mutex_unlock(&self.lock)
        return [(pairs[2 * i], pairs[2 * i + 1]) for i in range(n)]

    def path_bytes(self):
        sc_mutex_lock(&self.lock)
        cdef uint32_t n = sc_engine_path_bytes(self.e)
        sc_mutex_unlock(&self.lock)
        return n

    def measure(self, int64_t now_ns):
        sc_mutex_lock(&self.lock)
        sc_engine_measure(self.e, now_ns)
        sc_mutex_unlock(&self.lock)

    def strangers(self, uint64_t tag):
        sc_mutex_lock(&self.lock)
        cdef size_t n = sc_engine_strangers(self.e, tag)
        sc_mutex_unlock(&self.lock)
        return n

    def greet(self, uint64_t member, bytes address):
        cdef sc_address to
        put_address(&to, address)
        sc_mutex_lock(&self.lock)
        sc_engine_greet(self.e, member, &to)
        sc_mutex_unlock(&self.lock)

    def show(self, bytes address):
        cdef sc_address to
        put_address(&to, address)
        sc_mutex_lock(&self.lock)
        sc_engine_show(self.e, &to)
        sc_mutex_unlock(&self.lock)

    def beat(self, int64_t now_ns):
        sc_mutex_lock(&self.lock)
        sc_engine_beat(self.e, now_ns)
        sc_mutex_unlock(&self.lock)

    def gate_close(self, bint unicasts=False):
        sc_mutex_lock(&self.lock)
        cdef uint64_t last = sc_engine_gate_close(self.e, unicasts)
        sc_mutex_unlock(&self.lock)
        return last

    def pause(self):
        sc_mutex_lock(&self.lock)
        sc_engine_pause(self.e)
        sc_mutex_unlock(&self.lock)

    def resume(self):
        sc_mutex_lock(&self.lock)
        sc_engine_resume(self.e)
        sc_mutex_unlock(&self.lock)

    def mark(self, uint64_t marker):
        sc_mutex_lock(&self.lock)
        cdef int failed = sc_engine_mark(self.e, marker)
        sc_mutex_unlock(&self.lock)
        if failed:
            raise MemoryError()

    def uncount(self, lost):
        cdef uint64_t ids[SC_MEMBERS_MAX]
        cdef size_t n = 0
        for member in listed(lost, "lost", SC_MEMBERS_MAX, False):
            ids[n] = member
            n += 1
        sc_mutex_lock(&self.lock)
        sc_engine_uncount(self.e, ids, n)
        sc_mutex_unlock(&self.lock)

    def freeze(self, lost, bint still=False):
        cdef uint64_t ids[SC_MEMBERS_MAX]
        cdef size_t n = 0
        for member in listed(lost, "lost", SC_MEMBERS_MAX, False):
            ids[n] = member
            n += 1
        sc_mutex_lock(&self.lock)
        sc_engine_freeze(self.e, ids, n, still)
        sc_mutex_unlock(&self.lock)

    def held(self, uint32_t rank):
        cdef uint64_t prefix
        cdef uint64_t ranges[2 * HELD_MAX]
        cdef size_t n, i
        sc_mutex_lock(&self.lock)
        n = sc_engine_held(self.e, rank, &prefix, ranges, HELD_MAX)
        sc_mutex_unlock(&self.lock)
        return prefix, [(ranges[2 * i], ranges[2 * i + 1]) for i in range(n)]

    def cut(self, cut, fetch):
        cdef list cuts = listed(cut, "the cut", self.members, True), ranges = list(fetch)
        cdef size_t n = 0
        cdef sc_fetch *fetches = <sc_fetch *>malloc((len(ranges) + 1) * sizeof(sc_fetch))
        cdef uint64_t *marks = NULL
        if fetches == NULL:
            raise MemoryError()
        try:
            for rank, lo, hi, holder in ranges:
                fetches[n].rank = rank
                fetches[n].lo = lo
                fetches[n].hi = hi
                fetches[n].holder = holder
                n += 1
            marks = by_rank(cuts)
            sc_mutex_lock(&self.lock)
            sc_engine_cut(self.e, marks, fetches, n)
            sc_mutex_unlock(&self.lock)
        finally:
            free(marks)
            free(fetches)

    def cut_reached(self):
        sc_mutex_lock(&self.lock)
        cdef int reached = sc_engine_cut_reached(self.e)
        sc_mutex_unlock(&self.lock)
        return reached != 0

    def gossip_marks(self):
        cdef sc_marks marks[SC_MEMBERS_MAX]
        cdef uint32_t n = 0, i
        sc_mutex_lock(&self.lock)
        while n < self.members and sc_engine_marks(self.e, n, &marks[n]) == 0:
            n += 1
        sc_mutex_unlock(&self.lock)
        return [
            (marks[i].kept, marks[i].delivered, marks[i].received, marks[i].consumed, marks[i].window, marks[i].claim)
            for i in range(n)
        ]

    def gossip_lacks(self, uint32_t rank, uint64_t first, uint64_t last, uint64_t most):
        cdef uint64_t ranges[2 * HELD_MAX]
        cdef size_t n, i
        sc_mutex_lock(&self.lock)
        n = sc_engine_lacks(self.e, rank, first, last, most, ranges, HELD_MAX)
        sc_mutex_unlock(&self.lock)
        return [(ranges[2 * i], ranges[2 * i + 1]) for i in range(n)]

    def gossip_ask(self, uint32_t rank, uint64_t lo, uint64_t hi, uint32_t holder, int64_t now_ns):
        sc_mutex_lock(&self.lock)
        sc_engine_ask(self.e, rank, lo, hi, holder, now_ns)
        sc_mutex_unlock(&self.lock)

    def gossip_vote(self, uint32_t rank, uint64_t delivered, uint64_t received, uint64_t consumed, uint64_t window,
                    uint16_t claim, int64_t now_ns):
        cdef sc_marks marks = sc_marks(0, delivered, received, consumed, window, claim)
        sc_mutex_lock(&self.lock)
        sc_engine_vote(self.e, rank, &marks, now_ns)
        sc_mutex_unlock(&self.lock)

    def gossip_stable(self, uint32_t rank, uint64_t seqno):
        sc_mutex_lock(&self.lock)
        sc_engine_stable(self.e, rank, seqno)
        sc_mutex_unlock(&self.lock)

    def gossip_vouch(self, uint32_t rank, int64_t now_ns):
        sc_mutex_lock(&self.lock)
        sc_engine_vouch(self.e, rank, now_ns)
        sc_mutex_unlock(&self.lock)

    def received_table(self):
        cdef uint64_t table[SC_MEMBERS_MAX]
        memset(table, 0, sizeof(table))
        sc_mutex_lock(&self.lock)
        sc_engine_received_table(self.e, table)
        sc_mutex_unlock(&self.lock)
        return [table[i] for i in range(self.members)]

    def install(
        self, *, uint64_t tag, ids, addresses, uint32_t rank, uint32_t mechanism, int32_t sequencer,
        uint64_t window_bytes, uint64_t forward_window_bytes, uint64_t unicast_window_bytes,
        uint64_t state_window_bytes, uint32_t packet_bytes, base, origin_base, cut, uint64_t marker, int64_t now_ns,
        apart=None, fell=None, uint64_t share_bytes=0, uint64_t room_bytes=0, bint safe=False,
        uint32_t path_bytes=0, secret=b"", unsigned int cipher=0,
    ):
        cdef Py_ssize_t n, i
        cdef sc_view *view
        cdef uint64_t *marks = NULL
        cdef int result
        cdef bint unknown
        ids = listed(ids, "ids", SC_MEMBERS_MAX, False)
        n = len(ids)
        if not n:
            raise ValueError("a view needs at least one member")
        addresses = listed(addresses, "addresses", n, True)
        base = listed(base, "base", n, True)
        origin_base = listed(origin_base, "origin_base", n, True)
        if len(set(ids)) != n:
            raise ValueError("a member may appear in a view only once")
        cdef const uint8_t *of_view = secret_of(secret) if secret else NULL
        if sequencer >= <int32_t>n:
            raise ValueError(f"no member has the sequencer's rank {sequencer}")
        if apart is not None:
            apart = listed(apart, "apart", n, True)
        if cut is not None:
            cut = listed(cut, "the cut", self.members, True)
        if fell is not None:
            fell = listed(fell, "fell", self.members, True)
        view = <sc_view *>malloc(sizeof(sc_view))
        if view == NULL:
            raise MemoryError()
        try:
            memset(view, 0, sizeof(sc_view))
            view.tag = tag
            view.n = <uint32_t>n
            view.rank = rank
            view.mechanism = mechanism
            view.sequencer = sequencer
            view.window_bytes = window_bytes
            view.share_bytes = share_bytes
            view.room_bytes = room_bytes
            view.forward_window_bytes = forward_window_bytes
            view.unicast_window_bytes = unicast_window_bytes
            view.state_window_bytes = state_window_bytes
            view.packet_bytes = packet_bytes
            view.path_bytes = path_bytes
            view.safe = safe
            for i in range(n):
                view.ids[i] = ids[i]
                view.base[i] = base[i]
                view.origin_base[i] = origin_base[i]
                put_address(&view.addresses[i], addresses[i])
                if apart is not None:
                    view.merge = 1
                    view.apart[i] = bool(apart[i])
            for i, each in enumerate(fell or ()):
                view.fell[i] = bool(each)
            if cut is not None:
                marks = by_rank(cut)
            # With the secret in one step: a tick in between would forget it, as that of a view which nobody entered.
            sc_mutex_lock(&self.lock)
            unknown = of_view != NULL and sc_engine_know(self.e, tag, cipher, of_view) != 0
            result = unknown or sc_engine_install(self.e, view, marks, marker, now_ns)
            sc_mutex_unlock(&self.lock)
        finally:
            free(marks)
            free(view)
        if unknown:
            raise ValueError(f"this machine has no cipher {cipher}")
        if result:
            raise ValueError(
                "the view cannot be installed: it needs the own id at the own rank, packet_bytes 512..65000 divisible "
                "by 4, an order that this release has (with a sequencer, its rank), and memory"
            )
        self.members = <uint32_t>n

    def close_view(self, cut, uint64_t marker, fell=None):
        cdef uint8_t lost[SC_MEMBERS_MAX]
        cdef uint64_t *marks = NULL
        memset(lost, 0, sizeof(lost))
        if fell is not None:
            for i, each in enumerate(listed(fell, "fell", self.members, True)):
                lost[i] = bool(each)
        if cut is not None:
            marks = by_rank(listed(cut, "the cut", self.members, True))
        sc_mutex_lock(&self.lock)
        sc_engine_close(self.e, marks, lost, marker)
        sc_mutex_unlock(&self.lock)
        free(marks)
        self.members = 0

    # ---- the application -----------------------------------------------------------------------------------------

    def send(self, bytes payload, *, uint64_t to=0, int64_t wall_ns=0, bint ordered=True):
        cdef sc_send_state state
        cdef int result
        memset(&state, 0, sizeof(state))
        sc_mutex_lock(&self.lock)
        result = sc_engine_send(
            self.e, to, not ordered, <const uint8_t *><const char *>payload, len(payload), &state, wall_ns
        )
        if result == SC_AGAIN:
            sc_engine_send_abort(self.e, to, &state)
        sc_mutex_unlock(&self.lock)
        return result

    cpdef object deliver(self, uint64_t bytes_max=1 << 20, int64_t now_ns=0, int64_t wall_ns=0, bint keeps=False):
        cdef Batch batch = self.new_batch()
        cdef uint64_t marker = 0
        cdef int result
        with nogil:
            sc_mutex_lock(&self.lock)
            if keeps:
                result = sc_engine_keep(self.e, &batch.b, bytes_max, &marker, now_ns)
            else:
                result = sc_engine_deliver(self.e, &batch.b, bytes_max, &marker, now_ns)
            sc_mutex_unlock(&self.lock)
        if result == SC_DELIVER_BATCH:
            batch.delivered_ns = wall_ns
            return batch
        if result == SC_DELIVER_SKIPPED:
            return batch.b.skipped.sender, batch.b.skipped.first, batch.b.skipped.last, batch.b.skipped.messages
        return marker if result == SC_DELIVER_MARKER else None

    def paced(self, uint64_t to=0):
        sc_mutex_lock(&self.lock)
        cdef bint paced = sc_engine_paced(self.e, to)
        sc_mutex_unlock(&self.lock)
        return paced

    cpdef int takes(self, item, int64_t now_ns) except -1:
        cdef sc_batch *batch = NULL
        if isinstance(item, Batch):
            batch = &(<Batch>item).b
        sc_mutex_lock(&self.lock)
        sc_engine_takes(self.e, batch, now_ns)
        sc_mutex_unlock(&self.lock)
        return 0

    cpdef int64_t rests(self, int64_t now_ns) except -1:
        sc_mutex_lock(&self.lock)
        cdef int64_t rest = sc_engine_rests(self.e, now_ns)
        sc_mutex_unlock(&self.lock)
        return rest

    cpdef int works_on(self, int64_t rest, int64_t now_ns) except -1:
        sc_mutex_lock(&self.lock)
        sc_engine_works_on(self.e, rest, now_ns)
        sc_mutex_unlock(&self.lock)
        return 0

    def state_send(self, bytes payload, uint64_t to, int64_t wall_ns=0):
        cdef uint64_t done = 0
        sc_mutex_lock(&self.lock)
        cdef int result = sc_engine_state_send(
            self.e, to, <const uint8_t *><const char *>payload, len(payload), &done, wall_ns
        )
        sc_mutex_unlock(&self.lock)
        return result, done

    def state_end(self, uint64_t to):
        sc_mutex_lock(&self.lock)
        sc_engine_state_end(self.e, to)
        sc_mutex_unlock(&self.lock)

    def state_want(self, uint64_t sender):
        sc_mutex_lock(&self.lock)
        sc_engine_state_want(self.e, sender)
        sc_mutex_unlock(&self.lock)

    def state_void(self, uint64_t sender):
        sc_mutex_lock(&self.lock)
        sc_engine_state_void(self.e, sender)
        sc_mutex_unlock(&self.lock)

    def state_read(self, uint64_t sender, size_t bytes_max, int64_t now_ns=0):
        cdef uint8_t *p = <uint8_t *>malloc(bytes_max + 1)
        if p == NULL:
            raise MemoryError()
        sc_mutex_lock(&self.lock)
        cdef size_t n = sc_engine_state_read(self.e, sender, p, bytes_max, now_ns)
        sc_mutex_unlock(&self.lock)
        payload = PyBytes_FromStringAndSize(<char *>p, n)
        free(p)
        return payload

    def blocked(self):
        return self.ask(sc_engine_blocked)

    def queued(self):
        return self.ask(sc_engine_queued)

    def blocked_oldest(self):
        sc_mutex_lock(&self.lock)
        cdef int oldest = sc_engine_blocked_oldest(self.e)
        sc_mutex_unlock(&self.lock)
        return oldest

    def blocked_end(self):
        return self.ask(<count>sc_engine_blocked_end)

    def unordered(self):
        return self.ask(sc_engine_unordered)

    def end_sends(self):
        sc_mutex_lock(&self.lock)
        sc_engine_end_sends(self.e)
        sc_mutex_unlock(&self.lock)

    def drained(self):
        sc_mutex_lock(&self.lock)
        cdef int drained = sc_engine_drained(self.e)
        sc_mutex_unlock(&self.lock)
        return drained != 0

    def own(self):
        cdef sc_own own
        sc_mutex_lock(&self.lock)
        sc_engine_own(self.e, &own)
        sc_mutex_unlock(&self.lock)
        return OwnPackets(own.first, own.last, own.all, own.any)

    def own_messages(self, uint64_t first, uint64_t last, bint waiting=False):
        cdef uint64_t n = last - first + 1 if last >= first else 0, i
        cdef uint32_t before
        cdef uint32_t *ends
        if n > OWN_MAX:
            raise ValueError(f"at most {OWN_MAX} packets, not {n}")
        ends = <uint32_t *>malloc((n + 1) * sizeof(uint32_t))
        if ends == NULL:
            raise MemoryError()
        sc_mutex_lock(&self.lock)
        for i in range(n + 1):
            ends[i] = sc_engine_own_messages(self.e, first - 1 + i, waiting)
        sc_mutex_unlock(&self.lock)
        before = ends[0]
        counts = [<uint32_t>(ends[i + 1] - before) for i in range(n)]
        free(ends)
        return counts

    def unacknowledged(self):
        cdef uint64_t counts[SC_MEMBERS_MAX]
        sc_mutex_lock(&self.lock)
        sc_engine_unacknowledged(self.e, counts)
        sc_mutex_unlock(&self.lock)
        return [counts[i] for i in range(self.members)]

    def view(self):
        return self.ask(sc_engine_view)

    def deliverable(self):
        return self.ask(sc_engine_deliverable)

    def taken(self):
        sc_mutex_lock(&self.lock)
        sc_engine_taken(self.e)
        sc_mutex_unlock(&self.lock)

    def consumed(self, int64_t now_ns):
        sc_mutex_lock(&self.lock)
        cdef uint64_t seqno = sc_engine_consumed(self.e, now_ns)
        sc_mutex_unlock(&self.lock)
        return seqno

    def last_sent(self):
        return self.ask(sc_engine_last_sent)

    def stream(self, uint32_t rank):
        cdef sc_stream_state state
        sc_mutex_lock(&self.lock)
        cdef int result = sc_engine_stream(self.e, rank, &state)
        sc_mutex_unlock(&self.lock)
        if result:
            raise ValueError(f"no member has rank {rank}")
        return state.delivered, state.received, state.stable, state.lacks, state.rtt

    def use_board(self, memory):
        cdef sc_board *board
        cdef int result
        if self.board.buf != NULL:
            raise ValueError("this engine has a board already")
        PyObject_GetBuffer(memory, &self.board, PyBUF_WRITABLE)
        if self.board.len != SC_BOARD_BYTES or <size_t>self.board.buf % 8:
            PyBuffer_Release(&self.board)
            raise ValueError(f"a board has {SC_BOARD_BYTES} bytes")
        board = <sc_board *>self.board.buf
        sc_mutex_lock(&self.lock)
        sc_board_begin(board)
        result = sc_engine_board(self.e, board)
        self.about = sc_board_add(board, b"about", b"", 8, ABOUT_BYTES // 8)
        sc_board_open(board)
        sc_mutex_unlock(&self.lock)
        assert result == 0 and self.about != NULL, "a board has room for all its parts"

    def board_note(self, bytes text, uint64_t member, int64_t now_ns):
        sc_mutex_lock(&self.lock)
        sc_engine_note(self.e, member, text, len(text), now_ns)
        sc_mutex_unlock(&self.lock)

    def board_about(self, bytes text):
        cdef size_t n = len(text)
        if self.about == NULL or n > ABOUT_BYTES:
            return False
        sc_mutex_lock(&self.lock)
        sc_board_write(self.about)
        memcpy(sc_board_at(<sc_board *>self.board.buf, self.about, 0), <const char *>text, n)
        sc_board_written(self.about, n)
        sc_mutex_unlock(&self.lock)
        return True

    def counters(self):
        cdef const char *names[128]
        cdef uint64_t values[128]
        cdef size_t n, i
        sc_mutex_lock(&self.lock)
        n = sc_engine_counter_values(self.e, names, values, 128)
        sc_mutex_unlock(&self.lock)
        return {names[i].decode(): values[i] for i in range(n)}


cdef class TakenWait:
    """A wait until all others have taken the messages sent to the group before it began."""
    cdef Engine engine
    cdef sc_taking w

    def __init__(self, Engine engine, int64_t now_ns):
        if self.engine is not None:
            raise ValueError("this wait has already begun: create a new one")
        self.engine = engine
        sc_mutex_lock(&engine.lock)
        sc_taking_begin(engine.e, &self.w, now_ns)
        sc_mutex_unlock(&engine.lock)

    def __dealloc__(self):
        if self.engine is not None:
            sc_mutex_lock(&self.engine.lock)
            sc_taking_end(self.engine.e, &self.w)
            sc_mutex_unlock(&self.engine.lock)

    def state(self):
        sc_mutex_lock(&self.engine.lock)
        cdef int result = sc_taking_state(self.engine.e, &self.w)
        sc_mutex_unlock(&self.engine.lock)
        return result

    @property
    def lost(self):
        return self.w.lost != 0


cdef class Sending:
    """One message on its way into the send ring, over as many steps as credit and view changes require."""
    cdef Engine engine
    cdef bytes payload
    cdef uint64_t to
    cdef bint ordered
    cdef sc_send_state state

    def __init__(self, Engine engine, bytes payload, uint64_t to=0, bint ordered=True):
        self.engine = engine
        self.ordered = ordered
        self.payload = payload
        self.to = to

    def step(self, int64_t wall_ns=0):
        sc_mutex_lock(&self.engine.lock)
        cdef int result = sc_engine_send(
            self.engine.e, self.to, not self.ordered, <const uint8_t *><const char *>self.payload, len(self.payload),
            &self.state, wall_ns,
        )
        sc_mutex_unlock(&self.engine.lock)
        return result

    def abort(self):
        if self.state.packed:
            return False
        sc_mutex_lock(&self.engine.lock)
        sc_engine_send_abort(self.engine.e, self.to, &self.state)
        sc_mutex_unlock(&self.engine.lock)
        return True

    @property
    def packed(self):
        """Packed as a whole, the message waits for the sequencer: members may deliver it even after a failed send."""
        return self.state.packed != 0


cdef class SendingArray:
    """The messages of an Arrow binary array on their way into the send ring, in as many steps as with ``Sending``."""
    cdef Engine engine
    cdef bytes data
    cdef uint64_t *offsets
    cdef uint64_t n
    cdef readonly uint64_t sent
    cdef bint ordered
    cdef sc_send_state state

    def __init__(self, Engine engine, list payloads, bint ordered=True):
        cdef uint64_t at = 0, i = 0
        if self.engine is not None:
            raise ValueError("this array is already being sent: create a new one")
        self.engine = engine
        self.ordered = ordered
        self.data = b"".join(payloads)
        self.n = len(payloads)
        self.offsets = <uint64_t *>malloc((self.n + 1) * sizeof(uint64_t))
        if self.offsets == NULL:
            raise MemoryError()
        self.offsets[0] = 0
        for payload in payloads:
            at += len(payload)
            i += 1
            self.offsets[i] = at

    def __dealloc__(self):
        free(self.offsets)

    def abort(self):
        if self.state.packed:
            return False
        sc_mutex_lock(&self.engine.lock)
        sc_engine_send_abort(self.engine.e, 0, &self.state)
        sc_mutex_unlock(&self.engine.lock)
        return True

    @property
    def packed(self):
        """As in ``Sending``, of the next message."""
        return self.state.packed != 0

    def step(self, int64_t wall_ns=0, uint64_t chunk=0):
        cdef int result = SC_SENT
        cdef uint64_t end = self.n
        if 0 < chunk < self.n - self.sent:
            end = self.sent + chunk
        sc_mutex_lock(&self.engine.lock)
        self.sent = sc_engine_send_batch(
            self.engine.e, not self.ordered, <const uint8_t *><const char *>self.data, self.offsets, self.sent, end,
            &self.state, wall_ns, &result,
        )
        sc_mutex_unlock(&self.engine.lock)
        return result
