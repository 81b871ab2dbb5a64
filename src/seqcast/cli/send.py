"""``seqcast send``: each line of the input is one message."""

from __future__ import annotations

import argparse
import os
import select
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import seqcast
from seqcast.cli import INTERRUPTED, complain
from seqcast.cli.options import add_group_options, add_members_awaited, group_settings, parser
from seqcast.cli.output import wait_for
from seqcast.commandline import Progress, count, on_stderr
from seqcast.errors import without_code

NEEDS = ("seqcast.api.group",)
CHUNK_BYTES = 1 << 18
SOON_S = 0.5
"""A longer wait shows its progress, s."""


def main(arguments: argparse.Namespace) -> int:
    """Joins, sends every line, waits until all receivers have taken them, leaves, and reports on the delivery."""
    try:
        source = 0 if arguments.file == "-" else os.open(arguments.file, os.O_RDONLY)
        os.read(source, 0)  # a directory opens and cannot be read
    except OSError as error:
        return complain(f"cannot read {arguments.file}: {error.strerror}; give a text file, or - for standard input")
    settings = group_settings(arguments)
    settings |= {"receive": bool(arguments.journal), "min_members": arguments.members}
    with join(arguments.cluster, settings) as group, taking(group):
        sending = Sending(group, time.monotonic())
        try:
            typed = os.isatty(source)  # a progress line would overwrite this
            sending.run(read_lines(source, group.config.message_bytes_max), shown=not typed)
        except KeyboardInterrupt:
            sending.interrupt()
        return sending.end()


def join(cluster: str, settings: dict[str, Any]) -> seqcast.Group:
    """Joins; if too few members come, the error names the option."""
    try:
        return seqcast.join(cluster, **settings)
    except seqcast.JoinTimeout as error:
        if type(error) is not seqcast.JoinTimeout:  # the group refused us
            raise
        hint = f"--members {settings['min_members']}: this member counts, and so does each seqcast tail"
        raise seqcast.JoinTimeout(f"{without_code(error)} ({hint})") from None


class Sending:
    """Messages on their way, and their state.

    Args:
        group: where they are sent.
        begin: monotonic seconds.
    """

    def __init__(self, group: seqcast.Group, begin: float) -> None:
        self.group = group
        self.begin = begin
        self.receivers = others(group)
        self.sent = self.sent_bytes = 0
        self.interrupted = False
        self._under_way: list[bytes] = []  # some of these may have been sent

    def run(self, messages: Iterator[list[bytes]], shown: bool = True) -> None:
        """Sends messages, list by list. ``shown``: with a progress line."""
        with Progress() as progress:
            for each in messages:
                self._under_way = each
                self.group.send_many(self._under_way)
                self.sent += len(self._under_way)
                self.sent_bytes += sum(map(len, self._under_way))
                self._under_way = []
                if shown:
                    progress.show(f"{count(self.sent, 'message')} sent")

    def interrupt(self) -> None:
        """After an interrupt, counts the lines of the current batch that were sent."""
        self.interrupted = True
        begun = self.group.counters()["messages_sent"] - self.sent
        self.sent += begun
        self.sent_bytes += sum(map(len, self._under_way[:begun]))

    def end(self) -> int:
        """Leaves, and reports the messages sent and their delivery; returns the exit status."""
        group = self.group
        self.receivers |= others(group)
        taken = self._wait_taken(SOON_S if self.interrupted else group.config.leave_timeout_s)
        stayed = others(group)
        left = group.leave()
        took = max(time.monotonic() - self.begin, 1e-9)
        lost = group.counters()["control_members_lost"]
        if lost:  # a member that failed or was cut off may lack messages
            known = f"delivery to all is not known: {count(lost, 'member')} failed or could not be reached"
        elif not left:
            known = "delivery to all is not known: a receiver is too slow or gone"
        elif not taken:
            known = f"received by {all_of(stayed)}, but not taken by all: a receiver is too slow or stuck"
        elif not self.receivers:
            known = "sent to nobody: there was no other member"
        elif not stayed:  # they may have left with messages in their queues
            known = f"not known to be taken: {all_of(self.receivers)} left meanwhile"
        elif gone := self.receivers - stayed:
            known = f"taken by {all_of(stayed)} that stayed, {len(gone)} left meanwhile"
        else:
            known = f"taken by {all_of(stayed)}"
        good = left and taken and not lost and bool(stayed or not self.receivers)
        if missed := 0 if good else self._missed():
            known += f"; {count(missed, 'message')} did not reach all"
        on_stderr(
            f"{'interrupted: ' if self.interrupted else ''}{count(self.sent, 'message')}, "
            f"{count(self.sent_bytes, 'byte')}, "
            + (
                f"{known}, in {took:.2f} s ({self.sent / took:,.0f} messages/s)"
                if good
                else f"{known}; see which messages arrived before you send again"
            )
            + "\n"
        )
        return INTERRUPTED if self.interrupted else 0 if good else 1

    def _missed(self) -> int:
        """The number of messages in ``Lost`` events, if no other thread takes the group's events."""
        missed = 0
        with suppress(seqcast.NotMember):
            while not self.group.config.journal and (event := self.group.next_event(0)) is not None:
                missed += event.messages if isinstance(event, seqcast.Lost) else 0
        return missed

    def _wait_taken(self, timeout_s: float) -> bool:
        """Waits until the applications of all other members have taken everything; False: not within this time."""
        with suppress(seqcast.NotMember), Progress() as progress:  # `leave` reports an exclusion, too
            if self.group.wait_consumed(min(timeout_s, SOON_S)):
                return True
            if timeout_s > SOON_S:
                progress.stage("sent; waiting until all receivers have taken it")
                return self.group.wait_consumed(timeout_s - SOON_S)
        return False


def others(group: seqcast.Group) -> set[seqcast.Member]:
    """The other members of the group's view."""
    return set(group.view.members) - {group.member}


def all_of(members: set[seqcast.Member]) -> str:
    """ "all 3 receivers", "the receiver"."""
    return "the receiver" if len(members) == 1 else f"all {count(len(members), 'receiver')}"


@contextmanager
def taking(group: seqcast.Group) -> Iterator[None]:
    """Takes deliveries, so that they are journaled, if there is a journal.

    Raises:
        JournalWriteError: at the end, if something could not be written.
    """
    if not group.config.journal:
        yield
        return
    failures: list[seqcast.JournalWriteError] = []
    thread = threading.Thread(target=_take, args=(group, failures), daemon=True)
    thread.start()
    try:
        yield
    finally:
        group.leave()
        thread.join()
    if failures:
        raise failures[0]


def _take(group: seqcast.Group, failures: list[seqcast.JournalWriteError]) -> None:
    """Takes deliveries to the end, even if the journal fails: a member that takes nothing blocks the senders."""
    while True:
        try:
            group.recv_batch()
        except seqcast.JournalWriteError as error:
            failures.append(error)
            del failures[1:]
        except seqcast.SeqcastError:  # left, or excluded
            return


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    result = parser(
        "send",
        "Send each line of FILE, or of standard input, to a group as one message, without its newline.",
        "example: seq 1000 | seqcast send orders",
    )
    add_group_options(result)
    result.add_argument("file", metavar="FILE", nargs="?", default="-", help="text file, or - for standard input")
    add_members_awaited(result)
    return result.parse_args(argv)


def read_lines(source: int, line_bytes_max: int) -> Iterator[list[bytes]]:
    """Lines of a file descriptor, without their newlines, in lists: as many as each read gives, so that lines from
    a terminal or a pipe are sent as they come.

    Args:
        source: the file descriptor.
        line_bytes_max: the longest message that the group takes, bytes.

    Raises:
        UsageError: a line is longer.
    """
    begun: list[bytes] = []  # parts of a line whose end was not read yet
    begun_bytes = 0
    while block := _read(source):
        head, newline, tail = block.rpartition(b"\n")
        if newline:
            begun.append(head)
            yield b"".join(begun).split(b"\n")
            begun, begun_bytes = [], 0
        if tail:
            begun.append(tail)
            begun_bytes += len(tail)
            if begun_bytes > line_bytes_max:
                raise seqcast.UsageError(
                    f"a line of the input is longer than message_bytes_max={line_bytes_max}, and `send` takes each "
                    "line as one message: is this a text file? If so, raise SEQCAST_MESSAGE_BYTES_MAX on every member"
                )
    if begun:
        yield [b"".join(begun)]


def _read(source: int) -> bytes:
    """The next bytes of a file descriptor."""
    while True:
        if sys.platform != "win32":
            wait_for(source, select.POLLIN)
        try:
            return os.read(source, CHUNK_BYTES)
        except BlockingIOError:  # read by another process
            pass
