"""Standard output and standard error of the commands: each text is written as a whole, or the command fails."""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer

SLICE_MS = 200
"""A wait checks this often whether a signal came."""


def write_whole() -> None:
    """From now on, a write to standard output or standard error returns only when everything is written.

    Python's own files do not promise that. Without a buffer (``PYTHONUNBUFFERED``, which container images set) they
    pass over a write that takes only a part: a pipe that does not block, a disk that is nearly full. With a buffer they
    raise if such a pipe is full.
    """
    if sys.platform == "win32":  # none of this happens there, and a console is not a file
        return
    for name in ("stdout", "stderr"):
        with contextlib.suppress(OSError):  # not a file
            setattr(sys, name, _whole(getattr(sys, name)))


def _whole(stream: TextIO) -> TextIO:
    stream.flush()
    return _Text(
        _Whole(stream.fileno()),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=getattr(stream, "line_buffering", False) or getattr(stream, "write_through", False),
    )


class _Text(io.TextIOWrapper):
    """Text on a ``_Whole``. A write that was interrupted raises when it has returned from all buffers: before, they
    would write again bytes that the system has taken; later, the program might not write again for long."""

    def __init__(self, raw: _Whole, **options: Any) -> None:
        super().__init__(io.BufferedWriter(raw), **options)
        self._raw = raw

    def write(self, text: str) -> int:
        written = super().write(text)
        self._raw.raise_late()
        return written

    def flush(self) -> None:
        super().flush()
        self._raw.raise_late()


class _Whole(io.RawIOBase):
    """A descriptor, which stays open, with writes that are never short."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._raised: BaseException | None = None  # by a signal's handler, in a write that had begun

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def raise_late(self) -> None:
        """Raises the exception of a signal's handler that came in the midst of a write."""
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Buffer) -> int:
        """All of ``data``; less only if a signal's handler raises, which ``raise_late`` or the next call passes on."""
        self.raise_late()
        view = memoryview(data).cast("B")
        parts: list[int] = []  # bytes that the system has taken
        try:
            while (done := sum(parts)) < len(view):
                try:
                    # Write and note in one call: a signal's handler runs before both or after both.
                    parts.extend(map(os.write, (self._descriptor,), (view[done:],)))
                except BlockingIOError:
                    wait_for(self._descriptor, select.POLLOUT)
        except BaseException as error:
            if not parts:
                raise
            self._raised = error
        return sum(parts)


def wait_for(descriptor: int, what: int) -> None:
    """Waits until a descriptor can be read (``select.POLLIN``) or written, in slices: a signal that comes just before
    the system call does not interrupt it, and Python calls the signal's handler only between two of them."""
    poll = select.poll()  # takes descriptors beyond the 1,024 of `select`
    poll.register(descriptor, what)
    while not poll.poll(SLICE_MS):
        pass
