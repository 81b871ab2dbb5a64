"""One member's gossip: which packets are reported to whom and when, which are to be requested, which may be dropped,
and which are lost here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from seqcast.core.gossip.dice import Dice
from seqcast.core.gossip.history import Again, Begun, CaughtUp, From, History, Pull
from seqcast.core.gossip.inbox import Budget, Inbox
from seqcast.core.gossip.known import NUMBERS, Known, is_old
from seqcast.core.gossip.messages import Catalog, GossipMessage, Hello, Message, Request, Shuffle, Span
from seqcast.core.gossip.sampling import Everyone, Sample
from seqcast.core.gossip.settings import NEVER, GossipSettings
from seqcast.core.gossip.tally import Agreed, Tally
from seqcast.core.gossip.tempo import interval, subset_size

Ranges = tuple[tuple[int, int], ...]
_AHEAD_MAX = 4096
"""Gossips by which an origin may seem to be ahead of time: members do not enter a view at the same moment."""
_CATALOG_COST = 50
"""Cost of each part of a catalog that is sent: a small hello asks for a large answer."""
_WANTS_MAX = 65_536
"""Packets that are asked for at the same time: a digest cannot fill the memory. Once half of these places are taken,
a packet that nobody confirms loses its place after ``lost_ns``, so as not to keep out packets that are really
missing."""


class Packets(Protocol):
    """The packets of all senders at this member. Its answers depend only on the messages received so far.

    Attributes:
        full: there is no room for more packets now, so no packet is called missing.
    """

    full: bool

    def digest(self) -> dict[int, Span]:
        """Its position in each active stream, its own included if there is one."""

    def lacks(self, sender: int, first: int, last: int, most: int) -> Ranges:
        """Which of the seqnos ``first`` to ``last`` did not come and are not lost, lowest first, at most ``most`` of
        them."""

    def received(self, sender: int) -> int:
        """The highest seqno that came; 0: none."""

    def catalogs(self) -> Sequence[Catalog]:
        """The packets that this member keeps in a store for those that join late, in parts; none: no late-join
        handler."""


class SendTo(NamedTuple):
    """Send a message to these members; to none: to all, by multicast."""

    to: tuple[int, ...]
    message: Message


class Answer(NamedTuple):
    """Send the packets in these ranges again to one member, as far as they are still kept."""

    to: int
    sender: int
    ranges: Ranges


class Alive(NamedTuple):
    """These members are alive: they have just seen a gossip (PB-11). Evidence for failure detection."""

    members: tuple[int, ...]


class Collect(NamedTuple):
    """The packets of this sender that are *below* this seqno are no longer kept (E-10)."""

    sender: int
    below: int


class OutOfReach(NamedTuple):
    """This member will not get these packets: the application is told, and delivery continues behind them."""

    sender: int
    first: int
    last: int


Effect = SendTo | Answer | Alive | Agreed | Collect | OutOfReach | From | Begun | CaughtUp


class _Want:
    """A packet that another member has by its own report, and this one lacks. ``proven``: its sender itself, a
    late-join handler or two other members say so. A packet that only one member claims, and no later packet proves, is
    asked for but never reported as lost: one wrong digest must not skip packets that are still to be sent."""

    __slots__ = ("asked_ns", "claimed_by", "proven", "since_ns")

    def __init__(self, now_ns: int, claimed_by: int) -> None:
        self.since_ns, self.asked_ns = now_ns, -NEVER
        self.claimed_by, self.proven = claimed_by, False


def below_lag(digest: dict[int, Span], lag: int) -> dict[int, int]:
    """By sender, the seqno below which nothing is kept once everyone has *seen* this digest (PB-03). A gossip seen is
    not the packets themselves, hence the lag."""
    return {sender: span.delivered - lag for sender, span in digest.items() if span.delivered > lag}


class Gossiper:
    """The policy of one member, for as long as its membership is the same: with votes, the next one no longer waits for
    a member that left, nor lists it (E-10).

    Args:
        me: this member, not 0.
        peers: the members to gossip with.
        settings: of gossip.
        window: its packets of each sender.
        now_ns: the time: monotonic ns, never less at a later call.
        dice: its random numbers.
        history: the member wants the messages sent before its join; see ``history.py``.
    """

    def __init__(
        self,
        me: int,
        peers: Everyone | Sample,
        settings: GossipSettings,
        window: Packets,
        now_ns: int,
        dice: Dice,
        history: bool = False,
    ) -> None:
        assert not (peers.partial and settings.votes), "votes need a membership that all agree on"
        self._me, self._peers, self._settings = me, peers, settings
        self._window, self._dice = window, dice
        self._counter, self._began_ns = 0, now_ns
        self._history = History(settings, window.lacks, now_ns) if history else None
        self.forged = 0
        """Gossips that another member made in this one's name."""
        self._known = Known(settings.cache_max, settings.origins_max)
        self._inbox = Inbox(settings.queue_max)
        self._budget = Budget(settings.work_per_s, settings.work_max)
        self._work_ns = NEVER  # when there is budget for waiting messages
        self._wants: dict[int, dict[int, _Want]] = {}  # by sender and seqno
        self._lost_ns = NEVER  # when to look for packets that are lost
        self._tally = Tally(me, peers.others, settings.interval_ns_min, now_ns) if settings.votes else None
        self._effects: list[Effect] = []
        # As after an earlier gossip: otherwise members that begin together would gossip half as often at first. The
        # rest of a uniformly drawn interval is distributed as the lesser of two.
        self._gossip_ns = now_ns + min(self._interval(), self._interval())

    # ---- inputs

    def received(self, message: Message, via: int, now_ns: int) -> list[Effect]:
        """A message came.

        Args:
            via: its sender; 0: unknown, and so dropped: there would be nobody to ask (PB-06, 1).
        """
        if via != 0 and self._peers.has(via):
            self._inbox.put(message, via)
            self._work(now_ns)
        return self._take()

    def tick(self, now_ns: int) -> list[Effect]:
        """Runs the timers that are due."""
        if now_ns >= self._work_ns:
            self._work(now_ns)
        exchange = self._peers.tick(now_ns)
        if exchange is not None:
            self._effects.append(SendTo((exchange[0],), exchange[1]))
        if self._peers.greets(now_ns):
            self._effects.append(SendTo((), Hello(False)))
        if self._history is not None:
            self._catch_up(self._history, now_ns)
        if now_ns >= self._lost_ns:
            self._look_for_lost(now_ns)
        if now_ns >= self._gossip_ns:
            self._begin(now_ns)
        return self._take()

    # ---- questions

    def due(self) -> int:
        """When ``tick`` is due."""
        history_ns = self._history.due() if self._history is not None else NEVER
        return min(self._gossip_ns, self._work_ns, self._lost_ns, self._peers.due(), history_ns)

    @property
    def size(self) -> int:
        """Members of the group; if membership is partial, as estimated."""
        return self._peers.size

    @property
    def dropped(self) -> int:
        """Messages that found the queue full."""
        return self._inbox.dropped

    def asked(self, sender: int, seqno: int) -> bool:
        """Did this member ask for this packet? Others send packets that are not their own only on request."""
        want = self._wants.get(sender, {}).get(seqno)
        return want is not None and want.asked_ns != -NEVER

    # ---- gossips of our own

    def _interval(self) -> int:
        return interval(self._settings, self._peers.size, self._inbox.load, self._dice)

    def _begin(self, now_ns: int) -> None:
        self._gossip_ns = now_ns + self._interval()
        if not self._peers.others:
            return
        self._counter = self._counter % (NUMBERS - 1) + 1
        self._known.add(self._me, self._counter)
        gossip = GossipMessage(self._me, self._counter, 0, self._window.digest(), (self._me,), self._peers.others)
        self._pass_on(gossip, now_ns)

    def _pass_on(self, gossip: GossipMessage, now_ns: int) -> None:
        """To a random subset of those that have not seen this (PB-06, 6), or to all by multicast (PB-13)."""
        waiting, settings = gossip.not_seen, self._settings
        if self._tally is not None:
            gossip = gossip._replace(sum=self._tally.say(self._window.digest(), now_ns))
        if settings.multicast:
            self._effects.append(SendTo((), gossip))
            return
        n = subset_size(len(waiting), self._peers.size, settings.subset_percent, self._inbox.load)
        if self._peers.partial:
            most = settings.listed_max
            gossip = gossip._replace(seen=gossip.seen[-most:], not_seen=waiting[-most:])
        self._effects.append(SendTo(self._dice.some(waiting, n), gossip))

    # ---- arrivals

    def _work(self, now_ns: int) -> None:
        """Handles waiting messages, the most urgent first, as far as the budget goes."""
        self._work_ns = NEVER
        while (first := self._inbox.first()) is not None:
            message, via = first
            cost = self._cost(message)
            if not self._budget.spend(cost, now_ns):
                self._work_ns = now_ns + self._budget.wait_ns(cost)
                return
            self._inbox.pop()
            if isinstance(message, GossipMessage):
                self._handle(message, via, now_ns)
            elif isinstance(message, Request):
                for sender, ranges in message.missing.items():
                    self._effects.append(Answer(via, sender, ranges))
            elif isinstance(message, Hello):
                self._greeted(message, via)
            elif isinstance(message, Shuffle):
                self._shuffled(message, via, now_ns)
            elif self._history is not None:
                self._history.heard(via, message, now_ns)

    def _cost(self, message: Message) -> int:
        if isinstance(message, Request):
            return message.packets
        return _CATALOG_COST * len(self._window.catalogs()) if isinstance(message, Hello) and message.history else 1

    def _greeted(self, hello: Hello, via: int) -> None:
        answer = self._peers.greeted(via)
        if answer is not None:
            self._effects.append(SendTo((via,), answer))
        if hello.history:
            self._effects += [SendTo((via,), catalog) for catalog in self._window.catalogs()]

    def _catch_up(self, history: History, now_ns: int) -> None:
        if history.greets(now_ns):
            self._effects.append(SendTo((), Hello(True)))
        for step in history.tick(now_ns, self._window.full):
            if isinstance(step, Pull):
                self._ask(step.digest, step.handler, None, now_ns)
            elif isinstance(step, Again):
                self._effects.append(SendTo((step.handler,), Hello(True)))
            else:
                self._effects.append(step)
        if history.over:
            self._history = None

    def _shuffled(self, shuffle: Shuffle, via: int, now_ns: int) -> None:
        answer = self._peers.shuffled(via, shuffle, now_ns)
        if answer is not None:
            self._effects.append(SendTo((via,), answer))

    def _handle(self, gossip: GossipMessage, via: int, now_ns: int) -> None:
        """The steps of PB-06, in this order."""
        if gossip.origin == 0 or not self._peers.has(gossip.origin):
            return  # a member that left, or one that is about to join, whose later gossips count
        if not self._plausible(gossip, now_ns):
            return
        if self._tally is not None and gossip.sum is not None:
            self._effects += self._tally.heard(gossip.sum, self._window.digest(), now_ns)
        if not self._known.add(gossip.origin, gossip.counter):
            return
        self._effects.append(Alive(tuple(each for each in gossip.seen if self._peers.has(each))))
        self._ask(gossip.digest, via, gossip.origin, now_ns)
        seen = (*gossip.seen, self._me)
        waiting = [each for each in gossip.not_seen if each != self._me and self._peers.has(each)]
        if self._peers.partial:
            listed = {*seen, *waiting}
            waiting += [each for each in self._peers.others if each not in listed]
        gossip = gossip._replace(hops=gossip.hops + 1, seen=seen, not_seen=tuple(waiting))
        ended = self._settings.multicast or not gossip.not_seen
        if not self._settings.votes and (ended or self._peers.partial):  # if partial, nobody knows that all saw this
            self._collect(gossip.digest)
        if not ended and gossip.hops < self._settings.hops_max:
            self._pass_on(gossip, now_ns)

    def _plausible(self, gossip: GossipMessage, now_ns: int) -> bool:
        """Can its origin be the maker? A number that is too high would make all later ones of that origin look old.

        Members that entered one view together have begun at most one gossip, and one round of the tally, in each
        shortest interval since. A member whose gossips another one forges continues above the forged number, and so is
        heard again.
        """
        most = (now_ns - self._began_ns) // self._settings.interval_ns_min + _AHEAD_MAX
        number = max(gossip.counter, gossip.sum.round if gossip.sum is not None else 0)
        if number > most and not self._peers.partial:
            return False  # even in our name: a number of ours above it would be implausible, too
        if gossip.origin != self._me or is_old(gossip.counter, self._counter):
            return True
        self.forged += 1
        self._counter = gossip.counter
        return False

    # ---- repair

    def _ask(self, digest: dict[int, Span], via: int, origin: int | None, now_ns: int) -> None:
        """One request for all that is missing, to the member that the gossip came from (PB-06, 4): that has most of it,
        and no member is asked by more members than it has passed gossips on to.

        Args:
            origin: owner of the digest; None: a late-join handler's, which is believed.
        """
        settings, missing = self._settings, {}
        room = _WANTS_MAX - sum(map(len, self._wants.values()))
        for sender, span in digest.items():
            if sender == self._me:
                continue
            lacking = self._window.lacks(sender, 1, span.received, settings.request_max)
            if not lacking:
                continue
            wants = self._wants.setdefault(sender, {})
            due: list[int] = []
            for first, last in lacking:
                for seqno in range(first, last + 1):
                    want = wants.get(seqno)
                    if want is None:
                        if room <= 0:
                            break
                        room -= 1
                        want = wants[seqno] = _Want(now_ns, via if origin is None else origin)
                    believed = origin is None or origin == via == sender
                    want.proven |= believed or origin != want.claimed_by
                    if seqno >= span.kept and now_ns - want.asked_ns >= settings.ask_again_ns:
                        want.asked_ns = now_ns
                        due.append(seqno)
            if due:
                missing[sender] = _ranges(due)
        if missing:
            self._effects.append(SendTo((via,), Request(missing)))
        if self._wants and self._lost_ns == NEVER:
            self._lost_ns = now_ns + settings.lost_ns // 4

    def _look_for_lost(self, now_ns: int) -> None:
        """Forgets packets that have come, and gives up those missing for too long; not if members vote, as packets that
        one of them lacks are then kept."""
        crowded = 2 * sum(map(len, self._wants.values())) > _WANTS_MAX
        for sender, wants in list(self._wants.items()):
            lost: list[int] = []
            for seqno, want in list(wants.items()):
                if not self._window.lacks(sender, seqno, seqno, 1):
                    del wants[seqno]
                elif now_ns - want.since_ns >= self._settings.lost_ns and not self._settings.votes:
                    if not want.proven and seqno > self._window.received(sender):
                        if crowded:
                            del wants[seqno]
                        continue
                    lost.append(seqno)
                    del wants[seqno]
            self._effects += [OutOfReach(sender, *each) for each in _ranges(sorted(lost))]
            if not wants:
                del self._wants[sender]
        self._lost_ns = now_ns + self._settings.lost_ns // 4 if self._wants else NEVER

    # ---- packets that nobody needs any more

    def _collect(self, digest: dict[int, Span]) -> None:
        """No more than if this member alone decided: else a made-up digest would empty the memory of all."""
        for sender, below in below_lag(digest, self._settings.lag).items():
            own = self._window.received(sender) - self._settings.lag
            if own > 0:
                self._effects.append(Collect(sender, min(below, own)))

    def _take(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


def _ranges(seqnos: Sequence[int]) -> Ranges:
    """Ascending seqnos as ranges."""
    ranges: list[tuple[int, int]] = []
    for seqno in seqnos:
        if ranges and ranges[-1][1] == seqno - 1:
            ranges[-1] = ranges[-1][0], seqno
        else:
            ranges.append((seqno, seqno))
    return tuple(ranges)
