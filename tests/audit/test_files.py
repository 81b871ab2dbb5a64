"""Journals in a directory that others can write to: anything but a regular file of a likely size is refused at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from journal_data import Row, as_live, journal, member, view
from members import LIMIT_S

import seqcast
from seqcast.config.sources import toml_table
from seqcast.files import open_file, read_file
from seqcast.journal import places, reader, schema
from seqcast.journal.tap import Tap, TapClient, read_token

A = member("a")
V1 = view(1, [A])
ROWS = [Row(A, 1 + at, 0, 1 + at, b"payload %d" % at) for at in range(600)]
TOKEN = b"a token of 16 bytes or more"
FILES = (
    "journal.json",
    "views.jsonl",
    "segments.json",
    "events.jsonl",
    "segment-000001.parquet",
    "segment-000002.arrows",
    "segment-000002.sums",
)


def in_time(what: Callable[[], Any]) -> Any:
    """The result or error of a call that must not wait."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(what())
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    assert result, "it hangs"
    return result[0]


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link(path: Path) -> None:
    """To the very file that was there."""
    path.symlink_to(path.with_name(path.name + ".before"))


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def device(path: Path) -> None:
    path.symlink_to("/dev/tty")


def read_all(path: Path) -> list[Any]:
    found = reader.read(path)
    return [*found.events(), *found.messages()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = journal(tmp_path / "journals", A, [(V1, ROWS)], payload="full", segment_rows=300, step=300)
    as_live(path, 2, chunk=70)
    assert {*FILES} <= {each.name for each in path.iterdir()}
    assert len(read_all(path)) == 601, "a view, and the messages"
    return path


@pytest.mark.parametrize("put", [fifo, endless, link, sparse, device])
@pytest.mark.parametrize("name", FILES)
def test_anything_but_a_file_of_a_journal_is_refused_in_one_line(path: Path, name: str, put: Any) -> None:
    (path / name).rename(path / f"{name}.before")
    put(path / name)
    error = in_time(lambda: read_all(path))
    assert isinstance(error, schema.JournalError) and name in str(error) and "\n" not in str(error), error
    if name != "events.jsonl":
        with Tap(path.parent, ("127.0.0.1", 0), TOKEN) as server:
            client = TapClient(f"127.0.0.1:{server.address[1]}", TOKEN)

            def rows() -> int:
                (found,) = client.members(strict=True)
                told = client.journal(found)
                return sum(len(batch) for batch in client.rows(told, 0, told.end_idx, ["idx"]))

            assert isinstance(in_time(rows), schema.JournalError)


def test_a_link_to_a_journal_elsewhere_is_not_followed(tmp_path: Path, path: Path) -> None:
    """A tap would give its readers files that the maker of the link may not read."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "mine").symlink_to(path)
    with pytest.raises(schema.JournalError, match=r"mine is a link to .*, which is not followed"):
        places.find([shared])
    assert places.journal_files([shared]) == {}
    assert places.find([shared / "mine"])[0].rows == 600, "the user himself named this one"


def test_files_that_the_user_names_may_be_links_but_must_be_files(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(TOKEN)
    (tmp_path / "mounted").symlink_to(tmp_path / "token")
    assert read_token(tmp_path / "mounted") == TOKEN
    whys = {fifo: "not a regular file", endless: "not a regular file", sparse: "the file has "}
    for put, why in whys.items():
        strange = tmp_path / put.__name__
        put(strange)
        token = in_time(lambda strange=strange: read_token(strange))
        assert isinstance(token, seqcast.UsageError) and f"cannot be read: {why}" in str(token)
        config = in_time(lambda strange=strange: toml_table(strange))
        assert isinstance(config, seqcast.ConfigError) and "cannot read the settings" in str(config)
        tls = in_time(
            lambda strange=strange: Tap(tmp_path, ("127.0.0.1", 0), TOKEN, certificate=strange, key=tmp_path / "token")
        )
        assert isinstance(tls, seqcast.UsageError) and f"cannot be read: {why}" in str(tls)


def test_a_file_that_grows_while_it_is_read_is_bounded(tmp_path: Path) -> None:
    assert read_file("/proc/self/status", 1 << 16)  # its size is said to be 0
    with pytest.raises(OSError, match="more than 10 bytes"):
        read_file("/proc/self/status", 10)
    with pytest.raises(OSError, match="Is a directory"):
        open_file(tmp_path)
