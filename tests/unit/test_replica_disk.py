"""The log of a replica on disk (``replicate(stable=)``): whole up to the last sync, whatever happens."""

import errno
import functools
import io
import os
import threading
from types import SimpleNamespace

import pytest
from counting import Counting
from hypothesis import given, settings
from hypothesis import strategies as st

import seqcast
from seqcast.blocks import disk as disks
from seqcast.blocks.disk import ASIDE, NEW, SUFFIX, DiskLog
from seqcast.blocks.durable import Durable, position_of_majority
from seqcast.blocks.log import MESSAGE, Entry, Log, Mark, Told
from seqcast.blocks.outbox import READ, READ_AGAIN, Call
from seqcast.errors import ConfigError, OtherRelease, StableFailed
from seqcast.types import Member

MEMBER = 7


def opened(path, machine=None):
    """The state on disk, and its log, which goes on there."""
    log, disk = Log(machine or Counting()), DiskLog(str(path), "k", "a")
    try:
        if not disk.read(log.restore, log.replay):
            disk.begin(log.mark, log.write)
            disk.sync()
    except BaseException:
        disk.close()
        raise
    log.record = lambda what: disk.append(what, log.mark)
    return log, disk


def call(log, operation, number):
    log.take(Entry(0, 1, number, 1, number, [operation], number * 1000).encode(), MEMBER, False)


def written(path, *batches):
    """A file with these batches of operations, each synced, and where each ended."""
    log, disk = opened(path)
    log.enter([MEMBER], 3)
    disk.begin(log.mark, log.write)
    disk.sync()
    ends, number = [os.path.getsize(f"{path}{SUFFIX}")], 0
    for batch in batches:
        for operation in batch:
            number += 1
            call(log, operation, number)
        disk.sync()
        ends.append(os.path.getsize(f"{path}{SUFFIX}"))
    disk.close()
    return log, ends


def total_of(path):
    log, disk = opened(path)
    disk.close()
    return log.machine.total


def test_the_state_comes_back_with_its_position_its_view_and_its_answers(tmp_path):
    before, _ = written(tmp_path / "a", [b"1", b"20"], [b"300"])
    log, disk = opened(tmp_path / "a")
    assert log.machine.total == 321 and log.mark == before.mark == Mark(3, 5)
    assert log.view == (MEMBER,) and log.now_ns == before.now_ns
    assert log.answer(1, 2).data == b"21"
    disk.close()


def test_an_end_that_is_torn_anywhere_is_cut_off(tmp_path):
    path = tmp_path / "a"
    _, ends = written(path, [b"1"], [b"20"], [b"300"])
    file = tmp_path / f"a{SUFFIX}"
    data = file.read_bytes()
    for end in range(ends[0], len(data), 3):
        file.write_bytes(data[:end])
        assert total_of(path) == sum((1, 20, 300)[: sum(end >= each for each in ends[1:])])
        file.write_bytes(data[:end] + bytes(len(data) - end))
        if end >= ends[2]:
            assert total_of(path) == 21
    for end in range(0, ends[0], 7):
        file.write_bytes(data[:end])
        with pytest.raises(ConfigError, match=r"no log of a replica|snapshot is damaged"):
            opened(path)


def test_damage_before_a_later_sync_is_not_a_torn_end_and_is_refused(tmp_path):
    path = tmp_path / "a"
    _, ends = written(path, [b"1"], [b"20"], [b"300"])
    file = tmp_path / f"a{SUFFIX}"
    data = file.read_bytes()
    for place in range(0, len(data), 5):
        flipped = bytearray(data)
        flipped[place] ^= 1
        file.write_bytes(flipped)
        if place >= ends[2]:  # of the last sync: nothing shows that this was done
            assert total_of(path) == 21
            continue
        with pytest.raises(ConfigError, match=r"damaged") as caught:
            opened(path)
        assert caught.value.code == "SC3110"


class Crash(BaseException):
    """The power is gone."""


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.lists(st.integers(1, 9), min_size=4, max_size=8), st.randoms(use_true_random=False))
def test_a_crash_at_each_write_leaves_all_that_was_synced(tmp_path_factory, number, amounts, rng):
    path = tmp_path_factory.mktemp("disk") / "a"
    left, steps = number, []

    def step(call):
        def crashes(*arguments):
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash
            steps.append(call.__name__)
            return call(*arguments)

        return crashes

    safe, applied, disk = 0, 0, None
    with pytest.MonkeyPatch.context() as patched:
        for name in ("fdatasync", "fsync", "replace", "open"):
            if hasattr(os, name):
                patched.setattr(disks.os, name, step(getattr(os, name)))
        try:
            log, disk = opened(path)
            log.enter([MEMBER], 1)
            for place, amount in enumerate(amounts, 1):
                call(log, b"%d" % amount, place)
                applied += amount
                if rng.random() < 0.3:
                    disk.begin(log.mark, log.write)
                disk.sync()
                safe = applied
        except Crash:
            pass
    if disk is not None:
        disk.close()
    for name in (f"{path}{SUFFIX}", f"{path}{SUFFIX}{NEW}"):
        if os.path.exists(name) and rng.random() < 0.5:
            with open(name, "ab") as file:
                file.write(rng.randbytes(rng.randrange(60)))  # torn
    again, disk = opened(path)
    assert safe <= again.machine.total <= applied
    disk.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("what", ["fdatasync", "replace", "write"])
def test_a_disk_that_is_full_or_fails_is_an_error_by_name_and_stays_one(tmp_path, monkeypatch, what, error):
    log, disk = opened(tmp_path / "a")
    log.enter([MEMBER], 1)
    disk.sync()

    def fails(*_):
        raise OSError(error, os.strerror(error))

    call(log, b"5", 1)
    if what == "write":
        disk._file = SimpleNamespace(write=fails, close=disk._file.close)
    else:
        monkeypatch.setattr(disks.os, what, fails, raising=False)
        disk.begin(log.mark, log.write)
    with pytest.raises(StableFailed, match=os.strerror(error)) as caught:
        disk.sync()
    assert caught.value.code == "SC3111"
    monkeypatch.undo()
    with pytest.raises(StableFailed):
        disk.sync()
    disk.close()
    assert total_of(tmp_path / "a") == 0


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError])
def test_an_error_of_the_machine_is_none_of_the_disk_and_leaves_the_file(tmp_path, error):
    def fails(part):
        raise error("of the machine")

    written(tmp_path / "a", [b"5"])
    machine = Counting()
    machine.restore = fails
    with pytest.raises(error, match="of the machine"):
        opened(tmp_path / "a", machine)
    log, disk = opened(tmp_path / "a")
    log.machine.snapshot = fails
    with pytest.raises(error, match="of the machine"):
        disk.begin(log.mark, log.write)
    with pytest.raises(StableFailed):
        disk.sync()
    disk.close()
    assert total_of(tmp_path / "a") == 5


@pytest.mark.parametrize("where", [0, 60, -1])
def test_a_file_that_the_disk_cannot_read_is_refused(tmp_path, monkeypatch, where):
    class Failing(io.BufferedReader):
        def read(self, size=-1):
            if (self.tell() >= where >= 0) or size == -1:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().read(size)

    _, ends = written(tmp_path / "a", [b"5"])
    with open(f"{tmp_path / 'a'}{SUFFIX}", "r+b") as file:
        file.truncate(ends[-1] - 1)  # so that the end is looked at
    monkeypatch.setattr(disks.io, "BufferedReader", Failing)
    with pytest.raises(ConfigError, match=os.strerror(errno.EIO)):
        opened(tmp_path / "a")


@pytest.mark.parametrize(
    ("which", "match"),
    [("used", "another process uses the file"), ("lost", "no such file beside"), ("other", "'b'.*, and not of .*'a'")],
)
def test_a_file_that_cannot_be_this_members_is_refused(tmp_path, which, match):
    path = tmp_path / "a"
    other = DiskLog(str(path), "k", "b")
    if which == "lost":
        path.touch()
    else:
        other.begin(Mark(), lambda _: None)
        other.sync()
    if which != "used":
        other.close()
    with pytest.raises(ConfigError, match=match) as caught:
        opened(path)
    assert caught.value.code == "SC3110"
    assert ("Without this file" in str(caught.value)) == (which != "used")  # nobody is to remove a file in use
    other.close()


def test_a_message_that_no_replica_sends_or_of_another_release_on_disk_is_refused(tmp_path):
    for payload, error, match in (
        (b"x" * 50, ConfigError, "a message that no replica sends: of no version.*Without this file"),
        (MESSAGE[:-1] + b"\x02", OtherRelease, "a later release has written this.*start that release here"),
        (MESSAGE[:-1] + b"\x00", OtherRelease, "an earlier release has written this.*start that release here"),
    ):
        log, disk = opened(tmp_path / "a")
        disk.begin(log.mark, log.write)
        disk.append(Told(0, payload), log.mark)
        disk.sync()
        disk.close()
        with pytest.raises(error, match=match):
            opened(tmp_path / "a")
        (tmp_path / f"a{SUFFIX}").unlink()


def test_a_log_of_another_version_is_refused_as_that_of_another_release(tmp_path, monkeypatch):
    monkeypatch.setattr(disks, "VERSION", 7)
    written(tmp_path / "a", [b"1"])
    monkeypatch.undo()
    with pytest.raises(OtherRelease, match="in version 7, and this member knows 1: start that release here"):
        opened(tmp_path / "a")


def test_the_file_is_bounded_by_new_snapshots(tmp_path, monkeypatch):
    monkeypatch.setattr(disks, "CUT_BYTES_MIN", 2000)
    log, disk = opened(tmp_path / "a")
    sizes = []
    for number in range(1, 300):
        call(log, b"1", number)
        if disk.outgrown:
            disk.begin(log.mark, log.write)
        disk.sync()
        sizes.append(os.path.getsize(tmp_path / f"a{SUFFIX}"))
    disk.close()
    pieces = []
    log.write(pieces.append)
    assert max(sizes) < 4000 + len(b"".join(pieces)) + 1000 and sorted(sizes) != sizes
    assert total_of(tmp_path / "a") == 299


def test_replicas_write_their_snapshots_at_different_operations(tmp_path, monkeypatch):
    monkeypatch.setattr(disks, "CUT_BYTES_MIN", 2000)
    at = set()
    for name in ("a", "b", "c"):
        log, disk = Log(Counting()), DiskLog(str(tmp_path / name), "k", name)
        disk.begin(log.mark, log.write)
        log.record = functools.partial(lambda disk, log, what: disk.append(what, log.mark), disk, log)
        while not disk.outgrown:
            call(log, b"1", log.mark.position)
        at.add(log.mark.position)
        disk.close()
    assert len(at) == 3


def test_a_slow_disk_holds_up_the_replica_before_memory_fills(tmp_path, monkeypatch):
    monkeypatch.setattr(disks, "PENDING_BYTES_MAX", 100)
    log, disk = opened(tmp_path / "a")
    thread = threading.Thread(target=lambda: [call(log, b"1", number) for number in range(1, 4)])
    thread.start()
    while thread.is_alive():
        disk.sync()
        thread.join(0.01)
    assert disk.waits > 0
    disk.sync()
    disk.close()
    assert total_of(tmp_path / "a") == 3


def test_a_disk_that_hangs_does_not_hang_close_and_its_file_stays_in_use(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(disks, "CLOSE_S", 0.01)
    _, disk = opened(tmp_path / "a")
    entered, returns = threading.Event(), threading.Event()

    def hang(number):
        entered.set()
        returns.wait()

    monkeypatch.setattr(os, "fdatasync" if hasattr(os, "fdatasync") else "fsync", hang)
    thread = threading.Thread(target=disk.sync)
    thread.start()
    try:
        entered.wait()
        disk.close()
        assert "SC3113" in caplog.text
        with pytest.raises(ConfigError, match="another process uses the file"):
            DiskLog(str(tmp_path / "a"), "k", "a")
    finally:
        returns.set()
        thread.join()
    disk.close()


def test_a_large_snapshot_is_read_in_pieces_of_any_size(tmp_path):
    class Large(Counting):
        data = bytes(range(256)) * 10_000

        def snapshot(self, write):
            write(self.data)

        def restore(self, read):
            first = read(100)
            self.data = first + read(3 << 18) + read()

    machine = Large()
    _, disk = opened(tmp_path / "a", machine)
    disk.close()
    other = Large()
    other.data = b""
    opened(tmp_path / "a", other)[1].close()
    assert other.data == Large.data


@given(st.dictionaries(st.integers(1, 5), st.integers(0, 9)), st.integers(1, 5))
def test_a_position_is_decided_when_a_strict_majority_has_reached_it(positions, count):
    voters = list(range(1, count + 1))
    found = position_of_majority(voters, positions)
    assert 2 * sum(positions.get(each, 0) >= found for each in voters) > count
    assert 2 * sum(positions.get(each, 0) >= found + 1 for each in voters) <= count


def test_a_read_waits_until_the_state_it_has_seen_is_on_the_disks_of_a_majority(tmp_path):
    log, disk = opened(tmp_path / "a")
    log.record = None
    durable = Durable(disk, log, lambda: durable.take(), lambda _: None)
    members = [Member(name, number) for number, name in enumerate("abc", 1)]
    told, answered = [], []
    group = SimpleNamespace(member=members[0], send=lambda payload, to, timeout: told.append(to.name))

    def read():
        call = Call(None, lambda: answered.append(call), seen=log.mark.position)
        return call, durable.add(call)

    log.enter([1, 2, 3], 1)
    durable.entered(group, SimpleNamespace(members=members))
    call(log, b"5", 1)
    first, at_once = read()
    assert not at_once
    durable.work()
    assert sorted(told) == ["b", "c"] and not answered
    durable.heard(2, (log.mark.position - 1).to_bytes(8, "little"))
    assert not durable.take() and not answered
    durable.heard(2, log.mark.position.to_bytes(8, "little"))
    assert not durable.take() and answered == [first] and first.answer is READ and read()[1]
    call(log, b"5", 2)
    second, _ = read()
    durable.parted()
    assert answered == [first, second] and second.answer is READ_AGAIN
    durable.close()


def test_a_state_on_disk_that_goes_further_than_the_one_taken_over_is_kept_aside(tmp_path, caplog):
    written(tmp_path / "a", [b"1", b"20"], [b"300"])
    log, disk = Log(Counting()), DiskLog(str(tmp_path / "a"), "k", "a")
    durable = Durable(disk, log, lambda: durable.take(), lambda _: None)
    durable.load()
    assert durable.mark == log.mark == Mark(3, 5)
    older = io.BytesIO()
    other = Log(Counting())
    other.enter([MEMBER], 3)
    other.write(older.write)
    older.seek(0)
    durable.replaces(lambda: log.restore(older.read))
    assert log.mark.position < durable.mark.position == 5, "the file is as it was"
    member = Member("a", MEMBER)
    log.enter([MEMBER], 4)
    group = SimpleNamespace(member=member, send=None)
    durable.entered(group, SimpleNamespace(members=[member]))
    durable.work()
    durable.close()
    assert "SC3112" in caplog.text and total_of(tmp_path / "a") == 0
    os.replace(tmp_path / f"a{SUFFIX}{ASIDE}", tmp_path / f"a{SUFFIX}")
    assert total_of(tmp_path / "a") == 321


def test_a_replica_with_a_disk_needs_a_name(tmp_path):
    with pytest.raises(ConfigError, match="needs name="):
        seqcast.replicate("k", Counting(), stable=str(tmp_path / "a"))
