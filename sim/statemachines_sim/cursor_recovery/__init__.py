"""Cursor recovery in the simulator: writers and readers over one shared memory (sim/scenarios/cursor_recovery)."""

from statemachines_sim.cursor_recovery.sim import SIM as SIM
