"""Every setting of a member, with its unit and both sides of its trade. ``docs/config.md`` is made from this file.

A setting is given as a keyword of ``seqcast.join``, in a ``Config``, in a TOML file (``Config.from_toml``) or in the
environment (``SEQCAST_INTERFACE=eth1``; ``SEQCAST_CONFIG`` names a TOML file). Keywords win over the environment, and
that over the file. An unknown name is refused in all of them, so that a misspelt one is not passed over.

A default that is a formula follows the settings that it names, and one with several values follows ``preset``; what is
given is taken as it is. The members of a group have the same ``heartbeat_s``, and so the same preset.
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

if TYPE_CHECKING:
    from typing import Unpack

    from seqcast.settings import Settings

PACKET_BYTES_MAX = 65_000
PRESETS = ("lan", "fast", "wan")
PARTITIONS = ("merge", "primary")
_MIB = 1 << 20
_DERIVED = float("nan")  # this very object stands for "by formula" until it is computed

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
    """A setting: its default, its unit, what it does and costs, and what it may be."""
    field: T = dataclasses.field(
        default=default, metadata={"unit": unit, "text": text, "low": low, "high": high, "among": among}
    )
    return field


def _derived(
    formula: str, compute: Callable[[Config], float], unit: str, text: str, *, low: float, high: float
) -> float:
    """A setting whose default follows from others, which stand before it."""
    metadata = {"unit": unit, "text": text, "low": low, "high": high, "among": (), "formula": formula}
    field: float = dataclasses.field(default=_DERIVED, metadata={**metadata, "compute": compute})
    return field


def _by_preset(unit: str, text: str, *, lan: float, wan: float, fast: float = 0.0, low: float, high: float) -> float:
    """A setting whose default follows from ``preset``; "fast" has that of "lan" where it has none of its own."""
    values = {"lan": lan, "fast": fast or lan, "wan": wan}
    others = ", ".join(f"{name} {values[name]:g}" for name in PRESETS if values[name] != lan)
    return _derived(f"{lan:g} ({others})", lambda config: values[config.preset], unit, text, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of one member. Times are seconds (``*_s``), sizes bytes.

    Raises:
        ConfigError: a value that cannot be right, or values that clash; the text says what is right.
    """

    # -- preset

    preset: str = _knob(
        "lan",
        "",
        "What the times below are made for. lan: one network. fast: machines that are not overloaded; failures are "
        "noticed in a fifth of the time, for five times as many heartbeats. wan: round trips of up to 100 ms.",
        among=PRESETS,
    )

    # -- where

    interface: str = _knob(
        "",
        "name or address",
        "Network interface that the group uses. Empty: the one that the routes give multicast, if it has multicast, "
        "else loopback. All members of a group must use interfaces of one network.",
    )
    ip_version: int = _knob(4, "", "Version of the Internet Protocol; the same at all members.", among=(4, 6))
    address: str = _knob(
        "",
        "multicast address",
        "Address of the group. Empty: made from the cluster's name, 239.255.x.y or ff15::x:y. Two clusters that share "
        "an address are kept apart by their tag, at the cost of dropping each other's datagrams one by one.",
    )
    port: int = _knob(
        47310,
        "UDP port",
        "Port of the data lane; the control lane is on the port after it. The same at all members.",
        low=1,
        high=65534,
    )
    ttl: int = _knob(
        1, "hops", "How many routers a multicast may pass; 1 stays in the network, 0 on this machine.", low=0, high=255
    )
    dscp: int = _knob(0, "", "Traffic class of what is sent (DSCP), for networks that look at it.", low=0, high=63)

    # -- what the application gets

    deliver_own: bool = _knob(
        True,
        "",
        "A member is delivered its own multicasts too, in their place in the order (DIG-08). False saves that work.",
    )
    receive: bool = _knob(
        True, "", "False: this member only sends; what it would be delivered is dropped, views are not."
    )
    batch_bytes: int = _knob(
        _MIB,
        "bytes",
        "Most that one delivered batch holds (a single message may be larger). Larger: fewer calls; smaller: a batch "
        "stays in the processor's cache.",
        low=1024,
        high=1 << 30,
    )
    message_bytes_max: int = _knob(
        256 * _MIB,
        "bytes",
        "Largest message that is sent or accepted. A receiver needs so much memory per sender at worst. The same at "
        "all members: a joiner with another is refused.",
        low=1,
        high=1 << 30,
    )
    journal: str = _knob(
        "", "directory", "Where to journal what is delivered, for `seqcast audit`. Empty: no journal. Needs pyarrow."
    )
    journal_payload: str = _knob(
        "full",
        "",
        "What the journal keeps of payloads: all of it, or a 64-bit hash, which is enough for the audit.",
        among=("full", "hash"),
    )
    journal_required: bool = _knob(
        False,
        "",
        "What a journal that cannot be written does, because the disk is full for example. False: it ends, which is "
        "logged once, and delivery goes on; the counter `journal_rows_lost` says what it lacks. True: receiving raises "
        "JournalWriteError and takes nothing more, so that the application gets nothing that is not journaled, but for "
        "what was on its way to the disk.",
    )
    journal_segment_bytes: int = _knob(
        256 * _MIB,
        "bytes",
        "A journal's live file of this size is finished and rolled to Parquet, which is smaller and read by columns.",
        low=1 << 16,
        high=1 << 40,
    )
    journal_segment_s: float = _knob(
        3600.0,
        "s",
        "A journal's live file of this age is finished and rolled, however small it is.",
        low=0.01,
        high=1e9,
    )
    journal_keep_bytes: int = _knob(
        0,
        "bytes",
        "Retention: a journal's rolled files beyond this many bytes together are removed, the oldest first. 0: none.",
        low=0,
        high=1 << 60,
    )
    journal_keep_s: float = _knob(
        0.0,
        "s",
        "Retention: a journal's rolled files whose rows are all older than this are removed. 0: none.",
        low=0,
        high=1e10,
    )

    # -- joining and leaving

    join_timeout_s: float = _knob(
        10.0, "s", "How long `join` waits for the first view, then raises JoinTimeout.", low=0.0, high=1e6
    )
    leave_timeout_s: float = _knob(
        10.0,
        "s",
        "How long `leave` waits until the others have everything; then it leaves as if it had crashed.",
        low=0.0,
        high=1e6,
    )
    discovery_s: float = _by_preset(
        "s",
        "How long a joiner looks for a group before it forms one. Longer: a slower first member; shorter: two first "
        "members that start together are likelier to miss each other.",
        lan=0.15,
        wan=1.0,
        low=0.01,
        high=60.0,
    )
    join_s_min: float = _by_preset(
        "s",
        "Between the first two JOINs of a joiner.",
        lan=0.015,
        wan=0.1,
        low=0.001,
        high=60.0,
    )
    join_s_max: float = _by_preset(
        "s",
        "Longest pause between two JOINs; the pause doubles up to it.",
        lan=0.2,
        wan=1.0,
        low=0.001,
        high=60.0,
    )
    bundle_s: float = _knob(
        0.005,
        "s",
        "What comes within this time after the first request makes one view (FLU-11). Longer: fewer views when many "
        "start together; shorter: a quicker join.",
        low=0.0,
        high=10.0,
    )

    # -- state of a joiner

    state_timeout_s: float = _knob(
        30.0,
        "s",
        "A joiner that gets nothing of the state for so long passes its provider over and asks for another. Longer "
        "than `get_state` takes, and than the provider's application lets messages wait. A joiner whose `set_state` "
        "reads nothing for so long leaves the group.",
        low=0.01,
        high=1e6,
    )
    state_memory_bytes: int = _knob(
        256 * _MIB,
        "bytes",
        "Of a state under way so much is kept in memory, at each side; what is more is in a temporary file.",
        low=0,
        high=1 << 40,
    )
    state_backlog_bytes: int = _knob(
        128 * _MIB,
        "bytes",
        "What the group sends meanwhile is kept at the joiner up to so much; then credit holds the senders.",
        low=1024,
        high=1 << 40,
    )

    # -- failure and view changes

    heartbeat_s: float = _by_preset(
        "s",
        "Between two heartbeats of a member. Shorter: less time to detect; each costs a datagram to all.",
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
        "Silence after which a member is suspected and excluded, unless it answers a ping or another member hears it. "
        "One whose port is closed, because its process was killed, is excluded after 2 to 3 heartbeats already. At "
        "least 4 heartbeats. Shorter: quicker repair; longer: a machine that pauses is not excluded. Busy Python alone "
        "suspends no heartbeat.",
        low=0.01,
        high=3600.0,
    )
    suspect_s_max: float = _derived(
        "4 × suspect_s",
        lambda config: 4 * config.suspect_s,
        "s",
        "A member that finds itself late, or that others do not hear, doubts its own judgement: its suspect_s grows "
        "step by step up to this, and falls again while all is well. Longer: fewer false suspicions on overloaded "
        "machines.",
        low=0.01,
        high=3600.0,
    )
    name_taken_s: float = _derived(
        "suspect_s_max",
        lambda config: config.suspect_s_max,
        "s",
        "How long a joiner whose name is in the view waits: the old incarnation may have crashed and be not yet "
        "suspected. Longer than suspect_s.",
        low=0.0,
        high=3600.0,
    )
    lease_s: float = _by_preset(
        "s",
        "A member that runs a view change and is silent for so long is given up; the next one starts again. Longer "
        "than the longest pause of Python that should not cost an attempt.",
        lan=1.0,
        wan=5.0,
        low=0.05,
        high=600.0,
    )
    flush_deadline_s: float = _by_preset(
        "s",
        "A member whose engine is alive but which has not answered a view change for so long is excluded.",
        lan=5.0,
        wan=20.0,
        low=0.1,
        high=3600.0,
    )
    block_deadline_s: float = _knob(
        2.0,
        "s",
        "A block callback (`on_block`) that has not returned for so long is waited for no longer: the view change goes "
        "on, and its owner is warned. Longer: slow callbacks finish their transactions; shorter: one that hangs delays "
        "the group less. Less than flush_deadline_s.",
        low=0.001,
        high=3600.0,
    )
    block_events: bool = _knob(
        False,
        "",
        "`events` yields Blocked and Unblocked around the time in which nothing can be sent to the group. It does "
        "anyway at a member that has a block callback, and of a minority (`partition`) at every member.",
    )
    send_while_blocked: str = _knob(
        "wait",
        "",
        "A send to the group while a view change or a pause holds it. wait: it returns when the message is sent. "
        "queue: it returns at once, and the message is sent when the group opens, in the view that comes then, in "
        "order and before anything newer. What is still queued when this member leaves or is excluded `Lost` tells. "
        "Unicasts are neither held nor queued.",
        among=("wait", "queue"),
    )
    blocked_queue_bytes: int = _knob(
        _MIB,
        "bytes",
        "Bound of that queue, a few bytes for each message included. What is more waits in its sender. Larger: senders "
        "do not notice longer view changes; smaller: less memory, and less to be lost with this member.",
        low=1024,
        high=1 << 30,
    )
    pause_s_max: float = _knob(
        30.0,
        "s",
        "A pause of the group (`suspend`) that lasts longer ends by itself, and who asked for it is told by `resume`. "
        "One whose owner falls silent ends after lease_s.",
        low=0.001,
        high=86400.0,
    )
    partition: str = _knob(
        "merge",
        "",
        "What becomes of a group that falls apart. merge: each side goes on, and they are one again when they meet. "
        "primary: only the side with a majority of the last view goes on (of an even number, half with its first "
        "member), so that there is never more than one group; a minority is blocked, and told so by Blocked. When both "
        "meet, its members are excluded, and may join again. Where the majority is lost for good: `seqcast unblock`. "
        "The same at all members: a joiner with another is refused.",
        among=PARTITIONS,
    )
    guard: bool = _knob(
        False,
        "",
        "Each two members hold a TCP connection, on the number of their UDP port; where it is closed and not taken up "
        "again, the other process is gone. Tells of a killed process at once also where a firewall drops ICMP, which "
        "else brings the news of its closed port. Costs a connection a member and a thread.",
    )
    flush_unicasts: bool = _knob(
        False,
        "",
        "A view change waits until what this member sent to single members before it is there too, so that a view ends "
        "with all that was sent in it. The same at all members. Costs an acknowledgement's delay where unicasts are on "
        "their way. A member that leaves does it anyway. With partition='primary' a view that is proposed again (the "
        "attempt before may have ended in it) is not held up by members that cannot be reached then.",
    )
    back_off_s: float = _derived(
        "1.2 × lease_s",
        lambda config: 1.2 * config.lease_s,
        "s",
        "A member that met a higher attempt waits so long before it starts one of its own. Longer than lease_s.",
        low=0.05,
        high=600.0,
    )
    leave_deadline_s: float = _knob(
        10.0, "s", "A leaver gives up waiting for the view without it.", low=0.1, high=3600.0
    )
    linger_s: float = _knob(
        1.0, "s", "A coordinator that left serves the closing view to the slow for at most so long.", low=0.0, high=60.0
    )

    # -- windows and memory

    packet_bytes: int = _knob(
        0,
        "bytes",
        "Size of a full datagram's payload. 0: from the interface's MTU. Larger than the path carries whole means IP "
        "fragments, where one loss loses all. A view uses the smallest of its members.",
        low=0,
        high=PACKET_BYTES_MAX,
    )
    rcvbuf: int = _knob(
        4 * _MIB,
        "bytes",
        "Receive buffer asked of the kernel for each socket. The windows of all senders together stay below it, so a "
        "small one slows every sender; Linux clips it to net.core.rmem_max and gives twice the value.",
        low=4096,
        high=1 << 30,
    )
    sndbuf: int = _knob(
        2 * _MIB, "bytes", "Send buffer asked of the kernel. Smaller: less waits in front of a slow link.",
        low=4096, high=1 << 30,
    )  # fmt: skip
    window_bytes: int = _knob(
        8 * _MIB,
        "bytes",
        "Most that a sender has on the way to receivers that have not taken it (charged socket-buffer bytes); what "
        "the receivers' buffers allow may be less. Larger: fewer waits; smaller: less memory, shorter queues.",
        low=2048,
        high=1 << 30,
    )
    ring_bytes: int = _knob(
        8 * _MIB, "bytes", "Send ring: packets are kept here until all have them. Bounds the window.",
        low=65536, high=1 << 30,
    )  # fmt: skip
    unicast_bytes: int = _knob(
        _MIB,
        "bytes",
        "Send ring of each unicast stream, made when a member is first sent to; and how much of what a member sends to "
        "itself may wait to be received.",
        low=65536,
        high=1 << 30,
    )
    ring_packets: int = _knob(
        8192, "packets", "Packets that a ring holds; a power of two. 24 bytes each per sender.", low=64, high=1 << 20
    )
    slabs_max: int = _knob(
        1024,
        "64 KiB",
        "Bound of the memory for received packets. The windows of all senders together stay below an eighth of it, as "
        "small packets may keep large buffers: a large ``rcvbuf`` helps only with more slabs. More than eight times "
        "what the socket's buffer holds helps nothing.",
        low=32,
        high=1 << 16,
    )
    control_bytes_max: int = _knob(
        4 * _MIB, "bytes", "Bound of the queues of control frames, each way.", low=65536, high=1 << 30
    )

    # -- recovery

    nak_delay_s: float = _by_preset(
        "s",
        "A gap younger than this may be reordering and is not asked for. Shorter: quicker repair; longer: no needless "
        "retransmissions where the network reorders.",
        lan=200e-6,
        wan=0.005,
        low=0.0,
        high=10.0,
    )
    nak_backoff_s_min: float = _by_preset(
        "s",
        "Before the second NAK for a range; doubles, with jitter.",
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
        "A packet is not sent again sooner than this, however many ask.",
        lan=500e-6,
        wan=0.1,
        low=0.0,
        high=10.0,
    )
    retransmit_bytes_per_s: int = _knob(
        500_000_000,
        "bytes/s",
        "Most that is retransmitted. Higher: quicker repair; lower: repair cannot drown what is new.",
        low=10_000,
        high=1 << 40,
    )
    ack_delay_s: float = _by_preset(
        "s",
        "An acknowledgement, which is the vote for stability, is sent at the latest so long after something was "
        "consumed; the receivers of a multicast take different moments in its second half. Longer: fewer datagrams "
        "beside a lone request; shorter: the sender's memory is free sooner.",
        lan=0.005,
        wan=0.02,
        low=1e-5,
        high=1.0,
    )
    ack_bytes: int = _knob(
        0,
        "bytes",
        "An acknowledgement is sent at once when so much was consumed, as receive buffers count it; 0: a quarter of "
        "the view's window. At most half a window. Larger: fewer datagrams; smaller: senders learn sooner what is "
        "stable and have credit sooner, and need less memory.",
        low=0,
        high=1 << 30,
    )
    ack_packets: int = _knob(
        0,
        "packets",
        "The same by number; 0: an eighth of ring_packets. Never more than half of it.",
        low=0,
        high=1 << 20,
    )
    probe_s_min: float = _by_preset(
        "s",
        "Without progress for so long a sender tells its highest seqno (tail probe). More than ack_delay_s, so that an "
        "acknowledgement that is under way makes it needless.",
        lan=0.008,
        wan=0.3,
        low=1e-4,
        high=10.0,
    )
    probe_s_max: float = _by_preset(
        "s",
        "Longest pause between two tail probes; it doubles.",
        lan=0.1,
        wan=1.0,
        low=1e-4,
        high=60.0,
    )

    # -- input and output

    gso: bool = _knob(
        True,
        "",
        "Send runs of datagrams by one call with UDP_SEGMENT, where the kernel has it (else it is not used). False "
        "only to rule it out when something is wrong.",
    )
    gro: bool = _knob(True, "", "Receive runs of datagrams in one buffer (UDP_GRO), where the kernel has it.")
    mmsg: bool = _knob(True, "", "Send and receive several datagrams by one call, where the kernel has it.")
    send_batch: int = _knob(
        16, "calls", "Runs of datagrams handed to the kernel by one call. Larger: fewer calls.", low=1, high=64
    )
    receive_batch: int = _knob(
        16,
        "buffers",
        "Buffers of 64 KiB received by one call. Larger: fewer calls; smaller: less memory, warmer caches.",
        low=1,
        high=64,
    )
    busy_poll_s: float = _knob(
        0.0,
        "s",
        "Who waits for datagrams spins for so long before it blocks. Saves a microsecond or more a hop and costs a "
        "core for each spinner: only with cores to spare.",
        low=0.0,
        high=1.0,
    )
    flush_bytes: int = _knob(
        65536,
        "bytes",
        "A sender transmits when so much is packed. Larger: fewer calls; smaller: less delay in a stream.",
        low=1,
        high=16 * _MIB,
    )
    flush_s_min: float = _knob(
        20e-6,
        "s",
        "A sender transmits at once when nothing was transmitted for so long, so that a lone message leaves at once "
        "and a stream is batched. 0: each message at once.",
        low=0.0,
        high=1.0,
    )
    flush_s_max: float = _knob(
        50e-6, "s", "What a sender left packed is transmitted after so long.", low=1e-6, high=1.0
    )
    standby_s: float = _knob(
        0.002,
        "s",
        "The I/O thread takes over when no caller drove the sockets for so long. Shorter: timers and acknowledgements "
        "keep their time better while the application computes; longer: fewer wake-ups.",
        low=1e-4,
        high=0.1,
    )
    nap_s: float = _knob(
        500e-6,
        "s",
        "A receiver under load lets datagrams gather, until there are about 512 KiB or a quarter of a window, and at "
        "most for so long: it wakes less often and delivers larger batches, later. 0: never.",
        low=0.0,
        high=0.01,
    )

    def __post_init__(self) -> None:
        hints = _hints()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is _DERIVED:
                value = _computed(field, self)
            object.__setattr__(self, field.name, check.field_value(field, hints[field.name], value))
        check.clashes(self)

    # -- from elsewhere

    def replace(self, **settings: Unpack[Settings]) -> Self:
        """A copy with other values. What has the value of its formula follows it in the copy too.

        Raises:
            ConfigError: an unknown or wrong setting.
        """
        check.names(settings, _hints(), "join")
        kept = {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != _computed(field, self)
        }
        return type(self)(**{**kept, **settings})

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """The settings of a TOML file, in its table ``[seqcast]`` if it has one, else at its top.

        Raises:
            ConfigError: the file cannot be read, is no TOML, or has an unknown or wrong setting.
        """
        table = sources.toml_table(path)
        check.names(table, _hints(), str(path))
        return cls(**table)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """The settings of the environment: ``SEQCAST_CONFIG`` names a TOML file, ``SEQCAST_<SETTING>`` wins over it.

        A variable of another name that begins with ``SEQCAST_`` is refused as an unknown keyword is: it is most likely
        a setting with a slip of the pen, and the group would be another one than was meant.

        Raises:
            ConfigError: a wrong value, or a variable that is no setting.
        """
        path, settings = sources.variables(os.environ if environment is None else environment, _hints())
        return cls.from_toml(path).replace(**settings) if path else cls(**settings)


def _explained() -> str:
    """Every setting, for help(): what docs/config.md has in its tables."""
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
    """The settings' types. Evaluating annotations takes half a millisecond, which a join would feel."""
    return get_type_hints(Config)


def _computed(field: dataclasses.Field[Any], config: Config) -> float | None:
    """What the formula of a setting gives; None: it has none."""
    compute = field.metadata.get("compute")
    return min(round(compute(config), 9), field.metadata["high"]) if compute else None
