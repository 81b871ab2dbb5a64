"""How a joiner gets messages sent before it came: from late-join handlers, which keep them in a store (PB-04, PB-05).

The joiner says hello until handlers answer with their catalogs. From then on the joiner knows where each sender's
messages begin, and asks the handlers for them a few at a time. Its own requests repair losses on the way; gossips alone
would be too slow, as a handler's own gossip is rare in a large group and other members do not keep old packets.
Messages sent meanwhile are old, too, by that time: so the joiner asks for catalogs again until one has little that is
new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from seqcast.core.gossip.messages import Catalog, Span
from seqcast.core.gossip.settings import NEVER, GossipSettings

_AGAIN_MAX = 4
"""How often a handler is asked for its next catalog."""
Lacks = Callable[[int, int, int, int], tuple[tuple[int, int], ...]]


class From(NamedTuple):
    """Deliver the messages of this sender from this seqno on, and none before."""

    sender: int
    first: int


class Begun(NamedTuple):
    """The beginnings of each sender's messages are known, so delivery can begin. ``handlers`` will be asked; none: no
    handler answered, so delivery begins with the next arrivals."""

    handlers: tuple[int, ...]


class CaughtUp(NamedTuple):
    """This member has the messages that the handlers keep, or ``OutOfReach`` said which ones it cannot get."""


class Pull(NamedTuple):
    """Ask this handler for the packets of the digest that this member lacks."""

    handler: int
    digest: dict[int, Span]


class Again(NamedTuple):
    """Ask this handler for its catalog again: more may have been sent while this member got those of the last one."""

    handler: int


Step = From | Begun | Pull | Again | CaughtUp


class History:
    """The history of one joiner.

    Args:
        settings: of gossip.
        lacks: ``Packets.lacks``.
        now_ns: the time.
    """

    def __init__(self, settings: GossipSettings, lacks: Lacks, now_ns: int) -> None:
        self._settings, self._lacks = settings, lacks
        self._catalogs: dict[int, dict[int, tuple[int, int]]] = {}  # by handler
        self._seeking = True  # the beginnings of messages are still unknown
        self._decide_ns = now_ns + settings.history_ns
        self._hello_ns = now_ns
        self._pull_ns = self._again_ns = NEVER
        self._handlers: frozenset[int] = frozenset()  # whose catalogs came in time
        self._brought: Counter[int] = Counter()  # packets that were asked for by the last catalog of each
        self._again: dict[int, int] = {}  # those that are asked again: how often so far

    @property
    def over(self) -> bool:
        """Nothing is left to do."""
        return not (self._seeking or self._catalogs or self._again)

    def due(self) -> int:
        return min(self._decide_ns, self._hello_ns, self._pull_ns, self._again_ns)

    def greets(self, now_ns: int) -> bool:
        """Say hello now?"""
        if now_ns < self._hello_ns:
            return False
        self._hello_ns = now_ns + self._settings.hello_again_ns
        return True

    def heard(self, handler: int, catalog: Catalog, now_ns: int) -> None:
        """The packets that a handler keeps. A first answer is too late once delivery has begun."""
        first = self._seeking and not self._catalogs
        if not self._seeking:
            if handler not in self._handlers:
                return
            self._again.pop(handler, None)
            self._pull_ns = min(self._pull_ns, now_ns + self._settings.pull_ns)
        elif len(self._catalogs) >= self._settings.handlers_max and handler not in self._catalogs:
            return
        mine = self._catalogs.setdefault(handler, {})
        room = max(self._settings.catalog_max - len(mine), 0)
        mine.update(dict(list(catalog.kept.items())[:room]))
        if first:  # others answer soon, if there are any, and so do other parts of this catalog
            self._decide_ns, self._hello_ns = now_ns + self._settings.catalogs_ns, NEVER

    def tick(self, now_ns: int, full: bool = False) -> list[Step]:
        """Runs the timers that are due.

        Args:
            full: there is no room for more now.
        """
        done: list[Step] = []
        if now_ns >= self._decide_ns:
            done += self._decide(now_ns)
        if now_ns >= self._again_ns:
            done += self._ask_again(now_ns)
        if now_ns >= self._pull_ns and full:
            self._pull_ns = now_ns + self._settings.pull_ns
        elif now_ns >= self._pull_ns:
            done += self._pull(now_ns)
        if self.over and self._handlers:
            done.append(CaughtUp())
        return done

    def _decide(self, now_ns: int) -> list[Step]:
        """Each sender's messages begin where the handler that goes back furthest has them."""
        self._seeking, self._decide_ns, self._hello_ns = False, NEVER, NEVER
        self._handlers = frozenset(self._catalogs)
        self._pull_ns = now_ns + self._settings.pull_ns if self._catalogs else NEVER
        begins: dict[int, int] = {}
        for catalog in self._catalogs.values():
            for sender, (first, _) in catalog.items():
                begins[sender] = min(begins.get(sender, first), first)
        return [*(From(*each) for each in begins.items()), Begun(tuple(self._catalogs))]

    def _pull(self, now_ns: int) -> list[Step]:
        """Asks the next handler for the next packets that are still lacking: in turn, so that a handler that is gone
        does not stop the others. One whose catalog brought much is asked for another when all of it came: packets sent
        meanwhile may have been too far ahead for this member, and kept by handlers alone."""
        handler = next(iter(self._catalogs), 0)
        catalog = self._catalogs.pop(handler, {})
        digest: dict[int, Span] = {}
        room = self._settings.history_max
        for sender, (first, last) in list(catalog.items()):
            lacking = self._lacks(sender, first, last, room)
            if not lacking:
                del catalog[sender]
                continue
            room -= sum(hi - lo + 1 for lo, hi in lacking)
            digest[sender] = Span(lacking[0][0], lacking[-1][1], lacking[-1][1], 0)
            if room <= 0:
                break
        steps: list[Step] = [Pull(handler, digest)] if digest else []
        self._brought[handler] += self._settings.history_max - room
        if catalog:
            self._catalogs[handler] = catalog
        elif self._brought.pop(handler) >= self._settings.history_max:
            self._again[handler] = 0
            steps += self._ask_again(now_ns)
        self._pull_ns = now_ns + self._settings.pull_ns if self._catalogs else NEVER
        return steps

    def _ask_again(self, now_ns: int) -> list[Step]:
        """A question or its answer may be lost; one that does not answer is gone."""
        self._again = {handler: times + 1 for handler, times in self._again.items() if times < _AGAIN_MAX}
        self._again_ns = now_ns + self._settings.catalogs_ns if self._again else NEVER
        return [Again(handler) for handler in self._again]
