"""The examples, commands and settings of README.md and the guide run and exist."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import measurements
import pytest
from netns import network  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = README + "".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("guide", "commands"))
GUIDES = ("tutorial", "deployment", "from")
NAMED = PAGES + "".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in GUIDES)
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGES, re.S)


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """On loopback, on a port that nobody else who runs these examples has, with a command `seqcast`."""
    command = tmp_path / "bin" / "seqcast"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m seqcast "$@"\n')
    command.chmod(0o755)
    path = os.pathsep.join([str(command.parent), os.environ["PATH"]])
    return {**os.environ, "SEQCAST_INTERFACE": "lo", "SEQCAST_PORT": str(20000 + os.getpid() % 6000 * 2), "PATH": path}


def start(command, environment, folder, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, **options)


def ended(process):
    """The printed lines of a process that ended well."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, f"{out}{err or ''}"
    return out.splitlines()


@pytest.mark.parametrize(
    ("number", "expected"),
    [(2, ["{me} 1 b'first'"]), (3, ["first None", "second red"]), (4, []), (5, [])],
    ids=["with asyncio", "with a disk", "with slow receivers", "with a state"],
)
def test_an_example_runs_as_it_stands(number, expected, environment, tmp_path):
    process = start([sys.executable, "-c", EXAMPLES[number]], environment, tmp_path)
    me = f"{socket.gethostname()}-{process.pid}"
    assert ended(process) == [line.format(me=me) for line in expected]


def without_view(lines):
    """The lines without the first, which shows the view."""
    assert re.fullmatch(r"view \d+ \[.+, .+\]", lines[0])
    return lines[1:]


def test_the_first_example_runs_in_two_terminals_at_once(environment, tmp_path):
    processes = [start([sys.executable, "-c", EXAMPLES[0]], environment, tmp_path) for _ in range(2)]
    one, two = (without_view(ended(process)) for process in processes)
    assert one == two
    for process in processes:
        mine = [line.rpartition(" ")[2] for line in one if line.startswith(f"{socket.gethostname()}-{process.pid} ")]
        assert mine == ["b'first'", "b'second'", "b'third'"]
    assert len(one) == 6


def test_the_examples_run_beside_the_tail_of_the_walk_through(environment, tmp_path):
    command = [sys.executable, "-m", "seqcast", "tail", "orders", "--name", "a"]
    tail = start(command, environment, tmp_path, stderr=subprocess.STDOUT)
    assert tail.stdout.readline() == "-- view 1 [a]\n"
    there = {**environment, "SEQCAST_DISCOVERY_S": "1"}
    first, third = (start([sys.executable, "-c", EXAMPLES[at]], there, tmp_path) for at in (0, 5))
    assert [line.rpartition(" ")[2] for line in without_view(ended(first))] == ["b'first'", "b'second'", "b'third'"]
    assert ended(third) == []
    tail.send_signal(signal.SIGINT)
    assert [line for line in ended(tail) if not line.startswith("--")] == ["first", "second", "third"]


@pytest.mark.multicast
@pytest.mark.netns
def test_the_walk_through_two_terminals_shows_its_printed_output(environment, tmp_path, network):  # noqa: F811
    """On a machine with a network: on loopback alone, no line says that the first member found no other one."""
    del environment["SEQCAST_INTERFACE"]

    def shown(text):
        """A terminal's command and its output."""
        blocks = re.findall(r"```\n\$ (.*?)```", README, re.S)
        command, *lines = next(block for block in blocks if text in block).splitlines()
        return command, lines

    def without_times(line):
        return re.sub(r"in [\d.]+ s \([\d,]+", "in T s (N", line)

    command, expected = shown("seqcast tail")
    terminal = [*network[0].prefix, "sh", "-c"]
    first = start([*terminal, f"exec {command}"], environment, tmp_path, stderr=subprocess.STDOUT)
    lines = [first.stdout.readline().rstrip()]
    command, told = shown("seqcast send")
    there = {**environment, "SEQCAST_DISCOVERY_S": "1"}  # no other group must form, however busy this one is
    second = start([*terminal, command], there, tmp_path, stderr=subprocess.STDOUT)
    assert [without_times(line) for line in ended(second)] == [without_times(line) for line in told]
    while len(lines) < len(expected):
        lines.append(first.stdout.readline().rstrip())
    first.send_signal(signal.SIGINT)
    assert lines + ended(first) == expected


def test_every_example_is_run():
    """That of Spark in tests/audit/test_other_readers.py."""
    assert len(EXAMPLES) == 6 and "readStream" in EXAMPLES[1]


def test_every_make_target_and_command_that_is_named_exists():
    from seqcast.cli import COMMANDS

    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"(?:^|`)make (\w+)", NAMED, re.M)) <= targets
    named = set(re.findall(r"(?:^|[`|] ?)seqcast (\w+)", NAMED, re.M))
    assert named and named <= set(COMMANDS)


def test_every_command_is_on_the_page_of_commands_and_in_the_readme():
    from seqcast.cli import COMMANDS

    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^(?:.* \| )?seqcast (\w+)", page, re.M)) == set(COMMANDS)
    listed = next(line for line in README.splitlines() if line.startswith("- [Commands]"))
    assert set(re.findall(r"`(?:seqcast )?(\w+)`", listed)) == set(COMMANDS)


def test_the_tutorial_installs_the_extras_of_its_commands():
    from seqcast.cli import COMMANDS

    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    (extras,) = re.findall(r"pip install 'seqcast\[([\w,]+)\]'", page)
    used = set(re.findall(r"seqcast (\w+)", page)) & set(COMMANDS)
    assert "top" in used and {COMMANDS[name][2] for name in used} - {""} == set(extras.split(","))


def test_every_setting_that_is_named_exists():
    import dataclasses

    from seqcast import Config

    settings = {field.name for field in dataclasses.fields(Config)} | {"order"}
    named = set(re.findall(r"`(\w+_s|\w+_max|interface|order|journal|receive)(?:=\w+)?`", NAMED))
    assert named and named <= settings


def test_figures_are_rendered_from_the_report_of_perf():
    """Through perf's own report, so that a change of its keys is seen here."""
    from seqcast.perf import report

    keys = ("sent_msgs_per_s", "delivered_msgs_per_s", "delivered_mb_per_s", "cpu_us_per_msg", "rss_mb", "rss_rest_mb")
    keys += ("lost", "wrong", "messages", "retransmitted_packets", "window_bytes", "acks_per_packet", "throttled_s")
    keys += ("drained",)
    group = dict.fromkeys(keys, 1200.0)
    about = {"members": 4, "senders": 1, "size": 1024, "order": "fifo", "seconds": 5.0, "machine": report.machine()}
    about["command"] = "seqcast perf --size 1024"
    run = {**about, "path": "loopback", **report.throughput([2400.0], [1500.0], [group])}
    other = {"path": "veth-segmented", "unavailable": "needs root"}
    times = dict.fromkeys(report.PERCENTILES, 12.0)
    ping = {**about, "path": "loopback", "wait": "blocking", "cores": [0, 1], **report.latency([times], [times])}
    ping["kind"] = "plain"
    in_asyncio = {**ping, **report.latency([times], [times], [times]), "kind": "aio"}
    text = measurements.figures([{**run, "other_paths": [other]}, ping, in_asyncio])
    assert "| fifo | 1,024 B | loopback | 1,200 | 1,200 | 0.80 (0.80–0.80) | 0.50 (0.50–0.50) | 1200.00 | 1200" in text
    assert "| fifo | 1,024 B | loopback | blocking, cores 0 and 1 | 12.0 | 12.0 | 12.0 | 12.0 | 12.0 | 1.00 |" in text
    assert "| fifo | 1,024 B | loopback | asyncio, cores 0 and 1 | 12.0 | 12.0 | 12.0 | 12.0 | 12.0 | 1.00 |" in text
    assert "```\nseqcast perf --size 1024\n```" in text
    assert "| fifo, 1,024 B, loopback, of the limit | at least 0.85 | 0.80 |" in text
    assert "| half a round trip, fifo, blocking, of bare C at p50 | at most 0.4 | 1.00 |" in text
    assert "| half a round trip, fifo, asyncio, of bare C at p50 | at most 0.6 | 1.00 |" in text
    assert "veth-segmented" not in text


def test_unicast_is_rendered_beside_multicast_and_beside_its_like_in_plain_c():
    row = {"path": "loopback", "members": 4, "size": 64, "mb_per_s": {"multicast": 300.0}}
    row |= {"ratio": {"auto": 1.0, "unicast": 0.7}, "quartiles": {"auto": [0.9, 1.0, 1.1], "unicast": [0.6, 0.7, 0.8]}}
    beside = {**row, "ratio": {**row["ratio"], "of_fan_out": 0.84}}
    beside["quartiles"] = {**row["quartiles"], "of_fan_out": [0.8, 0.84, 0.9]}
    text = measurements.figures([{"transports": [row, beside], "command": "bench", "machine": "m"}])
    assert "0.700 (0.600–0.800) | – |" in text and "0.840 (0.800–0.900) |" in text
    assert text.count("of the same in C | at least 0.85 |") == 1


def test_times_by_unicast_are_rendered_beside_their_targets():
    trip = {"path": "loopback", "members": 4, "size": 64, "p50_us": {"multicast": 20.0, "unicast": 27.0}}
    trip |= {"ratio": 1.35, "quartiles": [1.3, 1.35, 1.4]}
    join = {"what": "join, unicast", "text": "`join`, by unicast", "p50_ms": 9.0, "p99_ms": 10.0, "rounds": 4}
    join |= {"target_ms": 20, "peers_ms": "", "of_multicast": 1.31, "of_multicast_target": 1.3}
    runs = [{"transports": [], "transports_latency": [trip], "command": "a", "machine": "m"}]
    text = measurements.figures([*runs, {"membership": [join], "command": "b", "machine": "m"}])
    assert "| 20.0 | 27.0 | 1.350 (1.300–1.400) |" in text and "of multicast's, p50 | at most 1.3 | 1.35 |" in text
    assert "| `join`, by unicast, of multicast's, p50 | at most 1.3 | 1.31 |" in text and text.count("at most") == 2


def test_rates_under_forged_datagrams_are_rendered_beside_their_targets(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import forged

    rates = {"no key, alone": [1000.0, 1010.0, 990.0], "no key, asked": [970.0, 970.0, 970.0]}
    rows = [forged.compared(rates, "no key, asked", "no key, alone")]
    rows.append({**rows[0], "kind": "forged", "beside": "of another group", "ratio": 0.99})
    rows.append({**rows[0], "kind": "forged", "beside": "alone", "ratio": 0.7})
    text = measurements.figures([{"forged": rows, "command": "python bench/forged.py"}])
    assert "| no key, asked | 970 | no key, alone | 1,000 | 0.97 (0.96–0.98) |" in text
    assert "| rate of a group, no key, asked, of that no key, alone | at least 0.98 | 0.97 |" in text
    assert "| rate of a group, forged, of that alone | at least 0.98 | 0.70 |" in text
    assert text.count("at least 0.98") == 2


def test_calls_are_rendered_beside_their_targets():
    """The figures of bench/calls.py; `test_a_counter_is_the_sum_of_the_calls` runs that."""
    rows = [{"kind": "ordered", "one_p50_us": 100.0}]
    rows.append({"kind": "seqcast", "one_per_s": 3000.0, "one_p50_us": 160.0, "threads_per_s": 60_000.0})
    rows[1] |= {"many_per_s": 62_000.0, "tasks_per_s": 55_000.0}
    rows[1] |= {"total_per_s": 90.0, "local_per_s": 100.0, "failover_ms": 10.0, "start_ms": 12.0}
    rows.append({"kind": "pysyncobj", "one_per_s": 10.0, "failover_ms": 100.0})
    text = measurements.figures([{"calls": rows, "command": "python bench/calls.py"}])
    assert "| `seqcast.replicate` | 3,000 | 160 | 60,000 | 62,000 | 55,000 | 90 | 100 | 10 | 12 |" in text
    assert "| start of the next leader beyond detection, ms | at most 10 | 12" in text
    assert "| a call, of an ordered message's round, p50 | at most 1.5 | 1.60 |" in text
    assert text.count("at most") + text.count("at least") == 2


def test_the_cost_of_boards_is_rendered_beside_its_target():
    """The figures of bench/board_bench.py; `test_the_bench_of_boards_compares_runs_with_and_without` runs that."""
    row = {"members": 4, "size": 1024, "msgs_per_s": 970, "without_msgs_per_s": 1000, "ratio": 0.97}
    row |= {"quartiles": [0.96, 0.98], "same_quartiles": [0.9, 1.1]}
    text = measurements.figures([{"board": [row], "command": "python bench/board_bench.py"}])
    assert "| 4 | 1,024 B | 970 | 1,000 | 0.970 | 0.960–0.980 | 0.900–1.100 |" in text
    assert "| with boards, 1,024 B, of the rate without | at least 0.99 | 0.97 |" in text
    row["ratio"] = 0.995
    assert "at least" not in measurements.figures([{"board": [row], "command": "python bench/board_bench.py"}])


def test_receivers_that_stop_are_rendered_beside_their_targets():
    """The figures of bench/slow.py; `test_the_bench_of_receivers_that_stop_compares_them_with_none` runs that."""
    of_four = {"all_ratio": 1.02, "all_spread": [0.9, 1.1]}
    rows = [
        {"slow": slow, "slow_s": 1.0, "ratio": 0.92, "spread": [0.8, 1.0], **of_four} for slow in ("exclude", "skip")
    ]
    text = measurements.figures([{"slow": rows, "command": "python bench/slow.py"}])
    assert "| `exclude` | 1 | in the second that begins" in text
    assert text.count("| 0.92 (0.80–1.00) | 1.02 (0.90–1.10) |") == 2
    assert "| slow=exclude, one of four stops, of the rate without that one | at least 0.95 | 0.92 |" in text
    assert text.count("at least") == 1


def test_hosts_are_rendered_beside_the_path_that_they_must_equal():
    """The figures of bench/hosts.py; `test_the_bench_of_hosts_compares_them_with_the_same_namespaces` runs that."""
    row = {"members": 2, "size": 64, "msgs_per_s": 940, "veth_msgs_per_s": 1000, "ratio": 0.94}
    row["quartiles"] = [0.9, 1.1]
    text = measurements.figures([{"between_hosts": [row], "command": "python bench/hosts.py"}])
    assert "| 2 | 64 B | 940 | 1,000 | 0.940 | 0.900–1.100 |" in text
    assert "| perf --hosts over namespaces, 64 B, of --path veth | at least 0.95 | 0.94 |" in text


def test_transports_are_rendered_beside_their_targets():
    row = {"path": "veth-segmented", "members": 8, "size": 1024, "mb_per_s": {"multicast": 1000.0}}
    row |= {"ratio": {"auto": 0.995, "unicast": 0.5}, "quartiles": {"auto": [0.4, 0.5, 0.6]}}
    row["quartiles"]["unicast"] = row["quartiles"]["auto"]
    run = {"transports": [row], "command": "python bench/transports.py"}
    text = measurements.figures([run])
    assert "| 8 | 1,024 B | veth-segmented | 1,000 | 0.995 (0.400–0.600) | 0.500 (0.400–0.600) |" in text
    assert "| transport=unicast, veth-segmented, 8 members, 1,024 B, of multicast | at least 0.62 | 0.50 |" in text
    row["ratio"] = {"auto": 0.98, "unicast": 0.7}
    text = measurements.figures([run])
    assert "| transport=auto, veth-segmented, 8 members, 1,024 B, of multicast | at least 0.99 | 0.98 |" in text
    assert text.count("at least") == 1


@pytest.mark.parametrize("name", ["transports", "between_hosts"])
def test_a_line_belongs_to_its_measurement(monkeypatch, name):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import figures

    assert figures.name_of(f'{{"{name}": [], "pairs": 7}}') == name


def test_the_figures_cover_every_size_and_order_of_the_page():
    runs = [json.loads(line) for line in (ROOT / "docs" / "figures.jsonl").read_text().splitlines()]
    throughput = [run for run in runs if "ratio_to_limit" in run]
    assert {(run["size"], run["order"]) for run in throughput} >= {
        (size, order) for size in (64, 1024, 8192, 65536) for order in ("fifo", "total")
    }
    segmented = {(run["size"], run["order"]) for run in throughput if run["path"] == "veth-segmented"}
    assert segmented >= {(size, "fifo") for size in (64, 1024, 8192, 65536)}
    for kind in ("plain", "aio", "batches"):
        assert {run["members"] for run in throughput if run.get("kind") == kind} >= {2, 8, 16}
    assert [row["kind"] for run in runs for row in run.get("work", ())] == ["plain", "at-once"]
    assert {row["kind"] for run in runs for row in run.get("plain", ())} == {"plain", "aio", "pyzmq"}
    assert all(run["lost"] == 0 and run["pairs"] >= 5 for run in throughput)
    assert any("latency_us" in run for run in runs)
    membership = [run for run in runs if "membership" in run]
    assert {"join", "kill coordinator, default", "pause"} <= {row["what"] for row in membership[0]["membership"]}


def test_each_figure_has_its_measurement_in_the_script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import figures

    lines = (ROOT / "docs" / "figures.jsonl").read_text().splitlines()
    measured = [json.loads(line)["command"] for line in lines]
    assert sorted(measured) == sorted(command for each in figures.COMMANDS.values() for command in each)
    assert {figures.name_of(line) for line in lines} == figures.COMMANDS.keys()
    page = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    assert all(command in page for command in measured)


def test_perf_accepts_the_commands_of_the_script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import figures
    import keyed

    from seqcast.perf import arguments

    monkeypatch.setattr(arguments, "usable_cores", lambda: [0, 1])
    commands = [command.split() for each in figures.COMMANDS.values() for command in each]
    commands += [f"seqcast perf --pairs 5 --key file {case.options} {case.more}".split() for case in keyed.CASES]
    for _, perf, *options in (words for words in commands if words[0] == "seqcast"):
        assert perf == "perf" and arguments.parse([*options, "--json"]).pairs == 5
    assert all((ROOT / words[1]).is_file() for words in commands if words[0] == "python")


def test_a_command_that_fails_keeps_its_old_figures(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import figures

    file = tmp_path / "figures.jsonl"
    file.write_text('{"membership": 1}\n{"election": 1}\n')
    printing = """python -c 'print("{\\"election\\": 2}")'"""
    commands = {"membership": ["python fails"], "election": [printing]}
    for name, value in (("FIGURES", file), ("COMMANDS", commands)):
        monkeypatch.setattr(figures, name, value)
    monkeypatch.setattr("sys.argv", ["figures.py"])
    assert figures.main() == 1
    kept, measured = map(json.loads, file.read_text().splitlines())
    assert kept == {"membership": 1}
    assert measured == {"election": 2, "command": printing}


def test_the_readme_fits_on_a_few_screens():
    lines = README.splitlines()
    assert len(lines) <= 150
    assert lines.index("## Install") < 40
