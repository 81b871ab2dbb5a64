"""What a member logs: the core's lines, by part, and receivers that block senders.

Each part has a logger, ``seqcast.membership``, ``.flush``, ``.merge``, ``.order``, ``.transfer``, ``.detector``,
``.gossip`` and ``.ring``, which can be switched at run time; lines of a disabled logger are never made (TRC-01). INFO
has one line for each event of the group, DEBUG one for each control frame. Messages are never logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from seqcast.core.log import PARTS
from seqcast.core.vocabulary import Log

LOOK_NS = 1_000_000_000
_LOGGERS = {part: logging.getLogger(f"seqcast.{part}") for part in PARTS}


def parts_read(level: int) -> frozenset[str]:
    """The parts whose loggers are enabled for this level."""
    return frozenset(part for part, logger in _LOGGERS.items() if logger.isEnabledFor(level))


def write(line: Log) -> None:
    _LOGGERS[line.part].log(logging.DEBUG if line.debug else logging.INFO, line.text, *line.args)


class SlowReceivers:
    """Warns of receivers that block this member's senders: after a receiver has taken nothing for 1 s, 2 s, 4 s and so
    on.

    Args:
        name: of this member.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.due_ns = 0
        self._last: tuple[int, int] | None = None
        self._since_ns = 0
        self._told_ns = 0  # duration that was last reported; 0: none was

    def look(self, stalled: tuple[int, int] | None, now_ns: int, name_of: Callable[[int], str]) -> None:
        """Checks, at most every ``LOOK_NS``.

        Args:
            stalled: of ``Engine.stalled``.
            now_ns: monotonic.
            name_of: gives the name of a member.
        """
        self.due_ns = now_ns + LOOK_NS
        log = _LOGGERS["detector"]
        if stalled is None or stalled != self._last:
            if self._told_ns and self._last is not None:
                took = (now_ns - self._since_ns) / 1e9
                log.info("%s: %s takes messages again, after %.0f s", self.name, name_of(self._last[0]), took)
            self._last, self._since_ns, self._told_ns = stalled, now_ns, 0
            return
        took_ns = now_ns - self._since_ns
        if took_ns >= max(2 * self._told_ns, LOOK_NS * 9 // 10):
            self._told_ns = took_ns
            log.info(
                "%s: slow receiver: %s has taken nothing for %.0f s, and senders wait for it: its application is slow "
                "or stuck, or the network to it is",
                self.name, name_of(stalled[0]), took_ns / 1e9,
            )  # fmt: skip
