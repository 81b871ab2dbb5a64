"""Looks at the needs of a member with a key: the library, the processor, and memory and files of its own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import seqcast.codes as codes
from seqcast._native.engine import locked
from seqcast.config import Config
from seqcast.config.identities import read_identity, read_list
from seqcast.config.keys import read
from seqcast.doctor.lines import FAIL, NOTE, OK, WARN, Line
from seqcast.errors import ConfigError, without_code
from seqcast.net.secure import ANYWHERE, fault
from seqcast.system import read as read_system

MEMORY_BYTES = 128 << 10
"""That one member locks, at most: its secrets, and the keys derived from them."""


def look(config: Config, root: Path) -> Iterator[Line]:
    """The lines about a member with a key.

    Args:
        config: settings of the member that would run here.
        root: of the file systems of the system: another one in tests.
    """
    trouble, aes = fault()
    if trouble:
        yield Line(FAIL, "pynacl", trouble, codes.WRONG_SETTING)
    else:
        yield Line(OK, "pynacl", f"PyNaCl {importlib.import_module('nacl').__version__}")
        yield _processor(aes, config.cipher)
    if sys.platform != "win32":
        yield _memory(_lockable())
    if "hypervisor" in read_system(root, "proc/cpuinfo") and not _tells_copies(root):
        yield Line(NOTE, "copies", "this virtual machine does not tell its system when it is copied", codes.COPIED_VM)
    yield _file("key", config.key, partial(read, memory=locked))
    if config.identity:
        yield _file("identity", config.identity, partial(read_identity, memory=locked))
        yield _file("authorized", config.authorized, read_list)


def _processor(aes: bool, cipher: str) -> Line:
    if aes:
        return Line(OK, "aes", "the processor has AES instructions")
    if cipher not in ("auto", ANYWHERE):
        return Line(
            FAIL, "aes", f"the processor has no AES instructions, and cipher={cipher!r} needs them", codes.NO_AES
        )
    return Line(WARN, "aes", "the processor has no AES instructions", codes.NO_AES)


def _lockable() -> int:
    """Bytes that a process may lock; -1: any number."""
    import resource

    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]


def _memory(most: int) -> Line:
    if 0 <= most < MEMORY_BYTES:
        return Line(WARN, "mlock", f"a process may lock {most >> 10} KiB of memory", codes.SMALL_MEMLOCK)
    return Line(OK, "mlock", "keys stay out of the swap" if most < 0 else f"{most >> 10} KiB may be locked")


def _tells_copies(root: Path) -> bool:
    """Has this machine a device by which its kernel draws other random numbers after a copy?"""
    drivers = [root / f"sys/bus/{bus}/drivers/vmgenid" for bus in ("acpi", "platform")]
    return any(each.is_symlink() for driver in drivers if driver.is_dir() for each in driver.iterdir())


def _file(word: str, path: str, reads: Callable[[str], object]) -> Line:
    try:
        reads(path)
    except ConfigError as error:
        return Line(FAIL, word, without_code(error), codes.WRONG_SETTING)
    return Line(OK, word, path)
