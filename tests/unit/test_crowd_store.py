"""The store of a late-join handler: safe when its process is killed, bounded, and never believed blindly."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from members import script

from seqcast.crowd.datagrams import make_id
from seqcast.crowd.store import ROW_BYTES, PacketStore
from seqcast.errors import ConfigError

ONE, TWO = (make_id(bytes([10, 0, 0, n]), 5000, n) for n in (1, 2))


def opened(path: Path, bytes_max: int = 1 << 30, **more: Any) -> PacketStore:
    return PacketStore(str(path), "crowd", bytes_max, **more)


def test_stored_packets_are_found_again(tmp_path: Path) -> None:
    store = opened(tmp_path / "a")
    for seqno in (1, 2, 3):
        store.put(ONE, seqno, b"%d" % seqno)
    store.put(TWO, 7, b"")
    store.close()
    again = opened(tmp_path / "a")
    assert again.kept() == {ONE: (1, 3), TWO: (7, 7)} and again.ends() == {ONE: 3, TWO: 7}
    assert list(again.find(ONE, 2, 9)) == [(2, b"2"), (3, b"3")] and list(again.find(TWO, 1, 9)) == [(7, b"")]
    assert again.counters["store_packets"] == 4 and again.counters["store_bytes"] == 3 + 4 * ROW_BYTES
    again.close()


def test_the_oldest_go_first_when_it_is_full_and_how_far_it_came_is_not_forgotten(tmp_path: Path) -> None:
    store = opened(tmp_path / "a", 100 * (1000 + ROW_BYTES))
    for seqno in range(1, 2001):
        store.put(ONE, seqno, bytes(1000))
        if seqno % 50 == 0:
            store.flush()
    first, last = store.kept()[ONE]
    assert last == 2000 and first > 1500
    assert store.counters["store_bytes"] <= 100 * (1000 + ROW_BYTES)
    assert store.counters["store_collected"] == first - 1
    assert list(store.find(ONE, 1, first - 1)) == [] and len(list(store.find(ONE, first, last))) == last - first + 1
    store.close()
    again = opened(tmp_path / "a", 1 << 16)
    assert again.kept()[ONE] == (first, last) and again.ends() == {ONE: 2000}
    again.close()


def test_senders_that_are_gone_are_forgotten_at_last(tmp_path: Path) -> None:
    """Anyone can send under ever new ids: without a bound the file and the memory would grow with them."""
    store = opened(tmp_path / "a", 1 << 16)
    with mock.patch("seqcast.crowd.store.ENDS_MAX", 20):
        for n in range(1, 201):
            store.put(make_id(bytes([10, 0, 0, n]), 5000, n), 1, bytes(20_000))
            store.flush()
    ends = store.ends()
    assert len(ends) <= 20 + len(store.kept()) + 1 and set(store.kept()) <= set(ends)
    assert make_id(bytes([10, 0, 0, 200]), 5000, 200) in ends
    store.close()
    again = opened(tmp_path / "a")
    assert again.ends() == ends
    again.close()


def test_a_packet_that_comes_twice_does_no_harm(tmp_path: Path) -> None:
    """From a sender forgotten since, after messages of so many others."""
    store = opened(tmp_path / "a")
    for seqno in (1, 2, 3, 1):
        store.put(ONE, seqno, b"%d" % seqno)
    store.put(ONE, 4, b"4")
    store.flush()
    assert store.counters["store_errors"] == 0 and store.counters["store_packets"] == 4
    assert store.kept() == {ONE: (1, 4)} and store.ends() == {ONE: 4}
    store.close()


def test_packets_that_are_too_old_go(tmp_path: Path) -> None:
    now = [1000.0]
    store = opened(tmp_path / "a", age_s=60.0, clock=lambda: now[0])
    store.put(ONE, 1, b"old")
    store.flush()
    now[0] += 50
    store.put(TWO, 1, b"new")
    store.flush()
    assert store.kept() == {ONE: (1, 1), TWO: (1, 1)}
    now[0] += 11
    store.flush()
    assert store.kept() == {TWO: (1, 1)} and store.ends() == {ONE: 1, TWO: 1}
    assert store.counters["store_collected"] == 1
    store.close()


def test_a_damaged_packet_is_not_served(tmp_path: Path) -> None:
    store = opened(tmp_path / "a")
    store.put(ONE, 1, b"one")
    store.put(ONE, 2, b"two")
    store.close()
    with sqlite3.connect(tmp_path / "a") as database:
        database.execute("UPDATE packets SET payload = X'00' WHERE seqno = 1")
    database.close()
    again = opened(tmp_path / "a")
    assert list(again.find(ONE, 1, 2)) == [(2, b"two")] and again.counters["store_bad"] == 1
    again.close()


@pytest.mark.parametrize("tear", ["shorter", "zeros", "page", "text"])
def test_a_torn_file_is_told_and_not_believed(tmp_path: Path, tear: str) -> None:
    path = tmp_path / "a"
    store = opened(path)
    for seqno in range(1, 100):
        store.put(ONE, seqno, bytes(20_000))
    store.close()
    data = path.read_bytes()
    half = len(data) // 8192 * 4096
    # A page in the middle of a payload, which names the page after. Only a look at the whole file finds that.
    page = next(at for at in range(half, len(data), 4096) if int.from_bytes(data[at : at + 4]) == at // 4096 + 2)
    torn = {
        "shorter": data[:half],
        "zeros": data[:half] + bytes(len(data) - half),
        "page": data[:page] + bytes(4096) + data[page + 4096 :],
        "text": b"no database" * 100,
    }
    path.write_bytes(torn[tear])
    with pytest.raises(ConfigError, match=r"damaged.*[Mm]ove it away"):
        opened(path)
    assert path.read_bytes() == torn[tear], "it is left as it was found"


def test_a_file_of_another_crowd_or_in_use_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path / "a")
    with pytest.raises(ConfigError, match="another member"):
        opened(tmp_path / "a")
    store.close()
    with pytest.raises(ConfigError, match="'crowd'"):
        PacketStore(str(tmp_path / "a"), "other", 1 << 20)
    with pytest.raises(ConfigError, match="cannot be opened"):
        PacketStore(str(tmp_path / "nowhere" / "a"), "crowd", 1 << 20)


def test_an_error_of_the_disk_ends_the_handler_and_not_the_member(tmp_path: Path) -> None:
    store = opened(tmp_path / "a")
    store.put(ONE, 1, b"one")
    store.flush()
    store._db.execute("PRAGMA max_page_count = 1")  # from here on: "database or disk is full"
    for seqno in range(2, 50):
        store.put(ONE, seqno, bytes(2000))
    store.flush()
    assert store.counters["store_errors"] == 1 and store.kept() == {}
    store.close()


def test_flushed_rows_survive_a_kill(tmp_path: Path) -> None:
    child = script(
        """
import sys
from seqcast.crowd.store import PacketStore
store = PacketStore(sys.argv[1], "crowd", 1 << 30)
for seqno in range(1, 10**9):
    store.put(int(sys.argv[2]), seqno, b"%d" % seqno * 50)
    if seqno % 10 == 0:
        store.flush()
        print(seqno, flush=True)
""",
        str(tmp_path / "a"),
        str(ONE),
    )
    assert child.stdout is not None
    told = 0
    while told < 500:
        told = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    told = max([told, *(int(line) for line in child.communicate()[0].splitlines(keepends=True) if line.endswith("\n"))])
    store = opened(tmp_path / "a")
    first, last = store.kept()[ONE]
    assert first == 1 and last >= told
    assert list(store.find(ONE, 1, last)) == [(seqno, b"%d" % seqno * 50) for seqno in range(1, last + 1)]
    store.close()
