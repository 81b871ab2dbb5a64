"""The default membership: doubted members, joiners and leavers, and this member's turn to change the
view.

The first member of the view that is not doubted here acts. Requests of joiners and leavers that come within
``bundle_ns`` share one view (FLU-11). A suspected member is not bundled, because the streams of all others wait for
that member; but members that crash together share one view: a view change waits, for at most ``verify_ns``, while the
engine verifies others. Joiners and leavers are kept here until a view settles them (MBR-01 to MBR-03).

A link between two living members that carries no multicast, or no unicast, would stall a stream for ever: the data of
one does not reach the other, or its acks do not come back. (Two members that are alone send data by unicast, but no
third could join.) Each member names in its heartbeats those without audible multicasts, and those whose unicasts do not
come, so every member sees such links wherever they are. After ``link_ns`` one end of each is excluded: the end with the
most such links, typically a member behind a switch that has dropped its group membership, or behind a firewall of its
own, and not the members that this end does not hear. If that is the acting member itself, the next member acts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import ClassVar

import seqcast.codes as codes
from seqcast.core.context import NEVER, Context
from seqcast.core.frames.codec import clipped
from seqcast.core.frames.fields import MemberInfo, common
from seqcast.core.frames.joining import Join, Refused
from seqcast.core.frames.view import InfoTold
from seqcast.core.machines.participant import Participant
from seqcast.core.membership import Joiner, Membership
from seqcast.core.rules.cut import order_of
from seqcast.core.rules.hosts import host_of, place_of
from seqcast.core.rules.keys import shared
from seqcast.core.rules.windows import windows
from seqcast.core.table import IGNORED, Table, TableMachine, table
from seqcast.core.vocabulary import UNLED, GiveWay, Warn
from seqcast.types import MEMBERS_MAX

OWN_ADDRESSES = (
    "Give each machine an IP address of its own, and a MAC address of its own if one is a clone: datagrams to one may "
    "arrive at the other"
)
UNICAST_PORTS = (
    "Firewalls must pass UDP to the unicast port of each member, not to the two multicast ports alone: set "
    "unicast_port to a number that they pass"
)
TOO_SLOW = "has held senders up for slow_s, and takes less than a sixteenth of what most members could take"
JOINER_BEACONS = 10
"""How long a joiner is left to another coordinator that we hear, in beacon intervals; the joiner may not hear that
one."""


class MembershipState(Enum):
    QUIET = auto()
    BUNDLING = auto()
    CHANGING = auto()


class MembershipEvent(Enum):
    REVIEW = auto()
    VIEW = auto()


S, E = MembershipState, MembershipEvent
ANY = tuple(S)


DIFFER_BYTES_MAX = 900
"""A reason has 1,000: the remedy follows."""


def difference(ours: dict[str, str], theirs: dict[str, str]) -> str:
    """The settings that differ, as text; "" if none does."""
    pairs = [(name, ours.get(name, "none"), theirs.get(name, "none")) for name in sorted(ours.keys() | theirs.keys())]
    differ = ", and ".join(f"{name}={one}, not {other}" for name, one, other in pairs if one != other)
    return f"the group has {differ}" if differ else ""


@dataclass(slots=True)
class Review:
    """The input and result of a review at the end of a step.

    Args:
        doubted: members that we doubt.
        ours: we are to change the view.
        runs: an attempt of ours to close the view is under way, and ``survivors`` must still answer it.
        backing_off: our attempt met a higher promise, and we wait.
        too_few: the survivors must be a majority and are not.
        survivors: of the attempt; and, when the review is over, of the one to begin, if ``begins``.
        begins: the result: close the view now.
    """

    doubted: set[int]
    ours: bool
    runs: bool
    backing_off: bool
    too_few: bool
    survivors: tuple[int, ...]
    begins: bool = False

    @property
    def lost_one(self) -> bool:
        """A survivor of the attempt is doubted."""
        return not self.doubted.isdisjoint(self.survivors)


class CoordinatedMembership(TableMachine):
    """The membership of one view, at this member.

    Args:
        context: of the endpoint.
        participant: of the same view.
        before: the membership of the view before; its joiners and leavers are not settled yet.
    """

    def __init__(self, context: Context, participant: Participant, before: Membership | None = None) -> None:
        super().__init__(S.QUIET, context.edges)
        self.context = context
        self.participant = participant
        self.suspected: dict[int, str] = {}  # by the engine: silent, and verified; and why
        self.slow: set[int] = set()  # members that have long dropped datagrams because they lack slabs
        self.severed: set[int] = set()  # ends of cut links that are given up; this member may be one of them
        self.links: dict[tuple[int, int], int] = {}  # (listener, unheard speaker): since when
        self.mute: set[tuple[int, int]] = set()  # those of them that lose unicasts alone
        self.warned: set[int] = set()  # members already named in a warning about their links
        self.resizes = False  # packets of another size pass on all paths
        self.rekey_ns = NEVER  # when the secret of the view is old
        self.told: set[str] = before.told if before else set()  # warnings that are not repeated in each view
        self.verified_ns = NEVER  # no view change waits longer for verifications
        self.links_ns = NEVER  # when to look at the links again
        self.more_ns = NEVER  # how long a minority waits for more members to come back
        self.gone: set[int] = set()  # members in another view, without us (the cut, step 8)
        # Members seen in a view of which we know nothing: since when, and when last.
        self.elsewhere: dict[int, tuple[int, int]] = {}
        self.calling: set[int] = set()  # members of a blocked minority that believe us dead or blocked
        self.joiners: dict[int, Joiner] = before.joiners if before else {}
        self.leavers: set[int] = before.leavers if before else set()
        self.slow_receivers: set[int] = set()  # senders call them too slow to stay
        self.spared: set[int] = set()  # those of them that stay, as the others are too few, and were warned of
        self.unlisted: dict[int, int] = {}  # members that are no longer on the list: since when
        self.wanting: set[int] = set()  # members that need a VIEW, with another provider or secret
        self.told_infos: dict[int, MemberInfo] = {}  # by id: how members describe themselves now
        self.bundle_due_ns = NEVER
        self.expected: dict[int, int] = {}  # joiners that had to show themselves first: when they asked

    # ---- knowledge

    def doubted(self) -> set[int]:
        slow = self.slow if self._few_are_slow() else set()  # else not their fault
        doubted = set(self.suspected) | slow | self.severed | self.participant.lapsed | self.gone
        long = self.context.now - self.context.settings.flush_deadline_ns
        return (doubted | {member for member, since in self.unlisted.items() if since <= long}) - {self.context.me.id}

    def _few_are_slow(self) -> bool:
        return 2 * len(self.slow) < len(self.context.members)

    def reasons(self) -> dict[int, str]:
        """Why members are doubted here, for the log."""
        why = dict.fromkeys(self.slow, "held up everyone: it had no room left, or kept places in the order unused")
        why |= dict.fromkeys(self.gone, "continued in another view")
        why |= dict.fromkeys(self.participant.lapsed, "did not answer the view change in time")
        mute = self.severed & {end for pair in self.mute for end in pair}
        sort = "datagrams" if self.context.settings.unicast else "multicast datagrams"
        why |= dict.fromkeys(self.severed, f"{sort} to or from it are lost")
        why |= dict.fromkeys(mute, "unicast datagrams to or from it are lost")
        why |= {self.put_out(): "receives too slowly"}
        why |= dict.fromkeys(self.unlisted, "is no longer on the list of members")
        return why | self.suspected

    def acting(self) -> bool:
        return self.acting_member() == self.context.me.id

    def acting_member(self) -> int:
        """The first member that is not doubted here; 0: all are, this member included.

        A member that could not reach its own cut in time (others may have purged packets that it lacks), or that is to
        be given up for its cut links, yields to the next one, which continues alone. A member that is alone lacks
        nothing. Observers never act.
        """
        doubted, me = self.doubted(), self.context.me.id
        trusted = [member for member in self.context.voters if member not in doubted]
        if trusted[1:] and trusted[0] == me and me in self.participant.lapsed | self.severed:
            del trusted[0]
        return trusted[0] if trusted else 0

    def _barred(self) -> set[int]:
        """Members that are no longer on the list. The member whose turn has come excludes itself; if its list is an old
        one, the next member doubts the first after a while, and continues alone."""
        identities = self.context.identities
        return {info.id for info in self.context.infos.values() if identities.bars(info)} if identities.used else set()

    def leaving(self) -> set[int]:
        out = self.leavers | self.unlisted.keys() | {self.put_out()}
        return {member.id for member in self.context.members if member.id in out}

    def put_out(self) -> int:
        """The member that has to leave for its slowness: one at a time, the last in rank; 0: none.

        All members hear the same, so they choose the same; perhaps the acting member itself.
        """
        context, slow = self.context, self.slow_receivers - self.spared - self.doubted()
        return next((member.id for member in reversed(context.members) if member.id in slow), 0)

    def joining(self) -> list[MemberInfo]:
        """The joiners that the next view admits; of two with the same name, the one with the lower id.

        While we hear a coordinator of another view with a lower id, which will lead the merge, new joiners are left to
        that coordinator for a while: a joiner can enter only one view, and would remain a dead member in the other.

        If the state is lost, joiners that want it wait until the members that lost it are gone, and form a new group.
        Otherwise, by joining again and again, they would keep a group without a state alive for ever.

        Joiners that found no group wait until this one is founded, for which they do not count.
        """
        context, settings = self.context, self.context.settings
        stale = context.now - settings.joiner_seen_ns
        yields = context.now - context.elder_ns <= 3 * settings.beacon_ns
        patient = context.now - (JOINER_BEACONS if yields else 0) * settings.beacon_ns
        names = {member.name for member in context.members}
        addresses = {member.address for member in context.members}  # an earlier incarnation has to be excluded first
        result = []
        for joiner in sorted(self.joiners.values(), key=lambda joiner: joiner.info.id):
            in_vain = (context.lost and joiner.info.state) or joiner.first_ns > patient
            is_new = joiner.info.name not in names and joiner.info.address not in addresses
            must_wait = context.founding > 0 and not joiner.founds
            barred = context.identities.bars(joiner.info)  # since it asked
            if joiner.last_ns > stale and is_new and not (in_vain or must_wait or barred):
                names.add(joiner.info.name)
                result.append(joiner.info)
        return result[: context.identities.most - len(context.members)]

    # ---- inputs

    def join(self, frame: Join) -> Refused | None:
        """Notes a joiner; returns the refusal, if any.

        A joiner whose name or address is in the view is at first neither admitted nor refused: see ``name_taken_ns``.
        """
        context, info = self.context, frame.info
        if (unfit := self._unfit(frame)) is not None:
            return unfit
        if info.id in context.departed:  # E-06: messages to or from it in its view are over
            reason = "this incarnation was in a view already and lost it: join again as a new one"
            return Refused(reason, "incarnation", frame.nonce)
        if self.held_back(info):
            return None
        # A process has one socket: of several joiners with one address only the last exists.
        before = [each for each, one in self.joiners.items() if each != info.id and one.info.address == info.address]
        for each in before:
            del self.joiners[each]
        known, most = self.joiners.get(info.id), context.identities.most
        if known is None and len(self.joiners) >= MEMBERS_MAX:
            self._forget_stale()
        if known is None and (len(self.joiners) >= MEMBERS_MAX or len(context.members) >= most):
            reason = f"the group is full: it has {len(context.members)} members, and at most {most}"
            return Refused(reason, "full", frame.nonce)
        joiner = self.joiners.setdefault(info.id, Joiner(info, context.now, context.now))
        joiner.info, joiner.last_ns, joiner.founds, joiner.was = info, context.now, frame.found > 0, frame.was
        if context.now - joiner.first_ns <= context.settings.name_taken_ns:
            return None
        doubted = self.doubted()  # one of those may be the old incarnation, which a blocked group cannot exclude
        others = [each for each in context.infos.values() if each.id not in doubted | {info.id}]
        if any(each.name == info.name for each in others):
            reason = f"the name {info.name!r} is taken by a member of the group: choose another name"
            return Refused(reason, "name", frame.nonce)
        for other in others:
            if other.address == info.address:
                return Refused(self._taken(other, info), "settings", frame.nonce)
        return None

    def _unfit(self, frame: Join) -> Refused | None:
        """The refusal of a joiner whose release or settings do not fit the group."""
        context, info = self.context, frame.info
        if frame.cluster != context.cluster:
            reason = f"this is cluster {context.cluster!r}, not {frame.cluster!r}: choose another address or port"
            return Refused(reason, "settings", frame.nonce)
        others = (each.info for each in self.joiners.values() if each.info.id != info.id)
        oldest, newest = common((*context.infos.values(), *others, info))
        if oldest > newest:
            reason = f"of the members and the joiner one speaks no protocol version above {newest}, and another none "
            reason += f"below {oldest}: upgrade all members before a release after the next joins"
            return Refused(reason, "version", frame.nonce)
        if frame.order != context.settings.order:
            reason = f"the group has order={context.settings.order!r}, not {frame.order!r}: join with the same order"
            return Refused(reason, "settings", frame.nonce)
        if context.view is not None and context.mechanism not in frame.mechanisms:
            reason = f"the group's messages are ordered by {context.view.mechanism!r}, which the joiner's release of "
            reason += "seqcast does not know: run the same release on every member"
            return Refused(reason, "version", frame.nonce)
        if differ := difference(dict(context.settings.shared), dict(frame.shared)):
            return Refused(f"{clipped(differ, DIFFER_BYTES_MAX)}: join with the same", "settings", frame.nonce)
        ours, theirs = context.settings.found, frame.found
        if context.primary and ours != theirs and 0 not in (ours, theirs):  # a majority of one may be none of the other
            return Refused(f"the group has found={ours}, not {theirs}: join with the same", "settings", frame.nonce)
        return None

    def held_back(self, info: MemberInfo) -> str:
        """Timeline without this rule: c does not get the unicasts of a and b, which exclude it from their primary
        group. After its next join, while all wait for its acknowledgements, the group stands still, until the next
        exclusion."""
        for each in self.context.estranged.values():
            if self.context.now < each.until_ns and each.is_again(info.name, info.address):
                return (
                    f"unicast datagrams between {each.member.name} and members of the group were lost, and it was "
                    f"excluded: it is taken in again {each.wait_ns / 1e9:g} s after that. {UNICAST_PORTS}"
                )
        return ""

    def expect(self, joiner: int) -> None:
        now, bundle_ns = self.context.now, self.context.settings.bundle_ns
        self.expected = {each: since for each, since in self.expected.items() if now - since < bundle_ns}
        if len(self.expected) < MEMBERS_MAX:
            self.expected.setdefault(joiner, now)

    def withdraw(self, joiner: int) -> None:
        self.joiners.pop(joiner, None)

    def _taken(self, member: MemberInfo, joiner: MemberInfo) -> str:
        """Why a joiner with the address and port of a member that is alive is refused; the application is warned."""
        same = self._same_address(member, joiner)
        reason = f"{same}, and the same port, so they run on two machines. {OWN_ADDRESSES}"
        self._warn_once(reason)
        return reason

    def _warn_once(self, text: str) -> None:
        if text not in self.told and len(self.told) < MEMBERS_MAX:
            self.told.add(text)
            self.context.emit(Warn(codes.LINKS_CUT(text)))

    @staticmethod
    def _same_address(one: MemberInfo, other: MemberInfo) -> str:
        return f"{one.name} and {other.name} have the same address, {host_of(one.address)}"

    def starves(self, member_id: int) -> None:
        """All others have waited long for a member, which drops its datagrams or keeps unused places."""
        if member_id not in self.context.infos or member_id in self.slow:
            return
        self.slow.add(member_id)
        self.context.counters["members_slow"] += 1
        follows = "so it is excluded" if self._few_are_slow() else "and stays, as half of the members or more do so"
        self.context.emit(
            Warn(
                codes.STARVED(
                    f"{self.context.infos[member_id].name} holds up everyone, {follows}: no room is left for further "
                    "packets, as the application takes messages too slowly or slabs_max is too small there; or granted "
                    "places in the order stay unused"
                )
            )
        )

    def slow_changed(self) -> None:
        """Senders now call other receivers too slow to stay than before."""
        context, before = self.context, self.put_out()
        self.slow_receivers = set(context.plane.too_slow()) & context.infos.keys()
        self.spared &= self.slow_receivers
        for member in self.slow_receivers - self.spared:
            if not context.enough(context.infos.keys() - self.doubted() - {member}):
                self.spared.add(member)
                self._warn_of_slow(member, "stays: the others are not a majority")
        if (member := self.put_out()) not in (0, before):
            context.counters["members_slow"] += 1
            self._warn_of_slow(member, "is excluded (slow=)")

    def _warn_of_slow(self, member: int, follows: str) -> None:
        text = f"{self.context.infos[member].name} {TOO_SLOW}, and {follows}"
        self.context.emit(Warn(codes.TOO_SLOW(text)))

    def resize(self) -> bool:
        context, entered, before = self.context, self.context.entered, self.resizes
        assert entered is not None
        multicasters = order_of(entered).multicasters(len(entered.members))
        sizes = windows(entered.members, multicasters, context.plane.path_bytes())
        self.resizes = sizes.packet_bytes != entered.packet_bytes
        return self.resizes and not before

    def suspect(self, member_id: int, why: str) -> None:
        """The engine suspects a member, after verification."""
        self.suspected[member_id] = why

    def trust(self, member_id: int) -> None:
        """The engine hears a member again."""
        self.suspected.pop(member_id, None)

    def went_on(self, member_ids: Iterable[int]) -> None:
        """These members continued in another view without us (the cut, step 8)."""
        self.gone.update(member_ids)

    def seen_here(self, member_id: int) -> None:
        """A member is seen in our view."""
        self.elsewhere.pop(member_id, None)

    def seen_elsewhere(self, member_id: int) -> None:
        """A member of our view is seen in another view that is not known to close ours.

        Such a member may be behind and still on its way to our view; after a time we stop waiting.
        """
        now, settings = self.context.now, self.context.settings
        first, last = self.elsewhere.get(member_id, (now, now))
        if now - last > 3 * settings.beacon_ns:
            first = now
        self.elsewhere[member_id] = first, now
        if now - first >= settings.elsewhere_ns:
            self.gone.add(member_id)

    def lives(self, member_id: int) -> None:
        """A member closes our view, or is blocked there, in a primary partition: so alive and in our view."""
        self.suspected.pop(member_id, None)
        self.gone.discard(member_id)
        self.elsewhere.pop(member_id, None)
        self.participant.trust(member_id)

    def decline(self, member_id: int) -> None:
        """A process that our view names as a joiner had already entered another view."""
        self.context.counters["joiners_declined"] += 1
        self.gone.add(member_id)

    def call(self, member_id: int) -> None:
        """A member began to close our view with too few members and without us: only together can we close the view. So
        that member cannot take our place, should we have missed our own cut."""
        self.lives(member_id)
        self.participant.trust(self.context.me.id)
        self.calling.add(member_id)

    def leave(self, member_id: int) -> None:
        if member_id in self.context.infos:
            self.leavers.add(member_id)

    def want(self, member_id: int) -> None:
        if member_id in self.context.infos:
            self.wanting.add(member_id)

    def inform(self, member_id: int, frame: InfoTold) -> None:
        if info := self.context.infos.get(member_id):
            info = replace(info, about=frame.about, opens=frame.opens, signature=frame.signature)
            if not self.context.identities.fault(info):  # else all would refuse a VIEW that has it
                self.told_infos[member_id] = info

    def informed(self) -> dict[int, MemberInfo]:
        told, infos = self.told_infos.items(), self.context.infos
        return {each: info for each, info in told if (infos[each].about, infos[each].opens) != (info.about, info.opens)}

    def has_news(self) -> bool:
        """Is a VIEW needed for what members say of themselves? Not for their keys alone while no key is in all files:
        that VIEW would part them, and those that change their files one after the other will have one soon."""
        informed, infos = self.informed(), self.context.infos
        if any(info.about != infos[member].about for member, info in informed.items()):
            return True
        return bool(informed) and shared([info.opens for info in (infos | informed).values()])

    def links_changed(self) -> None:
        """The engine reports that the set of cut links changed."""
        now = self.context.now
        plane = self.context.plane
        self.mute = set(plane.links(True))
        self.links = {pair: self.links.get(pair, now) for pair in [*plane.links(), *self.mute]}

    def estranged(self, lost: Collection[int]) -> set[int]:
        """Those of the ``lost`` members with whom we must not merge at once, as unicasts between them and us are
        lost."""
        ends = {end for pair in self.mute for end in pair}
        return set(lost) if self.context.me.id in ends else ends & set(lost)

    def review(self, runs: bool, survivors: tuple[int, ...], backing_off: bool, too_few: bool = False) -> Review:
        """Decides at the end of each step whether to close the view; see ``Review``."""
        self._settle_links()
        self.unlisted = {member: self.unlisted.get(member, self.context.now) for member in self._barred()}
        review = Review(self.doubted(), self.acting(), runs, backing_off, too_few, survivors)
        self._await_others(review)
        self.fire(E.REVIEW, review)
        return review

    def _settle_links(self) -> None:
        """Decides which members are given up because their links stay cut, and warns of them."""
        context, link_ns = self.context, self.context.settings.link_ns
        steps = (link_ns // 2, link_ns, 2 * link_ns)  # warned of, given up, and nobody did so
        warned, ripe, overdue = ([p for p, since in self.links.items() if since + ns <= context.now] for ns in steps)
        due = (since + ns for since in self.links.values() for ns in steps)
        self.links_ns = min((due_ns for due_ns in due if due_ns > context.now), default=NEVER)
        self.severed.clear()
        if not warned:
            return
        if not {end for pair in warned for end in pair}.isdisjoint(context.plane.doubted()):
            # One of them may have crashed just now.
            self.links_ns = min(self.links_ns, context.now + max(context.settings.verify_ns, link_ns // 8, 1))
            return
        me, ranks = context.me.id, [member.id for member in context.members]
        # If no other member acted in our place, our turn comes again.
        spared = me if any(me in pair for pair in overdue) else 0
        self.severed |= severed(ripe, ranks, spared, self.links)
        for end in sorted(severed(warned, ranks, spared, self.links) - self.warned, key=ranks.index):
            cut = [pair for pair in self.links if end in pair]
            if self.acting() or any(me in pair for pair in cut):
                self.warned.add(end)
                context.counters["links_cut"] += len(cut)
                if self.mute.issuperset(cut):
                    context.emit(Warn(codes.LINKS_CUT(self._lost_unicasts(end, cut))))
                elif twins := self._deaf_twins(end, cut):
                    self._warn_once(twins)
                else:
                    context.emit(Warn(codes.LINKS_CUT(self._cut_links(end, cut))))

    def _lost_unicasts(self, end: int, cut: Sequence[tuple[int, int]]) -> str:
        """Describes the links of a member that is given up and carry no unicast, and the things to check."""
        infos = self.context.infos
        ways = dict.fromkeys((speaker, listener) for listener, speaker in cut)
        said = [f"from {infos[one].name} to {infos[other].name}" for one, other in ways]
        shown = ", ".join(said[:4]) + (f" and {len(said) - 4} more ways" if len(said) > 4 else "")
        name = infos[end].name
        return (
            f"unicast datagrams {shown} do not arrive, though multicasts do: nothing can be acknowledged or asked for "
            f"there, so {name} will be excluded if this continues. {UNICAST_PORTS}. If they do, another machine may "
            f"have the address of {name} too"
        )

    def _deaf_twins(self, end: int, cut: Sequence[tuple[int, int]]) -> str:
        """Names two members with one address of which one does not hear the other: a kernel drops datagrams from an
        address of its own, so they run on two machines."""
        infos = self.context.infos
        for listener, speaker in ((infos[one], infos[other]) for one, other in cut):
            if host_of(listener.address) and host_of(listener.address) == host_of(speaker.address):
                return (
                    f"{self._same_address(speaker, listener)}, and {listener.name} does not hear {speaker.name}, so "
                    f"they run on two machines, and {infos[end].name} will be excluded if this continues. "
                    f"{OWN_ADDRESSES}"
                )
        return ""

    def _cut_links(self, end: int, cut: Sequence[tuple[int, int]]) -> str:
        """Describes the cut links of a member that is given up, and the things to check."""
        names = {member.id: member.name for member in self.context.members}
        name = names[end]
        unheard = sorted(names[speaker] for listener, speaker in cut if listener == end)
        deaf = sorted(names[listener] for listener, speaker in cut if speaker == end)
        said = [f"{name} does not hear {', '.join(unheard)}"] if unheard else []
        said += [f"{other} does not hear {name}" for other in deaf] if len(deaf) < 3 else []
        said += [f"{len(deaf)} members ({', '.join(deaf)}) do not hear {name}"] if len(deaf) >= 3 else []
        heard = f"{', and '.join(said)}, though all are alive"
        if self.context.settings.unicast:
            place = place_of(self.context.infos[end].address)
            return (
                f"{heard}: datagrams between them are lost, and {name} will be excluded if this continues. Firewalls "
                f"must pass UDP in both directions between {place} and the other members, and all must reach {name} at "
                "that address: see advertise="
            )
        return (
            f"{heard}: multicast datagrams between them are lost, and {name} will "
            f"be excluded if this continues. Check the multicast filtering of the switches on the way to {name} (IGMP "
            f"snooping needs a querier), the firewall of {name} (does it drop 224.0.0.0/4?), and its multicast route"
        )

    def _reason(self, doubted: set[int]) -> bool:
        return (
            any(member.id in doubted for member in self.context.members)
            or bool(self.leaving())
            or bool(self.joiners and self.joining())
            or bool(self.wanting)
            or bool(self.told_infos and self.has_news())
            or self.context.merging
            or self.resizes
            or self.context.now >= self.rekey_ns
            or self.context.me.address != self.context.infos[self.context.me.id].address
            or self._called(doubted)
            or self._can_found(doubted)
            or self.participant.closing  # the member that began to close the view is gone
        )

    def _can_found(self, doubted: set[int]) -> bool:
        """Are enough members here for a view that they close to found our group?"""
        founding, out = self.context.founding, doubted | self.leavers
        return founding > 0 and sum(member not in out for member in self.context.voters) >= founding

    def _await_others(self, review: Review) -> None:
        """We were too few, and others are back: wait a moment, so that all of them take part in the next attempt."""
        few = review.runs and review.too_few and review.ours and not review.lost_one
        waits = few and len(self._back(review)) > 0
        self.more_ns = min(self.more_ns, self.context.now + self.context.settings.verify_ns) if waits else NEVER

    def _back(self, review: Review) -> set[int]:
        """Members outside the attempt that we do not doubt."""
        return {member.id for member in self.context.members} - review.doubted - set(review.survivors)

    def _called(self, doubted: set[int]) -> bool:
        """Does a joiner wait that can hear us? Otherwise an attempt with that one would block everyone for nothing."""
        me = self.context.me.id
        return any(member not in doubted and (member, me) not in self.links for member in self.calling)

    def _forget_stale(self) -> None:
        stale = self.context.now - self.context.settings.joiner_seen_ns
        self.joiners = {key: joiner for key, joiner in self.joiners.items() if joiner.last_ns > stale}

    def installed(self) -> None:
        """A new view: answered requests are forgotten, and suspicion starts over with the engine's."""
        members = {member.id for member in self.context.members}
        self.suspected.clear()
        self.resizes = False
        self.links.clear()
        self.mute.clear()
        self.leavers &= members
        self._forget_stale()
        known = members | self.context.departed.keys()
        self.joiners = {key: joiner for key, joiner in self.joiners.items() if key not in known}
        if self.context.secrets.public:
            self.rekey_ns = self.context.now + self.context.settings.rekey_ns
        self.fire(E.VIEW)

    def due(self) -> int:
        rekey_ns = self.rekey_ns if self.context.now < self.rekey_ns else NEVER  # then each step looks
        doubt_ns = [since + self.context.settings.flush_deadline_ns for since in self.unlisted.values()]
        return min(
            self.bundle_due_ns, self.links_ns, self.more_ns, rekey_ns, *(d for d in doubt_ns if d > self.context.now)
        )

    # ---- guards

    def is_unled(self, review: Review) -> bool:
        """This member is an observer, and all other kinds of members are lost, as far as we know."""
        return self.context.me.observer and review.doubted.issuperset(self.context.voters)

    def rests(self, review: Review) -> bool:
        """Another member's turn, or we back off, or nothing is to be done."""
        if review.backing_off or not review.ours:
            return True
        return not review.runs and not self._reason(review.doubted)

    def must_begin_again(self, review: Review) -> bool:
        """A survivor of our attempt is doubted, or too few are joined by others."""
        if not review.runs:
            return False
        if review.lost_one:
            return True
        all_back = len(self._back(review)) + len(review.survivors) == len(self.context.members)
        return review.too_few and (self.context.now >= self.more_ns or all_back)

    def attempt_runs(self, review: Review) -> bool:
        return review.runs

    def may_bundle_more(self, _review: Review) -> bool:
        return self.context.now < self.bundle_due_ns and not self.suspected

    def verifies_others(self, review: Review) -> bool:
        """The engine verifies further members that fell silent, and they may wait."""
        return self.context.now < self.verified_ns and not review.doubted.issuperset(self.context.plane.doubted())

    # ---- actions

    def bundle(self, _review: Review) -> None:
        """Joiners and leavers can wait, from the first request of a joiner on, whether or not that counted, if this
        one has shown itself since: others may be recorded. A suspected member holds up the streams of all others."""
        now, bundle_ns = self.context.now, self.context.settings.bundle_ns
        asked = [since for joiner, since in self.expected.items() if joiner in self.joiners and now - since < bundle_ns]
        self.bundle_due_ns = now if self.suspected else min(asked, default=now) + bundle_ns
        self.verified_ns = self.bundle_due_ns + self.context.settings.verify_ns

    def wait(self, _review: Review) -> None:
        self.bundle_due_ns = self.context.now + self.context.settings.verify_ns // 16 + 1

    def initiate(self, review: Review) -> None:
        self.bundle_due_ns = self.more_ns = NEVER
        review.survivors = tuple(member.id for member in self.context.members if member.id not in review.doubted)
        review.begins = True

    def rest(self, *_: object) -> None:
        self.bundle_due_ns = NEVER

    def give_up(self, _review: Review) -> None:
        self.context.emit(GiveWay(None, UNLED, "unled"))

    TABLE: ClassVar[Table] = table(
        "membership",
        S,
        E,
        (ANY, (E.REVIEW, is_unled), S.QUIET, (rest, give_up), "an observer stays with no others than observers"),
        (S.QUIET, (E.REVIEW, rests), None, IGNORED, "nothing to do, or another member's turn"),
        ((S.BUNDLING, S.CHANGING), (E.REVIEW, rests), S.QUIET, rest, "the reason is gone, or another member's turn"),
        (ANY, (E.REVIEW, must_begin_again), S.CHANGING, initiate, "a survivor is doubted, or more can take part"),
        (S.CHANGING, (E.REVIEW, attempt_runs), None, IGNORED, "joiners and leavers count when the VIEW is made"),
        (ANY, (E.REVIEW, attempt_runs), S.CHANGING, rest, "our attempt still runs"),
        (S.QUIET, E.REVIEW, S.BUNDLING, bundle, "our turn: more requests may follow (FLU-11)"),
        (S.BUNDLING, (E.REVIEW, may_bundle_more), None, IGNORED, "no member is suspected: requests may follow"),
        (S.BUNDLING, (E.REVIEW, verifies_others), None, wait, "others may have failed too: one view for all of them"),
        (S.BUNDLING, E.REVIEW, S.CHANGING, initiate, "the bundling delay is over"),
        (S.CHANGING, E.REVIEW, None, initiate, "our attempt was given up, and the reason persists"),
        (None, E.VIEW, S.QUIET, rest, "a new view"),
    )


def severed(
    ripe: Collection[tuple[int, int]],
    by_rank: Sequence[int],
    spared: int = 0,
    links: Collection[tuple[int, int]] = (),
) -> set[int]:
    """The members to give up so that no ``ripe`` cut link is left: repeatedly the one with the most cut links, and of
    several the last in rank.

    Args:
        ripe: (listener, speaker) of the links that were cut for long enough.
        by_rank: the members of the view.
        spared: is never given up; 0: nobody is spared.
        links: all cut links, which decide the choice: the links of a member that lost multicast ripen one by one.
    """
    left, counted, result = list(ripe), {*ripe, *links}, set()
    while left:
        ends = {end for pair in left for end in pair if end != spared}
        count = Counter(end for pair in counted for end in pair)
        worst = max(ends, key=lambda member: (count[member], by_rank.index(member)))
        result.add(worst)
        left = [pair for pair in left if worst not in pair]
        counted = {pair for pair in counted if worst not in pair}
    return result
