"""The state shared by the machines of one endpoint: this member's identity, the view, the time of this step, and their
output."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.joining import NOBODY, Past
from seqcast.core.frames.kinds import Frame
from seqcast.core.frames.recalling import Kept
from seqcast.core.frames.view import ITSELF, NewView, Provision
from seqcast.core.identities import Allowed, Identities, Signer
from seqcast.core.orders import by_name
from seqcast.core.port import EnginePort
from seqcast.core.rules.history import History, grown
from seqcast.core.rules.hosts import host_of
from seqcast.core.rules.keys import FileKey
from seqcast.core.rules.numbers import numbers
from seqcast.core.rules.quorum import Allowance, is_quorum
from seqcast.core.secrets import Exchange, Secrets
from seqcast.core.table import Edge
from seqcast.core.vocabulary import Command, Effect, Multicast, StatePlan, Unicast
from seqcast.types import Member, MembershipPolicy, SequencerPolicy, View

NEVER = (1 << 63) - 1
_MS = 1_000_000

COUNTERS = (
    "asks_too_soon",
    "callbacks_failed",
    "callbacks_late",
    "frames_bad",
    "frames_received",
    "frames_sent",
    "frames_unproven",
    "frames_unsent",
    "gossips_forged",
    "joiners_declined",
    "links_cut",
    "members_lost",
    "members_slow",
    "membership_policy_failed",
    "sequencer_policy_failed",
    "merges_unheard",
)
"""The counters of an endpoint; see ``Endpoint.counters``. All exist from the start, so a reader need not check for
them."""


class Vote(NamedTuple):
    """A joiner's vote that another one founds a group: the id and name of that one, and when this was last said."""

    founder: int
    name: str
    said_ns: int


NO_VOTE = Vote(NOBODY, "", -NEVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """Settings of the control plane. Times are ns. Those without a default are derived from ``Config``, by
    ``config/derive.py``.

    Args:
        order: "total", or the name of a mechanism of ``core/orders``; all members of a group have the same.
        nonce: 64 random bits, from which the bits that answers to this member's JOINs and BEACONs must carry are
            derived.
        keys: those of the key file, in its order.
        exchange: with a key: this member's own key pair.
        signer, allowed: with identities: this member's own, and the list of those who may be members.
        capacity, packet_bytes, window_bytes, gro, state, about, observer: see ``MemberInfo``.
        path_bytes: size of the largest packet that the paths to other members are measured with; 0: they are not.
        first_seqno: first seqno of the group streams of joiners that this member admits. The same on every member; any
            other than 1 is for the simulator, whose runs would otherwise never get that far.
        shared: names and values of the settings that must be equal on all members of a group.
        found: a joiner forms a group only with the votes of this many joiners, its own included; 0: forms none, and
            votes for nobody. In primary partitions the same on every member that does not have 0.
        vote: for another joiner, by an earlier incarnation in this process that gave up: that joiner may have founded a
            group.
        discovery_ns: how long a joiner looks for a group before it forms one. Longer: a slower first member; shorter:
            two first members are more likely to miss each other.
        join_ns_min, join_ns_max: between two JOINs: the first while discovering, doubling afterwards.
        group_seen_ns: a joiner that was told to wait does not form a group for this long.
        joiner_seen_ns: a joiner that was not heard for this long is forgotten.
        name_taken_ns: how long a joiner whose name is in the view is left unanswered: the old incarnation may be one
            that crashed and is not yet suspected. Longer than the engine's ``suspect_ns``.
        bundle_ns: requests that come within this time after the first one share a view (FLU-11); a suspicion ends it.
        verify_ns: a view change waits at most this long while silent members are verified, so that members that crashed
            together are excluded by one view. About two heartbeats: a listener may notice the silence of members that
            crashed at once this far apart.
        link_ns: a link that stays cut in one direction for this long beyond the suspicion time is warned of, and one of
            its ends is excluded. Longer than the difference between members in noticing a crash.
        repeat_ns_min, repeat_ns_max: between two sendings of an unanswered frame, doubling.
        lease_ns: an initiator that is silent for this long is given up, and the next member starts (the cut, step 6).
            Longer than the longest pause of a member's Python that should not cost an attempt.
        flush_deadline_ns: a survivor that has not answered START or CUT for this long is excluded.
        back_off_ns: an initiator that met a higher promise waits this long before it tries again.
        leave_deadline_ns: a leaver gives up waiting for the closing VIEW.
        linger_ns: a coordinator that left serves the closing VIEW for at most this long.
        reach: options with which a command is in the group's network, as people type them: " --port 4000"; "": none.
        blocks: the application has a block callback, to be run before the gate closes (the cut, step 2).
        block_deadline_ns: a view change waits at most this long for it.
        pause_ns_max: a pause of the group that lasts longer ends by itself.
        block_events: the application is told when the gate closes and opens.
        coordinator_events: the application is told who coordinates.
        membership_policy: gives the order of the next view's members; None: see ``MembershipChange.members``.
        sees: gives a page of this one's board to members that ask, or for 0 the board in short: how many pages there
            are, and the text, printable and at most 25,000 bytes; None: without a board.
        sequencer_policy: gives the sequencer of the next view, if the mechanism allows any; None: the coordinator.
        membership: "coordinated": the first member that nobody doubts closes views; "token-ring": the members first
            agree on the next view with a token. The same on every member.
        safe: messages to the group are delivered when all members have them in order, or the view ends. The same on
            every member.
        flush_unicasts: a view is closed only when survivors have the messages that this member sent to them alone
            (E-16).
        partition: "merge": both sides of a partition continue, and merge when they meet; "primary": only the side
            with a majority of the view continues, the others block, and are excluded when they meet. The same on every
            member.
        unicast: datagrams for the group, or for everyone who listens, go to each known address separately.
        book: members remember addresses, name them to others, and try them by unicast: always without multicast; with
            multicast sparingly, for those that do not hear each other's multicasts.
        advertised: the application says where others reach this member. Its frames say so, as they may come from
            elsewhere.
        beacon_ns: between two beacons of a coordinator; other views are found as quickly (MRG-01).
        merge_deadline_ns: a leader continues without the subgroups that are not ready after this time.
        merge_lease_ns: a follower of a merge continues alone when the leader has been silent for this long.
        merge_back_off_ns, merge_back_off_ns_max: after a merge that failed, or fell apart without a crash, the next one
            waits this long. The wait doubles while merged views keep falling apart (because not all members hear each
            other), and is reset once a view lives longer.
        gossip: keyword arguments of ``GossipSettings`` if reliability is by gossip, else None.
        elsewhere_ns: a member that has shown itself in another view for this long is doubted. Another primary group is
            observed for twice this time before the smaller one of the two gives way.
        cipher: with a key: the cipher of views, as in the setting of that name. ``aes``: the processor has AES
            instructions.
        rekey_ns: with a key: how long a view lasts before one with a new secret follows.
        stable: this member keeps its votes on disk (``Keep``).
        kept: the record of an earlier incarnation of this member; None: none is known.
        on_disk: how far the state that the application has on disk goes; see ``Was``.
        former: with ``book``: the addresses in the book of this process's last incarnation.
    """

    order: str
    nonce: int = 1
    keys: tuple[FileKey, ...] = ()
    exchange: Exchange | None = field(default=None, repr=False)
    signer: Signer | None = field(default=None, repr=False)
    allowed: tuple[Allowed, ...] = ()
    capacity: int
    packet_bytes: int
    path_bytes: int = 0
    window_bytes: int
    gro: bool = False
    state: int = 0
    about: str = ""
    first_seqno: int = 1
    shared: tuple[tuple[str, str], ...]
    found: int = 1
    vote: Vote = NO_VOTE
    discovery_ns: int
    join_ns_min: int
    join_ns_max: int
    group_seen_ns: int
    joiner_seen_ns: int
    name_taken_ns: int
    bundle_ns: int
    verify_ns: int
    link_ns: int
    repeat_ns_min: int = 20 * _MS
    repeat_ns_max: int = 160 * _MS
    lease_ns: int
    flush_deadline_ns: int
    back_off_ns: int
    leave_deadline_ns: int
    linger_ns: int
    reach: str = ""
    blocks: bool
    block_deadline_ns: int
    block_events: bool
    coordinator_events: bool
    pause_ns_max: int
    membership_policy: MembershipPolicy | None = None
    sequencer_policy: SequencerPolicy | None = None
    sees: Callable[[int], tuple[int, str]] | None = None
    flush_unicasts: bool
    membership: str
    safe: bool = False
    partition: str
    unicast: bool = False
    book: bool = False
    advertised: bool = False
    beacon_ns: int
    gossip: dict[str, Any] | None = None
    merge_deadline_ns: int
    merge_lease_ns: int
    merge_back_off_ns: int
    merge_back_off_ns_max: int
    elsewhere_ns: int
    rekey_ns: int
    cipher: str
    aes: bool = False
    observer: bool = False
    stable: bool = False
    kept: Kept | None = None
    on_disk: tuple[int, int] = (0, 0)
    former: tuple[bytes, ...] = ()

    @property
    def fresh_ns(self) -> int:
        """For how long something heard of others outside our view counts."""
        return max(self.joiner_seen_ns, 3 * self.beacon_ns)

    @property
    def puts_out(self) -> bool:
        """Does the group exclude a receiver that is too slow?"""
        return ("slow", "exclude") in self.shared


NAMED_MAX = 16
"""Members that an answer to a stranger names: few enough for an answer about as long as the question."""


@dataclass(frozen=True, slots=True)
class Estranged:
    """A member lost with its unicasts: its identity, the end of its time alone, and the length of that time."""

    member: Member
    until_ns: int
    wait_ns: int

    def is_again(self, name: str, address: bytes) -> bool:
        """Has the same process joined again?"""
        own = self.member
        return own.address == address or (own.name == name and host_of(own.address) == host_of(address))


@dataclass(slots=True)
class Context:
    """All machines read this. The first word of a field's comment is the file that writes the field; others do not,
    which a test checks."""

    me: MemberInfo  # lifecycle.py, informer.py: with the address at which others see us, and our application's info
    cluster: str
    settings: EndpointSettings
    plane: EnginePort
    secrets: Secrets
    identities: Identities
    now: int = 0  # endpoint.py: of this step
    view: View | None = None  # installer.py
    infos: dict[int, MemberInfo] = field(default_factory=dict)  # installer.py: of the view's members, by id
    providers: tuple[Provision, ...] = ()  # installer.py: of the view
    departed: dict[int, None] = field(default_factory=dict)  # installer.py: ids that left a view; oldest first
    entered: NewView | None = None  # installer.py: the VIEW of the view
    severed: int = ITSELF  # installer.py: tag of the view that an operator let our side enter by a VIEW of before that
    views: tuple[Past, ...] = ()  # keeper.py: with ``stable=``, the last known ones, the newest last
    history: int = 0  # installer.py: of the group, up to the beginning of the view; see ``core/rules/history.py``
    allowed: Allowance | None = None  # installer.py ends, router.py sets: an operator allowed this side, in this view
    keys: tuple[FileKey, ...] = ()  # endpoint.py: as in the settings, or as the key file was read again
    lacks: tuple[int, ...] | None = None  # taker.py: this member lacks the state, and has passed these over; see ``Ok``
    plan: StatePlan | None = None  # taker.py: of a merge, where our application stops; read by its thread
    answered: int = 0  # participant.py: tag of the view that our last OK closes
    lost: bool = False  # taker.py: nobody can give the state: this member is about to leave
    elder_ns: int = -NEVER  # beacons.py: when a coordinator of another view with a lower id than ours was heard last
    alone: dict[int, None] = field(default_factory=dict)  # endpoint.py: members that hear no multicast of ours; ids
    estranged: dict[int, Estranged] = field(default_factory=dict)  # beacons.py: by id
    merging: bool = False  # merge.py: our cut is to be held for a merge
    emitted: deque[Effect | Command] = field(default_factory=deque)  # by machines; to be carried out, in this order
    effects: list[Effect] = field(default_factory=list)  # of this step, for the runner
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    edges: set[Edge] = field(default_factory=set)

    @property
    def tag(self) -> int:
        """Tag of the view that we are in, or 0."""
        return self.view.view_id.tag if self.view else 0

    @property
    def primary(self) -> bool:
        """Only a majority may close a view."""
        return self.settings.partition == "primary"

    @property
    def founding(self) -> int:
        """The number of members that must be known to be in our group before its founding; 0: founded."""
        return self.entered.founding if self.entered else 0

    @property
    def root(self) -> int:
        """Of a primary partition: the lineage of our view."""
        if self.entered is None or not self.primary:
            return ITSELF
        return self.entered.lineage if self.severed == ITSELF else self.severed

    def nonces(self) -> tuple[int, ...]:
        """The nonces that answers to our JOINs may carry; the first one is that of the next JOIN. With a key they
        change, so that recorded answers do not count for long."""
        settings = self.settings
        if settings.exchange is None:
            return (settings.nonce,)
        return numbers("join", settings.nonce, self.now // settings.fresh_ns)

    def history_so_far(self) -> History:
        """The history of our group up to now."""
        if self.founding:  # no application has entered the group
            return History.NONE
        states = any(info.state for info in self.infos.values())
        delivered = states or any(self.plane.held(rank)[0] for rank in range(len(self.members)))
        return grown(self.history, len(self.members), delivered)

    def enough(self, survivors: Collection[int]) -> bool:
        """Are these members enough to close our view?"""
        if not self.primary:
            return True
        return is_quorum(self.allowed.members if self.allowed else self.voters, survivors)

    @property
    def voters(self) -> list[int]:
        """Ids of the members of our view that are not observers, by rank."""
        return [member.id for member in self.members if not member.observer]

    @property
    def mechanism(self) -> int:
        """Number of the mechanism that orders the messages of our group."""
        assert self.view is not None
        return by_name(self.view.mechanism).number

    @property
    def rank(self) -> int:
        assert self.view is not None
        return self.view.rank(self.me.id)

    @property
    def members(self) -> tuple[Member, ...]:
        return self.view.members if self.view else ()

    def addresses(self, doubted: Collection[int] = ()) -> tuple[bytes, ...]:
        """Of members of the view, for others to find them: a part of them, first of the one whose turn it is to act."""
        return tuple(member.address for member in self.members if member.id not in doubted)[:NAMED_MAX]

    def send(self, frame: Frame, member_id: int, address: bytes = b"") -> None:
        """Queues a frame for a member of the view, or for a stranger at ``address``."""
        if not address and member_id in self.infos:
            address = self.infos[member_id].address
        self.emit(Unicast(frame, member_id, address))

    def multicast(self, frame: Frame) -> None:
        self.emit(Multicast(frame))

    def emit(self, what: Effect | Command) -> None:
        """Queues a decision of a machine, or an effect for the runner."""
        self.emitted.append(what)

    def hand_out(self, effect: Effect) -> None:
        """Gives the runner an effect of the command that is carried out now: before anything that is still queued."""
        self.effects.append(effect)


class Repeat:
    """When to send again: after ``shortest``, then doubling up to ``longest``."""

    def __init__(self, shortest: int, longest: int) -> None:
        self.shortest, self.longest = shortest, longest
        self.due = NEVER
        self.interval = shortest

    def start(self, now: int) -> None:
        self.interval = self.shortest
        self.due = now + self.interval

    def stop(self) -> None:
        self.due = NEVER

    def take(self, now: int) -> bool:
        """True at its time; each time sets the next, later time."""
        if now < self.due:
            return False
        self.interval = min(self.interval * 2, self.longest)
        self.due = now + self.interval
        return True
