"""The exit status of ``seqcast audit``: 1 is a broken guarantee, and nothing else."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from halves import first_quick

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from journal_data import Row, journal, member, view

from seqcast.errors import SparkFailed
from seqcast.spark.session import open_session

A, B = member("a"), member("b")

WITHOUT_SPARK = """
import os, signal
from seqcast import cli
from seqcast.journal import JournalDamaged
from seqcast.spark import auditing, session
from seqcast.spark.verdicts import Audit, Report

class Session:
    def stop(self):
        pass

def broken(*_, **__):
    report = Report(cluster="test", journals=2, rows=2, torn=0)
    report.violation("gaps", "b delivered no global seqno 2")
    return Audit((report,))

def fails(error):
    raise error

for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # the parent may ignore some: nohup, a job with &
    signal.signal(number, signal.SIG_DFL)
session.open_session = lambda *_, **__: Session()
auditing.audit_journals = lambda *_, **__: {what}
cli.process()
"""

JOB_THAT_NEVER_ENDS = """
import signal, time
from seqcast import cli
from seqcast.spark import auditing

for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)

def sleep(_):
    time.sleep(600)

def summaries(spark, journals, payloads):
    spark.sparkContext.parallelize([1], 1).map(sleep).collect()

auditing._summaries = summaries
cli.process()
"""


@pytest.fixture
def journals(tmp_path: Path) -> str:
    of = view(1, [A, B])
    for who in (A, B):
        journal(tmp_path / "journals", who, [(of, [Row(A, 1, 0, 1, b"x")])])
    return str(tmp_path / "journals")


def audit(
    code: str, *arguments: str, stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, "audit", *arguments]
    return subprocess.run(command, stdout=stdout, stderr=stderr, text=True, timeout=120)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("what", "status", "says"),
    [
        (
            "fails(JournalDamaged('no'))",
            2,
            "seqcast: damage: no; restore it from a copy, or leave this journal out (SC6008)",
        ),
        ("fails(MemoryError('none left'))", 3, "seqcast: Spark failed: none left (SC6002)"),
        ("fails(ConnectionRefusedError(111, 'no Java'))", 3, "seqcast: Spark failed: [Errno 111] no Java (SC6002)"),
        ("fails(ZeroDivisionError())", 70, "seqcast: this is a bug of seqcast: please report it, with the lines above"),
        *((f"os.kill(os.getpid(), {number})", 130, "seqcast: interrupted") for number in (1, 2, 15)),
    ],
)
def test_an_audit_without_a_verdict_does_not_say_that_a_guarantee_is_broken(
    journals: str, what: str, status: int, says: str
) -> None:
    done = audit(WITHOUT_SPARK.format(what=what), journals)
    assert (done.returncode, last_line(done), done.stdout) == (status, says, ""), done.stderr


def test_spark_without_temporary_files_gives_no_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    says = r"^no temporary files can be written: .*; free some space, or set TMPDIR \(SC6002\)$"
    with pytest.raises(SparkFailed, match=says):
        open_session()


@pytest.mark.long
def test_output_that_cannot_be_written_gives_no_verdict(journals: str, tmp_path: Path) -> None:
    code = WITHOUT_SPARK.format(what="broken()")
    assert audit(code, journals).returncode == 1
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as full:
            done = audit(code, journals, "--json", stdout=full.fileno())
        assert done.returncode == 2 and "cannot write the output: No space left" in last_line(done)
    (tmp_path / "file").touch()
    pytest.importorskip("matplotlib")
    done = audit(code, journals, "--html", str(tmp_path / "file" / "audit.html"))
    assert done.returncode == 2 and "name another folder with --html" in last_line(done)
    assert "b delivered no global seqno 2" in done.stdout  # hours of work are not lost with the page


def test_a_reader_that_goes_away_does_not_turn_a_broken_guarantee_into_a_pass(journals: str) -> None:
    out, into = os.pipe()
    os.close(out)
    try:
        done = audit(WITHOUT_SPARK.format(what="broken()"), journals, stdout=into)
    finally:
        os.close(into)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize(("what", "status"), first_quick([("broken()", 1), ("fails(ZeroDivisionError())", 70)]))
def test_a_reader_of_errors_that_goes_away_does_not_change_the_status(journals: str, what: str, status: int) -> None:
    """Its stages go to standard error, too: ``seqcast audit journals 2>&1 | head -1``."""
    out, into = os.pipe()
    os.close(out)
    try:
        done = audit(WITHOUT_SPARK.format(what=what), journals, stderr=into)
    finally:
        os.close(into)
    assert done.returncode == status and ("b delivered no global seqno 2" in done.stdout) == (status == 1)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_job_that_runs_without_a_traceback(journals: str, number: int) -> None:
    command = [sys.executable, "-c", JOB_THAT_NEVER_ENDS, "audit", journals]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = [process.stderr.readline()]
            while "reading" not in lines[-1]:
                assert process.poll() is None, lines
                lines.append(process.stderr.readline())
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out) == (130, "") and err.splitlines()[-1] == "seqcast: interrupted", err
    assert "Traceback" not in err
