"""Work on a thread of its own, unless the interpreter shuts down; by which name, and on which cores."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable

from seqcast.config.check import cores
from seqcast.errors import ConfigError

NAME_BYTES = 15
"""The longest name of a thread, in Linux."""
FLUSHED_S = 1.0
"""How long the end of the process waits for the standard streams."""


def is_ending() -> bool:
    """The interpreter shuts down, with the end of the main thread: no thread can be started any more (from Python 3.12
    on), so the work of one must be done here."""
    return not threading.main_thread().is_alive()


def on_thread_or_here(call: Callable[[], object], name: str) -> None:
    """Runs a call on a new daemon thread; here if the interpreter shuts down."""
    if is_ending():
        call()
    else:
        threading.Thread(target=call, name=name, daemon=True).start()


def usable(name: str, text: str) -> frozenset[int]:
    """The cores of a setting, all of which this process may use; none: any.

    Raises:
        ConfigError: one of them is forbidden or missing.
    """
    wanted = cores(name, text)
    if wanted and (missing := wanted - os.sched_getaffinity(0)):
        may = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        raise ConfigError(f"{name}={text!r}: this process cannot run on core {min(missing)}; it may use {may}")
    return wanted


def named(run: Callable[[], object], cores: frozenset[int]) -> Callable[[], object]:
    """The same for a thread that the system knows by its name, too, and runs on these cores alone; none: on any."""

    def bound() -> None:
        if sys.platform.startswith("linux"):  # Python does so from 3.14 on
            with contextlib.suppress(OSError), open(f"/proc/self/task/{threading.get_native_id()}/comm", "wb") as comm:
                comm.write(threading.current_thread().name.encode()[:NAME_BYTES])
        if cores:
            os.sched_setaffinity(0, cores)  # of this thread
        run()

    return bound


def exit_now(error: SystemExit) -> None:
    """Ends the process as ``sys.exit`` does on the main thread, from any thread, and at once: the main thread may be in
    a wait that nothing ends."""
    code = error.code
    status = (code or 0) & 0xFF if isinstance(code, int | None) else 1

    def flush() -> None:
        with contextlib.suppress(Exception):
            if not isinstance(code, int | None):
                print(code, file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()

    try:
        # On a thread, as a writer to a full pipe holds the lock of its stream.
        thread = threading.Thread(target=flush, name="seqcast-exit", daemon=True)
        thread.start()
        thread.join(FLUSHED_S)
    finally:  # without a thread, too: the interpreter may shut down, or have too many
        os._exit(status)
