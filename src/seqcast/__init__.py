"""Reliable, totally ordered multicast with agreed membership."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seqcast._native.engine import Batch, Message
from seqcast.config import Config
from seqcast.errors import (
    ConfigError,
    JoinRefused,
    JoinTimeout,
    JournalWriteError,
    NameTaken,
    NotMember,
    RemoteProtocolError,
    SendTimeout,
    SeqcastError,
    SuspendTimeout,
    UsageError,
)
from seqcast.events import Blocked, Excluded, Lost, Unblocked
from seqcast.group import Event, Group, join
from seqcast.net.host import ClippedBuffer
from seqcast.net.state import StateHandler
from seqcast.signals import leave_on_signals
from seqcast.types import Member, MembershipChange, MembershipPolicy, MergeView, View, ViewId

__all__ = [
    "Batch",
    "Blocked",
    "ClippedBuffer",
    "Config",
    "ConfigError",
    "Event",
    "Excluded",
    "Group",
    "JoinRefused",
    "JoinTimeout",
    "JournalWriteError",
    "Lost",
    "Member",
    "MembershipChange",
    "MembershipPolicy",
    "MergeView",
    "Message",
    "NameTaken",
    "NotMember",
    "RemoteProtocolError",
    "SendTimeout",
    "SeqcastError",
    "StateHandler",
    "SuspendTimeout",
    "Unblocked",
    "UsageError",
    "View",
    "ViewId",
    "aio",
    "join",
    "leave_on_signals",
]

if TYPE_CHECKING:
    import seqcast.aio as aio


def __getattr__(name: str) -> Any:
    """``seqcast.aio``, on its first use: asyncio takes time to import."""
    if name == "aio":
        import importlib

        return importlib.import_module("seqcast.aio")
    raise AttributeError(f"module 'seqcast' has no attribute {name!r}")
