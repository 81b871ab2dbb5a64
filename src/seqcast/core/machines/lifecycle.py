"""The lifecycle of one member: joining, membership, and leaving.

A joiner multicasts JOIN until admitted to a view. If a group exists, its members take turns to answer WAIT, so that a
joiner never forms a second group while the first one is busy with a flush. If nobody answers, the joiner with the
lowest id among those heard forms the first view, and the others join it as usual: members that start at the same time
converge on one view.

With ``found=N`` a joiner forms the first view only with the votes of N joiners, its own included. Once discovery is
over, each JOIN votes for the joiner with the lowest id that its sender hears, itself included. A vote counts for half
of ``joiner_seen_ns``, and binds until its sender knows of its failure. So no vote ever counts for two, whichever of
them hear each other. A process that restarts while cut off has its own vote alone, and waits. A joiner that gives up
says so in a last JOIN: no founding follows, so its votes are free again. In a primary partition no application is in
the new group before a view was closed by N members, who were in it then: until then, those that voted may have
restarted and forgotten their votes, and may found another group.

A leaver's block callback runs first, with sends still open. Then its application is stopped from sending, and
accepted messages drain (SEQ-24): queued messages are sent, the sequencer orders them, receivers acknowledge the
unicasts; view changes in between do not matter. A message that was still on its way to the sequencer when the closing
VIEW came would be lost, as nobody would repeat that message. After the drain, or at its deadline, the leaver repeats
LEAVE until the closing VIEW, of whose cut it is a survivor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import ClassVar

import seqcast.codes as codes
from seqcast.core import orders
from seqcast.core.context import NEVER, NO_VOTE, Context, Repeat, Vote
from seqcast.core.frames.fields import PROTOCOL_OLDEST, PROTOCOL_VERSION, MemberInfo
from seqcast.core.frames.joining import NOBODY, Join, Leave, Refused, Was
from seqcast.core.frames.view import NewView
from seqcast.core.machines.blocker import Blocker
from seqcast.core.machines.keeper import Keeper, Returned
from seqcast.core.rules.cookies import NO_COOKIE
from seqcast.core.rules.cut import first_view
from seqcast.core.rules.hosts import host_of, on_one_port, place_of
from seqcast.core.table import IGNORED, ILLEGAL, Table, TableMachine, table
from seqcast.core.vocabulary import CloseView, Install, Over, Waiting, Warn
from seqcast.reports import OtherKey
from seqcast.types import MEMBERS_MAX


class LifecycleState(Enum):
    OUT = auto()
    SEEKING = auto()
    IN = auto()
    FINISHING = auto()
    DRAINING = auto()
    LEAVING = auto()
    LINGERING = auto()
    OVER = auto()


class LifecycleEvent(Enum):
    BEGIN = auto()
    JOINER = auto()
    PEER = auto()
    WITHDRAWN = auto()
    GROUP = auto()
    FOREIGN = auto()
    OTHER_KEY = auto()
    UNPROVEN = auto()
    PLACE = auto()
    ECHO = auto()
    JOIN_AGAIN = auto()
    REFUSED = auto()
    VIEW = auto()
    LEAVE = auto()
    REVIEW = auto()
    LEAVE_AGAIN = auto()
    DEADLINE = auto()
    LEFT = auto()
    SERVED = auto()
    EXCLUDED = auto()
    GIVE_WAY = auto()
    CLOSE = auto()


FOREIGN = Refused(
    "members of this cluster use another wire version: run the same release of seqcast on every member, or choose "
    "another cluster name",
    "version",
)

KEYS = {
    "other": "{0} seals its datagrams with another key than this member's",
    "lacks": "{0} has no key, and this member has one",
    "has": "{0} has a key, and this member has none",
}
"""How somebody's datagrams differ from ours, by ``OtherKey.how``."""
FOREIGN_SIGNS = 2
"""Datagrams of another wire version that show another release: the version of a single one may be damaged."""
DRAIN_SHARE = 3, 4
"""The part of a leaver's time for its block callback and for draining; the rest is kept for the closing view."""
HOPELESS_NS = 700_000_000
"""How long a leaver drains, and then waits for the closing view, while in a minority that cannot make any. Both
together are less than the time that a process gets to end: the majority may come back at just this moment, but most
likely does not within ``leave_timeout_s`` either."""
HEARS_MAX = 32
"""Joiners that a JOIN names: they need no copy of theirs by unicast, and others learn where they are."""
PLACES_MAX = 8
"""Addresses at which others see us that are remembered."""
STRANGE_NS = 3_000_000_000
"""How long somebody with another key counts once discovery may be over: as long as such a one is heard, the engine
says so once a second."""
ODD_MAX = 64
HISTORY = "history"
"""Cause of a refusal by the joiner itself, which nobody sends."""
WITHDRAWALS = 3
"""A joiner that gives up says so this often, at once: nobody answers this."""
NO_ECHO = -NEVER, -NEVER, b""
NO_BEACONS = -NEVER, -NEVER
DEAF = (
    "A firewall on that machine, or on the way to it, must pass UDP in both directions (see `seqcast doctor --with`), "
    "or the process hangs"
)
S, E = LifecycleState, LifecycleEvent
INSIDE = (S.IN, S.FINISHING, S.DRAINING, S.LEAVING)


@dataclass(frozen=True, slots=True)
class Peer:
    """A joiner that our group would admit: its vote, the time of its last JOIN, and the member that it was before."""

    info: MemberInfo
    founder: int
    heard_ns: int
    was: Was | None = None

    @property
    def id(self) -> int:
        return self.info.id

    @property
    def address(self) -> bytes:
        return self.info.address


class Lifecycle(TableMachine):
    def __init__(self, context: Context, blocker: Blocker, keeper: Keeper) -> None:
        super().__init__(S.OUT, context.edges)
        self.context, self.blocker, self.keeper = context, blocker, keeper
        settings = context.settings
        self.joins = Repeat(settings.join_ns_min, settings.join_ns_max)
        self.leaves = Repeat(settings.repeat_ns_min, settings.repeat_ns_max)
        self.deadline_ns = NEVER
        self.discovered_ns = NEVER
        self.form_ns = NEVER  # form no group before this: the end of discovery, or a while after a group was heard
        self.tries = 0
        self.refusal: Refused | None = None
        self.cookie = NO_COOKIE  # of the last WAIT
        self.unproven: dict[str, None] = {}  # hosts that were warned of, as they show no identity
        self.told = ""  # why the group that we want to join admits nobody now
        self.foreign = 0  # datagrams of another wire version that were received
        # Where datagrams came from that are not sealed as ours are, or were damaged; b"": not with another key.
        self.doubtful: set[bytes] = set()
        self.doubted_group = False  # a BEACON came that may be a recorded one
        self.strange = ""  # somebody in our cluster who has another key, or whose key we lack, or who lacks ours
        self.strange_at = b""  # its address, if it has another key
        self.strange_ns = -NEVER  # when such a one was heard last
        # (address, how its key differs) -> when the warning is due; NEVER: it was given.
        self.odd: dict[tuple[bytes, str], int] = {}
        self.others: dict[int, int] = {}  # joiners with a lower id -> ns when heard
        self.peers: dict[str, Peer] = {}  # by name: two incarnations of one process have one vote
        self.vote = settings.vote
        self.lacks = ""  # why too few found a group with us, when we last said JOIN; read by any thread
        self.warned = False  # of that
        self.places: dict[bytes, int] = {}  # addresses at which others see us, and ns when one said so last
        self.adopted = False  # our address is one of those
        self.misplaced = False  # we have warned of the others
        # Addresses of those that have shown that our JOINs arrive, and the one at which joiners are admitted, as WAIT
        # names that; both read by any thread.
        self.hearers: dict[bytes, None] = {}
        self.admits = b""
        self.deaf = ""  # the warning of a group that does not hear us
        self.beacons = NO_BEACONS  # since when and until when a group was heard that does not answer
        # Since when and until when members heard us and did not reach us, and where they heard us.
        self.echo: tuple[int, int, bytes] = NO_ECHO

    @property
    def seeking(self) -> bool:
        return self.state is S.SEEKING

    @property
    def leaving(self) -> bool:
        """LEAVE was sent."""
        return self.state is S.LEAVING

    @property
    def over(self) -> bool:
        """Left, excluded, refused or closed."""
        return self.state is S.OVER

    # ---- inputs

    def heard_joiner(self, joiner: int) -> None:
        """Another joiner."""
        self.fire(E.JOINER, joiner)

    def heard_peer(self, frame: Join) -> None:
        """Another joiner, of our cluster and with our settings."""
        if self.context.me.address in frame.hears:
            self.heard_by(frame.info.address)
        self.fire(E.PEER, frame)

    def heard_withdrawal(self, joiner: int) -> None:
        """This joiner gives up."""
        self.fire(E.WITHDRAWN, joiner)

    def heard_group(self, blocked: str = "") -> None:
        """WAIT, or a beacon: a group exists; ``blocked``: why nobody is admitted now."""
        self.doubted_group = False
        self.fire(E.GROUP, blocked)

    def heard_beacon(self, address: bytes) -> None:
        """A group exists. If that group answers no JOIN for long, nothing from here arrives there, so this joiner
        founds a group beside it, unless there may be only one.

        Timeline without this: a firewall on c's machine drops all that comes. c hears nobody, and founds a group alone.
        From then on nobody who hears c's beacons founds another one, and none of them can join c's.
        """
        now, seen, (since, last) = self.context.now, self.context.settings.group_seen_ns, self.beacons
        since = since if now - last <= seen else now
        self.beacons = since, now
        deaf = now - since >= seen * 3 // 2
        if deaf and not self.deaf and self.seeking:
            self.deaf = (
                f"the group of {place_of(address)} is heard, and answers nothing: datagrams from here do not arrive "
                f"there. {DEAF}"
            )
            self.context.emit(Warn(codes.APART(self.deaf)))
        if not deaf or self.context.primary:
            self.heard_group()

    def heard_doubtful_group(self) -> None:
        """A BEACON came, whose sender has not shown yet that it hears us, as it is busy, or gone."""
        self.doubted_group = True

    def heard_answer(self, blocked: str) -> None:
        """WAIT: a group exists, and hears us."""
        self.beacons, self.deaf = NO_BEACONS, ""
        self.heard_group(blocked)

    def heard_by(self, address: bytes) -> None:
        """There is somebody who hears us."""
        if len(self.hearers) < MEMBERS_MAX:
            self.hearers[address] = None

    def heard_cookie(self, cookie: int) -> None:
        """The cookie of a WAIT: only JOINs that return the cookie count, so the next JOIN is sent at once."""
        if self.seeking and self.cookie == NO_COOKIE != cookie:
            self.joins.due = min(self.joins.due, self.context.now)
        if self.seeking and self.context.identities.used and cookie != self.cookie:
            self._sign(replace(self.context.me, cookie=cookie))
        self.cookie = cookie

    def _sign(self, info: MemberInfo) -> None:
        """Sets our own description, signed."""
        self.context.me = self.context.identities.signed(info)

    def heard_unproven(self, address: bytes, doubt: str) -> None:
        """A frame that its sender had to sign, and did not."""
        self.fire(E.UNPROVEN, address, doubt)

    def heard_key(self, address: bytes, shows: bool) -> None:
        """A JOIN or a BEACON opens: its sender has a key of our file, and may try all those of its own in turn.

        Args:
            shows: the frame is no recording.
        """
        if self.odd.get((address, "other"), NEVER) < NEVER:
            del self.odd[address, "other"]
        if shows and address:
            self.doubtful.discard(address)
            if address == self.strange_at:
                self.strange, self.strange_at = "", b""

    def heard_place(self, address: bytes) -> None:
        """Somebody sees us at this address.

        With a key others believe our ``advertise``, and answer there. Only a copy of that answer comes this way, so if
        the answers themselves do not arrive, nobody reaches us.
        """
        settings = self.context.settings
        believed = settings.advertised and settings.exchange is not None
        self.fire(E.ECHO if believed and self.is_another(address) else E.PLACE, address)

    def reached(self) -> None:
        """A frame has come to our stated address."""
        self.echo = NO_ECHO

    def own_join(self) -> Join:
        """Our JOIN as of now."""
        return self._join(self._voted())

    def begin_with(self, first: NewView | None) -> None:
        """The votes of those that started again decided on a first view of ours; None: not yet."""
        if first is not None:
            self.fire(E.VIEW, first)

    def review(self, minority: bool) -> None:
        """The end of a step. ``minority``: the members that can be reached cannot close our view."""
        self.fire(E.REVIEW, minority)

    def due(self) -> int:
        return min(self.joins.due, self.leaves.due, self.deadline_ns, *self.odd.values())

    def run_timers(self) -> None:
        now, late = self.context.now, self.context.now - self.joins.due
        self._warn_of_keys()
        if now >= self.deadline_ns:
            self.fire(E.DEADLINE)
        elif self.leaves.take(now):
            self.fire(E.LEAVE_AGAIN)
        elif self.joins.take(now):
            if late > self.context.settings.join_ns_min:
                self.discount(late)
            if now < self.discovered_ns:  # steady while discovering: joiners that start together must hear each other
                self.joins.start(now)
            seen = now - self.context.settings.joiner_seen_ns
            self.others = {joiner: heard for joiner, heard in self.others.items() if heard > seen}
            self.peers = {name: peer for name, peer in self.peers.items() if peer.heard_ns > seen}
            self.places = {place: told for place, told in self.places.items() if told > seen}
            if now - self.beacons[1] > self.context.settings.group_seen_ns:  # that group is gone, or is heard no more
                self.deaf = ""
            self.fire(E.JOIN_AGAIN)

    def discount(self, late: int) -> None:
        """This member did not run for this long: its requests paused, and answers may wait to be read. Without
        this, a joiner on a busy machine finds its discovery over after one JOIN, and forms a second group."""
        due = self.context.now - late
        if due < self.form_ns:
            self.form_ns += late
        if due < self.discovered_ns:
            self.discovered_ns += late

    # ---- guards

    def goes_first(self, joiner: int) -> bool:
        return joiner < self.context.me.id

    def must_wait(self) -> bool:
        """Discovery runs, a group or a joiner with a lower id was heard, a group refused us, others see us elsewhere,
        one datagram of another wire version, or with another key, was dropped, or a BEACON came that may be a recorded
        one."""
        # If a joiner with a lower id has formed no group by then, we wait no longer. The time begins when we may
        # form a group: a group that both heard, and that is gone, delays the other one as long as us. A group of
        # another release is heard again within this time; a damaged datagram is not.
        odd = 0 < self.foreign < FOREIGN_SIGNS or (bool(self.doubtful) and not self.strange)
        unsure = bool(self.others) or odd or self.doubted_group
        waits = unsure and self.context.now < self.form_ns + self.context.settings.group_seen_ns
        return self.context.now < self.form_ns or waits or self.refusal is not None or bool(self._elsewhere())

    def must_recall(self) -> bool:
        """Some were in a group before, and no group is heard."""
        silent = self.context.now >= self.form_ns and self.refusal is None
        return silent and (self.keeper.was is not None or any(peer.was is not None for peer in self.peers.values()))

    def is_on_another_host(self) -> bool:
        """All who say where they see us say the same, which is our port at another host."""
        elsewhere, own = self._elsewhere(), self.context.me.address
        free = not self.adopted and not self.context.settings.advertised
        return free and len(elsewhere) == len(self.places) == 1 and on_one_port(elsewhere[0], own)

    def must_gather(self) -> bool:
        """Fewer than ``found`` joiners vote for us, or we vote for another one; or we found no group."""
        found, me = self.context.settings.found, self.context.me.id
        if found == 0:
            return True
        counts = self.context.now - self.context.settings.joiner_seen_ns // 2
        votes = 1 + sum(peer.founder == me and peer.heard_ns > counts for peer in self.peers.values())
        return found > 1 and (self.chosen() != me or votes < found)

    def is_another(self, place: bytes) -> bool:
        return place != self.context.me.address

    def is_alone_on_another_host(self, place: bytes) -> bool:
        """As before, and no member of our view sees us at our stated address."""
        own, alone = self.context.me.address, len(self.context.members) == 1
        free = alone and not self.adopted and not self.context.settings.advertised
        return free and self.is_another(place) and on_one_port(place, own)

    def _elsewhere(self) -> list[bytes]:
        """Addresses at which others see us, and which are not ours."""
        return [place for place in self.places if place != self.context.me.address]

    def hears_another_version(self) -> bool:
        return self.foreign >= FOREIGN_SIGNS and not self._is_among_ours()

    def hears_another_key(self) -> bool:
        lately = self.context.now - self.strange_ns <= self.context.settings.discovery_ns + STRANGE_NS
        return bool(self.strange) and lately and not self._is_among_ours()

    def _is_among_ours(self) -> bool:
        """With a key: are so many joiners heard that have the key, too, that datagrams which anybody can send must not
        keep us from founding a group? With identities, one on our list is enough."""
        found = 2 if self.context.identities.used else self.context.settings.found
        return bool(self.context.secrets.public) and 1 < found <= 1 + len(self.peers)

    def callback_must_run(self, _timeout_ns: int) -> bool:
        return self.blocker.running or not self.blocker.done

    def callback_runs(self, _minority: bool) -> bool:
        return self.blocker.running

    def drained(self, _minority: bool) -> bool:
        return self.context.plane.drained()

    def is_by_ourselves(self, refusal: Refused) -> bool:
        return refusal.cause == HISTORY

    def is_minority(self, minority: bool) -> bool:
        return minority

    def is_alone(self, _place: bytes) -> bool:
        return len(self.context.members) == 1

    # ---- actions

    def begin(self) -> None:
        self.discovered_ns = self.form_ns = self.context.now + self.context.settings.discovery_ns
        self.joins.start(self.context.now)

    def ask(self) -> None:
        self.context.multicast(self._join(self._voted()))
        self.tries += 1
        self.lacks = self._lacks()

    def _voted(self) -> int:
        """For whom our next JOIN votes."""
        founder = self.chosen()
        if founder not in (NOBODY, self.context.me.id):
            name = next(name for name, peer in self.peers.items() if peer.id == founder)
            self.vote = Vote(founder, name, self.context.now)
        return founder

    def recall(self) -> None:
        self.begin_with(self.keeper.begin(Returned(peer.info, peer.was) for peer in self.peers.values()))

    def adopt(self) -> None:
        """Addresses are translated one to one on the way to others, so from now on ours is the one that they see."""
        (place,) = self.places
        self._sign(replace(self.context.me, address=place))
        self.adopted, self.places = True, {}
        self.form_ns = max(self.form_ns, self.context.now + self.context.settings.discovery_ns)  # nobody knew of us

    def take_place(self, place: bytes) -> None:
        self._sign(replace(self.context.me, address=place))
        self.adopted = True

    def note_place(self, address: bytes) -> None:
        if address in self.places or len(self.places) < PLACES_MAX:
            self.places[address] = self.context.now

    def note_echo(self, address: bytes) -> None:
        """A member hears us, so there is a group, as with WAIT."""
        now, (first_ns, last_ns, _) = self.context.now, self.echo
        # (Beacons go to an address that does not answer at growing intervals.)
        other = self.seeking and now - last_ns > self.context.settings.joiner_seen_ns
        self.echo = now if other or self.echo is NO_ECHO else first_ns, now, address
        if self.seeking:
            self.note_group("")

    def withdraw(self, *_: object) -> None:
        """Timeline without this: with ``found=2``, b votes for a. The join of a times out, its process ends, and is
        started again under another name. b cannot know that a founded nothing, and votes for nobody."""
        for _each in range(WITHDRAWALS):
            self.context.multicast(self._join(NOBODY, withdrawn=True))

    def _join(self, founder: int, withdrawn: bool = False) -> Join:
        context, settings = self.context, self.context.settings
        return Join(
            PROTOCOL_VERSION,
            context.cluster,
            settings.order,
            orders.numbers(),
            context.me,
            min(self.tries, 1 << 32),
            settings.shared,
            context.nonces()[0],
            founder,
            settings.found,
            withdrawn,
            self.cookie,
            self._hears(),
            self.keeper.was,
            PROTOCOL_OLDEST,
        )

    def _hears(self) -> tuple[bytes, ...]:
        """Timeline without this: with ``found=3``, a and b reach c and not each other. Each votes for itself, for ever:
        neither hears of the other's votes, and two are too few."""
        peers = self.peers.values() if self.says_whom_it_hears else ()
        return tuple(sorted(peer.address for peer in peers))[:HEARS_MAX]

    @property
    def says_whom_it_hears(self) -> bool:
        """Joiners do, all or none of them."""
        settings = self.context.settings
        doubtful = settings.book and not settings.unicast  # may some be heard that do not hear us?
        return doubtful or (settings.unicast and settings.found > 1)

    def chosen(self) -> int:
        """For whom we may vote now. A vote for ourselves binds us to nobody, as no other joiner counts that."""
        me = self.context.me.id
        lowest = min([me, *(peer.id for peer in self.peers.values())])
        bound = self.vote.founder not in (NOBODY, lowest)
        free = not bound and self.context.settings.found > 0 and self.context.now >= self.discovered_ns
        return lowest if free else NOBODY

    def _nothing_came(self, info: MemberInfo) -> bool:
        """Does this JOIN show that our vote founds no group: is the joiner still joining after our vote has expired, or
        a new incarnation?

        Timeline without this: with ``found=2``, c votes for b, which founds a group. The network splits before c hears
        of the group. c hears a, votes for a, and a founds another group.
        """
        expired = self.context.now - self.vote.said_ns >= self.context.settings.joiner_seen_ns
        return expired if info.id == self.vote.founder else info.name == self.vote.name

    def _translated(self) -> str:
        """The remedy if addresses are translated on the way from us to others; "": they are not."""
        elsewhere, own = self._elsewhere(), place_of(self.context.me.address)
        if not elsewhere:
            return ""
        public = f"{host_of(elsewhere[0])}:{own.rpartition(':')[2]}"
        given = self.context.settings.advertised
        return (
            f"others see this member at {' and at '.join(map(place_of, elsewhere))}, and its own address is {own}: "
            f"publish the port and give advertise={public} with key=, or run it in the network of the host (--network "
            "host)" + (f"; if nothing translates addresses, leave advertise= out: {own} is wrong" if given else "")
        )

    def _unreached(self) -> str:
        """The remedy if members hear us, and their answers do not come to our stated address; "": they do."""
        (first_ns, last_ns, source), seen_ns = self.echo, self.context.settings.joiner_seen_ns
        if last_ns - first_ns < seen_ns or self.context.now - last_ns > seen_ns:  # datagrams were lost, or all are gone
            return ""
        return (
            f"members hear this one, from {place_of(source)}, and their datagrams to "
            f"{place_of(self.context.me.address)} (advertise=) do not arrive here: publish the port there, open the "
            "firewall for it, or correct advertise="
        )

    def _lacks(self) -> str:
        if translated := self._translated():
            return codes.TRANSLATED(translated)
        if self.deaf:
            return codes.APART(self.deaf)
        if unreached := self._unreached():
            return codes.SILENT_ADDRESS(unreached)
        if self.keeper.lacks:
            return self.keeper.lacks
        found, names = self.context.settings.found, sorted(self.peers)
        if found == 1 or self.form_ns > max(self.context.now, self.discovered_ns):  # a group was heard
            return ""
        if found == 0:
            why = "an observer" if self.context.me.observer else "with found=0 this process"
            return f"no group is heard, and {why} founds none: start the members of the group"
        if self.vote.name and self.vote.name not in self.peers:
            return (
                f"it has voted that {self.vote.name} founds a group, and no longer hears that process, which may have "
                "founded one: repair the network to it, or start it again under the same name; if it is gone for good, "
                "restart this one"
            )
        heard = f"it hears {', '.join(names)}" if names else "it hears none"
        missing = found - 1 - len(names)
        more = f"{missing} more must start" if missing > 0 else "they must hear it and each other"
        return f"no group is heard, and found={found} joiners must hear each other to found one: {heard}; {more}"

    def note_joiner(self, joiner: int) -> None:
        self.others[joiner] = self.context.now

    def note_peer(self, frame: Join) -> None:
        info = frame.info
        if self._nothing_came(info):
            self.vote = NO_VOTE
        if info.name != self.context.me.name and (info.name in self.peers or len(self.peers) < MEMBERS_MAX):
            self.peers[info.name] = Peer(info, frame.founder, self.context.now, frame.was)
            if self.context.now >= self.form_ns:  # no group is heard
                self.keeper.tell(Returned(info, frame.was))

    def forget_joiner(self, joiner: int) -> None:
        self.others.pop(joiner, None)
        self.peers = {name: peer for name, peer in self.peers.items() if peer.id != joiner}
        if joiner == self.vote.founder:
            self.vote = NO_VOTE

    def warn_of_place(self, *_: object) -> None:
        if (translated := self._translated()) and not self.misplaced:
            self.misplaced = True
            self.context.emit(Warn(codes.TRANSLATED(translated)))

    def warn_of_silence(self, *_: object) -> None:
        if (unreached := self._unreached()) and not self.misplaced:
            self.misplaced = True
            self.context.emit(Warn(codes.SILENT_ADDRESS(unreached)))

    def warn_of_few(self) -> None:
        late = self.context.now > self.discovered_ns + self.context.settings.joiner_seen_ns
        if late and self.lacks and not self.warned:
            self.warned = True
            self.context.emit(Warn(codes.JOIN_WAITS(f"the join waits: {self.lacks}")))

    def note_group(self, blocked: str) -> None:
        self.form_ns = self.context.now + self.context.settings.group_seen_ns
        if blocked and blocked != self.told:
            self.told = blocked
            self.context.emit(Waiting(blocked))

    def note_foreign(self) -> None:
        self.foreign += 1

    def warn_of_unproven(self, address: bytes, doubt: str) -> None:
        """Warns once for each host, so that a stranger does not fill the log."""
        where = host_of(address) or "somebody"
        if where not in self.unproven and len(self.unproven) < PLACES_MAX:
            self.unproven[where] = None
            text = f"{where} has the key of this cluster, and is not heard: {doubt} (authorized=)"
            self.context.emit(Warn(codes.UNPROVEN(text)))

    def warn_of_key(self, report: OtherKey) -> None:
        """Warns of one with another key only after a while, as a joiner tries all keys of its file."""
        odd = report.address, report.how
        if not report.sure or odd in self.odd:
            return
        if len(self.odd) >= ODD_MAX:
            del self.odd[next(iter(self.odd))]
        self.odd[odd] = self.context.now + (self.context.settings.fresh_ns if report.how == "other" else 0)
        self._warn_of_keys()

    def _warn_of_keys(self) -> None:
        members = {member.address for member in self.context.members}
        for address, how in [odd for odd, due_ns in self.odd.items() if self.context.now >= due_ns]:
            if how == "other" and address in members:  # a key is replaced: `core/keys.py` knows more
                del self.odd[address, how]
                continue
            self.odd[address, how] = NEVER
            text = "members of this cluster use different keys, and will not meet: "
            self.context.emit(Warn(codes.OTHER_KEY(text + KEYS[how].format(place_of(address)))))

    def note_key(self, report: OtherKey) -> None:
        place = report.address if report.how == "other" else b""
        self.doubtful.add(place if len(self.doubtful) < ODD_MAX else b"")
        if report.sure:
            self.strange_at = place
            self.strange, self.strange_ns = KEYS[report.how].format(place_of(report.address)), self.context.now
            self.warn_of_key(report)

    def form(self) -> None:
        settings = self.context.settings
        me, mechanism = self.context.me, orders.resolve(settings.order)
        frame = first_view([me], settings.order, mechanism, me.id, first_seqno=settings.first_seqno)
        awaits = settings.found if self.context.primary and settings.found > 1 else 0
        self.fire(E.VIEW, self.context.secrets.given(replace(frame, founding=awaits)))

    def install(self, frame: NewView) -> None:
        self.lacks, self.vote = "", NO_VOTE
        if frame.founding:
            self.lacks = f"a group is founded once {frame.founding} members are in it, and it has {len(frame.members)}"
        self.context.emit(Install(frame, first=self.context.view is None))

    def set_deadline(self, timeout_ns: int) -> None:
        self.deadline_ns = self.context.now + timeout_ns * DRAIN_SHARE[0] // DRAIN_SHARE[1]

    def finish(self, _timeout_ns: int) -> None:
        self.blocker.ask_last()

    def end_sends(self, *_: object) -> None:
        self.blocker.end()
        self.context.plane.end_sends()

    def hurry(self, _minority: bool) -> None:
        self.deadline_ns = min(self.deadline_ns, self.context.now + HOPELESS_NS)

    def begin_leave(self, *_: object) -> None:
        self.leaves.start(self.context.now)
        self.deadline_ns = self.context.now + self.context.settings.leave_deadline_ns

    def say_leave(self, *_: object) -> None:
        self.context.multicast(Leave(self.context.tag))

    def linger(self, _frame: NewView) -> None:
        """Serves the closing VIEW to members that lack it."""
        self.leaves.stop()
        self.deadline_ns = self.context.now + self.context.settings.linger_ns

    def close(self, frame: NewView) -> None:
        self.context.emit(CloseView(frame, left=True))

    def exclude(self, frame: NewView) -> None:
        self.context.emit(CloseView(frame, left=False))

    def give_up(self) -> None:
        text = "no member answered the LEAVE in time; messages sent last may be lost"
        self.context.emit(Warn(codes.UNDECIDED(text)))

    def note_refusal(self, refusal: Refused) -> None:
        """A group that refused us does not admit us later; a VIEW that admits us shows that the refusal was not its
        own."""
        if self.refusal is None:
            self.deadline_ns = self.context.now + self.context.settings.discovery_ns
        self.refusal = refusal

    def fail(self, *_: object) -> None:
        assert self.refusal is not None
        self.context.emit(Over(self.refusal.reason, self.refusal.cause))

    def fail_foreign(self) -> None:
        self.context.emit(Over(FOREIGN.reason, FOREIGN.cause))

    def fail_key(self) -> None:
        reason = (
            f"this cluster is in use with another key: {self.strange}. Give every member the same key file (key=), or "
            "choose another cluster name"
        )
        self.context.emit(Over(reason, "key"))

    def fail_unreachable(self, reason: str) -> None:
        self.context.emit(Over(reason, "address"))

    def over_now(self, *_: object) -> None:
        self.context.emit(Over())

    def stop(self, *_: object) -> None:
        self.joins.stop()
        self.leaves.stop()
        self.deadline_ns = NEVER

    TABLE: ClassVar[Table] = table(
        "lifecycle",
        S,
        E,
        (S.OUT, E.BEGIN, S.SEEKING, (begin, ask), "the application joins"),
        (None, E.BEGIN, None, ILLEGAL, "an endpoint begins once: an incarnation is never used again (E-06)"),
        (
            S.SEEKING,
            (E.JOINER, goes_first),
            None,
            note_joiner,
            "without a group, the joiner with the lowest id forms one",
        ),
        (None, E.JOINER, None, IGNORED, "the joiner waits for our first view, or the group admits it"),
        (S.SEEKING, E.PEER, None, note_peer, "its vote may let us found a group, and the joiner may get ours"),
        (None, E.PEER, None, IGNORED, "the joiner waits for our first view, or the group admits it"),
        (S.SEEKING, E.WITHDRAWN, None, forget_joiner, "nothing was founded: nobody waits, and votes are free"),
        (None, E.WITHDRAWN, None, IGNORED, "the joiner has no part in our first view any more"),
        (S.SEEKING, E.GROUP, None, note_group, "a group exists: form none"),
        (None, E.GROUP, None, IGNORED, "known"),
        (S.SEEKING, E.PLACE, None, note_place, "somebody tells at which address it sees us"),
        (
            S.IN,
            (E.PLACE, is_alone_on_another_host),
            None,
            take_place,
            "the next view, which begins at once, has our address",
        ),
        (
            INSIDE,
            (E.PLACE, is_another),
            None,
            (note_place, warn_of_place),
            "the members of our view see us at our address, and others do not",
        ),
        (None, E.PLACE, None, IGNORED, "our stated address is right, or the frame is late"),
        (S.SEEKING, E.ECHO, None, note_echo, "a member hears us, and answers at our stated address, too"),
        (
            S.IN,
            (E.ECHO, is_alone),
            None,
            (note_echo, warn_of_silence),
            "others hear our beacons, and answer at our stated address, too",
        ),
        (None, E.ECHO, None, IGNORED, "the members of our view reach us"),
        ((S.OUT, S.SEEKING), E.FOREIGN, None, note_foreign, "members of another release are on the network"),
        (None, E.FOREIGN, None, IGNORED, "our group has its version"),
        ((S.OUT, S.SEEKING), E.OTHER_KEY, None, note_key, "somebody uses this cluster with another key, or without"),
        (S.OVER, E.OTHER_KEY, None, IGNORED, "we have no part in this cluster any more"),
        (None, E.OTHER_KEY, None, warn_of_key, "our group has its key: whoever has another will not join"),
        (S.OVER, E.UNPROVEN, None, IGNORED, "we have no part in this cluster any more"),
        (None, E.UNPROVEN, None, warn_of_unproven, "somebody has the key, and is not on the list of members"),
        (S.SEEKING, (E.JOIN_AGAIN, is_on_another_host), None, (adopt, ask), "our host has another address on the way"),
        (
            S.SEEKING,
            (E.JOIN_AGAIN, must_recall),
            None,
            (ask, warn_of_few, recall),
            "none is founded beside a group that was: its last view is closed",
        ),
        (S.SEEKING, (E.JOIN_AGAIN, must_wait), None, (ask, warn_of_place, warn_of_silence), "JOIN is not answered yet"),
        (
            S.SEEKING,
            (E.JOIN_AGAIN, hears_another_version),
            S.OVER,
            (stop, withdraw, fail_foreign),
            "do not form a rival group",
        ),
        (
            S.SEEKING,
            (E.JOIN_AGAIN, hears_another_key),
            S.OVER,
            (stop, withdraw, fail_key),
            "do not form a group beside one that we cannot talk to",
        ),
        (
            S.SEEKING,
            (E.JOIN_AGAIN, must_gather),
            None,
            (ask, warn_of_few),
            "too few to found a group: one may exist on the other side of a partition",
        ),
        (S.SEEKING, E.JOIN_AGAIN, None, form, "no group, and no joiner with a lower id: the first view is ours"),
        (None, E.JOIN_AGAIN, None, ILLEGAL, "the timer runs only while seeking"),
        (
            S.SEEKING,
            (E.REFUSED, is_by_ourselves),
            S.OVER,
            (stop, withdraw, note_refusal, fail),
            "our file knows a later view than that of the group",
        ),
        (
            S.SEEKING,
            E.REFUSED,
            None,
            note_refusal,
            "other version, order or cluster, name taken, group full; or forged",
        ),
        (None, E.REFUSED, None, IGNORED, "too late, or meant for another joiner"),
        (S.SEEKING, E.VIEW, S.IN, (stop, install), "the first view"),
        (INSIDE, E.VIEW, None, install, "the next view"),
        (None, E.VIEW, None, IGNORED, "too late: this incarnation never enters a view again"),
        (S.OUT, E.LEAVE, S.OVER, (stop, over_now), "we were never in"),
        (S.SEEKING, E.LEAVE, S.OVER, (stop, withdraw, over_now), "we were never in, and found nothing"),
        (
            S.IN,
            (E.LEAVE, callback_must_run),
            S.FINISHING,
            (set_deadline, finish),
            "the application leaves, and may finish its transactions",
        ),
        (S.IN, E.LEAVE, S.DRAINING, (set_deadline, end_sends), "the application leaves, and sends nothing more"),
        (None, E.LEAVE, None, IGNORED, "leave was called twice"),
        (S.FINISHING, (E.REVIEW, callback_runs), None, IGNORED, "the application may send until its callback returns"),
        (S.FINISHING, E.REVIEW, S.DRAINING, end_sends, "its callback has run: the application sends nothing more"),
        (S.DRAINING, (E.REVIEW, drained), S.LEAVING, (begin_leave, say_leave), "all is ordered and acknowledged"),
        ((S.DRAINING, S.LEAVING), (E.REVIEW, is_minority), None, hurry, "nobody can let us leave: do not wait long"),
        (None, E.REVIEW, None, IGNORED, "nothing waits for the end of a step"),
        (S.LEAVING, E.LEAVE_AGAIN, None, say_leave, "LEAVE is not answered yet"),
        (None, E.LEAVE_AGAIN, None, ILLEGAL, "the timer runs only while leaving"),
        (S.DRAINING, E.DEADLINE, S.LEAVING, (begin_leave, say_leave), "time is up: `Lost` reports the rest"),
        (S.FINISHING, E.DEADLINE, S.LEAVING, (end_sends, begin_leave, say_leave), "its callback takes too long"),
        (S.SEEKING, E.DEADLINE, S.OVER, (stop, withdraw, fail), "we were refused, and no group admitted us after all"),
        (
            S.LEAVING,
            E.DEADLINE,
            S.OVER,
            (stop, give_up, over_now),
            "no closing VIEW in time: the others will suspect us",
        ),
        (S.LINGERING, E.DEADLINE, S.OVER, (stop, over_now), "members that lack the VIEW can ask any other"),
        (None, E.DEADLINE, None, ILLEGAL, "only leaving, and a refusal, have a deadline"),
        (S.LEAVING, E.LEFT, S.LINGERING, (close, linger), "the closing VIEW: a survivor of its cut, not a member"),
        (None, E.LEFT, None, IGNORED, "late"),
        (S.LINGERING, E.SERVED, S.OVER, (stop, over_now), "every member has the closing VIEW"),
        (None, E.SERVED, None, IGNORED, "only a leaver waits for that"),
        (INSIDE, E.EXCLUDED, S.OVER, (stop, exclude), "the group continued without us (the cut, step 8)"),
        (None, E.EXCLUDED, None, IGNORED, "not in a view"),
        (INSIDE, E.GIVE_WAY, S.OVER, stop, "a separately founded group stays (step 9), or our address is gone"),
        (S.SEEKING, E.GIVE_WAY, S.OVER, (stop, fail_unreachable), "our address is gone: nobody can admit us"),
        (None, E.GIVE_WAY, None, IGNORED, "not in a view"),
        (S.SEEKING, E.CLOSE, S.OVER, (stop, withdraw), "the application gives up"),
        (None, E.CLOSE, S.OVER, stop, "the application closes without leaving"),
    )
