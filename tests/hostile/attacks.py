"""Attacks on groups of real members, on loopback, as scripts: each is a function that takes an ``Attacker``.

Those of ``STRANGERS`` send from a socket of their own, some under the ids of members: the view must stay the same, and
messages go through. Those of ``FAULTY`` send from a member's own socket, so that their datagrams are those of a member
gone wrong: the others must go on. Nothing here leaves the loopback interface, or speaks to another group than that of
the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hostile import forge
from hostile.forge import SEQNO_MAX, Forger
from seqcast._native.driver import describe_address
from seqcast.core.frames import kinds as frames
from seqcast.core.frames.closing import Block, BlockOk, Cut, Done, Held, Ok, Promised, Start
from seqcast.core.frames.fields import PROTOCOL_VERSION, MemberInfo
from seqcast.core.frames.gossiping import Gossip, Has, Least
from seqcast.core.frames.joining import Join, Leave, Refused, Wait
from seqcast.core.frames.merging import Beacon, MergeAsk, MergeCancel, MergeGo, MergeReady, MergeRefused, MergeTaken
from seqcast.core.frames.pausing import Resume, Resumed, Suspend
from seqcast.core.frames.ring import Confirm, Confirmed, Token, TokenHeld, Unconfirmed
from seqcast.core.frames.unblocking import Side, Unblock
from seqcast.core.frames.view import Installed, ViewWanted
from seqcast.errors import RemoteProtocolError
from seqcast.net.opening import group_address, group_tag
from seqcast.types import ViewId

PORT = 47310
COUNT_MAX = (1 << 53) - 1


class Attacker:
    """Sends anything to one group.

    Args:
        groups: its members; the attacker knows their multicasts, and takes these from them.
        faulty: index of the member whose socket is used; None: one of the attacker's own.
    """

    def __init__(self, groups: list[Any], faulty: int | None = None) -> None:
        self.groups = groups
        name = groups[0].cluster
        self.forger = Forger(group_tag(name))
        self.where = group_address(name, 4)
        self.own = 0x00BAD
        self.faulty = faulty
        self.socket = own_socket() if faulty is None else socket_of(groups[faulty])
        self.notes: dict[str, Any] = {}
        self.outside = False  # the group has a key, and reads no frame of the attacker

    def close(self) -> None:
        self.socket.close()

    @property
    def address(self) -> bytes:
        """The attacker's own, as named by a JOIN."""
        host, port = self.socket.getsockname()
        return b"\4" + port.to_bytes(2, "big") + socket.inet_aton(host)

    @property
    def view(self) -> Any:
        return self.groups[0].view

    @property
    def tag(self) -> int:
        return int(self.view.view_id.tag)

    @property
    def entered(self) -> Any:
        return self.groups[0]._runner.endpoint.context.entered

    def id(self, rank: int) -> int:
        return int(self.view.members[rank].id)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(member.id for member in self.view.members)

    @property
    def others(self) -> list[Any]:
        """The members that are not faulty."""
        return [group for number, group in enumerate(self.groups) if number != self.faulty]

    def next(self, rank: int) -> int:
        """The seqno that comes next on the stream of this rank."""
        runner = next(group._runner for group in self.groups if group._runner.standing.member.id != self.id(rank))
        return int(runner.engine.stream(rank)[1]) + 1

    def control(self, datagram: bytes) -> None:
        """To all, on the lane of control frames."""
        self._to_all(datagram, PORT + 1)

    def data(self, datagram: bytes) -> None:
        """To all, on the lane of data."""
        self._to_all(datagram, PORT)

    def _to_all(self, datagram: bytes, port: int) -> None:
        """By multicast, or to each member if they use none."""
        if self.groups[0]._runner.endpoint.context.settings.unicast:
            for group in self.groups:
                host, _, own = describe_address(group.member.address).rpartition(":")
                self.socket.sendto(datagram, (host, int(own)))
        else:
            self.socket.sendto(datagram, (self.where, port))

    def unicast(self, rank: int, datagram: bytes) -> None:
        host, _, port = describe_address(self.view.members[rank].address).rpartition(":")
        self.socket.sendto(datagram, (host, int(port)))

    def say(self, frame: Any, sender: int = 0, times: int = 1, every_s: float = 0.0) -> None:
        """A control frame to all."""
        for _ in range(times):
            self.control(self.forger.control(sender or self.own, frame))
            time.sleep(every_s)

    def drain(self) -> int:
        """Bytes that were sent to the attacker's socket until now."""
        self.socket.setblocking(False)
        total = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                total += len(self.socket.recv(65536))
        self.socket.setblocking(True)
        return total

    def count(self, name: str) -> int:
        """The sum of a counter over all members."""
        return sum(group.counters().get(name, 0) for group in self.groups)


def own_socket() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    return sock


def socket_of(group: Any) -> socket.socket:
    """A second descriptor of the socket from which a member of this process sends."""
    host, _, port = describe_address(group._runner.standing.member.address).rpartition(":")
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            sock = socket.socket(fileno=os.dup(int(name)))
            if sock.type == socket.SOCK_DGRAM and sock.getsockname() == (host, int(port)):
                return sock
            sock.close()
    raise AssertionError("no such socket")


Attack = Callable[[Attacker], None]
STRANGERS: dict[str, Attack] = {}
FAULTY: dict[str, Attack] = {}
SETTINGS: dict[str, dict[str, Any]] = {}
"""Settings of the groups that an attack is made for."""
REACHED = (
    "packets_ahead_of_the_real_ones", "leave_of_everyone", "view_that_excludes_everyone",
    "installed_and_answers_of_others", "start_with_the_highest_attempt", "acks_of_what_nobody_has", "rubbish",
)  # fmt: skip
"""Those that are made on a group with a key by somebody who is not in its view."""
DROPS = ("drop_key", "drop_field", "drop_rate", "drop_short", "drop_magic")


def stranger(attack: Attack | None = None, **settings: Any) -> Any:
    def note(attack: Attack) -> Attack:
        STRANGERS[attack.__name__] = attack
        SETTINGS[attack.__name__] = settings
        return attack

    return note(attack) if attack else note


def faulty(attack: Attack | None = None, **settings: Any) -> Any:
    def note(attack: Attack) -> Attack:
        FAULTY[attack.__name__] = attack
        SETTINGS[attack.__name__] = settings
        return attack

    return note(attack) if attack else note


# ---- control frames under a member's id ------------------------------------------------------------------------------


@stranger
def start_with_the_highest_attempt(a: Attacker) -> None:
    a.say(Start(a.tag, (COUNT_MAX, 0), a.ids), a.id(0), 3, 0.05)


@stranger
def start_with_a_higher_attempt_over_and_over(a: Attacker) -> None:
    for attempt in range(1, 40):
        a.say(Start(a.tag, (attempt, 0), a.ids), a.id(0), 1, 0.01)


@stranger
def block_with_the_highest_attempt(a: Attacker) -> None:
    a.say(Block(a.tag, (COUNT_MAX, 0), a.ids), a.id(0), 3, 0.05)


@stranger
def promised_to_the_highest_attempt(a: Attacker) -> None:
    a.say(Promised(a.tag, (1, 0), (COUNT_MAX, 1)), a.id(1), 3)


@stranger
def leave_of_everyone(a: Attacker) -> None:
    for member in a.ids:
        a.say(Leave(a.tag), member, 3, 0.02)


@stranger
def suspend_for_ever(a: Attacker) -> None:
    """A pause that is renewed while its sender likes: here until just before the group must send again."""
    for repeat in range(1, 30):
        a.say(Suspend(a.tag, 1, repeat, "stop", ()), a.id(1), 1, 0.02)


@stranger
def resume_of_pauses_that_are_not_there(a: Attacker) -> None:
    for pause in (0, 1, COUNT_MAX):
        a.say(Resume(a.tag, pause), a.id(1), 2)
        a.say(Resumed(a.tag, pause), a.id(1), 2)


@stranger
def view_wanted(a: Attacker) -> None:
    a.say(ViewWanted(a.tag), a.id(2), 10, 0.02)


@stranger
def cut_and_done_of_no_attempt(a: Attacker) -> None:
    n = len(a.ids)
    a.say(Cut(a.tag, (1, 0), (SEQNO_MAX,) * n, ()), a.id(0), 3)
    a.say(Done(a.tag, (1, 0)), a.id(1), 3)
    a.say(Ok(a.tag, (1, 0), SEQNO_MAX, (Held(SEQNO_MAX),) * n), a.id(1), 3)


@stranger
def view_that_excludes_everyone(a: Attacker) -> None:
    from dataclasses import replace

    entered = a.entered
    view_id = ViewId(entered.view_id.counter + 1, a.own, (1, a.own))
    info = replace(entered.members[0], id=a.own, name="evil", address=a.address)
    zeros = (0,) * len(entered.members)
    forged = replace(
        entered, closes=entered.view_id, attempt=(1, 0), survivors=(a.own,), view_id=view_id, members=(info,),
        sequencer=0, cut=zeros, table=zeros, base=(0,), origin_base=(0,), providers=(), shortfalls=(), departed=(),
    )  # fmt: skip
    for sender in (a.own, a.id(0), a.id(1)):
        a.say(forged, sender, 3, 0.02)


@stranger
def installed_and_answers_of_others(a: Attacker) -> None:
    a.say(Installed(a.tag), a.id(1), 5)
    a.say(BlockOk(a.tag, (1, 0)), a.id(1), 5)
    a.say(Wait(a.tag), a.id(0), 5)
    a.say(Refused("\x1b[2J go away", "again", *_nonce()), a.id(0), 5)


def _nonce() -> tuple[int, ...]:
    return (12345,) if "nonce" in frames.SCHEMAS["refused"][1] else ()


# ---- control frames of strangers -------------------------------------------------------------------------------------


def _join(a: Attacker, member: int, name: str, address: bytes) -> Any:
    settings = a.groups[0]._runner.endpoint.context.settings
    info = MemberInfo(name, member, address, 1 << 20, 1472, 1 << 20)
    more = {"nonce": 7} if "nonce" in frames.SCHEMAS["join"][1] else {}
    known = (a.entered.mechanism,)
    version, cluster = PROTOCOL_VERSION, a.groups[0].cluster
    return Join(version, cluster, settings.order, known, info, 0, settings.shared, **more)


@stranger(guard=True)
def join_with_an_address_that_is_none(a: Attacker) -> None:
    for address in (b"\4", b"\4" + bytes(27), b"\6" * 28, b"\x09\x01\x02"):
        a.say(_join(a, a.own, "x", address), a.own, 3, 0.03)
    time.sleep(0.3)
    for group in a.groups:
        assert group._runner.guard.thread.is_alive(), "a guard thread has ended"


@stranger
def join_from_another_address(a: Attacker) -> None:
    """The answers must not go to a bystander."""
    with contextlib.closing(own_socket()) as bystander:
        host, port = bystander.getsockname()
        elsewhere = b"\4" + port.to_bytes(2, "big") + socket.inet_aton(host)
        a.say(_join(a, a.own, "x", elsewhere), a.own, 20, 0.02)
        time.sleep(0.3)
        bystander.setblocking(False)
        heard = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                heard += len(bystander.recv(65536))
    assert heard == 0, f"{heard} bytes were sent to a bystander"


@stranger
def join_under_a_members_id(a: Attacker) -> None:
    for member in a.ids:
        a.say(_join(a, member, "x", a.address), member, 5, 0.02)


@stranger
def join_of_another_version(a: Attacker) -> None:
    data = json.loads(frames.dump(_join(a, a.own, "x", a.address)))
    data["version"] = data["oldest"] = 99
    for _ in range(50):
        a.control(a.forger.control(a.own, json.dumps(data).encode()))


@stranger
def beacons_of_a_larger_group(a: Attacker) -> None:
    _beacons(a, None, 15)


@stranger(partition="primary")
def beacons_of_a_larger_primary_partition(a: Attacker) -> None:
    _beacons(a, 128, 15)


def _beacons(a: Attacker, primary: int | None, n: int, history: int = 0) -> None:
    settings = a.groups[0]._runner.endpoint.context.settings
    view_id = ViewId(1 << 40, a.own, (1, a.own))
    for _ in range(n):
        cluster, by = a.groups[0].cluster, a.entered.mechanism
        beacon = Beacon(cluster, settings.order, by, view_id, primary, settings.shared, history)
        a.say(beacon, a.own, 1, 0.1)


@stranger(partition="primary")
def beacons_of_a_primary_partition_with_a_history(a: Attacker) -> None:
    _beacons(a, 128, 15, 2)


@stranger
def merge_ask_without_a_beacon(a: Attacker) -> None:
    """Ten times a second, each with another number: the group would never send again."""
    a.notes["extra"] = 15
    for number in range(15):
        a.say(MergeAsk((a.own, number), a.tag), a.own, 1, 0.1)
        a.groups[0].send(b"meanwhile", timeout=5.0)
    assert a.outside or a.count("control_merges_unheard") > 0


@stranger
def merge_asks_with_a_beacon(a: Attacker) -> None:
    """Ten times a second, one merge that renews its lease or each another one: no send may wait for it."""
    a.notes["extra"] = 30
    context = a.groups[0]._runner.endpoint.context
    view_id = ViewId(1 << 40, a.own, (1, a.own))
    for number in range(30):
        beacon = Beacon(
            a.groups[0].cluster, context.settings.order, a.entered.mechanism, view_id, None, context.settings.shared
        )
        a.say(beacon, a.own)
        a.say(MergeAsk((a.own, number // 15 * number), a.tag), a.own, 1, 0.1)
        begin = time.monotonic()
        a.groups[0].send(b"meanwhile", timeout=5.0)
        a.notes["longest"] = max(a.notes.get("longest", 0.0), time.monotonic() - begin)
    assert a.outside or a.count("control_merges_unheard") > 0
    assert a.notes["longest"] < 0.4, "sends were held up"


@stranger
def merge_frames_of_nobody(a: Attacker) -> None:
    entered = a.entered
    for merge in ((a.own, 1), (a.id(0), 1)):
        for frame in (
            MergeRefused(merge),
            MergeReady(merge, entered, ()),
            MergeGo(merge, entered),
            MergeTaken(merge),
            MergeCancel(merge, "\x1b]0;owned\x07"),
        ):
            a.say(frame, a.own, 3)


@stranger
def questions_about_closed_views(a: Attacker) -> None:
    """Each is answered by a VIEW, which is larger: not to somebody who was never in that view."""
    closed = [tag for group in a.groups for tag in group._runner.endpoint.machines.lineage.closed]
    assert closed
    a.drain()
    sent = 0
    for tag in closed:
        for frame in (Start(tag, (9, 0), a.ids), Block(tag, (9, 0), a.ids), Done(tag, (1, 0))):
            datagram = a.forger.control(a.own, frame)
            for _ in range(10):
                sent += len(datagram)
                a.control(datagram)
    settings = a.groups[0]._runner.endpoint.context.settings
    for frame in [each for group in a.groups for each in group._runner.endpoint.machines.lineage.closed.values()]:
        cluster, by = a.groups[0].cluster, frame.mechanism
        beacon = Beacon(cluster, settings.order, by, frame.closes, None, settings.shared)
        a.say(beacon, a.own, 10)
    time.sleep(0.3)
    assert a.drain() < sent / 2, "strangers are served views"


@stranger
def unblock_by_anybody(a: Attacker) -> None:
    a.say(Unblock(a.groups[0].cluster, 1, None), a.own, 20)
    a.say(Unblock(a.groups[0].cluster, 1, Side(a.tag, (1, 0))), a.own, 20)


# ---- datagrams without a frame, or with too much of one
# -----------------------------------------------------------------


@stranger
def rubbish(a: Attacker) -> None:
    import random

    rng = random.Random(1)
    for _ in range(300):
        a.control(rng.randbytes(rng.randrange(200)))
        a.data(rng.randbytes(rng.randrange(200)))
        a.unicast(rng.randrange(3), rng.randbytes(rng.randrange(200)))


@stranger
def headers_that_lie(a: Attacker) -> None:
    """Right in all but one field, of every type."""
    good = a.forger.packet(forge.DATA, a.id(0), a.tag, a.next(0))
    for at in range(80):
        for value in (0, 0x7F, 0xFF):
            broken = bytearray(good)
            broken[at] = value
            a.data(bytes(broken))  # its CRC is wrong
    for kind in range(256):
        for size in (0, 4, 32, 60):
            a.control(a.forger.datagram(kind, a.id(0), a.tag, bytes(size)))


@stranger
def json_that_is_deep_or_long(a: Attacker) -> None:
    deep = b"[" * 60_000, b'{"a":' * 12_000
    long = b'"' + b"x" * 60_000 + b'"', b"\xff" * 1000, b"1" * 60_000, b'{"kind":1e999}'
    for payload in deep + long:
        a.control(a.forger.control(a.own, payload))


@stranger
def a_flood_of_small_frames(a: Attacker) -> None:
    datagram = a.forger.control(a.own, b"{}")
    for _ in range(30_000):
        a.control(datagram)


@stranger
def a_flood_of_large_frames(a: Attacker) -> None:
    """Each takes Python milliseconds to read."""
    ids = tuple(range(1, 129))
    frame = frames.dump(Start(a.tag, (1, 0), ids))
    view = json.loads(frames.dump(a.entered))
    view["shortfalls"] = [["1", [1, "1", [1, "1"]], "1", 1]] * 48
    view["departed"] = [f"{each:x}" for each in range(1, 129)]
    for number in range(2000):
        a.control(a.forger.control(a.own, frame if number % 2 else json.dumps(view).encode()))


@stranger
def a_flood_of_pings(a: Attacker) -> None:
    for rank in range(3):
        datagram = a.forger.ping(forge.PING, a.own, 0, a.id(rank), a.own)
        for _ in range(5000):
            a.unicast(rank, datagram)
    time.sleep(0.2)
    assert a.drain() < 15_000 * 56, "each ping of a stranger is answered"


@stranger
def a_flood_of_joiners(a: Attacker) -> None:
    """All of them at one address."""
    for number in range(200):
        a.say(_join(a, 0xBAD000 + number, f"x{number}", a.address), 0xBAD000 + number)
    time.sleep(0.5)
    assert all(len(group.view.members) <= 4 for group in a.groups), "one socket counts as many members"
    a.notes["joined"] = True  # one of them, until suspected: any process that speaks the protocol may join


# ---- packets under a member's id -------------------------------------------------------------------------------------


@stranger(order="sequencer")
def origin_seqno_beyond_everything(a: Attacker) -> None:
    for rank in range(3):
        packet = a.forger.packet(forge.DATA, a.id(0), a.tag, a.next(0) + rank, (), origin=SEQNO_MAX, rank=rank)
        packet = a.forger.packet(forge.DATA, a.id(0), a.tag, a.next(0) + rank, origin=SEQNO_MAX, rank=rank)
        a.data(packet)


@stranger(order="fifo")
def packets_ahead_of_the_real_ones(a: Attacker) -> None:
    for rank in range(3):
        for ahead in range(8):
            a.data(a.forger.packet(forge.DATA, a.id(rank), a.tag, a.next(rank) + ahead, rank=rank))


@stranger(order="sequencer")
def packets_ahead_of_the_sequencers(a: Attacker) -> None:
    for ahead in range(8):
        origin, rank = 1 + ahead, ahead % 3
        a.data(a.forger.packet(forge.DATA, a.id(0), a.tag, a.next(0) + ahead, origin=origin, rank=rank, place=1))


@stranger(order="sequencer")
def forwards_ahead_of_the_real_ones(a: Attacker) -> None:
    for rank in (1, 2):
        for seqno in range(1, 8):
            a.unicast(0, a.forger.packet(forge.FORWARD, a.id(rank), a.tag, seqno, rank=rank))


def _pair(a: Attacker) -> list[int]:
    """Tags that the streams of two members may carry: those of the views so far."""
    closed = [tag for group in a.groups for tag in group._runner.endpoint.machines.lineage.closed]
    return [a.tag, *dict.fromkeys(closed)]


@stranger
def unicasts_ahead_of_the_real_ones(a: Attacker) -> None:
    for tag in _pair(a):
        for rank in range(3):
            for seqno in range(1, 8):
                a.unicast(rank, a.forger.packet(forge.UNICAST, a.id((rank + 1) % 3), tag, seqno))


@stranger
def unicasts_beyond_a_gap(a: Attacker) -> None:
    """They would fill the pool of slabs: the victim is deaf then, and everyone's sends stall."""
    _beyond_a_gap(a, [0, 1, 2])


def _beyond_a_gap(a: Attacker, senders: list[int]) -> None:
    piece = bytes(60_000)
    for tag in _pair(a):
        for sender in senders:
            for number in range(1200):
                a.unicast((sender + 1) % 3, a.forger.packet(forge.UNICAST, a.id(sender), tag, 2 + number, [piece]))


@stranger
def state_of_nobody(a: Attacker) -> None:
    for tag in _pair(a):
        for seqno in range(1, 40):
            a.unicast(1, a.forger.packet(forge.STATE, a.id(0), tag, seqno, [bytes(1000)]))


@stranger
def seqnos_at_the_end_of_all_numbers(a: Attacker) -> None:
    for kind in (forge.DATA, forge.UNICAST, forge.FORWARD, forge.STATE):
        for seqno in (SEQNO_MAX, SEQNO_MAX - 1, 1 << 32):
            for rank in range(3):
                packet = a.forger.packet(kind, a.id(rank), a.tag, seqno, rank=rank, stable=SEQNO_MAX)
                a.data(packet)
                a.unicast((rank + 1) % 3, packet)


@stranger
def packets_that_say_all_is_stable(a: Attacker) -> None:
    for rank in range(3):
        a.data(a.forger.packet(forge.DATA, a.id(rank), a.tag, a.next(rank) + 5000, rank=rank, stable=SEQNO_MAX))
        a.control(a.forger.probe(a.id(rank), a.tag, 0, SEQNO_MAX, SEQNO_MAX))


@stranger
def acks_of_what_nobody_has(a: Attacker) -> None:
    """Packets that all have acknowledged are purged: a member that lacks one would do so for ever."""
    for _ in range(20):
        for owner in range(3):
            seqno = a.next(owner) + 2
            for rank in range(3):
                for tag in _pair(a):
                    for stream in range(4):
                        a.unicast(owner, a.forger.ack(a.id(rank), tag, stream, seqno, seqno, seqno))


@stranger
def naks_for_all_that_was_ever_sent(a: Attacker) -> None:
    """Few bytes for many."""
    for group in a.groups:
        group.send_many([bytes(1000)] * 300)
    a.notes["extra"] = 900
    before = a.count("packets_retransmitted")
    for _ in range(200):
        for owner in range(3):
            for stream in range(3):
                a.unicast(owner, a.forger.nak(a.id((owner + 1) % 3), a.tag, a.id(owner), stream, [(1, SEQNO_MAX)]))
    time.sleep(0.3)
    drawn = a.count("packets_retransmitted") - before
    assert drawn < 100, f"{drawn} packets were drawn out of members"


@stranger
def naks_of_64_ranges(a: Attacker) -> None:
    ranges = [(1, SEQNO_MAX)] * 64
    for _ in range(300):
        for owner in range(3):
            a.unicast(owner, a.forger.nak(a.id((owner + 1) % 3), a.tag, a.id(0), 0, ranges))


@stranger
def probes_for_what_was_never_sent(a: Attacker) -> None:
    before = a.count("naks_sent")
    for _ in range(20):
        for rank in range(3):
            a.control(a.forger.probe(a.id(rank), a.tag, 0, SEQNO_MAX, 0))
            a.unicast((rank + 1) % 3, a.forger.probe(a.id(rank), a.tag, 1, SEQNO_MAX, 0))
    time.sleep(0.3)
    assert a.count("naks_sent") - before < 10, "members ask for what was never sent"


@stranger
def heartbeats_that_say_nobody_is_heard(a: Attacker) -> None:
    """Links that are cut in one direction cost one of their ends its membership."""
    for _ in range(24):
        for rank in range(3):
            marks = [(0, 0)] * 3
            a.control(a.forger.heartbeat(a.id(rank), a.tag, 0, 0, marks, 0b111 & ~(1 << rank)))
        time.sleep(0.05)


@stranger
def heartbeats_that_received_everything(a: Attacker) -> None:
    before = a.count("naks_sent")
    for _ in range(5):
        for rank in range(3):
            a.control(a.forger.heartbeat(a.id(rank), a.tag, SEQNO_MAX, SEQNO_MAX, [(SEQNO_MAX, SEQNO_MAX)] * 3))
        time.sleep(0.05)
    assert a.count("naks_sent") - before < 10, "members ask for what was never sent"


# ---- frames of one order, kind of membership or kind of reliability --------------------------------------------------


def _records(a: Attacker, rank: int, seqnos: Iterable[int]) -> list[bytes]:
    """Records of this member: of packets that are here, that nobody sent, and of more than there are."""
    every = [(1, 1)], [(0, 1), (1, 3), (2, 65_535)], [(2, 1)] * 64, [(127, 1)]
    return [
        a.forger.record(a.id(rank), a.tag, seqno, entries, place=place, rank=rank)
        for seqno in seqnos
        for entries in every
        for place in (0, 1, SEQNO_MAX)
    ]


@stranger
def records_of_the_sequencer_and_of_others(a: Attacker) -> None:
    for rank in range(3):
        for datagram in _records(a, rank, (a.next(rank), a.next(rank) + 1, SEQNO_MAX)):
            a.data(datagram)
            a.unicast((rank + 1) % 3, datagram)


@stranger
def packets_beside_the_order(a: Attacker) -> None:
    """They wait for no record."""
    for rank in range(3):
        for ahead in range(4):
            a.data(a.forger.packet(forge.DATA, a.id(rank), a.tag, a.next(rank) + ahead, rank=rank, flags=forge.BESIDE))


@stranger(order="causal")
def records_of_causes_that_never_come(a: Attacker) -> None:
    records_of_the_sequencer_and_of_others(a)


def _wants_and_grants(a: Attacker, ranks: Iterable[int]) -> list[bytes]:
    counts = 1, 4096, 1 << 31
    wants = [
        a.forger.grant(forge.WANT, a.id(rank), a.tag, number, count)
        for rank in ranks
        for number in (1, 2, (1 << 32) + 1, (1 << 64) - 1)
        for count in counts
    ]
    grants = [
        a.forger.grant(forge.GRANT, a.id(rank), a.tag, number, count, place)
        for rank in ranks
        for number in (1, 2, (1 << 32) + 1, (1 << 64) - 1)
        for count in counts
        for place in (1, 2, 1000, SEQNO_MAX)
    ]
    return wants + grants


@stranger(order="grant")
def requests_for_places_and_answers(a: Attacker) -> None:
    """Places that nobody uses would hold up everything behind them."""
    for datagram in _wants_and_grants(a, range(3)):
        for rank in range(3):
            a.unicast(rank, datagram)
        a.control(datagram)


@stranger(order="grant")
def packets_at_places_of_others(a: Attacker) -> None:
    for rank in range(3):
        for place in (1, 2, 3, SEQNO_MAX):
            a.data(a.forger.packet(forge.DATA, a.id(rank), a.tag, a.next(rank), rank=rank, place=place))
            a.data(a.forger.record(a.id(rank), a.tag, a.next(rank), [(rank, 9)], place=place, rank=rank))


def _total_headers(a: Attacker, ranks: Iterable[int]) -> list[bytes]:
    return [
        a.forger.total(a.id(rank), a.tag, header, number)
        for rank in ranks
        for header, number in ((1, 1), (1, 99), (1, SEQNO_MAX), (2, 0), (3, 1), (3, SEQNO_MAX))
    ]


@stranger(order="total-1999")
def headers_of_the_total_protocol(a: Attacker) -> None:
    for datagram in _total_headers(a, range(3)):
        for rank in range(3):
            a.unicast(rank, datagram)
        a.control(datagram)


def _gossips(a: Attacker) -> list[Gossip]:
    """In everyone's name: all have everything, and room for anything; there is more than was sent; under numbers that
    end all others."""
    top = SEQNO_MAX
    room = (1 << 53) - 1
    spans = (0, 0, top, 0, 0, 0), (top, top, top, top, room, 0), (0, top, 0, top, 1, 65_535), (1, 2, 2, 2, room, 1)
    digests = [tuple(Has(rank, *span) for rank in range(3)) for span in spans]
    least = tuple(Least(rank, top, top, room, 0) for rank in range(3))
    return [
        Gossip(a.tag, origin, counter, hops, digest, (origin,), not_seen, min(counter, 5000), (0, 1, 2), least, least)
        for origin in range(3)
        for digest in digests
        for counter, hops in ((COUNT_MAX, 0), (10_000, 5), (50, COUNT_MAX))
        for not_seen in ((), (0, 1, 2))
    ]


@stranger(reliability="gossip")
def gossips_of_nobody(a: Attacker) -> None:
    for gossip in _gossips(a):
        for sender in (a.own, a.id(gossip.origin)):
            a.say(gossip, sender)


def _token_frames(a: Attacker) -> list[Any]:
    ids = a.ids
    joiner = MemberInfo("x", 0xBADBAD, a.address, 1 << 20, 1472, 1 << 20)
    tokens = [
        Token(a.tag, generation, source, ids[0], members, visited, lost, joiners, True)
        for generation in (1, 1 << 20, COUNT_MAX)
        for source in ids
        for members, visited, lost in ((ids, ids, ()), (ids[2:], (), ids[:2]), ((), ids, ids))
        for joiners in ((), (joiner,))
    ]
    answers: list[Any] = [
        answer
        for generation in (0, 1, 1 << 20, COUNT_MAX)
        for answer in (
            TokenHeld(a.tag, generation, ids[0]),
            Confirm(a.tag, "prepare", generation, ids[2], ids[2:], ids[:2]),
            Confirm(a.tag, "commit", generation, ids[2], ids[2:], ids[:2]),
            Confirm(a.tag, "commit", generation, ids[0], (), ids),
            Confirmed(a.tag, "prepare", generation),
            Confirmed(a.tag, "commit", generation),
            Unconfirmed(a.tag, generation, COUNT_MAX, ids),
            Unconfirmed(a.tag, generation, generation, ids[:1]),
        )
    ]
    return [*tokens, *answers]


@stranger(membership="token-ring")
def tokens_of_nobody(a: Attacker) -> None:
    for frame in [*_token_frames(a), Token(a.tag, 1, a.id(0), a.id(0), a.ids, (), (), (), True)]:
        for sender in (a.own, *a.ids):
            a.say(frame, sender)


@stranger
def pings_to_be_passed_on(a: Attacker) -> None:
    for _ in range(50):
        for rank in range(3):
            one, other = a.id((rank + 1) % 3), a.id((rank + 2) % 3)
            a.unicast(rank, a.forger.ping(forge.PING, one, a.tag, other, one))
            a.unicast(rank, a.forger.ping(forge.PONG, one, a.tag, other, a.id(rank)))


# ---- from the socket of a member: the last one, which neither coordinates nor orders ---------------------------------


@faulty
def a_member_starts_with_the_highest_attempt(a: Attacker) -> None:
    rank = a.faulty or 0
    a.say(Start(a.tag, (COUNT_MAX, rank), (a.id(rank), *a.ids[:rank])), a.id(rank), 3, 0.05)
    ids = tuple(each for each in a.ids)
    a.say(Start(a.tag, (COUNT_MAX, rank), (ids[rank],)), a.id(rank), 3, 0.05)


@faulty
def a_member_promises_the_highest_attempt(a: Attacker) -> None:
    rank = a.faulty or 0
    for attempt in range(3):
        a.say(Promised(a.tag, (attempt, 0), (COUNT_MAX, rank)), a.id(rank), 5)


@faulty
def a_member_sends_unicasts_beyond_a_gap(a: Attacker) -> None:
    _beyond_a_gap(a, [a.faulty or 0])


@faulty(slabs_max=256)
def a_member_ignores_its_credit(a: Attacker) -> None:
    """In order, but more than its window, to members whose application takes nothing meanwhile."""
    piece, rank = bytes(60_000), a.faulty or 0
    for number in range(600):
        for tag in _pair(a):
            a.unicast(0, a.forger.packet(forge.UNICAST, a.id(rank), tag, 1 + number, [piece], stable=number))
        if number % 10 == 0:
            time.sleep(0.002)
    a.notes["foreign"] = True


@faulty
def a_member_asks_for_everything_again(a: Attacker) -> None:
    rank = a.faulty or 0
    a.groups[0].send_many([bytes(1000)] * 300)
    a.notes["extra"] = 300
    time.sleep(0.3)
    before = a.count("packets_retransmitted")
    for _ in range(500):
        for stream in range(4):
            a.unicast(0, a.forger.nak(a.id(rank), a.tag, a.id(0), stream, [(1, SEQNO_MAX)] * 64))
    time.sleep(0.2)
    drawn = a.count("packets_retransmitted") - before
    assert drawn < 700, f"{drawn} packets were drawn out of a member"


@faulty
def a_member_floods_with_frames(a: Attacker) -> None:
    rank = a.faulty or 0
    large = a.forger.control(a.id(rank), b'{"kind":"start","survivors":[' + b'"1",' * 14_000 + b'"1"]}')
    small = a.forger.control(a.id(rank), b"{}")
    for number in range(8000):
        a.control(large if number % 16 == 0 else small)


@faulty
def a_member_says_that_it_hears_nobody(a: Attacker) -> None:
    rank = a.faulty or 0
    for _ in range(30):
        a.control(a.forger.heartbeat(a.id(rank), a.tag, 0, 0, [(0, 0)] * 3, 0b111 & ~(1 << rank)))
        time.sleep(0.05)


@faulty
def a_member_received_everything(a: Attacker) -> None:
    rank = a.faulty or 0
    for _ in range(10):
        a.control(a.forger.heartbeat(a.id(rank), a.tag, SEQNO_MAX, SEQNO_MAX, [(SEQNO_MAX, SEQNO_MAX)] * 3))
        a.control(a.forger.probe(a.id(rank), a.tag, 0, SEQNO_MAX, 0))
        time.sleep(0.02)


@faulty
def a_member_records_though_another_orders(a: Attacker) -> None:
    rank = a.faulty or 0
    for datagram in _records(a, rank, range(a.next(rank), a.next(rank) + 4)):
        a.data(datagram)


@faulty(order="grant")
def a_member_grants_though_another_does(a: Attacker) -> None:
    rank = a.faulty or 0
    for datagram in _wants_and_grants(a, [rank])[9:]:
        for other in range(rank):
            a.unicast(other, datagram)


@faulty(order="grant")
def a_member_takes_places_that_it_never_uses(a: Attacker) -> None:
    """Nothing behind these places can be delivered while the attacker is a member."""
    rank = a.faulty or 0
    for number in range(1, 20):
        a.unicast(0, a.forger.grant(forge.WANT, a.id(rank), a.tag, number, 4096))
    a.notes["stream"] = True


@faulty(order="total-1999")
def a_member_speaks_for_the_sequencer(a: Attacker) -> None:
    rank = a.faulty or 0
    for datagram in _total_headers(a, [rank]):
        for other in range(rank):
            a.unicast(other, datagram)
        a.control(datagram)


@faulty(reliability="gossip")
def a_member_gossips_in_the_name_of_others(a: Attacker) -> None:
    """Their own reports must count nevertheless, or nobody gets credit any more."""
    rank = a.faulty or 0
    for gossip in _gossips(a):
        a.say(gossip, a.id(rank))
    for counter in range(4000):
        a.say(Gossip(a.tag, counter % 3, COUNT_MAX - counter, 0, (), (0, 1, 2), (), 1, (), (), ()), a.id(rank))
        a.say(Gossip(a.tag, rank, counter + 5000, 0, (), (0, 1, 2), (), counter + 4000, (0, 1, 2), (), ()), a.id(rank))
        if counter % 50 == 49:
            time.sleep(0.01)
    a.notes["stream"] = True


@faulty(membership="token-ring")
def a_member_sends_tokens_of_all_kinds(a: Attacker) -> None:
    rank = a.faulty or 0
    for frame in _token_frames(a):
        a.say(frame, a.id(rank))
        time.sleep(0.002)


@faulty(membership="token-ring")
def a_member_asks_for_a_view_again_and_again(a: Attacker) -> None:
    """Its tokens cost a round each; nobody leaves, so the view stays."""
    first, _, own = ids = a.ids
    for generation in range(1, 101):
        a.unicast(0, a.forger.control(own, Token(a.tag, generation, own, first, ids, (own,), (), (), True)))
        time.sleep(0.005)


# ---- on somebody who joins -------------------------------------------------------------------------------------------


class Heckler:
    """Answers to each JOIN of a cluster with the result of ``answer``, at once, on a thread of its own.

    Args:
        answer: gets the JOIN, and gives a frame, or None.
        hears: False: does not hear the JOINs, and sends the result of ``answer`` for None all the time.
    """

    def __init__(self, name: str, answer: Callable[[Any], Any], hears: bool = True) -> None:
        self.forger, self.answer, self.hears = Forger(group_tag(name)), answer, hears
        self.where = group_address(name, 4)
        self.socket = own_socket()
        self.ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.ear.bind((self.where, PORT + 1))
        group = socket.inet_aton(self.where) + socket.inet_aton("127.0.0.1")
        self.ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
        self.ear.settimeout(0.005)
        self.said = 0
        self.stopping = False
        self.thread = threading.Thread(target=self._run)

    def __enter__(self) -> Heckler:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping = True
        self.thread.join()
        self.ear.close()
        self.socket.close()

    def _run(self) -> None:
        while not self.stopping:
            join = self._hear()
            frame = self.answer(join if self.hears else None) if join or not self.hears else None
            if frame is not None:
                self.said += 1
                sender = frame.info.id if isinstance(frame, Join) else 0x00BAD
                self.socket.sendto(self.forger.control(sender, frame), (self.where, PORT + 1))

    def _hear(self) -> Any:
        try:
            datagram = self.ear.recv(65536)
            frame = frames.load(datagram[40:]) if datagram[2] == forge.CONTROL else None
        except (OSError, RemoteProtocolError):
            return None
        return frame if isinstance(frame, Join) and frame.info.name != "evil" else None


@contextlib.contextmanager
def attacking(groups: list[Any], faulty: int | None = None) -> Iterator[Attacker]:
    attacker = Attacker(groups, faulty)
    try:
        yield attacker
    finally:
        attacker.close()
