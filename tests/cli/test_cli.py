"""The commands, as far as they need no group: dispatch, bad input, reading lines, printing, planting faults."""

import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import journal_data
import pytest
from halves import first_quick
from members import wait_until

import seqcast
from seqcast import cli
from seqcast._native.engine import Message
from seqcast.cli import demo, demo_member, send, tail, unblock
from seqcast.cli.options import group_settings, network_settings, shared_settings
from seqcast.config import derive
from seqcast.types import Member, View, ViewId

MEMBER = Member("a", 7)
VIEW = View(ViewId(3, 7), (MEMBER, Member("b", 8)), "sequencer", 0)


def message(payload: bytes) -> Message:
    return Message(payload, MEMBER, VIEW.view_id, 5, 2, 11, 1_000, False)


def test_without_a_command_the_help_is_shown_and_the_status_is_2(capsys):
    assert cli.main([]) == 2
    assert "tail" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["-h", "--help", "help"])
def test_help_names_every_command(option, capsys):
    assert cli.main([option]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in cli.COMMANDS)


def test_an_unknown_command_is_one_line_and_status_2(capsys):
    assert cli.main(["tale"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "'tale'" in err and "tail" in err


@pytest.mark.parametrize("command", ["demo", "send", "tail", "perf", "audit", "sim"])
def test_every_command_has_help(command, capsys):
    assert cli.main([command, "--help"]) == 0
    assert f"seqcast {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["send"], "CLUSTER"),
        (["send", "x", "no such file"], "cannot read no such file"),
        (["send", "x", "/"], "cannot read /"),
        (["tail", "x", "--count", "0"], "1 or more"),
        (["tail", "x", "--order", "none"], "choose from"),
        (["tail", "x", "--timeout", "-1"], "seconds"),
        (["tail", "x", "--interface", "nosuchinterface0"], "nosuchinterface0"),
        (["tail", "x", "--interface", "no\udcff"], "no network interface 'no\\udcff'"),  # an argument that is not UTF-8
        (["tail", "x\udcff"], "cluster='x\\udcff' must be printable"),
        (["tail", "x", "--name", ""], "name='' must be text"),
        (["tail", "x", "--journal", ""], "--journal is empty"),
        (["demo", "--members", "2"], "from 3 to 16"),
        (["demo", "--input", "no such file"], "cannot read no such file"),
        (["demo", "--input", os.devnull], "has no lines"),
        (["demo", "--plant-fault", "nothing"], "choose from"),
        (["demo", "--rate", "nan"], "'nan' must be a whole number"),
        (["demo", "--slow", "skip"], "does not go with journal="),
        (["demo", "--message-bytes-max", "10"], "has a line of"),
        (["unblock", "x", "--port", "0"], "from 1 to 65534"),
        (["unblock", "x", "--timeout", "soon"], "'soon' must be a number of seconds"),
        (["unblock", "nobody-here", "--transport", "unicast", "--seeds", ""], "give --seeds with the hosts of members"),
        (["perf", "--size", "0"], "--size must be from"),
        (["perf", "--path", "moon"], "invalid choice"),
        (["perf", "--interface", "lo", "--path", "loopback"], "leave --path and --loss out"),
        (["audit"], "JOURNAL"),
        (["audit", os.devnull], "is a file"),
        (["sim"], "--seed"),
        (["sim", "--seeds", "5..1"], "not A..B"),
        (["sim", "--seed", "1", "--members", "99"], "from 2 to 32"),
    ],
)
def test_bad_input_is_one_line_and_status_2_and_names_the_fault(arguments, says, capsys):
    assert cli.main(arguments) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1 and err.startswith("seqcast"), err


def test_unblock_ends_if_no_member_answers():
    command = [sys.executable, "-m", "seqcast", "unblock", f"nobody-{os.getpid()}", "--interface", "lo"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1, result.stderr
    assert "is blocked as a minority" in result.stderr and result.stderr.count("\n") == 1


def test_unblock_names_those_asked_in_vain(monkeypatch, capsys):
    monkeypatch.setattr(unblock, "ASK_S", 0.05)
    seeds = ["--transport", "unicast", "--seeds", "127.0.0.1:9,no-such-host.invalid"]
    assert cli.main(["unblock", f"nobody-{os.getpid()}", *seeds]) == 1
    said = capsys.readouterr().err
    assert "(nobody answers at 127.0.0.1:9; no-such-host.invalid cannot be resolved" in said and said.count("\n") == 1


@pytest.mark.parametrize("command", [tail, send])
def test_every_setting_that_a_group_must_share_is_an_option_of_each_command_that_joins(command):
    given = {"order": "fifo", "port": 4000, "address": "239.1.2.3", "ip_version": 4, "ttl": 2, "heartbeat_s": 0.02}
    given |= {"message_bytes_max": 1 << 20, "partition": "primary", "membership": "token-ring", "reliability": "gossip"}
    given |= {"transport": "unicast", "seeds": "a,b:5", "port_range": 8, "key": "group.key", "identity": "a.id"}
    given |= {"authorized": "members", "cipher": "aes-256-gcm"}
    given |= {"slow": "exclude", "slow_s": 2.0}
    own = {"congestion": "off", "send_bytes_per_s": 1 << 20}
    flags = {"flush_unicasts": True, "safe": True}
    assert {*derive.SHARED, *derive.NETWORK, "order"} == {*given, *flags, "interface"}
    options = [text for name, value in (given | own).items() for text in (f"--{name.replace('_', '-')}", str(value))]
    options += [f"--{name.replace('_', '-')}" for name in flags]
    assert shared_settings(command.parse(["orders", *options])) == given | own | flags
    plain = {"name": None, "order": "total", "config": seqcast.Config()}
    assert group_settings(command.parse(["orders"])) == plain


def test_a_command_founds_a_primary_group_only_if_it_is_told_to(monkeypatch):
    def found(*options):
        return group_settings(tail.parse(["orders", *options]))["config"].found

    assert found() == 1 and found("--found", "2") == 2
    assert found("--partition", "primary") == 0 and found("--partition", "primary", "--found", "1") == 1
    monkeypatch.setenv("SEQCAST_PARTITION", "primary")
    assert found() == 0 and found("--partition", "merge") == 1
    monkeypatch.setenv("SEQCAST_FOUND", "2")  # of the members on this machine
    assert found() == 0


def test_tail_observes_a_primary_group_unless_it_is_to_found_it():
    def observes(*options):
        arguments = tail.parse(["orders", *options])
        return tail.watching(group_settings(arguments)["config"], arguments.observe).observer

    assert observes("--observe") and not observes() and not observes("--partition", "merge")
    assert observes("--partition", "primary") and not observes("--partition", "primary", "--found", "1")


def test_a_blocked_group_names_the_command_with_all_that_it_needs_to_reach_it():
    config = seqcast.Config(interface="eth 1", port=4000, address="239.1.2.3", ttl=2)
    options = derive.reach(config)
    assert options == " --interface 'eth 1' --port 4000 --address 239.1.2.3 --ttl 2" and not derive.reach(
        seqcast.Config()
    )
    understood = network_settings(unblock.parse(["orders", *shlex.split(options)]))
    assert seqcast.Config().replace(**understood) == config


def test_the_demo_does_not_write_into_a_folder_that_holds_something(tmp_path, capsys):
    (tmp_path / "old").touch()
    assert cli.main(["demo", "--journal", str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("missing", "command", "extra"),
    [("pyspark", "demo", "spark"), ("pyarrow", "demo", "spark"), ("pyspark", "audit", "spark")],
)
def test_a_missing_extra_is_named_with_the_package_to_install(missing, command, extra, tmp_path):
    everyone = [journal_data.member(name) for name in "ab"]
    rows = [journal_data.Row(everyone[0], 1, 0, 1, b"x")]
    journal_data.journal(tmp_path, everyone[0], [(journal_data.view(1, everyone), rows)])
    arguments = [command, *([str(tmp_path)] if command == "audit" else [])]
    code = f"import sys; sys.modules[{missing!r}] = None; from seqcast.cli import main; sys.exit(main({arguments!r}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1 and f"pip install 'seqcast[{extra}]'" in result.stderr


@pytest.mark.parametrize("error", [seqcast.ConfigError("no\nsuch thing"), seqcast.UsageError("no such thing")])
def test_errors_of_the_caller_are_one_line_and_status_2(monkeypatch, capsys, error):
    monkeypatch.setattr(tail, "main", lambda argv: (_ for _ in ()).throw(error))
    assert cli.main(["tail", "x"]) == 2
    assert capsys.readouterr().err == f"seqcast: no such thing ({error.code})\n"


def test_an_error_of_the_group_is_status_1(monkeypatch, capsys):
    monkeypatch.setattr(tail, "main", lambda argv: (_ for _ in ()).throw(seqcast.JoinTimeout("refused")))
    assert cli.main(["tail", "x"]) == 1
    assert capsys.readouterr().err == "seqcast: refused (SC4001)\n"


def test_an_error_of_ours_is_not_hidden(monkeypatch):
    monkeypatch.setattr(tail, "main", lambda argv: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["tail", "x"])


@pytest.mark.parametrize("error", first_quick(["1 // 0", "open('/no/such/file')"]))
def test_an_error_of_ours_has_a_traceback_and_a_status_that_no_check_has(error):
    code = f"from seqcast.cli import process, tail; tail.main = lambda argv: {error}\n"
    command = [sys.executable, "-c", f"{code}import sys; sys.argv[1:] = ['tail', 'x']; process()"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 70, result.stderr
    assert result.stderr.startswith("Traceback") and result.stderr.endswith("please report it, with the lines above\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["tail", "x"]])
def test_a_full_disk_is_one_line_and_status_2(arguments):
    code = "import sys; from seqcast.cli import process, tail; tail.main = lambda argv: tail.write(b'x') or 0\n"
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", f"{code}sys.argv[1:] = {arguments}; process()"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1 and "cannot write the output: No space left on device" in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")
def test_an_interrupt_while_the_command_is_imported_shows_no_traceback():
    """Before that, signals are Python's own. Each module that is imported meets one Ctrl-C."""
    code = """
import os, runpy, signal, sys
seen = []
class Interrupt:
    def find_spec(name, *_):
        seen.append(name)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler and seen.count("seqcast.cli") == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return None
sys.meta_path.insert(0, Interrupt)
sys.argv = ["seqcast", "--version"]
runpy.run_module("seqcast", run_name="__main__")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (130, "seqcast: interrupted\n")


def test_a_reader_that_goes_away_ends_the_command_in_silence():
    code = """
import sys
from seqcast.cli import main, tail
tail.main = lambda argv: [tail.write(b"x" * 999) for _ in range(9999)] and 0
sys.exit(main(["tail", "x"]))
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


NO_LOSS = """
import sys
from seqcast.cli import process, tail
tail.main = lambda argv: [tail.write(b"%06d" % i + b"x" * 993) for i in range(2000)] and 0
sys.argv[1:] = ["tail", "x"]
process()
"""


def test_a_variable_of_the_environment_and_an_option_count_together(monkeypatch):
    """A cipher in the environment, and the necessary key on the command line."""
    monkeypatch.setenv("SEQCAST_CIPHER", "aes-256-gcm")
    config = group_settings(tail.parse(["orders", "--key", "orders.key"]))["config"]
    assert (config.cipher, config.key) == ("aes-256-gcm", "orders.key")
    with pytest.raises(seqcast.ConfigError, match="no meaning without key="):
        group_settings(tail.parse(["orders"]))


@pytest.mark.skipif(sys.platform == "win32", reason="pipes there always block")
@pytest.mark.parametrize("unbuffered", first_quick(["", "1"]))
def test_a_full_pipe_that_does_not_block_loses_no_line(unbuffered):
    """As many programs make their pipes, and so those of their children."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(
        [sys.executable, "-c", NO_LOSS], stdout=writer, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        os.close(writer)
        with open(reader, "rb") as pipe:
            lines = []
            while line := pipe.readline():
                lines.append(line)
                if len(lines) % 500 == 1:
                    time.sleep(0.2)  # the pipe is full again
        assert process.stderr.read() == ""
    assert process.returncode == 0
    assert [line[:6] for line in lines] == [b"%06d" % i for i in range(2000)]


@pytest.mark.skipif(sys.platform == "win32", reason="sets a limit of POSIX")
@pytest.mark.parametrize("unbuffered", first_quick(["", "1"]))
def test_a_disk_that_is_full_in_the_midst_of_a_line_is_told(unbuffered, tmp_path):
    """The limit of a file's size stands for the disk: both take a part of the write, and refuse the next one."""
    code = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)){NO_LOSS}"
    code = code.replace("for i in range(2000)", "for i in range(66)")
    with open(tmp_path / "out", "wb") as out:
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        result = subprocess.run(
            [sys.executable, "-c", code], stdout=out, stderr=subprocess.PIPE, text=True, env=environment, timeout=60
        )
    assert (tmp_path / "out").stat().st_size == 65536
    assert result.returncode == 2 and result.stderr.count("\n") == 1, result.stderr
    assert "cannot write the output: File too large" in result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="looks at how full a pipe is")
def test_an_interrupt_in_the_midst_of_a_write_doubles_nothing():
    import fcntl
    import termios

    def is_in_a_write():
        """The pipe has no page left for a line, and the process sleeps."""
        there = int.from_bytes(fcntl.ioctl(reader, termios.FIONREAD, bytes(4)), sys.byteorder)
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0]
        return there > room - 4096 and state == "S"

    reader, writer = os.pipe()
    room = fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ)
    with subprocess.Popen([sys.executable, "-c", NO_LOSS], stdout=writer, stderr=subprocess.PIPE, text=True) as process:
        os.close(writer)
        wait_until(is_in_a_write)
        process.send_signal(signal.SIGINT)
        with open(reader, "rb") as pipe:
            data = pipe.read()
        process.stderr.read()
    lines = data.split(b"\n")[:-1]
    assert process.returncode == 130 and all(len(line) == 999 for line in lines)
    assert [line[:6] for line in lines] == [b"%06d" % i for i in range(len(lines))]


def test_an_interrupt_at_the_end_of_a_write_is_raised_by_that_write_and_doubles_nothing():
    from seqcast.cli import output

    class Interrupted(output._Whole):
        def write(self, data):
            written = super().write(data)
            self._raised = KeyboardInterrupt()  # as if its handler had run once the system had taken all
            return written

    reader, writer = os.pipe()
    text = output._Text(Interrupted(writer), encoding="utf-8", line_buffering=True)
    with pytest.raises(KeyboardInterrupt):
        text.write("one\n")
    text.flush()
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert pipe.read() == b"one\n"


# ---- send and tail -----------------------------------------------------------------------------------------------


def lines_of(path: Path, data: bytes, longest: int = 1 << 28) -> list[bytes]:
    path.write_bytes(data)
    source = os.open(path, os.O_RDONLY)
    try:
        return [line for lines in send.read_lines(source, longest) for line in lines]
    finally:
        os.close(source)


@pytest.mark.parametrize("data", [b"", b"a", b"a\n", b"a\nb", b"\n", b"a\n\nb\n", b"a\r\nb", b"\xff\x00\n" * 3])
def test_lines_are_the_texts_between_newlines(tmp_path, data):
    expected = data.split(b"\n")[:-1] if data.endswith(b"\n") or not data else data.split(b"\n")
    assert lines_of(tmp_path / "x", data) == expected


def test_lines_longer_than_a_read_are_put_together(tmp_path, monkeypatch):
    monkeypatch.setattr(send, "CHUNK_BYTES", 7)
    data = b"\n".join(b"%d" % i * (i % 50) for i in range(300))
    assert lines_of(tmp_path / "x", data) == data.split(b"\n")


def test_a_line_longer_than_a_message_may_be_is_refused(tmp_path):
    assert lines_of(tmp_path / "x", bytes(1 << 20), 1 << 20) == [bytes(1 << 20)]
    with pytest.raises(seqcast.UsageError, match=r"message_bytes_max=1048576.*text file"):
        lines_of(tmp_path / "x", bytes(2 << 20), 1 << 20)


def test_lines_of_a_pipe_come_as_they_are_written():
    out, into = os.pipe()
    reader = send.read_lines(out, 1 << 20)
    os.write(into, b"one\ntw")
    assert next(reader) == [b"one"]
    os.write(into, b"o\n")
    assert next(reader) == [b"two"]
    os.close(into)
    assert list(reader) == []
    os.close(out)


def test_a_message_as_json_says_its_place_and_origin():
    row = json.loads(tail.as_json(message("é".encode())))
    assert row["payload"] == "é"
    assert (row["sender"], row["global_seqno"], row["seqno"], row["index"]) == ("a", 11, 5, 2)


def test_a_message_as_json_says_that_it_is_transitional_or_a_unicast_only_if_so():
    sender, flags = MEMBER, {"unicast", "transitional"}
    for given in ({}, {"unicast": True}, {"transitional": True}):
        row = json.loads(tail.as_json(seqcast.Message(b"x", sender, VIEW.view_id, 5, 2, 11, 0, **given)))
        assert {name for name in flags if name in row} == {*given} and all(row[name] is True for name in given)


def test_bytes_that_are_not_text_are_base64_in_json():
    row = json.loads(tail.as_json(message(b"\xff\x00")))
    assert row["payload_base64"] == "/wA=" and "payload" not in row


def test_a_view_as_json_says_its_members_and_who_orders():
    row = json.loads(tail.as_json(VIEW))
    assert (row["members"], row["coordinator"], row["sequencer"]) == (["a", "b"], "a", "a")


def test_losses_and_exclusion_are_told():
    excluded = seqcast.Excluded(VIEW.view_id, "silence")
    assert json.loads(tail.as_json(excluded))["reason"] == "silence"
    assert "silence" in tail.describe(excluded)


@dataclasses.dataclass
class OfALaterRelease:
    view_id: ViewId
    reason: str


def test_a_new_coordinator_is_told():
    a, b = VIEW.members
    changed = seqcast.CoordinatorChanged(b, a, VIEW.view_id, False, "a is doubted: it is silent")
    row = json.loads(tail.as_json(changed))
    assert (row["event"], row["coordinator"], row["agreed"]) == ("coordinator_changed", "b", False)
    assert tail.describe(changed) == "b acts as the coordinator instead of a: a is doubted: it is silent"


def test_every_event_has_a_line_of_json():
    row = json.loads(tail.as_json(seqcast.Lost(VIEW.view_id, 3, 5, None, messages=4, to=MEMBER)))
    assert (row["event"], row["messages"], row["to"], row["missed_by"]) == ("lost", 4, "a", None)
    row = json.loads(tail.as_json(OfALaterRelease(VIEW.view_id, "why")))
    assert row == {"event": "ofalaterrelease", "view_id": str(VIEW.view_id), "reason": "why"}


# ---- the demo ----------------------------------------------------------------------------------------------------


def test_shares_of_the_input_are_disjoint_and_whole(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"a\nb\n\nc\nd\ne")
    shares = [demo_member.share(str(path), number, 3) for number in range(3)]
    assert sorted(line for share in shares for line in share) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_share_of_too_short_an_input_is_all_of_it(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"only\n")
    assert demo_member.share(str(path), 2, 4) == [b"only"]


@pytest.mark.parametrize(
    ("options", "interface", "places"),
    [
        ([], "127.0.0.1", {}),
        (["--ip-version", "6"], "::1", {"port_range": 4}),
        (["--ip-version", "6", "--transport", "multicast", "--interface", "eth0"], "eth0", {}),
        (["--transport", "unicast", "--members", "5"], "127.0.0.1", {"port_range": 5}),
    ],
)
def test_members_of_a_demo_look_for_each_other_as_loopback_allows(tmp_path, options, interface, places):
    made = demo.Demo(demo.parse(options), tmp_path, tmp_path)
    assert (made.interface, made.places()) == (interface, places)


def test_a_demo_warns_once_of_the_same_and_says_in_which_views_members_are(tmp_path, capsys, monkeypatch):
    made = demo.Demo(demo.parse([]), tmp_path, tmp_path)
    for name in "ab":
        made.processes[name] = demo.Process(name, None)
        made.inbox.put((name, {"event": "warned", "text": f"{name}: c was excluded; took {ord(name)} ms (SC3105)"}))
        view = {"event": "view", "view": 1, "members": [name], "sequencer": "", "at_ns": 0, "merged": 0}
        made.inbox.put((name, view))
    for _ in range(4):
        made.pump(0)
    monkeypatch.setattr(demo, "STEP_TIMEOUT_S", -1.0)
    with pytest.raises(demo.DemoFailed, match=r"for a view of a, b: a is in \[a\]; b is in \[b\]\. `seqcast doctor"):
        made.wait_for_view({"a", "b"})
    assert re.findall(r"warning +(.*)", capsys.readouterr().out) == ["a: c was excluded; took 97 ms (SC3105)"]


def test_the_default_input_comes_with_python():
    assert demo.default_input().read_bytes().count(b"\n") > 4000


def test_the_version_of_a_source_tree_that_is_not_installed_is_asked_for_in_one_line(monkeypatch, capsys):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert cli.main(["--version"]) == 1
    assert "pip install seqcast" in capsys.readouterr().err
