"""``python -m seqcast`` is the command ``seqcast``."""

import sys


def process() -> None:
    """The process ``seqcast``, also where Ctrl-C comes before it takes signals: what is imported for that takes a
    while on a busy machine."""
    try:
        from seqcast.cli import process
    except KeyboardInterrupt:
        sys.exit("seqcast: interrupted")
    process()


if __name__ == "__main__":
    process()
