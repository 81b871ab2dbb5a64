"""On real sockets: attacks on a group, from a stranger's socket and from that of a member gone wrong."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from halves import first_quick
from hostile.attacks import DROPS, FAULTY, REACHED, SETTINGS, STRANGERS, Heckler, attacking
from hostile.sealing import SealingSocket, unharmed
from members import LIMIT_S, cluster, group_of, join, wait_until

import seqcast
from seqcast.config import keys
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.joining import Join, Refused, Wait


def drain(group, wanted, timeout=LIMIT_S):
    """Takes deliveries until all of ``wanted`` has come; returns the others."""
    missing, besides = set(wanted), []
    deadline = time.monotonic() + timeout
    while missing:
        batch = group.recv_batch(max(0.0, deadline - time.monotonic()))
        assert batch is not None, f"{sorted(missing)} did not come within {timeout:g} s"
        for payload in batch.tolist():
            if payload in missing:
                missing.discard(payload)
            else:
                besides.append(payload)
    return besides


@pytest.mark.parametrize("name", STRANGERS)
def test_a_stranger_changes_nothing(name):
    """The view stays, members' messages are delivered, and nothing that nobody sent."""
    with group_of(3, **SETTINGS[name]) as groups, attacking(groups) as attacker:
        for group in groups:
            group.send(b"before")
        for group in groups:
            drain_n(group, 3)
        before = groups[0].view
        STRANGERS[name](attacker)
        for number, group in enumerate(groups):
            group.send(b"from %d" % number, timeout=LIMIT_S)
        extra = attacker.notes.get("extra", 0)
        for group in groups:
            besides = drain(group, [b"from %d" % number for number in range(3)])
            assert len(besides) == extra and not any(b"forged" in payload for payload in besides)
        if "joined" in attacker.notes:
            wait_until(lambda: all(group.view.members == before.members for group in groups))
        else:
            assert [group.view for group in groups] == [before] * 3


@pytest.mark.parametrize("has_key", [False, True], ids=["nothing", "the key file"])
def test_a_stranger_changes_nothing_in_a_group_with_a_key(tmp_path, has_key):
    """All in one group, which takes less time; the storms of the simulator send far more."""
    keys.make(path := str(tmp_path / "key"))
    with group_of(3, key=path) as groups, attacking(groups) as attacker:
        if has_key:
            attacker.socket = SealingSocket(attacker.socket, groups[0].cluster, path)
        unharmed(groups, attacker, REACHED)
        assert sum(attacker.count(name) for name in DROPS) > 500
        assert (attacker.count("drop_key") > 0) != has_key, "with the file all opens that is tried"


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [dict(each) for each in sorted({(*SETTINGS[name].items(),) for name in STRANGERS}) if "guard" not in dict(each)],
    ids=str,
)
def test_a_stranger_without_the_key_changes_nothing_by_any_attack(tmp_path, settings):
    keys.make(path := str(tmp_path / "key"))
    names = [name for name in STRANGERS if SETTINGS[name] == settings]
    with group_of(3, key=path, **settings) as groups, attacking(groups) as attacker:
        unharmed(groups, attacker, names)
        assert sum(attacker.count(name) for name in DROPS) > 0


def drain_n(group, n, timeout=LIMIT_S):
    deadline = time.monotonic() + timeout
    while n > 0:
        batch = group.recv_batch(max(0.0, deadline - time.monotonic()))
        assert batch is not None
        n -= len(batch)


@pytest.mark.parametrize("name", first_quick(FAULTY))
def test_a_member_gone_wrong_stops_nobody_but_itself(name):
    """The others are in one view in the end, with the attacker or without, and their messages are delivered to them."""
    with group_of(3, **SETTINGS[name]) as groups, attacking(groups, 2) as attacker:
        FAULTY[name](attacker)
        others = attacker.others

        def together():
            return len({group.view.view_id for group in others}) == 1

        wait_until(together)
        for number, group in enumerate(others):
            group.send(b"from %d" % number, timeout=LIMIT_S)
        for group in others:
            drain(group, [b"from %d" % number for number in range(len(others))])
        if "stream" in attacker.notes:
            stream(others, groups[2])
        wait_until(together)
        assert {group.member.name for group in others} <= {member.name for member in others[0].view.members}


def stream(others, faulty, n=400):
    """More than a window, so that the sender needs credit of all others, and of the faulty member if that one is
    back."""
    message, window = bytes(60_000), others[0].counters()["window_bytes"]
    assert n * len(message) > 2 * window, f"the window is {window}"
    over = threading.Event()

    def take_all():
        while not over.is_set():
            faulty.recv_batch(0.05)

    with ThreadPoolExecutor() as pool:
        pool.submit(take_all)
        try:
            sent = pool.submit(lambda: [others[0].send(message, timeout=LIMIT_S) for _ in range(n)])
            for each in [pool.submit(drain_n, group, n) for group in others]:
                each.result()
            sent.result()
        finally:
            over.set()


def refuses(frame):
    return Refused("\x1b]0;owned\x07\x1b[2Jgo away\u202e", "full", frame.nonce if frame else 0xBAD)


@pytest.mark.multicast
@pytest.mark.parametrize("hears", [True, False], ids=["by one who hears it", "by one who does not"])
def test_a_joiner_that_somebody_refuses_is_in_when_the_group_takes_it(hears):
    with group_of(2) as groups, Heckler(groups[0].cluster, refuses, hears) as heckler:
        with join(groups[0].cluster, "x") as x:
            assert len(x.view.members) == 3
            wait_until(lambda: heckler.said > 0)


@pytest.mark.multicast
def test_the_text_of_a_refusal_is_shown_without_the_codes_that_a_terminal_obeys():
    name = cluster()
    with Heckler(name, refuses), pytest.raises(seqcast.JoinRefused) as raised:
        join(name, "x")
    assert "go away" in str(raised.value) and str(raised.value).isprintable()


def test_a_joiner_that_is_told_to_wait_by_one_who_has_not_heard_it_forms_its_group():
    name = cluster()
    with Heckler(name, lambda frame: Wait(0xBAD, "\x1b[2J", 0xBAD), hears=False) as heckler:
        with join(name, "x") as x:
            assert len(x.view.members) == 1
            wait_until(lambda: heckler.said > 0)


def test_a_joiner_does_not_wait_for_ever_for_one_with_a_lower_id():
    name = cluster()

    def joins(frame):
        info = MemberInfo("evil", 1, b"\4", 1 << 20, 1472, 1 << 20)
        return Join(frame.version, frame.cluster, frame.order, frame.mechanisms, info, 0, frame.shared, 1)

    with Heckler(name, joins), join(name, "x", join_timeout_s=LIMIT_S) as x:
        assert len(x.view.members) == 1
