"""The arguments of ``seqcast perf``: its help, and the bounds of each option."""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
from collections.abc import Sequence
from typing import Any

from seqcast.commandline import Parser, add_pace, named_file, whole
from seqcast.config import CIPHERS, CONGESTIONS, PARTITIONS, PRESETS, TRANSPORTS
from seqcast.journal.schema import PAYLOAD_MODES
from seqcast.perf.hosts import VIA
from seqcast.perf.paths import PATHS
from seqcast.types import ORDERS

MEMBERS_MAX = 64
SIZE_MIN = 8
"""Each message carries a number."""
KINDS = ("batches", "plain", "aio", "c")
LATENCY_SIZE_MAX = 65000

DESCRIPTION = """throughput and latency, beside the raw limit measured in the same run

Each member is a process of its own. Each pair of runs compares a seqcast group with two baselines in plain C that send
the same packets on the same path: "raw" has no protocol, only a credit counter in shared memory (across hosts:
datagrams); "limit" has the same credit window and acks, a CRC32C on both sides, one copy in and one copy out. Figures
are medians over the pairs, with the minimum and maximum beside them. Two paths are measured: loopback, inside one
kernel, and, if network namespaces can be created, one on which every packet crosses on its own, as on a real network.
"""

EPILOG = """exit status: 0; 1 if a message was lost, duplicated, out of order or missing from a journal, or if a member
failed; 2 for bad input; 130 if interrupted

figures of --json:
  sent_msgs_per_s, delivered_msgs_per_s (at the slowest receiver, until its last message), delivered_mb_per_s,
  lost (sum over receivers and runs), retransmitted_packets, cpu_us_per_msg (all members, per message sent),
  acks_per_packet (received by all members, per packet sent), throttled_s (stopped by a CPU quota, summed over the
  runs, in each the member that was stopped longest),
  rss_mb (the largest member, after the run), raw_mb_per_s, limit_mb_per_s (whole packets), ratio_to_raw,
  ratio_to_limit, spread (minimum and maximum of each); with --loss also loss_free_msgs_per_s and
  ratio_to_loss_free; with --journal journal_free_msgs_per_s, journal_ratio and journal_missing (messages
  delivered but not in a journal); with --latency latency_us and raw_latency_us (of half a round trip: p50, p99, p999,
  max), and with --kind aio recv_latency_us and ratio_to_recv, of the same without asyncio;
  drained (of a run's length, how long after it the slowest receiver's last message came);
  with --hosts hosts, nics (interface, driver, MTU, speed, rings), throttled (the same of each host), dropped
  (datagrams that each host dropped at full sockets, in softnet, at the card and in queues before it), dropped_between
  (packets repeated that no host has dropped) and ratio_to_line (payload, of the slowest card);
  other_paths: the same figures on the other paths
"""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the arguments; ends the process with status 2 if one is wrong."""
    parser = Parser("perf", DESCRIPTION, EPILOG)
    parser.add_argument(
        "--members",
        type=int,
        metavar="N",
        help="processes (4; with --latency 2: of more, those beyond two only listen, and the first of them is the "
        "sequencer, so that an ordered message needs a second hop)",
    )
    parser.add_argument("--senders", type=int, default=1, metavar="N", help="how many of them send (%(default)s)")
    parser.add_argument("--size", type=int, metavar="BYTES", help="size of a message (1024; with --latency 64)")
    parser.add_argument(
        "--kind",
        choices=KINDS,
        default="batches",
        help="how applications send and receive; batches: arrays of messages without the sender's own, the most that "
             "is possible; plain: `send` in a loop and `for message in group`, all settings default; aio: the same in "
             "asyncio (%(default)s); with --latency, aio: in asyncio, and without it for comparison; c, with --latency "
             "only: in C, by the table of functions of seqcast.embed",
    )
    parser.add_argument(
        "--order", choices=ORDERS, help="order of delivery (fifo; with --kind plain or aio the default of join, total)"
    )
    parser.add_argument("--port", type=port, metavar="N", help="UDP port of the groups (47310)")
    parser.add_argument(
        "--key", type=named_file, metavar="FILE", help="members seal their datagrams with this key (none)"
    )
    parser.add_argument("--cipher", choices=CIPHERS, help="with --key: the cipher of messages (auto)")
    parser.add_argument("--transport", choices=TRANSPORTS, help="how messages to the group travel (auto)")
    parser.add_argument(
        "--seeds", metavar="HOST,...", help="meeting points of members without multicast (the hosts of the run)"
    )
    add_pace(parser, CONGESTIONS)
    parser.add_argument("--preset", choices=PRESETS, help="network that the timeouts suit (lan)")
    parser.add_argument("--partition", choices=PARTITIONS, help="behaviour in a network partition (merge)")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="length of each run (%(default)g)")
    parser.add_argument(
        "--pairs", type=int, default=5, metavar="N", help="number of runs of each kind, interleaved (%(default)s)"
    )
    parser.add_argument(
        "--path",
        choices=("both", *PATHS),
        default="both",
        help="path of the packets; both: loopback and, if possible, veth-segmented",
    )
    parser.add_argument(
        "--interface",
        metavar="NAME",
        help="instead of a path: all members on this interface of the machine, by name or IPv4 address",
    )
    parser.add_argument(
        "--hosts",
        metavar="HOST,...",
        default="",
        help="instead of a path: members on these hosts, one on each (or --members, in turn), beside plain C on the "
        "same hosts, with credit by datagrams in both baselines; with --interface on that interface of each host",
    )
    parser.add_argument(
        "--via",
        metavar="COMMAND",
        default=VIA,
        help="command that runs another one on {host}, with its standard input and output: ssh, kubectl exec -i, "
        "docker exec -i, ip netns exec (%(default)s)",
    )
    parser.add_argument(
        "--anyway",
        action="store_true",
        help="with --hosts: measure though other programs keep a host busy, and count runs whose last message is late",
    )
    parser.add_argument("--python", metavar="PATH", default="", help="Python of the hosts (as here)")
    parser.add_argument(
        "--loss", type=float, metavar="PERCENT", help="also run with this share of datagrams dropped by the kernel"
    )
    parser.add_argument(
        "--journal",
        choices=PAYLOAD_MODES,
        help="also run with every member journaling its deliveries: whole payloads (full) or their hashes; "
        "the journals are checked and removed after each run",
    )
    parser.add_argument(
        "--journal-folder", metavar="FOLDER", help="directory for the journals (the temporary directory)"
    )
    parser.add_argument(
        "--latency", action="store_true", help="measure latency instead: a ping-pong between two members"
    )
    parser.add_argument(
        "--rate",
        type=int,
        default=0,
        metavar="N",
        help="with --latency: N questions per second, whether answers come or not; a round trip begins when its "
             "question should have been sent, so that a stall counts for all delayed ones",
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="round trips of the ping-pong (5000 for each second)")
    parser.add_argument(
        "--wait", choices=("blocking", "spinning"), default="blocking", help="how the ping-pong waits (%(default)s)"
    )
    parser.add_argument(
        "--cores",
        choices=("same", "different", "any"),
        help="cores that the two sides of the ping-pong run on; any: the kernel chooses, as with --hosts (different)",
    )
    parser.add_argument(
        "--matrix",
        metavar="AXES",
        default="",
        help="measure each combination, such as sizes=64,1024:orders=fifo,total:members=2,3:transports=auto,unicast; "
        "those that --out has already are not measured again, and all its figures must have the same other options",
    )
    parser.add_argument("--out", metavar="FILE", default="", help="with --matrix: a line of JSON for each combination")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(argv)
    check(parser, arguments)
    return arguments


def given(parser: Parser, arguments: argparse.Namespace, *names: str) -> list[str]:
    """Those of the options that have another value than their default."""
    return [name for name in names if getattr(arguments, name) != parser.get_default(name)]


def check(parser: Parser, arguments: argparse.Namespace) -> None:
    """Refuses values that are out of bounds, and fills in the defaults that depend on another option."""
    from seqcast.config import Config

    if arguments.order is None:
        arguments.order = "fifo" if arguments.kind == "batches" else ORDERS[0]
    if arguments.kind != "batches" and arguments.senders != 1:
        parser.error(f"--kind {arguments.kind} has one sender: leave --senders out")
    if arguments.size is None:
        arguments.size = 64 if arguments.latency else 1024
    if arguments.members is None:
        several = max(2, arguments.hosts.count(",") + 1) if arguments.hosts else 4
        arguments.members = 2 if arguments.latency else several
    size_max = LATENCY_SIZE_MAX if arguments.latency else Config().message_bytes_max
    if not SIZE_MIN <= arguments.size <= size_max:
        parser.error(f"--size must be from {SIZE_MIN} to {size_max} bytes: each message carries a number")
    if arguments.latency:
        check_latency(parser, arguments)
    elif arguments.kind == "c":
        parser.error("--kind c is a ping-pong, and needs --latency")
    elif given(parser, arguments, "rounds", "rate", "wait", "cores"):
        parser.error("--rounds, --rate, --wait and --cores need --latency")
    if not 2 <= arguments.members <= MEMBERS_MAX:
        parser.error(f"--members must be from 2 to {MEMBERS_MAX}")
    if not 1 <= arguments.senders <= arguments.members:
        parser.error("--senders must be from 1 to the number of members")
    if not 0.05 <= arguments.seconds <= 3600:
        parser.error("--seconds must be from 0.05 to 3600")
    if not 1 <= arguments.pairs <= 1000:
        parser.error("--pairs must be from 1 to 1000")
    if arguments.loss is not None and not 0 < arguments.loss <= 50:
        parser.error("--loss must be more than 0 and at most 50 percent")
    check_place(parser, arguments)
    check_journal(parser, arguments)
    check_matrix(parser, arguments)


def check_matrix(parser: Parser, arguments: argparse.Namespace) -> None:
    """The same for a matrix: each of its combinations must be in bounds."""
    from seqcast.perf.matrix import combinations

    if bool(arguments.matrix) != bool(arguments.out):
        parser.error("--matrix and --out need each other")
    if not arguments.matrix:
        return
    try:
        wanted = list(combinations(arguments.matrix))
    except ValueError as error:
        parser.error(f"--matrix: {error}")
    for combination in wanted:
        check(parser, argparse.Namespace(**{**vars(arguments), **dict(combination), "matrix": "", "out": ""}))


def check_place(parser: Parser, arguments: argparse.Namespace) -> None:
    """The same for the options that say where to measure."""
    if arguments.hosts:
        if arguments.path != "both" or arguments.loss is not None or arguments.journal is not None:
            parser.error("--hosts measures the existing network between hosts: leave --path, --loss and --journal out")
    elif given(parser, arguments, "via", "python", "anyway"):
        parser.error("--via, --python and --anyway need --hosts")
    if arguments.interface is not None and (arguments.path != "both" or arguments.loss is not None):
        parser.error("--interface measures on an existing interface: leave --path and --loss out")


def check_latency(parser: Parser, arguments: argparse.Namespace) -> None:
    """The same for the options of a ping-pong."""
    if arguments.kind == "batches":
        arguments.kind = "plain"
    for name in given(parser, arguments, "senders", "loss", "journal"):
        parser.error(f"--latency runs a ping-pong between two members: leave --{name} out")
    if arguments.rate and (not 1 <= arguments.rate <= 1_000_000 or arguments.kind != "plain"):
        parser.error("--rate must be from 1 to 1000000, with plain loops")
    if arguments.rounds is None:
        arguments.rounds = max(1, int(arguments.seconds * (arguments.rate or 5000)))
    if not 1 <= arguments.rounds <= 10_000_000:
        parser.error("--rounds must be from 1 to 10000000")
    check_cores(parser, arguments)


def check_cores(parser: Parser, arguments: argparse.Namespace) -> None:
    """The same for the cores of a ping-pong; between hosts those of this machine do not count."""
    if arguments.cores is None:
        arguments.cores = "any" if arguments.hosts else "different"
    if arguments.hosts:
        if arguments.cores != "any":
            parser.error(f"--cores {arguments.cores} is for a ping-pong on this machine: leave --cores or --hosts out")
        return
    cores = usable_cores()
    if arguments.wait == "spinning" and (len(cores) < 2 or arguments.cores == "same"):
        parser.error("--wait spinning needs one core for each side")
    if arguments.cores == "different" and len(cores) < 2:
        parser.error("this machine has only one core: give --cores same")


def check_journal(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """The same for the options of journals."""
    if arguments.journal is None:
        if arguments.journal_folder is not None:
            parser.error("--journal-folder needs --journal")
        return
    if arguments.loss is not None:
        parser.error("--journal and --loss cannot be combined")
    if importlib.util.find_spec("pyarrow") is None:
        parser.error("--journal needs pyarrow: pip install 'seqcast[journal]'")
    arguments.journal_folder = arguments.journal_folder or tempfile.gettempdir()
    if not os.access(arguments.journal_folder, os.W_OK | os.X_OK) or not os.path.isdir(arguments.journal_folder):
        parser.error(f"--journal-folder {arguments.journal_folder} is not a writable directory; give another")


def usable_cores() -> list[int]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def pinned(arguments: argparse.Namespace) -> tuple[int, int] | None:
    """The cores of the two sides of a ping-pong; None: not pinned."""
    cores = usable_cores()
    if arguments.cores == "any" or not hasattr(os, "sched_setaffinity"):
        return None
    return cores[0], cores[0] if arguments.cores == "same" else cores[1]


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The given settings of members."""
    names = ("port", "preset", "partition", "key", "cipher", "transport", "seeds", "congestion", "send_bytes_per_s")
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}


def port(text: str) -> int:
    """A port number whose successor is a port number too."""
    return whole(text, 1, 65534)
