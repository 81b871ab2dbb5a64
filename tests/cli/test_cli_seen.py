"""The commands that show groups by their boards: probe, top, metrics."""

import contextlib
import dataclasses
import errno
import gc
import gzip
import io
import json
import math
import operator
import os
import re
import struct
import sys
import tarfile
import urllib.error
import urllib.request
import weakref
from pathlib import Path

import pytest
from halves import first_quick
from members import LOOPBACK, cluster, group_of, join, script, wait_until
from netns import network
from project import ROOT

import seqcast
from seqcast import cli, codes
from seqcast.board import judge
from seqcast.board.judge import unreadable
from seqcast.board.place import BYTES
from seqcast.board.read import MAGIC, VERSION, Event, OtherLayout, boards, of_other_releases, read
from seqcast.cli import debug, seen_all, top
from seqcast.cli.seen import NotAsked, headings, history, letters
from seqcast.cli.timeline import in_order
from seqcast.config import keys
from seqcast.metrics import Collector, families, text_of

__all__ = ["network"]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no boards")


def run(capsys, *arguments):
    status = cli.main(arguments)
    out = capsys.readouterr()
    return status, out.out, out.err


def seen(group, n):
    """The board of the group's member shows a view of ``n`` members in which everybody hears everybody."""
    return lambda: (
        len((board := read(group.board)).about["view"]["members"]) == n == board.gauges["members"]
        and all(row["present"] for row in board.members)
    )


def test_probe_shows_the_cipher_the_keys_and_the_age_of_the_secret(capsys, tmp_path):
    pytest.importorskip("nacl")
    path = str(tmp_path / "key")
    keys.make(path)
    keys.add(path)
    one, other = (key.number for key in keys.read(path))
    with group_of(1, key=path) as (a,):
        wait_until(seen(a, 1))
        _, out, _ = run(capsys, "probe", a.cluster)
        cipher = "(aegis-128l|xchacha20-poly1305)"
        assert re.search(rf"  {cipher} with a secret \d+ s old, key {one}, opens {other} too  seen by a", out), out


def test_two_groups_of_one_name_with_two_keys_are_shown_as_two(capsys, tmp_path):
    """Though their members have one name, too."""
    pytest.importorskip("nacl")
    rich = pytest.importorskip("rich.console")
    parser = pytest.importorskip("prometheus_client.parser")
    from seqcast.cli.top_live import drawn

    name, paths = cluster(), [str(tmp_path / "one"), str(tmp_path / "two")]
    for path in paths:
        keys.make(path)
    others = {"key": paths[1], "port": seqcast.Config().port + 20}
    with join(name, "a", key=paths[0]) as a, join(name, "a", **others) as b, join(name, "c", **others) as c:
        wait_until(lambda: (len(a.view), len(b.view), len(c.view)) == (1, 2, 2))
        wait_until(lambda: seen(a, 1)() and seen(b, 2)() and seen(c, 2)())
        status, out, _ = run(capsys, "probe", name)
        assert status == 0 and sorted(re.findall(r"(\d) members? .* seen by a \(here\)", out)) == ["1", "2"], out
        said = json.loads(run(capsys, "probe", name, "--json")[1])
        assert sorted(len(each["members"]) for each in (said, *said["beside"])) == [1, 2]
        assert run(capsys, "probe", name, "--all")[1].count("all asked") == 2
        assert run(capsys, "top", name, "--plain", "--count", "1", "--every", "0.1")[1].count("seen by") == 2
        page = io.StringIO()
        rich.Console(file=page, width=300).print(drawn(boards(name), [], "", 0, []))
        assert page.getvalue().count("seen by") == 2
        read_back = {each.name: each for each in parser.text_string_to_metric_families(text_of(families(boards(name))))}
        members = [each.labels for each in read_back["seqcast_up"].samples]
        assert sorted(each["member"] for each in members) == ["a", "a", "c"]
        assert {each["incarnation"] for each in members if each["member"] == "a"} == {
            f"{each.member.id:x}" for each in (a, b)
        }


def test_one_process_that_does_not_answer_hides_no_other_group_of_that_name_and_a_live_one_is_first(
    capsys, monkeypatch
):
    name, asked = cluster(), seen_all.ask

    def ask(board):
        if board.name == "a":
            raise NotAsked("a does not answer")
        return asked(board)

    with join(name, "a") as a, join(name, "b", port=seqcast.Config().port + 20) as b:
        wait_until(lambda: seen(a, 1)() and seen(b, 1)())
        monkeypatch.setattr(judge, "_running", lambda board: board.name != "a")
        said = json.loads(run(capsys, "probe", name, "--json")[1])
        assert [each["members"][0]["name"] for each in (said, *said["beside"])] == ["b", "a"]
        monkeypatch.setattr(seen_all, "ask", ask)
        status, out, err = run(capsys, "probe", name, "--all")
        assert status == 1 and out.count("all asked") == 1 and "a does not answer" in err
        status, out, err = run(capsys, "probe", name, "--all", "--json", "--member", "a")
        assert status == 1 and not out and "a does not answer" in err


def test_probe_shows_who_hears_whom_and_since_when(capsys):
    with group_of(2) as (a, b):
        wait_until(seen(a, 2))
        status, out, err = run(capsys, "probe", a.cluster)
        assert status == 0 and not err, (out, err)
        lines = out.splitlines()
        assert lines[0].startswith(f"{a.cluster}  view ")
        assert "2 members  order total (records, sequencer a)" in lines[0]
        assert lines[2].split()[:4] == ["a", a.path["address"], "-", "m"]
        assert lines[3].split()[:4] == ["b", b.path["address"], "m", "-"]
        assert any("b joined" in line for line in lines[4:])
        status, out, _ = run(capsys, "probe", a.cluster, "--member", "b", "--json")
        said = json.loads(out)
        assert status == 0 and said["about"]["name"] == "b" and said["findings"] == []
        assert said["members"][0]["hears"] == {"b": "m"}


def test_top_prints_plain_text_into_a_pipe(capsys):
    """`ssh HOST seqcast top` and `seqcast top | tee FILE` printed nothing."""
    with group_of(1) as (a,):
        wait_until(seen(a, 1))
        status, out, _ = run(capsys, "top", a.cluster, "--count", "1", "--every", "0.1")
        assert status == 0 and out.startswith(f"{a.cluster}  view ")


@pytest.mark.parametrize(
    ("names", "shown"),
    [("ada ben", "a b"), ("node-1 node-2", "1 2"), ("node-11 node-21", "n n"), ("ax ay bz", "x y z"), ("a", "a")],
)
def test_columns_of_the_matrix_are_told_apart(names, shown):
    assert letters(names.split()) == shown.split()


def test_events_are_lines_of_the_log_and_what_came_since_the_last_one():
    with group_of(1) as (a,):
        wait_until(seen(a, 1))
        board = read(a.board)
    made = [(1, 0, "joined: view 1 [a]"), (2, 0, "cut reached"), (3, 0, "links changed"), (4, 0, "suspects b: silent"),
            (5, 0, "suspected"), (6, 0, "links changed"), (7, 0, "links changed")]  # fmt: skip
    events = tuple(Event(number, 10**9, member, text) for number, member, text in made)
    texts = [line.partition("  ")[2] for line in history(dataclasses.replace(board, events=events))]
    assert texts == ["joined: view 1 [a]", "suspects b: silent", "suspected", "links changed"]


def test_a_readiness_check_says_in_one_line_why_not(capsys):
    with group_of(2) as (a, _):
        wait_until(seen(a, 2))
        assert run(capsys, "probe", a.cluster, "--ready", "--members", "2")[:2] == (0, "ready\n")
        status, out, _ = run(capsys, "probe", a.cluster, "--ready", "--members", "3")
        assert (status, out) == (1, "not ready: the view of a has 2 of 3 members: a, b\n")
    with group_of(2, seeds="127.0.0.1,127.0.0.9,no-such-host.invalid") as (a, _):
        wait_until(seen(a, 2))
        status, out, _ = run(capsys, "probe", a.cluster, "--ready", "--members", "3")
        seeds = ", 1 does not answer: 127.0.0.9; no-such-host.invalid cannot be resolved\n"
        assert status == 1 and "2 of 3 members: a, b; discovery gave 2 addresses" + seeds in out
    status, out, _ = run(capsys, "probe", "no-such-group", "--ready", "--json")
    assert status == 1 and json.loads(out) == {"ready": False, "why": "no member runs on this machine"}
    status, _, err = run(capsys, "probe", "no-such-group")
    assert status == 1 and "no board of 'no-such-group'" in err


def test_a_receiver_that_takes_nothing_is_named_by_probe_on_both_sides(capsys):
    with group_of(2) as (a, b):
        with pytest.raises(seqcast.SendTimeout):
            while True:
                a.send(b"x" * 60_000, timeout=2.5)
        wait_until(lambda: cli.main(["probe", a.cluster, "--stall", "0.5"]) == 1)
        out = run(capsys, "probe", a.cluster, "--member", "a", "--stall", "0.5")[1]
        assert "SC2203  senders of a have waited for b" in out and "holds up a" in out
        assert "SC2205  senders have waited for b" in run(capsys, "probe", a.cluster, "--member", "b")[1]
        assert not run(capsys, "probe", a.cluster, "--ready", "--stall", "600")[0]
        assert "(SC2203)" in run(capsys, "probe", a.cluster, "--ready", "--stall", "0.5")[1]
        while b.recv(0.2) is not None:
            pass


KILLED = """
import os, signal, sys, seqcast
group = seqcast.join(sys.argv[1], name="killed", interface=sys.argv[2])
print(flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_top_shows_a_killed_member_and_its_last_event(capsys):
    name = cluster()
    with join(name, "a") as a:
        other = script(KILLED, name, LOOPBACK)
        other.stdout.readline()
        wait_until(lambda: [len(each.about["view"]["members"]) for each in boards(name)] == [2, 2])
        wait_until(lambda: all(len(each.members) == 2 for each in boards(name)))
        other.stdin.write("\n")
        other.stdin.flush()
        other.wait()
        wait_until(lambda: len(a.view) == 1)
        wait_until(seen(a, 1))
        status, out, _ = run(capsys, "top", name, "--plain", "--count", "1", "--every", "0.1")
        assert status == 0 and "seen by a (here)" in out and "seen by killed (ended)" in out
        assert "SC3005" in out and "joined: view" in out and "killed was excluded" in out
        other.communicate()
    status, out, _ = run(capsys, "top", name, "--plain", "--count", "1", "--every", "0.1")
    assert status == 0 and out.startswith(f"{name}  view 2") and "seen by a" not in out, "the killed one alone is left"


@pytest.mark.parametrize("cut", first_quick([0, 4096, -4096]))
def test_the_board_of_another_release_is_named_with_the_remedy(capsys, tmp_path, cut):
    """Layout 2, also in a file of another size, beside a member whose board is read."""
    rich = pytest.importorskip("rich.console")
    from seqcast.cli.top_live import drawn

    name = cluster()
    with join(name, "a") as a:
        wait_until(seen(a, 1))
        data = bytearray(a.board.read_bytes())
        struct.pack_into("=I", data, 8, VERSION + 1)
        process = a.board.name.removesuffix(".board").rpartition(".")[2]
        newer = a.board.with_name(f"{name}.newer.{process[:-8]}00000000.board")
        gone = a.board.with_name(f"{name}.gone.{2**22 + 7}-{process.split('-')[1]}-00000000.board")
        other = a.board.with_name(f"{cluster()}.newer.{process[:-8]}00000001.board")
        whole = bytes(data) + bytes(max(0, cut))
        try:
            for path in (newer, gone, other):
                path.write_bytes(whole[: len(data) + cut])
            with pytest.raises(OtherLayout, match="layout 2, and this release reads 1"):
                read(newer)
            assert set(of_other_releases(name)) == {newer} and of_other_releases().keys() >= {newer, other}
            status, out, _ = run(capsys, "probe", name)
            assert status == 1 and f"SC2216  the board {newer} has layout 2" in out and str(gone) not in out
            assert f"  {codes.OTHER_LAYOUT.remedy}".strip() in out and f"{name}  view 1" in out
            said = json.loads(run(capsys, "probe", name, "--json")[1])
            assert [each["code"] for each in said["findings"]] == ["SC2216"]
            status, out, err = run(capsys, "probe", name, "--ready")
            assert (status, out) == (0, "ready\n") and "SC2216" in err  # the member that can be judged is
            assert "SC2216" in run(capsys, "probe", name, "--all")[1]
            assert str(newer) in run(capsys, "top", name, "--plain", "--count", "1", "--every", "0.1")[1]
            text = io.StringIO()
            rich.Console(file=text, width=900).print(drawn([], [], "", 0, unreadable(name)))
            assert str(newer) in text.getvalue()
            named = f'seqcast_board_unreadable{{board="{newer}",layout="2"}} 1'
            assert named in run(capsys, "metrics")[1] and str(gone) not in run(capsys, "metrics")[1]
            status, out, _ = run(capsys, "debug", name, str(tmp_path / "out.tar.gz"))
            assert status == 0 and str(newer) in out
            a.board.rename(a.board.with_suffix(".aside"))
            for command in (["probe", name], ["debug", name, str(tmp_path / "none.tar.gz")]):
                status, _, err = run(capsys, *command)
                assert status == 1 and err.count("\n") == 1 and str(newer) in err and "SC2216" in err
            a.board.with_suffix(".aside").rename(a.board)
        finally:
            for path in (newer, gone, other):
                path.unlink(missing_ok=True)


def test_the_live_table_is_drawn():
    rich = pytest.importorskip("rich.console")
    from seqcast.cli.top_live import drawn

    with group_of(2) as (a, _):
        wait_until(seen(a, 2))
        found = boards(a.cluster)
        for page, expected in (("", "127.0.0.1"), ("events", "joined"), ("member", "Heartbeats sent.")):
            text = io.StringIO()
            rich.Console(file=text, width=160, height=300).print(drawn(found, found, page, 0, []))
            assert expected in text.getvalue() and "q quit" in text.getvalue()
            assert ("seqcast-io-a" in text.getvalue()) == (page == "member" and sys.platform.startswith("linux"))


def test_the_live_table_has_the_remedy_of_each_finding(monkeypatch):
    rich = pytest.importorskip("rich.console")
    from seqcast.cli import top_live

    with group_of(1) as (a,):
        wait_until(seen(a, 1))
        found, text = boards(a.cluster), io.StringIO()
    monkeypatch.setattr(top_live, "wrong_in", lambda *_: [codes.finding(codes.NOT_RUNNING, "a hangs", PID=7)])
    rich.Console(file=text, width=160).print(top_live.drawn(found, found, "", 0, []))
    assert "a hangs" in text.getvalue() and "wchan -p 7" in text.getvalue()


def test_the_live_table_is_sorted_by_a_column_at_a_key(monkeypatch):
    rich = pytest.importorskip("rich.console")
    from seqcast.cli import top_live

    with group_of(2) as (a, _):
        wait_until(seen(a, 2))
        found = boards(a.cluster)[:1]
        cells = dict(zip(headings(found[0]), ["a", *"-" * 20], strict=False))
        made = [
            [*(cells | {"member": name, "got/s": got}).values()]
            for name, got in (("a", ""), ("b", "9.1 k"), ("c", "800"))
        ]
        monkeypatch.setattr(top_live, "rows", lambda *_: [*made])
        for by, order in (("", "abc"), ("got/s", "bca")):
            text = io.StringIO()
            rich.Console(file=text, width=160).print(top_live.drawn(found, found, "", 0, [], by))
            lines = text.getvalue().splitlines()
            assert "".join(line[0] for line in lines[2:5]) == order and ("▼" in lines[1]) == bool(by), lines


@pytest.mark.parametrize(("width", "by", "all_there"), [(160, "", True), (80, "", False), (80, "silent ms", False)])
def test_a_narrow_screen_has_fewer_columns_and_the_matrix_whole(width, by, all_there):
    rich = pytest.importorskip("rich.console")
    from seqcast.cli.top_live import SPARED, drawn

    with group_of(2) as (a, _):
        wait_until(seen(a, 2))
        found, text = boards(a.cluster), io.StringIO()
        rich.Console(file=text, width=width).print(drawn(found, found, "", 0, [], by, width))
        assert "hears a b" in text.getvalue() and "…" not in text.getvalue(), text.getvalue()
        assert all(name in text.getvalue() for name in SPARED) == all_there
        assert ("silent ms" in text.getvalue()) == (all_there or by == "silent ms")


def test_keys_of_the_live_table_sort_turn_pages_and_end(monkeypatch):
    pytest.importorskip("rich.console")
    from seqcast.cli import top_live

    keys, drawn = iter("sssmsq"), []
    monkeypatch.setattr(top_live, "_keys", lambda: contextlib.nullcontext(lambda _: next(keys)))
    monkeypatch.setattr(top_live, "drawn", lambda *look: drawn.append((look[2], look[5])) or "")
    assert top_live.live("none-such", 9.0) == 0
    assert drawn == [("", ""), ("", "rtt ms"), ("", "lag"), ("", "lag ms"), ("member", "lag ms"), ("", "lag ms")]


@contextlib.contextmanager
def terminal():
    """The other end of a terminal that is this process's input and output."""
    ours, theirs = os.openpty()
    with (
        open(theirs, encoding="utf-8", closefd=False) as keyboard,
        open(theirs, "w", encoding="utf-8") as screen,
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setattr(sys, "stdin", keyboard)
        patched.setattr(sys, "stdout", screen)
        yield ours
    os.close(ours)


def test_keys_of_a_terminal_are_seen_one_by_one_and_those_without_a_letter_are_none():
    """After an arrow, two `q` did not end `top`, and of `seq` only the `s` counted."""
    pytest.importorskip("rich.console")
    from seqcast.cli import top_live

    with terminal() as keyboard, top_live._keys() as pressed:
        for typed, seen in ((b"\x1b[A", ""), (b"q", "q"), (b"s\x1bOB\x1b[1;5Ce\x1b[15~q", "seq"), (b"\x1b", "")):
            os.write(keyboard, typed)
            assert pressed(30.0) == seen
        assert pressed(0.0) == ""


def test_on_a_terminal_top_ends_after_count_and_says_why_it_shows_nothing(monkeypatch, capsys):
    rich = pytest.importorskip("rich.console")
    from seqcast.cli.top_live import drawn

    def interrupted(*_):
        raise KeyboardInterrupt

    name, none = cluster(), "no member of a group runs here"
    with terminal() as seen:
        for term, first in (("xterm", top.CLEAR), ("dumb", "")):
            monkeypatch.setenv("TERM", term)
            assert cli.main(("top", name, "--count", "1", "--every", "0")) == 0
            assert os.read(seen, 4096).decode().startswith(first + none)
        with monkeypatch.context() as patched:
            patched.setattr(top, "page", interrupted)
            assert cli.main(("top", name, "--every", "0")) == 0  # no keys on a dumb terminal
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setitem(sys.modules, "termios", None)
        assert cli.main(("top", name)) == 2 and "give --plain" in capsys.readouterr().err
    page = io.StringIO()
    rich.Console(file=page, width=200).print(drawn([], [], "", 0, []))
    assert page.getvalue().startswith(none)


def test_the_rates_of_json_are_numbers(capsys):
    with group_of(1) as (a,):
        wait_until(seen(a, 1))
        (member,) = json.loads(run(capsys, "probe", a.cluster, "--json")[1])["members"]
        names = ["messages_sent_per_s", "messages_delivered_per_s", "packets_retransmitted_per_s"]
        assert member["rates"] == dict.fromkeys(names, 0.0)


def test_metrics_have_the_format_of_prometheus():
    parser = pytest.importorskip("prometheus_client.parser")
    core = pytest.importorskip("prometheus_client.core")
    with group_of(2, order="fifo") as (a, b):
        for _ in range(20):
            a.send(b"x")
            b.recv(10)
        wait_until(seen(a, 2))
        text = text_of(families(boards(a.cluster)))
        read_back = {family.name: family for family in parser.text_string_to_metric_families(text)}
        sent = {each.labels["member"]: each.value for each in read_back["seqcast_messages_sent"].samples}
        assert sent == {"a": 20.0, "b": 0.0} and read_back["seqcast_messages_sent"].type == "counter"
        assert read_back["seqcast_view_members"].type == "gauge" and read_back["seqcast_dropped"].samples
        hears = [each for each in read_back["seqcast_hears"].samples if each.labels["member"] == "a"]
        assert [(each.labels["peer"], each.value) for each in hears] == [("b", 2.0)]
        collector, registry = Collector(a), core.CollectorRegistry()
        registry.register(collector)
        labels = {"cluster": a.cluster, "member": "a"}
        assert read_back["seqcast_cut_seconds"].type == "histogram"
        assert registry.get_sample_value("seqcast_cut_seconds_bucket", labels | {"le": "+Inf"}) == 1.0
        took = registry.get_sample_value("seqcast_last_cut_seconds", labels)
        assert took == registry.get_sample_value("seqcast_cut_seconds_sum", labels) and 0 < took < 10
        changes = {each.labels["why"]: each.value for each in read_back["seqcast_view_changes"].samples
                   if each.labels["member"] == "a"}  # fmt: skip
        assert changes == {"join": 1, "leave": 0, "loss": 0, "merge": 0, "other": 0}
        assert 0 <= registry.get_sample_value("seqcast_view_age_seconds", labels) < 60
        assert registry.get_sample_value("seqcast_messages_sent_total", {"cluster": a.cluster, "member": "a"}) == 20.0
    assert list(collector.collect()) == []  # the group was left


def test_a_killed_member_and_its_successor_have_each_metric_once(capsys, tmp_path):
    """Prometheus refuses a page with a metric of the same labels twice."""
    name, page = cluster(), tmp_path / "page.prom"
    for _ in range(2):
        other = script(KILLED, name, LOOPBACK)
        other.stdout.readline()
        other.stdin.write("\n")
        other.communicate()
    with join(name, "killed") as successor:
        wait_until(seen(successor, 1))
        assert len(boards(name)) == 3 and run(capsys, "metrics", "--textfile", str(page))[0] == 0
        rows = [line.rpartition(" ")[0] for line in page.read_text("utf-8").splitlines() if f'"{name}"' in line]
        assert len(set(rows)) == len(rows)
        assert f'seqcast_up{{cluster="{name}",member="killed"}} 1' in page.read_text("utf-8")


def test_the_process_tells_its_settings_views_warnings_states_and_journal(capsys, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    name = cluster()
    monkeypatch.setenv("SEQCAST_SUSPECT_S", "45")
    with join(name, "a", journal=tmp_path / "a") as a:
        other = script(KILLED, name, LOOPBACK)
        other.stdout.readline()
        wait_until(lambda: len(a.view) == 2)
        a.send(b"x")
        a.recv(10)
        other.communicate("\n")
        wait_until(lambda: len(a.view) == 1)
        wait_until(seen(a, 1))
        status, out, _ = run(capsys, "probe", name, "--known", "--member", "a", "--json")
        known = json.loads(out)["known"]
        assert status == 0 and known["settings"]["suspect_s"] == 45.0
        assert known["origins"]["suspect_s"] == "SEQCAST_SUSPECT_S" and known["origins"]["journal"] == "call"
        assert "slow" not in known["origins"] and known["settings"]["slow"] == "block"
        views = [(each["change"], each["members"], each["came"], each["gone"]) for each in known["views"]]
        assert views == [("", 1, ["a"], []), ("join", 2, ["killed"], []), ("loss", 1, [], ["killed"])]
        (warning,) = [each["text"] for each in known["warnings"] if "SC3105" in each["text"]]
        assert "killed was excluded" in warning
        assert known["states"]["Lifecycle"] == "IN" and known["states"]["Merger"] and len(known["states"]) > 5
        assert known["journal"]["path"].startswith(str(tmp_path / "a")) and known["journal"]["rows"] == 1
        status, out, _ = run(capsys, "probe", name, "--known", "--member", "a")
        assert status == 0 and "  suspect_s=45.0  (SEQCAST_SUSPECT_S)" in out and "rows 1" in out
        assert re.search(r"  \d\d:\d\d:\d\d  view \d+, 1 member, loss: gone killed; took \d+ ms\n", out), out
    assert run(capsys, "probe", name, "--known", "--ready")[0] == 2


def test_view_changes_are_counted_by_reason():
    name = cluster()
    with join(name, "a") as a:
        with join(name, "b"):
            wait_until(lambda: len(a.view) == 2)
        wait_until(lambda: len(a.view) == 1)

        def counted():
            text = text_of(families([read(a.board)]))
            return {why: int(n) for why, n in re.findall(r'view_changes_total{[^}]*why="(\w+)"} (\d+)', text)}

        wait_until(lambda: counted() == {"join": 1, "leave": 1, "loss": 0, "merge": 0, "other": 0})


def test_names_with_odd_characters_stay_one_label():
    parser = pytest.importorskip("prometheus_client.parser")
    name = cluster() + " = {}, ü"
    with join(name, "a") as a:
        board = read(a.board)
        found = parser.text_string_to_metric_families(text_of(families([board])))
        assert {each.labels["cluster"] for family in found for each in family.samples} == {name}


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_metrics_are_served_and_written(tmp_path, host):
    with group_of(1) as (a,):
        path = tmp_path / "seqcast.prom"
        assert cli.main(["metrics", "--textfile", str(path)]) == 0
        assert f'seqcast_up{{cluster="{a.cluster}",member="a"}} 1' in path.read_text()
        server = script(f"from seqcast.cli import main; main(['metrics', '--listen', '{host}:0'])")
        address = server.stdout.readline().split()[-1]
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert a.cluster in answer.read().decode()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(address.replace("metrics", "other"), timeout=30)
        server.kill()
        server.communicate()
    assert cli.main(["metrics", "--listen", "nowhere"]) == 2
    assert all(cli.main(["metrics", option, ""]) == 2 for option in ("--listen", "--textfile"))


def test_a_collector_follows_a_member_that_joins_again_and_keeps_no_group_alive():
    pytest.importorskip("prometheus_client")
    with group_of(2) as (a, b):
        wait_until(seen(b, 2))
        collector = Collector(a)
        first, a._runner = a._runner, b._runner  # as after a rejoin
        assert {each.labels["member"] for family in collector.collect() for each in family.samples} == {"b"}
        a._runner = first
    reference = weakref.ref(a)
    del a, b, first
    gc.collect()
    assert reference() is None and list(collector.collect()) == []


def test_a_collector_needs_a_board():
    from seqcast.errors import UsageError

    with group_of(1, board=False) as (a,), pytest.raises(UsageError, match="board=True"):
        Collector(a)


@pytest.mark.parametrize("page", ["alerts.yml", "grafana.json"])
def test_alerts_and_dashboard_name_metrics_that_there_are(page):
    text = (ROOT / "docs" / page).read_text()
    named = set(re.findall(r"\bseqcast_\w+", text))
    with group_of(2) as (a, _):
        wait_until(seen(a, 2))
        there = {line.split("{")[0] for line in text_of(families(boards(a.cluster))).splitlines()}
    assert len(named) > 5 and named <= there
    if page.endswith("json"):
        assert json.loads(text)["panels"]


def test_a_member_here_that_does_not_answer_is_told_by_its_board():
    """`probe --all` said that the network may be the reason, when the board said that Python does not run."""
    with group_of(2) as (a, b):
        wait_until(seen(a, 2))
        board, silent = read(a.board), read(b.board)
        seen_now = seen_all.ask(board) | {b.member.id: seen_all.Seen(0, None)}
    later = dataclasses.replace(silent, read_ns=silent.read_ns + 20 * 10**9)
    slow = dataclasses.replace(silent, gauges={**silent.gauges, "awaited_since": 1})
    for here, found in (([], "SC2215"), ([later], "SC2207"), ([silent], "SC2215"), ([slow], "SC2205 SC2215")):
        assert [each.code.number for each in seen_all.findings(board, seen_now, 1.0, here)] == found.split()


def alerts_of(board):
    """The alerts on a board's metrics, of those without a rate."""
    values = {family.name: family.samples[0].value for family in families([board]) if family.samples}
    names = re.findall(r"alert: (\w+)\n\s+expr: (.*)", (ROOT / "docs" / "alerts.yml").read_text())
    found = []
    for name, expression in names:
        parts = [re.fullmatch(r"(\w+) ([<>=]+) ([\d.]+)", part) for part in expression.split(" and ")]
        if all(part and COMPARED[part[2]](values.get(part[1], math.nan), float(part[3])) for part in parts):
            found.append(name)
    return found


COMPARED = {"<": operator.lt, ">": operator.gt, "==": operator.eq}


def test_alerts_tell_a_process_that_is_stopped_from_one_whose_python_hangs():
    with group_of(1) as (a,):
        wait_until(seen(a, 1))
        board = read(a.board)
    later = dataclasses.replace(board, read_ns=board.read_ns + 20 * 10**9)
    assert alerts_of(board) == []
    assert alerts_of(later) == ["SeqcastMemberStopped"]
    gauges = board.gauges | {"posted": later.read_ns}
    assert alerts_of(dataclasses.replace(later, gauges=gauges)) == ["SeqcastPythonHangs"]


def test_a_slow_view_change_is_an_alert_for_ten_minutes():
    with group_of(1) as (a,):
        wait_until(seen(a, 1))
        board = read(a.board)
    view = board.about["view"] | {"since": board.read_ns + board.about["clock"] - 599 * 10**9}
    slow = board.about | {"cuts": board.about["cuts"] | {"last_ns": 3 * 10**9}, "view": view}
    assert alerts_of(dataclasses.replace(board, about=slow)) == ["SeqcastSlowViewChanges"]
    view["since"] -= 2 * 10**9
    assert alerts_of(dataclasses.replace(board, about=slow)) == []


@pytest.mark.parametrize(("transport", "alert"), [("auto", []), ("multicast", ["SeqcastUnicastOnly"]), ("unicast", [])])
def test_a_member_that_is_heard_by_unicast_only_is_an_alert_where_multicast_is_required(transport, alert):
    with group_of(2) as (a, _):
        wait_until(seen(a, 2))
        board = read(a.board)
    rank = board.gauges["rank"]
    deaf = [row | {"unheard_0": 1 << (1 - rank)} if each == rank else row for each, row in enumerate(board.members)]
    board = dataclasses.replace(board, about=board.about | {"transport": transport}, members=tuple(deaf))
    assert alerts_of(board) == alert


def test_an_archive_has_all_that_a_report_needs_and_its_events_in_one_order(capsys, tmp_path):
    archive = tmp_path / "out.tar.gz"
    with group_of(2) as (a, b), join(a.cluster, "c", board=False) as c:
        wait_until(lambda: len(c.view) == 3)
        wait_until(seen(a, 3))
        wait_until(seen(b, 3))
        b.board.unlink()  # as if b were on another machine
        status, out, _ = run(capsys, "debug", a.cluster, str(archive))
        assert status == 0 and "2 boards, 1 of them of other machines" in out
        assert out.splitlines()[1:] == ["c has not answered a, or has no board: run this on its machine, too"]
        status, _, err = run(capsys, "debug", a.cluster, str(archive))
        assert status == 2 and "File exists" in err
    with tarfile.open(archive) as made:
        parts = {f"boards/{i}.{end}" for i in "01" for end in ("json", "board")}
        assert {entry.name for entry in made} == parts | {"doctor.json", "versions.json"}
        said = json.loads(made.extractfile("boards/1.json").read())
        here = json.loads(made.extractfile("boards/0.json").read())
        settings = here["settings"]
    assert here["changed"] == ["interface", "join_timeout_s"] and "slow" not in said["changed"]
    assert [each["change"] for each in here["process"]["views"]] == ["", "join", "join"]
    assert said["about"]["name"] == "b" and said["findings"] == [] and said["settings"].keys() == settings.keys()
    assert settings["slow"] == "block" and settings["interface"] == said["settings"]["interface"] == LOOPBACK
    status, out, err = run(capsys, "timeline", str(archive))
    assert status == 0 and not err
    told = [line.split("  ", 1)[1] for line in out.splitlines() if "view 2 [a, b]" in line]
    assert sorted(line.split(": ")[0].split()[-1] for line in told) == ["a", "b"]
    assert out.splitlines()[0].split("  ")[1].startswith("view 1")
    assert run(capsys, "debug", "no-such-group", str(archive))[0] == 1


def test_an_archive_is_whole_or_absent_and_no_member_that_hangs_is_asked(capsys, tmp_path, monkeypatch):
    archive = tmp_path / "out.tar.gz"
    with group_of(1) as (a,):
        wait_until(seen(a, 1))
        with monkeypatch.context() as wrong:
            wrong.setenv("SEQCAST_PORT", "abc")
            status, _, err = run(capsys, "debug", a.cluster, str(archive))
            assert status == 2 and "SEQCAST_PORT" in err and not list(tmp_path.iterdir())
        with monkeypatch.context() as full:
            full.setattr(debug, "read_file", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
            status, _, err = run(capsys, "debug", a.cluster, str(archive))
            assert status == 2 and err.endswith(f"cannot write {archive}: no space\n") and not list(tmp_path.iterdir())
        asked = []
        monkeypatch.setattr(judge, "_running", lambda _: False)
        monkeypatch.setattr(seen_all, "_answer", lambda *question: asked.append(question))
        status, out, _ = run(capsys, "debug", a.cluster, str(archive))
        hangs = f"a (process {os.getpid()}) has not run for "
        assert status == 0 and f"\nno other member was asked: {hangs}" in out and not asked
    assert list(tmp_path.iterdir()) == [archive]
    with tarfile.open(archive) as made:
        assert json.loads(made.extractfile("boards/0.json").read())["process"].startswith(hangs)


def test_views_order_events_and_clocks_those_of_one_view():
    with group_of(1) as (a,):
        wait_until(lambda: read(a.board).events)
        made = read(a.board)

    def of(name, clock, *texts, first=1, view=0):
        events = tuple(Event(i, i, 0, text) for i, text in enumerate(texts, first))
        about = {"name": name, "id": ord(name), "clock": clock, "view": {**made.about["view"], "counter": view}}
        return dataclasses.replace(made, about=made.about | about, events=events)

    def told(*found):
        return [(each.view, each.member, each.text.split()[0]) for each in in_order(found)]

    one = of("a", 1000, "joined: view 1 [a]", "x", "view 2 [a, b]: b joined", "y")
    late = of("b", 0, "joined: view 2 [a, b]", "z")  # its clock is behind
    expected = [
        (1, "a", "joined:"), (1, "a", "x"), (2, "b", "joined:"), (2, "b", "z"), (2, "a", "view"), (2, "a", "y"),
    ]  # fmt: skip
    assert told(one, late) == expected
    assert told(one, late, late, one) == expected  # archives of two hosts
    # Rings that have lost their first events, with a view line and without, and an earlier copy that has some of those.
    short = of("c", 0, "v", "view 2 [b, c]: a left", first=500)
    assert told(short) == [(1, "c", "v"), (2, "c", "view")]
    none = of("b", 0, "z", "w", first=500, view=2)
    assert told(one, none)[:3] == [(1, "a", "joined:"), (1, "a", "x"), (2, "b", "z")]
    assert told(none, of("b", 0, "joined: view 1 [b]", "x", first=498)) == [
        (1, "b", "joined:"), (1, "b", "x"), (1, "b", "z"), (1, "b", "w"),
    ]  # fmt: skip


def test_boards_of_other_releases_in_an_archive_are_named(capsys, tmp_path):
    archive = tmp_path / "out.tar.gz"
    with tarfile.open(archive, "w:gz") as made:
        for number, size in enumerate((64, BYTES, 2 * BYTES)):
            entry = tarfile.TarInfo(f"boards/{number}.board")
            entry.size = size
            made.addfile(entry, io.BytesIO(struct.pack("=8sI", MAGIC, VERSION + 1).ljust(size, b"\0")))
    status, _, err = run(capsys, "timeline", str(archive))
    told = [line for line in err.splitlines() if "a board of layout 2, and this release reads 1" in line]
    assert status == 1 and [line.split(": ")[1].split()[-1] for line in told] == [f"boards/{i}.board" for i in range(3)]


def test_a_damaged_archive_is_one_line(capsys, tmp_path):
    path = tmp_path / "out.tar.gz"
    path.write_bytes(gzip.compress(b"no archive" * 1000)[:60])
    status, _, err = run(capsys, "timeline", str(path))
    assert status == 2 and err.count("\n") == 1 and "cannot be read as an archive" in err


IN_GROUP = """
import sys, seqcast
settings = {"interface": "eth0", "discovery_s": 1.0, "order": "fifo", "transport": "multicast"}
group = seqcast.join(sys.argv[1], name=sys.argv[2], **settings)
print(group.board, flush=True)
sys.stdin.readline()
group.leave()
"""


@pytest.mark.netns
def test_probe_shows_a_link_that_carries_no_multicast(network, capsys):
    """Heartbeats tell all members of that, so the board of any one shows it."""
    name = cluster()
    members, paths = [], []
    for who, place in zip("abc", network, strict=False):
        members.append(script(IN_GROUP, name, who, prefix=place.prefix))
        paths.append(Path(members[-1].stdout.readline().strip()))
    wait_until(lambda: all(len(read(path).members) == 3 for path in paths))
    wait_until(lambda: all(row["present"] for path in paths for row in read(path).members))
    assert run(capsys, "probe", name)[0] == 0
    b = network[1]
    b.run(
        "nft",
        "add table inet sick; add chain inet sick in { type filter hook input priority 0; }; "
        "add rule inet sick in ip saddr 10.99.0.3 ip daddr 224.0.0.0/4 drop",
    )
    told = []

    def cut():
        told[:] = run(capsys, "probe", name, "--member", "a")[:2]
        return told[0] == 1

    wait_until(cut)
    assert "SC2210  b hears c by unicast only" in told[1]
    row = next(line for line in told[1].splitlines() if line.startswith("b "))
    assert row.split()[2:5] == ["m", "-", "u"]
    for member in members:
        member.communicate("\n", timeout=60)
