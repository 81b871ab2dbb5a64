"""One HTML page with its tables and pictures inside, for the audit and the report."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqcast.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = (
    "body{font:15px sans-serif;max-width:60em;margin:2em auto}table{border-collapse:collapse}"
    "td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}img{max-width:100%}"
    ".words td,.words th{text-align:left}.false{color:#b00;font-weight:bold}.true{color:#070}"
)


def page(title: str, *parts: str) -> str:
    """The page, of parts that are HTML already."""
    text = html.escape(title)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{text}</title><style>{_STYLE}</style>'
        f"<h1>{text}</h1>{''.join(parts)}</html>\n"
    )


def paragraph(text: str, kind: str = "") -> str:
    """``kind``: "true" or "false": it holds or not."""
    return f'<p class="{kind}">{html.escape(text)}</p>' if kind else f"<p>{html.escape(text)}</p>"


def heading(text: str) -> str:
    return f"<h2>{html.escape(text)}</h2>"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, words: bool = False) -> str:
    """``words``: the cells are text, and not numbers."""
    titles = "".join(f"<th>{html.escape(title)}</th>" for title in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell(each))}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table{' class=words' if words else ''}><tr>{titles}</tr>{body}</table>"


def items(texts: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(text)}</li>' for text in texts)}</ul>"


def pictures(images: Mapping[str, bytes]) -> str:
    """PNGs, each with its name."""
    return "".join(
        f'<p><img alt="{html.escape(name)}" src="data:image/png;base64,{base64.b64encode(data).decode()}"></p>'
        for name, data in images.items()
    )


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def cell(value: Any) -> str:
    """A number with its thousands separated, or text; nothing if unknown."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


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
