"""On real sockets: a group with a key."""

import hashlib
import logging
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from engines import make_engine, reports_of
from hostile.forge import CONTROL, DATA, HEARTBEAT
from members import LIMIT_S, LOOPBACK, cluster, group_of, join, payloads, wait_until

import seqcast
from seqcast._native.driver import describe_address
from seqcast.config import Config, keys
from seqcast.core.frames.kinds import load
from seqcast.core.frames.view import NewView
from seqcast.core.secrets import about
from seqcast.net.opening import group_address, group_tag
from seqcast.net.operator import OperatorRunner
from seqcast.net.secure import KeyPair, seal_of
from seqcast.reports import FrameReceived
from seqcast.sim.wire import header

pytest.importorskip("nacl")

WORD = b"nobody else may read this"


@pytest.fixture
def key(tmp_path):
    keys.make(str(tmp_path / "key"))
    return str(tmp_path / "key")


@pytest.fixture
def other(tmp_path):
    keys.make(str(tmp_path / "other"))
    return str(tmp_path / "other")


class Wire:
    """Somebody who hears all multicasts to a group on loopback, and can repeat them."""

    def __init__(self, name):
        self.to = group_address(name, 4)
        self.heard = []
        self.sockets = []
        for port in (47310, 47311):
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_REUSEPORT", socket.SO_REUSEADDR), 1)
            one.bind((self.to, port))
            member = struct.pack("4s4s", socket.inet_aton(self.to), socket.inet_aton("127.0.0.1"))
            one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
            one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            one.setblocking(False)
            self.sockets.append(one)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self.sockets:
            one.close()

    def listen(self):
        for one in self.sockets:
            while True:
                try:
                    self.heard.append((one.recv(65536), one.getsockname()[1]))
                except BlockingIOError:
                    break
        return [datagram for datagram, _ in self.heard]

    def send_again(self):
        for datagram, port in self.heard:
            self.sockets[0].sendto(datagram, (self.to, port))


def test_a_joiner_with_another_cipher_is_refused(key):
    with group_of(2, key=key) as groups, pytest.raises(seqcast.JoinRefused, match="cipher=auto, not aes-256-gcm"):
        join(groups[0].cluster, "x", key=key, cipher="aes-256-gcm")


@pytest.mark.multicast
@pytest.mark.parametrize(
    ("order", "cipher"), [("total", "auto"), ("sequencer", "xchacha20-poly1305"), ("fifo", "aes-256-gcm")]
)
def test_members_with_a_key_hear_each_other_and_nobody_else_does(key, order, cipher):
    with group_of(3, key=key, order=order, cipher=cipher) as groups, Wire(groups[0].cluster) as wire:
        for number, group in enumerate(groups):
            group.send(WORD + b" %d" % number)
            for _ in range(200):
                group.send(bytes([number]) * 1000)
        for group in groups:
            got = payloads(group, 3 * 201)
            assert sorted(each for each in got if each.startswith(WORD)) == [WORD + b" %d" % n for n in range(3)]
        wait_until(lambda: len(wire.listen()) > 20)
        assert not any(WORD in datagram or groups[0].cluster.encode() in datagram for datagram in wire.listen())
        for group in groups:
            counted = group.counters()
            assert counted["drop_key"] == counted["drop_crc"] == counted["drop_replay"] == 0


@pytest.mark.multicast
def test_recorded_datagrams_sent_again_change_nothing(key):
    with group_of(2, key=key) as groups, Wire(groups[0].cluster) as wire:
        before = groups[0].view
        groups[0].send(WORD)
        assert [payloads(group, 1) for group in groups] == [[WORD]] * 2
        wait_until(lambda: len(wire.listen()) > 20)
        for _ in range(5):
            wire.send_again()
        groups[1].send(b"after")
        assert [payloads(group, 1) for group in groups] == [[b"after"]] * 2
        wait_until(lambda: all(group.counters()["drop_replay"] > 10 for group in groups))
        assert [group.view for group in groups] == [before] * 2


@pytest.mark.multicast
def test_a_recording_of_an_earlier_group_from_its_founding_to_its_end_changes_nothing_in_a_later_one(key):
    """Under one key and one name, as after a restart of all: sent again from the ports of the former members."""
    name = cluster()
    with Wire(name) as wire:
        former = [join(name, member, key=key) for member in "abc"]
        wait_until(lambda: all(len(group.view.members) == 3 for group in former))
        former[0].send(WORD)
        assert [payloads(group, 1) for group in former] == [[WORD]] * 3
        ports = [int(describe_address(group.member.address).rpartition(":")[2]) for group in former]
        for group in former:
            group.leave()
        wait_until(lambda: {DATA, HEARTBEAT, CONTROL} <= {each[2] for each in wire.listen()})
        with ExitStack() as sockets:
            groups = [sockets.enter_context(join(name, member, key=key)) for member in "abc"]
            wait_until(lambda: len({group.view for group in groups}) == 1 and len(groups[0].view.members) == 3)
            before, heard = groups[0].view, list(wire.heard)
            for port in ports:
                one = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
                one.bind(("127.0.0.1", port))
                for datagram, to in heard:
                    one.sendto(datagram, (wire.to, to))
                time.sleep(0.3)
            wait_until(lambda: all(group.counters()["drop_view"] > 3 for group in groups))
            groups[1].send(b"after")
            assert [payloads(group, 1) for group in groups] == [[b"after"]] * 3
            assert [group.view for group in groups] == [before] * 3


class Reader:
    """Somebody with a recording, the key file, and a key pair: its own, or that of a former member."""

    def __init__(self, cluster, key, pair):
        seal = seal_of(Config(key=key), cluster)
        self.engine, self.pair = make_engine(0x5EA1, seal=seal, group_tag=group_tag(cluster)), pair

    def views(self, datagrams):
        """The VIEWs in the recording, which the key file opens."""
        for number, datagram in enumerate(datagrams):
            self.engine.receive(datagram, b"\1", number * 10**9)
        frames = [load(each.payload) for each in reports_of(self.engine, FrameReceived) if each.outside]
        return [each for each in frames if isinstance(each, NewView)]

    def has_secret(self, frame):
        return any(self.pair.unwrap(frame.maker_key, about(frame), wrap) is not None for wrap in frame.wraps)

    def opens(self, datagram):
        """Can the reader open this packet? Its sender is in no view with the reader."""
        before = self.engine.counters()["drop_stranger"]
        self.engine.receive(datagram, b"\1", 10**15)
        return self.engine.counters()["drop_stranger"] > before


@pytest.mark.multicast
@pytest.mark.parametrize("who", ["stranger", "former member"])
def test_a_recording_and_the_key_file_open_no_messages_nor_does_the_memory_of_a_former_member(key, who):
    with group_of(3, key=key) as groups, Wire(groups[0].cluster) as wire:
        a, b, former = groups

        def packets():
            return [each for each in wire.listen() if each[2] == DATA]

        a.send(WORD)
        assert [payloads(group, 1) for group in groups] == [[WORD]] * 3
        wait_until(packets)
        context = former._runner.endpoint.context
        then, memory = former.view.view_id.tag, (context.secrets._current, context.entered.cipher)
        former.leave()
        wait_until(lambda: len(a.view.members) == len(b.view.members) == 2)
        late = join(a.cluster, "late", key=key)
        wait_until(lambda: len(a.view.members) == len(b.view.members) == 3)
        tag = a.view.view_id.tag.to_bytes(8, "little")
        a.send(WORD)
        assert payloads(b, 1) == payloads(late, 1) == [WORD]
        wait_until(lambda: any(each[24:32] == tag for each in packets()))
        reader = Reader(a.cluster, key, context.settings.exchange if who == "former member" else KeyPair())
        views = reader.views(wire.listen())
        assert any(frame.has(late.member.id) for frame in views), "the key file opens VIEWs"
        assert not any(reader.has_secret(frame) for frame in views)
        if who == "former member":
            reader.engine.know(then, *memory)
        of_then = [reader.opens(each) for each in packets() if each[24:32] == then.to_bytes(8, "little")]
        of_now = [reader.opens(each) for each in packets() if each[24:32] == tag]
        assert set(of_then) == {who == "former member"}
        assert set(of_now) == {False}
        late.leave()


def joins_not(name, **settings):
    with pytest.raises(seqcast.JoinTimeout) as raised:
        join(name, "x", **settings)
    return str(raised.value)


def test_a_joiner_without_the_key_cannot_join_and_both_sides_say_where_the_others_are(key, other, caplog):
    caplog.set_level(logging.WARNING, "seqcast")
    with group_of(2, key=key) as groups:
        before, name = groups[0].view, groups[0].cluster
        assert re.search(r"127\.0\.0\.1:\d+ has a key, and this member has none.*key=", joins_not(name))
        assert re.search(r"127\.0\.0\.1:\d+ seals its datagrams with another key", joins_not(name, key=other))
        groups[0].send(b"after")
        assert [payloads(group, 1) for group in groups] == [[b"after"]] * 2
        assert [group.view for group in groups] == [before] * 2
        wait_until(lambda: all(group.counters()["drop_key"] > 2 for group in groups))
        wait_until(lambda: "has no key, and this member has one" in caplog.text)
        join(name, "y", key=key).leave()
    assert caplog.text.count("a: members of this cluster use different keys") <= 2 * 3, "once for each address"
    assert "(SC5001)" in caplog.text


def test_a_member_with_a_key_does_not_join_a_group_without_one_and_both_sides_say_why(key, caplog):
    caplog.set_level(logging.WARNING, "seqcast")
    with group_of(2) as groups:
        assert "has no key, and this member has one" in joins_not(groups[0].cluster, key=key)
        for name in "ab":
            told = rf"^{name}: members of this cluster use different keys, .*127\.0\.0\.1:\d+ has a key, and"
            lines = [each.getMessage() for each in caplog.records if re.search(told, each.getMessage())]
            assert len(lines) == 1 and "(SC5001)" in lines[0], caplog.text
        assert [len(group.view.members) for group in groups] == [2, 2]


def test_a_group_with_a_key_goes_on_when_members_crash_come_and_leave(key):
    with group_of(3, key=key) as groups:
        groups[1].leave()
        late = join(groups[0].cluster, "late", key=key)
        wait_until(lambda: len(groups[0].view.members) == 3)
        late.send(WORD)
        wait_until(lambda: late.view.members == groups[0].view.members == groups[2].view.members)
        assert WORD in payloads(groups[0], 1) and WORD in payloads(groups[2], 1)
        late.leave()


def test_a_key_file_that_is_none_any_more_is_told_and_the_group_goes_on(key, caplog):
    with group_of(2, key=key) as (a, b):
        with open(key, "w", encoding="ascii") as half:
            half.write("3 abc")
        wait_until(lambda: a.counters()["key_errors"] == 1)
        a.send(b"with the key before")
        assert b.recv(LIMIT_S).payload == b"with the key before"
    told = [record.getMessage() for record in caplog.records if "(SC5002)" in record.getMessage()]
    assert told and all("the keys before stay" in text for text in told)


def test_one_without_multicast_and_one_with_ipv6_have_a_key_too(key):
    settings = {"transport": "unicast", "seeds": "127.0.0.1", "port": 20_000 + os.getpid() % 20_000}
    six = {**settings, "ip_version": 6, "seeds": "::1"}  # (loopback has no IPv6 multicast, though some have a route)
    for more in (settings, six if socket.has_ipv6 and LOOPBACK == "lo" else settings):
        name = cluster()
        try:
            one = join(name, "a", key=key, **more)
        except seqcast.ConfigError:
            continue  # no IPv6 here
        two = join(name, "b", key=key, **more)
        two.send(WORD)
        assert payloads(one, 1) == payloads(two, 1) == [WORD]
        two.leave()
        one.leave()


@pytest.mark.multicast
def test_the_command_unblock_needs_the_key_and_says_so(key, tmp_path):
    with group_of(2, key=key, partition="primary", found=1) as groups:
        command = [sys.executable, "-m", "seqcast", "unblock", "--list", groups[0].cluster, "--interface", LOOPBACK]
        without = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert without.returncode == 1 and "has a key, and this member has none (--key)" in without.stderr
        with_key = subprocess.run([*command, "--key", key], capture_output=True, text=True, timeout=60)
        assert with_key.returncode == 1 and "is blocked as a minority" in with_key.stderr
        keys.make(new := str(tmp_path / "new"))
        (old,), (new_key,) = keys.read(key), keys.read(new)
        written(new, keys.Key((old.number + 1) % keys.IDS, new_key.secret), old)
        replaced = subprocess.run([*command, "--key", new], capture_output=True, text=True, timeout=60)
        assert replaced.returncode == 1 and "is blocked as a minority" in replaced.stderr, "members have the second key"


class FullLoad:
    """All members send as much as they may, and take everything; each looks for the next number of each sender."""

    HEAD, FILL, AT_ONCE = struct.Struct("<IQ"), bytes(1000), 50

    def __init__(self, groups):
        self.groups, self.stop, self.given_up = groups, threading.Event(), False
        self.sent, self.orders = [0] * len(groups), [hashlib.blake2b() for _ in groups]
        self.taken = [[0] * len(groups) for _ in groups]
        self.pool = ThreadPoolExecutor(2 * len(groups))
        self.senders = [self.pool.submit(self._send, number) for number in range(len(groups))]
        self.takers = [self.pool.submit(self._take, number) for number in range(len(groups))]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Threads that go on would keep the process of a failed test from its end."""
        self.given_up = True
        self.stop.set()
        self.pool.shutdown()

    def _send(self, number):
        while not self.stop.is_set():
            begin = self.sent[number]
            batch = [self.HEAD.pack(number, begin + each) + self.FILL for each in range(self.AT_ONCE)]
            self.groups[number].send_many(batch, timeout=LIMIT_S)
            self.sent[number] = begin + self.AT_ONCE

    def _take(self, number):
        taken, due = self.taken[number], time.monotonic() + LIMIT_S
        while not (all(each.done() for each in self.senders) and (self.given_up or taken == self.sent)):
            item = self.groups[number].recv_batch(timeout=0.1)
            assert item is not None or time.monotonic() < due, f"{number} has {taken} of {self.sent}"
            if isinstance(item, seqcast.Batch):
                due = time.monotonic() + LIMIT_S
                for payload in item.tolist():
                    sender, each = self.HEAD.unpack_from(payload)
                    assert each == taken[sender], f"{number} takes {each} of {sender} after {taken[sender]}"
                    taken[sender] += 1
                    self.orders[number].update(payload[: self.HEAD.size])

    def check(self):
        for each in self.senders + self.takers:
            assert not each.done() or each.result() is None

    def end(self):
        """Nothing was lost, nothing came twice, and all took everything in one order."""
        self.stop.set()
        for each in self.senders + self.takers:
            each.result()
        assert self.taken == [self.sent] * len(self.groups)
        assert len({each.digest() for each in self.orders}) == 1


def settled(groups):
    """The view that all are in; None: they are on their way there."""
    views = {group.view.view_id for group in groups}
    return views.pop() if len(views) == 1 else None


def understood(groups, load):
    """Waits for a stretch in one view that all are in: the load goes on, and each understands all the others."""

    def look():
        load.check()
        view, sent = settled(groups), list(load.sent)
        before = [group.counters()["drop_view"] for group in groups]
        time.sleep(0.2)
        after = [group.counters()["drop_view"] for group in groups]
        moved = all(now > then for now, then in zip(load.sent, sent, strict=True))
        return view is not None and view == settled(groups) and moved and before == after

    wait_until(look)


@pytest.mark.parametrize(
    ("rekey_s", "views"), [(0.3, 3), *(pytest.param(1.0, views, marks=pytest.mark.long) for views in (5, 55))]
)
def test_under_full_load_views_with_new_secrets_follow_each_other_and_nothing_is_lost(key, rekey_s, views):
    """A member that has entered the next view is not understood by one that has not, for a moment (drop_view)."""
    with group_of(3, key=key, rekey_s=rekey_s) as groups, FullLoad(groups) as load:
        first = groups[0].view.view_id.counter
        while groups[0].view.view_id.counter < first + views:
            load.check()
            time.sleep(0.05)
        load.end()
        assert min(load.sent) > 100 * views
        assert [group.counters()["drop_key"] for group in groups] == [0, 0, 0]
        assert {len(group.view.members) for group in groups} == {3}


@pytest.mark.long
def test_under_full_load_all_are_understood_in_each_view_that_all_are_in(key):
    """Views that another member makes by its coming and going: no secret wears out meanwhile."""
    with group_of(3, key=key) as groups, FullLoad(groups) as load:
        for number in range(5):
            join(groups[0].cluster, f"guest {number}", key=key).leave()
            wait_until(lambda: all(len(group.view.members) == 3 for group in groups))
            understood(groups, load)
        load.end()
        assert min(load.sent) > 1000
        assert [group.counters()["drop_key"] for group in groups] == [0, 0, 0]


def written(path, *lines):
    """The file with these keys, as programs that care replace a file."""
    with open(f"{path}.new", "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write("".join(f"{keys.line(key.number, key.secret)}\n" for key in lines))
    os.replace(f"{path}.new", path)


def replace_in_each(groups, paths, step, lines):
    for group, path in zip(groups, paths, strict=True):
        written(path, *lines)
        wait_until(lambda group=group: group.counters()["key_reads"] == step)
    wait_until(lambda: {group.counters()["key_id"] for group in groups} == {lines[0].number})


def test_a_member_whose_file_lacks_a_new_key_stays_and_is_told(key, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("seqcast.core.keys.LACKS_NS", 100_000_000)
    caplog.set_level(logging.WARNING, "seqcast")
    keys.make(str(tmp_path / "new"))
    (old,), (new,) = keys.read(key), keys.read(str(tmp_path / "new"))
    new = keys.Key((old.number + 1) % keys.IDS, new.secret)
    other = str(tmp_path / "other")
    written(other, old)
    name = cluster()
    with join(name, "a", key=other) as a, join(name, "c", key=key) as c:
        wait_until(lambda: len(a.view.members) == len(c.view.members) == 2)
        written(other, new, old)
        wait_until(lambda: f"c: the key file of this member lacks key {new.number}, the first one in" in caplog.text)
        wait_until(lambda: f"a: the key file of c lacks key {new.number}, the first one in" in caplog.text)
        assert [each.counters()["key_id"] for each in (a, c)] == [old.number] * 2
        with join(name, "b", key=other) as b:
            wait_until(lambda: {len(each.view.members) for each in (a, b, c)} == {3})
        written(key, new, old)
        wait_until(lambda: [each.counters()["key_id"] for each in (a, c)] == [new.number] * 2)
        assert a.counters()["drop_key"] == 0
    assert "SC5006" in caplog.text and "SC5001" not in caplog.text


@pytest.mark.multicast
def test_an_operator_asks_with_the_first_key_of_the_file_and_then_with_each_in_turn(key):
    keys.add(key)
    name = cluster()
    with Wire(name) as wire, OperatorRunner(name, Config(key=key, interface=LOOPBACK), 1.5, 0.0) as runner:
        runner.ask()
        marks = [header(each).key_id >> 9 & 31 for each in wire.listen()]
    first, second = (each.number for each in keys.read(key))
    assert marks[:4] == [first, second, first, second]


@pytest.mark.long
def test_a_key_is_replaced_in_three_steps_while_all_members_run_and_send(key, tmp_path):
    """Each member has a file of its own, as on a machine of its own; in each step they change one after the other."""
    paths = [str(tmp_path / f"key of {member}") for member in "abc"]
    keys.make(str(tmp_path / "new"))
    (old,), (new,) = keys.read(key), keys.read(str(tmp_path / "new"))
    new = keys.Key((old.number + 1) % keys.IDS, new.secret)
    for path in paths:
        written(path, old)
    name = cluster()
    with ExitStack() as stack:
        groups = [stack.enter_context(join(name, member, key=path)) for member, path in zip("abc", paths, strict=True)]
        wait_until(lambda: all(len(group.view.members) == 3 for group in groups))
        with FullLoad(groups) as load:
            for step, lines in enumerate(((old, new), (new, old), (new,)), 1):
                replace_in_each(groups, paths, step, lines)
                late = join(name, "late", key=paths[step - 1])  # datagrams outside views, and a new view
                late.leave()
                load.check()
            load.end()
        counted = [group.counters() for group in groups]
        assert [(each["drop_key"], each["key_errors"]) for each in counted] == [(0, 0)] * 3
        by_unicast = os.environ.get("SEQCAST_TRANSPORT") == "unicast"  # few datagrams are then outside a view
        assert by_unicast or any(each["opened_other"] for each in counted)
        written(key, old)
        assert "another key" in joins_not(name, key=key, join_timeout_s=10.0)
