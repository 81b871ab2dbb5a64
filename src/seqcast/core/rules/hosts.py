"""The IP address in a member's socket address, for what members are told of each other."""

from __future__ import annotations

import ipaddress


def host_of(address: bytes) -> str:
    """As text; "" for an address of another form, as in the simulator.

    Args:
        address: the family (4 or 6), the port in two bytes, the IP address, and for IPv6 its scope.
    """
    if len(address) >= 7 and address[0] == 4:
        return str(ipaddress.IPv4Address(address[3:7]))
    if len(address) >= 19 and address[0] == 6:
        return str(ipaddress.IPv6Address(address[3:19]))
    return ""
