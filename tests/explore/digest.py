"""The canonical digest of a world: worlds with one digest have one future, and one past for the checkers.

A member's state is read from its objects: endpoint, application and record, field by field. Of its compiled engine the
calls that change the policy are remembered instead, since they and its datagrams determine its state. Times count from
now.
"""

from __future__ import annotations

import functools
import hashlib
import random
from collections import deque
from collections.abc import Iterator
from enum import Enum
from types import BuiltinFunctionType, BuiltinMethodType, FunctionType, MethodType
from typing import Any

from seqcast._native.engine import Engine
from seqcast.sim.wire import CONTROL, kind

NEAR_NS = 1 << 37
"""Integers this close to a member's clock are times (two minutes): clocks begin at random, so nothing else is near."""
PASSED_OVER = {
    *("counters", "edges", "lines", "paths", "write"),
    *("world", "clock", "machine", "options", "settings", "cluster", "endpoint_settings"),
}
"""Fields that decide nothing: counters, coverage and lines for people; and those that are the same in all states."""


class Remembering(Engine):
    """An engine with a digest of all its changes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.past = b""
        self.heard = 0

    def remember(self, *what: Any) -> None:
        """A change, after the earlier ones."""
        self.past = hashlib.blake2b(self.past + repr(what).encode(), digest_size=8).digest()

    def receive(self, buffer: bytes, address: bytes, now_ns: int, segment: int = 0) -> Any:
        if kind(buffer) == CONTROL:  # a sign of life, in whatever order several come at one moment
            sign = hashlib.blake2b(repr((address, now_ns)).encode(), digest_size=8).digest()
            self.heard ^= int.from_bytes(sign, "big")
        else:
            self.remember("receive", buffer, address, now_ns, segment)
        return super().receive(buffer, address, now_ns, segment)


def _remembered(name: str) -> Any:
    call = getattr(Engine, name)

    @functools.wraps(call)
    def remembered(self: Remembering, *args: Any, **kwargs: Any) -> Any:
        self.remember(name, args, sorted(kwargs.items()))
        return call(self, *args, **kwargs)

    return remembered


for _name in (
    *("gate_close", "uncount", "freeze", "cut", "pause", "resume", "end_sends", "state_want", "state_void", "mark"),
    *("install", "close_view", "send", "refused", "greet", "beat", "decide"),
):
    setattr(Remembering, _name, _remembered(_name))


class Walk:
    """One look at the objects of one member."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.seen: dict[int, int] = {}
        self.parts: list[str] = []

    def add(self, value: Any) -> None:
        """Appends the digest of ``value``."""
        kind = type(value)
        if kind is int:
            self.parts.append(f"@{value - self.now}" if abs(value - self.now) < NEAR_NS else str(value))
        elif value is None or kind in (bool, str, bytes, float):
            self.parts.append(repr(value))
        elif isinstance(value, Enum):
            self.parts.append(str(value))
        elif id(value) in self.seen:
            self.parts.append(f"#{self.seen[id(value)]}")
        else:
            self.seen[id(value)] = len(self.seen)
            self._add_object(value)

    def _add_object(self, value: Any) -> None:
        self.parts.append(type(value).__name__)
        if isinstance(value, (Engine, type)):
            return
        if isinstance(value, random.Random):
            self.parts.append(str(hash(value.getstate())))
        elif isinstance(value, (FunctionType, BuiltinFunctionType, BuiltinMethodType)):
            self.parts.append(value.__qualname__)
        elif isinstance(value, MethodType):
            self.parts.append(value.__qualname__)
            self.add(value.__self__)
        elif isinstance(value, functools.partial):
            self._all((value.func, *value.args))
        elif isinstance(value, dict):
            self._all(each for pair in value.items() for each in pair)
        elif isinstance(value, (set, frozenset)):
            self._all(sorted(value, key=repr))
        elif isinstance(value, (list, tuple, deque)):
            self._all(value)
        else:
            for name, each in fields(value):
                if name not in PASSED_OVER:
                    self.parts.append(name)
                    self.add(each)

    def _all(self, values: Any) -> None:
        self.parts.append("(")
        for each in values:
            self.add(each)
        self.parts.append(")")


def fields(value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of an object, those in slots too."""
    yield from sorted(getattr(value, "__dict__", {}).items())
    for base in type(value).__mro__:
        for name in base.__dict__.get("__slots__", ()):
            if name != "__dict__" and hasattr(value, name):
                yield name, getattr(value, name)
