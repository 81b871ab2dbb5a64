"""Checks of what callers of ``Group``, ``join`` and ``Config`` pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from numbers import Real
from pathlib import Path
from typing import Any

from seqcast.errors import ConfigError, UsageError
from seqcast.types import Member

NAME_BYTES_MAX = 128
MEMBERS_MAX = 128
"""A view holds no more: ``policy.frames.MEMBERS_MAX``, which takes long to load where only arguments are checked."""


def printable(text: str) -> str:
    """The text with what is not printable, such as escape codes that a terminal obeys, written as Python escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def check_name(what: str, name: object) -> None:
    # Lone surrogates stand for what an argument of a command had that is no UTF-8; they are refused as not printable.
    if not isinstance(name, str) or not name or len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        raise ConfigError(f"{what}={name!r} must be text of 1 to {NAME_BYTES_MAX} bytes")
    if not name.isprintable() or '"' in name or "\\" in name:
        raise ConfigError(f"{what}={name!r} must be printable text without quotation marks and backslashes")


def check_min_members(n: object) -> None:
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MEMBERS_MAX:
        raise ConfigError(f"min_members={n!r} must be a whole number from 1 to {MEMBERS_MAX}")


def nanoseconds(seconds: float) -> int:
    if not (type(seconds) is float or isinstance(seconds, Real)) or not seconds >= 0:
        raise UsageError(f"timeout={seconds!r} must be a number of seconds, 0 or more, or None for no limit")
    return int(seconds * 1e9) if seconds < 4e9 else 1 << 62


def id_of(to: Member) -> int:
    if not isinstance(to, Member):
        raise UsageError(f"to={to!r} must be a Member of group.view.members, or None for the group")
    if not (isinstance(to.id, int) and 0 < to.id < 1 << 64):
        raise UsageError(f"to={to!r} has an id that no member has: take one of group.view.members")
    return to.id


def listed(payloads: Iterable[Any]) -> list[Any]:
    """What the caller's iterator itself raises goes to the caller as it is."""
    if isinstance(payloads, list):
        return payloads
    if not isinstance(payloads, Iterable):
        raise UsageError(f"payloads={payloads!r} must be an iterable of messages; `send` takes a single one")
    return list(payloads)


def check_policy(policy: object) -> None:
    if policy is not None and not callable(policy):
        raise ConfigError(
            f"membership_policy={policy!r} must be a function of a MembershipChange that returns its members in order"
        )


def checked(field: dataclasses.Field[Any], kind: type, value: Any) -> Any:
    """The value in its field's type, within its bounds."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is str and isinstance(value, Path):
        value = str(value)
    if kind is str and value is None:
        value = ""
    if type(value) is not kind:
        names = {str: "text", int: "a whole number", float: "a number", bool: "True or False"}
        raise ConfigError(f"{field.name}={value!r} must be {names[kind]}")
    low, high, among = (field.metadata[key] for key in ("low", "high", "among"))
    if among and value not in among:
        raise ConfigError(f"{field.name}={value!r} must be one of {', '.join(map(repr, among))}")
    if (low is not None and not value >= low) or (high is not None and not value <= high):
        raise ConfigError(f"{field.name}={value!r} must be from {low} to {high} {field.metadata['unit']}".rstrip())
    return value


def parsed(variable: str, kind: type, text: str) -> Any:
    """The text of an environment variable as a value of ``kind``."""
    if kind is str:
        return text
    try:
        if kind is bool:
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        names = {int: "a whole number", float: "a number", bool: "true or false"}
        raise ConfigError(f"{variable}={text!r} must be {names[kind]}") from None
