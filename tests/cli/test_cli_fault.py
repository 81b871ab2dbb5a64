"""Faults that the demo plants: each leaves a sound journal, and the audit finds each."""

import re

import pytest
from journal_data import Row, journal, member, view

from seqcast.cli.demo import FAULTS
from seqcast.cli.fault import plant
from seqcast.errors import UsageError
from seqcast.journal import places
from seqcast.journal.schema import signed

NAMES = "abc"


def story(order: str):
    """Two views in which every member delivers the same from all, two messages a packet."""
    everyone = [member(name) for name in NAMES]
    views = [view(1, everyone, order), view(2, everyone, order)]
    told, seqno = [], 0
    for of in views:
        rows = []
        for _ in range(50):
            seqno += 1
            for sender in everyone:
                for index in range(2):
                    number = 0 if order == "fifo" else len(rows) + 1
                    rows.append(Row(sender, seqno, index, number, f"{sender.name}{seqno}.{index}".encode()))
        told.append((of, rows))
    return everyone, told


@pytest.fixture(params=["sequencer", "fifo"])
def journaled(request, tmp_path):
    everyone, told = story(request.param)
    for who in everyone:
        journal(tmp_path, who, told, segment_rows=100, step=100, together_rows=250)
    return tmp_path


def rows_of(top, name):
    found = next(found for found in places.find([top]) if found.member.name == name)
    return [row for batch in found.batches() for row in batch.to_pylist()], found


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_leaves_a_sound_journal_that_differs_at_the_stated_place(journaled, fault):
    before, _ = rows_of(journaled, "b")
    said = plant(fault, journaled, "b")
    after, found = rows_of(journaled, "b")
    assert [row["idx"] for row in after] == list(range(len(after)))
    for installed in found.views:
        assert after[installed.idx]["view_counter"] == installed.view_id.counter
        assert installed.idx == 0 or after[installed.idx - 1]["view_counter"] < installed.view_id.counter
    keys = [[(row["sender"], row["seqno"], row["index"]) for row in rows] for rows in (before, after)]
    first = next(at for at, (old, new) in enumerate(zip(*keys, strict=False)) if old != new)
    length = {"swap": 0, "drop": -1, "duplicate": 1}[fault]
    assert len(after) - len(before) == length
    planted = int(said.partition("row ")[2].partition(":")[0])
    assert first == planted + (fault == "duplicate")
    names = {signed(known.id): known.name for view in found.views for known in view.members}
    row = before[planted]
    assert f"{fault} of {names[row['sender']]}'s message {row['seqno']}.{row['index']}" in said
    assert found.path.name in said


def test_the_other_journals_stay_as_they_are(journaled):
    before = rows_of(journaled, "a")[0]
    plant("drop", journaled, "b")
    assert rows_of(journaled, "a")[0] == before


def test_a_journal_without_two_messages_of_one_sender_is_refused(tmp_path):
    everyone = [member(name) for name in NAMES]
    rows = [Row(everyone[at % 3], at + 1, 0, at + 1, b"x") for at in range(9)]
    journal(tmp_path, everyone[0], [(view(1, everyone), rows)])
    with pytest.raises(UsageError, match="longer"):
        plant("swap", tmp_path, "a")


def test_the_audit_finds_each_fault_and_names_the_member(tmp_path, here):
    from seqcast.spark.auditing import check_cluster

    everyone, told = story("sequencer")
    for who in [*everyone, member("d")]:
        journal(tmp_path, who, told)
    for fault, name in zip(FAULTS, NAMES, strict=True):
        plant(fault, tmp_path, name)
    report = check_cluster(here, places.find([tmp_path]))
    assert not report.holds
    assert [name for name in NAMES if not re.search(rf"\b{name}\b", report.as_text())] == []
