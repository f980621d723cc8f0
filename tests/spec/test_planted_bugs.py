"""Planted bugs of all protocols: exploration finds each in the system, and after the states, that the table says.

After a change of a machine or a system: `python tools/planted.py --protocol P --method exploration --write`, as the
pages say.  Those of shared subscriptions, whose runs are replayed, too: `tests/shared_subscriptions/testing/`.
"""

from __future__ import annotations

import pytest
from long_cases import mark_long
from planted_cells import PAGES, STATES_MAX, read_found, read_rows

from statemachines.testing.bug_search import simulation_run
from statemachines_spec.bug import plant_bug
from statemachines_spec.directed_system import explore_directed
from statemachines_spec.protocol import all_parts, of_protocol

PROTOCOLS = ("cursor_recovery", "missed_samples", "mqtt_connections", "persistent_sessions", "sequence_windows")
NOT_EXPLORED = {
    "missed_samples": {"dead-are-not-asked"},
    "persistent_sessions": {"leap-is-believed", "lead-is-forgotten"},
}
"""The page of the protocol says why."""
FOUND = {
    f"{protocol}/{bug}": said for protocol in PROTOCOLS for bug, said in read_found(protocol)["exploration"].items()
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_bug_is_in_the_table_and_found(protocol):
    rows = read_rows(PAGES / protocol / "planted_bugs.md")
    assert list(rows) == [bug.name for bug in of_protocol(protocol).bugs]
    found = read_found(protocol)["exploration"]
    assert None not in found.values()
    assert set(rows) - set(found) == NOT_EXPLORED.get(protocol, set())


@pytest.mark.parametrize("bug", mark_long(FOUND, *(bug for bug in FOUND if int(FOUND[bug]["states"]) > STATES_MAX)))
def test_a_planted_bug_is_found_where_the_table_says(bug):
    """Found anew in the one system that found it first (`tools/planted.py` goes through all)."""
    said, protocol = FOUND[bug], bug.partition("/")[0]
    directed = next(one for one in of_protocol(protocol).list_directed() if one.name == said["where"])
    with plant_bug(bug):
        found = explore_directed(directed, twice=protocol == "missed_samples")  # some raise in the second step alone
    assert (found.what, found.steps, found.states) == (said["what"], int(said["steps"]), int(said["states"]))


@pytest.mark.parametrize("bug", sorted(NOT_EXPLORED["persistent_sessions"]))
def test_a_planted_bug_of_a_clock_is_found_by_the_simulation_that_the_table_names(bug):
    said = read_found("persistent_sessions")["simulation"][bug]
    assert simulation_run("persistent_sessions", said["where"]).what == ""
    with plant_bug(bug):
        assert simulation_run("persistent_sessions", said["where"]).what == said["what"]


def test_no_two_planted_bugs_have_one_name():
    """Of all protocols of ours: a table, a report and `tools/planted.py` name them by it alone."""
    names = [bug.name for part in all_parts().values() for bug in part.bugs]
    assert len(names) == len(set(names)) > 100
