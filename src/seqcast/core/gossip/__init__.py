"""Reliability by gossip (PBCAST): digests spread by gossip, and a member pulls missing packets from whoever reported
them.

A multicast is unreliable. Periodically each member tells a few others its position in each active stream; they forward
this to a few more, and ask for the packets that they lack. So repair costs each member the same however large the group
is, and a message reaches all members with a probability as near to 1 as one likes, but not for certain: permanent loss
is reported.

``Gossiper`` is one member's policy. No I/O here; the time comes with each call, and its random numbers come from a
seed.
"""

from seqcast.core.gossip.history import Begun, CaughtUp, From
from seqcast.core.gossip.messages import Catalog, Floor, GossipMessage, Hello, Request, Shuffle, Span, Sum
from seqcast.core.gossip.policy import Alive, Answer, Collect, Effect, Gossiper, OutOfReach, Packets, SendTo
from seqcast.core.gossip.sampling import Everyone, Sample
from seqcast.core.gossip.settings import GossipSettings
from seqcast.core.gossip.tally import Agreed

__all__ = [
    "Agreed",
    "Alive",
    "Answer",
    "Begun",
    "Catalog",
    "CaughtUp",
    "Collect",
    "Effect",
    "Everyone",
    "Floor",
    "From",
    "GossipMessage",
    "GossipSettings",
    "Gossiper",
    "Hello",
    "OutOfReach",
    "Packets",
    "Request",
    "Sample",
    "SendTo",
    "Shuffle",
    "Span",
    "Sum",
]
