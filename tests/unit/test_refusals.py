"""Datagrams that the kernel refuses: native/io/socket.c, with a kernel that refuses to cut runs to one address into
packets (UDP_SEGMENT), or whose buffer is full."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable, Iterator

import pytest
from kernels import compiled, needs_compiler_and_linux

pytestmark = needs_compiler_and_linux  # for such runs
HARNESS = r"""
#include "io/transport.h"
static int refused, runs, full, waits;
static int kernel(int fd, struct mmsghdr *messages, unsigned n, int flags) {
    const struct msghdr *first = &messages[0].msg_hdr;
    const struct sockaddr_in *to = first->msg_name;
    (void)fd, (void)n, (void)flags;
    if (full) {
        errno = EAGAIN;
        return -1;
    }
    if (first->msg_controllen == 0) return 1;
    runs++;
    if (ntohs(to->sin_port) != refused) return 1;
    errno = EINVAL;
    return -1;
}
static int await(struct pollfd *fds, nfds_t n, int ms) {
    (void)fds, (void)n, (void)ms;
    waits++;
    return 0;
}
#define sendmmsg kernel
#define poll await
#include "io/socket.c"
static sc_io io;
static uint8_t bytes[300];
static sc_tx run = {.lane = SC_LANE_UNICAST, .n = 3, .segment = 100, .bytes = 300};
void begin(void) {
    memset(&io, 0, sizeof io);
    io.config.family = 4;
    io.config.send_batch = 64;
    io.gso = io.mmsg = 1;
    io.counters = &io.uncovered;
    for (int i = 0; i < 3; i++) run.p[i] = bytes + 100 * i, run.len[i] = 100;
}
void refuse(int port) { refused = port; }
/* How many runs the kernel was given. */
int send_run(int port) {
    sc_sockaddr at = {.v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)}};
    sc_address to;
    sc_address_from(&to, &at);
    sc_aimed aimed = {.run = &run, .to = &to, .by = SC_NO_FD}; /* one by one they go nowhere */
    runs = 0;
    sc_send_aimed(&io, &aimed, 1);
    return runs;
}
/* How often the thread waits for room in a full buffer for a run. */
int waits_for(int unheard) {
    run.unheard = unheard;
    waits = 0;
    full = 1;
    send_run(4002);
    full = run.unheard = 0;
    return waits;
}
int last_code(void) { return (int)sc_load(&io.last_code); }
int lost(void) { return (int)io.counters->send_errors; }
int refusals(void) { return (int)io.counters->gso_refused; }
int uses_runs(void) { return (int)sc_load(&io.gso); }
"""
REFUSED, OTHER = 4001, 4002
WAIT = 256
"""Runs that are sent one by one after the first refusal."""


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compiled(tmp_path_factory.mktemp("refusals"), HARNESS)


@pytest.fixture
def kernel(harness: ctypes.CDLL) -> Iterator[ctypes.CDLL]:
    harness.begin()
    harness.refuse(REFUSED)
    return harness


def until_a_run(send_run: Callable[[int], int]) -> int:
    """How many runs to the address are sent one by one before the kernel is given one."""
    n = 0
    while n < 10_000 and not send_run(REFUSED):
        n += 1
    return n


def test_a_path_that_refuses_runs_costs_others_none(kernel):
    assert kernel.send_run(REFUSED) == 1 and kernel.send_run(REFUSED) == 0
    assert [kernel.send_run(OTHER) for _ in range(10)] == [1] * 10
    assert kernel.refusals() == 1 and kernel.uses_runs()


def test_runs_are_tried_again_on_a_path_that_refused_them_ever_more_seldom(kernel):
    assert kernel.send_run(REFUSED) == 1
    assert [until_a_run(kernel.send_run) for _ in range(3)] == [WAIT, 2 * WAIT, 4 * WAIT]


def test_a_path_that_takes_runs_again_gets_them_from_then_on(kernel):
    kernel.send_run(REFUSED)
    kernel.refuse(0)
    assert until_a_run(kernel.send_run) == WAIT
    assert [kernel.send_run(REFUSED) for _ in range(10)] == [1] * 10


def test_a_full_buffer_of_datagrams_to_members_alone_is_waited_for_and_told(kernel):
    assert kernel.waits_for(1) == 0 and kernel.lost() == 0 and kernel.last_code() == 0
    assert kernel.waits_for(0) == 1 and kernel.lost() == 3 and kernel.last_code() == errno.EAGAIN
