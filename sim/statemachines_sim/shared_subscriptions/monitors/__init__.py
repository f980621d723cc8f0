"""The monitors, by subject; `statemachines_sim.shared_subscriptions.watch` puts them together."""
