"""Whom a member gossips with: everyone, if membership is agreed on; else a small random sample that keeps changing.

The sample (Cyclon, Voulgaris et al. 2005) needs no agreement and grows with the logarithm of the group at most.
Periodically a member exchanges some entries with the one heard of longest ago. That one is removed first: a
dead member does not come back, and a living one's answer makes the entry new.
"""

from __future__ import annotations

from collections.abc import Sequence

from seqcast.core.gossip.dice import Dice
from seqcast.core.gossip.messages import Shuffle
from seqcast.core.gossip.settings import NEVER, GossipSettings
from seqcast.core.gossip.size import SizeEstimate

_ANSWERS = 4
"""Members that answer a hello, on average."""


class Everyone:
    """A membership that all agree on.

    Args:
        me: this member.
        members: of the view, by rank, this one too.
    """

    partial = False

    def __init__(self, me: int, members: Sequence[int]) -> None:
        self.others = tuple(member for member in members if member != me)
        self._members = frozenset(members)

    @property
    def size(self) -> int:
        """The size of the group."""
        return len(self._members)

    def has(self, member: int) -> bool:
        """A member?"""
        return member in self._members

    def due(self) -> int:
        return NEVER

    def tick(self, now_ns: int) -> tuple[int, Shuffle] | None:
        """The exchanges of this member, and with whom, when it is time."""
        return None

    def greets(self, now_ns: int) -> bool:
        """Say hello now?"""
        return False

    def greeted(self, via: int) -> Shuffle | None:
        """A member said hello; the answer, if any."""
        return None

    def shuffled(self, via: int, shuffle: Shuffle, now_ns: int) -> Shuffle | None:
        """Takes the entries of another member; the answer, if any."""
        return None


class Sample:
    """A partial view.

    Args:
        me: this member.
        others: some members to begin with.
        settings: of gossip.
        now_ns: the time.
        dice: chooses entries.
        hint: size of the group until the first estimate.
    """

    partial = True

    def __init__(
        self, me: int, others: Sequence[int], settings: GossipSettings, now_ns: int, dice: Dice, hint: int = 0
    ) -> None:
        self._me, self._settings, self._dice = me, settings, dice
        self._ages: dict[int, int] = dict.fromkeys([each for each in others if each != me][: settings.view_max], 0)
        self._sent: tuple[int, ...] = ()  # entries that the last exchange gave away
        self._due = now_ns + dice.below(settings.shuffle_ns)
        self._hello_ns = now_ns if settings.hello_ns != NEVER else NEVER
        self._estimate = SizeEstimate(settings.epoch_ns, now_ns, dice, hint or len(self._ages) + 1)

    @property
    def others(self) -> tuple[int, ...]:
        return tuple(self._ages)

    @property
    def size(self) -> int:
        """The size of the group, as estimated."""
        return max(self._estimate.members, len(self._ages) + 1)

    def has(self, member: int) -> bool:
        """Possibly a member? Nobody knows all of them."""
        return member != 0

    def due(self) -> int:
        return min(self._due, self._hello_ns)

    def tick(self, now_ns: int) -> tuple[int, Shuffle] | None:
        """The exchanges of this member, and with whom, when it is time."""
        if now_ns < self._due:
            return None
        self._due = now_ns + self._settings.shuffle_ns // 2 + self._dice.below(self._settings.shuffle_ns)
        self._estimate.tick(now_ns)
        if not self._ages:
            return None
        self._ages = {member: age + 1 for member, age in self._ages.items()}
        oldest = max(self._ages, key=self._ages.__getitem__)
        del self._ages[oldest]
        return oldest, self._offer(self._settings.shuffle_entries - 1, False)

    def shuffled(self, via: int, shuffle: Shuffle, now_ns: int) -> Shuffle | None:
        """Takes the entries of another member; returns the answer, if any."""
        self._estimate.heard(shuffle.epoch, shuffle.minima, now_ns)
        answer = None if shuffle.answer else self._offer(self._settings.shuffle_entries - 1, True)
        self._merge(shuffle.entries)
        return answer

    def greets(self, now_ns: int) -> bool:
        """Say hello now? Often while this member knows no other; then so seldom that all members together say one hello
        per ``hello_ns``."""
        if now_ns < self._hello_ns:
            return False
        settings = self._settings
        if self._ages:
            self._hello_ns = now_ns + settings.hello_again_ns + self._dice.below(2 * settings.hello_ns * self.size)
        else:
            self._hello_ns = now_ns + settings.hello_again_ns // 2 + self._dice.below(settings.hello_again_ns)
        return True

    def greeted(self, via: int) -> Shuffle | None:
        """A member said hello. A few members answer, even in large crowds, and all that have room note the newcomer."""
        if len(self._ages) < self._settings.view_max:
            self._ages.setdefault(via, 0)
        if self._dice.below(self.size) >= _ANSWERS:
            return None
        self._ages.setdefault(via, 0)
        if len(self._ages) > self._settings.view_max:
            del self._ages[max(self._ages, key=self._ages.__getitem__)]
        return self._offer(self._settings.shuffle_entries - 1, True)

    def _offer(self, n: int, answer: bool) -> Shuffle:
        self._sent = self._dice.some(tuple(self._ages), n)
        entries = ((self._me, 0), *((member, self._ages[member]) for member in self._sent))
        return Shuffle(entries, answer, self._estimate.epoch, self._estimate.minima)

    def _merge(self, entries: Sequence[tuple[int, int]]) -> None:
        """New entries take free places, then those of entries that were given away, then those of the oldest."""
        given = [member for member in self._sent if member in self._ages]
        for member, age in entries[: self._settings.shuffle_entries]:
            if member == self._me or member == 0:
                continue
            if member in self._ages:
                self._ages[member] = min(age, self._ages[member])
                continue
            if len(self._ages) >= self._settings.view_max:
                gone = given.pop() if given else max(self._ages, key=self._ages.__getitem__)
                del self._ages[gone]
            self._ages[member] = age
