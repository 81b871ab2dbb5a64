"""The commands in groups on this machine's loopback, as processes."""

import contextlib
import fcntl
import itertools
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import termios
import threading
import time

import pytest
from halves import first_quick
from members import LIMIT_S, PATIENT_JOINER, environment, founded, join, script, wait_until

from seqcast import cli


@pytest.fixture
def cluster():
    """A name that no other run uses."""
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
def start():
    """Starts a command; a command that still runs at the end is killed."""
    started = []

    def run(*arguments, **pipes):
        command = [sys.executable, "-m", "seqcast", *arguments]
        options = {"text": True, "env": environment(*arguments), **pipes}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def tail(start, cluster, *options):
    """A tail that is in the group."""
    process = start("tail", cluster, "--interface", "lo", *options)
    (process.stdout if "--json" in options else process.stderr).readline()  # its first view
    founded(cluster)
    return process


def send(start, cluster, text, *options):
    process = start("send", cluster, "--interface", "lo", *options, stdin=subprocess.PIPE)
    _, err = process.communicate(text, timeout=LIMIT_S)
    return process.returncode, err


def feed(stdin, begun):
    """Lines without end, until nobody reads them; ``begun`` is set when somebody has read some."""
    with contextlib.suppress(OSError):
        for chunk in itertools.count():
            stdin.write("a line that somebody should take\n" * 1000)
            if chunk == 8:  # more than a pipe holds
                begun.set()


def is_left(pipe):
    """The pipe's contents stay there for a while: its reader reads no more."""
    before = unread(pipe)
    time.sleep(0.3)
    return before == unread(pipe) > 0


def unread(pipe):
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def process_output(process):
    """The output of a process at its end; its input is another thread's affair."""
    process.wait(LIMIT_S)
    return process.stdout.read(), process.stderr.read()


@pytest.mark.long
def test_every_tail_prints_all_messages(start, cluster):
    lines = [str(number) for number in range(500)]
    leaves, stays = tail(start, cluster, "--count", "500"), tail(start, cluster)
    status, err = send(start, cluster, "\n".join(lines), "--members", "3")
    assert status == 0 and "500 messages" in err, err
    assert "taken by all 2 receivers" in err or "taken by the receiver that stayed, 1 left meanwhile" in err, err
    assert leaves.communicate(timeout=LIMIT_S)[0].split() == lines
    assert [stays.stdout.readline().strip() for _ in lines] == lines
    stays.send_signal(signal.SIGINT)
    stays.communicate(timeout=LIMIT_S)
    assert leaves.returncode == stays.returncode == 0


@pytest.mark.long
def test_lines_may_come_from_a_file(start, cluster, tmp_path):
    (tmp_path / "x").write_text("one\ntwo\n")
    receiver = tail(start, cluster, "--count", "2", "--json")
    sender = start("send", cluster, str(tmp_path / "x"), "--interface", "lo", "--name", "sender")
    assert sender.wait(LIMIT_S) == 0
    rows = [json.loads(line) for line in receiver.communicate(timeout=LIMIT_S)[0].splitlines()]
    messages = [row for row in rows if row["event"] == "message"]
    assert [(row["payload"], row["global_seqno"], row["sender"]) for row in messages] == [
        ("one", 1, "sender"),
        ("two", 2, "sender"),
    ]
    assert rows[0]["event"] == "view" and "sender" in rows[0]["members"]


def test_nobody_to_send_to_is_an_error(start, cluster):
    status, err = send(start, cluster, "x", "--timeout", "0.2")
    assert status == 1 and "seqcast tail" in err


def test_how_long_to_wait_may_stand_in_the_environment(start, cluster, monkeypatch):
    monkeypatch.setenv("SEQCAST_JOIN_TIMEOUT_S", "0.75")
    status, err = send(start, cluster, "x")
    assert status == 1 and "after 0.75 s" in err


@pytest.mark.long
def test_another_order_than_the_groups_is_refused(start, cluster):
    tail(start, cluster, "--order", "fifo")
    status, err = send(start, cluster, "x", "--order", "sequencer")
    assert status != 0 and err.count("\n") == 1 and "order" in err


@pytest.mark.long
def test_options_may_stand_between_the_arguments(start, cluster, tmp_path):
    (tmp_path / "x").write_text("one\n")
    receiver = tail(start, cluster, "--count", "1")
    sender = start("send", "--interface", "lo", cluster, "--members", "2", str(tmp_path / "x"), "--order", "total")
    assert sender.wait(LIMIT_S) == 0, sender.stderr.read()
    assert receiver.communicate(timeout=LIMIT_S)[0] == "one\n"


@pytest.mark.long
def test_every_command_that_joins_has_the_settings_that_members_share(start, cluster, tmp_path):
    pytest.importorskip("pyarrow")
    from seqcast.journal import places

    shared = ["--port", "47410", "--preset", "fast", "--partition", "primary"]
    status, err = send(start, cluster, "x", *shared, "--timeout", "0.3")
    assert status == 1 and "with found=0 this process founds none" in err
    taking = ("--journal", str(tmp_path / "tail"), "--count", "2", "--name", "r", "--found", "1")
    receiver = tail(start, cluster, *shared, *taking)
    assert send(start, cluster, "x", "--timeout", "0.3")[0] == 1  # on another port there is no group
    status, err = send(start, cluster, "x", *shared[:2])
    assert status == 1 and "heartbeat_s" in err and err.count("\n") == 1, err  # another preset is refused
    status, err = send(start, cluster, "one\ntwo", *shared, "--journal", str(tmp_path / "send"), "--name", "s")
    assert status == 0, err
    assert receiver.communicate(timeout=LIMIT_S)[0] == "one\ntwo\n"
    rows = [journal.rows for folder in ("tail", "send") for journal in places.find([tmp_path / folder])]
    assert rows == [2, 2]  # a sender that journals takes its deliveries, its own included


def test_a_variable_with_a_slip_of_the_pen_is_told_in_one_line(start, cluster, monkeypatch):
    monkeypatch.setenv("SEQCAST_INTERFCE", "lo")
    status, err = send(start, cluster, "x")
    assert (status, err.count("\n")) == (2, 1) and "did you mean SEQCAST_INTERFACE?" in err


def test_a_warning_is_one_line_that_names_no_source(start, cluster, monkeypatch):
    monkeypatch.setenv("SEQCAST_RCVBUF", str(1 << 30))  # more than any kernel gives
    _, err = send(start, cluster, "x", "--timeout", "0.2")
    warned = [line for line in err.splitlines() if "receive buffer" in line]
    assert len(warned) == 1 and warned[0].startswith("seqcast: warning: the kernel gave"), err
    assert len(err.splitlines()) == 2 and ".py" not in err


@pytest.mark.long
def test_a_tail_ends_when_its_reader_does_though_nothing_comes(start, cluster):
    stays = tail(start, cluster, "--json", "--name", "stays")
    goes = tail(start, cluster, "--name", "goes")
    assert json.loads(stays.stdout.readline())["members"] == ["stays", "goes"]
    goes.stdout.close()
    assert goes.wait(LIMIT_S) == 0 and "Traceback" not in goes.stderr.read()
    assert json.loads(stays.stdout.readline())["members"] == ["stays"]


@pytest.mark.parametrize("wait_s", [0.02 * 2**n for n in range(6)])
def test_a_command_that_is_interrupted_at_its_start_ends_without_a_traceback(start, cluster, wait_s):
    """The first moments are Python's own: then the signal ends the command, as everything."""
    process = start("tail", cluster, "--interface", "lo")
    time.sleep(wait_s)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode in (0, 130, -signal.SIGTERM) and "Traceback" not in err, err


@pytest.mark.long
def test_a_command_that_its_parent_has_ignore_a_signal_ignores_it(start, cluster):
    ignoring = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}  # as nohup does
    process = start("tail", cluster, "--interface", "lo", "--count", "1", **ignoring)
    process.stderr.readline()
    process.send_signal(signal.SIGHUP)
    assert send(start, cluster, "one")[0] == 0
    assert process.communicate(timeout=LIMIT_S)[0] == "one\n"


SIGNALS = [signal.SIGINT, *(pytest.param(each, marks=pytest.mark.long) for each in (signal.SIGTERM, signal.SIGHUP))]


@pytest.mark.long
@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_tail_leaves_the_group(start, cluster, number):
    stays = tail(start, cluster, "--json", "--name", "stays")
    goes = tail(start, cluster, "--name", "goes")
    assert json.loads(stays.stdout.readline())["members"] == ["stays", "goes"]
    goes.send_signal(number)
    assert goes.wait(LIMIT_S) == 0 and "Traceback" not in goes.stderr.read()
    assert json.loads(stays.stdout.readline())["members"] == ["stays"]


@pytest.mark.long
def test_an_interrupted_send_reports_its_messages_and_leaves(start, cluster):
    receiver = tail(start, cluster, "--json", "--name", "receiver")
    sender = start("send", cluster, "--interface", "lo", "--name", "sender", stdin=subprocess.PIPE)
    sender.stdin.write("one\n")
    sender.stdin.flush()
    events = [json.loads(receiver.stdout.readline()) for _ in range(2)]
    assert [event["event"] for event in events] == ["view", "message"]
    sender.send_signal(signal.SIGINT)
    assert sender.wait(LIMIT_S) == 130
    assert "interrupted: 1 message" in sender.stderr.read()
    assert json.loads(receiver.stdout.readline())["members"] == ["receiver"]


@pytest.mark.long
def test_a_send_that_was_excluded_does_not_say_delivered(start, cluster):
    receiver = tail(start, cluster, "--json", "--name", "receiver")
    sender = start("send", cluster, "--interface", "lo", "--name", "sender", stdin=subprocess.PIPE)
    sender.stdin.write("one\n")
    sender.stdin.flush()
    assert [json.loads(receiver.stdout.readline())["event"] for _ in range(2)] == ["view", "message"]
    sender.send_signal(signal.SIGSTOP)
    assert json.loads(receiver.stdout.readline())["members"] == ["receiver"]
    sender.send_signal(signal.SIGCONT)
    _, err = sender.communicate(timeout=LIMIT_S)
    assert sender.returncode == 1 and "delivery to all is not known" in err, err


@pytest.mark.long
def test_a_send_to_a_receiver_that_takes_nothing_reports_its_state_when_interrupted(start, cluster, monkeypatch):
    monkeypatch.setenv("SEQCAST_LEAVE_TIMEOUT_S", "1")
    # Nobody reads its output, so the process soon takes nothing more. (The sequencer must multicast accepted messages.)
    tail(start, cluster, "--order", "sequencer")
    sender = start("send", cluster, "--order", "sequencer", "--interface", "lo", stdin=subprocess.PIPE)
    begun = threading.Event()
    feeder = threading.Thread(target=feed, args=(sender.stdin, begun), daemon=True)
    feeder.start()
    assert begun.wait(LIMIT_S)
    wait_until(lambda: is_left(sender.stdin))  # the window is full
    sender.send_signal(signal.SIGINT)
    _, err = process_output(sender)
    assert sender.returncode == 130 and "Traceback" not in err, err
    assert "interrupted" in err and "delivery to all is not known" in err
    sent, missed = (int(re.search(rf"([\d,]+) messages{what}", err)[1].replace(",", "")) for what in ("", " did not"))
    assert 0 < missed < sent


@pytest.mark.long
def test_a_send_does_not_take_a_queue_for_a_receiver(start, cluster, monkeypatch):
    """A member's application may never take the messages in its queue."""
    monkeypatch.setenv("SEQCAST_LEAVE_TIMEOUT_S", "1")
    text = "import sys, seqcast; g = seqcast.join(sys.argv[1], interface='lo'); print('in', flush=True); input()"
    stuck = script(text, cluster)
    assert stuck.stdout.readline() == "in\n"
    tail(start, cluster)
    status, err = send(start, cluster, "one\ntwo", "--members", "3")
    assert status == 1 and "received by all 2 receivers, but not taken by all" in err, err
    stuck.communicate("\n", timeout=LIMIT_S)
    monkeypatch.delenv("SEQCAST_LEAVE_TIMEOUT_S")
    assert send(start, cluster, "one\ntwo")[1].startswith("2 messages, 6 bytes, taken by the receiver")


@pytest.mark.long
def test_a_send_whose_receivers_all_left_does_not_say_taken(start, cluster):
    """They had the message in their queues."""
    text = "import sys, seqcast; g = seqcast.join(sys.argv[1], interface='lo'); print('in', flush=True); input()"
    leaver = script(text, cluster)
    assert leaver.stdout.readline() == "in\n"
    sender = start("send", cluster, "--interface", "lo", stdin=subprocess.PIPE)
    sender.stdin.write("one\n")
    sender.stdin.close()
    sender.stdin = None
    assert "waiting until all receivers have taken it" in sender.stderr.readline()
    leaver.communicate("\n", timeout=LIMIT_S)
    _, err = sender.communicate(timeout=LIMIT_S)
    assert sender.returncode == 1 and "not known to be taken: the receiver left meanwhile" in err, err


def test_a_send_to_nobody_says_so(start, cluster):
    status, err = send(start, cluster, "one", "--members", "1")
    assert status == 0 and "there was no other member" in err


@pytest.mark.long
@pytest.mark.parametrize("number", SIGNALS)
def test_a_demo_that_is_ended_has_its_members_leave(start, tmp_path, number):
    """The signal goes to the process group, as a terminal or ``timeout`` does."""
    pytest.importorskip("pyspark")
    from seqcast.journal import places

    options = ["--members", "3", "--rate", "500", "--port", "47710", "--journal", str(tmp_path / "journals")]
    demo = start("demo", *options, start_new_session=True)
    while "traffic" not in demo.stdout.readline():
        assert demo.poll() is None, demo.stderr.read()
    os.killpg(demo.pid, number)
    _, err = demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 130 and err == "seqcast: interrupted\n", err
    closed = [journal.closed for journal in places.find([tmp_path / "journals"])]
    assert closed == ["leave"] * 3


@pytest.mark.spark
def test_the_demo_crashes_joins_and_is_judged(capfd, tmp_path, monkeypatch, spark):
    monkeypatch.setattr("seqcast.spark.session.open_session", lambda master, name, ship: Unstopped(spark))
    monkeypatch.setenv("SEQCAST_DISCOVERY_S", str(PATIENT_JOINER["discovery_s"]))  # so that a stays the coordinator
    text = tmp_path / "input.txt"
    text.write_text("".join(f"line {number}\n" for number in range(100)))
    options = ["--input", str(text), "--seconds", "1", "--rate", "2000", "--members", "3"]
    journals = tmp_path / "journals"
    assert cli.main(["demo", *options, "--journal", str(journals), "--plant-fault", "drop"]) == 1
    out = capfd.readouterr().out
    before, _, after = out.partition("SIGKILL to a, the coordinator")
    crashed, _, joined = after.partition(" start ")  # views of those that leave one after the other may follow
    views = [re.findall(r"^ *[\d.]+ s +view \d+ +\[(.*?)\]", part, re.M) for part in (before, crashed, joined)]
    found = [{frozenset(members.split(", ")) for members in shown} for shown in views]
    assert all(set(members) in seen for members, seen in zip(("abc", "bc", "bcd"), found, strict=True))
    assert re.search(r"traffic +[\d,]+ messages/s sent", out)
    victim = re.search(r"planted in (\w)-", out)[1]
    failed = [line for line in out.splitlines() if " FALSE " in line]
    assert failed and victim in out.partition(" FALSE ")[2]
    assert f"journals: {journals}" in out
    assert len(list(journals.iterdir())) == 4


@pytest.mark.long
@pytest.mark.spark
def test_members_of_a_demo_without_multicast_find_each_other(capfd, monkeypatch, tmp_path, spark):
    """Nobody gives them seeds, and there are more of them than ports in the usual range."""
    monkeypatch.setattr("seqcast.spark.session.open_session", lambda master, name, ship: Unstopped(spark))
    for name in ("SEQCAST_SEEDS", "SEQCAST_PORT", "SEQCAST_PORT_RANGE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SEQCAST_DISCOVERY_S", str(PATIENT_JOINER["discovery_s"]))
    options = ["--transport", "unicast", "--port", "47720", "--journal", str(tmp_path / "journals")]
    assert cli.main(["demo", *options, "--seconds", "1", "--rate", "200", "--members", "5"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("5 members by unicast on 127.0.0.1") and "every guarantee that was checked holds" in out


@pytest.mark.long
@pytest.mark.spark
def test_the_demo_holds_if_members_agree_by_a_token_ring(capfd, monkeypatch, spark):
    monkeypatch.setattr("seqcast.spark.session.open_session", lambda master, name, ship: Unstopped(spark))
    monkeypatch.setenv("SEQCAST_DISCOVERY_S", str(PATIENT_JOINER["discovery_s"]))
    options = ["--membership", "token-ring", "--seconds", "1", "--rate", "2000", "--members", "3"]
    assert cli.main(["demo", *options]) == 0
    out = capfd.readouterr().out
    assert "SIGKILL to a, the coordinator" in out and " FALSE " not in out


class Unstopped:
    """The session of all tests, which the command must not stop."""

    def __init__(self, spark):
        self._spark = spark

    def __getattr__(self, name):
        return getattr(self._spark, name)

    def stop(self):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="descriptors of POSIX")
@pytest.mark.parametrize("command", first_quick(["send", "doctor"]))
def test_a_command_works_whatever_the_numbers_of_its_descriptors(cluster, tmp_path, command):
    """`select` takes none beyond 1,023."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most < 2048:
        pytest.skip(f"a process may have {most} descriptors here")
    (tmp_path / "lines").write_text("a\nb\n")
    code = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048))
for _ in range(1100):
    os.dup(0)
from seqcast.cli import process
process()
"""
    arguments = {
        "send": ["send", cluster, "--interface", "lo", "--members", "1", str(tmp_path / "lines")],
        "doctor": ["doctor", "--with", "127.0.0.1"],
    }[command]
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment(), timeout=LIMIT_S,
    )  # fmt: skip
    said = {"send": (0, "2 messages"), "doctor": (1, "127.0.0.1")}[command]
    assert result.returncode == said[0] and said[1] in result.stdout + result.stderr, (result.stdout, result.stderr)


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of POSIX")
def test_send_shows_no_progress_line_over_text_being_typed(cluster):
    import pty

    ours, theirs = pty.openpty()
    with join(cluster, "receiver") as receiver:
        command = [sys.executable, "-m", "seqcast", "send", cluster, "--interface", "lo"]
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(cluster))
        os.close(theirs)
        try:
            for _ in range(3):
                os.write(ours, b"line\n")
                assert receiver.recv(LIMIT_S) is not None
                time.sleep(0.3)  # longer than between two updates of a progress line
            os.write(ours, b"\x04")
            shown = b""
            with contextlib.suppress(OSError):  # the end of the terminal
                while some := os.read(ours, 4096):
                    shown += some
            process.wait(LIMIT_S)
        finally:
            process.kill()
            os.close(ours)
    assert b"3 messages, 12 bytes" in shown and b"message sent" not in shown and b"messages sent" not in shown, shown
