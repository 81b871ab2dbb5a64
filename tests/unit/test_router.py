"""The router's table has every frame, and names only fields of its frames."""

import ast
import inspect
import typing

import pytest

import seqcast.core.router as router
from seqcast.core.frames.joining import OtherVersion
from seqcast.core.frames.kinds import SCHEMAS, Frame
from seqcast.core.router import DECISIONS, ROUTES, By, Of
from seqcast.core.table import DecisionTable

FIELD = {Of.OURS: "view", Of.LEFT: "view", By.NAMED: "info", By.ASKED: "nonce"}


def test_every_frame_has_a_route():
    routed = {route.frame for route in ROUTES}
    assert routed == set(typing.get_args(Frame)) == {make for make, _ in SCHEMAS.values()} | {OtherVersion}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.frame.__name__} {route.of.name}")
def test_a_route_asks_for_fields_that_its_frame_has_and_describes_its_handler(route):
    for asked in (route.of, route.by):
        assert FIELD.get(asked) in {None, *route.frame.__slots__}
    assert route.handler in DECISIONS if isinstance(route.handler, DecisionTable) else route.does


def test_of_several_routes_of_a_frame_none_hides_another():
    for route in ROUTES:
        others = [other for other in ROUTES if other.frame is route.frame and other is not route]
        assert not others or route.of is not Of.ANY
        assert route.of not in {other.of for other in others}


def test_a_handler_asks_for_nothing_that_a_table_does_not_show():
    tree = ast.parse(inspect.getsource(router))
    routed = {route.handler for route in ROUTES if not isinstance(route.handler, DecisionTable)}
    actions = {action for each in DECISIONS for row in each.rows for action in row.actions}
    names = {each.__name__ for each in routed | actions}
    code = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    code += [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names]
    assert len(code) > 60
    asks = ast.If | ast.While | ast.IfExp
    assert [ast.unparse(each) for each in code if any(isinstance(node, asks) for node in ast.walk(each))] == []


@pytest.mark.parametrize("table", DECISIONS, ids=lambda table: table.name)
def test_each_case_of_a_decision_says_when_and_why(table):
    assert all(row.why and (row.guard is None or row.guard.__doc__) for row in table.rows)
