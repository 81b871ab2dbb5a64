"""The header of a journal: which group, member and format it is of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seqcast.files import read_file
from seqcast.journal import seals
from seqcast.journal.schema import (
    FORMAT,
    HEADER_BYTES_MAX,
    HEADER_FILE,
    PAYLOAD_MODES,
    SCHEMA_VERSION,
    VIEWS_FILE,
    JournalDamaged,
    JournalError,
)


def header_text(path: Path) -> str:
    """The header's text, of the journal in directory ``path``.

    Raises:
        JournalError: unreadable, or missing beside the other files of a journal (JournalDamaged).
    """
    try:
        return read_file(path / HEADER_FILE, HEADER_BYTES_MAX).decode()
    except OSError as error:
        if isinstance(error, FileNotFoundError) and (path / VIEWS_FILE).exists():
            raise JournalDamaged(f"{path / HEADER_FILE} is missing") from error
        raise JournalError(f"{path / HEADER_FILE} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _damaged_header(path, "not text") from error


def parse_header(text: str, path: Path) -> dict[str, Any]:
    """The header's fields, each of its type.

    Raises:
        JournalError: foreign, of another version, or altered (JournalDamaged).
    """
    try:
        header = json.loads(text)
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise JournalError(
                f"{path} is not a seqcast journal: its {HEADER_FILE} was not written by seqcast; give the directory "
                "of a member's journal"
            )
        if header["schema_version"] != SCHEMA_VERSION:
            raise JournalError(
                f"{path} has journal version {header['schema_version']}, this seqcast reads "
                f"version {SCHEMA_VERSION}: use the seqcast that wrote it"
            )
        seals.unseal(text)
        for name in (header["cluster"], header["member"]["name"]):
            seals.typed(name, str)
        unknown = not int(header["member"]["id"], 16) or header["payload"] not in PAYLOAD_MODES
        if unknown or not isinstance(header["deliver_own"], bool):
            raise ValueError
        if not isinstance(header["safe"], bool) or int(header.get("previous", "0"), 16) < 0:
            raise ValueError
        seals.typed(header.get("locked", ""), str)
    except KeyError as error:
        raise _damaged_header(path, f"no {error}") from error
    except json.JSONDecodeError as error:
        raise _damaged_header(path, "not JSON") from error
    except seals.SealError as error:
        raise _damaged_header(path, str(error)) from error
    except (ValueError, TypeError) as error:
        raise _damaged_header(path, "a field has a value that cannot be") from error
    return dict(header)


def _damaged_header(path: Path, why: str) -> JournalDamaged:
    return JournalDamaged(f"{path / HEADER_FILE}, if it is of a seqcast journal: {why}")
