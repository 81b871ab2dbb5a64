"""The loops that people write first, as a sender and a receiver run them: one message at a time, plain and asyncio."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any

DISTINCT = 1024
"""Messages carry their number modulo this. One in this many is checked, so that the loop is measured, not the check."""
END = b""
"""The message after the last one; all others have at least eight bytes."""
_number = struct.Struct("<Q")


class Payloads:
    """The payloads of a sender: the same ``DISTINCT`` ones again and again.

    Args:
        size: bytes of each.
    """

    def __init__(self, size: int) -> None:
        self._payloads = [_number.pack(n) + bytes(size - _number.size) for n in range(DISTINCT)]
        self.count = 0
        """Messages sent; exact between two turns."""

    def until(self, until_ns: int) -> Iterator[list[bytes]]:
        """Turns of payloads until ``until_ns`` (monotonic)."""
        while time.monotonic_ns() < until_ns:
            yield self._payloads
            self.count += DISTINCT


class Tally:
    """Counts the messages that a receiver gets from one sender, until the sender's last message.

    Args:
        size: bytes of each message.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.count = 0
        self.wrong = 0
        """Checked messages that are not the expected ones."""
        self.last_ns = time.monotonic_ns()
        """Monotonic time of the last message, ns."""

    def _is_wrong(self, payload: bytes, number: int) -> bool:
        return len(payload) != self._size or _number.unpack_from(payload)[0] != number

    def take(self, group: Any) -> None:
        """Receives from a group, in a plain loop."""
        count = 0
        for message in group:
            payload = message.payload
            if not payload:
                break
            if count % DISTINCT == 0 and self._is_wrong(payload, 0):
                self.wrong += 1
            count += 1
        self.count, self.last_ns = count, time.monotonic_ns()

    async def take_async(self, group: Any) -> None:
        """The same in asyncio."""
        count = 0
        async for message in group:
            payload = message.payload
            if not payload:
                break
            if count % DISTINCT == 0 and self._is_wrong(payload, 0):
                self.wrong += 1
            count += 1
        self.count, self.last_ns = count, time.monotonic_ns()
