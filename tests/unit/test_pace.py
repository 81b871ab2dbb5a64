"""When a receiving thread naps, polls and yields: native/io/pace.c alone, with times and loads by hand."""

import ctypes
from ctypes import POINTER, byref, c_int, c_int64, c_uint, c_uint64

import pytest
from kernels import compiled, needs_compiler

US, MS, S = 1000, 10**6, 10**9
NAP = 100 * US
"""The setting in these tests."""
pytestmark = needs_compiler


class Pace(ctypes.Structure):
    _fields_ = (
        ("nap_ns_max", c_int64), ("since", c_int64), ("bytes", c_uint64), ("packets", c_uint64), ("rounds", c_uint64),
        ("talks", c_int),
        ("ordered_at", c_int64), ("loaded", c_int), ("nap_ns", c_int64), ("nap_bytes", c_uint64), ("late_ns", c_int64),
        ("polls", c_int), ("unpolled", c_uint), ("yields_at", c_int64), ("yield_pause", c_int64),
        ("alone", c_int),
    )  # fmt: skip


class Load(ctypes.Structure):
    _fields_ = (("packed_at", c_int64), ("waiting", c_int), ("gather", c_uint64))


@pytest.fixture(scope="session")
def c(tmp_path_factory):
    functions = compiled(tmp_path_factory.mktemp("pace"), '#include "io/pace.c"')
    functions.sc_pace_count.argtypes = [POINTER(Pace), c_uint64, c_int64]
    functions.sc_pace_measure.argtypes = [POINTER(Pace), POINTER(Load), c_int64]
    functions.sc_pace_late.argtypes = [POINTER(Pace), c_int64]
    functions.sc_pace_nap.argtypes, functions.sc_pace_nap.restype = [POINTER(Pace), c_int64, c_int64, c_int64], c_int64
    functions.sc_pace_polls.argtypes = [POINTER(Pace), c_int64, c_int64]
    functions.sc_pace_polled.argtypes = [POINTER(Pace), c_int]
    functions.sc_pace_yields.argtypes = [POINTER(Pace), c_int64]
    functions.sc_pace_yielded.argtypes = [POINTER(Pace), c_int64, c_int64]
    functions.sc_pace_found.argtypes = [POINTER(Pace)]
    return functions


def period(c, pace, *, bytes_=0, packets=0, rounds=1, packed_at=-1, waiting=0, gather=1 << 20):
    """A millisecond in which so much comes, in so many rounds."""
    end = pace.since + MS
    for k in range(rounds):
        at = end if k == rounds - 1 else pace.since
        over = c.sc_pace_count(byref(pace), bytes_ // rounds, at)
        assert over == (k == rounds - 1)
        pace.packets += packets // rounds if k < rounds - 1 else packets - packets // rounds * (rounds - 1)
    c.sc_pace_measure(byref(pace), byref(Load(packed_at, waiting, gather)), end)
    return pace


def test_many_bytes_are_a_load_and_let_the_thread_nap(c):
    pace = period(c, Pace(nap_ns_max=NAP), bytes_=300 << 10, packets=5)
    assert pace.loaded and pace.nap_ns == NAP
    assert pace.nap_bytes == (300 << 10) * NAP // MS


def test_a_nap_gathers_no_more_than_triggers_an_ack(c):
    pace = period(c, Pace(nap_ns_max=NAP), bytes_=4 << 20, packets=70, gather=100 << 10)
    assert 0 < pace.nap_ns < NAP
    assert pace.nap_bytes <= 100 << 10


def test_many_packets_are_a_load_but_answers_to_the_application_are_not(c):
    assert period(c, Pace(nap_ns_max=NAP), bytes_=4000, packets=40).loaded
    talk = period(c, Pace(nap_ns_max=NAP), bytes_=4000, packets=40, packed_at=MS)
    assert not talk.loaded and talk.nap_ns == 0


def test_few_packets_a_round_that_wait_for_their_order_are_a_conversation(c):
    pace = Pace(nap_ns_max=NAP, ordered_at=MS // 2)
    assert not period(c, pace, bytes_=4000, packets=40, rounds=10).loaded
    pace = Pace(nap_ns_max=NAP, ordered_at=MS // 2)
    assert period(c, pace, bytes_=4000, packets=41, rounds=10).loaded


def test_a_period_without_datagrams_ends_the_naps(c):
    pace = period(c, Pace(nap_ns_max=NAP), bytes_=300 << 10, packets=5)
    assert period(c, pace).nap_ns == 0 and not pace.loaded


def test_without_the_setting_nobody_naps(c):
    assert period(c, Pace(nap_ns_max=0), bytes_=4 << 20, packets=400).nap_ns == 0


def test_a_nap_lasts_for_the_rest_of_the_time_since_datagrams_came(c):
    pace = Pace(nap_ns_max=NAP, nap_ns=NAP)
    assert c.sc_pace_nap(byref(pace), S, 2 * S, S + 30 * US) == S + NAP
    assert c.sc_pace_nap(byref(pace), S, S + 50 * US, S + 30 * US) == S + 50 * US
    assert c.sc_pace_nap(byref(pace), S, 2 * S, S + NAP) == 0


def test_a_thread_that_gets_its_core_late_naps_longer_unless_somebody_waits_for_it(c):
    pace = Pace(nap_ns_max=NAP)
    for _ in range(100):
        c.sc_pace_late(byref(pace), S)
    assert 7 * NAP < pace.late_ns <= 8 * NAP
    assert period(c, pace, bytes_=600 << 10, packets=9).nap_ns == 8 * NAP
    assert period(c, pace, bytes_=600 << 10, packets=9, waiting=1).nap_ns == NAP
    for _ in range(100):
        c.sc_pace_late(byref(pace), 0)
    assert pace.late_ns < NAP / 4


def polls(c, pace, now, times=1, found=0):
    """Of this many waits of a second, how many begin with a poll."""
    begun = 0
    for _ in range(times):
        if c.sc_pace_polls(byref(pace), now + S, now):
            begun += 1
            c.sc_pace_polled(byref(pace), found)
    return begun


def test_a_thread_that_waits_for_an_answer_polls(c):
    pace = Pace(nap_ns_max=NAP)
    assert polls(c, pace, S, times=32, found=1) == 0, "it neither orders nor talks"
    pace.talks = 1
    assert polls(c, pace, S, times=16) == 1, "in vain: one of 16 is tried"
    assert polls(c, pace, S, times=16, found=1) >= 1
    assert polls(c, pace, S, times=10, found=1) == 10
    assert sum(polls(c, pace, S, found=k % 3 == 0) for k in range(300)) == 300, "one that finds pays for two in vain"
    pace.nap_ns = NAP
    assert polls(c, pace, S, times=32, found=1) == 0, "under load it naps"


def test_a_sequencer_in_a_conversation_polls_as_long_as_polls_pay(c):
    pace = Pace(nap_ns_max=NAP, ordered_at=S)
    assert polls(c, pace, S, times=64) == 1, "in vain: one of 64 is tried"
    assert polls(c, pace, S, times=64, found=1) == 1
    assert polls(c, pace, S, times=10, found=1) == 10
    assert polls(c, pace, S, times=8 + 256) == 8 + 256 // 64, "many good ones pay for eight in vain"


def test_a_sequencer_does_not_poll_if_two_polls_of_three_are_in_vain(c):
    """As in streams of messages that come at intervals a little longer than a poll."""
    pace = Pace(nap_ns_max=NAP, ordered_at=S, polls=8)
    assert sum(polls(c, pace, S, found=k % 3 == 0) for k in range(640)) < 8 * 3 + 640 // 64 * 2


def test_a_member_in_a_conversation_does_not_poll_if_three_polls_of_four_are_in_vain(c):
    pace = Pace(nap_ns_max=NAP, talks=1, polls=8)
    assert sum(polls(c, pace, S, found=k % 4 == 0) for k in range(640)) < 8 * 4 + 640 // 16 * 3


def test_a_member_that_orders_nothing_does_not_poll(c):
    pace = Pace(nap_ns_max=NAP, ordered_at=S, polls=8)
    assert polls(c, pace, S + MS) == 0
    assert polls(c, pace, S + MS - 1) == 1


def test_no_poll_under_load_nor_for_a_short_wait(c):
    pace = Pace(nap_ns_max=NAP, ordered_at=S, polls=8)
    assert not c.sc_pace_polls(byref(pace), S + 24 * US, S)
    pace.nap_ns = NAP
    assert polls(c, pace, S) == 0


def test_a_thread_whose_core_is_kept_leaves_it_less_and_less_and_does_not_poll_meanwhile(c):
    pace = Pace(nap_ns_max=NAP, ordered_at=S, polls=8)
    pauses, now = [], S
    for _ in range(8):
        assert c.sc_pace_yields(byref(pace), now)
        back = now + 4 * MS
        c.sc_pace_yielded(byref(pace), now, back)
        pauses.append(pace.yield_pause)
        pace.ordered_at = back
        assert not c.sc_pace_yields(byref(pace), back + pauses[-1] - 1) and polls(c, pace, back) == 0
        now = back + pauses[-1]
    assert pauses[:3] == [MS, 5 * MS, 21 * MS] and pauses[-1] == 500 * MS


def test_a_member_in_a_conversation_does_not_poll_while_its_core_is_kept(c):
    pace = Pace(nap_ns_max=NAP, talks=1, polls=8)
    c.sc_pace_yielded(byref(pace), S, S + 4 * MS)
    assert polls(c, pace, S + 4 * MS) == 0 and polls(c, pace, S + 4 * MS + pace.yield_pause) == 1


def test_a_yield_that_comes_back_soon_changes_nothing_and_finds_shorten_the_pause(c):
    pace = Pace(nap_ns_max=NAP, yield_pause=100 * MS)
    c.sc_pace_yielded(byref(pace), S, S + 199 * US)
    assert pace.yields_at == 0 and pace.yield_pause == 100 * MS
    for _ in range(256):
        c.sc_pace_found(byref(pace))
    assert 30 * MS < pace.yield_pause < 40 * MS


def test_a_thread_under_load_keeps_its_core(c):
    assert not c.sc_pace_yields(byref(Pace(loaded=1)), S)


def yields(c, pace, took, n):
    """Whether the thread yields in each of the next ``n`` pauses between looks, with yields that take so long."""
    seen = []
    for _ in range(n):
        seen.append(c.sc_pace_yields(byref(pace), S))
        if seen[-1]:
            c.sc_pace_yielded(byref(pace), S, S + took)
    return seen


def test_a_thread_that_is_alone_on_its_core_yields_at_every_sixteenth_look(c):
    assert yields(c, Pace(), US - 1, 33) == [1, *[0] * 15, 1, *[0] * 15, 1]


def test_a_thread_whose_core_another_one_wants_yields_at_each_look(c):
    pace = Pace()
    assert yields(c, pace, US, 5) == [1] * 5
    assert yields(c, pace, US // 2, 17) == [1, *[0] * 15, 1]
    assert yields(c, pace, 2 * US, 16 + 3) == [*[0] * 15, 1, 1, 1, 1]
