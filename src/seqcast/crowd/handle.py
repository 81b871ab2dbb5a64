"""``join_crowd``: groups without views, for more members than a view can have."""

from __future__ import annotations

import dataclasses
import socket
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import seqcast.codes as codes
from seqcast.api.base import Uncopied
from seqcast.api.counters import CROWD, explained
from seqcast.arguments import check_name, check_threads, nanoseconds
from seqcast.config.check import names
from seqcast.crowd.datagrams import PAYLOAD_MAX, address_of
from seqcast.crowd.member import HistoryEnd
from seqcast.crowd.runner import CrowdRunner
from seqcast.crowd.settings import CrowdSettings
from seqcast.crowd.streams import Delivered, Missed
from seqcast.errors import ConfigError, UsageError
from seqcast.net.errors import only_loopback


@dataclass(frozen=True, slots=True)
class CrowdMessage:
    """A message of a crowd.

    Args:
        payload: as it was sent.
        sender: id of the member that sent it: an incarnation, so a restarted process has another one.
        seqno: its number among the sender's messages, from 1 on.
    """

    payload: bytes
    sender: int
    seqno: int


@dataclass(frozen=True, slots=True)
class CrowdLost:
    """This member will not get these messages: no member asked still had them. Yielded in their place.

    Args:
        sender: id of the member that sent them.
        first, last: their seqnos.
    """

    sender: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class CrowdHistory:
    """With ``history=True``: messages sent before this member came have been delivered, or reported by ``CrowdLost``.

    Args:
        handlers: late-join handlers that were asked. 0: none answered within ``history_s``, so only messages that other
            members still had in memory came.
    """

    handlers: int


CrowdEvent = CrowdMessage | CrowdLost | CrowdHistory


def join_crowd(cluster: str, *, settings: CrowdSettings | None = None, **changes: Any) -> Crowd:
    """Joins a crowd: a group in which nobody knows all members and nothing is agreed on, for any number of members.

    A member delivers the messages of each sender in their order, each at most once. One that was lost on the way comes
    later, by gossip; one that nobody has any more is reported by ``CrowdLost``, never passed over in silence. There are
    no views, no order among senders, and no credit: a member that is too slow loses messages, and is told so.

    Returns after a few gossips, or ten times ``average_s``: this member then delivers all messages sent from now on, or
    is told which ones it lost, and also some of those sent just before. With ``history=True`` the stream begins with
    the first message of each sender that a late-join handler keeps.

    Args:
        cluster: name of the crowd. A crowd is not a group: ``join`` does not find crowds.
        settings: of this member.
        changes: settings as keywords, which take precedence.

    Raises:
        ConfigError: a setting is wrong, or cannot work here; the store is damaged or in use.
        UsageError: Python's threads are replaced (gevent, eventlet).
    """
    check_threads()
    check_name("cluster", cluster)
    if "transport" in changes or "seeds" in changes:
        raise ConfigError("crowds need multicast: their members do not know each other, so that none can send to each")
    if "key" in changes:
        raise ConfigError("crowds have no key: their messages are not sealed; use a group (seqcast.join)")
    names(changes, [field.name for field in dataclasses.fields(CrowdSettings)], "join_crowd")
    settings = dataclasses.replace(settings or CrowdSettings(), **changes)
    runner = CrowdRunner(cluster, settings)
    try:
        if runner.loopback and not settings.interface:
            text = codes.ONLY_LOOPBACK(only_loopback(runner.group, "crowd"))
            warnings.warn(text, RuntimeWarning, stacklevel=2)  # which may raise
        runner.wait_settled()
    except BaseException:  # also Ctrl-C
        runner.close(0.0)
        raise
    return Crowd(runner, cluster, settings)


class Crowd(Uncopied):
    """A joined crowd. Made by ``join_crowd``. Every method may be called from several threads.

    A crowd that nobody refers to any more is left, with a ResourceWarning.

    Attributes:
        cluster: name of the crowd.
        settings: the settings in use.
        id: the id of this member.
        runner: of its sockets, for this package.
    """

    def __init__(self, runner: CrowdRunner, cluster: str, settings: CrowdSettings) -> None:
        self.runner = runner
        self.cluster, self.settings, self.id = cluster, settings, runner.id

    def send(self, payload: bytes, timeout: float | None = None) -> None:
        """Multicasts a message. The sender gets its own copy.

        Args:
            payload: at most 60,000 bytes. One of more than about 1,400 crosses a network in fragments.
            timeout: seconds to wait if more is sent than ``send_bytes_per_s``, or ``receive_bytes`` wait to be
                received. None: without limit.

        Raises:
            UsageError: the payload is too large, or not bytes.
            SendTimeout: not in time.
            NotMember: this member left, failed, or has lost its address for good; or in a child process after ``fork``.
        """
        self.runner.send(message_of(payload), _seconds(timeout))

    def recv(self, timeout: float | None = None) -> CrowdEvent | None:
        """The next message or event. None: nothing came within the timeout, or this member left.

        Args:
            timeout: seconds. None: without limit.

        Raises:
            SeqcastError: the member failed.
            NotMember: its address is gone for good; or in a child process after ``fork``.
        """
        match self.runner.take(_seconds(timeout)):
            case Delivered(sender, seqno, payload):
                return CrowdMessage(payload, sender, seqno)
            case Missed(sender, first, last):
                return CrowdLost(sender, first, last)
            case HistoryEnd(handlers):
                return CrowdHistory(handlers)
        return None

    def __iter__(self) -> Iterator[CrowdEvent]:
        """All events, until this member leaves."""
        while (event := self.recv()) is not None:
            yield event

    def counters(self) -> dict[str, int]:
        """Counters since the join; those whose meaning begins with "Now:" are current values."""
        return self.runner.counters()

    if counters.__doc__:  # there is none under -OO
        counters.__doc__ += explained(CROWD)

    def leave(self, linger: float = 1.0) -> None:
        """Leaves without asking anybody. Only while it lingers can others still repair losses among its last messages.

        Args:
            linger: seconds in which this member still answers.
        """
        self.runner.close(_seconds(linger) or 0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave(1.0 if kind is None else 0.0)

    def __del__(self) -> None:
        if not self.runner.left:
            warnings.warn(codes.NEVER_LEFT(f"{self!r} was never left"), ResourceWarning, stacklevel=2, source=self)
            self.runner.close(0.0)

    def __repr__(self) -> str:
        return f"<seqcast.Crowd {self.cluster!r} member {address_text(self.id)}>"


def message_of(payload: bytes) -> bytes:
    """The message to send.

    Raises:
        UsageError: the payload is too large, or not bytes.
    """
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise UsageError(f"a message is bytes, not {type(payload).__name__}")
    payload = bytes(payload)
    if len(payload) > PAYLOAD_MAX:
        raise UsageError(f"a message of {len(payload)} bytes: a crowd's messages have at most {PAYLOAD_MAX} bytes")
    return payload


def address_text(member: int) -> str:
    """Address and port of a member, as text."""
    address, port = address_of(member)
    return f"{socket.inet_ntoa(address)}:{port}"


def _seconds(timeout: float | None) -> float | None:
    return None if timeout is None else nanoseconds(timeout) / 1e9
