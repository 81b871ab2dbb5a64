"""Attacks on a group with a key, by somebody in none of its views."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from members import LIMIT_S, payloads
from nacl import bindings

from hostile import forge
from hostile.attacks import STRANGERS, Attacker
from seqcast.config import keys


class SealingSocket:
    """Seals the datagrams of an attacker that has the key file and nothing else."""

    def __init__(self, socket, cluster, path):
        (key,) = keys.read(path)
        self.socket, self.mark, self.secret, self.sent = socket, key.number, keys.cluster_secret(key, cluster), 0

    def __getattr__(self, name):
        return getattr(self.socket, name)

    def sendto(self, datagram, to):
        if len(datagram) >= 40:
            datagram = self.sealed(datagram)
        self.socket.sendto(datagram, to)

    def sealed(self, datagram):
        self.sent += 1
        packet = datagram[2] in (forge.DATA, forge.UNICAST, forge.FORWARD, forge.STATE, forge.RECORD)
        number = (self.sent | packet << 63).to_bytes(8, "little")
        head = datagram[:4] + b"rand" + datagram[8:12] + (0x4000 | self.mark << 9).to_bytes(2, "little")
        head += datagram[14:40]
        key = hashlib.blake2b(head[16:24], digest_size=32, key=self.secret, person=b"seqcast sealer").digest()
        encrypt = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt
        return head + encrypt(datagram[40:] + bytes(16), head + bytes(8), number + b"rand" + bytes(12), key) + number


def unharmed(groups: list[Any], attacker: Attacker, names: Iterable[str]) -> None:
    """After these attacks the view is as before, and each message comes to all."""
    before, attacker.outside = [group.view for group in groups], True
    for name in names:
        STRANGERS[name](attacker)
    sent = [b"from %d" % number for number in range(len(groups))]
    for group, payload in zip(groups, sent, strict=True):
        group.send(payload, timeout=LIMIT_S)
    for group in groups:
        got: list[bytes] = []  # some attacks are made while members send
        while not set(sent) <= set(got):
            got += payloads(group, 1)
        assert not any(b"forged" in payload for payload in got)
    assert [group.view for group in groups] == before
