"""The prose: how often words stand that a native reader stumbles over, per 1,000 words, by where they are written.

"What" begins a clause without its noun ("what was sent" for "the messages sent"), and so does "who" ("Who was silent
is forgotten"); a far "it" has its noun in another sentence, "where" stands for "if", "that is there" says nothing, and
"is no X" stands for "is not an X". Comments and docstrings count by folder, so that a large one hides no other. The
limits only fall: after a page was rewritten, set them to the rates that the test prints.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from mutants import breaks
from mutants.breaks import BREAKS
from project import ROOT, files

from seqcast._native.driver import AsyncSender, Receiver, Sender

pytestmark = pytest.mark.xdist_group("prose")  # all files are read once

STUMBLED = {
    "what": r"\bwhat\b",
    "it": r"\bit\b",
    "where": r"\bwhere\b",
    "who": r"(?-i:\bWho)\b(?![^.:;?]*\?)",  # at the beginning of a sentence that is not a question
    "is there": r"\b(?:is|are) there\b",
    "is no": r"(?<!there )\b(?:is|are|was|were)\s+no\b(?!\s+(?:longer|more|larger|faster|matter|later|less|one)\b)",
}
MADE = {"codes", "config", "counters", "figures", "mutants", "pipeline", "stages", "wire"}
"""Pages whose words are counted in their source: among "texts", "breaks", and the comments of wire.h."""
PRINTED = {"orders", "state-tables"}
"""Further pages that are written by programs, with a paragraph a line."""
LINE_MAX = 130
TOLD = ("src", "bench", "docs", "examples")
"""Folders of code whose strings are read by users: help, logs, tables of states, settings, codes, pages."""
QUERY = re.compile(r"SELECT |DELETE |INSERT |CREATE | WHERE ")
"""A string for a database, in which no word can be another one."""
RAISED = re.compile(r"^([ \t]*)raise\b.*(?:\n\1[ \t]+.*)*", re.M)
"""A statement in Cython, with its further lines, which are indented more."""
LIMITS = {
    "src": {"what": 0.2, "it": 5.0, "where": 1.2, "who": 0.1, "is there": 0.3, "is no": 0.1},
    "sim": {"what": 0.1, "it": 2.7, "where": 1.0, "who": 0.2, "is there": 0.3, "is no": 0.1},
    "native": {"what": 0.2, "it": 3.4, "where": 0.9, "who": 0.1, "is there": 0.4, "is no": 0.1},
    "tests": {"what": 0.3, "it": 3.2, "where": 1.4, "who": 0.2, "is there": 0.4, "is no": 0.1},
    "tests in C": {"what": 0.1, "it": 2.8, "where": 1.3, "who": 0.5, "is there": 0.1, "is no": 0.1},
    "transcripts": {"what": 0.4, "it": 2.2, "where": 0.1, "who": 0.1, "is there": 0.1, "is no": 0.5},
    "bench": {"what": 0.5, "it": 5.5, "where": 1.1, "who": 0.1, "is there": 0.3, "is no": 0.1},
    "examples": {"what": 0.1, "it": 2.6, "where": 0.1, "who": 0.1, "is there": 0.1, "is no": 0.1},
    "builds": {"what": 0.1, "it": 6.1, "where": 0.1, "who": 0.1, "is there": 0.1, "is no": 0.1},
    "errors": {"what": 0.1, "it": 6.1, "where": 0.5, "who": 0.1, "is there": 0.3, "is no": 0.1},
    "docs": {"what": 0.3, "it": 7.6, "where": 0.6, "who": 0.1, "is there": 0.1, "is no": 0.1},
    "texts": {"what": 0.4, "it": 5.6, "where": 0.4, "who": 0.1, "is there": 0.2, "is no": 0.1},
    "breaks": {"what": 0.2, "it": 8.2, "where": 0.4, "who": 0.1, "is there": 0.1, "is no": 0.1},
    "names of tests": {"what": 0.1, "it": 9.1, "where": 0.8, "who": 0.1, "is there": 0.1, "is no": 0.1},
}
"""Per 1,000 words, rounded up to a tenth, and a tenth (in a small folder: a word or two) for work under way. Models
have 0 to 2 "what", 2 to 10 "it"."""


def folder(path: Path) -> str:
    """Under which name of LIMITS the comments and docstrings of a file count."""
    parts = path.relative_to(ROOT).parts
    if parts[:3] == ("src", "seqcast", "sim"):
        return "sim"
    if parts[0] == "tests" and path.suffix in {".c", ".h"}:
        return "tests in C"
    return parts[0] if parts[0] in LIMITS else "builds"


def of_python(path: Path) -> Iterator[tuple[str, str]]:
    """(where, text) of everything that is prose in a module."""
    source = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield folder(path), token.string
    counted = set[ast.AST]()
    for node in ast.walk(ast.parse(source)):  # parents first, so that a string is counted once
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            counted.add(node.value)
            yield folder(path), node.value.value
        elif isinstance(node, ast.Raise) and node.exc is not None:
            parts = [each for each in ast.walk(node.exc) if isinstance(each, ast.Constant)]
            counted.update(parts)
            yield "errors", " ".join(part.value for part in parts if isinstance(part.value, str))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield "names of tests", node.name.removeprefix("test_").replace("_", " ").capitalize()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in counted:
            if " " in node.value and path.relative_to(ROOT).parts[0] in TOLD and not QUERY.search(node.value):
                yield "texts", node.value


def of_cython(path: Path) -> Iterator[tuple[str, str]]:
    """The same of a Cython file."""
    source = path.read_text(encoding="utf-8")
    for text in re.findall(r'"""(.*?)"""', source, re.S) + re.findall(r"(?:^|\s)#[^\n]*", source):
        yield folder(path), text
    for raised in RAISED.finditer(source):
        parts = re.findall(r'"((?:[^"\\\n]|\\.)*)"', raised[0])
        yield "errors", re.sub(r"\{[^}]*\}", "", " ".join(parts))


def prose() -> Iterator[tuple[str, Path, str]]:
    """(where, file, text) of the whole project."""
    for each in BREAKS:
        yield "breaks", Path(breaks.__file__), f"{each.name}\n{each.why}"
    for path in files():
        if path.suffix in {".c", ".h"}:
            for comment in re.findall(r"/\*.*?\*/|//[^\n]*", path.read_text(encoding="utf-8"), re.S):
                yield folder(path), path, comment
        elif path.suffix in {".pyx", ".pxd", ".pxi"}:
            for where, text in of_cython(path):
                yield where, path, text
        elif path.suffix in {".toml", ".yml", ".yaml", ".in", ""}:
            for comment in re.findall(r"(?:^|\s)#(?!!)[^\n]*", path.read_text(encoding="utf-8")):
                yield "builds", path, comment
        elif path.suffix in {".py", ".pyi"}:
            for where, text in of_python(path):
                yield where, path, text
        elif path.suffix == ".md" and path.stem not in MADE:
            yield "docs", path, re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
    for path in ROOT.glob("tests/protocol/transcripts/**/*.txt"):
        for comment in re.findall(r"^#[^\n]*", path.read_text(encoding="utf-8"), re.M):
            yield "transcripts", path, comment


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


@pytest.mark.parametrize("compiled", [Sender, Receiver, AsyncSender])
def test_calls_of_the_stub_have_the_docstrings_of_the_compiled_module(compiled: type) -> None:
    stub = next(
        node
        for node in ast.parse((ROOT / "src/seqcast/_native/driver.pyi").read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == compiled.__name__
    )
    calls = [node for node in stub.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    told = {node.name: ast.get_docstring(node) for node in calls if not node.name.startswith("_")}
    assert told  # the compiled ones begin with their signature
    assert {name: (getattr(compiled, name).__doc__ or "").partition("\n\n")[2].strip() for name in told} == told


def test_paragraphs_of_pages_are_wrapped() -> None:
    long = []
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        if path.stem in MADE | PRINTED:
            continue
        code = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            code ^= line.startswith("```")
            shown = re.sub(r"\]\([^)]*\)", "]", line)  # without the targets of links
            if not code and not line.startswith(("    ", "|", "<", "- [")) and len(shown) > LINE_MAX:
                long.append(f"{path.name}:{number}: {len(shown)} characters")
    assert not long
