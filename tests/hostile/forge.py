"""Datagrams with a right CRC that nobody of the group has sent, of every type in native/wire/wire.h."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from seqcast._native.bare import crc32c
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.kinds import SCHEMAS, Frame, dump
from seqcast.core.frames.view import NewView
from seqcast.sim.seal import SECRETS, TAGS, encrypted
from seqcast.sim.seal import sealed_outside as by_file

MAGIC = 0xC5
DATA, UNICAST, FORWARD, ACK, NAK, PROBE, HEARTBEAT, CONTROL, STATE, PING, PONG, ASK, TAKEN, RECORD, TOTAL = range(1, 16)
PIECE = 18
WANT, GRANT = 20, 21
GROUP_STREAM, UNICAST_STREAM, FORWARD_STREAM, STATE_STREAM = range(4)
CONT_IN, CONT_OUT, BESIDE, EVEN = 1, 2, 8, 32
SEQNO_MAX = 1 << 62
_COMMON = struct.Struct("<BBBBIIHHQQQ")


def wire_version() -> int:
    """The engine's own fields in its datagrams."""
    from seqcast._native.engine import LANE_CONTROL, Engine
    from seqcast.config import Config
    from seqcast.config.derive import engine_settings

    engine = Engine(member_id=1, group_tag=1, seed=1, **engine_settings(Config()))
    engine.control_send(b"{}")
    ((lane, _, datagram),) = engine.transmit(0)
    assert lane == LANE_CONTROL
    return datagram[1]


VERSION = wire_version()


def sealed(datagram: bytes) -> bytes:
    """The same with its CRC."""
    out = bytearray(datagram)
    out[4:8] = bytes(4)
    out[4:8] = crc32c(out).to_bytes(4, "little")
    return bytes(out)


def member_tag(head: bytes, body: bytes, count: bytes, tag: int, secret: bytes) -> bytes:
    """In a datagram that the secret of the file seals: by it those with the secret of a view see that its sealer has
    that, too.

    Args:
        head: the header as sent.
        count: the number at the end.
    """
    digest = hashlib.blake2b(body, digest_size=32, key=head + bytes(8), person=b"seqcast body").digest()
    said = tag.to_bytes(8, "little") + count + digest
    return hashlib.blake2b(said, digest_size=16, key=secret, person=b"seqcast member").digest()[:8]


def sealed_outside(
    datagram: bytes, number: int, mark: int = 20, views: Sequence[tuple[int, bytes]] = (), tags: bytes = b""
) -> bytes:
    """Any datagram, as sealed by a holder of the key file of a simulated group.

    Args:
        views: tag and secret of those that the sealer has, too: at most two.
        tags: others in place of those.
    """
    count = (number | (1 << 63 if datagram[2] in (DATA, UNICAST, FORWARD, STATE, RECORD) else 0)).to_bytes(8, "little")
    head = datagram[:4] + b"rand" + datagram[8:12] + (0x4000 | mark << 9).to_bytes(2, "little") + datagram[14:40]
    tags = tags or b"".join(member_tag(head, datagram[40:], count, *view) for view in views)
    return head + by_file(datagram[40:], head, SECRETS[mark], count + b"rand" + bytes(4), tags) + count


Cipher = Callable[[bytes, bytes, bytes, bytes], bytes]
"""Of the body, the proven bytes, the key, and a nonce of 16 bytes."""


def _simulated(body: bytes, proven: bytes, key: bytes, nonce: bytes) -> bytes:
    return encrypted(body, proven, key, nonce, TAGS[1])


def sealed_inside(
    datagram: bytes, number: int, tag: int, secret: bytes, target: int = 0, cipher: Cipher = _simulated,
    key_bytes: int = 16,
) -> bytes:  # fmt: skip
    """A datagram as sealed by a holder of the secret of the view with this tag, whatever view the datagram names.

    Args:
        target: the only member that can open the datagram; 0: all can.
        cipher, key_bytes: of the view.
    """
    key = hashlib.blake2b(
        datagram[16:24] + tag.to_bytes(8, "little"), digest_size=key_bytes, key=secret, person=b"seqcast sealer"
    ).digest()
    data = datagram[2] in (DATA, UNICAST, FORWARD, STATE, RECORD)
    count = (number | (tag & 0x7FFF) << 48 | data << 63).to_bytes(8, "little")
    head = (
        datagram[:4] + b"rand" + datagram[8:12] + (0x8000 | bool(target) << 8).to_bytes(2, "little") + datagram[14:40]
    )
    nonce = count + b"rand" + bytes(4)
    return head + cipher(datagram[40:], head + target.to_bytes(8, "little"), key, nonce) + count


@dataclass(frozen=True)
class Forger:
    """Makes datagrams of one group.

    Args:
        group: the 32-bit tag of the cluster's name.
    """

    group: int

    def datagram(self, kind: int, sender: int, view: int, body: bytes = b"", seqno: int = 0, flags: int = 0) -> bytes:
        head = _COMMON.pack(MAGIC, VERSION, kind, flags, 0, self.group, 0, 0, sender, view, seqno)
        return sealed(head + body)

    def packet(
        self,
        kind: int,
        sender: int,
        view: int,
        seqno: int,
        pieces: Sequence[bytes] = (b"forged",),
        *,
        stable: int = 0,
        origin: int = 0,
        place: int = 0,
        rank: int = 0,
        flags: int = 0,
        even: tuple[int, int] | None = None,
    ) -> bytes:
        """A data packet (DATA, UNICAST, FORWARD, STATE) with these messages.

        Args:
            even: in place of offsets, where its first piece ends and the length of each whole message.
        """
        data = b"".join(pieces)
        offsets, end = [0], 0
        for piece in pieces:
            offsets.append(end := end + len(piece))
        body = struct.pack("<QqQQIHH", stable, 0, origin, place, len(data), len(pieces), rank)
        body += data + bytes(-len(data) % 4)
        body += struct.pack("<2H", *even) if even else struct.pack(f"<{len(offsets)}i", *offsets)
        return self.datagram(kind, sender, view, body, seqno, flags | (EVEN if even else 0))

    def ack(self, sender: int, view: int, stream: int, delivered: int, received: int, consumed: int) -> bytes:
        return self.datagram(ACK, sender, view, struct.pack("<QQQQQQ", stream, delivered, received, consumed, 0, 0))

    def nak(self, sender: int, view: int, owner: int, stream: int, ranges: Sequence[tuple[int, int]]) -> bytes:
        body = struct.pack("<QII", owner, stream, len(ranges)) + b"".join(struct.pack("<QQ", *each) for each in ranges)
        return self.datagram(NAK, sender, view, body)

    def probe(self, sender: int, view: int, stream: int, highest: int, stable: int) -> bytes:
        return self.datagram(PROBE, sender, view, struct.pack("<QQQ", stream, highest, stable))

    def heartbeat(
        self,
        sender: int,
        view: int,
        highest: int,
        stable: int,
        marks: Sequence[tuple[int, int]],
        unheard: int = 0,
        path: int = 0,
        work: tuple[int, int] = (0, 0),
    ) -> bytes:
        links = unheard.to_bytes(16, "little") + bytes(38) + path.to_bytes(2, "little")
        body = struct.pack("<QQII", highest, stable, len(marks), 0) + links + struct.pack("<QQ", *work)
        return self.datagram(HEARTBEAT, sender, view, body + b"".join(struct.pack("<QQ", *mark) for mark in marks))

    def ping(self, kind: int, sender: int, view: int, target: int, origin: int) -> bytes:
        return self.datagram(kind, sender, view, struct.pack("<QQ", target, origin))

    def record(
        self,
        sender: int,
        view: int,
        seqno: int,
        entries: Sequence[tuple[int, int]],
        *,
        stable: int = 0,
        place: int = 0,
        rank: int = 0,
    ) -> bytes:
        """A RECORD with these (rank, count)."""
        data = b"".join(struct.pack("<HH", *entry) for entry in entries)
        body = struct.pack("<QqQQIHH", stable, 0, 0, place, len(data), len(entries), rank) + data
        return self.datagram(RECORD, sender, view, body, seqno)

    def grant(self, kind: int, sender: int, view: int, number: int, count: int, place: int = 0) -> bytes:
        """A WANT or a GRANT."""
        return self.datagram(kind, sender, view, struct.pack("<QQII", number, place, count, 0))

    def total(self, sender: int, view: int, header: int, sequence_id: int) -> bytes:
        """A header of the TOTAL protocol: 1 is NEW_VIEW, 2 its acknowledgement, 3 SEQ_ACK."""
        return self.datagram(TOTAL, sender, view, struct.pack("<QII", sequence_id, header, 0))

    def taken(self, kind: int, sender: int, view: int, seqno: int) -> bytes:
        """An ASK or a TAKEN."""
        return self.datagram(kind, sender, view, struct.pack("<Q", seqno))

    def pieces(self, whole: bytes, sender: int, view: int, number: int, each: int) -> list[bytes]:
        """A datagram in pieces of `each` bytes."""
        parts = [whole[at : at + each] for at in range(0, len(whole), each)]
        heads = [struct.pack("<QIHH", number, len(whole), each, index) for index in range(len(parts))]
        return [self.datagram(PIECE, sender, view, head + part) for head, part in zip(heads, parts, strict=True)]

    def control(self, sender: int, frame: Frame | bytes, view: int = 0) -> bytes:
        return self.datagram(CONTROL, sender, view, frame if isinstance(frame, bytes) else dump(frame))


# ---- frames of any kind, drawn ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """An outsider's knowledge of a group, all from multicasts.

    Args:
        view: the id of the present view; ``closed``: of the one before, if known.
        infos: its members, by rank.
        cluster, order: of the group.
        entered: the VIEW that began the present one.
    """

    infos: tuple[MemberInfo, ...]
    entered: NewView
    cluster: str
    order: str
    closed: tuple[int, ...] = ()
    shared: tuple[tuple[str, str], ...] = ()

    @property
    def view(self) -> Any:
        return self.entered.view_id


class Drawer:
    """Draws frames: right by their schema, likely in some fields and impossible in others."""

    def __init__(self, rng: random.Random, known: Known, own: int, address: bytes) -> None:
        self.rng, self.known, self.own, self.address = rng, known, own, address

    def count(self) -> int:
        return self.rng.choice((0, 1, 1, 2, 3, 5, self.rng.randrange(100), (1 << 53) - 1))

    def seqno(self) -> int:
        return self.rng.choice((0, 1, 2, 10, self.rng.randrange(1000), SEQNO_MAX - 1, SEQNO_MAX))

    def tag(self) -> int:
        return self.rng.choice((self.known.view.tag,) * 6 + (*self.known.closed, self.rng.getrandbits(64) | 1))

    def ids(self) -> tuple[int, ...]:
        ids = [info.id for info in self.known.infos]
        if self.rng.random() < 0.3:
            ids = self.rng.sample(ids, self.rng.randrange(len(ids) + 1))
        if self.rng.random() < 0.2:
            ids.append(self.own)
        return tuple(ids)

    def member(self) -> int:
        return self.rng.choice((*(info.id for info in self.known.infos), self.own))

    def rank(self) -> int:
        return self.rng.randrange(len(self.known.infos) + self.rng.choice((0, 0, 0, 1)))

    def ranks(self) -> tuple[int, ...]:
        everyone = range(len(self.known.infos) + self.rng.choice((0, 0, 0, 1)))
        return tuple(self.rng.sample(everyone, self.rng.randrange(len(everyone) + 1)))

    def generation(self) -> int:
        """Of a token: the next, or one so high that nobody could send another."""
        return self.rng.choice((0, 1, 1, 2, 1 << 20, (1 << 53) - 1))

    def attempt(self) -> tuple[int, int]:
        return self.count(), self.rng.randrange(len(self.known.infos) + self.rng.choice((0, 1, 100)))

    def seqnos(self) -> tuple[int, ...]:
        return tuple(self.seqno() for _ in range(len(self.known.infos) + self.rng.choice((0, 0, 0, 1, -1))))

    def info(self) -> MemberInfo:
        other = self.rng.choice(self.known.infos).address
        address = self.rng.choice((self.address, self.address, other, b"\4", b"\6" * 28))
        name = self.rng.choice(("x", "\x1b[2J\x07", self.rng.choice(self.known.infos).name))
        return MemberInfo(name, self.own, address, 1 << 20, self.rng.choice((512, 1472, 65_000)), 1 << 20)

    def view(self) -> NewView:
        """A VIEW of which some fields are changed."""
        from dataclasses import replace

        from seqcast.types import ViewId

        rng, entered = self.rng, self.known.entered
        infos = list(self.known.infos)
        if rng.random() < 0.5:
            infos = [info for info in infos if rng.random() < 0.7] or infos
        if rng.random() < 0.5:
            infos.insert(rng.choice((0, len(infos))), self.info())
            if len({info.name for info in infos}) < len(infos):
                infos = list(self.known.infos)
        counter = entered.view_id.counter + rng.choice((0, 1, 1, 2, 1 << 40))
        view_id = ViewId(counter, infos[0].id, (self.count(), rng.choice((self.own, infos[0].id))))
        return replace(
            entered,
            closes=rng.choice((entered.view_id, entered.view_id, entered.closes, None)),
            attempt=self.attempt(),
            answers=rng.choice((None, self.attempt())),
            survivors=self.ids(),
            view_id=view_id,
            members=tuple(infos),
            sequencer=rng.choice((entered.sequencer, entered.sequencer, 0, len(infos) - 1, -1)),
            cut=(seqnos := self.seqnos()),
            table=seqnos,
            base=tuple(self.seqno() for _ in infos),
            origin_base=tuple(self.seqno() for _ in infos),
            providers=(),
            subgroups=(),
            shortfalls=(),
            departed=self.ids() if rng.random() < 0.3 else (),
        )

    def value(self, kind: str, field: str) -> Any:
        """A value for a field of a frame."""
        from seqcast.core.frames.fields import PROTOCOL_VERSION
        from seqcast.core.frames.joining import REFUSALS
        from seqcast.core.frames.recalling import Taken
        from seqcast.core.frames.unblocking import Side

        rng = self.rng
        if field in ("view", "proposal") and SCHEMAS[kind][1][field].text.startswith("an object"):
            return self.view()
        draw: dict[str, Callable[[], Any]] = {
            "version": lambda: rng.choice((PROTOCOL_VERSION, PROTOCOL_VERSION, 77)),
            "cluster": lambda: rng.choice((self.known.cluster, self.known.cluster, "another")),
            "order": lambda: rng.choice((self.known.order, self.known.order, "fifo")),
            "mechanism": lambda: rng.choice((self.known.entered.mechanism, self.known.entered.mechanism, 0, 1, 255)),
            "mechanisms": lambda: rng.choice(((0, 1), (0, 1), (1,), ())),
            "info": self.info,
            "was": self.was,
            "tries": self.count,
            "shared": lambda: self.known.shared,
            "view": self.tag,
            "reason": lambda: "\x1b]0;owned\x07 go away",
            "cause": lambda: rng.choice(REFUSALS),
            "attempt": self.attempt,
            "survivors": self.ids,
            "last": self.seqno,
            "held": lambda: self._held(kind),
            "lacks": lambda: rng.choice((None, self.ids())),
            "accepted": lambda: rng.choice(
                (None, Taken(self.attempt(), self.view()) if kind == "recalled" else self.attempt())
            ),
            "promise": self.attempt,
            "cut": self.seqnos,
            "fetch": self._fetch,
            "under": self.attempt,
            "pause": self.count,
            "repeat": self.count,
            "phase": lambda: rng.choice(("block", "stop", "hold")),
            "primary": lambda: rng.choice((None, 0, 1, 128)),
            "view_id": self._view_id,
            "request": self.count,
            "side": lambda: rng.choice((None,) * (kind == "unblock") + (Side(self.tag(), self.attempt()),)),
            "name": lambda: "\x1b[31mx",
            "reached": lambda: ("x",),
            "missing": lambda: ("y",),
            "allowed": lambda: True,
            "merge": lambda: (rng.choice((self.own, rng.choice(self.known.infos).id)), self.count()),
            "shortfalls": lambda: (),
            "nonce": lambda: rng.getrandbits(60) | 1,
            "generation": self.generation,
            "promised": self.generation,
            "source": self.member,
            "leader": self.member,
            "members": self.addresses if kind in ("wait", "beacon", "met") else self.ids,
            "visited": self.ids,
            "lost": self.ids,
            "joiners": lambda: (self.info(),) * rng.choice((0, 0, 1)),
            "origin": self.rank,
            "counter": self.count,
            "hops": self.count,
            "digest": self._digest,
            "seen": lambda: self.known.infos[0].address if kind in ("wait", "seen") else self.ranks(),
            "not_seen": self.ranks,
            "round": self.count,
            "counted": self.ranks,
            "least": self._leasts,
            "result": self._leasts,
        }
        return draw[field]() if field in draw else self._by_schema(SCHEMAS[kind][1][field])

    def was(self) -> Any:
        """Of a joiner that was in views before, which may follow each other in circles."""
        from seqcast.core.frames.joining import NOBODY, VIEWS_MAX, Past, Was

        rng, counter = self.rng, self.known.view.counter
        tags = [*{self.known.view.tag, *self.known.closed}, rng.getrandbits(64) | 1, rng.getrandbits(64) | 1]
        n = rng.randrange(min(len(tags), VIEWS_MAX) + 1)
        of, counters = rng.sample(tags, n), sorted(rng.sample(range(max(counter - 9, 0), counter + 9), n))
        if n and rng.random() < 0.1:
            of[0], counters[0] = of[-1], counters[-1]
        voters = (1, 1, 2, 3, 128) if rng.random() < 0.9 else (0, 129)
        views = tuple(
            Past(tag, number, rng.choice(voters), rng.choice((*tags, NOBODY)), rng.random() < 0.7)
            for tag, number in zip(of, counters, strict=True)
        )
        reached = rng.choice((0, self.count(), *counters))
        return rng.choice((None, Was(counter, self.tag(), self.member(), reached, self.count(), views)))

    def addresses(self) -> tuple[bytes, ...]:
        """Of some members, or of nobody."""
        known = [info.address for info in self.known.infos]
        return tuple(self.rng.choice((*known, b"\x7f\x00\x00\x01\x00\x09")) for _ in range(self.rng.randrange(4)))

    def _by_schema(self, schema: Any) -> Any:
        """For a field known by its schema alone: its simple values."""
        from seqcast.errors import RemoteProtocolError

        values = [0, 1, 2, self.count(), self.seqno(), f"{self.own:x}", "", "x", True, None, [], "name", [0, 0]]
        self.rng.shuffle(values)
        for value in values:
            try:
                return schema.load(value)
            except RemoteProtocolError:
                continue
        raise AssertionError(f"no value for {schema.text}")

    def _held(self, kind: str) -> Any:
        from seqcast.core.frames.closing import Held

        return self.seqnos() if kind == "suspended" else tuple(Held(seqno) for seqno in self.seqnos())

    def _fetch(self) -> Any:
        from seqcast.core.frames.closing import Fetch

        n = len(self.known.infos)
        lo = self.rng.choice((1, self.rng.randrange(1, 1000)))
        hi = lo + self.rng.choice((0, 5, 1 << 40))
        return tuple(Fetch(self.rng.randrange(n), lo, hi, self.rng.randrange(n)) for _ in range(3))

    def _digest(self) -> Any:
        from seqcast.core.frames.gossiping import Has

        return tuple(Has(rank, *(self.seqno() for _ in range(4)), *self._room()) for rank in self.ranks())

    def _room(self) -> tuple[int, int]:
        """A window, and for which claim."""
        return self.count(), self.rng.choice((0, 0, 1, 2, 65_535))

    def _leasts(self) -> Any:
        from seqcast.core.frames.gossiping import Least

        return tuple(Least(rank, self.seqno(), self.seqno(), *self._room()) for rank in self.ranks())

    def _view_id(self) -> Any:
        from seqcast.types import ViewId

        view = self.known.view
        return self.rng.choice((view, ViewId(view.counter + self.count(), self.own, (1, self.own))))

    def frame(self, kind: str) -> bytes | None:
        """The bytes of a frame of this kind; None if the drawn value does not fit its schema."""
        from seqcast.core.frames.kinds import load
        from seqcast.errors import RemoteProtocolError

        make, schemas = SCHEMAS[kind]
        if kind == "view":
            frame: Any = self.view()
        else:
            values = {field: self.value(kind, field) for field in schemas}
            if kind == "cut":
                values["cut"] = tuple(self.seqno() for _ in self.known.infos)
            frame = make(**values)
        data = dump(frame)
        try:
            load(data)
        except RemoteProtocolError:
            return None if self.rng.random() < 0.9 else data
        return data
