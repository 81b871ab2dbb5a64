"""Why Spark cannot start, or cannot run this program, is told at once and in one line, with the remedy."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.errors import PySparkRuntimeError

import seqcast
import seqcast.spark
from seqcast.errors import SparkFailed
from seqcast.spark import session


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: Any) -> None:
        raise AssertionError("Java would be started")

    monkeypatch.setattr(session, "_start_java", start)


def python(tmp_path: Path, prints: str) -> str:
    file = tmp_path / "python"
    file.write_text(f"#!/bin/sh\necho {prints}\n")
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    "master", ["nonsense", "local[x]", "spark://host", "http://host:7077", "spark://h:1,g", "local;"]
)
def test_a_text_that_is_not_a_master_is_refused(master: str) -> None:
    with pytest.raises(seqcast.UsageError, match="is not a Spark master: give local"):
        seqcast.spark.open_session(master)


@pytest.mark.parametrize(
    "master", ["local", "local[2]", "local[*]", "local[4,2]", "local-cluster[2,1,1024]", "yarn", "k8s://https://h:443"]
)
def test_masters_that_cannot_be_asked_are_left_to_spark(master: str) -> None:
    session._check_master(master)


def test_a_master_that_does_not_answer_is_told_at_once_and_one_of_several_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        session._check_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    with pytest.raises(SparkFailed, match=r"no Spark master answers at spark://127.0.0.1:\d+ \(.*refused\): start one"):
        seqcast.spark.open_session(f"spark://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("prints", "says"),
    [
        (
            "3.7",
            r"is Python 3\.7, and this is 3\.\d+: both must be the same; unset PYSPARK_PYTHON, or set "
            r"it to a Python 3\.\d+ with pyarrow, numpy and pandas",
        ),
        ("{}.{} numpy".format(*sys.version_info), "has no numpy: unset PYSPARK_PYTHON"),
        ("", "does not run"),
    ],
)
def test_a_python_that_cannot_run_tasks_is_told_before_java_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str, says: str
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", python(tmp_path, prints))
    with pytest.raises(SparkFailed, match=says):
        seqcast.spark.open_session("local[2]")
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "none"))
    with pytest.raises(SparkFailed, match="does not run"):
        seqcast.spark.open_session("local[2]")


def test_this_python_by_another_name_can_run_tasks() -> None:
    session._check_python(os.path.join(os.path.dirname(sys.executable), ".", "python"))


def test_a_temporary_directory_without_programs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.X_OK and access(path, mode))
    with pytest.raises(SparkFailed, match=r"mounted noexec.*set TMPDIR to a directory where they can"):
        session._files_of(Path(sys.executable))


@pytest.mark.parametrize(
    ("reason", "cure"),
    [
        ("ModuleNotFoundError: No module named 'seqcast'", "--ship"),
        ("ModuleNotFoundError: No module named 'numpy'", "PYSPARK_PYTHON"),
        ("PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version", "PYSPARK_PYTHON"),
        ("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.", "the master"),
    ],
)
def test_errors_of_spark_come_with_the_remedy(reason: str, cure: str) -> None:
    with pytest.raises(SparkFailed) as failed, session.told_in_a_line():
        raise PySparkRuntimeError(f"Job aborted:\n  at somewhere\n{reason}\n  at elsewhere")
    assert reason in str(failed.value) and cure in str(failed.value) and "\n" not in str(failed.value)


def test_settings_of_spark_connect_in_the_environment_are_not_for_this_session(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SPARK_REMOTE", "sc://localhost:1"), ("SPARK_API_MODE", "connect")):
        monkeypatch.setenv(name, value)
    seen: list[Any] = []

    def start(_: Any) -> None:
        seen.append([name for name in os.environ if name in ("SPARK_REMOTE", "SPARK_API_MODE")])
        raise OSError("enough")

    monkeypatch.setattr(session, "_start_java", start)
    with pytest.raises(SparkFailed, match="enough"):
        seqcast.spark.open_session("local[2]")
    assert seen == [[]] and os.environ["SPARK_REMOTE"] == "sc://localhost:1"


def test_the_audit_says_that_it_cannot_use_spark_connect(tmp_path: Path) -> None:
    remote: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(seqcast.UsageError, match=r"Spark Connect does not have: give it a session of .*open_session"):
        seqcast.spark.audit(remote, tmp_path)
