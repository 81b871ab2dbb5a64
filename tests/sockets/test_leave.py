"""Leaving: sends end first, those who stay deliver accepted messages, and the others are reported."""

from __future__ import annotations

import asyncio
import threading

import pytest
from engines import Net, change_view, reports_of
from members import LIMIT_S, LOOPBACK, PATIENT, cluster, group_of, join, payloads, wait_until
from sim_stage import Stage

import seqcast
from seqcast import Lost, View
from seqcast._native.engine import AGAIN, ENDED, NO_VIEW, SENT, Engine, Sending, SendingArray
from seqcast.events import Excluded
from seqcast.reports import SendsDrained
from seqcast.sim.checkers.safety import check_safety
from seqcast.sim.record import Delivered

# ---- the engine ----------------------------------------------------------------------------------------------------


def of(net: Net, i: int, sender: int) -> list[bytes]:
    return [payload for origin, payload in net.got[i] if origin == net.ids[sender]]


@pytest.mark.parametrize("how", ["open", "gate", "pause", "queue"])
@pytest.mark.parametrize("sequencer", [-1, 0, 1])
def test_after_the_end_of_sending_every_send_is_refused(sequencer: int, how: str) -> None:
    net = Net(3, sequencer=sequencer, blocked_bytes_max=(1 << 16) * (how == "queue"))
    one = net.engines[1]
    if how == "pause":
        one.pause()
    elif how != "open":
        one.gate_close()
    one.end_sends()
    for to in (0, net.ids[2], net.ids[1]):
        assert one.send(b"late", to=to) == Sending(one, b"late", to).step() == ENDED
    assert one.blocked() == 0 and net.engines[2].send(b"x") == SENT
    if how != "open":
        change_view(net, [0, 1, 2], [0, 1, 2], sequencer=sequencer, tag=2)
        assert one.send(b"late") == ENDED  # for good
    net.run(20)
    assert not of(net, 0, 1) and of(net, 0, 2) == [b"x"]


@pytest.mark.parametrize("sequencer", [-1, 0, 1])
def test_a_message_that_waits_for_credit_is_given_up(sequencer: int) -> None:
    net = Net(3, sequencer=sequencer, window=30_000)
    one = net.engines[1]
    large, alone = Sending(one, bytes(100_000)), Sending(one, bytes(100_000), net.ids[2])
    assert large.step() == alone.step() == AGAIN
    one.end_sends()
    assert large.step() == alone.step() == ENDED
    net.run(50)
    assert one.drained() and not of(net, 0, 1) and not of(net, 2, 1)
    own = one.own()
    assert one.own_messages(own.first + 1, own.last)[-1] == 0 and one.unacknowledged() == [0, 0, 0]


def test_a_large_message_that_is_packed_whole_is_accepted_when_it_is_ordered() -> None:
    net = Net(3, sequencer=0, window=30_000)
    one, large = net.engines[1], Sending(net.engines[1], bytes(20_000))
    assert large.step() == AGAIN and large.packed
    one.end_sends()
    assert large.step() == AGAIN and not one.drained()
    net.run(50)
    assert large.step() == SENT and one.drained()
    assert of(net, 2, 1) == [bytes(20_000)]


@pytest.mark.parametrize("array", [False, True])
def test_one_that_is_packed_whole_may_be_delivered_by_members_that_the_leaver_is_cut_off_from(array: bool) -> None:
    """Its send fails, and says so; the sequencer has ordered the message."""
    net = Net(3, sequencer=0, window=30_000)
    one = net.engines[1]
    large = SendingArray(one, [bytes(20_000), b"small"]) if array else Sending(one, bytes(20_000))
    assert large.step() == AGAIN and large.packed
    net.drop = lambda src, dst, lane, datagram: dst == 1
    net.run(5)
    assert of(net, 2, 1) == [bytes(20_000)]
    net.drop = lambda src, dst, lane, datagram: 1 in (src, dst)
    change_view(net, [1], [1], sequencer=0, tag=2)
    one.end_sends()
    assert large.step() == ENDED and large.packed and not large.abort()


def test_it_is_accepted_also_if_the_cut_of_the_view_that_is_left_has_it() -> None:
    net = Net(2, sequencer=0, window=30_000)
    one, large = net.engines[1], Sending(net.engines[1], bytes(20_000))
    assert large.step() == AGAIN
    one.end_sends()
    for _, _, datagram in one.transmit(net.now):
        net.engines[0].receive(datagram, bytes([2]), net.now)
    for _, _, datagram in net.engines[0].transmit(net.now):
        one.receive(datagram, bytes([1]), net.now)
    one.close_view(None, 9)
    assert large.step() == SENT


def test_a_large_message_on_its_way_to_the_sequencer_is_not_counted_as_lost_too() -> None:
    """Its send has not returned, and raises: ``Lost`` covers accepted messages."""
    net = Net(3, sequencer=0, window=30_000)
    one, large = net.engines[1], Sending(net.engines[1], bytes(20_000))
    net.drop = lambda src, dst, lane, datagram: 1 in (src, dst)
    assert one.send(b"small") == SENT and large.step() == AGAIN and large.packed
    one.end_sends()
    one.gate_close()
    own = one.own()
    assert one.own_messages(own.first + 1, own.last)[-1] == 1
    one.close_view(None, 9)
    assert large.step() == NO_VIEW


def test_a_large_message_that_no_sequencer_ordered_is_lost_across_a_merge() -> None:
    """There its send counts as done, as a sequencer on the other side may have delivered the message; so ``Lost``
    counts that message (seen in seed 7000180 of the simulator, family storm, where no ``Lost`` did)."""
    net = Net(3, sequencer=0, window=30_000)
    one, large = net.engines[1], Sending(net.engines[1], bytes(20_000))
    net.drop = lambda src, dst, lane, datagram: 1 in (src, dst)
    assert one.send(b"small") == SENT and large.step() == AGAIN and large.packed
    one.gate_close()
    own = one.own()
    assert one.own_messages(own.first + 1, own.last)[-1] == 1
    assert one.own_messages(own.first + 1, own.last, waiting=True)[-1] == 2


def test_a_sequencer_that_is_left_alone_has_delivered_all_that_it_packed() -> None:
    """Its own numbers are lower than those of its stream, which includes a forward."""
    net = Net(2, sequencer=0)
    assert net.engines[1].send(b"forward") == SENT
    net.run(20)
    change_view(net, [0], [0], sequencer=0, tag=2)
    assert net.engines[0].send(b"alone") == SENT
    net.engines[0].transmit(net.now)
    own = net.engines[0].own()
    assert (own.first, own.last, own.all, own.any) == (0, 1, 1, 1)


def test_accepted_messages_drain_by_order_and_by_acknowledgement() -> None:
    net = Net(3, sequencer=0)
    one, deaf = net.engines[1], True
    net.drop = lambda src, dst, lane, datagram: deaf and 1 in (src, dst)
    for _ in range(3):
        one.send(b"to all")
    for _ in range(2):
        one.send(b"to one", to=net.ids[2])
    one.end_sends()
    net.run(20)
    assert not one.drained() and not reports_of(one, SendsDrained)
    assert one.unacknowledged() == [0, 0, 2]
    own = one.own()
    assert (own.first, own.last, own.all, own.any) == (0, 1, 0, 0) and one.own_messages(1, 1) == [3]
    deaf = False
    net.run(40)
    assert one.drained() and reports_of(one, SendsDrained) == [SendsDrained()] and one.unacknowledged() == [0, 0, 0]
    assert one.own().any == 1 and sorted(of(net, 2, 1)) == [b"to all"] * 3 + [b"to one"] * 2
    net.run(40)
    assert not reports_of(one, SendsDrained)  # said once


def test_queued_messages_are_drained_in_the_view_that_comes() -> None:
    net = Net(3, sequencer=-1, blocked_bytes_max=1 << 16)
    one = net.engines[1]
    for engine in net.engines:
        engine.gate_close()
    one.send(b"queued")
    one.end_sends()
    assert not one.drained()
    change_view(net, [0, 1, 2], [0, 1, 2], sequencer=-1, tag=2)
    assert one.drained() and reports_of(one, SendsDrained)
    net.run(20)
    assert of(net, 0, 1) == [b"queued"]


@pytest.mark.parametrize("sequencer", [-1, 0, 1])
def test_own_messages_are_counted_by_packets_over_a_ring_and_more(sequencer: int) -> None:
    """Packets hold from none to several messages; the table holds two rings of them."""
    net = Net(3, sequencer=sequencer, ring_packets=64, window=100_000)
    one, ended, packets = net.engines[1], 0, []
    for number in range(300):
        big = number % 7 == 0
        for length in (2000,) if big else (10,) * (number % 4 + 1):
            assert one.send(bytes(length)) == SENT
            ended += 1
        net.run(1)
        packets.append((one.own().last, ended))
        if number % 5 == 0:
            net.run(6)
    net.run(100)
    own = one.own()
    assert own.all == own.any == own.last and own.last - own.first == 127
    known = [(last, ended) for last, ended in packets if last > own.first]
    counts = one.own_messages(known[0][0] + 1, own.last)
    for last, ended in known[1:]:
        assert counts[last - known[0][0] - 1] == ended - known[0][1]


# ---- the simulator -------------------------------------------------------------------------------------------------


def sends(node, n: int, to=None) -> None:
    node.record.pending += [(to.id if to else 0, 100)] * n
    node.application.sender.send_pending()
    node.poke()  # as a call that sends does


def named(node) -> list[tuple[int, int, str]]:
    return [(lost.messages, lost.unsent, str(lost.to or "")) for lost in node.record.log if isinstance(lost, Lost)]


def delivered(node, sender) -> int:
    return sum(isinstance(entry, Delivered) and entry.sender == sender.id for entry in node.record.log)


@pytest.mark.parametrize("order", ["fifo", "total"])
def test_leave_is_announced_when_all_is_ordered_and_acknowledged(order: str) -> None:
    """c sends to all and to b, while nothing arrives for 100 ms."""
    stage = Stage(order)
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    stage.network.partition({c.index}, {a.index, b.index})
    sends(c, 5)
    sends(c, 3, b)
    c.record.leave_ns = 10**9
    c.leave()
    c.service()
    stage.until(1100)
    assert not c.endpoint.over and not any("LEAVE" in line for line in stage.lines)
    stage.network.heal()
    stage.until(2500)
    assert c.record.left.complete and not named(c)
    assert (delivered(a, c), delivered(b, c)) == (5, 8)
    assert not list(check_safety(stage.records))


class _NoAcks(Engine):
    """A leaver does not wait for the receivers of its unicasts."""

    def drained(self) -> bool:
        return not self.blocked() and not self.unordered()


def test_without_waiting_for_acknowledgements_they_are_lost_and_told() -> None:
    stage = Stage()
    stage.make_engine = _NoAcks
    stage.group("a", "b", "c")
    _, b, c = stage.nodes
    stage.unicast = lambda source, to, datagram: (
        (source is c and datagram[2] == 2) or Stage.unicast(stage, source, to, datagram)
    )
    sends(c, 3, b)
    c.record.leave_ns = 10**9
    c.leave()
    stage.until(2500)
    assert c.record.left.view is not None and not c.record.left.complete and named(c) == [(3, 0, "b")]
    assert delivered(b, c) == 0 and not list(check_safety(stage.records))


def test_the_drain_goes_on_through_view_changes() -> None:
    """The sequencer falls while c drains: c's messages go to the next one, and only then does c leave."""
    stage = Stage("total")
    stage.group("a", "b", "c", "d")
    a, b, c, d = stage.nodes
    stage.network.partition({c.index}, {a.index})
    sends(c, 5)
    c.record.leave_ns = 10**10
    c.leave()
    a.crash()
    stage.until(4000)
    assert c.record.left.complete and not named(c) and delivered(b, c) == delivered(d, c) == 5
    assert not list(check_safety(stage.records))


def test_messages_that_cannot_drain_in_time_are_reported() -> None:
    """b pauses the group for longer than c waits."""
    stage = Stage("total", queue_bytes=1 << 16)
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    b.suspend(10**9)
    stage.until(1050)
    sends(c, 4)
    c.record.leave_ns = 10**8
    c.leave()
    stage.until(2500)
    assert c.record.left.view is not None and not c.record.left.complete and named(c) == [(4, 4, "")]
    assert delivered(a, c) == 0 and not list(check_safety(stage.records))


@pytest.mark.parametrize("order", ["fifo", "total"])
@pytest.mark.parametrize("name", ["a", "c"])
def test_a_member_that_is_cut_off_sends_and_leaves_is_told_how_much_is_lost(name: str, order: str) -> None:
    """The member sends while still one of three in its own eyes, and again when alone; in "total" a orders."""
    stage = Stage(order)
    stage.group("a", "b", "c")
    node, others = stage.node(name), [other for other in stage.nodes if other.name != name]
    sends(node, 2)
    stage.until(1100)
    stage.network.partition({node.index}, {other.index for other in others})
    sends(node, 3)
    sends(node, 1, others[0])
    node.service()
    stage.until(2500)
    assert len(node.endpoint.view.members) == 1
    sends(node, 4)
    node.leave()
    stage.until(4000)
    assert node.record.left.view is not None and not node.record.left.complete
    assert sum(messages for messages, _, to in named(node) if not to) == 7
    assert [each for each in named(node) if each[2]] == [(1, 0, others[0].name)]
    assert [delivered(other, node) for other in others] == [2, 2]
    assert not list(check_safety(stage.records))


def test_a_member_left_alone_lacks_nobody() -> None:
    stage = Stage()
    stage.group("a", "b")
    a, b = stage.nodes
    sends(a, 2)
    b.leave()
    stage.until(1500)
    sends(a, 2)
    a.leave()
    stage.until(2500)
    assert a.record.left.complete and b.record.left.complete and delivered(b, a) == 2


def test_the_excluded_are_told_of_messages_to_one_member_too() -> None:
    stage = Stage(partition="primary")
    stage.group("a", "b", "c")
    _, b, c = stage.nodes
    stage.network.partition({c.index}, {0, 1})
    sends(c, 3)
    sends(c, 2, b)
    c.service()
    stage.until(2500)
    stage.network.heal()
    stage.until(3500)
    assert isinstance(c.record.log[-1], Excluded) and named(c) == [(3, 0, ""), (2, 0, "b")]


def test_a_leaver_that_gets_no_answer_is_told_which_messages_may_be_lost() -> None:
    """c cannot leave a group that is blocked, and closes."""
    stage = Stage("total", partition="primary")
    stage.group("a", "b", "c")
    c = stage.node("c")
    stage.network.partition({c.index}, {0, 1})
    stage.until(2500)
    sends(c, 3)  # waits: the gate is closed
    c.record.leave_ns = 0
    c.leave()
    stage.until(14_000)
    assert c.endpoint.over and c.record.left.view is None and not c.record.left.complete
    assert c.application.sender.refused and c.record.counter == 0 and not named(c)


def test_views_of_two_sides_and_counts_of_messages_that_the_other_missed() -> None:
    """c is cut off and sends; when both sides merge, c is told how many messages the others did not deliver."""
    stage = Stage()
    stage.group("a", "b", "c")
    c = stage.node("c")
    stage.network.partition({c.index}, {0, 1})
    sends(c, 7)
    c.service()
    stage.until(2500)
    stage.network.heal()
    stage.until(4500)
    assert len([entry for entry in c.record.log if isinstance(entry, View)][-1].members) == 3
    assert [messages for messages, _, to in named(c) if not to] == [7]


def test_a_cut_that_cannot_be_right_does_no_harm() -> None:
    """Those who exclude a member say up to where they delivered its messages: any number."""
    stage = Stage("total", first_seqno=2**40)
    stage.group("a", "b")
    a, b = stage.nodes
    for node in (a, b):
        sends(node, 3)
        node.service()
        losses = node.endpoint.installer.losses
        assert [lost.messages for lost in losses.undelivered(0, None)] == [3]
        assert losses.undelivered(2**62, None) == [] and losses.undelivered(0, None, 0) == []


@pytest.mark.parametrize("order", ["fifo", "total"])
def test_messages_sent_again_when_a_member_is_alone_count_once(order: str) -> None:
    """c is cut off from the first moment, and sends again, to itself, the messages that the sequencer never saw."""
    stage = Stage(order)
    stage.group("a", "b", "c")
    c = stage.node("c")
    stage.network.partition({c.index}, {0, 1})
    sends(c, 5)
    c.service()
    stage.until(2500)
    c.leave()
    stage.until(4000)
    assert not c.record.left.complete and sum(messages for messages, _, _ in named(c)) == 5


# ---- real sockets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["send", "send_many", "unicast"])
@pytest.mark.parametrize("order", ["total", "fifo"])
def test_threads_that_send_while_another_leaves_lose_nothing_unseen(order: str, kind: str) -> None:
    with group_of(3, order=order) as (a, b, c):
        accepted, counts = [0, 0], {}
        taken = threading.Event()

        def read(group: seqcast.Group) -> None:
            try:
                while True:
                    last = taken.is_set() and len(group.view.members) == 2  # the view in which c was has ended
                    batch = group.recv_batch(0.2)
                    if batch is not None:
                        counts[group] = counts.get(group, 0) + sum(text[:1] == b"c" for text in batch.tolist())
                    elif last:
                        return
            except seqcast.NotMember:
                return

        def send(number: int) -> None:
            try:
                while True:
                    if kind == "send_many":
                        c.send_many([b"c"] * 100)
                        accepted[number] += 100
                    else:
                        c.send(b"c", to=b.member if kind == "unicast" else None)
                        accepted[number] += 1
            except seqcast.NotMember as error:
                accepted[number] += error.sent

        readers = [threading.Thread(target=read, args=(group,)) for group in (a, b, c)]
        senders = [threading.Thread(target=send, args=(number,)) for number in range(2)]
        for thread in readers + senders:
            thread.start()
        wait_until(lambda: all(accepted))
        graceful = c.leave()
        for thread in senders:
            thread.join(LIMIT_S)
        taken.set()
        for thread in readers:
            thread.join(LIMIT_S)
        for group in (b,) if kind == "unicast" else (a, b):
            assert graceful and counts[group] == sum(accepted)


def test_asyncio_sends_while_the_group_is_left_lose_nothing_unseen():
    async def main():
        name = cluster()
        with join(name, "a") as a, join(name, "b") as b:
            async with seqcast.aio.join(name, name="c", interface=LOOPBACK) as c:
                while len(c.view.members) < 3:
                    await asyncio.sleep(0.005)
                accepted = {None: 0, b.member: 0}

                async def send(to):
                    try:
                        while True:
                            await c.send(b"c", to=to)
                            accepted[to] += 1
                            if accepted[to] % 20 == 0:
                                await asyncio.sleep(0)
                    except seqcast.NotMember:
                        pass

                async def read():
                    async for _ in c:
                        pass

                tasks = [asyncio.create_task(send(to)) for to in (None, None, b.member)]
                reader = asyncio.create_task(read())
                await asyncio.sleep(0.05)
                assert await c.leave()
                await asyncio.gather(*tasks)
                reader.cancel()
            assert len(payloads(a, accepted[None])) == accepted[None]
            assert len(payloads(b, sum(accepted.values()))) == sum(accepted.values())
            assert a.recv(0.1) is None and b.recv(0.1) is None

    asyncio.run(main())


def test_a_leaver_says_so_to_its_own_senders_and_losses_can_be_read_afterwards():
    with group_of(2, order="total", send_while_blocked="queue", **PATIENT) as (a, b):
        a.suspend(LIMIT_S)
        b.send_many([b"x"] * 3)
        assert not b.leave(0.5)
        with pytest.raises(seqcast.NotMember):
            b.send(b"late")
        lost = [event for event in b.events() if isinstance(event, Lost)]
        assert [(event.messages, event.unsent) for event in lost] == [(3, 3)]


def test_a_receiver_that_is_not_in_the_view_is_another_error_than_to_be_out():
    with group_of(2, order="fifo") as (a, b):
        gone = b.member
        assert a.sending_view == a.view and gone in a.sending_view.members
        b.leave()
        wait_until(lambda: len(a.sending_view.members) == 1)
        with pytest.raises(seqcast.NotInView, match="is not in the view"):
            a.send(b"x", to=gone)
        with pytest.raises(seqcast.NotInView) as error:
            a.send_many([b"x"], to=gone)
        assert error.value.sent == 0 and not isinstance(error.value, seqcast.NotMember)
        a.send(b"x")
    with pytest.raises(seqcast.NotMember):
        a.send(b"x", to=gone)
    with pytest.raises(seqcast.NotMember):
        a.sending_view  # noqa: B018
