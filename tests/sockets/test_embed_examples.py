"""The examples in examples/embed are built by the machine's compiler, and count with each other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from members import LOOPBACK, cluster, founded, join, why_no_multicast
from project import ROOT

import seqcast

pytestmark = [
    pytest.mark.xdist_group("embed"),  # they are built once
    pytest.mark.skipif(bool(why_no_multicast()), reason="no multicast on loopback here"),
]
EXAMPLES = ROOT / "examples" / "embed"
INCREMENTS = 2000


def compiler() -> str:
    found = (
        shutil.which(os.environ.get("CC", "").split(" ")[-1] or "cc") or shutil.which("gcc") or shutil.which("clang")
    )
    if not found:
        pytest.skip("needs a C compiler: cc, gcc or clang")
    headers = Path(sysconfig.get_paths()["include"], "Python.h")
    if not headers.exists():
        pytest.skip(f"needs the headers of Python: there is no {headers}")
    return found


def build_c(folder: Path, *options: str) -> Path:
    """Compiles counter.c and links the program to this Python; skips without a shared library of Python to link to."""
    config = sysconfig.get_config_var
    library = Path(config("LIBDIR") or "", config("LDLIBRARY") or "")
    if not config("Py_ENABLE_SHARED") or not library.exists():
        pytest.skip("needs a Python with a shared library (--enable-shared)")
    program = folder / "counter"
    command = [
        compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror", *options, str(EXAMPLES / "counter.c"),
        "-o", str(program),
        f"-I{seqcast.get_include()}", f"-I{sysconfig.get_paths()['include']}", f"-L{library.parent}",
        f"-lpython{config('LDVERSION')}", f"-Wl,-rpath,{library.parent}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(scope="module")
def c_program(tmp_path_factory) -> Path:
    return build_c(tmp_path_factory.mktemp("c"))


@pytest.fixture(scope="module")
def cython_module(tmp_path_factory) -> Path:
    """The folder in which ``import counting`` works."""
    pytest.importorskip("Cython")
    compiler()
    folder = tmp_path_factory.mktemp("cython")
    for name in ("counting.pyx", "setup.py"):
        shutil.copy(EXAMPLES / name, folder)
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=folder, capture_output=True, text=True, timeout=170,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def counting(folder: Path, name: str, member: str, members: int) -> subprocess.Popen[str]:
    code = "import sys, counting; print(*counting.count(*sys.argv[1:3], *map(int, sys.argv[3:5]), sys.argv[5]))"
    command = [sys.executable, "-c", code, name, member, str(members), str(INCREMENTS), LOOPBACK]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def counter(program: Path, name: str, member: str, members: int) -> subprocess.Popen[str]:
    command = [str(program), sys.executable, name, member, str(members), str(INCREMENTS), LOOPBACK]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> list[str]:
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, out + errors
    return out.splitlines()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_c_and_cython_count_with_each_other(c_program, cython_module):
    """A member in Python joins first and is there to the end, so each program also sees a view without the other."""
    name = cluster()
    with join(name, "python") as group:
        founded(name)
        both = [counter(c_program, name, "c", 3), counting(cython_module, name, "cython", 3)]
        events, mine, sent = group.events(), 0, False
        total = 0
        for event in events:
            if isinstance(event, seqcast.View) and len(event.members) == 3 and not sent:
                for _ in range(INCREMENTS):
                    group.send((0).to_bytes(8, "little"))
                sent = True
            elif isinstance(event, seqcast.Message):
                total += int.from_bytes(event.payload, "little")
                mine += 1
                if mine == 3 * INCREMENTS:
                    break
        c, cython = (said(process) for process in both)
    assert total == (2 + 3) * INCREMENTS
    assert c[-1] == f"{3 * INCREMENTS} messages, total {total}"
    assert cython[-1] == f"{3 * INCREMENTS} {total}"
    for lines in (c, cython):
        views = [line for line in lines if line.startswith("view ")]
        assert any(line.count(",") == 2 for line in views), lines


@pytest.mark.long
@pytest.mark.timeout(300)
def test_two_programs_in_c_count_with_each_other(c_program):
    name = cluster()
    first = counter(c_program, name, "first", 2)
    second = counter(c_program, name, "second", 2)
    founded(name)
    expected = f"{2 * INCREMENTS} messages, total {3 * INCREMENTS}"
    assert [said(process)[-1] for process in (first, second)] == [expected] * 2


def refusal(tmp_path, old, new):
    """The errors of a C program that was built with ``new`` in place of ``old`` in the header."""
    header = Path(seqcast.get_include(), "seqcast", "embed.h").read_text()
    assert header.count(old) == 1
    place = tmp_path / "seqcast" / "embed.h"
    place.parent.mkdir()
    place.write_text(header.replace(old, new))
    program = build_c(tmp_path, f"-I{tmp_path}")
    done = subprocess.run(
        [str(program), sys.executable, cluster(), "old", "1", "1", LOOPBACK], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1, done.stderr
    return done.stderr


def test_a_program_compiled_for_another_version_is_refused(tmp_path):
    errors = refusal(tmp_path, "SEQCAST_EMBED_VERSION 1", "SEQCAST_EMBED_VERSION 7")
    assert "ImportError: this program was compiled for version 7" in errors
    assert "has version 1" in errors and "compile the program again" in errors


def test_a_program_that_needs_a_larger_table_is_refused(tmp_path):
    errors = refusal(tmp_path, "} seqcast_table;", "    void (*later)(void);\n} seqcast_table;")
    assert "ImportError: this program was compiled for version 1" in errors, errors
