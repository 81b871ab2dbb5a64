"""Only native/wire/wire.h knows where a field of a datagram stands."""

import re

from project import ROOT

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
