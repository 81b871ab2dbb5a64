"""Simulated groups in which little happens, and the views that they went through."""

from __future__ import annotations

from seqcast.sim import Options, World
from seqcast.sim.options import SECOND
from seqcast.types import View


def quiet(seed: int = 1, **settings) -> Options:
    return Options(seed=seed, spread_ns=0, duration_ns=4 * SECOND, unicasts=0.0, **settings)


def view_sizes(world: World) -> list[int]:
    """The sizes of all installed views, in order."""
    found = {entry.view_id: entry for node in world.nodes for entry in node.record.log if isinstance(entry, View)}
    return [len(found[view_id].members) for view_id in sorted(found)]


def after_formation(world: World) -> list[int]:
    sizes = view_sizes(world)
    return sizes[sizes.index(world.options.members) :]
