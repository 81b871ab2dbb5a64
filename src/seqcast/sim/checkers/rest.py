"""A group at rest, and a single message in such a group: traces that a run of faults and full windows must not leave
behind.

These are bounds of performance, in timers, far from the usual: safety and liveness do not see a timer that is not set,
an acknowledgement that is asked for in vain, or memory that is not given back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from seqcast.sim.wire import CONTROL, HEARTBEAT, NAK, PROBE

AT_REST = (HEARTBEAT, CONTROL, 10, 11, 12, 13)
"""Types of datagrams in a group in which nothing is sent: heartbeats, frames, pings, reports of consumption, each with
its answer. All others are for messages on their way."""
OTHERS_MAX = 4
"""Of them: the end of those in flight before the rest."""
HEARTBEATS_MAX = 1.5
"""The most heartbeats, as a multiple of those that the interval asks for: members show themselves to others at some
moments."""
FRAMES_PER_S = 60
"""Frames of each member: beacons, and standing ones."""
PROBES_MAX = 5
"""In a burst: a large group's acknowledgements take turns."""
SLABS_MAX = 4
"""Of each member, when nothing is on its way: far from one for each message."""


def check_rest(name: str, sent: Mapping[int, int], passed_s: float, heartbeats: float) -> Iterator[str]:
    """A member's datagrams while nobody had anything to send.

    Args:
        sent: datagrams by type.
        passed_s: seconds in which the datagrams were sent.
        heartbeats: those due in that time.
    """
    others = Counter({kind: count for kind, count in sent.items() if kind not in AT_REST and count})
    if sum(others.values()) > OTHERS_MAX:
        yield f"at rest: {name} sends {dict(others)} (number by type) though nobody sends a message"
    if sent.get(HEARTBEAT, 0) > HEARTBEATS_MAX * heartbeats + 3:
        yield f"at rest: {name} sends {sent[HEARTBEAT]} heartbeats in {passed_s:.1f} s"
    if sent.get(CONTROL, 0) > FRAMES_PER_S * passed_s:
        yield f"at rest: {name} sends {sent[CONTROL]} control frames in {passed_s:.1f} s"


def check_memory(name: str, counters: Mapping[str, int], unsent: int, deliverable: int) -> Iterator[str]:
    """Memory that a member holds when everything has been delivered and acknowledged."""
    if unsent or deliverable:
        yield f"at rest: {name} has {unsent} bytes to send and {deliverable} deliveries that nobody takes"
    if counters["slabs_in_use"] > SLABS_MAX:
        yield f"at rest: {name} keeps {counters['slabs_in_use']} slabs"


def check_streams(streams: Mapping[str, Sequence[tuple[int, int, int]]]) -> Iterator[str]:
    """The members of one view have received and delivered the same of each group stream, and know so."""
    for place, found in enumerate(zip(*streams.values(), strict=True)):
        if len({seqno for each in found for seqno in each}) > 1:
            told = dict(zip(streams, found, strict=True))
            yield f"at rest: of the stream of rank {place} members have delivered, received and know stable: {told}"


def check_probes(name: str, sent: Mapping[int, int], slow: bool) -> Iterator[str]:
    """A member's datagrams while messages come through, and none is lost or overtaken: each is acknowledged, with new
    credit, before its sender asks.

    Args:
        slow: a round trip takes longer than a sender waits.
    """
    if not slow and sent.get(PROBE, 0) > PROBES_MAX:
        yield f"needless: {name} asks {sent[PROBE]} times for acknowledgements, though nothing is lost"


def check_needless(name: str, sent: Mapping[int, int], repeats: int) -> Iterator[str]:
    """A member's datagrams while messages came one by one, and none was lost or overtaken.

    Args:
        repeats: packets that the member sent again.
    """
    if sent.get(NAK):
        yield f"needless: {name} requests packets {sent[NAK]} times, though none is lost"
    if repeats:
        yield f"needless: {name} sends {repeats} packets again, though none is lost"


def check_delays(delays: Mapping[str, float], most_s: float, event: str = "a message of") -> Iterator[str]:
    """How long single messages took to be delivered everywhere, or changes to show in all views, in s, by the member's
    name; infinite: they did not."""
    for name, delay in delays.items():
        if delay > most_s:
            took, most = f"{1e3 * delay:.1f} ms", f"{1e3 * most_s:.1f} ms"
            yield f"delay: {event} {name} in a quiet group takes {took}, and may take {most}"
