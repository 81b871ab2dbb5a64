"""``replicate``: a state machine that every member of a group has, and that survives all but a majority of them."""

from __future__ import annotations

import _thread
import contextlib
import functools
import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import seqcast.codes as codes
from seqcast._native.engine import Message
from seqcast.abandoned import Abandoned
from seqcast.abandoned import Call as Wait
from seqcast.api.group import ENDING, Group, join, open_groups
from seqcast.arguments import as_about, check_name, deadline_of, left_until, nanoseconds
from seqcast.blocks.clock import Estimate
from seqcast.blocks.closing import Closing
from seqcast.blocks.disk import DiskLog
from seqcast.blocks.durable import Durable
from seqcast.blocks.log import FORGOTTEN, Answer, Applied, Counters, Log, Machine
from seqcast.blocks.outbox import MESSAGE_BYTES, READ, Call, Outbox
from seqcast.config import Config
from seqcast.errors import (
    ConfigError,
    JoinRefused,
    JoinTimeout,
    MachineError,
    NotMember,
    NotReady,
    OtherRelease,
    SendTimeout,
    SeqcastError,
    StableFailed,
    Undecided,
    UsageError,
    without_code,
)
from seqcast.events import Blocked, Excluded, Unblocked
from seqcast.net.threads import exit_now
from seqcast.types import View

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from seqcast.api.receiving import Event
    from seqcast.config.keywords import Settings

log = logging.getLogger("seqcast")

Guarantee = Literal["local", "read-your-writes", "linearizable"]
GUARANTEES = ("local", "read-your-writes", "linearizable")
NEEDED = {
    "partition": "primary", "safe": True, "receive": True, "deliver_own": True, "send_while_blocked": "wait",
    "observer": False,
}  # fmt: skip
"""Settings without which a replica would not keep its promises."""
ACK_DELAY_S = 2e-5
"""A call waits for up to this, so replicas acknowledge sooner than other members."""
AGAIN_S = 0.5
"""Pause before a join that was refused is tried again."""
HEAD_BYTES = 256
"""Room for the head of a message."""
TICK_S = 0.01
"""The shortest time between two messages that only tell the time."""

M = TypeVar("M", bound=Machine)
T = TypeVar("T")


def replicate(
    cluster: str,
    machine: M,
    *,
    name: str | None = None,
    config: Config | None = None,
    info: Mapping[str, Any] | None = None,
    ready_s: float = 5.0,
    **settings: Unpack[Settings],
) -> Replica[M]:
    """Joins, or founds, a group of replicas of a state machine. Use the result in ``with``, which leaves the group.

    A replica that is cut off and excluded joins again by itself, and takes over the state of the group. Set ``found``
    to a majority of the intended replicas on all of them: otherwise one that starts while cut off founds a
    second group.

    Args:
        cluster: name of the group; the same on every member.
        machine: the state, as ``apply(operation)``, ``snapshot(write)`` and ``restore(read)``; see ``Machine``. Its
            methods are called by one thread at a time. On the first member of a group the machine keeps its own state.
        name: name of this member. Default: host name and process id.
        config: settings. Default: those of the environment. ``partition="primary"`` and ``safe=True`` are set, and
            ``ack_delay_s`` is 20 µs unless a keyword says otherwise.
        info: facts about this member for all others; see ``join`` and ``Replica.set_info``.
        ready_s: seconds to wait for the first join. After that ``replicate`` returns all the same, the replica keeps
            trying to join, and ``why`` names the missing condition. 0: return at once.
        settings: settings as keywords; see docs/config.md. With ``stable=PATH``, on every replica, the state is also on
            disk, in ``PATH.log``, and replaces that of the machine at the start; ``call`` returns once a majority has
            the operation on disk.

    Raises:
        ConfigError: a setting is wrong, cannot work here, or contradicts a replica's needs; a file of ``stable=``
            cannot be used.
        StableFailed: a file of ``stable=`` cannot be written.
        JoinRefused: the group refuses this member.
        UsageError: the machine lacks a function, or ``info`` is too long or not a JSON object.
        NotReady: the machine failed, as in ``restore``; the cause is its error.
        OtherRelease: the state is that of another release.
    """
    check_name("cluster", cluster)
    for function in ("apply", "snapshot", "restore"):
        if not callable(getattr(machine, function, None)):
            raise UsageError(f"machine={machine!r} must have the functions apply, snapshot and restore")
    config = checked_settings("a replica", config, dict(settings))
    as_about(info or {})
    wait_s = nanoseconds(ready_s, "ready_s") / 1e9
    replica = Replica(cluster, machine, name, config, info)
    replica._start(wait_s)
    return replica


def checked_settings(who: str, config: Config | None, settings: dict[str, Any]) -> Config:
    """The config of a block's group.

    Args:
        who: the block, for the error.
        config: base of the settings; None: the environment.
        settings: by name.

    Raises:
        ConfigError: one of them is wrong, or contradicts `NEEDED`.
    """
    for key, value in NEEDED.items():
        if settings.get(key, value) != value:
            raise ConfigError(f"{key}={settings[key]!r}: {who} needs {key}={value!r}")
    config = Config.from_environment(**{**settings, **NEEDED}) if config is None else config
    return config.replace(**{"ack_delay_s": min(config.ack_delay_s, ACK_DELAY_S), **settings, **NEEDED})


def _nothing() -> None:
    """For a call that nobody waits for by itself."""


class _Waiter(Call):
    """The call of a thread that waits.

    Attributes:
        alone: the thread is to wake no other one. Nobody waits any more, though the operation may yet be answered; or
            this is the main thread, which any number of signals may interrupt, and whose handlers may take long.
        woken: ``wake`` was called.
        then: the call of the thread that this one wakes in turn.
    """

    __slots__ = ("_lock", "alone", "then", "woken")

    def __init__(self, operation: bytes | None, own: bool, seen: int) -> None:
        super().__init__(operation, self.wake, own, seen)
        self._lock = _thread.allocate_lock()
        self._lock.acquire()
        self.alone = threading.current_thread() is threading.main_thread()
        self.woken = False
        self.then: _Waiter | None = None

    def wake(self) -> None:
        self.woken = True
        self._lock.release()

    def wait(self, seconds: float) -> bool:
        """False: not woken in time; < 0: no limit."""
        return self.woken or self._lock.acquire(True, seconds)


class Replica(Closing, Generic[M]):
    """A replica of a state machine. Made by ``replicate``. Every method may be called from several threads.

    Attributes:
        cluster: name of the group.
        machine: the application's, for ``read``.
    """

    def __init__(
        self, cluster: str, machine: M, name: str | None, config: Config, info: Mapping[str, Any] | None = None
    ) -> None:
        self.cluster, self.machine = cluster, machine
        self._name, self._config = name, config
        self._log = Log(machine)
        self._durable: Durable | None = None
        if config.stable:
            if name is None:
                raise ConfigError("stable= needs name=: others know a member that starts again by its name")
            self._durable = Durable(DiskLog(config.stable, cluster, name), self._log, self._settle, self._disk_failed)
        self._applying = threading.Lock()  # of the log and the machine
        self._estimate = Estimate(lambda: time.monotonic_ns())
        self._due: Callable[[], int | None] | None = getattr(machine, "due", None)
        self._lock = threading.Condition(_thread.allocate_lock())
        # Under `_lock`:
        self._info = info
        self._gathers = min(MESSAGE_BYTES, config.message_bytes_max - HEAD_BYTES)
        self._outbox = Outbox(secrets.randbits(64), lambda: self._estimate.now_ns(), self._log.counters, self._gathers)
        self._disk_error: SeqcastError | None = None
        self._group: Group | None = None  # while this replica is in its group, and has its state
        self._was_member = False
        self._why = "it joins"
        self._part: _Part | None = None  # of the membership, by which its group is known while it joins
        self._failure: BaseException | None = None  # the end, by `close` as well
        self._failed: BaseException | None = None  # the same, not by `close`
        self._on_failed: list[Callable[[BaseException], object]] = []
        self._closing = False
        self._callbacks: list[Callable[[Event | None], object]] = []
        # Of the thread that follows the group:
        self._view: View | None = None
        self._me = 0  # id of the member
        self._ticked = 0.0
        self._joining = Wait()
        self._unsent: queue.SimpleQueue[tuple[Group, bytes] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"seqcast-replica-{cluster}", daemon=True),
            threading.Thread(target=self._pump, name=f"seqcast-replica-send-{cluster}", daemon=True),
        ]
        if self._durable is not None:
            disk = threading.Thread(target=self._durable.run, name=f"seqcast-replica-disk-{cluster}", daemon=True)
            self._threads.append(disk)
        if (bind := getattr(machine, "bind", None)) is not None:
            bind(self)

    # ---- its state

    @property
    def why(self) -> str:
        """Why this replica is not ready, as text for people; "" if ready."""
        with self._lock:
            group, why = self._group, self._reason()
            failed, part = self._failure is not None, self._part
        if group is None:
            waits_for = [each.status.reason for each in open_groups() if part is not None and each._state is part]
            return why if failed else "".join(waits_for) or why
        status = group.status
        return "" if status == "member" else status.reason or f"it is {status}"

    def _reason(self) -> str:
        """Why this replica is not in its group. Under the lock."""
        return self._why if self._failure is None else without_code(self._failure) or repr(self._failure)

    @property
    def ready(self) -> bool:
        """This replica is in its group, has the state, and can send: calls and reads are answered now."""
        return not self.why

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Waits for readiness.

        Args:
            timeout: seconds; None: no limit.

        Returns:
            False: not within ``timeout``; ``why`` names the missing condition.

        Raises:
            SeqcastError: this replica will never be ready: closed, or refused.
        """
        end = deadline_of(timeout)
        while not self.ready:
            with self._lock:
                self._refuse_failed()
                left = 0.05 if end is None else min(0.05, end - time.monotonic())
                if left <= 0:
                    return False
                self._lock.wait(left)
        return True

    @property
    def failed(self) -> BaseException | None:
        """The error that has ended this replica for good, such as `StableFailed`; None: none has. To go on, end the
        process, and start it again."""
        return self._failed

    def on_failed(self, callback: Callable[[BaseException], object]) -> None:
        """Calls a function with the error once this replica has ended for good without ``close``: its disk fails, its
        machine raised in ``restore``, or the group refuses it. A service then ends its process, for a supervisor to
        start it again; otherwise the process would run on, and answer nothing. The function runs on a thread of its
        own; if the replica has failed already, it is called now. ``sys.exit`` there ends the process with its code, at
        once: other threads, which may hang, have no say, and functions given later are not called."""
        with self._lock:
            if self._failed is None:
                self._on_failed.append(callback)
                return
        self._tell_failed([callback], self._failed)

    def _tell_failed(self, callbacks: list[Callable[[BaseException], object]], failed: BaseException) -> None:
        def tell() -> None:
            for callback in callbacks:
                try:
                    callback(failed)
                except SystemExit as error:  # which Python passes over on any thread but the main one
                    exit_now(error)
                except KeyboardInterrupt:
                    _thread.interrupt_main()
                except BaseException:
                    log.exception(codes.CALLBACK_FAILED("a function that on_failed was given failed"))

        if callbacks:
            threading.Thread(target=tell, name=f"seqcast-replica-failed-{self.cluster}", daemon=True).start()

    @property
    def group(self) -> Group:
        """The group, for its ``view``, ``member``, ``fence`` and ``counters``. A different object after each exclusion.
        Do not receive from this group.

        Raises:
            NotReady: this replica is in none now.
        """
        with self._lock:
            if self._group is None:
                raise NotReady(f"this replica is not in its group: {self._reason()}")
            return self._group

    def set_info(self, info: Mapping[str, Any]) -> None:
        """Gives this member another info, as ``Group.set_info``. Later incarnations join with that info.

        Args:
            info: the whole new info.

        Raises:
            UsageError: the info cannot be written as a JSON object, or is too long.
        """
        as_about(info)
        with self._lock:
            self._info, group = info, self._group
        if group is not None:
            with contextlib.suppress(NotMember):
                group.set_info(info)

    @property
    def counters(self) -> Counters:
        """The fate of operations here, since this replica was made."""
        return self._log.counters

    # ---- calls and reads

    def call(self, operation: bytes, *, timeout: float | None = 5.0) -> bytes:
        """Has every replica apply an operation, once, and returns the answer of this one. A call that returns is
        decided: no partition, and no crash of fewer than a majority, undoes that, and every later linearizable read
        sees it. If this replica is excluded meanwhile, the replica joins again and finds out, or sends the operation
        again, which is then applied once.

        Args:
            operation: for ``Machine.apply``.
            timeout: seconds; None: no limit.

        Raises:
            Undecided: no answer within ``timeout``, or the replica was closed. With ``error.sent == 0`` the call was
                not sent, and will not be; otherwise, it may or may not be applied.
            MachineError: ``apply`` raised.
            NotReady: the replica was closed before, or can never join.
            UsageError: the operation is not bytes, or larger than a message can be; or the machine makes the call, or a
                function given to ``on_change``.
        """
        return self._result(self._wait_for(self._checked(operation), False, timeout))

    def call_many(self, operations: Sequence[bytes], *, timeout: float | None = 5.0) -> list[bytes]:
        """Calls several operations, and waits once, for all their answers: cheaper than as many calls, which wait one
        after the other. One message carries all, so they are applied in this order, with no other operation between
        them, each once, as by ``call``: all of them or none. (If ``apply`` refuses one, the others are applied all the
        same.)

        Args:
            operations: for ``Machine.apply``; together at most 128 KiB less 4 bytes each, or ``message_bytes_max`` less
                256 if that is less.
            timeout: seconds; None: no limit.

        Returns:
            The answers, in the order of the operations.

        Raises:
            Undecided: no answers within ``timeout``, or the replica was closed. With ``error.sent == 0`` no operation
                was sent, and none will be; otherwise, all may be applied, or none.
            MachineError: ``apply`` raised, for those operations that have None in ``error.answers``. All others were
                applied, and have their answers there; the text says how many.
            UsageError: the operations are too large together; or as for ``call``.
            NotReady: as for ``call``.
        """
        calls = self._many(operations, lambda last: _Waiter(last, False, 0))
        return self._results(self._wait(calls, timeout)) if calls else []

    def _many(self, operations: Sequence[bytes], last: Callable[[bytes], Call]) -> list[Call]:
        """A call for each operation, of which somebody waits for the last: the message that answers that one answers
        all."""
        if isinstance(operations, bytes | bytearray | memoryview):
            raise UsageError("call_many takes a sequence of operations: for a single one there is call")
        checked = [self._checked(operation) for operation in operations]
        calls = [*(Call(operation, _nothing) for operation in checked[:-1]), *map(last, checked[-1:])]
        if len(calls) > 1 and (size := sum(call.size for call in calls)) > self._gathers:
            raise UsageError(
                f"{len(calls):,} operations have {size:,} bytes with their lengths, and one message carries at most "
                f"{self._gathers:,}: divide them, or use call"
            )
        return calls

    def read(self, query: Callable[[M], T], *, guarantee: Guarantee = "linearizable", timeout: float | None = 5.0) -> T:
        """Reads the machine, between two operations.

        Args:
            query: gets the machine, and returns the value to read. The query must not change the machine, keep a part
                of it, wait, or call this replica.
            guarantee: "linearizable" (default): sees everything that any replica was answered before this call, also if
                this replica is cut off without knowing so: then the read waits. Such a read costs a round of an ordered
                message, which all reads and calls that come during one share. "read-your-writes": sees every operation
                for which ``call`` was called on this replica before, whether answered or not; costs nothing if none is
                under way. "local": this replica's present state, at once.
            timeout: seconds; None: no limit.

        Raises:
            NotReady: the guarantee could not be given within ``timeout``, the replica has no state yet, or was closed.
            SeqcastError: the one that has ended this replica; see ``failed``.
            UsageError: the guarantee is unknown; or the machine makes the read, or a function given to ``on_change``.
        """
        if guarantee not in GUARANTEES:
            raise UsageError(f"guarantee={guarantee!r} must be one of {', '.join(map(repr, GUARANTEES))}")
        end = deadline_of(timeout)
        while True:
            if guarantee != "local":
                self._check_read(self._wait_for(None, guarantee == "read-your-writes", left_until(end)))
            found = self._read_now(query, left_until(end))
            if found is None:
                raise self._is_busy()
            value, seen = found
            if guarantee != "linearizable" or not seen:
                return value
            call = self._wait_for(None, False, left_until(end), seen)
            self._check_read(call)
            if call.answer is READ:
                return value

    def _read_now(self, query: Callable[[M], T], wait_s: float | None) -> tuple[T, int] | None:
        """The value, and with ``stable=`` the position that was seen, else 0; None: the machine was not free within
        ``wait_s``, as it applies an operation, or a snapshot is written to a slow disk."""
        self._check_thread()
        if self._failure is not None:
            self._refuse_failed()
        if not self._was_member:
            raise NotReady(f"this replica has no state yet: {self.why}")
        if not self._applying.acquire(timeout=-1.0 if wait_s is None else min(max(wait_s, 0.0), threading.TIMEOUT_MAX)):
            return None
        try:
            return query(self.machine), self._log.mark.position if self._durable is not None else 0
        finally:
            self._applying.release()

    def _check_thread(self) -> None:
        if threading.current_thread() is self._threads[0]:
            raise UsageError(
                "a machine, or a function that on_change was given, cannot call or read its own replica, which waits "
                "for its end: do that on another thread"
            )

    def _is_busy(self) -> NotReady:
        return NotReady(f"the machine of {self.cluster} was not free in time: an operation, or its disk, takes long")

    def _wait_for(self, operation: bytes | None, own: bool, timeout: float | None, seen: int = 0) -> Call:
        """Begins a call, and waits for its answer; without one after ``timeout``, nobody waits any more."""
        return self._wait([_Waiter(operation, own, seen)], timeout)[0]

    def _wait(self, calls: list[Call], timeout: float | None) -> list[Call]:
        """The same for several operations, of which the last has the waiter."""
        self._check_thread()
        call = calls[-1]
        assert isinstance(call, _Waiter)
        wait = -1.0 if timeout is None else min(nanoseconds(timeout) / 1e9, threading.TIMEOUT_MAX)
        try:
            if not self._begin(*calls) and not call.wait(wait):
                self._give_up(*calls)
        except BaseException:
            self._give_up(*calls)
            raise
        finally:
            if call.then is not None:
                call.then.wake()
        return calls

    def _wake(self, answered: list[Call]) -> None:
        """Threads wake each other in turn: woken at once, each would wait a second time, for the interpreter's lock.
        A thread that gives up before the turns are set is not among them; one that gives up later still wakes the
        next."""
        if not answered:
            return
        at_once: list[Call] = []
        last: _Waiter | None = None
        with self._lock:
            for call in answered:
                if not isinstance(call, _Waiter) or call.alone:
                    at_once.append(call)
                    continue
                if last is None:
                    at_once.append(call)
                else:
                    last.then = call
                last = call
        for call in at_once:
            call.done()

    def _begin(self, *calls: Call) -> bool:
        """Takes a call, or several of operations, and sends the waiting operations; True: answered already."""
        call = calls[-1]
        if call.seen and self._durable is not None:
            if self._durable.add(call):
                return True
            call = Call(None, _nothing)  # a message, whose receivers tell us how far their disks go
        try:
            with self._lock:
                self._refuse_failed()
                if len(calls) > 1:
                    self._outbox.add_all(calls)
                elif self._outbox.add(call):
                    return True
                unsent = self._composed()
            if unsent is not None:
                self._transmit(*unsent)
        except BaseException:
            self._send_again()
            raise
        return False

    def _send_again(self) -> None:
        """A signal came while a message was made or sent: perhaps nobody sends that message, and then no later call
        would leave. All calls without an answer are sent again, and applied once."""
        with self._lock:
            self._outbox.rejoined(None)
            unsent = self._composed()
        if unsent is not None:
            self._unsent.put(unsent)

    def _composed(self) -> tuple[Group, bytes] | None:
        """The next message, and the group to send it to; under the lock."""
        group = self._group
        if group is None or (message := self._outbox.compose()) is None:
            return None
        return group, message

    def _give_up(self, *calls: Call) -> None:
        """Nobody waits for these any more."""
        call = calls[-1]
        if call.seen and self._durable is not None:
            self._durable.give_up(call)
            return
        with self._lock:
            if isinstance(call, _Waiter):
                call.alone = True
            served = self._outbox.give_up(*calls) if call.answer is None else []
        for each in served:
            each.done()

    def _refuse_failed(self) -> None:
        """Under the lock."""
        if self._failure is not None:
            if isinstance(self._failure, SeqcastError):
                raise self._failure
            raise NotReady(f"this replica has failed: {self._failure!r}") from self._failure

    def _checked(self, operation: bytes) -> bytes:
        if not isinstance(operation, bytes):
            raise UsageError(f"an operation is bytes, not {type(operation).__name__}: encode the operation")
        if len(operation) > self._config.message_bytes_max - HEAD_BYTES:
            raise UsageError(
                f"the operation has {len(operation)} bytes, and message_bytes_max={self._config.message_bytes_max}"
            )
        return operation

    def _result(self, call: Call) -> bytes:
        answer = call.answer
        if answer is None:
            fate = "sent, and may or may not be applied" if call.sent else "not sent"
            error = Undecided(f"{fate}: {self._what_lacks()}")
            error.sent = int(call.sent)
            raise error
        return data_of(answer)

    def _results(self, calls: list[Call]) -> list[bytes]:
        answers = [call.answer for call in calls]
        if None in answers:
            sent = len(calls) if calls[-1].sent else 0
            text = f"{sent:,} operations were sent, and all or none of them may be applied" if sent else "not sent"
            error = Undecided(f"{text}: {self._what_lacks()}")
            error.sent = sent
            raise error
        if answers[0] is FORGOTTEN:
            data_of(FORGOTTEN)
        found = [answer for answer in answers if answer is not None]
        refused = [place for place, answer in enumerate(found) if not answer.ok]
        if refused:
            failed = MachineError(
                f"{len(found) - len(refused):,} of {len(found):,} operations were applied, and the one at place "
                f"{refused[0]} was not: {found[refused[0]].data.decode()}"
            )
            failed.answers = tuple(answer.data if answer.ok else None for answer in found)
            raise failed
        return [answer.data for answer in found]

    def _check_read(self, call: Call) -> None:
        if call.answer is None:
            raise NotReady(f"the read cannot be answered with this guarantee: {self._what_lacks()}")

    def _what_lacks(self) -> str:
        disks = self._durable.lacks() if self._durable is not None else ""
        return self.why or disks or "no answer in time: a member is slow, or has just failed"

    # ---- the life of a replica

    def close(self) -> None:
        """Leaves the group. Calls that wait raise ``Undecided``. A second call does nothing."""
        with self._lock:
            self._closing = self._joining.abandoned = True
            group = self._group
            self._lock.notify_all()
        if group is not None:
            group.leave()
        self._unsent.put(None)
        if self._durable is not None:
            self._durable.stop()
        end = time.monotonic() + self._config.leave_timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))
        if self._durable is not None:
            self._durable.close()

    def __repr__(self) -> str:
        return f"<seqcast.Replica {self.cluster!r}{'' if self.ready else f' not ready: {self.why}'}>"

    def _start(self, ready_s: float) -> None:
        for thread in self._threads:
            thread.start()
        try:
            self.wait_ready(ready_s)
        except BaseException:
            self.close()
            raise

    def add_callback(self, callback: Callable[[Event | None], object]) -> None:
        """Calls a function with each view, ``Blocked`` and ``Unblocked`` of this replica, in their order among the
        operations, with None when its membership ends, and at once with the present view. The function runs on
        the thread that applies, and must not wait."""
        with self._applying:
            self._callbacks.append(callback)
            if self._view is not None:
                callback(self._view)

    def remove_callback(self, callback: Callable[[Event | None], object]) -> None:
        """Calls this function no more, but for a call that is under way."""
        with contextlib.suppress(ValueError):
            self._callbacks.remove(callback)

    # ---- the thread that follows the group

    def _run(self) -> None:
        failed: BaseException | None = None
        try:
            self._joining.begin()
            while not self._is_over():
                group = self._join()
                if group is None:
                    break
                try:
                    self._follow(group)
                finally:
                    self._parted(group)
        except Abandoned:
            pass
        except (StableFailed, OtherRelease) as error:
            log.error("%s: %s", self._name, error)
            failed = error
        except BaseException as error:
            log.log(
                logging.DEBUG if isinstance(error, SeqcastError) else logging.ERROR,
                codes.CALLBACK_FAILED("the replica of %s has failed"), self.cluster, exc_info=True,
            )  # fmt: skip
            failed = error
        with self._lock:
            self._failure, self._failed, self._group = failed or NotReady("this replica was closed"), failed, None
            rest, callbacks = self._outbox.rest(), self._on_failed
            self._lock.notify_all()
        for call in rest:
            call.done()
        if failed is not None:
            self._tell_failed(callbacks, failed)

    def _join(self) -> Group | None:
        """Joins the group, again and again; None: this replica is closed, or the process ends.

        A replica that was in the group before knows that the group exists, and never founds another one, beside the
        majority that continued.
        """
        config = self._config.replace(found=0) if self._was_member else self._config
        while not self._is_over():
            self._load()
            try:
                info, self._part = self._info, _Part(self)
                group = join(self.cluster, name=self._name, state=self._part, config=config, info=info)
                self._me = group.member.id
            except JoinRefused as refused:
                if not self._was_member:
                    raise
                self._note(f"it cannot join again: {without_code(refused)}")
                self._pause(AGAIN_S)
            except (JoinTimeout, NotMember) as late:
                self._note(without_code(late))
            else:
                try:
                    self._joined(group)
                    if self._info is not info:  # set meanwhile
                        self.set_info(self._info or {})
                except BaseException:  # nobody would receive for this member, and the others would wait
                    self._parted(group)
                    raise
                return group
        return None

    def _load(self) -> None:
        """With ``stable=``: the state is the one on disk, or a later one."""
        if self._disk_error is not None:
            raise self._disk_error
        if self._durable is not None:
            with self._applying:
                self._durable.load()

    def _is_over(self) -> bool:
        return self._closing or ENDING.is_set()

    def _note(self, why: str) -> None:
        with self._lock:
            self._why = why

    def _pause(self, seconds: float) -> None:
        with self._lock:
            self._lock.wait_for(self._is_over, seconds)

    def _joined(self, group: Group) -> None:
        self._estimate.hear(self._log.now_ns)
        with self._lock:
            self._group, self._was_member, self._why = group, True, ""
            answered = self._outbox.rejoined(self._log if self._durable is None else None)
            closing, message = self._is_over() or self._disk_error is not None, self._outbox.compose()
            self._lock.notify_all()
        if closing:
            group.leave()
        self._answer(answered, group, message)

    def _parted(self, group: Group) -> None:
        """The membership has ended."""
        with self._lock:
            self._group = None
            self._why = self._why or str(group.status.reason) or "it left its group"
        self._estimate.forget()
        with self._applying:
            self._log.leave()
            if self._durable is not None:
                self._durable.parted()
            self._view = None
            for callback in tuple(self._callbacks):
                callback(None)
        group.leave(0)
        group.close_journal()

    def _follow(self, group: Group) -> None:
        while True:
            try:
                event = group.next_event(self._tick_s(group))
            except NotMember:
                return
            if isinstance(event, Message):
                applied = self._take(event)
                if applied is not None and applied.entry.origin == self._outbox.origin:
                    self._own(group, (applied,))
            elif event is not None:
                self._event(group, event)
            elif self._due is not None:
                self._tick(group)

    def _take(self, message: Message) -> Applied | None:
        durable, sender = self._durable, message.sender
        if durable is not None and message.unicast and durable.heard(sender.id, message.payload):
            self._settle()
            return None
        with self._applying:
            applied = self._log.take(message.payload, sender.id, message.transitional)
            self._estimate.hear(self._log.now_ns)
            if durable is not None:
                durable.applied(sender)
        return applied

    # ---- with `stable=`

    def _settle(self) -> None:
        """Answers the calls that are on enough disks now, and sends the messages that waited for that."""
        assert self._durable is not None
        with self._lock:
            answered = [call for each in self._durable.take() for call in self._outbox.applied(each)]
            unsent = self._composed()
        if unsent is not None:
            self._transmit(*unsent)
        self._wake(answered)

    def _disk_failed(self, error: SeqcastError) -> None:
        """On the thread that syncs. The member ends as in a crash."""
        with self._lock:
            self._disk_error, self._why = error, without_code(error)
            group = self._group
        if group is not None:
            group.leave(0)

    def _event(self, group: Group, event: Event) -> None:
        done: list[Applied] = []
        with self._applying:
            if isinstance(event, View):
                done = self._log.enter([member.id for member in event.members], event.view_id.counter)
                self._estimate.hear(self._log.now_ns)
                self._view = event
                if self._durable is not None:
                    self._durable.entered(group, event)
            if isinstance(event, View | Blocked | Unblocked):
                for callback in tuple(self._callbacks):
                    callback(event)
        if isinstance(event, Excluded):
            self._note(event.reason)
        self._own(group, done)

    def _own(self, group: Group, applied: Iterable[Applied]) -> None:
        """Answers the calls whose operations were applied, and sends the next message."""
        answered: list[Call] = []
        durable = self._durable
        with self._lock:
            for each in applied:
                if each.entry.origin != self._outbox.origin:
                    continue
                if durable is None:
                    answered += self._outbox.applied(each)
                else:
                    self._outbox.back(each.entry.number)
                    durable.hold(each)
            if durable is not None:
                answered = [call for each in durable.take() for call in self._outbox.applied(each)]
            message = self._outbox.compose()
        self._answer(answered, group, message)

    def _answer(self, answered: list[Call], group: Group, message: bytes | None) -> None:
        try:
            if message is not None:
                self._transmit(group, message)
        finally:
            self._wake(answered)

    # ---- time, if nobody sends

    def _tick_s(self, group: Group) -> float | None:
        """Seconds until this replica is to tell the time, if that is its duty; None: never."""
        if self._due is None or self._view is None or self._view.coordinator.id != group.member.id:
            return None
        due = self._due()
        if due is None:
            return None
        passed = self._ticked + TICK_S - time.monotonic()
        return max(passed, (due - self._estimate.now_ns()) / 1e9, 0.0)

    def _tick(self, group: Group) -> None:
        self._ticked = time.monotonic()
        with self._lock:
            message = self._outbox.compose(empty=True)
        if message is not None:
            self._transmit(group, message)

    # ---- sending

    def _transmit(self, group: Group, message: bytes) -> None:
        """Sends a message; if that would wait, another thread does."""
        try:
            group.send(message, timeout=0.0)
        except SendTimeout:
            self._unsent.put((group, message))
        except NotMember:
            pass  # its operations are sent again when this replica is back
        except Exception:  # the thread that sends decides
            self._unsent.put((group, message))

    def _pump(self) -> None:
        while (unsent := self._unsent.get()) is not None:
            group, message = unsent
            try:
                group.send(message)
            except NotMember:
                pass
            except Exception:  # this replica joins again, and then sends all that had no answer
                log.exception(codes.CALLBACK_FAILED("the replica of %s cannot send"), self.cluster)
                group.leave(0)


class _Part:
    """The state handler of one incarnation of a replica.

    Args:
        of: the replica.
    """

    def __init__(self, of: Replica[Any]) -> None:
        self._of = of

    def on_disk(self) -> tuple[int, int]:
        """As in ``DurableHandler``."""
        return self._of._durable.mark if self._of._durable is not None else (0, 0)

    def get_state(self, write: Callable[[Any], None]) -> None:
        of = self._of
        with of._applying:
            applied = of._log.snapshot(write, of._estimate.now_ns())
        group = of._group
        if applied and group is not None:
            of._own(group, applied)

    def set_state(self, read: Callable[..., bytes]) -> None:
        of, begun_ns = self._of, time.monotonic_ns()
        restore = functools.partial(of._log.restore, read)
        with of._applying:
            if of._durable is None:
                restore()
            else:
                of._durable.replaces(restore)
            of._estimate.forget()
            of._estimate.hear(of._log.estimate_ns + time.monotonic_ns() - begun_ns)


def data_of(answer: Answer) -> bytes:
    """The answer's data.

    Raises:
        MachineError: the answer is an error.
        Undecided: the group has forgotten this replica, and does not know whether the operation was applied.
    """
    if answer is FORGOTTEN:
        error = Undecided("sent twice, and the group no longer knows whether it applied the first one")
        error.sent = 1
        raise error
    if not answer.ok:
        raise MachineError(answer.data.decode())
    return answer.data
