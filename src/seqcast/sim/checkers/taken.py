"""The promise of a wait until others have taken all sent messages (``Group.wait_consumed``), when it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seqcast.sim.record import Record, Together


def check_taken(
    waiter: Record, records: Sequence[Record], numbers: Sequence[int], views: Sequence[Together]
) -> Iterator[str]:
    """A member that was in all views since the one in which the sender itself took a message, and on its side of each
    partition, must have taken that message. One that the sender has not taken is not judged, as that message may be on
    its way into another view.

    Args:
        waiter: the member whose wait has ended.
        records: of all.
        numbers: of its messages, which others have taken.
        views: that it has installed.
    """
    own = waiter.delivered_of(waiter.id)
    places = {view.view_id.tag: place for place, view in enumerate(views)}
    for other in records:
        if other is waiter or not other.up or not other.receives:
            continue
        took = other.delivered_of(waiter.id)
        for number in numbers:
            if number in took or own.get(number) not in places:
                continue
            since = views[places[own[number]] :]
            if any(view.view_id >= since[0].view_id for view in other.voided):
                continue  # the state that this member took over includes the message
            if other.id in since[0].members and all(other.id in view.together for view in since[1:]):
                yield f"taken: {waiter} was told that {other} has number {number}, which it has not"
                return
