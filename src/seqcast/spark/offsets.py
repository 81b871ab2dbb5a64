"""Offsets as options give them: JSON, as the progress of a query prints it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from seqcast.config.check import closest
from seqcast.errors import UsageError

Check = Callable[[Any], bool]


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{16}", value) is not None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _is_view(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\d+@[0-9a-f]{16}\.\d+\.[0-9a-f]{16}", value) is not None


def _is_listed(*checks: Check, optional: int = 0) -> Check:
    """A list of lists with these fields; the last ``optional`` ones may be missing."""

    def is_one(value: Any) -> bool:
        if not isinstance(value, list) or not len(checks) - optional <= len(value) <= len(checks):
            return False
        return all(check(each) for check, each in zip(checks, value, strict=False))

    return lambda value: isinstance(value, list) and all(map(is_one, value))


def _is_merged(value: Any) -> bool:
    checks = {"into": _is_id, "view": _is_view, "done": _is_count, "parts": _PARTS}
    return isinstance(value, dict) and "into" in value and all(
        name in checks and checks[name](each) for name, each in value.items()
    )  # fmt: skip


_PARTS = _is_listed(_is_id, _is_id, _is_id, _is_count, _is_count)
FIELDS: Mapping[str, Check] = {
    "member": _is_id,
    "idx": _is_count,
    "view": _is_view,
    "global_seqno": _is_count,
    "stable": _is_count,
    "also": _is_listed(_is_view, _is_count, _is_count, optional=1),
    "merged": _is_merged,
    "left": _is_listed(_is_id, _is_id, _is_count),
    "began": _is_view,
}
"""Fields of an offset, each with the rule for its value."""
REPORTED = "behind"
"""A field of the latest offset in a progress, and no part of the offset."""


def read_offset(option: str, text: str, others: str = "") -> dict[str, Any]:
    """
    Args:
        option: the one that gives the offset.
        others: further allowed values, for the error.

    Raises:
        UsageError: the value is not an offset, or one of another version.
    """
    try:
        offset = json.loads(text)
    except (ValueError, RecursionError):
        offset = None
    if not isinstance(offset, dict):
        raise UsageError(f"{option}={text!r}: give {others}an offset as a query's progress prints it (endOffset), JSON")
    offset.pop(REPORTED, None)
    for name, value in offset.items():
        if name not in FIELDS:
            close = closest(name, list(FIELDS))
            hint = f"did you mean {close}?" if close else "another version of seqcast wrote it, so use that one"
            raise UsageError(f"{option}: an offset has no field {name!r}: {hint}")
        if not FIELDS[name](value):
            raise UsageError(f"{option}: {name} cannot be {json.dumps(value)[:80]}: give the offset as printed")
    for name in ("member", "idx"):
        if name not in offset:
            raise UsageError(f"{option}: the offset has no {name}: give the offset as printed (endOffset)")
    if ("view" in offset) != ("global_seqno" in offset):
        raise UsageError(f"{option}: the offset has one of view and global_seqno: give the offset as printed")
    return offset
