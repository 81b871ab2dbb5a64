"""The frames by which members show each other their boards (``seqcast probe --all``, ``seqcast debug``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from seqcast.core.frames.codec import integer, text
from seqcast.core.frames.fields import Count, Id
from seqcast.core.frames.traits import control

SEES_BYTES_MAX = 50_000
PAGES_MAX = 16
"""The most pages of a whole board."""
KNOWN = -1
"""In place of a page: the knowledge of a member's process, which only processes of its machine ask for."""
NO_BOARD = "-"
"""In place of the board of a member that has none."""

Page = Annotated[int, integer(f"page, 0 to {PAGES_MAX}", 0, PAGES_MAX)]


@control("ask", "detector")
@dataclass(frozen=True, slots=True)
class Ask:
    """Member to each other one: what do you see? In short (page 0), or a page of the whole board (from 1 on). Not
    repeated; answers are rate-limited."""

    view: Id
    request: Count
    page: Page


@control("told", "detector")
@dataclass(frozen=True, slots=True)
class Told:
    """The answer, sent to the asker's address in the VIEW: my board, or `NO_BOARD`. `pages`: of the whole board; 0
    beside the short form."""

    view: Id
    request: Count
    pages: Page
    sees: Annotated[str, text(SEES_BYTES_MAX)]


Asking = Ask | Told
