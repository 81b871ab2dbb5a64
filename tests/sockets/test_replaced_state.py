"""A member that was paused for so long that the others went on alone takes their state anew."""

import json
import re
import signal
import threading
import time

import pytest
from members import LOOPBACK, cluster, script

COUNTING = """
import json, logging, sys, threading, seqcast
logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
totals, calls = {}, []

class Totals:
    def get_state(self, write):
        write(json.dumps(totals).encode())

    def set_state(self, read):
        totals.clear()
        totals.update(json.loads(read()))
        calls.append("set")

def obey():
    for line in sys.stdin:
        if line.startswith("say"):
            print(json.dumps([len(group.view.members), totals, calls]), flush=True)
        else:
            group.send(line.encode())

group = seqcast.join(sys.argv[1], name=sys.argv[3], interface=sys.argv[2], state=Totals(), suspect_s=0.5)
threading.Thread(target=obey, daemon=True).start()
for event in group.events():
    if isinstance(event, seqcast.Message):
        name, amount = event.payload.split()
        totals[name.decode()] = totals.get(name.decode(), 0) + int(amount)
    elif isinstance(event, seqcast.MergeView):
        calls.append([member.name for member in event.state_from.members])
"""
LIMIT_S = 60


class Member:
    def __init__(self, name, member):
        self.process = script(COUNTING, name, LOOPBACK, member)

    def put(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def say(self):
        self.put("say")
        return json.loads(self.process.stdout.readline())


def until(members, right):
    end = time.monotonic() + LIMIT_S
    while True:
        said = [member.say() for member in members]
        if right(said) or time.monotonic() > end:
            return said
        time.sleep(0.1)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP here")
def test_a_member_that_was_paused_has_the_state_of_the_others_again_and_both_sides_say_so():
    name = cluster()
    members = []
    watch = threading.Timer(2 * LIMIT_S, lambda: [member.process.kill() for member in members])
    watch.start()
    try:
        for letter in "abc":
            members.append(Member(name, letter))
            until(members, lambda said: all(each[0] == len(members) for each in said))
        for member in members:
            member.put("x 1")
        until(members, lambda said: all(each[1] == {"x": 3} for each in said))
        paused, others = members[0], members[1:]  # the first, whose state was the group's
        paused.process.send_signal(signal.SIGSTOP)
        until(others, lambda said: all(each[0] == 2 for each in said))
        others[0].put("y 7")
        until(others, lambda said: all(each[1] == {"x": 3, "y": 7} for each in said))
        paused.process.send_signal(signal.SIGCONT)
        until(members, lambda said: all(each[0] == 3 and len(each[1]) == 2 for each in said))
        paused.put("x 1")
        said = until(members, lambda said: all(each[1].get("x") == 4 for each in said))
        assert [each[1] for each in said] == [{"x": 4, "y": 7}] * 3
        assert said[0][2] == ["set", ["b", "c"]]  # before the view
        assert [each[2] for each in said[1:]] == [["set", ["b", "c"]]] * 2  # when they joined
    finally:
        watch.cancel()
        for member in members:
            member.process.send_signal(signal.SIGCONT)
            member.process.terminate()
        errors = [member.process.communicate()[1] for member in members]
    for letter, text in zip("abc", errors, strict=True):
        said = r"take over that of \[b, c\], and entries that only .* \[a\] had are lost \(SC3210\)"
        assert re.search(f"WARNING {letter}: .* {said}", text)
