"""Sequence windows in the simulator: publishers and receivers over a multicast network; see sim/scenarios."""

from statemachines_sim.sequence_windows.sim import SIM as SIM
