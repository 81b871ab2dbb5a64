"""The questions of the core to membership: who should be in the next view, and which member closes this one.

Safety does not depend on the answers. Any member may begin to close the view at any time, several may at once, and they
may disagree about who is alive: the cut yields one view or none. A bad kind of membership can only cost time, and can
be replaced without a change to the cut. The guarantees:

1. survivors are members of the view, this member among them, and none of them is doubted here;
2. among members that hear each other, none or more than one acts only briefly;
3. no wait for a doubted member, and for anything else only within a bound;
4. a new start with each view, which keeps only the joiners and leavers that the view did not answer.

With both kinds the first member that is not doubted here acts: at once (``machines/coordinated.py``), or once a token
has collected the agreement of all (``machines/token_ring.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.joining import Join, Refused, Was
from seqcast.core.frames.view import InfoTold


@dataclass(slots=True)
class Joiner:
    """A process that asks to join.

    Args:
        info: its description of itself.
        first_ns, last_ns: monotonic time of its first request and of its latest.
        founds: known to be one of those that may found a group.
        was: the member before a restart, which has a vote.
    """

    info: MemberInfo
    first_ns: int
    last_ns: int
    founds: bool = False
    was: Was | None = None


class Decision(Protocol):
    """The decision of a review.

    Args:
        begins: this member is to begin an attempt to close the view,
        survivors: with the members of these ids.
    """

    @property
    def begins(self) -> bool: ...
    @property
    def survivors(self) -> tuple[int, ...]: ...


class Membership(Protocol):
    """The membership of one view, at one member.

    Args:
        joiners: by id; the membership of the next view begins with those that are not settled yet,
        leavers: and with these, by id.
        told: and with the warnings that are not repeated in each view.
    """

    joiners: dict[int, Joiner]
    leavers: set[int]
    told: set[str]

    # ---- queries
    def acting(self) -> bool:
        """Is this member the acting one, which closes the view and answers for the group?"""

    def acting_member(self) -> int:
        """Id of the member that closes the view and answers for the group, to this one's knowledge; 0: no member."""

    def doubted(self) -> set[int]:
        """Ids of the members that this one does not expect to survive the view."""

    @property
    def suspected(self) -> Mapping[int, str]:
        """Ids of the members that the engine suspects, and why, in words."""

    def reasons(self) -> dict[int, str]:
        """Why each of those is doubted, in words."""

    def leaving(self) -> set[int]:
        """Ids of the members that asked to leave, or have to: they survive the view, and are not in the next one."""

    def joining(self) -> list[MemberInfo]:
        """The joiners that the next view admits, in an order that depends only on which processes ask."""

    # ---- inputs: frames of other members
    def join(self, frame: Join) -> Refused | None:
        """A process asks to join; returns the refusal if this member refuses it."""

    def expect(self, joiner: int) -> None:
        """A process asks to join, and must show first that it hears us: its next request comes a round trip later."""

    def held_back(self, info: MemberInfo) -> str:
        """Why this joiner is not taken in yet; "": admitted."""

    def withdraw(self, joiner: int) -> None:
        """A process no longer asks to join."""

    def leave(self, member_id: int) -> None:
        """A member asks to leave."""

    def want(self, member_id: int) -> None:
        """A member asks for a view that names another provider of the state."""

    def inform(self, member_id: int, frame: InfoTold) -> None:
        """A member has another info, or other keys, than the view says."""

    def informed(self) -> Mapping[int, MemberInfo]:
        """The members with an info, or keys, that the view does not have yet, as they describe themselves."""

    def decline(self, member_id: int) -> None:
        """A joiner that the view names entered another view."""

    def seen_elsewhere(self, member_id: int) -> None:
        """A member shows itself in a view that does not follow from this one, as far as is known."""

    def lives(self, member_id: int) -> None:
        """A member takes part in closing this view, so it is alive and no longer doubted."""

    def call(self, member_id: int) -> None:
        """A member began to close this view without this one, and cannot end it alone."""

    def seen_here(self, member_id: int) -> None:
        """A member shows itself in this view."""

    def went_on(self, member_ids: Iterable[int]) -> None:
        """Members are known to have left this view for a successor without this member."""

    # ---- inputs: the engine
    def suspect(self, member_id: int, why: str) -> None:
        """The engine takes a member for dead; ``why``: in words, for the log."""

    def trust(self, member_id: int) -> None:
        """A suspected member is heard again."""

    def starves(self, member_id: int) -> None:
        """A member has dropped packets for a long time, because it lacks room."""

    def slow_changed(self) -> None:
        """The set of receivers that senders call too slow to stay has changed."""

    def resize(self) -> bool:
        """Packets of another size than the view's reach all. Will the view change for that, which was not known yet?"""

    def links_changed(self) -> None:
        """The set of links that carry no multicast, or no unicast, has changed."""

    def estranged(self, lost: Collection[int]) -> set[int]:
        """Those of the ``lost`` members of the view with whom a merge will not come soon."""

    # ---- time, and the next view
    def review(self, runs: bool, survivors: tuple[int, ...], backing_off: bool, too_few: bool = False) -> Decision:
        """At the end of each step: decides whether this member closes the view now, and with whom.

        Args:
            runs: an attempt of this member's runs.
            survivors: ids of the awaited ones.
            backing_off: its attempt met a later one, and waits.
            too_few: the survivors are not enough to close the view.
        """

    def due(self) -> int:
        """When to review next if nothing else happens, in ns."""

    def installed(self) -> None:
        """A new view begins."""
