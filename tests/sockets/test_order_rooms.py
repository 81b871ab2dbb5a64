"""The orders grant, total-1999 and causal on real sockets, where threads and the kernel decide the times of sending."""

import threading

import pytest
from members import group_of, payloads


@pytest.mark.parametrize("order", ["grant", "total-1999"])
def test_members_that_all_send_deliver_one_order(order):
    """Single messages, arrays, and messages that span packets; a member that pauses holds up nobody."""
    with group_of(3, order=order) as groups:

        def send(group):
            name = group.member.name.encode()
            for i in range(100):
                group.send(b"%s %d" % (name, i))
            group.send_many([b"%s %d" % (name, i) for i in range(100, 1000)])
            group.send(b"%s large " % name + bytes(200_000))

        threads = [threading.Thread(target=send, args=(group,)) for group in groups]
        for thread in threads:
            thread.start()
        got = [payloads(group, 3003) for group in groups]
        for thread in threads:
            thread.join()
        assert len(set(got[0])) == 3003 and got[1:] == got[:1] * 2
        for group in groups:  # one after the other, while the rest are idle
            group.send(group.member.name.encode())
            assert [payloads(other, 1) for other in groups] == [[group.member.name.encode()]] * 3


@pytest.mark.parametrize("order", ["grant", "total-1999"])
def test_messages_of_a_member_that_left_are_delivered(order):
    with group_of(3, order=order) as (a, b, c):
        c.send_many([b"%d" % i for i in range(5000)])
        assert c.leave()
        for group in (a, b):
            assert payloads(group, 5000) == [b"%d" % i for i in range(5000)]


def test_requests_outlive_the_sequencer_that_leaves_with_total_1999():
    with group_of(3, order="total-1999") as (a, b, c):
        sent = {group: [b"%s %d" % (group.member.name.encode(), i) for i in range(3000)] for group in (b, c)}

        def send(group):
            for payload in sent[group]:
                group.send(payload)

        threads = [threading.Thread(target=send, args=(group,)) for group in sent]
        for thread in threads:
            thread.start()
        payloads(a, 100)
        assert a.leave()
        got = [payloads(group, 6000) for group in (b, c)]
        for thread in threads:
            thread.join()
        assert got[0] == got[1]
        for payload_list in sent.values():
            assert [payload for payload in got[0] if payload in set(payload_list)] == payload_list


def test_answers_come_after_their_questions_in_causal_order():
    with group_of(3, order="causal") as (a, b, c):

        def answer():
            answered = 0
            while answered < 300:
                for message in payloads(b, 1):
                    if not message.startswith(b"answer"):
                        b.send(b"answer to " + message)
                        answered += 1

        thread = threading.Thread(target=answer)
        thread.start()
        for i in range(300):
            a.send(b"%d" % i)
        thread.join()
        for group in (a, c):
            got = payloads(group, 600)
            for i in range(300):
                assert got.index(b"%d" % i) < got.index(b"answer to %d" % i)
