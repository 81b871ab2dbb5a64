"""A member's log: the core's lines, by part.

Each part has a logger, ``seqcast.membership``, ``.flush``, ``.merge``, ``.order``, ``.transfer``, ``.detector``,
``.gossip`` and ``.ring``, which can be switched at run time; lines of a disabled logger are never made (TRC-01). INFO
has one line for each event of the group. WARNING has those on which somebody should act: this member was excluded, or a
receiver holds senders up. DEBUG has one for each control frame but beacons that the engine repeats. Messages are never
logged.
"""

from __future__ import annotations

import logging

from seqcast.core.log import PARTS
from seqcast.core.vocabulary import Log

_LOGGERS = {part: logging.getLogger(f"seqcast.{part}") for part in PARTS}


def parts_read(level: int) -> frozenset[str]:
    """The parts whose loggers are enabled for this level."""
    return frozenset(part for part, logger in _LOGGERS.items() if logger.isEnabledFor(level))


def write(line: Log) -> None:
    level = logging.DEBUG if line.debug else logging.WARNING if line.warning else logging.INFO
    _LOGGERS[line.part].log(level, line.text, *line.args)
