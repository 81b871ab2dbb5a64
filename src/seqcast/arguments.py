"""Checks of what callers of ``Group`` and ``join`` pass."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import Any

from seqcast.errors import ConfigError, UsageError
from seqcast.types import Member

NAME_BYTES_MAX = 128


def check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not name or len(name.encode()) > NAME_BYTES_MAX:
        raise ConfigError(f"{what}={name!r} must be text of 1 to {NAME_BYTES_MAX} bytes")
    if not name.isprintable() or '"' in name or "\\" in name:
        raise ConfigError(f"{what}={name!r} must be printable text without quotation marks and backslashes")


def nanoseconds(seconds: float) -> int:
    if not (type(seconds) is float or isinstance(seconds, Real)) or not seconds >= 0:
        raise UsageError(f"timeout={seconds!r} must be a number of seconds, 0 or more, or None for no limit")
    return int(seconds * 1e9) if seconds < 4e9 else 1 << 62


def id_of(to: Member) -> int:
    if not isinstance(to, Member):
        raise UsageError(f"to={to!r} must be a Member of group.view.members, or None for the group")
    return to.id


def listed(payloads: Iterable[Any]) -> list[Any]:
    """What the caller's iterator itself raises goes to the caller as it is."""
    if isinstance(payloads, list):
        return payloads
    if not isinstance(payloads, Iterable):
        raise UsageError(f"payloads={payloads!r} must be an iterable of messages; `send` takes a single one")
    return list(payloads)


def is_message(payload: Any) -> bool:
    try:
        return memoryview(payload).c_contiguous
    except (TypeError, BufferError):
        return False


def check_policy(policy: object) -> None:
    if policy is not None and not callable(policy):
        raise ConfigError(
            f"membership_policy={policy!r} must be a function of a MembershipChange that returns its members in order"
        )
