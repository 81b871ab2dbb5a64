"""``seqcast perf --hosts``: members on several hosts, which here are network namespaces."""

import importlib
import json
import os
import re
import subprocess
import sys
import time
import types

import pytest
from members import LIMIT_S, wait_until
from netns import network, python
from project import ROOT

from seqcast import cli
from seqcast.perf import arguments, command, hosts, report, runs
from seqcast.perf.paths import Path, PathError, Place
from seqcast.perf.processes import Process, Processes, RunFailed, addressed
from seqcast.perf.runs import everyone

__all__ = ["network"]
netns = pytest.mark.netns
TASK = {"role": "listener", "name": "a", "cluster": "perf-hosts-test", "members": 1, "settings": {"interface": "eth0"}}


def perf(network, *options):
    names = ",".join(place.namespace for place in network[:2])
    command = [sys.executable, "-m", "seqcast", "perf", "--hosts", names, "--via", "ip netns exec {host}"]
    command += ["--json", "--anyway"]  # though other tests run
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=LIMIT_S)


@pytest.mark.long
@netns
def test_throughput_between_two_hosts(network):
    done = perf(network, "--interface", "eth0", "--seconds", "0.5", "--pairs", "1")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["path"] == "hosts" and said["members"] == 2 and said["lost"] == said["wrong"] == 0
    assert 0 < said["delivered_msgs_per_s"] < 1.2 * said["sent_msgs_per_s"]
    names = {place.namespace for place in network[:2]}
    assert all(re.fullmatch(r"eth0, veth, MTU 1500, 10,000 Mb/s(, rings .*)?", nic) for nic in said["nics"].values())
    assert set(said["nics"]) == set(said["hosts"]) == set(said["dropped"]) == set(said["throttled"]) == names
    assert said["throttled_s"] <= sum(said["throttled"].values()) + 0.001
    assert all(set(places) == {"socket", "softnet", "nic", "qdisc"} for places in said["dropped"].values())
    assert said["raw_mb_per_s"] > 10 and said["limit_mb_per_s"] > 10
    assert 0.001 < said["ratio_to_raw"] < 10  # of the same run, so that a busy machine slows both
    assert 0 < said["ratio_to_line"] == pytest.approx(said["delivered_mb_per_s"] * 8 / 10_000, abs=0.001)


@pytest.mark.parametrize(("busy", "counts"), [(0.09, True), (0.11, False)])
def test_a_host_that_other_programs_keep_busy_is_measured_only_anyway(monkeypatch, busy, counts):
    about = {"address": "10.0.0.1", "machine": "8 cores", "busy": busy}
    monkeypatch.setattr(Processes, "start", lambda *_: types.SimpleNamespace(said=about))
    (place,) = hosts.places(["a"], "ssh {host}", "", 1, "")
    assert addressed([place])[0].address == "10.0.0.1"
    if counts:
        assert addressed([place], anyway=False) == addressed([place])
    else:
        with pytest.raises(PathError, match=r"^other programs use 0.11 of a core on a, .* --anyway \(SC1206\)$"):
            addressed([place], anyway=False)


@pytest.mark.parametrize("wait", ["blocking", "spinning"])
def test_a_ping_pong_between_hosts_does_not_ask_for_cores_of_this_machine_and_names_theirs(monkeypatch, capsys, wait):
    def start(_, place, _task):
        cores = 8 if place.host == "c" else 4
        return types.SimpleNamespace(said={"address": "10.0.0.1", "machine": f"{cores} cores", "busy": 0.0})

    figures = dict.fromkeys(report.PERCENTILES, 1.0)
    monkeypatch.setattr(arguments, "usable_cores", lambda: [0])
    monkeypatch.setattr(Processes, "start", start)
    monkeypatch.setattr(command, "group_latency", lambda *_: figures)
    monkeypatch.setattr(command, "bare_latency", lambda *_: figures)
    options = ["--latency", "--hosts", "a,b,c", "--members", "3", "--pairs", "1", "--wait", wait]
    assert command.main(command.parse(options)) == 0
    _, machine, *_ = heading = capsys.readouterr().out.splitlines()
    assert "not pinned to cores" in heading[0] and machine == "a, b: 4 cores; c: 8 cores"
    assert command.main(command.parse([*options, "--json"])) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["machine"] == machine and said["cores"] is None


def test_the_busy_cores_of_a_host_are_counted_without_idle_waiting_and_stolen_time(tmp_path):
    (stat := tmp_path / "proc" / "stat").parent.mkdir()
    hertz = os.sysconf("SC_CLK_TCK")

    def later(seconds):
        more = (seconds * hertz * each for each in (0.25, 0.25, 0.5, 7, 7, 0.25, 0.25, 7))
        stat.write_text(f"cpu  {' '.join(str(round(100 + each)) for each in more)} 0 0\ncpu0 1 1\n")

    later(0)
    assert hosts.busy_cores(2.0, tmp_path, later) == pytest.approx(1.5)
    assert hosts.busy_cores(2.0, tmp_path / "none", later) == 0.0


@pytest.mark.parametrize(("drained", "agree", "tries"), [(0.019, 0.02, 1), (0.021, 0.02, 3), (9.0, 0.0, 1)])
def test_a_run_whose_last_message_came_late_is_void(monkeypatch, capsys, drained, agree, tries):
    made = []
    monkeypatch.setattr(runs, "_journaled_run", lambda *a: made.append(a) or {"views": 0, "drained": drained})
    load = runs.Load(2, 1, 1024, "fifo", 0.1, agree=agree)
    path = Path("hosts", (), 0, 1, False)
    if tries == 1:
        assert runs.group_throughput(path, load, "c")["drained"] == drained
    else:
        with pytest.raises(RunFailed, match=r"none of 3 runs counts, as the last message came 2.1 % of"):
            runs.group_throughput(path, load, "c")
    assert len(made) == tries and capsys.readouterr().err.count("does not count") == tries - (tries == 1)


@netns
@pytest.mark.long
def test_hosts_by_unicast_find_each_other_by_addresses_though_their_names_do_not_resolve(network):
    done = perf(network, "--transport", "unicast", "--seconds", "0.2", "--pairs", "1")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["delivered_msgs_per_s"] > 0 and said["messages"] > 0 and said["lost"] == said["wrong"] == 0
    assert said["raw_mb_per_s"] > 1 and said["limit_mb_per_s"] > 1
    assert said["ratio_to_line"] > 0, "of the card by which the hosts reach each other"


@netns
@pytest.mark.long
def test_the_bench_of_hosts_compares_them_with_the_same_namespaces(monkeypatch, capsys):
    """bench/hosts.py, its JSON, and each pair's ratio, which the order of the two runs does not turn round."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    bench, made = importlib.import_module("hosts"), []
    run = bench.group_throughput

    def counted(path, load, cluster):
        made.append((path.name, [place.address for place in path.places]))
        if len(made) <= 2:  # real runs
            return run(path, load, cluster)
        return {"delivered_msgs_per_s": 950.0 if path.name == "hosts" else 1000.0}

    monkeypatch.setattr(bench, "group_throughput", counted)
    monkeypatch.setattr("sys.argv", "hosts.py --pairs 4 --seconds 0.05 --sizes 64".split())
    assert bench.main() == 0
    (row,) = json.loads(capsys.readouterr().out)["between_hosts"]
    assert [name for name, _ in made] == ["hosts", "veth", "veth", "hosts"] * 2
    assert {tuple(addresses) for _, addresses in made} == {("10.99.0.1", "10.99.0.2")}
    assert row["msgs_per_s"] > 0 and row["quartiles"][0] <= 0.95 <= row["quartiles"][1]


class Sends(Exception):
    """Ends a measurement at the start of its sender."""


@pytest.mark.parametrize("members", [2, 3])
def test_plain_c_sends_and_asks_from_the_hosts_from_which_the_group_does(monkeypatch, members):
    asked, settings = [], {"transport": "unicast"}

    def start(_, place, task, *_more):
        if task.get("sends") or task["role"] in ("send", "ping", "latency"):
            asked.append((place.host, task["settings"].get("to")))
            raise Sends
        return types.SimpleNamespace(expect=lambda *_: {})

    monkeypatch.setattr(Processes, "start", start)
    monkeypatch.setattr(runs, "WARM_S", 0.0)
    places = tuple(Place((), "eth0", f"10.0.0.{host}", host=host) for host in "123"[:members])
    path = Path("hosts", places, 1472, 1, False)
    load = runs.Load(members, 1, 1024, "fifo", 0.1, settings=settings)
    latency = runs.Latency(64, "fifo", 10, False, "plain", None, settings, members)
    for run in (
        lambda: runs.bare_run(path, load, limit=False, window_bytes=1 << 16),
        lambda: runs.group_throughput(path, load, "c"),
        lambda: runs.bare_latency(path, latency),
        lambda: runs.group_latency(path, latency, "c"),
    ):
        with pytest.raises(Sends):
            run()
    (sender, to), (same, _), (pinger, pinged), (asker, _) = asked
    assert sender == same == "2" and to == ["10.0.0.1", "10.0.0.3"][: members - 1]
    assert {pinger, pinged[0][-1]} == set("123"[members - 2 : members]) and asker in (pinger, pinged[0][-1])


@pytest.mark.parametrize(("lost", "says"), [(70, "a receiver got no datagram"), (69, "lost 69 bytes")])
def test_a_baseline_that_loses_all_is_told_from_one_that_loses_some(monkeypatch, lost, says):
    monkeypatch.setattr(runs, "_bare_run", lambda *_: [{"lost": lost, "sent": 70}])
    path = Path("loopback", (Place((), "lo", "127.0.0.1"),) * 2, 1472, 1, False)
    with pytest.raises(RunFailed, match=says):
        runs.bare_run(path, runs.Load(2, 1, 1024, "fifo", 0.1), limit=False, window_bytes=1 << 16)


@pytest.mark.long
@netns
def test_latency_between_two_hosts(network):
    done = perf(network, "--latency", "--rounds", "200", "--pairs", "1")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert 0 < said["latency_us"]["p50"] <= said["latency_us"]["p99"] and said["cores"] is None
    assert 0 < said["raw_latency_us"]["p50"] <= said["raw_latency_us"]["p99"]


@pytest.mark.long
@netns
def test_latency_at_a_fixed_rate_between_two_hosts(network):
    done = perf(network, "--latency", "--rate", "500", "--rounds", "400", "--pairs", "1")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert 0 < said["latency_us"]["p50"] <= said["latency_us"]["p999"] <= said["latency_us"]["max"]
    assert said["rate"] == 500
    assert "raw_latency_us" not in said


DROPS = "import json, sys; from seqcast.system import drops; print(json.dumps(drops(sys.argv[1])))"
FULL_SOCKET = """
import socket
full = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
full.bind(("127.0.0.1", 0))
for _ in range(100):
    full.sendto(bytes(1000), full.getsockname())
"""
FULL_FOR_LONG = FULL_SOCKET + """
import time
while True:
    full.sendto(bytes(1000), full.getsockname())
    time.sleep(0.001)
"""
FULL_QUEUE = """
import socket, subprocess
subprocess.run("tc qdisc add dev eth0 root tbf rate 8kbit burst 1600 limit 3200".split(), check=True)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("10.99.0.1"))
    for _ in range(50):
        sender.sendto(bytes(1000), ("239.1.2.3", 9))
"""
FULL_RING = """
import fcntl, socket, struct, subprocess
for command in ("tuntap add dev tun0 mode tun", "address add 10.98.0.1/24 dev tun0", "link set tun0 up txqueuelen 16"):
    subprocess.run(["ip", *command.split()], check=True)
with open("/dev/net/tun", "r+b", buffering=0) as card, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    fcntl.ioctl(card, 0x400454CA, struct.pack("16sH22x", b"tun0", 0x1001))
    for _ in range(100):
        sender.sendto(bytes(1000), ("10.98.0.2", 9))
"""
"""A card that nobody drains: the ring of a tunnel. (The receive ring of a real card cannot be filled on purpose.)"""
REPAIRS = {"qdisc": "tc qdisc delete dev eth0 root", "nic": "ip link delete tun0"}


@netns
@pytest.mark.parametrize(("place", "fault"), [("socket", FULL_SOCKET), ("qdisc", FULL_QUEUE), ("nic", FULL_RING)])
def test_drops_of_a_host_are_named_at_their_place_and_at_no_other(network, place, fault):
    here, card = network[0], "tun0" if place == "nic" else "eth0"
    try:
        before = json.loads(here.run(sys.executable, "-c", DROPS, card))
        here.run(sys.executable, "-c", fault)
        after = json.loads(here.run(sys.executable, "-c", DROPS, card))
    finally:
        if place in REPAIRS:
            here.run(*REPAIRS[place].split())
    more = {each: after[each] - before[each] for each in after}
    softnet = more.pop("softnet")  # of the whole machine, not of one namespace
    assert more[place] >= 20 and softnet >= 0 and not any(more[each] for each in more if each != place), more


@pytest.mark.long
@netns
def test_drops_of_the_bridge_between_hosts_are_named_as_lost_between_them(network):
    bridge = Place(("ip", "netns", "exec", network[0].bridge), "", "")
    ports = ", ".join(place.port for place in network[:2])
    rules = (
        "add table netdev lossy; "
        f"add chain netdev lossy in {{ type filter hook ingress devices = {{ {ports} }} priority 0; }}; "
        "add rule netdev lossy in meta protocol ip udp length > 200 numgen random mod 100 < 2 counter drop"
    )
    bridge.run("nft", rules)
    try:
        done = perf(network, "--interface", "eth0", "--seconds", "0.2", "--pairs", "1")
    finally:
        bridge.run("nft", "delete table netdev lossy")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["dropped_between"] > 5 and said["lost"] == 0
    assert sum(places["qdisc"] + places["nic"] for places in said["dropped"].values()) == 0
    assert "raw_mb_per_s" not in said and "so there is no baseline" in done.stderr


@pytest.mark.long
@netns
def test_drops_of_the_queue_of_the_host_that_sends_are_named_there(network):
    sender = network[1]
    sender.run(*"tc qdisc add dev eth0 root tbf rate 200mbit burst 128kb limit 128kb".split())
    done = perf(network, "--interface", "eth0", "--seconds", "0.3", "--pairs", "1")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    dropped = {host: places["qdisc"] for host, places in said["dropped"].items()}
    assert dropped[sender.namespace] > 0 == dropped[network[0].namespace] and said["lost"] == 0
    assert said["delivered_mb_per_s"] < 30, "of 25 MB/s"


@pytest.mark.long
@netns
def test_drops_of_a_full_socket_of_a_host_are_named_there(network):
    """Of another program: the kernel counts those of all sockets of the host."""
    receiver = network[0]
    with python(receiver, "-c", FULL_FOR_LONG) as full:
        done = perf(network, "--interface", "eth0", "--seconds", "0.3", "--pairs", "1")
        full.kill()
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    dropped = {host: places["socket"] for host, places in said["dropped"].items()}
    assert dropped[receiver.namespace] >= 20 > dropped[network[1].namespace], dropped


BARE = {
    "group": "239.255.77.78", "port": 47990, "limit": False, "packet_bytes": 1472, "segments": 1, "gro": False,
    "message_bytes": 1024, "receivers": 1, "window_bytes": 1 << 18, "ring_bytes": 1 << 20, "interface": "eth0",
}  # fmt: skip


@pytest.mark.long
@netns
def test_workers_at_full_load_whose_controller_is_gone_end_within_two_seconds(network):
    """Two members and two of plain C, in the middle of a run that would take a minute."""
    one, other = hosts.places([place.namespace for place in network[:2]], "ip netns exec {host}", "", 2, "eth0")
    task = TASK | {"role": "member", "members": 2, "size": 1024}
    with Processes() as processes:
        members = [
            processes.start(place, task | {"name": name, "sends": sends, "receives": not sends, "sender": 0})
            for place, name, sends in ((one, "a", True), (other, "b", False))
        ]
        for event in ("joined", "ready"):
            everyone(members, event, LIMIT_S)
        for each in members:
            each.tell(seconds=60)
        receiver = processes.start(other, {"role": "receive", "index": 0, "settings": BARE})
        receiver.expect("ready", LIMIT_S)
        processes.start(
            one, {"role": "send", "settings": BARE, "ports": [47990], "warm_ns": 10**8, "measure_ns": 60 * 10**9}
        )
        time.sleep(0.5)
        assert all(each._child.poll() is None for each in processes.all)
        began = time.monotonic()
        for each in processes.all:
            each.close()  # as a lost connection does
        wait_until(lambda: all(each._child.poll() is not None for each in processes.all))
        assert time.monotonic() - began < 2.0 and {each._child.returncode for each in processes.all} == {0}


def test_another_release_on_a_host_is_named():
    hosts.check("far", hosts.about(""))
    says = r"^far has seqcast of protocol 1, this machine \d+: install the same \(SC1206\)$"
    with pytest.raises(PathError, match=says):
        hosts.check("far", {**hosts.about(""), "protocol": 1})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--hosts", "a,a"], "must name each host once"),
        (["--hosts", "a,"], "must name each host once"),
        (["--hosts", "a,b", "--via", "ssh"], "must have {host} in it"),
        (["--hosts", "a,b", "--via", "ssh 'x {host}"], "No closing quotation"),
        (["--anyway"], "--via, --python and --anyway need --hosts"),
        (["--via", "ssh {host}"], "--via, --python and --anyway need --hosts"),
        (["--python", "python3"], "--via, --python and --anyway need --hosts"),
        (["--hosts", "a,b", "--loss", "1"], "leave --path, --loss and --journal out"),
    ],
)
def test_mistakes_are_one_line(capsys, options, says):
    assert cli.main(["perf", *options]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


def test_a_host_that_cannot_be_reached_is_named(capsys):
    status = cli.main(["perf", "--hosts", "a,b", "--via", "sh -c 'echo {host} >&2; exit 7'", "--pairs", "1"])
    err = capsys.readouterr().err
    assert status == 1 and "a worker on a ended with status 7: a. `sh -c 'echo a >&2; exit 7' " in err
    assert "-m seqcast --version` must print seqcast's release and end, and pass on its standard input" in err


def test_a_command_that_cannot_be_started_is_named(capsys):
    assert cli.main(["perf", "--hosts", "a,b", "--via", "/no/such {host}", "--pairs", "1"]) == 2
    err = capsys.readouterr().err
    assert "/no/such cannot be started: No such file" in err and "leads to a" in err and err.count("\n") == 1


def led(tmp_path, text):
    """A place to which a script leads."""
    (script := tmp_path / "via").write_text(f"#!/bin/sh\nshift\n{text}\n")
    script.chmod(0o700)
    (place,) = hosts.places(["far"], f"{script} {{host}}", "", 1, "")
    return place


GREETING = r"""printf 'Gr\374\337e\n{not JSON}\n{"of": "another"}\nLast login: today\n'
cd /; exec env -i PATH="$PATH" sh -c "$*"  # as ssh does"""


def test_a_host_that_greets_drops_the_environment_and_changes_the_directory_is_measured(tmp_path):
    (place,) = addressed([led(tmp_path, GREETING)])
    assert place.host == "far"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exec >&-; sleep 600 & wait", "x on far closed its output, but goes on. `"),
        ("echo no room; sleep 600", "x on far did not report 'hello' within 0.2 s: the process, or "),
        ('exec "$@" < /dev/null', "x on far ended with status 0: no message. `"),
    ],
)
def test_a_command_that_leads_to_no_worker_says_so_and_leaves_none_behind(tmp_path, monkeypatch, script, says):
    if "no room" in script:
        monkeypatch.setattr("seqcast.perf.processes.HELLO_S", 0.2)
    with Processes(leave_s=0.1) as processes, pytest.raises(RunFailed) as raised:
        processes.start(led(tmp_path, script), {"role": "hello", "name": "x"})
    assert says in str(raised.value) and "change --via or --python" in str(raised.value)
    (child,) = (each._child for each in processes.all)
    assert child.poll() is not None
    with pytest.raises(ProcessLookupError):  # the processes of the worker
        wait_until(lambda: os.killpg(child.pid, 0))


def test_a_process_that_dies_ends_the_wait_for_another_one():
    failing = """read _; printf '{"event": "%s", "text": "no"}\\n' ready failed; exit 1"""
    texts = ("sleep 600", "read _; echo gone >&2; exit 3", failing, "exit 0")
    waits, ends, fails, over = (Process(["sh", "-c", text], f"p{i}") for i, text in enumerate(texts))
    try:
        for each in (ends, fails):
            each.tell()
        with pytest.raises(RunFailed, match=r"ended with status 3: gone \(SC1206\)$"):
            waits.expect("done", LIMIT_S, [over, waits, ends])
        with pytest.raises(RunFailed, match=r"^p2: no \(SC1206\)$"):
            waits.expect("done", LIMIT_S, [over, fails])
    finally:
        for each in (waits, ends, fails, over):
            each.kill()


@pytest.mark.parametrize("ends", [Process.kill, lambda process: process.wait(0.0)])
def test_a_process_that_is_killed_ends_the_wait_though_one_that_it_started_holds_its_output(ends):
    waits, killed = Process(["sleep", "600"], "p0"), Process(["sh", "-c", "sleep 600 & kill -9 $$"], "p1")
    try:
        began = time.monotonic()
        with pytest.raises(RunFailed, match=r"^p1 ended with status -9: no message \(SC1206\)$"):
            waits.expect("done", LIMIT_S, [killed])
        assert time.monotonic() - began < LIMIT_S
    finally:
        waits.kill()
        ends(killed)
    with pytest.raises(ProcessLookupError):  # the processes of the worker
        wait_until(lambda: os.killpg(killed._child.pid, 0))
