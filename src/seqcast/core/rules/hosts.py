"""The IP address in a member's socket address, for members' reports about each other."""

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


def place_of(address: bytes) -> str:
    """Host and port, as people write them; an address of another form in hexadecimal."""
    host, port = host_of(address), int.from_bytes(address[1:3], "big")
    if not host:
        return address.hex()
    return f"[{host}]:{port}" if address[0] == 6 else f"{host}:{port}"


def on_one_port(one: bytes, other: bytes) -> bool:
    """Do these addresses differ in the host alone?"""
    return len(one) == len(other) and one[:3] == other[:3]
