"""The settings of simulated members: production's, except for sizes that make a short run reach its limits."""

from __future__ import annotations

import functools
import struct
from typing import Any

from seqcast.config import Config
from seqcast.sim.options import Options

MTU = 1500
HEAD = struct.Struct("<QQQ")
"""The beginning of each message: sender, its counter, destination or 0."""
SMALL_MAX = 200
"""Bytes of most messages behind that, at most."""
SIZES: dict[str, Any] = {
    "slabs_max": 496,
    "ring_bytes": 1 << 20,
    "unicast_bytes": 256 << 10,
    "window_bytes": 1 << 20,
    "block_deadline_s": 0.4,
    "block_events": True,
    "coordinator_events": True,
    "state_timeout_s": 2.0,
    "state_backlog_bytes": 1 << 20,
}
"""Settings that differ in every run from the defaults of production."""


def largest(options: Options) -> int:
    """The length of the largest message that the applications of a run may send."""
    return HEAD.size + max(options.bytes_max, SMALL_MAX)


@functools.lru_cache(16)
def config(options: Options) -> Config:
    """The settings of every member of a run."""
    queue: dict[str, Any] = {}
    if options.queue_bytes:
        queue = {"send_while_blocked": "queue", "blocked_queue_bytes": options.queue_bytes}
    settings: dict[str, Any] = {
        **SIZES,
        **queue,
        "preset": options.preset,
        "packet_bytes": options.packet_bytes,
        "ring_packets": options.ring_packets,
        "flush_unicasts": options.flush_unicasts,
        "membership": options.membership,
        "safe": options.safe,
        "reliability": options.reliability,
        "partition": options.partition,
        "found": options.found,
        "message_bytes_max": largest(options),
        "stable": "the disk" if options.stable else "",
        "transport": options.transport,
        **dict(options.settings),
    }
    return Config(**settings)
