# Contents page of the engine for other compiled modules (the socket driver): native/engine/engine.h and its classes.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "io/port.h" nogil:
    ctypedef struct sc_mutex:
        pass
    void sc_mutex_init(sc_mutex *m)
    void sc_mutex_destroy(sc_mutex *m)
    void sc_mutex_lock(sc_mutex *m)
    void sc_mutex_unlock(sc_mutex *m)


cdef extern from "memory/slab.h" nogil:
    ctypedef struct sc_slab_pool:
        pass
    ctypedef struct sc_slab:
        uint8_t *data
    enum:
        SC_SLAB_BYTES
    ctypedef struct sc_sharing:
        pass
    sc_slab *sc_slab_get(sc_slab_pool *pool)
    uint8_t *sc_slab_share(sc_slab_pool *pool, sc_sharing *sharing, size_t n, sc_slab **slab)
    void sc_slab_unref(sc_slab *slab)


cdef extern from "wire/wire.h" nogil:
    enum:
        SC_MEMBERS_MAX
        SC_PACKET_MAX
    const uint64_t SC_SEQNO_MAX


cdef extern from "seal/secret.h" nogil:
    void *sc_secret_new(size_t bytes)
    void sc_secret_overwrite(void *p, size_t bytes)
    void sc_secret_free(void *p, size_t bytes)


cdef extern from "seal/seal.h" nogil:
    enum:
        SC_SEAL_ROOM
        SC_SEAL_SECRET
        SC_SEAL_SECRETS
        SC_SEAL_MARKS
        SC_CIPHERS
    ctypedef struct sc_seal_secret:
        uint8_t mark
        uint8_t secret[32]
    ctypedef void *sc_cipher_seal
    ctypedef void *sc_cipher_open
    ctypedef void *sc_cipher_hash
    ctypedef void *sc_cipher_random
    ctypedef struct sc_cipher:
        sc_cipher_seal seal
        sc_cipher_open open
    ctypedef struct sc_cipher_library:
        sc_cipher *ciphers
        sc_cipher_hash hash
        sc_cipher_random random


cdef extern from "hash/crc32c.h" nogil:
    uint32_t sc_crc32c(uint32_t crc, const void *p, size_t n)


cdef extern from "streams/tx.h" nogil:
    uint32_t sc_charge(uint32_t len, int full)
    uint32_t sc_charge_most(uint32_t packet_bytes)

cdef extern from "order/order.h" nogil:
    ctypedef struct sc_order_ops:
        const char *name

    const sc_order_ops *sc_order_of(uint32_t mechanism)


cdef extern from "board/board.h" nogil:
    enum:
        SC_BOARD_BYTES
    ctypedef struct sc_board_part:
        uint64_t used
        uint32_t n
        uint32_t entry
    ctypedef struct sc_board:
        pass
    void sc_board_begin(sc_board *b)
    void sc_board_open(sc_board *b)
    sc_board_part *sc_board_add(sc_board *b, const char *name, const char *fields, uint32_t entry, uint32_t n)
    uint64_t *sc_board_at(sc_board *b, const sc_board_part *part, uint32_t i)
    void sc_board_write(sc_board_part *part)
    void sc_board_written(sc_board_part *part, uint64_t used)


cdef extern from "engine/engine.h" nogil:
    enum:
        SC_ADDRESS_MAX
        SC_LANE_DATA
        SC_LANE_CONTROL
        SC_LANE_UNICAST
        SC_TX_SEGMENTS
        SC_SENT
        SC_AGAIN
        SC_NO_VIEW
        SC_NO_MEMBER
        SC_TOO_LARGE
        SC_ENDED
        SC_OBSERVER
        SC_DELIVER_NONE
        SC_DELIVER_BATCH
        SC_DELIVER_MARKER
        SC_DELIVER_SKIPPED
        SC_EVENT_CONTROL
        SC_EVENT_SUSPECT
        SC_EVENT_ALIVE
        SC_EVENT_CUT_REACHED
        SC_EVENT_LINKS
        SC_EVENT_DRAINED
        SC_EVENT_KEY
        SC_EVENT_WORN
        SC_EVENT_FOREIGN
        SC_EVENT_OFFERS
        SC_EVENT_STARVED
        SC_EVENT_SLOW
        SC_EVENT_HOLDUP
        SC_EVENT_TOO_SLOW
        SC_EVENT_WAY
        SC_EVENT_STRANGER
        SC_EVENT_LOST
        SC_EVENT_SIZE

    enum:
        SC_WAY_MULTICAST
        SC_EVIDENCE_PORT
        SC_EVIDENCE_GUARD

    ctypedef struct sc_address:
        uint8_t len
        uint8_t *bytes

    ctypedef struct sc_config:
        uint64_t member
        uint32_t group
        uint32_t deliver_own
        uint32_t receive
        uint32_t observer
        uint32_t unicast
        uint32_t mixed
        uint32_t pulled
        uint32_t piece_bytes
        uint32_t slabs_max
        uint64_t ring_bytes
        uint64_t unicast_bytes
        uint32_t ring_packets
        uint64_t message_bytes_max
        uint64_t control_bytes_max
        uint64_t blocked_bytes_max
        int64_t nak_delay_ns
        int64_t nak_backoff_ns_min
        int64_t nak_backoff_ns_max
        int64_t retransmit_hold_ns
        uint64_t retransmit_bytes_per_s
        uint32_t congestion
        uint64_t send_bytes_per_s
        int64_t ack_delay_ns
        uint64_t ack_bytes
        uint32_t ack_packets
        int64_t probe_ns_min
        int64_t probe_ns_max
        int64_t heartbeat_ns
        int64_t suspect_ns
        int64_t suspect_ns_max
        int64_t install_ns
        int64_t slow_ns
        uint32_t skips
        int64_t policy_ns
        uint64_t sealings_max
        uint64_t seed

    ctypedef struct sc_engine:
        pass

    ctypedef struct sc_tx:
        int lane
        sc_address to
        uint32_t n
        uint32_t segment
        uint64_t bytes
        const uint8_t **p
        uint32_t *len

    ctypedef struct sc_targets:
        uint64_t view
        uint32_t n
        uint32_t alone
        uint32_t together
        uint32_t first
        sc_address *to

    ctypedef struct sc_send_state:
        uint64_t done
        uint64_t epoch
        uint64_t wait_seqno
        int packed
        int at_once

    ctypedef struct sc_own:
        uint64_t first
        uint64_t last
        uint64_t all
        uint64_t any

    ctypedef struct sc_run:
        uint64_t sender
        uint64_t seqno
        uint64_t global_seqno
        int64_t sent_ns
        uint32_t first
        uint32_t n
        uint32_t index
        uint16_t unicast
        uint16_t transitional

    ctypedef struct sc_piece:
        const uint8_t *data
        uint32_t len

    ctypedef struct sc_wholes:
        pass

    ctypedef struct sc_place:
        uint32_t piece
        uint32_t pieces
        uint32_t at
        uint32_t copied
        const uint8_t *data
        sc_wholes wholes

    ctypedef struct sc_skipped:
        uint64_t sender
        uint64_t first
        uint64_t last
        uint64_t messages

    ctypedef struct sc_batch:
        uint8_t *data
        uint64_t data_len
        uint64_t data_cap
        int32_t *offsets
        uint32_t n
        uint32_t n_copied
        sc_run *runs
        sc_place *places
        sc_piece *pieces
        uint32_t n_runs
        uint32_t n_pieces
        uint32_t n_slabs
        uint64_t borrowed_bytes
        uint64_t view_tag
        uint64_t packet_bytes
        sc_skipped skipped

    ctypedef struct sc_event:
        int kind
        int evidence
        uint64_t rate
        int64_t took
        uint64_t sender
        uint64_t view_tag
        sc_address from_ "from"
        uint8_t *payload
        size_t len

    ctypedef struct sc_view:
        uint64_t tag
        uint32_t n
        uint32_t rank
        uint32_t mechanism
        int32_t sequencer
        uint64_t window_bytes
        uint64_t share_bytes
        uint64_t room_bytes
        uint64_t forward_window_bytes
        uint64_t unicast_window_bytes
        uint64_t state_window_bytes
        uint32_t packet_bytes
        uint32_t path_bytes
        uint32_t safe
        uint32_t merge
        uint8_t *apart
        uint8_t *fell
        uint64_t *ids
        sc_address *addresses
        uint64_t *base
        uint64_t *origin_base

    ctypedef struct sc_fetch:
        uint64_t lo
        uint64_t hi
        uint32_t rank
        uint32_t holder

    ctypedef struct sc_stream_state:
        uint64_t delivered
        uint64_t received
        uint64_t stable
        uint64_t lacks
        int64_t rtt

    sc_engine *sc_engine_new(const sc_config *config)
    void sc_engine_free(sc_engine *e)
    sc_slab_pool *sc_engine_pool(sc_engine *e)
    int sc_engine_seal(sc_engine *e, const sc_cipher_library *library, const sc_seal_secret *secrets, size_t n)
    void sc_engine_refile(sc_engine *e, const sc_seal_secret *secrets, size_t n)
    int sc_engine_know(sc_engine *e, uint64_t tag, unsigned cipher, const uint8_t *secret)
    int sc_engine_receive(sc_engine *e, sc_slab *slab, uint8_t *p, size_t n, size_t segment,
                          const sc_address *source, int64_t now)
    void sc_engine_refused(sc_engine *e, const sc_address *to, int evidence, int64_t now)
    void sc_engine_tick(sc_engine *e, int64_t now)
    int64_t sc_engine_deadline(const sc_engine *e)
    int sc_engine_transmit(sc_engine *e, sc_tx *out, int max, int64_t now, int all)
    int sc_engine_targets(const sc_engine *e, sc_targets *out)
    uint64_t sc_engine_unsent(const sc_engine *e)
    int sc_engine_urgent(const sc_engine *e)
    uint64_t sc_engine_send_batch(sc_engine *e, int beside, const uint8_t *data, const uint64_t *offsets,
                                  uint64_t first, uint64_t n, sc_send_state *state, int64_t wall, int *result)
    int sc_engine_send(sc_engine *e, uint64_t to, int beside, const uint8_t *p, uint64_t n, sc_send_state *state,
                       int64_t wall)
    void sc_engine_send_abort(sc_engine *e, uint64_t to, sc_send_state *state)
    uint64_t sc_engine_blocked(const sc_engine *e)
    uint64_t sc_engine_queued(const sc_engine *e)
    ctypedef enum sc_blocked_oldest:
        SC_OLDEST_NOT_PACKED
        SC_OLDEST_PACKED
        SC_OLDEST_PACKED_BEFORE

    sc_blocked_oldest sc_engine_blocked_oldest(const sc_engine *e)
    uint64_t sc_engine_blocked_end(sc_engine *e)
    uint64_t sc_engine_unordered(const sc_engine *e)
    void sc_engine_end_sends(sc_engine *e)
    int sc_engine_drained(const sc_engine *e)
    void sc_engine_own(const sc_engine *e, sc_own *out)
    enum:
        SC_HEAD_MAX
        SC_OFFERS_MAX
    ctypedef struct sc_offer:
        uint64_t seqno
        int64_t sent_ns
        uint32_t rank
        uint32_t messages
        uint32_t bytes
        uint32_t head_len
        uint8_t *head
    size_t sc_engine_offers(sc_engine *e, sc_offer *out, uint64_t *batch)
    int sc_engine_decide(sc_engine *e, uint64_t batch, const uint16_t *ranks, size_t n, int64_t now)
    uint32_t sc_engine_own_messages(const sc_engine *e, uint64_t seqno, int waiting)
    void sc_engine_unacknowledged(const sc_engine *e, uint64_t *out)
    ctypedef struct sc_stall:
        uint64_t member
        int64_t since
    size_t sc_engine_too_slow(const sc_engine *e, uint64_t *ids)
    size_t sc_engine_stalls(const sc_engine *e, sc_stall *out)
    uint64_t sc_engine_sendable(const sc_engine *e)
    int sc_engine_paced(sc_engine *e, uint64_t to)
    int sc_engine_deliver(sc_engine *e, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int64_t now)
    int sc_engine_keep(sc_engine *e, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int64_t now)
    void sc_engine_takes(sc_engine *e, sc_batch *batch, int64_t now)
    int64_t sc_engine_rests(sc_engine *e, int64_t now)
    void sc_engine_works_on(sc_engine *e, int64_t rest, int64_t now)
    uint64_t sc_engine_deliverable(const sc_engine *e)
    void sc_engine_taken(sc_engine *e)
    uint64_t sc_engine_consumed(sc_engine *e, int64_t now)
    uint64_t sc_engine_last_sent(const sc_engine *e)
    ctypedef struct sc_taking:
        int lost
    void sc_taking_begin(sc_engine *e, sc_taking *w, int64_t now)
    int sc_taking_state(const sc_engine *e, const sc_taking *w)
    void sc_taking_end(sc_engine *e, sc_taking *w)
    void sc_engine_give_back(sc_engine *e, sc_batch *batch)
    int sc_batch_flatten(sc_batch *batch)
    const uint8_t *sc_batch_message(const sc_batch *batch, uint32_t r, uint32_t i, size_t *len)
    void sc_batch_clear(sc_batch *batch)
    int sc_batch_unicasts(const sc_batch *batch, sc_batch *out)
    int sc_engine_state_send(sc_engine *e, uint64_t to, const uint8_t *p, uint64_t n, uint64_t *done, int64_t wall)
    void sc_engine_state_end(sc_engine *e, uint64_t to)
    void sc_engine_state_want(sc_engine *e, uint64_t sender)
    void sc_engine_state_void(sc_engine *e, uint64_t sender)
    size_t sc_engine_state_read(sc_engine *e, uint64_t sender, uint8_t *p, size_t n, int64_t now)
    int sc_engine_control_send(sc_engine *e, const sc_address *to, const uint8_t *p, size_t n, int outside)
    int sc_engine_stand(sc_engine *e, const uint8_t *p, size_t n, int64_t every, uint32_t times, int64_t now)
    int sc_engine_event(sc_engine *e, sc_event *out)
    size_t sc_engine_doubted(const sc_engine *e, uint64_t *ids)
    size_t sc_engine_links(sc_engine *e, bint unicast, uint64_t *pairs, size_t max)
    uint32_t sc_engine_path_bytes(const sc_engine *e)
    void sc_engine_measure(sc_engine *e, int64_t now)
    size_t sc_engine_strangers(const sc_engine *e, uint64_t tag)
    void sc_engine_show(sc_engine *e, const sc_address *to)
    void sc_engine_beat(sc_engine *e, int64_t now)
    uint64_t sc_engine_gate_close(sc_engine *e, int unicasts)
    void sc_engine_pause(sc_engine *e)
    void sc_engine_resume(sc_engine *e)
    int sc_engine_mark(sc_engine *e, uint64_t marker)
    void sc_engine_uncount(sc_engine *e, const uint64_t *lost, size_t n)
    void sc_engine_freeze(sc_engine *e, const uint64_t *lost, size_t n, int still)
    size_t sc_engine_held(const sc_engine *e, uint32_t rank, uint64_t *prefix, uint64_t *ranges, size_t max)
    void sc_engine_cut(sc_engine *e, const uint64_t *cut, const sc_fetch *fetch, size_t n_fetch)
    int sc_engine_cut_reached(const sc_engine *e)

    ctypedef struct sc_marks:
        uint64_t kept
        uint64_t delivered
        uint64_t received
        uint64_t consumed
        uint64_t window
        uint16_t claim

    int sc_engine_marks(sc_engine *e, uint32_t rank, sc_marks *out)
    size_t sc_engine_lacks(const sc_engine *e, uint32_t rank, uint64_t first, uint64_t last, uint64_t most,
                           uint64_t *ranges, size_t max)
    void sc_engine_ask(sc_engine *e, uint32_t rank, uint64_t lo, uint64_t hi, uint32_t holder, int64_t now)
    void sc_engine_vote(sc_engine *e, uint32_t rank, const sc_marks *marks, int64_t now)
    void sc_engine_stable(sc_engine *e, uint32_t rank, uint64_t seqno)
    void sc_engine_vouch(sc_engine *e, uint32_t rank, int64_t now)
    void sc_engine_greet(sc_engine *e, uint64_t id, const sc_address *to)
    void sc_engine_received_table(const sc_engine *e, uint64_t *out)
    int sc_engine_install(sc_engine *e, const sc_view *view, const uint64_t *cut, uint64_t marker, int64_t now)
    void sc_engine_close(sc_engine *e, const uint64_t *cut, const uint8_t *fell, uint64_t marker)
    uint64_t sc_engine_view(const sc_engine *e)
    size_t sc_engine_counter_values(const sc_engine *e, const char **names, uint64_t *values, size_t n)
    int sc_engine_board(sc_engine *e, sc_board *board)
    void sc_engine_note(sc_engine *e, uint64_t member, const char *text, size_t n, int64_t now)
    int sc_engine_stream(const sc_engine *e, uint32_t rank, sc_stream_state *out)


ctypedef uint64_t (*count)(const sc_engine *e) noexcept nogil
ctypedef size_t (*members)(const sc_engine *e, uint64_t *ids) noexcept nogil


cdef class Locked:
    cdef void *p
    cdef Py_ssize_t n


cdef class Engine:
    cdef sc_engine *e
    cdef sc_mutex lock  # held around every call of an sc_engine_* function; never during a system call
    cdef sc_batch spare[4]  # buffers of batches that were given back; guarded by the GIL
    cdef int n_spare
    cdef uint32_t members
    cdef sc_tx runs[8]  # that the last transmit gave; their bytes do not change until the next
    cdef int n_runs
    cdef sc_sharing slots  # of datagrams that were received into shared slabs
    cdef Py_buffer board  # `buf` is NULL if there is none
    cdef sc_board_part *about  # of it: text
    cdef bint forked  # in a child process: a thread that does not exist here may hold the lock
    cdef object sealed_by  # the functions with which datagrams are sealed must outlive the engine

    cdef seal_with(self, seal)
    cdef uint64_t ask(self, count question)
    cdef list ids_of(self, members question)
    cdef Batch new_batch(self)
    cdef void take_back(self, sc_batch *batch) noexcept
    cpdef object deliver(self, uint64_t bytes_max=*, int64_t now_ns=*, int64_t wall_ns=*, bint keeps=*)
    cpdef int takes(self, item, int64_t now_ns) except -1
    cpdef int64_t rests(self, int64_t now_ns) except -1
    cpdef int works_on(self, int64_t rest, int64_t now_ns) except -1


cdef class Batch:
    cdef sc_batch b
    cdef Engine owner
    cdef Batch whole  # the batch of which this is the rest, from message `first` on, in the same memory
    cdef uint32_t first
    cdef uint32_t cursor  # the next to be taken one by one
    cdef uint32_t run  # of the message that was taken last
    cdef object run_sender  # sender of that run; None: not looked up yet
    cdef dict senders  # of `view`, by id
    cdef readonly object view
    cdef object view_id
    cdef readonly int64_t delivered_ns

    cdef const int32_t *offsets_left(self) noexcept
    cdef int flatten(self) except -1
    cdef Py_ssize_t in_pieces(self, const sc_place *place) noexcept
    cdef bytes joined(self, const sc_place *place)
    cdef bytes payload(self, uint32_t r, uint32_t i)
    cdef object message(self, uint32_t r, uint32_t i, object sender)
    cdef object sender_of(self, const sc_run *run)
    cdef object next_message(self)


cdef class Message:
    cdef readonly object payload, sender, view_id, global_seqno
    cdef readonly uint64_t seqno
    cdef readonly int64_t sent_ns
    cdef readonly uint32_t index
    cdef readonly bint unicast, transitional

    cdef tuple fields(self)
