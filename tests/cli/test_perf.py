"""``seqcast perf``: which messages count as lost, the bare baselines, the paths, and the command as a whole."""

import contextlib
import itertools
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path as Folder
from types import SimpleNamespace

import pytest
from commands import call as run_command
from engines import Net
from halves import first_quick
from journal_data import Row, journal, member, view
from members import wait_until
from netns import MEMBERS, cut_off, lonely, network, python, segmented  # noqa: F401

from seqcast._native.engine import SENT, Batch
from seqcast.errors import SeqcastError
from seqcast.perf import command, hosts, matrix, report, runs, worker
from seqcast.perf.loops import DISTINCT, END, Payloads, Tally
from seqcast.perf.messages import BatchSource, Check
from seqcast.perf.paths import MTU, PATHS, Path, PathError, Place, call, dropping, on_interface, open_path
from seqcast.perf.processes import Process, Processes, RunFailed
from seqcast.perf.runs import (
    Latency,
    Load,
    bare_latency,
    bare_throughput,
    group_latency,
    group_throughput,
    journal_rows,
    placed,
)

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the bare baselines need Linux")
LOOPBACK = Place((), "lo", "127.0.0.1")
TRANSPORTS = ["auto", pytest.param("unicast", marks=pytest.mark.long)]


def batches_of(messages, burst):
    """As recv_batch gives them, while another member sends this many messages at a time."""
    net = Net(2, window=1 << 23, packet=65000)
    for first in range(0, len(messages), burst):
        for message in messages[first : first + burst]:
            assert net.engines[0].send(message) == SENT
        net.step(take=False)
        net.take(0)
        while (item := net.engines[1].deliver(1 << 20, net.now)) is not None:
            if isinstance(item, Batch):
                yield item


def checked(messages, size):
    """The same whether the messages are copied out of their packets or lie in them."""
    checks = [Check(size), Check(size)]
    for check, burst in zip(checks, (1, max(1, 4096 // size)), strict=True):
        for batch in batches_of(messages, burst):
            check.take(batch)
    assert len({(check.count, check.wrong) for check in checks}) == 1
    return checks[0]


def sent_messages(size, batches, sender=0):
    messages = []

    class Group:
        def send_batch(self, data, offsets, timeout):
            assert offsets[-1] == len(data) and len(data) == (len(offsets) - 1) * size and timeout is None
            messages.extend(data[i : i + size].tobytes() for i in range(0, len(data), size))

    left = iter(range(batches))
    BatchSource(size, sender).send(Group(), None, lambda: next(left, None) is not None)
    return messages


# ---- which messages count as lost
# -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [8, 64, 1000, 8192, 65000, 1 << 20])
def test_a_whole_stream_is_not_wrong(size):
    messages = list(sent_messages(size, 2))
    check = checked(messages, size)
    assert check.count == len(messages) and check.wrong == 0
    check.take(None)
    assert check.count == len(messages)


@pytest.mark.parametrize("missing", [0, 1, 63, 77, 4095])
def test_a_message_that_is_missing_is_found(missing):
    messages = list(sent_messages(64, 2))
    del messages[missing]
    check = checked(messages, 64)
    assert check.wrong == 1 and check.count == len(messages)


def test_a_message_that_comes_twice_is_found():
    messages = list(sent_messages(64, 1))
    assert checked([*messages[:10], *messages[9:]], 64).wrong == 1


def test_messages_that_change_places_are_found():
    messages = list(sent_messages(64, 1))
    messages[10], messages[11] = messages[11], messages[10]
    assert checked(messages, 64).wrong == 3


def test_a_message_of_another_size_is_found():
    messages = list(sent_messages(64, 1))
    messages[5] += b"x"
    assert checked(messages, 64).wrong == 2  # itself, and the next one, as this one is missing


def test_several_senders_are_told_apart():
    a, b = list(sent_messages(64, 1, sender=1)), list(sent_messages(64, 1, sender=2))
    assert checked([*a[:10], *b, *a[10:]], 64).wrong == 0
    assert checked([*a[:10], *b, *a[10:], a[0]], 64).wrong == 1


# ---- the bare baselines --------------------------------------------------------------------------------------------


@linux
@pytest.mark.parametrize(
    "path",
    first_quick([
        Path("loopback", (LOOPBACK,) * 3, 65000, 1, False),
        Path("plain", (LOOPBACK,) * 3, 1472, 1, False),
        Path("coalesced", (LOOPBACK,) * 3, 1472, 44, True),
        Path("cut apart", (LOOPBACK,) * 3, 1472, 44, False),
    ]),
    ids=lambda path: path.name,
)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_bare_baselines_deliver_everything_and_acks_do_not_stall_them(path, transport):
    load = Load(3, 1, 1024, "fifo", 0.15, settings={"transport": transport})
    raw, limit = (bare_throughput(path, load, limit=limit, window_bytes=1 << 20) for limit in (False, True))
    assert 1 < raw < 20 * limit


@pytest.mark.long
@linux
@pytest.mark.parametrize("limit", [False, True])
def test_a_window_beyond_the_receive_buffers_is_cut_to_their_size(limit):
    path = Path("loopback", (LOOPBACK,) * 3, 65000, 1, False)
    assert bare_throughput(path, Load(3, 1, 1024, "fifo", 0.3), limit=limit, window_bytes=64 << 20) > 1


@linux
@pytest.mark.parametrize("spin", [False, True])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_bare_ping_pong_has_ordered_percentiles(spin, transport):
    path = Path("loopback", (LOOPBACK,) * 2, 65000, 1, False)
    half = bare_latency(path, Latency(64, "fifo", 200, spin, "plain", None, {"transport": transport}))
    assert 0.5 < half["p50"] <= half["p99"] <= half["p999"] < 1e6


# ---- processes -----------------------------------------------------------------------------------------------------


@linux
def test_a_process_that_cannot_do_its_task_says_why():
    task = {"role": "member", "cluster": "x", "name": "a", "members": 1, "size": 64, "sends": False,
            "settings": {"interface": "nosuchinterface0"}}  # fmt: skip
    with Processes() as processes, pytest.raises(RunFailed, match="nosuchinterface0"):
        processes.start(LOOPBACK, task).expect("joined", 30)


@linux
def test_a_process_that_ends_without_a_word_is_told_with_its_last_words():
    with Processes() as processes, pytest.raises(RunFailed, match="KeyError"):
        processes.start(LOOPBACK, {"role": "member"}).expect("joined", 30)


@linux
def test_a_process_that_is_silent_is_given_up():
    process = Process(["sleep", "60"], "member")
    with pytest.raises(RunFailed, match="did not report"):
        process.expect("joined", 0.1)
    process.close()
    start = time.monotonic()
    process.wait(start + 0.1)
    assert time.monotonic() - start < 30


# ---- paths ---------------------------------------------------------------------------------------------------------


def test_a_missing_tool_is_named_with_its_package(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(PathError, match="install nftables"):
        call("nft", "list", "ruleset")


def test_the_machine_s_own_traffic_is_never_dropped():
    with pytest.raises(PathError, match="in network namespaces only"), dropping([LOOPBACK], 1):
        pass


def received_packets(place):
    return int(place.run("cat", f"/sys/class/net/{place.interface}/statistics/rx_packets"))


@pytest.mark.long
@pytest.mark.netns
@pytest.mark.parametrize("name", PATHS[1:])
def test_only_the_segmented_path_carries_each_packet_on_its_own(name):
    with open_path(name, 2) as path:
        before = received_packets(path.places[0])
        megabytes = bare_throughput(path, Load(2, 1, 1024, "fifo", 0.3), limit=False, window_bytes=1 << 20) * 0.3
        packets = received_packets(path.places[0]) - before
    bytes_each = megabytes * 1e6 / packets
    assert bytes_each < MTU if name == "veth-segmented" else bytes_each > 5 * MTU


@pytest.mark.netns
@pytest.mark.long
def test_without_multicast_the_baseline_gives_each_receiver_its_own_copy(network):  # noqa: F811
    for place in network[:3]:
        place.run("nft", "add table inet deaf; add chain inet deaf in { type filter hook input priority 0; }; "
                         "add rule inet deaf in ip daddr 224.0.0.0/4 drop")  # fmt: skip
    path, load = Path("bridge", network[:3], 1472, 44, True), Load(3, 1, 1024, "fifo", 0.1)
    with pytest.raises(RunFailed, match="got no datagram"):
        bare_throughput(path, load, limit=False, window_bytes=1 << 20)
    alone = replace(load, settings={"transport": "unicast"})
    for limit in (False, True):
        assert bare_throughput(path, alone, limit=limit, window_bytes=1 << 20) > 1


SEND = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(2000):
    s.sendto(b"x" * 100, ("127.0.0.1", 9))
    time.sleep(0)
"""


@pytest.mark.netns
def test_dropping_drops_its_share_and_is_gone_afterwards(lonely):  # noqa: F811
    with dropping([lonely], 20):
        sender = python(lonely, "-c", SEND)
        assert sender.wait(60) == 0
        rules = lonely.run("nft", "-j", "list", "ruleset")
    counters = [
        part["counter"]["packets"]
        for rule in json.loads(rules)["nftables"]
        for part in rule.get("rule", {}).get("expr", [])
        if "counter" in part
    ]
    assert 250 < counters[0] < 550
    assert "seqcast_loss" not in lonely.run("nft", "list", "ruleset")


LISTEN = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 9999))
print("ready", flush=True)
sys.stdin.readline()  # by now it was sent
s.settimeout(1.0)
try:
    print(s.recv(100).decode())
except TimeoutError:
    print("nothing")
"""


def hears(place, sender):
    listener = python(place, "-c", LISTEN, stdin=subprocess.PIPE)
    assert listener.stdout.readline() == "ready\n"
    send = f"import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('{place.address}', 9999))"
    sender.run("sh", "-c", f'{sys.executable} -c "{send}" 2>/dev/null || true')  # its own output hook may refuse
    return listener.communicate("\n", timeout=60)[0].strip() == "x"


@pytest.mark.netns
def test_a_partition_cuts_and_heals(network):  # noqa: F811
    assert hears(network[1], network[0])
    with cut_off(network[1:2]):
        assert not hears(network[1], network[0])
        assert not hears(network[0], network[1])
        assert hears(network[2], network[0])
    assert hears(network[1], network[0])


@pytest.mark.netns
def test_namespaces_are_gone_afterwards():
    with open_path("veth-segmented", MEMBERS) as path:
        names = {place.namespace for place in path.places}
        assert names <= set(call("ip", "netns", "list").split())
    assert not names & set(call("ip", "netns", "list").split())


# ---- the report ----------------------------------------------------------------------------------------------------


def run(mb, lost=0):
    return {
        "sent_msgs_per_s": mb * 1000, "delivered_msgs_per_s": mb * 990, "delivered_mb_per_s": mb, "messages": 10,
        "lost": lost, "wrong": 0, "retransmitted_packets": 1, "cpu_us_per_msg": 1.5, "acks_per_packet": 0.1,
        "throttled_s": 0.25 * lost, "rss_mb": 50 + mb / 1000, "rss_rest_mb": 40, "window_bytes": 1 << 20,
        "drained": 0.0,
    }  # fmt: skip


def test_ratios_are_medians_of_each_pair_s_and_losses_are_sums():
    figures = report.throughput([1000, 2000, 4000], [500, 1000, 1000], [run(500), run(800), run(1000, lost=2)])
    assert figures["ratio_to_raw"] == 0.4 and figures["spread"]["ratio_to_raw"] == [0.25, 0.5]
    assert figures["ratio_to_limit"] == 1.0 and figures["raw_mb_per_s"] == 2000
    assert figures["lost"] == 2 and figures["retransmitted_packets"] == 3 and figures["rss_mb"] == 51


def test_quotas_that_stop_members_are_named_and_silence_means_none(tmp_path):
    folder = tmp_path / "sys/fs/cgroup/a/b"
    folder.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    assert hosts.throttled_s(tmp_path) == 0.0
    (tmp_path / "proc/self/cgroup").write_text("0::/a/b\n")
    assert hosts.throttled_s(tmp_path) == 0.0
    (folder / "cpu.stat").write_text("usage_usec 5\nnr_throttled 1\nthrottled_usec 20000\n")
    (folder.parent / "cpu.stat").write_text("usage_usec 5\nnr_throttled 3\nthrottled_usec 1500000\n")
    (tmp_path / "cpu.stat").write_text("throttled_usec 9000000\n")  # above the mount
    assert hosts.throttled_s(tmp_path) == 1.52, "each may have stopped it while the others did not"
    figures = {"path": "hosts", **report.throughput([], [], [run(500, lost=1), run(500, lost=2)])}
    assert figures["throttled_s"] == 0.75
    said = report.throttled({**figures, "throttled": {"a": 0.0, "b": 0.75}})
    assert said.startswith("hosts: a CPU quota stopped members for 0.75 s (b 0.75 s)") and "(SC1111)" in said
    assert report.throttled({"path": "hosts", **report.throughput([], [], [run(500)])}) == ""


def test_the_table_has_both_paths_side_by_side_and_names_missing_measurements():
    figures = report.throughput([1000.0], [500.0], [run(400.0)])
    both = report.table([{"path": "loopback", **figures}, {"path": "veth-segmented", **figures}])
    assert both.splitlines()[0].split() == ["loopback", "veth-segmented"]
    assert "0.8 (0.8 to 0.8)" in both
    one = report.table([{"path": "loopback", **figures}, {"path": "veth-segmented", "unavailable": "needs root"}])
    assert one.splitlines()[-1] == "veth-segmented: not measured: needs root"


def test_one_pair_has_no_median():
    told = [command.heading(command.parse(["--pairs", pairs]), "here").splitlines()[0] for pairs in ("1", "3")]
    assert told[0].endswith("; one pair") and told[1].endswith("; medians of 3 pairs (minimum to maximum)")


@pytest.mark.long
@linux
def test_settings_that_are_given_reach_the_members():
    arguments = command.parse("--port 47610 --preset fast --partition primary --congestion off".split())
    given = {"port": 47610, "preset": "fast", "partition": "primary", "congestion": "off"}
    assert command.settings(arguments) == given
    assert command.settings(command.parse(["--send-bytes-per-s", "5000"])) == {"send_bytes_per_s": 5000}
    path = Path("loopback", (LOOPBACK,) * 2, 65000, 1, False)
    wrong = {"port": 47610, "ttl": 300}
    with pytest.raises(RunFailed, match="ttl=300"):
        group_throughput(path, Load(2, 1, 64, "fifo", 0.1, settings=wrong), "perf-test")
    with pytest.raises(RunFailed, match="ttl=300"):
        group_latency(path, Latency(64, "fifo", 10, False, "plain", None, settings=wrong), "perf-test")
    assert group_latency(path, Latency(64, "fifo", 10, False, "plain", None, {"port": 47610}), "perf-test")["p50"] > 0


@pytest.mark.long
@linux
def test_without_multicast_members_are_told_where_the_others_are_unless_seeds_are_given():
    arguments = command.parse(["--transport", "unicast", "--members", "7"])
    path = Path("loopback", (LOOPBACK,) * 7, 65000, 1, False)
    given = placed(path, command.settings(arguments), 7)
    assert given == {"transport": "unicast", "seeds": "127.0.0.1", "port_range": 7}
    assert placed(path, {"transport": "unicast", "seeds": "a"}, 7)["seeds"] == "a"
    assert placed(path, {"transport": "auto"}, 7) == {"transport": "auto"}
    assert group_throughput(path, Load(7, 1, 64, "fifo", 0.1, settings=given), "perf-test")["received"] > 0


@pytest.mark.long
@linux
@pytest.mark.parametrize("kind", ["plain", "aio", "c"])
def test_a_ping_pong_whose_other_side_is_gone_names_the_view_and_does_not_wait_long(monkeypatch, kind):
    path, tell = Path("loopback", (LOOPBACK,) * 2, 65000, 1, False), Process.tell

    def kill_the_other(self, **message):
        tell(self, **message)
        if "go" in message:
            others[1].kill()

    others = []
    start = Processes.start
    monkeypatch.setattr(Processes, "start", lambda *given: others.append(start(*given)) or others[-1])
    monkeypatch.setattr(Process, "tell", kill_the_other)
    began = time.monotonic()
    with pytest.raises(RunFailed, match=r"member-0: membership changed .* from view 2 \[.*\] to view \d+ \[member-0\]"):
        group_latency(path, Latency(64, "fifo", 10**7, False, kind, None, {"port": 47620}), f"perf-gone-{kind}")
    assert time.monotonic() - began < 20


def test_a_ping_pong_without_an_answer_names_the_round_and_the_view(monkeypatch):
    monkeypatch.setattr(worker, "QUIET_S", 0.5)
    left = threading.Event()
    group = SimpleNamespace(view=view(2, [member("a"), member("b")]), leave=left.set)
    watch = worker.LimitedWait(group, SimpleNamespace(closed=threading.Event()), lambda: 7)
    with pytest.raises(SeqcastError, match=r"round 7: no answer within 0.5 s, though both .* view 2 \[a, b\]"):
        with watch:
            assert left.wait(10)
            raise SeqcastError("this member has left the group")


# ---- the command ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--size", "7"], "--size"),
        (["--members", "1"], "--members"),
        (["--senders", "5"], "--senders"),
        (["--seconds", "0"], "--seconds"),
        (["--pairs", "0"], "--pairs"),
        (["--loss", "60"], "--loss"),
        (["--rounds", "5"], "--latency"),
        (["--kind", "c"], "needs --latency"),
        (["--latency", "--members", "1"], "--members"),
        (["--latency", "--wait", "spinning", "--cores", "same"], "one core for each side"),
        (["--path", "moon"], "invalid choice"),
        (["--kind", "aio", "--senders", "2"], "--kind aio has one sender: leave --senders out"),
        (["--journal", "hash", "--loss", "1"], "cannot be combined"),
        (["--journal", "hash", "--latency"], "leave --journal out"),
        (["--journal-folder", "/tmp"], "needs --journal"),
        (["--journal", "full", "--journal-folder", "/nowhere"], "not a writable directory"),
    ],
)
def test_bad_arguments_are_status_2_and_name_the_fault(arguments, says, capsys):
    with pytest.raises(SystemExit) as ended:
        run_command(command, arguments)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@linux
@pytest.mark.parametrize("arguments", [["--path", "veth"], ["--loss", "1"]])
def test_without_namespaces_runs_that_need_them_are_status_2_with_the_reason(arguments, monkeypatch, capsys):
    monkeypatch.setattr(command, "why_no_namespaces", lambda: "network namespaces need root")
    assert run_command(command, arguments) == 2
    assert "need root" in capsys.readouterr().err


def test_on_another_system_it_says_that_it_needs_linux(monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert run_command(command, ["--seconds", "1"]) == 2
    assert "needs Linux" in capsys.readouterr().err


def perf(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "seqcast", "perf", *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SHORT = ("--seconds", "0.3", "--pairs", "1", "--path", "loopback", "--json")
KEYS = {
    "members", "senders", "size", "order", "seconds", "sent_msgs_per_s", "delivered_msgs_per_s", "delivered_mb_per_s",
    "lost", "retransmitted_packets", "acks_per_packet", "cpu_us_per_msg", "rss_mb", "raw_mb_per_s", "limit_mb_per_s",
    "ratio_to_raw", "ratio_to_limit", "spread",
}  # fmt: skip


@linux
@pytest.mark.parametrize("order", ["fifo", pytest.param("sequencer", marks=pytest.mark.long)])
def test_throughput_on_loopback(order):
    figures = perf("--members", "3", *SHORT, "--order", order)
    assert figures.keys() >= KEYS
    assert figures["lost"] == 0 and figures["wrong"] == 0
    assert figures["members"] == 3 and figures["size"] == 1024 and figures["order"] == order
    assert figures["delivered_msgs_per_s"] > 100 and 0 < figures["ratio_to_limit"]


@pytest.mark.long
@linux
def test_an_interface_is_a_path_of_its_own():
    figures = perf("--members", "2", *SHORT[:4], "--json", "--interface", "127.0.0.1")
    assert figures["path"] == "127.0.0.1" and figures["other_paths"] == []
    assert figures["lost"] == 0 and figures["messages"] > 0


@linux
def test_an_interface_is_described_by_its_address_and_the_packets_that_fit():
    path = on_interface("lo", 2)
    assert path.name == "lo" and path.places == (Place((), "lo", "127.0.0.1"),) * 2
    assert 1000 < path.packet_bytes * path.segments <= 65507
    with pytest.raises(PathError, match="'nosuchinterface0'"):
        on_interface("nosuchinterface0", 2)


@pytest.mark.long
@linux
@pytest.mark.parametrize("kind", ["plain", pytest.param("aio", marks=pytest.mark.long)])
def test_loops_over_single_messages_with_all_settings_default(kind):
    figures = perf("--members", "3", *SHORT, "--kind", kind)
    assert figures["lost"] == 0 and figures["wrong"] == 0 and figures["messages"] > 0
    assert figures["kind"] == kind and figures["order"] == "total"


class Delivered:
    def __init__(self, payload):
        self.payload = payload


def tallied(payloads):
    tally = Tally(64)
    tally.take(map(Delivered, [*payloads, END]))
    return tally


def test_loops_notice_messages_that_are_missing_or_come_twice():
    turns = list(itertools.chain(*itertools.islice(Payloads(64).until(time.monotonic_ns() + 10**11), 3)))
    assert (tallied(turns).count, tallied(turns).wrong) == (3 * DISTINCT, 0)
    assert tallied(turns[:5] + turns[6:]).wrong == 2
    assert tallied(turns[:5] + turns[4:]).wrong == 3
    assert tallied([b"short", *turns[1:]]).wrong == 1


def test_a_run_in_which_membership_changed_does_not_count(monkeypatch, capsys):
    views = [1, 0]
    monkeypatch.setattr(runs, "_journaled_run", lambda *_: {"views": views.pop(0)})
    load = Load(3, 1, 64, "fifo", 1.0)
    assert group_throughput(None, load, "g") == {"views": 0}
    assert "membership changed during the run, which does not count" in capsys.readouterr().err
    views += [1, 1, 1]
    with pytest.raises(RunFailed, match="none of 3 runs counts, as membership changed during the run: is another"):
        group_throughput(None, load, "g")


@pytest.mark.long
@linux
def test_all_members_may_send():
    figures = perf("--members", "3", "--senders", "3", *SHORT)
    assert figures["lost"] == 0 and figures["wrong"] == 0 and figures["messages"] > 0


@pytest.mark.long
@linux
@pytest.mark.parametrize("payload", ["hash", "full"])
def test_journals_hold_all_that_was_delivered_and_are_gone_afterwards(payload, tmp_path):
    pytest.importorskip("pyarrow")
    figures = perf("--members", "3", *SHORT, "--journal", payload, "--journal-folder", str(tmp_path))
    assert figures["journal"] == payload and figures["journal_missing"] == 0 and figures["messages"] > 0
    assert figures["journal_ratio"] > 0 and len(figures["spread"]["journal_ratio"]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_message_that_no_journal_has_is_found(tmp_path):
    pytest.importorskip("pyarrow")
    a, b = member("a"), member("b")
    of = view(1, [a, b])
    for who, count in ((a, 30), (b, 29)):
        journal(tmp_path, who, [(of, [Row(a, 1, at, at + 1, b"x") for at in range(count)])])
    assert journal_rows(str(tmp_path)) == 59
    with pytest.raises(RunFailed, match="no such directory"):
        journal_rows(str(tmp_path / "none"))


@pytest.mark.long
@linux
def test_latency_on_loopback():
    figures = perf("--latency", "--rounds", "200", "--pairs", "1", "--path", "loopback", "--json")
    for key in ("latency_us", "raw_latency_us"):
        assert 0 < figures[key]["p50"] <= figures[key]["p99"] <= figures[key]["p999"]
    assert figures["cores"] is not None and figures["wait"] == "blocking" and figures["kind"] == "plain"


@pytest.mark.long
@linux
def test_latency_of_two_of_three_members():
    figures = perf(
        "--latency", "--members", "3", "--order", "total", "--rounds", "50", "--pairs", "1", "--path", "loopback",
        "--json",
    )  # fmt: skip
    assert 0 < figures["latency_us"]["p50"] and figures["members"] == 3


@pytest.mark.long
@linux
def test_latency_in_c():
    figures = perf("--latency", "--kind", "c", "--rounds", "100", "--pairs", "1", "--path", "loopback", "--json")
    assert 0 < figures["latency_us"]["p50"] and 0 < figures["raw_latency_us"]["p50"] and figures["kind"] == "c"


@pytest.mark.long
def test_latency_in_asyncio_has_that_without_it_beside():
    figures = perf("--latency", "--kind", "aio", "--rounds", "50", "--pairs", "1", "--path", "loopback", "--json")
    for key in ("latency_us", "raw_latency_us", "recv_latency_us"):
        assert 0 < figures[key]["p50"] <= figures[key]["p99"] <= figures[key]["p999"]
    assert figures["ratio_to_recv"]["p50"] > 0 and figures["kind"] == "aio"


@pytest.mark.long
@pytest.mark.netns
def test_nothing_is_lost_if_the_kernel_drops_datagrams_and_both_paths_are_shown():
    figures = perf("--members", "3", "--seconds", "0.5", "--pairs", "1", "--loss", "1", "--json")
    assert figures["path"] == "loopback" and figures["other_paths"][0]["path"] == "veth-segmented"
    for path in (figures, *figures["other_paths"]):
        assert path["lost"] == 0 and path["wrong"] == 0 and path["ratio_to_loss_free"] > 0
    assert figures["other_paths"][0]["retransmitted_packets"] > 0


def has_io_thread(pid):
    """A member that joins, or has joined."""
    return any(name.read_text().startswith("seqcast-io") for name in Folder(f"/proc/{pid}/task").glob("*/comm"))


@pytest.mark.long
@linux
def test_ctrl_c_ends_all_members():
    child = subprocess.Popen(
        [sys.executable, "-m", "seqcast", "perf", "--seconds", "60", "--path", "loopback", "--members", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    members: list[str] = []
    until = time.monotonic() + 60
    while len(members) < 2 and time.monotonic() < until:
        time.sleep(0.1)
        with contextlib.suppress(PathError):  # no child yet
            members = call("ps", "-o", "pid=", "--ppid", str(child.pid)).split()
    wait_until(lambda: all(has_io_thread(pid) for pid in members))
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130 and "interrupted" in err and "Traceback" not in err
    assert len(members) == 2
    for pid in members:
        with pytest.raises(PathError):
            call("ps", "-o", "pid=", "-p", pid)


def test_at_a_fixed_rate_a_stall_counts_for_all_that_it_delays(monkeypatch):
    class Group:
        """Answers at once, but for one question that takes 200 ms."""

        view = None

        def __init__(self):
            self.sent, self.answers = 0, queue.SimpleQueue()

        def send(self, payload):
            self.sent += 1
            if self.sent == 50:
                time.sleep(0.2)
            self.answers.put(payload)

        def send_many(self, payloads):
            assert not payloads

        def counters(self):
            return {}

        def leave(self):
            self.answers.put(None)

        def __iter__(self):
            while (payload := self.answers.get()) is not None:
                yield SimpleNamespace(payload=payload)

    said = {}
    monkeypatch.setattr(worker, "join", lambda task, commands, **more: Group())
    monkeypatch.setattr(worker, "say", lambda event, **values: said.update({event: values}))
    monkeypatch.setattr(worker, "LimitedWait", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(worker, "Commands", lambda: SimpleNamespace(next=dict))
    worker.latency_at_rate({"rate": 1000, "rounds": 500, "warm_rounds": 10, "size": 8})
    assert said["done"]["p99"] > 70_000, "each of 200 questions was late, up to 200 ms; half a trip in us"
    assert said["done"]["p50"] < 50_000


MATRIX = ["perf", "--matrix", "sizes=64,1024:orders=fifo,total", "--path", "loopback", "--pairs", "1"]


def test_a_matrix_that_was_interrupted_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    measured, out = [], str(tmp_path / "figures.jsonl")

    def measure(arguments):
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append((arguments.size, arguments.order, arguments.members))
        return [{"path": "loopback", "size": arguments.size, "lost": 0, "wrong": 0}]

    monkeypatch.setattr(command, "measure", measure)
    with pytest.raises(KeyboardInterrupt):
        command.main(command.parse([*MATRIX[1:], "--out", out]))
    assert measured == [(64, "fifo", 4), (64, "total", 4)]
    done, measured[:] = list(measured), []
    assert command.main(command.parse([*MATRIX[1:], "--out", out, "--json"])) == 0
    assert measured == [(1024, "fifo", 4), (1024, "total", 4)] and done
    rows = json.loads(capsys.readouterr().out)
    assert [row["combination"] for row in rows] == [
        {"size": size, "order": order} for size in (64, 1024) for order in ("fifo", "total")
    ]
    assert len((tmp_path / "figures.jsonl").read_text().splitlines()) == 4


def test_a_matrix_resumes_only_with_the_options_of_its_file(tmp_path, monkeypatch, capsys):
    measured, file = [], tmp_path / "figures.jsonl"

    def measure(arguments):
        measured.append((arguments.size, arguments.order, arguments.members))
        return [{"path": "loopback", "lost": 0, "wrong": 0}]

    def status(*options):
        return command.main(command.parse(["--matrix", *options, "--out", str(file), "--json"]))

    monkeypatch.setattr(command, "measure", measure)
    assert status("sizes=64", "--members", "2") == 0
    kept, _ = file.read_text(), capsys.readouterr()
    assert status("sizes=64,1024", "--members", "2", "--interface", "eth9", "--pairs", "9") == 2
    says = "figures of other options: --interface none (now eth9), --pairs 5 (now 9). Give those, or another --out"
    assert f"{file} has {says}" in capsys.readouterr().err and file.read_text() == kept
    assert status("sizes=64:orders=total,fifo:members=2,3") == 0, "options that vary are told apart"
    assert measured == [(64, "fifo", 2), (64, "total", 2), (64, "total", 3), (64, "fifo", 3)]
    rows = json.loads(capsys.readouterr().out)
    assert [tuple(row["combination"].values()) for row in rows] == [
        (64, order, members) for order in ("total", "fifo") for members in (2, 3)
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--matrix", "sizes=64"], "--matrix and --out need each other"),
        (["--matrix", "speeds=1", "--out", "x"], "'speeds=1' is not one of"),
        (["--matrix", "sizes=1:sizes=2", "--out", "x"], "each at most once"),
        (["--matrix", "sizes=a", "--out", "x"], "sizes are numbers"),
        (["--matrix", "orders=best", "--out", "x"], "orders are of"),
        (["--matrix", "transports=auto,tcp", "--out", "x"], "transports are of auto, multicast, unicast, not 'tcp'"),
        (["--matrix", "members=1", "--out", "x"], "--members must be from 2"),
        (["--rate", "5"], "need --latency"),
        (["--cores", "same"], "need --latency"),
        (["--wait", "spinning"], "need --latency"),
        (["--latency", "--hosts", "a,b", "--cores", "same"], "--cores same is for a ping-pong on this machine"),
        (["--latency", "--rate", "0x"], "invalid int"),
        (["--latency", "--rate", "-1"], "--rate must be from 1"),
        (["--latency", "--kind", "aio", "--rate", "10"], "with plain loops"),
    ],
)
def test_mistakes_in_a_matrix_or_a_rate_are_named(options, says, capsys):
    with pytest.raises(SystemExit) as error:
        command.parse(options)
    assert error.value.code == 2 and says in capsys.readouterr().err


def test_a_file_that_is_not_a_matrix_is_named(tmp_path, capsys):
    other = tmp_path / "other"
    other.write_text("[1]\n")
    assert command.main(command.parse([*MATRIX[1:], "--out", str(other)])) == 2
    assert "is not a file of --matrix" in capsys.readouterr().err


def test_a_matrix_varies_the_transport():
    wanted = matrix.combinations("sizes=64:transports=auto,unicast")
    assert list(wanted) == [(("size", 64), ("transport", "auto")), (("size", 64), ("transport", "unicast"))]
