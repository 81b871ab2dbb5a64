"""The public API on real sockets: order, sizes, threads, processes, leaving, crashes, fork, signals."""

import array
import ctypes
import functools
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from halves import first_quick
from members import LIMIT_S, LOOPBACK, cluster, group_of, join, output, payloads, script, sequencer, wait_until

import seqcast
from seqcast.api.keeping import cost
from seqcast.core.vocabulary import ExcludedBy, InterfaceSeen, ViewInstalled
from seqcast.net.runner import Runner


def test_two_members_deliver_each_others_messages_in_the_order_of_each_sender():
    with group_of(2, order="fifo") as (a, b):
        a.send_many([b"a%d" % i for i in range(1000)])
        b.send_many([b"b%d" % i for i in range(1000)])
        for group in (a, b):
            got = payloads(group, 2000)
            for sender in (b"a", b"b"):
                mine = [payload for payload in got if payload[:1] == sender]
                assert mine == [sender + b"%d" % i for i in range(1000)]


def test_four_members_that_all_send_deliver_one_total_order():
    with group_of(4, order="total") as groups:

        def send(group):
            for i in range(500):
                group.send(b"%s %d" % (group.member.name.encode(), i))

        threads = [threading.Thread(target=send, args=(group,)) for group in groups]
        for thread in threads:
            thread.start()
        got = [payloads(group, 2000) for group in groups]
        for thread in threads:
            thread.join()
        assert len(set(got[0])) == 2000
        assert got[1:] == got[:1] * 3


def test_a_member_that_leaves_right_after_sending_leaves_nothing_behind():
    """SEQ-24: nobody sends again messages that the sequencer has not stamped when their sender is gone."""
    with group_of(3, order="total") as (a, b, c):
        c.send_many([b"%d" % i for i in range(20_000)])
        assert c.leave() and c.leave()
        for group in (a, b):
            assert payloads(group, 20_000) == [b"%d" % i for i in range(20_000)]


def test_global_seqnos_are_dense_and_the_same_at_every_member():
    with group_of(2, order="sequencer") as (a, b):
        b.send_many([b"x"] * 50)
        a.send_many([b"y"] * 50)
        seen = []
        for group in (a, b):
            messages = [group.recv(LIMIT_S) for _ in range(100)]
            assert [m.global_seqno for m in messages] == list(range(1, 101))
            seen.append([(m.global_seqno, m.sender.name, m.payload, m.seqno, m.index) for m in messages])
        assert seen[0] == seen[1]
        assert {m.view_id for m in messages} == {a.view.view_id}


def test_a_unicast_reaches_its_member_only_and_in_order():
    with group_of(3, order="fifo") as (a, b, c):
        for i in range(200):
            a.send(b"%d" % i, to=b.member)
        a.send(b"to all")
        got = [b.recv(LIMIT_S) for _ in range(201)]
        unicasts = [m for m in got if m.unicast]
        assert [m.payload for m in unicasts] == [b"%d" % i for i in range(200)]
        assert unicasts[0].sender == a.member and unicasts[0].global_seqno is None
        assert payloads(c, 1) == [b"to all"]
        a.send(b"to myself", to=a.member)
        assert sorted(payloads(a, 2)) == [b"to all", b"to myself"]


def test_a_message_of_64_mib_arrives_whole():
    with group_of(2, order="fifo", deliver_own=False) as (a, b):
        big = np.random.default_rng(1).integers(0, 256, 64 << 20, dtype=np.uint8).tobytes()
        sender = threading.Thread(target=a.send, args=(big,))
        sender.start()
        message = b.recv(LIMIT_S)
        sender.join()
        assert message is not None and message.payload == big


def test_a_big_message_through_the_sequencer_arrives_whole_between_others():
    with group_of(2, order="sequencer", deliver_own=False) as (a, b):
        big = np.random.default_rng(2).integers(0, 256, 8 << 20, dtype=np.uint8).tobytes()
        received = []
        receiver = threading.Thread(target=lambda: received.extend(payloads(a, 3, 60)))
        receiver.start()
        for payload in (b"before", big, b"after"):
            b.send(payload)
        receiver.join()
        assert received == [b"before", big, b"after"]


def test_data_and_offsets_of_a_batch_may_be_any_buffer_and_any_integers():
    with group_of(1, order="fifo") as (a,):
        data = b"onetwo"
        for bytes_ in (data, bytearray(data), memoryview(data), array.array("H", data), np.frombuffer(data, np.uint8)):
            for offsets in (
                [0, 3, 6], (0, 3, 6), array.array("i", [0, 3, 6]), array.array("q", [0, 3, 6]),
                memoryview(np.array([0, 3, 6])), np.array([0, 9, 3, 9, 6])[::2],
            ):  # fmt: skip
                a.send_batch(bytes_, offsets)
                assert payloads(a, 2) == [b"one", b"two"]
        for none in ([3], np.array([], np.int64)):
            a.send_batch(data, none)
        a.send_batch(data, [2, 2, 2, 6])
        assert payloads(a, 3) == [b"", b"", b"etwo"]


@pytest.mark.parametrize("wide", [np.int32, np.int64])
def test_a_batch_is_sent_and_delivered_as_arrow_lays_it_out(wide):
    with group_of(2, order="fifo") as (a, b):
        lengths = np.random.default_rng(3).integers(0, 3000, 2000)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(wide)
        data = np.random.default_rng(4).integers(0, 256, int(offsets[-1]), dtype=np.uint8)
        a.send_batch(data, offsets)
        want = [data[offsets[i] : offsets[i + 1]].tobytes() for i in range(2000)]
        got, arrow = [], []
        while len(got) < 2000:
            batch = b.recv_batch(10)
            got += [batch.data[batch.offsets[i] : batch.offsets[i + 1]].tobytes() for i in range(len(batch))]
            arrow += batch.to_arrow().to_pylist()
            assert [m.payload for m in batch.messages()] == list(batch)
            assert batch.runs["n"].sum() == len(batch)
        assert got == want == arrow


def test_a_batch_after_single_messages_holds_the_rest_of_their_packet():
    with group_of(1, order="total") as (a,):
        a.send_many([b"%d" % i for i in range(10)])
        first = [a.recv(10).payload for _ in range(3)]
        batch = a.recv_batch(10)
        rest = list(batch)
        while len(first + rest) < 10:
            rest += a.recv_batch(10).tolist()
        assert first + rest == [b"%d" % i for i in range(10)]
        messages = batch.messages()
        assert messages[0].global_seqno == 4
        assert batch.runs["global_seqno"][0] == 4 and batch.runs["first"][0] == 0
        assert batch[0] == b"3" and batch[-1] == list(batch)[-1]


def test_many_threads_send_and_receive_and_nothing_is_lost_or_twice():
    with group_of(2, order="total") as (a, b):
        total = 8 * 400
        got: list[bytes] = []

        def receive():
            while len(got) < total:
                message = b.recv(0.2)
                if message is not None:
                    got.append(message.payload)

        receivers = [threading.Thread(target=receive) for _ in range(3)]
        senders = [
            threading.Thread(target=lambda k=k: [(a, b)[k % 2].send(b"%d/%d" % (k, i)) for i in range(400)])
            for k in range(8)
        ]
        for thread in receivers + senders:
            thread.start()
        at_a = payloads(a, total, 60)
        for thread in receivers + senders:
            thread.join()
        assert len(set(at_a)) == len(at_a) == total
        assert sorted(got) == sorted(at_a)
        for k in range(8):
            mine = [payload for payload in at_a if payload.startswith(b"%d/" % k)]
            assert mine == [b"%d/%d" % (k, i) for i in range(400)]


def test_events_give_views_and_messages_in_their_true_order():
    name = cluster()
    with join(name, "a") as a:
        a.send(b"alone")
        with join(name, "b"):
            wait_until(lambda: len(a.view.members) == 2)
            a.send(b"together")
        wait_until(lambda: len(a.view.members) == 1)
        a.send(b"alone again")
        a.leave()
        seen = [
            event.payload if isinstance(event, seqcast.Message) else [m.name for m in event.members]
            for event in a.events()
        ]
        assert seen == [["a"], b"alone", ["a", "b"], b"together", ["a"], b"alone again"]
        with pytest.raises(seqcast.NotMember, match="has left the group"):
            a.recv(1)
        assert list(a) == []


def test_the_newest_view_never_lags_behind_the_received_messages(monkeypatch):
    """Even if the control thread is held up between installing the view and the report."""
    told, carry_out = threading.Event(), Runner._carry_out

    def late(runner, effect):
        if isinstance(effect, ViewInstalled) and len(effect.view.members) == 2 and runner.standing.member.name == "a":
            told.wait(LIMIT_S)
        carry_out(runner, effect)

    monkeypatch.setattr(Runner, "_carry_out", late)
    name = cluster()
    with join(name, "a") as a:
        joining = threading.Thread(target=lambda: join(name, "b").leave())
        joining.start()
        views = (event for event in a.events() if isinstance(event, seqcast.View))
        received = next(view for view in views if len(view.members) == 2)
        assert a.view == received
        told.set()
        joining.join()


def test_own_messages_reach_a_thread_that_waits_at_once():
    """Not only when the I/O thread wakes for a heartbeat."""
    with group_of(1, order="fifo", heartbeat_s=5.0, suspect_s=40.0) as (a,):
        delays = []

        def receive():
            for _ in range(20):
                message = a.recv(LIMIT_S)
                delays.append(time.monotonic_ns() - int(message.payload))

        receiver = threading.Thread(target=receive)
        receiver.start()
        for _ in range(20):
            time.sleep(0.01)
            a.send(b"%d" % time.monotonic_ns())
        receiver.join()
        assert sorted(delays)[10] < 1_000_000_000


def test_own_messages_are_not_delivered_if_the_setting_says_so():
    with group_of(2, order="fifo", deliver_own=False) as (a, b):
        a.send(b"from a")
        b.send(b"from b")
        assert payloads(a, 1) == [b"from b"]
        assert payloads(b, 1) == [b"from a"]
        assert a.recv(0.05) is None


def test_a_member_that_only_sends_does_not_hold_up_the_others():
    name = cluster()
    with join(name, "a", receive=False) as a, join(name, "b", receive=False) as b:
        wait_until(lambda: len(a.view.members) == 2)
        for _ in range(300):
            a.send(bytes(100_000), timeout=LIMIT_S)
        assert b.recv(0.05) is None


def test_a_sender_without_credit_times_out_and_sends_nothing_of_that_message():
    with group_of(2, order="fifo", deliver_own=False) as (a, b):
        sent = 0
        with pytest.raises(seqcast.SendTimeout, match="b has not taken the messages sent before"):
            for sent in range(10_000):
                a.send(b"%06d" % sent + bytes(50_000), timeout=0.2)
        assert 10 < sent < 1000
        got = payloads(b, sent)
        assert [int(payload[:6]) for payload in got] == list(range(sent))
        assert b.recv(0.1) is None
        a.send(b"again", timeout=LIMIT_S)
        assert payloads(b, 1) == [b"again"]


def test_send_many_says_how_many_were_sent_before_the_timeout():
    with group_of(2, order="fifo", deliver_own=False) as (a, b):
        with pytest.raises(seqcast.SendTimeout) as raised:
            a.send_many([b"%06d" % i + bytes(20_000) for i in range(3000)], timeout=0.2)
        sent = raised.value.sent
        assert 0 < sent < 3000
        assert [int(payload[:6]) for payload in payloads(b, sent)] == list(range(sent))
        assert b.recv(0.1) is None


def test_messages_to_oneself_take_credit_like_any_stream():
    large = bytes(range(256)) * (8 << 12)  # 8 MiB, through a window of one, with slabs for four
    with group_of(2, order="fifo", slabs_max=64, deliver_own=True) as (a, b):
        with pytest.raises(seqcast.SendTimeout):
            a.send(large, to=a.member, timeout=0.3)
        with pytest.raises(seqcast.SendTimeout):
            for _ in range(10_000):  # not one that is too large, but too many
                a.send(bytes(1000), to=a.member, timeout=0.3)
        assert a.counters()["slabs_in_use"] < 40
        b.send_many([b"%07d" % i for i in range(20_000)], timeout=LIMIT_S)  # others' messages are not held up by that
        taken = list(iter(functools.partial(next_payload, a), b"%07d" % 19_999))
        taken += [message.payload for message in iter(functools.partial(a.recv, 0.5), None)]
        assert large[:7] not in {payload[:7] for payload in taken if len(payload) > 1000}, "a part was delivered"
        assert len(taken) > 20_000

        sender = threading.Thread(target=lambda: [a.send(large, to=a.member, timeout=LIMIT_S) for _ in range(3)])
        sender.start()
        assert [next_payload(a) == large for _ in range(3)] == [True] * 3
        sender.join()
        with pytest.raises(seqcast.UsageError, match="message_bytes_max"):
            a.send(bytes((256 << 20) + 1), to=a.member)


def next_payload(group):
    message = group.recv(LIMIT_S)
    assert message is not None
    return message.payload


def test_bad_calls_name_the_remedy():
    with group_of(1, message_bytes_max=1000) as (a,):
        three = np.zeros(3, np.uint8)
        for call, error, text in (
            (lambda: a.send("text"), seqcast.UsageError, "encode text"),
            (lambda: a.send(bytes(1001)), seqcast.UsageError, "message_bytes_max=1000"),
            (lambda: a.send_many([b"x", 3]), seqcast.UsageError, "bytes"),
            (lambda: a.send(b"x", timeout=-1), seqcast.UsageError, "timeout"),
            (lambda: a.send(b"x", timeout="1"), seqcast.UsageError, "timeout='1' must be a number of seconds"),
            (lambda: a.send(b"x", to=3), seqcast.UsageError, "to=3 must be a Member"),
            (lambda: a.send_many([b"x"], to=b"a"), seqcast.UsageError, "to=b'a' must be a Member"),
            (lambda: a.send_many(3), seqcast.UsageError, "iterable of messages"),
            (lambda: a.recv("1"), seqcast.UsageError, "timeout='1'"),
            (lambda: a.recv(-0.5), seqcast.UsageError, "timeout=-0.5"),
            (lambda: a.recv(float("nan")), seqcast.UsageError, "timeout=nan"),
            (lambda: a.recv_batch(timeout="1"), seqcast.UsageError, "timeout='1'"),
            (lambda: a.leave("1"), seqcast.UsageError, "timeout='1'"),
            (lambda: a.send(np.arange(6)[::2]), seqcast.UsageError, "contiguous"),
            (lambda: a.send(memoryview(b"sixsix")[::2]), seqcast.UsageError, "contiguous"),
            (lambda: a.send_many([np.arange(6)[::2]]), seqcast.UsageError, r"payloads\[0\] is ndarray"),
            (lambda: a.send_batch(np.zeros(6, np.uint8)[::2], np.array([0, 2])), seqcast.UsageError, "contiguous"),
            (lambda: a.send(b"x", to=seqcast.Member("z", -1)), seqcast.UsageError, "an id that no member can have"),
            (lambda: a.send(b"x", to=seqcast.Member("z", 0)), seqcast.UsageError, "an id that no member can have"),
            (lambda: a.send_many([b"x"], to=seqcast.Member("z", 1 << 64)), seqcast.UsageError, "an id that no"),
            (lambda: a.send_batch(three, np.array([0, 4], np.int64)), seqcast.UsageError, "within data"),
            (lambda: a.send_batch(three, np.array([0, 2, 1], np.int32)), seqcast.UsageError, "not decrease"),
            (lambda: a.send_batch(np.zeros(3, np.int16), np.array([0, 2])), seqcast.UsageError, "uint8"),
            (lambda: a.send_batch(np.zeros((3, 2), np.uint8), np.array([0, 2])), seqcast.UsageError, "2 dimensions"),
            (lambda: a.send_batch("text", np.array([0, 2])), seqcast.UsageError, "send_batch: .*'str'"),
            (lambda: a.send_batch(three, np.array([0.0, 2.0])), seqcast.UsageError, "float64; wanted: 1 of int32"),
            (lambda: a.send_batch(three, np.array([0, 2], ">i8")), seqcast.UsageError, "wanted: 1 of int32"),
            (lambda: a.send_batch(three, np.zeros((2, 2), np.int32)), seqcast.UsageError, "2 dimensions of int32"),
            (lambda: a.send_batch(three, b"\0\2"), seqcast.UsageError, "wanted: 1 of int32"),
            (lambda: a.send(b"x", to=seqcast.Member("z", 99)), seqcast.NotInView, "z is not in the view"),
            (lambda: seqcast.join("x", order="chaos"), seqcast.ConfigError, "total-1999, grant, causal, fifo"),
            (lambda: seqcast.join(""), seqcast.ConfigError, "cluster"),
            (lambda: seqcast.join("x", name="n" * 200), seqcast.ConfigError, "128 bytes"),
            (lambda: seqcast.join("x", ttll=3), seqcast.ConfigError, "did you mean ttl"),
        ):
            with pytest.raises(error, match=text):
                call()
        a.send(b"still works")
        assert payloads(a, 2)[-1] == b"still works"  # b"x" of send_many went before


def test_send_many_says_which_item_is_not_a_message_and_how_many_went_before():
    def broken():
        yield b"one"
        raise TypeError("of the caller's own generator")

    with group_of(1, order="fifo") as (a,):
        with pytest.raises(seqcast.UsageError, match=r"payloads\[1\].*encode text") as raised:
            a.send_many([b"p1", "x", b"p2"])
        assert raised.value.sent == 1
        with pytest.raises(TypeError, match="caller's own"):
            a.send_many(broken())
        assert payloads(a, 1) == [b"p1"] and a.recv(0.05) is None


def test_buffers_of_every_kind_are_messages():
    with group_of(1, order="fifo") as (a,):
        a.send(bytearray(b"one"))
        a.send(memoryview(b"two"))
        a.send(np.frombuffer(b"three", np.uint8))
        a.send_many([bytearray(b"four"), b"", memoryview(b"five")])
        assert payloads(a, 6) == [b"one", b"two", b"three", b"four", b"", b"five"]


def test_after_leaving_every_call_says_so():
    with group_of(1) as (a,):
        pass
    with pytest.raises(seqcast.NotMember, match="has left the group"):
        a.send(b"x")
    a.leave()


def test_a_member_that_is_out_says_why():
    with group_of(1) as (a,):
        seen = InterfaceSeen(name="lo", address="127.0.0.1", address_gone=True, address_other=True)
        for _ in range(20):  # as if its address were another one for a while
            a._runner.request(seen)
        assert a._runner.standing.wait_over(LIMIT_S)
        with pytest.raises(seqcast.NotMember, match=r"excluded this member: lo has another address .* join again"):
            a.send(b"x")


def test_leaving_says_whether_it_was_graceful():
    with group_of(2, order="fifo", deliver_own=False) as (a, b):
        a.send(b"x")
        assert a.leave(0) is False and a.leave() is False  # no time to hear of the others
        wait_until(lambda: len(b.view.members) == 1)
        assert b.leave() is True  # alone: nobody lacks anything


def test_several_groups_live_in_one_process():
    with group_of(2, order="fifo") as (a, b), group_of(2, order="total") as (c, d):
        a.send(b"one")
        c.send(b"two")
        assert payloads(b, 1) == [b"one"] and payloads(d, 1) == [b"two"]


def test_a_name_by_default_is_unique_in_this_process():
    name = cluster()
    with seqcast.join(name, interface=LOOPBACK) as a, seqcast.join(name, interface=LOOPBACK) as b:
        wait_until(lambda: len(a.view.members) == 2)
        assert a.member.name != b.member.name


def test_a_journal_keeps_the_deliveries(tmp_path):
    pytest.importorskip("pyarrow")
    with group_of(1, order="total", journal=str(tmp_path)) as (a,):
        a.send_many([b"%d" % i for i in range(100)])
        assert len(payloads(a, 100)) == 100
        wait_until(lambda: a.counters()["journal_rows"] == 100)
        assert a.counters()["journal_views"] == 1


def first_segment(top):
    (member,) = (path for path in top.iterdir() if path.is_dir())
    return member / "segment-000001.arrows"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_ends_the_journal_and_not_delivery(tmp_path, caplog):
    pytest.importorskip("pyarrow")
    with group_of(1, order="total", journal=str(tmp_path)) as (a,):
        first_segment(tmp_path).symlink_to("/dev/full")
        a.send_many([b"%d" % i for i in range(100)])
        assert payloads(a, 100) == [b"%d" % i for i in range(100)]
        wait_until(lambda: a.counters()["journal_rows_lost"] == 100)
        a.send(b"more")
        assert payloads(a, 1) == [b"more"]
        assert a.counters()["journal_rows_lost"] == 101
    assert sum("No space left" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_with_a_required_journal_a_full_disk_stops_delivery_and_nothing_is_taken(tmp_path):
    pytest.importorskip("pyarrow")
    a = join(cluster(), "a", journal=str(tmp_path), journal_required=True)
    try:
        first_segment(tmp_path).symlink_to("/dev/full")
        a.send(b"first")
        assert payloads(a, 1) == [b"first"]
        wait_until(lambda: a.counters()["journal_rows_lost"] == 1)
        a.send(b"second")
        for _ in range(2):
            with pytest.raises(seqcast.JournalWriteError, match=r"No space left.*free space"):
                a.recv(LIMIT_S)
            assert a._kept == cost(a._backlog[0]), "so many bytes are kept as before"
        assert a.counters()["journal_rows_lost"] == 1
        a._journal = None  # waiting messages are still there
        assert a.recv(LIMIT_S).payload == b"second" and a._kept == 0
    finally:
        a.leave()


@pytest.mark.long
def test_a_journal_that_is_left_without_with_has_its_end(tmp_path):
    pytest.importorskip("pyarrow")
    text = """
import sys, seqcast
group = seqcast.join(sys.argv[1], name="a", interface=sys.argv[2], journal=sys.argv[3])
group.send(b"x")
assert group.recv(timeout=10).payload == b"x"
"""
    output(script(text, cluster(), LOOPBACK, str(tmp_path)))
    from seqcast.journal.places import find

    (journal,) = find([tmp_path])
    assert (journal.closed, journal.closed_idx, journal.rows) == ("leave", 1, 1)


MEMBER = """
import sys, seqcast
with seqcast.join(sys.argv[1], name=sys.argv[2], interface=sys.argv[3], order=sys.argv[4]) as group:
    print("joined", flush=True)
    for message in group:
        if message.payload == b"end":
            break
        group.send(message.payload, to=message.sender)
"""


def member(name, member_name, order="total"):
    process = script(MEMBER, name, member_name, LOOPBACK, order)
    assert process.stdout is not None and process.stdout.readline() == "joined\n", process.communicate()
    return process


def test_processes_exchange_messages_and_leave():
    name = cluster()
    first = member(name, "first")
    with join(name, "a") as a:
        wait_until(lambda: len(a.view.members) == 2)
        for i in range(100):
            a.send(b"%d" % i)
        echoed: list[bytes] = []
        while len(echoed) < 100:
            message = a.recv(LIMIT_S)
            assert message is not None
            if message.unicast:
                echoed.append(message.payload)
        assert echoed == [b"%d" % i for i in range(100)]
        a.send(b"end")
        output(first)
        wait_until(lambda: len(a.view.members) == 1)


def test_the_group_goes_on_when_its_coordinator_is_killed():
    name = cluster()
    coordinator = member(name, "coordinator")
    with join(name, "a") as a, join(name, "b") as b:
        wait_until(lambda: len(a.view.members) == len(b.view.members) == 3)
        assert a.view.coordinator.name == "coordinator"
        a.send_many([b"%d" % i for i in range(100)])
        coordinator.kill()
        b.send_many([b"%d" % i for i in range(100, 200)], timeout=LIMIT_S)
        got = [[m.payload for m in messages(group, 200)] for group in (a, b)]
        assert got[0] == got[1]
        assert sorted(map(int, got[0])) == list(range(200))
        wait_until(lambda: [m.name for m in a.view.members] == ["a", "b"])
        coordinator.communicate()


def messages(group, n):
    out = []
    while len(out) < n:
        message = group.recv(LIMIT_S)
        assert message is not None, f"{len(out)} of {n}"
        if not message.unicast:  # the coordinator's answers before its crash
            out.append(message)
    return out


def test_a_stopped_member_is_left_out_and_both_sides_merge_when_it_comes_back():
    name = cluster()
    text = """
import sys, seqcast
group = seqcast.join(sys.argv[1], name="stopped", interface=sys.argv[2])
print("joined", flush=True)
for event in group.events():
    if isinstance(event, seqcast.MergeView):
        print(*(len(view.members) for view in event.subgroups), *sorted(member.name for member in event.members))
        group.send(b"here again")
        print(group.leave())
        break
"""
    with join(name, "a") as a:
        process = script(text, name, LOOPBACK)
        assert process.stdout.readline() == "joined\n"
        wait_until(lambda: len(a.view.members) == 2)
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: len(a.view.members) == 1)
        a.send(b"alone")
        process.send_signal(signal.SIGCONT)
        assert output(process).split() == ["1", "1", "a", "stopped", "True"]
        seen = []
        while b"here again" not in seen:
            event = a.next_event(LIMIT_S)
            seen.append(event.payload if isinstance(event, seqcast.Message) else type(event).__name__)
        assert seen.index(b"alone") < seen.index("MergeView") < seen.index(b"here again")


@pytest.mark.parametrize(
    "order", ["grant", *(pytest.param(each, marks=pytest.mark.long) for each in ("records", "sequencer", "total-1999"))]
)
def test_a_sequencer_in_whose_process_no_python_can_run_still_orders(order):
    """Its main thread is in a system call and keeps the GIL; nothing but the byte to be read there ends that."""
    text = """
import ctypes, os, time
os.read(0, 1)
while len(group.view.members) < 2:  # to install the view, it needs Python
    time.sleep(0.001)
print("keeps the GIL", flush=True)
ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)
print(*(int(group.recv().payload) for _ in range(200)))
"""
    name, sent = cluster(), [b"%d" % number for number in range(200)]
    process = sequencer(name, text, order)
    with join(name, "b", order=order, suspect_s=600.0) as b:
        process.stdin.write("x")
        process.stdin.flush()
        assert process.stdout.readline() == "keeps the GIL\n"
        for message in sent:
            b.send(message)
            assert b.recv(LIMIT_S).payload == message
        process.stdin.write("x")
        assert output(process).split() == [str(number) for number in range(200)]


def test_a_large_message_that_the_sequencer_has_yet_to_order_waits_without_spinning_beyond_its_deadline():
    """The message may be ordered already, so nobody can take it back."""
    name = cluster()
    process = sequencer(name, "print(len(group.recv().payload), group.leave())")
    with join(name, "b", order="sequencer", suspect_s=600.0, congestion="off") as b:
        size = b.counters()["window_bytes"] * 3 // 4
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(seqcast.SendTimeout):
            b.send(bytes(size + 1), timeout=0)  # not begun
        began, worked = time.monotonic(), time.thread_time()
        threading.Timer(1.0, process.send_signal, [signal.SIGCONT]).start()
        b.send(bytes(size), timeout=0.05)
        assert time.monotonic() - began > 0.9 and time.thread_time() - worked < 0.4
        assert output(process).split() == [str(size), "True"]


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP here")
def test_a_large_message_that_was_not_ordered_before_its_sender_had_left_may_be_delivered_and_its_error_says_so():
    name = cluster()
    # Whether the sequencer learns that b's port is gone before all that waits in its socket has been read is not known.
    text = """
import time
sizes = [len(group.recv().payload)]
while len(group.view.members) > 1:
    time.sleep(0.05)
while message := group.recv(0):
    sizes.append(len(message.payload))
print(*sizes, flush=True)
sys.stdin.read()
"""
    process = sequencer(name, text)
    with join(name, "b", order="sequencer", suspect_s=600.0, congestion="off") as b:
        size = b.counters()["window_bytes"] * 3 // 4
        process.send_signal(signal.SIGSTOP)
        threading.Timer(0.5, b.leave, [0.5]).start()
        with pytest.raises(seqcast.NotMember, match=r"left .* may have delivered it") as failed:
            b.send_many([b"accepted", bytes(size), b"not begun"])
        assert failed.value.sent == 1
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline().split() in (["8"], ["8", str(size)])
        process.kill()
        process.wait()


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_in_a_forked_child_the_group_is_closed_and_in_the_parent_it_goes_on():
    text = """
import os, sys, numpy, seqcast
a = seqcast.join(sys.argv[1], name="a", interface=sys.argv[2])
b = seqcast.join(sys.argv[1], name="b", interface=sys.argv[2], min_members=2)
a.send_many([b"taken", b"begun"])
assert [a.recv(60).payload, b.recv(60).payload, b.recv(60).payload] == [b"taken", b"taken", b"begun"]
began, told = [], a._runner.after_fork
a._runner.after_fork = lambda: (began.append(a._begun is not None), told())
pid = os.fork()
if not pid:
    assert began == [True] and a._begun is None  # a batch goes back to an engine that takes no lock for it
    calls = (
        lambda: a.send(b"x"), lambda: a.send_many([b"x"]), lambda: a.send_batch(b"x", numpy.array([0, 1])),
        lambda: a.recv(1), lambda: a.recv_batch(1), lambda: a.next_event(1), lambda: list(a), lambda: list(a.events()),
        lambda: a.view, lambda: a.path, lambda: a.counters(), lambda: a.status, lambda: a.wait_deliverable(1),
        lambda: a.suspend(1), lambda: a.resume(), lambda: a.suspended().__enter__(),
    )
    for call in calls:
        try:
            call()
        except seqcast.NotMember as error:
            assert "before fork()" in str(error)
        else:
            os._exit(1)
    assert a.leave() is False
    a.close_journal()
    try:
        with b:
            raise KeyError("the child's own")
    except KeyError:
        pass
    with seqcast.join(sys.argv[1] + "-child", name="c", interface=sys.argv[2]) as c:
        c.send(b"own group")
        assert c.recv(60).payload == b"own group"
    sys.exit(7)  # runs atexit: the parent's groups must not be left by it
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
for i in range(100):
    a.send(b"%d" % i)
assert [b.recv(60).payload for _ in range(100)] == [b"%d" % i for i in range(100)]
assert len(b.view.members) == 2
print("good")
"""
    assert output(script(text, cluster(), LOOPBACK)) == "good\n"


def test_the_buffer_of_a_large_message_is_freed_when_that_is_taken():
    size = 5 << 20
    with group_of(1, order="fifo") as (group,):
        sender = threading.Thread(target=group.send, args=(bytes(size),))
        sender.start()
        message = group.recv(LIMIT_S)
        sender.join()
        kept = [each for each in gc.get_objects() if type(each) is seqcast.Batch and each.nbytes >= size]
        assert (len(message.payload), kept) == (size, [])


def _child_of_multiprocessing(group, results):
    try:
        group.send(b"x")
    except seqcast.NotMember as error:
        results.put(str(error))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_multiprocessing_with_an_open_group_closes_the_childs():
    with group_of(1) as (a,):
        context = multiprocessing.get_context("fork")
        results = context.SimpleQueue()
        process = context.Process(target=_child_of_multiprocessing, args=(a, results))
        process.start()
        process.join(LIMIT_S)
        assert "before fork()" in results.get()
        a.send(b"goes on")
        assert payloads(a, 1) == [b"goes on"]


def test_leaving_the_interpreter_leaves_the_group():
    name = cluster()
    text = """
import sys, seqcast
seqcast.join(sys.argv[1], name="quits", interface=sys.argv[2], heartbeat_s=15.0, suspect_s=900.0).send(b"last words")
"""
    with join(name, "a", heartbeat_s=15.0, suspect_s=900.0) as a:
        process = script(text, name, LOOPBACK)
        assert payloads(a, 1) == [b"last words"]
        wait_until(lambda: len(a.view.members) == 1)  # long before anyone would miss b
        output(process)
        assert a.counters()["control_members_lost"] == 0


def rests(pid: int) -> bool:
    """Does the main thread of a process sleep, without having used its processor for a while? (Without /proc: after
    half a second.)"""
    stat = Path(f"/proc/{pid}/task/{pid}/stat")
    if not stat.exists():
        time.sleep(0.5)
        return True
    looks = []
    for _ in range(2):
        fields = stat.read_text().rpartition(")")[2].split()
        looks.append((fields[0], fields[11:13]))  # state; ticks in user and kernel mode
        time.sleep(0.05)
    return looks[0] == looks[1] and looks[0][0] == "S"


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("waiting", ["group.recv()", "next(iter(group))", "fill(group)"])
def test_ctrl_c_ends_a_wait(waiting):
    text = f"""
import sys, seqcast
def fill(group):
    while True:
        group.send(bytes(60000))
with seqcast.join(sys.argv[1], name="a", interface=sys.argv[2]) as group:
    try:
        print("joined", flush=True)
        {waiting}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
    process = script(text, cluster(), LOOPBACK)
    assert process.stdout.readline() == "joined\n"
    wait_until(lambda: rests(process.pid))
    process.send_signal(signal.SIGINT)
    assert output(process) == "interrupted\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells which port was closed")
@pytest.mark.parametrize(("number", "suspect_s"), first_quick([(signal.SIGKILL, 600.0), (signal.SIGSTOP, 1.0)]))
def test_a_killed_member_is_known_by_its_closed_port_and_a_stopped_one_by_its_silence(number, suspect_s):
    """The killed one long before its silence would tell."""
    text = """
import sys, time, seqcast
seqcast.join(sys.argv[1], name="c", interface=sys.argv[2], suspect_s=float(sys.argv[3]))
time.sleep(600)
"""
    name = cluster()
    with join(name, "a", suspect_s=suspect_s) as a, join(name, "b", suspect_s=suspect_s) as b:
        process = script(text, name, LOOPBACK, str(suspect_s), stdin=subprocess.DEVNULL)
        try:
            wait_until(lambda: len(a.view.members) == len(b.view.members) == 3)
            process.send_signal(number)
            wait_until(lambda: len(a.view.members) == len(b.view.members) == 2)
            refused = a.counters()["ports_refused"] + b.counters()["ports_refused"]  # one may tell the other first
            assert (refused > 0) == (number == signal.SIGKILL)
        finally:
            process.kill()
            process.communicate()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="calls usleep of the C library")
def test_a_busy_python_thread_does_not_make_a_member_suspected():
    with group_of(2, order="fifo", suspect_s=1.0) as (a, b):
        before = a.view.view_id
        ctypes.PyDLL(None).usleep(3_000_000)  # holds the GIL, for longer than anybody may be silent
        a.send(b"on")
        assert payloads(b, 1) == [b"on"]
        assert a.view.view_id == b.view.view_id == before
        assert a.counters()["suspicions"] == b.counters()["suspicions"] == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_member_at_rest_is_small_and_sleeps():
    text = """
import sys, time, seqcast
with seqcast.join(sys.argv[1], name="a", interface=sys.argv[2]) as a:
    time.sleep(0.5)
    before = time.process_time()
    time.sleep(2)
    used = time.process_time() - before
    rss = int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1])
    print(rss, used)
"""
    rss_kib, cpu_s = output(script(text, cluster(), LOOPBACK, stdin=subprocess.DEVNULL)).split()
    assert int(rss_kib) < 60 << 10
    assert float(cpu_s) < 0.2


def test_the_rest_of_a_batch_is_deliverable():
    with group_of(2, order="fifo", deliver_own=False) as (a, b):
        a.send_many([b"one", b"two"])
        assert b.recv(10).payload == b"one"
        assert b.wait_deliverable(30) is True
        assert b.recv(0).payload == b"two"
        assert b.wait_deliverable(0.02) is False
        a.leave()
        b.leave()
        assert b.wait_deliverable(30) is True, "the group has ended, which recv tells at once"


class _State:
    def get_state(self, write):
        write(b"state")

    def set_state(self, read):
        read()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"guard": True},
        {"on_block": lambda group: None, "guard": True},
        {"state": _State()},
        {"journal": True},
        {"transport": "unicast", "seeds": "127.0.0.1", "port_range": 40},
    ],
    ids=["plain", "guard", "callbacks", "state", "journal", "unicast"],
)
def test_a_group_that_was_left_is_freed_without_the_cyclic_collector(settings, tmp_path):
    settings = settings | ({"journal": str(tmp_path)} if "journal" in settings else {})
    before = set(threading.enumerate())  # other tests may have left one that still waits
    gc.disable()
    try:
        with group_of(1 if "state" in settings else 2, **settings) as groups:
            groups[0].send(b"one")
            assert groups[-1].recv(LIMIT_S).payload == b"one"
            engines = [group._runner.engine for group in groups]
            drivers = [group._driver for group in groups]
            others = [weakref.ref(it) for group in groups for it in (group, group._runner, group._runner.endpoint)]
            others += [weakref.ref(group._journal) for group in groups if group._journal is not None]
        del groups[:]
        wait_until(lambda: not [it for it in {*threading.enumerate()} - before if it.name.startswith("seqcast-")])
        assert [ref() for ref in others] == [None] * len(others)
        assert {sys.getrefcount(driver) for driver in drivers} == {3}  # the list's, the variable's and the argument's
        drivers.clear()
        assert {sys.getrefcount(engine) for engine in engines} == {3}
    finally:
        gc.enable()


def test_the_status_of_a_member_says_why():
    seen = []
    with group_of(2, on_block=lambda group: seen.append(group.status)) as (a, b):
        assert a.status == "member" and not a.status.reason
        with b.suspended(LIMIT_S):
            wait_until(lambda: a.status == "blocked")
            assert a.status.reason == f"{b.member.name} paused the group"
        wait_until(lambda: a.status == "member")
        a.send(b"waits to be received", timeout=LIMIT_S)
        seen.clear()
        assert a.leave()
        assert seen[0] == "leaving" and a.status == "left" and not a.status.reason
        b._runner._take(ExcludedBy(b.view.view_id, "the group continued as [c]"))
        assert b.status == "excluded" and b.status.reason == "the group continued as [c]"


@pytest.mark.parametrize(
    ("event", "more", "sees", "told"),
    [
        ("lost", {}, False, True),
        ("lost", {}, True, False),
        ("merged", {}, False, True),
        ("merged", {"on_block": print}, False, False),
        ("blocked", {}, False, False),
    ],
)
def test_events_that_a_loop_over_messages_skips_are_reported_if_nothing_else_does(event, more, sees, told, caplog):
    with caplog.at_level("WARNING", "seqcast"), join(cluster(), "a", **more) as a:
        view = a.view
        events = {
            "lost": seqcast.Lost(view.view_id, 1, 2, None, messages=3),
            "merged": seqcast.MergeView(view.view_id, view.members, view.order, 0, view.mechanism, (view,)),
            "blocked": seqcast.Blocked("flush", "the view is being closed"),
        }
        if sees:
            assert a.next_event(LIMIT_S) == view
        a._runner.engine.mark(a._runner.endpoint._markers.add(events[event]))
        a.send(b"after it")
        assert a.recv(LIMIT_S).payload == b"after it"
        lines = [line for line in caplog.messages if "a loop over messages passed over" in line]
    line = f"a: a loop over messages passed over {events[event]}; `for event in group.events()` yields it, too"
    assert lines == [f"{line} (SC2209)"] * told
