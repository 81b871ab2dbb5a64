"""Every setting with another value, and the values derived from settings."""

import contextlib

import seqcast
from seqcast.config import Config
from seqcast.config.derive import core_settings, driver_settings, engine_settings

OF_THE_WORLD = {
    "board", "control_cores", "io_cores",
    "batch_bytes", "discovery_refresh_s", "guard", "join_timeout_s", "journal", "journal_keep_bytes", "journal_keep_s",
    "journal_payload", "journal_required", "journal_resume", "journal_segment_bytes", "journal_segment_s",
    "kept_bytes",
    "leave_timeout_s", "state_backlog_bytes", "state_memory_bytes", "state_timeout_s",
}  # fmt: skip
"""Settings that ``derive`` passes to nobody: tests/sockets/test_settings.py sees them read."""


def given(config):
    """All that is derived from the settings."""
    core = core_settings(config, mtu=1500, rcvbuf=1 << 30)
    return engine_settings(config), core, driver_settings(config)


def changed(field):
    """Settings in which this one differs from the default."""
    config, value = Config(), getattr(Config(), field.name)
    if field.name == "cipher":
        return config.replace(key="key", cipher="aes-256-gcm")
    if among := field.metadata["among"]:
        return config.replace(**{field.name: next(other for other in among if other != value)})
    if isinstance(value, bool):
        return config.replace(**{field.name: not value})
    if field.name.endswith("_cores"):
        return config.replace(**{field.name: "0"})
    if field.name == "seeds":
        return config.replace(transport="unicast", seeds="a.example")
    if field.name in ("identity", "authorized"):
        return config.replace(key="key", identity="identity", authorized="list")
    if field.name == "stable":
        return config.replace(partition="primary", stable="file")
    if isinstance(value, str):
        return config.replace(**{field.name: "239.1.2.3"})
    low, high = field.metadata["low"], field.metadata["high"]
    for other in (value * 2, value // 2, value / 2, value + 1, 512, low, high):
        if isinstance(other, type(value)) and other != value:
            with contextlib.suppress(seqcast.ConfigError):
                return config.replace(**{field.name: other})
    raise AssertionError(f"no other value of {field.name} is right")
