"""The ciphers of groups with a key, written from their descriptions: a second opinion on libsodium's results."""

from __future__ import annotations

from collections.abc import Callable

import aegis
from aegis import SBOX, aes_round

_MASK = 0xFFFFFFFF


# ---- XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha, RFC 8439)


def _words(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]


def _bytes(words: list[int]) -> bytes:
    return b"".join((word & _MASK).to_bytes(4, "little") for word in words)


def _quarter(x: list[int], a: int, b: int, c: int, d: int) -> None:
    for one, two, three, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x[one] = (x[one] + x[two]) & _MASK
        mixed = x[three] ^ x[one]
        x[three] = (mixed << by | mixed >> (32 - by)) & _MASK


def _rounds(state: list[int]) -> list[int]:
    x = list(state)
    for _ in range(10):
        for i in range(4):
            _quarter(x, i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            _quarter(x, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return x


_CONSTANT = _words(b"expand 32-byte k")


def _chacha20(key: bytes, count: int, nonce: bytes) -> bytes:
    state = _CONSTANT + _words(key) + [count] + _words(nonce)
    return _bytes([a + b for a, b in zip(_rounds(state), state, strict=True)])


def _poly1305(key: bytes, data: bytes) -> bytes:
    r, total = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF, 0
    for at in range(0, len(data), 16):
        block = data[at : at + 16] + b"\1"
        total = (total + int.from_bytes(block, "little")) * r % ((1 << 130) - 5)
    return ((total + int.from_bytes(key[16:], "little")) % (1 << 128)).to_bytes(16, "little")


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 16)


def _xor(data: bytes, stream: Callable[[int], bytes], block: int) -> bytes:
    pad = b"".join(stream(at) for at in range(-(-len(data) // block)))
    return bytes(a ^ b for a, b in zip(data, pad, strict=False))


def xchacha20_poly1305(message: bytes, header: bytes, nonce: bytes, key: bytes) -> bytes:
    mixed = _rounds(_CONSTANT + _words(key) + _words(nonce[:16]))
    key, nonce = _bytes(mixed[:4] + mixed[12:]), bytes(4) + nonce[16:]
    text = _xor(message, lambda at: _chacha20(key, 1 + at, nonce), 64)
    lengths = len(header).to_bytes(8, "little") + len(text).to_bytes(8, "little")
    return text + _poly1305(_chacha20(key, 0, nonce)[:32], _padded(header) + _padded(text) + lengths)


# ---- AES-256-GCM (FIPS 197, SP 800-38D)


def _schedule(key: bytes) -> list[bytes]:
    words, constant = [key[at : at + 4] for at in range(0, 32, 4)], 1
    while len(words) < 60:
        last = words[-1]
        if len(words) % 8 == 0:
            last = bytes(SBOX[each] for each in last[1:] + last[:1])
            last, constant = bytes([last[0] ^ constant]) + last[1:], constant << 1
        elif len(words) % 8 == 4:
            last = bytes(SBOX[each] for each in last)
        words.append(bytes(a ^ b for a, b in zip(words[-8], last, strict=True)))
    return [b"".join(words[at : at + 4]) for at in range(0, 60, 4)]


def _aes(keys: list[bytes], block: bytes) -> bytes:
    block = bytes(a ^ b for a, b in zip(block, keys[0], strict=True))
    for key in keys[1:-1]:
        block = aes_round(block, key)
    moved = (SBOX[block[(i + 4 * (i % 4)) % 16]] for i in range(16))
    return bytes(a ^ b for a, b in zip(moved, keys[-1], strict=True))


def _times(x: int, y: int) -> int:
    result = 0
    for bit in range(127, -1, -1):
        if x >> bit & 1:
            result ^= y
        y = y >> 1 ^ (0xE1 << 120 if y & 1 else 0)
    return result


def aes_256_gcm(message: bytes, header: bytes, nonce: bytes, key: bytes) -> bytes:
    keys = _schedule(key)
    text = _xor(message, lambda at: _aes(keys, nonce + (2 + at).to_bytes(4, "big")), 16)
    by, total = int.from_bytes(_aes(keys, bytes(16)), "big"), 0
    lengths = (8 * len(header)).to_bytes(8, "big") + (8 * len(text)).to_bytes(8, "big")
    hashed = _padded(header) + _padded(text) + lengths
    for at in range(0, len(hashed), 16):
        total = _times(total ^ int.from_bytes(hashed[at : at + 16], "big"), by)
    first = _aes(keys, nonce + (1).to_bytes(4, "big"))
    return text + bytes(a ^ b for a, b in zip(total.to_bytes(16, "big"), first, strict=True))


# ---- AEGIS-256 (RFC 10032)


class _Aegis256:
    def __init__(self, key: bytes, nonce: bytes) -> None:
        parts = key[:16], key[16:], aegis.xor(key[:16], nonce[:16]), aegis.xor(key[16:], nonce[16:])
        c0, c1 = aegis.C0, aegis.C1
        self.s = [parts[2], parts[3], c1, c0, aegis.xor(key[:16], c0), aegis.xor(key[16:], c1)]
        for _ in range(4):
            for part in parts:
                self.update(part)

    def update(self, block: bytes) -> None:
        self.s = [aes_round(self.s[i - 1], self.s[i]) for i in range(6)]
        self.s[0] = aegis.xor(self.s[0], block)

    def stream(self) -> bytes:
        s = self.s
        return aegis.xor(aegis.xor(s[1], s[4]), aegis.xor(s[5], bytes(a & b for a, b in zip(s[2], s[3], strict=True))))


def aegis_256(message: bytes, header: bytes, nonce: bytes, key: bytes) -> bytes:
    state, text, padded = _Aegis256(key, nonce), b"", _padded(header)
    for at in range(0, len(padded), 16):
        state.update(padded[at : at + 16])
    for at in range(0, len(message), 16):
        part = message[at : at + 16]
        text += bytes(a ^ b for a, b in zip(part, state.stream(), strict=False))
        state.update(_padded(part))
    lengths = (8 * len(header)).to_bytes(8, "little") + (8 * len(message)).to_bytes(8, "little")
    last = aegis.xor(state.s[3], lengths)
    for _ in range(7):
        state.update(last)
    s = state.s
    one, other = aegis.xor(s[0], aegis.xor(s[1], s[2])), aegis.xor(s[3], aegis.xor(s[4], s[5]))
    return text + one + other


ENCRYPT = (xchacha20_poly1305, aegis.encrypt, aegis_256, aes_256_gcm)
"""By number: of ``core.secrets.CIPHERS``."""
