"""``seqcast perf --hosts``: members on several hosts, which here are network namespaces."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from members import LIMIT_S, wait_until
from netns import network

from seqcast import cli
from seqcast.perf import hosts
from seqcast.perf.paths import PathError
from seqcast.perf.processes import Processes

__all__ = ["network"]
netns = pytest.mark.netns
TASK = {"role": "listener", "name": "a", "cluster": "perf-hosts-test", "members": 1, "settings": {"interface": "eth0"}}


def perf(network, *options):
    names = ",".join(place.namespace for place in network[:2])
    command = [sys.executable, "-m", "seqcast", "perf", "--hosts", names, "--via", "ip netns exec {host}", "--json"]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=LIMIT_S)


@netns
def test_throughput_between_two_hosts(network):
    done = perf(network, "--interface", "eth0", "--seconds", "0.5", "--pairs", "1")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["path"] == "hosts" and said["members"] == 2 and said["lost"] == said["wrong"] == 0
    assert said["delivered_msgs_per_s"] > 1000 and said["delivered_msgs_per_s"] < 1.2 * said["sent_msgs_per_s"]
    names = {place.namespace for place in network[:2]}
    assert set(said["hosts"]) == set(said["dropped"]) == names
    assert all(set(places) == {"socket", "softnet", "nic"} for places in said["dropped"].values())
    assert "raw_mb_per_s" not in said
    assert 0 < said["ratio_to_line"] == pytest.approx(said["delivered_mb_per_s"] * 8 / 10_000, abs=0.001)


@netns
def test_latency_between_two_hosts(network):
    done = perf(network, "--latency", "--rounds", "200", "--pairs", "1")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert 0 < said["latency_us"]["p50"] <= said["latency_us"]["p99"] and said["cores"] is None


@netns
def test_what_the_socket_of_a_host_drops_is_named_there(network):
    here = network[0]
    before = json.loads(here.run(sys.executable, "-c", DROPS))
    here.run(sys.executable, "-c", OVERFLOW)
    after = json.loads(here.run(sys.executable, "-c", DROPS))
    assert after["socket"] > before["socket"] and after["nic"] == before["nic"]


DROPS = "import json; from seqcast.perf.hosts import drops; print(json.dumps(drops('eth0')))"
OVERFLOW = """
import socket
full = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
full.bind(("127.0.0.1", 0))
for _ in range(100):
    full.sendto(bytes(1000), full.getsockname())
"""


@netns
def test_a_worker_whose_controller_is_gone_ends(network):
    place = hosts.places([network[0].namespace], "ip netns exec {host}", "", 1, "eth0")[0]
    with Processes() as processes:
        process = processes.start(place, TASK)
        process.expect("joined", LIMIT_S)
        pid = process._child.pid
        process.close()  # as a lost connection does
        began = time.monotonic()
        wait_until(lambda: process._child.poll() is not None)
        assert time.monotonic() - began < 10 and process._child.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def test_another_release_on_a_host_is_named():
    hosts.check("far", hosts.about(""))
    with pytest.raises(PathError, match=r"^far has seqcast of protocol 1, this machine \d+: install the same$"):
        hosts.check("far", {**hosts.about(""), "protocol": 1})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--hosts", "a,a"], "must name each host once"),
        (["--hosts", "a,"], "must name each host once"),
        (["--hosts", "a,b", "--via", "ssh"], "must have {host} in it"),
        (["--hosts", "a,b", "--via", "ssh 'x {host}"], "No closing quotation"),
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
    assert status == 1 and "member-0 on a ended with status 7" in err
