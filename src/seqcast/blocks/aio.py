"""The blocks for asyncio: ``async with seqcast.blocks.aio.replicate("kv", machine) as kv``."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import seqcast.blocks.replica
from seqcast.api.group import Group
from seqcast.api.own_thread import on_own_thread
from seqcast.arguments import nanoseconds
from seqcast.blocks.log import Counters, Machine
from seqcast.blocks.outbox import Call
from seqcast.blocks.replica import Guarantee
from seqcast.config import Config

if TYPE_CHECKING:
    from typing import Unpack

    from seqcast.config.keywords import Settings

M = TypeVar("M", bound=Machine)
T = TypeVar("T")


def replicate(
    cluster: str,
    machine: M,
    *,
    name: str | None = None,
    config: Config | None = None,
    ready_s: float = 5.0,
    **settings: Unpack[Settings],
) -> Starting[M]:
    """Joins a group of replicas. Await it, or use it in ``async with``, which leaves the group. Arguments and errors
    are those of ``seqcast.replicate``. The machine's functions run on a thread of the replica."""
    start = functools.partial(
        seqcast.blocks.replica.replicate, cluster, machine, name=name, config=config, ready_s=ready_s, **settings
    )
    return Starting(start)


class Starting(Generic[M]):
    """A replica that is being started."""

    def __init__(self, start: Callable[[], seqcast.blocks.replica.Replica[M]]) -> None:
        self._start = start
        self._replica: Replica[M] | None = None

    def __await__(self) -> Generator[Any, None, Replica[M]]:
        return self._run().__await__()

    async def _run(self) -> Replica[M]:
        return Replica(await on_own_thread(self._start))

    async def __aenter__(self) -> Replica[M]:
        self._replica = await self._run()
        return self._replica

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._replica is not None
        await self._replica.close()


class Replica(Generic[M]):
    """A replica for the running event loop; made by ``replicate``.

    Attributes:
        sync: the same replica, for other threads.
    """

    def __init__(self, replica: seqcast.blocks.replica.Replica[M]) -> None:
        self.sync = replica
        self._loop = asyncio.get_running_loop()

    @property
    def machine(self) -> M:
        """As ``seqcast.Replica.machine``."""
        return self.sync.machine

    @property
    def ready(self) -> bool:
        """As ``seqcast.Replica.ready``."""
        return self.sync.ready

    @property
    def why(self) -> str:
        """As ``seqcast.Replica.why``."""
        return self.sync.why

    @property
    def group(self) -> Group:
        """As ``seqcast.Replica.group``."""
        return self.sync.group

    @property
    def counters(self) -> Counters:
        """As ``seqcast.Replica.counters``."""
        return self.sync.counters

    async def wait_ready(self, timeout: float | None = None) -> bool:
        """Waits for readiness, as ``seqcast.Replica.wait_ready``."""
        return await on_own_thread(functools.partial(self.sync.wait_ready, timeout))

    async def call(self, operation: bytes, *, timeout: float | None = 5.0) -> bytes:
        """Has every replica apply an operation, as ``seqcast.Replica.call``. The operation of a cancelled call may be
        applied."""
        return self.sync._result(await self._wait_for(self.sync._checked(operation), False, timeout))

    async def read(
        self, query: Callable[[M], T], *, guarantee: Guarantee = "linearizable", timeout: float | None = 5.0
    ) -> T:
        """Reads the machine, as ``seqcast.Replica.read``."""
        if guarantee in ("linearizable", "read-your-writes"):
            self.sync._check_read(await self._wait_for(None, guarantee == "read-your-writes", timeout))
            guarantee = "local"
        return self.sync.read(query, guarantee=guarantee)

    async def _wait_for(self, operation: bytes | None, own: bool, timeout: float | None) -> Call:
        loop, answered = self._loop, self._loop.create_future()

        def tell() -> None:
            if not answered.done():
                answered.set_result(None)

        call = Call(operation, lambda: loop.call_soon_threadsafe(tell), own)
        wait = None if timeout is None else nanoseconds(timeout) / 1e9
        try:
            if not self.sync._begin(call):
                await asyncio.wait([answered], timeout=wait)
        finally:
            if call.answer is None:
                self.sync._give_up(call)
        return call

    async def close(self) -> None:
        """Leaves the group, as ``seqcast.Replica.close``."""
        await on_own_thread(self.sync.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
