"""docs/requirements.md: each number of the five documents has a row, and tests that cite it and speak of the same."""

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from zlib import crc32

from project import ROOT, files

FAMILIES = {"SEQ": 24, "TOT": 21, "DIG": 8, "PB": 13, "EVT": 2, "TRC": 1, "MBR": 3, "NAK": 3, "MRG": 9, "STA": 7,
            "FLU": 16, "NBC": 18, "E": 22}  # fmt: skip
"""How many statements of the documents have numbers, by family."""
NUMBERS = {f"{family}-{number:02}" for family, count in FAMILIES.items() for number in range(1, count + 1)}
COMPARED = """
SEQ 1853e788 ca3dde97 09c2aaf3 8539d41c d25aaf49 dbbde61f 9eaee835 ecf688ce 2cbd5f8e fd909f5f 76a24c72 9f1d78de
    fd1e463c 5e119b5f b0691899 0d6be42d 1362fc3f 3b25c5a5 782b5a83 bfa1d49a eadb81b1 50de7457 d9695bd6 08bcc8d1
TOT 996eaf9c d3abf25c 2bd4c9cf 906aa976 1b41b3f1 b09df4e7 f8be8b6c 453b49bf 78b40a09 d22832a3 bf68f5f5 1b62c0f2
    2b4f8b4a 7e29930f 8d6e448b 1fd782af e5338574 4fc0e9d3 0fe2a583 80ff1bee 48d0fdbc
DIG 2ef9d5f2 fdc8b56c 381d323d 1c981c20 c9f5d698 898656be ef888ddc 08e6f47b
PB e5acfb7d dd4e797d 8dcb1a95 40d9c74e f43920e5 b9d48f65 e436f587 8f4a6a6e 3abbcf1e 317a4a48 bedb3983 fd91258a
    7b121d51
EVT 384d2cf5 3453df6a
TRC 2d1fadbf
MBR c5fe354d 7e2a1315 46e05fdb
NAK 8cb26721 0c8301f3 ac370e9e
MRG d6dd4570 51df0377 2d953081 fda7c248 46ab918c 4976ffcc 62dc91ed f2737ec8 4621149d
STA 6a67a8e7 bd2c7449 d788b9c3 ec337b2f 5f91d00d e72a4dd8 0be0c7ef
FLU a2c51ad2 77c8e36d 39991437 f5dcbd62 e77a9bef 83eeb5f2 408c15d3 f6a6f0db 533fd3dc b13103b3 8bd8fe9e 1e452d64
    97561857 6c5be671 070c2523 618de856
NBC 6356469d add1f273 641b0cfb 0693583d 7a8c1d73 19230d6d c1a5896e f76d0b2b f66b2359 70be609f 4343a13d 865c1271
    93802839 fd0adf50 8992fef5 a11e7936 df0260b6 0149e7fd
E 6ebd92ac f70c5ce0 29335341 76dc39a3 6e35f3e3 6acfd091 5eb52162 34b3693f b8a35d6c 10b9c0c4 5fae781d 15bd4626
    d0c1dc95 e13a7c7e f7324945 a40bfe85 1f19b059 a470bd10 2f3532ab 97683c62 77436b12 037c6477
"""
"""Of each row in their order, a digest of its words, which were compared with the sense of the documents."""
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
    """Of each row of the table: its number, its words, and the named tests."""
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
    """And the table has no row without a number of the documents."""
    table = PAGE.partition("| id | document | statement | tested by |\n|---|---|---|---|\n")[2]
    assert len(table.splitlines()) == len(NUMBERS)
    assert sorted(number for number, _, _ in rows()) == sorted(NUMBERS)


def test_each_row_names_the_document_of_its_number():
    of = {"SEQ": "S0", "TOT": "S1", "FLU": "S3", "NBC": "S4"}  # the other families are those of S2
    expected = {number: of.get(number.partition("-")[0], "S2") for number in NUMBERS}
    mistakes = ["S0"] * 7 + ["S1"] + ["S2"] * 5 + ["S3"] * 5 + ["S4"] * 4
    expected |= {f"E-{number:02}": document for number, document in enumerate(mistakes, 1)}
    assert dict(re.findall(r"^\| (\w+-\d+) \| (\w+) \|", PAGE, re.M)) == expected


def digest(words: str) -> str:
    return f"{crc32(' '.join(words.lower().split()).encode()):08x}"


def test_each_row_has_the_words_that_were_compared_with_the_documents():
    """No count of words tells a sentence from its negation. A row that is to say something else, or in other words, is
    compared with the documents again, and its digest replaced."""
    digests = [each for each in COMPARED.split() if each not in FAMILIES]
    numbers = [f"{family}-{number:02}" for family, count in FAMILIES.items() for number in range(1, count + 1)]
    now = {number: digest(ROWS[number][0]) for number in numbers}
    assert now == dict(zip(numbers, digests, strict=True))


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
        if path.name != "LICENSE" and path.parent.name != "corpus"  # inputs of the fuzzer are not text
        for number in cited(path.read_text(encoding="utf-8")) - NUMBERS
    }
    assert unknown == set()


def test_each_row_speaks_of_its_tests_subject():
    """A row about fruit would share no two words with them."""
    strange = {f"{number}: {words}" for number, (words, _) in ROWS.items() if len(SAID[number] & CHECKED[number]) < 2}
    assert strange == set(), "see the row and its tests: which is wrong?"


def test_no_two_rows_have_changed_places():
    """Each pair of rows is more like its own tests than after an exchange. Rows that share a test are left out."""
    apart = [(a, b) for a, b in combinations(ROWS, 2) if not set(ROWS[a][1]) & set(ROWS[b][1])]
    likely = {(a, b): likeness(a, b) for a in ROWS for b in ROWS}
    exchanged = [(a, b) for a, b in apart if likely[a, b] + likely[b, a] >= likely[a, a] + likely[b, b]]
    assert exchanged == []
