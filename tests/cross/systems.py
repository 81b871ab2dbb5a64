"""The systems for which wheels are built, as the compiler of the package ziglang and Debian's emulators name them."""

from __future__ import annotations

import platform
import shutil
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class System:
    name: str
    target: str
    """As zig names the system."""
    options: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    python: str = "libpython.so"
    """The name of a library in Python's place."""
    loader: str = ""
    """Of musl: runs programs that load libraries, and comes with Debian's musl. Empty: the system's own does."""
    emulators: tuple[str, ...] = ()
    """Commands that run its programs elsewhere; the first that is here is taken. None: its programs are not built."""
    no_hop: str = ""
    """The hop ends with this error if the emulator cannot run the hop."""
    package: str = ""
    """Debian's, which brings one of them."""

    def runner(self) -> list[str] | None:
        """The words before the program in a command; None: nothing here runs it."""
        if self.name == f"musl-{platform.machine().lower()}" and sys.platform == "linux":
            return []
        found = next((path for name in self.emulators if (path := shutil.which(name))), None)
        return [found] if found else None


# zig takes the least processor of an architecture and, unlike other compilers, refuses instructions that a function's
# own attribute allows. musl's CMSG_NXTHDR compares a signed with an unsigned number.
X86 = ("-mcpu=x86_64+crc32",)
MUSL = ("-D_GNU_SOURCE", "-Wno-sign-compare")
WINDOWS = ("ws2_32", "iphlpapi")
WINE = ("wine", "/usr/lib/wine/wine64")

SYSTEMS = [
    System(
        "musl-x86_64",
        "x86_64-linux-musl",
        (*X86, *MUSL),
        loader="ld-musl-x86_64.so.1",
        emulators=("qemu-x86_64",),
        package="qemu-user",
    ),
    # qemu 7.2 expects the interface of a membership to be a long, and passes another one on.
    System(
        "musl-aarch64",
        "aarch64-linux-musl",
        MUSL,
        loader="ld-musl-aarch64.so.1",
        emulators=("qemu-aarch64",),
        no_hop="join: error 19",
        package="qemu-user",
    ),
    System("macos-x86_64", "x86_64-macos.11.0", X86, python="libpython.dylib"),
    System("macos-arm64", "aarch64-macos.11.0", python="libpython.dylib"),
    System("windows-x86_64", "x86_64-windows-gnu", X86, WINDOWS, "python.dll", emulators=WINE, package="wine"),
    System("windows-arm64", "aarch64-windows-gnu", libraries=WINDOWS, python="python.dll"),
]
