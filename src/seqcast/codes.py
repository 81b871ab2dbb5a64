"""The codes of conditions that seqcast reports: each has a number that stays, a title, a cause and a remedy.
``docs/codes.md`` is made from this table.

1xxx: the machine and its settings. 2xxx: members and the flow between them. 3xxx: membership. 4xxx: transport and
discovery. 5xxx: keys. 6xxx: journal and Spark. 9xxx: bugs of seqcast.
"""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """A condition.

    Args:
        number: ``SCnnnn``; never given to another condition.
        title: in a few words.
        cause: why it comes about.
        remedy: what to do about it.
    """

    number: str
    title: str
    cause: str
    remedy: str


CODES: dict[str, Code] = {}


def _code(number: int, title: str, cause: str, remedy: str) -> Code:
    code = Code(f"SC{number}", title, cause, remedy)
    assert code.number not in CODES
    CODES[code.number] = code
    return code


SLOW_RECEIVER = _code(
    2203,
    "Senders wait for a member",
    "A receiver takes less than most others, or nothing, and every sender waits until it has room.",
    "Look at its application, its machine and the network to it; `recv_batch` takes many messages at a time. A member "
    "that needs no messages joins with receive=False.",
)
AWAITED = _code(
    2205,
    "Others wait for this member",
    "The application of this member takes messages more slowly than they are sent.",
    "Take messages faster, many at a time (`recv_batch`), or leave the group.",
)
PYTHON_HANGS = _code(
    2206,
    "Python of a member does not run",
    "A thread keeps the GIL: a long call of an extension, or a debugger. Data flows on, but view changes wait for it.",
    "`py-spy dump --pid PID` shows which call it is in.",
)
NOT_RUNNING = _code(
    2207,
    "A member's process does not run",
    "It is stopped (SIGSTOP, a frozen container), or gets no CPU time. The others suspect it.",
    "`ps -o stat,wchan -p PID`; look at the CPU quota of its container.",
)
DEAF_TO_MULTICAST = _code(
    2210,
    "A member hears another one by unicast only",
    "Multicast does not pass from one member to the other: a firewall, or a switch with IGMP snooping and no querier.",
    'Run `seqcast doctor --with HOST` between the two; transport="unicast" needs no multicast.',
)
DEAF = _code(
    2211,
    "A member does not hear another one at all",
    "Neither multicasts nor unicasts pass from one member to the other.",
    "Run `seqcast doctor --with HOST` between the two, and look at the firewalls of both machines.",
)
MUTE = _code(
    2212,
    "A member's unicasts do not reach another one",
    "Multicasts pass and unicasts do not: a firewall, or a wrong route back.",
    "Let UDP pass to the unicast ports of each member (`seqcast probe` shows the addresses).",
)
ENDED = _code(
    3005,
    "A member's process has ended without leaving the group",
    "It was killed, or has crashed. Its board shows its last state.",
    "Look at the log of the process, and at the kernel's for the OOM killer (`dmesg`).",
)
BLOCKED = _code(
    3102,
    "Sends to the group wait",
    "A view change or a pause is under way, or this side of a partition has no majority.",
    "Nothing, if it ends by itself. Without a majority: bring the others back, or see `seqcast unblock`.",
)
