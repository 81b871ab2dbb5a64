"""The CRC32C kernels: known vectors, and those of the processor's instructions against the table."""

import platform
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqcast._native import bare

KERNELS = range(len(bare.crc32c_kernels()))
TABLE = KERNELS[-1]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=bare.crc32c_kernels())

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


@every_kernel
@pytest.mark.parametrize(("data", "crc"), VECTORS)
def test_known_vectors(kernel, data, crc):
    assert bare.crc32c(data, 0, kernel) == crc


@given(st.binary(max_size=300))
def test_table_is_the_definition(data):
    assert bare.crc32c(data, 0, TABLE) == bit_by_bit(data)


@every_kernel
def test_each_kernel_equals_the_table_at_every_length_and_alignment(kernel):
    data = np.frombuffer(random.Random(1).randbytes(8192), dtype=np.uint8)
    for start in range(8):
        for length in (*range(1100), 1472 - start, 6143, 6144, 6152, 6153, 8192 - start):
            piece = data[start : start + length]
            assert bare.crc32c(piece, start, kernel) == bare.crc32c(piece, start, TABLE), (start, length)


@given(st.integers(0, 66000), st.integers(0, 64), st.integers(0, 2**32 - 1), st.integers(0, 2**32))
def test_kernels_agree_for_any_length_alignment_and_start(length, start, crc, seed):
    data = np.frombuffer(random.Random(seed).randbytes(length + start), dtype=np.uint8)[start:]
    assert len({bare.crc32c(data, crc, kernel) for kernel in KERNELS}) == 1


@every_kernel
@given(data=st.binary(max_size=5000), at=st.integers(0, 5000))
def test_a_crc_goes_on_where_the_last_one_stopped(kernel, data, at):
    first = bare.crc32c(data[:at], 0, kernel)
    assert bare.crc32c(data[at:], first, kernel) == bare.crc32c(data, 0, TABLE)


def test_the_kernels_of_this_processor_are_used():
    kernels = bare.crc32c_kernels()
    assert kernels[-1] == "table"
    if platform.system() == "Linux" and platform.machine() == "x86_64":
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = set(next((line.split() for line in file if line.startswith("flags")), []))
        lanes = {"sse4_2", "pclmulqdq"} <= flags
        assert ("sse4.2+pclmul" in kernels) == lanes
        assert ("avx512+vpclmulqdq" in kernels) == (lanes and {"avx512f", "vpclmulqdq"} <= flags)
        assert kernels == sorted(kernels, key=["avx512+vpclmulqdq", "sse4.2+pclmul", "table"].index)


def test_no_other_kernel_can_be_asked_for():
    for kernel in (-1, len(KERNELS)):
        with pytest.raises(ValueError, match="this processor has kernels 0 to"):
            bare.crc32c(b"", 0, kernel)
