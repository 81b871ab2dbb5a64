"""The datagrams of a crowd: to bytes and back, with every bound checked.

A datagram is: magic ``SG``, version, kind, tag of the crowd, id of its sender, body, and the CRC32C of
all that. Numbers are in network byte order. An id contains the member's address, so no table of addresses is needed:
IPv4 address, port, and a random number of the incarnation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from seqcast._native.engine import crc32c
from seqcast.core.gossip.messages import Catalog, GossipMessage, Hello, Message, Request, Shuffle, Span
from seqcast.core.gossip.size import NUMBERS
from seqcast.errors import RemoteProtocolError

VERSION = 1
ID_BYTES = 10
PAYLOAD_MAX = 60_000
DATAGRAM_MAX = 65_000
REQUEST_RANGES_MAX = 80
"""Ranges in one datagram of a request: the rest is asked for next time."""
_MAGIC = b"SG"
_HEAD = struct.Struct("!2sBBQ10s")
_DATA = struct.Struct("!10sQQ")
_GOSSIP = struct.Struct("!10sQBBBB")
_SPAN = struct.Struct("!10sQQQ")
_RANGE = struct.Struct("!10sQQ")
_ENTRY = struct.Struct("!10sH")
_MINIMA = struct.Struct(f"!{NUMBERS}d")
_CRC = struct.Struct("!I")
_SEQNO_MAX = (1 << 63) - 1
_DATA_KIND, _GOSSIP_KIND, _REQUEST_KIND, _SHUFFLE_KIND, _HELLO_KIND, _CATALOG_KIND = range(1, 7)


class DataPacket(NamedTuple):
    """A packet with one message.

    Args:
        sender, seqno: which message.
        kept: the lowest seqno that its sender keeps, in a packet of the sender itself; 0: a repeat, on request.
        payload: of the message.
    """

    sender: int
    seqno: int
    kept: int
    payload: bytes


def make_id(address: bytes, port: int, nonce: int) -> int:
    """The id of a member.

    Args:
        address: 4 bytes of IPv4.
        port: of its socket.
        nonce: 32 random bits of this incarnation.
    """
    return int.from_bytes(address + port.to_bytes(2) + nonce.to_bytes(4))


def address_of(member: int) -> tuple[bytes, int]:
    """The 4 bytes of the address, and the port, of a member."""
    raw = member.to_bytes(ID_BYTES)
    return raw[:4], int.from_bytes(raw[4:6])


def dump(tag: int, me: int, what: Message | DataPacket) -> bytes:
    """A datagram."""
    kind, body = _dump_body(what)
    data = _HEAD.pack(_MAGIC, VERSION, kind, tag, _raw(me)) + body
    return data + _CRC.pack(crc32c(data))


def load(tag: int, data: bytes) -> tuple[int, Message | DataPacket] | None:
    """The sender of a datagram, and its contents; None: of another crowd.

    Raises:
        RemoteProtocolError: damaged, of another version, or out of bounds.
    """
    _need(_HEAD.size + _CRC.size <= len(data) <= DATAGRAM_MAX, "length")
    magic, version, kind, its_tag, via = _HEAD.unpack_from(data)
    _need(magic == _MAGIC, "magic")
    if its_tag != tag:
        return None
    end = len(data) - _CRC.size
    _need(_CRC.unpack_from(data, end)[0] == crc32c(data[:end]), "checksum")
    _need(version == VERSION, f"version {version}")
    _need(kind in _READERS, f"kind {kind}")
    return _id(via), _READERS[kind](data[_HEAD.size : end])


def _need(condition: bool, what: str) -> None:
    if not condition:
        raise RemoteProtocolError(f"a datagram of a crowd has a bad field: {what}")


def _raw(member: int) -> bytes:
    return member.to_bytes(ID_BYTES)


def _id(raw: bytes) -> int:
    """A member's id; its address and its port cannot be 0."""
    _need(any(raw[:4]) and any(raw[4:6]), "id")
    return int.from_bytes(raw)


def _ids(members: Sequence[int]) -> bytes:
    return b"".join(map(_raw, members))


def _dump_body(what: Message | DataPacket) -> tuple[int, bytes]:
    match what:
        case DataPacket(sender, seqno, kept, payload):
            return _DATA_KIND, _DATA.pack(_raw(sender), seqno, kept) + payload
        case GossipMessage(origin, counter, hops, digest, seen, not_seen):
            head = _GOSSIP.pack(_raw(origin), counter, hops, len(digest), len(seen), len(not_seen))
            spans = (_SPAN.pack(_raw(sender), *span[:3]) for sender, span in digest.items())
            return _GOSSIP_KIND, b"".join((head, *spans, _ids(seen), _ids(not_seen)))
        case Request(missing):
            ranges = [(sender, *each) for sender, some in missing.items() for each in some]
            return _REQUEST_KIND, _ranges(ranges[:REQUEST_RANGES_MAX])
        case Catalog(kept):
            return _CATALOG_KIND, _ranges([(sender, *each) for sender, each in kept.items()])
        case Hello(history):
            return _HELLO_KIND, bytes([history])
        case Shuffle(entries, answer, epoch, minima):
            head = struct.pack("!BBQ", len(entries), answer, epoch) + _MINIMA.pack(*minima)
            return _SHUFFLE_KIND, head + b"".join(_ENTRY.pack(_raw(each), min(age, 65535)) for each, age in entries)


def _ranges(ranges: Sequence[tuple[int, int, int]]) -> bytes:
    return b"".join(_RANGE.pack(_raw(sender), first, last) for sender, first, last in ranges)


def _load_packet(body: bytes) -> DataPacket:
    _need(_DATA.size <= len(body) <= _DATA.size + PAYLOAD_MAX, "length of a packet")
    sender, seqno, kept = _DATA.unpack_from(body)
    _need(0 < seqno <= _SEQNO_MAX and kept <= seqno, "seqno")
    return DataPacket(_id(sender), seqno, kept, body[_DATA.size :])


def _load_gossip(body: bytes) -> GossipMessage:
    _need(len(body) >= _GOSSIP.size, "length of a gossip")
    origin, counter, hops, n, seen, not_seen = _GOSSIP.unpack_from(body)
    spans_end = _GOSSIP.size + n * _SPAN.size
    seen_end = spans_end + seen * ID_BYTES
    _need(len(body) == seen_end + not_seen * ID_BYTES, "length of a gossip")
    _need(0 < counter <= _SEQNO_MAX, "number of a gossip")
    digest = {}
    for sender, kept, delivered, received in _SPAN.iter_unpack(body[_GOSSIP.size : spans_end]):
        _need(0 < kept <= delivered + 1 and delivered <= received <= _SEQNO_MAX, "digest")
        digest[_id(sender)] = Span(kept, delivered, received, delivered)
    lists = tuple(_load_ids(body[spans_end:seen_end])), tuple(_load_ids(body[seen_end:]))
    return GossipMessage(_id(origin), counter, hops, digest, *lists)


def _load_ids(raw: bytes) -> Iterator[int]:
    for at in range(0, len(raw), ID_BYTES):
        yield _id(raw[at : at + ID_BYTES])


def _load_ranges(body: bytes) -> Iterator[tuple[int, int, int]]:
    _need(len(body) % _RANGE.size == 0, "length of ranges")
    for sender, first, last in _RANGE.iter_unpack(body):
        _need(0 < first <= last <= _SEQNO_MAX, "range")
        yield _id(sender), first, last


def _load_request(body: bytes) -> Request:
    missing: dict[int, tuple[tuple[int, int], ...]] = {}
    for n, (sender, first, last) in enumerate(_load_ranges(body)):
        _need(n < REQUEST_RANGES_MAX, "ranges of a request")
        missing[sender] = (*missing.get(sender, ()), (first, last))
    return Request(missing)


def _load_catalog(body: bytes) -> Catalog:
    return Catalog({sender: (first, last) for sender, first, last in _load_ranges(body)})


def _load_hello(body: bytes) -> Hello:
    _need(len(body) == 1 and body[0] <= 1, "hello")
    return Hello(bool(body[0]))


def _load_shuffle(body: bytes) -> Shuffle:
    head = struct.calcsize("!BBQ")
    _need(len(body) >= head + _MINIMA.size, "length of an exchange")
    n, answer, epoch = struct.unpack_from("!BBQ", body)
    _need(answer <= 1 and len(body) == head + _MINIMA.size + n * _ENTRY.size, "exchange")
    minima = _MINIMA.unpack_from(body, head)
    _need(all(0 < each < 1000 for each in minima), "minima")  # false for NaN too
    entries = tuple((_id(member), age) for member, age in _ENTRY.iter_unpack(body[head + _MINIMA.size :]))
    return Shuffle(entries, bool(answer), epoch, minima)


_READERS: dict[int, Callable[[bytes], Message | DataPacket]] = {
    _DATA_KIND: _load_packet,
    _GOSSIP_KIND: _load_gossip,
    _REQUEST_KIND: _load_request,
    _SHUFFLE_KIND: _load_shuffle,
    _HELLO_KIND: _load_hello,
    _CATALOG_KIND: _load_catalog,
}
