"""The pure parts of a replicated state machine: its log and its outbox."""

import io
import itertools
import sys
from collections import deque

import pytest
from counting import Counting
from hypothesis import given
from hypothesis import strategies as st

from seqcast.blocks import log as logs
from seqcast.blocks import outbox as outboxes
from seqcast.blocks.clock import Estimate
from seqcast.blocks.log import FORGOTTEN, RETRIED, Entry, Log
from seqcast.blocks.outbox import MESSAGE_BYTES, Call, Outbox
from seqcast.errors import OtherRelease, UsageError

MEMBER = 7


def calls(outbox, *operations):
    made = [Call(operation, lambda: None) for operation in operations]
    for call in made:
        outbox.add(call)
    return made


def take(log, payload, transitional=False):
    return log.take(payload, MEMBER, transitional)


def joiner_of(log):
    """A log with the state of this one, as after a join."""
    written = io.BytesIO()
    log.snapshot(written.write)
    written.seek(0)
    other = Log(Counting())
    other.restore(written.read)
    return other


@given(
    st.integers(0, 255), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.lists(st.binary(max_size=20)),
    st.integers(-(2**63), 2**63 - 1),
)  # fmt: skip
def test_a_message_is_unchanged(flags, origin, number, operations, told_ns):
    entry = Entry(flags, origin, number, 3, 4, operations, told_ns)
    assert Entry.decode(entry.encode()) == entry


@given(st.binary(max_size=80))
def test_bytes_that_are_not_a_message_are_counted_and_change_nothing(data):
    log = Log(Counting())
    take(log, data)
    assert log.machine.applied == 0
    assert log.counters.malformed == 1 or len(data) >= logs.HEAD.size


def test_calls_that_come_while_a_message_is_on_its_way_share_the_next_one():
    log, outbox = Log(Counting()), Outbox(1, lambda: 0)
    (first,) = calls(outbox, b"1")
    message = outbox.compose()
    waiting = calls(outbox, b"10", b"100")
    assert outbox.compose() is None
    assert outbox.applied(take(log, message)) == [first] and first.answer.data == b"1"
    message = outbox.compose()
    assert list(Entry.decode(message).operations) == [b"10", b"100"]
    outbox.applied(take(log, message))
    assert [call.answer.data for call in waiting] == [b"11", b"111"]
    assert outbox.rest() == []


def test_messages_that_no_majority_has_on_disk_are_bounded_and_room_lets_the_next_ones_go(monkeypatch):
    monkeypatch.setattr(outboxes, "SETTLING_MAX", 3)
    log, held = Log(Counting()), deque()
    outbox = Outbox(1, lambda: 0, log.counters)
    for _ in range(3):
        calls(outbox, b"1")
        applied = take(log, outbox.compose())
        outbox.back(applied.entry.number)
        held.append(applied)
    assert log.counters.held_back == 0
    (last,) = calls(outbox, b"10")
    assert outbox.compose() is None and outbox.compose(empty=True) is None and not last.sent
    assert log.counters.held_back == 2
    outbox.applied(held.popleft())
    outbox.applied(take(log, outbox.compose()))
    assert last.answer.data == b"13"


def test_a_full_message_does_not_wait_for_the_one_on_its_way():
    outbox = Outbox(1, lambda: 0)
    calls(outbox, b"1")
    assert outbox.compose()
    half = bytes(MESSAGE_BYTES // 2 - 4)
    given_up, _kept = calls(outbox, half, half)
    outbox.give_up(given_up)
    assert outbox.compose() is None
    calls(outbox, half)
    assert len(outbox.compose()) > MESSAGE_BYTES
    calls(outbox, half)
    assert outbox.compose() is None
    calls(outbox, half)
    assert outbox.compose() is None  # so many are on their way already


def test_a_read_waits_for_a_message_that_is_sent_after_it():
    log, outbox = Log(Counting()), Outbox(1, lambda: 0)
    calls(outbox, b"1")
    before = outbox.compose()
    read = Call(None, lambda: None)
    outbox.add(read)
    assert outbox.compose() is None and read not in outbox.applied(take(log, before))
    assert outbox.applied(take(log, outbox.compose())) == [read]


def test_a_read_of_own_writes_waits_for_those_before_it_and_no_others():
    log, outbox = Log(Counting()), Outbox(1, lambda: 0)
    assert outbox.add(Call(None, lambda: None, own=True))
    (write,) = calls(outbox, b"1")
    message = outbox.compose()
    read = Call(None, lambda: None, own=True)
    assert not outbox.add(read)
    (later,) = calls(outbox, b"1")
    assert outbox.applied(take(log, message)) == [write, read]
    read = Call(None, lambda: None, own=True)
    outbox.add(read)
    assert outbox.give_up(later) == [read]


def test_transitional_operations_wait_for_their_view_and_are_dropped_without_one():
    log, outbox = Log(Counting()), Outbox(1, lambda: 0)
    calls(outbox, b"1")
    message = outbox.compose()
    assert take(log, message, transitional=True) is None and log.machine.applied == 0
    log.leave()
    assert log.enter([MEMBER]) == [] and log.machine.applied == 0
    take(log, message, transitional=True)
    (applied,) = log.enter([MEMBER])
    assert applied.answers[0].data == b"1" and log.machine.applied == 1


@pytest.mark.parametrize("known", [False, True], ids=["lost", "applied"])
def test_after_an_exclusion_a_call_is_answered_or_sent_again_and_applied_once(known):
    others, log, outbox = Log(Counting()), Log(Counting()), Outbox(1, lambda: 0)
    take(others, Entry(0, 2, 1, 1, 1, [b"1000"]).encode())
    (call,) = calls(outbox, b"1")
    message = outbox.compose()
    (unsent,) = calls(outbox, b"5")
    if known:
        take(others, message)
    log = joiner_of(others)
    answered = outbox.rejoined(log)
    assert (call in answered) == known
    while (message := outbox.compose()) is not None:
        take(others, message)
        outbox.applied(take(log, message))
    assert (call.answer.data, unsent.answer.data) == (b"1001", b"1006")
    assert log.machine.total == others.machine.total == 1006


def test_a_message_that_comes_twice_is_applied_once_and_its_second_answer_is_the_first():
    log = Log(Counting())
    first = take(log, Entry(0, 1, 1, 1, 1, [b"1", b"2"]).encode())
    again = take(log, Entry(RETRIED, 1, 2, 1, 2, [b"2", b"3"]).encode())
    assert again.answers == [first.answers[1], (True, b"6")]
    assert log.counters.repeated == 1 and log.machine.applied == 3


def test_a_message_that_comes_twice_ahead_of_the_disks_answers_a_read_once():
    log, outbox = Log(Counting()), Outbox(1, lambda: 0)
    (write,) = calls(outbox, b"1")
    outbox.add(read := Call(None, lambda: None))
    message = outbox.compose()
    held = []
    for _ in range(2):
        held.append(take(log, message))
        outbox.back(held[-1].entry.number)
    assert [outbox.applied(each) for each in held] == [[write, read], []] and write.answer.data == b"1"


def test_answers_are_kept_until_the_caller_has_them_and_no_longer():
    log = Log(Counting())
    for seq in range(1, 1000):
        take(log, Entry(0, 1, seq, max(1, seq - 3), seq, [b"1"]).encode())
    assert log.answer(1, 998).data == b"998" and log.answer(1, 990) is None
    take(log, Entry(0, 1, 1000, 10**9, 10**9, []).encode())
    assert log.answer(1, 999) is None


def test_the_origin_that_was_silent_longest_is_forgotten_and_not_applied_twice(monkeypatch):
    monkeypatch.setattr(logs, "ORIGINS_MAX", 2)
    log = Log(Counting())
    for origin in (1, 2, 1, 3):
        take(log, Entry(0, origin, origin, 1, origin, [b"1"]).encode())
    log = joiner_of(log)
    assert take(log, Entry(RETRIED, 2, 9, 1, 2, [b"1"]).encode()).answers == [FORGOTTEN]
    assert log.counters.forgotten == 1 and log.machine.applied == 3


def test_a_machine_that_raises_answers_with_the_error_and_once():
    log = Log(Counting())
    entry = Entry(0, 1, 1, 1, 1, [b"x"]).encode()
    (answer,) = take(log, entry).answers
    assert not answer.ok and answer.data.startswith(b"ValueError: ") and log.counters.failed == 1
    assert take(log, entry).answers == [answer] and log.counters.failed == 1


def test_a_joiner_has_table_time_and_view():
    log = Log(Counting())
    log.enter([MEMBER, 9])
    for seq, told_ns in ((1, 1000), (2, 5000)):
        take(log, Entry(0, 1, seq, 1, seq, [b"1"], told_ns).encode())
    other = joiner_of(log)
    assert (other.view, other.now_ns, other.answer(1, 2)) == ((MEMBER, 9), 5000, (True, b"2"))
    assert other.machine.total == 2 and other.estimate_ns == 5000


def test_messages_tell_the_time_at_which_they_were_made():
    now_ns = 10**15
    log, outbox = Log(Counting()), Outbox(1, lambda: now_ns)
    for later_ns in (0, 7, -5):  # the last one tells no new time
        now_ns += later_ns
        outbox.applied(take(log, outbox.compose(empty=True)))
    assert log.now_ns == 10**15 + 7


def test_an_estimate_is_that_of_the_message_that_came_fastest():
    times = iter([1000, 1010, 1100, 1110, 1200, 1210, 2000, 2001])
    estimate = Estimate(lambda: next(times))
    found = []
    for told_ns in (50, 120, 300):  # right away; 80 behind that; 50 before that
        estimate.hear(told_ns)
        found.append(estimate.now_ns())
    assert found == [60, 160, 310]
    estimate.forget()
    assert estimate.now_ns() == 0
    estimate.hear(7)  # less than before: in another group
    assert estimate.now_ns() == 8


@pytest.mark.parametrize("state", [b"", b"{}", b"{ some }", logs.STATE, logs.STATE + b"0" * 15])
def test_a_state_of_something_else_is_refused(state):
    with pytest.raises(UsageError, match="not that of a replica"):
        Log(Counting()).restore(io.BytesIO(state).read)


@pytest.mark.parametrize(
    ("version", "match"), [(2, r"a later release .* upgrade this member"), (0, "an earlier release")]
)
def test_a_message_of_another_release_ends_the_log_before_it(version, match):
    log, other = Log(Counting()), logs.MESSAGE[:-1] + bytes([version])
    entry = Entry(0, 1, 1, 1, 1, [b"1"]).encode()
    take(log, entry)
    assert take(log, other, transitional=True) is None
    for then in (log.settle, log.settle, lambda: log.snapshot(lambda _: None), lambda: take(log, entry)):
        with pytest.raises(OtherRelease, match=match):
            then()
    assert (log.machine.total, log.mark.position, log.counters.malformed) == (1, 2, 0)
    with pytest.raises(OtherRelease, match=match):
        log.restore(io.BytesIO(logs.STATE[:-1] + bytes([version])).read)


def test_a_call_that_nobody_waits_for_is_not_sent_and_holds_up_nobody():
    log, outbox = Log(Counting()), Outbox(1, lambda: 0)
    one, two = calls(outbox, b"1", b"2")
    outbox.give_up(one)
    message = outbox.compose()
    assert not one.sent and list(Entry.decode(message).operations) == [b"2"]
    outbox.applied(take(log, message))
    assert two.answer.data == b"2"


def test_operations_that_go_together_are_in_one_message_and_are_given_up_together():
    log, outbox = Log(Counting()), Outbox(1, lambda: 0)
    calls(outbox, b"1")
    message = outbox.compose()
    calls(outbox, bytes(MESSAGE_BYTES - 20))
    together, given_up = ([Call(b"%d" % at, lambda: None) for at in range(1, 5)] for _ in range(2))
    outbox.add_all(together)
    outbox.add_all(given_up)
    calls(outbox, b"7")
    outbox.give_up(*given_up)
    outbox.applied(take(log, message))
    large = outbox.compose()
    assert len(Entry.decode(large).operations) == 1  # there was room for three of the four
    outbox.applied(take(log, large))
    rest = outbox.compose()
    assert list(Entry.decode(rest).operations) == [b"1", b"2", b"3", b"4"] and not any(each.sent for each in given_up)
    outbox.applied(take(log, rest))
    assert [each.answer.data for each in together] == [b"2", b"4", b"7", b"11"]
    assert list(Entry.decode(outbox.compose()).operations) == [b"7"]


def interrupted(place, work):
    """Does this, with a signal at one place: before the line of the outbox that would be run with this number. Returns
    whether there is such a place."""
    lines = itertools.count()

    def trace(frame, event, _):
        if frame.f_code.co_filename != outboxes.__file__:
            return None
        if event == "line" and next(lines) == place:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("where", ["begin", "give up"])
def test_a_signal_at_any_place_sends_all_operations_that_go_together_or_none(where):
    for place in itertools.count():
        log, outbox, sent = Log(Counting()), Outbox(1, lambda: 0), []
        together = [Call(b"%d" % at, lambda: None) for at in range(1, 4)]

        def begin(outbox=outbox, together=together, sent=sent):
            outbox.add_all(together)
            sent.append(outbox.compose())

        if where == "begin":
            signal = interrupted(place, begin)
            if signal:  # as `Replica._begin`
                outbox.rejoined(None)
                sent.append(outbox.compose())
        else:  # while a message is on its way, which is back before the second try
            calls(outbox, b"9")
            first = outbox.compose()
            outbox.add_all(together)
            signal = interrupted(place, lambda outbox=outbox, together=together: outbox.give_up(*together))
            outbox.applied(take(log, first))
            sent.append(outbox.compose())
        outbox.give_up(*together)
        (later,) = calls(outbox, b"7")
        assert outbox.pending[later.seq] is later
        outbox.rejoined(None)
        sent.append(outbox.compose())
        outbox.rejoined(None)
        sent.append(outbox.compose())
        found = [b",".join(Entry.decode(each).operations) for each in sent if each is not None]
        assert set(found) <= {b"1,2,3", b"7", b""}, place  # an empty one costs little
        if not signal:
            break
    assert place > 10


def test_operations_that_a_signal_cut_off_are_not_sent_beside_one_that_has_the_number_of_their_last():
    outbox = Outbox(1, lambda: 0)
    together = [Call(b"%d" % at, lambda: None) for at in range(1, 3)]
    together[0].whole = together[1]
    outbox.add(together[0])
    together[1].seq = 2  # the signal came here
    calls(outbox, b"7")
    assert list(Entry.decode(outbox.compose()).operations) == [b"7"]


def test_a_read_of_own_writes_waits_for_a_call_that_was_sent_and_given_up():
    log, outbox = Log(Counting()), Outbox(1, lambda: 0)
    (write,) = calls(outbox, b"1")
    message = outbox.compose()
    assert outbox.give_up(write) == []
    read = Call(None, lambda: None, own=True)
    assert not outbox.add(read)
    assert outbox.applied(take(log, message)) == [write, read] and outbox.pending == {}


def test_at_the_end_of_a_replica_each_call_is_told_once_and_a_read_of_own_writes_is_not_answered():
    outbox, told = Outbox(1, lambda: 0), []
    (write,) = calls(outbox, b"1")
    outbox.compose()
    read = Call(None, lambda: told.append(read), own=True)
    outbox.add(read)
    assert outbox.rest() == [write, read]
    assert outbox.give_up(write) == [] and outbox.give_up(read) == [] and read.answer is None
