"""The prose: how often words stand that a native reader stumbles over, per 1,000 words, by where they are written.

"What" begins a clause without its noun ("what was sent" for "the messages sent"), a far "it" has its noun in another
sentence, "where" stands for "if", and "that is there" says nothing. The limits only fall: after a page was rewritten,
set them to the rates that the test prints.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import files

pytestmark = pytest.mark.xdist_group("prose")  # all files are read once

STUMBLED = {"what": r"\bwhat\b", "it": r"\bit\b", "where": r"\bwhere\b", "is there": r"\b(?:is|are) there\b"}
MADE = {"codes", "config", "counters", "figures", "mutants", "pipeline", "stages", "wire"}
"""Pages that are made from code, where their words are counted, or from measurements."""
LIMITS = {
    "comments": {"what": 0.2, "it": 8.5, "where": 1.8, "is there": 0.4},
    "docstrings": {"what": 0.3, "it": 7.6, "where": 1.9, "is there": 0.4},
    "errors": {"what": 0.1, "it": 7.9, "where": 0.7, "is there": 0.3},
    "docs": {"what": 0.3, "it": 8.3, "where": 0.6, "is there": 0.2},
    "names of tests": {"what": 0.1, "it": 9.4, "where": 0.8, "is there": 0.1},
}
"""Per 1,000 words, rounded up to a tenth, and a tenth for work under way. Models have 0 to 2 "what", 2 to 10 "it"."""


def of_python(path: Path) -> Iterator[tuple[str, str]]:
    """(where, text) of everything that is prose in a module."""
    source = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield "comments", token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield "docstrings", node.value.value
        elif isinstance(node, ast.Raise) and node.exc is not None:
            parts = [each.value for each in ast.walk(node.exc) if isinstance(each, ast.Constant)]
            yield "errors", " ".join(part for part in parts if isinstance(part, str))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield "names of tests", node.name.removeprefix("test_").replace("_", " ")


def prose() -> Iterator[tuple[str, Path, str]]:
    """(where, file, text) of the whole project."""
    for path in files():
        if path.suffix in {".c", ".h"}:
            for comment in re.findall(r"/\*.*?\*/|//[^\n]*", path.read_text(encoding="utf-8"), re.S):
                yield "comments", path, comment
        elif path.suffix in {".pyx", ".pxd"}:
            text = path.read_text(encoding="utf-8")
            for docstring in re.findall(r'"""(.*?)"""', text, re.S):
                yield "docstrings", path, docstring
            for comment in re.findall(r"(?:^|\s)#[^\n]*", text):
                yield "comments", path, comment
        elif path.suffix in {".py", ".pyi"}:
            for where, text in of_python(path):
                yield where, path, text
        elif path.suffix == ".md" and path.stem not in MADE:
            yield "docs", path, re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    texts: dict[str, list[str]] = {where: [] for where in LIMITS}
    for where, _, text in prose():
        texts[where].append(text)
    return {where: "\n".join(each) for where, each in texts.items()}


@pytest.mark.parametrize("where", LIMITS)
def test_the_words_that_readers_stumble_over_become_fewer(written: dict[str, str], where: str) -> None:
    text = written[where]
    words = len(re.findall(r"[A-Za-z']+", text))
    rates = {name: 1000 * len(re.findall(form, text, re.I)) / words for name, form in STUMBLED.items()}
    said = ", ".join(f'"{name}" {rate:.2f}' for name, rate in rates.items())
    assert all(rate <= LIMITS[where][name] for name, rate in rates.items()), f"{where}, per 1,000 words: {said}"
