"""The log of a group: joins, views, exclusions with name and reason, slow receivers; and nothing for each message."""

import json
import logging
import re
import signal

import pytest
from halves import first_quick
from members import LIMIT_S, LOOPBACK, cluster, group_of, join, script, wait_until

import seqcast
from seqcast.config import MEMBERSHIPS
from seqcast.reports import EVIDENCE


def lines(caplog, member, part=None):
    return [
        record.getMessage().partition(": ")[2]
        for record in caplog.records
        if record.getMessage().startswith(f"{member}: ") and part in (None, record.name.removeprefix("seqcast."))
    ]


@pytest.mark.parametrize("membership", first_quick(MEMBERSHIPS))
def test_joins_views_a_crash_and_leaves_are_told_in_one_line_each_with_names_and_reasons(caplog, membership):
    caplog.set_level(logging.INFO, "seqcast")
    name = cluster()
    with join(name, "a", membership=membership) as a:
        with join(name, "b", membership=membership):
            process = script(
                "import sys, seqcast\n"
                "group = seqcast.join(sys.argv[1], name='c', interface=sys.argv[2], membership=sys.argv[3])\n"
                "print('in', flush=True)\nsys.stdin.read()",
                name, LOOPBACK, membership,
            )  # fmt: skip
            assert process.stdout.readline() == "in\n"
            wait_until(lambda: len(a.view.members) == 3)
            process.send_signal(signal.SIGKILL)
            process.wait()
            wait_until(lambda: len(a.view.members) == 2)
        wait_until(lambda: len(a.view.members) == 1)
        wait_until(lambda: len(lines(caplog, "a", "membership")) >= 5)
        told = [re.sub(r"took \d+ ms", "took N ms", line) for line in lines(caplog, "a", "membership")]
        suspicion = next(line for line in lines(caplog, "a", "detector") if line.startswith("suspects c: "))
        why = suspicion.removeprefix("suspects c: ")
        assert why in EVIDENCE.values()
        assert told == [
            "joined: view 1 [a]; a puts the messages in order",
            "view 2 [a, b]: b joined; took N ms",
            "view 3 [a, b, c]: c joined; took N ms",
            f"view 4 [a, b]: c was excluded ({why}); took N ms (SC3105)",
            "view 5 [a]: b left; took N ms",
        ]
        assert lines(caplog, "b", "membership")[0] == "joined: view 2 [a, b]; a puts the messages in order"
        assert lines(caplog, "b", "membership")[-1] == "left; the others: view 5 [a]"
        before = len(caplog.records)
        for _ in range(200):
            a.send(b"x")
            a.recv(10)
        assert len(caplog.records) == before, "nothing for each message"
    assert lines(caplog, "a", "membership")[-1] == "left; it was the last member"


@pytest.mark.parametrize("partition", first_quick(["merge", "primary"]))
def test_an_exclusion_is_a_warning_with_name_and_reason_at_the_others_and_at_the_victim(partition, caplog):
    """Also if only warnings are shown, as by default."""
    settings = {"partition": partition, **({"found": 1} if partition == "primary" else {})}
    text = (
        "import json, logging, sys, seqcast\n"
        "logging.basicConfig(level='WARNING', stream=sys.stdout, format='%(message)s')\n"
        "with seqcast.join(sys.argv[1], name='c', interface=sys.argv[2], **json.loads(sys.argv[3])) as group:\n"
        "    print('in', flush=True)\n"
        "    for event in group.events():\n"
        "        if isinstance(event, (seqcast.MergeView, seqcast.Excluded)): break\n"
    )
    with group_of(2, **settings) as (a, b):
        process = script(text, a.cluster, LOOPBACK, json.dumps(settings))
        assert process.stdout.readline() == "in\n"
        wait_until(lambda: len(a.view.members) == 3)
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: len(a.view.members) == 2)
        process.send_signal(signal.SIGCONT)
        said = process.communicate(timeout=LIMIT_S)[0]
        for member in (a, b):
            warned = [record for record in caplog.records if record.getMessage().startswith(f"{member.member.name}: ")]
            assert any("c was excluded (" in record.getMessage() and record.levelname == "WARNING" for record in warned)
    told = "they have gone on without this member" if partition == "merge" else "was excluded from the group: "
    assert any(line.startswith("c: ") and told in line for line in said.splitlines()), said


def test_a_part_is_switched_to_debugging_while_the_group_runs(caplog):
    """TRC-01."""
    with group_of(1) as (a,):
        flush = logging.getLogger("seqcast.flush")
        caplog.set_level(logging.DEBUG, "seqcast.flush")
        with join(a.cluster, "b"):
            wait_until(lambda: len(a.view.members) == 2)
        wait_until(lambda: len(a.view.members) == 1)
        seen = {record.name for record in caplog.records if record.levelno == logging.DEBUG}
        assert seen == {"seqcast.flush"}, "the other parts are off"
        assert any("NewView" in line for line in lines(caplog, "a"))
        flush.setLevel(logging.WARNING)
        wait_until(lambda: not a._runner.endpoint.log.debugged)  # lines of the step before are out
        caplog.clear()
        with join(a.cluster, "c"):
            wait_until(lambda: len(a.view.members) == 2)
        assert not caplog.records and not a._runner.endpoint.log.debugged


def test_a_receiver_that_holds_senders_up_is_named(caplog):
    caplog.set_level(logging.INFO, "seqcast.detector")
    with group_of(3, order="fifo", deliver_own=False) as (a, b, c):
        sent = 0
        while True:
            try:
                a.send(bytes(100_000), timeout=2.0)  # longer than b may need
            except seqcast.SendTimeout:
                break
            sent += 1
            while b.recv_batch(0) is not None:
                pass
        named = "senders wait for c, which has taken nothing"
        wait_until(lambda: any(named in line for line in lines(caplog, "a", "detector")))
        assert {r.levelname for r in caplog.records if named in r.getMessage()} == {"WARNING"}
        told = "senders wait for this member: its application takes 0 messages/s"
        wait_until(lambda: any(told in line for line in lines(caplog, "c", "detector")))
        assert {r.levelname for r in caplog.records if told in r.getMessage()} == {"WARNING"}
        wait_until(
            lambda: (
                c.recv_batch(0.0) is None
                and any("senders no longer wait for c" in line for line in lines(caplog, "a", "detector"))
            )
        )


def test_a_wait_for_members_that_takes_long_is_told_once_with_the_names(caplog):
    with pytest.raises(seqcast.JoinTimeout):
        join(cluster(), "a", min_members=3, join_timeout_s=2.5)
    assert lines(caplog, "a").count("join waits for min_members=3 members; there: a, for 1 s so far (SC3206)") == 1


def test_a_leave_that_waits_for_a_stopped_member_is_told_with_its_name(caplog):
    name = cluster()
    with join(name, "a", suspect_s=20.0, suspect_s_max=20.0, name_taken_s=20.0, flush_deadline_s=20.0) as a:
        process = script(
            "import sys, seqcast\n"
            "group = seqcast.join(sys.argv[1], name='b', interface=sys.argv[2])\n"
            "print('in', flush=True)\nsys.stdin.read()",
            name, LOOPBACK,
        )  # fmt: skip
        assert process.stdout.readline() == "in\n"
        wait_until(lambda: len(a.view.members) == 2)
        process.send_signal(signal.SIGSTOP)
        a.leave(timeout=2.5)
        process.kill()
        process.wait()
    told = [line for line in lines(caplog, "a") if line.startswith("leave waits until")]
    assert told == ["leave waits until all that was sent has reached b, for 1 s so far (SC3206)"]
