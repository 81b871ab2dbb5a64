"""Runs one member: its engine, its sockets, and the control thread, which steps the endpoint and carries out its
effects.

Several kinds of threads use the engine, each under its lock: callers, the I/O thread (native/io/driver.h), those of
the guard and of an order's policy, and the control thread, which sleeps until the engine has events, the endpoint's
deadline comes or the application makes a request. Busy Python code elsewhere delays only the last three.
"""

from __future__ import annotations

import functools
import logging
import secrets
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import seqcast.codes as codes
from seqcast._native.driver import Driver, now_ns
from seqcast._native.engine import Engine
from seqcast.config import Config
from seqcast.config.derive import core_settings, engine_settings, to_ns
from seqcast.config.keys import ROOM
from seqcast.core.context import NO_VOTE, EndpointSettings
from seqcast.core.endpoint import Endpoint
from seqcast.core.log import PARTS
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
    SeqcastError,
    StableFailed,
)
from seqcast.net.callbacks import Callbacks, timed
from seqcast.net.discovery import Discovery, advertised
from seqcast.net.errors import NO_SEGMENTS
from seqcast.net.guard import GuardThread
from seqcast.net.interface import mend, see
from seqcast.net.joining import Joining
from seqcast.net.logs import parts_read, write
from seqcast.net.opening import group_tag, open_guarded, warn_of
from seqcast.net.ordering import Ordering
from seqcast.net.pausing import Pausing
from seqcast.net.posting import Posting
from seqcast.net.questions import Questions
from seqcast.net.rereading import Rereading
from seqcast.net.secure import Ed25519, KeyFile, KeyPair, ListFile, file_keys, identity_of, seal_of
from seqcast.net.stable import StableFile
from seqcast.net.standing import Standing
from seqcast.net.threads import named, usable
from seqcast.net.votes import keep_others, keep_vote, others_of, vote_of
from seqcast.types import Member, MembershipPolicy, OrderPolicy, SequencerPolicy

log = logging.getLogger("seqcast")


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
        self.order, self.name = order, name
        member_id = secrets.randbits(63) | 1
        self._tag = group_tag(cluster)
        self._key = cluster, name
        self.former = others_of(*self._key)  # until the join succeeds: one in vain keeps them for the next
        settings_of_engine = engine_settings(config)
        if policies.order is not None:
            settings_of_engine["policy_ns"] = to_ns(policies.order.limit_s)
        seal = seal_of(config, cluster)
        self.key_file = KeyFile(config.key, cluster, seal.secrets) if seal is not None else None
        self._aes = seal is not None and seal.aes
        self._keys = file_keys(seal.secrets) if seal is not None else ()
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
        self._opened: Driver | None = None  # the driver, for threads that may be earlier
        self.discovery: Discovery | None = None
        if config.transport == "unicast" or config.seeds:
            self.discovery = Discovery(config, name, self._seeds_found)
            self.discovery.start()
        try:
            self.driver, listener = open_guarded(self.engine, cluster, name, member_id, config, self.discovery)
            self._opened = self.driver
            place = advertised(config, self.driver.address)
        except BaseException:
            self._stop_discovery()
            self._close_stable()
            if self._opened is not None:
                self._opened.close()
            self.posting.remove()
            raise
        self.posting.opened(self.driver, order=order)
        warn_of(self.driver, cluster, config, self.discovery)
        self.files = Rereading(self.key_file, self.list_file)
        settings = self._endpoint_settings(name)
        self.packet_bytes = settings.packet_bytes
        member = Member(name, member_id, place)
        self.endpoint = Endpoint(self.engine, member, cluster, settings)
        self.standing = Standing(member, self.endpoint)
        self.joining = Joining(self.standing, config, self.endpoint, self.engine, self.driver, self.discovery)
        # Without this member, of which a circle would keep its memory and its board after its end:
        self.request: Callable[[Input], None] = functools.partial(_queue, self._requests, self.driver)
        self.pausing = Pausing(self.standing, self.endpoint, self.request, config.lease_s)
        self.tell_state: Callable[[TakeState | StateHeld | StateLost], None] | None = None  # while it joins
        self.guard: GuardThread | None = None
        if listener is not None:
            self.guard = GuardThread(member, self._tag, listener, self._gone, self.endpoint.edges)
        self.journal: Callable[[], dict[str, Any]] = dict  # its state; see ``JournalWriter.state``
        self._requests.append(JoinGroup())
        requests = self._requests
        self.questions = Questions(
            member_id, self.posting, lambda number, page: requests.append(AskMembers(number, page))
        )
        self._segments = config.gso and sys.platform.startswith("linux")  # until the kernel refuses them
        self._threads = [
            threading.Thread(target=named(self.driver.run, io_cores), name=f"seqcast-io-{name}", daemon=True),
            threading.Thread(target=named(self._control, control), name=f"seqcast-control-{name}", daemon=True),
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
        for thread in self._threads:
            thread.start()

    def _seeds_found(self, addresses: tuple[bytes, ...]) -> None:
        """Called by the thread that looks the seeds up, perhaps before the sockets are open."""
        self._requests.append(SeedsFound(addresses))
        if self._opened is not None:
            self._opened.kick_control()

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

    def leave(self, timeout_s: float) -> None:
        """Leaves, whatever is under way, within ``timeout_s``."""
        self.standing.leaves = True
        self.request(LeaveGroup(to_ns(timeout_s)))
        self.standing.wait_over(timeout_s)

    def close(self) -> None:
        """Ends the threads and closes the sockets. Received messages can still be delivered. May be called again."""
        if not self.standing.over:
            self.request(CloseGroup())
            self.standing.wait_over(1.0)
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
            self.standing.error = error
        except BaseException as error:
            log.exception(codes.BUG("the control plane of %s failed; the group is closed"), self.name)
            text = f"the control plane failed, which is a bug: {error!r}; the group is closed"
            self.standing.error = SeqcastError(text)
        finally:
            # Side by side, two primary groups would each believe that they alone go on; others merge.
            keep_vote(*self._key, self.endpoint.vote if self.config.partition == "primary" else NO_VOTE)
            keep_others(*self._key, self.endpoint.others if self.standing.excluded else self.former)
            self.standing.end()
            self._post()
            self.driver.stop()

    def _others(self) -> set[int]:
        """Ids of the other members of the newest view."""
        view, me = self.standing.view, self.standing.member
        return {member.id for member in view.members} - {me.id} if view is not None else set()

    def _post(self) -> None:
        status = self.standing.status
        address = self.endpoint.context.me.address
        self.posting.post(
            self.standing.view, status, status.reason, address, self.python_counters, self._seeds_fare, self._sealed()
        )

    def _sealed(self) -> dict[str, Any]:
        """With a key: the ids of its lines, first the one that seals; and in a view its cipher, and when it began."""
        if self.key_file is None:
            return {}
        entered = self.endpoint.context.entered
        view = {} if entered is None else {"cipher": CIPHERS[entered.cipher], "since": self.standing.view_ns}
        ids = sorted(self.key_file.ids, key=lambda each: each != self.endpoint.sealing)
        return {"keys": [str(each) for each in ids], **view}

    def _seeds_fare(self) -> dict[str, Any]:
        """Which addresses of the seeds are those of members, or have answered."""
        if self.discovery is None:
            return {}
        view = self.standing.view
        members = [member.address for member in view.members] if view is not None else []
        return self.discovery.fate([*self.endpoint.answered, *members, self.endpoint.context.me.address])

    def python_counters(self) -> dict[str, int]:
        """Counters of the control plane and, if there are any, of guard connections and of the key file."""
        counters = {f"control_{key}": value for key, value in self.endpoint.counters.items()}
        if self.guard is not None:
            counters |= {f"guard_{key}": value for key, value in self.guard.counters.items()}
        if self.key_file is not None:
            counters["key_id"] = self.endpoint.sealing
        return counters | self.files.counters()

    def _warn(self, text: str, level: int = logging.WARNING) -> None:
        log.log(level, "%s: %s", self.name, text)
        self._noted(text, warning=level >= logging.WARNING)

    def _noted(self, text: str, warning: bool) -> None:
        self.posting.note(text)
        if warning:
            self.posting.warned(text)

    def _known(self) -> dict[str, Any]:
        """The knowledge of this process alone, for `seqcast probe --known`."""
        return {**self.posting.known(), "states": self.endpoint.states(), "journal": self.journal()}

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send() | Stand():
                transmit(self.engine, effect, self.endpoint.counters, now_ns())
            case Log(debug=debug):
                write(effect)
                if self.posting.on and not debug:
                    self._noted((effect.text % effect.args).removeprefix(f"{self.name}: "), effect.warning)
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
        standing = self.standing
        match effect:
            case ViewInstalled(view, _, change, took_ns):
                before = standing.view
                if before is None and len(view.members) == 1:
                    self.joining.tell_alone()
                standing.take(effect)
                for gone in self.giving.keys() - {member.id for member in view.members}:
                    self.giving.pop(gone, None)
                self.posting.view(before, view, change, took_ns)
                if self.guard is not None:
                    self.guard.view(view.members)
            case Minority(reason):
                standing.take(effect)
                self._warn(codes.BLOCKED(f"blocked: {reason}"))
            case Waiting(reason):
                standing.take(effect)
                self._warn(codes.JOIN_WAITS(f"the group does not take this member in yet: {reason}"))
            case JoinFailed() | Left() | ExcludedBy():
                standing.take(effect)
            case PauseHeld() | PauseOver():
                self.pausing.told(effect)
            case CallBlock(run) if self.callbacks is not None:
                self.callbacks.block(run)
            case CallUnblock() if self.callbacks is not None:
                self.callbacks.unblock()
            case StateLost(error, inside=True):
                text = codes.STATE_LOST(f"leaves, as it cannot have the state of the group: {error}")
                self._warn(text, logging.ERROR)
            case TakeState() | StateHeld() | StateLost() if self.tell_state is not None:
                with standing.changed:
                    self.tell_state(effect)
                    standing.changed.notify_all()
            case Warn(text):
                self._warn(text)

    # ---- derived from the settings

    def _endpoint_settings(self, name: str) -> EndpointSettings:
        driver, blocks = self.driver, self.callbacks is not None
        room = ROOM if self.key_file is not None else 0
        settings = core_settings(self.config, mtu=driver.mtu, rcvbuf=driver.rcvbuf_granted, blocks=blocks, room=room)
        return EndpointSettings(
            order=self.order,
            nonce=secrets.randbits(63) | 1,
            keys=self._keys,
            exchange=KeyPair() if self.key_file is not None else None,
            aes=self._aes,
            signer=self._signer,
            allowed=self.list_file.allowed if self.list_file is not None else (),
            vote=vote_of(*self._key),
            former=self.former,
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


def _queue(requests: deque[Input], driver: Driver, event: Input) -> None:
    """Queues an input of the application for the control thread."""
    requests.append(event)
    driver.kick_control()
