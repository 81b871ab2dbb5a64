"""Control frames: they are read as written, and anything else is refused before use."""

import dataclasses
import json
import random
import zlib
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqcast._native import engine
from seqcast.arguments import INFO_BYTES_MAX
from seqcast.core import orders
from seqcast.core.frames.asking import PAGES_MAX, SEES_BYTES_MAX, Ask, Told
from seqcast.core.frames.closing import (
    FETCH_MAX,
    RANGES_ALL_MAX,
    Accepted,
    Block,
    BlockOk,
    Cut,
    Done,
    Fetch,
    Held,
    Ok,
    Promised,
    Propose,
    Start,
)
from seqcast.core.frames.codec import ADDRESS, clipped, prose, text
from seqcast.core.frames.fields import KEYS_MAX, PROTOCOL_OLDEST, PROTOCOL_VERSION, MemberInfo
from seqcast.core.frames.gossiping import Gossip, Has, Least
from seqcast.core.frames.joining import NOBODY, Challenge, Join, Leave, OtherVersion, Past, Refused, Seen, Wait, Was
from seqcast.core.frames.kinds import FRAME_BYTES_MAX, Frame, dump, load
from seqcast.core.frames.merging import (
    Beacon,
    MergeAsk,
    MergeCancel,
    MergeGo,
    MergeReady,
    MergeRefused,
    MergeTaken,
    Met,
)
from seqcast.core.frames.pausing import Resume, Resumed, Suspend, Suspended
from seqcast.core.frames.recalling import Recall, Recalled, Taken
from seqcast.core.frames.ring import TOKEN_JOINERS_MAX, Confirm, Confirmed, Token, TokenHeld, Unconfirmed
from seqcast.core.frames.unblocking import BlockedSide, Side, Unblock
from seqcast.core.frames.view import (
    PART,
    SHORTFALLS_MAX,
    SUBGROUPS_MAX,
    WRAP_BYTES,
    Declined,
    InfoTold,
    Installed,
    NewView,
    Provision,
    Shortfall,
    Subgroup,
    ViewWanted,
)
from seqcast.core.identities import LISTED_MAX
from seqcast.core.rules.cut import first_view
from seqcast.errors import RemoteProtocolError
from seqcast.types import MEMBERS_MAX

TOP = (1 << 64) - 1
SEQNO = engine.SEQNO_MAX
INFO = MemberInfo("ä/1", TOP, b"\x00" * 28, 1 << 20, 1472, 1 << 20, True, 2)
VIEW = first_view([INFO, replace(INFO, name="b", id=2)], "total", orders.resolve("total"), TOP)
NEXT = replace(
    VIEW, closes=VIEW.view_id, view_id=replace(VIEW.view_id, counter=2), answers=(4, 1), cut=(1, 2), table=(0, 2)
)
JOIN = Join(PROTOCOL_VERSION, "orders", "total", (0, 1, 255), INFO, 3)
FRAMES = [
    JOIN,
    Wait(TOP),
    Seen(b"abcde", TOP),
    Challenge(TOP, TOP),
    Refused("because", "name"),
    Leave(1),
    Join(PROTOCOL_VERSION, "orders", "total", (0,), INFO, 3, was=Was(7, TOP, 1)),
    replace(JOIN, was=Was(7, TOP, 2, 6, 50, (Past(3, 6, MEMBERS_MAX), Past(TOP, 7, 1, 3, True)))),
    Recall(TOP, (1, 0)),
    Recall(1, (1, 0), NEXT),
    Recalled(TOP, (1, 0), TOP, (2, 1), Taken((1, 1), NEXT)),
    Recalled(1, (1, 0), 2, (0, -1), None, True),
    Start(1, (1, 0), (TOP, 2)),
    Ok(1, (1, 0), SEQNO, (Held(4, ((6, 7), (9, 9))), Held(0))),
    Ok(1, (1, 0), 0, (), (), (2, 1)),
    Propose(1, (1, 0), NEXT),
    Accepted(1, (3, 0), (1, 0), NEXT),
    Promised(1, (1, 0), (2, 1)),
    Promised(1, (1, 0), (0, -1)),
    Cut(1, (1, 0), (SEQNO, 0), (Fetch(0, 1, 9, 1),)),
    Done(1, (1, 0)),
    VIEW,
    NEXT,
    replace(VIEW, providers=(Provision(2, TOP, TOP),)),
    Installed(TOP),
    Declined(TOP),
    replace(NEXT, maker_key=b"m" * 32, wraps=(b"w" * WRAP_BYTES, b"v" * WRAP_BYTES), proof=b"p" * 16),
    replace(VIEW, members=(replace(INFO, key=b"k" * 32), *VIEW.members[1:])),
    Block(TOP, (9999, 127), (TOP, 2)),
    Block(1, (1, 0), ()),
    BlockOk(TOP, (1, 0)),
    Suspend(TOP, (1 << 53) - 1, 0, "block", ()),
    Suspend(1, 1, 2, "stop", ()),
    Suspend(1, 1, 3, "hold", (SEQNO, 0)),
    Suspended(1, 1, 2, "stop", (SEQNO, 0)),
    Suspended(1, 1, 3, "hold", ()),
    Resume(TOP, 0),
    Resumed(TOP, (1 << 53) - 1),
    ViewWanted(TOP),
    InfoTold(TOP, '{"role":"primary"}'),
    InfoTold(1, ""),
    InfoTold(1, "{}", b"\5" * 64, (3, 20)),
    Beacon("orders", "total", 1, VIEW.view_id),
    Beacon("orders", "total", 1, VIEW.view_id, 0, (("heartbeat_s", "0.05"),)),
    Beacon("orders", "total", 1, VIEW.view_id, members=(b"at", b"there")),
    Met((b"at",)),
    Met(()),
    Unblock("orders", 1, None),
    Unblock("orders", 1, Side(TOP, (1, 0))),
    BlockedSide(1, Side(TOP, (1, 0)), "a", ("a", "b"), ("c",), True, (b"at a", b"at b")),
    MergeAsk((TOP, 1), 5),
    MergeRefused((TOP, 1)),
    MergeReady((TOP, 1), NEXT, (Shortfall(7, VIEW.view_id, 2, 0),)),
    MergeGo((TOP, 1), replace(VIEW, subgroups=(Subgroup(VIEW.view_id, (TOP,)), Subgroup(NEXT.view_id, (2,))))),
    MergeTaken((TOP, 1)),
    MergeCancel((TOP, 1), ""),
    Token(TOP, 7, 1, 2, (1, 2, TOP), (1,), (3,), (INFO,), True),
    TokenHeld(TOP, 7, 1),
    Confirm(TOP, "prepare", 7, 1, (1, 2), (3,)),
    Confirmed(TOP, "commit", 7),
    Confirmed(TOP, "prepare", 7, True),
    Unconfirmed(TOP, 7, 9, (1, 2, 3)),
    Ask(TOP, 7, 0),
    Told(TOP, 7, 2, '{"at":1}'),
    Gossip(TOP, 127, 1, 0, (), (127,), (0, 1), 0, (), (), ()),
    Gossip(
        1,
        0,
        (1 << 53) - 1,
        3,
        (Has(1, 1, SEQNO, SEQNO, 0, (1 << 53) - 1, 65_535),),
        (0, 2),
        (),
        (1 << 53) - 1,
        (0, 127),
        (Least(127, SEQNO, 0, 1, 65_535),),
        (Least(0, 1, 1, 0, 0),),
    ),
]


def test_there_is_an_example_of_every_kind():
    assert {type(frame) for frame in FRAMES} == set(get_args(Frame)) - {OtherVersion}  # which nobody writes


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_a_frame_is_read_as_it_was_written(frame):
    assert load(dump(frame)) == frame


@pytest.mark.parametrize(
    ("schema", "least", "most", "value"),
    [
        pytest.param(text(9), 1, 9, lambda n: "a" * n, id="text"),
        pytest.param(text(9, 0), 0, 9, lambda n: "a" * n, id="text, or none"),
        pytest.param(text(9, 3), 3, 9, lambda n: "ä" + "a" * (n - 2), id="text of two bytes a letter"),
        pytest.param(text(9, 3), 3, 9, lambda n: '"' + "a" * (n - 2), id="text of two bytes a quotation mark"),
        pytest.param(prose(9), 1, 9, lambda n: "a" * n, id="prose"),
        pytest.param(prose(9, 0), 0, 9, lambda n: "a" * n, id="prose, or none"),
        pytest.param(prose(9, 3), 3, 9, lambda n: "ä" + "a" * (n - 2), id="prose of two bytes a letter"),
        pytest.param(ADDRESS, 1, 28, lambda n: "0a" * n, id="address"),
    ],
)
def test_a_field_of_bytes_is_as_long_as_its_limits_and_no_longer(schema, least, most, value):
    for n in (least, least + 1, most - 1, most):
        assert schema.dump(schema.load(value(n))) == value(n)
    for n in (least - 1, most + 1) if least else (most + 1,):
        with pytest.raises(RemoteProtocolError):
            schema.load(value(n))


@pytest.mark.parametrize("first", ["a", "ä", '"'])
def test_only_a_text_beyond_its_limit_is_clipped_and_then_fits(first):
    rest = 1000 - (1 if first == "a" else 2)
    for n in (rest - 1, rest):
        assert clipped(first + "a" * n, 1000) == first + "a" * n
    short = clipped(first + "a" * (rest + 1), 1000)
    assert short.endswith("…") and text(1000).load(short) == short


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_a_frame_without_one_of_its_fields_or_with_a_wrong_one_is_refused(frame):
    """DIG-04."""
    value = json.loads(dump(frame))
    defaults = {each.name: each.default for each in dataclasses.fields(frame)}
    for name in value.keys() - {"kind"}:
        less = {k: v for k, v in value.items() if k != name}
        if defaults[name] is dataclasses.MISSING:
            with pytest.raises(RemoteProtocolError):
                load(json.dumps(less).encode())
        elif not isinstance(frame, NewView | Ok | Cut):  # whose fields must fit each other
            assert load(json.dumps(less).encode()) == dataclasses.replace(frame, **{name: defaults[name]})
        with pytest.raises(RemoteProtocolError):
            load(json.dumps({**value, name: {}}).encode())


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_fields_that_a_later_release_adds_are_passed_over(frame):
    assert load(json.dumps({**json.loads(dump(frame)), "more": [1], "most": {}}).encode()) == frame


def test_a_member_of_an_earlier_or_later_release_describes_itself():
    value = json.loads(dump(JOIN))
    for info, read in (
        ([*value["info"], [], 7, "more"], INFO),
        ([*value["info"][:-1], [0, 99]], dataclasses.replace(INFO, speaks=(0, 99))),
    ):
        assert load(json.dumps({**value, "info": info}).encode()).info == read
    for info in (value["info"][:-1], [*value["info"], *[0] * 65]):
        with pytest.raises(RemoteProtocolError):
            load(json.dumps({**value, "info": info}).encode())


@pytest.mark.parametrize(
    ("newest", "oldest", "known"),
    [(0, 0, True), (1, 0, True), (1, 1, False), (-1, -1, False), (1, None, False), (0, None, True), (9, -9, True)],
)
def test_a_join_is_read_if_the_joiner_speaks_a_version_of_ours(newest, oldest, known):
    value = {**json.loads(dump(JOIN)), "version": PROTOCOL_VERSION + newest, "more": 1}
    value.pop("oldest")
    if oldest is not None:
        value["oldest"] = PROTOCOL_OLDEST + oldest
    read = load(json.dumps(value).encode())
    assert isinstance(read, Join) if known else read == OtherVersion(PROTOCOL_VERSION + newest, JOIN.nonce)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"1", b"\xff", b'{"kind":"no"}', b'{"kind":[]}', b"[" * 50_000, b"1" * 50_000, b" " * 60_001]
    + [b'{"kind":"wait","view":%s}' % v for v in (b"1", b'"0"', b'"g"', b'"-1"', b'"1_0"', b'" 1"', b'"%017x"' % 1)]
    + [b'{"kind":"installed","view":true}', b'{"kind":"done","view":"1","attempt":[1]}']
    + [b'{"kind":"done","view":"1","attempt":[true,0]}', b'{"kind":"done","view":"1","attempt":[1,128]}']
    + [b'{"kind":"suspend","view":"1","pause":1,"repeat":1,"phase":%s,"cut":[]}' % v for v in (b'"go"', b"null", b"[]")]
    + [b'{"kind":"suspended","view":"1","pause":-1,"repeat":1,"phase":"stop","held":[]}']
    + [b'{"kind":"suspended","view":"1","pause":1,"repeat":1,"phase":"stop","held":[-1]}']
    + [b'{"kind":"suspend","view":"1","pause":1,"repeat":1,"phase":"hold","cut":%s}' % (b"[%s0]" % (b"0," * 128))]
    + [b'{"kind":"resume","view":"1","pause":%d}' % (1 << 53), b'{"kind":"resumed","view":"1","pause":1.5}']
    + [b'{"kind":"block","view":"1","attempt":[1,0],"survivors":[1]}', b'{"kind":"block_ok","view":"1","attempt":[0]}']
    + [b'{"kind":"done","view":"1","attempt":[NaN,0]}', b'{"kind":"done","view":"1","attempt":[1e3,0]}'],
)  # fmt: skip
def test_anything_but_a_frame_is_refused(data):
    with pytest.raises(RemoteProtocolError):
        load(data)


@pytest.mark.parametrize(
    "frame",
    [
        replace(VIEW, members=VIEW.members[:1] * 2),
        replace(VIEW, members=(INFO, replace(INFO, id=9))),  # one name twice
        replace(VIEW, base=(0,)),
        replace(VIEW, sequencer=2),
        replace(VIEW, sequencer=-1),
        replace(VIEW, mechanism=0),  # which has no sequencer
        replace(VIEW, mechanism=0, sequencer=-1),  # which is not a total order
        replace(VIEW, mechanism=255),  # which this release does not know
        replace(VIEW, order="fifo"),
        replace(VIEW, order="none"),
        replace(VIEW, closes=VIEW.view_id),
        replace(VIEW, providers=(Provision(2, TOP, 1),) * 2),
        replace(VIEW, providers=(Provision(2, 2, 1),)),
        replace(VIEW, providers=(Provision(2, 3, 1),)),
        replace(VIEW, providers=(Provision(3, 2, 1),)),
        replace(VIEW, members=VIEW.members[::-1]),
        replace(VIEW, cut=(1,)),
        replace(VIEW, subgroups=(Subgroup(VIEW.view_id, (TOP,)),)),  # one member is in none
        MergeGo((TOP, 1), replace(VIEW, base=(0,))),
        Propose(1, (1, 0), replace(NEXT, base=(0,))),
        Accepted(1, (1, 0), (1, 0), replace(NEXT, cut=(1,))),
        Ok(1, (1, 0), 5, (Held(4, ((4, 7),)),)),
        Ok(1, (1, 0), 5, (Held(4, ((9, 8),)),)),
        Cut(1, (1, 0), (5,), (Fetch(1, 1, 2, 0),)),
        Cut(1, (1, 0), (5,), (Fetch(0, 3, 2, 0),)),
    ],
)
def test_a_frame_that_contradicts_itself_is_refused(frame):
    with pytest.raises(RemoteProtocolError):
        load(dump(frame))


@pytest.mark.parametrize(
    ("views", "why"),
    [
        ((Past(3, 6, 0), Past(4, 7, 1)), "voters"),
        ((Past(3, 6, MEMBERS_MAX + 1),), "voters"),
        ((Past(3, 6, 1), Past(3, 7, 1)), "a view twice"),
        ((Past(NOBODY, 6, 1),), "one that is none"),
        ((Past(3, 6, 1), Past(4, 6, 1)), "counters"),
        ((Past(3, 6, 1), Past(4, 8, 1), Past(5, 7, 1)), "counters"),
    ],
)
def test_a_joiner_that_claims_views_as_they_cannot_have_been_is_refused(views, why):
    with pytest.raises(RemoteProtocolError, match=why):
        load(dump(replace(JOIN, was=Was(9, TOP, 2, 6, 50, views))))


def test_a_join_of_another_version_is_known_as_such_whatever_else_it_says():
    assert load(b'{"kind":"join","version":99,"new":{}}') == OtherVersion(99)


_VALUES = st.recursive(st.none() | st.integers() | st.text(), st.lists)


@given(st.binary(max_size=300) | _VALUES.map(json.dumps).map(str.encode))
def test_any_bytes_give_a_frame_or_the_one_error(data):
    try:
        load(data)
    except RemoteProtocolError:
        pass


@pytest.mark.long
@given(st.data())
def test_a_frame_with_a_changed_value_gives_a_frame_or_the_one_error(data):
    value = json.loads(dump(data.draw(st.sampled_from(FRAMES))))
    name = data.draw(st.sampled_from(sorted(value)))
    value[name] = data.draw(
        st.recursive(st.none() | st.booleans() | st.integers() | st.text() | st.floats(), st.lists, max_leaves=8)
    )
    try:
        frame = load(json.dumps(value).encode())
    except RemoteProtocolError:
        return
    if not isinstance(frame, OtherVersion):
        assert load(dump(frame)) == frame


def places(value):
    """Every list and object in a frame, with the keys of their contents."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


@given(st.data())
def test_a_frame_that_is_changed_anywhere_inside_gives_a_frame_or_the_one_error(data):
    """Values that look right: of another field, at a bound, once more, or not there."""
    frame = json.loads(dump(data.draw(st.sampled_from(FRAMES))))
    for _ in range(data.draw(st.integers(1, 4))):
        inside, key = data.draw(st.sampled_from(places(frame)))
        others = [other[at] for other, at in places(frame) if at != "kind"]
        numbers = [0, -1, 1, 127, 128, SEQNO, SEQNO + 1, (1 << 53) - 1, 1 << 53, TOP]
        value = data.draw(st.sampled_from([*others, *numbers, "0", "ffffffffffffffff", "", None, True, [], {}]))
        if isinstance(inside, list) and data.draw(st.booleans()):
            inside[key:key] = [json.loads(json.dumps(value))]
        else:
            inside[key] = json.loads(json.dumps(value))
    try:
        read = load(json.dumps(frame).encode())
    except RemoteProtocolError:
        return
    if not isinstance(read, OtherVersion):
        assert load(dump(read)) == read


def test_a_view_in_which_an_observer_decides_is_refused():
    first, second = VIEW.members
    observed = replace(VIEW, members=(first, replace(second, observer=True)))
    assert load(dump(observed)) == observed
    with pytest.raises(RemoteProtocolError, match="an observer coordinates"):
        load(dump(replace(VIEW, members=(replace(first, observer=True), second), sequencer=1)))
    with pytest.raises(RemoteProtocolError, match="an observer orders"):
        load(dump(replace(observed, sequencer=1)))


@pytest.mark.parametrize("about", ["x", "[]", "7", "{", "[" * 500, '{"x":"\x1b"}', "{" + " " * 600 + "}", 7, None])
def test_an_info_that_is_not_an_object_is_refused(about):
    value = json.loads(dump(InfoTold(1, "{}")))
    with pytest.raises(RemoteProtocolError):
        load(json.dumps(value | {"about": about}).encode())


SAYABLE = "".join(chr(each) for each in range(32, 127) if chr(each) not in '"\\')


def test_the_largest_frames_stay_within_the_limit():
    infos = tuple(
        MemberInfo(f"{i:03}" + "n" * 125, TOP - i, b"\xff" * 28, (1 << 53) - 1, 65000, (1 << 53) - 1, False)
        for i in range(MEMBERS_MAX)
    )
    view = first_view(infos, "sequencer", orders.resolve("sequencer"), TOP)
    top = (1 << 40,) * MEMBERS_MAX  # 2**40 packets: years at full speed
    ids = tuple(i.id for i in infos)
    full = replace(
        view,
        labels=tuple(range(PART, PART + MEMBERS_MAX)),
        merged_into=(0, *range(PART, PART + MEMBERS_MAX - 1)),
        providers=tuple(Provision(info.id, TOP, TOP) for info in infos[1:]),
        survivors=ids,
        cut=top,
        table=top,
        base=top,
        origin_base=top,
        subgroups=tuple(Subgroup(view.view_id, ids[8 * i : 8 * i + 8]) for i in range(SUBGROUPS_MAX)),
        shortfalls=(Shortfall(TOP, view.view_id, TOP, 1 << 40),) * SHORTFALLS_MAX,
    )
    held = tuple(Held(1 << 40, ((1 << 41, 1 << 41),) * (RANGES_ALL_MAX // MEMBERS_MAX)) for _ in infos)
    fetch = tuple(Fetch(127, 1 << 40, 1 << 40, 127) for _ in range(FETCH_MAX))
    proposal = replace(full, subgroups=(), shortfalls=())
    names = tuple(info.name for info in infos)
    ranks = tuple(range(MEMBERS_MAX))
    has = tuple(Has(rank, SEQNO, SEQNO, SEQNO, SEQNO, 1 << 52, 65_535) for rank in ranks)
    least = tuple(Least(rank, SEQNO, SEQNO, 1 << 52, 65_535) for rank in ranks)
    frames = [
        full,
        Ok(TOP, (9999, 127), 1 << 40, held, tuple(i.id for i in infos), (9999, 127)),
        Cut(TOP, (9999, 127), top, fetch),
        Propose(TOP, (9999, 127), proposal),
        Accepted(TOP, (9999, 127), (9998, 127), proposal),
        BlockedSide(1 << 52, Side(TOP, (9999, 127)), names[0], names, names, True, tuple(i.address for i in infos)),
        Token(TOP, 1 << 52, TOP, TOP, ids, ids, ids, infos[:TOKEN_JOINERS_MAX], True),
        Told(TOP, 1 << 52, PAGES_MAX, '"' * (SEES_BYTES_MAX // 2)),
        Gossip(TOP, 127, 1 << 52, 127, has, ranks, ranks, 1 << 52, ranks, least, least),
    ]
    rng = random.Random(1)
    keyed = replace(
        full,
        members=tuple(
            replace(
                info,
                key=rng.randbytes(32),
                opens=tuple(rng.randrange(1 << 15, 1 << 16) for _ in range(KEYS_MAX)),
                name=f"{info.name[:3]}{rng.randbytes(62).hex()}x",
                about=json.dumps({"x": "".join(rng.choices(SAYABLE, k=INFO_BYTES_MAX - len('{"x": ""}')))}),
            )
            for info in infos
        ),
        maker_key=rng.randbytes(32),
        wraps=tuple(rng.randbytes(WRAP_BYTES) for _ in infos),
        proof=rng.randbytes(16),
    )
    listed = replace(
        keyed,
        members=tuple(
            replace(info, identity=rng.randbytes(32), signature=rng.randbytes(64), cookie=TOP - rank)
            for rank, info in enumerate(keyed.members[:LISTED_MAX])
        ),
        labels=keyed.labels[:LISTED_MAX],
        merged_into=keyed.merged_into[:LISTED_MAX],
        providers=keyed.providers[: LISTED_MAX - 1],
        base=top[:LISTED_MAX],
        origin_base=top[:LISTED_MAX],
        wraps=keyed.wraps[:LISTED_MAX],
        maker_identity=rng.randbytes(32),
        signature=rng.randbytes(64),
    )
    frames += [listed, MergeGo((TOP, 1 << 52), listed), Propose(TOP, (9999, 127), listed)]
    frames += [keyed, MergeGo((TOP, 1 << 52), keyed), Propose(TOP, (9999, 127), keyed)]
    assert all(len(dump(frame)) <= FRAME_BYTES_MAX for frame in frames)
    assert isinstance(load(dump(full)), NewView)
    assert load(dump(keyed)) == keyed


def test_a_frame_that_grows_too_large_when_it_is_read_is_refused():
    for written in (b" " * 200_000, b"[" * 99_999, b'{"kind":"done"}' + b" " * 200_000):
        with pytest.raises(RemoteProtocolError):
            load(zlib.compress(written))
    for damaged in (zlib.compress(dump(VIEW))[:-9], b"x" * 100, zlib.compress(b"")):
        with pytest.raises(RemoteProtocolError):
            load(damaged)


def test_no_seqno_of_a_frame_is_higher_than_those_on_the_wire():
    frame = Ok(1, (1, 0), SEQNO, (Held(4, ((6, SEQNO),)),))
    assert load(dump(frame)) == frame
    for high in (replace(frame, last=SEQNO + 1), replace(frame, held=(Held(SEQNO + 1),))):
        with pytest.raises(RemoteProtocolError, match="seqno"):
            load(dump(high))


def test_a_frame_is_as_long_as_its_limit_and_no_longer() -> None:
    frame = Suspend(1, 2, 3, "block", ())
    assert load(dump(frame).ljust(FRAME_BYTES_MAX)) == frame
    with pytest.raises(RemoteProtocolError, match="longer than"):
        load(dump(frame).ljust(FRAME_BYTES_MAX + 1))
