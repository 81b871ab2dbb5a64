"""``ttl`` and ``dscp`` as the receiver of a datagram sees them, in namespaces, on both versions of the protocol."""

import json

import pytest
from members import output, script
from netns import network  # noqa: F401

pytestmark = pytest.mark.netns

LISTEN = """
import json, socket, struct, sys
version, address, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
family = socket.AF_INET if version == 4 else socket.AF_INET6
listener = socket.socket(family, socket.SOCK_DGRAM)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((address, port))
index = socket.if_nametoindex("eth0")
if version == 4:
    request = socket.inet_aton(address) + struct.pack("=Ii", 0, index)
    listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
    listener.setsockopt(socket.IPPROTO_IP, 12, 1)  # IP_RECVTTL, which Python does not name
    listener.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    wanted = {(socket.IPPROTO_IP, socket.IP_TTL): "hops", (socket.IPPROTO_IP, socket.IP_TOS): "class"}
else:
    request = socket.inet_pton(family, address) + struct.pack("=I", index)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
    ipv6 = socket.IPPROTO_IPV6
    wanted = {(ipv6, socket.IPV6_HOPLIMIT): "hops", (ipv6, socket.IPV6_TCLASS): "class"}
listener.settimeout(30)
print("listening", flush=True)
_, ancillary, _, _ = listener.recvmsg(65536, 1024)
seen = {wanted[level, kind]: int.from_bytes(data, sys.byteorder) for level, kind, data in ancillary}
print(json.dumps(seen))
"""

SEND = """
import json, sys
import seqcast
with seqcast.join("x", name="a", interface="eth0", **json.loads(sys.argv[1])) as group:
    group.send(b"looked at")
    group.recv(10)
"""


@pytest.mark.multicast
@pytest.mark.parametrize("lane", [0, pytest.param(1, marks=pytest.mark.long)], ids=["data", "control"])
@pytest.mark.parametrize(("version", "address"), [(4, "239.1.2.3"), (6, "ff15::1:2")], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize(
    ("given", "hops", "traffic_class"),
    [pytest.param({}, 1, 0, marks=pytest.mark.long), ({"ttl": 3, "dscp": 46}, 3, 46)],
)
def test_packets_carry_the_hops_and_the_class_that_are_given(
    network, version, address, given, hops, traffic_class, lane  # noqa: F811
):  # fmt: skip
    here, there = network[:2]
    if version == 6:
        for place, host in ((here, 1), (there, 2)):
            place.run(*f"ip -6 addr add fd99::{host}/64 dev eth0 nodad".split())
    listener = script(LISTEN, str(version), address, str(47310 + lane), prefix=there.prefix)
    assert listener.stdout.readline() == "listening\n", listener.communicate()
    settings = {"ip_version": version, "address": address, **given}
    output(script(SEND, json.dumps(settings), prefix=here.prefix))
    assert json.loads(output(listener)) == {"hops": hops, "class": traffic_class << 2}
