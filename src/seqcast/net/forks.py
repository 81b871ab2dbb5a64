"""Groups and crowds in a child process after ``fork``: they belong to the parent."""

from __future__ import annotations

import os
from collections.abc import Callable

from seqcast.errors import NotMember


def in_child(run: Callable[[], None]) -> None:
    """Has this called in each child of ``fork``, where no lock may be taken: a thread that does not exist there may
    hold one."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=run)


def forked(what: str) -> NotMember:
    """The error for a group or crowd in a child process."""
    return NotMember(
        f"this {what} was opened before fork() and belongs to the parent process: join in the child, or start "
        "processes with multiprocessing's 'spawn' method"
    )
