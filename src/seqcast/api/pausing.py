"""The pausing part of a group: pauses, and the answer of its block callback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from seqcast.api.base import GroupBase
from seqcast.arguments import nanoseconds
from seqcast.errors import SuspendTimeout, UsageError


def too_early(reason: str) -> SuspendTimeout:
    """The error of ``suspended`` for a pause that ended before its block did."""
    return SuspendTimeout(f"the pause ended too early: {reason}")


class Pausing(GroupBase):
    """Pauses and resumes the group; answers for the block callback."""

    def block_ok(self) -> None:
        """Lets the view change or pause for which ``on_block`` returned ``seqcast.LATER`` continue. Messages sent
        before this call count as sent in the callback. Any thread may call this, also before ``on_block`` has returned.
        Without such a callback, or after ``block_deadline_s``, the call does nothing.

        Raises:
            UsageError: this member was joined without ``on_block``.
            NotMember: in a child process after ``fork``.
        """
        self._refuse_forked()
        if self._runner.callbacks is None:
            raise UsageError("block_ok answers for on_block, and this member was joined without it: pass on_block=")
        self._runner.callbacks.answer()

    def suspend(self, timeout: float | None = None) -> None:
        """Pauses the group. When this returns, all members have delivered the same messages, and no member can
        send to the group until ``resume``. Block callbacks run first. Messages to single members still pass.

        The pause ends early if the view changes, if this member is silent for ``lease_s``, or after ``pause_s_max``;
        ``resume`` says so. If several members pause the group, the pause lasts until the last of them resumes.

        Args:
            timeout: seconds. Default: ``flush_deadline_s``.

        Raises:
            SuspendTimeout: not all members stopped in time; the group is not paused.
            NotMember: this member left or was excluded.
            UsageError: this member has already paused the group, ``timeout`` is not a number of seconds, or a block or
                unblock callback called this.
        """
        self._refuse_forked()
        self._refuse_callback("suspend")
        timeout_s = self.config.flush_deadline_s if timeout is None else nanoseconds(timeout) / 1e9
        try:
            self._runner.pausing.suspend(timeout_s)
        except SuspendTimeout:
            if self._runner.standing.over:
                raise self._not_member() from None
            raise

    def resume(self) -> bool:
        """Ends the pause of ``suspend``.

        Returns:
            True: the pause held until now: no member has sent to the group. False: ended early; ``events`` says why.

        Raises:
            UsageError: this member has not paused the group.
        """
        return not self._resume()

    def _resume(self) -> str:
        """Ends the pause. Returns the reason of an early end, or "" if the pause held."""
        self._refuse_forked()
        return self._runner.pausing.resume()

    @contextlib.contextmanager
    def suspended(self, timeout: float | None = None) -> Iterator[None]:
        """``with group.suspended():`` pauses the group like ``suspend``, until the end of the block.

        Args:
            timeout: seconds. Default: ``flush_deadline_s``.

        Raises:
            SuspendTimeout: not all members stopped in time; or, at the end, the pause ended early.
        """
        self.suspend(timeout)
        try:
            yield
        finally:
            reason = self._resume()
        if reason:
            raise too_early(reason)
