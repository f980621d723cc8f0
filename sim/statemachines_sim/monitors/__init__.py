"""The monitors, by subject; `statemachines_sim.monitor` puts them together."""
