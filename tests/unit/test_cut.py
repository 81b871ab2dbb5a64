"""The arithmetic of the cut: where streams end, who has missing packets, the contents of the next view."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqcast._native.engine import charges
from seqcast.core import orders
from seqcast.core.frames.closing import FETCH_MAX, Fetch, Held, Ok
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.view import Shortfall
from seqcast.core.rules.cut import first_view, fix_cut, next_view
from seqcast.core.rules.merged import continues, merged_view
from seqcast.core.rules.windows import charge_full, charge_most, windows
from seqcast.types import MEMBERS_MAX, View, ViewId

INFOS = [MemberInfo(name, number + 1, b"%d" % number, 160_000, 1500, 1 << 20) for number, name in enumerate("abcde")]


def ok(last, *held):
    return Ok(7, (1, 0), last, tuple(Held(prefix, tuple(ranges)) for prefix, *ranges in held))


def test_a_survivors_cut_is_its_last_seqno_and_it_holds_all_of_it():
    cut, fetch = fix_cut(2, {0: ok(9, (9,), (4,)), 1: ok(5, (6,), (5,))})
    assert cut == (9, 5)
    assert fetch == (Fetch(0, 7, 9, 0), Fetch(1, 5, 5, 1))


def test_a_lost_members_cut_is_the_longest_prefix_that_the_survivors_hold_together():
    # b has 1..3 and 6..7, c has 1..1 and 4..5: together 1..7; 9 lies behind a hole.
    cut, fetch = fix_cut(3, {1: ok(0, (3, (6, 7), (9, 9)), (0,), (0,)), 2: ok(0, (1, (4, 5)), (0,), (0,))})
    assert cut == (7, 0, 0)
    assert fetch == (Fetch(0, 2, 3, 1), Fetch(0, 4, 5, 2), Fetch(0, 6, 7, 1))


@given(st.data())
def test_the_cut_of_a_lost_member_equals_that_of_a_dumb_walk_and_holders_hold_its_packets(data):
    held = {}
    for survivor in data.draw(st.sets(st.integers(1, 5), min_size=1, max_size=4)):
        seqnos = data.draw(st.sets(st.integers(1, 14)))
        prefix = 0
        while prefix + 1 in seqnos:
            prefix += 1
        ranges = []
        for seqno in sorted(seqnos):
            if seqno > prefix:
                if ranges and ranges[-1][1] == seqno - 1:
                    ranges[-1] = (ranges[-1][0], seqno)
                else:
                    ranges.append((seqno, seqno))
        held[survivor] = (seqnos, Held(prefix, tuple(ranges)))
    nothing = (Held(0),) * 5
    oks = {survivor: Ok(7, (1, 1), 0, (each, *nothing)) for survivor, (_, each) in held.items()}
    cut, fetch = fix_cut(6, oks)
    end = 0
    while any(end + 1 in seqnos for seqnos, _ in held.values()):
        end += 1
    assert cut[0] == end
    lowest = min(each.prefix for _, each in held.values())
    named = [(seqno, each.holder) for each in fetch if each.rank == 0 for seqno in range(each.lo, each.hi + 1)]
    assert [seqno for seqno, _ in named] == list(range(lowest + 1, end + 1))
    assert all(seqno in held[holder][0] for seqno, holder in named)


@pytest.mark.long
def test_a_bounded_list_of_ranges_never_cuts_off_the_prefix_of_one_survivor():
    # Alternating holders give one part per seqno; the prefix 40 may be delivered and stays within the cut.
    odd = [(seqno, seqno) for seqno in range(42, 1200, 2)]
    even = [(seqno, seqno) for seqno in range(41, 1200, 2)]
    lost = 100
    oks = {
        0: Ok(7, (1, 0), 0, (Held(0), Held(0), *[Held(40, tuple(odd))] * lost)),
        1: Ok(7, (1, 0), 0, (Held(0), Held(0), *[Held(3, tuple(even))] * lost)),
    }
    cut, fetch = fix_cut(lost + 2, oks)
    assert len(fetch) <= FETCH_MAX
    assert all(seqno >= 40 for seqno in cut[2:])
    assert all(max(f.hi for f in fetch if f.rank == rank) == cut[rank] for rank in range(2, lost + 2))


def test_the_next_view_has_the_survivors_in_their_old_order_then_the_joiners_by_id():
    view = View(ViewId(5, 1, (1, 1)), tuple(info.member for info in INFOS[:3]), "sequencer", 0, "sequencer")
    infos = {info.id: info for info in INFOS[:3]}
    frame = next_view(view, infos, (2, 1), (2, 3), (9, 4, 6), (50, 40, 60), {2}, [INFOS[4], INFOS[3]], {}, None)
    assert [info.name for info in frame.members] == ["c", "d", "e"]
    assert frame.view_id == ViewId(7, 3, (2, 2))  # closed counter + attempt, coordinator, (attempt, initiator)
    assert frame.closes == view.view_id and frame.survivors == (2, 3) and frame.cut == (9, 4, 6)
    assert frame.base == (6, 0, 0) and frame.origin_base == (60, 0, 0) and frame.sequencer == 0


def test_in_another_order_each_member_keeps_its_own_seqnos():
    def backwards(infos, _subgroups):
        return list(infos)[::-1]

    def closed(first, members, cut):
        view = View(ViewId(5, first, (1, first)), tuple(info.member for info in members), "sequencer", 0, "sequencer")
        infos = {info.id: info for info in members}
        table = [10 * seqno for seqno in cut]
        return next_view(view, infos, (1, 0), [*infos], cut, table, set(), [], {}, None, backwards)

    one, other = closed(1, INFOS[:2], (7, 8)), closed(3, INFOS[2:4], (9, 6))
    assert [info.name for info in one.members] == ["b", "a"] and one.view_id.coordinator == 2
    assert one.base == (8, 7) and one.origin_base == (80, 70) and one.survivors == (1, 2) and one.cut == (7, 8)
    merged = merged_view([one, other], (), backwards)
    assert [info.name for info in merged.members] == ["c", "d", "a", "b"] and merged.view_id.coordinator == 3
    assert merged.base == (9, 6, 7, 8) and merged.origin_base == (90, 60, 70, 80)
    assert [group.ids for group in merged.subgroups] == [(2, 1), (4, 3)]
    # A lost sequencer went on to order packets of b's and c's, as their own sides may have done since; nobody can have
    # ordered so many of d's.
    tag, successor = one.closes.tag, other.closes
    used = [Shortfall(tag, successor, 2, 84), Shortfall(tag, successor, 3, 20), Shortfall(tag, successor, 4, 1 << 61)]
    merged = merged_view([one, other], used, backwards)
    assert merged.origin_base == (90, 60, 70, 84), "no number of a member's own is used twice"
    assert continues(merged, one, 1) and continues(merged, other, 3)
    assert not continues(merged, replace(one, origin_base=(85, 70)), 1)


@pytest.mark.parametrize("leads", [True, False])
def test_a_joiner_of_one_part_that_is_a_member_of_another_comes_from_that_one(leads):
    """Its JOIN was read late, by a busy Python: the joiner has sent messages in the other view since."""

    def closed(first, members, joiners):
        view = View(ViewId(5, first, (1, first)), tuple(info.member for info in members), "records", 0, "records")
        cut = [10 * info.id for info in members]
        infos = {info.id: info for info in members}
        return next_view(view, infos, (1, 0), [*infos], cut, cut, set(), joiners, {}, None)

    one, other = closed(1, INFOS[:1], INFOS[2:4]), closed(2, INFOS[1:3], [])
    parts = [one, other] if leads else [other, one]
    merged = merged_view(parts, ())
    groups = {group.view_id: group.ids for group in merged.subgroups}
    assert groups == {one.closes: (1, 4), other.closes: (2, 3)}
    assert dict(zip([info.id for info in merged.members], merged.base, strict=True)) == {1: 10, 2: 20, 3: 30, 4: 0}
    assert continues(merged, one, 1) and continues(merged, other, 2)


def test_if_everyone_leaves_the_closing_view_has_no_members():
    def choose(members):
        raise AssertionError("there is nobody to choose from")

    view = View(ViewId(5, 1, (1, 1)), tuple(info.member for info in INFOS[:2]), "total", 0, "records")
    infos = {info.id: info for info in INFOS[:2]}
    frame = next_view(view, infos, (1, 0), (1, 2), (9, 4), (9, 4), {1, 2}, [], {}, None, choose=choose)
    assert frame.members == frame.base == () and frame.view_id.counter == 6


def test_only_as_many_joiners_come_in_as_a_view_has_room_for():
    frame = next_view(
        View(ViewId(1, 1), (INFOS[0].member,), "fifo", -1), {1: INFOS[0]}, (1, 0), (1,), (0,), (0,), set(),
        [MemberInfo(f"j{number}", 10 + number, b"x", 1, 1500, 1) for number in range(200)], {}, None,
    )  # fmt: skip
    assert len(frame.members) == MEMBERS_MAX


def test_the_first_view_starts_every_stream_at_one():
    frame = first_view(INFOS[:1], "total", orders.resolve("total"), 1)
    assert frame.base == frame.origin_base == (0,) and frame.closes is None and frame.view_id == ViewId(1, 1, (1, 1))


def test_the_core_charges_packets_as_the_engine_does():
    sizes = [*range(512, 65_001, 4)]
    assert [charges(size) for size in sizes] == [(charge_full(size), charge_most(size)) for size in sizes]


def test_windows_of_all_senders_together_fit_the_smallest_receive_buffer():
    members = [MemberInfo(str(n), n, b"x", 1 << (20 + n % 2), 1500 + n, 1 << 30) for n in range(1, 6)]
    for multicasters, senders in ((5, 4), (1, 1)):
        sizes = windows(members, multicasters)
        assert sizes.window + sizes.share * (senders - 1) <= sizes.room <= (1 << 20) * 3 // 4
        assert (sizes.forward + sizes.unicast) * 4 <= 1 << 20 and sizes.unicast * 4 + sizes.state <= 1 << 20
        assert sizes.packet_bytes == 1500


@pytest.mark.parametrize("n", [2, 3, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("packet_bytes", [1472, 8972, 65_000])
def test_however_many_members_multicast_each_always_has_room_for_a_packet(n, packet_bytes):
    members = [MemberInfo(str(i), i + 1, b"x", 8 << 20, packet_bytes, 1 << 30) for i in range(n)]
    sizes = windows(members, n)
    assert sizes.window + sizes.share * (n - 2) <= sizes.room
    assert sizes.share > sizes.packet_bytes and sizes.window >= sizes.room // 2


def test_a_window_is_within_the_members_limits_and_at_least_two_packets():
    small = [MemberInfo(str(n), n, b"x", 1000, 9002, 1 << 30) for n in range(1, 6)]
    sizes = windows(small, 5)
    assert sizes.window == sizes.forward == sizes.unicast == sizes.state == 18_000
    assert sizes.packet_bytes == 9000  # offsets in a packet are aligned to 4
    modest = [MemberInfo(str(n), n, b"x", 1 << 30, 1500, 4000) for n in range(1, 6)]
    sizes = windows(modest, 5)
    assert sizes.window == sizes.share == sizes.forward == sizes.unicast == sizes.state == 4000
