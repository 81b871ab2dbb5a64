"""Atomic batches, fed with events by hand: the deliveries of each receiver, and the state that its joiners take
over."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest

from seqcast import Member, Message, View, ViewId
from seqcast.blocks import batches
from seqcast.blocks.batches import Batches
from seqcast.errors import ConfigError, UsageError
from seqcast.net.state import SubgroupState
from seqcast.net.state_merge import part_in_state

A, B, SINK, OTHER = (Member(name, 7 + at) for at, name in enumerate(("a", "b", "sink", "other")))
V1 = ViewId(1, A.id, (1, A.id))


def view(counter: int, *members: Member) -> View:
    return View(ViewId(counter, A.id, (1, A.id)), members, "total", 0, "sequencer")


class Stream:
    """An ordered stream that several receivers take."""

    def __init__(self, *receivers: Batches) -> None:
        self.receivers = list(receivers)
        self.out: list[list[bytes]] = [[] for _ in receivers]
        self.seqno = 0
        self.time_ns: dict[Member, int] = {}  # of the senders
        self.wall_ns = 0

    def add(self, receiver: Batches) -> None:
        self.receivers.append(receiver)
        self.out.append([])

    def event(self, event: Any) -> None:
        for receiver, out in zip(self.receivers, self.out, strict=True):
            out += [message.payload for message in receiver.take(event)]

    def send(self, payload: bytes, sender: Member = SINK) -> None:
        self.seqno += 1
        self.event(Message(payload, sender, V1, self.seqno, 0, self.seqno, self.wall_ns))

    def batch(self, number: int, rows: Sequence[bytes], sender: Member = SINK, writer: str = "q", end: bool = True):
        self.send(batches.begin(writer, number, len(rows)), sender)
        for row in rows:
            self.send(batches.ROW + row, sender)
        if end:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(batches.time, "monotonic_ns", lambda: self.time_ns.get(sender, 0))
                self.send(batches.end(writer, number), sender)


def state_of(receiver: Batches) -> Any:
    out = io.BytesIO()
    receiver.get_state(out.write)
    return io.BytesIO(out.getvalue()).read


@pytest.mark.parametrize("order", ["fifo", "causal"])
def test_a_group_without_total_order_is_refused(order: str) -> None:
    of = View(ViewId(1, A.id, (1, A.id)), (A, B), order, -1, order)
    with pytest.raises(ConfigError, match=f"this group's is '{order}': join with order='total' on every member"):
        list(Batches().take(of))


def test_a_batch_is_delivered_at_its_end_and_other_messages_as_they_are():
    stream = Stream(Batches())
    stream.send(b"plain", A)
    stream.batch(0, [b"x", b"", b"y" * 100_000], end=False)
    stream.send(b"between", A)
    assert stream.out[0] == [b"plain", b"between"]
    stream.send(batches.end("q", 0))
    assert stream.out[0][2:] == [b"x", b"", b"y" * 100_000]


def test_a_repeated_batch_is_not_delivered_again_whoever_sends_it_and_whatever_its_order():
    stream = Stream(Batches())
    stream.batch(0, [b"1", b"2"])
    stream.batch(1, [b"3"])
    stream.batch(0, [b"2", b"1"], OTHER)
    stream.batch(1, [b"3"], OTHER)
    stream.batch(0, [b"1"], OTHER, writer="another query")
    assert stream.out[0] == [b"1", b"2", b"3", b"1"]
    assert stream.receivers[0].counters.repeated == 2 and stream.receivers[0].writers == {"q": 1, "another query": 0}


def test_two_drivers_at_once_deliver_one_of_two_attempts():
    stream = Stream(Batches())
    stream.batch(0, [b"1", b"2"], SINK, end=False)
    stream.batch(0, [b"2", b"1"], OTHER, end=False)
    stream.send(batches.end("q", 0), OTHER)
    stream.send(batches.end("q", 0), SINK)
    assert stream.out[0] == [b"2", b"1"]


def test_the_remains_of_a_killed_writer_are_dropped_with_the_view_that_drops_the_writer():
    stream = Stream(Batches())
    stream.event(view(1, A, SINK))
    stream.batch(0, [b"1", b"2"], end=False)
    stream.event(view(2, A))
    assert stream.receivers[0].counters.abandoned == 1 and not stream.receivers[0]._staged
    stream.batch(0, [b"2", b"1"], OTHER)
    assert stream.out[0] == [b"2", b"1"]


def test_a_writer_that_begins_anew_has_only_the_later_attempt():
    stream = Stream(Batches())
    stream.batch(0, [b"1", b"2"], end=False)
    stream.batch(0, [b"2", b"1"])
    assert stream.out[0] == [b"2", b"1"]


@pytest.mark.parametrize("memory_bytes", [0, 1 << 20])
def test_a_joiner_in_the_middle_of_a_batch_takes_over_rows_and_table(memory_bytes):
    class Counter:
        total = 0

        def get_state(self, write):
            write(b"%d" % self.total)

        def set_state(self, read):
            self.total = int(read())

    own, theirs = Counter(), Counter()
    own.total = 12
    stream = Stream(Batches(own, memory_bytes=memory_bytes))
    stream.event(view(1, A, SINK))
    stream.batch(0, [b"0"])
    stream.batch(1, [b"1", b"2", b"3"], end=False)
    joiner = Batches(theirs, memory_bytes=memory_bytes)
    joiner.set_state(state_of(stream.receivers[0]))
    assert theirs.total == 12
    stream.add(joiner)
    stream.event(view(2, A, B, SINK))
    stream.batch(0, [b"0"], OTHER)
    stream.send(batches.end("q", 1))
    stream.batch(1, [b"3"], OTHER)
    assert stream.out == [[b"0", b"1", b"2", b"3"], [b"1", b"2", b"3"]]


class Merging:
    """An application's state: a set of words."""

    def __init__(self, *words: bytes) -> None:
        self.words = set(words)

    def get_state(self, write):
        write(b" ".join(sorted(self.words)))

    def set_state(self, read):
        self.words = set(read().split())

    def merge_state(self, others):
        for other in others:
            self.words |= set(other.read().split())


@pytest.mark.parametrize("memory_bytes", [0, 1 << 20])
def test_sides_of_a_partition_merge_their_tables_the_rows_that_wait_and_the_applications_states(memory_bytes):
    states = Merging(b"one"), Merging(b"two")
    left, right = (Stream(Batches(state, memory_bytes=memory_bytes)) for state in states)
    for side in (left, right):
        side.batch(1, [b"both"], writer="old")
    left.batch(2, [b"2"], writer="old")
    left.batch(7, [b"7"], writer="left")
    right.batch(2, [b"2"], writer="old")
    right.batch(3, [b"3"], OTHER, writer="old")
    left.batch(8, [b"8", b"9"], SINK, writer="left", end=False)
    right.batch(4, [b"4"], OTHER, writer="old", end=False)
    merged, taking = left.receivers[0], right.receivers[0]
    merged.merge_state([SubgroupState((B, OTHER), state_of(taking))])
    taking.set_state(state_of(merged))
    both = Stream(merged, taking)
    both.event(view(9, A, B, SINK, OTHER))
    assert [side.writers for side in both.receivers] == [{"old": 3, "left": 7}] * 2
    assert [state.words for state in states] == [{b"one", b"two"}] * 2
    both.batch(3, [b"3"], A, writer="old")
    both.send(batches.end("left", 8), SINK)
    both.send(batches.end("old", 4), OTHER)
    assert both.out == [[b"8", b"9", b"4"]] * 2
    assert list(merged.writers) == list(taking.writers)  # the first are dropped first


def test_only_an_application_that_merges_is_merged():
    class Plain:
        def get_state(self, write):
            write(b"own")

        def set_state(self, read):
            read()

    assert Batches(Plain()).merge_state is None
    assert part_in_state(Batches(Plain())) == 1 and part_in_state(Batches()) == part_in_state(Batches(Merging())) == 2
    left, right = Stream(Batches()), Stream(Batches())
    right.batch(0, [b"0"])
    left.receivers[0].merge_state([SubgroupState((B,), state_of(right.receivers[0]))])
    assert left.receivers[0].writers == {"q": 0}


def test_a_batch_with_more_rows_than_announced_is_dropped_at_once_and_its_repetition_is_delivered():
    stream = Stream(Batches())
    stream.send(batches.begin("q", 0, 1))
    stream.send(batches.ROW + b"1")
    stream.send(batches.ROW + b"2")
    assert not stream.receivers[0]._staged and stream.receivers[0].counters.abandoned == 1
    stream.send(batches.ROW + b"3")
    stream.send(batches.end("q", 0))
    assert stream.out[0] == [] and not stream.receivers[0]._staged
    stream.batch(0, [b"1"])
    assert stream.out[0] == [b"1"]


def test_a_batch_with_a_hole_is_not_delivered_and_its_repetition_is():
    stream = Stream(Batches())
    stream.send(batches.ROW + b"of a batch whose beginning this member never had")
    stream.send(batches.end("q", 0))
    stream.send(batches.begin("q", 0, 2))
    stream.send(batches.ROW + b"1")
    stream.send(batches.end("q", 0))
    assert stream.out[0] == [] and stream.receivers[0].counters.incomplete == 2
    stream.batch(0, [b"1", b"2"])
    assert stream.out[0] == [b"1", b"2"]


@pytest.mark.parametrize(
    "text", [b"", b"{", b"7", b"[" * 4000,
             b'{"writer": "q", "batch": -1, "rows": 0}', b'{"writer": 1, "batch": 1, "rows": 0}',
             b'{"writer": "q", "batch": true, "rows": 0}', b'{"writer": "%s", "batch": 0, "rows": 0}' % (b"q" * 300)],
)  # fmt: skip
def test_messages_that_only_look_like_a_part_of_a_batch_are_counted(text):
    stream = Stream(Batches())
    stream.send(batches.BEGIN + text)
    stream.send(batches.END + text)
    stream.send(batches.MAGIC + b"?" + text)
    assert stream.receivers[0].counters.malformed == 3 and stream.out[0] == []


S = 10**9


def test_entries_age_by_how_far_the_times_of_senders_go_on():
    stream = Stream(Batches(keep_s=10.0))
    stream.time_ns = {SINK: 10**18, OTHER: 5 * S, A: 2 * 10**18}  # since their machines were started
    stream.batch(5, [b"1"], writer="old")
    stream.batch(6, [b"2"], OTHER, writer="older clock")
    stream.batch(7, [b"3"], A, writer="newer clock")
    assert stream.receivers[0].writers == {"old": 5, "older clock": 6, "newer clock": 7}
    stream.time_ns[OTHER] += 9 * S
    stream.batch(6, [b"2"], OTHER, writer="older clock")  # tells the time, though it is repeated
    stream.time_ns[SINK] += 9 * S  # the same nine seconds
    stream.batch(8, [b"4"], writer="new")
    joiner = Batches(keep_s=10.0)
    joiner.set_state(state_of(stream.receivers[0]))
    stream.add(joiner)
    stream.time_ns[A] += 11 * S
    stream.batch(9, [b"5"], A, writer="last")
    assert [each.writers for each in stream.receivers] == [{"new": 8, "last": 9}] * 2
    stream.time_ns[SINK] += 20 * S
    stream.event(view(2, A, OTHER))
    stream.event(view(3, A, OTHER, SINK))  # the sink was not there meanwhile
    stream.batch(10, [b"6"], SINK, writer="after")
    assert [each.writers for each in stream.receivers] == [{"new": 8, "last": 9, "after": 10}] * 2


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), "a month"])
def test_a_wrong_age_of_entries_is_refused(wrong):
    with pytest.raises(UsageError, match="keep_s"):
        Batches(keep_s=wrong)
    assert Batches(keep_s=float("inf")).writers == {}


def test_a_wall_clock_that_is_set_ages_no_entry():
    stream = Stream(Batches(keep_s=10.0))
    stream.batch(5, [b"1"], writer="old")
    stream.wall_ns = 7200 * S
    stream.batch(6, [b"2"], writer="new")
    assert stream.receivers[0].writers == {"old": 5, "new": 6}


def test_entries_keep_their_age_when_sides_of_a_partition_merge():
    left, right = Stream(Batches(keep_s=10.0)), Stream(Batches(keep_s=10.0))
    for side, age in ((left, 4), (right, 8)):
        side.batch(1, [b"1"], writer=f"of {age}")
        side.time_ns[SINK] = age * S
        side.batch(1, [b"1"], writer="both")
    merged, taking = left.receivers[0], right.receivers[0]
    merged.merge_state([SubgroupState((B, OTHER), state_of(taking))])
    taking.set_state(state_of(merged))
    both = Stream(merged, taking)
    both.time_ns[SINK] = 0
    both.batch(2, [b"2"], writer="one")
    both.time_ns[SINK] += 4 * S
    both.batch(2, [b"2"], writer="two")
    assert [each.writers for each in both.receivers] == [{"of 4": 1, "both": 1, "one": 2, "two": 2}] * 2
    both.time_ns[SINK] += 3 * S
    both.batch(2, [b"2"], writer="three")
    assert [list(each.writers) for each in both.receivers] == [["both", "one", "two", "three"]] * 2


def test_the_rest_of_a_batch_comes_with_the_next_call():
    class Group:
        status = "left"

        def __init__(self, payloads):
            self.events = [Message(each, SINK, V1, at, 0, at, 0) for at, each in enumerate(payloads, 1)]

        def next_event(self, timeout):
            return self.events.pop(0) if self.events else None

        def _take_rest(self):
            return None

    rows = [batches.ROW + row for row in (b"1", b"2", b"3")]
    group: Any = Group([batches.begin("q", 0, 3), *rows, batches.end("q", 0), b"after"])
    receiver = Batches()
    for message in receiver.receive(group):
        assert message.payload == b"1"
        break
    assert [message.payload for message in receiver.receive(group)] == [b"2", b"3", b"after"]
