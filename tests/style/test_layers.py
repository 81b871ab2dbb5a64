"""The layer rule of docs/architecture.md, as contracts in pyproject.toml and as the includes of the compiled parts."""

import ast
import graphlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from seqcast.types import ORDERS

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


def test_every_room_but_spark_is_forbidden_to_import_pyspark():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    named = next(set(each["source_modules"]) for each in contracts if each["name"] == "Only spark imports pyspark")
    found = {f"seqcast.{path.stem}" for path in (ROOT / "src" / "seqcast").iterdir() if (path / "__init__.py").exists()}
    found |= {f"seqcast.{path.stem}" for path in (ROOT / "src" / "seqcast").glob("*.py") if path.stem != "__init__"}
    assert found - named == {"seqcast.spark"} and named <= found


def imports(texts: dict[str, str]) -> dict[str, set[str]]:
    """The imports of each module from the package, also for its types alone. ``texts``: by path."""
    names = {path: path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in texts}
    found: dict[str, set[str]] = {}
    for path, text in texts.items():
        wanted = set[str]()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                wanted |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                wholes = [f"{node.module}.{each.name}" for each in node.names]
                wanted |= {whole if whole in names.values() else node.module for whole in wholes}
        found[names[path]] = wanted & set(names.values()) - {names[path]}
    return found


def test_no_module_imports_itself_by_way_of_others():
    """Not even for its types."""
    source = ROOT / "src"
    paths = list(source.glob("seqcast/**/*.py"))
    found = imports({path.relative_to(source).as_posix(): path.read_text("utf-8") for path in paths})
    assert len(found["seqcast.sim.world"]) > 5 and len(found["seqcast.core.endpoint"]) > 5
    graphlib.TopologicalSorter(found).prepare()  # CycleError names the modules


def test_checkers_know_neither_endpoint_nor_engine():
    """They judge the record of a run, and so cannot repeat a mistake of the code that they check."""
    source = ROOT / "src"
    paths = [path for end in ("py", "pyi") for path in source.glob(f"seqcast/**/*.{end}")]
    found = imports({path.relative_to(source).with_suffix(".py").as_posix(): path.read_text("utf-8") for path in paths})
    checkers = {module for module in found if module.startswith("seqcast.sim.checkers")}
    allowed = ("seqcast.core.machines.beacons", "seqcast.core.orders", "seqcast.core.vocabulary")  # terms and constants
    below = {each for name in checkers for each in found[name] if each.startswith(("seqcast.core", "seqcast._native"))}
    assert len(checkers) > 5 and below == set(allowed)


BLOCKS = {
    "seqcast._native.engine": "the types of messages, which are public",
    "seqcast.abandoned": "a cancelled call of asyncio ends a wait on its thread",
    "seqcast.api.group": "join and Group, which are public; ENDING: the process ends",
    "seqcast.api.own_thread": "the same threads for asyncio as those of seqcast.aio",
    "seqcast.api.receiving": "the type of events, for annotations",
    "seqcast.arguments": "the same checks of arguments as in join",
    "seqcast.codes": "the codes of what is logged",
    "seqcast.config": "Config, which is public",
    "seqcast.config.keywords": "the types of settings, for annotations",
    "seqcast.core.orders": "whether an order is total, as batches need",
    "seqcast.errors": "public",
    "seqcast.events": "public",
    "seqcast.files": "a file is a regular one, and no link",
    "seqcast.net.spool": "a state that is larger than memory should hold",
    "seqcast.net.stable": "stable=: one lock, and one way to sync, for the votes and for the log of a replica",
    "seqcast.net.state": "types of state handlers, which are public",
    "seqcast.net.threads": "a thread may be refused while the interpreter ends",
    "seqcast.types": "public",
}
"""The modules outside of their own room that blocks use, each with the reason."""


def test_blocks_use_the_public_interface_and_a_few_named_modules_besides():
    used = set[str]()
    for path in (ROOT / "src" / "seqcast" / "blocks").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                used |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                used.add(str(node.module))
    assert {each for each in used if each.startswith("seqcast") and not each.startswith("seqcast.blocks")} == set(
        BLOCKS
    )


@pytest.mark.parametrize("line", ["from seqcast import b", "import seqcast.b", "import seqcast.b as b"])
def test_a_circle_of_imports_is_seen(line):
    texts = {"seqcast/a.py": line, "seqcast/b.py": "def f():\n    from seqcast.a import x\n"}
    assert imports(texts) == {"seqcast.a": {"seqcast.b"}, "seqcast.b": {"seqcast.a"}}
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(imports(texts)).prepare()


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


def sources() -> list[str]:
    """The source files of the engine, as room/file, from the bottom up."""
    return [f"{room}/{path.name}" for room in engine_rooms() for path in sorted((ROOT / "native" / room).glob("*.c"))]


def kernels() -> dict[str, str]:
    """Engine and driver by kernel, as room/name, from the bottom up: the text of its source and its header. (A header
    without a source is one, too; one called internal composes others.)"""
    paths = [path for room in [*engine_rooms(), "io"] for path in sorted((ROOT / "native" / room).glob("*.[ch]"))]
    texts: dict[str, str] = {}
    for path in paths:
        if not path.stem.endswith("internal"):
            name = f"{path.parent.name}/{path.stem}"
            texts[name] = texts.get(name, "") + re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    return texts


def test_kernels_of_engine_and_driver_call_downward_only():
    """A kernel calls functions of its own room and of lower ones, never in a circle, and headers count. A table of
    functions (an order) is the one way by which a lower room reaches a higher one."""
    rooms, text = [*engine_rooms(), "io"], kernels()
    defined = re.compile(r"^(?:static inline )?(?!static)[a-z][\w ]*[ *](sc_\w+)\([^;{]*\)\s*\{", re.M)
    home = {name: each for each in reversed(text) for name in defined.findall(text[each])}
    assert len(home) > 100 and home["sc_tx_at"] == "streams/ring"
    declared = re.compile(r"^(?! ).*?\)\s*;$", re.M | re.S)
    used = {each: set(re.findall(r"\b(sc_\w+)\(", declared.sub("", text[each]))) & set(home) for each in text}
    calls = {each: {home[name] for name in used[each]} - {each} for each in text}
    level = {each: rooms.index(each.split("/")[0]) for each in text}
    upward = [f"{a} calls {b}" for a in text for b in sorted(calls[a]) if level[b] > level[a]]
    assert not upward, upward
    graphlib.TopologicalSorter(calls).prepare()  # CycleError names the kernels


def test_headers_of_the_engine_include_downward_only():
    """A header includes headers of its own room and of lower ones. Any may include engine.h, the interface; internal.h
    composes the engine from all parts and is for .c files only."""
    rooms = engine_rooms()
    headers = [path for room in rooms for path in (ROOT / "native" / room).glob("*.h") if path.name != "internal.h"]
    assert len(headers) > 20
    for path in headers:
        for included in re.findall(r'^#include "(\w+/\w+\.h)"', path.read_text(), re.M):
            room = included.split("/")[0]
            assert included == "engine/engine.h" or rooms.index(room) <= rooms.index(path.parent.name), (path, included)


PLACE = r"(?<![\w.>])(\w+(?:(?:->|\.)\w+|\[[^][]*\])+)"
STORES = (
    re.compile(rf"{PLACE}\s*(?:\+\+|--|(?:[-+|&*]|<<|>>)?=(?!=))"),
    re.compile(rf"(?:\+\+|--){PLACE}"),
    re.compile(rf"\b(?:memset|memcpy|memmove)\(&?{PLACE}"),
    re.compile(r"\b(?:memset|memcpy|memmove)\((\w+)\b"),
)
POINTERS = re.compile(r"(?<!const )\b(sc_\w+) \*(\w+)(?= *[=,);])(?: = ([^,;]+))?")


def writes(text: str) -> set[tuple[str, str]]:
    """The writes of C, as (struct, field): by assignment, ``++``, ``--``, memset, memcpy, memmove, directly or through
    a local pointer into the struct. A field that is a struct itself counts as written with each of its own fields."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S).replace("struct ", "")
    text = re.sub(r"\bsc_(?:self|find_peer)\([^()]*\)->", "PEER->", re.sub(r"\w+->peers\[[^][]*\]->", "PEER->", text))
    found = set()
    for function in re.split(r"^}", text, flags=re.M):
        kinds, inside = {"PEER": "sc_peer"}, {}
        for kind, name, value in POINTERS.findall(function):
            kinds[name] = kind
            if value.startswith("&"):
                inside[name] = value[1:]
        for place in (match[1] for store in STORES for match in store.finditer(function)):
            base, *fields = re.findall(r"\w+", re.sub(r"\[[^][]*\]", "", place))
            while base in kinds:
                found.add((kinds[base], fields[0] if fields else ""))
                base, *fields = re.findall(r"\w+", re.sub(r"\[[^][]*\]", "", inside.get(base, "-")) or "-") or [""]
    return found


@pytest.mark.parametrize(
    "statement",
    [
        "e->cut.end = 1;",
        "e->cut.end[rank] |= 1;",
        "e->cut.end++;",
        "--e->cut.end;",
        "memset(&e->cut, 0, sizeof e->cut);",
        "memcpy(e->cut.end, from, n);",
        "sc_cut *own = &e->cut; own->end = 1;",
        "sc_cut *own = &e->cut; uint64_t n = own->end--;",
        "sc_cut *own = &e->cut; memset(own, 0, sizeof *own);",
        "sc_fetch *each = &e->cut.fetch[i]; each->lo = 1;",
    ],
)
def test_a_write_to_a_part_is_seen(statement):
    assert ("sc_engine", "cut") in writes(f"void f(struct sc_engine *e, const void *from) {{\n    {statement}\n}}\n")


def test_a_pure_read_is_not_a_write():
    text = "void f(sc_engine *e, const sc_cut *c) {\n    if (e->cut.end == c->end && e->cut.end <= 3) g(&e->cut);\n}\n"
    assert writes(text) == set()


def test_a_write_to_a_member_is_seen_whichever_way_it_is_reached():
    for peer in ("e->peers[rank]", "sc_self(e)", "sc_find_peer(e, id)"):
        assert ("sc_peer", "cut") in writes(f"void f(sc_engine *e) {{\n    {peer}->cut.done++;\n}}\n")


def owners_of(header: str, default: str = "") -> dict[str, str]:
    """Fields of the structs of a header, each with the kernel that its comment names, or else ``default``."""
    fields = re.findall(
        r"^    [\w *]+?\b(\w+)(?:\[\w+\])?;(?:\s*/\* (\w+/\w+\.c))?", (ROOT / "native" / header).read_text(), re.M
    )
    return {name: default for name, _ in fields if default} | {name: kernel for name, kernel in fields if kernel}


def test_parts_of_the_engine_are_written_by_their_kernel_alone():
    """engine/internal.h names the kernel of each part of the engine and of a member: all may read, that one writes."""
    owners, header = owners_of("engine/internal.h"), (ROOT / "native/engine/internal.h").read_text()
    assert len(owners) > 20
    kinds = dict(re.findall(r"^    (sc_\w+) (\w+);[^\n]*/\* \w+/\w+\.c", header, re.M))
    found: dict[str, set[str]] = {name: set() for name in owners}
    for path in sources():
        for struct, field in writes((ROOT / "native" / path).read_text()):
            name = field if struct in ("sc_engine", "sc_peer") else kinds.get(struct, "")
            found.get(name, set()).add(path)
    assert sum(owners[name] in by for name, by in found.items()) > 15
    strangers = {name: by - {owners[name]} for name, by in found.items() if by - {owners[name]}}
    assert not strangers, strangers


@pytest.mark.parametrize(
    ("struct", "header", "home"),
    [("sc_rx_stream", "streams/rx.h", "streams/rx.c"), ("sc_tx_stream", "streams/ring.h", "streams/tx.c")],
)
def test_fields_of_a_stream_are_written_by_their_kernel_alone(struct, header, home):
    """The kernel of the ring begins and ends a stream; in between a field has one writer, which its comment names."""
    owners = owners_of(header, home)
    found = set()
    for path in (each for each in sources() if each != home):
        written = writes((ROOT / "native" / path).read_text())
        found |= {(field, path) for kind, field in written if kind == struct}
    assert len(found) > 3
    strangers = {(field, path) for field, path in found if owners.get(field, home) != path}
    assert not strangers, strangers


def context_writes(text: str) -> set[str]:
    """Fields of the shared context that Python code assigns."""
    targets = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute))
    stores = (node for node in targets if isinstance(node.ctx, ast.Store))
    return {node.attr for node in stores if ast.unparse(node.value).rpartition(".")[2] == "context"}


def test_fields_of_the_context_are_written_by_the_files_that_their_comments_name():
    core = ROOT / "src/seqcast/core"
    comments = re.findall(r"^    (\w+): [^#\n]*  # ([^\n]*)", (core / "context.py").read_text(), re.M)
    owners = {name: set(re.findall(r"\w+\.py", comment.partition(":")[0])) for name, comment in comments}
    owners = {name: files for name, files in owners.items() if files}
    assert len(owners) > 10
    found = {(name, path.name) for path in core.glob("**/*.py") for name in context_writes(path.read_text())}
    assert {name for name, _ in found} >= owners.keys() - {"departed"}
    assert {(name, file) for name, file in found if file not in owners.get(name, ())} == set()


def test_an_assignment_to_the_context_is_seen():
    assert context_writes("self.context.lost = True") == context_writes("context.lost, x = 1, 2") == {"lost"}
    assert context_writes("x = context.lost") == context_writes("context.view.name = 1") == set()


def test_effects_leave_by_one_door_that_only_carriers_of_commands_use():
    """A machine emits. Whoever carries out a command hands its effects out, before anything that is still queued."""
    core = ROOT / "src/seqcast/core"
    texts = {path.name: path.read_text() for path in core.glob("**/*.py")}
    assert [name for name, text in texts.items() if "context.effects.append" in text] == []
    assert {name for name, text in texts.items() if "hand_out(" in text} == {
        "context.py", "endpoint.py", "installer.py", "markers.py",
    }  # fmt: skip


def mutable_classes(text: str) -> set[str]:
    """Classes of Python code whose objects may change: with an ``__init__``, or dataclasses that are not frozen."""
    found = set()
    for node in (each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ClassDef)):
        made = {each.name for each in node.body if isinstance(each, ast.FunctionDef)} & {"__init__"}
        marks = [each for each in map(ast.unparse, node.decorator_list) if "dataclass" in each]
        found |= {node.name} if made or any("frozen=True" not in each for each in marks) else set()
    return found


PURE = {
    "core.frames.closing", "core.frames.fields", "core.frames.joining", "core.frames.view", "core.orders",
    "core.orders.order", "core.rules.cut", "core.rules.windows", "core.state.providers", "errors", "types",
}  # fmt: skip
"""Modules that the rules may import: values and pure functions; neither the context of a member nor its machines."""


def imported(text: str) -> set[str]:
    """Modules of the package that Python code imports, at any place."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return {name.removeprefix("seqcast.") for name in found if name.startswith("seqcast")}


def test_rules_are_pure_functions():
    rules = list((ROOT / "src/seqcast/core/rules").glob("*.py"))
    assert len(rules) > 5
    assert {name for path in rules for name in mutable_classes(path.read_text())} == set()
    assert {(path.name, name) for path in rules for name in imported(path.read_text()) - PURE} == set()


def test_an_import_of_the_context_is_seen():
    text = "if x:\n    from seqcast.core.context import Context\nimport seqcast.types"
    assert imported(text) - PURE == {"core.context"}


def test_a_class_whose_objects_may_change_is_seen():
    assert mutable_classes("class A:\n    def __init__(self): self.a = 1") == {"A"}
    assert mutable_classes("@dataclass\nclass A:\n    a: int") == {"A"}
    assert mutable_classes("@dataclass(frozen=True, slots=True)\nclass A:\n    a: int") == set()


def state_uses(text: str) -> set[str]:
    """Where Python code sets the state of a machine, or compares that of another one than ``self``."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr == "state" and isinstance(node.ctx, ast.Store):
            found.add(f"sets {ast.unparse(node)}")
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot | ast.In | ast.NotIn):
            left = ast.unparse(node.left)
            if left.endswith(".state") and left != "self.state":
                found.add(f"compares {left}")
    return found


def test_the_state_of_a_machine_is_set_by_its_table_and_compared_by_itself_alone():
    core = ROOT / "src/seqcast/core"
    texts = {str(path.relative_to(core)): path.read_text() for path in core.glob("*/*.py")}
    found = {(name, use) for name, text in texts.items() for use in state_uses(text)}
    assert found == {("machines/token_ring.py", "sets self.state")}  # where that begins


def test_a_state_that_is_set_or_compared_from_outside_is_seen():
    assert state_uses("self.initiator.state = S.IDLE") == {"sets self.initiator.state"}
    assert state_uses("x = machine.state is not S.IDLE") == {"compares machine.state"}
    assert state_uses("x = self.state in (S.A, S.B) and info.state == 1") == set()


ROOMS = {
    "gossip": {
        "core/gossip/", "core/machines/gossip.py", "core/frames/gossiping.py",
        "seqcast/crowd/", "sim/crowd.py", "streams/gossip.",
    },
    "token.?ring": {
        "core/machines/ring.py", "core/machines/token_ring.py", "core/frames/ring.py", "core/rules/ring.py",
        "sim/rings.py",
    },
}  # fmt: skip
"""Kinds of reliability and membership that are built beside the first ones, and their rooms."""
WIRING = (
    "__init__.py", "api/counters.py", "config/", "sim/", "native/engine/", "_native/", "net/logs.py",
    "core/context.py", "core/frames/kinds.py", "core/log.py", "core/machines/every.py", "core/membership.py",
    "core/port.py", "core/router.py", "core/wiring.py", "streams/reliability.h",
)  # fmt: skip
"""The files that list all kinds: settings and their documentation, the tables of frames, machines and parts of the log,
the engine's interface."""


@pytest.mark.parametrize("kind", ROOMS)
def test_a_second_kind_of_reliability_or_membership_is_named_in_its_rooms_and_where_all_kinds_are_listed(kind):
    """Their rooms stand beside the first kind's: no file of the first kind knows of the second."""
    sources = [*ROOT.glob("src/seqcast/**/*.py*"), *ROOT.glob("src/seqcast/**/*.pxd"), *ROOT.glob("native/*/*.[ch]")]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sources if path.suffix != ".pyc"}
    named = {path for path, text in texts.items() if re.search(kind, text, re.I)}
    rooms = {path for path in named if any(room in path for room in ROOMS[kind])}
    assert len(rooms) >= 4
    strangers = {path for path in named - rooms if not any(place in path for place in WIRING)}
    assert strangers == set()


def test_how_the_kinds_of_reliability_differ_is_asked_in_one_header():
    """Code that depends on the kind asks a function there, whose name says the meaning, and never the setting
    itself."""
    texts = {path.relative_to(ROOT / "native"): path.read_text() for path in ROOT.glob("native/*/*.[ch]")}
    code = {path.as_posix(): re.sub(r"/\*.*?\*/", "", text, flags=re.S) for path, text in texts.items()}
    read = {path for path, text in code.items() if re.search(r"(?:->|\.)pulled\b", text)}
    declared = {path for path, text in code.items() if re.search(r"\bpulled\b", text)} - read
    assert read == {"streams/reliability.h"}
    assert declared == {"engine/engine.h", "streams/rx.h"}


def order_tests(text: str) -> set[str]:
    """Where Python code compares something with an order's name, or a mechanism with a number."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        tested = node.pattern if isinstance(node, ast.match_case) else node
        if not isinstance(tested, ast.Compare | ast.pattern):
            continue
        values = [each.value for each in ast.walk(tested) if isinstance(each, ast.Constant)]
        numbered = any(type(value) is int for value in values) and "mechanism" in ast.unparse(tested)
        if numbered or not set(ORDERS).isdisjoint(value for value in values if isinstance(value, str)):
            found.add(ast.unparse(tested))
    return found


def compiled_order_tests(text: str) -> set[str]:
    """Where C or Cython names an order, or compares a mechanism with a number."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    listed = re.findall(r"X\((\w+), (\w+)\)", (ROOT / "native/order/orders.h").read_text())
    names = {name for pair in listed for name in pair}
    assert len(names) >= 2 * len(ORDERS[1:])
    return set(re.findall(rf"\b(?:{'|'.join(names)})\b|\bmechanism\s*[=!<>]=?\s*\d+", text))


def test_an_order_is_named_by_its_own_files_and_the_registry_alone():
    """Code that depends on the order asks its object or its table of functions, so another one changes nothing
    there."""
    python = {path.relative_to(ROOT).as_posix(): path.read_text() for path in ROOT.glob("src/seqcast/**/*.py")}
    found = {(name, use) for name, text in python.items() for use in order_tests(text)}
    assert {name for name, _ in found} == {"src/seqcast/core/orders/__init__.py", "src/seqcast/core/orders/order.py"}
    assert {use.rpartition(" ")[2] for _, use in found} == {"'total'"}  # which all total orders provide
    compiled = [*ROOT.glob("native/*/*.[ch]"), *ROOT.glob("src/seqcast/_native/*.p[xy]*")]
    used = {path.relative_to(ROOT).as_posix() for path in compiled if compiled_order_tests(path.read_text())}
    assert {str(Path(name).parent) for name in used} == {"native/order"}
    for path in (path for path in compiled if path.parent.name == "order" and path.name not in ("orders.h", "order.h")):
        names = compiled_order_tests(path.read_text())
        assert names <= {f"sc_order_{path.stem}"}, (path.name, names)


def test_a_test_for_an_order_is_seen():
    for text in ("x = order != 'fifo'", "if view.mechanism in ('grant', 'records'): pass", "x = view.mechanism > 1"):
        assert order_tests(text)
    assert order_tests("match order:\n    case 'total': pass") == {"'total'"}
    assert order_tests("x = by_name('fifo').total and view.mechanism == other.mechanism") == set()
    assert compiled_order_tests("if (v->mechanism == 2) f(&sc_order_grant, SC_ORDER_FIFO);") == {
        "mechanism == 2", "sc_order_grant", "SC_ORDER_FIFO",
    }  # fmt: skip
    assert compiled_order_tests("view->mechanism = mechanism; /* SC_ORDER_FIFO */") == set()


def test_compiled_modules_import_no_policy_and_no_world():
    sources = [*ROOT.glob("src/seqcast/_native/*.pyx"), *ROOT.glob("src/seqcast/_native/*.px[di]")]
    assert sources
    assert [path.name for path in sources if WORLDS.search(path.read_bytes())] == []


def test_nothing_below_the_commands_imports_the_package_itself():
    """The package holds the names that people use, so to import the package is to import everything."""
    whole = re.compile(r"^\s*(?:import seqcast\s*(?:#|,|$)|from seqcast import)", re.M)
    sources = [*ROOT.glob("src/seqcast/**/*.py"), *ROOT.glob("src/seqcast/_native/*.py[xi]")]
    found = {path.relative_to(ROOT / "src" / "seqcast").parts[0] for path in sources if whole.search(path.read_text())}
    assert found <= {"cli", "perf", "spark"}  # which stand above everything that people use


def test_every_compiled_module_has_a_stub():
    modules = {path.stem for path in ROOT.glob("src/seqcast/_native/*.pyx")}
    assert modules == {path.stem for path in ROOT.glob("src/seqcast/_native/*.pyi")}


def test_modules_of_tests_have_names_of_their_own():
    """Rooms of tests are not packages, so two modules of one name would be taken for one."""
    names = [path.name for path in (ROOT / "tests").glob("*/test_*.py")]
    assert {name for name in names if names.count(name) > 1} == set()


READS = re.compile(
    r"(?<!def )\bopen\((?!.*\"[wa]b?\")|\b(?:OSFile|FileIO|memory_map|read_table)\(|\.read_(?:bytes|text)\("
    r"|ParquetFile\((?!_contents|arrow_file)"
)
OTHER_READS = {
    "files.py": "the one way to read files of others",
    "board/place.py": "a new file, which is written",
    "board/read.py": "/proc",
    "doctor/datagrams.py": "/sys",
    "doctor/listen.py": "/proc",
    "system.py": "/proc and /sys",
    "config/keys.py": "a new file, which is written",
    "net/stable.py": "a new file, which is written, and a lock",
    "journal/roll.py": "a member's own file, which it has just written",
    "cli/__init__.py": "/dev/null, in place of a standard stream that is closed",
    "cli/send.py": "what is sent may come from a FIFO",
    "cli/debug.py": "a new archive, which is written",
    "cli/timeline.py": "an archive that the user names, of which little is read",
    "cli/demo.py": "files that the demo was given, and its own members' journals",
    "cli/demo_member.py": "the file that the demo was given",
    "cli/fault.py": "the demo's own journal, which was read before",
    "blocks/disk.py": "os.open writes; the log is read by open_file",
    "perf/report.py": "/proc",
    "perf/worker.py": "/proc",
}


def test_files_that_others_may_have_put_there_are_read_in_one_way():
    """A FIFO would block its reader for ever, a link lead to files that others must not read, a sparse file fill
    memory."""
    source = ROOT / "src" / "seqcast"
    found = {
        path.relative_to(source).as_posix(): lines
        for path in source.glob("**/*.py")
        if (lines := [line for line in path.read_text("utf-8").splitlines() if READS.search(line)])
    }
    assert {*found} == {*OTHER_READS}, found
