"""Every requirement that is cited is explained in docs/requirements.md, once."""

import re

from project import ROOT, files

CITED = re.compile(r"\b(?:(?:SEQ|TOT|DIG|PB|EVT|TRC|MBR|NAK|MRG|STA|FLU|NBC|E)-\d+|S[0-4])\b")
PAGE = ROOT / "docs" / "requirements.md"


def rows() -> list[str]:
    """The first column of the tables, without their heads."""
    first = re.findall(r"^\| ([^|]+?) \|", PAGE.read_text(encoding="utf-8"), re.M)
    return [cell for cell in first if CITED.fullmatch(cell)]


def test_every_cited_requirement_is_explained():
    defined = set(rows())
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in files()
        if path.name != "LICENSE" and path.parent.name != "corpus"  # inputs of the fuzzer are no text
        for name in CITED.findall(path.read_text(encoding="utf-8"))
        if name not in defined
    }
    assert missing == set(), "add a row to docs/requirements.md"


def test_no_requirement_is_explained_twice():
    assert len(rows()) == len(set(rows())) > 5
