"""Merging what a partition separated (the cut, step 11; MRG-01 to MRG-09, E-11, E-12).

The acting coordinator of each view multicasts a beacon. A coordinator that hears the beacon of another view, and has
the lowest id of the coordinators it hears, leads: it makes the merge id and asks the others to cut their subgroups and
to hold them. A coordinator follows one merge at a time (compare-and-set of the id). Once one of them is ready, the
leader cuts its own subgroup; when all are ready, it sends all of them the merged view, which each coordinator installs
in its own subgroup as the VIEW that ends the cut. Nobody waits for ever: a follower continues alone when the leader
falls silent.

Primary partitions never merge: no minority continues, so the only other groups are those that were founded apart. The
one with less history gives way, blocked or not: its members are out, and may join again. If both have a history that
members shared, an operator decides, and they only warn. If neither has one, there is nothing to lose: the smaller group
gives way, and a blocked one to one that is not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import ClassVar

from seqcast.core.context import NEVER, Context, Repeat
from seqcast.core.frames.kinds import (
    SUBGROUPS_MAX,
    Beacon,
    MergeAsk,
    MergeCancel,
    MergeGo,
    MergeId,
    MergeReady,
    MergeRefused,
    MergeTaken,
    Merging,
    NewView,
    Subgroup,
)
from seqcast.core.machines.initiator import Initiator, InitiatorEvent
from seqcast.core.machines.membership import difference
from seqcast.core.membership import Membership
from seqcast.core.orders import by_name
from seqcast.core.rules.cut import merged_view, why_apart
from seqcast.core.rules.history import History, history_of
from seqcast.core.rules.lineage import Lineage
from seqcast.core.table import IGNORED, ILLEGAL, DecisionTable, Machine, Table, decision, table
from seqcast.core.vocabulary import GiveWay, Warn
from seqcast.errors import RemoteProtocolError

HEARD_MAX = 64
APART_MAX = 64
APART_NS_MAX = 600_000_000_000
"""A view that cannot be merged with ours is tried again after ``merge_back_off_ns_max``, doubling up to this."""
COUNTER_STEP_MAX = 1 << 32
"""A view's counter may be so far above ours: beyond what any group reaches, and far from the last number."""
FRUITLESS_MAX = 16
FOLLOWED = 2
"""A leader is followed for so many times of its deadline: it has gone on by then, or it leads nothing."""
LEADER_BEACONS = 10
"""A coordinator waits for one with a lower id to lead for so many times of a beacon."""
APART_BEACONS = 10
"""A member that is heard so soon after a merged view fell apart was never out of reach."""
GATHER = 2
"""A leader waits for so many bundling delays for further coordinators: they answer the first beacon that they hear."""
NO_MERGE: MergeId = (0, 0)
_BOTH = (
    "another group of this cluster, founded apart from this one, lives, and both have delivered messages: neither "
    "gives way by itself. End the members of one of the two; they join the other when they are started again"
)


@dataclass(frozen=True, slots=True)
class Heard:
    """Another coordinator, by its beacons: of the view with ``tag``; heard since, or asked us last; and heard last."""

    tag: int
    address: bytes
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True)
class Apart:
    """A view that is left alone for so long; then it is looked at again, as what was said of it may have been a lie."""

    until_ns: int
    wait_ns: int


class MergerState(Enum):
    APART = auto()
    LEADING = auto()
    GOING = auto()
    FOLLOWING = auto()


class MergerEvent(Enum):
    CONSIDER = auto()
    ASK = auto()
    REFUSED = auto()
    READY = auto()
    GO = auto()
    TAKEN = auto()
    CANCEL = auto()
    REVIEW = auto()
    REPEAT = auto()
    DEADLINE = auto()
    VIEW = auto()


S, E = MergerState, MergerEvent
_LEADS = (S.LEADING, S.GOING)
Others = dict[int, tuple[int, bytes]]
"""Coordinators of other views: the tag of the view, and the address, by id."""


class Merger(Machine):
    def __init__(self, context: Context, initiator: Initiator, lineage: Lineage) -> None:
        super().__init__(S.APART, context.edges)
        self.context = context
        self.initiator = initiator
        self.lineage = lineage
        self.membership: Membership  # of the present view; set by the endpoint
        settings = context.settings
        self.repeats = Repeat(settings.repeat_ns_min, settings.repeat_ns_max)
        self.beacon_ns = NEVER
        self.deadline_ns = NEVER
        self.quiet_ns = 0  # no merge before
        self.pause_ns = settings.merge_back_off_ns
        self.merged_ns = -NEVER  # when the last merge was installed
        self.parted: dict[int, int] = {}  # members of that which did not come along to the next view: since when
        self.said_ns = -NEVER  # when our last beacon was sent
        self.lead_ns = NEVER  # when the others that hear us have had the time to say so, too
        self.number = 0
        self.merge: MergeId = NO_MERGE
        self.heard: dict[int, Heard] = {}  # other coordinators
        self.apart: dict[int, Apart] = {}  # tags of views that cannot be merged with ours as both are
        self.reasons: dict[str, None] = {}  # of that, which the application was told
        # Coordinators of other primary partitions to which ours may have to give way: heard first, and last.
        self.rivals: dict[int, tuple[int, int]] = {}
        self.warned: dict[int, None] = {}  # of those: told of, because neither gives way
        self.asked: Others = {}  # while leading
        self.ready: dict[int, MergeReady] = {}
        self.merged: NewView | None = None
        self.leader: tuple[int, bytes] = (0, b"")  # following
        self.patience_ns = NEVER  # the leader is followed no longer, whatever it says
        self.fruitless = 0  # merges that we followed since one was installed
        self.said = (0, 0)  # attempt whose cut the leader was told of
        self.taken: MergeId = NO_MERGE

    # ---- inputs

    def beacon(self, frame: Beacon, sender: int, address: bytes) -> None:
        """A view that we were never in lives."""
        if sender in self.context.infos:
            self.membership.seen_elsewhere(sender)
            own = self._own_beacon()
            self.context.send(own, sender, address)  # if its view closed ours, it tells us
            if own.primary != 0:
                return
            # We lack a majority, and what it could tell us may never come: two groups founded apart took it in.
        self.BEACON.take(self, self.edges, frame, sender, address)

    def receive(self, frame: Merging, sender: int, address: bytes) -> None:
        """A frame of a merge; those that answer us, or are answered, name its id."""
        ours = frame.merge == self.merge
        by_leader = (sender, address) == self.leader
        match frame:
            case MergeAsk():
                self._ask(frame, sender, address)
            case MergeRefused() if ours and self._is_asked(sender, address):
                self.fire(E.REFUSED, sender)
            case MergeReady() if frame.merge[0] == self.context.me.id:
                if self._is_for_us(frame, sender, address):
                    self._check_ready(frame)
                self.fire(E.READY, frame, sender, address)
            case MergeGo() if frame.merge == self.taken and by_leader:
                self.context.send(MergeTaken(frame.merge), sender, address)
            case MergeGo() if ours and by_leader:
                if self._holds() and self.said == self.initiator.attempt and self._goes_on(frame.view):
                    self.fire(E.GO, self._checked(frame.view))
            case MergeTaken() if ours and self._is_asked(sender, address):
                self.fire(E.TAKEN, sender)
            case MergeCancel() if ours and by_leader:
                if frame.reason:
                    self._warn(frame.reason)
                    if sender in self.heard:  # another coordinator leads
                        self._shun(self.heard[sender].tag)
                self.fire(E.CANCEL)

    def _ask(self, frame: MergeAsk, sender: int, address: bytes) -> None:
        if frame.merge[0] != sender:
            raise RemoteProtocolError("MERGE_ASK: the sender is not the leader that its id names")
        self._fell_apart(sender)
        known = self.heard.get(sender)
        if known is not None and known.address == address:
            self.heard[sender] = replace(known, first_ns=self.context.now)
        self.fire(E.ASK, frame, sender, address)

    def _is_asked(self, sender: int, address: bytes) -> bool:
        """Is it a coordinator that we asked, from where its beacons came?"""
        return sender in self.asked and self.asked[sender][1] == address

    def _is_for_us(self, frame: MergeReady, sender: int, address: bytes) -> bool:
        """Does it answer the merge that we lead, or led last?"""
        return frame.merge == self.merge and self._is_asked(sender, address) and self.context.view is not None

    def _check_ready(self, frame: MergeReady) -> None:
        """Raises RemoteProtocolError where the view that a subgroup would install alone cannot be right."""
        context, view = self.context, frame.view
        if view.closes is None:
            raise RemoteProtocolError("MERGE_READY: closes no view")
        if (view.order, view.mechanism) != (context.settings.order, self._mechanism()):
            raise RemoteProtocolError("MERGE_READY: another order, or another mechanism for it, than the group has")
        assert context.view is not None
        if view.view_id.counter > context.view.view_id.counter + COUNTER_STEP_MAX:
            raise RemoteProtocolError("MERGE_READY: its counter is far above that of our view")

    def review(self) -> None:
        """Considers at the end of each step what is possible now."""
        self.fire(E.REVIEW)

    def installed(self, merged: bool, lost: Collection[int]) -> None:
        """Our new view; ``lost``: members of the one before that are not in it."""
        self.fire(E.VIEW)
        now, settings = self.context.now, self.context.settings
        if merged:
            self.merged_ns, self.parted, self.fruitless = now, {}, 0
        elif now - self.merged_ns >= settings.merge_back_off_ns_max:
            self.pause_ns, self.parted = settings.merge_back_off_ns, {}
        else:
            self.parted.update(dict.fromkeys(lost, now))
        self.heard = {member: seen for member, seen in self.heard.items() if member not in self.context.infos}
        self.beacon_ns = self.context.now + self.context.settings.bundle_ns
        self.lead_ns, self.context.elder_ns = NEVER, -NEVER

    def _fell_apart(self, sender: int) -> None:
        """Is it one that was merged with us, did not come along soon after, and is still heard? Then perhaps not all
        hear each other, and the next merge waits longer. One that crashed is not heard again, and counts for nothing;
        and where it is heard only after a silence, the network was cut again, and healed."""
        since = self.parted.pop(sender, None)
        if since is not None and self.context.now - since < APART_BEACONS * self.context.settings.beacon_ns:
            self.pause_ns = min(2 * self.pause_ns, self.context.settings.merge_back_off_ns_max)
            self.quiet_ns = max(self.quiet_ns, since + self.pause_ns)
            self.parted = {}

    def due(self) -> int:
        timers = min(self.repeats.due, self.deadline_ns, self.lead_ns)
        return min(timers, self.beacon_ns) if self.context.view else timers

    def run_timers(self) -> None:
        context = self.context
        if context.now >= self.beacon_ns:
            self.beacon_ns = context.now + context.settings.beacon_ns
            if context.view is not None and self.membership.acting():
                self.said_ns = context.now
                context.multicast(self._own_beacon())
        if context.now >= self.lead_ns:
            self.lead_ns = NEVER
            if context.view is not None:
                self.consider()
        if context.now >= self.deadline_ns:
            self.deadline_ns = NEVER
            self.fire(E.DEADLINE)
        if self.repeats.take(context.now):  # a step may be so late that both are due, and some are awaited still
            self.fire(E.REPEAT)

    # ---- guards: beacons

    def is_of_another_cluster(self, frame: Beacon, _sender: int, _address: bytes) -> bool:
        return frame.cluster != self.context.cluster

    def is_left_apart(self, frame: Beacon, _sender: int, _address: bytes) -> bool:
        tag = frame.view_id.tag
        return tag in self.apart and self.context.now < self.apart[tag].until_ns

    def has_other_settings(self, frame: Beacon, _sender: int, _address: bytes) -> bool:
        return bool(self._difference(frame))

    def cannot_be_compared(self, frame: Beacon, _sender: int, _address: bytes) -> bool:
        return self.context.primary and frame.primary is None

    def is_primary(self, _frame: Beacon, _sender: int, _address: bytes) -> bool:
        return self.context.primary

    # ---- guards: leading

    def may_lead(self, others: Others) -> bool:
        """We coordinate, no view change runs, and of the coordinators that we hear ours has the lowest id."""
        idle = not (self.initiator.running or self.initiator.backing_off)
        may = idle and self._on_duty() and self.context.now >= self.quiet_ns
        return may and bool(others) and min(others) > self.context.me.id

    def may_lead_soon(self, others: Others) -> bool:
        """So it is, but other coordinators that hear us have not had the time to say so."""
        return self.may_lead(others) and self.context.now < self._gathered_ns(others)

    def is_not_for_us(self, frame: MergeReady, sender: int, address: bytes) -> bool:
        return not self._is_for_us(frame, sender, address)

    def shares_members(self, frame: MergeReady, _sender: int, _address: bytes) -> bool:
        """One of the two views must lose them first, as after a false suspicion."""
        return not {member.id for member in self.context.members}.isdisjoint(frame.view.survivors)

    def was_overtaken(self, frame: MergeReady, sender: int, _address: bytes) -> bool:
        """Its sender has made another cut since, and does not hold this one any more."""
        known = self.ready.get(sender)
        return known is not None and known.view.closes == frame.view.closes and frame.view.attempt < known.view.attempt

    def has_no_members(self, frame: MergeReady, _sender: int, _address: bytes) -> bool:
        return not frame.view.members

    def does_not_fit(self, frame: MergeReady, sender: int, _address: bytes) -> bool:
        """It cannot be in one view with ours, or another coordinator is ready with the same view."""
        closed = [ready.view.closes for member, ready in self.ready.items() if member != sender]
        return bool(why_apart(self.context.members, frame.view)) or frame.view.closes in closed

    def is_off_duty(self) -> bool:
        return not self._on_duty()

    def all_are_ready(self) -> bool:
        return self._holds() and self.asked.keys() <= self.ready.keys()

    def none_is_left(self) -> bool:
        """Of those that we asked none can take part."""
        return not self.asked or (self.all_are_ready() and len(self._unfit()) == len(self.asked))

    def was_last(self, sender: int) -> bool:
        return self.asked.keys() <= {sender}

    # ---- guards: following

    def is_by_our_leader(self, frame: MergeAsk, sender: int, address: bytes) -> bool:
        return frame.merge == self.merge and (sender, address) == self.leader

    def is_by_an_unheard_leader(self, _frame: MergeAsk, sender: int, address: bytes) -> bool:
        """Its unicasts reach us, and not the multicasts that a view lives on: the merged view would fall apart. If its
        beacon is only late, it asks again."""
        known = self.heard.get(sender)
        old = self.context.now - 3 * self.context.settings.beacon_ns
        return known is None or known.address != address or known.last_ns <= old

    def can_follow(self, frame: MergeAsk, sender: int, _address: bytes) -> bool:
        context = self.context
        ours = not context.primary and frame.view == context.tag and frame.merge != self.taken
        return ours and sender not in context.infos and self._on_duty() and context.now >= self.quiet_ns

    def has_news_for_leader(self) -> bool:
        """Our subgroup is cut, and the leader was not told of this cut."""
        return self._holds() and self.said != self.initiator.attempt

    # ---- actions: beacons

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
        if not known:  # all that hear each other shall know so before one of them leads
            self.beacon_ns = min(self.beacon_ns, max(context.now, self.said_ns + context.settings.bundle_ns))
        self._fell_apart(sender)

    def consider(self, *_: object) -> None:
        """Leads a merge, if one is possible and it is ours to lead."""
        self.fire(E.CONSIDER, self._others())

    def compare(self, frame: Beacon, sender: int, _address: bytes) -> None:
        """Another primary partition: the one with more history stays, else the larger one. It is looked at for a while,
        as it may be a view from which ours comes, of a member that has yet to learn so.

        Timeline without the history: a, b and c deliver for a day; a and b are killed, and c is blocked. a starts again
        while it does not hear c, and founds a group, which is not blocked. They meet: c was excluded, and the day lost.
        """
        context, own = self.context, self._own_beacon()
        assert frame.primary is not None and own.primary is not None
        now, settings = context.now, context.settings
        ours, theirs = ((each.primary, each.view_id.counter, each.view_id.tag) for each in (own, frame))
        both = own.history == frame.history == History.SHARED
        equals = own.history == frame.history and (not frame.primary or theirs < ours)
        if not both and (frame.history < own.history or equals):
            self.rivals.pop(sender, None)
            return
        # What a beacon says is only said. The members that it counts are heard, each from an address of its own.
        if context.plane.strangers(frame.view_id.tag) < max(frame.primary, 1):
            return
        old = now - 3 * settings.beacon_ns
        self.rivals = {member: seen for member, seen in self.rivals.items() if seen[1] > old}
        first, _ = self.rivals.get(sender, (now, now))
        if len(self.rivals) < HEARD_MAX or sender in self.rivals:
            self.rivals[sender] = first, now
        if now - first < 2 * settings.elsewhere_ns:  # a member doubted for being elsewhere no longer counts by then
            return
        if not both:
            what = "has a history that this one lacks" if frame.history > own.history else "is larger"
            reason = f"another group of this cluster, founded apart from this one, {what}: join again"
            context.emit(GiveWay(frame.view_id, reason))
        elif sender not in self.warned and len(self.warned) < HEARD_MAX:
            self.warned[sender] = None
            context.emit(Warn(_BOTH))

    # ---- actions: leading

    def gather(self, others: Others) -> None:
        self.lead_ns = self._gathered_ns(others)

    def lead(self, others: Others) -> None:
        self.number += 1
        self.merge = (self.context.me.id, self.number)
        self.asked, self.ready = dict(sorted(others.items())[: SUBGROUPS_MAX - 1]), {}
        self._time(self.context.settings.merge_deadline_ns)

    def say_ask(self, *_: object) -> None:
        for member, (tag, address) in self.asked.items():
            self.context.send(MergeAsk(self.merge, tag), member, address)

    def drop(self, sender: int) -> None:
        self.asked.pop(sender, None)
        self.ready.pop(sender, None)

    def drop_silent(self) -> None:
        for member in [member for member in self.asked if member not in self.ready or not self._holds()]:
            self._cancel(member, "")

    def turn_away(self, frame: MergeReady, sender: int, _address: bytes) -> None:
        """Its subgroup cannot join in."""
        reason = why_apart(self.context.members, frame.view)
        self._cancel(sender, reason)
        if reason:
            self._stay_apart(frame.view, reason)

    def let_go(self, _frame: MergeReady, sender: int, _address: bytes) -> None:
        self._cancel(sender, "")

    def note_ready(self, frame: MergeReady, sender: int, address: bytes) -> None:
        """Its subgroup joins in."""
        self.asked[sender] = self.asked[sender][0], address
        self.ready[sender] = frame
        self.context.merging = True  # so that our own cut is made, and held

    def drop_unfit(self) -> None:
        for member, reason in self._unfit().items():
            self._cancel(member, reason)

    def _unfit(self) -> dict[int, str]:
        """Of the subgroups that are ready those that do not fit to one before them, and why, by coordinator."""
        members, unfit = list(self.context.members), {}
        for member in sorted(self.ready):
            view = self.ready[member].view
            if reason := why_apart(members, view):
                unfit[member] = reason
            else:
                members += [info.member for info in view.members]
        return unfit

    def go(self) -> None:
        own = self.initiator.plain
        assert own is not None
        parts = [own]
        assert self.context.view is not None
        shortfalls = [*self.lineage.shortfalls(self.context.view, own)]
        for member in sorted(self.ready):
            parts.append(self.ready[member].view)
            shortfalls += self.ready[member].shortfalls
        self.merged = merged_view(parts, shortfalls, self.initiator.arrange, self.context.settings.choose_sequencer)
        self._time(self.context.settings.merge_deadline_ns)
        self.context.merging = False
        self.say_go()
        self.initiator.fire(InitiatorEvent.GO, self.merged)

    def say_go(self) -> None:
        assert self.merged is not None
        for member, (_, address) in self.asked.items():
            self.context.send(MergeGo(self.merge, self.merged), member, address)

    def note_taken(self, sender: int) -> None:
        self.asked.pop(sender, None)

    def cancel_all(self) -> None:
        for member in list(self.asked):
            self._cancel(member, "")

    def cancel_one(self, frame: MergeReady, sender: int, address: bytes) -> None:
        self.context.send(MergeCancel(frame.merge, ""), sender, address)

    # ---- actions: following

    def follow(self, frame: MergeAsk, sender: int, address: bytes) -> None:
        self.merge, self.leader, self.said = frame.merge, (sender, address), (0, 0)
        self.context.merging = True
        self.patience_ns = self.context.now + FOLLOWED * self.context.settings.merge_deadline_ns
        self.renew()

    def renew(self, *_: object) -> None:
        """The timer goes with the merge id: it is stopped whenever that merge is over (E-12)."""
        self.deadline_ns = min(self.context.now + self.context.settings.merge_lease_ns, self.patience_ns)

    def say_ready(self, *_: object) -> None:
        if self._holds():
            plain = self.initiator.plain
            assert plain is not None
            self.said = self.initiator.attempt
            member, address = self.leader
            assert self.context.view is not None
            shortfalls = self.lineage.shortfalls(self.context.view, plain)
            self.context.send(MergeReady(self.merge, plain, shortfalls), member, address)

    def take(self, template: NewView) -> None:
        self.taken = self.merge
        self.context.merging = False
        self.context.send(MergeTaken(self.merge), *self.leader)
        self.initiator.fire(InitiatorEvent.GO, template)

    def decline(self) -> None:
        self.context.send(MergeRefused(self.merge), *self.leader)

    def refuse(self, frame: MergeAsk, sender: int, address: bytes) -> None:
        self.context.send(MergeRefused(frame.merge), sender, address)

    def count_unheard(self, *_: object) -> None:
        self.context.counters["merges_unheard"] += 1

    # ---- actions: both

    def release(self) -> None:
        """On without the merge: what is held becomes a view of our subgroup alone."""
        self.stop()
        if self._holds():
            self.initiator.fire(InitiatorEvent.RELEASE)

    def back_off(self) -> None:
        """After a merge that did not come about. Only where merged views fall apart is there a longer pause, at each
        side its own: the shorter one asks again, so that none adds to another."""
        self.quiet_ns = max(self.quiet_ns, self.context.now + self.context.settings.merge_back_off_ns)

    def back_off_longer(self) -> None:
        """Waits longer the more merges led by others came to nothing: a member that only asks must not keep the group
        from sending."""
        settings = self.context.settings
        pause = settings.merge_back_off_ns << min(self.fruitless, FRUITLESS_MAX)
        self.quiet_ns = self.context.now + max(self.pause_ns, min(pause, settings.merge_back_off_ns_max))
        self.fruitless = min(self.fruitless + 1, FRUITLESS_MAX)

    def stop(self, *_: object) -> None:
        self.repeats.stop()
        self.deadline_ns = NEVER
        self.context.merging = False

    # ---- the rest

    def _others(self) -> Others:
        """Coordinators to merge with. One with a lower id leads; if it does not ask us in all that time, it may not
        hear us: we do without it."""
        context = self.context
        patient = context.now - LEADER_BEACONS * context.settings.beacon_ns
        return {
            member: (seen.tag, seen.address)
            for member, seen in self.heard.items()
            if member not in context.infos and (member > context.me.id or seen.first_ns > patient)
        }

    def _gathered_ns(self, others: Others) -> int:
        """When the coordinators that hear us have had the time to say so."""
        first = min(self.heard[member].first_ns for member in others)
        return first + GATHER * self.context.settings.bundle_ns

    def _difference(self, frame: Beacon) -> str:
        """What its group has that ours has not, so that they cannot be merged; "" if nothing."""
        settings = self.context.settings
        if frame.order != settings.order:
            return f"order={frame.order!r}, and this one {settings.order!r}"
        if frame.mechanism != self._mechanism():
            assert self.context.view is not None
            ours = self.context.view.mechanism
            return f"another mechanism (number {frame.mechanism}) for its order than {ours!r}"
        differ = difference(dict(settings.shared), dict(frame.shared))
        return f"other settings: {differ}" if differ else ""

    def _own_beacon(self) -> Beacon:
        assert self.context.view is not None
        primary = None
        if self.context.primary:
            doubted = self.membership.doubted()
            trusted = [member.id for member in self.context.members if member.id not in doubted]
            gated = self.initiator.participant.minority
            primary = 0 if gated or not self.context.enough(trusted) else len(trusted)
        context, settings = self.context, self.context.settings
        assert context.view is not None
        history = history_of(context) if context.primary else 0
        view_id, shared = context.view.view_id, settings.shared
        return Beacon(context.cluster, settings.order, self._mechanism(), view_id, primary, shared, history)

    def _mechanism(self) -> int:
        """Number of the mechanism that orders the messages of our group."""
        assert self.context.view is not None
        return by_name(self.context.view.mechanism).number

    def _holds(self) -> bool:
        return self.initiator.holding

    def _on_duty(self) -> bool:
        stays = self.context.view is not None and self.context.me.id not in self.membership.leaving()
        return stays and self.membership.acting() and not self.initiator.backing_off

    def _time(self, deadline_ns: int) -> None:
        self.repeats.start(self.context.now)
        self.deadline_ns = self.context.now + deadline_ns

    def _cancel(self, member: int, reason: str) -> None:
        address = self.asked[member][1]
        self.drop(member)
        self.context.send(MergeCancel(self.merge, reason), member, address)

    def _own_subgroup(self, template: NewView) -> Subgroup | None:
        return next((group for group in template.subgroups if self.context.me.id in group.ids), None)

    def _goes_on(self, template: NewView) -> bool:
        """Does the merged view go on from our cut? It may be made of an earlier one, which is not held any more: with
        other bases, or with members that we have lost since."""
        own = self.initiator.plain
        assert own is not None
        group = self._own_subgroup(template)
        if group is not None and not {info.id for info in own.members}.issuperset(group.ids):
            return False
        places = {info.id: rank for rank, info in enumerate(template.members)}
        for rank, info in enumerate(own.members):
            there = places.get(info.id)
            if there is None or (template.base[there], template.origin_base[there]) != (
                own.base[rank],
                own.origin_base[rank],
            ):
                return False
        return True

    def _checked(self, template: NewView) -> NewView:
        """The merged view, which goes on from our cut.

        Raises:
            RemoteProtocolError: it cannot be right.
        """
        own = self.initiator.plain
        assert own is not None
        group = self._own_subgroup(template)
        if group is None or group.view_id != own.closes:
            raise RemoteProtocolError("MERGE_GO: this subgroup is not among those that it merges")
        if (template.order, template.mechanism) != (self.context.settings.order, self._mechanism()):
            raise RemoteProtocolError("MERGE_GO: another order, or another mechanism for it, than the group has")
        if template.view_id.counter > own.view_id.counter + COUNTER_STEP_MAX:
            raise RemoteProtocolError("MERGE_GO: its counter is far above that of our view")
        if not template.view_id > own.view_id:
            raise RemoteProtocolError("MERGE_GO: the merged view is not newer")
        return replace(template, closes=None, answers=None)

    def _stay_apart(self, view: NewView, reason: str) -> None:
        """From a subgroup as it is, and as it will be when it goes on alone."""
        assert view.closes is not None
        self._shun(view.closes.tag, seen=True)
        self._shun(view.view_id.tag, seen=True)
        self._warn(reason)

    def _shun(self, tag: int, seen: bool = False) -> None:
        """No merge with this view: who coordinates it counts for nothing in the election either.

        Args:
            seen: we have seen ourselves that it does not fit; else somebody said so, who may have lied.
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
        self.context.emit(Warn(f"another group of this cluster cannot be merged with this one: it has {reason}"))

    BEACON: ClassVar[DecisionTable] = decision(
        "beacon",
        (is_of_another_cluster, IGNORED, "it shares our multicast address"),
        (is_left_apart, IGNORED, "a view that cannot be merged with ours; it is looked at again later"),
        (has_other_settings, shun, "a group that cannot be merged with ours: warn, and leave it apart"),
        (cannot_be_compared, IGNORED, "only primary partitions have something to compare"),
        (is_primary, compare, "two primary partitions never merge; one of them gives way"),
        (None, (note_coordinator, consider), "a view that ours can be merged with"),
    )

    TABLE: ClassVar[Table] = table(
        "merger",
        S,
        E,
        (S.APART, (E.CONSIDER, may_lead_soon), None, gather, "further coordinators answer the first beacon they hear"),
        (S.APART, (E.CONSIDER, may_lead), S.LEADING, (lead, say_ask), "another view lives, and we have the lowest id"),
        (None, E.CONSIDER, None, IGNORED, "a merge is under way, or it is not ours to lead"),
        (S.FOLLOWING, (E.ASK, is_by_our_leader), None, (renew, say_ready), "the leader lives; our answer may be lost"),
        (tuple(S), (E.ASK, is_by_an_unheard_leader), None, count_unheard, "a merged view would fall apart"),
        (S.APART, (E.ASK, can_follow), S.FOLLOWING, follow, "no merge is under way: the id is ours now (E-11)"),
        (None, E.ASK, None, refuse, "another merge is under way, or we coordinate no such view"),
        (S.LEADING, E.REFUSED, None, drop, "without it"),
        (None, E.REFUSED, None, IGNORED, "late"),
        (_LEADS, (E.READY, is_not_for_us), None, cancel_one, "of a merge that is over, or goes without it"),
        (_LEADS, (E.READY, shares_members), None, let_go, "a member is in both: one view must lose it first"),
        (_LEADS, (E.READY, was_overtaken), None, IGNORED, "that cut is not held any more"),
        (_LEADS, (E.READY, has_no_members), None, let_go, "all leave: there is nothing to merge"),
        (S.LEADING, (E.READY, does_not_fit), None, turn_away, "it cannot be in one view with ours"),
        (S.LEADING, E.READY, None, note_ready, "a subgroup is cut; now ours"),
        (S.GOING, E.READY, None, IGNORED, "decided; GO is repeated"),
        (None, E.READY, None, cancel_one, "of a merge that is over: it need not wait"),
        (S.LEADING, (E.REVIEW, is_off_duty), S.APART, (cancel_all, release), "another member coordinates now"),
        (S.LEADING, (E.REVIEW, none_is_left), S.APART, (drop_unfit, release, back_off), "all refused or are silent"),
        (S.LEADING, (E.REVIEW, all_are_ready), S.GOING, (drop_unfit, go), "all that we asked, and we, hold the cut"),
        (S.FOLLOWING, (E.REVIEW, is_off_duty), S.APART, (decline, release), "another member coordinates now"),
        (S.FOLLOWING, (E.REVIEW, has_news_for_leader), None, say_ready, "our subgroup is cut"),
        (None, E.REVIEW, None, IGNORED, "nothing has changed"),
        (S.FOLLOWING, E.GO, S.APART, (stop, take), "the merged view"),
        (None, E.GO, None, IGNORED, "late"),
        (S.GOING, (E.TAKEN, was_last), S.APART, stop, "all subgroups install it"),
        (S.GOING, E.TAKEN, None, note_taken, "others are missing"),
        (None, E.TAKEN, None, IGNORED, "repeated"),
        (S.FOLLOWING, E.CANCEL, S.APART, (release, back_off_longer), "the leader gave up: continue alone"),
        (None, E.CANCEL, None, IGNORED, "late"),
        (S.LEADING, E.REPEAT, None, say_ask, "some are not ready; and those that are learn that we live"),
        (S.GOING, E.REPEAT, None, say_go, "some have not taken it"),
        (None, E.REPEAT, None, ILLEGAL, "the timer does not run"),
        (S.LEADING, E.DEADLINE, None, drop_silent, "without those that are not ready by now"),
        (S.GOING, E.DEADLINE, S.APART, stop, "a coordinator that did not answer continues alone and is rediscovered"),
        (S.FOLLOWING, E.DEADLINE, S.APART, (release, back_off_longer), "the leader is silent, or slow: continue alone"),
        (S.APART, E.DEADLINE, None, ILLEGAL, "no deadline runs"),
        (S.LEADING, E.VIEW, S.APART, (cancel_all, stop), "our view was closed without the merge"),
        (S.FOLLOWING, E.VIEW, S.APART, (decline, stop), "our view was closed without the merge"),
        (None, E.VIEW, None, IGNORED, "nothing of ours is held"),
    )
