"""The checks of settings: types, bounds, and values that contradict each other."""

from __future__ import annotations

import dataclasses
import ipaddress
import math
import os
from collections.abc import Collection, Sequence
from typing import Any

import seqcast.codes as codes
from seqcast.errors import ConfigError

NOT_MORE_THAN = (
    ("nak_backoff_s_min", "nak_backoff_s_max"),
    ("ack_delay_s", "probe_s_min"),
    ("probe_s_min", "probe_s_max"),
    ("join_s_min", "join_s_max"),
    ("lease_s", "back_off_s"),
    ("block_deadline_s", "flush_deadline_s"),
    ("suspect_s", "suspect_s_max"),
    ("suspect_s", "name_taken_s"),
)
"""Pairs of settings whose first must not exceed the second."""


def field_value(field: dataclasses.Field[Any], kind: type, value: Any) -> Any:
    """The value, a whole number as a float if its field is one, checked against the field's type and bounds.

    Raises:
        ConfigError: it has another type, or is out of bounds.
    """
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        names = {str: "text", int: "a whole number", float: "a number", bool: "True or False"}
        raise ConfigError(f"{field.name}={value!r} must be {names[kind]}")
    low, high, among = (field.metadata[key] for key in ("low", "high", "among"))
    if among and value not in among:
        raise ConfigError(f"{field.name}={value!r} must be one of {', '.join(map(repr, among))}")
    if (low is not None and not value >= low) or (high is not None and not value <= high):
        raise ConfigError(f"{field.name}={value!r} must be from {low} to {high} {field.metadata['unit']}".rstrip())
    return value


def _stable(config: Any) -> None:
    if not config.stable:
        return
    if config.partition != "primary":
        raise ConfigError("stable= needs partition='primary': elsewhere members go on without a majority, and no votes")
    if config.observer:
        raise ConfigError("stable= has no meaning with observer=True: an observer has no vote")


def clashes(config: Any) -> None:
    """Checks settings against each other.

    Args:
        config: has each setting as an attribute.

    Raises:
        ConfigError: values are allowed one by one, but not together.
    """
    if config.ring_packets & (config.ring_packets - 1):
        raise ConfigError(f"ring_packets={config.ring_packets} must be a power of two, such as 8192")
    if config.safe and config.reliability == "gossip":
        raise ConfigError("safe=True needs reliability='nak': with gossip no member knows the positions of all others")
    if config.observer and config.membership == "token-ring":
        raise ConfigError("observer=True needs membership='coordinated': in a ring each member passes the token on")
    _stable(config)
    if config.slow == "skip":
        _skip(config)
    if config.suspect_s < 4 * config.heartbeat_s:
        raise ConfigError(
            f"suspect_s={config.suspect_s} must be at least 4 times heartbeat_s={config.heartbeat_s}: otherwise "
            "a lost heartbeat or two would get a member suspected"
        )
    for low, high in NOT_MORE_THAN:
        if getattr(config, low) > getattr(config, high):
            raise ConfigError(f"{low}={getattr(config, low)} must not exceed {high}={getattr(config, high)}")
    if config.packet_bytes % 8 or 0 < config.packet_bytes < 512:
        raise ConfigError(
            f"packet_bytes={config.packet_bytes} must be 0 (derived from the MTU), or a multiple of 8 of at least 512"
        )
    if config.journal_resume and config.journal_required:
        raise ConfigError(
            "journal_resume=True does not go with journal_required=True, which takes no message without a journal: "
            "choose one of them"
        )
    if config.journal and not config.receive:
        raise ConfigError("journal= needs receive=True: a member that receives no messages has nothing to journal")
    _security(config)
    if config.unicast_port in (config.port, config.port + 1):
        raise ConfigError(
            f"unicast_port={config.unicast_port} must be another one than port={config.port} and the next one, which "
            "are for multicasts"
        )
    cores("io_cores", config.io_cores)
    cores("control_cores", config.control_cores)
    _transport(config)
    if config.address:
        _multicast(config.address, config.ip_version)
        scope, named = config.address.partition("%")[2], config.interface.rpartition("%")[2]
        if scope and scope != named and ":" not in named:  # an address alone names none
            raise ConfigError(
                f"address={config.address} names another interface than interface={config.interface}: leave one out"
            )


def _security(config: Any) -> None:
    if config.cipher != "auto" and not config.key:
        raise ConfigError(f"cipher={config.cipher!r} has no meaning without key=")
    if config.key and config.guard:
        raise ConfigError("guard=True has no meaning with key=: guard connections are not sealed; leave one out")
    if bool(config.identity) != bool(config.authorized):
        raise ConfigError(
            "identity= and authorized= go together: the one shows others who this process is, and the other tells this "
            "process who they may be; `seqcast keygen FILE --identity` makes the first, and prints a line of the second"
        )
    if config.identity and not config.key:
        raise ConfigError("identity= and authorized= need key=: without a key nothing shows who sends a datagram")


def _skip(config: Any) -> None:
    """A program that relies on the messages of all members cannot miss some."""
    if config.safe:
        raise ConfigError('slow="skip" does not go with safe=True: no member may skip messages that all deliver')
    if config.journal:
        raise ConfigError(
            'slow="skip" does not go with journal=: an audit takes a gap in a journal for a broken guarantee'
        )


def cores(name: str, text: str) -> frozenset[int]:
    """The numbers of cores in a setting such as ``2,4-7``.

    Raises:
        ConfigError: it has another form, or threads cannot be bound to cores on this system.
    """
    if text and not hasattr(os, "sched_setaffinity"):
        raise ConfigError(f"{name}={text!r} binds a thread to cores, which needs Linux: leave the setting out")
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, dash, last = part.strip().partition("-")
        if not all(each.isascii() and each.isdigit() and len(each) < 5 for each in (first, last if dash else first)):
            raise ConfigError(f"{name}={text!r} must be numbers of cores, such as 2,3 or 2-5")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


OF_KEY = ("key", "identity", "authorized")
"""Settings that name the files of a group with a key. One that is given but names no file is refused: the program has
most likely not found its key, and would join a group without one."""


def no_file(name: str, given: str) -> str:
    """Why such a setting is refused; ``given``: its value, in words."""
    return f"{name} is {given} and names no file: name one, or leave {name} out to join a group without a key"


NEEDS_FOUND = codes.FOUND_UNKNOWN(
    'partition="primary" with seeds= that are not plain addresses needs found=: nobody can tell how many members are '
    "intended: give found= a majority of them on all, such as found=2 of 3, or the addresses of all of them as seeds="
)


def majority_of_seeds(config: Any) -> float:
    """The number of members that found a group by default; NaN: nobody can tell."""
    if config.partition != "primary" or not config.seeds:
        return 1
    named = [] if callable(config.seeds) else config.seeds.split(",")
    if not named or any(seed.strip().startswith(("file:", "env:")) for seed in named):
        return math.nan
    try:
        seeds = [split_seed(seed) for seed in named]
        return len({(ipaddress.ip_address(host), port) for host, port in seeds}) // 2 + 1
    except ValueError:  # a name
        return math.nan


def _transport(config: Any) -> None:
    if config.advertise:
        split_seed(config.advertise, "advertise")
    if config.transport == "multicast" and config.seeds:
        raise ConfigError('seeds= need transport="auto" or transport="unicast": by multicast nobody needs them')
    versions = set[int]()
    for seed in config.seeds.split(",") if config.seeds and not callable(config.seeds) else ():
        kind, _, name = seed.strip().partition(":")
        if kind not in ("file", "env"):
            versions.add(version_of(split_seed(seed)[0]))
        elif not name or "=" in name:
            raise ConfigError(f"seeds: {seed!r} names none; give file:PATH or env:NAME")
        else:
            versions.add(0)
    if versions == {10 - config.ip_version}:
        raise ConfigError(f"seeds={config.seeds!r}: {other_version(config.ip_version)}")
    if config.transport != "unicast":
        return
    for name, void in (("address", ""), ("unicast_port", 0), ("gossip_multicast", False)):
        if getattr(config, name) != void:
            text = f"{name}={getattr(config, name)!r}"
            raise ConfigError(f'{text} has no meaning with transport="unicast": leave the setting out')


def version_of(host: str) -> int:
    """The version of IP of an address; 0: a name."""
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


def other_version(ours: int) -> str:
    """The error about a host without an address of our version of IP."""
    return (
        f"this is of IPv{10 - ours}, and ip_version={ours}: set ip_version={10 - ours} on every member, or give "
        f"addresses of IPv{ours}"
    )


def split_seed(seed: str, setting: str = "seeds") -> tuple[str, int]:
    """Host and port of a seed, or of another ``setting``; port 0: it has none.

    Raises:
        ConfigError: it has neither of the forms ``host``, ``host:port``, ``[v6]:port``.
    """
    text = seed.strip()
    host, colon, port = text.rpartition(":") if text.count(":") == 1 or text.startswith("[") else (text, "", "")
    if text.startswith("[") and text.endswith("]"):
        host, colon, port = text, "", ""
    if host.startswith("["):
        host = host[1:-1] if host.endswith("]") else ""
    good = not colon or (port.isascii() and port.isdigit() and 0 < int(port) < 65536)
    if not host or any(each.isspace() or each in "[]/" for each in host) or not good:
        raise ConfigError(f"{setting}: {seed!r} is not a host; give host, host:port or [v6]:port")
    return host, int(port or 0)


def _multicast(text: str, ip_version: int) -> None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ConfigError(f"address={text!r} is not an IP address; give one like 239.1.2.3") from None
    if not address.is_multicast or address.version != ip_version:
        raise ConfigError(
            f"address={text} is not a multicast address of IPv{ip_version}: choose one in "
            f"{'224.0.0.0/4, such as 239.1.2.3' if ip_version == 4 else 'ff00::/8, such as ff15::1:2'}"
        )


def names(settings: Collection[str], known: Collection[str], where: str) -> None:
    """Refuses unknown names of settings.

    Raises:
        ConfigError: a name is unknown; the text says ``where`` it was given, and the known name most like it.
    """
    for name in settings:
        if name not in known:
            close = closest(name, list(known))
            hint = f"did you mean {close}?" if close else "the settings are listed in docs/config.md"
            raise ConfigError(f"{where}: there is no setting {name!r}; {hint}")


def closest(name: str, known: Sequence[str]) -> str:
    """The known name most like this one; "": none is similar."""
    import difflib  # loading takes 2 ms: only when there was a mistake

    return next(iter(difflib.get_close_matches(name, known, 1)), "")


def parsed(variable: str, kind: type, text: str) -> Any:
    """The text of an environment variable as a value of ``kind``.

    Raises:
        ConfigError: the text is not a value of that kind.
    """
    if kind is str:
        return text
    try:
        if kind is bool:
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        names = {int: "a whole number", float: "a number", bool: "true or false"}
        raise ConfigError(f"{variable}={text!r} must be {names[kind]}") from None
