"""A counterexample that was written as ITF and read again is the same script for real hosts."""

from __future__ import annotations

from statemachines.trace.itf import read_itf
from statemachines_spec import explore
from statemachines_spec.itf.export import export_run
from statemachines_spec.itf.matching import match_run
from statemachines_spec.script.path_to_script import script_of
from statemachines_spec.shared_subscriptions.systems import system


def test_a_run_that_went_through_itf_has_the_same_script(tmp_path):
    late_copies = system("late-copies", "small", "as_written")
    found = explore(late_copies).path
    export_run(tmp_path / "run.itf.json", late_copies, found)
    again = match_run(late_copies, read_itf(tmp_path / "run.itf.json")).run
    first, second = (
        script_of(late_copies, one, protocol="shared_subscriptions", variant="as_written") for one in (found, again)
    )
    assert second == first
    assert second.breaks == "S5"
