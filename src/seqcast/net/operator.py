"""The sockets of the operator's command ``unblock``, which joins no group."""

from __future__ import annotations

import secrets
import threading

from seqcast._native.driver import Driver, now_ns
from seqcast._native.engine import Engine
from seqcast.board.read import boards
from seqcast.config import Config
from seqcast.config.derive import engine_settings, to_ns
from seqcast.core.frames.kinds import dump
from seqcast.core.identities import Identities, taken_apart
from seqcast.core.machines.lifecycle import KEYS
from seqcast.core.machines.operator import Operator
from seqcast.core.rules.hosts import place_of
from seqcast.errors import RemoteProtocolError, UsageError
from seqcast.net.discovery import Discovery
from seqcast.net.opening import group_tag, open_driver, warn_of
from seqcast.net.secure import identity_of, seal_of
from seqcast.reports import FrameReceived, OtherKey

SLICE_NS = 100_000_000
"""The longest single wait, ns: the machine may have no timer any more, and Python handles signals between waits."""


class OperatorRunner:
    """Sockets, and a thread that drives them, for one command; a context. Beside those at the seeds, the command asks
    the members in the views that boards of this machine show.

    Args:
        cluster: the group's name.
        config: where the cluster is.
        ask_s, allow_s: see ``Operator``, in seconds.

    Raises:
        ConfigError: the sockets cannot be opened.
        UsageError: nobody can be asked: there are neither multicasts nor seeds, and no member runs here.
    """

    def __init__(self, cluster: str, config: Config, ask_s: float, allow_s: float) -> None:
        member_id = self._id = secrets.randbits(63) | 1
        signer, listed = identity_of(config, "") or (None, None)
        self._identities = Identities(signer, listed.allowed if listed is not None else (), cluster)
        seal = seal_of(config, cluster)
        self._keys = list(seal.secrets) if seal is not None else []
        self.engine = Engine(
            member_id=member_id,
            group_tag=group_tag(cluster),
            seed=secrets.randbits(63),
            seal=seal,
            **engine_settings(config),
        )
        self.audience: tuple[bytes, ...] = (b"",)  # addresses; an empty one: everyone who listens
        if config.transport != "multicast":
            config = config.replace(seeds=",".join(filter(None, [config.seeds, *_members_here(cluster)])))
        discovery: Discovery | None = None
        if config.seeds:
            discovery = Discovery(config, "unblock", lambda _: None)
            discovery.look()
            self.audience = discovery.addresses + (self.audience if config.transport == "auto" else ())
        elif config.transport == "unicast":
            raise UsageError(
                f"no member of {cluster!r} runs here as this user, and without multicast nobody else can be asked: "
                "give --seeds with the hosts of members"
            )
        self.driver: Driver = open_driver(self.engine, cluster, member_id, config, discovery)
        warn_of(self.driver, cluster, config, discovery)
        tried = discovery.said() if discovery is not None else ""
        self.operator = Operator(cluster, secrets.randbits(52), to_ns(ask_s), to_ns(allow_s), now_ns(), tried)
        self._thread = threading.Thread(target=self.driver.run, name="seqcast-io-operator", daemon=True)

    def __enter__(self) -> OperatorRunner:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.stop()
        self._thread.join(1.0)
        self.driver.close()

    def ask(self) -> None:
        """Asks all members; returns when the time for answers is over."""
        while not self.operator.asked:
            self._round()

    def allow(self) -> None:
        """Allows the chosen side to continue; returns when all its members have accepted or the time is over."""
        while not self.operator.over:
            self._round()

    def _heard(self, report: FrameReceived) -> None:
        try:
            came = taken_apart(report.payload)
        except RemoteProtocolError:
            return
        if not self._identities.doubt(None, report.sender, came, {}):
            self.operator.heard(came.payload)

    def _round(self) -> None:
        frames = self.operator.run_timers(now_ns())
        if frames and len(self._keys) > 1:  # while a key is replaced, some may lack the first one
            self.engine.refile(self._keys)
            self._keys.append(self._keys.pop(0))  # for the next time
        for frame in frames:
            for address in dict.fromkeys((*self.audience, *self.operator.places)):
                self.engine.control_send(self._identities.with_signature(self._id, dump(frame)), address)
            self.driver.poke()
        self.driver.wait_control(min(self.operator.due(), now_ns() + SLICE_NS))
        for report in self.engine.reports():
            if isinstance(report, FrameReceived):
                self._heard(report)
            elif isinstance(report, OtherKey) and report.sure:
                self.operator.strange = KEYS[report.how].format(place_of(report.address))


def _members_here(cluster: str) -> list[str]:
    """Where the members are that members on this machine have in their view."""
    views = [board.about["view"] for board in boards(cluster) if board.alive]
    return list(dict.fromkeys(member["address"] for view in views for member in view["members"] if member["address"]))
