"""The settings of a member: their documentation (``fields``), their bounds (``check``), their sources (``sources``),
and the settings of engine, control plane and sockets that follow (``derive``)."""

from seqcast.config.fields import (
    CIPHERS,
    CONGESTIONS,
    MEMBERSHIPS,
    PARTITIONS,
    PRESETS,
    RELIABILITIES,
    SLOWS,
    TRANSPORTS,
    Config,
)

__all__ = [
    "CIPHERS",
    "CONGESTIONS",
    "MEMBERSHIPS",
    "PARTITIONS",
    "PRESETS",
    "RELIABILITIES",
    "SLOWS",
    "TRANSPORTS",
    "Config",
]
