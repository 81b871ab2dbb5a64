"""The lines about receivers that senders wait for: this member's own senders, or those of others for this member.

The engine decides which these are, and reports beginning and end (`SendersHeld`). A receiver on the edge would make a
pair of lines every few seconds, so after a warning the next ones about the same member are left out for a while, and
for twice as long each time. A receiver that takes nothing for long is named in any case.
"""

from __future__ import annotations

import seqcast.codes as codes
from seqcast.core.context import Context
from seqcast.core.log import LogLines
from seqcast.reports import SendersHeld

QUIET_NS, QUIET_NS_MAX = 10 * 10**9, 600 * 10**9
"""How long nothing more is said of a member after the first warning, and at most."""
LONG_NS = 5 * 10**9
"""A receiver that has taken nothing for this long is named in any case."""
SLOW = (
    "slow receiver: senders wait for %s, which takes %s of this member's messages, and most others have taken more: "
    "its application, its machine or its network is slow"
)
STUCK = (
    "slow receiver: senders wait for %s, which has taken nothing for %.0f s: its application or its network is slow or "
    "stuck"
)
SELF_SLOW = (
    "senders wait for this member: its application takes %d messages/s: take them faster, many at a time (recv_batch), "
    "or leave the group"
)
SELF_STUCK = (
    "senders wait for this member: its application has taken nothing for %.0f s: take messages (recv, recv_batch), "
    "join with receive=False if the program only sends, or leave the group"
)


def per_second(rate: int) -> str:
    """A rate in bytes per second, for people."""
    for unit, size in (("MB", 10**6), ("KB", 10**3)):
        if rate >= size:
            return f"{rate / size:.3g} {unit}/s"
    return f"{rate} B/s"


class Holdups:
    def __init__(self, context: Context, log: LogLines) -> None:
        self.context, self.log = context, log
        self.told: set[int] = set()  # named, and not over
        self._quiet: dict[int, tuple[int, int]] = {}  # until when nothing is said of a member, and how long that is

    def heard(self, report: SendersHeld) -> None:
        """The engine's report."""
        if report.member not in self.context.infos:  # gone
            self.told.discard(report.member)
        elif report.how == "over":
            self._over(report)
        elif self._may_tell(report):
            self.told.add(report.member)
            own = report.member == self.context.me.id
            whom = () if own else (self.log.name(report.member),)
            if report.how == "stuck":
                text = SELF_STUCK if own else STUCK
                self._warn((codes.AWAITED if own else codes.SLOW_RECEIVER)(text), *whom, report.took_ns / 1e9)
            elif own:
                self._warn(codes.AWAITED(SELF_SLOW), report.rate)
            else:
                self._warn(codes.SLOW_RECEIVER(SLOW), *whom, per_second(report.rate))

    def _warn(self, text: str, *args: object) -> None:
        self.log.warn("detector", f"%s: {text}", self.context.me.name, *args)

    def _may_tell(self, report: SendersHeld) -> bool:
        now, member = self.context.now, report.member
        until, quiet_ns = self._quiet.get(member, (0, 0))
        if member in self.told:
            return report.how == "stuck"  # still so, or worse
        if now < until and not (report.how == "stuck" and report.took_ns >= LONG_NS):
            return False
        again = now - until < QUIET_NS_MAX
        quiet_ns = min(2 * quiet_ns, QUIET_NS_MAX) if quiet_ns and again else QUIET_NS
        self._quiet = {each: kept for each, kept in self._quiet.items() if each in self.context.infos}
        self._quiet[member] = (now + quiet_ns, quiet_ns)
        return True

    def _over(self, report: SendersHeld) -> None:
        if report.member not in self.told:
            return
        self.told.discard(report.member)
        name = "this member" if report.member == self.context.me.id else self.log.name(report.member)
        text = "%s: senders no longer wait for %s, after %.0f s"
        self.log.say("detector", text, self.context.me.name, name, report.took_ns / 1e9)
