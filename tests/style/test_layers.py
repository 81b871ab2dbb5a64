"""The layer rule of docs/architecture.md, as contracts in pyproject.toml and as what the compiled parts include."""

import graphlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORLDS = re.compile(rb"^\s*(?:from|c?import)\s+seqcast\.(?:net|sim|core|api|aio|cli|perf|spark)\b", re.M)


def lint_imports(project: Path) -> subprocess.CompletedProcess[str]:
    """Runs the contracts of pyproject.toml over ``project/src``."""
    code = "import sys; sys.path.insert(0, 'src'); from importlinter.cli import lint_imports_command as c; c()"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], cwd=project, capture_output=True, text=True, timeout=120
    )


def test_imports_go_downward_only():
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("core/planted.py", "import time"),
        ("core/planted.py", "import seqcast.net"),
        ("net/planted.py", "import seqcast.sim"),
        ("sim/planted.py", "import seqcast.net"),
        ("journal/planted.py", "import pyspark"),
        ("types.py", "import seqcast.core"),
    ],
)
def test_an_import_against_the_rule_is_found(tmp_path, path, line):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    planted = tmp_path / "src" / "seqcast" / path
    planted.write_text((planted.read_text() if planted.exists() else "") + f"\n{line}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout


def test_kernels_in_c_know_nothing_of_python():
    sources = [*ROOT.glob("native/*/*.c"), *ROOT.glob("native/*/*.h")]
    assert sources
    assert [path.name for path in sources if b"Python.h" in path.read_bytes()] == []


def engine_rooms() -> list[str]:
    rooms: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["seqcast"]["engine"]
    return rooms


def kernels() -> list[str]:
    """Kernels of the engine, as room/file, from the bottom up."""
    return [f"{room}/{path.name}" for room in engine_rooms() for path in sorted((ROOT / "native" / room).glob("*.c"))]


def test_kernels_of_the_engine_call_downward_only():
    """A kernel calls functions of its own room and of lower ones, never in a circle. A table of functions (an order)
    is the one way by which a lower room reaches a higher one."""
    rooms, every = engine_rooms(), kernels()
    text = {each: re.sub(r"/\*.*?\*/", "", (ROOT / "native" / each).read_text(), flags=re.S) for each in every}
    defined = re.compile(r"^(?!static)[a-z][\w ]*[ *](sc_\w+)\([^;{]*\)\s*\{", re.M)
    home = {name: each for each in every for name in defined.findall(text[each])}
    assert len(home) > 100
    used = {each: set(re.findall(r"\b(sc_\w+)\(", text[each])) & set(home) for each in every}
    calls = {each: {home[name] for name in used[each]} - {each} for each in every}
    level = {each: rooms.index(each.split("/")[0]) for each in every}
    upward = [f"{a} calls {b}" for a in every for b in sorted(calls[a]) if level[b] > level[a]]
    assert not upward, upward
    graphlib.TopologicalSorter(calls).prepare()  # CycleError names the kernels


def test_headers_of_the_engine_include_downward_only():
    """A header includes those of its own room and of lower ones. engine.h is the interface, which any may need; self.h
    puts the engine together from all parts, for kernels alone."""
    rooms = engine_rooms()
    headers = [path for room in rooms for path in (ROOT / "native" / room).glob("*.h") if path.name != "self.h"]
    assert len(headers) > 20
    for path in headers:
        for included in re.findall(r'^#include "(\w+/\w+\.h)"', path.read_text(), re.M):
            room = included.split("/")[0]
            assert included == "engine/engine.h" or rooms.index(room) <= rooms.index(path.parent.name), (path, included)


WRITTEN = r"(\w+)(?:\.\w+|\[[^]]*\])*\s*(?:\+\+|--|(?:[-+|&*]|<<|>>)?=(?!=))"


def owners_of(header: str, default: str = "") -> dict[str, str]:
    """Fields of the structs of a header, each with the kernel that its comment names, or else ``default``."""
    fields = re.findall(
        r"^    [\w *]+?\b(\w+)(?:\[\w+\])?;(?:\s*/\* (\w+/\w+\.c))?", (ROOT / "native" / header).read_text(), re.M
    )
    return {name: default for name, _ in fields if default} | {name: kernel for name, kernel in fields if kernel}


def test_parts_of_the_engine_are_written_by_their_kernel_alone():
    """engine/self.h names the kernel of each part of the engine and of a member: all may read, that one writes."""
    owners = owners_of("engine/self.h")
    assert len(owners) > 20
    write = re.compile(rf"(?:\be|peer|requester|owner|\])->{WRITTEN}")
    found: dict[str, set[str]] = {name: set() for name in owners}
    for path in kernels():
        text = re.sub(r"/\*.*?\*/", "", (ROOT / "native" / path).read_text(), flags=re.S)
        for name in write.findall(text):
            found.get(name, set()).add(path)
    assert sum(owners[name] in by for name, by in found.items()) > 15
    strangers = {name: by - {owners[name]} for name, by in found.items() if by - {owners[name]}}
    assert not strangers, strangers


@pytest.mark.parametrize(("name", "room"), [("rx", "streams/ring"), ("tx", "streams/tx")])
def test_fields_of_a_stream_are_written_by_their_kernel_alone(name, room):
    """The kernel of the ring begins and ends a stream; in between a field has one writer, which its comment names."""
    home = f"{room}.c"
    owners = owners_of(f"{room}.h", home)
    write = re.compile(rf"\b{name}->{WRITTEN}")
    found = set()
    for path in kernels():
        text = re.sub(r"/\*.*?\*/", "", (ROOT / "native" / path).read_text(), flags=re.S)
        found |= {(field, path) for field in write.findall(text) if path != home}
    assert len(found) > 3
    strangers = {(field, path) for field, path in found if owners.get(field, home) != path}
    assert not strangers, strangers


def test_compiled_modules_import_no_policy_and_no_world():
    sources = [*ROOT.glob("src/seqcast/_native/*.pyx"), *ROOT.glob("src/seqcast/_native/*.px[di]")]
    assert sources
    assert [path.name for path in sources if WORLDS.search(path.read_bytes())] == []


def test_nothing_below_the_commands_imports_the_package_itself():
    """It holds the names that people use, so to import it is to import everything."""
    whole = re.compile(r"^\s*(?:import seqcast\s*(?:#|,|$)|from seqcast import)", re.M)
    sources = [*ROOT.glob("src/seqcast/**/*.py"), *ROOT.glob("src/seqcast/_native/*.py[xi]")]
    found = {path.relative_to(ROOT / "src" / "seqcast").parts[0] for path in sources if whole.search(path.read_text())}
    assert found <= {"cli", "perf", "spark"}  # which stand above everything that people use


def test_every_compiled_module_has_a_stub():
    modules = {path.stem for path in ROOT.glob("src/seqcast/_native/*.pyx")}
    assert modules == {path.stem for path in ROOT.glob("src/seqcast/_native/*.pyi")}


def test_modules_of_tests_have_names_of_their_own():
    """Rooms of tests are no packages, so two modules of one name would be taken for one."""
    names = [path.name for path in (ROOT / "tests").glob("*/test_*.py")]
    assert {name for name in names if names.count(name) > 1} == set()
