"""``seqcast keygen``: make the key file of a group."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence

from seqcast.cli import complain
from seqcast.commandline import Parser
from seqcast.config import identities, keys

NEEDS = ()


def main(arguments: argparse.Namespace) -> int:
    """Writes the file."""
    try:
        if arguments.identity:
            return _identity(arguments.file)
        if arguments.add:
            number = keys.add(arguments.file)
            print(f"{arguments.file}: key {number} is its last of {len(keys.read(arguments.file))}")
            return 0
        number = keys.make(arguments.file)
    except FileExistsError:
        return complain(
            f"{arguments.file} exists, and members that are started again need its key: give another name, or remove "
            "the file first"
        )
    except OSError as error:
        return complain(f"{arguments.file} cannot be written: {error.strerror}")
    print(f"{arguments.file}: key {number}; copy the file to the machine of each member, readable by its user alone")
    return 0


def _identity(path: str) -> int:
    from seqcast.net.secure import Ed25519

    seed = secrets.token_bytes(identities.SEED_BYTES)
    public = Ed25519(seed).public
    identities.make(path, seed)
    print(
        f"{path}: copy the file nowhere else; every member's list (authorized=) needs a line with the names that it "
        "may have:",
        file=sys.stderr,
    )
    print(f"{identities.described(public)} NAMES")
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    result = Parser(
        "keygen",
        "Make a key file: a new random key, in a file that only its owner can read. All members of a group use copies\n"
        "of one file: seqcast.join(..., key=FILE), or --key FILE. Whoever has a copy can join the group, and read and\n"
        "send all that its members do.",
        "exit status: 0 if the file is written; 2 if not\nexample: seqcast keygen orders.key",
    )
    result.add_argument("file", metavar="FILE", help="the file to write, which must not exist yet without --add")
    kinds = result.add_mutually_exclusive_group()
    kinds.add_argument("--add", action="store_true", help="add a new key to the file, as its last one")
    kinds.add_argument(
        "--identity",
        action="store_true",
        help="make the identity of one process instead, and print its line of the list of members (authorized=)",
    )
    return result.parse_args(argv)
