"""A group or a crowd that the program drops without leaving leaves by itself, with a warning, like an open file."""

import asyncio
import gc
import subprocess
import sys
import threading
import warnings
from unittest import mock

import pytest
from members import LIMIT_S, LOOPBACK, PATIENT_JOINER, cluster, join, output, script, troubles, wait_until

import seqcast
import seqcast.aio


def test_a_dropped_group_leaves_with_a_warning():
    name = cluster()
    with join(name, "a") as a:
        b = join(name, "b")
        wait_until(lambda: len(a.view) == 2)
        b.send(b"last")
        with pytest.warns(ResourceWarning, match=rf"<seqcast.Group '{name}' member 'b'> was never left \(SC1205\)"):
            del b
            gc.collect()
        wait_until(lambda: len(a.view) == 1)
        assert a.recv(LIMIT_S).payload == b"last"
        assert a.counters()["control_members_lost"] == 0


def test_a_dropped_group_of_asyncio_leaves_when_its_loop_is_gone():
    name = cluster()

    async def main():
        group = await seqcast.aio.join(name, name="b", interface=LOOPBACK, **PATIENT_JOINER)
        while len(group.view) < 2:
            await asyncio.sleep(0.01)

    with join(name, "a") as a:
        with pytest.warns(ResourceWarning, match="member 'b'> was never left"):
            asyncio.run(asyncio.wait_for(main(), LIMIT_S))
            # The thread that joined may still have the group.
            wait_until(lambda: gc.collect() >= 0 and len(a.view) == 1)


def test_a_crowd_that_was_left_with_events_unread_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        crowd = seqcast.join_crowd(cluster(), interface=LOOPBACK)
        crowd.send(b"nobody reads it")
        runner = crowd.runner
        wait_until(lambda: runner._events)
        crowd.leave(0.0)
        assert not runner.over
        del crowd
        gc.collect()


def test_a_crowd_may_be_dropped_by_its_own_thread():
    """Which calls the function that asyncio waits with, and collects garbage as any other does."""
    crowd = [seqcast.join_crowd(cluster(), interface=LOOPBACK)]
    runner = crowd[0].runner
    failed = []
    with pytest.warns(ResourceWarning, match="was never left"), mock.patch.object(sys, "unraisablehook", failed.append):
        runner.add_callback(lambda: threading.current_thread() is runner._thread and crowd.clear())
        crowd[0].send(b"to itself")
        wait_until(lambda: not runner._thread.is_alive())
    assert not failed and runner.left


def test_a_dropped_crowd_is_left_with_a_warning():
    crowd = seqcast.join_crowd(cluster(), interface=LOOPBACK)
    runner = crowd.runner
    with pytest.warns(ResourceWarning, match=r"<seqcast\.Crowd .* was never left"):
        del crowd
        gc.collect()
    wait_until(lambda: runner.over)


def test_groups_that_were_left_or_never_joined_give_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group = join(cluster(), "a")
        group.leave()
        crowd = seqcast.join_crowd(cluster(), interface=LOOPBACK)
        crowd.leave(0.0)
        del group, crowd
        with pytest.raises(seqcast.ConfigError):
            seqcast.join(cluster(), interface="nosuchinterface0")
        gc.collect()


@pytest.mark.long
def test_a_process_that_ends_after_it_dropped_a_group_leaves_it_first():
    name = cluster()
    text = """
import sys, seqcast
group = seqcast.join(sys.argv[1], name="b", interface=sys.argv[2])
group.send(b"last")
del group
"""
    with join(name, "a") as a:
        output(script(text, name, LOOPBACK))
        assert a.recv(LIMIT_S).payload == b"last"
        wait_until(lambda: len(a.view) == 1)
        assert a.counters()["control_members_lost"] == 0


def test_a_group_that_lives_until_the_process_ends_gives_no_warning():
    """The group is left then, as ever."""
    text = "import sys, seqcast; group = seqcast.join(sys.argv[1], interface=sys.argv[2])"
    command = [sys.executable, "-W", "always", "-c", text, cluster(), LOOPBACK]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (result.returncode, troubles(result.stderr)) == (0, [])
