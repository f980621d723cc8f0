"""What was made at run time, or in a notebook, is refused where another process would have to have it."""

from __future__ import annotations

import pytest

from statemachines import registry
from statemachines.kernel import ConfigurationError, Protocol
from statemachines_sim.campaign import campaign
from statemachines_sim.protocol import SimProtocol
from statemachines_sim.scenario import Scenario


def test_a_campaign_of_a_protocol_made_at_run_time():
    class Mine(SimProtocol):
        name = "mine"

    scenario = Scenario("one", Mine())
    with pytest.raises(ConfigurationError, match="put it into a module"):
        campaign(scenario, range(40), processes=2)
    assert len(campaign(scenario, range(2), processes=1)) == 2


def test_a_protocol_of_a_notebook():
    noted = Protocol(name="noted", prefix="NB", machines={"cell": "__main__:CELL"})
    with pytest.raises(ConfigurationError, match=r"cell stands in __main__, .* or analyze without Spark"):
        registry.check_importable(noted, "analyze without Spark")
