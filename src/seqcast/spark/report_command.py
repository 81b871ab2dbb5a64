"""``seqcast report JOURNAL...``: latency, throughput and events meanwhile, from members' journals, on Spark."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from seqcast.commandline import Parser
from seqcast.spark.command import NO_VERDICT, add_job_options

NEEDS = ("pyspark", "matplotlib", "seqcast.spark.auditing", "seqcast.spark.report", "seqcast.spark.session")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    parser = Parser(
        "report",
        "Latency by sender and member, throughput, and the events meanwhile, from members' journals, on Spark.",
        f"exit status: 0;\n{NO_VERDICT}",
    )
    add_job_options(parser)
    folder = "folder for report.html and the plots (%(default)s)"
    parser.add_argument("--out", metavar="DIR", default="report", help=folder)
    parser.add_argument("--json", action="store_true", help="print the table, windows of time and events as JSON")
    return parser.parse_args(argv)


def main(arguments: argparse.Namespace) -> int:
    """The command.

    Raises:
        UsageError: bad input, a damaged journal, or a folder that cannot be written.
        SparkFailed: Spark does not start, or fails.
    """
    from seqcast.spark.auditing import journals_of
    from seqcast.spark.report import as_json, as_text, measure, table, write
    from seqcast.spark.session import for_a_command

    journals = journals_of(arguments.journals)
    with for_a_command(arguments.master, "seqcast report", ship=arguments.ship) as (spark, tell):
        timed = measure(spark, journals, tell)
    rows = table(timed)
    clusters = ", ".join(sorted({repr(journal.cluster) for journal in journals}))
    paths = write(timed, rows, Path(arguments.out), f"How fast did {clusters} deliver, and what went wrong?")
    print(json.dumps(as_json(timed, rows), indent=2) if arguments.json else as_text(timed, rows))
    if not arguments.json:
        print("written:", *paths)
    return 0
