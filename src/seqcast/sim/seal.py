"""The seal of simulated groups with a key: the interface of a cipher, by two lines of arithmetic. It protects nothing.
The engine treats all seals alike, so what the simulator shows with this one holds for a cipher, too.

Nonces are those of production, so that the check that none comes twice (``Nonces``) holds for any cipher.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
from typing import Any

from seqcast.config.keys import ROOM, SECRET_BYTES, Seal

HEADER = 40
"""What stays readable: the common header of native/wire/wire.h."""
TAG = 32
_BYTES = ctypes.c_void_p
_LONG = ctypes.c_ulonglong
_SEAL = ctypes.CFUNCTYPE(ctypes.c_int, _BYTES, _BYTES, _BYTES, _LONG, _BYTES, _LONG, _BYTES, _BYTES, _BYTES)
_OPEN = ctypes.CFUNCTYPE(ctypes.c_int, _BYTES, _BYTES, _BYTES, _BYTES, _LONG, _BYTES, _LONG, _BYTES, _BYTES)
_HASH = ctypes.CFUNCTYPE(ctypes.c_int, _BYTES, ctypes.c_size_t, _BYTES, _LONG, _BYTES, ctypes.c_size_t, _BYTES, _BYTES)
_RANDOM = ctypes.CFUNCTYPE(None, _BYTES, _LONG)
_KEY, _NONCE = 16, 16


def _mixed(data: bytes, key: bytes, nonce: bytes) -> bytes:
    """XOR with a pad; applied twice it is nothing."""
    pad = hashlib.blake2b(nonce, key=key).digest()
    pad *= len(data) // len(pad) + 1
    return (int.from_bytes(data, "little") ^ int.from_bytes(pad[: len(data)], "little")).to_bytes(len(data), "little")


def _tag(data: bytes, header: bytes, key: bytes, nonce: bytes) -> bytes:
    return hashlib.blake2b(nonce + header + data, key=key, digest_size=TAG).digest()


def _seal(
    to: int, _n: int, data: int, length: int, header: int, header_length: int, _unused: int, nonce_at: int, key_at: int
) -> int:
    key, nonce = ctypes.string_at(key_at, _KEY), ctypes.string_at(nonce_at, _NONCE)
    mixed = _mixed(ctypes.string_at(data, length), key, nonce)
    sealed = mixed + _tag(mixed, ctypes.string_at(header, header_length), key, nonce)
    ctypes.memmove(to, sealed, len(sealed))
    return 0


def _open(
    to: int, _n: int, _unused: int, data: int, length: int, header: int, header_length: int, nonce_at: int, key_at: int
) -> int:
    key, nonce = ctypes.string_at(key_at, _KEY), ctypes.string_at(nonce_at, _NONCE)
    sealed = ctypes.string_at(data, length)
    mixed = sealed[:-TAG]
    if sealed[-TAG:] != _tag(mixed, ctypes.string_at(header, header_length), key, nonce):
        return -1
    ctypes.memmove(to, _mixed(mixed, key, nonce), len(mixed))
    return 0


def _hash(
    to: int, length: int, data: int, data_length: int, key_at: int, key_length: int, _salt: int, person_at: int
) -> int:
    key = ctypes.string_at(key_at, key_length)
    person = ctypes.string_at(person_at, 16) if person_at else b""
    digest = hashlib.blake2b(ctypes.string_at(data, data_length), digest_size=length, key=key, person=person).digest()
    ctypes.memmove(to, digest, length)
    return 0


_FUNCTIONS = (_SEAL(_seal), _OPEN(_open), _HASH(_hash))  # C calls them: they must stay alive


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


SECRETS = {3: bytes(SECRET_BYTES), 20: bytes(range(SECRET_BYTES))}
"""By mark: those of a group whose secret is being replaced. Some members seal with one, some with the other."""


def simulated_seal(rng: random.Random, *marks: int) -> Seal:
    """A seal whose random bits are drawn from ``rng``.

    Args:
        marks: of its secrets, the first of which seals; none: all, in an order that is drawn, too.
    """
    order = marks or tuple(rng.sample(sorted(SECRETS), len(SECRETS)))

    def draw(to: int, length: int) -> None:
        ctypes.memmove(to, rng.randbytes(length), length)

    drawing = _RANDOM(draw)
    secrets = tuple((mark, SECRETS[mark]) for mark in order)
    seal, unseal, digest, draws = map(_address, (*_FUNCTIONS, drawing))
    return Seal(seal, unseal, digest, draws, secrets, drawing)


def opened(datagram: bytes, sealer: int) -> bytes:
    """The plain datagram, as the simulator may look at it.

    Args:
        sealer: the incarnation that sealed it.
    """
    secret = SECRETS[int.from_bytes(datagram[12:14], "little") >> 9 & 31]
    key = hashlib.blake2b(sealer.to_bytes(8, "little"), digest_size=_KEY, key=secret, person=b"seqcast sealer").digest()
    nonce = datagram[-8:] + datagram[4:8] + bytes(4)
    return datagram[:HEADER] + _mixed(datagram[HEADER:-ROOM], key, nonce)


class Nonces:
    """The nonce of every sealing of a run, by who sealed: none may come twice."""

    def __init__(self) -> None:
        self.seen: dict[tuple[bytes, bytes], bytes] = {}
        self.violations: list[str] = []

    def sealed(self, sealer: int, datagram: bytes) -> None:
        """This leaves its sealer; the same bytes may leave for several receivers."""
        nonce = sealer.to_bytes(8, "little"), datagram[-8:] + datagram[4:8]
        digest = hashlib.blake2b(datagram, digest_size=16).digest()
        if self.seen.setdefault(nonce, digest) != digest:
            self.violations.append(f"seal: member {sealer:016x} has used the nonce {nonce[1].hex()} twice")
