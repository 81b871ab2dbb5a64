"""Transcripts of token rings: which processes discover which, their frames, and the state of each at the end.

Commands, one per line; a line with ``#`` in front is a comment:

============================  ==========================================================================================
``order A B C``               the processes, in their absolute order
``discovers A: B C``          A hears the multicasts of B and C; those not named hear nobody
``start A B``                 these begin, at once
``crash A``                   now
``crash D at X to E``         when D is about to send X to E, which so is lost; ``at PREPARE``, ``at COMMIT`` likewise
``run until 4 ms``            events at 4 ms are still done
``run``                       until nothing is under way
``show``                      leader, members and token of each process, as S4 prints them
============================  ==========================================================================================

Each frame takes 1 ms, as S4 assumes ("a send operation is O(1)"). Acknowledgements are not written. Tokens have the
names of S4: X, Y, Z by their sources in the order in which these come up, with a number from the second generation on.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from transcript import parse, unparse

from seqcast.core.frames.ring import Confirm, Confirmed, Token, Unconfirmed
from seqcast.core.machines.ring import Ring
from seqcast.sim.options import MS
from seqcast.sim.rings import LIMIT_NS, RingWorld

FOLDER = Path(__file__).resolve().parents[1] / "protocol" / "transcripts" / "ring"


class Play:
    """Runs the commands of one transcript.

    Args:
        make: of the rings; another one is a literal reading.
    """

    def __init__(self, make: Any = Ring) -> None:
        self.names: dict[int, str] = {}
        self.discovery: dict[int, set[int]] = {}
        self.lines: list[str] = []
        self.tokens: dict[tuple[int, int], str] = {}  # names, by source and generation
        self.held: dict[int, str] = {}  # the token that each process had last
        self.doomed: list[tuple[str, str, str]] = []  # sender that crashes, at which frame, to which member
        self.make = make
        self._world: RingWorld | None = None

    @property
    def world(self) -> RingWorld:
        if self._world is None:
            self._world = RingWorld(self.discovery, random.Random(1), make=self.make, trace=self.trace)
        return self._world

    def run(self, line: str) -> list[str]:
        name, _, rest = line.partition(" ")
        command = getattr(self, f"do_{name}", None)
        assert command is not None, f"no such command: {line}"
        written = len(self.lines)
        command(rest)
        return self.lines[written:]

    def ids(self, text: str) -> list[int]:
        by_name = {name: member for member, name in self.names.items()}
        return [by_name[name] for name in text.split()]

    def do_order(self, rest: str) -> None:
        self.names = dict(enumerate(rest.split(), 1))
        self.discovery = {member: set() for member in self.names}

    def do_discovers(self, rest: str) -> None:
        who, _, whom = rest.partition(":")
        self.discovery[self.ids(who)[0]] = set(self.ids(whom))

    def do_start(self, rest: str) -> None:
        for member in self.ids(rest):
            self.world.clock.at(self.world.now, self.world.start, member, False)
        for member in self.ids(rest):
            self.world.clock.at(self.world.now, self.world.review, member)

    def do_crash(self, rest: str) -> None:
        who, _, where = rest.partition(" at ")
        if where:
            what, _, whom = where.partition(" to ")
            self.doomed.append((who, what, whom))
        else:
            self.crash(self.ids(who)[0])

    def crash(self, member: int) -> None:
        self.lines.append(f"{self.world.now // MS:5} ms  {self.names[member]} crashes")
        self.world.crash(member)

    def do_run(self, rest: str) -> None:
        until = int(rest.split()[1]) * MS if rest else LIMIT_NS
        self.world.run(lambda: False, until)

    def do_show(self, _: str) -> None:
        for member, ring in sorted(self.world.rings.items()):
            if member not in self.world.crashed:
                leader, held = self.names[ring.leader], self.held.get(member, "-")
                state = f"{leader}-ldr, mbrs-{self.list(ring.known)}, id={held}"
                view = f"{self.names[ring.view.leader]} {ring.view.generation} {self.list(ring.view.members)}"
                self.lines.append(f"{self.names[member]} - {{{state}}}, view {view}")

    def list(self, members: Any) -> str:
        return ",".join(self.names[member] for member in sorted(members))

    def token(self, frame: Token) -> str:
        key = frame.source, frame.generation
        if key not in self.tokens:
            sources = list(dict.fromkeys(source for source, _ in self.tokens))
            letter = "XYZUVW"[sources.index(frame.source) if frame.source in sources else len(sources)]
            earlier = sum(source == frame.source for source, _ in self.tokens)
            self.tokens[key] = letter + (str(earlier + 1) if earlier else "")
        return self.tokens[key]

    def trace(self, source: int, to: int, frame: Any) -> bool:
        """Writes a frame that is sent; False: its sender crashes first."""
        one, other = self.names[source], self.names[to]
        word = self.token(frame) if isinstance(frame, Token) else getattr(frame, "phase", "").upper()
        if isinstance(frame, Token | Confirm) and (one, word, other) in self.doomed:
            self.doomed.remove((one, word, other))
            self.crash(source)
            return False
        match frame:
            case Token():
                name = self.held[source] = word
                leader, author = self.names[frame.leader], self.names[frame.source]
                what = f"{name}{{{leader}-ldr, {author}-src, mbrs-{self.list(frame.members)}}}"
            case Confirm():
                what = f"{frame.phase.upper()} ({frame.generation}, {one}) {self.list(frame.members)}"
            case Confirmed():
                what = f"OK to {frame.phase.upper()} ({frame.generation}, {other})"
            case Unconfirmed():
                what = f"NO to PREPARE ({frame.generation}, {other}): {self.list(frame.members)}"
            case _:
                return True
        self.lines.append(f"{self.world.now // MS:5} ms  {one} → {other}: {what}")
        return True


def play(text: str, make: Any = Ring) -> tuple[Play, str]:
    """Runs a transcript; returns its run, and the transcript with the new output."""
    one, blocks = Play(make), parse(text)
    for block in blocks:
        block.output = []
        for line in block.commands:
            if line and not line.startswith("#"):
                block.output += one.run(line)
    assert not one.doomed, f"never happened: {one.doomed}"
    return one, unparse(blocks)


def check(name: str) -> None:
    """Runs a transcript and compares its output with the recorded one. SEQCAST_TRANSCRIPTS=write: records that
    instead."""
    path = FOLDER / f"{name}.txt"
    text = path.read_text("utf-8")
    _, played = play(text)
    if os.environ.get("SEQCAST_TRANSCRIPTS") == "write":
        path.write_text(played, encoding="utf-8")
    else:
        assert played == text
