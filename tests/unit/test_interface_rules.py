"""What follows from what a runner sees of its network interface."""

from seqcast.core.machines.interface import PATIENCE, Interface, Look, MendSockets, Sight
from seqcast.core.vocabulary import InterfaceNews
from seqcast.events import InterfaceChanged

WELL = Look(Sight.WELL)
GONE = Look(Sight.BROKEN, "interface eth0 is gone")
OTHER = Look(Sight.REPLACED, "eth0 has another address")


def news(reason, lost=False):
    return [InterfaceNews(InterfaceChanged("eth0", reason), lost)]


def test_a_fault_is_reported_once_and_the_sockets_are_mended_when_the_interface_is_back():
    made = Interface("eth0", set())
    assert made.look(WELL) == []
    assert made.look(GONE) == news("interface eth0 is gone")
    assert made.look(GONE) == []
    assert made.look(WELL) == [MendSockets()]
    assert made.mended() == news("eth0 is back, and so is its address: the group is joined on it again")
    assert made.look(WELL) == []


def test_sockets_are_mended_again_until_it_succeeds():
    made = Interface("eth0", set())
    remade = Look(Sight.WELL, remade=True)
    assert made.look(remade) == [MendSockets()]
    failure = news("eth0 was made anew, and the group cannot be joined on it (no route): leave, and join again")
    assert made.mended("no route") == failure
    assert made.look(remade) == [MendSockets()]
    assert made.mended("no route") == []
    assert made.look(remade) == [MendSockets()]
    assert made.mended() == news("eth0 was made anew: the group is joined on it again")


def test_an_address_that_another_one_replaced_is_given_up_after_some_looks_and_once():
    made = Interface("eth0", set())
    assert made.look(OTHER) == news("eth0 has another address")
    for _ in range(PATIENCE - 2):
        assert made.look(OTHER) == []
    lost = "eth0 has another address: nobody reaches this member there any more; join again"
    assert made.look(OTHER) == news(lost, lost=True)
    assert made.look(OTHER) == made.look(WELL) == []


def test_an_address_that_comes_back_in_time_is_kept():
    made = Interface("eth0", set())
    for _ in range(PATIENCE):
        made.look(OTHER)
        assert made.look(WELL) == [MendSockets()]
        made.mended()
    assert not any(each.lost for each in made.look(OTHER))


def test_sends_that_keep_failing_are_reported_until_they_succeed():
    made = Interface("eth0", set())
    said = news("datagrams of this member are not sent by eth0 (denied): a firewall")
    looks = [made.look(Look(Sight.WELL, send_errors=n, refusal="(denied): a firewall")) for n in (1, 2, 3, 4, 5, 5)]
    assert looks == [[], [], [], said, [], news("eth0 is well again")]


def test_a_missing_carrier_is_reported_and_mends_nothing():
    made = Interface("eth0", set())
    assert made.look(Look(Sight.NO_CARRIER, "no carrier")) == news("no carrier")
    assert made.look(WELL) == news("eth0 is well again")
