"""A member of the next release in a group of this one. The next release is made from this one: its protocol version is
higher by one, and its frames have fields that this release does not know.

From 0.2.0 on the test takes the wheel of the last release instead; docs/testing.md says how.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from counting import Counting
from members import LIMIT_S, LOOPBACK, cluster, join, wait_until
from project import ROOT

import seqcast
from seqcast.config import identities, keys
from seqcast.core.frames.fields import PROTOCOL_VERSION

LAST = {"joining": "answers: Id", "fields": "opens: KeyIds", "view": "stateful: Flag", "merging": "answers: Id"}
"""By module of frames: a field of one of them (``Join``, ``MemberInfo``, ``NewView``, ``Beacon``), behind which another
one is added."""
MEMBER = """
import sys, seqcast
from seqcast.core.frames.fields import PROTOCOL_VERSION
settings = dict(each.split("=") for each in sys.argv[3:])
with seqcast.join(sys.argv[1], name="next", interface=sys.argv[2], join_timeout_s=60.0, **settings) as group:
    print(PROTOCOL_VERSION, seqcast.__file__, flush=True)
    for message in group:
        if message.sender.name != "next":
            infos = group._runner.endpoint.context.infos.values()
            said = sorted((each.name, each.speaks[1], each.added) for each in infos)
            group.send(repr((message.payload, said)).encode())
"""


def replaced(path: Path, pattern: str, by: str) -> None:
    text, n = re.subn(pattern, by, path.read_text(encoding="utf-8"), flags=re.M)
    assert n == 1, f"{path} has {n} of {pattern}"
    path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def next_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the next release."""
    top: Path = tmp_path_factory.mktemp("next")
    shutil.copytree(ROOT / "src" / "seqcast", top / "seqcast", ignore=shutil.ignore_patterns("__pycache__", "*.c"))
    frames = top / "seqcast" / "core" / "frames"
    for module, last in LAST.items():
        replaced(frames / f"{module}.py", rf"^    {last} = .*$", r"\g<0>\n    added: Id = 7")
    replaced(frames / "fields.py", r"^PROTOCOL_VERSION = .*$", f"PROTOCOL_VERSION = {PROTOCOL_VERSION + 1}")
    return top


@pytest.fixture
def with_rule(next_release: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A next release that says 8 in the new field of its VIEWs, under this condition."""

    def made(condition: str) -> Path:
        shutil.copytree(next_release, tmp_path / "rule")
        secrets = tmp_path / "rule" / "seqcast" / "core" / "secrets.py"
        said = f"frame = replace(frame, added=8 if {condition} else 7)"
        replaced(secrets, r'^        """A VIEW of ours, with a new secret.*$', rf"\g<0>\n        {said}")
        replaced(secrets, r"^from seqcast.core.frames.fields import MemberInfo$", r"\g<0>, common")
        return tmp_path / "rule"

    return made


@pytest.fixture(params=["plain", "with identities"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """The settings of a member, by name."""
    if request.param == "plain":
        return lambda member: {}
    pytest.importorskip("nacl")
    from seqcast.net.secure import Ed25519

    keys.make(str(tmp_path / "key"))
    lines = []
    for member in ("a", "b", "c", "next"):
        seed = os.urandom(32)
        identities.make(str(tmp_path / member), seed)
        lines.append(f"{identities.described(Ed25519(seed).public)} {member}\n")
    listed = tmp_path / "members"
    listed.write_text("".join(lines))
    listed.chmod(0o600)
    return lambda member: {"key": f"{tmp_path}/key", "identity": f"{tmp_path}/{member}", "authorized": str(listed)}


def test_a_member_of_the_next_release_joins_this_one_and_this_one_joins_its_group(
    next_release: Path, settings: Callable[[str], dict[str, str]]
) -> None:
    def answered(group: seqcast.Group, names: list[str]) -> None:
        """The next release delivers a message of this one, and the other way round, and knows who is of which."""
        wait_until(lambda: [member.name for member in group.view] == names)
        group.send(b"?")
        told = next(message.payload for message in group if message.sender.name == "next")
        said = [(each, PROTOCOL_VERSION + (each == "next"), 7) for each in sorted(names)]
        assert told == repr((b"?", said)).encode()

    name = cluster()
    a = join(name, "a", **settings("a"))
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER, name, LOOPBACK, *map("=".join, settings("next").items())],
        env={**os.environ, "PYTHONPATH": str(next_release)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        version, path = process.stdout.readline().split()
        assert int(version) == PROTOCOL_VERSION + 1 and Path(path).is_relative_to(next_release)
        answered(a, ["a", "next"])
        with join(name, "b", **settings("b")) as b:
            answered(b, ["a", "next", "b"])
            a.leave()
            with join(name, "c", **settings("c")) as c:  # the next release makes this view
                answered(c, ["next", "b", "c"])
                process.kill()
                wait_until(lambda: [member.name for member in c.view] == ["b", "c"])
    finally:
        process.kill()
        process.wait(LIMIT_S)


REPLICA = """
import sys, seqcast
from counting import Counting
try:
    replica = seqcast.replicate(sys.argv[1], Counting(), name="next", interface=sys.argv[2], found=1, ready_s=60.0)
    print(replica.call(b"10", timeout=60.0).decode(), flush=True)
except seqcast.SeqcastError as error:
    print(type(error).__name__, flush=True)
"""


@pytest.mark.parametrize("changed", ["nothing", "its state", "its messages"])
def test_a_replica_of_the_next_release_has_the_state_or_one_side_ends_by_name(
    next_release: Path, tmp_path: Path, changed: str
) -> None:
    """Never does one pass over what the others apply."""
    release = tmp_path / "next"
    shutil.copytree(next_release, release)
    formats = {"nothing": "1, 1", "its state": "1, 2", "its messages": "2, 1"}[changed]
    by = rf'MESSAGE, STATE = (kind + bytes([at]) for kind, at in zip((b"SqO", b"SqS"), ({formats})))'
    replaced(release / "seqcast" / "blocks" / "log.py", r"^MESSAGE, STATE = .*$", by)
    name = cluster()
    with seqcast.replicate(name, Counting(), name="a", interface=LOOPBACK, found=1, ready_s=LIMIT_S) as a:
        assert a.call(b"1", timeout=LIMIT_S) == b"1"
        process = subprocess.run(
            [sys.executable, "-c", REPLICA, name, LOOPBACK],
            env={**os.environ, "PYTHONPATH": f"{release}:{ROOT / 'tests' / 'helpers'}"},
            stdout=subprocess.PIPE, text=True, timeout=4 * LIMIT_S,
        )  # fmt: skip
        if changed == "its messages":
            with pytest.raises(seqcast.OtherRelease, match=r"a later release .* upgrade this member") as ended:
                a.wait_ready(LIMIT_S)
            assert ended.value.code == "SC3010" and "upgrade this member" in a.why
            return
        assert process.stdout.split() == [{"nothing": "11", "its state": "OtherRelease"}[changed]]
        assert a.call(b"100", timeout=LIMIT_S) == (b"111" if changed == "nothing" else b"101")


WATCHED = """
import sys, time, seqcast
with seqcast.join(sys.argv[1], name="next", interface=sys.argv[2], join_timeout_s=60.0, key=sys.argv[3]) as group:
    while True:
        entered = group._runner.endpoint.context.entered
        print(len(entered.members), entered.added, flush=True)
        time.sleep(0.05)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "waits",
    [
        pytest.param(True, id="that waits until all speak it"),
        pytest.param(False, id="that does not wait", marks=pytest.mark.multicast),  # else a joiner founds a group
    ],
)
def test_a_rule_of_the_next_release_counts_in_views_whose_members_all_speak_that(
    with_rule: Callable[[str], Path], tmp_path: Path, waits: bool
) -> None:
    """Rule 4 of releases side by side. One that does not keep the rule shuts out this release."""
    pytest.importorskip("nacl")
    release = with_rule(f"common(frame.members)[1] > {PROTOCOL_VERSION}" if waits else "True")
    key, name = str(tmp_path / "key"), cluster()
    keys.make(key)
    a = join(name, "a", key=key)
    process = subprocess.Popen(
        [sys.executable, "-c", WATCHED, name, LOOPBACK, key],
        env={**os.environ, "PYTHONPATH": str(release)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = process.stdout

        def until(members: int) -> str:
            """The field, in the next release's view of so many members."""
            return next(added for size, added in map(str.split, said) if int(size) == members)

        assert until(2) == "7", "a view that this release has made"
        a.leave()
        assert until(1) == "7", "another one: a closed its own last view"
        if waits:
            with join(name, "b", key=key):
                assert until(2) == "7", "a view that the next release has made, of both"
            assert until(1) == "8", "a view of those that speak it"
        else:
            with pytest.raises(seqcast.JoinTimeout):
                join(name, "b", key=key, join_timeout_s=3.0)
    finally:
        process.kill()
        process.wait(LIMIT_S)
