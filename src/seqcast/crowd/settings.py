"""The settings of a member of a crowd."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

from seqcast.config.check import field_value
from seqcast.config.derive import to_ns
from seqcast.errors import ConfigError

T = TypeVar("T")


def _setting(default: T, low: float | None = None, high: float | None = None, unit: str = "") -> T:
    """A setting: its default, and its bounds."""
    field: T = dataclasses.field(default=default, metadata={"low": low, "high": high, "among": (), "unit": unit})
    return field


HANDLER_LAG = 10_000
"""A member with a ``lag`` of at least this is a late-join handler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdSettings:
    """All members should have the same address, port and ``average_s``, and but for late-join handlers ``lag``.

    Args:
        interface: name or IPv4 address of the network interface. Empty: the one that the routing table names for
            multicast, otherwise loopback.
        address: multicast address. Empty: derived from the crowd's name.
        port: UDP port of the multicasts.
        unicast_port: UDP port for datagrams to this member alone. 0: any that is free. Firewalls must pass that, too.
        ttl: networks that a multicast may cross.
        average_s: a member receives one gossip in this time on average (seconds), however large the crowd is. Shorter:
            lost messages come sooner; longer: less traffic.
        lag: messages of each sender that a member keeps in memory for others, within ``keep_bytes``. 10,000 or more
            makes this member a late-join handler without a store: later joiners are served from memory.
        lost_s: a message that others have, and that did not come for this long (seconds), is reported as ``CrowdLost``.
            At least ten times ``average_s``.
        keep_bytes: the most bytes of messages that are kept in memory for others; older ones go first.
        receive: False: nothing is delivered to the application, which only sends, or only keeps a store.
        receive_bytes: the most bytes of messages that wait for the application; those that come when there is no more
            room are repaired later, or reported as ``CrowdLost``, and ``send`` waits.
        send_bytes_per_s: ``send`` waits when more is sent: nobody gives credit here.
        store: path of a SQLite file: makes this member a late-join handler, which keeps all messages that it delivers
            there, and serves later joiners from there. The handler continues at the end of the file. Empty: none.
        store_bytes: the most bytes of messages that the file keeps; the oldest go first.
        store_age_s: seconds that the file keeps a message; 0: no limit.
        history: deliver first the messages that late-join handlers keep from the time before this member came.
        history_s: seconds to wait for a late-join handler.
    """

    interface: str = _setting("")
    address: str = _setting("")
    port: int = _setting(47312, 1, 65535)
    unicast_port: int = _setting(0, 0, 65535)
    ttl: int = _setting(1, 0, 255)
    average_s: float = _setting(0.2, 0.001, 3600.0, "s")
    lag: int = _setting(1000, 1, 1 << 30)
    lost_s: float = _setting(10.0, 0.01, 86_400.0, "s")
    keep_bytes: int = _setting(64 << 20, 1 << 20, 1 << 40)
    receive: bool = _setting(True)
    receive_bytes: int = _setting(64 << 20, 1 << 20, 1 << 40)
    send_bytes_per_s: int = _setting(10_000_000, 1000, 1 << 40)
    store: str = _setting("")
    store_bytes: int = _setting(1 << 30, 1 << 16, 1 << 50)
    store_age_s: float = _setting(0.0, 0.0, 1e9, "s")
    history: bool = _setting(False)
    history_s: float = _setting(5.0, 0.1, 3600.0, "s")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = field_value(field, type(field.default), getattr(self, field.name))
            object.__setattr__(self, field.name, value)
        if self.lost_s < 10 * self.average_s:
            raise ConfigError(f"lost_s={self.lost_s} must be at least ten times average_s={self.average_s}")

    def gossip(self) -> dict[str, Any]:
        """The keyword arguments of ``GossipSettings``."""
        return {
            "votes": False,
            "average_ns": to_ns(self.average_s),
            "lag": self.lag,
            "lost_ns": to_ns(self.lost_s),
            "listed_max": 16,
            "shuffle_ns": to_ns(2.0),
            "epoch_ns": to_ns(30.0),
            "hello_ns": to_ns(5.0),
            "history_ns": to_ns(self.history_s),
        }
