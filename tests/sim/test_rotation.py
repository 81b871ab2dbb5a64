"""Simulated groups whose key is replaced: one machine after the other has another file, and some are forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_stage import Stage, names, one_view

from seqcast.config.keys import IDS, KEYS_MAX, SECRET_BYTES
from seqcast.core.frames import fields
from seqcast.core.frames.joining import Join
from seqcast.core.frames.kinds import dump
from seqcast.core.keys import LACKS_NS, PARTED_NS
from seqcast.core.rules.keys import NUMBERS, best, number_of, shared
from seqcast.core.vocabulary import KeysRead
from seqcast.reports import FrameReceived, OtherKey
from seqcast.sim.families import calm
from seqcast.sim.options import MS, SECOND, Options
from seqcast.sim.seal import SECRETS, file_keys
from seqcast.sim.world import simulate

OLD, NEW = 3, 20
IDENTITIES = pytest.mark.parametrize("identities", [False, True], ids=["key", "key and identities"])


class Rotated(Stage):
    """A stage on which each machine has a key file of its own; those that are not named have the old key alone."""

    def __init__(self, **options: object) -> None:
        self.files: dict[str, tuple[int, ...]] = {}
        super().__init__(keyed=True, **options)

    def marks(self, name: str) -> tuple[int, ...]:
        return self.files.get(name, (OLD,))

    def put(self, marks: tuple[int, ...], *machines: str) -> None:
        """The file of these machines has these keys from now on."""
        self.files |= dict.fromkeys(machines, marks)
        for node in self.nodes:
            if node.name in machines and node.alive:
                node.read_keys(marks)

    def run(self, ms: int) -> None:
        self.until(self.clock.now // MS + ms)

    def sealing(self, *machines: str) -> set[int]:
        return {self.node(name).endpoint.sealing for name in machines}

    def inside(self, *machines: str) -> list[str]:
        """The members of the view that these are in."""
        assert one_view(*(self.node(name) for name in machines))
        return sorted(member.name for member in self.node(machines[0]).endpoint.view.members)

    def warnings(self, name: str) -> list[str]:
        return [str(each) for each in self.node(name).record.warnings]


def forgotten(**options: object) -> Rotated:
    """A group in the second step, in which the machine of c was forgotten in the first one."""
    stage = Rotated(**options)
    stage.group("a", "b", "c")
    stage.put((OLD, NEW), "a", "b")
    stage.run(500)
    stage.put((NEW, OLD), "a", "b")
    stage.run(500)
    return stage


def test_the_numbers_of_keys_are_those_of_files():
    assert NUMBERS == IDS and fields.KEYS_MAX == KEYS_MAX
    keys = file_keys([(OLD, SECRETS[OLD]), (OLD, SECRETS[NEW]), (NEW, SECRETS[NEW])])
    assert [number_of(key.id) for key in keys] == [OLD, OLD, NEW]
    assert len({key.id for key in keys}) == 3, "two keys with one number"
    assert not any(str(bytes(key.secret)) in repr(key) for key in keys)


def test_the_best_key_is_that_of_most_members_and_then_of_most_others():
    assert best([1, 2], [], []) == [1, 2]
    assert best([2, 1], [{1}, {1, 2}], []) == [1]
    assert best([2, 1], [{1, 2}], [{1}]) == [1]
    assert best([2, 1], [{2}], [{1}, {1}]) == [2], "others leave the choice to members"
    assert best([1, 2], [{3}], [{3}]) == [1, 2], "no key that is not in our file"
    assert shared([{1, 2}, (2, 3)]) and not shared([{1}, {2}])


@IDENTITIES
@pytest.mark.parametrize("membership", ["coordinated", "token-ring"])
def test_a_forgotten_machine_stays_in_the_group_and_all_go_on_once_it_has_the_key(membership, identities):
    stage = forgotten(membership=membership, identities=identities)
    assert stage.sealing("a", "b", "c") == {OLD} and stage.inside("a", "b", "c") == ["a", "b", "c"]
    stage.files["d"] = (NEW, OLD)
    stage.named("d", stage.clock.now // MS)
    stage.run(2000)
    assert stage.inside("a", "b", "c", "d") == ["a", "b", "c", "d"]
    assert not any(node.engine.counters()["drop_key"] for node in stage.nodes[:2]), "c does not open each JOIN of d"
    stage.put((NEW, OLD), "c")
    stage.run(500)
    assert stage.sealing("a", "b", "c", "d") == {NEW}
    stage.put((NEW,), "a", "b", "c", "d")
    stage.run(500)
    assert stage.inside("a", "b", "c", "d") == ["a", "b", "c", "d"]
    assert names(stage.node("b"))[-1] and stage.sealing("a", "b", "c", "d") == {NEW}


def test_both_sides_are_told_which_file_lacks_the_first_key():
    stage = forgotten()
    stage.run(LACKS_NS // MS - 1000)
    assert not any(stage.warnings(name) for name in "abc")
    stage.run(1500)
    for name in "ab":
        (said,) = stage.warnings(name)
        assert f"the key file of c lacks key {NEW}" in said and f"go on with key {OLD}" in said and "(SC5006)" in said
    (said,) = stage.warnings("c")
    assert f"of this member lacks key {NEW}, the first one in that of a, b" in said and "(SC5006)" in said


def test_a_key_that_another_one_with_its_id_replaces_seals_nothing_more():
    """An id has a number of the file, and a few bits of a digest."""
    stage = Rotated()
    stage.group("a")
    a, (old,) = stage.node("a"), file_keys([(OLD, SECRETS[OLD])])
    before, filed = list(a.endpoint.machines.keys.cookies()), []
    a.endpoint.context.plane.refile = filed.append
    new = replace(old, secret=SECRETS[NEW], cookie=SECRETS[NEW])
    a.step(KeysRead((new,)))
    assert filed == [[(OLD, new.secret)]] and list(a.endpoint.machines.keys.cookies()) == [new.cookie] != before
    a.step(KeysRead((replace(new),)))
    assert len(filed) == 1


def test_a_member_that_shares_no_key_tells_its_keys_at_longer_and_longer_intervals():
    stage = Rotated()
    stage.group("a", "b", "c")
    sent = stage.node("c").endpoint.counters["frames_sent"]
    stage.put((NEW,), "c")
    stage.run(10_000)
    told = stage.node("c").endpoint.counters["frames_sent"] - sent
    assert 8 <= told <= 12, told


def test_the_steps_in_their_order_warn_of_nothing():
    stage = Rotated()
    stage.group("a", "b", "c")
    for marks in ((OLD, NEW), (NEW, OLD), (NEW,)):
        for name in "abc":
            stage.put(marks, name)
            stage.run(LACKS_NS // MS // 3)
        stage.run(LACKS_NS // MS)
        if marks[0] == OLD:
            assert stage.sealing(*"abc") == {OLD}
    assert stage.inside(*"abc") == ["a", "b", "c"] and stage.sealing(*"abc") == {NEW}
    assert not any(stage.warnings(name) for name in "abc")


def test_a_removed_key_is_never_used_again_whatever_others_say():
    stage = Rotated()
    stage.files["a"] = (NEW,)
    stage.group("a")
    a, (old,) = stage.node("a"), file_keys([(OLD, SECRETS[OLD])])
    join = a.endpoint.machines.lifecycle._join(1)
    info = replace(join.info, name="z", id=77, address=b"sim9", opens=(old.id,))
    a.step(FrameReceived(77, b"sim9", dump(replace(join, info=info)), outside=True))
    assert a.endpoint.machines.keys._heard and stage.sealing("a") == {NEW}


def test_a_member_that_shares_no_key_is_named_before_the_next_view_and_no_view_is_made_for_its_keys():
    stage = Rotated()
    stage.group("a", "b", "c")
    before = stage.node("a").endpoint.view
    stage.put((NEW,), "c")
    stage.run(PARTED_NS // MS - 500)
    assert not any(stage.warnings(name) for name in "abc")
    stage.run(1000)
    for name, other, key in (("a", "c", OLD), ("b", "c", OLD), ("c", "a, b", NEW)):
        (said,) = stage.warnings(name)
        assert f"the key file of {other} lacks key {key}" in said and "(SC5001)" in said
    assert {node.endpoint.view for node in stage.nodes} == {before}


def test_files_that_are_replaced_at_once_part_nobody_if_the_machines_follow_soon():
    stage = Rotated()
    stage.group("a", "b", "c")
    for name in "abc":
        stage.put((NEW,), name)
        stage.run(300)
    stage.run(500)
    assert stage.sealing(*"abc") == {NEW} and stage.inside(*"abc") == ["a", "b", "c"]
    assert not any(stage.warnings(name) for name in "abc")
    assert {len(view) for node in stage.nodes for view in names(node)[-2:]} == {3}


@pytest.mark.parametrize("transport", ["multicast", "unicast"])
@pytest.mark.parametrize(("file", "of_group"), [((OLD,), (NEW, OLD)), ((NEW, OLD), (OLD,)), ((OLD, NEW), (NEW,))])
def test_a_process_that_shares_a_key_with_a_group_joins_it(file, of_group, transport):
    stage = Rotated(transport=transport)
    stage.files |= {"a": of_group, "b": of_group, "late": file}
    stage.group("a", "b")
    stage.named("late", stage.clock.now // MS)
    stage.run(3000)
    assert stage.inside("a", "b", "late") == ["a", "b", "late"]
    assert [len(view) for view in names(stage.node("late"))] == [3]


def test_members_that_start_together_found_one_group_though_their_files_differ():
    stage = Rotated()
    stage.files |= {"a": (NEW, OLD), "b": (OLD,), "c": (OLD, NEW)}
    for name in "abc":
        stage.named(name)
    stage.run(4000)
    assert stage.inside(*"abc") == ["a", "b", "c"] and stage.sealing(*"abc") == {OLD}


def test_a_member_that_starts_again_on_a_forgotten_machine_comes_back():
    stage = forgotten()
    stage.node("c").crash()
    stage.run(3000)
    assert stage.inside("a", "b") == ["a", "b"] and stage.sealing("a", "b") == {NEW}
    stage.files["c again"] = (OLD,)
    stage.named("c again", stage.clock.now // MS)
    stage.run(3000)
    assert stage.inside("a", "b", "c again") == ["a", "b", "c again"]
    assert stage.sealing("a", "b", "c again") == {OLD}


def test_sides_whose_files_changed_while_they_were_apart_merge():
    stage = Rotated()
    stage.group("a", "b", "c")
    stage.network.partition({0, 1}, {2})
    stage.run(3000)
    assert stage.inside("a", "b") == ["a", "b"]
    stage.put((OLD, NEW), "a", "b")
    stage.run(500)
    stage.put((NEW, OLD), "a", "b")
    stage.run(2000)
    assert stage.sealing("a", "b") == {NEW}
    stage.network.heal()
    stage.run(5000)
    assert stage.inside("a", "b", "c") == ["a", "b", "c"] and stage.sealing("a", "b", "c") == {OLD}


def test_a_process_that_is_not_on_the_list_has_no_say():
    stage = Rotated(identities=True)
    stage.files |= {"a": (NEW, OLD)}
    stage.group("a")
    a = stage.node("a")
    join = a.endpoint.machines.lifecycle._join(1)
    info = replace(join.info, name="z", id=77, address=b"sim9", opens=join.info.opens[1:], identity=b"", signature=b"")
    a.step(FrameReceived(77, b"sim9", dump(replace(join, info=info)), outside=True))
    assert not a.endpoint.machines.keys._heard and stage.sealing("a") == {NEW}


def test_a_recording_keeps_the_old_key_in_use_for_a_moment_only():
    """Its sender, long gone, had the old key alone."""
    stage = Rotated()
    stage.named("z")
    stage.until(1)
    z = stage.node("z")
    z.crash()
    recorded = dump(z.endpoint.machines.lifecycle._join(1))
    stage.files |= {"a": (NEW, OLD)}
    stage.named("a", 5000)
    stage.until(7000)
    a, sealing = stage.node("a"), []
    for _ in range(100):
        a.step(FrameReceived(z.id, z.address, recorded, outside=True))
        sealing.append(stage.sealing("a"))
        stage.run(100)
    assert sealing[0] == {OLD} and sealing.count({OLD}) < 40


def test_a_datagram_of_another_key_from_a_member_is_left_to_those_who_know_the_files():
    stage = Rotated()
    stage.group("a", "b")
    a, b = stage.node("a"), stage.node("b")
    for address, warns in ((b.address, 0), (b"sim9", 1)):
        a.step(OtherKey(address, "other", True))
        stage.run(2000)
        assert len(stage.warnings("a")) == warns


@pytest.fixture
def many(monkeypatch):
    """A file of which others have the last key alone."""
    for mark in (4, 5):
        monkeypatch.setitem(SECRETS, mark, bytes([mark] * SECRET_BYTES))
    return NEW, 4, 5, OLD


def test_a_joiner_with_many_keys_does_not_pass_for_another_group(many):
    stage = Rotated()
    stage.files["late"] = many
    stage.group("a")
    stage.named("late", stage.clock.now // MS)
    stage.run(3000)
    a = stage.node("a")
    assert stage.inside("a", "late") == ["a", "late"]
    assert a.engine.counters()["drop_key"] >= 3 and not stage.warnings("a")


@pytest.mark.parametrize("which", "ab")
def test_founders_of_whom_one_has_many_keys_found_one_group(many, which):
    stage = Rotated()
    stage.files[which] = many
    for name in "ab":
        stage.named(name)
    stage.run(1000)
    assert stage.inside(*"ab") == ["a", "b"] and not stage.warnings("a") + stage.warnings("b")


def test_a_founder_does_not_give_up_for_one_that_is_heard_with_a_key_of_both_too():
    stage = Rotated()
    for name in "ab":
        stage.named(name)
    stage.until(20)
    for one, other in (("a", "b"), ("b", "a")):
        stage.node(one).step(OtherKey(stage.node(other).address, "other", True))
    stage.run(1000)
    assert stage.inside(*"ab") == ["a", "b"] and not stage.warnings("a") + stage.warnings("b")


def test_a_founder_waits_for_further_signs_of_one_with_another_key_while_others_show_theirs():
    stage = Rotated()
    for name in "ab":
        stage.named(name)
    stage.until(20)
    for one, other in (("a", "b"), ("b", "a")):
        for address in (b"sim9", stage.node(other).address):
            stage.node(one).step(OtherKey(address, "other", False))
    stage.until(1000)
    assert all(stage.node(name).endpoint.view is None for name in "ab")
    stage.until(3000)
    assert stage.inside(*"ab") == ["a", "b"]


def test_seeds_draw_replacements_in_groups_with_a_key():
    drawn = [Options.draw(seed) for seed in range(101, 301)]
    assert any(each.rotates for each in drawn) and all(each.keyed for each in drawn if each.rotates)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 9])
def test_in_a_calm_run_nobody_is_lost_by_a_replacement_with_forgotten_machines(seed, monkeypatch):
    drawn = calm(members=4, duration_ns=6 * SECOND, rate=20, unicasts=0)
    options = Options(seed=seed, keyed=True, rotates=True, **drawn)
    assert simulate(options).violations == []
    monkeypatch.setattr("seqcast.core.keys.best", lambda own, members, others: list(own))
    assert any("is there and well" in each for each in simulate(options).violations), "each seals with its first key"


def test_joins_are_sealed_with_all_keys_in_turn():
    stage = Rotated()
    stage.files["a"] = (NEW, OLD)
    stage.named("a")
    seen = set()
    for _ in range(100):
        stage.run(5)
        seen |= stage.sealing("a")
    assert seen == {OLD, NEW} and isinstance(stage.node("a").endpoint.machines.lifecycle._join(1), Join)
