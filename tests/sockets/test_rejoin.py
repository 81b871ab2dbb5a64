"""Members that join again by themselves after an exclusion (``rejoin=True``)."""

import asyncio
import contextlib
import re
import threading
import time

import pytest
from embedding import Handle
from members import LIMIT_S, LOOPBACK, cluster, join, wait_until
from test_unicast import free_port

import seqcast
import seqcast.aio
from seqcast.api import rejoining
from seqcast.core.machines.book import Source
from seqcast.core.vocabulary import GiveWay
from seqcast.net import votes

FAST = {"preset": "fast"}


def exclude(group):
    """As if the member lost its address: it gives way at once, and counts as dead to the others."""
    runner = group._runner
    runner.endpoint.context.emit(GiveWay(None, "its address is gone"))
    runner.driver.kick_control()


def fails(group, times, error):
    """Lets the first attempts of a member to join again fail. Returns the times of all."""
    make, calls = group._rejoin_as, []

    def attempt():
        calls.append(time.monotonic())
        if len(calls) <= times:
            raise error
        return make()

    group._rejoin_as = attempt
    return calls


def levels(caplog):
    """Of the lines about attempts that failed."""
    return [record.levelname for record in caplog.records if "(SC3108)" in record.getMessage()]


def until(events, kind):
    seen = []
    for event in events:
        seen.append(event)
        if isinstance(event, kind):
            return seen
    raise AssertionError(f"no {kind.__name__}: {seen}")


@pytest.fixture
def pair():
    name = cluster()
    with join(name, "a", **FAST) as a, join(name, "b", rejoin=True, **FAST) as b:
        wait_until(lambda: len(a.view) == 2 and len(b.view) == 2)
        yield a, b


def test_a_member_that_joins_again_has_its_last_info(pair):
    a, b = pair
    b.set_info({"n": 1})
    wait_until(lambda: {member.name: member.info for member in a.view}["b"] == {"n": 1})
    old, events = b.member, b.events()
    exclude(b)
    until(events, seqcast.Excluded)
    b.set_info({"n": 2})
    until(events, seqcast.Rejoined)
    wait_until(lambda: [member.info for member in a.view if member == b.member != old] == [{"n": 2}])


def test_an_excluded_member_is_in_again_as_a_new_incarnation_of_its_name(pair):
    a, b = pair
    before, events = b.member, b.events()
    b.send(b"one")
    assert until(events, seqcast.Message)[-1].payload == b"one"
    exclude(b)
    *ended, excluded = until(events, seqcast.Excluded)
    lost = tuple(event for event in ended if isinstance(event, seqcast.Lost))
    assert excluded.cause == "" and b.status == "excluded"
    with pytest.raises(seqcast.NotMember, match="joins again"):
        b.send(b"between")
    assert b.recv(0) is None
    (rejoined,) = until(events, seqcast.Rejoined)
    assert rejoined.member == b.member != before and b.member.name == "b" and rejoined.lost == lost
    assert b.member in rejoined.view.members and b.status == "member"
    assert isinstance(next(events), seqcast.View)
    wait_until(lambda: b.member in a.view.members)
    b.send(b"two")
    assert until(events, seqcast.Message)[-1].payload == b"two"
    assert [a.recv(LIMIT_S).payload for _ in range(2)] == [b"one", b"two"], "nothing of what was sent between"


def test_a_member_that_joins_again_has_its_address_book():
    """Its seeds are stale."""
    name, port, hosts = cluster(), free_port(), []
    settings = {**FAST, "transport": "unicast", "port": port, "discovery_refresh_s": 0.1}
    with join(name, "a", **settings) as a:
        hosts.append(f"127.0.0.1:{port}")
        with join(name, "b", rejoin=True, seeds=lambda: hosts, **settings) as b:
            wait_until(lambda: len(b.view) == 2)
            hosts.clear()
            exclude(b)
            until(b.events(), seqcast.Rejoined)
            known = b._runner.endpoint.machines.book.places
            assert known[a.member.address].source is Source.FORMER


@pytest.mark.multicast  # --transport unicast gives all members seeds
def test_a_member_that_has_left_forgets_the_others_and_a_join_in_vain_does_not(monkeypatch):
    """The next group of that name may be another one, with other seeds."""
    name, settings = cluster(), {**FAST, "transport": "unicast", "port": free_port()}
    kept = {(name, "b"): (b"\4\0\7\x7f\0\0\1",)}
    monkeypatch.setattr(votes, "_others", kept)
    with pytest.raises(seqcast.JoinTimeout):
        join(name, "b", found=2, join_timeout_s=0.2, **settings)
    assert kept
    with join(name, "b", **settings) as b:
        assert list(b._runner.endpoint.machines.book.places) == [b"\4\0\7\x7f\0\0\1"]
    assert not kept


def test_a_loop_over_messages_goes_on(pair):
    a, b = pair
    came = []
    thread = threading.Thread(target=lambda: came.extend(message.payload for message in b), daemon=True)
    thread.start()
    for i in range(3):
        wait_until(lambda: b.status == "member" and b.member in a.view.members)
        a.send(b"%d" % i)
        wait_until(lambda i=i: b.counters()["messages_delivered"] >= 1)
        member = b.member
        exclude(b)
        wait_until(lambda member=member: b.member != member)
    b.leave()
    thread.join(LIMIT_S)
    assert came == [b"0", b"1", b"2"]


def test_the_state_is_taken_over_again():
    class Counter:
        def __init__(self, start):
            self.start, self.given, self.taken = start, 0, []

        def get_state(self, write):
            self.given += 1
            write(self.start)

        def set_state(self, read):
            self.taken.append(read())

    name, ours, theirs = cluster(), Counter(b"of a"), Counter(b"of b")
    with join(name, "a", state=ours, **FAST) as a:
        threading.Thread(target=lambda: list(a), daemon=True).start()
        with join(name, "b", state=theirs, rejoin=True, **FAST) as b:
            events = b.events()
            exclude(b)
            until(events, seqcast.Rejoined)
            assert theirs.taken == [b"of a", b"of a"]
            a.send(b"after")
            assert until(events, seqcast.Message)[-1].payload == b"after"


def test_a_member_that_leaves_while_it_joins_again_is_out_and_does_not_come_back(pair):
    a, b = pair
    exclude(b)
    until(b.events(), seqcast.Excluded)
    began = time.monotonic()
    assert not b.leave()
    assert time.monotonic() - began < 10
    with pytest.raises(seqcast.NotMember):
        b.recv(1)
    wait_until(lambda: [member.name for member in a.view] == ["a"])


def test_a_member_that_is_excluded_as_too_slow_three_times_stays_out(pair, caplog):
    _, b = pair
    excluded = seqcast.Excluded(b.view.view_id, "slow", "slow")
    assert [b._may_rejoin(excluded) for _ in range(3)] == [True, True, False]
    assert "does not join again (SC3107)" in caplog.text


def test_attempts_that_fail_are_repeated(pair, monkeypatch, caplog):
    _, b = pair
    calls = fails(b, 2, seqcast.ConfigError("no interface"))
    caplog.set_level("INFO", "seqcast")
    exclude(b)
    until(b.events(), seqcast.Rejoined)
    assert 0.3 < calls[1] - calls[0] < 2 < calls[2] - calls[0] + 1.5 and "no interface (SC3108)" in caplog.text
    assert levels(caplog) == ["WARNING", "INFO"], "the same failure is a warning once"


def test_attempts_that_time_out_again_and_again_are_a_warning(pair, monkeypatch, caplog):
    _, b = pair
    monkeypatch.setattr(rejoining, "PAUSE_S", 0.001)
    fails(b, 6, seqcast.JoinTimeout("nobody answers"))
    caplog.set_level("INFO", "seqcast")
    exclude(b)
    until(b.events(), seqcast.Rejoined)
    assert levels(caplog) == ["INFO"] * 3 + ["WARNING"] + ["INFO"] * 2


@pytest.mark.long
def test_a_group_that_refuses_a_member_that_joins_again_is_told_in_a_warning(pair, caplog):
    a, b = pair
    make, other = b._rejoin_as, threading.Event()
    b._rejoin_as = lambda: (other.wait(LIMIT_S), make())[1]
    exclude(b)
    events = b.events()
    until(events, seqcast.Excluded)
    a.leave()
    with join(a.cluster, "c", order="fifo", **FAST):
        other.set()
        refused = re.compile(r"WARNING .*: cannot join again yet, and goes on trying: .*order.*\(SC3108\)")
        wait_until(lambda: refused.search(caplog.text))


def test_each_incarnation_has_a_journal_of_its_own(tmp_path):
    name = cluster()
    with join(name, "a", **FAST), join(name, "b", rejoin=True, journal=str(tmp_path), **FAST) as b:
        events = b.events()
        first, before = b._journal, b.member.id
        exclude(b)
        until(events, seqcast.Rejoined)
        b.send(b"x")
        until(events, seqcast.Message)
        assert b._journal is not first
    journals = {each.member.id: each for each in seqcast.journal.find([tmp_path])}
    assert {of: each.previous for of, each in journals.items()} == {before: 0, b.member.id: before}


def test_tasks_go_on_receiving():
    async def main():
        name = cluster()
        a = await seqcast.aio.join(name, name="a", interface=LOOPBACK, **FAST)
        b = await seqcast.aio.join(name, name="b", interface=LOOPBACK, rejoin=True, **FAST)
        async with a, b:
            came = []

            async def receive():
                async for event in b.events():
                    came.append(event)

            task = asyncio.create_task(receive())
            for i in range(2):
                member = b.member
                exclude(b.sync)
                async with asyncio.timeout(LIMIT_S):
                    while b.member == member or b.member not in a.view.members:
                        await asyncio.sleep(0.01)
                    await a.send(b"%d" % i)
                    while not any(isinstance(each, seqcast.Message) and each.payload == b"%d" % i for each in came):
                        await asyncio.sleep(0.01)
            kinds = [type(each).__name__ for each in came if isinstance(each, seqcast.Excluded | seqcast.Rejoined)]
            assert kinds == ["Excluded", "Rejoined"] * 2
            await b.leave()
            with contextlib.suppress(seqcast.NotMember):
                await task

    asyncio.run(main())


def test_a_program_in_c_cannot_have_a_handle_of_it(pair):
    _, b = pair
    with pytest.raises(seqcast.UsageError, match="rejoin=False"):
        Handle(b)


@pytest.mark.parametrize("answer", [True, False, ValueError])
def test_a_function_says_whether_to_join_again(answer, caplog):
    asked, name = [], cluster()

    def rejoin(excluded):
        asked.append(excluded)
        if answer is ValueError:
            raise ValueError("of a test")
        return answer

    with join(name, "a", **FAST) as a, join(name, "b", rejoin=rejoin, **FAST) as b:
        wait_until(lambda: len(a.view) == len(b.view) == 2)
        events = b.events()
        exclude(b)
        excluded = until(events, seqcast.Excluded)[-1]
        if answer is True:
            assert until(events, seqcast.Rejoined)
        else:
            assert list(events) == []
            with pytest.raises(seqcast.NotMember):
                b.recv(1)
        assert asked == [excluded]
        assert ("rejoin raised; this member does not join again" in caplog.text) == (answer is ValueError)


def test_a_function_that_leaves_the_group_when_it_is_asked_ends_it():
    name = cluster()
    with join(name, "a", **FAST) as a:
        b = join(name, "b", rejoin=lambda _excluded: b.leave(1.0) or True, **FAST)
        wait_until(lambda: len(a.view) == len(b.view) == 2)
        exclude(b)
        assert isinstance(list(b.events())[-1], seqcast.Excluded)
        assert b.status == "excluded"
