"""The seal of simulated groups with a key: the interface of a cipher, by two lines of arithmetic. This seal protects
nothing. The engine treats all seals alike, so results of the simulator with this one hold for a cipher, too.

Keys and nonces are those of production, so that their checks (``Sealings``) hold for any cipher.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from seqcast.config.keys import ROOM, SECRET_BYTES, Seal, key_parts
from seqcast.core.frames.view import PROOF_BYTES, WRAP_BYTES, WRAP_NONCE_BYTES
from seqcast.core.identities import Allowed
from seqcast.core.rules.keys import FileKey
from seqcast.core.secrets import CLOSES
from seqcast.types import Secret

HEADER = 40
"""The part that stays readable: the common header of native/wire/wire.h."""
TAGS = 16, 32, 32, 16
"""Bytes of the tag of each cipher, by number."""
FIRST_DESK = 1000
"""Number of the first operator's desk."""
MEMBERS_MOST, OPERATORS_MOST = 200, 20
"""Processes, and operators, of a run that have identities."""
_BYTES = ctypes.c_void_p
_LONG = ctypes.c_ulonglong
_SEAL = ctypes.CFUNCTYPE(ctypes.c_int, _BYTES, _BYTES, _BYTES, _LONG, _BYTES, _LONG, _BYTES, _BYTES, _BYTES)
_OPEN = ctypes.CFUNCTYPE(ctypes.c_int, _BYTES, _BYTES, _BYTES, _BYTES, _LONG, _BYTES, _LONG, _BYTES, _BYTES)
_HASH = ctypes.CFUNCTYPE(ctypes.c_int, _BYTES, ctypes.c_size_t, _BYTES, _LONG, _BYTES, ctypes.c_size_t, _BYTES, _BYTES)
_RANDOM = ctypes.CFUNCTYPE(None, _BYTES, _LONG)
_KEY, _NONCE = 16, 16
_PRIME, _BASE = (1 << 255) - 19, 9
_WRAP_TAG = WRAP_BYTES - WRAP_NONCE_BYTES - SECRET_BYTES


def _mixed(data: bytes, key: bytes, nonce: bytes) -> bytes:
    """XOR with a pad, which undoes itself."""
    pad = hashlib.blake2b(nonce, key=key).digest()
    pad *= len(data) // len(pad) + 1
    return (int.from_bytes(data, "little") ^ int.from_bytes(pad[: len(data)], "little")).to_bytes(len(data), "little")


def _tag(data: bytes, header: bytes, key: bytes, nonce: bytes, size: int) -> bytes:
    return hashlib.blake2b(nonce + header + data, key=key, digest_size=size).digest()


def encrypted(data: bytes, header: bytes, key: bytes, nonce: bytes, tag: int) -> bytes:
    """As the cipher with tags of this many bytes encrypts."""
    mixed = _mixed(data, key, nonce)
    return mixed + _tag(mixed, header, key, nonce, tag)


def sealed_outside(body: bytes, header: bytes, secret: bytes, nonce: bytes, tags: bytes = b"") -> bytes:
    """The part of a datagram after its header, except for its number, as the secret of a file seals it.

    Args:
        tags: of a member: 16 bytes; none: of somebody in no view.
    """
    tag = TAGS[0]
    key = hashlib.blake2b(header[16:24], digest_size=32, key=secret, person=b"seqcast sealer").digest()[:_KEY]
    return encrypted(body + tags.ljust(ROOM - 8 - tag, b"\0"), header + bytes(8), key, nonce, tag)


def _seal(
    tag: int, to: int, data: int, length: int, header: int, header_length: int, nonce_at: int, key_at: int
) -> int:
    key, nonce = ctypes.string_at(key_at, _KEY), ctypes.string_at(nonce_at, _NONCE)
    sealed = encrypted(ctypes.string_at(data, length), ctypes.string_at(header, header_length), key, nonce, tag)
    ctypes.memmove(to, sealed, len(sealed))
    return 0


def _opens(tag: int) -> Any:
    def opened(
        to: int, _n: int, _u: int, data: int, length: int, header: int, header_length: int, nonce_at: int, key_at: int
    ) -> int:
        key, nonce = ctypes.string_at(key_at, _KEY), ctypes.string_at(nonce_at, _NONCE)
        sealed = ctypes.string_at(data, length)
        mixed = sealed[:-tag]
        if sealed[-tag:] != _tag(mixed, ctypes.string_at(header, header_length), key, nonce, tag):
            return -1
        ctypes.memmove(to, _mixed(mixed, key, nonce), len(mixed))
        return 0

    return _OPEN(opened)


_OPENS = {tag: _opens(tag) for tag in set(TAGS)}  # C calls them: they must stay alive


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


SECRETS = {3: bytes(SECRET_BYTES), 20: bytes(range(SECRET_BYTES))}
"""By mark: those of a group whose key is being replaced."""


def simulated_seal(
    rng: random.Random, *marks: int, owner: int = 0, sealings: Sealings | None = None, aes: bool = True
) -> Seal:
    """A seal whose random bits are drawn from ``rng``.

    Args:
        marks: of its secrets, the first of which seals; none: all, in an order that is drawn, too.
        owner: id of the member that uses the seal; 0: several do.
        sealings: its log.
        aes: the processor has AES instructions.
    """
    order = marks or tuple(rng.sample(sorted(SECRETS), len(SECRETS)))

    def draw(to: int, length: int) -> None:
        ctypes.memmove(to, rng.randbytes(length), length)

    def seals(tag: int) -> Any:
        def seal(to: int, _n: int, data: int, length: int, header: int, header_length: int, *more: int) -> int:
            _, nonce_at, key_at = more
            if sealings is not None:
                sealings.sealed(owner, ctypes.string_at(key_at, _KEY), ctypes.string_at(nonce_at, _NONCE))
            return _seal(tag, to, data, length, header, header_length, nonce_at, key_at)

        return _SEAL(seal)

    def derive(
        to: int, length: int, data_at: int, data_length: int, key_at: int, key_length: int, _salt: int, person_at: int
    ) -> int:
        secret, data = ctypes.string_at(key_at, key_length), ctypes.string_at(data_at, data_length)
        person = ctypes.string_at(person_at, 16) if person_at else b""
        key = hashlib.blake2b(data, digest_size=length, key=secret, person=person).digest()
        ctypes.memmove(to, key, length)
        if sealings is not None and person.startswith(b"seqcast sealer"):
            sealings.derived(owner, secret, data, key[:_KEY])
        return 0

    pairs = [(seals(tag), _OPENS[tag]) for tag in TAGS]
    hashes, draws = _HASH(derive), _RANDOM(draw)
    secrets = tuple((mark, SECRETS[mark]) for mark in order)
    ciphers = tuple(
        (_address(one), _address(other)) if aes or not at else (0, 0) for at, (one, other) in enumerate(pairs)
    )
    return Seal(ciphers, _address(hashes), _address(draws), secrets, aes, (pairs, hashes, draws))


def file_keys(secrets: Sequence[tuple[int, Secret]]) -> tuple[FileKey, ...]:
    """The keys of a file with these secrets, by mark."""
    return tuple(FileKey(*each) for each in key_parts(secrets))


class SimulatedExchange:
    """A key pair (``core.secrets.Exchange``): the scheme of Diffie and Hellman, with numbers modulo a prime.

    Args:
        rng: of this process; the secret half, the secrets of views, and the nonces of their wraps are drawn from it.
        sealings: the log of its wraps.
    """

    def __init__(self, rng: random.Random, sealings: Sealings | None = None) -> None:
        self._rng, self._sealings = rng, sealings
        self._private = rng.getrandbits(64) | 1
        self.public = pow(_BASE, self._private, _PRIME).to_bytes(32, "little")
        self._shared: dict[bytes, bytes] = {}

    def draw(self) -> bytes:
        return self._rng.randbytes(SECRET_BYTES)

    def wrap(self, to: bytes, about: bytes, secret: Secret) -> bytes:
        key, nonce = self._key(to, about), self._rng.randbytes(WRAP_NONCE_BYTES)
        if self._sealings is not None:
            self._sealings.wrapped(self.public, key, nonce)
        return nonce + encrypted(bytes(secret), about, key, nonce, _WRAP_TAG)

    def unwrap(self, of: bytes, about: bytes, wrapped: bytes) -> bytes | None:
        key, nonce, sealed = self._key(of, about), wrapped[:WRAP_NONCE_BYTES], wrapped[WRAP_NONCE_BYTES:]
        mixed, tag = sealed[:SECRET_BYTES], sealed[SECRET_BYTES:]
        return _mixed(mixed, key, nonce) if tag == _tag(mixed, about, key, nonce, _WRAP_TAG) else None

    def prove(self, secret: Secret, said: bytes) -> bytes:
        return hashlib.blake2b(said, digest_size=PROOF_BYTES, key=secret, person=CLOSES).digest()

    def _key(self, other: bytes, about: bytes) -> bytes:
        if other not in self._shared:
            shared = pow(int.from_bytes(other, "little"), self._private, _PRIME)
            self._shared[other] = shared.to_bytes(32, "little")
        both = b"".join(sorted((self.public, other)))
        return hashlib.blake2b(both + about, digest_size=32, key=self._shared[other]).digest()


class SimulatedSigner:
    """An identity (``core.identities.Signer``): a signature shows that its maker knows a number, which all who check it
    look up.

    Args:
        who: the number of its process.
        seed: of the run.
    """

    def __init__(self, seed: int, who: int) -> None:
        self._seed, self._secret = seed, _identity_secret(seed, who)
        self.public = _identity(seed, who)

    def sign(self, said: bytes) -> bytes:
        return hashlib.blake2b(said, key=self._secret).digest()

    def proves(self, public: bytes, said: bytes, signature: bytes) -> bool:
        who = int.from_bytes(public[:4], "little")
        if _identity(self._seed, who) != public:
            return False
        return hashlib.blake2b(said, key=_identity_secret(self._seed, who)).digest() == signature


def _identity_secret(seed: int, who: int) -> bytes:
    return hashlib.blake2b(f"identity {seed} {who}".encode(), digest_size=32).digest()


def _identity(seed: int, who: int) -> bytes:
    secret = _identity_secret(seed, who)
    return who.to_bytes(4, "little") + hashlib.blake2b(secret, digest_size=28).digest()


@functools.cache
def simulated_list(seed: int) -> tuple[Allowed, ...]:
    """The list of members of a run: all that a run can have."""
    members = tuple(Allowed(_identity(seed, who), "*") for who in range(MEMBERS_MOST))
    desks = range(FIRST_DESK, FIRST_DESK + OPERATORS_MOST)
    return members + tuple(Allowed(_identity(seed, who), "*", operator=True) for who in desks)


class Origin(NamedTuple):
    """The source of a key: a secret, its sealer, and the view's tag (0: of the file)."""

    secret: bytes
    sealer: int
    tag: int


class Sealings:
    """All sealings of a run, and all keys, as the ciphers of its processes were asked for them.

    Args:
        origin: by key.
        views: secrets of views, by the process that knows them.
        used: keys with which something was sealed.
    """

    def __init__(self) -> None:
        self.origin: dict[bytes, Origin] = {}
        self.views: dict[int, set[bytes]] = {}
        self.used: set[bytes] = set()
        self.violations: list[str] = []
        self._keys: dict[bytes, bytes] = {}  # by nonce
        self._nonces: set[tuple[bytes, bytes]] = set()
        self._wraps: set[tuple[bytes, bytes]] = set()

    def derived(self, owner: int, secret: bytes, data: bytes, key: bytes) -> None:
        """``owner`` derives a key."""
        sealer, tag = int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")
        self.origin[key] = Origin(secret, sealer, tag)
        if len(data) > 8:
            self.views.setdefault(owner, set()).add(secret)

    def sealed(self, owner: int, key: bytes, nonce: bytes) -> None:
        """``owner`` seals something: no nonce may come twice under one key, and nobody has the key of another one."""
        if (key, nonce) in self._nonces:
            self.violations.append(f"seal: member {owner:016x} has used the nonce {nonce.hex()} twice")
        if owner and self.origin[key].sealer != owner:
            self.violations.append(f"seal: member {owner:016x} seals with the key of {self.origin[key].sealer:016x}")
        self.used.add(key)
        self._nonces.add((key, nonce))
        self._keys[nonce] = key

    def wrapped(self, public: bytes, key: bytes, nonce: bytes) -> None:
        """The owner of ``public`` wraps the secret of a view for one member: no nonce may come twice here, either."""
        if (key, nonce) in self._wraps:
            self.violations.append(f"seal: the maker with the key {public.hex()[:8]} has wrapped twice under one nonce")
        self._wraps.add((key, nonce))

    def opened(self, datagram: bytes) -> bytes:
        """The plain datagram, for the simulator to look at."""
        nonce = datagram[-8:] + datagram[4:8] + bytes(4)
        return datagram[:HEADER] + _mixed(datagram[HEADER:-ROOM], self._keys[nonce], nonce)
