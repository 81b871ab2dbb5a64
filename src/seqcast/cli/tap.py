"""``seqcast tap``: serves the journals of this machine to readers on others."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

from seqcast.commandline import Parser
from seqcast.errors import UsageError

NEEDS = ("pyarrow", "seqcast.journal.tap")


def main(arguments: argparse.Namespace) -> int:
    """Serves until an interrupt."""
    from seqcast.journal.tap import Tap, read_token, shown

    directory = Path(arguments.journal)
    if not os.path.isdir(directory):
        raise UsageError(f"{directory}: no such directory; give the directory that members journal to")
    tls = {"certificate": arguments.certificate, "key": arguments.key}
    with Tap(directory, arguments.listen, read_token(arguments.token_file), **tls) as tap:
        try:
            print(f"tap at {shown(tap.address)}", flush=True)
            while True:
                time.sleep(1)  # a signal just before a wait without an end would not interrupt that
        except KeyboardInterrupt:
            return 0
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    result = Parser(
        "tap",
        "Serve the journals of this machine to readers on others, such as the tasks of a Spark cluster. The tap reads\n"
        "the files while members write them; no reader can hold up a member. Ctrl-C ends the tap.",
        "example: seqcast tap --journal journals --listen 0.0.0.0:47400 --token-file token",
    )
    result.add_argument(
        "--journal", required=True, metavar="DIR", help="a member's journal, or a directory of them, also future ones"
    )
    result.add_argument(
        "--listen",
        type=_address,
        default=("127.0.0.1", 47400),
        metavar="HOST:PORT",
        help="address for readers; port 0: any free one (127.0.0.1:47400)",
    )
    result.add_argument(
        "--token-file",
        required=True,
        metavar="FILE",
        help="file with the secret that readers must have, 16 bytes or more; `openssl rand -hex 32` makes one",
    )
    result.add_argument(
        "--certificate",
        metavar="FILE",
        help="serve through TLS: certificate of this machine, PEM (default: in clear, for networks that you trust)",
    )
    result.add_argument("--key", metavar="FILE", help="private key of the certificate, PEM")
    return result.parse_args(argv)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:47400")
    return host.strip("[]"), int(port)
