"""Observers on sockets: they receive everything, send to single members only, and stay with no group of their own."""

import json
import subprocess
import sys

import pytest
from members import LIMIT_S, LOOPBACK, cluster, group_of, join, payloads, wait_until

import seqcast


def test_an_observer_receives_everything_and_sends_to_single_members_only():
    name = cluster()
    with join(name, "a") as a, join(name, "z", observer=True) as z, join(name, "b") as b:
        wait_until(lambda: len(a.view) == len(b.view) == len(z.view) == 3)
        assert [(member.name, member.observer) for member in z.view] == [("a", False), ("b", False), ("z", True)]
        a.send(b"one")
        b.send(b"two")
        assert payloads(z, 2) == payloads(a, 2)
        for send in (
            lambda: z.send(b"x"),
            lambda: z.send_many([b"x"]),
            lambda: z.send_batch(b"x", [0, 1]),
            lambda: z.deliver(b"x"),
        ):
            with pytest.raises(seqcast.UsageError, match="an observer sends nothing to the group"):
                send()
        z.send(b"question", to="a")
        assert a.recv(LIMIT_S).payload == b"question"
        a.send(b"answer", to=z.member)
        assert payloads(z, 1) == [b"answer"]


def test_an_observer_founds_no_group_and_does_not_count_for_min_members():
    name = cluster()
    with pytest.raises(seqcast.JoinTimeout, match="an observer founds none"):
        join(name, "z", observer=True, join_timeout_s=1.0)
    with join(name, "a") as a, join(name, "z", observer=True):
        wait_until(lambda: len(a.view) == 2)
        with pytest.raises(seqcast.JoinTimeout, match="has 2 of min_members=3"):
            join(name, "b", min_members=3, join_timeout_s=3.0)


def test_an_observer_is_excluded_with_the_last_member_and_joins_again_when_there_is_one():
    name = cluster()
    a = join(name, "a")
    with join(name, "z", observer=True, rejoin=True) as z:
        wait_until(lambda: len(a.view) == 2)
        a.send(b"last")
        assert a.leave(), "it does not wait for the observer to leave"
        events = z.events()
        seen = [next(events)]
        while not isinstance(seen[-1], seqcast.Excluded):
            seen.append(next(events))
        assert seen[-1].cause == "unled" and any(getattr(each, "payload", b"") == b"last" for each in seen)
        with join(name, "b") as b:
            assert isinstance(next(events), seqcast.Rejoined)
            wait_until(lambda: len(b.view) == 2 and z.member in b.view)


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"membership": "token-ring"}, "membership='coordinated'"), ({"observer": 1}, "True or False")],
)
def test_settings_that_no_observer_can_have_are_refused(settings, why):
    with pytest.raises(seqcast.ConfigError, match=why):
        seqcast.Config(**{"observer": True, **settings})


def test_a_replica_cannot_be_an_observer():
    with pytest.raises(seqcast.ConfigError, match="observer=True: a replica needs observer=False"):
        seqcast.replicate("x", Machine(), observer=True)


class Machine:
    def apply(self, operation):
        return b""

    def snapshot(self, write):
        write(b"")

    def restore(self, read):
        read(1)


def test_tail_observes_and_probe_shows_who_does():
    with group_of(1) as (a,):
        tail = subprocess.Popen(
            [sys.executable, "-m", "seqcast", "tail", a.cluster, "--observe", "--json", "--count", "1", "--interface",
             LOOPBACK, "--name", "t"],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        wait_until(lambda: len(a.view) == 2)
        listed = subprocess.run(
            [sys.executable, "-m", "seqcast", "probe", a.cluster, "--json"], capture_output=True, check=False
        )
        observe = {each["name"]: each["observer"] for each in json.loads(listed.stdout)["members"]}
        assert observe == {"a": False, "t": True}
        a.send(b"x")
        rows = [json.loads(line) for line in tail.communicate(timeout=LIMIT_S)[0].splitlines()]
        assert rows[0]["observers"] == ["t"] and rows[-1]["payload"] == "x"
