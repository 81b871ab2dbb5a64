"""The simulator: the compiled engine and the policies in virtual time, with every fault drawn from one seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqcast.lazy import lazily

if TYPE_CHECKING:
    from seqcast.sim.options import Options
    from seqcast.sim.world import Result, World, simulate

__all__ = ["Options", "Result", "World", "simulate"]
__getattr__ = lazily(
    globals(),
    {
        "Options": "seqcast.sim.options",
        "Result": "seqcast.sim.world",
        "World": "seqcast.sim.world",
        "simulate": "seqcast.sim.world",
    },
)
