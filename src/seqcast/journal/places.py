"""Which directories hold journals, and of which members."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from seqcast.journal.header import header_text, parse_header
from seqcast.journal.reader import Journal, read
from seqcast.journal.schema import HEADER_FILE, VIEWS_FILE, JournalError

if TYPE_CHECKING:
    from collections.abc import Sequence


def find(paths: Sequence[str | Path], *, open_segments: bool = True) -> list[Journal]:
    """Journals in the given directories: each directory is a member's own, or holds members' directories.

    Args:
        open_segments: as of `read`.

    Raises:
        JournalError: no journal there, or one that cannot be read; one line that names it and the remedy.
    """
    directories: dict[Path, None] = {}
    for given in map(Path, paths):
        try:
            if not stat.S_ISDIR(given.stat().st_mode):  # `exists` of Python 3.14 does not tell why not
                raise JournalError(f"{given} is a file; give the directory of a member's journal, or its parent")
        except (FileNotFoundError, NotADirectoryError, ValueError) as error:  # the last: of a NUL in the path
            raise JournalError(
                f"{given}: no such directory; give the directory that the members journaled to"
            ) from error
        except OSError as error:
            raise JournalError(f"{given} cannot be read: {error.strerror}") from error
        inside = _journals_in(given)
        if not inside:
            raise JournalError(f"{given} holds no journal (no {HEADER_FILE} there or one directory below)")
        directories.update(dict.fromkeys(_place(path, given) for path in inside))
    return [read(path, open_segments=open_segments) for path in sorted(directories)]


def journal_files(paths: Sequence[str | Path], *, strict: bool = False) -> dict[int, Path]:
    """The journals in the given directories now: id of the member -> its directory. Leaves out missing parts,
    directories that may not be read, journals that this version cannot read, and copies of one before, by name.

    Raises:
        JournalError: if ``strict``, instead of leaving out unreadable journals, or those found twice.
    """
    found: dict[int, Path] = {}
    unreadable = contextlib.nullcontext() if strict else contextlib.suppress(JournalError)
    for given in map(Path, paths):
        with unreadable:
            for path in _journals_in(given) if os.path.isdir(given) else ():
                with unreadable:
                    member, place = _member_at(path, given)
                    if found.setdefault(member, place) != place:
                        raise same_member(found[member], place)
    return found


def _member_at(path: Path, given: Path) -> tuple[int, Path]:
    """Of a journal found in a given directory: the id of its member, and its place.

    Raises:
        JournalError: its header cannot be read.
    """
    try:
        of = os.stat(f"{path}/{HEADER_FILE}")
    except OSError:
        return _member_of(path, given)  # raises with the reason
    return _member_known(path, given, of.st_dev, of.st_ino, of.st_size, of.st_mtime_ns, of.st_ctime_ns)


@functools.lru_cache(maxsize=1024)  # a follower asks for all of them once a second, and a header is written once
def _member_known(path: Path, given: Path, *_: int) -> tuple[int, Path]:
    """As `_member_of`, once for each identity of the header's file."""
    return _member_of(path, given)


def _member_of(path: Path, given: Path) -> tuple[int, Path]:
    return int(parse_header(header_text(path), path)["member"]["id"], 16), _place(path, given)


def same_member(one: Path, other: Path) -> JournalError:
    """The error that two directories are journals of one member."""
    return JournalError(f"{one} and {other} are journals of the same member: give one of them")


def _journals_in(top: Path) -> list[Path]:
    """The directory itself, if of a journal, or those in it that are.

    Raises:
        JournalError: permission denied.
    """
    try:
        if _is_journal(top):
            return [top]
        with os.scandir(top) as entries:
            inside = sorted(each.path for each in entries if each.is_dir() or each.is_symlink())
        return [Path(path) for path in inside if _is_journal(path)]
    except OSError as error:
        raise JournalError(f"{top} cannot be read: {error.strerror}") from error


def _place(path: Path, given: Path) -> Path:
    """Where the journal is that was found in a given directory, under any name of the way there.

    Raises:
        JournalError: a link in that directory leads out, perhaps to files that others must not read.
    """
    place = path.resolve()
    if not place.is_relative_to(given.resolve()):
        raise JournalError(f"{path} is a link to {place}, which is not followed: give that directory")
    return place


def _is_journal(path: str | Path) -> bool:
    """The views are written after the header: a missing header was lost, and its journal must not be left out."""
    return os.path.exists(f"{path}/{HEADER_FILE}") or os.path.exists(f"{path}/{VIEWS_FILE}")
