"""Information on the members of a group: ``info=``, ``set_info``, and the places that show it."""

import asyncio
import json
import subprocess
import sys

import pytest
from members import LIMIT_S, LOOPBACK, cluster, group_of, join, wait_until

import seqcast
from seqcast.arguments import INFO_BYTES_MAX
from seqcast.board.read import boards


def next_view(group):
    return next(event for event in iter(lambda: group.next_event(LIMIT_S), None) if isinstance(event, seqcast.View))


def test_every_member_finds_the_infos_of_the_others():
    name = cluster()
    with (
        join(name, "a", info={"role": "primary", "http": "10.0.0.1:8080"}) as a,
        join(name, "b", min_members=2) as b,
    ):
        wait_until(lambda: len(a.view) == 2)
        for group in (a, b):
            infos = {member.name: member.info for member in group.view}
            assert infos == {"a": {"role": "primary", "http": "10.0.0.1:8080"}, "b": {}}


def test_a_change_comes_as_a_view_at_the_same_place_among_the_messages():
    with group_of(2) as (a, b):
        for group in (a, b):
            while len(next_view(group)) < 2:
                pass
        a.send(b"before")
        a.set_info({"role": "backup", "ports": [1, 2]})
        wait_until(lambda: a.sending_view.members[a.view.rank(a.member.id)].info != {})
        a.send(b"after")
        for group in (a, b):
            seen = [group.next_event(LIMIT_S) for _ in range(3)]
            assert [type(each) for each in seen] == [seqcast.Message, seqcast.View, seqcast.Message]
            assert seen[1].members == tuple(seen[1]) and len(seen[1]) == 2
            assert {each.name: each.info for each in seen[1]}[a.member.name] == {"role": "backup", "ports": [1, 2]}
            assert seen[1].coordinator == a.view.coordinator


def test_nobody_can_change_the_info_that_another_part_of_the_program_reads():
    member = seqcast.Member("a", 1, b"", '{"a":[1]}')
    member.info["a"].append(2)
    assert member.info == {"a": [1]}
    assert member == seqcast.Member("a", 1), "a member that says something else is the same member"


@pytest.mark.parametrize(
    ("info", "why"),
    [
        ({"x": "y" * INFO_BYTES_MAX}, f"at most {INFO_BYTES_MAX}"),
        ({1: "x"}, "text as keys"),
        (["role"], "must be a dict"),
        ({"x": object()}, "have a form in JSON"),
        ({"x": float("nan")}, "have a form in JSON"),
        ({"x": "\u202e"}, "printable"),
        ({"x": "\udcff"}, "printable"),
    ],
)
def test_an_info_that_no_view_can_carry_is_refused_before_anything_happens(info, why):
    with pytest.raises(seqcast.UsageError, match=why):
        join(cluster(), "a", info=info)
    with group_of(1) as (a,):
        with pytest.raises(seqcast.UsageError, match=why):
            a.set_info(info)
        assert a.member.info == {} and a.view.members[0].info == {}


def test_the_longest_info_is_carried():
    info = {"x": '"' * ((INFO_BYTES_MAX - len('{"x":""}')) // 2)}
    with join(cluster(), "a", info=info) as a:
        assert a.view.members[0].info == info


def test_a_member_that_is_gone_says_nothing():
    with group_of(1) as (a,):
        a.leave()
        with pytest.raises(seqcast.NotMember):
            a.set_info({"x": 1})


def test_the_board_shows_infos():
    with group_of(2) as (a, b):
        a.set_info({"role": "primary"})
        wait_until(lambda: shown(b) == {a.member.name: {"role": "primary"}, b.member.name: {}})
        listed = subprocess.run(
            [sys.executable, "-m", "seqcast", "probe", a.cluster, "--json"], capture_output=True, check=True
        )
        said = {each["name"]: each["info"] for each in json.loads(listed.stdout)["members"]}
        assert said == {a.member.name: {"role": "primary"}, b.member.name: {}}


def shown(group):
    board = next(board for board in boards(group.cluster) if board.path == group.board)
    return {each["name"]: each["info"] for each in board.about["view"]["members"]}


def test_a_board_without_room_for_all_infos_has_all_the_rest():
    """A view of many members that say much is longer than a board."""
    with group_of(1) as (a,):
        long = seqcast.Member("a" * 90, 7, b"", json.dumps({"x": "y" * 240}))
        view = seqcast.View(seqcast.ViewId(9, 7), (long,) * 128)

        def posted():  # until its own thread posts again
            a._runner.posting.post(view, "member", "", b"", dict, dict, {})
            (board,) = boards(a.cluster)
            return [each["info"] for each in board.about["view"]["members"]] == [{}] * 128

        wait_until(posted)


def test_asyncio():
    async def run():
        async with seqcast.aio.join(cluster(), name="a", interface=LOOPBACK, info={"n": 1}) as group:
            assert group.view.members[0].info == {"n": 1}
            group.set_info({"n": 2})
            async for event in group.events():
                if isinstance(event, seqcast.View) and event.members[0].info == {"n": 2}:
                    return json.dumps(event.members[0].info)

    assert asyncio.run(asyncio.wait_for(run(), LIMIT_S)) == '{"n": 2}'
