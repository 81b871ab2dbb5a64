"""``join``, and its result."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import socket
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import seqcast.codes as codes
from seqcast.api.pausing import Pausing
from seqcast.api.receiving import journaling
from seqcast.api.rejoining import Rejoining, enter
from seqcast.arguments import (
    as_about,
    check_limit,
    check_min_members,
    check_name,
    check_policy,
    check_sequencer_policy,
    check_skip,
    check_threads,
    nanoseconds,
)
from seqcast.config import Config
from seqcast.core.orders import resolve
from seqcast.errors import ConfigError
from seqcast.net.forks import in_child
from seqcast.net.runner import Policies, Runner
from seqcast.net.state import StateHandler, check_handler
from seqcast.net.state_merge import part_in_state
from seqcast.net.threads import on_thread_or_here
from seqcast.types import ORDERS, MembershipPolicy, OrderPolicy, SequencerPolicy

if TYPE_CHECKING:
    from typing import Unpack

    from seqcast.config.keywords import Order, Settings
    from seqcast.events import Excluded

_open: weakref.WeakValueDictionary[int, Group] = weakref.WeakValueDictionary()
_dropped: set[Runner] = set()  # members whose groups were dropped without `leave`, and which leave now
_numbers = itertools.count(1)


def join(
    cluster: str,
    *,
    name: str | None = None,
    order: Order | OrderPolicy = "total",
    state: StateHandler | None = None,
    config: Config | None = None,
    on_block: Callable[[Group], object] | None = None,
    on_unblock: Callable[[Group], object] | None = None,
    membership_policy: MembershipPolicy | None = None,
    sequencer_policy: SequencerPolicy | None = None,
    min_members: int = 1,
    rejoin: bool | Callable[[Excluded], object] = False,
    info: Mapping[str, Any] | None = None,
    **settings: Unpack[Settings],
) -> Group:
    """Joins a group, or founds it. Returns when the first view is installed and the state has been received.

    Args:
        cluster: name of the group; the same on every member.
        name: name of this member, unique in the group. Default: host name and process id.
        order: "total" (default, implemented as "records"), "records", "sequencer", "total-1999" or "grant": all
            members deliver all messages in one order; "causal": a message comes after all that its sender received
            before the send; "fifo": each sender's messages are in order. The same on every member. An ``OrderPolicy``:
            "records", and this member orders by that policy whenever it is in charge. docs/guarantees.md has the cost
            of each order.
        state: the application's state, as ``get_state(write)`` and ``set_state(read)``. A member that has the state
            sends a copy to each joiner, exactly as of the start of the view in which the joiner enters the group.
            ``set_state`` is called before ``join`` returns, and messages that were sent to the group from that view on
            are received afterwards. The first member starts with its own state. ``set_state`` is called again when a
            partition heals, on members that take over the merged state or, if not every handler has ``merge_state``,
            that of the larger side. See ``StateHandler``.
        config: settings. Default: those of the environment (``Config.from_environment``).
        on_block: called before a view change stops sends to the group, so that the application can finish work that
            must not span two views. This callback may send. Those messages are delivered on every member before the
            next view (with "sequencer" or "total-1999" in a later view, if the sequencer crashes before ordering them).
            The callback runs on a thread of its own; the view change waits for up to ``block_deadline_s``. If other
            threads finish the work, the callback returns ``seqcast.LATER`` at once, and ``Group.block_ok`` ends the
            wait. A send after that, or in ``on_unblock``, waits like any other. The callback is never called before
            ``join`` returns. When this member leaves, the callback is called first, while this member can still send
            (``leave``), unless it has already run for a view change that is under way.
        on_unblock: called on the same thread when the group can send again, after each ``on_block``.
        membership_policy: chooses the order of the members in each view that this member makes, and so the coordinator
            and, without ``sequencer_policy``, the sequencer; see ``MembershipPolicy``. On failure the default order is
            used and a warning is logged.
        sequencer_policy: chooses the sequencer in each view that this member makes, which can then be a member other
            than the coordinator; see ``SequencerPolicy``. On failure the coordinator is chosen and a warning is logged.
        min_members: ``join`` returns only when a view has this many members, this one included, and not counting
            observers. If multicast does not pass between two machines, each would found a group of its own: this
            makes that an error. Messages from other members wait meanwhile, and hold up fast senders.
        rejoin: if the group excludes this member, or its address is lost, the same object joins again, under the same
            name, as a new incarnation (``Group.member``), as soon as the application has received ``Excluded``. Calls
            that receive go on, and ``events`` yields ``Rejoined``; a send in between raises ``NotMember``.
            ``set_state`` is called again, on a thread of its own, and a journal begins a new directory, whose
            ``Journal.previous`` is the id of the incarnation before. Attempts that fail are repeated after 0.5 to 30 s.
            A member that is excluded as too slow for the third time in 10 minutes does not join again. A function is
            called with the ``Excluded``, by the thread that receives, and says whether to join again.
        info: facts about this member for all others, such as ``{"role": "primary", "http": "10.0.0.1:8080"}``: each
            finds them in ``Member.info`` of a view. A JSON object of at most 256 bytes; see ``set_info``.
        settings: settings as keywords, which take precedence over ``config``; see docs/config.md.

    Raises:
        ConfigError: a setting is wrong, or cannot work here: no such interface, no multicast route, ...
        NameTaken: a living member of the group has this name.
        JoinRefused: the group refuses this member: other settings, another release, or the group is full.
        JoinTimeout: no view came within ``join_timeout_s``, none with ``min_members``, or no member could give the
            state. This member has left the group. Base class of the two above.
        UsageError: the journal already exists, ``state`` lacks one of the two functions, ``info`` is too long or not
            a JSON object, or Python's threads are replaced (gevent, eventlet).
        Exception: raised by ``set_state``. This member has left the group.
    """
    check_threads()
    check_name("cluster", cluster)
    policy = order if isinstance(order, OrderPolicy) else None
    if isinstance(order, OrderPolicy):
        check_limit(order)
        order = "records"
    if order not in ORDERS:
        raise ConfigError(f"order={order!r} must be one of {', '.join(ORDERS)}, or an OrderPolicy (not its class)")
    if config is None:
        config = Config.from_environment(**settings)
    elif settings:
        config = config.replace(**settings)
    if name is None:
        same = sum(group.cluster == cluster for group in open_groups())
        name = f"{socket.gethostname()[:96]}-{os.getpid()}" + (f"-{same + 1}" if same else "")
    check_name("name", name)
    if on_unblock is not None and on_block is None:
        raise ConfigError("on_unblock needs on_block; to be informed only, use block_events=True and `events`")
    if state is not None:
        check_handler(state)
        if not config.receive:
            raise ConfigError("state= needs receive=True: a member that receives no messages has no state to give")
    if config.slow == "skip":
        check_skip(order, state, ordered=resolve(order).total or resolve(order).causal)
    check_policy(membership_policy)
    check_sequencer_policy(sequencer_policy, order, any_member=resolve(order).allows(1, 2))
    check_min_members(min_members)
    policies = Policies(membership_policy, sequencer_policy, policy)
    about = as_about(info or {})
    group = Group(cluster, name, order, config, on_block, on_unblock, state, policies, rejoin, about)
    group._enters = functools.partial(enter, state=state, config=config, min_members=min_members)
    try:
        group._begin_with(group._enters(group._runner))
    except BaseException:
        group._give_up()
        raise
    if group._runner.callbacks is not None:
        group._runner.callbacks.joined = True
    return group


ENDING = threading.Event()
"""``leave_on_signals`` was told to end the process: members that rejoin by themselves no longer do."""


def open_groups() -> list[Group]:
    """The groups that this process has joined, or is joining, and has not left."""
    return list(_open.values())


class Group(Rejoining, Pausing):
    """An open group. Made by ``join``. Every method may be called from several threads.

    A group that nobody refers to any more leaves by itself, with a ResourceWarning, like a file that was not closed: a
    member that takes nothing would hold up the others.

    There are three ways to receive: messages (``for``, ``recv``), batches (``recv_batch``), or everything in its true
    order (``events``). They all take from one stream.

    Attributes:
        cluster: name of the group.
        order: "total", "records", "sequencer", "total-1999", "grant", "causal" or "fifo".
        config: the settings in use, with computed defaults.
    """

    def __init__(
        self,
        cluster: str,
        name: str,
        order: Order,
        config: Config,
        on_block: Callable[[Group], object] | None,
        on_unblock: Callable[[Group], object] | None,
        state: StateHandler | None,
        policies: Policies,
        rejoin: bool | Callable[[Excluded], object],
        about: str,
    ) -> None:
        on_block, on_unblock = (call and functools.partial(call, self) for call in (on_block, on_unblock))
        state_part = part_in_state(state)
        on_disk = getattr(state, "on_disk", lambda: (0, 0))
        make = functools.partial(
            Runner, cluster, name, order, config, on_block, on_unblock, state_part, policies, about=about,
            on_disk=on_disk,
        )  # fmt: skip
        super().__init__(cluster, order, config, make(), state)
        self._about = self._first_about = about
        self._rejoin_as = make if rejoin else None
        self._rejoin_if = rejoin if callable(rejoin) else None
        self._number = next(_numbers)
        self._leaving = threading.Lock()
        self._graceful = False  # the result of `leave`
        self._is_open = True
        _open[self._number] = self

    # ---- leaving

    def leave(self, timeout: float | None = None) -> bool:
        """Leaves the group. Returns when the remaining members have everything that this member sent. A second call
        does nothing.

        First the block callback runs, if any, while sends are still open. Then all sends end, also those of other
        threads and to single members: a later send raises ``NotMember``, and so does a waiting one, unless its message
        is accepted as a whole. Then the accepted messages go out: queued ones (``send_while_blocked``) are
        sent, the sequencer orders all of them, and receivers acknowledge messages to single members. All this takes at
        most three quarters of ``timeout``. Then this member leaves. Messages delivered by then can still be received.
        ``Lost`` reports messages that were not delivered everywhere, through ``events``, also after this call.

        Args:
            timeout: seconds; after that the member leaves as in a crash. Default: ``leave_timeout_s``. While this
                member is blocked in a minority, in which nobody can let it leave, the wait is 1.4 s at most.

        Returns:
            True: the remaining members deliver every message that ``send`` accepted, except those that a ``Lost`` had
            already reported. False: they do not, or that is unknown, and ``Lost`` says which: the time was over, this
            member was excluded, or cut off from all other members at the time of sending. A second call returns the
            same. False in a child process after ``fork``.

        Raises:
            UsageError: ``timeout`` is not a number of seconds, or a block or unblock callback called this.
        """
        if self._forked:
            return False
        self._refuse_callback("leave")
        wait_s = self.config.leave_timeout_s if timeout is None else nanoseconds(timeout) / 1e9
        with self._leaving:
            if self._is_open:
                self._end_attempt(wait_s)
                self._runner.leave(wait_s)
                self._graceful = self._runner.standing.left
                if self._missed:
                    self._under_lock(self._tell_missed, 0)  # a thread with the lock receives, and tells them at `Left`
                self._give_up()
        return self._graceful

    def _give_up(self) -> None:
        self._runner.close()
        self._is_open = False
        _open.pop(self._number, None)

    def __del__(self) -> None:
        if getattr(self, "_is_open", False) and not self._forked:
            if not self._runner.standing.over:
                text = codes.NEVER_LEFT(f"{self!r} was never left")
                warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
            _dropped.add(self._runner)
            leaving = functools.partial(_leave_dropped, self._runner, self.config.leave_timeout_s)
            on_thread_or_here(leaving, "seqcast-leave")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()
        self.close_journal()

    def _after_fork(self) -> None:
        """In a child process: takes no lock, since a thread that does not exist here may be its holder."""
        self._forked = True
        self._runner.after_fork()
        self._begun = None  # only now: the engine knows that it takes the memory back without its lock


def _leave_dropped(runner: Runner, timeout_s: float) -> None:
    runner.leave(timeout_s)
    runner.close()
    _dropped.discard(runner)


def _close_in_child() -> None:
    for group in open_groups():
        group._after_fork()
    _open.clear()
    for runner in _dropped:
        runner.after_fork()
    journaling.clear()


def _leave_all() -> None:
    """At the exit of the interpreter."""
    for group in open_groups():
        with contextlib.suppress(Exception):
            group.leave()
    for runner in list(_dropped):
        runner.standing.wait_over(runner.config.leave_timeout_s)
    for journaled in list(journaling):
        with contextlib.suppress(Exception):
            journaled.close_journal()


atexit.register(_leave_all)
in_child(_close_in_child)
