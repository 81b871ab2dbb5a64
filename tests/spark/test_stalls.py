"""Streams that wait in vain say so, once, with the cure."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from journal_data import Row, batch_of, journal, member, view
from members import wait_until
from partition_story import rows
from stream_query import Query, followed_by

from seqcast.journal.schema import JournalError
from seqcast.journal.writer import JournalWriter
from seqcast.spark.stores import Folders
from seqcast.types import Member

A, B = member("a"), member("b")
V1 = view(1, [A, B])
ONE = rows("one", 20, (A, B))
NOW_NS = 1_700_000_000_000_000_000


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "seqcast.spark"]


def waits(query: Query) -> str:
    """Why the query waits, once nothing new has come for long enough."""
    for _ in range(20):
        assert not query.step()
        query.stream._follower._look_again = 0.0
    told: str = query.stream.reportLatestOffset().get("waits", "")
    return told


@pytest.mark.parametrize("closed", ["leave", None])
def test_a_group_that_ends_beside_one_that_was_founded_apart_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, closed: str | None
) -> None:
    one, two = view(1, [A]), view(1, [B])
    journal(tmp_path, A, [(one, [Row(A, 1, 0, 1, b"a")])], closed=closed, payload="full")
    other = journal(tmp_path, B, [(two, [Row(B, 1, 0, 1, b"b")])], closed=None, payload="full")
    query = followed_by("a", Query, Folders([str(tmp_path)]))
    assert query.run() == [b"a"]
    told = waits(query)
    assert str(other) in told and "founded apart" in told and "found=N" in told
    assert warnings_of(caplog) == [f"{told} (SC6007)"]


def alone(top: Path, who: Member, at_ns: int) -> None:
    """The journal of a group of one."""
    of = view(1, [who])
    writer = JournalWriter(top, cluster="test", member=who, payload="full", flush_s=0.001)
    writer.view(of, at_ns, total=True)
    writer.batch(batch_of([Row(who, 1, 0, 1, who.name.encode())], of), of)
    writer.close("leave", at_view_end=True)


def test_a_group_that_ended_before_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    alone(tmp_path, A, NOW_NS)
    alone(tmp_path, B, NOW_NS + 10**9)
    query = followed_by("b", Query, Folders([str(tmp_path)]))
    assert query.run() == [b"b"] and not waits(query) and not warnings_of(caplog)


def test_a_group_that_was_started_again_is_an_error_and_not_told_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alone(tmp_path, A, NOW_NS)
    query = followed_by("a", Query, Folders([str(tmp_path)]), failover_s=0.3)
    assert query.run() == [b"a"]
    time.sleep(0.4)
    alone(tmp_path, B, NOW_NS + 10**9)
    assert not waits(query) and not warnings_of(caplog)
    time.sleep(0.4)
    with pytest.raises(JournalError, match="started again"):
        query.step()


def test_a_group_apart_is_given_time_to_merge(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    alone(tmp_path, A, NOW_NS)
    query = followed_by("a", Query, Folders([str(tmp_path)]), failover_s=0.3)
    assert query.run() == [b"a"]
    time.sleep(0.4)
    alone(tmp_path, B, NOW_NS)
    assert not waits(query)
    time.sleep(0.4)
    assert "founded apart" in waits(query) and len(warnings_of(caplog)) == 1


def test_a_query_that_ends_reports_how_far_it_is_behind_then(tmp_path: Path) -> None:
    journal(tmp_path, A, [(V1, ONE)], payload="full")
    query = Query(Folders([str(tmp_path)]), failover_s=60.0)
    query.stream.prepareForTriggerAvailableNow()
    for left in (10, 0):
        assert query.step(10) == 10
        assert query.stream.reportLatestOffset()["behind"]["a"]["messages"] == left


@pytest.mark.parametrize("catches_up", [False, True])
def test_a_journal_that_gets_no_rows_while_others_of_its_view_do_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, catches_up: bool
) -> None:
    writers = [
        JournalWriter(tmp_path, cluster="test", member=V1.members[at], payload="full", flush_s=0.001) for at in (0, 1)
    ]

    def write(of: JournalWriter, first: int, end: int) -> None:
        of.batch(batch_of(ONE[first:end], V1), V1)
        wait_until(lambda: of.counters()["rows"] == end)

    for each in writers:
        each.view(V1, NOW_NS, total=True)
        write(each, 0, 10)
    query: Any = followed_by("a", Query, Folders([str(tmp_path)]), failover_s=0.3)
    assert query.step() == 10
    assert not query.step()
    write(writers[1], 10, 20)
    assert not waits(query)  # not for long enough
    if catches_up:
        write(writers[0], 10, 20)
        assert query.step() == 10
        assert not query.step()
        time.sleep(0.4)
        assert not waits(query) and not warnings_of(caplog)
    else:
        time.sleep(0.4)
        told = waits(query)
        assert str(writers[0].path) in told and "while b of the same view" in told and "free space" in told
        assert [each.levelno for each in caplog.records if each.name == "seqcast.spark"] == [logging.WARNING]
        write(writers[0], 10, 20)
        assert query.step() == 10 and "waits" not in query.stream.reportLatestOffset()
    for each in writers:
        each.close("leave")
