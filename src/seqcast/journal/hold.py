"""Whether the process that writes a journal is still there.

The process holds a lock on the file of views for as long as rows may come, and the system frees the lock when the
process ends, in whatever way. The header names the machine: on another one the file system may not show the lock. Some
systems and file systems have none.
"""

from __future__ import annotations

import functools
import socket
from pathlib import Path

from seqcast.files import open_file, read_file
from seqcast.journal.records import RecordsFile
from seqcast.journal.schema import VIEWS_FILE

BOOT = "/proc/sys/kernel/random/boot_id"


@functools.cache
def machine() -> str:
    """The name of this machine, with the time of its start if the system tells."""
    try:
        return read_file(BOOT, 64).decode().strip()
    except (OSError, ValueError):
        return socket.gethostname()


def hold(file: RecordsFile) -> str:
    """Locks a file until its end; returns the name of this machine. Empty: locks cannot be had here."""
    try:
        import fcntl  # absent on Windows

        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return ""
    return machine()


def is_written(path: Path, locked: str) -> bool | None:
    """Whether the writer of the journal in a directory is still there; None: nothing tells.

    Args:
        locked: as the header says.
    """
    if locked != machine():
        return None
    try:
        import fcntl

        with open_file(path / VIEWS_FILE) as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return None
    return False
