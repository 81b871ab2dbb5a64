"""Checksums of a journal's files beside its segments: JSON records that carry the XXH3 of their own text.

A flipped bit must be reported as damage. Damage must not make rows disappear silently, or a guarantee seem broken.
"""

from __future__ import annotations

import json
import os
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

from seqcast._native.columns import Hash, payload_hash

PIECE_BYTES = 1 << 20
"""A file is hashed in pieces of this size: each is still in the cache then."""
_MARK = ', "check": "'
_T = TypeVar("_T")


class SealError(ValueError):
    """The text differs from the sealed one."""


def hash_of(data: Any) -> str:
    """XXH3 of a contiguous buffer, 16 hexadecimal digits."""
    return _hexadecimal(hashed(data))


def hash_of_file(file: FileIO) -> tuple[int, str]:
    """The number of bytes that a file has from its position on, and their `hash_of`; memory for one piece is enough.

    Raises:
        OSError: unreadable.
    """
    found, piece, size = Hash(), bytearray(PIECE_BYTES), 0
    view = memoryview(piece)
    while n := file.readinto(view):
        found.add(view[:n])
        size += n
    return size, _hexadecimal(found.value)


def _hexadecimal(value: int) -> str:
    return f"{value & (1 << 64) - 1:016x}"


def hashed(data: Any) -> int:
    """XXH3 of a contiguous buffer, 64 bits as a signed number."""
    return payload_hash(memoryview(data).cast("B"))


def seal(record: dict[str, Any]) -> str:
    """One line of JSON; its last field, ``check``, is the XXH3 of the line without that field."""
    text = json.dumps(record)
    return f'{text[:-1]}{_MARK}{hash_of(text.encode())}"}}'


def unseal(line: str | bytes) -> dict[str, Any]:
    """The record of a sealed line, without its check.

    Raises:
        SealError: without a seal, or altered since.
    """
    try:
        text = line.decode() if isinstance(line, bytes) else line
    except UnicodeDecodeError as error:
        raise SealError("not text") from error
    body, mark, check = text.strip().rpartition(_MARK)
    if not mark or check != f'{hash_of(f"{body}}}".encode())}"}}':
        raise SealError("its checksum does not fit")
    record = json.loads(f"{body}}}")
    if not isinstance(record, dict):
        raise SealError("not a JSON object")
    return record


def typed(value: Any, kind: type[_T]) -> _T:
    """The value of a sealed field. A checksum shows accidental changes, not the writer.

    Raises:
        TypeError: another type.
        ValueError: a number of more than 64 bits, or text without an encoding.
    """
    if type(value) is not kind:
        raise TypeError(f"{value!r} in place of a value of type {kind.__name__}")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} in place of a number of 64 bits")
    if isinstance(value, str):
        value.encode()
    return value


def replace(path: Path, record: dict[str, Any]) -> None:
    """Writes a sealed record as a file; concurrent readers see the old file or the new one.

    Raises:
        OSError: the file cannot be written; the old one is unchanged.
    """
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(seal(record) + "\n", encoding="utf-8")
        os.replace(part, path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
