"""The votes of the member that this process was before it started again (``stable=``).

A majority of a primary view's members closes the view (the cut, step 9). With ``stable=`` a member writes its promise,
and the accepted VIEW, on disk before the answer: the votes outlast the process. A process that starts again reads
them, and votes as the earlier member while seeking a group. No packet of that view is left, so this member does not
survive the cut: the vote alone counts.

- If members of the view still live, and are too few, one of them begins to close the view as always, and asks with
  RECALL for the votes of joiners that were members. RECALL is START and PROPOSE in one, RECALLED is OK and DONE.
- If nobody is in the view any more, one of those that started again asks the others in the same way to accept the first
  view of one member as the successor: of the one with the longest state on disk, if applications keep theirs there, as
  the others take over its state. The counter is above the old one, so fences grow. If one of them has accepted a VIEW
  before, that VIEW is proposed again, and is closed next.
- The member of that first view may be one that was only in an earlier view (``core/rules/disks.py``). A voter asks in
  its place then, and first offers the VIEW to that member: once others have accepted the VIEW, no other one can go on.
- One that knows an earlier view of the group is told of the last one.

The files must be those of a majority. Messages are in memory alone: a member that is still in the view may have
delivered messages that nobody else has. So without survivors all wait until each voter of the view has been heard among
the joiners, with or without a file. Replicas with their state on disk do so for a moment only: all that was answered is
on the disks of any majority. One that is cut off from them, and still in the view, gives way when they meet
(``beacons.py``), and joins with its state on disk, as if started again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import ClassVar

from seqcast.core import orders
from seqcast.core.context import Context
from seqcast.core.frames.fields import Attempt, MemberInfo
from seqcast.core.frames.joining import NOBODY, Was
from seqcast.core.frames.recalling import Kept, Recall, Recalled, Taken
from seqcast.core.frames.view import NewView
from seqcast.core.rules.cut import first_view
from seqcast.core.rules.disks import before, followed, follows, fullest
from seqcast.core.rules.history import History
from seqcast.core.rules.quorum import is_quorum
from seqcast.core.table import IGNORED, Table, TableMachine, table
from seqcast.core.vocabulary import Keep
from seqcast.errors import RemoteProtocolError
from seqcast.types import ViewId


class KeeperState(Enum):
    VOTING = auto()
    ASKING = auto()
    OFFERING = auto()
    PROPOSING = auto()


class KeeperEvent(Enum):
    BEGIN = auto()
    RECALL = auto()
    RECALLED = auto()
    VIEW = auto()


MISSING_NS = 3_000_000_000
"""A quorum of replicas with disks waits this long for the other members of the last view."""

TOLD_NS, TOLD_MAX = 1_000_000_000, 16
"""One that is behind is sent our VIEW once in this time, and at most so many are."""

S, E = KeeperState, KeeperEvent
_RUNNING = (S.ASKING, S.OFFERING, S.PROPOSING)


@dataclass(frozen=True, slots=True)
class Returned:
    """A joiner, and the member that this process was before; None: nothing is known of one."""

    info: MemberInfo
    was: Was | None

    @property
    def id(self) -> int:
        return self.info.id

    @property
    def name(self) -> str:
        return self.info.name


class Keeper(TableMachine):
    def __init__(self, context: Context) -> None:
        super().__init__(S.VOTING, context.edges)
        self.context = context
        self.kept = context.settings.kept
        context.views = self.kept.views if self.kept is not None else ()
        self.highest = 0  # highest attempt seen, of anybody
        self.lacks = ""  # why the last view is not closed yet; read by any thread
        self.attempt: Attempt = (0, -1)  # ours, of which:
        self.until_ns = 0  # its end, if it has not ended well
        self.others: list[Returned] = []  # heard lately
        self.quorum = 0, 0  # tag of a view, and since when a quorum of it, with the state on disk, waits for the others
        self.opener = self._own()  # whose first view is to be the next one
        self.asked: dict[int, Returned] = {}  # by the id in the view; the opener as `NOBODY`, if it has none
        self.answers: dict[int, Taken | None] = {}  # the votes, our own included, and the VIEWs accepted before
        self.proposal: NewView | None = None
        self.told: dict[int, int] = {}  # ids of those that were behind, and were sent our VIEW lately -> ns
        self.decided: NewView | None = None  # the first view of the group, with us in it

    # ---- knowledge

    @property
    def was(self) -> Was | None:
        """For our JOIN."""
        if self.kept is None:
            return None
        view_id, on_disk = self.kept.view.view_id, self.context.settings.on_disk
        views = tuple(past for past in self.kept.views if past.counter >= on_disk[0])
        return Was(view_id.counter, view_id.tag, self._me or NOBODY, *on_disk, views)

    @property
    def _me(self) -> int:
        """Our id in the view; 0: we have no vote in it."""
        if self.kept is None:
            return 0
        rank = self.kept.rank(self.context.me.name)
        return self.kept.view.members[rank].id if rank >= 0 else 0

    @property
    def _voters(self) -> list[int]:
        assert self.kept is not None
        return [info.id for info in self.kept.view.members if not info.observer]

    def is_older(self, frame: NewView) -> bool:
        """Is this VIEW of a group that does not follow from the one that we know?"""
        if self.kept is None or self.kept.view.founding:
            return False
        known = self.kept.view.view_id
        return frame.view_id != known and frame.view_id.counter <= known.counter

    def closes(self, frame: NewView) -> bool:
        """Does this VIEW follow from the view that we know?"""
        if self.kept is None or not frame.members:  # all had left: those that start again are the next ones
            return False
        view_id = self.kept.view.view_id
        direct = self._was_accepted(frame.view_id.tag) or frame.closes == view_id
        return direct or follows(frame.view_id.tag, view_id.tag, self._disks(self.others), self.kept.views)

    # ---- inputs

    def begin(self, others: Iterable[Returned]) -> NewView | None:
        """No group is heard. Begins to close the view if that is our part, or continues; returns our first view after
        the decision.

        Args:
            others: the joiners that are heard.
        """
        self.others = list(others)
        self._note_quorum()
        self.fire(E.BEGIN, self.others)
        return self._take()

    def _note_quorum(self) -> None:
        kept = self.kept
        if kept is None:
            return
        asked, tag = self._asked(self.others), kept.view.view_id.tag
        disks = all(each.was is not None and each.was.position for each in self._returned(asked))
        if not disks or not is_quorum(self._voters, {self._me, *asked}):
            self.quorum = 0, 0
        elif self.quorum[0] != tag:
            self.quorum = tag, self.context.now

    def tell(self, each: Returned) -> None:
        """This joiner was heard, and no group. One that knows an earlier view is told of the one that we know.

        Timeline without this: b and c give up in view 7. a comes back, knows view 6, and waits for those who closed it;
        b and c wait, too, as the state is with a. Or the VIEW that lets a go on is lost on its way.
        """
        kept = self.kept
        if kept is None:
            return
        views = {tag for past in kept.views for tag in (past.view, past.closes)}
        if each.was is not None and each.was.counter < kept.view.view_id.counter and each.was.view in views:
            self.context.send(kept.view, each.id, each.info.address)

    def entered(self, frame: NewView) -> Kept:
        """We are in this view now. Returns the votes for the disk."""
        self.kept = self._following(frame, votes=True)
        self.context.views = self.kept.views
        return self.kept

    def recall(self, frame: Recall, sender: int, address: bytes) -> None:
        """Another one asks for the vote of the member that we were.

        Raises:
            RemoteProtocolError: the frame cannot be right.
        """
        kept = self.kept
        if kept is None:
            return
        if self._was_accepted(frame.view):
            assert kept.accepted is not None
            self.learn(kept.accepted.view)  # somebody who was in it knows that it was decided
        kept = self.kept
        ours = frame.proposal is not None and frame.proposal.has(self.context.me.id)
        if kept is None or not (self._me or ours):
            return
        if frame.view != kept.view.view_id.tag and any(frame.view in (past.view, past.closes) for past in kept.views):
            if self._may_tell(sender):
                self.context.send(replace(kept.view, answers=frame.attempt), sender, address)  # it is behind
            return
        if frame.view != kept.view.view_id.tag:
            return
        if frame.attempt[1] >= len(kept.view.members):
            raise RemoteProtocolError("RECALL: the attempt names no member")
        if frame.proposal is not None and frame.proposal.view_id.counter <= kept.view.view_id.counter:
            raise RemoteProtocolError("RECALL: view id does not grow")
        self.fire(E.RECALL, frame, sender, address)

    def _may_tell(self, sender: int) -> bool:
        """A VIEW is larger than the request, which anybody may send in another one's name."""
        soon = self.context.now - TOLD_NS
        self.told = {each: told_ns for each, told_ns in self.told.items() if told_ns > soon}
        if sender in self.told or len(self.told) >= TOLD_MAX:
            return False
        self.told[sender] = self.context.now
        return True

    def recalled(self, frame: Recalled, sender: int) -> NewView | None:
        """A vote of one that was asked for it; returns our first view after the decision."""
        kept, asked = self.kept, self.asked.get(frame.member)
        ours = kept is not None and frame.view == kept.view.view_id.tag and frame.attempt == self.attempt
        if ours and asked is not None and asked.id == sender:
            self.fire(E.RECALLED, frame)
        return self._take()

    def learn(self, frame: NewView) -> None:
        """This VIEW was decided as the successor of the view that we know."""
        self.fire(E.VIEW, frame)

    def _take(self) -> NewView | None:
        decided, self.decided = self.decided, None
        return decided

    def _was_accepted(self, tag: int) -> bool:
        accepted = self.kept.accepted if self.kept is not None else None
        return accepted is not None and accepted.view.view_id.tag == tag

    # ---- guards

    def may_not_begin(self, others: list[Returned]) -> bool:
        """The view is not ours to close, or not yet."""
        return bool(self._why_not(others))

    def _why_not(self, others: list[Returned]) -> str:
        ours, kept = self.was, self.kept
        newest = max(each.was for each in (*others, self._own()) if each.was is not None)
        if ours is None or newest[:2] > ours[:2] or kept is None:
            return f"a view of this cluster is known (number {newest.counter}), and its members have not closed it yet"
        asked = self._asked(others)
        enough = is_quorum(self._voters, {self._me, *asked})
        if not self._me and not enough:
            names = ", ".join(info.name for info in kept.view.members)
            return (
                f"{names} may have gone on in view {ours.counter} of this cluster without the others: start {names} "
                "with the files (stable=); if these are lost, see docs/guide.md (durable groups)"
            )
        back = {each.name for each in others} | {self.context.me.name}
        missing = [info.name for info in kept.view.members if not info.observer and info.name not in back]
        if self._can_do_without_others():
            missing = []
        if missing and not kept.view.founding:  # no application is in a group that is not founded
            return (
                f"{', '.join(missing)} may still be in view {ours.counter} of this cluster, and have messages that "
                "nobody else has: start them too, or let them be heard. If they are gone for good, remove the files "
                "(stable=) of all members: a new group is founded then"
            )
        if not enough:
            return (
                f"the members of view {ours.counter} of this cluster are back, and most of them without their files "
                "(stable=): remove the others' too if the files are lost, and a new group is founded"
            )
        opener = self._opener(others)
        if opener is None:
            return self._lacks_state(asked)
        voters = [each.id for each in self._returned(asked)]
        asker = opener.id if opener.id in voters else min(voters)
        return "" if asker == self.context.me.id else "another one that was in the last view closes it"

    def _can_do_without_others(self) -> bool:
        """The state of all that are back is on their disks, they are a quorum, and the others have had time to come, or
        to be heard in their view."""
        assert self.kept is not None
        tag, since_ns = self.quorum
        return tag == self.kept.view.view_id.tag and self.context.now >= since_ns + MISSING_NS

    def _lacks_state(self, asked: dict[int, Returned]) -> str:
        assert self.kept is not None
        view, here = self.kept.view, {self._me, *asked}
        lost = ", ".join(info.name for info in view.members if not info.observer and info.id not in here)
        whose = f"{lost} came back without the files (stable=), and the others" if lost else "the members"
        return (
            f"{whose} do not have all on disk that was decided before view {view.view_id.counter} of this group: start "
            "those of earlier views, find the files, or see docs/guide.md (durable groups)"
        )

    def _own(self) -> Returned:
        return Returned(self.context.me, self.was)

    def _disks(self, others: Iterable[Returned]) -> dict[int, Was]:
        return {each.id: each.was for each in (self._own(), *others) if each.was is not None}

    def _opener(self, others: list[Returned]) -> Returned | None:
        """Whose first view is to be the next one: the others take over the state of that member. None: nobody here may
        have the whole state, with a quorum of the last view back."""
        kept, disks = self.kept, self._disks(others)
        assert kept is not None
        if kept.view.founding or not any(was.position for was in disks.values()):
            return min(self._returned(self._asked(others)), key=lambda each: each.id)
        found = fullest(kept.view.view_id.tag, disks, kept.views)
        return next((each for each in (self._own(), *others) if each.id == found), None)

    def _returned(self, asked: dict[int, Returned]) -> list[Returned]:
        """Those that have a vote."""
        return [*asked.values(), *([self._own()] if self._me else [])]

    def _asked(self, others: Iterable[Returned]) -> dict[int, Returned]:
        """By their ids there, those that were in the view that we know."""
        ours, voters = self.was, self._voters
        assert ours is not None
        same = [(each, each.was) for each in others if each.was is not None and each.was.view == ours.view]
        return {was.member: each for each, was in same if was.member in voters and was.member != self._me}

    def runs(self, _others: list[Returned]) -> bool:
        return self.context.now < self.until_ns

    def is_below_promise(self, frame: Recall, _sender: int, _address: bytes) -> bool:
        assert self.kept is not None
        return frame.attempt < self.kept.promise

    def proposes(self, frame: Recall, _sender: int, _address: bytes) -> bool:
        return frame.proposal is not None

    def is_refused(self, frame: Recalled) -> bool:
        return frame.promise > self.attempt

    def is_enough(self, frame: Recalled) -> bool:
        return not frame.done and is_quorum(self._voters, {*self.answers, frame.member})

    def is_enough_for_another(self, frame: Recalled) -> bool:
        another = self.opener.id != self.context.me.id
        return another and self.is_enough(frame) and self._accepted_before(frame) is None

    def is_enough_done(self, frame: Recalled) -> bool:
        return frame.done and is_quorum(self._voters, {*self.answers, frame.member})

    def is_done(self, frame: Recalled) -> bool:
        return frame.done

    def is_openers(self, frame: Recalled) -> bool:
        return frame.done and frame.member == NOBODY

    # ---- actions

    def wait(self, others: list[Returned]) -> None:
        self.lacks = self._why_not(others)

    def ask(self, others: list[Returned]) -> None:
        kept, opener = self.kept, self._opener(others)
        assert kept is not None
        assert opener is not None
        self.lacks = "the members of the last view agree on the next one"
        number = max(self.highest, kept.promise[0]) + 1
        self.attempt, self.highest = (number, kept.rank(self.context.me.name)), number
        self.until_ns = self.context.now + self.context.settings.flush_deadline_ns
        self.opener, self.asked, self.answers = opener, self._asked(others), {self._me: kept.accepted}
        self.proposal = None
        self._keep(replace(kept, promise=self.attempt))
        self.say()
        if is_quorum(self._voters, self.answers):
            self.fire(E.RECALLED, self._answer())

    def say(self, *_: object) -> None:
        assert self.kept is not None
        for member, each in sorted(self.asked.items()):
            if member not in self.answers and (member == NOBODY) == (self.state is S.OFFERING):
                frame = Recall(self.kept.view.view_id.tag, self.attempt, self.proposal)
                self.context.send(frame, each.id, each.info.address)

    def note(self, frame: Recalled) -> None:
        self.answers[frame.member] = frame.accepted

    def _accepted_before(self, frame: Recalled) -> NewView | None:
        """The VIEW accepted under the highest attempt, as far as known with this answer; None: nobody has accepted one,
        or all had left with it. Nobody is in a view without members, so another VIEW may follow."""
        known = [each for each in (*self.answers.values(), frame.accepted) if each is not None]
        last = max(known, key=lambda each: each.under).view if known else None
        return last if last is not None and last.members else None

    def offer(self, frame: Recalled) -> None:
        """Timeline without this: b proposes the first view of a, which c accepts, and both crash; a, too, before it is
        told. Then a has no vote in that view, and nobody else was in it."""
        self.note(frame)
        self.proposal = self._first()
        self.asked[NOBODY] = self.opener
        self.say()

    def propose(self, frame: Recalled) -> None:
        """The VIEW accepted before, or our own first view."""
        self.proposal = self._accepted_before(frame) or self._first()
        self.put_forward(frame)

    def put_forward(self, _frame: Recalled) -> None:
        kept = self.kept
        assert kept is not None
        assert self.proposal is not None
        self._keep(replace(kept, accepted=Taken(self.attempt, self.proposal)))
        self.answers = {self._me: None}
        self.say()
        if is_quorum(self._voters, self.answers):
            self.fire(E.RECALLED, self._answer(done=True))

    def _first(self) -> NewView:
        assert self.kept is not None
        context, before = self.context, self.kept.view
        me, opener, settings = context.me, self.opener.info, context.settings
        frame = first_view([opener], settings.order, orders.resolve(settings.order), me.id,
                           first_seqno=settings.first_seqno)  # fmt: skip
        view_id = ViewId(before.view_id.counter + self.attempt[0], opener.id, (self.attempt[0], me.id))
        shared = History.SHARED if len(before.members) > 1 and not before.founding else History.NONE
        history = max(before.history, shared)
        frame = replace(frame, view_id=view_id, history=history, founding=before.founding, root=before.lineage)
        return context.secrets.given(frame)

    def _answer(self, done: bool = False) -> Recalled:
        """Our own."""
        assert self.kept is not None
        return Recalled(self.kept.view.view_id.tag, self.attempt, self._me, self.attempt, self.answers[self._me], done)

    def decide(self, _frame: Recalled) -> None:
        proposal = self.proposal
        assert proposal is not None
        if proposal.has(self.context.me.id):
            self.decided = proposal
            return
        for each in {each.id: each for each in (self.opener, *self.asked.values())}.values():
            if each.id != self.context.me.id:
                self.context.send(proposal, each.id, each.info.address)
        self.settle(proposal)

    def settle(self, frame: NewView) -> None:
        self.until_ns = 0
        self._keep(self._following(replace(frame, answers=None), votes=self._was_accepted(frame.view_id.tag)))

    def _following(self, frame: NewView, votes: bool) -> Kept:
        """After this VIEW."""
        tag, kept = frame.view_id.tag, Kept(frame, votes=votes)
        views = self.kept.views if self.kept is not None else ()
        if frame.closes is not None:
            closed = frame.closes.tag
        elif self.kept is not None and self._was_accepted(tag):  # a first view
            closed = self.kept.view.view_id.tag
        else:
            closed = before(tag, self._disks(self.others), views)
        return replace(kept, views=followed(views, frame, closed, kept.rank(self.context.me.name) >= 0))

    def note_higher(self, frame: Recalled) -> None:
        self.highest = max(self.highest, frame.promise[0])

    def refuse(self, frame: Recall, sender: int, address: bytes) -> None:
        self._say_recalled(frame, sender, address)

    def promise(self, frame: Recall, sender: int, address: bytes) -> None:
        kept = self.kept
        assert kept is not None
        self.highest = max(self.highest, frame.attempt[0])
        if kept.promise != frame.attempt:
            self._keep(replace(kept, promise=frame.attempt))
        self._say_recalled(frame, sender, address)

    def accept(self, frame: Recall, sender: int, address: bytes) -> None:
        kept = self.kept
        assert kept is not None and frame.proposal is not None
        self.highest = max(self.highest, frame.attempt[0])
        self._keep(replace(kept, promise=frame.attempt, accepted=Taken(frame.attempt, frame.proposal)))
        self._say_recalled(frame, sender, address, done=True)

    def _say_recalled(self, frame: Recall, sender: int, address: bytes, done: bool = False) -> None:
        kept = self.kept
        assert kept is not None
        accepted = None if done else kept.accepted
        answer = Recalled(frame.view, frame.attempt, self._me or NOBODY, kept.promise, accepted, done)
        self.context.send(answer, sender, address)

    def _keep(self, kept: Kept) -> None:
        self.kept, self.context.views = kept, kept.views
        self.context.emit(Keep(kept))

    TABLE: ClassVar[Table] = table(
        "keeper",
        S,
        E,
        (tuple(S), (E.BEGIN, may_not_begin), S.VOTING, wait, "members are missing, or another one closes the view"),
        (_RUNNING, (E.BEGIN, runs), None, say, "answers are missing"),
        (_RUNNING, E.BEGIN, S.ASKING, ask, "answers did not come, or the attempt met a higher promise"),
        (None, E.BEGIN, S.ASKING, ask, "all are back, and we go first"),
        (tuple(S), (E.RECALL, is_below_promise), None, refuse, "a higher attempt was promised; its sender is told"),
        (tuple(S), (E.RECALL, proposes), S.VOTING, accept, "the attempt that we promised, or a higher one"),
        (None, E.RECALL, S.VOTING, promise, "the highest attempt so far"),
        ((S.VOTING,), E.RECALLED, None, IGNORED, "of an attempt that is over"),
        (_RUNNING, (E.RECALLED, is_refused), S.VOTING, note_higher, "another attempt is promised: again, higher"),
        (
            S.ASKING,
            (E.RECALLED, is_enough_for_another),
            S.OFFERING,
            offer,
            "a majority of the view answers, and one without a vote has the state",
        ),
        (S.ASKING, (E.RECALLED, is_enough), S.PROPOSING, propose, "a majority of the view answers"),
        (S.ASKING, (E.RECALLED, is_done), None, IGNORED, "of the proposal, and so of an attempt that is over"),
        (S.ASKING, E.RECALLED, None, note, "no majority yet"),
        (S.OFFERING, (E.RECALLED, is_openers), S.PROPOSING, put_forward, "its sender has the VIEW and can open it"),
        (S.OFFERING, E.RECALLED, None, IGNORED, "a vote beyond the majority"),
        (S.PROPOSING, (E.RECALLED, is_enough_done), S.VOTING, decide, "a majority has accepted: that is decided"),
        (S.PROPOSING, (E.RECALLED, is_done), None, note, "no majority yet"),
        (S.PROPOSING, E.RECALLED, None, IGNORED, "late, or repeated"),
        (None, E.VIEW, S.VOTING, settle, "others have decided"),
    )
