"""Shared subscriptions in the simulator: `SIM`, which their registration names."""

from statemachines_sim.shared_subscriptions.section import Load as Load
from statemachines_sim.shared_subscriptions.section import Members as Members
from statemachines_sim.shared_subscriptions.section import Section as Section
from statemachines_sim.shared_subscriptions.section import scenario as scenario
from statemachines_sim.shared_subscriptions.sim import SIM as SIM
from statemachines_sim.shared_subscriptions.watch import Watch as Watch
