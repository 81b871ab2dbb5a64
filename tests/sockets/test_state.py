"""State transfer between groups on real sockets."""

import asyncio
import contextlib
import hashlib
import threading
import time

import pytest
from halves import first_quick
from members import LIMIT_S, LOOPBACK, PATIENT_JOINER, cluster, join, output, script, wait_until

import seqcast
import seqcast.aio


class Log:
    """An application whose state is all its messages, in order, received on a thread of its own."""

    def __init__(self, pad=0):
        self.lines = []
        self.pad = pad
        self.taken = 0  # times that the state was taken
        self.group = None
        self.thread = None

    def get_state(self, write):
        self.taken += 1
        write(b"\n".join(self.lines))
        write(b"\0")
        for _ in range(self.pad // 100_000):
            write(bytes(100_000))

    def set_state(self, read):
        head, _, pad = read().partition(b"\0")
        assert len(pad) == self.pad // 100_000 * 100_000 and not pad.strip(b"\0") and read(1) == b""
        self.lines = head.split(b"\n") if head else []

    def join(self, name, member, **settings):
        self.group = join(name, member, state=self, **settings)
        self.thread = threading.Thread(target=self.receive, daemon=True)
        self.thread.start()
        return self

    def receive(self):
        with contextlib.suppress(seqcast.NotMember):
            for message in self.group:
                self.lines.append(message.payload)

    def leave(self):
        if self.group is not None:
            self.group.leave()


@contextlib.contextmanager
def members(*logs):
    """Leaves at the end."""
    try:
        yield logs
    finally:
        for log in logs:
            log.leave()


@pytest.mark.parametrize("order", first_quick(["total", "fifo"]))
@pytest.mark.parametrize("pad", [0, 30_000_000])
def test_a_joiner_has_the_state_of_the_others_while_everybody_sends(order, pad):
    name = cluster()
    with members(Log(pad), Log(pad), Log(pad)) as (a, b, c):
        a.join(name, "a", order=order)
        stop = threading.Event()

        def send():
            number = 0
            while not stop.is_set():
                a.group.send(b"%d" % number)
                number += 1
                time.sleep(0.0005)

        sender = threading.Thread(target=send)
        sender.start()
        time.sleep(0.1)
        b.join(name, "b", order=order)
        c.join(name, "c", order=order)
        time.sleep(0.1)
        stop.set()
        sender.join()
        wait_until(lambda: len(a.lines) == len(b.lines) == len(c.lines))
        assert a.lines == b.lines == c.lines == [b"%d" % i for i in range(len(a.lines))]
        assert a.taken == 2 and b.taken == 0
        assert b.group.counters()["state_bytes_read"] > pad


def test_a_state_of_no_bytes_and_one_that_does_not_fit_memory():
    class Bytes(Log):
        def __init__(self, data=None):
            super().__init__()
            self.data = data

        def get_state(self, write):
            write(memoryview(self.data))

        def set_state(self, read):
            self.data = b"".join(iter(lambda: read(1_000_003), b""))

    for data in (b"", hashlib.shake_256(b"x").digest(3_000_001)):
        with members(Bytes(data), Bytes()) as (a, b):
            name = cluster()
            a.join(name, "a", state_memory_bytes=500_000)
            b.join(name, "b", state_memory_bytes=700_000)
            assert b.data == data


def test_joiners_of_one_view_have_the_state_taken_once():
    name = cluster()
    with members(Log(5_000_000), *(Log(5_000_000) for _ in range(3))) as (a, *others):
        a.join(name, "a", bundle_s=0.3)
        a.group.send(b"x")
        threads = [threading.Thread(target=log.join, args=(name, "bcd"[i])) for i, log in enumerate(others)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until(lambda: len(a.group.view.members) == 4)
        assert a.taken == a.group.view.view_id.counter - 1  # 1, unless the threads took long to start
        assert all(log.lines[:1] == [b"x"] for log in others)
        for log in others:
            log.leave()
        wait_until(lambda: not a.group._runner.giving)  # nothing is kept of members that are gone


def test_the_next_member_gives_the_state_if_the_first_cannot():
    class Broken(Log):
        def get_state(self, write):
            write(b"half of it")
            raise RuntimeError("no state today")

    name = cluster()
    with members(Broken(), Log(), Log()) as (a, b, c):
        a.join(name, "a")
        a.group.send(b"1")
        with pytest.raises(seqcast.JoinTimeout, match=r"a: its get_state raised RuntimeError\('no state today'\)"):
            b.join(name, "b")
        wait_until(lambda: len(a.group.view.members) == 1)
        a.get_state = lambda write: write(b"1\0")
        b.join(name, "b")
        del a.get_state
        c.join(name, "c")
        assert b.taken == 1 and c.lines == [b"1"]
        a.group.send(b"2")
        wait_until(lambda: a.lines == b.lines == c.lines == [b"1", b"2"])


def test_a_provider_whose_application_does_not_receive_is_passed_over():
    name = cluster()
    with members(Log(), Log(), Log()) as (a, b, c):
        idle = join(name, "idle", state=Log())
        with pytest.raises(seqcast.JoinTimeout, match=r"idle: nothing came for state_timeout_s=0\.3 s"):
            a.join(name, "a", state_timeout_s=0.3)
        idle.leave()
        name = cluster()
        a.group = join(name, "a", state=a)
        receiving = threading.Thread(target=lambda: a.group.recv(LIMIT_S))
        receiving.start()
        b.join(name, "b")
        b.group.send(b"ends that")
        receiving.join()
        c.join(name, "c", state_timeout_s=1.0)  # a receives no more
        assert (a.taken, b.taken) == (1, 1)


def test_a_joiner_hears_within_two_seconds_that_its_provider_does_not_receive(caplog):
    name = cluster()
    with members(Log()) as (a,), join(name, "idle", state=Log()) as idle:
        joining = threading.Thread(target=lambda: a.join(name, "a"))
        joining.start()
        wait_until(lambda: len(idle.view.members) == 2)
        wait_until(lambda: "a: waits for the state of idle, whose application has yet to receive" in caplog.text, 2.0)
        wait_until(lambda: idle.recv_batch(0.0) is None and not joining.is_alive())
        assert caplog.text.count("waits for the state of") == 1 and a.group.view.members


def test_a_member_that_cannot_set_the_state_leaves_and_the_others_continue():
    class Stubborn(Log):
        def set_state(self, read):
            raise ValueError("not this one")

    class Slow(Log):
        def set_state(self, read):
            time.sleep(1.8)

    name = cluster()
    with members(Log(), Stubborn(), Slow()) as (a, b, c):
        a.join(name, "a")
        with pytest.raises(ValueError, match="not this one"):
            b.join(name, "b")
        wait_until(lambda: len(a.group.view.members) == 1)
        with pytest.raises(seqcast.JoinTimeout, match=r"set_state took longer than state_timeout_s=0\.8"):
            c.join(name, "c", state_timeout_s=0.8)
        wait_until(lambda: len(a.group.view.members) == 1)
        a.group.send(b"on")
        wait_until(lambda: a.lines == [b"on"])


def test_bad_handlers_and_bad_writes_are_told_to_their_owner(caplog):
    class Text(Log):
        def get_state(self, write):
            self.write = write
            write("text")

    class Coroutine(Log):
        async def get_state(self, write):
            pass

    class Nested(Log):
        def get_state(self, write):
            self.group.recv(1.0)

    for handler in (object(), Coroutine()):
        with pytest.raises(seqcast.UsageError, match=r"state=.*get_state|must be a plain function"):
            join(cluster(), "a", state=handler)
    with pytest.raises(seqcast.ConfigError, match="receive=True"):
        join(cluster(), "a", state=Log(), receive=False)
    for make, words in ((Text, "written as bytes, not str"), (Nested, "cannot receive: they run between two messages")):
        name = cluster()
        with members(make(), Log()) as (a, b):
            a.join(name, "a")
            with pytest.raises(seqcast.JoinTimeout, match=words):
                b.join(name, "b")
            assert "get_state failed; the joiner is told (SC3202)" in caplog.text
            if make is Text:
                with pytest.raises(seqcast.UsageError, match="get_state has returned"):
                    a.write(b"late")


def test_a_group_without_handlers_has_no_state_to_give():
    name = cluster()
    with join(name, "a") as a:
        with pytest.raises(seqcast.JoinTimeout, match="no member of the group was joined with a state handler: "):
            join(name, "b", state=Log())
        with join(name, "c") as c:  # who asks for none gets none
            wait_until(lambda: len(c.view.members) == len(a.view.members) == 2)


def test_the_backlog_is_bounded_and_then_holds_the_senders():
    name = cluster()
    begun, go_on = threading.Event(), threading.Event()

    class Waiting(Log):
        def set_state(self, read):
            super().set_state(read)
            begun.set()
            assert go_on.wait(LIMIT_S)

    with members(Log(), Waiting()) as (a, b):
        a.join(name, "a", order="fifo", deliver_own=False)
        joining = threading.Thread(target=lambda: b.join(name, "b", order="fifo", state_backlog_bytes=1_000_000))
        joining.start()
        assert begun.wait(LIMIT_S)
        with pytest.raises(seqcast.SendTimeout):
            for number in range(100_000):
                a.group.send(b"%07d" % number + bytes(10_000), timeout=0.5)
        go_on.set()
        joining.join()
        wait_until(lambda: len(b.lines) == number)
        assert [int(line[:7]) for line in b.lines] == list(range(number))


KILLED = """
import sys, time, seqcast
class Endless:
    times = 0
    def get_state(self, write):
        self.times += 1
        write(b"0\\0")
        if self.times > 1:
            print("taking", flush=True)
            time.sleep(600)
    def set_state(self, read):
        read()
group = seqcast.join(sys.argv[1], name="a0", interface=sys.argv[2], state=Endless())
print("joined", flush=True)
for message in group:
    pass
"""


@pytest.mark.parametrize("alone", [True, False])
def test_a_provider_that_is_killed_is_replaced_and_unicasts_to_the_joiner_are_not_lost(alone):
    name = cluster()
    process = script(KILLED, name, LOOPBACK)
    with members(Log(), Log()) as (b, c):
        try:
            assert process.stdout.readline() == "joined\n"
            b.join(name, "b")
            if alone:
                b.leave()
            errors = []

            def late():
                try:
                    c.join(name, "c")
                except seqcast.JoinTimeout as error:
                    errors.append(str(error))

            joining = threading.Thread(target=late)
            joining.start()
            assert process.stdout.readline() == "taking\n"
            if not alone:
                wait_until(lambda: len(b.group.view.members) == 3)
                b.group.send(b"to c", to=b.group.view.members[2])
                b.group.send(b"1")
                wait_until(lambda: b.lines == [b"0", b"1"])
            process.kill()
            joining.join(LIMIT_S)
        finally:
            process.kill()
            process.communicate()
        if alone:
            assert len(errors) == 1 and "no member that has the state is left" in errors[0]
        else:
            wait_until(lambda: sorted(c.lines) == [b"0", b"1", b"to c"])
            assert b.taken == 1 and c.lines[:2] == [b"0", b"1"]


def test_asyncio_joins_with_a_state_too():
    async def main():
        name = cluster()
        log = Log()
        async with seqcast.aio.join(name, name="a", interface=LOOPBACK, state=log) as a:
            await a.send(b"1")
            log.lines.append((await a.recv()).payload)
            other = Log()
            receiving = asyncio.create_task(a.recv())
            async with seqcast.aio.join(name, name="b", interface=LOOPBACK, state=other, **PATIENT_JOINER) as b:
                assert other.lines == [b"1"]
                await b.send(b"2")
                assert (await b.recv()).payload == (await receiving).payload == b"2"

    asyncio.run(asyncio.wait_for(main(), 2 * LIMIT_S))


def test_a_member_that_lost_its_provider_in_a_child_process_prints_its_state():
    name = cluster()
    text = """
import sys, seqcast
class Keep:
    def get_state(self, write): write(b"%d" % self.n)
    def set_state(self, read): self.n = int(read())
keep = Keep()
with seqcast.join(sys.argv[1], name="b", interface=sys.argv[2], state=keep) as group:
    print(keep.n)
"""
    with members(Log()) as (a,):
        a.get_state = lambda write: write(b"42")
        a.join(name, "a")
        assert output(script(text, name, LOOPBACK)) == "42\n"
