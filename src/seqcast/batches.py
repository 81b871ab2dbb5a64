"""Atomic batches, by the name that programs import: ``seqcast.blocks.batches``."""

from seqcast.blocks.batches import BEGIN, END, MAGIC, ROW, Batches, Counters, begin, end
from seqcast.blocks.clock import Clock

__all__ = ["BEGIN", "END", "MAGIC", "ROW", "Batches", "Clock", "Counters", "begin", "end"]
