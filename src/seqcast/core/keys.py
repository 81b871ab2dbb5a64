"""The key of its file with which a member seals outside views, while a key is replaced.

Timeline without this: a and b have the new key as the first one of their files, and seal with it. The file of c was
forgotten, and has the old key alone. c does not open the next VIEW, and is left alone, though all three have the old
key.

So a member seals with the first key of its file that all members of its view open, as they have said. A key that some
lack is chosen only if none suits all: then most members stay together. (A key whose line is removed is neither opened
nor chosen by that member any more, whatever others say.) Joiners and coordinators of other views that were heard lately
count where the members leave a choice, and so do those of the view before, to whom its end is repeated. (With a
recorded frame nobody keeps the old key in use for long: its sender must show that our datagrams arrive there.) A joiner
does not know the files of a group: every second JOIN is sealed with the next key of its own file, whatever suits those
that it hears.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import seqcast.codes as codes
from seqcast.core.context import NEVER, Context
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.joining import Join
from seqcast.core.frames.merging import Beacon
from seqcast.core.rules.keys import FileKey, best, number_of
from seqcast.core.vocabulary import Warn
from seqcast.types import MEMBERS_MAX, Secret

HEARD_MAX = 4 * MEMBERS_MAX
"""The most others that are remembered."""
PARTED_NS, LACKS_NS = 2_000_000_000, 10_000_000_000
"""How long files may differ before somebody is warned: if the next view change parts members, and if only a key is not
used. The machines of a group get their files one after the other."""
CHANCE = 8
"""One that is heard and does not answer counts for this part of the time."""
NAMED, TOLD_MAX = 4, 64


class Heard(NamedTuple):
    """One outside our view: the keys that it opens; and when it was heard last, and showed last that it hears us."""

    opens: Sequence[int]
    last_ns: int
    shown_ns: int


class Keys:
    def __init__(self, context: Context) -> None:
        self.context = context
        self._filed = context.settings.keys  # as the engine has them: the first one seals
        self._members: dict[int, MemberInfo] = {}  # others in our view, as they described themselves last
        self._heard: dict[int, Heard] = {}  # others
        self._looked: tuple[object, object, object] = None, None, None  # the files when they were looked at last
        self._again_ns = NEVER  # when to choose again, as somebody does not count any more
        self._trouble, self._due_ns = "", NEVER  # a warning, and when it is due
        self._parts = False  # the warning is about files that part members
        self._told: set[str] = set()

    @property
    def sealing(self) -> int:
        """Number of the key that seals; -1: there is none."""
        return number_of(self._filed[0].id) if self._filed else -1

    def cookies(self) -> Iterator[Secret]:
        """The secrets of cookies that joiners may bring back; the first one is of those that are given: all members
        have it."""
        for key in sorted(self.context.keys, key=lambda key: key != self._filed[0]):
            yield key.cookie

    # ---- inputs

    def note(self, frame: Join | Beacon, sender: int, shows: bool) -> None:
        """A frame from outside, which names the keys that its sender opens.

        Args:
            shows: the frame is no recording: its sender hears us.
        """
        opens = frame.info.opens if isinstance(frame, Join) else frame.opens
        stranger = isinstance(frame, Join) and self.context.identities.fault(frame.info)
        if opens and not stranger and sender not in self.context.infos and sender != self.context.me.id:
            self._note(sender, opens, shows)

    def _note(self, sender: int, opens: Sequence[int], shows: bool) -> None:
        now, known = self.context.now, self._heard.pop(sender, None)
        if len(self._heard) >= HEARD_MAX:
            del self._heard[next(iter(self._heard))]
        if known and not shows and now - known.shown_ns < CHANCE * self.context.settings.fresh_ns:
            self._heard[sender] = known._replace(opens=opens, last_ns=now)
        else:
            self._heard[sender] = Heard(opens, now, now)

    def _until_ns(self, heard: Heard) -> int:
        """Until when this one counts. A sender that is new counts at once, as otherwise it could not open our question;
        and one that has not shown that it hears us counts from time to time, as its answer may have been lost."""
        return min(heard.last_ns, heard.shown_ns) + self.context.settings.fresh_ns

    def review(self, informed: Mapping[int, MemberInfo], turn: int) -> None:
        """The end of a step: gives the engine the key to seal with.

        Args:
            informed: members of our view that described themselves anew.
            turn: of the keys of a joiner.
        """
        context = self.context
        looked = context.infos, context.keys, dict(informed)
        same = looked[0] is self._looked[0] and looked[1] is self._looked[1] and looked[2] == self._looked[2]
        if not context.keys or (same and len(context.keys) == 1):  # nothing to choose, and nothing new
            return
        self._looked = looked
        members = {info.id: info for info in (context.infos | dict(informed)).values() if info.id != context.me.id}
        for info in self._members.values():
            if info.id not in members:
                self._note(info.id, info.opens, shows=True)
        self._members = members
        self._seal_with(self._chosen(turn))
        self._look()

    def _chosen(self, turn: int) -> int:
        own, files = [key.id for key in self.context.keys], [info.opens for info in self._members.values()]
        others = [heard for heard in self._heard.values() if self._until_ns(heard) > self.context.now]
        those = best(own, files, [heard.opens for heard in others])
        if self.context.view is not None:
            swayed = those[0] != best(own, files, [])[0]
            self._again_ns = min(map(self._until_ns, others)) if swayed else NEVER
            return those[0]
        return (own if turn % 2 else those)[turn // 2 % len(own if turn % 2 else those)]

    def _seal_with(self, chosen: int) -> None:
        def is_other(key: FileKey) -> bool:
            return key.id != chosen

        filed = tuple(sorted(self.context.keys, key=is_other))
        if filed != self._filed:  # by their secrets: keys of two files may have one id
            self._filed = filed
            self.context.plane.refile([(number_of(key.id), key.secret) for key in filed])

    # ---- warnings

    def _look(self) -> None:
        text, after_ns = self._differ()
        if text != self._trouble:
            self._trouble, self._parts = text, after_ns == PARTED_NS
            self._due_ns = self.context.now + after_ns if text and text not in self._told else NEVER

    def _differ(self) -> tuple[str, int]:
        """A warning about files that differ, and how long they may; "": all is well."""
        seals, own = self._filed[0].id, [key.id for key in self.context.keys]
        with_key = f"all go on with key {number_of(seals)} until then"
        if lacks := self._named(lambda info: seals not in info.opens):
            text = (
                f"the key file of {lacks} lacks key {number_of(seals)}, with which this member seals: the next view "
                "change parts us, so give all members the same key file now"
            )
            return text, PARTED_NS
        if lacks := self._named(lambda info: own[0] not in info.opens):
            text = (
                f"the key file of {lacks} lacks key {number_of(own[0])}, the first one in that of this member: put the "
                f"same file there; {with_key}"
            )
            return text, LACKS_NS
        first = {info.opens[0] for info in self._members.values() if info.opens} - {*own}
        if first:
            lacked = min(first)
            names = self._named(lambda info: info.opens[:1] == (lacked,))
            text = (
                f"the key file of this member lacks key {number_of(lacked)}, the first one in that of {names}: put the "
                f"same file here; {with_key}"
            )
            return text, LACKS_NS
        return "", 0

    def _named(self, which: Callable[[MemberInfo], bool]) -> str:
        names = sorted(info.name for info in self._members.values() if which(info))
        return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if names[NAMED:] else "")

    def due(self) -> int:
        return min(self._due_ns, self._again_ns)

    def run_timers(self) -> None:
        """The end of the step chooses again."""
        self._again_ns = NEVER
        if self.context.now < self._due_ns:
            return
        self._due_ns = NEVER
        if len(self._told) < TOLD_MAX:
            self._told.add(self._trouble)
            said = self._trouble
            self.context.emit(Warn(codes.OTHER_KEY(said)) if self._parts else Warn(codes.KEY_LACKING(said)))
