"""Work that one member of a group does at a time."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import seqcast.codes as codes
from seqcast.blocks.closing import Closing
from seqcast.blocks.replica import Replica
from seqcast.events import Blocked, Unblocked
from seqcast.net.threads import exit_now
from seqcast.types import View

if TYPE_CHECKING:
    from seqcast.api.receiving import Event

log = logging.getLogger("seqcast")


def on_leader(
    replica: Replica[Any], start: Callable[[int], object], stop: Callable[[], object] | None = None
) -> Leader:
    """Has this member lead while it is the coordinator of its group's view, and the group can decide.

    ``start(fence)`` is called when this member begins to lead, ``stop()`` at the end: on a known cut, an exclusion, or
    when leaving. Both run on one thread, one after the other, so ``start`` must return: have it start a thread or set a
    flag, for example. Until a member knows that it is cut off, another one may lead already: so a resource that the
    leader changes outside must refuse a lower fence than before. The fence is that of the view (``Group.fence``).

    If ``start`` raises, the error is logged, and this member is the leader all the same, with nothing started: nobody
    else leads, and ``stop`` is called at the end. A ``start`` that may fail should then end its process (``sys.exit``,
    which here takes effect at once), or close the replica on another thread, so that the next member leads.

    Args:
        replica: of any machine.
        start: gets the fence, which is higher than that of every leader before. (Fences begin again when all members
            have ended, unless ``stable=`` is set.)
        stop: called without arguments.

    Returns:
        The leadership, to look at or to ``close``.
    """
    return Leader(replica, start, stop or (lambda: None))


class Leader(Closing):
    """The result of ``on_leader``."""

    def __init__(self, replica: Replica[Any], start: Callable[[int], object], stop: Callable[[], object]) -> None:
        self._replica, self._start, self._stop = replica, start, stop
        self._view: View | None = None
        self._blocked = self._closed = False
        self._fence = 0  # 0: not leading
        self._news: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="seqcast-leader", daemon=True)
        self._thread.start()

    @property
    def fence(self) -> int:
        """The fence of this leader; 0 if this member does not lead, to its knowledge."""
        return 0 if self._closed else self._fence

    def close(self) -> None:
        """Leads no more; returns when ``stop`` has returned."""
        self._closed = True
        self._news.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _take(self, event: Event | None) -> None:
        """The next event of the replica; None: its membership has ended. On its thread."""
        if isinstance(event, View):
            self._view, self._blocked = event, False
        elif isinstance(event, Blocked):
            self._blocked |= event.kind == "minority"
        elif isinstance(event, Unblocked):
            self._blocked = False
        else:
            self._view = None
        fence = self._fence_now()
        if bool(fence) != bool(self._fence):
            self._fence = fence
            self._news.put(fence)

    def _fence_now(self) -> int:
        view, me = self._view, self._replica._me
        return view.fence if view is not None and not self._blocked and view.coordinator.id == me else 0

    def _run(self) -> None:
        self._replica.add_callback(self._take)  # waits while the machine is busy, for which no loop of asyncio has time
        leads = False
        while (fence := self._news.get()) is not None:
            leads = self._change(leads, fence)
        self._replica.remove_callback(self._take)
        self._change(leads, 0)
        self._fence = 0

    def _change(self, leads: bool, fence: int) -> bool:
        try:
            if leads:
                self._stop()
            if fence:
                self._start(fence)
        except SystemExit as error:  # which Python passes over on any thread but the main one
            exit_now(error)
        except BaseException:
            log.exception(codes.CALLBACK_FAILED("a function that on_leader was given failed"))
        return bool(fence)
