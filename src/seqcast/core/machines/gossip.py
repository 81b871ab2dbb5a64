"""Reliability by gossip in one view: connects the policy, which knows members by id, to the engine, which knows ranks.

Gossips are control frames. A request is a NAK of the engine, which limits how many it answers; requested packets arrive
as any retransmission does. A gossip's report on this member's own stream counts as an acknowledgement of its origin.
The sender of a gossip need not be its origin, so members are trusted about each other; docs/gossip.md has the limits of
that.
"""

from __future__ import annotations

from seqcast.core.context import NEVER, Context
from seqcast.core.frames import gossiping
from seqcast.core.frames.codec import need
from seqcast.core.gossip import (
    Agreed,
    Alive,
    Catalog,
    Effect,
    Everyone,
    Floor,
    Gossiper,
    GossipMessage,
    GossipSettings,
    Request,
    SendTo,
    Span,
    Sum,
)
from seqcast.core.gossip.dice import Dice


class Gossiping:
    """Gossip in one view; inactive if reliability is not by gossip."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._policy: Gossiper | None = None
        view, given, me = context.view, context.settings.gossip, context.me.id
        if given is None or view is None or len(view.members) == 1:
            return
        self._ids = tuple(member.id for member in view.members)
        self._ranks = {member: rank for rank, member in enumerate(self._ids)}
        self._window = _Window(context, self._ids, self._ranks)
        dice = Dice(context.settings.nonce ^ me ^ context.tag)
        settings = GossipSettings(**given)
        self._policy = Gossiper(me, Everyone(me, self._ids), settings, self._window, context.now, dice)

    def due(self) -> int:
        return self._policy.due() if self._policy is not None else NEVER

    def run_timers(self) -> None:
        assert self._policy is not None
        self._carry_out(self._policy.tick(self.context.now))

    def received(self, frame: gossiping.Gossip, sender: int) -> None:
        """A gossip of this view came from a member.

        Raises:
            RemoteProtocolError: a rank outside the view.
        """
        if self._policy is None or sender == self.context.me.id:
            return
        ids, context = self._ids, self.context
        named = [frame.origin, *frame.seen, *frame.not_seen, *frame.counted]
        named += [has.rank for has in frame.digest]
        named += [each.rank for each in (*frame.least, *frame.result)]
        need(max(named) < len(ids), "gossip: a rank that the view does not have")
        for has in frame.digest:
            if has.rank == context.rank != frame.origin:
                context.plane.gossip_vote(
                    frame.origin, has.delivered, has.received, has.consumed, has.window, has.claim, context.now
                )
        digest = {ids[rank]: Span(*spans) for rank, *spans in frame.digest}
        seen, not_seen, counted = (
            tuple(ids[rank] for rank in ranks) for ranks in (frame.seen, frame.not_seen, frame.counted)
        )
        least, result = ({ids[rank]: Floor(*marks) for rank, *marks in each} for each in (frame.least, frame.result))
        total = Sum(frame.round, counted, least, result)
        gossip = GossipMessage(ids[frame.origin], frame.counter, frame.hops, digest, seen, not_seen, total)
        forged = self._policy.forged
        self._carry_out(self._policy.received(gossip, sender, context.now))
        context.counters["gossips_forged"] += self._policy.forged - forged

    def _carry_out(self, effects: list[Effect]) -> None:
        context, ranks = self.context, self._ranks
        for effect in effects:
            match effect:
                case SendTo(to, GossipMessage() as gossip):
                    self._send(to, gossip)
                case SendTo(to, Request(missing)):
                    for sender, ranges in missing.items():
                        for first, last in ranges:
                            context.plane.gossip_ask(ranks[sender], first, last, ranks[to[0]], context.now)
                case Alive(members):
                    for member in members:
                        if member != context.me.id:
                            context.plane.gossip_vouch(ranks[member], context.now)
                case Agreed(sender, least):
                    self._agreed(ranks[sender], least)
                case _:
                    raise AssertionError(f"not if all members vote: {effect}")

    def _agreed(self, sender: int, least: Floor) -> None:
        """All members have this of the stream of the member with rank ``sender``."""
        context = self.context
        context.plane.gossip_stable(sender, least.delivered)
        if sender == context.rank:
            for rank in range(len(self._ids)):
                if rank != sender:
                    context.plane.gossip_vote(rank, least.delivered, *least, context.now)

    def _send(self, to: tuple[int, ...], gossip: GossipMessage) -> None:
        ranks = self._ranks
        digest = tuple(gossiping.Has(ranks[sender], *span) for sender, span in gossip.digest.items())
        total = gossip.sum
        assert total is not None
        seen, not_seen, counted = (
            tuple(ranks[member] for member in members) for members in (gossip.seen, gossip.not_seen, total.members)
        )
        least, result = (
            tuple(gossiping.Least(ranks[sender], *marks) for sender, marks in each.items())
            for each in (total.least, total.result)
        )
        tag, origin = self.context.tag, ranks[gossip.origin]
        frame = gossiping.Gossip(
            tag, origin, gossip.counter, gossip.hops, digest, seen, not_seen, total.round, counted, least, result
        )
        if not to:
            self.context.multicast(frame)
        for member in to:
            self.context.send(frame, member)


class _Window:
    """The group streams of a view, as ``core.gossip.Packets`` asks for them."""

    full = False

    def __init__(self, context: Context, ids: tuple[int, ...], ranks: dict[int, int]) -> None:
        assert context.entered is not None
        self._plane, self._ids, self._ranks, self._base = context.plane, ids, ranks, context.entered.base

    def digest(self) -> dict[int, Span]:
        spans = [Span(*marks) for marks in self._plane.gossip_marks()]
        active = zip(self._ids, spans, self._base, strict=True)
        return {member: span for member, span, base in active if span.received > base}

    def lacks(self, sender: int, first: int, last: int, most: int) -> tuple[tuple[int, int], ...]:
        return tuple(self._plane.gossip_lacks(self._ranks[sender], first, last, most))

    def received(self, sender: int) -> int:
        return Span(*self._plane.gossip_marks()[self._ranks[sender]]).received

    def catalogs(self) -> tuple[Catalog, ...]:
        return ()  # a joiner's view begins with its own cut
