"""What all tests share: an environment without the caller's Java and Spark; what needs root is left out without it."""

import os
import shutil

import pytest
from hypothesis import settings

# A slow machine is not a failure, and a failing example is printed so that it can be run again.
settings.register_profile("seqcast", deadline=None, print_blob=True)
settings.load_profile("seqcast")

for name in ("JAVA_TOOL_OPTIONS", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON"):
    os.environ.pop(name, None)


def pytest_collection_modifyitems(items):
    missing = [tool for tool in ("ip", "nft") if not shutil.which(tool)]
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    reason = f"needs {', '.join(missing)}" if missing else "needs root" if not root else ""
    for item in items:
        if reason and item.get_closest_marker("netns"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def spark():
    """One Spark session, one JVM, for the whole test run."""
    from seqcast.spark.session import open_session

    session = open_session("local[2]", name="seqcast tests")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.codegen.wholeStage", "false")  # the tables are tiny: compiling would take longest
    yield session
    session.stop()
