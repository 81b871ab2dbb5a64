# For Cython: `from seqcast.embed cimport ...`, compiled with include_dirs=[seqcast.get_include()].
from libc.stdint cimport int32_t, int64_t, intptr_t, uint8_t, uint32_t, uint64_t


cdef extern from "seqcast/embed.h":
    const uint32_t SEQCAST_EMBED_VERSION
    enum:
        SEQCAST_OK
        SEQCAST_NONE
        SEQCAST_ENDED
        SEQCAST_NO_MEMBER
        SEQCAST_OBSERVER
        SEQCAST_TOO_LARGE
        SEQCAST_UNSURE
        SEQCAST_BAD_ARGUMENT
        SEQCAST_HOLDS_GIL
        SEQCAST_ALL_BORROWED
        SEQCAST_NOT_BORROWED
        SEQCAST_IN_USE
        SEQCAST_FAILED
        SEQCAST_ITEMS_MAX
        SEQCAST_UNORDERED
        SEQCAST_MESSAGES
        SEQCAST_VIEW
        SEQCAST_MERGE_VIEW
        SEQCAST_LOST
        SEQCAST_BLOCKED
        SEQCAST_UNBLOCKED
        SEQCAST_INTERFACE_CHANGED
        SEQCAST_EXCLUDED
        SEQCAST_LEFT
        SEQCAST_COORDINATOR_CHANGED
        SEQCAST_SKIPPED
        SEQCAST_UNICAST
        SEQCAST_TRANSITIONAL

    ctypedef struct seqcast_member:
        pass

    ctypedef struct seqcast_message:
        const uint8_t *data
        uint64_t len
        uint64_t sender
        uint64_t seqno
        uint64_t global_seqno
        int64_t sent_ns
        uint32_t index
        uint32_t flags

    ctypedef struct seqcast_item:
        uint32_t kind
        uint32_t n
        uint64_t bytes
        const uint64_t *ids
        const char *const *names
        uint64_t view
        int32_t rank
        int32_t sequencer
        const char *text
        void *event

    ctypedef struct seqcast_table:
        uint32_t version
        uint32_t size
        seqcast_member *(*open)(object group) except NULL
        int (*send)(seqcast_member *member, uint64_t to, uint32_t flags, const void *data, size_t len,
                    int64_t timeout_ns) noexcept nogil
        int (*flush)(seqcast_member *member) noexcept nogil
        int (*poll)(seqcast_member *member, uint64_t budget, int64_t timeout_ns, seqcast_item **item) noexcept nogil
        const seqcast_message *(*next)(seqcast_item *item) noexcept nogil
        int (*give_back)(seqcast_member *member, seqcast_item *item) noexcept nogil
        intptr_t (*descriptor)(seqcast_member *member) noexcept nogil
        int (*watch)(seqcast_member *member) noexcept nogil
        const char *(*error)(const seqcast_member *member) noexcept nogil
        int (*close)(seqcast_member *member) noexcept nogil

    const seqcast_table *seqcast_import() except NULL
