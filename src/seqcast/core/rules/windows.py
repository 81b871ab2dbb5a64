"""How much may be in flight in a view: the windows of its streams, from the receive buffers of its members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from seqcast.core.frames.fields import MemberInfo

SMALLER_PACKETS = (32_368, 15_984)
"""Sizes of packets that just fit the powers of two in which the kernel charges them."""
FORWARDING_ROOM = 11 << 19
"""Bytes to a receiver if one member multicasts for all; with more, messages wait longer."""


class Windows(NamedTuple):
    """The windows of a view; all but the last are in charged bytes.

    Args:
        window: the most that one group stream may have in flight.
        share: the part of ``window`` that each group stream always has.
        room: of all group streams together, at each receiver.
        forward, unicast, state: windows of the other streams.
        packet_bytes: size of a full packet.
    """

    window: int
    share: int
    room: int
    forward: int
    unicast: int
    state: int
    packet_bytes: int


def charge_full(packet_bytes: int) -> int:
    """The charge of a full packet within a run of others: ``sc_charge`` of the engine."""
    return packet_bytes + packet_bytes // 50 + 64


def charge_most(packet_bytes: int) -> int:
    """The largest charge of a packet of at most this size in a receive buffer: ``sc_charge_most`` of the engine."""
    return max(charge_full(packet_bytes), 256 + (1 << (min(packet_bytes, 32_768) + 398).bit_length()))


def windows(infos: Sequence[MemberInfo], multicasters: int, path_bytes: int = 0) -> Windows:
    """The windows of a view.

    Group-stream data in flight to one receiver (its room) fills at most 11/16 of its receive buffer, so that data never
    overflows it and a retransmission still fits: Linux frees the space of datagrams that were read only once they make
    up a quarter of the buffer (udp_rmem_release), so only 3/4 is reliable. Small packets may arrive one by one, and
    then each takes a power of two of the buffer, so there is less room for them. A quarter of the room is divided among
    the members that multicast; receivers give the rest to those that use more (``streams/credit.c``). With many
    multicasters, packets are smaller, down to 16 KiB, so that a share holds one.

    Forward and unicast streams share a buffer. If only one member multicasts, that one gets the forwards of all others,
    which have three quarters, as a sender gets credit for them after two hops; and the room is at most
    ``FORWARDING_ROOM``: messages not ordered when that member falls are sent again while all wait. Otherwise unicasts
    have half. State has half, and comes from one provider at a time to a member that gets no forwards. No window is
    below two full packets: with one, a sender would wait for the ack of each.

    Args:
        multicasters: how many of the members multicast messages.
        path_bytes: size of the largest packet that reaches all from all, as far as is known; 0: unknown.
    """
    packet_bytes = min(info.packet_bytes for info in infos)
    packet_bytes = min(packet_bytes, path_bytes or packet_bytes) & ~3  # offsets are aligned
    others = max(len(infos) - 1, 1)
    heard = min(multicasters, others)
    room = min(info.capacity for info in infos) * 11 // 16
    if multicasters == 1:
        room = min(room, FORWARDING_ROOM)
    most = min(info.window_bytes for info in infos)
    for smaller in SMALLER_PACKETS:
        if heard > 1 and charge_most(packet_bytes) * 4 * heard > room:
            packet_bytes = min(packet_bytes, smaller)

    def window(share: int) -> int:
        return max(min(share, most), 2 * packet_bytes)

    charge = charge_most(packet_bytes)
    room = max(room * charge_full(packet_bytes) // charge, min(room, 2 * heard * charge))
    share = room if heard == 1 else max(room // (4 * heard), charge)
    unicasts = room // 4 if multicasters == 1 else room // 2
    forward, unicast = window((room - unicasts) // others), window(unicasts // others)
    group = window(room - (heard - 1) * share)
    return Windows(group, min(share, group), room, forward, unicast, window(room // 2), packet_bytes)
