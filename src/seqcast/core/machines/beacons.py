"""How the coordinators of separate views find each other, and which of two primary partitions gives way (MRG-01).

The acting coordinator of each view multicasts a beacon. When a coordinator hears the beacon of a view that can be
merged with its own, ``merge.py`` is told.

Primary partitions never merge: no minority continues, so any other group was founded separately. The one with less
history gives way, blocked or not: its members are excluded and may join again. If members of both groups have delivered
messages, an operator must decide, and both groups only warn. If neither has, there is nothing to lose: the smaller
group gives way, and a blocked group gives way to one that is not blocked. A blocked view also gives way to a later one
of its lineage: perhaps nobody there has the VIEW any more that closed it, or all there started again (``stable=``).

Without multicast a beacon goes to the addresses of the book (``book.py``) that are not in our view, a few at a time. A
member that hears one answers whose turn has come in its own view, so that the coordinators meet, whichever members the
book has. Heartbeats, which show that the members of a view exist, are sent to the same addresses; in a primary
partition, in which they are counted, by all members.

If multicast may work for some, beacons are multicast, and whoever has heard one of another view for a while does the
same: the coordinators of the two views may not hear each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import seqcast.codes as codes
from seqcast.core.context import NAMED_MAX, NEVER, Context, Estranged
from seqcast.core.frames.fields import common
from seqcast.core.frames.joining import NOBODY, Seen
from seqcast.core.frames.merging import Beacon, Met
from seqcast.core.frames.view import NewView
from seqcast.core.machines.book import Book
from seqcast.core.machines.coordinated import difference
from seqcast.core.machines.initiator import Initiator
from seqcast.core.rules.history import History
from seqcast.core.table import IGNORED, DecisionTable, decision
from seqcast.core.vocabulary import Announce, GiveWay, Warn
from seqcast.types import MEMBERS_MAX, Member

HEARD_MAX = 64
APART_MAX = 64
APART_NS_MAX = 600_000_000_000
"""A view that could not be merged with ours is tried again after ``merge_back_off_ns_max``, doubling up to this."""
LEADER_BEACONS = 10
"""How long a coordinator waits for one with a lower id to lead, in beacon intervals."""
PASSIVE = 2
"""Longest pauses between two merges, after which such a one is taken not to hear us."""
MEET_BEACONS = 3
"""After this many beacons of one view, coordinators are not expected to meet by multicast any more."""
REPEATS = 100
"""How many times the engine sends a beacon before the core makes a new one, in 10 s or, with the preset "wan", 40 s.
The core sleeps meanwhile, and a member whose core hangs falls silent at last."""
GATHER = 2
"""How long a leader waits for further coordinators, in bundling delays: they answer the first beacon that they hear."""
SEPARATE = "another group of this cluster, which was founded separately,"
"""The beginning of the reason for which a group gives way to another one."""
NEITHER_GIVES_WAY = (
    "another group of this cluster exists that was founded separately, and both have delivered messages, so neither "
    "gives way by itself. Stop the members of one group; they join the other one when they are started again"
)
WENT_ON = "the group continued without this member: join again"
Others = dict[int, tuple[int, bytes]]
"""Coordinators of other views: id -> (tag of the view, address)."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Another coordinator, by its beacons: of the view with ``tag``; heard since, or asked us last; and heard last."""

    tag: int
    address: bytes
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True)
class Apart:
    """A view that is ignored for a time, and then considered again, because the report may have been false."""

    until_ns: int
    wait_ns: int


class Beacons:
    def __init__(self, context: Context, initiator: Initiator, book: Book) -> None:
        self.context, self.initiator, self.book = context, initiator, book
        self.found = False  # by the last beacon: a view that ours can be merged with
        self.due_ns = NEVER
        self.tries_ns = NEVER  # when the book is asked for addresses next
        self.said_ns = -NEVER  # when our last beacon was made, and sent first
        self.repeated = False  # repeated by the engine
        # Members in other views, and when we last told each of our view. Two members that have each other in different
        # views would otherwise answer each other's answers without a pause, and each duplicate of one besides.
        self.told_ns: dict[int, int] = {}
        self.counts: dict[int, int] = {}  # beacons heard in our view, by members of others
        self.heard: dict[int, Heard] = {}  # other coordinators
        # Tags of views that cannot be merged with ours as both are. Void once our members change: one of them may have
        # been the misfit. (Once theirs change, their view has another tag.)
        self.apart: dict[int, Apart] = {}
        self.members: frozenset[int] = frozenset()  # ids of those for whom this holds
        self.reasons: dict[str, None] = {}  # for which the application was warned since the last merge
        # Coordinators of other primary partitions to which ours may have to give way: heard first, and last.
        self.rivals: dict[int, tuple[int, int]] = {}
        self.warned: dict[int, None] = {}  # those already warned of, because neither gives way

    # ---- inputs

    def receive(self, frame: Beacon, sender: int, address: bytes) -> bool:
        """A beacon of a view that we were never in. Returns whether ours can be merged with that."""
        if sender in self.context.infos:
            self.initiator.membership.seen_elsewhere(sender)
            own = self.own_beacon()
            now = self.context.now
            if now - self.told_ns.get(sender, -NEVER) >= self.context.settings.beacon_ns // 2:
                self.told_ns[sender] = now
                self.context.send(own, sender, address)  # if its view closed ours, we will hear so
            if own.primary != 0:
                return False
            # We lack a majority, and its news may never come: two groups founded apart took it in.
        self.found = False
        settings = self.context.settings
        if settings.unicast and frame.cluster == self.context.cluster and not self.is_elsewhere(frame, sender, address):
            self._meet(frame, sender, address)
        self.BEACON.take(self, self.context.edges, frame, sender, address)
        if settings.book and not settings.unicast and (self.found or self.context.primary) and self._must_meet(sender):
            self._meet(frame, sender, address)
        return self.found

    def installed(self, merged: bool) -> None:
        """Our new view.

        Timeline without the first lines: c is killed, and founds a group alone under its name, while a and b, which
        have its old incarnation in their view, are stopped. They wake and hear the new c: two members of one name. A
        moment later they exclude the old one, and would leave the new one alone for ever.
        """
        members = frozenset(self.context.infos)
        if members != self.members:
            self.members, self.apart = members, {}
        if merged:
            self.reasons = {}
        self.heard = {member: seen for member, seen in self.heard.items() if member not in self.context.infos}
        self.told_ns = {}
        self.repeated = False
        self.counts = {}
        self.due_ns = self.tries_ns = self.context.now + self.context.settings.bundle_ns
        self.context.elder_ns = -NEVER

    def due(self) -> int:
        """The others have no timer, so that their threads sleep; the change that makes one of them coordinator is an
        input. (Without multicast all members of a primary partition have one, and show themselves.)"""
        return min(self._due_by_multicast(), self._due_by_unicast())

    def _due_by_multicast(self) -> int:
        alone = self.context.view is None or self.context.settings.unicast
        return NEVER if alone or not self.initiator.membership.acting() else self.due_ns

    def _due_by_unicast(self) -> int:
        context = self.context
        if context.view is None or not context.settings.book or not self.book.places:
            return NEVER
        says = context.primary or self.initiator.membership.acting()
        return max(self.tries_ns, self.book.due(self._inside())) if says else NEVER

    def run_timers(self) -> None:
        context = self.context
        if context.now >= self._due_by_unicast():
            self._say_to_some()
        if context.now < self._due_by_multicast():
            return
        times = 1 if context.primary else REPEATS  # beacons of a primary partition change
        self.due_ns = context.now + times * context.settings.beacon_ns
        self.said_ns, self.repeated = context.now, times > 1
        context.emit(Announce(self.own_beacon(), context.settings.beacon_ns, times))

    def review(self) -> None:
        """Called at the end of each step: perhaps no longer our turn."""
        if self.repeated and not self.initiator.membership.acting():
            self.said_ns, self.repeated = self._last_said_ns(), False
            self.due_ns = self.said_ns + self.context.settings.beacon_ns
            self.context.emit(Announce(None))

    def mended(self) -> None:
        """The interface of our sockets was recreated, or is back."""
        for member, info in self.context.infos.items():
            if member != self.context.me.id:
                self._greet(member, info.address)
        for member, seen in self.heard.items():
            self._greet(member, seen.address)

    # ---- requests of the merge

    def others(self) -> Others:
        """Coordinators to merge with. One with a lower id leads; if no request came in all that time, that one may not
        hear us, and we continue alone."""
        context = self.context
        patient = context.now - LEADER_BEACONS * context.settings.beacon_ns
        return {
            member: (seen.tag, seen.address)
            for member, seen in self.heard.items()
            if member not in context.infos and (member > context.me.id or seen.first_ns > patient)
        }

    def passive(self) -> list[bytes]:
        """Where coordinators with lower ids are that have asked for no merge in all this time: they do not hear us."""
        old = self.context.now - PASSIVE * self.context.settings.merge_back_off_ns_max
        lower = [seen for member, seen in self.heard.items() if member < self.context.me.id and seen.first_ns < old]
        return [seen.address for seen in lower] if self.initiator.membership.acting() else []

    def gathered_ns(self, others: Others) -> int:
        """When all coordinators that hear us have had time to answer."""
        first = min(self.heard[member].first_ns for member in others)
        return first + GATHER * self.context.settings.bundle_ns

    def hears(self, sender: int, address: bytes) -> bool:
        """Have multicasts of this coordinator reached us recently, and heartbeats of the beaconed view? Without
        the latter, whoever repeats a beacon could have the group stop sending."""
        known = self.heard.get(sender)
        old = self.context.now - 3 * self.context.settings.beacon_ns
        if known is None or known.address != address or known.last_ns <= old:
            return False
        return self.context.plane.strangers(known.tag) > 0

    def asked_by(self, sender: int, address: bytes) -> None:
        """This coordinator leads a merge, so that we wait for its lead."""
        known = self.heard.get(sender)
        if known is not None and known.address == address:
            self.heard[sender] = replace(known, first_ns=self.context.now)

    def turned_away(self, leader: int, reason: str) -> None:
        """The leader of a merge reports that our subgroup does not fit."""
        self._warn(reason)
        if leader in self.heard:  # another coordinator leads
            self._shun(self.heard[leader].tag)

    def stay_apart(self, view: NewView, reason: str) -> None:
        """Separates us from a subgroup, both in its present form and in that of its way alone."""
        assert view.closes is not None
        self._shun(view.closes.tag, seen=True)
        self._shun(view.view_id.tag, seen=True)
        self._warn(reason)

    def estrange(self, lost: Collection[Member]) -> None:
        """These members were lost because unicasts between us and them do not arrive: a view with them would soon fall
        apart again, and stand still until then. Each time that happens, they are left alone for twice as long, also if
        they join again as new incarnations."""
        now, kept = self.context.now, list(self.context.estranged.values())
        for member in lost:
            before = [each for each in kept if each.is_again(member.name, member.address)]
            waits = [2 * each.wait_ns for each in before if now < each.until_ns + 2 * each.wait_ns]
            wait = min(max(waits, default=self.context.settings.merge_back_off_ns_max), APART_NS_MAX)
            kept = [*(each for each in kept if each not in before), Estranged(member, now + wait, wait)]
        self.context.estranged = {each.member.id: each for each in kept[-MEMBERS_MAX:]}

    # ---- guards

    def is_estranged(self, _frame: Beacon, sender: int, _address: bytes) -> bool:
        estranged = self.context.estranged
        return sender in estranged and self.context.now < estranged[sender].until_ns

    def is_of_another_cluster(self, frame: Beacon, _sender: int, _address: bytes) -> bool:
        return frame.cluster != self.context.cluster

    def is_elsewhere(self, frame: Beacon, _sender: int, address: bytes) -> bool:
        """Addresses are translated on its way, so its stated one does not lead there."""
        return bool(frame.members) and frame.members[0] != address

    def is_left_apart(self, frame: Beacon, _sender: int, _address: bytes) -> bool:
        tag = frame.view_id.tag
        return tag in self.apart and self.context.now < self.apart[tag].until_ns

    def has_other_settings(self, frame: Beacon, _sender: int, _address: bytes) -> bool:
        return bool(self._difference(frame))

    def cannot_be_compared(self, frame: Beacon, _sender: int, _address: bytes) -> bool:
        return self.context.primary and frame.primary is None

    def is_primary(self, _frame: Beacon, _sender: int, _address: bytes) -> bool:
        return self.context.primary

    # ---- actions

    def say_seen(self, frame: Beacon, sender: int, address: bytes) -> None:
        self.context.send(Seen(address, frame.nonce), sender, address)

    def shun(self, frame: Beacon, _sender: int, _address: bytes) -> None:
        self._shun(frame.view_id.tag)
        self._warn(self._difference(frame))

    def note_coordinator(self, frame: Beacon, sender: int, address: bytes) -> None:
        context = self.context
        old = context.now - 3 * context.settings.beacon_ns
        self.heard = {member: seen for member, seen in self.heard.items() if seen.last_ns > old}
        if sender < context.me.id:
            context.elder_ns = context.now
        known = self.heard.get(sender)
        if len(self.heard) < HEARD_MAX or known:
            first_ns = known.first_ns if known else context.now
            self.heard[sender] = Heard(frame.view_id.tag, address, first_ns, context.now)
        if not known:  # all that hear each other must know it before one of them leads
            if self.initiator.membership.acting():
                self._greet(sender, address)
            soon = max(context.now, self._last_said_ns() + context.settings.bundle_ns)
            self.due_ns, self.tries_ns = min(self.due_ns, soon), min(self.tries_ns, soon)

    def report(self, _frame: Beacon, _sender: int, _address: bytes) -> None:
        self.found = True

    def compare(self, frame: Beacon, sender: int, _address: bytes) -> None:
        """Another primary partition: the one with more history stays, else the larger one. Such a view is observed for
        a while first, as a possible predecessor of our view, still held by a member that has not learned of ours. A
        group that went on from our view is not a rival, and one from whose view ours went on gives way itself.

        Timeline without the lineage: c is cut off, and a and b go on for a day, with a view an hour, as they have a
        key. c comes back, and a and b no longer have the VIEW that closed its view: both sides wait for an operator.

        Timeline without the history: a, b and c deliver for a day; a and b are killed, and c is blocked. a starts again
        without hearing c, and founds a group, which is not blocked. They meet: c was excluded, and the day lost.
        """
        context, own = self.context, self.own_beacon()
        assert frame.primary is not None and own.primary is not None
        now, settings = context.now, context.settings
        ours, theirs = ((each.primary, each.view_id.counter, each.view_id.tag) for each in (own, frame))
        views_later = theirs[1] - ours[1] if frame.root == own.root else 0
        if views_later < 0 and not frame.primary:
            return
        went_on = views_later > 0 and not own.primary
        both = own.history == frame.history == History.SHARED
        equals = own.history == frame.history and (not frame.primary or theirs < ours)
        if not both and not went_on and (frame.history < own.history or equals):
            self.rivals.pop(sender, None)
            return
        # A beacon's count proves nothing, so each member that it counts must be heard, from an address of its own.
        if context.plane.strangers(frame.view_id.tag) < max(frame.primary, 1):
            return
        old = now - 3 * settings.beacon_ns
        self.rivals = {member: seen for member, seen in self.rivals.items() if seen[1] > old}
        first, _ = self.rivals.get(sender, (now, now))
        if len(self.rivals) < HEARD_MAX or sender in self.rivals:
            self.rivals[sender] = first, now
        if now - first < 2 * settings.elsewhere_ns:  # a member doubted for being elsewhere no longer counts by then
            return
        if went_on:
            context.emit(GiveWay(frame.view_id, WENT_ON))
        elif not both:
            what = "has a history that this one lacks" if frame.history > own.history else "is larger"
            reason = f"{SEPARATE} {what}: join again"
            context.emit(GiveWay(frame.view_id, reason))
        elif sender not in self.warned and len(self.warned) < HEARD_MAX:
            self.warned[sender] = None
            context.emit(Warn(codes.NEITHER_GIVES_WAY(NEITHER_GIVES_WAY)))

    # ---- by unicast

    def meet_stranger(self, address: bytes) -> None:
        """Its heartbeats come, and no beacon of its view: perhaps no member of either hears the other's coordinator."""
        if self.context.view is not None and address not in self._inside():
            self.context.send(Met(self.context.addresses(self.initiator.membership.doubted())), NOBODY, address)

    def met(self, frame: Met, sender: int, address: bytes) -> None:
        """Somebody names those that our coordinator should meet."""
        context, membership = self.context, self.initiator.membership
        inside = self._inside()
        for each in frame.members:
            if each not in inside:
                self.book.answered(each, context.now)
        if context.settings.unicast or sender in context.infos or membership.acting():
            return
        doubted = membership.doubted()
        acting = next((member.id for member in context.members if member.id not in doubted), context.me.id)
        if acting != context.me.id:
            context.send(Met((*frame.members[: NAMED_MAX - 1], address)), acting)

    def show(self, addresses: Iterable[bytes]) -> None:
        """Lets others know that our view has members, by a heartbeat, which all hear anyway if multicast works."""
        if self.context.settings.book:
            for address in addresses:
                self.context.plane.show(address)

    def _inside(self) -> set[bytes]:
        return {info.address for info in self.context.infos.values()}

    def _say_to_some(self) -> None:
        """Our beacon to the next ones of the book."""
        context = self.context
        self.tries_ns = context.now + context.settings.beacon_ns
        tried = self.book.take(self._inside(), context.now)
        self.show(tried)
        if self.initiator.membership.acting():
            own = self.own_beacon()
            for address in tried:
                context.send(own, NOBODY, address)

    def _must_meet(self, sender: int) -> bool:
        """If multicast may work: is this beacon one of several, so that its view should have met ours by now?"""
        if sender not in self.counts and len(self.counts) >= HEARD_MAX:
            del self.counts[next(iter(self.counts))]
        self.counts[sender] = self.counts.get(sender, 0) + 1
        return self.counts[sender] >= MEET_BEACONS

    def _meet(self, frame: Beacon, sender: int, address: bytes) -> None:
        """Notes the sender and the members that its frame names. If another member is to act, tells the sender so;
        otherwise tells our members of the sender, in a primary partition."""
        context, membership = self.context, self.initiator.membership
        if sender in context.infos or context.now - self.told_ns.get(sender, -NEVER) < context.settings.beacon_ns // 2:
            return
        if len(self.told_ns) >= 2 * MEMBERS_MAX:
            del self.told_ns[next(iter(self.told_ns))]
        self.told_ns[sender] = context.now
        self.book.answered(address, context.now)
        self.book.named(frame.members, context.now)
        if not membership.acting():
            context.send(Met(context.addresses(membership.doubted())), sender, address)
        elif context.primary:
            for member, info in context.infos.items():
                if member != context.me.id:
                    context.send(Met((address,)), member, info.address)

    # ---- the rest

    def _greet(self, member: int, address: bytes) -> None:
        """Pings those that may have to send us unicasts.

        Timeline without this: b's interface is deleted, and made again with another hardware address. b and the leader
        a hear each other's beacons, and a asks b to merge, at the old hardware address. The kernel of a may notice that
        only after half a minute, but learns the new one from anything that b sends.
        """
        self.context.plane.greet(member, address)

    def _last_said_ns(self) -> int:
        """When our last beacon was sent, by the engine or by us."""
        now, beacon_ns = self.context.now, self.context.settings.beacon_ns
        return now - (now - self.said_ns) % beacon_ns if self.repeated else self.said_ns

    def _difference(self, frame: Beacon) -> str:
        """Why its group cannot be merged with ours; "" if possible."""
        settings = self.context.settings
        if frame.order != settings.order:
            return f"order={frame.order!r}, and this one {settings.order!r}"
        if frame.mechanism != self.context.mechanism:
            assert self.context.view is not None
            ours = self.context.view.mechanism
            return f"another mechanism (number {frame.mechanism}) for its order than {ours!r}"
        oldest, newest = zip(frame.speaks, common(self.context.infos.values()), strict=True)
        if max(oldest) > min(newest):
            return f"members that speak no protocol version above {min(newest)}, or none below {max(oldest)}"
        differ = difference(dict(settings.shared), dict(frame.shared))
        return f"other settings: {differ}" if differ else ""

    def own_beacon(self) -> Beacon:
        assert self.context.view is not None
        primary = None
        if self.context.primary:
            doubted = self.initiator.membership.doubted()
            trusted = [member for member in self.context.voters if member not in doubted]
            gated = self.initiator.participant.minority or self.context.founding
            primary = 0 if gated or not self.context.enough(trusted) else len(trusted)
        context, settings = self.context, self.context.settings
        assert context.view is not None
        history = context.history_so_far() if context.primary else 0
        view_id, shared = context.view.view_id, settings.shared
        named = context.addresses(self.initiator.membership.doubted()) if settings.book else ()
        members = tuple(dict.fromkeys((context.me.address, *named)))[:NAMED_MAX] if settings.book else ()
        mechanism, nonce = context.mechanism, settings.nonce
        return Beacon(
            context.cluster, settings.order, mechanism, view_id, primary, shared, history, members, nonce,
            common(context.infos.values()), context.root, opens=self._opened_by_all(),
        )  # fmt: skip

    def _opened_by_all(self) -> tuple[int, ...]:
        """The keys that are in the files of all our members."""
        context = self.context
        return tuple(key for key in context.me.opens if all(key in info.opens for info in context.infos.values()))

    def _shun(self, tag: int, seen: bool = False) -> None:
        """Ignores this view for a time: no merge with it, nor does its coordinator count in the election.

        Args:
            seen: we have seen ourselves the misfit with our members; False: tried again after a time, as
                another one said so, which may be false.
        """
        known = self.apart.pop(tag, None)
        wait = min(2 * known.wait_ns if known else self.context.settings.merge_back_off_ns_max, APART_NS_MAX)
        self.apart[tag] = Apart(NEVER if seen else self.context.now + wait, wait)
        self.heard = {member: seen for member, seen in self.heard.items() if seen.tag != tag}
        while len(self.apart) > APART_MAX:
            del self.apart[next(iter(self.apart))]

    def _warn(self, reason: str) -> None:
        if reason in self.reasons or len(self.reasons) >= APART_MAX:
            return
        self.reasons[reason] = None
        text = f"another group of this cluster cannot be merged with this one: it has {reason}"
        self.context.emit(Warn(codes.APART(text)))

    BEACON: ClassVar[DecisionTable] = decision(
        "beacon",
        (is_of_another_cluster, IGNORED, "the other cluster uses the same multicast address"),
        (is_elsewhere, say_seen, "its sender is not at its stated address, and only those who hear it can tell this"),
        (is_left_apart, IGNORED, "its view cannot be merged with ours; checked again later"),
        (is_estranged, IGNORED, "unicasts between its members and ours were lost; checked again later"),
        (has_other_settings, shun, "its group has other settings and cannot be merged with ours: warn"),
        (cannot_be_compared, IGNORED, "only primary partitions are compared"),
        (is_primary, compare, "two primary partitions never merge; one of them gives way"),
        (None, (note_coordinator, report), "its view can be merged with ours"),
    )
