"""Checks of the arguments of ``join``, ``Config`` and the methods of ``Group``, and of the process that joins."""

from __future__ import annotations

import _thread
import json
import time
import types
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from seqcast.errors import ConfigError, UsageError
from seqcast.types import MEMBERS_MAX, Member, OrderPolicy

NAME_BYTES_MAX = 128
INFO_BYTES_MAX = 256
"""Limit of a member's info, as JSON: so small that a VIEW of 128 members, with their keys, is one datagram."""


def printable(text: str) -> str:
    """The text with unprintable characters, such as a terminal's escape codes, written as Python escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def check_name(what: str, name: object) -> None:
    # Lone surrogates stand for bytes of a command-line argument that are not UTF-8; they are not printable.
    if not isinstance(name, str) or not name or len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        raise ConfigError(f"{what}={name!r} must be text of 1 to {NAME_BYTES_MAX} bytes")
    if not name.isprintable() or '"' in name or "\\" in name:
        raise ConfigError(f"{what}={name!r} must be printable text without quotation marks and backslashes")


def as_about(info: Mapping[str, Any]) -> str:
    """The info of a member, as JSON; "": none.

    Raises:
        UsageError: the info is not a dict, JSON cannot express it, or the JSON is not printable or too long.
    """
    if not isinstance(info, Mapping) or not all(isinstance(key, str) for key in info):
        raise UsageError(f"info={info!r} must be a dict with text as keys, such as {{'role': 'primary'}}")
    try:
        about = json.dumps(dict(info), ensure_ascii=False, allow_nan=False, separators=(",", ":")) if info else ""
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"info={info!r} must have a form in JSON: {error}") from None
    if (size := len(about.encode("utf-8", "surrogatepass"))) > INFO_BYTES_MAX:
        raise UsageError(
            f"info= is {size} bytes as JSON, and at most {INFO_BYTES_MAX} are allowed, as each view carries those of "
            "all members: say there from which address the rest can be had"
        )
    if not about.isprintable():
        raise UsageError(f"info={info!r} must be printable text: commands show info on terminals")
    return about


def check_threads() -> None:
    """
    Raises:
        UsageError: gevent, eventlet or the like has put its own threads in the place of Python's. They take turns on
            one thread, which a wait of ours would occupy, so that nothing would ever end the wait.
    """
    start = _thread.start_new_thread
    if not isinstance(start, types.BuiltinFunctionType):
        library = start.__module__.partition(".")[0]
        raise UsageError(
            f"{library} has replaced Python's threads, and a member of a group needs real ones: leave them out of the "
            f"patches ({library}: thread=False), or run the member in a process of its own"
        )


def check_skip(order: str, state: object, *, ordered: bool) -> None:
    """
    Raises:
        ConfigError: with these arguments the group relies on each member getting all messages, so none may skip.
    """
    if ordered:
        raise ConfigError(f'slow="skip" needs order="fifo": with order={order!r} all members deliver the same messages')
    if state is not None:
        raise ConfigError('slow="skip" does not go with state=: a member that missed messages has another state')


def check_min_members(n: object) -> None:
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MEMBERS_MAX:
        raise ConfigError(f"min_members={n!r} must be a whole number from 1 to {MEMBERS_MAX}")


def nanoseconds(seconds: float, what: str = "timeout") -> int:
    if not (type(seconds) in (float, int) or isinstance(seconds, Real)) or not seconds >= 0:
        no_limit = ", or None for no limit" if what == "timeout" else ""
        raise UsageError(f"{what}={seconds!r} must be a number of seconds, 0 or more{no_limit}")
    return int(seconds * 1e9) if seconds < 4e9 else 1 << 62


def deadline_of(timeout: float | None) -> float | None:
    """The end of a wait that begins now, in monotonic seconds; None: there is none.

    Raises:
        UsageError: ``timeout`` is not seconds.
    """
    return None if timeout is None else time.monotonic() + nanoseconds(timeout) / 1e9


def left_until(deadline: float | None) -> float | None:
    """Seconds until a deadline of ``deadline_of``, 0 if it has passed; None: there is none."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def id_of(to: Member) -> int:
    if not isinstance(to, Member):
        raise UsageError(f"to={to!r} must be a Member of group.view.members, its name, or None for the group")
    if not (isinstance(to.id, int) and 0 < to.id < 1 << 64):
        raise UsageError(f"to={to!r} has an id that no member can have: use a member of group.view.members")
    return to.id


def as_list(payloads: Iterable[Any]) -> list[Any]:
    """The messages as a list. Exceptions of the caller's iterator reach the caller unchanged."""
    if isinstance(payloads, list):
        return payloads
    if not isinstance(payloads, Iterable):
        raise UsageError(f"payloads={payloads!r} must be an iterable of messages: use `send` for a single one")
    return list(payloads)


def check_limit(policy: OrderPolicy) -> None:
    limit = policy.limit_s
    if not isinstance(limit, Real) or isinstance(limit, bool) or not 1e-9 <= limit <= 1:
        raise ConfigError(f"limit_s={limit!r} of the order policy must be a number of seconds, from 1e-9 to 1")


def check_policy(policy: object) -> None:
    if policy is not None and not callable(policy):
        raise ConfigError(
            f"membership_policy={policy!r} must be a function from a MembershipChange to its members in order"
        )


def check_sequencer_policy(policy: object, order: str, *, any_member: bool) -> None:
    """``any_member``: in this order any member can be the sequencer."""
    if policy is None:
        return
    if not callable(policy):
        raise ConfigError(f"sequencer_policy={policy!r} must be a function from a view's members to one of them")
    if not any_member:
        raise ConfigError(
            f"sequencer_policy= needs an order in which any member can be the sequencer, such as 'total', not {order!r}"
        )
