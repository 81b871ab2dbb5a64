# Part of driver.pyx: the table of functions for programs in C (the contract is include/seqcast/embed.h). The functions
# call the driver as the classes here do, and call these classes for the parts that Python decides: views, other events
# and the journal.

DEF ITEMS = 64  # SEQCAST_ITEMS_MAX
DEF OPEN_NS = 1000000000  # how long opening a handle waits for a call that receives
DEF MERGE_NS = 1000000  # how often an event loop polls while states are merged

KINDS = {
    "View": SEQCAST_VIEW, "MergeView": SEQCAST_MERGE_VIEW, "Lost": SEQCAST_LOST, "Blocked": SEQCAST_BLOCKED,
    "Unblocked": SEQCAST_UNBLOCKED, "InterfaceChanged": SEQCAST_INTERFACE_CHANGED, "Excluded": SEQCAST_EXCLUDED,
    "Left": SEQCAST_LEFT, "CoordinatorChanged": SEQCAST_COORDINATOR_CHANGED,
    "Skipped": SEQCAST_SKIPPED,
}


cdef extern from "Python.h" nogil:
    int PyGILState_Check()


cdef enum:
    NOTHING
    THERE
    MERGES

cdef struct lent_item:
    seqcast_item item  # first: the program's pointer to this item is the item's own
    seqcast_message message
    sc_batch batch  # its memory is used again for the next batch
    const sc_batch *messages  # `batch`, or that of a Python object; NULL: an event, or given back
    uint32_t run, at  # of the next message
    sc_atomic used  # by the program, or by a call in progress
    sc_atomic lent  # to the program
    PyObject *owner  # keeps alive the memory that `item` points to; NULL: nobody needs to

cdef struct handle:
    sc_driver *d
    sc_engine *e
    sc_mutex *lock  # the engine's
    PyObject *receiver  # owned reference; `d`, `e`, `forked` and `taking` belong to it
    const bint *forked
    PyThread_type_lock taking
    bint by_python  # the next item needs Python; under `taking`
    sc_atomic ready  # NOTHING; THERE: an item is ready; MERGES: one will be once states are merged
    sc_atomic taker  # the thread that took last, or 0
    bint watching
    PyObject *error  # the bytes object behind `text`; NULL: no error yet
    const char *text
    lent_item items[ITEMS]


cdef seqcast_member *embed_open(object group) except NULL:
    cdef Receiver receiver
    cdef handle *h
    if isinstance(group, AsyncSender):
        raise UsageError(
            "a group of seqcast.aio has no handle: join with seqcast.join, and let the event loop watch `descriptor`"
        )
    if not isinstance(group, Receiver):
        raise UsageError(f"a seqcast.Group is wanted, not {type(group).__name__}")
    if getattr(group, "_rejoin_as", None) is not None:
        raise UsageError("a handle is of one incarnation, and this group joins again: use rejoin=False")
    receiver = group
    if not receiver.begin_taking(OPEN_NS):
        raise UsageError(
            "another thread receives from this group: end its call first, such as `recv`, by a timeout, or open the "
            "handle before any thread receives"
        )
    try:
        if receiver._end is not None:
            raise receiver._not_member()
        h = <handle *>calloc(1, sizeof(handle))
        if h == NULL:
            raise MemoryError()
        h.d = receiver._driver.d
        h.e = receiver._driver.engine.e
        h.lock = &receiver._driver.engine.lock
        h.forked = &receiver._driver.forked
        h.taking = receiver.taking
        receiver._again = [each for each in (receiver._delivered_view, receiver.rest_of_begun()) if each is not None]
        h.by_python = needs_python(h, receiver)
        Py_INCREF(receiver)
        h.receiver = <PyObject *>receiver
        receiver._embedded = True
        return <seqcast_member *>h
    finally:
        PyThread_release_lock(receiver.taking)


cdef bint needs_python(handle *h, Receiver receiver) except -1:
    """Whether the next item needs Python. Under `taking`."""
    cdef int ready = NOTHING
    if receiver._stop is not None and not receiver._again:
        ready = MERGES
    elif receiver._again or receiver._meanings or receiver._backlog or receiver._end is not None:
        ready = THERE
    sc_store(&h.ready, ready)
    return ready != NOTHING or receiver._journal is not None


cdef int embed_close(seqcast_member *member) noexcept with gil:
    cdef handle *h = <handle *>member
    cdef Receiver receiver
    cdef int i
    if h == NULL:
        return SEQCAST_BAD_ARGUMENT
    receiver = <Receiver>h.receiver
    if not h.forked[0]:
        for i in range(ITEMS):
            if sc_load(&h.items[i].used):
                return SEQCAST_IN_USE
        if not PyThread_acquire_lock(h.taking, NOWAIT_LOCK):
            return SEQCAST_IN_USE
        receiver._embedded = False
        receiver._begun = next((each for each in receiver._again or () if isinstance(each, Batch)), None)
        receiver._again = None
        PyThread_release_lock(h.taking)
        if h.watching:
            sc_driver_watch_close(h.d)
    for i in range(ITEMS):
        release_owner(&h.items[i])
        receiver._driver.engine.take_back(&h.items[i].batch)
    Py_XDECREF(h.error)
    free(h)
    Py_DECREF(receiver)
    return SEQCAST_OK


# ---- sending -----------------------------------------------------------------------------------------------------

cdef int embed_send(seqcast_member *member, uint64_t to, uint32_t flags, const void *data, size_t n,
                    int64_t timeout_ns) noexcept nogil:
    cdef handle *h = <handle *>member
    cdef sc_sending s
    cdef int64_t until = 0, moved = 0
    cdef int64_t rest = 0
    cdef uint64_t sendable = 0
    cdef int result, kept
    cdef bint receives
    if h == NULL or (data == NULL and n) or flags & ~<uint32_t>SEQCAST_UNORDERED:
        return SEQCAST_BAD_ARGUMENT
    if h.forked[0]:
        return SEQCAST_ENDED
    if timeout_ns:
        if PyGILState_Check():
            return SEQCAST_HOLDS_GIL
        until = deadline_of(timeout_ns)
    memset(&s, 0, sizeof(s))
    s.to = to
    s.beside = flags & SEQCAST_UNORDERED
    s.data = <const uint8_t *>data
    s.len = n
    s.state.at_once = timeout_ns == 0
    receives = timeout_ns and sc_load(&h.taker) == <int64_t>PyThread_get_thread_ident()
    result = sc_driver_send(h.d, &s, min(until, sc_now() + WATCH_NS) if receives else until)
    while result == SC_AGAIN:
        if not s.state.packed and sc_now() >= until:
            break
        if receives:  # no other thread receives, and this send may be waiting for exactly that
            kept = keep(h, &moved, &sendable, &rest, s.state.packed)
            if kept == SEQCAST_FAILED:
                sc_driver_send_end(h.d, &s)
                works_on(h, rest)
                return SEQCAST_FAILED
            s.receives = kept == KEPT
        # A large forward, once packed, waits to come back ordered even beyond `until`: its place may be given already.
        until = INT64_MAX if s.state.packed else until
        result = sc_driver_send(h.d, &s, min(until, sc_now() + WATCH_NS) if receives else until)
    sc_driver_send_end(h.d, &s)
    if rest:
        works_on(h, rest)
    if result == SC_SENT:
        return SEQCAST_OK
    if result == SC_AGAIN:
        return SEQCAST_NONE
    if s.state.packed:
        return SEQCAST_UNSURE
    if result == SC_NO_MEMBER:
        return SEQCAST_NO_MEMBER
    if result == SC_OBSERVER:
        return SEQCAST_OBSERVER
    return SEQCAST_TOO_LARGE if result == SC_TOO_LARGE else SEQCAST_ENDED


cdef int keep(handle *h, int64_t *moved, uint64_t *sendable, int64_t *rest, bint packed) noexcept with gil:
    """Takes all arrived items and keeps them for the next `poll`, as `Driver.finish` does. SEQCAST_FAILED: the limit
    of kept bytes is reached, and sending makes no progress."""
    cdef Receiver receiver = <Receiver>h.receiver
    cdef uint64_t now_sendable
    cdef int kept = RECEIVED_ELSEWHERE
    try:
        rest[0] = receiver._driver.engine.rests(sc_now())
        if receiver._stop is None and PyThread_acquire_lock(h.taking, NOWAIT_LOCK):
            try:
                receiver._keep_all()
                kept = KEPT_TO_THE_BRIM if receiver._is_full() else KEPT
            finally:
                h.by_python = needs_python(h, receiver)
                PyThread_release_lock(h.taking)
        if kept != KEPT_TO_THE_BRIM:
            moved[0] = 0
            return kept
        now_sendable = receiver._driver.engine.ask(sc_engine_sendable)
        if not moved[0] or now_sendable != sendable[0]:
            moved[0], sendable[0] = sc_now(), now_sendable
        elif not packed and (sc_now() - moved[0] > receiver._stuck_ns or receiver._waits_for_itself()):
            raise receiver._refusal(Refused(KEPT_FULL, 0), None, None)
        return kept
    except BaseException as error:
        return failed(h, error)


cdef void works_on(handle *h, int64_t rest) noexcept with gil:
    """A wait in which `keep` was called is over."""
    (<Receiver>h.receiver)._driver.engine.works_on(rest, sc_now())


cdef inline int64_t deadline_of(int64_t timeout_ns) noexcept nogil:
    return INT64_MAX if timeout_ns < 0 else time_after(sc_now(), timeout_ns)


cdef int embed_flush(seqcast_member *member) noexcept nogil:
    cdef handle *h = <handle *>member
    if h == NULL:
        return SEQCAST_BAD_ARGUMENT
    if h.forked[0]:
        return SEQCAST_ENDED
    sc_driver_flush(h.d, 1, sc_now())
    return SEQCAST_OK


# ---- receiving ---------------------------------------------------------------------------------------------------

cdef int embed_poll(seqcast_member *member, uint64_t budget, int64_t timeout_ns, seqcast_item **out) noexcept nogil:
    cdef handle *h = <handle *>member
    cdef lent_item *item
    cdef int result
    if out == NULL:
        return SEQCAST_BAD_ARGUMENT
    out[0] = NULL
    if h == NULL or budget == 0:
        return SEQCAST_BAD_ARGUMENT
    if timeout_ns and PyGILState_Check():
        return SEQCAST_HOLDS_GIL
    if h.forked[0]:
        return SEQCAST_ENDED
    if not PyThread_acquire_lock(h.taking, NOWAIT_LOCK):
        result = wait_for_turn(h, timeout_ns)
        if result != SEQCAST_OK:
            return result
    sc_store(&h.taker, <int64_t>PyThread_get_thread_ident())
    item = free_item(h)
    if item == NULL:
        result = SEQCAST_ALL_BORROWED
    elif h.by_python:
        result = take_by_python(h, item, 0, NULL, timeout_ns)
    else:
        result = take(h, item, budget, timeout_ns)
    if result == SEQCAST_OK:
        sc_store(&item.used, 1)
        sc_store(&item.lent, 1)
        out[0] = &item.item
    PyThread_release_lock(h.taking)
    return result


cdef lent_item *free_item(handle *h) noexcept nogil:
    cdef int i
    for i in range(ITEMS):
        if not sc_load(&h.items[i].used):
            return &h.items[i]
    return NULL


cdef int wait_for_turn(handle *h, int64_t timeout_ns) noexcept with gil:
    """Waits for the lock of the stream, which another thread has."""
    try:
        return SEQCAST_OK if (<Receiver>h.receiver).wait_turn(timeout_ns) else SEQCAST_NONE
    except BaseException as error:
        return failed(h, error)


cdef int take(handle *h, lent_item *item, uint64_t budget, int64_t timeout_ns) noexcept nogil:
    cdef uint64_t marker = 0
    cdef int64_t now = sc_now()
    cdef int64_t until = 0 if timeout_ns == 0 else INT64_MAX if timeout_ns < 0 else time_after(now, timeout_ns)
    cdef int64_t wall
    cdef int result
    while True:  # the call returns early if another thread wakes this one
        result = sc_driver_deliver(h.d, &item.batch, budget, &marker, until, 0, now, &wall)
        if result == SC_DELIVER_BATCH:
            break
        if result == SC_DELIVER_MARKER:
            return take_by_python(h, item, marker, NULL, timeout_ns)
        if result == SC_DELIVER_SKIPPED:
            return take_by_python(h, item, 0, &item.batch.skipped, timeout_ns)
        if sc_load(&h.d.stop):  # another thread leaves: Python knows whether the stream has ended
            result = take_by_python(h, item, 0, NULL, 0)
            if result != SEQCAST_NONE:
                return result
        now = sc_now()
        if now >= until:
            return SEQCAST_NONE
    if item.batch.n > 1:
        sc_driver_taken(h.d)
    if item.batch.n_pieces and sc_batch_flatten(&item.batch):
        return without_memory(h)
    hand_out(item, &item.batch, 0)
    return SEQCAST_OK


cdef inline void hand_out(lent_item *item, const sc_batch *batch, uint32_t first) noexcept nogil:
    item.item.kind = SEQCAST_MESSAGES
    item.item.n = batch.n - first
    item.item.bytes = batch.borrowed_bytes + batch.data_len
    item.messages = batch
    item.run = 0
    item.at = first


cdef int take_by_python(
    handle *h, lent_item *item, uint64_t marker, const sc_skipped *skipped, int64_t timeout_ns
) noexcept with gil:
    """Takes the next item as the Python classes do: a kept one, or the event that a marker or a gap stands for.
    Under `taking`."""
    cdef Receiver receiver = <Receiver>h.receiver
    try:
        if receiver._again:
            next_one = receiver._again.pop(0)
        elif marker:
            next_one = receiver._marked(marker, timeout_ns)
        elif skipped != NULL:
            next_one = receiver._reached(skipped_in(receiver._delivered_view, skipped), timeout_ns)
        else:
            next_one = receiver.next_item(timeout_ns)
        if receiver._untaken:
            receiver.tell_taken()
        if next_one is None:
            return SEQCAST_NONE
        if isinstance(next_one, Batch):
            lend_batch(item, next_one)
        else:
            lend_event(item, next_one, receiver)
        return SEQCAST_OK
    except NotMember:
        return SEQCAST_ENDED
    except BaseException as error:
        return failed(h, error)
    finally:
        h.by_python = needs_python(h, receiver)


cdef int lend_batch(lent_item *item, Batch batch) except -1:
    batch.flatten()
    hand_out(item, &batch.b, batch.first)
    item.item.bytes = batch.nbytes
    Py_INCREF(batch)
    item.owner = <PyObject *>batch
    return 0


cdef int lend_event(lent_item *item, event, Receiver receiver) except -1:
    cdef seqcast_item *it = &item.item
    cdef uint32_t kind = KINDS[type(event).__name__]
    cdef bytes text = str(event).encode("utf-8", "replace")
    cdef bytes ids, names
    cdef list kept = [event, text]
    cdef Py_ssize_t i
    memset(it, 0, sizeof(it[0]))  # may hold fields of an earlier batch
    members = event.members if kind in (SEQCAST_VIEW, SEQCAST_MERGE_VIEW) else ()
    if kind == SEQCAST_COORDINATOR_CHANGED:
        members = (event.coordinator, event.previous)
    elif kind == SEQCAST_SKIPPED:
        members = (event.sender,)
    if members:
        it.n = len(members)
        ids = PyBytes_FromStringAndSize(NULL, it.n * sizeof(uint64_t))
        names = PyBytes_FromStringAndSize(NULL, it.n * sizeof(char *))
        kept += [ids, names]
        for i, member in enumerate(members):
            name = member.name.encode("utf-8", "replace")
            kept.append(name)
            (<uint64_t *>PyBytes_AS_STRING(ids))[i] = member.id
            (<const char **>PyBytes_AS_STRING(names))[i] = PyBytes_AS_STRING(name)
        it.ids = <const uint64_t *>PyBytes_AS_STRING(ids)
        it.names = <const char *const *>PyBytes_AS_STRING(names)
        if kind != SEQCAST_SKIPPED:
            it.view = event.view_id.counter
    if kind in (SEQCAST_VIEW, SEQCAST_MERGE_VIEW):
        it.rank = event.rank(receiver._driver.d.io.config.member)
        it.sequencer = event.sequencer
    it.kind = kind
    it.text = PyBytes_AS_STRING(text)
    it.event = <void *>event
    Py_INCREF(kept)
    item.owner = <PyObject *>kept
    return 0


cdef const seqcast_message *embed_next(seqcast_item *it) noexcept nogil:
    cdef lent_item *item = <lent_item *>it
    cdef const sc_run *run
    cdef uint32_t k
    cdef size_t n = 0
    if item == NULL or item.messages == NULL or item.at >= item.messages.n:
        return NULL
    run = &item.messages.runs[item.run]
    while item.at >= run.first + run.n:
        item.run += 1
        run += 1
    k = item.at - run.first
    item.message.data = sc_batch_message(item.messages, item.run, item.at, &n)
    item.message.len = n
    item.message.sender = run.sender
    item.message.seqno = run.seqno
    item.message.global_seqno = run.global_seqno + k if run.global_seqno else 0
    item.message.sent_ns = run.sent_ns
    item.message.index = run.index + k
    item.message.flags = (SEQCAST_UNICAST if run.unicast else 0) | (SEQCAST_TRANSITIONAL if run.transitional else 0)
    item.at += 1
    return &item.message


cdef int embed_give_back(seqcast_member *member, seqcast_item *it) noexcept nogil:
    cdef handle *h = <handle *>member
    cdef lent_item *item = <lent_item *>it
    cdef size_t at
    if h == NULL or item == NULL:
        return SEQCAST_BAD_ARGUMENT
    at = <size_t>item - <size_t>&h.items[0]  # a foreign pointer gives an arbitrary number
    if at >= sizeof(h.items) or at % sizeof(lent_item) or not sc_exchange(&item.lent, 0):
        return SEQCAST_NOT_BORROWED
    item.messages = NULL
    if item.owner != NULL:
        release_owner(item)
    if item.batch.n_slabs and not h.forked[0]:  # memory without slabs is used again by the next batch
        sc_mutex_lock(h.lock)
        sc_engine_give_back(h.e, &item.batch)
        sc_mutex_unlock(h.lock)
    if item.batch.data_cap > KEPT_BYTES and not item.batch.n_slabs:
        sc_batch_clear(&item.batch)
    sc_store(&item.used, 0)
    return SEQCAST_OK


cdef void release_owner(lent_item *item) noexcept with gil:
    memset(&item.item, 0, sizeof(item.item))
    Py_CLEAR(item.owner)


# ---- event loops -------------------------------------------------------------------------------------------------

cdef intptr_t embed_descriptor(seqcast_member *member) noexcept nogil:
    cdef handle *h = <handle *>member
    if h == NULL:
        return SEQCAST_BAD_ARGUMENT
    if h.forked[0]:
        return SEQCAST_ENDED
    if sc_driver_watch_open(h.d) != 0:
        return without_descriptor(h)
    h.watching = True
    return <intptr_t>sc_driver_watch_fd(h.d)


cdef int embed_watch(seqcast_member *member) noexcept nogil:
    cdef handle *h = <handle *>member
    cdef int64_t ready
    if h == NULL or not h.watching:
        return SEQCAST_BAD_ARGUMENT
    ready = sc_load(&h.ready)
    if ready == MERGES and not h.forked[0]:  # `poll` merges; until then the descriptor is not readable
        sc_sleep(MERGE_NS)
    if h.forked[0] or ready:
        return SEQCAST_OK
    return SEQCAST_OK if sc_driver_watched(h.d) else SEQCAST_NONE


# ---- errors ------------------------------------------------------------------------------------------------------

cdef int failed(handle *h, error) noexcept:
    cdef PyObject *before = h.error
    cdef bytes text = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
    if isinstance(error, KeyboardInterrupt):
        PyErr_SetInterrupt()  # raised when Python runs again
    Py_INCREF(text)
    h.error = <PyObject *>text
    h.text = PyBytes_AS_STRING(text)
    Py_XDECREF(before)
    return SEQCAST_FAILED


cdef int without_memory(handle *h) noexcept with gil:
    return failed(h, MemoryError("the messages of a batch are lost"))


cdef int without_descriptor(handle *h) noexcept with gil:
    return failed(h, OSError(EMFILE, "no descriptor is left"))


cdef const char *embed_error(const seqcast_member *member) noexcept nogil:
    cdef const handle *h = <const handle *>member
    if h == NULL:
        return NULL
    return h.text


cdef seqcast_table table
table.version = SEQCAST_EMBED_VERSION
table.size = sizeof(table)
table.open = embed_open
table.send = embed_send
table.flush = embed_flush
table.poll = embed_poll
table.next = embed_next
table.give_back = embed_give_back
table.descriptor = embed_descriptor
table.watch = embed_watch
table.error = embed_error
table.close = embed_close

EMBED_TABLE = PyCapsule_New(&table, b"seqcast.embed.table", NULL)
