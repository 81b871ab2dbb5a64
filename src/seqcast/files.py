"""Reading files that others may have put there: only regular files, no links, and with a limit on the bytes read.

Anyone who can write to a directory of journals can put anything under a name that is read: a FIFO, which would block
its reader for ever, a link to a file of another user, a sparse file of a terabyte.
"""

from __future__ import annotations

import errno
import os
import stat
from io import FileIO
from pathlib import Path

_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)  # or to open a FIFO would block
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
PIECE_BYTES = 1 << 20
NAMED_BYTES_MAX = 1 << 20
"""The most bytes of a file that the user names: settings, a token, certificates."""


def open_file(path: str | Path, *, links: bool = False, kind: type[FileIO] = FileIO) -> FileIO:
    """Opens a regular file for reading.

    Args:
        kind: class of the result.
        links: follow a link, for a file that the user names: secrets are often mounted as links. The directories on
            the way may be links in any case.

    Raises:
        OSError: the file cannot be opened, is a link, or is not a regular file.
    """
    if not links and not _NO_LINKS and os.path.islink(path):
        raise _refused(path, "a link, and links are not followed here")
    try:
        number = os.open(path, _FLAGS | (0 if links else _NO_LINKS))
    except OSError as error:
        if error.errno == errno.ELOOP and not links:
            raise _refused(path, "a link, and links are not followed here") from error
        raise
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        raise _refused(path, os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "not a regular file")
    return kind(number)


def read_file(path: str | Path, bytes_max: int, *, links: bool = False) -> bytes:
    """All of a regular file.

    Args:
        bytes_max: the most that the file may have.
        links: as for ``open_file``.

    Raises:
        OSError: as for ``open_file``, or the file cannot be read or is larger.
    """
    with open_file(path, links=links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > bytes_max:
            raise _refused(path, f"the file has {size:,} bytes; at most {bytes_max:,} are allowed")
        data = file.read(size + 1)
        while piece := file.read(PIECE_BYTES):  # for a file that grew meanwhile, or whose size is unknown
            data += piece
            if len(data) > bytes_max:
                raise _refused(path, f"the file has more than {bytes_max:,} bytes, the most allowed")
    return data


def _refused(path: str | Path, why: str) -> OSError:
    return OSError(errno.EINVAL, why, str(path))
