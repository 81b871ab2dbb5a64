"""An order is added by two files and a line in each registry: here one that is not part of seqcast, ``reversed``, where
the sequencer orders forwarded packets in batches of two members, the second first."""

import os
import subprocess
import sys

import pytest
from project import ROOT

pytest.importorskip("Cython")

NATIVE = """
#include "engine/internal.h"
#include "order/stamping.h"

typedef struct {
    sc_stamping stamping;
    int64_t alone; /* since when only one member has forwards that wait */
} batching;


static void settle_reversed(sc_engine *e, int64_t now) {
    batching *b = e->order.state;
    for (uint32_t n = 0; sc_is_sequencer(e) && !e->cut.gate_closed; n = 0) {
        sc_peer *batch[2];
        for (sc_peer **m = e->peers; m < e->peers + e->view.n && n < 2; m++)
            if (!(*m)->cut.lost && (*m)->forward.queued < (*m)->forward.next) batch[n++] = *m;
        if (n == 1 && !b->alone) b->alone = now;
        if (!n || (n == 1 && now - b->alone < 2000000)) return;
        b->alone = 0;
        sc_tx_close(e, &e->group);
        while (n--) {
            sc_rx_stream *rx = &batch[n]->forward;
            if (!sc_tx_may_insert(e, &e->group, sc_rx_at(e, rx, rx->queued)->len, 0)) return;
            sc_stamping_take(e, batch[n], now);
        }
    }
}

static int64_t deadline_reversed(const sc_engine *e) {
    const batching *b = e->order.state;
    return sc_is_sequencer(e) && !e->cut.gate_closed && b->alone ? b->alone + 2000000 : SC_NEVER;
}

static const sc_order_work work = {.settle = settle_reversed, .deadline = deadline_reversed};

const sc_order_ops sc_order_reversed = {
    .name = "reversed", .state_bytes = sizeof(batching), .begin = sc_stamping_begin, .packed = sc_stamping_packed,
    .accepts = sc_stamping_accepts, .advance = sc_stamping_advance, .finish = sc_stamping_finish,
    .forwarding = &sc_stamping_forwarding, .work = &work, .fits = sc_has_sequencer, .ordered = sc_stamping_ordered,
};
"""

BUILD = """
import sys
import setuptools
from distutils.core import run_setup
made = run_setup("setup.py", ["-q", "build_ext", "-b", sys.argv[1], "-t", sys.argv[1]], "commandline")
made.ext_modules[0].sources.append(sys.argv[1] + "/reversed.c")
made.ext_modules[0].define_macros.append(("SC_ORDERS_MORE(X)", "X(200, sc_order_reversed)"))
made.run_commands()
"""

RUN = """
import sys
import seqcast._native
seqcast._native.__path__.insert(0, sys.argv[1])
from engines import Net
from seqcast.core import orders
from seqcast.sim import Options, World
from seqcast.sim.policies import SEQUENCERS

class Reversed(type(orders.by_name("sequencer"))):
    name, number = "reversed", 200
orders.register(Reversed())
for number, expected in ((200, [b"third", b"second"]), (orders.by_name("sequencer").number, [b"second", b"third"])):
    net = Net(3, sequencer=0, mechanism=number)
    assert net.engines[1].send(b"second") == net.engines[2].send(b"third") == 0
    net.run(10)
    assert [[payload for _, payload in got] for got in net.got] == [expected] * 3, net.got

for seed in range(1, 4):
    faults = {"crashes": 1, "leaves": 1, "restarts": 1, "partitions": seed % 2, "sequencer": SEQUENCERS[seed % 3]}
    world = World(Options(seed=seed, order="reversed", members=4, loss=0.02, rate=400, duration_ns=10**9, **faults))
    result = world.run()
    assert not result.violations, (seed, result.violations)
    assert {node.endpoint.view.mechanism for node in world.nodes if node.endpoint.view} == {"reversed"}
"""


@pytest.fixture
def built(tmp_path):
    """Directory of an engine with that order, under a number of its own."""
    (tmp_path / "reversed.c").write_text(NATIVE)
    settings = os.environ | {"SEQCAST_EXTENSIONS": "engine", "CFLAGS": "-O0"}
    subprocess.run([sys.executable, "-c", BUILD, str(tmp_path)], cwd=ROOT, env=settings, check=True)
    return tmp_path / "seqcast" / "_native"


@pytest.mark.long
def test_members_of_a_plugged_in_order_keep_the_guarantees_of_a_total_order(built):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", RUN, str(built)], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
