"""The options of the format, and what their values mean."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from seqcast.errors import UsageError

WHERE = ("path", "paths", "tap", "token", "tokenFile", "certificateFile")
ROWS = ("view", "sender", "since", "until", "columns")
TABLE = ("copies",)
STREAM = ("startingOffset", "maxRowsPerBatch", "failoverAfter", "failOnDataLoss", "onNewGroup")
SINK = (
    "cluster", "interface", "port", "order", "preset", "partition", "members", "timeout", "maxBatchBytes",
    "path", "checkpointLocation", "queryName",
)  # fmt: skip
"""Names of options; the last three are Spark's own."""


@dataclass(frozen=True)
class Tabled:
    """How often rows come in a table, by its options.

    Args:
        once: each message of a view once, and not once for each journal that has it.
    """

    once: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Tabled:
        """
        Raises:
            UsageError: the value of an option is invalid.
        """
        return cls(_one_of(options, "copies", ("all", "one")) == "one")


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
        on_new_group: "fail" or "continue", behind the last row of the old one, where the whole group is started again.
    """

    starting: str = "earliest"
    max_rows: int = 0
    fail_on_data_loss: bool = True
    failover_s: float = 5.0
    on_new_group: str = "fail"

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Following:
        """
        Raises:
            UsageError: the value of an option is invalid.
        """
        return cls(
            _one_of(options, "startingOffset", ("earliest", "latest")),
            _positive(options, "maxRowsPerBatch"),
            _one_of(options, "failOnDataLoss", ("true", "false")) == "true",
            _seconds(options, "failoverAfter", 5.0),
            _one_of(options, "onNewGroup", ("fail", "continue")),
        )


def check_names(options: Mapping[str, str], known: Sequence[str], of: str) -> None:
    """
    Args:
        known: the names that mean something here; Spark ignores their case.
        of: what has these options.

    Raises:
        UsageError: an option has another name.
    """
    names = {name.lower(): name for name in known}
    for option in options:
        if option.lower() not in names:
            close = difflib.get_close_matches(option.lower(), names, 1)
            hint = f"did you mean {names[close[0]]}?" if close else f"it has {', '.join(sorted(known, key=str.lower))}"
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


def listed(text: str) -> list[str]:
    """The parts of a value between commas."""
    return [each.strip() for each in text.split(",") if each.strip()]


def time_ns(name: str, text: str | None, default: int) -> int:
    """ns since 1970, of a time from then to 2262: 64 bits have no others."""
    if text is None:
        return default
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        how = "give a time such as 2026-11-22T10:00:00+00:00 (UTC without a zone)"
        raise UsageError(f"{name}={text!r}: {how}") from None
    since_1970 = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return min(max(0, since_1970 // timedelta(microseconds=1) * 1000), (1 << 63) - 1)
