"""Persistent sessions in the simulator: nodes over one database, subscribers, publishers, faults, and who judges them."""

from statemachines_sim.persistent_sessions.sim import SIM as SIM
