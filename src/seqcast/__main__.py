"""``python -m seqcast`` is the command ``seqcast``."""

import sys


def process() -> None:
    """The process ``seqcast``. Ctrl-C is handled even before the signal handlers are set: importing their modules takes
    a while on a busy machine."""
    try:
        from seqcast.cli import process
    except KeyboardInterrupt:
        print("seqcast: interrupted", file=sys.stderr)
        sys.exit(130)
    process()


if __name__ == "__main__":
    process()
