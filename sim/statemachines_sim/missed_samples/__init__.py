"""Missed-samples recovery in the simulator: publishers, caches, subscribers, a network of keys; see sim/scenarios."""

from statemachines_sim.missed_samples.sim import SIM as SIM
