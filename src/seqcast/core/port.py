"""The core's interface to the engine: its reports as inputs, and the methods that a step calls.

The core learns only from inputs and from return values of the port, so a recording of both replays to the same effects
without an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from seqcast.core.vocabulary import (
    CutReached,
    ForeignVersion,
    FrameReceived,
    LinksChanged,
    MemberAlive,
    MemberStarved,
    MemberSuspected,
    OtherKey,
    PacketsLost,
    PathsMeasured,
    Report,
    SecretWorn,
    Send,
    SendersHeld,
    SendsDrained,
    SlabsExhausted,
    SlowChanged,
    Stand,
    StrangerHeard,
    WayChanged,
)
from seqcast.types import OwnPackets

_REPORTS: dict[str, Callable[..., Report]] = {
    "control": lambda sender, address, _view, payload: FrameReceived(sender, address, payload),
    "outside": lambda sender, address, _view, payload: FrameReceived(sender, address, payload, outside=True),
    "suspect": MemberSuspected,
    "alive": MemberAlive,
    "links": LinksChanged,
    "way": WayChanged,
    "stranger": StrangerHeard,
    "lost": PacketsLost,
    "size": PathsMeasured,
    "starved": SlabsExhausted,
    "slow": MemberStarved,
    "too_slow": SlowChanged,
    "holdup": SendersHeld,
    "foreign": ForeignVersion,
    "cut_reached": CutReached,
    "drained": SendsDrained,
    "worn": SecretWorn,
}


def reports(events: Sequence[tuple[Any, ...]], words: Callable[[bytes], str] = bytes.hex) -> list[Report]:
    """The events of ``Engine.events`` as inputs of a step.

    Args:
        words: an address in words.
    """
    return [
        OtherKey(words(details[0]), *details[1:]) if kind == "key" else _REPORTS[kind](*details)
        for kind, *details in events
    ]


def transmit(engine: Transmitter, what: Send | Stand, counters: dict[str, int], now_ns: int) -> None:
    """Carries out a ``Send`` or ``Stand``. A frame that does not fit the engine's queue is repeated like any lost
    frame."""
    if isinstance(what, Send):
        taken = engine.control_send(what.payload, what.address, what.outside)
    else:
        taken = engine.stand(what.payload, what.every_ns, what.times, now_ns)
    if not taken:
        counters["frames_unsent"] += 1


class Transmitter(Protocol):
    """A runner's requirements on the engine for ``transmit``."""

    def control_send(self, payload: bytes, address: bytes = b"", outside: bool = False) -> bool: ...
    def stand(self, payload: bytes, every_ns: int, times: int, now_ns: int) -> bool: ...


class EnginePort(Protocol):
    """The methods of the engine that a step calls; ``_native/engine.pyi`` explains each. They answer at once, and
    none of them waits."""

    # Its knowledge.
    def doubted(self) -> list[int]: ...
    def links(self, unicast: bool = False) -> list[tuple[int, int]]: ...
    def too_slow(self) -> list[int]: ...
    def strangers(self, tag: int) -> int: ...
    def path_bytes(self) -> int: ...
    # Whom it pings at once.
    def greet(self, member: int, address: bytes) -> None: ...
    def beat(self, now_ns: int) -> None: ...
    def show(self, address: bytes) -> None: ...
    # The cut.
    def gate_close(self, unicasts: bool = False) -> int: ...
    def uncount(self, lost: Sequence[int]) -> None: ...
    def freeze(self, lost: Sequence[int], still: bool = False) -> None: ...
    def held(self, rank: int) -> tuple[int, list[tuple[int, int]]]: ...
    def cut(self, cut: Sequence[int], fetch: Sequence[tuple[int, int, int, int]]) -> None: ...
    def cut_reached(self) -> bool: ...
    def received_table(self) -> list[int]: ...
    # Reliability by gossip.
    def gossip_marks(self) -> list[tuple[int, int, int, int, int, int]]: ...
    def gossip_lacks(self, rank: int, first: int, last: int, most: int) -> list[tuple[int, int]]: ...
    def gossip_ask(self, rank: int, lo: int, hi: int, holder: int, now_ns: int) -> None: ...
    def gossip_vote(
        self, rank: int, delivered: int, received: int, consumed: int, window: int, claim: int, now_ns: int
    ) -> None: ...
    def gossip_stable(self, rank: int, seqno: int) -> None: ...
    def gossip_vouch(self, rank: int, now_ns: int) -> None: ...
    # Pauses, leaving, and the state for a joiner.
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def end_sends(self) -> None: ...
    def drained(self) -> bool: ...
    def unordered(self) -> int: ...
    def last_sent(self) -> int: ...
    def blocked(self) -> int: ...
    def queued(self) -> int: ...
    def state_want(self, sender: int) -> None: ...
    def state_void(self, sender: int) -> None: ...
    # Messages of this member.
    def own(self) -> OwnPackets: ...
    def own_messages(self, first: int, last: int, waiting: bool = False) -> list[int]: ...
    def unacknowledged(self) -> list[int]: ...
    def blocked_oldest(self) -> int: ...
    def blocked_end(self) -> int: ...
    # The view.
    def know(self, tag: int, secret: bytes, cipher: int) -> None: ...
    def mark(self, marker: int) -> None: ...
    def install(
        self,
        *,
        tag: int,
        ids: Sequence[int],
        addresses: Sequence[bytes],
        rank: int,
        mechanism: int,
        sequencer: int,
        window_bytes: int,
        forward_window_bytes: int,
        unicast_window_bytes: int,
        state_window_bytes: int,
        packet_bytes: int,
        base: Sequence[int],
        origin_base: Sequence[int],
        cut: Sequence[int] | None,
        marker: int,
        now_ns: int,
        apart: Sequence[bool] | None = None,
        fell: Sequence[bool] | None = None,
        share_bytes: int = 0,
        room_bytes: int = 0,
        safe: bool = False,
        path_bytes: int = 0,
    ) -> None: ...
    def close_view(self, cut: Sequence[int] | None, marker: int, fell: Sequence[bool] | None = None) -> None: ...
