"""Planted bugs are looked for among real processes, too: they are forked where the bug is, and run the declared
machines."""

from statemachines.testing.bug_search import find, methods_of
from statemachines_spec.bug import find_bug


def test_real_processes_find_that_cursors_of_the_dead_stay_taken():
    bug = find_bug("cursor_recovery/stale-is-left-to-write")
    found = find("cursor_recovery", bug, "processes", cpu_s=3_600, tries=40)
    assert found.what, "whoever needs one waits for ever, or nobody does and it stays: which is seen first differs"
    assert found.last.where.startswith("plan ")
    assert found.cpu_s > 0


def test_only_a_protocol_with_a_harness_is_looked_at_so():
    assert methods_of("cursor_recovery")[-1] == "processes"
    assert "processes" not in methods_of("shared_subscriptions")
