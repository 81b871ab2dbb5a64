"""A member whose application keeps the rows of atomic batches."""

import contextlib
import threading
from typing import Any

from members import join

import seqcast
from seqcast.blocks.batches import Batches


class Table:
    """A member whose state is all delivered rows, in order."""

    def __init__(self, name: str, who: str) -> None:
        self.rows: list[bytes] = []
        self.batches = Batches(self)
        self.group = join(name, who, state=self.batches)
        self.thread = threading.Thread(target=self._receive, daemon=True)
        self.thread.start()

    def _receive(self) -> None:
        with contextlib.suppress(seqcast.NotMember):
            for message in self.batches.receive(self.group):
                self.rows.append(message.payload)

    def get_state(self, write: Any) -> None:
        write(b"\n".join(self.rows))

    def set_state(self, read: Any) -> None:
        self.rows = [row for row in read().split(b"\n") if row]
