"""The digest of a member: how far that member has each stream, beside its application's deliveries."""

import pytest
from members import LIMIT_S, group_of, payloads, wait_until

import seqcast


def last_seqnos(group, n):
    """Of each sender, by the next ``n`` messages."""
    last = {}
    for _ in range(n):
        message = group.recv(LIMIT_S)
        last[message.sender] = message.seqno
    return last


@pytest.mark.parametrize("order", ["fifo", "causal", "records", "grant"])
def test_a_digest_ends_where_the_deliveries_do(order):
    with group_of(3, order=order) as groups:
        for number, group in enumerate(groups):
            group.send_many([bytes(2000)] * (100 * number + 10))
        lasts = {group: last_seqnos(group, 330) for group in groups}
        for group, last in lasts.items():
            digest = group.digest()
            assert list(digest) == list(group.view.members) and set(last) == set(digest)
            for sender, marks in digest.items():
                assert marks.received >= marks.delivered >= last[sender], "records and grants are packets, too"
                assert order in {"records", "grant"} or marks.delivered == last[sender]
        wait_until(lambda: all(marks.stable == marks.delivered for marks in groups[0].digest().values()))


def test_all_travels_in_the_stream_of_the_sequencer_if_any():
    with group_of(3, order="sequencer") as (a, b, c):
        c.send_many([bytes(1000)] * 50)
        assert len(payloads(b, 50)) == 50
        digest = b.digest()
        assert digest[a.member].delivered > 0
        assert digest[b.member].delivered == digest[c.member].delivered == 0


def test_messages_that_the_application_has_not_taken_count_as_delivered_and_none_do_outside_a_group():
    with group_of(2, order="fifo") as (a, b):
        a.send(b"x")
        wait_until(lambda: b.digest()[a.member][:3] == a.digest()[a.member][:3] != (0, 0, 0))
        assert b.recv(LIMIT_S).seqno == b.digest()[a.member].delivered
        b.leave()
        with pytest.raises(seqcast.NotMember):
            b.digest()
