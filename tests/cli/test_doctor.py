"""``seqcast doctor``: each planted fault has exactly its code, and a healthy machine or pair has none."""

import contextlib
import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from halves import quick
from netns import lonely, network, python, segmented
from project import ROOT

import seqcast.codes as codes
from seqcast import cli
from seqcast.config import Config, identities, keys
from seqcast.doctor import local, path, seeds
from seqcast.doctor.datagrams import pack, unpack
from seqcast.doctor.keys import MEMORY_BYTES, look
from seqcast.doctor.lines import Line
from seqcast.doctor.path import places_of
from seqcast.net.discovery import Discovery
from seqcast.perf.paths import call
from seqcast.system import drops

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads files of Linux")
netns = pytest.mark.netns
__all__ = ["lonely", "network", "segmented"]


def doctor(place, *options, before=()):
    """Level and code of each line with a code, and all lines; ``before``: goes before the command."""
    command = [*place.prefix, *before, sys.executable, "-m", "seqcast", "doctor", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    said = json.loads(done.stdout)
    assert said["ok"] == (done.returncode == 0)
    return {(line["level"], line["code"]) for line in said["lines"] if line["code"]} - MACHINE, said["lines"]


MACHINE = {("note", "SC1007"), ("WARN", "SC1112"), ("WARN", "SC1110"), ("WARN", "SC1111"), ("WARN", "SC1104")}
"""Conditions of the machine that runs the tests, which tests below plant in other ways."""


@contextlib.contextmanager
def rules(place, *lines):
    """Rules of a firewall; the table has the chains ``in`` and ``out``."""
    place.run(
        "nft",
        "add table inet sick; add chain inet sick in { type filter hook input priority 0; }; "
        "add chain inet sick out { type filter hook output priority 0; }; "
        + "; ".join(f"add rule inet sick {line}" for line in lines),
    )
    try:
        yield
    finally:
        place.run("nft", "delete table inet sick")


@pytest.fixture
def pair(network):
    """Two places; on the second one the doctor listens."""
    here, there = network[:2]
    listener = python(there, "-m", "seqcast", "doctor", "--listen")
    assert "listens" in listener.stdout.readline()
    yield here, there
    listener.kill()
    listener.communicate()


@pytest.mark.long
@netns
def test_a_healthy_pair_has_no_finding(pair):
    here, there = pair
    found, lines = doctor(here, "--with", there.address)
    assert found == set(), lines
    words = {line["word"] for line in lines}
    assert {"interface", "buffers", "unicast", "multicast", "path", "burst"} <= words
    assert "120 packets, sent in 3 calls there, arrive in 3 receives" in {line["fact"] for line in lines}


@pytest.mark.long
@netns
def test_runs_on_new_healthy_pairs_raise_no_alarm_and_a_fault_would(network, monkeypatch, capsys):
    """bench/doctor_alarms.py, which does this 50 times; ``network``: namespaces can be made here."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import doctor_alarms

    monkeypatch.setattr("sys.argv", ["doctor_alarms.py", "--runs", "2"])
    status = doctor_alarms.main()
    assert (status, json.loads(capsys.readouterr().out)) == (0, {"doctor_runs": 2, "with_alarms": 0, "alarms": []})

    def plant(place):
        rule = "add rule inet sick in ip daddr 224.0.0.0/4 udp dport 47321 drop"
        chain = "add chain inet sick in { type filter hook input priority 0; }"
        place.run("nft", f"add table inet sick; {chain}; {rule}")

    run = doctor_alarms.run
    monkeypatch.setattr(doctor_alarms, "run", lambda: run(plant))
    monkeypatch.setattr("sys.argv", ["doctor_alarms.py", "--runs", "1"])
    assert doctor_alarms.main() == 1
    assert [[line["code"] for line in each] for each in json.loads(capsys.readouterr().out)["alarms"]] == [["SC2312"]]


FAULTS = {
    "in": (["in ip daddr 224.0.0.0/4 udp dport 47321 drop"], {("FAIL", "SC2312")}),
    "out": (["out ip daddr 224.0.0.0/4 udp dport 47321 drop"], {("FAIL", "SC2311")}),
    "both": (
        ["in ip daddr 224.0.0.0/4 udp dport 47321 drop", "out ip daddr 224.0.0.0/4 udp dport 47321 drop"],
        {("FAIL", "SC2310")},
    ),
    "large": (["in ip protocol udp ip length > 1450 drop"], {("WARN", "SC2321")}),
    "large and told": (["in ip protocol udp ip length > 1450 drop"], {("WARN", "SC2321")}),
    "loss": (["in ip saddr 10.99.0.2 udp sport 47320 numgen inc mod 50 == 0 drop"], {("WARN", "SC2302")}),
    "deaf": (["in udp sport 47320 drop"], {("FAIL", "SC2301")}),
}


@netns
@pytest.mark.parametrize("fault", quick([("in",), ("large",), ("loss",)], FAULTS))
def test_a_planted_fault_of_the_path_has_exactly_its_code(pair, fault):
    here, there = pair
    planted, expected = FAULTS[fault]
    if fault == "large and told":  # by ICMP, which taught the kernel the size for this route
        here.run("ip", "route", "add", f"{there.address}/32", "dev", "eth0", "mtu", "1450")
    with rules(here, *planted):
        found, lines = doctor(here, "--with", there.address)
    assert found == expected, lines
    if fault.startswith("large"):
        why = "as ICMP says" if fault == "large and told" else "and no ICMP says so"
        assert any(f"1422 bytes pass, 1444 do not, {why}" in line["fact"] for line in lines), lines


@netns
@pytest.mark.long
def test_a_path_between_jumbo_frames_and_ethernet_is_found(pair):
    here, there = pair
    for place in pair:
        call("ip", "-n", place.bridge, "link", "set", place.port, "mtu", "9000")
        place.run("ip", "link", "set", "eth0", "mtu", "9000")
    with rules(here, "in ip protocol udp ip length > 8500 drop"):
        found, lines = doctor(here, "--with", there.address)
    assert found == {("WARN", "SC2321")} and "8472 bytes pass, 8872 do not" in str(lines), lines


@pytest.fixture
def pair6(pair):
    """The same with IPv6 addresses, and that of the second."""
    for number, place in enumerate(pair, 1):
        place.run("sysctl", "-q", "-w", "net.ipv6.conf.eth0.disable_ipv6=0")
        place.run("ip", "address", "add", f"fd99::{number}/64", "dev", "eth0", "nodad")
        place.run("ip", "-6", "route", "replace", "multicast", "ff00::/8", "dev", "eth0", "table", "local")
    return pair[0], "fd99::2"


@pytest.mark.long
@netns
def test_a_healthy_pair_of_ipv6_has_no_finding(pair6):
    here, there = pair6
    found, lines = doctor(here, "--with", f"[{there}]:47320")
    assert found == set(), lines
    facts = {line["word"]: line["fact"] for line in lines}
    assert "fd99::1" in facts["interface"] and facts["multicast"].startswith("ff15::")
    assert "1452 bytes of payload pass" in facts["path"]


@netns
@pytest.mark.parametrize("fault", ["in", pytest.param("large", marks=pytest.mark.long)])
def test_a_planted_fault_of_an_ipv6_path_has_exactly_its_code(pair6, fault):
    here, there = pair6
    planted, expected = {
        "in": ("in ip6 daddr ff00::/8 udp dport 47321 drop", {("FAIL", "SC2312")}),
        "large": ("in ip6 nexthdr udp ip6 length > 1400 drop", {("WARN", "SC2321")}),
    }[fault]
    with rules(here, planted):
        found, lines = doctor(here, "--with", there)
    assert found == expected, lines


@netns
def test_a_burst_that_the_network_loses_is_a_finding(pair):
    here, there = pair
    with rules(there, "in udp dport 47320 ip length > 1000 numgen random mod 100 < 5 drop"):
        found, lines = doctor(here, "--with", there.address)
    assert found == {("WARN", "SC2331")}, lines
    facts = {line["word"]: line["fact"] for line in lines}
    assert re.search(r" of 2,000 lost: .*\d in the network$", facts["burst"]) and "rate" not in facts


@netns
@pytest.mark.long
def test_the_rate_that_a_path_carries_is_found_and_the_place_of_losses_beyond(pair):
    here, there = pair
    narrow = f"tc qdisc add dev {there.port} root tbf rate 30mbit burst 32kb limit 32kb"
    call("ip", "netns", "exec", there.bridge, *narrow.split())
    found, lines = doctor(here, "--with", there.address)
    (rate,) = (line["fact"] for line in lines if line["word"] == "rate")
    said = re.fullmatch(r"at least (\d+) Mb/s; at (\d+) Mb/s [\d,]+ of [\d,]+ lost: .* in the network", rate)
    assert said and found == set() and 10 < int(said[1]) <= 35 < int(said[2]) <= 55, lines


def test_a_thread_of_a_burst_that_did_not_run_for_a_while_makes_up_for_little_time(monkeypatch):
    """Else a path that carries the rate loses the datagrams that were late, and is blamed."""
    now, runs = [100.0], []

    def sleep(seconds):
        runs.append(0)
        now[0] += 0.1 if len(runs) == 500 else seconds

    monkeypatch.setattr(path, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    here, runs = object.__new__(path.Path), [0]
    monkeypatch.setattr(here, "_token", "", raising=False)
    monkeypatch.setattr(here, "_send", lambda _: runs.append(runs.pop() + 1))
    monkeypatch.setattr(here, "_counts", lambda: {"burst": sum(runs)})
    flood = here._flood(1000, 2000, 1.0)
    assert flood.sent == 2000 == sum(runs) and flood.lost == 0 and 1.09 < flood.took_s < 1.11
    assert max(runs) <= 10


@pytest.mark.parametrize("size", [548, 1472, 8972])
def test_a_burst_has_one_rate_whatever_packets_the_path_carries(size, monkeypatch):
    made = []
    here = object.__new__(path.Path)
    monkeypatch.setattr(here, "interface", "eth0", raising=False)
    lost = path._Flood(2000, 24, 1, {"at the receiving socket": 0, "in the network": 2000})
    monkeypatch.setattr(here, "_flood", lambda *a: made.append(a) or lost)
    list(here._rates(size))
    ((each, datagrams, seconds),) = made
    assert each <= size and each * datagrams * 8 / seconds == pytest.approx(23.5e6, rel=0.01) and datagrams >= 2000


@linux
@pytest.mark.parametrize(
    ("receives", "level"), [([1400] * 40, "note"), ([1400 * 40], "ok"), ([1400, 2800], "ok"), ([], "")]
)
def test_packets_of_one_call_that_arrive_one_by_one_are_told(receives, level, monkeypatch):
    here = object.__new__(path.Path)
    options = SimpleNamespace(setsockopt=lambda *_: None)
    for name, value in {"_token": "", "_proof": "", "interface": "eth0", "_unicast": options}.items():
        monkeypatch.setattr(here, name, value, raising=False)
    monkeypatch.setattr(here, "_send", lambda _: True)
    monkeypatch.setattr(here, "_received", lambda *_: [{"t": "train", "size": size} for size in receives])
    lines = list(here._trains(1400))
    assert [line.level for line in lines] == [level] * bool(level)
    assert all("ethtool -K eth0 gro on rx-udp-gro-forwarding on" in line.remedy for line in lines if level == "note")


@netns
@pytest.mark.long
def test_whether_the_packets_of_one_call_arrive_together_is_measured(segmented):
    """The cards of these machines carry and join no segments."""
    here, there = segmented[:2]
    with python(there, "-m", "seqcast", "doctor", "--listen") as listener:
        assert "listens" in listener.stdout.readline()
        found, lines = doctor(here, "--with", there.address)
        listener.kill()
    assert found == {("WARN", "SC1106"), ("note", "SC1107")}, lines
    facts = [line["fact"] for line in lines if line["word"] == "gro"]
    assert facts[1] == "120 packets, sent in 3 calls there, arrive in 120 receives"


SLOW = """
import time
from seqcast.doctor import listen
listen.Listener._count, count = lambda *a: (time.sleep(0.002 * (a[2] == "burst")), count(*a)), listen.Listener._count
listen.unicast_socket, made = lambda *a: (s := made(*a), s.setsockopt(1, 8, 4096))[0], listen.unicast_socket
print("listens", flush=True)
listen.Listener("", 47320).run(60)
"""
"""A listener that is slow to take a burst, with a small buffer."""


@netns
@pytest.mark.long
def test_a_burst_that_a_socket_loses_says_so_without_a_finding(network):
    here, there = network[:2]
    with python(there, "-c", SLOW) as listener:
        assert "listens" in listener.stdout.readline()
        found, lines = doctor(here, "--with", there.address)
        listener.kill()
    facts = {line["word"]: line["fact"] for line in lines}
    assert found == set() and re.search(r" of 2,000 lost: [\d,]+ at the receiving socket$", facts["burst"]), lines
    assert re.fullmatch(r"at least 0 Mb/s; at 2\d Mb/s [\d,]+ of 2,000 lost: .*", facts["rate"]), lines


@pytest.mark.parametrize(
    ("counted", "places"),
    [
        ({"drops": 3}, {"at the receiving socket": 3, "in the network": 7}),
        ({"drops": 30}, {"at the receiving socket": 10}),
        ({"softnet": 4, "nic": 5}, {"in its kernel before that": 4, "at its card": 5, "in the network": 1}),
        ({"softnet": -1, "queue": 2}, {"in the queue here": 2, "in the network": 8}),
    ],
)
def test_losses_of_a_burst_are_shared_out_among_the_places_that_dropped(counted, places):
    counters = {"drops": 0, "softnet": 0, "nic": 0, "queue": 0} | counted
    assert {place: n for place, n in places_of(10, **counters).items() if n} == places


def test_drops_before_sockets_are_summed_over_the_processors_and_those_of_the_card_over_their_kinds(tmp_path):
    """The limit whose excess the kernel counts there is one of the whole machine, so no test can plant these drops."""
    for name, text in {
        "proc/net/softnet_stat": "00000001 0000000a 00000000\n00000001 00000100 00000007\n",
        "proc/net/snmp": "Udp: InDatagrams RcvbufErrors\nUdp: 9 3\n",
        "sys/class/net/eth0/statistics/rx_missed_errors": "4",
        "sys/class/net/eth0/statistics/rx_fifo_errors": "5",
        "sys/class/net/eth1/statistics/rx_missed_errors": "100",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = drops("eth0", tmp_path)
    assert {place: n for place, n in found.items() if place != "qdisc"} == {"socket": 3, "softnet": 266, "nic": 9}


LOSSY = """
import sys
from seqcast.doctor import listen
lost, count, drops = [0], listen.Listener._count, listen.drops
def lossy(self, client, kind, *rest):
    lost[0] += kind == "burst"
    if kind != "burst" or lost[0] % 10:
        count(self, client, kind, *rest)
def counted(interface):
    found = drops(interface)
    return found | {sys.argv[1]: found[sys.argv[1]] + lost[0] // 10}
listen.Listener._count, listen.drops = lossy, counted
print("listens", flush=True)
listen.Listener("", 47320).run(60)
"""
"""A listener on a machine that loses each tenth datagram of a burst at this place, and counts the losses there."""


@netns
@pytest.mark.long
@pytest.mark.parametrize(("place", "said"), [("softnet", "in its kernel before that"), ("nic", "at its card")])
def test_a_burst_that_the_other_machine_loses_before_its_sockets_is_a_finding(network, place, said):
    here, there = network[:2]
    with python(there, "-c", LOSSY, place) as listener:
        assert "listens" in listener.stdout.readline()
        found, lines = doctor(here, "--with", there.address)
        listener.kill()
    (burst,) = (line["fact"] for line in lines if line["word"] == "burst")
    assert found == {("WARN", "SC2331")} and re.search(rf"200 of 2,000 lost: .*200 {said}", burst), lines


@netns
@pytest.mark.long
def test_multicast_that_stops_later_is_found_by_a_long_run(pair):
    here, there = pair
    rule = "in ip daddr 224.0.0.0/4 udp dport 47321 limit rate over 1/hour burst 30 packets drop"
    with rules(here, rule):
        found, lines = doctor(here, "--with", there.address, "--long", "6")
    assert found == {("FAIL", "SC2313")}, lines
    assert doctor(here, "--with", there.address, "--long", "3")[0] == set()


@netns
@pytest.mark.long
def test_a_path_is_measured_on_the_interface_of_a_member(pair):
    """A second link carries no multicasts in."""
    here, there = pair
    call("ip", "-n", here.namespace, "link", "add", "eth1", "type", "veth", "peer", "eth1", "netns", there.namespace)
    for number, place in enumerate(pair, 1):
        place.run("ip", "address", "add", f"10.98.0.{number}/24", "dev", "eth1")
        place.run("ip", "link", "set", "eth1", "up")
    with rules(here, "in iifname eth1 ip daddr 224.0.0.0/4 udp dport 47321 drop"):
        one, _ = doctor(here, "--with", "10.98.0.2")
        other, lines = doctor(here, "--with", there.address, "--interface", "eth1")
        assert doctor(here, "--with", "10.98.0.2", "--interface", "eth1")[0] == {("FAIL", "SC2312")}
    assert (one, other) == ({("WARN", "SC2304")}, {("WARN", "SC2304"), ("FAIL", "SC2312")}), lines
    said = "10.99.0.2 is reached by eth0 10.99.0.1, a member here is on eth1 10.98.0.1"
    assert [line["fact"] for line in lines if line["word"] == "route"] == [said]


@pytest.mark.parametrize(
    ("route", "member", "here", "level"),
    [
        ("10.0.0.1", "10.0.0.1", "10.0.0.1", ""),
        ("10.0.0.1", "", "10.0.0.1", ""),
        ("10.0.0.1", "10.9.0.1", "10.9.0.1", "WARN"),
        ("10.0.0.1", "127.0.0.1", "10.0.0.1", "FAIL"),
        ("127.0.0.1", "10.9.0.1", "127.0.0.1", "WARN"),
        ("10.0.0.1", "fd99::1", "10.0.0.1", "WARN"),
    ],
)
def test_an_interface_that_is_not_on_the_way_is_told(route, member, here, level, monkeypatch):
    names = {"10.0.0.1": "eth0", "10.9.0.1": "eth1", "127.0.0.1": "lo", "fd99::1": "eth1"}
    monkeypatch.setattr(path, "name_with", names.get)
    monkeypatch.setattr(path, "address_towards", lambda *_: route)
    for opens in ("unicast_socket", "multicast_receiver", "multicast_sender", "whole_only"):
        monkeypatch.setattr(path, opens, lambda *_, **__: None)
    for multicast in (True, False):
        way = path.Path("10.0.0.2", 47320, member)
        monkeypatch.setattr(way, "_hello", lambda: False)
        lines = [line for line in way.look(0, multicast=multicast) if line.word == "route"]
        expected = "note" if level == "WARN" and not multicast else level
        assert way.here == here and [line.level for line in lines] == [expected] * bool(level)


NO_MULTICAST = ["in ip daddr 224.0.0.0/4 udp dport 47321 drop", "out ip daddr 224.0.0.0/4 udp dport 47321 drop"]


@netns
def test_without_multicast_a_pair_whose_members_send_unicasts_has_no_finding(pair):
    here, there = pair
    with rules(here, *NO_MULTICAST):
        found, lines = doctor(here, "--with", there.address, "--transport", "unicast", "--seeds", there.address)
    assert found == set(), lines
    facts = {line["word"]: (line["level"], line["fact"]) for line in lines}
    assert facts["multicast"][0] == "note" and "0 of 20 arrive there, 0 of 20 here" in facts["multicast"][1]
    none = "the machine answers: no member runs there now, or a firewall refuses"
    assert facts["seeds"] == ("note", f"{there.address}: {none}")
    assert facts["port"] == ("ok", f"{there.address} reaches UDP port 47310 of {here.address}")


@netns
@pytest.mark.long
def test_seeds_that_lead_nowhere_are_findings(network):
    here, there, third = network[:3]
    with rules(third, "in udp dport 47310-47314 drop"):
        found, lines = doctor(
            here, "--transport", "unicast", "--seeds", f"no-such.invalid,10.99.0.77,{there.address},{third.address}"
        )
    assert found == {("WARN", "SC4005"), ("WARN", "SC2303")}, lines
    said = sorted(line["fact"] for line in lines if line["word"] == "seeds")
    assert said[0].startswith(f"{there.address}: the machine answers")
    assert said[1].startswith(f"{third.address}: datagrams are not refused")
    assert said[2].startswith("10.99.0.77 cannot be reached: No route to host")
    assert said[3].startswith("no-such.invalid cannot be resolved (")


@netns
def test_a_firewall_before_the_port_of_a_member_is_found(pair):
    here, there = pair
    with rules(here, "in udp dport 47310-47314 drop"):
        found, lines = doctor(here, "--with", there.address, "--seeds", there.address)
    assert found == {("FAIL", "SC4302")}, lines


@netns
@pytest.mark.long
def test_an_advertised_address_must_lead_to_the_port_of_the_member(pair, tmp_path):
    pytest.importorskip("nacl")
    keys.make(str(tmp_path / "key"))
    here, there = pair
    unicast = ["--transport", "unicast", "--seeds", there.address]
    advertise = [*unicast, "--advertise", f"{here.address}:47999"]
    keyed = ["--with", there.address, "--key", str(tmp_path / "key")]
    assert doctor(here, *advertise)[0] == {("WARN", "SC4301")}
    assert doctor(here, *unicast, "--advertise", "no-such.invalid")[0] == {("FAIL", "SC1202")}
    found, lines = doctor(here, *advertise, *keyed)
    assert found - {("note", "SC1115"), ("WARN", "SC1113"), ("WARN", "SC1114")} == {("FAIL", "SC4302")}, lines
    here.run(
        "nft",
        "add table ip sick_nat; add chain ip sick_nat in { type nat hook prerouting priority dstnat; }; "
        "add rule ip sick_nat in udp dport 47999 redirect to :47310",
    )
    _, lines = doctor(here, *advertise, *keyed)
    here.run("nft", "delete table ip sick_nat")
    said = f"{there.address} reaches UDP port 47310 of {here.address}, as {here.address}:47999"
    assert [line["fact"] for line in lines if line["word"] == "port"] == [said], lines


@netns
@pytest.mark.long
@pytest.mark.parametrize("advertised", ["10.99.0.200", "10.99.0.201", ""])
def test_an_address_that_is_translated_one_to_one_is_no_fault(pair, advertised):
    here, there = pair
    here.run("ip", "address", "add", "10.99.0.200/24", "dev", "eth0")
    here.run(
        "nft",
        f"add table ip sick_nat; add chain ip sick_nat in {{ type nat hook prerouting priority dstnat; }}; "
        f"add rule ip sick_nat in ip daddr 10.99.0.200 dnat to {here.address}; "
        f"add chain ip sick_nat out {{ type nat hook postrouting priority srcnat; }}; "
        f"add rule ip sick_nat out udp dport 1-65535 ip daddr {there.address} snat to 10.99.0.200",
    )
    options = ["--transport", "unicast", "--seeds", there.address, "--with", there.address]
    if advertised:
        options += ["--advertise", advertised]
    found, lines = doctor(here, *options)
    here.run("nft", "delete table ip sick_nat")
    here.run("ip", "address", "del", "10.99.0.200/24", "dev", "eth0")
    said = [(line["level"], line["fact"]) for line in lines if line["word"] in ("advertise", "port")]
    if advertised == "10.99.0.201":
        assert {("WARN", "SC4301"), ("FAIL", "SC4302")} <= found, lines
        return
    assert found == set(), lines
    assert ("ok", f"{there.address} sees this machine at 10.99.0.200, where a member here would be") in said
    assert ("ok", f"{there.address} reaches UDP port 47310 of {here.address}, as 10.99.0.200:47310") in said


@linux
def test_a_closed_port_shows_a_machine_without_a_member_and_silence_shows_nothing():
    none = "the machine answers: no member runs there now"
    config = Config(transport="unicast", seeds="127.0.0.1:9,127.0.0.2", port=47390, port_range=1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as member:
        member.bind(("127.0.0.2", 47391))
        discovery = Discovery(config, "doctor", lambda _: None)
        discovery.look()
        lines = [(line.level, line.fact.partition(",")[0]) for line in seeds.look(discovery)]
    assert lines == [("ok", "127.0.0.2: datagrams are not refused"), ("note", f"127.0.0.1:9: {none}")]


@pytest.mark.long
@netns
def test_without_a_network_only_loopback_is_left(lonely):
    found, lines = doctor(lonely)
    assert found == {("WARN", "SC1002")}, lines
    assert doctor(lonely, "--interface", "lo")[0] == set()
    assert doctor(lonely, "--transport", "unicast", "--seeds", "127.0.0.1")[0] == set()
    found, lines = doctor(lonely, "--transport", "unicast", "--seeds", "10.99.0.2")
    assert found == {("WARN", "SC1002"), ("WARN", "SC2303")} and "224.0.0.0" not in str(lines), lines
    assert doctor(lonely, "--interface", "no-such")[0] == {("FAIL", "SC1001")}
    assert doctor(lonely, "--interface", "lo", "--with", "10.99.0.2")[0] == {("FAIL", "SC2303")}


@pytest.mark.long
@netns
def test_an_interface_without_carrier_that_cuts_no_segments_or_is_narrow(segmented):
    here = segmented[0]
    assert doctor(here)[0] == {("WARN", "SC1106")}
    assert doctor(here, before=["env", "SEQCAST_GRO=0"])[0] == {("WARN", "SC1106"), ("WARN", "SC1107")}
    here.run("ip", "link", "set", "eth0", "mtu", "1000")
    assert doctor(here)[0] == {("WARN", "SC1106"), ("WARN", "SC1004")}
    here.run("ip", "link", "set", "eth0", "mtu", "1500")
    subprocess.run(["ip", "-n", here.bridge, "link", "set", here.port, "down"], check=True)
    assert ("FAIL", "SC1003") in doctor(here, "--interface", "eth0")[0]


WITHOUT_NET_ADMIN = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 12, 0, 0, 0)  # the kernel's limits hold
os.execv(sys.argv[1], sys.argv[1:])
"""


@netns
def test_buffers_beyond_the_kernels_limit(lonely):
    before = [sys.executable, "-c", WITHOUT_NET_ADMIN]
    _, lines = doctor(lonely, "--interface", "lo", before=before)
    told = [line for line in lines if line["code"] == "SC1104"]
    limit = int(Path("/proc/sys/net/core/rmem_max").read_text())
    assert bool(told) == (limit < Config().rcvbuf)
    assert all("sysctl -w net.core.rmem_max=" in line["remedy"] for line in told)


BRIDGE = "sys/class/net/lo/bridge"


@linux
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, set()),
        ({"sys/class/net/lo/wireless/x": ""}, {"SC1005"}),
        (
            {f"{BRIDGE}/multicast_snooping": "1", f"{BRIDGE}/multicast_querier": "0"},
            {"SC1006"},
        ),
        ({f"{BRIDGE}/multicast_snooping": "1", f"{BRIDGE}/multicast_querier": "1"}, set()),
        ({".dockerenv": ""}, {"SC1007"}),
        ({"proc/net/snmp": "Udp: InDatagrams RcvbufErrors\nUdp: 10 3\n"}, {"SC1108"}),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "50000 100000"}, {"SC1110"}),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "max 100000"}, set()),
        ({"sys/fs/cgroup/cpu.max": "200000 100000", "sys/fs/cgroup/cpu.stat": "nr_throttled 4"}, {"SC1111"}),
        ({"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"}, {"SC1112"}),
        ({"sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc"}, set()),
    ],
)
def test_a_condition_of_the_machine_has_its_code(tmp_path, files, expected):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    config = Config(interface="lo", rcvbuf=65536, sndbuf=65536)
    assert {line.code.number for line in local.look(config, tmp_path) if line.code} == expected


@linux
@pytest.mark.parametrize(("number", "expected"), [(4026531836, set()), (4026532517, {"SC1007"})])
def test_a_container_without_a_file_that_says_so_is_one(tmp_path, number, expected):
    """As with containerd: its processes have a namespace of their own."""
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to(f"pid:[{number}]")
    assert {line.code.number for line in local._container(tmp_path)} == expected


GUEST = {"proc/cpuinfo": "flags : fpu aes hypervisor"}


@linux
@pytest.mark.parametrize(
    ("files", "changes", "expected"),
    [
        ({}, {}, set()),
        (GUEST, {}, {("note", "SC1115")}),
        ({**GUEST, "sys/bus/acpi/drivers/vmgenid/bind": ""}, {}, {("note", "SC1115")}),
        ({}, {"fault": lambda: ("", False)}, {("WARN", "SC1113")}),
        ({}, {"fault": lambda: ("key= needs PyNaCl", False)}, {("FAIL", "SC1202")}),
        ({}, {"_lockable": lambda: 16 << 10}, {("WARN", "SC1114")}),
        ({}, {"_lockable": lambda: -1}, set()),
        ({"key": "x"}, {}, {("FAIL", "SC1202")}),
    ],
)
def test_a_fault_of_a_member_with_a_key_has_its_code(tmp_path, monkeypatch, files, changes, expected):
    pytest.importorskip("nacl")
    for name, value in {"_lockable": lambda: MEMORY_BYTES, **changes}.items():
        monkeypatch.setattr(f"seqcast.doctor.keys.{name}", value)
    keys.make(str(tmp_path / "key"))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert {
        (line.level, line.code.number) for line in look(Config(key=str(tmp_path / "key")), tmp_path) if line.code
    } == expected


@linux
def test_a_member_with_a_key_is_looked_at_with_its_files_and_its_cipher(tmp_path, monkeypatch):
    pytest.importorskip("nacl")
    keys.make(str(tmp_path / "key"))
    identities.make(str(tmp_path / "id"), bytes(range(32)))
    (tmp_path / "list").write_text("nobody")
    (tmp_path / "list").chmod(0o600)
    files = {"key": str(tmp_path / "key"), "identity": str(tmp_path / "id"), "authorized": str(tmp_path / "list")}
    monkeypatch.setattr("seqcast.doctor.keys.fault", lambda: ("", False))
    lines = {line.word: line for line in look(Config(**files, cipher="aes-256-gcm"), tmp_path)}
    assert [lines[word].level for word in ("aes", "key", "identity", "authorized")] == ["FAIL", "ok", "ok", "FAIL"]
    assert "is not a line of a list" in lines["authorized"].fact
    (tmp_path / "sys/bus/platform/drivers/vmgenid").mkdir(parents=True)
    (tmp_path / "sys/bus/platform/drivers/vmgenid/VMGENID:00").symlink_to(tmp_path)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(GUEST["proc/cpuinfo"])
    assert "copies" not in {line.word for line in look(Config(**files), tmp_path)}


def test_a_line_names_its_code_and_the_remedy():
    line = Line("WARN", "clock", "the clock source is hpet", codes.SLOW_CLOCK)
    assert line.text().startswith("WARN  clock       the clock source is hpet  SC1112  Boot with clocksource=tsc")
    assert line.item()["remedy"] == codes.SLOW_CLOCK.remedy


def test_datagrams_of_others_are_ignored():
    for bad in (b"", b"{", b"[]\n", b"{}", b'{"token":1}', b"\xff\n", b"[" * 100_000):
        assert unpack(bad) == {}
    assert unpack(pack(200, t="x", token="a")) == {"t": "x", "token": "a"} and len(pack(200, t="x")) == 200


def test_bad_arguments_are_one_line(capsys):
    assert cli.main(["doctor", "--listen", "x"]) == 2
    assert "must be a UDP port" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("doctor --long", "give --with HOST, too"),
        ("doctor --long --transport unicast --with 10.0.0.7", "leave one of them out"),
        ("doctor --with=", "--with is empty"),
        ("doctor --listen --with 10.0.0.7", "give it alone"),
        ("doctor --listen --interface lo", "give it alone"),
        ("doctor --listen --json", "give it alone"),
        ("metrics --every 5", "give --textfile PATH, too"),
        ("metrics --textfile x --listen 127.0.0.1:0", "one process for each"),
        ("probe orders --members 3", "give --ready, too"),
    ],
)
def test_options_that_would_do_nothing_are_refused_with_what_to_give(line, said, capsys):
    assert cli.main(line.split()) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("found", "tried", "said"),
    [
        ([("ok", "machine")], False, "this machine is fit; no path was tried"),
        ([("WARN", "seeds")], False, "this machine is fit, but seeds lead nowhere; no path was tried"),
        ([("ok", "unicast"), ("WARN", "seeds")], True, "a group works with that host, but seeds lead nowhere"),
        ([("WARN", "igmp"), ("ok", "unicast"), ("note", "igmp")], True, "a group works; the warnings say"),
        ([("ok", "unicast"), ("FAIL", "igmp"), ("note", "igmp")], True, "a group does not work like this"),
        ([("ok", "unicast"), ("FAIL", "multicast"), ("note", "multicast")], True, "unicast works, multicast does not"),
        ([("ok", "unicast")], True, "a group works"),
    ],
)
def test_the_result_says_nothing_of_paths_that_were_not_tried(found, tried, said):
    from seqcast.doctor.command import _result
    from seqcast.doctor.lines import Line

    assert _result([Line(level, word, "") for level, word in found], tried).startswith(said)
