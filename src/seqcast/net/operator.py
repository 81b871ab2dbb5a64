"""The operator's command ``unblock`` on the network: it joins no group."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

from seqcast._native.driver import Driver, now_ns
from seqcast._native.engine import Engine
from seqcast.config import Config
from seqcast.config.derive import engine_settings
from seqcast.core.frames.kinds import BlockedSide, dump, load
from seqcast.core.machines.operator import Operator
from seqcast.errors import RemoteProtocolError
from seqcast.net.host import group_tag, open_driver

REPEAT_S = 0.1


class OperatorHost:
    """Sockets, and a thread that drives them, for one command; a context.

    Args:
        cluster: whose minority.
        config: where the cluster is.

    Raises:
        ConfigError: the sockets cannot be opened.
    """

    def __init__(self, cluster: str, config: Config) -> None:
        member_id = secrets.randbits(63) | 1
        self.operator = Operator(cluster, secrets.randbits(52))
        self.engine = Engine(
            member_id=member_id, group_tag=group_tag(cluster), seed=secrets.randbits(63), **engine_settings(config)
        )
        self.driver: Driver = open_driver(self.engine, cluster, member_id, config)
        self._thread = threading.Thread(target=self.driver.run, name="seqcast-io-operator", daemon=True)

    def __enter__(self) -> OperatorHost:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.stop()
        self._thread.join(1.0)
        self.driver.close()

    def say(self, seconds: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Says what is to be said again and again, and takes answers, until there are enough or the time is over."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not enough():
            self.engine.control_send(dump(self.operator.frame()))
            self.driver.poke()
            due = now_ns() + int(REPEAT_S * 1e9)
            while now_ns() < due and not enough():
                self.driver.wait_control(due)
                for kind, *details in self.engine.events():
                    if kind == "control":
                        self._heard(details[3])

    def _heard(self, payload: bytes) -> None:
        try:
            frame = load(payload)
        except RemoteProtocolError:
            return
        if isinstance(frame, BlockedSide):
            self.operator.heard(frame)
