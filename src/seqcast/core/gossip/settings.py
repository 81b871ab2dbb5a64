"""The settings of gossip."""

from __future__ import annotations

from dataclasses import dataclass

_MS = 1_000_000
NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipSettings:
    """Times are ns.

    Args:
        dynamic: the time between two gossips that a member begins is drawn from ``average_ns`` and the size of the
            group; else it is ``interval_ns`` (PB-12).
        interval_ns: of static gossip.
        average_ns: of dynamic gossip: the time between two gossips that a member receives, on average, copies included.
            Shorter: repair is faster; longer: less traffic. Neither depends on the size of the group.
        interval_ns_min, interval_ns_max: no interval is shorter or longer. Without the first, a range that begins at 1
            lets a member send in bursts (E-10).
        subset_percent: a gossip is passed on to at most this many of those that have not seen it, and to no more than
            reach everyone; see ``tempo.copies``.
        multicast: a gossip is sent once, by multicast, and not passed on (PB-13).
        votes: a packet is kept until every member has said that it has it; else the newest ``lag`` packets of each
            sender are kept, and packets that a member could not get in ``lost_ns`` are lost to it. Votes need a
            membership that all agree on.
        lag: see ``votes``. A member with a large one keeps nearly all packets for those that join late (PB-04).
        lost_ns: a packet that another member had, and that did not come for this long, is lost. Many times
            ``average_ns``.
        ask_again_ns: a packet is not asked for again for this long: the answer may be on its way.
        request_max: packets of one sender that one request asks for.
        cache_max: gossips that a member remembers one by one; of older ones only the highest number of each origin.
        origins_max: origins whose highest number is remembered.
        listed_max: if membership is partial: members in each list of a gossip.
        hops_max: how often a gossip is passed on at most: a bound in case ``origins_max`` is too small.
        queue_max: gossips and requests that wait here (PB-08). When it is full, the least urgent are dropped.
        work_per_s, work_max: packets that are sent again, and gossips that are handled, per second and in a burst.
        shuffle_ns: between two exchanges of entries of a partial view.
        shuffle_entries: how many entries are exchanged.
        view_max: members that a partial view has.
        epoch_ns: an estimate of the group's size takes this long, and is then used while the next one is made.
        hello_ns: if membership is partial: one hello of any member is multicast in this time, so that parts of a
            group that a partition separated find each other again. ``NEVER``: members find each other by other means.
        hello_again_ns: a member that knows no other, or waits for a catalog, says hello in this interval.
        history_ns: a joiner waits this long for late-join handlers.
        catalogs_ns: after the first catalog a joiner waits this long for those of other handlers.
        pull_ns: between two requests of a joiner to late-join handlers.
        history_max: packets that one of them asks for.
        handlers_max, catalog_max: late-join handlers that a joiner asks, and senders in the catalog of one.
    """

    dynamic: bool = True
    interval_ns: int = 200 * _MS
    average_ns: int = 20 * _MS
    interval_ns_min: int = 5 * _MS
    interval_ns_max: int = 86_400_000 * _MS
    subset_percent: int = 30
    multicast: bool = False
    votes: bool = True
    lag: int = 1000
    lost_ns: int = 10_000 * _MS
    ask_again_ns: int = 20 * _MS
    request_max: int = 512
    cache_max: int = 256
    origins_max: int = 1024
    listed_max: int = 128
    hops_max: int = 32
    queue_max: int = 256
    work_per_s: int = 20_000
    work_max: int = 2_000
    shuffle_ns: int = 5_000 * _MS
    shuffle_entries: int = 8
    view_max: int = 32
    epoch_ns: int = 60_000 * _MS
    hello_ns: int = NEVER
    hello_again_ns: int = 250 * _MS
    history_ns: int = 5_000 * _MS
    catalogs_ns: int = 300 * _MS
    pull_ns: int = 20 * _MS
    history_max: int = 64
    handlers_max: int = 8
    catalog_max: int = 65_536
