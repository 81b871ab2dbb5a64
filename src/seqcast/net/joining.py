"""The application's waits for its first view and for enough members, and the warning of a member that finds itself
alone."""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Callable, Sequence

import seqcast.codes as codes
from seqcast._native.driver import Driver, describe_address
from seqcast._native.engine import Engine
from seqcast.abandoned import still_wanted
from seqcast.config import Config
from seqcast.config.derive import reach
from seqcast.core.endpoint import Endpoint
from seqcast.errors import JoinRefused, JoinTimeout, NotMember
from seqcast.net.advice import FOUNDS_ALONE, MAYBE_FIRST, Advice, strangers, what_to_check
from seqcast.net.discovery import NAMED_MAX, Discovery
from seqcast.net.interface import fault
from seqcast.net.standing import Standing

log = logging.getLogger("seqcast")


class Joining:
    """
    Args:
        discovery: None: by multicast.
    """

    def __init__(
        self,
        standing: Standing,
        config: Config,
        endpoint: Endpoint,
        engine: Engine,
        driver: Driver,
        discovery: Discovery | None,
    ) -> None:
        self._standing, self._config, self._endpoint = standing, config, endpoint
        self._engine, self._driver, self._discovery = engine, driver, discovery
        self._began = time.monotonic()

    def wait(self) -> None:
        """Waits for the first view.

        Raises:
            NameTaken, JoinRefused: the group refused this member.
            JoinTimeout: none came in ``join_timeout_s``.
        """
        standing = self._standing
        with standing.changed:
            ended = standing.wait(
                lambda: still_wanted() and (standing.is_in or standing.over),
                self._config.join_timeout_s,
                self._seeds_awaited(),  # without seeds the core says why a joiner waits
            )
        if standing.error is not None:
            raise standing.error
        if ended and not standing.is_in:
            raise JoinRefused(standing.excluded) if standing.excluded else _left_early()
        if not ended:
            raise JoinTimeout(f"no view within join_timeout_s={self._config.join_timeout_s:g} s{self._hindrance()}")

    def _hindrance(self) -> str:
        """Why no view came, as the end of a sentence."""
        if self._standing.waiting:
            return f": the group exists, and does not take this member in yet: {self._standing.waiting}"
        if trouble := fault(self._driver):
            return f": {trouble}"
        directions = self._directions()
        if self._endpoint.lacks:
            return f": {self._endpoint.lacks}; {directions}. {self._what_to_check().text}"
        if self._discovery is not None:
            return f": {directions}. {self._what_to_check().text}"
        return (
            f" on {self._driver.interface}: {directions}. Members may be unable to reach each other (firewall, another "
            "interface), the group may be blocked because it has no majority (seqcast unblock "
            f"{shlex.quote(self._endpoint.context.cluster)}{reach(self._config)} --list), or the machine is overloaded"
        )

    def _directions(self) -> str:
        """The members that this one hears, and those that hear this one."""
        answered, hearers, admits = tuple(self._endpoint.answered), self._endpoint.hearers, self._endpoint.admits
        if not answered:
            return "this member has heard nobody"
        said = f"this member hears those at {_places(answered)}"
        if not hearers and self._endpoint.joiners_are_silent:
            return said
        if not hearers:
            return f"{said}, and nothing shows that they hear it: its own datagrams may be lost on the way"
        said += f", and is heard at {_places(hearers)}"
        if not admits or admits in hearers:
            return said
        where = "to there" if admits in answered else "to there or from there"
        return (
            f"{said}; the member that admits others is at {describe_address(admits)}, and does not answer: datagrams "
            f"{where} are lost on the way, perhaps by a firewall"
        )

    def _seeds_awaited(self) -> Callable[[], str] | None:
        discovery = self._discovery
        if discovery is None:
            return None
        return lambda: f"join waits, and {discovery.said(tuple(self._endpoint.answered), self._driver.address)}"

    def wait_members(self, n: int) -> None:
        """Waits until the newest view has ``n`` members that are not observers, at most until ``join_timeout_s`` after
        the join began.

        Raises:
            JoinTimeout: too few members, or this one was excluded.
            NotMember: another thread left the group.
        """
        standing = self._standing
        remaining = self._began + self._config.join_timeout_s - time.monotonic()
        with standing.changed:
            standing.wait(
                lambda: still_wanted() and (standing.over or len(standing.voters()) >= n),
                remaining,
                lambda: f"join waits for min_members={n} members; there: {', '.join(standing.voters())}",
            )
            came = standing.voters()
            if len(came) >= n and not standing.over:
                return
            if standing.excluded:
                raise JoinTimeout(f"this member was excluded while it waited for min_members={n}: {standing.excluded}")
            if standing.over and standing.error is None:
                raise _left_early()
        raise JoinTimeout(
            f"the group has {len(came)} of min_members={n} members ({', '.join(came)}) after "
            f"{self._config.join_timeout_s:g} s (join_timeout_s), so this one has left. {self._what_to_check().text}"
        )

    def tell_alone(self) -> None:
        """No other member was found: correct for the first member, but also the only sign of broken multicast."""
        config, name = self._config, self._standing.member.name
        if config.partition == "primary" and config.found == 1 and not config.observer:
            log.warning(codes.FOUNDS_ALONE("%s: founded the group alone; %s"), name, FOUNDS_ALONE)
        strange = strangers(self._engine.counters())
        if strange is not None:
            cluster = self._endpoint.context.cluster
            others = f", and {strange} of other groups did: is the name of this one, {cluster!r}, right?"
            advice = self._what_to_check()
            likely = not (strange or advice.found or self._discovery)  # this is the first member
            log.log(
                logging.INFO if self._driver.loopback and likely else logging.WARNING,
                codes.NOBODY_HEARD("%s: founded the group alone: no datagram of another member came in %g s%s. %s"),
                name, config.discovery_s, others if strange else "", MAYBE_FIRST if likely else advice.text,
            )  # fmt: skip

    def _what_to_check(self) -> Advice:
        endpoint = self._endpoint
        return what_to_check(self._driver, self._config, self._discovery, endpoint.answered, endpoint.context.cluster)


def _places(addresses: Sequence[bytes]) -> str:
    return ", ".join(describe_address(each) for each in addresses[:NAMED_MAX])


def _left_early() -> NotMember:
    return NotMember("the group was left before the join was complete")
