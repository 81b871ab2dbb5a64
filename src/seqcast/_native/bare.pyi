"""The bare C baselines of ``seqcast perf``, the numbers of its messages, and the CRC kernel for tests and benchmarks.
See native/bare/."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from seqcast._native.driver import Receiver
from seqcast._native.engine import Batch

SHARED_BYTES: int
READY_AT: int
READY_STRIDE: int
RECEIVERS_MAX: int

class Result(TypedDict):
    elapsed_ns: int
    bytes: int
    sent: int
    lost: int
    corrupt: int

class Settings:
    def __init__(
        self,
        *,
        group: str,
        interface: str,
        port: int,
        limit: bool = False,
        apart: bool = False,
        packet_bytes: int = 1472,
        segments: int = 1,
        gro: bool = False,
        message_bytes: int = 1024,
        receivers: int = 1,
        window_bytes: int = 2 << 20,
        ring_bytes: int = 8 << 20,
        socket_bytes: int = 4 << 20,
        to: Sequence[str] = (),
    ) -> None: ...

def crc32c(data: Buffer, crc: int = 0, kernel: int = 0) -> int: ...
def crc32c_kernels() -> list[str]: ...
def send(settings: Settings, shared: Buffer, *, warm_ns: int, measure_ns: int) -> Result: ...
def receive(settings: Settings, shared: Buffer, *, index: int) -> Result: ...
def ping(settings: Settings, shared: Buffer, *, spin: bool, warm_rounds: int, rounds: int) -> npt.NDArray[np.int64]: ...
def pong(settings: Settings, shared: Buffer, *, spin: bool) -> None: ...
def table_ping(group: Receiver, *, size: int, warm_rounds: int, rounds: int) -> npt.NDArray[np.int64]: ...
def table_pong(group: Receiver) -> None: ...

class Numbers:
    def __init__(self, data: Buffer, size: int, sender: int) -> None: ...
    def write(self, first: int) -> None: ...

class Check:
    count: int
    wrong: int
    def __init__(self, size: int) -> None: ...
    def take(self, batch: Batch | None) -> int: ...
