"""Members on sockets that answer each other: their journals pass the audit, causal order included."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from members import group_of, payloads

import seqcast
from seqcast.config import keys
from seqcast.journal.places import find
from seqcast.spark.auditing import audit_journals

QUESTIONS = 200


def answer(group: seqcast.Group, begins: bytes) -> None:
    """Receives all messages, and answers each that begins so with the same behind the member's name."""
    received = 0
    while received < 3 * QUESTIONS:
        for payload in payloads(group, 1):
            received += 1
            if payload.startswith(begins):
                group.send(group.member.name.encode() + payload)


@pytest.mark.parametrize(("order", "keyed"), [("causal", False), ("causal", True), ("records", True)])
def test_members_that_answer_each_other_pass_the_audit(here: Any, tmp_path: Path, order: str, keyed: bool) -> None:
    """One asks, another one answers, and a third one answers the answers, while questions still come."""
    settings = {"order": order, "journal": str(tmp_path / "journals")}
    if keyed:
        pytest.importorskip("nacl")
        keys.make(str(tmp_path / "key"))
        settings["key"] = str(tmp_path / "key")
    with group_of(3, **settings) as (a, b, c), ThreadPoolExecutor() as pool:
        told = [pool.submit(answer, *each) for each in ((a, b"nothing"), (b, b"?"), (c, b"b"))]
        for i in range(QUESTIONS):
            a.send(b"?%d" % i)
        for each in told:
            each.result()
    journals = find([tmp_path / "journals"])
    audit = audit_journals(here, journals)
    (report,) = audit.reports
    assert audit.holds and report.rows == 3 * 3 * QUESTIONS, report.as_text()
    causal = report.verdicts["causal"]
    if order == "causal":
        assert causal.result is True and int(causal.compared.split()[0].replace(",", "")) > 0, report.as_text()
    else:  # a total order implies this
        assert causal.result is None and report.verdicts["total order"].result is True, report.as_text()
    for journal in journals:
        place = {message.payload: at for at, message in enumerate(journal.messages())}
        assert all(place[payload[1:]] < at for payload, at in place.items() if not payload.startswith(b"?"))
