"""Containment of filters, against every topic that there is of a small alphabet."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statemachines.drivers.topic_filter import contains_filter

LEVELS = ("a", "b", "", "$x")
TOPICS = [levels for depth in range(1, 6) for levels in product(LEVELS, repeat=depth)]
"""Deeper by one than the filters, and of one name more than any filter has."""


def is_match(topic_filter, topic):
    """MQTT 5, section 4.7, said once more."""
    wanted = topic_filter.split("/")
    if topic[0].startswith("$") and wanted[0] in ("+", "#"):
        return False
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(topic) or level not in ("+", topic[place]):
            return False
    return len(wanted) == len(topic)


def filters():
    levels = st.lists(st.sampled_from(["a", "", "+", "$x"]), min_size=0, max_size=4)
    return st.builds(lambda some, end: "/".join([*some, *end]), levels, st.sampled_from([[], ["#"]])).filter(
        lambda one: one.count("/") < 4
    )


@given(filters(), filters())
@example("+/#", "#")
@example("#", "+/#")
@example("a/#", "a")
@example("#", "$x/a")
@example("+/a", "$x/a")
@example("$x/#", "#")
@example("a/+/#", "a/#")
def test_PS_452_one_filter_contains_another_where_it_matches_whatever_that_matches(outer, inner):
    expected = all(is_match(outer, topic) for topic in TOPICS if is_match(inner, topic))
    assert contains_filter(outer, inner) == expected


@given(filters(), st.sampled_from(TOPICS))
def test_PS_452_a_topic_is_contained_by_what_matches_it(topic_filter, topic):
    assert contains_filter(topic_filter, "/".join(topic)) == is_match(topic_filter, topic)


@pytest.mark.parametrize(
    ("outer", "inner", "contains"),
    [
        ("a/#", "#", False),
        ("#", "$share/g/a", False),
        ("$share/+/a/#", "$share/g/a/b", True),
        ("$share/+/a/#", "$shared/g/a/b", True),
        ("$share/g/#", "$share/h/a", False),
        ("$share/g/#", "$share/+/a", False),
        ("$share/g/#", "a", False),
        ("$share/+/#", "$share/g/$SYS/x", False),
        ("$share/+/#", "$queue/q/a", True),
        ("$share/+/#", "$share//a", True),
        ("a", "$share//a", False),
    ],
)
def test_PS_452_filters_of_groups_are_contained_by_filters_of_groups_alone(outer, inner, contains):
    assert contains_filter(outer, inner) is contains
