"""A crowd: up to 10,000 simulated members that repair by gossip, each with the policy of ``core/gossip``, unchanged.

The members are light: in place of an engine, a member keeps each sender's highest packet and the set of missing ones. A
multicast reaches each member at once or never; every other datagram takes a while and may be lost. Membership is
partial, whatever the size: no member knows more than its sample of the others. Late-join handlers keep everything for
late joiners.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import NamedTuple

from seqcast.core.gossip import (
    Answer,
    Catalog,
    CaughtUp,
    Collect,
    Effect,
    Gossiper,
    GossipMessage,
    GossipSettings,
    Hello,
    OutOfReach,
    Request,
    Sample,
    SendTo,
    Shuffle,
    Span,
)
from seqcast.core.gossip.dice import Dice
from seqcast.core.gossip.messages import Message
from seqcast.sim.options import MS, SECOND

_HEADER, _ID, _SPAN, _RANGE = 40, 8, 32, 16
"""Bytes of a datagram's header, an id, a digest's entry with its sender, and a range of a request."""


class Resent(NamedTuple):
    """A packet that was sent again."""

    sender: int
    seqno: int


@dataclass(frozen=True, kw_only=True)
class CrowdOptions:
    """One run. Times are virtual ns.

    Args:
        seed: of everything random.
        members: in the group.
        loss: probability that a datagram, or a multicast to one receiver, is lost.
        crashed: fraction of the members that crash at the same moment, after a third of ``sending_ns``.
        senders: members that multicast, which do not crash.
        handlers: late-join handlers among the other members, which do not crash either.
        joiners: members that join after two thirds of ``sending_ns``, and want all earlier messages.
        packets_per_s: of all senders together.
        packet_bytes: size of a packet.
        sending_ns: how long they send.
        settling_ns: how long repair continues afterwards.
        gossip: the policy's settings.
    """

    seed: int = 1
    members: int = 100
    loss: float = 0.05
    crashed: float = 0.1
    senders: int = 5
    handlers: int = 0
    joiners: int = 0
    packets_per_s: int = 20
    packet_bytes: int = 1000
    sending_ns: int = 20 * SECOND
    settling_ns: int = 40 * SECOND
    gossip: GossipSettings = field(
        default_factory=lambda: GossipSettings(
            votes=False,
            average_ns=200 * MS,
            lost_ns=300 * SECOND,
            listed_max=16,
            view_max=32,
            epoch_ns=30 * SECOND,
            shuffle_ns=2 * SECOND,
        )
    )


@dataclass(kw_only=True)
class CrowdResult:
    """The result of a run. Members that crashed do not count, nor messages to them.

    Args:
        expected, delivered: packets times members, as they should be and as they are.
        lost: packets times members that were reported lost.
        repaired_ns: how long after its multicast each packet that a member had lost reached it, ascending.
        caught_up_ns: how long after the join each joiner had all that the handlers keep.
        reached: how many members each gossip that began while the packets were sent reached, by hop.
        datagrams, bytes: sent by all members, without the multicasts of packets, by kind.
        member_s: seconds that all members lived together.
        member_state: entries of the largest partial view.
        sizes: of the group, as its members estimate it in the end.
        events: datagrams and timers that were handled.
    """

    expected: int = 0
    delivered: int = 0
    lost: int = 0
    repaired_ns: list[int] = field(default_factory=list)
    caught_up_ns: list[int] = field(default_factory=list)
    reached: dict[tuple[int, int], Counter[int]] = field(default_factory=dict)
    datagrams: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    member_s: float = 0.0
    member_state: int = 0
    sizes: list[int] = field(default_factory=list)
    events: int = 0

    @property
    def ratio(self) -> float:
        """Fraction of the packets times live members that were delivered."""
        return self.delivered / self.expected if self.expected else 1.0


class _Member:
    """One member, with its window: implements ``core.gossip.Packets``."""

    full = False

    def __init__(self, me: int, crowd: Crowd, others: list[int], handler: bool = False, joiner: bool = False) -> None:
        self.me = me
        self.alive = True
        self.handler, self.joined = handler, crowd.now
        self.missing: dict[int, dict[int, None]] = {
            sender: dict.fromkeys(range(1, highest + 1)) for sender, highest in crowd.sent.items()
        }
        self.kept = dict.fromkeys(crowd.sent, 1)
        self.repaired_ns: list[int] = []
        self.timer = -1  # when its next timer runs
        self._sent = crowd.sent
        dice = Dice(crowd.random.getrandbits(64))
        settings = replace(crowd.options.gossip, lag=1 << 60) if handler else crowd.options.gossip
        self.sample = Sample(me, others, settings, crowd.now, dice, crowd.options.members)
        self.gossiper = Gossiper(me, self.sample, settings, self, crowd.now, dice, joiner)

    def digest(self) -> dict[int, Span]:
        spans = {}
        for sender, missing in self.missing.items():
            if highest := self.received(sender):
                spans[sender] = Span(self.kept[sender], end := min(missing) - 1 if missing else highest, highest, end)
        return spans

    def lacks(self, sender: int, first: int, last: int, most: int) -> tuple[tuple[int, int], ...]:
        missing = [seqno for seqno in self.missing[sender] if first <= seqno <= last]
        return tuple((seqno, seqno) for seqno in sorted(missing)[:most])

    def received(self, sender: int) -> int:
        highest, missing = self._sent[sender], self.missing[sender]
        while highest in missing:
            highest -= 1
        return highest

    def catalogs(self) -> tuple[Catalog, ...]:
        kept = {sender: (1, span.received) for sender, span in self.digest().items()}
        return (Catalog(kept),) if self.handler else ()


class Crowd:
    """A run, to be made once.

    Args:
        options: of the run.
    """

    def __init__(self, options: CrowdOptions) -> None:
        self.options = options
        self.random = random.Random(options.seed)
        self.now = 0
        self.result = CrowdResult()
        self.sent = dict.fromkeys(range(1, min(options.senders, options.members) + 1), 0)
        self._sent_ns: dict[Resent, int] = {}
        self._queue: list[tuple[int, int, int, int, Message | Resent | None]] = []
        self._events = 0
        members = range(1, options.members + 1)
        few = min(options.gossip.view_max + 1, options.members)
        handlers = range(len(self.sent) + 1, len(self.sent) + 1 + options.handlers)
        self.members = {me: _Member(me, self, self.random.sample(members, few), me in handlers) for me in members}
        self._spared = {*self.sent, *handlers}
        for member in self.members.values():
            self._schedule(member)

    def run(self) -> CrowdResult:
        """The result.

        Raises:
            AssertionError: run before.
        """
        assert not self.now, "a crowd runs once"
        options = self.options
        gap, crash = SECOND // options.packets_per_s, options.sending_ns // 3
        for at in range(gap, options.sending_ns, gap):
            self._pass(at)
            if at - gap < crash <= at:
                self._crash()
            if at - gap < 2 * crash <= at:
                self._join()
            self._multicast(1 + (at // gap) % len(self.sent))
        self._pass(options.sending_ns + options.settling_ns)
        return self._judge()

    def _pass(self, until: int) -> None:
        while self._queue and self._queue[0][0] <= until:
            self.now, _, me, via, what = heappop(self._queue)
            member = self.members[me]
            if not member.alive:
                continue
            self.result.events += 1
            if what is None:
                if self.now == member.timer:
                    member.timer = -1
                    self._carry_out(member, member.gossiper.tick(self.now))
                    self._schedule(member)
            elif isinstance(what, Resent):
                self._came(member, what)
            else:
                self._carry_out(member, member.gossiper.received(what, via, self.now))
                self._schedule(member)
        self.now = until

    def _schedule(self, member: _Member) -> None:
        due = max(member.gossiper.due(), self.now)
        if member.timer < 0 or due < member.timer:
            member.timer = due
            self._push(due, member.me, 0, None)

    def _push(self, at: int, me: int, via: int, what: Message | Resent | None) -> None:
        self._events += 1
        heappush(self._queue, (at, self._events, me, via, what))

    # ---- faults of members

    def _multicast(self, sender: int) -> None:
        seqno = self.sent[sender] = self.sent[sender] + 1
        self._sent_ns[Resent(sender, seqno)] = self.now
        draw, loss = self.random.random, self.options.loss
        for member in self.members.values():
            if draw() < loss and member.me != sender:
                member.missing[sender][seqno] = None

    def _crash(self) -> None:
        mortal = [me for me in self.members if me not in self._spared]
        n = min(round(self.options.crashed * self.options.members), len(mortal))
        for me in self.random.sample(mortal, n):
            self.members[me].alive = False
        self.result.member_s = n * self.now / SECOND

    def _join(self) -> None:
        living = [me for me, member in self.members.items() if member.alive]
        for me in range(len(self.members) + 1, len(self.members) + 1 + self.options.joiners):
            few = min(self.options.gossip.view_max, len(living))
            self.members[me] = _Member(me, self, self.random.sample(living, few), joiner=True)
            self._schedule(self.members[me])

    def _came(self, member: _Member, packet: Resent) -> None:
        missing = member.missing[packet.sender]
        if packet.seqno in missing:
            del missing[packet.seqno]
            member.repaired_ns.append(self.now - self._sent_ns[packet])

    # ---- actions of members

    def _carry_out(self, member: _Member, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendTo):
                self._note(effect.message)
                for to in effect.to or (each for each in self.members if each != member.me):
                    self._transmit(member, to, effect.message)
            elif isinstance(effect, Answer):
                self._answer(member, effect)
            elif isinstance(effect, CaughtUp):
                self.result.caught_up_ns.append(self.now - member.joined)
            elif isinstance(effect, Collect):
                member.kept[effect.sender] = max(member.kept[effect.sender], effect.below)
            elif isinstance(effect, OutOfReach):
                for seqno in range(effect.first, effect.last + 1):
                    del member.missing[effect.sender][seqno]
                    self.result.lost += 1

    def _answer(self, member: _Member, answer: Answer) -> None:
        missing = member.missing[answer.sender]
        for first, last in answer.ranges:
            for seqno in range(max(first, member.kept[answer.sender]), min(last, self.sent[answer.sender]) + 1):
                if seqno not in missing:
                    self._transmit(member, answer.to, Resent(answer.sender, seqno))

    def _transmit(self, member: _Member, to: int, what: Message | Resent) -> None:
        kind = type(what).__name__
        self.result.datagrams[kind] += 1
        self.result.bytes[kind] += self._size(what)
        if self.random.random() >= self.options.loss:
            self._push(self.now + self.random.randrange(MS // 10, 2 * MS), to, member.me, what)

    def _size(self, what: Message | Resent) -> int:
        match what:
            case GossipMessage():
                return _HEADER + 24 + _SPAN * len(what.digest) + _ID * (len(what.seen) + len(what.not_seen))
            case Request():
                return _HEADER + sum(_ID + _RANGE * len(ranges) for ranges in what.missing.values())
            case Hello():
                return _HEADER + 1
            case Catalog():
                return _HEADER + (_ID + _RANGE) * len(what.kept)
            case Shuffle():
                return _HEADER + 8 + 10 * len(what.entries) + 8 * len(what.minima)
            case _:
                return _HEADER + self.options.packet_bytes

    def _note(self, message: Message) -> None:
        """A member that passes a gossip on, once, has seen that gossip."""
        if isinstance(message, GossipMessage) and self.now <= self.options.sending_ns:
            self.result.reached.setdefault((message.origin, message.counter), Counter())[message.hops] += 1

    def _judge(self) -> CrowdResult:
        result, alive = self.result, [member for member in self.members.values() if member.alive]
        result.expected = sum(self.sent.values()) * len(alive)
        lacking = sum(len(missing) for member in alive for missing in member.missing.values())
        result.delivered = result.expected - lacking - result.lost
        result.repaired_ns = sorted(late for member in alive for late in member.repaired_ns)
        result.member_s += sum(self.now - member.joined for member in alive) / SECOND
        result.member_state = max(len(member.sample.others) for member in alive)
        result.sizes = sorted(member.gossiper.size for member in alive)
        return result
