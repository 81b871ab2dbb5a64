"""The options of the format, and the meaning of their values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from seqcast.config.check import closest
from seqcast.errors import UsageError
from seqcast.spark.offsets import read_offset

TABLE, STREAM, SINK = "table", "stream", "sink"
READ = (TABLE, STREAM)


@dataclass(frozen=True, slots=True)
class Option:
    """An option of the format.

    Args:
        of: its owner.
        values: that it may have, for the documentation; the default first, if there is one.
        text: its effect; empty: Spark's own, or of a place with a page of its own.
    """

    name: str
    of: tuple[str, ...]
    values: str = ""
    text: str = ""


OPTIONS = (
    Option("path", READ, "a directory or a pattern", "journals; the argument of `load`"),
    Option("paths", READ),
    Option("tap", READ, "host:port, ...", "taps that serve journals"),
    Option("token", READ, "text", "token of the taps"),
    Option("tokenFile", READ, "a file", "the same from a file of the driver"),
    Option("certificateFile", READ, "a file", "certificates by which taps are trusted: they serve through TLS"),
    Option("columns", READ, "all; names with commas between", "the columns, in this order; no others are decoded"),
    Option("view", READ, "all; counters with commas between", "only rows of these views"),
    Option("sender", READ, "all; names with commas between", "only messages of these senders"),
    Option("since", READ, "ISO 8601", "only rows delivered at this time or later"),
    Option("until", READ, "ISO 8601", "only rows delivered before this time"),
    Option(
        "payload", READ, "`binary`, `utf8`, `json`",
        "column `payload` as bytes, as text (other bytes have the replacement character), or as the value of its JSON",
    ),
    Option(
        "payloadSchema", READ, "DDL, such as `id bigint, name string`",
        "for `json`: fields of column `payload`; a value that does not fit is null, and so is a payload that is not "
        "JSON",
    ),
    Option(
        "copies", (TABLE,), "`all`, `one`",
        "each message once for each journal, or once: the agreed stream (a stream always gives it once)",
    ),
    Option(
        "startingOffset", READ, "`earliest`, `latest`, an offset as JSON",
        "the beginning of a stream without a checkpoint: with the first row of the journal with the longest history, "
        "after the newest row of all, or at an offset from the progress of a query (`endOffset`)",
    ),
    Option(
        "startingTimestamp", READ, "ISO 8601, or ms since 1970",
        "the same: with the first row delivered at this time or later",
    ),
    Option(
        "endingOffset", READ, "an offset as JSON",
        "a stream ends there; a table with this option or one of the two before has a stream's rows between them",
    ),
    Option("minPartitions", READ, "a number", "rows are divided among this many tasks at least"),
    Option(
        "maxRowsPerBatch", (STREAM,), "no bound; a number", "a batch may have fewer, as a batch ends with a row group"
    ),
    Option("failoverAfter", (STREAM,), "5; seconds", "after this long, a member that seems gone counts as gone"),
    Option(
        "failOnDataLoss", READ, "`true`, `false`",
        "if rows of a stream are gone: fail, or continue with the remaining ones",
    ),
    Option(
        "onNewGroup", READ, "`fail`, `continue`",
        "of a stream whose whole group was started again: fail, or go on with the new one",
    ),
    *(
        Option(name, (SINK,))
        for name in (
            "cluster", "interface", "port", "order", "preset", "partition", "members", "timeout", "maxBatchBytes",
            "path", "checkpointLocation", "queryName",
        )
    ),
)  # fmt: skip
"""All options; the documentation shows those that have a text."""


def names_of(*kinds: str) -> list[str]:
    """The names of the options of a table, stream or sink."""
    return [option.name for option in OPTIONS if {*option.of} & {*kinds}]


@dataclass(frozen=True)
class Tabled:
    """Which rows come in a table, and how often, by its options.

    Args:
        once: each message of a view once, and not once for each journal that has it.
        between: those that this stream gives; None: all.
        tasks: at least this many read them.
    """

    once: bool = False
    between: Following | None = None
    tasks: int = 0

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Tabled:
        """
        Raises:
            UsageError: the value of an option is invalid.
        """
        once = _one_of(options, "copies", ("all", "one")) == "one"
        if not any(options.get(name) for name in ("startingOffset", "startingTimestamp", "endingOffset")):
            return cls(once, None, _positive(options, "minPartitions"))
        if not once and "copies" in options:
            raise UsageError(
                "copies='all': offsets are places in a stream, which has each message once; give copies='one'"
            )
        return cls(True, Following.of(options), _positive(options, "minPartitions"))


EVERY_COPY = Tabled()


@dataclass(frozen=True)
class Following:
    """How a stream follows, by its options.

    Args:
        starting: "earliest" or "latest", if there is no checkpoint.
        max_rows: of a batch; 0: no limit.
        fail_on_data_loss: whether it is an error if retention removed rows before they were read, or if the stream gave
            out rows that no other member has.
        failover_s: a member that seems lost for this long counts as lost.
        on_new_group: "fail" or "continue", after the last row of the old one, if the whole group is started again.
        begin: an offset in place of ``starting``.
        since_ns: in its place, the time of delivery of the first row, ns since 1970.
        end: the stream ends at this offset.
        tasks: at least this many read a batch.
    """

    starting: str = "earliest"
    max_rows: int = 0
    fail_on_data_loss: bool = True
    failover_s: float = 5.0
    on_new_group: str = "fail"
    begin: dict[str, Any] | None = None
    since_ns: int | None = None
    end: dict[str, Any] | None = None
    tasks: int = 0

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Following:
        """
        Raises:
            UsageError: the value of an option is invalid.
        """
        text, time, end = (options.get(name) for name in ("startingOffset", "startingTimestamp", "endingOffset"))
        if text and time:
            raise UsageError("startingOffset and startingTimestamp both say where the stream begins: give only one")
        is_word = not text or text.lower() in ("earliest", "latest")
        begin = None if is_word else read_offset("startingOffset", text or "", "'earliest', 'latest' or ")
        ending = read_offset("endingOffset", end) if end else None
        if begin and ending and begin["member"] == ending["member"] and begin["idx"] > ending["idx"]:
            raise UsageError("endingOffset is before startingOffset: exchange them")
        return cls(
            (text or "earliest").lower() if is_word else "earliest",
            _positive(options, "maxRowsPerBatch"),
            _one_of(options, "failOnDataLoss", ("true", "false")) == "true",
            _seconds(options, "failoverAfter", 5.0),
            _one_of(options, "onNewGroup", ("fail", "continue")),
            begin,
            _since_ns("startingTimestamp", time) if time else None,
            ending,
            _positive(options, "minPartitions"),
        )


def check_names(options: Mapping[str, str], known: Sequence[str], of: str) -> None:
    """
    Args:
        known: the names that mean something here; Spark ignores their case.
        of: the owner of these options.

    Raises:
        UsageError: an option has another name.
    """
    names = {name.lower(): name for name in known}
    for option in options:
        if option.lower() not in names:
            close = closest(option.lower(), list(names))
            hint = f"did you mean {names[close]}?" if close else f"it has {', '.join(sorted(known, key=str.lower))}"
            raise UsageError(f"{of} has no option {option!r}: {hint}")


def _one_of(options: Mapping[str, str], name: str, values: Sequence[str]) -> str:
    """The value of an option; the first one is the default."""
    value = options.get(name, values[0])
    if value.lower() not in values:
        raise UsageError(f"{name}={value!r}: give {' or '.join(map(repr, values))}")
    return value.lower()


def _positive(options: Mapping[str, str], name: str) -> int:
    """0: not given."""
    value = options.get(name)
    if value is None:
        return 0
    if not (value.isascii() and value.isdecimal() and int(value)):
        raise UsageError(f"{name}={value!r}: give a positive whole number")
    return int(value)


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    try:
        value = float(options.get(name, default))
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise UsageError(f"{name}={options[name]!r}: give a number of seconds")
    return value


def _since_ns(name: str, text: str) -> int:
    """ns since 1970, of a time or of milliseconds since then."""
    if text.isascii() and text.isdecimal():
        return min(int(text[:20]) * 1_000_000, (1 << 63) - 1)
    return time_ns(name, text, 0, ", or milliseconds since 1970")


def comma_separated(text: str) -> list[str]:
    """The parts of a value between commas."""
    return [each.strip() for each in text.split(",") if each.strip()]


def time_ns(name: str, text: str | None, default: int, also: str = "") -> int:
    """ns since 1970, of a time from then to 2262: 64 bits have no others. ``also``: further allowed values."""
    if text is None:
        return default
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        how = f"give a time such as 2026-11-22T10:00:00+00:00 (UTC without a zone){also}"
        raise UsageError(f"{name}={text!r}: {how}") from None
    since_1970 = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return min(max(0, since_1970 // timedelta(microseconds=1) * 1000), (1 << 63) - 1)
