"""Errors. Each message names the fault and the remedy.

A ``UsageError`` reports a mistake of the caller, a ``RemoteProtocolError`` one of a peer, an ``AssertionError`` a bug
in seqcast; they are never mixed.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in the package: `typing` takes longer to load than all else here
if TYPE_CHECKING:
    from seqcast._native.engine import Message


class SeqcastError(Exception):
    """Base class of all errors of seqcast.

    Attributes:
        code: the code of the condition (docs/codes.md), the same in all releases.
        sent: if a send raised the error: how many messages of the call, from the first on, were sent.
    """

    code: str = "SC9001"
    sent: int = 0

    def __str__(self) -> str:
        """The text, and the code under which docs/codes.md says more."""
        text = super().__str__()
        return text if self.code in text else f"{text} ({self.code})".lstrip()


def without_code(error: BaseException) -> str:
    """The text of an error without its code, for an error with a code of its own."""
    return Exception.__str__(error) if isinstance(error, SeqcastError) else str(error)


class UsageError(SeqcastError):
    """A wrong call: a wrong type, a message over the limit, a call at the wrong time or place."""

    code = "SC1201"


class ConfigError(SeqcastError):
    """A setting that is wrong, or cannot work here: no such interface, a port in use, settings that contradict each
    other."""

    code = "SC1202"


class JoinTimeout(SeqcastError):
    """No view was installed within ``join_timeout_s``, no member could give the state, or this member's address was
    replaced during the join. Base class of refusals."""

    code = "SC4001"


class JoinRefused(JoinTimeout):
    """The group answered and refuses this member: another release or other settings (the text names the difference and
    the change to make), or the group is full. Joining again without a change leads to the same refusal."""

    code = "SC3001"


class NameTaken(JoinRefused):
    """A living member of the group has this name: choose another ``name=``. The name of a crashed member is free once
    the group has noticed the crash; ``join`` waits ``name_taken_s`` for that."""

    code = "SC3002"


class NotMember(SeqcastError):
    """This member is not in the group: gone, leaving, or excluded. Join again."""

    code = "SC3003"


class NotInView(SeqcastError):
    """The member that ``to`` names is not in the view: gone, crashed, or yet to join. The group goes on."""

    code = "SC2214"


class SendTimeout(SeqcastError):
    """``send`` waited for credit, or for a view change, longer than its ``timeout``. The first ``sent`` messages of the
    call were sent, the others were not.

    Attributes:
        waiting_for: names of the members for which the send waited, as they had not taken the messages sent before;
            this member's own name, if its application had not. Empty: the send waited for a view change, a pause or
            earlier sends, or because the rate of this member's packets is bounded (``send_bytes_per_s``,
            ``congestion``).
    """

    code = "SC2208"
    waiting_for: tuple[str, ...] = ()


class SendWouldBlock(SendTimeout):
    """``send`` in the thread that receives could only wait for ever: as many messages have arrived as may be kept
    meanwhile (``kept_bytes``), and the event that ``send`` waits for comes only once some of them are received. Either
    this member's own messages fill the room, or other members wait in the same way. Receive, then send again; or
    receive in a thread of its own, and send fewer messages for each that is received."""

    code = "SC2205"


class Undecided(SeqcastError):
    """A message of ``deliver``, or a call of a block, may or may not take effect; the text has the details. With
    ``sent`` 0 this is certain not to happen, and the message can be sent again.

    Attributes:
        message: the message of ``deliver`` as delivered here; None: not delivered, or the call was not ``deliver``.
    """

    code = "SC3006"
    message: Message | None = None


class NotReady(SeqcastError):
    """A block cannot answer now: not in its group, or with its group blocked; the text says why. Nothing was sent,
    or only messages that change nothing."""

    code = "SC3007"


class OtherRelease(NotReady):
    """A member of another release sends operations that this block does not know, or wrote the state or the file that
    this block read: ignoring the unknown part would lead to a state that the others do not have, so the block has
    ended. The text says whom to upgrade."""

    code = "SC3010"


class StableFailed(SeqcastError):
    """The file of ``stable=``, or a replica's log, could not be written: this member has left its group, as
    its votes or its operations would not outlast it. The file has all that was synced before."""

    code = "SC3111"


class MachineError(SeqcastError):
    """A replicated state machine refused an operation: on every replica ``apply`` raised the error in the text.

    Attributes:
        answers: of ``call_many``: for each operation the answer; None: refused. All others were applied.
    """

    code = "SC3009"
    answers: tuple[bytes | None, ...] = ()


class SuspendTimeout(SeqcastError):
    """``suspend`` waited longer than its ``timeout``, or the pause ended early. The group is not paused."""

    code = "SC3008"


class JournalWriteError(SeqcastError):
    """The journal cannot be written. Messages delivered since are counted (``rows_lost``) but not recorded."""

    code = "SC6001"


class RemoteProtocolError(SeqcastError):
    """A peer sent bytes that do not follow the protocol."""

    code = "SC4002"


class SparkFailed(SeqcastError):
    """Spark failed: no Java, no master, no memory, a failed task. Nothing was proved or refuted."""

    code = "SC6002"
