"""Files of identities: that of one process, and the list of those who may be members.

An identity file has one line ``ed25519 SECRET``: 32 random bytes in base64, from which the pair of keys follows. Nobody
but its owner may read it. A list has a line for each identity that may be a member::

    ed25519:PUBLIC NAMES [operator] [until=2027-01-31T12:00]

PUBLIC is the public half in base64, NAMES a pattern of the allowed names, as file names are matched
(``orders-*``, or ``*`` for all). Only an ``operator`` may unblock a minority. A line with ``until`` counts up to that
time, UTC. Lines that begin with ``#`` are comments. Nobody but its owner may write the list.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import NamedTuple

from seqcast.config.keys import (
    OWNER_ALONE,
    OWNER_WRITES,
    Guarded,
    Memory,
    decoded,
    lines_of,
    ordinary,
    secret_lines,
    worded,
    written,
)
from seqcast.errors import ConfigError
from seqcast.types import Secret

SEED_BYTES = 32
PUBLIC_BYTES = 32
LINES_MAX = 4096
LIST_BYTES_MAX = 1 << 20
KIND = "ed25519"
FOREVER = float("inf")
_MADE = "`seqcast keygen FILE --identity` makes one"
_HOW = f"lines are `{KIND}:PUBLIC NAMES [operator] [until=TIME]`"
_MAY_USE = "may use this file (mode {mode}): chmod 600 the file"
_MAY_WRITE = "may write this file (mode {mode}): chmod go-w the file"
_IDENTITY = Guarded("identity", 4096, "utf-8", OWNER_ALONE, _MAY_USE, "is too large", "is not text", _MADE)
_LIST = Guarded("authorized", LIST_BYTES_MAX, "utf-8", OWNER_WRITES, _MAY_WRITE, "is too large", "is not text", _HOW)


class Line(NamedTuple):
    """A line of a list.

    Args:
        public: the identity.
        names: pattern of the allowed names.
        operator: may unblock a minority.
        until_s: Unix time up to which the line counts.
    """

    public: bytes
    names: str
    operator: bool = False
    until_s: float = FOREVER


def described(public: bytes) -> str:
    """An identity as a list has it."""
    return f"{KIND}:{base64.b64encode(public).decode()}"


def make(path: str, seed: Secret) -> None:
    """Writes a new identity file, for its owner alone.

    Raises:
        OSError: it exists already, or cannot be written.
    """
    written(
        path,
        "# The identity of a seqcast process: whoever has this file can pass for that process.\n"
        f"{KIND} {base64.b64encode(seed).decode()}\n".encode(),
    )


def read_identity(path: str, memory: Memory = ordinary) -> memoryview:
    """The seed in an identity file.

    Args:
        memory: for its content, and for the seed.

    Raises:
        ConfigError: others may read the file, or it holds no identity.
    """
    lines = secret_lines(_IDENTITY, path, memory)
    kind, seed = worded(lines[0], memory) if len(lines) == 1 else ("", memoryview(b""))
    if kind != KIND or len(seed) != SEED_BYTES or len(set(seed)) < 8:
        raise ConfigError(f"identity={path!r} has no line `{KIND} SECRET`, with 32 random bytes in base64; {_MADE}")
    return seed


def read_list(path: str) -> tuple[Line, ...]:
    """The lines of a list.

    Raises:
        ConfigError: users other than its owner may write the file, or a line is malformed.
    """
    lines = lines_of(_LIST, path)
    if not 1 <= len(lines) <= LINES_MAX:
        raise ConfigError(f"authorized={path!r}: a list has 1 to {LINES_MAX} lines, this one {len(lines)}; {_HOW}")
    return tuple(_line(path, text) for text in lines)


def _line(path: str, text: str) -> Line:
    words = text.split()
    kind, _, public64 = words[0].partition(":")
    public = decoded(public64)
    if kind != KIND or len(public) != PUBLIC_BYTES or len(words) < 2 or words[1] == "operator" or "=" in words[1]:
        raise ConfigError(f"authorized={path!r}: {text!r} is not a line of a list: {_HOW}")
    operator, until = False, FOREVER
    for word in words[2:]:
        name, _, value = word.partition("=")
        if word == "operator":
            operator = True
        elif name == "until":
            until = _time(path, text, value)
        else:
            raise ConfigError(f"authorized={path!r}: {word!r} in {text!r} has no meaning: {_HOW}")
    return Line(public, words[1], operator, until)


def _time(path: str, text: str, value: str) -> float:
    try:
        at = datetime.fromisoformat(value)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ConfigError(
            f"authorized={path!r}: {value!r} in {text!r} is not a time: use until=2027-01-31 or until=2027-01-31T12:00 "
            "(UTC)"
        ) from None
