"""The application's waits for a pause of the group, and for its end."""

from __future__ import annotations

from collections.abc import Callable

from seqcast.config.derive import to_ns
from seqcast.core.endpoint import Endpoint
from seqcast.core.machines.pause_request import PauseRequest
from seqcast.core.vocabulary import Input, PauseHeld, PauseOver
from seqcast.errors import SuspendTimeout
from seqcast.net.standing import Standing


class Pausing:
    """
    Args:
        request: queues an input for the control thread.
        lease_s: a pause ends if its owner is silent for this long, in seconds.
    """

    def __init__(
        self, standing: Standing, endpoint: Endpoint, request: Callable[[Input], None], lease_s: float
    ) -> None:
        self._standing, self._request, self._lease_s = standing, request, lease_s
        self._pause = PauseRequest(endpoint.edges)

    @property
    def free(self) -> bool:
        return self._pause.free

    def told(self, effect: PauseHeld | PauseOver) -> None:
        """By the control thread."""
        with self._standing.changed:
            self._pause.told(effect)
            self._standing.changed.notify_all()

    def suspend(self, timeout_s: float) -> None:
        """Pauses the group; returns when the pause holds.

        Raises:
            UsageError: this member has already paused the group.
            SuspendTimeout: no pause in time, or another thread resumed the group.
        """
        standing, pause = self._standing, self._pause
        with standing.changed:
            asked = pause.ask(to_ns(timeout_s))
            self._request(asked)
            try:
                standing.wait(
                    lambda: not pause.awaits(asked) or standing.over,
                    timeout_s + 1.0,
                    lambda: f"suspend waits until all of {', '.join(standing.names())} have stopped sending",
                )
            except BaseException:
                if pause.is_open(asked):
                    self.resume()
                raise
            if not pause.is_open(asked):
                raise SuspendTimeout("the group was not paused: another thread resumed it first")
            if pause.held:
                return
            why = self.resume() or "no answer"
        raise SuspendTimeout(f"the group was not paused within {timeout_s:g} s ({why}); it continues")

    def resume(self) -> str:
        """Ends the pause; returns the reason of an earlier end, or "".

        Raises:
            UsageError: there is none.
        """
        standing, pause = self._standing, self._pause
        with standing.changed:
            self._request(pause.resume())
            standing.wait(
                lambda: not pause.held or standing.over,
                self._lease_s,
                lambda: "resume waits until the pause has ended here",
            )
            why = pause.end()
            standing.changed.notify_all()  # for a thread that waits in `suspend`
            return why
