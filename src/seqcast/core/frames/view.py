"""The VIEW frame, which closes one view and begins the next, and its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from seqcast.core import orders
from seqcast.core.frames.codec import (
    Schema,
    dump_fields,
    fields_of,
    integer,
    list_of,
    load_fields,
    need,
    octets,
    schema_of,
)
from seqcast.core.frames.fields import (
    About,
    Attempt,
    Bytes,
    Flag,
    HistoryField,
    Id,
    Ids,
    KeyIds,
    Mechanism,
    MemberInfo,
    OrderName,
    PacketBytes,
    PublicKey,
    Seqno,
    Seqnos,
    Signature,
    ViewIdField,
)
from seqcast.core.frames.traits import control
from seqcast.types import MEMBERS_MAX

SUBGROUPS_MAX = 16
SHORTFALLS_MAX = 44
"""Shortfalls that one frame carries; older ones are no longer reported."""

WRAP_NONCE_BYTES = 24
WRAP_BYTES = WRAP_NONCE_BYTES + 48
"""A wrapped secret: the nonce, 32 bytes, and the proof that they are whole."""
PROOF_BYTES = 16
ITSELF = 1
"""The root of a view that is the first one of its lineage: no view has this tag."""

NONE, WHOLE, PART = 0, 1, 2
"""Which application state a member has: none, the group's, or (from ``PART`` on) that of a part of a merged group."""
PARTS_MAX = 32
"""Parts of a merged group whose states one member merges."""


class Provision(NamedTuple):
    """``provider`` gives its state, taken at the beginning of the view ``boundary`` (a tag), to ``joiner``."""

    joiner: Id
    provider: Id
    boundary: Id


class Subgroup(NamedTuple):
    """A view that was merged, and the ids of its members that came along."""

    view_id: ViewIdField
    ids: Ids


class Shortfall(NamedTuple):
    """Members that went from ``view`` (a tag) to ``successor`` delivered ``member``'s packets up to ``last`` only."""

    view: Id
    successor: ViewIdField
    member: Id
    last: Seqno


Shortfalls = Annotated[tuple[Shortfall, ...], list_of(schema_of(Shortfall), SHORTFALLS_MAX)]


@control("view", "flush", outside=True, signed=True)
@dataclass(frozen=True, slots=True)
class NewView:
    """The VIEW frame, identical for all.

    Args:
        closes: the closed view; None for the first view of a group.
        attempt: under which the VIEW is sent.
        answers: the VIEW is served in answer to a START of this attempt, by a member that has left that view already.
        survivors: of the cut: members and leavers.
        view_id, members: of the new view; no members: everyone left.
        order: as given to ``join``.
        mechanism, sequencer: number of the mechanism in ``core/orders``, and rank of the sequencer.
        cut, table: by rank of the closed view: the last seqno of each stream, and the received table there.
        base, origin_base: by rank of the new view, where each stream and each sender's own numbering continue.
        window, forward_window, unicast_window, state_window: charged bytes of each stream, at most.
        share: the part of ``window`` that each group stream always has.
        room: charged bytes of all group streams together, at each receiver.
        packet_bytes: size of a full packet.
        labels: by rank of the new view, which state each member has; see ``core/state/providers.py``.
        merged_into: by rank, the label of the state that the member's own was merged into; 0: of none. Empty: all 0.
        providers: for the members that lack the group's state.
        merger: rank of the member that merges the states of a merged view's parts; -1: there is nothing to merge.
        stateful: members of the closed view, or views, joined with a state handler.
        subgroups: of a merged view, else none.
        shortfalls: of a merged view, or one with joiners: messages of others that some of its members did not deliver.
        departed: of a view with joiners: incarnations that were in a view and are no more (E-06), newest last.
        founding: the group is founded, and any application in it, once this many members are known to have entered one
            of its views; 0: founded.
        history: of the group, up to the beginning of the view; see ``core/rules/history.py``.
        root: of a primary partition: tag of the first view since the founding, or since an operator let a side go on;
            `ITSELF`: of this one.
        maker_key: with a key: public half of the key pair of the member that made the view (``view_id``'s initiator).
        cipher: with a key: number of the one in ``core/secrets.py`` that seals with the secret.
        wraps: with a key, by rank: the secret of the new view; see ``core/secrets.py``.
        proof: with a key, of a VIEW that closes a view: that its sender was in that.
        shown: with a key: that its sender has the new secret.
        maker_identity, signature: with identities, of the member that made the view; see ``core/identities.py``.
    """

    closes: ViewIdField | None
    attempt: Attempt
    answers: Attempt | None
    survivors: Ids
    view_id: ViewIdField
    members: Annotated[tuple[MemberInfo, ...], list_of(schema_of(MemberInfo), MEMBERS_MAX)]
    order: OrderName
    mechanism: Mechanism
    sequencer: Annotated[int, integer("rank or -1", -1, MEMBERS_MAX - 1)]
    cut: Seqnos
    table: Seqnos
    base: Seqnos
    origin_base: Seqnos
    window: Bytes
    share: Bytes
    room: Bytes
    forward_window: Bytes
    unicast_window: Bytes
    state_window: Bytes
    packet_bytes: PacketBytes
    labels: Annotated[tuple[int, ...], list_of(integer("label", 0, PART + MEMBERS_MAX), MEMBERS_MAX)] = ()
    merged_into: Annotated[tuple[int, ...], list_of(integer("label", 0, PART + MEMBERS_MAX), MEMBERS_MAX)] = ()
    providers: Annotated[tuple[Provision, ...], list_of(schema_of(Provision), MEMBERS_MAX + PARTS_MAX)] = ()
    merger: Annotated[int, integer("rank or -1", -1, MEMBERS_MAX - 1)] = -1
    stateful: Flag = False
    subgroups: Annotated[tuple[Subgroup, ...], list_of(schema_of(Subgroup), SUBGROUPS_MAX)] = ()
    shortfalls: Shortfalls = ()
    departed: Ids = ()
    founding: Annotated[int, integer("number of members", 0, MEMBERS_MAX)] = 0
    history: HistoryField = 0
    maker_key: PublicKey = b""
    cipher: Mechanism = 0
    wraps: Annotated[tuple[bytes, ...], list_of(octets(WRAP_BYTES), MEMBERS_MAX)] = ()
    proof: Annotated[bytes, octets(PROOF_BYTES)] = b""
    maker_identity: PublicKey = b""
    signature: Signature = b""
    root: Id = ITSELF
    shown: Annotated[bytes, octets(PROOF_BYTES)] = b""

    @property
    def lineage(self) -> int:
        """The tag of the first view from which this one followed. Each view has one successor, so of two views with one
        lineage, that with the higher counter followed from the other one."""
        return self.view_id.tag if self.root == ITSELF else self.root

    def has(self, member_id: int) -> bool:
        return any(info.id == member_id for info in self.members)

    def check(self) -> None:
        """Raises RemoteProtocolError if its fields contradict each other."""
        count = len(self.members)
        need(len({info.id for info in self.members}) == count, "a member twice")
        need(len({info.name for info in self.members}) == count, "a name twice")
        need(len(self.base) == len(self.origin_base) == count, "base is not by rank")
        need(len(self.wraps) in (0, count), "wrapped secrets are not by rank")
        mechanism = orders.by_number(self.mechanism)
        need(mechanism is not None, f"this release does not know order {self.mechanism}")
        assert mechanism is not None
        need(mechanism.serves(self.order), f"{mechanism.name} does not bring about order {self.order!r}")
        need(mechanism.allows(self.sequencer, max(count, 1)), f"a sequencer that {mechanism.name} cannot have")
        need(512 <= self.packet_bytes <= 65_000 and self.packet_bytes % 4 == 0, "packet_bytes that no stream can have")
        need(not count or self.view_id.coordinator == self.members[0].id, "the coordinator has not rank 0")
        need(not count or not self.members[0].observer, "an observer coordinates")
        need(not 0 <= self.sequencer < count or not self.members[self.sequencer].observer, "an observer orders")
        self._check_state()
        need(self.closes is None or self.closes.counter < self.view_id.counter, "view id does not grow")
        need(len(self.cut) == len(self.table), "cut and received table are not of one view")
        ids = {info.id for info in self.members}
        grouped = [member for group in self.subgroups for member in group.ids]
        need(
            not self.subgroups or (len(grouped) == len(set(grouped)) and ids == set(grouped)),
            "subgroups are not the members",
        )
        need(all(group.ids for group in self.subgroups), "a subgroup without members")

    def _check_state(self) -> None:
        members = {info.id for info in self.members}
        need(len(self.labels) == len(self.members), "labels are not by rank")
        need(len(self.merged_into) in (0, len(self.members)), "the list of merged states is not by rank")
        need(
            all(into < label for into, label in zip(self.merged_into, self.labels, strict=False) if into),
            "a state merged into a later one",
        )
        need(self.merger < max(len(self.members), 1), "a merger that is not a member")
        merger = self.members[self.merger].id if self.merger >= 0 and self.members else 0
        joiners = [each.joiner for each in self.providers if each.joiner != merger]
        sources = [each.provider for each in self.providers if each.joiner == merger]
        need(len(set(joiners)) == len(joiners) and members.issuperset(joiners), "a provider for no member, or two")
        need(len(set(sources)) == len(sources), "a provider of one part of the state twice")
        need(all(each.provider in members - {each.joiner} for each in self.providers), "no such provider")


_FIELDS = fields_of(NewView)


def _load(value: Any) -> NewView:
    need(isinstance(value, dict), "a VIEW's fields expected")
    frame: NewView = load_fields(NewView, value, _FIELDS, "view")
    frame.check()
    return frame


Nested = Annotated[
    NewView, Schema("an object with the fields of `view`", lambda frame: dump_fields(frame, _FIELDS), _load)
]


@control("installed", "flush", outside=True, to_one=True)
@dataclass(frozen=True, slots=True)
class Installed:
    """Member to the sender of the VIEW: received. ``view`` is the tag of the new view."""

    view: Id


@control("declined", outside=True, to_one=True, signed=True)
@dataclass(frozen=True, slots=True)
class Declined:
    """Joiner to the sender of a VIEW: I entered a view of another group, and will not enter ``view`` (its tag)."""

    view: Id


@control("view_wanted", "flush")
@dataclass(frozen=True, slots=True)
class ViewWanted:
    """Member to all: another view is needed, one that names another provider of the state, as mine cannot give it, or
    has a new secret, as I have sealed much with this one. Repeated until that view comes."""

    view: Id


@control("info_told")
@dataclass(frozen=True, slots=True)
class InfoTold:
    """Member to all: my application gives this info now (``MemberInfo.about``), and my key file has these keys
    (``opens``). Repeated until a VIEW shows both. ``signature``: with identities, of the member as the VIEW is to
    describe it."""

    view: Id
    about: About
    signature: Signature = b""
    opens: KeyIds = ()


ViewFrame = NewView | Installed | Declined | ViewWanted | InfoTold
