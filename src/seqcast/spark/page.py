"""One HTML page with its tables and pictures inside, for the audit and the report."""

from __future__ import annotations

import base64
import colorsys
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqcast.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#222;max-width:64em;margin:2em auto;padding:0 1em}
h1{font-size:1.5em;margin:0}h2{font-size:1.15em;margin:2em 0 .5em}
.about{color:#666;margin:.2em 0 1.2em}
.verdict{padding:.6em 1em;border-left:.4em solid;font-weight:bold}
.good{color:#0a6b2d;background:#eef8f0;border-color:#0a6b2d}.bad{color:#a3000f;background:#fdf0f0;border-color:#a3000f}
.cards{display:flex;flex-wrap:wrap;gap:.8em;margin:1em 0}
.card{border:1px solid #ddd;border-radius:.4em;padding:.5em 1em}.card b{display:block;font-size:1.25em}.card{color:#666}
.card b{color:#222}
table{border-collapse:collapse;margin:.5em 0}td,th{padding:.25em .8em;text-align:right;border-bottom:1px solid #ddd}
th{border-bottom:2px solid #bbb}td.good,td.bad{border-color:#ddd;font-weight:bold}
.total tr:last-child td{font-weight:bold}.total td:nth-child(-n+2),.total th:nth-child(-n+2){text-align:left}
.words td,.words th{text-align:left;vertical-align:top}
img{max-width:100%}.small{color:#666;font-size:.9em}
"""
GOOD, BAD = "good", "bad"
WIDTH = 9.0
"""The width of a figure, in inches."""
CYCLE = 10
"""The number of colours of a figure, which then repeat."""
FEW = 12
"""The points of a line are marked up to this number: a line through one is not seen."""


def page(title: str, about: str, *parts: str) -> str:
    """The page.

    Args:
        about: where it comes from, in a line.
        parts: HTML already.
    """
    text = html.escape(title)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{text}</title><style>{_STYLE}</style>'
        f'<h1>{text}</h1><p class="about">{html.escape(about)}</p>{"".join(parts)}</html>\n'
    )


def verdict(text: str, *, good: bool) -> str:
    """The first lines for the reader."""
    return f'<p class="verdict {GOOD if good else BAD}">{html.escape(text)}</p>'


def cards(figures: Mapping[str, str]) -> str:
    """The few figures that stand for all: its name -> its value with a unit."""
    each = [f"<b>{html.escape(value)}</b>{html.escape(name)}" for name, value in figures.items()]
    return f"""<div class="cards">{"".join(f'<div class="card">{one}</div>' for one in each)}</div>"""


def paragraph(text: str, kind: str = "") -> str:
    """``kind``: "small", for text that explains the rest."""
    return f'<p class="{kind}">{html.escape(text)}</p>' if kind else f"<p>{html.escape(text)}</p>"


def heading(text: str) -> str:
    return f"<h2>{html.escape(text)}</h2>"


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    kind: str,
    marked: Mapping[str, str] | None = None,
) -> str:
    """
    Args:
        kind: "words": the cells are text; "total": two names and numbers, and the last row is that of all.
        marked: text of a cell -> "good" or "bad".
    """

    def one(value: Any) -> str:
        text = cell(value)
        mark = f' class="{marked[text]}"' if marked and text in marked else ""
        return f"<td{mark}>{html.escape(text)}</td>"

    titles = "".join(f"<th>{html.escape(title)}</th>" for title in head)
    body = "".join(f"<tr>{''.join(map(one, row))}</tr>" for row in rows)
    return f'<table class="{kind}"><tr>{titles}</tr>{body}</table>'


def items(texts: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(text)}</li>' for text in texts)}</ul>"


def pictures(images: Mapping[str, bytes]) -> str:
    """PNGs, each with its name."""
    return "".join(
        f'<p><img alt="{html.escape(name)}" src="data:image/png;base64,{base64.b64encode(data).decode()}"></p>'
        for name, data in images.items()
    )


def figure_of(height: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure in the look of all, with panels one below the other.

    Args:
        height: inches.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    every = list(figure.subplots(panels, sharex=True, squeeze=False)[:, 0])
    for axes in every:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.9", linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, every


def log_axis(axes: Axes, which: str, values: Sequence[float], unit: str) -> None:
    """A logarithmic axis with a decade at least, however few the values are, and numbers with a prefix and the unit.

    Args:
        which: "x" or "y".
        values: that the axis must show, all above 0.
    """
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    low, high = min(values, default=1.0), max(values, default=1.0)
    room = max(1.2, (10 / (high / low)) ** 0.5)
    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log", f"{which}lim": (low / room, high * room)})
    axis.set_major_locator(LogLocator(10, (1.0,) if high / low > 1e3 else (1.0, 2.0, 5.0), numticks=20))
    axis.set_major_formatter(EngFormatter(unit))
    axis.set_minor_formatter(NullFormatter())


def counting_axis(axes: Axes) -> None:
    """A vertical axis of whole numbers from 0."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))


def colour(number: int) -> str | tuple[float, float, float]:
    """One of any number of colours, all different: first those of all figures."""
    if number < CYCLE:
        return f"C{number}"
    return colorsys.hsv_to_rgb(number * 0.618034 % 1, 0.45, 0.9)


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def cell(value: Any) -> str:
    """A number with its thousands separated, or text; nothing if unknown."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


def span(ns: float) -> str:
    """A length of time with the unit that suits it."""
    for unit, of in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= of:
            return f"{ns / of:,.3g} {unit}" if ns < 1000 * of else f"{ns / of:,.0f} {unit}"
    return f"{ns:.0f} ns"


def clock(ns: int) -> str:
    """A time, UTC, to the millisecond. ``ns``: since 1970."""
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def write(directory: Path, files: Mapping[str, bytes], option: str) -> list[Path]:
    """Writes the files, and returns their paths.

    Raises:
        UsageError: they cannot be written. Names the command's ``option`` for the folder.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (directory / name).write_bytes(data)
    except OSError as error:
        raise UsageError(f"cannot write to {directory}: {error.strerror}; name another folder with {option}") from error
    return [directory / name for name in files]
