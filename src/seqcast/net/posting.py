"""The part of a member's board that its control thread writes: who it is, its view and status, counters of Python, and
the lines of its log, which the flight recorder has at INFO whatever the loggers are set to."""

from __future__ import annotations

import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from seqcast._native.driver import Driver, describe_address, now_ns
from seqcast._native.engine import Engine
from seqcast.board.judge import STALL_S, troubles
from seqcast.board.place import TOUCH_NS, Made, make
from seqcast.board.read import ViewChanges, kept, net_namespace, pid_namespace, started
from seqcast.board.told import cut, said
from seqcast.config import Config
from seqcast.core.frames.asking import NO_BOARD
from seqcast.types import Member, View

log = logging.getLogger("seqcast")
EVERY_NS = 10**9
"""How often the text is written if nothing but counters changes."""
VIEWS_MAX = 64
WARNINGS_MAX = 128
"""The last views and warnings, which `seqcast probe --known` shows."""
WARNING_MAX = 300
NAMED_MAX = 8
NAME_MAX = 40
"""Characters of a warning or a setting; members named of those that came or went with a view; characters of a name."""
GONE_MAX = 16
"""The last members that are no longer in the view, whose names the board has: its events name them."""
PAGES_NS = 2 * 10**9
"""How long the pages of a whole board stay those of one moment, for all that ask."""


class Posting:
    """A member's board; does nothing if there is none.

    Args:
        config: its settings, of which ``board`` says whether there is one.
    """

    def __init__(self, config: Config, cluster: str, member: int, name: str, engine: Engine) -> None:
        self._made: Made | None = None
        self._engine = engine
        self._about: dict[str, Any] = {}
        self._posted: tuple[object, ...] = ()
        self._config, self._pages, self._paged = config, list[str](), 0
        self._touch_due = 0
        self._cuts = ViewChanges()
        self._views: deque[dict[str, Any]] = deque(maxlen=VIEWS_MAX)
        self._warnings: deque[dict[str, Any]] = deque(maxlen=WARNINGS_MAX)
        self._gone: dict[int, str] = {}
        self._since = 0  # of the view: wall clock, ns
        self.due = 2**63 - 1  # monotonic ns, when the text is written again
        if not config.board:
            return
        try:
            self._made = make(cluster, name, member)
        except OSError as error:
            log.info("%s: no board, so `seqcast probe` and `top` do not see this member: %s", name, error)
            return
        engine.use_board(self._made.memory)
        pid, self.due = os.getpid(), 0
        self._about = {
            "cluster": cluster, "name": name, "id": member, "pid": pid, "pids": pid_namespace(),
            "started": started(pid), "began": time.time_ns(), "clock": time.time_ns() - now_ns(),
        }  # fmt: skip

    @property
    def path(self) -> Path | None:
        """The path of the board's file."""
        return self._made.path if self._made is not None else None

    @property
    def on(self) -> bool:
        """Is there a board?"""
        return self._made is not None

    def sees(self, page: int) -> tuple[int, str]:
        """This member's answer to others, only with a board: the number of pages of the whole board, and this one of
        them; or, for page 0, none, and the board in short."""
        assert self._made is not None
        if page > 1 or (page and self._pages and now_ns() - self._paged < PAGES_NS):
            return (len(self._pages), self._pages[page - 1]) if page <= len(self._pages) else (0, NO_BOARD)
        data = bytes(self._made.memory)
        board = kept(self._made.path, data)
        if not page:
            return 0, said(board)
        settings, usual = _settings(self._config), _settings(Config())
        known = {
            "settings": settings,
            "changed": [name for name, value in settings.items() if value != usual[name]],
            "findings": [each.sketch() for each in troubles(board, STALL_S)],
        }
        self._pages, self._paged = cut(known, data), now_ns()
        return len(self._pages), self._pages[0]

    def opened(self, driver: Driver, **about: object) -> None:
        """The sockets are open.

        Args:
            about: more of the member, for the board.
        """
        if self._made is None:
            return
        driver.use_board()
        self._about |= {
            **about, "interface": driver.interface, "mtu": driver.mtu, "gso": driver.gso, "gro": driver.gro,
            "rcvbuf": driver.rcvbuf_granted, "net": net_namespace(),
            "port": self._config.port, "transport": self._config.transport, "multicast": self._config.address,
        }  # fmt: skip

    def view(self, old: View | None, view: View, change: str, took_ns: int) -> None:
        """A view was entered after ``old``, if there was one: see ``ViewInstalled``."""
        self._since = time.time_ns()
        before, after = (each.members if each is not None else () for each in (old, view))
        self._views.append(
            {
                "at": self._since, "view": view.view_id.counter, "members": len(after),
                "coordinator": view.coordinator.name, "change": change, "took_ns": took_ns,
                "came": _some(each.name for each in after if each not in before),
                "gone": _some(each.name for each in before if each not in after),
            }
        )  # fmt: skip
        for each in before:
            if each not in after:
                self._gone.pop(each.id, None)
                self._gone[each.id] = each.name
        self._gone = dict(list(self._gone.items())[-GONE_MAX:])
        if change:
            self._cuts.add(change, took_ns)

    def warned(self, text: str) -> None:
        """A warning was logged."""
        self._warnings.append({"at": time.time_ns(), "text": text[:WARNING_MAX]})

    def known(self) -> dict[str, Any]:
        """The settings in use, where those come from that are not the usual ones, the last views, and the last
        warnings; at most 100 KB."""
        return {
            "settings": {name: value if isinstance(value, (int, float)) else value[:WARNING_MAX]
                         for name, value in _settings(self._config).items()},
            "origins": self._config.origins(),
            "views": list(self._views),
            "warnings": list(self._warnings),
        }  # fmt: skip

    def note(self, text: str, member: int = 0) -> None:
        """An event for the flight recorder."""
        if self._made is not None:
            self._engine.board_note(text.encode("utf-8", "replace"), member, now_ns())

    def post(
        self,
        view: View | None,
        status: str,
        reason: str,
        address: bytes,
        counters: Callable[[], Mapping[str, int]],
        seeds: Callable[[], Mapping[str, Any]],
        seal: Mapping[str, Any],
    ) -> None:
        """Writes the text, at its time, or after a change.

        Args:
            address: of this member, for others.
            seeds: how they fare; see ``Discovery.fate``.
            seal: with a key, the ids of the keys and the cipher; else empty.
        """
        now, shown = now_ns(), (view, status, reason)
        if self._made is None or (shown == self._posted and now < self.due):
            return
        self._posted, self.due = shown, now + EVERY_NS
        if now >= self._touch_due:
            self._touch_due = now + TOUCH_NS
            self._made.touch()
        about = self._about | {
            "updated": now,
            "address": describe_address(address),
            "status": {"name": status, "reason": reason},
            "view": {**_of(view), "since": self._since},
            "gone": [{"id": each, "name": name[:NAME_MAX]} for each, name in self._gone.items()],
            "cuts": self._cuts.sketch(),
            "counters": dict(counters()),
            "seeds": dict(seeds()),
            "seal": dict(seal),
        }
        if not self._engine.board_about(_text(about)):  # the members say too much of themselves
            for each in about["view"]["members"]:
                del each["info"]
            self._engine.board_about(_text(about))

    def remove(self) -> None:
        """The member has left: nobody looks at its board any more."""
        if self._made is not None:
            self._made.remove()


def _settings(config: Config) -> dict[str, Any]:
    """The settings in use; of keys they have the paths only."""
    values = {each.name: getattr(config, each.name) for each in fields(config)}
    return {name: value if isinstance(value, (str, int, float)) else repr(value) for name, value in values.items()}


def _some(names: Iterable[str]) -> list[str]:
    """The first ones, and how many more there are."""
    found = list(names)
    more = [f"{len(found) - NAMED_MAX} more"] * (len(found) > NAMED_MAX)
    return [name[:NAME_MAX] for name in found[:NAMED_MAX]] + more


def _text(about: dict[str, Any]) -> bytes:
    return json.dumps(about, separators=(",", ":")).encode()


def _of(view: View | None) -> dict[str, Any]:
    if view is None:
        return {}
    return {
        "counter": view.view_id.counter,
        "coordinator": view.coordinator.name,
        "order": view.order,
        "mechanism": view.mechanism,
        "sequencer": view.sequencer,
        "members": [_member(each) for each in view.members],
    }


def _member(member: Member) -> dict[str, Any]:
    return {
        "id": member.id,
        "name": member.name,
        "address": describe_address(member.address),
        "observer": member.observer,
        "info": member.info,
    }
