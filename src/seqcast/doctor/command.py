"""``seqcast doctor``: is this machine, and the path to that one, fit for a group?"""

from __future__ import annotations

import argparse
import json
import socket
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import seqcast.codes as codes
from seqcast.commandline import Parser, add_key, seconds, whole
from seqcast.errors import UsageError

if TYPE_CHECKING:
    from seqcast.doctor.lines import Line
    from seqcast.doctor.path import OwnAddress

NEEDS = ("seqcast.doctor.path", "seqcast.doctor.listen", "seqcast.doctor.seeds")
GIVEN = (
    "interface", "ip_version", "transport", "seeds", "port", "port_range", "advertise", "key", "identity", "authorized",
    "cipher",
)  # fmt: skip
PORT = 47320
LONG_S, LISTEN_S = 360.0, 600.0


def main(arguments: argparse.Namespace) -> int:
    """Prints a line for each look."""
    if arguments.listen is not None:
        return _listen(arguments.listen)
    found = []
    for line in _looks(arguments):
        found.append(line)
        if not arguments.json:
            print(line.text(), flush=True)
    failed = any(line.level == "FAIL" for line in found)
    if arguments.json:
        print(json.dumps({"ok": not failed, "lines": [line.item() for line in found]}))
    else:
        print(f"{'result':18}{_result(found, bool(arguments.other))}")
    return 1 if failed else 0


def _looks(arguments: argparse.Namespace) -> Iterator[Line]:
    from seqcast.config import Config
    from seqcast.core.rules.hosts import host_of
    from seqcast.doctor.lines import FAIL, Line
    from seqcast.doctor.path import Path
    from seqcast.doctor.seeds import look_around

    given = {name: value for name in GIVEN if (value := getattr(arguments, name)) is not None}
    if ":" in _host_and_port(arguments.other or "")[0]:
        given["ip_version"] = 6
    config = Config.for_command(**given)
    own, public = yield from look_around(config)
    if not arguments.other:
        return
    host, port = _host_and_port(arguments.other)
    try:
        path = Path(host, port, host_of(own))
    except socket.gaierror as error:
        raise UsageError(f"--with {arguments.other}: {error.strerror or error}") from None
    except OSError as error:
        yield Line(FAIL, "unicast", f"{host} cannot be reached: {error.strerror or error}", codes.NO_ROUTE)
        return
    try:
        named = config.transport == "unicast" or config.seeds or config.advertise  # otherwise any free port will do
        member = _place(own, public, bool(config.key)) if own and public and named else None
        yield from path.look(arguments.long or 0.0, multicast=config.transport != "unicast", member=member)
    finally:
        path.close()


def _place(own: bytes, public: bytes, keyed: bool) -> OwnAddress:
    from seqcast.core.rules.hosts import host_of
    from seqcast.doctor.path import OwnAddress

    (host, port), told = ((host_of(each), int.from_bytes(each[1:3], "big")) for each in (own, public))
    return OwnAddress(host, port, told, keyed)


def _result(found: Sequence[Line], tried: bool) -> str:
    failed, warned = ({line.word for line in found if line.level == level} for level in ("FAIL", "WARN"))
    if "multicast" in failed and "unicast" in {line.word for line in found} - failed:
        return 'unicast works, multicast does not: transport="unicast" with seeds= needs no multicast'
    if failed:
        return "a group does not work like this"
    lost = "seeds" in warned
    if not tried:
        but = ", but seeds lead nowhere" if lost else ""
        return f"this machine is fit{but}; no path was tried: run `seqcast doctor --listen` there, and --with HOST here"
    if lost:
        return "a group works with that host, but seeds lead nowhere"
    return "a group works; the warnings say what slows it down" if warned else "a group works"


def _listen(text: str) -> int:
    from seqcast.doctor.listen import Listener

    port = PORT if text == "" else _port(text)
    try:
        listener = Listener("", port)
    except OSError as error:
        raise UsageError(f"--listen: UDP port {port}: {error.strerror}") from None
    try:
        print(f"listens on UDP ports {port} and {port + 1} for {LISTEN_S:.0f} s", flush=True)
        listener.run(LISTEN_S)
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
    return 0


def _host_and_port(text: str) -> tuple[str, int]:
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, _port(port[1:]) if port else PORT
    if text.count(":") > 1:
        return text, PORT
    host, colon, port = text.rpartition(":")
    return (host, _port(port)) if colon else (text, PORT)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65534:
        raise UsageError(f"{text!r} must be a UDP port, 1 to 65534")
    return int(text)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    from seqcast.config import CIPHERS, TRANSPORTS

    result = Parser(
        "doctor",
        "Check whether this machine, and the path to another one, is fit for a group. Each line has a level (ok,\n"
        "note, WARN, FAIL), the fact, and if something is wrong, a code (docs/codes.md) and the remedy.",
        "exit status: 0; 1 if a line says FAIL\n"
        "example: seqcast doctor --listen on one machine, then seqcast doctor --with 10.0.0.7 on the other",
    )
    result.add_argument("--interface", help="network interface, by name or address (default: as the system routes)")
    result.add_argument(
        "--transport",
        choices=TRANSPORTS,
        help="how the members would send (auto): with unicast no lack of multicast is a fault",
    )
    result.add_argument("--ip-version", type=int, choices=(4, 6), help="version of IP (4, or that of --with)")
    result.add_argument("--seeds", metavar="HOST,...", help="addresses of possible members: tries whether they exist")
    result.add_argument("--port", type=lambda text: whole(text, 1, 65534), metavar="N", help="UDP port (47310)")
    result.add_argument(
        "--port-range", type=lambda text: whole(text, 0, 1000), metavar="N", help="ports after it of members (4)"
    )
    result.add_argument(
        "--advertise", metavar="HOST[:PORT]", help="address at which others would be told to reach a member here"
    )
    add_key(result, CIPHERS)
    result.add_argument(
        "--with", dest="other", metavar="HOST[:PORT]", help="measure the path to HOST; of an IPv6 address, [HOST]:PORT"
    )
    result.add_argument(
        "--listen", nargs="?", const="", metavar="PORT", help="be the other end, for ten minutes (UDP 47320 and 47321)"
    )
    result.add_argument(
        "--long",
        type=seconds,
        nargs="?",
        const=LONG_S,
        metavar="S",
        help="with --with: repeat multicasts for S seconds (360), as switches forget memberships after 260",
    )
    result.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = result.parse_args(argv)
    looks = arguments.other or arguments.json or any(getattr(arguments, name) is not None for name in (*GIVEN, "long"))
    if arguments.listen is not None and looks:
        result.error("--listen is the other end, which finds nothing itself: give it alone, and --with HOST over there")
    if arguments.other == "":
        result.error("--with is empty: give the HOST to which the path is measured")
    if arguments.long is not None and not arguments.other:
        result.error("--long repeats multicasts to another machine: give --with HOST, too")
    if arguments.long is not None and arguments.transport == "unicast":
        result.error("--long repeats multicasts, and --transport unicast sends none: leave one of them out")
    return arguments
