"""The cipher of groups with a key: AEGIS-128L (RFC 10032) of libsodium, whose functions PyNaCl gives the addresses of.

PyNaCl is loaded here, when a member with a key joins, and nowhere else. From then on no Python is involved: the engine
calls the functions itself.
"""

from __future__ import annotations

import importlib
from typing import Any

from seqcast.config import Config
from seqcast.config.keys import Seal, cluster_secret, read
from seqcast.errors import ConfigError

EXTRA = "pip install 'seqcast[secure]'"
_CALLS = {
    "seal": "crypto_aead_aegis128l_encrypt",
    "open": "crypto_aead_aegis128l_decrypt",
    "hash": "crypto_generichash_blake2b_salt_personal",
    "random": "randombytes",
}


def seal_of(config: Config, cluster: str) -> Seal | None:
    """With what the members of a cluster seal their datagrams; None: they have no key.

    Raises:
        ConfigError: the key file is none, or may be read by others; PyNaCl is missing or too old, or this machine's
            processor has no AES instructions.
    """
    if not config.key:
        return None
    secrets = tuple((key.number, cluster_secret(key, cluster)) for key in read(config.key))
    sodium = _sodium()
    return Seal(secrets=secrets, keeps=sodium, **_addresses(sodium))


def _sodium() -> Any:
    try:
        sodium: Any = importlib.import_module("nacl._sodium")
    except ImportError:
        raise ConfigError(f"key= needs PyNaCl, which is not installed: {EXTRA}") from None
    if sodium.lib.sodium_init() < 0:
        raise ConfigError("key=: libsodium cannot be used here: it found no source of random numbers")
    # Elsewhere AEGIS is slow, and may tell by its timing what it encrypts.
    if not sodium.lib.crypto_aead_aes256gcm_is_available():
        raise ConfigError("key= needs a processor with AES instructions, and this one has none")
    return sodium


def _addresses(sodium: Any) -> dict[str, int]:
    ffi, lib = sodium.ffi, sodium.lib
    try:
        return {name: int(ffi.cast("uintptr_t", ffi.addressof(lib, call))) for name, call in _CALLS.items()}
    except AttributeError:
        raise ConfigError(f"key= needs PyNaCl 1.6.2 or later, and an older one is installed: {EXTRA}") from None
