"""The relation: what of an answer is compared, and what an implementation may choose."""

from __future__ import annotations

import pytest

from statemachines.testing.conformance.relation import (
    Output,
    Relation,
    match_answer,
)


def send(name, to="peer", **fields):
    return Output(("send", to), name, to, fields)


def tell(name, about="", **fields):
    return Output(("tell", about), name, "", fields)


ONE, TWO = send("one", n=1), send("two", n=2)
PLAIN = Relation()


def is_allowed(relation, expected, came, binding=None):
    return not isinstance(match_answer(relation, tuple(expected), tuple(came), binding or {}), str)


@pytest.mark.parametrize(
    ("expected", "came", "allowed"),
    [
        ([], [], True),
        ([ONE], [ONE], True),
        ([ONE], [], False),
        ([], [ONE], False),
        ([ONE, TWO], [TWO, ONE], False),
        ([ONE, send("two", to="other")], [send("two", to="other"), ONE], True),
        ([ONE, tell("told")], [tell("told"), ONE], True),
        ([tell("a", "x"), tell("b", "x")], [tell("b", "x"), tell("a", "x")], False),
        ([tell("a", "x"), tell("b", "y")], [tell("b", "y"), tell("a", "x")], True),
        ([ONE], [send("one", n=2)], False),
        ([ONE], [send("one", n=1, to="other")], False),
        ([ONE, ONE], [ONE], False),
        ([ONE], [ONE, ONE], False),
    ],
)
def test_order_binds_within_a_destination_and_nothing_else_is_free(expected, came, allowed):
    assert is_allowed(PLAIN, expected, came) is allowed
