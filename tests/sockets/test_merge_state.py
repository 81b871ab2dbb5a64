"""States that were separated by a partition are merged on real sockets."""

import json
import threading
import time

import pytest
from members import cluster
from netns import cut_off, network, python

pytestmark = pytest.mark.netns

STORE = """
import json, sys, threading, seqcast

class Store:
    def __init__(self):
        self.data, self.told, self.pad = {}, [], int(sys.argv[3])

    def get_state(self, write):
        write(json.dumps(self.data).encode() + b"\\n")
        write(bytes(self.pad))

    def set_state(self, read):
        self.data = self.parse(read)
        self.told.append("set")

    def merge_state(self, others):
        for other in others:
            self.told.append(sorted(member.name for member in other.members))
            for key, entry in self.parse(other.read).items():
                self.data[key] = max(self.data.get(key, [0, ""]), entry)

    def parse(self, read):
        head, _, pad = read().partition(b"\\n")
        assert len(pad) == self.pad and not pad.strip(b"\\0")
        return json.loads(head)

    def take(self, event):
        if isinstance(event, seqcast.Message):
            number, key, value = event.payload.decode().split()
            self.data[key] = max(self.data.get(key, [0, ""]), [int(number), value])
        elif isinstance(event, seqcast.MergeView):
            self.told.append("view")

    def say(self, group):
        print(json.dumps([len(group.view.members), self.data, self.told]), flush=True)

store = Store()
"""
BLOCKING = """
group = seqcast.join(sys.argv[1], name=sys.argv[2], state=store)

def obey():
    for line in sys.stdin:
        if line.startswith("say"):
            store.say(group)
        else:
            group.send(line.encode())

threading.Thread(target=obey, daemon=True).start()
try:
    for event in group.events():
        store.take(event)
except seqcast.NotMember:
    pass
"""
AWAITED = """
import asyncio, seqcast.aio

async def obey(group):
    while line := await asyncio.to_thread(sys.stdin.readline):
        if line.startswith("say"):
            store.say(group)
        else:
            await group.send(line.encode())

async def main():
    async with seqcast.aio.join(sys.argv[1], name=sys.argv[2], state=store) as group:
        reader = asyncio.create_task(obey(group))
        async for event in group.events():
            store.take(event)

asyncio.run(main())
"""


class Member:
    def __init__(self, place, form, name, member, pad):
        self.process = python(place, "-c", STORE + form, name, member, str(pad), stdin=-1)

    def put(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def say(self):
        self.put("say")
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return json.loads(line)


def until(members, right):
    end = time.monotonic() + 60
    while True:
        said = [member.say() for member in members]
        if right(said) or time.monotonic() > end:
            return said
        time.sleep(0.1)


def _last(told, what):
    return max(at for at, each in enumerate(told) if each == what)


@pytest.mark.parametrize(
    "form, pad",
    [(BLOCKING, 0), *(pytest.param(*each, marks=pytest.mark.long) for each in ((BLOCKING, 5_000_000), (AWAITED, 0)))],
    ids=["blocking-small", "blocking-large", "asyncio"],
)
def test_two_sides_merge_their_states_before_they_receive_from_each_other(network, form, pad):
    name = cluster()
    members = [Member(place, form, name, member, pad) for place, member in zip(network, "abcd", strict=True)]
    watch = threading.Timer(150, lambda: [member.process.kill() for member in members])
    watch.start()
    try:
        until(members, lambda said: all(each[0] == 4 for each in said))
        members[0].put("1 both before")
        until(members, lambda said: all("both" in each[1] for each in said))
        with cut_off(network[2:3]), cut_off(network[3:]):
            until(members, lambda said: [each[0] for each in said] == [2, 2, 1, 1])
            members[0].put("2 left ab")
            members[1].put("5 both ab")
            members[2].put("3 right c")
            members[2].put("4 both c")
            members[3].put("9 alone d")
            until(members, lambda said: [len(each[1]) for each in said] == [2, 2, 2, 2])
        said = until(members, lambda said: all(each[0] == 4 and len(each[1]) == 4 for each in said))
        expected = {"both": [5, "ab"], "left": [2, "ab"], "right": [3, "c"], "alone": [9, "d"]}
        assert [each[1] for each in said] == [expected] * 4
        members[3].put("10 after d")
        said = until(members, lambda said: all("after" in each[1] for each in said))
        for _, _, told in said:  # a state to merge, or to take over, comes before the last view that merges
            assert "view" in told and _last(told, "view") and told[_last(told, "view") - 1] != "view", told
        assert sum(isinstance(each, list) for _, _, told in said for each in told) >= 2
    finally:
        watch.cancel()
        for member in members:
            member.process.kill()
            member.process.communicate()


__all__ = ["network"]
