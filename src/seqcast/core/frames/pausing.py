"""The frames of a pause of the group."""

from __future__ import annotations

from dataclasses import dataclass

from seqcast.core.frames.fields import Count, Id, Phase, Seqnos
from seqcast.core.frames.traits import control


@control("suspend", "flush")
@dataclass(frozen=True, slots=True)
class Suspend:
    """Pause owner to all: run your callback, stop sending, or fetch everything up to the cut. Renews the lease."""

    view: Id
    pause: Count
    repeat: Count
    phase: Phase
    cut: Seqnos


@control("suspended", "flush", to_one=True)
@dataclass(frozen=True, slots=True)
class Suspended:
    """Member to pause owner: acknowledges this repeat of SUSPEND; after "stop": the packets that I hold, by rank."""

    view: Id
    pause: Count
    repeat: Count
    phase: Phase
    held: Seqnos


@control("resume", "flush")
@dataclass(frozen=True, slots=True)
class Resume:
    """Pause owner to all: resume. Repeated until all have acknowledged."""

    view: Id
    pause: Count


@control("resumed", "flush", to_one=True)
@dataclass(frozen=True, slots=True)
class Resumed:
    """Member to pause owner: I have resumed, as you said, by myself, or because a view change begins."""

    view: Id
    pause: Count


Pausing = Suspend | Suspended | Resume | Resumed
