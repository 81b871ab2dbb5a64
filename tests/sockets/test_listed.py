"""On real sockets: a group whose members have identities."""

import logging
import os
import subprocess
import sys

import pytest
from hostile import forge
from hostile.attacks import REACHED, SETTINGS, STRANGERS, Attacker
from hostile.sealing import SealingSocket, unharmed
from members import LIMIT_S, LOOPBACK, cluster, join, payloads, wait_until

import seqcast
from seqcast._native.driver import describe_address
from seqcast.config import identities, keys
from seqcast.core.secrets import CIPHERS

pytest.importorskip("nacl")
from nacl import bindings

from seqcast.net.secure import Ed25519


class Machines:
    """Each process has an identity of its own, and all have one list."""

    def __init__(self, path):
        self.path, self.cluster, self.lines = path, cluster(), {}
        self.key, self.list = str(path / "key"), str(path / "members")
        keys.make(self.key)

    def identity(self, name, rest=None):
        """A new identity, with its line in the list."""
        seed, path = os.urandom(32), str(self.path / f"{name}.id")
        identities.make(path, seed)
        self.write(name, f"{identities.described(Ed25519(seed).public)} {rest or name}")
        return path

    def write(self, name, line):
        self.lines[name] = line
        with open(f"{self.list}.new", "w", encoding="ascii") as file:
            file.write("".join(f"{each}\n" for each in self.lines.values()))
        os.replace(f"{self.list}.new", self.list)

    def settings(self, name):
        return {"key": self.key, "identity": str(self.path / f"{name}.id"), "authorized": self.list}

    def join(self, name, **more):
        return join(self.cluster, name, **{**self.settings(name), **more})

    def group(self, *names, **more):
        for name in names:
            self.identity(name)
        groups = [self.join(name, **more) for name in names]
        wait_until(lambda: all(len(group.view.members) == len(names) for group in groups))
        return groups


@pytest.fixture
def machines(tmp_path):
    return Machines(tmp_path)


def test_members_on_the_list_meet_and_one_that_is_not_is_refused_by_name(machines):
    a, b = machines.group("a", "b")
    a.send(b"one of us")
    assert payloads(b, 1) == [b"one of us"]
    machines.identity("mallory", rest="m-*")
    own = machines.path / "own list"
    own.write_text(machines.lines["mallory"].replace("m-*", "*") + "\n" + "\n".join(machines.lines.values()))
    with pytest.raises(seqcast.JoinRefused, match=r"mallory.*no line there for this name"):
        machines.join("mallory", authorized=str(own))
    with pytest.raises(seqcast.JoinRefused, match="mallory has no identity"):
        join(machines.cluster, "mallory", key=machines.key)
    with pytest.raises(seqcast.ConfigError, match="does not give this identity the name"):
        machines.join("mallory")
    assert len(a.view.members) == len(b.view.members) == 2
    b.leave()
    a.leave()


def test_a_member_whose_line_goes_is_put_out_and_joins_again_when_the_line_is_back(machines):
    a, b, c = machines.group("a", "b", "c")
    line = machines.lines["c"]
    c.send(b"my last words")
    assert payloads(a, 1) == [b"my last words"]
    machines.write("c", "# " + line)
    wait_until(lambda: len(a.view.members) == len(b.view.members) == 2)
    with pytest.raises(seqcast.NotMember, match="list of members"):
        while True:
            c.recv(LIMIT_S)
    a.send(b"without c")
    assert payloads(b, 2) == [b"my last words", b"without c"]
    wait_until(lambda: a.counters()["list_reads"])  # b may have put c out
    assert a.counters()["list_reads"] == 1
    machines.write("c", line)
    # b may have seen neither change, or the first one alone: then b would refuse c still
    wait_until(lambda: a.counters()["list_reads"] == 2 and b.counters()["list_reads"] in (0, 2))
    again = machines.join("c")
    wait_until(lambda: len(a.view.members) == 3)
    for group in (again, b, a):
        group.leave()


def test_a_line_runs_out(machines):
    a, b = machines.group("a", "b")
    machines.write("b", machines.lines["b"] + " until=2020-01-01")
    wait_until(lambda: [member.name for member in a.view.members] == ["a"])
    a.leave()
    with pytest.raises(seqcast.NotMember):
        b.send(b"nobody hears this")


def test_a_list_that_is_none_any_more_is_told_and_the_group_goes_on(machines, caplog):
    a, b = machines.group("a", "b")
    machines.write("c", "half a li")
    wait_until(lambda: a.counters()["list_errors"] == b.counters()["list_errors"] == 1)
    a.send(b"with the list before")
    assert b.recv(LIMIT_S).payload == b"with the list before"
    told = [record for record in caplog.records if "(SC5004)" in record.getMessage()]
    assert told and all(record.levelno == logging.WARNING for record in told)
    b.leave()
    a.leave()


def test_one_without_an_identity_that_was_first_is_named_and_stays_alone(machines, caplog):
    alone = join(machines.cluster, "alone", key=machines.key)
    machines.identity("a")
    a = machines.join("a", discovery_s=0.5)
    wait_until(lambda: a.counters()["control_frames_unproven"] > 0)
    wait_until(lambda: any("(SC5003)" in record.getMessage() for record in caplog.records))
    assert len(a.view.members) == len(alone.view.members) == 1
    a.leave()
    alone.leave()


@pytest.mark.long
def test_only_an_operator_on_the_list_unblocks(machines):
    common = ["--interface", LOOPBACK, "--key", machines.key, "--authorized", machines.list]

    def command(which, who, *more):
        own = ["--identity", str(machines.path / f"{who}.id")]
        return [sys.executable, "-m", "seqcast", which, machines.cluster, *common, *own, *more]

    for name, rest in (("a", "a"), ("b", "b"), ("c", "c"), ("o", "o operator"), ("p", "p")):
        machines.identity(name, rest)
    tails = [
        subprocess.Popen(command("tail", name, "--name", name, "--partition", "primary", "--found", "3"))
        for name in ("b", "c")
    ]
    try:
        last = machines.join("a", partition="primary", found=3)
        wait_until(lambda: len(last.view.members) == 3)
    finally:
        for each in tails:
            each.kill()
            each.wait()

    def unblock(who):
        return subprocess.run(command("unblock", who), capture_output=True, text=True, timeout=100)

    wait_until(lambda: unblock("p").returncode == 1 and last.counters()["control_frames_unproven"] > 0)
    assert len(last.view.members) == 3
    wait_until(lambda: unblock("o").returncode == 0)
    wait_until(lambda: len(last.view.members) == 1)
    last.leave()


class OldMemory:
    """Seals the datagrams of one that was excluded, with all its knowledge from its last view.

    Args:
        socket: from which they go.
        group: the former member, before its exclusion.
    """

    def __init__(self, socket, group):
        context = group._runner.endpoint.context
        self.secret, self.tag = context.secrets._current, group.view.view_id.tag
        assert CIPHERS[context.entered.cipher] == "xchacha20-poly1305"
        self.ids = {describe_address(member.address): member.id for member in group.view.members}
        self.socket, self.sent = socket, 1 << 40

    def __getattr__(self, name):
        return getattr(self.socket, name)

    def sendto(self, datagram, to):
        if len(datagram) >= 40:
            self.sent += 1
            target = self.ids.get("{}:{}".format(*to), 0)
            datagram = forge.sealed_inside(datagram, self.sent, self.tag, self.secret, target, encrypted, 32)
        self.socket.sendto(datagram, to)


def encrypted(data, header, key, nonce):
    return bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(data + bytes(16), header, nonce + bytes(8), key)


class Former(Attacker):
    """One that was excluded, and speaks of the present view, or of its last one."""

    last = 0

    @property
    def tag(self):
        return self.last or super().tag


ALL = [each for each in STRANGERS if not SETTINGS[each]]


@pytest.mark.parametrize("names", [REACHED, pytest.param(ALL, marks=pytest.mark.long)], ids=["some", "all"])
@pytest.mark.parametrize("speaks", ["of the present view", "of its last view"])
def test_an_excluded_member_with_its_old_memory_is_counted_and_changes_nothing(machines, speaks, names):
    """With its id, its identity and key file, and the secret of its last view, which opens for a while yet."""
    *others, former = machines.group("a", "b", "c", "d", cipher="xchacha20-poly1305")
    attacker = Former(others)
    attacker.own = former.member.id
    attacker.socket = OldMemory(attacker.socket, former)
    last = former.view.view_id.tag
    machines.write("d", "# " + machines.lines["d"])
    wait_until(lambda: all(len(group.view.members) == 3 for group in others))
    attacker.last = last if speaks == "of its last view" else 0
    dropped = attacker.count("drop_view")
    unharmed(others, attacker, names)
    assert attacker.count("drop_view") > dropped + 500
    attacker.close()
    for group in others:
        group.leave()


BETWEEN = ("merge_ask_without_a_beacon", "unblock_by_anybody")


@pytest.mark.parametrize(
    "names",
    [BETWEEN, pytest.param(ALL, marks=pytest.mark.long)],
    ids=["between views", "all"],
)
def test_one_with_the_key_file_and_no_identity_changes_nothing(machines, names):
    groups = machines.group("a", "b", "c")
    attacker = Attacker(groups)
    attacker.socket = SealingSocket(attacker.socket, groups[0].cluster, machines.key)
    unharmed(groups, attacker, names)
    assert attacker.count("control_frames_unproven") > 0
    attacker.close()
    for group in groups:
        group.leave()
