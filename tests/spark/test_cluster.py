"""Audit and stream on a Spark cluster of this machine: a standalone master and two workers from the pip package."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyspark
from journal_data import Row, journal, member, view
from members import SHORT_LIVED_JAVA, wait_until

from seqcast.journal.tap import Tap
from seqcast.spark.session import find_java

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

A, B = member("a"), member("b")
V1 = view(1, [A, B])
ROWS = [Row((A, B)[at % 2], 1 + at, 0, 1 + at, b"payload %d" % at) for at in range(5000)]
TOKEN = "a token of 16 bytes or more"


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its URL. Ports are those that it takes: one that was free a moment ago another test may have by then."""
    top = tmp_path_factory.mktemp("spark-cluster")
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": str(find_java().parent.parent)}
    environment |= {"SPARK_HOME": str(home), "SPARK_WORKER_DIR": str(top), "SPARK_DAEMON_MEMORY": "256m"}
    environment |= SHORT_LIVED_JAVA
    environment.pop("PYTHONPATH", None)
    here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with contextlib.ExitStack() as stack:

        def start(what: str, *arguments: str) -> Path:
            log = stack.enter_context(open(top / f"{what}.log", "ab"))
            run = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", *here, *arguments]
            process = subprocess.Popen(run, env=environment, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return Path(log.name)

        log = start("master.Master")

        def logged(pattern: str) -> list[str]:
            return re.findall(pattern, log.read_text("utf-8"))

        wait_until(lambda: logged(r"Starting Spark master at spark://\S+\n"), 240)
        (url,) = logged(r"Starting Spark master at (spark://\S+)\n")
        for _ in range(2):
            start("worker.Worker", "--cores", "1", "--memory", "1g", url)
        wait_until(lambda: len({*logged(r"Registering worker (\S+) ")}) == 2, 240)  # one may ask again
        yield url


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has seqcast's dependencies, pyarrow and NumPy, and not seqcast."""
    directory = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(directory)}))
    for name in ("pyarrow", "numpy", "pandas"):
        where = Path(__import__(name).__file__ or "").parent
        for path in (where, *where.parent.glob(f"{name}.libs"), *where.parent.glob(f"{name}-*.dist-info")):
            (packages / path.name).symlink_to(path)
    for name in ("dateutil", "pytz", "six.py"):  # of pandas
        for path in Path(__import__("pandas").__file__ or "").parents[1].glob(name):
            (packages / path.name).symlink_to(path)
    python = directory / "bin" / "python"
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run([python, "-c", "import seqcast"], cwd=directory, env=clean, capture_output=True)
    assert found.returncode
    return str(python)


JOB = """
    import sys
    import pyarrow.parquet
    import seqcast.spark
    master, journals, tap, token, table, ship = sys.argv[1:]
    spark = seqcast.spark.open_session(master, ship=ship == "ship")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    seqcast.spark.register(spark)
    audit = seqcast.spark.audit(spark, [journals])
    print("audit", audit.holds)
    source = spark.readStream.format("seqcast").option("tap", tap).option("token", token)
    rows = source.option("maxRowsPerBatch", "2500").load().select("idx", "payload")
    query = rows.writeStream.format("parquet").option("checkpointLocation", table + "-c")
    query.trigger(availableNow=True).start(table).awaitTermination()
    print("stream", sorted(pyarrow.parquet.read_table(table)["idx"].to_pylist()) == list(range(5000)))
    ran = spark.sparkContext.range(2, numSlices=2).map(lambda _: __import__("seqcast").__file__).distinct().collect()
    print("seqcast in", *ran)
    spark.stop()
"""


@pytest.mark.parametrize("ship", [False, True])
def test_audit_and_stream_run_on_a_cluster(master: str, bare_python: str, tmp_path: Path, ship: bool) -> None:
    for who in (A, B):
        journal(tmp_path / "journals", who, [(V1, ROWS)], payload="full")
    environment = {**os.environ, **SHORT_LIVED_JAVA}
    if ship:
        environment["PYSPARK_PYTHON"] = bare_python
    with Tap(tmp_path / "journals", ("127.0.0.1", 0), TOKEN.encode()) as tap:
        arguments = [master, str(tmp_path / "journals"), f"127.0.0.1:{tap.address[1]}", TOKEN, str(tmp_path / "table")]
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(JOB), *arguments, "ship" if ship else "no"],
            capture_output=True, text=True, env=environment, timeout=270,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        assert "audit True\nstream True\n" in done.stdout
        shipped = done.stdout.rpartition("seqcast in")[2]
        assert ("seqcast-package" in shipped) == ship, shipped
        assert tap.counters["rows"] >= 5000


def test_a_local_session_runs_its_workers_with_the_python_that_the_environment_names(tmp_path: Path) -> None:
    python = tmp_path / "python-of-the-user"
    python.write_text(f'#!/bin/sh\ntouch "{tmp_path}/ran"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    job = """
        import seqcast.spark

        spark = seqcast.spark.open_session("local[1]")
        print("workers", spark.sparkContext.range(1).map(lambda _: "ran").collect())
        spark.stop()
    """
    environment = {**os.environ, **SHORT_LIVED_JAVA, "PYSPARK_PYTHON": str(python)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(job)], capture_output=True, text=True, env=environment, timeout=120
    )
    assert "workers ['ran']" in done.stdout, done.stderr[-3000:]
    assert (tmp_path / "ran").exists()
