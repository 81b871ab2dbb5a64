"""Chunks of a state transfer: each says where it belongs, so the joiner gets the provider's state exactly or not at
all.

A chunk is a header and its bytes. The header has the boundary, which names the request that it answers (EVT-02); the
offset; and the CRC32C of the state from its beginning to the end of the chunk: that of the last chunk verifies the
whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum

from seqcast._native.engine import crc32c
from seqcast.errors import RemoteProtocolError

Piece = bytes | bytearray | memoryview

_HEADER = struct.Struct("<IIQQI4x")
_BOUNDARY_AT = 8
CHUNK_BYTES_MAX = 256 << 10
"""Small enough to stay in the cache from the checksum to the send."""
REASON_BYTES_MAX = 2000


class Kind(IntEnum):
    DATA = 1
    END = 2
    REFUSAL = 3
    """The provider cannot give the state; the bytes are the reason, as UTF-8."""
    PATIENCE = 4
    """The provider is still waiting for the states that it merges."""


class Outgoing:
    """The headers of one transfer, in order."""

    def __init__(self, boundary: int) -> None:
        self.boundary = boundary
        self.offset = self.crc = 0

    def pieces(self, chunks: Iterable[Piece]) -> Iterator[Piece]:
        """A whole transfer, in order: each chunk after its header, and the end."""
        for chunk in chunks:
            yield self._data(chunk)
            yield chunk
        yield _HEADER.pack(Kind.END, 0, self.boundary, self.offset, self.crc)

    def _data(self, chunk: Piece) -> bytes:
        """The header of the next chunk."""
        self.crc = crc32c(chunk, self.crc)
        header = _HEADER.pack(Kind.DATA, len(chunk), self.boundary, self.offset, self.crc)
        self.offset += len(chunk)
        return header

    def patience(self) -> bytes:
        return _HEADER.pack(Kind.PATIENCE, 0, self.boundary, 0, 0)

    def refusal(self, reason: str) -> bytes:
        text = reason.encode("utf-8", "replace")[:REASON_BYTES_MAX]
        return _HEADER.pack(Kind.REFUSAL, len(text), self.boundary, 0, crc32c(text)) + text


class Incoming:
    """One transfer at the joiner: the next bytes go into ``room``, and ``filled`` processes them.

    The stream may begin with the end of an earlier transfer, cut off anywhere: everything before the first header of
    this one is skipped.
    """

    def __init__(self, boundary: int) -> None:
        self.boundary = boundary
        self.offset = self.crc = 0
        self.over = False
        """The transfer is complete."""
        self.refusal: str | None = None
        self.begun = False
        """Its first header was found."""
        self._buffer = bytearray(_HEADER.size)
        self._header: tuple[Kind, int, int, int, int] | None = None
        self.room = memoryview(self._buffer)

    def filled(self, count: int) -> bytearray | None:
        """``count`` bytes are in ``room``. Returns the next bytes of the state when a chunk is whole.

        Raises:
            RemoteProtocolError: the bytes are invalid; nothing of the state may be used.
        """
        self.room = self.room[count:]
        while not self.room and not self.over:
            if self._header is None:
                self._begin()
                continue
            kind, length, _, _, crc = self._header
            chunk, self._header, self._buffer = self._buffer, None, bytearray(_HEADER.size)
            self.room = memoryview(self._buffer)
            if kind is Kind.PATIENCE:
                continue
            if kind is Kind.REFUSAL:
                self.refusal = chunk.decode("utf-8", "replace")
                return None
            self.crc = crc32c(chunk, self.crc) if length else self.crc
            if crc != self.crc:
                raise RemoteProtocolError(f"state: bytes {self.offset} to {self.offset + length} have a wrong sum")
            self.offset += length
            if kind is Kind.END:
                self.over = True
                return None
            return chunk
        return None

    def _begin(self) -> None:
        kind, length, boundary, offset, crc = _HEADER.unpack(self._buffer)
        right = kind in Kind.__members__.values() and length <= CHUNK_BYTES_MAX and boundary == self.boundary
        if not right and not self.begun:
            self._skip()
            return
        if not right:
            raise RemoteProtocolError("state: not a chunk of this transfer")
        self.begun = True
        if kind in (Kind.DATA, Kind.END) and (offset != self.offset or (kind == Kind.END) != (length == 0)):
            raise RemoteProtocolError(f"state: a chunk of {length} bytes at {offset}, {self.offset} are here")
        self._header = (Kind(kind), length, boundary, offset, crc)
        self._buffer = bytearray(length)
        self.room = memoryview(self._buffer)

    def _skip(self) -> None:
        """Drops the bytes before the first place where a header of this transfer can begin."""
        at = self._buffer.find(self.boundary.to_bytes(8, "little")[:1], _BOUNDARY_AT + 1) - _BOUNDARY_AT
        rest = self._buffer[at:] if at > 0 else self._buffer[-_BOUNDARY_AT:]
        self._buffer = rest + bytearray(_HEADER.size - len(rest))
        self.room = memoryview(self._buffer)[len(rest) :]
