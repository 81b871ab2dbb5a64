"""The cipher of groups with a key: AEGIS-128L (RFC 10032) of libsodium, whose functions PyNaCl gives the addresses of;
and the key pair of each member, for the secrets of views.

PyNaCl is loaded here, when a member with a key joins, and nowhere else. From then on no Python is involved in sending
and receiving: the engine calls the functions itself. Key pairs are used at view changes only.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Sequence
from typing import Any

from seqcast.config import Config
from seqcast.config.keys import SECRET_BYTES, Seal, cluster_secret, read
from seqcast.errors import ConfigError
from seqcast.types import MEMBERS_MAX

EXTRA = "pip install 'seqcast[secure]'"
_CALLS = {
    "seal": "crypto_aead_aegis128l_encrypt",
    "open": "crypto_aead_aegis128l_decrypt",
    "hash": "crypto_generichash_blake2b_salt_personal",
    "random": "randombytes",
}


def seal_of(config: Config, cluster: str) -> Seal | None:
    """The secrets with which the members of a cluster seal their datagrams; None: they have no key.

    Raises:
        ConfigError: the key file is none, or may be read by others; PyNaCl is missing or too old, or this machine's
            processor has no AES instructions.
    """
    if not config.key:
        return None
    secrets = _secrets(config.key, cluster)
    sodium = _sodium()
    return Seal(secrets=secrets, keeps=sodium, **_addresses(sodium))


PAIRS_KEPT = 4 * MEMBERS_MAX
"""So many results of X25519, which is slow, are kept."""
_NONCE = bytes(24)


def _secrets(path: str, cluster: str) -> tuple[tuple[int, bytes], ...]:
    return tuple((key.number, cluster_secret(key, cluster)) for key in read(path))


LOOK_NS = 1_000_000_000
"""Between two looks at the key file."""


class KeyFile:
    """The key file of a member that runs: read again after changes.

    Args:
        path: of the file.
        cluster: the group's name.
        secrets: as read for the join.
    """

    def __init__(self, path: str, cluster: str, secrets: Sequence[tuple[int, bytes]]) -> None:
        self.path, self._cluster, self._secrets = path, cluster, tuple(secrets)
        self._seen: tuple[int, ...] = ()
        self.due_ns = 0  # time of the next look
        self.counters = {"key_id": self._secrets[0][0], "key_reads": 0, "key_errors": 0}
        """Of ``Group.counters``."""

    def look(self, now_ns: int) -> tuple[tuple[int, bytes], ...] | None:
        """The secrets, if they are others now.

        Raises:
            ConfigError: the file has changed, and is no key file: the keys before stay.
        """
        self.due_ns = now_ns + LOOK_NS
        try:
            at = os.stat(self.path)
            seen: tuple[int, ...] = (at.st_mtime_ns, at.st_ino, at.st_dev, at.st_size, at.st_mode)
        except OSError:
            seen = (0,)
        if seen == self._seen:
            return None
        self._seen = seen
        try:
            secrets = _secrets(self.path, self._cluster)
        except ConfigError:
            self.counters["key_errors"] += 1
            raise
        if secrets == self._secrets:
            return None
        self._secrets = secrets
        self.counters["key_reads"] += 1
        self.counters["key_id"] = secrets[0][0]
        return secrets


class KeyPair:
    """``core.secrets.Exchange``: X25519, BLAKE2b, XChaCha20-Poly1305. The secret half is never written down."""

    def __init__(self) -> None:
        self._calls: Any = importlib.import_module("nacl.bindings")
        self.public, self._private = self._calls.crypto_box_keypair()
        failure: type[Exception] = importlib.import_module("nacl.exceptions").CryptoError
        self._failures = failure, ValueError, TypeError, RuntimeError
        self._shared: dict[bytes, bytes] = {}  # by public key of the other one

    def draw(self, about: bytes) -> bytes:
        return self._random(SECRET_BYTES)

    def wrap(self, to: bytes, about: bytes, secret: bytes) -> bytes:
        key = self._key(to, about)
        return bytes(self._calls.crypto_aead_xchacha20poly1305_ietf_encrypt(secret, about, _NONCE, key))

    def unwrap(self, of: bytes, about: bytes, wrapped: bytes) -> bytes | None:
        try:
            key = self._key(of, about)
            return bytes(self._calls.crypto_aead_xchacha20poly1305_ietf_decrypt(wrapped, about, _NONCE, key))
        except self._failures:
            return None

    def _random(self, n: int) -> bytes:
        return bytes(self._calls.randombytes(n))

    def _key(self, other: bytes, about: bytes) -> bytes:
        """For one secret, so that one nonce does. An invalid public key gives a secret that nobody has."""
        if (shared := self._shared.get(other)) is None:
            try:
                shared = self._calls.crypto_scalarmult(self._private, other)
            except self._failures:
                shared = self._random(SECRET_BYTES)
            if len(self._shared) >= PAIRS_KEPT:
                self._shared.clear()
            self._shared[other] = shared
        both = b"".join(sorted((self.public, other)))
        return hashlib.blake2b(both + about, digest_size=32, key=shared, person=b"seqcast wrap").digest()


def _sodium() -> Any:
    try:
        sodium: Any = importlib.import_module("nacl._sodium")
    except ImportError:
        raise ConfigError(f"key= needs PyNaCl, which is not installed: {EXTRA}") from None
    if sodium.lib.sodium_init() < 0:
        raise ConfigError("key=: libsodium cannot be used here: it found no source of random numbers")
    # Elsewhere AEGIS is slow, and may reveal by its timing the data that it encrypts.
    if not sodium.lib.crypto_aead_aes256gcm_is_available():
        raise ConfigError("key= needs a processor with AES instructions, and this one has none")
    return sodium


def _addresses(sodium: Any) -> dict[str, int]:
    ffi, lib = sodium.ffi, sodium.lib
    try:
        return {name: int(ffi.cast("uintptr_t", ffi.addressof(lib, call))) for name, call in _CALLS.items()}
    except AttributeError:
        raise ConfigError(f"key= needs PyNaCl 1.6.2 or later, and an older one is installed: {EXTRA}") from None
