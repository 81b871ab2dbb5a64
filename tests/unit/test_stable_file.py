"""The file of ``stable=``: whole or the one before, and of this member alone."""

import errno
import os

import pytest

from seqcast.core import orders
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.recalling import Kept, Taken
from seqcast.core.rules.cut import first_view
from seqcast.errors import ConfigError, StableFailed
from seqcast.net import stable
from seqcast.net.stable import StableFile, decoded, encoded

INFOS = [MemberInfo(name, number, b"xy", 1 << 20, 1472, 1 << 20) for number, name in enumerate("abc", 1)]
VIEW = first_view(INFOS, "fifo", orders.resolve("fifo"), 1)
KEPT = [Kept(VIEW), Kept(VIEW, (3, 1)), Kept(VIEW, (3, 1), Taken((2, 0), VIEW), False)]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "votes")


@pytest.mark.parametrize("kept", KEPT)
def test_the_record_comes_back_as_it_was(path, kept):
    file = StableFile(path, "k", "a")
    assert file.kept is None
    file.write(KEPT[0])
    file.write(kept)
    file.close()
    file = StableFile(path, "k", "a")
    assert file.kept == kept and os.stat(path).st_mode & 0o777 == 0o600
    file.close()


def test_no_damaged_or_torn_record_is_taken_for_one():
    data = encoded("k", "a", KEPT[2])
    assert decoded(data, "k", "a") == KEPT[2]
    for end in range(len(data)):
        with pytest.raises(ValueError, match=r"of another kind|damaged"):
            decoded(data[:end], "k", "a")
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1
        with pytest.raises(ValueError, match=r"of another kind|damaged|of version"):
            decoded(bytes(flipped), "k", "a")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (encoded("other", "a", KEPT[0]), "of 'a' in 'other', and this is 'a' in 'k'"),
        (encoded("k", "b", KEPT[0]), "of 'b' in 'k'"),
        (encoded("k", "a", KEPT[0]).replace(b"stable 1", b"stable 2"), "of version 2"),
        (b"", "of another kind"),
        (b"x" * (stable.BYTES_MAX + 1), "bytes"),
    ],
)
def test_a_file_that_is_not_this_members_is_refused_by_name(path, data, why):
    with open(path, "wb") as file:
        file.write(data)
    with pytest.raises(ConfigError, match=why) as caught:
        StableFile(path, "k", "a")
    assert caught.value.code == "SC3110" and "(SC3110)" in str(caught.value)


def test_of_a_damaged_file_both_files_are_to_be_removed_and_of_one_in_use_none(path):
    with open(path, "wb") as file:
        file.write(encoded("k", "a", KEPT[0])[:-1])
    with pytest.raises(ConfigError, match=f"damaged.* Remove {path} and {path}.log"):
        StableFile(path, "k", "a")
    os.remove(path)
    used = StableFile(path, "k", "a")
    with pytest.raises(ConfigError, match="uses the file") as caught:
        StableFile(path, "k", "a")
    assert "Remove" not in str(caught.value)
    used.close()


def test_a_missing_directory_is_named_and_two_processes_cannot_use_one_file(path):
    with pytest.raises(ConfigError, match="No such file"):
        StableFile(path + "/below", "k", "a")
    file = StableFile(path, "k", "a")
    with pytest.raises(ConfigError, match="another process uses the file"):
        StableFile(path, "k", "a")
    file.close()
    StableFile(path, "k", "a").close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
def test_a_disk_that_is_full_or_fails_is_an_error_by_name_and_the_record_before_stays(path, monkeypatch, call, error):
    file = StableFile(path, "k", "a")
    file.write(KEPT[0])

    def fails(*_):
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patched:
        patched.setattr(stable.os, call, fails)
        with pytest.raises(StableFailed, match=os.strerror(error)) as caught:
            file.write(KEPT[1])
    assert caught.value.code == "SC3111" and "(SC3111)" in str(caught.value) and file.kept == KEPT[0]
    file.close()
    file = StableFile(path, "k", "a")
    assert file.kept == KEPT[0]
    file.close()


def test_a_record_that_was_torn_before_it_took_its_name_counts_for_nothing(path):
    file = StableFile(path, "k", "a")
    file.write(KEPT[0])
    file.close()
    with open(path + stable.NEW, "wb") as torn:
        torn.write(encoded("k", "a", KEPT[1])[:100])
    file = StableFile(path, "k", "a")
    assert file.kept == KEPT[0]
    file.write(KEPT[2])
    file.close()
