"""Identities of members, and the list of those who may be in the group: with ``identity=`` and ``authorized=``.

The key file shows that somebody belongs to those who have it, and not which of them. With identities, each process has
a pair of keys of its own for signatures (Ed25519), and each member a list of the identities that may be members, and
under which names. A joiner signs its own description, and the number received from the group (``rules/cookies.py``).
That signature is in JOIN, and in each VIEW, so every member checks for itself with whom it shares a view. The maker of
a VIEW signs that VIEW. All frames between those who are in no view, or in different ones, have their sender's
signature, which holds in one cluster, before their bytes, except for INSTALLED: one that has the key file alone, or
whose line is gone, can say nothing there. (One whose line is gone may still close the view that it is in, and ask to
join: it is refused by name.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import NamedTuple, Protocol

from seqcast.core.frames.codec import canonical, told
from seqcast.core.frames.fields import IDENTITY_BYTES, SIGNATURE_BYTES, MemberInfo
from seqcast.core.frames.joining import Join
from seqcast.core.frames.unblocking import Unblock
from seqcast.core.frames.view import NewView
from seqcast.errors import RemoteProtocolError
from seqcast.types import MEMBERS_MAX

MARK = b"S"
"""First byte of a frame with a signature: no frame begins so, nor does a compressed one."""
CLOSING = frozenset(
    {"closes", "attempt", "answers", "survivors", "cut", "table", "origin_base", "proof", "shown", "signature"}
)
"""Fields of a VIEW that its maker does not sign: they differ by subgroup, follow from the answers to its proposal, or
are of the member that serves the VIEW."""
LISTED_MAX = 96
"""Members of a view with identities: a VIEW of more with the longest names and infos would be too long."""
KNOWN_MAX = 1024
"""The most signatures that are remembered as right: a VIEW repeats those of all its members."""


class Signer(Protocol):
    """The key pair of one identity."""

    @property
    def public(self) -> bytes: ...

    def sign(self, said: bytes) -> bytes: ...

    def proves(self, public: bytes, said: bytes, signature: bytes) -> bool:
        """Is this the signature of the owner of ``public``? Whatever the arguments are, nothing is raised."""


class Allowed(NamedTuple):
    """One who may be a member.

    Args:
        public: its identity.
        names: pattern of the allowed names, as file names are matched.
        operator: may let a blocked minority continue.
    """

    public: bytes
    names: str
    operator: bool = False


class Identities:
    """The identities that one member knows, and its own.

    Args:
        signer: its own; None: the group has none, and nothing is signed or checked.
        allowed: the list.
        cluster: the group's name.
    """

    def __init__(self, signer: Signer | None, allowed: Sequence[Allowed], cluster: str) -> None:
        self._signer, self._cluster = signer, cluster
        self._lines: dict[bytes, list[Allowed]] = {}
        self._barred: dict[tuple[bytes, str], bool] = {}  # by identity and name, as the list is now
        self._right: dict[bytes, None] = {}  # digests of proven signatures
        self.read(allowed)

    @property
    def used(self) -> bool:
        return self._signer is not None

    @property
    def most(self) -> int:
        """Members that a view may have."""
        return LISTED_MAX if self.used else MEMBERS_MAX

    def read(self, allowed: Sequence[Allowed]) -> None:
        """The list has changed."""
        self._lines, self._barred = {}, {}
        for each in allowed:
            self._lines.setdefault(each.public, []).append(each)

    # ---- members

    def signed(self, info: MemberInfo) -> MemberInfo:
        """The description of ourselves, with our signature."""
        if self._signer is None:
            return info
        info = replace(info, identity=self._signer.public)
        return replace(info, signature=self._signer.sign(_said_of(info, self._cluster)))

    def bars(self, info: MemberInfo) -> bool:
        """Has the list no line for this process, as one that has run out or was removed?"""
        if not self.used:
            return False
        who = info.identity, info.name
        if who not in self._barred:
            if len(self._barred) >= KNOWN_MAX:
                self._barred.clear()
            lines = self._lines.get(info.identity, ())
            self._barred[who] = not any(fnmatchcase(info.name, each.names) for each in lines)
        return self._barred[who]

    def fault(self, info: MemberInfo) -> str:
        """Why this process may not be a member; "": may be."""
        if not self.used:
            return ""
        if self.bars(info):
            known = "has no identity" if not info.identity else "its identity has no line there for this name"
            return f"this group has a list of those who may be members (authorized=), and {info.name} {known}"
        if not self._proven(info.identity, _said_of(info, self._cluster), info.signature):
            return f"{info.name} does not show that the named identity is its own"
        return ""

    def strangers(self, frame: NewView, known: Mapping[int, MemberInfo]) -> str:
        """Why we cannot be in this view with its other members; "": we can.

        Args:
            known: members of our view, by id: they were looked at before.
        """
        faults = (self.fault(info) for info in frame.members if known.get(info.id) != info)
        return next((fault for fault in faults if fault), "")

    # ---- VIEW

    def made(self, frame: NewView) -> NewView:
        """A VIEW of ours, with our signature."""
        if self._signer is None:
            return frame
        frame = replace(frame, maker_identity=self._signer.public)
        return replace(frame, signature=self._signer.sign(_said_by(frame, self._cluster)))

    def forged(self, frame: NewView, known: Collection[MemberInfo]) -> str:
        """Why the member that is said to have made this VIEW did not; "": did.

        Args:
            known: members of our view.
        """
        if not self.used:
            return ""
        maker = frame.view_id.flush[1]
        if any(info.id == maker and info.identity != frame.maker_identity for info in (*known, *frame.members)):
            return "its maker has another identity"
        # (A member of our view was on the list when it came in, and may close the view without itself.)
        if frame.maker_identity not in self._lines and all(info.id != maker for info in known):
            return "the list of those who may be members (authorized=) does not have its maker"
        if not self._proven(frame.maker_identity, _said_by(frame, self._cluster), frame.signature):
            return "its maker has not signed the VIEW"
        return ""

    # ---- other frames

    def with_signature(self, sender: int, payload: bytes) -> bytes:
        """A frame in the form that is sent."""
        if self._signer is None:
            return payload
        return MARK + self._signer.public + self._signer.sign(_said_in(self._cluster, sender, payload)) + payload

    def doubt(self, frame: object, sender: int, received: Signed, known: Mapping[int, MemberInfo]) -> str:
        """Why the sender does not show the right to send a frame that is to have a signature; "": shows that.

        Args:
            known: members of our view, by id.
        """
        if self._signer is None or (isinstance(frame, Join) and not frame.info.identity):  # refused by name
            return ""
        if not received.public:
            return "the frame shows no identity"
        lines = self._lines.get(received.public, ())
        closes = isinstance(frame, NewView) and sender in known
        if not lines and not closes and not isinstance(frame, Join):
            return "its identity is not on the list"
        if isinstance(frame, Unblock) and not any(each.operator for each in lines):
            return "the list does not name this identity as an operator"
        described = [info for info in _described(frame) if info.id == sender]
        described += [known[sender]] if sender in known else []
        if any(info.identity != received.public for info in described):
            return "the sender uses the name of a member that has another identity"
        said = _said_in(self._cluster, sender, received.payload)
        if not self._signer.proves(received.public, said, received.signature):
            return "the frame is not signed with the identity that it names"
        return ""

    def _proven(self, public: bytes, said: bytes, signature: bytes) -> bool:
        """A VIEW has the same signatures again and again, and each takes a while to check."""
        digest = hashlib.blake2b(public + signature + said, digest_size=32).digest()
        if digest in self._right:
            return True
        if self._signer is None or not self._signer.proves(public, said, signature):
            return False
        if len(self._right) >= KNOWN_MAX:
            self._right.clear()
        self._right[digest] = None
        return True


class Signed(NamedTuple):
    """A received frame: its bytes, and before them, if the sender has an identity, that and a signature."""

    payload: bytes
    public: bytes = b""
    signature: bytes = b""


def taken_apart(payload: bytes) -> Signed:
    """The parts of a frame that came, with or without a signature, which members without identities pass over."""
    if not payload.startswith(MARK):
        return Signed(payload)
    at = len(MARK) + IDENTITY_BYTES
    end = at + SIGNATURE_BYTES
    if len(payload) < end:
        raise RemoteProtocolError("a frame that ends within its signature")
    return Signed(payload[end:], payload[len(MARK) : at], payload[at:end])


def _described(frame: object) -> tuple[MemberInfo, ...]:
    if isinstance(frame, Join):
        return (frame.info,)
    return frame.members if isinstance(frame, NewView) else ()


def _said_of(info: MemberInfo, cluster: str) -> bytes:
    return _digest(b"member", canonical([cluster, told(info, {"signature"})]))


def _said_by(frame: NewView, cluster: str) -> bytes:
    return _digest(b"view", canonical([cluster, told(frame, CLOSING)]))


def _said_in(cluster: str, sender: int, payload: bytes) -> bytes:
    """The signed bytes name the cluster, too: most frames name none, and one identity may be on the lists of
    several."""
    name = cluster.encode("utf-8")
    return _digest(b"frame", len(name).to_bytes(2, "little") + name + sender.to_bytes(8, "little") + payload)


def _digest(kind: bytes, said: bytes) -> bytes:
    return hashlib.blake2b(said, digest_size=32, person=b"seqcast " + kind).digest()
