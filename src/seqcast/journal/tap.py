"""A tap: serves the journals of a machine over TCP to readers on others, such as the tasks of a Spark cluster.

Readers ask for ranges of rows by position, so the server keeps nothing for them, and a restarted reader continues at
its place. The server reads the files that the members write: no reader can hold up a member.

A connection begins with a proof by both sides that they have the token, without sending it: the server sends a nonce,
the client HMAC-SHA256(token, "client" + nonce) and a nonce of its own, the server HMAC-SHA256(token, "server" + nonce).
Requests are JSON, answers frames: a kind, a length (u32, little-endian) and contents.

With a certificate everything goes through TLS (the standard library's ``ssl``), and readers check the certificate.
Without one the rows travel in clear: anyone on the network can read them, even if the group itself encrypts.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import secrets
import selectors
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import seqcast.codes as codes
from seqcast.errors import ConfigError, RemoteProtocolError, UsageError
from seqcast.files import NAMED_BYTES_MAX, read_file
from seqcast.journal import seals
from seqcast.journal.hold import is_written
from seqcast.journal.places import journal_files
from seqcast.journal.reader import Journal, assemble, read_again, read_texts
from seqcast.journal.schema import (
    COLUMNS,
    HEADER_FILE,
    JournalDamaged,
    JournalError,
    JournalGone,
    arrow_schema,
)
from seqcast.journal.segments import Segment, segment_batches

if TYPE_CHECKING:
    import pyarrow as pa

HELLO = b"seqcast tap 2\n"
NONCE_BYTES = PROOF_BYTES = 32
TOKEN_BYTES_MIN = 16
REQUEST_BYTES_MAX = 4096
FRAME_BYTES_MAX = (1 << 30) + (1 << 20)
"""The largest message, with Arrow's overhead."""
log = logging.getLogger("seqcast")

BATCH_BYTES = 256 << 10
"""Batches are cut to about this before they are sent; a single row may be larger."""
BATCH_ROWS = 1 << 13
DECODED_BYTES = 1 << 20
"""The rows, and their bytes with the payloads, that are decoded together. Without their payloads, that many rows take
about a megabyte."""
SEND_BYTES = 1 << 20
"""Room in a connection's socket: whenever the socket is writable, a cut batch fits in without waiting."""
READING_MAX = 4
TURN_S = 1.0
STALL_S = 0.5
"""The readers that may have rows in memory at the same time. One that takes nothing for ``STALL_S``, or has had its
turn while others wait, gives its place away, and continues there with its next one."""
CONNECT_S = 5.0
TIMEOUT_S = 30.0
"""Time within which the other side must answer, or take the data sent."""
RETRY_S = 0.1
"""After this long a tap that could not accept a connection tries again."""
CONNECTIONS_MAX = 64
UNPROVED_MAX = 64
"""Connections that have not proved yet that they have the token. One more ends the oldest of the machine that has
most."""
_FRAME = struct.Struct("<cI")


class TapGone(JournalGone):
    """The tap cannot be reached, or does not serve this journal (any more)."""


class _Reader:
    """A connection, as far as the tap is concerned."""

    __slots__ = ("connection", "counts", "host")

    def __init__(self, connection: socket.socket, host: str) -> None:
        self.connection, self.host = connection, host
        self.counts = True  # among those that have proved nothing


# ---- the server ------------------------------------------------------------------------------------------------------


class Tap:
    """Serves the journals in a directory, including later ones, until the tap's end.

    Args:
        directory: a member's journal, or a directory of journals.
        address: (host, port) to listen at; port 0: any free one, see ``address``.
        token: the readers' secret, 16 bytes or more.
        certificate, key: PEM files of a certificate for the names by which readers know this machine, and of its
            private key: everything goes through TLS. None: in clear.
        connections: most connections at one time; further ones are closed when they have proved that they
            have the token.

    Raises:
        UsageError: the token is too short, or the certificate or key is missing or invalid.
        ConfigError: the address cannot be listened at.
    """

    def __init__(
        self,
        directory: str | Path,
        address: tuple[str, int],
        token: bytes,
        *,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        connections: int = CONNECTIONS_MAX,
    ) -> None:
        self._token = check_token(token)
        self._tls = _server_context(certificate, key)
        self._directory = Path(directory)
        try:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            self._socket = socket.create_server(address, family=family)
        except OSError as error:
            why = str(error.strerror or error).partition(" (while ")[0]  # Python adds the address, which is here
            raise ConfigError(f"cannot listen at {shown(address)}: {why}") from error
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self.counters = dict.fromkeys(
            ("connections", "refused", "unproved", "displaced", "dropped", "malformed", "rows"), 0
        )
        self._lock = threading.Lock()  # of the counters, and of the connections
        self._room = threading.Semaphore(connections)
        # Decoded by a thread for each reader, rows would leave memory behind in as many of malloc's arenas.
        self._reading = ThreadPoolExecutor(READING_MAX, "seqcast-tap-rows")
        self._paths: dict[int, Path] = {}  # of members' journals, as they were found last
        self._wanting = 0  # readers that wait for a turn
        self._readers: dict[_Reader, None] = {}  # oldest first
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="seqcast-tap", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all connections."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        self._socket.close()
        self._thread.join()
        with self._lock:
            for reader in self._readers:
                _end(reader)
        self._reading.shutdown(wait=False, cancel_futures=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, source = self._socket.accept()
            except OSError:
                if self._closed.wait(RETRY_S):
                    return
                continue  # of too many open files, or of a reader that went away at once
            reader = _Reader(connection, source[0])
            self._make_room()
            with self._lock:
                self._readers[reader] = None
            try:
                threading.Thread(target=self._serve, args=(reader,), name="seqcast-tap-reader", daemon=True).start()
            except RuntimeError:  # too many threads
                self._count("refused")
                self._forget(reader)

    def _make_room(self) -> None:
        """Silent connections must not keep out those that have the token."""
        with self._lock:
            waiting = [reader for reader in self._readers if reader.counts]
            if len(waiting) < UNPROVED_MAX:
                return
            most = Counter(reader.host for reader in waiting).most_common(1)[0][0]
            oldest = next(reader for reader in waiting if reader.host == most)
            oldest.counts = False
            self.counters["displaced"] += 1
            _end(oldest)

    def _serve(self, reader: _Reader) -> None:
        room = False
        try:
            until = time.monotonic() + CONNECT_S
            reader.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reader.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
            if self._tls is not None:
                self._secure(self._tls, reader)
            connection = reader.connection
            if not self._proved(connection, until):
                self._count("unproved")
                return
            reader.counts = False
            room = self._room.acquire(blocking=False)
            if not room:
                self._count("refused")
                return
            self._count("connections")
            while (frame := _receive(connection, REQUEST_BYTES_MAX)) is not None:
                self._answer(connection, frame)
        except (RemoteProtocolError, UnicodeDecodeError):
            self._count("malformed")
        except OSError:
            pass  # the reader went away, or takes nothing
        finally:
            self._forget(reader)
            if room:
                self._room.release()

    def _forget(self, reader: _Reader) -> None:
        with self._lock:
            self._readers.pop(reader, None)
            reader.connection.close()

    def _secure(self, tls: ssl.SSLContext, reader: _Reader) -> None:
        reader.connection.settimeout(CONNECT_S)  # a reader without TLS waits for our first message
        with self._lock:
            reader.connection = secured = tls.wrap_socket(
                reader.connection, server_side=True, do_handshake_on_connect=False
            )
        try:
            secured.do_handshake()
        except OSError:
            self._count("unproved")
            raise

    def _proved(self, connection: socket.socket, until: float) -> bool:
        nonce = secrets.token_bytes(NONCE_BYTES)
        connection.sendall(HELLO + nonce)
        answer = _exactly(connection, PROOF_BYTES + NONCE_BYTES, until)
        if not hmac.compare_digest(answer[:PROOF_BYTES], _proof(self._token, b"client", nonce)):
            return False
        connection.settimeout(TIMEOUT_S)
        connection.sendall(_proof(self._token, b"server", answer[PROOF_BYTES:]))
        return True

    def _answer(self, connection: socket.socket, frame: tuple[bytes, bytes]) -> None:
        kind, contents = frame
        try:
            request = json.loads(contents)
        except (ValueError, RecursionError) as error:
            raise RemoteProtocolError("a request is not JSON") from error
        if kind != b"Q" or not isinstance(request, dict):
            raise RemoteProtocolError("a request is not a request")
        try:
            match request:
                case {"want": "members"}:
                    members = sorted(journal_files([self._directory], strict=request.get("strict") is True))
                    _send(connection, b"J", json.dumps([f"{member:016x}" for member in members]).encode())
                case {"want": "journal", "member": str(member), "known": int(known)} if known >= 0:
                    described = _description(self._path(member), known, request.get("mark"))
                    _send(connection, b"J", json.dumps(described).encode())
                case {"want": "rows", "member": str(member), "first": int(first), "end": int(end), "columns": [*names]}:
                    self._rows(connection, self._path(member), first, end, names)
                case _:
                    raise RemoteProtocolError("an unknown request")
        except JournalDamaged as error:
            _send(connection, b"D", _short(error.what))
        except (JournalError, OSError) as error:
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                raise
            _send(connection, b"E", _short(str(error)))

    def _path(self, member: str) -> Path:
        """By id alone: no path from a reader is ever opened."""
        try:
            path = self._paths.get(int(member, 16))
            if path is None or not (path / HEADER_FILE).exists() or path.resolve() != path:
                self._paths = journal_files([self._directory])
                path = self._paths[int(member, 16)]
            return path
        except (KeyError, ValueError):
            raise TapGone(f"there is no journal of a member {member[:16]} here") from None

    def _rows(self, connection: socket.socket, path: Path, first: int, end: int, names: Sequence[Any]) -> None:
        journal = read_again(path)
        columns = [name for name in [*COLUMNS, "payload"] if name in names]
        if not columns or not 0 <= first <= end or (journal.payload != "full" and "payload" in columns):
            raise RemoteProtocolError("an impossible request for rows")
        at, over = first, False
        with selectors.DefaultSelector() as room:
            room.register(connection, selectors.EVENT_WRITE)
            while not over:
                if not room.select(TIMEOUT_S):
                    text = codes.TAP_DROPPED("tap: the reader at %s took nothing for %g s, and is dropped")
                    log.warning(text, shown(connection.getpeername()), TIMEOUT_S)
                    self._count("dropped")
                    raise ConnectionAbortedError
                with self._lock:
                    self._wanting += 1
                try:
                    part = self._reading.submit(self._some_rows, connection, room, journal, at, end, columns)
                    at, over = part.result()
                except (RuntimeError, CancelledError):  # the tap is closed
                    raise ConnectionAbortedError from None
        _send(connection, b"Z", b"")

    def _some_rows(
        self,
        connection: socket.socket,
        room: selectors.BaseSelector,
        journal: Journal,
        first: int,
        end: int,
        columns: Sequence[str],
    ) -> tuple[int, bool]:
        """Sends rows as long as they are taken, during this reader's turn; the position behind them, and whether
        there are no more."""
        with self._lock:
            self._wanting -= 1
        at, until = first, time.monotonic() + TURN_S
        with contextlib.closing(rows_between(journal, first, end, columns, BATCH_ROWS, DECODED_BYTES)) as batches:
            for batch in batches:
                step = max(1, batch.num_rows * BATCH_BYTES // max(1, batch.nbytes))
                for begin in range(0, batch.num_rows, step):
                    yields = self._wanting and at > first and time.monotonic() > until
                    if yields or not room.select(STALL_S):
                        return at, False
                    piece = batch.slice(begin, step)
                    _send(connection, b"B", _serialized(piece))
                    at += piece.num_rows
                    self._count("rows", piece.num_rows)
        return at, True

    def _count(self, what: str, n: int = 1) -> None:
        with self._lock:
            self.counters[what] += n


def rows_between(
    journal: Journal,
    first: int,
    end: int,
    columns: Sequence[str],
    batch_rows: int = 1 << 16,
    batch_bytes: int = 0,
) -> Generator[pa.RecordBatch, None, None]:
    """The rows at positions ``first`` to ``end`` - 1; ``batch_rows``, ``batch_bytes``: as of
    ``segment_batches``.

    Raises:
        JournalDamaged, JournalGone: as for ``segment_batches``.
    """
    for segment in journal.segments:
        at = segment.first_idx
        yield from segment_batches(
            segment, columns, batch_rows=batch_rows, batch_bytes=batch_bytes, first=first - at, end=end - at
        )


def shown(address: Sequence[Any]) -> str:
    """host:port of a socket's address, with brackets for IPv6."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_token(token: bytes) -> bytes:
    """
    Raises:
        UsageError: too short to be secret.
    """
    if len(token) < TOKEN_BYTES_MIN:
        raise UsageError(f"a token has {TOKEN_BYTES_MIN} bytes or more; `openssl rand -hex 32` makes one")
    return token


def read_token(file: str | Path) -> bytes:
    """
    Raises:
        UsageError: the file cannot be read, or the token there is too short.
    """
    try:
        return check_token(read_file(file, NAMED_BYTES_MAX, links=True).strip())
    except OSError as error:
        raise UsageError(f"the token's file {file} cannot be read: {error.strerror}") from error


def _description(path: Path, known: int = 0, mark: Any = None) -> dict[str, Any]:
    """
    Args:
        known: number of characters of the views that the reader has: of whole lines, which do not change.
        mark: of the reader's rolled segments.
    """
    journal = read_again(path)
    header, views = read_texts(path)
    closed = journal.closed is not None or bool(journal.failed)
    rolled = [segment for segment in journal.segments if not segment.live]
    live = [[segment.first_idx, segment.rows] for segment in journal.segments if segment.live]
    # A rolled segment does not change, newer ones have higher numbers, and retention removes the oldest.
    now = f"{len(rolled)} {rolled[0].hash} {rolled[-1].hash}" if rolled else ""
    table = [[each.first_idx, each.rows, each.first_ns, each.last_ns] for each in rolled] if now != mark else None
    segments = {"mark": now, "rolled": table, "live": live}
    rows = [journal.first_idx, journal.end_idx]
    told = {"header": header, "views": views[known:], "rows": rows, "closed": closed, "segments": segments}
    return {**told, "written": is_written(path, journal.locked)}


def _end(reader: _Reader) -> None:
    """Wakes the thread of a reader, which closes the connection."""
    with contextlib.suppress(OSError):
        reader.connection.shutdown(socket.SHUT_RDWR)


def _short(text: str) -> bytes:
    return text.encode(errors="replace")[:REQUEST_BYTES_MAX]


def _serialized(batch: pa.RecordBatch) -> Any:
    import pyarrow as pa

    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as stream:
        stream.write_batch(batch)
    return out.getvalue()


# ---- the client ------------------------------------------------------------------------------------------------------


class TapClient:
    """Reads the journals that a tap serves. Can be pickled; connects on the first request.

    Args:
        address: "host:port".
        token: the tap's token.
        certificates: PEM text of the certificates to trust: the tap's authority's, or the tap's own. Empty: the
            tap serves without TLS.

    Raises:
        UsageError: the address is not one, the token is too short, or there is no certificate in the text.
    """

    def __init__(self, address: str, token: bytes, certificates: str = "") -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UsageError(f"tap={address!r}: give host:port")
        self.address = address
        self._to = host.strip("[]"), int(port)
        self._token = check_token(token)
        self._certificates = certificates
        client_context(certificates)  # raises now if something is wrong with them
        self._connection: socket.socket | None = None
        self._views: dict[int, str] = {}  # by journal: the data that has arrived, and will not change
        self._rolled: dict[int, tuple[str, list[Segment]]] = {}  # by journal: the tap's mark of them, and they
        self._written: dict[int, bool | None] = {}  # by journal: whether its writer is there

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None, "_views": {}, "_rolled": {}, "_written": {}}

    def members(self, *, strict: bool = False) -> list[int]:
        """Ids of the members whose journals the tap serves.

        Args:
            strict: a journal that cannot be read is an error, and not left out.

        Raises:
            TapGone: out of reach, or with a journal that cannot be read.
            JournalDamaged: a journal is damaged.
            RemoteProtocolError: its answer is invalid.
        """
        answer = self._json({"want": "members", "strict": strict})
        if not isinstance(answer, list):
            raise self._wrong("its list of members is invalid")
        try:
            return [int(member, 16) for member in answer]
        except (TypeError, ValueError):
            raise self._wrong("its list of members is invalid") from None

    def journal(self, member: int) -> Journal:
        """A member's journal at present; its rows come from ``rows``.

        Raises:
            TapGone: out of reach, or without such a journal.
            JournalDamaged: the journal is damaged.
            JournalError, RemoteProtocolError: its answer does not describe a journal.
        """
        known, (mark, rolled) = self._views.get(member, ""), self._rolled.get(member, ("", []))
        request = {"want": "journal", "member": f"{member:016x}", "known": len(known), "mark": mark}
        answer = self._json(request)
        match answer:
            case {
                "header": str(header), "views": str(views), "rows": [int(first), int(end)], "closed": bool(closed),
                "segments": {"mark": str(mark), "rolled": table, "live": [*live]},
            }:  # fmt: skip
                path = Path(f"tap {self.address}", f"{member:016x}")
                rolled = rolled if table is None else self._table(table)
                segments = [*rolled, *self._table(live, live=True)]
                segments.sort(key=lambda each: (each.first_idx, each.rows))
                known += views
                journal = assemble(path, header, known.encode(), first, tuple(segments), closed=closed)
                self._rolled[member] = mark, rolled
                told = answer.get("written")  # a tap of an earlier release does not tell
                self._written[member] = told if isinstance(told, bool) else None
                self._views[member] = known[: known.rfind("\n") + 1]  # a full disk takes back a part of a line
            case _:
                raise self._wrong("its description of a journal is invalid")
        places = [(each.first_idx, each.rows) for each in segments]
        if first < 0 or journal.end_idx != end or places != [(each.first_idx, each.rows) for each in journal.segments]:
            raise self._wrong("its segments do not follow each other")
        if journal.member.id != member:
            raise self._wrong("its description is of another journal than the one asked for")
        return journal

    def is_written(self, member: int) -> bool | None:
        """Whether the writer of a journal was there at the last request; None: nothing tells."""
        return self._written.get(member)

    def _table(self, told: Any, *, live: bool = False) -> list[Segment]:
        """Segments, of which a tap tells first position, rows, and earliest and latest time."""
        try:
            found = []
            for first, rows, *times in told:
                first_ns, last_ns = (0, 0) if live else times
                numbers = [seals.typed(each, int) for each in (first, rows, first_ns, last_ns)]
                if min(numbers[:2]) < 0:
                    raise ValueError
                path = Path(f"tap {self.address}")
                found.append(Segment(0, path, live, rows, 0, first_idx=first, first_ns=first_ns, last_ns=last_ns))
            return found
        except (TypeError, ValueError):
            raise self._wrong("its list of segments is invalid") from None

    def rows(self, journal: Journal, first: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows at positions ``first`` to ``end`` - 1 of a journal, all of them, in order.

        Raises:
            TapGone, JournalDamaged, RemoteProtocolError: as above, also after some rows.
        """
        import pyarrow as pa

        schema = arrow_schema(journal.payload)
        wanted = [name for name in [*COLUMNS, "payload"] if name in columns]
        expected = pa.schema([schema.field(name) for name in wanted])
        request = {"want": "rows", "member": f"{journal.member.id:016x}", "first": first, "end": end, "columns": wanted}
        at = first
        for kind, contents in self._asked(request):
            if kind == b"Z":
                break
            if kind != b"B":
                raise self._wrong("an answer of a kind that was not asked for")
            try:
                (batch,) = pa.ipc.open_stream(contents)
                batch.validate(full=True)
            except (pa.ArrowException, ValueError, OSError) as error:
                raise self._wrong("rows that are not an Arrow stream") from error
            if not batch.schema.equals(expected) or not batch.num_rows:
                raise self._wrong("rows with other columns than asked for")
            at += batch.num_rows
            yield batch
        if at != end:
            raise self._wrong(f"{at - first} rows in place of {end - first}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _json(self, request: dict[str, Any]) -> Any:
        kind, contents = next(iter(self._asked(request)))
        try:
            if kind != b"J":
                raise ValueError
            return json.loads(contents)
        except (ValueError, RecursionError):
            raise self._wrong("its answer is not JSON") from None

    def _asked(self, request: dict[str, Any]) -> Iterator[tuple[bytes, bytes]]:
        """Sends a request and yields the frames of the answer. If the answer is not read to its end, the connection is
        closed."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            connection, self._connection = self._connection, None  # of this answer, until the last frame
            _send(connection, b"Q", json.dumps(request).encode())
            while True:
                frame = _receive(connection, FRAME_BYTES_MAX)
                if frame is None:
                    raise ConnectionError("the tap closed the connection")
                if frame[0] in b"DE":
                    self._connection = connection
                    error = JournalDamaged if frame[0] == b"D" else TapGone
                    raise error(f"tap {self.address}: {frame[1].decode(errors='replace')}")
                if frame[0] in b"JZ":
                    self._connection = connection
                yield frame
                if frame[0] in b"JZ":
                    return
        except OSError as error:
            raise TapGone(f"tap {self.address} cannot be reached: {error}") from error

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(self._to, CONNECT_S)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if (tls := client_context(self._certificates)) is not None:
                connection = self._secured(tls, connection)
            connection.settimeout(TIMEOUT_S)
            try:
                hello = _exactly(connection, len(HELLO) + NONCE_BYTES)
            except ConnectionError as error:
                hint = "" if self._certificates else ", as one does that serves through TLS: name its certificateFile"
                raise ConnectionError(f"it ends the connection before a word{hint}") from error
            if not hello.startswith(HELLO):
                raise self._wrong("not a tap of this version")
            nonce = secrets.token_bytes(NONCE_BYTES)
            connection.sendall(_proof(self._token, b"client", hello[len(HELLO) :]) + nonce)
            try:
                proof = _exactly(connection, PROOF_BYTES)
            except ConnectionError:
                raise UsageError(f"tap {self.address} refuses the token: give the tap's own") from None
            if not hmac.compare_digest(proof, _proof(self._token, b"server", nonce)):
                raise self._wrong("the tap does not have the token")
        except BaseException:
            connection.close()
            raise
        return connection

    def _secured(self, tls: ssl.SSLContext, connection: socket.socket) -> ssl.SSLSocket:
        try:
            return tls.wrap_socket(connection, server_hostname=self._to[0])
        except ssl.SSLEOFError:
            raise
        except ssl.SSLCertVerificationError as error:
            raise UsageError(
                f"tap {self.address} has a certificate that is not trusted ({error.verify_message}): give the file of "
                "its authority, or the tap's own certificate, made for the address that you give"
            ) from error
        except ssl.SSLError as error:
            raise UsageError(
                f"tap {self.address} does not serve through TLS as it should ({error.reason}): start it with "
                "--certificate and --key"
            ) from error

    def _wrong(self, what: str) -> RemoteProtocolError:
        self.close()
        return RemoteProtocolError(f"tap {self.address}: {what}")


# ---- both ------------------------------------------------------------------------------------------------------------


def _server_context(certificate: str | Path | None, key: str | Path | None) -> ssl.SSLContext | None:
    """
    Raises:
        UsageError: one of the files is missing, or is of another kind.
    """
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("TLS needs both the certificate and its key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        for file in (certificate, key):
            read_file(file, NAMED_BYTES_MAX, links=True)  # OpenSSL would wait for ever for a FIFO
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise UsageError(
            f"{certificate} and {key} are not a certificate and its key in PEM: {error.reason or error}"
        ) from error
    except OSError as error:
        raise UsageError(f"the certificate {certificate} or its key {key} cannot be read: {error.strerror}") from error
    return context


def client_context(certificates: str) -> ssl.SSLContext | None:
    """The TLS context that checks a tap's certificate; None: no TLS.

    Raises:
        UsageError: the text has no PEM certificate.
    """
    if not certificates:
        return None
    try:
        return ssl.create_default_context(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise UsageError(
            "the certificates to trust are not certificates as PEM: give the file of the tap's authority, or the tap's "
            "own certificate"
        ) from error


def _proof(token: bytes, side: bytes, nonce: bytes) -> bytes:
    return hmac.new(token, side + nonce, hashlib.sha256).digest()


def _send(connection: socket.socket, kind: bytes, contents: Any) -> None:
    view = memoryview(contents)
    connection.sendall(_FRAME.pack(kind, view.nbytes))
    connection.sendall(view)


def _receive(connection: socket.socket, bytes_max: int) -> tuple[bytes, bytes] | None:
    """The next frame; None if the other side has closed the connection between two frames."""
    head = connection.recv(_FRAME.size)
    if not head:
        return None
    if len(head) < _FRAME.size:
        head += _exactly(connection, _FRAME.size - len(head))
    kind, size = _FRAME.unpack(head)
    if size > bytes_max:
        raise RemoteProtocolError(f"a frame of {size} bytes, more than {bytes_max}")
    return kind, _exactly(connection, size)


def _exactly(connection: socket.socket, size: int, until: float | None = None) -> bytes:
    """``until``: when all must have arrived, monotonic seconds; None: each part within the socket's own timeout."""
    parts = []
    while size:  # memory grows with the data that arrived, whatever the frame's head says
        if until is not None:
            if (left := until - time.monotonic()) <= 0:
                raise TimeoutError("the data did not arrive in time")
            connection.settimeout(left)
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise ConnectionResetError("the connection ended in the middle of a frame")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
