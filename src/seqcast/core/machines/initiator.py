"""The initiator's part in the cut: repeats BLOCK until all block callbacks have run, if there are any; START until
all survivors said OK; CUT until all said DONE; VIEW until all said INSTALLED.

In a primary partition (step 9) a proposed VIEW goes with the CUT. If a survivor has accepted a proposal before, that
one is proposed again, whichever members it leaves out: some member may have installed it. Survivors that are not a
majority of the view are blocked until more members can be reached, enough members that started again vote
(``machines/keeper.py``), or an operator allows them to continue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import ClassVar

from seqcast.core.context import NEVER, Context, Repeat
from seqcast.core.frames.closing import Accepted, Block, BlockOk, Cut, Done, Ok, Promised, Propose, Start
from seqcast.core.frames.fields import Attempt, MemberInfo
from seqcast.core.frames.joining import Was
from seqcast.core.frames.recalling import Recall, Recalled
from seqcast.core.frames.view import ITSELF, Installed, NewView, Subgroup
from seqcast.core.lineage import Lineage
from seqcast.core.machines.participant import NO_PROMISE, Participant
from seqcast.core.membership import Membership
from seqcast.core.policies import arranged, chosen
from seqcast.core.rules.cut import fetch_up_to, fix_cut, next_view
from seqcast.core.rules.quorum import to_repeat
from seqcast.core.table import IGNORED, ILLEGAL, Table, TableMachine, table
from seqcast.core.vocabulary import CONTINUED, GiveWay
from seqcast.errors import RemoteProtocolError
from seqcast.types import Member

DEPARTED_MAX = 64
"""How many departed incarnations a VIEW names to joiners: older ones no longer ask."""


class InitiatorState(Enum):
    IDLE = auto()
    BLOCKING = auto()
    STARTING = auto()
    TOO_FEW = auto()
    CUTTING = auto()
    HOLDING = auto()
    SERVING = auto()
    BACKING_OFF = auto()


class InitiatorEvent(Enum):
    INITIATE = auto()
    BLOCK_OK = auto()
    OK = auto()
    DONE = auto()
    INSTALLED = auto()
    RELEASE = auto()
    GO = auto()
    NEWER = auto()
    RECALLED = auto()
    PROMISED = auto()
    LIVES = auto()
    REVIEW = auto()
    REPEAT = auto()
    DEADLINE = auto()
    VIEW = auto()


S, E = InitiatorState, InitiatorEvent
_RUNNING = (S.BLOCKING, S.STARTING, S.TOO_FEW, S.CUTTING, S.HOLDING)
_STARTED = (S.STARTING, S.TOO_FEW, S.CUTTING, S.HOLDING)


class Initiator(TableMachine):
    def __init__(self, context: Context, participant: Participant, membership: Membership, lineage: Lineage) -> None:
        super().__init__(S.IDLE, context.edges)
        self.context = context
        self.participant = participant
        self.membership = membership
        self.lineage = lineage
        settings = context.settings
        self.repeats = Repeat(settings.repeat_ns_min, settings.repeat_ns_max)
        self.deadline_ns = NEVER
        self.attempt: Attempt = NO_PROMISE
        self.survivors: tuple[int, ...] = ()
        self.oks: dict[int, Ok] = {}
        self.accepted: dict[int, tuple[Attempt, NewView]] = {}  # the VIEWs that survivors, by id, accepted before
        self.early: dict[int, Ok] = {}  # OKs whose ACCEPTED is still missing, by id
        # By id in our view, those of its members that started again and vote: the ids and addresses that they have now.
        self.returned: dict[int, tuple[int, bytes]] = {}
        self.missing: set[int] = set()  # ids whose DONE, or INSTALLED, is missing
        self.frame: Block | Start | Cut | NewView | None = None
        self.proposal: Propose | None = None  # sent with the CUT
        self.block_until_ns = (0, NEVER)  # (tag of a view, when its callbacks are waited for no longer)
        self.plain: NewView | None = None  # while HOLDING: the view that the subgroup would install alone
        self.audience: dict[int, MemberInfo] = {}  # who must have the VIEW

    @property
    def idle(self) -> bool:
        return self.state is S.IDLE

    @property
    def backing_off(self) -> bool:
        """A survivor promised a higher attempt, and we wait before the next one."""
        return self.state is S.BACKING_OFF

    @property
    def holding(self) -> bool:
        """All survivors hold the cut, and no VIEW follows before the merge that is under way is decided."""
        return self.state is S.HOLDING

    @property
    def serving(self) -> NewView | None:
        """The VIEW that we repeat until everybody has answered."""
        return self.frame if self.state is S.SERVING and isinstance(self.frame, NewView) else None

    @property
    def running(self) -> bool:
        """An attempt to close the present view is under way."""
        return self.state in _RUNNING

    @property
    def too_few(self) -> bool:
        """The running attempt cannot end in a view with its current survivors."""
        return self.running and not self.context.enough([*self.survivors, *self.returned])

    @property
    def waited_for(self) -> tuple[int, ...]:
        """The members that must still answer before another attempt makes sense.

        An adopted VIEW that others of our view must have first counts as under way too."""
        return self.survivors if self.running else tuple(sorted(self.missing)) if self.passing_on else ()

    @property
    def passing_on(self) -> bool:
        """We serve a VIEW that closes our current view and does not include us."""
        view, served = self.context.view, self.serving
        return view is not None and served is not None and served.closes == view.view_id

    def awaits_joiner(self, member: int) -> bool:
        """Does the VIEW that we serve admit this process, before its entry?"""
        return self.serving is not None and member in self.missing and member not in self.survivors

    # ---- inputs

    def initiate(self, survivors: tuple[int, ...]) -> None:
        """Begins to close the view: first a round for block callbacks, if a survivor has one and can still send."""
        context = self.context
        if self.block_until_ns[0] != context.tag:  # callbacks have one deadline for all attempts to close a view
            margin = 2 * context.settings.repeat_ns_max
            self.block_until_ns = context.tag, context.now + context.settings.block_deadline_ns + margin
        self.fire(E.INITIATE, survivors)

    def block_ok(self, frame: BlockOk, sender: int) -> None:
        if frame.attempt != self.attempt or frame.view != self.context.tag or sender not in self.survivors:
            return
        self.fire(E.BLOCK_OK, sender)

    def ok(self, frame: Ok, sender: int) -> None:
        if frame.attempt != self.attempt or frame.view != self.context.tag:
            return
        rank = next((rank for rank, member in enumerate(self.context.members) if member.id == sender), -1)
        if sender not in self.survivors or len(frame.held) != len(self.context.members):
            return
        if frame.accepted is not None and self.accepted.get(sender, (None,))[0] != frame.accepted:
            self.early[sender] = frame
            return
        self.fire(E.OK, rank, frame)

    def note_accepted(self, frame: Accepted, sender: int) -> None:
        """The VIEW that a survivor accepted before.

        Raises:
            RemoteProtocolError: closes another view.
        """
        context = self.context
        if frame.attempt != self.attempt or frame.view != context.tag or sender not in self.survivors:
            return
        assert context.view is not None
        if frame.proposal.closes != context.view.view_id or len(frame.proposal.cut) != len(context.members):
            raise RemoteProtocolError("ACCEPTED: a proposal for another view")
        self.accepted[sender] = frame.under, frame.proposal
        if (early := self.early.pop(sender, None)) is not None:
            self.ok(early, sender)

    def review(self) -> None:
        """The end of a step: another attempt may have overtaken ours, or an operator may have allowed a minority to
        continue."""
        self.fire(E.REVIEW)

    def done(self, frame: Done, sender: int) -> None:
        if frame.attempt != self.attempt or frame.view != self.context.tag or sender not in self.survivors:
            return
        self.fire(E.DONE, sender)

    def recalled(self, frame: Recalled, sender: int, address: bytes) -> None:
        """The vote of a member that started again.

        Raises:
            RemoteProtocolError: accepted a VIEW that does not close ours.
        """
        context = self.context
        if frame.attempt != self.attempt or frame.member not in context.voters or frame.member in self.survivors:
            return
        if frame.promise > self.attempt:
            self.participant.saw(frame.promise)
            self.fire(E.PROMISED)
        elif not frame.done:
            view = frame.accepted.view if frame.accepted is not None else None
            # (One that closes no view is the first view of others that started again.)
            if view is not None and view.closes is not None and len(view.cut) != len(context.members):
                raise RemoteProtocolError("RECALLED: a proposal for another view")
            self.fire(E.RECALLED, frame, sender, address)
        elif self.returned.get(frame.member, (0,))[0] == sender:
            self.fire(E.DONE, frame.member)

    def promised(self, frame: Promised, sender: int) -> None:
        """A survivor promised another attempt, so our next one must be higher; or a member that we left out is
        alive."""
        if frame.view != self.context.tag or sender not in self.context.infos:
            return
        if sender not in self.survivors:
            self.fire(E.LIVES, frame, sender)
            return
        self.participant.saw(frame.promise)
        if frame.attempt == self.attempt and frame.promise > self.attempt:
            self.fire(E.PROMISED)

    def newer(self, frame: NewView) -> None:
        """A VIEW served in answer to our START, by a member that has left the view (the cut, step 1)."""
        if frame.answers == self.attempt:
            self.fire(E.NEWER, frame)

    def installed(self, frame: Installed, sender: int) -> None:
        if isinstance(self.frame, NewView) and frame.view == self.frame.view_id.tag:
            self.fire(E.INSTALLED, sender)

    def due(self) -> int:
        return min(self.repeats.due, self.deadline_ns)

    def run_timers(self) -> None:
        if self.context.now >= self.deadline_ns:
            self.fire(E.DEADLINE)
        elif self.repeats.take(self.context.now):
            self.fire(E.REPEAT)

    # ---- guards

    def callbacks_can_run(self, survivors: tuple[int, ...]) -> bool:
        """A survivor has a block callback, its messages can still be sent, and its deadline has not passed."""
        context = self.context
        may = not self.participant.promised and context.now < self.block_until_ns[1]
        return may and any(context.infos[member].blocks for member in survivors)

    def is_last(self, sender: int) -> bool:
        return self.missing <= {sender}

    def is_last_and_merges(self, sender: int) -> bool:
        return self.missing <= {sender} and self.context.merging

    def is_last_ok(self, rank: int, _frame: Ok) -> bool:
        return len(self.oks.keys() | {rank}) == len(self.survivors)

    def is_last_ok_of_too_few(self, rank: int, frame: Ok) -> bool:
        return self.is_last_ok(rank, frame) and self.too_few

    def is_by_too_few(self, _frame: Promised, _sender: int) -> bool:
        return self.too_few

    def is_overtaken(self) -> bool:
        return self.participant.promise > self.attempt

    def is_enough(self) -> bool:
        return not self.too_few

    # ---- actions

    def begin(self, survivors: tuple[int, ...]) -> None:
        self.survivors = survivors
        self.attempt = (max(self.participant.highest, self.participant.promise[0]) + 1, self.context.rank)
        self.oks, self.accepted, self.early, self.returned = {}, {}, {}, {}
        self.proposal = None

    def ask_block(self, survivors: tuple[int, ...]) -> None:
        self._wait_for(survivors, self.block_until_ns[1] - self.context.now)
        self.frame = Block(self.context.tag, self.attempt, survivors)
        self.say()

    def close(self, *_: object) -> None:
        self._wait_for(self.survivors, self.context.settings.flush_deadline_ns)
        self.frame = Start(self.context.tag, self.attempt, self.survivors)
        self.say()

    def say(self) -> None:
        assert self.frame is not None and not isinstance(self.frame, NewView)
        self.context.multicast(self.frame)
        if self.proposal is not None:
            self.context.multicast(self.proposal)
            for member, (now, address) in sorted(self.returned.items()):
                if member in self.missing:
                    self._recall(now, address, self.proposal.proposal)

    def call_returned(self) -> None:
        """Asks the joiners that were in our view for their votes.

        Timeline without those whose file is one view behind: a and b accept a view, a enters that view, and b and c
        crash. b comes back with a vote in it, which it does not know to be decided: a waits for ever.

        Timeline without those whose file is ahead: b and c accept a view, c writes that it enters, and crashes. c comes
        back, and b, which has not heard that the view is decided, waits for ever.
        """
        for joiner in list(self.membership.joiners.values()):
            if joiner.was is not None and joiner.was.member not in self.returned and self._was_near(joiner.was):
                self._recall(joiner.info.id, joiner.info.address, None)

    def _was_near(self, was: Was) -> bool:
        entered, tag = self.context.entered, self.context.tag
        assert entered is not None
        behind = entered.closes is not None and was.view == entered.closes.tag
        return behind or was.view == tag or any(tag in (past.view, past.closes) for past in was.views)

    def _recall(self, now: int, address: bytes, proposal: NewView | None) -> None:
        self.context.send(Recall(self.context.tag, self.attempt, proposal), now, address)

    def note_returned(self, frame: Recalled, sender: int, address: bytes) -> None:
        self.returned[frame.member] = sender, address
        if frame.accepted is not None:
            self.accepted[frame.member] = frame.accepted

    def note_answer(self, sender: int) -> None:
        self.missing.discard(sender)

    def note_ok(self, rank: int, frame: Ok) -> None:
        self.oks[rank] = frame
        self.missing.discard(self.context.members[rank].id)

    def note_life(self, frame: Promised, sender: int) -> None:
        self.participant.saw(frame.promise)
        self.membership.lives(sender)

    def wait(self, *_: object) -> None:
        """No deadline: all survivors have answered, so none can be given up."""
        self.deadline_ns = NEVER

    def send_cut(self, *_: object) -> None:
        context = self.context
        cut, fetch = fix_cut(len(context.members), self.oks)
        if context.primary:
            votes = [self.accepted[member][0] for member in self.returned if member in self.accepted]
            proposal = to_repeat(self.oks, dict(self.accepted.values()), self.survivors, context.allowed, votes)
            if proposal is None:
                proposal = self._next_view(cut, (0,) * len(cut))
            elif proposal.closes is None:
                # Some that started again may have decided on this first view: they counted us as back, as we entered
                # our view when all others had gone.
                names = ", ".join(info.name for info in proposal.members)
                context.emit(GiveWay(proposal.view_id, CONTINUED.format(names)))
                return
            else:
                cut = proposal.cut
                fetch = fetch_up_to(cut, self.oks)
            self.proposal = Propose(context.tag, self.attempt, proposal)
        self._wait_for([*self.survivors, *self.returned], context.settings.flush_deadline_ns)
        self.frame = Cut(context.tag, self.attempt, cut, fetch)
        self.say()

    def send_view(self, *_: object) -> None:
        view = self._decided() if self.context.primary else self._own_view()
        self._serve(view, view.members)

    def _decided(self) -> NewView:
        """The proposals that survivors accepted before, our own included."""
        assert self.participant.accepted is not None and self.participant.accepted[0] == self.attempt
        return replace(self.participant.accepted[1], attempt=self.attempt)

    def _own_view(self) -> NewView:
        assert isinstance(self.frame, Cut)
        return self._next_view(self.frame.cut, self.context.plane.received_table())

    def _next_view(self, cut: Sequence[int], table: Sequence[int]) -> NewView:
        context = self.context
        assert context.view is not None
        lacking = {context.members[rank].id: ok.lacks for rank, ok in self.oks.items() if ok.lacks is not None}
        leaving, joining = self.membership.leaving(), self.membership.joining()
        if not self._staying(leaving) and all(info.observer for info in joining):  # observers do not go on alone
            leaving, joining = leaving | {member.id for member in context.members if member.observer}, []
        if context.primary:  # as many as stay: those are a quorum of the view then, should no joiner ever enter it
            most = max(self._staying(leaving), 1)
            if context.entered is not None and context.entered.closes is None:  # those that founded the group with us
                most = max(most, context.settings.found - 1)
            voters = [info for info in joining if not info.observer][:most]
            joining = voters + [info for info in joining if info.observer]
        frame = next_view(
            context.view,
            self._infos(),
            self.attempt,
            self.survivors,
            cut,
            table,
            leaving,
            joining,
            lacking,
            context.entered,
            self.arrange,
            self.choose,
            context.settings.first_seqno,
            context.plane.path_bytes(),
        )
        before, stay = context.founding, self._staying(leaving)  # joiners may never come
        root = context.root if context.allowed is None else ITSELF  # the others may have gone on, too
        frame = replace(frame, history=context.history_so_far(), founding=before if stay < before else 0, root=root)
        if joining and not context.primary:  # a joiner may later speak for this group in a merge
            frame = replace(frame, shortfalls=self.lineage.shortfalls(context.view, frame))
        if joining:  # and may admit the next joiners
            gone = (member.id for member in context.members if not frame.has(member.id))
            frame = replace(frame, departed=(*context.departed, *gone)[-DEPARTED_MAX:])
        return context.secrets.given(frame)

    def _infos(self) -> dict[int, MemberInfo]:
        """The members as they describe themselves now: this one may have another address."""
        return self.context.infos | dict(self.membership.informed()) | {self.context.me.id: self.context.me}

    def _staying(self, leaving: Collection[int]) -> int:
        """How many of those that have a vote survive, and stay."""
        return sum(member in self.survivors and member not in leaving for member in self.context.voters)

    def arrange(self, infos: Sequence[MemberInfo], subgroups: Sequence[Subgroup]) -> list[MemberInfo]:
        members = arranged(self.context, infos, self.survivors, self.membership.leaving(), subgroups)
        voters = [info for info in members if not info.observer]
        stay = [info for info in voters if info.id in self.survivors]
        if self.context.primary and 2 * len(stay) == len(voters) > 0:  # enough to continue if a joiner dies
            members = [stay[0], *(info for info in members if info.id != stay[0].id)]
        return members

    def choose(self, members: Sequence[Member]) -> int:
        return chosen(self.context, members)

    def hold(self, *_: object) -> None:
        """Our part of a merge is fixed: gates stay closed and leases are renewed until the merge is completed or given
        up."""
        self.plain = self._own_view()
        self.repeats.start(self.context.now)
        self.deadline_ns = NEVER

    def send_plain(self) -> None:
        assert self.plain is not None
        self._serve(self.plain, self.plain.members)

    def send_merged(self, merged: NewView) -> None:
        """The merged view as the VIEW that ends our cut; the other subgroups have it from their coordinators."""
        plain = self.plain
        assert plain is not None
        view = replace(
            merged,
            closes=plain.closes,
            attempt=plain.attempt,
            survivors=plain.survivors,
            cut=plain.cut,
            table=plain.table,
        )
        self._serve(self.context.secrets.proven(view), plain.members)

    def adopt(self, frame: NewView) -> None:
        self._serve(replace(frame, attempt=self.attempt, answers=None), frame.members)

    def _serve(self, frame: NewView, members: tuple[MemberInfo, ...]) -> None:
        self.frame, self.proposal = frame, None
        self.audience = {member: self.context.infos[member] for member in self.survivors}
        self.audience.update((info.id, info) for info in members)
        self._wait_for(self.audience, self.context.settings.flush_deadline_ns)
        self.context.multicast(frame)

    def say_view(self) -> None:
        assert isinstance(self.frame, NewView)
        for member in sorted(self.missing):
            self.context.send(self.frame, member, self.audience[member].address)

    def exclude_silent(self) -> None:
        self.participant.give_up(self.missing)

    def back_off(self) -> None:
        self.stop()
        self.deadline_ns = self.context.now + self.context.settings.back_off_ns

    def stop(self, *_: object) -> None:
        self.repeats.stop()
        self.deadline_ns = NEVER

    def _wait_for(self, members: Iterable[int], deadline_ns: int) -> None:
        self.missing = set(members)
        self.repeats.start(self.context.now)
        self.deadline_ns = self.context.now + deadline_ns

    TABLE: ClassVar[Table] = table(
        "initiator",
        S,
        E,
        (S.BACKING_OFF, E.INITIATE, None, ILLEGAL, "the coordinator's duty waits for the end of the back-off"),
        (
            (S.IDLE, S.BLOCKING, S.SERVING),
            (E.INITIATE, callbacks_can_run),
            S.BLOCKING,
            (begin, ask_block),
            "a survivor has a block callback",
        ),
        (None, E.INITIATE, S.STARTING, (begin, close), "no callback to wait for"),
        (S.BLOCKING, (E.BLOCK_OK, is_last), S.STARTING, close, "all survivors ran their callbacks"),
        (S.BLOCKING, E.BLOCK_OK, None, note_answer, "other answers are missing"),
        (None, E.BLOCK_OK, None, IGNORED, "repeated, or of an attempt that is over"),
        (
            S.STARTING,
            (E.OK, is_last_ok_of_too_few),
            S.TOO_FEW,
            (note_ok, wait),
            "all answered, but they are not a majority of the view (step 9)",
        ),
        (S.STARTING, (E.OK, is_last_ok), S.CUTTING, (note_ok, send_cut), "all survivors answered"),
        (S.STARTING, E.OK, None, note_ok, "other answers are missing"),
        (None, E.OK, None, IGNORED, "repeated, or of an attempt that is over"),
        (S.CUTTING, (E.DONE, is_last_and_merges), S.HOLDING, (note_answer, hold), "all hold the cut; a merge runs"),
        (S.CUTTING, (E.DONE, is_last), S.SERVING, (note_answer, send_view), "all survivors hold the cut"),
        (S.CUTTING, E.DONE, None, note_answer, "other answers are missing"),
        (None, E.DONE, None, IGNORED, "repeated, or of an attempt that is over"),
        (S.HOLDING, E.RELEASE, S.SERVING, send_plain, "no merge: the subgroup continues alone"),
        (None, E.RELEASE, None, ILLEGAL, "only HOLDING is released"),
        (S.HOLDING, E.GO, S.SERVING, send_merged, "the merged view"),
        (None, E.GO, None, ILLEGAL, "only HOLDING waits for that"),
        (S.BLOCKING, E.NEWER, S.STARTING, close, "a member has left the view: callbacks are too late"),
        (_STARTED, E.NEWER, S.SERVING, adopt, "a member has left the view: we serve its VIEW"),
        (None, E.NEWER, None, IGNORED, "of an attempt that is over"),
        (S.TOO_FEW, E.RECALLED, None, note_returned, "a member that started again votes, and has none of the packets"),
        (None, E.RECALLED, None, IGNORED, "repeated, or of an attempt that is over"),
        (_RUNNING, E.PROMISED, S.BACKING_OFF, back_off, "a survivor promised a higher attempt"),
        (None, E.PROMISED, None, IGNORED, "of an attempt that is over"),
        (_RUNNING, (E.LIVES, is_by_too_few), None, note_life, "a member that we left out lives, and may help"),
        (None, E.LIVES, None, IGNORED, "we have a majority without that member, or no attempt runs"),
        (_RUNNING, (E.REVIEW, is_overtaken), S.IDLE, stop, "we promised a higher attempt of another member"),
        (S.BACKING_OFF, (E.REVIEW, is_overtaken), S.IDLE, stop, "the higher attempt reached us"),
        (
            S.TOO_FEW,
            (E.REVIEW, is_enough),
            S.CUTTING,
            send_cut,
            "members that started again vote, or an operator says that the others are gone for good",
        ),
        (None, E.REVIEW, None, IGNORED, "nothing waits for the end of a step"),
        (S.BLOCKING, E.REPEAT, None, say, "a callback still runs; the leases are renewed"),
        (S.STARTING, E.REPEAT, None, say, "an OK is missing"),
        (
            S.TOO_FEW,
            E.REPEAT,
            None,
            (say, call_returned),
            "renews the leases; members that were left out, or started again, learn that we lack a majority",
        ),
        (S.CUTTING, E.REPEAT, None, say, "a DONE is missing"),
        (S.HOLDING, E.REPEAT, None, say, "renews the leases while the merge is awaited"),
        (S.SERVING, E.REPEAT, None, say_view, "a member has not confirmed the VIEW"),
        (None, E.REPEAT, None, ILLEGAL, "the timer does not run"),
        (S.BLOCKING, E.DEADLINE, S.STARTING, close, "silent members had enough time (E-17)"),
        ((S.STARTING, S.CUTTING), E.DEADLINE, S.IDLE, (stop, exclude_silent), "silent members are excluded"),
        (S.SERVING, E.DEADLINE, S.IDLE, stop, "a member that lacks the VIEW can ask any other"),
        (S.BACKING_OFF, E.DEADLINE, S.IDLE, stop, "try again if there is still a reason"),
        (None, E.DEADLINE, None, ILLEGAL, "no deadline runs"),
        (S.SERVING, (E.INSTALLED, is_last), S.IDLE, stop, "all have the VIEW"),
        (S.SERVING, E.INSTALLED, None, note_answer, "other answers are missing"),
        (None, E.INSTALLED, None, IGNORED, "repeated"),
        ((*_RUNNING, S.BACKING_OFF), E.VIEW, S.IDLE, stop, "our view was closed by another member's attempt"),
        (None, E.VIEW, None, IGNORED, "the VIEW is ours, or no attempt runs"),
    )
