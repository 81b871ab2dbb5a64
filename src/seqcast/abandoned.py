"""Blocking calls that nobody waits for any more. Those of asyncio run on threads, which cannot be interrupted, so they
check for this themselves."""

from __future__ import annotations

import threading


class Abandoned(Exception):
    """The caller was cancelled meanwhile."""


class Call:
    """A call that runs on a thread of its own.

    Attributes:
        abandoned: set by another thread, when nobody waits for the result any more.
    """

    def __init__(self) -> None:
        self.abandoned = False

    def begin(self) -> None:
        """The current thread makes this call from now on."""
        _current.call = self


_current = threading.local()


def is_abandoned() -> bool:
    """Is the call that this thread makes one that nobody waits for?"""
    call = getattr(_current, "call", None)
    return call is not None and call.abandoned


def still_wanted() -> bool:
    """True, for the condition of a wait.

    Raises:
        Abandoned: nobody waits for this call any more.
    """
    if is_abandoned():
        raise Abandoned
    return True
