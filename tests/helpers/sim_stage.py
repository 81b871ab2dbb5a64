"""A stage for scenarios: a quiet simulated group on a perfect network, every control frame of which can be seen."""

import functools
import re
from dataclasses import replace

import grant_headers
import total_headers

from seqcast.core.frames.closing import Accepted, Block, BlockOk, Cut, Done, Ok, Promised, Propose, Start
from seqcast.core.frames.joining import Join, Leave, Refused, Wait
from seqcast.core.frames.kinds import load
from seqcast.core.frames.merging import Beacon, MergeAsk, MergeCancel, MergeGo, MergeReady, MergeRefused, MergeTaken
from seqcast.core.frames.pausing import Resume, Resumed, Suspend, Suspended
from seqcast.core.frames.ring import Confirm, Confirmed, Token, TokenHeld, Unconfirmed
from seqcast.core.frames.unblocking import BlockedSide, Unblock
from seqcast.core.frames.view import Declined, InfoTold, Installed, NewView, ViewWanted
from seqcast.core.vocabulary import CallbackReturned
from seqcast.errors import RemoteProtocolError
from seqcast.sim import Options, World
from seqcast.sim.options import MS
from seqcast.types import View

CONTROL = 8  # SC_TYPE_CONTROL
HEADERS = {"total-1999": total_headers.header, "grant": grant_headers.header}
"""A datagram's fields about the order, by the order."""


def consume(node, take):
    """Takes all that has arrived at a simulated process: ``take`` is called with each item, in the application's
    place."""
    while node.endpoint.view is not None:
        item = node.engine.deliver(1 << 20, node.now, node.wall)
        if item is None:
            break
        for each in node.endpoint.marker(item) if isinstance(item, int) else (item,):
            take(each)
    node.engine.taken()


class Stage(World):
    """A quiet group on a perfect network, whose control frames are written down."""

    def __init__(self, order="fifo", callbacks=None, **options):
        """``callbacks``: name -> ms that the block callback of this member takes; None: for ever."""
        options = {"jitter_ns": 0, "delay_ns": 100_000, "rate": 1, "waits": 0.0, **options}
        super().__init__(Options(seed=1, order=order, **options), self.note)
        self.lines = []
        self.callbacks = callbacks or {}
        self.hidden = []  # frames whose words begin so are not recorded
        self.quiet = False  # frames are not recorded: the lead-up to the scene
        self.headers = False  # datagrams of the order are written, and can be refused, as frames are
        self.refuse = lambda source, node, frame: False  # True: this frame does not get through

    def note(self, line):
        if not self.quiet:
            self.lines.append(re.sub(r"@([0-9a-f]{16})\b", self.coordinator, line))

    def coordinator(self, view_id):
        """A view's id names its coordinator by 16 digits; a reader knows the member by its name."""
        return f"@{self.name(int(view_id[1], 16))}"

    def start_node(self, name):
        plain = self.options
        self.options = replace(plain, blocks=float(name in self.callbacks))
        super().start_node(name)
        self.options, node = plain, self.nodes[-1]
        node.application.call_block = functools.partial(self.call_block, node)
        node.application.call_unblock = functools.partial(self.trace, node, "is unblocked")

    def call_block(self, node, run):
        takes = 0 if self.quiet else self.callbacks[node.name]
        self.trace(node, "runs its block callback")
        if takes is not None:
            self.clock.at(self.clock.now + takes * MS, self.callback_returns, node, run)

    def callback_returns(self, node, run):
        if node.up and not node.endpoint.over:
            self.trace(node, "has run its block callback")
            node.step(CallbackReturned(run))
            node.service()

    def deafen(self, *nodes):
        """These receive control frames only from now on. Returns their indices; one that is taken out hears again."""
        carry, deaf = self.network.carry, {node.index for node in nodes}

        def carry_some(source, target, receive, datagram, address):
            if target not in deaf or datagram[2:3] == bytes([CONTROL]):
                carry(source, target, receive, datagram, address)

        self.network.carry = carry_some
        return deaf

    def named(self, name, at_ms=0):
        """Starts a member; its application sends nothing, so that only the control plane is on stage."""

        def start():
            self.start_node(name)
            self.nodes[-1].application.sender.on = False
            self.nodes[-1].record.pending.clear()

        self.clock.at(at_ms * MS, start)

    def node(self, name):
        return next(node for node in self.nodes if node.name == name)

    def until(self, ms):
        self.clock.run(ms * MS)

    def name(self, member_id):
        return next((node.name for node in self.nodes if node.id == member_id), "a stranger")

    def group(self, *names):
        """Members in one view; how they got there is not recorded."""
        self.quiet = True
        for number, name in enumerate(names):
            self.named(name, min(200, 950 // len(names)) * number)
        self.until(1000)
        assert all(node.endpoint.view == self.nodes[0].endpoint.view for node in self.nodes)
        self.quiet = False

    def multicast(self, source, datagram):
        frame = self.control(datagram)
        if frame and not (isinstance(frame, Beacon) and self.whole()):
            self.write_frame(source, "all", frame)
        for node in self.nodes:
            if node is not source and not (frame and self.refuse(source, node, frame)):
                self.network.carry(source.index, node.index, node.receive, datagram, source.address)

    def unicast(self, source, to, datagram):
        frame = self.control(datagram)
        if frame:
            self.write_frame(source, self.by_address[to], frame)
        if not (frame and self.refuse(source, self.by_address[to], frame)):
            super().unicast(source, to, datagram)

    def write_frame(self, source, to, frame):
        words = self.words(frame)
        if not any(words.startswith(kind) for kind in self.hidden):
            self.trace(source, f"→ {to}: {words}")

    def whole(self):
        """All are in one view: a beacon tells nobody anything."""
        return len({node.endpoint.view for node in self.nodes if node.up and not node.endpoint.over}) == 1

    def control(self, datagram):
        """The control frame in a datagram, or its fields about the order, or None."""
        if self.headers and (words := HEADERS[self.options.order](datagram)):
            return words
        try:
            return load(datagram[40:]) if datagram[2] == CONTROL else None
        except RemoteProtocolError as error:
            return error

    @staticmethod
    def view_of(frame):
        return f"view {frame.view_id.counter} [{' '.join(info.name for info in frame.members)}]"

    def words(self, frame):
        if isinstance(frame, Join) and frame.withdrawn:
            return "JOIN, withdrawn"
        text = PLAIN.get(type(frame))
        if text is not None:
            return text.format(frame=frame)
        return self._flush_words(frame) or self._merge_words(frame) or self._ring_words(frame) or str(frame)

    def _flush_words(self, frame):
        match frame:
            case Suspend():
                cut = f" {list(frame.cut)}" if frame.cut else ""
                return f"SUSPEND {frame.pause}, {frame.phase}{cut}"
            case Block() | Start():
                names = " ".join(self.name(i) for i in frame.survivors)
                return f"{type(frame).__name__.upper()} {frame.attempt}, survivors {names}"
            case Ok():
                lacks = "" if frame.lacks is None else ", lacks the state"
                accepted = f", accepted {frame.accepted}" if frame.accepted else ""
                return f"OK {frame.attempt}, last {frame.last}{lacks}{accepted}"
            case Accepted():
                return f"ACCEPTED {frame.under}: {self.view_of(frame.proposal)}"
            case Propose():
                return f"PROPOSE {frame.attempt}: {self.view_of(frame.proposal)}"
            case Cut():
                return f"CUT {frame.attempt} {list(frame.cut)}, fetch {[tuple(f) for f in frame.fetch]}"
            case NewView():
                answers = f" answers {frame.answers}" if frame.answers else ""
                named = [(self.name(p.joiner), self.name(p.provider)) for p in frame.providers]
                state = "".join(f", {joiner} has the state of {provider}" for joiner, provider in named)
                return f"VIEW {frame.attempt}{answers}: {self.view_of(frame)}{state}"
        return None

    def _merge_words(self, frame):
        match frame:
            case Unblock():
                side = frame.side
                return f"UNBLOCK, attempt {side.attempt}" if side else "UNBLOCK, who?"
            case BlockedSide():
                names, missing = " ".join(frame.reached), " ".join(frame.missing)
                allowed = ", may go on" if frame.allowed else ""
                return f"BLOCKED in {frame.side.attempt}: {names} without {missing}{allowed}"
            case Beacon():
                return f"BEACON of view {frame.view_id.counter}" + (", blocked" if frame.primary == 0 else "")
            case MergeAsk() | MergeRefused() | MergeTaken() | MergeCancel():
                kind = type(frame).__name__.removeprefix("Merge").upper()
                return f"MERGE {kind} {self.name(frame.merge[0])}#{frame.merge[1]}"
            case MergeReady():
                members = " ".join(info.name for info in frame.view.members)
                return (
                    f"MERGE READY {self.name(frame.merge[0])}#{frame.merge[1]}: [{members}], cut {list(frame.view.cut)}"
                )
            case MergeGo():
                members = " ".join(info.name for info in frame.view.members)
                view = frame.view.view_id.counter
                return f"MERGE GO {self.name(frame.merge[0])}#{frame.merge[1]}: view {view} [{members}]"
        return None

    def _ring_words(self, frame):
        match frame:
            case Token():
                members = " ".join(self.name(member) for member in frame.members)
                joiners = "".join(f", joiner {info.name}" for info in frame.joiners)
                return f"TOKEN {frame.generation} of {self.name(frame.source)}: {members}{joiners}"
            case TokenHeld():
                return f"HELD {frame.generation} of {self.name(frame.source)}"
            case Confirm():
                return (
                    f"{frame.phase.upper()} {frame.generation}: {' '.join(self.name(each) for each in frame.members)}"
                )
            case Confirmed():
                leaves = ", leaves" if frame.leaves else ""
                return f"OK to {frame.phase.upper()} {frame.generation}{leaves}"
            case Unconfirmed():
                return f"NO to PREPARE {frame.generation}, promised {frame.promised}"
        return None


PLAIN = {
    Join: "JOIN, try {frame.tries}",
    Wait: "WAIT",
    Refused: "REFUSED: {frame.reason}",
    Leave: "LEAVE",
    Suspended: "SUSPENDED {frame.pause}, {frame.phase}",
    Resume: "RESUME {frame.pause}",
    Resumed: "RESUMED {frame.pause}",
    BlockOk: "BLOCK_OK {frame.attempt}",
    Promised: "PROMISED {frame.promise}, not {frame.attempt}",
    Done: "DONE {frame.attempt}",
    ViewWanted: "VIEW WANTED",
    InfoTold: "INFO TOLD",
    Installed: "INSTALLED",
    Declined: "DECLINED",
}


def send(stage, source, payload, to=None):
    """Puts a control frame of ``source`` on the network, without its endpoint."""
    source.engine.control_send(payload, to.address if to else b"")
    source.service()
    stage.until(stage.clock.now // MS + 2)


def views(node):
    return [entry for entry in node.record.log if isinstance(entry, View)]


def names(node):
    """The names of the members of each view that the node was in."""
    return [[member.name for member in view.members] for view in views(node)]


def one_view(*nodes):
    return len({node.endpoint.view for node in nodes}) == 1 and nodes[0].endpoint.view is not None
