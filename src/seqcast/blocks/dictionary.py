"""A dictionary that every member of a group has."""

from __future__ import annotations

import heapq
import logging
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import seqcast.codes as codes
from seqcast.blocks.block import Block, check_kind, write_kind
from seqcast.blocks.codec import Codec, codec_of
from seqcast.blocks.replica import Guarantee
from seqcast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from seqcast.config.keywords import Settings

log = logging.getLogger("seqcast")

_HEAD = struct.Struct("<BqIii")
"""Head of an operation: flags, time to live in ns (0: no end), length of the key, of the expected value and of the new
one; -1: the key is to be absent. Then come key, expected value, new value."""
_CONDITIONAL = 1
_ENTRY = struct.Struct("<IQq")
"""Head of an entry in a snapshot: lengths of key and value, time of its end (0: never)."""
_DONE, _REFUSED = b"\1", b"\0"


class _Absent:
    def __repr__(self) -> str:
        return "seqcast.blocks.ABSENT"


ABSENT: Final = _Absent()
"""No value: in ``compare_and_set`` the expected value of a missing key, or the new value that removes one."""


class Change(NamedTuple):
    """A change of a ``ReplicatedDict``.

    Args:
        key: the key that changed.
        value: the new value; ABSENT: the key is gone.
        old: the value before, or ABSENT.
    """

    key: str
    value: Any
    old: Any


class ReplicatedDict(Block):
    """A dictionary that every member of a group has. Keys are text. A value is of a kind that the codec can carry; each
    read gives a copy. As ``Block`` says, a dictionary joins by itself, or is passed to ``replicate``::

        with ReplicatedDict("settings", name="a", found=2) as settings:
            settings["color"] = "red"

    ``d[key] = value``, ``del d[key]`` and ``d[key]`` are calls and linearizable reads, with the errors and the default
    timeout of ``Replica.call`` and ``Replica.read``; the methods take others.

    Args:
        cluster: as for ``Block``.
        codec: "json", "msgpack" (``pip install 'seqcast[msgpack]'``), or an object with ``dumps`` and ``loads``; the
            same on every member.
        name, info, ready_s, settings: as for ``replicate``.
    """

    def __init__(
        self,
        cluster: str | None = None,
        *,
        codec: str | Codec = "json",
        name: str | None = None,
        info: Mapping[str, Any] | None = None,
        ready_s: float = 5.0,
        **settings: Unpack[Settings],
    ) -> None:
        self._codec = codec_of(codec, canonical=True)
        self._data: dict[str, bytes] = {}
        self._ends: dict[str, int] = {}  # when entries end, by the group's time
        self._heap: list[tuple[int, str]] = []  # the same; one that has left `_ends` is void
        self._now_ns = 0
        self._callbacks: list[Callable[[Change], object]] = []
        super().__init__(cluster, name=name, info=info, ready_s=ready_s, **settings)

    # ---- reading

    def get(
        self, key: str, default: Any = None, *, guarantee: Guarantee = "linearizable", timeout: float | None = 5.0
    ) -> Any:
        """The value of a key, or ``default``."""
        found = self._read(lambda: self._data.get(key), guarantee, timeout)
        return default if found is None else self._codec.loads(found)

    def copy(self, *, guarantee: Guarantee = "linearizable", timeout: float | None = 5.0) -> dict[str, Any]:
        """All keys and values at one moment."""
        found = self._read(lambda: dict(self._data), guarantee, timeout)
        return {key: self._codec.loads(value) for key, value in found.items()}

    def __getitem__(self, key: str) -> Any:
        found = self.get(key, ABSENT)
        if found is ABSENT:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        return self._read(lambda: key in self._data, "linearizable", 5.0)

    def __len__(self) -> int:
        return self._read(lambda: len(self._data), "linearizable", 5.0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._read(lambda: list(self._data), "linearizable", 5.0))

    # ---- writing

    def set(self, key: str, value: Any, *, ttl_s: float | None = None, timeout: float | None = 5.0) -> Any:
        """Sets a key; returns the value before, or ABSENT.

        Args:
            key: text.
            value: of a kind that the codec can carry.
            ttl_s: seconds after which the key is gone, unless set again; None: for ever. All members drop a key at
                the same place among the operations: time passes by the monotonic clocks of the members, and messages
                carry that time. Setting a wall clock changes nothing, and no time passes while no member runs.
            timeout: as for ``Replica.call``.
        """
        return self._old(self._call(self._operation(key, value, ttl_s), timeout))

    def pop(self, key: str, *, timeout: float | None = 5.0) -> Any:
        """Deletes a key; returns its value, or ABSENT if there was none."""
        return self._old(self._call(self._operation(key, ABSENT, None), timeout))

    def compare_and_set(
        self, key: str, expected: Any, value: Any, *, ttl_s: float | None = None, timeout: float | None = 5.0
    ) -> bool:
        """Sets a key, or deletes it (``value=ABSENT``), if its value is the expected one (``ABSENT``: if there is
        none).

        Returns:
            False: the key had another value, and nothing was changed.
        """
        return self._was_done(self._call(self._condition(key, expected, value, ttl_s), timeout))

    def __setitem__(self, key: str, value: Any) -> None:
        self.set(key, value)

    def __delitem__(self, key: str) -> None:
        if self.pop(key) is ABSENT:
            raise KeyError(key)

    # ---- changes

    def on_change(self, callback: Callable[[Change], object]) -> None:
        """Calls a function with each change from now on, in the order in which all members have them. The function runs
        on the thread that applies: it must neither wait nor call this dictionary. A replica that comes back after an
        exclusion is told the differences."""
        self._callbacks.append(callback)

    def _tell(self, key: str, old: bytes | None, new: bytes | None) -> None:
        if not self._callbacks or old == new:
            return
        loads = self._codec.loads
        try:
            change = Change(key, ABSENT if new is None else loads(new), ABSENT if old is None else loads(old))
        except Exception:  # another member's codec, or a faulty one: the state is the same with and without callbacks
            log.exception(codes.BAD_PEER("a value of %r cannot be read, so on_change is not called"), key)
            return
        for callback in self._callbacks:
            try:
                callback(change)
            except Exception:
                log.exception(codes.CALLBACK_FAILED("a function that on_change was given failed"))

    # ---- operations and answers

    def _operation(self, key: str, value: Any, ttl_s: float | None, expected: Any = ABSENT, flags: int = 0) -> bytes:
        if not isinstance(key, str):
            raise UsageError(f"a key is text, not {type(key).__name__}")
        if ttl_s is not None and (not isinstance(ttl_s, int | float) or not 1e-9 <= ttl_s < 1e9):
            raise UsageError(f"ttl_s={ttl_s!r} must be a number of seconds from 1e-9 to below 1e9, or None")
        parts = [key.encode(), *(b"" if each is ABSENT else self._codec.dumps(each) for each in (expected, value))]
        sizes = [-1 if each is ABSENT else len(part) for each, part in zip((expected, value), parts[1:], strict=True)]
        return b"".join((_HEAD.pack(flags, int((ttl_s or 0) * 1e9), len(parts[0]), *sizes), *parts))

    def _condition(self, key: str, expected: Any, value: Any, ttl_s: float | None) -> bytes:
        return self._operation(key, value, ttl_s, expected, _CONDITIONAL)

    def _was_done(self, answer: bytes) -> bool:
        return answer[:1] == _DONE

    def _old(self, answer: bytes) -> Any:
        return self._codec.loads(answer[2:]) if answer[1:2] == _DONE else ABSENT

    # ---- the machine

    def apply(self, operation: bytes) -> bytes:
        """As in ``Machine``."""
        flags, ttl_ns, of_key, of_expected, of_value = _HEAD.unpack_from(operation)
        at = _HEAD.size + of_key
        key = operation[_HEAD.size : at].decode()
        expected = None if of_expected < 0 else operation[at : at + of_expected]
        value = None if of_value < 0 else operation[len(operation) - of_value :]
        old = self._data.get(key)
        told = _REFUSED if old is None else _DONE + old
        if flags & _CONDITIONAL and old != expected:
            return _REFUSED + told
        self._ends.pop(key, None)
        if value is None:
            self._data.pop(key, None)
        else:
            self._data[key] = value
            if ttl_ns:
                self._end_at(key, self._now_ns + ttl_ns)
        self._tell(key, old, value)
        return _DONE + told

    def _end_at(self, key: str, at_ns: int) -> None:
        self._ends[key] = at_ns
        heapq.heappush(self._heap, (at_ns, key))
        if len(self._heap) > 2 * len(self._ends) + 16:  # most are void
            self._heap = [(at, each) for each, at in self._ends.items()]
            heapq.heapify(self._heap)

    def heard(self, now_ns: int) -> None:
        """As in ``Machine``."""
        self._now_ns = now_ns
        while self._heap and self._heap[0][0] <= now_ns:
            at_ns, key = heapq.heappop(self._heap)
            if self._ends.get(key) == at_ns:
                del self._ends[key]
                self._tell(key, self._data.pop(key), None)

    def due(self) -> int | None:
        """As in ``Machine``."""
        return self._heap[0][0] if self._heap else None

    def snapshot(self, write: Callable[[bytes], None]) -> None:
        """As in ``Machine``."""
        write_kind("ReplicatedDict", write)
        write(struct.pack("<q", self._now_ns))
        for key, value in self._data.items():
            name = key.encode()
            write(_ENTRY.pack(len(name), len(value), self._ends.get(key, 0)) + name + value)

    def restore(self, read: Callable[..., bytes]) -> None:
        """As in ``Machine``."""
        check_kind("ReplicatedDict", read)
        before, self._data, self._ends, self._heap = self._data, {}, {}, []
        (self._now_ns,) = struct.unpack("<q", read(8))
        while head := read(_ENTRY.size):
            of_key, of_value, end = _ENTRY.unpack(head)
            key = read(of_key).decode() if of_key else ""
            self._data[key] = read(of_value) if of_value else b""
            if end:
                self._end_at(key, end)
        for key in [*before, *(key for key in self._data if key not in before)]:
            self._tell(key, before.get(key), self._data.get(key))
