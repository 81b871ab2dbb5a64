"""Blocks that programs would otherwise write over a group, each small and built on the public interface alone.

docs/blocks.md shows each with an example. ``seqcast.blocks.aio`` has them for asyncio.
"""

from seqcast.blocks.block import Block, Parts
from seqcast.blocks.codec import Codec
from seqcast.blocks.dictionary import ABSENT, Change, ReplicatedDict
from seqcast.blocks.feed import Feed, Snapshot, Subscriber, Update
from seqcast.blocks.leader import Leader, on_leader
from seqcast.blocks.lock import Lock
from seqcast.blocks.log import Machine
from seqcast.blocks.replica import Guarantee, Replica, replicate
from seqcast.blocks.rpc import Reply, Rpc

__all__ = [
    "ABSENT",
    "Block",
    "Change",
    "Codec",
    "Feed",
    "Guarantee",
    "Leader",
    "Lock",
    "Machine",
    "Parts",
    "Replica",
    "ReplicatedDict",
    "Reply",
    "Rpc",
    "Snapshot",
    "Subscriber",
    "Update",
    "on_leader",
    "replicate",
]
