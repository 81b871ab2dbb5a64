"""How members agree on a membership by a token that goes round the ring (S4, NBC-01 to NBC-18, E-19 to E-22).

Members may know different others: discovery is incomplete, and may work in one direction only (NBC-04). A member that
knows of a change, and of nobody before itself in the absolute order, leads, and sends a token round the ring. Each
visitor adds its known members and passes the token on to the next in the ring (NBC-07). A token that comes back with
more members goes round again (NBC-10); otherwise the leader asks all members to agree (PREPARE), and when all do, tells
them so (COMMIT): then all have the same view. A member that knows of a change but does not lead waits, and then sends a
token of its own towards the leader, which absorbs this one and sends its own (NBC-14, E-20).

A lost token is replaced: hops are acknowledged and repeated, a member that does not acknowledge is passed over, and
each member that waits has a lease. When it ends, the token is made again under a higher generation (E-21). Nothing
blocks: messages flow throughout (NBC-02), and no send waits for a connection (E-22). Views are ordered by (generation,
leader); a member agrees to none older than its last agreement.

The machine has no addresses, clock or failure detector: the caller says which members are known and which are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import ClassVar

from seqcast.core.context import NEVER, Repeat
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.ring import (
    TOKEN_JOINERS_MAX,
    Confirm,
    Confirmed,
    RingFrame,
    Token,
    TokenHeld,
    Unconfirmed,
)
from seqcast.core.rules.ring import Place, RingView, leader_of, next_after, ordered
from seqcast.core.table import IGNORED, ILLEGAL, Edge, Table, TableMachine, table
from seqcast.errors import RemoteProtocolError

GENERATION_STEP_MAX = 1 << 20
"""A generation exceeds the highest one seen by at most this, so that nobody can exhaust them."""
PATIENCE_DOUBLINGS = 4
"""A lease doubles at most this often while nothing comes."""


class RingState(Enum):
    IDLE = auto()
    WAITING = auto()
    CIRCULATING = auto()
    PREPARING = auto()
    PREPARED = auto()


class RingEvent(Enum):
    REVIEW = auto()
    TOKEN = auto()
    BACK = auto()
    PREPARE = auto()
    CONFIRMED = auto()
    REFUSED = auto()
    COMMIT = auto()
    LEASE = auto()


S, E = RingState, RingEvent
_FOLLOWS = (S.WAITING, S.PREPARED)


@dataclass(frozen=True, slots=True)
class RingSettings:
    """Times in ns.

    Args:
        repeat_ns_min, repeat_ns_max: between repeats of a frame that is not answered, doubling.
        answer_ns: a member that has not answered for this long counts as lost, until heard.
        lease_ns: how long a member waits for a token, or for its successor; doubling while nothing comes.
    """

    repeat_ns_min: int
    repeat_ns_max: int
    answer_ns: int
    lease_ns: int


class Call:
    """A frame that is repeated until all its receivers have answered, or time is up."""

    def __init__(self, frame: Token | Confirm, missing: Iterable[int], settings: RingSettings, now: int) -> None:
        self.frame = frame
        self.missing = list(missing)
        self.repeats = Repeat(settings.repeat_ns_min, settings.repeat_ns_max)
        self.repeats.start(now)
        self.deadline_ns = now + settings.answer_ns

    def due(self) -> int:
        return min(self.repeats.due, self.deadline_ns) if self.missing else NEVER


class Ring(TableMachine):
    """One member's part in the ring.

    Args:
        me: this member's id.
        place: of a member in the absolute order.
        settings: times.
        send: queues a frame for a member.
        edges: notes the rows that are taken.
        view: the membership to begin with: this member alone, or one that its members share.
        tag: of the frames: those with another tag are not for this ring.
        remade: is told the generation of each token that replaces a lost or late one.
        leaves: does this member want to leave?
    """

    def __init__(
        self,
        me: int,
        place: Place,
        settings: RingSettings,
        send: Callable[[RingFrame, int], None],
        edges: set[Edge],
        view: RingView,
        tag: int = 1,
        remade: Callable[[int], None] = lambda generation: None,
        leaves: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(S.IDLE, edges)
        self.me, self.place, self.settings, self.send, self.tag = me, place, settings, send, tag
        self.remade, self.leaves = remade, leaves
        self.now = 0
        self.view = view
        self.known = {*view.members}  # members that are not lost, this one among them
        self.dead: set[int] = set()  # by the failure detector
        self.mute: set[int] = set()  # did not answer in time, and were not heard since
        self.joiners: dict[int, MemberInfo] = {}  # heard of, by id
        self.asked = False  # there is something to agree on besides the members
        self.held_back = False  # this member sends no token of its own now, except as a call
        self.generation = view.generation  # the highest seen
        self.promised = view.key(place)  # this member agrees to no view below
        self.token: Token | None = None  # the last form sent by this member, its source
        self.followed: tuple[int, int] | None = None  # source and generation of another's token that is waited for
        # A token whose source is after that one: passed on if that one is lost, or leaves this source out.
        self.kept: Token | None = None
        self.hop: Call | None = None  # the token that was passed on, until the acknowledgement
        self.call: Call | None = None  # PREPARE or COMMIT
        self.lease_ns = NEVER
        self.expired = 0  # leases in a row that came to nothing

    # ---- knowledge

    @property
    def lost(self) -> set[int]:
        return self.dead | self.mute

    @property
    def leader(self) -> int:
        """The leader, as far as this member knows."""
        return leader_of(self.known, self.place)

    @property
    def unsettled(self) -> bool:
        """There is a change that the view does not have, or a view was agreed to and did not come."""
        return self.asked or self.known != set(self.view.members) or self.promised > self.view.key(self.place)

    # ---- inputs

    def know(self, members: Collection[int]) -> None:
        """These members live, as far as this member can tell."""
        self.dead.difference_update(members)
        self.known.update(member for member in members if member not in self.mute)

    def lose(self, members: Collection[int]) -> None:
        """These members are gone, as far as this member can tell."""
        gone = {member for member in members if member != self.me}
        self.dead |= gone
        self.known -= gone
        if self.followed is not None and self.followed[0] in gone:
            self.followed = None

    def trust(self, member: int) -> None:
        """Heard again: an answer may come, too."""
        self.mute.discard(member)

    def hold_back(self) -> None:
        """From now on this member sends no token of its own, except as a call."""
        self.held_back = True

    def release(self) -> None:
        """This member may send tokens of its own again."""
        self.held_back = False

    def ask(self, joiners: Iterable[MemberInfo] = ()) -> None:
        """There is something to agree on; the token carries the joiners."""
        self.asked = True
        self.joiners.update((info.id, info) for info in joiners)

    def receive(self, frame: RingFrame, sender: int, now: int) -> None:
        """A frame of another member.

        Raises:
            RemoteProtocolError: its generation is out of bounds, or its sender may not send such a frame.
        """
        self.now = now
        if isinstance(frame, Confirm) and frame.leader != sender:
            raise RemoteProtocolError("CONFIRM: the sender is not the leader named in the frame")
        if isinstance(frame, Token) and frame.source not in frame.members:
            raise RemoteProtocolError("TOKEN: its source is not among its members")
        generation = frame.promised if isinstance(frame, Unconfirmed) else frame.generation
        if generation > self.generation + GENERATION_STEP_MAX:
            raise RemoteProtocolError("token ring: the generation is far above all earlier ones")
        self._heard(sender)
        call = self.call
        match frame:
            case Token():
                self.send(TokenHeld(self.tag, frame.generation, frame.source), sender)
                self._token(frame)
            case TokenHeld():
                held = self.hop is not None and isinstance(self.hop.frame, Token)
                if held and self.hop is not None and _same(self.hop.frame, frame) and sender in self.hop.missing:
                    self.hop = None
            case Confirm():
                self.generation = max(self.generation, generation)
                self._learn(frame.members)
                self.fire(E.PREPARE if frame.phase == "prepare" else E.COMMIT, frame, sender)
            case Confirmed():
                if call is not None and isinstance(call.frame, Confirm) and sender in call.missing:
                    if (call.frame.phase, call.frame.generation) == (frame.phase, generation):
                        call.missing.remove(sender)
                        self.fire(E.CONFIRMED)
            case Unconfirmed():
                self.generation = max(self.generation, generation)
                if call is not None and sender in call.missing and call.frame.generation == frame.generation:
                    self._learn(frame.members)
                    self.fire(E.REFUSED)

    def _token(self, frame: Token) -> None:
        self.generation = max(self.generation, frame.generation)
        self._heard(frame.source)
        self._learn(frame.members)
        self.joiners.update((info.id, info) for info in frame.joiners)
        if frame.source != self.me:
            self.fire(E.TOKEN, frame)
        elif self.token is not None and frame.generation == self.token.generation:
            self.fire(E.BACK, frame)

    def _heard(self, member: int) -> None:
        """Answers others, or sends tokens."""
        if member in self.mute:
            self.mute.discard(member)
            self.known.add(member)

    def _learn(self, members: Iterable[int]) -> None:
        self.known.update(member for member in members if member not in self.lost)

    def review(self, now: int) -> None:
        """At the end of each step: runs timers, and considers the present knowledge."""
        self.now = now
        if self.hop is not None:
            self._look_after_hop(self.hop)
        if self.call is not None:
            self._look_after_call(self.call)
        if now >= self.lease_ns:
            self.lease_ns = NEVER
            self.fire(E.LEASE)
        self.fire(E.REVIEW)

    def due(self) -> int:
        """When to review next if nothing else happens, in ns."""
        return min(self.lease_ns, *(call.due() for call in (self.hop, self.call) if call is not None), NEVER)

    def _look_after_hop(self, hop: Call) -> None:
        """Repeats the token for the next member, or passes that one over."""
        assert isinstance(hop.frame, Token)
        if self.now >= hop.deadline_ns:
            self._miss(hop.missing)
        if self.lost.intersection(hop.missing):
            self.hop = None
            self._pass_on(hop.frame)
        elif hop.repeats.take(self.now):
            self.send(hop.frame, hop.missing[0])

    def _look_after_call(self, call: Call) -> None:
        """Repeats PREPARE or COMMIT to those that have not answered."""
        assert isinstance(call.frame, Confirm)
        if call.frame.phase == "commit":
            call.missing = [member for member in call.missing if member not in self.lost]
        if self.now >= call.deadline_ns:
            self.call = None
            if call.frame.phase == "prepare":  # the review finds that members are lost
                self._miss(call.missing)
        elif call.missing and call.repeats.take(self.now):
            for member in call.missing:
                self.send(call.frame, member)

    def _miss(self, members: Iterable[int]) -> None:
        self.mute.update(members)
        self.known -= self.mute

    # ---- guards

    def leads_and_unsettled(self) -> bool:
        """There is a change, nobody known is before this member, and no token of an earlier one is under way."""
        follows = self.followed is not None and self.place(self.followed[0]) < self.place(self.me)
        return self._leads() and self.unsettled and not follows and not self.held_back

    def is_unsettled(self) -> bool:
        return self.unsettled

    def has_kept_a_token(self) -> bool:
        return self.kept is not None and self.followed is None

    def is_settled(self) -> bool:
        return not self.unsettled

    def is_outranked(self) -> bool:
        return not self._leads()

    def visits_the_lost(self) -> bool:
        """The token, or PREPARE, names members that are lost meanwhile."""
        return self.token is not None and not self.lost.isdisjoint(self.token.members)

    def leader_is_lost(self) -> bool:
        """The leader that this member promised to is gone, and nobody known is before this member."""
        return self.followed is None and self._leads() and not self.held_back

    def is_for_me_to_lead(self, frame: Token) -> bool:
        """Its source is after this member, and nobody known is before that one."""
        return self.place(frame.source) > self.place(self.me) and self._leads()

    def is_held_back(self, frame: Token) -> bool:
        return self.held_back and self.is_for_me_to_lead(frame)

    def brings_more(self, frame: Token) -> bool:
        """Names members unknown to those asked to agree."""
        return self.token is not None and not self.known.issubset(self.token.members)

    def is_passed_over(self, frame: Token) -> bool:
        """A token of an earlier source was passed on; or this one, or a later one of its source."""
        if self.followed is None:
            return False
        source, generation = self.followed
        return (self.place(source), -generation) <= (self.place(frame.source), -frame.generation)

    def has_grown(self, frame: Token) -> bool:
        """The token is back, and the known members or joiners have changed since the token left (NBC-10)."""
        assert self.token is not None
        left = self.token
        others = {info.id for info in left.joiners} != {info.id for info in self._carried()}
        return self.known != set(left.members) or others

    def has_more_to_visit(self, frame: Token) -> bool:
        return self._next(frame) is not None

    def was_installed(self, frame: Confirm, _sender: int) -> bool:
        return self._view(frame).key(self.place) == self.view.key(self.place)

    def must_refuse(self, frame: Confirm, _sender: int) -> bool:
        """Older than the membership agreed to, without some members, or another member must lead."""
        known = self.known - set(frame.lost)
        better = any(self.place(member) < self.place(frame.leader) for member in known)
        return self._view(frame).key(self.place) < self.promised or better or not known.issubset(frame.members)

    def is_old(self, frame: Confirm, _sender: int) -> bool:
        key = self._view(frame).key(self.place)
        return key < self.promised or key <= self.view.key(self.place)

    def all_agree(self) -> bool:
        return self.call is not None and not self.call.missing

    def _leads(self) -> bool:
        return self.leader == self.me

    # ---- actions: the token

    def emit(self, *_: object) -> None:
        """A token of a new generation (NBC-05, NBC-06, E-21)."""
        self._make()
        if self.hop is None:  # alone
            assert self.token is not None
            self.fire(E.BACK, self.token)

    def remake(self, *_: object) -> None:
        """A token to replace one that is lost or late (E-21)."""
        self.remade(self.generation + 1)
        self.emit()

    def call_leader(self) -> None:
        """Sends a token towards the leader, which may lack this member's knowledge (NBC-14)."""
        self.wait()
        if not self._leads():
            self._make()

    def _make(self) -> None:
        self.generation += 1
        self.call = self.hop = self.followed = self.kept = None
        members = ordered(self.known, self.place)
        lost = ordered(self.lost, self.place)
        self.token = Token(
            self.tag, self.generation, self.me, self.leader, members, (self.me,), lost, self._carried(), self.asked
        )
        self._start_lease()
        self._pass_on(self.token)

    def follow(self, frame: Token) -> None:
        """Passes on the token of another source (NBC-07)."""
        self.followed = frame.source, frame.generation
        self.call = None
        self._start_lease()
        self.go_on(frame)

    def keep(self, frame: Token) -> None:
        if self.followed is not None and frame.source != self.followed[0]:
            self.kept = frame

    def take_up(self) -> None:
        frame, self.kept = self.kept, None
        self.fire(E.TOKEN, frame)

    def go_on(self, frame: Token) -> None:
        """Adds the members that this one knows, and passes the token on."""
        members = ordered((self.known - set(frame.lost)).union(frame.members), self.place)
        leader = leader_of(members, self.place)
        visited = ordered((*frame.visited, self.me), self.place)
        joiners = self._carried(frame.joiners)
        self._pass_on(replace(frame, leader=leader, members=members, visited=visited, joiners=joiners))

    def _pass_on(self, token: Token) -> None:
        """To the next in the ring without a visit; at last back to its source."""
        target = self._next(token)
        if target is None and token.source != self.me and token.source not in self.mute:
            target = token.source
        self.hop = None
        if target is not None:
            self.hop = Call(token, [target], self.settings, self.now)
            self.send(token, target)
        elif token.source == self.me and token.visited != (self.me,):
            self.fire(E.BACK, token)

    def _next(self, token: Token) -> int | None:
        return next_after(self.me, token.members, self.lost.union(token.visited), self.place)

    def _carried(self, first: Iterable[MemberInfo] = ()) -> tuple[MemberInfo, ...]:
        joiners = {info.id: info for info in (*first, *self.joiners.values())}
        return tuple(joiners[each] for each in sorted(joiners))[:TOKEN_JOINERS_MAX]

    # ---- actions: the confirmation

    def prepare(self, *_: object) -> None:
        """Asks all members to agree (E-22)."""
        assert self.token is not None
        view = RingView(self.token.generation, self.me, self.token.members)
        self.promised = max(self.promised, view.key(self.place))
        self._start_lease()
        self._call_all("prepare", view)
        if not self.all_agree():
            return
        self.fire(E.CONFIRMED)

    def decide(self) -> None:
        assert self.call is not None and isinstance(self.call.frame, Confirm)
        view = self._view(self.call.frame)
        self._install(view)
        self._call_all("commit", view)

    def _call_all(self, phase: str, view: RingView) -> None:
        others = [member for member in view.members if member != self.me]
        lost = ordered(self.lost, self.place)
        frame = Confirm(self.tag, phase, view.generation, self.me, view.members, lost)
        self.call = Call(frame, others, self.settings, self.now)
        for member in others:
            self.send(frame, member)

    def promise(self, frame: Confirm, sender: int) -> None:
        self.promised = self._view(frame).key(self.place)
        self.followed = frame.leader, frame.generation
        self.call = None
        self._start_lease()
        self.confirm(frame, sender)

    def refuse(self, frame: Confirm, sender: int) -> None:
        known = ordered(self.known, self.place)
        self.send(Unconfirmed(self.tag, frame.generation, self.promised[0], known), sender)

    def confirm(self, frame: Confirm, sender: int) -> None:
        self.send(Confirmed(self.tag, frame.phase, frame.generation, self.leaves()), sender)

    def install(self, frame: Confirm, sender: int) -> None:
        self.known -= set(frame.lost) - {self.me}  # those that live are found again
        self.call = None
        self._install(self._view(frame))
        self.confirm(frame, sender)

    def _install(self, view: RingView) -> None:
        self.view = view
        self.promised = max(self.promised, view.key(self.place))
        self.asked = False
        self.joiners.clear()
        self.expired = 0
        self.rest()

    # ---- actions: waiting

    def wait(self, *_: object) -> None:
        self._start_lease()

    def expire(self, *_: object) -> None:
        """This member waited in vain: that source is not followed any longer."""
        self.expired = min(self.expired + 1, PATIENCE_DOUBLINGS)
        self.followed = None

    def rest(self, *_: object) -> None:
        self.lease_ns = NEVER
        self.followed = self.token = None
        if self.kept is not None and self.kept.source in self.view.members:
            self.kept = None

    def _start_lease(self) -> None:
        self.lease_ns = self.now + (self.settings.lease_ns << self.expired)

    def _view(self, frame: Confirm) -> RingView:
        return RingView(frame.generation, frame.leader, frame.members)

    TABLE: ClassVar[Table] = table(
        "ring",
        S,
        E,
        (
            (S.IDLE, *_FOLLOWS),
            (E.REVIEW, has_kept_a_token),
            None,
            take_up,
            "no source before that of the kept token is followed any more",
        ),
        (S.IDLE, (E.REVIEW, leads_and_unsettled), S.CIRCULATING, emit, "a change, and this member is first (NBC-05)"),
        (S.IDLE, (E.REVIEW, is_unsettled), S.WAITING, wait, "a change: a token of the leader should come"),
        (S.WAITING, (E.REVIEW, leads_and_unsettled), S.CIRCULATING, emit, "those before this member are gone (E-21)"),
        (S.WAITING, (E.REVIEW, is_settled), None, IGNORED, "a token may be under way; the lease ends this wait"),
        (S.CIRCULATING, (E.REVIEW, is_outranked), S.WAITING, wait, "another member leads; the token calls that one"),
        (
            (S.CIRCULATING, S.PREPARING),
            (E.REVIEW, visits_the_lost),
            S.CIRCULATING,
            remake,
            "a member is lost, and perhaps the token, too: a new generation without that member (E-21)",
        ),
        (S.PREPARING, (E.REVIEW, is_outranked), S.WAITING, wait, "another member leads"),
        (S.PREPARED, (E.REVIEW, leader_is_lost), S.CIRCULATING, remake, "the leader was lost before COMMIT (E-21)"),
        (None, E.REVIEW, None, IGNORED, "nothing has changed"),
        (
            (S.IDLE, S.WAITING, S.PREPARED),
            (E.TOKEN, is_held_back),
            None,
            IGNORED,
            "absorbed: this member will send one of its own when allowed",
        ),
        (
            (S.IDLE, S.WAITING, S.PREPARED),
            (E.TOKEN, is_for_me_to_lead),
            S.CIRCULATING,
            emit,
            "absorbed: this member sends one of its own (NBC-09, NBC-14, E-20)",
        ),
        (S.CIRCULATING, (E.TOKEN, is_for_me_to_lead), None, IGNORED, "absorbed: counts when our own token is back"),
        (S.PREPARING, (E.TOKEN, brings_more), S.CIRCULATING, emit, "absorbed: all must know the other members"),
        (S.PREPARING, (E.TOKEN, is_for_me_to_lead), None, IGNORED, "absorbed: no news in this token"),
        (_FOLLOWS, (E.TOKEN, is_passed_over), None, keep, "absorbed: a better one was passed on, or this is a repeat"),
        (None, E.TOKEN, S.WAITING, follow, "passed on to the next in the ring (NBC-07, NBC-08)"),
        (S.CIRCULATING, (E.BACK, has_grown), None, emit, "the token brought more members: all must know them (NBC-10)"),
        (S.CIRCULATING, (E.BACK, has_more_to_visit), None, go_on, "some were passed over by others"),
        (S.CIRCULATING, E.BACK, S.PREPARING, prepare, "complete: the token came back unchanged (NBC-10, NBC-11)"),
        (None, E.BACK, None, IGNORED, "of a generation that is over"),
        (tuple(S), (E.PREPARE, was_installed), None, confirm, "late"),
        (tuple(S), (E.PREPARE, must_refuse), None, refuse, "the leader must learn more first"),
        (None, E.PREPARE, S.PREPARED, promise, "agreed (E-22)"),
        (S.PREPARING, (E.CONFIRMED, all_agree), S.IDLE, decide, "all agree: install the view, and COMMIT"),
        (None, E.CONFIRMED, None, IGNORED, "other answers are missing, or this one is late"),
        (S.PREPARING, E.REFUSED, S.CIRCULATING, emit, "a member knows more, or agreed to another view: once more"),
        (None, E.REFUSED, None, IGNORED, "late"),
        (tuple(S), (E.COMMIT, is_old), None, confirm, "repeated, or overtaken"),
        (None, E.COMMIT, S.IDLE, install, "all agreed: the view"),
        (S.WAITING, (E.LEASE, is_settled), S.IDLE, (expire, rest), "a token came to nothing, and nothing is unsettled"),
        (S.WAITING, E.LEASE, None, (expire, call_leader), "the leader may not know of the change: a call (NBC-14)"),
        (S.CIRCULATING, E.LEASE, None, (expire, remake), "the token is lost: a higher generation (E-21)"),
        (S.PREPARING, E.LEASE, S.CIRCULATING, (expire, remake), "answers are missing: once more"),
        (S.PREPARED, E.LEASE, S.WAITING, (expire, wait), "COMMIT did not come, nor the leader's loss"),
        (S.IDLE, E.LEASE, None, ILLEGAL, "no lease runs"),
    )


def _same(token: Token | Confirm, held: TokenHeld) -> bool:
    return isinstance(token, Token) and (token.generation, token.source) == (held.generation, held.source)
