"""The log of a replica on disk (``replicate(stable=PATH)``): a snapshot, and the operations since.

One file, ``PATH.log``. Records are appended, and all that came during one sync are synced together by the next. When
the records after the snapshot have outgrown the snapshot, the file is replaced by one that begins with a new snapshot:
written beside, synced, renamed. So there is always one whole file, at most three times as large as the state. A replica
applies nothing while it writes a snapshot, so the limit depends on the replica's name: otherwise all would write theirs
at the same operation.

A journal (``seqcast.journal``) does not serve here: its writer drops messages rather than wait for a disk, never syncs,
and has no place for a snapshot.

After a loss of power the end of the file may be torn: written in part, or its last part before an earlier one. Such an
end was never reported as synced, and is cut off. Each record says how far the file was synced when the record was
written; damage before that is not a torn end, and the file is refused.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import logging
import os
import shutil
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple, NoReturn

import seqcast.codes as codes
from seqcast.blocks.log import Entered, Malformed, Mark, Told
from seqcast.errors import OtherRelease, without_code
from seqcast.files import open_file
from seqcast.net.stable import LOCK, NEW, locked, sync, sync_directory, unusable, unwritten

SUFFIX = ".log"
ASIDE = ".kept"
VERSION = 1
MAGIC = b"SqLg"
_FRAME = struct.Struct("<4sIIQB")
"""Before each record: MAGIC; CRC-32 of all that follows; bytes of the record; bytes of the file that were synced before
the record; kind."""
_CHECKED = 8
HEAD, PIECE, END, ENTRY, VIEW = range(5)
"""Kinds: JSON of version, cluster and name; a part of the snapshot; its end; a message; a view."""
_TIME = struct.Struct("<q")
_COUNTER = struct.Struct("<Q")
PIECE_BYTES = 1 << 20
RECORD_BYTES_MAX = 1 << 30
CUT_BYTES_MIN = 16 << 20
"""Records after a snapshot are kept up to this size, however small the snapshot is."""
PENDING_BYTES_MAX = 64 << 20
"""The most bytes that wait for the disk; after that the replica waits, and so do the group's senders."""
CLOSE_S = 1.0
"""How long ``close`` waits for a write or a sync that does not return."""
START_THAT = (
    ": start that release here; or, while a majority of the others has the state, remove this file and that of the "
    "votes, and this member takes the state over from them"
)
"""The remedy for a file of another release."""

log = logging.getLogger("seqcast")


class Damaged(ValueError):
    """A file that is not a log, cannot be read, or has damage that no loss of power explains."""


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Turns errors of the file alone into ``Damaged``: a machine that reads its state from here may have errors of its
    own."""
    try:
        yield
    except OSError as error:
        raise Damaged(error.strerror or str(error)) from error


def framed(kind: int, body: bytes, synced: int) -> bytes:
    frame = _FRAME.pack(MAGIC, 0, len(body), synced, kind)[_CHECKED:]
    return _FRAME.pack(MAGIC, zlib.crc32(body, zlib.crc32(frame)), len(body), synced, kind) + body


class _Record(NamedTuple):
    kind: int
    body: bytes
    synced: int


def _record(file: IO[bytes], size: int) -> _Record | None:
    """The next record of a file of ``size`` bytes; None: there is no whole one here.

    Raises:
        Damaged: the disk fails.
    """
    with _reading():
        begin = file.tell()
        head = file.read(_FRAME.size)
        if len(head) == _FRAME.size:
            magic, crc, length, synced, kind = _FRAME.unpack(head)
            if magic == MAGIC and length <= min(RECORD_BYTES_MAX, size - begin - _FRAME.size):
                body = file.read(length)
                if zlib.crc32(body, zlib.crc32(head[_CHECKED:])) == crc:
                    return _Record(kind, body, synced)
        file.seek(begin)
    return None


def _check_end(file: IO[bytes]) -> None:
    """Checks that nothing after here was synced.

    Raises:
        Damaged: something was.
    """
    with _reading():
        begin = file.tell()
        rest = file.read()
    records = io.BytesIO(rest)
    at = rest.find(MAGIC)
    while at >= 0:
        records.seek(at)
        found = _record(records, len(rest))
        if found is not None and found.synced > begin:
            raise Damaged(f"byte {begin} was written and synced, and now is damaged")
        at = rest.find(MAGIC, at + 1)


class DiskLog:
    """The log of one member, which no other process uses meanwhile.

    ``read``, ``begin`` and ``append`` are called by one thread, in the order of the group; ``sync`` by another.

    Args:
        path: that of the votes (``stable=``); the log has the same name plus `SUFFIX`.
        cluster, name: of the member.

    Attributes:
        mark: how far the state given to ``begin`` and ``append`` goes.
        waits: times that the replica waited because the disk was slow.

    Raises:
        ConfigError: the log is in use, or has no directory.
    """

    def __init__(self, path: str, cluster: str, name: str) -> None:
        self._path, self._votes, self._whose = Path(f"{path}{SUFFIX}"), Path(path), [VERSION, cluster, name]
        self._later = 1 + zlib.crc32(name.encode()) % 64 / 64  # times the limit
        self.mark = Mark()
        self.waits = 0
        self._over = False  # nothing is written any more
        self._changed = threading.Condition()  # of the following:
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._writing = threading.Lock()  # of the files, and:
        self._file: IO[bytes] | None = None  # to which records are appended
        self._fresh = False  # not in its place yet
        self._size = self._synced = 0  # of the file
        self._snapshot = self._since = 0  # bytes of the snapshot, and later ones
        try:
            self._lock = locked(f"{self._path}{LOCK}")
        except (OSError, ValueError) as error:  # the file may be whole, so nothing is said of its removal
            raise unusable(f"stable={path!r}: {self._path}: {getattr(error, 'strerror', None) or error}") from error

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._refuse(error.strerror or str(error), error)
        except ValueError as error:
            self._refuse(str(error), error)

    def _refuse(self, why: str, cause: BaseException | None = None) -> NoReturn:
        raise unusable(
            f"stable={str(self._votes)!r}: {self._path}: {why}. Without this file and that of the votes a member is a "
            "new one, and takes over the state of the others"
        ) from cause

    # ---- reading, once

    def read(
        self, restore: Callable[[Callable[..., bytes]], object], replay: Callable[[Entered | Told], object]
    ) -> bool:
        """Hands over the state on disk.

        Args:
            restore: gets the function that reads the snapshot.
            replay: gets each message and view after the snapshot.

        Returns:
            False: there is no file.

        Raises:
            ConfigError: the file cannot be read, or is missing beside the votes.
            OtherRelease: another release has written the file.
        """
        with self._refusing():
            try:
                raw = open_file(self._path)
            except FileNotFoundError:
                if self._votes.exists():
                    self._refuse("no such file beside that of the votes: remove the votes")
                return False
            sync(self._path)  # others may rely on the state that is read, and a killed process may not have synced it
            sync_directory(self._path)
        try:
            with raw:
                size = os.fstat(raw.fileno()).st_size
                self._read(io.BufferedReader(raw, PIECE_BYTES), size, restore, replay)
        except Damaged as error:  # errors of the machine are its own
            self._refuse(str(error), error)
        except OtherRelease as other:  # this member has written the file itself, so no other one can be upgraded
            fact = without_code(other).partition(":")[0]
            raise OtherRelease(f"stable={str(self._votes)!r}: {self._path}: {fact}{START_THAT}") from other
        return True

    def _read(
        self, file: IO[bytes], size: int, restore: Callable[[Callable[..., bytes]], object],
        replay: Callable[[Entered | Told], object],
    ) -> None:  # fmt: skip
        head = _record(file, size)
        try:
            whose = json.loads(head.body) if head is not None and head.kind == HEAD else None
        except ValueError:
            whose = None
        if whose is None:
            raise Damaged("no log of a replica, or damaged")
        if isinstance(whose, list) and whose[1:] == self._whose[1:] and whose[0] != VERSION:
            said = f"another release has written this, in version {whose[0]}, and this member knows {VERSION}"
            raise OtherRelease(said)
        if whose != self._whose:
            raise Damaged(f"of (version, cluster, name) {whose}, and not of {self._whose}")
        snapshot = _Snapshot(file, size)
        restore(snapshot.read)
        snapshot.finish()
        while (record := _record(file, size)) is not None:
            if record.kind == VIEW and len(record.body) % _COUNTER.size == 0 and record.body:
                reached, *ids = struct.unpack(f"<{len(record.body) // _COUNTER.size}Q", record.body)
                replay(Entered(reached, tuple(ids)))
            elif record.kind == ENTRY and len(record.body) >= _TIME.size:
                try:
                    replay(Told(_TIME.unpack_from(record.body)[0], record.body[_TIME.size :]))
                except Malformed as error:
                    raise Damaged(f"a message that no replica sends: {error}") from error
            else:
                raise Damaged(f"invalid record of kind {record.kind}")
        _check_end(file)

    # ---- writing

    def begin(self, mark: Mark, snapshot: Callable[[Callable[[bytes], None]], object]) -> None:
        """Begins a new file with the present state, in place of the one before once ``sync`` is called.

        Raises:
            StableFailed: the disk is full, or reports an error.
        """
        with self._writing:
            if self._over:  # another process may have the files by now
                raise unwritten(self._path, OSError(errno.EBADF, "closed"))
            self._close_file()
            with self._changed:
                self._pending, self._pending_bytes = [], 0
                self.mark = mark
            try:
                try:
                    number = os.open(f"{self._path}{NEW}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                except OSError as error:
                    raise unwritten(self._path, error) from error
                self._file, self._fresh, self._size, self._synced = open(number, "wb"), True, 0, 0
                self._write(framed(HEAD, json.dumps(self._whose).encode(), 0))
                pieces = _Pieces(lambda piece: self._write(framed(PIECE, piece, 0)))
                snapshot(pieces.write)
                pieces.end()
                self._write(framed(END, b"", 0))
            except BaseException:  # an error in the machine's snapshot is not the disk's
                self._give_up()
                raise
            self._snapshot, self._since = self._size, 0

    def keep_aside(self) -> Path:
        """Keeps the present file under another name, in place of an earlier one that was kept, and returns its path.

        Raises:
            StableFailed: the disk is full, or reports an error.
        """
        aside, made = Path(f"{self._path}{ASIDE}"), Path(f"{self._path}{ASIDE}{NEW}")
        try:
            shutil.copyfile(self._path, made)
            sync(made)
            os.replace(made, aside)
            sync_directory(aside)
        except OSError as error:
            raise unwritten(aside, error) from error
        return aside

    def _write(self, data: bytes) -> None:
        if self._file is None:
            raise unwritten(self._path, OSError(errno.EBADF, "closed after an error"))
        try:
            self._file.write(data)
        except OSError as error:
            self._give_up()
            raise unwritten(self._path, error) from error
        self._size += len(data)

    def append(self, what: Entered | Told, mark: Mark) -> None:
        """The next record. The state then goes to ``mark``."""
        if isinstance(what, Told):
            kind, body = ENTRY, _TIME.pack(what.now_ns) + what.payload
        else:
            kind, body = VIEW, struct.pack(f"<{1 + len(what.ids)}Q", what.counter, *what.ids)
        data = framed(kind, body, self._synced)
        with self._changed:
            if self._pending_bytes > PENDING_BYTES_MAX:
                self.waits += 1
                self._changed.wait_for(lambda: self._over or self._pending_bytes <= PENDING_BYTES_MAX)
            self._pending.append(data)
            self._pending_bytes += len(data)
            self._since += len(data)
            self.mark = mark

    @property
    def outgrown(self) -> bool:
        """A new snapshot is due."""
        return self._since > self._later * max(CUT_BYTES_MIN, self._snapshot)

    def sync(self) -> Mark:
        """Writes and syncs the records that were appended. Returns how far the file certainly goes now.

        Raises:
            StableFailed: that is not certain, and never will be.
        """
        with self._writing:
            with self._changed:
                pending, self._pending, mark = self._pending, [], self.mark
            file = self._file
            if file is None:
                raise unwritten(self._path, OSError(errno.EBADF, "closed after an error"))
            try:
                for data in pending:
                    self._write(data)
                file.flush()
                getattr(os, "fdatasync", os.fsync)(file.fileno())
                if self._fresh:
                    os.replace(f"{self._path}{NEW}", self._path)
                    sync_directory(self._path)
                    self._fresh = False
            except OSError as error:  # after a failed sync the disk has nobody knows which part: not tried again
                self._give_up()
                raise unwritten(self._path, error) from error
            self._synced = self._size
            with self._changed:
                self._pending_bytes -= sum(map(len, pending))
                self._changed.notify_all()
            return mark

    def _give_up(self) -> None:
        self._close_file()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _close_file(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = None

    def close(self) -> None:
        """After the last call of the others, unless one of these hangs as its disk does. Then the file stays locked
        until the process ends, and others are told so."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if not self._writing.acquire(timeout=CLOSE_S):
            log.warning(codes.DISK_HANGS(f"{self._path}: a write or a sync has not returned for {CLOSE_S:g} s"))
            return
        try:
            self._close_file()
        finally:
            self._writing.release()
        self._lock.close()


class _Pieces:
    """Gathers the pieces of a machine into records of the snapshot."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write, self._buffer = write, bytearray()

    def write(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= PIECE_BYTES:
            self._write(bytes(self._buffer[:PIECE_BYTES]))
            del self._buffer[:PIECE_BYTES]

    def end(self) -> None:
        if self._buffer:
            self._write(bytes(self._buffer))


class _Snapshot:
    """The snapshot at the beginning of a file."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._records = self._read(file, size)
        self._piece = io.BytesIO()

    def _read(self, file: IO[bytes], size: int) -> Iterator[bytes]:
        while (record := _record(file, size)) is not None and record.kind == PIECE:
            yield record.body
        if record is None or record.kind != END:
            raise Damaged("the snapshot is damaged")

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes, as of a file."""
        if size is None or size < 0:
            return b"".join((self._piece.read(), *self._records))
        data = self._piece.read(size)
        while len(data) < size and (piece := next(self._records, b"")):
            self._piece = io.BytesIO(piece)
            data += self._piece.read(size - len(data))
        return data

    def finish(self) -> None:
        """Passes over the rest."""
        for _ in self._records:
            pass
