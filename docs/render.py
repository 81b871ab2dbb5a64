"""Makes the parts of the documentation that are facts of the code: ``python docs/render.py`` (``make figures``).

docs/wire.md comes from native/wire/wire.h, docs/state-tables.md from the tables of the machines, docs/config.md from
the settings, docs/counters.md from seqcast.api.counters, docs/codes.md from seqcast.codes, the table of frames in
docs/protocol.md from seqcast.core.frames, that of options in docs/spark.md from seqcast.spark.options, and
docs/figures.md and the headline of README.md from docs/figures.jsonl, in which each line is the output of one command
of ``bench/figures.py``, and the first table of docs/gossip.md from docs/gossip.csv. A test compares the repository with
the output of this script.
docs/state-tables.md is long and no source, so git does not keep it: it is written here and by ``make docs``.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from measurements import figures, gossip, gossip_rows, headline, table

if TYPE_CHECKING:
    from seqcast.core.table import DecisionTable, Row, Table

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures.jsonl"
OPTIONS = "<!-- options -->", "<!-- /options -->"
FRAMES = "<!-- frames -->", "<!-- /frames -->"
ROUTES = "<!-- routes -->", "<!-- /routes -->"
UNKEPT = "state-tables.md"
"""The page that git does not keep."""
BEGIN, END = "<!-- figures: made by docs/render.py -->", "<!-- end of figures -->"
HEADLINE = "<!-- figure: made by docs/render.py -->", "<!-- end of figure -->"
GOSSIP = "<!-- gossip: made by docs/render.py -->", "<!-- end of gossip -->"


def rendered() -> dict[Path, str]:
    """The contents that each file made wholly or in part must hold."""
    lines = FIGURES.read_text(encoding="utf-8").splitlines() if FIGURES.exists() else []
    runs = [json.loads(line) for line in lines if line.strip()]
    return {
        ROOT / "docs" / "wire.md": wire_page((ROOT / "native" / "wire" / "wire.h").read_text(encoding="utf-8")),
        ROOT / "docs" / "config.md": config_page(),
        ROOT / "docs" / "counters.md": counters_page(),
        ROOT / "docs" / "codes.md": codes_page(),
        ROOT / "src" / "seqcast" / "config" / "keywords.py": settings_module(),
        ROOT / "docs" / "protocol.md": protocol_page((ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")),
        ROOT / "docs" / "spark.md": between(
            (ROOT / "docs" / "spark.md").read_text(encoding="utf-8"), *OPTIONS, options_table()
        ),
        ROOT / "docs" / "figures.md": between(
            (ROOT / "docs" / "figures.md").read_text(encoding="utf-8"), BEGIN, END, figures(runs)
        ),
        ROOT / "docs" / "gossip.md": between(
            (ROOT / "docs" / "gossip.md").read_text(encoding="utf-8"), *GOSSIP, gossip(gossip_rows())
        ),
        ROOT / "README.md": between((ROOT / "README.md").read_text(encoding="utf-8"), *HEADLINE, headline(runs)),
    }


def between(page: str, begin: str, end: str, text: str) -> str:
    """A page with this text between two of its lines."""
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text}{end}{after}"


def protocol_page(page: str) -> str:
    """docs/protocol.md with its tables of frames."""
    return between(between(page, *FRAMES, frames_table()), *ROUTES, routes_tables())


def options_table() -> str:
    """The options of the format in Spark."""
    from seqcast.spark.options import OPTIONS

    rows = [[f"`{each.name}`", " and ".join(each.of), each.values, each.text] for each in OPTIONS if each.text]
    return table(["option", "of a", "values, the default first", "effect"], rows) + "\n"


def frames_table() -> str:
    """The control frames and their fields."""
    from seqcast.core.frames.kinds import SCHEMAS

    rows = []
    for kind, (make, fields) in SCHEMAS.items():
        says = " ".join((make.__doc__ or "").partition("\n\n")[0].split())
        rows.append([f"`{kind}`", says, "; ".join(f"`{name}`: {schema.text}" for name, schema in fields.items())])
    return table(["kind", "meaning", "fields"], rows) + "\n"


def routes_tables() -> str:
    """Which machine handles which frame, and the decisions on some of them."""
    from seqcast.core.frames.joining import OtherVersion
    from seqcast.core.frames.kinds import SCHEMAS
    from seqcast.core.router import DECISIONS, ROUTES
    from seqcast.core.table import DecisionTable

    kinds = {make: f"`{kind}`" for kind, (make, _) in SCHEMAS.items()}
    kinds[OtherVersion] = "`join` of another protocol version"
    routes = []
    for route in ROUTES:
        handler = route.handler
        by = f"see {handler.name} below" if isinstance(handler, DecisionTable) else prose(route.does)
        routes.append([kinds[route.frame], route.of.value, route.by.value, by])
    parts = [table(["kind", "of which view", "sent by", "handled by"], routes)]
    parts.append("For some frames a table decides: the first row whose condition holds applies.")
    for each in DECISIONS:
        rows = [
            [prose(row.guard.__doc__ or "") if row.guard else "otherwise", done(row, "`"), row.why] for row in each.rows
        ]
        parts += [f"**{each.name}**", table(["if", "does", "because"], rows)]
    return "\n\n".join(parts) + "\n"


def settings_module() -> str:
    """src/seqcast/config/keywords.py: the settings as keywords, for type checkers."""
    from typing import get_type_hints

    from seqcast.config import Config
    from seqcast.types import ORDERS

    hints = get_type_hints(Config)
    lines = []
    for field in dataclasses.fields(Config):
        among, kind = field.metadata["among"], hints[field.name].__name__
        if among:
            kind = f"Literal[{', '.join(json.dumps(value) for value in among)}]"
        elif kind == "str":
            kind = KINDS.get(field.name, "str")
        lines.append(f"    {field.name}: {kind}")
    return SETTINGS.replace("{orders}", ", ".join(map(json.dumps, ORDERS))) + "\n".join(lines) + "\n"


KINDS = {"journal": "str | Path | None", "seeds": "str | Sequence[str] | Callable[[], Sequence[str]]"}
"""Settings that are text, and may be given as something else."""
SETTINGS = '''"""The settings as keywords of ``seqcast.join``, for type checkers: they see a misspelt one.

Made from the fields of ``Config`` by docs/render.py; do not edit. Their meaning: docs/config.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypedDict

Order = Literal[{orders}]


class Settings(TypedDict, total=False):
    """Each setting of ``seqcast.Config``, none of them required."""

'''


# ---- the wire ----------------------------------------------------------------------------------------------------


def wire_page(header: str) -> str:
    """docs/wire.md from the text of native/wire/wire.h."""
    constants = dict(re.findall(r"^#define SC_(\w+) (0x\w+|\d+)\b", header, re.M))
    parts = [
        "# The wire",
        "Made from `native/wire/wire.h` by `docs/render.py`; do not edit.",
        sentence("".join(re.findall(r"/\* The wire: (.*?)\*/", header, re.S))),
        f"Magic {constants['WIRE_MAGIC']}, version {constants['WIRE_VERSION']}; the largest datagram has "
        f"{constants['PACKET_MAX']} bytes; at most {constants['MEMBERS_MAX']} members.",
        "## Datagram types",
        table(["type", "name", "meaning"], enumeration(header, "SC_TYPE_")),
        *layouts(header),
        f"A NAK names at most {constants['NAK_RANGES_MAX']} ranges.",
        "## Streams",
        table(["stream", "name", "meaning"], enumeration(header, "SC_STREAM_")),
        "## Flags",
        table(["flag", "name", "meaning"], enumeration(header, "SC_FLAG_")),
        "## The validity function",
        "`sc_wire_check` is the one function that says whether a datagram is valid; others are dropped and counted.",
        table(["value", "name", "meaning"], enumeration(header, "SC_WIRE_")),
    ]
    return "\n\n".join(parts) + "\n"


def layouts(header: str) -> list[str]:
    """A heading, the comment's text, and a table of the fields for each run of fields in wire.h."""
    parts = []
    for title, more, lines in re.findall(
        r"/\* (Common header|Header of data packets|Body of [\w ]+)[.;:] ?(.*?) ?\*/\n((?:SC_[A-Z]+\([^\n]*\n)+)",
        header,
        re.S,
    ):
        rows = []
        for kind, numbers, name, comment in re.findall(
            r"SC_(FIELD|ENTRIES|BYTES)\((.*), (\w+)\);(?: /\* (.*?) \*/)?\n", lines
        ):
            offset, *rest = (int(number) for number in numbers.split(","))
            at = f"{offset} + {rest[0]} i" if kind == "ENTRIES" else str(offset)
            field = name.partition("_")[2] if title.startswith("Body") else name
            rows.append([at, str(rest[-1] if kind == "BYTES" else rest[-1] // 8), f"`{field}`", comment])
        assert len(rows) == lines.count("\n"), title
        parts += [f"## {title}", *([sentence(more)] if more else [])]
        parts.append(table(["offset", "bytes", "field", "meaning"], rows))
    return parts


def enumeration(header: str, prefix: str) -> list[list[str]]:
    """Rows of the enum whose names begin with ``prefix``; values that are not written count on from the last."""
    body = re.search(rf"enum \{{([^}}]*\b{prefix}[^}}]*)\}}", header)
    assert body is not None, prefix
    rows: list[list[str]] = []
    value = -1
    for name, given, comment in re.findall(rf"{prefix}(\w+)(?: = (\d+))?,?[ \t]*(?:/\* *(.*?) *\*/)?", body[1], re.S):
        value = int(given) if given else value + 1
        rows.append([str(value), f"`{prefix}{name}`", prose(comment)])
    return rows


def prose(comment: str) -> str:
    """The text of a C comment, paragraphs kept."""
    lines = [re.sub(r"^\s*\*? ?", "", line).strip() for line in comment.strip().splitlines()]
    paragraphs = re.split(r"\n{2,}", "\n".join(lines))
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return text


def sentence(comment: str) -> str:
    """``prose`` that begins with a capital."""
    text = prose(comment)
    return text[:1].upper() + text[1:]


# ---- the policies ------------------------------------------------------------------------------------------------


def state_page() -> str:
    """docs/state-tables.md from the tables that the policies run."""
    from seqcast.core.machines.beacons import Beacons
    from seqcast.core.machines.every import MACHINES

    parts = [
        "# State tables",
        "Made from `src/seqcast/core/machines/` by `docs/render.py`; do not edit. Each table is total. If several "
        "rows are for one event in one state, the first whose condition (*if*) holds is taken. An *ignored* event "
        "occurs in a healthy group and changes nothing; an *illegal* one is a bug and raises `IllegalEvent`. A diagram "
        "shows which events can lead from one state to another.",
    ]
    for machine in MACHINES:
        parts += introduction(machine.TABLE.name, machine)
        parts.append(diagram(machine.TABLE))
        parts.append(table(["event", "in", "if", "does", "then", "because"], transitions(machine.TABLE)))
    parts += introduction(Beacons.BEACON.name, Beacons)
    parts.append("The first case that holds:")
    parts.append(table(["if", "does", "because"], cases(Beacons.BEACON)))
    return "\n\n".join(parts) + "\n"


def introduction(name: str, of: type) -> list[str]:
    """The heading of a table, and the docstring of its class's module."""
    first, *paragraphs = str(sys.modules[of.__module__].__doc__).strip().split("\n\n")
    return [f"## {name.capitalize()}: {prose(first).rstrip('.')}", *(prose(paragraph) for paragraph in paragraphs)]


def cases(decision: DecisionTable) -> list[list[str]]:
    """Rows of a decision, in order."""
    return [[row.edge.guard or "otherwise", done(row), row.why] for row in decision.rows]


def done(row: Row, quote: str = "") -> str:
    """The effect of a row of a table."""
    names = [f"{quote}{each.__name__}{quote}" for each in row.actions]
    return f"*{row.verdict.name.lower()}*" if row.verdict else ", ".join(names)


def diagram(machine: Table) -> str:
    """The changes of state and their events, as Mermaid."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for (state, event), rows in machine.rows.items():
        for row in rows:
            if row.state is not None and row.state is not state:
                found.setdefault((state.name, row.state.name), {})[event.name] = None
    lines = [f"    {state} --> {then}: {', '.join(events)}" for (state, then), events in found.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def transitions(machine: Table) -> list[list[str]]:
    """Rows of a state table, by event; states in which the same is done stand together."""
    merged: dict[tuple[str, ...], list[str]] = {}
    for (state, event), rows in machine.rows.items():
        for row in rows:
            then = row.state.name if row.state not in (None, state) else ""
            merged.setdefault((event.name, row.edge.guard, done(row), then, row.why), []).append(state.name)
    order = list(dict.fromkeys(event.name for _, event in machine.rows))
    return [
        [event, ", ".join(states), *rest]
        for (event, *rest), states in sorted(merged.items(), key=lambda item: order.index(item[0][0]))
    ]


# ---- the settings ------------------------------------------------------------------------------------------------


def counters_page() -> str:
    """docs/counters.md from the tables that the help of ``Group.counters`` and ``Crowd.counters`` shows."""
    from seqcast.api.counters import COUNTERS, CROWD

    parts = [
        "# Counters",
        "Made from `src/seqcast/api/counters.py` by `docs/render.py`; do not edit.",
        "`group.counters()` returns the counters of a group, and `crowd.counters()` those under *Crowds*. They count "
        "from the join on, except values of the moment, which begin with *Now*. Members repair lost and dropped "
        "messages; if that fails, `Lost` names the messages, or in a crowd `CrowdLost`.",
    ]
    for heading, counters in (COUNTERS | CROWD).items():
        rows = [[f"`{name}`", text] for name, text in counters.items()]
        parts += [f"## {heading}", table(["counter", "counts"], rows)]
    return "\n\n".join(parts) + "\n"


def codes_page() -> str:
    """docs/codes.md from ``seqcast.codes``."""
    from seqcast.codes import CODES, KINDS

    parts = [
        "# Codes",
        "Made from `src/seqcast/codes.py` by `docs/render.py`; do not edit.",
        "Each condition that seqcast reports has a code, which stays the same in all releases. The line that reports "
        "it has the facts; this page has the cause and the remedy. The text of each error ends with its code, which "
        "programs find in `error.code`.",
    ]
    for digit, kind in KINDS.items():
        rows = [
            [f"`{code.number}`", code.title, code.cause, code.remedy]
            for code in sorted(CODES.values(), key=lambda code: code.number)
            if code.number[2] == digit
        ]
        if rows:
            parts += [f"## {kind}", table(["code", "condition", "cause", "remedy"], rows)]
    return "\n\n".join(parts) + "\n"


def config_page() -> str:
    """docs/config.md from ``seqcast.config.fields.Config``; the headings are the comments between its fields."""
    from seqcast.config import PRESETS, Config, fields

    source = Path(fields.__file__).read_text(encoding="utf-8")
    headings = {match.start(): match[1] for match in re.finditer(r"^    # -- (.*)$", source, re.M)}
    setting = re.compile(r"^    (\w+): \w+ = _(?:knob|derived|by_preset)\(", re.M)
    places = {match[1]: match.start() for match in setting.finditer(source)}
    sections: dict[str, list[list[str]]] = {}
    for field in dataclasses.fields(Config):
        heading = headings[max(at for at in headings if at < places[field.name])]
        unit, text = field.metadata["unit"], field.metadata["text"]
        among, low, high = field.metadata["among"], field.metadata["low"], field.metadata["high"]
        allowed = ", ".join(map(str, among)) if among else f"{number(low)} to {number(high)}" if low is not None else ""
        default = field.metadata.get("formula") or number(field.default)
        sections.setdefault(heading, []).append([f"`{field.name}`", default, unit, allowed, text])
    parts = ["# Settings", "Made from `src/seqcast/config/fields.py` by `docs/render.py`; do not edit."]
    about = re.sub(r" ``docs/config.md`` is\s+made from this file\.", "", str(fields.__doc__))
    parts.append(prose(about).replace("``", "`"))
    for heading, rows in sections.items():
        parts.append(f"## {heading.capitalize()}")
        parts.append(table(["setting", "default", "unit", "allowed", "effect and cost"], rows))
    presets = [Config(preset=name) for name in PRESETS]
    resolved = [
        [f"`{field.name}`", *(number(getattr(preset, field.name)) for preset in presets)]
        for field in dataclasses.fields(Config)
        if len({getattr(preset, field.name) for preset in presets}) > 1 and field.name != "preset"
    ]
    parts += ["## The values of the presets", table(["setting, s", *PRESETS], resolved)]
    return "\n\n".join(parts) + "\n"


def number(value: object) -> str:
    """A default or a bound as one writes it: powers of two as such, small fractions without noise."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1 << 16 and value & (value - 1) == 0:
        return f"2^{value.bit_length() - 1}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def main() -> int:
    """Writes the pages that differ; with ``--check`` only names them and returns 1."""
    check = "--check" in sys.argv[1:]
    stale = [path for path, text in rendered().items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        print(("stale: " if check else "written: ") + str(path.relative_to(ROOT)))
        if not check:
            path.write_text(rendered()[path], encoding="utf-8")
    if not check:
        (ROOT / "docs" / UNKEPT).write_text(state_page(), encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    sys.exit(main())
