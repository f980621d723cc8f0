"""Ways between nodes, and between a node and the database, that nothing heals: sessions go on all the same."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from long_cases import mark_long

from statemachines.kernel import node_of
from statemachines.persistent_sessions.writer_flow import WRITER_FLOW
from statemachines.persistent_sessions.writer_flow_actions import ask_fresh
from statemachines.persistent_sessions.writer_flow_record import WAITING, LinkLost
from statemachines_sim.fault import Fault
from statemachines_sim.persistent_sessions import SIM
from statemachines_sim.persistent_sessions.section import SessionSection
from statemachines_sim.scenario import Net, Phases, Scenario, find_scenario
from statemachines_sim.units import MS, S
from statemachines_sim.world import World
from statemachines_spec.persistent_sessions.clients import on

NODES, DATABASES = find_scenario("unreachable_nodes"), find_scenario("unreachable_databases")
STILL = Scenario(
    "still", SIM.name, SessionSection(subscribers=3, publishers=1, stay_s=(0, 0)),
    network=Net(fifo=True), phases=Phases(14.0, 60.0),
)  # fmt: skip


def lasting(*ways, at_s=3):
    return tuple(Fault("unreachable", at_s * S, 0, one, other) for one, other in ways)


def test_PS_330_with_new_patience_at_every_break_a_silent_writer_would_never_be_fenced():
    with ExitStack() as stack:
        on(WRITER_FLOW, LinkLost, WAITING, to=WAITING, do=ask_fresh)(stack)
        outcome = World(NODES, 3, schedule=lasting(("node-1", "node-3"))).run()
    assert outcome.monitor == "COMPLETE"


@pytest.mark.parametrize("to_database", [True, False])
@pytest.mark.parametrize("seed", mark_long((0, 7), "7"))
def test_PS_331_clients_of_a_node_without_its_database_are_at_another_within_its_lease_and_a_sweep(to_database, seed):
    world = World(STILL, seed, schedule=())
    world.run(until_ns=5 * S)
    node = node_of(world.processes["subscriber-1"].server)
    cut = (node, "database") if to_database else ("database", node)
    world.cut_for_good(*cut, "unreachable")
    clients = [one for name, one in world.processes.items() if name.startswith("subscriber-")]
    lease_ms, sweep_ms, redial_ms, resume_ms = STILL.own.lease_ms, 1_000, 300, 500
    world.run(until_ns=5 * S + (lease_ms + sweep_ms + redial_ms + resume_ms) * MS)
    assert world.processes[node].reception.is_cut_off
    assert all(client.welcome and node_of(client.server) != node for client in clients)
    outcome = world.run()
    assert outcome.is_held, outcome
