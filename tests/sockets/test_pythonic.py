"""Groups, batches and views behave as a Python user expects: copies, pickles, names, lengths."""

import asyncio
import copy
import pickle

import numpy as np
import pytest
from members import LIMIT_S, LOOPBACK, cluster, group_of, join, wait_until

import seqcast
import seqcast.aio
from seqcast.api.group import Group

COPIES = [pickle.dumps, copy.copy, copy.deepcopy]


def refuses_to_be_copied(what):
    for call in COPIES:
        with pytest.raises(TypeError, match=r"cannot be pickled or copied: it is a member of 'test-.*join there"):
            call(what)


def test_a_group_is_not_copied_and_says_why():
    async def main():
        async with seqcast.aio.join(cluster(), name="a", interface=LOOPBACK) as group:
            refuses_to_be_copied(group)

    with join(cluster(), "a") as group:
        refuses_to_be_copied(group)
    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


def test_a_crowd_is_not_copied_and_says_why():
    async def main():
        async with seqcast.aio.join_crowd(cluster(), interface=LOOPBACK) as crowd:
            refuses_to_be_copied(crowd)

    with seqcast.join_crowd(cluster(), interface=LOOPBACK) as crowd:
        refuses_to_be_copied(crowd)
    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


@pytest.mark.parametrize("of", [lambda b: pickle.loads(pickle.dumps(b)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("begun", [False, True], ids=["whole", "begun"])
@pytest.mark.parametrize("size", [10, 5000, 100_000])
def test_a_copy_of_a_batch_is_as_the_batch(of, begun, size):
    with group_of(2) as (a, b):
        for i in range(10):
            b.send(bytes([i]) * size)
            a.send(b"%d" % i, to=a.member)
        wait_until(lambda: a._runner.engine.deliverable() > 10 * size)
        if begun:
            assert a.recv(LIMIT_S) is not None
        batch = a.recv_batch(LIMIT_S)
        twin = of(batch)
        assert twin is not batch and len(twin) == len(batch) > 0
        assert (list(twin), twin.messages()) == (list(batch), batch.messages())
        assert np.array_equal(twin.runs, batch.runs)
        assert np.array_equal(np.diff(twin.offsets), np.diff(batch.offsets))  # messages taken before are left out
        for name in ("view", "view_tag", "delivered_ns", "nbytes", "transitional"):
            assert getattr(twin, name) == getattr(batch, name), name
        assert twin.to_arrow().equals(batch.to_arrow()) and list(of(twin)) == list(batch)


def test_objects_that_are_not_a_batch_make_none():
    with join(cluster(), "a") as a:
        a.send(b"abc")
        make, (view, data, offsets, runs, *rest) = a.recv_batch(LIMIT_S).__reduce__()
    assert list(make(view, data, offsets, runs, *rest)) == [b"abc"]
    short = np.array([0, 2], np.int32).tobytes()
    beyond, down = (np.array(each, np.int32).tobytes() for each in ([0, 9], [0, 5, 3]))
    for parts in ((data, short, runs), (data, beyond, runs), (data, offsets[:6], runs), (data, offsets, b""),
                  (data, down, runs), (data, offsets, 2 * runs), (b"", b"", runs)):  # fmt: skip
        with pytest.raises(ValueError, match="this is not a batch"):
            make(view, *parts, *rest)


def test_a_message_goes_to_the_member_of_a_name():
    with group_of(2) as (a, b):
        a.send(b"one", to="b")
        a.send_many([b"two"], to="b")
        b.send(b"three", to="a")
        assert [b.recv(LIMIT_S).payload for _ in range(2)] == [b"one", b"two"]
        message = a.recv(LIMIT_S)
        assert (message.payload, message.unicast) == (b"three", True)
        for send in (lambda: a.send(b"x", to="c"), lambda: a.send_many([b"x"], to="c")):
            with pytest.raises(seqcast.NotInView, match=r"no member of the view \d+ \[.*\] is named 'c'"):
                send()
        with pytest.raises(seqcast.UsageError, match=r"must be a Member of group\.view\.members, its name"):
            a.send(b"x", to=b"b")


def test_asyncio_takes_a_name_too():
    async def main():
        async with seqcast.aio.join(cluster(), name="a", interface=LOOPBACK) as group:
            await group.send(b"one", to="a")
            await group.send(b"two", to="a", timeout=LIMIT_S)
            await group.send_many([b"three"], to="a")
            assert [(await group.recv()).payload for _ in range(3)] == [b"one", b"two", b"three"]
            with pytest.raises(seqcast.NotInView, match="is named 'c'"):
                await group.send(b"x", to="c")

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


def test_a_name_that_two_members_have_is_refused(monkeypatch):
    """Two parts of a group may merge that each have one."""
    with join(cluster(), "a") as a:
        twice = seqcast.View(seqcast.ViewId(1, 1), (seqcast.Member("b", 1), seqcast.Member("b", 2)))
        monkeypatch.setattr(Group, "sending_view", twice)
        with pytest.raises(seqcast.UsageError, match=r"2 members of the view.* are named 'b'"):
            a.send(b"x", to="b")


def test_a_view_is_a_collection_of_its_members():
    a, b = seqcast.Member("a", 1), seqcast.Member("b", 2)
    view = seqcast.View(seqcast.ViewId(1, 1), (a, b))
    assert len(view) == 2 and list(view) == [a, b]
    assert a in view and "b" in view
    assert seqcast.Member("a", 3) not in view and "c" not in view and 1 not in view
