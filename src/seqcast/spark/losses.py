"""The members that went without leaving, and the views that fell apart, as the journals of a group tell together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from seqcast.journal.hold import is_written
from seqcast.journal.reader import Journal
from seqcast.journal.schema import signed
from seqcast.journal.views import Installed
from seqcast.spark.members import Names
from seqcast.spark.sides import excluding


@dataclass(frozen=True, slots=True)
class Loss:
    """A member that went.

    Args:
        view: counter of the last view that is known to have had it.
        how: as its journal tells.
    """

    member: str
    view: int
    how: str


def losses(journals: Sequence[Journal], names: Names) -> list[Loss]:
    """The members that went without leaving, by the views that they were in last."""
    own = {journal.member.id: journal for journal in journals}
    last: dict[int, Installed] = {}
    for view in (view for journal in journals for view in journal.views):
        for member in view.members:
            if member.id not in last or view.view_id.counter > last[member.id].view_id.counter:
                last[member.id] = view
    found = []
    for key, view in last.items():
        gone = any(excluding(key, journal) for journal in journals if journal.member.id != key)
        if how := _how(own.get(key), gone=gone):
            found.append(Loss(names.member(signed(key)), view.view_id.counter, how))
    return sorted(found, key=lambda loss: (loss.view, loss.member))


def _how(journal: Journal | None, *, gone: bool) -> str:
    """How a member went; empty: it left, or is still a member.

    Args:
        gone: others have excluded it.
    """
    if journal is None:
        return "its journal is not here to say how" if gone else ""
    if journal.closed == "excluded":
        return "excluded"
    if journal.closed is not None or journal.failed:
        return ""
    written = is_written(journal.path, journal.locked)
    return "ended without a closing record" if written is False or (gone and not written) else ""


def fallen_apart(journals: Sequence[Journal], names: Names) -> Iterator[str]:
    """Views that members closed by different ones, each with the sides."""
    following: dict[int, tuple[Installed, dict[int, Installed]]] = {}
    for journal in journals:
        for one, other in pairwise(journal.views):
            following.setdefault(one.tag, (one, {}))[1].setdefault(other.tag, other)
    for one, sides in sorted(following.values(), key=lambda each: (each[0].view_id.counter, each[0].tag)):
        if len(sides) > 1:
            ids = {member.id for member in one.members}
            texts = sorted(
                ", ".join(names.member(signed(member.id)) for member in side.members if member.id in ids)
                for side in sides.values()
            )
            yield f"{names.view(signed(one.tag))} into {' and '.join(f'[{text}]' for text in texts)}"
