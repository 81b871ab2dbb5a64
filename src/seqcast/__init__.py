"""Reliable, totally ordered multicast with agreed membership.

Each name is imported on its first use. A program that drops privileges (``setuid``, ``chroot``) before it joins should
run ``from seqcast import join`` first, so that the modules are loaded while they can still be read.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as `typing.TYPE_CHECKING`; `typing` takes longer to load than all else here
if TYPE_CHECKING:
    import seqcast.aio as aio
    import seqcast.blocks as blocks
    from seqcast._native.engine import Batch, Message
    from seqcast.api.group import Group, join
    from seqcast.api.receiving import Event
    from seqcast.blocks.replica import Replica, replicate
    from seqcast.config import Config
    from seqcast.crowd.handle import Crowd, CrowdHistory, CrowdLost, CrowdMessage, join_crowd
    from seqcast.crowd.settings import CrowdSettings
    from seqcast.embed import get_include
    from seqcast.errors import (
        ConfigError,
        JoinRefused,
        JoinTimeout,
        JournalWriteError,
        MachineError,
        NameTaken,
        NotInView,
        NotMember,
        NotReady,
        OtherRelease,
        RemoteProtocolError,
        SendTimeout,
        SendWouldBlock,
        SeqcastError,
        StableFailed,
        SuspendTimeout,
        Undecided,
        UsageError,
    )
    from seqcast.events import (
        Blocked,
        CoordinatorChanged,
        Excluded,
        InterfaceChanged,
        Lost,
        Rejoined,
        Skipped,
        Unblocked,
    )
    from seqcast.net.opening import ClippedBuffer
    from seqcast.net.state import DurableHandler, MergingHandler, StateHandler, SubgroupState
    from seqcast.signals import leave_on_signals
    from seqcast.types import (
        LATER,
        Marks,
        Member,
        MembershipChange,
        MembershipPolicy,
        MergeView,
        OrderPolicy,
        SequencerPolicy,
        Status,
        View,
        ViewId,
        WaitingPacket,
    )

__all__ = [
    "LATER",
    "Batch",
    "Blocked",
    "ClippedBuffer",
    "Config",
    "ConfigError",
    "CoordinatorChanged",
    "Crowd",
    "CrowdHistory",
    "CrowdLost",
    "CrowdMessage",
    "CrowdSettings",
    "DurableHandler",
    "Event",
    "Excluded",
    "Group",
    "InterfaceChanged",
    "JoinRefused",
    "JoinTimeout",
    "JournalWriteError",
    "Lost",
    "MachineError",
    "Marks",
    "Member",
    "MembershipChange",
    "MembershipPolicy",
    "MergeView",
    "MergingHandler",
    "Message",
    "NameTaken",
    "NotInView",
    "NotMember",
    "NotReady",
    "OrderPolicy",
    "OtherRelease",
    "Rejoined",
    "RemoteProtocolError",
    "Replica",
    "SendTimeout",
    "SendWouldBlock",
    "SeqcastError",
    "SequencerPolicy",
    "Skipped",
    "StableFailed",
    "StateHandler",
    "Status",
    "SubgroupState",
    "SuspendTimeout",
    "Unblocked",
    "Undecided",
    "UsageError",
    "View",
    "ViewId",
    "WaitingPacket",
    "aio",
    "blocks",
    "get_include",
    "join",
    "join_crowd",
    "leave_on_signals",
    "replicate",
]

_NAMES = {
    "seqcast._native.engine": "Batch Message",
    "seqcast.blocks.replica": "Replica replicate",
    "seqcast.config": "Config",
    "seqcast.crowd.settings": "CrowdSettings",
    "seqcast.crowd.handle": "Crowd CrowdHistory CrowdLost CrowdMessage join_crowd",
    "seqcast.embed": "get_include",
    "seqcast.errors": "ConfigError JoinRefused JoinTimeout JournalWriteError MachineError NameTaken "
    "NotInView NotMember NotReady OtherRelease RemoteProtocolError SendTimeout SendWouldBlock SeqcastError "
    "StableFailed SuspendTimeout Undecided UsageError",
    "seqcast.events": "Blocked CoordinatorChanged Excluded InterfaceChanged Lost Rejoined Skipped Unblocked",
    "seqcast.api.group": "Group join",
    "seqcast.api.receiving": "Event",
    "seqcast.net.opening": "ClippedBuffer",
    "seqcast.net.state": "DurableHandler MergingHandler StateHandler SubgroupState",
    "seqcast.signals": "leave_on_signals",
    "seqcast.types": (
        "LATER Marks Member MembershipChange MembershipPolicy MergeView OrderPolicy SequencerPolicy Status View ViewId "
        "WaitingPacket"
    ),
}
"""Where the names above come from. Each is imported on its first use: `import seqcast` takes a millisecond, so that a
command answers at once and a program can set itself up (signals, logging) before the rest is loaded."""
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = {"aio", "blocks", "config", "embed", "errors", "events", "types"}


if not TYPE_CHECKING:  # hidden from checkers, which would otherwise accept any name

    def __getattr__(name: str) -> object:
        import importlib

        if name in _MODULES:
            return importlib.import_module(f"seqcast.{name}")
        if name not in _PLACES:
            raise AttributeError(f"module 'seqcast' has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_PLACES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted(globals().keys() | set(__all__) | _MODULES)
