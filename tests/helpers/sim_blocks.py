"""Blocks on simulated processes: the production code of each, with the simulation in place of its group and threads.

A member that is excluded joins again as another incarnation, with the same block, as ``rejoin=True`` does; one that has
crashed starts again with a new block.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import queue
import random
from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

from sim_stage import Stage

from seqcast._native.engine import SENT, Batch, Message
from seqcast.blocks import Feed, Lock, Parts, ReplicatedDict, Rpc, Snapshot, batches, feed, replica, rpc
from seqcast.blocks.batches import Batches
from seqcast.blocks.clock import Estimate
from seqcast.blocks.lock import ACQUIRE, ANSWER, OPERATION, QUEUED
from seqcast.blocks.outbox import Call
from seqcast.blocks.replica import Replica, _Part, checked_settings
from seqcast.config import Config
from seqcast.core.vocabulary import ExcludedBy, JoinFailed, LeaveGroup, Left
from seqcast.errors import NotInView, NotMember, NotReady, SendTimeout, Undecided
from seqcast.events import Excluded
from seqcast.sim.options import MS
from seqcast.types import Member, View

FOUNDED_MS = 700
PAUSE_MS = 800
"""The longest pause, or cut: longer than the exclusion of a member takes."""
NAMES = "abcde"
AGAIN_MS = 100
"""Until a member that was excluded, or a process that has crashed, starts again."""
CONFIG = checked_settings("a block", Config(), {})


class Host:
    """A process with one block: as its ``Group`` during the membership.

    Args:
        town: the simulation.
        name: of its members, one after the other.
    """

    cluster, config = "sim", CONFIG

    def __init__(self, town: Town, name: str) -> None:
        self.town, self.name = town, name
        self.rng = random.Random(f"{town.seed} {name}")
        self.node: Any = None
        self.view: View | None = None
        self.parted = self.crashed = 0  # times
        self.make()

    def attach(self, node: Any) -> None:
        """The next incarnation of the member begins to join."""
        self.node, self.view = node, None
        self.incarnate()
        application, chain = node.application, node.application.chain
        application.accept, self._accept = functools.partial(self._of, node, self._take), application.accept
        application.enter = functools.partial(self._of, node, self._enter)
        application.told, self._told = functools.partial(self._of, node, self._effect), application.told
        chain.dump, chain.load, chain.merge = self.dump, self.load, self.merge

    def _of(self, node: Any, take: Any, what: Any) -> None:
        if node is self.node and node.up:
            take(what)

    def _enter(self, items: Any) -> None:
        application, views = self.node.application, 0
        for item in items:
            views += isinstance(item, View)
            if isinstance(item, Batch) and views == 1 and item.view_tag != application.tag:
                continue  # from before the boundary
            if application.keeper.merge.stopped:
                application.backlog.append(item)
            else:
                application.accept(item)
        if not application.backlog:
            self.node.engine.taken()

    def _take(self, item: Any) -> None:
        if isinstance(item, Batch):
            payloads, view = item.tolist(), self.view
            assert view is not None
            for sender, seqno, place, sent_ns, first, n, index, unicast, late in item.runs.tolist():
                who = Member(self.town.name(sender), sender)
                for at in range(n):
                    where = seqno, index + at, place + at if place else None
                    payload = payloads[first + at]
                    self.event(Message(payload, who, view.view_id, *where, sent_ns, bool(unicast), bool(late)))
            return
        self._accept(item)  # the simulated application gives its state here
        if isinstance(item, View):
            first, self.view = self.view is None, item
            if first:
                self.joined()
        self.event(item)

    def _effect(self, effect: Any) -> None:
        self._told(effect)
        if isinstance(effect, ExcludedBy | JoinFailed | Left):
            node, clock = self.node, self.town.clock
            clock.at(clock.now, self._of, node, self._over, effect)

    def _over(self, effect: Any) -> None:
        inside, self.view = self.view is not None, None
        if isinstance(effect, ExcludedBy) and inside:
            self.event(Excluded(effect.view_id, effect.reason, effect.cause))
        if inside:
            self.parted += 1
            self.left()
        self.town.later(0 if isinstance(effect, Left) else AGAIN_MS, self.town.start_node, self.name)

    def depart(self) -> None:
        """Leaves without a drain, and joins again at once."""
        self.node.step(LeaveGroup(0))
        self._serve(self.node)

    def crash(self) -> None:
        self.node.crash()
        self.view = None
        self.crashed += 1
        self.died()
        self.make()
        self.town.later(AGAIN_MS, self.town.start_node, self.name)

    # ---- as ``Group``

    status = property(lambda self: "member" if self.view else SimpleNamespace(reason="it is over"))

    @property
    def member(self) -> Any:
        return self.node.endpoint.context.me

    @property
    def runs(self) -> bool:
        return self.view is not None and self.node.can_run and not self.node.endpoint.over

    @property
    def sending_view(self) -> View:
        view = self.node.endpoint.view_tagged(self.node.engine.view()) if self.view is not None else None
        if view is None:
            raise NotMember("not in the group")
        return view

    def send(self, payload: bytes, *, to: Any = None, timeout: float | None = None) -> None:
        if self.view is None or self.node.endpoint.over:
            raise NotMember("not in the group")
        if to is not None and self.sending_view.rank(to.id) < 0:
            raise NotInView(f"{to} is gone")
        if self.node.engine.send(payload, to=to.id if to else 0, wall_ns=self.node.wall) != SENT:
            raise SendTimeout("closed for sending, or no credit")
        self.node.poke()
        self.town.later(0, self._serve, self.node)

    def _serve(self, node: Any) -> None:
        if node.can_run:
            node.service()

    def leave(self, timeout: float | None = None) -> None:
        assert self.view is None, f"{self.name} leaves by itself"

    def close_journal(self) -> None:
        pass

    # ---- of each kind of block

    def make(self) -> None:
        """A new block, of a new process."""

    def incarnate(self) -> None:
        """The member has another id."""

    def joined(self) -> None:
        """Before its first view."""

    def event(self, event: Any) -> None:
        """A message or another event is delivered."""

    def left(self) -> None:
        """The membership has ended."""

    def died(self) -> None:
        """The process has crashed."""

    def act(self) -> None:
        """Some use of the block; at times."""

    def rest(self) -> None:
        """Work of the threads of the block."""

    handler: Any = None  # of the block's state

    def dump(self) -> bytes:
        written = io.BytesIO()
        if self.handler is not None:
            self.handler.get_state(written.write)
        return written.getvalue()

    def load(self, data: bytes) -> None:
        if self.handler is not None:
            self.handler.set_state(io.BytesIO(data).read)

    def merge(self, others: Any) -> None:
        pass


class Town(Stage):
    """A simulated group of hosts.

    Args:
        kind: of the hosts.
        seed: of their actions, and of the faults.
        pace_ms: between two things that one of them does.

    Attributes:
        wrong: the findings.
    """

    own_faults: tuple[str, ...] = ()
    """Of this kind of block, besides those of all."""

    def __init__(self, kind: type[Host], seed: int, pace_ms: int, **options: Any) -> None:
        super().__init__(order="total", **options)
        self.quiet, self.seed, self.dice = True, seed, random.Random(f"town {seed}")
        self.wrong: list[str] = []
        self.using, self.pace_ms = True, pace_ms
        self.hosts = {name: kind(self, name) for name in NAMES}
        for place, name in enumerate(NAMES):
            self.clock.at(place * 20 * MS, self.start_node, name)

    def start_node(self, name: str) -> None:
        super().start_node(name)
        self.nodes[-1].application.sender.on = False
        self.nodes[-1].record.pending.clear()
        self.hosts[name].attach(self.nodes[-1])

    def later(self, ms: float, call: Any, *arguments: Any) -> None:
        self.clock.at(self.clock.now + int(ms * MS), call, *arguments)

    def step(self) -> None:
        for host in self.hosts.values():
            if host.runs:
                host.rest()
        if self.using and (host := self.dice.choice(list(self.hosts.values()))).runs:
            host.act()
        self.later(self.pace_ms, self.step)

    def use(self, ms: int, faults: int) -> None:
        """The hosts use their blocks, while there are faults, and end their use without."""
        self.until(FOUNDED_MS)
        self.later(1, self.step)
        for at in sorted(self.dice.sample(range(FOUNDED_MS + 50, FOUNDED_MS + ms), faults)):
            self.clock.at(at * MS, self.fault)
        self.until(FOUNDED_MS + ms + PAUSE_MS)
        self.network.heal()
        self.until(FOUNDED_MS + ms + 2 * PAUSE_MS)
        self.using = False
        self.until(FOUNDED_MS + ms + 3 * PAUSE_MS)

    def fault(self) -> None:
        hosts, dice = list(self.hosts.values()), self.dice
        inside = [host for host in hosts if host.view is not None]
        kind = dice.choice(("crash", "cut", "cut", "pause", "pause", *self.own_faults))
        if len(inside) < 4:  # so that a majority of the last view lives
            return
        if kind == "cut":
            some = set(dice.sample([host.node.index for host in hosts], dice.choice((1, 2, 2))))
            self.network.partition(some, {node.index for node in self.nodes} - some)
            self.later(dice.randrange(50, PAUSE_MS), self.network.heal)
            return
        host = dice.choice(inside)
        if kind == "crash":
            host.crash()
        elif kind == "leave":
            if host.runs:
                host.depart()
        else:
            host.node.pause(self.clock.now + dice.randrange(20, PAUSE_MS) * MS)

    def check(self, holds: object, text: str) -> None:
        if not holds:
            self.wrong.append(f"seed {self.seed}, {self.clock.now / MS:.0f} ms: {text}")

    def views(self) -> set[View | None]:
        return {host.view for host in self.hosts.values()}


# ---- dictionary and lock


class Services(Host):
    """Replica of a dictionary and a lock: counts by compare-and-set, and holds the lock for a while."""

    def make(self) -> None:
        self.table, self.lock = ReplicatedDict(), Lock()
        self.replica: Replica[Any] = Replica("sim", Parts(self.table, self.lock), self.name, CONFIG)
        started_ns = self.town.clock.now + (ord(self.name) << 50)  # of its machine: two monotonic clocks differ
        self.replica._estimate = Estimate(lambda: self.town.clock.now + started_ns)
        self.told: list[Any] = []
        self.table.on_change(self.told.append)
        self.lock._call = self.call_off  # type: ignore[method-assign]
        self.held, self.until, self.wish, self.heard_ns = 0, 0, None, 0
        self.unsent: list[Any] = []
        self.counts = False

    def incarnate(self) -> None:
        self.handler = _Part(self.replica)

    def load(self, data: bytes) -> None:
        super().load(data)
        self.look()

    def joined(self) -> None:
        self.replica._me = self.member.id
        self.replica._joined(self)

    def event(self, event: Any) -> None:
        if hasattr(event, "payload"):
            applied = self.replica._take(event)
            if applied is not None and applied.entry.origin == self.replica._outbox.origin:
                self.replica._own(self, (applied,))
        else:
            self.replica._event(self, event)
        self.heard_ns = self.town.clock.now
        self.look()

    def left(self) -> None:
        self.replica._parted(self)
        self.look()

    def died(self) -> None:
        self.town.unknown += self.counts
        self.held, self.wish = 0, None

    def look(self) -> None:
        inside = self.replica._group is not None
        self.town.check(inside or not self.lock._own, f"{self.name} holds the lock outside of the group")

    def rest(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self.unsent.append(self.replica._unsent.get_nowait())
        while self.unsent:
            try:
                self.send(self.unsent[0][1])
            except SendTimeout:
                break
            except NotMember:
                pass
            self.unsent.pop(0)
        wait_s = self.replica._tick_s(self)
        if wait_s is not None and self.town.clock.now >= self.heard_ns + int(wait_s * 1e9):
            self.replica._tick(self)
            self.heard_ns = self.town.clock.now
        self.wait_for_lock()

    # ---- its use

    def call(self, part: Any, operation: bytes | None, done: Any) -> None:
        data = None if operation is None else part._prefix + operation
        call = Call(data, lambda: done(call.answer.data if call.answer else b""))
        if self.replica._begin(call):
            call.done()

    def call_off(self, operation: bytes, _timeout: float | None) -> bytes:
        """In place of a call that waits."""
        self.call(self.lock, operation, lambda _: None)
        return ANSWER.pack(QUEUED)

    def act(self) -> None:
        choice = self.rng.random()
        if choice < 0.4:
            self.count()
        elif choice < 0.5:
            operation = self.table._operation(f"short{self.rng.randrange(4)}", self.rng.random(), 0.05)
            self.call(self.table, operation, lambda _: None)
        elif self.wish is None and not self.held:
            self.acquire()

    def count(self) -> None:
        """Reads the count, and adds one."""
        if self.counts:
            return
        town, replica = self.town, self.replica
        self.counts, least = True, town.count

        def read(_: bytes) -> None:
            if replica is not self.replica:
                return
            found, _seen = self.replica._read_now(lambda _: self.table._data.get("count"), 0.0) or (None, 0)
            value = 0 if found is None else int(found)
            town.reads += 1
            town.check(value >= least, f"{self.name} reads {value} after {least}")
            condition = self.table._condition("count", value, value + 1, None)
            if found is None:
                condition = self.table._operation("count", 1, None, flags=1)
            self.call(self.table, condition, functools.partial(set_, value, town.count))

        def set_(value: int, least: int, answer: bytes) -> None:
            self.counts = False
            if self.table._was_done(answer):
                town.check(value >= least, f"{self.name} sets {value + 1} after {least}")
                town.check(value + 1 not in town.counted, f"{value + 1} is set twice")
                town.counted.add(value + 1)
                town.count = max(town.count, value + 1)

        self.call(self.table, None, read)

    def acquire(self) -> None:
        request = self.member.id, self.rng.getrandbits(62)
        self.wish, self.most = request, max(self.town.fences, default=0)
        self.asked = True
        self.call(self.lock, OPERATION.pack(ACQUIRE, *request), functools.partial(self.asked_for, request))

    def asked_for(self, request: Any, answer: bytes) -> None:
        if self.wish != request:
            return
        self.asked = False
        (fence,) = ANSWER.unpack(answer)
        if fence > 0 and self.lock.holds(fence):
            self.has(fence)
        elif fence != QUEUED:
            self.wish = None

    def wait_for_lock(self) -> None:
        if self.held and self.town.clock.now >= self.until:
            held, self.held = self.held, 0
            self.lock.release(held)
        if self.wish is None or self.asked:
            return
        with contextlib.suppress(NotReady):
            fence = self.lock._wait(self.wish, 0.0)
            if fence > 0:
                self.has(fence)
            else:
                self.wish = None

    def has(self, fence: int) -> None:
        town, view = self.town, self.replica._view
        assert view is not None
        town.check(fence > self.most, f"{self.name} has fence {fence} after {self.most}")
        town.check(fence not in town.fences, f"fence {fence} is given twice")
        for other in town.hosts.values():
            both = other is not self and other.held and other.lock.holds(other.held)
            there = both and other.view is not None and view.rank(other.member.id) >= 0
            town.check(not there, f"{other.name} holds {other.held if there else 0}, and {self.name} has {fence}")
        town.fences.append(fence)
        self.wish, self.held = None, fence
        self.until = town.clock.now + self.rng.randrange(1, 40) * MS


class Served(Town):
    """A group of ``Services``, with their results."""

    own_faults = ("leave",)  # as after a message that cannot be sent

    def __init__(self, seed: int, pace_ms: int = 5) -> None:
        self.fences: list[int] = []
        self.counted: set[int] = set()
        self.count = self.reads = self.unknown = 0
        super().__init__(Services, seed, pace_ms, partition="primary", found=3, state=True, safe=True)


# ---- requests


class Done:
    """A ``threading.Event`` that calls."""

    def __init__(self, call: Any) -> None:
        self.call, self.told = call, False

    def set(self) -> None:
        if not self.told:
            self.told = True
            self.call()

    def is_set(self) -> bool:
        return self.told


class StillRpc(Rpc):
    """Without threads."""

    def _receive(self) -> None:
        pass

    def _answer_all(self) -> None:
        pass


class Asking(Host):
    """Asks all, some, or one, and answers with its name."""

    def make(self) -> None:
        self.asked: Counter[Any] = Counter()  # questions that the handler got, in their order
        self.rpc: StillRpc | None = None
        self.open: dict[int, Any] = {}
        self.numbers = 0
        self.answer: Any = None  # that waits

    def joined(self) -> None:
        if self.rpc is None:
            self.rpc = StillRpc("sim", self.handle, name=self.name)

    def handle(self, question: Any) -> Any:
        self.asked[tuple(question)] += 1
        if question[1] % 7 == 0:
            raise ValueError("seven")
        return [self.name, *question]

    def event(self, event: Any) -> None:
        assert self.rpc is not None
        self.rpc._take(event)

    def send(self, payload: bytes, *, to: Any = None, timeout: float | None = None) -> None:
        """An answer that would wait is sent later, before the next one."""
        try:
            super().send(payload, to=to, timeout=timeout)
        except SendTimeout:
            if not timeout:
                raise
            self.answer = payload, to, self.town.clock.now + int(timeout * 1e9)

    def died(self) -> None:
        self.town.kept[self.name] += [self.asked]
        self.town.lost += len(self.open)

    def rest(self) -> None:
        if self.answer is not None:
            payload, to, end = self.answer
            with contextlib.suppress(NotInView, NotMember):
                try:
                    self.send(payload, to=to, timeout=0.0)
                except SendTimeout:
                    if self.town.clock.now < end:
                        return
            self.answer = None
        elif self.rpc is not None and self.rpc._questions and self.rng.random() < 0.7:
            self.rpc._answer_next()

    def act(self) -> None:
        rpc, view = self.rpc, self.view
        if rpc is None or view is None or len(self.open) > 20:
            return
        self.numbers += 1
        process = len(self.town.kept[self.name])
        question = [f"{self.name}{process}", self.numbers, self.rng.choice(("all", "all", "some", "one"))]
        to = {"all": "all", "some": 2, "one": self.rng.choice(view.members)}[question[2]]
        first = self.rng.choice((None, None, 1))
        number = self.numbers
        asking = rpc._asking(question, to, first, 0.0, Done(lambda: self.town.later(0, self.end, rpc, number)))
        with contextlib.suppress(SendTimeout, NotInView, NotMember):
            self.open[number] = asking, asking.__enter__(), question, first

    def end(self, rpc: Any, number: int) -> None:
        if rpc is not self.rpc or number not in self.open:
            return
        asking, ask, question, first = self.open.pop(number)
        asking.__exit__(None, None, None)
        town = self.town
        try:
            replies = ask.result()
        except Undecided:
            town.undecided += 1
            return
        town.asks += 1
        kinds = [reply.kind for reply in replies.values()]
        town.check(first or "unanswered" not in kinds, f"{question} of {self.name} ended without all: {kinds}")
        if first:
            enough = "unanswered" not in kinds or kinds.count("answered") >= first
            town.check(enough, f"{question} of {self.name} ended with {kinds}")
        for member, reply in replies.items():
            town.gone += reply.kind == "gone"
            if reply.kind == "answered":
                town.check(reply.value == [member.name, *question], f"{question}: {member} says {reply.value}")
            town.check((reply.kind == "failed") <= (question[1] % 7 == 0), f"{question}: {member} failed: {reply}")
            if reply.kind in ("answered", "failed"):
                host = town.hosts[member.name]
                lists = [host.asked, *town.kept[member.name]]
                times = sum(each[tuple(question)] for each in lists)
                town.check(times == 1, f"{question} was answered by {member.name} {times} times")


class Asks(Town):
    """A group of ``Asking``, with their results."""

    def __init__(self, seed: int, pace_ms: int = 5) -> None:
        self.asks = self.undecided = self.gone = self.lost = 0
        self.kept: dict[str, list[Any]] = {name: [] for name in NAMES}
        super().__init__(Asking, seed, pace_ms, partition="primary", found=3, safe=True)

    def orders(self) -> None:
        """All handlers take the questions to the group in one order, each at most once."""
        lists = [each for name, host in self.hosts.items() for each in [host.asked, *self.kept[name]]]
        common = [[question for question in each if question[2] != "one"] for each in lists]
        for each in lists:
            self.check(max(each.values(), default=0) <= 1, "a handler was asked twice")
        for one in common:
            place = {question: at for at, question in enumerate(one)}
            for other in common:
                places = [place[question] for question in other if question in place]
                self.check(places == sorted(places), "two handlers had questions in two orders")


# ---- feeds


class StillFeed(Feed):
    """Without a thread."""

    def _receive(self) -> None:
        pass


class Feeding(Host):
    """Publishes its own key and a common one, and follows all."""

    def make(self) -> None:
        self.feed: StillFeed | None = None
        self.last = 0  # own value that was delivered here last
        self.number = 0
        self.seen: dict[str, Any] | None = None
        self.place = 0

    def incarnate(self) -> None:
        if self.feed is None:
            self.feed = self.handler = StillFeed("sim", name=self.name)
            self.subscriber = self.feed.subscribe(behind_s=None)

    def merge(self, others: Any) -> None:
        self.town.merges += 1
        self.feed.merge_state([SimpleNamespace(read=io.BytesIO(each).read) for each in others])
        value = self.feed.snapshot().values.get(self.name, 0)
        self.town.check(self.last in (0, value), f"{self.name} has published {self.last}, and the sides have {value}")

    def event(self, event: Any) -> None:
        self.feed._event(event)
        number, value = self.feed._values.get(self.name, (0, b""))
        if isinstance(event, Message) and number == self.feed._number:
            self.last = self.feed._read(value)

    def act(self) -> None:
        self.number += 1
        with contextlib.suppress(SendTimeout, NotMember):
            key = self.rng.choice((self.name, self.name, "common"))
            self.feed.publish(key, self.number if key == self.name else f"{self.name}{self.number}", timeout=0.0)

    def rest(self) -> None:
        if self.rng.random() < 0.3:
            self.follow()
        if self.rng.random() < 0.002:
            self.subscriber.resync()

    def follow(self) -> None:
        """Takes all that waits, without a gap."""
        town = self.town
        while (item := self.subscriber.recv(0.0)) is not None:
            if isinstance(item, Snapshot):
                self.seen, self.place = dict(item.values), item.number
                continue
            town.updates += 1
            town.check(item.number == self.place + 1, f"{self.name} has {item.number} after {self.place}")
            self.place = item.number
            assert self.seen is not None
            self.seen[item.key] = item.value
        there = self.feed.snapshot()
        town.check((self.place, self.seen) == there[:2], f"{self.name} has {self.seen}, and there is {there}")


class Feeds(Town):
    """A group of ``Feeding``, whose sides merge, or of which one continues."""

    def __init__(self, seed: int, partition: str, pace_ms: int = 5) -> None:
        self.updates = self.merges = 0
        merges = partition == "merge"
        found = {} if merges else {"found": 3}
        super().__init__(Feeding, seed, pace_ms, partition=partition, state=True, merges=merges, **found)


# ---- atomic batches


class Writing(Host):
    """Writes a batch after the other of one writer, message by message, and takes writers over from others, which may
    be in the middle of the same batch."""

    def make(self) -> None:
        self.rows: list[str] = []
        application: Any = SimpleNamespace(get_state=self.tell_rows, set_state=self.take_rows)
        self.block = self.handler = Batches(application)
        self.unsent: deque[bytes] = deque()

    def tell_rows(self, write: Any) -> None:
        write("\n".join(self.rows).encode())

    def take_rows(self, read: Any) -> None:
        self.rows = read().decode().split()

    def incarnate(self) -> None:
        self.unsent.clear()

    def event(self, event: Any) -> None:
        self.rows += [message.payload.decode() for message in self.block.take(event)]
        if not isinstance(event, Message) or not event.payload.startswith(batches.END) or event.transitional:
            return
        ended = json.loads(event.payload[len(batches.END) :])
        writer, batch = ended["writer"], ended["batch"]
        if event.sender.id == self.member.id and batch == self.town.batch[writer]:
            delivered = self.block.writers.get(writer, 0)
            self.town.check(delivered >= batch, f"{self.name} has ended {writer} {batch}, and has {delivered}")
            self.town.batch[writer] += 1

    def act(self) -> None:
        town = self.town
        if not self.unsent:
            writer = self.rng.choice(WRITERS)
            batch = town.batch[writer]
            rows = [f"{writer}.{batch}.{at}" for at in range(batch % 4)]
            self.unsent += [
                batches.begin(writer, batch, len(rows)), *(batches.ROW + row.encode() for row in rows),
                batches.end(writer, batch),
            ]  # fmt: skip
        with contextlib.suppress(SendTimeout, NotMember):
            self.send(self.unsent[0])
            self.unsent.popleft()


WRITERS = ("one", "two")


class Writes(Town):
    """A group of ``Writing``."""

    def __init__(self, seed: int, pace_ms: int = 5) -> None:
        self.batch = dict.fromkeys(WRITERS, 1)  # of each writer: the first that nobody knows to be delivered
        super().__init__(Writing, seed, pace_ms, partition="primary", found=3, safe=True, state=True)

    def judge(self, rows: list[str]) -> None:
        """Each batch that somebody knows to be delivered is there, once, in one piece, in its order."""
        for writer, end in self.batch.items():
            own = [row for row in rows if row.startswith(writer)]
            known = [f"{writer}.{batch}.{at}" for batch in range(1, end) for at in range(batch % 4)]
            next_too = known + [f"{writer}.{end}.{at}" for at in range(end % 4)]
            self.check(own in (known, next_too), f"{writer} has {end} next, and its rows end with {own[-9:]}")
        batch = [row.rpartition(".")[0] for row in rows]
        pieces = [each for each, _ in itertools.groupby(batch)]
        self.check(len(pieces) == len(set(pieces)), "a batch is delivered in pieces, or twice")


def simulated(monkeypatch: Any, town: Any) -> Any:
    """The blocks join this group, and know its time."""
    clock = SimpleNamespace(monotonic=lambda: town.clock.now / 1e9, monotonic_ns=lambda: town.clock.now)
    monkeypatch.setattr(replica, "time", clock)
    monkeypatch.setattr(feed, "time", clock)
    monkeypatch.setattr(batches, "time", clock)
    for module in (rpc, feed):
        monkeypatch.setattr(module, "join", lambda _, *, name, **__: town.hosts[name])
    return town
