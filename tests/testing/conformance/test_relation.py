"""The relation: what of an answer is compared, and what an implementation may choose."""

from __future__ import annotations

import pytest

from statemachines.testing.conformance.relation import (
    AnyOrder,
    Before,
    Chosen,
    Free,
    Output,
    Ranged,
    Relation,
    Repeated,
    Unordered,
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


def test_what_comes_before_is_said_by_a_clause():
    relation = Relation(before=(Before("dropped", "done", "key", "XX-01"),))
    done, dropped = send("done", key="a"), tell("dropped", "a", key="a")
    assert is_allowed(relation, [dropped, done], [dropped, done])
    wrong = match_answer(relation, (dropped, done), (done, dropped), {})
    assert wrong == 'tell dropped(key="a") must come before send peer done(key="a") [XX-01]'
    other = tell("dropped", "b", key="b")
    assert is_allowed(relation, [other, done], [done, other])


def test_a_chosen_number_is_bound_at_its_first_use_and_never_to_two():
    relation = Relation(chosen=(Chosen("number", (("ask", "n"),), "XX-02"),))
    binding = match_answer(relation, (send("ask", n=1),), (send("ask", n=70),), {})
    assert binding == {"number": {1: 70}}
    assert is_allowed(relation, [send("ask", n=1)], [send("ask", n=70)], binding)
    assert not is_allowed(relation, [send("ask", n=1)], [send("ask", n=1)], binding)
    assert not is_allowed(relation, [send("ask", n=2)], [send("ask", n=70)], binding)
    assert is_allowed(relation, [send("ask", n=2)], [send("ask", n=1)], binding)


def test_ranges_are_split_and_put_together():
    relation = Relation(ranged=(Ranged("read", "first", "last", "XX-03"),))
    whole = [send("read", key="a", first=1, last=9)]
    parts = [send("read", key="a", first=1, last=4), send("read", key="a", first=5, last=9)]
    assert is_allowed(relation, whole, parts)
    assert is_allowed(relation, parts, whole)
    assert not is_allowed(PLAIN, whole, parts)
    gap = [send("read", key="a", first=1, last=4), send("read", key="a", first=6, last=9)]
    assert not is_allowed(relation, whole, gap)
    other = [send("read", key="a", first=1, last=4), send("read", key="b", first=5, last=9)]
    assert not is_allowed(relation, whole, other)


def test_repetitions_and_lists_without_an_order():
    relation = Relation(repeated=(Repeated("one", "XX-04"),), unordered=(Unordered("list", "items", "XX-05"),))
    assert is_allowed(relation, [ONE], [ONE, ONE])
    assert not is_allowed(relation, [TWO], [TWO, TWO])
    assert is_allowed(relation, [send("list", items=[1, 2])], [send("list", items=[2, 1])])
    assert not is_allowed(relation, [send("list", items=[1, 2])], [send("list", items=[2, 2])])


def test_a_range_that_comes_round_is_cut_and_put_together():
    relation = Relation(ranged=(Ranged("read", "first", "last", "XX-03", round_at=8),))
    whole = [send("read", key="a", first=6, last=9)]
    parts = [send("read", key="a", first=first, last=first) for first in (6, 7, 0, 1)]
    assert is_allowed(relation, whole, parts)
    assert not is_allowed(relation, whole, parts[:2] + parts[3:])
    assert not is_allowed(Relation(ranged=(Ranged("read", "first", "last", "XX-03"),)), whole, parts)


def test_what_is_said_of_the_first_of_a_range_alone_stays_with_it():
    rest = {"verdict": "next", "lost": 0}
    relation = Relation(ranged=(Ranged("read", "first", "last", "XX-03", rest=rest, whole=("again",)),))
    whole = [send("read", verdict="skip", first=5, last=7, lost=2)]
    parts = [
        send("read", verdict="skip", first=5, last=5, lost=2),
        send("read", verdict="next", first=6, last=7, lost=0),
    ]
    assert is_allowed(relation, whole, parts)
    twice = [send("read", verdict="skip", first=at, last=at, lost=2) for at in (5, 6, 7)]
    assert not is_allowed(relation, whole, twice)
    again = [send("read", verdict="again", first=at, last=at, lost=0) for at in (5, 6)]
    assert is_allowed(relation, [send("read", verdict="again", first=5, last=6, lost=0)], again)


def test_a_number_is_chosen_anew_for_each_value_of_a_field():
    relation = Relation(chosen=(Chosen("number", (("ask", "n"),), "XX-02", per="about"),))
    binding = match_answer(relation, (send("ask", about="a", n=1),), (send("ask", about="a", n=70),), {})
    assert is_allowed(relation, [send("ask", about="b", n=1)], [send("ask", about="b", n=71)], binding)
    assert not is_allowed(relation, [send("ask", about="a", n=1)], [send("ask", about="a", n=71)], binding)


def test_those_of_different_things_stand_in_any_order_before_what_follows_them():
    relation = Relation(any_order=(AnyOrder("item", ("about",), "XX-06"),))
    one, two, three = (send("item", about=about, n=n) for about, n in (("a", 1), ("a", 2), ("b", 1)))
    assert is_allowed(relation, [one, two, three, ONE], [three, one, two, ONE])
    assert is_allowed(relation, [one, two, three, ONE], [one, three, two, ONE])
    assert not is_allowed(relation, [one, two, three, ONE], [two, one, three, ONE])
    assert not is_allowed(relation, [one, two, ONE], [one, ONE, two])


def test_a_free_field_holds_anything_but_must_be_there():
    relation = Relation(free=(Free("one", "why", "XX-07"),))
    assert is_allowed(relation, [send("one", n=1, why="a")], [send("one", n=1, why="b")])
    assert not is_allowed(relation, [send("one", n=1, why="a")], [send("one", n=2, why="a")])
