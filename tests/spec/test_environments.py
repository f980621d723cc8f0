"""Environments in place of parties that systems leave out: printed among the bounds, and small."""

from __future__ import annotations

import pytest

from statemachines import registry
from statemachines_spec.certificates import find_system
from statemachines_spec.explorer.actor import Actor
from statemachines_spec.explorer.environment import LINES_MAX, Environment
from statemachines_spec.protocol import of_protocol

LARGER = {
    "the group's leader, its store, deliveries and clients": "D-1153, D-1315",
    "the group's leader and its store": "D-1315",
    "the node of sessions": "D-520, D-1315",
}
"""Environments of more lines, with the decisions that say why."""


def list_environments(kind=Actor):
    """Those of every kind of component, once the systems of all protocols are imported."""
    for one in registry.protocols():
        of_protocol(one.name)
    for one in kind.__subclasses__():
        yield from one.environments
        yield from list_environments(one)


def two_lines(record):
    """Not counted."""

    return record


def test_lines_are_counted_without_docstrings_and_empty_ones():
    assert Environment("nobody", "nothing", (two_lines,)).count_lines() == 2


def test_an_environment_is_small_or_a_decision_says_why_it_is_not():
    sizes = {one.parties: one.count_lines() for one in list_environments()}
    assert sizes.pop("the witness") == 28
    assert {parties for parties, lines in sizes.items() if lines > LINES_MAX} == set(LARGER), sizes


@pytest.mark.parametrize(
    ("protocol", "system", "name", "parties"),
    [
        ("shared_subscriptions", "pause", "consumer-1", "the witness"),
        ("shared_subscriptions", "sessions", "consumer-1", "the witness"),
        ("persistent_sessions", "group-refused", "groups", "the group's leader, its store, deliveries and clients"),
        ("mqtt_connections", "publishing", "session", "the node of sessions"),
    ],
)
def test_what_stands_in_place_of_a_party_is_printed_among_the_bounds(protocol, system, name, parties):
    part = of_protocol(protocol)
    made = find_system(protocol, system, size=part.sizes[0], variant=next(iter(part.variants)))
    assert f"{name}: in place of {parties}" in made.describe_bounds()


def test_a_component_that_runs_the_whole_process_has_no_environment():
    made = find_system("shared_subscriptions", "pretender", size="small", variant="settled")
    found = [one for one in made.describe_bounds() if "in place of" in one]
    assert found == ["consumer-2: in place of the witness"]
