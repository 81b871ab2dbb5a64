"""What a member logs: the core's lines, by part, and receivers that block senders.

Each part has a logger, ``seqcast.membership``, ``.flush``, ``.merge``, ``.order``, ``.transfer``, ``.detector``,
``.gossip`` and ``.ring``, which can be switched at run time; lines of a disabled logger are never made (TRC-01). INFO
has one line for each event of the group. WARNING has those on which somebody should act: this member was excluded, or a
receiver holds senders up. DEBUG has one for each control frame but beacons that the engine repeats. Messages are never
logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from seqcast.core.log import PARTS
from seqcast.core.vocabulary import Log

PATIENCE_NS = 900_000_000
"""A receiver that has taken nothing for so long is reported."""
_LOGGERS = {part: logging.getLogger(f"seqcast.{part}") for part in PARTS}


def parts_read(level: int) -> frozenset[str]:
    """The parts whose loggers are enabled for this level."""
    return frozenset(part for part, logger in _LOGGERS.items() if logger.isEnabledFor(level))


def write(line: Log) -> None:
    level = logging.DEBUG if line.debug else logging.WARNING if line.warning else logging.INFO
    _LOGGERS[line.part].log(level, line.text, *line.args)


class SlowReceivers:
    """Warns of receivers that block this member's senders: after a receiver has taken nothing for 1 s, 2 s, 4 s and so
    on.

    Args:
        name: of this member.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._told: tuple[int, int] | None = None  # the receiver that was last reported, and since when
        self._told_ns = 0  # duration that was last reported

    @property
    def told(self) -> bool:
        """A receiver was reported, and it was not reported that it takes messages again."""
        return self._told is not None

    def look(self, stalled: tuple[int, int] | None, now_ns: int, name_of: Callable[[int], str]) -> None:
        """Checks, after each look of ``Driver.wait_control`` that saw something, and each while ``told``.

        Args:
            stalled: of ``Driver.stalled``.
            now_ns: monotonic.
            name_of: gives the name of a member.
        """
        log = _LOGGERS["detector"]
        if self._told and stalled != self._told:
            member, since_ns = self._told
            took = (now_ns - since_ns) / 1e9
            log.warning("%s: %s takes messages again, after %.0f s", self.name, name_of(member), took)
            self._told, self._told_ns = None, 0
        if stalled is None:
            return
        took_ns = now_ns - stalled[1]
        if took_ns >= max(2 * self._told_ns, PATIENCE_NS):
            self._told, self._told_ns = stalled, took_ns
            log.warning(
                "%s: slow receiver: %s has taken nothing for %.0f s, and senders wait for it: its application is slow "
                "or stuck, or the network to it is",
                self.name, name_of(stalled[0]), took_ns / 1e9,
            )  # fmt: skip
