"""The decisions from a runner's looks at its network interface."""

from seqcast import codes
from seqcast.core.context import Context
from seqcast.core.identities import Identities
from seqcast.core.machines.interface import OFFER, PATIENCE, Interface
from seqcast.core.secrets import Secrets
from seqcast.core.vocabulary import GiveWay, InterfaceSeen, MendSockets, TellInterface, Warn
from seqcast.events import InterfaceChanged

GONE = {"gone": True}
OTHER = {"address_gone": True, "address_other": True}
REPLACED = "eth0 has another address than 10.0.0.1, the one of this member"


class Looked(Interface):
    """An interface that is looked at, and the machine's requests."""

    def __init__(self):
        nobody = Identities(None, (), "group")
        super().__init__(Context(None, "group", None, None, Secrets(None, 0, nobody), nobody))

    def sees(self, **what):
        self.look(InterfaceSeen(name="eth0", address="10.0.0.1", **what))
        return self.taken()

    def ends(self, error=""):
        self.mended(error)
        return self.taken()

    def taken(self):
        taken = list(self.context.emitted)
        self.context.emitted.clear()
        return taken


def news(reason):
    return [Warn(codes.INTERFACE_FAULT(reason)), TellInterface(InterfaceChanged("eth0", reason))]


def test_a_fault_is_reported_once_and_the_sockets_are_mended_when_the_interface_is_back():
    made = Looked()
    assert made.sees() == []
    assert made.sees(**GONE) == news("interface eth0 is gone")
    assert made.sees(**GONE) == []
    assert made.sees() == [MendSockets()]
    assert made.ends() == news("eth0 is back, and so is its address: the group is joined there again")
    assert made.sees() == []


def test_sockets_are_mended_again_until_it_succeeds():
    made = Looked()
    assert made.sees(remade=True) == [MendSockets()]
    assert made.sees(remade=True) == []  # one at a time
    failure = "eth0 was recreated, and the group cannot be joined on it (no route): leave, and join again"
    assert made.ends("no route") == news(failure)
    assert made.sees(remade=True) == [MendSockets()]
    assert made.ends("no route") == []
    assert made.sees(remade=True) == [MendSockets()]
    assert made.ends() == news("eth0 was recreated: the group is joined there again")


def test_an_address_that_another_one_replaced_is_given_up_after_some_looks_and_once():
    made = Looked()
    assert made.sees(**OTHER) == news(REPLACED)
    for _ in range(PATIENCE - 2):
        assert made.sees(**OTHER) == []
    lost = f"{REPLACED}: no member can reach this one there; join again"
    assert made.sees(**OTHER) == [*news(lost), GiveWay(None, lost)]
    assert made.sees(**OTHER) == made.sees() == []


def test_an_address_that_comes_back_in_time_is_kept():
    made = Looked()
    for _ in range(PATIENCE):
        made.sees(**OTHER)
        assert made.sees() == [MendSockets()]
        made.ends()
    assert made.sees(**OTHER) == news(REPLACED)
    assert [made.sees(**OTHER) for _ in range(PATIENCE - 2)] == [[]] * (PATIENCE - 2), "the count begins anew"


def test_sends_that_keep_failing_are_reported_until_they_succeed():
    made = Looked()
    said = news("datagrams of this member are not sent by eth0 (denied): a firewall")
    looks = [made.sees(send_errors=n, refusal="(denied): a firewall") for n in (1, 2, 3, 4, 5, 5)]
    assert looks == [[], [], [], said, [], news("eth0 is well again")]


def test_an_interface_whose_sends_still_fail_is_not_well_again():
    made = Looked()
    said = "eth0 has no carrier: is its cable in, and is the device at the other end up?"
    assert made.sees(no_carrier=True, send_errors=1) == news(said)
    assert made.sees(send_errors=2) == []
    assert made.sees(send_errors=2) == news("eth0 is well again")


def test_failed_sends_from_before_the_sockets_were_mended_do_not_count():
    made = Looked()
    for errors in range(1, PATIENCE - 1):
        made.sees(**GONE, send_errors=errors)
    assert made.sees(send_errors=PATIENCE - 1) == [MendSockets()]
    made.ends()
    looks = [made.sees(send_errors=PATIENCE + n, refusal="(denied): a firewall") for n in range(PATIENCE)]
    assert looks[:-1] == [[]] * (PATIENCE - 1) and looks[-1]


def test_a_member_on_loopback_is_told_once_that_another_interface_has_come():
    made = Looked()
    assert made.sees() == []
    assert made.sees(routed=True) == news(OFFER)
    assert made.sees(routed=True) == made.sees() == made.sees(routed=True) == []


def test_a_missing_carrier_is_reported_and_mends_nothing():
    made = Looked()
    said = "eth0 has no carrier: is its cable in, and is the device at the other end up?"
    assert made.sees(no_carrier=True) == news(said)
    assert made.sees() == news("eth0 is well again")
