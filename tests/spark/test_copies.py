"""A table with each message once, whichever journals have it."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from journal_data import Row, journal, member, view
from partition_story import partitioned, union

from seqcast.journal import manifest
from seqcast.journal.schema import JournalError
from seqcast.journal.tap import Tap
from seqcast.spark.options import Tabled
from seqcast.spark.source import JournalReader
from seqcast.spark.stores import Folders, Taps
from seqcast.spark.wanted import Wanted
from seqcast.types import Member, View

A, B, C, D = (member(name) for name in "abcd")
V1, V2 = view(1, [A, B, C]), view(2, [B, C])
Story = list[tuple[View, list[Row]]]


@pytest.fixture(params=["files", "tap"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "files":
        yield Folders([str(tmp_path)])
    else:
        with Tap(tmp_path, ("127.0.0.1", 0), b"t" * 16) as tap:
            yield Taps(f"127.0.0.1:{tap.address[1]}", b"t" * 16, "")


def table(store: Any, **options: str) -> list[tuple[int, int, int, int]]:
    """The identities of the rows of a table with ``copies=one``."""
    reader = JournalReader([store], Wanted.of(options), Tabled(once=True))
    parts = pickle.loads(pickle.dumps(reader.partitions()))
    names, mask = ("view_tag", "sender_id", "seqno", "index"), (1 << 64) - 1
    return [
        (tag & mask, sender & mask, seqno, index)
        for part in parts
        for batch in reader.read(part)
        for tag, sender, seqno, index in zip(*(batch[name].to_pylist() for name in names), strict=True)
    ]


def rows(n: int, senders: Any = (A, B, C), *, total: bool = True) -> list[Row]:
    return [Row(senders[at % len(senders)], 1 + at, 0, (1 + at) * total, b"%d" % at) for at in range(n)]


def identities(of: View, some: list[Row]) -> list[tuple[int, int, int, int]]:
    return sorted((of.view_id.tag, row.sender.id, row.seqno, row.index) for row in some)


def write(top: Path, stories: dict[Member, Story], **settings: Any) -> None:
    for who, story in stories.items():
        journal(top, who, story, **settings)


@pytest.mark.parametrize("again", [False, True])
def test_each_message_of_each_side_of_a_partition_comes_once(tmp_path: Path, store: Any, again: bool) -> None:
    stories = partitioned(again=again)
    write(tmp_path, stories)
    found = table(store)
    assert len(set(found)) == len(found) and sorted(found) == union(stories)
    (counter,) = {of.view_id.counter for of, _ in stories[B][1:2]}
    some = {who: [each for each in story if each[0].view_id.counter == counter] for who, story in stories.items()}
    assert sorted(table(store, view=str(counter))) == union(some)
    assert {sender for _, sender, _, _ in table(store, sender="b", columns="view_tag,sender_id,seqno,index")} == {B.id}


def test_sides_that_did_not_merge_come_too(tmp_path: Path, store: Any) -> None:
    stories = {who: story[:2] for who, story in partitioned().items()}
    write(tmp_path, stories, closed=None)
    assert sorted(table(store)) == union(stories)


def test_two_groups_in_one_directory_come_both(tmp_path: Path, store: Any) -> None:
    later = view(1, [D], attempt=7)
    stories: dict[Member, Story] = {A: [(V1, rows(20))], B: [(V1, rows(20))], D: [(later, rows(10, (D,)))]}
    write(tmp_path, stories)
    assert sorted(table(store)) == union(stories)


@pytest.mark.parametrize("closed", [True, False])
def test_rows_that_only_a_crashed_member_has_come_if_nobody_closed_the_view(
    tmp_path: Path, store: Any, closed: bool
) -> None:
    journal(tmp_path, A, [(V1, rows(30))], closed=None)
    journal(tmp_path, B, [(V1, rows(20)), *([(V2, rows(5, (B, C)))] if closed else [])], closed=None)
    expected = identities(V1, rows(20)) + identities(V2, rows(5, (B, C))) if closed else identities(V1, rows(30))
    assert sorted(table(store)) == sorted(expected)


@pytest.mark.parametrize("order", ["fifo", "records"])
def test_members_in_an_open_view_give_the_packets_that_the_others_lack(tmp_path: Path, store: Any, order: str) -> None:
    of, total = view(1, [A, B, C], order), order != "fifo"
    every = rows(60, total=total)
    ours = [row for row in every if row.sender != B or row.seqno < 20]
    theirs = [row for row in every if row.sender != A or row.seqno < 30]
    if total:
        ours, theirs = every[:40], every
    write(tmp_path, {A: [(of, ours)], B: [(of, theirs)]}, closed=None)
    assert sorted(table(store)) == identities(of, every)


def test_journals_without_own_messages_make_a_whole_together(tmp_path: Path, store: Any) -> None:
    every = rows(60)
    write(
        tmp_path, {who: [(V1, [row for row in every if row.sender != who]), (V2, [])] for who in (B, C)},
        deliver_own=False,
    )  # fmt: skip
    assert sorted(table(store)) == identities(V1, every)


def test_a_journal_that_retention_has_cut_leaves_its_views_to_others(tmp_path: Path) -> None:
    stories: dict[Member, Story] = {who: [(V1, rows(60)), (V2, rows(40, (B, C)))] for who in (B, C)}
    write(tmp_path, stories, segment_rows=10, step=10, payload="full")
    cut = next(tmp_path.glob("b-*"))
    retain(cut, 45)
    assert sorted(table(Folders([str(tmp_path)]))) == union(stories)
    shutil.rmtree(next(tmp_path.glob("c-*")))
    assert len(table(Folders([str(tmp_path)]))) == 60  # the rest


def test_sides_that_cannot_be_told_apart_any_more_are_an_error(tmp_path: Path) -> None:
    old = view(1, [A, B], "fifo")
    write(
        tmp_path,
        {who: [(old, rows(60, (A, B), total=False)), (view(2, [who], "fifo"), [])] for who in (A, B)},
        segment_rows=10, step=10,
    )  # fmt: skip
    assert sorted(table(Folders([str(tmp_path)]))) == identities(old, rows(60, (A, B), total=False))
    for path in tmp_path.iterdir():
        retain(path, 15)
    with pytest.raises(JournalError, match="read them with copies=all"):
        table(Folders([str(tmp_path)]))


def retain(path: Path, first: int) -> None:
    """As if retention had removed segments of ten rows before that with a row."""
    before = manifest.load(path)
    keep = 1 + first // 10
    rolled = {number: each for number, each in before.rolled.items() if number >= keep}
    manifest.save(path, manifest.Manifest(before.started, rolled, keep, rolled[keep].first_idx))
