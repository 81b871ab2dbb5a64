"""Safe delivery between real members."""

from __future__ import annotations

from members import LIMIT_S, group_of

import seqcast


def test_members_deliver_safely_each_its_own_messages_too() -> None:
    with group_of(3, safe=True) as groups:
        for number in range(20):
            for group in groups:
                group.send(f"{group.member.name} {number}".encode())
        got = []
        for group in groups:
            got.append([])
            while len(got[-1]) < 60:
                message = group.recv(timeout=LIMIT_S)
                assert isinstance(message, seqcast.Message) and not message.transitional
                got[-1].append(message.payload)
    assert got[0] == got[1] == got[2] and len(set(got[0])) == 60
