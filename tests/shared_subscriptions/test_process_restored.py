"""A declared process that is made anew from its value goes on as before, whatever it hears."""

import pytest
from long_cases import mark_long
from process_world import ProcessWorld

INPUTS = 4_000


@pytest.mark.parametrize("seed", mark_long(range(8), "1", "2", "3", "4", "5", "6", "7"))
def test_a_process_that_is_made_anew_from_its_value_before_each_input_goes_on_equal(seed):
    world = ProcessWorld(seed)
    for _ in range(INPUTS):
        world.step()
    assert sum(twin.outs for twin in world.twins) > INPUTS / 4
