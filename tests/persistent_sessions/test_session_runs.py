"""Simulated sessions: every scenario holds, runs repeat, and faults do what they say.

Ways between nodes, and between a node and the database, that nothing heals: sessions go on all the same.
"""

from contextlib import ExitStack

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, node_of
from statemachines.persistent_sessions.writer_flow import WAITING, WRITER_FLOW, LinkLost, ask_fresh
from statemachines_sim.campaign import campaign
from statemachines_sim.fault import Fault
from statemachines_sim.persistent_sessions import SIM
from statemachines_sim.persistent_sessions.section import SessionSection
from statemachines_sim.scenario import (
    Net,
    Phases,
    Scenario,
    check_scenario,
    find_scenario,
    from_plain,
    list_shipped_with,
)
from statemachines_sim.units import MS, S
from statemachines_sim.world import World
from statemachines_spec.persistent_sessions.clients import on

NAMES = sorted(list_shipped_with(SIM.name))
SHORT = Scenario(
    "short", SIM.name, SessionSection(subscribers=2, publishers=1), network=Net(fifo=True), phases=Phases(8.0, 60.0)
)
SAFETY_S = {"resumed_at_once": 4.0, "small_buffers": 5.0}
"""What has a heavy load is shorter here than the others."""


def short(schedule=(), seed=1, **keys):
    scenario = replace(SHORT, own=replace(SHORT.own, **keys))
    return World(scenario, seed, schedule=schedule)


def count(world, kind, name=""):
    return sum(row[4] == kind and row[5] == name for row in world.rows)


@pytest.mark.parametrize("safety_s", mark_long((3.0, 6.0), "6.0"))
@pytest.mark.parametrize("name", mark_long(NAMES, "resumed_at_once", "moving_publishers"))
def test_every_scenario_of_sessions_holds(name, safety_s):
    scenario = find_scenario(f"{SIM.name}/{name}")
    safety_s = min(safety_s, SAFETY_S.get(name, safety_s))
    joins = tuple(at for at in scenario.own.join_nodes_s if at < safety_s)
    own = replace(scenario.own, join_nodes_s=joins)
    scenario = replace(scenario, own=own, phases=replace(scenario.phases, safety_s=safety_s))
    (outcome,) = campaign(scenario, [NAMES.index(name)], processes=1)
    assert outcome.is_held, (
        f"repeat it with: gapless simulate {SIM.name}/{name} --seed {outcome.seed} --set phases.safety_s={safety_s}"
        f"{f' --set {SIM.name}.join_nodes_s={list(joins)}' if joins else ''}\n{outcome}"
    )
    assert outcome.tally["delivered"] > 0
    assert not outcome.noted


def test_the_same_seed_is_the_same_run_of_sessions():
    scenario = replace(find_scenario(f"{SIM.name}/sessions_storm"), phases=Phases(4.0, 90.0))
    scenario = replace(scenario, own=replace(scenario.own, join_nodes_s=()))
    runs = [World(scenario, 4, data=True) for _ in range(2)]
    assert runs[0].run() == runs[1].run()
    assert runs[0].rows == runs[1].rows
    assert World(scenario, 5).run() != runs[0].run()


def test_replicas_are_behind_and_never_by_more_than_they_may():
    world = short(stay_s=(1, 2), lag_ms=(1_000, 1_000), replicas=1)
    statements = world.devices["database"].service
    seen, (replica,) = [], statements._replicas
    read = replica.read

    def looked(request, now_ns):
        found = read(request, now_ns)
        seen.append(now_ns - replica._copy.last_commit_ns())
        return found

    replica.read = looked
    assert world.run().is_held
    assert max(seen) > 500 * MS
    assert max(seen) <= 1_000 * MS + S, "a second may pass in which nobody commits"


def test_a_liar_lies_and_nothing_comes_of_it():
    liar = [Fault("liar", S, 7 * S, f"node-{number}") for number in (1, 2)]
    moves = {"stay_s": (1, 2), "away_ms": (1, 100), "leave": 0.0, "clean": 0.0, "resubscribe": 0.0}
    world = short(liar, nodes=2, **moves)
    told = []
    world.watch.says = lambda party, message: told.append(message)
    network = world.network
    sent, send = [], network.send
    network.send = lambda node, party, to, message, now_ns: (
        sent.append(message),
        send(node, party, to, message, now_ns),
    )
    assert world.run().is_held
    lies = [one for one in sent if type(one).__name__ in ("BeginTakeover", "MarkerWanted") and one not in told]
    assert lies


@pytest.mark.long
def test_a_clock_of_the_database_that_is_set_back_keeps_nobody_from_going_on():
    """Its time stands still until the clock has caught up; a node that dies then seems to live, and its sessions go on
    elsewhere all the same."""
    set_back = [Fault("set_back", 3 * S, 0, "database", amount=30 * S), Fault("crash", 4 * S, 20 * S, "node-1")]
    scenario = replace(SHORT, own=replace(SHORT.own, stay_s=(0, 0), nodes=2), phases=Phases(25.0, 60.0))
    world = World(scenario, 1, schedule=set_back)
    times, commits, statements = [], [], world.devices["database"].service
    answer = statements._answer

    def seen(request, now_ns):
        found = answer(request, now_ns)
        times.append(now_ns)
        commits.append(statements.database.last_commit_ns())
        return found

    statements._answer = seen
    world.run(until_ns=20 * S)
    assert min(times) < 0 < max(times), "it was set back behind its beginning"
    assert commits == sorted(commits), "its own time does not go back"
    assert commits[-1] < 4 * S
    assert all(client.welcome for name, client in world.processes.items() if name.startswith("subscriber"))
    assert world.run().is_held
    assert world.watch.tally()["stored"] == world.watch.tally()["delivered"] > 20


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"receive_maximum": [0]}, "receive_maximum"),
        ({"qos": []}, "qos"),
        ({"filters": 9}, "filters"),
        ({"publish_ms": [0, 10]}, "publish_ms"),
        ({"stay_s": [0, 10]}, "stay_s"),
        ({"marker_ms": 9_000}, "marker_ms"),
        ({"join_nodes_s": [99.0]}, "join_nodes_s"),
        ({"leave": 2}, "leave"),
    ],
)
def test_a_section_that_cannot_be_is_refused(section, said):
    plain = {"name": "x", "protocol": SIM.name, "network": {"fifo": True}, SIM.name: section}
    with pytest.raises(ConfigurationError, match=said):
        check_scenario(from_plain(plain))


def test_connections_keep_order_or_there_are_none():
    with pytest.raises(ConfigurationError, match=r"network\.fifo"):
        check_scenario(from_plain({"name": "x", "protocol": SIM.name}))


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
