"""The same seed is the same run byte for byte, whatever the hash seed of the process."""

import os
import subprocess
import sys

import pytest
from long_cases import mark_long

PROGRAM = """
import hashlib, sys
from msgspec.structs import replace
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World
few = ["shared_subscriptions.load.messages=200"]
swarm = override(find_scenario("swarm"), few)
everything = replace(swarm, swarm=replace(swarm.swarm, share=1.0))
storm = override(find_scenario("storm"), few)
others = [storm, *map(find_scenario, ("missed_samples/new_id", "sequence_windows/any_weather"))]
for scenario in (everything, *others):
    world = World(scenario, int(sys.argv[1]), data=True)
    world.run()
    print(hashlib.sha256(repr(world.rows).encode()).hexdigest())
"""


@pytest.mark.parametrize("seed", mark_long((4, 5, 7), "5", "7"))
def test_the_same_seed_is_the_same_run_byte_for_byte_whatever_the_hash_seed(seed):
    said = set()
    for hash_seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", PROGRAM, str(seed)]
        said.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(said) == 1
    assert len(set(said.pop().split())) == 4
