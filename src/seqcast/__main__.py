"""``python -m seqcast`` is the command ``seqcast``."""

from seqcast.cli import process

process()
