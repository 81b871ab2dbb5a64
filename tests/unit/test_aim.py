"""In which order the members get a run of packets of which each gets a copy: native/io/socket.c."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
from kernels import compiled, needs_compiler_and_linux

pytestmark = needs_compiler_and_linux  # for runs
HARNESS = r"""
#include "io/transport.h"
#include "io/socket.c"
static sc_targets targets;
static sc_io io = {.targets = &targets};
static const sc_tx run;
/* Where the copies for `n` targets go, of which `first` spoke last: the places in `out`. */
void aim(uint32_t n, uint32_t first, uint32_t *out) {
    sc_aimed aimed[SC_MEMBERS_MAX];
    targets.n = n;
    targets.first = first;
    sc_aim_at_each(&io, &run, SC_NO_FD, n, aimed);
    for (uint32_t i = 0; i < n; i++) out[i] = (uint32_t)(aimed[i].to - targets.to);
}
"""


@pytest.fixture(scope="module")
def aim(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int], list[int]]:
    library = compiled(tmp_path_factory.mktemp("aim"), HARNESS)

    def places(n: int, first: int) -> list[int]:
        out = (ctypes.c_uint32 * n)()
        library.aim(n, first, out)
        return list(out)

    return places


def test_the_last_speaker_gets_its_copy_before_the_others_which_take_turns(aim):
    orders = [aim(4, 2) for _ in range(4)]
    assert all(order[0] == 2 and sorted(order) == [0, 1, 2, 3] for order in orders)
    assert {order[1] for order in orders} == {0, 1, 3}


def test_if_nobody_spoke_all_take_turns(aim):
    assert sorted(aim(3, 3)[0] for _ in range(3)) == [0, 1, 2]
