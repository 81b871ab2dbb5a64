"""Streams that begin with the latest rows or at a time, and those that go on with another group, where sides that were
apart meet later: no row of before comes, none comes twice, and all others do."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from journal_data import Row, batch_of, journal, member, view, wait_for_rows
from partition_story import A, B, C, D, merged, partitioned, rows
from stream_query import Query, followed_by
from test_follow import restarted, shift

from seqcast.core.orders import by_name
from seqcast.journal import seals
from seqcast.journal.schema import HEADER_FILE, JournalError
from seqcast.journal.writer import JournalWriter
from seqcast.spark.options import Tabled
from seqcast.spark.source import JournalReader
from seqcast.spark.stores import Folders
from seqcast.spark.wanted import Wanted
from seqcast.types import Member, MergeView, View, ViewId

NOON_NS = 1_700_000_000_000_000_000
SECOND_NS = 10**9
Told = tuple[View, float, Sequence[tuple[float, list[Row]]]]
"""A view, the second at which a member installed it, and the rows that it delivered, each part with the second."""


def timed(top: Path, who: Member, story: Sequence[Told]) -> None:
    """Journals the deliveries, with their times, of a member that no record says is gone."""
    writer = JournalWriter(top, cluster="test", member=who, payload="full", flush_s=0.001)
    count = 0
    for of, at, parts in story:
        order = by_name(of.mechanism)
        writer.view(of, NOON_NS + int(at * SECOND_NS), prefix=order.prefix, total=order.total)
        for second, some in parts:
            writer.batch(batch_of(some, of, NOON_NS + int(second * SECOND_NS)), of)
            count += len(some)
            wait_for_rows(writer, count)
    writer.close("crash")
    views = writer.path / "views.jsonl"
    views.write_bytes(b"".join(line for line in views.read_bytes().splitlines(True) if b'"close"' not in line))
    header = seals.unseal((writer.path / HEADER_FILE).read_text())
    seals.replace(writer.path / HEADER_FILE, {**header, "locked": ""})


def in_parts(order: str, *parts: tuple[str, int, Sequence[Member]]) -> list[list[Row]]:
    """Rows of one view, in parts."""
    made: list[list[Row]] = []
    for text, n, senders in parts:
        first = sum(map(len, made))
        made.append(
            [
                dataclasses.replace(
                    row, seqno=first + row.seqno, global_seqno=0 if order == "fifo" else first + row.global_seqno
                )
                for row in rows(text, n, senders)
            ]
        )
    return made


def payloads(*parts: list[Row]) -> list[bytes]:
    return [row.payload for part in parts for row in part]


@pytest.mark.parametrize("order", ["sequencer", "fifo"])
@pytest.mark.parametrize("second", [10, 25])
@pytest.mark.parametrize("quiet", [False, True])
def test_of_a_side_that_merges_later_only_rows_of_the_time_come(
    tmp_path: Path, order: str, second: int, quiet: bool
) -> None:
    """C was cut off and is alone until both sides merge. ``quiet``: the followed side has no rows of the time."""
    together, rest, alone = view(1, [A, B, C], order), view(2, [A, B], order), view(2, [C], order, attempt=2)
    both = dataclasses.replace(merged(5, rest, alone), order=order, mechanism=order)
    (one,) = in_parts(order, ("one", 30, (A, B, C)))
    before, after = in_parts(order, ("before", 10, (A, B)), ("after", 10, (A, B)))
    lone, later = in_parts(order, ("lone", 7, (C,)), ("later", 5, (C,)))
    (last,) = in_parts(order, ("last", 8, (A, B, C)))
    for who in (A, B):
        of_rest = [(4, before)] if quiet else [(4, before), (21, after)]
        timed(tmp_path, who, [(together, 0, [(1, one)]), (rest, 2, of_rest), (both, 30, [(31, last)])])
    timed(tmp_path, C, [(together, 0, [(1, one)]), (alone, 2, [(3, lone), (20, later)]), (both, 30, [(31, last)])])
    query = Query(Folders([str(tmp_path)]), since_ns=NOON_NS + second * SECOND_NS)
    wanted = payloads([] if quiet else after, later, last) if second == 10 else payloads(last)
    assert query.run() == wanted
    query.again()
    assert query.run() == wanted


def test_of_a_view_that_a_side_closed_in_its_own_way_only_rows_of_the_time_come(tmp_path: Path) -> None:
    """C goes on alone in the first view, and A and B merge with D as they leave that one: C's rows of the first view
    have nothing to do with theirs."""
    together, alone, other = view(1, [A, B, C], "records"), view(2, [C], "records", attempt=2), view(1, [D], "records")
    ours = View(together.view_id, (A, B), "records", 0, "records")
    both = MergeView(ViewId(5, A.id, (9, A.id)), (A, B, D), "records", 0, "records", (ours, other))
    every = dataclasses.replace(merged(8, both, alone), members=(A, B, C, D))
    old, new = in_parts("records", ("old", 20, (A, B, C)), ("new", 6, (A, B)))
    tail, end = (
        [dataclasses.replace(row, seqno=1000 + row.seqno, transitional=True) for row in part]
        for part in in_parts("records", ("old", 20, (A,)), ("tail", 4, (C,)), ("end", 3, (C,)))[1:]
    )
    early, late = in_parts("records", ("early", 9, (D,)), ("late", 5, (D,)))
    last, all_of = rows("last", 8), rows("all", 4)
    to_end: list[Told] = [(both, 12, [(13, last)]), (every, 40, [(41, all_of)])]
    for who in (A, B):
        timed(tmp_path, who, [(together, 0, [(1, old), (11, new)]), *to_end])
    timed(tmp_path, C, [(together, 0, [(1, old), (9, tail), (11, end)]), (alone, 12, []), to_end[1]])
    timed(tmp_path, D, [(other, 0, [(1, early), (11, late)]), *to_end])
    query = Query(Folders([str(tmp_path)]), since_ns=NOON_NS + 10 * SECOND_NS)
    assert query.run() == payloads(new, late, last, end, all_of)


def test_the_side_that_goes_on_is_gone_to_also_if_several_members_were_on_it(tmp_path: Path) -> None:
    """The stream begins with the latest rows, on the side of a member that is alone, and that falls."""
    together, rest, alone = view(1, [A, B, C]), view(2, [B, C]), view(2, [A], attempt=2)
    one, two = rows("one", 30), rows("two", 40, (B, C))
    shift(journal(tmp_path, A, [(together, one), (alone, rows("alone", 7, (A,)))], closed=None, payload="full"), 1)
    for count in (25, 40):
        if count == 40:
            for old in [*tmp_path.glob("b-*"), *tmp_path.glob("c-*")]:
                shutil.rmtree(old)
        for who in (B, C):
            journal(tmp_path, who, [(together, one), (rest, two[:count])], closed=None, payload="full")
        if count == 25:
            query = Query(Folders([str(tmp_path)]), starting="latest")
            assert query.log[0]["member"] == f"{A.id:016x}" and query.run() == []
    assert query.run() == payloads(two[25:])


@pytest.mark.parametrize("available_now", [False, True])
def test_a_group_that_was_taken_for_a_new_one_merges_without_repeats(tmp_path: Path, available_now: bool) -> None:
    """Both were founded apart, one much later, on machines where nothing tells who is gone."""
    first, second = view(1, [A, B]), view(1, [C, D], attempt=2)
    both = merged(5, second, first)
    one, two, last = rows("one", 30, (A, B)), rows("two", 20, (C, D)), rows("last", 9)

    def write(top: Path, of_first: int, of_second: int, *more: Any) -> None:
        for who in (A, B):
            journal(top, who, [(first, one[:of_first]), *more], closed=None, payload="full")
        for who in (C, D):
            shift(journal(top, who, [(second, two[:of_second]), *more], closed=None, payload="full"), 1)

    def run() -> None:
        for _ in range(3):  # nothing new comes for some time
            if available_now:
                query.again()
                query.stream.prepareForTriggerAvailableNow()
            query.run()

    write(tmp_path / "1", 25, 15)
    top = tmp_path / "now"
    top.symlink_to("1")
    query = Query(Folders([str(top)]), on_new_group="continue")
    run()
    assert query.rows == payloads(one[:25], two[:15])
    for at, (of_first, of_second, more) in enumerate([(27, 15, []), (27, 18, []), (30, 20, [(both, last)])], 2):
        write(tmp_path / str(at), of_first, of_second, *more)
        top.unlink()
        top.symlink_to(str(at))
        run()
        assert len(query.rows) == len({*query.rows})
    assert sorted(query.rows) == sorted(payloads(one, two, last)) and query.rows[-9:] == payloads(last)


def test_a_group_that_goes_on_when_a_later_one_has_ended_is_gone_back_to_and_the_later_one_does_not_come_again(
    tmp_path: Path,
) -> None:
    one = rows("one", 30, (A, B))
    for count in (25, 30):
        for old in [path for who in (A, B) for path in tmp_path.glob(f"*-{who.id:016x}")]:
            shutil.rmtree(old)
        for who in (A, B):
            journal(tmp_path, who, [(view(1, [A, B]), one[:count])], closed=None, payload="full")
        if count == 25:
            query = Query(Folders([str(tmp_path)]), on_new_group="continue")
            query.run()
            restarted(tmp_path, 1, 2, "again")
        for _ in range(3):
            query.run()
    assert query.rows == payloads(one[:25], rows("again", 50), one[25:])


def test_a_group_that_was_over_is_not_remembered_for_a_merge(tmp_path: Path) -> None:
    for who in (A, B):
        journal(tmp_path, who, [(view(1, [A, B]), rows("one", 30, (A, B)))], closed="killed", payload="full")
    query = Query(Folders([str(tmp_path)]), on_new_group="continue")
    query.run()
    restarted(tmp_path, 1, 2, "again")
    assert len(query.run()) == 80 and not any("left" in offset for offset in query.log)


def test_a_view_that_a_member_installed_late_makes_no_clocks_differ(tmp_path: Path) -> None:
    """Of the first view B's record is two hours late. A group of other members came an hour after the end."""
    for who, hours in ((A, 0), (B, 2)):
        path = journal(tmp_path, who, [(view(1, [A, B]), []), (view(2, [A, B]), rows("one", 30, (A, B)))],
                       closed="killed", payload="full")  # fmt: skip
        lines = [seals.unseal(line) for line in (path / "views.jsonl").read_bytes().splitlines()]
        lines[0]["at_ns"] += hours * 3600 * SECOND_NS
        lines[1]["at_ns"] += 3 * 3600 * SECOND_NS
        (path / "views.jsonl").write_text("".join(seals.seal(line) + "\n" for line in lines))
    query = followed_by("a", Query, Folders([str(tmp_path)]))
    query.run()
    new = [member(name, 2) for name in "de"]
    for each in new:
        shift(journal(tmp_path, each, [(view(1, new, attempt=2), rows("new", 5, new))], payload="full"), 4)
    with pytest.raises(JournalError, match="started again"):
        query.run()


@pytest.mark.parametrize("options", [{"view": "2"}, {"sender": "c"}, {"view": "1,5", "sender": "a"}])
def test_a_stream_of_some_rows_gives_those_of_the_other_side_too(tmp_path: Path, options: dict[str, str]) -> None:
    for who, story in partitioned().items():
        journal(tmp_path, who, story, payload="full")

    def given(wanted: Wanted) -> list[tuple[int, str, bytes]]:
        reader = JournalReader([Folders([str(tmp_path)])], wanted, Tabled.of({"startingOffset": "earliest"}))
        found = [batch for part in reader.partitions() for batch in reader.read(part)]
        names = "view_counter", "sender", "payload"
        return [row for each in found for row in zip(*(each[name].to_pylist() for name in names), strict=True)]

    views, senders = options.get("view", "1,2,5").split(","), options.get("sender", "a,b,c").split(",")
    wanted = [row for row in given(Wanted()) if str(row[0]) in views and row[1] in senders]
    assert wanted and given(Wanted.of(options)) == wanted


def test_of_several_groups_the_first_one_with_rows_of_the_time_begins_the_stream(tmp_path: Path) -> None:
    for group in range(3):
        who = [member(name, 2 + group) for name in "abc"]
        founded = view(1, who, attempt=1 + group)
        for each in who:
            part = (group * 100.0, rows(f"group {group}", 10, who))
            timed(tmp_path, each, [(founded, group * 100.0, [part])])
    query = Query(Folders([str(tmp_path)]), since_ns=NOON_NS + 50 * SECOND_NS, on_new_group="continue")
    texts = [text.split()[1] for text in query.run()]
    assert texts == [b"1"] * 10 + [b"2"] * 10
