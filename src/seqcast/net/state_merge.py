"""The application's state at the beginnings of views: its receiving thread runs the handler between two messages, to
give the state to joiners and to merge with those of other members. ``core/state/merging.py`` decides."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import cast

import seqcast.codes as codes
from seqcast._native.driver import now_ns
from seqcast.config import Config
from seqcast.config.derive import to_ns
from seqcast.core.context import NEVER
from seqcast.core.state.merging import (
    BreakPromise,
    Gather,
    GiveState,
    GiveUpMerge,
    Part,
    PromiseState,
    Reconcile,
    StateMerge,
    StateMergeEffect,
)
from seqcast.core.state.providers import STATE_MERGES
from seqcast.core.vocabulary import LeaveGroup, StateArrived, StateRefused
from seqcast.net.runner import Runner
from seqcast.net.spool import Spool
from seqcast.net.state import Gift, MergingHandler, StateHandler, SubgroupState, give_state
from seqcast.types import Member, MergeView, View

log = logging.getLogger("seqcast")

SLICE_NS = 50_000_000
"""The longest single wait, ns; afterwards other conditions are checked."""


class StateKeeper:
    """Keeps the state of one receiving application. Used by one thread at a time."""

    def __init__(self, runner: Runner, handler: StateHandler, config: Config) -> None:
        self._runner, self._handler, self._config = runner, handler, config
        self._merge = StateMerge(to_ns(config.state_timeout_s), runner.standing.name_of, runner.endpoint)
        self._parts: dict[int, Spool] = {}
        self._promised: Gift | None = None
        self._view: View | None = None  # which the application has reached

    @property
    def stopped(self) -> bool:
        """The application waits until states are merged."""
        return self._merge.stopped

    def reached(self, view: View) -> None:
        """The application has come to the beginning of this view.

        Raises:
            BaseException: the handler raised one that is not an ``Exception``.
        """
        self._view = view
        self._feed(self._merge.reached(view.view_id.tag, now_ns()))

    def step(self, wait_ns: int) -> bool:
        """Merges for up to ``wait_ns`` (< 0: no limit). False: the application still has to wait.

        Raises:
            BaseException: the handler raised one that is not an ``Exception``.
        """
        runner, merge = self._runner, self._merge
        deadline = time.monotonic_ns() + wait_ns
        while True:
            with runner.standing.changed:
                over = runner.standing.over
            self._feed(merge.over(now_ns()) if over else merge.look(now_ns()))
            if not merge.stopped:
                self._end_parts()
                return True
            slice_ns = SLICE_NS if wait_ns < 0 else min(SLICE_NS, deadline - time.monotonic_ns())
            came = self._read(max(slice_ns, 0))
            if not came and wait_ns >= 0 and time.monotonic_ns() >= deadline:
                return False

    def _read(self, wait_ns: int) -> bool:
        """Waits for bytes of the provider that is being read, if there is one."""
        merge = self._merge
        if not merge.receiving:
            with self._runner.standing.changed:
                return self._runner.standing.changed.wait(min(wait_ns, SLICE_NS // 10) / 1e9)
        incoming = merge.incoming
        got = self._runner.driver.state_read(merge.provider, incoming.room, wait_ns)
        if got:
            self._feed(merge.filled(incoming, got, now_ns()))
        return bool(got)

    def _feed(self, effects: list[StateMergeEffect]) -> None:
        for effect in effects:
            match effect:
                case Gather():
                    self._end_parts()
                case Part(provider, data):
                    self._spool_of(provider).append(data)
                case StateArrived() | StateRefused() | LeaveGroup():
                    self._runner.request(effect)
                case Reconcile(merges):
                    self._reconcile(merges)
                case PromiseState(_, joiners):
                    self._promised = self._gift(joiners, self._merge.due)
                case BreakPromise():
                    if self._promised is not None:
                        self._promised.drop()
                        self._promised = None
                case GiveState(_, joiners):
                    gift, self._promised = self._promised or self._gift(joiners), None
                    give_state(self._runner, self._handler, gift)
                    self._merge.given(now_ns())
                case GiveUpMerge(error):
                    log.error(codes.STATE_LOST("%s: %s"), self._runner.name, error)

    def _reconcile(self, merges: bool) -> None:
        merge = self._merge
        try:
            if merges:
                parts = [self._part(provider) for provider in merge.plan.providers]
                cast(MergingHandler, self._handler).merge_state(parts)  # the plan names only members that have one
            else:
                self._handler.set_state(self._reader(merge.plan.providers[0]))
        except BaseException as error:
            what = "merge_state" if merges else "set_state"
            text = codes.CALLBACK_FAILED("%s: %s failed; this member leaves the group")
            log.error(text, self._runner.name, what, exc_info=True)
            self._feed(merge.failed(f"{what} raised {error!r}", now_ns()))
            if not isinstance(error, Exception):
                raise
        else:
            self._feed(merge.look(now_ns()))  # perhaps too late
            self._feed(merge.loaded(now_ns()))

    def _part(self, provider: int) -> SubgroupState:
        view = self._view
        assert view is not None
        groups = view.subgroups if isinstance(view, MergeView) else ()
        group = next((group for group in groups if group.rank(provider) >= 0), None)
        member = view.members[view.rank(provider)] if view.rank(provider) >= 0 else None
        members: tuple[Member, ...] = group.members if group is not None else (member,) if member is not None else ()
        return SubgroupState(members, self._reader(provider))

    def _reader(self, provider: int) -> Callable[..., bytes]:
        read = self._spool_of(provider).reader()

        def watched(size: int | None = -1, /) -> bytes:
            self._feed(self._merge.read(now_ns()))
            return read(size)

        return watched

    def _spool_of(self, provider: int) -> Spool:
        if provider not in self._parts:
            self._parts[provider] = Spool(self._config.state_memory_bytes)
        return self._parts[provider]

    def _gift(self, joiners: tuple[int, ...], deadline: Callable[[], int] = lambda: NEVER) -> Gift:
        assert self._view is not None
        return Gift(self._runner, self._view, joiners, self._config, deadline)

    def _end_parts(self) -> None:
        for spool in self._parts.values():
            spool.close()
        self._parts.clear()


def part_in_state(handler: StateHandler | None) -> int:
    """``MemberInfo.state`` of a member with this handler."""
    if handler is None:
        return 0
    return STATE_MERGES if callable(getattr(handler, "merge_state", None)) else 1
