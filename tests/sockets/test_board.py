"""Boards, in which members show their state in shared memory, read while a member runs, hangs, and after its death."""

import gzip
import json
import os
import random
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from engines import Net, make_engine
from members import LOOPBACK, cluster, group_of, join, script, wait_until
from project import ROOT

from seqcast.board import place
from seqcast.board.judge import readiness, strays, troubles, way
from seqcast.board.read import CHANGES, Board, BoardError, boards, net_namespace, read
from seqcast.cli.seen import table
from seqcast.metrics import families
from seqcast.net import posting


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    """A directory for boards of this test alone, in memory."""
    folder = Path("/dev/shm") / f"seqcast-test-{os.getpid()}-{random.randrange(10**9)}"
    folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder / "seqcast"
    import shutil

    shutil.rmtree(folder)


def board_of(group) -> Board:
    return read(group.board)


@pytest.mark.multicast
def test_a_board_shows_a_member_its_view_and_its_counters():
    with group_of(2) as (a, b):
        for _ in range(50):
            a.send(b"x" * 100)
        for _ in range(50):
            b.recv(10)
        wait_until(lambda: [row["present"] for row in board_of(a).members] == [1, 1])
        board = board_of(a)
        assert board.counters["messages_sent"] == a.counters()["messages_sent"] == 50
        assert board.counters["io_sends"] > 0 and board.counters["control_frames_sent"] > 0
        assert board.cluster == a.cluster and board.name == "a" and board.alive
        assert [board.name_of(row["id"]) for row in board.members] == [each.name for each in a.view]
        assert way(board, 0, 1) == way(board, 1, 0) == "m"
        wait_until(lambda: board_of(a).members[1]["consumed"] == board_of(a).gauges["last"])
        wait_until(lambda: 0 < board_of(a).members[1]["rtt_min"] <= board_of(a).members[1]["rtt"] < 10**9)
        assert 0 < a.digest()[b.member].rtt_s < 1 and a.digest()[a.member].rtt_s == 0
        assert any(family.name == "seqcast_rtt_seconds" for family in families([board_of(a)]))
        assert readiness(boards(a.cluster), 2, 1.0) == "" and troubles(board, 1.0) == []
        assert "has 2 of 3 members" in readiness(boards(a.cluster), 3, 1.0)
        assert any("joined" in event.text for event in board.events)


@pytest.mark.multicast  # by unicast the ranges of ports overlap
def test_groups_of_one_name_on_two_ports_are_two_groups():
    name = cluster()
    with join(name, "a") as a, join(name, "b", port=a.config.port + 20):
        wait_until(lambda: [len(each.about["view"]["members"]) for each in boards(name)] == [1, 1])
        assert [strays(each, boards(name), 0.0) for each in boards(name)] == [[], []]
        assert {each.about["net"] for each in boards(name)} == {net_namespace()}


def test_every_counter_is_on_the_board():
    with group_of(1) as (a,):
        wait_until(lambda: set(board_of(a).counters) >= set(a.counters()) - {"io_flushes_left", "io_flushes_handed"})


def test_a_board_is_its_users_alone_and_removed_when_the_member_leaves(runtime):
    with group_of(1) as (a,):
        assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
        assert stat.S_IMODE(a.board.stat().st_mode) == 0o600 and a.board.parent == runtime
    assert list(runtime.iterdir()) == [] and a.board is not None


def test_without_a_place_there_is_no_board_and_one_line_says_why(runtime, caplog, monkeypatch):
    runtime.mkdir(mode=0o755)
    monkeypatch.setattr(place, "_SHARED_MEMORY", runtime / "nowhere")
    with caplog.at_level("INFO", "seqcast"), group_of(1) as (a,):
        assert a.board is None and a.counters()["datagrams_sent"] > 0
    assert len([r for r in caplog.records if "no board" in r.getMessage()]) == 1


@pytest.mark.long
def test_the_bench_of_boards_compares_runs_with_and_without(runtime, monkeypatch, capsys):
    """bench/board_bench.py, its JSON, and each pair's ratio, which the order of the two runs does not turn round."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import board_bench

    made, run = [], board_bench.group_throughput

    def counted(path, load, cluster):
        made.append((load.settings["board"], load.size))
        if len(made) <= 4:  # unchanged
            return run(path, load, cluster)
        return {"delivered_msgs_per_s": 990.0 if load.settings["board"] else 1000.0}

    monkeypatch.setattr(board_bench, "group_throughput", counted)
    monkeypatch.setattr("sys.argv", "board_bench.py --pairs 1 --seconds 0.05 --members 2 --sizes 64".split())
    assert board_bench.main() == 0
    (row,) = json.loads(capsys.readouterr().out)["board"]
    assert made == [(True, 64), *[(False, 64)] * 3] and row["msgs_per_s"] > 0 and row["without_msgs_per_s"] > 0
    monkeypatch.setattr("sys.argv", "board_bench.py --pairs 4 --members 2 --sizes 8192".split())
    assert board_bench.main() == 0
    (row,) = json.loads(capsys.readouterr().out)["board"]
    assert [board for board, _ in made[4:]] == [True, False, False, False, False, True, False, False] * 2
    assert (row["same_ratio"], row["same_quartiles"]) == (1.0, [1.0, 1.0])
    assert (row["ratio"], row["quartiles"], row["msgs_per_s"]) == (0.99, [0.99, 0.99], 990)
    monkeypatch.setattr(place, "_SHARED_MEMORY", runtime / "nowhere")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    assert board_bench.main() == 2 and "nothing to compare" in capsys.readouterr().err


def test_board_false_makes_none(runtime):
    with group_of(1, board=False) as (a,):
        assert a.board is None and not runtime.exists()


HANG = """
import ctypes, sys, threading, time, seqcast
group = seqcast.join(sys.argv[1], name="hangs", interface=sys.argv[2])
print(group.board, flush=True)
sys.stdin.readline()
ctypes.PyDLL(None).sleep(60)  # keeps the GIL
"""


@pytest.mark.long
def test_the_board_of_a_member_whose_python_hangs_and_is_killed_then():
    name = cluster()
    with join(name, "a") as a:
        other = script(HANG, name, LOOPBACK)
        path = Path(other.stdout.readline().strip())
        wait_until(lambda: len(a.view.members) == 2)
        wait_until(lambda: read(path).gauges["members"] == len(read(path).about["view"]["members"]) == 2)
        other.stdin.write("\n")
        other.stdin.flush()
        wait_until(lambda: [each.code.number for each in troubles(read(path), 60.0)] == ["SC2206"])
        before = read(path).counters["heartbeats_sent"]
        wait_until(lambda: read(path).counters["heartbeats_sent"] > before)  # its engine goes on
        other.send_signal(signal.SIGSTOP)
        wait_until(lambda: [each.code.number for each in troubles(read(path), 60.0)] == ["SC2207"])
        other.kill()
        other.wait()
        board = read(path)
        assert not board.alive and [each.code.number for each in troubles(board, 60.0)] == ["SC3005"]
        assert [board.name_of(row["id"]) for row in board.members] == ["a", "hangs"]
        assert any("joined" in event.text for event in board.events)
        wait_until(lambda: board_of(a).about["cuts"]["changes"] == dict.fromkeys(CHANGES, 0) | {"join": 1, "loss": 1})
        assert 0 < sum(board_of(a).about["cuts"]["within"]) <= 2


def test_a_reader_beside_a_writer_sees_no_torn_row():
    """The writer gives every field of a row, and every letter of a text, one value."""
    made = place.make("c", "n", 1)
    member = make_engine()
    member.use_board(made.memory)
    stop = threading.Event()

    def write():
        for i in range(1 << 30):
            if stop.is_set():
                return
            letter = chr(ord("a") + i % 26)
            member.board_note((letter * 200).encode(), 0, i)
            member.board_about(b'{"name":"%s"}' % (letter.encode() * (10 + i % 3000)))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        n = 0
        while n < 50:
            board = read(made.path)
            if board.torn:  # the board was written at each of many tries
                continue
            n += 1
            assert len(set(board.name)) <= 1
            assert all(len(set(event.text)) == 1 for event in board.events)
            numbers = [event.number for event in board.events]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    finally:
        stop.set()
        thread.join()
        made.remove()


ROWS = 64
POSTING = f"""
import mmap, sys
sys.path[:0] = {[str(ROOT / "tests"), str(ROOT / "tests" / "helpers")]}
from engines import SENT, make_engine
with open(sys.argv[1], "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0)
member = make_engine(1, heartbeat_ns=1000, suspect_ns=10**17)
member.use_board(memory)
member.board_about(b"{{}}")
member.install(
    tag=1, ids=[*range(1, {ROWS} + 1)], addresses=[bytes([i]) for i in range({ROWS})], rank=0, mechanism=0,
    sequencer=-1,
    window_bytes=1 << 20, share_bytes=0, room_bytes=0, forward_window_bytes=1 << 20, unicast_window_bytes=1 << 20,
    state_window_bytes=1 << 20, packet_bytes=1472, path_bytes=0, base=[0] * {ROWS}, origin_base=[0] * {ROWS}, cut=None,
    marker=1, now_ns=0, fell=None, apart=None, safe=False,
)
assert member.send(b"x") == SENT and member.transmit(1000)
for i in range(2, 1 << 40):
    member.tick(i * 1000)  # a heartbeat, which writes all rows
    if i % 64 == 0:
        member.transmit(i * 1000)
    if i == 64:
        print("posts", flush=True)
"""


@pytest.mark.long
def test_a_million_rows_of_members_read_beside_a_writer_at_full_rate_are_of_one_moment():
    """The packet that no member has acknowledged is as old in each row."""
    made = place.make("c", "n", 1)
    writer = script(POSTING, str(made.path))
    try:
        assert writer.stdout.readline() == "posts\n", writer.stderr.read()
        rows, ages = 0, set()
        while rows < 10**6:
            board = read(made.path)
            if "members" not in board.torn:
                age = {row["lag_ns"] for row in board.members[1:]}
                assert len(age) == 1 and len(board.members) == ROWS, age
                rows += ROWS
                ages |= age
        assert len(ages) > 1000  # and was not the same all the time
    finally:
        writer.kill()
        writer.communicate()
        made.remove()


def test_a_board_of_the_first_layout_with_a_field_more_and_one_less_is_read(tmp_path):
    """A file that a member of 0.1.0 has left. A change of the layout that this reader cannot follow raises its version,
    and a board of another version is refused by name: a field may mean something else there."""
    data = gzip.decompress((ROOT / "tests" / "sockets" / "board-1.gz").read_bytes())
    (path := tmp_path / "x.board").write_bytes(data)
    board = read(path)
    assert (board.cluster, board.name, board.torn) == ("stored", "a", frozenset())
    assert board.about["view"]["order"] == "total" and board.counters["messages_sent"] == 50
    assert [board.name_of(row["id"]) for row in board.members] == ["a", "b"]
    assert way(board, 0, 1) == "m" and 0 < board.members[1]["rtt_min"] <= board.members[1]["rtt"]
    assert any("joined" in event.text for event in board.events) and board.gauges["members"] == 2
    path.write_bytes(data.replace(b" rtt_min ", b" unheard ").replace(b"messages_sent ", b"messages_SENT "))
    other = read(path)
    assert other.members[1]["rtt_min"] == 0 and other.members[1]["unheard"] == board.members[1]["rtt_min"]
    assert other.members[1]["rtt"] == board.members[1]["rtt"] and other.counters["messages_SENT"] == 50
    assert "stored  view 2  2 members" in table(other, [other], {}, [])[0]


def test_old_boards_of_processes_that_have_ended_are_removed(runtime):
    runtime.mkdir(mode=0o700)
    here, dead = place._pids(), 2**22 + 7  # more than Linux gives out

    def old(pid, namespace, number, seconds):
        path = runtime / f"c.n.{pid}-{namespace}-{number:08x}.board"
        path.touch()
        os.utime(path, (0, time.time() - seconds))
        return path

    ended = [old(dead, here, i, 60 * i) for i in range(40)]
    stale, mine = old(dead, here, 99, 3601), old(os.getpid(), here, 1, 10**6)
    lives_elsewhere, ended_elsewhere = old(dead, 7, 1, 700), old(dead, 7, 2, 3601)
    made = place.make("c", "n", 2)
    assert mine.exists() and made.path.exists() and lives_elsewhere.exists()
    assert not stale.exists() and not ended_elsewhere.exists()
    assert [path.exists() for path in ended] == [True] * 31 + [False] * 9


def test_a_board_without_a_text_is_known_by_the_name_of_its_file(runtime):
    """Its process was killed before, or while, writing its own name there."""
    made = place.make("or.ders", "n.1 ü", 5)
    make_engine().use_board(made.memory)
    (board,) = boards("or.ders")
    assert (board.name, board.about["pid"], board.alive) == ("n.1 ü", os.getpid(), True)
    made.path.rename(made.path.with_name(made.path.name.replace(f".{os.getpid()}-", f".{2**22 + 7}-")))
    (board,) = boards("or.ders")
    text = "the process of n.1 ü (4194311) has ended before it was in a group"
    assert not board.alive and [each.fact for each in troubles(board, 1.0)] == [text]


def test_a_member_that_was_killed_is_shown_for_an_hour(runtime):
    """Until the next join here, which removes old boards, `seqcast_up` was 0, and the alert did not end."""
    made = place.make("c", "n", 5)
    make_engine().use_board(made.memory)
    made.path.rename(ended := made.path.with_name(made.path.name.replace(f".{os.getpid()}-", f".{2**22 + 7}-")))
    for age_s, n in ((place.KEPT_S - 60, 1), (place.KEPT_S + 60, 0)):
        os.utime(ended, (0, time.time() - age_s))
        assert len(boards("c")) == n
    ended.rename(made.path)  # a process that runs, and hangs, touches nothing, and is shown all the same
    assert len(boards("c")) == 1


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="systems that can look at an ended process")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc of Linux")
def test_a_process_for_which_its_parent_has_yet_to_wait_has_ended():
    """As in a container whose first process waits for none: `probe` called the killed member stopped."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert place.runs(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not place.runs(process.pid)
    process.communicate()


def test_of_two_processes_of_one_name_that_ended_the_last_one_is_shown_first(runtime):
    for at in (20, 30, 10):
        made, (member,) = place.make("c", "n", at), Net(1).engines
        member.use_board(made.memory)
        member.board_about(b'{"cluster":"c","name":"n"}')
        member.tick(at * 10**9)
    assert [board.gauges["posted"] // 10**9 for board in boards("c")] == [30, 20, 10]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="directories of Linux")
def test_boards_are_also_sought_in_the_directory_of_a_session_of_this_user(monkeypatch):
    """A command of cron or sudo has another environment than the member."""
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert list(map(str, place.folders())) == ["/dev/shm/seqcast-1234", "/run/user/1234/seqcast"]


def test_a_member_that_has_left_the_view_keeps_its_name_on_the_board():
    with group_of(2) as (a, b):
        member = b.member.id
        b.leave()
        wait_until(lambda: len(board_of(a).about["view"]["members"]) == 1)
        assert board_of(a).name_of(member) == "b"


def test_a_member_touches_its_board(monkeypatch):
    monkeypatch.setattr(posting, "TOUCH_NS", 0)
    with group_of(1) as (a,):
        os.utime(a.board, (0, 0))
        wait_until(lambda: a.board.stat().st_mtime > 1)


def test_damaged_boards_are_refused_or_read_and_never_break_the_reader(tmp_path):
    made = place.make("c", "n", 1)
    member = make_engine()
    member.use_board(made.memory)
    member.board_about(b'{"cluster":"c","name":"n","view":{"members":[{"id":1,"name":"n"}]},"status":{}}')
    member.board_note(b"an event", 1, 5)
    good = bytes(made.memory)
    made.remove()
    path = tmp_path / "x.board"
    endless = bytearray(good)
    struct.pack_into("=IIII", endless, good.index(b"members\0") + 20, 0, 1 << 31, 0, 0)  # rows without a byte
    struct.pack_into("=Q", endless, good.index(b"members\0") + 48, 1 << 31)
    path.write_bytes(endless)
    with pytest.raises(BoardError, match="does not fit"):
        read(path)
    draw = random.Random(1)
    refused = 0
    for _ in range(600):
        bad = bytearray(good)
        for _ in range(draw.randrange(1, 8)):
            at = draw.randrange(700) if draw.random() < 0.7 else draw.randrange(len(bad))
            bad[at] = draw.randrange(256)
        path.write_bytes(bad[: draw.choice([len(bad)] * 9 + [draw.randrange(len(bad))])])
        try:
            board = read(path)
        except BoardError:
            refused += 1
            continue
        troubles(board, 1.0), readiness([board], 2, 1.0)
    assert 50 < refused < 600
