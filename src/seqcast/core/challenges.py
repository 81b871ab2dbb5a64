"""Challenges: how a process learns that a JOIN or a BEACON is not a recording, if there is a key.

A recorded frame is sealed, and signed, correctly whenever it comes again. Timeline without this: somebody without any
secret repeats a BEACON of a view that has ended. No joiner founds a group, as each seems to hear one, and a group gives
way to an apparently larger one. Or the JOIN of a process that has ended is repeated: all joiners vote for that
process, or admit it.

So a JOIN counts for joiners, and a BEACON for all outside its view, only if its sender has lately returned a number, in
another JOIN, or BEACON of the same view, and from the same address: the answer to a question that went elsewhere says
nothing about those who are there. The number follows from the process that asks and from the time, so recorded
answers do not count for long. (Inside a view a JOIN shows the same by its cookie; see ``rules/cookies.py``.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from seqcast.core.context import NEVER, Context
from seqcast.core.frames.joining import Challenge, Join
from seqcast.core.frames.merging import Beacon
from seqcast.core.rules.numbers import numbers
from seqcast.types import MEMBERS_MAX

K = TypeVar("K", tuple[int, bytes], tuple[int, int, bytes])
SENDERS_MAX = 4 * MEMBERS_MAX
"""The most senders and addresses that are remembered,"""
ADDRESSES_MAX = 4
"""and of one sender, in one view."""


class Challenges:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.lasts_ns = context.settings.fresh_ns
        self._answered: dict[tuple[int, int, bytes], int] = {}  # sender, tag of its view or 0, and its address -> ns
        self._asked: dict[tuple[int, bytes], int] = {}  # sender, and its address -> ns
        self._shown: dict[tuple[int, bytes], int] = {}  # to whom, and where, we have answered -> ns

    def note(self, frame: Join | Beacon, sender: int, address: bytes) -> None:
        """A frame that came: perhaps with the number that we asked for.

        With identities, a JOIN shows the one of the named joiner: a JOIN without any comes as far as here, as it is
        refused by name, and so does that of a process that is not on the list. Timeline without this: somebody with
        the key alone returns the number in the name of a joiner that is gone, and repeats its recorded JOIN, which
        counts. (A JOIN from another address than that of the joiner counts for nothing, and may be a copy.)
        """
        if not self._used or frame.answers not in self._numbers():
            return
        if isinstance(frame, Join) and (frame.info.address != address or self.context.identities.fault(frame.info)):
            return
        _remember(self._answered, (sender, _tag(frame), address), self.context.now, self.lasts_ns)

    def lacks_answer(self, frame: Join | Beacon, sender: int, address: bytes) -> bool:
        """May the frame be a recording?"""
        return self._used and self._age(frame, sender, address) >= self.lasts_ns

    def ask(self, frame: Join | Beacon, sender: int, address: bytes) -> None:
        """Asks its sender for an answer, unless there is one that counts for a while yet, or we have just asked."""
        old = self._used and self._age(frame, sender, address) >= self.lasts_ns // 2
        if old and self._is_due(self._asked, sender, address, self.context.settings.join_ns_min // 2):
            self.context.send(Challenge(frame.nonce, self._numbers()[0]), sender, address)

    def answer(self, question: Challenge, sender: int, address: bytes, ours: Callable[[], Join | Beacon]) -> None:
        """Shows one that heard a frame of ours that we are there, by another such frame. Nobody asks more often than we
        answer, and a recorded question may come again and again."""
        if self._is_due(self._shown, sender, address, self.context.settings.join_ns_min // 4):
            self.context.send(replace(ours(), answers=question.number), sender, address)

    def _is_due(self, last: dict[tuple[int, bytes], int], sender: int, address: bytes, pause_ns: int) -> bool:
        now, key = self.context.now, (sender, address)
        due = now - last.get(key, -NEVER) >= pause_ns
        if due:
            _remember(last, key, now)
        return due

    @property
    def _used(self) -> bool:
        return self.context.settings.exchange is not None

    def _age(self, frame: Join | Beacon, sender: int, address: bytes) -> int:
        """The age of the last answer."""
        return self.context.now - self._answered.get((sender, _tag(frame), address), -NEVER)

    def _numbers(self) -> tuple[int, int]:
        """The number of now, and the one before."""
        return numbers("asked", self.context.settings.nonce, self.context.now // self.lasts_ns)


def _tag(frame: Join | Beacon) -> int:
    return frame.view_id.tag if isinstance(frame, Beacon) else 0


def _remember(known: dict[K, int], key: K, now: int, lasts_ns: int = 0) -> None:
    """Each sender has a few places, as anybody can send recorded frames from any number of addresses. One that was used
    within ``lasts_ns`` stays: copies of an answer come later than the answer itself."""
    known.pop(key, None)
    same = [each for each in known if each[:-1] == key[:-1]]
    if len(same) >= ADDRESSES_MAX:
        if now - known[same[0]] < lasts_ns:
            return
        del known[same[0]]
    elif len(known) >= SENDERS_MAX:
        del known[next(iter(known))]
    known[key] = now
