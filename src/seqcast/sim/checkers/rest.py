"""A group at rest, and a single message in such a group: traces that a run of faults and full windows must not leave
behind.

These are bounds of performance, in timers, far from the usual: safety and liveness do not see a timer that is not set,
an acknowledgement that is asked for in vain, or memory that is not given back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

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
WAKES_MAX = 3
"""The most times that timers wake a member, as a multiple of its heartbeats."""
PROBES_MAX = 5
"""In a burst: a large group's acknowledgements take turns."""
SLABS_MAX = 4
"""Of each member, when nothing is on its way: far from one for each message."""
RESTING: Mapping[str, tuple[str, ...]] = {
    "Lifecycle": ("IN",),
    "Blocker": ("IDLE",),
    "PauseMember": ("OPEN",),
    "PauseOwner": ("IDLE",),
    "Participant": ("OPEN",),
    "Initiator": ("IDLE",),
    "Merger": ("APART",),
    "StateTaker": ("HELD", "OUT"),
    "Informer": ("SAID",),
}
"""By machine of the control plane: its states when there is nothing to do."""
GROW_AT_REST = frozenset(
    "datagrams_received datagrams_sent bytes_received bytes_sent heartbeats_sent pings_sent drop_repeated "
    "asks_sent taken_sent opened_other callbacks_late frames_received frames_sent".split()
)
"""Counters that grow while nobody sends a message."""
GROW_IN_FAULTS = frozenset(
    "packets_duplicate pieces_dropped gaps_full doubts vouched ports_refused suspicions late unheard_by_others "
    "slabs_exhausted retransmit_missing blocked_queue_full blocked_queue_lost frames_bad frames_unsent "
    "frames_unproven gossips_forged members_lost members_slow joiners_declined merges_unheard links_cut".split()
)
"""Counters, beside those of dropped datagrams, that stay as they are while all is right."""
FRAMES_AT_REST = frozenset({"Ask", "Beacon", "Told"})
"""Control frames, beside standing ones, that members send when there is nothing to do."""


def check_rest(
    name: str, sent: Mapping[int, int], passed_s: float, heartbeats: float, speaks: bool = True
) -> Iterator[str]:
    """A member's datagrams while nobody had anything to send.

    Args:
        sent: datagrams by type.
        passed_s: seconds in which the datagrams were sent.
        heartbeats: those due in that time.
        speaks: the member shows its view to others.
    """
    others = Counter({kind: count for kind, count in sent.items() if kind not in AT_REST and count})
    if sum(others.values()) > OTHERS_MAX:
        yield f"at rest: {name} sends {dict(others)} (number by type) though nobody sends a message"
    if sent.get(HEARTBEAT, 0) > HEARTBEATS_MAX * heartbeats + 3:
        yield f"at rest: {name} sends {sent[HEARTBEAT]} heartbeats in {passed_s:.1f} s"
    if sent.get(CONTROL, 0) > (FRAMES_PER_S * passed_s if speaks else 0):
        yield f"at rest: {name} sends {sent[CONTROL]} control frames in {passed_s:.1f} s"


def check_machines(name: str, states: Mapping[str, str], timers: Iterable[str]) -> Iterator[str]:
    """A member's control plane when there is nothing to do.

    Args:
        states: of its machines, by their names.
        timers: machines of which a timer runs, other than those that never stop.
    """
    for machine, state in states.items():
        if state not in RESTING[machine]:
            yield f"at rest: {machine} of {name} is {state}"
    for machine in timers:
        yield f"at rest: a timer of {machine} of {name} runs"


def check_counters(name: str, grown: Mapping[str, int]) -> Iterator[str]:
    """By how much a member's counters have grown while nobody sent a message."""
    others = {counter: more for counter, more in grown.items() if more and counter not in GROW_AT_REST}
    if others:
        yield f"at rest: {name} counts {others}"


def check_troubles(name: str, grown: Mapping[str, int]) -> Iterator[str]:
    """By how much a member's counters have grown while all was right."""
    troubles = {counter: more for counter, more in grown.items() if more and is_trouble(counter)}
    if troubles:
        yield f"needless: {name} counts {troubles}, though all is right"


def is_trouble(counter: str) -> bool:
    """Does this counter grow if something went wrong, and only then?"""
    return counter in GROW_IN_FAULTS or (counter.startswith("drop_") and counter not in GROW_AT_REST)


def check_frames(name: str, sent: Mapping[str, int]) -> Iterator[str]:
    """A member's control frames, by class, while there was nothing to do; without standing ones."""
    others = {kind: count for kind, count in sent.items() if count and kind not in FRAMES_AT_REST}
    if others:
        yield f"at rest: {name} sends {others} (frames by kind) though there is nothing to do"


def check_wakes(name: str, wakes: int, heartbeats: float) -> Iterator[str]:
    """How often a member's timers have woken it while nobody had anything to send.

    Args:
        heartbeats: those due in that time.
    """
    if wakes > WAKES_MAX * heartbeats + 20:
        yield f"at rest: timers wake {name} {wakes} times"


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
