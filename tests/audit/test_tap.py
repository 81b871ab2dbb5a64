"""The tap of a live machine's journals: which data it serves, to whom, and its answer to anything else."""

from __future__ import annotations

import contextlib
import errno
import json
import pickle
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from journal_data import Row, as_live, batch_of, journal, member, view
from members import LIMIT_S, wait_until

import seqcast
from seqcast.journal import reader, tap
from seqcast.journal.schema import arrow_schema
from seqcast.journal.tap import HELLO, Tap, TapClient, TapGone
from seqcast.journal.writer import JournalWriter

A, B = member("a"), member("b")
V1, V2 = view(1, [A, B]), view(2, [A])
ROWS = [Row((A, B)[at % 2], 1 + at, 0, 1 + at, b"payload %d" % at) for at in range(900)]
TOKEN = b"a token of 16 bytes or more"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Tap, TapClient, Path]]:
    path = journal(tmp_path / "journals", A, [(V1, ROWS), (V2, [])], payload="full", segment_rows=400)
    as_live(path, 1, chunk=70)
    with Tap(tmp_path / "journals", ("127.0.0.1", 0), TOKEN) as server:
        yield server, TapClient(f"127.0.0.1:{server.address[1]}", TOKEN), path


def test_a_reader_gets_the_facts_of_the_journal_and_any_range(served: Any) -> None:
    _, client, path = served
    assert client.members() == [A.id]
    told, own = client.journal(A.id), reader.read(path)
    assert (told.member, told.cluster, told.views, told.closed, told.deliver_own, told.payload) == (
        own.member, own.cluster, own.views, own.closed, own.deliver_own, own.payload,
    )  # fmt: skip
    assert (told.first_idx, told.end_idx) == (0, 900)
    for first, end in ((0, 900), (0, 1), (399, 401), (470, 471), (899, 900), (5, 5)):
        rows = [row for batch in client.rows(told, first, end, ["payload", "idx"]) for row in batch.to_pylist()]
        assert rows == [{"idx": at, "payload": ROWS[at].payload} for at in range(first, end)]


def test_a_reader_is_told_the_rolled_segments_when_there_are_new_ones(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"payload": "hash", "flush_s": 0.001, "segment_rows": 10, "together_rows": 1}
    writer = JournalWriter(tmp_path, cluster="test", member=A, **settings)
    writer.view(V1, 1, total=True)
    mark = None
    with Tap(tmp_path, ("127.0.0.1", 0), TOKEN) as server:
        client = TapClient(f"127.0.0.1:{server.address[1]}", TOKEN)
        for count in (10, 20, 30):
            writer.batch(batch_of(ROWS[count - 10 : count], V1, count), V1)
            wait_until(lambda count=count: writer.counters()["rolled"] == count // 10)
            told = {"want": "journal", "member": f"{A.id:016x}", "known": 0, "mark": mark}
            assert client._json(told)["segments"]["rolled"] is not None
            mark = client._json(told)["segments"]["mark"]
            assert client._json({**told, "mark": mark})["segments"]["rolled"] is None
            places = [(at * 10, 10, at * 10 + 10, at * 10 + 10) for at in range(count // 10)]
            for _ in range(2):
                segments = client.journal(A.id).segments
                assert [(each.first_idx, each.rows, each.first_ns, each.last_ns) for each in segments] == places
    writer.close("leave")


@pytest.mark.parametrize(
    "segments",
    [
        None, {}, {"mark": "", "rolled": [], "live": [[0, 899]]}, {"mark": "", "rolled": [], "live": [[1, 900]]},
        {"mark": "", "rolled": [[0, 900, 0]], "live": []}, {"mark": "", "rolled": 7, "live": [[0, 900]]},
        {"mark": "", "rolled": [], "live": [[0, 500], [400, 500]]}, {"mark": "", "rolled": [], "live": [[0, "900"]]},
        {"mark": "", "rolled": [], "live": [[0, 1 << 64]]}, {"mark": "", "rolled": [], "live": [[0, -1], [0, 901]]},
    ],
)  # fmt: skip
def test_segments_that_cannot_be_are_an_invalid_answer(
    served: Any, monkeypatch: pytest.MonkeyPatch, segments: Any
) -> None:
    _, client, _ = served
    real = tap._description
    monkeypatch.setattr(tap, "_description", lambda *given: {**real(*given), "segments": segments})
    with pytest.raises(seqcast.RemoteProtocolError):
        client.journal(A.id)


TLS = Path(__file__).parents[1] / "helpers" / "tls"
"""A certificate for 127.0.0.1 that no authority made, and its key, which nothing else uses."""
CERTIFICATE, KEY = TLS / "certificate.pem", TLS / "key.pem"


def test_with_a_certificate_rows_are_read_through_tls_and_nothing_of_them_in_clear(tmp_path: Path) -> None:
    journal(tmp_path, A, [(V1, ROWS)], payload="full")
    with Tap(tmp_path, ("127.0.0.1", 0), TOKEN, certificate=CERTIFICATE, key=KEY) as server:
        sent: list[bytes] = []
        with relay(server.address, sent) as port:
            client = pickle.loads(pickle.dumps(TapClient(f"127.0.0.1:{port}", TOKEN, CERTIFICATE.read_text())))
            batches = list(client.rows(client.journal(A.id), 0, 900, ["payload"]))
            client.close()
        assert [row["payload"] for batch in batches for row in batch.to_pylist()] == [row.payload for row in ROWS]
        passed = b"".join(sent)
        assert len(passed) > sum(len(row.payload) for row in ROWS) and b"payload" not in passed and HELLO not in passed


def test_a_certificate_that_is_not_trusted_or_none_ends_before_the_token_is_proved(tmp_path: Path) -> None:
    journal(tmp_path, A, [(V1, ROWS[:5])], payload="full")
    with (
        Tap(tmp_path, ("127.0.0.1", 0), TOKEN, certificate=CERTIFICATE, key=KEY) as secured,
        Tap(tmp_path, ("127.0.0.1", 0), TOKEN) as plain,
    ):
        of_another_name = f"localhost:{secured.address[1]}"
        with pytest.raises(seqcast.UsageError, match=r"a certificate that is not trusted \(.*localhost"):
            TapClient(of_another_name, TOKEN, CERTIFICATE.read_text()).members()
        with pytest.raises(seqcast.UsageError, match="does not serve through TLS"):
            TapClient(f"127.0.0.1:{plain.address[1]}", TOKEN, CERTIFICATE.read_text()).members()
        wait_until(lambda: secured.counters["unproved"] == 1)
        assert secured.counters["connections"] == plain.counters["connections"] == 0


def test_an_invalid_certificate_is_refused_with_the_remedy(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for certificate, key, why in (
        (CERTIFICATE, None, "both the certificate and its key"),
        (tmp_path / "none.pem", KEY, "cannot be read: No such file"),
        (wrong, KEY, "are not a certificate and its key"),
        (CERTIFICATE, wrong, "are not a certificate and its key"),
    ):
        with pytest.raises(seqcast.UsageError, match=why):
            Tap(tmp_path, ("127.0.0.1", 0), TOKEN, certificate=certificate, key=key)
    with pytest.raises(seqcast.UsageError, match="not certificates as PEM"):
        TapClient("127.0.0.1:1", TOKEN, wrong.read_text())


@contextlib.contextmanager
def relay(to: tuple[str, int], seen: list[bytes]) -> Iterator[int]:
    """Passes one connection on, and keeps the server's bytes. Gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def pump(source: socket.socket, target: socket.socket, kept: list[bytes]) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(1 << 16):
                    kept.append(data)
                    target.sendall(data)
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_WR)

        def serve() -> None:
            client, _ = listening.accept()
            with client, socket.create_connection(to) as server:
                up = threading.Thread(target=pump, args=(client, server, []))
                up.start()
                pump(server, client, seen)
                up.join()

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(LIMIT_S)


def test_views_that_a_reader_knows_are_not_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = tap._send
    monkeypatch.setattr(
        tap,
        "_send",
        lambda connection, kind, contents: (sizes.append(len(bytes(contents))), real(connection, kind, contents)),
    )
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=0.001, payload="full")
    with Tap(tmp_path, ("127.0.0.1", 0), TOKEN) as server:
        client = TapClient(f"127.0.0.1:{server.address[1]}", TOKEN)
        for counter in range(1, 50):
            writer.view(view(counter, [A, B]), counter)
        wait_until(lambda: len(client.journal(A.id).views) == 49)
        first = max(sizes)
        sizes.clear()
        writer.view(view(50, [A]), 50)
        wait_until(lambda: len(client.journal(A.id).views) == 50)
        assert max(sizes) < first / 10
        assert client.journal(A.id).views == reader.read(writer.path).views
        writer.close("leave")


def test_a_range_that_is_not_all_there_is_an_error_and_not_fewer_rows(served: Any) -> None:
    _, client, _ = served
    with pytest.raises(seqcast.RemoteProtocolError, match="900 rows in place of 950"):
        list(client.rows(client.journal(A.id), 0, 950, ["idx"]))
    assert client.members() == [A.id]


def test_a_journal_that_is_being_written_is_served_as_far_as_it_is(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=0.001, payload="full")
    with Tap(tmp_path, ("127.0.0.1", 0), TOKEN) as server:
        client = TapClient(f"127.0.0.1:{server.address[1]}", TOKEN)
        writer.view(V1, 1)
        for at in range(0, 900, 100):
            writer.batch(batch_of(ROWS[at : at + 100], V1), V1)
            wait_until(lambda end=at + 100: client.journal(A.id).end_idx == end)
            told = client.journal(A.id)
            rows = [
                row for batch in client.rows(told, at, at + 100, ["payload"]) for row in batch["payload"].to_pylist()
            ]
            assert rows == [row.payload for row in ROWS[at : at + 100]] and told.closed is None
        writer.close("leave")
        assert client.journal(A.id).closed == "leave"


def test_the_token_is_wanted_and_never_sent(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, client, _ = served
    sent: list[bytes] = []
    real = tap._send
    monkeypatch.setattr(
        tap,
        "_send",
        lambda connection, kind, contents: (sent.append(bytes(contents)), real(connection, kind, contents)),
    )
    client.journal(A.id)
    assert sent and not any(TOKEN in each for each in sent)
    wrong = TapClient(client.address, b"another token, as long")
    with pytest.raises(seqcast.UsageError, match="refuses the token"):
        wrong.members()
    wait_until(lambda: server.counters["unproved"] == 1)
    with pytest.raises(seqcast.UsageError, match="16 bytes or more"):
        TapClient(client.address, b"short")
    with pytest.raises(seqcast.UsageError, match="16 bytes or more"):
        Tap(".", ("127.0.0.1", 0), b"")


def test_a_proof_cannot_be_used_again(served: Any) -> None:
    server, _, _ = served

    def hello(answer: bytes) -> tuple[bytes, bytes]:
        with socket.create_connection(server.address, LIMIT_S) as connection:
            nonce = tap._exactly(connection, len(HELLO) + 32)[len(HELLO) :]
            connection.sendall(answer or tap._proof(TOKEN, b"client", nonce) + bytes(32))
            return tap._proof(TOKEN, b"client", nonce), connection.recv(32)

    proof, answered = hello(b"")
    assert len(answered) == 32
    assert hello(proof + bytes(32))[1] == b"" and hello(answered + bytes(32))[1] == b""


@pytest.mark.parametrize(
    "request_",
    [
        {}, [], 7, {"want": "everything"}, {"want": "rows"}, {"want": "journal", "member": 7, "known": 0},
        {"want": "journal", "member": f"{A.id:016x}", "known": -1},
        {"want": "rows", "member": f"{A.id:016x}", "first": 5, "end": 4, "columns": ["idx"]},
        {"want": "rows", "member": f"{A.id:016x}", "first": -1, "end": 4, "columns": ["idx"]},
        {"want": "rows", "member": f"{A.id:016x}", "first": 0, "end": 4, "columns": []},
        {"want": "rows", "member": f"{A.id:016x}", "first": 0, "end": 4, "columns": [["idx"]]},
    ],
)  # fmt: skip
def test_an_impossible_request_ends_the_connection_and_nothing_else(served: Any, request_: Any) -> None:
    server, client, _ = served
    connection = client._connect()
    tap._send(connection, b"Q", json.dumps(request_).encode())
    assert tap._receive(connection, 100) is None
    connection.close()
    wait_until(lambda: server.counters["malformed"] == 1)
    assert client.members() == [A.id]


@pytest.mark.parametrize("name", ["../../etc", "", "zz", "a" * 4000, f"{B.id:016x}"])
def test_only_ids_of_journals_are_found(served: Any, name: str) -> None:
    _, client, _ = served
    with pytest.raises(TapGone, match="no journal of a member"):
        client._json({"want": "journal", "member": name, "known": 0})
    assert client.members() == [A.id]


def mutated(whole: bytes, generator: random.Random) -> bytes:
    """With flipped bits, bytes that are gone, or bytes that came twice."""
    bad = bytearray(whole)
    for _ in range(generator.choice((1, 2, 8))):
        at = generator.randrange(len(bad))
        match generator.randrange(4):
            case 0 | 1:
                bad[at] ^= 1 << generator.randrange(8)
            case 2 if len(bad) > 1:
                del bad[at : at + generator.randrange(1, 9)]
                bad = bad or bytearray(b"x")
            case _:
                bad[at:at] = bad[at : at + generator.randrange(1, 9)]
    return bytes(bad)


def test_a_tap_survives_hostile_bytes(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a reader that has the token, and if a request is JSON that nobody writes."""
    server, client, _ = served
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    who = f"{A.id:016x}"
    requests: list[Any] = [
        {"want": "members"},
        {"want": "journal", "member": who, "known": 0},
        {"want": "rows", "member": who, "first": 390, "end": 480, "columns": ["idx", "payload"]},
    ]
    texts = [json.dumps(each).encode() for each in requests]
    nasty = [b"[" * 4000, b'{"a":' * 800, json.dumps({**requests[1], "member": "\ud800"}).encode(), b"9" * 4000,
             json.dumps({**requests[2], "columns": ["\ud800", "idx"]}).encode(),
             json.dumps({**requests[1], "known": 10**400}).encode(),
             json.dumps({**requests[2], "first": 0, "end": 10**400}).encode(), b"\xff\xfe"]  # fmt: skip
    generator = random.Random(11)
    sent = [frame(b"Q", text) for text in nasty]
    sent += [frame(b"Q", mutated(generator.choice(texts), generator)) for _ in range(250)]
    sent += [mutated(frame(b"Q", generator.choice(texts)), generator) for _ in range(100)]
    for data in sent:
        with client._connect() as connection, contextlib.suppress(OSError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 20):
                pass
    for _ in range(50):
        with socket.create_connection(server.address, LIMIT_S) as bare, contextlib.suppress(OSError):
            bare.sendall(generator.randbytes(generator.randrange(1, 200)))
            bare.shutdown(socket.SHUT_WR)
            while bare.recv(1 << 20):
                pass
    assert not raised, raised
    wait_until(lambda: len(server._readers) <= 1)
    assert client.members() == [A.id]


def test_a_frame_that_announces_too_much_takes_no_memory(served: Any) -> None:
    server, client, _ = served
    connection = client._connect()
    connection.sendall(struct.pack("<cI", b"Q", 0xFFFFFFFF))
    assert connection.recv(1) == b""
    connection.close()
    wait_until(lambda: server.counters["malformed"] == 1)


def test_a_frame_has_room_for_the_largest_message() -> None:
    largest = next(each for each in fields(seqcast.Config) if each.name == "message_bytes_max").metadata["high"]
    schema = arrow_schema("full")
    row = pa.record_batch([pa.array([b"" if each.name == "payload" else 1]).cast(each.type) for each in schema], schema)
    assert largest + len(tap._serialized(row)) <= tap.FRAME_BYTES_MAX


def test_connections_are_bounded(tmp_path: Path) -> None:
    journal(tmp_path, A, [(V1, ROWS[:10])], payload="full")
    with Tap(tmp_path, ("127.0.0.1", 0), TOKEN, connections=2) as server:
        address = f"127.0.0.1:{server.address[1]}"
        clients = [TapClient(address, TOKEN) for _ in range(3)]
        assert clients[0].members() == clients[1].members() == [A.id]
        with pytest.raises(TapGone):
            clients[2].members()
        clients[0].close()
        wait_until(lambda: not server._room._value == 0)
        assert clients[2].members() == [A.id]


def test_a_reader_that_dribbles_its_proof_keeps_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap, "CONNECT_S", 0.3)
    with (
        Tap(tmp_path, ("127.0.0.1", 0), TOKEN, connections=1) as server,
        socket.create_connection(server.address) as slow,
        contextlib.suppress(OSError),  # of the writing end, once the other hung up
    ):
        assert slow.recv(1)  # of its hello
        for _ in range(63):  # one less than a proof has
            slow.sendall(b"x")
            if not server._readers:
                break
            threading.Event().wait(0.05)
        assert not server._readers


def test_silent_connections_hold_up_nobody_that_has_the_token(served: Any) -> None:
    server, client, _ = served
    with contextlib.ExitStack() as stack:
        for _ in range(tap.UNPROVED_MAX + 6):
            stack.enter_context(socket.create_connection(server.address))
        begin = time.monotonic()
        assert client.members() == [A.id]
        assert time.monotonic() - begin < tap.CONNECT_S / 2
        wait_until(lambda: server.counters["displaced"] >= 7)
        wait_until(lambda: len(server._readers) <= tap.UNPROVED_MAX + 1)


def asks_for_rows(server: Tap, path: Path) -> socket.socket:
    """A reader that asks for all rows, and takes none."""
    connection = TapClient(f"127.0.0.1:{server.address[1]}", TOKEN)._connect()
    end = reader.read(path).end_idx
    request = {"want": "rows", "member": f"{A.id:016x}", "first": 0, "end": end, "columns": ["idx", "payload"]}
    tap._send(connection, b"Q", json.dumps(request).encode())
    return connection


def test_readers_that_take_nothing_have_no_rows_in_memory_and_are_dropped_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tap, "STALL_S", 0.05)
    monkeypatch.setattr(tap, "TIMEOUT_S", 3.0)
    at_once = [0, 0]  # readers that have rows in memory: now, at most
    threads = set()  # malloc keeps memory of its own for each
    real = tap.rows_between

    def counted(*arguments: Any) -> Any:
        threads.add(threading.get_ident())
        at_once[0] += 1
        at_once[1] = max(at_once)
        try:
            yield from real(*arguments)
        finally:
            at_once[0] -= 1

    monkeypatch.setattr(tap, "rows_between", counted)
    rows = [Row(A, 1 + at, 0, 1 + at, bytes(50_000)) for at in range(400)]
    path = journal(tmp_path, A, [(V1, rows)], payload="full")
    with Tap(tmp_path, ("127.0.0.1", 0), TOKEN) as server:
        connections = [asks_for_rows(server, path) for _ in range(10)]
        names = ["{}:{}".format(*each.getsockname()) for each in connections]
        client = TapClient(f"127.0.0.1:{server.address[1]}", TOKEN)
        told = client.journal(A.id)
        assert sum(len(batch) for batch in client.rows(told, 0, 400, ["payload"])) == 400, "others are served meanwhile"
        wait_until(lambda: server.counters["dropped"] == 10)
        assert at_once[0] == 0 and 0 < at_once[1] <= tap.READING_MAX and len(threads) <= tap.READING_MAX
        for name in names:
            assert f"the reader at {name} took nothing for 3 s, and is dropped (SC6004)" in caplog.text
        for each in connections:
            each.close()


def test_of_large_rows_few_are_in_memory_at_a_time(tmp_path: Path) -> None:
    """Whatever a row group of the file has, which is up to 64 MB."""
    rng = random.Random(1)
    rows = [Row(A, 1 + at, 0, 1 + at, rng.randbytes(10_000)) for at in range(5000)]
    found = reader.read(journal(tmp_path, A, [(V1, rows)], payload="full"))
    assert not any(segment.live for segment in found.segments)
    before, most, at = pa.total_allocated_bytes(), 0, 0
    for batch in tap.rows_between(found, 0, 5000, ["payload"], tap.BATCH_ROWS, tap.DECODED_BYTES):
        most = max(most, pa.total_allocated_bytes() - before)
        assert batch["payload"].to_pylist() == [row.payload for row in rows[at : at + len(batch)]]
        at += len(batch)
    assert at == 5000 and most < 16 << 20, "a file of 8 MiB may be read whole"


def test_readers_in_turns_get_all_rows_once(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, client, _ = served
    monkeypatch.setattr(tap, "TURN_S", 0.0)
    monkeypatch.setattr(tap, "BATCH_BYTES", 1000)
    server._wanting = 1  # as if another one waited all the time
    told = client.journal(A.id)
    rows = [row["idx"] for batch in client.rows(told, 3, 897, ["idx"]) for row in batch.to_pylist()]
    assert rows == [*range(3, 897)]


def test_a_tap_that_cannot_accept_for_a_while_serves_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal(tmp_path, A, [(V1, ROWS[:10])], payload="full")
    failed, accept = threading.Event(), socket.socket.accept

    def once(listening: socket.socket) -> Any:
        if not failed.is_set():
            failed.set()
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", once)
    with Tap(tmp_path, ("127.0.0.1", 0), TOKEN) as server:
        assert failed.wait(LIMIT_S)
        assert TapClient(f"127.0.0.1:{server.address[1]}", TOKEN).members() == [A.id]


def test_a_tap_without_a_thread_for_a_reader_serves_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal(tmp_path, A, [(V1, ROWS[:10])], payload="full")
    refused, start = threading.Event(), threading.Thread.start

    def once(thread: threading.Thread) -> None:
        if thread.name == "seqcast-tap-reader" and not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    with Tap(tmp_path, ("127.0.0.1", 0), TOKEN) as server:
        monkeypatch.setattr(threading.Thread, "start", once)
        with socket.create_connection(server.address) as dropped:
            dropped.settimeout(LIMIT_S)
            assert dropped.recv(1) == b"" and refused.is_set()
        assert TapClient(f"127.0.0.1:{server.address[1]}", TOKEN).members() == [A.id]
        assert server.counters["refused"] == 1


@contextlib.contextmanager
def liar(*answers: bytes) -> Iterator[TapClient]:
    """A server that has the token and answers each request with the given bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.sendall(HELLO + bytes(32))
                        nonce = tap._exactly(connection, 64)[32:]
                        connection.sendall(tap._proof(TOKEN, b"server", nonce))
                        for answer in answers:
                            tap._receive(connection, 4096)
                            connection.sendall(answer)
                        tap._receive(connection, 4096)

        threading.Thread(target=serve, daemon=True).start()
        yield TapClient(f"127.0.0.1:{listening.getsockname()[1]}", TOKEN)


def frame(kind: bytes, contents: bytes) -> bytes:
    return struct.pack("<cI", kind, len(contents)) + contents


@pytest.mark.parametrize(
    "answer",
    [frame(b"J", b"{"), frame(b"J", b"7"), frame(b"J", b"[7]"), frame(b"J", b'["xyz"]'), frame(b"Z", b""),
     struct.pack("<cI", b"J", 0xFFFFFFFF), frame(b"J", b"[" * 100_000)],
    ids=range(7),
)  # fmt: skip
def test_a_reader_believes_no_impossible_answer(answer: bytes) -> None:
    with liar(answer) as client, pytest.raises(seqcast.RemoteProtocolError):
        client.members()


def test_a_reader_believes_no_altered_description_and_no_altered_rows(served: Any) -> None:
    _, client, path = served
    told = tap._description(path)
    for field, altered in (
        ("header", told["header"].replace("hash", "full").replace('"test"', '"best"')),
        ("views", told["views"].replace('"counter": 1', '"counter": 3', 1)),
        ("rows", [7, 3]),
        ("rows", 7),
    ):
        answer = frame(b"J", json.dumps({**told, field: altered}).encode())
        with liar(answer) as lied, pytest.raises((seqcast.RemoteProtocolError, seqcast.UsageError)):
            lied.journal(A.id)
    own = client.journal(A.id)
    whole = tap._serialized(next(tap.rows_between(reader.read(path), 0, 50, ["idx", "payload"]))).to_pybytes()
    generator = random.Random(7)
    for _ in range(300):
        bad = bytearray(whole)
        for _ in range(generator.choice((1, 1, 8))):
            bad[generator.randrange(len(bad))] ^= 1 << generator.randrange(8)
        with liar(frame(b"B", bytes(bad)) + frame(b"Z", b"")) as lied:
            try:  # a flipped bit of a value arrives, and must not crash the reader, nor change how many rows there are
                assert sum(batch.num_rows for batch in lied.rows(own, 0, 50, ["idx", "payload"])) == 50
            except seqcast.RemoteProtocolError:
                pass


@pytest.mark.parametrize("six", [False, True])
def test_the_command_serves_until_it_is_ended(tmp_path: Path, six: bool) -> None:
    journal(tmp_path / "j", A, [(V1, ROWS[:10])], payload="full")
    (tmp_path / "token").write_bytes(TOKEN + b"\n")
    host = "[::1]" if six else "127.0.0.1"
    command = [sys.executable, "-m", "seqcast", "tap", "--journal", str(tmp_path / "j"), "--listen", f"{host}:0"]
    with subprocess.Popen(
        [*command, "--token-file", str(tmp_path / "token")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith(f"tap at {host}:"), process.communicate()
        assert TapClient(said.split()[-1], TOKEN).members() == [A.id]
        process.terminate()
        _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode in (0, 1) and "Traceback" not in errors
    done = subprocess.run([*command, "--token-file", str(tmp_path / "none")], capture_output=True, text=True)
    assert done.returncode == 2 and "cannot be read" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_reader_without_certificates_is_told_that_the_tap_may_serve_through_tls(tmp_path: Path) -> None:
    """The tap waits for the reader's first word, and the reader for the tap's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = TapClient(tap.shown(server.getsockname()), TOKEN)
        threading.Thread(target=lambda: server.accept()[0].close(), daemon=True).start()
        with pytest.raises(TapGone, match="serves through TLS: name its certificateFile"):
            client.members()


def test_a_journal_that_is_just_being_made_has_no_rows_yet(tmp_path: Path) -> None:
    path = journal(tmp_path, A, [], closed=None)
    (path / "views.jsonl").unlink(missing_ok=True)
    with Tap(tmp_path, ("127.0.0.1", 0), b"t" * 16) as server:
        client = TapClient(f"127.0.0.1:{server.address[1]}", b"t" * 16)
        found = client.journal(A.id)
        assert (found.views, found.end_idx) == ((), 0)
        writer_view = journal(tmp_path / "other", A, [(view(1, [A]), [])]) / "views.jsonl"
        (path / "views.jsonl").write_bytes(writer_view.read_bytes())
        assert [each.view_id.counter for each in client.journal(A.id).views] == [1]
