"""``seqcast audit JOURNAL...``: proves or refutes the guarantees from members' journals, on Spark."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from seqcast.commandline import Parser

NEEDS = ("pyspark", "seqcast.spark.audit_page", "seqcast.spark.auditing", "seqcast.spark.session")


NO_VERDICT = (
    "2 bad input, a damaged journal, or output that cannot be written; 3 Spark failed (no Java, no master,\n"
    "no memory); 130 interrupted; 70 a bug of seqcast"
)
"""The meaning of the exit statuses of commands on Spark, beside 0 and 1."""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    parser = Parser(
        "audit",
        "Prove or refute the guarantees from the journals of members, on Spark.",
        "exit status: 0 all that was checked holds, 1 a guarantee is broken, and nothing else; "
        f"without a verdict:\n{NO_VERDICT}",
    )
    add_job_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--html", metavar="FILE", help="write a page with verdicts, counter-examples and plots")
    parser.add_argument("--skip-payloads", action="store_true", help="do not hash kept payloads again")
    return parser.parse_args(argv)


def add_job_options(parser: Parser) -> None:
    """Adds the arguments that every command on Spark has: the journals, and where to run."""
    parser.add_argument("journals", nargs="+", metavar="JOURNAL", help="a member's journal, or a directory of them")
    parser.add_argument("--master", metavar="URL", help="Spark master (default: local[*], this machine)")
    parser.add_argument(
        "--ship", action="store_true", help="send seqcast to the workers of a cluster that lack it"
    )


def main(arguments: argparse.Namespace) -> int:
    """The command. Returns 0 if everything that was checked holds, otherwise 1.

    Raises:
        UsageError: bad input, a damaged journal, or a page that cannot be written: the command line turns it into one
            line and exit status 2.
        SparkFailed: the same with exit status 3.
    """
    from seqcast.spark import page
    from seqcast.spark.audit_page import audit_page
    from seqcast.spark.auditing import audit_journals, journals_of
    from seqcast.spark.session import for_a_command

    journals = journals_of(arguments.journals)
    if arguments.html:
        import_module("matplotlib")  # if it is missing, fail before the audit
    with for_a_command(arguments.master, "seqcast audit", ship=arguments.ship) as (spark, tell):
        report = audit_journals(spark, journals, payloads=not arguments.skip_payloads, tell=tell)
    with contextlib.suppress(BrokenPipeError):  # whoever read has seen enough, and the status stays that of the audit
        print(json.dumps(report.as_json(), indent=2) if arguments.json else report.as_text(), flush=True)
    if arguments.html:
        target = Path(arguments.html)
        page.write(target.parent, {target.name: audit_page(report, journals).encode()}, "--html")
    return 0 if report.holds else 1
