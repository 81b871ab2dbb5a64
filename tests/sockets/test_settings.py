"""Settings that no kernel and no machine is given: the world reads them itself."""

import contextlib
import sys
import threading
from typing import ClassVar

import pytest
from members import PATIENT_JOINER, cluster, join
from settings_data import OF_THE_WORLD

import seqcast
from seqcast.config import Config


class Watched(Config):
    """Settings that tell which of them were read outside the package of the settings."""

    __slots__ = ()
    read: ClassVar[set[str]] = set()

    def __getattribute__(self, name):
        if not sys._getframe(1).f_globals["__name__"].startswith("seqcast.config"):
            Watched.read.add(name)
        return super().__getattribute__(name)


class Application:
    def get_state(self, write):
        write(b"state")

    def set_state(self, read):
        assert read() == b"state"


def receive(group):
    """Receives until the group is left: only so does a member give its state."""
    with contextlib.suppress(seqcast.NotMember):
        for _ in group:
            pass


def test_settings_that_derive_hands_to_nobody_are_read_by_a_member_that_joins_journals_and_leaves(tmp_path):
    pytest.importorskip("pyarrow")
    name, Watched.read = cluster(), set()
    config = Watched(guard=True, journal=str(tmp_path), seeds="127.0.0.1", **PATIENT_JOINER)
    with join(name, "a", config=config, state=Application()) as a:
        assert Watched.read >= {"guard", "join_timeout_s"} and "leave_timeout_s" not in Watched.read
        receiving = threading.Thread(target=receive, args=(a,), daemon=True)
        receiving.start()
        with join(name, "b", config=config, state=Application()) as b:
            a.send(b"one")
            assert next(iter(b)).payload == b"one"
    assert OF_THE_WORLD <= Watched.read


def test_each_setting_of_a_journal_reaches_its_writer(monkeypatch, tmp_path):
    """Settings of one type could change places on the way."""
    writer = pytest.importorskip("seqcast.journal.writer")
    told, made = {}, writer.JournalWriter

    def record(path, **options):
        told.update(options, path=path)
        return made(path, **options)

    monkeypatch.setattr(writer, "JournalWriter", record)
    sizes = {"segment_bytes": 70_001, "segment_s": 11.5, "keep_bytes": 800_003, "keep_s": 13.5}
    others = {"payload": "full", "resume": True}
    settings = {f"journal_{name}": value for name, value in {**sizes, **others}.items()}
    with join(cluster(), "a", journal=str(tmp_path), **settings):
        assert told.items() >= {**sizes, **others, "path": str(tmp_path)}.items()
