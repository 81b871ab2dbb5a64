"""Key files, and the cipher that PyNaCl's library has, against a second opinion and the vectors of RFC 10032."""

import base64
import hashlib
import os
import random
import stat
import subprocess
import sys

import aegis
import pytest
from engines import make_engine

import seqcast
from seqcast._native.engine import SEAL_ROOM
from seqcast.config import Config, keys
from seqcast.errors import ConfigError
from seqcast.net.secure import LOOK_NS, KeyFile, seal_of

bindings = pytest.importorskip("nacl.bindings")

KEY, NONCE = bytes.fromhex("10010000000000000000000000000000"), bytes.fromhex("10000200000000000000000000000000")
HEADER = bytes(range(8))
VECTORS = [
    (
        b"",
        bytes(16),
        "c1c0e58bd913006feba00f4b3cc3594e",
        "25835bfbb21632176cf03840687cb968cace4617af1bd0f7d064c639a5c79ee4",
    ),
    (b"", b"", "", "1360dc9db8ae42455f6e5b6a9d488ea4f2184c4e12120249335c4ee84bafe25d"),
    (
        HEADER,
        bytes(range(32)),
        "79d94593d8c2119d7e8fd9b8fc77845c5c077a05b2528b6ac54b563aed8efe84",
        "022cb796fe7e0ae1197525ff67e309484cfbab6528ddef89f17d74ef8ecd82b3",
    ),
]


@pytest.mark.parametrize(("header", "message", "text", "tag"), VECTORS)
def test_the_library_and_the_second_opinion_give_the_vectors_of_rfc_10032(header, message, text, tag):
    wanted = bytes.fromhex(text + tag)
    assert bindings.crypto_aead_aegis128l_encrypt(message, header, NONCE, KEY) == wanted
    assert aegis.encrypt(message, header, NONCE, KEY) == wanted


def key_file(tmp_path, text, mode=0o600):
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.fixture
def made(tmp_path):
    keys.make(str(tmp_path / "made.key"))
    return str(tmp_path / "made.key")


def test_an_engine_seals_as_the_second_opinion_does(made):
    """The whole construction, by other means: which key, which nonce, which part stays readable, which field lies
    where."""
    seal, rng = seal_of(Config(key=made), "orders"), random.Random(1)
    (key,) = keys.read(made)
    secret = keys.cluster_secret(key, "orders")
    assert seal.secrets == ((key.number, secret),)
    engine, member = make_engine(77, seal=seal), (77).to_bytes(8, "little")
    key = hashlib.blake2b(member, digest_size=16, key=secret, person=b"seqcast sealer").digest()
    for length in (0, 1, 15, 16, 17, 31, 32, 33, 100, 1000):
        payload = rng.randbytes(length)
        engine.control_send(payload)
        ((_, _, datagram),) = engine.transmit(0)
        assert len(datagram) == 40 + length + SEAL_ROOM
        header, sealed, number = datagram[:40], datagram[40:-8], datagram[-8:]
        assert aegis.encrypt(payload, header + bytes(8), number + header[4:8] + bytes(4), key) == sealed


def test_datagrams_of_any_length_are_opened_in_place(made):
    seal = seal_of(Config(key=made), "orders")
    one, other = make_engine(1, seal=seal, piece_bytes=0), make_engine(2, seal=seal)
    for now, length in enumerate((*range(70), 1000, 1391, 1392, 1393, 8959, 20_000, 59_999, 60_000)):
        payload = random.Random(length).randbytes(length)
        assert one.control_send(payload)
        ((_, _, datagram),) = one.transmit(0)
        assert payload not in datagram or length < 4
        assert other.receive(datagram, b"\1", now * 10**9) == 1
        assert [event[-1] for event in other.events()] == [payload]


def test_a_key_file_is_for_its_owner_alone_and_is_never_overwritten(made):
    assert stat.S_IMODE(os.stat(made).st_mode) == 0o600
    (before,) = keys.read(made)
    assert len(before.secret) == 32 and str(before.secret) not in repr(before)
    with pytest.raises(FileExistsError):
        keys.make(made)
    assert keys.read(made) == (before,)


def run(*arguments, **environment):
    command = [sys.executable, "-m", "seqcast", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environment)


def test_keygen_makes_it(tmp_path):
    path = str(tmp_path / "orders.key")
    done = run("keygen", path)
    (first,) = keys.read(path)
    assert done.returncode == 0 and f"key {first.number};" in done.stdout
    assert base64.b64encode(first.secret).decode() not in done.stdout + done.stderr
    again = run("keygen", path)
    assert again.returncode == 2 and "exists" in again.stderr and again.stderr.count("\n") == 1
    added = run("keygen", "--add", path)
    assert added.returncode == 0 and keys.read(path)[0] == first
    assert f"key {keys.read(path)[1].number} is its last of 2" in added.stdout
    for _ in range(2):
        keys.add(path)
    full = run("keygen", "--add", path)
    assert full.returncode == 2 and "has 4 keys already" in full.stderr and len(keys.read(path)) == 4
    nowhere = run("keygen", str(tmp_path / "no" / "x"))
    assert nowhere.returncode == 2 and "cannot be written" in nowhere.stderr


GOOD = base64.b64encode(bytes(range(32))).decode()


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        (f"1 {GOOD}\n", 0o640, r"others than its owner may use this file \(mode 0640\): chmod 600"),
        (f"1 {GOOD}\n", 0o604, "others than its owner"),
        (f"1 {base64.b64encode(bytes(range(16))).decode()}\n", 0o600, "a key has 32 bytes, this one 16"),
        (f"1 {base64.b64encode(bytes(32)).decode()}\n", 0o600, "its bytes are not random"),
        ("1 secret\n", 0o600, "a line is not `ID SECRET`"),
        (f"x {GOOD}\n", 0o600, "a line is not `ID SECRET`"),
        (f"32 {GOOD}\n", 0o600, "a line is not `ID SECRET`"),
        (f"{GOOD}\n", 0o600, "a line is not `ID SECRET`"),
        (f"1 {GOOD}\n1 {GOOD}\n", 0o600, "two keys have one number"),
        (f"1 {GOOD}\n" * 5, 0o600, "1 to 4 keys, a line each; this one has 5"),
        ("# nothing\n", 0o600, "1 to 4 keys, a line each; this one has 0"),
        ("#" * 5000, 0o600, "too large"),
    ],
)
def test_anything_but_a_key_file_is_refused(tmp_path, text, mode, says):
    with pytest.raises(ConfigError, match=says) as raised:
        seqcast.join("orders", key=key_file(tmp_path, text, mode))
    assert GOOD not in str(raised.value)


def test_anything_but_a_file_is_refused(tmp_path):
    for path, says in ((tmp_path, "cannot be read: Is a directory"), (tmp_path / "none", "cannot be read: No such")):
        with pytest.raises(ConfigError, match=says):
            seqcast.join("orders", key=str(path))


@pytest.mark.parametrize("value", [GOOD, bytes(range(32)).hex(), f"7 {GOOD}"])
def test_a_key_itself_is_refused_in_place_of_its_files_name(value):
    with pytest.raises(ConfigError, match="looks like a key itself") as raised:
        seqcast.join("orders", config=Config.from_environment({"SEQCAST_KEY": value}))
    assert value not in str(raised.value)


def test_a_key_needs_pynacl_and_says_so(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "nacl._sodium", None)
    with pytest.raises(ConfigError, match=r"needs PyNaCl, which is not installed: pip install 'seqcast\[secure\]'"):
        seqcast.join("orders", key=made)


def test_without_a_key_nothing_of_pynacl_is_loaded():
    text = "import sys, seqcast.api.group, seqcast.net.secure; assert 'nacl' not in sys.modules"
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60)


def test_guard_connections_and_crowds_have_no_key(made):
    with pytest.raises(ConfigError, match="guard=True has no meaning with key="):
        Config(key=made, guard=True)
    with pytest.raises(ConfigError, match="crowds have no key"):
        seqcast.join_crowd("orders", key=made)


def test_clusters_with_one_key_have_different_secrets(made):
    (key,) = keys.read(made)
    assert len({keys.cluster_secret(key, name) for name in ("orders", "orders-2", "")} | {key.secret}) == 4


def test_the_file_is_read_again_when_it_has_changed_and_only_then(made):
    (old,) = keys.read(made)
    file = KeyFile(made, "orders", seal_of(Config(key=made), "orders").secrets)
    assert file.look(5) is None and file.due_ns == 5 + LOOK_NS
    added = keys.add(made)
    secrets = file.look(6)
    assert [number for number, _ in secrets] == [old.number, added]
    assert secrets[0][1] == keys.cluster_secret(old, "orders")
    assert file.look(7) is None
    assert file.counters == {"key_id": old.number, "key_reads": 1, "key_errors": 0}
    new = keys.read(made)[1]
    with open(made, "w", encoding="ascii") as again:  # in place, and the other order
        again.write(f"{keys.line(new.number, new.secret)}\n{keys.line(old.number, old.secret)}\n")
    assert [number for number, _ in file.look(8)] == [new.number, old.number]
    assert file.counters["key_id"] == new.number


@pytest.mark.parametrize("harm", ["mode", "gone", "content"])
def test_a_file_that_is_no_key_file_any_more_changes_nothing_and_is_told_once(made, harm):
    file = KeyFile(made, "orders", seal_of(Config(key=made), "orders").secrets)
    file.look(1)
    before = keys.read(made)[0]
    if harm == "mode":
        os.chmod(made, 0o644)
    elif harm == "gone":
        os.unlink(made)
    else:
        with open(made, "w", encoding="ascii") as half:
            half.write("3 abc")
    with pytest.raises(ConfigError):
        file.look(2)
    assert file.look(3) is None
    assert file.counters == {"key_id": before.number, "key_reads": 0, "key_errors": 1}
    if harm == "gone":
        keys.make(made)
        os.chmod(made, 0o600)
        assert file.look(4) is not None
