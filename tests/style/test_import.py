"""The modules that `import seqcast` loads; all its names exist all the same. (How long it takes is not asserted.)"""

import importlib
import json
import re
from pathlib import Path

import pytest
from members import LOOPBACK, cluster, output, script

import seqcast
from seqcast.cli import COMMANDS

LOADED = "sorted(name for name in sys.modules if name.partition('.')[0] in ('seqcast', 'numpy', 'asyncio', 'argparse'))"


def test_import_seqcast_loads_no_module_but_itself():
    assert output(script(f"import sys, seqcast; print({LOADED})")) == "['seqcast']\n"


def test_a_group_sends_and_receives_without_numpy():
    text = """
import sys, seqcast
with seqcast.join(sys.argv[1], interface=sys.argv[2]) as group:
    group.send(b"x")
    message = group.recv(10)
    batch = group.send_many([b"y"]) or group.recv_batch(10)
    print(message.payload, batch.tolist(), "numpy" in sys.modules)
    print(batch.data.tobytes(), batch.offsets.tolist(), batch.runs["n"].tolist(), "numpy" in sys.modules)
    group.send_batch(b"ab", batch.offsets)
    print(group.recv(10).payload)
"""
    said = output(script(text, cluster(), LOOPBACK))
    assert said == "b'x' [b'y'] False\nb'y' [0, 1] [1] True\nb'a'\n"


HELP = """
import json, sys
from seqcast.cli import main
status = main([sys.argv[1], "--help"])
print("\\n" + json.dumps([status, *sorted(sys.modules)]))
"""
LIGHT = {
    "seqcast", "cli", "cli.options", "cli.output", "codes", "commandline", "errors", "types", "arguments", "files",
    "lazy",
}  # fmt: skip
"""The parts of the package that the help of every command may load; of a part, its own package too."""
CONFIG = {"config", *(f"config.{name}" for name in ("check", "derive", "fields", "sources"))}
PERF = ("arguments", "command", "hosts", "matrix", "paths", "processes", "report", "runs")
BOARD = {"board", "board.judge", "board.place", "board.read", "codes"}
OWN = {
    "doctor": {"doctor", "doctor.command"},
    "metrics": {"api", "api.counters", "cli.metrics", "metrics", *BOARD},
    "probe": {"cli.probe", "cli.seen", *BOARD},
    "top": {"cli.seen", "cli.top", *BOARD},
    "audit": {"spark", "spark.command"},
    "debug": {"cli.debug", "cli.seen", *BOARD},
    "timeline": {"cli.timeline", *BOARD},
    "demo": {"cli.demo"},
    "perf": {"system", "journal", "journal.schema", "perf", *(f"perf.{name}" for name in PERF)},
    "keygen": {"cli.keygen", "config.identities", "config.keys", "files"},
    "replay": {"cli.replay", "cli.send"},
    "report": {"spark", "spark.command", "spark.report_command"},
    "send": {"cli.send"},
    "sim": {"sim", "sim.command", "sim.families"},
    "tail": {"cli.tail"},
    "tap": {"cli.tap"},
    "unblock": {"cli.unblock"},
}
HEAVY = {"asyncio", "multiprocessing", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "matplotlib", "unittest"}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_loads_nothing_that_only_its_work_takes(command):
    """Someone who asks for help, or mistypes an option, gets an answer at once."""
    status, *loaded = json.loads(output(script(HELP, command)).splitlines()[-1])
    assert status == 0
    ours = {name.removeprefix("seqcast.") for name in loaded if name.partition(".")[0] == "seqcast"}
    assert ours - LIGHT - CONFIG - OWN[command] == set()
    assert HEAVY.isdisjoint(loaded)


def test_every_name_is_in_the_one_place_that_each_of_the_three_lists_says():
    places = {name: module for module, names in seqcast._NAMES.items() for name in names.split()}
    assert sorted([*places, "aio", "blocks"]) == sorted(seqcast.__all__)
    for name, module in places.items():
        assert getattr(seqcast, name) is getattr(importlib.import_module(module), name)
    assert set(seqcast.__all__) <= set(dir(seqcast))
    for_checkers = Path(seqcast.__file__).read_text(encoding="utf-8").partition("if TYPE_CHECKING:")[2]
    imported = re.findall(r"^    from ([\w.]+) import (\([^)]*\)|[^\n]*)$", for_checkers.partition("__all__")[0], re.M)
    listed = {name: module for module, names in imported for name in re.findall(r"\w+", names)}
    assert listed == places, "what type checkers read"
    assert not hasattr(seqcast, "jion")
