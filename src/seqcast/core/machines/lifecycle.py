"""Coming and going of one member: joiner, member, leaver.

A joiner multicasts JOIN until a view has it. Where a group exists, its members answer WAIT by turns, so that a joiner
never forms a second group while the first one is busy with a flush. Where none answers, the joiner with the lowest
id among those heard forms the first view, and takes the others in by the ordinary way: concurrent first starts
converge on one view.

A leaver ends its application's sends first. Then what was accepted drains (SEQ-24): what is queued is sent, the
sequencer puts it in order, receivers acknowledge what was sent to them alone, through all view changes that come
meanwhile. A message that is on its way to the sequencer when the closing VIEW comes would be lost: nobody would send it
again. After that, or at the deadline of the drain, it repeats LEAVE until it has the closing VIEW, of whose cut it is a
survivor.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import ClassVar

from seqcast.core import orders
from seqcast.core.context import NEVER, Context, Repeat
from seqcast.core.frames.kinds import PROTOCOL_VERSION, Join, Leave, NewView, Refused
from seqcast.core.rules.cut import first_view
from seqcast.core.table import IGNORED, ILLEGAL, Machine, Table, table
from seqcast.core.vocabulary import CloseView, Install, Over, Waiting, Warn


class Life(Enum):
    OUT = auto()
    SEEKING = auto()
    IN = auto()
    DRAINING = auto()
    LEAVING = auto()
    LINGERING = auto()
    OVER = auto()


class LifeInput(Enum):
    BEGIN = auto()
    REPEAT = auto()
    ALONE = auto()
    FOREIGN = auto()
    REFUSED = auto()
    VIEW = auto()
    LEAVE = auto()
    DRAINED = auto()
    DEADLINE = auto()
    LEFT = auto()
    SERVED = auto()
    EXCLUDED = auto()
    GIVE_WAY = auto()
    CLOSE = auto()


FOREIGN = Refused(
    "members of this cluster are on the network whose datagrams have another wire version: use one release of seqcast "
    "at all, or another cluster name",
    "version",
)

L, I = Life, LifeInput  # noqa: E741
INSIDE = (L.IN, L.DRAINING, L.LEAVING)
TABLE: Table = table(
    "lifecycle",
    L,
    I,
    (L.OUT, I.BEGIN, L.SEEKING, "begin ask", "the application joins"),
    (None, I.BEGIN, None, ILLEGAL, "an endpoint begins once: an incarnation is never used again (E-06)"),
    (L.SEEKING, I.REPEAT, None, "ask", "JOIN is not answered yet"),
    (L.LEAVING, I.REPEAT, None, "say_leave", "LEAVE is not answered yet"),
    (None, I.REPEAT, None, ILLEGAL, "the timer runs only while seeking or leaving"),
    (L.SEEKING, I.ALONE, None, "form", "no group, and no joiner with a lower id: the first view is ours"),
    (None, I.ALONE, None, ILLEGAL, "only a joiner is alone"),
    (L.SEEKING, I.FOREIGN, L.OVER, "stop fail", "who is there has another wire version: not a second group beside it"),
    (None, I.FOREIGN, None, ILLEGAL, "only a joiner that would form a group looks"),
    (L.SEEKING, I.REFUSED, None, "note_refusal", "other version, order or cluster, name taken, group full; or a lie"),
    (None, I.REFUSED, None, IGNORED, "late, or not for us"),
    (L.SEEKING, I.VIEW, L.IN, "stop install", "the first view"),
    (INSIDE, I.VIEW, None, "install", "the next view"),
    (None, I.VIEW, None, IGNORED, "late: we are out for good"),
    ((L.OUT, L.SEEKING), I.LEAVE, L.OVER, "stop over", "never was in"),
    (L.IN, I.LEAVE, L.DRAINING, "begin_drain", "the application leaves: it sends nothing more"),
    (None, I.LEAVE, None, IGNORED, "said twice"),
    (L.DRAINING, I.DRAINED, L.LEAVING, "begin_leave say_leave", "all that was accepted is ordered and acknowledged"),
    (None, I.DRAINED, None, ILLEGAL, "asked only while draining"),
    (L.DRAINING, I.DEADLINE, L.LEAVING, "begin_leave say_leave", "not all of it in time: `Lost` will tell"),
    (L.SEEKING, I.DEADLINE, L.OVER, "stop fail", "we were refused, and nobody took us in for all that"),
    (L.LEAVING, I.DEADLINE, L.OVER, "stop give_up over", "no closing VIEW in time: the others will suspect us"),
    (L.LINGERING, I.DEADLINE, L.OVER, "stop over", "who has not the closing VIEW by now gets it from another member"),
    (None, I.DEADLINE, None, ILLEGAL, "only leaving, and a refusal, have a deadline"),
    (L.LEAVING, I.LEFT, L.LINGERING, "close linger", "the closing VIEW: we are a survivor of its cut, not a member"),
    (None, I.LEFT, None, IGNORED, "late"),
    (L.LINGERING, I.SERVED, L.OVER, "stop over", "nobody waits for the closing VIEW from us"),
    (None, I.SERVED, None, IGNORED, "only a leaver waits for it"),
    (INSIDE, I.EXCLUDED, L.OVER, "stop exclude", "the group went on without us (the cut, step 8)"),
    (None, I.EXCLUDED, None, IGNORED, "not in a view"),
    (INSIDE, I.GIVE_WAY, L.OVER, "stop", "a group founded apart stays (step 9), or our address is gone"),
    (None, I.GIVE_WAY, None, IGNORED, "not in a view"),
    (None, I.CLOSE, L.OVER, "stop", "the application closes without leaving"),
)


class Lifecycle(Machine):
    TABLE: ClassVar[Table] = TABLE

    def __init__(self, context: Context) -> None:
        super().__init__(Life.OUT, context.edges)
        self.context = context
        settings = context.settings
        self.joins = Repeat(settings.join_ns_min, settings.join_ns_max)
        self.leaves = Repeat(settings.repeat_ns_min, settings.repeat_ns_max)
        self.deadline_ns = NEVER
        self.discovered_ns = NEVER
        self.form_ns = NEVER  # not before: discovery, or a group was seen
        self.tries = 0
        self.refusal: Refused | None = None
        self.told = ""  # why the group that we seek takes nobody in
        self.others: dict[int, int] = {}  # joiners with a lower id: when heard

    # ---- inputs

    def heard_joiner(self, joiner: int) -> None:
        """Another joiner: one with a lower id goes first."""
        if self.state is Life.SEEKING and joiner < self.context.me.id:
            self.others[joiner] = self.context.now

    def heard_group(self, blocked: str = "") -> None:
        """WAIT, or a beacon: a group exists; ``blocked``: why it takes nobody in now."""
        if self.state is Life.SEEKING:
            self.form_ns = self.context.now + self.context.settings.group_seen_ns
            if blocked and blocked != self.told:
                self.told = blocked
                self.context.emit(Waiting(blocked))

    def review(self) -> None:
        """Is all that was accepted safe, at the end of a step?"""
        if self.state is Life.DRAINING and self.context.plane.drained():
            self.fire(LifeInput.DRAINED)

    def due(self) -> int:
        return min(self.joins.due, self.leaves.due, self.deadline_ns)

    def run_timers(self) -> None:
        now = self.context.now
        if now >= self.deadline_ns:
            self.fire(LifeInput.DEADLINE)
        elif self.leaves.take(now):
            self.fire(LifeInput.REPEAT)
        elif now >= self.joins.due:
            self.joins.take(now)
            if now < self.discovered_ns:  # steady while discovering: whoever starts at the same time must be heard
                self.joins.start(now)
            seen = now - self.context.settings.joiner_seen_ns
            self.others = {joiner: heard for joiner, heard in self.others.items() if heard > seen}
            # One with a lower id that forms no group in all that time is not waited for any longer.
            yields = self.others and now < self.discovered_ns + self.context.settings.group_seen_ns
            if now < self.form_ns or yields or self.refusal:
                self.fire(LifeInput.REPEAT)
            elif self.context.plane.counters()["drop_version"]:
                self.fire(LifeInput.FOREIGN, FOREIGN)
            else:
                self.fire(LifeInput.ALONE)

    # ---- actions

    def begin(self) -> None:
        self.discovered_ns = self.form_ns = self.context.now + self.context.settings.discovery_ns
        self.joins.start(self.context.now)

    def ask(self) -> None:
        context = self.context
        context.multicast(
            Join(
                PROTOCOL_VERSION,
                context.cluster,
                context.settings.order,
                orders.numbers(),
                context.me,
                min(self.tries, 1 << 32),
                context.settings.shared,
                context.settings.nonce,
            )
        )
        self.tries += 1

    def form(self) -> None:
        settings = self.context.settings
        mechanism, choose = orders.resolve(settings.order), settings.choose_sequencer
        me = self.context.me
        frame = first_view([me], settings.order, mechanism, me.id, choose, settings.first_seqno)
        self.fire(LifeInput.VIEW, frame)

    def install(self, frame: NewView) -> None:
        self.context.emit(Install(frame, first=self.context.view is None))

    def begin_drain(self, drain_ns: int) -> None:
        self.context.plane.end_sends()
        self.deadline_ns = self.context.now + drain_ns

    def begin_leave(self) -> None:
        self.leaves.start(self.context.now)
        self.deadline_ns = self.context.now + self.context.settings.leave_deadline_ns

    def say_leave(self) -> None:
        self.context.multicast(Leave(self.context.tag))

    def linger(self, _frame: NewView) -> None:
        self.leaves.stop()
        self.deadline_ns = self.context.now + self.context.settings.linger_ns

    def close(self, frame: NewView) -> None:
        self.context.emit(CloseView(frame, left=True))

    def exclude(self, frame: NewView) -> None:
        self.context.emit(CloseView(frame, left=False))

    def give_up(self) -> None:
        self.context.emit(Warn("no member answered the LEAVE in time; messages sent last may be lost"))

    def note_refusal(self, refusal: Refused) -> None:
        """A group that refuses us does not take us in meanwhile: whoever else says so is not believed."""
        if self.refusal is None:
            self.deadline_ns = self.context.now + self.context.settings.discovery_ns
        self.refusal = refusal

    def fail(self, refusal: Refused | None = None) -> None:
        refusal = refusal or self.refusal
        assert refusal is not None
        self.context.emit(Over(refusal.reason, refusal.cause))

    def over(self, *_: object) -> None:
        self.context.emit(Over())

    def stop(self, *_: object) -> None:
        self.joins.stop()
        self.leaves.stop()
        self.deadline_ns = NEVER
