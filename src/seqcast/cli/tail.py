"""``seqcast tail``: join a group and print its messages."""

from __future__ import annotations

import argparse
import base64
import dataclasses
import json
import select
import sys
from collections.abc import Sequence
from typing import Any

import seqcast
from seqcast.arguments import printable
from seqcast.cli.options import add_group_options, group_settings, parser
from seqcast.commandline import positive

NEEDS = ("seqcast.api.group",)
LOOK_S = 0.25
"""How often to check, while there is nothing to print, that somebody still reads the output, s."""


def main(arguments: argparse.Namespace) -> int:
    """Joins, and prints until ``--count`` messages are out, the reader is gone, or an interrupt or exclusion comes."""
    settings = group_settings(arguments)
    settings["config"] = watching(settings["config"], arguments.observe)
    with seqcast.join(arguments.cluster, **settings) as group:
        try:
            return follow(group, arguments.count, arguments.json)
        except KeyboardInterrupt:
            return 0  # the usual end of this command


def watching(config: seqcast.Config, observe: bool) -> seqcast.Config:
    """The config to join with. In a primary group that this command is not to found, no part in decisions is wanted: as
    a member it would coordinate once the others have started again, and replicas would have no leader."""
    guest = config.partition == "primary" and config.found == 0 and config.membership == "coordinated"
    return config.replace(observer=observe or guest)


def follow(group: seqcast.Group, left: int, json_lines: bool) -> int:
    """Prints ``left`` messages of the group (negative: without end); returns the exit status."""
    while True:
        event = group.next_event(LOOK_S)
        if event is None:
            if nobody_reads(sys.stdout.fileno()):
                return 0
        elif isinstance(event, seqcast.Message):
            write(as_json(event) if json_lines else event.payload)
            left -= 1
            if left == 0:
                return 0
        elif json_lines:
            write(as_json(event))
        else:
            sys.stdout.flush()
            print(f"-- {describe(event)}", file=sys.stderr, flush=True)
        if isinstance(event, seqcast.Excluded):
            return 1


def nobody_reads(output: int) -> bool:
    """Is the reader of this pipe or terminal gone? A write would fail, but there may be nothing to write for a long
    time."""
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(output, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    result = parser(
        "tail",
        "Join a group and print the payload of each message, one per line; views go to standard error.",
        "example: seqcast tail orders --json | head",
    )
    add_group_options(result)
    result.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object per line: messages with their order and sender, and views",
    )
    result.add_argument(
        "--observe",
        action="store_true",
        help="join as an observer, which takes no part in decisions, founds no group, and waits for one (default: as a "
             "member, so that this command may be the first of a group; with partition=primary: as an observer, unless "
             "--found is given)",
    )
    result.add_argument(
        "--count", type=positive, default=-1, metavar="N", help="leave after N messages (default: on an interrupt)"
    )
    return result.parse_args(argv)


def write(line: bytes) -> None:
    """Writes and flushes one line: a reader may be waiting."""
    if sys.stdout.isatty():  # a terminal obeys escape codes; a pipe gets the bytes as they are
        line = printable(line.decode("utf-8", "backslashreplace")).encode()
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def as_json(event: object) -> bytes:
    """An event as one JSON object. A payload that is not UTF-8 stands under ``payload_base64``."""
    row: dict[str, Any]
    match event:
        case seqcast.Message():
            row = {
                "event": "message",
                "view": str(event.view_id),
                "global_seqno": event.global_seqno,
                "sender": event.sender.name,
                "seqno": event.seqno,
                "index": event.index,
                "sent_ns": event.sent_ns,
            }
            row |= {flag: True for flag in ("unicast", "transitional") if getattr(event, flag)}
            try:
                row["payload"] = event.payload.decode()
            except UnicodeDecodeError:
                row["payload_base64"] = base64.b64encode(event.payload).decode()
        case seqcast.View():
            row = {
                "event": "merge_view" if isinstance(event, seqcast.MergeView) else "view",
                "view": str(event.view_id),
                "members": [member.name for member in event.members],
                "info": {member.name: member.info for member in event.members if member.about},
                "observers": [member.name for member in event.members if member.observer],
                "coordinator": event.coordinator.name,
                "order": event.order,
                "sequencer": event.members[event.sequencer].name if event.sequencer >= 0 else None,
            }
            if isinstance(event, seqcast.MergeView):
                row["subgroups"] = [[member.name for member in group.members] for group in event.subgroups]
                if event.state_from is not None:
                    row["state_from"] = [member.name for member in event.state_from.members]
        case seqcast.Blocked() | seqcast.Unblocked():
            row = {"event": type(event).__name__.lower(), "kind": event.kind, "reason": event.reason}
        case seqcast.CoordinatorChanged():
            row = {
                "event": "coordinator_changed",
                "view": str(event.view_id),
                "coordinator": event.coordinator.name,
                "previous": event.previous.name,
                "agreed": event.agreed,
                "reason": event.reason,
            }
        case seqcast.InterfaceChanged():
            row = {"event": "interface_changed", "interface": event.interface, "reason": event.reason}
        case seqcast.Skipped():
            row = {
                "event": "skipped",
                "sender": event.sender.name,
                "first": event.first,
                "last": event.last,
                "messages": event.messages,
            }
        case seqcast.Lost():
            row = {
                "event": "lost",
                "view": str(event.view_id),
                "first_seqno": event.first_seqno,
                "last_seqno": event.last_seqno,
                "missed_by": str(event.missed_by) if event.missed_by else None,
                "messages": event.messages,
                "unsent": event.unsent,
                "to": event.to.name if event.to else None,
            }
        case seqcast.Excluded():
            row = {"event": "excluded", "view": str(event.view_id), "reason": event.reason}
        case _ if dataclasses.is_dataclass(event):
            fields = {field.name: str(getattr(event, field.name)) for field in dataclasses.fields(event)}
            row = {"event": type(event).__name__.lower(), **fields}
        case _:
            raise AssertionError(f"an event of an unknown kind: {event!r}")
    return json.dumps(row, ensure_ascii=False).encode()


def describe(event: object) -> str:
    """One line about an event other than a message."""
    match event:
        case seqcast.Excluded():
            return f"excluded from the group: {event.reason}"
        case seqcast.Blocked():
            return f"blocked: {event.reason}"
        case _:
            return str(event)
