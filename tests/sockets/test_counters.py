"""Each counter is explained, in the help of ``counters`` and on a page, from one table."""

from members import cluster, join

import seqcast
from seqcast.api.counters import COUNTERS


def test_every_counter_is_explained_and_none_that_does_not_exist(tmp_path):
    with join(cluster(), "a", guard=True, journal=str(tmp_path / "journal")) as group:
        counted = set(group.counters())
    explained = [name for counters in COUNTERS.values() for name in counters]
    assert len(explained) == len(set(explained)) and set(explained) == counted
    for counters in COUNTERS.values():
        for name, text in counters.items():
            assert text[0].isupper() and text.endswith(".") and len(text) > 10, name
            assert f"{name}: {text}" in seqcast.Group.counters.__doc__
