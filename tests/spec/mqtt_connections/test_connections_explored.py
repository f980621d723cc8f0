"""MQTT connections explored: a client that says anything, a takeover, and a session that refuses."""

from __future__ import annotations

import pytest
from planted_cells import PAGES, read_rows

from statemachines import cli
from statemachines_spec.explorer.explore import explore
from statemachines_spec.mqtt_connections import SPEC


@pytest.mark.parametrize("name", SPEC.systems)
def test_a_connection_keeps_its_promises(name):
    """ACKED, EXACTLY, QUOTA, ONEEND, VIOLATION, SAYABLE, ANSWERED, RELEASED, ONEOWNER and WILL."""
    result = explore(SPEC.system(name), engine="plain", hashing=False)
    assert (result.ended, result.is_held, result.is_shown) == ("complete", True, True)
    assert int(read_rows(PAGES / "mqtt_connections" / "systems.md")[name][2].replace(" ", "")) == result.states


def test_the_commands_know_it(capsys):
    assert cli.run(("check", "mqtt_connections", "--system", "publishing", "--engine", "plain")) == 0
    assert "VIOLATION" in capsys.readouterr().out
    assert cli.run(("check", "mqtt_connections", "--system", "strange")) == 2
