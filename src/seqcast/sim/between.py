"""The engine as the control thread has it: the I/O thread may run between any two of its calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from seqcast._native.engine import Engine
from seqcast.core.port import EnginePort


class _TickedBetween:
    """Ticks before each call: each holds the engine's lock for itself, and a deadline may pass in between."""

    def __init__(self, engine: Engine, now: Callable[[], int]) -> None:
        self.engine, self.now = engine, now

    def __getattr__(self, name: str) -> Any:
        self.engine.tick(self.now())
        return getattr(self.engine, name)


def ticked_between(engine: Engine, now: Callable[[], int]) -> EnginePort:
    """The engine of an endpoint.

    Args:
        engine: of one process.
        now: its clock, in ns.
    """
    return cast(EnginePort, _TickedBetween(engine, now))
