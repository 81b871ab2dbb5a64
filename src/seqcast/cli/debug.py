"""``seqcast debug``: one archive with all that a report of trouble with a group needs, of all its members."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import platform
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from seqcast.board.judge import STALL_S, groups, spokesman, troubles, unreadable
from seqcast.board.place import BYTES
from seqcast.board.read import Board, BoardError, boards, kept
from seqcast.cli import complain
from seqcast.cli.seen import NotAsked, sketch
from seqcast.commandline import Parser
from seqcast.files import read_file

NEEDS = ("seqcast.doctor.seeds",)


def main(arguments: argparse.Namespace) -> int:
    """Writes the archive."""
    from seqcast.config import Config
    from seqcast.doctor.seeds import look_around

    found = boards(arguments.cluster)
    missing = [each.line() for each in unreadable(arguments.cluster)]
    if not found:
        none = f"no board of {arguments.cluster!r} on this machine: there is nothing to collect"
        return complain("; ".join([none, *missing]), 1)
    path = Path(arguments.archive)
    if os.path.lexists(path):
        return complain(f"cannot write {path}: {os.strerror(errno.EEXIST)}")
    looked = [line.item() for line in look_around(Config.for_command())]
    others, silent = _of_others(found)
    silent += missing
    try:
        _write(path, _files(found, others, silent, looked))
    except OSError as error:
        return complain(f"cannot write {path}: {error.strerror}")
    here = {board.about["id"] for board in found}
    far = len(others.keys() - here)
    collected = f"{len(found) + far} boards, {far} of them of other machines"
    print(f"{path}: {collected}, the doctor's look at this one, versions; no messages, no keys")
    for each in silent:
        print(each)
    return 0


def _write(path: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """An archive has its name only when whole."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with tarfile.open(part, "x:gz") as archive:
            for name, data in files:
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime = len(data), int(time.time())
                archive.addfile(entry, io.BytesIO(data))
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)


Whole = tuple[dict[str, Any], bytes]


def _of_others(found: Sequence[Board]) -> tuple[dict[int, Whole], list[str]]:
    """The knowledge and the boards of the members of each group, asked by one on this machine, and a line for each that
    is missing."""
    from seqcast.cli import seen_all

    members = [board for board in found if board.alive and board.about["view"]["members"]]
    if not members:
        return {}, ["no member runs here, so none on another machine was asked"]
    others, silent = dict[int, Whole](), list[str]()
    for board in map(spokesman, groups(members)):
        if why := _mute(board):
            silent.append(f"no other member was asked: {why}")
            continue
        try:
            told = seen_all.whole(board)
        except NotAsked as error:
            silent.append(f"no other member was asked: {error}")
            continue
        others |= {each: whole for each, whole in told.items() if whole is not None}
        missing = [board.name_of(each) for each, whole in told.items() if whole is None]
        why = f"has not answered {board.name}, or has no board: run this on its machine, too"
        silent += [f"{name} {why}" for name in missing]
    return others, silent


def _mute(board: Board) -> str:
    """Why the board says that a member's process would not answer; "": the process is asked."""
    from seqcast.cli import seen_all

    return next((each.fact for each in troubles(board, STALL_S) if each.code in seen_all.MUTE), "")


def _files(
    found: Sequence[Board], others: Mapping[int, Whole], silent: Sequence[str], looked: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, bytes]]:
    here = {board.about["id"] for board in found}
    for number, board in enumerate(found):
        known, _ = others.get(board.about["id"], ({}, b""))
        said = sketch(board, found, {}, troubles(board, STALL_S))
        yield from _pair(number, read_file(board.path, BYTES), {**said, **_of_settings(known), **_of_process(board)})
    for number, (known, data) in enumerate((others[each] for each in others if each not in here), len(found)):
        try:
            said = sketch(kept(Path(f"{number}.board"), data), (), {}, ())
        except BoardError as error:
            said = {"unreadable": str(error)}
        own = {**_of_settings(known), "findings": known.get("findings")}
        yield from _pair(number, data, {**said, **own, "alive": True})
    yield "doctor.json", json.dumps(looked, indent=1).encode()
    versions = {
        "seqcast": metadata.version("seqcast"),
        "python": sys.version,
        "system": platform.platform(),
        "machine": platform.machine(),
        "host": platform.node(),
        "missing": list(silent),
    }
    yield "versions.json", json.dumps(versions, indent=1).encode()


def _of_settings(known: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, and the names of those that are not the usual ones."""
    return {name: known.get(name) for name in ("settings", "changed")}


def _of_process(board: Board) -> dict[str, Any]:
    """The knowledge of a process on this machine that answers."""
    from seqcast.cli import seen_all

    if not board.alive:
        return {}
    try:
        return {"process": _mute(board) or seen_all.known(board)}
    except NotAsked as error:
        return {"process": str(error)}


def _pair(number: int, data: bytes, said: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    yield f"boards/{number}.board", data
    yield f"boards/{number}.json", json.dumps(said, indent=1).encode()


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    result = Parser(
        "debug",
        "Collect in one archive all that a report of trouble with a group needs: the boards and the settings of its\n"
        "members, those on this machine (also if they hang or were killed) and those on others, asked by one here;\n"
        "the findings of `seqcast doctor` here; and versions. The archive has no messages and no keys, but names,\n"
        "addresses and log lines. The command names members that do not answer: run it there, too.",
        "example: seqcast debug orders orders.tar.gz; seqcast timeline orders.tar.gz",
    )
    result.add_argument("cluster", metavar="CLUSTER", help="name of the group")
    result.add_argument("archive", metavar="OUT.tar.gz", help="file to write, which must not exist")
    return result.parse_args(argv)
