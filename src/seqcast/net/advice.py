"""Advice to a member that found no other one: its sentences, from the state of its sockets and its settings."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from seqcast._native.driver import Driver, describe_address
from seqcast.board.read import boards, net_namespace
from seqcast.config import Config
from seqcast.net.discovery import Discovery
from seqcast.net.errors import empty_bridge
from seqcast.net.interface import fault

STRANGE = ("drop_short", "drop_magic", "drop_version", "drop_group", "drop_key")
"""Counters of datagrams that no member of this group can have sent."""
AUTO = ", and with seeds= (else they may be at any port)"
FOUNDS_ALONE = (
    'partition="primary" with found=1: this process founds a group by itself when it hears none, even after a restart '
    "while cut off from the running one: then two groups exist. Set found= to a majority of the intended members on "
    "all of them, such as found=2 of 3"
)
MAYBE_FIRST = "If others run, `seqcast doctor` finds the reason"


class Advice(NamedTuple):
    """Things to check if no other member is heard.

    Args:
        text: sentences.
        found: the text names a cause that this member sees, not only possible ones.
    """

    text: str
    found: bool


def what_to_check(
    driver: Driver, config: Config, discovery: Discovery | None, answered: Iterable[bytes], cluster: str
) -> Advice:
    """Looks for the reason, and else names the usual ones.

    Args:
        answered: addresses from which others were heard.
        cluster: name of the group.
    """
    if discovery is not None:
        return _of_seeds(driver, config, discovery, answered)
    interface = driver.interface
    if cause := empty_bridge(interface) or fault(driver) or _on_another_interface(driver, cluster):
        return Advice(cause, True)
    return Advice(
        "Check that other members run with the same cluster name, address, port and ip_version, in the network of "
        f"this one's interface {interface}; that firewalls pass UDP to and from multicast addresses; and that switches "
        "with IGMP snooping have a querier",
        False,
    )


def _on_another_interface(driver: Driver, cluster: str) -> str:
    """Advice if a member of the group is on this machine, and on another interface; else "".

    The kernel gives a multicast to the members of the same machine on the interface by which that leaves, and drops
    one with an own address that comes back by another. Boards show such members, if both have one.
    """
    for board in boards(cluster):
        name, host = str(board.about["interface"]), str(board.about["address"]).rpartition(":")[0].strip("[]")
        here = board.alive and board.about["net"] == net_namespace()
        if here and name not in ("", driver.interface) and _is_local(host):
            return (
                f"{board.name} of this group is on this machine, on interface {name}, and this one is on "
                f"{driver.interface}: the kernel passes no multicast between them. Set interface= to the same one on "
                f'both, or seeds= to the hosts of both, such as seeds="{host}"'
            )
    return ""


def _is_local(host: str) -> bool:
    """Does this address belong to an interface here? A board may be of another network namespace."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return bool(host)


def _of_seeds(driver: Driver, config: Config, discovery: Discovery, answered: Iterable[bytes]) -> Advice:
    first, last = config.port, config.port + config.port_range
    trouble, answered = fault(driver), tuple(answered)
    fate = discovery.said(answered, driver.address)
    return Advice(
        f"{trouble + '. ' if trouble else ''}This member is at {describe_address(driver.address)}, and "
        f"{fate}. Check that other members run with the same cluster name, transport, port and ip_version"
        f"{AUTO * (config.transport == 'auto')}, and that firewalls pass UDP to the ports {first} to {last} of each "
        "member",
        bool(trouble) or discovery.is_in_doubt(driver.address, answered),
    )


def strangers(counters: Mapping[str, int]) -> int | None:
    """How many datagrams of other groups came, if none came for this one; None: another member was heard."""
    strange = sum(counters[name] for name in STRANGE)
    return strange if counters["datagrams_received"] == counters["drop_own"] + strange else None
