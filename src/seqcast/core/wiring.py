"""The machines of one member, connected: some live as long as the member, the others are renewed with each view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from seqcast.core.challenges import Challenges
from seqcast.core.context import NEVER, Context
from seqcast.core.keys import Keys
from seqcast.core.lineage import Lineage
from seqcast.core.machines.asking import Asking
from seqcast.core.machines.blocker import Blocker
from seqcast.core.machines.book import Book
from seqcast.core.machines.coordinated import CoordinatedMembership
from seqcast.core.machines.gossip import Gossiping
from seqcast.core.machines.informer import Informer
from seqcast.core.machines.initiator import Initiator
from seqcast.core.machines.interface import Interface
from seqcast.core.machines.keeper import Keeper
from seqcast.core.machines.lifecycle import Lifecycle, LifecycleEvent
from seqcast.core.machines.merge import Merger
from seqcast.core.machines.participant import Participant
from seqcast.core.machines.pause_member import PauseMember
from seqcast.core.machines.pause_owner import PauseOwner
from seqcast.core.machines.token_ring import TokenRingMembership
from seqcast.core.membership import Membership
from seqcast.core.state.taker import StateTaker


class Timed(Protocol):
    """A machine with timers."""

    def due(self) -> int:
        """Monotonic ns at which ``run_timers`` must be called; ``NEVER``: no timer runs."""

    def run_timers(self) -> None: ...


class Machines:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.lineage = Lineage(context.me.id)
        self.challenges = Challenges(context)
        self.keys = Keys(context)
        settings = context.settings
        self.book = Book(context.me.address, settings.beacon_ns, settings.join_ns_min, not settings.unicast)
        self.blocker = Blocker(context)
        self.keeper = Keeper(context)
        self.lifecycle = Lifecycle(context, self.blocker, self.keeper)
        self.taker = StateTaker(context)
        self.informer = Informer(context)
        self.interface = Interface(context)
        self.pause_owner = PauseOwner(context)
        self.asking = Asking(context)
        self._begin(None)
        self.initiator: Initiator = Initiator(context, self.participant, self.membership, self.lineage)
        self.merger: Merger = Merger(context, self.initiator, self.lineage, self.book)

    def timed(self) -> Iterator[Timed]:
        """The machines with timers, in the order in which these run. Each is looked up only at its turn, because the
        one before it may have entered a view."""
        yield self.lifecycle
        yield self.blocker
        yield self.pause_member
        yield self.pause_owner
        yield self.participant
        yield self.initiator
        yield self.merger
        yield self.taker
        yield self.informer
        yield self.keys
        yield self.gossip

    def due(self) -> int:
        """The earliest time at which one of them has something to do."""
        if self.lifecycle.over:
            return NEVER
        return min(self.membership.due(), *[machine.due() for machine in self.timed()])

    # ---- views

    def renew(self, keep: bool = False) -> None:
        """Renews the machines, for a new view or for none. The initiator stays: it may be serving the VIEW.

        Args:
            keep: joiners and leavers of the view before stay.
        """
        self._begin(self.membership if keep else None)
        self.initiator.participant, self.initiator.membership = self.participant, self.membership

    def _begin(self, before: Membership | None) -> None:
        self.participant = Participant(self.context, self.blocker)
        self.pause_member = PauseMember(self.context, self.blocker)
        self.membership: Membership
        self.ring: TokenRingMembership | None = None  # the membership, if of this kind
        if self.context.settings.membership == "token-ring":
            self.membership = self.ring = TokenRingMembership(self.context, self.participant, before)
        else:
            self.membership = CoordinatedMembership(self.context, self.participant, before)
        self.gossip = Gossiping(self.context)

    # ---- effects of one machine on another

    def end_pauses(self) -> None:
        """The view begins to close, which ends its pauses (the cut, step 6)."""
        closed = self.participant.promised
        if self.participant.closing:
            self.pause_member.close(closed)
        if closed:
            self.pause_owner.close()

    def end_lingering(self) -> None:
        """A leaver is done when no member waits for the closing VIEW."""
        if self.initiator.idle:
            self.lifecycle.fire(LifecycleEvent.SERVED)
