"""The pass over a segment: the compiled one beside a plain one, on rows that are nearly in order, and on any."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqcast._native.columns import Scan

NAMES = (
    "idx", "view_counter", "view_tag", "global_seqno", "sender", "seqno", "payload_hash", "index", "length",
    "transitional",
)  # fmt: skip
KINDS = {"index": np.int32, "length": np.int32, "transitional": np.uint8}
Rows = list[tuple[int, ...]]


def kind_of(name: str) -> Any:
    return KINDS.get(name, np.int64)


def scanned(rows: Rows, cuts: tuple[int, ...] = ()) -> Scan:
    """The rows, given in several parts."""
    scan = Scan()
    for begin, end in zip((0, *cuts), (*cuts, len(rows)), strict=True):
        columns = zip(*rows[begin:end], strict=True) if begin < end else [()] * len(NAMES)
        scan.add(**{name: np.array(values, kind_of(name)) for name, values in zip(NAMES, columns, strict=True)})
    return scan


def plain(rows: Rows) -> dict[str, Any]:
    """Everything that the scan is to find."""
    breaks: list[Any] = []
    views: list[Any] = []
    senders: dict[int, Any] = {}
    groups: dict[Any, Any] = defaultdict(lambda: [0, 0, 0, 0, 0])
    last = None
    for idx, counter, tag, position, sender, seqno, _hash, index, _length, transitional in rows:
        if last is not None and idx != last + 1:
            breaks.append((idx, (last, 0), (idx, 0)))
        last = idx
        if not views or views[-1]["tag"] != tag:
            fresh = {"tag": tag, "idx": idx, "rows": 0, "first": position, "highest": position, "zeros": 0}
            views.append({**fresh, "counters": [], "back": [], "jumps": [], "first_late": 0, "decided": []})
        of = views[-1]
        if of["rows"]:
            kind = "back" if position <= of["highest"] else "jumps" if position > of["highest"] + 1 else ""
            if kind:
                of[kind].append((idx, (of["highest"], 0), (position, 0)))
        if of["first_late"] and not transitional:
            of["decided"].append((idx, (of["first_late"], 0), (position, 0)))
        if transitional:
            of["first_late"] = of["first_late"] or position
        of["highest"] = max(of["highest"], position)
        of["rows"] += 1
        of["zeros"] += position == 0
        of["counters"].append(counter)
        key = (seqno, index)
        if sender not in senders:
            senders[sender] = {"idx": idx, "rows": 1, "first": key, "highest": key, "back": [], "jumps": []}
        else:
            by = senders[sender]
            by["rows"] += 1
            if key <= by["highest"]:
                by["back"].append((idx, by["highest"], key))
            elif index and key != (by["highest"][0], by["highest"][1] + 1):
                by["jumps"].append((idx, by["highest"], key))
            by["highest"] = max(by["highest"], key)
        group = groups[tag, sender, position >> 16 if position > 0 else seqno >> 12]
        group[0] += 1
        low = (seqno & 4095) << 16 | index
        decided = 0 if transitional else low + 1
        group[1:] = max(group[1], position), max(group[2], seqno), max(group[3], low), max(group[4], decided)
    return {"breaks": breaks, "views": views, "senders": senders, "groups": groups}


def shown(found: list[Any]) -> tuple[int, list[Any]]:
    return len(found), found[:8]


def compare(rows: Rows, cuts: tuple[int, ...]) -> None:
    scan, model = scanned(rows, cuts), plain(rows)
    assert scan.rows == len(rows)
    if rows:
        assert scan.ends == (rows[0][0], rows[-1][0])
    assert scan.breaks == shown(model["breaks"])
    assert scan.views() == [
        (of["tag"], of["idx"], of["rows"], of["first"], of["highest"], of["zeros"],
         (min(of["counters"]), max(of["counters"])), of["first_late"], shown(of["back"]), shown(of["jumps"]),
         shown(of["decided"]))
        for of in model["views"]
    ]  # fmt: skip
    assert scan.senders() == [
        (sender, by["idx"], by["rows"], by["first"], by["highest"], shown(by["back"]), shown(by["jumps"]))
        for sender, by in model["senders"].items()
    ]
    assert {key: [*values[:4], values[5]] for key, values in scan.groups()} == model["groups"]


POSITION = st.integers(0, 9) | st.integers(65530, 65545) | st.integers(0, 2**62)
SEQNO = st.integers(1, 5) | st.integers(4090, 4100) | st.integers(1, 2**62)
ANY_ROW = st.tuples(
    st.integers(0, 2**62), st.integers(1, 3), st.sampled_from([5, -5, 1 << 62]), POSITION,
    st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1), SEQNO, st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 3) | st.just(65535), st.integers(0, 2**31 - 1), st.integers(0, 1),
)  # fmt: skip


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(rows=st.lists(ANY_ROW, max_size=60), data=st.data())
def test_any_rows_are_judged_as_by_the_plain_pass(rows: Rows, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=3).map(sorted))
    compare(rows, tuple(cuts))


def in_order(count: int, senders: int) -> Rows:
    rows = []
    for at in range(count):
        packet = at // 7
        sender, seqno = packet % senders - 2, packet // senders + 1
        rows.append((at, 1, 9, at + 1, sender, seqno, at * 0x9E3779B9, at % 7, at % 100, 0))
    return rows


def test_many_rows_senders_and_buckets_in_order_have_no_findings() -> None:
    rows = in_order(140_000, 300)  # the tables grow several times, and begin a third bucket
    compare(rows, (1, 65_536, 100_000))
    scan = scanned(rows)
    assert scan.breaks == (0, [])
    assert all(sender[5:] == ((0, []), (0, [])) for sender in scan.senders())


def of_two_views() -> Rows:
    rows = in_order(60, 2)
    return rows[:35] + [(idx, 2, 10, at + 1, *rest) for at, (idx, _, _, _, *rest) in enumerate(rows[35:])]


def findings(rows: Rows) -> int:
    scan = scanned(rows)
    of_views = sum(view[8][0] + view[9][0] for view in scan.views())
    return scan.breaks[0] + of_views + sum(sender[5][0] + sender[6][0] for sender in scan.senders())


@pytest.mark.parametrize("numbered", [False, True], ids=["as they were", "numbered anew"])
@pytest.mark.parametrize("change", ["deleted", "doubled", "swapped"])
def test_one_row_in_order_that_is_wrong_is_found_wherever_it_is(change: str, numbered: bool) -> None:
    """Each row of rows in order, one after the other, among others that are right."""
    whole = of_two_views()
    assert not findings(whole)
    for at in range(1, len(whole) - 1):
        rows = list(whole)
        if change == "deleted":
            del rows[at]
        elif change == "doubled":
            rows.insert(at, rows[at])
        else:
            rows[at], rows[at + 1] = rows[at + 1], rows[at]
        if numbered:
            rows = [(idx, *row[1:]) for idx, row in enumerate(rows)]
        compare(rows, (at,))
        ends_view = whole[at][2] != whole[at - 1][2] or whole[at][2] != whole[at + 1][2]
        assert findings(rows) or ends_view, f"row {at} was {change}"


def total(rows: Rows) -> dict[Any, int]:
    return {key: values[4] for key, values in scanned(rows).groups()}


def test_a_fingerprint_does_not_depend_on_the_order_of_rows_and_on_every_column_that_members_share() -> None:
    rows = in_order(50, 1)
    assert total(rows) == total(rows[::-1])
    for at, name in enumerate(NAMES):
        changed = [tuple(value + (at == place) for place, value in enumerate(row)) for row in rows[7:8]]
        same = list(total(rows).values()) == list(total(rows[:7] + changed + rows[8:]).values())
        assert same == (name in ("idx", "view_counter", "transitional")), name


@pytest.mark.parametrize("name", ["sender", "index", "payload_hash"])
def test_two_rows_that_swap_a_column_change_the_fingerprint(name: str) -> None:
    rows, at = in_order(20, 3), NAMES.index(name)
    one, other = list(rows[3]), list(rows[16])
    assert one[at] != other[at]
    one[at], other[at] = other[at], one[at]
    assert sorted(total(rows).values()) != sorted(
        total([*rows[:3], tuple(one), *rows[4:16], tuple(other), *rows[17:]]).values()
    )


def test_columns_of_different_lengths_are_refused() -> None:
    columns = {name: np.zeros(3, kind_of(name)) for name in NAMES}
    with pytest.raises(ValueError, match="the same length"):
        Scan().add(**{**columns, "index": np.zeros(2, np.int32)})
