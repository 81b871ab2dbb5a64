"""The threads of a member that are bound to cores (``io_cores``, ``control_cores``)."""

import os
import threading

import pytest
from members import LIMIT_S, cluster, group_of, join

import seqcast
from seqcast.board.read import threads
from seqcast.config import check

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads are bound to cores on Linux")


def affinity(group):
    """The cores of each thread of a member, by the first word of the thread's name."""
    name = group.member.name
    found = {}
    for thread in threading.enumerate():
        if thread.name in (f"seqcast-io-{name}", f"seqcast-control-{name}"):
            found[thread.name.split("-")[1]] = os.sched_getaffinity(thread.native_id)
    return found


def test_each_thread_runs_on_its_cores_and_others_on_any():
    mine = os.sched_getaffinity(0)
    core = max(mine)
    with group_of(1, io_cores=str(core)) as (a,):
        a.send(b"x")
        assert a.recv(LIMIT_S).payload == b"x"
        assert affinity(a) == {"io": {core}, "control": mine}
    with group_of(1, control_cores=f"{core}") as (a,):
        assert affinity(a) == {"io": mine, "control": {core}}
    assert os.sched_getaffinity(0) == mine


def test_the_system_knows_the_threads_by_name_and_their_cores_are_read_from_outside():
    core = max(os.sched_getaffinity(0))
    with group_of(1, io_cores=str(core)) as (a,):
        a.send(b"x")
        assert a.recv(LIMIT_S).payload == b"x"  # both run, so both have their names
        found = {name: cores for name, cores, *_ in threads(os.getpid())}
        assert found["seqcast-io-a"] == str(core) and check.cores("", found["seqcast-control"]) == os.sched_getaffinity(
            0
        )
        assert all(float(seconds) >= 0 and last.isdecimal() for _, _, last, seconds in threads(os.getpid()))
    assert threads(2**22 + 7) == []


@pytest.mark.parametrize("text", ["x", "1-", "-1", "1;2", "99999"])
def test_a_text_that_names_no_cores_is_refused(text):
    with pytest.raises(seqcast.ConfigError, match="must be numbers of cores, such as 2,3 or 2-5"):
        seqcast.Config(io_cores=text)


def test_a_core_that_the_process_may_not_use_is_refused():
    with pytest.raises(seqcast.ConfigError, match="cannot run on core 4095; it may use "):
        join(cluster(), "a", control_cores="0,4095")


def test_elsewhere_than_on_linux_it_is_refused(monkeypatch):
    monkeypatch.delattr(check.os, "sched_setaffinity")
    with pytest.raises(seqcast.ConfigError, match="needs Linux"):
        seqcast.Config(io_cores="0")


def test_lists_and_ranges_are_read():
    assert check.cores("io_cores", "1, 3-5") == {1, 3, 4, 5} and check.cores("io_cores", "") == frozenset()
