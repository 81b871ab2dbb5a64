"""VIEWs of a group with a key whose wrapped secrets lie: wraps.py [INPUTS] [SEED]

The wraps are opened in Python, with real key pairs. Each input is a VIEW in the form that comes from the network, to a
member whose view the frame would close, or to a named joiner. One thing about its wraps is wrong: their lengths,
number, order, form or bytes, the key of the maker, or the cipher. The sender has the key file, or is a member and
proves that. Each is counted, or passed over by a joiner, and dropped: no view and no secret changes.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sim_stage import Stage

import seqcast.sim.process as process
from seqcast.core.frames.kinds import dump, load
from seqcast.core.frames.view import WRAP_BYTES, NewView
from seqcast.core.vocabulary import ViewInstalled
from seqcast.errors import RemoteProtocolError
from seqcast.net.secure import KeyPair
from seqcast.reports import FrameReceived
from seqcast.types import ViewId

LOW_ORDER = [bytes(32), b"\1" + bytes(31), b"\xff" * 32, b"\xec" + b"\xff" * 30 + b"\x7f"]
DIGITS = 2 * WRAP_BYTES
NO_WRAP = (
    None, True, 0, -1, 1 << 70, 1.5, "", "z" * DIGITS, "A" * DIGITS, "é" * DIGITS, [], {}, ["0" * DIGITS], {"0": "00"},
)  # fmt: skip


class Fuzz:
    """A member, a joiner, and the VIEW that a has made: the next one of the member, the first of the joiner."""

    def __init__(self, seed: int) -> None:
        self.rng, self.seen = random.Random(seed), Counter[str]()
        stage = Stage(keyed=True)
        stage.group("a", "b", "c")
        a, self.member = stage.nodes[0], stage.nodes[1]
        stage.named("d", 1000)
        stage.refuse = lambda source, node, frame: True
        stage.until(1050)
        self.joiner, self.maker = stage.node("d"), a
        context = a.endpoint.context
        before = context.entered
        infos = (*before.members, self.joiner.endpoint.context.me)
        self.view = context.secrets.given(
            replace(
                before,
                closes=before.view_id,
                view_id=ViewId(before.view_id.counter + 1, before.view_id.coordinator, (1, a.id)),
                attempt=(1, 0),
                survivors=tuple(info.id for info in before.members),
                members=infos,
                cut=(0,) * 3,
                table=(0,) * 3,
                base=(0,) * 4,
                origin_base=(0,) * 4,
                labels=(0,) * 4,
            )
        )
        assert load(dump(self.view)) == self.view
        self.plain: dict[str, Any] = json.loads(dump(self.view))
        self.wraps: list[str] = self.plain["wraps"]
        other = KeyPair()
        self.foreign = [
            *(each.hex() for each in before.wraps),
            *(other.wrap(info.key, b"", other.draw()).hex() for info in infos),
        ]
        self.keys = [*(info.key for info in infos), other.public, *LOW_ORDER]
        self.lies: list[Callable[[list[Any], int], object]] = [
            self.flipped, self.resized, self.no_text, self.another, self.swapped, self.longer, self.shorter,
            self.cipher, self.key, self.missing,
        ]  # fmt: skip

    # ---- one lie each, about the wrap at a place

    def flipped(self, wraps: list[Any], place: int) -> None:
        at = self.rng.randrange(DIGITS)
        digit = self.rng.choice([each for each in "0123456789abcdef" if each != wraps[place][at]])
        wraps[place] = wraps[place][:at] + digit + wraps[place][at + 1 :]

    def resized(self, wraps: list[Any], place: int) -> None:
        digits = self.rng.choice([*range(DIGITS), DIGITS + 1, DIGITS + 2, 2 * DIGITS, 4096])
        wraps[place] = (wraps[place] * 43)[:digits]

    def no_text(self, wraps: list[Any], place: int) -> None:
        wraps[place] = self.rng.choice(NO_WRAP)

    def another(self, wraps: list[Any], place: int) -> None:
        others = [each for each in (*self.wraps, *self.foreign) if each != wraps[place]]
        wraps[place] = self.rng.choice([*others, self.rng.randbytes(WRAP_BYTES).hex()])

    def swapped(self, wraps: list[Any], place: int) -> None:
        other = self.rng.choice([each for each in range(len(wraps)) if each != place])
        wraps[place], wraps[other] = wraps[other], wraps[place]

    def longer(self, wraps: list[Any], place: int) -> None:
        wraps[place:place] = self.rng.choices(self.wraps, k=self.rng.choice((1, 2, 124, 125, 1000)))

    def shorter(self, wraps: list[Any], place: int) -> None:
        del wraps[self.rng.randrange(place + 1) :]

    def cipher(self, _wraps: list[Any], _place: int) -> dict[str, Any]:
        others = [each for each in (0, 1, 2, 3, 4, 255, 256, -1, None, "1") if each != self.view.cipher]
        return {"cipher": self.rng.choice(others)}

    def key(self, _wraps: list[Any], _place: int) -> dict[str, Any]:
        drawn = self.rng.choice([*self.keys, self.rng.randbytes(32), self.rng.randbytes(31), b""])
        return {"maker_key": drawn.hex() if drawn != self.view.maker_key else "00"}

    def missing(self, _wraps: list[Any], _place: int) -> dict[str, Any]:
        return {"wraps": self.rng.choice(([], None, {}, "", self.wraps[0]))}

    # ---- inputs

    def drawn(self, place: int) -> bytes:
        """A VIEW that lies to the one at this place."""
        wraps: list[Any] = list(self.wraps)
        lie = self.rng.choice(self.lies)
        changed = {**self.plain, "wraps": wraps, **(lie(wraps, place) or {})}
        if self.rng.random() < 0.5:
            changed["proof"] = self.proof(changed)
        return json.dumps(changed).encode("utf-8")

    def proof(self, changed: dict[str, Any]) -> str:
        """That a member sends this, provided that this is a VIEW."""
        try:
            frame = load(json.dumps(changed).encode("utf-8"))
        except RemoteProtocolError:
            return self.plain["proof"]
        assert isinstance(frame, NewView)
        self.seen["proven"] += 1
        return self.maker.endpoint.context.secrets.proven(frame).proof.hex()

    def state(self) -> list[Any]:
        return [
            (node.endpoint.view, node.endpoint.over, bytes(node.endpoint.context.secrets._current))
            for node in (self.member, self.joiner)
        ]

    def tell(self, node: Any, payload: bytes) -> list[Any]:
        """The effects on a member."""
        received = FrameReceived(self.maker.id, self.maker.address, payload, True)
        return node.endpoint.step((received,), node.world.clock.now)

    def one(self) -> None:
        node, place = self.rng.choice(((self.member, 1), (self.joiner, 3)))
        payload, bad = self.drawn(place), node.endpoint.counters["frames_bad"]
        effects = self.tell(node, payload)
        assert not any(isinstance(each, ViewInstalled) for each in effects), payload
        counted = node.endpoint.counters["frames_bad"] - bad
        assert counted or node is self.joiner, payload
        self.seen["counted" if counted else "passed over"] += 1

    def run(self, inputs: int) -> None:
        before = self.state()
        for number in range(inputs):
            self.one()
            if number % 1000 == 999:
                assert self.state() == before, number
        assert self.state() == before
        contexts = [node.endpoint.context for node in (self.member, self.joiner)]
        assert len({bytes(each.secrets.of(self.view)) for each in contexts}) == 1
        assert contexts[0].secrets.fault(self.view, contexts[0].infos) == ""
        self.tell(self.joiner, dump(self.view))
        assert self.joiner.endpoint.context.entered == self.view, "the joiner still enters what is true"


def main() -> None:
    inputs, seed = (int(each) for each in [*sys.argv[1:], *("100000", "1")[len(sys.argv) - 1 :]])
    process.SimulatedExchange = lambda *_: KeyPair()  # type: ignore[assignment, misc]
    fuzz = Fuzz(seed)
    fuzz.run(inputs)
    assert min(fuzz.seen[each] for each in ("counted", "passed over", "proven")) > inputs // 20, fuzz.seen
    print(f"{inputs} VIEWs with false wraps, seed {seed}: {dict(fuzz.seen)}; nobody took one")


if __name__ == "__main__":
    main()
