"""The common part of blocks over a replicated state machine: each is a machine, with its calls."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from seqcast.blocks.closing import Closing
from seqcast.blocks.log import Machine
from seqcast.blocks.replica import Guarantee, Replica, replicate
from seqcast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from seqcast.config.keywords import Settings

T = TypeVar("T")
_SIZE = struct.Struct("<Q")
_KIND = struct.Struct("<16s")
"""Written before the state of a block or of `Parts`: the kind, so that no other kind takes the state for its own."""
PARTS_MAX = 256


def write_kind(kind: str, write: Callable[[bytes], object]) -> None:
    write(_KIND.pack(kind.encode()))


def check_kind(kind: str, read: Callable[..., bytes]) -> None:
    """
    Raises:
        UsageError: the state is of another kind.
    """
    found = read(_KIND.size).rstrip(b"\0")
    if found != kind.encode():
        raise UsageError(
            f"the state of the group is one of {found.decode(errors='replace')!r}, and this member has {kind!r}: give "
            "all members the same machines, in the same order"
        )


class Block(Closing):
    """A machine with methods that make calls. Join with one block alone (``ReplicatedDict("kv", name="a", found=2)``,
    in ``with``), or pass it to ``replicate``, alone or with others (`Parts`).

    Args:
        cluster: name of the group to join; None: ``replicate`` is called with the block.
        name, info, ready_s, settings: as for ``replicate``.
    """

    def __init__(
        self,
        cluster: str | None = None,
        *,
        name: str | None = None,
        info: Mapping[str, Any] | None = None,
        ready_s: float = 5.0,
        **settings: Unpack[Settings],
    ) -> None:
        self._of: Replica[Any] | None = None
        self._prefix = b""
        self._owned: Replica[Any] | None = None
        if cluster is not None:
            self._owned = replicate(cluster, cast("Machine", self), name=name, info=info, ready_s=ready_s, **settings)

    def bind(self, replica: Replica[Any], prefix: bytes = b"") -> None:
        """For the replica: calls of this block go there."""
        if self._of is not None:
            raise UsageError(f"this {type(self).__name__} has a replica already: make another one")
        self._of, self._prefix = replica, prefix

    @property
    def replica(self) -> Replica[Any]:
        """The replica, for ``ready``, ``why``, ``group`` and ``close``.

        Raises:
            UsageError: there is none yet.
        """
        if self._of is None:
            raise UsageError(f"this {type(self).__name__} has no replica: pass it to replicate, or give it a cluster")
        return self._of

    def _call(self, operation: bytes, timeout: float | None) -> bytes:
        return self.replica.call(self._prefix + operation, timeout=timeout)

    def _read(self, query: Callable[[], T], guarantee: Guarantee, timeout: float | None) -> T:
        return self.replica.read(lambda _: query(), guarantee=guarantee, timeout=timeout)

    def close(self) -> None:
        """Leaves the group, if the block has joined by itself."""
        if self._owned is not None:
            self._owned.close()


class Parts:
    """Several machines as one: ``replicate("jobs", Parts(done, turn))``. Every member gives the same ones in the same
    order. An operation for the machine with index i begins with the byte i; blocks do that by themselves.

    Args:
        machines: up to 256.
    """

    def __init__(self, *machines: Machine) -> None:
        if not 0 < len(machines) <= PARTS_MAX:
            raise UsageError(f"Parts has {len(machines)} machines: it takes 1 to {PARTS_MAX}")
        self.machines: Sequence[Machine] = machines
        self._kind = f"{len(machines)} Parts"
        self._entered = [each.entered for each in machines if hasattr(each, "entered")]
        self._heard = [each.heard for each in machines if hasattr(each, "heard")]
        self._due = [each.due for each in machines if hasattr(each, "due")]

    def bind(self, replica: Replica[Any]) -> None:
        """For the replica."""
        for index, each in enumerate(self.machines):
            if isinstance(each, Block):
                each.bind(replica, bytes([index]))

    def apply(self, operation: bytes) -> bytes:
        """As in ``Machine``."""
        if not operation or operation[0] >= len(self.machines):
            raise UsageError("the operation is for a part that this member does not have")
        return self.machines[operation[0]].apply(operation[1:])

    def entered(self, ids: Sequence[int]) -> None:
        """As in ``Machine``."""
        for entered in self._entered:
            entered(ids)

    def heard(self, now_ns: int) -> None:
        """As in ``Machine``."""
        for heard in self._heard:
            heard(now_ns)

    def due(self) -> int | None:
        """As in ``Machine``."""
        return min((at for due in self._due if (at := due()) is not None), default=None)

    def snapshot(self, write: Callable[[bytes], None]) -> None:
        """As in ``Machine``."""
        write_kind(self._kind, write)
        for each in self.machines:
            pieces: list[bytes] = []
            each.snapshot(pieces.append)
            write(_SIZE.pack(sum(map(len, pieces))))
            for piece in pieces:
                write(piece)

    def restore(self, read: Callable[..., bytes]) -> None:
        """As in ``Machine``."""
        check_kind(self._kind, read)
        for each in self.machines:
            left = _SIZE.unpack(read(_SIZE.size))[0]

            def part(size: int | None = -1, /) -> bytes:
                nonlocal left
                data = read(left if size is None or size < 0 else min(size, left)) if left else b""
                left -= len(data)
                return data

            each.restore(part)
            part()
