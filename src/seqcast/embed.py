"""For programs in C, C++ and Cython that send and receive without Python: docs/embedding.md."""

from __future__ import annotations

from pathlib import Path

from seqcast._native.driver import EMBED_TABLE as table

__all__ = ["get_include", "table"]


def get_include() -> str:
    """The folder of ``seqcast/embed.h``, for a C compiler's ``-I`` and for ``include_dirs`` of a Cython extension. See
    docs/embedding.md."""
    return str(Path(__file__).with_name("include"))
