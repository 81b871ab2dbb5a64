"""Measurements: ``seqcast perf``. A group of members as processes, beside bare C doing the same work without it."""
