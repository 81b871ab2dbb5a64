"""Mistakes that type checkers must see, one in each line that says so, and nothing else (tests/style/test_types.py)."""

import seqcast


def plain(group: seqcast.Group, member: seqcast.Member) -> None:
    seqcast.join("c", interfce="lo")  # mistake
    seqcast.join("c", order="lifo")  # mistake
    seqcast.join("c", heartbeat_s="soon")  # mistake
    seqcast.join("c", partition="majority")  # mistake
    seqcast.join("c", "a")  # mistake
    seqcast.join(b"c")  # mistake
    seqcast.join("c", config={"port": 1})  # mistake
    seqcast.Config().replace(interfce="lo")  # mistake
    seqcast.Config().replace(partition="majority")  # mistake
    group.send("text")  # mistake
    group.send(b"x", to=1)  # mistake
    group.send(b"x", timeout="1")  # mistake
    group.send_many("text")  # mistake
    group.send_many(["text"])  # mistake
    group.send_batch("text", [0, 4])  # mistake
    group.send_batch(b"text", ["0", "4"])  # mistake
    print(group.recv().payload)  # mistake
    group.wait_consumed("1")  # mistake
    group.consumed = 1  # mistake
    member.name = "b"  # mistake
    group.leave(now=True)  # mistake
    seqcast.jion("c")  # mistake


async def awaited(group: seqcast.aio.Group) -> None:
    seqcast.aio.join("c", interfce="lo").close()  # mistake
    seqcast.aio.join("c", order="lifo").close()  # mistake
    await group.send("text")  # mistake
    await group.send_many(["text"])  # mistake
    await group.recv(timeout="1")  # mistake
    print((await group.recv()).payload)  # mistake
    with group.suspended():  # mistake
        pass
