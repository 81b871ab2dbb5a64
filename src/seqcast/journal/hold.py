"""Whether the process that writes a journal is still there.

The process holds a lock on the file of views for as long as rows may come, and the system frees the lock when the
process ends, in whatever way. The header says whether a journal has one: some systems and file systems have none.
"""

from __future__ import annotations

from pathlib import Path

from seqcast.files import open_file
from seqcast.journal.records import RecordsFile
from seqcast.journal.schema import VIEWS_FILE


def hold(file: RecordsFile) -> bool:
    """Locks a file until it is closed. False: that cannot be done here."""
    try:
        import fcntl  # absent on Windows

        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def is_free(path: Path) -> bool:
    """Whether nobody holds the journal in a directory, whose header says that its writer does."""
    try:
        import fcntl

        with open_file(path / VIEWS_FILE) as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (ImportError, OSError):  # the second: held, or gone
        return False
    return True
