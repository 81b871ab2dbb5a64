"""The style that can be tested: white space, links, and documents that are made from the code."""

import importlib
import re
import subprocess
import sys

import pytest
import render
from project import ROOT, files

TEXT = {".py", ".pyx", ".pxd", ".pxi", ".pyi", ".c", ".h", ".md"}


def test_no_trailing_space_no_tab_and_a_newline_at_the_end():
    bad = []
    for path in files():
        if path.suffix in TEXT:
            text = path.read_text(encoding="utf-8")
            if re.search(r"[ \t]$|\t", text, re.M) or (text and not text.endswith("\n")):
                bad.append(str(path.relative_to(ROOT)))
    assert bad == []


def test_lines_of_c_are_no_longer_than_those_of_python():
    """The formatter leaves comments as they are."""
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files()
        if path.suffix in {".c", ".h"}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120
    ]
    assert long == []


def test_made_documents_agree_with_their_sources():
    result = subprocess.run(
        [sys.executable, "docs/render.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stdout + result.stderr + "\nrun: make figures"


def test_the_wheel_workflow_and_its_copy_are_equal():
    copy = ROOT / ".github" / "workflows" / "wheels.yml"
    assert copy.read_bytes() == (ROOT / "wheels.yml").read_bytes()


def run_together(page: str) -> list[str]:
    """Items of lists, and rows of tables, that the site shows as text: no blank line is before them, or a nested list
    is not indented by four."""
    found = []
    for block in re.split(r"\n\s*\n", re.sub(r"```.*?```|<!--.*?-->\n?", "", page, flags=re.S)):
        first, *rest = block.strip("\n").split("\n")
        for kind in (r" *(?:[-*]|\d+\.) ", r" *\|"):
            if not re.match(kind, first):
                found += [line for line in rest if re.match(kind, line)]
        found += [line for line in (first, *rest) if re.match(r"(?: {1,3}| {5,7})(?:[-*]|\d+\.) ", line)]
        found += re.findall(r"\w[.;] \d\. \w[^\n]*", block)  # the next item, in the middle of a line
    return found


@pytest.mark.parametrize("page", sorted(path.name for path in ROOT.glob("docs/*.md")))
def test_lists_and_tables_stand_apart_from_the_text_before_them(page):
    assert run_together((ROOT / "docs" / page).read_text(encoding="utf-8")) == []


def test_an_item_that_the_site_shows_as_text_is_seen():
    for text in ("Text:\n- item", "- item\n  - nested", "1. item; 2. item", "Text\n| a | b |", "- a\n  | b |\n- c"):
        assert run_together(text), text
    assert run_together("Text:\n\n- item\n  more\n- item\n\n    1. nested\n\n| a |\n|---|\n| 1. b |") == []


@pytest.mark.parametrize("page", sorted(path.name for path in [*ROOT.glob("docs/*.md"), ROOT / "README.md"]))
def test_links_between_documents_lead_somewhere(page):
    path = ROOT / "docs" / page if (ROOT / "docs" / page).exists() else ROOT / page
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists() or link == render.UNKEPT] == []


def test_the_page_of_state_tables_has_each_machine():
    from seqcast.core.machines.every import MACHINES

    page = render.state_page()
    for machine in MACHINES:
        assert f"## {machine.TABLE.name.capitalize()}" in page


def test_the_reference_names_everything_that_is_exported():
    import seqcast

    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^::: seqcast\.(\w+)$", page, re.M)) == sorted(seqcast.__all__)
    for name in ("journal", "spark", "metrics"):
        named = re.findall(rf"^::: seqcast\.{name}\.(\w+)$", page, re.M)
        assert sorted(named) == sorted(importlib.import_module(f"seqcast.{name}").__all__)


def test_the_site_has_every_page():
    pages = {path.name for path in ROOT.glob("docs/*.md")} | {render.UNKEPT}
    site = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    assert sorted(re.findall(r'"(\S+\.md)"', site)) == sorted(pages)
