"""The datagrams of a crowd: they are read as written, and damaged ones or ones out of bounds are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqcast._native.engine import crc32c
from seqcast.core.gossip.messages import Catalog, GossipMessage, Hello, Message, Request, Shuffle, Span
from seqcast.crowd.datagrams import DataPacket, address_of, dump, load, make_id
from seqcast.errors import RemoteProtocolError

TAG = 77
ONE, TWO = (make_id(bytes([10, 0, 0, n]), 5000 + n, n) for n in (1, 2))
EACH = (
    DataPacket(TWO, 5, 3, b"payload"),
    DataPacket(TWO, 1, 0, b""),
    GossipMessage(ONE, 9, 3, {ONE: Span(1, 5, 7, 5), TWO: Span(4, 3, 3, 3)}, (ONE, TWO), (TWO,)),
    Request({ONE: ((1, 2), (5, 5)), TWO: ((9, 12),)}),
    Shuffle(((ONE, 0), (TWO, 7)), True, 3, (0.5,) * 32),
    Hello(True),
    Catalog({ONE: (1, 900), TWO: (5, 5)}),
    Catalog({}),
)


@pytest.mark.parametrize("what", EACH, ids=lambda what: type(what).__name__)
def test_frames_are_read_as_written(what: Message | DataPacket) -> None:
    assert load(TAG, dump(TAG, ONE, what)) == (ONE, what)
    assert load(TAG + 1, dump(TAG, ONE, what)) is None


def test_an_id_has_the_address() -> None:
    assert address_of(make_id(bytes([192, 168, 7, 9]), 40_000, 0xFFFFFFFF)) == (bytes([192, 168, 7, 9]), 40_000)


@pytest.mark.parametrize("what", EACH, ids=lambda what: type(what).__name__)
def test_each_flipped_bit_and_each_lost_end_is_noticed(what: Message | DataPacket) -> None:
    data = dump(TAG, ONE, what)
    for at in range(len(data) * 8):
        bad = bytearray(data)
        bad[at // 8] ^= 1 << at % 8
        if 4 <= at // 8 < 12:
            assert load(TAG, bytes(bad)) is None
        else:
            with pytest.raises(RemoteProtocolError):
                load(TAG, bytes(bad))
    for length in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            load(TAG, data[:length])


@pytest.mark.parametrize(
    "what",
    [
        DataPacket(TWO, 0, 0, b""),
        DataPacket(TWO, 3, 4, b""),
        DataPacket(TWO, 1 << 63, 0, b""),
        DataPacket(TWO, 1, 0, bytes(60_001)),
        GossipMessage(ONE, 0, 0, {}, (), ()),
        GossipMessage(ONE, 1 << 63, 0, {}, (), ()),
        GossipMessage(ONE, 1, 0, {TWO: Span(0, 5, 5, 5)}, (), ()),
        GossipMessage(ONE, 1, 0, {TWO: Span(7, 5, 5, 5)}, (), ()),
        GossipMessage(ONE, 1, 0, {TWO: Span(1, 5, 4, 5)}, (), ()),
        GossipMessage(ONE, 1, 0, {}, (7,), ()),
        Request({TWO: ((5, 4),)}),
        Request({TWO: ((0, 4),)}),
        Catalog({TWO: (3, 2)}),
        Shuffle((), True, 3, (float("nan"),) * 32),
        Shuffle((), True, 3, (0.0,) * 32),
    ],
)
def test_values_out_of_bounds_are_refused(what: Message | DataPacket) -> None:
    with pytest.raises(RemoteProtocolError):
        load(TAG, dump(TAG, ONE, what))


@given(st.sampled_from(range(8)), st.binary(max_size=200))
def test_no_body_raises_anything_else(kind: int, body: bytes) -> None:
    head = dump(TAG, ONE, Hello(False))[:22]
    data = head[:3] + bytes([kind]) + head[4:] + body
    data += crc32c(data).to_bytes(4)
    try:
        found = load(TAG, data)
    except RemoteProtocolError:
        return
    assert found is not None and load(TAG, dump(TAG, ONE, found[1])) is not None
