"""Opens the sockets of a member in the network of its cluster, and warns of sockets that are less than requested."""

from __future__ import annotations

import errno
import hashlib
import logging
import socket
import time
import warnings

import seqcast.codes as codes
from seqcast._native.driver import Driver, describe_address
from seqcast._native.engine import Engine
from seqcast.config import Config
from seqcast.config.derive import driver_settings
from seqcast.core.machines.interface import LOOK_NS
from seqcast.net.advice import FOUNDS_ALONE
from seqcast.net.discovery import Discovery
from seqcast.net.errors import NO_WAY_TO_SEEDS, clipped_buffers, explain, only_loopback
from seqcast.net.guard import listen

log = logging.getLogger("seqcast")

TENTATIVE_S = 3.0
"""How long a join waits while the kernel tests a new IPv6 address for a duplicate, which takes one to two seconds."""
PORTS_TRIED = 8
"""UDP ports that a member with ``guard`` tries until one is found whose number is free for TCP too."""


class ClippedBuffer(UserWarning):
    """The kernel made the receive or the send buffer smaller than requested."""


def group_address(cluster: str, ip_version: int) -> str:
    """The default multicast address of a cluster: in 239.255.0.0/16, or for IPv6 transient and site-local."""
    digest = hashlib.blake2b(cluster.encode(), digest_size=4).digest()
    if ip_version == 6:
        return f"ff15::{digest[0] << 8 | digest[1]:x}:{digest[2] << 8 | digest[3]:x}"
    return f"239.255.{digest[0]}.{1 + digest[1] % 254}"


def group_tag(cluster: str) -> int:
    """32-bit tag of a cluster's name, carried by each datagram."""
    return int.from_bytes(hashlib.blake2b(cluster.encode(), digest_size=4, person=b"tag").digest(), "little")


def open_driver(
    engine: Engine, cluster: str, member_id: int, config: Config, discovery: Discovery | None = None
) -> Driver:
    """Sockets in the network of a cluster, around an engine.

    Args:
        discovery: the seeds, which decide the interface if none is configured; None: members multicast, and have none.

    Raises:
        ConfigError: they cannot be opened.
    """
    import ipaddress

    address = config.address or group_address(cluster, config.ip_version)
    settings = driver_settings(config)
    if discovery is not None and not config.interface:
        settings["interface"] = discovery.host()
    until = time.monotonic() + TENTATIVE_S
    while True:
        try:
            return Driver(
                engine,
                member_id=member_id,
                group=ipaddress.ip_address(address).packed,
                look_ns=LOOK_NS,
                **settings,
            )
        except OSError as error:
            if error.args[1] != "tentative" or time.monotonic() > until:
                raise explain(error, config, address) from None
        time.sleep(0.05)


def open_guarded(
    engine: Engine, cluster: str, name: str, member_id: int, config: Config, discovery: Discovery | None
) -> tuple[Driver, socket.socket | None]:
    """The sockets; with ``guard`` also a listener. The other members derive its TCP port from the UDP address, so if
    that port is taken, another UDP port must be."""
    driver = open_driver(engine, cluster, member_id, config, discovery)
    for left in reversed(range(PORTS_TRIED if config.guard else 0)):
        try:
            return driver, listen(driver.address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not left or config.unicast_port:
                why = str(error.strerror).partition(" (")[0]  # without the address, which is in the line anyway
                log.warning(
                    codes.NO_GUARD(
                        "%s: guard=True, but TCP port %s cannot be listened on (%s): other members notice the end "
                        "of this process only by its closed UDP port or its silence. Let it listen there, or set "
                        "guard=False"
                    ),
                    name, describe_address(driver.address), why,
                )  # fmt: skip
                break
        driver.close()
        config = _behind(driver, config)
        driver = open_driver(engine, cluster, member_id, config, discovery)
    return driver, None


def _behind(driver: Driver, config: Config) -> Config:
    """The same settings for a port that this driver has not tried: without multicast the ports come in a row."""
    port, last = int(describe_address(driver.address).rpartition(":")[2]), config.port + config.port_range
    if config.transport != "unicast" or port >= last:
        return config
    return config.replace(port=port + 1, port_range=last - port - 1)


def warn_of(driver: Driver, cluster: str, config: Config, discovery: Discovery | None) -> None:
    """Warns the caller of ``join`` of clipped buffers, of sockets that reach this machine only, and of a primary group
    that anybody may found."""
    if config.partition == "primary" and config.found == 1 and not config.observer:
        warnings.warn(codes.FOUNDS_ALONE(FOUNDS_ALONE), RuntimeWarning, stacklevel=5)
    if clipped := clipped_buffers(config, driver.rcvbuf_granted, driver.sndbuf_granted):
        warnings.warn(codes.CLIPPED_BUFFERS(clipped), ClippedBuffer, stacklevel=5)
    if not driver.loopback or config.interface:
        return
    if config.transport != "unicast":
        text = only_loopback(config.address or group_address(cluster, config.ip_version))
        warnings.warn(codes.ONLY_LOOPBACK(text), RuntimeWarning, stacklevel=5)
    elif discovery is not None and discovery.is_elsewhere():
        warnings.warn(codes.ONLY_LOOPBACK(NO_WAY_TO_SEEDS), RuntimeWarning, stacklevel=5)
