"""The base of an open group, shared by its sending, receiving and pausing parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

from seqcast._native import driver
from seqcast.api.counters import COUNTERS, explained
from seqcast.config import Config
from seqcast.errors import NotMember, SeqcastError, UsageError
from seqcast.net.forks import forked
from seqcast.net.runner import Runner
from seqcast.net.state import StateHandler
from seqcast.types import Marks, Member, Status, View

if TYPE_CHECKING:
    from seqcast.config.keywords import Order
    from seqcast.journal.writer import JournalWriter


class Uncopied:
    """This process's part of a group, an object that cannot be copied, or sent to another process."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied: it is a member of {getattr(self, 'cluster', '')!r}, "
            "with sockets and threads; pass on the arguments of join, and join there under another name"
        )


class GroupBase(Uncopied):
    """An open group: its member, its views and its counters."""

    cluster: str
    order: Order
    config: Config

    def __init__(self, cluster: str, order: Order, config: Config, runner: Runner, state: StateHandler | None) -> None:
        self.cluster, self.order, self.config = cluster, order, config
        self._runner = runner
        self._driver = runner.driver
        self._state = state
        self._journal: JournalWriter | None = None
        self._forked = False  # in a child process: the group is the parent's

    @property
    def member(self) -> Member:
        """This member."""
        return self._runner.standing.member

    @property
    def view(self) -> View:
        """The newest installed view. Messages of older views may still wait to be received.

        This view changes a moment after its installation, so it may lag behind ``send`` (see ``sending_view``), but
        never behind the stream: whoever has received a view, or a message after it, finds that view or a newer one
        here.

        Raises:
            NotMember: in a child process after ``fork``.
        """
        self._refuse_forked()
        view = self._runner.standing.view
        assert view is not None, "join returned without a view"
        return view

    @property
    def fence(self) -> int:
        """A number that grows with each view, for fencing: whoever acts on the outside by its role in a view (its
        coordinator, the holder of a lock) sends the number along, and the outside refuses a lower one than before.

        The number is that of `view`, 1 or more. With ``partition="primary"`` and ``found`` above half of the intended
        members no two views have the same number, and a later one has a higher number, as long as the group lives: a
        group that is founded again after all its members have ended begins again at a low number. With
        ``partition="merge"`` both sides of a partition count on, so two views may have the same number, and the merged
        view has a higher one than both. After ``seqcast unblock`` the numbers go on from those that the blocked side
        knows.

        Raises:
            NotMember: in a child process after ``fork``.
        """
        return self.view.fence

    @property
    def sending_view(self) -> View:
        """The view to which a message sent to the group now belongs. This view never lags behind ``send``.

        If one thread reads the same view before and after a ``send``, and nothing blocked the group in between, that
        message was accepted in this view. The view of the *delivery* is ``Message.view_id``. That is a later
        one if the message was queued (``send_while_blocked``), or was on its way to the sequencer when the view ended.

        Raises:
            NotMember: this member left or was excluded; or in a child process after ``fork``.
        """
        self._refuse_forked()
        while tag := self._runner.engine.view():
            if (view := self._runner.endpoint.view_tagged(tag)) is not None:
                return view
        raise self._not_member()

    def digest(self) -> dict[Member, Marks]:
        """How far this member has received the stream of each member of the view (`sending_view`) to the group, its own
        too; for each other member also its lag and the round-trip time. With the orders "sequencer" and "total-1999"
        all messages travel in the stream of the sequencer, and the other streams stay where they began.

        Raises:
            NotMember: this member left or was excluded; or in a child process after ``fork``.
        """
        engine = self._runner.engine
        while True:
            view = self.sending_view
            try:
                found = [engine.stream(rank) for rank in range(len(view))]
            except ValueError:  # another view, with fewer members
                continue
            if engine.view() == view.view_id.tag:
                marks = (Marks(at, to, stable, lag, rtt / 1e9) for at, to, stable, lag, rtt in found)
                return dict(zip(view.members, marks, strict=True))

    @property
    def status(self) -> Status:
        """This member's part in the group now, with its ``reason``; see ``Status``. Messages that were delivered before
        may still wait to be received.

        Raises:
            NotMember: in a child process after ``fork``.
        """
        self._refuse_forked()
        return self._runner.standing.status

    @property
    def path(self) -> dict[str, Any]:
        """How datagrams travel: interface, mtu, packet_bytes, gso, gro, looped (back to this machine, where other
        members are), apart (without multicast: the kernel keeps heartbeats and the like apart from messages),
        rcvbuf_granted, address.

        Raises:
            NotMember: in a child process after ``fork``.
        """
        self._refuse_forked()
        used = self._driver
        return {
            "interface": used.interface,
            "mtu": used.mtu,
            "packet_bytes": self._runner.packet_bytes,
            "gso": used.gso,
            "gro": used.gro,
            "looped": used.looped,
            "apart": used.apart,
            "rcvbuf_granted": used.rcvbuf_granted,
            "address": driver.describe_address(used.address),
        }

    def counters(self) -> dict[str, int]:
        """Counters since the join, by name; those of guard connections and of the journal only if there are any.
        docs/counters.md explains each.

        Raises:
            NotMember: in a child process after ``fork``.
        """
        self._refuse_forked()
        counters = self._runner.engine.counters() | self._driver.counters()
        counters |= self._runner.python_counters()
        if self._journal is not None:
            counters |= {f"journal_{key}": value for key, value in self._journal.counters().items()}
        return counters

    if counters.__doc__:  # there is none under -OO
        counters.__doc__ += explained(COUNTERS)

    @property
    def board(self) -> Path | None:
        """The file in memory in which this member shows its state (setting ``board``) until the end of its membership;
        None: there is none. `seqcast probe`, `top` and `metrics` read this file, and so does
            ``seqcast.metrics.Collector``."""
        return self._runner.posting.path

    def __repr__(self) -> str:
        return f"<seqcast.Group {self.cluster!r} member {self.member.name!r}>"

    # ---- why a call is refused

    def _not_member(self) -> SeqcastError:
        """The error for a group that is no longer open in this process."""
        if self._forked:
            return forked("group")
        if self._runner.standing.excluded:
            return NotMember(f"the group excluded this member: {self._runner.standing.excluded}")
        if self._runner.standing.error is not None:
            return self._runner.standing.error
        return NotMember("this member has left the group: join again")

    def _refuse_forked(self) -> None:
        if self._forked:
            raise self._not_member()

    def _refuse_callback(self, what: str) -> None:
        """Raises if a callback makes this call, which cannot return before the callback does."""
        if self._runner.callbacks is not None and self._runner.callbacks.inside:
            raise UsageError(f"{what} waits for the group, which waits for this callback: call it from another thread")
