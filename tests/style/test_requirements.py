"""docs/requirements.md: each number of the five documents has a row, and tests that cite it and speak of the same."""

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path

from project import ROOT, files

FAMILIES = {"SEQ": 24, "TOT": 21, "DIG": 8, "PB": 13, "EVT": 2, "TRC": 1, "MBR": 3, "NAK": 3, "MRG": 9, "STA": 7,
            "FLU": 16, "NBC": 18, "E": 22}  # fmt: skip
"""How many statements of the documents have numbers, by family."""
NUMBERS = {f"{family}-{number:02}" for family, count in FAMILIES.items() for number in range(1, count + 1)}
CITED = re.compile(rf"\b({'|'.join(FAMILIES)})-(\d+)(?: to \1-(\d+))?\b")
PAGE = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
TESTS = ROOT / "tests"
LITERAL = {"sim_literal.py", "sim_literal_order.py", "ring_literal.py"}
COMMON = set(
    """about after alone also among another before begin both come comes does each else from gives have here into itself
    last less made make many more most must none nobody other others ours over same says some still take taken test than
    that their them then there these they this those until what when which while whose will with without""".split()
)


def rows() -> Iterator[tuple[str, str, list[str]]]:
    """Of each row of the table: its number, its words, and the tests that it names."""
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if cells and CITED.fullmatch(cells[0].strip("| ")):
            assert len(cells) == 4, f"a row has four cells: {line}"
            yield cells[0].strip("| "), cells[2], re.findall(r"`([^`]+)`", cells[3])


ROWS = {number: (words, tests) for number, words, tests in rows()}


def cited(text: str) -> set[str]:
    """The numbers that a text cites, one by one or as a range."""
    found: set[str] = set()
    for family, first, last in CITED.findall(" ".join(text.split())):
        found |= {f"{family}-{number:02}" for number in range(int(first), int(last or first) + 1)}
    return found


@cache
def module(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def text_of(test: str) -> str:
    """A test's description of itself: its name and docstring, or the comments of a transcript. Empty if there is none.

    A literal reading may be a class that its function names.
    """
    place, _, name = test.partition("::")
    path = next((path for path in (TESTS / place, TESTS / "helpers" / place) if path.is_file()), None)
    if path is None:
        return ""
    if path.suffix == ".txt":
        return "\n".join(line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#"))
    defined = {node.name: node for node in module(path).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    if name not in defined or not (name.startswith("test_") or path.name in LITERAL):
        return ""
    names = ast.walk(defined[name]) if path.name in LITERAL else ()
    used = {node.id for node in names if isinstance(node, ast.Name)}
    told = [ast.get_docstring(defined[each]) or "" for each in (name, *sorted(used & set(defined)))]
    return " ".join([name.replace("_", " "), *told])


def stems(text: str) -> set[str]:
    """The words that say something, without their endings."""
    words = set(re.findall(r"[a-z]{4,}", CITED.sub(" ", text).lower())) - COMMON
    return {re.sub(r"(.)\1$", r"\1", re.sub(r"(ing|ed|es|s|ly|er|ers|e)$", "", word))[:6] for word in words}


SAID = {number: stems(words) for number, (words, _) in ROWS.items()}
CHECKED = {number: set().union(*(stems(text_of(test)) for test in tests)) for number, (_, tests) in ROWS.items()}
KNOWN = Counter(stem for number in ROWS for stem in SAID[number] | CHECKED[number])


def likeness(row: str, tests: str) -> float:
    """How much the words of a row are those of the tests of another: the cosine, in which a rare word counts more."""

    def size(stems: set[str]) -> float:
        return sum(math.log(len(ROWS) / KNOWN[stem]) ** 2 for stem in stems)

    return size(SAID[row] & CHECKED[tests]) / math.sqrt((size(SAID[row]) * size(CHECKED[tests])) or 1)


def test_each_number_has_one_row():
    assert sorted(number for number, _, _ in rows()) == sorted(NUMBERS)


def test_each_row_names_tests_that_cite_its_number():
    wrong = {
        f"{number}: {test or 'names no test'}"
        for number, (_, tests) in ROWS.items()
        for test in tests or [""]
        if number not in cited(text_of(test))
    }
    assert wrong == set(), "a test that is not there, or whose docstring does not cite the number"


def test_every_number_that_is_cited_exists():
    unknown = {
        f"{path.relative_to(ROOT)}: {number}"
        for path in [*files(), *TESTS.rglob("transcripts/**/*.txt")]
        if path.name != "LICENSE" and path.parent.name != "corpus"  # inputs of the fuzzer are no text
        for number in cited(path.read_text(encoding="utf-8")) - NUMBERS
    }
    assert unknown == set()


def test_each_row_speaks_of_its_tests_subject():
    """A row about fruit would share no two words with them."""
    strange = {f"{number}: {words}" for number, (words, _) in ROWS.items() if len(SAID[number] & CHECKED[number]) < 2}
    assert strange == set(), "see the row and its tests: which is wrong?"


def test_no_two_rows_have_changed_places():
    """Each pair of rows is more like its own tests than it would be exchanged. Rows that share a test are left out."""
    apart = [(a, b) for a, b in combinations(ROWS, 2) if not set(ROWS[a][1]) & set(ROWS[b][1])]
    likely = {(a, b): likeness(a, b) for a in ROWS for b in ROWS}
    exchanged = [(a, b) for a, b in apart if likely[a, b] + likely[b, a] >= likely[a, a] + likely[b, b]]
    assert exchanged == []
