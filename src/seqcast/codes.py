"""The codes of conditions that seqcast reports: each has a number that stays, a title, a cause and a remedy.
``docs/codes.md`` is made from this table.
"""

from __future__ import annotations

from typing import NamedTuple

KINDS = {
    "1": "The machine and its settings",
    "2": "Members and the flow between them",
    "3": "Membership",
    "4": "Transport and discovery",
    "5": "Keys",
    "6": "Journal and Spark",
    "9": "Bugs of seqcast",
}
"""By the first digit of a code."""


class Code(NamedTuple):
    """A condition.

    Args:
        number: ``SCnnnn``; never given to another condition.
        title: in a few words.
        cause: how the condition comes about.
        remedy: the next step for a person.
    """

    number: str
    title: str
    cause: str
    remedy: str

    def __call__(self, text: str) -> str:
        """A line about the condition, with its number."""
        return f"{text} ({self.number})"


class Finding(NamedTuple):
    """A condition, here and now.

    Args:
        code: the code of the condition.
        fact: one sentence.
        remedy: the next step for a person.
    """

    code: Code
    fact: str
    remedy: str

    def line(self) -> str:
        """The finding in a line, for people."""
        return f"{self.code.number}  {self.fact}. {self.remedy}"

    def sketch(self) -> dict[str, str]:
        """The same as an object of JSON."""
        return {"code": self.code.number, "fact": self.fact, "remedy": self.remedy}


def finding(code: Code, fact: str, **known: object) -> Finding:
    """A finding with the code's remedy, in which words such as PID are replaced by the values ``known`` here."""
    return Finding(code, fact, filled(code, **known))


def filled(code: Code, **known: object) -> str:
    """The code's remedy with these words replaced; an empty value replaces none."""
    remedy = code.remedy
    for word, value in known.items():
        remedy = remedy.replace(word, str(value or word))
    return remedy


CODES: dict[str, Code] = {}


def _code(number: int, title: str, cause: str, remedy: str) -> Code:
    code = Code(f"SC{number}", title, cause, remedy)
    assert code.number not in CODES
    CODES[code.number] = code
    return code


NO_SOCKETS = _code(
    1001,
    "A member's sockets cannot be opened",
    "No interface, address or port that the settings need, or no permission.",
    "The text names the step that failed, and the setting or command that helps.",
)
ONLY_LOOPBACK = _code(
    1002,
    "Only loopback carries multicast",
    "No network interface has a route for multicast, so members on other machines cannot be reached.",
    "Give interface=, or add a route: ip route add 224.0.0.0/4 dev INTERFACE.",
)
INTERFACE_FAULT = _code(
    1003,
    "The network interface does not work",
    "The interface is down, has no carrier, or lost its address.",
    "`ip -brief link` and `ip -brief address` show its state; `ip link set NAME up`.",
)
SMALL_MTU = _code(
    1004,
    "The interface carries only small packets",
    "Its MTU is below 1,280 bytes, so there are more packets, and each costs the same.",
    "ip link set NAME mtu 1500, if the network carries that.",
)
WIRELESS = _code(
    1005,
    "The interface is wireless",
    "Access points send multicasts at the lowest rate, and do not repeat lost ones.",
    'Use a cable, or transport="unicast".',
)
NO_QUERIER = _code(
    1006,
    "A bridge snoops IGMP, and nobody asks for memberships",
    "After 260 s the bridge forgets who wants a group's packets, and multicast stops.",
    "Switch the bridge's querier on, or its snooping off.",
)
CONTAINER = _code(
    1007,
    "A container",
    "Multicast of a container reaches other containers on the same bridge at most.",
    'For members on other machines: the network of the host, or transport="unicast".',
)
CLIPPED_BUFFERS = _code(
    1104,
    "Socket buffers are smaller than asked for",
    "The kernel's limit is below rcvbuf or sndbuf, so senders to this member get small windows.",
    "sysctl -w net.core.rmem_max=... net.core.wmem_max=..., with the numbers of the warning.",
)
NO_GSO = _code(
    1106,
    "Each packet is sent by itself",
    "The kernel or the device does not take many packets in one call (UDP_SEGMENT), which costs CPU time.",
    "Use Linux 4.18 or later and a device that supports UDP_SEGMENT; gso=False silences the warning.",
)
NO_GRO = _code(
    1107,
    "Each packet is received by itself",
    "Neither the kernel nor the card joins packets of one burst (UDP_GRO), which costs CPU time; on a slow link there "
    "is nothing to join.",
    "Linux 5.0 or later, gro=True, and ethtool -K NAME gro on rx-udp-gro-forwarding on (a container: its host's card).",
)
SOCKET_DROPS = _code(
    1108,
    "Full receive buffers have dropped datagrams",
    "Sockets of this machine, perhaps of other programs, were not read in time.",
    "`nstat -az UdpRcvbufErrors` shows whether the number grows; raise net.core.rmem_max, or give the program a core.",
)
SMALL_QUOTA = _code(
    1110,
    "Less than one CPU core",
    "A cgroup's quota stops this process for the rest of each period, and other members then suspect this one.",
    "Raise the CPU limit of the container to at least 1, or remove the limit and keep the request.",
)
THROTTLED = _code(
    1111,
    "The CPU quota has stopped this process",
    "A cgroup's quota was used up: the process does not run until the next period, and other members suspect this one.",
    "Raise or remove the CPU limit of the container.",
)
SLOW_CLOCK = _code(
    1112,
    "The clock is slow to read",
    "The clock source needs a system call or a device, a microsecond or more each time.",
    "Boot with clocksource=tsc if the machine's TSC is stable, or move to another kind of virtual machine.",
)
NO_AES = _code(
    1113,
    "The processor has no AES instructions",
    "A view with such a member is sealed with XChaCha20-Poly1305, which is slower; other ciphers need them.",
    "Let the virtual machine have the instructions of its host, or set cipher= to auto on every member.",
)
SMALL_MEMLOCK = _code(
    1114,
    "Keys may get into the swap",
    "The process may lock less memory than a member needs for its keys.",
    "ulimit -l 128, or LimitMEMLOCK=128K in the service's unit; or no swap.",
)
COPIED_VM = _code(
    1115,
    "A copy of this virtual machine would draw the same random numbers for a while",
    "The machine has no generation id (vmgenid), by which Linux notices a copy, so nonces may repeat.",
    "Give the machine one, or do not copy or restore the machine while a member with a key runs.",
)
WRONG_CALL = _code(
    1201,
    "A wrong call",
    "The program called a function with a wrong argument, or at the wrong time or place.",
    "The text says which values are allowed. `UsageError`.",
)
WRONG_SETTING = _code(
    1202,
    "A setting that is wrong, or cannot work here",
    "A value that is not allowed, or that this machine does not have.",
    "The text says which values are allowed. `ConfigError`.",
)
KUBERNETES = _code(
    1204,
    "Variables of a service that is named seqcast",
    "Kubernetes sets SEQCAST_SERVICE_HOST and the like, which are not settings.",
    "Rename the service, or set enableServiceLinks: false.",
)
NEVER_LEFT = _code(
    1205,
    "A group was dropped without leaving",
    "The program has lost its last reference to an open group, which then leaves by itself.",
    "Call `leave`, or use the group in a `with` statement.",
)
NOT_MEASURED = _code(
    1206,
    "A measurement failed",
    "A process of `seqcast perf`, or the way to the process, failed or hangs, or this machine lacks such a network.",
    "The text says which.",
)
STARVED = _code(
    2201,
    "A member has no receive buffer free",
    "Its application takes no messages, `slabs_max` is too small, or the member keeps places in the order unused.",
    "Take messages faster, or raise slabs_max there.",
)
SLOW_RECEIVER = _code(
    2203,
    "Senders wait for a member",
    "A receiver takes less than most others, or nothing, and every sender waits for room there.",
    "Look at its application, its machine and its network; `recv_batch` takes many messages at a time. A member that "
    "needs no messages joins with receive=False.",
)
TOO_SLOW = _code(
    2204,
    "A receiver is too slow to stay in the group",
    'With `slow="exclude"`, the receiver held a sender at its limit for `slow_s`, and could take less than a '
    "sixteenth of what most members could.",
    "Take messages faster there (`recv_batch`), or raise slow_s on all members; then join again.",
)
NO_REJOIN = _code(
    3107,
    "A member does not join again",
    "With `rejoin=True`, the member was excluded as too slow three times within ten minutes.",
    "Take messages faster, or raise slow_s on all members; then join again.",
)
REJOIN_FAILED = _code(
    3108,
    "A member cannot join again yet",
    "With `rejoin=True`, an attempt to join after an exclusion failed; further ones follow at intervals, until "
    "the member is in or leaves. Meanwhile loops over messages wait. This is a warning if the group refuses the "
    "member, as one with other settings does, if a setting is wrong here, or after several failures.",
    "The text says why: change that, here or in the group. `leave` ends the attempts, and the loops.",
)
AWAITED = _code(
    2205,
    "Others wait for this member",
    "The application of this member takes messages more slowly than they are sent, or takes none as it only sends.",
    "Take messages faster, many at a time (`recv_batch`), or leave the group. A program that only sends joins with "
    "receive=False.",
)
PYTHON_HANGS = _code(
    2206,
    "Python of a member does not run",
    "A thread keeps the GIL: a long call of an extension, or a debugger. Data flows on, but view changes wait for the "
    "GIL.",
    "`py-spy dump --pid PID` shows the call.",
)
NOT_RUNNING = _code(
    2207,
    "A member's process does not run",
    "The process is stopped (SIGSTOP, a frozen container), or gets no CPU time. The other members suspect this one.",
    "`ps -o stat,wchan -p PID`; look at the CPU quota of its container.",
)
SEND_TIMEOUT = _code(
    2208,
    "A send waited longer than its timeout",
    "A receiver has no room, a view change or a pause is under way, or this member's packets have a rate limit.",
    "`SendTimeout.waiting_for` and `group.stalls()` name the receivers; see SC2203.",
)
PASSED_OVER = _code(
    2209,
    "A loop over messages passed over an event",
    "The program iterates over messages only, and the stream had something else that matters, such as a loss.",
    "Iterate over `group.events()`.",
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
UNANSWERED = _code(
    2215,
    "A member does not answer another one's question",
    "Its Python does not run, the member has left or is about to be excluded, or datagrams in either direction are "
    "lost.",
    "Run `seqcast probe` on its machine, and `seqcast doctor --with HOST` between the two.",
)
OTHER_LAYOUT = _code(
    2216,
    "A board that this release of the command cannot read",
    "The member runs with another release of seqcast, whose boards have another layout.",
    "Run the command of the release that the member runs with, for example from its virtual environment.",
)
MUTE = _code(
    2212,
    "A member's unicasts do not reach another one",
    "Multicasts pass and unicasts do not: a firewall, or a wrong route back.",
    "Let UDP pass to the unicast ports of each member (`seqcast probe` shows the addresses).",
)
LINKS_CUT = _code(
    2213,
    "Members that cannot reach each other are separated",
    "Links between members carry no multicasts, or no unicasts, in one direction at least.",
    "The text names the members and the direction. Run `seqcast doctor --with HOST` between the two.",
)
NOT_IN_VIEW = _code(
    2214,
    "The receiver is not in the view",
    "The member that a message is for has left, was excluded, or has yet to join.",
    "Look at `group.view`. `NotInView`.",
)
JOIN_REFUSED = _code(
    3001,
    "The group refuses this member",
    "This member has another release or other settings, or the group is full.",
    "The text names the reason and the remedy. `JoinRefused`.",
)
NAME_TAKEN = _code(
    3002,
    "The name is taken",
    "A living member of the group has this name.",
    "Choose another name=. `NameTaken`.",
)
NOT_MEMBER = _code(
    3003,
    "This member is not in the group",
    "This member has left, is leaving, was excluded, or ended with an error that the text gives.",
    "Join again; after an error, once its cause is removed. `NotMember`.",
)
ENDED = _code(
    3005,
    "A member's process has ended without leaving the group",
    "The process was killed, or has crashed. The member's board shows its last state.",
    "Look at the log of the process, and at the kernel's for the OOM killer (`dmesg`).",
)
SKIPS = _code(
    2217,
    "A member misses messages",
    'With `slow="skip"`, the application takes messages too slowly, and misses the oldest that wait; `Skipped` stands '
    "in their place.",
    "Take messages faster there, many at a time (`recv_batch`); or give the program only what it needs.",
)
NO_ANSWER = _code(
    2301,
    "The other machine does not answer",
    "No unicast comes back: `seqcast doctor --listen` does not run there, or a firewall or a route is in the way.",
    "Run `seqcast doctor --listen` there, and let UDP pass to its port.",
)
UNICAST_LOSS = _code(
    2302,
    "Unicasts are lost",
    "More than 2 datagrams of 500, sent slowly, did not arrive: a bad cable, a duplex mismatch, or a full link.",
    "`ethtool -S NAME` and the counters of the switch ports show the place.",
)
NO_ROUTE = _code(
    2303,
    "There is no route to the other machine",
    "The routing table of this machine has no way to that address: the interface is down, or the gateway is missing.",
    "`ip route get ADDRESS` shows the system's choice; bring the interface up, or add the route.",
)
OTHER_INTERFACE = _code(
    2304,
    "Datagrams to the other machine leave by another interface",
    "The route to that address does not lead to the interface of a member here.",
    "Give interface= (--interface) on the way there, or --with the address of that machine in the members' network.",
)
NO_MULTICAST = _code(
    2310,
    "Multicast passes neither way",
    "The network does not carry multicast, or a firewall drops 224.0.0.0/4.",
    'transport="unicast" with seeds=; or let UDP pass to 239.255.0.0/16, and IGMP.',
)
MULTICAST_NOT_THERE = _code(
    2311,
    "The other machine does not hear our multicasts",
    "A firewall here drops them on the way out, or one there on the way in, or a switch does not know that the other "
    "machine wants them.",
    "Let UDP to 239.255.0.0/16 out here and in there; look for IGMP snooping without a querier.",
)
MULTICAST_NOT_HERE = _code(
    2312,
    "We do not hear the multicasts of the other machine",
    "A firewall there drops them on the way out, or one here on the way in, or a switch does not know that we want "
    "them.",
    "Let UDP to 239.255.0.0/16 out there and in here; look for IGMP snooping without a querier.",
)
MULTICAST_STOPS = _code(
    2313,
    "Multicast stops after some minutes",
    "A switch with IGMP snooping has forgotten who wants multicast: the network has no querier.",
    "Switch on an IGMP querier in one switch or router of the network, or snooping off.",
)
PATH_SMALL = _code(
    2321,
    "Large packets do not pass",
    "A part of the way (a tunnel, an overlay network) carries less than the interfaces on both ends.",
    "Set packet_bytes= to the largest size that passes, or the interface's MTU to 28 bytes more; or let ICMP pass.",
)
NETWORK_LOSS = _code(
    2331,
    "A burst is lost in the network",
    "More than 0.1 % of a second of full packets was lost, and not at the receiving socket; the line names the place.",
    "`ethtool -S NAME` shows drops of the cards (rx_missed, rx_dropped); raise the rings with ethtool -G. For drops in "
    "the kernel before sockets raise `sysctl net.core.netdev_max_backlog`.",
)
UNDECIDED = _code(
    3006,
    "The fate of messages is not known",
    "A view change came between send and delivery, or nobody answered a leave.",
    "`Lost`, or the text of the error, says which. `Undecided`.",
)
NOT_READY = _code(
    3007,
    "A block cannot answer now",
    "The block is not in its group, or the group is blocked.",
    "Wait, or try again. `NotReady`.",
)
NOT_PAUSED = _code(
    3008,
    "A pause did not come about, or has ended by itself",
    "Not all members stopped in time, or the member that paused the group is silent.",
    "Look at the members; `suspend` takes a longer timeout. `SuspendTimeout`.",
)
MACHINE_REFUSED = _code(
    3009,
    "A replicated state machine refused an operation",
    "`apply` raised the error in the text, on every replica.",
    "That is an answer of the program's own. `MachineError`.",
)
OTHER_RELEASE = _code(
    3010,
    "A format of another release",
    "A member sends, or wrote, a format of a block that this member does not know. A block with state has ended, as "
    "its state would differ from that of the others; `Rpc`, which has none, goes on without such messages.",
    "Upgrade the member that the text names; if the file is its own, start the release that wrote it. `OtherRelease`.",
)
EXCLUDED = _code(
    3101,
    "This member was excluded",
    "The others did not hear this member for longer than the suspicion time, or chose to go on alone.",
    "The reason says which; join again. `rejoin` does so by itself.",
)
BLOCKED = _code(
    3102,
    "Sends to the group wait",
    "A view change or a pause is under way, or this side of a partition has no majority.",
    "A view change and a pause end by themselves. Without a majority: bring the others back, or see `seqcast unblock`.",
)
JOIN_WAITS = _code(
    3103,
    "A join waits",
    "The group is blocked, or too few processes are present to found one.",
    "The text says for whom it waits.",
)
FOUNDS_ALONE = _code(
    3104,
    "A primary group that anybody may found alone",
    'With partition="primary" and found=1, a member that is cut off founds a second group.',
    "Set found= to a majority of the intended members.",
)
OTHER_HISTORY = _code(
    3109,
    "A group that was founded anew",
    "The files of `stable=` of most members were lost, and without them these members founded another group.",
    "End that group and start the members that have their files; or remove this member's file, which loses the "
    "operations that its group alone had.",
)
STABLE_FILE = _code(
    3110,
    "The file of `stable=` cannot be used",
    "This file, or that of a replica's log, is damaged, of another cluster, member or release, in use by another "
    "process, or its directory is missing.",
    "Give each member a file of its own. Remove a damaged one, and the log: the member is then a new one, and has no "
    "vote.",
)
STABLE_WRITE = _code(
    3111,
    "The file of `stable=` cannot be written",
    "The disk is full, or reports an error: votes, or a replica's operations, would not outlast the process, so the "
    "member has left its group.",
    "Free or replace the disk, and start the member again. The file has all that was synced, and others were told of "
    "no more.",
)
STATE_OLDER = _code(
    3112,
    "A replica took over a state older than its own",
    "The group goes on without operations that this replica has on disk: most disks of the last view were lost, or "
    "replaced by older ones.",
    "The file that the text names has the earlier state. To go on from there, stop all, remove the files of the "
    "others, move that file to PATH.log, remove PATH, and start this member alone with `found=1`.",
)
DISK_HANGS = _code(
    3113,
    "The disk of a replica does not answer",
    "A write or a sync of the file of `stable=` has not returned, so the replica was closed without waiting.",
    "Look at the disk. The file stays in use until this process ends. All synced writes are in the file, and others "
    "were told of no more.",
)
MEMBER_EXCLUDED = _code(
    3105,
    "A member was excluded",
    "Its process ended without leaving, or did not run for longer than `suspect_s`, or its network is cut; the line "
    "has the evidence.",
    'A member that lives comes back by a merge, or with partition="primary" by a new join. Look at its log, its '
    "machine and its network.",
)
STATE_LOST = _code(
    3201,
    "The state of the group is not available",
    "The member that was to give the state is gone, or a file cannot be read.",
    "The text says which; the member that lacks the state leaves, or keeps its own.",
)
CALLBACK_FAILED = _code(
    3202,
    "A function of the application failed",
    "An exception came out of a callback, a state handler, or the function of a replica.",
    "The traceback is in the log, with the line.",
)
CALLBACK_LATE = _code(
    3203,
    "A function of the application took long",
    "A callback or a policy ran while other members waited.",
    "Make the function quicker, or raise the limit that the text names.",
)
POLICY_UNUSED = _code(
    3204,
    "A policy of the application was not used",
    "The policy raised, or returned an impossible result.",
    "The text has the details; the default order holds meanwhile.",
)
LONG_WAIT = _code(
    3206,
    "A call waits for other members",
    "The call has waited for long; the text says for whom.",
    "None, if the wait ends by itself.",
)
STATE_REPLACED = _code(
    3210,
    "States of two sides were not merged",
    "The sides of a partition had different states, and not every handler has `merge_state`.",
    "Give every member a handler with `merge_state`.",
)
APART = _code(
    3212,
    "Two groups of one cluster cannot merge",
    "They have different settings or releases, or do not hear each other well enough.",
    "The text says which.",
)
NEITHER_GIVES_WAY = _code(
    3213,
    "Two primary groups exist",
    "Both were founded, or allowed to continue, while they were cut off from each other.",
    "End one of them: its work since then is lost.",
)
NO_SIDE = _code(
    3216,
    "An operator could not let a minority continue",
    "`seqcast unblock` reached no member that is blocked as a minority, or members of several blocked sides.",
    "The text says which, and the option to give.",
)
UNBLOCKED = _code(
    3215,
    "An operator let a minority continue",
    "`seqcast unblock` was run.",
    "Make sure that the other members are gone for good.",
)
NO_VIEW = _code(
    4001,
    "No view came in time",
    "No member answers, the group is blocked, or the machine is overloaded.",
    "The text lists the checks; `seqcast doctor` helps. `JoinTimeout`.",
)
BAD_PEER = _code(
    4002,
    "A peer does not follow the protocol",
    "Bytes that no release of seqcast sends, or a message outside a batch in a group of batches.",
    "Find out who sends them. `RemoteProtocolError`.",
)
NO_GUARD = _code(
    4004,
    "No guard connections",
    "guard=True, but the TCP port cannot be listened on.",
    "Let the process listen there, or set guard=False.",
)
NOBODY_HEARD = _code(
    4005,
    "No other member is found",
    "This is the first member, a seed has no address, or datagrams of the others do not arrive.",
    "If others run: look at seeds=, and run `seqcast doctor --with HOST`.",
)
WAY_CHANGED = _code(
    4201,
    "Messages reach a member another way",
    "Multicasts no longer reach a member, or do so again: messages go there by unicast as long as multicasts do not "
    "pass.",
    "None is needed. Each such member costs the sender a copy; see SC2210 for possible causes.",
)
MANY_COPIES = _code(
    4207,
    "Many members get a copy each",
    "Without multicast a sender transmits each message once for each other member, and there are many.",
    'Use transport="auto" if the network carries multicast; else expect the share that the text names.',
)
FOUND_UNKNOWN = _code(
    4102,
    "The number of members that found a primary group is not known",
    "partition=primary with seeds= that are names, a file, a variable or a function: these may stand for any number.",
    "Give found= a majority of the intended members, or the addresses of all of them as seeds=.",
)
TRANSLATED = _code(
    4301,
    "Others see a member at another address than its own",
    "Addresses or ports are translated on the way, as by the bridge of a container runtime: answers do not come back.",
    "Publish the port and give advertise= with key=, or use the network of the host.",
)
SILENT_ADDRESS = _code(
    4302,
    "Nobody reaches a member at the address that it states",
    "Datagrams from others to that address do not arrive: advertise= is wrong, its port is not published, or a "
    "firewall drops them.",
    "Publish the port there, let UDP pass to it, or correct advertise=.",
)
PATH_TOO_NARROW = _code(
    4306,
    "Packets do not pass on the way to a member",
    "The path drops all large datagrams, the measuring ones too; or packets have more than 9216 bytes.",
    "Set packet_bytes= on all members to the size that the text names, or to a smaller one.",
)
PACKETS_RESIZED = _code(
    4307,
    "Packets get another size",
    "A path between two members carries less than their interfaces, or than before; or all carry more than before.",
    "None is needed. The text names the member; look for a tunnel, or a switch without jumbo frames, on the way.",
)
OTHER_KEY = _code(
    5001,
    "Members have different keys",
    "Datagrams of this cluster arrive sealed with another key, or with none: two groups form. Or a member's file lacks "
    "the key that seals: the next view change parts that member from the others.",
    "Give all members the same key file.",
)
KEY_FILE = _code(
    5002,
    "The key file cannot be read again",
    "The key file of a running member has changed, and is not a key file any more: the member keeps the previous keys.",
    "Correct the file, as the message says; a changed file is read again.",
)
UNPROVEN = _code(
    5003,
    "Somebody with the key shows no identity that may be a member",
    "Frames arrive that are sealed with the key, but that nobody on the list of members (`authorized=`) has signed.",
    "If this process should be a member, give it `identity=`, and all members its line; else find out who has the key "
    "file.",
)
MEMBERS_LIST = _code(
    5004,
    "The list of members cannot be read again",
    "The file of `authorized=` has changed, and is not a list any more: the member goes on with the previous list.",
    "Correct the file, as the message says; a changed file is read again.",
)
COMPANY = _code(
    5005,
    "A view has a member that our list does not have",
    "The other members have admitted somebody who is not on this member's list (`authorized=`), so this member leaves.",
    "Give all members the same list: first a new line everywhere, then the new member.",
)
KEY_LACKING = _code(
    5006,
    "A key file lacks a key that others begin with",
    "A key is replaced, and was moved to the top of some files before all had it: all go on with the previous key.",
    "Give all members the same key file: the text names those that lack the key.",
)
JOURNAL_FAILED = _code(
    6001,
    "A file cannot be written",
    "The disk is full, or the directory of a journal or a store cannot be written.",
    "Free space, or make the directory writable. `JournalWriteError`.",
)
SPARK_FAILED = _code(
    6002,
    "Spark failed",
    "No Java, no master, no memory, or a failed task.",
    "The text says which. `SparkFailed`.",
)
TAP_DROPPED = _code(
    6004,
    "A reader of a tap was dropped",
    "The reader took nothing for long.",
    "Look at the task that reads; the task connects again.",
)
JOURNAL_LACKS = _code(
    6005,
    "The journal lacks messages",
    "The disk was full, or the journal was closed while another thread kept the stream.",
    "Free space, or make the directory writable: the journal goes on by itself if possible; `rows_lost` counts missing "
    "rows.",
)
JOURNAL_UNREADABLE = _code(
    6008,
    "A journal cannot be read",
    "This is no journal, or one of another release, or its files are damaged, or were removed during the reading.",
    "The text names the file: restore the journal from a copy, or leave this one out.",
)
SOURCE_STALLS = _code(
    6007,
    "A stream in Spark does not advance",
    "A required journal is missing or ends early.",
    "The text names the journal.",
)
BUG = _code(
    9001,
    "A bug of seqcast",
    "Something happened that cannot.",
    "Please report the bug, with the surrounding lines.",
)
