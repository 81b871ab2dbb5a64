"""Answers ``seqcast probe --all`` and ``seqcast debug``: asks the other members of the view for their boards, and gives
those to a process of the same user on this machine. Such a process also gets the knowledge that this member alone has
(``seqcast probe --known``).

The question (a page of the whole boards, 0 for the boards in short, ``KNOWN`` for this member's own knowledge) and the
answer are a line of JSON each, on the socket beside the board. All this runs on the control thread, which looks here
each time: once a second if nothing else happens. One process is served at a time; others wait in the socket's queue.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

from seqcast.board.place import socket_of
from seqcast.core.context import NEVER
from seqcast.core.frames.asking import KNOWN, PAGES_MAX
from seqcast.core.vocabulary import MemberTold
from seqcast.net.posting import Posting

log = logging.getLogger("seqcast")
LOOK_NS = 10_000_000
"""How often the control thread looks while somebody is served."""
ANSWERS_NS = 500_000_000
"""How long answers of members are awaited."""
SERVED_NS = 2_000_000_000
"""How long a process may take to read its answer."""
ASKED_NS = 300_000_000
"""How long one may take to ask."""
QUESTION_BYTES = 100
REST_NS = 250_000_000
"""The least time from one question to the next: members answer no faster."""
SOON_NS = 1_000_000_000
"""After a question the next one, for the next page, is awaited this long."""
QUEUE = 4


class Questions:
    """Answers for one member.

    Args:
        member: its id.
        posting: its board; without one nobody can ask.
        ask: asks the other members for a page; ``told`` is called with each answer.
    """

    def __init__(self, member: int, posting: Posting, ask: Callable[[int, int], None]) -> None:
        self._member, self._posting, self._ask = member, posting, ask
        self._request = self._page = 0  # of the last question to the others
        self._of_itself = False  # the question is for this member's own knowledge
        self._told: dict[int, tuple[int, int, str]] = {}  # member -> (time, pages, text), perhaps by an earlier request
        self._awaited: set[int] = set()
        self._client: socket.socket | None = None
        self._question: bytes | None = None  # the bytes read, as long as these are not all
        self._answer = b""  # the bytes left to write
        self._until = self._next = 0
        self._listener: socket.socket | None = None
        self._path = socket_of(posting.path) if posting.path is not None and hasattr(socket, "AF_UNIX") else None
        if self._path is None:
            return
        try:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.setblocking(False)
            self._listener.bind(str(self._path))
            os.chmod(self._path, 0o600)
            self._listener.listen(QUEUE)
        except OSError as error:
            log.info("%s: no socket, so `seqcast probe --all` cannot ask this member: %s", self._path.name, error)
            self.close()

    def due(self, now: int) -> int:
        """When to look next."""
        return now + LOOK_NS if self._client is not None or now < self._next + SOON_NS else NEVER

    def look(self, now: int, others: Callable[[], set[int]], known: Callable[[], Mapping[str, Any]]) -> None:
        """Serves whoever asks.

        Args:
            others: gives the ids of the other members of the view.
            known: gives this member's own knowledge.
        """
        if self._client is None and self._listener is not None and now >= self._next:
            self._accept(now)
        if self._question is not None:
            self._read(now, others)
        if self._client is None or self._question is not None:
            return
        if not self._answer and (not self._awaited or now >= self._until):
            answer = {"known": known()} if self._of_itself else {"told": self._reports(now, others())}
            self._answer, self._until = json.dumps(answer).encode() + b"\n", now + SERVED_NS
        if self._answer:
            self._write(now)

    def _reports(self, now: int, others: set[int]) -> dict[str, list[object]]:
        told = {str(each): [now - at, *what] for each, (at, *what) in self._told.items() if each in others}
        return {**told, str(self._member): [0, *self._posting.sees(self._page)]}

    def told(self, answer: MemberTold, now: int) -> None:
        """A member has answered."""
        if answer.request == self._request:
            self._awaited.discard(answer.member)
            self._told[answer.member] = (now, answer.pages, answer.sees)

    def close(self) -> None:
        """Nobody can ask any more."""
        self._hang_up()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            with contextlib.suppress(OSError):
                assert self._path is not None
                self._path.unlink()

    def _accept(self, now: int) -> None:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except OSError:  # nobody waits, or not any more
            return
        client.setblocking(False)
        if not _trusted(client):
            client.close()
            return
        self._client, self._question, self._until = client, b"", now + ASKED_NS

    def _read(self, now: int, others: Callable[[], set[int]]) -> None:
        """Reads the question, and asks the others once it is there."""
        assert self._client is not None and self._question is not None
        try:
            came = self._client.recv(QUESTION_BYTES)
            self._question += came
            if came and not self._question.endswith(b"\n") and len(self._question) < QUESTION_BYTES:
                return
            page = json.loads(self._question)["page"]
        except BlockingIOError:
            if now >= self._until:
                self._hang_up()
            return
        except (OSError, ValueError, KeyError, TypeError):
            page = None
        if type(page) is not int or not KNOWN <= page <= PAGES_MAX:
            self._hang_up()
            return
        self._question, self._of_itself = None, page == KNOWN
        if self._of_itself:
            self._awaited, self._next = set(), now + REST_NS
            return
        self._request += 1
        self._awaited, self._until = others(), now + ANSWERS_NS
        kept = self._awaited if page == self._page == 0 else set()
        self._told = {each: told for each, told in self._told.items() if each in kept}
        self._page, self._next = page, now + REST_NS
        self._ask(self._request, page)

    def _write(self, now: int) -> None:
        assert self._client is not None
        try:
            self._answer = self._answer[self._client.send(self._answer) :]
        except BlockingIOError:
            if now < self._until:
                return
            self._answer = b""
        except OSError:
            self._answer = b""
        if not self._answer:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client, self._question, self._answer = None, None, b""


def _trusted(client: socket.socket) -> bool:
    """A process of this user, or of root. (The socket's directory lets no others through; if the system does not say
    who asks, that must do.)"""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    _, uid, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid in (os.geteuid(), 0)
