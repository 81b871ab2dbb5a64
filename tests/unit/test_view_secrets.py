"""The secrets of views: which datagrams each seals, who can open them, and which VIEW nobody may send."""

from __future__ import annotations

import importlib
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Annotated

import pytest
from engines import MS, Net, make_engine, reports_of, secret_of
from hostile import forge

from seqcast._native.engine import Engine
from seqcast.core import orders
from seqcast.core.frames.codec import list_of, schema_of
from seqcast.core.frames.fields import Count, MemberInfo
from seqcast.core.frames.kinds import dump, load
from seqcast.core.frames.view import WRAP_BYTES, WRAP_NONCE_BYTES, NewView
from seqcast.core.identities import Identities
from seqcast.core.rules.cut import first_view
from seqcast.core.secrets import Exchange, Secrets, about
from seqcast.errors import RemoteProtocolError
from seqcast.reports import FrameReceived, MemberSuspected, SecretWorn
from seqcast.sim.seal import Sealings, SimulatedExchange, simulated_seal
from seqcast.sim.wire import CONTROL, is_sealed_inside, kind
from seqcast.types import ViewId

MESSAGE = b"for those who are in the view"


def seal(seed: int = 1, **more: object) -> dict[str, object]:
    return {"seal": simulated_seal(random.Random(seed), 20, **more)}


def sent_by(engine: Engine, now: int) -> list[bytes]:
    return [datagram for _, _, datagram in engine.transmit(now)]


def alone(member: int, tag: int, secret: bytes | None = None, **settings: object) -> Engine:
    """A member that is in a view with member 101, whose address is 2."""
    engine = make_engine(member, **seal(member), **settings)
    enter(engine, member, tag, secret or secret_of(tag))
    return engine


def enter(engine: Engine, member: int, tag: int, secret: bytes, now: int = 0) -> None:
    engine.install(
        tag=tag, ids=[100, 101], addresses=[b"\1", b"\2"], rank=member - 100, mechanism=0, sequencer=-1,
        window_bytes=1 << 20, forward_window_bytes=1 << 20, unicast_window_bytes=1 << 20, state_window_bytes=1 << 20,
        packet_bytes=1472, base=[0, 0], origin_base=[0, 0], cut=None, marker=tag, now_ns=now, secret=secret, cipher=1,
    )  # fmt: skip


# ---- the engine


@pytest.mark.parametrize("kind", [forge.DATA, forge.UNICAST])
@pytest.mark.parametrize("former", [True, False], ids=["by the secret of the view before", "by that of the view"])
def test_a_former_member_with_its_old_memory_says_nothing_in_the_next_view_though_its_secret_still_opens(kind, former):
    net = Net(3, **seal())
    net.run(50)
    net.install([0, 1], sequencer=-1, tag=2, marker=2)
    net.engines[0].send(MESSAGE)
    net.run(1)
    victim, ones = net.engines[1], net.ids[0]
    seqno = victim.stream(0)[1] + 1 if kind == forge.DATA else 1
    stream = 2 if kind == forge.DATA else 1  # the streams of two members go on
    plain = forge.Forger(7).packet(kind, ones, stream, seqno, [b"forged"])
    tag = 1 if former else 2
    target = net.ids[1] if kind == forge.UNICAST else 0
    datagram = forge.sealed_inside(plain, 1 << 40, tag, secret_of(tag), target)
    before = victim.counters()
    assert victim.receive(datagram, bytes([0]), net.now) == (not former)
    net.run(5)
    assert any(payload == b"forged" for _, payload in net.got[1]) == (not former)
    assert victim.counters()["drop_view"] - before["drop_view"] == former


@pytest.mark.parametrize("kind", [forge.DATA, forge.UNICAST, forge.ACK, CONTROL])
@pytest.mark.parametrize("former", [True, False], ids=["by the secret of the view before", "by that of the view"])
def test_a_former_member_says_no_more_in_pieces_than_in_a_whole_datagram(kind, former):
    net, forged = Net(3, **seal()), forge.Forger(7)
    net.run(50)
    net.install([0, 1], sequencer=-1, tag=2, marker=2)
    victim, ones, tag = net.engines[1], net.ids[0], 1 if former else 2
    plain = {
        forge.DATA: forged.packet(forge.DATA, ones, 2, 1),
        forge.UNICAST: forged.packet(forge.UNICAST, ones, 1, 1),
        forge.ACK: forged.ack(ones, 2, 0, 0, 0, 0),
        CONTROL: forged.control(ones, b"{}", 2),
    }[kind]
    target = net.ids[1] if kind == forge.UNICAST else 0
    before, numbers = victim.counters()["drop_view"], itertools.count(1 << 40)

    def takes(whole: bytes, number: int, target: int) -> bool:
        pieces = forged.pieces(whole, ones, tag, number, 40)
        sealed = [forge.sealed_inside(each, next(numbers), tag, secret_of(tag), target) for each in pieces]
        return [victim.receive(each, b"\1", net.now) for each in sealed][-1] == 1

    assert kind != forge.UNICAST or not takes(plain, 1, 0), "others could open it too"
    assert takes(plain, 2, target) == (not former)
    assert victim.counters()["drop_view"] - before == (former and 1 + (kind == forge.UNICAST))
    assert takes(forged.control(ones, b"{}", tag), 3, 0), "a frame of its own view"


def test_numbers_that_a_former_member_has_used_leave_those_of_the_view_alone():
    """Otherwise one datagram would have a member's heartbeats dropped as old, and the member excluded."""
    net, forged, seen = Net(3, **seal()), forge.Forger(7), []
    net.drop = lambda source, target, _, d: (source, target, kind(d)) == (0, 1, CONTROL) and bool(seen.append(d))
    net.engines[0].control_send(b"inside")
    net.run(50)
    net.install([0, 1], sequencer=-1, tag=2, marker=2)
    victim = net.engines[1]
    high = forge.sealed_inside(forged.control(net.ids[0], b"{}", 1), (1 << 48) - 1, 1, secret_of(1))
    assert len(seen) == 1 and victim.receive(high, b"\1", net.now) == 1
    net.engines[0].control_send(b"inside")
    net.run(200)
    assert not victim.counters()["drop_replay"] and len(seen) == 2
    assert [each.payload for each in reports_of(victim, FrameReceived)] == [b"inside", b"{}", b"inside"]
    for n, repeat in enumerate((high, *seen)):
        assert victim.receive(repeat, b"\1", net.now) == 0
        assert victim.counters()["drop_replay"] == n + 1, "in either view none counts twice"


def sealed_by(who: str, piece: bytes, number: int) -> bytes:
    """A piece for member 100 in the name of member 101, whose view is 1."""
    if who == "the file":
        return forge.sealed_outside(piece, number)
    tag = 2 if who == "another view" else 1
    return forge.sealed_inside(piece, number, tag, secret_of(tag), 100 if who == "the view, for one" else 0)


@pytest.mark.parametrize("who", ["the file", "another view", "the view, for one"])
def test_pieces_by_different_secrets_make_no_datagram(who):
    """Otherwise a process with the key file alone could put its bytes into a member's datagram in pieces."""
    member, forged, numbers = alone(100, 1), forge.Forger(7), itertools.count(1)
    member.know(2, secret_of(2), 1)
    own = forged.pieces(forged.control(101, b"x" * 100, 1), 101, 1, 5, 40)
    other = forged.pieces(forged.control(101, b"y" * 100, 1), 101, 2 if who == "another view" else 1, 5, 40)
    for piece in other[:-1]:
        assert member.receive(sealed_by(who, piece, next(numbers)), b"\2", 0) == 1
    sealed = [sealed_by("the view", piece, next(numbers)) for piece in own]
    assert member.receive(sealed[-1], b"\2", 0) == 1 and not member.reports()
    assert [member.receive(each, b"\2", 0) for each in sealed[:-1]] == [1] * (len(own) - 1)
    assert member.reports() == [FrameReceived(101, b"\2", b"x" * 100)]


@pytest.mark.parametrize("who", ["the file", "another view"])
def test_pieces_from_outside_the_view_push_out_none_of_its_members(who):
    member, forged, numbers = alone(100, 1), forge.Forger(7), itertools.count(1)
    member.know(2, secret_of(2), 1)
    begin, *rest = (
        sealed_by("the view", piece, next(numbers))
        for piece in forged.pieces(forged.control(101, b"x" * 100, 1), 101, 1, 5, 40)
    )
    assert member.receive(begin, b"\2", 0) == 1
    for number in range(6, 40):
        piece = forged.pieces(bytes(100), 101, 2, number, 60)[0]
        assert member.receive(sealed_by(who, piece, next(numbers)), b"\2", 0) == 1
    assert [member.receive(each, b"\2", 0) for each in rest] == [1] * len(rest)
    assert member.reports() == [FrameReceived(101, b"\2", b"x" * 100)]


def test_after_so_many_datagrams_in_a_view_another_is_asked_for_now_and_again():
    def worn(n: int) -> list[int]:
        """The requests while this many datagrams are sealed."""
        for _ in range(n):
            engine.control_send(b"x")
            engine.transmit(0)
        return [each.tag for each in reports_of(engine, SecretWorn)]

    engine = make_engine(100, sealings_max=2048, **seal(1))
    assert worn(3000) == [], "outside a view"
    enter(engine, 100, 7, secret_of(7))
    assert worn(2048) == []
    assert worn(1) == [7]
    assert worn(128) == [] and worn(1) == [7], "the request may be lost"
    enter(engine, 100, 8, secret_of(8))
    assert worn(2048) == []
    assert worn(1) == [8]


def test_all_that_is_said_in_a_view_is_sealed_with_its_secret_and_the_rest_with_that_of_the_file():
    net = Net(3, **seal())
    net.engines[0].control_send(b"inside")
    net.engines[0].control_send(b"outside", b"", True)
    net.engines[0].stand(b"beacon", 50 * MS, 3, net.now)
    net.engines[0].send(MESSAGE)
    seen: dict[int, set[bool]] = {}
    net.drop = lambda _source, _target, _lane, d: seen.setdefault(kind(d), set()).add(is_sealed_inside(d)) is not None
    net.run(2000)
    assert len(seen) > 5 and {sealed for each, those in seen.items() if each != CONTROL for sealed in those} == {True}
    assert seen[CONTROL] == {True, False}
    net.engines[0].close_view(None, 9)
    net.engines[0].control_send(b"who has left")
    assert [is_sealed_inside(each) for each in sent_by(net.engines[0], net.now)] == [False]


def test_a_process_with_the_file_alone_opens_nothing_of_a_view_and_is_not_told_of_another_key():
    net = Net(2, **seal())
    net.engines[0].send(MESSAGE)
    (packet,) = sent_by(net.engines[0], net.now)
    stranger, former = make_engine(55, **seal(3)), alone(101, 9)
    for other in (stranger, former):
        assert other.receive(packet, b"\1", 0) == 0
        assert other.counters()["drop_view"] == 1 and not other.counters()["drop_key"]
        assert other.reports() == []


def test_a_secret_opens_in_its_own_view_only():
    """Should two views ever have one secret, datagrams sealed in one nevertheless do not open in the other."""
    one, other = alone(100, 1), alone(101, 1 + (1 << 15), secret_of(1))  # the bits that a number has of a tag are equal
    one.send(MESSAGE)
    (packet,) = sent_by(one, 0)
    assert alone(101, 1).receive(packet, b"\1", 0) == 1
    assert other.receive(packet, b"\1", 0) == 0 and other.counters()["drop_key"] == 1


def test_datagrams_queued_in_a_view_are_sealed_with_its_secret_when_the_next_one_has_begun():
    behind = alone(101, 1)
    ahead = alone(100, 1)
    ahead.control_send(b"my answer")
    enter(ahead, 100, 2, secret_of(2))
    datagrams = [each for each in sent_by(ahead, 0) if kind(each) == CONTROL]
    assert [behind.receive(each, b"\1", 0) for each in datagrams] == [1]
    assert behind.reports() == [FrameReceived(100, b"\1", b"my answer")]


def test_the_secret_of_the_view_before_opens_until_all_are_in_the_next_one():
    late, ahead = alone(101, 1), alone(100, 1)
    enter(ahead, 100, 2, secret_of(2), now=MS)
    install_ns = 2_000 * MS
    now = MS
    for each, heard in (("at once", True), ("a little later", True), ("too late", False)):
        late.control_send(each.encode())
        (frame,) = [datagram for datagram in sent_by(late, now) if kind(datagram) == CONTROL]
        assert ahead.receive(frame, b"\2", now) == heard, each
        now += install_ns if each == "at once" else 60_000 * MS
        ahead.tick(now)


@pytest.mark.parametrize("entered", [False, True], ids=["known", "entered"])
def test_two_views_whose_tags_share_the_bits_in_a_number_are_told_apart(entered):
    """The number of a sealing has 15 bits of the tag, so one view in 32,768 shares those of the one before."""
    late, ahead, tag = alone(101, 1), alone(100, 1), 1 + (1 << 15)
    ahead.know(tag, bytes(32), 1)
    late.control_send(b"an answer")
    late.send(MESSAGE)
    late.send(MESSAGE, to=100)
    sent = {kind(datagram): datagram for datagram in sent_by(late, 0)}
    assert {forge.DATA, forge.UNICAST, CONTROL} <= sent.keys()
    if entered:
        enter(ahead, 100, tag, bytes(32))
        assert ahead.receive(sent[forge.UNICAST], b"\2", 0) == 0, "it is sealed again in the next view"
    else:
        assert ahead.receive(sent[forge.UNICAST], b"\2", 0) == 1
    assert ahead.receive(sent[CONTROL], b"\2", 0) == 1
    assert ahead.receive(sent[forge.DATA], b"\2", 0) == (not entered), "the view is closed"
    enter(late, 101, tag, bytes(32))
    enter(ahead, 100, tag, bytes(32))
    late.send(MESSAGE)
    late.send(MESSAGE, to=100)  # in a stream that began in the view before
    sent = {kind(datagram): datagram for datagram in sent_by(late, MS)}
    assert [ahead.receive(sent[each], b"\2", MS) for each in (forge.DATA, forge.UNICAST)] == [1, 1]
    ahead.tick(500 * MS)
    acks = [each for each in sent_by(ahead, 500 * MS) if kind(each) == forge.ACK]
    assert len(acks) == 2 - entered, "of the stream to the group, and of one to one member that began before"
    assert all(late.receive(each, b"\1", 500 * MS) for each in acks)


def test_a_process_with_the_file_alone_can_send_only_frames_outside_views():
    """No sign of life, no vote, nothing for the streams, and no frame as from a member."""
    member, forged = alone(100, 1), forge.Forger(7)
    numbers = itertools.count(1)
    inside = [forged.packet(each, 101, 1, 1) for each in (forge.DATA, forge.UNICAST, forge.FORWARD, forge.STATE)] + [
        forged.record(101, 1, 1, [(0, 1)]),
        forged.ack(101, 1, 0, 0, 0, 0),
        forged.nak(101, 1, 100, 0, [(1, 1)]),
        forged.probe(101, 1, 0, 5, 0),
        forged.heartbeat(101, 1, 0, 0, [(0, 0)] * 2),
    ]
    for datagram in inside:
        assert member.receive(forge.sealed_outside(datagram, next(numbers)), b"\2", 60 * MS) == 0
    assert member.counters()["drop_field"] == len(inside)
    assert not member.counters()["drop_key"]
    frame = forged.control(101, b"{}")
    assert member.receive(forge.sealed_outside(frame, next(numbers)), b"\2", 60 * MS) == 1
    assert member.reports() == [FrameReceived(101, b"\2", b"{}", outside=True)]
    other = alone(101, 1, bytes(32))  # which believes itself in the view, with another secret
    other.send(MESSAGE)
    assert [member.receive(each, b"\2", 60 * MS) for each in sent_by(other, 0)] == [0]
    assert member.counters()["drop_key"] == 1 and not member.reports()


def test_numbers_that_somebody_with_the_file_has_used_leave_those_of_the_view_alone():
    """Otherwise one datagram would have a member's heartbeats dropped as old, and the member excluded."""
    member, other, forged = alone(100, 1), alone(101, 1), forge.Forger(7)
    member.receive(forge.sealed_outside(forged.control(101, b"{}"), 1 << 40), b"\2", 0)
    other.control_send(b"inside")
    assert [member.receive(each, b"\2", 0) for each in sent_by(other, 0) if kind(each) == CONTROL] == [1]
    assert not member.counters()["drop_replay"]


def outside(engine: Engine, text: bytes, now: int = 0) -> bytes:
    """A frame of a member for those outside its view, too."""
    engine.control_send(text, b"", True)
    (datagram,) = [each for each in sent_by(engine, now) if not is_sealed_inside(each)]
    return datagram


@pytest.mark.parametrize("source", [b"\2", b"\3"], ids=["from its address", "from another address"])
def test_the_file_alone_uses_up_neither_the_numbers_of_a_member_nor_the_time_for_frames(source):
    """Otherwise no VIEW of that member would come, and its group would change no more."""
    member, other, forged = alone(100, 1), alone(101, 1), forge.Forger(7)
    frames = (forge.sealed_outside(forged.control(101, bytes(50_000)), (1 << 47) + n) for n in range(90))
    assert 0 < sum(member.receive(each, source, 0) for each in frames) < 20, "as much as a stranger"
    assert member.counters()["drop_rate"] > 70 and not member.counters()["drop_replay"]
    member.reports()
    for text in (b"a", b"b"):
        datagram = outside(other, text)
        assert member.receive(datagram, b"\2", 0) == 1
        assert member.reports() == [FrameReceived(101, b"\2", text, outside=True)]
        before = member.counters()["drop_replay"]
        assert member.receive(datagram, b"\2", 0) == 0 and member.counters()["drop_replay"] == before + 1


def test_frames_by_the_file_alone_in_the_name_of_a_member_leave_room_for_those_of_the_member():
    """As long as Python takes none."""
    member, other, forged = alone(100, 1, control_bytes_max=10_000), alone(101, 1), forge.Forger(7)
    for n in range(20):
        member.receive(forge.sealed_outside(forged.control(101, bytes(1000)), 1 + n), b"\2", 0)
    assert member.counters()["drop_control_full"] > 10
    assert member.receive(outside(other, b"a" * 1000), b"\2", 0) == 1
    assert member.reports()[-1] == FrameReceived(101, b"\2", b"a" * 1000, outside=True)


def test_pieces_by_the_file_alone_push_out_none_that_a_member_sends_outside():
    """A large VIEW comes in pieces."""
    member, forged, numbers = alone(100, 1), forge.Forger(7), itertools.count(1)
    view = [(1, secret_of(1))]
    whole = forged.control(101, b"x" * 100, 1)
    pieces = forged.pieces(whole, 101, 1, 5, 40)
    begin, *rest = (forge.sealed_outside(each, next(numbers), views=view) for each in pieces)
    assert member.receive(begin, b"\2", 0) == 1
    for number in range(6, 40):
        piece = forged.pieces(bytes(100), 101, 1, number, 60)[0]
        assert member.receive(forge.sealed_outside(piece, next(numbers)), b"\2", 0) == 1
    assert [member.receive(each, b"\2", 0) for each in rest] == [1] * len(rest)
    assert member.reports() == [FrameReceived(101, b"\2", b"x" * 100, outside=True)]


def test_that_a_member_speaks_outside_is_known_to_all_with_a_secret_of_that_view_or_of_the_one_before():
    """Such a frame counts, though one with the file alone has used the highest number in that name."""
    forged = forge.Forger(7)

    def shows(receiver: Engine, text: bytes) -> bool:
        highest = forge.sealed_outside(forged.control(101, text), (1 << 48) - 1)
        receiver.receive(highest, b"\2", 0)
        datagram = outside(other, text)
        first, again = (receiver.receive(datagram, b"\2", 0) for _ in range(2))
        assert not again
        return first == 1

    behind, ahead = alone(100, 1), alone(100, 1)
    enter(ahead, 100, 2, secret_of(2))
    other = alone(101, 1)
    assert shows(behind, b"in our view") and shows(ahead, b"still in the one before ours")
    enter(other, 101, 2, secret_of(2))
    assert shows(ahead, b"in our view again") and shows(behind, b"already in the next one, which we do not know")
    enter(other, 101, 3, secret_of(3))
    assert not shows(behind, b"two views ahead") and shows(ahead, b"in the next one")
    other.close_view(None, 9)
    assert not shows(ahead, b"in no view")


@pytest.mark.parametrize("known", [True, False], ids=["known before", "not known yet"])
@pytest.mark.parametrize("forgotten", [False, True], ids=["opens both", "has forgotten the one before"])
def test_a_frame_from_the_next_view_counts_once_before_and_after_that_view_is_entered(known, forgotten):
    """Otherwise a repeat would be a sign of life of a dead member."""
    late, ahead, sent = alone(100, 1, install_ns=2 * MS), alone(101, 1), []
    enter(ahead, 101, 2, secret_of(2))
    if known:
        late.know(2, secret_of(2), 1)
    for text in (b"a", b"b"):
        sent.append(outside(ahead, text))
        assert late.receive(sent[-1], b"\2", 0) == 1
        assert late.receive(sent[-1], b"\2", 0) == 0
    unread = outside(ahead, b"c")
    enter(late, 100, 2, secret_of(2))
    if forgotten:
        late.tick(10 * MS)
    before = late.counters()["drop_replay"]
    assert [late.receive(each, b"\2", 10 * MS) for each in sent] == [0, 0]
    assert late.counters()["drop_replay"] == before + 2
    assert late.receive(unread, b"\2", 10 * MS) == 1, "one that is new counts"


def test_numbers_that_a_former_member_has_used_leave_frames_for_outsiders_alone():
    """A former member knows the secret of the view before, as those do whose frames have two tags."""
    member, other, forged = alone(100, 1), alone(101, 1), forge.Forger(7)
    for engine, rank in ((member, 100), (other, 101)):
        enter(engine, rank, 2, secret_of(2))
    for n in (*range(40), (1 << 48) - 1):
        said = forge.sealed_outside(forged.control(101, b"%d" % n), n, views=[(1, secret_of(1))])
        assert member.receive(said, b"\2", 0) == 1
    assert member.receive(outside(other, b"a VIEW"), b"\2", 0) == 1
    assert not member.counters()["drop_replay"]


@pytest.mark.parametrize("with_", ["the file alone", "the secret of the view before"])
def test_pieces_from_the_next_view_make_a_datagram_though_that_view_is_entered_between_them(with_):
    member, forged, numbers = alone(100, 1), forge.Forger(7), itertools.count(1)
    member.know(2, secret_of(2), 1)
    views = [(2, secret_of(2)), (1, secret_of(1))]
    own = forged.pieces(forged.control(101, b"x" * 100, 2), 101, 2, 5, 40)
    other = forged.pieces(forged.control(101, b"y" * 100, 2), 101, 2, 5, 40)
    sealed = [forge.sealed_outside(each, next(numbers), views=views) for each in own]
    assert [member.receive(each, b"\2", 0) for each in sealed[:1]] == [1]
    enter(member, 100, 2, secret_of(2))
    shown = [] if with_ == "the file alone" else views[1:]
    for piece in other[1:]:
        member.receive(forge.sealed_outside(piece, next(numbers), views=shown), b"\2", 0)
    assert [member.receive(each, b"\2", 0) for each in sealed[1:]] == [1] * (len(sealed) - 1)
    assert [each.payload for each in reports_of(member, FrameReceived)] == [b"x" * 100]


def test_the_tags_of_a_member_outside_are_of_one_datagram():
    """The tags of a member can be read with the file: each is of one datagram."""
    forged, head, views = forge.Forger(7), 40, [(1, secret_of(1))]
    one, other = forged.control(101, b"one", 1), forged.control(101, b"two", 1)
    sound = forge.sealed_outside(one, 5, views=views)
    tag = forge.member_tag(sound[:head], one[head:], sound[-8:], *views[0])

    def shows(plain: bytes, number: int, **how: object) -> bool:
        member = alone(100, 1)
        member.receive(forge.sealed_outside(other, (1 << 48) - 1), b"\2", 0)
        return member.receive(forge.sealed_outside(plain, number, **how), b"\2", 0) == 1

    for tags in (tag, tag + bytes(8), bytes(8) + tag):
        assert shows(one, 5, tags=tags)
        assert not shows(other, 5, tags=tags), "of another body"
        assert not shows(one, 6, tags=tags), "of another sealing"
        assert not shows(one[:24] + bytes(8) + one[32:], 5, tags=tags), "of another header"
    assert not shows(one, 5, tags=tag[:-1] + bytes([tag[-1] ^ 1]))
    assert not shows(one, 5, tags=tag[1:] + tag[:1])
    assert not shows(one, 5, views=[(1, bytes(32))]) and not shows(one, 5, views=[(2, secret_of(1))])


@pytest.mark.parametrize("shown", [True, False], ids=["has shown itself", "never showed itself"])
def test_a_member_lives_only_by_datagrams_of_the_view(shown):
    """Otherwise a former member could keep a dead one in the view for ever, with the key file alone."""
    net = Net(2, install_ns=1000 * MS, **seal())
    net.run(100 if shown else 0)
    ghost = make_engine(net.ids[1], **seal(7))  # as member 1, and in no view
    net.drop = lambda source, *_: source == 1  # member 1 is dead
    for _ in range(60):
        net.run(50)
        ghost.control_send(b"{}", b"\1", True)
        ghost.greet(net.ids[0], b"\1")
        for each in sent_by(ghost, net.now):
            net.engines[0].receive(each, b"\2", net.now)
        answers = [each for each in sent_by(net.engines[0], net.now) if kind(each) == 10]
        for each in answers:  # pings, which a process outside can answer
            ghost.receive(each, b"\1", net.now)
    assert MemberSuspected(net.ids[1], "silence") in net.engines[0].reports()


@pytest.mark.parametrize("anybody", [False, True])
def test_a_process_with_the_address_of_a_member_reads_frames_for_anybody_there(anybody):
    """Without multicast one that starts again has the port of its former self, which stays in the view for a while, and
    for long if the group is blocked."""
    net = Net(2, **seal())
    net.run(50)
    again = make_engine(12345, **seal(7))
    net.engines[0].control_send(b"wait", b"\2", True, anybody)
    came = [again.receive(each, b"\1", net.now) for each in sent_by(net.engines[0], net.now) if kind(each) == CONTROL]
    assert came == [int(anybody)]


@pytest.mark.parametrize("how", ["inside", "outside"])
def test_a_former_member_keeps_no_dead_one_alive_that_has_shown_itself_in_the_next_view(how):
    """Its secret still opens, for those who have not entered that view."""
    net, forged, numbers = Net(3, **seal()), forge.Forger(7), itertools.count(1 << 40)
    net.run(50)
    net.install([0, 1], sequencer=-1, tag=2, marker=2)
    net.run(200)
    net.drop = lambda source, *_: source == 0  # member 0 is dead
    for _ in range(16):
        net.run(50)
        frame = forged.control(net.ids[0], b"{}", 1)
        if how == "inside":
            said = forge.sealed_inside(frame, next(numbers), 1, secret_of(1))
        else:
            said = forge.sealed_outside(frame, next(numbers), views=[(1, secret_of(1))])
        assert net.engines[1].receive(said, bytes([1]), net.now) == 1
    assert MemberSuspected(net.ids[0], "silence") in net.engines[1].reports()


def test_secrets_of_views_that_nobody_enters_do_not_push_out_the_one_that_seals():
    """Otherwise messages would be sealed with the secret of the file."""
    member, other = alone(100, 1), alone(101, 1)
    for tag in range(2, 9):
        member.know(tag, secret_of(tag), 1)
        member.send(MESSAGE)
        sent = sent_by(member, tag * MS)
        assert sent and all(is_sealed_inside(each) for each in sent), tag
        assert [other.receive(each, b"\1", tag * MS) for each in sent] == [1] * len(sent), tag


def test_a_view_without_a_secret_cannot_be_entered():
    engine = make_engine(100, **seal())
    with pytest.raises(ValueError, match="cannot be installed"):
        engine.install(
            tag=1, ids=[100], addresses=[b"\1"], rank=0, mechanism=0, sequencer=-1, window_bytes=1 << 20,
            forward_window_bytes=1 << 20, unicast_window_bytes=1 << 20, state_window_bytes=1 << 20, packet_bytes=1472,
            base=[0], origin_base=[0], cut=None, marker=1, now_ns=0,
        )  # fmt: skip
    with pytest.raises(ValueError, match="32 bytes"):
        engine.know(1, b"short", 1)


def test_a_key_is_of_one_sealer_and_no_nonce_comes_twice():
    sealings = Sealings()
    engines = [make_engine(member, **seal(9, owner=member, sealings=sealings)) for member in (100, 101)]
    for number in range(3):
        for member, engine in zip((100, 101), engines, strict=True):
            enter(engine, member, 1 + number, secret_of(1 + number))
            engine.send(MESSAGE)
            engine.control_send(b"{}")
            engine.transmit(0)
    assert len(sealings.used) == 6 and not sealings.violations
    assert {sealings.origin[key].tag for key in sealings.used} == {1, 2, 3}


# ---- the VIEW


def sodium() -> Exchange:
    pytest.importorskip("nacl")
    return importlib.import_module("seqcast.net.secure").KeyPair()


PAIRS = [pytest.param(lambda: SimulatedExchange(random.Random()), id="simulated"), pytest.param(sodium, id="sodium")]


@pytest.mark.parametrize("pair", PAIRS)
def test_a_secret_is_wrapped_for_one_reader_and_for_one_view(pair):
    maker, reader, other = pair(), pair(), pair()
    secret = maker.draw()
    wrap, again = (maker.wrap(reader.public, b"view", secret) for _ in range(2))
    assert len(secret) == 32 and len(wrap) == WRAP_BYTES and secret not in wrap
    assert wrap[:WRAP_NONCE_BYTES] != again[:WRAP_NONCE_BYTES], "a copy of the maker wraps another secret for this view"
    assert [reader.unwrap(maker.public, b"view", each) for each in (wrap, again)] == [secret] * 2
    assert reader.unwrap(maker.public, b"view", again[:WRAP_NONCE_BYTES] + wrap[WRAP_NONCE_BYTES:]) is None
    assert reader.unwrap(maker.public, b"another view", wrap) is None
    assert other.unwrap(maker.public, b"view", wrap) is None
    assert reader.unwrap(other.public, b"view", wrap) is None
    assert reader.unwrap(maker.public, b"view", wrap[:-1] + bytes([wrap[-1] ^ 1])) is None


def test_a_public_key_that_is_none_gets_a_secret_that_nobody_can_read():
    maker, reader = sodium(), sodium()
    secret = maker.draw()
    assert maker.draw() != secret
    for wrong in (b"", bytes(32), b"\1" + bytes(31), b"short"):
        assert len(maker.wrap(wrong, b"view", secret)) == WRAP_BYTES
        assert reader.unwrap(wrong, b"view", maker.wrap(reader.public, b"view", secret)) is None
        maker.public = wrong
        maker._shared[reader.public] = bytes(32)  # the product of such a key with any other, without a check
        assert reader.unwrap(wrong, b"view", maker.wrap(reader.public, b"view", secret)) is None


def nobody() -> Identities:
    """There are no identities."""
    return Identities(None, (), "cluster")


class Party:
    """Members a, b and c, who are in a view; and d, which joins."""

    def __init__(
        self, pair: Callable[[int], Exchange] = lambda number: SimulatedExchange(random.Random(number))
    ) -> None:
        self.pairs = {number: pair(number) for number in range(1, 5)}
        self.secrets = {number: Secrets(pair, number, nobody()) for number, pair in self.pairs.items()}
        self.infos = {
            number: MemberInfo(f"m{number}", number, bytes([number]), 1 << 20, 1472, 1 << 20, key=pair.public)
            for number, pair in self.pairs.items()
        }
        self.first = self.made(1, (1, 2, 3))
        for number in (1, 2, 3):
            self.secrets[number].entered(self.secrets[number].of(self.first) or b"")

    def made(self, counter: int, members: tuple[int, ...], maker: int = 1) -> NewView:
        infos = [self.infos[number] for number in members]
        frame = first_view(infos, "total", orders.resolve("total"), maker)
        closes = self.first.view_id if counter > 1 else None
        frame = replace(frame, view_id=ViewId(counter, members[0], (1, maker)), closes=closes)
        return self.secrets[maker].given(frame)

    def known(self) -> dict[int, MemberInfo]:
        return {info.id: info for info in self.first.members}


def test_the_members_of_a_view_and_nobody_else_have_its_secret_and_the_next_has_another():
    party = Party()
    one = {number: party.secrets[number].of(party.first) for number in (1, 2, 3)}
    assert len(set(one.values())) == 1 and len(one[1]) == 32
    assert party.secrets[4].of(party.first) is None
    second = party.made(2, (1, 3, 4))
    two = {number: party.secrets[number].of(second) for number in (1, 3, 4)}
    assert len(set(two.values())) == 1 and two[1] != one[1]
    assert party.secrets[2].of(second) is None
    wraps = replace(second, wraps=tuple(reversed(second.wraps)))
    assert [party.secrets[number].of(wraps) for number in (1, 4)] == [None, None]
    assert [party.secrets[number].fault(second, party.known()) for number in (1, 2, 3)] == [""] * 3


def test_a_view_that_nobody_in_the_closed_one_made_is_refused():
    """By one that has the key file, or was a member before, and can seal a VIEW, and wrap a secret."""
    party = Party()
    second = party.made(2, (1, 3, 4))
    stranger = Party()
    stranger.pairs[1] = SimulatedExchange(random.Random(99))
    stranger.secrets[1] = Secrets(stranger.pairs[1], 1, nobody())
    forged = stranger.made(2, (1, 3, 4))  # in the name of a
    b, c = party.secrets[2], party.secrets[3]
    for secrets in (b, c):
        assert "does not show" in secrets.fault(replace(forged, closes=second.closes), party.known())
    assert "does not show" in c.fault(replace(second, proof=b""), party.known())
    assert "does not show" in c.fault(replace(second, members=second.members[:2]), party.known())
    assert "does not show" in c.fault(replace(second, view_id=replace(second.view_id, counter=3)), party.known())
    # A member of the view can prove anything but the identity of a.
    in_the_name_of_a = c.proven(replace(forged, closes=second.closes))
    assert "another key" in b.fault(in_the_name_of_a, party.known())
    assert "no secret" in c.fault(c.proven(replace(second, wraps=second.wraps[:1])), party.known())
    assert "no secret" in c.fault(c.proven(replace(second, wraps=(bytes(WRAP_BYTES),) * 3)), party.known())


def test_a_joiner_enters_no_view_of_others_that_one_with_the_file_alone_has_changed():
    """It can open the VIEW, and seal it again."""
    party = Party()
    second = party.made(2, (1, 3, 4))
    b, d = party.secrets[2], party.secrets[4]
    assert d.admits(second) and d.admits(load(dump(second)))
    for change in (
        {"origin_base": (5, 1, 1)},
        {"cut": (1,)},
        {"survivors": (1,)},
        {"shown": b""},
        {"shown": bytes(16)},
    ):
        assert not d.admits(replace(second, **change)), change
    assert d.admits(replace(second, attempt=(9, 0), answers=(9, 0), proof=bytes(16))), "as those who serve it may"
    # One that leaves passes on the VIEW of another, and does not have its secret; those who enter do.
    passed = b.proven(replace(second, table=(1, 1, 1)))
    assert not passed.shown and not d.admits(passed)
    party.secrets[3].entered(party.secrets[3].of(passed))
    assert d.admits(party.secrets[3].shown(passed)) and party.secrets[3].shown(second) == second
    left = party.made(2, (3, 4))  # its maker leaves
    assert d.admits(left) and d.admits(party.secrets[1].proven(replace(left, table=(1, 1, 1))))


def test_nobody_on_the_way_changes_a_member_of_a_view():
    """By an attacker with the key file, which alone seals the datagrams to the joiner d."""
    party = Party()
    second = party.made(2, (1, 3, 4))
    c, d = party.secrets[3], party.secrets[4]
    changes = {
        "name": "x", "address": b"x", "capacity": 1, "packet_bytes": 600, "window_bytes": 1, "gro": True, "state": 1,
        "blocks": True, "key": bytes(32), "about": "{}", "observer": True, "aes": True, "identity": bytes(32),
        "cookie": 2, "signature": bytes(64), "speaks": (1, 1), "opens": (7,),
    }  # fmt: skip
    assert {"id", *changes} == {field.name for field in fields(MemberInfo)}
    for change in changes.items():
        changed = replace(second, members=(*second.members[:2], replace(second.members[2], **dict([change]))))
        assert "does not show" in c.fault(changed, party.known()), change
        assert d.of(changed) is None, change
    assert d.of(second) is not None


def test_nobody_on_the_way_changes_ends_of_streams():
    party = Party()
    second = party.made(2, (1, 3, 4))
    c, d = party.secrets[3], party.secrets[4]
    for change in ({"cut": (7, 7, 7)}, {"table": (7, 7, 7)}, {"survivors": (1,)}, {"origin_base": (7, 7, 7)}):
        assert "does not show" in c.fault(replace(second, **change), party.known()), change
    for change in ({"base": (7, 7, 7)}, {"window": 1}, {"stateful": True}, {"history": 3}, {"departed": (9,)}):
        assert "does not show" in c.fault(replace(second, **change), party.known()), change
        assert d.of(replace(second, **change)) is None, change
    assert not c.fault(replace(second, attempt=(5, 2), answers=(5, 2)), party.known()), "served again"


@pytest.mark.parametrize(
    ("seed", "draws"), [(1, 60), *(pytest.param(seed, 3000, marks=pytest.mark.long) for seed in (2, 3))]
)
def test_of_a_view_that_lies_about_its_secret_nobody_takes_another_secret(seed, draws):
    """Wraps that are wrong, too many, too few, or of other members, and keys of makers, drawn; real key pairs."""
    party = Party(lambda _: sodium())
    second = party.made(2, (1, 3, 4))
    secret = party.secrets[3].of(second)
    other = Party(lambda _: sodium()).made(2, (1, 3, 4))  # of another group with such members
    rng, seen = random.Random(seed), Counter()
    low_order = [bytes(32), b"\1" + bytes(31), b"\xff" * 32, b"\xec" + b"\xff" * 30 + b"\x7f"]
    makers = [second.maker_key] * 6 + [pair.public for pair in party.pairs.values()] + low_order + [b""]
    for _ in range(draws):
        flipped = bytearray(rng.choice(second.wraps))
        flipped[rng.randrange(WRAP_BYTES)] ^= 1 << rng.randrange(8)
        known = [*second.wraps, *party.first.wraps, *other.wraps, bytes(flipped), rng.randbytes(WRAP_BYTES)]
        wraps = list(second.wraps)
        for place in rng.sample(range(3), rng.randrange(4)):
            wraps[place] = rng.choice(known)
        wraps += [rng.choice(known) for _ in range(rng.choice((0, 0, 0, 1, 100)))]
        frame = replace(
            second, wraps=tuple(wraps[rng.choice((0, 0, 0, 1)) :]), maker_key=rng.choice([*makers, rng.randbytes(32)])
        )
        try:
            came = load(dump(frame))
        except RemoteProtocolError as error:
            assert len(frame.wraps) != 3 and "not by rank" in str(error)
            seen["refused"] += 1
            continue
        assert came == frame and len(frame.wraps) == 3
        for number, place in ((1, 0), (3, 1), (4, 2)):
            found = party.secrets[number].of(came)
            right = frame.maker_key == second.maker_key and frame.wraps[place] == second.wraps[place]
            assert found == (secret if right else None), (number, frame)
            seen["found" if right else "none"] += 1
    assert min(seen[each] for each in ("refused", "found", "none")) > draws // 10, seen


@dataclass(frozen=True, slots=True)
class LaterInfo(MemberInfo):
    """As a later release describes its members."""

    added: Count = 7


@dataclass(frozen=True, slots=True)
class LaterView(NewView):
    """The VIEW of a later release."""

    members: Annotated[tuple[MemberInfo, ...], list_of(schema_of(LaterInfo), 9)]
    added: Count = 7


def values(of: object) -> dict[str, object]:
    return {field.name: getattr(of, field.name) for field in fields(of)}


def test_a_later_release_adds_fields_and_members_of_both_have_the_secret_and_find_the_proof():
    party = Party()
    second = party.made(2, (1, 3, 4))
    infos = tuple(LaterInfo(**values(info)) for info in second.members)
    later = LaterView(**{**values(second), "members": infos})
    assert about(later) == about(second)
    c, d = party.secrets[3], party.secrets[4]
    assert c.fault(later, party.known()) == c.fault(second, party.known()) == ""
    assert d.of(later) == d.of(second) is not None
    for change in ({"added": 8}, {"members": (*infos[:2], replace(infos[2], added=8))}):
        assert "does not show" in c.fault(replace(later, **change), party.known()), change
        assert d.of(replace(later, **change)) is None, change


def test_without_a_key_there_are_no_secrets():
    party = Party()
    none = Secrets(None, 1, nobody())
    plain = first_view([party.infos[1]], "total", orders.resolve("total"), 1)
    assert none.given(plain) == none.proven(plain) == plain
    assert none.admits(plain) and none.shown(plain) == plain
    assert none.of(plain) == b"" and none.fault(plain, {}) == "" and none.public == b""
