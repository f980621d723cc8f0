"""Every system begins by the rules of every variant: what its properties look at is there in each."""

from __future__ import annotations

import pytest

from statemachines import registry
from statemachines_reports.neutral.step_checks import has_shipped_rules
from statemachines_sim.persistent_sessions.script_world import simulate
from statemachines_spec.explorer.explore import explore
from statemachines_spec.protocol import choose_systems, of_protocol
from statemachines_spec.script.path_to_script import script_of

OTHER_RULES = [
    (name, variant)
    for name in registry.names()
    if "spec" in registry.protocol(name).areas
    for variant in list(of_protocol(name).variants)[1:]
]


@pytest.mark.parametrize(("protocol", "variant"), OTHER_RULES)
def test_every_system_begins_by_the_rules_of_a_variant(protocol, variant):
    for made in choose_systems(protocol, variant=variant).systems:
        assert explore(made, engine="plain", hashing=False, states_max=40).states > 1


def test_a_run_by_other_rules_need_not_take_rows_of_the_shipped_tables():
    """A counterexample of the source's machine: what is wrong of it is not said of the shipped one."""
    (made,) = choose_systems("persistent_sessions", ("two-writers",), variant="as_written").systems
    script = script_of(
        made, explore(made, engine="plain", hashing=False).path, protocol="persistent_sessions", variant="as_written"
    )
    sides = {variant: simulate(script, variant).parameters for variant in ("as_written", "settled")}
    assert {name: said["other_rules"] for name, said in sides.items()} == {"as_written": True, "settled": False}
    assert [has_shipped_rules(said) for said in sides.values()] == [False, True]
