"""In groups with a key, a process outside a view never knows its secret, from memory or from recordings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from seqcast.sim.seal import Sealings


class Reader(Protocol):
    """A process that tries to open its recordings."""

    @property
    def id(self) -> int: ...
    def opens(self, tag: int) -> bool:
        """Does the VIEW of this view, which went over the network, tell the reader the secret?"""


def check_secrets(sealings: Sealings, members: Mapping[int, frozenset[int]], names: Mapping[int, str]) -> Iterator[str]:
    """The secrets known and used in a run.

    Args:
        members: ids of those for whom a view is, by its tag.
        names: of processes, by id.
    """
    tags: dict[bytes, set[int]] = {}
    for origin in sealings.origin.values():
        if origin.tag:
            tags.setdefault(origin.secret, set()).add(origin.tag)
    for secret, those in tags.items():
        if len(those) > 1:
            yield f"secrecy: {len(those)} views have one secret, {secret.hex()[:8]}"
        owners = {owner for owner, known in sealings.views.items() if secret in known}
        for tag in those:
            inside = members.get(tag) or set(list(owners)[:1])  # a founder that told nobody
            for owner in owners - inside:
                yield f"secrecy: {names.get(owner, owner)} knows the secret of view {tag:016x}, in which it is not"


def check_recorded(readers: Mapping[str, Reader], members: Mapping[int, frozenset[int]]) -> Iterator[str]:
    """The datagrams that each process could open if it had recorded everything, with the key pair of its whole life.

    Args:
        readers: by name.
    """
    for name, reader in readers.items():
        for tag, those in members.items():
            if reader.id not in those and reader.opens(tag):
                yield f"secrecy: {name} can open what it recorded of view {tag:016x}, in which it is not"
