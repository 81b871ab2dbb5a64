"""The address book of a member whose multicasts may not reach all: where others may be, and the next tries.

The book knows addresses from three sources: the seeds, as resolved last; those that others named; and members of
its former views, by which partitions heal even if no seed is on the other side. All of them are hints: silence costs a
datagram now and then, and nothing waits for an answer. While a member seeks a group, its JOINs go to all of them; in a
view it tries a few at a time. Both ask each one less often the longer that one is silent: the kernel keeps datagrams to
an address of the own network where nobody is for seconds, in a buffer that those to live members need.

If multicast may work, a book is sparing: addresses that others name are only for JOINs that multicasts did not bring
an answer to, and are tried in a view if somebody is there who does not hear us, or perhaps does not. So a group whose
members all hear each other sends nothing more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from seqcast.core.context import NEVER

BOOK_MAX = 256
TRIED_AT_ONCE = 8
JOINS_ALONE = 3
"""The number of JOINs of a sparing book that go by multicast alone, beside the seeds."""
ASKED_NS_MAX = 1_000_000_000
"""The longest wait between two JOINs to an address."""
TRIED_NS_MAX = 50
"""The longest wait between two tries of an address, in beacon intervals: 5 s, with the preset "wan" 20 s."""
HEARD_BEACONS = 10
"""A joiner that has not said for this many beacon intervals that it hears our multicasts gets copies."""
KEPT_NS = 3_600_000_000_000
"""How long a former member, or one that others named, stays in the book."""


class Source(IntEnum):
    """Why an address is in the book. In a full book, those of the lowest source make room."""

    NAMED = 0
    FORMER = 1
    SEED = 2


@dataclass(slots=True)
class Tries:
    """When an address is tried: each time after twice the wait before.

    Args:
        next_ns: the next time.
        wait_ns: the last wait.
    """

    next_ns: int = -NEVER
    wait_ns: int = 0

    def count(self, now: int, least_ns: int, most_ns: int) -> None:
        """It is tried now; waits have these bounds."""
        self.wait_ns = min(max(2 * self.wait_ns, least_ns), most_ns)
        self.next_ns = now + self.wait_ns


@dataclass(slots=True)
class Contact:
    """One address.

    Args:
        source: the best of its sources.
        since_ns: when that source named it last.
        shown: our view, while we are in one.
        asked: by JOINs.
    """

    source: Source
    since_ns: int
    shown: Tries = field(default_factory=Tries)
    asked: Tries = field(default_factory=Tries)


@dataclass(slots=True)
class Hint:
    """A joiner, or a member, of which a sparing book tells JOINs.

    Args:
        named_ns: when it was named last: in a full book, the one that nobody has named for longest makes room.
        heard_ns: when it said last that it hears us.
        copied: JOINs go there alone, too, from now on.
    """

    named_ns: int = -NEVER
    heard_ns: int = -NEVER
    copied: bool = False


class Book:
    """The address book of one member.

    Args:
        own: its own address, which is never in the book.
        beacon_ns: the shortest wait between two tries of an address.
        join_ns: the shortest wait between two JOINs.
        sparing: multicasts may work.
    """

    def __init__(self, own: bytes, beacon_ns: int, join_ns: int, sparing: bool = False) -> None:
        self.own, self.beacon_ns, self.join_ns, self.sparing = own, beacon_ns, join_ns, sparing
        self.places: dict[bytes, Contact] = {}
        self.hints: dict[bytes, Hint] = {}  # of a sparing book: for JOINs

    def seeds(self, addresses: Collection[bytes], now: int) -> None:
        """The seeds are at these addresses now. A newly named one is tried at once."""
        for address, place in list(self.places.items()):
            if place.source is Source.SEED and address not in addresses:
                place.source = Source.NAMED
        for address in addresses:
            known = self.places.get(address)
            if known is None or known.source is not Source.SEED:
                self._note(address, Source.SEED, now)

    def named(self, addresses: Iterable[bytes], now: int) -> None:
        """Others say that members, or joiners, are at these addresses: those not known yet are tried at once, and JOINs
        go there often again."""
        for address in addresses:
            if known := self.places.get(address):
                known.since_ns, known.asked = now, Tries()
            elif not self.sparing:
                self._note(address, Source.NAMED, now)
            elif address != self.own and self._has_place(address, now):
                self.hints.setdefault(address, Hint()).named_ns = now

    def heard(self, address: bytes) -> None:
        """Somebody is there: JOINs go there often again."""
        if known := self.places.get(address):
            known.asked = Tries()

    def heard_by(self, address: bytes, now: int) -> None:
        """There is a joiner who hears us: by multicast, if no JOIN has gone there alone."""
        self.named([address], now)
        if hint := self.hints.get(address):
            hint.heard_ns = now

    def answered(self, address: bytes, now: int) -> None:
        """There is somebody who is not in our view: the next try comes at once, and often from then on."""
        self._note(address, Source.NAMED, now)

    def former(self, addresses: Iterable[bytes], now: int) -> None:
        """These members are no longer in our view."""
        for address in addresses:
            self._note(address, Source.FORMER, now)

    def ask(self, now: int, tries: int, everyone: bool = False) -> list[bytes]:
        """The addresses that a JOIN goes to; ``tries``: the number of JOINs before. ``everyone``: however silent.

        Timeline without ``copied``: with ``found=3``, multicasts pass between no two of a, b, c and d. All send each
        other copies, and so say that they hear each other. Then none sends copies until the others have forgotten it.
        Each hears other joiners at each moment, and votes for another one.
        """
        asked = list[bytes]()
        for address, place in self.places.items():
            due = place.asked.next_ns <= now
            if due:
                place.asked.count(now, self.join_ns // 2, ASKED_NS_MAX)
            if due or everyone:
                asked.append(address)
        for address, hint in self.hints.items() if tries >= JOINS_ALONE else ():
            hint.copied |= now - hint.heard_ns >= HEARD_BEACONS * self.beacon_ns
            if hint.copied and address not in self.places:
                asked.append(address)  # somebody named this one lately
        return asked

    def take(self, inside: Collection[bytes], now: int) -> list[bytes]:
        """Those to be tried now, a few at most.

        Args:
            inside: addresses of our view's members, which need no tries.
            now: ns.
        """
        self._forget(now)
        tries = [(place.shown.next_ns, address) for address, place in self.places.items()]
        due = sorted(each for each in tries if each[0] <= now)
        tried = [address for _, address in due if address not in inside][:TRIED_AT_ONCE]
        for address in tried:
            self.places[address].shown.count(now, self.beacon_ns, TRIED_NS_MAX * self.beacon_ns)
        return tried

    def due(self, inside: Collection[bytes]) -> int:
        """When the next one is to be tried; ``NEVER``: there is none."""
        others = (place for address, place in self.places.items() if address not in inside)
        return min((place.shown.next_ns for place in others), default=NEVER)

    def _note(self, address: bytes, source: Source, now: int) -> None:
        known = self.places.get(address)
        if known is None and (address == self.own or not self._has_room(source)):
            return
        best = source if known is None else max(source, known.source)
        self.places[address] = Contact(best, now, Tries(now))

    def _has_place(self, address: bytes, now: int) -> bool:
        """Among the hints."""
        if address in self.hints or len(self.hints) < BOOK_MAX:
            return True
        oldest = min(self.hints, key=lambda each: self.hints[each].named_ns)
        if self.hints[oldest].named_ns == now:
            return False
        del self.hints[oldest]
        return True

    def _has_room(self, source: Source) -> bool:
        if len(self.places) < BOOK_MAX:
            return True
        worst = min(self.places, key=lambda address: (self.places[address].source, self.places[address].since_ns))
        least = self.places[worst].source
        if least > source or least is Source.SEED:  # more seeds than that: the first ones stay
            return False
        del self.places[worst]
        return True

    def _forget(self, now: int) -> None:
        old = now - KEPT_NS
        gone = [a for a, place in self.places.items() if place.source is not Source.SEED and place.since_ns < old]
        for address in gone:
            del self.places[address]
