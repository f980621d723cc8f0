"""Directed systems of both sides: what must happen in them does, and small mistakes break the properties of each."""

import fnmatch

import pytest
from long_cases import mark_long

from statemachines import catalogue
from statemachines.shared_subscriptions import group
from statemachines.shared_subscriptions.claim import is_declared
from statemachines.shared_subscriptions.group import is_awaited
from statemachines_spec.directed_system import explore_directed
from statemachines_spec.explorer.actor import Envelope, Passed
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.property import Sometimes
from statemachines_spec.mutants.campaign import CampaignScope, CampaignShape
from statemachines_spec.mutants.mutant import plant
from statemachines_spec.shared_subscriptions import SPEC
from statemachines_spec.shared_subscriptions.allowed_leader import ALLOWED
from statemachines_spec.shared_subscriptions.directed_systems import find_directed
from statemachines_spec.shared_subscriptions.pace_systems import (
    AGAIN,
    BEAT,
    BEGIN,
    END,
    HIT,
    NOTHING,
    Pace,
    PaceBeat,
    Paces,
    Signs,
)


@pytest.fixture(scope="module")
def mutants():
    return {one.name: one for one in CampaignScope(CampaignShape("shared_subscriptions")).mutants}


NOTICED = {
    "leader/14/to-follower": ("paced follower", "no-error"),
    "leader/59/timer-doubled": ("paced", "L6"),
    "leader/59/timer-halved": ("paced", "L6"),
    "leader/35/timer-doubled": ("paced", "L2"),
    "leader/60/timer-doubled": ("paced failures", "L6"),
    "leader/65/timer-halved": ("paced failure", "S3"),
    "leader/76/timer-doubled": ("paced failure", "L6"),
    "leader/12/timer-doubled": ("paced follower", "L6"),
    "assignment/1/timer-doubled": ("paced grants", "L2"),
    "assignment/grant_timeout/timer-halved": ("paced grants", "L11"),
    "assignment/revoke_timeout/timer-doubled": ("paced revokes", "L3"),
    "member/1/timer-halved": ("paced grants", "L9"),
    "leader/35/timer-dropped": ("pages", "L2"),
    "leader/52/deleted": ("needed", "S11"),
    "leader/7/deleted": ("other times", "S18"),
    "leader/64/deleted": ("taken over", "S3"),
    "leader/72/negated": ("halted", "L6"),
    "configuration.Configuration._less/1/lt-is-lte": ("configured", "L8"),
    "stream_measure.refuse/4/held.grant-is-held.progress": ("told of lies", "S16"),
    "group/2/to-idle": ("declared as asked", "S1"),
    "group/20/deleted": ("paced destruction", "L12"),
    "assignment/10/deleted": ("rebalanced", "S10"),
    "leader/50/to-leading": ("rebalanced", "S3"),
    "membership.take_farewell/1/noteq-is-eq": ("grown", "S11"),
    "stream_measure.learn_sizes/1/without-streams": ("grown", "L8"),
    "leader/76/unguarded": ("needed", "L8"),
    "leader/17/unguarded": ("failures again", "S3"),
    "group/3/to-idle": ("declared otherwise", "S1"),
    "group.declare/2/lt-is-lte": ("declared as asked", "S18"),
    "group.mark/3/without-found": ("destroyed once", "S18"),
    "leader/51/deleted": ("talking", "L9"),
    "leader/52/timer-doubled": ("talking of ends", "L6"),
    "leader/48/timer-halved": ("talking lies", "L5"),
    "leader/53/timer-halved": ("talking of nothing", "L6"),
    "assignment/11/deleted": ("talking of revokes", "S10"),
    "leader/43/deleted": ("even", "L4"),
    "member/5/deleted": ("told of lies", "L9"),
    "leader/20/to-waiting": ("loaded", "L6"),
    "leader/7/after-8": ("doubted", "S18"),
    "leader/22/timer-halved": ("paced grace", "L2"),
    "leader/16/timer-doubled": ("paced refusal", "L6"),
    "leader/62/timer-doubled": ("paced silence", "S3"),
    "leader/69/timer-doubled": ("paced doubt", "L6"),
    "leader/8/timer-halved": ("paced failure", "L6"),
    "leader/63/unguarded": ("taken over", "S3"),
    "leader/74/deleted": ("stops", "L6"),
    "leader/78/deleted": ("halted", "L6"),
    "leader/79/deleted": ("destroyed", "S3"),
    "leader/2/to-candidate": ("following", "S1"),
    "group/13/deleted": ("declared after", "S18"),
    "group/22/to-settling": ("destroyed at once", "S18"),
    "session/17/to-waiting": ("timed replacing", "S19"),
    "session/13/timer-dropped": ("timed hand-over", "S19"),
    "session/17/unguarded": ("timed hand-over", "S19"),
    "stream/1/to-granted": ("reports again", "S19"),
    "private/5/unguarded": ("known alone", "S12"),
}
"""Mutant -> the directed system in which it is noticed, and which property breaks."""


LARGE = (
    "leader/51/deleted", "leader/52/timer-doubled", "leader/53/timer-halved", "leader/62/timer-doubled",
    "assignment/11/deleted", "leader/14/to-follower", "stream/1/to-granted",
)  # fmt: skip
FIRST = {directed: name for name, (directed, _) in reversed(NOTICED.items()) if name not in LARGE}
LATER = (name for name, (directed, _) in NOTICED.items() if FIRST.get(directed) != name)
"""`make soak` looks for the large ones, and for the second and third of a directed system."""


@pytest.mark.parametrize("name", mark_long(NOTICED, *LATER))
def test_a_small_mistake_breaks_a_property_of_the_directed_system(mutants, name):
    directed, broken = NOTICED[name]
    with plant(mutants[name]):
        assert explore_directed(find_directed(directed)).what == broken


SMALL = (
    "undeclared",
    "other times",
    "destroyed",
    "failures again",
    "needed",
    "paced",
    "paced failure",
    "destroyed clean",
    "destroyed unled",
    "nothing to destroy",
    "led again",
    "told of lies",
    "told of loss",
    "configured",
    "marked otherwise",
    "loaded",
    "doubted",
    "paced grace",
    "paced refusal",
    "talking of nothing",
    "timed hand-over",
    "known alone",
)


@pytest.mark.parametrize("name", SMALL)
def test_what_must_happen_sometimes_does(name):
    made = find_directed(name).make()
    result = explore(made, engine="plain", hashing=False)
    assert any(isinstance(one, Sometimes) for one in made.properties)
    assert (result.is_held, [one for one, happens in result.sometimes.items() if not happens]) == (True, [])


def test_what_is_allowed_names_mutants_that_there_are_and_clauses(mutants):
    clauses = catalogue.clauses("shared_subscriptions")
    assert set(ALLOWED) < set(SPEC.allowed)
    for one in SPEC.allowed:
        assert one.clause in clauses
        assert [pattern for pattern in one.mutants if not fnmatch.filter(mutants, pattern)] == []


# -- counting -------------------------------------------------------------------------------------------------------


def counted(*events, least=2, most=3):
    """What a pace comes to: a sign, or a number of ticks that pass."""
    pace = Pace((PaceBeat("beat", "it comes", least, most, lambda *seen: NOTHING),))
    local = pace.initial()
    for event in events:
        sent = Passed(-event) if event < 0 else Signs((event,))
        local = pace.react(local, Envelope("", "pace", sent)).local
    return local


TICK, TWO = -1, -2


@pytest.mark.parametrize(
    ("events", "ticks", "wrong"),
    [
        ((BEGIN, TWO, HIT), -1, -1),
        ((BEGIN, TICK, HIT), -1, 0),
        ((BEGIN, TWO, TICK, TICK), 4, 0),
        ((TWO, TWO), -1, -1),
        ((BEAT, TWO, BEAT, TICK), 1, -1),
        ((AGAIN, TWO), -1, -1),
        ((BEGIN, TWO, AGAIN, TICK, AGAIN), 0, 0),
        ((BEGIN, TICK, END, TWO, TWO), -1, -1),
        ((BEGIN, TICK, BEGIN, TWO, HIT), -1, -1),
    ],
)
def test_a_beat_is_neither_early_nor_late(events, ticks, wrong):
    assert counted(*events) == Paces((ticks,), wrong)


def as_it_was(record, event):
    """Whoever was refused or not answered destroyed whatever group it found then."""
    return is_awaited(record, event) and record.destroy and is_declared(event.records[0])


def test_a_group_that_is_declared_while_another_is_destroyed_was_destroyed_with_it(monkeypatch):
    monkeypatch.setattr(group.is_to_destroy, "__code__", as_it_was.__code__)
    assert explore_directed(find_directed("declared after")).what == "S18"
