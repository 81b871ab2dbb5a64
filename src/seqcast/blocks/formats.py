"""The formats of what blocks send and keep. Each begins with four bytes that name it, and of these the last is its
version: so in every later format, too.

Members that passed over messages of a format that they do not know would come to differ from those that know the
format, and nobody would see that. So they end by name (`OtherRelease`).
"""

from __future__ import annotations

from seqcast.errors import OtherRelease

BYTES = 4


def check_format(data: bytes, ours: bytes) -> None:
    """
    Args:
        data: a message or a state, or its first bytes.
        ours: the format that this release knows.

    Raises:
        ValueError: of no version of this format.
        OtherRelease: of another version.
    """
    found = data[:BYTES]
    if found == ours:
        return
    if len(found) < BYTES or found[:-1] != ours[:-1]:
        raise ValueError("of no version of this format")
    later = found[-1] > ours[-1]
    raise OtherRelease(
        f"{'a later' if later else 'an earlier'} release has written this, in version {found[-1]} of its format, and "
        f"this member knows {ours[-1]}: {'upgrade this member' if later else 'upgrade the member that sends so'}"
    )
