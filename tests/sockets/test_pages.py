"""The programs on the pages of docs/ run as printed, those of the README, the tutorial, the blocks and the readers of
journals in tests of their own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from members import LOOPBACK, cluster
from project import ROOT

import seqcast

DOCS = ROOT / "docs"
ELSEWHERE = {
    "guide": "tests/style/test_readme.py",
    "tutorial": "tests/sockets/test_tutorial.py",
    "blocks": "tests/sockets/test_blocks_examples.py",
    "journal": "tests/audit/test_other_readers.py",
    "spark": "tests/audit/test_other_readers.py",
}
HERE = ("from", "gossip", "protocol", "unicast")


def programs(page: str) -> list[str]:
    found: list[str] = re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(encoding="utf-8"), re.S)
    return found


def test_the_programs_of_every_page_are_run_and_all_of_them_are_python() -> None:
    pages = {path.stem for path in DOCS.glob("*.md") if programs(path.stem)}
    assert pages == {*ELSEWHERE, *HERE}
    for page in pages:
        for number, program in enumerate(programs(page)):
            compile(program, f"docs/{page}.md, program {number}", "exec")


@pytest.fixture
def names(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names that a program begins with; on loopback, and in a directory of its own."""
    monkeypatch.setenv("SEQCAST_INTERFACE", LOOPBACK)
    monkeypatch.setenv("SEQCAST_DISCOVERY_S", "0.3")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    made: dict[str, Any] = {"seqcast": seqcast, "__name__": "__main__"}
    yield made
    for each in made.values():
        if isinstance(each, seqcast.Group):
            each.leave()


def own(program: str) -> str:
    """The program in a cluster that nobody else is in, where the seeds are this machine."""
    seeds = {"10.0.0.5": "127.0.0.1", "orders-headless": "localhost"}
    for shown, used in seeds.items():
        program = program.replace(shown, used)
    return re.sub(r'"(orders|prices|sessions)"', f'"{cluster()}"', program)


def test_a_group_without_multicast_is_joined_by_its_seeds(names: dict[str, Any]) -> None:
    (program,) = programs("unicast")
    exec(own(program), names)
    assert names["group"].status == "left"


def test_programs_take_the_place_of_a_publisher_and_of_a_server_with_keys(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for program in programs("from"):
        exec(own(program), names)
    assert capsys.readouterr().out == "a b'tea 100.5'\n{'cart': ['tea']} True\n"


def test_policies_choose_the_order_of_members_and_the_sequencer(names: dict[str, Any]) -> None:
    from urgent_first import UrgentFirst

    names["UrgentFirst"] = UrgentFirst
    for program in programs("protocol"):
        exec(own(program), names)
        assert names["group"].status == "member"
        names["group"].leave()
    big = [seqcast.Member("small", 1), seqcast.Member("big", 2)]
    change = type("Change", (), {"members": big})
    assert [member.name for member in names["big_first"](change)] == ["big", "small"]


@pytest.mark.skipif(sys.platform == "win32", reason="a crowd's store is removed while it is open")
def test_members_of_a_crowd_receive_each_others_messages(names: dict[str, Any]) -> None:
    (program,) = programs("gossip")
    exec(own(program), names)
    assert names["event"].payload == b"..."
