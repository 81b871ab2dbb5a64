"""Key files, and the ciphers that PyNaCl's library has, against a second opinion and published vectors."""

import argparse
import base64
import ctypes
import hashlib
import json
import os
import platform
import random
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from ciphers import ENCRYPT
from engines import Net, change_view, make_engine, secret_of
from hostile.forge import member_tag
from kernels import compiled, needs_compiler_and_linux

import seqcast
from seqcast._native.engine import SEAL_ROOM
from seqcast.commandline import add_key
from seqcast.config import Config, fields, identities, keys
from seqcast.core.secrets import CIPHERS
from seqcast.doctor import keys as doctor_keys
from seqcast.errors import ConfigError
from seqcast.net.secure import LOOK_NS, KeyFile, seal_of

pytest.importorskip("nacl.bindings")

AEGIS_KEY, AEGIS_NONCE = "1001" + "0" * 60, "100002" + "0" * 58
HEADER, LONG_HEADER = bytes(range(8)).hex(), bytes(range(42)).hex()
CLASS = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for "
CLASS += b"the future, sunscreen would be it."
# Cipher, key, nonce, header, message, text, tag: RFC 10032, the draft of XChaCha, and that of GCM (test case 16).
VECTORS = [
    (
        1, AEGIS_KEY[:32], AEGIS_NONCE[:32], "", bytes(16).hex(), "c1c0e58bd913006feba00f4b3cc3594e",
        "25835bfbb21632176cf03840687cb968cace4617af1bd0f7d064c639a5c79ee4",
    ),
    (
        1, AEGIS_KEY[:32], AEGIS_NONCE[:32], "", "", "",
        "1360dc9db8ae42455f6e5b6a9d488ea4f2184c4e12120249335c4ee84bafe25d",
    ),
    (
        1, AEGIS_KEY[:32], AEGIS_NONCE[:32], HEADER, bytes(range(32)).hex(),
        "79d94593d8c2119d7e8fd9b8fc77845c5c077a05b2528b6ac54b563aed8efe84",
        "022cb796fe7e0ae1197525ff67e309484cfbab6528ddef89f17d74ef8ecd82b3",
    ),
    (
        1, AEGIS_KEY[:32], AEGIS_NONCE[:32], HEADER, bytes(range(14)).hex(), "79d94593d8c2119d7e8fd9b8fc77",
        "86f1b80bfb463aba711d15405d094baf4a55a15dbfec81a76f35ed0b9c8b04ac",
    ),
    (
        1, AEGIS_KEY[:32], AEGIS_NONCE[:32], LONG_HEADER, bytes(range(0x10, 0x38)).hex(),
        "b31052ad1cca4e291abcf2df3502e6bdb1bfd6db36798be3607b1f94d34478aa7ede7f7a990fec10",
        "b91e2947a33da8bee89b6794e647baf0fc835ff574aca3fc27c33be0db2aff98",
    ),
    (
        2, AEGIS_KEY, AEGIS_NONCE, "", bytes(16).hex(), "754fc3d8c973246dcc6d741412a4b236",
        "1181a1d18091082bf0266f66297d167d2e68b845f61a3b0527d31fc7b7b89f13",
    ),
    (2, AEGIS_KEY, AEGIS_NONCE, "", "", "", "6a348c930adbd654896e1666aad67de989ea75ebaa2b82fb588977b1ffec864a"),
    (
        2, AEGIS_KEY, AEGIS_NONCE, HEADER, bytes(range(32)).hex(),
        "f373079ed84b2709faee373584585d60accd191db310ef5d8b11833df9dec711",
        "b7d28d0c3c0ebd409fd22b44160503073a547412da0854bfb9723020dab8da1a",
    ),
    (
        2, AEGIS_KEY, AEGIS_NONCE, HEADER, bytes(range(14)).hex(), "f373079ed84b2709faee37358458",
        "8c1cc703c81281bee3f6d9966e14948b4a175b2efbdc31e61a98b4465235c2d9",
    ),
    (
        2, AEGIS_KEY, AEGIS_NONCE, LONG_HEADER, bytes(range(0x10, 0x38)).hex(),
        "57754a7d09963e7c787583a2e7b859bb24fa1e04d49fd550b2511a358e3bca252a9b1b8b30cc4a67",
        "a3aca270c006094d71c20e6910b5161c0826df233d08919a566ec2c05990f734",
    ),
    (
        0, bytes(range(0x80, 0xA0)).hex(), bytes(range(0x40, 0x58)).hex(), "50515253c0c1c2c3c4c5c6c7", CLASS.hex(),
        "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb731c7f1b0b4aa6440bf3a82f4eda7e39ae64c6708c54"
        "c216cb96b72e1213b4522f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff921f9664c97637da9768812f6"
        "15c68b13b52e",
        "c0875924c1c7987947deafd8780acf49",
    ),
    (
        3, "feffe9928665731c6d6a8f9467308308" * 2, "cafebabefacedbaddecaf888",
        "feedfacedeadbeeffeedfacedeadbeefabaddad2",
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0d"
        "e657ba637b39",
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba"
        "7a0abcc9f662",
        "76fc6ece0f4e1768cddf8853bb2d551b",
    ),
]  # fmt: skip
_BYTES, _LONG = ctypes.c_char_p, ctypes.c_ulonglong
CALL = ctypes.CFUNCTYPE(ctypes.c_int, _BYTES, _BYTES, _BYTES, _LONG, _BYTES, _LONG, _BYTES, _BYTES, _BYTES)

_AT = ctypes.c_void_p
IN_PLACE = ctypes.CFUNCTYPE(ctypes.c_int, _AT, _BYTES, _BYTES, _AT, _LONG, _AT, _LONG, _BYTES, _BYTES)


def by_library(seal, cipher, message, header, nonce, key, tag):
    """As the engine calls the library."""
    out = ctypes.create_string_buffer(len(message) + tag)
    CALL(seal.ciphers[cipher][0])(out, None, message, len(message), header, len(header), None, nonce, key)
    return out.raw


def opened(seal, cipher, text, header, nonce, key, tag, offset=0):
    """As the engine calls the library, in place, so many bytes behind an even address; None: refused."""
    room = ctypes.create_string_buffer(bytes(offset) + text, offset + len(text))
    at = ctypes.addressof(room) + offset
    header = ctypes.create_string_buffer(header, len(header) or 1), len(header)
    refused = IN_PLACE(seal.ciphers[cipher][1])(at, None, None, at, len(text), *header, nonce, key)
    plain = room.raw[offset : offset + len(text) - tag]
    if refused:
        assert plain in (bytes(len(plain)), b"\xd0" * len(plain)), "nothing of what was refused is left"
        return None
    return plain


@pytest.mark.parametrize(("cipher", "key", "nonce", "header", "message", "text", "tag"), VECTORS)
def test_the_library_and_the_second_opinion_give_published_vectors(
    made, cipher, key, nonce, header, message, text, tag
):
    key, nonce, header, message = map(bytes.fromhex, (key, nonce, header, message))
    seal = seal_of(Config(key=made), "orders")
    assert by_library(seal, cipher, message, header, nonce, key, len(tag) // 2).hex() == text + tag
    assert ENCRYPT[cipher](message, header, nonce, key).hex() == text + tag
    sealed, tag = bytes.fromhex(text + tag), len(tag) // 2
    assert opened(seal, cipher, sealed, header, nonce, key, tag) == message
    for short in range(tag):
        assert opened(seal, cipher, sealed[:short], header, nonce, key, short) is None


REFUSED = {
    "key and nonce": lambda key, nonce, header, text, tag: (nonce, key, header, text, tag),
    "text": lambda key, nonce, header, text, tag: (key, nonce, header, text[:-1] + bytes([text[-1] + 1]), tag),
    "header": lambda key, nonce, header, text, tag: (key, nonce, header[:-1] + b"\x08", text, tag),
    "tag": lambda key, nonce, header, text, tag: (key, nonce, header, text, tag[:-1] + bytes([tag[-1] + 1])),
}
"""The changes of the test vectors 6 to 9 of RFC 10032, which must be refused, to its vector 4."""


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("cipher", [1, 2])
def test_the_library_refuses_the_published_vectors_that_must_be_refused(made, cipher, what):
    (vector,) = [each for each in VECTORS if each[0] == cipher and len(each[4]) == 28]
    key, nonce, header, message, text, tag = map(bytes.fromhex, vector[1:])
    seal = seal_of(Config(key=made), "orders")
    assert opened(seal, cipher, text + tag, header, nonce, key, len(tag)) == message
    key, nonce, header, text, tag = REFUSED[what](key, nonce, header, text, tag)
    assert opened(seal, cipher, text + tag, header, nonce, key, len(tag)) is None


@pytest.mark.long
@pytest.mark.parametrize("cipher", range(len(CIPHERS)))
def test_the_library_and_the_second_opinion_agree_on_any_lengths_at_any_address(made, cipher):
    seal, rng = seal_of(Config(key=made), "orders"), random.Random(cipher)
    key_bytes, nonce_bytes, tag = SIZES[cipher]
    for length in (*range(70), *(rng.randrange(2000) for _ in range(100)), 65_000):
        message, header = rng.randbytes(length), rng.randbytes(rng.randrange(80))
        nonce, key = rng.randbytes(nonce_bytes), rng.randbytes(key_bytes)
        sealed = by_library(seal, cipher, message, header, nonce, key, tag)
        assert sealed == ENCRYPT[cipher](message, header, nonce, key), length
        assert opened(seal, cipher, sealed, header, nonce, key, tag, rng.randrange(16)) == message
        spoilt = bytearray(sealed)
        spoilt[rng.randrange(len(spoilt))] ^= 1 << rng.randrange(8)
        assert opened(seal, cipher, bytes(spoilt), header, nonce, key, tag, rng.randrange(16)) is None


@needs_compiler_and_linux
@pytest.mark.long
@pytest.mark.parametrize("cipher", range(len(CIPHERS)))
def test_the_library_and_a_second_opinion_in_c_agree_on_a_million_messages(tmp_path, made, cipher):
    if platform.machine() != "x86_64":
        pytest.skip("the second opinion is written for these machines")
    compared = compiled(tmp_path, '#include "../tests/fuzz/second_opinion.c"\n').disagreement
    compared.argtypes = [ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_uint64]
    compared.restype = ctypes.c_long
    ciphers = seal_of(Config(key=made), "orders").ciphers
    assert compared(cipher, *ciphers[cipher - 1], 1, 1) == 0, "another cipher differs at once"
    assert compared(cipher, *ciphers[cipher], 1_000_000, random.randrange(1, 1 << 63)) == -1


def key_file(tmp_path, text, mode=0o600):
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.fixture
def made(tmp_path):
    keys.make(str(tmp_path / "made.key"))
    return str(tmp_path / "made.key")


SIZES = (32, 24, 16), (16, 16, 32), (32, 32, 32), (32, 12, 16)
"""Of key, nonce and tag of each cipher."""


def wanted(cipher, datagram, payload, secret, context, tags=b""):
    """A datagram's part behind the header, by other means: which key, which nonce, which part stays readable, which
    field lies where."""
    key_bytes, nonce_bytes, tag = SIZES[cipher]
    key = hashlib.blake2b(context, digest_size=key_bytes, key=secret, person=b"seqcast sealer").digest()
    header, number = datagram[:40], datagram[-8:]
    nonce = (number + header[4:8]).ljust(nonce_bytes, b"\0")
    return ENCRYPT[cipher](payload + tags.ljust(32 - tag, b"\0"), header + bytes(8), nonce, key) + number


LENGTHS = (0, 1, 15, 16, 17, 31, 32, 33, 100, 1000)


def test_an_engine_seals_outside_a_view_as_the_second_opinion_does(made):
    seal, rng = seal_of(Config(key=made), "orders"), random.Random(1)
    (key,) = keys.read(made)
    secret = keys.cluster_secret(key, "orders")
    assert seal.secrets == ((key.number, secret),)
    engine, member = make_engine(77, seal=seal), (77).to_bytes(8, "little")
    for length in LENGTHS:
        payload = rng.randbytes(length)
        engine.control_send(payload)
        ((_, _, datagram),) = engine.transmit(0)
        assert len(datagram) == 40 + length + SEAL_ROOM
        assert datagram[40:] == wanted(0, datagram, payload, secret, member)


def test_a_member_of_a_view_seals_outside_as_the_second_opinion_does(made):
    """With a tag for each of its views."""
    seal, rng = seal_of(Config(key=made), "orders"), random.Random(1)
    net, member = Net(2, seal=seal), (100).to_bytes(8, "little")
    secret, views = keys.cluster_secret(keys.read(made)[0], "orders"), [1]
    for tag in (1, 2):
        for length in LENGTHS:
            payload = rng.randbytes(length)
            net.engines[0].control_send(payload, b"", True)
            sent = [datagram for _, _, datagram in net.engines[0].transmit(net.now)]
            (datagram,) = [each for each in sent if each[13] >> 6 == 1]
            tags = [member_tag(datagram[:40], payload, datagram[-8:], each, secret_of(each)) for each in views]
            assert datagram[40:] == wanted(0, datagram, payload, secret, member, b"".join(tags)), (tag, length)
        net.install([0, 1], sequencer=-1, tag=2, marker=2)
        views = [2, 1]


@pytest.mark.parametrize("cipher", range(len(CIPHERS)))
def test_an_engine_seals_in_a_view_as_the_second_opinion_does_with_each_cipher_and_others_open_that(
    made, cipher, monkeypatch
):
    monkeypatch.setattr("engines.CIPHER", cipher)
    seal, rng = seal_of(Config(key=made), "orders"), random.Random(1)
    net = Net(2, seal=seal)
    one, other = net.engines
    context = net.ids[0].to_bytes(8, "little") + (1).to_bytes(8, "little")  # sealer, and the view's tag
    for length in LENGTHS:
        payload = rng.randbytes(length)
        one.control_send(payload)
        sent = [datagram for _, _, datagram in one.transmit(net.now) if len(datagram) == 40 + length + SEAL_ROOM]
        (datagram,) = [each for each in sent if each[40:] == wanted(cipher, each, payload, secret_of(1), context)]
        assert other.receive(datagram, b"\0", net.now) == 1
        spoilt = bytearray(datagram)
        spoilt[rng.randrange(40, len(spoilt))] ^= 1
        before = other.counters()["drop_key"]
        assert other.receive(bytes(spoilt), b"\0", net.now) == 0 and other.counters()["drop_key"] == before + 1
    one.send(b"message " * 1000)
    net.run(50)
    assert [payload for _, payload in net.got[1]] == [b"message " * 1000]


def test_the_narrowest_path_leaves_sealed_packets_a_size_that_a_view_can_have(made):
    net = Net(2, seal=seal_of(Config(key=made), "orders"), path=984, packet=984)
    net.drop = lambda src, dst, lane, datagram: len(datagram) > 576
    net.run(1500)
    assert {engine.path_bytes() for engine in net.engines} == {512}
    net.packet = 512
    change_view(net, [0, 1], [0, 1], sequencer=-1, tag=2)
    net.engines[0].send(b"message " * 1000)
    net.run(50)
    assert [payload for _, payload in net.got[1]] == [b"message " * 1000]


def test_a_processor_without_aes_instructions_has_xchacha20_alone_and_takes_no_other_setting(made, monkeypatch):
    monkeypatch.setattr("seqcast.net.secure.has_aes", lambda sodium: False)
    seal = seal_of(Config(key=made), "orders")
    assert not seal.aes and [bool(sealing and opening) for sealing, opening in seal.ciphers] == [
        True,
        False,
        False,
        False,
    ]
    assert not seal_of(Config(key=made, cipher="xchacha20-poly1305"), "orders").aes
    for cipher in ("aegis-128l", "aegis-256", "aes-256-gcm"):
        with pytest.raises(ConfigError, match=f"cipher='{cipher}' needs a processor with AES instructions"):
            seal_of(Config(key=made, cipher=cipher), "orders")
    engine = make_engine(1, seal=seal)
    engine.know(1, bytes(32), 0)
    with pytest.raises(ValueError, match="this machine has no cipher 1"):
        engine.know(2, bytes(32), 1)
    with pytest.raises(ValueError, match="this machine has no cipher 4"):
        engine.know(3, bytes(32), len(CIPHERS))


def test_a_cipher_without_a_key_has_no_meaning():
    with pytest.raises(ConfigError, match="cipher='aegis-256' has no meaning without key="):
        Config(cipher="aegis-256")
    assert set(CIPHERS) | {"auto"} == set(fields.CIPHERS)


def test_datagrams_of_any_length_are_opened_in_place(made):
    seal = seal_of(Config(key=made), "orders")
    one, other = make_engine(1, seal=seal, piece_bytes=0), make_engine(2, seal=seal)
    for now, length in enumerate((*range(70), 1000, 1391, 1392, 1393, 8959, 20_000, 59_999, 60_000)):
        payload = random.Random(length).randbytes(length)
        assert one.control_send(payload)
        ((_, _, datagram),) = one.transmit(0)
        assert payload not in datagram or length < 4
        assert other.receive(datagram, b"\1", now * 10**9) == 1
        assert [each.payload for each in other.reports()] == [payload]


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


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid(), reason="only root can give files away")
def test_a_file_of_another_user_is_refused(tmp_path, made, monkeypatch):
    listed = tmp_path / "members"
    listed.write_text(f"{identities.described(bytes(range(32)))} a\n")
    for path, reads in (made, keys.read), (str(listed), identities.read_list):
        assert reads(path)
        os.chown(path, 1000, 1000)
        assert reads(path)
        with monkeypatch.context() as patched, pytest.raises(ConfigError) as raised:
            patched.setattr(os, "geteuid", lambda: 1234)
            reads(path)
        said = str(raised.value)
        assert "another user, who may change" in said and "as that user (uid 1000), or chown the file to" in said
        assert "(uid 1234)" in said and "to root" not in said


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid(), reason="only root can give files away")
def test_root_adds_a_key_to_the_file_of_a_services_user_who_can_read_the_file_as_before(made):
    os.chown(made, 1000, 1001)
    os.chmod(made, 0o400)
    keys.add(made)
    seen = os.stat(made)
    assert (seen.st_uid, seen.st_gid, stat.S_IMODE(seen.st_mode)) == (1000, 1001, 0o400) and len(keys.read(made)) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="files have no owners there")
def test_a_user_adds_a_key_to_a_file_of_a_group_that_the_user_is_not_in(made, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError

    user = os.stat(made).st_uid or 1234
    if not os.geteuid():
        os.chown(made, user, -1)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(os, "fchown", refuse)
    keys.add(made)
    monkeypatch.undo()
    assert len(keys.read(made)) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="modes are not checked there")
def test_a_file_that_anybody_may_replace_is_refused(tmp_path):
    place = tmp_path / "all"
    place.mkdir()
    keys.make(str(place / "key"))
    link = tmp_path / "link"
    link.symlink_to(place / "key")
    for mode, refused in (0o777, True), (0o1777, False), (0o775, False):
        place.chmod(mode)
        for path in place / "key", link:
            if not refused:
                assert keys.read(str(path))
                continue
            with pytest.raises(ConfigError, match=f"anybody may replace this file: chmod o-w '{place}'"):
                keys.read(str(path))


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n# the end"])
def test_a_key_is_added_on_a_line_of_its_own_by_a_new_file(tmp_path, made, end):
    (first,) = keys.read(made)
    text = f"# für alle\r\n{keys.line(first.number, first.secret)}{end}".encode()
    Path(made).write_bytes(text)
    link = tmp_path / "link"
    link.symlink_to(made)
    with open(made, "rb") as before:
        added = keys.add(str(link))
        assert before.read() == text  # a reader finds a whole file
    assert [key.number for key in keys.read(made)] == [first.number, added] and keys.read(made)[0] == first
    assert Path(made).read_bytes().startswith("# für alle\n".encode())
    assert stat.S_IMODE(os.stat(made).st_mode) == 0o600 and link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == sorted([os.path.basename(made), "link"])


def test_a_key_is_not_added_to_a_file_that_would_be_too_large_to_be_read(tmp_path, made):
    before = Path(made).read_bytes()
    comment = b"#" * (keys.FILE_BYTES_MAX - len(before) - 10) + b"\n"
    Path(made).write_bytes(comment + before)
    with pytest.raises(ConfigError, match="would have more than 4096 bytes: shorten its comments"):
        keys.add(made)
    assert Path(made).read_bytes() == comment + before and os.listdir(tmp_path) == [os.path.basename(made)]
    Path(made).write_bytes(comment[50:] + before)
    keys.add(made)
    assert len(keys.read(made)) == 2


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


HIGH = bytes(range(200, 248))
AS_TEXT = {
    "base64": GOOD,
    "without padding": GOOD.rstrip("="),
    "base64url": base64.urlsafe_b64encode(HIGH[:32]).decode(),
    "with a slash": base64.b64encode(b"\xff" * 3 + HIGH).decode(),
    "48 bytes": base64.b64encode(HIGH).decode(),
    "hex": HIGH[:32].hex(),
    "0x": "0x" + HIGH[:32].hex(),
    "with colons": HIGH[:32].hex(":"),
    "a line": f"7 {GOOD}",
    "a file": f"# The key. Keep it\n7 {base64.b64encode(HIGH[::-1]).decode()}\n",
}


@pytest.mark.parametrize("value", AS_TEXT.values(), ids=AS_TEXT)
@pytest.mark.parametrize("reads", [keys.read, identities.read_identity])
def test_a_secret_itself_is_refused_in_place_of_its_files_name_and_not_shown(value, reads, monkeypatch):
    monkeypatch.setenv("SEQCAST_KEY", value)
    path = Config.from_environment().key
    with pytest.raises(ConfigError, match="looks like a key itself") as raised:
        reads(path)
    told = str(raised.value) + json.dumps([line.item() for line in doctor_keys.look(Config(key=path), Path("/none"))])
    assert not any(piece in told for piece in (value, value[:8], value[-12:]))


@pytest.mark.parametrize("name", ["key", "identity", "authorized"])
def test_a_file_of_the_key_that_is_given_and_named_by_nothing_is_refused(name, monkeypatch):
    with pytest.raises(ConfigError, match=f"{name} is None and names no file"):
        Config(**{name: None})
    variable = f"SEQCAST_{name.upper()}"
    monkeypatch.setenv(variable, "")
    with pytest.raises(ConfigError, match=f"{variable} is empty and names no file"):
        Config.from_environment()
    monkeypatch.setenv(variable, "a.key")
    with pytest.raises(ConfigError, match=f"{name} is empty, though {variable} names one"):
        Config.from_environment(**{name: ""})
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_key(parser, ["auto"])
    with pytest.raises(argparse.ArgumentError, match="names no file"):
        parser.parse_args([f"--{name}", ""])


MISSING = (
    "/etc/seqcast/keys/production/orders/key",
    "~/Keys/Of/The/Group/orders.example.key",
    "production-orders-group-2026.keyfile",
    "Production_Orders_Group_2026_of_Berlin.key",
)


@pytest.mark.parametrize("path", MISSING)
def test_the_name_of_a_missing_key_file_is_shown(path):
    with pytest.raises(ConfigError, match=re.escape(f"key={path!r} cannot be read: No such file")):
        keys.read(path)


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
    assert len({keys.cluster_secret(key, name) for name in ("orders", "orders-2", "")} | {bytes(key.secret)}) == 4


def test_the_file_is_read_again_when_it_has_changed_and_only_then(made):
    (old,) = keys.read(made)
    file = KeyFile(made, "orders", seal_of(Config(key=made), "orders").secrets)
    assert file.look(5) is None and file.due_ns == 5 + LOOK_NS
    added = keys.add(made)
    secrets = file.look(6)
    assert [number for number, _ in secrets] == [old.number, added]
    assert secrets[0][1] == keys.cluster_secret(old, "orders")
    assert file.look(7) is None
    assert file.counters == {"key_reads": 1, "key_errors": 0}
    new = keys.read(made)[1]
    with open(made, "w", encoding="ascii") as again:  # in place, and the other order
        again.write(f"{keys.line(new.number, new.secret)}\n{keys.line(old.number, old.secret)}\n")
    assert [number for number, _ in file.look(8)] == [new.number, old.number]


@pytest.mark.parametrize("harm", ["mode", "gone", "content"])
def test_a_file_that_is_not_a_key_file_any_more_changes_nothing_and_is_told_once(made, harm):
    file = KeyFile(made, "orders", seal_of(Config(key=made), "orders").secrets)
    file.look(1)
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
    assert file.counters == {"key_reads": 0, "key_errors": 1}
    if harm == "gone":
        keys.make(made)
        os.chmod(made, 0o600)
        assert file.look(4) is not None
