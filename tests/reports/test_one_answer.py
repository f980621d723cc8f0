"""One answer: the monitors of a run and the judge of its trace agree on every scenario of every protocol.

Runs are short here; `tools/soak.py` takes whole ones with other seeds.  Logs of real runs, each of which is missing,
cut or there twice: `test_damaged_logs.py`.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from statemachines import registry
from statemachines.testing.two_judges import disagreements
from statemachines_sim.scenario import find_scenario, list_shipped_with

PROTOCOLS = ("cursor_recovery", "missed_samples", "persistent_sessions", "sequence_windows", "shared_subscriptions")
SHORT_S = 2.0
WHOLE = {"sequence_windows": {"cycled", "forgotten"}}
"""Scenarios that must come to what they are to show, and windows turn but slowly."""


def scenario_of(protocol, name):
    scenario = find_scenario(f"{protocol}/{name}")
    if name in WHOLE.get(protocol, ()):
        return scenario
    phases = replace(scenario.phases, safety_s=min(SHORT_S, scenario.phases.safety_s))
    return replace(scenario, phases=phases)


def test_every_protocol_is_asked():
    assert {name for name in registry.names() if "sim" in registry.protocol(name).areas} >= set(PROTOCOLS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_D_362_monitors_and_judge_give_one_answer(tmp_path, protocol):
    scenarios = [scenario_of(protocol, name) for name in list_shipped_with(protocol)]
    assert disagreements(scenarios, (7,), tmp_path) == []
