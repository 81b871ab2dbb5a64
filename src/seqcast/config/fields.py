"""Every setting of a member: its unit, its effect, and the cost of a larger or a smaller value. ``docs/config.md`` is
made from this file.

A setting can be a keyword of ``seqcast.join``, a field of ``Config``, a line of a TOML file (``Config.from_toml``) or
an environment variable (``SEQCAST_INTERFACE=eth1``; ``SEQCAST_CONFIG`` names a TOML file). Keywords override the
environment, which overrides the file. An unknown name is refused everywhere, so that a misspelt one is noticed.

A default that is a formula is computed from the settings named there, and a default with several values depends on
``preset`` or ``latency``; a value that is given is used unchanged. All members of a group need the same
``heartbeat_s``, and so the same preset.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_type_hints

from seqcast.config import check, sources
from seqcast.errors import ConfigError
from seqcast.types import MEMBERS_MAX

if TYPE_CHECKING:
    from typing import Unpack

    from seqcast.config.keywords import Settings

PACKET_BYTES_MAX = 65_000
PACKET_BYTES_MIN = 512
PRESETS = ("lan", "fast", "wan")
PARTITIONS = ("merge", "primary")
TRANSPORTS = ("auto", "multicast", "unicast")
SPIN_S = 0.002
"""How long a thread spins with ``latency=True``: longer than the gap between two messages of a busy service."""
MEMBERSHIPS = ("coordinated", "token-ring")
RELIABILITIES = ("nak", "gossip")
CIPHERS = ("auto", "aegis-128l", "aegis-256", "xchacha20-poly1305", "aes-256-gcm")
CONGESTIONS = ("auto", "on", "off")
SLOWS = ("block", "exclude", "skip")
_MIB = 1 << 20
_DERIVED = float("nan")  # this object marks a default whose formula has not been computed yet

T = TypeVar("T")


def _knob(
    default: T,
    unit: str,
    text: str,
    *,
    low: float | None = None,
    high: float | None = None,
    among: tuple[T, ...] = (),
) -> T:
    """A setting: its default, its unit, its effect and cost, and its allowed values."""
    field: T = dataclasses.field(
        default=default, metadata={"unit": unit, "text": text, "low": low, "high": high, "among": among}
    )
    return field


def _derived(formula: str, compute: Callable[[Config], float], unit: str, text: str, *, low: float, high: float) -> Any:
    """A setting whose default is computed from others, which must be declared before it unless they are given; a
    formula that yields NaN: the setting must be given."""
    metadata = {"unit": unit, "text": text, "low": low, "high": high, "among": (), "formula": formula}
    return dataclasses.field(default=_DERIVED, metadata={**metadata, "compute": compute})


def _by_preset(unit: str, text: str, *, lan: float, wan: float, fast: float = 0.0, low: float, high: float) -> float:
    """A setting whose default depends on ``preset``; "fast" uses the value of "lan" if without its own."""
    values = {"lan": lan, "fast": fast or lan, "wan": wan}
    others = ", ".join(f"{name} {values[name]:g}" for name in PRESETS if values[name] != lan)
    field: float = _derived(f"{lan:g} ({others})", lambda config: values[config.preset], unit, text, low=low, high=high)
    return field


class _Marked:
    """Beside the settings: which of them are from a file or a variable, by name."""

    __slots__ = ("_marks",)
    _marks: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(_Marked):
    """The settings of one member. Times are seconds (``*_s``), sizes bytes.

    Raises:
        ConfigError: a value that is not allowed, or values that contradict each other; the text says which values are
            allowed.
    """

    # -- preset

    preset: str = _knob(
        "lan",
        "",
        "The network for which the times below are tuned. lan: one network. fast: machines that are not overloaded; "
        "failures are noticed in a fifth of the time, at the cost of five times as many heartbeats. wan: round trips "
        "of up to 100 ms.",
        among=PRESETS,
    )

    # -- where

    interface: str = _knob(
        "",
        "name or address",
        "The network interface that the group uses. Empty: the one that the routing table names for multicast if that "
        "one supports multicast, otherwise loopback. Of its IPv6 addresses, a lasting one is preferred to temporary or "
        "deprecated ones, and link-local ones come last; `fe80::1%eth0` names one of these. All members of a group "
        "must use interfaces on one network.",
    )
    ip_version: int = _knob(
        4, "", "Version of the Internet Protocol. Must be the same on every member.", among=(4, 6)
    )
    address: str = _knob(
        "",
        "multicast address",
        "The group's multicast address. Empty: derived from the cluster's name, 239.255.x.y or ff15::x:y. Two "
        "clusters that share an address are told apart by a tag in each datagram, but each receives and drops the "
        "other's datagrams. An IPv6 address may name the interface: ff02::1:2%eth0.",
    )
    port: int = _knob(
        47310,
        "UDP port",
        "UDP port of the data lane; the control lane uses the next port. Without multicast: the only port. Must be the "
        "same on every member.",
        low=1,
        high=65534,
    )
    transport: str = _knob(
        "auto",
        "",
        "How messages to the group travel. auto: the network copies each for all members by multicast, and a member "
        "that does not hear the multicasts of another one gets a copy by unicast from that one, as long as this lasts. "
        "multicast: by multicast alone, and a member that is not heard that way is excluded. unicast: each message is "
        "sent to every member separately, for networks that carry no multicast, such as most clouds, containers and "
        "VPNs; a sender transmits a copy for each other member. Members that multicast does not bring together find "
        "each other by `seeds`. Must be the same on every member.",
        among=TRANSPORTS,
    )
    seeds: str = _knob(
        "",
        "addresses",
        "With `transport` auto or unicast: addresses of possible other members, as a list, or separated by commas: "
        "`host`, `host:port`, `[v6]:port`; `file:PATH`, a file with one of these in each line; `env:NAME`, an "
        "environment variable with some; or a function that returns a list of these. All are looked up again and "
        "again. A name stands for all its addresses. Without a port, `port` and those of `port_range` are meant. The "
        "list need not be complete, and may name processes that do not run, or this one: members tell each other whom "
        "they know, and remember for an hour whom they lost.",
    )
    port_range: int = _knob(
        4,
        "ports",
        "Without multicast, or with `seeds`: a member whose `port` is taken, for example by another member on its "
        "host, takes the first free one of this many after `port`. Must be the same on every member.",
        low=0,
        high=1000,
    )
    discovery_refresh_s: float = _knob(
        5.0,
        "s",
        "With `seeds`: how often they are looked up again, as their names may get other addresses. Longer: fewer "
        "requests to name servers, or fewer calls of the function. Shorter: members that had no address yet are found "
        "sooner.",
        low=0.1,
        high=3600.0,
    )
    advertise: str = _knob(
        "",
        "host[:port]",
        "The address at which others reach this member, if addresses are translated on the way: the host, and the port "
        "unless that is unchanged. Empty: the address of its interface, or, if all members that are asked see this one "
        "on another host but with its port, that host. If the port is translated, too, others believe this setting "
        "only with `key`.",
    )
    unicast_port: int = _knob(
        0,
        "UDP port",
        "UDP port for datagrams to this member alone: requests, acknowledgements, answers, and in a group of two all "
        "messages. 0: a free one that the system chooses. A firewall must pass this port as well as the two for "
        "multicast, or none of these datagrams arrive. Members on one address need different ones. With `guard`, the "
        "TCP port has the same number.",
        low=0,
        high=65535,
    )
    ttl: int = _knob(
        1,
        "hops",
        "How many routers a multicast datagram may pass: 1 confines the datagram to the local network, 0 to this "
        "machine.",
        low=0,
        high=255,
    )
    dscp: int = _knob(
        0,
        "",
        "Traffic class (DSCP) of the datagrams sent, for networks that treat classes differently.",
        low=0,
        high=63,
    )

    # -- security

    key: str = _knob(
        "",
        "file",
        "The key file of the group, made by `seqcast keygen`: every datagram is encrypted and authenticated, and only "
        "processes with the file can join, read or send ([security](security.md)). Empty: no key, and whoever reaches "
        "the network can do all that. The same on every member. Needs PyNaCl.",
    )
    identity: str = _knob(
        "",
        "file",
        "With `key`: the file with the identity of this process, made by `seqcast keygen FILE --identity`. The "
        "identity proves to other members who this one is ([security](security.md#identities)). Empty: none.",
    )
    authorized: str = _knob(
        "",
        "file",
        "With `identity`: the file that lists the identities that may be members, and under which names. The group "
        "refuses a process without a line, and excludes a member whose line is removed. A changed file is read again. "
        "The same on every member.",
    )
    cipher: str = _knob(
        "auto",
        "",
        "With `key`: the cipher of views. `auto`: AEGIS-128L while all members have AES instructions, else "
        "XChaCha20-Poly1305, which is several times slower. Choose another only if a regulation demands one: AEGIS-256 "
        "and AES-256-GCM take longer than AEGIS-128L, and all but XChaCha20-Poly1305 need the instructions. The same "
        "on every member ([security](security.md#how-it-works)).",
        among=CIPHERS,
    )
    rekey_s: float = _knob(
        3600.0,
        "s",
        "With `key`: after this time the group replaces its view by one with the same members and a new secret. "
        "Longer: fewer views. Shorter: somebody who steals the memory of a member can read a shorter part of a "
        "recording.",
        low=0.2,
        high=1e8,
    )

    # -- deliveries to the application

    deliver_own: bool = _knob(
        True,
        "",
        "Whether this member receives its own multicasts too, in their place in the order. False saves that work.",
    )
    receive: bool = _knob(
        True,
        "",
        "False: this member only sends. Messages to it are dropped; views are still delivered.",
    )
    batch_bytes: int = _knob(
        256 << 10,
        "bytes",
        "Largest size of a delivered batch; the messages of one packet, and the packets of one message, stay together "
        "even if they are larger. Larger batches mean fewer calls; smaller ones stay in the processor's cache.",
        low=1024,
        high=1 << 30,
    )
    kept_bytes: int = _knob(
        128 * _MIB,
        "bytes",
        "How much a member keeps of the messages that arrive while its receiving thread waits in `send`, as in a loop "
        "that answers each message: the send may need room that only this thread can make by receiving. Beyond this, "
        "`send` raises SendWouldBlock if nothing moves for 3 × `suspect_s_max`, or if only this member holds up the "
        "send. Larger: more memory. Smaller: loops that send more than they receive fail sooner.",
        low=1024,
        high=1 << 40,
    )
    message_bytes_max: int = _knob(
        256 * _MIB,
        "bytes",
        "Largest message that is sent or accepted. In the worst case a receiver needs this much memory per sender. "
        "Must be the same on every member: a joiner with another value is refused.",
        low=1,
        high=1 << 30,
    )
    board: bool = _knob(
        True,
        "",
        "Whether this member shows its state to `seqcast probe`, `top` and `metrics`: counters, the view, its "
        "knowledge of the other members, and its last events. This board is a file of 128 KiB in memory, which only "
        "this user and root can read, in `$XDG_RUNTIME_DIR/seqcast` or else `/dev/shm/seqcast-<uid>`. Not on Windows.",
    )
    journal: str = _knob(
        "",
        "directory",
        "Directory in which delivered messages are journaled, for `seqcast audit`. Empty: no journal. Needs pyarrow.",
    )
    journal_payload: str = _knob(
        "full",
        "",
        "The journal's copy of each payload: the whole payload, or a 64-bit hash, which is enough for the audit.",
        among=("full", "hash"),
    )
    journal_required: bool = _knob(
        False,
        "",
        "Behaviour when the journal cannot be written, for example because the disk is full. False: the journal ends, "
        "which is logged once, and delivery continues; the counter `journal_rows_lost` tells how many rows are "
        "missing. True: receiving raises JournalWriteError and takes nothing more, so that the application receives "
        "nothing that is not journaled, except rows already on their way to the disk.",
    )
    journal_resume: bool = _knob(
        False,
        "",
        "Whether a journal that could not be written continues once that is possible, for example because the disk has "
        "room again. The rows between are lost (`journal_rows_lost`), and the journal records this gap. Not with "
        "journal_required.",
    )
    journal_segment_bytes: int = _knob(
        256 * _MIB,
        "bytes",
        "Size at which the journal's live file is finished and rolled to Parquet, which is smaller and can be read by "
        "column. Small files are rolled together.",
        low=1 << 16,
        high=1 << 40,
    )
    journal_segment_s: float = _knob(
        3600.0,
        "s",
        "Age at which the journal's live file is finished. A file with fewer than 65,536 rows is rolled together with "
        "the next ones, any other by itself.",
        low=0.01,
        high=1e9,
    )
    journal_keep_bytes: int = _knob(
        0,
        "bytes",
        "Retention: when a journal's rolled files together exceed this size, the oldest are removed. 0: no limit.",
        low=0,
        high=1 << 60,
    )
    journal_keep_s: float = _knob(
        0.0,
        "s",
        "Retention: rolled files whose rows are all older than this are removed. 0: no limit.",
        low=0,
        high=1e10,
    )

    # -- joining and leaving

    join_timeout_s: float = _knob(
        10.0, "s", "How long `join` waits for the first view before raising JoinTimeout.", low=0.0, high=1e6
    )
    leave_timeout_s: float = _knob(
        10.0,
        "s",
        "How long `leave` waits until the others have received everything; after that the member leaves as if it had "
        "crashed.",
        low=0.0,
        high=1e6,
    )
    discovery_s: float = _by_preset(
        "s",
        "How long a joiner looks for a group before forming one. Longer: the first member starts more slowly. Shorter: "
        "two members that start at the same time are more likely to form two groups.",
        lan=0.15,
        wan=1.0,
        low=0.01,
        high=60.0,
    )
    found: int = _derived(
        '1; with `partition="primary"` and `seeds`, a majority of these',
        check.majority_of_seeds,
        "members",
        "How many processes that join, this one included, must hear each other before they found a group; until then "
        'they wait. With `partition="primary"`, set this on all intended members to a majority of them: otherwise a '
        "process that restarts while cut off founds a second group; a process with another number is refused. Seeds "
        "that are not addresses do not say how many members are intended, so `found` must be given with them. 0: this "
        "process founds no group, and joins a running one, whatever `found` its members have.",
        low=0,
        high=MEMBERS_MAX,
    )
    stable: str = _knob(
        "",
        "file",
        'With `partition="primary"`: the file in which this member keeps its votes, so that these outlast its process '
        "and its machine. Members that start again then complete a majority, and fences grow even if all members had "
        "ended ([durable groups](guide.md#durable-groups)). A replica keeps its state in another file, whose name ends "
        "in `.log`. Each member has a file of its own. Empty: votes end with the process, and if most members end at "
        "once, an operator must unblock the others.",
    )
    observer: bool = _knob(
        False,
        "",
        "This member receives all messages in their order, and takes part in nothing else: an observer founds no "
        "group, coordinates none, orders no messages, has no vote in a primary partition, does not count for `found`, "
        "and sends to single members only. Senders wait for an observer as for any receiver (`slow`). Observers are "
        "`Excluded` when no other members are left.",
    )
    join_s_min: float = _by_preset(
        "s",
        "Pause between a joiner's first two JOINs.",
        lan=0.015,
        wan=0.1,
        low=0.001,
        high=60.0,
    )
    join_s_max: float = _by_preset(
        "s",
        "Longest pause between two JOINs; the pause doubles up to this.",
        lan=0.2,
        wan=1.0,
        low=0.001,
        high=60.0,
    )
    bundle_s: float = _knob(
        0.005,
        "s",
        "Requests that arrive within this time after the first one are settled by the same view; a suspected "
        "member is excluded at once. Longer: fewer views when many members start together. Shorter: quicker joins.",
        low=0.0,
        high=10.0,
    )

    # -- state of a joiner

    state_timeout_s: float = _knob(
        30.0,
        "s",
        "A joiner that receives no part of the state for this long gives up on its provider and asks another member. "
        "Must be longer than the provider's application ever leaves messages waiting; `get_state` may take longer. A "
        "joiner whose `set_state` reads nothing for this long leaves the group.",
        low=0.01,
        high=1e6,
    )
    state_memory_bytes: int = _knob(
        256 * _MIB,
        "bytes",
        "How much of a state transfer each side keeps in memory; the rest goes to a temporary file.",
        low=0,
        high=1 << 40,
    )
    state_backlog_bytes: int = _knob(
        128 * _MIB,
        "bytes",
        "How many bytes of the group's messages the joiner keeps during a state transfer; beyond this the senders get "
        "no credit and wait.",
        low=1024,
        high=1 << 40,
    )

    # -- failure and view changes

    heartbeat_s: float = _by_preset(
        "s",
        "Interval between two heartbeats of a member. Shorter: failures are detected sooner; each heartbeat costs one"
        " datagram to all members.",
        lan=0.05,
        fast=0.01,
        wan=0.2,
        low=0.001,
        high=60.0,
    )
    suspect_s: float = _derived(
        "8 × heartbeat_s",
        lambda config: 8 * config.heartbeat_s,
        "s",
        "A member that has been silent for this long is suspected and excluded, unless it answers a ping or is heard "
        "by another member. A member whose port is closed, because its process was killed, is excluded after 2 to 3 "
        "heartbeats. Must be at least 4 heartbeats. Shorter: quicker recovery. Longer: a machine that pauses is not "
        "excluded. Busy Python code does not delay heartbeats.",
        low=0.01,
        high=3600.0,
    )
    suspect_s_max: float = _derived(
        "4 × suspect_s",
        lambda config: 4 * config.suspect_s,
        "s",
        "A member that is itself late, or that others do not hear, trusts its own judgement less: its suspect_s grows"
        " step by step up to this value, and falls again while all is well. Longer: fewer false suspicions on "
        "overloaded machines.",
        low=0.01,
        high=3600.0,
    )
    slow: str = _knob(
        "block",
        "",
        "Treatment of a receiver that takes messages much more slowly than most others. block: senders wait for it, "
        "and the log names it. exclude: once the receiver has held a sender at its limit for `slow_s`, and took less "
        "than a sixteenth of what most members could take, the group excludes it: the receiver gets everything that "
        'was agreed on until then, and then `Excluded` with the cause "slow". One member at a time; never if half of '
        "the sender and the members that receive are as slow; and with "
        '`partition="primary"` not unless the others are a majority. skip: a receiver for which messages wait for '
        "`slow_s`, while none do for most members, stays, and "
        "from then on misses the messages that its application does not take in time; `Skipped` stands in their place, "
        'and no sender waits; only with `order="fifo"`. exclude and skip have no effect in a group of two, nor if only '
        "one member besides the sender receives. Must be the same on every member.",
        among=SLOWS,
    )
    slow_s: float = _by_preset(
        "s",
        'With `slow="exclude"` and `slow="skip"`: for how long a receiver may hold a sender at its limit. Longer than '
        "the pauses of a healthy application, such as for garbage collection. Must be the same on every member.",
        lan=10.0,
        wan=30.0,
        low=0.1,
        high=3600.0,
    )
    name_taken_s: float = _derived(
        "suspect_s_max",
        lambda config: config.suspect_s_max,
        "s",
        "How long a joiner waits when its name is in the view: its earlier incarnation may have crashed without being"
        " suspected yet. Must be longer than suspect_s.",
        low=0.0,
        high=3600.0,
    )
    lease_s: float = _by_preset(
        "s",
        "When the member that runs a view change has been silent for this long, the others give up on that member and "
        "the next one starts again. Longer than the longest pause of Python code that should not cost an attempt.",
        lan=1.0,
        wan=5.0,
        low=0.05,
        high=600.0,
    )
    flush_deadline_s: float = _by_preset(
        "s",
        "A member whose engine is alive but that has not taken part in a view change for this long is excluded.",
        lan=5.0,
        wan=20.0,
        low=0.1,
        high=3600.0,
    )
    block_deadline_s: float = _knob(
        2.0,
        "s",
        "A view change waits this long for a block callback (`on_block`); then the change continues, and the "
        "callback's owner is warned. Longer: slow callbacks can finish their transactions. Shorter: a callback that "
        "hangs delays the group less. Must be shorter than flush_deadline_s.",
        low=0.001,
        high=3600.0,
    )
    block_events: bool = _knob(
        False,
        "",
        "Whether `events` yields Blocked and Unblocked around each period in which nothing can be sent to the group. "
        "They are yielded in any case on a member with a block callback, and on every member of a minority "
        "(`partition`).",
    )
    coordinator_events: bool = _knob(
        False,
        "",
        "Whether `events` yields CoordinatorChanged when a view's coordinator is not that of the view before, and "
        "when, to this member's knowledge, another one acts in the coordinator's place.",
    )
    send_while_blocked: str = _knob(
        "wait",
        "",
        "Behaviour of a send to the group while a view change or a pause blocks it. wait: the call returns when the "
        "message has been sent. queue: the call returns at once, and the message is sent in the next view, in order "
        "and before anything newer. `Lost` reports the messages still queued when this member leaves or is excluded. "
        "Unicasts are neither blocked nor queued.",
        among=("wait", "queue"),
    )
    blocked_queue_bytes: int = _knob(
        _MIB,
        "bytes",
        "Limit of that queue, including a few bytes per message. When the queue is full, senders wait. Larger: senders "
        "do not notice longer view changes. Smaller: less memory, and less to lose with this member.",
        low=1024,
        high=1 << 30,
    )
    pause_s_max: float = _knob(
        30.0,
        "s",
        "A pause of the group (`suspend`) that lasts longer than this ends by itself, and `resume` reports that. A "
        "pause whose owner falls silent ends after lease_s.",
        low=0.001,
        high=86400.0,
    )
    partition: str = _knob(
        "merge",
        "",
        "Behaviour when the group is partitioned. merge: each side continues, and they merge when they hear each other "
        "again. primary: only the side with a majority of the last view continues (of an even number, the half with "
        "its first member), so there is never more than one group; a minority is blocked, and told so by Blocked. When "
        "the two meet again, the minority's members are excluded and may rejoin. If the majority is lost for good, use "
        "`seqcast unblock`. Must be the same on every member: a joiner with another value is refused.",
        among=PARTITIONS,
    )
    membership: str = _knob(
        "coordinated",
        "",
        "How members agree on who is in the next view. coordinated: the first member of the view that is not suspected "
        "closes the view, from its own knowledge. token-ring: before that, a token goes round the members, collects "
        "from each the joiners and leavers that it knows, and all agree; messages flow meanwhile, and a member that "
        "hangs delays the token instead of everyone's messages. Costs one trip round the ring and two round trips for "
        "each view change. Must be the same on every member: a joiner with another value is refused.",
        among=MEMBERSHIPS,
    )
    guard: bool = _knob(
        False,
        "",
        "Every two members hold a TCP connection, on the number of their UDP port; when this closes and cannot be "
        "opened again, the other process is gone. This reports a killed process at once even if a firewall drops the "
        "ICMP messages that would otherwise report its closed port. Costs one connection per member, and a thread.",
    )
    flush_unicasts: bool = _knob(
        False,
        "",
        "A view change waits until this member's earlier unicasts have arrived, so that every message sent in a view "
        "is received before the view ends. Must be the same on every member. Costs the delay of an acknowledgement "
        "when unicasts are in flight. A member that leaves does this in any case. With partition='primary', a view "
        "that is proposed again (because the earlier attempt may have succeeded) does not wait for members that can no "
        "longer be reached.",
    )
    safe: bool = _knob(
        False,
        "",
        "A message to the group is delivered only when every member of the view has it in order. So all members, even "
        "one that crashes or is cut off, deliver such messages in the group's order, and the survivors deliver every "
        "message that a lost member delivered. Messages undecided when a member is lost are delivered at the view "
        "change, as `transitional`, to the members of the next view. Must be the same on every member. Needs "
        "reliability='nak'. Costs latency: a message waits until the slowest member has acknowledged and the sender "
        "has announced that, about half of ack_delay_s and two more hops; while a member is silent, nothing is "
        "delivered until that member is heard again or excluded.",
    )
    back_off_s: float = _derived(
        "1.2 × lease_s",
        lambda config: 1.2 * config.lease_s,
        "s",
        "How long a member whose attempt lost to a higher one waits before starting another. Must be longer than "
        "lease_s.",
        low=0.05,
        high=600.0,
    )
    leave_deadline_s: float = _knob(
        10.0, "s", "How long a leaver waits for the view without itself before giving up.", low=0.1, high=3600.0
    )
    linger_s: float = _knob(
        1.0,
        "s",
        "How long, at most, a coordinator that has left serves the closing view to members that still lack it.",
        low=0.0,
        high=60.0,
    )

    # -- windows and memory

    packet_bytes: int = _knob(
        0,
        "bytes",
        "Payload of a full datagram, at most. 0: derived from the interface's MTU. A view uses the smallest value of "
        "its members, or less: up to 9216 bytes, members measure how much the paths between them carry.",
        low=0,
        high=PACKET_BYTES_MAX,
    )
    rcvbuf: int = _knob(
        6 * _MIB,
        "bytes",
        "Receive buffer requested from the kernel for each socket, and twice as much for that of unicasts. The windows "
        "of all senders together stay below this size, so a small buffer slows every sender. Linux limits the request "
        "to net.core.rmem_max and grants twice the value.",
        low=4096,
        high=1 << 30,
    )
    sndbuf: int = _knob(
        2 * _MIB, "bytes", "Send buffer requested from the kernel. Smaller: less data queues in front of a slow link.",
        low=4096, high=1 << 30,
    )  # fmt: skip
    window_bytes: int = _knob(
        8 * _MIB,
        "bytes",
        "Largest amount a sender may have in flight, not yet taken by receivers (as socket buffers count); the "
        "receivers' buffers may allow less. Larger: fewer waits. Smaller: less memory and shorter queues.",
        low=2048,
        high=1 << 30,
    )
    ring_bytes: int = _knob(
        8 * _MIB,
        "bytes",
        "Size of the send ring, which keeps packets until every member has them. The ring limits the window.",
        low=65536,
        high=1 << 30,
    )
    unicast_bytes: int = _knob(
        _MIB,
        "bytes",
        "Send ring of each unicast stream, allocated at the first send to that member; also how many bytes that a "
        "member sends to itself may wait to be received.",
        low=65536,
        high=1 << 30,
    )
    ring_packets: int = _knob(
        8192,
        "packets",
        "Number of packets that a ring holds, a power of two. Each costs 24 bytes per sender.",
        low=64,
        high=1 << 20,
    )
    slabs_max: int = _knob(
        1536,
        "64 KiB",
        "Limit of the memory for received packets. The windows of all senders together stay below an eighth of it, "
        "because small packets can keep large buffers in use: a large ``rcvbuf`` helps only with more slabs. More "
        "than eight times the socket's buffer brings nothing.",
        low=32,
        high=1 << 16,
    )
    control_bytes_max: int = _knob(
        4 * _MIB, "bytes", "Limit of the queues of control frames, in each direction.", low=65536, high=1 << 30
    )

    # -- recovery

    nak_delay_s: float = _by_preset(
        "s",
        "A gap younger than this may be reordering and is not requested yet. Shorter: quicker repair. Longer: no "
        "needless retransmissions on a network that reorders.",
        lan=200e-6,
        wan=0.005,
        low=0.0,
        high=10.0,
    )
    nak_backoff_s_min: float = _by_preset(
        "s",
        "Pause before the second NAK for a range; then the pause doubles, with jitter.",
        lan=0.002,
        wan=0.2,
        low=1e-5,
        high=10.0,
    )
    nak_backoff_s_max: float = _by_preset(
        "s",
        "Longest pause between two NAKs for a range.",
        lan=0.03,
        wan=1.0,
        low=1e-5,
        high=60.0,
    )
    retransmit_hold_s: float = _by_preset(
        "s",
        "A packet is not retransmitted again within this time, however many requests come.",
        lan=500e-6,
        wan=0.1,
        low=0.0,
        high=10.0,
    )
    retransmit_bytes_per_s: int = _knob(
        500_000_000,
        "bytes/s",
        "Largest rate of retransmission. Higher: quicker repair. Lower: repair cannot crowd out new data.",
        low=10_000,
        high=1 << 40,
    )
    congestion: str = _knob(
        "auto",
        "",
        "Whether this member sends no more than the paths to the others carry, as TCP does: packets that are lost in "
        "numbers, or that wait in queues on the way, slow this member down for a time. auto: with the preset wan, and "
        "as long as messages go to any member by unicast; a group that is reached by multicast alone is bounded by its "
        'receivers only. on: always. off: never. Not with `reliability="gossip"`. On a shared network, a group without '
        "this may crowd out others, and itself.",
        among=CONGESTIONS,
    )
    send_bytes_per_s: int = _knob(
        0,
        "bytes/s",
        "Largest rate at which this member sends packets: messages, those that it orders for others, the state of "
        "joiners, and repeats, each with all its copies (without multicast, one for every member). Senders wait. "
        "Heartbeats, acknowledgements and control frames are not counted. 0: no bound. A bound keeps the rest of a "
        "link for others, and short bursts out of the queues on the way.",
        low=0,
        high=1 << 40,
    )
    ack_delay_s: float = _by_preset(
        "s",
        "An acknowledgement, which is also the vote for stability, is sent at the latest this long after something was "
        "consumed and nothing followed; the receivers of a multicast choose different moments in the second half of "
        "this time. Groups of more than nine members take an eighth of this time for each other member. While packets "
        "keep coming, each receiver waits at most this long for each receiver. Longer: fewer datagrams for a single "
        "request. Shorter: the sender's memory is freed sooner.",
        lan=0.005,
        wan=0.02,
        low=1e-5,
        high=1.0,
    )
    ack_bytes: int = _knob(
        0,
        "bytes",
        "An acknowledgement is sent at once when this much was consumed, as receive buffers count. 0: a quarter of the "
        "stream's window, or up to three quarters if many receive, so that all receivers together send about one for "
        "two packets. At most half a window. Larger: fewer datagrams. Smaller: senders learn sooner which packets are "
        "stable, get credit sooner and need less memory.",
        low=0,
        high=1 << 30,
    )
    ack_packets: int = _knob(
        0,
        "packets",
        "The same as a number of packets. 0: an eighth of ring_packets. Never more than half of ring_packets.",
        low=0,
        high=1 << 20,
    )
    probe_s_min: float = _by_preset(
        "s",
        "After this long without progress a sender announces its highest seqno (tail probe). Groups of more than nine "
        "members take an eighth of this time for each other member, as for ack_delay_s, which is shorter so that an "
        "acknowledgement in flight makes the probe unnecessary.",
        lan=0.008,
        wan=0.3,
        low=1e-4,
        high=10.0,
    )
    probe_s_max: float = _by_preset(
        "s",
        "Longest pause between two tail probes; the pause doubles up to this.",
        lan=0.1,
        wan=1.0,
        low=1e-4,
        high=60.0,
    )

    reliability: str = _knob(
        "nak",
        "",
        "How messages to the group become complete. nak: a receiver asks the sender for missing packets, and every "
        "receiver acknowledges. gossip: members tell each other now and then which packets they have, and ask whoever "
        "told them; without acknowledgements, the traffic of a member does not grow with the group. Repair, credit and "
        "the release of memory wait for gossips, and Python sends them: throughput is lower, and a member whose Python "
        "is busy holds up senders. The guarantees are the same. Must be the same on every member: a joiner with "
        "another value is refused.",
        among=RELIABILITIES,
    )
    gossip_average_s: float = _knob(
        0.005,
        "s",
        "With reliability='gossip': a member receives one gossip in this time on average, however large the group is. "
        "Shorter: quicker repair and more throughput. Longer: less traffic and processor time.",
        low=1e-4,
        high=3600.0,
    )
    gossip_dynamic: bool = _knob(
        True,
        "",
        "The time between two gossips of a member is drawn at random, around gossip_average_s times the number of "
        "members times the number of copies of a gossip that a member receives. False: the time is gossip_interval_s, "
        "and traffic grows with the group.",
    )
    gossip_interval_s: float = _knob(
        0.05,
        "s",
        "With gossip_dynamic=False: a member begins one gossip in this time.",
        low=1e-3,
        high=3600.0,
    )
    gossip_subset_percent: int = _knob(
        30,
        "%",
        "A gossip is passed on to at most this part of the members that have not seen it, and to no more than are "
        "needed to reach everyone (the natural logarithm of the group's size, and one). More: gossips arrive sooner; "
        "fewer: less traffic.",
        low=1,
        high=100,
    )
    gossip_multicast: bool = _knob(
        False,
        "",
        "A gossip is sent once, by multicast, instead of being passed on from member to member: the least traffic if "
        "multicast works well.",
    )

    # -- input and output

    gso: bool = _knob(
        True,
        "",
        "Send runs of datagrams in one call with UDP_SEGMENT, if the kernel supports that. Set this to False only to "
        "rule out UDP_SEGMENT as the cause of a problem.",
    )
    gro: bool = _knob(
        True,
        "",
        "Receive runs of datagrams in one buffer (UDP_GRO), if the kernel supports that and packets are below 32 KiB.",
    )
    mmsg: bool = _knob(True, "", "Send and receive several datagrams in one call, if the kernel supports that.")
    send_batch: int = _knob(
        16, "calls", "Runs of datagrams passed to the kernel in one call. Larger: fewer calls.", low=1, high=64
    )
    receive_batch: int = _knob(
        16,
        "buffers",
        "Buffers of 64 KiB filled by one call. Larger: fewer calls. Smaller: less memory, warmer caches.",
        low=1,
        high=64,
    )
    latency: bool = _knob(
        False,
        "",
        "For services that must answer soon rather than send much: sets the defaults of busy_poll_s, flush_s_min, "
        "standby_s and nap_s. Costs up to one core for each process, which spins while messages keep coming, and "
        "twice the CPU for each message of a stream of single sends; give each process a core that nothing else uses "
        "(docs/latency.md).",
    )
    busy_poll_s: float = _derived(
        f"0 (latency: {SPIN_S:g})",
        lambda config: SPIN_S if config.latency else 0.0,
        "s",
        "Each wait of a thread for datagrams begins with spinning for this long. A member that answers polls briefly "
        "even at 0 (docs/latency.md); this setting is for receivers that do not answer, and spares each hop a wake-up "
        "of the thread. Costs up to a core per spinning thread: use this only if cores are idle.",
        low=0.0,
        high=1.0,
    )
    io_cores: str = _knob(
        "",
        "cores",
        "Processor cores on which the I/O thread runs, as `2,3` or `2-5`; empty: all that the process may use. The "
        "thread keeps its caches, and shares no core with the application if that is kept off these cores (taskset). "
        "The system knows the thread by the name `seqcast-io-…`; `seqcast top` shows its cores. Linux only.",
    )
    control_cores: str = _knob(
        "",
        "cores",
        "The same for the control thread, which handles joins, view changes and merges. This thread needs little time, "
        "but without delay: a core that spins is a bad choice.",
    )
    flush_bytes: int = _knob(
        256 << 10,
        "bytes",
        "A sender transmits when this much is packed. Larger: fewer calls. Smaller: less delay within a stream.",
        low=1,
        high=16 * _MIB,
    )
    flush_s_min: float = _derived(
        "0.0002 (latency: 2e-05)",
        lambda config: 20e-6 if config.latency else 200e-6,
        "s",
        "Messages that are sent one by one are transmitted at once, but on average only one packet in this time: after "
        "a pause up to 8 in a row, then messages gather for at most this long. Never delayed: an answer to a message "
        "that the same thread has received, and messages that a thread has sent before waiting for one. The last "
        "packet of an array is seldom full: while a quarter of the window is on the way, this packet waits for the "
        "next array, at most five times this long (or flush_s_max, if that is longer). Longer: more messages per "
        "second from a stream of single sends. Shorter: less delay within the stream. 0: each message is transmitted "
        "at once.",
        low=0.0,
        high=1.0,
    )
    flush_s_max: float = _knob(
        50e-6,
        "s",
        "Packed data that nothing followed is transmitted after this time, or when flush_s_min allows, if that is "
        "later.",
        low=1e-6,
        high=1.0,
    )
    standby_s: float = _derived(
        "0.002 (latency: 0.01)",
        lambda config: 0.01 if config.latency else 0.002,
        "s",
        "The I/O thread takes over when no caller has driven the sockets for this long. Until then the thread wakes "
        "once in this time, and each time delays the message that a caller on the same core waits for. Shorter: timers "
        "and acknowledgements are more punctual while the application computes. Longer: fewer wake-ups. Under load, "
        "while callers drive often, the thread wakes up to four times less often, once in 8 ms at most, and may take "
        "over that much later; settings above 4 ms stay as they are.",
        low=1e-4,
        high=0.1,
    )
    nap_s: float = _derived(
        "0.0005 (latency: 0)",
        lambda config: 0.0 if config.latency else 500e-6,
        "s",
        "A receiver under load lets datagrams accumulate, until there are about 768 KiB or a quarter of a window, for "
        "at most this long since the last receipt: the receiver wakes less often and delivers larger batches, later. "
        "If more threads want to run than the machine has cores, each gets one late, and a thread that only receives "
        "naps longer: four times its lateness, at most eight times this long. 0: never.",
        low=0.0,
        high=0.01,
    )

    def __post_init__(self) -> None:
        hints = _hints()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is _DERIVED:
                value = _computed(field, self)
                if value != value:  # there is no formula for this case
                    raise ConfigError(check.NEEDS_FOUND)
            if value is None and field.name in check.OF_KEY:
                raise ConfigError(check.no_file(field.name, "None"))
            if hints[field.name] is str and (value is None or isinstance(value, Path)):
                value = str(value or "")
            if field.name == "seeds" and isinstance(value, list | tuple):
                value = ",".join(map(str, value))
            if field.name == "seeds" and callable(value):
                object.__setattr__(self, field.name, value)
                continue
            object.__setattr__(self, field.name, check.field_value(field, hints[field.name], value))
        if not self.interface:
            object.__setattr__(self, "interface", self.address.partition("%")[2])
        check.clashes(self)

    # -- from elsewhere

    def replace(self, **settings: Unpack[Settings]) -> Self:
        """A copy with other values. Settings that have the value of their formula are computed again in the copy.

        Raises:
            ConfigError: an unknown or wrong setting.
        """
        check.names(settings, _hints(), "join")
        kept = {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != _computed(field, self)
        }
        changed = type(self)(**{**kept, **settings})
        return changed._mark({name: mark for name, mark in self._marked().items() if name not in settings})

    def for_guest(self, **settings: Unpack[Settings]) -> Self:
        """``replace``, for a process outside the intended members, such as a command. Cut off from them, such a process
        would found a second primary group, so none is founded, unless ``settings`` has ``found``. It leaves alone the
        file of ``stable``, which belongs to the member whose environment it shares.

        Raises:
            ConfigError: an unknown or wrong setting.
        """
        primary = settings.get("partition", self.partition) == "primary"
        chosen: dict[str, Any] = {"stable": "", **({"found": 0} if primary else {}), **settings}
        return self.replace(**chosen)

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """The settings in a TOML file: those in its table ``[seqcast]`` if present, else those at its top level.

        Raises:
            ConfigError: the file cannot be read or is not TOML, or a setting there is unknown or not allowed.
        """
        table = sources.toml_table(path)
        check.names(table, _hints(), str(path))
        return cls(**table)._mark(dict.fromkeys(table, str(path)))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **settings: Unpack[Settings]) -> Self:
        """The settings in the environment: ``SEQCAST_CONFIG`` names a TOML file, ``SEQCAST_<SETTING>`` overrides one,
        and a keyword both. All are checked together.

        Any other variable that begins with ``SEQCAST_`` is refused, like an unknown keyword: most likely a setting is
        misspelt, and ignoring that would lead into a group other than the intended one. Only the variables that
        Kubernetes sets for a service named ``seqcast...`` (``SEQCAST_SERVICE_HOST``, ``SEQCAST_PORT=tcp://...``) are
        left alone, with a warning in the log.

        Raises:
            ConfigError: a value that is not allowed, a variable that names no setting, or an empty value for the key
                file, so that nobody joins without a key by mistake.
        """
        path, variables = sources.variables(os.environ if environment is None else environment, _hints())
        table = sources.toml_table(path) if path else {}
        check.names(table, _hints(), str(path))
        check.names(settings, _hints(), "join")
        marks = dict.fromkeys(table, str(path))
        marks |= {name: f"{sources.ENVIRONMENT_PREFIX}{name.upper()}" for name in variables}
        given = {**table, **variables}
        for name in check.OF_KEY:
            if variables.get(name) == "":
                raise ConfigError(check.no_file(marks[name], "empty"))
            if settings.get(name) == "" and given.get(name):
                raise ConfigError(check.no_file(name, f"empty, though {marks[name]} names one"))
        chosen = cls(**{**given, **settings})
        return chosen._mark({name: mark for name, mark in marks.items() if name not in settings})

    @classmethod
    def for_command(cls, **settings: Unpack[Settings]) -> Self:
        """``from_environment``, for a command, which leaves alone the file of ``stable``: that of the member whose
        environment the command shares.

        Raises:
            ConfigError: as for ``from_environment``.
        """
        settings["stable"] = ""
        return cls.from_environment(**settings)

    def origins(self) -> dict[str, str]:
        """By name: which file, or which variable, a setting is from; "call": a keyword. Those that have their default,
        or the value of their formula, are left out, unless a file or a variable names them."""
        marks = self._marked()
        return {
            field.name: marks.get(field.name, "call")
            for field in dataclasses.fields(self)
            if field.name in marks or getattr(self, field.name) != _usual(field, self)
        }

    def _mark(self, marks: dict[str, str]) -> Self:
        object.__setattr__(self, "_marks", marks)
        return self

    def _marked(self) -> dict[str, str]:
        return getattr(self, "_marks", {})


def _explained() -> str:
    """Every setting, for help(), as in the tables of docs/config.md."""
    lines = []
    for field in dataclasses.fields(Config):
        default = field.metadata.get("formula") or repr(field.default)
        about = f"default {default}" + (f"; {field.metadata['unit']}" if field.metadata["unit"] else "")
        lines.append(f"        {field.name}: {field.metadata['text']} ({about})\n")
    return "    Args:\n" + "".join(lines)


if Config.__doc__:  # there is none under -OO
    Config.__doc__ = Config.__doc__.replace("    Raises:", f"{_explained()}\n    Raises:")


@functools.cache
def _hints() -> dict[str, Any]:
    """The settings' types, cached: evaluating the annotations takes half a millisecond, which would slow each join."""
    hints = get_type_hints(Config)
    return {field.name: hints[field.name] for field in dataclasses.fields(Config)}


def _usual(field: dataclasses.Field[Any], config: Config) -> object:
    return field.default if field.default is not _DERIVED else _computed(field, config)


def _computed(field: dataclasses.Field[Any], config: Config) -> float | None:
    """The value of a setting's formula; None: no formula."""
    compute = field.metadata.get("compute")
    return min(round(compute(config), 9), field.metadata["high"]) if compute else None
