"""``seqcast send``: each line of the input is one message."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence

import seqcast
from seqcast.cli import complain
from seqcast.cli.options import add_group_options, group_settings, parser
from seqcast.commandline import Progress, count, positive

CHUNK_BYTES = 1 << 18
LINE_BYTES_MAX = 64 << 20


def main(argv: Sequence[str]) -> int:
    """Joins, sends every line, leaves when all members have everything."""
    arguments = _parser().parse_args(argv)
    try:
        source = 0 if arguments.file == "-" else os.open(arguments.file, os.O_RDONLY)
        os.read(source, 0)  # a directory opens and cannot be read
    except OSError as error:
        return complain(f"cannot read {arguments.file}: {error.strerror}; give a text file, or - for standard input")
    sent = sent_bytes = 0
    lines: list[bytes] = []
    begin = time.monotonic()
    interrupted = False
    with seqcast.join(arguments.cluster, receive=False, **group_settings(arguments)) as group:
        try:
            wait_for_members(group, arguments.members, group.config.join_timeout_s)
            begin = time.monotonic()
            with Progress() as progress:
                for lines in read_lines(source):
                    group.send_many(lines)
                    sent += len(lines)
                    sent_bytes += sum(map(len, lines))
                    lines = []
                    progress.show(f"{count(sent, 'message')} sent")
        except KeyboardInterrupt:
            interrupted = True
            begun = group.counters()["messages_sent"] - sent  # of the lines it was interrupted in
            sent += begun
            sent_bytes += sum(map(len, lines[:begun]))
        left = group.leave()
        lost = group.counters()["control_members_lost"]
        delivered = left and not lost  # who fell, or was cut off from us, may not have been delivered it
    took = max(time.monotonic() - begin, 1e-9)
    print(
        f"{'interrupted: ' if interrupted else ''}{count(sent, 'message')}, {sent_bytes:,} bytes, "
        + (
            f"delivered by all in {took:.2f} s ({sent / took:,.0f} messages/s)"
            if delivered
            else "sent, but not known to be delivered by all: "
            + (f"{count(lost, 'member')} fell or could not be reached" if lost else "a receiver is too slow or gone")
            + "; see what arrived before you send again"
        ),
        file=sys.stderr,
    )
    return 1 if interrupted or not delivered else 0


def _parser() -> argparse.ArgumentParser:
    result = parser(
        "send",
        "Send each line of FILE, or of standard input, to a group as one message, without its newline.",
        "example: seq 1000 | seqcast send orders",
    )
    add_group_options(result)
    result.add_argument("file", metavar="FILE", nargs="?", default="-", help="text file, or - for standard input")
    result.add_argument(
        "--members",
        type=positive,
        default=2,
        metavar="N",
        help="send only when the group has N members, this one counted (%(default)s)",
    )
    return result


def wait_for_members(group: seqcast.Group, n: int, timeout_s: float) -> None:
    """Waits until the view has ``n`` members.

    Raises:
        SeqcastError: it has fewer after ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    while len(group.view.members) < n:
        if time.monotonic() > deadline:
            raise seqcast.SeqcastError(
                f"the group has {count(len(group.view.members), 'member')} after {timeout_s:g} s, this one "
                f"counted, and not {n}: start a receiver (seqcast tail), on the same "
                "--interface, or give --members 1"
            )
        time.sleep(0.01)


def read_lines(source: int) -> Iterator[list[bytes]]:
    """Lines of a file descriptor, without their newlines, in lists: as many as each read gives, so that the lines of a
    terminal or a pipe go out as they come.

    Raises:
        UsageError: a line is longer than ``LINE_BYTES_MAX``.
    """
    begun: list[bytes] = []  # parts of a line whose end was not read yet
    begun_bytes = 0
    while block := os.read(source, CHUNK_BYTES):
        head, newline, tail = block.rpartition(b"\n")
        if newline:
            begun.append(head)
            yield b"".join(begun).split(b"\n")
            begun, begun_bytes = [], 0
        if tail:
            begun.append(tail)
            begun_bytes += len(tail)
            if begun_bytes > LINE_BYTES_MAX:
                raise seqcast.UsageError(
                    f"a line of the input is longer than {LINE_BYTES_MAX >> 20} MiB; `send` takes each line as "
                    "one message: is this a text file?"
                )
    if begun:
        yield [b"".join(begun)]
