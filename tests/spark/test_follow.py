"""A stream that follows the members of a group, whoever is lost: each message once, or an error that says why not."""

from __future__ import annotations

import dataclasses
import functools
import pickle
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from halves import first_quick, quick
from journal_data import Row, batch_of, journal, member, view
from members import LOOPBACK, cluster, script, wait_until
from members import join as join_group
from partition_story import APART, BOTH, OLD, OTHER, A, B, C, D, merged, partitioned, rows, union
from pyspark.sql.streaming.datasource import ReadAllAvailable
from stream_query import Query, Tagged, followed_by

import seqcast
from seqcast.journal import reader, seals
from seqcast.journal.schema import JournalError
from seqcast.journal.tap import Tap, TapClient
from seqcast.journal.writer import JournalWriter
from seqcast.spark import follow
from seqcast.spark.source import JournalReader
from seqcast.spark.stores import Folders, Taps
from seqcast.spark.wanted import Wanted
from seqcast.types import Member, View

V1, V2, V3 = view(1, [A, B, C]), view(2, [B, C]), view(3, [B, C, D])
ONE, TWO, THREE = rows("one", 300), rows("two", 200, (B, C)), rows("three", 100, (B, C, D))
ALL = [row.payload for row in ONE + TWO + THREE]


@pytest.fixture(params=["files", "tap"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, ...]]:
    if request.param == "files":
        yield (Folders([str(tmp_path)]),)
    else:
        with Tap(tmp_path, ("127.0.0.1", 0), b"t" * 16) as tap:
            yield (Taps(f"127.0.0.1:{tap.address[1]}", b"t" * 16, ""),)


@pytest.mark.parametrize("delivered", [0, 1, 120, 299, 300])
@pytest.mark.parametrize("rows_max", [0, 70])
def test_after_a_crash_another_journal_goes_on_with_each_message_once(
    tmp_path: Path, stores: Any, delivered: int, rows_max: int
) -> None:
    lost = journal(tmp_path, A, [(V1, ONE[:delivered])], closed=None, payload="full")
    query = Query(*stores)
    query.run(rows_max)
    assert query.rows == ALL[:delivered]
    journal(tmp_path, B, [(V1, ONE), (V2, TWO), (V3, THREE)], payload="full")
    if rows_max:
        shutil.rmtree(lost)  # the member's machine is gone too
        query.again()
    assert query.run(rows_max) == ALL
    query.again()
    assert query.run(rows_max) == ALL


def test_a_member_that_left_is_followed_by_another_and_a_restarted_one_takes_over(tmp_path: Path, stores: Any) -> None:
    journal(tmp_path, A, [(V1, ONE)], payload="full")
    query = Query(*stores)
    assert query.run() == ALL[:300]
    journal(tmp_path, B, [(V1, ONE), (V2, TWO[:150])], closed=None, payload="full")
    assert query.run() == ALL[:450]
    again = member("a", 2)
    v3, v4, four = view(3, [C, again]), view(4, [again]), rows("four", 40, (again,))
    three = rows("three", 60, (C, again))
    journal(tmp_path, C, [(V1, ONE), (V2, TWO), (v3, three)], closed=None, payload="full")
    assert query.run() == ALL[:500] + [row.payload for row in three]
    journal(tmp_path, again, [(v3, three), (v4, four)], payload="full")
    assert query.run() == ALL[:500] + [row.payload for row in three + four]


@pytest.mark.parametrize("empty", [0, 2])
def test_a_member_that_falls_after_views_without_messages_is_lost(tmp_path: Path, stores: Any, empty: int) -> None:
    quiet = [(view(2 + at, [A, B, C, D][: 4 - at]), []) for at in range(empty)]
    lost = journal(tmp_path, A, [(V1, ONE)], closed=None, payload="full")
    query = Query(*stores)
    query.run()
    shutil.rmtree(lost)
    journal(tmp_path, A, [(V1, ONE), *quiet], closed=None, payload="full")
    without, later = view(7, [B, C]), view(8, [B, C, D])
    journal(tmp_path, B, [(V1, ONE), *quiet, (without, TWO), (later, THREE)], closed=None, payload="full")
    assert query.run() == ALL


@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("read_before", [True, False])
def test_a_member_that_falls_in_a_view_that_nobody_else_installed_is_lost(
    tmp_path: Path, stores: Any, gone: bool, read_before: bool
) -> None:
    only_a = [view(2 + at, [A, B, C], attempt=9) for at in range(40)]
    first = journal(tmp_path, A, [(V1, ONE)], closed=None, payload="full")
    query = Query(*stores)
    if read_before:
        query.run()
    shutil.rmtree(first)
    lost = journal(tmp_path, A, [(V1, ONE), *((of, []) for of in only_a)], closed=None, payload="full")
    assert query.run() == ALL[:300]
    journal(tmp_path, B, [(V1, ONE), (V2, TWO), (V3, THREE)], closed=None, payload="full")
    if gone:
        shutil.rmtree(lost)
    assert query.run() == ALL
    query.again()


def test_a_member_that_came_at_the_end_of_the_rows_read_continues_the_stream(tmp_path: Path, stores: Any) -> None:
    lost = journal(tmp_path, A, [(V1, ONE)], closed=None, payload="full")
    query, later = Query(*stores), Query(*stores)
    query.run()
    shutil.rmtree(lost)
    v2 = view(2, [A, D])
    journal(tmp_path, A, [(V1, ONE), (v2, [])], closed=None, payload="full")
    later.run()
    three = rows("three", 50, (D,))
    journal(tmp_path, D, [(v2, []), (view(3, [D]), three)], closed=None, payload="full")
    assert query.run() == later.run() == ALL[:300] + [row.payload for row in three]


def test_a_member_that_is_slow_is_not_lost(tmp_path: Path, stores: Any) -> None:
    journal(tmp_path, A, [(V1, ONE[:100])], closed=None, payload="full")
    journal(tmp_path, B, [(V1, ONE)], closed=None, payload="full")
    query = Query(*stores)
    assert query.run() == ALL[:100] and query.log[-1]["member"] == f"{A.id:016x}"


def test_a_stream_goes_to_a_journal_of_a_view_that_goes_on_if_that_has_as_much(tmp_path: Path, stores: Any) -> None:
    journal(tmp_path, A, [(V1, ONE[:100])], closed="failed: no space left", payload="full")  # the member goes on
    b = journal(tmp_path, B, [(V1, ONE[:90])], closed=None, payload="full")
    query = Query(*stores)
    assert query.run() == ALL[:100] and query.log[-1]["member"] == f"{A.id:016x}"
    shutil.rmtree(b)
    journal(tmp_path, B, [(V1, ONE[:250])], closed=None, payload="full")
    assert query.run() == ALL[:250] and query.log[-1]["member"] == f"{B.id:016x}"


@pytest.mark.parametrize("late", [90, 100, 300])
@pytest.mark.parametrize("order", ["records", "grant"])
def test_if_deliveries_are_not_prefixes_a_view_must_be_closed_from_its_first_transitional_message_on(
    tmp_path: Path, stores: Any, order: str, late: int
) -> None:
    """Before, all members deliver the same: A's disk is full, A goes on, and so does the stream, in B's journal."""
    one, two = view(1, [A, B, C], order), view(2, [B, C], order)
    closing = [dataclasses.replace(row, transitional=at >= late) for at, row in enumerate(ONE)]
    journal(tmp_path, A, [(one, ONE[:100])], closed="failed: no space left", payload="full")
    b = journal(tmp_path, B, [(one, closing)], closed=None, payload="full")
    query = Query(*stores)
    assert query.run() == (ALL[:100] if late < 100 else ALL[:300])
    told = query.stream.reportLatestOffset()["behind"]
    assert told.get("b", {}).get("messages") == (None if late < 100 else 0)
    shutil.rmtree(b)
    journal(tmp_path, B, [(one, closing), (two, TWO)], payload="full")
    assert query.run() == ALL[:500]


def test_a_member_that_seems_lost_is_given_time(tmp_path: Path) -> None:
    lost = journal(tmp_path, A, [(V1, ONE[:100])], closed=None, payload="full")
    query = Query(Folders([str(tmp_path)]), failover_s=0.5)
    query.run()
    journal(tmp_path, B, [(V1, ONE), (V2, TWO)], payload="full")
    threading.Event().wait(0.15)  # for the next look at other members
    assert query.step() == 0
    lost.rename(tmp_path / "away")
    threading.Event().wait(0.6)
    assert query.run() == ALL[:500]


def test_messages_that_only_the_lost_member_delivered_are_reported(tmp_path: Path, stores: Any) -> None:
    journal(tmp_path, A, [(V1, ONE)], closed=None, payload="full")
    query, lenient = Query(*stores), Query(*stores, fail_on_data_loss=False)
    assert query.run() == lenient.run() == ALL[:300]
    journal(tmp_path, B, [(V1, ONE[:290]), (V2, TWO)], payload="full")
    with pytest.raises(seqcast.UsageError, match="known to have the same only up to 290"):
        query.run()
    assert lenient.run() == ALL[:500]


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("gone", [True, False])
def test_beyond_the_stable_point_the_journals_are_compared(tmp_path: Path, same: bool, gone: bool) -> None:
    swapped = [*ONE[:98], ONE[99], ONE[98], *ONE[100:200]]  # at 99 and 100 other messages than the others have
    lost = journal(tmp_path, A, [(V1, ONE[:200] if same else swapped)], closed=None, payload="full")
    query = Query(Folders([str(tmp_path)]))
    query.run()
    without_prefix(tmp_path, B, [(V1, transitional(ONE, 98)), (V2, TWO)])
    if gone:
        shutil.rmtree(lost)
    if same and not gone:
        assert query.run() == ALL[:500]
    else:
        with pytest.raises(seqcast.UsageError, match="known to have the same only up to 97"):
            query.run()


def transitional(of: list[Row], first: int) -> list[Row]:
    return [dataclasses.replace(row, transitional=row.global_seqno >= first) for row in of]


def without_prefix(top: Path, who: Member, story: list[tuple[View, list[Row]]]) -> None:
    writer = JournalWriter(top, cluster="test", member=who, payload="full", flush_s=0.001)
    for of, content in story:
        writer.view(of, 1, prefix=False)
        writer.batch(batch_of(content, of), of)
    writer.close("leave")


def test_a_lost_member_that_closed_the_view_apart_is_a_side(tmp_path: Path) -> None:
    swapped = [*ONE[:98], ONE[99], ONE[98], *ONE[100:200]]
    numbered = [dataclasses.replace(row, global_seqno=at) for at, row in enumerate(swapped, 1)]
    lost = journal(tmp_path, A, [(V1, numbered)], closed=None, payload="full")
    query = Query(Folders([str(tmp_path)]))
    query.run()
    shutil.rmtree(lost)
    without_prefix(tmp_path, A, [(V1, transitional(numbered, 98)), (view(2, [A]), [])])
    without_prefix(tmp_path, B, [(V1, ONE), (view(2, [B, C], attempt=2), TWO)])
    assert sorted(query.run()) == sorted(ALL[:500])  # as at a merge: a side of a partition has rows of its own


@pytest.mark.parametrize(("read", "tells"), [(97, None), (150, 97), (200, None)])
def test_an_offset_says_how_far_a_view_that_was_closed_apart_is_stable(
    tmp_path: Path, read: int, tells: int | None
) -> None:
    """The member's journal went with its machine. Nobody else knows that this member closed the view in an order of its
    own."""
    swapped = [*ONE[:98], ONE[99], ONE[98], *ONE[100:200]]
    numbered = [dataclasses.replace(row, global_seqno=at) for at, row in enumerate(swapped, 1)]
    without_prefix(tmp_path, A, [(V1, transitional(numbered, 98)), (view(2, [A]), [])])
    query = Query(Folders([str(tmp_path)]))
    query.step(read)
    assert query.log[-1].get("stable") == tells
    shutil.rmtree(next(tmp_path.iterdir()))
    without_prefix(tmp_path, B, [(V1, ONE), (view(2, [B, C], attempt=2), TWO)])
    if read == 97:
        assert query.run() == ALL[:500]
    else:  # at the end of the view, a record that names the view before tells
        with pytest.raises(seqcast.UsageError, match="known to have the same only up to 97"):
            query.run()


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("read", [97, 150, 200])
def test_a_member_that_falls_before_it_closes_a_view_has_told_how_far_it_is_stable(
    tmp_path: Path, stores: Any, read: int, gone: bool
) -> None:
    """The member has delivered the view's last messages, in an order of its own, and has recorded no further view."""
    of = view(1, [A, B, C], "records")
    swapped = [*ONE[:98], ONE[99], ONE[98], *ONE[100:200]]
    numbered = [dataclasses.replace(row, global_seqno=at) for at, row in enumerate(swapped, 1)]
    lost = journal(tmp_path, A, [(of, transitional(numbered, 98))], closed=None, payload="full")
    query = Query(*stores)
    query.step(read)
    assert query.log[-1].get("stable") == (97 if read > 97 else None)
    if gone:
        shutil.rmtree(lost)
    journal(tmp_path, B, [(of, ONE), (V2, TWO)], payload="full")
    if read == 97 and gone:
        assert query.run() == ALL[:500]
    else:  # the rows of the lost member's journal are read first
        with pytest.raises(seqcast.UsageError, match="known to have the same only up to 97"):
            query.run()


@pytest.mark.parametrize("asked", range(1, 5))
def test_a_tap_that_dies_between_two_requests_of_the_driver_is_a_lost_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int
) -> None:
    """With the order ``records`` the driver reads rows, to say in its offset how far the view is stable."""
    of = view(1, [A, B, C], "records")
    with (
        Tap(tmp_path / "one", ("127.0.0.1", 0), b"t" * 16) as first,
        Tap(tmp_path / "other", ("127.0.0.1", 0), b"t" * 16) as second,
    ):
        journal(tmp_path / "one", A, [(of, ONE)], closed=None, payload="full")
        query = Query(*(Taps(f"127.0.0.1:{tap.address[1]}", b"t" * 16, "") for tap in (first, second)))
        query.step(100)
        journal(tmp_path / "other", B, [(of, ONE), (V2, TWO)], closed=None, payload="full")
        requests: list[str] = []

        def dying(client: TapClient, request: Any) -> Any:
            requests.extend([request["want"]] * (client.address == f"127.0.0.1:{first.address[1]}"))
            if len(requests) == asked:
                first.close()
                client.close()
            return real(client, request)

        real = TapClient._asked
        monkeypatch.setattr(TapClient, "_asked", dying)
        start = query.log[-1]
        while (end := query.stream.latestOffset(start, ReadAllAvailable())) == start:
            assert len(requests) >= asked
        query.stream.partitions(start, end)
        assert requests[:asked] == ["journal", "rows", "journal", "journal"][:asked]
        query.out.append(query._read(start, end))  # in place of tasks: their reads of a tap that dies fail
        query.log.append(end)
        assert query.run() == ALL[:500]


def test_a_stream_that_waits_for_rows_reads_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark asks many times a second, and one row of a rolled segment costs the checksum of its whole file."""
    journal(tmp_path, A, [(view(1, [A, B, C], "records"), ONE)], closed=None, payload="full")
    query, reads = Query(Folders([str(tmp_path)])), list[object]()
    assert query.run() == ALL[:300]
    monkeypatch.setattr(Folders, "rows", lambda *args: reads.append(args) or iter(()))
    told = query.stream.reportLatestOffset()
    assert (
        query.step() == 0 and told == {**query.log[-1], "behind": {"a": {"messages": 0, "seconds": 0.0}}} and not reads
    )


@pytest.mark.parametrize("closed", ["leave", None])
def test_the_other_side_of_a_partition_with_the_same_counter_is_gone_to_from_its_beginning(
    tmp_path: Path, stores: Any, closed: str | None
) -> None:
    ours, theirs = view(2, [A]), view(2, [B, C], attempt=2)
    apart = rows("ours", 50, (A,))
    journal(tmp_path, A, [(V1, ONE), (ours, apart)], closed=closed, payload="full")
    query = Query(*stores)
    query.run()
    journal(tmp_path, B, [(V1, ONE), (theirs, TWO), (V3, THREE)], payload="full")
    assert query.run() == [*ALL[:300], *(row.payload for row in apart), *ALL[300:]]


def test_a_stream_ends_where_all_journals_end(tmp_path: Path, stores: Any) -> None:
    for who in (A, B, C):
        journal(tmp_path, who, [(V1, ONE)], payload="full")
    query = Query(*stores)
    assert query.run() == ALL[:300] and len(query.log) == 2
    query.stream.prepareForTriggerAvailableNow()
    assert query.run() == ALL[:300] and len(query.log) == 2


def by_sender(messages: list[bytes]) -> dict[bytes, list[bytes]]:
    """The messages of `unordered` of each sender, in their order."""
    return {name: [each for each in messages if each.startswith(name + b" ")] for name in (b"a", b"b", b"c")}


def unordered(of: View, first: int, counts: tuple[int, int, int]) -> list[Row]:
    """Messages of a view without total order, the senders one after the other, beginning with one."""
    senders = [(member("abc"[at % 3]), counts[at % 3]) for at in range(first, first + 3)]
    start = 1000 * of.view_id.counter
    return [
        Row(sender, start + n, 0, 0, b"%s %d" % (sender.name.encode(), start + n))
        for sender, count in senders
        for n in range(count)
    ]


@pytest.mark.parametrize("rows_max", [0, 7])
@pytest.mark.parametrize("order", ["fifo", "causal"])
@pytest.mark.parametrize("closed", ["leave", "failed: no space left", None])
def test_without_total_order_another_member_goes_on_where_a_view_ends(
    tmp_path: Path, stores: Any, closed: str | None, order: str, rows_max: int
) -> None:
    """Positions in two journals mean nothing to each other; the missing rows of the view come by senders."""
    one, two = view(1, [A, B, C], order), view(2, [B, C], order)
    cut = unordered(one, 1, (12, 20, 20))
    at_a = unordered(one, 0, (12, 20, 20) if closed == "leave" else (14, 15, 0))
    journal(tmp_path, A, [(one, at_a)], closed=closed, successor=two, payload="full")
    query = Query(*stores)
    assert query.run(rows_max) == [row.payload for row in at_a] and "view" not in query.log[-1]
    b = journal(tmp_path, B, [(one, cut)], closed=None, payload="full")
    assert query.run(rows_max) == [row.payload for row in at_a]  # the view is not closed yet
    shutil.rmtree(b)
    last = unordered(two, 1, (0, 30, 30))
    journal(tmp_path, B, [(one, cut), (two, last)], closed=None, payload="full")
    query.again()
    whole = query.run(rows_max)
    first = {row.payload for row in [*at_a, *cut]}
    assert len(set(whole)) == len(whole) and {*whole[: len(first)]} == first
    assert whole[len(first) :] == [row.payload for row in last]
    assert by_sender(whole) == {
        name: sorted(each, key=lambda row: int(row[2:])) for name, each in by_sender(whole).items()
    }


@pytest.mark.parametrize("rows_max", [0, 7])
def test_a_side_that_was_left_is_gone_back_to_when_the_other_one_goes_no_further(tmp_path: Path, rows_max: int) -> None:
    stories = partitioned()
    short = {A: [stories[A][0], (APART, stories[A][1][1][:25])], B: stories[B][:2]}
    for who, story in short.items():
        journal(tmp_path, who, story, closed=None, payload="full")
    query = followed_by("a", Tagged, Folders([str(tmp_path)]))
    query.run(rows_max)
    assert sorted(query.rows) == union(short) and query.log[-1]["member"] == f"{B.id:016x}"
    shutil.rmtree(next(tmp_path.glob("a-*")))
    journal(tmp_path, A, stories[A][:2], closed=None, payload="full")
    query.again()
    query.run(rows_max)
    assert sorted(query.rows) == union({A: stories[A][:2], B: stories[B][:2]})
    assert query.log[-1]["member"] == f"{A.id:016x}" and len(query.rows) == len({*query.rows})
    for who in (A, B, C):
        for before in tmp_path.glob(f"{who.name}-*"):
            shutil.rmtree(before)
        journal(tmp_path, who, stories[who], closed=None, payload="full")
    query.stream.prepareForTriggerAvailableNow()
    query.run(rows_max)
    assert sorted(query.rows) == union(stories) and len(query.rows) == len({*query.rows})


def test_members_that_lack_their_own_messages_do_not_stand_in(tmp_path: Path, stores: Any) -> None:
    journal(tmp_path, A, [(V1, ONE[:200])], closed=None, payload="full")
    query = Query(*stores)
    query.run()
    own = [row for row in ONE if row.sender != B]
    journal(tmp_path, B, [(V1, own), (V2, TWO)], payload="full", deliver_own=False)
    assert query.run() == ALL[:200]
    journal(tmp_path, C, [(V1, ONE), (V2, TWO)], payload="full")
    assert query.run() == ALL[:500]


def test_several_groups_or_only_incomplete_members_are_refused(tmp_path: Path) -> None:
    for who in (A, B):
        journal(tmp_path / "own", who, [(V1, ONE)], payload="hash", deliver_own=False)
    with pytest.raises(seqcast.UsageError, match="none can replace another"):
        Query(Folders([str(tmp_path / "own")]))
    journal(tmp_path / "two", A, [(V1, ONE)])
    journal(tmp_path / "two", D, [(V1, ONE)], cluster="other")
    with pytest.raises(seqcast.UsageError, match="journals of several groups"):
        Query(Folders([str(tmp_path / "two")]))
    with pytest.raises(seqcast.UsageError, match="no journal can be read"):
        Query(Folders([str(tmp_path / "none")]))


def test_available_now_goes_on_in_another_journal_up_to_the_rows_of_its_start(tmp_path: Path) -> None:
    journal(tmp_path, A, [(V1, ONE[:100])], closed=None, payload="full")
    journal(tmp_path, B, [(V1, ONE), (V2, TWO)], closed=None, payload="full")
    query = Query(Folders([str(tmp_path)]), failover_s=60.0)
    query.stream.prepareForTriggerAvailableNow()
    journal(tmp_path, C, [(V1, ONE), (V2, TWO), (V3, THREE)], payload="full")
    assert query.run(150) == ALL[:500]


def test_a_table_has_the_wanted_rows_of_all_journals_wherever_they_are(tmp_path: Path, stores: Any) -> None:
    for who in (A, B):
        journal(tmp_path, who, [(V1, ONE), (V2, TWO)], payload="full", segment_rows=100)

    def payloads(**options: str) -> list[tuple[str, bytes]]:
        reader = pickle.loads(pickle.dumps(JournalReader(stores, Wanted.of(options))))
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        return [(row["member"], row["payload"]) for batch in batches for row in batch.to_pylist()]

    both = [(who, row) for who in "ab" for row in ALL[:500]]
    assert payloads() == both
    assert payloads(view="2", sender="c") == [(who, row.payload) for who in "ab" for row in TWO if row.sender == C]
    assert payloads(since="2033-01-01") == []


@pytest.mark.parametrize("file", ["journal.json", "segments.json", "views.jsonl"])
def test_a_table_leaves_out_no_journal_that_is_damaged(tmp_path: Path, file: str) -> None:
    journal(tmp_path, A, [(V1, ONE)], payload="full")
    hit = journal(tmp_path, B, [(V1, ONE)], payload="full") / file
    hit.write_bytes(hit.read_bytes().replace(b"e", b"f", 1))
    with Tap(tmp_path, ("127.0.0.1", 0), b"t" * 16) as tap:
        for store in (Folders([str(tmp_path / "*")]), Taps(f"127.0.0.1:{tap.address[1]}", b"t" * 16, "")):
            with pytest.raises(seqcast.UsageError, match=file):
                JournalReader([store], Wanted()).partitions()
    with pytest.raises(seqcast.UsageError, match="cannot be reached"):
        JournalReader([store], Wanted()).partitions()


MEMBER = """
    import sys, time
    import seqcast
    cluster, name, interface, journal = sys.argv[1:]
    with seqcast.join(cluster, name=name, interface=interface, journal=journal, journal_payload="full") as group:
        print("joined", flush=True)
        number = 0
        while True:
            group.send(b"%s %d" % (name.encode(), number))
            number += 1
            if number % 20 == 0:
                while group.recv_batch(0.002) is not None:
                    pass
"""


@pytest.mark.long
def test_members_that_are_killed_one_after_the_other_leave_one_stream(tmp_path: Path) -> None:
    import textwrap

    name, top = cluster(), tmp_path / "journals"
    join_group(cluster(), "probe").leave()  # skips without multicast

    def start(who: str) -> Any:
        process = script(textwrap.dedent(MEMBER), name, who, LOOPBACK, str(top))
        assert process.stdout is not None and process.stdout.readline() == "joined\n"
        return process

    members = [start("a"), start("b"), start("c")]
    try:
        query = Query(Folders([str(top)]), failover_s=0.2)

        def reads_on() -> None:
            before = len(query.rows)
            wait_until(lambda: query.step(5000) >= 0 and len(query.rows) > before + 500, 60)

        reads_on()
        followed = [query.log[-1]["member"]]
        for restarted in ("d", "e"):
            found = query.stream._follower.find(int(followed[-1], 16))
            assert found is not None
            at = next(at for at, name in enumerate("abcde"[: len(members)]) if found.journal.member.name == name)
            members[at].kill()
            members[at].wait()
            wait_until(lambda: query.step(5000) >= 0 and query.log[-1]["member"] not in followed, 60)
            followed.append(query.log[-1]["member"])
            members.append(start(restarted))
            reads_on()
    finally:
        for process in members:
            process.kill()
            process.communicate()
    rows = query.rows
    assert len(followed) == 3 and len(rows) == len(set(rows)) > 1500
    # The stream's messages are those of the last journal from its first view on, and of each sender none is left out.
    for sender in ("a", "b", "c", "d", "e"):
        numbers = [int(row.split()[1]) for row in rows if row.startswith(sender.encode())]
        assert numbers == list(range(numbers[0] if numbers else 0, (numbers[-1] + 1) if numbers else 0))


# ---- partitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows_max", [0, 7])
@pytest.mark.parametrize("followed", ["a", "b", "c"])
def test_a_stream_whose_sides_never_met_again_gives_each_row_once_and_stands_still(
    tmp_path: Path, stores: Any, followed: str, rows_max: int
) -> None:
    """The side without messages begins where the other one begins, too: its place must not lead there once more."""
    old, other = rows("old", 30), rows("other", 20, (B, C))
    stories = {A: [(OLD, old), (APART, [])], B: [(OLD, old), (OTHER, other)], C: [(OLD, old), (OTHER, other)]}
    for who, story in stories.items():
        journal(tmp_path, who, story, payload="full")
    query = followed_by(followed, Tagged, *stores)
    before = None
    while query.log[-1] != before:
        before = query.log[-1]
        query.step(rows_max)
        assert len(query.rows) <= 50
    assert sorted(query.rows) == union(stories)


@pytest.mark.parametrize(("rows_max", "again"), quick([(0, False), (7, True)], [0, 7], [False, True]))
@pytest.mark.parametrize("followed", ["a", "b"])
def test_a_merge_brings_the_other_sides_deliveries_once(
    tmp_path: Path, stores: Any, followed: str, rows_max: int, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stories = partitioned(again=again)
    for who, story in stories.items():
        journal(tmp_path, who, story, payload="full")
    query = followed_by(followed, Tagged, *stores)
    while query.step(rows_max):
        query.again()  # reads each batch again
    assert len(set(query.rows)) == len(query.rows)
    assert sorted(query.rows) == union(stories)
    assert in_order_of_views(query.rows, stories)
    before = len(query.log)
    query.run()
    assert len(query.log) == before


def in_order_of_views(given: list[Any], stories: Any) -> bool:
    """No row of a view comes behind one of the view that merged that view."""
    back = BOTH.view_id.tag
    first = next(at for at, row in enumerate(given) if row[0] == back)
    old = {of.view_id.tag for of in (OLD, APART, OTHER)}
    return not any(row[0] in old for row in given[first:])


def test_a_branch_is_waited_for_until_its_journal_shows_it(tmp_path: Path) -> None:
    stories = partitioned()
    journal(tmp_path, A, stories[A], payload="full")
    for who in (B, C):
        journal(tmp_path, who, stories[who][:2], closed=None, payload="full")
    query = followed_by("a", Tagged, Folders([str(tmp_path)]), failover_s=60.0)
    query.run()
    assert {row[0] for row in query.rows} == {OLD.view_id.tag, APART.view_id.tag}
    shutil.rmtree(next(tmp_path.glob("b-*")))
    journal(tmp_path, B, stories[B], payload="full")
    query.again()
    query.run()
    assert sorted(query.rows) == union(stories)


def test_a_branch_whose_members_crashed_before_they_closed_it_is_waited_for_no_longer_than_a_lost_member(
    tmp_path: Path,
) -> None:
    stories = partitioned()
    journal(tmp_path, A, stories[A], closed=None, payload="full")
    for who in (B, C):
        journal(tmp_path, who, stories[who][:2], closed=None, payload="full")
    query = followed_by("a", Tagged, Folders([str(tmp_path)]), failover_s=0.2)
    query.run()
    assert {row[0] for row in query.rows} == {OLD.view_id.tag, APART.view_id.tag}
    time.sleep(0.2)
    query.run()
    assert sorted(query.rows) == union(stories)


@pytest.mark.parametrize("gone", [(B, C), (C,)])
def test_a_branch_that_no_journal_has_any_more_is_told(tmp_path: Path, gone: tuple[Member, ...]) -> None:
    stories = partitioned()
    for who in {A, B, C} - {*gone}:
        journal(tmp_path, who, stories[who], payload="full")
    query = followed_by("a", Tagged, Folders([str(tmp_path)]))
    if B not in gone:
        query.run()
        assert sorted(query.rows) == union(stories)
        return
    with pytest.raises(JournalError, match=f"view {OTHER.view_id.tag:016x} is missing"):
        query.run()
    lossy = followed_by("a", Tagged, Folders([str(tmp_path)]), fail_on_data_loss=False)
    lossy.run()
    assert sorted(lossy.rows) == union({A: stories[A]})


def test_a_branch_goes_on_in_the_journal_of_another_member_of_it(tmp_path: Path) -> None:
    stories = partitioned()
    for who, story in stories.items():
        journal(tmp_path, who, story, payload="full")
    query = followed_by("a", Tagged, Folders([str(tmp_path)]))
    while follow.branches_left(query.log[-1]) == 0:
        assert query.step(9)
    shutil.rmtree(next(tmp_path.glob("b-*")))
    query.again()
    query.run(9)
    assert sorted(query.rows) == union(stories)


@pytest.mark.parametrize("followed", ["a", "b"])
def test_a_member_that_never_installed_the_merged_view_has_its_rows_in_the_stream(
    tmp_path: Path, followed: str
) -> None:
    """A agreed to a merged view, was cut off before its installation, and closed its view by another one."""
    begun, alone = merged(5, OTHER, APART), view(6, [A], "records")
    without = view(7, [B, C], "records")
    both = merged(8, without, alone)
    old, at_end = (OLD, rows("old", 100)), (both, rows("both", 10))
    apart, other, more = rows("apart", 40, (A,)), rows("other", 60, (B, C)), rows("without", 30, (B, C))
    merging = [(begun, rows("begun", 25, (B, C))), (without, more), at_end]
    stories = {
        A: [old, (APART, apart), (alone, rows("alone", 20, (A,))), at_end],
        B: [old, (OTHER, other), *merging],
        C: [old, (OTHER, other), *merging],
    }
    for who, story in stories.items():
        journal(tmp_path, who, story, payload="full")
    query = followed_by(followed, Tagged, Folders([str(tmp_path)]))
    while query.step(7):
        query.again()
    assert len(set(query.rows)) == len(query.rows) and sorted(query.rows) == union(stories)


@pytest.mark.parametrize("rows_max", [0, 7])
def test_branches_do_not_come_again_if_the_member_falls_in_the_merged_view(tmp_path: Path, rows_max: int) -> None:
    """A agreed to the merged view, was cut off before its installation, and merges with C later."""
    ours, theirs = view(2, [A, B], "records"), view(2, [C], "records", attempt=2)
    both, alone_a, alone_c = merged(5, ours, theirs), view(6, [A], "records"), view(7, [C], "records")
    last = merged(9, alone_a, alone_c)
    old, at_end = (OLD, rows("old", 100)), (last, rows("last", 9, (A, C)))
    side, other = (ours, rows("ours", 60, (A, B))), (theirs, rows("theirs", 40, (C,)))
    stories = {
        A: [old, side, (alone_a, rows("a", 20, (A,))), at_end],
        B: [old, side, (both, [])],
        C: [old, other, (both, rows("both", 12, (C,))), (alone_c, rows("c", 8, (C,))), at_end],
    }
    for who, story in stories.items():
        journal(tmp_path, who, story, closed="killed", payload="full")
    query = followed_by("b", Tagged, Folders([str(tmp_path)]))
    query.run(rows_max)
    assert len(set(query.rows)) == len(query.rows) and sorted(query.rows) == union(stories)


@pytest.mark.parametrize("rows_max", [0, 7])
@pytest.mark.parametrize("back", [False, True])
def test_a_member_that_falls_alone_on_its_side_does_not_hold_up_the_stream(
    tmp_path: Path, back: bool, rows_max: int
) -> None:
    """A fallen member looks like one that is still cut off: if that one comes back, its deliveries meanwhile come once,
    too."""
    stories = partitioned(again=True)
    alone = stories[A][:2]
    journal(tmp_path, A, [(OLD, alone[0][1]), (APART, alone[1][1][:25])], closed=None, payload="full")
    for who in (B, C):
        journal(tmp_path, who, stories[who][:2], closed=None, payload="full")
    query = followed_by("a", Tagged, Folders([str(tmp_path)]))
    query.run(rows_max)
    query.again()
    query.run(rows_max)
    first_two = {A: [alone[0], (APART, alone[1][1][:25])], B: stories[B][:2]}
    assert sorted(query.rows) == union(first_two) and len(set(query.rows)) == len(query.rows)
    for path in [*tmp_path.iterdir()]:
        shutil.rmtree(path)
    for who in (A, B, C) if back else (A, B):
        story = stories[who] if back else first_two[A] if who is A else [*stories[B][:2], (V3, THREE)]
        journal(tmp_path, who, story, closed=None, payload="full")
    query.run(rows_max)
    query.again()
    query.run(rows_max)
    all_of = stories if back else {**first_two, B: [*stories[B][:2], (V3, THREE)]}
    assert sorted(query.rows) == union(all_of) and len(set(query.rows)) == len(query.rows)
    assert ("left" in query.log[-1]) is not back


@pytest.mark.parametrize("lossy", [False, True])
def test_a_journal_that_goes_with_its_side_is_told(tmp_path: Path, lossy: bool) -> None:
    stories = partitioned()
    lost = journal(tmp_path, A, stories[A][:2], closed=None, payload="full")
    query = followed_by("a", Tagged, Folders([str(tmp_path)]), fail_on_data_loss=not lossy)
    query.run()
    shutil.rmtree(lost)
    assert query.step() == 0  # no journal at all: one may come back
    journal(tmp_path, B, stories[B][:2], closed=None, payload="full")
    if lossy:
        query.run()
        assert {row[0] for row in query.rows} == {OLD.view_id.tag, APART.view_id.tag, OTHER.view_id.tag}
    else:
        with pytest.raises(JournalError, match="which this query follows, is gone"):
            query.run()


def test_a_stream_that_begins_with_the_latest_rows_has_no_branches_from_before(tmp_path: Path) -> None:
    stories = partitioned()
    for who, story in stories.items():
        journal(tmp_path, who, [*story[:2], (BOTH, [])], closed=None, payload="full")
    query = Tagged(Folders([str(tmp_path)]), starting="latest")
    assert query.run() == []


def test_two_groups_that_were_founded_apart_are_one_stream(tmp_path: Path) -> None:
    one, two = view(1, [A], "records"), view(1, [B], "records")
    both = merged(2, one, two)
    stories = {
        A: [(one, rows("a", 10, (A,))), (both, rows("both", 5, (A, B)))],
        B: [(two, rows("b", 10, (B,))), (both, rows("both", 5, (A, B)))],
    }
    for who, story in stories.items():
        journal(tmp_path, who, story, payload="full")
    assert sorted(Tagged(Folders([str(tmp_path)])).run()) == union(stories)


@pytest.mark.long
@pytest.mark.parametrize(
    "order", ["sequencer", *(pytest.param(order, marks=pytest.mark.long) for order in ("records", "grant", "fifo"))]
)
def test_a_member_that_was_only_paused_leaves_the_stream_whole(tmp_path: Path, order: str) -> None:
    """The paused member is excluded, alone, and merges again."""
    import os
    import signal
    import textwrap

    name, top = cluster(), tmp_path / "journals"
    join_group(cluster(), "probe").leave()  # skips without multicast
    text = textwrap.dedent(MEMBER).replace("cluster, name=name,", f"cluster, name=name, order={order!r},")
    members = []
    for who in "abc":
        members.append(script(text, name, who, LOOPBACK, str(top)))
        assert members[-1].stdout is not None and members[-1].stdout.readline() == "joined\n"
    folders = Folders([str(top)])
    query = followed_by("a", Tagged, folders, failover_s=60.0)

    def merges() -> int:
        counts = []
        for each in query.stream._follower.all():
            known = [at for at, installed in enumerate(each.journal.views) if installed.subgroups]
            counts.append(len(known) if known and each.journal.end_idx > each.journal.views[-1].idx else 0)
        return min(counts)

    try:
        for pause in (1, 2):
            rows = len(query.rows) + 500
            wait_until(functools.partial(lambda rows: query.step(500) >= 0 and len(query.rows) > rows, rows))
            os.kill(members[0].pid, signal.SIGSTOP)
            until = time.monotonic() + 3.0
            while time.monotonic() < until:
                query.step(500)
            os.kill(members[0].pid, signal.SIGCONT)
            wait_until(functools.partial(lambda pause: query.step(500) >= 0 and merges() >= pause, pause))
    finally:
        for process in members:
            process.kill()
        for process in members:
            process.communicate()
    query.again()
    query.run(500)
    journals = {each.journal.member.name: each.journal for each in query.stream._follower.all()}
    last = {journal.views[-1].tag for journal in journals.values()}
    mask, names = (1 << 64) - 1, ["view_tag", "sender", "seqno", "index"]
    delivered = {
        (tag & mask, sender & mask, seqno, index)
        for each in journals.values()
        for batch in each.batches(names)
        for tag, sender, seqno, index in zip(*(batch[name].to_pylist() for name in names), strict=True)
    }
    assert len(query.rows) == len(set(query.rows))
    lost, more = delivered - {*query.rows}, {*query.rows} - delivered
    assert not more and {tag for tag, *_ in lost} <= last
    views = {tag for tag, *_ in query.rows}
    assert journals["a"].views[-1].tag in views and len(views) >= 4


# ---- views that nobody closed by the next one ------------------------------------------------------------------------

ORDERS = ("sequencer", "records", "grant", "fifo", "causal")


def of_order(of: list[Row], order: str) -> list[Row]:
    return [dataclasses.replace(row, global_seqno=0) for row in of] if order in ("fifo", "causal") else of


def read_to_its_end(query: Query, whole: list[Row], rows_max: int) -> None:
    """The rest of the rows comes, also in small batches, each again after a restart, and then nothing more."""
    while query.step(rows_max):
        query.again()
    assert query.rows == [row.payload for row in whole]
    before = len(query.log)
    query.run()
    query.stream.prepareForTriggerAvailableNow()
    query.run()
    assert len(query.log) == before


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize("order", ORDERS)
def test_a_view_that_only_members_who_left_have_closed_is_read_to_its_end(
    tmp_path: Path, stores: Any, order: str, killed: bool
) -> None:
    one, two = view(1, [A, B, C], order), view(2, [C], order)
    whole = of_order(rows("one", 28), order)
    journal(tmp_path, A, [(one, whole[:20])], closed=None if killed else "failed to leave in time", payload="full")
    query = followed_by("a", Query, *stores)
    assert query.run() == [row.payload for row in whole[:20]]
    journal(tmp_path, B, [(one, whole)], successor=two if killed else None, payload="full")
    read_to_its_end(query, whole, 3)


@pytest.mark.parametrize("order", ORDERS)
def test_a_member_that_was_killed_before_it_installed_a_view_that_it_agreed_to_is_lost(
    tmp_path: Path, stores: Any, order: str
) -> None:
    """The lost member is in all views that the others installed before they were killed, too."""
    one, two = view(1, [A, B], order), view(2, [A, B], order)
    whole, more = of_order(rows("one", 28, (A, B)), order), of_order(rows("two", 9, (A, B)), order)
    journal(tmp_path, A, [(one, whole[:20])], closed="killed", payload="full")
    query = Query(*stores)
    assert query.run() == [row.payload for row in whole[:20]]
    journal(tmp_path, B, [(one, whole), (two, more)], closed="killed", payload="full")
    read_to_its_end(query, [*whole, *more], 3)


@pytest.mark.parametrize("order", first_quick(ORDERS))
def test_a_view_in_which_all_were_killed_is_read_to_the_end_of_the_longest_journal(
    tmp_path: Path, stores: Any, order: str
) -> None:
    of, whole = view(1, [A, B, C], order), of_order(rows("one", 28), order)
    journal(tmp_path, A, [(of, whole[:20])], closed="killed", payload="full")
    journal(tmp_path, B, [(of, whole[:25])], closed="killed", payload="full")
    journal(tmp_path, C, [(of, whole)], closed="killed", payload="full")
    read_to_its_end(followed_by("a", Query, *stores), whole, 3)


@pytest.mark.parametrize(
    ("order", "closed"),
    [*((order, closed) for order in ("fifo", "causal") for closed in ("killed", "leave", None)), ("records", "killed")],
)
def test_their_different_deliveries_come_once(tmp_path: Path, order: str, closed: str | None) -> None:
    """B and C have closed the view by different ones, or were killed, and nobody has closed the view."""
    one, two, apart = view(1, [A, B, C], order), view(2, [B, C], order), view(2, [C], order, attempt=2)
    delivered = {A: (4, 2, 0), B: (5, 9, 0), C: (4, 2, 7)}
    for who, counts in delivered.items():
        of = unordered(one, 0, counts)
        if order == "records":  # nobody is known to have given the same places
            of = [dataclasses.replace(row, global_seqno=at, transitional=True) for at, row in enumerate(of, 1)]
        if who is not A and closed != "killed":
            journal(tmp_path, who, [(one, of)], successor=two if who is B else apart, payload="full")
        else:
            journal(tmp_path, who, [(one, of)], closed=closed, payload="full")
    query = followed_by("a", Query, Folders([str(tmp_path)]))
    while query.step(3):
        query.again()
    assert query.rows[:6] == [row.payload for row in unordered(one, 0, delivered[A])]
    assert sorted(query.rows) == sorted(row.payload for row in unordered(one, 0, (5, 9, 7)))
    assert by_sender(query.rows) == {
        name: sorted(each, key=lambda row: int(row[2:])) for name, each in by_sender(query.rows).items()
    }


@pytest.mark.parametrize("c", ["goes on", "not there", "writes"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_view_of_which_a_member_may_go_on_is_not_taken_for_closed_but_told(
    tmp_path: Path, order: str, c: str
) -> None:
    """The next view may lack messages that a killed member delivered, if C never had them."""
    one, two = view(1, [A, B, C], order), view(2, [C], order)
    whole = of_order(rows("one", 28), order)
    journal(tmp_path, A, [(one, whole[:20])], closed="killed", payload="full")
    journal(tmp_path, B, [(one, whole)], closed="killed", payload="full")
    writer = None
    if c == "goes on":
        journal(tmp_path, C, [(one, whole[:20])], closed=None, payload="full")
    elif c == "writes":
        writer = JournalWriter(tmp_path, cluster="test", member=C, payload="full", flush_s=0.001)
        writer.view(one, 1, prefix=order == "sequencer", total=order not in ("fifo", "causal"))
        writer.batch(batch_of(whole[:20], one), one)
        wait_until(lambda: writer.counters()["rows"] == 20)
    query = followed_by("a", Query, Folders([str(tmp_path)]))
    assert query.run() == [row.payload for row in whole[:20]]
    told = query.stream.reportLatestOffset()["waits"]
    assert "has other rows of the same view, of which no journal shows the end" in told
    if writer is not None:
        writer.view(two, 2, prefix=order == "sequencer", total=order not in ("fifo", "causal"))
        writer.close("leave")
        assert query.run() == [row.payload for row in whole[:20]]  # no remaining member delivered B's own


@pytest.mark.parametrize("on_new_group", ["fail", "continue"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_view_that_nobody_closed_is_read_to_its_end_before_a_group_that_is_started_again(
    tmp_path: Path, order: str, on_new_group: str
) -> None:
    of, whole = view(1, [A, B, C], order), of_order(rows("one", 28), order)
    for who, count in ((A, 20), (B, 25), (C, 28)):
        journal(tmp_path, who, [(of, whole[:count])], closed=None, payload="full")
    query = followed_by("a", Query, Folders([str(tmp_path)]), on_new_group=on_new_group)
    assert query.run() == [row.payload for row in whole[:20]]  # A may be slow
    restarted(tmp_path, 1, 2, "again")
    all_of = [row.payload for row in whole]
    if on_new_group == "continue":
        assert query.run(5) == [*all_of, *(b"again %d" % at for at in range(50))]
    else:
        with pytest.raises(JournalError, match="started again"):
            query.run(5)
        assert query.rows == all_of


@pytest.mark.parametrize("order", ORDERS)
def test_a_journal_that_is_gone_with_its_group_is_told(tmp_path: Path, order: str) -> None:
    of, whole = view(1, [A, B], order), of_order(rows("one", 28, (A, B)), order)
    lost = journal(tmp_path, A, [(of, whole[:20])], closed="killed", payload="full")
    query = Query(Folders([str(tmp_path)]))
    bold = Query(Folders([str(tmp_path)]), fail_on_data_loss=False)
    for each in (query, bold):
        each.run()
    shutil.rmtree(lost)
    journal(tmp_path, B, [(of, whole)], closed="killed", payload="full")
    first = [row.payload for row in whole[:20]]
    assert query.run() == first and "cannot be read" in query.stream.reportLatestOffset()["waits"]
    if order in ("fifo", "causal"):
        assert bold.run() == first and "cannot be read" in bold.stream.reportLatestOffset()["waits"]
    elif order == "sequencer":
        assert bold.run() == [row.payload for row in whole]


def test_a_member_holds_its_journal_until_it_is_closed_or_the_process_ends(tmp_path: Path, stores: Any) -> None:
    text = (
        "import sys; sys.path[:0] = sys.argv[2].split(':'); from journal_data import *; "
        "w = JournalWriter(sys.argv[1], cluster='test', member=member('a')); print('there', flush=True); input()"
    )
    process = script(text, str(tmp_path), ":".join(each for each in sys.path if each))
    try:
        assert process.stdout is not None and process.stdout.readline() == "there\n"
        found = followed_of(stores, A)
        assert found.held and not found.over
    finally:
        process.kill()
        process.communicate()
    gone = followed_of(stores, A)
    assert gone.over and not gone.held
    header = next(tmp_path.glob("a-*")) / "journal.json"
    seals.replace(header, {**seals.unseal(header.read_text()), "locked": "another machine"})
    elsewhere = followed_of(stores, A)
    assert not elsewhere.over and not elsewhere.held
    writer = JournalWriter(tmp_path, cluster="test", member=B)
    assert not followed_of(stores, B).over
    writer.close("failed: no space left")
    assert followed_of(stores, B).over


def followed_of(stores: Any, who: Member) -> Any:
    found = follow.Follower(stores, fail_on_data_loss=True, failover_s=0.0).find(who.id)
    assert found is not None
    return found


# ---- groups that are started again, and the latest rows --------------------------------------------------------------

HOUR_NS = 3600 * 10**9


def restarted(top: Path, hours: int, incarnation: int, text: str, **how: Any) -> None:
    """The whole group, restarted some hours after the first one: other members, under the same names."""
    who = [member(name, incarnation) for name in "abc"]
    founded = view(1, who, attempt=incarnation)
    for each in who:
        shift(journal(top, each, [(founded, rows(text, 50, who))], payload="full", **how), hours)


def shift(path: Path, hours: int) -> None:
    """Makes the times of a journal's views later."""
    lines = [seals.unseal(line) for line in (path / "views.jsonl").read_bytes().splitlines()]
    later = [{**line, "at_ns": line["at_ns"] + hours * HOUR_NS} for line in lines]
    (path / "views.jsonl").write_text("".join(seals.seal(line) + "\n" for line in later))


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("closed", ["leave", None])
def test_a_group_that_is_started_again_is_told(
    tmp_path: Path, stores: Any, closed: str | None, fail_on_data_loss: bool
) -> None:
    for who in (A, B, C):
        journal(tmp_path, who, [(V1, ONE)], closed=closed, payload="full")
    query = Query(*stores, fail_on_data_loss=fail_on_data_loss)
    assert query.run() == ALL[:300]
    restarted(tmp_path, 1, 2, "again")
    for _ in range(2):  # also after a restart of the query
        with pytest.raises(JournalError, match=r"started again.*onNewGroup=continue"):
            query.run()
        query.again()
    assert query.rows == ALL[:300]


@pytest.mark.parametrize("incarnations", [(2, 3), (3, 2)])
def test_a_new_stream_begins_with_the_group_that_was_first(tmp_path: Path, incarnations: tuple[int, int]) -> None:
    """Names and ids of the members do not tell which one that was."""
    first, again = incarnations
    restarted(tmp_path, 0, first, "first", closed="leave")
    restarted(tmp_path, 1, again, "again", closed="leave")
    texts = [text.split()[0] for text in Query(Folders([str(tmp_path)]), on_new_group="continue").run()]
    assert texts == [b"first"] * 50 + [b"again"] * 50


@pytest.mark.parametrize("rows_max", [0, 20])
@pytest.mark.parametrize("gone", [False, True])
def test_a_query_can_go_on_with_a_group_that_is_started_again(tmp_path: Path, gone: bool, rows_max: int) -> None:
    for who in (A, B, C):
        journal(tmp_path, who, [(V1, ONE)], closed=None, payload="full")
    query = Query(Folders([str(tmp_path)]), on_new_group="continue")
    query.run(rows_max)
    if gone:
        for old in tmp_path.iterdir():
            shutil.rmtree(old)
    restarted(tmp_path, 1, 2, "again", closed=None)
    restarted(tmp_path, 2, 3, "a third time")
    while query.step(rows_max) or len(query.log) < 2 or query.rows[-1] != b"a third time 49":
        query.again() if query.out[-1] and not gone else None
    again, third = [b"again %d" % at for at in range(50)], [b"a third time %d" % at for at in range(50)]
    assert query.rows == [*ALL[:300], *again, *third]
    assert query.run(rows_max) == [*ALL[:300], *again, *third]


def test_a_group_of_a_founder_that_merges_soon_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    journal(tmp_path, A, [(V1, ONE)], closed=None, payload="full")
    query = Query(Folders([str(tmp_path)]), failover_s=60.0)
    query.run()
    restarted(tmp_path, 1, 2, "again")
    assert query.run() == ALL[:300]


def test_a_founder_that_is_apart_does_not_end_the_stream_of_a_group_that_goes_on(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, cluster="test", member=A, payload="full", flush_s=0.001)
    writer.view(V1, 1_700_000_000_000_000_000)
    writer.batch(batch_of(ONE[:10], V1), V1)
    wait_until(lambda: writer.counters()["rows"] == 10)
    query = Query(Folders([str(tmp_path)]), failover_s=0.2)
    restarted(tmp_path, 1, 2, "apart")
    query.log[:] = [follow.offset_of(query.stream._follower.find(A.id), 0)]
    for count in (10, 20):
        assert query.step() == 10 and query.step() == 0  # looks for another group
        time.sleep(0.25)
        if count == 10:
            writer.batch(batch_of(ONE[10:20], V1), V1)
            wait_until(lambda: writer.counters()["rows"] == 20)
    assert query.step() == 0 and "founded apart" in query.stream.reportLatestOffset()["waits"]
    writer.close("leave")
    time.sleep(0.25)
    with pytest.raises(JournalError, match="started again"):
        while not query.step():
            pass


@pytest.mark.parametrize(
    ("names", "hours", "taken_for"),
    [("de", (40, 40), "apart"), ("de", (60, 60), "later"), ("ad", (2, -30), "later"), ("ad", (-2, 60), "earlier")],
)
def test_clocks_that_differ_between_hosts_make_no_group_a_later_one(
    tmp_path: Path, names: str, hours: tuple[int, int], taken_for: str
) -> None:
    """B's clock is 24 hours ahead of A's. Without names in common times count that differ more than clocks; else those
    of members that were started again."""
    journal(tmp_path, A, [(V1, ONE)], closed="killed", payload="full")
    shift(journal(tmp_path, B, [(V1, ONE)], closed="killed", payload="full"), 24)
    query = followed_by("a", Query, Folders([str(tmp_path)]))
    query.run()
    who = [member(name, 2) for name in names]
    for each, ahead in zip(who, hours, strict=True):
        shift(journal(tmp_path, each, [(view(1, who, attempt=2), rows("other", 5, who))], payload="full"), ahead)
    if taken_for == "later":
        with pytest.raises(JournalError, match="started again"):
            query.run()
    else:
        assert query.run() == ALL[:300]
        told = query.stream.reportLatestOffset().get("waits", "")
        assert ("founded apart" in told) is (taken_for == "apart")


def test_the_latest_rows_are_behind_all_present_ones(tmp_path: Path, stores: Any) -> None:
    """A member that crashed long ago has left a journal that looks as if still being written."""
    journal(tmp_path, A, [(V1, ONE)], closed=None, payload="full")
    for who in (B, C):
        journal(tmp_path, who, [(V1, ONE), (V2, TWO)], closed=None, payload="full")
    query = Query(*stores, starting="latest")
    assert query.run() == [] and query.log[0]["global_seqno"] == 200


@pytest.mark.parametrize("closed", ["leave", "excluded", None])
def test_the_latest_rows_of_a_group_that_has_ended_are_none(tmp_path: Path, stores: Any, closed: str | None) -> None:
    journal(tmp_path, A, [(V1, ONE)], closed="leave", successor=V2, payload="full")
    journal(tmp_path, B, [(V1, ONE), (V2, TWO), (V3, THREE)], closed=closed, payload="full")
    journal(tmp_path, C, [(V1, ONE), (V2, TWO), (V3, THREE[:40])], closed=None, payload="full")
    restarted(tmp_path, -1, 2, "before", closed=None)
    query = Query(*stores, starting="latest")
    assert query.run() == []


@pytest.mark.parametrize("order", ["sequencer", "fifo"])
def test_the_latest_rows_leave_out_a_side_that_was_apart_before(tmp_path: Path, stores: Any, order: str) -> None:
    """C was cut off, alone for a while, and killed. Its rows are older than the stream."""
    together, rest = view(1, [A, B, C], order), view(2, [A, B], order)
    alone = view(2, [C], order, attempt=2)
    one, two, last = rows("one", 30), rows("two", 40, (A, B)), rows("alone", 7, (C,))
    if order == "fifo":
        one, two, last = ([dataclasses.replace(row, global_seqno=0) for row in some] for some in (one, two, last))
    for who in (A, B):
        journal(tmp_path, who, [(together, one), (rest, two)], closed=None, payload="full")
    shift(journal(tmp_path, C, [(together, one), (alone, last)], closed=None, payload="full"), -1)
    query = Query(*stores, starting="latest")
    assert query.run() == []
    query.log[:], query.out[:] = [{**query.log[0], "left": []}], []
    assert query.run() == [row.payload for row in last], "that is what would come otherwise"


def test_an_idle_stream_looks_at_other_members_seldom_and_reads_only_journals_that_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everyone = [member(f"m{n}") for n in range(30)]
    wide = view(1, everyone)
    for who in everyone:
        journal(tmp_path, who, [(wide, rows("wide", 60, everyone))], closed=None, payload="full")
    query = Query(Folders([str(tmp_path)]), failover_s=5.0)
    assert len(query.run()) == 60
    read, looked = [0], [0]

    def counted(of: Any, counter: list[int]) -> Any:
        def call(*given: Any, **settings: Any) -> Any:
            counter[0] += 1
            return of(*given, **settings)

        return call

    monkeypatch.setattr(reader, "read", counted(reader.read, read))
    monkeypatch.setattr(follow.Follower, "all", counted(follow.Follower.all, looked))
    for _ in range(300):
        assert not query.step()
        query.stream.reportLatestOffset()
    assert looked[0] <= 5 and read[0] <= 30
    journal_of_one = next(tmp_path.glob("m7-*"))
    before = reader.read_again(journal_of_one)
    views = journal_of_one / "views.jsonl"
    views.write_bytes(views.read_bytes() + b"{")  # a record that is being written
    assert reader.read_again(journal_of_one).torn == before.torn + 1


def test_a_stream_reports_how_far_it_is_behind_each_member(tmp_path: Path, stores: Any) -> None:
    journal(tmp_path, A, [(V1, ONE)], closed=None, payload="full")
    journal(tmp_path, B, [(V1, ONE[:250])], closed=None, payload="full")
    query = Query(*stores)
    assert query.step(100) == 100
    told = query.stream.reportLatestOffset()
    assert told["idx"] == 300
    behind = {name: each["messages"] for name, each in told["behind"].items()}
    assert behind == {"a": 200, "b": 150} and all(each["seconds"] > 0 for each in told["behind"].values())
    query.run()
    told = query.stream.reportLatestOffset()
    assert told["behind"]["a"] == {"messages": 0, "seconds": 0.0} == told["behind"].get("b", told["behind"]["a"])
