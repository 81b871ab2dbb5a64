"""State transfer: the threads, spools and handler calls that carry out the decisions of ``core/state/transfer.py``.

The provider's handler runs on its application's receiving thread, between two messages, and a thread for each joiner
sends its output. At the joiner, the thread that calls ``join`` reads the state and runs the handler, while another
thread takes the group's messages out of the engine, so that the joiner does not hold up the group.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import seqcast.codes as codes
from seqcast._native.driver import Refused, now_ns
from seqcast.abandoned import still_wanted
from seqcast.config import Config
from seqcast.config.derive import to_ns
from seqcast.core.state.backlog import Item
from seqcast.core.state.transfer import (
    BeginState,
    Deliver,
    Giver,
    GiveUp,
    LoadState,
    ProviderSilent,
    StateChunk,
    Transfer,
    TransferEffect,
)
from seqcast.core.vocabulary import LeaveGroup, StateArrived, StateHeld, StateLost, StateRefused, TakeState
from seqcast.errors import JoinTimeout, NotMember, UsageError
from seqcast.net.runner import Runner
from seqcast.net.spool import Spool
from seqcast.net.threads import is_ending
from seqcast.types import Member, View

log = logging.getLogger("seqcast")

SLICE_NS = 50_000_000
"""The longest single wait, ns; afterwards other conditions are checked."""
BACKLOG_SLICE_NS = 5_000_000
"""The same for waits that delay the end of ``join``, ns."""


PROVIDER_SILENT = (
    "%s: waits for the state of %s, whose application has yet to receive (recv, recv_batch) the messages before this "
    "join; if that takes longer than state_timeout_s=%g s, another member is asked, or the join fails"
)


class StateHandler(Protocol):
    """How an application's state is taken and set. Plain functions; both may raise."""

    def get_state(self, write: Callable[[Any], None], /) -> object:
        """Writes the state, in pieces of any size (bytes or another buffer). Runs on the thread that receives, between
        the messages before a view and those after it: messages received before belong to the state, nothing else does.
        """

    def set_state(self, read: Callable[..., bytes], /) -> object:
        """Takes over the state: ``read(n)`` gives the next n bytes, ``read()`` all that is left, b"" is the end. Runs
        on the thread that joins, before ``join`` returns.

        When a partition heals (``partition="merge"``), the function runs again, on the thread that receives and before
        the ``MergeView``: the state read replaces the application's own, so nothing of that may be kept. The bytes are
        the merged state (``merge_state``). If not every member that has a state has ``merge_state``, they are the state
        of the side on which most members have one, or of several such sides the first in ``MergeView.subgroups``: the
        others lose the changes that they made while apart. A warning names the sides, and so does
        ``MergeView.state_from``."""


class MergingHandler(StateHandler, Protocol):
    """A ``StateHandler`` whose states are merged when a partition heals, if all members that have a state have
    such a handler. Otherwise all take over the state of one side; see ``set_state``."""

    def merge_state(self, others: Sequence[SubgroupState], /) -> object:
        """Merges the states of other parts of the group into its own. Runs on one member, on the thread that receives,
        before the ``MergeView`` and everything after it: each state is exactly that at the end of the view
        before. All other members then take over the result by ``get_state`` and ``set_state``, also before their
        ``MergeView``, so the outcome may depend on which member merges, and is the same on all.

        Args:
            others: one state for each part but this member's own. A part that failed meanwhile, or could not give its
                state, is missing.
        """


class DurableHandler(StateHandler, Protocol):
    """A ``StateHandler`` that has its state on disk, too. With ``stable=``, when a whole group that had ended starts
    again, the members take over the state of the one whose disk has most, and a majority of them does not wait for the
    others: so a message counts only once on the disks of a majority of the view."""

    def on_disk(self) -> tuple[int, int]:
        """How far the state on disk goes, after the start of this process: the counter of the last view there, and the
        number of messages and views in that state, from 1, counted alike by all members."""


@dataclass(frozen=True, slots=True)
class SubgroupState:
    """The state of a part of the group that was separated from this member.

    Attributes:
        members: those of that part before the ``MergeView``; after a failed first attempt only the one that gave the
            state.
        read: ``read(n)`` gives the next n bytes, ``read()`` all that is left, b"" is the end.
    """

    members: tuple[Member, ...]
    read: Callable[..., bytes]


def check_handler(handler: Any) -> None:
    """
    Raises:
        UsageError: one of the two functions is missing, or a function is a coroutine.
    """
    for name in ("get_state", "set_state", "merge_state"):
        function = getattr(handler, name, None)
        if function is None and name == "merge_state":
            continue
        if not callable(function):
            raise UsageError(f"state={handler!r} must have the functions get_state(write) and set_state(read)")
        if inspect.iscoroutinefunction(function):
            raise UsageError(f"{name} of state= must be a plain function, not a coroutine")


# ---- the provider's side ---------------------------------------------------------------------------------------------


class Gift:
    """The state at one boundary, for the waiting joiners. A thread for each joiner reports that the state is
    being prepared, until the state is complete (``give_state``) or given up (``drop``), and then sends the state.

    Args:
        deadline: gives the monotonic ns up to which the application has time for the work.
    """

    def __init__(
        self,
        runner: Runner,
        view: View,
        joiners: tuple[int, ...],
        config: Config,
        deadline: Callable[[], int],
    ) -> None:
        self.boundary = view.view_id.tag
        self.spool = Spool(config.state_memory_bytes)
        self.refusal = ""
        self.ready = threading.Event()
        self.dropped = False
        self._runner, self._deadline = runner, deadline
        self._timeout_ns = to_ns(config.state_timeout_s)
        self._users = list(joiners)
        self._later = joiners if is_ending() else ()  # nothing can be told to these before the state is complete
        for joiner in joiners if not self._later else ():
            name = f"seqcast-state-{runner.name}"
            threading.Thread(target=self._send, args=(joiner,), name=name, daemon=True).start()

    def complete(self) -> None:
        """The state is complete, or refused."""
        self.ready.set()
        for joiner in self._later:
            self._send(joiner)

    def drop(self) -> None:
        self.dropped = True
        self.ready.set()

    def _send(self, joiner: int) -> None:
        runner = self._runner
        giver = Giver(self.boundary, joiner, self._timeout_ns, now_ns())
        why = "the member no longer waits for this one"
        try:
            with runner.giving.setdefault(joiner, threading.Lock()):  # one transfer after the other
                while self._go_on(giver):
                    pass
                if giver.complete:
                    return
        except Refused as gone:
            why = str(gone)
        except OSError as error:
            text = codes.STATE_LOST("%s: the temporary file of the state cannot be read: %s")
            log.error(text, runner.name, error)
            return
        finally:
            self._users.remove(joiner)
            if not self._users:
                self.spool.close()
        log.info("%s: state for %x ends at %d bytes: %s", runner.name, joiner, giver.bytes_sent, why)

    def _go_on(self, giver: Giver) -> bool:
        """Waits for the state, reassures the joiner, or sends; False: the transfer is over."""
        runner, driver = self._runner, self._runner.driver
        wait_ns = 0 if giver.rest else giver.due() - now_ns()
        if not self.ready.wait(max(wait_ns, 0) / 1e9):
            giver.run_timers(now_ns(), self._deadline())
        elif self.dropped:
            return False
        elif not giver.ready:
            giver = giver.refuse(self.refusal) if self.refusal else giver.give(self.spool.chunks())
        return giver.go_on(
            lambda rest: driver.state_send(rest, giver.joiner, 4 * SLICE_NS),
            lambda: driver.state_end(giver.joiner),
            runner.endpoint.joiners_of,
        )


def give_state(runner: Runner, handler: StateHandler, gift: Gift) -> None:
    """Takes the application's state for the waiting joiners."""
    taking = True

    def write(data: Any) -> None:
        if not taking:
            raise UsageError("get_state has returned: nothing more can be written")
        gift.spool.write(data)

    try:
        handler.get_state(write)
        if gift.spool.failure is not None:  # the handler ignored the error
            raise gift.spool.failure
    except BaseException as error:
        gift.refusal = f"{runner.name}: its get_state raised {error!r}"
        log.error(codes.CALLBACK_FAILED("%s: get_state failed; the joiner is told"), runner.name, exc_info=True)
        if not isinstance(error, Exception):
            raise
    finally:
        taking = False
        gift.complete()


# ---- the joiner's side -----------------------------------------------------------------------------------------------


class StateReceiver:
    """The joiner's transfer, its two threads, and its spool; a context, entered before the member joins."""

    def __init__(self, runner: Runner, config: Config) -> None:
        self._runner, self._config = runner, config
        self._transfer = Transfer(
            to_ns(config.state_timeout_s), config.state_backlog_bytes, runner.standing.name_of, runner.endpoint.edges
        )
        self._lock = threading.Condition()  # of the transfer
        self._spool = Spool(config.state_memory_bytes)
        self._loading = False
        self._error = ""
        self._items: deque[Item] | None = None  # once the application receives deliveries
        self._thread: threading.Thread | None = None
        self._told: list[TakeState | StateHeld | StateLost] = []  # under the runner's `changed`

    def __enter__(self) -> StateReceiver:
        self._runner.tell_state = self._told.append
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.tell_state = None
        self._feed(self._transfer.over)
        if self._thread is not None:
            self._thread.join()
        self._spool.close()

    def run(self, handler: StateHandler) -> deque[Item]:
        """Waits for the state, and calls the handler to load the bytes.

        Returns:
            Items delivered since the state's boundary.

        Raises:
            JoinTimeout: no member could give the state, or the handler took too long.
            NotMember: this member was excluded meanwhile.
            Exception: raised by ``set_state``.
        """
        while not self._loading and self._items is None:
            for news in self._news():
                self._feed(self._transfer.told, news)
            self._check()
            self._read()
        if self._loading:
            self._load(handler)
        if self._thread is not None:
            self._thread.join()
        self._check()
        if self._items is None:
            raise _excluded()
        return self._items

    # ---- the thread that joins

    def _news(self) -> list[TakeState | StateHeld | StateLost]:
        """New effects of the endpoint; waits for them if there is nothing else to do."""
        runner = self._runner
        with runner.standing.changed:
            if not self._told and not self._transfer.receiving:
                runner.standing.changed.wait(SLICE_NS / 1e9)
            if runner.standing.error is not None:
                raise runner.standing.error
            if runner.standing.over:
                raise _excluded()
            news = self._told.copy()
            self._told.clear()
            return news

    def _check(self) -> None:
        still_wanted()
        if self._error:
            raise JoinTimeout(self._error)

    def _read(self) -> None:
        """Reads the bytes that have arrived from the provider, if there is one."""
        with self._lock:
            incoming = self._transfer.incoming if self._transfer.receiving else None
        if incoming is not None:
            got = self._runner.driver.state_read(self._transfer.provider, incoming.room, SLICE_NS)
            if got:
                self._feed(self._transfer.filled, incoming, got)

    def _load(self, handler: StateHandler) -> None:
        read = self._spool.reader()

        def watched(size: int | None = -1, /) -> bytes:
            self._feed(self._transfer.read)
            return read(size)

        try:
            handler.set_state(watched)
        except BaseException as error:
            self._feed(self._transfer.failed, f"set_state raised {error!r}")
            raise
        self._feed(self._transfer.loaded)

    # ---- the thread that takes from the engine

    def _run(self) -> None:
        runner = self._runner
        view: View | None = None
        while True:
            self._feed(self._transfer.run_timers)
            with self._lock:
                if self._transfer.ended:
                    return
                if not self._transfer.holds:
                    self._lock.wait(BACKLOG_SLICE_NS / 1e9)
                    continue
            item = runner.driver.deliver(self._config.batch_bytes, BACKLOG_SLICE_NS, view, True)
            if item is None:
                if runner.standing.over and not runner.engine.deliverable():
                    return
                continue
            for each in runner.endpoint.marker(item) if isinstance(item, int) else (item,):
                if isinstance(each, View):
                    view = each
                self._feed(self._transfer.delivered, each)

    # ---- both

    def _feed(self, take: Callable[..., list[TransferEffect]], *args: object) -> None:
        """Carries out the machine's decision."""
        with self._lock:
            effects = take(*args, now_ns())
            for effect in effects:
                match effect:
                    case StateArrived() | StateRefused() | LeaveGroup():
                        self._runner.request(effect)
                    case LoadState():
                        self._loading = True
                    case Deliver(items):
                        self._items = (self._items or deque()) + items
                    case GiveUp(error):
                        self._error = error
                    case ProviderSilent(provider):
                        text = codes.LONG_WAIT(PROVIDER_SILENT)
                        log.warning(text, self._runner.name, provider, self._config.state_timeout_s)
            if effects:
                self._lock.notify_all()
        for effect in effects:  # files are written without the lock; only the thread that joins does so
            if isinstance(effect, StateChunk):
                self._spool.append(effect.data)
            elif isinstance(effect, BeginState):
                self._spool.close()
                self._spool = Spool(self._config.state_memory_bytes)
                self._take_deliveries()

    def _take_deliveries(self) -> None:
        if self._thread is None:
            name = f"seqcast-backlog-{self._runner.name}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()


def _excluded() -> NotMember:
    return NotMember("the group continued without this member during the state transfer: join again")
