"""Progress of a long command: one line of standard error that is rewritten on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from types import TracebackType

TERMINAL_S = 0.2
ELSEWHERE_S = 5.0


def count(n: int, noun: str) -> str:
    """``count(1, "message")`` is "1 message", ``count(1200, "message")`` "1,200 messages"."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


class Progress:
    """Shows text at most every so often."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._every_s = TERMINAL_S if self._terminal else ELSEWHERE_S
        self._due = time.monotonic() + self._every_s
        self._width = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._width:  # the line goes away: what follows says more
            print(f"\r{' ' * self._width}\r", end="", file=sys.stderr, flush=True)

    def show(self, text: str) -> None:
        """Shows ``text`` when it is due."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + self._every_s
        if self._terminal:
            print(f"\r{text:{self._width}}", end="", file=sys.stderr, flush=True)
            self._width = len(text)
        else:
            print(text, file=sys.stderr, flush=True)
