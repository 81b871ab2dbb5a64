"""The votes of the member that this process was before it started again (``stable=``).

A majority of a primary view's members closes the view (the cut, step 9). With ``stable=`` a member writes its promise,
and the accepted VIEW, on disk before the answer: the votes outlast the process. A process that starts again reads
them, and votes as the earlier member while seeking a group. No packet of that view is left, so this member is no
survivor of the cut: the vote alone counts.

- If members of the view still live, and are too few, one of them begins to close the view as always, and asks with
  RECALL for the votes of joiners that were members. RECALL is START and PROPOSE in one, RECALLED is OK and DONE.
- If nobody is in the view any more, one of those that started again asks the others in the same way to accept a first
  view of its own as the successor: the one with the longest state on disk, if applications keep theirs there, as the
  others take over its state. The counter is above the old one, so fences grow. If one of them has accepted a VIEW
  before, that VIEW is proposed again, and is closed next.

Messages are in memory alone: a member that is still in the view may have delivered messages that nobody else has. So
without survivors all wait until each voter of the view has been heard among the joiners, with or without a file. The
files must be those of a majority.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import ClassVar

from seqcast.core import orders
from seqcast.core.context import Context
from seqcast.core.frames.fields import Attempt
from seqcast.core.frames.joining import NOBODY, Was
from seqcast.core.frames.recalling import Kept, Recall, Recalled, Taken
from seqcast.core.frames.view import NewView
from seqcast.core.rules.cut import first_view
from seqcast.core.rules.history import History
from seqcast.core.rules.quorum import is_quorum
from seqcast.core.table import IGNORED, Table, TableMachine, table
from seqcast.core.vocabulary import Keep
from seqcast.errors import RemoteProtocolError
from seqcast.types import ViewId


class KeeperState(Enum):
    VOTING = auto()
    ASKING = auto()
    PROPOSING = auto()


class KeeperEvent(Enum):
    BEGIN = auto()
    RECALL = auto()
    RECALLED = auto()
    VIEW = auto()


S, E = KeeperState, KeeperEvent
_RUNNING = (S.ASKING, S.PROPOSING)


@dataclass(frozen=True, slots=True)
class Returned:
    """A joiner, and the member that this process was before; None: nothing is known of one."""

    id: int
    name: str
    address: bytes
    was: Was | None


def _precedence(each: Returned) -> tuple[tuple[int, int], int]:
    """The member with the longest state on disk goes first, as the others take over the state of the first one; of
    several, the one with the lowest id."""
    assert each.was is not None
    return each.was.goes_to, -each.id


class Keeper(TableMachine):
    def __init__(self, context: Context) -> None:
        super().__init__(S.VOTING, context.edges)
        self.context = context
        self.kept = context.settings.kept
        self.highest = 0  # highest attempt seen, of anybody
        self.lacks = ""  # why the last view is not closed yet; read by any thread
        self.attempt: Attempt = (0, -1)  # ours, of which:
        self.until_ns = 0  # its end, if it has not ended well
        self.asked: dict[int, Returned] = {}  # by the id in the view
        self.answers: dict[int, Taken | None] = {}  # the votes, our own included, and the VIEWs accepted before
        self.proposal: NewView | None = None
        self.decided: NewView | None = None  # the first view of the group, with us in it

    # ---- knowledge

    @property
    def was(self) -> Was | None:
        """For our JOIN."""
        if self.kept is None:
            return None
        view = self.kept.view
        return Was(view.view_id.counter, view.view_id.tag, self._me or NOBODY, *self.context.settings.on_disk)

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
        return frame.view_id.counter <= self.kept.view.view_id.counter

    def closes(self, frame: NewView) -> bool:
        """Is this VIEW the successor of the view that we know?"""
        if self.kept is None or not frame.members:  # all had left: those that start again are the next ones
            return False
        accepted = self.kept.accepted
        known = accepted is not None and accepted.view.view_id == frame.view_id
        return known or frame.closes == self.kept.view.view_id

    # ---- inputs

    def begin(self, others: Iterable[Returned]) -> NewView | None:
        """No group is heard. Begins to close the view if that is our part, or continues; returns our first view after
        the decision.

        Args:
            others: the joiners that are heard.
        """
        self.fire(E.BEGIN, list(others))
        return self._take()

    def recall(self, frame: Recall, sender: int, address: bytes) -> None:
        """Another one asks for the vote of the member that we were.

        Raises:
            RemoteProtocolError: the frame cannot be right.
        """
        kept = self.kept
        if kept is None or not (self._me or self._was_accepted(frame.view)):
            return
        if self._was_accepted(frame.view):
            assert kept.accepted is not None
            self.learn(kept.accepted.view)  # somebody who was in it knows that it was decided
        kept = self.kept
        if kept is None or not self._me:
            return
        if kept.view.closes is not None and frame.view == kept.view.closes.tag:
            self.context.send(kept.view, sender, address)  # it is behind
            return
        if frame.view != kept.view.view_id.tag:
            return
        if frame.attempt[1] >= len(kept.view.members):
            raise RemoteProtocolError("RECALL: the attempt names no member")
        if frame.proposal is not None and frame.proposal.view_id.counter <= kept.view.view_id.counter:
            raise RemoteProtocolError("RECALL: view id does not grow")
        self.fire(E.RECALL, frame, sender, address)

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
        ours = self.was
        newest = max(each.was for each in (*others, self._own()) if each.was is not None)
        kept = self.kept
        if ours is None or newest[:2] > ours[:2] or kept is None:
            return f"a view of this cluster is known (number {newest.counter}), and its members have not closed it yet"
        if not self._me:
            names = ", ".join(info.name for info in kept.view.members)
            return (
                f"{names} may have gone on in view {ours.counter} of this cluster without the others: start {names} "
                "with the files (stable=); if these are lost, see docs/guide.md (durable groups)"
            )
        back = {each.name for each in others} | {self.context.me.name}
        missing = [info.name for info in kept.view.members if not info.observer and info.name not in back]
        if missing and not kept.view.founding:  # no application is in a group that is not founded
            return (
                f"{', '.join(missing)} may still be in view {ours.counter} of this cluster, and have messages that "
                "nobody else has: start them too, or let them be heard. If they are gone for good, remove the files "
                "(stable=) of all members: a new group is founded then"
            )
        asked = self._asked(others)
        if not is_quorum(self._voters, {self._me, *asked}):
            return (
                f"the members of view {ours.counter} of this cluster are back, and most of them without their files "
                "(stable=): remove the others' too if the files are lost, and a new group is founded"
            )
        if why := self._why_no_state(asked):
            return why
        first = max((self._own(), *asked.values()), key=_precedence)
        return "" if first.id == self.context.me.id else "another one that was in the last view closes it"

    def _own(self) -> Returned:
        return Returned(self.context.me.id, self.context.me.name, b"", self.was)

    def _why_no_state(self, asked: dict[int, Returned]) -> str:
        """Why nobody here may have the whole state, with a quorum of the last view back; "": somebody has.

        Timeline without this: a, alone in view 4, answers calls, and b and c join. In view 5, before they have the
        state on disk, all lose their power, and a its disk. b and c are a majority of view 5, without that state. Or a
        crashes alone, and b and c give up in a view 6, which only they were in.

        A member with the beginning of the last view on disk has all that was decided before. If there is none, nothing
        was answered in that view, and a majority of the view before it that has the beginning of that one will do.
        """
        known, ours, kept = {self._me: self._own(), **asked}, self.was, self.kept
        assert ours is not None and kept is not None
        reached = [each.was.reached for each in known.values() if each.was is not None]
        before = kept.view.closes.counter if kept.view.closes is not None else 0
        enough = 2 * reached.count(before) > len(kept.view.cut)  # which has an entry for each member of the view before
        if not ours.position or kept.view.founding or ours.counter in reached or enough:
            return ""
        lost = [info.name for info in kept.view.members if not info.observer and info.id not in known]
        whose = f"{', '.join(lost)} came back without the files (stable=), and the others" if lost else "the members"
        return (
            f"{whose} do not have all on disk that was decided before view {ours.counter} of this group: start those "
            "of earlier views, find the files, or see docs/guide.md (durable groups)"
        )

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

    def is_enough_done(self, frame: Recalled) -> bool:
        return frame.done and is_quorum(self._voters, {*self.answers, frame.member})

    def is_done(self, frame: Recalled) -> bool:
        return frame.done

    # ---- actions

    def wait(self, others: list[Returned]) -> None:
        self.lacks = self._why_not(others)

    def ask(self, others: list[Returned]) -> None:
        kept = self.kept
        assert kept is not None
        self.lacks = "the members of the last view agree on the next one"
        number = max(self.highest, kept.promise[0]) + 1
        self.attempt, self.highest = (number, kept.rank(self.context.me.name)), number
        self.until_ns = self.context.now + self.context.settings.flush_deadline_ns
        self.asked, self.answers, self.proposal = self._asked(others), {self._me: kept.accepted}, None
        self._keep(replace(kept, promise=self.attempt))
        self.say()
        if is_quorum(self._voters, self.answers):
            self.fire(E.RECALLED, self._answer())

    def say(self, *_: object) -> None:
        assert self.kept is not None
        for member, each in sorted(self.asked.items()):
            if member not in self.answers:
                self.context.send(
                    Recall(self.kept.view.view_id.tag, self.attempt, self.proposal), each.id, each.address
                )

    def note(self, frame: Recalled) -> None:
        self.answers[frame.member] = frame.accepted

    def propose(self, frame: Recalled) -> None:
        """The VIEW accepted under the highest attempt; a first view of ours if there is none, or all had left with it.

        Nobody is in a view without members, so another one may take its place: our attempt is above that VIEW's.
        """
        self.note(frame)
        kept = self.kept
        assert kept is not None
        accepted = [each for each in self.answers.values() if each is not None]
        last = max(accepted, key=lambda each: each.under).view if accepted else None
        self.proposal = last if last is not None and last.members else self._first()
        self._keep(replace(kept, accepted=Taken(self.attempt, self.proposal)))
        self.answers = {self._me: None}
        self.say()
        if is_quorum(self._voters, self.answers):
            self.fire(E.RECALLED, self._answer(done=True))

    def _first(self) -> NewView:
        assert self.kept is not None
        context, before = self.context, self.kept.view
        me, settings = context.me, context.settings
        frame = first_view([me], settings.order, orders.resolve(settings.order), me.id,
                           first_seqno=settings.first_seqno)  # fmt: skip
        view_id = ViewId(before.view_id.counter + self.attempt[0], me.id, (self.attempt[0], me.id))
        shared = History.SHARED if len(before.members) > 1 and not before.founding else History.NONE
        history = max(before.history, shared)
        frame = replace(frame, view_id=view_id, history=history, founding=before.founding)
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
        for each in self.asked.values():
            self.context.send(proposal, each.id, each.address)
        self.settle(proposal)

    def settle(self, frame: NewView) -> None:
        kept = self.kept
        self.until_ns = 0
        accepted = kept is not None and kept.accepted is not None and kept.accepted.view.view_id == frame.view_id
        self._keep(Kept(frame, votes=accepted))

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
        self.context.send(Recalled(frame.view, frame.attempt, self._me, kept.promise, accepted, done), sender, address)

    def _keep(self, kept: Kept) -> None:
        self.kept = kept
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
        (_RUNNING, (E.RECALLED, is_refused), S.VOTING, note_higher, "another attempt is promised: again, above it"),
        (S.ASKING, (E.RECALLED, is_enough), S.PROPOSING, propose, "a majority of the view answers"),
        (S.ASKING, (E.RECALLED, is_done), None, IGNORED, "of the proposal, and so of an attempt that is over"),
        (S.ASKING, E.RECALLED, None, note, "no majority yet"),
        (S.PROPOSING, (E.RECALLED, is_enough_done), S.VOTING, decide, "a majority has accepted: that is decided"),
        (S.PROPOSING, (E.RECALLED, is_done), None, note, "no majority yet"),
        (S.PROPOSING, E.RECALLED, None, IGNORED, "late, or repeated"),
        (None, E.VIEW, S.VOTING, settle, "others have decided"),
    )
