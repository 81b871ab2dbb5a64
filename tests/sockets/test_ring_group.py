"""Groups on real sockets whose members agree on the membership by a token ring (``membership="token-ring"``)."""

import signal

import pytest
from members import LIMIT_S, LOOPBACK, cluster, join, script, wait_until

import seqcast

RING = {"membership": "token-ring"}


def names(group):
    return [member.name for member in group.view.members]


def test_members_join_die_and_leave_and_messages_stay_in_one_order():
    name = cluster()
    process = script(
        "import sys, seqcast\ngroup = seqcast.join(sys.argv[1], name='a', interface=sys.argv[2], "
        "membership='token-ring', order='total')\nprint('in', flush=True)\nsys.stdin.read()",
        name, LOOPBACK,
    )  # fmt: skip
    assert process.stdout.readline() == "in\n"
    with join(name, "b", order="total", **RING) as b, join(name, "c", order="total", **RING) as c:
        wait_until(lambda: names(b) == names(c) == ["a", "b", "c"])
        process.send_signal(signal.SIGKILL)  # the leader of the ring, which also orders
        process.wait()
        wait_until(lambda: names(b) == names(c) == ["b", "c"])
        for number in range(100):
            (b, c)[number % 2].send(b"%d" % number)
        told = [[group.recv(LIMIT_S).payload for _ in range(100)] for group in (b, c)]
        assert told[0] == told[1] and sorted(map(int, told[0])) == list(range(100))
        with join(name, "d", order="total", **RING) as d:
            wait_until(lambda: names(b) == names(d) == ["b", "c", "d"])
        wait_until(lambda: names(b) == names(c) == ["b", "c"])


def test_a_joiner_with_another_kind_of_membership_is_refused():
    name = cluster()
    with join(name, "a", **RING), pytest.raises(seqcast.JoinRefused, match="membership=token-ring, not coordinated"):
        join(name, "b")
