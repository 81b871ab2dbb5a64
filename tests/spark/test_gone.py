"""A task whose journal goes away amid a read: the rest of its rows comes from elsewhere, each once, or the task
fails."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from halves import first_quick

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from journal_data import Row, as_live, journal, member, view
from pyspark.sql.streaming.datasource import ReadAllAvailable

from seqcast.journal.schema import JournalDamaged, JournalError
from seqcast.journal.tap import Tap, TapGone
from seqcast.spark.options import Following
from seqcast.spark.source import JournalReader, JournalStream
from seqcast.spark.stores import Folders, Taps
from seqcast.spark.wanted import Wanted

A, B, C = (member(name) for name in "abc")
V0, V1, V2, V3 = view(1, [B]), view(2, [B, A]), view(3, [B, A]), view(4, [B, C])
TOKEN = b"a token of 16 bytes or more"
BIG = 100_000
"""Bytes of a payload: a task's rows do not fit into the buffers of a connection."""


def rows(text: str, n: int, size: int = BIG, transitional: int = 1 << 62) -> list[Row]:
    name = text.encode()
    return [
        Row(
            (A, B)[at % 2],
            1 + at,
            0,
            1 + at,
            (b"%s %d " % (name, at)).ljust(size, b"."),
            transitional=at >= transitional,
        )
        for at in range(n)
    ]


ONE, TWO = rows("one", 150), rows("two", 150)
Serve = Callable[[Path], tuple[Tap, Taps]]
BOTH = [row.payload for row in ONE + TWO]
BEFORE = (V0, rows("before", 7, 5))
"""Rows that only the first member has: positions in its journal are others than in A's."""


@contextlib.contextmanager
def process(top: Path) -> Iterator[tuple[Taps, Callable[[], object]]]:
    """A tap in a process of its own, and its `kill`."""
    (token := top.parent / "token").write_bytes(TOKEN)
    command = ["tap", "--journal", str(top), "--listen", "127.0.0.1:0", "--token-file", str(token)]
    with subprocess.Popen([sys.executable, "-m", "seqcast", *command], stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        try:
            yield Taps(served.stdout.readline().split()[-1], TOKEN, ""), served.kill
        finally:
            served.kill()


@pytest.fixture
def serve() -> Iterator[Callable[[Path], tuple[Tap, Taps]]]:
    """Starts a tap in this process, which `close` ends as suddenly."""
    with contextlib.ExitStack() as stack:

        def start(top: Path) -> tuple[Tap, Taps]:
            top.mkdir(exist_ok=True)
            tap = stack.enter_context(Tap(top, ("127.0.0.1", 0), TOKEN))
            return tap, Taps(f"127.0.0.1:{tap.address[1]}", TOKEN, "")

        yield start


def stream_of(*stores: Any, failover_s: float = 0.0) -> JournalStream:
    return JournalStream(stores, Following(failover_s=failover_s), Wanted())


def task_of(stream: JournalStream) -> tuple[Iterator[Any], Any]:
    """The rows of a stream's first batch, as its one task reads them, and the batch's end."""
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    (part,) = pickle.loads(pickle.dumps(stream.partitions(start, end)))
    return stream.read(part), end


def payloads(batches: Iterator[Any]) -> list[bytes]:
    return [row for batch in batches for row in batch["payload"].to_pylist()]


@pytest.mark.parametrize("live", first_quick([False, True]))
def test_a_task_whose_tap_is_killed_goes_on_in_another_members_journal(
    tmp_path: Path, serve: Serve, live: bool
) -> None:
    path = journal(tmp_path / "a", A, [(V1, ONE), (V2, TWO)], closed=None, payload="full")
    if live:
        as_live(path, chunk=50)
    _, second = serve(tmp_path / "b")
    with process(tmp_path / "a") as (first, kill):
        batches, end = task_of(stream_of(first, second))
        journal(tmp_path / "b", B, [BEFORE, (V1, ONE), (V2, TWO), (V3, [])], payload="full")
        found = [next(batches)]
        kill()
        found += batches
    assert payloads(iter(found)) == BOTH
    assert {who for batch in found for who in batch["member"].to_pylist()} == {"a", "b"}
    assert found[-1]["idx"][-1].as_py() == 306 and end["member"] == f"{A.id:016x}" and end["idx"] == 300


def test_each_of_several_taps_may_be_killed_in_turn(tmp_path: Path, serve: Serve) -> None:
    """The second has the same journal, the third another member's, and in the end A's is found again."""
    journal(tmp_path / "a", A, [(V1, ONE), (V2, TWO)], closed=None, payload="full")
    shutil.copytree(tmp_path / "a", tmp_path / "late")
    taps = [serve(tmp_path / name) for name in ("a", "a", "b")]
    batches, _ = task_of(stream_of(*(store for _, store in taps), Folders([str(tmp_path / "again")])))
    journal(tmp_path / "b", B, [BEFORE, (V1, ONE), (V2, TWO), (V3, [])], payload="full")
    found = []
    for tap, _ in taps:
        found.append(next(batches))
        if len(found) == len(taps):
            (tmp_path / "late").rename(tmp_path / "again")
        tap.close()
    assert payloads(iter([*found, *batches])) == BOTH


def test_a_table_goes_on_at_another_tap_of_the_same_journal_only(tmp_path: Path, serve: Serve) -> None:
    journal(tmp_path / "a", A, [(V1, ONE), (V2, TWO)], payload="full")
    journal(tmp_path / "b", B, [(V1, ONE), (V2, TWO)], payload="full")
    first, same, other = (serve(tmp_path / top) for top in "aab")
    for taps, whole in (((first, same), True), ((same, other), False)):
        reader = JournalReader([store for _, store in taps], Wanted())
        batches = reader.read(pickle.loads(pickle.dumps(reader.partitions()[0])))
        begun = next(batches)
        taps[0][0].close()
        if whole:
            assert payloads(iter([begun, *batches])) == BOTH
        else:
            with pytest.raises(TapGone):
                payloads(batches)


RECORDS = view(2, [B, A], "records")


@pytest.mark.parametrize(
    ("own", "others"),
    [
        # stable up to a lower global seqno by the others: the lost member may have delivered otherwise
        ([(RECORDS, ONE)], [(RECORDS, rows("one", 150, transitional=97)), (V3, [])]),
        # of the other side of a partition before the merge
        ([(V1, ONE), (V2, TWO)], [(view(2, [B, C], attempt=2), rows("apart", 150)), (V2, TWO), (V3, [])]),
    ],
    ids=["unstable", "apart"],
)
def test_rows_that_no_other_member_is_known_to_have_are_not_replaced(
    tmp_path: Path, serve: Serve, own: Any, others: Any
) -> None:
    journal(tmp_path / "a", A, own, closed=None, payload="full")
    (tap, first), (_, second) = serve(tmp_path / "a"), serve(tmp_path / "b")
    batches, _ = task_of(stream_of(first, second))
    journal(tmp_path / "b", B, others, payload="full")
    next(batches)
    tap.close()
    with pytest.raises(TapGone):
        payloads(batches)


def test_a_task_waits_for_another_member_to_show_that_it_has_the_same(tmp_path: Path, serve: Serve) -> None:
    journal(tmp_path / "a", A, [(V1, ONE), (V2, TWO)], closed=None, payload="full")
    (tap, first), ready = serve(tmp_path / "a"), tmp_path / "b"
    journal(tmp_path / "hidden", B, [(V1, ONE), (V2, TWO), (V3, [])], payload="full")

    class Late(Folders):
        asked = 0

        def members(self) -> list[int]:
            Late.asked += 1
            if Late.asked == 3:
                (tmp_path / "hidden").rename(ready)
            return super().members()

    stream = stream_of(first, failover_s=60.0)
    start = stream.initialOffset()
    (part,) = stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))
    stream._follower._stores = (first, Late([str(ready)]))
    batches = stream.read(part)
    begun = next(batches)
    tap.close()
    assert payloads(iter([begun, *batches])) == BOTH and Late.asked >= 3


def test_a_directory_that_is_removed_is_gone_like_a_tap(tmp_path: Path) -> None:
    path = as_live(journal(tmp_path / "a", A, [(V1, ONE), (V2, TWO)], closed=None, payload="full"), chunk=50).parent
    batches, _ = task_of(stream_of(Folders([str(tmp_path / "a")]), Folders([str(tmp_path / "b")])))
    journal(tmp_path / "b", B, [(V1, ONE), (V2, TWO), (V3, [])], payload="full")
    shutil.rmtree(path)
    assert payloads(batches) == BOTH


@pytest.mark.parametrize("tapped", [False, True])
def test_damage_is_told_once_and_nobody_stands_in(
    tmp_path: Path, tapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = journal(tmp_path / "a", A, [(V1, ONE), (V2, TWO)], closed=None, payload="full")
    with Tap(tmp_path / "a", ("127.0.0.1", 0), TOKEN) as tap:
        own = Taps(f"127.0.0.1:{tap.address[1]}", TOKEN, "") if tapped else Folders([str(tmp_path / "a")])
        stream = stream_of(own, Folders([str(tmp_path / "b")]))
        batches, end = task_of(stream)
        journal(tmp_path / "b", B, [(V1, ONE), (V2, TWO), (V3, [])], payload="full")
        segment = path / "segment-000001.parquet"
        contents = bytearray(segment.read_bytes())
        contents[len(contents) // 2] ^= 1
        segment.write_bytes(contents)
        with pytest.raises(JournalDamaged, match=r"^damage: .*checksum is not that of segments.json; restore it[^;]*$"):
            payloads(batches)

        looks: list[object] = []
        real = type(own).journal
        monkeypatch.setattr(type(own), "journal", lambda store, who: looks.append(who) or real(store, who))
        (path / "segments.json").write_text("{}")
        with pytest.raises(JournalError, match=r"segments\.json is damaged"):
            stream.latestOffset(end, ReadAllAvailable())
        assert len(looks) == 1


def test_a_task_gives_up_if_journals_go_as_soon_as_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal(tmp_path / "a", A, [(V1, ONE)], closed=None, payload="full")
    with Tap(tmp_path / "a", ("127.0.0.1", 0), TOKEN) as tap:
        batches, end = task_of(stream_of(Taps(f"127.0.0.1:{tap.address[1]}", TOKEN, "")))
        assert end["idx"] == len(ONE)
        asked: list[object] = []

        def gone(*request: object) -> None:
            asked.append(request)
            raise TapGone("it ends each answer")

        monkeypatch.setattr(Tap, "_rows", gone)
        with pytest.raises(TapGone, match="ends each answer"):
            payloads(batches)
        assert 1 < len(asked) < 20
