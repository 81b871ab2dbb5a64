"""A simulated network with an attacker: forged datagrams of every kind, at moments drawn from the seed.

The attacker's powers (``Storm.who``):

``stranger``  sends from its own address, under ids that are in no view; hears multicasts, and joins halves.
``impostor``  the same, under the ids of members: whoever can send datagrams to the group at all.
``faulty``    from the address of a member, under its id: a member gone wrong, or somebody who forges addresses. Without
              a key nobody can tell its messages from true ones, so the attacker sends everything but those, and no
              VIEW.

After the attack the group must be as if nothing had been: one view, everything delivered, nothing that nobody sent.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hostile import forge
from hostile.forge import Drawer, Forger, Known
from seqcast._native.engine import Engine
from seqcast.core.frames.kinds import SCHEMAS
from seqcast.sim import Options, World
from seqcast.sim.options import MS
from seqcast.sim.process import Process
from seqcast.sim.world import Result

WHO = ("stranger", "impostor", "faulty")
_NOT_OF_THE_FAULTY = ("view", "propose", "accepted", "merge_go", "merge_ready", "cut")
"""A faulty member is believed here: only a key, and then an order of proofs, would help."""


class _Troubled(Options):
    """A member gone wrong may be excluded, and another in its place."""

    calm = False


def calm(seed: int, who: str = "", **changes: Any) -> Options:
    """A group without other faults, so that nothing but the attack can trouble it."""
    rng = random.Random(f"calm {seed}")
    options = (_Troubled if who == "faulty" else Options)(
        seed=seed,
        members=rng.choice((2, 3, 4)),
        order=rng.choice(("fifo", "sequencer", "total")),
        loss=rng.choice((0.0, 0.01)),
        rate=rng.choice((50, 200)),
        bytes_max=rng.choice((200, 5_000)),
        unicasts=0.2,
        partition=rng.choice(("merge", "merge", "primary")),
        flush_unicasts=rng.random() < 0.2,
        blocks=0.0 if who == "faulty" else rng.choice((0.0, 0.0, 0.5)),
        spread_ns=100 * MS,
    )
    return replace(options, **changes)


class Evil:
    """The attacker's socket."""

    up = True
    address = b"evil"

    def __init__(self, index: int) -> None:
        self.index = index
        self.heard = 0  # bytes sent to the attacker

    def __str__(self) -> str:
        return "the attacker"

    def receive(self, datagram: bytes, address: bytes) -> None:
        self.heard += len(datagram)

    receive_unicast = receive

    def refused(self, datagram: bytes, address: bytes) -> None:
        pass


class Storm(World):
    """One run with an attacker.

    Args:
        who: see above.
        packets: its datagrams in the run, each to all members or to one.
    """

    def rest(self) -> list[str]:
        """A faulty member has claimed positions for others that they now ask for in vain."""
        return [] if isinstance(self.options, _Troubled) else super().rest()

    def __init__(
        self,
        options: Options,
        who: str,
        packets: int = 300,
        write: Callable[[str], None] | None = None,
        make_engine: Callable[..., Engine] = Engine,
    ) -> None:
        super().__init__(options, write, make_engine)
        self.who, self.count = who, packets
        self.draws = random.Random(f"storm {who} {options.seed}")
        self.forger = Forger(1)
        self.own = self.draws.getrandbits(63) | 1
        self.evil = Evil(2000)
        self.by_address[self.evil.address] = self.evil
        self.sent = 0
        self.sent_bytes = 0
        self.lost = 0
        self.kinds: set[str] = set()
        self.closed: tuple[int, ...] = ()

    def plan(self) -> None:
        super().plan()
        rng = self.draws
        begin = self.options.duration_ns // 6
        moments = []
        while len(moments) < self.count:
            moment = rng.randrange(begin, self.options.duration_ns)
            moments += [moment + rng.randrange(2 * MS) for _ in range(rng.choice((1, 1, 4, 20)))]
        for moment in moments[: self.count]:
            self.clock.at(moment, self.strike)

    def run(self) -> Result:
        """The attacker's datagrams may be frames that no member may send; and a stranger in the view, or a member of
        which it says that it leaves, is a change. A faulty member is believed if it answers for others that they have
        taken a message."""
        result = super().run()
        excused = ("frames:", "needless:", "changes:", *(["taken:"] if self.who == "faulty" else []))
        theirs = [line for line in result.violations if not line.startswith(excused)]
        return replace(result, violations=theirs)

    def strike(self) -> None:
        """One forged datagram."""
        rng = self.draws
        nodes = [node for node in self.nodes if node.up and not node.endpoint.over]
        inside = [node for node in nodes if node.endpoint.view is not None]
        if not inside:
            return
        victim = rng.choice(inside)
        view, entered = victim.endpoint.view, victim.endpoint.context.entered
        assert view is not None and entered is not None
        known = Known(
            entered.members, entered, "sim", self.options.order, self.closed, victim.endpoint.context.settings.shared
        )
        if view.view_id.tag not in self.closed:
            self.closed = (*self.closed, view.view_id.tag)[-8:]
        by_id = {node.id: node for node in self.nodes}
        claimed = rng.choice(entered.members)
        address = self.evil.address
        if self.who == "stranger":
            sender = rng.choice((self.own, self.own, rng.getrandbits(62) | 1))
        elif self.who == "impostor":
            sender = claimed.id
        else:
            if claimed.id not in by_id:
                return
            sender, address = claimed.id, claimed.address
        kind, datagram = self.forge(Drawer(rng, known, sender, address), sender, claimed, victim)
        if datagram is None:
            return
        self.kinds.add(kind)
        targets = inside if rng.random() < 0.6 else [victim]
        self.trace(None, f"is attacked: {kind} as {self.name(sender)}, to {[node.name for node in targets]}")
        for node in targets:
            if node.address != address:
                self.sent += 1
                self.sent_bytes += len(datagram)
                before = self.network.packets
                self.network.carry(2000, node.index, node.receive, datagram, address)
                self.lost += self.network.packets == before

    def _pieces(self) -> tuple[list[bytes], tuple[int, int] | None]:
        """Those of a data packet, and its replacement of the offsets, if any."""
        rng = self.draws
        pieces = [rng.randbytes(rng.randrange(1, 60)) for _ in range(rng.choice((1, 3)))]
        if rng.random() < 0.7:
            return pieces, None
        return [piece.ljust(60) for piece in pieces], (60, rng.choice((60, 60, 20, 0)))

    def forge(self, drawer: Drawer, sender: int, claimed: Any, victim: Process) -> tuple[str, bytes | None]:
        rng, forger = self.draws, self.forger
        view = victim.endpoint.view
        assert view is not None
        tag = view.view_id.tag if rng.random() < 0.9 else rng.getrandbits(64)
        n, rank = len(view.members), rng.randrange(len(view.members))
        delivered, received, *_ = victim.engine.stream(rank)
        near = rng.choice((delivered + 1, received + 1, received + 2, received + 100, 1, forge.SEQNO_MAX))
        far = rng.choice((received, received + 5, received + 3000, forge.SEQNO_MAX))
        if rng.random() < 0.55:
            kinds = [kind for kind in SCHEMAS if self.who != "faulty" or kind not in _NOT_OF_THE_FAULTY]
            kind = rng.choice(kinds)
            frame = drawer.frame(kind)
            return kind, None if frame is None else forger.control(sender, frame, rng.choice((0, tag)))
        kinds = ["ack", "nak", "probe", "heartbeat", "ping", "pong", "rubbish"]
        kinds += ["ask", "grant", "total"]
        if self.who != "faulty":
            kinds += ["data"] * 3 + ["unicast", "forward", "state", "record", "want"]
        kind = rng.choice(kinds)
        if self.who == "stranger":  # its own id may be that of a member by now, as any process may join
            sender = rng.getrandbits(62) | 1
        stream = rng.randrange(4)
        match kind:
            case "ack":
                return kind, forger.ack(sender, tag, stream, *sorted((near, far, near), reverse=True))
            case "nak":
                starts = [rng.choice((1, near)) for _ in range(rng.choice((1, 64)))]
                ranges = [(lo, min(lo + rng.choice((0, 5, 1 << 40)), forge.SEQNO_MAX)) for lo in starts]
                return kind, forger.nak(sender, tag, rng.choice(view.members).id, stream, ranges)
            case "probe":
                return kind, forger.probe(sender, tag, stream, far, rng.choice((0, near)))
            case "heartbeat":
                marks = [(rng.choice((0, far)), rng.choice((0, far))) for _ in range(n)]
                return kind, forger.heartbeat(sender, tag, far, rng.choice((0, near)), marks, rng.getrandbits(n))
            case "ping" | "pong":
                one, other = rng.choice(view.members).id, rng.choice((sender, victim.id))
                return kind, forger.ping(forge.PING if kind == "ping" else forge.PONG, sender, tag, one, other)
            case "ask":
                return kind, forger.taken(rng.choice((forge.ASK, forge.TAKEN)), sender, tag, rng.choice((near, far)))
            case "want" | "grant":
                number, count = rng.choice((1, 1, 2, 5, (1 << 32) + 1)), rng.choice((1, 5, 4096, (1 << 32) - 1))
                if kind == "want":
                    return kind, forger.grant(forge.WANT, sender, tag, number, count)
                return kind, forger.grant(forge.GRANT, sender, tag, number, count, near or 1)
            case "total":
                return kind, forger.total(sender, tag, rng.randrange(1, 4), near)
            case "record":
                entries = [(rng.randrange(n), rng.choice((1, 3, 65_535))) for _ in range(rng.choice((1, 2, 64)))]
                place = rng.choice((0, 1, near))
                return kind, forger.record(sender, tag, max(near, 1), entries, stable=far, place=place, rank=rank)
            case "rubbish":
                data = rng.randbytes(rng.choice((10, 40, 72, 200)))
                shaped = forger.datagram(rng.randrange(22), sender, tag, data, near, rng.randrange(8))
                return kind, rng.choice((data, shaped, forger.control(sender, data)))
        types = {"data": forge.DATA, "unicast": forge.UNICAST, "forward": forge.FORWARD, "state": forge.STATE}
        pieces, even = self._pieces()
        return kind, forger.packet(
            types[kind],
            sender,
            tag,
            max(near, 1),
            pieces,
            even=even,
            stable=rng.choice((0, delivered, far)),
            origin=rng.choice((0, near, forge.SEQNO_MAX)),
            place=rng.choice((0, 1, 1 << 40)),
            rank=rng.choice((rank, 100)),
            flags=rng.choice((0, 1, 2, 3, forge.BESIDE)),
        )


def outcome(seed: int, who: str, packets: int = 300, **changes: Any) -> str:
    """The fault after a storm, or ""."""
    world = Storm(calm(seed, who, **changes), who, packets)
    try:
        result = world.run()
    except AssertionError as error:
        return f"assertion: {error!r:.200}"
    except Exception as error:
        return f"{type(error).__name__}: {error!r:.200}"
    return result.violations[0] if result.violations else ""


if __name__ == "__main__":  # PYTHONPATH=tests python -m hostile.storm WHO FIRST LAST [PACKETS]
    import sys

    who, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    bad = 0
    for number in range(first, last + 1):
        wrong = outcome(number, who, int(sys.argv[4]) if len(sys.argv) > 4 else 300)
        bad += bool(wrong)
        if wrong:
            print(f"{who} {number}: {wrong:.220}", flush=True)
    print(f"{who}: {bad} of {last - first + 1} runs went wrong")
