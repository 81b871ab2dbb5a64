"""Receivers that are too slow, on real sockets: senders wait for them, or the group continues without them."""

import threading

import pytest
from members import LIMIT_S, group_of, join, wait_until

import seqcast

SOON = {"slow_s": 0.5, "preset": "fast"}


class Flood:
    """Sends and receives as fast as it goes, on two threads for each member but those that are given no thread."""

    def __init__(self, sender, receivers):
        self.sent, self.got, self.over = 0, dict.fromkeys([group.member.name for group in receivers], 0), False
        self.threads = [threading.Thread(target=self.receive, args=(group,), daemon=True) for group in receivers]
        self.threads.append(threading.Thread(target=self.send, args=(sender,), daemon=True))
        for thread in self.threads:
            thread.start()

    def send(self, group):
        while not self.over:
            try:
                group.send(bytes(10_000), timeout=0.1)
                self.sent += 1
            except seqcast.SendTimeout:
                pass
            except seqcast.NotMember:
                return

    def receive(self, group):
        while not self.over:
            try:
                batch = group.recv_batch(0.1)
            except seqcast.NotMember:
                return
            if batch is not None:
                self.got[group.member.name] += len(batch)

    def end(self):
        self.over = True
        for thread in self.threads:
            thread.join(LIMIT_S)


@pytest.mark.parametrize(
    "settings",
    [{"order": "total"}, {"order": "fifo", "partition": "primary"}, {"order": "sequencer"},
     {"order": "total", "membership": "token-ring"}, {"order": "total", "safe": True}],
    ids=["total", "primary", "sequencer", "ring", "safe"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of a primary group that anybody may found
def test_a_member_that_takes_nothing_is_put_out_and_told_after_all_that_was_agreed_on(settings):
    with group_of(4, slow="exclude", **SOON, **settings) as (a, b, c, d):
        flood = Flood(a, (a, b, d))
        wait_until(lambda: len(a.view) == 3 and len(b.view) == 3 and len(d.view) == 3)
        assert c.member not in a.view.members and a.counters()["control_members_slow"] == 1
        got = 0
        for event in c.events():
            if isinstance(event, seqcast.Message):
                got += 1
            last = event
        assert isinstance(last, seqcast.Excluded) and last.cause == "slow" and "join again" in last.reason
        assert got > 0, "what was delivered before is received first"
        assert c.status == "excluded"
        sent = flood.sent
        wait_until(lambda: flood.sent > sent + 1000)  # nobody waits any more
        flood.end()


def test_with_block_senders_wait_and_the_member_stays():
    with group_of(4, **{**SOON, "slow": "block"}) as (a, b, c, d):
        flood = Flood(a, (a, b, d))
        wait_until(lambda: a.stalls() and a.stalls()[0][1] > 1.5)
        assert [member.name for member, _ in a.stalls()] == ["c"] and len(a.view) == 4
        with pytest.raises(seqcast.SendTimeout) as raised:
            a.send(bytes(10_000), timeout=0.1)
        assert raised.value.waiting_for in (("c",), ()), "() behind the other thread's send"
        flood.over = True
        while not flood.threads[-1].join(0.01) and flood.threads[-1].is_alive():
            c.recv_batch(0)
        flood.end()


def test_members_with_another_setting_are_refused():
    with group_of(1, slow="exclude", **SOON) as (a,):
        with pytest.raises(seqcast.JoinRefused, match="slow=exclude, not block"):
            join(a.cluster, "b", **{**SOON, "slow": "block"})
        with pytest.raises(seqcast.ConfigError, match="must be one of 'block', 'exclude'"):
            join(a.cluster, "b", slow="skip")
