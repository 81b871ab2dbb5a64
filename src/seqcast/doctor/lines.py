"""A line of the doctor."""

from __future__ import annotations

from typing import Any, NamedTuple

from seqcast.codes import Code

OK, NOTE, WARN, FAIL = "ok", "note", "WARN", "FAIL"
"""All is well; worth knowing; it costs speed or may fail later; a group does not work like this."""


class Line(NamedTuple):
    """A look, and its result.

    Args:
        level: OK, NOTE, WARN or FAIL.
        word: for the thing that was looked at.
        fact: about it.
        code: of the condition; None: all is well.
        remedy: better than the code's; empty: there is no better one.
    """

    level: str
    word: str
    fact: str
    code: Code | None = None
    remedy: str = ""

    def text(self) -> str:
        """The line for people."""
        end = f"  {self.code.number}  {self.remedy or self.code.remedy}" if self.code else ""
        return f"{self.level:6}{self.word:12}{self.fact}{end}"

    def item(self) -> dict[str, Any]:
        """The line for programs."""
        number = self.code.number if self.code else ""
        remedy = (self.remedy or self.code.remedy) if self.code else ""
        return {"level": self.level, "word": self.word, "fact": self.fact, "code": number, "remedy": remedy}
