"""The store of a late-join handler: its deliveries, in a SQLite file (PB-05).

The file survives the death of its process at any moment (write-ahead log; an application's messages are committed
before it gets them). The file does not grow beyond its bounds: the oldest packets are removed first. Nor is the file
trusted
blindly: a damaged one is refused on opening, and each packet has a checksum of its own.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator

import seqcast.codes as codes
from seqcast._native.engine import crc32c
from seqcast.crowd.datagrams import ID_BYTES
from seqcast.errors import ConfigError

log = logging.getLogger("seqcast.gossip")

FORMAT = 1
ROW_BYTES = 64
"""Approximate size of a packet's row beside its payload, bytes."""
ENDS_MAX = 65_536
"""Senders of which no packet is kept, but the last seqno."""
STEP = 256
"""How many packets one transaction removes."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (format INTEGER NOT NULL, crowd TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS packets (id INTEGER PRIMARY KEY AUTOINCREMENT, sender BLOB NOT NULL, seqno INTEGER NOT NULL,
    stored_s REAL NOT NULL, crc INTEGER NOT NULL, payload BLOB NOT NULL, UNIQUE (sender, seqno));
CREATE TABLE IF NOT EXISTS ends (sender BLOB PRIMARY KEY, seqno INTEGER NOT NULL) WITHOUT ROWID;
"""


class PacketStore:
    """The methods of ``crowd.streams.LateJoinStore``. For one thread.

    Args:
        path: of the file, created if missing.
        crowd: name of the crowd; a file belongs to one.
        bytes_max: of packets that are kept.
        age_s: seconds that a packet is kept; 0: no limit.
        clock: seconds since 1970.

    Raises:
        ConfigError: the file cannot be used: damaged, of another crowd, in use, or no store.
    """

    def __init__(
        self, path: str, crowd: str, bytes_max: int, age_s: float = 0.0, clock: Callable[[], float] = time.time
    ) -> None:
        self._path, self._bytes_max, self._age_s, self._clock = path, bytes_max, age_s, clock
        self.counters = {"store_packets": 0, "store_bytes": 0, "store_collected": 0, "store_bad": 0, "store_errors": 0}
        self._spans: dict[int, tuple[int, int]] = {}
        self._ends: dict[int, int] = {}
        self._dirty: dict[int, None] = {}  # senders whose end is to be written
        self._open = False  # a transaction
        self._broken = False
        self._age_check_s = 0.0
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=1.0, check_same_thread=False)
            try:
                self._begin(crowd)
            except BaseException:
                self._db.close()
                raise
        except sqlite3.OperationalError as error:
            raise ConfigError(f"store={path!r} cannot be opened: {error}. Does another member use it?") from error
        except sqlite3.DatabaseError as error:
            raise _damaged(path, str(error)) from error

    def _begin(self, crowd: str) -> None:
        db = self._db
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise _damaged(self._path, found)
        db.executescript(_SCHEMA)
        about = db.execute("SELECT format, crowd FROM about").fetchone()
        if about is None:
            db.execute("INSERT INTO about VALUES (?, ?)", (FORMAT, crowd))
        elif about != (FORMAT, crowd):
            raise ConfigError(
                f"store={self._path!r} has format {about[0]} and is of the crowd {about[1]!r}: each crowd needs a file "
                "of its own"
            )
        for sender, first, last in db.execute("SELECT sender, min(seqno), max(seqno) FROM packets GROUP BY sender"):
            self._spans[int.from_bytes(sender)] = first, last
        ends = db.execute("SELECT sender, seqno FROM ends")
        self._ends = {int.from_bytes(sender): seqno for sender, seqno in ends}
        total = "SELECT count(*), coalesce(sum(length(payload)), 0) FROM packets"
        self.counters["store_packets"], payloads = db.execute(total).fetchone()
        self.counters["store_bytes"] = payloads + ROW_BYTES * self.counters["store_packets"]

    # ---- used by a late-join handler

    def put(self, sender: int, seqno: int, payload: bytes) -> None:
        """Keeps a packet, safe after ``flush``. After an error nothing is kept any more: see ``store_errors``."""
        if self._broken:
            return
        raw = sender.to_bytes(ID_BYTES)
        row = (raw, seqno, self._clock(), _crc(raw, seqno, payload), payload)
        try:
            if not self._open:
                self._db.execute("BEGIN IMMEDIATE")
                self._open = True
            insert = "INSERT OR IGNORE INTO packets (sender, seqno, stored_s, crc, payload) VALUES (?, ?, ?, ?, ?)"
            if not self._db.execute(insert, row).rowcount:
                return  # a sender that was forgotten sends old packets again
        except sqlite3.Error as error:
            self._break(error)
            return
        first, last = self._spans.get(sender, (seqno, seqno))
        self._spans[sender] = min(first, seqno), max(last, seqno)
        self._ends.pop(sender, 0)
        self._ends[sender] = seqno  # the newest is the last; a restored stream continues below its old numbers
        self._dirty[sender] = None
        self.counters["store_packets"] += 1
        self.counters["store_bytes"] += len(payload) + ROW_BYTES

    def after_fork(self) -> None:
        """In a child process: the connection is never closed there, as SQLite would remove the log that the parent
        still writes to."""
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._db))

    def find(self, sender: int, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Those of these packets that are kept, with their seqnos, without packets that have a bad checksum."""
        raw = sender.to_bytes(ID_BYTES)
        try:
            rows = self._db.execute(
                "SELECT seqno, crc, payload FROM packets WHERE sender = ? AND seqno BETWEEN ? AND ? ORDER BY seqno",
                (raw, first, last),
            )
            for seqno, crc, payload in rows:
                if _crc(raw, seqno, payload) == crc:
                    yield seqno, payload
                else:
                    self.counters["store_bad"] += 1
        except sqlite3.Error as error:
            self._break(error)

    def kept(self) -> dict[int, tuple[int, int]]:
        """By sender, the first and the last seqno that are kept."""
        return {} if self._broken else self._spans

    def ends(self) -> dict[int, int]:
        """By sender, the last seqno that was ever put."""
        return self._ends

    def flush(self) -> None:
        """Commits the packets put, and removes those beyond the bounds."""
        now = self._clock()
        aged = self._age_s > 0 and now >= self._age_check_s
        if self._broken or not (self._open or aged):
            return
        try:
            self._write()
            if aged:
                self._age_check_s = now + self._age_s / 100
                while self._remove("WHERE stored_s < ? ORDER BY id LIMIT ?", now - self._age_s, STEP):
                    pass
            while self.counters["store_bytes"] > self._bytes_max and self._remove("ORDER BY id LIMIT ?", STEP):
                pass
            self._db.execute("COMMIT")
            self._open = False
        except sqlite3.Error as error:
            self._break(error)

    def close(self) -> None:
        self.flush()
        self._db.close()

    # ---- inside

    def _write(self) -> None:
        if not self._open:
            self._db.execute("BEGIN IMMEDIATE")
            self._open = True
        ends = [(sender.to_bytes(ID_BYTES), self._ends[sender]) for sender in self._dirty]
        self._db.executemany("INSERT OR REPLACE INTO ends VALUES (?, ?)", ends)
        self._dirty.clear()
        if len(self._ends) - len(self._spans) > ENDS_MAX:
            gone = [sender for sender in self._ends if sender not in self._spans][: ENDS_MAX // 2]
            self._db.executemany("DELETE FROM ends WHERE sender = ?", [(each.to_bytes(ID_BYTES),) for each in gone])
            for sender in gone:
                del self._ends[sender]

    def _remove(self, which: str, *values: float) -> bool:
        """Removes the oldest packets of these; False: there were none."""
        rows = self._db.execute(f"SELECT id, sender, seqno, length(payload) FROM packets {which}", values).fetchall()
        self._db.executemany("DELETE FROM packets WHERE id = ?", [(row[0],) for row in rows])
        for _, raw, seqno, nbytes in rows:
            sender = int.from_bytes(raw)
            first, last = self._spans[sender]
            if seqno >= last:
                del self._spans[sender]
            else:
                self._spans[sender] = max(first, seqno + 1), last
            self.counters["store_bytes"] -= nbytes + ROW_BYTES
        self.counters["store_packets"] -= len(rows)
        self.counters["store_collected"] += len(rows)
        return bool(rows)

    def _break(self, error: sqlite3.Error) -> None:
        """The disk is full, or the file was damaged meanwhile: the member continues, but is no longer a late-join
        handler."""
        self.counters["store_errors"] += 1
        self._broken, self._open = True, False
        text = codes.JOURNAL_FAILED("the store %s keeps nothing from now on and serves no joiner: %s")
        log.warning(text, self._path, error)


def _crc(raw: bytes, seqno: int, payload: bytes) -> int:
    return crc32c(raw + seqno.to_bytes(8) + payload)


def _damaged(path: str, what: str) -> ConfigError:
    return ConfigError(
        f"store={path!r} is damaged and cannot be used: {' '.join(what.split())}. Move it away: this member then "
        "begins an empty one, and with history=True fetches the messages that other late-join handlers keep"
    )
