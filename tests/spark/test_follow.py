"""A stream that follows the members of a group, whoever is lost: each message once, or an error that says why not."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from journal_data import Row, batch_of, journal, member, view
from members import LOOPBACK, cluster, script, wait_until
from members import join as join_group
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import seqcast
from seqcast.journal.tap import Tap, TapClient
from seqcast.journal.writer import JournalWriter
from seqcast.spark import follow
from seqcast.spark.source import JournalReader, JournalStream, Wanted
from seqcast.spark.stores import Folders, Taps
from seqcast.types import Member, View

A, B, C, D = (member(name) for name in "abcd")
V1, V2, V3 = view(1, [A, B, C]), view(2, [B, C]), view(3, [B, C, D])


def rows(text: str, n: int, senders: Any = (A, B, C)) -> list[Row]:
    return [Row(senders[at % len(senders)], 1 + at, 0, 1 + at, b"%s %d" % (text.encode(), at)) for at in range(n)]


ONE, TWO, THREE = rows("one", 300), rows("two", 200, (B, C)), rows("three", 100, (B, C, D))
ALL = [row.payload for row in ONE + TWO + THREE]


class Query:
    """What Spark does with a stream: plans batches, and reads each in tasks. ``again`` is a restart from the
    checkpoint, with which the last batch is read once more."""

    def __init__(self, *stores: Any, **settings: Any) -> None:
        self.stores = stores
        self.settings = {"failover_s": 0.0, **settings}
        self.log: list[Any] = []
        self.out: list[list[bytes]] = []
        self.again()

    def again(self, *stores: Any) -> None:
        self.stream = pickle.loads(pickle.dumps(JournalStream(stores or self.stores, **self.settings)))
        if not self.log:
            self.log.append(self.stream.initialOffset())
        elif self.out:
            assert self._read(*self.log[-2:]) == self.out[-1]

    def step(self, rows_max: int = 0) -> int:
        """Rows of one batch."""
        end = self.stream.latestOffset(self.log[-1], ReadMaxRows(rows_max) if rows_max else ReadAllAvailable())
        if end == self.log[-1]:
            return 0
        self.out.append(self._read(self.log[-1], end))
        self.log.append(end)
        return len(self.out[-1])

    def run(self, rows_max: int = 0) -> list[bytes]:
        empty = 0
        while True:
            before = self.log[-1]
            empty = 0 if self.step(rows_max) else empty + 1
            if self.log[-1] == before:
                return self.rows
            assert empty < 4, "it goes round among journals"  # each without rows may go to another one

    @property
    def rows(self) -> list[bytes]:
        return [payload for batch in self.out for payload in batch]

    def _read(self, start: Any, end: Any) -> list[bytes]:
        parts = pickle.loads(pickle.dumps(self.stream.partitions(start, end)))
        return [row for part in parts for batch in self.stream.read(part) for row in batch["payload"].to_pylist()]


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


def test_a_member_that_came_at_the_end_of_what_was_read_continues_it(tmp_path: Path, stores: Any) -> None:
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


def test_a_journal_of_a_view_that_goes_on_is_gone_to_where_it_has_as_much(tmp_path: Path, stores: Any) -> None:
    journal(tmp_path, A, [(V1, ONE[:100])], closed="failed: no space left", payload="full")  # the member goes on
    b = journal(tmp_path, B, [(V1, ONE[:90])], closed=None, payload="full")
    query = Query(*stores)
    assert query.run() == ALL[:100] and query.log[-1]["member"] == f"{A.id:016x}"
    shutil.rmtree(b)
    journal(tmp_path, B, [(V1, ONE[:250])], closed=None, payload="full")
    assert query.run() == ALL[:250] and query.log[-1]["member"] == f"{B.id:016x}"


def test_where_deliveries_are_no_prefixes_a_view_must_be_closed(
    tmp_path: Path, stores: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "order_of", lambda view: SimpleNamespace(prefix=False, total=True))
    journal(tmp_path, A, [(V1, ONE[:100])], closed="failed: no space left", payload="full")
    b = journal(tmp_path, B, [(V1, ONE)], closed=None, payload="full")
    query = Query(*stores)
    assert query.run() == ALL[:100]
    shutil.rmtree(b)
    journal(tmp_path, B, [(V1, ONE), (V2, TWO)], payload="full")
    assert query.run() == ALL[:500]


def test_a_member_that_seems_lost_is_given_time(tmp_path: Path) -> None:
    lost = journal(tmp_path, A, [(V1, ONE[:100])], closed=None, payload="full")
    query = Query(Folders([str(tmp_path)]), failover_s=0.5)
    query.run()
    journal(tmp_path, B, [(V1, ONE), (V2, TWO)], payload="full")
    assert query.step() == 0
    lost.rename(tmp_path / "away")
    threading.Event().wait(0.6)
    assert query.run() == ALL[:500]


def test_what_only_the_lost_member_delivered_is_told(tmp_path: Path, stores: Any) -> None:
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


def test_a_lost_member_that_closed_the_view_apart_agrees_only_up_to_its_own_stable_point(tmp_path: Path) -> None:
    swapped = [*ONE[:98], ONE[99], ONE[98], *ONE[100:200]]
    numbered = [dataclasses.replace(row, global_seqno=at) for at, row in enumerate(swapped, 1)]
    lost = journal(tmp_path, A, [(V1, numbered)], closed=None, payload="full")
    query = Query(Folders([str(tmp_path)]))
    query.run()
    shutil.rmtree(lost)
    without_prefix(tmp_path, A, [(V1, transitional(numbered, 98)), (view(2, [A]), [])])
    without_prefix(tmp_path, B, [(V1, ONE), (view(2, [B, C], attempt=2), TWO)])
    with pytest.raises(seqcast.UsageError, match="known to have the same only up to 97"):
        query.run()


@pytest.mark.parametrize(("read", "tells"), [(97, None), (150, 97), (200, None)])
def test_an_offset_says_how_far_a_view_that_was_closed_apart_is_stable(
    tmp_path: Path, read: int, tells: int | None
) -> None:
    """The member's journal went with its machine. Nobody else knows that it closed the view in an order of its own."""
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
    else:  # at the end of the view, what names it by the view before tells
        with pytest.raises(seqcast.UsageError, match="known to have the same only up to 97"):
            query.run()


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("read", [97, 150, 200])
def test_a_member_that_falls_before_it_closes_a_view_has_told_how_far_it_is_stable(
    tmp_path: Path, stores: Any, read: int, gone: bool
) -> None:
    """It has delivered the view's last messages, in an order of its own, and has recorded no further view."""
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
    else:  # what the lost member's journal has is read first
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
        query.out.append(query._read(start, end))  # in place of tasks: what they read of a tap that dies, fails
        query.log.append(end)
        assert query.run() == ALL[:500]


def test_a_stream_that_waits_for_rows_reads_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark asks many times a second, and one row of a rolled segment costs the checksum of its whole file."""
    journal(tmp_path, A, [(view(1, [A, B, C], "records"), ONE)], closed=None, payload="full")
    query, reads = Query(Folders([str(tmp_path)])), list[object]()
    assert query.run() == ALL[:300]
    monkeypatch.setattr(Folders, "rows", lambda *args: reads.append(args) or iter(()))
    assert query.step() == 0 and query.stream.reportLatestOffset() == query.log[-1] and not reads


@pytest.mark.parametrize("closed", ["leave", None])
def test_a_branch_of_a_partition_with_the_same_counter_is_not_gone_to(
    tmp_path: Path, stores: Any, closed: str | None
) -> None:
    ours, theirs = view(2, [A]), view(2, [B, C], attempt=2)
    journal(tmp_path, A, [(V1, ONE), (ours, rows("ours", 50, (A,)))], closed=closed, payload="full")
    query = Query(*stores)
    query.run()
    journal(tmp_path, B, [(V1, ONE), (theirs, TWO), (V3, THREE)], payload="full")
    assert len(query.run()) == 350  # nobody else has been in our branch


def test_a_stream_ends_where_all_journals_end(tmp_path: Path, stores: Any) -> None:
    for who in (A, B, C):
        journal(tmp_path, who, [(V1, ONE)], payload="full")
    query = Query(*stores)
    assert query.run() == ALL[:300] and len(query.log) == 2
    query.stream.prepareForTriggerAvailableNow()
    assert query.run() == ALL[:300] and len(query.log) == 2


def test_without_one_order_of_all_members_nobody_stands_in(
    tmp_path: Path, stores: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "order_of", lambda view: SimpleNamespace(prefix=True, total=False))
    journal(tmp_path, A, [(V1, ONE[:100])], closed=None, payload="full")
    query = Query(*stores)
    query.run()
    journal(tmp_path, B, [(V1, ONE), (V2, TWO)], payload="full")  # another mechanism has no "fifo" as its order
    assert query.run() == ALL[:100] and "view" not in query.log[-1]


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


def test_available_now_goes_on_in_another_journal_up_to_what_was_there(tmp_path: Path) -> None:
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


def test_members_that_are_killed_one_after_the_other_leave_one_stream(tmp_path: Path) -> None:
    import textwrap

    name, top = cluster(), tmp_path / "journals"
    join_group(cluster(), "probe").leave()  # skips where there is no multicast

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
