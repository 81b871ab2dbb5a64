"""Challenges: how a process learns that a JOIN or a BEACON is not a recording, if there is a key.

A recorded frame is sealed, and signed, correctly whenever it comes again. Timeline without this: somebody without any
secret repeats a BEACON of a view that has ended. No joiner founds a group, as each seems to hear one, and a group gives
way to an apparently larger one. Or the JOIN of a process that has ended is repeated: all joiners vote for that
process, or admit it.

So a JOIN counts for joiners, and a BEACON for all outside its view, only if its sender has lately returned a number, in
another JOIN, or BEACON of the same view. The number follows from the process that asks and from the time, so recorded
answers do not count for long. (Inside a view a JOIN shows the same by its cookie; see ``rules/cookies.py``.)
"""

from __future__ import annotations

import hashlib
from typing import TypeVar

from seqcast.core.context import NEVER, Context
from seqcast.core.frames.joining import Challenge, Join
from seqcast.core.frames.merging import Beacon
from seqcast.types import MEMBERS_MAX

K = TypeVar("K")
SENDERS_MAX = 4 * MEMBERS_MAX
"""The most senders that are remembered."""


class Challenges:
    def __init__(self, context: Context) -> None:
        self.context = context
        settings = context.settings
        self.lasts_ns = max(settings.joiner_seen_ns, 3 * settings.beacon_ns)
        self._answered: dict[tuple[int, int], int] = {}  # sender, and tag of its view or 0 -> ns
        self._asked: dict[int, int] = {}  # sender -> ns

    def note(self, frame: Join | Beacon, sender: int) -> None:
        """A frame that came: perhaps with the number that we asked for.

        With identities, a JOIN shows the one of the named joiner: a JOIN without any comes as far as here, as it is
        refused by name, and so does that of a process that is not on the list. Timeline without this: somebody with
        the key alone returns the number in the name of a joiner that is gone, and repeats its recorded JOIN, which
        counts.
        """
        if not self._used or frame.answers not in self._numbers():
            return
        if not isinstance(frame, Join) or not self.context.identities.fault(frame.info):
            _remember(self._answered, (sender, _tag(frame)), self.context.now)

    def lacks_answer(self, frame: Join | Beacon, sender: int) -> bool:
        """May the frame be a recording?"""
        return self._used and self._age(frame, sender) >= self.lasts_ns

    def ask(self, frame: Join | Beacon, sender: int, address: bytes) -> None:
        """Asks its sender for an answer, unless there is one that counts for a while yet, or we have just asked."""
        context = self.context
        asked_ns = context.now - self._asked.get(sender, -NEVER)
        old = self._used and self._age(frame, sender) >= self.lasts_ns // 2
        if old and asked_ns >= context.settings.join_ns_min // 2:
            _remember(self._asked, sender, context.now)
            context.send(Challenge(frame.nonce, self._numbers()[0]), sender, address)

    @property
    def _used(self) -> bool:
        return self.context.settings.exchange is not None

    def _age(self, frame: Join | Beacon, sender: int) -> int:
        """Of the last answer."""
        return self.context.now - self._answered.get((sender, _tag(frame)), -NEVER)

    def _numbers(self) -> tuple[int, int]:
        """Of now, and the one before."""
        period = self.context.now // self.lasts_ns
        nonce = self.context.settings.nonce
        return _digest(nonce, period), _digest(nonce, period - 1)


def _digest(nonce: int, period: int) -> int:
    said = nonce.to_bytes(8, "little") + period.to_bytes(8, "little", signed=True)
    return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest(), "little") | 2  # never `NOBODY`, nor 0


def _tag(frame: Join | Beacon) -> int:
    return frame.view_id.tag if isinstance(frame, Beacon) else 0


def _remember(known: dict[K, int], key: K, now: int) -> None:
    known.pop(key, None)
    if len(known) >= SENDERS_MAX:
        del known[next(iter(known))]
    known[key] = now
