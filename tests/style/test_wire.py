"""Only native/wire/wire.h knows where a field of a datagram stands; the simulation's copy is the same."""

import re

from project import ROOT

from seqcast.sim import seal, wire

ROOMS = ("engine", "streams", "order", "view", "delivery", "detect", "io")
BY_OFFSET = re.compile(r"\bsc_(?:get|put)(?:8|16|32|64)\(\w+(?:->\w+)? \+|\b(?:p|packet|datagram)\[(?:\d+\]|sc_at_)")


def test_no_kernel_reads_or_writes_a_datagram_by_an_offset():
    kernels = [path for path in (ROOT / "native").glob("*/*.[ch]") if path.parent.name in ROOMS]
    assert len(kernels) > 15
    lines = [(path.name, line.strip()) for path in kernels for line in path.read_text("utf-8").splitlines()]
    found = [line for line in lines if BY_OFFSET.search(line[1])]
    assert not found, found


def test_an_offset_in_a_kernel_is_found():
    for line in ("sc_put64(p + 40, target);", "x = sc_get32(slot->p + 8);", "packet[2] = 1;"):
        assert BY_OFFSET.search(line)


def test_the_simulated_network_reads_datagrams_as_wire_h_defines_them():
    text = (ROOT / "native/wire/wire.h").read_text("utf-8")
    types = {name: int(number) for name, number in re.findall(r"^    SC_TYPE_(\w+) = (\d+)", text, re.M)}
    fields = re.findall(r"^SC_FIELD\((\d+), (\d+), (\w+)\)", text, re.M)
    places = {name: slice(int(offset), int(offset) + int(bits) // 8) for offset, bits, name in fields}
    assert wire.CONTROL == types["CONTROL"] and wire.NAK == types["NAK"]
    assert wire.MESSAGES == tuple(types[name] for name in ("DATA", "UNICAST", "FORWARD", "STATE"))
    assert wire.GROUP == (types["DATA"], types["FORWARD"])
    assert wire.REPAIRED == (*wire.MESSAGES, types["RECORD"])
    assert f"#define SC_COMMON_HEADER {seal.HEADER}\n" in text
    datagram = bytes(range(100, 100 + seal.HEADER))
    names = ("type", "key_id", "sender", "view_tag", "seqno")
    assert [*wire.header(datagram)] == [int.from_bytes(datagram[places[name]], "little") for name in names]
    assert wire.kind(datagram) == wire.header(datagram).kind
    assert wire.packet(datagram) == datagram[places["sender"].start : places["seqno"].stop]
