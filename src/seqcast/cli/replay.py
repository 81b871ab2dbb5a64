"""``seqcast replay``: sends the messages of a journal to a group again."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from seqcast.cli.options import add_member_options, add_members_awaited, group_settings, parser
from seqcast.cli.send import Sending, join, taking
from seqcast.commandline import say
from seqcast.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

NEEDS = ("pyarrow", "seqcast.api.group", "seqcast.journal.reader")
COLUMNS = ("delivered_ns", "payload")


def main(arguments: argparse.Namespace) -> int:
    """Joins, sends every message of the journal in its order, leaves, and reports on the delivery."""
    from seqcast.journal.places import find
    from seqcast.journal.reader import Journal

    journals = find([arguments.journal_read])
    if len(journals) != 1:
        raise UsageError(
            f"{arguments.journal_read} holds {len(journals)} journals: give the directory of one member, for example "
            f"{journals[0].path}"
        )
    journal: Journal = journals[0]
    if journal.payload != "full":
        raise UsageError(f"{journal.path} keeps hashes of the payloads only: its messages cannot be sent again")
    if lacking := journal.end_idx - journal.rows:
        say(f"{journal.path} lacks {lacking} messages, which retention removed or a full disk did not take: not sent")
    settings = group_settings(arguments) | {"receive": bool(arguments.journal), "min_members": arguments.members}
    with join(arguments.to, settings) as group, taking(group):
        sending = Sending(group, time.monotonic())
        try:
            sending.run(paced(journal.batches(COLUMNS), arguments.speed))
        except KeyboardInterrupt:
            sending.interrupt()
        return sending.end()


def paced(batches: Iterable[pa.RecordBatch], speed: float) -> Iterator[list[bytes]]:
    """The payloads of a journal's batches, at the times at which they were delivered.

    Args:
        batches: Arrow batches of ``COLUMNS``, in journal order.
        speed: 2: twice as fast as they were delivered; 0: all at once.
    """
    begin = time.monotonic()
    first_ns: int | None = None
    for batch in batches:
        times, payloads = (column.to_pylist() for column in batch.columns)
        if not speed:
            yield payloads
            continue
        first_ns = times[0] if first_ns is None else first_ns
        at = 0
        while at < len(times):
            due = begin + (times[at] - first_ns) / speed / 1e9
            end = at + 1
            while end < len(times) and times[end] == times[at]:  # delivered together
                end += 1
            time.sleep(max(0.0, due - time.monotonic()))
            yield payloads[at:end]
            at = end


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    result = parser(
        "replay",
        "Send the messages of one member's journal to a group, in the order of that member's deliveries.",
        "example: seqcast replay journals/a-0123456789abcdef --to orders-test --speed 1",
    )
    result.add_argument("journal_read", metavar="JOURNAL", help="directory of one member's journal, with full payloads")
    result.add_argument("--to", required=True, metavar="CLUSTER", help="name of the group, the same on every member")
    add_member_options(result)
    result.add_argument(
        "--speed",
        type=_speed,
        default=0.0,
        metavar="X",
        help="1: as fast as they were delivered, 2: twice as fast, 0: as fast as the group takes them (%(default)g)",
    )
    add_members_awaited(result)
    return result.parse_args(argv)


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = -1.0
    if not 0 <= speed < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a speed: give 0, 1, 2.5, ...")
    return speed
