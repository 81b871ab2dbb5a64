"""Errors. Each message says what happened and what to do about it.

``UsageError`` is the caller's mistake, ``RemoteProtocolError`` a peer's, an ``AssertionError`` ours; never mixed.
"""


class SeqcastError(Exception):
    """Base of every error of seqcast.

    Attributes:
        sent: of an error that a send raised: how many messages of that call were sent before it, from the first on.
    """

    sent: int = 0


class UsageError(SeqcastError):
    """A call that cannot be right: a closed group, a wrong type, a message over the limit."""


class ConfigError(SeqcastError):
    """A setting that cannot be right here: no such interface, a port in use, clashing settings."""


class JoinTimeout(SeqcastError):
    """No view was installed within ``join_timeout_s``, or no member could give the state; base of the refusals."""


class JoinRefused(JoinTimeout):
    """The group answered, and does not take this member in: another release or other settings (the text says which
    and what to change), or the group is full. To join again without a change meets the same refusal."""


class NameTaken(JoinRefused):
    """A living member of the group has this name: choose another ``name=``. A crashed member's name is free again as
    soon as the group has noticed the crash; ``join`` waits ``name_taken_s`` for that."""


class NotMember(SeqcastError):
    """This member is not, or no longer, in the group: it left, is leaving, or was excluded. Join again."""


class NotInView(SeqcastError):
    """The member that ``to`` names is not in the view: it left, fell, or has yet to come. The group is well."""


class SendTimeout(SeqcastError):
    """``send`` waited for credit, or for a view change, longer than its ``timeout``. The first ``sent`` messages of the
    call were sent, the rest not."""


class SuspendTimeout(SeqcastError):
    """``suspend`` waited longer than its ``timeout``; the group goes on."""


class JournalWriteError(SeqcastError):
    """The journal cannot be written; what was delivered since is counted (``rows_lost``), not kept."""


class RemoteProtocolError(SeqcastError):
    """A peer sent bytes that cannot be right."""


class SparkFailed(SeqcastError):
    """Spark could not do its work: no Java, no master, no memory, a task that fails. Nothing was proved or refuted."""
