"""The project's own files, as tests of its style look at them."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = {".py", ".pyx", ".pxd", ".pxi", ".pyi", ".c", ".h", ".md", ".toml", ".yml", ".yaml", ".in", ""}


def files() -> list[Path]:
    """Every text file of the project: those in git, or, in an unpacked sdist, all."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        found = [ROOT / name for name in listed.split("\0") if name]
    else:
        tops = ["native", "src", "tests", "bench", "docs", "examples"]
        found = [path for top in tops for path in (ROOT / top).rglob("*")] + list(ROOT.glob("*"))
    made_by_cython = {path.with_suffix(".c") for path in ROOT.glob("src/seqcast/_native/*.pyx")}
    no_text = made_by_cython | set(ROOT.glob("tests/fuzz/corpus/*"))
    return [path for path in found if path.is_file() and path.suffix in TEXT and path not in no_text]
