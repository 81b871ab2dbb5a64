"""How the values of blocks travel."""

from __future__ import annotations

import importlib
import json
from typing import Any, Protocol

from seqcast.errors import ConfigError


class Codec(Protocol):
    """Makes bytes of a value, the same of equal values on every member, and the value of bytes."""

    def dumps(self, value: Any, /) -> bytes: ...
    def loads(self, data: bytes, /) -> Any: ...


class _Json:
    def dumps(self, value: Any) -> bytes:
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()

    def loads(self, data: bytes) -> Any:
        return json.loads(data)


class _Msgpack:
    def __init__(self) -> None:
        try:
            self._of = importlib.import_module("msgpack")
        except ImportError:
            raise ConfigError("codec='msgpack' needs msgpack: pip install 'seqcast[msgpack]'") from None

    def dumps(self, value: Any) -> bytes:
        data: bytes = self._of.packb(value)
        return data

    def loads(self, data: bytes) -> Any:
        return self._of.unpackb(data)


def codec_of(codec: str | Codec) -> Codec:
    """
    Args:
        codec: "json", "msgpack", or an object with ``dumps`` and ``loads``.

    Raises:
        ConfigError: none of these, or not installed.
    """
    if codec == "json":
        return _Json()
    if codec == "msgpack":
        return _Msgpack()
    if codec == "pickle" or getattr(codec, "__name__", "") == "pickle":
        raise ConfigError(
            "codec='pickle' is refused: whoever can send a datagram to the group could run code in every member; use "
            "'json' or 'msgpack'"
        )
    if isinstance(codec, str) or not all(callable(getattr(codec, name, None)) for name in ("dumps", "loads")):
        raise ConfigError(f"codec={codec!r} must be 'json', 'msgpack', or an object with dumps and loads")
    return codec
