"""The settings of a member of a crowd."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from seqcast.config.derive import nanoseconds
from seqcast.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdSettings:
    """All members should have the same address, port, ``average_s`` and ``lag``.

    Args:
        interface: name or IPv4 address of the network interface. Empty: the one that the routing table names for
            multicast, otherwise loopback.
        address: multicast address. Empty: derived from the crowd's name.
        port: UDP port of the multicasts.
        ttl: networks that a multicast may cross.
        average_s: a member receives one gossip in this time on average (seconds), however large the crowd is. Shorter:
            lost messages come sooner; longer: less traffic.
        lag: messages of each sender that a member keeps in memory for others.
        lost_s: a message that others have, and that did not come for so long (seconds), is told as ``CrowdLost``. At
            least ten times ``average_s``.
        keep_bytes: of messages that are kept in memory for others; older ones go first.
        receive: False: nothing is delivered to the application, which only sends, or only keeps a store.
        receive_bytes: of messages that wait for the application; those that come when there is no more room are
            repaired later, or told as ``CrowdLost``, and ``send`` waits.
        send_bytes_per_s: ``send`` waits when more is sent: nobody gives credit here.
        store: path of a SQLite file: makes this member a late-join handler, which keeps all messages that it delivers
            there, and serves those that join later from it. It continues where the file ends. Empty: none.
        store_bytes: of messages that the file keeps; the oldest go first.
        store_age_s: seconds that the file keeps a message; 0: no limit.
        history: deliver first what late-join handlers keep of the time before this member came.
        history_s: seconds to wait for a late-join handler.
    """

    interface: str = ""
    address: str = ""
    port: int = 47312
    ttl: int = 1
    average_s: float = 0.2
    lag: int = 1000
    lost_s: float = 10.0
    keep_bytes: int = 64 << 20
    receive: bool = True
    receive_bytes: int = 64 << 20
    send_bytes_per_s: int = 10_000_000
    store: str = ""
    store_bytes: int = 1 << 30
    store_age_s: float = 0.0
    history: bool = False
    history_s: float = 5.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            default: Any = field.default
            value, kind = getattr(self, field.name), type(default)
            if kind is float and type(value) is int:
                value = float(value)
                object.__setattr__(self, field.name, value)
            if type(value) is not kind:
                raise ConfigError(f"{field.name}={value!r} must be of type {kind.__name__}")
            if field.name in _BOUNDS:
                _check(field.name, value, *_BOUNDS[field.name])
        if self.lost_s < 10 * self.average_s:
            raise ConfigError(f"lost_s={self.lost_s} must be at least ten times average_s={self.average_s}")

    def gossip(self) -> dict[str, object]:
        """The keyword arguments of ``GossipSettings``."""
        return {
            "votes": False,
            "average_ns": nanoseconds(self.average_s),
            "lag": self.lag,
            "lost_ns": nanoseconds(self.lost_s),
            "listed_max": 16,
            "shuffle_ns": nanoseconds(2.0),
            "epoch_ns": nanoseconds(30.0),
            "hello_ns": nanoseconds(5.0),
            "history_ns": nanoseconds(self.history_s),
        }


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{name}={value!r} must be from {low} to {high}")


_BOUNDS: dict[str, tuple[float, float]] = {
    "port": (1, 65535),
    "ttl": (0, 255),
    "average_s": (0.001, 3600.0),
    "lag": (1, 1 << 30),
    "lost_s": (0.01, 86_400.0),
    "keep_bytes": (1 << 20, 1 << 40),
    "receive_bytes": (1 << 20, 1 << 40),
    "send_bytes_per_s": (1000, 1 << 40),
    "store_bytes": (1 << 16, 1 << 50),
    "store_age_s": (0.0, 1e9),
    "history_s": (0.1, 3600.0),
}
