"""The live segment: an Arrow IPC stream, and beside it the checksum of each of its messages, written ahead.

A record of the checksum file has the place of a message of the stream, its length, its number of rows, and the XXH3 of
its bytes; the record is written *before* the message. So a reader can tell a message torn by a crash, which can only be
the last one, from damage: every byte of the stream is under a checksum, and every record carries one of its own.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqcast._native.columns import payload_hash
from seqcast.files import open_file, read_file
from seqcast.journal import seals
from seqcast.journal.live import count_messages, message_rows
from seqcast.journal.schema import JournalDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

SUMS_SUFFIX = ".sums"
_RECORD = struct.Struct("<QQQqq")  # offset, bytes, rows, XXH3 of the bytes, XXH3 of the four fields before
SUM_BYTES = _RECORD.size
_FIELDS = struct.Struct("<QQQq")
SUMS_BYTES_MAX = 256 << 20
MESSAGE_BYTES_MAX = 1 << 31
"""The most bytes of a checksum file, which has 40 for each message, and of a message: readers refuse more."""
READ_BYTES = 4 << 20
"""Messages are read together up to about this size."""
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # of an Arrow IPC stream


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the stream: the schema, a batch, or the end."""

    offset: int
    size: int
    rows: int
    hash: int


class StreamWriter:
    """Writes a live segment.

    Raises:
        OSError: the files cannot be made.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.rows = self.bytes = self._messages = 0
        self._sums = open(path.with_suffix(SUMS_SUFFIX), "wb", buffering=0)
        try:
            self._file = open(path, "wb", buffering=0)
        except OSError:
            self._sums.close()
            raise
        self._write(schema.serialize(), 0)

    def write(self, batch: pa.RecordBatch, rows: int) -> None:
        """Writes a batch, its checksum first.

        Args:
            rows: as many as readers will count.

        Raises:
            OSError: the disk is full, or the like; a part may have been written, which readers skip.
        """
        self._write(batch.serialize(), rows)
        self.rows += rows

    def finish(self) -> None:
        """Ends the stream, as Arrow's readers expect."""
        self._write(_END, 0)
        self.close()

    def cut(self) -> None:
        """Cuts off a message that the disk took in part, and closes the files.

        Raises:
            OSError: the rest cannot be cut off.
        """
        os.truncate(self._file.name, self.bytes)
        os.truncate(self._sums.name, self._messages * SUM_BYTES)
        self.close()

    def close(self) -> None:
        """Closes the files as they are."""
        self._file.close()
        self._sums.close()

    def _write(self, message: Any, rows: int) -> None:
        view = memoryview(message).cast("B")
        fields = (self.bytes, view.nbytes, rows, payload_hash(view))
        write_all(self._sums, _RECORD.pack(*fields, payload_hash(_FIELDS.pack(*fields))))
        write_all(self._file, view)
        self.bytes += view.nbytes
        self._messages += 1


def write_all(file: Any, data: bytes | memoryview) -> None:
    """Writes to an unbuffered file, which may take a part at a time.

    Raises:
        OSError: not all was taken, but perhaps a part.
    """
    view = memoryview(data)
    while view.nbytes:
        view = view[file.write(view) :]


def read_sums(path: Path) -> tuple[list[Message], bool]:
    """The messages of a live segment that are whole, and whether a torn one follows. Reads no rows.

    Raises:
        JournalDamaged: anything but a torn last message.
        FileNotFoundError: there is no such segment (any more).
    """
    size, data = _consistent(path)
    messages: list[Message] = []
    whole = len(data) // _RECORD.size * _RECORD.size
    end = 0
    for number, fields in enumerate(_RECORD.iter_unpack(data[:whole]), 1):
        if payload_hash(_FIELDS.pack(*fields[:4])) != fields[4] or fields[0] != end or fields[1] > MESSAGE_BYTES_MAX:
            raise JournalDamaged(f"{path.with_suffix(SUMS_SUFFIX)}, record {number}, is altered")
        messages.append(Message(*fields[:4]))
        end += fields[1]
    if size > end:
        raise JournalDamaged(f"{path} has {size - end} bytes after its last checksum")
    torn = whole != len(data)
    if messages and size < end:
        torn = True
        if size < messages.pop().offset:
            raise JournalDamaged(f"{path} ends at byte {size}, before its last written byte")
    return messages, torn


def _consistent(path: Path) -> tuple[int, bytes]:
    """Size of the stream, and the checksum file, as they were at one moment: the writer may be at work."""
    sums = path.with_suffix(SUMS_SUFFIX)
    before = b""
    while True:
        size = path.stat().st_size
        try:
            data = read_file(sums, SUMS_BYTES_MAX)
        except FileNotFoundError as error:
            path.stat()  # both are gone: the segment was rolled meanwhile
            raise JournalDamaged(f"{path} has no checksums ({sums.name} is missing)") from error
        if data == before:
            return size, data
        before = data


def messages_with(messages: Sequence[Message], first: int, end: int) -> tuple[int, list[Message]]:
    """Of the messages of a stream, its schema and the batches that have the rows from ``first`` to ``end`` - 1, and the
    place of the first row in them."""
    kept, begin, at = list(messages[:1]), 0, 0
    for message in messages[1:]:
        if at < end and at + message.rows > first:
            begin = at if len(kept) == 1 else begin
            kept.append(message)
        at += message.rows
    return begin, kept


def stream_batches(
    path: Path, messages: Sequence[Message], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of the given messages of a stream, of which the first is the schema, with at least the given columns.
    Messages are read, and their checksums compared, a few MB before their rows are yielded.

    Raises:
        JournalDamaged: a message does not have its checksum; also after some rows.
        FileNotFoundError: the segment was rolled meanwhile; before any rows.
    """
    import pyarrow as pa

    schema = None
    for message, contents in _contents(path, messages):
        if schema is None:
            schema = pa.ipc.read_schema(contents)
        if message.rows:
            batch = pa.ipc.read_record_batch(contents, schema)
            if count_messages(batch) != message.rows:
                raise JournalDamaged(f"{path}: the batch at byte {message.offset} has not {message.rows} rows")
            try:
                rows = message_rows(batch, columns)
            except ValueError as error:
                raise JournalDamaged(f"{path}: the batch at byte {message.offset} has runs that cannot be") from error
            yield rows


def _contents(path: Path, messages: Sequence[Message]) -> Iterator[tuple[Message, pa.Buffer]]:
    """The bytes of messages, compared with their checksums.

    They are read and not mapped: a file that is truncated under a mapping ends the process.
    """

    at = 0
    with arrow_file(path) as file:
        while at < len(messages):
            begin = end = messages[at].offset
            some: list[Message] = []
            while at < len(messages) and messages[at].offset == end and (not some or end - begin < READ_BYTES):
                some.append(messages[at])
                end += messages[at].size
                at += 1
            file.seek(begin)
            read = file.read_buffer(end - begin)
            if read.size < end - begin:
                raise JournalDamaged(f"{path} ends before byte {end}, and {end} bytes were written")
            for message in some:
                contents = read.slice(message.offset - begin, message.size)
                if seals.hashed(contents) != message.hash:
                    raise JournalDamaged(
                        f"{path} is altered at byte {message.offset} or behind: its checksum does not fit"
                    )
                yield message, contents


def arrow_file(path: Path) -> pa.NativeFile:
    """A file of a journal, for Arrow to read from.

    Raises:
        OSError: as ``open_file``.
    """
    import pyarrow as pa

    return pa.PythonFile(open_file(path, kind=_Pooled), "r")


class _Pooled(FileIO):
    """A file whose contents are read into Arrow's memory: that of Python's ``bytes`` would stay with the thread."""

    def read(self, size: int | None = -1, /) -> Any:
        import pyarrow as pa

        if size is None or size < 0:
            return super().read()
        size = min(size, max(0, os.fstat(self.fileno()).st_size - self.tell()))
        buffer = pa.allocate_buffer(size)
        view, got = memoryview(buffer), 0
        while got < size and (n := self.readinto(view[got:])):
            got += n
        return buffer.slice(0, got)


def stream_schema(path: Path, messages: Sequence[Message]) -> pa.Schema | None:
    """Schema of a live segment; None if torn by a crash.

    Raises:
        JournalDamaged, OSError: as ``stream_batches``.
    """
    import pyarrow as pa

    if not messages:
        return None
    with open_file(path) as file:
        data = file.read(messages[0].size)
    if payload_hash(data) != messages[0].hash:
        raise JournalDamaged(f"{path} is altered in its schema")
    return pa.ipc.read_schema(pa.py_buffer(data))
