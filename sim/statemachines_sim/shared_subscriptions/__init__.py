"""Shared subscriptions in the simulator: `SIM`, which their registration names."""

from statemachines_sim.shared_subscriptions.section import GroupLoad as GroupLoad
from statemachines_sim.shared_subscriptions.section import GroupSection as GroupSection
from statemachines_sim.shared_subscriptions.section import Members as Members
from statemachines_sim.shared_subscriptions.section import scenario as scenario
from statemachines_sim.shared_subscriptions.sim import SIM as SIM
from statemachines_sim.shared_subscriptions.watch import GroupWatch as GroupWatch
