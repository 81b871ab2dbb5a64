"""The traits of all frames of one kind, beside their fields: they stand with the frame's class.

Which machine takes a frame stands in ``core/router.py``: machines know frames, so frames that knew their machines would
make a circle. A frame without a route fails a test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T", bound=type[Any])


class Traits(NamedTuple):
    kind: str
    """The name on the wire. Empty: not sent as such."""
    part: str
    """The part of the log in which these frames appear: for debugging that part."""
    outside: bool
    """This frame travels between processes outside a view, or in different views. With a key the frame is sealed with
    the secret of the key's file, and all others with that of the view."""
    to_one: bool
    """An answer to one member, and so never sent to all."""
    signed: bool
    """If members have identities, the sender's signature precedes such a frame; see ``core/identities.py``.
    (INSTALLED has none, as it may come from a member whose line is gone.)"""


TRAITS: dict[type[Any], Traits] = {}


def control(
    kind: str, part: str = "membership", *, outside: bool = False, to_one: bool = False, signed: bool = False
) -> Callable[[T], T]:
    """A class of control frames."""

    def note(frame: T) -> T:
        TRAITS[frame] = Traits(kind, part, outside, to_one, signed)
        return frame

    return note
