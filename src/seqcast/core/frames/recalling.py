"""How processes that started again close their last view, whose votes are kept on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from seqcast.core.frames.codec import dump_fields, fields_of, load_fields, need
from seqcast.core.frames.fields import Attempt, Flag, Id, Promise
from seqcast.core.frames.joining import Views
from seqcast.core.frames.traits import control
from seqcast.core.frames.view import Nested
from seqcast.errors import RemoteProtocolError


class Taken(NamedTuple):
    """A VIEW that a member accepted, and under which attempt."""

    under: Attempt
    view: Nested


@dataclass(frozen=True, slots=True)
class Kept:
    """The votes of a member, kept beyond its end (``stable=``).

    Args:
        view: the last known one; perhaps one without this member.
        promise: the highest attempt to close this view that this member answered.
        accepted: the VIEW accepted last as the successor.
        votes: this member was in the view, or accepted the VIEW, and so may vote. One that only heard of the view may
            have been a member and have an old file.
        views: the last known ones, this view included, the newest last.
    """

    view: Nested
    promise: Promise = (0, -1)
    accepted: Taken | None = None
    votes: Flag = True
    views: Views = ()

    def dump(self) -> bytes:
        return json.dumps(dump_fields(self, _FIELDS), separators=(",", ":"), ensure_ascii=False).encode()

    @staticmethod
    def load(data: bytes) -> Kept:
        """
        Raises:
            RemoteProtocolError: not one.
        """
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise RemoteProtocolError(f"not JSON: {error}") from None
        need(isinstance(value, dict), "not an object")
        kept: Kept = load_fields(Kept, value, _FIELDS, "kept")
        return kept

    def rank(self, name: str) -> int:
        """The rank of the member of this name that has a vote in the view; -1: there is none."""
        if not self.votes:
            return -1
        found = (rank for rank, info in enumerate(self.view.members) if info.name == name and not info.observer)
        return next(found, -1)


_FIELDS = fields_of(Kept)


@control("recall", "flush", outside=True, to_one=True, signed=True)
@dataclass(frozen=True, slots=True)
class Recall:
    """To one that started again: vote, as the member of ``view`` that you were. With ``proposal``: accept this VIEW."""

    view: Id
    attempt: Attempt
    proposal: Nested | None = None


@control("recalled", "flush", outside=True, to_one=True, signed=True)
@dataclass(frozen=True, slots=True)
class Recalled:
    """The answer of one that was ``member`` of the view, and no longer is.

    Args:
        promise: the promised attempt; one above ``attempt`` says no.
        accepted: the VIEW accepted last; left out with ``done``.
        done: the proposal is accepted.
    """

    view: Id
    attempt: Attempt
    member: Id
    promise: Promise
    accepted: Taken | None = None
    done: Flag = False


Recalling = Recall | Recalled
