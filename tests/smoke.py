"""Smoke test of an installed wheel, in an environment that holds seqcast and NumPy only: ``python tests/smoke.py``.

Plain Python on purpose: there is no pytest there. Must not be run from the folder that holds ``src``.
"""

import importlib
import importlib.resources
import subprocess
import sys
import time
from pathlib import Path

import seqcast


def check(condition: bool, what: str) -> None:
    print(("ok    " if condition else "FAILED  ") + what, flush=True)
    if not condition:
        sys.exit(1)


def package() -> None:
    files = importlib.resources.files("seqcast")
    check((files / "py.typed").is_file(), "the types are shipped")
    sources = [name for name in ("engine.pyx", "engine.c") if (files / "_native" / name).is_file()]
    check(not sources, "no sources of compiled modules in the wheel")
    header = Path(seqcast.get_include(), "seqcast", "embed.h")
    check(header.is_file() and (files / "embed.pxd").is_file(), "programs in C and Cython find what they include")
    for name in ("engine", "driver", "columns", "bare"):
        importlib.import_module(f"seqcast._native.{name}")
    check(True, "the compiled modules import")
    check("pyarrow" not in sys.modules and "pyspark" not in sys.modules, "nothing of the extras is imported")


def command() -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "seqcast", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    for arguments in (["--version"], ["--help"], ["send", "--help"], ["tail", "--help"]):
        result = run(*arguments)
        check(result.returncode == 0 and "seqcast" in result.stdout, f"seqcast {' '.join(arguments)}")
    result = run("demo")
    one_line = result.stderr.count("\n") == 1 and "seqcast[spark]" in result.stderr
    check(result.returncode == 2 and one_line, "without its extra, demo says what to install")


def group() -> None:
    settings = {"order": "total", "interface": "127.0.0.1"}
    with seqcast.join("smoke", name="a", **settings) as a, seqcast.join("smoke", name="b", **settings) as b:
        deadline = time.monotonic() + 20
        while len(a.view.members) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        check([member.name for member in a.view.members] == ["a", "b"], "two members agree on a view")
        a.send(b"from a")
        b.send(b"from b")
        orders = []
        for member in (a, b):
            payloads = []
            while len(payloads) < 2:
                message = member.recv(timeout=20)
                check(message is not None, "a message is delivered")
                payloads.append(message.payload)
            orders.append(payloads)
        check(orders[0] == orders[1], f"both deliver the same in the same order: {orders[0]}")


if __name__ == "__main__":
    package()
    command()
    group()
    print("smoke test passed")
