"""Transcripts: scripts for a simulated group, with their output in the same file.

A transcript has a title (its first line, ``# ...``) and blocks. A block has commands, one per line, then ``----``, then
each control frame that crossed the network and each view that was installed. A line with ``#`` in front is a comment.

=====================================  =================================================================================
``world [callback=a:10] [key=value]``  first, if at all: options of the simulated world. ``callback``: the member has a
                                       block callback that takes this many ms, or never returns (``callback=a:never``)
``group a b c``                        members that are in one view after 1,000 ms; how they got there is not written
``start d [apart from a b]``           starts a process, which no datagram of these reaches and the reverse
``label "second b"``                   gives the process that was started last another name here
``leave a`` ``crash a``
``stop a for 700 ms``                  the process is stopped, as by SIGSTOP, and continues later
``suspend a for 300 ms``               a pauses the group for this long
``send a 100 [to b]``                  a multicasts a message of this many bytes, or sends one to b alone
``headers``                            datagrams of the order (total-1999, grant) are written from here on, too
``run until 1500 ms``
``partition a b | c | d``              no datagram passes between the sides
``cut a -> b``                         no datagram passes from a to b
``heal``                               all datagrams pass
``lose DONE of a [reaching b c]``      these frames of a are lost, or reach only these. A frame is named by the first
                                       words with which it is written; ``lose nothing`` ends this
``at CUT of a [reaching b]: COMMAND``  as ``lose``, from the first such frame on; runs the command when a sends one
``isolate a``                          no control frame from or to a arrives
``resend SUSPEND of a to b``           the first frame of this kind that a sent, once more
``fail get_state``                     the next handler that is asked for its state fails
``unblock``                            an operator lets the blocked group continue
``hide BEACON``                        frames of this kind are not written, though they are sent; ``hide nothing`` ends
                                       this
``quiet`` ``write``                    events are not written; are written again
``show``                               where each member is
``status [a b]``                       the machines of these, or of all, that are not as in a group at rest
=====================================  =================================================================================
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from sim_stage import Stage, send

from seqcast.core.frames.kinds import dump
from seqcast.sim.operator import OperatorProcess
from seqcast.sim.options import MS

FOLDER = Path(__file__).resolve().parents[1] / "protocol" / "transcripts"
DIVIDER = "----"
SETTINGS = (("ack_delay_s", 0.002), ("probe_s_min", 0.004), ("name_taken_s", 1.0))
"""The settings of the transcripts, whatever production's defaults are."""


@dataclass
class Block:
    """Commands and their output."""

    commands: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)


def parse(text: str) -> list[Block]:
    """The blocks of a transcript; its title and its comments are commands of the first one."""
    blocks = [Block()]
    into = blocks[0].commands
    for line in text.splitlines():
        if line == DIVIDER:
            into = blocks[-1].output
        elif not line and into is blocks[-1].output:
            blocks.append(Block())
            into = blocks[-1].commands
        else:
            into.append(line)
    return [block for block in blocks if block.commands]


def unparse(blocks: list[Block]) -> str:
    return "\n\n".join("\n".join([*block.commands, DIVIDER, *block.output]) for block in blocks) + "\n"


class Play:
    """Runs the commands of a transcript on a stage of its own."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.operator_process: OperatorProcess | None = None
        self.lost: list[tuple[str, str, set[str]]] = []  # first words, sender, the members reached
        self.waiting: list[tuple[str, str, set[str], str]] = []  # the same, and the command to be run then
        self.isolated: set[str] = set()
        self.sent: list[tuple[str, Any]] = []
        self.at_rest: dict[str, str] = {}  # the states of a member of a group in which nothing is under way
        self._stage: Stage | None = None

    @property
    def stage(self) -> Stage:
        if self._stage is None:
            self._stage = Stage(**{"settings": SETTINGS, **self.options})
            self._stage.refuse = self.refuse
        return self._stage

    def refuse(self, source: Any, target: Any, frame: Any) -> bool:
        """Is this frame lost on its way to this member? Runs the function that waits for its transmission."""
        sender, words = str(source), self.stage.words(frame)
        if not self.sent or self.sent[-1] != (sender, frame):
            self.sent.append((sender, frame))
        for rule in [rule for rule in self.waiting if rule[1] == sender and named(rule[0], words)]:
            self.waiting.remove(rule)
            self.lost.append(rule[:3])
            self.run(rule[3])
        if {sender, str(target)} & self.isolated:
            return True
        return any(who == sender and named(kind, words) and str(target) not in to for kind, who, to in self.lost)

    def run(self, line: str) -> list[str]:
        """Runs one command; returns its output."""
        name, _, rest = line.partition(" ")
        command = getattr(self, f"do_{name}", None)
        assert command is not None, f"no such command: {line}"
        written = len(self._stage.lines) if self._stage else 0
        said = command(rest) or []
        return [*(self._stage.lines[written:] if self._stage else ()), *said]

    def node(self, name: str) -> Any:
        found = [node for node in self.stage.nodes if node.name == name]
        assert found, f"no process has the name {name!r}"
        return found[0]

    # ---- the commands

    def do_world(self, rest: str) -> None:
        assert self._stage is None, "world comes first"
        for word in rest.split():
            key, _, value = word.partition("=")
            if key == "callback":
                member, _, takes = value.partition(":")
                self.options.setdefault("callbacks", {})[member] = None if takes == "never" else int(takes)
            else:
                self.options[key] = int(value) if value.isdigit() else {"yes": True}.get(value, value)

    def do_group(self, rest: str) -> None:
        self.stage.group(*rest.split())
        self.at_rest = self.stage.nodes[0].endpoint.states()

    def do_start(self, rest: str) -> None:
        name, apart = split(r"(\w+)(?: apart from ([\w ]+))?", rest)
        others = {self.node(other).index for other in (apart or "").split()}
        self.stage.network.partition({len(self.stage.nodes)}, others)
        self.stage.named(name, self.stage.clock.now / MS)
        self.stage.clock.run(self.stage.clock.now)

    def do_label(self, rest: str) -> None:
        (self.stage.nodes[-1].name,) = shlex.split(rest)

    def do_leave(self, rest: str) -> None:
        self.node(rest).leave()

    def do_crash(self, rest: str) -> None:
        self.node(rest).crash()

    def do_stop(self, rest: str) -> None:
        member, takes = split(r"(\w+) for (\d+) ms", rest)
        self.node(member).pause(self.stage.clock.now + int(takes) * MS)

    def do_suspend(self, rest: str) -> None:
        member, takes = split(r"(\w+) for (\d+) ms", rest)
        self.node(member).suspend(int(takes) * MS)

    def do_send(self, rest: str) -> None:
        member, size, to = split(r"(\w+) (\d+)(?: to (\w+))?", rest)
        node = self.node(member)
        node.record.pending.append((self.node(to).id if to else 0, int(size)))
        node.service()

    def do_headers(self, rest: str) -> None:
        self.stage.headers = True

    def do_run(self, rest: str) -> None:
        (until,) = split(r"until (\d+) ms", rest)
        self.stage.until(int(until))

    def do_partition(self, rest: str) -> None:
        sides = [{self.node(name).index for name in side.split()} for side in rest.split("|")]
        assert len(sides) > 1, "partition needs two sides, with | between them"
        for one, other in combinations(sides, 2):
            self.stage.network.partition(one, other)

    def do_cut(self, rest: str) -> None:
        source, target = split(r"(\w+) -> (\w+)", rest)
        self.stage.network.cut.add((self.node(source).index, self.node(target).index))

    def do_heal(self, rest: str) -> None:
        self.stage.network.heal()

    def do_lose(self, rest: str) -> None:
        if rest == "nothing":
            self.lost.clear()
        else:
            kind, sender, reached = split(r"(.+) of (\w+)(?: reaching ([\w ]+))?", rest)
            self.lost.append((kind, sender, set((reached or "").split())))

    def do_at(self, rest: str) -> None:
        kind, sender, reached, command = split(r"(.+?) of (\w+)(?: reaching ([\w ]+))?: (.+)", rest)
        everyone = {node.name for node in self.stage.nodes}
        to = everyone if reached is None else set() if reached == "nobody" else set(reached.split())
        self.waiting.append((kind, sender, to, command))

    def do_isolate(self, rest: str) -> None:
        self.isolated.add(rest)

    def do_resend(self, rest: str) -> None:
        kind, sender, target = split(r"(.+) of (\w+) to (\w+)", rest)
        frame = next(frame for who, frame in self.sent if who == sender and named(kind, self.stage.words(frame)))
        send(self.stage, self.node(sender), dump(frame), self.node(target))

    def do_fail(self, rest: str) -> None:
        assert rest == "get_state"
        self.stage.state_refusals = 1

    def do_unblock(self, rest: str) -> None:
        self.operator_process = OperatorProcess(self.stage, 0)

    def do_hide(self, rest: str) -> None:
        self.stage.hidden = [] if rest == "nothing" else [*self.stage.hidden, rest]

    def do_quiet(self, rest: str) -> None:
        self.stage.quiet = True

    def do_write(self, rest: str) -> None:
        self.stage.quiet = False

    def do_show(self, rest: str) -> list[str]:
        return [f"{node}: {self.place(node)}" for node in self.stage.nodes]

    def do_status(self, rest: str) -> list[str]:
        nodes = [self.node(name) for name in rest.split()] or self.stage.nodes
        return [f"{node}: {self.status(node)}" for node in nodes if node.up]

    def status(self, node: Any) -> str:
        """The states, by the names of docs/state-tables.md, that differ from those of a member of a group at rest."""
        states = [each for each in node.endpoint.states().items() if each not in self.at_rest.items()]
        return ", ".join(" ".join(each) for each in states) or "at rest"

    def place(self, node: Any) -> str:
        """Where a member is: out of the group and why, or in which view."""
        if not node.up:
            return "crashed"
        if node.endpoint.over:
            return "left" if node.record.left else "cannot join" if node.record.error else "excluded"
        blocked = f", blocked ({node.record.blocked.kind})" if node.record.blocked else ""
        state = ""
        if self.stage.options.state:
            state = f", state {node.application.chain.digest()[:8]}" if node.record.inside else ", without the state"
        return f"{node.endpoint.view or 'joining'}{blocked}{state}"


def named(kind: str, words: str) -> bool:
    """Is the frame that is written so one of this kind?"""
    return re.match(rf"{re.escape(kind)}\b", words) is not None


def split(pattern: str, rest: str) -> tuple[Any, ...]:
    found = re.fullmatch(pattern, rest)
    assert found, f"{rest!r} does not read as {pattern!r}"
    return found.groups()


def read(name: str) -> str:
    """The text of a transcript of the project."""
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def play(text: str) -> tuple[Stage, str]:
    """Plays a transcript; returns its stage, and the transcript with its output."""
    blocks, played = parse(text), Play()
    for block in blocks:
        block.output = []
        for line in block.commands:
            if line and not line.startswith("#"):
                block.output += played.run(line)
    never = [f"at {kind} of {sender}" for kind, sender, _, _ in played.waiting]
    assert not never, f"never happened: {', '.join(never)}"
    return played.stage, unparse(blocks)


def check(name: str) -> None:
    """Fails if the output differs from the transcript. SEQCAST_TRANSCRIPTS=write: records that instead."""
    _, text = play(read(name))
    if os.environ.get("SEQCAST_TRANSCRIPTS") == "write":
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
    assert read(name) == text
