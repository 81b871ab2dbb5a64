"""One process of a group under chaos: ``python -m chaos.member TASK``, the task as JSON.

The member joins, sends numbered messages, journals and checks its deliveries, and reports its events to its parent in
lines of JSON on standard output. After an exclusion the same object joins again (``rejoin=True``). Commands come in
lines on standard input: ``quiet`` (send no more), ``mark`` (send a last message; tell when that of each member is
here), ``leave``; its end means ``leave``.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import struct
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import seqcast

HEAD = struct.Struct("<QQQ")  # sender's id, its counter, 1 in a last message
BURST_S = 0.01
USED_S = 2.0
STALL_S = 0.2
"""A member that is not run for this long is half way to being taken for dead."""
_output = threading.Lock()


def payload(sender: int, counter: int, last: bool, length: int) -> bytes:
    """A message that can be checked to be whole: its filler follows from its head."""
    return HEAD.pack(sender, counter, last) + filler(counter, length)


def filler(counter: int, length: int) -> bytes:
    """``length`` bytes that no other counter has, but for very short ones."""
    unit = counter.to_bytes(8, "little")
    return (unit * (length // 8 + 1))[:length]


def say(event: str, **values: Any) -> None:
    """One line to the parent, from any thread."""
    with _output:
        print(json.dumps({"event": event, "at_ns": time.monotonic_ns(), **values}), flush=True)


def watch() -> None:
    """Tells when the machine did not run this process: a thread that only sleeps comes late, and no other thread has
    used the time, as one that keeps the GIL and computes would have."""
    while True:
        begun, used = time.monotonic(), time.process_time()
        time.sleep(STALL_S / 4)
        late = time.monotonic() - begun - STALL_S / 4 - (time.process_time() - used)
        if late > STALL_S:
            say("stalled", seconds=late)


def tell_used(process: Process) -> None:
    """Tells now and then the sizes in this process that must not grow, until no more is sent (closing a journal takes
    memory); after that, whether it is still delivering."""
    begin = time.monotonic()
    while not process.quiet.wait(USED_S):
        if (life := process.life) is None:
            continue
        counters = life.group.counters()
        resident, mapped = map(int, Path("/proc/self/statm").read_text().split()[1:3])
        say(
            "used",
            age_s=time.monotonic() - begin,
            memory=(resident - mapped) * os.sysconf("SC_PAGE_SIZE"),  # pages of files are the kernel's to drop
            fds=len(os.listdir("/proc/self/fd")),
            threads=threading.active_count(),
            slabs=counters["slabs_in_use"],
            segments=counters.get("journal_segments", 0),
        )
    told = -1
    while True:
        time.sleep(USED_S)
        if (life := process.life) is not None and life.delivered != told:
            told = life.delivered
            say("delivering", delivered=told)


class Life:
    """One incarnation: its sender, and its deliveries."""

    def __init__(self, group: seqcast.Group, rate: int) -> None:
        self.group, self.rate, self.me = group, rate, group.member.id
        self.over = False  # excluded: no more sends
        self.rng = random.Random(self.me)
        self.sent = self.own = self.missing = self.delivered = 0
        self.last_own = (-1, 0)  # counter and packet seqno of our own message that was delivered last
        self.gaps: list[tuple[int, int]] = []  # packet seqnos between which messages of ours are missing
        self.lost: list[tuple[int, int]] = []  # ranges of packet seqnos that were reported as delivered by nobody
        self.streams: dict[int, tuple[int, int]] = {}  # in this view, by sender: messages, and a sum over them
        self.order = 0  # a sum over all messages of this view, in their order
        self.marked: set[int] = set()  # whose last message is here
        self.view: seqcast.View | None = None

    def send(self, last: bool = False) -> None:
        """Sends one message, most of them small, a few of them many packets long."""
        length = self.rng.choice((0, 30, 100, 200)) if self.rng.random() < 0.98 else self.rng.randrange(60_000)
        number, self.sent = self.sent, self.sent + 1  # before the delivery to ourselves
        self.group.send(payload(self.me, number, last, length))

    def take(self, event: Any) -> None:
        """Takes in the deliveries."""
        if isinstance(event, seqcast.Message):
            self.message(event)
        elif isinstance(event, seqcast.View):
            self.view = event
            self.streams, self.order, self.marked = {}, 0, set()
            view_id = event.view_id
            say(
                "view",
                view=[view_id.counter, f"{view_id.coordinator:x}", f"{view_id.tag:x}"],
                members=[member.name for member in event.members],
                kind=type(event).__name__,
            )
        else:
            if isinstance(event, seqcast.Lost) and event.missed_by is None and event.last_seqno:
                self.lost.append((event.first_seqno, event.last_seqno))
            say(type(event).__name__.lower(), text=str(event)[:500])

    def message(self, message: seqcast.Message) -> None:
        data, me = message.payload, self.me
        sender, counter, last = HEAD.unpack_from(data)
        if sender != message.sender.id or data[HEAD.size :] != filler(counter, len(data) - HEAD.size):
            say("wrong", text=f"from {message.sender}: {len(data)} bytes, {data[:40]!r}")
        self.delivered += 1
        if sender == me:
            self.own += 1
            if counter > self.last_own[0] + 1:
                self.gaps.append((self.last_own[1], message.seqno))
                self.missing += counter - self.last_own[0] - 1
            self.last_own = counter, message.seqno
        count, total = self.streams.get(sender, (0, 0))
        self.streams[sender] = count + 1, zlib.crc32(data, total)
        self.order = zlib.crc32(data[: HEAD.size], self.order)
        if last:
            self.marked.add(sender)
            self.tell_tally()

    def tell_tally(self) -> None:
        """When the last message of each member is here, so are all before."""
        assert self.view is not None
        if self.marked >= {member.id for member in self.view.members}:
            say(
                "tally",
                tag=f"{self.view.view_id.tag:x}",
                streams={f"{sender:x}": stream for sender, stream in sorted(self.streams.items())},
                order=self.order,
                sent=self.sent,
                own=self.own,
                missing=self.missing,
                unreported=[gap for gap in self.gaps if not any(lo <= gap[1] and gap[0] <= hi for lo, hi in self.lost)],
                delivered=self.delivered,
            )


class Process:
    """Joins, until the first attempt succeeds: after an exclusion the group does so itself. Leaves when told to."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.life: Life | None = None
        self.quiet, self.leaving = threading.Event(), threading.Event()
        self.sending = threading.Lock()  # while a burst goes out

    def run(self) -> None:
        threading.Thread(target=self.obey, daemon=True).start()
        threading.Thread(target=tell_used, args=(self,), daemon=True).start()
        while not self.leaving.is_set():
            try:
                group = seqcast.join(
                    self.task["cluster"],
                    name=self.task["name"],
                    order=self.task["order"],
                    journal=self.task["journal"],
                    **{"journal_payload": "hash", "interface": "eth0", "rejoin": True, **self.task["settings"]},
                )
            except seqcast.JoinTimeout as error:
                say("not_joined", text=str(error))
                continue
            with group:
                if self.life is None:  # joining loads modules, which takes time
                    threading.Thread(target=watch, daemon=True).start()
                life = self.live(group)
                if self.leaving.is_set():  # told so during the join
                    break
                with contextlib.suppress(seqcast.NotMember):
                    for event in group.events():
                        if isinstance(event, seqcast.Rejoined):
                            life = self.live(group)
                            continue
                        life.take(event)
                        if isinstance(event, seqcast.Excluded):
                            with self.sending:
                                life.over = True
                            say("ended", graceful=False, delivered=life.delivered, counters=group.counters())
                if not self.leaving.is_set():  # this ends the process, and so the scenario
                    raise RuntimeError(f"{group.view}: the events ended, and nobody had this member leave")
                counters = group.counters()
            say("ended", graceful=group.leave(), delivered=life.delivered, counters=counters)

    def live(self, group: seqcast.Group) -> Life:
        """Begins the life of an incarnation, which sends on a thread of its own."""
        life = self.life = Life(group, self.task["rate"])
        say("joined", id=f"{life.me:x}")
        threading.Thread(target=self.send, args=(life,), daemon=True).start()
        return life

    def send(self, life: Life) -> None:
        """Sends at the rate, in bursts, while nobody said ``quiet``."""
        burst = max(1, round(life.rate * BURST_S))
        pause = burst / life.rate
        try:
            while not (self.quiet.is_set() or self.leaving.is_set()):
                with self.sending:
                    if life.over:
                        return
                    for _ in range(burst):
                        life.send()
                time.sleep(pause)
        except seqcast.SeqcastError:
            return  # excluded, or left: the receiver hears of that, too

    def obey(self) -> None:
        """Carries out the commands of standard input."""
        for line in sys.stdin:
            match line.strip():
                case "quiet":
                    self.quiet.set()
                    with self.sending:
                        say("quiet")
                case "mark":
                    assert self.life is not None
                    try:
                        self.life.send(last=True)
                    except seqcast.SeqcastError as error:
                        say("unmarked", text=str(error))
                case "leave":
                    break
        self.quiet.set()
        self.leaving.set()
        if self.life is not None:
            with self.sending:
                self.life.group.leave()


if __name__ == "__main__":
    Process(json.loads(sys.argv[1])).run()
