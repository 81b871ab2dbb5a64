"""The settings of a member: what they are (``fields``), what they may be (``check``), where they come from
(``sources``), and what engine, control plane and sockets are given for them (``derive``)."""

from seqcast.config.fields import MEMBERSHIPS, PARTITIONS, PRESETS, RELIABILITIES, SLOWS, TRANSPORTS, Config

__all__ = ["MEMBERSHIPS", "PARTITIONS", "PRESETS", "RELIABILITIES", "SLOWS", "TRANSPORTS", "Config"]
