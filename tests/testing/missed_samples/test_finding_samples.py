"""Planted bugs of missed samples: simulation and Hypothesis find them where the table of `planted_bugs.md` says.

After a change of a machine, a scenario or a system: `python tools/planted.py --protocol missed_samples --write`, as the
page says.  Exploration's column is repeated in `tests/spec/missed_samples/`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from statemachines.testing.bug_search import driven_run, simulation_run
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug
from statemachines_spec.missed_samples.bugs import BUGS

PROTOCOL = "missed_samples"
PAGE = Path(__file__).parents[3] / "spec" / PROTOCOL / "planted_bugs.md"
CELL = re.compile(r"(?P<what>\S.*?) in (?P<where>\S+, seed \d+); [\d.]+ s")
COLUMNS = {"simulation": 4, "hypothesis": 5}
RUN = {"simulation": simulation_run, "hypothesis": driven_run}


def found(method):
    """Bug -> what broke, and where."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.read_text().splitlines()
            if line.startswith("| `")]  # fmt: skip
    cells = {row[0].strip("`"): row[COLUMNS[method]] for row in rows}
    assert list(cells) == [bug.name for bug in BUGS]
    return {name: CELL.fullmatch(cell) for name, cell in cells.items() if cell != "-"}


FOUND = {method: found(method) for method in COLUMNS}
AT_ONCE = [(method, name) for method, names in FOUND.items() for name, said in names.items()
           if said["where"].endswith(", seed 0")]  # fmt: skip
"""What the first runs of a method find; to repeat the rest as well would take long."""


@pytest.mark.parametrize(("method", "least"), [("simulation", 60), ("hypothesis", 40)])
def test_so_many_are_found_by_it(method, least):
    assert None not in FOUND[method].values()
    assert sum(one == method for one, _ in AT_ONCE) >= least


@pytest.mark.parametrize(("method", "name"), AT_ONCE)
def test_a_planted_bug_is_found_where_the_table_says(method, name):
    said = FOUND[method][name]
    with plant_bug(f"{PROTOCOL}/{name}"):
        assert RUN[method](PROTOCOL, said["where"]).what == said["what"]


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("method", COLUMNS)
def test_nothing_breaks_there_where_nothing_is_planted(method, every):
    places = sorted({said["where"] for said in FOUND[method].values() if said["where"].endswith(", seed 0")})
    assert len(places) > 5
    assert [(one, RUN[method](PROTOCOL, one).what) for one in places[::every]] == [(one, "") for one in places[::every]]


@pytest.mark.parametrize(
    ("bug", "scenario"),
    [
        ("all-but-the-newest", "answers_for_the_dead"),
        ("history-of-one", "late_with_history"),
        ("newest-is-oldest", "short_history_only"),
    ],
)
def test_NOGAP_what_a_cache_has_and_nobody_gets_is_seen_by_who_looks_into_the_cache_alone(bug, scenario):
    made = find_scenario(f"{PROTOCOL}/{scenario}")
    with plant_bug(f"{PROTOCOL}/{bug}"):
        assert World(made, 0, trace=False).run().monitor == "NOGAP"
        blind = World(replace(made, out_of_scope=("NOGAP",)), 0, trace=False)
        outcome = blind.run()
    assert (outcome.monitor, blind.watch.judge.noted.keys()) == ("", {"NOGAP"})
