"""``python -m seqcast`` is the command ``seqcast``."""

import sys

from seqcast.cli import main

sys.exit(main())
