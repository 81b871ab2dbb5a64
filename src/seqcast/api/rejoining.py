"""A member that joins again by itself after an exclusion (``join(rejoin=True)``)."""

from __future__ import annotations

import logging
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import seqcast.codes as codes
from seqcast.abandoned import Call
from seqcast.api.delivering import Delivering
from seqcast.api.receiving import end_journal
from seqcast.arguments import as_about
from seqcast.config import Config
from seqcast.core.state.backlog import Item
from seqcast.core.vocabulary import Meaning, SetInfo
from seqcast.errors import ConfigError, JoinRefused, NotMember, SeqcastError, without_code
from seqcast.events import Excluded, Lost, Rejoined
from seqcast.net.runner import Runner
from seqcast.net.state import StateHandler, StateReceiver
from seqcast.net.state_merge import StateKeeper
from seqcast.types import View

if TYPE_CHECKING:
    from seqcast.config.keywords import Order

PAUSE_S, PAUSE_S_MAX = 0.5, 30.0
"""Between two attempts to join again: none before the first, then this, doubling."""
SLOW_MAX, SLOW_S = 3, 600.0
"""After this many exclusions as too slow within this time, a member does not join again."""
FAILURES_TOLD = 4
"""A failed attempt to join again is logged as a warning if none can succeed before something changes, and otherwise
from this many failures in a row on."""
SLICE_S = 0.1
PAST_MAX = 4
"""Drivers of earlier incarnations that are kept, as another thread may be in a call of the last one."""
log = logging.getLogger("seqcast")


def enter(runner: Runner, state: StateHandler | None, config: Config, min_members: int) -> deque[Item]:
    """Runs a member up to its entry into the group, with the state. Returns the items delivered meanwhile.

    Raises:
        JoinTimeout, NotMember: no entry, and the member has left.
        Exception: raised by ``set_state``; the same.
    """
    try:
        with StateReceiver(runner, config) as receiver:
            runner.start()
            runner.joining.wait()
            backlog = receiver.run(state) if state is not None else deque()
        if min_members > 1:
            runner.joining.wait_members(min_members)
    except BaseException:  # also Ctrl-C; the other members may have this one in their view already
        runner.leave(config.leave_timeout_s)
        raise
    runner.former = ()
    return backlog


class Attempt:
    """Joins on a thread of its own, again and again.

    Attributes:
        done: the attempt has ended.
        runner: the new incarnation; None: none was made before the application left.
        backlog: items delivered before the application receives.
    """

    def __init__(self, make: Callable[[], Runner], enters: Callable[[Runner], deque[Item]], old: Runner) -> None:
        self._make, self._enters, self._old = make, enters, old
        self.done = threading.Event()
        self.runner: Runner | None = None
        self.backlog: deque[Item] = deque()
        self._over = threading.Event()
        self._call = Call()
        self._failures = 0
        self._warned = ""  # the failure last warned of; one that stays the same is a warning once
        self._thread = threading.Thread(target=self._run, name=f"seqcast-rejoin-{old.name}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The application leaves."""
        self._over.set()
        self._call.abandoned = True
        self._thread.join()

    def _run(self) -> None:
        self._call.begin()
        try:
            self._old.close()
            pause_s = 0.0
            while not self._over.wait(pause_s * random.uniform(0.75, 1.25)) and not self._joins():
                pause_s = min(max(PAUSE_S, 2 * pause_s), PAUSE_S_MAX)
        finally:
            self.done.set()

    def _joins(self) -> bool:
        runner = None
        try:
            runner = self._make()
            self.backlog = self._enters(runner)
        except Exception as error:
            if runner is not None:
                runner.close()
            if not self._over.is_set():
                level, why = self._level(error), without_code(error)
                text = codes.REJOIN_FAILED("%s: cannot join again yet, and goes on trying: %s")
                log.log(level, text, self._old.name, why, exc_info=level == logging.ERROR)
            return False
        self.runner = runner
        return True

    def _level(self, error: Exception) -> int:
        """The level of the log's line about an attempt that failed."""
        self._failures += 1
        if not isinstance(error, SeqcastError):
            return logging.ERROR
        lasts = isinstance(error, (JoinRefused, ConfigError)) or self._failures >= FAILURES_TOLD
        if not lasts or str(error) == self._warned:
            return logging.INFO
        self._warned = str(error)
        return logging.WARNING


class Rejoining(Delivering):
    """When this member is excluded, another incarnation takes its place in the same object."""

    _rejoin_as: Callable[[], Runner] | None = None  # makes an incarnation; None: never again
    _rejoin_if: Callable[[Excluded], object] | None = None  # asked first; None: always joins again
    _enters: Callable[[Runner], deque[Item]]  # runs the member up to its entry
    _about = ""  # the info that the application gives now, as JSON, and
    _first_about = ""  # the one with which each incarnation joins

    def __init__(self, cluster: str, order: Order, config: Config, runner: Runner, state: StateHandler | None) -> None:
        super().__init__(cluster, order, config, runner, state)
        self._replacing = threading.Lock()  # of the next items, and of the incarnation
        self._attempt: Attempt | None = None
        self._past: deque[Runner] = deque(maxlen=PAST_MAX)
        self._slow_at: deque[float] = deque(maxlen=SLOW_MAX)
        self._lost: list[Lost] = []  # of this incarnation, in its last view
        self._turned: Callable[[], None] | None = None  # called when another incarnation takes over

    def set_info(self, info: Mapping[str, Any]) -> None:
        """Gives this member another info (``Member.info``). The call returns at once, and a view with the new info
        follows, of the same members unless some come or go: so all members see the change at the same place among the
        messages. Later views have the info too, also after a merge, and when this member joins again (``rejoin``). Of
        several changes before that view, only the last one may be seen.

        Each change stops the group for a moment, as a join does: give roles and addresses, which change rarely, but not
        loads.

        Args:
            info: the whole new info, as for ``join``.

        Raises:
            UsageError: the info cannot be written as a JSON object, or is too long.
            NotMember: this member left or was excluded; or in a child process after ``fork``.
        """
        self._refuse_forked()
        about = as_about(info)
        with self._replacing:
            if self._attempt is None and self._runner.standing.over:
                raise self._not_member()
            self._about = about
            self._runner.request(SetInfo(about))  # (`_replace` tells the next incarnation)

    def _reached(self, meaning: Meaning, wait: int) -> Meaning | Rejoined | None:
        reached = super()._reached(meaning, wait)
        if isinstance(meaning, View):
            self._lost = []
        elif isinstance(meaning, Lost):
            self._lost.append(meaning)
        elif isinstance(meaning, Excluded) and self._rejoin_as is not None:
            wanted = self._may_rejoin(meaning) and self._is_wanted(meaning)
            with self._replacing:
                if wanted and not self._runner.standing.leaves:
                    self._end, self._stop = None, meaning
                    self._attempt = Attempt(self._rejoin_as, self._enters, self._runner)
        return reached

    def _may_rejoin(self, excluded: Excluded) -> bool:
        if self._runner.standing.leaves:
            return False
        if excluded.cause != "slow":
            return True
        now = time.monotonic()
        self._slow_at.append(now)
        if len(self._slow_at) < SLOW_MAX or now - self._slow_at[0] > SLOW_S:
            return True
        text = codes.NO_REJOIN("%s: was excluded as too slow %d times within %g s, and does not join again")
        log.warning(text, self.member.name, SLOW_MAX, SLOW_S)
        return False

    def _is_wanted(self, excluded: Excluded) -> bool:
        """The application's answer. The application may leave the group in the call."""
        if self._rejoin_if is None:
            return True
        try:
            with self._in_handler():
                return bool(self._rejoin_if(excluded))
        except Exception:
            text = codes.CALLBACK_FAILED("%s: %s raised; this member does not join again")
            log.exception(text, self.member.name, "rejoin")
            return False

    def _wait_merged(self, wait: int) -> View | Rejoined | None:
        excluded, attempt = self._stop, self._attempt
        if not isinstance(excluded, Excluded) or attempt is None:
            return super()._wait_merged(wait)
        deadline = time.monotonic() + wait / 1e9
        while not attempt.done.wait(SLICE_S if wait < 0 else max(0.0, min(SLICE_S, deadline - time.monotonic()))):
            if 0 <= wait and time.monotonic() >= deadline:
                return None
        with self._replacing:
            if attempt.runner is None or self._runner.standing.leaves:
                self._end, self._stop = excluded, None
                raise self._not_member()
            return self._replace(attempt.runner, attempt.backlog)

    def _replace(self, runner: Runner, backlog: deque[Item]) -> Rejoined:
        """Another incarnation takes over. Under the stream's lock, and `_replacing`."""
        self._past.append(self._runner)
        if self._about != self._first_about:
            runner.request(SetInfo(self._about))
        self._runner, self._driver = runner, runner.driver
        self._delivered_view, self._journaled, self._untaken, self._kept = None, 0, False, 0
        self._begin_with(backlog)
        if self._state is not None:
            self._keeper = StateKeeper(runner, self._state, self.config)
        if self.config.journal:
            self._journal = self._open_journal(self._past[-1].standing.member.id)
            weakref.finalize(self, end_journal, self._journal).atexit = False
        if runner.callbacks is not None:
            runner.callbacks.joined = True
        lost, self._lost = tuple(self._lost), []
        self._stop = self._attempt = None
        if self._turned is not None:
            self._turned()
        return Rejoined(self.member, self.view, lost)

    def _end_attempt(self, timeout_s: float) -> None:
        """The application leaves."""
        attempt = self._attempt
        if attempt is None:
            return
        attempt.end()
        with self._replacing:
            self._runner.standing.leaves = True
            if attempt.runner is not None and attempt.runner is not self._runner:
                attempt.runner.leave(timeout_s)
                attempt.runner.close()

    def _not_member(self) -> SeqcastError:
        if self._attempt is not None and not self._forked:
            why = self._runner.standing.excluded
            return NotMember(f"the group excluded this member, which joins again now ({why}): send after `Rejoined`")
        return super()._not_member()
