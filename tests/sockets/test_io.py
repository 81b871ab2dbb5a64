"""Sockets: which settings are refused and with which text; every way of sending and receiving gives the same
messages."""

import os
import socket
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from members import LIMIT_S, LOOPBACK, cluster, group_of, join, output, payloads, script, wait_until
from netns import lonely, network  # noqa: F401

import seqcast
from seqcast._native import driver

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")


def test_an_interface_that_is_not_there_is_named():
    with pytest.raises(seqcast.ConfigError, match=r"no network interface 'nonesuch0'.*ip -brief address"):
        seqcast.join(cluster(), interface="nonesuch0")


def test_an_address_that_no_interface_has_is_refused():
    with pytest.raises(seqcast.ConfigError, match=r"no network interface that is up has the address 203\.0\.113\.77"):
        seqcast.join(cluster(), interface="203.0.113.77")


@pytest.mark.multicast  # seeds have an address, which is refused first
@pytest.mark.parametrize(("given", "has", "version"), [("127.0.0.1", 4, 6), ("::1", 6, 4), ("fe80::1%lo", 6, 4)])
def test_an_address_of_the_other_ip_version_is_named_as_such(given, has, version):
    says = f"is an IPv{has} address and ip_version is {version}: give an IPv{version}"
    with pytest.raises(seqcast.ConfigError, match=says):
        seqcast.join(cluster(), interface=given, ip_version=version)


OTHERS = ("control_frames_sent", "io_flushes_left", "io_flushes_handed")
"""Counters of the reasons for which packets leave that no send lets leave: frames leave with them, or another thread is
at work just then, and transmits in the sender's place."""


def disturbances(before, after, took_s, limit_s):
    """Why a run proves nothing: these counters have changed, or so much time has passed that packets leave by
    themselves."""
    return [each for each in OTHERS if after[each] != before[each]] + ["time"] * (took_s >= limit_s)


def undisturbed(run):
    """The result of the first run that nothing disturbs. A run returns its result, and the disturbances."""
    for _ in range(20):
        found, disturbed = run()
        if not disturbed:
            return found
    pytest.fail(f"each of 20 runs was disturbed, the last one by {disturbed}")


def _flushes_handed_over():
    """How many, while thousands of packets wait to leave, and this thread transmits; unless another one was first."""
    n, payload = 0, bytes(450)
    with join(cluster(), "a", heartbeat_s=60, packet_bytes=512, gso=False, window_bytes=16 << 20) as group:
        before = group.counters()
        while group._runner.engine.send(payload) == 0:  # a packet each
            n += 1
        first = group.counters()["packets_sent"] == before["packets_sent"]
        group._runner.driver.poke()
        first = first and group.counters()["io_flushes_left"] == before["io_flushes_left"]
        received = 0
        while received < n:
            batch = group.recv_batch(timeout=LIMIT_S)
            assert batch is not None, f"{received} messages of {n}: nobody continued"
            received += len(batch)
        return group.counters()["io_flushes_handed"] - before["io_flushes_handed"], [] if first else ["another thread"]


@pytest.mark.multicast  # by unicast a lone member sends nothing
def test_a_thread_transmits_for_a_while_and_the_io_thread_continues():
    """While another thread receives and stamps forwards, there is ever more to transmit: the thread of a sender, or of
    the control plane, would transmit for others and do nothing else."""
    assert undisturbed(_flushes_handed_over) >= 1


@linux
def test_a_nap_gathers_no_more_than_a_quarter_of_a_small_window():
    """A receiver that slept over more than a window would leave its sender without credit meanwhile."""
    window = 64 << 10
    name, settings = cluster(), {"order": "fifo", "window_bytes": window, "packet_bytes": 1472}
    with join(name, "a", receive=False, **settings) as a, join(name, "b", deliver_own=False, **settings) as b:
        seen, until = 0, time.monotonic() + LIMIT_S
        sender = threading.Thread(target=lambda: a.send_many([bytes(1000)] * 100_000, timeout=LIMIT_S))
        sender.start()
        while seen < 100_000 and time.monotonic() < until:
            batch = b.recv_batch(1)
            seen += len(batch) if batch is not None else 0
        sender.join()
        counters = b.counters()
        assert counters["window_bytes"] <= window and seen == 100_000
        assert counters["io_naps"] > 0 and counters["io_nap_bytes"] <= counters["window_bytes"] // 4


@linux
def test_a_receiver_does_not_nap_while_datagrams_wait_for_it():
    """Messages that came while the application was busy for longer than a nap have accumulated for long enough."""
    name, settings = cluster(), {"order": "fifo", "packet_bytes": 1472, "congestion": "off"}
    busy = {"nap_s": 0.0001, "standby_s": 0.1}  # on a busy machine naps are up to eight times as long
    with join(name, "a", receive=False, **settings) as a, join(name, "b", deliver_own=False, **busy, **settings) as b:
        for _ in range(100):
            b.recv_batch(0.0005)  # nothing is there; the I/O thread leaves the sockets to the application
            a.send_many([bytes(1000)] * 500, timeout=LIMIT_S)
            time.sleep(0.002)
            batch = b.recv_batch(LIMIT_S)
            while batch is not None:
                batch = b.recv_batch(0)
            time.sleep(0.001)
        assert b.counters()["io_naps"] < 25


def looks_of(member: str) -> int:
    """How often the I/O thread of a member of this process has slept so far."""
    thread = next(each for each in threading.enumerate() if each.name == f"seqcast-io-{member}")
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def take_for(group, seconds):
    """Receives batches for this long; returns the time taken."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        group.recv_batch(0.05)
    return time.monotonic() - began


@linux
def test_the_io_thread_looks_less_often_under_load():
    """Each look costs a stream as much as some twenty packets."""
    name, stop = cluster(), threading.Event()

    def send(group):
        while not stop.is_set():
            group.send_many([bytes(1000)] * 200, timeout=LIMIT_S)

    with join(name, "a", receive=False) as a, join(name, "b", standby_s=0.001) as b:
        thread = threading.Thread(target=send, args=(a,))
        thread.start()
        try:
            share = 1.0  # of the looks that the setting says; on a busy machine callers do not always drive often
            for _ in range(40):
                looks, passed = looks_of("b"), take_for(b, 0.25)
                share = (looks_of("b") - looks) * 0.001 / passed
                if share < 0.5:
                    break
            assert share < 0.5
        finally:
            stop.set()
            take_for(b, 0.3)
            thread.join()
        with join(name, "c") as c:  # nobody drives b: its I/O thread takes over
            assert len(c.view.members) == 3


def test_the_io_thread_ends_the_sleep_of_a_caller_whose_time_it_covers():
    """Nothing arrives at a lone member, and a caller that comes back often has no timer of its own."""
    with join(cluster(), "a", standby_s=0.05) as a, ThreadPoolExecutor(1) as pool:
        waits = pool.submit(lambda: [a.recv(timeout=0.12) for _ in range(10)])
        try:
            assert waits.result(LIMIT_S) == [None] * 10
        finally:
            a.send(b"the end")


def test_an_interface_can_be_given_by_its_address():
    with join(cluster(), "a", interface="127.0.0.1") as a:
        assert a.path["interface"] == LOOPBACK or sys.platform == "win32"


@pytest.mark.multicast
@pytest.mark.skipif(sys.platform == "win32", reason="there a port is shared in other ways")
def test_a_port_that_another_program_holds_is_refused():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("", 0))
        port = other.getsockname()[1]
        with pytest.raises(seqcast.ConfigError, match=rf"port {port} or {port + 1} is in use.*ss -ulpn"):
            join(cluster(), "a", port=port)


@linux
def test_clipped_buffers_are_a_warning_with_the_remedy_and_the_group_still_works():
    text = """
import os, sys, warnings, seqcast
from seqcast import join  # loads modules that would be loaded later, when it cannot be read any more
from seqcast.cli import main
os.setgid(65534), os.setuid(65534)  # without CAP_NET_ADMIN the limit holds
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    a = seqcast.join(sys.argv[1], name="a", interface="lo", rcvbuf=1 << 28, deliver_own=False)
limit = int(open("/proc/sys/net/core/rmem_max").read())
assert a.path["rcvbuf_granted"] == 2 * limit, a.path
assert [w.category for w in seen] == [seqcast.ClippedBuffer], seen
assert f"sysctl -w net.core.rmem_max={1 << 28}" in str(seen[0].message)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    seqcast.join("x" + sys.argv[1], interface="lo", rcvbuf=limit // 4 * 3, sndbuf=1 << 28).leave()
    seqcast.join("y" + sys.argv[1], interface="lo", rcvbuf=limit, sndbuf=4096).leave()
    seqcast.join("z" + sys.argv[1], interface="lo", rcvbuf=limit + 1, sndbuf=4096).leave()
texts = [str(w.message) for w in seen]
assert len(texts) == 2 and f"net.core.wmem_max={1 << 28}" in texts[0] and "rmem" not in texts[0], texts
assert f"net.core.rmem_max={limit + 1}" in texts[1] and "wmem" not in texts[1], texts
print("good")
"""
    if os.geteuid() != 0:
        text = text.replace("os.setgid(65534), os.setuid(65534)", "")
    assert output(script(text, cluster())) == "good\n"


def test_small_buffers_lose_nothing():
    with group_of(2, order="fifo", rcvbuf=64 << 10, deliver_own=False) as (a, b):
        assert a.path["packet_bytes"] == 1472
        sender = threading.Thread(target=a.send_many, args=([b"%d" % i + bytes(1000) for i in range(3000)],))
        sender.start()
        assert [int(payload[:-1000]) for payload in payloads(b, 3000)] == list(range(3000))
        sender.join()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere a member has one socket for its address")
def test_no_other_socket_can_take_a_members_address():
    """Two of the member's own sockets share the address, which needs SO_REUSEADDR for a moment."""
    with group_of(1) as (a,):
        host, port = a.path["address"].rsplit(":", 1)
        other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with other, pytest.raises(OSError, match="in use"):
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind((host, int(port)))


WAYS = {
    "all": {},
    "no GSO": {"gso": False},
    "no GRO": {"gro": False},
    "no sendmmsg": {"mmsg": False},
    "plain calls": {"gso": False, "gro": False, "mmsg": False},
    "batches of one": {"send_batch": 1, "receive_batch": 1},
    "spinning": {"busy_poll_s": 0.001},
    "no naps": {"nap_s": 0.0},
    "each at once": {"flush_s_min": 0.0},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_sending_and_receiving_gives_the_same_messages(way):
    with group_of(2, order="fifo", packet_bytes=1472, deliver_own=False, **WAYS[way]) as (a, b):
        lengths = np.random.default_rng(5).integers(0, 2000, 3000)  # less than a window: nobody takes messages yet
        want = [bytes([i % 256]) * int(n) for i, n in enumerate(lengths)]
        a.send_many(want[:2000], timeout=LIMIT_S)
        for payload in want[2000:2100]:
            a.send(payload, timeout=LIMIT_S)
        a.send_many(want[2100:], timeout=LIMIT_S)
        assert payloads(b, len(want)) == want
        counters = a.counters()
        assert counters["io_send_errors"] == counters["drop_crc"] == b.counters()["drop_crc"] == 0
        if way in ("no GSO", "plain calls", "batches of one", "no sendmmsg"):
            return
        if sys.platform.startswith("linux") and a.path["gso"]:  # many datagrams a call
            assert counters["datagrams_sent"] > 4 * counters["io_sends"]


def test_a_thread_that_spins_notices_another_threads_messages():
    """A spinning thread looks at the sockets only, where an own message never comes, and must not spin on until its
    time is over."""
    looks = []
    with group_of(1, busy_poll_s=0.5, heartbeat_s=10.0, suspect_s=60.0) as (group,), ThreadPoolExecutor(1) as pool:
        for _ in range(9):
            received = pool.submit(group.recv, timeout=LIMIT_S)
            time.sleep(0.02)
            before = group.counters()["io_receives"]
            group.send(b"own")
            assert received.result().payload == b"own"
            looks.append(group.counters()["io_receives"] - before)
    assert statistics.median(looks) < 5000, looks


def test_a_thread_that_sends_does_not_wake_itself():
    """The thread takes its own message before waiting again: a wake-up would only end that wait, and cost another
    one."""
    rounds = []
    with group_of(2, heartbeat_s=10.0, suspect_s=60.0) as (a, b):
        for _ in range(20):
            b.send(b"to wait for")
            while a.recv(LIMIT_S).sender != b.member:
                pass
            a.send(b"own")
            assert a.recv(LIMIT_S).sender == a.member
            before = a.counters()["io_rounds"]
            assert a.recv(0.0005) is None
            rounds.append(a.counters()["io_rounds"] - before)
            while b.recv(LIMIT_S).sender != a.member:
                pass
    assert sorted(rounds)[4] == 1, rounds  # a datagram may end a wait, too


def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


FLUSH_S = 1.0
"""The longest time for which messages may gather."""


def test_a_stream_of_single_sends_gathers():
    """Each of a few messages leaves at once, but a stream costs no datagram for each (as Nagle's rule)."""
    with group_of(2, order="fifo", deliver_own=False, flush_s_min=0.002) as (a, b):
        before, n = a.counters()["packets_sent"], 3000
        for i in range(n):
            a.send(b"%d" % i)
            spin(20e-6)  # work between two sends
        packets = a.counters()["packets_sent"] - before
        assert packets < n / 3, (packets, n)
        assert payloads(b, n) == [b"%d" % i for i in range(n)]


def packets_of_gathered_sends(flush_bytes):
    """How many packets of 30 messages leave with them."""
    settings = {"flush_bytes": flush_bytes, "flush_s_min": FLUSH_S, "flush_s_max": FLUSH_S, "packet_bytes": 1472}
    settings["congestion"] = "off"
    with group_of(2, order="fifo", deliver_own=False, heartbeat_s=10.0, suspect_s=60.0, **settings) as (a, _):
        first = a.counters()["packets_sent"]
        for n in range(1, 10):  # the first one, and 8 more in a row, leave at once
            a.send(b"lone")
            wait_until(lambda n=n: a.counters()["packets_sent"] >= first + n)
        before, begun = a.counters(), time.monotonic()
        for _ in range(30):
            a.send(bytes(1000))
        after, took_s = a.counters(), time.monotonic() - begun
        return after["packets_sent"] - before["packets_sent"], disturbances(before, after, took_s, 0.8 * FLUSH_S)


@pytest.mark.parametrize(("flush_bytes", "least", "most"), [(4000, 15, 22), (1 << 24, 0, 0)])
def test_a_sender_transmits_gathered_messages_of_flush_bytes(flush_bytes, least, most):
    assert least <= undisturbed(lambda: packets_of_gathered_sends(flush_bytes)) <= most


def test_the_rest_of_an_array_waits_for_the_next_one_while_receivers_have_enough():
    """Packets are full as long as arrays follow; the last rest leaves by itself."""
    alone, behind_much = undisturbed(packets_of_eight_arrays)
    assert alone >= 14 and behind_much <= 12


def packets_of_eight_arrays():
    """In how many packets they leave, and in how many of them behind much that receivers have not taken."""
    with group_of(2, order="fifo", deliver_own=False, packet_bytes=8000, flush_s_min=0.05) as (a, b):
        disturbed = []

        def packets_of_arrays():
            before, begun = a.counters(), time.monotonic()
            for i in range(8):  # so few leave at once, even one by one
                a.send_batch(bytes([i]) * 9000, np.array([0, 9000]), timeout=LIMIT_S)
            after = a.counters()
            disturbed.extend(disturbances(before, after, time.monotonic() - begun, 0.05))
            return after["packets_sent"] - before["packets_sent"]

        time.sleep(0.5)  # in this time, ten flushes of which each may leave at once are saved up
        alone = packets_of_arrays()
        third = a.counters()["window_bytes"] // 3
        a.send_batch(bytes(third), np.array([0, third]), timeout=LIMIT_S)
        wait_until(lambda: a._runner.engine.unsent() == 0)
        time.sleep(0.5)
        behind_much = packets_of_arrays()
        assert payloads(b, 17)[-8:] == [bytes([i]) * 9000 for i in range(8)]
    return (alone, behind_much), disturbed


def test_a_rest_waits_no_longer_when_arrays_keep_coming():
    """The first array of which a part waits begins the time, however many small ones follow."""
    left, n = undisturbed(packets_of_small_arrays)
    assert 3 <= left < n / 2, (left, n)


def packets_of_small_arrays():
    """How many leave, and how many arrays they have, which come for more than five of the times that a rest waits."""
    with group_of(2, order="fifo", deliver_own=False, packet_bytes=8000, flush_s_min=0.05) as (a, b):
        third = a.counters()["window_bytes"] // 3
        a.send_batch(bytes(third), np.array([0, third]), timeout=LIMIT_S)
        time.sleep(0.5)  # all has left
        before, begun, n = a.counters()["packets_sent"], time.monotonic(), 0
        while time.monotonic() - begun < 0.9:  # the rest waits for 5 times 50 ms
            a.send_batch(bytes([n]), np.array([0, 1]), timeout=LIMIT_S)
            n += 1
            time.sleep(0.02)
        left = a.counters()["packets_sent"] - before
        assert payloads(b, n + 1)[1:] == [bytes([number]) for number in range(n)]
    return (left, n), [] if n > 20 else ["time"]  # else this thread did not run for long


@pytest.mark.parametrize(("pause", "pause_s"), [(spin, 0.0001), (time.sleep, 0.001)])
def test_a_member_that_only_sends_arrays_receives_and_beats(pause, pause_s):
    """Each array takes the receive role, so the I/O thread leaves the sockets to their sender."""
    with group_of(2, order="fifo", deliver_own=False, standby_s=0.1) as (a, b):
        before, sent, until = a.counters(), 0, time.monotonic() + 0.5
        while time.monotonic() < until:
            a.send_batch(b"x", np.array([0, 1]), timeout=LIMIT_S)
            sent += 1
            if sent % 10 == 0:
                b.send(b"y")
            pause(pause_s)
        after = a.counters()
        assert after["heartbeats_sent"] - before["heartbeats_sent"] >= 5
        assert after["packets_received"] - before["packets_received"] >= sent // 20
        assert len(payloads(b, sent)) == sent


def test_arrays_that_are_sent_now_and_then_leave_the_sockets_to_the_io_thread():
    with group_of(2, order="fifo", deliver_own=False, standby_s=0.1) as (a, b):
        before = a.counters()
        for _ in range(50):
            a.send_batch(b"x", np.array([0, 1]), timeout=LIMIT_S)
            time.sleep(0.005)
        after = a.counters()
        assert after["io_kicks"] - before["io_kicks"] >= 25  # each array wakes the thread that waits on the sockets
        assert len(payloads(b, 50)) == 50


def test_a_wait_that_is_over_at_once_looks_at_the_sockets():
    with group_of(2, order="fifo", deliver_own=False, standby_s=0.1) as (a, _):
        before = a.counters()["io_rounds"]
        for _ in range(100):
            assert a.recv(1e-7) is None
            time.sleep(0.001)
        assert a.counters()["io_rounds"] - before >= 90


def test_which_packets_leave_at_once_and_which_wait():
    """With times so long that nothing leaves by itself meanwhile."""
    assert undisturbed(packets_of_each_step) == LEFT


LEFT = [*range(1, 10), 9, 9, 10, 11, 11]
"""Packets that are out after each step."""


def packets_of_each_step():
    """How many packets of a sender were out after each step."""
    with group_of(2, order="fifo", flush_s_min=FLUSH_S, flush_s_max=FLUSH_S) as (a, b):
        time.sleep(0.2)  # until the joins' own datagrams are out
        first, packets, begun = a.counters(), [], time.monotonic()
        before = first["packets_sent"]

        def step():
            end = begun + 0.9 * FLUSH_S  # the I/O thread may be at work just then, and transmits in the sender's place
            while (left := a.counters()["packets_sent"] - before) < LEFT[len(packets)] and time.monotonic() < end:
                pass
            packets.append(left)

        for _ in range(9):  # the first one, and 8 more in a row
            a.send(b"lone")
            step()
        a.send(b"waits")
        step()
        own = []
        receiver = threading.Thread(target=lambda: own.extend(a.recv(LIMIT_S).payload for _ in range(9)))
        receiver.start()  # a thread that has sent nothing asks no question
        receiver.join()
        step()
        assert own == [b"lone"] * 9
        b.send(b"news")
        rest = {a.recv(LIMIT_S).payload, a.recv(LIMIT_S).payload}  # a send and then a wait: a question
        assert rest == {b"news", b"waits"}
        step()
        a.send(b"answer")
        step()
        a.send(b"more")
        step()
        disturbed = disturbances(first, a.counters(), time.monotonic() - begun, 0.9 * FLUSH_S)
        assert payloads(b, 13)[-1] == b"more"  # after FLUSH_S, by itself
    return packets, disturbed


@linux
def test_own_datagrams_are_dropped_by_the_kernel():
    with group_of(2, order="fifo") as (a, b):
        a.send_many([bytes(1000)] * 100)
        assert len(payloads(a, 100)) == len(payloads(b, 100)) == 100
        assert a.counters()["drop_own"] == 0


@linux
def test_datagrams_of_all_sizes_arrive_whole_if_small_ones_share_memory():
    """After small datagrams the next ones are received into slots as large as a packet, and a buffer of several packets
    does not fit."""
    sent = [bytes([number]) * size for number in range(100) for size in (600, 1300, 50, 40_000, 9)]
    name, settings = cluster(), {"order": "fifo", "packet_bytes": 1472, "flush_s_min": 0.0}
    with join(name, "a", receive=False, **settings) as a, join(name, "b", deliver_own=False, **settings) as b:
        got = []
        for first in range(0, len(sent), 5):
            for payload in sent[first : first + 3]:
                a.send(payload)
                got += payloads(b, 1)
            a.send_many(sent[first + 3 : first + 5])
            got += payloads(b, 2)
        counters = b.counters()
    assert got == sent
    assert counters["drop_crc"] == counters["drop_magic"] == counters["io_truncated"] == 0
    assert counters["datagrams_received"] > 1.5 * counters["io_receives"], "nothing came as a buffer of several packets"


def test_addresses_are_described():
    """TOT-03: a member knows its own before sending."""
    with group_of(1) as (a,):
        assert a.path["address"].startswith("127.0.0.1:")
        assert driver.describe_address(a.member.address) == a.path["address"]
        assert len(a.member.address) <= 28


def test_datagrams_of_strangers_are_counted_and_harm_nothing():
    with group_of(2, order="fifo") as (a, b):
        host, port = a.path["address"].split(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for datagram in (b"", b"x", bytes(39), bytes(200), b"\xc5" + bytes(300), b"\xc5\x02\x01" + bytes(2000)):
                stranger.sendto(datagram, (host, int(port)))
        a.send(b"after")
        assert payloads(b, 1) == [b"after"]
        causes = ("short", "magic", "version", "group", "crc", "field")
        wait_until(lambda: sum(a.counters()[f"drop_{cause}"] for cause in causes) >= 5)


TWO = """
import sys, time, seqcast
settings = dict(order="fifo", interface=sys.argv[1], deliver_own=False, **eval(sys.argv[2]))
with seqcast.join("x", name="a", **settings) as a, seqcast.join("x", name="b", **settings) as b:
    while len(a.view.members) < 2:
        time.sleep(0.01)
    a.send_many([b"%d" % i + bytes(1400) for i in range(2000)], timeout=30)
    got = []
    while len(got) < 2000:
        got += b.recv_batch(60).tolist()
    assert [int(p[:-1400]) for p in got] == list(range(2000))
    a.send(b"unicast", to=b.member)
    assert b.recv(60).payload == b"unicast"
    print(a.path["packet_bytes"], a.path["address"], a.counters()["io_gso_refused"], a.path["gso"])
"""


@pytest.mark.multicast
@pytest.mark.netns
def test_without_an_ipv6_multicast_route_the_error_names_the_remedy(lonely):  # noqa: F811
    failed = script("import seqcast; seqcast.join('x', ip_version=6, interface='lo')", prefix=lonely.prefix)
    _, err = failed.communicate(timeout=LIMIT_S)
    assert "no multicast route to ff15::" in err and "or ip_version=4" in err


@pytest.mark.long
@pytest.mark.netns
@pytest.mark.parametrize(
    ("own", "address"),
    [("fd99::1", ""), ("fe80::99:1", ""), pytest.param("fe80::99:1", "ff12::77", marks=pytest.mark.multicast)],
)
def test_ipv6_works_with_global_and_with_link_local_addresses(network, own, address):  # noqa: F811
    first = network[0]
    first.run("ip", "-6", "address", "add", f"{own}/64", "dev", "eth0", "nodad")
    settings = repr({"ip_version": 6, "address": address})
    process = script(TWO, own, settings, prefix=first.prefix, ip_version=6)
    size, used, *_ = output(process).split()
    assert size == "1448" and used.startswith(f"[{own}]:")


@pytest.mark.netns
def test_a_path_that_refuses_runs_gets_single_datagrams_and_then_smaller_packets(lonely):  # noqa: F811
    lonely.run(*"ip link set lo mtu 1400".split())
    process = script(TWO, "lo", "{'packet_bytes': 1472}", prefix=lonely.prefix)
    out, err = process.communicate(timeout=LIMIT_S)
    size, _, refused, gso = out.split()
    assert size == "1472" and 0 < int(refused) < 20 and gso == "True", "smaller packets follow, which it takes"
    assert "UDP_SEGMENT" not in err, "the kernel supports runs, and other paths take them"


@pytest.mark.long
@pytest.mark.multicast
@pytest.mark.netns
def test_without_a_route_the_default_interface_is_loopback(lonely):  # noqa: F811
    out, err = script(TWO, "", "{}", prefix=lonely.prefix).communicate(timeout=LIMIT_S)
    size, address, *_ = out.split()
    assert size == "65000" and address.startswith("127.0.0.1:")
    assert "RuntimeWarning: there is no route for multicast" in err and "Give interface=" in err
    assert output(
        script(
            TWO.replace("import sys", "import warnings; warnings.simplefilter('error'); import sys"),
            "lo",
            "{}",
            prefix=lonely.prefix,
        )
    ).startswith("65000 ")


JOIN = "import logging; logging.basicConfig(); import seqcast; seqcast.join('x').leave()"


@pytest.mark.multicast
@pytest.mark.netns
def test_a_bridge_without_ports_that_the_routes_choose_is_named(lonely):  # noqa: F811
    lonely.run(*"ip link add docker0 type bridge".split())
    lonely.run(*"ip address add 10.98.0.1/24 dev docker0".split())
    lonely.run(*"ip link set docker0 up".split())
    lonely.run(*"ip route add default dev docker0".split())
    _, err = script(JOIN, prefix=lonely.prefix).communicate(timeout=LIMIT_S)
    assert "founded the group alone" in err and "docker0 is a bridge without ports: nobody can be reached there" in err


@pytest.mark.multicast
@pytest.mark.netns
def test_a_tunnel_without_multicast_that_the_routes_choose_is_named(lonely):  # noqa: F811
    lonely.run(*"ip tuntap add mode tun tun0".split())
    lonely.run(*"ip address add 10.98.0.1/24 dev tun0".split())
    lonely.run(*"ip link set tun0 multicast off up".split())
    lonely.run(*"ip route add default dev tun0".split())
    _, err = script(JOIN, prefix=lonely.prefix).communicate(timeout=LIMIT_S)
    assert "RuntimeWarning: the group is on loopback" in err and "tun0 is up, but without multicast" in err
    assert "ip link set tun0 multicast on" in err


@pytest.mark.netns
def test_without_any_interface_the_error_says_so(lonely):  # noqa: F811
    lonely.run(*"ip link set lo down".split())
    _, err = script("import seqcast; seqcast.join('x')", prefix=lonely.prefix).communicate(timeout=LIMIT_S)
    assert "no network interface that is up has an IPv4 address" in err and "ip link set lo up" in err


@pytest.mark.netns
def test_members_in_different_namespaces_form_one_group(network):  # noqa: F811
    text = """
import sys, time, seqcast
with seqcast.join("x", name=sys.argv[1], interface="eth0", order="total") as group:
    while len(group.view.members) < 3:
        time.sleep(0.01)
    group.send_many([b"%s %d" % (sys.argv[1].encode(), i) for i in range(500)], timeout=60)
    got = []
    while len(got) < 1500:
        batch = group.recv_batch(30)
        got += batch.tolist()
    import hashlib
    print(group.path["packet_bytes"], hashlib.sha256(b"|".join(got)).hexdigest(), flush=True)
    sys.stdin.readline()
"""
    members = [script(text, f"m{i}", prefix=place.prefix) for i, place in enumerate(network[:3])]
    try:
        lines = [process.stdout.readline().split() for process in members]
        assert [line[0] for line in lines] == ["1472"] * 3, [process.stderr.read() for process in members]
        assert len({line[1] for line in lines}) == 1
        for process in members:
            _, err = process.communicate("\n", timeout=LIMIT_S)
            assert process.returncode == 0, err
    finally:
        for process in members:
            process.kill()


def test_a_join_that_fails_closes_no_descriptor_but_its_own():
    text = """
import os, seqcast
for _ in range(2):
    try:
        seqcast.join("x", interface="nonesuch0")
    except seqcast.ConfigError:
        os.fstat(0), os.fstat(1), os.fstat(2)
print("good")
"""
    assert output(script(text)) == "good\n"


@linux
def test_no_descriptor_is_left_open():
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    with group_of(1):
        pass
    before = descriptors()
    for _ in range(3):
        with group_of(1):
            pass
    with pytest.raises(seqcast.ConfigError):
        seqcast.join(cluster(), interface="nonesuch0")
    assert descriptors() == before
