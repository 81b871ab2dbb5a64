"""A digest of all that happened in a run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from seqcast.sim.record import Delivered, Entry, Record


def digest(records: Sequence[Record], packets: int) -> str:
    """A digest of all that happened: equal runs have equal digests."""
    total = hashlib.blake2b(digest_size=8)
    total.update(str(packets).encode())
    for record in records:
        total.update(f"\n{record.name}\n".encode())
        for entry in record.log:
            total.update(_words(entry).encode())
    return total.hexdigest()


def _words(entry: Entry) -> str:
    if isinstance(entry, Delivered):
        return f"{entry.sender} {entry.counter} {entry.to} {entry.tag} {entry.global_seqno}\n"
    return f"{type(entry).__name__} {entry}\n"
