"""``seqcast report``: percentiles from histograms, windows of time, events meanwhile, and the page."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
pytest.importorskip("matplotlib")

import numpy as np
from commands import call
from hypothesis import given
from hypothesis import strategies as st
from journal_data import Row, batch_of, journal, member, view, wait_for_rows

from seqcast.errors import UsageError
from seqcast.journal.places import find
from seqcast.journal.writer import JournalWriter
from seqcast.spark import audit_page, latency, page, report, report_command

A, B = member("a"), member("b")
V1 = view(1, [A, B])
MS = 1_000_000
START = 1_600_000_000_000_000_000


def bucket_of(ns: int) -> int:
    return int(latency.buckets(np.array([ns]))[0])


@given(st.integers(0, 1 << 60))
def test_a_bucket_holds_values_that_differ_by_a_thirtysecond(ns: int) -> None:
    bucket = bucket_of(ns)
    assert ns <= latency.bucket_top(bucket) <= ns * (1 + 1 / latency.STEPS) + 1
    assert bucket == 0 or latency.bucket_top(bucket - 1) < ns


def test_percentiles_are_those_of_the_values_rounded_up() -> None:
    values = sorted((at * 977) % 100_000 for at in range(5000))
    histogram = Counter(map(bucket_of, values))
    for share in report.PERCENTILES:
        exact = values[int(share * len(values)) - 1]
        assert exact <= report.percentile(histogram, share) <= exact * (1 + 1 / latency.STEPS) + 1
    assert report.percentile({}, 0.5) == 0


def write_journals(top: Path) -> None:
    """Two members; a's messages take 1 ms to a and 3 ms to b, and b asks twice for a repeat."""
    for who, latency_ns in ((A, 1_000_000), (B, 3_000_000)):
        levels = {"naks_sent": 0}
        writer = JournalWriter(top, cluster="test", member=who, payload="hash", sample=levels.copy)
        writer.view(V1, 1_600_000_000_000_000_000)
        for at in range(1000):
            row = Row(A, 1 + at * 1_000_000, 0, 1 + at, b"x" * 10, transitional=who == B and at >= 997)
            sent_ns = 1_600_000_000_000_000_000 + row.seqno
            writer.batch(batch_of([row], V1, sent_ns + latency_ns), V1)
        if who == B:
            writer._events.due = 0
            levels["naks_sent"] = 2
            writer.event("Lost", "lost: <3> messages", 1_600_000_000_500_000_000)
        writer.close("leave")


def png_size(path: Path) -> tuple[int, int]:
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    return width, height


def timed_of(spark: Any, top: Path, took_ns: dict[Any, list[int]]) -> report.Timed:
    """Measured from journals of members, to each of which a's messages take this long, a millisecond apart."""
    for who, each in took_ns.items():
        writer = JournalWriter(top, cluster="test", member=who, payload="hash")
        writer.view(V1, START)
        for at, took in enumerate(each):
            row = Row(A, 1 + at * MS, 0, 1 + at, b"x")
            writer.batch(batch_of([row], V1, START + row.seqno + took), V1)
        writer.close("leave")
    return report.measure(spark, find([top]))


def test_deliveries_before_their_sending_are_counted_and_in_no_percentile(here: Any, tmp_path: Path) -> None:
    timed = timed_of(here, tmp_path, {A: [-5000, -1, *[2 * MS] * 8], B: [-7] * 4})
    rows = {(row["member"], row["sender"]): row for row in report.table(timed)}
    assert [rows[who, "a"]["messages"] for who in "ab"] == [10, 4] and rows["all", "all"]["messages"] == 14
    assert [rows[who, "a"]["before_sent"] for who in "ab"] == [2, 4] and rows["all", "all"]["before_sent"] == 6
    assert rows["a", "a"]["p50_us"] == pytest.approx(2000, rel=1 / latency.STEPS)
    assert rows["b", "a"]["p50_us"] is rows["b", "a"]["max_us"] is None
    assert sum(count for count, _, _ in timed.windows.values()) == 14
    told = json.loads(json.dumps(report.as_json(timed, report.table(timed))))
    assert {window["p99_us"] for window in told["windows"] if window["member"] == "b"} == {None}
    assert told["findings"] == [
        "6 deliveries came before the message was sent, by the clocks of sender and member: no latency is known of "
        "these, and they are not in the percentiles."
    ]
    report.write(timed, report.table(timed), tmp_path / "out", "x")


def test_a_report_begins_with_the_measurements_and_the_faults(here: Any, tmp_path: Path) -> None:
    sound = timed_of(here, tmp_path / "sound", {A: [MS] * 100, B: [MS] * 99 + [40 * MS]})
    assert report.summary(sound) == (
        "200 deliveries of messages from 1 sender to 2 members in 138 ms: half within 1.02 ms, 99 % within 1.02 ms, "
        "the slowest 40.9 ms."
    )
    page = report.page_of(sound, report.table(sound), {}, "x")
    assert report.findings(sound) == [] and report.NOTHING in page and "transitional" not in page
    write_journals(tmp_path / "trouble")
    trouble = report.measure(here, find([tmp_path / "trouble"]))
    assert report.findings(trouble) == [
        "Applications were told Lost: 1 (b 1).",
        "Requests for repeats: 2 (b 2).",
        "Only a view change ordered 3 deliveries (transitional).",
    ]


def test_members_that_went_and_views_that_fell_apart_are_reported_as_faults(here: Any, tmp_path: Path) -> None:
    """b left, c crashed, d was excluded, e has no journal here, and f was cut off with g and crashed then."""
    every = [member(name) for name in "abcdefg"]
    a, b, c, d, e, f, g = every

    def story(who: Any, *views: Any, closed: str | None = None, **how: Any) -> None:
        row = Row(who, 1, 0, 1, b"x")
        journal(tmp_path, who, [(of, [row] if of is views[0] else []) for of in views], closed=closed, **how)

    first, without_b = view(1, every), view(2, [a, c, d, e, f, g])
    without_c, without_d = view(3, [a, d, e, f, g]), view(4, [a, e, f, g])
    side, last = view(5, [a]), view(5, [f, g], attempt=2)
    story(a, first, without_b, without_c, without_d, side, closed="leave")
    story(b, first, closed="leave", successor=without_b)
    story(c, first, without_b)
    story(d, first, without_b, without_c, closed="excluded")
    story(f, first, without_b, without_c, without_d, last, closed="killed")
    story(g, first, without_b, without_c, without_d, last, closed="leave")
    timed = report.measure(here, find([tmp_path]))
    assert report.findings(timed) == [
        "4 members went without leaving: c (ended without a closing record, in view 2), d (excluded, in view 3), "
        "e (its journal is not here to say how, in view 4), f (ended without a closing record, in view 5).",
        "1 view fell apart: view 4 [a, e, f, g] into [a] and [f, g].",
    ]
    page = report.page_of(timed, report.table(timed), {}, "x")
    assert "2 things to look at" in page and "c (ended without" in page and report.NOTHING not in page


def test_members_that_go_on_or_have_left_are_not_lost(here: Any, tmp_path: Path) -> None:
    last = view(2, [A])
    writer = JournalWriter(tmp_path, cluster="test", member=A, payload="hash", flush_s=0.001)
    for of in (V1, last):
        writer.view(of, START)
    row = Row(A, 1, 0, 1, b"x")
    writer.batch(batch_of([row], last, START + MS), last)
    wait_for_rows(writer, 1)
    journal(tmp_path, B, [(V1, [])], closed="leave", successor=last)
    timed = report.measure(here, find([tmp_path]))
    assert not timed.lost and not timed.apart
    writer.close("leave")


def test_views_that_are_there_at_one_time_have_colours_of_their_own() -> None:
    """Sides of a partition, also many of them, and a view and the next one."""
    sides = [(10 * at, 5.0, 9.0) for at in range(1, 40)]
    told = audit_page._colours([(7, 0.0, 5.0), (7, 1.0, 4.0), *sides, (3, 9.5, 12.0)])
    assert len({told[tag] for tag, *_ in [(7,), *sides]}) == 40 and told[7] == told[3] == 0
    assert len({page.colour(number) for number in range(60)}) == 60


@pytest.mark.parametrize("took_ns", [[0], [150_000], [150_000, 151_000], [1, 10**12]])
def test_axes_suit_few_values(here: Any, tmp_path: Path, took_ns: list[int]) -> None:
    timed = timed_of(here, tmp_path, {A: took_ns})
    figures = report.plots(timed)
    (axes,) = figures["latency"].axes
    low, high = axes.get_xlim()
    assert 9.9 <= high / low and low < max(1, min(took_ns)) / 1e9 and max(took_ns) / 1e9 < high
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert len(labels) >= 2 and all(label.endswith("s") for label in labels)
    assert len(figures["timeline"].axes) == 2  # there was no trouble
    for axes in figures["timeline"].axes:
        begin, end = axes.get_xlim()
        assert -0.03 * end < begin <= 0 < end < 2000 and [line.get_marker() for line in axes.lines[:1]] == ["o"]


@pytest.mark.spark
def test_a_standstill_is_seen_in_the_time_line() -> None:
    """No messages, and no latency, and not those of the window before."""
    second = 10**9
    timed = report.Timed(0, 5 * second, second)
    timed.windows = {
        ("a", window): (30, 300, Counter({int(latency.buckets(np.array([1000]))[0]): 30})) for window in (0, 1, 4)
    }
    rate, slow = report.plots(timed)["timeline"].axes
    assert rate.lines[0].get_ydata().tolist() == [30, 30, 0, 0, 30]
    assert np.isnan(slow.lines[0].get_ydata()).tolist() == [False, False, True, True, False]


@pytest.mark.long
def test_latency_throughput_and_trouble_are_measured(spark: Any, tmp_path: Path) -> None:
    write_journals(tmp_path / "journals")
    timed = report.measure(spark, find([tmp_path / "journals"]))
    rows = {(row["member"], row["sender"]): row for row in report.table(timed)}
    assert rows["a", "a"]["messages"] == rows["b", "a"]["messages"] == 1000 and rows["all", "all"]["messages"] == 2000
    assert [rows[who, sender]["transitional"] for who, sender in (("a", "a"), ("b", "a"), ("all", "all"))] == [0, 3, 3]
    assert rows["a", "a"]["p99_us"] == pytest.approx(1000, rel=1 / latency.STEPS)
    assert rows["b", "a"]["p50_us"] == rows["all", "all"]["max_us"] == pytest.approx(3000, rel=1 / latency.STEPS)
    assert sum(count for count, _, _ in timed.windows.values()) == 2000
    assert sum(size for _, size, _ in timed.windows.values()) == 20_000
    assert [(who, name, count) for who, _, name, count in timed.trouble] == [("b", "requests for repeats", 2)]
    paths = report.write(timed, report.table(timed), tmp_path / "out", "seqcast: <test>")
    assert sorted(path.name for path in paths) == ["latency.png", "report.html", "timeline.png"]
    text = (tmp_path / "out" / "report.html").read_text()
    assert text.count("data:image/png;base64,") == 2 and "&lt;test&gt;" in text and "&lt;3&gt;" in text
    assert re.search(r"b\s+a\s+1,000\s+3\s+3,0", report.as_text(timed, report.table(timed)))
    for name, size in (("latency", (1080, 480)), ("timeline", (1080, 1080))):
        assert png_size(tmp_path / "out" / f"{name}.png") == size
    assert "3 things to look at" in text and "Requests for repeats: 2 (b 2)." in text and ">p99, µs<" in text
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match="name another folder with --out"):
        report.write(timed, report.table(timed), blocked / "in", "x")


@pytest.mark.long
def test_the_command_writes_the_page_and_prints_the_table_or_all_as_json(
    here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("seqcast.spark.session.open_session", lambda master, name, ship: here)
    write_journals(tmp_path / "journals")
    arguments = [str(tmp_path / "journals"), "--out", str(tmp_path / "out")]
    assert call(report_command, arguments) == 0
    assert f"written: {tmp_path / 'out' / 'report.html'}" in capsys.readouterr().out
    assert call(report_command, [*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["messages"] for row in told["latency"] if row["member"] == "b"} == {1000}
    for who, took_us in (("a", 1000), ("b", 3000)):
        windows = [window for window in told["windows"] if window["member"] == who]
        assert 100 < len(windows) <= latency.WINDOWS
        first = 1_600_000_000_000_000_000 + took_us * 1000
        assert abs(windows[0]["begin_ns"] - first) <= windows[0]["seconds"] * 1e9
        assert sum(window["messages_per_s"] * window["seconds"] for window in windows) == pytest.approx(1000, 0.01)
        assert sum(window["bytes_per_s"] * window["seconds"] for window in windows) == pytest.approx(10_000, 0.01)
        for window in windows:
            assert window["p50_us"] == window["p99.9_us"] == pytest.approx(took_us, rel=1 / latency.STEPS)
    (trouble,) = told["trouble"]
    assert (trouble["member"], trouble["what"], trouble["count"]) == ("b", "requests for repeats", 2)
    assert "b: Lost: lost: <3> messages" in [event["text"] for event in told["events"]]


def timing_of(took_ns: list[int], begin_ns: int, step_ns: int, sender: int = 7) -> latency.Timing:
    delivered = begin_ns + np.arange(len(took_ns)) * step_ns
    ones = np.ones(len(took_ns), np.int64)
    return latency._timing({}, sender * ones, ones, delivered - np.array(took_ns), delivered, 10 * ones)


@given(
    st.lists(st.integers(-5000, 1 << 40), min_size=1, max_size=50),
    st.lists(st.integers(-5000, 1 << 40), min_size=1, max_size=50),
    st.integers(1, 1 << 36),
)
def test_parts_of_any_span_add_up_to_windows_that_fit(one: list[int], two: list[int], step_ns: int) -> None:
    whole = latency.Timing()
    for part, begin_ns in ((one, 1_600_000_000_000_000_000), (two, 1_600_000_500_000_000_000)):
        whole.add(timing_of(part, begin_ns, step_ns))
    assert sum(count for count, _ in whole.counts.values()) == len(one) + len(two)
    assert sum(size for _, size in whole.counts.values()) == 10 * (len(one) + len(two))
    windows = {window for _, window, _ in whole.counts}
    assert max(windows) - min(windows) <= latency.WINDOWS
    assert min(windows) == whole.begin_ns >> whole.shift and max(windows) == whole.end_ns >> whole.shift
    assert whole.least == {7: min(*one, *two)}


def test_how_far_a_clock_is_ahead_follows_from_the_fastest_messages_both_ways() -> None:
    assert report.clock_ahead(10_300, -9_500) == (9_900, 400)  # one way takes 400 ns, a is 9,900 ns ahead
    assert report.clock_ahead(-9_500, 10_300) == (-9_900, 400)
    assert report.clock_ahead(5, None) is None


def write_two_clocks(top: Path, ahead_ns: list[int], *, crashed: bool) -> None:
    """Two members in as many views as differences of b's clock are given; a message takes 2 ms from a to b, 4 ms from b
    to a. ``crashed``: both in the last view."""
    views = [view(1 + at, [A, B]) for at in range(len(ahead_ns))]
    for who in (A, B):
        writer = JournalWriter(top, cluster="test", member=who, payload="hash")
        for of, ahead in zip(views, ahead_ns, strict=True):
            writer.view(of, START)
            for at in range(200):
                sender = (A, B)[at % 2]
                seqno = of.view_id.counter * 10_000 * MS + at * MS  # batch_of has sent at 1.6e18 + seqno
                true_ns = START + seqno - (ahead if sender == B else 0)
                took = 2 * MS if (sender, who) == (A, B) else 4 * MS if (sender, who) == (B, A) else MS
                delivered = true_ns + took + at % 7 + (ahead if who == B else 0)
                writer.batch(batch_of([Row(sender, seqno, 0, 1 + at, b"x")], of, delivered), of)
        writer.close("crash" if crashed else "leave", at_view_end=not crashed)


@pytest.mark.spark
@pytest.mark.parametrize("crashed", [False, True])
def test_latencies_are_corrected_if_clocks_are_known_to_differ(spark: Any, tmp_path: Path, crashed: bool) -> None:
    write_two_clocks(tmp_path, [70 * MS, 70 * MS], crashed=crashed)
    rows = {(row["member"], row["sender"]): row for row in report.table(report.measure(spark, find([tmp_path])))}
    assert rows["b", "a"]["clock_us"] == pytest.approx(69_000, abs=1) == -rows["a", "b"]["clock_us"]
    assert rows["b", "a"]["clock_error_us"] == pytest.approx(3_000, abs=1)
    for pair in (("b", "a"), ("a", "b")):  # the difference is known to 3 ms: both ways look as if they took as long
        assert rows[pair]["p50_us"] == pytest.approx(3_000, rel=1 / latency.STEPS)
    for pair in (("a", "a"), ("b", "b")):
        assert rows[pair]["p50_us"] == pytest.approx(1_000, rel=1 / latency.STEPS) and rows[pair]["clock_us"] is None


def test_each_view_has_its_own_estimate_and_one_within_its_error_corrects_nothing(tmp_path: Path) -> None:
    write_two_clocks(tmp_path, [-80 * MS, MS, 50 * MS], crashed=False)
    first, second = find([tmp_path])
    recorded = report.recorded_clocks([first, second])
    assert {key[2] for key in recorded} == {view.tag - (view.tag >> 63 << 64) for view in first.views}
    for of, sign in ((first, -1), (second, 1)):
        found = list(report.corrections(of, recorded).values())
        assert found == [pytest.approx(sign * -81 * MS, abs=9), pytest.approx(sign * 49 * MS, abs=9)]
    assert report.recorded_clocks([first]) == {}
