"""Simulated guard connections: they reveal a dead process, and never make a living one suspected."""

from unittest import mock

import pytest
from sim_stage import Stage

from seqcast.core.machines.guard import Line
from seqcast.sim import Options, simulate
from seqcast.sim.options import MS, SECOND
from seqcast.sim.process import Process


@pytest.mark.parametrize("guard", [True, False])
def test_a_crash_is_known_by_guard_connections_if_no_closed_port_shows_it(guard):
    with mock.patch.object(Process, "refused", lambda *_: None):  # ICMP is dropped
        stage = Stage(guard=guard)
        stage.group("a", "b", "c")
        stage.until(1000)
        a, b, c = stage.nodes
        a.crash()
        stage.until(1300)
    assert [len(node.endpoint.view.members) for node in (b, c)] == ([2, 2] if guard else [3, 3])


@pytest.mark.long
def test_connections_that_break_and_calls_that_are_refused_exclude_nobody():
    taken = set()
    for seed in range(1, 9):
        options = Options(seed=seed, members=5, guard=True, duration_ns=2 * SECOND, spread_ns=50 * MS, rate=20)
        assert options.calm
        result = simulate(options)
        assert not result.violations, f"{options}: {result.violations[0]}"
        taken |= {str(edge) for edge in result.edges if edge.machine == Line.TABLE.name}
    for edge in ("guard line: REFUSED, of_member in CHECKING", "guard line: CONNECTED in CHECKING"):
        assert edge in taken
