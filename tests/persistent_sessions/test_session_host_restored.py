"""A node of sessions that is made anew from its value goes on as before, whatever it hears."""

import pytest
from long_cases import mark_long
from session_host_world import SessionHostWorld

STEPS = 600


@pytest.fixture
def world(request, tmp_path):
    made = SessionHostWorld(tmp_path / "s.db", request.param)
    yield made
    SessionHostWorld.close_all()


@pytest.mark.parametrize("world", mark_long(range(4), "1", "2", "3"), indirect=True)
def test_a_node_that_is_made_anew_from_its_value_before_each_input_goes_on_equal(world):
    for _ in range(STEPS):
        world.step()
        assert all(host.twins.is_read_back() for host in world.hosts.values())
    assert world.outs + sum(host.twins.outs for host in world.hosts.values()) > 2 * STEPS
