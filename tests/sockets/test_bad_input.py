"""On real sockets: a member that does not fit into a group is told so with the remedy, and the group is unharmed."""

import contextlib
import json
import socket
import time

import pytest
from halves import quick
from members import LOOPBACK, PATIENT_JOINER, cluster, group_of, join, output, payloads, script, wait_until

import seqcast
from seqcast.config import derive
from seqcast.core.frames.fields import PROTOCOL_VERSION
from seqcast.net.opening import group_address, group_tag


@contextlib.contextmanager
def unharmed(groups):
    """The view stays the same, and messages go through."""
    before = groups[0].view
    yield
    for number, group in enumerate(groups):
        group.send(b"from %d" % number)
    for group in groups:
        assert sorted(payloads(group, len(groups))) == [b"from %d" % number for number in range(len(groups))]
        assert group.view == before


OTHERS = {
    "heartbeat_s": 0.1,
    "message_bytes_max": 1000,
    "partition": "primary",
    "membership": "token-ring",
    "flush_unicasts": True,
    "safe": True,
    "reliability": "gossip",
    "slow": "exclude",
    "slow_s": 20.0,
}
NEEDED = {"partition": {"found": 0}}
"""Further settings of such a joiner."""
TRANSPORTS = ("multicast auto", "unicast auto", "auto unicast")
"""Of the group, and of a joiner that the group hears."""


SHARED = ["order", *(name for name in derive.SHARED if name not in ("transport", "cipher"))]


@pytest.mark.parametrize(("name",), quick([("order",), ("partition",), ("slow_s",)], SHARED))
def test_a_joiner_with_another_value_of_a_shared_setting_is_refused_and_the_group_is_unharmed(name):
    """(For the transport see below; another cipher needs a key, see test_keyed.py.)"""
    with group_of(2) as groups, unharmed(groups), pytest.raises(seqcast.JoinRefused) as raised:
        join(groups[0].cluster, "x", **{name: OTHERS.get(name, "fifo")}, **NEEDED.get(name, {}))
    ours, theirs = ("'total'", "'fifo'") if name == "order" else (getattr(seqcast.Config(), name), OTHERS[name])
    assert f"the group has {name}={ours}, not {theirs}: join with the same" in str(raised.value)
    assert not isinstance(raised.value, seqcast.NameTaken)


@pytest.mark.multicast
@pytest.mark.parametrize(
    "transports", ["auto multicast", *(pytest.param(each, marks=pytest.mark.long) for each in TRANSPORTS)]
)
def test_a_joiner_with_another_transport_is_refused_by_each_group_that_it_reaches(transports):
    """(One with multicast alone and one without do not reach each other.)"""
    ours, theirs = transports.split()
    place = {"seeds": "127.0.0.1", "port_range": 8} if "unicast" in transports else {}
    with group_of(2, transport=ours, **place) as groups, unharmed(groups), pytest.raises(seqcast.JoinRefused) as told:
        join(groups[0].cluster, "x", transport=theirs, **place)
    assert f"the group has transport={ours}, not {theirs}: join with the same" in str(told.value)


def test_a_joiner_of_a_taken_name_is_refused_once_its_owner_is_seen_to_live():
    with group_of(2, name_taken_s=0.5) as groups, unharmed(groups):
        begin = time.monotonic()
        with pytest.raises(seqcast.NameTaken, match="the name 'b' is taken by a member of the group: choose another"):
            join(groups[0].cluster, "b")
        assert time.monotonic() - begin > 0.5


TWO = """
import sys, seqcast
try:
    with seqcast.join(sys.argv[1], name="same", interface=sys.argv[2], **{settings}) as group:
        print("in", flush=True)
        sys.stdin.read()
except seqcast.JoinTimeout as error:
    print(error, flush=True)
"""


def first_lines(name, *settings):
    """The first lines of processes that join at the same time; the others end when all have spoken."""
    texts = [TWO.replace("{settings}", repr(PATIENT_JOINER | one)) for one in settings]  # else two groups may form
    processes = [script(text, name, LOOPBACK) for text in texts]
    lines = [process.stdout.readline() for process in processes]
    for process in processes:
        output(process)
    return sorted(lines)


@pytest.mark.long
def test_of_two_that_start_under_one_name_one_gets_in_and_the_other_is_told():
    said = first_lines(cluster(), {}, {})
    assert said[0] == "in\n" and "the name 'same' is taken" in said[1]


@pytest.mark.long
def test_of_two_that_start_with_different_orders_one_gets_in_and_the_other_is_told():
    said = first_lines(cluster(), {"order": "fifo"}, {"order": "total"})
    assert said[0] == "in\n" and "join with the same order" in said[1]


OTHER_PROTOCOL = """
import sys, seqcast
import seqcast.core.machines.lifecycle, seqcast.core.frames.kinds
for module in (seqcast.core.machines.lifecycle, seqcast.core.frames.kinds):
    module.PROTOCOL_OLDEST = module.PROTOCOL_VERSION = 99
try:
    seqcast.join(sys.argv[1], name="x", interface=sys.argv[2])
except seqcast.JoinRefused as error:
    print(error)
"""


def test_a_joiner_of_another_protocol_version_is_refused():
    assert issubclass(seqcast.JoinRefused, seqcast.JoinTimeout), "for programs that know only the older error"
    with group_of(2) as groups, unharmed(groups):
        said = output(script(OTHER_PROTOCOL, groups[0].cluster, LOOPBACK))
        assert f"speaks protocol version {PROTOCOL_VERSION}, not 99: use one release" in said


class OtherWire:
    """Somebody on the network whose datagrams have another wire version, and that can only send."""

    def __init__(self, name):
        self.to = group_address(name, 4), 47310
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        self.datagram = b"\xc5\x63\x07\x00" + bytes(4) + group_tag(name).to_bytes(4, "little") + bytes(28)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self):
        self.socket.sendto(self.datagram, self.to)


@pytest.mark.multicast
def test_beside_a_group_of_another_wire_version_a_joiner_forms_none():
    name = cluster()
    text = """
import sys, seqcast
try:
    seqcast.join(sys.argv[1], name="x", interface=sys.argv[2], discovery_s=1.0)
except seqcast.JoinRefused as error:
    print(error)
"""
    with OtherWire(name) as other:
        process = script(text, name, LOOPBACK)
        while process.poll() is None:
            other.send()
            time.sleep(0.02)
        assert "another wire version: run the same release of seqcast on every member, or" in output(process)


@pytest.mark.multicast
def test_datagrams_of_another_wire_version_or_cluster_do_not_harm_a_group():
    with group_of(2) as groups, unharmed(groups), OtherWire(groups[0].cluster) as other:
        for _ in range(100):
            other.send()
        wait_until(lambda: all(group.counters()["drop_version"] >= 100 for group in groups))


def test_control_frames_that_make_no_sense_are_counted_and_harm_nobody():
    """From a member of the group, even: its frames are checked like anyone's."""
    with group_of(2) as groups, unharmed(groups):
        engine = groups[0]._runner.engine
        tag = f"{groups[0].view.view_id.tag:x}"
        frames = [
            b"not JSON",
            json.dumps({"kind": "start", "view": tag, "attempt": [1, 1], "survivors": []}).encode(),
            json.dumps({"kind": "cut", "view": tag, "attempt": [1, 7], "cut": [0], "fetch": []}).encode(),
            json.dumps({"kind": "join", "version": PROTOCOL_VERSION, "cluster": "x"}).encode(),
        ]
        for frame in frames:
            assert engine.control_send(frame, b"")
        groups[0]._driver.poke()
        wait_until(lambda: groups[1].counters().get("control_frames_bad", 0) >= len(frames) - 1)
