"""The flush as applications see it, on real sockets: block callbacks, their permitted calls, and their failures."""

import asyncio
import logging
import queue
import threading
import time

import pytest
from halves import quick
from members import LIMIT_S, LOOPBACK, PATIENT, PATIENT_JOINER, cluster, group_of, join, payloads, script, wait_until

import seqcast
from seqcast import Blocked, Message, Unblocked, View
from seqcast.core.table import Edge


class Listener:
    """Takes everything that a member is delivered, on a thread of its own."""

    def __init__(self, group, heard=None):
        self.group, self.seen = group, []
        self.heard = heard
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        for event in self.group.events():
            self.seen.append(event)
            if self.heard is not None and isinstance(event, Message):
                self.heard(self.group, event)

    def views(self):
        return [event for event in list(self.seen) if isinstance(event, View)]

    def words(self):
        """The items seen: payloads, and the events by name; a view by its members."""
        return [
            event.payload.decode()
            if isinstance(event, Message)
            else "".join(sorted(member.name for member in event.members))
            if isinstance(event, View)
            else f"{type(event).__name__} {event.kind}"
            for event in list(self.seen)
        ]


def in_view(count, *groups):
    wait_until(lambda: all(len(group.view.members) == count for group in groups))


class Transactions:
    """The coordinator of two-phase commits (FLU-14): those that are prepared when the view closes are finished in the
    block callback, the others are rolled back."""

    def __init__(self):
        self.acks = queue.Queue()
        self.prepared, self.preparing = [], []

    def heard(self, group, message):
        word, _, name = message.payload.decode().partition(" ")
        if word == "PREPARE":
            group.send(f"ACK {name}".encode(), to=message.sender)
        elif word == "ACK":
            self.acks.put((name, message.sender.name))

    def on_block(self, group):
        members = {member.name for member in group.view.members}
        for name in self.prepared:
            group.send(f"PREPARE {name}".encode())
            missing = set(members)
            while missing:
                acked, member = self.acks.get(timeout=LIMIT_S)
                assert acked == name
                missing.discard(member)
            group.send(f"COMMIT {name}".encode())
        for name in self.preparing:
            group.send(f"ROLLBACK {name}".encode())
        self.prepared, self.preparing = [], []


@pytest.mark.parametrize("order", ["fifo", "sequencer", "total"])
def test_transactions_are_committed_in_the_block_callback_before_the_next_view(order):
    """FLU-14."""
    name = cluster()
    owners = {"a": Transactions(), "b": Transactions()}
    slow = {"flush_deadline_s": 30.0, "block_deadline_s": 20.0}
    groups = [join(name, "c", order=order, **slow)]
    groups += [join(name, who, order=order, on_block=owners[who].on_block, **slow) for who in owners]
    in_view(3, *groups)
    listeners = [Listener(group, owners.get(group.member.name, Transactions()).heard) for group in groups]
    owners["a"].prepared, owners["a"].preparing = ["t1", "t2"], ["t3"]
    owners["b"].prepared = ["t4"]
    groups.append(join(name, "d", order=order))
    in_view(4, *groups)
    late = Listener(groups[3])
    closing = {"PREPARE t1", "COMMIT t1", "PREPARE t2", "COMMIT t2", "ROLLBACK t3", "PREPARE t4", "COMMIT t4"}
    wait_until(lambda: all("abcd" in listener.words() for listener in (*listeners, late)))
    for listener in listeners:
        words = listener.words()
        before = words[words.index("abc") + 1 : words.index("abcd")]
        group_words = [word for word in before if word in closing]
        assert set(group_words) == closing and len(group_words) == len(closing)
        assert [word for word in group_words if word[-2:] == "t1"] == ["PREPARE t1", "COMMIT t1"]
        if order != "fifo":
            assert group_words == [word for word in listeners[0].words() if word in closing]
        # A callback also got the acks, for which it waited, before the view closed.
        if listener.group.member.name == "a":
            assert sum(word.startswith("ACK t1") for word in before) == 3
    assert late.words() == ["abcd"]
    for group in groups:
        group.leave()


def test_blocked_and_unblocked_bracket_the_time_without_sends_and_the_view_lies_between():
    name = cluster()
    sent = []

    def on_block(group):
        group.send(b"in the callback")

    def on_unblock(group):
        group.send(b"open again")
        sent.append(len(group.view.members))

    with join(name, "a", on_block=on_block, on_unblock=on_unblock) as a:
        listener = Listener(a)
        with join(name, "b") as b:
            in_view(2, a, b)
            wait_until(lambda: "open again" in listener.words() and sent)
            assert listener.words()[:6] == [
                "a", "in the callback", "Blocked flush", "ab", "Unblocked flush", "open again",
            ]  # fmt: skip
            assert sent == [2]
            assert payloads(b, 1) == [b"open again"]


@pytest.mark.parametrize("alone", [False, True])
def test_the_block_callback_of_a_leaver_runs_once_while_it_can_send(alone, caplog):
    name, ran = cluster(), []

    def on_block(group):
        ran.append(group)
        time.sleep(0.05)
        group.send(b"finished")

    with caplog.at_level(logging.ERROR, "seqcast"), join(name, "b") as b:
        a = join(name, "a", on_block=on_block)
        in_view(2, a, b)
        if alone:
            b.leave()
            in_view(1, a)
            wait_until(lambda: a._runner.endpoint.machines.blocker.state.name == "IDLE")
        before = len(ran)
        seen = Listener(a if alone else b)
        assert a.leave()
        assert len(ran) == before + 1
        wait_until(lambda: seen.words().count("finished") == (len(ran) if alone else 1))
    assert not caplog.text


@pytest.mark.parametrize("early", [False, True])
def test_a_callback_that_returns_later_is_answered_by_another_thread(early):
    name, steps, asked = cluster(), [], queue.Queue()

    def on_block(group):
        if early:
            finish(group)
        else:
            asked.put(group)
        return seqcast.LATER

    def finish(group):
        group.send(b"by another thread")
        group.block_ok()
        group.block_ok()  # a second answer does not count for the next view change
        steps.append("ok")

    patient = {**PATIENT, "block_deadline_s": LIMIT_S, "flush_deadline_s": LIMIT_S}
    with join(name, "a", on_block=on_block, **patient) as a:
        seen = Listener(a)
        joiner = threading.Thread(target=lambda: join(name, "b", **patient).leave())
        joiner.start()
        for _ in range(0 if early else 2):
            group = asked.get(timeout=LIMIT_S)
            members = len(a.view.members)
            time.sleep(0.2)
            assert len(a.view.members) == members
            finish(group)
        joiner.join(LIMIT_S)
        wait_until(lambda: len(seen.views()) == 3)
        finished = ["by another thread", "Blocked flush"]
        words = [word for word in seen.words() if not word.startswith("Unblocked")]
        assert words[:7] == ["a", *finished, "ab", *finished, "a"]
        if not early:
            threading.Thread(target=lambda: finish(asked.get(timeout=LIMIT_S)), daemon=True).start()
    with group_of(1) as (c,), pytest.raises(seqcast.UsageError, match="joined without it"):
        c.block_ok()


def test_an_answer_that_never_comes_is_waited_for_until_the_deadline(caplog):
    name = cluster()
    with caplog.at_level(logging.WARNING, "seqcast"):
        with join(name, "a", on_block=lambda _group: seqcast.LATER, block_deadline_s=0.3) as a:
            with join(name, "b") as b:
                in_view(2, a, b)
                a.block_ok()
                wait_until(lambda: a.counters()["control_callbacks_late"] == 1)
    assert "on_block did not return within 0.3 s" in caplog.text


def test_a_leaver_waits_for_its_block_callback_no_longer_than_for_the_rest():
    hold = threading.Event()
    with join(cluster(), "a", on_block=lambda _group: hold.wait(LIMIT_S)) as a:
        began = time.monotonic()
        a.leave(0.4)
        assert 0.25 < time.monotonic() - began < LIMIT_S / 2
        hold.set()


@pytest.mark.parametrize("refused", [seqcast.NameTaken, seqcast.JoinTimeout])
def test_a_join_that_fails_calls_no_callback_and_ends_its_threads_quietly(refused, caplog, monkeypatch):
    name, ran, raised = cluster(), [], []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    more = {"min_members": 3, "join_timeout_s": 1.0} if refused is seqcast.JoinTimeout else {}
    with caplog.at_level(logging.ERROR, "seqcast"), join(name, "a", **PATIENT) as a:
        with pytest.raises(refused):
            join(name, "b" if more else "a", on_block=ran.append, **{**PATIENT, **more})
        in_view(1, a)
    assert not raised and not ran and not caplog.text


def test_events_tell_of_the_gate_only_on_request():
    name = cluster()
    with join(name, "a", block_events=True) as a, join(name, "b") as b:
        in_view(2, a, b)
        c = join(name, "c")
        in_view(3, a, b, c)
        c.leave()
        in_view(2, a, b)
        told, plain = Listener(a), Listener(b)
        wait_until(lambda: told.words().count("ab") == 2 and plain.words().count("ab") == 2)
        wait_until(lambda: len(told.words()) == 10)
        assert told.words() == ["a"] + [w for v in ("ab", "abc", "ab") for w in ("Blocked flush", v, "Unblocked flush")]
        assert plain.words() == ["ab", "abc", "ab"]


def test_a_new_coordinator_is_told_only_on_request_and_is_in_the_journal(tmp_path):
    name = cluster()
    a = join(name, "a")
    with join(name, "b", coordinator_events=True, journal=tmp_path) as b, join(name, "c") as c:
        in_view(3, a, b, c)
        a.leave()
        in_view(2, b, c)
        b.send(b"last")
        seen = {each: [group.next_event(LIMIT_S) for _ in range(n)] for each, group, n in (("b", b, 4), ("c", c, 3))}
        view = next(each for each in reversed(seen["b"]) if isinstance(each, View))
        changes = [each for each in seen["b"] if isinstance(each, seqcast.CoordinatorChanged)]
        assert changes == [seqcast.CoordinatorChanged(b.member, a.member, view.view_id, True, "a is not in the view")]
        assert [type(each) for each in seen["c"]] == [View, View, Message]
    (journal,) = (seqcast.journal.read(path) for path in tmp_path.iterdir())
    told = [each["text"] for each in journal.events() if each.get("kind") == "CoordinatorChanged"]
    assert told == [str(changes[0])]


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_callback_that_raises_is_logged_and_reported_and_harms_nobody(error, caplog):
    def on_block(_group):
        raise error("a mistake of the application")

    name = cluster()
    slow = {"flush_deadline_s": 3000.0, "block_deadline_s": 2000.0}  # nobody waits for these
    with caplog.at_level(logging.ERROR, "seqcast"), join(name, "a", on_block=on_block, **slow) as a:
        listener = Listener(a)
        with join(name, "b", **slow) as b:
            in_view(2, a, b)
            wait_until(lambda: any(isinstance(event, Unblocked) for event in listener.seen))
            (unblocked,) = [event for event in listener.seen if isinstance(event, Unblocked)]
            assert f"on_block raised {error.__name__}('a mistake of the application')" in unblocked.reason
            assert a.counters()["control_callbacks_failed"] == 1
        assert "on_block raised" in caplog.text and "a mistake of the application" in caplog.text


def test_a_callback_that_blocks_delays_the_group_by_its_deadline_alone_and_its_owner_is_warned(caplog):
    hold = threading.Event()
    name = cluster()

    def on_block(_group):
        hold.wait(2 * LIMIT_S)

    with caplog.at_level(logging.WARNING, "seqcast"), join(name, "a", on_block=on_block, block_deadline_s=0.3) as a:
        listener = Listener(a)
        begin = time.monotonic()
        with join(name, "b") as b:
            in_view(2, a, b)
            assert 0.3 <= time.monotonic() - begin < LIMIT_S
            hold.set()
            wait_until(lambda: a.counters().get("control_callbacks_late"))
            assert "on_block did not return within 0.3 s" in caplog.text
            wait_until(lambda: any(isinstance(event, Unblocked) for event in listener.seen))
            (unblocked,) = [event for event in listener.seen if isinstance(event, Unblocked)]
            assert "on_block did not return" in unblocked.reason


def test_a_member_that_crashes_in_its_callback_stalls_nobody():
    name = cluster()
    inside, over = threading.Event(), threading.Event()

    def on_block(_group):
        inside.set()
        over.wait(4 * LIMIT_S)

    settings = {"block_deadline_s": 2 * LIMIT_S, "flush_deadline_s": 3 * LIMIT_S}
    a, b = join(name, "a", **settings), join(name, "b", on_block=on_block, **settings)
    in_view(2, a, b)
    late = []
    thread = threading.Thread(target=lambda: late.append(join(name, "c", **settings)))
    thread.start()
    assert inside.wait(LIMIT_S)
    b._runner.driver.stop()  # its engine falls silent, as in a crash
    thread.join(LIMIT_S)
    assert [member.name for member in late[0].view.members] == ["a", "c"]
    over.set()
    for group in (late[0], a):
        group.leave()
    b._give_up()


def test_a_callback_may_not_make_calls_that_wait_for_it():
    name = cluster()
    raised = []

    def on_block(group):
        try:
            group.leave()
        except seqcast.UsageError as error:
            raised.append(str(error))

    with join(name, "a", on_block=on_block) as a, join(name, "b") as b:
        in_view(2, a, b)
        assert "call it from another thread" in raised[0]
        with pytest.raises(seqcast.ConfigError, match="on_unblock needs on_block"):
            join(name, "c", on_unblock=on_block)


def test_coroutines_are_callbacks_of_the_asyncio_group():
    name = cluster()

    async def run():
        async def on_block(group):
            await group.send(b"in the callback")
            asyncio.get_running_loop().call_later(0.1, group.block_ok)
            return seqcast.LATER

        async def on_unblock(group):
            await group.send(b"open again")

        callbacks = {"on_block": on_block, "on_unblock": on_unblock}
        async with seqcast.aio.join(name, name="a", interface=LOOPBACK, **callbacks) as a:
            async with seqcast.aio.join(name, name="b", interface=LOOPBACK, **PATIENT_JOINER):
                seen = []
                async for event in a.events():
                    seen.append(event)
                    if isinstance(event, Message) and event.payload == b"open again":
                        break
                kinds = [event.payload if isinstance(event, Message) else type(event) for event in seen]
                assert kinds == [View, b"in the callback", Blocked, View, Unblocked, b"open again"]

    asyncio.run(run())


def test_without_callbacks_there_is_no_round_for_them():
    with group_of(3) as groups:
        assert all(Edge("participant", "OPEN", "START") in group._runner.endpoint.edges for group in groups[:2])
        assert not any("BLOCK" in edge.event for group in groups for edge in group._runner.endpoint.edges)


def test_nobody_sends_while_the_group_is_paused_and_all_have_delivered_the_same():
    with group_of(3, order="total", block_events=True, **PATIENT) as groups:
        listeners = [Listener(group) for group in groups]
        stop = threading.Event()
        sent = dict.fromkeys(range(3), 0)

        def send(number):
            while not stop.is_set():
                groups[number].send(f"{number} {sent[number]}".encode(), timeout=LIMIT_S)
                sent[number] += 1
                time.sleep(0.0005)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: min(sent.values()) > 20)
        for _ in range(3):
            groups[1].suspend(LIMIT_S)
            before = dict(sent)
            wait_until(lambda: all(not group._runner.engine.deliverable() for group in groups))
            time.sleep(0.1)
            words = [[word for word in listener.words() if word[0].isdigit()] for listener in listeners]
            assert words[0] == words[1] == words[2]
            assert all(sent[number] <= before[number] + 1 for number in sent)  # a send that was under way counts later
            assert groups[1].resume()
            wait_until(lambda count=dict(sent): all(sent[number] > count[number] for number in sent))
        stop.set()
        for thread in threads:
            thread.join()
        told = [word for word in listeners[2].words() if "pause" in word]
        assert told == ["Blocked pause", "Unblocked pause"] * 3


def test_a_send_waits_for_the_end_of_a_pause_and_a_unicast_does_not():
    with group_of(2, order="fifo", **PATIENT) as (a, b):
        with a.suspended(timeout=LIMIT_S):
            for group in (a, b):
                with pytest.raises(seqcast.SendTimeout, match="sends to the group wait: a paused the group"):
                    group.send(b"to all", timeout=0.05)
            b.send(b"to one", to=a.member)
            assert payloads(a, 1) == [b"to one"]
            with pytest.raises(seqcast.UsageError, match="already"):
                a.suspend()
        b.send(b"to all", timeout=LIMIT_S)
        assert payloads(a, 1) == [b"to all"]
        with pytest.raises(seqcast.UsageError, match="has not paused"):
            a.resume()


def test_a_view_change_ends_a_pause_and_its_owner_is_told():
    name = cluster()
    with join(name, "a") as a:
        a.suspend(LIMIT_S)
        with join(name, "b") as b:
            in_view(2, a, b)
            assert not a.resume()
            b.send(b"goes on", timeout=LIMIT_S)
            with pytest.raises(seqcast.SuspendTimeout, match="too early"), a.suspended(LIMIT_S):
                b.leave()
                in_view(1, a)


def test_a_pause_by_two_members_ends_with_the_last_and_callbacks_run_before_it():
    name = cluster()
    ran = []
    callbacks = {"on_block": ran.append, "on_unblock": lambda group: ran.append("open")}
    with join(name, "a", **callbacks, **PATIENT) as a, join(name, "b", **PATIENT) as b:
        in_view(2, a, b)
        wait_until(lambda: ran == [a, "open"])
        ran.clear()
        a.suspend(LIMIT_S)
        b.suspend(LIMIT_S)
        assert ran == [a]
        assert a.resume()
        with pytest.raises(seqcast.SendTimeout):
            a.send(b"not yet", timeout=0.1)
        assert b.resume()
        a.send(b"now", timeout=LIMIT_S)
        wait_until(lambda: ran == [a, "open"])


def test_a_pause_ends_when_its_owner_falls_silent():
    name = cluster()
    with join(name, "a") as a:
        b = join(name, "b")
        in_view(2, a, b)
        b.suspend(LIMIT_S)
        b._runner.driver.stop()  # as in a crash
        a.send(b"goes on", timeout=LIMIT_S)
        b._give_up()


def test_a_thread_that_waits_for_a_pause_is_told_when_another_resumes():
    """Before, `suspend` said that this member had not paused the group, and the caller could not tell the reason."""
    hold = threading.Event()
    with group_of(2, on_block=lambda _group: hold.wait(LIMIT_S), **PATIENT) as (a, _b):
        raised = queue.SimpleQueue()

        def suspend():
            try:
                a.suspend(LIMIT_S)
            except seqcast.SeqcastError as error:
                raised.put(error)

        thread = threading.Thread(target=suspend)
        thread.start()
        wait_until(lambda: not a._runner.pausing.free)
        a.resume()
        error = raised.get(timeout=LIMIT_S)
        thread.join()
        hold.set()
        assert isinstance(error, seqcast.SuspendTimeout) and "another thread" in str(error)
        a.suspend(LIMIT_S)
        assert a.resume()


def test_a_member_that_has_left_cannot_pause_the_group_and_is_told_so():
    with group_of(1) as (group,):
        group.leave()
        with pytest.raises(seqcast.NotMember, match="has left the group"):
            group.suspend()
        with pytest.raises(seqcast.NotMember), group.suspended():
            pass


def test_a_pause_lasts_no_longer_than_its_limit():
    with group_of(2, pause_s_max=0.2) as (a, b):
        a.suspend(LIMIT_S)
        b.send(b"goes on", timeout=LIMIT_S)
        assert not a.resume()


SINK = """
import sys, seqcast
group = seqcast.join(sys.argv[1], name="c", order=sys.argv[2], interface=sys.argv[3])
print("in", flush=True)
for _ in group: pass
"""


def senders_wait(group):
    """Returns when the other threads' sends have stopped."""
    sent = -1
    while sent != (sent := group.counters()["messages_sent"]):
        time.sleep(0.05)


@pytest.mark.parametrize(("order", "full"), quick([("total", True), ("fifo", False)], ["total", "fifo"], [False, True]))
def test_a_callback_sends_at_once_though_the_credit_of_a_member_that_crashed_is_used_up(order, full, caplog):
    name, crashed, stop = cluster(), threading.Event(), threading.Event()
    patient = {"block_deadline_s": 10.0, "flush_deadline_s": 20.0}

    def on_block(group):
        if crashed.is_set():
            if full:  # of packets that the crashed member lacks
                senders_wait(group)
            group.send(b"last words")

    def send(group):
        while not stop.is_set():
            group.send(bytes(1000))

    with (
        caplog.at_level(logging.WARNING, "seqcast"),
        join(name, "a", order=order, on_block=on_block, **patient) as a,
        join(name, "b", order=order, on_block=on_block, **patient) as b,
    ):
        sink = script(SINK, name, order, LOOPBACK)
        sink.stdout.readline()
        in_view(3, a, b)
        heard = []
        listeners = [Listener(group, lambda _, m: m.payload[:4] == b"last" and heard.append(m)) for group in (a, b)]
        senders = [threading.Thread(target=send, args=(group,)) for group in (a, b)]
        for thread in senders:
            thread.start()
        time.sleep(0.1)
        crashed.set()
        sink.kill()
        sink.communicate()
        in_view(2, a, b)
        crashed.clear()
        stop.set()
        for thread in senders:
            thread.join(LIMIT_S)
        wait_until(lambda: len(heard) == 4 and listeners[0].views()[-1].view_id == a.view.view_id)
        assert {message.view_id for message in heard} == {listeners[0].views()[-2].view_id}
    assert "on_block did not return" not in caplog.text
