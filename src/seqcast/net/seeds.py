"""The hosts that an entry of ``seeds`` stands for: itself, or a list from a file, the environment or a function."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable

from seqcast.config.check import split_seed
from seqcast.errors import ConfigError, without_code
from seqcast.files import NAMED_BYTES_MAX, read_file

HOSTS_MAX = 256
"""The most hosts of one list."""
CALL_S = 5.0
"""A function that has not returned after this many seconds is not waited for; the next call comes after its return."""


class Asked:
    """A function of the application that returns hosts. Calls run on a thread of their own, so one that never returns
    holds nothing up.

    Args:
        function: returns an iterable of text.
    """

    def __init__(self, function: Callable[[], Iterable[str]]) -> None:
        self._function = function
        self._running: threading.Thread | None = None
        self._answer: list[str] | BaseException = []

    def __call__(self) -> list[str]:
        """
        Raises:
            OSError: an exception, another result, or no return.
        """
        if self._running is None:
            self._running = threading.Thread(target=self._run, name="seqcast-seeds-asked", daemon=True)
            self._running.start()
        self._running.join(CALL_S)
        if self._running.is_alive():
            raise OSError(f"the function has not returned within {CALL_S:g} s")
        self._running = None
        if isinstance(self._answer, BaseException):
            raise OSError(f"the function raised {self._answer!r}")
        return self._answer

    def _run(self) -> None:
        try:
            answer = self._function()
            if isinstance(answer, str):
                raise TypeError("the function must return a list of text, not text")
            self._answer = hosts(answer)
        except BaseException as error:
            self._answer = error


def hosts_of(entry: str) -> list[str]:
    """The hosts that an entry stands for now.

    Args:
        entry: ``file:PATH``, a host in each line, with comments after #; ``env:NAME``, hosts separated by commas; or a
            host itself.

    Raises:
        OSError: the file cannot be read, the variable is not set, or they hold something else.
    """
    kind, colon, name = entry.partition(":")
    if not colon or kind not in ("file", "env"):
        return [entry]
    if kind == "env":
        if name not in os.environ:
            raise OSError("the variable is not set")
        return hosts(os.environ[name].split(","))
    text = read_file(name, NAMED_BYTES_MAX, links=True).decode("utf-8", "replace")
    return hosts(line.partition("#")[0] for line in text.splitlines())


def hosts(lines: Iterable[str]) -> list[str]:
    """
    Raises:
        OSError: one of them is not a host, or there are too many.
    """
    found = [text for line in lines if (text := str(line).strip())]
    if len(found) > HOSTS_MAX:
        raise OSError(f"{len(found)} hosts, more than the {HOSTS_MAX} allowed")
    for each in found:
        try:
            split_seed(each)
        except ConfigError as error:
            raise OSError(without_code(error)) from None
    return found
