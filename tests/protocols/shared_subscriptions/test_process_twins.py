"""The declared processes do what the shipped hosts do, whatever they hear, and go on from their value as before."""

from __future__ import annotations

import pytest
from process_twins import TwinWorld

INPUTS = 3_000


@pytest.mark.parametrize("seed", range(8))
def test_a_declared_process_does_what_the_shipped_host_does(seed):
    world = TwinWorld(seed)
    for _ in range(INPUTS):
        world.step()
    assert sum(twin.outs for twin in world.twins) > INPUTS / 4


@pytest.mark.parametrize("seed", range(8, 12))
def test_a_process_that_is_made_anew_from_its_value_after_each_input_goes_on_equal(seed):
    world = TwinWorld(seed)
    for _ in range(INPUTS // 2):
        world.step()
        for twin in world.twins:
            before = twin.process.state()
            twin.restore()
            assert twin.process.state() == before


@pytest.mark.parametrize("seed", range(12, 14))
def test_a_process_is_read_back_as_it_was_written(seed):
    world = TwinWorld(seed)
    for count in range(INPUTS // 2):
        world.step()
        for twin in world.twins if count % 10 == 0 else ():
            state = twin.process.state()
            if not state.owed:
                process = twin.process.process
                assert process.decode(process.encode(state)) == state
