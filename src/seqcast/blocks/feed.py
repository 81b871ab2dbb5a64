"""A feed: the last value of each key, and each change of it."""

from __future__ import annotations

import functools
import logging
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import seqcast.codes as codes
from seqcast._native.engine import Message
from seqcast.api.group import join
from seqcast.arguments import deadline_of, left_until, nanoseconds
from seqcast.blocks.closing import Closing
from seqcast.blocks.codec import Codec, codec_of
from seqcast.blocks.dictionary import ABSENT
from seqcast.blocks.formats import BYTES, check_format
from seqcast.config import Config
from seqcast.errors import ConfigError, NotMember, NotReady, OtherRelease, UsageError, without_code
from seqcast.events import Lost

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from seqcast.api.receiving import Event
    from seqcast.config.keywords import Settings
    from seqcast.net.state import SubgroupState

log = logging.getLogger("seqcast")

_HEAD = struct.Struct("<4sBI")
"""Head of a message: format, whether there is a value, bytes of the key. Then come key and value."""
_MESSAGE, _STATE = b"SqF\x01", b"SqG\x01"
"""Formats; see `formats`."""
_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QII")
"""An entry of a state: number of the change, bytes of key and value."""
UPDATES_MAX = 65_536
"""The most updates that wait for a subscriber; with one more, the subscriber gets a snapshot in their place."""


class Snapshot(NamedTuple):
    """The value of each key at one place in the feed. The next update is the one with ``number + 1``.

    Args:
        number: that of the last change before this place.
        values: by key.
        skipped: this snapshot takes the place of this many updates, for this subscriber. Those that were published
            while this member was excluded are not counted.
    """

    number: int
    values: dict[str, Any]
    skipped: int


class Update(NamedTuple):
    """A change.

    Args:
        number: one more than that of the change before; the same on every member.
        key: the key that has changed.
        value: the new one; ABSENT: the key is gone.
    """

    number: int
    key: str
    value: Any


@dataclass
class Counters:
    """The fate of updates here."""

    updates: int = 0
    """Updates that were delivered to this member."""
    snapshots: int = 0
    """Snapshots that took the place of updates, for subscribers of this member."""
    skipped: int = 0
    """Updates whose place these snapshots took."""
    lost: int = 0
    """Messages of this member that some members did not get (``Lost``)."""
    malformed: int = 0
    """Messages that are not updates, and reads of values that the codec cannot read, which then count as absent."""


class Feed(Closing):
    """The last value of each key, which any member publishes, and which all have. A member that joins late has the
    values, and each change from there on; so does one that was excluded and is back::

        with Feed("prices", name="a") as feed:
            feed.publish("tea", 100.5)
            for item in feed.subscribe(behind_s=0.5):
                print(item)                             # a Snapshot, then each Update; when behind, a Snapshot again

    Each process keeps all values, so a slow subscriber holds up nobody: a thread of the feed takes the messages. A
    whole process that is too slow is excluded (``slow="exclude"``, unless a keyword says otherwise), and joins again.
    With ``partition="merge"``, when sides meet, each key gets the value with the higher number; a key that is gone on
    one side alone comes back.

    Args:
        cluster: name of the group.
        codec: "json", "msgpack" (``pip install 'seqcast[msgpack]'``), or an object with ``dumps`` and ``loads``; the
            same on every member.
        name, config, info, settings: as for ``join``. With ``observer=True`` this member only subscribes.

    Attributes:
        group: the group, for its ``view``, ``member`` and ``suspended``. Do not receive from this group.
        counters: the fate of updates here.

    Raises:
        ConfigError: a setting is wrong, or contradicts the feed.
        JoinTimeout: as for ``join``.
    """

    def __init__(
        self,
        cluster: str,
        *,
        codec: str | Codec = "json",
        name: str | None = None,
        config: Config | None = None,
        info: Mapping[str, Any] | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        chosen: dict[str, Any] = {"slow": "exclude", **settings}
        config = Config.from_environment(**chosen) if config is None else config.replace(**chosen)
        if not (config.receive and config.deliver_own):
            raise ConfigError("a feed needs receive=True and deliver_own=True")
        self._codec = codec_of(codec)
        self.counters = Counters()
        self._lock = threading.Condition()
        # Under `_lock`:
        self._number = 0
        self._values: dict[str, tuple[int, bytes]] = {}  # by key: number of the change, value
        self._subscribers: list[Subscriber] = []
        self._over = ""
        self.group = join(cluster, name=name, config=config, state=self, rejoin=True, info=info)
        self._thread = threading.Thread(target=self._receive, name=f"seqcast-feed-{cluster}", daemon=True)
        self._thread.start()

    # ---- the public interface

    def publish(self, key: str, value: Any, *, timeout: float | None = None) -> None:
        """Gives a key another value, on all members.

        Args:
            key: text.
            value: of a kind that the codec can carry; ABSENT: removes the key.
            timeout: as for ``Group.send``.

        Raises:
            NotMember, SendTimeout, UsageError: as for ``Group.send``.
        """
        if not isinstance(key, str):
            raise UsageError(f"a key is text, not {type(key).__name__}")
        name, data = key.encode(), b"" if value is ABSENT else self._codec.dumps(value)
        self.group.send(_HEAD.pack(_MESSAGE, value is not ABSENT, len(name)) + name + data, timeout=timeout)

    def snapshot(self) -> Snapshot:
        """All values now."""
        with self._lock:
            now = self._now()
        return self._snapshot(*now, 0)

    def subscribe(self, *, behind_s: float | None = 1.0) -> Subscriber:
        """All values now, and each change from now on.

        Args:
            behind_s: when the oldest update that waits for this subscriber is older, the subscriber gets a snapshot in
                place of all that wait. None: age does not matter, only more than `UPDATES_MAX` updates do.
        """
        limit = None if behind_s is None else nanoseconds(behind_s, "behind_s")
        with self._lock:
            subscriber = Subscriber(self, limit)
            self._subscribers.append(subscriber)
        return subscriber

    def close(self) -> None:
        """Leaves the group. Subscribers get the messages that wait for them, and then end."""
        self.group.leave()
        if self._thread is not threading.current_thread():
            self._thread.join(self.group.config.leave_timeout_s)

    # ---- the thread that receives

    def _receive(self) -> None:
        over = "the feed was closed"
        try:
            for event in self.group.events():
                self._event(event)
        except (NotMember, OtherRelease) as error:
            over = without_code(error)
            if isinstance(error, OtherRelease):
                log.error(codes.OTHER_RELEASE("the feed of %s has ended: %s"), self.group.cluster, over)
        except BaseException as error:
            over = f"the feed has failed: {error!r}"
            log.exception(codes.CALLBACK_FAILED("the feed of %s has failed"), self.group.cluster)
        with self._lock:
            self._over = over
            self._wake()
        self.group.leave(0)

    def _event(self, event: Event) -> None:
        if isinstance(event, Message):
            self._take(event.payload)
        elif isinstance(event, Lost):
            self.counters.lost += event.messages

    def _take(self, payload: bytes) -> None:
        try:
            check_format(payload, _MESSAGE)
            _, has_value, size = _HEAD.unpack_from(payload)
            key = payload[_HEAD.size : _HEAD.size + size].decode()
            if _HEAD.size + size > len(payload):
                raise ValueError("too short")
        except (ValueError, struct.error):
            self.counters.malformed += 1
            return
        value = payload[_HEAD.size + size :] if has_value else None
        with self._lock:
            self._number += 1
            self.counters.updates += 1
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = self._number, value
            for subscriber in self._subscribers:
                subscriber._add(self._number, key, value)
            if self._subscribers:
                self._wake()

    def _wake(self) -> None:
        """Makes the subscribers look for news. Under the lock."""
        self._lock.notify_all()
        for subscriber in self._subscribers:
            subscriber._on_news()

    def _now(self) -> tuple[int, dict[str, tuple[int, bytes]]]:
        """For `_snapshot`. Under the lock."""
        return self._number, self._values.copy()

    def _snapshot(self, number: int, values: dict[str, tuple[int, bytes]], skipped: int) -> Snapshot:
        """Not under the lock: many values take long, and the thread that receives would wait."""
        read = {key: self._read(value) for key, (_, value) in values.items()}
        return Snapshot(number, {key: value for key, value in read.items() if value is not ABSENT}, skipped)

    def _read(self, value: bytes | None) -> Any:
        """A value; ABSENT: there is none, or none that the codec can read."""
        try:
            return ABSENT if value is None else self._codec.loads(value)
        except Exception:  # any may come from a codec
            self.counters.malformed += 1
            return ABSENT

    # ---- for ``join(state=)``

    def get_state(self, write: Callable[[bytes], Any]) -> None:
        """As in ``StateHandler``."""
        with self._lock:
            last, values = self._now()
        write(_STATE + _COUNT.pack(last))  # not under the lock: a slow receiver of the state holds up no update
        for key, (number, value) in values.items():
            name = key.encode()
            write(_ENTRY.pack(number, len(name), len(value)) + name + value)

    def set_state(self, read: Callable[..., bytes]) -> None:
        """As in ``StateHandler``."""
        number, values = _read(read)
        self._replace(number, values)

    def merge_state(self, others: Sequence[SubgroupState]) -> None:
        """As in ``StateHandler``: keeps for each key the value with the highest number."""
        with self._lock:
            number, values = self._number, dict(self._values)
        for other in others:
            its_number, its_values = _read(other.read)
            number = max(number, its_number)
            for key, last in its_values.items():
                values[key] = max(last, values.get(key, last))
        self._replace(number + 1, values)

    def _replace(self, number: int, values: dict[str, tuple[int, bytes]]) -> None:
        with self._lock:
            self._number, self._values = number, values
            for subscriber in self._subscribers:
                subscriber._drop()
            self._wake()


def _read(read: Callable[..., bytes]) -> tuple[int, dict[str, tuple[int, bytes]]]:
    """
    Raises:
        UsageError: this is not the state of a feed.
        OtherRelease: that of another release.
    """
    values = {}
    try:
        check_format(read(BYTES), _STATE)
        (number,) = _COUNT.unpack(read(_COUNT.size))
        while head := read(_ENTRY.size):
            at, of_key, of_value = _ENTRY.unpack(head)
            key = read(of_key).decode() if of_key else ""
            values[key] = at, read(of_value) if of_value else b""
    except (struct.error, ValueError):
        raise UsageError("the group's state is not that of a feed: give all members the same kind") from None
    return number, values


class Subscriber(Closing, Iterator[Snapshot | Update]):
    """Made by ``Feed.subscribe``: an iterator of one thread, which begins with a snapshot."""

    def __init__(self, feed: Feed, behind_ns: int | None) -> None:
        self._feed, self._behind_ns = feed, behind_ns
        # Under the feed's lock:
        self._waiting: deque[tuple[int, int, str, bytes | None]] = deque()  # with the time of arrival
        self._skipped = 0
        self._fresh = True  # the next item is a snapshot
        self._closed = False
        self._on_news: Callable[[], object] = lambda: None  # for an event loop

    def recv(self, timeout: float | None = None) -> Snapshot | Update | None:
        """The next item.

        Args:
            timeout: seconds; None: no limit.

        Returns:
            None: nothing came within ``timeout``.

        Raises:
            NotReady: this subscriber was closed, or the feed is over, and nothing is left.
        """
        feed, deadline = self._feed, deadline_of(timeout)
        with feed._lock:
            while not self._has_next():
                left = left_until(deadline)
                if left is not None and left <= 0:
                    return None
                feed._lock.wait(None if left is None else min(left, threading.TIMEOUT_MAX))
            _, read = self._take()
        return read()

    def resync(self) -> None:
        """The next item is a snapshot, in place of all updates that wait."""
        with self._feed._lock:
            self._drop()
            self._feed._wake()

    def close(self) -> None:
        """Ends the subscription. A loop on another thread ends, too."""
        with self._feed._lock:
            self._closed, self._fresh = True, False
            self._waiting.clear()
            self._feed._wake()
            if self in self._feed._subscribers:
                self._feed._subscribers.remove(self)

    def __next__(self) -> Snapshot | Update:
        try:
            return cast("Snapshot | Update", self.recv())
        except NotReady:
            raise StopIteration from None

    # ---- under the feed's lock

    def _has_next(self) -> bool:
        """
        Raises:
            NotReady: as for `recv`.
        """
        if self._fresh or self._waiting:
            return True
        if self._closed or self._feed._over:
            raise NotReady(self._feed._over or "this subscriber was closed")
        return False

    def _take(self) -> tuple[bool, Callable[[], Snapshot | Update]]:
        """Takes the next item. Returns whether it is a snapshot, which may be large, and the function that reads it, to
        be called without the lock."""
        feed = self._feed
        if not self._fresh and self._is_behind():
            self._drop()
        if not self._fresh:
            _, number, key, value = self._waiting.popleft()
            return False, lambda: Update(number, key, feed._read(value))
        skipped, self._skipped, self._fresh = self._skipped, 0, False
        if skipped:
            feed.counters.snapshots += 1
            feed.counters.skipped += skipped
        return True, functools.partial(feed._snapshot, *feed._now(), skipped)

    def _add(self, number: int, key: str, value: bytes | None) -> None:
        if self._fresh:  # part of the snapshot
            self._skipped += 1
        elif len(self._waiting) >= UPDATES_MAX:
            self._drop()
            self._skipped += 1
        else:
            self._waiting.append((time.monotonic_ns(), number, key, value))

    def _is_behind(self) -> bool:
        return self._behind_ns is not None and time.monotonic_ns() - self._waiting[0][0] > self._behind_ns

    def _drop(self) -> None:
        """A snapshot comes next."""
        self._skipped += len(self._waiting)
        self._waiting.clear()
        self._fresh = True
