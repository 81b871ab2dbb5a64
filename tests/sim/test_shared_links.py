"""Links with queues before them, which a group that sends all it may would fill, and overflow; streams of others
share some."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from seqcast._native.engine import SENT
from seqcast.sim.options import MS, SECOND, Options
from seqcast.sim.world import World, simulate

PACKET = 1472


class Shared:
    """A group whose first members send as much as they may for a while; the counters are those of the first one.

    Args:
        senders: how many.
        link: bytes per second from each member to each other; with ``uplinks``, from each to all others together.
        queue: packets that wait before the link.
        trip_ns: of a round trip.
    """

    def __init__(
        self, *, members: int = 3, senders: int = 1, link: int = 2_000_000, queue: int = 20, trip_ns: int = 5 * MS,
        loss: float = 0.0, order: str = "fifo", transport: str = "unicast", ms: int = 1000, uplinks: bool = False,
        rivals: bool = False, **settings: object,
    ) -> None:  # fmt: skip
        self.world = World(
            Options(
                seed=5, members=members, order=order, loss=loss, delay_ns=trip_ns // 2, jitter_ns=1000, spread_ns=0,
                rate=1, bytes_max=100, unicasts=0, packet_bytes=PACKET, capacity=8 << 20, transport=transport,
                link_bytes_per_s=link, link_packets=queue, uplinks=uplinks, rivals=rivals,
                settings=(("message_bytes_max", 1000), *settings.items()),
            )
        )  # fmt: skip
        world, self.link, self.ms = self.world, link, ms
        world.plan()
        world.clock.run(SECOND)
        before = self.of(members)
        self.overflows = -world.network.overflows
        self.rival = -sum(each.bytes_sent for each in world.network.rivals[:1])
        for _ in range(ms):
            for node in world.nodes[:senders]:
                while node.engine.send(bytes(1000)) == SENT:
                    pass
                node.service()
            world.clock.run(world.clock.now + MS)
        self.overflows += world.network.overflows
        self.rival += sum(each.bytes_sent for each in world.network.rivals[:1])
        after = self.of(members)
        self.counted = {name: after[0][name] - before[0][name] for name in after[0]}
        self.delivered = [
            new["packets_delivered"] - old["packets_delivered"] for new, old in zip(after, before, strict=True)
        ]
        self.suspicions = sum(new["suspicions"] for new in after)
        self.views = {node.view for node in world.nodes}

    def of(self, members: int) -> list[Mapping[str, int]]:
        return [node.engine.counters() for node in self.world.nodes[:members]]

    @property
    def use(self) -> float:
        """The part of a link that carries messages to the slowest receiver."""
        copies = len(self.delivered) - 1 if self.world.options.uplinks else 1
        return min(self.delivered[1:]) * PACKET * copies * 1000 / self.ms / self.link

    @property
    def repeats(self) -> float:
        return self.counted["packets_retransmitted"] / self.counted["packets_sent"] / (len(self.delivered) - 1)


@pytest.mark.parametrize(
    ("path", "use", "repeats"),
    [
        ({}, 0.85, 0.12),
        ({"queue": 50, "trip_ns": MS // 2}, 0.85, 0.12),
        ({"queue": 5}, 0.8, 0.2),
        ({"loss": 0.01, "link": 8_000_000, "queue": 50, "trip_ns": 20 * MS}, 0.6, 0.14),
        ({"queue": 2, "link": 500_000, "trip_ns": 25 * MS}, 0.6, 0.4),
        ({"order": "sequencer"}, 0.8, 0.12),
        ({"transport": "multicast", "congestion": "on"}, 0.8, 0.12),
        ({"uplinks": True}, 0.8, 0.12),
        ({"uplinks": True, "members": 5}, 0.8, 0.14),
    ],
    ids=[
        "path", "short path", "short queue", "losses", "hardly a queue", "ordered", "multicast", "uplink",
        "uplink of five",
    ],
)
def test_a_group_fills_a_link_and_hardly_loses_anything(path, use, repeats):
    shared = Shared(**path)
    assert shared.use > use and shared.repeats < repeats
    assert shared.suspicions == 0 and len(shared.views) == 1


def test_without_congestion_control_most_packets_are_lost_and_repeated_and_the_link_is_not_full():
    shared = Shared(congestion="off", ms=500)
    assert shared.use < 0.75 and shared.repeats > 1


def test_a_group_on_multicast_alone_sends_the_same_datagrams_with_and_without():
    ends = [Shared(transport="auto", congestion=what, link=0, ms=40) for what in ("auto", "off")]
    assert ends[0].counted == ends[1].counted and ends[0].counted["packets_sent"] > 300


@pytest.mark.parametrize(("queue", "trip_ns"), [(20, 5 * MS), (50, 20 * MS)])
def test_a_group_and_a_stream_of_others_share_a_link(queue, trip_ns):
    shared = Shared(uplinks=True, rivals=True, queue=queue, trip_ns=trip_ns, ms=3000, link=4_000_000)
    mine, rival = shared.use, shared.rival * 1000 / shared.ms / shared.link
    jain = (mine + rival) ** 2 / 2 / (mine**2 + rival**2)
    assert jain > 0.7 and mine + rival > 0.8, (mine, rival, jain)
    assert shared.suspicions == 0 and len(shared.views) == 1


@pytest.mark.parametrize("seed", range(2))
def test_members_on_narrow_links_deliver_everything_and_suspect_nobody(seed):
    assert not simulate(Options.draw(seed + 1, family="narrow")).violations
