"""How a field of a control frame is written, and how a value is read and checked: numbers, texts, lists, records."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Container
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from seqcast.arguments import printable
from seqcast.errors import RemoteProtocolError


class Schema(NamedTuple):
    """How one field is written, and how a value is read and checked."""

    text: str
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


ADDED_MAX = 64
"""At most this many entries may follow those of a record that this release knows."""


def need(condition: bool, what: str) -> None:
    """Raises RemoteProtocolError unless ``condition`` holds."""
    if not condition:
        raise RemoteProtocolError(f"control frame: {what}")


def integer(text: str, lowest: int, highest: int) -> Schema:
    wanted = f"{text} expected"

    def load(value: Any) -> int:
        need(type(value) is int and lowest <= value <= highest, wanted)
        return int(value)

    return Schema(text, lambda value: value, load)


_HEX = frozenset("0123456789abcdef")


def _load_id(value: Any) -> int:
    need(isinstance(value, str) and 0 < len(value) <= 16 and _HEX.issuperset(value), "64-bit id in hex expected")
    number = int(value, 16)
    need(number > 0, "0 is not an id")
    return number


def _written(value: str) -> int:
    """Bytes of a text in a frame that passes the text on, without its quotes."""
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return len(value)  # without escapes
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")) - 2


def text(bytes_max: int, bytes_min: int = 1) -> Schema:
    """A name or a value: printable, as ``arguments.check_name`` requires."""

    def load(value: Any) -> str:
        need(isinstance(value, str) and value.isprintable(), "printable text expected")
        need(bytes_min <= _written(value) <= bytes_max, "text expected")
        return str(value)

    return Schema(f"text of at most {bytes_max} bytes", lambda value: value, load)


def prose(bytes_max: int, bytes_min: int = 1) -> Schema:
    """A reason for people: terminal controls are escaped."""

    def load(value: Any) -> str:
        need(isinstance(value, str), "text expected")
        need(bytes_min <= len(value.encode("utf-8", "replace")) <= bytes_max, "text expected")
        return printable(value)

    return Schema(f"text of at most {bytes_max} bytes", lambda value: value, load)


def clipped(value: str, bytes_max: int) -> str:
    """The beginning of a text, short enough for a field ``text(bytes_max)``."""
    while _written(value) > bytes_max:
        value = value[: len(value) * 7 // 8] + "…"
    return value


def _load_address(value: Any) -> bytes:
    need(isinstance(value, str) and 2 <= len(value) <= 56 and len(value) % 2 == 0, "address in hex expected")
    need(_HEX.issuperset(value), "address in hex expected")
    return bytes.fromhex(value)


def _load_flag(value: Any) -> bool:
    need(isinstance(value, bool), "true or false expected")
    return bool(value)


def octets(n: int) -> Schema:
    """A field of ``n`` bytes, or none."""
    wanted = f"{n} bytes in hex expected"

    def load(value: Any) -> bytes:
        need(isinstance(value, str) and len(value) in (0, 2 * n) and _HEX.issuperset(value), wanted)
        return bytes.fromhex(value)

    return Schema(f"{n} bytes in hexadecimal, or empty", lambda value: value.hex(), load)


def choice(*values: str) -> Schema:
    wanted = f"one of {', '.join(values)} expected"

    def load(value: Any) -> str:
        need(isinstance(value, str) and value in values, wanted)
        return str(value)

    return Schema(" or ".join(values), lambda value: value, load)


def list_of(item: Schema, most: int) -> Schema:
    wanted, load_one = f"list of at most {most} expected", item.load

    def load(value: Any) -> tuple[Any, ...]:
        need(isinstance(value, list) and len(value) <= most, wanted)
        return tuple([load_one(entry) for entry in value])

    return Schema(f"list of at most {most} × {item.text}", lambda value: [item.dump(entry) for entry in value], load)


def record(make: Callable[..., Any], fields: dict[str, Schema]) -> Schema:
    """An object, written as the list of its fields. Entries after them are of a later release, and passed over; fields
    that are missing at the end have their defaults, and those that have them are left out there."""
    names = f"[{', '.join(fields)}]"
    wanted, loads = f"{names} expected", [schema.load for schema in fields.values()]
    constant = defaults(make)
    least = max(place for place, name in enumerate(fields, 1) if name not in constant)
    ends = [constant[name] for name in list(fields)[least:]]

    def load(value: Any) -> Any:
        need(isinstance(value, list) and least <= len(value) <= len(loads) + ADDED_MAX, wanted)
        return make(*[load_one(entry) for load_one, entry in zip(loads, value, strict=False)])

    def dump(value: Any) -> list[Any]:
        values = [getattr(value, name) for name in fields]
        while len(values) > least and values[-1] == ends[len(values) - 1 - least]:
            values.pop()
        return [schema.dump(each) for schema, each in zip(fields.values(), values, strict=False)]

    return Schema(names, dump, load)


def pair(names: tuple[str, str], first: Schema, second: Schema) -> Schema:
    wanted = f"[{', '.join(names)}] expected"

    def load(value: Any) -> tuple[Any, Any]:
        need(isinstance(value, list) and len(value) == 2, wanted)
        return first.load(value[0]), second.load(value[1])

    return Schema(f"[{', '.join(names)}]", lambda value: [first.dump(value[0]), second.dump(value[1])], load)


def optional(item: Schema) -> Schema:
    return Schema(
        f"{item.text}, or null",
        lambda value: None if value is None else item.dump(value),
        lambda value: None if value is None else item.load(value),
    )


ID = Schema("64-bit id in hexadecimal", lambda value: f"{value:x}", _load_id)
FLAG = Schema("true or false", lambda value: value, _load_flag)
ADDRESS = Schema("address in hexadecimal", lambda value: value.hex(), _load_address)


def schema_of(hint: Any) -> Schema:
    """The schema of a field by its annotation: ``Annotated`` with a schema, a record, or one of these or None."""
    if hasattr(hint, "__metadata__"):
        schema: Schema = hint.__metadata__[0]
        return schema
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        return optional(schema_of(get_args(hint)[0]))
    return record(hint, fields_of(hint))


def fields_of(kind: type[Any]) -> dict[str, Schema]:
    """The schemas of the fields of a frame or a record, by name."""
    return {name: schema_of(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


_fields_once = functools.cache(fields_of)


def dump_fields(value: object, fields: dict[str, Schema]) -> dict[str, Any]:
    return {name: schema.dump(getattr(value, name)) for name, schema in fields.items()}


@functools.cache
def defaults(make: Any) -> dict[str, Any]:
    """By field of a frame, or of a record: its default, if that is the same in all releases."""
    if not dataclasses.is_dataclass(make):
        return dict(make._field_defaults)  # of a NamedTuple
    return {each.name: each.default for each in dataclasses.fields(make) if each.default is not dataclasses.MISSING}


def canonical(value: Any) -> bytes:
    """The same bytes for the same value, whichever member writes them."""
    return json.dumps(value, sort_keys=True).encode("utf-8", "replace")


def told(value: object, but: Container[str] = ()) -> dict[str, Any]:
    """The fields that digests and signatures of a frame, or of a record, cover: all but those in ``but``.

    A field with its default is left out, and so one that a later release adds changes nothing until somebody uses it.
    A reader that misses the field takes the default, so the two mean the same; whoever removes another value, or adds
    one, changes the digest.
    """
    make: Any = type(value)
    constant, fields = defaults(make), _fields_once(make)
    return {
        name: schema.dump(getattr(value, name))
        for name, schema in fields.items()
        if name not in but and (name not in constant or getattr(value, name) != constant[name])
    }


def load_fields(make: Callable[..., Any], value: dict[str, Any], fields: dict[str, Schema], name: str) -> Any:
    """A frame, or one within another. Fields that are not known are of a later release, and passed over."""
    if not value.keys() >= fields.keys() - defaults(make).keys():
        raise RemoteProtocolError(f"control frame: {name}: fields {', '.join(fields)} expected")
    return make(**{name: schema.load(value[name]) for name, schema in fields.items() if name in value})
