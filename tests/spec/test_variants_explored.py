"""Every system begins by the rules of every variant: what its properties look at is there in each."""

from __future__ import annotations

import pytest

from statemachines import registry
from statemachines_spec.explorer.explore import explore
from statemachines_spec.protocol import choose_systems, of_protocol

OTHER_RULES = [
    (name, variant)
    for name in registry.names()
    if "spec" in registry.protocol(name).areas
    for variant in list(of_protocol(name).variants)[1:]
]


@pytest.mark.parametrize(("protocol", "variant"), OTHER_RULES)
def test_every_system_begins_by_the_rules_of_a_variant(protocol, variant):
    for made in choose_systems(protocol, variant=variant).systems:
        assert explore(made, engine="plain", hashing=False, states_max=10).states > 1
