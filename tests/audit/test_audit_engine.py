"""The engine's own batches, journaled as they are and audited: split messages, loss and unicasts included."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from engines import Net, feed, messages
from journal_data import RUN_DTYPE

from seqcast._native import engine
from seqcast.journal.places import find
from seqcast.journal.writer import JournalWriter
from seqcast.spark.auditing import check_cluster
from seqcast.types import Member, View, ViewId

pytestmark = pytest.mark.spark
MEMBERS = tuple(Member(name, 100 + at) for at, name in enumerate("abc"))


class JournaledNet(Net):
    """Engines whose members journal their deliveries."""

    def __init__(self, directory: Path, sequencer: int) -> None:
        order = "sequencer" if sequencer >= 0 else "fifo"
        self.view = View(ViewId(1, 100, (1, 100)), MEMBERS, order, sequencer, order)
        self.writers = [JournalWriter(directory, cluster="engines", member=one, payload="full") for one in MEMBERS]
        for writer in self.writers:
            writer.view(self.view, 1)
        super().__init__(3, sequencer=sequencer)

    def install(self, members: list[int], **settings: Any) -> None:
        super().install(members, **{**settings, "tag": self.view.view_id.tag})

    def take(self, i: int) -> None:
        while (item := self.engines[i].deliver()) is not None:
            if isinstance(item, engine.Batch):
                self.writers[i].batch(item, self.view)


def test_the_tests_know_the_engines_run() -> None:
    assert engine.RUN_DTYPE == RUN_DTYPE


@pytest.mark.parametrize("sequencer", [-1, 0, 2])
def test_deliveries_of_engines_pass_the_audit(spark: Any, tmp_path: Path, sequencer: int) -> None:
    net = JournaledNet(tmp_path, sequencer)
    rng = random.Random(5)
    net.drop = lambda src, dst, lane, datagram: rng.random() < 0.05
    sent = {i: messages(i, 200) for i in range(3)}
    assert net.engines[1].send(b"to one only", to=102) == engine.SENT
    feed(net, sent)
    for writer in net.writers:
        writer.close("leave")
    journals = find([tmp_path])
    report = check_cluster(spark, journals)
    results = {check: verdict.result for check, verdict in report.verdicts.items()}
    assert results.pop("transitional") is None  # no view was closed
    assert results.pop("causal") is None
    assert results.pop("total order") is (True if sequencer >= 0 else None)
    assert set(results.values()) == {True}
    assert report.rows == 3 * 600
    assert [writer.counters()["skipped"] for writer in net.writers] == [0, 0, 1]
    for journal in journals:
        kept = [row["payload"] for batch in journal.batches(["sender", "payload"]) for row in batch.to_pylist()]
        assert sorted(kept) == sorted(payload for payloads in sent.values() for payload in payloads)
