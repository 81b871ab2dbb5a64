"""Whose answers to questions count: core/challenges.py alone."""

from types import SimpleNamespace

from seqcast.core.challenges import SENDERS_MAX, Challenges
from seqcast.core.rules.numbers import numbers

S = 10**9


def test_recorded_frames_from_many_addresses_push_out_no_answer_of_another_sender():
    settings = SimpleNamespace(fresh_ns=S, exchange=object(), join_ns_min=S // 10, nonce=7)
    sent = []
    context = SimpleNamespace(now=S, settings=settings, send=lambda *frame: sent.append(frame))
    challenges = Challenges(context)
    frame = SimpleNamespace(answers=numbers("asked", 7, 1)[0], nonce=1)
    challenges.note(frame, 1, b"here")
    for k in range(2 * SENDERS_MAX):
        challenges.note(frame, 2, b"%d" % k)
        challenges.ask(SimpleNamespace(answers=0, nonce=1), 3, b"%d" % k)
    assert not challenges.lacks_answer(frame, 1, b"here") and challenges.lacks_answer(frame, 1, b"elsewhere")
    assert not challenges.lacks_answer(frame, 2, b"0"), "the first of the many: the others are copies"
    context.now += challenges.lasts_ns - 1
    challenges.note(frame, 2, b"new")
    assert challenges.lacks_answer(frame, 2, b"new")
    context.now += 1
    challenges.note(frame, 2, b"new")
    assert not challenges.lacks_answer(frame, 2, b"new"), "its address is another one now"
    before = len(sent)
    challenges.ask(SimpleNamespace(answers=0, nonce=1), 4, b"there")
    challenges.ask(SimpleNamespace(answers=0, nonce=1), 4, b"there")
    assert len(sent) == before + 1, "one is asked once in a while"
