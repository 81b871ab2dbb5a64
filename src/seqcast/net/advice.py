"""Advice to a member that found no other one: its sentences, from the state of its sockets and its settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from seqcast._native.driver import Driver, describe_address
from seqcast.config import Config
from seqcast.net.discovery import Discovery
from seqcast.net.errors import empty_bridge
from seqcast.net.interface import fault

STRANGE = ("drop_short", "drop_magic", "drop_version", "drop_group", "drop_key")
"""Counters of datagrams that no member of this group can have sent."""
FOUNDS_ALONE = (
    'partition="primary" with found=1: this process founds a group by itself if it hears none, also when it restarts '
    "while it is cut off from the running one, so that there are two. Set found= to a majority of the intended members "
    "on all of them, such as found=2 of 3"
)


def what_to_check(driver: Driver, config: Config, discovery: Discovery | None, answered: Iterable[bytes]) -> str:
    """Things to check if no other member is heard.

    Args:
        answered: addresses from which others were heard.
    """
    if discovery is not None:
        return _of_seeds(driver, config, discovery, answered)
    interface = driver.interface
    if empty := empty_bridge(interface):
        return empty
    if trouble := fault(driver):
        return trouble
    return (
        "Are the other members running, with the same cluster name, address, port and ip_version? This one is on "
        f"interface {interface}: theirs must be in the same network. Check that firewalls pass UDP to "
        "and from multicast addresses, and that switches with IGMP snooping have a querier"
    )


def _of_seeds(driver: Driver, config: Config, discovery: Discovery, answered: Iterable[bytes]) -> str:
    first, last = config.port, config.port + config.port_range
    trouble, fate = fault(driver), discovery.said(tuple(answered))
    return (
        f"{trouble + '. ' if trouble else ''}This member is at {describe_address(driver.address)}, and "
        f"{fate}. Are the other members running, with the same cluster name, transport, port and "
        f"ip_version? Check that firewalls pass UDP to the ports {first} to {last} of each member"
    )


def strangers(counters: Mapping[str, int]) -> int | None:
    """How many datagrams came of other groups, if no other came to this one; None: another member was heard."""
    strange = sum(counters[name] for name in STRANGE)
    return strange if counters["datagrams_received"] == counters["drop_own"] + strange else None
