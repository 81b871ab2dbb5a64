"""Small segments are rolled into one file: no row is lost, repeated or hidden by that, whenever the member is
killed."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from journal_data import Row, batch_of, member, view, wait_for_rows
from members import wait_until

from seqcast.journal import manifest, read, segments, stream
from seqcast.journal import roll as journal_roll
from seqcast.journal.schema import JournalDamaged
from seqcast.journal.tap import rows_between
from seqcast.journal.writer import JournalWriter

A = member("a")
V1 = view(1, [A])
ROWS = [Row(A, 1 + at, 0, 1 + at, b"%d" % at) for at in range(500)]


def five_segments(tmp_path: Path, **settings: Any) -> JournalWriter:
    """The writer of five segments of 100 rows, all finished."""
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=0, segment_rows=100, **settings)
    writer.view(V1, 1)
    for at in range(0, 500, 100):
        writer.batch(batch_of(ROWS[at : at + 100], V1), V1)
        wait_for_rows(writer, at + 100)
    wait_until(lambda: writer.counters()["segments"] == 5)
    return writer


def positions(path: Path) -> list[int]:
    return [idx for batch in read(path).batches(["idx"]) for idx in batch["idx"].to_pylist()]


def files(path: Path) -> list[str]:
    return sorted(each.name.removeprefix("segment-00000") for each in path.glob("segment-*"))


def test_small_segments_wait_for_others_as_streams_and_become_one_file(tmp_path: Path) -> None:
    writer = five_segments(tmp_path, together_rows=300)
    wait_until(lambda: writer.counters()["rolled"] == 3)
    wait_until(lambda: files(writer.path) == ["1.parquet", "4.arrows", "4.sums", "5.arrows", "5.sums"])
    assert [(each.number, each.live, each.first_idx) for each in read(writer.path).segments] == [
        (1, False, 0), (4, True, 300), (5, True, 400)
    ]  # fmt: skip
    assert positions(writer.path) == list(range(500)) and writer.counters()["unrolled"] == 2
    writer.close("leave")
    assert files(writer.path) == ["1.parquet", "4.parquet"]
    assert [(each.number, each.last, each.rows) for each in manifest.load(writer.path).rolled.values()] == [
        (1, 3, 300), (4, 5, 200)
    ]  # fmt: skip
    assert positions(writer.path) == list(range(500)) and writer.counters()["roll_errors"] == 0


def test_rolling_costs_no_more_for_a_batch_of_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that writes each row for itself leaves as many batches as rows."""
    writer, calls, whole = five_segments(tmp_path), Counter[str](), journal_roll.stream_batches

    def singly(*given: Any) -> Iterator[Any]:
        for batch in whole(*given):
            yield from (batch.slice(at, 1) for at in range(batch.num_rows))

    monkeypatch.setattr(journal_roll, "stream_batches", singly)
    parts = [(path, journal_roll._whole(path)) for path in sorted(writer.path.glob("*.arrows"))]
    sys.setprofile(lambda frame, event, of: calls.update([event]))
    try:
        rolled = journal_roll._write(parts, tmp_path / "one.parquet", lambda: None)
    finally:
        sys.setprofile(None)
    writer.close("leave")
    assert rolled.rows == len(ROWS)
    assert calls["call"] < 50 * len(ROWS)


@pytest.mark.parametrize(("bound", "value", "segments"), [("TOGETHER_BYTES", 1, 1), ("TOGETHER_SEGMENTS", 2, 2)])
def test_many_bytes_or_segments_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int, segments: int
) -> None:
    monkeypatch.setattr(journal_roll, bound, value)
    writer = five_segments(tmp_path)
    wait_until(lambda: writer.counters()["rolled"] >= 4)
    writer.close("leave")
    files = manifest.load(writer.path).rolled.values()
    assert [each.last - each.number + 1 for each in files][:2] == [segments] * 2


def test_with_retention_by_age_a_small_segment_does_not_wait_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_roll, "EXPIRE_EVERY_S", 0.01)
    writer = five_segments(tmp_path, keep_s=0.2)
    wait_until(lambda: writer.counters()["unrolled"] == 0)
    writer.close("leave")


def test_retention_removes_the_oldest_file_with_all_its_segments(tmp_path: Path) -> None:
    writer = five_segments(tmp_path, together_rows=200, keep_bytes=1)
    writer.close("leave")
    found = read(writer.path)
    assert (found.first_idx, found.end_idx, writer.counters()["expired"]) == (400, 500, 4)
    assert files(writer.path) == ["5.parquet"] and positions(writer.path) == list(range(400, 500))


def test_a_kill_at_any_step_leaves_every_row_once_and_readers_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remains of a kill are copied before each change of a file's name, and read by a reader that listed the
    streams before, too."""
    writer = five_segments(tmp_path / "journals")
    listed = read(writer.path)
    assert [segment.live for segment in listed.segments] == [True] * 5
    left: list[Path] = []

    def copied(change: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **options: Any) -> Any:
            if writer.path in Path(given[0]).parents:
                left.append(Path(shutil.copytree(writer.path, tmp_path / "left" / str(len(left)))))
            return change(*given, **options)

        return step

    with monkeypatch.context() as patched:
        patched.setattr(journal_roll, "ROW_GROUP_ROWS", 100)  # of which a reader takes only some
        for of, name in ((Path, "replace"), (Path, "unlink"), (os, "replace")):
            patched.setattr(of, name, copied(getattr(of, name)))
        writer.close("leave")
    assert len(left) >= 12 and files(writer.path) == ["1.parquet"]
    assert len({(*files(path), len(manifest.load(path).rolled)) for path in left}) >= 12
    for path in [*left, writer.path]:
        assert positions(path) == list(range(500))
        moved = [dataclasses.replace(each, path=path / each.path.name) for each in listed.segments]
        before = dataclasses.replace(listed, segments=tuple(moved))
        assert [idx for batch in before.batches(["idx"]) for idx in batch["idx"].to_pylist()] == list(range(500))
        part = [idx for batch in rows_between(before, 150, 320, ["idx"]) for idx in batch["idx"].to_pylist()]
        assert part == list(range(150, 320))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data, at: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], r"segment-000003\.arrows is altered"),
        (lambda data, at: data[:-4], r"segment-000003\.arrows is torn, and is not the last"),
    ],
    ids=["a flipped bit", "cut short"],
)
def test_a_damaged_segment_is_rolled_with_no_other_and_stays_damage(
    tmp_path: Path, change: Callable[[bytes, int], bytes], says: str
) -> None:
    writer = five_segments(tmp_path)
    victim = writer.path / "segment-000003.arrows"
    data, messages = victim.read_bytes(), stream.read_sums(victim)[0]
    victim.write_bytes(change(data, messages[1].offset + 200))
    writer.close("leave")
    assert files(writer.path) == ["1.parquet", "2.parquet", "3.arrows", "3.sums", "4.parquet", "5.parquet"]
    assert (writer.counters()["rolled"], writer.counters()["roll_errors"]) == (4, 1)
    with pytest.raises(JournalDamaged, match=says):
        positions(writer.path)
    victim.write_bytes(data)
    assert positions(writer.path) == list(range(500))


def test_a_manifest_with_a_segment_at_another_position_is_damage(tmp_path: Path) -> None:
    writer = five_segments(tmp_path)
    listed = read(writer.path)
    writer.close("leave")
    found = manifest.load(writer.path)
    manifest.save(writer.path, dataclasses.replace(found, rolled={1: dataclasses.replace(found.rolled[1], rows=450)}))
    with pytest.raises(JournalDamaged, match="segment 5 at another position"):
        list(segments.segment_batches(listed.segments[4]))
