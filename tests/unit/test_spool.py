"""The store of a state on its way: in memory up to a bound, and the rest in a file that all its readers share."""

from __future__ import annotations

import random

import pytest

from seqcast.net.spool import Spool


def filled(data: bytes, memory_bytes: int, step: int) -> Spool:
    spool = Spool(memory_bytes)
    for at in range(0, len(data), step):
        spool.write(data[at : at + step])
    return spool


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_a_state_of_just_as_much_as_memory_may_hold_needs_no_file(beyond: int) -> None:
    data = random.Random(1).randbytes(200_000 + beyond)
    spool = filled(data, 200_000, 7001)
    assert (spool._file is None) == (beyond <= 0)
    assert b"".join(spool.chunks()) == spool.reader()() == data
    spool.close()


def test_two_joiners_that_read_by_turns_have_the_whole_state_each() -> None:
    """And a third that begins when they are half way."""
    data = random.Random(1).randbytes(300_000)
    spool = filled(data, 50_000, 999)
    one, other, got = spool.chunks(4000), spool.chunks(7000), [b"", b"", b""]
    for _ in range(30):
        got[0] += next(one)
        got[1] += next(other)
    read = spool.reader()
    while len(got[2]) < len(data):
        got[0] += next(one, b"")
        got[1] += next(other, b"")
        got[2] += read(9001)
    got[0] += b"".join(one)
    got[1] += b"".join(other)
    assert got == [data] * 3 and read() == b""
    spool.close()
