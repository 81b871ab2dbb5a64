"""What runs on a thread of its own, unless the interpreter shuts down."""

from __future__ import annotations

import threading
from collections.abc import Callable


def is_ending() -> bool:
    """The interpreter shuts down, with the end of the main thread: no thread can be started any more (from Python 3.12
    on), so what would be done on one must be done here."""
    return not threading.main_thread().is_alive()


def on_thread_or_here(call: Callable[[], object], name: str) -> None:
    """Runs a call on a new daemon thread; here if the interpreter shuts down."""
    if is_ending():
        call()
    else:
        threading.Thread(target=call, name=name, daemon=True).start()
