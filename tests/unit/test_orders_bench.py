"""The results that ``make bench-order`` draws from its runs."""

from __future__ import annotations

import json
import sys

import pytest
from benches import bench_of
from project import ROOT

orders = bench_of("orders")


@pytest.mark.parametrize(("n", "low", "high"), [(1, 1, 1), (5, 1, 5), (6, 1, 6), (9, 2, 8), (10, 2, 9), (20, 6, 15)])
def test_the_interval_of_a_median_is_that_of_the_tables_of_the_sign_test(n, low, high):
    found = orders.median([float(value) for value in range(n, 0, -1)])
    assert (found.low, found.high) == (low, high)


def test_a_ratio_is_the_median_of_the_ratios_of_each_pair_and_leaves_out_pairs_that_failed():
    cells = [
        {"cell": ["rate", "fifo", 64, 1, 0.0], "values": [100.0, 200.0, 400.0, None]},
        {"cell": ["rate", "records", 64, 1, 0.0], "values": [50.0, 180.0, 300.0, 70.0]},
        {"cell": ["rate", "limit", 64, 1, 0.0], "values": [500.0, 500.0, 500.0, 500.0]},
        {"cell": ["p50", "fifo"], "values": [9.0]},
    ]
    found = orders.ratios({"cells": cells})
    assert found == {("records", 64, 1, 0.0): orders.Median(0.75, 0.5, 0.9)}


def test_the_page_in_the_documentation_is_made_from_the_figures_beside_it():
    figures = ROOT / "docs" / "orders.json"
    page = orders.page(json.loads(figures.read_text(encoding="utf-8")))
    assert page == figures.with_suffix(".md").read_text(encoding="utf-8")


def test_a_stall_counts_from_the_kill_and_began_before_the_next_view_delivered_anything():
    ms = 10**6
    returns = [at * ms for at in (0, 390, 400, 590, 960, 1002, 1020, 1050, 1057, 1600, 1900)]
    found = orders.failover.longest_sends(returns, 1000 * ms, 1045 * ms)
    assert found == {"stall_ms": 30.0, "before_ms": 370.0, "after_ms": 543.0}
    never = orders.failover.longest_sends(returns, 1000 * ms, sys.maxsize)
    assert never == {"stall_ms": 543.0, "before_ms": 370.0, "after_ms": 0.0}
