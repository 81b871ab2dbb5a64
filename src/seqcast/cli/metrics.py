"""``seqcast metrics``: the metrics of all members on this machine, for Prometheus."""

from __future__ import annotations

import argparse
import os
import socket
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from seqcast.board.read import boards
from seqcast.cli import complain
from seqcast.commandline import Parser, named_file, seconds
from seqcast.errors import UsageError
from seqcast.metrics import CONTENT_TYPE, families, text_of, unreadable

NEEDS = ()
REQUEST_S = 5.0
"""A client that has not sent its request after this long is dropped."""


def main(arguments: argparse.Namespace) -> int:
    """Prints the metrics, serves them, or writes them to a file again and again."""
    if arguments.listen is not None:
        return _serve(*_host_and_port(arguments.listen))
    if arguments.textfile:
        return _write(Path(arguments.textfile), arguments.every or 0.0)
    print(_page(), end="")
    return 0


def _page() -> str:
    return text_of([*families(boards()), unreadable()])


def _serve(host: str, port: int) -> int:
    kind, shown = (_Server6, f"[{host}]") if ":" in host else (ThreadingHTTPServer, host)
    try:
        server = kind((host, port), _Handler)
    except OSError as error:
        return complain(f"cannot listen on {shown}:{port}: {error.strerror}")
    with server:
        print(f"metrics on http://{shown}:{server.server_port}/metrics", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


class _Server6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_S

    def do_GET(self) -> None:
        if self.path.partition("?")[0] not in ("/", "/metrics"):
            self.send_error(404)
            return
        body = _page().encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Scrapes are not logged."""


def _write(path: Path, every_s: float) -> int:
    """The file is replaced as a whole: its reader never sees a part."""
    whole = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        while True:
            whole.write_text(_page(), encoding="utf-8")
            whole.replace(path)
            if not every_s:
                return 0
            time.sleep(every_s)
    except KeyboardInterrupt:
        return 0
    except OSError as error:
        return complain(f"cannot write {path}: {error.strerror}")


def _host_and_port(text: str) -> tuple[str, int]:
    host, colon, number = text.rpartition(":")
    if not colon or not number.isdecimal() or int(number) > 65535:
        raise UsageError(f"--listen {text!r} must be HOST:PORT, such as 127.0.0.1:9477 or [::1]:9477")
    return host.strip("[]"), int(number)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    result = Parser(
        "metrics",
        "Print metrics of all members on this machine in Prometheus' text format, serve them by HTTP, or write them\n"
        "to a file for node-exporter. The command reads boards and asks no process. docs/alerts.yml has alerts.",
        "example: seqcast metrics --listen 127.0.0.1:9477",
    )
    result.add_argument("--listen", metavar="HOST:PORT", help="serve them at http://HOST:PORT/metrics")
    result.add_argument(
        "--textfile", type=named_file, metavar="PATH", help="write them to this file, once or every --every seconds"
    )
    result.add_argument("--every", type=seconds, metavar="S", help="with --textfile; 0: once (0)")
    arguments = result.parse_args(argv)
    if arguments.listen and arguments.textfile:
        result.error("--listen serves the metrics, and --textfile writes them: run one process for each")
    if arguments.every is not None and not arguments.textfile:
        result.error("--every repeats the writing of a file: give --textfile PATH, too, or leave --every out")
    return arguments
