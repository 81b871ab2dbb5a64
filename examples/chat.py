"""A chat: everyone sees the same lines in the same order, and who comes and goes.

python examples/chat.py ann        and in another terminal: bob
"""

import sys
import threading

import seqcast


def show(group):
    for event in group.events():
        if isinstance(event, seqcast.Message):
            print(f"{event.sender}: {event.payload.decode()}", flush=True)
        elif isinstance(event, seqcast.View):
            print(f"-- here: {', '.join(member.name for member in event)}", flush=True)


with seqcast.join("chat", name=sys.argv[1]) as group:
    threading.Thread(target=show, args=(group,), daemon=True).start()
    for line in sys.stdin:
        group.send(line.strip().encode())
