"""The secret of a view in a group with a key: new with each view, and readable by its members alone.

Each member has its own key pair, made at its join; JOIN and VIEW have the public half. The maker of a VIEW draws its
secret, and wraps it for each member of the new view with the secret of both halves, the maker's and the member's. So
the secret stays hidden from a former member, even one with the key file, and from anyone who records everything and
gets the file later.

A VIEW that closes a view has a proof besides, which only members of that view can compute: one with nothing but the key
file, or a former member, can neither exclude a member nor make one install anything. Secret and proof are those of the
whole VIEW, so nobody on the way can change what it says of its members, or where the streams end.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from seqcast.core.frames.codec import canonical, told
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.view import NewView
from seqcast.core.identities import CLOSING, Identities
from seqcast.types import Secret

CLOSES = b"seqcast closes"
"""Purpose of BLAKE2b in the proof of a VIEW."""
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
        return self.proven(self._identities.made(replace(frame, wraps=tuple(wraps))))

    def proven(self, frame: NewView) -> NewView:
        """A VIEW that closes our view, with the proof that its sender was a member."""
        if self._exchange is None:
            return frame
        return replace(frame, proof=self._exchange.prove(self._current, _said_in(frame)))

    def of(self, frame: NewView) -> Secret | None:
        """The secret in a VIEW; None: no secret for us. Without a key: none is needed, b""."""
        if self._exchange is None:
            return b""
        place = next((place for place, info in enumerate(frame.members) if info.id == self._me), -1)
        if not 0 <= place < len(frame.wraps) or frame.cipher != cipher_of(self._cipher, frame.members):
            return None
        return self._exchange.unwrap(frame.maker_key, about(frame), frame.wraps[place])

    def fault(self, frame: NewView, known: Mapping[int, MemberInfo]) -> str:
        """Why nobody may send this VIEW, which closes our view; "": somebody may.

        Args:
            known: the members of our view.
        """
        if self._exchange is None:
            return ""
        if not hmac.compare_digest(frame.proof, self._exchange.prove(self._current, _said_in(frame))):
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
    return hashlib.blake2b(canonical(told(frame, _NOT_MADE)), digest_size=32, person=b"seqcast members").digest()


def _said_in(frame: NewView) -> bytes:
    return canonical(told(frame, _NOT_SERVED))


_NOT_MADE = {*CLOSING, "wraps", "maker_identity"}
_NOT_SERVED = {"attempt", "answers", "proof"}
"""(A member that has entered a view passes the VIEW on as it came, as an answer to another attempt.)"""
