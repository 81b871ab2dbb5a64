"""``leave_on_signals``: a program leaves its groups before a signal ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from types import FrameType

from seqcast.api.group import ENDING, Group, open_groups
from seqcast.errors import UsageError
from seqcast.net.threads import is_ending

DEFAULT = ("SIGTERM", "SIGHUP", "SIGBREAK")
TOGETHER_S = 0.5
"""Signals within this time count as one."""


def leave_on_signals(*signals: int, grace_s: float = 5.0) -> None:
    """Makes the signals that end a process leave its groups first; for programs under systemd and the like.

    Otherwise SIGTERM ends the process at once. To the other members that is a crash: they notice it after a while,
    and the last messages may be lost. After this call, the first such signal leaves all groups of the process, on a
    thread of its own: loops over a group end once every delivered message is received, ``send`` raises ``NotMember``,
    and the program runs on to its end. If the main thread has not ended ``grace_s`` after the groups were left, because
    of another wait, ``SystemExit(0)`` is raised there. A second signal has the effect that signals had before this
    call: by default the end of the process. Within half a second of the first one, a second signal is ignored, as many
    programs send several signals to end a process (``timeout`` signals its child, and then the whole process group).

    Leaving takes up to ``leave_timeout_s``. A service manager must wait longer than that plus ``grace_s`` before
    killing the process (systemd: ``TimeoutStopSec``, 90 s by default).

    Args:
        signals: default: SIGTERM and SIGHUP (Windows: SIGTERM and SIGBREAK), without those that the process ignores
            (``nohup``). SIGINT, which Python turns into ``KeyboardInterrupt``, can be one of them.
        grace_s: seconds.

    Raises:
        UsageError: called from a thread other than the main one; only the main thread can set signal handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("leave_on_signals must be called by the main thread: only that one can set signal handlers")
    if not signals:
        named = (getattr(signal, name) for name in DEFAULT if hasattr(signal, name))
        signals = tuple(number for number in named if signal.getsignal(number) is not signal.SIG_IGN)
    _Leaver(signals, grace_s)


class _Leaver:
    """The handler of the signals, in the process that called."""

    def __init__(self, signals: tuple[int, ...], grace_s: float) -> None:
        self._process = os.getpid()
        self._grace_s = grace_s
        self._over = False
        self._begun = 0.0  # monotonic seconds of the first signal; 0: none yet
        self._before = {number: signal.signal(number, self._handle) for number in signals}

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self._over:
            raise SystemExit(0)
        if os.getpid() == self._process:
            now = time.monotonic()
            if not self._begun:
                self._begun = now
                ENDING.set()
                # On another thread: the main thread may be inside a call of the group, and hold its lock.
                # When the interpreter shuts down, the main thread only waits for other threads, or leaves its groups
                # already.
                if is_ending():
                    _leave_all()
                else:
                    threading.Thread(target=self._leave, args=(signum,), name="seqcast-leave", daemon=True).start()
                return
            if now < self._begun + TOGETHER_S:
                return
        # A second signal, or a child of `fork`, which has no group: as before this call.
        before = self._before[signum]
        signal.signal(signum, signal.SIG_DFL if before is None else before)
        signal.raise_signal(signum)

    def _leave(self, signum: int) -> None:
        leaving = [threading.Thread(target=_leave, args=(group,), daemon=True) for group in open_groups()]
        try:
            for thread in leaving:
                thread.start()
        except RuntimeError:  # the main thread ended just now
            _leave_all()
        else:
            for thread in leaving:
                thread.join()
        threading.main_thread().join(self._grace_s)
        self._over = True
        if threading.main_thread().is_alive():
            # Interrupts the call in which the main thread waits; the handler's exception is raised there.
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(threading.main_thread().ident or 0, signum)
            else:
                signal.raise_signal(signum)


def _leave_all() -> None:
    for group in open_groups():
        if not group._leaving.locked():  # else a leave is under way, maybe below this call
            _leave(group)


def _leave(group: Group) -> None:
    with contextlib.suppress(Exception):
        group.leave()
