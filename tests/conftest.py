"""Fixtures and options that all tests share: an environment without the caller's Java and Spark; tests that need root
are left out without it, and the end of a run says which were left out, and how to get the missing parts."""

import gc
import os
import re
import shutil
from collections import Counter

import pytest
from hypothesis import settings

# A slow machine is not a failure. The examples are the same each time, so that a failure is one of the change that
# shows it; `--hypothesis-profile default` draws others, and the fuzzers always do.
settings.register_profile("seqcast", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("seqcast")

for name in ("JAVA_TOOL_OPTIONS", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON"):
    os.environ.pop(name, None)


UNICAST = {"SEQCAST_TRANSPORT": "unicast", "SEQCAST_SEEDS": "127.0.0.1", "SEQCAST_PORT_RANGE": "40"}
"""Environment of groups on loopback whose members do not use multicast; in namespaces members have other seeds."""
PORTS = 47400
"""The first of their ports: tests that run beside each other have others, as members name strangers that they meet."""


def pytest_addoption(parser):
    parser.addoption("--part", default="1/1", metavar="K/N", help="of the chosen tests every N-th, from the K-th on")
    parser.addoption(
        "--transport", choices=("auto", "unicast"), default="auto", help="of all groups that do not choose one (auto)"
    )


def pytest_configure(config):
    if config.getoption("transport") == "unicast":
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        os.environ.update(UNICAST, SEQCAST_PORT=str(PORTS + 50 * worker))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """The objects of collecting stay to the end: the collector does not look through them again and again."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.hookimpl(wrapper=True)  # begins before pytest-xdist looks at the groups, and ends when all are chosen
def pytest_collection_modifyitems(config, items):
    missing = [tool for tool in ("ip", "nft") if not shutil.which(tool)]
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    reason = f"needs {', '.join(missing)}" if missing else "needs root" if not root else ""
    unicast = config.getoption("transport") == "unicast"
    for item in items:
        if unicast and item.get_closest_marker("multicast"):
            item.add_marker(pytest.mark.skip(reason="about multicast, which --transport unicast leaves out"))
        if " at 0x" in item.nodeid:  # tests that run beside each other must have the same names in each process
            raise pytest.UsageError(f"{item.nodeid}: give this parameter an id without an address")
        if reason and item.get_closest_marker("netns"):
            item.add_marker(pytest.mark.skip(reason=reason))
        if "spark" in item.fixturenames:
            item.add_marker("spark")
        if item.get_closest_marker("spark"):  # if tests run beside each other, these share one JVM
            item.add_marker(pytest.mark.xdist_group("spark"))
    yield
    part, parts = map(int, config.option.part.split("/"))
    config.hook.pytest_deselected(items=[item for i, item in enumerate(items) if (i + 1 - part) % parts])
    items[:] = items[part - 1 :: parts]
    if hasattr(config, "workerinput"):
        items.sort(key=dict(zip(items, places(items), strict=True)).__getitem__)


def places(items):
    """Where in the run each test stands, from 0 to 1, for tests that run beside each other: those of each folder all
    along the run, since some folders compute and others wait. A group comes first, as one worker runs all its tests."""
    folders = [item.path.parent for item in items]
    all_of, of = Counter(folders), Counter()
    for item, folder in zip(items, folders, strict=True):
        of[folder] += 1
        yield 0 if item.get_closest_marker("xdist_group") else of[folder] / all_of[folder]


HOW_TO_GET = (
    (r"needs (ip|nft)", "install iproute2 and nftables (Debian: apt-get install iproute2 nftables), and run as root"),
    (r"needs root", "run as root: sudo make test"),
    (r"namespaces cannot be made", "run as root with CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --privileged)"),
    (r"import 'py(arrow|spark)'", "pip install 'seqcast[spark]'"),
    (r"import '(duckdb|polars)'", "pip install 'seqcast[readers]'"),
    (r"no multicast on loopback", "ip link set lo up multicast on, and let the firewall pass multicast on lo"),
)
"""A pattern of the reason of a skip, and its remedy."""


def pytest_terminal_summary(terminalreporter):
    """Which tests were left out, for want of which part, and how to get that: a run that leaves out a quarter looks
    green."""
    waited = Counter()
    for report in terminalreporter.stats.get("skipped", ()):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        waited[reason, report.when == "collect"] += 1
    if not waited:
        return
    terminalreporter.section(f"left out: {sum(waited.values())}")
    for (reason, whole), n in sorted(waited.items()):
        kind = "whole module" if whole else "test"
        remedy = next((remedy for pattern, remedy in HOW_TO_GET if re.search(pattern, reason)), "")
        waits = f"{n} {kind}{'' if n == 1 else 's'}: {reason}"
        terminalreporter.write_line(f"{waits}. To run {'it' if n == 1 else 'them'}: {remedy}" if remedy else waits)


@pytest.fixture
def here():
    """In place of Spark, for a test about verdicts: tasks run in this process."""
    from tasks_here import Here

    return Here()


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
