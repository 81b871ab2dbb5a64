"""Causal order: no member delivers a message before one that its sender knew at the time of sending."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seqcast.sim.record import Delivered, Record


def check_causal(records: Sequence[Record]) -> Iterator[str]:
    """Judged by the events of the applications: of messages to the group, in all views that a member was in."""
    for record in records:
        places = {
            (entry.sender, entry.counter): place
            for place, entry in enumerate(record.log)
            if isinstance(entry, Delivered) and not entry.to
        }
        for sender in records:
            yield from _check_sender(record, places, sender)


def _check_sender(record: Record, places: dict[tuple[int, int], int], sender: Record) -> Iterator[str]:
    """The latest place that the sender knew only grows from message to message."""
    latest, cause, read = -1, (0, 0), 0
    for number, known in sorted(sender.knew.items()):
        for entry in sender.log[read:known]:
            if isinstance(entry, Delivered) and not entry.to:
                place = places.get((entry.sender, entry.counter), -1)
                if place > latest:
                    latest, cause = place, (entry.sender, entry.counter)
        read = max(read, known)
        if places.get((sender.id, number), latest) < latest:
            yield (
                f"causal order: {record} delivers number {number} of {sender} before number {cause[1]} of "
                f"{cause[0]:x}, which {sender} knew before"
            )
            return
