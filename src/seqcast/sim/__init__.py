"""The simulator: the compiled engine and the policies in virtual time, with every fault drawn from one seed."""

from seqcast.sim.command import main
from seqcast.sim.options import Options
from seqcast.sim.world import Result, World, simulate

__all__ = ["Options", "Result", "World", "main", "simulate"]
