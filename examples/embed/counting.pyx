# cython: language_level=3
"""The replicated counter of counter.c, in Cython: ``python setup.py build_ext --inplace``, then ``count(...)``."""

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.stdio cimport printf
from libc.string cimport memcpy
from seqcast.embed cimport (
    SEQCAST_MERGE_VIEW, SEQCAST_MESSAGES, SEQCAST_OK, SEQCAST_VIEW, seqcast_import, seqcast_item, seqcast_member,
    seqcast_message, seqcast_table,
)

import seqcast

cdef const seqcast_table *table = seqcast_import()


cdef class Counter:
    cdef seqcast_member *member
    cdef readonly uint32_t members
    cdef readonly uint64_t increments, total, received
    cdef bint sent

    def __init__(self, group, uint32_t members, uint64_t increments):
        self.members = members
        self.increments = increments
        self.member = table.open(group)

    def __dealloc__(self):
        if self.member != NULL:
            table.close(self.member)

    def run(self):
        """Sends the increments once all members have joined, and receives those of all."""
        cdef int code = SEQCAST_OK
        cdef seqcast_item *item
        with nogil:
            while code == SEQCAST_OK and self.received < self.members * self.increments:
                code = table.poll(self.member, 1 << 20, 30_000_000_000, &item)
                if code == SEQCAST_OK:
                    code = self.take(item)
                    table.give_back(self.member, item)
        if code != SEQCAST_OK:
            text = table.error(self.member)
            raise RuntimeError(f"seqcast returned {code}: {text.decode() if text != NULL else 'see seqcast/embed.h'}")

    cdef int take(self, seqcast_item *item) noexcept nogil:
        cdef const seqcast_message *message = table.next(item)
        cdef uint64_t by = 0
        while message != NULL:
            if message.len == sizeof(by):
                memcpy(&by, message.data, sizeof(by))
                self.total += by
                self.received += 1
            message = table.next(item)
        if item.kind != SEQCAST_MESSAGES:
            printf("%s\n", item.text)
        if item.kind in (SEQCAST_VIEW, SEQCAST_MERGE_VIEW) and item.n == self.members and not self.sent:
            return self.send(item.rank)
        return SEQCAST_OK

    cdef int send(self, int32_t rank) noexcept nogil:
        cdef uint64_t by = <uint64_t>rank + 1
        cdef int code = SEQCAST_OK
        cdef uint64_t _
        for _ in range(self.increments):
            code = table.send(self.member, 0, 0, &by, sizeof(by), -1)
            if code != SEQCAST_OK:
                break
        self.sent = True
        return code


def count(cluster, name, members, increments, interface=""):
    """Joins, counts and leaves; returns the number of messages received, and their sum."""
    with seqcast.join(cluster, name=name, interface=interface) as group:
        counter = Counter(group, members, increments)
        counter.run()
        return counter.received, counter.total
