"""The sending part of a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from seqcast._native import driver
from seqcast.api.base import GroupBase
from seqcast.arguments import as_list, id_of, nanoseconds
from seqcast.errors import NotInView, NotMember, SendTimeout, SendWouldBlock, SeqcastError, UsageError
from seqcast.types import Member

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Sending(driver.Sender, GroupBase):
    """Sends messages, and tells how far the other members have received them. ``send`` and ``send_batch`` are those of
    ``Sender``."""

    def send_many(
        self,
        payloads: Iterable[Buffer],
        *,
        to: Member | str | None = None,
        timeout: float | None = None,
        ordered: bool = True,
    ) -> None:
        """Sends messages one after the other, faster than one ``send`` for each. A list must not be changed until the
        call returns.

        Args:
            payloads: the messages, as for ``send``.
            to: as for ``send``.
            timeout: seconds for the whole call; None: no limit.
            ordered: as for ``send``.

        Raises:
            SendTimeout: the first ``error.sent`` messages were sent, the others were not.
            NotMember, NotInView, UsageError: as for ``send``; the first ``error.sent`` messages were sent.
        """
        self._send_many(as_list(payloads), to, timeout, ordered)

    def _send_many(
        self, payloads: list[Any], to: Member | str | None, timeout: float | None, ordered: bool, done: int = 0
    ) -> None:
        """``done``: how many of the payloads the same call has already sent."""
        wait = -1 if timeout is None else nanoseconds(timeout)
        receiver = 0 if to is None else id_of(self._named(to) if isinstance(to, str) else to)
        try:
            self._driver.send_many(payloads[done:] if done else payloads, receiver, wait, ordered, self)
        except driver.Refused as refused:
            raise self._refusal(refused, to, timeout, done, "payloads[{}]") from None

    def _named(self, name: str) -> Member:
        """The member of this name, for ``to``."""
        view = self.sending_view
        found = [member for member in view if member.name == name]
        if not found:
            raise NotInView(f"no member of the {view} is named {name!r}: send to one of its members")
        if len(found) > 1:
            raise UsageError(
                f"{len(found)} members of the {view} are named {name!r}: send to the Member of group.view.members that "
                "is meant"
            )
        return found[0]

    # ---- messages that the other members have received

    @property
    def sent_seqno(self) -> int:
        """Seqno (``Message.seqno``) of the packet with the end of the last message that this member sent to the group.
        Messages that wait in the queue of ``send_while_blocked`` are in no packet yet. 0 after this member has left.

        Raises:
            NotMember: in a child process after ``fork``.
        """
        self._refuse_forked()
        return self._runner.engine.last_sent()

    @property
    def consumed(self) -> int:
        """The applications of all other members have taken this member's messages to the group up to this packet seqno
        (``Message.seqno``), as far as is known here. While this is below ``sent_seqno``, each reading asks the other
        members, so that the next one may return more. 0 after this member has left.

        ``wait_consumed`` explains "taken", and its cost.

        Raises:
            NotMember: in a child process after ``fork``.
        """
        self._refuse_forked()
        consumed = self._runner.engine.consumed(driver.now_ns())
        self._driver.poke()
        return consumed

    def wait_consumed(self, timeout: float | None = None) -> bool:
        """Waits until the applications of all other members have taken every message that this member's threads sent to
        the group before this call, also across view changes. (``send`` only promises that a message will be delivered.)

        A message is taken when ``recv``, ``for`` or ``events`` returns it, or ``recv_batch`` returns its batch. If the
        messages of one batch are returned one by one, all of them are taken when the last one is. The application's use
        of a message is not known here: if that matters, have the application answer with a message. A member with
        ``receive=False`` counts as having taken everything. The call does not wait for members that leave, crash or are
        excluded, nor for members that joined, or merged with this side, after the message was sent.

        A wait costs one datagram to each other member and one or two back. They are repeated while the call waits:
        first after 8 ms (``probe_s_min``), then at growing intervals of up to 100 ms (``probe_s_max``). Without a wait
        this costs nothing. A wait takes one round trip longer than the slowest application: wait once for many
        messages, not after each. A receiver that is stuck while its process lives is never excluded: the call waits
        until its application continues, or until ``timeout``.

        Args:
            timeout: seconds; None: no limit.

        Returns:
            True: all were taken. False: not within ``timeout``; or the group merged with another part before some of
            the messages had an order, and ``Lost`` says which.

        Raises:
            NotMember: this member left or was excluded.
            UsageError: ``timeout`` is not a number of seconds.
        """
        try:
            return self._driver.wait_taken(-1 if timeout is None else nanoseconds(timeout))
        except driver.Refused:
            raise self._not_member() from None

    # ---- whom sends wait for

    def stalls(self) -> list[tuple[Member, float]]:
        """The members for which sends to the group would wait now: they have taken so few of this member's messages
        that no more may be sent. One may be this member itself, if its own application takes too few.

        Returns:
            For each of them, how long that has lasted, in seconds, as far as is known from a look at each heartbeat.
            Empty: a send would not wait, or would wait for a view change or a pause (``status``).

        Raises:
            NotMember: in a child process after ``fork``.
        """
        self._refuse_forked()
        members = {member.id: member for member in self.view}
        found = self._runner.engine.stalls(driver.now_ns())
        return [(members[member], ns / 1e9) for member, ns in found if member in members]

    def _waited_for(self, to: Member | str | None) -> tuple[str, ...]:
        """Names of the members for which a send waits."""
        if to is None:
            return tuple(member.name for member, _ in self.stalls())
        return (to if isinstance(to, str) else to.name,)

    def _paced(self, to: Member | str | None) -> bool:
        """Do packets to this receiver, or to the group, wait for others to leave?"""
        ids = [0] if to is None else [each.id for each in self.view if to in (each, each.name)]
        return any(map(self._runner.engine.paced, ids))

    def _why_it_waits(self, to: Member | str | None) -> tuple[str, tuple[str, ...]]:
        """Why a send waits, and the names of the members that are the reason."""
        standing, names = self._runner.standing, self._waited_for(to)
        if to is None and (status := standing.status) == "blocked":  # by a view change, or a pause, too
            return f"sends to the group wait: {status.reason}", ()
        if standing.minority:
            return standing.minority, ()
        if self._paced(to) and (to is not None or not names):
            bound = f"send_bytes_per_s={per_s}" if (per_s := self.config.send_bytes_per_s) else "congestion"
            return f"packets leave this member no faster ({bound}): wait longer, or send less", ()
        if names == (self.member.name,):
            return f"{self._not_taken(names)}: receive, or join with receive=False if this program only sends", names
        if names:
            return f"{self._not_taken(names)}: receive there, wait longer, or send less", names
        return "a receiver is slower than this sender, or a view change takes long: wait longer, or send less", ()

    def _not_taken(self, names: tuple[str, ...]) -> str:
        others = [name for name in names if name != self.member.name]
        who = [*others, "this member itself"] if len(others) < len(names) else others
        verb = "has" if len(who) == 1 else "have"
        return f"{' and '.join(who) or 'a receiver'} {verb} not taken the messages sent before"

    def _refusal(
        self,
        refused: driver.Refused,
        to: Member | str | None,
        timeout: float | None,
        done: int = 0,
        which: str = "the payload",
    ) -> SeqcastError:
        """The error for a send that the driver refused.

        Args:
            refused: the driver's error.
            to: the receiver of the call; None: the group.
            timeout: seconds that the call could wait; None: no limit.
            done: messages that the same call had sent before.
            which: how to name the payload; ``{}`` stands for its number.
        """
        result, sent, *what = refused.args
        sent += done
        error: SeqcastError
        if result == driver.AGAIN:
            why, names = self._why_it_waits(to)
            error = SendTimeout(f"not sent within {timeout:g} s ({sent} messages of this call were sent): {why}")
            error.waiting_for = names
        elif result == driver.KEPT_FULL:
            names = self._waited_for(to)
            error = SendWouldBlock(
                f"this thread receives, and waits here to send ({sent} messages of this call were sent), as "
                f"{self._not_taken(names)}; meanwhile {self.config.kept_bytes} bytes have arrived (kept_bytes), and no "
                "more may be kept. Receive first, or in another thread; or send less for each message received"
            )
            error.waiting_for = names
        elif result == driver.TOO_LARGE:
            error = UsageError(
                f"the message is larger than message_bytes_max={self.config.message_bytes_max}: split it, or raise "
                "the limit on every member"
            )
        elif result == driver.NO_MEMBER:
            error = NotInView(
                f"{to} is not in the {self.view}: send to one of its members; a restarted process is a new member"
            )
        elif result == driver.OBSERVER:
            error = UsageError(
                "an observer sends nothing to the group: send to one of its members (to=), or join without observer="
            )
        elif result == driver.ENDED:
            error = NotMember("this member is leaving the group and can no longer send: join again to send")
        elif result == driver.UNSURE:
            error = NotMember(
                f"{self._not_member()}; the message was on its way as a whole and not yet known to be ordered: members "
                "that this one was cut off from may have delivered it"
            )
        elif result == driver.NOT_BYTES:
            error = UsageError(
                f"a message is bytes or an object with a contiguous buffer, and {which.format(sent)} is {what[0]}; "
                "encode text, and copy slices of an array"
            )
        elif result == driver.LIST_CHANGED:
            error = UsageError(
                f"send_many: another thread shortened the list after {sent} messages were sent: do not change it until "
                "send_many returns, or pass a copy"
            )
        elif result == driver.BAD_OFFSETS:
            error = UsageError(
                f"send_batch: another thread changed the offsets, which now descend or lie outside data, after {sent} "
                "messages were sent: do not change the array until send_batch returns"
            )
        else:
            error = self._not_member()
        error.sent = sent
        return error
