"""The ciphers of groups with a key: those of libsodium, whose functions PyNaCl gives the addresses of; and the key pair
of each member, for the secrets of views.

PyNaCl is loaded here, when a member with a key joins, and nowhere else. From then on no Python is involved in sending
and receiving: the engine calls the functions itself. Key pairs are used at view changes only.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypeVar

from seqcast._native.engine import locked
from seqcast.config import Config
from seqcast.config.identities import described, read_identity, read_list
from seqcast.config.keys import KEYS_MAX, SECRET_BYTES, Key, Seal, cluster_secret, key_parts, read
from seqcast.core.frames.fields import IDENTITY_BYTES, SIGNATURE_BYTES
from seqcast.core.frames.view import PROOF_BYTES, WRAP_BYTES, WRAP_NONCE_BYTES
from seqcast.core.identities import Allowed
from seqcast.core.rules.keys import FileKey
from seqcast.core.secrets import CIPHERS, CLOSES
from seqcast.errors import ConfigError, without_code
from seqcast.types import MEMBERS_MAX, Secret

EXTRA = "pip install 'seqcast[secure]'"
_CALLS = {
    "xchacha20-poly1305": "crypto_aead_xchacha20poly1305_ietf",
    "aegis-128l": "crypto_aead_aegis128l",
    "aegis-256": "crypto_aead_aegis256",
    "aes-256-gcm": "crypto_aead_aes256gcm",
}
ANYWHERE = "xchacha20-poly1305"
"""The only cipher for processors without AES instructions."""


def seal_of(config: Config, cluster: str) -> Seal | None:
    """The secrets with which the members of a cluster seal their datagrams; None: they have no key.

    Raises:
        ConfigError: the file is not a key file, or may be read by others; PyNaCl is missing or too old; or this
            machine's processor has no AES instructions, and ``cipher`` needs them.
    """
    if not config.key:
        return None
    keys = read(config.key, locked)
    sodium = _sodium()
    aes = has_aes(sodium)
    if not aes and config.cipher not in ("auto", ANYWHERE):
        raise ConfigError(
            f"cipher={config.cipher!r} needs a processor with AES instructions, and this one has none: set "
            f"cipher={ANYWHERE!r}, or auto, on every member"
        )
    return _seal(sodium, _secrets(sodium, keys, cluster), aes)


def fault() -> tuple[str, bool]:
    """Why no member with a key can run here, whatever its file, or ""; and has the processor AES instructions?"""
    try:
        sodium = _sodium()
        return "", _seal(sodium, (), has_aes(sodium)).aes
    except ConfigError as error:
        return without_code(error), False


def _seal(sodium: Any, secrets: tuple[tuple[int, Secret], ...], aes: bool) -> Seal:
    try:
        ciphers = tuple(_pair(sodium, name, aes) for name in CIPHERS)
        hashes = _address(sodium, "crypto_generichash_blake2b_salt_personal")
        return Seal(ciphers, hashes, _address(sodium, "randombytes"), secrets, aes, sodium)
    except AttributeError:
        raise ConfigError(f"key= needs PyNaCl 1.6.2 or later, and an older one is installed: {EXTRA}") from None


def has_aes(sodium: Any) -> bool:
    """Has this processor AES instructions, as libsodium uses them?"""
    return bool(sodium.lib.crypto_aead_aes256gcm_is_available())


def _pair(sodium: Any, cipher: str, aes: bool) -> tuple[int, int]:
    if not aes and cipher != ANYWHERE:
        return 0, 0
    return _address(sodium, f"{_CALLS[cipher]}_encrypt"), _address(sodium, f"{_CALLS[cipher]}_decrypt")


def _address(sodium: Any, call: str) -> int:
    return int(sodium.ffi.cast("uintptr_t", sodium.ffi.addressof(sodium.lib, call)))


PAIRS_KEPT = 2 * MEMBERS_MAX
"""The results of X25519, which is slow, that are kept."""


class _Hashes:
    """``config.keys.Hash`` by libsodium: at most ``n`` results, in one piece of memory for secrets."""

    def __init__(self, sodium: Any, n: int) -> None:
        self._sodium, self._room = sodium, locked(n * SECRET_BYTES)

    def __call__(self, key: Secret, said: bytes, person: bytes) -> memoryview:
        out, self._room = self._room[:SECRET_BYTES], self._room[SECRET_BYTES:]
        _hash(self._sodium, out, key, said, person)
        return out


def _hash(sodium: Any, out: memoryview | bytearray, key: Secret, said: bytes, person: bytes) -> None:
    """As ``hashlib.blake2b``, whose results, and in some releases states, are left in memory."""
    at = sodium.ffi.from_buffer
    sodium.lib.crypto_generichash_blake2b_salt_personal(
        at(out), len(out), said, len(said), at(key), len(key), sodium.ffi.NULL, person.ljust(16, b"\0")
    )


def _secrets(sodium: Any, keys: Sequence[Key], cluster: str) -> tuple[tuple[int, Secret], ...]:
    by = _Hashes(sodium, KEYS_MAX)
    return tuple((key.number, cluster_secret(key, cluster, by)) for key in keys)


def file_keys(secrets: Sequence[tuple[int, Secret]]) -> tuple[FileKey, ...]:
    """The keys of a file, with all that follows from them in memory for secrets."""
    return tuple(FileKey(*each) for each in key_parts(secrets, _Hashes(_sodium(), 2 * KEYS_MAX)))


LOOK_NS = 1_000_000_000
"""Between two looks at the key file."""


class Watched:
    """A file that is looked at again and again."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen: tuple[int, ...] = ()

    def changed(self) -> bool:
        """Has the file changed since the last look, or is this the first?"""
        try:
            at = os.stat(self.path)
            seen: tuple[int, ...] = (at.st_mtime_ns, at.st_ino, at.st_dev, at.st_size, at.st_mode)
        except OSError:
            seen = (0,)
        changed, self._seen = seen != self._seen, seen
        return changed


T_co = TypeVar("T_co", covariant=True)


class Reread(Protocol[T_co]):
    """A file of a member that runs: read again after changes."""

    due_ns: int

    def look(self, now_ns: int) -> T_co | None: ...


class KeyFile:
    """The key file of a member that runs: read again after changes.

    Args:
        path: of the file.
        cluster: the group's name.
        secrets: as read for the join.
    """

    def __init__(self, path: str, cluster: str, secrets: Sequence[tuple[int, Secret]]) -> None:
        self._file, self._cluster, self._secrets = Watched(path), cluster, tuple(secrets)
        self.due_ns = 0  # time of the next look
        self.counters = {"key_reads": 0, "key_errors": 0}
        """For ``Group.counters``."""

    @property
    def ids(self) -> list[int]:
        """The ids of the keys, in the order of the file."""
        return [number for number, _ in self._secrets]

    def look(self, now_ns: int) -> tuple[tuple[int, Secret], ...] | None:
        """The secrets, if they have changed.

        Raises:
            ConfigError: the file has changed, and is not a key file: the previous keys stay.
        """
        self.due_ns = now_ns + LOOK_NS
        if not self._file.changed():
            return None
        try:
            secrets = _secrets(_sodium(), read(self._file.path, locked), self._cluster)
        except ConfigError:
            self.counters["key_errors"] += 1
            raise
        if secrets == self._secrets:
            return None
        self._secrets = secrets
        self.counters["key_reads"] += 1
        return secrets


class ListFile:
    """The list of those who may be members, of a member that runs: read again after changes, and lines run out.

    Args:
        path: of the file.
    """

    def __init__(self, path: str) -> None:
        self._file = Watched(path)
        self._file.changed()
        self._lines = read_list(path)
        self._told = self._now()
        self.due_ns = 0  # when to look at the file next
        self.counters = {"list_reads": 0, "list_errors": 0}
        """For ``Group.counters``."""

    @property
    def allowed(self) -> tuple[Allowed, ...]:
        """Those who may be members, as ``look`` said last."""
        return self._told

    def look(self, now_ns: int) -> tuple[Allowed, ...] | None:
        """Those who may be members, if they have changed.

        Raises:
            ConfigError: the file has changed, and is not a list: the previous lines stay.
        """
        self.due_ns = now_ns + LOOK_NS
        if self._file.changed():
            try:
                self._lines = read_list(self._file.path)
            except ConfigError:
                self.counters["list_errors"] += 1
                raise
        before, self._told = self._told, self._now()
        if self._told == before:
            return None
        self.counters["list_reads"] += 1
        return self._told

    def _now(self) -> tuple[Allowed, ...]:
        now_s = time.time()
        return tuple(Allowed(each.public, each.names, each.operator) for each in self._lines if each.until_s > now_s)


def identity_of(config: Config, name: str) -> tuple[Ed25519, ListFile] | None:
    """Who this process is, and the list of members; None: members have no identities.

    Args:
        name: of the member to be; "": joins nothing.

    Raises:
        ConfigError: a file is malformed, or the list does not have this identity under that name.
    """
    if not config.identity:
        return None
    signer, listed = Ed25519(read_identity(config.identity, locked)), ListFile(config.authorized)
    own = [each for each in listed.allowed if each.public == signer.public]
    if name and not any(fnmatchcase(name, each.names) for each in own):
        what = "has no line for this identity" if not own else f"does not give this identity the name {name!r}"
        raise ConfigError(
            f"authorized={config.authorized!r} {what}: add the line `{described(signer.public)} {name}` to the list, "
            "on every member"
        )
    return signer, listed


class Ed25519:
    """``core.identities.Signer``.

    Args:
        seed: of an identity file.
    """

    def __init__(self, seed: Secret) -> None:
        self._sodium, self._secret = _sodium(), locked(SECRET_BYTES + IDENTITY_BYTES)
        self._calls: Any = importlib.import_module("nacl.bindings")
        at, public = self._sodium.ffi.from_buffer, bytearray(IDENTITY_BYTES)
        self._sodium.lib.crypto_sign_seed_keypair(at(public), at(self._secret), at(seed))
        self.public = bytes(public)
        failure: type[Exception] = importlib.import_module("nacl.exceptions").CryptoError
        self._failures = failure, ValueError, TypeError, RuntimeError

    def sign(self, said: bytes) -> bytes:
        at, signed = self._sodium.ffi.from_buffer, bytearray(SIGNATURE_BYTES + len(said))
        self._sodium.lib.crypto_sign(at(signed), self._sodium.ffi.NULL, said, len(said), at(self._secret))
        return bytes(signed[:SIGNATURE_BYTES])

    def proves(self, public: bytes, said: bytes, signature: bytes) -> bool:
        try:
            self._calls.crypto_sign_open(signature + said, public)
        except self._failures:
            return False
        return len(signature) == SIGNATURE_BYTES


class KeyPair:
    """``core.secrets.Exchange``: X25519, BLAKE2b, XChaCha20-Poly1305. The secret half is never written down, and no
    object of Python's has a copy of anything that must stay secret."""

    def __init__(self) -> None:
        self._sodium, self._memory = _sodium(), locked((2 + PAIRS_KEPT) * SECRET_BYTES)
        self._private, self._wrapping = self._place(0), self._place(1)
        public = bytearray(SECRET_BYTES)
        at = self._sodium.ffi.from_buffer
        self._sodium.lib.crypto_box_keypair(at(public), at(self._private))
        self.public = bytes(public)
        self._shared: dict[bytes, memoryview] = {}  # by public key of the other one

    def draw(self) -> memoryview:
        secret = locked(SECRET_BYTES)
        self._draw(secret)
        return secret

    def wrap(self, to: bytes, about: bytes, secret: Secret) -> bytes:
        self._key(to, about)
        at, null, wrapped = self._sodium.ffi.from_buffer, self._sodium.ffi.NULL, memoryview(bytearray(WRAP_BYTES))
        nonce, sealed = wrapped[:WRAP_NONCE_BYTES], wrapped[WRAP_NONCE_BYTES:]
        self._draw(nonce)
        self._sodium.lib.crypto_aead_xchacha20poly1305_ietf_encrypt(
            at(sealed), null, at(secret), len(secret), about, len(about), null, at(nonce), at(self._wrapping)
        )
        return bytes(wrapped)

    def unwrap(self, of: bytes, about: bytes, wrapped: bytes) -> memoryview | None:
        if len(wrapped) != WRAP_BYTES:
            return None
        self._key(of, about)
        at, null, secret = self._sodium.ffi.from_buffer, self._sodium.ffi.NULL, locked(SECRET_BYTES)
        nonce, sealed = wrapped[:WRAP_NONCE_BYTES], wrapped[WRAP_NONCE_BYTES:]
        failed = self._sodium.lib.crypto_aead_xchacha20poly1305_ietf_decrypt(
            at(secret), null, null, sealed, len(sealed), about, len(about), nonce, at(self._wrapping)
        )
        return None if failed else secret

    def prove(self, secret: Secret, said: bytes) -> bytes:
        proof = bytearray(PROOF_BYTES)
        _hash(self._sodium, proof, secret, said, CLOSES)
        return bytes(proof)

    def _place(self, number: int) -> memoryview:
        return self._memory[number * SECRET_BYTES : (number + 1) * SECRET_BYTES]

    def _draw(self, to: memoryview) -> None:
        self._sodium.lib.randombytes(self._sodium.ffi.from_buffer(to), len(to))

    def _key(self, other: bytes, about: bytes) -> None:
        """Puts the key of one view into ``_wrapping``. With an invalid public key, the result is one that nobody
        has."""
        if (shared := self._shared.get(other)) is None:
            if len(self._shared) >= PAIRS_KEPT:
                self._shared.clear()
            shared = self._shared[other] = self._place(2 + len(self._shared))
            at, multiply = self._sodium.ffi.from_buffer, self._sodium.lib.crypto_scalarmult
            if len(other) != len(self.public) or multiply(at(shared), at(self._private), other):
                self._draw(shared)
        both = b"".join(sorted((self.public, other)))
        _hash(self._sodium, self._wrapping, shared, both + about, b"seqcast wrap")


def _sodium() -> Any:
    try:
        sodium: Any = importlib.import_module("nacl._sodium")
    except ImportError:
        raise ConfigError(f"key= needs PyNaCl, which is not installed: {EXTRA}") from None
    if sodium.lib.sodium_init() < 0:
        raise ConfigError("key=: libsodium cannot be used here: it found no source of random numbers")
    return sodium
