"""The format of a journal: the row, the files, their names and their version. Needs no pyarrow to import.

One directory a member (a member is one incarnation, E-06), ``<name>-<id>``:

    journal.json             written first: version, cluster, member, the kept form of payloads
    views.jsonl              one line for each view that the member installed, and a closing record
    events.jsonl             one line for each other event: counters that rose, views, the application's events
    segments.json            the manifest: the list of segments, and checksums of the rolled ones
    segment-000001.parquet   rows 1 to n, rolled: segment 1, or several small ones
    segment-000008.arrows    the live segment: an Arrow IPC stream, one row for each run of messages
    segment-000008.sums      checksums of its messages
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import seqcast.codes as codes
from seqcast.errors import UsageError
from seqcast.types import Member

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION: Final = 10
FORMAT: Final = "seqcast-journal"
HEADER_FILE: Final = "journal.json"
VIEWS_FILE: Final = "views.jsonl"
MANIFEST_FILE: Final = "segments.json"
HEADER_BYTES_MAX: Final = 1 << 16
VIEWS_BYTES_MAX: Final = 256 << 20
MANIFEST_BYTES_MAX: Final = 64 << 20
"""Readers refuse larger files: years of views and segments are smaller."""
FAILED: Final = "failed: "
"""The reason of a closing record begins like this if a write error ended the journal, and not the membership."""
PAYLOAD_MODES: Final = ("full", "hash")

COLUMNS: Final = {
    "idx": "int64",
    "view_counter": "int64",
    "view_tag": "int64",
    "global_seqno": "int64",
    "sender": "int64",
    "seqno": "int64",
    "index": "int32",
    "length": "int32",
    "sent_ns": "int64",
    "delivered_ns": "int64",
    "payload_hash": "int64",
    "transitional": "bool",
}
"""Column -> type; with ``payload="full"`` a binary ``payload`` follows. 64-bit ids and tags are kept as signed integers
of the same bits, because Spark knows no unsigned ones. ``idx`` counts the rows of one journal from 0, dense."""

VERSION_KEY: Final = b"seqcast.schema_version"

_SEGMENT = re.compile(r"segment-(\d{6,})\.(arrows|parquet)")


class JournalError(UsageError):
    """Not a journal, or not one that this version can read."""

    code = codes.JOURNAL_UNREADABLE.number


class JournalGone(JournalError):
    """A journal, or rows of it, went away during the reading: with the machine, the tap or the directory, or removed
    by retention. Others may have the same."""


class JournalDamaged(JournalError):
    """The files of a journal are not as they were written. The message names the remedy."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"damage: {what}; restore it from a copy, or leave this journal out")


def arrow_schema(payload: str) -> pa.Schema:
    """Schema of the rows of a journal that keeps ``payload`` ("full" or "hash")."""
    import pyarrow as pa

    fields = [pa.field(name, pa.type_for_alias(kind), nullable=False) for name, kind in COLUMNS.items()]
    if payload == "full":
        fields.append(pa.field("payload", pa.binary(), nullable=True))
    return pa.schema(fields, metadata={VERSION_KEY: str(SCHEMA_VERSION)})


def signed(value: int) -> int:
    """The 64 bits of an id or tag as a signed integer, for the columns."""
    return value - (1 << 64) if value >= 1 << 63 else value


def line_of(error: BaseException) -> str:
    """The first line of an error's text, for the line of another one."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def directory_name(member: Member) -> str:
    """Directory of a member's journal: its name, made safe for a file system, and its id."""
    return f"{re.sub(r'[^A-Za-z0-9._-]', '_', member.name)[:64]}-{member.id:016x}"


def segment_name(number: int, suffix: str) -> str:
    return f"segment-{number:06d}.{suffix}"


def segment_of(name: str) -> tuple[int, str] | None:
    """(number, suffix) of a segment's file name, or None for another file."""
    match = _SEGMENT.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def segment_number(path: Path) -> int:
    """Number of a segment's file."""
    found = segment_of(path.name)
    assert found is not None, path
    return found[0]
