"""A search through all that can happen in a small world, depth first.

A copy of the process is a copy of the world, its compiled engines included, so each choice but the last is taken in a
child. The digests of the worlds seen are in memory that all share.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from explore.world import SmallWorld

PLACES = 1 << 22
"""Of digests in the shared table; full at three quarters."""
VIOLATIONS_MAX = 5
STATES, ENDS, VIOLATIONS, LONGEST, STOPPED = range(5)


@dataclass
class Found:
    """The result of a search.

    Args:
        states: worlds that were seen, none of them twice.
        ends: of those, how many had come to their end.
        longest: most choices on the way to one.
        complete: every choice was taken; False: the search met its limit.
        violations: each with the choices that led there.
    """

    states: int
    ends: int
    longest: int
    complete: bool
    violations: list[dict[str, list[str]]] = field(default_factory=list)


class Search:
    """One search.

    Args:
        make: makes the world.
        depth: this many choices are explored; beyond, frames arrive in the order in which they were sent. 0: all.
        states_max: the search stops there, and is not complete.
    """

    def __init__(self, make: Callable[[], SmallWorld], depth: int = 0, states_max: int = PLACES) -> None:
        self.make, self.depth, self.states_max = make, depth, min(states_max, PLACES // 4 * 3)
        self.table = np.frombuffer(mmap.mmap(-1, 8 * PLACES), dtype=np.uint64)
        self.counts = np.frombuffer(mmap.mmap(-1, 64), dtype=np.int64)

    def run(self) -> Found:
        """Explores.

        Raises:
            RuntimeError: a process of the search ended early, of memory for example.
        """
        with tempfile.TemporaryDirectory() as folder:
            self.told = Path(folder) / "violations"
            self.told.touch()
            gc.collect()
            gc.freeze()
            self._fork(self._root)
            violations = [json.loads(line) for line in self.told.read_text(encoding="utf-8").splitlines()]
        states, ends, _, longest, stopped = map(int, self.counts[:5])
        return Found(states, ends, longest, not stopped and not violations, violations)

    def _root(self) -> None:
        world = self.make()
        world.begin()
        self._explore(world)

    def _fork(self, act: Callable[[], None]) -> None:
        """Runs ``act`` in a copy of this process, and waits for its end."""
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
                raise RuntimeError("a process of the search ended early")
            return
        try:
            act()
            os._exit(0)
        except BaseException:  # the copy must never return into its parent's code
            traceback.print_exc()
            os._exit(1)

    def _explore(self, world: SmallWorld) -> None:
        while True:
            try:
                world.advance()
            except Exception:
                self._tell(world, [traceback.format_exc()])
                return
            if self._over() or not self._new(world):
                return
            choices = world.choices()
            if not world.flight:
                self._end(world)
                return
            self.counts[LONGEST] = max(self.counts[LONGEST], len(world.chosen) + 1)
            if self.depth and len(world.chosen) >= self.depth:
                choices = choices[:1]
            for choice in choices[:-1]:
                self._fork(lambda choice=choice: self._go(world, choice))
                if self._over():
                    return
            if not self._taken(world, choices[-1]):
                return

    def _go(self, world: SmallWorld, choice: tuple[str, Callable[[], None]]) -> None:
        if self._taken(world, choice):
            self._explore(world)

    def _taken(self, world: SmallWorld, choice: tuple[str, Callable[[], None]]) -> bool:
        """Takes a choice; False: the core raised, which is told."""
        try:
            world.take(choice)
        except Exception:
            self._tell(world, [traceback.format_exc()])
            return False
        return True

    def _end(self, world: SmallWorld) -> None:
        self.counts[ENDS] += 1
        try:
            violations = world.violations()
        except Exception:
            violations = [traceback.format_exc()]
        if violations:
            self._tell(world, violations)

    def _tell(self, world: SmallWorld, violations: list[str]) -> None:
        self.counts[VIOLATIONS] += 1
        with self.told.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"choices": world.chosen, "violations": violations}) + "\n")

    def _over(self) -> bool:
        """Enough was seen."""
        if self.counts[STATES] >= self.states_max:
            self.counts[STOPPED] = 1
        return bool(self.counts[STOPPED]) or self.counts[VIOLATIONS] >= VIOLATIONS_MAX

    def _new(self, world: SmallWorld) -> bool:
        """Notes this world; False: seen before."""
        digest = world.digest()
        if self.depth:  # the depth left to explore is part of the key
            digest = bytes(a ^ b for a, b in zip(digest, len(world.chosen).to_bytes(8, "big"), strict=True))
        value = np.uint64(int.from_bytes(digest, "big") or 1)
        place = int(value) % PLACES
        while self.table[place]:
            if self.table[place] == value:
                return False
            place = (place + 1) % PLACES
        self.table[place] = value
        self.counts[STATES] += 1
        return True


def replay(world: SmallWorld, chosen: list[str]) -> list[str]:
    """Takes these choices, by their words, and then the first there is. Returns the violations."""
    world.begin()
    world.advance()
    while world.flight:
        choices = dict(world.choices())
        words = chosen[len(world.chosen)] if len(world.chosen) < len(chosen) else next(iter(choices))
        world.take((words, choices[words]))
        world.advance()
    return world.violations()
