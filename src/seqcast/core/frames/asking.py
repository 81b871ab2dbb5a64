"""The frames by which members show each other their boards (``seqcast probe --all``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from seqcast.core.frames.codec import text
from seqcast.core.frames.fields import Count, Id
from seqcast.core.frames.traits import control

SEES_BYTES_MAX = 50_000
NO_BOARD = "-"
"""In place of the board of a member that has none."""


@control("ask", "detector")
@dataclass(frozen=True, slots=True)
class Ask:
    """Member to each other one: what do you see? Not repeated; answered only so often."""

    view: Id
    request: Count


@control("told", "detector")
@dataclass(frozen=True, slots=True)
class Told:
    """The answer, sent to the asker's address in the VIEW: my board, or `NO_BOARD`."""

    view: Id
    request: Count
    sees: Annotated[str, text(SEES_BYTES_MAX)]


Asking = Ask | Told
