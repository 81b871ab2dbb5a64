"""Options of the format: offsets, times and tasks of streams and tables, and payloads that are read."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from halves import first_quick

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa
from journal_data import Row, batch_of, journal, member, view, wait_for_rows
from partition_story import partitioned, union
from pyspark.sql.streaming.datasource import ReadAllAvailable
from stream_query import Query, Tagged, followed_by

from seqcast.errors import UsageError
from seqcast.journal.schema import JournalError
from seqcast.journal.writer import JournalWriter
from seqcast.spark.offsets import read_offset
from seqcast.spark.options import OPTIONS, STREAM, TABLE, Following, Tabled, names_of
from seqcast.spark.payload import Payload
from seqcast.spark.source import JournalReader, JournalStream
from seqcast.spark.stores import Folders
from seqcast.spark.wanted import Wanted

A, B, C, D = (member(name) for name in "abcd")
V1 = view(1, [A, B])
ROWS = [Row((A, B)[at % 2], 1 + at, 0, 1 + at, b"%d" % at) for at in range(300)]


def between(store: Any, start: Any, end: Any) -> list[Any]:
    """The identities of the rows of a table between two offsets."""
    given = {"startingOffset": json.dumps(start), "endingOffset": json.dumps(end)}
    reader = JournalReader([store], Wanted(), Tabled.of(given))
    names, mask = ("view_tag", "sender_id", "seqno", "index"), (1 << 64) - 1
    return [
        (tag & mask, sender & mask, seqno, index)
        for part in pickle.loads(pickle.dumps(reader.partitions()))
        for batch in reader.read(part)
        for tag, sender, seqno, index in zip(*(batch[name].to_pylist() for name in names), strict=True)
    ]


@pytest.mark.parametrize("followed", ["a", "b"])
def test_a_table_between_two_offsets_equals_the_stream(tmp_path: Path, followed: str) -> None:
    stories = partitioned(again=True)
    for who, story in stories.items():
        journal(tmp_path, who, story, payload="full")
    store = Folders([str(tmp_path)])
    query = followed_by(followed, Tagged, store)
    query.run(23)
    assert sorted(query.rows) == union(stories) and any("parts" in each.get("merged", ()) for each in query.log)
    for at in range(0, len(query.out), 2):
        assert between(store, query.log[at], query.log[at + 1]) == query.out[at]
        rest = [row for batch in query.out[at:] for row in batch]
        assert between(store, query.log[at], query.log[-1]) == rest
        first = [row for batch in query.out[:at] for row in batch]
        assert between(store, query.log[0], query.log[at]) == first


@pytest.mark.parametrize("rows_max", [0, 17])
def test_a_stream_ends_at_its_ending_offset_and_stays_there(tmp_path: Path, rows_max: int) -> None:
    stories = partitioned()
    for who, story in stories.items():
        journal(tmp_path, who, story, payload="full")
    whole = followed_by("a", Tagged, Folders([str(tmp_path)]))
    whole.run(23)
    for at, end in enumerate(whole.log):
        query = followed_by("a", Tagged, Folders([str(tmp_path)]), end=end)
        assert query.run(rows_max) == [row for batch in whole.out[:at] for row in batch]
        query.again()
        assert query.step() == 0 and query.log[-1] == end


def test_an_end_that_is_not_there_is_waited_for_by_a_stream_and_refused_by_a_table(tmp_path: Path) -> None:
    whole = journal(tmp_path / "whole", A, [(V1, ROWS)], payload="full")
    query = Query(Folders([str(whole)]))
    query.run()
    journal(tmp_path / "now", A, [(V1, ROWS[:100])], closed=None, payload="full")
    now = Folders([str(tmp_path / "now")])
    assert len(Query(now, end=query.log[-1]).run()) == 100
    with pytest.raises(JournalError, match=r"the journals end at row 100 of member .*, before endingOffset"):
        between(now, query.log[0], query.log[-1])
    with pytest.raises(UsageError, match=r"startingOffset is behind row 300 of .*, which has 100"):
        Query(now, begin=query.log[-1])
    journal(tmp_path / "other", D, [(view(1, [D], attempt=7), ROWS[:10])], payload="full")
    with pytest.raises(UsageError, match="is not there, and no other one has its place"):
        Query(Folders([str(tmp_path / "other")]), begin=query.log[-1])


def test_an_end_on_another_side_is_told_before_the_stream_goes_by(tmp_path: Path) -> None:
    stories = partitioned()
    for who, story in stories.items():
        journal(tmp_path, who, story, payload="full")
    other = followed_by("b", Tagged, Folders([str(tmp_path)]))
    other.run(23)
    end = next(each for each in other.log if each.get("view", "").startswith("2@") and 0 < each["global_seqno"] < 60)
    query = followed_by("a", Tagged, Folders([str(tmp_path)]), end=end)
    with pytest.raises(JournalError, match=r"endingOffset is in view 2@.*went on without that view"):
        query.run()


def test_a_stream_begins_at_an_offset_or_a_time(tmp_path: Path) -> None:
    settings = {"payload": "full", "segment_rows": 10, "together_rows": 1}
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=0.001, **settings)
    writer.view(V1, at_ns=1, prefix=True, total=True)
    for at in range(6):
        writer.batch(batch_of(ROWS[10 * at : 10 * at + 10], V1, (978_307_201 + at) * 1_000_000_000), V1)
        wait_for_rows(writer, 10 * (at + 1))
    writer.close("leave")
    store = Folders([str(tmp_path)])

    def rows(**options: str) -> int:
        return len(Query(store, **{**vars(Following.of(options)), "failover_s": 0.0}).run())

    assert rows() == rows(startingTimestamp="2000-12-31") == 60 and rows(startingTimestamp="2001-01-02") == 0
    assert rows(startingTimestamp="2001-01-01T00:00:04") == rows(startingTimestamp="978307204000") == 30
    assert rows(startingTimestamp="978307203001") == 30
    query = Query(store)
    query.run(25)
    reported = {**query.stream.reportLatestOffset(), "idx": query.log[1]["idx"]}
    assert "behind" in reported and rows(startingOffset=json.dumps(reported)) == 60 - len(query.out[0])
    both = {"startingTimestamp": "2001-01-01T00:00:02", "endingOffset": json.dumps(query.log[2])}
    reader = JournalReader([store], Wanted(), Tabled.of(both))
    assert sum(part.end - part.first for part in reader.partitions()) == query.log[2]["idx"] - 10


@pytest.mark.parametrize("tasks", first_quick([1, 7, 300, 1000]))
def test_rows_are_divided_among_as_many_tasks_as_wanted(tmp_path: Path, tasks: int) -> None:
    journal(tmp_path, A, [(V1, ROWS)], payload="full", segment_rows=100)
    store, options = Folders([str(tmp_path)]), {"minPartitions": str(tasks)}
    reader = JournalReader([store], Wanted(), Tabled.of(options))
    stream = JournalStream([store], Following.of(options), Wanted())
    start = stream.initialOffset()
    for of, parts in (
        (reader, reader.partitions()),
        (stream, stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))),
    ):
        assert len(parts) >= min(tasks, 300)
        found = [row for part in parts for batch in of.read(part) for row in batch["payload"].to_pylist()]
        assert found == [row.payload for row in ROWS]
        if tasks == 300:
            assert {len(part.segments) for part in parts} == {1}


OFFSET = {"member": "0" * 16, "idx": 7, "view": f"1@{'a' * 16}.1.{'b' * 16}", "global_seqno": 7}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("newest", "startingOffset='newest': give 'earliest', 'latest' or an offset as a query's progress prints it"),
        ("[1]", "give 'earliest', 'latest' or an offset"),
        ("[" * 100_000, "give 'earliest', 'latest' or an offset"),
        (json.dumps({"idx": 1}), "the offset has no member"),
        (json.dumps({**OFFSET, "globalseqno": 1}), "no field 'globalseqno': did you mean global_seqno"),
        (json.dumps({**OFFSET, "v": 2}), "no field 'v': another version of seqcast wrote it"),
        (json.dumps({**OFFSET, "idx": -1}), "idx cannot be -1"),
        (json.dumps({**OFFSET, "idx": True}), "idx cannot be true"),
        (json.dumps({**OFFSET, "member": "0"}), 'member cannot be "0"'),
        (json.dumps({**OFFSET, "also": [["x", 1]]}), "also cannot be"),
        (json.dumps({**OFFSET, "merged": {"into": "0" * 16, "parts": [[1]]}}), "merged cannot be"),
        (json.dumps({**OFFSET, "merged": {}}), "merged cannot be"),
        (json.dumps({"member": "0" * 16, "idx": 1, "view": OFFSET["view"]}), "one of view and global_seqno"),
    ],
)
def test_an_offset_that_is_none_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        Following.of({"startingOffset": text})
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffset": "latest", "startingTimestamp": "5"}, "give only one"),
        ({"startingTimestamp": "soon"}, "startingTimestamp='soon': give a time such as"),
        ({"startingTimestamp": "soon"}, "or milliseconds since 1970"),
        ({"endingOffset": "latest"}, "endingOffset='latest': give an offset"),
        ({"minPartitions": "few"}, "minPartitions='few': give a positive whole number"),
        ({"startingOffset": json.dumps(OFFSET), "endingOffset": json.dumps({**OFFSET, "idx": 6})}, "exchange them"),
        ({"copies": "all", "startingOffset": "latest"}, "give copies='one'"),
    ],
)
def test_values_that_cannot_be_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        Following.of(options)
        Tabled.of(options)
    assert says in str(refused.value)


def test_queries_print_offsets(tmp_path: Path) -> None:
    for who, story in partitioned(again=True).items():
        journal(tmp_path, who, story, payload="full")
    query = followed_by("a", Tagged, Folders([str(tmp_path)]))
    query.run(7)
    also = {**OFFSET, "also": [[OFFSET["view"], 3], [OFFSET["view"], 3, 1]], "left": [["0" * 16, "1" * 16, 5]]}
    every = [*query.log, also]
    assert {name for each in every for name in each} >= {"member", "view", "stable", "also", "merged", "left"}
    assert [read_offset("x", json.dumps(each)) for each in every] == every


def test_each_option_has_a_name_of_its_own_and_a_reader() -> None:
    for kind in (TABLE, STREAM):
        names = names_of(kind)
        assert len({name.lower() for name in names}) == len(names)
    source = "".join(path.read_text() for path in Path(Following.of.__code__.co_filename).parent.glob("*.py"))
    assert [option.name for option in OPTIONS if source.count(f'"{option.name}"') < 2] == [
        "checkpointLocation", "queryName",  # Spark's own
    ]  # fmt: skip


# ---- payloads --------------------------------------------------------------------------------------------------------


def decoded(schema: str, *payloads: bytes | None) -> list[Any]:
    column = Payload.of("json", schema).decoded(pa.array(payloads, pa.binary()))
    column.validate(full=True)
    found: list[Any] = column.to_pylist()
    return found


def test_json_becomes_fields_and_misfits_are_null() -> None:
    schema = "id BIGINT, small tinyint, `user-name` string, at struct<x: double, tags: array<string>>, ok boolean"
    whole = {"id": 5, "small": -128, "user-name": "ü", "at": {"x": 2, "tags": ["a", None]}, "ok": True, "more": 1}
    nothing = dict.fromkeys(("id", "small", "user-name", "at", "ok"))
    assert decoded(
        schema,
        json.dumps(whole).encode(), None, b"{", b"[]", b"null", b"\xff", b"NaN", b"[" * 100_000, b"{}",
        b'{"id": 1.5, "small": 128, "user-name": {"a": 1}, "at": {"x": "2", "tags": {}}, "ok": 1}',
        b'{"id": true, "user-name": "\\ud800", "at": [["x", 1]]}',
        b'{"id": 9223372036854775808, "at": {"x": ' + b"9" * 400 + b"}}",
    ) == [
        {**{name: whole[name] for name in nothing}, "at": {"x": 2.0, "tags": ["a", None]}},
        None, None, None, None, None, None, None,
        nothing,
        {**nothing, "user-name": '{"a": 1}', "at": {"x": None, "tags": None}},
        {**nothing, "user-name": "?"},
        {**nothing, "at": {"x": None, "tags": None}},
    ]  # fmt: skip


def test_text_is_text_whatever_the_bytes_are() -> None:
    payload = Payload.of("UTF8", None)
    assert payload.decoded(pa.array([b"\xc3\xbc", None], pa.binary())).to_pylist() == ["ü", None]
    assert payload.decoded(pa.array([b"a\xff", None], pa.binary())).to_pylist() == ["a\N{REPLACEMENT CHARACTER}", None]


@pytest.mark.parametrize(
    ("kind", "schema", "says"),
    [
        ("jsn", "a int", "did you mean 'json'?"),
        ("text", None, "give 'binary', 'utf8', 'json'"),
        ("json", None, "payloadSchema belong together"),
        ("utf8", "a int", "payloadSchema belong together"),
        ("json", "a decimal(10, 2)", "a cannot be decimal: give one of string,"),
        ("json", "a bigin", "a cannot be bigin: did you mean bigint?"),
        ("json", "a int, a string", "a appears twice"),
        ("json", "a int not null", "leave out NOT NULL"),
        ("json", "a", "a type for a is missing"),
        ("json", "a int,", "a name is missing"),
        ("json", "a array<int", "write array<...>"),
        ("json", "a struct<b int", "after the type of b comes a comma"),
        ("json", "a int; b int", "not a list of names and types"),
        ("json", ",", "a name is missing"),
    ],
)
def test_a_payload_that_cannot_be_is_refused(kind: str, schema: str | None, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        Payload.of(kind, schema)
    assert says in str(refused.value)
