"""Key files: how they are made and read, and the secrets derived from them.

A key file has a line ``ID SECRET`` for each key, at most four: a number below 32, by which members tell the keys apart,
and 32 random bytes in base64. A member seals with the first one that all members of its view have, too
(``core/keys.py``), and opens a datagram that any of them sealed. Lines that begin with ``#`` are comments. Nobody but
its owner may read the file.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seqcast.errors import ConfigError
from seqcast.files import open_file
from seqcast.types import Secret

SECRET_BYTES = 32
ROOM = 40
"""Bytes by which sealing makes a datagram longer: ``SC_SEAL_ROOM`` of native/seal/seal.h."""
IDS = 32
KEYS_MAX = 4
FILE_BYTES_MAX = 4096
_MADE = "`seqcast keygen FILE` makes one"
Memory = Callable[[int], memoryview]
"""A buffer of zeros, of that length, for a secret. Members have such memory (``_native.engine.locked``)."""
Hash = Callable[[Secret, bytes, bytes], Secret]
"""BLAKE2b of 32 bytes: its key, its input, and its purpose. Members have one whose result is in such memory, too."""
OWNER_ALONE = stat.S_IRWXG | stat.S_IRWXO
OWNER_WRITES = stat.S_IWGRP | stat.S_IWOTH


class Guarded(NamedTuple):
    """A kind of files that only the owner may read, or write.

    Args:
        setting: the one that names the file.
        bytes_max: the most bytes of its content.
        encoding: of its content.
        forbidden: bits that its mode must not have.
        others: the right that others have by those bits, and the remedy; ``{mode}`` stands for the mode.
        large: for a file that is too large.
        binary: for one that is not text.
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
    "is a binary file, not a key file",
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
    secret: Secret = field(repr=False)


@dataclass(frozen=True)
class Seal:
    """The secrets with which an engine seals datagrams; see native/seal/seal.h.

    Args:
        ciphers: addresses of two C functions of each, sealing and opening, in the order of ``core.secrets.CIPHERS``; 0:
            this machine does not have the cipher.
        hash, random: addresses of C functions.
        aes: the processor has AES instructions.
        secrets: number and 32 bytes of each, for this cluster alone; the first one seals to begin with.
        keeps: keeps the functions in memory.
    """

    ciphers: tuple[tuple[int, int], ...]
    hash: int
    random: int
    secrets: tuple[tuple[int, Secret], ...] = field(repr=False)
    aes: bool = True
    keeps: Any = field(default=None, repr=False)


def ordinary(n: int) -> memoryview:
    """Ordinary ``Memory``."""
    return memoryview(bytearray(n))


def hashed(key: Secret, said: bytes, person: bytes) -> bytes:
    """``Hash`` in ordinary memory."""
    return hashlib.blake2b(said, digest_size=SECRET_BYTES, key=key, person=person).digest()


def cluster_secret(key: Key, cluster: str, by: Hash = hashed) -> Secret:
    """The sealing secret of one cluster: a secret that tells nothing about the key, or about another cluster's."""
    return by(key.secret, cluster.encode(), b"seqcast cluster")


def key_parts(secrets: Sequence[tuple[int, Secret]], by: Hash = hashed) -> Iterator[tuple[int, Secret, Secret]]:
    """For each key: its id, by which members tell each other which keys they have (the number, and a part of a digest);
    its secret; and that of the cluster's cookies.

    Args:
        secrets: of a ``Seal``.
    """
    for number, secret in secrets:
        part = int.from_bytes(by(secret, b"", b"seqcast key id")[:2], "little") >> 5
        yield number + IDS * part, secret, by(secret, b"", b"seqcast cookie")


def line(number: int, secret: Secret) -> str:
    """A key as a line of a file."""
    return f"{number} {base64.b64encode(secret).decode()}"


def make(path: str) -> int:
    """Writes a new key file, for its owner alone; returns the id of the key.

    Raises:
        OSError: it exists already, or cannot be written.
    """
    number = secrets.randbelow(IDS)
    text = (
        "# The key of a seqcast group: whoever has the key can join, read and send like a member.\n"
        f"{line(number, secrets.token_bytes(SECRET_BYTES))}\n"
    )
    written(path, text.encode())
    return number


def written(path: str, text: bytes, like: os.stat_result | None = None) -> None:
    """Writes a new file with a secret, for its owner alone.

    Args:
        like: the status of another file, whose mode this one gets, and whose owner, if we are root.

    Raises:
        OSError: it exists already, or cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            if like is not None and sys.platform != "win32":  # by its descriptor: others may write its directory
                if os.geteuid() == 0:  # others may not, as in a group that they are not in
                    os.fchown(descriptor, like.st_uid, like.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(path)
        raise


def add(path: str) -> int:
    """Adds a new key to a key file, as the last one; returns its id. Members that look at the file at that time find
    it as it was, or with the whole line. The file keeps its owner and mode.

    Raises:
        ConfigError: this is not a key file, or has no room for another key: too many keys, or long comments.
        OSError: its directory cannot be written.
    """
    known = {key.number for key in read(path)}
    if len(known) == KEYS_MAX:
        raise ConfigError(f"{path!r} has {KEYS_MAX} keys already: remove the line of one that no member seals with")
    number = secrets.choice([each for each in range(IDS) if each not in known])
    path = os.path.realpath(path)  # a link stays one
    text = b"".join(each + b"\n" for each in bytes(_content(_GUARDED, path, ordinary)).splitlines())
    text += f"{line(number, secrets.token_bytes(SECRET_BYTES))}\n".encode()
    if len(text) > FILE_BYTES_MAX:
        raise ConfigError(f"{path!r} would have more than {FILE_BYTES_MAX} bytes: shorten its comments")
    beside = f"{path}.{secrets.token_hex(4)}.new"
    written(beside, text, os.stat(path))
    try:
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
    return number


def read(path: str, memory: Memory = ordinary) -> tuple[Key, ...]:
    """The keys in a file.

    Args:
        memory: for its content, and for the keys.

    Raises:
        ConfigError: others may read the file, or it holds no key.
    """
    lines = secret_lines(_GUARDED, path, memory)
    if not 1 <= len(lines) <= KEYS_MAX:
        raise ConfigError(f"key={path!r}: a key file has 1 to {KEYS_MAX} keys, a line each; this one has {len(lines)}")
    found = tuple(_key(path, text, memory) for text in lines)
    if len({key.number for key in found}) < len(found):
        raise ConfigError(f"key={path!r}: two keys have one number; `seqcast keygen --add FILE` gives each its own")
    return found


def _key(path: str, text: memoryview, memory: Memory) -> Key:
    number, secret = worded(text, memory)
    if not (number.isdigit() and len(number) < 3 and int(number) < IDS) or not secret:
        raise ConfigError(f"key={path!r}: a line is not `ID SECRET`, a number below {IDS} and base64; {_MADE}")
    if len(secret) != SECRET_BYTES:
        raise ConfigError(f"key={path!r}: a key has {SECRET_BYTES} bytes, this one {len(secret)}; {_MADE}")
    if len(set(secret)) < 8:
        raise ConfigError(f"key={path!r}: its bytes are not random; {_MADE}")
    return Key(int(number), secret)


def _is_secret(text: str) -> bool:
    """Could this be a secret instead of a file's name? Base64 may have a ``/``, but has both kinds of letters and no
    dot; comments, which may have dots, have blanks."""
    if len(text) < SECRET_BYTES or os.path.exists(text):
        return False
    if "." in text and not any(each in "=+:" or each.isspace() for each in text):
        return False
    is_path = os.sep in text or bool(os.altsep and os.altsep in text)
    return not is_path or "\n" in text or ("." not in text and text != text.lower() and text != text.upper())


def lines_of(kind: Guarded, path: str) -> list[str]:
    """The lines of a file, without comments and empty ones.

    Raises:
        ConfigError: others have a right that is the owner's alone, or the file cannot be read, or is not text.
    """
    try:
        lines = bytes(_content(kind, path, ordinary)).decode(kind.encoding).splitlines()
    except UnicodeDecodeError:
        raise ConfigError(f"{kind.setting}={path!r} {kind.binary}; {kind.remedy}") from None
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def secret_lines(kind: Guarded, path: str, memory: Memory) -> list[memoryview]:
    """As ``lines_of``, but in the memory that they were read into: no object of Python's has a copy.

    Raises:
        ConfigError: as for ``lines_of``, or the path is a secret itself.
    """
    if _is_secret(path):
        raise ConfigError(
            f"{kind.setting}= is the name of a file. No such file exists, and the name looks like a key itself: other "
            "programs and users can see it in the environment and among arguments, so make another one, and give the "
            f"file's name; {kind.remedy}"
        )
    content = _content(kind, path, memory)
    ends = [at for at, each in enumerate(content) if each in b"\r\n"]
    lines = [content[one + 1 : end] for one, end in zip([-1, *ends], [*ends, len(content)], strict=True)]
    found = [_stripped(line) for line in lines if _stripped(line) and line[0] != ord("#")]
    if any(max(line) > 126 for line in found):
        raise ConfigError(f"{kind.setting}={path!r} {kind.binary}; {kind.remedy}")
    return found


_BLANK = b"\t\r\n "


def _stripped(text: memoryview) -> memoryview:
    while text and text[0] in _BLANK:
        text = text[1:]
    while text and text[-1] in _BLANK:
        text = text[:-1]
    return text


def worded(line: memoryview, memory: Memory) -> tuple[str, memoryview]:
    """The first word of a line of ``secret_lines``, and the secret behind that word, in base64, or an empty one."""
    at = next((at for at, each in enumerate(line) if each in _BLANK), len(line))
    if at == len(line):
        return "", line[:0]  # the word may be the secret
    return bytes(line[:at]).decode("ascii"), _decoded(_stripped(line[at:]), memory)


def _decoded(text: memoryview, memory: Memory) -> memoryview:
    """As ``decoded``, by four letters at a time: no object of Python's has more than three bytes of the result."""
    if len(text) % 4:
        return text[:0]
    out, n = memory(len(text) // 4 * 3), 0
    for at in range(0, len(text), 4):
        piece = decoded(text[at : at + 4])
        if len(piece) < 3 and (not piece or at + 4 < len(text)):
            return text[:0]
        out[n : n + len(piece)] = piece
        n += len(piece)
    return out[:n]


def _check_owner(kind: Guarded, path: str, status: os.stat_result) -> None:
    """Is the file this user's alone, as far as its kind needs that? A user that may write its directory can put another
    file in its place, such as an earlier list."""
    named = f"{kind.setting}={path!r}"
    if status.st_mode & kind.forbidden:
        others = kind.others.format(mode=f"{stat.S_IMODE(status.st_mode):04o}")
        raise ConfigError(f"{named}: others than its owner {others}")
    user = os.geteuid()
    if user != 0 and status.st_uid not in (0, user):  # root may look at the files of a service's user
        raise ConfigError(
            f"{named} belongs to another user, who may change this file: run this process as that user (uid "
            f"{status.st_uid}), or chown the file to the user of this process (uid {user})"
        )
    for place in {os.path.dirname(os.path.abspath(path)), os.path.dirname(os.path.realpath(path))}:
        mode = os.stat(place).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise ConfigError(f"{named}: anybody may replace this file: chmod o-w {place!r}, its directory")


def _content(kind: Guarded, path: str, memory: Memory) -> memoryview:
    """The content of a file, in this memory."""
    named = f"{kind.setting}={path!r}"
    room, n = memory(kind.bytes_max + 1), 0
    try:
        with open_file(path, links=True) as file:
            if sys.platform != "win32":
                _check_owner(kind, path, os.fstat(file.fileno()))
            while n < len(room) and (came := file.readinto(room[n:])):
                n += came
    except OSError as error:
        raise ConfigError(f"{named} cannot be read: {error.strerror}; {kind.remedy}") from None
    if n > kind.bytes_max:
        raise ConfigError(f"{named} {kind.large}; {kind.remedy}")
    return room[:n]


def decoded(text: str | memoryview) -> bytes:
    """Bytes from base64; empty if the text is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
