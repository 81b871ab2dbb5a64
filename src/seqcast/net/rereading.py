"""Reads the key file and the list of members again, from time to time, while a member runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import seqcast.codes as codes
from seqcast.core.context import NEVER
from seqcast.core.vocabulary import Input, KeysRead, ListRead
from seqcast.errors import ConfigError, without_code
from seqcast.net.secure import KeyFile, ListFile, Reread, file_keys

T = TypeVar("T")
Say = Callable[[str, int], None]


class Rereading:
    """The files of one member. For the control thread.

    Args:
        keys, members: its files; None: it has none.
    """

    def __init__(self, keys: KeyFile | None, members: ListFile | None) -> None:
        self._keys, self._members = keys, members

    @property
    def due_ns(self) -> int:
        """When a file is to be looked at next."""
        return min((each.due_ns for each in (self._keys, self._members) if each is not None), default=NEVER)

    def look(self, now_ns: int, say: Say) -> list[Input]:
        """The files that were due and have another content, as inputs of a step.

        Args:
            say: reports a change, or a file that holds nothing of use, with the level of the line.
        """
        return [*self._look_at_keys(now_ns, say), *self._look_at_list(now_ns, say)]

    def counters(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for each in (self._keys, self._members):
            found |= each.counters if each is not None else {}
        return found

    def _read(self, file: Reread[T] | None, now_ns: int, say: Say, spoilt: Callable[[str], str]) -> T | None:
        """The content of a file that was due and has another one; ``spoilt``: the warning, by the reason, if the file
        holds none."""
        if file is None or now_ns < file.due_ns:
            return None
        try:
            return file.look(now_ns)
        except ConfigError as error:
            say(spoilt(without_code(error)), logging.WARNING)
            return None

    def _look_at_keys(self, now_ns: int, say: Say) -> list[Input]:
        secrets = self._read(
            self._keys,
            now_ns,
            say,
            lambda why: codes.KEY_FILE(f"the key file has changed, and the keys before stay: {why}"),
        )
        if secrets is None:
            return []
        ids = ", ".join(str(number) for number, _ in secrets)
        say(
            f"the key file has changed, and now has key {ids}: the first one seals once all members have it",
            logging.INFO,
        )
        return [KeysRead(file_keys(secrets))]

    def _look_at_list(self, now_ns: int, say: Say) -> list[Input]:
        allowed = self._read(
            self._members,
            now_ns,
            say,
            lambda why: codes.MEMBERS_LIST(f"the list of members has changed, and the one before stays: {why}"),
        )
        if allowed is None:
            return []
        say(f"the list of members has changed, and now has {len(allowed)} lines that count", logging.INFO)
        return [ListRead(allowed)]
