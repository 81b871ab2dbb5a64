"""Cookies: how a joiner shows its presence before the group spends a view, if there is a key.

A recorded JOIN is sealed correctly whenever it comes again. So the first answer to a joiner is a WAIT with a number
that nobody can compute without the key, and only a JOIN that brings this number back counts. The number follows from
the joiner, its address and the view: all members know the number without remembering anything, until the view ends.
"""

from __future__ import annotations

import hashlib

from seqcast.types import Secret

NO_COOKIE = 1


def cookie(secret: Secret, joiner: int, address: bytes, tag: int) -> int:
    """The number for a joiner.

    Args:
        secret: of the cluster.
        tag: of the view.
    """
    said = joiner.to_bytes(8, "little") + tag.to_bytes(8, "little") + address
    return int.from_bytes(hashlib.blake2b(said, digest_size=8, key=secret).digest(), "little") | 2
