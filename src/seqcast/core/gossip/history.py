"""How a joiner gets what was sent before it came: from late-join handlers, which keep it in a store (PB-04, PB-05).

The joiner says hello until handlers answer with their catalogs. From then on it knows where each sender's messages
begin, and asks the handlers for them a few at a time. Its own requests repair what is lost on the way; gossips alone
would be too slow, as a handler's own gossip is rare in a large group and other members do not keep what is old.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from seqcast.core.gossip.messages import Catalog, Span
from seqcast.core.gossip.settings import NEVER, GossipSettings

Lacks = Callable[[int, int, int, int], tuple[tuple[int, int], ...]]


class From(NamedTuple):
    """Deliver the messages of this sender from this seqno on, and none before it."""

    sender: int
    first: int


class Begun(NamedTuple):
    """It is known where each sender's messages begin, so delivery can begin. ``handlers`` will be asked; none: no
    handler answered, so delivery begins with what comes now."""

    handlers: tuple[int, ...]


class CaughtUp(NamedTuple):
    """This member has what the handlers keep, or was told by ``Lost`` what it does not get."""


class Pull(NamedTuple):
    """Ask this handler for what this member lacks of the digest."""

    handler: int
    digest: dict[int, Span]


class History:
    """The history of one joiner.

    Args:
        settings: of gossip.
        lacks: ``Window.lacks``.
        now_ns: the time.
    """

    def __init__(self, settings: GossipSettings, lacks: Lacks, now_ns: int) -> None:
        self._settings, self._lacks = settings, lacks
        self._catalogs: dict[int, dict[int, tuple[int, int]]] = {}  # by handler
        self._seeking = True  # it is not known yet where messages begin
        self._decide_ns = now_ns + settings.history_ns
        self._hello_ns = now_ns
        self._pull_ns = NEVER

    @property
    def over(self) -> bool:
        """Nothing is left to do."""
        return not self._seeking and not self._catalogs

    def due(self) -> int:
        return min(self._decide_ns, self._hello_ns, self._pull_ns)

    def greets(self, now_ns: int) -> bool:
        """Say hello now?"""
        if now_ns < self._hello_ns:
            return False
        self._hello_ns = now_ns + self._settings.hello_again_ns
        return True

    def heard(self, handler: int, catalog: Catalog, now_ns: int) -> None:
        """What a handler keeps. An answer is too late once delivery has begun."""
        first = not self._catalogs
        if not self._seeking or (len(self._catalogs) >= self._settings.handlers_max and handler not in self._catalogs):
            return
        mine = self._catalogs.setdefault(handler, {})
        room = max(self._settings.catalog_max - len(mine), 0)
        mine.update(dict(list(catalog.kept.items())[:room]))
        if first:  # others answer soon, if there are any, and so do other parts of this catalog
            self._decide_ns, self._hello_ns = now_ns + self._settings.catalogs_ns, NEVER

    def tick(self, now_ns: int) -> list[From | Begun | Pull | CaughtUp]:
        """Does what is due."""
        done: list[From | Begun | Pull | CaughtUp] = []
        if now_ns >= self._decide_ns:
            done += self._decide(now_ns)
        if now_ns >= self._pull_ns:
            done += self._pull(now_ns)
        return done

    def _decide(self, now_ns: int) -> list[From | Begun | Pull | CaughtUp]:
        """Each sender's messages begin where the handler that goes back furthest has them."""
        self._seeking, self._decide_ns, self._hello_ns = False, NEVER, NEVER
        self._pull_ns = now_ns + self._settings.pull_ns if self._catalogs else NEVER
        begins: dict[int, int] = {}
        for catalog in self._catalogs.values():
            for sender, (first, _) in catalog.items():
                begins[sender] = min(begins.get(sender, first), first)
        return [*(From(*each) for each in begins.items()), Begun(tuple(self._catalogs))]

    def _pull(self, now_ns: int) -> list[From | Begun | Pull | CaughtUp]:
        """Asks the next handler for the next packets that are still lacking: in turn, so that a handler that is gone
        does not stop the others."""
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
        if catalog:
            self._catalogs[handler] = catalog
        self._pull_ns = now_ns + self._settings.pull_ns if self._catalogs else NEVER
        if not self._catalogs:
            return [CaughtUp()]
        return [Pull(handler, digest)] if digest else []
