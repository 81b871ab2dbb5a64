"""native/seal: without a key each datagram has a CRC. With a seal plugged in, here the simulator's, members understand
each other, and nobody else does."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from engines import MS, Net, make_engine, reports_of
from hostile import forge
from project import ROOT

from seqcast._native.engine import LANE_CONTROL, SEAL_ROOM, SENT, crc32c
from seqcast.config import keys
from seqcast.reports import FrameReceived, OtherKey
from seqcast.sim.seal import SECRETS, Sealings, simulated_seal
from seqcast.sim.wire import CONTROL, HEARTBEAT, MESSAGES, header, kind

TAG = 7
MESSAGE = b"nobody on the wire may read this"


def seal(seed: int = 1, *marks: int, **more: object) -> dict[str, object]:
    return {"seal": simulated_seal(random.Random(seed), *(marks or (20,)), **more)}


class Watched(Net):
    """Members with a seal; all their datagrams are kept, and the nonces of all sealings compared."""

    def __init__(self, n: int, **settings: object) -> None:
        self.sent: list[tuple[int, int, bytes]] = []
        self.sealings = Sealings()
        if "seal" in settings:
            settings |= seal(sealings=self.sealings)
        super().__init__(n, **settings)
        self.drop = self.note

    def note(self, source: int, target: int, lane: int, datagram: bytes) -> bool:
        self.sent.append((source, target, datagram))
        return False


def test_sizes_that_python_knows_are_those_of_the_kernel():
    assert keys.ROOM == SEAL_ROOM
    text = (ROOT / "native/seal/seal.h").read_text()
    for name, size in (("SECRET", keys.SECRET_BYTES), ("SECRETS", keys.KEYS_MAX), ("MARKS", keys.IDS)):
        assert int(re.search(rf"#define SC_SEAL_{name} (\d+)", text)[1]) == size


def test_members_with_one_seal_understand_each_other_and_the_wire_shows_no_message():
    net = Watched(3, **seal())
    for engine in net.engines:
        engine.send(MESSAGE)
    net.run(100)
    assert [len(got) for got in net.got] == [3, 3, 3]
    assert all(MESSAGE not in datagram for _, _, datagram in net.sent)
    assert any(MESSAGE in net.sealings.opened(datagram) for _, _, datagram in net.sent)
    assert not net.sealings.violations
    assert all(header(datagram).key_id for _, _, datagram in net.sent)


def test_without_a_seal_each_datagram_has_its_crc():
    net = Watched(2)
    net.engines[0].send(MESSAGE)
    net.run(100)
    assert len(net.sent) > 2
    for _, _, datagram in net.sent:
        assert header(datagram).key_id == 0
        assert crc32c(datagram[:4] + bytes(4) + datagram[8:]) == int.from_bytes(datagram[4:8], "little")


@pytest.mark.parametrize("size", [10, 1000, 20_000])
def test_a_datagram_that_was_altered_anywhere_is_dropped(size):
    net = Net(2, packet=65_000, **seal())
    net.engines[0].send(bytes(size))
    ((_, _, datagram),) = net.engines[0].transmit(net.now)
    rng = random.Random(size)
    places = {*range(8 * 40), *range(8 * len(datagram) - 8 * SEAL_ROOM, 8 * len(datagram))}
    places |= set(rng.sample(range(8 * len(datagram)), 50))
    before = net.engines[1].counters()
    for place in sorted(places):
        altered = bytearray(datagram)
        altered[place // 8] ^= 1 << place % 8
        assert net.engines[1].receive(bytes(altered), bytes([1]), net.now) == 0, place
    after = net.engines[1].counters()
    assert after["packets_received"] == before["packets_received"]
    behind_the_header = sum(place >= 8 * 40 for place in places)
    assert behind_the_header > 300
    assert after["drop_key"] - before["drop_key"] >= behind_the_header
    assert net.engines[1].receive(datagram, bytes([1]), net.now) == 1
    for end in (0, 39, 40, 79, 80, len(datagram) - 1):
        assert net.engines[1].receive(datagram[:end], bytes([1]), net.now) == 0


def test_another_secret_and_no_secret_open_nothing_and_of_the_first_sources_it_is_told_once():
    net = Net(2, **seal())
    net.engines[0].control_send(MESSAGE, b"", True)
    ((_, _, datagram),) = net.engines[0].transmit(net.now)
    for settings, how in ((seal(1, 3), "other"), ({}, "has")):
        other = Net(2, **settings)
        assert other.engines[1].receive(datagram, bytes([1]), other.now) == 0
        for source in range(40):
            for _ in range(5):
                assert other.engines[1].receive(datagram, bytes([source]), other.now) == 0
        assert other.engines[1].counters()["drop_key"] == 1 + 5 * 40
        told = reports_of(other.engines[1], OtherKey)
        assert {each.how for each in told} == {how}
        assert Counter(each.address for each in told) == {bytes([source]): 2 for source in range(16)}
        assert Counter(each.sure for each in told) == {False: 16, True: 16}


def test_after_many_odd_sources_another_one_is_told_now_and_then():
    """Else sixteen forged addresses would hide a member whose key is another one."""
    net, other = Net(2, **seal()), make_engine(7, **seal(1, 3))
    other.control_send(b"join")
    ((_, _, datagram),) = other.transmit(net.now)

    def told(source: int) -> int:
        for _ in range(3):
            assert net.engines[1].receive(datagram, bytes([source]), net.now) == 0
        return len([each for each in reports_of(net.engines[1], OtherKey) if each.sure])

    assert [told(source) for source in range(17)] == [1] * 16 + [0]
    net.now += 9999 * MS
    assert told(50) == 0
    net.now += MS
    assert [told(source) for source in (50, 51, 1, 50)] == [1, 0, 1, 0]
    net.now += 10_000 * MS
    assert [told(source) for source in (0, 1)] == [1, 0], "the oldest one has no place any more"


def test_a_source_that_goes_on_is_told_of_once_a_second():
    """A joiner forgets one that was heard once, long ago."""
    net, other = Net(2, **seal()), make_engine(7, **seal(1, 3))
    other.control_send(b"join")
    ((_, _, datagram),) = other.transmit(net.now)
    told = []
    for _ in range(30):
        assert net.engines[1].receive(datagram, bytes([9]), net.now) == 0
        told.append(len(reports_of(net.engines[1], OtherKey)))
        net.now += 100 * MS
    assert [at for at, n in enumerate(told) if n] == [0, 2, 12, 22]


def test_a_secret_is_replaced_in_three_steps_and_members_understand_each_other_at_each():
    """All open both; all seal with the new one, one after the other; the old one is gone, and opens nothing."""
    for first, second in (((3,), (3, 20)), ((3, 20), (20, 3)), ((20, 3), (20,))):
        net = Net(2)
        net.engines = [make_engine(net.ids[0], **seal(1, *first)), make_engine(net.ids[1], **seal(2, *second))]
        net.sealed = True
        net.install([0, 1], sequencer=-1, tag=1, marker=1)
        for engine in net.engines:
            engine.send(MESSAGE)
        net.run(50)
        assert [len(got) for got in net.got] == [2, 2], (first, second)
        assert not sum(engine.counters()["drop_key"] for engine in net.engines)
    old, new = make_engine(1, **seal(1, 3)), make_engine(2, **seal(1, 20))
    old.control_send(b"x")
    ((_, _, datagram),) = old.transmit(0)
    assert new.receive(datagram, b"\1", 0) == 0 and new.counters()["drop_key"] == 1


def test_the_secrets_of_the_file_are_replaced_while_engines_run():
    """With the same numbers, which go on: one that seals with an old secret again uses no nonce twice."""
    sealings = Sealings()
    one = make_engine(1, **seal(1, 3, sealings=sealings))
    other = make_engine(2, **seal(2, 3, 20))
    for marks, taken in (((3,), 1), ((20, 3), 1), ((20,), 1), ((3,), 1)):
        one.refile([(mark, SECRETS[mark]) for mark in marks])
        one.control_send(b"x")
        ((_, _, datagram),) = one.transmit(0)
        assert header(datagram).key_id >> 9 & 31 == marks[0]
        assert other.receive(datagram, b"\1", 0) == taken
    assert other.counters()["opened_other"] == 2 and not other.counters()["drop_key"]
    other.refile([(20, SECRETS[20])])
    one.control_send(b"x")
    ((_, _, datagram),) = one.transmit(0)
    assert other.receive(datagram, b"\1", 0) == 0 and other.counters()["drop_key"] == 1, "forgotten, with its keys"
    assert not sealings.violations
    for wrong in ([], [(3, b"short")], [(32, bytes(32))], [(each, bytes(32)) for each in range(5)]):
        with pytest.raises(ValueError):
            one.refile(wrong)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_sender_of_much_that_does_not_open_is_not_tried_any_more_and_stops_nobody_else(recorded):
    """To open a datagram in vain takes ten times as long as a drop unopened."""
    net, joiner, stranger = Net(2, **seal()), make_engine(7, **seal(7)), bytes([99])
    tried = "drop_replay" if recorded else "drop_key"
    forged = forge.sealed_outside(forge.Forger(TAG).control(net.ids[0], b"{}"), 1)
    if recorded:
        assert net.engines[1].receive(forged, bytes([1]), net.now) == 1
    else:
        forged = forged[:-9] + b"\0" + forged[-8:]

    def dropped(source: bytes, n: int = 2000) -> Counter[str]:
        before = Counter(net.engines[1].counters())
        for _ in range(n):
            assert net.engines[1].receive(forged, source, net.now) == 0
        return Counter(net.engines[1].counters()) - before

    joiner.control_send(b"join")
    joiner.control_send(b"join again")
    (_, _, early), (_, _, sound) = joiner.transmit(net.now)
    assert dropped(stranger, 9000)[tried] == 9000
    assert net.engines[1].receive(early, stranger, net.now) == 1, "so few keep out no joiner, in whose name they come"
    counts = dropped(stranger)
    assert 900 < counts[tried] < 1500 and counts[tried] + counts["drop_rate"] == 2000
    assert dropped(bytes([1]))[tried] == 2000, "in the name of a member's address: its own frames go on"
    assert net.engines[1].receive(sound, stranger, net.now) == 0, "not even with the key"
    assert net.engines[1].receive(sound, bytes([98]), net.now) == 1
    net.now += 500 * MS
    assert 4900 < dropped(stranger, 6000)[tried] < 5300, "after a while some are tried again"


def test_large_datagrams_that_do_not_open_count_by_the_time_that_they_take():
    net = Net(2, **seal())
    forged = forge.sealed_outside(forge.Forger(TAG).control(net.ids[0], bytes(60_000)), 1)
    forged = forged[:-9] + bytes([forged[-9] ^ 1]) + forged[-8:]
    for _ in range(400):
        assert net.engines[1].receive(forged, bytes([99]), net.now) == 0
    counts = net.engines[1].counters()
    assert 160 < counts["drop_key"] < 190 and counts["drop_key"] + counts["drop_rate"] == 400


def test_damaged_datagrams_between_sound_ones_are_no_other_key():
    net = Net(2, **seal())
    for number in range(20):
        net.engines[0].control_send(b"%d" % number)
        ((_, _, datagram),) = net.engines[0].transmit(net.now)
        for damaged in range(2):
            assert net.engines[1].receive(datagram[:50] + bytes([damaged]) + datagram[51:], bytes([1]), net.now) == 0
        assert net.engines[1].receive(datagram, bytes([1]), net.now) == 1
        net.now += MS
    assert not any(each.sure for each in reports_of(net.engines[1], OtherKey))


def test_a_sender_that_tries_the_keys_of_its_file_in_turn_is_told_of_anew_after_each_sound_datagram():
    net = Net(2, **seal())
    joiner, told = make_engine(7, **seal(7, 20, 3)), []
    for mark in (3, 3, 3, 3, 20, 3, 3, 20, 3):
        joiner.refile([(mark, SECRETS[mark])])
        joiner.control_send(b"join")
        ((_, _, datagram),) = joiner.transmit(net.now)
        assert net.engines[1].receive(datagram, bytes([7]), net.now) == (mark == 20)
        net.now += 2000 * MS
        told.append([each.sure for each in reports_of(net.engines[1], OtherKey)])
    assert told == [[False], [], [True], [True], [], [False], [], [], [False]]


def test_a_datagram_without_a_seal_does_not_count_in_a_group_with_one():
    net = Net(2, **seal())
    forged = forge.Forger(TAG)
    for datagram in (
        forged.packet(forge.DATA, 100, 1, 1),
        forged.control(100, b"{}"),
        forged.heartbeat(100, 1, 0, 0, [(0, 0)] * 2),
    ):
        assert net.engines[1].receive(datagram, bytes([1]), net.now) == 0
    assert net.engines[1].counters()["drop_key"] == 3
    assert net.engines[1].reports() == [OtherKey(bytes([1]), "lacks", sure) for sure in (False, True)]


def test_a_member_that_seals_with_a_key_which_our_file_lacks_is_told_though_its_heartbeats_open():
    """A key is replaced, and one machine was forgotten."""
    net = Net(2, **seal())
    other = make_engine(net.ids[0], **seal(1, 3))
    for number in range(3):
        other.control_send(b"%d" % number)
        ((_, _, datagram),) = other.transmit(net.now)
        assert net.engines[1].receive(datagram, bytes([1]), net.now) == 0
        net.run(300)
    assert [each.sure for each in reports_of(net.engines[1], OtherKey)] == [False, True]


def test_datagrams_without_a_packet_count_once():
    """An old heartbeat would keep a dead member alive."""
    net = Watched(2, **seal())
    net.run(500)
    beats = [datagram for source, _, datagram in net.sent if source == 0 and kind(datagram) == HEARTBEAT]
    assert len(beats) > 3
    before = net.engines[1].counters()["drop_replay"]
    for datagram in beats:
        assert net.engines[1].receive(datagram, bytes([1]), net.now) == 0
    assert net.engines[1].counters()["drop_replay"] == before + len(beats)


def test_late_datagrams_count_if_they_are_new():
    net = Net(2, **seal())
    frames = []
    for number in range(1500):
        assert net.engines[0].control_send(b'{"n":%d}' % number)
        ((lane, _, datagram),) = net.engines[0].transmit(net.now)
        assert lane == LANE_CONTROL
        frames.append(datagram)
        net.now += MS
    taken = [net.engines[1].receive(frames[n], bytes([1]), net.now + n * MS) for n in range(0, 1500, 2)]
    assert taken == [1] * 750
    now = net.now + 1500 * MS
    late = [n for n in range(1, 1500, 2) if net.engines[1].receive(frames[n], bytes([1]), now + n * MS)]
    assert late == list(range(1499 - 1024, 1500, 2)), "the last 1,024 numbers are known one by one"
    again = [net.engines[1].receive(each, bytes([1]), now + 9999 * MS) for each in frames]
    assert not any(again)


def test_a_packet_that_is_sent_again_is_sealed_again_and_that_of_a_lost_member_by_its_holder():
    """The nonce differs, although the packet may differ, too."""
    net = Watched(3, **seal())
    lose = {1}

    def drop(source: int, target: int, lane: int, datagram: bytes) -> bool:
        net.note(source, target, lane, datagram)
        return kind(datagram) in MESSAGES and source == 0 and target in lose

    net.drop = drop
    net.engines[0].send(MESSAGE)
    net.run(20)
    lose.clear()
    net.run(200)
    assert [payload for _, payload in net.got[1]] == [MESSAGE]
    packets = [datagram for source, target, datagram in net.sent if kind(datagram) in MESSAGES and target == 1]
    assert len(set(packets)) == len(packets) > 1
    assert not net.sealings.violations

    # Member 1 lacks a packet, and its sender is gone: the cut names member 2 as the holder.
    lose.add(1)
    net.engines[0].send(b"the last one")
    net.run(3)
    assert len(net.got[2]) == 2 and len(net.got[1]) == 1
    net.drop = lambda source, target, lane, datagram: net.note(source, target, lane, datagram) or 0 in (source, target)
    for i in (1, 2):
        net.engines[i].freeze([net.ids[0]])
    net.engines[1].cut([2, 0, 0], [(0, 2, 2, 2)])
    net.engines[2].cut([2, 0, 0], [])
    net.run(300)
    assert net.engines[1].cut_reached()
    repairs = [d for source, _, d in net.sent if source == 2 and kind(d) in MESSAGES and header(d).sender == net.ids[0]]
    assert repairs and header(repairs[0]).key_id & 0xFF == 1 + 2
    assert not net.sealings.violations


def test_a_holder_may_seal_packets_of_the_group_in_its_view_and_nothing_else():
    net = Watched(3, **seal())
    net.run(200)
    kinds = Counter()
    for _, _, datagram in net.sent:
        claimed = bytearray(datagram)
        claimed[12] = 3  # as if the third member had sealed the datagram
        before = net.engines[1].counters()
        assert net.engines[1].receive(bytes(claimed), bytes([1]), net.now) == 0
        after = net.engines[1].counters()
        kinds.update(name for name in ("drop_view", "drop_key", "drop_own") if after[name] > before[name])
    assert kinds["drop_view"] > 5, "it names a holder, and is not a packet"


def test_a_datagram_for_one_member_opens_at_no_other():
    """Two unicast streams of one member have the same seqnos: a packet of one would be taken for that of the other."""
    net = Watched(3, **seal())
    lost = net.note
    net.drop = lambda source, target, lane, datagram: lost(source, target, lane, datagram) or header(datagram).kind == 2
    assert net.engines[0].send(MESSAGE, to=net.ids[1]) == SENT
    net.step()
    (packet,) = {datagram for _, target, datagram in net.sent if header(datagram).kind == 2}
    assert net.engines[2].receive(packet, bytes([1]), net.now) == 0
    assert net.engines[2].counters()["drop_key"] == 1 and not net.engines[2].reports()
    assert net.engines[1].receive(packet, bytes([1]), net.now) == 1


def test_a_process_that_is_copied_with_its_numbers_seals_under_other_nonces():
    """As a virtual machine that is cloned, or resumed twice from one snapshot."""
    for chances, same in (((1, 2), False), ((3, 3), True)):
        sealings = Sealings()
        twins = [make_engine(5, **seal(chance, sealings=sealings)) for chance in chances]
        for number in range(50):
            for twin in twins:
                twin.control_send(b"%d" % number)
                twin.transmit(0)
        assert len(sealings.used) == 1
        assert len(sealings.violations) == (50 if same else 0), "with the same chance it would be the same nonce"


def test_a_standing_frame_is_known_by_its_content():
    net = Watched(2, **seal())
    net.engines[0].stand(b'{"a":1}', 10 * MS, 5, net.now)
    net.run(100)
    frames = [datagram for source, _, datagram in net.sent if source == 0 and kind(datagram) == CONTROL]
    assert len(frames) == 5
    assert [each.outside for each in reports_of(net.engines[1], FrameReceived)] == [True]
    assert net.engines[1].counters()["drop_repeated"] == 4
