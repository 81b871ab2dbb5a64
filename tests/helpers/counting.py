"""A state machine for tests: a number to which operations add."""

import struct


class Counting:
    """An operation is a number as text; the answer is the sum so far."""

    def __init__(self):
        self.total = 0
        self.applied = 0

    def apply(self, operation):
        self.total += int(operation)
        self.applied += 1
        return str(self.total).encode()

    def snapshot(self, write):
        write(struct.pack("<qq", self.total, self.applied))

    def restore(self, read):
        self.total, self.applied = struct.unpack("<qq", read())
