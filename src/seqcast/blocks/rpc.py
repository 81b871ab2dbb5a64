"""Requests: a member asks others, and gets an answer, or a reason why there is none, from each."""

from __future__ import annotations

import contextlib
import logging
import secrets
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import seqcast.codes as codes
from seqcast._native.engine import Message
from seqcast.api.group import Group, join
from seqcast.arguments import deadline_of, left_until
from seqcast.blocks.closing import Closing
from seqcast.blocks.codec import Codec, codec_of
from seqcast.blocks.formats import check_format
from seqcast.blocks.replica import NEEDED, checked_settings
from seqcast.config import Config
from seqcast.errors import (
    NotInView,
    NotMember,
    NotReady,
    OtherRelease,
    SendTimeout,
    Undecided,
    UsageError,
    without_code,
)
from seqcast.events import Excluded
from seqcast.types import MEMBERS_MAX, Member, View, ViewId

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from seqcast.api.receiving import Event
    from seqcast.config.keywords import Settings

log = logging.getLogger("seqcast")

QUESTIONS_MAX = 1024
QUESTION_BYTES_MAX = 64 << 20
"""The most questions, and the most bytes of them unless a single one is larger, that wait for the handler of a member;
more are refused at once."""
ASKS_MAX = 4096
"""The most calls of ``ask`` that wait on one member."""
TEXT_MAX = 4096
"""Characters of an error's text that travel."""
KEPT_BYTES_MAX = 64 << 20
"""The most bytes of answers that wait for room at their askers; further askers get an error instead."""
PAUSE_S, PAUSE_S_MAX = 0.005, 0.1
"""Pause before an answer that found no room is tried again; twice as long each time."""
PACKET_BYTES = 1024
"""An answer up to this fits into a packet, so one of the attempts finds room for all of it. A larger one may exceed the
window: its send waits for room, and unicasts to others wait behind. So that wait is no longer than the pause before."""
SLOWEST_BYTES_S = 16_000
"""Bytes a second of the slowest path that carries an answer of several packets during the longest wait."""
_HEAD = struct.Struct("<4sBQH")
"""Format, kind, number of the question, and how many members by rank answer it (0: all). Then comes a question's
payload; or an answer's value; or an error's type and text, as a JSON list of two strings; all by a codec."""
_MESSAGE = b"SqR\x01"
"""Format; see `formats`."""
_QUESTION, _VALUE, _ERROR = range(3)
_ERRORS = codec_of("json")

Kind = Literal["answered", "failed", "gone", "unanswered"]


class Reply(NamedTuple):
    """The reply of one member to a question.

    Args:
        kind: "answered": with a ``value``; "failed": the handler raised, or the member refused the question;
            "gone": the member left the view before its answer came; "unanswered": no answer came before ``ask``
            returned, after ``timeout`` or after the ``first`` others.
        value: the answer of the handler; None unless "answered".
        error_type: name of the class of the exception; "" unless "failed".
        text: text of the exception; "" unless "failed".
    """

    kind: Kind
    value: Any = None
    error_type: str = ""
    text: str = ""


@dataclass
class Counters:
    """Questions and answers of one member."""

    answered: int = 0
    """Questions for which the handler returned an answer, for an asker that was still there."""
    failed: int = 0
    """Questions for which the handler raised, or returned a value that the codec cannot carry, or that is too large;
    for an asker that was still there."""
    refused: int = 0
    """Questions that were refused because too many waited (``QUESTIONS_MAX``, ``QUESTION_BYTES_MAX``)."""
    cancelled: int = 0
    """Questions without an answer, because the asker, or this member, was no longer in the group."""
    kept: int = 0
    """Answers that found no room at the asker at once, and were kept until they did, or until the asker left."""
    unsent: int = 0
    """Answers that the asker did not get. An error came instead if too many were kept (``KEPT_BYTES_MAX``), and nothing
    in place of an error that is larger than a message may be, or when more than ``ASKS_MAX`` answers were kept for that
    asker."""
    late: int = 0
    """Answers to this member that no ``ask`` waited for, or that came from a member which was not asked."""
    malformed: int = 0
    """Messages that are neither questions nor answers, or that the codec cannot read."""
    other_release: int = 0
    """Messages of another release, in a format that this one does not know."""
    asks_refused: int = 0
    """Calls of ``ask`` that were refused because ``ASKS_MAX`` others waited."""


@dataclass
class _Ask:
    """A question of this member.

    Args:
        members: those asked, by rank; a guess until the question has its place.
        limit: how many of the view are asked, by rank; None: all.
        first: this many answers suffice; None: all are wanted.
        since: the view in which they were asked; None: the question has no place in the stream yet.
        done: set when there is nothing more to wait for.
    """

    members: Sequence[Member]
    limit: int | None
    first: int | None
    since: ViewId | None
    done: threading.Event
    replies: dict[int, Reply] = field(default_factory=dict)  # by the member's id
    why: str = ""  # no more replies can come

    def place(self, view: View) -> None:
        """The question was delivered in this view."""
        self.members, self.since = view.members[: self.limit], view.view_id
        self.look()

    def take(self, sender: int, reply: Reply) -> bool:
        """An answer; False: nobody waits."""
        if sender in self.replies or len(self.replies) >= MEMBERS_MAX:
            return False
        if self.since is not None and all(member.id != sender for member in self.members):
            return False
        self.replies[sender] = reply
        self.look()
        return True

    def enter(self, view: View) -> None:
        """The next view of the stream, which may be older than one in which a single member was asked."""
        if self.since is not None and view.view_id > self.since:
            for member in self.members:
                if view.rank(member.id) < 0:
                    self.replies.setdefault(member.id, Reply("gone"))
            self.look()

    def end(self, why: str) -> None:
        if not self.done.is_set():
            self.why = why
            self.done.set()

    def look(self) -> None:
        """Ends the wait if there is nothing more to wait for."""
        if self.since is None:
            return
        came = [self.replies[member.id] for member in self.members if member.id in self.replies]
        answers = sum(reply.kind == "answered" for reply in came)
        if len(came) == len(self.members) or (self.first is not None and answers >= self.first):
            self.done.set()

    def result(self) -> dict[Member, Reply]:
        """
        Raises:
            Undecided: no more replies can come.
        """
        if self.why:
            error = Undecided(f"the question was sent, and may or may not have been answered: {self.why}")
            error.sent = 1
            raise error
        return {member: self.replies.get(member.id, Reply("unanswered")) for member in self.members}


class _Question(NamedTuple):
    asker: Member
    number: int
    payload: Any
    size: int


class _Kept:
    """Answers that wait for room at one asker.

    Attributes:
        answers: the oldest first.
        pause_s: pause of the oldest one, which found no room; 0: untried.
        due: time of the next try, on the monotonic clock.
    """

    def __init__(self, asker: Member) -> None:
        self.asker = asker
        self.answers: deque[bytes] = deque()
        self.pause_s = self.due = 0.0

    @property
    def wait_s(self) -> float:
        """How long the send of the oldest one may wait."""
        return self.pause_s if len(self.answers[0]) > PACKET_BYTES else 0.0

    def pause(self) -> None:
        """The oldest one found no room."""
        size = len(self.answers[0])
        most = PAUSE_S_MAX + (size / SLOWEST_BYTES_S if size > PACKET_BYTES else 0.0)
        self.pause_s = min(max(2 * self.pause_s, PAUSE_S), most)
        self.due = time.monotonic() + self.pause_s


class Rpc(Closing):
    """Requests in a group: each member may ask all others, itself included, and answers with its handler, which gets
    all questions to the group in one order::

        with Rpc("workers", lambda question: question * 2, name="a", found=2) as rpc:
            for member, reply in rpc.ask(21).items():
                print(member, reply.kind, reply.value)

    The group belongs to the block: nobody else may receive from it, or send. An excluded member joins again by
    itself. ``ask`` may be called from several threads.

    Args:
        group: name of the group to join; or a group, joined with ``partition="primary"`` and ``safe=True``, from which
            nobody has received.
        handler: gets the payload of a question, and returns the answer; the codec must carry both. The handler runs on
            one thread of the block, for one question after the other, so a slow one delays all later questions. The
            asker is told the type and the text of an exception. None: this member only asks, and refuses questions.
        codec: "json", "msgpack" (``pip install 'seqcast[msgpack]'``), or an object with ``dumps`` and ``loads``; the
            same on every member.
        name, config, info, settings: as for ``join``, with a name of a group. ``partition="primary"`` and
            ``safe=True`` are set.

    Attributes:
        group: the group, for its ``view``, ``member`` and ``status``.
        counters: questions and answers of this member so far.

    Raises:
        ConfigError: ``codec`` is not one, or a setting is wrong or contradicts the block.
        UsageError: settings were given for a group that is joined already.
        JoinTimeout: as for ``join``.
    """

    def __init__(
        self,
        group: Group | str,
        handler: Callable[[Any], Any] | None = None,
        *,
        codec: str | Codec = "json",
        name: str | None = None,
        config: Config | None = None,
        info: Mapping[str, Any] | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        self._codec = codec_of(codec)
        self._handler = handler
        self.counters = Counters()
        if isinstance(group, Group):
            if settings or any(each is not None for each in (name, config, info)):
                raise UsageError("the group is joined already: give its name and its settings to join")
            checked_settings("Rpc", group.config, {key: getattr(group.config, key) for key in NEEDED})
            self.group = group
        else:
            config = checked_settings("Rpc", config, dict(settings))
            self.group = join(group, name=name, config=config, rejoin=True, info=info)
        self._lock = threading.Condition()
        # Under `_lock`:
        self._asks: dict[int, _Ask] = {}
        self._next = secrets.randbits(63)
        self._why = ""  # over
        self._questions: deque[_Question] = deque()
        self._waiting: list[_Question] = []  # transitional: until a view with this member
        self._held = 0  # bytes of both
        self._present: frozenset[int] = frozenset(member.id for member in self.group.view)
        self._asker = 0  # id of the member whose question the handler has
        self._kept: dict[int, _Kept] = {}  # by the asker's id; the next one to be tried first
        self._kept_bytes = 0
        self._sending: threading.Thread | None = None  # of kept answers, once there were any
        self._on_gone: Callable[[], object] = lambda: None  # for a handler that can be cancelled
        # Of the thread that receives:
        self._view = self.group.view
        cluster = self.group.cluster
        self._answering = threading.Thread(target=self._answer_all, name=f"seqcast-rpc-answer-{cluster}", daemon=True)
        self._receiving = threading.Thread(target=self._receive, name=f"seqcast-rpc-{cluster}", daemon=True)
        self._answering.start()
        self._receiving.start()

    # ---- asking

    def ask(
        self, payload: Any, *, to: Member | str | int = "all", first: int | None = None, timeout: float | None = 5.0
    ) -> dict[Member, Reply]:
        """Asks members, and waits for their replies. A question to several travels as a message to the group: all
        handlers take such questions in one order.

        Args:
            payload: the question, for the handlers.
            to: "all": the members of the view in which the question is delivered, this one included; a number: that
                many of them, by rank; a member, or its name: that one alone.
            first: returns after this many answers, errors not counted. None: waits for all that are still in the view.
            timeout: seconds for the whole call; None: no limit.

        Returns:
            A reply for each member that was asked, by rank. Members that leave the view are not waited for.

        Raises:
            SendTimeout: the question could not be sent within ``timeout``; no member gets the question.
            NotInView: no member of the view has this name, or the member is not in the view.
            NotMember: this member is not in the group now.
            Undecided: this member left or was excluded meanwhile; handlers may have run.
            NotReady: the block was closed, or has failed; or ``ASKS_MAX`` calls wait already.
            UsageError: an argument has a wrong value, the question is too large, or a handler of this block asks: its
                own answer would wait behind that question.
            Exception: raised by the codec.
        """
        if threading.current_thread() is self._answering:
            raise UsageError("a handler cannot ask, as answers would wait behind it: ask on another thread")
        return self._ask(payload, to, first, timeout, threading.Event())

    def _ask(
        self, payload: Any, to: Member | str | int, first: int | None, timeout: float | None, done: threading.Event
    ) -> dict[Member, Reply]:
        """``ask``, whose wait ends, too, when somebody sets ``done``."""
        deadline = deadline_of(timeout)
        with self._asking(payload, to, first, timeout, done) as ask:
            left = left_until(deadline)
            ask.done.wait(None if left is None else min(left, threading.TIMEOUT_MAX))
        return ask.result()

    @contextlib.contextmanager
    def _asking(
        self, payload: Any, to: Member | str | int, first: int | None, timeout: float | None, done: threading.Event
    ) -> Iterator[_Ask]:
        """A question that was sent, and takes replies until the end of ``with``."""
        if first is not None:
            _check_number("first", first)
        data = self._codec.dumps(payload)
        self._refuse_over()
        ask, receiver = self._asked(to, first, done)
        with self._lock:
            self._refuse_over()
            if len(self._asks) >= ASKS_MAX:
                self.counters.asks_refused += 1
                raise NotReady(f"{ASKS_MAX} calls of ask wait already: wait for some of them, or set a shorter timeout")
            number = self._next = (self._next + 1) % (1 << 64)
            self._asks[number] = ask
        try:
            message = _HEAD.pack(_MESSAGE, _QUESTION, number, ask.limit or 0) + data
            self.group.send(message, to=receiver, timeout=timeout)
            yield ask
        finally:
            with self._lock:
                del self._asks[number]

    def _asked(self, to: Member | str | int, first: int | None, done: threading.Event) -> tuple[_Ask, Member | None]:
        """The question, and the single receiver of its message; None: the group."""
        view = self.group.sending_view
        if isinstance(to, int):
            _check_number("to", to)
            limit = min(to, MEMBERS_MAX)
            return _Ask(view.members[:limit], limit, first, None, done), None
        if to == "all":
            return _Ask(view.members, None, first, None, done), None
        if isinstance(to, str):
            found = [member for member in view if member.name == to]
            if len(found) != 1:
                raise NotInView(f"{len(found)} members of the {view} are named {to!r}: ask a Member of group.view")
            to = found[0]
        if not isinstance(to, Member):
            raise UsageError(f"to={to!r} must be 'all', a number of members, a Member of group.view, or its name")
        return _Ask((to,), None, first, view.view_id, done), to

    def _refuse_over(self) -> None:
        if self._why:
            raise NotReady(f"this Rpc cannot ask any more: {self._why}")

    # ---- receiving

    def _receive(self) -> None:
        why = "the block has failed"
        try:
            while True:
                self._take(self.group.next_event())
        except NotMember as error:
            why = without_code(error)
        except BaseException as error:
            why = f"the block has failed: {error!r}"
            log.exception(codes.CALLBACK_FAILED("the requests of %s have failed"), self.group.cluster)
        finally:
            self._end(why)
            self.group.leave(0)

    def _take(self, event: Event | None) -> None:
        if isinstance(event, Message):
            self._message(event)
        elif isinstance(event, View):
            self._view = event
            with self._lock:
                self._present = frozenset(member.id for member in event)
                self._look_for_asker()
                self._questions += self._waiting
                self._waiting = []
                for ask in self._asks.values():
                    ask.enter(event)
                self._lock.notify_all()
        elif isinstance(event, Excluded):
            with self._lock:
                self._cut_off(event.reason)

    def _message(self, message: Message) -> None:
        try:
            check_format(message.payload, _MESSAGE)
            _, kind, number, limit = _HEAD.unpack_from(message.payload)
            data = message.payload[_HEAD.size :]
            if kind not in (_QUESTION, _VALUE, _ERROR):
                raise ValueError("of another kind")
            if kind == _QUESTION:
                question = _Question(message.sender, number, self._codec.loads(data), len(data))
            elif message.unicast:
                reply = self._read(kind, data)
            else:
                raise ValueError("an answer to the group")
        except OtherRelease as other:  # no state is lost, so the block goes on; the asker sees who has not answered
            if not self.counters.other_release:
                log.warning(codes.OTHER_RELEASE("%s: %s"), message.sender, without_code(other))
            self.counters.other_release += 1
            return
        except Exception:  # the codec may raise any
            self.counters.malformed += 1
            return
        if kind == _QUESTION:
            self._asked_by(message, question, limit)
        else:
            with self._lock:
                ask = self._asks.get(number)
                if ask is None or not ask.take(message.sender.id, reply):
                    self.counters.late += 1

    def _read(self, kind: int, data: bytes) -> Reply:
        """
        Raises:
            Exception: not valid.
        """
        if kind == _VALUE:
            return Reply("answered", self._codec.loads(data))
        name, text = _ERRORS.loads(data)
        if not (isinstance(name, str) and isinstance(text, str)):
            raise TypeError("type and text of an error are strings")
        return Reply("failed", None, name[:TEXT_MAX], text[:TEXT_MAX])

    def _asked_by(self, message: Message, question: _Question, limit: int) -> None:
        """A question was delivered."""
        me = self.group.member.id
        with self._lock:
            if not message.unicast:
                ask = self._asks.get(question.number) if message.sender.id == me else None
                if ask is not None:
                    ask.place(self._view)
                if limit and self._view.rank(me) >= limit:
                    return
            if self._why:
                return
            waiting = len(self._questions) + len(self._waiting)
            full = waiting >= QUESTIONS_MAX or (waiting > 0 and self._held + question.size > QUESTION_BYTES_MAX)
            if full:
                self.counters.refused += 1
            else:
                self._held += question.size
                (self._waiting if message.transitional or self._waiting else self._questions).append(question)
                self._lock.notify_all()
        if full:
            self._send(question, _ERROR, _error("NotReady", f"{waiting} questions wait already"))

    # ---- answering

    def _answer_all(self) -> None:
        while self._answer_next():
            pass

    def _answer_next(self) -> bool:
        """Waits for a question, and answers it, unless its asker is gone; False: this is over."""
        with self._lock:
            self._lock.wait_for(lambda: self._questions or self._why)
            if self._why:
                return False
            question = self._questions.popleft()
            self._held -= question.size
            if question.asker.id not in self._present:
                self.counters.cancelled += 1
                return True
            self._asker = question.asker.id
        kind, data = self._answer(question)
        with self._lock:
            needless, self._asker = self._is_needless(), 0
            self._count(1, kind, needless)
        if not needless and not self._send(question, kind, data):
            with self._lock:
                self._count(-1, kind, False)
                self._count(1, kind, True)
        return True

    def _count(self, number: int, kind: int, needless: bool) -> None:
        """Under the lock."""
        if needless:
            self.counters.cancelled += number
        elif kind == _VALUE:
            self.counters.answered += number
        else:
            self.counters.failed += number

    def _look_for_asker(self) -> None:
        """Under the lock."""
        if self._is_needless() and not self._why:
            self._on_gone()

    def _is_needless(self) -> bool:
        """Nobody waits for the answer that the handler makes."""
        return bool(self._asker) and self._asker not in self._present

    def _answer(self, question: _Question) -> tuple[int, bytes]:
        """Kind and data of the answer."""
        try:
            if self._handler is None:
                raise NotReady("this member has no handler")
            data = self._codec.dumps(self._handler(question.payload))
            if len(data) + _HEAD.size > self.group.config.message_bytes_max:
                raise UsageError(f"the answer has {len(data)} bytes, more than message_bytes_max")
            return _VALUE, data
        except BaseException as error:  # also SystemExit: the asker is told, and later questions are answered
            return _ERROR, _error(type(error).__name__, _text(error))

    def _send(self, question: _Question, kind: int, data: bytes) -> bool:
        """Sends an answer, or keeps that until there is room; False: the asker, or this member, is gone."""
        with self._lock:
            if self._why:
                return False
            behind = question.asker.id in self._kept
        message = _HEAD.pack(_MESSAGE, kind, question.number, 0) + data
        sent = None if behind else self._try(question.asker, message, 0.0)
        if sent is None:
            self._keep(question, message)
        return sent is not False

    def _try(self, asker: Member, message: bytes, wait_s: float) -> bool | None:
        """Sends an answer, unless that is larger than a message may be; False: nobody is there; None: there was no
        room."""
        try:
            self.group.send(message, to=asker, timeout=wait_s)
        except (NotInView, NotMember):
            return False
        except SendTimeout:
            return None
        except UsageError:
            with self._lock:
                self.counters.unsent += 1
        return True

    def _keep(self, question: _Question, message: bytes) -> None:
        """Without this, an asker that takes its answers late, and set no timeout, would wait for ever."""
        with self._lock:
            if self._why:
                return
            self.counters.kept += 1
            if self._kept_bytes + len(message) > KEPT_BYTES_MAX:
                self.counters.unsent += 1
                error = _error("NotReady", "the answer found no room at the asker, and too many others wait for some")
                message = _HEAD.pack(_MESSAGE, _ERROR, question.number, 0) + error
            kept = self._kept.setdefault(question.asker.id, _Kept(question.asker))
            if len(kept.answers) >= ASKS_MAX:  # more than an asker has calls that wait
                self.counters.unsent += 1
                self._kept_bytes -= len(kept.answers.popleft())
            kept.answers.append(message)
            self._kept_bytes += len(message)
            if self._sending is None:
                name = f"seqcast-rpc-send-{self.group.cluster}"
                self._sending = threading.Thread(target=self._send_kept, name=name, daemon=True)
                self._sending.start()
            self._lock.notify_all()

    def _send_kept(self) -> None:
        """On a thread of its own, so that no question waits behind an asker without room."""
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._kept or self._why)
                if self._why:
                    return
                now = time.monotonic()
                due = [kept for kept in self._kept.values() if kept.due <= now]
                if not due:
                    self._lock.wait(min(kept.due for kept in self._kept.values()) - now)
                    continue
                tries = [kept for kept in due if not kept.wait_s] or due[:1]
            for kept in tries:
                self._send_oldest(kept)

    def _send_oldest(self, kept: _Kept) -> None:
        """Sends the oldest answer that is kept for an asker, if there is room."""
        with self._lock:
            if self._kept.get(kept.asker.id) is not kept:  # we were cut off
                return
            message, wait_s = kept.answers[0], kept.wait_s
        done = self._try(kept.asker, message, wait_s) is not None
        with self._lock:
            if self._kept.get(kept.asker.id) is not kept:
                return
            if not done:
                kept.pause()
            else:
                kept.pause_s = 0.0
                if kept.answers[0] is message:
                    kept.answers.popleft()
                    self._kept_bytes -= len(message)
            del self._kept[kept.asker.id]
            if kept.answers:
                self._kept[kept.asker.id] = kept  # behind those of others

    # ---- the end

    def close(self) -> None:
        """Leaves the group, and answers nothing any more. Calls of ``ask`` that wait raise ``Undecided``. A handler
        that runs is waited for, up to ``leave_timeout_s``. A second call does nothing."""
        self._end("it was closed")
        self.group.leave()
        for thread in (self._receiving, self._answering, self._sending):
            if thread is not None and thread is not threading.current_thread():
                thread.join(self.group.config.leave_timeout_s)
        self.group.close_journal()

    def _end(self, why: str) -> None:
        with self._lock:
            self._why = self._why or why
            self._cut_off(why)

    def _cut_off(self, why: str) -> None:
        """This member is in the group no longer. Under the lock."""
        self.counters.cancelled += len(self._questions) + len(self._waiting)
        self._questions.clear()
        self._waiting, self._held = [], 0
        self._kept.clear()
        self._kept_bytes = 0
        self._present = frozenset()
        self._look_for_asker()
        for ask in self._asks.values():
            ask.end(why)
        self._lock.notify_all()


def _check_number(what: str, number: object) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise UsageError(f"{what}={number!r} must be a number of members, 1 or more")


def _error(name: str, text: str) -> bytes:
    return _ERRORS.dumps([name[:TEXT_MAX], text[:TEXT_MAX]])


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its text could not be made)"
