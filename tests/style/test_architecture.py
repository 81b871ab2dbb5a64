"""docs/architecture.md names each room and module at the top, and only files and functions that exist."""

import re

from project import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = ("api", "blocks", "board", "core", "net", "sim", "config", "cli", "doctor", "journal", "spark", "perf")
PACKAGES += ("_native", "crowd")


def test_files_that_the_page_names_exist():
    named = {name for name in re.findall(r"`((?:\w+/)+(?:\w+|\*)?(?:\.\w+)?)`", PAGE) if "/NAME." not in name}
    assert len(named) > 30
    places = {name: ROOT / "src" / "seqcast" if name.split("/")[0] in PACKAGES else ROOT for name in named}
    assert not [name for name, top in places.items() if not list(top.glob(name))]


def test_the_page_names_each_room_and_each_module_beside_the_rooms():
    source = ROOT / "src" / "seqcast"
    rooms = [f"{path.parent.name}/" for path in source.glob("*/__init__.py") if path.parent.name != "core"]
    rooms += [f"native/{path.name}/" for path in (ROOT / "native").iterdir() if path.is_dir()]
    modules = [path.name for path in source.glob("[!_]*.py")]
    core = [f"core/{path.name}" for path in source.glob("core/[!_]*.py")]
    told = rooms + modules + core
    assert len(told) > 40
    assert not [name for name in told if f"`{name}`" not in PAGE]


def test_functions_of_the_engine_that_the_page_names_exist():
    named = set(re.findall(r"`(sc_\w+)`", PAGE))
    headers = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "native").glob("*/*.h"))
    assert len(named) > 10
    assert not {name for name in named if not re.search(rf"\b{name}\b", headers)}
