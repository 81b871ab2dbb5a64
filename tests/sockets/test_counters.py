"""Each counter is explained, in the help of ``counters`` and on a page, from one table."""

import importlib

import pytest
from members import LOOPBACK, cluster, join

import seqcast
from seqcast.api.counters import COUNTERS, CROWD
from seqcast.config import identities, keys

KEYED = "Key file (`key=`)"
"""Of members with a key, whose connections nothing guards."""
LISTED = "List of members (`authorized=`)"


def test_the_counters_of_a_key_are_those_that_a_member_with_one_has_besides(tmp_path):
    pytest.importorskip("nacl")
    keys.make(str(tmp_path / "key"))
    with join(cluster(), "a") as plain, join(cluster(), "a", key=str(tmp_path / "key")) as keyed:
        assert set(keyed.counters()) - set(plain.counters()) == set(COUNTERS[KEYED])


def test_the_counters_of_a_list_are_those_that_a_member_with_one_has_besides(tmp_path):
    secure = pytest.importorskip("nacl") and importlib.import_module("seqcast.net.secure")
    key, own, members = (str(tmp_path / name) for name in ("key", "own", "members"))
    keys.make(key)
    identities.make(own, bytes(range(32)))
    with open(members, "w", encoding="ascii") as file:
        file.write(f"{identities.described(secure.Ed25519(bytes(range(32))).public)} a\n")
    with (
        join(cluster(), "a", key=key) as keyed,
        join(cluster(), "a", key=key, identity=own, authorized=members) as listed,
    ):
        assert set(listed.counters()) - set(keyed.counters()) == set(COUNTERS[LISTED])


@pytest.mark.parametrize("kind", [seqcast.Group, seqcast.Crowd])
def test_every_counter_is_explained_and_none_that_does_not_exist(kind, tmp_path):
    if kind is seqcast.Group:
        table = {heading: counters for heading, counters in COUNTERS.items() if heading not in (KEYED, LISTED)}
        with join(cluster(), "a", guard=True, journal=str(tmp_path / "journal")) as group:
            counted = set(group.counters())
    else:
        table = CROWD
        with seqcast.join_crowd(cluster(), interface=LOOPBACK, average_s=0.02, store=str(tmp_path / "store")) as crowd:
            counted = set(crowd.counters())
    explained = [name for counters in table.values() for name in counters]
    assert len(explained) == len(set(explained)) and set(explained) == counted
    for counters in table.values():
        for name, text in counters.items():
            assert text[0].isupper() or text[0].isdigit(), name
            assert text.endswith(".") and len(text) > 10, name
            assert f"{name}: {text}" in kind.counters.__doc__
