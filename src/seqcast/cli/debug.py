"""``seqcast debug``: one archive with all that a report of trouble with a group needs."""

from __future__ import annotations

import argparse
import io
import json
import platform
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from seqcast.board.judge import troubles
from seqcast.board.place import BYTES
from seqcast.board.read import boards
from seqcast.cli import complain
from seqcast.cli.seen import STALL_S, sketch
from seqcast.commandline import Parser
from seqcast.files import read_file

NEEDS = ("seqcast.doctor.local",)


def main(arguments: argparse.Namespace) -> int:
    """Writes the archive."""
    found = boards(arguments.cluster)
    if not found:
        return complain(f"no board of {arguments.cluster!r} on this machine: there is nothing to collect", 1)
    path = Path(arguments.archive)
    try:
        with tarfile.open(path, "x:gz") as archive:
            for name, data in _files(arguments.cluster):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime = len(data), int(time.time())
                archive.addfile(entry, io.BytesIO(data))
    except OSError as error:
        return complain(f"cannot write {path}: {error.strerror}")
    print(f"{path}: {len(found)} boards, the doctor's look at this machine, versions; no messages, no keys")
    return 0


def _files(cluster: str) -> Iterator[tuple[str, bytes]]:
    from seqcast.config import Config
    from seqcast.doctor.local import look

    found = boards(cluster)
    for number, board in enumerate(found):
        name = f"boards/{number}"
        said = sketch(board, found, {}, troubles(board, STALL_S))
        yield f"{name}.board", read_file(board.path, BYTES)
        yield f"{name}.json", json.dumps(said, indent=1).encode()
    lines = [line.item() for line in look(Config.from_environment())]
    yield "doctor.json", json.dumps(lines, indent=1).encode()
    versions = {
        "seqcast": metadata.version("seqcast"),
        "python": sys.version,
        "system": platform.platform(),
        "machine": platform.machine(),
        "host": platform.node(),
    }
    yield "versions.json", json.dumps(versions, indent=1).encode()


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    result = Parser(
        "debug",
        "Collect in one archive all that a report of trouble with a group needs: the boards of its members on this\n"
        "machine (also of those that hang or were killed), what `seqcast doctor` says of the machine, and versions.\n"
        "It has no messages and no keys, but names, addresses and log lines. Run it on each machine.",
        "example: seqcast debug orders orders-$(hostname).tar.gz; seqcast timeline orders-*.tar.gz",
    )
    result.add_argument("cluster", metavar="CLUSTER", help="name of the group")
    result.add_argument("archive", metavar="OUT.tar.gz", help="file to write, which must not exist")
    return result.parse_args(argv)
