"""The settings as keywords of ``seqcast.join``, for type checkers: they see a misspelt one.

Made from the fields of ``Config`` by docs/render.py; do not edit. Their meaning: docs/config.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypedDict

Order = Literal["total", "records", "sequencer", "total-1999", "grant", "causal", "fifo"]


class Settings(TypedDict, total=False):
    """Each setting of ``seqcast.Config``, none of them required."""

    preset: Literal["lan", "fast", "wan"]
    interface: str
    ip_version: Literal[4, 6]
    address: str
    port: int
    transport: Literal["auto", "multicast", "unicast"]
    seeds: str | Sequence[str] | Callable[[], Sequence[str]]
    port_range: int
    discovery_refresh_s: float
    advertise: str
    unicast_port: int
    ttl: int
    dscp: int
    key: str
    identity: str
    authorized: str
    cipher: Literal["auto", "aegis-128l", "aegis-256", "xchacha20-poly1305", "aes-256-gcm"]
    rekey_s: float
    deliver_own: bool
    receive: bool
    batch_bytes: int
    kept_bytes: int
    message_bytes_max: int
    board: bool
    journal: str | Path | None
    journal_payload: Literal["full", "hash"]
    journal_required: bool
    journal_resume: bool
    journal_segment_bytes: int
    journal_segment_s: float
    journal_keep_bytes: int
    journal_keep_s: float
    join_timeout_s: float
    leave_timeout_s: float
    discovery_s: float
    found: int
    stable: str
    observer: bool
    join_s_min: float
    join_s_max: float
    bundle_s: float
    state_timeout_s: float
    state_memory_bytes: int
    state_backlog_bytes: int
    heartbeat_s: float
    suspect_s: float
    suspect_s_max: float
    slow: Literal["block", "exclude", "skip"]
    slow_s: float
    name_taken_s: float
    lease_s: float
    flush_deadline_s: float
    block_deadline_s: float
    block_events: bool
    coordinator_events: bool
    send_while_blocked: Literal["wait", "queue"]
    blocked_queue_bytes: int
    pause_s_max: float
    partition: Literal["merge", "primary"]
    membership: Literal["coordinated", "token-ring"]
    guard: bool
    flush_unicasts: bool
    safe: bool
    back_off_s: float
    leave_deadline_s: float
    linger_s: float
    packet_bytes: int
    rcvbuf: int
    sndbuf: int
    window_bytes: int
    ring_bytes: int
    unicast_bytes: int
    ring_packets: int
    slabs_max: int
    control_bytes_max: int
    nak_delay_s: float
    nak_backoff_s_min: float
    nak_backoff_s_max: float
    retransmit_hold_s: float
    retransmit_bytes_per_s: int
    congestion: Literal["auto", "on", "off"]
    send_bytes_per_s: int
    ack_delay_s: float
    ack_bytes: int
    ack_packets: int
    probe_s_min: float
    probe_s_max: float
    reliability: Literal["nak", "gossip"]
    gossip_average_s: float
    gossip_dynamic: bool
    gossip_interval_s: float
    gossip_subset_percent: int
    gossip_multicast: bool
    gso: bool
    gro: bool
    mmsg: bool
    send_batch: int
    receive_batch: int
    latency: bool
    busy_poll_s: float
    io_cores: str
    control_cores: str
    flush_bytes: int
    flush_s_min: float
    flush_s_max: float
    standby_s: float
    nap_s: float
