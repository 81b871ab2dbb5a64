"""Merging the sides of a partition (the cut, step 11; MRG-01 to MRG-09, E-11, E-12).

A coordinator that hears the beacon of another view (``beacons.py``) leads if its id is the lowest of the coordinators
heard: it makes the merge id and asks the others to cut their subgroups and to hold the cut. A coordinator follows one
merge at a time (compare-and-set of the id). Once one of them is ready, the leader cuts its own subgroup; when all are
ready, it sends all of them the merged view, which each coordinator installs in its own subgroup as the VIEW that ends
the cut. No member waits for ever: a follower continues alone when the leader falls silent.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from enum import Enum, auto
from typing import ClassVar

import seqcast.codes as codes
from seqcast.core.context import NEVER, Context, Repeat
from seqcast.core.frames.fields import MergeId
from seqcast.core.frames.merging import (
    Beacon,
    MergeAsk,
    MergeCancel,
    MergeFrame,
    MergeGo,
    MergeReady,
    MergeRefused,
    MergeTaken,
)
from seqcast.core.frames.view import SUBGROUPS_MAX, NewView
from seqcast.core.lineage import Lineage
from seqcast.core.machines.beacons import HEARD_MAX, Beacons, Others
from seqcast.core.machines.book import Book
from seqcast.core.machines.coordinated import UNICAST_PORTS
from seqcast.core.machines.initiator import Initiator, InitiatorEvent
from seqcast.core.machines.lifecycle import DEAF
from seqcast.core.rules.hosts import host_of
from seqcast.core.rules.merged import check_part, checked, continues, merged_view, why_apart
from seqcast.core.table import IGNORED, ILLEGAL, Table, TableMachine, table
from seqcast.core.vocabulary import Warn
from seqcast.errors import RemoteProtocolError
from seqcast.types import Member

FRUITLESS_MAX = 16
FRUITLESS_TOLD = 4
"""After this many merges of one leader in vain, the application is told."""
SILENT_TOLD = 4
"""The same, after this many requests for a merge without any answer."""
FOLLOWED = 2
"""How long a leader is followed, in merge deadlines: by then the leader has completed the merge, or leads none."""
APART_BEACONS = 10
"""A member that is heard within this time after a merged view fell apart was never unreachable."""
VAIN_DEADLINES = 2
"""A leader that is not heard is named when it has asked for this long, in merge deadlines: a beacon may only be
late."""
MULTICASTS = (
    "Check the multicast filtering of the switches between them (IGMP snooping needs a querier), and this machine's "
    "firewall (does it drop 224.0.0.0/4?)"
)
NO_MERGE: MergeId = (0, 0)


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


class Merger(TableMachine):
    def __init__(self, context: Context, initiator: Initiator, lineage: Lineage, book: Book) -> None:
        super().__init__(S.APART, context.edges)
        self.context = context
        self.initiator = initiator
        self.lineage = lineage
        self.beacons = Beacons(context, initiator, book)
        settings = context.settings
        self.repeats = Repeat(settings.repeat_ns_min, settings.repeat_ns_max)
        self.deadline_ns = NEVER
        self.quiet_ns = 0  # no merge before
        self.pause_ns = settings.merge_back_off_ns
        self.merged_ns = -NEVER  # when the last merge was installed
        self.parted: dict[int, int] = {}  # its members that did not continue into the next view: since when
        self.lead_ns = NEVER  # when the others that hear us have had time to answer, too
        self.number = 0
        self.merge: MergeId = NO_MERGE
        self.asked: Others = {}  # while leading
        self.ready: dict[int, MergeReady] = {}
        self.merged: NewView | None = None
        self.leader: tuple[int, bytes] = (0, b"")  # following
        self.patience_ns = NEVER  # when we stop following the leader, in any case
        self.fruitless = 0  # merges that we followed since one was installed
        self.said = (0, 0)  # attempt whose cut the leader was told of
        self.taken: MergeId = NO_MERGE
        self.vain: dict[int, tuple[int, int]] = {}  # leaders that are not heard: when they asked first, and last
        self.silent: dict[int, int] = {}  # coordinators that answered none of our last requests: how many
        self.failed: dict[int, int] = {}  # leaders whose merges we followed in vain since the last one: how many
        self.told: dict[str, None] = {}  # warnings since then

    # ---- inputs

    def beacon(self, frame: Beacon, sender: int, address: bytes) -> None:
        if self.beacons.receive(frame, sender, address):
            self._fell_apart(sender)
            self.consider()

    def receive(self, frame: MergeFrame, sender: int, address: bytes) -> None:
        """A frame of a merge; those that answer us, or are answered, name its id."""
        ours, me = frame.merge == self.merge, self.context.me.id
        self.silent.pop(sender, None)
        by_leader = (sender, address) == self.leader
        match frame:
            case MergeAsk():
                self._ask(frame, sender, address)
            case MergeRefused() if ours and self._is_asked(sender, address):
                self.fire(E.REFUSED, sender)
            case MergeReady() if frame.merge[0] == me:
                if self._is_for_us(frame, sender, address):
                    assert self.context.view is not None
                    check_part(frame.view, self.context.view, self.context.mechanism)
                self.fire(E.READY, frame, sender, address)
            case MergeGo() if frame.merge == self.taken and by_leader:
                self.context.send(MergeTaken(frame.merge), sender, address)
            case MergeGo() if ours and by_leader:
                follows = self._holds() and self.said == self.initiator.attempt
                strangers = self.context.identities.strangers(frame.view, self.context.infos)
                if follows and strangers:
                    self.beacons.turned_away(sender, strangers)
                follows = follows and not strangers
                opens = self.context.secrets.of(frame.view) is not None
                if follows and opens and continues(frame.view, self._own(), me):
                    self.fire(E.GO, checked(frame.view, self._own(), me))
            case MergeTaken() if ours and self._is_asked(sender, address):
                self.fire(E.TAKEN, sender)
            case MergeCancel() if ours and by_leader:
                if frame.reason:
                    self.beacons.turned_away(sender, frame.reason)
                self.fire(E.CANCEL, frame.reason)

    def _ask(self, frame: MergeAsk, sender: int, address: bytes) -> None:
        if frame.merge[0] != sender:
            raise RemoteProtocolError("MERGE_ASK: the sender is not the leader that its id names")
        self._fell_apart(sender)
        self.beacons.asked_by(sender, address)
        self.fire(E.ASK, frame, sender, address)

    def _is_asked(self, sender: int, address: bytes) -> bool:
        """Is that a coordinator that we asked, at the address of its beacons?"""
        return sender in self.asked and self.asked[sender][1] == address

    def _is_for_us(self, frame: MergeReady, sender: int, address: bytes) -> bool:
        """Is this an answer to the merge that we lead, or the last one that we led?"""
        return frame.merge == self.merge and self._is_asked(sender, address) and self.context.view is not None

    def review(self) -> None:
        """Called at the end of each step: takes the steps that have become possible."""
        self.beacons.review()
        self.fire(E.REVIEW)

    def installed(self, merged: bool, lost: Collection[int], estranged: Collection[Member] = ()) -> None:
        """Our new view; ``lost``: members of the one before that are missing there; ``estranged``: those of them whose
        unicasts do not reach all of us, or ours them."""
        self.fire(E.VIEW)
        now, settings = self.context.now, self.context.settings
        if merged:
            self.merged_ns, self.parted, self.fruitless, self.failed, self.told = now, {}, 0, {}, {}
            self.silent = {}
        elif now - self.merged_ns >= settings.merge_back_off_ns_max:
            self.pause_ns, self.parted = settings.merge_back_off_ns, {}
        else:
            self.parted.update(dict.fromkeys(lost, now))
        self.lead_ns = NEVER
        self.beacons.estrange(estranged)
        self.beacons.installed(merged)

    def _fell_apart(self, sender: int) -> None:
        """Was this member merged with us, lost soon after, and heard all the time? Then perhaps not all members hear
        each other, and the next merge waits longer. A crashed member is not heard again and does not count. A member
        that is heard only after a silence was cut off by the network, which has healed."""
        since = self.parted.pop(sender, None)
        if since is not None and self.context.now - since < APART_BEACONS * self.context.settings.beacon_ns:
            self.pause_ns = min(2 * self.pause_ns, self.context.settings.merge_back_off_ns_max)
            self.quiet_ns = max(self.quiet_ns, since + self.pause_ns)
            self.parted = {}

    def due(self) -> int:
        return min(self.repeats.due, self.deadline_ns, self.lead_ns, self.beacons.due())

    def run_timers(self) -> None:
        context = self.context
        self.beacons.run_timers()
        if context.now >= self.lead_ns:
            self.lead_ns = NEVER
            if context.view is not None:
                self.consider()
        if context.now >= self.deadline_ns:
            self.deadline_ns = NEVER
            self.fire(E.DEADLINE)
        if self.repeats.take(context.now):  # a step may be so late that both are due, and some are awaited still
            self.fire(E.REPEAT)

    # ---- guards: leading

    def may_lead(self, others: Others) -> bool:
        """We coordinate, no view change runs, and we have the lowest id of the coordinators that we hear."""
        idle = not (self.initiator.running or self.initiator.backing_off)
        may = idle and self._on_duty() and self.context.now >= self.quiet_ns
        return may and bool(others) and min(others) > self.context.me.id

    def may_lead_soon(self, others: Others) -> bool:
        """The same, but other coordinators that hear us have not had time to answer."""
        return self.may_lead(others) and self.context.now < self.beacons.gathered_ns(others)

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
        """Cannot be in one view with ours, or another coordinator is ready with the same view."""
        closed = [ready.view.closes for member, ready in self.ready.items() if member != sender]
        return bool(self._why_apart(frame.view)) or frame.view.closes in closed

    def has_the_merged_cut(self, frame: MergeReady, sender: int, _address: bytes) -> bool:
        """Its cut is the one that the merged view continues."""
        known = self.ready[sender].view
        return (frame.view.closes, frame.view.attempt) == (known.closes, known.attempt)

    def is_the_last_awaited(self, _frame: MergeReady, sender: int, _address: bytes) -> bool:
        return self.was_last(sender)

    def is_off_duty(self) -> bool:
        return not self._on_duty()

    def all_are_ready(self) -> bool:
        return self._holds() and self.asked.keys() <= self.ready.keys()

    def none_is_left(self) -> bool:
        """None of those that we asked can take part."""
        return not self.asked or (self.all_are_ready() and len(self._unfit()) == len(self.asked))

    def was_last(self, sender: int) -> bool:
        return self.asked.keys() <= {sender}

    # ---- guards: following

    def is_by_our_leader(self, frame: MergeAsk, sender: int, address: bytes) -> bool:
        return frame.merge == self.merge and (sender, address) == self.leader

    def is_by_an_unheard_leader(self, _frame: MergeAsk, sender: int, address: bytes) -> bool:
        """Its unicasts reach us but not its multicasts, which a view needs: the merged view would fall apart; or its
        beacons tell of a view without members. After a late beacon or heartbeat the leader asks again."""
        return not self.beacons.hears(sender, address)

    def can_follow(self, frame: MergeAsk, sender: int, _address: bytes) -> bool:
        context = self.context
        ours = not context.primary and frame.view == context.tag and frame.merge != self.taken
        return ours and sender not in context.infos and self._on_duty() and context.now >= self.quiet_ns

    def leads_nowhere(self) -> bool:
        """The leader still asks, and would have completed any merge by now."""
        return self.context.now >= self.patience_ns

    def has_news_for_leader(self) -> bool:
        """Our subgroup is cut, and the leader was not told of this cut."""
        return self._holds() and self.said != self.initiator.attempt

    # ---- actions: leading

    def consider(self, *_: object) -> None:
        """Leads a merge if possible, on our turn."""
        for address in self.beacons.passive():
            self._warn_of_deaf(address)
        self.fire(E.CONSIDER, self.beacons.others())

    def gather(self, others: Others) -> None:
        self.lead_ns = self.beacons.gathered_ns(others)

    def lead(self, others: Others) -> None:
        # The others follow only a view whose heartbeats they hear: they need not wait for the next one.
        self.context.plane.beat(self.context.now)
        self.number += 1
        self.merge = (self.context.me.id, self.number)
        self.asked, self.ready = dict(sorted(others.items())[: SUBGROUPS_MAX - 1]), {}
        self.beacons.show(address for _, address in self.asked.values())
        self._time(self.context.settings.merge_deadline_ns)

    def say_ask(self, *_: object) -> None:
        for member, (tag, address) in self.asked.items():
            self.context.send(MergeAsk(self.merge, tag), member, address)

    def drop(self, sender: int) -> None:
        self.asked.pop(sender, None)
        self.ready.pop(sender, None)

    def drop_silent(self) -> None:
        for member in [member for member in self.asked if member not in self.ready or not self._holds()]:
            self._count_silent(member)
            self._cancel(member, "")

    def _count_silent(self, member: int) -> None:
        """Both groups would otherwise stay apart without a word."""
        if member in self.ready:
            return
        if len(self.silent) >= HEARD_MAX and member not in self.silent:
            return
        self.silent[member] = self.silent.get(member, 0) + 1
        if self.silent[member] >= SILENT_TOLD:
            self._warn_of_deaf(self.asked[member][1])

    def turn_away(self, frame: MergeReady, sender: int, _address: bytes) -> None:
        """Its subgroup cannot join in."""
        reason = self._why_apart(frame.view)
        self._cancel(sender, reason)
        if reason:
            self.beacons.stay_apart(frame.view, reason)

    def let_go(self, _frame: MergeReady, sender: int, _address: bytes) -> None:
        self._cancel(sender, "")

    def note_ready(self, frame: MergeReady, sender: int, address: bytes) -> None:
        """Its subgroup joins in."""
        self.asked[sender] = self.asked[sender][0], address
        self.ready[sender] = frame
        self.context.merging = True  # so that our own cut is made, and held

    def _why_apart(self, view: NewView) -> str:
        """Why the members of another subgroup cannot be in one view with ours; "": they can."""
        strangers = self.context.identities.strangers(view, self.context.infos)
        return why_apart(self.context.members, view, self.context.identities.most) or strangers

    def drop_unfit(self) -> None:
        for member, reason in self._unfit().items():
            self._cancel(member, reason)

    def _unfit(self) -> dict[int, str]:
        """The ready subgroups that conflict with an earlier one: coordinator -> reason."""
        members, unfit = list(self.context.members), {}
        for member in sorted(self.ready):
            view = self.ready[member].view
            if reason := why_apart(members, view, self.context.identities.most):
                unfit[member] = reason
            else:
                members += [info.member for info in view.members]
        return unfit

    def go(self) -> None:
        own = self._own()
        parts = [own]
        assert self.context.view is not None
        shortfalls = [*self.lineage.shortfalls(self.context.view, own)]
        for member in sorted(self.ready):
            parts.append(self.ready[member].view)
            shortfalls += self.ready[member].shortfalls
        merged = merged_view(parts, shortfalls, self.initiator.arrange, self.initiator.choose)
        self.merged = self.context.secrets.given(merged)
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
        """The timer goes with the merge id: stopped at the end of that merge (E-12)."""
        self.deadline_ns = min(self.context.now + self.context.settings.merge_lease_ns, self.patience_ns)

    def say_ready(self, *_: object) -> None:
        if self._holds():
            own = self._own()
            self.said = self.initiator.attempt
            member, address = self.leader
            assert self.context.view is not None
            shortfalls = self.lineage.shortfalls(self.context.view, own)
            told = replace(own, wraps=())  # the merged view has another secret
            self.context.send(MergeReady(self.merge, told, shortfalls), member, address)

    def take(self, template: NewView) -> None:
        self.taken = self.merge
        self.context.merging = False
        self.context.send(MergeTaken(self.merge), *self.leader)
        self.initiator.fire(InitiatorEvent.GO, template)

    def decline(self) -> None:
        self.context.send(MergeRefused(self.merge), *self.leader)

    def refuse(self, frame: MergeAsk, sender: int, address: bytes) -> None:
        self.context.send(MergeRefused(frame.merge), sender, address)

    def count_unheard(self, _frame: MergeAsk, sender: int, address: bytes) -> None:
        """Both groups would otherwise stay apart without a word."""
        context = self.context
        context.counters["merges_unheard"] += 1
        now, most = context.now, context.settings.merge_deadline_ns
        self.vain = {member: asked for member, asked in self.vain.items() if now - asked[1] <= most}
        first_ns, _ = self.vain.get(sender, (now, now))
        if sender in self.vain or len(self.vain) < HEARD_MAX:
            self.vain[sender] = first_ns, now
        if now - first_ns >= VAIN_DEADLINES * most:
            known = context.estranged.get(sender)
            if known is not None and now < known.until_ns:
                why = f"unicasts between {known.member.name} and members of this group were lost. {UNICAST_PORTS}"
            else:
                why = f"its multicasts do not reach this member. {MULTICASTS}"
            self._warn_of(address, f"and is not followed, as {why}")

    def _warn_of(self, address: bytes, what: str) -> None:
        """Warns once for each host, so that a stranger with many ids does not fill the log."""
        self._warn_once(
            f"{host_of(address) or 'a member'} asks again and again to merge its group with this one, {what}"
        )

    def _warn_of_deaf(self, address: bytes) -> None:
        self._warn_once(
            f"{host_of(address) or 'a member'} has another group of this cluster, and is heard, and does not answer: "
            f"datagrams from here do not arrive there. {DEAF}"
        )

    def _warn_once(self, text: str) -> None:
        if text not in self.told and len(self.told) < HEARD_MAX:
            self.told[text] = None
            self.context.emit(Warn(codes.APART(text)))

    # ---- actions: both

    def release(self, *_: object) -> None:
        """Continues without the merge: the held cut becomes a view of our subgroup alone."""
        self.stop()
        if self._holds():
            self.initiator.fire(InitiatorEvent.RELEASE)

    def back_off(self) -> None:
        """After a merge that failed. Only if merged views fall apart is the pause longer; each side has its own, and
        the shorter one counts because that side asks again."""
        self.quiet_ns = max(self.quiet_ns, self.context.now + self.context.settings.merge_back_off_ns)

    def back_off_longer(self, *_: object) -> None:
        """Waits longer the more merges led by others have failed: a member that only asks must not keep the group from
        sending."""
        settings = self.context.settings
        pause = settings.merge_back_off_ns << min(self.fruitless, FRUITLESS_MAX)
        self.quiet_ns = self.context.now + max(self.pause_ns, min(pause, settings.merge_back_off_ns_max))
        self.fruitless = min(self.fruitless + 1, FRUITLESS_MAX)

    def tell_in_vain(self, reason: str = "") -> None:
        """``reason``: for which the leader left us out, and of which the application was warned."""
        leader, address = self.leader
        if leader not in self.failed and len(self.failed) >= HEARD_MAX:
            return
        self.failed[leader] = self.failed.get(leader, 0) + (not reason)
        if self.failed[leader] >= FRUITLESS_TOLD:
            self._warn_of(address, f"and does not complete it: unicasts to it may be lost. {UNICAST_PORTS}")

    def back_off_longest(self) -> None:
        """After a merge whose leader asked for longer than a merge takes."""
        self.fruitless = FRUITLESS_MAX
        self.back_off_longer()

    def stop(self, *_: object) -> None:
        self.repeats.stop()
        self.deadline_ns = NEVER
        self.context.merging = False

    # ---- the rest

    def _holds(self) -> bool:
        return self.initiator.holding

    def _own(self) -> NewView:
        """The view that our subgroup, which is cut, would install alone."""
        assert self.initiator.plain is not None
        return self.initiator.plain

    def _on_duty(self) -> bool:
        stays = self.context.view is not None and self.context.me.id not in self.initiator.membership.leaving()
        return stays and self.initiator.membership.acting() and not self.initiator.backing_off

    def _time(self, deadline_ns: int) -> None:
        self.repeats.start(self.context.now)
        self.deadline_ns = self.context.now + deadline_ns

    def _cancel(self, member: int, reason: str) -> None:
        address = self.asked[member][1]
        self.drop(member)
        self.context.send(MergeCancel(self.merge, reason), member, address)

    TABLE: ClassVar[Table] = table(
        "merger",
        S,
        E,
        (S.APART, (E.CONSIDER, may_lead_soon), None, gather, "further coordinators answer the first beacon they hear"),
        (S.APART, (E.CONSIDER, may_lead), S.LEADING, (lead, say_ask), "another view exists, and we have the lowest id"),
        (None, E.CONSIDER, None, IGNORED, "a merge is under way, or another member is to lead one"),
        (S.FOLLOWING, (E.ASK, is_by_our_leader), None, (renew, say_ready), "the leader lives; our answer may be lost"),
        (tuple(S), (E.ASK, is_by_an_unheard_leader), None, count_unheard, "a merged view would fall apart"),
        (S.APART, (E.ASK, can_follow), S.FOLLOWING, follow, "no merge is under way: we follow this one (E-11)"),
        (None, E.ASK, None, refuse, "another merge is under way, or we coordinate no such view"),
        (S.LEADING, E.REFUSED, None, drop, "the merge continues without this subgroup"),
        (None, E.REFUSED, None, IGNORED, "late"),
        (_LEADS, (E.READY, is_not_for_us), None, cancel_one, "its merge is over, or the sender takes no part in ours"),
        (S.LEADING, (E.READY, shares_members), None, let_go, "a member is in both views: one must exclude it first"),
        (_LEADS, (E.READY, was_overtaken), None, IGNORED, "its cut is no longer held"),
        (S.LEADING, (E.READY, has_no_members), None, let_go, "all its members leave: there is nothing to merge"),
        (S.LEADING, (E.READY, does_not_fit), None, turn_away, "this subgroup cannot be in one view with ours"),
        (S.LEADING, E.READY, None, note_ready, "a subgroup is cut; now we cut ours"),
        (S.GOING, (E.READY, has_the_merged_cut), None, IGNORED, "GO has yet to arrive there, and is repeated"),
        (S.GOING, (E.READY, is_the_last_awaited), S.APART, (let_go, stop), "its cut is not the merged one"),
        (S.GOING, E.READY, None, let_go, "its cut is not the merged one"),
        (None, E.READY, None, cancel_one, "the merge is over: its sender need not wait"),
        (S.LEADING, (E.REVIEW, is_off_duty), S.APART, (cancel_all, release), "another member coordinates now"),
        (S.LEADING, (E.REVIEW, none_is_left), S.APART, (drop_unfit, release, back_off), "all refused or are silent"),
        (S.LEADING, (E.REVIEW, all_are_ready), S.GOING, (drop_unfit, go), "all subgroups hold their cuts"),
        (S.FOLLOWING, (E.REVIEW, is_off_duty), S.APART, (decline, release), "another member coordinates now"),
        (S.FOLLOWING, (E.REVIEW, has_news_for_leader), None, say_ready, "our subgroup is cut"),
        (None, E.REVIEW, None, IGNORED, "nothing has changed"),
        (S.FOLLOWING, E.GO, S.APART, (stop, take), "the merged view"),
        (None, E.GO, None, IGNORED, "late"),
        (S.GOING, (E.TAKEN, was_last), S.APART, stop, "all subgroups install the merged view"),
        (S.GOING, E.TAKEN, None, note_taken, "other answers are missing"),
        (None, E.TAKEN, None, IGNORED, "repeated"),
        (
            S.FOLLOWING,
            E.CANCEL,
            S.APART,
            (release, back_off_longer, tell_in_vain),
            "the leader gave up: continue alone",
        ),
        (None, E.CANCEL, None, IGNORED, "late"),
        (S.LEADING, E.REPEAT, None, say_ask, "some are not ready; the others learn that the leader is alive"),
        (S.GOING, E.REPEAT, None, say_go, "some have not taken the merged view"),
        (None, E.REPEAT, None, ILLEGAL, "the timer does not run"),
        (S.LEADING, E.DEADLINE, None, drop_silent, "the merge continues without those that are not ready"),
        (S.GOING, E.DEADLINE, S.APART, stop, "a coordinator that did not answer continues alone and is rediscovered"),
        (
            S.FOLLOWING,
            (E.DEADLINE, leads_nowhere),
            S.APART,
            (release, back_off_longest, tell_in_vain),
            "such a leader may complete no merge: be wary",
        ),
        (
            S.FOLLOWING,
            E.DEADLINE,
            S.APART,
            (release, back_off_longer, tell_in_vain),
            "the leader is silent, or slow: continue alone",
        ),
        (S.APART, E.DEADLINE, None, ILLEGAL, "no deadline runs"),
        (S.LEADING, E.VIEW, S.APART, (cancel_all, stop), "our view was closed without the merge"),
        (S.FOLLOWING, E.VIEW, S.APART, (decline, stop), "our view was closed without the merge"),
        (None, E.VIEW, None, IGNORED, "our subgroup holds no cut"),
    )
