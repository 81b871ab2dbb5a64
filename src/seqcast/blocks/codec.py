"""How the values of blocks travel."""

from __future__ import annotations

import importlib
import json
from typing import Any, Protocol

from seqcast.errors import ConfigError


class Codec(Protocol):
    """Turns a value into bytes, and bytes into the value; for ``ReplicatedDict`` equal values must become the same
    bytes on every member."""

    def dumps(self, value: Any, /) -> bytes: ...
    def loads(self, data: bytes, /) -> Any: ...


class _Json:
    def dumps(self, value: Any) -> bytes:
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()

    def loads(self, data: bytes) -> Any:
        return json.loads(data)


class _Msgpack:
    def __init__(self, *, canonical: bool) -> None:
        try:
            self._of = importlib.import_module("msgpack")
        except ImportError:
            raise ConfigError("codec='msgpack' needs msgpack: pip install 'seqcast[msgpack]'") from None
        self._canonical = canonical

    def dumps(self, value: Any) -> bytes:
        data: bytes = self._of.packb(self._in_order(value) if self._canonical else value)
        return data

    def _in_order(self, value: Any) -> Any:
        """Sorts dictionaries by their packed keys, so that equal ones become the same bytes."""
        if isinstance(value, dict):
            pairs = sorted(value.items(), key=lambda pair: self._of.packb(pair[0]))
            return {key: self._in_order(each) for key, each in pairs}
        if isinstance(value, list | tuple) and not isinstance(value, self._of.ExtType):  # which is a tuple, too
            return [self._in_order(each) for each in value]
        return value

    def loads(self, data: bytes) -> Any:
        return self._of.unpackb(data, strict_map_key=False)


def codec_of(codec: str | Codec, *, canonical: bool = False) -> Codec:
    """
    Args:
        codec: "json", "msgpack", or an object with ``dumps`` and ``loads``.
        canonical: equal values must become the same bytes; with "json" they always do.

    Raises:
        ConfigError: none of these, or not installed.
    """
    if codec == "json":
        return _Json()
    if codec == "msgpack":
        return _Msgpack(canonical=canonical)
    if codec == "pickle" or getattr(codec, "__name__", "") == "pickle":
        raise ConfigError(
            "codec='pickle' is refused: whoever can send a datagram to the group could run code in every member; use "
            "'json' or 'msgpack'"
        )
    if isinstance(codec, str) or not all(callable(getattr(codec, name, None)) for name in ("dumps", "loads")):
        raise ConfigError(f"codec={codec!r} must be 'json', 'msgpack', or an object with dumps and loads")
    return codec
