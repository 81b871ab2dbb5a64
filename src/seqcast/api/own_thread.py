"""A blocking call of a group, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar, cast

from seqcast.abandoned import Call
from seqcast.arguments import check_threads
from seqcast.net.threads import is_ending

T = TypeVar("T")


async def on_own_thread(function: Callable[[], T]) -> T:
    """Makes a call on a thread of its own. In asyncio's pool of a few threads such a call would wait behind sends,
    joins and calls of ``wait_consumed``, which may in turn wait for this very call; and the end of the program would
    wait for the pool. A cancellation ends the wait, a moment later. While the interpreter shuts down, the loop waits
    for the call."""
    check_threads()
    if is_ending():
        return function()
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()
    call = Call()

    def tell(error: BaseException | None, result: T | None) -> None:
        if ended.done():
            return
        if error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(cast("T", result))

    def run() -> None:
        call.begin()
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, error, result)

    threading.Thread(target=run, name="seqcast-aio", daemon=True).start()
    try:
        return await ended
    except asyncio.CancelledError:
        call.abandoned = True
        raise
