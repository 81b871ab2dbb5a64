"""``leave_on_signals``: a program that is told to end leaves its groups first."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from types import FrameType

from seqcast.api.group import Group, open_groups
from seqcast.errors import UsageError

DEFAULT = ("SIGTERM", "SIGHUP", "SIGBREAK")
TOGETHER_S = 0.5
"""Signals within this time are one wish."""


def leave_on_signals(*signals: int, grace_s: float = 5.0) -> None:
    """Has the signals that end a process leave its groups first, in order, for programs under systemd and the like.

    Without it SIGTERM ends a process where it stands, which is a crash for the others of its groups: they notice after
    a while, and what was sent last may be lost. With it the first such signal leaves all groups of the process, on a
    thread of its own: loops over a group end when what is delivered is taken, ``send`` raises ``NotMember``, and the
    program goes on behind them to its end. A main thread that has not ended ``grace_s`` after the groups were left,
    because it waits for something else, gets ``SystemExit(0)``. Another of these signals meanwhile does what it did
    before this call: by default it ends the process at once. Within half a second of the first it does nothing: those
    who end a process often send several at once (``timeout`` signals its child, and then its whole process group).

    Leaving takes up to ``leave_timeout_s``, so a service manager must wait for longer than that and ``grace_s``
    together before it kills (systemd: ``TimeoutStopSec``, by default 90 s).

    Args:
        signals: by default SIGTERM and SIGHUP (Windows: SIGTERM and SIGBREAK), without those that the process ignores
            (``nohup``). SIGINT, which Python makes ``KeyboardInterrupt``, may be one.
        grace_s: seconds.

    Raises:
        UsageError: called from another thread than the main one, which alone may set what signals do.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("leave_on_signals must be called by the main thread: only that may set what signals do")
    if not signals:
        named = (getattr(signal, name) for name in DEFAULT if hasattr(signal, name))
        signals = tuple(number for number in named if signal.getsignal(number) is not signal.SIG_IGN)
    _Leaver(signals, grace_s)


class _Leaver:
    """What the signals do, once, in the process that called."""

    def __init__(self, signals: tuple[int, ...], grace_s: float) -> None:
        self._process = os.getpid()
        self._grace_s = grace_s
        self._over = False
        self._begun = 0.0  # monotonic seconds; 0: nobody has asked yet
        self._before = {number: signal.signal(number, self._handle) for number in signals}

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self._over:
            raise SystemExit(0)
        if os.getpid() == self._process:
            now = time.monotonic()
            if not self._begun:
                self._begun = now
                # Not here: the main thread may be in the middle of a call of the group, whose lock it has.
                threading.Thread(target=self._leave, args=(signum,), name="seqcast-leave", daemon=True).start()
                return
            if now < self._begun + TOGETHER_S:
                return
        # Again, or in a child of `fork`, which has no group: as if nobody had asked for this.
        before = self._before[signum]
        signal.signal(signum, signal.SIG_DFL if before is None else before)
        signal.raise_signal(signum)

    def _leave(self, signum: int) -> None:
        leaving = [threading.Thread(target=_leave, args=(group,), daemon=True) for group in open_groups()]
        for thread in leaving:
            thread.start()
        for thread in leaving:
            thread.join()
        threading.main_thread().join(self._grace_s)
        self._over = True
        if threading.main_thread().is_alive():
            # Into whatever call it waits in. What the handler raises comes out of that.
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(threading.main_thread().ident or 0, signum)
            else:
                signal.raise_signal(signum)


def _leave(group: Group) -> None:
    with contextlib.suppress(Exception):
        group.leave()
