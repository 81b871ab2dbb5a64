"""Files of the system that a diagnosis reads."""

from __future__ import annotations

from pathlib import Path


def read(root: Path, name: str) -> str:
    """A file of the system; "" if there is none.

    Args:
        root: of its file systems: another one in tests.
        name: relative to that.
    """
    try:
        return (root / name).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
