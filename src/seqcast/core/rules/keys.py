"""The keys of a file, as members know those of each other, and the choice of the one that seals outside views.

While a key is replaced, the files of members differ. So each member states the ids of the keys in its file, in JOIN and
INFO_TOLD, and VIEWs repeat them. An id has the number of its line, and a part of a digest, as two files may give one
number to two keys.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from seqcast.types import Secret

NUMBERS = 32
"""As ``config.keys.IDS``."""


@dataclass(frozen=True, slots=True)
class FileKey:
    """A key of the file, as one cluster uses it.

    Args:
        id: tells it apart from other keys.
        secret: seals.
        cookie: computes the cookies of joiners.
    """

    id: int
    secret: Secret = field(repr=False)
    cookie: Secret = field(repr=False)


def number_of(key: int) -> int:
    """The number of the key with this id, in its line and in the datagrams that it seals."""
    return key % NUMBERS


def best(own: Sequence[int], members: Collection[Collection[int]], others: Collection[Collection[int]]) -> list[int]:
    """The keys that are best to seal with, in the order of our file: those that most members of our view open, and of
    these, those that most others open whom we hear. A key that is not in our file is never among them.

    Args:
        own: ids of the keys in our file.
        members, others: of each, the ids of the keys in its file.
    """

    def reach(key: int) -> tuple[int, int]:
        return sum(key in opens for opens in members), sum(key in opens for opens in others)

    most = max(map(reach, own))
    return [key for key in own if reach(key) == most]


def shared(files: Collection[Collection[int]]) -> bool:
    """Is there a key that is in all these files?"""
    first, *others = map(set, files)
    return bool(first.intersection(*others))
