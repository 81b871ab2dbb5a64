"""`seqcast probe --all`: one member asks the others, and a process of the same user gets their boards."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hostile.forge import CONTROL, Forger
from members import LOOPBACK, cluster, group_of, join, script, wait_until

from seqcast.board.place import BYTES, socket_of
from seqcast.board.read import BoardError, read
from seqcast.board.told import cut, heard, joined, said
from seqcast.cli import seen_all
from seqcast.core.frames.asking import PAGES_MAX, SEES_BYTES_MAX, Ask
from seqcast.core.frames.kinds import dump
from seqcast.core.vocabulary import MemberTold
from seqcast.net.opening import group_tag
from seqcast.net.questions import Questions, _trusted


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    """A directory for boards of this test alone, in memory."""
    folder = Path("/dev/shm") / f"seqcast-test-{os.getpid()}-{random.randrange(10**9)}"
    folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder / "seqcast"
    shutil.rmtree(folder)


def probe(*arguments):
    command = [sys.executable, "-m", "seqcast", "probe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


WAY = "u" if os.environ.get("SEQCAST_TRANSPORT") == "unicast" else "m"


def settled(groups):
    """Waits until the board of each shows a view with all others, heard by the way that they use."""

    def shows(group):
        told = heard(said(read(group.board)))
        return told.status == "member" and len(told.peers) == told.hears.count(WAY) == len(groups) - 1

    wait_until(lambda: all(map(shows, groups)))


def test_each_member_sends_its_board():
    with group_of(3) as groups:
        a, _, c = groups
        for _ in range(20):
            c.send(b"x" * 100)
        wait_until(lambda: all(marks.rtt_s for each, marks in a.digest().items() if each != a.member))
        settled(groups)
        seen = seen_all.ask(read(a.board))
        assert set(seen) == {group.member.id for group in groups}
        for group in groups:
            told = seen[group.member.id].told
            assert told is not None and told.status == "member" and set(told.peers) | {group.member.id} == set(seen)
            assert told.counters["messages_sent"] == (20 if group is c else 0)
            assert sorted(told.hears) == ["-", WAY, WAY] and told.held_by == 0
        assert not seen_all.findings(read(a.board), seen, 1.0)


@pytest.mark.long
def test_the_command_prints_the_matrix_and_rates_and_names_who_does_not_answer():
    name = cluster()
    stopped = script(
        "import seqcast, sys, time\n"
        "with seqcast.join(sys.argv[1], name='stopped', interface=sys.argv[2], suspect_s=60.0) as group:\n"
        "    print(1, flush=True)\n    time.sleep(99)",
        name, LOOPBACK,
    )  # fmt: skip
    stopped.stdout.readline()
    with join(name, "a", suspect_s=60.0) as a, join(name, "b", board=False, suspect_s=60.0) as b:
        wait_until(lambda: len(a.view) == len(b.view) == 3)
        wait_until(lambda: all(marks.rtt_s for each, marks in a.digest().items() if each != a.member))
        stopped.send_signal(signal.SIGSTOP)
        shown = probe(name, "--all", "--member", "a")
        value = json.loads(probe(name, "--all", "--member", "a", "--json").stdout)
        stopped.kill()
        names = [each["name"] for each in value["members"]]
    lines = shown.stdout.splitlines()
    assert shown.returncode == 1 and "all asked" in lines[0], shown.stderr
    assert [line.split()[0] for line in lines[1:5]] == ["member", *names]
    (row,) = (line for line in lines if line.startswith("a "))
    assert row.split()[2:5].count(WAY) == 2 and lines[1].split("rtt ms")[1].split()[:4] == ["path", "lag", "lag", "ms"]
    assert re.search(r"  \d+\.\d\d( to \d+\.\d\d)?  ", row), row
    assert "stopped has not answered a, which heard it" in shown.stdout and shown.stdout.count("SC2215") == 2
    assert "b has no board to show" in shown.stdout
    assert {each["name"]: each["told"] is None for each in value["members"]} == {"a": False, "b": True, "stopped": True}


def test_only_this_user_may_ask_and_the_socket_goes_with_the_member(runtime):
    with group_of(1) as (a,):
        path = socket_of(a.board)
        wait_until(path.exists)
        seen = path.stat()
        assert stat.S_ISSOCK(seen.st_mode) and stat.S_IMODE(seen.st_mode) == 0o600 and seen.st_uid == os.geteuid()
        assert len(str(path.name)) < 60
    assert not path.exists() and not list(runtime.iterdir())


def test_a_process_that_reads_nothing_and_one_that_hangs_up_delay_the_next_one_a_little():
    with group_of(2) as (a, b):
        path = socket_of(a.board)
        held = []
        for _ in range(2):
            each = socket.socket(socket.AF_UNIX)
            each.connect(str(path))
            held.append(each)
        held.pop().close()
        began = time.monotonic()
        assert seen_all.ask(read(a.board))[b.member.id].told is not None
        assert time.monotonic() - began < 5
        for each in held:
            each.close()


def test_a_stranger_a_former_member_and_one_of_another_view_get_silence():
    few = {"port_range": 1}  # without multicast beacons would go to other ports
    with group_of(2, **few) as (a, b), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.settimeout(1.0)
        host, _, port = a.path["address"].rpartition(":")
        forger, tag = Forger(group_tag(a.cluster)), a.view.view_id.tag
        before = a.counters()["control_frames_sent"]
        for sender, view in [(77, tag), (77, 0), (b.member.id, tag ^ 1), (b.member.id, 0)]:
            for number in range(20):
                ask = forger.datagram(CONTROL, sender, view, dump(Ask(view or 1, number, number % 2)))
                stranger.sendto(ask, (host, int(port)))
        with pytest.raises(TimeoutError):
            stranger.recvfrom(65536)
        assert a.counters()["control_frames_sent"] - before < 5, "beacons"
        forged = forger.datagram(CONTROL, b.member.id, tag, dump(Ask(tag, 1, 0)))
        stranger.sendto(forged, (host, int(port)))  # the answer goes to b, if to anybody
        with pytest.raises(TimeoutError):
            stranger.recvfrom(65536)


def test_a_members_frames_are_checked():
    with group_of(2) as groups:
        settled(groups)
        a = groups[0]
        text = said(read(a.board))
        assert text.isprintable() and heard(text).status == "member"
        value = json.loads(text)
        board = read(a.board)
        board.members[1].update(path_bytes=1422, lag_ns=5)
        (peer,) = heard(said(board)).peers.values()
        assert (peer.path, peer.late) == (1422, 5)
        for name in value:
            for wrong in (None, -1, [1], {"x": 1}, "\x1b[2J", 1 << 70, True):
                with pytest.raises(BoardError):
                    heard(json.dumps({**value, name: wrong if type(wrong) is not type(value[name]) else None}))
        for wrong in ("", "[]", "[" * 100_000, "nan", '{"peers": [7]}', '{"counters": []}', '{"peers": [[1, "x"]]}'):
            with pytest.raises(BoardError):
                heard(wrong)


def test_fields_that_another_release_lacks_are_shown_as_unknown_and_more_ones_are_left_out():
    with group_of(3) as groups:
        settled(groups)
        a, b, _ = groups
        board = read(a.board)
        whole = json.loads(said(board))
        more = {**whole, "new": {"x": 1}, "peers": [[*row, 1, "new"] for row in whole["peers"]]}
        assert heard(json.dumps(more)) == heard(json.dumps(whole))
        for name in whole:
            heard(json.dumps({other: value for other, value in whole.items() if other != name}))
        few = {"at": whole["at"], "peers": [row[:2] for row in whole["peers"]]}
        told = {each["id"]: seen_all.Seen(0, heard(json.dumps(few))) for each in board.about["view"]["members"]}
        assert seen_all.findings(board, told, 1.0) == []
        later = heard(json.dumps({**few, "at": few["at"] + 10**9}))
        lines = seen_all.table(board, {each: seen_all.Seen(0, later) for each in told}, told, [])
        assert len(lines) == 5
        for line in lines[2:]:  # hears, path, lag, its ms, untaken, three rates, and the state; the round trip is known
            assert line.split().count("unknown") == 9, line
        parts = seen_all.sketch(board, told, [])["members"][0]["told"]
        assert parts["held_by"] is None and parts["peers"][b.member.id]["lag"] is None and parts["counters"] == {}


def test_a_table_names_the_least_path_and_whose_packets_come_late():
    with group_of(3) as groups:
        settled(groups)
        a, b, c = (group.member.id for group in groups)
        board, name = read(groups[0].board), dict(zip("abc", (group.member.id for group in groups), strict=True))

        def told(**peers):
            rows = [[name[of], *numbers] for of, numbers in peers.items()]
            return seen_all.Seen(0, heard(json.dumps({**json.loads(said(board)), "peers": rows})))

        ms = 10**6
        seen = {
            a: told(b=(ms, 0, 0, 0, 1472, 0), c=(2 * ms, 7, 9, 0, 1422, 41 * ms)),
            b: told(a=(ms, 0, 0, 0, 1472, 0), c=(0, 3, 3, 0, 0, 60 * ms)),
            c: seen_all.Seen(0, None),
        }
        rows = {line[0]: re.split("  +", line) for line in seen_all.table(board, seen, {}, [])[2:]}
        assert [row[3:8] for row in (rows["a"], rows["b"])] == [
            ["1.00 to 2.00", "1422 to 1472", "0", "0", "0"],
            ["1.00", "1472", "0", "0", "0"],
        ]
        assert rows["c"][3:6] == ["7 of a", "60 of b", "9 of a"]


@pytest.mark.parametrize("question", [b"{}\n", b"[]\n", b'{"page": 17}\n', b'{"page": true}\n', b"x" * 200, b"\xff\n"])
def test_a_question_that_is_none_has_no_answer(question):
    asks, posting = [], SimpleNamespace(path=None)
    ours, theirs = socket.socketpair()
    served = Questions(1, posting, lambda *asked: asks.append(asked))
    ours.setblocking(False)
    served._client, served._question, served._until = ours, b"", 10**9
    theirs.sendall(question)
    served.look(0, set, dict)
    theirs.settimeout(5)
    with contextlib.suppress(ConnectionResetError):  # the other side did not read all
        assert theirs.recv(1) == b""
    assert not asks
    theirs.close()


def test_a_process_that_is_asked_for_its_own_knowledge_asks_nobody():
    asks, posting = [], SimpleNamespace(path=None)
    ours, theirs = socket.socketpair()
    served = Questions(1, posting, lambda *asked: asks.append(asked))
    ours.setblocking(False)
    served._client, served._question, served._until = ours, b"", 10**9
    theirs.sendall(b'{"page": -1}\n')
    served.look(0, lambda: {2}, lambda: {"settings": {}})
    theirs.settimeout(5)
    assert json.loads(theirs.makefile().readline()) == {"known": {"settings": {}}} and not asks
    theirs.close()


def test_a_question_about_this_member_alone_forgets_no_answer_of_the_others():
    """A member that is silent now is shown with its last answer, and its age."""
    posting = SimpleNamespace(path=None, sees=lambda page: [1, "this one"])
    served, now = Questions(1, posting, lambda *asked: None), 0

    def asked(page: int) -> dict[str, Any]:
        nonlocal now
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.settimeout(5)
        served._client, served._question, served._until = ours, b"", now + 10**9
        theirs.sendall(json.dumps({"page": page}).encode() + b"\n")
        served.look(now, lambda: {2}, dict)
        if page == 0 and not now:
            served.told(MemberTold(2, served._request, 1, "the other one"), now)
        now += 60 * 10**9
        served.look(now, lambda: {2}, dict)
        with theirs, theirs.makefile() as said:
            answer: dict[str, Any] = json.loads(said.readline())
        served._hang_up()
        return answer

    assert "2" in asked(0)["told"]
    assert "known" in asked(-1)
    assert asked(0)["told"]["2"][2] == "the other one"


def test_an_answer_to_the_question_before_is_not_shown():
    served = Questions(1, SimpleNamespace(path=None, sees=lambda page: [1, "this one"]), lambda *asked: None)
    served._request = 2
    served.told(MemberTold(2, 1, 1, "late"), 0)
    assert not served._told
    served.told(MemberTold(2, 2, 1, "in time"), 0)
    assert served._told == {2: (0, 1, "in time")}


def test_a_whole_board_goes_in_pages_and_others_are_refused():
    known, board = {"settings": {"slow": "block"}}, random.Random(1).randbytes(BYTES)
    pages = cut(known, board)
    assert 5 < len(pages) <= PAGES_MAX and all(2 * len(page) <= SEES_BYTES_MAX for page in pages)
    assert joined(pages) == (known, board)
    bomb = base64.b64encode(zlib.compress(bytes(1 << 24))).decode()
    for wrong in (pages[:-1], pages[1:], [*pages[:2], *pages], [], ["-"], [bomb]):
        with pytest.raises(BoardError):
            joined(wrong)


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="the system does not say who asks")
@pytest.mark.parametrize(("uid", "trusted"), [(os.geteuid(), True), (0, True), (os.geteuid() + 1, False)])
def test_the_local_socket_trusts_its_user_and_root_alone(uid, trusted):
    client = SimpleNamespace(getsockopt=lambda *_: struct.pack("3i", 1, uid, uid))
    assert _trusted(client) == trusted
