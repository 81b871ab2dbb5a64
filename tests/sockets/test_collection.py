"""The garbage collector takes groups, engines, drivers and batches that are in cycles in any order: an
object to which another gives something back at its end must still exist."""

import pytest
from members import LOOPBACK, cluster, output, script

TEXT = """
import gc, sys
import seqcast
from seqcast.config import Config
from seqcast.net.runner import Runner

gc.disable()  # only where it is asked for


def cycle(*things):
    ring = [*things]
    ring.append(ring)


def group(number):
    return seqcast.join(f"{sys.argv[1]}-{number}", name="a", interface=sys.argv[2], order="fifo")


alive = []
for number in range(4):
    a = group(number)
    sent = [b"%d-%d " % (number, i) * 100 for i in range(300)]
    a.send_many(sent)
    first = a.recv(10).payload            # so that the next batch is the rest of one
    batches = [a.recv_batch(10)]
    while sum(map(len, batches)) < 299:
        batches.append(a.recv_batch(10))
    a.send_many(sent)
    whole = a.recv_batch(10)
    alive.append((sent, first, batches, whole, [batch.data for batch in batches], whole.offsets))
    a.send_many(sent)
    a.recv(10), a.recv_batch(10)
    a.leave()
    cycle(a, a._driver, a._runner.engine, batches[-1]._rest(), whole._rest(), whole.data)
    alone = group(f"{number}-alone")
    alone.send(b"so that its driver holds memory of the engine's")
    alone.recv(10), alone.leave()
    cycle(alone._driver)
    vars(alone._runner).clear(), vars(alone).clear()      # nobody but the driver has the engine now
    unopened = Runner(f"{sys.argv[1]}-open", "b", "fifo", Config(interface=sys.argv[2]))  # its driver is never closed
    cycle(unopened.engine, unopened.driver, unopened)
    del a, alone, unopened, batches, whole
    assert gc.collect() > 0
    seqcast.join(f"{sys.argv[1]}-after", name="c", interface=sys.argv[2]).leave()  # takes the memory that is free again
    gc.collect()

for sent, first, batches, whole, data, offsets in alive:
    assert [first, *(payload for batch in batches for payload in batch)] == sent
    assert b"".join(part.tobytes() for part in data).endswith(b"".join(sent[1:]))
    assert list(whole) == sent[: len(whole)] and len(offsets) == len(whole) + 1
del sent, first, batches, whole, data, offsets
cycle(*alive)
del alive
gc.collect()
print("good")
"""


@pytest.mark.long
def test_the_collector_takes_groups_drivers_and_batches_in_any_order(monkeypatch):
    monkeypatch.setenv("MALLOC_PERTURB_", "165")  # freed memory is overwritten (glibc), so that its use is seen
    assert output(script(TEXT, cluster(), LOOPBACK)) == "good\n"
