"""A blocking call of a group, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar, cast

T = TypeVar("T")


async def on_own_thread(call: Callable[[], T]) -> T:
    """Runs a call on a thread of its own. In asyncio's pool of a few threads it would wait behind sends, joins and
    calls of ``wait_consumed``, which may in turn wait for this very call. A cancellation does not stop the thread."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()

    def tell(error: BaseException | None, result: T | None) -> None:
        if ended.done():
            return
        if error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(cast("T", result))

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, error, result)

    threading.Thread(target=run, name="seqcast-aio").start()
    return await ended
