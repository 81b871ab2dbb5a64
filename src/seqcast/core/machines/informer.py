"""The info of this member, which its application gives: ``Member.info`` in the views of all; and its keys.

The JOIN carries the info, and so does each VIEW after that. If the application gives another one, the member tells the
others until a VIEW has the new one. The member that makes the next VIEW puts the new info there, and makes one for this
reason alone. So all members see the change at one place among the messages, and a merge keeps the info. The ids of the
keys in the key file are told in the same way (``core/keys.py``).
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto
from typing import ClassVar

from seqcast.core.context import Context, Repeat
from seqcast.core.frames.view import InfoTold
from seqcast.core.table import ILLEGAL, Table, TableMachine, table

REPEAT_NS_MAX = 5_000_000_000
"""The longest time between two repeats."""


class InformerState(Enum):
    SAID = auto()
    TELLING = auto()


class InformerEvent(Enum):
    CHANGED = auto()
    SHOWN = auto()
    REPEAT = auto()


S, E = InformerState, InformerEvent


class Informer(TableMachine):
    def __init__(self, context: Context) -> None:
        super().__init__(S.SAID, context.edges)
        self.context = context
        settings = context.settings  # no VIEW may come for long, as none is made for keys that would part members
        self.repeats = Repeat(settings.repeat_ns_min, max(settings.repeat_ns_max, REPEAT_NS_MAX))

    # ---- inputs

    def say(self, about: str) -> None:
        """The application gives another info."""
        self.context.me = self.context.identities.signed(replace(self.context.me, about=about))
        self._look()

    def opens(self, keys: tuple[int, ...]) -> None:
        """The key file has other keys, or another order."""
        self.context.me = self.context.identities.signed(replace(self.context.me, opens=keys))
        self._look()

    def installed(self) -> None:
        """Another view."""
        self._look()

    def _look(self) -> None:
        me = self.context.me
        shown = self.context.infos.get(me.id, me)
        self.fire(E.SHOWN if (shown.about, shown.opens) == (me.about, me.opens) else E.CHANGED)

    def due(self) -> int:
        return self.repeats.due

    def run_timers(self) -> None:
        if self.repeats.take(self.context.now):
            self.fire(E.REPEAT)

    # ---- actions

    def begin(self) -> None:
        self.repeats.start(self.context.now)
        self.tell()

    def tell(self) -> None:
        if self.context.view is None:  # excluded, or left, meanwhile: there is nobody to tell
            self.stop()
            return
        shown = self.context.infos[self.context.me.id]  # with its cookie: a later JOIN of ours may have had another
        me = self.context.me
        info = self.context.identities.signed(replace(shown, about=me.about, opens=me.opens))
        self.context.multicast(InfoTold(self.context.tag, info.about, info.signature, info.opens))

    def stop(self) -> None:
        self.repeats.stop()

    TABLE: ClassVar[Table] = table(
        "informer",
        S,
        E,
        (None, E.CHANGED, S.TELLING, begin, "the view does not have the info, or the keys: the next one shall"),
        (None, E.SHOWN, S.SAID, stop, "the view has both; or this member is in none, and its JOIN does"),
        (S.TELLING, E.REPEAT, None, tell, "no VIEW has them yet"),
        (S.SAID, E.REPEAT, None, ILLEGAL, "the timer does not run"),
    )
