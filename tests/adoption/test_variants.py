"""Every kind of machine that `transitions` offers is adopted as it is, and searched to its end."""

from __future__ import annotations

import threading

import pytest
from adopted_machines import EXPECTED, asynchronous, timeout

from statemachines.adoption import adopt
from statemachines.adoption.verdict_text import describe_verdict


@pytest.mark.parametrize("factory", EXPECTED, ids=lambda factory: factory.__name__)
def test_every_machine_of_the_readme_is_adopted(factory):
    adopted = adopt(factory)
    verdict = adopted.search(elsewhere=False)
    found = verdict.found
    declared = {number for number, row in enumerate(adopted.stepper.rows) if not row.automatic}
    assert verdict.is_held
    assert verdict.is_complete
    assert verdict.repeated == found.steps > 0
    assert (found.states, len(declared - found.taken)) == EXPECTED[factory]
    assert threading.active_count() == 1 or all("Timer" not in one.name for one in threading.enumerate())


def test_what_bounds_asynchronous_machines_and_timers_is_said():
    adopted = adopt(asynchronous)
    assert "one trigger at a time" in describe_verdict(adopted, adopted.search(elsewhere=False))
    adopted = adopt(timeout)
    assert "may fire at any moment" in describe_verdict(adopted, adopted.search(elsewhere=False))


NOTEBOOK = """
from transitions import Machine

class Cell:
    def __init__(self):
        self.runs = 0
    def run_once(self):
        self.runs = (self.runs + 1) % 3

def make_cell():
    cell = Cell()
    Machine(cell, ["idle", "busy"], initial="idle", transitions=[["start", "idle", "busy"], ["stop", "busy", "idle"]],
            after_state_change="run_once")
    return cell
"""


def test_classes_of_a_notebook_are_searched_in_this_process_and_the_verdict_says_so():
    names = {"__name__": "__main__"}
    exec(NOTEBOOK, names)
    adopted = adopt(names["make_cell"], invariants=["runs < 2"])
    verdict = adopted.search()
    said = describe_verdict(adopted, verdict)
    assert (verdict.found.states, verdict.elsewhere) == (6, False)
    assert "in this process alone, so under one hash seed" in said
    assert "__main__:make_cell cannot be imported by a test; put the factory into a module" in said
