"""The style that can be tested: white space, links, and documents that are made from the code."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = {".py", ".pyx", ".pxd", ".pxi", ".pyi", ".c", ".h", ".md", ".toml", ".yml", ".in", ""}
CODE = {".py", ".pyx", ".pxd", ".pxi", ".pyi", ".c", ".h"}


def files() -> list[Path]:
    """Every text file of the project: what git knows, or, in an unpacked sdist, what is there."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        found = [ROOT / name for name in listed.split("\0") if name]
    else:
        tops = ["native", "src", "tests", "bench", "docs"]
        found = [path for top in tops for path in (ROOT / top).rglob("*")] + list(ROOT.glob("*"))
    made_by_cython = {path.with_suffix(".c") for path in ROOT.glob("src/seqcast/_native/*.pyx")}
    no_text = made_by_cython | set(ROOT.glob("tests/fuzz/corpus/*"))
    return [path for path in found if path.is_file() and path.suffix in TEXT and path not in no_text]


def test_no_trailing_space_no_tab_in_code_and_a_newline_at_the_end():
    bad = []
    for path in files():
        if path.suffix in CODE:
            text = path.read_text(encoding="utf-8")
            if re.search(r"[ \t]$|\t", text, re.M) or (text and not text.endswith("\n")):
                bad.append(str(path.relative_to(ROOT)))
    assert bad == []


def test_made_documents_agree_with_what_they_are_made_from():
    result = subprocess.run(
        [sys.executable, "docs/render.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stdout + result.stderr + "\nrun: make figures"


def test_the_wheel_workflow_and_its_copy_are_equal():
    copy = ROOT / ".github" / "workflows" / "wheels.yml"
    assert copy.read_bytes() == (ROOT / "wheels.yml").read_bytes()


@pytest.mark.parametrize("page", sorted(path.name for path in [*ROOT.glob("docs/*.md"), ROOT / "README.md"]))
def test_links_between_documents_lead_somewhere(page):
    path = ROOT / "docs" / page if (ROOT / "docs" / page).exists() else ROOT / page
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []
