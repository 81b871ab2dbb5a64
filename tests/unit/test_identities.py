"""Identities and the list of those who may be members: signed and refused frames, and the files."""

from __future__ import annotations

import importlib
import os
import random
import subprocess
import sys
import time
from dataclasses import astuple, dataclass, fields, replace

import pytest

import seqcast
from seqcast.config import Config, identities
from seqcast.core import orders
from seqcast.core.frames.codec import defaults
from seqcast.core.frames.fields import Count, MemberInfo, Name
from seqcast.core.frames.joining import Join, Wait
from seqcast.core.frames.kinds import dump, load
from seqcast.core.frames.unblocking import Unblock
from seqcast.core.frames.view import NewView, Provision, Shortfall, Subgroup
from seqcast.core.identities import Allowed, Identities, Signer, taken_apart
from seqcast.core.rules.cut import first_view
from seqcast.errors import RemoteProtocolError
from seqcast.sim.seal import SimulatedSigner
from seqcast.types import ViewId


def sodium(number: int) -> Signer:
    pytest.importorskip("nacl")
    return importlib.import_module("seqcast.net.secure").Ed25519(random.Random(number).randbytes(32))


KINDS = [pytest.param(lambda n: SimulatedSigner(1, n), id="simulated"), pytest.param(sodium, id="sodium")]


class Party:
    """Members a and b, an operator o, and m, which is on nobody's list."""

    def __init__(self, make=lambda n: SimulatedSigner(1, n)) -> None:
        self.signers = {name: make(number) for number, name in enumerate("abom")}
        self.listed = [Allowed(self.signers[name].public, pattern) for name, pattern in (("a", "a*"), ("b", "b"))]
        self.listed.append(Allowed(self.signers["o"].public, "o", operator=True))
        self.knows = {name: Identities(signer, self.listed, "cluster") for name, signer in self.signers.items()}

    def info(self, name: str, /, **more: object) -> MemberInfo:
        number = "abom".index(name) + 1
        plain = MemberInfo(name, number, bytes([number]), 1 << 20, 1472, 1 << 20, key=bytes([number]) * 32)
        return self.knows[name].signed(replace(plain, **more))

    def view(self, *names: str, maker: str = "a"):
        infos = [self.info(name) for name in names]
        number = "abom".index(maker) + 1
        frame = first_view(infos, "total", orders.resolve("total"), number)
        return self.knows[maker].made(replace(frame, view_id=ViewId(2, infos[0].id, (1, number))))


@pytest.mark.parametrize("make", KINDS)
def test_a_signature_is_of_one_identity_and_of_one_text(make):
    one, other = make(1), make(2)
    signature = one.sign(b"said")
    assert len(signature) == 64 and len(one.public) == 32 and one.public == make(1).public != other.public
    assert one.proves(one.public, b"said", signature) and other.proves(one.public, b"said", signature)
    for public, said, given in (
        (other.public, b"said", signature),
        (one.public, b"said ", signature),
        (one.public, b"said", bytes([signature[0] ^ 1]) + signature[1:]),
        (one.public, b"said", b""),
        (one.public, b"aid", signature + b"s"),
        (b"", b"said", signature),
        (bytes(32), b"said", signature),
    ):
        assert not other.proves(public, said, given)


@pytest.mark.parametrize("make", KINDS)
def test_a_member_signs_the_description_of_itself_and_is_on_the_list_under_its_name(make):
    party = Party(make)
    b = party.knows["b"]
    assert b.fault(party.info("a")) == b.fault(party.info("a", name="a-2")) == ""
    assert "no line there for this name" in b.fault(party.info("a", name="c"))
    assert "no line there" in b.fault(party.info("m", name="a"))
    assert "has no identity" in b.fault(replace(party.info("a"), identity=b"", signature=b""))
    said = party.info("a")
    changes = {
        "name": "a7", "id": 77, "address": b"\7", "capacity": 7, "packet_bytes": 600, "window_bytes": 7, "gro": True,
        "state": 1, "blocks": True, "key": bytes(32), "about": "{}", "observer": True, "aes": True, "cookie": 7,
        "signature": bytes(64), "speaks": (7, 7), "opens": (7,),
    }  # fmt: skip
    assert {"identity", *changes} == {each.name for each in fields(MemberInfo)}
    for field, value in changes.items():
        assert "does not show" in b.fault(replace(said, **{field: value})), field
    assert "does not show" in b.fault(replace(said, identity=party.signers["b"].public, name="b"))
    assert "does not show" in Identities(party.signers["b"], party.listed, "other cluster").fault(said)


@dataclass(frozen=True, slots=True)
class LaterInfo(MemberInfo):
    """As a later release describes its members."""

    added: Count = 7
    last: Name = "last"


def test_a_field_that_a_later_release_adds_changes_no_signature_until_it_has_a_value_of_its_own():
    party = Party()
    b, said = party.knows["b"], party.info("a")
    later = party.knows["a"].signed(LaterInfo(*astuple(said)))
    assert later.signature == said.signature
    assert b.fault(said) == b.fault(later) == ""
    used = party.knows["a"].signed(replace(later, added=8))
    assert b.fault(used) == ""
    for taken in (replace(used, added=7), replace(used, added=9), replace(used, last="7"), replace(later, last="7")):
        assert "does not show" in b.fault(taken)
    read = MemberInfo(*astuple(used)[: len(fields(MemberInfo))])
    assert "does not show" in b.fault(read), "a release that does not know the field cannot tell whether it was added"


def test_a_default_that_digests_leave_out_is_the_same_in_all_releases():
    """One that differs is left out by one release and not by another, for which the signatures are then wrong."""
    constant = {"gro": False, "state": 0, "blocks": False, "key": b"", "about": "", "observer": False, "aes": False}
    constant |= {"identity": b"", "cookie": 1, "signature": b"", "opens": ()}
    assert constant.items() <= defaults(MemberInfo).items()
    constant = dict.fromkeys(("labels", "merged_into", "providers", "subgroups", "shortfalls", "departed", "wraps"), ())
    constant |= dict.fromkeys(("maker_key", "proof", "maker_identity", "signature"), b"")
    constant |= {"merger": -1, "stateful": False, "founding": 0, "history": 0, "cipher": 0}
    assert constant.items() <= defaults(NewView).items()
    assert "speaks" not in defaults(MemberInfo) and not defaults(Subgroup) | defaults(Provision) | defaults(Shortfall)


def test_a_line_that_goes_bars_its_member_and_one_that_comes_lets_the_member_in():
    party = Party()
    b, a = party.knows["b"], party.info("a")
    assert not b.bars(a)
    b.read(party.listed[1:])
    assert b.bars(a) and b.fault(a)
    b.read(party.listed)
    assert not b.bars(a) and not b.fault(a)


def test_a_view_is_signed_by_its_maker_and_each_member_checks_the_others():
    party = Party()
    b, view = party.knows["b"], party.view("a", "b")
    assert b.forged(view, ()) == b.strangers(view, {}) == ""
    assert b.forged(load(dump(view)), ()) == ""
    # Fields that differ by subgroup, or by the serving member, are not signed; all others are.
    assert not b.forged(replace(view, attempt=(3, 1), survivors=(1, 2), cut=(1,), proof=bytes(16)), ())
    for change in (
        {"members": view.members[:1]},
        {"sequencer": 1},
        {"maker_key": b"\1" * 32},
        {"signature": bytes(64)},
    ):
        assert "not signed" in b.forged(replace(view, **change), ()), change
    assert "another identity" in b.forged(replace(view, maker_identity=party.signers["o"].public), ())
    assert "does not have its maker" in b.forged(party.view("b", maker="m"), ())
    # In the name of a, by b, which is on the list.
    forged = party.knows["b"].made(view)
    assert "another identity" in party.knows["o"].forged(forged, ())
    with_stranger = party.view("a", "m")
    assert "m its identity has no line" in b.strangers(with_stranger, {})
    assert not b.strangers(with_stranger, {4: with_stranger.members[1]}), "it was looked at when it came"
    assert b.strangers(with_stranger, {4: replace(with_stranger.members[1], address=b"\1")})


def test_a_member_whose_line_is_gone_may_close_its_view_and_found_none():
    party = Party()
    b, view = party.knows["b"], party.view("b", maker="a")
    b.read(party.listed[1:])
    assert "does not have its maker" in b.forged(view, ())
    assert b.forged(view, [party.info("a")]) == ""


def test_frames_between_views_show_who_sends_them():
    party = Party()
    frame = dump(Wait(1, nonce=2))
    b = party.knows["b"]

    def doubt(payload: bytes, sender: int = 1, kind: object = None, known: object = None) -> str:
        return b.doubt(kind, sender, taken_apart(payload), known or {})

    signed = party.knows["a"].with_signature(1, frame)
    assert taken_apart(signed).payload == frame and doubt(signed) == ""
    assert "shows no identity" in doubt(frame)
    assert "not on the list" in doubt(party.knows["m"].with_signature(1, frame))
    assert "not signed" in doubt(signed, sender=2), "of another member"
    assert "not signed" in doubt(signed[:-1] + b" ")
    elsewhere = Identities(party.signers["a"], party.listed, "other cluster").with_signature(1, frame)
    assert "not signed" in doubt(elsewhere), "in another cluster, on whose list it is, too"
    assert "another identity" in doubt(signed, known={1: party.info("b")})
    assert doubt(signed, known={1: party.info("a")}) == ""
    unblock = Unblock("cluster", 1, None)
    assert "as an operator" in doubt(signed, kind=unblock)
    assert doubt(party.knows["o"].with_signature(1, frame), kind=unblock) == ""
    with pytest.raises(RemoteProtocolError, match="within its signature"):
        taken_apart(signed[:50])


def test_a_joiner_signs_its_join_and_the_sender_of_a_view_the_whole_of_it():
    party = Party()
    b, known = party.knows["b"], {1: party.info("a")}

    def doubt(frame: object, signer: str, sender: int, known: object = None) -> str:
        return b.doubt(frame, sender, taken_apart(party.knows[signer].with_signature(sender, dump(frame))), known or {})

    def join(name: str) -> Join:
        return Join(1, "cluster", "total", (), party.info(name), 0)

    assert doubt(join("a"), "a", 1) == doubt(join("m"), "m", 4) == "", "one that is not on the list is refused by name"
    assert "another identity" in doubt(join("a"), "o", 1)
    assert "another identity" in doubt(join("a"), "m", 1)
    assert "shows no identity" in b.doubt(join("a"), 1, taken_apart(dump(join("a"))), {})
    plain = join("a")
    plain = replace(plain, info=replace(plain.info, identity=b"", signature=b""))
    assert b.doubt(plain, 1, taken_apart(dump(plain)), {}) == "", "refused by name, too"
    view = party.view("a", "b")
    assert doubt(view, "a", 1) == doubt(view, "b", 2) == doubt(view, "o", 3) == ""
    assert "another identity" in doubt(view, "o", 2)
    assert "not on the list" in doubt(view, "m", 4)
    b.read(party.listed[1:])
    assert "not on the list" in doubt(view, "a", 1)
    assert doubt(view, "a", 1, known) == "", "a member of our view, which may close that without itself"


def test_without_identities_nothing_is_signed_or_checked():
    party, none = Party(), Identities(None, (), "cluster")
    plain = replace(party.info("a"), identity=b"", signature=b"")
    assert none.signed(plain) == plain and none.with_signature(1, b"{}") == b"{}"
    view = first_view([plain], "total", orders.resolve("total"), 1)
    assert none.made(view) == view
    assert none.fault(plain) == none.strangers(view, {}) == none.forged(view, ()) == ""
    assert none.doubt(None, 1, taken_apart(b"{}"), {}) == "" and not none.bars(plain)


def test_signatures_that_were_found_right_are_not_checked_again():
    party, asked = Party(), []
    b = party.knows["b"]
    signer = party.signers["b"]
    b._signer.proves = lambda *what: asked.append(what) or SimulatedSigner.proves(signer, *what)
    for _ in range(3):
        assert b.fault(party.info("a")) == ""
    assert len(asked) == 1
    for _ in range(2):
        assert b.fault(replace(party.info("a"), cookie=9))
    assert len(asked) == 3, "a wrong one is"


# ---- files


def listed(tmp_path, text: str, mode: int = 0o644) -> str:
    path = tmp_path / "members"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


PUBLIC = identities.described(bytes(range(32)))


def test_a_list_has_names_operators_and_times(tmp_path):
    path = listed(
        tmp_path,
        f"# who\n\n{PUBLIC} orders-*\n{PUBLIC} o operator until=2027-01-31\n{PUBLIC} x until=2027-01-31T12:00+02:00\n",
    )
    one, two, three = identities.read_list(path)
    assert one == identities.Line(bytes(range(32)), "orders-*")
    assert two == (bytes(range(32)), "o", True, 1801353600.0)
    assert three.until_s == 1801353600.0 + 10 * 3600 and not three.operator


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("", 0o644, "this one 0"),
        ("ed25519:abc a", 0o644, "not a line of a list"),
        (f"{PUBLIC}", 0o644, "not a line of a list"),
        (f"{PUBLIC} operator", 0o644, "not a line of a list"),
        (f"{PUBLIC} until=2027-01-31", 0o644, "not a line of a list"),
        (f"rsa{PUBLIC} a", 0o644, "not a line of a list"),
        (f"{PUBLIC} a admin", 0o644, "'admin' in"),
        (f"{PUBLIC} a until=soon", 0o644, "is not a time"),
        (f"{PUBLIC} a until=", 0o644, "is not a time"),
        (f"{PUBLIC} a", 0o664, "may write this file"),
        (f"{PUBLIC} a", 0o646, "chmod go-w"),
        ("x" * (2 << 20), 0o644, "too large"),
    ],
)
def test_a_file_that_is_not_a_list_is_refused(tmp_path, text, mode, says):
    with pytest.raises(seqcast.ConfigError, match=says):
        identities.read_list(listed(tmp_path, text, mode))
    with pytest.raises(seqcast.ConfigError, match="cannot be read"):
        identities.read_list(str(tmp_path / "none"))


def test_an_identity_file_is_for_its_owner_alone_and_is_never_overwritten(tmp_path):
    path, seed = str(tmp_path / "id"), os.urandom(32)
    identities.make(path, seed)
    assert identities.read_identity(path) == seed
    assert os.stat(path).st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        identities.make(path, seed)
    os.chmod(path, 0o640)
    with pytest.raises(seqcast.ConfigError, match="may use this file"):
        identities.read_identity(path)
    for text in ("", "ed25519 abc", "other " + "A" * 43 + "=", f"ed25519 {'A' * 43}=", "ed25519 x\ned25519 y"):
        path = str(tmp_path / "none")
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, 0o600)
        with pytest.raises(seqcast.ConfigError, match="has no line"):
            identities.read_identity(path)


def test_keygen_makes_an_identity_and_prints_its_line(tmp_path):
    pytest.importorskip("nacl")
    path = str(tmp_path / "id")
    command = [sys.executable, "-m", "seqcast", "keygen", path, "--identity"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=60)
    (line,) = made.stdout.splitlines()  # `>> members` appends that to the list
    assert made.returncode == 0 and line.endswith(" NAMES") and "copy the file nowhere else" in made.stderr
    (read,) = identities.read_list(listed(tmp_path, line))
    assert read.public == importlib.import_module("seqcast.net.secure").Ed25519(identities.read_identity(path)).public
    again = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert again.returncode == 2 and "exists" in again.stderr


def test_identity_and_list_go_together_and_need_a_key():
    for settings in ({"identity": "i"}, {"authorized": "l"}, {"key": "k", "identity": "i"}):
        with pytest.raises(seqcast.ConfigError, match="go together"):
            Config(**settings)
    with pytest.raises(seqcast.ConfigError, match="need key="):
        Config(identity="i", authorized="l")


def test_a_changed_list_is_read_again_and_lines_run_out(tmp_path, monkeypatch):
    secure = pytest.importorskip("nacl") and importlib.import_module("seqcast.net.secure")
    path = listed(tmp_path, f"{PUBLIC} a\n{PUBLIC} b until=2027-01-31\n")
    now = [1801353600.0 - 5]
    monkeypatch.setattr(time, "time", lambda: now[0])
    file = secure.ListFile(path)
    assert [each.names for each in file.allowed] == ["a", "b"]
    assert file.look(1) is None and file.due_ns > 1
    now[0] += 10
    assert [each.names for each in file.look(2)] == ["a"] and file.look(3) is None
    listed(tmp_path, f"{PUBLIC} a\n{PUBLIC} c operator\n")
    assert [(each.names, each.operator) for each in file.look(4)] == [("a", False), ("c", True)]
    listed(tmp_path, "half a li")
    with pytest.raises(seqcast.ConfigError):
        file.look(5)
    assert file.look(6) is None and [each.names for each in file.allowed] == ["a", "c"]
    assert file.counters == {"list_reads": 2, "list_errors": 1}


def test_a_process_whose_identity_the_list_does_not_have_is_told_its_line(tmp_path):
    secure = pytest.importorskip("nacl") and importlib.import_module("seqcast.net.secure")
    own = str(tmp_path / "id")
    identities.make(own, bytes(range(32)))
    public = secure.Ed25519(bytes(range(32))).public
    config = Config(key="k", identity=own, authorized=listed(tmp_path, f"{PUBLIC} *"))
    with pytest.raises(seqcast.ConfigError, match="no line for this identity") as raised:
        secure.identity_of(config, "a")
    assert f"{identities.described(public)} a" in str(raised.value)
    listed(tmp_path, f"{identities.described(public)} b*\n")
    with pytest.raises(seqcast.ConfigError, match="the name 'a'"):
        secure.identity_of(config, "a")
    signer, file = secure.identity_of(config, "b7")
    assert signer.public == public == file.allowed[0].public
    assert secure.identity_of(Config(), "a") is None
