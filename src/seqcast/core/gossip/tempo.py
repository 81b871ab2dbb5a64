"""How often a member gossips, and to how many: the arithmetic that keeps a group from flooding itself (PB-07)."""

from __future__ import annotations

from math import ceil, log

from seqcast.core.gossip.dice import Dice
from seqcast.core.gossip.settings import GossipSettings


def copies(members: int) -> int:
    """How many copies of a gossip each member has to send so that one reaches everyone.

    If each member that sees a gossip sends ``c`` copies at random, a member gets none with probability exp(-c): with
    ln(N) + 1 copies about 0.4 members out of N do not get it, and those get the next one.
    """
    return ceil(log(max(members, 1)) + 1)


def subset_size(waiting: int, members: int, percent: int, load: float) -> int:
    """To how many of the ``waiting`` members, which have not seen a gossip, this is passed on.

    Args:
        members: of the group.
        percent: of ``waiting``, at most.
        load: 1: none; the higher, the fewer, but at least 2, of which one may be lost, so that no gossip dies out.
    """
    wanted = min(ceil(waiting * percent / 100), copies(members))
    return min(waiting, max(2, int(wanted / load)))


def interval(settings: GossipSettings, members: int, load: float, dice: Dice) -> int:
    """Ns until the next gossip of this member, drawn each time (PB-10).

    For dynamic gossip: uniform, with a mean of ``average_ns`` times the size of the group times the copies of a gossip
    that a member receives. So each member receives one per ``average_ns``, however large the group is.
    """
    if settings.dynamic:
        others = max(members - 1, 1)
        received = 1 if settings.multicast else subset_size(others, members, settings.subset_percent, 1)
        low = settings.interval_ns_min
        mean = max(int(settings.average_ns * members * received * load), low)
        drawn = low + dice.below(2 * (mean - low) + 1)
    else:
        drawn = int(settings.interval_ns * load)
    return min(max(drawn, settings.interval_ns_min), settings.interval_ns_max)
