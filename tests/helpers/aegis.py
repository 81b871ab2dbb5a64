"""AEGIS-128L (RFC 10032), written from its description: a second opinion on libsodium's results."""

from __future__ import annotations


def _sbox() -> list[int]:
    box, p, q = [0] * 256, 1, 1
    while True:
        p ^= (p << 1) & 0xFF ^ (0x1B if p & 0x80 else 0)
        q ^= q << 1
        q ^= q << 2
        q ^= q << 4
        q &= 0xFF
        q ^= 0x09 if q & 0x80 else 0
        turned = q ^ (q << 1 | q >> 7) ^ (q << 2 | q >> 6) ^ (q << 3 | q >> 5) ^ (q << 4 | q >> 4)
        box[p] = (turned ^ 0x63) & 0xFF
        if p == 1:
            box[0] = 0x63
            return box


SBOX = _sbox()
C0 = bytes.fromhex("000101020305080d1522375990e97962")
C1 = bytes.fromhex("db3d18556dc22ff12011314273b528dd")


def xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def _and(a: bytes, b: bytes) -> bytes:
    return bytes(x & y for x, y in zip(a, b, strict=True))


def _twice(x: int) -> int:
    return (x << 1) & 0xFF ^ (0x1B if x & 0x80 else 0)


def aes_round(block: bytes, key: bytes) -> bytes:
    """SubBytes, ShiftRows, MixColumns, AddRoundKey."""
    moved = [SBOX[block[(i + 4 * (i % 4)) % 16]] for i in range(16)]
    out = bytearray()
    for c in range(0, 16, 4):
        a = moved[c : c + 4]
        every = a[0] ^ a[1] ^ a[2] ^ a[3]
        out += bytes(a[r] ^ every ^ _twice(a[r] ^ a[(r + 1) % 4]) for r in range(4))
    return xor(out, key)


class Aegis128L:
    def __init__(self, key: bytes, nonce: bytes) -> None:
        mixed = xor(key, nonce)
        self.s = [mixed, C1, C0, C1, mixed, xor(key, C0), xor(key, C1), xor(key, C0)]
        for _ in range(10):
            self.update(nonce, key)

    def update(self, m0: bytes, m1: bytes) -> None:
        s = self.s
        self.s = [aes_round(s[i - 1], s[i]) for i in range(8)]
        self.s[0], self.s[4] = xor(self.s[0], m0), xor(self.s[4], m1)

    def stream(self) -> bytes:
        s = self.s
        return xor(xor(s[6], s[1]), _and(s[2], s[3])) + xor(xor(s[2], s[5]), _and(s[6], s[7]))

    def absorb(self, data: bytes) -> None:
        for at in range(0, len(data), 32):
            block = data[at : at + 32].ljust(32, b"\0")
            self.update(block[:16], block[16:])

    def tag(self, header: int, length: int) -> bytes:
        lengths = (8 * header).to_bytes(8, "little") + (8 * length).to_bytes(8, "little")
        mixed = xor(self.s[2], lengths)
        for _ in range(7):
            self.update(mixed, mixed)
        s = self.s
        return xor(xor(s[0], s[1]), xor(s[2], s[3])) + xor(xor(s[4], s[5]), xor(s[6], s[7]))


def encrypt(message: bytes, header: bytes, nonce: bytes, key: bytes) -> bytes:
    """The ciphertext, and the tag of 32 bytes."""
    state, out = Aegis128L(key, nonce), b""
    state.absorb(header)
    for at in range(0, len(message), 32):
        part = message[at : at + 32]
        out += xor(part, state.stream()[: len(part)])
        state.absorb(part)
    return out + state.tag(len(header), len(message))
