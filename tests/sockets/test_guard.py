"""Guard connections: the conclusions from the end of a TCP connection about a process."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest
from members import LIMIT_S, LOOPBACK, cluster, join, output, payloads, script, wait_until, why_no_multicast
from netns import network, python

import seqcast
from seqcast._native.driver import describe_address
from seqcast.core.machines.guard import GREETING, MAGIC, STRANGERS_MAX
from seqcast.net import opening
from seqcast.net.guard import GuardThread, listen
from seqcast.net.opening import group_tag

if why := why_no_multicast():
    pytest.skip(why, allow_module_level=True)

__all__ = ["network"]

MEMBER = """
import sys, time, seqcast
group = seqcast.join("guarded", name=sys.argv[1], guard=sys.argv[2] == "guarded", suspect_s=float(sys.argv[3]))
while True:
    counters = group.counters()
    told = counters.get("guard_connections", 0), counters.get("guard_gone", 0), counters["ports_refused"]
    print(len(group.view.members), *told, flush=True)
    time.sleep(0.01)
"""


def port_of(group):
    return int(describe_address(group.member.address).rpartition(":")[2])


def call(group):
    """A connection to a member, whose end keeps nobody from listening on the number of its port."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.connect(("127.0.0.1", port_of(group)))
    return sock


def linked(*groups):
    return all(group.counters()["guard_connections"] >= len(groups) - 1 for group in groups)


@pytest.mark.long
@pytest.mark.netns
@pytest.mark.parametrize(("how", "suspect_s"), [("guarded", 600.0), ("bare", 1.0)])
def test_a_killed_process_is_known_even_if_icmp_is_dropped(network, how, suspect_s):
    """NBC-16: by its guard connections; without them, which would prove nothing else, by its silence alone."""
    for place in network[:3]:
        place.run(
            "nft",
            "add table inet quiet; add chain inet quiet input { type filter hook input priority 0; }; "
            "add rule inet quiet input ip protocol icmp drop",
        )
    with contextlib.ExitStack() as stack:
        arguments = how, str(suspect_s)
        processes = [
            python(place, "-c", MEMBER, name, *arguments) for place, name in zip(network[:3], "abc", strict=True)
        ]
        for process in processes:
            stack.callback(process.communicate)
            stack.callback(process.kill)

        def until(process, members, connections):
            end = time.monotonic() + LIMIT_S
            while time.monotonic() < end:
                told = [int(each) for each in process.stdout.readline().split()]
                if told and told[0] == members and told[1] >= connections:
                    return told[2:]
            raise AssertionError(f"not {members} members with {connections} connections; said last: {told}")

        guarded = how == "guarded"
        for process in processes:
            until(process, 3, 2 * guarded)
        processes[0].kill()
        seen = [until(process, 2, guarded) for process in processes[1:]]
        if guarded:
            assert 1 in [gone for gone, _ in seen]
        else:
            assert seen == [[0, 0], [0, 0]]


def test_a_member_that_leaves_or_is_stopped_is_not_gone():
    name = cluster()
    text = """
import sys, time, seqcast
group = seqcast.join(sys.argv[1], name="c", interface=sys.argv[2], guard=True, suspect_s=600.0)
time.sleep(600)
"""
    with join(name, "a", guard=True, suspect_s=600.0) as a, join(name, "b", guard=True, suspect_s=600.0) as b:
        with join(name, "d", guard=True, suspect_s=600.0) as d:
            wait_until(lambda: len(a.view.members) == 3 and linked(a, b, d))
        wait_until(lambda: len(a.view.members) == len(b.view.members) == 2)
        assert a.counters()["control_members_lost"] == b.counters()["control_members_lost"] == 0
        process = script(text, name, LOOPBACK, stdin=subprocess.DEVNULL)
        try:
            wait_until(lambda: len(a.view.members) == len(b.view.members) == 3)
            wait_until(lambda: all(group.counters()["guard_connections"] >= 2 for group in (a, b)))
            gone = [group.counters()["guard_gone"] for group in (a, b)]  # d, if its port closed before the VIEW came
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.5)  # in which nothing must happen
            assert len(a.view.members) == len(b.view.members) == 3
            assert [group.counters()["guard_gone"] for group in (a, b)] == gone
            assert a.counters()["control_members_lost"] == b.counters()["control_members_lost"] == 0
        finally:
            process.kill()
            process.communicate()


def test_a_connection_that_breaks_says_nothing_of_a_member_that_takes_calls():
    name = cluster()
    with join(name, "a", guard=True) as a, join(name, "b", guard=True) as b:
        wait_until(lambda: linked(a, b))
        guards = [group._runner.guard for group in (a, b)]
        broken = [sock for guard in guards for sock in list(guard._lines.values())]
        for sock in broken:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: not any(sock in broken for guard in guards for sock in list(guard._lines.values())))
        wait_until(lambda: linked(a, b))
        assert len(a.view.members) == len(b.view.members) == 2
        assert a.counters()["guard_gone"] == b.counters()["guard_gone"] == 0


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 16, b"x", b"", GREETING.pack(MAGIC, 1, 7), b"a member's"]
)
def test_a_stranger_is_closed_or_ignored_and_harms_nobody(said):
    name = cluster()
    with join(name, "a", guard=True) as a, join(name, "b", guard=True) as b:
        wait_until(lambda: linked(a, b))
        if said == b"a member's":  # the caller poses as b, and goes
            said = GREETING.pack(MAGIC, group_tag(name), b.member.id)
        for _ in range(STRANGERS_MAX + 10):
            with call(a) as stranger:
                with contextlib.suppress(OSError):
                    stranger.sendall(said)
        time.sleep(0.2)
        wait_until(lambda: a.counters()["guard_connections"] <= STRANGERS_MAX + 4)
        assert len(a.view.members) == 2 and a.counters()["guard_gone"] == 0
        b.send(b"still here")
        assert payloads(a, 1) == [b"still here"]


def test_open_strangers_are_bounded():
    name = cluster()
    with join(name, "a", guard=True) as a, contextlib.ExitStack() as stack:
        for _ in range(STRANGERS_MAX + 20):
            stack.enter_context(call(a))
        wait_until(lambda: a.counters()["guard_strangers"] >= 20)
        assert a.counters()["guard_connections"] <= STRANGERS_MAX


@pytest.mark.long
def test_a_process_without_descriptors_neither_spins_on_a_call_nor_takes_its_interface_for_gone():
    text = """
import socket, sys, time, seqcast
from seqcast.net.guard import GuardThread

calls = 0
accept = GuardThread._accept

def counted(guard):
    global calls
    calls += 1
    accept(guard)

GuardThread._accept = counted
group = seqcast.join(sys.argv[1], name="a", interface=sys.argv[2], guard=True)
caller, files = socket.socket(), []
try:
    while True:
        files.append(open("/dev/null"))
except OSError:
    pass
caller.connect(("127.0.0.1", int(group.path["address"].rpartition(":")[2])))
while calls == 0:
    time.sleep(0.01)
time.sleep(1)
print(calls < 100, group._driver.look())
files.clear()
while not group.counters()["guard_connections"]:
    time.sleep(0.01)
"""
    assert output(script(text, cluster(), LOOPBACK)) == "True 0\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_fork_does_not_hold_its_parents_connections():
    text = """
import os, sys, time, seqcast
group = seqcast.join(sys.argv[1], name="c", interface=sys.argv[2], guard=True, suspect_s=600.0)
while len(group.view.members) < 2 or not group.counters()["guard_connections"]:
    time.sleep(0.01)
if not os.fork():
    os.close(1)
    os.close(2)
    time.sleep(600)
    os._exit(0)
print("forked", flush=True)
time.sleep(600)
"""
    name = cluster()
    with join(name, "a", guard=True, suspect_s=600.0) as a:
        process = script(text, name, LOOPBACK, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            assert process.stdout.readline().strip() == "forked"
            wait_until(lambda: a.counters()["guard_connections"] == 1)  # c counts the caller before its name comes
            process.kill()
            wait_until(lambda: a.counters()["guard_gone"] == 1)
            wait_until(lambda: len(a.view.members) == 1)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # the child too
            process.communicate()


@pytest.fixture
def taken(monkeypatch):
    """``taken(n)``: a stranger listens on the TCP ports of the next ``n`` UDP ports that a member opens."""
    strangers = []

    def take(n):
        def late(address):
            if len(strangers) < n:
                host, _, port = describe_address(address).rpartition(":")
                strangers.append(socket.create_server((host, int(port))))
            return listen(address)

        monkeypatch.setattr(opening, "listen", late)
        return strangers

    yield take
    for stranger in strangers:
        stranger.close()


BY_UNICAST = {"transport": "unicast", "seeds": "127.0.0.1", "port": 25_000 + os.getpid() % 5_000, "port_range": 8}


@pytest.mark.parametrize("way", [{}, BY_UNICAST], ids=["as by default", "by unicast"])
def test_a_member_whose_tcp_port_is_taken_uses_another_number(taken, way):
    strangers, name = taken(2), cluster()
    with join(name, "a", guard=True, **way) as a, join(name, "b", guard=True, **way) as b:
        assert len(strangers) == 2
        wait_until(lambda: linked(a, b))
        b.send(b"to the new port")
        assert payloads(a, 1) == [b"to the new port"]


def test_a_member_that_finds_no_free_tcp_port_says_so_and_does_without(taken, caplog):
    taken(opening.PORTS_TRIED)
    with join(cluster(), "a", guard=True) as a:
        assert "guard_connections" not in a.counters()
        assert "a: guard=True, but TCP port" in caplog.text and "SC4004" in caplog.text and "in use)" in caplog.text


def listen_nearby(address):
    """Listens on the first free TCP port from that of the address on, which need not be the member's own here."""
    host, _, port = describe_address(address).rpartition(":")
    for other in range(int(port), 65536):
        with contextlib.suppress(OSError):
            listener = socket.create_server((host, other))
            listener.setblocking(False)
            return listener
    raise AssertionError(f"no free port from {port} on")


def test_the_end_of_a_guard_waits_for_the_thread_that_wakes_it():
    """Else the kernel may have given the number of the closed descriptor to another file, and the byte goes there."""
    with join(cluster(), "a") as a:
        guard = GuardThread(a.member, 1, listen_nearby(a.member.address), lambda member: None)
        waking, closed = guard._wake_out, threading.Event()
        closed_meanwhile = []

        class Slow:
            def send(self, data):
                guard._stopping = True  # not before: the thread could end, and close this, before anything is sent
                waking.send(data)  # the guard's thread ends, while this one has not returned yet
                closed_meanwhile.append(closed.wait(0.3))

            def close(self):
                closed.set()
                waking.close()

        guard._wake_out = Slow()
        guard.thread.start()
        guard.view(())
        guard.thread.join(LIMIT_S)
        assert closed.is_set() and closed_meanwhile == [False]


def test_a_process_whose_listener_closes_after_its_connections_is_gone(monkeypatch):
    """The kernel closes the files of a killed process one by one: the kernel may still take the call that follows the
    end of a connection, and reset the call before the guard's thread looks."""
    gone = []
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_server(("127.0.0.1", 0)) as own:
        where = socket.AF_INET, other.getsockname()
        monkeypatch.setattr("seqcast.net.guard._where", lambda address: where)
        members = seqcast.Member("other", 1), seqcast.Member("me", 2)
        guard = GuardThread(members[1], 1, own, gone.append)

        def look():
            guard._look(guard._selector.select(LIMIT_S))

        guard._enter(members)
        look()
        standing, _ = other.accept()
        standing.close()
        look()
        reset, _ = other.accept()
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset.close()
        other.close()
        for _ in range(4):
            if not gone:
                look()
        assert gone == [members[0]]
        guard.stop()
        guard.thread.start()
        guard.thread.join(LIMIT_S)
