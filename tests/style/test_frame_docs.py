"""docs/protocol.md lists the control frames as the code declares them.

After a wanted change: ``SEQCAST_TRANSCRIPTS=write pytest tests/style/test_frame_docs.py``.
"""

import os
from pathlib import Path

from seqcast.core.frames.kinds import SHAPES

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_the_table_of_frames_is_the_codes():
    lines = ["| kind | what it says | fields |", "|---|---|---|"]
    for kind, (make, fields) in SHAPES.items():
        says = make.__doc__.strip().partition("\n")[0]
        shapes = "; ".join(f"`{name}`: {shape.text}" for name, shape in fields.items())
        lines.append(f"| `{kind}` | {says} | {shapes} |")
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition("<!-- frames -->\n")
    _, end, after = rest.partition("<!-- /frames -->\n")
    wanted = before + begin + "\n".join(lines) + "\n" + end + after
    if os.environ.get("SEQCAST_TRANSCRIPTS") == "write":
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted
