"""native/seal/: the memory of secrets, and the end of the numbers, with toy ciphers."""

from __future__ import annotations

import ctypes
import os
import random
import time
from ctypes import POINTER, byref, c_char_p, c_size_t, c_uint, c_uint8, c_uint64, c_void_p

import pytest
from engines import make_engine
from halves import first_quick
from kernels import compiled
from memory import FORGOTTEN, contents, needs_smaps
from project import ROOT

from seqcast._native.engine import locked
from seqcast.config.keys import Seal
from seqcast.sim.seal import simulated_seal

HARNESS = r"""
#include <sys/mman.h>
static long left = -1; /* bytes other than zero in the memory that was given back last */
static int give_back(void *p, size_t n) {
    left = 0;
    for (size_t i = 0; i < n; i++) left += ((uint8_t *)p)[i] != 0;
    return munmap(p, n);
}
#define munmap give_back
#include "seal/secret.c"
#include "seal/seal.c"
#include "../tests/fuzz/toy_ciphers.h"

static void draw(uint8_t *p, unsigned long long n) { memset(p, 7, n); }
sc_seal *made(uint64_t own, const sc_seal_secret *from, size_t n) {
    sc_cipher_library library = toy_library(draw);
    return sc_seal_new(&library, from, n, own);
}
void count_from(sc_seal *s, uint64_t n) { s->sealings[0] = s->sealings[1] = n; }
int holds(const sc_seal *s, const uint8_t *what, size_t n) {
    return memmem(s->secrets, sizeof *s->secrets, what, n) != NULL;
}
long left_over(void) { return left; }
"""
MARK = 3
DATA, HEARTBEAT = 1, 8
"""Kinds of datagrams that have a seqno, and that do not."""


class Secret(ctypes.Structure):
    _fields_ = (("mark", c_uint8), ("secret", c_uint8 * 32))


def secrets(*bytes_: bytes) -> ctypes.Array[Secret]:
    return (Secret * len(bytes_))(*(Secret(MARK + i, (c_uint8 * 32)(*each)) for i, each in enumerate(bytes_)))


A, B, C = (bytes([each]) * 32 for each in b"ABC")


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    others = [*ROOT.glob("native/hash/*.c"), ROOT / "native/seal/crc.c"]
    functions = compiled(tmp_path_factory.mktemp("seal"), "#include <stdint.h>\n" + HARNESS, others)
    functions.made.argtypes, functions.made.restype = [c_uint64, POINTER(Secret), c_size_t], c_void_p
    functions.count_from.argtypes = [c_void_p, c_uint64]
    functions.holds.argtypes = [c_void_p, c_char_p, c_size_t]
    functions.left_over.restype = ctypes.c_long
    functions.sc_seal_free.argtypes = functions.sc_seal_forget.argtypes = functions.sc_seal_begin.argtypes = [c_void_p]
    functions.sc_seal_know.argtypes = [c_void_p, c_uint64, c_uint, c_char_p]
    functions.sc_seal_enter.argtypes = [c_void_p, c_uint64]
    functions.sc_seal_refile.argtypes = [c_void_p, POINTER(Secret), c_size_t]
    functions.sc_seal_close.argtypes = [c_void_p, c_char_p, c_char_p, c_size_t, c_uint, c_uint64]
    functions.sc_seal_check.argtypes = [c_void_p, c_char_p, POINTER(c_size_t), c_uint64, POINTER(c_uint64)]
    return functions


# ---- the end of the numbers


@pytest.mark.parametrize("kind", first_quick([DATA, HEARTBEAT]))
@pytest.mark.parametrize("tag", [0, 5], ids=["by the secret of the file", "by that of a view"])
def test_at_the_end_of_the_numbers_nothing_more_is_sealed_rather_than_something_that_nobody_opens(c, kind, tag):
    one, other = c.made(1, secrets(A), 1), c.made(2, secrets(A), 1)
    for seal in (one, other):
        if tag:
            assert c.sc_seal_know(seal, tag, 1, B) == c.sc_seal_enter(seal, tag) == 0
    plain = bytes(2) + bytes([kind]) + bytes(13) + (1).to_bytes(8, "little") + tag.to_bytes(8, "little") + bytes(40)
    numbers = []
    c.count_from(one, (1 << 48) - 2)
    for _ in range(4):
        c.sc_seal_begin(one)
        sealed = ctypes.create_string_buffer(len(plain) + 40)
        if c.sc_seal_close(one, sealed, plain, len(plain), 0, 0) != 0:
            continue
        size, opened = c_size_t(len(plain) + 40), (c_uint64 * 6)()
        assert c.sc_seal_check(other, sealed, byref(size), 1, opened) == 0 and size.value == len(plain)
        assert list(opened[1:]) == [tag, tag, tag, 0, 0]
        numbers.append(opened[0])
    assert numbers == [(1 << 48) - 2, (1 << 48) - 1]
    for seal in (one, other):
        c.sc_seal_free(seal)


# ---- memory


LEAVING = r"""
#include "../tests/fuzz/toy_ciphers.h"

/* As ciphers of a library do. */
static uint8_t *left_at, left_key[TOY_KEY];
__attribute__((noinline)) static void leave(const uint8_t *key) {
    volatile uint8_t room[3000];
    for (size_t i = 0; i < sizeof room; i++) room[i] = key[i % TOY_KEY];
    left_at = (uint8_t *)room;
    memcpy(left_key, key, TOY_KEY);
}
int seal(uint8_t *c, unsigned long long *c_n, const uint8_t *m, unsigned long long n, const uint8_t *ad,
         unsigned long long ad_n, const uint8_t *unused, const uint8_t *nonce, const uint8_t *key) {
    leave(key);
    return toy_seal_16(c, c_n, m, n, ad, ad_n, unused, nonce, key);
}
int open(uint8_t *m, unsigned long long *m_n, uint8_t *unused, const uint8_t *c, unsigned long long n,
         const uint8_t *ad, unsigned long long ad_n, const uint8_t *nonce, const uint8_t *key) {
    leave(key);
    return toy_open_16(m, m_n, unused, c, n, ad, ad_n, nonce, key);
}
int hash(uint8_t *out, size_t n, const uint8_t *in, unsigned long long in_n, const uint8_t *key, size_t key_n,
         const uint8_t *salt, const uint8_t *person) {
    leave(key);
    return toy_hash(out, n, in, in_n, key, key_n, salt, person);
}
void chance(uint8_t *p, unsigned long long len) { memset(p, 7, len); }
int left(void) {
    int n = 0;
    for (int i = 0; i < 3000; i++) n += left_at[i] == left_key[i % TOY_KEY];
    return n;
}
"""


@pytest.mark.parametrize("what", ["sends", "receives", "knows", "reads the file again"])
def test_no_key_stays_on_the_stack_where_a_cipher_has_left_it(tmp_path, what):
    """The stack of a thread is part of a core dump, and may be swapped out."""
    functions = compiled(tmp_path, LEAVING, [*ROOT.glob("native/hash/*.c"), ROOT / "native/seal/crc.c"])
    at = {name: ctypes.cast(functions[name], c_void_p).value for name in ("seal", "open", "hash", "chance")}
    ciphers = ((at["seal"], at["open"]), *[(0, 0)] * 3)
    one, other = (
        make_engine(number, seal=Seal(ciphers, at["hash"], at["chance"], ((3, random.Random(1).randbytes(32)),)))
        for number in (1, 2)
    )
    one.control_send(b"x")
    sent = one.transmit(1)
    if what == "receives":
        assert other.receive(sent[0][2], b"\1", 1) == 1
    elif what == "knows":
        one.know(5, bytes(range(32)), 0)
    elif what == "reads the file again":
        one.refile([(4, bytes(range(32)))])
    assert functions.left() < 300


def test_a_secret_that_is_replaced_or_forgotten_is_overwritten_and_all_are_at_the_end(c):
    seal = c.made(1, secrets(A), 1)
    assert c.holds(seal, A, 32)
    c.sc_seal_refile(seal, secrets(B), 1)
    assert c.holds(seal, B, 32) and not c.holds(seal, A, 32)
    for tag, secret in ((1, A), (2, C)):
        c.sc_seal_know(seal, tag, 1, secret)
    c.sc_seal_enter(seal, 2)
    assert c.holds(seal, A, 32) and c.holds(seal, C, 32)
    c.sc_seal_forget(seal)
    assert c.holds(seal, C, 32) and not c.holds(seal, A, 32)
    c.sc_seal_free(seal)
    assert c.left_over() == 0


def with_secret(secret: bytes) -> list[tuple[int, int, set[str]]]:
    """The mappings of this process that children do not get, with this secret in them."""
    return [(begin, end, flags) for begin, end, flags, data in contents(flag=FORGOTTEN) if secret in data]


@needs_smaps
def test_secrets_of_an_engine_lie_in_memory_that_is_locked_not_dumped_and_wiped_in_children_until_the_engine_ends():
    import resource

    view = random.Random(time.time_ns()).randbytes(32)
    assert with_secret(view) == []
    engine = make_engine(1, seal=simulated_seal(random.Random(1), 20))
    engine.know(5, view, 1)
    ((begin, end, flags),) = with_secret(view)
    assert {"dd", "wf"} <= flags
    most = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    assert "lo" in flags or -1 < most < 4 * (end - begin), "mlock"
    child = os.fork()
    if child == 0:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            memory.seek(begin)
            os._exit(any(memory.read(end - begin)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert with_secret(view), "the parent has them still"
    del engine
    assert with_secret(view) == []


@needs_smaps
def test_a_secret_that_python_holds_lies_in_such_memory_until_the_last_reference_to_a_part_of_it_is_gone():
    rng = random.Random(time.time_ns())
    whole = locked(3 * 32)
    assert bytes(whole) == bytes(96) and whole.nbytes == 96 and not whole.readonly
    whole[32:64] = secret = rng.randbytes(32)
    part = whole[32:64]
    del whole
    ((_, _, flags),) = with_secret(secret)
    assert {"dd", "wf"} <= flags and part == secret
    assert secret.hex() not in repr(part)
    del part
    assert with_secret(secret) == []
    for n in (0, -1):
        with pytest.raises(ValueError, match="at least one byte"):
            locked(n)
