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
import binascii
import os
import stat
import sys
from datetime import UTC, datetime
from typing import NamedTuple

from seqcast.config.keys import written
from seqcast.errors import ConfigError
from seqcast.files import open_file

SEED_BYTES = 32
PUBLIC_BYTES = 32
LINES_MAX = 4096
LIST_BYTES_MAX = 1 << 20
KIND = "ed25519"
FOREVER = float("inf")
_MADE = "`seqcast keygen FILE --identity` makes one"


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


def make(path: str, seed: bytes) -> None:
    """Writes a new identity file, for its owner alone.

    Raises:
        OSError: it exists already, or cannot be written.
    """
    written(
        path,
        "# The identity of a seqcast process: whoever has it can be taken for that process.\n"
        f"{KIND} {base64.b64encode(seed).decode()}\n",
    )


def read_identity(path: str) -> bytes:
    """The seed in an identity file.

    Raises:
        ConfigError: others may read the file, or it holds no identity.
    """
    lines = _lines("identity", path, 4096, stat.S_IRWXG | stat.S_IRWXO, "use", _MADE)
    kind, _, seed64 = lines[0].partition(" ") if len(lines) == 1 else ("", "", "")
    seed = _decoded(seed64.strip())
    if kind != KIND or len(seed) != SEED_BYTES or len(set(seed)) < 8:
        raise ConfigError(f"identity={path!r} has no line `{KIND} SECRET`, with 32 random bytes in base64; {_MADE}")
    return seed


def read_list(path: str) -> tuple[Line, ...]:
    """The lines of a list.

    Raises:
        ConfigError: others than its owner may write the file, or a line is none.
    """
    how = f"lines are `{KIND}:PUBLIC NAMES [operator] [until=TIME]`"
    lines = _lines("authorized", path, LIST_BYTES_MAX, stat.S_IWGRP | stat.S_IWOTH, "write", how)
    if not 1 <= len(lines) <= LINES_MAX:
        raise ConfigError(f"authorized={path!r}: a list has 1 to {LINES_MAX} lines, this one {len(lines)}; {how}")
    return tuple(_line(path, text, how) for text in lines)


def _line(path: str, text: str, how: str) -> Line:
    words = text.split()
    kind, _, public64 = words[0].partition(":")
    public = _decoded(public64)
    if kind != KIND or len(public) != PUBLIC_BYTES or len(words) < 2 or words[1] == "operator" or "=" in words[1]:
        raise ConfigError(f"authorized={path!r}: {text!r} is no line of a list: {how}")
    operator, until = False, FOREVER
    for word in words[2:]:
        name, _, value = word.partition("=")
        if word == "operator":
            operator = True
        elif name == "until":
            until = _time(path, text, value)
        else:
            raise ConfigError(f"authorized={path!r}: {word!r} in {text!r} has no meaning: {how}")
    return Line(public, words[1], operator, until)


def _time(path: str, text: str, value: str) -> float:
    try:
        at = datetime.fromisoformat(value)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ConfigError(
            f"authorized={path!r}: {value!r} in {text!r} is no time: write until=2027-01-31 or until=2027-01-31T12:00 "
            "(UTC)"
        ) from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _lines(setting: str, path: str, most: int, forbidden: int, verb: str, how: str) -> list[str]:
    """The lines of a file, without comments."""
    try:
        with open_file(path, links=True) as file:
            mode = os.fstat(file.fileno()).st_mode
            if sys.platform != "win32" and mode & forbidden:
                raise ConfigError(
                    f"{setting}={path!r}: others than its owner may {verb} this file (mode {stat.S_IMODE(mode):04o}): "
                    f"chmod {'600' if verb == 'use' else 'go-w'} the file"
                )
            content = file.read(most + 1)
    except OSError as error:
        raise ConfigError(f"{setting}={path!r} cannot be read: {error.strerror}; {how}") from None
    if len(content) > most:
        raise ConfigError(f"{setting}={path!r} is too large; {how}")
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ConfigError(f"{setting}={path!r} is no text; {how}") from None
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
