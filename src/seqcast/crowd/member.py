"""One member of a crowd, without I/O: datagrams and the time go in, datagrams and messages come out.

A crowd is a group without views: nobody knows all members, so nothing is agreed on. Each member delivers each sender's
messages in their order, once each, and is told by ``Missed`` which ones are out of reach.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from seqcast.core.gossip.dice import Dice
from seqcast.core.gossip.history import Begun, CaughtUp, From
from seqcast.core.gossip.messages import GossipMessage, Message
from seqcast.core.gossip.policy import Alive, Answer, Collect, Effect, Gossiper, OutOfReach, SendTo
from seqcast.core.gossip.sampling import Sample
from seqcast.core.gossip.settings import GossipSettings
from seqcast.crowd.datagrams import DataPacket, address_of, dump, load
from seqcast.crowd.streams import Delivered, LateJoinStore, Missed, Streams, StreamSettings
from seqcast.errors import RemoteProtocolError

ANSWER_MAX = 512
"""Packets of one sender that one request gets, at most."""
COUNTERS = (
    "packets_sent",
    "packets_received",
    "packets_again",
    "packets_unasked",
    "gossips_sent",
    "gossips_received",
    "datagrams_bad",
    "datagrams_other",
)


class HistoryEnd(NamedTuple):
    """This member has the messages that late-join handlers keep of the time before its join, except those reported as
    missed.

    Args:
        handlers: how many were asked; 0: none answered, so only messages that others still keep in memory came.
    """

    handlers: int


Event = Delivered | Missed | HistoryEnd


class CrowdMember:
    """
    Args:
        me: this member's id; see ``datagrams.make_id``.
        tag: of the crowd.
        settings: of gossip, without votes.
        bounds: of the kept packets.
        now_ns: the time: monotonic ns.
        seed: of its random numbers.
        store: makes the member a late-join handler: everything delivered is kept there, and the member continues where
            the store ends.
        history: the member wants the messages that were sent before its join.
    """

    def __init__(
        self,
        me: int,
        tag: int,
        settings: GossipSettings,
        bounds: StreamSettings,
        now_ns: int,
        seed: int,
        store: LateJoinStore | None = None,
        history: bool = False,
    ) -> None:
        dice = Dice(seed)
        self.id, self._tag = me, tag
        self.streams = Streams(me, bounds, now_ns, store, waits=history)
        self.sample = Sample(me, (), settings, now_ns, dice)
        self.gossiper = Gossiper(me, self.sample, settings, self.streams, now_ns, dice, history)
        self._handlers = 0
        self._out: list[tuple[int, bytes]] = []
        self._events: list[Event] = []
        self._counters = dict.fromkeys(COUNTERS, 0)

    # ---- inputs

    def send(self, payload: bytes, now_ns: int) -> int:
        """Multicasts a message; its seqno."""
        self.streams.now_ns = now_ns
        seqno = self.streams.own(payload)
        self._counters["packets_sent"] += 1
        self._transmit(0, DataPacket(self.id, seqno, self.streams.first_kept(), payload))
        return seqno

    def datagram(self, data: bytes, source: tuple[bytes, int], now_ns: int) -> None:
        """A datagram came.

        Args:
            source: the address and the port of its source: they must be those in the sender's id, so that nobody
                can speak for another process of its machine, or make this member send to a third party.
        """
        self.streams.now_ns = now_ns
        try:
            found = load(self._tag, data)
        except RemoteProtocolError:
            self._counters["datagrams_bad"] += 1
            return
        if found is None or address_of(found[0]) != source:
            self._counters["datagrams_other"] += 1
            return
        via, what = found
        if via == self.id:
            return  # our own multicast
        if isinstance(what, DataPacket):
            self._counters["packets_received"] += 1
            kept = what.kept if what.sender == via else 0
            if kept or self.gossiper.asked(what.sender, what.seqno):
                self.streams.came(what.sender, what.seqno, what.payload, kept)
            else:
                self._counters["packets_unasked"] += 1
            return
        if isinstance(what, GossipMessage):
            self._counters["gossips_received"] += 1
            self.streams.heard(what.digest)
        self._carry_out(self.gossiper.received(what, via, now_ns))

    def tick(self, now_ns: int) -> None:
        """Runs the timers that are due."""
        self.streams.now_ns = now_ns
        self._carry_out(self.gossiper.tick(now_ns))

    # ---- outputs

    @property
    def settled(self) -> bool:
        """Messages sent from now on are delivered at this member, or reported as missed."""
        return self.streams.settled

    def due(self) -> int:
        """When ``tick`` is due."""
        return self.gossiper.due()

    def take_datagrams(self) -> list[tuple[int, bytes]]:
        """The datagrams to send, as (receiver, datagram); receiver 0: all, by multicast."""
        out, self._out = self._out, []
        return out

    def take_events(self) -> list[Event]:
        """The application's events, in order."""
        events: list[Event] = [*self.streams.take(), *self._events]
        self._events = []
        return events

    def counters(self) -> dict[str, int]:
        """Counters since the beginning. ``members``: the estimated size of the crowd; ``known``: how many of them are
        known here."""
        return {
            **self._counters,
            "packets_lost": self.streams.missed,
            "packets_dropped": self.streams.dropped,
            "packets_doubted": self.streams.doubted,
            "streams_restored": self.streams.restored,
            "messages_dropped": self.gossiper.dropped,
            "gossips_forged": self.gossiper.forged,
            "members": self.gossiper.size,
            "known": len(self.sample.others),
        }

    # ---- inside

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendTo(to, message):
                    self._counters["gossips_sent"] += isinstance(message, GossipMessage)
                    for member in to or (0,):
                        self._transmit(member, message)
                case Answer(to, sender, ranges):
                    self._answer(to, sender, ranges)
                case Collect(sender, below):
                    self.streams.collect(sender, below)
                case OutOfReach(sender, first, last):
                    self.streams.lost(sender, first, last)
                case From(sender, first):
                    self.streams.begin(sender, first)
                case Begun(handlers):
                    self._handlers = len(handlers)
                    self.streams.begin_all()
                    if not handlers:
                        self.streams.catching_up = False
                        self._events.append(HistoryEnd(0))
                case CaughtUp():
                    self.streams.catching_up = False
                    if self._handlers:
                        self._events.append(HistoryEnd(self._handlers))
                case Alive():
                    pass  # nobody judges members here: those that are gone fade from the samples

    def _answer(self, to: int, sender: int, ranges: tuple[tuple[int, int], ...]) -> None:
        found = (each for first, last in ranges for each in self.streams.find(sender, first, last))
        for seqno, payload in islice(found, ANSWER_MAX):
            self._counters["packets_again"] += 1
            self._transmit(to, DataPacket(sender, seqno, 0, payload))

    def _transmit(self, to: int, what: Message | DataPacket) -> None:
        self._out.append((to, dump(self._tag, self.id, what)))
