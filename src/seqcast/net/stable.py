"""The file of a member's votes (``stable=``): one small record, replaced as a whole.

A record is written to a file beside it, which is synced, and takes its name; then the directory is synced. So after a
crash the file holds the previous record or the new one. A record has a checksum, and names its cluster and member.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from pathlib import Path
from typing import IO

import seqcast.codes as codes
from seqcast.core.frames.recalling import Kept
from seqcast.errors import ConfigError, RemoteProtocolError, StableFailed
from seqcast.files import read_file

MAGIC = b"seqcast stable "
VERSION = 1
BYTES_MAX = 1 << 20
"""The most bytes of a record: two VIEWs."""
NEW, LOCK = ".new", ".lock"
"""Beside the file: the next record, before taking the name; and the lock of the process that uses the file."""


def encoded(cluster: str, name: str, kept: Kept) -> bytes:
    body = json.dumps([cluster, name], ensure_ascii=False).encode() + b"\n" + kept.dump()
    return MAGIC + b"%d %08x\n" % (VERSION, zlib.crc32(body)) + body


class _Damaged(ValueError):
    """Not a file in the form that members write."""


def decoded(data: bytes, cluster: str, name: str) -> Kept:
    """
    Raises:
        ValueError: this is no record, or one that is damaged, or of another release, cluster or member.
    """
    head, _, body = data.partition(b"\n")
    words = head.removeprefix(MAGIC).split()
    if not head.startswith(MAGIC) or len(words) != 2 or not words[0].isdigit():
        raise _Damaged("the file is of another kind")
    if int(words[0]) != VERSION:
        raise ValueError(f"the file is of version {int(words[0])}, and this release reads {VERSION}")
    if words[1] != b"%08x" % zlib.crc32(body):
        raise _Damaged("the file is damaged: its checksum is wrong")
    whose, _, kept = body.partition(b"\n")
    try:
        written = json.loads(whose)
        if written != [cluster, name]:
            told = "the file is of {1!r} in {0!r}, and this is {2!r} in {3!r}"
            raise ValueError(told.format(*written, name, cluster))
        return Kept.load(kept)
    except (RemoteProtocolError, IndexError, TypeError) as error:
        raise _Damaged(f"the file cannot be read: {error}") from None


def locked(path: str) -> IO[bytes]:
    """An open file, locked against other processes.

    Raises:
        ValueError: another process has the lock.
        OSError: the file cannot be opened.
    """
    file = open(path, "ab")
    try:
        import fcntl  # absent on Windows

        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        pass
    except BlockingIOError:
        file.close()
        raise ValueError("another process uses the file") from None
    except OSError:
        pass  # the file system has no locks
    return file


def sync(path: Path, flags: int = os.O_RDWR) -> None:
    """Makes a file outlast the machine.

    Args:
        flags: for opening the file.
    """
    opened = os.open(path, flags)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_directory(path: Path) -> None:
    """Makes the name of a file outlast the machine."""
    if hasattr(os, "O_DIRECTORY"):
        sync(path.parent, os.O_RDONLY | os.O_DIRECTORY)


def unusable(text: str) -> ConfigError:
    """The error for a file that this member cannot use."""
    error = ConfigError(codes.STABLE_FILE(text))
    error.code = codes.STABLE_FILE.number
    return error


def unwritten(path: Path, error: OSError) -> StableFailed:
    """The error for a file that could not be written or synced."""
    text = f"stable={str(path)!r} cannot be written: {error.strerror or error}; this member has left"
    return StableFailed(codes.STABLE_WRITE(text))


class StableFile:
    """The record of one member, which no other process uses meanwhile.

    Args:
        path: of the file; its directory must exist.
        cluster, name: whose it is.

    Attributes:
        kept: the record; None: there is no file yet.

    Raises:
        ConfigError: the file cannot be used.
    """

    def __init__(self, path: str, cluster: str, name: str) -> None:
        self._path, self._whose = Path(path), (cluster, name)
        self.kept: Kept | None = None
        try:
            self._lock = locked(f"{self._path}{LOCK}")
            try:
                with contextlib.suppress(FileNotFoundError):
                    self.kept = decoded(read_file(self._path, BYTES_MAX), cluster, name)
            except BaseException:
                self.close()
                raise
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from error
        except ValueError as error:
            raise self._refused(str(error), damaged=isinstance(error, _Damaged)) from error

    def _refused(self, why: str, damaged: bool = False) -> ConfigError:
        remedy = "Give each member a file of its own"
        if damaged:
            remedy = f"Remove {self._path} and {self._path}.log, if it was this member's"
        return unusable(
            f"stable={str(self._path)!r}: {why}. {remedy}; without its file a member is a new one, and has no vote"
        )

    def write(self, kept: Kept) -> None:
        """
        Raises:
            StableFailed: the record may not outlast the machine.
        """
        try:
            number = os.open(f"{self._path}{NEW}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(number, "wb") as file:
                file.write(encoded(*self._whose, kept))
                file.flush()
                os.fsync(number)
            os.replace(f"{self._path}{NEW}", self._path)
            sync_directory(self._path)
        except OSError as error:
            raise unwritten(self._path, error) from error
        self.kept = kept

    def close(self) -> None:
        self._lock.close()
