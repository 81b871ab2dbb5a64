"""Key files: how they are made and read, and the secrets derived from them.

A key file has a line ``ID SECRET`` for each key, at most four: a number below 32, by which members tell the keys apart,
and 32 random bytes in base64. The first one seals; a datagram that any of them sealed is opened. Lines that begin with
``#`` are comments. Nobody but its owner may read the file.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seqcast.errors import ConfigError
from seqcast.files import open_file

SECRET_BYTES = 32
ROOM = 40
"""Bytes by which sealing makes a datagram longer: ``SC_SEAL_ROOM`` of native/seal/seal.h."""
IDS = 32
KEYS_MAX = 4
FILE_BYTES_MAX = 4096
_MADE = "`seqcast keygen FILE` makes one"
OWNER_ALONE = stat.S_IRWXG | stat.S_IRWXO
OWNER_WRITES = stat.S_IWGRP | stat.S_IWOTH


class Guarded(NamedTuple):
    """A kind of files that only the owner may read, or write.

    Args:
        setting: that names the file.
        bytes_max: of its content.
        encoding: of its content.
        forbidden: bits that its mode must not have.
        others: the right that others have by those bits, and the remedy; ``{mode}`` stands for the mode.
        large: for a file that is too large.
        binary: for one that is no text.
        remedy: the end of each error.
    """

    setting: str
    bytes_max: int
    encoding: str
    forbidden: int
    others: str
    large: str
    binary: str
    remedy: str


_GUARDED = Guarded(
    "key",
    FILE_BYTES_MAX,
    "ascii",
    OWNER_ALONE,
    "may use this file (mode {mode}): chmod 600 the file, and if others may have read the key, make a new one",
    "is too large for a key file",
    "is no key file, but binary",
    _MADE,
)


@dataclass(frozen=True)
class Key:
    """The content of a key file. It does not show its secret.

    Args:
        number: the id of its line.
        secret: 32 bytes.
    """

    number: int
    secret: bytes = field(repr=False)


@dataclass(frozen=True)
class Seal:
    """The secrets with which an engine seals datagrams; see native/seal/seal.h.

    Args:
        ciphers: addresses of two C functions of each, sealing and opening, in the order of ``core.secrets.CIPHERS``; 0:
            this machine does not have the cipher.
        hash, random: addresses of C functions.
        aes: the processor has AES instructions.
        secrets: number and 32 bytes of each, for this cluster alone; the first one seals.
        keeps: keeps the functions in memory.
    """

    ciphers: tuple[tuple[int, int], ...]
    hash: int
    random: int
    secrets: tuple[tuple[int, bytes], ...] = field(repr=False)
    aes: bool = True
    keeps: Any = field(default=None, repr=False)


def cluster_secret(key: Key, cluster: str) -> bytes:
    """The sealing secret of one cluster: a secret that tells nothing about the key, or about another cluster's."""
    return hashlib.blake2b(
        cluster.encode(), digest_size=SECRET_BYTES, key=key.secret, person=b"seqcast cluster"
    ).digest()


def cookie_secrets(secrets: Sequence[tuple[int, bytes]]) -> tuple[bytes, ...]:
    """The secrets of a cluster's cookies: the first one makes those to give.

    Args:
        secrets: of a ``Seal``.
    """
    kind = b"seqcast cookie"
    return tuple(hashlib.blake2b(digest_size=SECRET_BYTES, key=each, person=kind).digest() for _, each in secrets)


def line(number: int, secret: bytes) -> str:
    """A key as a line of a file."""
    return f"{number} {base64.b64encode(secret).decode()}"


def make(path: str) -> int:
    """Writes a new key file, for its owner alone; returns the id of the key.

    Raises:
        OSError: it exists already, or cannot be written.
    """
    number = secrets.randbelow(IDS)
    text = (
        "# The key of a seqcast group: whoever has it can join, and read and send what members do.\n"
        f"{line(number, secrets.token_bytes(SECRET_BYTES))}\n"
    )
    written(path, text)
    return number


def written(path: str, text: str) -> None:
    """Writes a new file with a secret, for its owner alone.

    Raises:
        OSError: it exists already, or cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(path)
        raise


def add(path: str) -> int:
    """Adds a new key to a key file, as the last one; returns its id.

    Raises:
        ConfigError: it is no key file, or has no room for another key.
        OSError: it cannot be written.
    """
    known = {key.number for key in read(path)}
    if len(known) == KEYS_MAX:
        raise ConfigError(f"{path!r} has {KEYS_MAX} keys already: remove the line of one that no member seals with")
    number = secrets.choice([each for each in range(IDS) if each not in known])
    with open(os.open(path, os.O_WRONLY | os.O_APPEND), "w", encoding="ascii") as file:
        file.write(f"{line(number, secrets.token_bytes(SECRET_BYTES))}\n")
        file.flush()
        os.fsync(file.fileno())
    return number


def read(path: str) -> tuple[Key, ...]:
    """The keys in a file.

    Raises:
        ConfigError: others may read the file, or it holds no key.
    """
    if _is_secret(path):
        raise ConfigError(
            "key= is the name of a file, and this looks like a key itself, which other programs and users can see in "
            "the environment and among arguments: make a new one with `seqcast keygen FILE`, and give the file's name"
        )
    lines = lines_of(_GUARDED, path)
    if not 1 <= len(lines) <= KEYS_MAX:
        raise ConfigError(f"key={path!r}: a key file has 1 to {KEYS_MAX} keys, a line each; this one has {len(lines)}")
    found = tuple(_key(path, text) for text in lines)
    if len({key.number for key in found}) < len(found):
        raise ConfigError(f"key={path!r}: two keys have one number; `seqcast keygen --add FILE` gives each its own")
    return found


def _key(path: str, text: str) -> Key:
    number, _, secret64 = text.partition(" ")
    secret = decoded(secret64.strip())
    if not (number.isascii() and number.isdigit() and len(number) < 3 and int(number) < IDS) or not secret:
        raise ConfigError(f"key={path!r}: a line is not `ID SECRET`, a number below {IDS} and base64; {_MADE}")
    if len(secret) != SECRET_BYTES:
        raise ConfigError(f"key={path!r}: a key has {SECRET_BYTES} bytes, this one {len(secret)}; {_MADE}")
    if len(set(secret)) < 8:
        raise ConfigError(f"key={path!r}: its bytes are not random; {_MADE}")
    return Key(int(number), secret)


def _is_secret(text: str) -> bool:
    """Could this be a key instead of a file's name?"""
    last = text.strip().rpartition(" ")[2]
    if os.path.exists(text) or len(last) < 40:
        return False
    if len(last) == 2 * SECRET_BYTES and all(each in "0123456789abcdefABCDEF" for each in last):
        return True
    try:
        return len(base64.b64decode(last, validate=True)) == SECRET_BYTES
    except (binascii.Error, ValueError):
        return False


def lines_of(kind: Guarded, path: str) -> list[str]:
    """The lines of a file, without comments and empty ones.

    Raises:
        ConfigError: others have a right that is the owner's alone, or the file cannot be read, or is no text.
    """
    named = f"{kind.setting}={path!r}"
    try:
        with open_file(path, links=True) as file:
            mode = os.fstat(file.fileno()).st_mode
            if sys.platform != "win32" and mode & kind.forbidden:
                others = kind.others.format(mode=f"{stat.S_IMODE(mode):04o}")
                raise ConfigError(f"{named}: others than its owner {others}")
            content = file.read(kind.bytes_max + 1)
    except OSError as error:
        raise ConfigError(f"{named} cannot be read: {error.strerror}; {kind.remedy}") from None
    if len(content) > kind.bytes_max:
        raise ConfigError(f"{named} {kind.large}; {kind.remedy}")
    try:
        lines = content.decode(kind.encoding).splitlines()
    except UnicodeDecodeError:
        raise ConfigError(f"{named} {kind.binary}; {kind.remedy}") from None
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def decoded(text: str) -> bytes:
    """Bytes from base64; empty for a text that is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
