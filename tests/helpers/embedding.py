"""The table of functions for C, called from Python by ctypes: a field for each member of the structs in embed.h."""

from __future__ import annotations

import ctypes
from typing import Any

from seqcast import embed

OK, NONE, ENDED, NO_MEMBER, TOO_LARGE = 0, 1, -1, -2, -3
BAD_ARGUMENT, HOLDS_GIL, ALL_BORROWED, NOT_BORROWED, IN_USE, FAILED = -5, -6, -7, -8, -9, -10
MESSAGES, VIEW, MERGE_VIEW, LOST, EXCLUDED, LEFT, COORDINATOR_CHANGED, SKIPPED = 1, 2, 3, 4, 8, 9, 10, 11
ITEMS_MAX = 64


class Message(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("len", "sender", "seqno", "global_seqno")),
        ("sent_ns", ctypes.c_int64),
        ("index", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
    )


class Item(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("n", ctypes.c_uint32),
        ("bytes", ctypes.c_uint64),
        ("ids", ctypes.POINTER(ctypes.c_uint64)),
        ("names", ctypes.POINTER(ctypes.c_char_p)),
        ("view", ctypes.c_uint64),
        ("rank", ctypes.c_int32),
        ("sequencer", ctypes.c_int32),
        ("text", ctypes.c_char_p),
        ("event", ctypes.c_void_p),
    )


_member, _item = ctypes.c_void_p, ctypes.POINTER(Item)
without_gil = ctypes.CFUNCTYPE
FUNCTIONS = (
    ("open", ctypes.PYFUNCTYPE(_member, ctypes.py_object)),
    ("send", without_gil(ctypes.c_int, _member, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t,
                         ctypes.c_int64)),
    ("flush", without_gil(ctypes.c_int, _member)),
    ("poll", without_gil(ctypes.c_int, _member, ctypes.c_uint64, ctypes.c_int64, ctypes.POINTER(_item))),
    ("next", without_gil(ctypes.POINTER(Message), _item)),
    ("give_back", without_gil(ctypes.c_int, _member, _item)),
    ("descriptor", without_gil(ctypes.c_ssize_t, _member)),
    ("watch", without_gil(ctypes.c_int, _member)),
    ("error", without_gil(ctypes.c_char_p, _member)),
    ("close", without_gil(ctypes.c_int, _member)),
)  # fmt: skip


class Table(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("size", ctypes.c_uint32), *FUNCTIONS)


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
TABLE = Table.from_address(_pointer(embed.table, b"seqcast.embed.table"))


class Handle:
    """A handle of a group."""

    def __init__(self, group: Any) -> None:
        self.member = TABLE.open(group)

    def send(self, payload: bytes | None, to: int = 0, flags: int = 0, timeout_ns: int = -1) -> int:
        size = 1 if payload is None else len(payload)
        return int(TABLE.send(self.member, to, flags, payload, size, timeout_ns))

    def poll(self, budget: int = 1 << 20, timeout_s: float = 0.0) -> tuple[int, Any]:
        item = _item()
        code = TABLE.poll(self.member, budget, int(timeout_s * 1e9), ctypes.byref(item))
        return code, item

    def payloads(self, item: Any) -> list[bytes]:
        found = []
        while message := TABLE.next(item):
            found.append(ctypes.string_at(message.contents.data, message.contents.len))
        return found

    def give_back(self, item: Any) -> int:
        return int(TABLE.give_back(self.member, item))

    def until(self, kind: int, timeout_s: float = 30.0) -> Any:
        """The next item of this kind; earlier ones are given back."""
        while True:
            code, item = self.poll(timeout_s=timeout_s)
            assert code == OK, (code, TABLE.error(self.member))
            if item.contents.kind == kind:
                return item
            self.give_back(item)

    def close(self) -> int:
        code = int(TABLE.close(self.member))
        if code == OK:
            self.member = None
        return code
