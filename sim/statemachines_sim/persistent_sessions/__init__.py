"""Persistent sessions in the simulator: nodes over one database, subscribers, publishers, faults, who judges them."""

from statemachines_sim.persistent_sessions.sim import SIM as SIM
