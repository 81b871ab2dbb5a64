"""Payloads as text, or as the values of their JSON, in place of bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqcast.config.check import closest
from seqcast.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

BINARY, UTF8, JSON = KINDS = "binary", "utf8", "json"

NUMBERS = {
    "tinyint": ("int8", 8), "smallint": ("int16", 16), "int": ("int32", 32), "bigint": ("int64", 64),
}  # fmt: skip
SIMPLE = {
    "string": "string", "boolean": "bool", "float": "float32", "double": "float64",
    **{name: arrow for name, (arrow, _) in NUMBERS.items()},
}  # fmt: skip
"""Type of Spark -> type of Arrow."""
ALSO = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_TOKEN = re.compile(r"\s*(?:`([^`]+)`|(\w+)|([<>,:()]))")


@dataclass(frozen=True)
class Type:
    """A type of a schema: a simple one, ``array`` of ``fields[0]``, or ``struct`` of all."""

    name: str
    fields: tuple[tuple[str, Type], ...] = ()

    def ddl(self, quote: str = "`") -> str:
        """As Spark reads it; without ``quote`` as Spark prints it."""
        match self.name:
            case "array":
                return f"array<{self.fields[0][1].ddl(quote)}>"
            case "struct":
                return f"struct<{','.join(f'{quote}{name}{quote}:{of.ddl(quote)}' for name, of in self.fields)}>"
        return self.name

    def arrow(self) -> pa.DataType:
        import pyarrow as pa

        match self.name:
            case "array":
                return pa.list_(pa.field("element", self.fields[0][1].arrow()))
            case "struct":
                return pa.struct([pa.field(name, of.arrow()) for name, of in self.fields])
        return pa.type_for_alias(SIMPLE[self.name])

    def fitting(self) -> Callable[[Any], Any]:
        """A function that makes of a JSON value one of this type; None if it cannot."""
        match self.name:
            case "array":
                each = self.fields[0][1].fitting()
                return lambda value: [each(one) for one in value] if isinstance(value, list) else None
            case "struct":
                of = [(name, field.fitting()) for name, field in self.fields]
                return lambda value: (
                    {name: fit(value.get(name)) for name, fit in of} if isinstance(value, dict) else None
                )
            case "string":
                return _as_text
            case "boolean":
                return lambda value: value if isinstance(value, bool) else None
            case "float" | "double":
                return _as_float
        bound = 1 << NUMBERS[self.name][1] - 1
        return lambda value: value if type(value) is int and -bound <= value < bound else None


def _as_text(value: Any) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    return text if text.isascii() else text.encode(errors="replace").decode()  # JSON can have half a character


def _as_float(value: Any) -> float | None:
    try:
        return float(value) if type(value) in (int, float) else None
    except OverflowError:
        return None


@dataclass(frozen=True)
class Payload:
    """How payloads are given out.

    Args:
        kind: of `KINDS`.
        type: the result type of JSON.
    """

    kind: str = BINARY
    type: Type | None = None

    @classmethod
    def of(cls, kind: str | None, schema: str | None) -> Payload:
        """By the options ``payload`` and ``payloadSchema``.

        Raises:
            UsageError: their values are invalid, or do not belong together.
        """
        name = (kind or BINARY).lower()
        if name not in KINDS:
            close = closest(name, KINDS)
            hint = f"did you mean {close!r}?" if close else f"give {', '.join(map(repr, KINDS))}"
            raise UsageError(f"payload={kind!r}: {hint}")
        if (name == JSON) != bool(schema):
            raise UsageError(
                'payload="json" and payloadSchema belong together: give both, such as '
                '.option("payloadSchema", "id bigint, name string")'
            )
        return cls(name, parse(schema) if schema else None)

    def ddl(self, quote: str = "`") -> str:
        """The type of the column."""
        if self.type is not None:
            return self.type.ddl(quote)
        return "string" if self.kind == UTF8 else "binary"

    def decoded(self, payloads: pa.Array) -> pa.Array:
        """The column, of payloads. Bytes that are not text become replacement characters; text other than JSON is null,
        and a value that does not fit the schema is null there."""
        import pyarrow as pa

        if self.type is not None:
            fit = self.type.fitting()
            return pa.array([fit(_json(each)) for each in payloads.to_pylist()], self.type.arrow())
        if self.kind == BINARY:
            return payloads
        try:
            return payloads.cast(pa.string())
        except pa.ArrowInvalid:
            texts = [None if each is None else each.decode(errors="replace") for each in payloads.to_pylist()]
            return pa.array(texts, pa.string())


BYTES = Payload()


def _json(payload: bytes | None) -> Any:
    try:
        return None if payload is None else json.loads(payload.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


def parse(ddl: str) -> Type:
    """A schema such as ``id bigint, names array<string>, at struct<x: double, y: double>``.

    Raises:
        UsageError: the text is not a schema, or has types that JSON has not.
    """
    found = [*_TOKEN.finditer(ddl)]
    end = found[-1].end() if found else 0
    if "".join(each[0] for each in found) != ddl[:end] or ddl[end:].strip():
        raise UsageError(f"payloadSchema={ddl!r}: not a list of names and types, such as id bigint, name string")
    parser = _Parser(ddl, [(each[1] or each[2] or "", each[3] or "") for each in found])
    return parser.fields("")


class _Parser:
    """Args: ``tokens``: (word, or "") and (sign, or "") each."""

    def __init__(self, ddl: str, tokens: list[tuple[str, str]]) -> None:
        self._ddl = ddl
        self._tokens = tokens[::-1]

    def fields(self, end: str) -> Type:
        """Fields up to a sign."""
        fields: dict[str, Type] = {}
        while True:
            name = self._word("a name")
            if self._tokens and self._tokens[-1][1] == ":":
                self._tokens.pop()
            if name in fields:
                raise self._wrong(f"{name} appears twice")
            fields[name] = self._type(name)
            sign = self._tokens.pop()[1] if self._tokens else ""
            if sign == end:
                if not sign and self._tokens:
                    raise self._wrong(f"after the type of {name} comes a comma: leave out NOT NULL and COMMENT")
                return Type("struct", tuple(fields.items()))
            if sign != ",":
                raise self._wrong(f"after the type of {name} comes a comma: leave out NOT NULL and COMMENT")

    def _type(self, of: str) -> Type:
        given = self._word(f"a type for {of}")
        name = ALSO.get(given.lower(), given.lower())
        if name in SIMPLE:
            return Type(name)
        if name not in ("array", "struct"):
            known = (*SIMPLE, *ALSO, "array", "struct")
            close = closest(name, known)
            hint = f"did you mean {close}?" if close else f"give one of {', '.join(known)}, and cast it in the query"
            raise self._wrong(f"{of} cannot be {given}: {hint}")
        self._sign("<", f"{name}<...>")
        if name == "struct":
            return self.fields(">")
        element = self._type(of)
        self._sign(">", f"{name}<...>")
        return Type("array", (("element", element),))

    def _word(self, what: str) -> str:
        word = self._tokens.pop()[0] if self._tokens else ""
        if not word:
            raise self._wrong(f"{what} is missing")
        return word

    def _sign(self, sign: str, what: str) -> None:
        if not self._tokens or self._tokens.pop()[1] != sign:
            raise self._wrong(f"write {what}")

    def _wrong(self, what: str) -> UsageError:
        return UsageError(f"payloadSchema={self._ddl!r}: {what}")
