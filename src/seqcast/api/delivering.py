"""Sending a message and learning its fate."""

from __future__ import annotations

import functools
import threading
import time
from typing import TYPE_CHECKING

from seqcast._native.engine import Message
from seqcast.abandoned import still_wanted
from seqcast.api.keeping import Keeping
from seqcast.api.sending import Sending
from seqcast.api.sought import Place, Sought
from seqcast.arguments import deadline_of, left_until
from seqcast.config import Config
from seqcast.errors import NotMember, SendTimeout, Undecided, UsageError, without_code
from seqcast.net.runner import Runner
from seqcast.net.state import StateHandler

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from seqcast.config.keywords import Order

SLICE_S = 0.005
"""How long a call of ``deliver`` waits for a receiving thread before receiving by itself."""


def check_deliver(config: Config) -> None:
    """
    Raises:
        UsageError: with these settings nothing tells whether a message is decided.
    """
    if not (config.receive and config.deliver_own):
        raise UsageError("deliver waits for the message's delivery here: join with receive=True and deliver_own=True")
    if config.send_while_blocked == "queue":
        raise UsageError("deliver needs send_while_blocked='wait': a queued message has no place yet")
    if config.partition == "primary" and not config.safe:
        raise UsageError(
            "deliver needs safe=True with partition='primary': without it this member may deliver a message and the "
            "majority continue without it"
        )


class Delivering(Sending, Keeping):
    """Sends messages and tells the sender when they are decided."""

    def __init__(self, cluster: str, order: Order, config: Config, runner: Runner, state: StateHandler | None) -> None:
        super().__init__(cluster, order, config, runner, state)
        self._deliveries = threading.Lock()  # held while a call of `deliver` sends
        self._seeking = threading.Lock()  # of `_seekers`

    def deliver(self, payload: Buffer, *, timeout: float | None = None) -> Message:
        """Sends a message to the group, and returns it once decided: no view change, crash or partition can undo the
        delivery any more. So a waiting client can be answered.

        With ``safe=True`` a message is decided once every member of the view has the message in its place; with
        ``partition="primary"`` also one that was delivered here before a view change that this member survived. Without
        ``safe`` the applications of all members must have taken the message (`wait_consumed`), with no view change in
        between.

        Another thread may receive meanwhile; if none does, this call receives, and leaves all items, the message itself
        included, for the next ``recv`` or ``events``.

        Args:
            payload: as for ``send``.
            timeout: seconds for the whole call; None: no limit.

        Returns:
            The message with its place; never ``transitional``.

        Raises:
            Undecided: the message is not decided within ``timeout``, or the view or the membership ended first.
                ``error.sent`` is 0 if the message was certainly not sent, and can be sent again without a second
                delivery; ``error.message`` is the message as delivered here, if it was.
            NotMember: this member had left, or was excluded, before.
            UsageError: as for ``send``; or with these settings nothing can decide a message (``safe``, ``receive``,
                ``deliver_own``, ``send_while_blocked``), or a callback of the group calls this.
        """
        deadline = deadline_of(timeout)
        sought = self._seek(payload)
        try:
            with self._deliveries:
                self._send_sought(sought, payload, timeout)
            self._await_delivery(sought, deadline)
            if sought.decided is None and not sought.why and not self.config.safe:
                self._await_taken(sought, deadline)
            return self._outcome(sought, timeout)
        finally:
            self._seeks_no_more(sought)

    def _seek(self, payload: Buffer) -> Sought:
        self._refuse_forked()
        self._refuse_callback("deliver")
        check_deliver(self.config)
        if self._embedded:
            raise UsageError("a program in C receives from this group: deliver cannot until the handle is closed")
        try:
            expected = bytes(memoryview(payload))
        except (TypeError, BufferError):
            expected = b""  # `send` names the fault
        primary, safe = self.config.partition == "primary", self.config.safe
        sought = Sought(expected, self.member.id, self._place(), firm=safe, primary=primary)
        with self._seeking:
            self._seekers = [*self._seekers, sought]
        return sought

    def _seeks_no_more(self, sought: Sought) -> None:
        with self._seeking:
            self._seekers = [each for each in self._seekers if each is not sought]

    def _place(self) -> Place:
        """A place that the next message to the group does not precede."""
        return self.sending_view.view_id.counter, self.sent_seqno

    # ---- the steps of deliver

    def _send_sought(self, sought: Sought, payload: Buffer, timeout: float | None) -> None:
        try:
            self.send(payload, timeout=timeout)
            sought.sent(self._place())
        except SendTimeout as full:
            raise Undecided(f"not sent: {without_code(full)}") from None
        except NotMember as gone:
            if "not yet known to be ordered" not in str(gone):  # no part can be delivered
                raise
            raise _undecided(without_code(gone), sought) from None

    def _await_delivery(self, sought: Sought, deadline: float | None) -> None:
        """Waits until nothing more is to be learned by receiving; receives if no other thread does."""
        while not self._learned(sought) and still_wanted():
            left = SLICE_S if deadline is None else min(SLICE_S, deadline - time.monotonic())
            if left <= 0:
                return
            if not self._under_lock(functools.partial(self._receive_one, int(left * 1e9)), 0):
                sought.changed.wait(left)
            sought.changed.clear()

    def _learned(self, sought: Sought) -> bool:
        if sought.decided is not None or sought.why:
            return True
        return sought.message is not None and not (self.config.safe or sought.message.transitional)

    def _await_taken(self, sought: Sought, deadline: float | None) -> None:
        """Without ``safe``: waits until the applications of all other members have taken the message."""
        message = sought.message
        if message is None or message.transitional:
            return
        if self.wait_consumed(left_until(deadline)):
            if self.sending_view.view_id == message.view_id:
                sought.decided = message
            else:
                sought.why = "the view changed before all of its members had taken it"

    def _outcome(self, sought: Sought, timeout: float | None) -> Message:
        if sought.decided is not None:
            return sought.decided
        if sought.why:
            raise _undecided(sought.why, sought)
        what = "not delivered here" if sought.message is None else "delivered here, but not known to be everywhere"
        within = "" if timeout is None else f" within {timeout:g} s"
        why = self.status.reason or "a member is slow, or its application does not receive"
        raise _undecided(f"{what}{within}: {why}", sought)

    def _receive_one(self, wait: int) -> None:
        """Keeps the next entry of the stream. Under the stream's lock."""
        waiting = bool(self._backlog or self._meanings or self._end is not None or self._stop is not None)
        if not self._keep_next(wait) and not waiting:
            self._refuse_over()


def _undecided(why: str, sought: Sought) -> Undecided:
    error = Undecided(f"the message was sent, and may or may not be delivered: {why}")
    error.sent, error.message = 1, sought.message
    return error
