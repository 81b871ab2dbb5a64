"""The VIEWs of a run: the decisions of their makers fit the members' descriptions of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from seqcast.types import ViewId


class Described(Protocol):
    """A member, by its own description."""

    @property
    def id(self) -> int: ...
    @property
    def packet_bytes(self) -> int: ...
    @property
    def observer(self) -> bool: ...
    @property
    def aes(self) -> bool: ...


class Made(Protocol):
    """A VIEW."""

    @property
    def view_id(self) -> ViewId: ...
    @property
    def members(self) -> Sequence[Described]: ...
    @property
    def packet_bytes(self) -> int: ...
    @property
    def cipher(self) -> int: ...
    @property
    def departed(self) -> Sequence[int]: ...


def check_made(views: Iterable[Made], ciphers: Sequence[str]) -> Iterator[str]:
    """Each VIEW that was sent.

    Args:
        ciphers: their names, by number.
    """
    for view in views:
        name, members, cipher = view.view_id, view.members, ciphers[view.cipher]
        if [each.observer for each in members] != sorted(each.observer for each in members):
            yield f"views: in {name} an observer stands before a member that is none"
        if members and view.packet_bytes > min(each.packet_bytes for each in members):
            yield f"views: packets of {view.packet_bytes} bytes in {name} are larger than a member takes"
        if cipher.startswith("ae") and not all(each.aes for each in members):
            yield f"views: {name} is sealed with {cipher}, and a member lacks AES"
        if gone := {each.id for each in members} & set(view.departed):
            yield f"views: {name} has {len(gone)} members that are said to be gone for good"
