"""The CRC32C kernels: known vectors, and the processor's instructions against the table."""

import platform
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqcast._native import bare

KERNELS = [bare.crc32c, bare.crc32c_table]

# RFC 3720, appendix B.4, and the check value of the catalogue of CRC algorithms.
VECTORS = [
    (b"", 0x00000000),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(reversed(range(32))), 0x113FDB5C),
    (bytes.fromhex("01c00000" + "00" * 12 + "14000000" + "00000400" + "00000014" + "00000018" + "28" + "00" * 7
                   + "02" + "00" * 7), 0xD9963A56),
]  # fmt: skip


def bit_by_bit(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("data", "crc"), VECTORS)
def test_known_vectors(kernel, data, crc):
    assert kernel(data) == crc


@given(st.binary(max_size=300))
def test_table_is_the_definition(data):
    assert bare.crc32c_table(data) == bit_by_bit(data)


def test_kernel_equals_table_at_every_length_and_alignment():
    data = np.frombuffer(random.Random(1).randbytes(8192), dtype=np.uint8)
    for start in range(8):
        for length in (*range(700), 1472 - start, 6143, 6144, 6152, 6153, 8192 - start):
            piece = data[start : start + length]
            assert bare.crc32c(piece, start) == bare.crc32c_table(piece, start), (start, length)


@given(st.integers(0, 66000), st.integers(0, 15), st.integers(0, 2**32 - 1), st.integers(0, 2**32))
def test_kernel_equals_table_for_any_length_alignment_and_start(length, start, crc, seed):
    data = np.frombuffer(random.Random(seed).randbytes(length + start), dtype=np.uint8)[start:]
    assert bare.crc32c(data, crc) == bare.crc32c_table(data, crc)


@given(st.binary(max_size=5000), st.integers(0, 5000))
def test_a_crc_goes_on_where_the_last_one_stopped(data, at):
    assert bare.crc32c(data[at:], bare.crc32c(data[:at])) == bare.crc32c(data)


def test_the_kernel_of_this_processor_is_used():
    kernel = bare.crc32c_kernel()
    assert kernel in ("sse4.2+pclmul", "armv8-crc", "table")
    if platform.system() == "Linux" and platform.machine() == "x86_64":
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = next((line.split() for line in file if line.startswith("flags")), [])
        assert kernel == ("sse4.2+pclmul" if {"sse4_2", "pclmulqdq"} <= set(flags) else "table")
