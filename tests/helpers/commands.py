"""The commands' modules, called as ``seqcast`` does, without turning their errors into a line and a status."""

from collections.abc import Sequence
from types import ModuleType


def call(command: ModuleType, argv: Sequence[str]) -> int:
    """Runs a command with these arguments; returns its exit status."""
    return int(command.main(command.parse(argv)))
