"""A file of sealed JSON lines that is only added to."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from seqcast.journal import seals
from seqcast.journal.stream import write_all


class RecordsFile:
    """Adds records. A record that a full disk took in part can be cut off again.

    Raises:
        OSError: the file cannot be made, and from each method: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self.size = self._file.tell()
        """Bytes of the records that count."""

    def write(self, record: dict[str, Any]) -> None:
        """Adds a record, whole or not at all."""
        data = seals.seal(record).encode() + b"\n"
        try:
            write_all(self._file, data)
        except OSError:
            with contextlib.suppress(OSError):  # no file of a disk
                os.ftruncate(self._file.fileno(), self.size)
            raise
        self.size += len(data)

    def fileno(self) -> int:
        """The descriptor of the open file."""
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
