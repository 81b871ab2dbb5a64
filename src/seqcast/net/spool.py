"""Bytes of an application's state: in memory up to a bound, and beyond that in a temporary file."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any

from seqcast.core.state.chunks import CHUNK_BYTES_MAX
from seqcast.errors import UsageError


class Spool:
    """Keeps bytes in memory up to a bound and the rest in a temporary file. Written first, then read, by any number of
    readers."""

    def __init__(self, memory_bytes: int) -> None:
        self.length = 0
        self.failure: Exception | None = None
        self._left = memory_bytes
        self._parts: list[Any] = []  # bytes of at least a chunk, but the last
        self._small = bytearray()  # less than a chunk
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    def write(self, data: Any) -> None:
        """
        Raises:
            UsageError: no bytes.
            OSError: the temporary file cannot be written.
        """
        if not isinstance(data, bytes):
            try:
                data = memoryview(data).tobytes()
            except (TypeError, BufferError) as error:
                raise UsageError(f"state is written as bytes, not {type(data).__name__}: encode the state") from error
        self.append(data)

    def append(self, data: bytes | bytearray) -> None:
        """As ``write``; ``data`` is kept unchanged."""
        self.length += len(data)
        if self._file is not None or self.length > self._left:
            try:
                if self._file is None:
                    self._file = tempfile.TemporaryFile(prefix="seqcast-state-")
                self._file.write(data)
            except Exception as error:
                self.failure = error
                raise
        elif len(data) >= CHUNK_BYTES_MAX and not self._small:
            self._parts.append(data)
        else:
            self._small += data
            if len(self._small) >= CHUNK_BYTES_MAX:
                self._parts.append(self._small)
                self._small = bytearray()

    def chunks(self, size: int = CHUNK_BYTES_MAX) -> Iterator[Any]:
        """The whole, in pieces of at most ``size``."""
        for part in (*self._parts, self._small):
            view = memoryview(part)
            for at in range(0, len(view), size):
                yield view[at : at + size]
        at = 0
        while self._file is not None:
            with self._lock:
                self._file.seek(at)
                piece = self._file.read(size)
            if not piece:
                return
            at += len(piece)
            yield piece

    def reader(self) -> Callable[..., bytes]:
        """``read`` of ``set_state``."""
        chunks = self.chunks()
        rest: Any = b""

        def read(size: int | None = -1, /) -> bytes:
            nonlocal rest
            wanted = self.length if size is None or size < 0 else size
            pieces = []
            while wanted:
                if not rest:
                    rest = next(chunks, b"")
                    if not rest:
                        break
                pieces.append(rest[:wanted])
                rest = rest[wanted:]
                wanted -= len(pieces[-1])
            return b"".join(pieces)

        return read

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._parts.clear()
        self._small = bytearray()
