"""In the Python workers of Spark."""

from __future__ import annotations

import functools
import gc
import os


@functools.cache
def settle() -> None:
    """Each task begins with it. PySpark collects garbage after each task, and so would look at every object of every
    module, which takes as long as reading 500,000 rows: objects present before the first task are left out from then
    on.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):  # Spark sets it; a worker for one task collects nothing
        import pyarrow.parquet  # noqa: F401 (imports of tasks)

        gc.freeze()
