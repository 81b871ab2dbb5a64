"""Where boards are, making one, and removing those of processes that have ended.

A board is a mapped file, and must lie in memory: a page of a file on a disk is written back now and then, and a process
that counts there waits for the disk. So the directory is the user's own one in ``$XDG_RUNTIME_DIR``, or else in
``/dev/shm``; macOS, which has neither, has a temporary directory for each user.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

BYTES = 128 << 10
"""``SC_BOARD_BYTES``."""
ENDING = ".board"
SOCKET = ".sock"
"""The ending of the socket beside the board, on which a member is asked about the others."""
KEPT = 32
"""Boards of processes that ended without removing theirs, at most, and for how long, in seconds. A process of another
PID namespace (a container) counts as ended when its file was not touched for this long."""
TOUCH_NS = 600 * 10**9
"""How often a member touches its file: stores into mapped memory do not change its time."""
KEPT_S = 3600.0
NAME_MAX = 80  # characters of a cluster's or a member's name in a file's name
FILE_MAX = 240  # characters of both there, as some take several
_SHARED_MEMORY = Path("/dev/shm")


class Made:
    """A member's board.

    Attributes:
        path: of the file.
        memory: its bytes, mapped.
    """

    def __init__(self, path: Path, memory: mmap.mmap) -> None:
        self.path, self.memory = path, memory

    def touch(self) -> None:
        """Shows that the member lives, to processes that do not see its own."""
        for path in (self.path, socket_of(self.path)):
            with contextlib.suppress(OSError):
                os.utime(path)

    def remove(self) -> None:
        """Removes the file; the memory stays as long as somebody uses the mapping."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def make(cluster: str, name: str, member_id: int) -> Made:
    """A new board, all zeros, readable by this user only. Old ones of processes that have ended are removed.

    Raises:
        OSError: no board can be made; the text says why.
    """
    if sys.platform == "win32":
        raise OSError("Windows keeps mapped files for ever")
    folder = _own_folder()
    remove_old(folder)
    named = f"{_quoted(cluster)}.{_quoted(name)}"[:FILE_MAX]
    path = folder / f"{named}.{os.getpid()}-{_pids()}-{member_id & 0xFFFFFFFF:08x}{ENDING}"
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        # Written, not only made as long: without room for a page, a store there would end the process.
        if os.write(number, bytes(BYTES)) != BYTES:
            raise OSError(f"{folder} is full")
        return Made(path, mmap.mmap(number, BYTES))
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(number)


def _quoted(name: str) -> str:
    return quote(name[:NAME_MAX], safe="").replace(".", "%2E")


class Named(NamedTuple):
    """The fields of a board that are in its file's name, for a board whose process was killed before it wrote them."""

    cluster: str
    name: str
    pid: int
    pids: str


def named(board: Path) -> Named | None:
    """None: the file has another name."""
    parts = board.name.removesuffix(ENDING).split(".")
    pid, _, rest = parts[-1].partition("-")
    if len(parts) != 3 or not pid.isdecimal():
        return None
    namespace = rest.partition("-")[0]
    return Named(unquote(parts[0]), unquote(parts[1]), int(pid), f"pid:[{namespace}]" if namespace != "0" else "")


def of_cluster(path: Path, cluster: str) -> bool:
    """May the file be a board of this cluster, by its name? "": of any. Long names are cut there, so only those may be
    taken for others."""
    return not cluster or path.name.startswith(f"{_quoted(cluster)}."[:FILE_MAX])


def ended(board: Path) -> bool:
    """By its name, the process of a board has ended, or its file is gone."""
    try:
        return _ended(board, _process(board))
    except OSError:
        return True


def _process(board: Path) -> str:
    """The part of a board's name that says which member's it is."""
    return board.name.removesuffix(ENDING).rpartition(".")[2]


def socket_of(board: Path) -> Path:
    """The socket beside a board; its name is short, as a socket's path has at most 107 bytes."""
    return board.with_name(_process(board) + SOCKET)


def folders() -> Iterator[Path]:
    """The directories that may have boards that this user may read: root reads those of all users."""
    if sys.platform == "win32":
        return
    yield from dict.fromkeys((*_candidates(), Path(f"/run/user/{os.geteuid()}/seqcast")))  # the member's session
    if os.geteuid() == 0:
        yield from sorted(_SHARED_MEMORY.glob("seqcast-*"))
        yield from sorted(Path("/run/user").glob("*/seqcast"))


def files() -> list[Path]:
    """The boards on this machine."""
    found: dict[Path, None] = {}
    for folder in folders():
        with contextlib.suppress(OSError):
            _check(folder, mine=os.geteuid() != 0)
            found.update(dict.fromkeys(sorted(folder.glob(f"*{ENDING}"))))
    return list(found)


def remove_old(folder: Path) -> None:
    """Removes boards of processes that have ended: those older than ``KEPT_S``, and the oldest beyond ``KEPT``."""
    left = []
    for path in folder.glob(f"*{ENDING}"):
        with contextlib.suppress(OSError):
            if _ended(path, _process(path)):
                left.append((path.lstat().st_mtime, path))
    for path in folder.glob(f"*{SOCKET}"):
        with contextlib.suppress(OSError):
            if _ended(path, path.name.removesuffix(SOCKET)):
                path.unlink()
    left.sort(reverse=True)
    for at, (_, path) in enumerate(left):
        with contextlib.suppress(OSError):
            if at >= KEPT - 1 or old(path):
                path.unlink()


def _ended(path: Path, of: str) -> bool:
    """The process of which this file is has ended; ``of``: the part of its name that says which process that is."""
    pid, _, rest = of.partition("-")
    here = rest.partition("-")[0] == _pids()
    return pid.isdecimal() and (not runs(int(pid)) if here else old(path))


def old(path: Path) -> bool:
    """The file was last touched longer ago than boards of ended processes are shown.

    Raises:
        OSError: there is no such file.
    """
    return time.time() - path.lstat().st_mtime > KEPT_S


def runs(pid: int) -> bool:
    """A process has this number. One that has ended, and for which its parent has yet to wait, does not run."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return process_state(pid)[:1] != ["Z"]


def process_state(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` from the third on; none: not known."""
    if not sys.platform.startswith("linux"):
        return []
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _pids() -> str:
    """A number for the PID namespace, in which process numbers have a meaning; "0": there is only one."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"


def _candidates() -> list[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    shared = _SHARED_MEMORY if sys.platform.startswith("linux") else Path(tempfile.gettempdir())
    own = shared / f"seqcast-{os.geteuid()}"
    return [Path(runtime) / "seqcast", own] if os.path.isabs(runtime) else [own]


def _own_folder() -> Path:
    """The first directory that can be had.

    Raises:
        OSError: none can; the text says why not the last one.
    """
    trouble: OSError | None = None
    for folder in _candidates():
        try:
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            _check(folder, mine=True)
            return folder
        except OSError as error:
            trouble = error
    raise trouble or OSError("no directory can hold the board")


def _check(folder: Path, *, mine: bool) -> None:
    """
    Raises:
        OSError: the path is not a directory, is another user's, or writable by others.
    """
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode):
        raise OSError(f"{folder} is not a directory")
    if mine and (seen.st_uid != os.geteuid() or seen.st_mode & 0o077):
        raise OSError(f"{folder} must belong to this user alone (chmod 700)")
