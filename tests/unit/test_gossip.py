"""The policy of gossip: each rule alone. Members are numbered from 1, and this one is 1 unless a test says so."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import pytest

from seqcast.config.derive import gossip_settings
from seqcast.config.fields import Config
from seqcast.core.gossip import (
    Agreed,
    Alive,
    Answer,
    Begun,
    Catalog,
    CaughtUp,
    Collect,
    Everyone,
    Floor,
    From,
    Gossiper,
    GossipMessage,
    GossipSettings,
    Hello,
    OutOfReach,
    Request,
    Sample,
    SendTo,
    Shuffle,
    Span,
    Sum,
)
from seqcast.core.gossip.dice import Dice
from seqcast.core.gossip.inbox import Budget, Inbox
from seqcast.core.gossip.known import Known
from seqcast.core.gossip.policy import below_lag
from seqcast.core.gossip.size import SizeEstimate
from seqcast.core.gossip.tally import Tally
from seqcast.core.gossip.tempo import copies, interval, subset_size

MS, SECOND = 1_000_000, 1_000_000_000
LAG = GossipSettings(votes=False, lag=10)


def span(kept: int, delivered: int, received: int) -> Span:
    return Span(kept, delivered, received, delivered)


class Held:
    """Packets that a member has, by sender: those up to a prefix, and the others by seqno."""

    full = False

    def __init__(self, **delivered: int) -> None:
        self.delivered = {int(sender[1:]): last for sender, last in delivered.items()}
        self.apart: set[tuple[int, int]] = set()
        self.stored: dict[int, int] = {}

    def digest(self) -> dict[int, Span]:
        return {sender: span(1, last, last) for sender, last in self.delivered.items()}

    def lacks(self, sender: int, first: int, last: int, most: int) -> tuple[tuple[int, int], ...]:
        first = max(first, self.delivered.get(sender, 0) + 1)
        missing = [seqno for seqno in range(first, last + 1) if (sender, seqno) not in self.apart]
        return tuple((seqno, seqno) for seqno in missing[:most])

    def received(self, sender: int) -> int:
        return self.delivered.get(sender, 0)

    def catalogs(self) -> tuple[Catalog, ...]:
        return tuple(Catalog({sender: (1, last)}) for sender, last in self.stored.items())


def member(n: int, settings: GossipSettings = LAG, me: int = 1, **delivered: int) -> Gossiper:
    """One of ``n`` members."""
    return Gossiper(me, Everyone(me, range(1, n + 1)), settings, Held(**delivered), 0, Dice(me))


def gossip_of(origin: int, counter: int = 1, n: int = 4, **delivered: int) -> GossipMessage:
    digest = {int(sender[1:]): span(1, last, last) for sender, last in delivered.items()}
    return GossipMessage(
        origin, counter, 0, digest, (origin,), tuple(each for each in range(1, n + 1) if each != origin)
    )


def sent(effects: list, kind: type) -> list[SendTo]:
    return [each for each in effects if isinstance(each, SendTo) and isinstance(each.message, kind)]


def ranges(*seqnos: int) -> tuple[tuple[int, int], ...]:
    return tuple((seqno, seqno) for seqno in seqnos)


# ---- the steps on receiving a gossip


def test_a_gossip_without_a_sender_or_of_no_member_is_dropped() -> None:
    """PB-06, 1 and 2: one that came from nobody, or of a member that left or is not known yet."""
    one = member(4)
    assert one.received(gossip_of(2, m2=5), 0, 0) == []
    assert one.received(gossip_of(9, m2=5), 2, 0) == []
    assert one.received(gossip_of(2, m2=5), 9, 0) == []
    assert one.received(gossip_of(0, m2=5), 2, 0) == []
    assert sent(one.received(gossip_of(2, m2=5), 2, 0), Request), "none of them counts as seen"


def test_a_joiner_that_is_known_later_is_answered_then() -> None:
    """PB-06, 2: its gossips count from then on."""
    assert member(3).received(gossip_of(4, 1, m4=5), 4, 0) == []
    assert sent(member(4).received(gossip_of(4, 2, m4=5), 4, 0), Request)


def test_a_gossip_is_handled_once_whoever_brings_it() -> None:
    """PB-06, 3."""
    one = member(4)
    assert one.received(gossip_of(2, m2=5), 2, 0)
    assert one.received(gossip_of(2, m2=5), 3, 0) == []
    assert one.received(gossip_of(2, 2, m2=5), 3, 10**12)


def test_missing_packets_are_requested_at_once_from_the_member_that_brought_the_gossip() -> None:
    """PB-06, 4; PB-01: the digest is member 2's, passed on by member 3."""
    one = member(4, m2=3, m4=1)
    effects = one.received(gossip_of(2, m2=5, m3=2, m4=1), 3, 0)
    (request,) = sent(effects, Request)
    assert request == SendTo((3,), Request({2: ((4, 5),), 3: ((1, 2),)}))


def test_nothing_is_asked_for_that_the_other_keeps_no_longer_or_that_was_asked_for_just_now() -> None:
    one = member(4)
    early = GossipMessage(2, 1, 0, {3: span(3, 4, 4)}, (2,), (1, 3, 4))
    assert sent(one.received(early, 2, 0), Request) == [SendTo((2,), Request({3: ((3, 4),)}))]
    assert sent(one.received(gossip_of(4, m3=5), 4, 1 * MS), Request) == [SendTo((4,), Request({3: ((1, 2), (5, 5))}))]
    assert sent(one.received(gossip_of(4, 2, m3=5), 4, 25 * MS), Request) == [SendTo((4,), Request({3: ((1, 5),)}))]


def test_packets_that_the_other_received_out_of_order_are_requested_too() -> None:
    """Else a member that waits for one packet would keep others from all packets behind that one."""
    one = member(4, m2=3)
    effects = one.received(GossipMessage(3, 1, 0, {2: span(1, 2, 7)}, (3,), (1, 2, 4)), 3, 0)
    assert sent(effects, Request) == [SendTo((3,), Request({2: ((4, 7),)}))]


def test_a_request_is_bounded() -> None:
    one = member(3, GossipSettings(votes=False, request_max=7))
    (request,) = sent(one.received(gossip_of(2, n=3, m2=1000), 2, 0), Request)
    assert request.message == Request({2: ((1, 7),)})


def test_the_last_to_see_a_gossip_collects_below_its_digest_and_the_lag_and_passes_it_to_nobody() -> None:
    """PB-06, 5; PB-02, PB-03: the seed's example: lag 10, [P:25, Q:3, R:100] gives below P:15, R:90, none of Q."""
    one = member(4, m2=25, m3=3, m4=100)
    last = GossipMessage(2, 1, 2, {2: span(1, 25, 25), 3: span(1, 3, 3), 4: span(1, 100, 100)}, (2, 3, 4), (1,))
    assert one.received(last, 4, 0)[1:] == [Collect(2, 15), Collect(4, 90)]
    assert below_lag(last.digest, 10) == {2: 15, 4: 90}


def test_a_gossip_that_others_have_not_seen_collects_nothing_and_is_passed_on_without_us() -> None:
    """PB-06, 6; PB-01: we leave not-seen and enter seen."""
    one = member(4, m2=25)
    _, only = one.received(gossip_of(2, m2=25), 2, 0)
    assert isinstance(only, SendTo) and isinstance(only.message, GossipMessage)
    assert only.message.seen == (2, 1) and only.message.not_seen == (3, 4) and only.message.hops == 1
    assert set(only.to) <= {3, 4} and only.to


def test_a_crashed_member_does_not_keep_a_gossip_alive() -> None:
    """E-10: the member would never leave not-seen; the view says so."""
    one = member(3, m2=25)
    assert one.received(GossipMessage(2, 1, 1, {2: span(1, 25, 25)}, (2, 3), (1, 4)), 3, 0)[1:] == [Collect(2, 15)]


# ---- which gossips are known


def test_a_gossip_that_left_the_cache_is_not_mistaken_for_a_new_one() -> None:
    """E-10: without the highest number of each origin the flood would begin again."""
    known = Known(2, 10)
    assert [known.add(5, counter) for counter in (1, 2, 3, 4)] == [True] * 4
    assert not known.add(5, 1) and not known.add(5, 4) and known.add(5, 5)
    assert known.add(6, 1), "of another origin"


def test_a_number_that_no_member_of_a_view_can_have_reached_is_dropped() -> None:
    """One forged gossip would else make all later ones of its origin look old."""
    settings = GossipSettings(interval_ns_min=5 * MS, cache_max=1)
    one = member(4, settings)
    assert one.received(gossip_of(2, (1 << 53) - 1, m2=5), 3, 1 * SECOND) == []
    assert sent(one.received(gossip_of(2, 1, m2=5), 2, 1 * SECOND), Request)
    assert sent(one.received(gossip_of(3, 200, m3=5), 3, 1 * SECOND), Request), "one in each shortest interval can be"


def test_a_member_whose_name_is_used_continues_above_the_number_that_was_used() -> None:
    one = member(4, GossipSettings(average_ns=1 * MS))
    assert one.received(gossip_of(1, 900, m2=5), 3, 1 * SECOND) == [] and one.forged == 1
    begun = [each for at in range(1000, 1100) for each in sent(one.tick(at * MS), GossipMessage)]
    assert begun and all(isinstance(each.message, GossipMessage) and each.message.counter > 900 for each in begun)
    assert one.received(begun[0].message, 3, 2 * SECOND) == [] and one.forged == 1, "its own comes back"


def test_packets_that_one_member_alone_claims_are_requested_and_not_reported_as_lost() -> None:
    settings = GossipSettings(votes=False, lost_ns=1 * SECOND)
    one = member(5, settings, m2=3)

    def told(begin: int) -> list[OutOfReach]:
        return [
            each
            for at in range(begin, begin + 3 * SECOND, 50 * MS)
            for each in one.tick(at)
            if isinstance(each, OutOfReach)
        ]

    claim = GossipMessage(3, 1, 0, {2: span(1, 5, 5)}, (3,), (1, 4))
    assert sent(one.received(claim, 3, 0), Request) == [SendTo((3,), Request({2: ((4, 5),)}))]
    assert told(0) == []
    one.received(claim._replace(origin=4), 4, 3 * SECOND)
    assert told(3 * SECOND) == [OutOfReach(2, 4, 5)]


def test_claims_that_nobody_confirms_do_not_keep_out_missing_packets() -> None:
    """A member that names many senders that do not exist takes all places, for a while only."""
    one = member(5, GossipSettings(votes=False, lost_ns=1 * SECOND), m2=3)
    invented = dict.fromkeys(range(1000, 1130), span(1, 10_000, 10_000))
    one.received(GossipMessage(3, 1, 0, invented, (3,), (1, 4)), 3, 0)
    assert not sent(one.received(gossip_of(2, 1, 5, m2=5), 2, 100 * MS), Request)
    for at in range(0, 2 * SECOND, 50 * MS):
        one.tick(at)
    (request,) = sent(one.received(gossip_of(2, 2, 5, m2=5), 2, 2 * SECOND), Request)
    assert request.message == Request({2: ((4, 5),)})


# ---- late-join handlers


def test_a_late_join_handler_answers_with_its_catalog_and_the_joiner_requests_missing_packets() -> None:
    """PB-04: after hello, once per interval, a bounded number of packets, until nothing lacks."""
    settings = GossipSettings(votes=False, history_max=4, pull_ns=100 * MS, catalogs_ns=50 * MS, ask_again_ns=1 * MS)
    handler, window = member(3, settings, me=2), Held()
    handler._window.stored = {9: 10}
    joiner = Gossiper(1, Everyone(1, range(1, 4)), settings, window, 0, Dice(1), history=True)
    (hello,) = sent(joiner.tick(0), Hello)
    assert hello == SendTo((), Hello(True))
    (answer,) = sent(handler.received(Hello(True), 1, 0), Catalog)
    assert answer == SendTo((1,), Catalog({9: (1, 10)})) and handler.received(Hello(False), 1, 0) == []
    joiner.received(answer.message, 2, 10 * MS)
    steps: list = []
    for now in range(20, 1000, 10):
        effects = joiner.tick(now * MS)
        steps += [each for each in effects if isinstance(each, From | Begun | CaughtUp)]
        for request in sent(effects, Request):
            assert isinstance(request.message, Request) and request.message.packets <= 4 and request.to == (2,)
            window.delivered[9] = request.message.missing[9][-1][1]
    assert steps == [From(9, 1), Begun((2,)), CaughtUp()] and window.delivered == {9: 10}


def test_a_joiner_whom_nobody_answers_begins_with_the_next_messages() -> None:
    settings = GossipSettings(votes=False, history_ns=1 * SECOND, hello_again_ns=250 * MS)
    joiner = Gossiper(1, Everyone(1, range(1, 4)), settings, Held(), 0, Dice(1), history=True)
    effects = [each for now in range(0, 2000, 50) for each in joiner.tick(now * MS)]
    assert len(sent(effects, Hello)) == 5 and effects.count(Begun(())) == 1 and CaughtUp() not in effects


def test_memory_of_others_is_bounded() -> None:
    known = Known(4, 3)
    for origin in range(1, 50):
        assert known.add(origin, 1)
    assert len(known._cache) == 4 and len(known._marks) == 3


# ---- tempo


def test_the_seed_s_example_of_the_dynamic_interval() -> None:
    """PB-10, PB-12: 30 s between receptions and 10 members: 1 to 600 s, 300 s on average. Each gossip reaches a member
    once, as by multicast."""
    settings = GossipSettings(average_ns=30 * SECOND, multicast=True, interval_ns_min=1)
    dice = Dice(1)
    drawn = [interval(settings, 10, 1, dice) for _ in range(4000)]
    assert 1 <= min(drawn) < 10 * SECOND and 590 * SECOND < max(drawn) <= 600 * SECOND
    assert sum(drawn) / len(drawn) == pytest.approx(300 * SECOND, rel=0.03)
    assert len(set(drawn)) > 3990, "drawn anew each time"


def test_a_static_interval_ignores_the_size_of_the_group() -> None:
    """PB-12."""
    settings = GossipSettings(dynamic=False, interval_ns=70 * MS)
    assert {interval(settings, n, 1, Dice(1)) for n in (2, 10, 10_000)} == {70 * MS}


def test_no_interval_is_beyond_floor_and_ceiling() -> None:
    """E-10: a range from 1 fires bursts. The floor leaves the mean unchanged."""
    settings = GossipSettings(average_ns=10 * MS, interval_ns_min=15 * MS, multicast=True, interval_ns_max=40 * MS)
    dice = Dice(2)
    low = [interval(settings, 2, 1, dice) for _ in range(1000)]
    assert min(low) >= 15 * MS and sum(low) / 1000 == pytest.approx(20 * MS, rel=0.03)
    assert {interval(settings, 10_000, 1, dice) for _ in range(1000)} >= {40 * MS}


def test_each_member_receives_at_one_rate_whatever_the_size() -> None:
    """PB-07: gossips begun by all, times the copies that reach one of them, are one per average_ns."""
    settings = GossipSettings(average_ns=100 * MS)
    for n in (10, 100, 1000, 10_000):
        dice = Dice(n)
        mean = sum(interval(settings, n, 1, dice) for _ in range(2000)) / 2000
        got = subset_size(n - 1, n, 30, 1)
        assert n * got / mean == pytest.approx(1 / settings.average_ns, rel=0.05)


@pytest.mark.parametrize(("percent", "to"), [(30, 3), (40, 4), (1, 2)])
def test_a_gossip_goes_to_as_large_a_part_of_the_others_as_the_setting_says(percent: int, to: int) -> None:
    given = gossip_settings(Config(reliability="gossip", gossip_subset_percent=percent))
    one = member(11, GossipSettings(votes=False, **given))
    begun = [each for at in range(0, 5000, 10) for each in sent(one.tick(at * MS), GossipMessage)]
    assert begun and {len(each.to) for each in begun} == {to}


def test_the_subset_grows_with_the_logarithm_of_the_group_and_shrinks_with_load() -> None:
    """PB-07: 30 % of 1000 members would be 300 copies of each gossip, from each of them."""
    assert [copies(n) for n in (10, 100, 1000, 10_000)] == [4, 6, 8, 11]
    assert [subset_size(n - 1, n, 30, 1) for n in (3, 10, 64, 1000)] == [2, 3, 6, 8]
    assert subset_size(999, 1000, 30, 4) == 2 and subset_size(999, 1000, 30, 8) == 2
    assert subset_size(1, 1000, 30, 8) == 1
    assert interval(GossipSettings(dynamic=False, interval_ns=70 * MS), 5, 2, Dice(1)) == 140 * MS


def test_a_gossip_by_multicast_is_sent_once_and_passed_on_by_nobody() -> None:
    """PB-13."""
    settings = GossipSettings(votes=False, lag=10, multicast=True)
    one, two = member(4, settings, m2=25), member(4, settings, 2, m2=25)
    (begun,) = two.tick(10 * SECOND)
    assert begun.to == () and isinstance(begun.message, GossipMessage)
    assert one.received(begun.message, 2, 10 * SECOND)[1:] == [Collect(2, 15)]


# ---- waiting messages


def test_the_queue_is_bounded_and_requests_go_before_gossips() -> None:
    """PB-08, PB-09: a full one drops new requests, but rather gossips."""
    inbox, request = Inbox(3), Request({1: ((1, 1),)})
    for counter in range(1, 4):
        assert inbox.put(gossip_of(2, counter), 2)
    assert not inbox.put(gossip_of(2, 4), 2) and inbox.load == 8
    assert inbox.put(request, 3) and inbox.put(request, 4) and inbox.put(request, 5) and not inbox.put(request, 6)
    assert inbox.dropped == 5 and len(inbox) == 3
    assert inbox.first() == (request, 3)


def test_a_shuffle_goes_between_requests_and_gossips() -> None:
    inbox = Inbox(9)
    for message in (gossip_of(2), Shuffle((), True, 1, ()), Request({})):
        inbox.put(message, 2)
    order = []
    while (first := inbox.first()) is not None:
        order.append(type(first[0]))
        inbox.pop()
    assert order == [Request, Shuffle, GossipMessage]


def test_a_budget_is_spent_and_accrues() -> None:
    budget = Budget(1000, 5)
    assert all(budget.spend(1, 0) for _ in range(5)) and not budget.spend(1, 0)
    assert budget.wait_ns(1) == 1 * MS and not budget.spend(1, 1 * MS - 1) and budget.spend(1, 1 * MS)
    assert not budget.spend(100, 5 * MS) and budget.spend(100, 6 * MS), "what costs more than all waits for all"


def test_no_storm_of_requests_is_answered_faster_than_the_budget_and_none_is_forgotten() -> None:
    """PB-07, PB-08: each of 30 members asks for 100 packets; 1000 per second are sent again."""
    one = member(40, GossipSettings(votes=False, work_per_s=1000, work_max=200))
    answered: Counter[int] = Counter()
    for asker in range(2, 32):
        for each in one.received(Request({1: ((1, 100),)}), asker, 0):
            assert isinstance(each, Answer)
            answered[0] += 100
    assert answered[0] == 200
    now = 0
    while now < 5 * SECOND and one.due() < 5 * SECOND:
        now = one.due()
        answered[now // SECOND] += 100 * sum(isinstance(each, Answer) for each in one.tick(now))
    assert sum(answered.values()) == 3000 and max(answered.values()) <= 1200


def test_a_loaded_member_passes_gossips_on_to_fewer_and_gossips_less_often() -> None:
    """PB-07."""
    one = member(100, GossipSettings(votes=False, work_per_s=1, work_max=1))
    others = []
    for counter in range(1, 200):
        others += sent(one.received(gossip_of(2, counter, 100), 2, 0), GossipMessage)
    (only,) = others
    assert len(only.to) == 6
    assert len(sent(one.tick(1 * SECOND), GossipMessage)[0].to) == 2


def test_a_flooded_member_of_a_group_gossips_less_often_and_to_fewer_until_the_flood_is_over() -> None:
    """PB-07, with the budget that groups have: 4000 gossips come in one second."""
    config = Config(reliability="gossip", gossip_dynamic=False, gossip_interval_s=0.05)
    one = member(64, GossipSettings(**gossip_settings(config)))
    begun: list[tuple[int, int]] = []  # when, and to how many
    for step in range(16_000):
        now = step * SECOND // 4000
        effects = one.tick(now) if one.due() <= now else []
        if 1 * SECOND <= now < 2 * SECOND:
            origin = 2 + step % 63
            effects += one.received(gossip_of(origin, step, 64), origin, now)
        begun += [(now, len(each.to)) for each in sent(effects, GossipMessage) if each.message.origin == 1]

    def between(start_s: float, end_s: float) -> tuple[float, set[int]]:
        """Ms between two of its gossips, and to how many they go."""
        found = [each for each in begun if start_s * SECOND <= each[0] < end_s * SECOND]
        return (found[-1][0] - found[0][0]) / (len(found) - 1) / MS, {n for _, n in found}

    assert between(0, 1) == between(2.6, 4) == (50, {6})
    interval_ms, subset = between(1.2, 2.1)
    assert interval_ms > 200 and subset == {2}
    assert one.dropped > 1000, "more came than could wait"


# ---- signs of life


def test_a_gossip_shows_that_all_who_have_seen_it_live() -> None:
    """PB-11."""
    one = member(5)
    assert one.received(GossipMessage(2, 1, 1, {}, (2, 4, 9), (1, 3, 5)), 4, 8 * MS)[0] == Alive((2, 4))
    assert one.received(GossipMessage(2, 1, 1, {}, (2, 3, 5), (1,)), 5, 9 * MS) == [], "the same one tells nothing new"


# ---- collection by votes, and losses


def all_members(n: int, **delivered: int) -> dict[int, Gossiper]:
    """A group whose members vote; they gossip when a test says so."""
    settings = GossipSettings(dynamic=False, interval_ns=SECOND)
    return {me: member(n, settings, me, **delivered) for me in range(1, n + 1)}


def exchanged(group: dict[int, Gossiper], origin: int, now: int) -> dict[int, list[Agreed]]:
    """A gossip of this member passes through the group; its news, by member."""
    agreed: dict[int, list[Agreed]] = {}
    waiting = [(origin, effect) for effect in group[origin].tick(now)]
    while waiting:
        via, effect = waiting.pop(0)
        if isinstance(effect, Agreed):
            agreed.setdefault(via, []).append(effect)
        elif isinstance(effect, SendTo) and isinstance(effect.message, GossipMessage):
            waiting += [(to, each) for to in effect.to for each in group[to].received(effect.message, via, now)]
    return agreed


def test_a_packet_is_stable_when_every_member_has_it_whoever_says_so() -> None:
    """E-10: a digest that all have seen proves nothing; that all have delivered it does. Member 3 hears the positions
    of members 1 and 2 from member 2 alone."""
    one, two, three = (Tally(me, [each for each in (1, 2, 3) if each != me], 5 * MS, 0) for me in (1, 2, 3))
    first = one.say({7: span(1, 50, 50)}, 10 * MS)
    assert (first.round, first.members) == (1, (1,))
    assert two.heard(first, {7: span(1, 40, 60)}, 10 * MS) == []
    second = two.say({7: span(1, 90, 90)}, 11 * MS)
    assert (second.members, second.least) == ((1, 2), {7: Floor(40, 40)}), "a member is counted once in a round"
    assert three.heard(second, {7: Span(1, 45, 45, 30)}, 12 * MS) == [Agreed(7, Floor(40, 30))]
    assert three.heard(second, {7: span(1, 99, 99)}, 12 * MS) == [], "it is said once"


def test_a_member_that_hears_of_a_later_round_takes_over_the_result_and_is_counted_in_it() -> None:
    one, two = Tally(1, [2], 5 * MS, 0), Tally(2, [1], 5 * MS, 0)
    assert two.heard(one.say({7: span(1, 5, 5)}, 5 * MS), {7: span(1, 4, 4)}, 5 * MS) == [Agreed(7, Floor(4, 4))]
    assert two.say({7: span(1, 9, 9)}, 9 * MS).round == 1, "no round is shorter than that"
    later = two.say({7: span(1, 9, 9)}, 10 * MS)
    assert (later.round, later.members, later.result) == (2, (2,), {7: Floor(4, 4)})
    assert one.heard(later, {7: span(1, 8, 8)}, 10 * MS) == [Agreed(7, Floor(4, 4)), Agreed(7, Floor(8, 8))]
    assert one.heard(later, {}, 10 * MS) == []


def test_a_sender_of_which_one_member_has_nothing_is_not_in_the_sum() -> None:
    one, two = Tally(1, [2], 5 * MS, 0), Tally(2, [1], 5 * MS, 0)
    first = one.say({7: span(1, 5, 5), 8: span(1, 2, 2)}, 5 * MS)
    assert two.heard(first, {8: span(1, 3, 3), 9: span(1, 1, 1)}, 5 * MS) == [Agreed(8, Floor(2, 2))]


def test_all_have_room_for_the_least_window_and_only_if_they_mean_the_same_claim() -> None:
    """A sender gives back the promise for its former claim; a receiver that has not heard of the new one keeps
    that room for nobody."""
    whole = Span(1, 9, 9, 9, 500, 3)
    for other, agreed in [
        (whole._replace(window=400), Floor(9, 9, 400, 3)),
        (whole._replace(claim=2), Floor(9, 9, 0, 3)),
        (whole._replace(claim=4), Floor(9, 9, 0, 4)),
    ]:
        one, two = Tally(1, [2], 5 * MS, 0), Tally(2, [1], 5 * MS, 0)
        assert two.heard(one.say({7: whole}, 5 * MS), {7: other}, 5 * MS) == [Agreed(7, agreed)]


def test_few_gossips_show_a_large_group_which_packets_are_stable() -> None:
    """A gossip of each of the 64 members would take ten times as many. All have the packet, one lags behind."""
    group = all_members(64, m1=50)
    window = group[20]._window
    assert isinstance(window, Held)
    window.delivered[1] = 20
    first: dict[int, int] = {}
    for gossips, origin in enumerate(range(30, 37), 1):
        for each, agreed in exchanged(group, origin, (gossips + 1) * SECOND).items():
            assert {(effect.sender, effect.least.delivered) for effect in agreed} == {(1, 20)}
            first.setdefault(each, gossips)
    assert len(first) == 64 and max(first.values()) <= 6


def test_a_round_that_cannot_have_been_reached_is_not_believed() -> None:
    """Such a round would make all later sums look old."""
    one = member(2, GossipSettings(), m1=50)
    told = gossip_of(2, 1, 2)._replace(sum=Sum(1 << 40, (1, 2), {}, {1: Floor(50, 50)}))
    assert one.received(told, 2, SECOND) == []
    told = gossip_of(2, 2, 2)._replace(sum=Sum(1, (2,), {1: Floor(40, 40)}, {}))
    assert Agreed(1, Floor(40, 40)) in one.received(told, 2, SECOND)


def test_a_packet_that_nobody_brings_is_told_as_lost_and_one_that_came_is_not() -> None:
    settings = GossipSettings(votes=False, lost_ns=1 * SECOND)
    one = member(3, settings, m2=3)
    window = one._window
    assert isinstance(window, Held)
    one.received(gossip_of(2, 1, 3, m2=8), 2, 0)
    window.apart.add((2, 5))
    told = [each for at in range(0, 2 * SECOND, 50 * MS) for each in one.tick(at) if isinstance(each, OutOfReach)]
    assert told == [OutOfReach(2, 4, 4), OutOfReach(2, 6, 8)]


def test_with_votes_nothing_is_ever_given_up() -> None:
    one = member(3, GossipSettings(lost_ns=1 * SECOND), m2=3)
    one.received(gossip_of(2, 1, 3, m2=8), 2, 0)
    assert not [each for at in range(0, 9 * SECOND, 50 * MS) for each in one.tick(at) if isinstance(each, OutOfReach)]


def test_a_member_keeps_packets_by_its_lag() -> None:
    """PB-04: one with a large lag keeps nearly all, for those that join late."""
    digest = {2: span(1, 5000, 5000)}
    assert below_lag(digest, 1000) == {2: 4000} and below_lag(digest, 100_000) == {}


# ---- partial membership


def shuffled(members: dict[int, Sample], rounds: int, start: int = 0) -> None:
    for now in range(start, start + rounds):
        for me, sample in members.items():
            exchange = sample.tick(now * 10)
            if exchange is None or exchange[0] not in members:
                continue
            to, shuffle = exchange
            answer = members[to].shuffled(me, shuffle, now * 10)
            if answer is not None:
                sample.shuffled(to, answer, now * 10)


def samples(n: int, **settings: int) -> dict[int, Sample]:
    given = GossipSettings(votes=False, shuffle_ns=10, **settings)
    return {me: Sample(me, [me % n + 1], given, 0, Dice(me), 2) for me in range(1, n + 1)}


def test_partial_views_fill_stay_bounded_and_forget_the_crashed() -> None:
    """A chain of 200 members, each of which knows one other, becomes a random graph; crashed members fade from the
    graph."""
    members = samples(200, view_max=12)
    shuffled(members, 60)
    assert all(len(set(each.others)) == 12 and me not in each.others for me, each in members.items())
    known = Counter(other for each in members.values() for other in each.others)
    assert len(known) == 200 and max(known.values()) < 40
    for crashed in range(1, 21):
        del members[crashed]
    shuffled(members, 60, 60)
    assert sum(other <= 20 for each in members.values() for other in each.others) <= 12


def test_the_size_of_the_group_is_estimated_without_knowing_its_members() -> None:
    members = samples(300, view_max=12, epoch_ns=200)
    shuffled(members, 60)
    sizes = sorted(each.size for each in members.values())
    assert 180 < sizes[0] and sizes[-1] < 480
    for gone in range(101, 301):
        del members[gone]
    shuffled(members, 80, 60)
    assert 50 < sorted(each.size for each in members.values())[50] < 170, "the next epochs forget those that left"


def test_an_epoch_that_ends_elsewhere_ends_here() -> None:
    one, two = SizeEstimate(100, 0, Dice(1), 1), SizeEstimate(1000, 0, Dice(2), 1)
    one.tick(100)
    two.heard(one.epoch, one.minima, 100)
    assert two.epoch == 2
    before = two.minima
    two.heard(1, (0.0,) * 32, 100)
    assert two.minima == before, "an epoch that is over"


def test_in_a_partial_membership_a_gossip_lists_few_and_goes_on_to_members_we_know() -> None:
    settings = GossipSettings(votes=False, listed_max=6, lag=10)
    peers = Sample(1, range(20, 30), settings, 0, Dice(1), 1000)
    one = Gossiper(1, peers, settings, Held(m2=25), 0, Dice(1))
    effects = one.received(GossipMessage(2, 1, 3, {2: span(1, 25, 25)}, (2, 3, 4, 5, 6, 7), (1, 20)), 7, 0)
    (only,) = sent(effects, GossipMessage)
    assert isinstance(only.message, GossipMessage) and len(only.message.seen) == 6 and len(only.message.not_seen) == 6
    assert only.message.seen[-1] == 1 and set(only.to) <= set(range(20, 30))
    assert Collect(2, 15) in effects, "the newest are kept: nobody knows when all have seen a digest"


def test_a_gossip_ends_after_so_many_hops_even_if_its_origin_is_forgotten() -> None:
    settings = GossipSettings(votes=False, hops_max=5)
    one = Gossiper(1, Sample(1, range(20, 30), settings, 0, Dice(1)), settings, Held(), 0, Dice(1))
    assert sent(one.received(GossipMessage(2, 1, 3, {}, (2,), (1,)), 7, 0), GossipMessage)
    assert not sent(one.received(GossipMessage(2, 2, 4, {}, (2,), (1,)), 7, 0), GossipMessage)


def test_votes_are_refused_if_nobody_knows_all_members() -> None:
    settings = GossipSettings()
    with pytest.raises(AssertionError, match="votes"):
        Gossiper(1, Sample(1, [2], settings, 0, Dice(1)), settings, Held(), 0, Dice(1))


# ---- all together


def test_the_same_seeds_give_the_same_run_and_others_another() -> None:
    def run(seed: int) -> list:
        one = Gossiper(1, Everyone(1, range(1, 50)), LAG, Held(m2=5), 0, Dice(seed))
        effects = []
        for counter in range(1, 20):
            effects += one.received(gossip_of(2, counter, 49, m2=9), 2, counter * 30 * MS) + one.tick(counter * 30 * MS)
        return effects

    assert run(1) == run(1) != run(2)


def test_under_its_own_name_a_member_believes_no_number_that_others_would_not_believe_of_it() -> None:
    """The member would continue above the number, and nobody would accept its gossips again."""
    victim, other = member(4), member(4, me=2)
    now = 10 * SECOND
    victim.received(gossip_of(1, (1 << 53) - 1), 3, now)
    assert victim.forged == 0
    victim.received(gossip_of(1, 50), 3, now)
    assert victim.forged == 1, "it may be of another one, and may be believed"
    begun = [each.message for at in range(1, 60) for each in sent(victim.tick(now + at * SECOND), GossipMessage)]
    assert begun and begun[0].counter == 51
    other.received(begun[0], 1, now + 60 * SECOND)
    assert sent(other.received(begun[-1], 1, now + 60 * SECOND), GossipMessage)


def test_a_digest_is_made_for_each_gossip_and_for_nothing_else() -> None:
    """If the active senders are too many for one gossip, each digest has the next ones."""
    one = member(3, GossipSettings(votes=False, lost_ns=1 * SECOND), m2=3)
    made: list[dict[int, Span]] = []
    digest = one._window.digest

    def counted() -> dict[int, Span]:
        made.append(digest())
        return made[-1]

    with mock.patch.object(one._window, "digest", counted):
        one.received(gossip_of(2, 1, 3, m2=8), 2, 0)
        effects = [each for at in range(0, 2 * SECOND, 50 * MS) for each in one.tick(at)]
    assert [each for each in effects if isinstance(each, OutOfReach)], "it looked for what is lost"
    assert len(made) == max(each.message.counter for each in sent(effects, GossipMessage))
