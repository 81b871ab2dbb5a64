"""Runs one member: its engine, its sockets, and the control thread, which steps the endpoint and carries out its
effects.

Three kinds of threads use the engine, each under its lock: callers, the I/O thread (native/io/driver.h), and the
control thread, which sleeps until the engine has events, the endpoint's deadline comes or the application makes a
request. Busy Python code elsewhere delays only the control thread.
"""

from __future__ import annotations

import logging
import secrets
import shlex
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import seqcast.codes as codes
from seqcast._native.driver import now_ns
from seqcast._native.engine import Engine
from seqcast.abandoned import still_wanted
from seqcast.config import Config
from seqcast.config.derive import core_settings, engine_settings, reach, to_ns
from seqcast.config.keys import ROOM, cookie_secrets
from seqcast.core.context import NO_VOTE, EndpointSettings, Vote
from seqcast.core.endpoint import Endpoint
from seqcast.core.log import PARTS
from seqcast.core.machines.pause_request import PauseRequest
from seqcast.core.port import transmit
from seqcast.core.secrets import CIPHERS
from seqcast.core.vocabulary import (
    AskMembers,
    CallbackReturned,
    CallBlock,
    CallUnblock,
    CloseGroup,
    Effect,
    ExcludedBy,
    Input,
    JoinFailed,
    JoinGroup,
    Keep,
    LeaveGroup,
    Left,
    Log,
    MemberTold,
    MendSockets,
    Minority,
    PauseHeld,
    PauseOver,
    SeedsFound,
    Send,
    Stand,
    StateHeld,
    StateLost,
    TakeState,
    ViewInstalled,
    Waiting,
    Warn,
)
from seqcast.errors import (
    JoinRefused,
    JoinTimeout,
    NameTaken,
    NotMember,
    SeqcastError,
    StableFailed,
    SuspendTimeout,
)
from seqcast.net.advice import FOUNDS_ALONE, Advice, strangers, what_to_check
from seqcast.net.callbacks import Callbacks, timed
from seqcast.net.discovery import Discovery, advertised
from seqcast.net.errors import NO_SEGMENTS
from seqcast.net.guard import GuardThread
from seqcast.net.interface import fault, mend, see
from seqcast.net.logs import parts_read, write
from seqcast.net.opening import group_tag, open_guarded, warn_of
from seqcast.net.ordering import Ordering
from seqcast.net.posting import Posting
from seqcast.net.questions import Questions
from seqcast.net.rereading import Rereading
from seqcast.net.secure import Ed25519, KeyFile, KeyPair, ListFile, identity_of, seal_of
from seqcast.net.stable import StableFile
from seqcast.net.threads import on_cores, usable
from seqcast.types import Member, MembershipPolicy, OrderPolicy, SequencerPolicy, Status, View

log = logging.getLogger("seqcast")

_JOIN_ERRORS = {"name": NameTaken, "address": JoinTimeout, "key": JoinTimeout}
"""``JoinFailed.cause`` -> exception; ``JoinRefused`` for all others."""
SLICE_S = 0.2
"""A wait of the application is cut into slices of this length."""
LONG_S = 1.0  # a wait that takes longer is told
VOTES_MAX = 256
_votes: dict[tuple[str, str], Vote] = {}
"""By cluster and name: for whom a join of this process voted that gave up. The next one is bound by that."""


class Policies(NamedTuple):
    """The application's decisions about the members' order, the sequencer, and the messages' order; None: ours."""

    membership: MembershipPolicy | None = None
    sequencer: SequencerPolicy | None = None
    order: OrderPolicy | None = None


NO_POLICIES = Policies()


class Runner:
    """Runs one incarnation of one member until its end.

    Raises:
        ConfigError: the sockets cannot be opened.
    """

    def __init__(
        self,
        cluster: str,
        name: str,
        order: str,
        config: Config,
        on_block: Callable[[], object] | None = None,
        on_unblock: Callable[[], object] | None = None,
        state: int = 0,
        policies: Policies = NO_POLICIES,
        about: str = "",
        on_disk: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ) -> None:
        io_cores, control = usable("io_cores", config.io_cores), usable("control_cores", config.control_cores)
        self.config, self.policies = config, policies
        self.state, self.about = state, about  # see ``MemberInfo``
        self._on_disk = on_disk()
        self.giving: dict[int, threading.Lock] = {}  # by joiner: held while a thread gives the state
        self.callbacks: Callbacks | None = None
        if on_block is not None:
            self.callbacks = Callbacks(
                name,
                on_block,
                on_unblock,
                lambda runs: self.driver.callback(runs),
                lambda run, trouble: self.request(CallbackReturned(run, trouble)),
            )
        self.order = order
        member_id = secrets.randbits(63) | 1
        self._tag = group_tag(cluster)
        self._key = cluster, name
        settings_of_engine = engine_settings(config)
        if policies.order is not None:
            settings_of_engine["policy_ns"] = to_ns(policies.order.limit_s)
        seal = seal_of(config, cluster)
        self.key_file = KeyFile(config.key, cluster, seal.secrets) if seal is not None else None
        self._aes = seal is not None and seal.aes
        self._cookie_secrets = cookie_secrets(seal.secrets) if seal is not None else ()
        identity = identity_of(config, name)
        self.stable_file = StableFile(config.stable, cluster, name) if config.stable else None
        self._signer: Ed25519 | None = None
        self.list_file: ListFile | None = None
        if identity is not None:
            self._signer, self.list_file = identity
        self.engine = Engine(
            member_id=member_id,
            group_tag=self._tag,
            seed=secrets.randbits(63),
            seal=seal,
            **settings_of_engine,
        )
        self.posting = Posting(config, cluster, member_id, name, self.engine)
        self._requests: deque[Input] = deque()
        self.discovery: Discovery | None = None
        if config.transport == "unicast" or config.seeds:
            self.discovery = Discovery(config, name, self._seeds_found)
            self.discovery.start()
        try:
            self.driver, listener = open_guarded(self.engine, cluster, name, member_id, config, self.discovery)
            place = advertised(config, self.driver.address)
        except BaseException:
            self._stop_discovery()
            self._close_stable()
            if (driver := getattr(self, "driver", None)) is not None:
                driver.close()
            self.posting.remove()
            raise
        self.posting.opened(self.driver, order=order, transport=config.transport)
        warn_of(self.driver, cluster, config)
        self.member = Member(name, member_id, place)
        self.files = Rereading(self.key_file, self.list_file, self.engine)
        settings = self._endpoint_settings(name)
        self.packet_bytes = settings.packet_bytes
        self.endpoint = Endpoint(self.engine, self.member, cluster, settings)
        self.began = 0.0  # monotonic seconds: when the join began
        self.changed = threading.Condition()
        # Under `changed`:
        self.view: View | None = None
        self._view_ns = 0  # when the view began
        self.founding = False  # the group of the view is not founded yet, and the join waits for that
        self.minority = ""  # why this member is blocked, without a majority
        self.waiting = ""  # why the group that this member joins is blocked, if told
        self.error: SeqcastError | None = None
        self.excluded = ""  # why, if this member was excluded
        self.left = False  # gracefully: the remaining members have everything that this member sent
        self.leaves = False  # by request
        self.over = False
        self.tell_state: Callable[[TakeState | StateHeld | StateLost], None] | None = None  # while it joins
        self.pause = PauseRequest(self.endpoint.edges)
        self.guard: GuardThread | None = None
        if listener is not None:
            self.guard = GuardThread(self.member, self._tag, listener, self._gone, self.endpoint.edges)
        self.journal: Callable[[], dict[str, Any]] = dict  # how it fares; see ``JournalWriter.state``
        self._requests.append(JoinGroup())
        requests = self._requests  # and not this member: a circle would keep its board open after its end
        self.questions = Questions(
            member_id, self.posting, lambda number, page: requests.append(AskMembers(number, page))
        )
        self._segments = config.gso and sys.platform.startswith("linux")  # until the kernel refuses them
        self._threads = [
            threading.Thread(target=on_cores(self.driver.run, io_cores), name=f"seqcast-io-{name}", daemon=True),
            threading.Thread(target=on_cores(self._control, control), name=f"seqcast-control-{name}", daemon=True),
        ]
        if self.guard is not None:
            self._threads.append(self.guard.thread)
        if self.callbacks is not None:
            self._threads.append(self.callbacks.thread)
        self.ordering: Ordering | None = None
        if policies.order is not None:
            self.ordering = Ordering(name, policies.order, self.engine, self.driver.poke)
            self._threads.append(self.ordering.thread)

    def start(self) -> None:
        self.began = time.monotonic()
        for thread in self._threads:
            thread.start()

    def _seeds_found(self, addresses: tuple[bytes, ...]) -> None:
        """Of the thread that looks the seeds up, perhaps before the sockets are open."""
        self._requests.append(SeedsFound(addresses))
        if (driver := getattr(self, "driver", None)) is not None:
            driver.kick_control()

    def _stop_discovery(self) -> None:
        if self.discovery is not None:
            self.discovery.stop()

    def _close_stable(self) -> None:
        if self.stable_file is not None:
            self.stable_file.close()

    def _gone(self, member: Member) -> None:
        """A guard connection shows that a process has ended: this counts as much as a refused UDP port."""
        self.engine.refused(member.address, now_ns(), guard=True)
        self.driver.poke()

    def after_fork(self) -> None:
        """In a child process."""
        self.driver.after_fork()
        if self.guard is not None:
            self.guard.after_fork()

    def request(self, event: Input) -> None:
        """Queues an input of the application for the control thread."""
        self._requests.append(event)
        self.driver.kick_control()

    def leave(self, timeout_s: float) -> None:
        """Leaves, whatever is under way, within ``timeout_s``."""
        self.leaves = True
        self.request(LeaveGroup(to_ns(timeout_s)))
        self.wait_over(timeout_s)

    def enter(self, view: View) -> None:
        """Makes an installed view the newest one. The application may be delivered a view before the report of the
        control thread, its installer."""
        with self.changed:
            if self.view is None or self.view.view_id.counter < view.view_id.counter:
                self.view = view
                self.member = next((each for each in view.members if each == self.member), self.member)
                for gone in self.giving.keys() - {member.id for member in view.members}:
                    self.giving.pop(gone, None)
                self.changed.notify_all()

    def name_of(self, member_id: int) -> str:
        """The name of a member of the newest view."""
        members = self.view.members if self.view else ()
        return next((member.name for member in members if member.id == member_id), f"{member_id:016x}")

    def join(self) -> None:
        """Waits for the first view.

        Raises:
            NameTaken, JoinRefused: the group refused this member.
            JoinTimeout: none came in ``join_timeout_s``.
        """
        with self.changed:
            ended = self._wait(
                lambda: still_wanted() and (self._is_in() or self.over),
                self.config.join_timeout_s,
                self._seeds_awaited(),  # without seeds the core says why a joiner waits
            )
        if self.error is not None:
            raise self.error
        if ended and not self._is_in():
            raise JoinRefused(self.excluded) if self.excluded else _left_early()
        if not ended and self.waiting:
            raise JoinTimeout(
                f"no view within join_timeout_s={self.config.join_timeout_s:g} s: the group exists, and does not take "
                f"this member in yet: {self.waiting}"
            )
        if not ended and (trouble := fault(self.driver)):
            raise JoinTimeout(f"no view within join_timeout_s={self.config.join_timeout_s:g} s: {trouble}")
        if not ended and self.endpoint.lacks:
            raise JoinTimeout(
                f"no view within join_timeout_s={self.config.join_timeout_s:g} s: {self.endpoint.lacks}. "
                f"{self._what_to_check().text}"
            )
        if not ended and self.discovery is not None:
            raise JoinTimeout(
                f"no view within join_timeout_s={self.config.join_timeout_s:g} s: {self._what_to_check().text}"
            )
        if not ended:
            raise JoinTimeout(
                f"no view within join_timeout_s={self.config.join_timeout_s:g} s on {self.driver.interface}: members "
                "may be unable to reach each other (firewall, another interface), the group may be blocked because it "
                f"has no majority (seqcast unblock {shlex.quote(self.endpoint.context.cluster)}{reach(self.config)} "
                "--list), or the machine is overloaded"
            )

    def _seeds_awaited(self) -> Callable[[], str] | None:
        discovery = self.discovery
        if discovery is None:
            return None
        return lambda: f"join waits, and {discovery.said(tuple(self.endpoint.answered))}"

    def _is_in(self) -> bool:
        return self.view is not None and not self.founding

    @property
    def status(self) -> Status:
        """This member's part in the group, and why."""
        with self.changed:
            if self.excluded:
                return Status("excluded", self.excluded)
            if self.over:
                unsure = "" if self.left else "not all that it sent is known to have been delivered: Lost names it"
                return Status("left", str(self.error or unsure))
            if self.leaves:
                return Status("leaving")
            if not self._is_in():
                return Status("joining", self.waiting or self.endpoint.lacks)
            return Status("blocked", closed) if (closed := self.endpoint.closed) else Status("member")

    def wait_members(self, n: int) -> None:
        """Waits until the newest view has ``n`` members that are no observers, at most until ``join_timeout_s`` after
        the join began.

        Raises:
            JoinTimeout: too few members, or this one was excluded.
            NotMember: another thread left the group.
        """
        remaining = self.began + self.config.join_timeout_s - time.monotonic()
        with self.changed:
            self._wait(
                lambda: still_wanted() and (self.over or len(self._voters()) >= n),
                remaining,
                lambda: f"join waits for min_members={n} members; there: {', '.join(self._voters())}",
            )
            came = self._voters()
            if len(came) >= n and not self.over:
                return
            if self.excluded:
                raise JoinTimeout(f"this member was excluded while it waited for min_members={n}: {self.excluded}")
            if self.over and self.error is None:
                raise _left_early()
        raise JoinTimeout(
            f"the group has {len(came)} of min_members={n} members ({', '.join(came)}) after "
            f"{self.config.join_timeout_s:g} s (join_timeout_s), so this one has left. {self._what_to_check().text}"
        )

    def _what_to_check(self) -> Advice:
        cluster = self.endpoint.context.cluster
        return what_to_check(self.driver, self.config, self.discovery, self.endpoint.answered, cluster)

    # ---- pauses of the group

    def suspend(self, timeout_s: float) -> None:
        """Pauses the group; returns when the pause holds.

        Raises:
            UsageError: this member has already paused the group.
            SuspendTimeout: no pause in time, or another thread resumed the group.
        """
        with self.changed:
            asked = self.pause.ask(to_ns(timeout_s))
            self.request(asked)
            try:
                self._wait(
                    lambda: not self.pause.awaits(asked) or self.over,
                    timeout_s + 1.0,
                    lambda: f"suspend waits until all of {', '.join(self._names())} have stopped sending",
                )
            except BaseException:
                if self.pause.is_open(asked):
                    self.resume()
                raise
            if not self.pause.is_open(asked):
                raise SuspendTimeout("the group was not paused: another thread resumed it first")
            if self.pause.held:
                return
            why = self.resume() or "no answer"
        raise SuspendTimeout(f"the group was not paused within {timeout_s:g} s ({why}); it continues")

    def resume(self) -> str:
        """Ends the pause; returns the reason of an earlier end, or "".

        Raises:
            UsageError: there is none.
        """
        with self.changed:
            self.request(self.pause.resume())
            self._wait(
                lambda: not self.pause.held or self.over,
                self.config.lease_s,
                lambda: "resume waits until the pause has ended here",
            )
            why = self.pause.end()
            self.changed.notify_all()  # for a thread that waits in `suspend`
            return why

    def wait_over(self, timeout_s: float) -> bool:
        """Waits until the endpoint has left."""
        with self.changed:
            return self._wait(
                lambda: self.over,
                timeout_s,
                lambda: f"leave waits until all that was sent has reached {', '.join(self._names(self.member))}",
            )

    def _names(self, but: Member | None = None) -> list[str]:
        """Names of the members of the newest view, ``but`` for this one."""
        return [member.name for member in self.view.members if member != but] if self.view else []

    def _voters(self) -> list[str]:
        """Names of the members of the newest view that are no observers."""
        return [member.name for member in self.view.members if not member.observer] if self.view else []

    def _wait(self, done: Callable[[], bool], timeout_s: float, waits: Callable[[], str] | None) -> bool:
        """Waits under ``changed``, in slices: Python handles a signal that comes just before a wait only afterwards.

        Args:
            done: the wait is over.
            timeout_s: at most this long, in seconds.
            waits: a sentence for the log about the wait, told once after ``LONG_S``; None: nothing is told.
        """
        began = time.monotonic()
        end, told = began + timeout_s, False
        while not self.changed.wait_for(done, max(0.0, min(SLICE_S, end - time.monotonic()))):
            if time.monotonic() >= end:
                return False
            if waits and not told and time.monotonic() - began >= LONG_S:
                told = True
                log.warning(codes.LONG_WAIT("%s: %s, for %g s so far"), self.member.name, waits(), LONG_S)
        return True

    def close(self) -> None:
        """Ends the threads and closes the sockets. Received messages can still be delivered. May be called again."""
        with self.changed:
            over = self.over
        if not over:
            self.request(CloseGroup())
            self.wait_over(1.0)
        self.driver.stop()
        self._stop_discovery()
        if self.guard is not None:
            self.guard.stop()
        if self.callbacks is not None:
            self.callbacks.stop()
        if self.ordering is not None:
            self.ordering.stop()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(1.0)
        self.driver.close()
        self._close_stable()
        self.questions.close()
        self.posting.remove()

    # ---- the control thread

    def _control(self) -> None:
        try:
            while not self.endpoint.over:
                each_look = not self.endpoint.machines.interface.sound
                until = min(self.endpoint.deadline(), self.posting.due, self.questions.due(now_ns()), self.files.due_ns)
                if not self._requests and self.driver.wait_control(until, each_look):
                    self._requests.append(see(self.driver))
                lines = self.endpoint.log
                lines.told = PARTS if self.posting.on else parts_read(logging.INFO)
                lines.debugged = parts_read(logging.DEBUG)
                asked = [self._requests.popleft()] if self._requests else []
                effects = self.endpoint.step([*asked, *self.engine.reports()], now_ns())
                for effect in effects:
                    self._carry_out(effect)
                if self.ordering is not None:
                    self.ordering.look(self.endpoint.view_tagged)
                self.driver.poke()
                self._post()
                self.questions.look(now_ns(), self._others, self._known)
                self._requests.extend(self.files.look(now_ns(), self._warn))
                if self._segments and not self.driver.gso:
                    self._segments = False
                    self._warn(codes.NO_GSO(NO_SEGMENTS))
        except StableFailed as error:
            self._warn(str(error), logging.ERROR)
            self.error = error
        except BaseException as error:
            log.exception(codes.BUG("the control plane of %s failed; the group is closed"), self.member.name)
            self.error = SeqcastError(f"the control plane failed, which is a bug: {error!r}; the group is closed")
        finally:
            self._keep_vote()
            with self.changed:
                self.over = True
                self.changed.notify_all()
            self._post()
            self.driver.stop()

    def _others(self) -> set[int]:
        """Ids of the other members of the newest view."""
        members = self.view.members if self.view is not None else ()
        return {member.id for member in members} - {self.member.id}

    def _post(self) -> None:
        status = self.status
        address = self.endpoint.context.me.address
        self.posting.post(
            self.view, status, status.reason, address, self.python_counters, self._seeds_fare, self._sealed()
        )

    def _sealed(self) -> dict[str, Any]:
        """With a key: the ids of its lines, the first of which seals; and in a view its cipher, and when it began."""
        if self.key_file is None:
            return {}
        entered = self.endpoint.context.entered
        view = {} if entered is None else {"cipher": CIPHERS[entered.cipher], "since": self._view_ns}
        return {"keys": [str(each) for each in self.key_file.ids], **view}

    def _seeds_fare(self) -> dict[str, Any]:
        """Which addresses of the seeds are those of members, or have answered."""
        if self.discovery is None:
            return {}
        members = [member.address for member in self.view.members] if self.view is not None else []
        return self.discovery.fate([*self.endpoint.answered, *members, self.endpoint.context.me.address])

    def python_counters(self) -> dict[str, int]:
        """Counters of the control plane and, if there are any, of guard connections and of the key file."""
        counters = {f"control_{key}": value for key, value in self.endpoint.counters.items()}
        if self.guard is not None:
            counters |= {f"guard_{key}": value for key, value in self.guard.counters.items()}
        return counters | self.files.counters()

    def _warn(self, text: str, level: int = logging.WARNING) -> None:
        log.log(level, "%s: %s", self.member.name, text)
        self._noted(text, warning=level >= logging.WARNING)

    def _noted(self, text: str, warning: bool) -> None:
        self.posting.note(text)
        if warning:
            self.posting.warned(text)

    def _known(self) -> dict[str, Any]:
        """The knowledge of this process alone, for `seqcast probe --known`."""
        return {**self.posting.known(), "states": self.endpoint.states(), "journal": self.journal()}

    def _keep_vote(self) -> None:
        """Side by side, two primary groups would each believe that they alone go on; others merge."""
        key, vote = self._key, self.endpoint.vote
        _votes.pop(key, None)
        if vote != NO_VOTE and self.config.partition == "primary":
            _votes[key] = vote
        while len(_votes) > VOTES_MAX:
            del _votes[next(iter(_votes))]

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send() | Stand():
                transmit(self.engine, effect, self.endpoint.counters, now_ns())
            case Log(debug=debug):
                write(effect)
                if self.posting.on and not debug:
                    self._noted((effect.text % effect.args).removeprefix(f"{self.member.name}: "), effect.warning)
            case MemberTold():
                self.questions.told(effect, now_ns())
            case Keep(kept):
                assert self.stable_file is not None
                self.stable_file.write(kept)
            case MendSockets():
                self._requests.append(mend(self.driver))
            case _:
                self._take(effect)

    def _take(self, effect: Effect) -> None:
        with self.changed:
            match effect:
                case ViewInstalled(view, founding, change, took_ns):
                    self.founding, before = founding, self.view
                    if self.view is None and len(view.members) == 1:
                        self._tell_alone()
                    self.enter(view)
                    self._view_ns = now_ns()
                    self.posting.view(before, view, change, took_ns)
                    self.minority = ""
                    if self.guard is not None:
                        self.guard.view(view.members)
                case Minority(reason):
                    self.minority = reason
                    self._warn(codes.BLOCKED(f"blocked: {reason}"))
                case Waiting(reason):
                    self.waiting = reason
                    self._warn(codes.JOIN_WAITS(f"the group does not take this member in yet: {reason}"))
                case JoinFailed(error, cause):
                    self.error = _JOIN_ERRORS.get(cause, JoinRefused)(error)
                case Left(_, complete):
                    self.left = complete
                case ExcludedBy(_, reason, _):
                    self.excluded = reason
                case PauseHeld() | PauseOver():
                    self.pause.told(effect)
                case CallBlock(run) if self.callbacks is not None:
                    self.callbacks.block(run)
                case CallUnblock() if self.callbacks is not None:
                    self.callbacks.unblock()
                case StateLost(error, inside=True):
                    text = codes.STATE_LOST(f"leaves, as it cannot have the state of the group: {error}")
                    self._warn(text, logging.ERROR)
                case TakeState() | StateHeld() | StateLost() if self.tell_state is not None:
                    self.tell_state(effect)
                case Warn(text):
                    self._warn(text)
            self.changed.notify_all()

    def _tell_alone(self) -> None:
        """No other member was found: correct for the first member, but also the only sign of broken multicast."""
        if self.config.partition == "primary" and self.config.found == 1 and not self.config.observer:
            log.warning(codes.FOUNDS_ALONE("%s: founded the group alone; %s"), self.member.name, FOUNDS_ALONE)
        strange = strangers(self.engine.counters())
        if strange is not None:
            name = self.endpoint.context.cluster
            others = f", and {strange} of other groups did: is the name of this one, {name!r}, right?"
            advice = self._what_to_check()
            log.log(
                logging.INFO if self.driver.loopback and not (strange or advice.found) else logging.WARNING,
                codes.NOBODY_HEARD(
                    "%s: founded the group alone: no datagram of another member came in discovery_s=%g s%s. If other "
                    "members are running: %s"
                ),
                self.member.name, self.config.discovery_s, others if strange else "", advice.text,
            )  # fmt: skip

    # ---- derived from the settings

    def _endpoint_settings(self, name: str) -> EndpointSettings:
        driver, blocks = self.driver, self.callbacks is not None
        room = ROOM if self.key_file is not None else 0
        settings = core_settings(self.config, mtu=driver.mtu, rcvbuf=driver.rcvbuf_granted, blocks=blocks, room=room)
        return EndpointSettings(
            order=self.order,
            nonce=secrets.randbits(63) | 1,
            cookie_secrets=self._cookie_secrets,
            exchange=KeyPair() if self.key_file is not None else None,
            aes=self._aes,
            signer=self._signer,
            allowed=self.list_file.allowed if self.list_file is not None else (),
            vote=_votes.get(self._key, NO_VOTE),
            kept=self.stable_file.kept if self.stable_file is not None else None,
            on_disk=self._on_disk,
            gro=driver.gro,
            sees=self.posting.sees if self.posting.on else None,
            state=self.state,
            about=self.about,
            membership_policy=timed("membership_policy", self.policies.membership, name),
            sequencer_policy=timed("sequencer_policy", self.policies.sequencer, name),
            **settings,
        )


def _left_early() -> NotMember:
    return NotMember("the group was left before the join was complete")
