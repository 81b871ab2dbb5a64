"""The journal: what was delivered is in it, in order, and what a crash leaves is read to the last complete batch."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq
from journal_data import Delivered, Row, batch_of, journal, member, view

import seqcast
from seqcast._native import columns
from seqcast.errors import JournalWriteError, UsageError
from seqcast.journal import read as journal_read
from seqcast.journal import writer as journal_writer
from seqcast.journal.schema import JournalError, directory_name, signed
from seqcast.journal.writer import JournalWriter
from seqcast.types import Member, View, ViewId

A, B, C = (member(name) for name in "abc")
V1 = view(1, [A, B])
V2 = view(2, [A, B, C])


def rows_of(count: int, *, sender: Member = A, start: int = 1, first_global: int = 1, per_packet: int = 3) -> list[Row]:
    return [
        Row(sender, start + at // per_packet, at % per_packet, first_global + at, f"message {at} ".encode() * (at % 7))
        for at in range(count)
    ]


def table(path: Path) -> pa.Table:
    return pa.Table.from_batches(journal_read.read(path).batches())


def wait_for_rows(writer: JournalWriter, count: int) -> None:
    deadline = time.monotonic() + 10
    while writer.counters()["rows"] < count:
        assert time.monotonic() < deadline, writer.counters()
        time.sleep(0.002)


@pytest.mark.parametrize("payload", ["full", "hash"])
def test_what_was_delivered_is_read_back_in_order(tmp_path: Path, payload: str) -> None:
    first, second = rows_of(5000), rows_of(100, sender=B, start=9)
    path = journal(tmp_path, A, [(V1, first), (V2, second)], payload=payload)
    found = table(path)
    rows = first + second
    assert found["idx"].to_pylist() == list(range(5100))
    assert found["global_seqno"].to_pylist() == [row.global_seqno for row in rows]
    assert found["sender"].to_pylist() == [signed(row.sender.id) for row in rows]
    assert found["seqno"].to_pylist() == [row.seqno for row in rows]
    assert found["index"].to_pylist() == [row.index for row in rows]
    assert found["length"].to_pylist() == [len(row.payload) for row in rows]
    assert found["sent_ns"].to_pylist() == [1_600_000_000_000_000_000 + row.seqno for row in rows]
    assert set(found["delivered_ns"].to_pylist()) == {1_700_000_000_000_000_000}
    assert found["view_counter"].to_pylist() == [1] * 5000 + [2] * 100
    assert found["view_tag"].to_pylist() == [signed(V1.view_id.tag)] * 5000 + [signed(V2.view_id.tag)] * 100
    assert found["payload_hash"].to_pylist() == [columns.payload_hash(row.payload) for row in rows]
    if payload == "full":
        assert found["payload"].to_pylist() == [row.payload for row in rows]
    else:
        assert "payload" not in found.column_names


def test_views_are_read_back_whole(tmp_path: Path) -> None:
    third = View(ViewId(7, C.id, (3, B.id)), (C, A, B), "sequencer", 0)
    path = journal(tmp_path, A, [(V1, rows_of(4)), (V2, []), (third, rows_of(2))], closed="excluded")
    found = journal_read.read(path)
    assert [installed.view_id for installed in found.views] == [V1.view_id, V2.view_id, third.view_id]
    assert [installed.idx for installed in found.views] == [0, 4, 4]
    assert [installed.members for installed in found.views] == [V1.members, V2.members, third.members]
    assert (found.closed, found.member, found.cluster, found.torn) == ("excluded", A, "test", 0)
    assert '"joined": ["c"], "left": []' in (path / "views.jsonl").read_text()


def test_unicasts_are_counted_and_not_journaled(tmp_path: Path) -> None:
    rows = [Row(A, 1, 0, 1, b"to all"), Row(B, 5, 0, 0, b"to one", unicast=True), Row(A, 1, 1, 2, b"to all again")]
    writer = JournalWriter(tmp_path, cluster="test", member=A)
    writer.view(V1, 1)
    writer.batch(batch_of(rows, V1), V1)
    writer.close("leave")
    found = table(writer.path)
    assert found["payload"].to_pylist() == [b"to all", b"to all again"]
    assert found["idx"].to_pylist() == [0, 1]
    assert writer.counters()["unicasts_skipped"] == 1


def test_segments_roll_to_parquet_and_read_as_one(tmp_path: Path) -> None:
    path = journal(tmp_path, A, [(V1, rows_of(20_000))], segment_rows=3000)
    names = sorted(file.name for file in path.iterdir())
    assert [name for name in names if name.endswith(".arrows")] == []
    assert len([name for name in names if name.endswith(".parquet")]) >= 2
    assert table(path)["idx"].to_pylist() == list(range(20_000))


def test_messages_are_on_disk_within_the_flush_time(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=0.01)
    writer.view(V1, 1)
    writer.batch(batch_of(rows_of(3), V1), V1)
    wait_for_rows(writer, 3)
    assert journal_read.read(writer.path).segments[0].rows == 3
    writer.close("leave")


def test_small_batches_are_written_together(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=0.2)
    writer.view(V1, 1)
    for row in rows_of(500):
        writer.batch(batch_of([row], V1), V1)
    writer.close("leave")
    assert writer.counters()["rows"] == 500
    assert writer.counters()["batches"] <= 50


def test_every_complete_batch_survives_a_kill_and_the_torn_tail_is_counted(tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_journal import *
        writer = JournalWriter({str(tmp_path)!r}, cluster="test", member=A, flush_s=0.001)
        writer.view(V1, 1)
        at = 0
        while True:
            writer.batch(batch_of(rows_of(100, first_global=at + 1, start=at + 1), V1), V1)
            at += 100
            if at in (3000, 6000):
                wait_for_rows(writer, at)
            if at == 6000:
                print("going", flush=True)
        """
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "going\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    path = tmp_path / directory_name(A)
    live = path / "segment-000001.arrows"
    whole = table(path)
    assert whole.num_rows >= 6000
    assert whole["idx"].to_pylist() == list(range(whole.num_rows))
    with live.open("r+b") as file:  # a crash of the machine may leave any prefix
        file.truncate(live.stat().st_size - 1000)
    found = journal_read.read(path)
    assert (found.torn, found.closed) == (1, None)
    kept = table(path)
    assert 3000 <= kept.num_rows < whole.num_rows
    assert kept.equals(whole.slice(0, kept.num_rows))


@settings(max_examples=40, deadline=None)
@given(cut=st.floats(0, 1))
def test_any_prefix_of_a_live_segment_is_read(tmp_path_factory: pytest.TempPathFactory, cut: float) -> None:
    path = journal(tmp_path_factory.mktemp("torn"), A, [(V1, rows_of(3000))], closed=None)
    whole = table(path)
    live = path / "segment-000001.arrows"
    ends = []
    with pa.OSFile(str(live), "wb") as sink, pa.ipc.new_stream(sink, whole.schema) as stream:
        for batch in whole.to_batches(max_chunksize=500):
            stream.write_batch(batch)
            ends.append(sink.tell())
    (path / "segment-000001.parquet").unlink()
    total = live.stat().st_size
    size = int(total * cut)
    with live.open("r+b") as file:
        file.truncate(size)
    found = journal_read.read(path)
    assert sum(batch.num_rows for batch in found.batches()) == 500 * sum(end <= size for end in ends)
    if size in (*ends, total):
        assert not found.segments[0].torn
    elif size > ends[0]:
        assert found.segments[0].torn


def test_a_torn_view_record_is_skipped_and_counted(tmp_path: Path) -> None:
    path = journal(tmp_path, A, [(V1, rows_of(4)), (V2, [])], closed=None)
    views = path / "views.jsonl"
    views.write_bytes(views.read_bytes()[:-20])
    found = journal_read.read(path)
    assert ([installed.view_id.counter for installed in found.views], found.torn) == ([1], 1)


def test_a_crash_between_rolling_and_removing_the_stream_reads_the_rows_once(tmp_path: Path) -> None:
    path = journal(tmp_path, A, [(V1, rows_of(50))])
    (path / "segment-000001.arrows").write_bytes(b"leftover")
    (path / "segment-000002.parquet.part").write_bytes(b"never finished")
    assert table(path).num_rows == 50


def test_a_full_queue_makes_the_caller_wait_and_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    write = journal_writer._Segment.write
    monkeypatch.setattr(journal_writer._Segment, "write", lambda self, batch: (gate.wait(10), write(self, batch)))
    writer = JournalWriter(tmp_path, cluster="test", member=A, queue_bytes=20_000, flush_s=0)
    writer.view(V1, 1)
    big = [Row(A, 1, 0, 1, b"x" * 15_000)]
    writer.batch(batch_of(big, V1), V1)
    done = threading.Event()

    def second() -> None:
        writer.batch(batch_of(big, V1), V1)
        done.set()

    thread = threading.Thread(target=second)
    thread.start()
    assert not done.wait(0.1)
    assert writer.counters()["queued_bytes"] <= 20_000
    gate.set()
    assert done.wait(10)
    thread.join()
    writer.close("leave")
    assert writer.counters()["waits"] == 1
    assert table(writer.path).num_rows == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_to_the_owner_and_what_is_lost_is_counted(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=0)
    (writer.path / "segment-000001.arrows").symlink_to("/dev/full")
    writer.view(V1, 1)
    writer.batch(batch_of(rows_of(10), V1), V1)
    deadline = time.monotonic() + 10
    while not writer.counters()["rows_lost"]:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    with pytest.raises(JournalWriteError, match=r"No space left.*row 0 on.*free space"):
        writer.batch(batch_of(rows_of(5), V1), V1)
    with pytest.raises(JournalWriteError):
        writer.close("leave")
    assert writer.counters()["rows_lost"] == 15
    assert writer.counters()["rows"] == 0


def test_a_batch_whose_runs_point_outside_is_refused_and_counted(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=0)
    writer.view(V1, 1)
    good = batch_of(rows_of(4), V1)
    runs = good.runs.copy()
    runs["n"][-1] += 1
    writer.batch(good, V1)
    with pytest.raises(JournalWriteError, match="outside"):
        writer.batch(Delivered(good.data, good.offsets, runs, good.view_tag, 1), V1)
    with pytest.raises(JournalWriteError, match="outside"):
        writer.close("leave")
    assert writer.counters()["rows_lost"] >= 4


def test_misuse_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="full or hash"):
        JournalWriter(tmp_path, cluster="test", member=A, payload="some")
    writer = JournalWriter(tmp_path, cluster="test", member=A)
    with pytest.raises(UsageError, match="call view"):
        writer.batch(batch_of(rows_of(1), V1), V1)
    writer.view(V1, 1)
    with pytest.raises(UsageError, match="call view"):
        writer.batch(batch_of(rows_of(1), V2), V2)
    writer.close("leave")
    writer.close("leave")
    with pytest.raises(UsageError, match="closed"):
        writer.view(V2, 2)
    with pytest.raises(UsageError, match="exists"):
        JournalWriter(tmp_path, cluster="test", member=A)


def test_the_members_name_cannot_leave_the_directory(tmp_path: Path) -> None:
    odd = Member("../../etc/x y", 5)
    path = journal(tmp_path, odd, [(View(ViewId(1, 5), (odd,)), [])])
    assert path.parent == tmp_path
    assert journal_read.find([tmp_path])[0].member == odd


def test_find_takes_the_top_directory_or_members(tmp_path: Path) -> None:
    paths = [journal(tmp_path, who, [(V1, rows_of(3))]) for who in (A, B)]
    (tmp_path / "notes").mkdir()
    assert [found.member for found in journal_read.find([tmp_path])] == [A, B]
    assert [found.member for found in journal_read.find([paths[1], tmp_path])] == [A, B]
    assert [found.member for found in journal_read.find([paths[1]])] == [B]


def test_what_is_no_journal_is_refused_in_one_line(tmp_path: Path) -> None:
    path = journal(tmp_path / "top", A, [(V1, rows_of(30))])
    rolled, header = path / "segment-000001.parquet", path / "journal.json"
    good, head = rolled.read_bytes(), header.read_text()

    def refused(match: str, *given: Path) -> None:
        with pytest.raises(JournalError, match=match) as caught:
            journal_read.find(list(given) or [path])
        assert "\n" not in str(caught.value)

    refused("no such directory", tmp_path / "none")
    refused("is a file", rolled)
    (tmp_path / "empty").mkdir()
    refused("holds no journal", tmp_path / "empty")
    rolled.write_bytes(b"PAR1" + good[4:-100])
    refused("not a segment")
    pq.write_table(pa.table({"idx": [1, 2]}), rolled)
    refused("columns of journal version 2")
    rolled.write_bytes(good)
    for foreign in ("{}", "[1, 2]", "null", '{"format": "another"}'):
        header.write_text(foreign)
        refused("not written by seqcast; give the directory")
    header.write_bytes(b"\xff\xfe")
    refused("it is not text; restore it, or leave")
    header.write_text(head[:-9])
    refused("it is not JSON; restore it, or leave")
    header.write_text(head.replace('"payload"', '"other"'))
    refused("it has no 'payload'; restore it, or leave")
    for wrong in ('"member": 5', '"member": [1]', '"member": {"name": "a", "id": 5}', '"deliver_own": 1'):
        header.write_text(json.dumps({**json.loads(head), **json.loads("{" + wrong + "}")}))
        refused("a field has a value that cannot be; restore it, or leave")
    header.write_text(head.replace('"schema_version": 2', '"schema_version": 99'))
    refused("version 99")
    header.write_text(head)
    rolled.rename(path / "segment-000002.parquet")
    refused("segment 1 is missing")
    (path / "segment-000001.arrows").write_bytes(os.urandom(5000))
    refused("not a segment")
    (path / "segment-000001.arrows").unlink()
    (path / "segment-000002.parquet").rename(rolled)
    views = path / "views.jsonl"
    views.write_text(views.read_text().replace('"counter": 1', '"counter": 5'))
    refused(r"line 1.*tag")


def test_rows_without_views_are_no_journal_and_neither_is_one(tmp_path: Path) -> None:
    path = journal(tmp_path, A, [(V1, rows_of(3))])
    (path / "views.jsonl").unlink()
    with pytest.raises(JournalError, match=r"rows and no view.*restore its views\.jsonl, or leave") as caught:
        journal_read.find([path])
    assert "\n" not in str(caught.value)
    (path / "segment-000001.parquet").unlink()
    assert journal_read.find([path])[0].views == ()


def test_the_error_of_a_journal_that_cannot_be_written_is_public() -> None:
    assert "JournalWriteError" in seqcast.__all__
    assert seqcast.JournalWriteError is JournalWriteError


PATTERN = bytes((i * 2654435761 & 0xFFFFFFFF) >> 13 & 255 for i in range(5000))
XXH3 = [  # (bytes of PATTERN, XXH3_64bits of the reference implementation)
    (0, 0x2D06800538D394C2),
    (1, 0xC44BDFF4074EECDB),
    (3, 0xA1C4A8259B827291),
    (4, 0xBB4E3D89EE0B271D),
    (8, 0x79D02238B80E37B1),
    (9, 0xF64CECC4271FF461),
    (16, 0x222E9AEAD6BDDD51),
    (17, 0x47AAD6B375EB4BBA),
    (32, 0x774140158F21FF0A),
    (33, 0x537E7ED26D825E92),
    (96, 0xA97F9AE93C0FF67A),
    (97, 0x0DD88DB1BBAF7326),
    (128, 0x421A9C905C6E66BA),
    (129, 0x9E2414800F83768A),
    (240, 0xB714C5FD22744964),
    (241, 0xBC424A2C480DD281),
    (1024, 0x1FD15E7D36F5E1BC),
    (1025, 0xFE08E5A874D23FD2),
    (2049, 0x9156A1FD2D1A8C37),
    (4999, 0x1933F07D27F01F6E),
]


@pytest.mark.parametrize("plain", [False, True])
def test_the_hash_is_xxh3(plain: bool) -> None:
    """By the specification's reference implementation, at the bounds of all its cases, with vectors and without."""
    for size, expected in XXH3:
        assert columns.payload_hash(PATTERN[:size], plain=plain) == signed(expected), size


@settings(max_examples=300)
@given(data=st.binary(min_size=200, max_size=3000))
def test_the_hash_is_the_same_with_vectors_and_without(data: bytes) -> None:
    assert columns.payload_hash(data) == columns.payload_hash(data, plain=True)


def add(block: columns.Block, batch: Delivered, **changed: Any) -> int:
    return block.add(dataclasses.replace(batch, **changed), idx=0, view_counter=1, view_tag=1)


def test_a_block_takes_whole_batches_only() -> None:
    batch = batch_of(rows_of(4), V1)
    block = columns.Block(3)
    assert (add(block, batch), block.rows) == (-1, 0)
    block = columns.Block(100, len(batch.data) + 1)
    assert add(block, batch) == 4
    assert (add(block, batch), block.rows, block.payload_bytes) == (-1, 4, len(batch.data))
    block.clear()
    assert add(block, batch) == 4


def test_a_block_takes_no_payload_twice() -> None:
    """Else runs or offsets that go back would fill more than the batch's bytes, for which there is room."""
    batch = batch_of(rows_of(14), V1)
    twice = np.concatenate([batch.runs, batch.runs])
    back = batch.offsets.copy()
    back[7] = len(batch.data)
    for changed in ({"runs": twice}, {"offsets": back}):
        block = columns.Block(100, len(batch.data))
        with pytest.raises(ValueError, match="outside"):
            add(block, batch, **changed)
        assert (block.rows, block.payload_bytes) == (0, 0)
