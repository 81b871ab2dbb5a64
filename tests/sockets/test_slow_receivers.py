"""Receivers that are too slow, on real sockets: senders wait for them, or the group continues without them."""

import asyncio
import importlib
import json
import threading
import time

import pytest
from members import LIMIT_S, LOOPBACK, PATIENT_JOINER, cluster, group_of, join, wait_until
from project import ROOT

import seqcast
import seqcast.aio
from seqcast._native.driver import now_ns
from seqcast.board.judge import troubles
from seqcast.board.read import read

SOON = {"slow_s": 0.5, "preset": "fast"}


class Flood:
    """Sends and receives as fast as possible, on two threads for each member but those that are given no thread."""

    def __init__(self, sender, receivers):
        self.sent, self.got, self.over = 0, dict.fromkeys([group.member.name for group in receivers], 0), False
        self.threads = [threading.Thread(target=self.receive, args=(group,), daemon=True) for group in receivers]
        self.threads.append(threading.Thread(target=self.send, args=(sender,), daemon=True))
        for thread in self.threads:
            thread.start()

    def send(self, group):
        while not self.over:
            try:
                group.send(bytes(10_000), timeout=0.1)
                self.sent += 1
            except seqcast.SendTimeout:
                pass
            except seqcast.NotMember:
                return

    def receive(self, group):
        while not self.over:
            try:
                batch = group.recv_batch(0.1)
            except seqcast.NotMember:
                return
            if batch is not None:
                self.got[group.member.name] += len(batch)

    def end(self):
        self.over = True
        for thread in self.threads:
            thread.join(LIMIT_S)


@pytest.mark.parametrize(
    "settings",
    [{"order": "total"}, {"order": "fifo", "partition": "primary"}, {"order": "sequencer"},
     {"order": "total", "membership": "token-ring"}, {"order": "total", "safe": True}],
    ids=["total", "primary", "sequencer", "ring", "safe"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of a primary group that anybody may found
def test_a_member_that_takes_nothing_is_put_out_and_told_after_all_that_was_agreed_on(settings):
    with group_of(4, slow="exclude", **SOON, **settings) as (a, b, c, d):
        flood = Flood(a, (a, b, d))
        wait_until(lambda: len(a.view) == 3 and len(b.view) == 3 and len(d.view) == 3)
        assert c.member not in a.view.members and a.counters()["control_members_slow"] == 1
        got = 0
        for event in c.events():
            if isinstance(event, seqcast.Message):
                got += 1
            last = event
        assert isinstance(last, seqcast.Excluded) and last.cause == "slow" and "join again" in last.reason
        assert got > 0, "what was delivered before is received first"
        assert c.status == "excluded"
        sent = flood.sent
        wait_until(lambda: flood.sent > sent + 1000)  # nobody waits any more
        flood.end()


class Waiting(Flood):
    """Receivers wait in a call of its own; one of them takes a message now and then."""

    def receive(self, group):
        while not self.over:
            try:
                if group.member.name == "c":
                    group.recv(0.1)
                    time.sleep(0.05)
                elif group.wait_deliverable(0.1):
                    group.recv_batch(0)
            except seqcast.NotMember:
                return


def test_an_application_that_waits_for_messages_does_not_work():
    """Else the others would look as busy as the member that holds them up."""
    with group_of(4, slow="exclude", **SOON) as (a, b, c, d):
        flood = Waiting(a, (a, b, c, d))
        wait_until(lambda: len(a.view) == 3)
        assert c.member not in a.view.members
        flood.end()


def test_a_receiver_that_works_four_times_as_long_as_the_others_stays():
    """They take all that waits at once, so only their work shows that they are busy."""
    with group_of(4, slow="exclude", **SOON) as (a, b, c, d):
        flood = Working(a, (a, b, c, d))
        time.sleep(4 * SOON["slow_s"])
        assert len(a.view) == 4 and [member.name for member, _ in a.stalls()] in ([], ["c"])
        flood.end()


class Working(Flood):
    """Each works 2 ms on a message; one of them 8 ms."""

    def receive(self, group):
        while not self.over:
            try:
                message = group.recv(0.1)
            except seqcast.NotMember:
                return
            if message is not None:
                time.sleep(0.008 if group.member.name == "c" else 0.002)


def test_with_block_senders_wait_and_the_member_stays():
    with group_of(4, **{**SOON, "slow": "block"}) as (a, b, c, d):
        flood = Flood(a, (a, b, d))
        wait_until(lambda: a.stalls() and a.stalls()[0][1] > 1.5)
        assert [member.name for member, _ in a.stalls()] == ["c"] and len(a.view) == 4
        with pytest.raises(seqcast.SendTimeout) as raised:
            a.send(bytes(10_000), timeout=0.1)
        assert raised.value.waiting_for in (("c",), ()), "() behind the other thread's send"
        flood.over = True
        while not flood.threads[-1].join(0.01) and flood.threads[-1].is_alive():
            c.recv_batch(0)
        flood.end()


def test_members_with_another_setting_are_refused():
    with group_of(1, slow="exclude", **SOON) as (a,):
        with pytest.raises(seqcast.JoinRefused, match="slow=exclude, not block"):
            join(a.cluster, "b", **{**SOON, "slow": "block"})
        with pytest.raises(seqcast.ConfigError, match="must be one of 'block', 'exclude', 'skip'"):
            join(a.cluster, "b", slow="drop")


def skipped_and_got(events, sender):
    """Takes messages of ``sender``, each with its number, and the gaps, up to the one that says "end"; returns
    the ``Skipped``, and how many messages were delivered. Each is in its place."""
    told, place, got = [], 0, 0
    for event in events:
        if isinstance(event, seqcast.Skipped):
            assert event.sender == sender and event.first <= event.last and event.messages > 0
            told.append(event)
            place += event.messages
        elif isinstance(event, seqcast.Message):
            if event.payload == b"end":
                return told, place, got
            assert int.from_bytes(event.payload[:8], "little") == place
            place += 1
            got += 1
    raise AssertionError("the child ended early")


def test_with_skip_a_member_that_takes_nothing_stays_and_nobody_waits(caplog):
    with group_of(4, order="fifo", slow="skip", **SOON) as (a, b, c, d):
        flood = Numbers(a, (a, b, d))
        wait_until(lambda: c.counters()["packets_skipped"] > 0)
        sent = flood.sent
        wait_until(lambda: flood.sent > sent + 5000)  # nobody waits any more
        assert len(a.view) == 4 and c.counters()["messages_delivered"] == 0
        flood.over = True
        flood.threads[-1].join(LIMIT_S)
        a.send(b"end")
        wait_until(lambda: [each.code.number for each in troubles(read(c.board), 60.0)] == ["SC2217"])
        assert troubles(read(a.board), 60.0) == []
        told, place, got = skipped_and_got(c.events(), a.member)
        assert [each.args[0] for each in caplog.records if "SC2217" in each.getMessage()] == ["c"]
        assert place == flood.sent and told and got < flood.sent
        assert sum(each.messages for each in told) == c.counters()["messages_skipped"] == place - got
        assert str(told[0]).startswith(f"skipped: {told[0].messages} messages of a")
        assert all(each.counters()["packets_skipped"] == 0 for each in (a, b, d))
        flood.end()


class Numbers(Flood):
    """The messages are numbered, and of different lengths."""

    def send(self, group):
        while not self.over:
            try:
                group.send(self.sent.to_bytes(8, "little") + bytes(self.sent * 997 % 3000), timeout=0.1)
                self.sent += 1
            except seqcast.SendTimeout:
                pass


def test_in_asyncio_a_loop_that_passes_over_a_gap_is_warned_and_events_tell_the_next_one(caplog):
    async def main():
        settings = {"order": "fifo", "slow": "skip", **SOON}
        with group_of(3, **settings) as (a, b, c):
            async with seqcast.aio.join(a.cluster, name="d", interface=LOOPBACK, **PATIENT_JOINER, **settings) as d:
                flood = Flood(a, (a, b, c))
                await more_skipped(d)
                while "d: a loop over messages passed over skipped: " not in caplog.text:
                    await d.recv_batch(0.2)
                await more_skipped(d)
                flood.end()
                async for event in d.events():
                    if isinstance(event, seqcast.Skipped):
                        break
                assert event.sender == a.member and event.messages > 0

    async def more_skipped(group):
        before = group.counters()["packets_skipped"]
        while group.counters()["packets_skipped"] == before:
            await asyncio.sleep(0.02)

    asyncio.run(asyncio.wait_for(main(), 2 * LIMIT_S))


def test_the_log_tells_the_last_count_of_missed_messages_a_while_later_or_at_the_end(caplog):
    with group_of(2, order="fifo", slow="skip", **SOON) as (a, b):
        gap = seqcast.Skipped(b.member, 1, 5, 5)
        for _ in range(3):
            a._reached(gap, 0)
        assert missed(caplog) == [5]
        a._missed_due = now_ns() + 50_000_000
        assert a.recv(0.1) is None
        assert missed(caplog) == [5, 10], "while the call waits"
        a._reached(gap, 0)
    assert missed(caplog) == [5, 10, 5]


def test_a_leave_counts_no_missed_messages_while_another_thread_receives(caplog):
    with group_of(2, order="fifo", slow="skip", **SOON) as (a, _):
        taken, over = threading.Event(), threading.Event()
        receiver = threading.Thread(target=a._under_lock, args=(lambda: taken.set() or over.wait(LIMIT_S), -1))
        receiver.start()
        assert taken.wait(LIMIT_S)
        a._missed = 5
        a.leave()
        assert missed(caplog) == []
        over.set()
        receiver.join(LIMIT_S)
        assert list(a) == []
        assert missed(caplog) == [5]


def missed(caplog):
    return [each.args[1] for each in caplog.records if "SC2217" in each.getMessage()]


class Nothing:
    """A state."""

    def get_state(self, write): ...
    def set_state(self, read): ...


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"order": "total"}, 'needs order="fifo"'), ({"order": "causal"}, 'needs order="fifo"'),
     ({"safe": True}, "does not go with safe=True"), ({"journal": "x"}, "does not go with journal="),
     ({"state": Nothing()}, "does not go with state=")],
    ids=["total", "causal", "safe", "journal", "state"],
)  # fmt: skip
def test_skip_is_refused_if_others_rely_on_the_messages_of_all(settings, why):
    with pytest.raises(seqcast.ConfigError, match=why):
        join("refused", "a", slow="skip", **{"order": "fifo", **settings})


@pytest.mark.parametrize("to", [None, "b"])
def test_a_send_that_waits_for_its_own_limit_blames_no_receiver(to):
    with group_of(2, send_bytes_per_s=200_000) as (a, _), pytest.raises(seqcast.SendTimeout) as raised:
        while True:
            a.send(bytes(100_000), to=to, timeout=0.1)
    assert "send_bytes_per_s=200000" in str(raised.value) and raised.value.waiting_for == ()


def test_a_send_to_one_member_that_takes_nothing_is_not_blamed_on_the_pace_of_others():
    with group_of(2, send_bytes_per_s=2_000_000, unicast_bytes=1 << 16, deliver_own=False) as (a, b):
        with pytest.raises(seqcast.SendTimeout):
            while True:
                a.send(bytes(10_000), to="b", timeout=1.0)
        with pytest.raises(seqcast.SendTimeout) as raised:
            while True:
                a.send(bytes(100_000), timeout=0.0)
        assert "send_bytes_per_s" in str(raised.value)
        with pytest.raises(seqcast.SendTimeout) as raised:
            a.send(bytes(10_000), to="b", timeout=0.0)
        assert raised.value.waiting_for == ("b",) and "send_bytes_per_s" not in str(raised.value)
        assert b.member.name == "b"


def test_a_send_of_many_to_one_member_says_how_many_were_sent_though_the_view_ends_just_then(monkeypatch):
    with group_of(2, unicast_bytes=1 << 16) as (a, b):
        monkeypatch.setattr(type(a), "sending_view", property(lambda _: pytest.fail("there is no view")))
        with pytest.raises(seqcast.SendTimeout) as raised:
            a.send_many([bytes(10_000)] * 20, to=b.member, timeout=0.0)
        assert 0 < raised.value.sent < 20 and raised.value.waiting_for == ("b",)


def test_a_send_that_waits_for_the_end_of_a_pause_waits_for_no_receiver(monkeypatch):
    with group_of(2) as (a, b), b.suspended():
        monkeypatch.setattr(a, "stalls", lambda: [(b.member, 1.0)])  # as while the view closes
        with pytest.raises(seqcast.SendTimeout, match="sends to the group wait: b paused the group") as raised:
            a.send(b"", timeout=0.05)
        assert raised.value.waiting_for == ()


def test_a_message_to_one_member_does_not_wait_for_room_at_another_one() -> None:
    name, settings = cluster(), {"unicast_bytes": 1 << 16}
    with join(name, "a", **settings) as a, join(name, "b", **settings) as b, join(name, "c", **settings) as c:
        wait_until(lambda: len(a.view) == 3)
        with pytest.raises(seqcast.SendTimeout):
            while True:
                a.send(bytes(1 << 14), to=b.member, timeout=0.0)
        stalls = a.counters()["credit_stalls"]
        waits = threading.Thread(target=a.send, args=(bytes(1 << 14),), kwargs={"to": b.member})
        waits.start()
        wait_until(lambda: a.counters()["credit_stalls"] > stalls)
        for number in range(10):
            a.send(str(number).encode(), to=c.member, timeout=LIMIT_S)
        assert waits.is_alive()
        assert [c.recv(timeout=LIMIT_S).payload for _ in range(10)] == [str(number).encode() for number in range(10)]
        while waits.is_alive():
            b.recv(timeout=0.1)
        waits.join()


@pytest.mark.long
def test_the_bench_of_receivers_that_stop_compares_them_with_none(monkeypatch, capsys):
    """bench/slow.py, its JSON, and the seconds that it compares."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    slow = importlib.import_module("slow")
    monkeypatch.setattr("sys.argv", "slow.py --pairs 1".split())
    made, run = [], slow.run

    def counted(setting, others):
        made.append((setting, others))
        if len(made) == 1:
            assert sum(run(setting, others)) > 0  # which is real
        if "stops" in others:  # a second and a half as without, one that waits, half a second later 0.9 of the rate
            return [100] * 6 + [0] * 4 + [50] * 2 + [90] * 15
        return [100 if others == ["takes1"] else 75] * 27

    monkeypatch.setattr(slow, "run", counted)
    assert slow.main() == 0
    rows = json.loads(capsys.readouterr().out)["slow"]
    assert [row["slow"] for row in rows] == ["exclude", "skip"]
    assert {(row["ratio"], row["all_ratio"]) for row in rows} == {(0.9, 1.2)}
    stops, takes = ["takes1", "stops"], ["takes1", "takes2"]
    assert made == [("block", ["takes1"]), ("exclude", stops), ("skip", stops), ("block", takes)]
