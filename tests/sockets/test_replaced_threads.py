"""gevent and eventlet replace Python's threads with their own: a member cannot run on these, and says so."""

import _thread
import asyncio
import threading

import pytest
from members import LOOPBACK, cluster

import seqcast
import seqcast.aio

NEVER_S = 600.0


@pytest.fixture(autouse=True)
def patched(monkeypatch):
    """As ``patch_all`` does: threads that take turns on the thread that is to wait for them, and so never run."""

    def start_new_thread(function, arguments, keywords=None, **others):
        return 1

    start_new_thread.__module__ = "gevent.thread"
    for module, name in ((_thread, "start_new_thread"), (threading, "_start_new_thread")):
        monkeypatch.setattr(module, name, start_new_thread, raising=False)


async def in_asyncio(join, **settings):
    await join(cluster(), interface=LOOPBACK, **settings)


@pytest.mark.parametrize(
    "call",
    [
        lambda: seqcast.join(cluster(), interface=LOOPBACK, join_timeout_s=NEVER_S),
        lambda: seqcast.join_crowd(cluster(), interface=LOOPBACK),
        lambda: asyncio.run(in_asyncio(seqcast.aio.join, join_timeout_s=NEVER_S)),
        lambda: asyncio.run(in_asyncio(seqcast.aio.join_crowd)),
    ],
    ids=["join", "join_crowd", "aio.join", "aio.join_crowd"],
)
def test_a_join_with_replaced_threads_is_refused_at_once(call):
    with pytest.raises(seqcast.UsageError, match=r"gevent has replaced Python's threads.*thread=False"):
        call()
