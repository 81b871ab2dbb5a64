"""Shared by all commands: a parser that reports errors in one line, argument types, and a progress line."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, NoReturn

TERMINAL_S = 0.2
ELSEWHERE_S = 5.0


def count(n: int, noun: str) -> str:
    """``count(1, "message")`` is "1 message", ``count(1200, "message")`` "1,200 messages"."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def say(text: str) -> None:
    """Prints a message as one line on standard error."""
    on_stderr(f"seqcast: {' '.join(text.split())}\n")


def on_stderr(text: str) -> None:
    """Writes on standard error, even if nobody reads that any more: a failed write changes neither the work nor its
    status."""
    with contextlib.suppress(OSError):
        print(text, end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def plain_messages(tell: Callable[[str], object] = say) -> Iterator[None]:
    """Prints warnings and seqcast's log records as one line each, without their source location, which would not help
    a user of a command.

    Args:
        tell: is called with each.
    """
    import logging

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        tell(f"warning: {message}")

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(record.getMessage())
            if record.exc_info:  # a bug of ours, which one line does not explain
                on_stderr(logging.Formatter().formatException(record.exc_info) + "\n")

    before, warnings.showwarning = warnings.showwarning, show
    log, handler = logging.getLogger("seqcast"), Handler()
    log.addHandler(handler)
    propagate, log.propagate = log.propagate, False
    try:
        yield
    finally:
        warnings.showwarning = before
        log.removeHandler(handler)
        log.propagate = propagate


class Parser(argparse.ArgumentParser):
    """The parser of one command: its arguments may stand in any order. A wrong one ends the process with status 2 and
    one line, without the usage."""

    def __init__(self, command: str, text: str, epilog: str = "") -> None:
        super().__init__(
            prog=f"seqcast {command}",
            description=text,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def parse_args(  # type: ignore[override]  # no command has a namespace of another kind
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """As the parser of the base class, but options may stand between arguments too."""
        return self.parse_intermixed_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}; `{self.prog} --help` lists the options\n")


def seconds(text: str) -> float:
    """Argument type: a time in seconds, not negative."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds, 0 or more")
    return value


def positive(text: str) -> int:
    """Argument type: a whole number, 1 or more."""
    return whole(text, 1)


def whole(text: str, low: int, high: float = float("inf")) -> int:
    """Argument type: a whole number between two bounds."""
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        bounds = f"of {low} or more" if high == float("inf") else f"from {low} to {high}"
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number {bounds}")
    return value


class Progress:
    """A progress line on standard error: rewritten in place on a terminal, otherwise printed now and then."""

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
        self.clear()

    def clear(self) -> None:
        """Removes the line before other output."""
        if self._width:
            on_stderr(f"\r{' ' * self._width}\r")
            self._width = 0

    def stage(self, text: str) -> None:
        """Shows ``text`` at once; as a separate line if standard error is not a terminal."""
        self._due = 0.0
        self.show(text)

    def show(self, text: str) -> None:
        """Shows ``text`` if the last update was long enough ago."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + self._every_s
        if self._terminal:
            on_stderr(f"\r{text:{self._width}}")
            self._width = len(text)
        else:
            on_stderr(text + "\n")


def named_file(text: str) -> str:
    """Argument type: the name of a file. Empty, it is most likely a variable of the shell that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("names no file: leave the option out if there is none")
    return text


def add_key(target: argparse.ArgumentParser, ciphers: Sequence[str]) -> None:
    """Adds the settings of a group with a key."""
    target.add_argument(
        "--key", type=named_file, metavar="FILE", help="key file of the group, made by `seqcast keygen` (none)"
    )
    target.add_argument("--cipher", choices=ciphers, help="with --key: the cipher of messages (auto)")
    target.add_argument(
        "--identity", type=named_file, metavar="FILE", help="with --key: identity of this process (none)"
    )
    target.add_argument(
        "--authorized", type=named_file, metavar="FILE", help="with --key: list of allowed members (none)"
    )


def add_pace(target: argparse.ArgumentParser, congestions: Sequence[str]) -> None:
    """Adds the settings that say how much of a shared network a member takes."""
    target.add_argument(
        "--congestion", choices=congestions, help="whether members send no more than the paths to others carry (auto)"
    )
    target.add_argument(
        "--send-bytes-per-s",
        type=lambda text: whole(text, 0, 1 << 40),
        metavar="N",
        help="bytes that a member sends in a second at most, all copies of its packets together (0: no bound)",
    )
