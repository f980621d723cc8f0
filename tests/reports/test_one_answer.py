"""One answer: the monitors of a run and the judge of its trace agree on every scenario of every protocol.

Runs are short in `make test`; `make soak` takes whole ones with three seeds, and `tools/soak.py` others.  Logs of real
runs, each of which is missing, cut or there twice: `test_damaged_logs.py`.
"""

from __future__ import annotations

import math

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines import registry
from statemachines.kernel import ConfigurationError
from statemachines.testing.two_judges import list_disagreements
from statemachines_sim.override import override
from statemachines_sim.scenario import check_scenario, find_scenario, list_shipped_with

PROTOCOLS = tuple(name for name in registry.names() if "sim" in registry.protocol(name).areas)
SHORT_S = 1.0
FEW = {
    "cursor_recovery": ["cursor_recovery.messages=40"],
    "shared_subscriptions": ["shared_subscriptions.load.messages=400"],
}
"""What short runs of a protocol carry: its messages would take longer than its faults."""
SEEDS = (7, 31, 32, 33)
"""The first with short runs, of every third scenario."""
WHOLE = {"sequence_windows": {"cycled", "forgotten", "nothing_follows"}}
"""Scenarios that must come to what they are to show, and windows turn but slowly."""


FINDS = [
    ("sequence_windows/many_publishers", 20),  # copies of what was sent before a death reach the next life
    ("sequence_windows/many_publishers", 23),  # a publisher that was forgotten for others begins anew
    ("sequence_windows/reborn", 22),  # what came to a node that stood still died with it
    ("sequence_windows/reborn", 28),  # so did what was overtaken on its way there
    ("persistent_sessions/takeovers", 23),  # an owner is told that it is none where its node asked
    ("shared_subscriptions/freezes", 21),  # a grant that was kept comes beside the same by another way
    ("shared_subscriptions/stores", 20),  # a store restarts after it died within a batch
    ("shared_subscriptions/power", 20),  # and after it lost its power
    ("cursor_recovery/odd_clocks", 24),  # an owner dies while an operation looks for a cursor
    ("mqtt_connections/kept_publishers", 3),  # two messages of QoS 2 are released at once when a session goes on
]
"""Scenarios of four seconds and seeds on which the two disagreed."""


def scenario_of(protocol, name, safety_s, settings=()):
    scenario = override(find_scenario(f"{protocol}/{name}"), settings)
    if name in WHOLE.get(protocol, ()):
        return scenario
    phases = replace(scenario.phases, safety_s=min(safety_s, scenario.phases.safety_s))
    return replace(scenario, phases=phases)


@pytest.mark.parametrize("seed", mark_long(SEEDS, *map(str, SEEDS[1:])))
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_D_362_monitors_and_judge_give_one_answer(tmp_path, protocol, seed):
    safety_s = SHORT_S if seed == SEEDS[0] else math.inf
    few = FEW.get(protocol, []) if seed == SEEDS[0] else []
    names = list(list_shipped_with(protocol))[:: 3 if seed == SEEDS[0] else 1]
    assert list_disagreements([scenario_of(protocol, name, safety_s, few) for name in names], (seed,), tmp_path) == []


@pytest.mark.parametrize(
    ("name", "seed"), [pytest.param(*one, marks=[pytest.mark.long] * (at % 2)) for at, one in enumerate(FINDS)]
)
def test_where_they_disagreed_they_agree(tmp_path, name, seed):
    assert list_disagreements([scenario_of(*name.split("/"), safety_s=4.0)], (seed,), tmp_path) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS[:3])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_of_each_kind_of_fault_alone_there_is_one_answer(tmp_path, protocol, seed):
    """With many kinds at once one hides what another does.  What a kind may break its own scenario leaves out of
    scope."""
    shipped = list_shipped_with(protocol)
    base = find_scenario(f"{protocol}/{'storm' if 'storm' in shipped else next(iter(shipped))}")
    found = [find_scenario(f"{protocol}/{name}") for name in shipped]
    breaks = {kind: one.out_of_scope for one in found if len(one.faults) == 1 for kind in one.faults}
    alone = [
        replace(base, name=kind.replace("_", "-"), faults={kind: (2, 2)}, swarm=None, out_of_scope=breaks.get(kind, ()))
        for kind in base.kinds
    ]
    assert list_disagreements([one for one in alone if hits_somebody(one)], (seed,), tmp_path) == []


def hits_somebody(scenario):
    """Other errors of the scenario are errors of the test."""
    try:
        check_scenario(scenario)
    except ConfigurationError as error:
        if not error.rule.startswith(("hits nobody", "needs recovery")):
            raise
        return False
    return True


@pytest.mark.long
def test_a_run_has_time_for_all_deaths_of_messages_that_kill(tmp_path):
    """A monitor said that a stream is granted to nobody, when its third member had just died of the message."""
    scenario = scenario_of("shared_subscriptions", "relaxed", SHORT_S, ["shared_subscriptions.load.messages=300"])
    assert list_disagreements([scenario], (7,), tmp_path) == []


@pytest.mark.long
def test_an_owner_that_stands_still_for_an_expiry_has_lost_its_session(tmp_path):
    """A collector forgets the session; the client hangs up before it has noticed, and is given another."""
    assert list_disagreements([find_scenario("persistent_sessions/short_expiries")], (33,), tmp_path) == []


@pytest.mark.parametrize(("seed", "safety_s"), [(1, 8.0), pytest.param(32, 30.0, marks=pytest.mark.long)])
def test_what_a_commit_took_out_of_which_its_owner_never_heard_is_no_gap(tmp_path, seed, safety_s):
    """The store dies under the commit that finds the message over; its owner has stopped when it comes back.  What
    others publish later does not wait for the message."""
    scenario = scenario_of("persistent_sessions", "aging_messages", safety_s)
    scenario = replace(scenario, faults={"store_crash": (2, 2)})
    assert list_disagreements([scenario], (seed,), tmp_path) == []


@pytest.mark.long
def test_of_two_rows_of_a_message_the_one_that_was_lost_is_not_the_one_that_is_sent(tmp_path):
    """The session has two filters that match it; retention deletes its first row before an owner has taken that."""
    assert list_disagreements([find_scenario("persistent_sessions/retained_briefly")], (30,), tmp_path) == []
