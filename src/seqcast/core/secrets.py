"""The secret of a view in a group with a key: new with each view, and readable by its members alone.

Each member has its own key pair, made at its join; JOIN and VIEW have the public half. The maker of a VIEW draws its
secret, and wraps it for each member of the new view with the secret of both halves, the maker's and the member's. So
the secret stays hidden from a former member, even one with the key file, and from anyone who records everything and
gets the file later.

A VIEW that closes a view has a proof besides, which only members of that view can compute: one with nothing but the key
file, or a former member, can neither exclude a member nor make one install anything. Secret and proof are those of the
whole VIEW, so nobody on the way can change what it says of its members, or where the streams end.

A joiner cannot check that proof. So a VIEW has another one, which those compute who have the new secret: one with
nothing but the key file can make a VIEW of its own, but cannot tell a joiner of a view of others where streams begin
there.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from seqcast.core.frames.codec import canonical, told
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.view import NewView
from seqcast.core.identities import CLOSING, Identities
from seqcast.types import Secret

CLOSES = b"seqcast closes"
"""Purpose of BLAKE2b in the proof of a VIEW."""
ENTERS = b"enters"
"""Before what the proof for joiners covers."""
CIPHERS = ("xchacha20-poly1305", "aegis-128l", "aegis-256", "aes-256-gcm")
"""By number: of ``NewView.cipher``, and of native/seal/seal.h."""


def cipher_of(setting: str, members: Sequence[MemberInfo]) -> int:
    """The number of the cipher of a view.

    Args:
        setting: the same of all members; "auto": AEGIS-128L if all have AES instructions, without which that cipher is
            slow, and may reveal its data by its timing.
        members: of the view.
    """
    if setting != "auto":
        return CIPHERS.index(setting)
    return CIPHERS.index("aegis-128l" if all(info.aes for info in members) else "xchacha20-poly1305")


class Exchange(Protocol):
    """The key pair of one incarnation, and the operations with its secret half."""

    @property
    def public(self) -> bytes: ...

    def draw(self) -> Secret:
        """A new secret, for one view."""

    def wrap(self, to: bytes, about: bytes, secret: Secret) -> bytes:
        """The secret, for the owner of the public key ``to``; whatever that is, nothing is raised.

        Another nonce is drawn for each: two copies of one process may make the same view, with two secrets.
        """

    def unwrap(self, of: bytes, about: bytes, wrapped: bytes) -> Secret | None:
        """The secret that the owner of the public key ``of`` has wrapped for us; None: there is no such secret."""

    def prove(self, secret: Secret, said: bytes) -> bytes:
        """Bytes that only somebody with this secret can compute: of a VIEW that closes the secret's view."""


class Secrets:
    """The secrets of the views of one member.

    Args:
        exchange: None: there is no key, and nothing has a secret.
        me: id of the member.
        identities: sign the VIEWs that the member makes, if the group has any.
        cipher: as the setting of that name.
    """

    def __init__(self, exchange: Exchange | None, me: int, identities: Identities, cipher: str = "auto") -> None:
        self._exchange, self._me, self._identities, self._cipher = exchange, me, identities, cipher
        self._current: Secret = b""  # of the view that we are in
        # Each VIEW is looked at several times on its way, and to write down what it says takes long.
        self._looked: tuple[NewView | None, dict[str, Any]] = None, {}
        self._opened: tuple[NewView | None, Secret | None] = None, None
        self._made: NewView | None = None  # ours: we know that nobody else has made it
        self._drawn: tuple[int, Secret] = 0, b""  # the secret of that, by the view's tag: we may not be in the view

    @property
    def public(self) -> bytes:
        return self._exchange.public if self._exchange is not None else b""

    def given(self, frame: NewView) -> NewView:
        """A VIEW of ours, with a new secret, and our signature."""
        if self._exchange is None:
            return frame
        cipher = cipher_of(self._cipher, frame.members)
        frame = replace(frame, maker_key=self._exchange.public, cipher=cipher)
        said = about(frame)
        secret = self._exchange.draw()
        wraps = [self._exchange.wrap(info.key, said, secret) for info in frame.members]
        self._drawn = frame.view_id.tag, secret
        self._made = self._finished(self._identities.made(replace(frame, wraps=tuple(wraps))), secret, self._exchange)
        self._opened = self._made, secret if frame.has(self._me) else None
        return self._made

    def proven(self, frame: NewView) -> NewView:
        """A VIEW that closes our view, with its sender's proofs: of the view that it closes, and of the new one."""
        if self._exchange is None:
            return frame
        drawn = self._drawn[1] if self._drawn[0] == frame.view_id.tag else b""
        return self._finished(frame, self.of(frame) or drawn, self._exchange)

    def _finished(self, frame: NewView, secret: Secret, exchange: Exchange) -> NewView:
        said = _said_in(told(frame))
        shown = exchange.prove(secret, ENTERS + said) if secret else b""
        return replace(frame, proof=exchange.prove(self._current, said), shown=shown)

    def shown(self, frame: NewView) -> NewView:
        """The VIEW of our view, for a joiner that it names: perhaps one that has left it passed the VIEW on."""
        if self._exchange is None or frame.shown:
            return frame
        return replace(frame, shown=self._exchange.prove(self._current, ENTERS + _said_in(told(frame))))

    def admits(self, frame: NewView) -> bool:
        """May we, who are in no view, enter this one? Without a key, whoever says so may let us."""
        secret = self.of(frame)
        if self._exchange is None or secret is None:
            return secret is not None
        shown = self._exchange.prove(secret, ENTERS + _said_in(self._told(frame)))
        return hmac.compare_digest(frame.shown, shown)

    def of(self, frame: NewView) -> Secret | None:
        """The secret in a VIEW; None: no secret for us. Without a key: none is needed, b""."""
        if self._exchange is None:
            return b""
        if self._opened[0] is not frame:
            self._opened = frame, self._unwrapped(frame, self._exchange)
        return self._opened[1]

    def _unwrapped(self, frame: NewView, exchange: Exchange) -> Secret | None:
        place = next((place for place, info in enumerate(frame.members) if info.id == self._me), -1)
        if not 0 <= place < len(frame.wraps) or frame.cipher != cipher_of(self._cipher, frame.members):
            return None
        return exchange.unwrap(frame.maker_key, _about(self._told(frame)), frame.wraps[place])

    def _told(self, frame: NewView) -> dict[str, Any]:
        if self._looked[0] is not frame:
            self._looked = frame, told(frame)
        return self._looked[1]

    def fault(self, frame: NewView, known: Mapping[int, MemberInfo]) -> str:
        """Why nobody may send this VIEW, which closes our view; "": somebody may.

        Args:
            known: the members of our view.
        """
        if self._exchange is None or frame is self._made:
            return ""
        if not hmac.compare_digest(frame.proof, self._exchange.prove(self._current, _said_in(self._told(frame)))):
            return "its sender does not show membership in the closed view"
        maker = known.get(frame.view_id.flush[1])
        if maker is not None and maker.key != frame.maker_key:
            return "its maker has another key"
        if frame.has(self._me) and self.of(frame) is None:
            return "the VIEW has no secret for us, or another cipher than its members need"
        return self._identities.forged(frame, known.values())

    def entered(self, secret: Secret) -> None:
        """We are in the view with this secret."""
        self._current = secret


def about(frame: NewView) -> bytes:
    """The context of a secret: all that the maker of a view says of it."""
    return _about(told(frame))


def _about(said: dict[str, Any]) -> bytes:
    return hashlib.blake2b(_but(said, _NOT_MADE), digest_size=32, person=b"seqcast members").digest()


def _said_in(said: dict[str, Any]) -> bytes:
    return _but(said, _NOT_SERVED)


def _but(said: dict[str, Any], out: set[str]) -> bytes:
    return canonical({name: value for name, value in said.items() if name not in out})


_NOT_MADE = {*CLOSING, "wraps", "maker_identity"}
_NOT_SERVED = {"attempt", "answers", "proof", "shown"}
"""(A member that has entered a view passes the VIEW on as it came, as an answer to another attempt.)"""
