"""The journal has the deliveries, in order, and the remains of a crash are read to the last complete batch."""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from halves import first_quick
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq
from journal_data import Delivered, Row, as_live, batch_of, journal, member, view, wait_for_rows
from members import LIMIT_S, wait_until

import seqcast
import seqcast.journal
from seqcast._native import columns
from seqcast.errors import JournalWriteError, UsageError
from seqcast.journal import manifest, places, seals, segments, stream, views
from seqcast.journal import reader as journal_read
from seqcast.journal import roll as journal_roll
from seqcast.journal import writer as journal_writer
from seqcast.journal.schema import JournalDamaged, JournalError, directory_name, signed
from seqcast.journal.stream import StreamWriter, read_sums, stream_schema
from seqcast.journal.writer import JournalWriter
from seqcast.spark.members import order_of
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


@pytest.mark.parametrize("payload", ["full", "hash"])
def test_deliveries_are_read_back_in_order(tmp_path: Path, payload: str) -> None:
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
    third = View(ViewId(7, C.id, (3, B.id)), (C, A, B), "sequencer", 0, "sequencer")
    path = journal(tmp_path, A, [(V1, rows_of(4)), (V2, []), (third, rows_of(2))], closed="excluded")
    found = journal_read.read(str(path))
    assert [installed.view_id for installed in found.views] == [V1.view_id, V2.view_id, third.view_id]
    assert [installed.idx for installed in found.views] == [0, 4, 4]
    assert [installed.members for installed in found.views] == [V1.members, V2.members, third.members]
    assert (found.closed, found.member, found.cluster, found.torn) == ("excluded", A, "test", 0)
    assert '"joined": ["c"], "left": []' in (path / "views.jsonl").read_text()
    assert [installed.mechanism for installed in found.views] == ["sequencer"] * 3


@pytest.mark.parametrize(
    ("prefix", "transitional", "stable"), [(True, 1, 20_002), (False, 1, 12_344), (False, 0, 20_002)]
)
def test_a_closed_view_says_where_it_ended_and_how_far_it_is_the_same_for_all(
    tmp_path: Path, prefix: bool, transitional: int, stable: int
) -> None:
    """Beyond the first transitional message only if a lost member's deliveries are a prefix anyway."""
    late = [
        dataclasses.replace(row, transitional=transitional and row.global_seqno > 12_344)
        for row in rows_of(20_000, start=9, first_global=3)
    ]
    writer = JournalWriter(tmp_path, cluster="test", member=A, payload="hash")
    for at, (of, rows) in enumerate([(V1, rows_of(7)), (V2, late)]):
        writer.view(of, at, prefix=prefix)
        for first in range(0, len(rows), 999):
            writer.batch(batch_of(rows[first : first + 999], of), of)
    writer.batch(batch_of([dataclasses.replace(rows_of(1)[0], unicast=True)], V2), V2)
    third = view(3, [A, B])
    writer.view(third, 3, prefix=prefix)
    wait_for_rows(writer, 20_007)
    wait_until(lambda: len(journal_read.read(writer.path).views) == 3)  # its record is written behind the rows
    open_yet = journal_read.read(writer.path)
    writer.view(view(4, [A, B]), 4)
    writer.close("leave", at_view_end=True)
    found = journal_read.read(writer.path)
    assert found.views[:2] == open_yet.views[:2] and open_yet.views[2].end is None
    assert [each.closes for each in found.views] == [0, V1.view_id.tag, V2.view_id.tag, third.view_id.tag]
    ends = [each.end for each in found.views]
    assert [(end.idx, end.global_seqno) for end in ends if end] == [(7, 7), (20_007, 20_002), (20_007, 0), (20_007, 0)]
    assert [end.stable for end in ends if end] == [7, stable, 0, 0]


def test_a_closed_view_says_how_far_each_senders_messages_were_from_the_members_clock(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, cluster="test", member=A, payload="hash")
    sent_ns = batch_of([Row(A, 0, 0, 1, b"")], V1).runs["sent_ns"][0]
    for at, (of, took) in enumerate([(V1, {A: [5, 3, 9], B: [-7, 20]}), (V2, {B: [60, 50]}), (view(3, [A, B]), {})]):
        writer.view(of, at)
        rows = [(sender, each) for sender, all_of in took.items() for each in all_of]
        for place, (sender, each) in enumerate(rows, 1):
            writer.batch(batch_of([Row(sender, place, 0, place, b"x")], of, sent_ns + place + each), of)
    writer.close("leave", at_view_end=True)
    ends = [each.end for each in journal_read.read(writer.path).views]
    assert [dict(end.clocks) for end in ends if end] == [{A.id: 3, B.id: -7}, {B.id: 50}, {}]


def test_a_view_says_how_its_messages_were_ordered() -> None:
    record = journal_writer._view_record(V1, None, A, 1) | {"idx": 0, "closes": None}
    assert views._installed(record).mechanism == "sequencer"
    later = views._installed(record | {"mechanism": "of a later release"})
    with pytest.raises(JournalError, match="'of a later release', which this release of seqcast does not know"):
        order_of(later)


def test_unicasts_are_counted_and_not_journaled(tmp_path: Path) -> None:
    rows = [Row(A, 1, 0, 1, b"to all"), Row(B, 5, 0, 0, b"to one", unicast=True), Row(A, 1, 1, 2, b"to all again")]
    writer = JournalWriter(tmp_path, cluster="test", member=A)
    writer.view(V1, 1)
    writer.batch(batch_of(rows, V1), V1)
    writer.close("leave")
    found = table(writer.path)
    assert found["payload"].to_pylist() == [b"to all", b"to all again"]
    assert found["idx"].to_pylist() == [0, 1]
    assert writer.counters()["skipped"] == 1


def test_unicasts_alone_leave_no_batch_without_rows(tmp_path: Path) -> None:
    """One in the stream once made everything after it look damaged, and the segment was not rolled."""
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=0.001)
    writer.view(V1, 1)
    writer.batch(batch_of([dataclasses.replace(rows_of(1)[0], unicast=True)], V1), V1)
    writer.event("Blocked", "what waits is written before it", 1)
    writer.batch(batch_of(rows_of(5), V1), V1)
    wait_for_rows(writer, 5)
    assert len(table(writer.path)) == 5
    writer.close("leave")
    counters = writer.counters()
    assert (counters["rolled"], counters["roll_errors"], counters["batches"]) == (1, 0, 1)
    assert len(table(writer.path)) == 5


def test_a_small_segment_is_rolled_for_fast_opening_and_a_large_one_for_size(tmp_path: Path) -> None:
    v1 = view(1, [A, B])
    for who, rows, codec in ((A, journal_roll.SMALL_ROWS - 1, "SNAPPY"), (B, journal_roll.SMALL_ROWS, "ZSTD")):
        path = journal(tmp_path, who, [(v1, [Row(A, 1 + at, 0, 1 + at, b"x") for at in range(rows)])])
        group = pq.read_metadata(path / "segment-000001.parquet").row_group(0)
        codecs = {group.column(at).path_in_schema: group.column(at).compression for at in range(group.num_columns)}
        assert codecs.pop("payload_hash") == "UNCOMPRESSED"
        assert group.num_rows == rows and set(codecs.values()) == {codec}


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


@pytest.mark.parametrize("together_rows", [1, 1_000_000], ids=["in Parquet", "in streams"])
@pytest.mark.parametrize("payload", ["full", "hash"])
def test_rows_of_many_batches_in_many_blocks_are_read_back(
    tmp_path: Path, payload: str, together_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of two batches and a part of a third, some of which wait while another is written."""
    monkeypatch.setattr(journal_writer, "GROUP_MESSAGES", 7)
    settings = {"payload": payload, "together_rows": together_rows, "segment_rows": 40}
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=10, **settings)
    writer.view(V1, 1)
    rows = rows_of(200)
    for at in range(0, 200, 3):
        writer.batch(batch_of(rows[at : at + 3], V1), V1)
    writer.close("leave")
    found = table(writer.path)
    assert found["idx"].to_pylist() == list(range(200))
    assert found["global_seqno"].to_pylist() == [row.global_seqno for row in rows]
    assert found["length"].to_pylist() == [len(row.payload) for row in rows]
    if payload == "full":
        assert found["payload"].to_pylist() == [row.payload for row in rows]
    else:
        hashes = [columns.payload_hash(row.payload) for row in rows]
        assert found["payload_hash"].to_pylist() == hashes


def test_every_complete_batch_survives_a_kill_and_the_torn_tail_is_counted(tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import sys; sys.path.insert(0, {str(Path(__file__).parents[1] / "helpers")!r})
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
    messages, _ = stream.read_sums(live)
    os.truncate(live, messages[-1].offset + 100)  # as if killed a moment earlier
    os.truncate(live.with_suffix(stream.SUMS_SUFFIX), len(messages) * stream.SUM_BYTES)  # may be one message ahead
    found = journal_read.read(path)
    assert (found.torn, found.closed) == (1, None)
    kept = table(path)
    assert 3000 <= kept.num_rows == whole.num_rows - messages[-1].rows
    assert kept.equals(whole.slice(0, kept.num_rows))


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(cut=st.floats(0, 1))
def test_of_a_live_segment_only_the_last_batch_may_be_torn(
    tmp_path_factory: pytest.TempPathFactory, cut: float
) -> None:
    path = journal(tmp_path_factory.mktemp("torn"), A, [(V1, rows_of(3000))], closed=None)
    live = as_live(path)
    messages, _ = stream.read_sums(live)
    size = int(live.stat().st_size * cut)
    with live.open("r+b") as file:
        file.truncate(size)
    if size < messages[-1].offset:
        with pytest.raises(JournalDamaged, match="before its last written byte; restore"):
            journal_read.read(path)
        return
    found = journal_read.read(path)
    whole = size == messages[-1].offset + messages[-1].size
    assert sum(batch.num_rows for batch in found.batches()) == (3000 if whole else 2500)
    assert found.segments[0].torn is not whole


FLIPS = given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), full=st.booleans())


@pytest.mark.parametrize("rolled", first_quick([True, False]), ids=["parquet", "live"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
@FLIPS
def test_a_flipped_bit_is_damage_or_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, where: float, bit: int, rolled: bool, full: bool
) -> None:
    flip(tmp_path_factory, where, bit, rolled, full)


@pytest.mark.long
@pytest.mark.parametrize("rolled", [True, False], ids=["parquet", "live"])
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
@FLIPS
def test_many_flipped_bits_are_damage_or_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, where: float, bit: int, rolled: bool, full: bool
) -> None:
    flip(tmp_path_factory, where, bit, rolled, full)


def flip(tmp_path_factory: pytest.TempPathFactory, where: float, bit: int, rolled: bool, full: bool) -> None:
    """In any file of a journal, of which the segment is the most."""
    payload = "full" if full else "hash"
    path = journal(tmp_path_factory.mktemp("flip"), A, [(V1, rows_of(300)), (V2, rows_of(3))], payload=payload)
    if not rolled:
        as_live(path, chunk=100)
    before, told = table(path), journal_read.read(path)
    files = sorted(file for file in path.iterdir() if file.is_file())
    sizes = [file.stat().st_size for file in files]
    at = int(sum(sizes) * where)
    victim = next(number for number in range(len(files)) if at < sum(sizes[: number + 1]))
    data = bytearray(files[victim].read_bytes())
    data[at - sum(sizes[:victim])] ^= 1 << bit
    files[victim].write_bytes(data)
    try:
        after, found = table(path), journal_read.read(path)
    except JournalError as damage:  # if the name of the format is damaged, the file is no longer a journal
        assert "\n" not in str(damage)
        return
    assert after.equals(before) and found == told


@pytest.mark.long
@pytest.mark.parametrize("together_rows", [1, 1000])
def test_a_reader_beside_the_writer_finds_every_row_once(tmp_path: Path, together_rows: int) -> None:
    """Segments are rolled while they are read: streams that were listed have become a Parquet file."""
    settings = {"segment_rows": 300, "together_rows": together_rows, "payload": "hash"}
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=0.001, **settings)
    writer.view(V1, 1)
    done = threading.Event()
    reads = written = 0

    def write() -> None:
        nonlocal written
        while written < 30_000 or (reads < 4 and written < 300_000):  # a busy machine takes longer to read
            writer.batch(batch_of(rows_of(100, first_global=written + 1, start=written + 1), V1), V1)
            wait_for_rows(writer, written)
            written += 100
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        found = journal_read.read(writer.path)
        for _ in range(2):  # the second look comes later still
            indices = [idx for batch in found.batches(["idx"]) for idx in batch["idx"].to_pylist()]
            assert indices == list(range(found.rows))
        reads += 1
    thread.join()
    writer.close("leave")
    assert reads > 3
    assert table(writer.path)["idx"].to_pylist() == list(range(written))


def test_writing_and_rolling_import_nothing_beside_delivery(tmp_path: Path) -> None:
    """An import keeps the GIL to its end; pyarrow's conversions would import pandas."""
    script = textwrap.dedent(
        f"""
        import sys; sys.path.insert(0, {str(Path(__file__).parents[1] / "helpers")!r})
        from journal_data import Row, batch_of, member, view
        from seqcast.journal.writer import JournalWriter
        a = member("a"); of = view(1, [a])
        writer = JournalWriter({str(tmp_path)!r}, cluster="test", member=a, segment_rows=1)
        before = set(sys.modules)
        writer.view(of, 1)
        writer.batch(batch_of([Row(a, 1, 0, 1, b"x")], of), of)
        writer.close("leave")
        assert writer.counters()["rolled"] == 1
        print(sorted(set(sys.modules) - before))
        """
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_rolling_pauses_until_much_waits_or_the_journal_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_roll, "PAUSE", 1e9)
    monkeypatch.setattr(journal_roll, "WAITING_MAX", 250)
    monkeypatch.setattr(journal_roll, "WAITING_FEW", 50)
    monkeypatch.setattr(journal_writer._Segment, "bytes", 100)
    writer = JournalWriter(
        tmp_path, cluster="test", member=A, flush_s=0, segment_rows=1, together_rows=1, payload="hash"
    )
    writer.view(V1, 1)

    def rolled_by_now(first: int, end: int) -> None:
        for at in range(first, end):
            writer.batch(batch_of(rows_of(1, first_global=at + 1, start=at + 1), V1), V1)
            wait_for_rows(writer, at + 1)
        wait_until(lambda: writer.counters()["segments"] == end)

    rolled_by_now(0, 3)
    assert writer.counters()["rolled"] == 0
    rolled_by_now(3, 4)
    wait_until(lambda: writer.counters()["rolled"] == 3)
    assert writer.counters()["unrolled"] == 1
    writer.close("leave")
    assert writer.counters()["rolled"] == 4


def test_a_torn_view_record_is_skipped_and_counted(tmp_path: Path) -> None:
    path = journal(tmp_path, A, [(V1, rows_of(4)), (V2, [])], closed=None)
    views = path / "views.jsonl"
    views.write_bytes(views.read_bytes()[:-20])
    found = journal_read.read(path)
    assert ([installed.view_id.counter for installed in found.views], found.torn) == ([1], 1)


@pytest.mark.parametrize(
    ("line", "change", "says"),
    [
        (0, lambda record: record.update(idx=-1), "line 1, is not a view record: its position is below 0"),
        (2, lambda record: record["closes"].update(tag=f"{V1.view_id.tag:016x}"), "line 3, .* another view than the"),
        (1, lambda record: record.update(rank=1), r"views\.jsonl is of another member"),
        (1, lambda record: record.update(rank=9), "line 2, is not a view record: the rank is not one of its members"),
    ],
    ids=["a position that cannot be", "the end of another view", "another member's", "a rank that cannot be"],
)
def test_a_record_that_contradicts_itself_is_damage(tmp_path: Path, line: int, change: Any, says: str) -> None:
    views = journal(tmp_path, A, [(V1, rows_of(300)), (V2, rows_of(3))], payload="hash") / "views.jsonl"
    records = [seals.unseal(text) for text in views.read_text().splitlines()]
    change(records[line])
    views.write_text("".join(seals.seal(record) + "\n" for record in records))
    with pytest.raises(JournalDamaged, match=says):
        journal_read.read(views.parent)


@pytest.mark.parametrize(
    ("file", "place", "value"),
    [
        ("journal.json", ["cluster"], 1),
        ("journal.json", ["member", "name"], ["a"]),
        ("views.jsonl", ["members", 0, 0], "\ud800"),
        ("views.jsonl", ["members", 0, 0], None),
        ("views.jsonl", ["idx"], 0.5),
        ("views.jsonl", ["at_ns"], []),
        ("views.jsonl", ["order"], {}),
        ("views.jsonl", ["sequencer"], "0"),
        ("segments.json", ["started"], float("inf")),
        ("segments.json", ["first"], -1),
        ("segments.json", ["rolled", 0, "rows"], "3"),
        ("segments.json", ["rolled", 0, "last_ns"], 1 << 63),
        ("segments.json", ["rolled", 0, "size"], True),
        ("segments.json", ["rolled", 0, "last"], True),
        ("segments.json", ["rolled", 0, "last"], 0),
        ("events.jsonl", ["event"], "another"),
        ("events.jsonl", ["counter"], None),
        ("events.jsonl", ["joined"], 5),
    ],
)
def test_a_value_of_another_type_is_damage_under_any_checksum(
    tmp_path: Path, file: str, place: list[Any], value: Any
) -> None:
    path = journal(tmp_path, A, [(V1, rows_of(30))]) / file
    first, *others = path.read_text().splitlines(keepends=True)
    record: Any = seals.unseal(first)
    inside = record
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = value
    path.write_text("".join([seals.seal(record) + "\n", *others]))
    with pytest.raises(JournalDamaged):
        list(journal_read.read(path.parent).events())


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_at_the_end_of_the_last_view_record_is_damage(tmp_path: Path, bit: int) -> None:
    path = journal(tmp_path, A, [(V1, rows_of(4)), (V2, rows_of(4))], closed=None)
    views = path / "views.jsonl"
    views.write_bytes(views.read_bytes()[:-1] + bytes([ord("\n") ^ 1 << bit]))
    with pytest.raises(JournalDamaged, match="line 2, has an altered end"):
        journal_read.read(path)


def test_a_last_segment_that_is_rolled_between_two_looks_keeps_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = journal(tmp_path, A, [(V1, rows_of(50))])
    now, before = manifest.load(path), dataclasses.replace(manifest.load(path), rolled={})
    looks = iter([before])
    monkeypatch.setattr(segments, "load", lambda of: next(looks, now))
    assert journal_read.read(path).rows == 50


def test_a_crash_between_rolling_and_removing_the_stream_reads_the_rows_once(tmp_path: Path) -> None:
    path = journal(tmp_path, A, [(V1, rows_of(50))])
    (path / "segment-000001.arrows").write_bytes(b"leftover")
    (path / "segment-000001.sums").write_bytes(b"leftover")
    (path / "segment-000002.parquet.part").write_bytes(b"never finished")
    assert table(path).num_rows == 50


def test_a_full_queue_makes_the_caller_wait_and_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    write = journal_writer._Segment.write
    monkeypatch.setattr(
        journal_writer._Segment, "write", lambda self, *given: (gate.wait(LIMIT_S), write(self, *given))
    )
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
    assert done.wait(LIMIT_S)
    thread.join()
    writer.close("leave")
    assert writer.counters()["waits"] == 1
    assert table(writer.path).num_rows == 2


def fill_the_disk(writer: JournalWriter) -> None:
    (writer.path / "segment-000001.arrows").symlink_to("/dev/full")
    writer.view(V1, 1)
    writer.batch(batch_of(rows_of(10), V1), V1)
    deadline = time.monotonic() + LIMIT_S
    while not writer.counters()["rows_lost"]:
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_ends_the_journal_and_lost_rows_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=0)
    fill_the_disk(writer)
    writer.batch(batch_of(rows_of(5), V1), V1)
    writer.view(V2, 2)
    writer.batch(batch_of(rows_of(3), V2), V2)  # delivery goes on in the next view, too
    writer.close("leave")
    assert writer.counters()["rows_lost"] == 18
    assert writer.counters()["rows"] == 0
    told = [record.getMessage() for record in caplog.records if record.name == "seqcast.journal"]
    assert len(told) == 1
    assert re.search(r"No space left.*row 0 on.*free space.*delivery continues", told[0])
    (writer.path / "segment-000001.arrows").unlink()  # the file cannot be read
    (writer.path / "segment-000001.sums").unlink()
    found = journal_read.read(writer.path)
    assert (found.rows, found.closed, [view.view_id for view in found.views]) == (0, None, [V1.view_id])
    assert "No space left" in found.failed


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_journal_that_is_required_says_so_at_each_call(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=0, required=True)
    fill_the_disk(writer)
    with pytest.raises(JournalWriteError, match=r"No space left.*row 0 on.*free space"):
        writer.batch(batch_of(rows_of(5), V1), V1)
    with pytest.raises(JournalWriteError):
        writer.close("leave")
    assert writer.counters()["rows_lost"] == 10


def test_a_batch_whose_runs_point_outside_is_refused_and_counted(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=0, required=True)
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
    assert places.find([tmp_path])[0].member == odd


def test_find_takes_the_top_directory_or_members(tmp_path: Path) -> None:
    paths = [journal(tmp_path, who, [(V1, rows_of(3))]) for who in (A, B)]
    (tmp_path / "notes").mkdir()
    assert [found.member for found in places.find([tmp_path])] == [A, B]
    assert [found.member for found in places.find([paths[1], tmp_path])] == [A, B]
    assert [found.member for found in places.find([paths[1]])] == [B]


def test_a_directory_that_may_not_be_read_is_left_out_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = journal(tmp_path / "good", A, [(V1, rows_of(3))])
    given = [tmp_path / ("x" * 300), tmp_path / "closed", tmp_path / "good"]
    given[1].mkdir()
    real = os.scandir

    def scandir(path: Any) -> Any:
        if Path(path).name == "closed":  # root is not held up by file modes
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert places.journal_files(given) == {A.id: path.resolve()}
    with pytest.raises(JournalError, match="closed cannot be read: Permission denied"):
        places.journal_files(given, strict=True)
    with pytest.raises(JournalError, match="closed cannot be read: Permission denied"):
        places.find(given[1:])


def test_anything_but_a_journal_is_refused_in_one_line(tmp_path: Path) -> None:
    path = journal(tmp_path / "top", A, [(V1, rows_of(30))])
    rolled, header = path / "segment-000001.parquet", path / "journal.json"
    good, head = rolled.read_bytes(), header.read_text()
    manifest = path / "segments.json"
    manifests = manifest.read_text()

    def refused(match: str, *given: Path) -> None:
        with pytest.raises(JournalError, match=match) as caught:
            places.find(list(given) or [path])
        assert "\n" not in str(caught.value)

    refused("no such directory", tmp_path / "none")
    refused("no such directory", tmp_path / "a\0b")
    refused("cannot be read: File name too long", tmp_path / ("x" * 300))
    refused("is a file", rolled)
    (tmp_path / "empty").mkdir()
    refused("holds no journal", tmp_path / "empty")
    rolled.write_bytes(b"PAR1" + good[4:-100])
    refused("is altered: its checksum.*restore it from a copy")
    journal_roll.rewrite(path, 1, pa.table({"idx": [1, 2], "delivered_ns": [1, 2]}))
    refused("columns of journal version 10")
    rolled.write_bytes(good)
    manifest.write_text(manifests)
    manifest.write_text(manifests.replace("hash", "hush"))
    refused(r"segments\.json is damaged: its checksum does not fit")
    manifest.unlink()
    refused(r"segments\.json cannot be read")
    manifest.write_text(manifests)
    for foreign in ("{}", "[1, 2]", "null", '{"format": "another"}'):
        header.write_text(foreign)
        refused("not written by seqcast; give the directory")
    header.write_bytes(b"\xff\xfe")
    refused("not text; restore it")
    header.write_text(head[:-9])
    refused("not JSON; restore it")
    header.write_text(head.replace("test", "toast"))
    refused("its checksum does not fit; restore it")

    def rewritten(**changes: Any) -> None:
        record = {**seals.unseal(head), **changes}
        header.write_text(seals.seal({key: value for key, value in record.items() if value is not None}))

    rewritten(payload=None)
    refused("no 'payload'; restore it")
    for wrong in ({"member": 5}, {"member": [1]}, {"member": {"name": "a", "id": 5}}, {"deliver_own": 1}):
        rewritten(**wrong)
        refused("a field has a value that cannot be; restore it")
    rewritten(schema_version=99)
    refused("version 99")
    header.unlink()
    refused(r"journal\.json is missing; restore it")
    refused(r"journal\.json is missing; restore it", tmp_path / "top")
    header.write_text(head)
    rolled.unlink()
    refused("segment-000001.parquet is missing")
    rolled.write_bytes(good)
    live = as_live(path)
    live.with_suffix(".sums").rename(path / "kept")
    refused("has no checksums")
    (path / "kept").rename(live.with_suffix(".sums"))
    live.unlink()
    refused(r"segment-000001\.arrows is missing")
    live.write_bytes(os.urandom(50_000))
    refused("bytes after its last checksum")
    live.write_bytes(b"")
    views = path / "views.jsonl"
    line = seals.unseal(views.read_text().splitlines()[0])
    line["view_id"]["counter"] = 5
    views.write_text(seals.seal(line) + "\n")
    live.with_suffix(".sums").write_bytes(b"")
    refused(r"line 1.*tag")


def test_rows_without_views_are_not_a_journal_and_neither_is_one(tmp_path: Path) -> None:
    path = journal(tmp_path, A, [(V1, rows_of(3))])
    (path / "views.jsonl").unlink()
    with pytest.raises(JournalError, match=r"rows and no view.*restore its views\.jsonl, or leave") as caught:
        places.find([path])
    assert "\n" not in str(caught.value)
    (path / "segment-000001.parquet").unlink()
    manifest.save(path, manifest.Manifest(0, {}))
    assert places.find([path])[0].views == ()


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


def packet(seqno: int, first: int, n: int, start: int = 0) -> list[Row]:
    """The messages of one packet; ``first`` is the first global seqno, 0: none."""
    return [Row(A, seqno, start + at, first + at if first else 0, b"%d" % at * (at + 1)) for at in range(n)]


RUNS = [*packet(1, 1, 5), Row(B, 9, 0, 6, b""), *packet(2, 7, 300, start=7), *packet(3, 307, 2)]


@pytest.mark.parametrize("payload", ["full", "hash"])
@pytest.mark.parametrize("ordered", [True, False])
def test_a_live_segment_has_a_row_for_each_packet_and_reads_like_the_rolled_one(
    tmp_path: Path, payload: str, ordered: bool
) -> None:
    given = RUNS if ordered else [dataclasses.replace(row, global_seqno=0) for row in RUNS]
    writer = JournalWriter(tmp_path, cluster="test", member=A, payload=payload, flush_s=0)
    writer.view(V1, 1, total=ordered)
    writer.batch(batch_of(given, V1), V1)
    wait_for_rows(writer, len(given))
    raw = pa.ipc.open_stream(writer.path / "segment-000001.arrows").read_next_batch()
    assert [len(messages) for messages in raw["messages"].to_pylist()] == [5, 1, 300, 2]
    read = journal_read.read(writer.path)
    live = pa.Table.from_batches(read.batches())
    some = pa.Table.from_batches(read.batches(["index", "length", "global_seqno"]))
    part = pa.Table.from_batches(segments.segment_batches(read.segments[0], ["seqno", "idx"], first=3, end=9))
    writer.close("leave")
    rolled = table(writer.path)
    assert live.equals(rolled)
    assert some.equals(rolled.select(["index", "length", "global_seqno"]))
    assert part.equals(rolled.select(["seqno", "idx"]).slice(3, 6))
    assert rolled["idx"].to_pylist() == list(range(len(given)))
    assert rolled["index"].to_pylist() == [row.index for row in given]
    assert rolled["global_seqno"].to_pylist() == [row.global_seqno for row in given]
    assert rolled["seqno"].to_pylist() == [row.seqno for row in given]
    assert rolled["payload_hash"].to_pylist() == [columns.payload_hash(row.payload) for row in given]


def test_rolling_holds_no_more_than_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if batches of the live segment have more rows."""
    monkeypatch.setattr(journal_roll, "ROW_GROUP_ROWS", 250)
    path = journal(tmp_path, A, [(V1, rows_of(1700))])
    with pq.ParquetFile(path / "segment-000001.parquet") as file:
        groups = [file.metadata.row_group(at).num_rows for at in range(file.metadata.num_row_groups)]
    assert max(groups) <= 250
    assert sum(groups) == 1700
    assert table(path)["idx"].to_pylist() == list(range(1700))


@pytest.mark.parametrize("starts", [[1, 2], [0, 2, 1], [0]])
def test_runs_that_do_not_follow_each_other_are_refused(starts: list[int]) -> None:
    with pytest.raises(ValueError, match="starts"):
        columns.spread(np.zeros(max(1, len(starts) - 1), np.int64), np.array(starts, np.int32))


@pytest.mark.parametrize("starts", [[1, 3], [0, 2], [0, 9]])
def test_runs_without_their_messages_are_damage_under_any_checksum(tmp_path: Path, starts: list[int]) -> None:
    path = as_live(journal(tmp_path, A, [(V1, rows_of(3))]))
    (schema, batch, *_), _ = read_sums(path)
    contents = path.read_bytes()[batch.offset : batch.offset + batch.size]
    own, forged = (np.array(each, np.int32).tobytes() for each in ([0, 1, 2, 3], [starts[0], 1, 2, starts[1]]))
    assert contents.count(own) == 1
    writer = StreamWriter(path, stream_schema(path, [schema]))
    writer.write(SimpleNamespace(serialize=lambda: contents.replace(own, forged)), 3)  # with a checksum of its own
    writer.close()
    (segment,) = journal_read.read(path.parent).segments
    for wanted in (None, ["transitional"]):
        with pytest.raises(JournalDamaged):
            list(segments.segment_batches(segment, wanted))


@pytest.mark.parametrize("plain", [False, True])
def test_the_hash_is_xxh3(plain: bool) -> None:
    """By the specification's reference implementation, at the bounds of all its cases, with vectors and without."""
    for size, expected in XXH3:
        assert columns.payload_hash(PATTERN[:size], plain=plain) == signed(expected), size


@settings(max_examples=300)
@given(data=st.binary(min_size=200, max_size=3000))
def test_the_hash_is_the_same_with_vectors_and_without(data: bytes) -> None:
    assert columns.payload_hash(data) == columns.payload_hash(data, plain=True)


@settings(max_examples=300)
@given(
    size=st.sampled_from(
        [0, 1, 16, 17, 240, 241, *(1024 * k + d for k in (1, 2, 5) for d in (-64, -1, 0, 1, 63, 64, 65))]
    ),
    cuts=st.lists(st.integers(0, 5200), max_size=6),
)
def test_the_hash_of_pieces_is_that_of_the_whole(size: int, cuts: list[int]) -> None:
    data, found = bytes(range(251)) * 21, columns.Hash()
    places = [0, *sorted(min(cut, size) for cut in cuts), size]
    for begin, end in pairwise(places):
        found.add(data[begin:end])
        assert found.value == columns.payload_hash(data[:end])


def add(block: columns.Block, batch: Delivered, **changed: Any) -> int:
    return block.add(dataclasses.replace(batch, **changed), idx=0, view_counter=1, view_tag=1)


def test_a_block_takes_whole_batches_only() -> None:
    batch = batch_of(rows_of(4), V1)
    block = columns.Block(3, 3)
    assert (add(block, batch), block.messages) == (-1, 0)
    block = columns.Block(1, 100)
    assert add(block, batch_of(packet(1, 1, 3), V1)) == 3
    assert (add(block, batch_of(packet(2, 4, 3), V1)), block.runs, block.messages) == (-1, 1, 3)
    block = columns.Block(100, 100, len(batch.data) + 1)
    assert add(block, batch) == 4
    assert (add(block, batch), block.messages, block.payload_bytes) == (-1, 4, len(batch.data))
    block.clear()
    assert add(block, batch) == 4


def test_a_block_takes_no_payload_twice() -> None:
    """Else runs or offsets that go back would fill more than the batch's bytes, for which there is room."""
    batch = batch_of(rows_of(14), V1)
    twice = np.concatenate([batch.runs, batch.runs])
    back = batch.offsets.copy()
    back[7] = len(batch.data)
    for changed in ({"runs": twice}, {"offsets": back}):
        block = columns.Block(100, 100, len(batch.data))
        with pytest.raises(ValueError, match="outside"):
            add(block, batch, **changed)
        assert (block.messages, block.payload_bytes) == (0, 0)


def ten_segments(tmp_path: Path) -> JournalWriter:
    """A closed journal of ten segments of 100 rows, of which retention keeps the last."""
    writer = JournalWriter(
        tmp_path, cluster="test", member=A, flush_s=0, segment_rows=100, together_rows=1, keep_bytes=1
    )
    writer.view(V1, 1)
    for at in range(0, 1000, 100):
        writer.batch(batch_of(rows_of(100, first_global=at + 1, start=at + 1), V1), V1)
        wait_for_rows(writer, at + 100)
    writer.close("leave")
    return writer


def test_retention_removes_the_oldest_segments_and_the_reader_begins_with_the_kept_ones(tmp_path: Path) -> None:
    writer = ten_segments(tmp_path)
    found = journal_read.read(writer.path)
    assert writer.counters()["expired"] == 9 and len(list(writer.path.glob("segment-*"))) == 1
    assert (found.first_idx, found.rows, found.end_idx, found.closed_idx) == (900, 100, 1000, 1000)
    assert table(writer.path)["idx"].to_pylist() == list(range(900, 1000))
    assert len(found.views) == 1  # views are few, and all are kept


@pytest.mark.parametrize("fails", [{1}, {4, 5}])
def test_a_segment_that_could_not_be_rolled_does_not_end_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: set[int]
) -> None:
    real = journal_roll.roll

    def roll(streams: list[Path], listed: manifest.ManifestWriter, pause: Callable[[], None]) -> Path:
        if journal_roll.segment_number(streams[0]) in fails:
            raise OSError("no space left on device")
        return real(streams, listed, pause)

    monkeypatch.setattr(journal_roll, "roll", roll)
    writer = ten_segments(tmp_path)
    counters = writer.counters()
    assert (counters["roll_errors"], counters["expired"]) == (len(fails), 9)
    assert len(list(writer.path.glob("segment-*"))) == 1
    assert table(writer.path)["idx"].to_pylist() == list(range(900, 1000))


def test_retention_by_age_works_without_a_new_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_roll, "EXPIRE_EVERY_S", 0.01)
    writer = JournalWriter(
        tmp_path, cluster="test", member=A, flush_s=0, segment_rows=100, together_rows=1, keep_s=3600, payload="hash"
    )
    writer.view(V1, 1)
    now = time.time_ns()
    for at, age_s in enumerate((7200, 3598.5, 0)):
        rows = rows_of(100, first_global=at * 100 + 1, start=at * 100 + 1)
        writer.batch(batch_of(rows, V1, now - int(age_s * 1e9)), V1)
        wait_for_rows(writer, at * 100 + 100)
    deadline = time.monotonic() + LIMIT_S
    while writer.counters()["expired"] < 2:  # the second grows old while nothing is written
        assert time.monotonic() < deadline, writer.counters()
        time.sleep(0.01)
    writer.close("leave")
    assert table(writer.path)["idx"].to_pylist() == list(range(200, 300))


@pytest.mark.parametrize("compared", [False, True], ids=["before it is read", "after a part was compared"])
def test_rows_that_retention_removes_under_a_reader_are_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compared: bool
) -> None:
    path = journal(tmp_path, A, [(V1, rows_of(100)), (V2, rows_of(100, start=100))], segment_rows=100)
    found = journal_read.read(path)
    before = manifest.load(path)
    left = {number: segment for number, segment in before.rolled.items() if number > 1}
    manifest.save(path, dataclasses.replace(before, rolled=left, first=2, first_idx=left[2].first_idx))
    (segment, *_), real = found.segments, segments._compare
    if compared:
        monkeypatch.setattr(segments, "_compare", lambda *given: (real(*given), segment.path.unlink()))
    else:
        segment.path.unlink()
    with pytest.raises(JournalError, match="removed by the journal's retention") as caught:
        list(segments.segment_batches(segment, first=10) if compared else found.batches())
    assert not isinstance(caught.value, JournalDamaged)


def test_a_live_segment_is_rolled_when_it_is_old_however_little_is_written(tmp_path: Path) -> None:
    writer = JournalWriter(
        tmp_path, cluster="test", member=A, flush_s=0, segment_s=0.05, together_rows=1, payload="hash"
    )
    writer.view(V1, 1)
    writer.batch(batch_of(rows_of(10), V1), V1)
    deadline = time.monotonic() + LIMIT_S
    while writer.counters()["rolled"] < 1:
        assert time.monotonic() < deadline, writer.counters()
        time.sleep(0.005)
    assert [segment.live for segment in journal_read.read(writer.path).segments] == [False]
    writer.close("leave")


def test_messages_are_read_as_the_application_was_given_them(tmp_path: Path) -> None:
    rows = [*rows_of(100), *rows_of(50, sender=B, start=40, first_global=101)]
    path = journal(tmp_path, A, [(V1, rows), (V2, rows_of(3, sender=C, start=1))], payload="full")
    messages = list(seqcast.journal.read(path).messages())
    assert [(each.sender, each.seqno, each.index, each.global_seqno, each.payload) for each in messages[:150]] == [
        (row.sender, row.seqno, row.index, row.global_seqno, row.payload) for row in rows
    ]
    assert {each.view_id for each in messages[:150]} == {V1.view_id} and messages[-1].view_id == V2.view_id
    views = path / "views.jsonl"
    views.write_bytes(b"".join(views.read_bytes().splitlines(keepends=True)[:1]))  # the others are lost
    with pytest.raises(JournalDamaged, match=r"views.jsonl lacks the record of a view that rows are of"):
        list(seqcast.journal.read(path).messages())
    with pytest.raises(JournalError, match="keeps hashes of the payloads only"):
        list(seqcast.journal.read(journal(tmp_path / "hash", B, [(V1, rows)])).messages())


def test_events_beside_the_messages_are_in_a_file_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqcast.journal.events.EVERY_S", 0.02)
    levels = {"naks_sent": 0, "heartbeats_sent": 0, "slabs_in_use": 9, "packets_retransmitted": 0}
    writer = JournalWriter(tmp_path, cluster="test", member=A, payload="hash", sample=lambda: dict(levels))
    writer.view(V1, 1)
    writer.event("Lost", "lost: 3 messages", 2)
    for beat in range(1, 4):  # heartbeats alone are not worth a line
        levels |= {"heartbeats_sent": beat, "slabs_in_use": 9 - beat}
        time.sleep(0.03)
    levels |= {"naks_sent": 2, "packets_retransmitted": 7}

    def told() -> list[dict[str, Any]]:
        return [event for event in journal_read.read(writer.path).events() if event["event"] == "counters"]

    deadline = time.monotonic() + LIMIT_S
    while not told():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    writer.close("leave")
    assert [event["rose"] for event in told()] == [{"heartbeats_sent": 3, "naks_sent": 2, "packets_retransmitted": 7}]
    first = list(journal_read.read(writer.path).events())[:2]
    assert [(event["event"], event["at_ns"]) for event in first] == [("view", 1), ("event", 2)]
    assert first[0]["counter"] == 1 and first[1]["text"] == "lost: 3 messages"


def test_events_are_bounded_and_their_damage_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqcast.journal.events.FILE_BYTES", 2000)
    writer = JournalWriter(tmp_path, cluster="test", member=A, payload="hash")
    for at in range(100):
        writer.event("Blocked", f"number {at}", at)
    writer.close("leave")
    files = sorted(writer.path.glob("events*"))
    assert [file.name for file in files] == ["events-older.jsonl", "events.jsonl"]
    assert all(file.stat().st_size < 2200 for file in files)
    found = [event["at_ns"] for event in journal_read.read(writer.path).events()]
    assert found == list(range(found[0], 100)) and len(found) > 10
    data = bytearray(files[1].read_bytes())
    data[30] ^= 1
    files[1].write_bytes(data[:-5])
    with pytest.raises(JournalDamaged, match=r"events.jsonl, line 1"):
        list(journal_read.read(writer.path).events())


def test_a_reader_that_follows_a_journal_opens_no_segment_to_find_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = journal(tmp_path, A, [(V1, rows_of(50)), (V2, rows_of(40))], segment_rows=20, closed=None)
    as_live(path, len(list(path.glob("segment-*.parquet"))))
    found = journal_read.read(path)
    monkeypatch.setattr("pyarrow.parquet.ParquetFile", None)
    monkeypatch.setattr(segments, "stream_schema", None)
    assert places.find([path], open_segments=False) == [found] and len(found.segments) == 2
    assert (found.first_idx, found.rows) == (0, 90)


def test_a_segment_without_a_column_is_damage(tmp_path: Path) -> None:
    path = journal(tmp_path, A, [(V1, rows_of(50))])
    journal_roll.rewrite(path, 1, table(path).drop_columns(["seqno"]))
    with pytest.raises(JournalDamaged, match="has no column 'seqno'"):
        list(journal_read.read(path, open_segments=False).batches(["idx", "seqno"]))


TRUNCATES = """
    import sys
    from pathlib import Path
    from seqcast.journal import reader, segments, stream
    from seqcast.journal.schema import JournalDamaged
    stream.READ_BYTES = 1
    (segment,) = reader.read(sys.argv[1]).segments
    batches = segments.segment_batches(segment, first=int(sys.argv[2]), batch_rows=1000)
    next(batches)
    with segment.path.open("r+b") as file:
        file.truncate(100)
    try:
        left = sum(batch.num_rows for batch in batches)
        list(segments.segment_batches(segment, first=int(sys.argv[2])))
    except JournalDamaged as damage:
        print(damage)
"""


@pytest.mark.parametrize(("rolled", "first"), [(True, 0), (True, 10), (False, 0)], ids=["parquet", "a part", "live"])
def test_a_segment_that_is_truncated_under_a_reader_is_damage(tmp_path: Path, rolled: bool, first: int) -> None:
    """In a process of its own: pages that a mapped file no longer has end the process with a signal."""
    path = journal(tmp_path, A, [(V1, rows_of(10_000))], closed=None, payload="full")
    if not rolled:
        as_live(path)
    command = [sys.executable, "-c", textwrap.dedent(TRUNCATES), str(path), str(first)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, (told.returncode, told.stderr)
    assert re.search(r"segment-000001\.\w+ (is altered|ends before byte|ends at byte 100)", told.stdout), told.stdout


def test_a_part_of_a_segment_is_read_again_without_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each micro-batch of a stream takes a part of a rolled segment."""
    monkeypatch.setattr("seqcast.journal.roll.ROW_GROUP_ROWS", 100)
    path = journal(tmp_path, A, [(V1, rows_of(900))], payload="full")
    (segment,), whole = journal_read.read(path).segments, table(path)
    real, read = segments._check, list[Any]()
    monkeypatch.setattr(segments, "_check", lambda segment: (read.append(segment), real(segment))[1])

    def part(first: int, end: int) -> pa.Table:
        return pa.Table.from_batches(segments.segment_batches(segment, first=first, end=end))

    for first in range(0, 900, 70):
        assert part(first, first + 70).equals(whole.slice(first, 70))
    assert len(read) == 1
    data = bytearray(segment.path.read_bytes())
    data[len(data) // 2] ^= 1
    segment.path.write_bytes(data)
    with pytest.raises(JournalDamaged, match="its checksum is not that"):
        part(800, 900)


def test_of_a_large_segment_a_reader_holds_a_row_group_and_not_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqcast.journal.roll.ROW_GROUP_BYTES", 1 << 20)
    noise = np.random.default_rng(1).bytes(120 * 100_000)
    rows = [Row(A, 1 + at, 0, 1 + at, noise[at * 100_000 : (at + 1) * 100_000]) for at in range(120)]
    (segment,) = journal_read.read(journal(tmp_path, A, [(V1, rows)], payload="full", step=10)).segments
    assert segment.size > segments.WHOLE_BYTES_MAX
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        payloads = [row for batch in segments.segment_batches(segment) for row in batch["payload"].to_pylist()]
    finally:
        pa.set_memory_pool(before)
    assert payloads == [row.payload for row in rows] and pool.max_memory() < segment.size / 2

    batches = segments.segment_batches(segment, batch_rows=10)
    next(batches)
    os.truncate(segment.path, segment.size // 2)
    with pytest.raises(JournalDamaged):
        list(batches)
    with pytest.raises(JournalDamaged, match="its checksum is not that"):
        next(segments.segment_batches(segment))
    segment.path.unlink()
    with pytest.raises(JournalDamaged, match="is missing"):
        next(segments.segment_batches(segment))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_journal_that_a_full_disk_ended_says_so_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the view that the disk did not take is there then."""
    monkeypatch.setattr(journal_writer, "RETRY_S", 0.02)
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=0)
    number = writer._views_file.fileno()
    kept = os.dup(number)
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), number)
    writer.view(V1, 1)
    wait_until(lambda: writer._error is not None)
    time.sleep(0.1)
    assert (writer.path / "views.jsonl").read_bytes() == b""
    os.dup2(kept, number)
    os.close(kept)
    wait_until(lambda: journal_read.read(writer.path).failed)
    found = journal_read.read(writer.path)
    assert "No space left" in found.failed and [view.view_id for view in found.views] == [V1.view_id]
    writer.close("leave")
    assert journal_read.read(writer.path).failed == found.failed
