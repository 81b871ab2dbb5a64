"""A member's standing in its group: the part that it has, and why. The control thread tells of changes; threads of the
application wait for them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import seqcast.codes as codes
from seqcast._native.driver import now_ns
from seqcast.core.endpoint import Endpoint
from seqcast.core.vocabulary import ExcludedBy, JoinFailed, Left, Minority, ViewInstalled, Waiting
from seqcast.errors import JoinRefused, JoinTimeout, NameTaken, SeqcastError
from seqcast.types import Member, Status, View

log = logging.getLogger("seqcast")

_JOIN_ERRORS = {"name": NameTaken, "address": JoinTimeout, "key": JoinTimeout}
"""``JoinFailed.cause`` -> exception; ``JoinRefused`` for all others."""
SLICE_S = 0.2
"""A wait of the application is cut into slices of this length."""
LONG_S = 1.0  # a wait that takes longer is logged


class Standing:
    """
    Args:
        member: this one; its newest view has its info as other members know it.
        endpoint: of this member; its own reasons for a wait are read from it.
    """

    def __init__(self, member: Member, endpoint: Endpoint) -> None:
        self.member, self._endpoint = member, endpoint
        self.changed = threading.Condition()
        # Under `changed`:
        self.view: View | None = None
        self.view_ns = 0  # when the view began
        self.founding = False  # the group of the view is not founded yet, and the join waits for that
        self.minority = ""  # why this member is blocked, without a majority
        self.waiting = ""  # why the group that this member joins is blocked, if told
        self.error: SeqcastError | None = None
        self.excluded = ""  # why, if this member was excluded
        self.left = False  # gracefully: the remaining members have everything that this member sent
        self.leaves = False  # by request
        self.over = False

    # ---- for the control thread

    def enter(self, view: View) -> None:
        """Makes an installed view the newest one. The application may be delivered a view before the report of the
        control thread, its installer."""
        with self.changed:
            if self.view is None or self.view.view_id.counter < view.view_id.counter:
                self.view = view
                self.member = next((each for each in view.members if each == self.member), self.member)
                self.changed.notify_all()

    def take(self, effect: ViewInstalled | Minority | Waiting | JoinFailed | Left | ExcludedBy) -> None:
        with self.changed:
            match effect:
                case ViewInstalled(view, founding):
                    self.founding, self.minority, self.view_ns = founding, "", now_ns()
                    self.enter(view)
                case Minority(reason):
                    self.minority = reason
                case Waiting(reason):
                    self.waiting = reason
                case JoinFailed(error, cause):
                    self.error = _JOIN_ERRORS.get(cause, JoinRefused)(error)
                case Left(_, complete):
                    self.left = complete
                case ExcludedBy(_, reason, _):
                    self.excluded = reason
            self.changed.notify_all()

    def end(self) -> None:
        with self.changed:
            self.over = True
            self.changed.notify_all()

    # ---- for any thread

    @property
    def is_in(self) -> bool:
        return self.view is not None and not self.founding

    @property
    def status(self) -> Status:
        """This member's part in the group, and why."""
        with self.changed:
            if self.excluded:
                return Status("excluded", self.excluded)
            if self.over:
                unsure = "" if self.left else "not all its messages are known to be delivered: Lost names the others"
                return Status("left", str(self.error or unsure))
            if self.leaves:
                return Status("leaving")
            if not self.is_in:
                return Status("joining", self.waiting or self._endpoint.lacks)
            return Status("blocked", closed) if (closed := self._endpoint.closed) else Status("member")

    def name_of(self, member_id: int) -> str:
        """The name of a member of the newest view."""
        members = self.view.members if self.view else ()
        return next((member.name for member in members if member.id == member_id), f"{member_id:016x}")

    def names(self, but: Member | None = None) -> list[str]:
        """Names of the members of the newest view, ``but`` for this one."""
        return [member.name for member in self.view.members if member != but] if self.view else []

    def voters(self) -> list[str]:
        """Names of the members of the newest view that are not observers."""
        return [member.name for member in self.view.members if not member.observer] if self.view else []

    def wait(self, done: Callable[[], bool], timeout_s: float, waits: Callable[[], str] | None) -> bool:
        """Waits under ``changed``, in slices: Python handles a signal that comes just before a wait only afterwards.

        Args:
            done: the wait is over.
            timeout_s: at most this long, in seconds.
            waits: a sentence for the log about the wait, told once after ``LONG_S``; None: nothing is told.
        """
        began = time.monotonic()
        end, told = began + timeout_s, False
        while not self.changed.wait_for(done, max(0.0, min(SLICE_S, end - time.monotonic()))):
            if time.monotonic() >= end:
                return False
            if waits and not told and time.monotonic() - began >= LONG_S:
                told = True
                log.warning(codes.LONG_WAIT("%s: %s, for %g s so far"), self.member.name, waits(), LONG_S)
        return True

    def wait_over(self, timeout_s: float) -> bool:
        """Waits until the endpoint has left."""
        with self.changed:
            return self.wait(
                lambda: self.over,
                timeout_s,
                lambda: f"leave waits until all that was sent has reached {', '.join(self.names(self.member))}",
            )
