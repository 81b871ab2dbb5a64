"""Literal readings of S4, or of its code: each must be seen to fail (requirements E-19 to E-22).

Each is a context manager, within which the rings have that rule instead of ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from rewired import replaced

from seqcast.core.frames.ring import Confirm, Token
from seqcast.core.machines.ring import Ring
from seqcast.core.rules.ring import RingView

_next, _emit = Ring._next, Ring.emit


@contextlib.contextmanager
def last_is_passed_over() -> Iterator[None]:
    """E-19: D sends X to A, though E is next in the ring; and a token that is back is complete, without a VIEW_CONF."""

    def next_of(self: Ring, token: Token) -> int | None:
        target = _next(self, token)
        last = token.source != self.me and target == max(token.members) and self.place(token.source) == 1
        return None if last else target

    with mock.patch.object(Ring, "_next", next_of), unconfirmed():
        yield


@contextlib.contextmanager
def unconfirmed() -> Iterator[None]:
    """ "Optionally" (S4): the leader has its view once the token is complete, and tells nobody."""

    def prepare(self: Ring, *_: object) -> None:
        assert self.token is not None
        self.call = None
        self._install(RingView(self.token.generation, self.me, self.token.members))

    with replaced(Ring, prepare=prepare):
        yield


@contextlib.contextmanager
def unacknowledged() -> Iterator[None]:
    """E-22: VIEW_CONF is sent once to each, and nobody answers."""

    def prepare(self: Ring, *_: object) -> None:
        assert self.token is not None
        token = self.token
        self._install(RingView(token.generation, self.me, token.members))
        for member in token.members:
            if member != self.me:
                self.send(Confirm(self.tag, "commit", token.generation, self.me, token.members, token.lost), member)
        self.call = None

    with replaced(Ring, prepare=prepare):
        yield


@contextlib.contextmanager
def foreign_tokens_are_dropped() -> Iterator[None]:
    """E-20: a leader that gets the token of another source does nothing ("startElection" is commented out)."""

    def nothing(self: Ring, *_: object) -> None:
        self.rest()

    def emit(self: Ring, *arguments: object) -> None:
        if arguments:  # a token was absorbed
            self.known = {*self.view.members}
            nothing(self)
        else:
            _emit(self)

    with replaced(Ring, emit=emit):
        yield


@contextlib.contextmanager
def without_a_lease() -> Iterator[None]:
    """E-21: a member waits for a token for ever, and knows no loss that could be a reason to send another."""

    def start_lease(self: Ring) -> None:
        self.lease_ns = (1 << 63) - 1

    def never(self: Ring, *_: Any) -> bool:
        return False

    def mine(self: Ring) -> bool:
        return self.token is None and self._leads() and self.unsettled

    rows = replaced(Ring, visits_the_lost=never, leader_is_lost=never, leads_and_unsettled=mine)
    with rows, mock.patch.object(Ring, "_start_lease", start_lease):
        yield
