"""The lines of a member's log: one for each view, and its cause.

The core does no I/O: lines are effects (`Log`), which the runner passes to the logger of their part and the simulator
drops. There are lines for membership changes, never for messages, and only for enabled parts (TRC-01): ``told`` are the
parts whose lines are written, ``debugged`` those whose control frames are written too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import seqcast.codes as codes
from seqcast.core.context import Context
from seqcast.core.frames.closing import Block, Start
from seqcast.core.frames.kinds import Frame
from seqcast.core.frames.traits import TRAITS
from seqcast.core.frames.view import NewView
from seqcast.core.state.providers import subgroups_replaced
from seqcast.core.vocabulary import Effect, Log, StateHeld, TakeState
from seqcast.types import MergeView, View

PARTS = ("membership", "flush", "merge", "order", "transfer", "detector", "gossip", "ring")
"""Each has a logger, ``seqcast.<part>``."""
PACKETS = (1440, 1368, 1232, 1024)
"""Sizes to try on a path that carries no larger ones: for Ethernet with a VLAN, tunnels, and IPv6's least."""

COPIES_MAX = 16
"""More members to which each message goes by unicast are told of."""


class LogLines:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.told: Collection[str] = PARTS
        self.debugged: Collection[str] = ()
        self.lines: list[Log] = []
        self.closing_ns = 0  # when the view began to close; 0: not closing

    def say(self, part: str, text: str, *args: Any) -> None:
        if part in self.told:
            self.lines.append(Log(part, text, args))

    def warn(self, part: str, text: str, *args: Any) -> None:
        """Whoever reads warnings alone reads this in any case."""
        self.lines.append(Log(part, text, args, warning=True))

    def take(self) -> list[Log]:
        """The lines since the last call."""
        lines, self.lines = self.lines, []
        return lines

    # ---- events

    def received(self, frame: Frame, sender: int) -> None:
        """Called before the frame is acted on."""
        begins = isinstance(frame, Block | Start) and not self.closing_ns and frame.view == self.context.tag
        if begins and sender in self.context.infos:  # anyone can send one
            self.closing_ns = self.context.now
        if self.debugged and (part := TRAITS[type(frame)].part) in self.debugged:
            self._frame(part, "%s: from %s: %s", frame, self.name(sender))

    def sent(self, frame: Frame, address: bytes) -> None:
        if self.debugged and (part := TRAITS[type(frame)].part) in self.debugged:
            infos = self.context.infos.values()
            whom = next((info.name for info in infos if info.address == address), "a stranger") if address else "all"
            self._frame(part, "%s: to %s: %s", frame, whom)

    def _frame(self, part: str, text: str, frame: Frame, whom: str) -> None:
        self.lines.append(Log(part, text, (self.context.me.name, whom, frame), debug=True))

    def effect(self, effect: Effect) -> None:
        """Logs effects that concern the transfer of state."""
        match effect:
            case TakeState(provider, _):
                self.say("transfer", "%s: receives the state from %s", self.context.me.name, self.name(provider))
            case StateHeld(boundary):
                whose = "has the state" if boundary else "is the first: its own state holds"
                self.say("transfer", "%s: %s", self.context.me.name, whose)

    def suspected(self, member_id: int, why: str) -> None:
        self.say("detector", "%s: suspects %s: %s", self.context.me.name, self.name(member_id), why)

    def alive(self, member_id: int) -> None:
        self.say("detector", "%s: hears %s again", self.context.me.name, self.name(member_id))

    def way_changed(self, member_id: int, multicast: bool) -> None:
        me, name = self.context.me.name, self.name(member_id)
        if multicast:
            text = codes.WAY_CHANGED("%s: %s hears its multicasts again: messages go there by multicast")
        else:
            text = codes.WAY_CHANGED("%s: %s does not hear its multicasts: messages go there by unicast")
        self.say("detector", text, me, name)

    def packets_lost(self, member_id: int, size: int, took_ns: int) -> None:
        text = (
            "%s: datagrams of %d bytes do not reach %s, which has asked for one again and again for %.1f s, though "
            "smaller ones pass both ways: the path carries less than the interfaces at its ends. Set packet_bytes=%d, "
            "or less, on all members"
        )
        smaller = next((each for each in PACKETS if each < size), PACKETS[-1])
        self.warn("detector", codes.PATH_TOO_NARROW(text), self.context.me.name, size, self.name(member_id),
                  took_ns / 1e9, smaller)  # fmt: skip

    def resized(self, size: int, before: int) -> None:
        self.say(
            "membership", "%s: packets have %d bytes from now on, instead of %d", self.context.me.name, size, before
        )

    def path_measured(self, member_id: int, size: int, before: int) -> None:
        text = (
            "%s: packets of %d bytes reach all members, and on the path to or from %s no larger ones pass: a view with "
            "such packets, instead of %d bytes, follows"
        )
        self.say("detector", codes.PACKETS_RESIZED(text), self.context.me.name, size, self.name(member_id), before)

    def token_remade(self, generation: int) -> None:
        text = "%s: the token is late, or the member that had it is lost: sends another one, generation %d"
        self.say("ring", text, self.context.me.name, generation)

    def installed(self, old: View | None, view: View, frame: NewView, why: Mapping[int, str]) -> tuple[str, int]:
        """A view is entered.

        Args:
            old: the view before; None: this member's first.
            view: the one entered.
            frame: the one that made the view.
            why: for members that are gone, the reason, as far as this member knows it.

        Returns:
            Why there is another view, and how long its installation took, in ns: see ``ViewInstalled``.
        """
        me, now = self.context.me.name, self.context.now
        took_ns = now - self.closing_ns if self.closing_ns else 0
        took, self.closing_ns = took_ns / 1e6, 0
        part = "merge" if isinstance(view, MergeView) else "membership"
        sequencer = view.members[view.sequencer] if view.sequencer >= 0 else None
        if old is None:
            orders = f"; {sequencer} puts the messages in order" if sequencer is not None else ""
            self.say(part, "%s: joined: %s%s", me, view, orders)
        elif (lost := self._lost(old, view, frame.survivors, why)) or part in self.told:
            changes, text = self.changes(old, view, frame.survivors, why), "%s: %s: %s; took %.0f ms"
            if 2 * lost >= len(old.members):
                changes += "; if they live, they have gone on without this member"
            if lost:
                self.warn(part, codes.MEMBER_EXCLUDED(text), me, view, changes, took)
            else:
                self.say(part, text, me, view, changes, took)
        if isinstance(view, MergeView) and view.state_from is not None and self.context.me.state:
            self._replaced(view.state_from, [view.subgroups[place] for place in subgroups_replaced(frame)])
        copies = len(view.members) - 1
        if self.context.settings.unicast and copies > COPIES_MAX >= (len(old.members) - 1 if old is not None else 0):
            text = codes.MANY_COPIES("%s: each message goes to %d members by unicast, so one sender's messages get at "
                                     "most one part in %d of its network's rate")  # fmt: skip
            self.warn(part, text, me, copies, copies)
        before = old.members[old.sequencer] if old is not None and old.sequencer >= 0 else None
        if old is not None and sequencer is not None and sequencer != before:
            counter = view.view_id.counter
            self.say("order", "%s: %s puts the messages in order from view %d on", me, sequencer, counter)
        return ("", 0) if old is None else (self._change(old, view, frame.survivors, why), took_ns)

    def _change(self, old: View, view: View, survivors: Collection[int], why: Mapping[int, str]) -> str:
        """In one word: the gravest of the changes."""
        before, after = set(old.members), set(view.members)
        if self._lost(old, view, survivors, why):
            return "loss"
        if isinstance(view, MergeView):
            return "merge"
        return "leave" if before - after else "join" if after - before else "other"

    def _replaced(self, kept: View, replaced: Sequence[View]) -> None:
        """Some members take over the state of others: whoever reads warnings alone learns this in any case."""
        sides = [f"[{', '.join(member.name for member in group.members)}]" for group in (kept, *replaced)]
        text = (
            "%s: the group's sides had different states, and not every state handler has merge_state: all take over "
            "that of %s, and entries that only the states of %s had are lost"
        )
        told = self.context.me.name, sides[0], " and ".join(sides[1:])
        self.warn("merge", codes.STATE_REPLACED(text), *told)

    def _lost(self, old: View, view: View, survivors: Collection[int], why: Mapping[int, str]) -> int:
        """How many members are gone that did not leave."""
        gone = {member.id for member in old.members} - {member.id for member in view.members}
        return sum(each not in survivors or each in why for each in gone)

    def changes(self, old: View, view: View, survivors: Collection[int], why: Mapping[int, str]) -> str:
        """Who joined, left and was excluded between two views, and why."""
        before, after = {each.id for each in old.members}, {each.id for each in view.members}
        parts = [f"{member} joined" for member in view.members if member.id not in before]
        for member in old.members:
            if member.id in after:
                continue
            if member.id in survivors and member.id not in why:
                parts.append(f"{member} left")
            else:
                parts.append(f"{member} was excluded ({why.get(member.id, 'as the coordinator decided')})")
        return ", ".join(parts) or "the same members"

    def left(self, view: View | None) -> None:
        others = f"; the others: {view}" if view is not None and view.members else ""
        last = "; it was the last member" if view is not None and not view.members else ""
        self.say("membership", "%s: left%s", self.context.me.name, others or last)

    def excluded(self, reason: str) -> None:
        self.warn("membership", codes.EXCLUDED("%s: was excluded from the group: %s"), self.context.me.name, reason)

    def name(self, member_id: int) -> str:
        info = self.context.infos.get(member_id)
        return info.name if info is not None else f"{member_id:016x}"
