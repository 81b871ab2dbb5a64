"""The same crowd for asyncio: ``async with seqcast.aio.join_crowd("prices") as crowd``."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Generator
from types import TracebackType
from typing import Any, Self

import seqcast.crowd.handle
from seqcast.api.base import Uncopied
from seqcast.api.counters import CROWD, explained
from seqcast.api.own_thread import on_own_thread
from seqcast.crowd.handle import CrowdEvent, address_text, message_of
from seqcast.crowd.settings import CrowdSettings


class JoiningCrowd:
    """A join in progress, to await, or to use in ``async with``, which leaves the crowd."""

    def __init__(self, cluster: str, settings: CrowdSettings | None, changes: dict[str, Any]) -> None:
        self._join = functools.partial(seqcast.crowd.handle.join_crowd, cluster, settings=settings, **changes)
        self._crowd: Crowd

    def __await__(self) -> Generator[Any, None, Crowd]:
        return self._run().__await__()

    async def __aenter__(self) -> Crowd:
        self._crowd = await self
        return self._crowd

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._crowd.leave(1.0 if kind is None else 0.0)

    async def _run(self) -> Crowd:
        joining = asyncio.ensure_future(on_own_thread(self._join))
        try:
            return Crowd(await asyncio.shield(joining))
        except asyncio.CancelledError:  # the thread cannot be cancelled, and joins, and then leaves
            joining.add_done_callback(_leave_at_once)
            raise


def _leave_at_once(joined: asyncio.Future[seqcast.crowd.handle.Crowd]) -> None:
    if not joined.cancelled() and joined.exception() is None:
        joined.result().leave(0.0)


class Crowd(Uncopied):
    """A joined crowd. Made by ``seqcast.aio.join_crowd``, and used from its event loop alone.

    Attributes:
        cluster: name of the crowd.
        settings: the settings in use.
        id: the id of this member.
    """

    def __init__(self, crowd: seqcast.crowd.handle.Crowd) -> None:
        self._crowd, self._loop, self._came = crowd, asyncio.get_running_loop(), asyncio.Event()
        self.cluster, self.settings, self.id = crowd.cluster, crowd.settings, crowd.id
        crowd.runner.add_callback(self._wake)

    def _wake(self) -> None:
        """On the crowd's thread: something can be received."""
        try:
            self._loop.call_soon_threadsafe(self._came.set)
        except RuntimeError:
            pass  # the loop is closed

    async def send(self, payload: bytes, timeout: float | None = None) -> None:
        """Multicasts a message; waits as ``seqcast.Crowd.send`` does, and raises the same errors. After a cancellation
        the message was not sent."""
        payload, end = message_of(payload), None if timeout is None else self._loop.time() + timeout
        while (wait_s := self._crowd.runner.offer(payload)) > 0:
            left = wait_s if end is None else end - self._loop.time()
            if left <= 0:
                self._crowd.send(payload, 0.0)  # which has the reason of the failure
                return
            await asyncio.sleep(min(wait_s, left))

    async def recv(self, timeout: float | None = None) -> CrowdEvent | None:
        """The next event. None: none arrived within ``timeout`` seconds, or this member left.

        Raises:
            SeqcastError: the member failed.
        """
        try:
            async with asyncio.timeout(timeout):
                while True:
                    self._came.clear()
                    event = self._crowd.recv(0.0)
                    if event is not None or self._crowd.runner.over:
                        return event
                    await self._came.wait()
        except TimeoutError:
            return None

    async def __aiter__(self) -> AsyncIterator[CrowdEvent]:
        """All events, until this member leaves."""
        while (event := await self.recv()) is not None:
            yield event

    def counters(self) -> dict[str, int]:
        """Counters since the join; those whose meaning begins with "Now:" are current values."""
        return self._crowd.counters()

    if counters.__doc__:  # there is none under -OO
        counters.__doc__ += explained(CROWD)

    async def leave(self, linger: float = 1.0) -> None:
        """Leaves, as ``seqcast.Crowd.leave`` does."""
        await on_own_thread(functools.partial(self._crowd.leave, linger))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.leave(1.0 if kind is None else 0.0)

    def __repr__(self) -> str:
        return f"<seqcast.aio crowd {self.cluster!r} member {address_text(self.id)}>"
