"""Measurements: ``seqcast perf``. A group of members as processes, beside bare C doing the same work without it."""

from seqcast.perf.command import main

__all__ = ["main"]
