"""Each field of a datagram at its limits, one below and one above: the tables name all fields and types of wire.h."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator

import pytest
from engines import make_engine
from hostile import forge
from hostile.forge import SEQNO_MAX, VERSION, Forger, sealed
from project import ROOT

F, ME, VIEW = Forger(7), 100, 5
WIRE_H = (ROOT / "native/wire/wire.h").read_text("utf-8")
MEMBERS_MAX, PACKET_MAX, DATAGRAM_MAX = 128, 65_000, 65_535
ENTRIES_MAX, RANGES_MAX, PIECES_MAX = 64, 64, 256
SIZE, SIZED, PIECE = 16, 17, 18
BITS = {
    name: (int(at), int(bits))
    for kind in (r"SC_FIELD\((\d+), (\d+), (\w+)\)", r"SC_ENTRIES\((\d+), \d+, (\d+), (\w+)\)")
    for at, bits, name in re.findall(f"^{kind}", WIRE_H, re.M)
}
"""Of each field its place and its size; of a repeated one those of its first entry."""

Make = Callable[[int], bytes]
VALID = ("own", "stranger")


def verdict(datagram: bytes) -> str:
    """How the engine counts a datagram: as valid of its own, or as a stranger's if the datagram names another
    sender."""
    engine = make_engine(ME)
    before = engine.counters()
    engine.receive(datagram, b"\2", 0)
    dropped = [name for name, value in engine.counters().items() if name.startswith("drop_") and value > before[name]]
    assert len(dropped) == 1, dropped
    return dropped[0].removeprefix("drop_")


def patched(name: str, base: bytes) -> Make:
    """The datagram with another value of one field."""
    at, bits = BITS[name]

    def make(value: int) -> bytes:
        return sealed(base[:at] + value.to_bytes(bits // 8, "little") + base[at + bits // 8 :])

    return make


def heartbeat(n: int) -> bytes:
    return F.heartbeat(ME, VIEW, 1, 0, [(0, 0)] * n)


def piece(total: int, each: int, index: int) -> bytes:
    length = max(0, min(each, total - each * index))
    return F.datagram(PIECE, ME, VIEW, struct.pack("<QIHH", 1, total, each, index) + bytes(length))


def size(length: int, kind: int = SIZE) -> bytes:
    body = struct.pack("<QII", 1, length, 0)
    return F.datagram(kind, ME, VIEW, body + bytes(max(0, length - 56) if kind == SIZE else 0))


DATA_PACKET = F.packet(forge.DATA, ME, VIEW, 1)
RECORD_PACKET = F.record(ME, VIEW, 1, [(0, 1)])
ACK_, NAK_ = F.ack(ME, VIEW, 0, 0, 0, 0), F.nak(ME, VIEW, 101, 0, [(5, 9)])
PROBE_, HEARTBEAT_ = F.probe(ME, VIEW, 0, 1, 0), heartbeat(3)
PING_, TAKEN_ = F.ping(forge.PING, ME, VIEW, 101, ME), F.taken(forge.TAKEN, ME, VIEW, 1)
TOTAL_, GRANT_, SIZED_ = F.total(ME, VIEW, 1, 1), F.grant(forge.GRANT, ME, VIEW, 1, 1, 1), size(56, SIZED)

ANY = None
"""In place of a limit: all values that fit the field are valid."""
FIXED = {"crc": "of the datagram itself", "type": "LENGTHS has them", "flags": "bits, of which FLAGS has those allowed"}
"""Fields that have no least and largest value."""

FIELDS: dict[str, tuple[Make | bytes, int | None, int | None]] = {
    # name: a datagram with the field, or one made for a value; its least value; its largest
    "magic": (DATA_PACKET, forge.MAGIC, forge.MAGIC),
    "version": (DATA_PACKET, VERSION, VERSION),
    "group": (DATA_PACKET, F.group, F.group),
    "key_id": (DATA_PACKET, 0, 0),
    "claim": (DATA_PACKET, ANY, ANY),
    "sender": (DATA_PACKET, 1, ANY),
    "view_tag": (DATA_PACKET, ANY, ANY),
    "seqno": (DATA_PACKET, 1, SEQNO_MAX),
    "stable": (DATA_PACKET, ANY, SEQNO_MAX),
    "sent_ns": (DATA_PACKET, ANY, ANY),
    "origin_seqno": (DATA_PACKET, ANY, SEQNO_MAX),
    "global_seqno": (DATA_PACKET, ANY, SEQNO_MAX),
    "place": (DATA_PACKET, ANY, SEQNO_MAX),
    "data_len": (lambda n: F.packet(forge.DATA, ME, VIEW, 1, [bytes(n)]), 0, PACKET_MAX),
    "pieces": (lambda n: F.packet(forge.DATA, ME, VIEW, 1, [b""] * n), 1, (DATAGRAM_MAX - 80) // 4 - 1),
    "origin_rank": (DATA_PACKET, ANY, MEMBERS_MAX - 1),
    "record_rank": (RECORD_PACKET, ANY, MEMBERS_MAX - 1),
    "record_count": (RECORD_PACKET, 1, ANY),
    "ack_stream": (ACK_, ANY, forge.STATE_STREAM),
    "ack_delivered": (ACK_, ANY, SEQNO_MAX),
    "ack_received": (ACK_, ANY, SEQNO_MAX),
    "ack_consumed": (ACK_, ANY, SEQNO_MAX),
    "ack_window": (ACK_, ANY, ANY),
    "ack_claim": (ACK_, ANY, (1 << 16) - 1),
    "nak_owner": (NAK_, ANY, ANY),
    "nak_stream": (NAK_, ANY, forge.STATE_STREAM),
    "nak_n": (lambda n: F.nak(ME, VIEW, 101, 0, [(5, 9)] * n), 1, RANGES_MAX),
    "nak_lo": (NAK_, 1, 9),
    "nak_hi": (NAK_, 5, SEQNO_MAX),
    "probe_stream": (PROBE_, ANY, forge.STATE_STREAM),
    "probe_highest": (PROBE_, ANY, SEQNO_MAX),
    "probe_stable": (PROBE_, ANY, SEQNO_MAX),
    "heartbeat_highest": (HEARTBEAT_, ANY, SEQNO_MAX),
    "heartbeat_stable": (HEARTBEAT_, ANY, SEQNO_MAX),
    "heartbeat_n": (heartbeat, 0, MEMBERS_MAX),
    "heartbeat_awaits": (HEARTBEAT_, ANY, 3),
    "heartbeat_gives_up": (HEARTBEAT_, ANY, 3),
    "heartbeat_sent": (HEARTBEAT_, ANY, ANY),
    "heartbeat_echo": (HEARTBEAT_, ANY, ANY),
    "heartbeat_held": (HEARTBEAT_, ANY, ANY),
    "heartbeat_echoes": (HEARTBEAT_, ANY, 3),
    "heartbeat_path": (HEARTBEAT_, ANY, PACKET_MAX),
    "heartbeat_taken": (HEARTBEAT_, ANY, ANY),
    "heartbeat_worked": (HEARTBEAT_, ANY, ANY),
    "heartbeat_delivered": (HEARTBEAT_, ANY, SEQNO_MAX),
    "heartbeat_received": (HEARTBEAT_, ANY, SEQNO_MAX),
    "ping_target": (PING_, 1, ANY),
    "ping_origin": (PING_, 1, ANY),
    "taken_seqno": (TAKEN_, ANY, SEQNO_MAX),
    "total_id": (TOTAL_, 1, SEQNO_MAX),
    "total_header": (lambda header: F.total(ME, VIEW, header, header != 2), 1, 3),
    "total_reserved": (TOTAL_, ANY, 0),
    "grant_number": (GRANT_, 1, ANY),
    "grant_place": (GRANT_, 1, SEQNO_MAX),
    "grant_count": (GRANT_, 1, ANY),
    "grant_reserved": (GRANT_, ANY, 0),
    "size_number": (SIZED_, 1, ANY),
    "size_bytes": (SIZED_, 56, PACKET_MAX),
    "size_reserved": (SIZED_, ANY, 0),
    "piece_number": (piece(1000, 100, 0), 1, ANY),
    "piece_total": (lambda total: piece(total, 300, 0), 40, PACKET_MAX),
    "piece_each": (lambda each: piece(PACKET_MAX, each, 0), -(-PACKET_MAX // PIECES_MAX), ANY),
    "piece_index": (lambda index: piece(1000, 100, index), 0, 9),
}

OTHER_TYPES: dict[str, tuple[Make | bytes, int | None, int | None]] = {
    # a field of the table above that has other limits in another type
    "claim of ACK": (ACK_, 0, 0),
    "pieces of RECORD": (lambda n: F.record(ME, VIEW, 1, [(0, 1)] * n), 1, ENTRIES_MAX),
    "total_id of NEW_VIEW_ACK": (F.total(ME, VIEW, 2, 0), 0, 0),
    "grant_place of WANT": (F.grant(forge.WANT, ME, VIEW, 1, 1), 0, 0),
    "size_bytes of SIZE": (size(1000), 1000, 1000),
}


def values(name: str, low: int | None, high: int | None) -> Iterator[tuple[int, bool]]:
    """The values at, just inside and just outside of the limits, and whether they are valid."""
    most = (1 << BITS[name][1]) - 1
    least, largest = 0 if low is None else low, most if high is None else high
    for value in {least - 1, least, least + 1, largest - 1, largest, largest + 1}:
        if 0 <= value <= most:
            yield value, least <= value <= largest


@pytest.mark.parametrize("row", [*FIELDS, *OTHER_TYPES])
def test_a_field_may_have_its_least_and_its_largest_value_and_none_beyond(row: str) -> None:
    (make, low, high), name = {**FIELDS, **OTHER_TYPES}[row], row.split()[0]
    make = patched(name, make) if isinstance(make, bytes) else make
    for value, valid in values(name, low, high):
        said = verdict(make(value))
        assert (said in VALID) == valid, f"{row} = {value}: {said}"


def test_the_tables_name_each_field_of_the_wire() -> None:
    assert len(BITS) > 50 and BITS["heartbeat_path"] == (118, 16)
    assert FIELDS.keys() | FIXED.keys() == BITS.keys()


SMALL = {
    # a field of less than 64 bits without a largest value of its own; the result there
    "claim": "test_limits.py: it wraps, and the newer of two claims is known nevertheless",
    "record_count": "a record has a second entry of the member for more",
    "heartbeat_held": "a heartbeat that was held for longer is not echoed",
    "grant_count": "REQUEST_MAX bounds it",
    "piece_each": "a piece is no longer than its packet",
}


def test_a_small_field_has_a_largest_value_or_nothing_that_grows_outgrows_it() -> None:
    """Of those that wrap, tests begin near the wrap: test_a_claim_that_has_wrapped_..."""
    assert {name for name, (_, _, high) in FIELDS.items() if high is ANY and BITS[name][1] < 64} == SMALL.keys()


LENGTHS: dict[str, tuple[bytes, bool]] = {
    # type: its shortest datagram, and whether there may be more bytes
    "DATA": (F.packet(forge.DATA, ME, VIEW, 1, [b""]), True),
    "UNICAST": (F.packet(forge.UNICAST, ME, VIEW, 1, [b""]), True),
    "FORWARD": (F.packet(forge.FORWARD, ME, VIEW, 1, [b""]), True),
    "STATE": (F.packet(forge.STATE, ME, VIEW, 1, [b"1234"], even=(4, 4)), True),
    "ACK": (ACK_, False),
    "NAK": (NAK_, False),
    "PROBE": (PROBE_, False),
    "HEARTBEAT": (heartbeat(0), False),
    "CONTROL": (F.control(ME, b""), True),
    "PING": (PING_, False),
    "PONG": (F.ping(forge.PONG, ME, VIEW, 101, ME), False),
    "ASK": (F.taken(forge.ASK, ME, VIEW, 1), False),
    "TAKEN": (TAKEN_, False),
    "RECORD": (RECORD_PACKET, False),
    "TOTAL": (TOTAL_, False),
    "SIZE": (size(56), False),
    "SIZED": (SIZED_, False),
    "PIECE": (piece(40, 40, 0), False),
    "WANT": (F.grant(forge.WANT, ME, VIEW, 1, 1), False),
    "GRANT": (GRANT_, False),
}


@pytest.mark.parametrize("kind", LENGTHS)
def test_a_datagram_is_as_long_as_its_type_says(kind: str) -> None:
    datagram, longer = LENGTHS[kind]
    assert re.search(rf"^    SC_TYPE_{kind} = {datagram[2]}\b", WIRE_H, re.M), "the row has a datagram of another type"
    assert verdict(sealed(datagram[:-1])) not in VALID
    assert verdict(datagram) in VALID
    assert (verdict(sealed(datagram + b"\0")) in VALID) == longer


def test_a_datagram_is_no_longer_than_udp_allows() -> None:
    for length in (DATAGRAM_MAX - 1, DATAGRAM_MAX, DATAGRAM_MAX + 1):
        assert (verdict(F.control(ME, bytes(length - 40))) in VALID) == (length <= DATAGRAM_MAX)


def test_the_engine_knows_the_types_of_the_wire_and_no_other() -> None:
    types = {name: int(number) for name, number in re.findall(r"^    SC_TYPE_(\w+) = (\d+)", WIRE_H, re.M)}
    assert LENGTHS.keys() == types.keys() and len(types) == 20
    unknown = set(range(256)) - set(types.values())
    for number in unknown:
        assert verdict(F.datagram(number, ME, VIEW, bytes(100))) == "field", f"type {number}"


FLAGS = {"DATA": 1 | 2 | 8 | 16, "FORWARD": 1 | 2 | 8, "UNICAST": 1 | 2, "STATE": 1 | 2, "RECORD": 0}
"""Of packets: the flags that one with offsets may have."""


@pytest.mark.parametrize("kind", FLAGS)
def test_a_packet_has_no_flags_of_other_types(kind: str) -> None:
    datagram = {**LENGTHS, "STATE": (F.packet(forge.STATE, ME, VIEW, 1, [b"1"]), True)}[kind][0]
    for flag in (1 << bit for bit in range(8) if 1 << bit != forge.EVEN or kind == "RECORD"):
        assert (verdict(patched("flags", datagram)(flag)) in VALID) == bool(flag & FLAGS[kind]), f"flag {flag}"


@pytest.mark.parametrize("n", [0, 1, 7, 8, 127, 128])
@pytest.mark.parametrize("at", [64, 80], ids=["unheard", "mute"])
def test_a_heartbeat_names_no_rank_beyond_its_view(at: int, n: int) -> None:
    """The last rank, and the first that is none."""
    for rank in {n - 1, n, MEMBERS_MAX - 1} & set(range(MEMBERS_MAX)):
        datagram = bytearray(heartbeat(n))
        datagram[at + rank // 8] |= 1 << rank % 8
        assert (verdict(sealed(bytes(datagram))) in VALID) == (rank < n), rank
