"""Planted bugs: simulation and Hypothesis find them where the tables of `planted_bugs.md` say.

After a change of a machine, a scenario or a system: `python tools/planted.py --protocol P --write`, as the pages say.
Exploration's column is repeated in `tests/spec/test_planted_bugs.py`.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from planted_cells import STATES_MAX, read_found

from statemachines.testing.bug_search import driven_run, simulation_run
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

LEAST = {
    ("missed_samples", "simulation"): 60,
    ("missed_samples", "hypothesis"): 40,
    ("persistent_sessions", "hypothesis"): 38,
}
"""How many bugs of a protocol the first runs of a method find; to repeat the rest as well would take long."""
RUN = {"simulation": simulation_run, "hypothesis": driven_run}
AT_ONCE = {
    (protocol, method): {
        bug: said for bug, said in read_found(protocol)[method].items() if said["where"].endswith(", seed 0")
    }
    for protocol, method in LEAST
}


def is_explored(protocol, bug):
    """Whether `make test` finds the bug by exploration."""
    said = read_found(protocol)["exploration"].get(bug)
    return said is not None and int(said["states"]) <= STATES_MAX


@pytest.mark.parametrize(("protocol", "method"), LEAST)
def test_so_many_are_found_by_it(protocol, method):
    assert None not in read_found(protocol)[method].values()
    assert len(AT_ONCE[protocol, method]) >= LEAST[protocol, method]


EVERY = 12
CELLS = [
    pytest.param(*of, bug, marks=[pytest.mark.long] * (number % EVERY != 0 and is_explored(of[0], bug)))
    for of, found in AT_ONCE.items()
    for number, bug in enumerate(found)
]
"""`make test` repeats every twelfth, and those that exploration does not find there; `make soak` repeats the rest."""


@pytest.mark.parametrize(("protocol", "method", "bug"), CELLS)
def test_a_planted_bug_is_found_where_the_table_says(protocol, method, bug):
    said = AT_ONCE[protocol, method][bug]
    with plant_bug(f"{protocol}/{bug}"):
        assert RUN[method](protocol, said["where"]).what == said["what"]


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(("protocol", "method"), LEAST)
def test_nothing_breaks_there_where_nothing_is_planted(protocol, method, every):
    places = sorted({said["where"] for said in AT_ONCE[protocol, method].values()})
    assert len(places) > 5
    assert [(one, RUN[method](protocol, one).what) for one in places[::every]] == [(one, "") for one in places[::every]]


@pytest.mark.parametrize(
    ("bug", "scenario"),
    [
        ("all-but-the-newest", "answers_for_the_dead"),
        ("history-of-one", "late_with_history"),
        ("newest-is-oldest", "short_history_only"),
    ],
)
def test_NOGAP_what_a_cache_has_and_nobody_gets_is_seen_by_who_looks_into_the_cache_alone(bug, scenario):
    made = find_scenario(f"missed_samples/{scenario}")
    with plant_bug(f"missed_samples/{bug}"):
        assert World(made, 0, trace=False).run().monitor == "NOGAP"
        blind = World(replace(made, out_of_scope=("NOGAP",)), 0, trace=False)
        outcome = blind.run()
    assert (outcome.monitor, blind.watch.judge.noted.keys()) == ("", {"NOGAP"})
